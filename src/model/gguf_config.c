/* gguf_config.c - from GGUF's metadata keys to the configuration object that the families of
 * arch_*.c read.
 *
 * Each architecture string is a row: which family it is, which of GGUF's keys become which of the
 * family's, and a function for what is not one to one. Then nothing is described twice: defaults,
 * limits and refusals are the family's own. Where GGUF has no key, its loaders have a constant: the
 * rows state it (put_*).
 * Source: the keys of the GGUF specification and of llama.cpp's loaders and converter. */
#include "gguf_translation.h"
#include <math.h>
#include <string.h>
#include "tutti/log.h"

/* Keys that tti_gguf_int_or is asked for. A wrong type is refused before, so that it never passes
 * for absence. */
static tt_status check_types(const tti_translation *t)
{
    static const char *const suffixes[] = {"attention.head_count",
                                           "attention.sliding_window",
                                           "block_count",
                                           "context_length",
                                           "embedding_length",
                                           "expert_count",
                                           "expert_feed_forward_length",
                                           "expert_gating_func",
                                           "expert_group_count",
                                           "expert_shared_feed_forward_length",
                                           "full_attention_interval",
                                           "leading_dense_block_count",
                                           "nextn_predict_layers",
                                           "rope.scaling.original_context_length",
                                           "ssm.inner_size",
                                           "ssm.time_step_rank"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        int64_t value;
        bool found;
        TT_TRY(tti_gguf_get_int(t, suffixes[i], &value, &found));
    }
    return TT_OK;
}

/* ---- rows ---- */

typedef enum row_kind { ROW_INT, ROW_REAL, ROW_BOOL } row_kind;
typedef enum row_need {
    ROW_OPTIONAL, /* absent: the family's default */
    ROW_REQUIRED,
    ROW_OR /* absent: `fallback` */
} row_need;
typedef struct row {
    const char *suffix; /* GGUF; NULL ends the rows */
    const char *key;    /* the family's */
    row_kind kind;
    row_need need;
    double fallback;
} row;
#define ROW_END                                                                                    \
    {                                                                                              \
        NULL, NULL, ROW_INT, ROW_OPTIONAL, 0                                                       \
    }

/* What every architecture states. */
static const row common_rows[] = {
    {"embedding_length", "hidden_size", ROW_INT, ROW_REQUIRED, 0},
    {"attention.head_count", "num_attention_heads", ROW_INT, ROW_REQUIRED, 0},
    {"context_length", "max_position_embeddings", ROW_INT, ROW_REQUIRED, 0},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", ROW_REAL, ROW_OPTIONAL, 0},
    {"rope.freq_base", "rope_theta", ROW_REAL, ROW_OR, 10000},
    ROW_END};

static tt_status apply_row(const tti_translation *t, const row *r)
{
    bool found = false, flag = false;
    int64_t whole = 0;
    double real = 0;
    tt_status st = r->kind == ROW_INT    ? tti_gguf_get_int(t, r->suffix, &whole, &found)
                   : r->kind == ROW_REAL ? tti_gguf_get_real(t, r->suffix, &real, &found)
                                         : tti_gguf_get_bool(t, r->suffix, &flag, &found);
    TT_TRY(st);
    if (!found) {
        char name[TTI_GGUF_KEY_BYTES];
        (void)tti_gguf_find_suffix(t, r->suffix, name);
        TT_CHECK(r->need != ROW_REQUIRED, TT_ERR_FILE, "%s: key '%s' is missing",
                 tti_show_path(t->path), name);
        if (r->need == ROW_OPTIONAL) {
            return TT_OK;
        }
        whole = (int64_t)r->fallback;
        real = r->fallback;
        flag = r->fallback != 0;
    }
    return r->kind == ROW_INT    ? tti_gguf_put_int(t, r->key, whole)
           : r->kind == ROW_REAL ? tti_gguf_put_real(t, r->key, real)
                                 : tti_gguf_put_bool(t, r->key, flag);
}

static tt_status apply_rows(const tti_translation *t, const row *rows)
{
    for (; rows && rows->suffix; rows++) {
        TT_TRY(apply_row(t, rows));
    }
    return TT_OK;
}

/* ---- what is not one to one ---- */

