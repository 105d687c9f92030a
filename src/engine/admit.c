/* admit.c - rank 0's queue of requests, and the control message by which all ranks learn of
 * admissions and cancellations.
 *
 * Rank 0 mirrors how many sequences and KV pages each DP group has in use and admits a request only
 * where both are free, to the group with the fewest sequences (the lowest number on ties), in order
 * of submission; so an admission never fails on the other side. */
#include "engine_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_CONTROL_BYTES = 64 << 10 };

typedef enum record_kind { RECORD_ADMIT = 1, RECORD_CANCEL = 2 } record_kind;

/* One record of the control message; an admission is followed by its prompt, less what is made up
 * of it. */
typedef struct record {
    int32_t kind;
    int32_t dp_id;
    uint64_t id;
    int64_t n_prompt, max_tokens, n_pages;
    tt_sampling sampling;
    int32_t end_id[TT_END_MAX];
    int32_t n_end;
    int32_t score, logits;
    int32_t random_tokens;
    int64_t n_made;
} record;

static int64_t pages_of(int64_t tokens)
{
    return (tokens + TTK_PAGE - 1) / TTK_PAGE;
}

tt_status tti_admission_init(tt_engine *engine)
{
    tti_admission *a = &engine->admission;
    engine->control_bytes = sizeof(record) + (size_t)engine->layout->context * sizeof(int32_t);
    if (engine->control_bytes < MIN_CONTROL_BYTES) {
        engine->control_bytes = MIN_CONTROL_BYTES;
    }
    engine->control = calloc(1, engine->control_bytes);
    size_t dp = (size_t)engine->layout->dp, most = dp * (size_t)engine->layout->max_batch_group;
    a->group_sequences = calloc(dp, sizeof(int64_t));
    a->group_pages = calloc(dp, sizeof(int64_t));
    a->admitted = calloc(most, sizeof(*a->admitted));
    a->cancelled = calloc(most, sizeof(*a->cancelled));
    a->next_id = 1;
    TT_CHECK(engine->control && a->group_sequences && a->group_pages && a->admitted && a->cancelled,
             TT_ERR_NOMEM, "no memory for the request queue");
    return TT_OK;
}

void tti_admission_fini(tt_engine *engine)
{
    tti_admission *a = &engine->admission;
    while (a->first) {
        tti_pending *next = a->first->next;
        free(a->first);
        a->first = next;
    }
    free(engine->control);
    free(a->group_sequences);
    free(a->group_pages);
    free(a->admitted);
    free(a->cancelled);
}

static tt_status check_request(const tt_engine *engine, const tt_request *request)
{
    int64_t context = engine->layout->context;
    TT_CHECK(request->n_prompt >= 1, TT_ERR_REQUEST, "the prompt is empty");
    TT_CHECK(request->n_prompt <= context, TT_ERR_REQUEST,
             "the prompt has %lld tokens, more than the context of %lld",
             (long long)request->n_prompt, (long long)context);
    TT_CHECK(request->score || request->n_prompt < context, TT_ERR_REQUEST,
             "the prompt fills the context of %lld tokens: nothing can be generated",
             (long long)context);
    TT_CHECK(request->score || request->max_new >= 1, TT_ERR_ARG, "max_new is %lld",
             (long long)request->max_new);
    TT_CHECK(request->n_end >= 0 && request->n_end <= TT_END_MAX, TT_ERR_REQUEST,
             "%d end ids, at most %d are possible", request->n_end, TT_END_MAX);
    const tt_sampling *s = &request->sampling;
    TT_CHECK(s->temperature >= 0.0 && isfinite(s->temperature), TT_ERR_REQUEST,
             "temperature must be 0 or more");
    TT_CHECK(s->top_p >= 0.0 && s->top_p <= 1.0, TT_ERR_REQUEST, "top_p must be from 0 to 1");
    TT_CHECK(s->min_p >= 0.0 && s->min_p <= 1.0, TT_ERR_REQUEST, "min_p must be in 0 .. 1");
    TT_CHECK(s->top_k >= 0, TT_ERR_REQUEST, "top_k must be 0 or more");
    TT_CHECK(request->n_made >= 0 && request->n_made < request->n_prompt, TT_ERR_ARG,
             "%lld of %lld prompt tokens are to be made up", (long long)request->n_made,
             (long long)request->n_prompt);
    for (int64_t i = 0; i < request->n_prompt; i++) {
        TT_CHECK(request->prompt[i] >= 0 && request->prompt[i] < engine->arch->V, TT_ERR_REQUEST,
                 "prompt id %d at position %lld is outside the vocabulary of %lld",
                 request->prompt[i], (long long)i, (long long)engine->arch->V);
    }
    return TT_OK;
}

