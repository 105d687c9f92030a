/* test_requests.c - many requests through few places: each gets the tokens it gets alone, whatever
 * else runs, waits or is cancelled; a pool of KV pages smaller than the batch only makes requests
 * wait; what can never run is refused. */
#include "harness.h"

enum { N_REQUESTS = 24, MAX_NEW = 40, CONTEXT = 96, POOL_TOKENS = 2 * CONTEXT };

typedef struct results {
    uint64_t first_id;
    int n[2 * N_REQUESTS];
    int32_t token[2 * N_REQUESTS][MAX_NEW];
    tt_finish finish[2 * N_REQUESTS];
    uint64_t cancelled_id; /* nothing may come for it any more; 0 = none */
} results;

static void take(void *arg, const tt_output *output)
{
    results *r = arg;
    EXPECT(output->request_id != r->cancelled_id, "output for a cancelled request");
    int i = (int)(output->request_id - r->first_id);
    EXPECT(i >= 0 && i < 2 * N_REQUESTS && r->n[i] < MAX_NEW, "request %d", i);
    EXPECT(r->finish[i] == TT_FINISH_NONE, "request %d goes on after its end", i);
    r->token[i][r->n[i]++] = output->token;
    r->finish[i] = output->finish;
}

/* Request i: prompt, length and sampling of its own. */
static tt_request make(int i, int32_t *prompt)
{
    tt_request request = {0};
    request.n_prompt = 1 + i * 7 % 50; /* 1, pages of 16 and their neighbours, up to 50 */
    prompt[0] = 0;
    for (int t = 1; t < request.n_prompt; t++) {
        prompt[t] = 8 + (i * 131 + t * 17) % 4000;
    }
    request.prompt = prompt;
    request.max_new = 1 + i * 5 % MAX_NEW;
    request.sampling.temperature = i % 3 == 0 ? 0.0 : 0.7;
    request.sampling.top_p = 0.95;
    request.sampling.seed = (uint64_t)i;
    return request;
}

static uint64_t submit(harness *h, int i)
{
    int32_t prompt[64];
    uint64_t id;
    tt_request request = make(i, prompt);
    MUST(tt_engine_submit(h->engine, &request, &id));
    return id;
}

static void expect_refused(harness *h, tt_request request)
{
    uint64_t id;
    EXPECT(tt_engine_submit(h->engine, &request, &id) == TT_ERR_REQUEST, "was taken");
}

static void refusals(harness *h)
{
    static int32_t prompt[CONTEXT + 1];
    tt_request request = {0};
    request.prompt = prompt;
    request.n_prompt = CONTEXT + 1;
    request.max_new = 1;
    expect_refused(h, request); /* longer than the context */
    request.n_prompt = CONTEXT;
    expect_refused(h, request); /* nothing could be generated */
    request.n_prompt = 0;
    expect_refused(h, request);
    request.n_prompt = 2;
    prompt[1] = 4096;
    expect_refused(h, request); /* outside the vocabulary */
    prompt[1] = -1;
    expect_refused(h, request);
    prompt[1] = 9;
    request.sampling.temperature = NAN;
    expect_refused(h, request);
    request.sampling.temperature = -1.0;
    expect_refused(h, request);
    const tt_sampling bad[] = {{1.0, 1.5, 0.0, 0, 1}, {1.0, NAN, 0.0, 0, 1},
                               {1.0, 1.0, 1.5, 0, 1}, {1.0, 1.0, -0.5, 0, 1},
                               {1.0, 1.0, NAN, 0, 1}, {1.0, 1.0, 0.0, -1, 1}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        request.sampling = bad[i];
        expect_refused(h, request);
    }
}

/* Steps until idle on rank 0. */
static void drain(harness *h, results *r)
{
    for (bool busy = true; busy;) {
        MUST(tt_engine_step(h->engine, take, r, &busy));
    }
}

/* One request from its first step to its end: its tokens. */
static void run_one(harness *h, const tt_request *request, int32_t token[MAX_NEW])
{
    static results r;
    memset(&r, 0, sizeof(r));
    MUST(tt_engine_submit(h->engine, request, &r.first_id));
    drain(h, &r);
    EXPECT(r.n[0] == request->max_new, "%d tokens instead of %d", r.n[0], (int)request->max_new);
    memcpy(token, r.token[0], sizeof(r.token[0]));
}

