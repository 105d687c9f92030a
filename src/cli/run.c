/* run.c - generates text.
 *
 * Rank 0 reads the prompts, submits all of them to the engine's queue and prints what comes; the
 * other ranks follow. A single prompt is printed token by token. Of several, or with --json, each
 * is printed whole when it has ended and all before it are printed, so the output does not depend
 * on which ends first. */
#include "config.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "prompts.h"
#include "describe.h"
#include "session.h"
#include "text_in.h"
#include "tutti/log.h"
#include "tutti/trace.h"

#define NS_PER_S 1e9

/* One prompt on its way. */
typedef struct answer {
    const tti_cli_prompt *prompt;
    uint64_t request_id;
    bool submitted;
    tt_ids ids;                  /* generated, the stop token included */
    tt_text text;                /* with a tokenizer: of ids, without special tokens */
    tt_detokenizer *detokenizer; /* NULL without a tokenizer */
    tt_finish finish;
    uint64_t first_ns, last_ns; /* of its first and last token */
} answer;

/* Rank 0's side of a run. */
typedef struct printer {
    const tti_cli_options *options;
    const tt_tokenizer *tokenizer; /* NULL = none */
    const tti_cli_session *session;
    answer *item; /* item[n], in the order of the prompts */
    size_t n;
    size_t n_printed;   /* items before this one are out */
    size_t shown_bytes; /* of a streamed prompt's text, or ids without a tokenizer */
    uint64_t begin_ns;  /* of the first step */
    tt_status status;   /* first failure of printing */
} printer;

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / NS_PER_S : 0.0;
}

static bool streams(const printer *p)
{
    return p->n == 1 && !p->options->json;
}

/* Prints what a streamed prompt has gained. */
static void print_stream(printer *p, const answer *a)
{
    if (p->tokenizer) {
        fwrite(a->text.bytes ? a->text.bytes + p->shown_bytes : "", 1, a->text.n - p->shown_bytes,
               stdout);
        p->shown_bytes = a->text.n;
    } else {
        for (; p->shown_bytes < a->ids.n; p->shown_bytes++) {
            printf("%s%d", p->shown_bytes ? " " : "", a->ids.id[p->shown_bytes]);
        }
    }
    fflush(stdout);
}

static void print_end_of_text(const printer *p, const answer *a)
{
    bool ended = p->tokenizer && a->text.n > 0 && a->text.bytes[a->text.n - 1] == '\n';
    if (!ended) {
        fputc('\n', stdout);
    }
}

static json_t *timing_json(const printer *p, const answer *a)
{
    double first = seconds(p->begin_ns, a->first_ns), total = seconds(p->begin_ns, a->last_ns);
    double decode = total - first;
    int64_t n_decoded = a->ids.n > 0 ? (int64_t)a->ids.n - 1 : 0;
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:o}", "prompt_tokens",
                     (json_int_t)a->prompt->ids.n, "new_tokens", (json_int_t)a->ids.n,
                     "first_token_s", first, "total_s", total, "decode_tokens_per_s",
                     decode > 0 ? (double)n_decoded / decode : 0.0, "load",
                     tti_cli_load_json(p->session));
}

static tt_status print_json(const printer *p, const answer *a)
{
    const tti_cli_prompt *prompt = a->prompt;
    json_t *line = json_pack("{s:o, s:o, s:o, s:s, s:o, s:o}", "prompt_ids",
                             tti_cli_ids_to_json(prompt->ids.id, prompt->ids.n), "ids",
                             tti_cli_ids_to_json(a->ids.id, a->ids.n), "text",
                             p->tokenizer ? json_stringn(a->text.n ? a->text.bytes : "", a->text.n)
                                          : json_null(),
                             "finish", a->finish == TT_FINISH_STOP ? "stop" : "length", "timing",
                             timing_json(p, a), "layout", tti_cli_layout_json(p->session->layout));
    TT_CHECK(line, TT_ERR_NOMEM, "no memory for a line of JSON");
    if (prompt->sampling.temperature > TT_GREEDY_BELOW) {
        json_object_set_new(line, "seed", json_integer((json_int_t)prompt->sampling.seed));
    }
    int bad = json_dumpf(line, stdout, JSON_COMPACT);
    json_decref(line);
    fputc('\n', stdout);
    TT_CHECK(bad == 0, TT_ERR_IO, "stdout cannot be written: %s", strerror(errno));
    return TT_OK;
}

static tt_status print_answer(printer *p, const answer *a, size_t number)
{
    if (p->options->json) {
        return print_json(p, a);
    }
    if (p->n > 1) {
        printf("== prompt %zu\n", number);
    }
    print_stream(p, a);
    print_end_of_text(p, a);
    p->shown_bytes = 0;
    return TT_OK;
}