/* Keys that would change the computation unseen; each with the value that changes nothing. */
static tt_status refuse_unseen(const tti_translation *t)
{
    static const struct {
        const char *suffix;
        double neutral, other; /* both change nothing */
    } rows[] = {{"attn_logit_softcapping", 0, 0},       {"final_logit_softcapping", 0, 0},
                {"attention.max_alibi_bias", 0, 0},     {"attention.causal", 1, 1},
                {"use_parallel_residual", 0, 0},        {"expert_group_scale", 0, 1},
                {"attention.temperature_scale", 0, 0},  {"pooling_type", 0, 0},
                {"rope.scaling.yarn_ext_factor", 1, 1}, {"attention.shared_kv_layers", 0, 0},
                {"attention.indexer.head_count", 0, 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char name[TTI_GGUF_KEY_BYTES];
        const tti_gguf_key *key = tti_gguf_find_suffix(t, rows[i].suffix, name);
        double value = 0;
        bool flag = false;
        if (!key) {
            continue;
        }
        if (tti_gguf_bool(key, &flag)) {
            value = flag ? 1 : 0;
        } else if (key->is_array || !tti_gguf_real(key, 0, &value)) {
            return tti_gguf_wrong(t, name, "a number or a bool");
        }
        TT_CHECK(value == rows[i].neutral || value == rows[i].other, TT_ERR_UNSUPPORTED,
                 "%s: key '%s' is %g, which is not supported", tti_show_path(t->path), name, value);
    }
    return TT_OK;
}

/* Heads and their widths of grouped-query attention. */
static tt_status put_heads(const tti_translation *t)
{
    bool found;
    int64_t n_q = tti_gguf_int_or(t, "attention.head_count", 0), n_kv = n_q, key_width = 0,
            value_width = 0, rotary = 0;
    TT_TRY(tti_gguf_get_int(t, "attention.head_count_kv", &n_kv, &found));
    TT_TRY(tti_gguf_put_int(t, "num_key_value_heads", n_kv));
    TT_TRY(tti_gguf_get_int(t, "attention.key_length", &key_width, &found));
    if (!found) {
        int64_t H = tti_gguf_int_or(t, "embedding_length", 0);
        TT_CHECK(n_q > 0 && H % n_q == 0, TT_ERR_FILE,
                 "%s: embedding_length %lld is no multiple of attention.head_count %lld, and no "
                 "attention.key_length is given",
                 tti_show_path(t->path), (long long)H, (long long)n_q);
        key_width = H / n_q;
    }
    TT_TRY(tti_gguf_put_int(t, "head_dim", key_width));
    TT_TRY(tti_gguf_get_int(t, "attention.value_length", &value_width, &found));
    TT_CHECK(!found || value_width == key_width, TT_ERR_UNSUPPORTED,
             "%s: attention.value_length %lld differs from attention.key_length %lld",
             tti_show_path(t->path), (long long)value_width, (long long)key_width);
    TT_TRY(tti_gguf_get_int(t, "rope.dimension_count", &rotary, &found));
    rotary = found ? rotary : key_width;
    TT_CHECK(rotary > 0 && rotary <= key_width, TT_ERR_FILE,
             "%s: rope.dimension_count %lld is not within 1 and the %lld of a head",
             tti_show_path(t->path), (long long)rotary, (long long)key_width);
    double part = (double)rotary / (double)key_width;
    while (part < 1 && (int64_t)((double)key_width * part) < rotary) {
        part = nextafter(part, 1); /* so that the family's width * part is rotary again */
    }
    return tti_gguf_put_real(t, "partial_rotary_factor",
                             part); /* stated always: families have fallbacks of their own */
}

/* expert_gating_func, which must be what the architecture computes; absent and 0 leave it open. */
enum { GATING_OPEN = 0, GATING_SOFTMAX = 1, GATING_SIGMOID = 2, GATING_SOFTMAX_CHOSEN = 3 };
static tt_status check_gating(const tti_translation *t, int64_t want)
{
    int64_t gating = tti_gguf_int_or(t, "expert_gating_func", GATING_OPEN);
    TT_CHECK(gating == GATING_OPEN || gating == want, TT_ERR_UNSUPPORTED,
             "%s: key '%s.expert_gating_func' is %lld, which is not supported for this "
             "architecture (%lld is)",
             tti_show_path(t->path), tti_gguf_show(t->architecture).text, (long long)gating,
             (long long)want);
    return TT_OK;
}

/* Layers that predict further tokens are counted as blocks. */
static tt_status put_layers(const tti_translation *t)
{
    bool found;
    int64_t blocks = 0, nextn = tti_gguf_int_or(t, "nextn_predict_layers", 0);
    TT_TRY(tti_gguf_get_int(t, "block_count", &blocks, &found));
    TT_CHECK(found && nextn >= 0 && blocks > nextn, TT_ERR_FILE,
             "%s: key '%s.block_count' is missing or below nextn_predict_layers",
             tti_show_path(t->path), tti_gguf_show(t->architecture).text);
    TT_TRY(tti_gguf_put_int(t, "num_hidden_layers", blocks - nextn));
    return nextn > 0 ? tti_gguf_put_int(t, "num_nextn_predict_layers", nextn) : TT_OK;
}

/* The rows of the embedding count, whatever vocab_size says: tokenizers may know fewer ids. */
static tt_status put_vocabulary(const tti_translation *t)
{
    const tti_entry *entry = tti_table_find(&t->model->checkpoint.table, "token_embd.weight");
    TT_CHECK(entry && entry->n_dims == 2, TT_ERR_FILE,
             "%s: tensor 'token_embd.weight' is missing or not a matrix", tti_show_path(t->path));
    TT_TRY(tti_gguf_put_int(t, "vocab_size", entry->dim[0]));
    return tti_gguf_put_bool(t, "tie_word_embeddings", !tti_gguf_has_tensor(t, "output.weight"));
}

/* The ids that end a text, for files whose tokenizer is not asked. */
static tt_status put_end_ids(const tti_translation *t)
{
    static const char *const names[] = {"tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id"};
    json_t *ids = json_array();
    TT_CHECK(ids, TT_ERR_NOMEM, "%s: no memory for its configuration", tti_show_path(t->path));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const tti_gguf_key *key = tti_gguf_find(t->gguf, names[i]);
        int64_t id = -1;
        if (key && (key->is_array || !tti_gguf_int(key, 0, &id))) {
            json_decref(ids);
            return tti_gguf_wrong(t, names[i], "a whole number");
        }
        /* -1 and 2^32 - 1 are ways to say none. */
        if (key && id >= 0 && id < INT32_MAX && json_array_append_new(ids, json_integer(id)) != 0) {
            json_decref(ids);
            return TT_FAIL(TT_ERR_NOMEM, "%s: no memory for its configuration",
                           tti_show_path(t->path));
        }
    }
    return tti_gguf_put(t, "eos_token_id", ids);
}