/* What benchmarks ask for: tokens that nobody drew follow each other, and what is drawn after them
 * is what their text would get; what is made up is the same each time, and hangs on the seed. */
static void made_up(harness *h)
{
    enum { N_PROMPT = 10, N_NEW = 5, DEPTH = 40 };
    int32_t prompt[CONTEXT] = {0}, drawn[MAX_NEW], one[MAX_NEW], again[MAX_NEW];
    tt_request request = {.prompt = prompt,
                          .n_prompt = N_PROMPT,
                          .max_new = N_NEW,
                          .sampling = {.seed = 77},
                          .random_tokens = true};
    for (int t = 0; t < N_PROMPT + N_NEW; t++) {
        prompt[t] = tt_engine_random_token(77, t, 4096);
        EXPECT(prompt[t] >= 0 && prompt[t] < 4096, "token %d", prompt[t]);
    }
    run_one(h, &request, drawn);
    request.random_tokens = false;
    request.max_new = 1;
    for (int k = 0; k < N_NEW; k++, request.n_prompt++) {
        run_one(h, &request, one);
        EXPECT(one[0] == drawn[k], "token %d after random ones is %d, after the same text %d", k,
               drawn[k], one[0]);
    }
    request = (tt_request){.prompt = prompt,
                           .n_prompt = DEPTH + 1,
                           .max_new = N_NEW,
                           .sampling = {.seed = 5},
                           .n_made = DEPTH};
    run_one(h, &request, drawn);
    run_one(h, &request, again);
    EXPECT(memcmp(drawn, again, N_NEW * sizeof(int32_t)) == 0,
           "made-up keys differ from time to time");
    request.sampling.seed = 6;
    run_one(h, &request, again);
    EXPECT(memcmp(drawn, again, N_NEW * sizeof(int32_t)) != 0,
           "made-up keys do not hang on the seed");
    uint64_t id;
    request.n_made = DEPTH + 1;
    EXPECT(tt_engine_submit(h->engine, &request, &id) == TT_ERR_ARG,
           "nothing to compute was taken");
    request.n_made = -1;
    EXPECT(tt_engine_submit(h->engine, &request, &id) == TT_ERR_ARG, "-1 was taken");
}

/* A request that can make so many tokens at most, whatever it asks for. */
static void limits_are_exact(harness *h)
{
    static const struct {
        int64_t n_prompt, max_new, want;
    } cases[] = {{95, 10, 1}, {90, 6, 6}, {90, 7, 6}, {90, INT64_MAX, 6}, {10, 3, 3}};
    static results r;
    static int32_t prompt[CONTEXT];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_request request = {.prompt = prompt, .n_prompt = cases[i].n_prompt};
        request.max_new = cases[i].max_new;
        memset(&r, 0, sizeof(r));
        MUST(tt_engine_submit(h->engine, &request, &r.first_id));
        drain(h, &r);
        EXPECT(r.n[0] == cases[i].want && r.finish[0] == TT_FINISH_LENGTH,
               "%d tokens after a prompt of %d, expected %d", r.n[0], (int)cases[i].n_prompt,
               (int)cases[i].want);
    }
}

/* Requests are cancelled before their first step, in the middle of their prompt, and while they
 * decode, each the only one there is: afterwards all pages are free, or the largest requests that
 * the pool holds could not all begin in one step. */
static void cancelled_ones_give_all_back(harness *h)
{
    enum { N_STORM = 100, LARGEST = 2 };
    static results r;
    static int32_t prompt[CONTEXT];
    const int dp = h->layout->dp;
    bool busy;
    for (int i = 0; i < N_STORM; i++) {
        tt_request request = {.prompt = prompt, .n_prompt = 50, .max_new = MAX_NEW};
        memset(&r, 0, sizeof(r));
        MUST(tt_engine_submit(h->engine, &request, &r.first_id));
        for (int step = 0; step < i % 6; step++) {
            MUST(tt_engine_step(h->engine, take, &r, &busy));
        }
        MUST(tt_engine_cancel(h->engine, r.first_id));
        r.cancelled_id = r.first_id;
        drain(h, &r);
    }
    memset(&r, 0, sizeof(r));
    for (int i = 0; i < LARGEST * dp; i++) {
        tt_request request = {.prompt = prompt, .n_prompt = 1, .max_new = CONTEXT - 1};
        uint64_t id;
        MUST(tt_engine_submit(h->engine, &request, &id));
        r.first_id = i == 0 ? id : r.first_id;
    }
    MUST(tt_engine_step(h->engine, take, &r, &busy));
    for (int i = 0; i < LARGEST * dp; i++) {
        EXPECT(r.n[i] == 1, "request %d of %d waits: pages are missing", i, LARGEST * dp);
        MUST(tt_engine_cancel(h->engine, r.first_id + (uint64_t)i));
    }
    drain(h, &r);
}

