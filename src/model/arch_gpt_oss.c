/* arch_gpt_oss.c - gpt-oss: every other layer slides, a sink per head in the softmax, biases
 * everywhere, a clamped activation; the router chooses by logit. Sources: the gpt-oss model card,
 * its published code; defaults are those of the Hugging Face configuration class. Gate and up rows
 * come in turns, in whatever form the experts are stored. */
#include "arch.h"
#include <string.h>

enum { DEFAULT_HEAD_WIDTH = 64, DEFAULT_WINDOW = 128 };
static const float ACTIVATION_ALPHA = 1.702f; /* in the published code, not in the configuration */

static const tti_key keys[] = {
    TTI_KEYS_GQA(8, DEFAULT_HEAD_WIDTH, 131072, 1e-5),
    TTI_KEY_TIED(false),
    TTI_KEY_SIZE("intermediate_size", arch.F, TTI_MAX_WIDTH),
    TTI_KEY_EXPERTS("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    {.type = TTI_KEY_INT,
     .flags = TTI_KEY_REQUIRED,
     .name = {"num_experts_per_tok", "experts_per_token"},
     .offset = TTI_OFFSET(arch.K),
     .min = 1,
     .max = TTI_MAX_EXPERTS},
    TTI_KEY_BOOL_OR("attention_bias", attention_bias, true),
    TTI_KEY_COUNT_OR("sliding_window", sliding_window, TTI_MAX_CONTEXT, DEFAULT_WINDOW),
    TTI_KEY_FACTOR_OR("swiglu_limit", arch.activation_limit, 7),
    TTI_KEYS_END};

static tt_status finish(tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    /* The class's default is a yarn that no file relies on; a file without one is more likely
     * broken. */
    TT_CHECK(strcmp(hyper->rope.type, "default") != 0, TT_ERR_FILE,
             "%s: states no rotary scaling, which this architecture needs",
             tti_show_path(hyper->what));
    hyper->use_sliding_window = true;
    arch->sinks = true;
    arch->expert_bias = true;
    arch->activation = TT_ACTIVATION_CLAMPED;
    arch->activation_alpha = ACTIVATION_ALPHA;
    arch->router = (tt_router){.score = TT_SCORE_SOFTMAX_CHOSEN,
                               .n_groups = 1,
                               .n_groups_kept = 1,
                               .scale = 1,
                               .logit_bias = true};
    TT_TRY(tti_arch_check_router(hyper));
    return tti_arch_finish_gqa(hyper);
}

static void set_layer(const tti_hyper *hyper, int64_t id, tt_layer *layer)
{
    tti_arch_set_window(hyper, id, id % 2 == 0, layer);
}

#define EXPERTS TTI_LAYER "mlp.experts."
const tti_family tti_family_gpt_oss = {
    .architectures = (const char *const[]){"GptOssForCausalLM", NULL},
    .model_types = (const char *const[]){"gpt_oss", NULL},
    .rope_theta = 150000,
    .layer_types = (const char *const[]){"full_attention", "sliding_attention", NULL},
    .keys = keys,
    .finish = finish,
    .layer_is_moe = tti_arch_every_layer,
    .set_layer = set_layer,
    .tensors =
        {.role = {[TT_ROLE_SINKS] = {TTI_LAYER "self_attn.sinks"},
                  [TT_ROLE_ROUTER] = {TTI_LAYER "mlp.router.weight",
                                      TTI_LAYER "mlp.router.linear.weight"},
                  [TT_ROLE_ROUTER_BIAS] = {TTI_LAYER "mlp.router.bias",
                                           TTI_LAYER "mlp.router.linear.bias"},
                  [TT_ROLE_EXPERT_DOWN] = {EXPERTS "down_projs.%E.weight", EXPERTS "down_proj"},
                  [TT_ROLE_EXPERT_DOWN_BIAS] = {EXPERTS "down_projs.%E.bias",
                                                EXPERTS "down_proj_bias"}},
         .pair = {[TTI_PAIR_EXPERT] = {EXPERTS "gate_up_projs.%E.weight", EXPERTS "gate_up_proj"},
                  [TTI_PAIR_EXPERT_BIAS] = {EXPERTS "gate_up_projs.%E.bias",
                                            EXPERTS "gate_up_proj_bias"}},
         .pairs_in_turns = true,
         .transposed = true},
};