/* ---- architectures ---- */

static tt_status finish_llama(tti_translation *t)
{
    t->facts->interleaved = true;
    bool moe = tti_gguf_int_or(t, "expert_count", 0) > 0;
    TT_TRY(tti_gguf_put_text(t, "model_type", moe ? "mixtral" : "llama"));
    if (moe) {
        return check_gating(t, GATING_SOFTMAX);
    }
    TT_TRY(tti_gguf_put_bool(t, "attention_bias", tti_gguf_has_tensor(t, "blk.0.attn_q.bias")));
    return TT_OK;
}

/* Widths and ranks of latent attention. Newer files state the widths of the absorbed form as
 * key_length and value_length, and the heads' own under _mla. */
static tt_status put_latent(tti_translation *t)
{
    bool found;
    int64_t rotary = 0, key_width = 0, value_width = 0, q_rank = 0;
    TT_TRY(tti_gguf_get_int(t, "rope.dimension_count", &rotary, &found));
    TT_TRY(tti_gguf_get_int(t, "attention.key_length_mla", &key_width, &found));
    if (!found) {
        TT_TRY(tti_gguf_get_int(t, "attention.key_length", &key_width, &found));
        TT_TRY(tti_gguf_get_int(t, "attention.value_length", &value_width, &found));
    } else {
        TT_TRY(tti_gguf_get_int(t, "attention.value_length_mla", &value_width, &found));
    }
    TT_CHECK(rotary > 0 && key_width > rotary && found, TT_ERR_FILE,
             "%s: attention.key_length(_mla) %lld, attention.value_length(_mla) %lld and "
             "rope.dimension_count %lld are no widths of latent attention",
             tti_show_path(t->path), (long long)key_width, (long long)value_width,
             (long long)rotary);
    TT_TRY(tti_gguf_put_int(t, "qk_rope_head_dim", rotary));
    TT_TRY(tti_gguf_put_int(t, "qk_nope_head_dim", key_width - rotary));
    TT_TRY(tti_gguf_put_int(t, "v_head_dim", value_width));
    TT_TRY(tti_gguf_get_int(t, "attention.q_lora_rank", &q_rank, &found));
    TT_TRY(
        tti_gguf_put(t, "q_lora_rank", found && q_rank > 0 ? json_integer(q_rank) : json_null()));
    t->facts->mla_split = tti_gguf_has_tensor(t, "blk.0.attn_k_b.weight");
    return TT_OK;
}

/* Files from before the key expert_group_count hold models with groups (V3, R1: 8, of which 4 are
 * kept) and without (Moonlight, Kimi-K2); of V2's kin, the one of 160 experts has 8, of which 3 are
 * kept. llama.cpp reads an absent key as no groups, and tells none from the other. */
static void warn_of_groups(const tti_translation *t, bool v3)
{
    enum { EXPERTS_OF_GROUPED_V2 = 160 };
    char name[TTI_GGUF_KEY_BYTES];
    bool may_have = v3 || tti_gguf_int_or(t, "expert_count", 0) == EXPERTS_OF_GROUPED_V2;
    if (may_have && !tti_gguf_find_suffix(t, "expert_group_count", name)) {
        tt_log(TT_LOG_WARN,
               "%s: key '%s' is missing: experts are chosen among all, although a model of "
               "DeepSeek-%s's kin may have groups",
               tti_show_path(t->path), name, v3 ? "V3" : "V2");
    }
}

