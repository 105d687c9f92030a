/* test_released.c - configurations of released models, key by key as their makers publish them:
 * each is accepted, and gives the sizes that its maker states. The miniatures cannot show a key
 * that no miniature has. models/configs/README.md says which files are whose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "model_fixture.h"
#include "model_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 96 };

typedef struct released {
    const char *name;
    int64_t L, H, E, K, context;
    double attention_factor;
    tti_quant_method method;
} released;

/* YaRN without mscale keys: 1 + 0.1 ln(factor). LongRoPE of Phi-3.5-MoE: its short_mscale. */
static const double YARN_4 = 1.1386294361119891, YARN_32 = 1.3465735902799727,
                    PHI = 1.243163121016122;

static void each_is_read(void **state)
{
    (void)state;
    const released table[] = {
        {"llama-4-scout", 48, 5120, 16, 1, 262144, 1, TTI_QUANT_NONE},
        {"llama-4-scout-instruct", 48, 5120, 16, 1, 10485760, 1, TTI_QUANT_NONE},
        {"llama-4-maverick-instruct", 48, 5120, 128, 1, 1048576, 1, TTI_QUANT_NONE},
        {"minimax-m2", 62, 3072, 256, 8, 196608, 1, TTI_QUANT_FP8},
        {"deepseek-r1", 61, 7168, 256, 8, 163840, 1, TTI_QUANT_FP8},
        {"deepseek-v3", 61, 7168, 256, 8, 163840, 1, TTI_QUANT_FP8},
        {"deepseek-v3.1", 61, 7168, 256, 8, 163840, 1, TTI_QUANT_FP8},
        {"deepseek-v2-lite", 27, 2048, 64, 6, 163840, 1, TTI_QUANT_NONE},
        {"deepseek-v2.5", 60, 5120, 160, 6, 163840, 1, TTI_QUANT_NONE},
        {"kimi-k2-instruct", 61, 7168, 384, 8, 131072, 1, TTI_QUANT_FP8},
        {"kimi-k2-thinking", 61, 7168, 384, 8, 262144, 1, TTI_QUANT_COMPRESSED},
        {"glm-4.5", 92, 5120, 160, 8, 131072, 1, TTI_QUANT_NONE},
        {"glm-4.5-air", 46, 4096, 128, 8, 131072, 1, TTI_QUANT_NONE},
        {"glm-4.6", 92, 5120, 160, 8, 202752, 1, TTI_QUANT_NONE},
        {"gpt-oss-120b", 36, 2880, 128, 4, 131072, YARN_32, TTI_QUANT_MXFP4},
        {"gpt-oss-20b", 24, 2880, 32, 4, 131072, YARN_32, TTI_QUANT_MXFP4},
        {"hunyuan-a13b-instruct", 32, 4096, 64, 8, 32768, 1, TTI_QUANT_NONE},
        {"ernie-4.5-21b-a3b-pt", 28, 2560, 64, 6, 131072, 1, TTI_QUANT_NONE},
        {"phi-3.5-moe-instruct", 32, 4096, 16, 2, 131072, PHI, TTI_QUANT_NONE},
        {"qwen3-next-80b-a3b-instruct", 48, 2048, 512, 10, 262144, 1, TTI_QUANT_NONE},
        {"qwen3-next-80b-a3b-instruct-fp8", 48, 2048, 512, 10, 262144, 1, TTI_QUANT_FP8},
        {"qwen3-30b-a3b", 48, 2048, 128, 8, 40960, 1, TTI_QUANT_NONE},
        {"qwen3-235b-a22b", 94, 4096, 128, 8, 40960, 1, TTI_QUANT_NONE},
        {"qwen3-30b-a3b-fp8", 48, 2048, 128, 8, 40960, 1, TTI_QUANT_FP8},
        {"qwen3-30b-a3b-int4-autoround", 48, 2048, 128, 8, 40960, 1, TTI_QUANT_GPTQ},
        {"qwen2-57b-a14b-instruct", 28, 3584, 64, 8, 32768, 1, TTI_QUANT_NONE},
        {"granite-3.1-1b-a400m-instruct", 24, 1024, 32, 8, 131072, 1, TTI_QUANT_NONE},
        {"granite-3.1-3b-a800m-instruct", 32, 1536, 40, 8, 131072, 1, TTI_QUANT_NONE},
        {"mixtral-8x7b-instruct-v0.1", 32, 4096, 8, 2, 32768, 1, TTI_QUANT_NONE},
        {"mixtral-8x22b-v0.1", 56, 6144, 8, 2, 65536, 1, TTI_QUANT_NONE},
        {"olmoe-1b-7b-0924", 16, 2048, 64, 8, 4096, 1, TTI_QUANT_NONE},
        {"flexolmo-7x7b-1t", 32, 4096, 7, 5, 4096, 1, TTI_QUANT_NONE},
        {"dots.llm1.inst", 62, 4096, 128, 6, 32768, 1, TTI_QUANT_NONE},
        {"qwen3-8b", 36, 4096, 0, 0, 40960, 1, TTI_QUANT_NONE},
        {"deepseek-r1-0528-qwen3-8b", 36, 4096, 0, 0, 131072, YARN_4, TTI_QUANT_NONE},
        {"llama-3.1-8b-instruct", 32, 4096, 0, 0, 131072, 1, TTI_QUANT_NONE},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const released *want = &table[i];
        const tti_family *family;
        tti_hyper hyper;
        json_t *root;
        char name[NAME_BYTES];
        snprintf(name, sizeof(name), "%s.json", want->name);
        assert_int_equal(
            tti_json_load(source_path("models/configs"), name, TTI_CONFIG_BYTES, &root), TT_OK);
        if (tti_config_take(name, root, &family, &hyper) != TT_OK) {
            print_message("# %s\n", tt_status_message());
            fail_msg("%s: %s", name, tt_status_message());
        }
        const tt_arch *a = &hyper.arch;
        if (a->L != want->L || a->H != want->H || a->E != want->E || a->K != want->K ||
            a->context != want->context) {
            fail_msg("%s: L %lld H %lld E %lld K %lld context %lld", name, (long long)a->L,
                     (long long)a->H, (long long)a->E, (long long)a->K, (long long)a->context);
        }
        if (fabs((double)a->rope.attention_factor - want->attention_factor) > 1e-7) {
            fail_msg("%s: attention factor %.9g is not %.9g", name,
                     (double)a->rope.attention_factor, want->attention_factor);
        }
        for (int64_t j = 0; j < a->rope.dim / 2; j++) {
            assert_true(a->rope.inv_freq[j] > 0 && isfinite(a->rope.inv_freq[j]));
        }
        assert_int_equal(hyper.quantization.method, want->method);
        free(hyper.arch.rope.inv_freq);
        free(hyper.arch.rope.long_inv_freq);
        json_decref(hyper.root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_read),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
