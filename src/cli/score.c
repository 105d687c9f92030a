/* score.c - how well a model predicts given tokens: the mean of -log p(token t+1 | tokens 0..t).
 *
 * Rank 0 submits every sequence as a scoring request; results of different sequences may
 * interleave, so sums are kept per sequence (each in ascending position: the printed mean does not
 * depend on batching) and logits are written at their place. */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "npy.h"
#include "describe.h"
#include "session.h"
#include "text_in.h"
#include "tutti/memory.h"
#include "tutti/tokenizer.h"
#include "tutti/trace.h"

#define NS_PER_S 1e9

typedef struct sequence {
    tt_ids ids;
    uint64_t request_id;
    int64_t first_row; /* of its logits in the file */
    int64_t n_seen;    /* outputs so far */
    double nll;        /* sum over n_seen - 1 or n_seen predicted tokens */
    bool ended;
} sequence;

typedef struct scorer {
    const tti_cli_options *options;
    sequence *item; /* item[n] */
    size_t n, capacity;
    tti_cli_npy logits;
    bool windows; /* the sequences are windows of one text */
    uint64_t begin_ns;
    tt_status status; /* first failure */
} scorer;

static void scorer_fini(scorer *s)
{
    for (size_t i = 0; i < s->n; i++) {
        tt_ids_fini(&s->item[i].ids);
    }
    free(s->item);
    s->item = NULL;
    s->n = 0;
}

/* Takes over ids (and empties them) on success. */
static tt_status add_sequence(scorer *s, tt_ids *ids, int64_t context, const char *where)
{
    TT_CHECK((int64_t)ids->n <= context, TT_ERR_REQUEST,
             "%s: the sequence has %zu tokens, more than the context of %lld", where, ids->n,
             (long long)context);
    sequence *item = tt_memory_grow(s->item, &s->capacity, s->n, sizeof(*item));
    TT_CHECK(item, TT_ERR_NOMEM, "no memory for more than %zu sequences", s->n);
    s->item = item;
    s->item[s->n++] = (sequence){.ids = *ids};
    memset(ids, 0, sizeof(*ids));
    return TT_OK;
}

/* --ids-file: for whom, and what it may hold. */
typedef struct ids_file {
    scorer *s;
    int64_t V, context;
} ids_file;

static tt_status add_ids_line(void *arg, const char *text, size_t n, const char *where)
{
    const ids_file *file = arg;
    tt_ids ids = {0};
    tt_status status = tti_cli_parse_ids(text, n, file->V, TT_ERR_FILE, where, &ids);
    if (status == TT_OK && ids.n > 0) {
        status = add_sequence(file->s, &ids, file->context, where);
    }
    tt_ids_fini(&ids);
    return status;
}

/* Cuts ids into sequences of at most `context` tokens. The special tokens at the beginning, of
 * which there are n_special, begin each of them: a model has seen no text without. */
static tt_status add_windows(scorer *s, const tt_ids *ids, size_t n_special, int64_t context,
                             const char *where)
{
    TT_CHECK((int64_t)n_special < context, TT_ERR_REQUEST,
             "%s: a context of %lld leaves no room beside %zu special tokens", where,
             (long long)context, n_special);
    size_t room = (size_t)context - n_special;
    tt_status status = TT_OK;
    for (size_t at = n_special; at < ids->n && status == TT_OK; at += room) {
        tt_ids window = {0};
        status = tt_ids_append(&window, ids->id, n_special);
        if (status == TT_OK) {
            status = tt_ids_append(&window, ids->id + at, ids->n - at < room ? ids->n - at : room);
        }
        if (status == TT_OK) {
            status = add_sequence(s, &window, context, where);
        }
        tt_ids_fini(&window);
    }
    s->windows = true;
    return status;
}

/* The special tokens of an empty text that also begin ids. */
static tt_status count_special(const tt_tokenizer *tokenizer, const tt_ids *ids, size_t *n_out)
{
    tt_ids empty = {0};
    tt_status status = tt_tokenizer_encode(tokenizer, "", 0, TT_ENCODE_SPECIAL, &empty);
    size_t n = 0;
    while (status == TT_OK && n < empty.n && n < ids->n && ids->id[n] == empty.id[n]) {
        n++;
    }
    tt_ids_fini(&empty);
    *n_out = n;
    return status;
}