/* Prints all answers that have ended and whose turn it is. */
static void print_ended(printer *p)
{
    while (p->status == TT_OK && p->n_printed < p->n &&
           p->item[p->n_printed].finish != TT_FINISH_NONE) {
        p->status = print_answer(p, &p->item[p->n_printed], p->n_printed + 1);
        p->n_printed++;
    }
    if (p->status == TT_OK) {
        p->status = tti_cli_flush_stdout();
    }
}

static answer *find_answer(printer *p, uint64_t request_id)
{
    for (size_t i = p->n_printed; i < p->n; i++) {
        if (p->item[i].submitted && p->item[i].request_id == request_id) {
            return &p->item[i];
        }
    }
    return NULL;
}

static tt_status take_token(printer *p, answer *a, const tt_output *output)
{
    static const char unknown[] =
        "\xEF\xBF\xBD"; /* U+FFFD: an id that the tokenizer does not know */
    a->last_ns = tt_now_ns();
    if (a->ids.n == 0) {
        a->first_ns = a->last_ns;
    }
    TT_TRY(tt_ids_append(&a->ids, &output->token, 1));
    if (a->detokenizer) {
        if (tt_tokenizer_id_is_known(p->tokenizer, output->token)) {
            TT_TRY(tt_detokenizer_push(a->detokenizer, output->token, &a->text));
        } else {
            TT_TRY(tt_detokenizer_flush(a->detokenizer, &a->text));
            TT_TRY(tt_text_append(&a->text, unknown, sizeof(unknown) - 1));
        }
        if (output->finish != TT_FINISH_NONE) {
            TT_TRY(tt_detokenizer_flush(a->detokenizer, &a->text));
        }
    }
    a->finish = output->finish;
    return TT_OK;
}

/* tt_output_fn: a failure is kept, the run goes on to its end so that the ranks stay together. */
static void take_output(void *arg, const tt_output *output)
{
    printer *p = arg;
    answer *a = find_answer(p, output->request_id);
    if (!a || p->status != TT_OK) {
        return;
    }
    p->status = take_token(p, a, output);
    if (p->status != TT_OK) {
        return;
    }
    if (streams(p) && a->finish == TT_FINISH_NONE) {
        print_stream(p, a);
    } else if (a->finish != TT_FINISH_NONE) {
        print_ended(p);
    }
}

/* ---- the run ---- */

static void printer_fini(printer *p)
{
    for (size_t i = 0; i < p->n; i++) {
        tt_ids_fini(&p->item[i].ids);
        tt_text_fini(&p->item[i].text);
        tt_detokenizer_destroy(&p->item[i].detokenizer);
    }
    free(p->item);
}

static tt_status printer_init(printer *p, const tti_cli_prompts *prompts)
{
    p->item = calloc(prompts->n, sizeof(*p->item));
    TT_CHECK(p->item, TT_ERR_NOMEM, "no memory for %zu answers", prompts->n);
    p->n = prompts->n;
    for (size_t i = 0; i < p->n; i++) {
        p->item[i].prompt = &prompts->item[i];
        if (p->tokenizer) {
            TT_TRY(tt_detokenizer_create(p->tokenizer, true, &p->item[i].detokenizer));
        }
    }
    return TT_OK;
}

/* Queues all prompts; those that want no token are done at once. */
static tt_status submit_all(printer *p, tti_cli_session *session)
{
    size_t n_end = 0;
    const int32_t *end_id = tt_model_end_ids(session->model, &n_end);
    if (n_end > TT_END_MAX) {
        tt_log(TT_LOG_WARN, "the model names %zu ids that end a text; the first %d are used", n_end,
               TT_END_MAX);
        n_end = TT_END_MAX;
    }
    for (size_t i = 0; i < p->n; i++) {
        answer *a = &p->item[i];
        if (a->prompt->max_new == 0) {
            a->finish = TT_FINISH_LENGTH;
            continue;
        }
        tt_request request = {.prompt = a->prompt->ids.id,
                              .n_prompt = (int64_t)a->prompt->ids.n,
                              .max_new = a->prompt->max_new > 0 ? a->prompt->max_new
                                                                : session->layout->context,
                              .sampling = a->prompt->sampling,
                              .end_id = end_id,
                              .n_end = (int)n_end};
        TT_TRY(tt_engine_submit(session->engine, &request, &a->request_id));
        a->submitted = true;
    }
    return TT_OK;
}

/* Rank 0 steps until the queue is empty; the others follow. The status is agreed. */
static tt_status generate(printer *p, tti_cli_session *session)
{
    tt_world *world = session->launch->world;
    if (session->launch->rank != 0) {
        TT_TRY(tt_world_agree(world, TT_OK));
        TT_TRY(tt_engine_follow(session->engine));
        return tt_world_agree(world, TT_OK);
    }
    TT_TRY(tt_world_agree(world, submit_all(p, session)));
    p->begin_ns = tt_now_ns();
    print_ended(p);
    bool busy = false;
    for (size_t i = 0; i < p->n; i++) {
        busy = busy || p->item[i].submitted;
    }
    while (busy && p->status == TT_OK) {
        TT_TRY(tt_engine_step(session->engine, take_output, p, &busy));
    }
    /* The stop must not lose the message of a failed print. */
    char message[TT_STATUS_MESSAGE_BYTES];
    snprintf(message, sizeof(message), "%s", tt_status_message());
    TT_TRY(tt_engine_stop(session->engine));
    if (p->status != TT_OK) {
        tt_status_adopt(p->status, message);
    }
    return tt_world_agree(world, p->status);
}