static void drive(harness *h)
{
    static results alone, together;
    refusals(h);
    made_up(h);
    limits_are_exact(h);
    cancelled_ones_give_all_back(h);
    for (int i = 0; i < N_REQUESTS; i++) { /* one at a time */
        uint64_t id = submit(h, i);
        alone.first_id = i == 0 ? id : alone.first_id;
        drain(h, &alone);
    }
    bool busy = true;
    uint64_t doomed = 0, waiting = 0;
    for (int i = 0; i < N_REQUESTS; i++) { /* all at once; two of them are cancelled: one runs,
                                            * one waits */
        uint64_t id = submit(h, i);
        together.first_id = i == 0 ? id : together.first_id;
        doomed = i == 1 ? id : doomed;
        waiting = i == N_REQUESTS - 1 ? id : waiting;
    }
    for (int step = 0; step < 3 && busy; step++) {
        MUST(tt_engine_step(h->engine, take, &together, &busy));
    }
    MUST(tt_engine_cancel(h->engine, doomed));
    MUST(tt_engine_cancel(h->engine, waiting));
    MUST(tt_engine_cancel(h->engine, 123456789));
    together.cancelled_id = doomed;
    drain(h, &together);
    for (int i = 0; i < N_REQUESTS; i++) {
        if (i == 1) {
            EXPECT(together.finish[i] == TT_FINISH_NONE, "the cancelled request ended");
            continue;
        }
        if (i == N_REQUESTS - 1) {
            EXPECT(together.n[i] == 0, "the request cancelled while it waited has output");
            continue;
        }
        EXPECT(alone.finish[i] != TT_FINISH_NONE && alone.n[i] > 0, "request %d did not end", i);
        EXPECT(alone.n[i] == together.n[i] && alone.finish[i] == together.finish[i] &&
                   memcmp(alone.token[i], together.token[i],
                          (size_t)alone.n[i] * sizeof(int32_t)) == 0,
               "request %d differs among others (%d and %d tokens)", i, alone.n[i], together.n[i]);
    }
    uint64_t id = submit(h, 2); /* all places and pages are back: the last one runs as the first
                                 * did */
    static results again;
    again.first_id = id;
    drain(h, &again);
    EXPECT(again.n[0] == alone.n[2], "%d tokens after all, %d before", again.n[0], alone.n[2]);
    MUST(tt_engine_stop(h->engine));
}

int main(void)
{
    harness h;
    harness_begin(&h, NULL);
    tt_layout_params params = {0};
    params.max_batch = 6 * h.size;
    params.prefill_chunk = 24;
    params.context = CONTEXT;
    params.dp = h.size >= 3 ? h.size / 2 : 1; /* with 3 ranks: one of them only serves experts */
    params.tp = h.size >= 4 ? 2 : 1;
    tt_model *model = NULL;
    MUST(tt_model_open(source_path("models/tiny-moe"), &model));
    const tt_arch *arch = tt_model_arch(model);
    int64_t token_bytes = arch->L * (arch->kv_rank + arch->rope_dim) * (int64_t)sizeof(float);
    tt_model_close(&model);
    params.kv_memory_bytes = POOL_TOKENS * token_bytes; /* two full contexts for six sequences */
    harness_load(&h, "models/tiny-moe", params, 1);
    if (h.rank == 0) {
        drive(&h);
    } else {
        MUST(tt_engine_follow(h.engine));
    }
    harness_unload(&h);
    harness_end(&h);
    return 0;
}
/* TEST ranks: 1 3 4 */