static tt_status finish_deepseek2(tti_translation *t)
{
    int64_t gating = tti_gguf_int_or(t, "expert_gating_func", GATING_OPEN),
            groups = tti_gguf_int_or(t, "expert_group_count", 1);
    int64_t dense = tti_gguf_int_or(t, "leading_dense_block_count", 0);
    static const char *const endings[] = {".bias", ".weight", ""}; /* as gguf_names.c finds it */
    bool has_bias = false;
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        char bias[TTI_GGUF_KEY_BYTES];
        snprintf(bias, sizeof(bias), "blk.%lld.exp_probs_b%s", (long long)dense, endings[i]);
        has_bias = has_bias || tti_gguf_has_tensor(t, bias);
    }
    if (gating == GATING_OPEN) { /* files of V2's time do not say */
        gating = has_bias ? GATING_SIGMOID : GATING_SOFTMAX;
    }
    TT_CHECK(gating == GATING_SOFTMAX || gating == GATING_SIGMOID, TT_ERR_UNSUPPORTED,
             "%s: key 'deepseek2.expert_gating_func' is %lld, which is not supported",
             tti_show_path(t->path), (long long)gating);
    bool v3 = gating == GATING_SIGMOID;
    TT_TRY(tti_gguf_put_text(t, "model_type", v3 ? "deepseek_v3" : "deepseek_v2"));
    warn_of_groups(t, v3);
    if (!v3) {
        TT_TRY(tti_gguf_put_text(t, "topk_method", groups > 1 ? "group_limited_greedy" : "greedy"));
    }
    return put_latent(t);
}

static tt_status finish_glm4moe(tti_translation *t)
{
    TT_TRY(check_gating(t, GATING_SIGMOID));
    TT_TRY(tti_gguf_put_bool(t, "attention_bias", tti_gguf_has_tensor(t, "blk.0.attn_q.bias")));
    return tti_gguf_put_bool(t, "use_qk_norm", tti_gguf_has_tensor(t, "blk.0.attn_q_norm.weight"));
}

static int64_t n_layers(const tti_translation *t)
{
    return tti_gguf_int_or(t, "block_count", 0) - tti_gguf_int_or(t, "nextn_predict_layers", 0);
}

/* Puts an array, to which `add` adds what it has for each layer, if anything; it returns not 0 if
 * memory is short. */
static tt_status put_per_layer(const tti_translation *t, const char *key, const void *arg,
                               int (*add)(const tti_translation *t, const void *arg, int64_t layer,
                                          json_t *array))
{
    int64_t n = n_layers(t);
    TT_CHECK(n <= TTI_MAX_LAYERS, TT_ERR_FILE, "%s: %lld layers are more than a model may have",
             tti_show_path(t->path), (long long)n);
    json_t *array = json_array();
    int failed = array == NULL;
    for (int64_t i = 0; i < n && !failed; i++) {
        failed = add(t, arg, i, array);
    }
    if (failed) {
        json_decref(array);
        array = NULL; /* tti_gguf_put() says that memory is short */
    }
    return tti_gguf_put(t, key, array);
}

/* What each layer is: kind[1] every `period` layers, or where `is_first` is 0, else kind[0]. */
typedef struct layer_kinds {
    const char *const *kind;
    int64_t period;
    const unsigned char *is_first; /* is_first[layer] or NULL */
} layer_kinds;

static int add_kind(const tti_translation *t, const void *arg, int64_t layer, json_t *array)
{
    (void)t;
    const layer_kinds *k = arg;
    bool second = k->is_first ? k->is_first[layer] == 0 : (layer + 1) % k->period == 0;
    return json_array_append_new(array, json_string(k->kind[second]));
}

static tt_status finish_gpt_oss(tti_translation *t)
{
    static const char *const kinds[] = {"sliding_attention", "full_attention"};
    TT_TRY(check_gating(t, GATING_SOFTMAX_CHOSEN));
    TT_TRY(tti_gguf_put_bool(t, "attention_bias", true));
    json_t *scaling = json_object_get(t->config, "rope_scaling");
    TT_CHECK(!scaling || json_object_set_new(scaling, "truncate", json_false()) == 0, TT_ERR_NOMEM,
             "%s: no memory for its configuration", tti_show_path(t->path));
    return put_per_layer(t, "layer_types", &(layer_kinds){.kind = kinds, .period = 2}, add_kind);
}

