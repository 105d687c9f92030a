/* plan.c - what a layout would look like: who does what, memory per rank, predicted speed. Reads
 * headers of the checkpoint only; no MPI, so it answers on a login node whether a job is worth
 * submitting. */
#include "config.h"
#include <jansson.h>
#include <stdio.h>
#include "cli.h"
#include "describe.h"
#include "tutti/model.h"
#include "tutti/plan.h"

typedef struct prediction {
    int64_t batch, context;
    double step_s, bytes;
} prediction;

static tt_status print_json(const tt_model *model, const tt_layout *layout, const prediction *p,
                            tt_status fit)
{
    json_t *ranks = NULL;
    TT_TRY(tti_cli_ranks_json(model, layout, &ranks));
    json_t *predicted = json_pack(
        "{s:I, s:I, s:f, s:f, s:f, s:b}", "batch", (json_int_t)p->batch, "context",
        (json_int_t)p->context, "step_s", p->step_s, "bytes_per_step", p->bytes, "tokens_per_s",
        p->step_s > 0 ? (double)p->batch / p->step_s : 0.0, "measured_rates", 0);
    json_t *all = json_pack("{s:o, s:b, s:o, s:o}", "layout", tti_cli_layout_json(layout), "fits",
                            fit == TT_OK, "predicted", predicted, "ranks", ranks);
    TT_CHECK(all, TT_ERR_NOMEM, "no memory for a line of JSON");
    json_dumpf(all, stdout, JSON_COMPACT);
    fputc('\n', stdout);
    json_decref(all);
    return TT_OK;
}

static tt_status print_text(const tt_model *model, const tt_layout *layout, const prediction *p,
                            const char *why)
{
    TT_TRY(tt_plan_print(model, layout, stdout));
    if (why[0]) {
        printf("replicate  %s\n", why);
    }
    tt_rates rates = tt_rates_default();
    printf("predicted  decode step %.2f ms at batch %lld and context %lld: %.1f tokens/s\n",
           1e3 * p->step_s, (long long)p->batch, (long long)p->context,
           p->step_s > 0 ? (double)p->batch / p->step_s : 0.0);
    printf("           %.2f MiB read by the busiest rank; assumed, not measured: %.1f GB/s a rank, "
           "%.1f GB/s and %.0f us between nodes\n",
           p->bytes / TTI_CLI_MIB, rates.read_bytes_per_s / 1e9, rates.link_bytes_per_s / 1e9,
           1e6 * rates.link_latency_s);
    return TT_OK;
}

static tt_status plan_layout(const tti_cli_options *options, const tt_model *model,
                             tt_layout *layout)
{
    /* The layout is shown even if it does not fit: the numbers say by how much. */
    char message[TT_STATUS_MESSAGE_BYTES] = "", why[TT_STATUS_MESSAGE_BYTES] = "";
    tt_status fit = tti_cli_plan_settle(options, model, layout, why);
    if (fit != TT_OK) {
        snprintf(message, sizeof(message), "%s", tt_status_message());
    }
    prediction p = {.batch = layout->max_batch, .context = layout->context};
    tt_rates rates = tt_rates_default();
    TT_TRY(tt_plan_predict(model, layout, &rates, p.batch, p.context, &p.step_s, &p.bytes));
    if (options->json) {
        TT_TRY(print_json(model, layout, &p, fit));
    } else {
        TT_TRY(print_text(model, layout, &p, why));
    }
    TT_TRY(tti_cli_flush_stdout());
    return fit == TT_OK ? TT_OK : tt_status_adopt(fit, message);
}

static tt_status plan(const tti_cli_options *options, const char *path)
{
    tt_model *model = NULL;
    TT_TRY(tti_cli_open_model(options, path, &model));
    tt_layout *layout = NULL;
    tt_status status = tti_cli_plan_layout(options, model, &layout);
    if (status == TT_OK) {
        status = plan_layout(options, model, layout);
    }
    tt_layout_destroy(&layout);
    tt_model_close(&model);
    return status;
}

int tti_cli_plan(const tti_cli_call *call)
{
    tt_status status = tti_cli_check_source(call->options, call->n_words, "plan",
                                            "--ranks 8 --nodes 2 --memory 64G");
    if (status == TT_OK) {
        status = plan(call->options, call->n_words > 0 ? call->word[0] : NULL);
    }
    return status == TT_OK ? 0 : tti_cli_fail_alone(status);
}
