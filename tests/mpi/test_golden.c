/* test_golden.c - logits and greedy tokens of each architecture against an independent reference
 * (float32, another implementation; see tests/golden/README.md), on any number of ranks.
 * The bound is 1e-3 of the spread (standard deviation) of the reference's logits; float32 agrees to
 * about 1e-5. Logits without a spread would agree with anything: they are refused. */
#include "harness.h"
#include "golden.h"

static const char *const names[] = {
    "deepseek_v2",
    "deepseek_v2_group",
    "deepseek_v3",
    "kimi_k2",
    "qwen3_moe",
    "mixtral",
    "olmoe",
    "qwen2_moe",
    "qwen3_moe_yarn",
    "qwen3_dense",
    "llama_dense",
    "glm4_moe",
    "dots1",
    "ernie4_5_moe",
    "minimax_m2",
    "flex_olmo",
    "gpt_oss",
    "granitemoe",
    "granitemoeshared",
    "hunyuan_v1_moe",
    "llama4_text",
    "phimoe",
    "qwen3_next",
    "deepseek_v3_fp8",
    "gpt_oss_mxfp4",
    "qwen3_moe_gptq",
    "qwen3_moe_awq",
    "qwen3_moe_ct_int4",
    "qwen3_moe_ct_int8",
    "phimoe_longrope",
};

/* Models whose outputs lie elsewhere: GGUF files of the same models, made by another converter; two
 * tables of angles, of which a longer request takes the other. */
static const struct {
    const char *model, *golden;
} others[] = {
    {"tests/golden/architectures/phimoe_longrope",
     "tests/golden/architectures/phimoe_longrope/golden.long.safetensors"},
    {"tests/golden/gguf/deepseek_v3.gguf",
     "tests/golden/architectures/deepseek_v3/golden.safetensors"},
    {"tests/golden/gguf/qwen2_moe.gguf", "tests/golden/architectures/qwen2_moe/golden.safetensors"},
    {"tests/golden/gguf/gpt_oss_mxfp4.gguf",
     "tests/golden/architectures/gpt_oss_mxfp4/golden.safetensors"},
    {"tests/golden/gguf/granitemoeshared.gguf",
     "tests/golden/architectures/granitemoeshared/golden.safetensors"},
    {"tests/golden/gguf/llama4_text.gguf",
     "tests/golden/architectures/llama4_text/golden.safetensors"},
    {"tests/golden/gguf/qwen3_next.gguf",
     "tests/golden/architectures/qwen3_next/golden.safetensors"},
    {"tests/golden/gguf/types_a.gguf", "tests/golden/gguf/types_a.golden.safetensors"},
    {"tests/golden/gguf/types_b.gguf", "tests/golden/gguf/types_b.golden.safetensors"},
    {"tests/golden/gguf/split", "tests/golden/architectures/llama_dense/golden.safetensors"}};

static const double SPREAD_MIN = 0.01; /* the miniatures have 0.03 and more */

typedef struct collected {
    int64_t V;
    const float *want; /* want[T][V] */
    double worst, squares, sum;
    int64_t n;
    int32_t token[64];
    int64_t n_tokens;
} collected;

static void take(void *arg, const tt_output *output)
{
    collected *c = arg;
    if (output->logits) {
        for (int64_t i = 0; i < c->V; i++) {
            double want = (double)c->want[output->position * c->V + i];
            double error = fabs((double)output->logits[i] - want);
            c->worst = error > c->worst || isnan(error) ? error : c->worst;
            c->squares += want * want;
            c->sum += want;
            c->n++;
        }
    } else if (output->token >= 0) {
        c->token[c->n_tokens++] = output->token;
    }
}

static void one_model(harness *h, const char *name, const char *golden)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s", source_path(golden));
    size_t bytes, greedy_bytes, ids_bytes;
    float *want = golden_read(path, "logits", &bytes);
    int32_t *greedy = golden_read(path, "greedy_ids", &greedy_bytes);
    int32_t *ids = golden_read(path, "input_ids", &ids_bytes);
    tt_layout_params params = {0};
    params.max_batch = 4;
    params.prefill_chunk = 7;
    params.context = 64;
    harness_load(h, name, params, 1 + h->rank % 2);
    collected c = {0};
    c.V = tt_model_arch(h->model)->V;
    c.want = want;
    int64_t n_prompt = (int64_t)(ids_bytes / sizeof(int32_t));
    int64_t n_greedy = (int64_t)(greedy_bytes / sizeof(int32_t));
    if (h->rank == 0) {
        uint64_t id;
        tt_request request = {0};
        request.prompt = ids;
        request.n_prompt = n_prompt;
        request.score = true;
        request.logits = true;
        MUST(tt_engine_submit(h->engine, &request, &id));
        request.score = false;
        request.logits = false;
        request.max_new = n_greedy;
        MUST(tt_engine_submit(h->engine, &request, &id));
    }
    harness_run(h, take, &c);
    if (h->rank == 0) {
        EXPECT(c.n == n_prompt * c.V, "%s: %lld logits", name, (long long)c.n);
        double mean = c.sum / (double)c.n, spread = sqrt(c.squares / (double)c.n - mean * mean);
        printf("# %s: largest logit error %.2e of the spread %.3f\n", name, c.worst / spread,
               spread);
        EXPECT(isfinite(spread) && spread >= SPREAD_MIN,
               "%s: the reference's logits spread by %g only", name, spread);
        EXPECT(c.worst <= 1e-3 * spread, "%s: logit error %g, spread %g", name, c.worst, spread);
        EXPECT(c.n_tokens == n_greedy && memcmp(c.token, greedy, greedy_bytes) == 0,
               "%s: greedy tokens differ from the reference's", name);
    }
    harness_unload(h);
    free(want);
    free(greedy);
    free(ids);
}

int main(void)
{
    harness h;
    harness_begin(&h, NULL);
    const char *only = getenv("TT_GOLDEN"); /* runs those whose names contain this */
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (only && !strstr(names[i], only)) {
            continue;
        }
        char model[512], golden[600];
        snprintf(model, sizeof(model), "tests/golden/architectures/%s", names[i]);
        snprintf(golden, sizeof(golden), "%s/golden.safetensors", model);
        one_model(&h, model, golden);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (!only || strstr(others[i].model, only)) {
            one_model(&h, others[i].model, others[i].golden);
        }
    }
    harness_end(&h);
    return 0;
}
/* TEST ranks: 1 3 4 */