static int64_t max_tokens_of(const tt_engine *engine, const tt_request *request)
{
    if (request->score) {
        return request->n_prompt;
    }
    int64_t room = engine->layout->context - request->n_prompt;
    return request->n_prompt + (request->max_new < room ? request->max_new : room);
}

tt_status tt_engine_submit(tt_engine *engine, const tt_request *request, uint64_t *request_id_out)
{
    TT_CHECK(engine->rank == 0, TT_ERR_STATE, "requests are taken by rank 0");
    TT_TRY(check_request(engine, request));
    int64_t pages = pages_of(max_tokens_of(engine, request));
    TT_CHECK(pages <= engine->layout->kv_pages, TT_ERR_REQUEST,
             "the request needs %lld KV pages of %d tokens, the pool has %lld", (long long)pages,
             TTK_PAGE, (long long)engine->layout->kv_pages);
    size_t prompt_bytes = (size_t)request->n_prompt * sizeof(int32_t);
    size_t end_bytes = (size_t)request->n_end * sizeof(int32_t);
    tti_pending *pending = malloc(sizeof(*pending) + prompt_bytes + end_bytes);
    TT_CHECK(pending, TT_ERR_NOMEM, "no memory for a request of %lld tokens",
             (long long)request->n_prompt);
    int32_t *prompt = (int32_t *)(pending + 1), *end_id = prompt + request->n_prompt;
    memcpy(prompt, request->prompt, prompt_bytes);
    if (end_bytes > 0) {
        memcpy(end_id, request->end_id, end_bytes);
    }
    pending->next = NULL;
    pending->request = *request;
    pending->request.prompt = prompt;
    pending->request.end_id = end_id;
    pending->id = engine->admission.next_id++;
    if (engine->admission.last) {
        engine->admission.last->next = pending;
    } else {
        engine->admission.first = pending;
    }
    engine->admission.last = pending;
    *request_id_out = pending->id;
    return TT_OK;
}

static void unqueue(tti_admission *a, tti_pending *previous, tti_pending *pending)
{
    if (previous) {
        previous->next = pending->next;
    } else {
        a->first = pending->next;
    }
    if (a->last == pending) {
        a->last = previous;
    }
    free(pending);
}

tt_status tt_engine_cancel(tt_engine *engine, uint64_t request_id)
{
    tti_admission *a = &engine->admission;
    TT_CHECK(engine->rank == 0, TT_ERR_STATE, "requests are cancelled on rank 0");
    tti_pending *previous = NULL;
    for (tti_pending *p = a->first; p; previous = p, p = p->next) {
        if (p->id == request_id) {
            unqueue(a, previous, p);
            return TT_OK;
        }
    }
    for (int64_t i = 0; i < a->n_admitted; i++) {
        if (a->admitted[i].id == request_id) {
            a->cancelled[a->n_cancelled++] = request_id;
            tti_admission_ended(engine, request_id);
            break;
        }
    }
    return TT_OK;
}

void tti_admission_ended(tt_engine *engine, uint64_t id)
{
    tti_admission *a = &engine->admission;
    for (int64_t i = 0; i < a->n_admitted; i++) {
        if (a->admitted[i].id == id) {
            a->group_sequences[a->admitted[i].dp_id]--;
            a->group_pages[a->admitted[i].dp_id] -= a->admitted[i].n_pages;
            a->admitted[i] = a->admitted[--a->n_admitted];
            return;
        }
    }
}

bool tti_admission_knows(const tt_engine *engine, uint64_t id)
{
    const tti_admission *a = &engine->admission;
    for (int64_t i = 0; i < a->n_admitted; i++) {
        if (a->admitted[i].id == id) {
            return true;
        }
    }
    return false;
}

/* The group with the fewest sequences that has room; -1 if none has. */
static int32_t choose_group(const tt_engine *engine, int64_t n_pages)
{
    const tti_admission *a = &engine->admission;
    int32_t best = -1;
    for (int32_t g = 0; g < engine->layout->dp; g++) {
        if (a->group_sequences[g] < engine->layout->max_batch_group &&
            a->group_pages[g] + n_pages <= engine->layout->kv_pages &&
            (best < 0 || a->group_sequences[g] < a->group_sequences[best])) {
            best = g;
        }
    }
    return best;
}

static void append(unsigned char **at, const void *data, size_t bytes)
{
    memcpy(*at, data, bytes);
    *at += bytes;
}

int64_t tti_admission_rows(const tt_engine *engine)
{
    const tti_admission *a = &engine->admission;
    const int64_t mean = (a->rows_handed + engine->layout->dp - 1) / engine->layout->dp,
                  rows = mean > a->most_handed ? mean : a->most_handed;
    return rows < engine->layout->prefill_chunk ? rows : engine->layout->prefill_chunk;
}

