/* test_steady.c - after warm-up the step path allocates nothing and takes no blocking lock. Needs a
 * debug build, which counts both (77 elsewhere). */
#include "harness.h"

enum { WARM_UP = 40, MEASURED = 60, N_REQUESTS = 3 };

typedef struct counts {
    uint64_t allocations, locks;
} counts;

static counts now(void)
{
    counts c = {tt_steady_allocations(), tt_steady_locks()};
    return c;
}

int main(void)
{
    harness h;
    harness_begin(&h, NULL);
    if (!tt_steady_is_counting()) {
        if (h.rank == 0) {
            printf("# skip: needs --enable-debug without sanitizers\n");
        }
        harness_end(&h);
        return 77;
    }
    tt_layout_params params = {0};
    params.max_batch = 4;
    params.prefill_chunk = 16;
    params.context = 256;
    params.dp = h.size >= 2 ? 2 : 1;
    params.tp = h.size >= 4 ? 2 : 1;
    harness_load(&h, "models/tiny-moe", params, 2);
    /* All ranks count over the same steps: rank 0 admits everything at first and then only steps;
     * the others stop counting when it stops them, so their sums include the end of follow, which
     * is on the step path too. */
    counts before = {0, 0}, after;
    if (h.rank == 0) {
        for (int i = 0; i < N_REQUESTS; i++) {
            int32_t prompt[5] = {0, 955, 1498, 1968, 328 + i};
            uint64_t id;
            tt_request request = {0};
            request.prompt = prompt;
            request.n_prompt = 5;
            request.max_new = WARM_UP + MEASURED + 20;
            request.sampling.temperature = i == 1 ? 0.8 : 0.0;
            request.sampling.top_p = 0.9;
            MUST(tt_engine_submit(h.engine, &request, &id));
        }
        bool busy = true;
        for (int i = 0; i < WARM_UP && busy; i++) {
            MUST(tt_engine_step(h.engine, NULL, NULL, &busy));
        }
        before = now();
        for (int i = 0; i < MEASURED && busy; i++) {
            MUST(tt_engine_step(h.engine, NULL, NULL, &busy));
        }
        after = now();
        EXPECT(busy, "the requests ended too soon");
        MUST(tt_engine_stop(h.engine));
    } else {
        before = now();
        MUST(tt_engine_follow(h.engine));
        after = now();
    }
    printf("# rank %d: %llu allocations, %llu locks\n", h.rank,
           (unsigned long long)(after.allocations - before.allocations),
           (unsigned long long)(after.locks - before.locks));
    EXPECT(after.allocations == before.allocations, "rank %d allocated on the step path", h.rank);
    EXPECT(after.locks == before.locks, "rank %d took a blocking lock on the step path", h.rank);
    harness_unload(&h);
    harness_end(&h);
    return 0;
}
/* TEST ranks: 1 4 */
