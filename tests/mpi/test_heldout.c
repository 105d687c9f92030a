/* test_heldout.c - negative log-likelihood of held-out text under the shipped model, per domain and
 * chunk, against an independent reference. */
#include "harness.h"
#include <jansson.h>

enum { CHUNK = 512, CHUNKS = 8 };

typedef struct sums {
    double nll[64]; /* per request */
    int64_t n[64];
    uint64_t first_id;
} sums;

static void take(void *arg, const tt_output *output)
{
    sums *s = arg;
    if (!isnan(output->nll)) {
        s->nll[output->request_id - s->first_id] += output->nll;
        s->n[output->request_id - s->first_id]++;
    }
}

static json_t *load(const char *name)
{
    json_error_t error;
    json_t *root = json_load_file(source_path(name), 0, &error);
    EXPECT(root, "%s: %s", name, error.text);
    return root;
}

int main(void)
{
    harness h;
    harness_begin(&h, NULL);
    tt_layout_params params = {0};
    params.max_batch = 8;
    params.prefill_chunk = 256;
    params.context = CHUNK;
    harness_load(&h, "models/tiny-moe", params, 2);
    json_t *ids = load("tests/golden/tiny-moe/heldout_ids.json");
    json_t *want = json_object_get(load("tests/golden/tiny-moe/heldout_nll.json"), "domains");
    sums s = {0};
    const char *domain;
    json_t *list;
    int64_t n_requests = 0;
    if (h.rank == 0) {
        json_object_foreach(ids, domain, list)
        {
            for (size_t chunk = 0; chunk < CHUNKS; chunk++) {
                int32_t prompt[CHUNK];
                uint64_t id;
                for (size_t i = 0; i < CHUNK; i++) {
                    prompt[i] =
                        (int32_t)json_integer_value(json_array_get(list, chunk * CHUNK + i));
                }
                tt_request request = {0};
                request.prompt = prompt;
                request.n_prompt = CHUNK;
                request.score = true;
                MUST(tt_engine_submit(h.engine, &request, &id));
                s.first_id = n_requests == 0 ? id : s.first_id;
                n_requests++;
            }
        }
    }
    harness_run(&h, take, &s);
    if (h.rank == 0) {
        double worst = 0.0;
        int64_t request = 0;
        json_object_foreach(ids, domain, list)
        {
            json_t *per_chunk = json_object_get(json_object_get(want, domain), "per_chunk");
            double sum = 0.0;
            for (size_t chunk = 0; chunk < CHUNKS; chunk++, request++) {
                EXPECT(s.n[request] == CHUNK - 1, "%lld scores", (long long)s.n[request]);
                double mine = s.nll[request] / (double)s.n[request];
                double reference = json_number_value(json_array_get(per_chunk, chunk));
                double error = fabs(mine - reference);
                worst = error > worst || isnan(error) ? error : worst;
                sum += mine;
                EXPECT(error <= 1e-4, "%s chunk %zu: %.6f, reference %.6f", domain, chunk, mine,
                       reference);
            }
            double mean =
                json_number_value(json_object_get(json_object_get(want, domain), "mean_nll"));
            EXPECT(fabs(sum / CHUNKS - mean) <= 1e-4, "%s: mean %.6f, reference %.6f", domain,
                   sum / CHUNKS, mean);
        }
        EXPECT(request > 0 && request == n_requests, "%lld chunks were compared of %lld",
               (long long)request, (long long)n_requests);
        printf("# largest difference of a chunk's NLL: %.1e\n", worst);
    }
    harness_unload(&h);
    harness_end(&h);
    return 0;
}
/* TEST ranks: 2 */
/* TEST timeout: 600 */
