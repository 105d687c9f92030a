/* bench_time.c - times prompts and decode steps.
 *
 * A decode sample: `batch` sequences start at the wanted depth (what lies before is made up), take
 * a first step together, and then each of the next steps is timed on rank 0 from the end of one to
 * the end of the next. A prefill sample: one prompt for each DP group, from the first step to the
 * last first token. Tokens are random in every row and position, and the same in every sample and
 * on every layout: equal rows would choose equal experts, and greedy text of random weights falls
 * into loops. A sample in advance warms up. */
#include "config.h"
#include "bench.h"
#include <stdlib.h>
#include <string.h>

enum {
    MAX_STARTING_STEPS = 100000
}; /* of sequences before all have spoken; far above what
    * admission takes */
#define NS_PER_S 1e9

/* Rank 0's side of a sample. */
typedef struct runner {
    tti_bench *bench;
    tti_bench_case what;
    uint64_t first_id;
    bool *has_spoken;           /* has_spoken[batch] */
    int64_t n_silent, n_tokens; /* sequences without a token yet; tokens of the last step */
    uint64_t drawn;
    uint64_t *step_ns; /* step_ns[tokens] of the sample; NULL = not wanted */
    double seconds;
    tt_status mine; /* what only rank 0 knows */
} runner;

static tt_engine *engine_of(const runner *r)
{
    return r->bench->session.engine;
}

/* Adds up, so that the order in which groups report does not count. */
static uint64_t token_hash(uint64_t i, int64_t position, int32_t token)
{
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)position << 32 ^
                 (uint64_t)(uint32_t)token;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void take_output(void *arg, const tt_output *output)
{
    runner *r = arg;
    uint64_t i = output->request_id - r->first_id;
    if (i >= (uint64_t)r->what.batch) {
        return;
    }
    r->n_tokens++;
    r->drawn += token_hash(i, output->position, output->token);
    if (!r->has_spoken[i]) {
        r->has_spoken[i] = true;
        r->n_silent--;
    }
}

static tt_status submit(runner *r)
{
    tti_bench *b = r->bench;
    int64_t V = tt_model_arch(b->session.model)->V,
            n_prompt = r->what.is_prefill ? r->what.tokens : r->what.depth + 1;
    int32_t *prompt = malloc((size_t)n_prompt * sizeof(*prompt));
    TT_CHECK(prompt && r->has_spoken, TT_ERR_NOMEM, "no memory for a prompt of %lld tokens",
             (long long)n_prompt);
    memset(r->has_spoken, 0, (size_t)r->what.batch * sizeof(*r->has_spoken));
    r->n_silent = r->what.batch;
    r->drawn = 0;
    tt_status st = TT_OK;
    for (int64_t i = 0; st == TT_OK && i < r->what.batch; i++) {
        uint64_t id;
        tt_request request = {.prompt = prompt,
                              .n_prompt = n_prompt,
                              .max_new = r->what.is_prefill ? 1 : b->session.layout->context,
                              .sampling = {.seed = (uint64_t)i + 1},
                              .n_made = r->what.is_prefill ? 0 : r->what.depth,
                              .random_tokens = true};
        for (int64_t t = 0; t < n_prompt; t++) {
            prompt[t] = tt_engine_random_token(request.sampling.seed, t, V);
        }
        st = tt_engine_submit(b->session.engine, &request, &id);
        r->first_id = i == 0 ? id : r->first_id;
    }
    free(prompt);
    return st;
}

static tt_status step(runner *r, bool *busy)
{
    r->n_tokens = 0;
    return tt_engine_step(engine_of(r), take_output, r, busy);
}

/* ---- parts of a sample: rank 0 steps, the others follow until it stops ---- */

typedef tt_status part_fn(runner *r);

static tt_status run_part(runner *r, part_fn *part)
{
    tti_bench *b = r->bench;
    if (b->launch->rank != 0) {
        TT_TRY(tt_engine_follow(b->session.engine));
    } else {
        TT_TRY(part(r));
        TT_TRY(tt_engine_stop(b->session.engine));
    }
    return tt_world_agree(b->launch->world, r->mine);
}

/* Until every sequence has a token. */
static tt_status start_part(runner *r)
{
    bool busy = true;
    uint64_t begin = tt_now_ns();
    for (int i = 0; r->n_silent > 0 && busy && i < MAX_STARTING_STEPS; i++) {
        TT_TRY(step(r, &busy));
    }
    r->seconds = (double)(tt_now_ns() - begin) / NS_PER_S;
    if (r->n_silent > 0) {
        r->mine = TT_FAIL(TT_ERR_STATE, "%lld of %lld sequences never began",
                          (long long)r->n_silent, (long long)r->what.batch);
    }
    return TT_OK;
}