static tt_status finish_granitemoe(tti_translation *t)
{
    t->facts->interleaved = true;
    bool shared = tti_gguf_int_or(t, "expert_shared_feed_forward_length", 0) > 0;
    json_t *names =
        json_pack("[s]", shared ? "GraniteMoeSharedForCausalLM" : "GraniteMoeForCausalLM");
    TT_TRY(tti_gguf_put(t, "architectures", names));
    double width = json_number_value(json_object_get(t->config, "head_dim"));
    if (!json_object_get(t->config, "attention_multiplier") && width > 0) {
        TT_TRY(tti_gguf_put_real(
            t, "attention_multiplier",
            1 / sqrt(width))); /* absent here is the usual one, absent there is 1 */
    }
    return tti_gguf_put_text(t, "model_type", shared ? "granitemoeshared" : "granitemoe");
}

static tt_status finish_phimoe(tti_translation *t)
{
    TT_TRY(check_gating(t, GATING_SOFTMAX));
    TT_TRY(tti_gguf_put_bool(t, "attention_bias",
                             tti_gguf_has_tensor(t, "blk.0.attn_q.bias") ||
                                 tti_gguf_has_tensor(t, "blk.0.attn_qkv.bias")));
    /* Both multipliers of the cosines and sines are equal in the released model, and the file has
     * one. */
    const json_t *factor =
        json_object_get(json_object_get(t->config, "rope_scaling"), "attention_factor");
    if (factor) {
        json_t *scaling = json_object_get(t->config, "rope_scaling");
        double value = json_number_value(factor);
        int failed = json_object_del(scaling, "attention_factor");
        failed |= json_object_set_new(scaling, "short_mscale", json_real(value));
        failed |= json_object_set_new(scaling, "long_mscale", json_real(value));
        TT_CHECK(!failed, TT_ERR_NOMEM, "%s: no memory for its configuration",
                 tti_show_path(t->path));
    }
    return tti_gguf_put_bool(t, "lm_head_bias", tti_gguf_has_tensor(t, "output.bias"));
}

static tt_status finish_sigmoid(tti_translation *t)
{
    return check_gating(t, GATING_SIGMOID);
}

static tt_status finish_softmax(tti_translation *t)
{
    return check_gating(t, GATING_SOFTMAX);
}

/* Layers without a router are dense; no key says which. */
static int add_if_dense(const tti_translation *t, const void *arg, int64_t layer, json_t *array)
{
    (void)arg;
    char name[TTI_GGUF_KEY_BYTES];
    snprintf(name, sizeof(name), "blk.%lld.ffn_gate_inp.weight", (long long)layer);
    return tti_gguf_has_tensor(t, name) ? 0 : json_array_append_new(array, json_integer(layer));
}

static tt_status finish_qwen3moe(tti_translation *t)
{
    TT_TRY(check_gating(t, GATING_SOFTMAX));
    return put_per_layer(t, "mlp_only_layers", NULL, add_if_dense);
}

static tt_status finish_qwen2moe(tti_translation *t)
{
    TT_TRY(finish_qwen3moe(t));
    return tti_gguf_put_bool(t, "qkv_bias",
                             tti_gguf_has_tensor(t, "blk.0.attn_q.bias") ||
                                 tti_gguf_has_tensor(t, "blk.0.attn_qkv.bias"));
}

/* Shared experts of ERNIE are as wide as routed ones, each. */
static tt_status finish_ernie(tti_translation *t)
{
    const tti_entry *up = NULL;
    int64_t F = tti_gguf_int_or(t, "expert_feed_forward_length", 0),
            dense = tti_gguf_int_or(t, "leading_dense_block_count", 0);
    char name[TTI_GGUF_KEY_BYTES];
    snprintf(name, sizeof(name), "blk.%lld.ffn_up_shexp.weight", (long long)dense);
    up = tti_table_find(&t->model->checkpoint.table, name);
    TT_CHECK(!up || (F > 0 && up->dim[0] % F == 0), TT_ERR_FILE,
             "%s: tensor '%s' is no multiple of expert_feed_forward_length %lld wide",
             tti_show_path(t->path), name, (long long)F);
    TT_TRY(tti_gguf_put_int(t, "moe_num_shared_experts", up ? up->dim[0] / F : 0));
    return check_gating(t, GATING_SOFTMAX);
}

/* Three layers attend in chunks with a rotary embedding, each fourth to all without. A window of 0
 * says that all attend to all. */