static tt_status read_text_file(scorer *s, const char *path, const char *model_path,
                                int64_t context)
{
    tt_tokenizer *tokenizer = NULL;
    TT_TRY(tt_tokenizer_create(model_path, &tokenizer));
    FILE *file = NULL;
    tt_text text = {0};
    tt_ids ids = {0};
    const char *name = tti_cli_input_name(path);
    tt_status status = tti_cli_open_input(path, &file);
    if (status == TT_OK) {
        status = tti_cli_read_all(file, name, &text);
        tti_cli_close_input(file);
    }
    if (status == TT_OK) {
        status = tt_tokenizer_encode(tokenizer, text.n ? text.bytes : "", text.n, TT_ENCODE_SPECIAL,
                                     &ids);
    }
    size_t n_special = 0;
    if (status == TT_OK) {
        status = count_special(tokenizer, &ids, &n_special);
    }
    if (status == TT_OK) {
        status = add_windows(s, &ids, n_special, context, name);
    }
    tt_ids_fini(&ids);
    tt_text_fini(&text);
    tt_tokenizer_destroy(&tokenizer);
    return status;
}

/* Rank 0: sequences, and the file of logits. */
static tt_status prepare(scorer *s, const tti_cli_session *session, tti_cli_needs *needs)
{
    const tti_cli_options *options = session->options;
    const tt_arch *arch = tt_model_arch(session->model);
    int64_t context = tti_cli_session_context(session);
    if (options->ids_file) {
        ids_file file = {s, arch->V, context};
        TT_TRY(tti_cli_each_line(options->ids_file, add_ids_line, &file));
    } else {
        TT_TRY(read_text_file(s, options->text_file, tt_model_path(session->model), context));
    }
    int64_t rows = 0, predicted = 0;
    for (size_t i = 0; i < s->n; i++) {
        int64_t n = (int64_t)s->item[i].ids.n;
        s->item[i].first_row = rows;
        rows += n;
        predicted += n > 0 ? n - 1 : 0;
        needs->longest = n > needs->longest ? n : needs->longest;
    }
    TT_CHECK(predicted > 0, TT_ERR_FILE, "%s: nothing to score: no sequence has two tokens",
             tti_cli_input_name(options->ids_file ? options->ids_file : options->text_file));
    needs->n_sequences = (int64_t)s->n;
    if (options->logits) {
        TT_TRY(tti_cli_npy_create(options->logits, rows, arch->V, &s->logits));
    }
    return TT_OK;
}

static sequence *find_sequence(scorer *s, uint64_t request_id)
{
    for (size_t i = 0; i < s->n; i++) {
        if (!s->item[i].ended && s->item[i].request_id == request_id) {
            return &s->item[i];
        }
    }
    return NULL;
}

static tt_status take_score(scorer *s, sequence *q, const tt_output *output)
{
    int64_t last = (int64_t)q->ids.n - 1;
    TT_CHECK(output->position == q->n_seen && q->n_seen <= last, TT_ERR_STATE,
             "the score of position %lld came where %lld was due", (long long)output->position,
             (long long)q->n_seen);
    if (output->position < last) {
        TT_CHECK(!isnan(output->nll), TT_ERR_NUMERIC, "the score of position %lld is not a number",
                 (long long)output->position);
        q->nll += output->nll;
    }
    q->n_seen++;
    q->ended = q->n_seen > last;
    if (s->logits.file) {
        TT_CHECK(output->logits, TT_ERR_STATE, "the engine gave no logits");
        TT_TRY(tti_cli_npy_put_row(&s->logits, q->first_row + output->position, output->logits));
    }
    return TT_OK;
}

/* tt_output_fn */
static void take_output(void *arg, const tt_output *output)
{
    scorer *s = arg;
    sequence *q = find_sequence(s, output->request_id);
    if (q && s->status == TT_OK) {
        s->status = take_score(s, q, output);
    }
}

static tt_status submit_all(scorer *s, tt_engine *engine)
{
    for (size_t i = 0; i < s->n; i++) {
        tt_request request = {.prompt = s->item[i].ids.id,
                              .n_prompt = (int64_t)s->item[i].ids.n,
                              .score = true,
                              .logits = s->logits.file != NULL};
        TT_TRY(tt_engine_submit(engine, &request, &s->item[i].request_id));
    }
    return TT_OK;
}

/* Checks that every position was scored: a result that is not there must not look like a good one.
 * */
static tt_status check_complete(const scorer *s)
{
    for (size_t i = 0; i < s->n; i++) {
        TT_CHECK(s->item[i].ended, TT_ERR_STATE, "sequence %zu was scored at %lld of %zu positions",
                 i + 1, (long long)s->item[i].n_seen, s->item[i].ids.n);
    }
    return TT_OK;
}

static tt_status score_all(scorer *s, tti_cli_session *session)
{
    tt_world *world = session->launch->world;
    if (session->launch->rank != 0) {
        TT_TRY(tt_world_agree(world, TT_OK));
        TT_TRY(tt_engine_follow(session->engine));
        return tt_world_agree(world, TT_OK);
    }
    TT_TRY(tt_world_agree(world, submit_all(s, session->engine)));
    s->begin_ns = tt_now_ns();
    bool busy = true;
    while (busy && s->status == TT_OK) {
        TT_TRY(tt_engine_step(session->engine, take_output, s, &busy));
    }
    char message[TT_STATUS_MESSAGE_BYTES];
    snprintf(message, sizeof(message), "%s", tt_status_message());
    TT_TRY(tt_engine_stop(session->engine));
    tt_status mine = s->status;
    if (mine != TT_OK) {
        tt_status_adopt(mine, message);
    } else {
        mine = check_complete(s);
    }
    if (mine == TT_OK) {
        mine = tti_cli_npy_close(&s->logits);
    }
    return tt_world_agree(world, mine);
}

