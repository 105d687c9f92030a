/* bench.c - `tutti bench`: what a model, or a shape of random weights, reaches on these ranks:
 * prompts of several lengths, then decoding at several batches and depths. The engine gets the
 * context and the batch that the largest case needs; the machine's limits are measured in the same
 * run. */
#include "config.h"
#include "bench.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "describe.h"
#include "phases.h"

enum {
    LIMIT_REPEATS = 15,    /* the best of them counts */
    START_STEPS = 4,       /* steps from the first token of a sequence to the first timed one, with
                            * some to spare */
    ADMITTED_AT_ONCE = 256 /* sequences that a control message has room for, at least */
};
#define MAX_VALUE INT64_C(1000000000)

/* ---- what is asked for ---- */

static int compare_values(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Whole numbers parted by commas, each at least `least`; they come out in order, each once. */
static tt_status parse_list(const char *option, const char *text, int64_t least,
                            tti_bench_list *list)
{
    *list = (tti_bench_list){0};
    for (const char *at = text; *at;) {
        char *end;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        TT_CHECK(end != at && errno == 0 && value >= least && value <= MAX_VALUE &&
                     (*end == ',' || *end == 0),
                 TT_ERR_USAGE, "%s %s: is a list of whole numbers from %lld on, as 1,4,16", option,
                 text, (long long)least);
        TT_CHECK(list->n < TTI_BENCH_LIST, TT_ERR_USAGE, "%s %s: has more than %d numbers", option,
                 text, TTI_BENCH_LIST);
        list->value[list->n++] = value;
        TT_CHECK(*end != ',' || end[1], TT_ERR_USAGE, "%s %s: no number after the last comma",
                 option, text);
        at = *end ? end + 1 : end;
    }
    TT_CHECK(list->n > 0, TT_ERR_USAGE, "%s is empty", option);
    qsort(list->value, (size_t)list->n, sizeof(list->value[0]), compare_values);
    int n = 1;
    for (int i = 1; i < list->n; i++) {
        if (list->value[i] != list->value[n - 1]) {
            list->value[n++] = list->value[i];
        }
    }
    list->n = n;
    return TT_OK;
}

/* Without 0, which means none. */
static void drop_zero(tti_bench_list *list)
{
    if (list->n > 0 && list->value[0] == 0) {
        memmove(list->value, list->value + 1, (size_t)--list->n * sizeof(list->value[0]));
    }
}

static int64_t largest(const tti_bench_list *list)
{
    return list->n > 0 ? list->value[list->n - 1] : 0;
}

static tt_status read_lists(tti_bench *b)
{
    TT_TRY(parse_list("-p", b->options.pp, 0, &b->prefill));
    TT_TRY(parse_list("-b", b->options.batches, 1, &b->batch));
    TT_TRY(parse_list("--depth", b->options.depth, 0, &b->depth));
    drop_zero(&b->prefill);
    TT_CHECK(b->options.tg > 0 || b->prefill.n > 0, TT_ERR_USAGE,
             "-p 0 and -n 0 leave nothing to be timed");
    TT_CHECK(!b->options.svg || b->options.tg > 0, TT_ERR_USAGE,
             "--svg draws decoding, but -n is 0");
    return TT_OK;
}

/* Context and batch that all cases need, if more than was asked for. */
static tt_status size_up(tti_bench *b)
{
    const tt_arch *a = tt_model_arch(b->session.model);
    int64_t batch = b->options.tg > 0 ? largest(&b->batch) : 1,
            starting = START_STEPS + batch / ADMITTED_AT_ONCE;
    int64_t decode = b->options.tg > 0 ? largest(&b->depth) + b->options.tg + starting + 1 : 0;
    int64_t prefill = b->prefill.n > 0 ? largest(&b->prefill) + 1 : 0,
            context = decode > prefill ? decode : prefill;
    TT_CHECK(context <= a->context, TT_ERR_USAGE,
             "%s of %lld needs a context of %lld, but %s has %lld",
             decode > prefill ? "--depth" : "-p",
             (long long)(decode > prefill ? largest(&b->depth) : largest(&b->prefill)),
             (long long)context, tt_model_path(b->session.model), (long long)a->context);
    b->options.context = b->options.context > context ? b->options.context : context;
    b->options.max_batch = b->options.max_batch > batch ? b->options.max_batch : batch;
    for (int64_t l = 0; l < a->L; l++) {
        b->n_moe_layers += a->layer[l].is_moe;
    }
    return TT_OK;
}

/* ---- limits and memory ---- */

static tt_status measure_limits(tti_bench *b)
{
    tt_limits mine;
    TT_TRY(tti_cli_measure_limits(&b->session, LIMIT_REPEATS, &mine));
    return tt_world_allgather(b->launch->world, &mine, sizeof(mine), b->limits);
}

static tt_status gather_resident(tti_bench *b, tti_cli_resident *of_rank)
{
    TT_TRY(tt_world_barrier(b->launch->world)); /* nobody is ahead, with more of what is shared */
    tti_cli_resident mine = tti_cli_resident_now(b->launch->world);
    return tt_world_allgather(b->launch->world, &mine, sizeof(mine), of_rank);
}

/* ---- the cases ---- */

/* Rank 0 prints; all learn whether it could. */
static tt_status told(const tti_bench *b, tt_status (*print)(const tti_bench *b))
{
    return tt_world_agree(b->launch->world, b->launch->rank == 0 ? print(b) : TT_OK);
}

static tt_status run_case(tti_bench *b, const tti_bench_case *what)
{
    tti_bench_result *result = &b->result[b->n_results++];
    TT_TRY(tti_bench_time(b, what, result));
    return tt_world_agree(b->launch->world,
                          b->launch->rank == 0 ? tti_bench_print_result(b, result) : TT_OK);
}

static tt_status run_cases(tti_bench *b)
{
    int64_t n_groups = b->session.layout->dp;
    for (int i = 0; i < b->prefill.n; i++) {
        TT_TRY(run_case(b, &(tti_bench_case){.is_prefill = true,
                                             .tokens = b->prefill.value[i],
                                             .batch = n_groups}));
    }
    for (int d = 0; d < b->depth.n && b->options.tg > 0; d++) {
        for (int i = 0; i < b->batch.n; i++) {
            TT_TRY(run_case(b, &(tti_bench_case){.tokens = b->options.tg,
                                                 .batch = b->batch.value[i],
                                                 .depth = b->depth.value[d]}));
        }
    }
    return TT_OK;
}

static tt_status allocate(tti_bench *b)
{
    size_t n = (size_t)b->launch->size,
           n_cases = (size_t)b->prefill.n + (size_t)b->depth.n * (size_t)b->batch.n;
    b->limits = calloc(n, sizeof(*b->limits));
    b->before = calloc(n, sizeof(*b->before));
    b->loaded = calloc(n, sizeof(*b->loaded));
    b->at_end = calloc(n, sizeof(*b->at_end));
    b->result = calloc(n_cases, sizeof(*b->result));
    TT_CHECK(b->limits && b->before && b->loaded && b->at_end && b->result, TT_ERR_NOMEM,
             "no memory for the figures of %zu ranks", n);
    return TT_OK;
}

static void fini(tti_bench *b)
{
    for (int i = 0; i < b->n_results; i++) {
        tti_bench_result_fini(&b->result[i]);
    }
    free(b->result);
    free(b->limits);
    free(b->before);
    free(b->loaded);
    free(b->at_end);
}

/* Rank 0 opens the drawing before anything is timed: a path that cannot be written must not cost
 * the run. */
static tt_status open_svg(const tti_bench *b, FILE **svg)
{
    if (b->options.svg && b->launch->rank == 0) {
        *svg = fopen(b->options.svg, "w");
        TT_CHECK(*svg, TT_ERR_USAGE, "--svg %s cannot be written: %s", b->options.svg,
                 strerror(errno));
    }
    return TT_OK;
}

static tt_status run(tti_bench *b, const char *path, FILE **svg)
{
    tt_world *world = b->launch->world;
    TT_TRY(tt_world_agree(world, read_lists(b)));
    TT_TRY(tti_cli_session_open(&b->session, &b->options, b->launch, path));
    TT_TRY(tt_world_agree(world, size_up(b)));
    TT_TRY(tt_world_agree(world, allocate(b)));
    TT_TRY(tt_world_agree(world, open_svg(b, svg)));
    TT_TRY(gather_resident(b, b->before));
    tti_cli_needs needs = {.n_sequences = b->options.max_batch, .longest = b->options.context};
    TT_TRY(tti_cli_session_start(&b->session, &needs));
    TT_TRY(gather_resident(b, b->loaded));
    TT_TRY(measure_limits(b));
    TT_TRY(told(b, tti_bench_print_run));
    TT_TRY(run_cases(b));
    TT_TRY(gather_resident(b, b->at_end));
    TT_TRY(told(b, tti_bench_print_end));
    if (b->options.log_view) { /* of the last sample */
        TT_TRY(tti_cli_phases_print(&b->session));
    }
    b->launch->last_words = NULL; /* what is gathered now must not be written over */
    if (b->options.trace) {
        TT_TRY(tti_cli_trace_gather(&b->session));
    }
    return tt_world_agree(world, *svg ? tti_bench_draw(b, *svg) : TT_OK);
}

int tti_cli_bench(const tti_cli_call *call)
{
    tt_status status = call->parsed;
    if (status == TT_OK) {
        status =
            tti_cli_check_source(call->options, call->n_words, "bench", "-p 128,512 -b 1,4,16,32");
    }
    tti_cli_launch launch;
    FILE *svg = NULL;
    tti_bench b = {.options = *call->options, .launch = &launch};
    if (status != TT_OK && tti_cli_launcher_size() <= 1) {
        return tti_cli_fail_alone(status);
    }
    status = tti_cli_launch_begin(call->options, status, &launch);
    if (status == TT_OK) {
        status = run(&b, call->n_words > 0 ? call->word[0] : NULL, &svg);
    }
    if (svg) {
        fclose(svg);
    }
    fini(&b);
    return tti_cli_session_end(&b.session, &launch, status);
}