static tt_status finish_llama4(tti_translation *t)
{
    enum { CHUNK = 8192, PERIOD = 4, EXPERTS_WITHOUT_QK_NORM = 128 };
    bool found;
    int64_t window = CHUNK;
    TT_TRY(check_gating(t, GATING_SIGMOID));
    TT_TRY(tti_gguf_put(t, "architectures",
                        json_pack("[s]", "Llama4ForCausalLM"))); /* the text model alone */
    TT_TRY(tti_gguf_get_int(t, "attention.sliding_window", &window, &found));
    TT_TRY(tti_gguf_put_int(t, "attention_chunk_size",
                            window > 0 ? window : tti_gguf_int_or(t, "context_length", CHUNK)));
    TT_TRY(tti_gguf_put_int(t, "no_rope_layer_interval",
                            window > 0 ? PERIOD : tti_gguf_int_or(t, "block_count", 0) + 1));
    /* No key says it; of the released models that of 128 experts has none. */
    return tti_gguf_put_bool(t, "use_qk_norm",
                             tti_gguf_int_or(t, "expert_count", 0) != EXPERTS_WITHOUT_QK_NORM);
}

static tt_status finish_qwen3next(tti_translation *t)
{
    static const char *const kinds[] = {"linear_attention", "full_attention"};
    int64_t inner = tti_gguf_int_or(t, "ssm.inner_size", 0),
            n_v = tti_gguf_int_or(t, "ssm.time_step_rank", 0);
    char name[TTI_GGUF_KEY_BYTES];
    TT_CHECK(n_v > 0 && inner % n_v == 0, TT_ERR_FILE,
             "%s: ssm.inner_size %lld is no multiple of ssm.time_step_rank %lld",
             tti_show_path(t->path), (long long)inner, (long long)n_v);
    TT_TRY(tti_gguf_put_int(t, "linear_value_head_dim", inner / n_v));
    TT_TRY(check_gating(t, GATING_SOFTMAX));
    const tti_gguf_key *key = tti_gguf_find_suffix(t, "attention.recurrent_layers", name);
    if (!key) {
        int64_t period = tti_gguf_int_or(t, "full_attention_interval", 4);
        TT_CHECK(period > 0, TT_ERR_FILE, "%s: full_attention_interval is %lld",
                 tti_show_path(t->path), (long long)period);
        return put_per_layer(t, "layer_types", &(layer_kinds){.kind = kinds, .period = period},
                             add_kind);
    }
    int64_t n = n_layers(t);
    TT_CHECK(key->is_array && key->type == TTI_GGUF_BOOL && n > 0 && key->n >= (uint64_t)n,
             TT_ERR_FILE, "%s: key '%s' is not an array of a bool for each layer",
             tti_show_path(t->path), name);
    return put_per_layer(t, "layer_types", &(layer_kinds){.kind = kinds, .is_first = key->bytes},
                         add_kind);
}

#define EXPERTS(key)                                                                               \
    {"expert_count", key, ROW_INT, ROW_REQUIRED, 0},                                               \
    {                                                                                              \
        "expert_used_count", "num_experts_per_tok", ROW_INT, ROW_REQUIRED, 0                       \
    }
#define WIDTH(need)                                                                                \
    {                                                                                              \
        "feed_forward_length", "intermediate_size", ROW_INT, need, 0                               \
    }
#define EXPERT_WIDTH                                                                               \
    {                                                                                              \
        "expert_feed_forward_length", "moe_intermediate_size", ROW_INT, ROW_REQUIRED, 0            \
    }
/* Of DeepSeek-V3's kin. */
#define ROUTER(norm)                                                                               \
    {"expert_shared_count", "n_shared_experts", ROW_INT, ROW_OR, 0},                               \
        {"leading_dense_block_count", "first_k_dense_replace", ROW_INT, ROW_OR, 0},                \
        {"expert_weights_scale", "routed_scaling_factor", ROW_REAL, ROW_OR, 1},                    \
        {"expert_weights_norm", "norm_topk_prob", ROW_BOOL, ROW_OR, norm},                         \
        {"expert_group_count", "n_group", ROW_INT, ROW_OR, 1},                                     \
    {                                                                                              \
        "expert_group_used_count", "topk_group", ROW_INT, ROW_OR, 1                                \
    }

static const row llama_rows[] = {
    WIDTH(ROW_REQUIRED),
    {"expert_count", "num_local_experts", ROW_INT, ROW_OPTIONAL, 0},
    {"expert_used_count", "num_experts_per_tok", ROW_INT, ROW_OPTIONAL, 0},
    ROW_END};
static const row dense_rows[] = {WIDTH(ROW_REQUIRED), ROW_END};
static const row olmoe_rows[] = {EXPERTS("num_experts"),
                                 WIDTH(ROW_REQUIRED),
                                 {"attention.clamp_kqv", "clip_qkv", ROW_REAL, ROW_OPTIONAL, 0},
                                 {"expert_weights_norm", "norm_topk_prob", ROW_BOOL, ROW_OR, 0},
                                 ROW_END};