static tt_status print_score(const scorer *s, const tti_cli_session *session, double total_s)
{
    double nll = 0;
    int64_t n_tokens = 0, n_predicted = 0;
    json_t *sequences = json_array();
    for (size_t i = 0; i < s->n; i++) {
        const sequence *q = &s->item[i];
        int64_t predicted = (int64_t)q->ids.n - 1;
        nll += q->nll;
        n_tokens += predicted + 1;
        n_predicted += predicted;
        json_t *mean = predicted > 0 ? json_real(q->nll / (double)predicted) : json_null();
        json_array_append_new(sequences, json_pack("{s:o, s:f, s:I, s:I}", "mean_nll", mean, "nll",
                                                   q->nll, "tokens", (json_int_t)(predicted + 1),
                                                   "predicted", (json_int_t)predicted));
    }
    double mean = nll / (double)n_predicted;
    if (!s->options->json) {
        json_decref(sequences);
        printf("mean NLL %.6f over %lld predicted tokens in %zu %s%s, perplexity %.4f\n", mean,
               (long long)n_predicted, s->n, s->windows ? "window" : "sequence",
               s->n == 1 ? "" : "s", exp(mean));
        return tti_cli_flush_stdout();
    }
    json_t *timing = json_pack("{s:f, s:f, s:o}", "total_s", total_s, "tokens_per_s",
                               total_s > 0 ? (double)n_tokens / total_s : 0.0, "load",
                               tti_cli_load_json(session));
    json_t *line =
        json_pack("{s:f, s:f, s:I, s:I, s:o, s:o, s:o}", "mean_nll", mean, "nll", nll, "tokens",
                  (json_int_t)n_tokens, "predicted", (json_int_t)n_predicted, "sequences",
                  sequences, "timing", timing, "layout", tti_cli_layout_json(session->layout));
    TT_CHECK(line, TT_ERR_NOMEM, "no memory for a line of JSON");
    json_dumpf(line, stdout, JSON_COMPACT);
    json_decref(line);
    fputc('\n', stdout);
    return tti_cli_flush_stdout();
}

static tt_status score(scorer *s, tti_cli_launch *launch, tti_cli_session *session,
                       const char *path)
{
    TT_TRY(tti_cli_session_open(session, s->options, launch, path));
    tti_cli_needs needs = {0};
    tt_status mine = launch->rank == 0 ? prepare(s, session, &needs) : TT_OK;
    TT_TRY(tt_world_agree(launch->world, mine));
    TT_TRY(tti_cli_session_start(session, &needs));
    TT_TRY(score_all(s, session));
    tti_cli_work work = {0};
    if (launch->rank == 0) {
        work.n_prompts = (int64_t)s->n;
        work.total_s = (double)(tt_now_ns() - s->begin_ns) / NS_PER_S;
        work.first_token_s = work.total_s;
        for (size_t i = 0; i < s->n; i++) {
            work.prompt_tokens += (int64_t)s->item[i].ids.n;
        }
        mine = print_score(s, session, work.total_s);
    }
    TT_TRY(tt_world_agree(launch->world, mine));
    return tti_cli_session_report(session, &work);
}

static tt_status check_usage(const tti_cli_call *call)
{
    TT_CHECK(call->n_words == 1, TT_ERR_USAGE,
             "score needs MODEL: tutti score models/tiny-moe --text-file FILE");
    TT_CHECK(!call->options->ids_file != !call->options->text_file, TT_ERR_USAGE,
             "score needs either --ids-file FILE or --text-file FILE");
    return TT_OK;
}

int tti_cli_score(const tti_cli_call *call)
{
    tt_status status = call->parsed != TT_OK ? call->parsed : check_usage(call);
    if (status != TT_OK && tti_cli_launcher_size() <= 1) {
        return tti_cli_fail_alone(status);
    }
    tti_cli_launch launch;
    tti_cli_session session = {0};
    scorer s = {.options = call->options};
    status = tti_cli_launch_begin(call->options, status, &launch);
    if (status == TT_OK) {
        status = score(&s, &launch, &session, call->word[0]);
    }
    if (s.logits.file) {
        fclose(s.logits.file); /* after an error; what it holds is not to be used */
    }
    scorer_fini(&s);
    return tti_cli_session_end(&session, &launch, status);
}