size_t tti_admission_write(tt_engine *engine)
{
    tti_admission *a = &engine->admission;
    unsigned char *at = engine->control, *end = engine->control + engine->control_bytes;
    record r;
    a->rows_handed = a->most_handed = 0;
    /* Cancellations first: what they free may be admitted to in the same message. */
    while (a->n_cancelled > 0 && (size_t)(end - at) >= sizeof(r)) {
        memset(&r, 0, sizeof(r));
        r.kind = RECORD_CANCEL;
        r.id = a->cancelled[--a->n_cancelled];
        append(&at, &r, sizeof(r));
    }
    while (a->first && a->n_cancelled == 0) {
        tti_pending *pending = a->first;
        const tt_request *request = &pending->request;
        memset(&r, 0, sizeof(r));
        r.kind = RECORD_ADMIT;
        r.id = pending->id;
        r.n_prompt = request->n_prompt;
        r.max_tokens = max_tokens_of(engine, request);
        r.n_pages = pages_of(r.max_tokens);
        r.dp_id = choose_group(engine, r.n_pages);
        size_t prompt_bytes = (size_t)(r.n_prompt - request->n_made) * sizeof(int32_t),
               bytes = sizeof(r) + prompt_bytes;
        if (r.dp_id < 0 || (size_t)(end - at) < bytes) {
            break; /* in order of submission: nobody overtakes */
        }
        r.sampling = request->sampling;
        r.n_end = request->n_end;
        if (request->n_end > 0) {
            memcpy(r.end_id, request->end_id, (size_t)request->n_end * sizeof(int32_t));
        }
        r.score = request->score;
        r.logits = request->logits;
        r.random_tokens = request->random_tokens;
        r.n_made = request->n_made;
        append(&at, &r, sizeof(r));
        append(&at, request->prompt + request->n_made, prompt_bytes);
        a->rows_handed += r.n_prompt - r.n_made;
        a->most_handed =
            r.n_prompt - r.n_made > a->most_handed ? r.n_prompt - r.n_made : a->most_handed;
        a->group_sequences[r.dp_id]++;
        a->group_pages[r.dp_id] += r.n_pages;
        tti_admitted admitted = {r.id, r.dp_id, r.n_pages};
        a->admitted[a->n_admitted++] = admitted;
        unqueue(a, NULL, pending);
    }
    return (size_t)(at - engine->control);
}

tt_status tti_admission_apply(tt_engine *engine, const unsigned char *message, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        record r;
        TT_CHECK(bytes - at >= sizeof(r), TT_ERR_PROTOCOL, "a control message is cut");
        memcpy(&r, message + at, sizeof(r));
        at += sizeof(r);
        if (r.kind == RECORD_CANCEL) {
            tti_schedule_drop(&engine->schedule, r.id, engine->kv);
            continue;
        }
        TT_CHECK(r.kind == RECORD_ADMIT && r.n_prompt >= 1 && r.n_prompt <= r.max_tokens &&
                     r.n_made >= 0 && r.n_made < r.n_prompt &&
                     r.max_tokens <= engine->layout->context &&
                     (bytes - at) / sizeof(int32_t) >= (size_t)(r.n_prompt - r.n_made),
                 TT_ERR_PROTOCOL, "a control message holds a bad admission");
        size_t prompt_bytes = (size_t)(r.n_prompt - r.n_made) * sizeof(int32_t);
        if (r.dp_id == engine->role->dp_id) {
            tti_sequence *sequence = tti_schedule_admit(&engine->schedule);
            TT_CHECK(sequence, TT_ERR_PROTOCOL, "rank 0 admitted more sequences than fit");
            sequence->id = r.id;
            memset(sequence->token, 0, (size_t)r.n_made * sizeof(int32_t));
            memcpy(sequence->token + r.n_made, message + at, prompt_bytes);
            sequence->n_prompt = r.n_prompt;
            sequence->n_tokens = r.n_prompt;
            sequence->n_computed = r.n_made;
            sequence->max_tokens = r.max_tokens;
            sequence->sampling = r.sampling;
            memcpy(sequence->end_id, r.end_id, sizeof(r.end_id));
            sequence->n_end = r.n_end;
            sequence->score = r.score != 0;
            sequence->logits = r.logits != 0;
            sequence->random_tokens = r.random_tokens != 0;
            TT_TRY(tt_kv_acquire(engine->kv, r.n_pages, sequence->page));
            sequence->n_pages = r.n_pages;
            if (r.n_made > 0) {
                int64_t slot = sequence - engine->schedule.storage;
                tt_attention_fill(engine->attention, sequence->page, r.n_made, slot,
                                  r.sampling.seed);
            }
        }
        at += prompt_bytes;
    }
    return TT_OK;
}