static tt_status timed_part(runner *r)
{
    bool busy;
    uint64_t begin = tt_now_ns(), before = begin;
    for (int64_t i = 0; i < r->what.tokens; i++) {
        TT_TRY(step(r, &busy));
        uint64_t now = tt_now_ns();
        if (r->n_tokens != r->what.batch && r->mine == TT_OK) {
            r->mine = TT_FAIL(TT_ERR_STATE, "a step gave %lld tokens to %lld sequences",
                              (long long)r->n_tokens, (long long)r->what.batch);
        }
        if (r->step_ns) {
            r->step_ns[i] = now - before;
        }
        before = now;
    }
    r->seconds = (double)(before - begin) / NS_PER_S;
    return TT_OK;
}

static tt_status end_part(runner *r)
{
    for (int64_t i = 0; i < r->what.batch; i++) {
        TT_TRY(tt_engine_cancel(engine_of(r), r->first_id + (uint64_t)i));
    }
    for (bool busy = true; busy;) {
        TT_TRY(step(r, &busy));
    }
    return TT_OK;
}

/* ---- a sample ---- */

/* What a timed part adds to this rank's totals. */
static tt_status run_timed(runner *r, part_fn *part, tti_bench_totals *totals)
{
    TT_TRY(tt_world_barrier(r->bench->launch->world));
    tt_engine_figures before = tt_engine_get_figures(engine_of(r));
    tt_phase_reset();
    TT_TRY(run_part(r, part));
    tt_engine_figures after = tt_engine_get_figures(engine_of(r));
    totals->steps += after.steps - before.steps;
    totals->steps_in_parts += after.steps_in_parts - before.steps_in_parts;
    totals->bytes_read += after.bytes_read - before.bytes_read;
    totals->kv_bytes_read += after.kv_bytes_read - before.kv_bytes_read;
    totals->experts_touched += after.experts_touched - before.experts_touched;
    for (int p = 0; p < TT_PHASE_COUNT; p++) {
        tt_phase_total now;
        tt_phase_get((tt_phase)p, &now);
        totals->phase[p].calls += now.calls;
        totals->phase[p].ns += now.ns;
        totals->phase[p].bytes += now.bytes;
    }
    return TT_OK;
}

static tt_status run_sample(runner *r, tti_bench_totals *totals)
{
    tt_world *world = r->bench->launch->world;
    tt_status mine = r->bench->launch->rank == 0 ? submit(r) : TT_OK;
    TT_TRY(tt_world_agree(world, mine));
    if (r->what.is_prefill) {
        return run_timed(r, start_part, totals);
    }
    TT_TRY(run_part(r, start_part));
    TT_TRY(run_timed(r, timed_part, totals));
    return run_part(r, end_part);
}

void tti_bench_result_fini(tti_bench_result *result)
{
    free(result->sample_s);
    free(result->step_ns);
    free(result->of_rank);
    *result = (tti_bench_result){0};
}

static tt_status allocate(const tti_bench *b, tti_bench_result *result, runner *r)
{
    size_t n = (size_t)result->n_samples,
           n_steps = result->what.is_prefill ? 0 : (size_t)result->what.tokens;
    result->of_rank = calloc((size_t)b->launch->size, sizeof(*result->of_rank));
    result->sample_s = calloc(n, sizeof(double));
    result->step_ns = calloc(n * n_steps + 1, sizeof(uint64_t));
    r->has_spoken = calloc((size_t)result->what.batch, sizeof(*r->has_spoken));
    TT_CHECK(result->of_rank && result->sample_s && result->step_ns && r->has_spoken, TT_ERR_NOMEM,
             "no memory for %lld samples", (long long)result->n_samples);
    return TT_OK;
}

static tt_status run_samples(tti_bench *b, tti_bench_result *result, runner *r)
{
    tti_bench_totals ignored = {0}, totals = {0};
    TT_TRY(run_sample(r, &ignored)); /* warms up */
    for (int64_t i = 0; i < result->n_samples; i++) {
        r->step_ns = result->what.is_prefill ? NULL : result->step_ns + i * result->what.tokens;
        TT_TRY(run_sample(r, &totals));
        result->sample_s[i] = r->seconds;
    }
    result->drawn = r->drawn;
    return tt_world_allgather(b->launch->world, &totals, sizeof(totals), result->of_rank);
}

tt_status tti_bench_time(tti_bench *b, const tti_bench_case *what, tti_bench_result *result_out)
{
    *result_out = (tti_bench_result){.what = *what, .n_samples = b->options.repeat};
    runner r = {.bench = b, .what = *what};
    tt_status st = tt_world_agree(b->launch->world, allocate(b, result_out, &r));
    if (st == TT_OK) {
        st = run_samples(b, result_out, &r);
    }
    free(r.has_spoken);
    return st;
}