static tti_cli_work sum_up(const printer *p, const tti_cli_prompts *prompts)
{
    tti_cli_work work = {.n_prompts = (int64_t)p->n, .seed = (int64_t)prompts->seed};
    uint64_t first = p->begin_ns, last = p->begin_ns;
    for (size_t i = 0; i < p->n; i++) {
        const answer *a = &p->item[i];
        work.prompt_tokens += (int64_t)a->prompt->ids.n;
        work.new_tokens += (int64_t)a->ids.n;
        work.sampled = work.sampled || a->prompt->sampling.temperature > TT_GREEDY_BELOW;
        first = a->first_ns > first ? a->first_ns : first;
        last = a->last_ns > last ? a->last_ns : last;
    }
    work.first_token_s = seconds(p->begin_ns, first);
    work.total_s = seconds(p->begin_ns, last);
    return work;
}

/* A checkpoint without a tokenizer runs with ids alone; a broken one is refused. */
static tt_status open_tokenizer(const char *path, tt_tokenizer **tokenizer)
{
    bool exists;
    TT_TRY(tt_tokenizer_exists(path, &exists));
    return exists ? tt_tokenizer_create(path, tokenizer) : TT_OK;
}

/* Rank 0: tokenizer and prompts, and what they need. */
static tt_status prepare(const tti_cli_session *session, tt_tokenizer **tokenizer,
                         tti_cli_prompts *prompts, tti_cli_needs *needs)
{
    TT_TRY(open_tokenizer(tt_model_path(session->model), tokenizer));
    tt_generation generation = tt_model_generation(session->model);
    const tt_arch *arch = tt_model_arch(session->model);
    int64_t context = tti_cli_session_context(session);
    TT_TRY(tti_cli_prompts_gather(session->options, *tokenizer, &generation, arch->V, context,
                                  prompts));
    needs->n_sequences = (int64_t)prompts->n;
    for (size_t i = 0; i < prompts->n; i++) {
        const tti_cli_prompt *prompt = &prompts->item[i];
        int64_t length = prompt->max_new >= 0 ? (int64_t)prompt->ids.n + prompt->max_new : context;
        needs->longest = length > needs->longest ? length : needs->longest;
    }
    int64_t known = *tokenizer ? tt_tokenizer_n_ids(*tokenizer) : 0;
    needs->n_known_ids = known < arch->V ? known : 0;
    return TT_OK;
}

static tt_status run(const tti_cli_options *options, tti_cli_launch *launch,
                     tti_cli_session *session, const char *path)
{
    TT_TRY(tti_cli_session_open(session, options, launch, path));
    tt_tokenizer *tokenizer = NULL;
    tti_cli_prompts prompts = {0};
    tti_cli_needs needs = {0};
    printer p = {.options = options};

    tt_status status = TT_OK;
    if (launch->rank == 0) {
        status = prepare(session, &tokenizer, &prompts, &needs);
    }
    status = tt_world_agree(launch->world, status);
    if (status == TT_OK) {
        status = tti_cli_session_start(session, &needs);
    }
    if (status == TT_OK) {
        p.session = session;
        if (launch->rank == 0) {
            p.tokenizer = tokenizer;
            status = printer_init(&p, &prompts);
        }
        status = tt_world_agree(launch->world, status);
    }
    if (status == TT_OK) {
        status = generate(&p, session);
    }
    if (status == TT_OK) {
        tti_cli_work work = sum_up(&p, &prompts);
        status = tti_cli_session_report(session, &work);
    }
    printer_fini(&p);
    tti_cli_prompts_fini(&prompts);
    tt_tokenizer_destroy(&tokenizer);
    return status;
}

int tti_cli_run(const tti_cli_call *call)
{
    char path[TTI_CLI_PATH_BYTES] = "";
    tt_status status = call->parsed;
    if (status == TT_OK && call->n_words == 0) {
        status = tti_cli_default_model(path);
        if (status != TT_OK && tti_cli_launcher_size() <= 1) {
            return tti_cli_fail_alone(status);
        }
    } else if (status == TT_OK) {
        snprintf(path, sizeof(path), "%s", call->word[0]);
    }
    tti_cli_launch launch;
    tti_cli_session session = {0};
    status = tti_cli_launch_begin(call->options, status, &launch);
    if (status == TT_OK) {
        status = run(call->options, &launch, &session, path);
    }
    return tti_cli_session_end(&session, &launch, status);
}