static const row qwen2moe_rows[] = {EXPERTS("num_experts"),
                                    WIDTH(ROW_OPTIONAL),
                                    EXPERT_WIDTH,
                                    {"expert_shared_feed_forward_length",
                                     "shared_expert_intermediate_size", ROW_INT, ROW_REQUIRED, 0},
                                    {"expert_weights_norm", "norm_topk_prob", ROW_BOOL, ROW_OR, 0},
                                    ROW_END};
static const row qwen3moe_rows[] = {EXPERTS("num_experts"),
                                    WIDTH(ROW_OPTIONAL),
                                    EXPERT_WIDTH,
                                    {"expert_weights_norm", "norm_topk_prob", ROW_BOOL, ROW_OR, 1},
                                    ROW_END};
static const row qwen3next_rows[] = {
    EXPERTS("num_experts"),
    WIDTH(ROW_OPTIONAL),
    EXPERT_WIDTH,
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", ROW_INT, ROW_REQUIRED,
     0},
    {"expert_weights_norm", "norm_topk_prob", ROW_BOOL, ROW_OR, 1},
    {"ssm.conv_kernel", "linear_conv_kernel_dim", ROW_INT, ROW_REQUIRED, 0},
    {"ssm.state_size", "linear_key_head_dim", ROW_INT, ROW_REQUIRED, 0},
    {"ssm.group_count", "linear_num_key_heads", ROW_INT, ROW_REQUIRED, 0},
    {"ssm.time_step_rank", "linear_num_value_heads", ROW_INT, ROW_REQUIRED, 0},
    ROW_END};
static const row deepseek2_rows[] = {
    EXPERTS("n_routed_experts"),
    WIDTH(ROW_REQUIRED),
    EXPERT_WIDTH,
    ROUTER(0),
    {"attention.kv_lora_rank", "kv_lora_rank", ROW_INT, ROW_REQUIRED, 0},
    ROW_END};
static const row glm4moe_rows[] = {EXPERTS("n_routed_experts"), WIDTH(ROW_REQUIRED), EXPERT_WIDTH,
                                   ROUTER(1), ROW_END};
static const row dots1_rows[] = {EXPERTS("n_routed_experts"), WIDTH(ROW_REQUIRED), EXPERT_WIDTH,
                                 ROUTER(0), ROW_END};
static const row gpt_oss_rows[] = {
    EXPERTS("num_local_experts"),
    {"expert_feed_forward_length", "intermediate_size", ROW_INT, ROW_REQUIRED, 0},
    {"attention.sliding_window", "sliding_window", ROW_INT, ROW_REQUIRED, 0},
    ROW_END};
static const row granitemoe_rows[] = {
    EXPERTS("num_local_experts"),
    WIDTH(ROW_REQUIRED),
    {"expert_shared_feed_forward_length", "shared_intermediate_size", ROW_INT, ROW_OPTIONAL, 0},
    {"attention.scale", "attention_multiplier", ROW_REAL, ROW_OPTIONAL, 0},
    {"embedding_scale", "embedding_multiplier", ROW_REAL, ROW_OPTIONAL, 0},
    {"residual_scale", "residual_multiplier", ROW_REAL, ROW_OPTIONAL, 0},
    {"logit_scale", "logits_scaling", ROW_REAL, ROW_OPTIONAL, 0},
    ROW_END};
static const row phimoe_rows[] = {EXPERTS("num_local_experts"), WIDTH(ROW_REQUIRED), ROW_END};
static const row minimax_rows[] = {
    EXPERTS("num_local_experts"),
    {"expert_feed_forward_length", "intermediate_size", ROW_INT, ROW_REQUIRED, 0},
    ROW_END};
static const row ernie_rows[] = {
    {"expert_count", "moe_num_experts", ROW_INT, ROW_REQUIRED, 0},
    {"expert_used_count", "moe_k", ROW_INT, ROW_REQUIRED, 0},
    WIDTH(ROW_REQUIRED),
    EXPERT_WIDTH,
    {"leading_dense_block_count", "moe_layer_start_index", ROW_INT, ROW_OR, 0},
    {"interleave_moe_layer_step", "moe_layer_interval", ROW_INT, ROW_OR, 1},
    ROW_END};
static const row llama4_rows[] = {
    EXPERTS("num_local_experts"),
    {"expert_feed_forward_length", "intermediate_size", ROW_INT, ROW_REQUIRED, 0},
    {"feed_forward_length", "intermediate_size_mlp", ROW_INT, ROW_REQUIRED, 0},
    {"interleave_moe_layer_step", "interleave_moe_layer_step", ROW_INT, ROW_REQUIRED, 0},
    ROW_END};
static const row hunyuan_rows[] = {{"expert_count", "num_experts", ROW_INT, ROW_REQUIRED, 0},
                                   {"expert_used_count", "moe_topk", ROW_INT, ROW_REQUIRED, 0},
                                   WIDTH(ROW_REQUIRED),
                                   EXPERT_WIDTH,
                                   {"expert_shared_count", "num_shared_expert", ROW_INT, ROW_OR, 1},
                                   ROW_END};

/* One of GGUF's architectures. */
typedef struct gguf_arch {
    const char *name;       /* general.architecture */
    const char *model_type; /* of the family; NULL: finish() says */
    const row *rows;
    tt_status (*finish)(tti_translation *t); /* NULL: nothing more */
    bool latent;                             /* attention has no heads of keys of its own */
} gguf_arch;
static const gguf_arch archs[] = {
    {"llama", NULL, llama_rows, finish_llama, false},
    {"olmoe", "olmoe", olmoe_rows, finish_softmax, false},
    {"qwen2moe", "qwen2_moe", qwen2moe_rows, finish_qwen2moe, false},
    {"qwen3", "qwen3", dense_rows, NULL, false},
    {"qwen3moe", "qwen3_moe", qwen3moe_rows, finish_qwen3moe, false},
    {"qwen3next", "qwen3_next", qwen3next_rows, finish_qwen3next, false},
    {"deepseek2", NULL, deepseek2_rows, finish_deepseek2, true},
    {"glm4moe", "glm4_moe", glm4moe_rows, finish_glm4moe, false},
    {"gpt-oss", "gpt_oss", gpt_oss_rows, finish_gpt_oss, false},
    {"granitemoe", NULL, granitemoe_rows, finish_granitemoe, false},
    {"phimoe", "phimoe", phimoe_rows, finish_phimoe, false},
    {"minimax-m2", "minimax_m2", minimax_rows, finish_sigmoid, false},
    {"ernie4_5-moe", "ernie4_5_moe", ernie_rows, finish_ernie, false},
    {"dots1", "dots1", dots1_rows, finish_sigmoid, false},
    {"llama4", "llama4_text", llama4_rows, finish_llama4, false},
    {"hunyuan-moe", "hunyuan_v1_moe", hunyuan_rows, finish_softmax, false}};
enum { N_ARCHS = sizeof(archs) / sizeof(archs[0]), KNOWN_BYTES = 320 };

static tt_status find_arch(const tti_translation *t, const gguf_arch **arch_out)
{
    char known[KNOWN_BYTES];
    size_t used = 0;
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (strlen(archs[i].name) == t->architecture.n &&
            memcmp(archs[i].name, t->architecture.bytes, t->architecture.n) == 0) {
            *arch_out = &archs[i];
            return TT_OK;
        }
        if (used < sizeof(known)) {
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
                                     archs[i].name);
        }
    }
    return TT_FAIL(TT_ERR_UNSUPPORTED,
                   "%s: general.architecture '%s' is not supported; supported are %s",
                   tti_show_path(t->path), tti_gguf_show(t->architecture).text, known);
}

static tt_status translate(tti_translation *t)
{
    const gguf_arch *arch = NULL;
    const tti_gguf_key *key = tti_gguf_find(t->gguf, "general.architecture");
    TT_CHECK(key, TT_ERR_FILE, "%s: key 'general.architecture' is missing", tti_show_path(t->path));
    TT_CHECK(tti_gguf_text(key, &t->architecture), TT_ERR_FILE,
             "%s: key 'general.architecture' is not a string", tti_show_path(t->path));
    TT_TRY(find_arch(t, &arch));
    TT_TRY(check_types(t));
    TT_TRY(refuse_unseen(t));
    if (arch->model_type) {
        TT_TRY(tti_gguf_put_text(t, "model_type", arch->model_type));
    }
    TT_TRY(apply_rows(t, common_rows));
    TT_TRY(apply_rows(t, arch->rows));
    TT_TRY(put_layers(t));
    TT_TRY(put_vocabulary(t));
    TT_TRY(put_end_ids(t));
    TT_TRY(tti_gguf_put_rope(t));
    if (!arch->latent) {
        TT_TRY(put_heads(t));
    }
    return arch->finish ? arch->finish(t) : TT_OK;
}

tt_status tti_gguf_config(const tti_gguf_model *model, json_t **config_out,
                          tti_gguf_facts *facts_out)
{
    *facts_out = (tti_gguf_facts){0};
    tti_translation t = {.model = model,
                         .gguf = &model->header.gguf,
                         .path = model->header.gguf.path,
                         .config = json_object(),
                         .facts = facts_out};
    TT_CHECK(t.config, TT_ERR_NOMEM, "%s: no memory for its configuration", tti_show_path(t.path));
    tt_status st = translate(&t);
    if (st != TT_OK) {
        json_decref(t.config);
        return st;
    }
    *config_out = t.config;
    return TT_OK;
}
