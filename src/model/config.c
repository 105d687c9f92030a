/* config.c - config.json and generation_config.json: what all families have in common, and what is
 * refused because it would change the computation unseen. The keys of a family are its own
 * (arch_*.c). */
#include "model_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char CONFIG_NAME[] = "config.json";
static const char GENERATION_NAME[] = "generation_config.json";
enum { MAX_END_IDS = 4096 };

/* What would change the computation unseen: keys of other architectures, forks and training
 * scripts, each with the one value that is computed. A family that reads a key is asked instead. */
const tti_only tti_common_only[] = {
    {"hidden_act", "\"silu\""},
    {"hidden_activation", "\"silu\""},
    {"mlp_bias", "false"},
    {"attention_bias", "false"},
    {"qkv_bias", "false"},
    {"use_bias", "false"},
    {"lm_head_bias", "false"},
    {"clip_qkv", "0"},
    {"attn_logit_softcapping", "0"},
    {"final_logit_softcapping", "0"},
    {"query_pre_attn_scalar", "0"},
    {"embedding_multiplier", "1"},
    {"residual_multiplier", "1"},
    {"logits_scaling", "1"},
    {"attention_multiplier", "0"},
    {"logit_scale", "1"},
    {"embedding_scale", "1"},
    {"scale_emb", "1"},
    {"scale_depth", "0"},
    {"routed_scaling_factor", "1"},
    {"n_group", "1"},
    {"n_groups", "1"},
    {"topk_group", "1"},
    {"n_shared_experts", "0"},
    {"num_shared_expert", "0"},
    {"num_shared_experts", "0"},
    {"moe_num_shared_experts", "0"},
    {"shared_intermediate_size", "0"},
    {"shared_expert_intermediate_size", "0"},
    {"first_k_dense_replace", "0"},
    {"moe_layer_freq", "1"},
    {"moe_layer_num_skipped", "0"},
    {"interleave_moe_layer_step", "1"},
    {"decoder_sparse_step", "1"},
    {"mlp_only_layers", "[]"},
    {"zero_expert_num", "0"},
    {"swiglu_limit", "0"},
    {"attention_chunk_size", "0"},
    {"no_rope_layers", "[]"},
    {"no_rope_layer_interval", "0"},
    {"nope_layer_interval", "0"},
    {"rotary_dim", "0"},
    {"rotary_pct", "1"},
    {"rope_interleave", "false"},
    {"rotary_interleaved", "false"},
    {"position_embedding_type", "\"rope\""},
    {"alibi", "false"},
    {"use_qk_norm", "false"},
    {"qk_layernorm", "false"},
    {"use_mla", "false"},
    {"use_cla", "false"},
    {"index_topk", "0"},
    {"full_attention_interval", "1"},
    {"use_parallel_residual", "false"},
    {"parallel_attn", "false"},
    {"mlp_hidden_act", "\"silu\""},
    {"use_post_norm", "false"},
    {"compression_ratio", "1"},
    {"moe_drop_tokens", "false"},
    {"scoring_func", "\"softmax\""},
    {"num_experts", "0"},
    {"num_local_experts", "0"},
    {"n_routed_experts", "0"},
    {"moe_num_experts", "0"},
    {NULL, NULL},
};

static bool reads_key(const tti_family *family, const char *key)
{
    for (const tti_key *row = family->keys; row->type != TTI_KEY_END; row++) {
        for (int i = 0; i < TTI_KEY_SPELLINGS && row->name[i]; i++) {
            if (strcmp(row->name[i], key) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Numbers are equal by value, and false is a number's way to say none. */
static bool is_value(const json_t *value, const json_t *only)
{
    if (json_is_number(only)) {
        double number = json_is_number(value)  ? json_number_value(value)
                        : json_is_false(value) ? 0
                                               : NAN;
        return number == json_number_value(only) ||
               (json_is_false(value) && json_number_value(only) == 1);
    }
    return json_equal(value, only);
}

static tt_status check_only(const char *what, const json_t *config, const tti_only *row)
{
    const json_t *value = json_object_get(config, row->key);
    if (!row->value || !value || json_is_null(value)) {
        return TT_OK;
    }
    json_t *only = json_loads(row->value, JSON_DECODE_ANY, NULL);
    TT_CHECK(only, TT_ERR_NOMEM, "%s: no memory to check its keys", tti_show_path(what));
    bool fits = is_value(value, only), same_type = json_typeof(value) == json_typeof(only) ||
                                                   json_is_number(only) || json_is_boolean(only);
    json_decref(only);
    if (fits) {
        return TT_OK;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    tt_status st =
        same_type
            ? TT_FAIL(TT_ERR_UNSUPPORTED,
                      "%s: %s %s is not supported for this architecture (%s is)",
                      tti_show_path(what), row->key, text ? tti_show(text).text : "", row->value)
            : TT_FAIL(TT_ERR_FILE, "%s: '%s' is of the wrong type", tti_show_path(what), row->key);
    free(text);
    return st;
}

/* The family's own word on a key wins over the common one. */
static tt_status check_unread(const char *what, const json_t *config, const tti_family *family)
{
    for (const tti_only *row = family->only; row && row->key; row++) {
        TT_TRY(check_only(what, config, row));
    }
    for (const tti_only *row = tti_common_only; row->key; row++) {
        bool own = reads_key(family, row->key);
        for (const tti_only *other = family->only; other && other->key; other++) {
            own |= strcmp(other->key, row->key) == 0;
        }
        if (!own) {
            TT_TRY(check_only(what, config, row));
        }
    }
    return TT_OK;
}

/* Keys that say what the family settles by itself or by another key: they must say the same. */
static tt_status check_restated(const char *what, const json_t *config, const tti_family *family,
                                const tt_arch *arch)
{
    static const char *const eps_keys[] = {"norm_eps", "layer_norm_epsilon", "layer_norm_eps"};
    const struct {
        const char *key;
        bool value;
    } flags[] = {{"qk_norm", arch->qk_norm != TT_QK_NORM_NONE},
                 {"attn_output_gate", arch->attention_gate}};
    for (size_t i = 0; i < sizeof(eps_keys) / sizeof(eps_keys[0]); i++) {
        const json_t *value = json_object_get(config, eps_keys[i]);
        bool unread = value && !json_is_null(value) && !reads_key(family, eps_keys[i]);
        TT_CHECK(!unread || json_is_number(value), TT_ERR_FILE, "%s: '%s' is of the wrong type",
                 tti_show_path(what), eps_keys[i]);
        TT_CHECK(
            !unread || (float)json_number_value(value) == arch->norm_eps, TT_ERR_UNSUPPORTED,
            "%s: %s %g is not supported for this architecture, whose norms use rms_norm_eps (%g)",
            tti_show_path(what), eps_keys[i], json_number_value(value), (double)arch->norm_eps);
    }
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        tti_only row = {flags[i].key, flags[i].value ? "true" : "false"};
        if (!reads_key(family, row.key)) {
            TT_TRY(check_only(what, config, &row));
        }
    }
    return TT_OK;
}

/* A window that the family does not know must not be there, unless it is too wide to matter. */
static tt_status check_unread_window(const char *what, const json_t *config, const tti_hyper *hyper)
{
    const json_t *window = json_object_get(config, "sliding_window");
    bool used = !json_is_false(json_object_get(config, "use_sliding_window"));
    TT_CHECK(!used || !json_is_number(window) || json_number_value(window) == 0 ||
                 json_number_value(window) >= (double)hyper->arch.context,
             TT_ERR_UNSUPPORTED, "%s: sliding_window %g is not supported for this architecture",
             tti_show_path(what), json_number_value(window));
    return TT_OK;
}

/* layer_types: a name for each layer that the family computes. */
static tt_status read_layer_types(const char *what, const json_t *config, const tti_family *family,
                                  tti_hyper *hyper)
{
    static const char *const full_only[] = {"full_attention", NULL};
    const char *const *known = family->layer_types ? family->layer_types : full_only;
    const json_t *types = json_object_get(config, "layer_types");
    if (!types || json_is_null(types)) {
        return TT_OK;
    }
    TT_CHECK(json_is_array(types) && json_array_size(types) >= (size_t)hyper->arch.L, TT_ERR_FILE,
             "%s: 'layer_types' is not a list of %lld names", tti_show_path(what),
             (long long)hyper->arch.L);
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool is_known = false;
        for (const char *const *name = known; type && *name; name++) {
            is_known |= strcmp(*name, type) == 0;
        }
        TT_CHECK(is_known, TT_ERR_UNSUPPORTED, "%s: layer %zu of type '%s' is not supported",
                 tti_show_path(what), i, type ? tti_show(type).text : "");
    }
    hyper->layer_types = types;
    return TT_OK;
}

/* The object that holds the family's keys. */
static tt_status find_keys(const char *what, const json_t *root, const tti_family *family,
                           const json_t **config_out)
{
    const json_t *nested = family->nested ? json_object_get(root, family->nested) : NULL;
    TT_CHECK(!nested || json_is_object(nested), TT_ERR_FILE, "%s: '%s' is not an object",
             tti_show_path(what), family->nested);
    *config_out = nested ? nested : root;
    return TT_OK;
}

/* Everything between the JSON text and tt_arch, of a family. */
static tt_status read_keys(const char *what, const tti_family *family, tti_hyper *hyper)
{
    const json_t *config = hyper->config;
    TT_TRY(tti_json_fill(what, config, family->keys, hyper));
    TT_TRY(check_unread(what, config, family));
    TT_TRY(read_layer_types(what, config, family, hyper));
    TT_TRY(tti_rope_parse(what, config, family->rope_theta, &hyper->rope));
    if (isnan(hyper->rope.partial_rotary_factor)) {
        hyper->rope.partial_rotary_factor = family->partial_rotary > 0 ? family->partial_rotary : 1;
    }
    TT_CHECK(family->partial_rotary > 0 || hyper->rope.partial_rotary_factor == 1,
             TT_ERR_UNSUPPORTED, "%s: partial_rotary_factor is not supported for this architecture",
             tti_show_path(what));
    TT_TRY(family->finish(hyper));
    if (!reads_key(family, "sliding_window")) {
        TT_TRY(check_unread_window(what, config, hyper));
    }
    return check_restated(what, config, family, &hyper->arch);
}

tt_status tti_config_read(const char *dir, const char *what, const tti_family **family_out,
                          tti_hyper *hyper_out)
{
    json_t *root;
    TT_TRY(tti_json_load(dir, CONFIG_NAME, TTI_CONFIG_BYTES, &root));
    return tti_config_take(what, root, family_out, hyper_out);
}

tt_status tti_config_take(const char *what, json_t *root, const tti_family **family_out,
                          tti_hyper *hyper_out)
{
    const tti_family *family;
    tti_hyper hyper = {.what = what,
                       .root = root,
                       .arch = {.embedding_scale = 1, .residual_scale = 1, .logit_divisor = 1}};
    tt_status st = tti_family_find(what, hyper.root, &family, &hyper.arch.name);
    if (st == TT_OK) {
        st = find_keys(what, hyper.root, family, &hyper.config);
    }
    if (st == TT_OK) {
        st = tti_quantization_read(what, hyper.root, &hyper.quantization);
    }
    if (st == TT_OK && hyper.quantization.method == TTI_QUANT_NONE) {
        st = tti_quantization_read(what, hyper.config, &hyper.quantization);
    }
    if (st == TT_OK) {
        st = read_keys(what, family, &hyper);
    }
    if (st != TT_OK) {
        free(hyper.arch.rope.inv_freq);
        free(hyper.arch.rope.long_inv_freq);
        json_decref(hyper.root);
        return st;
    }
    *family_out = family;
    *hyper_out = hyper;
    return TT_OK;
}

/* Adds one id unless it is there already; ids[MAX_END_IDS]. */
static tt_status add_id(const char *what, const json_t *value, int32_t *ids, size_t *n)
{
    json_int_t id = json_integer_value(value);
    TT_CHECK(json_is_integer(value) && id >= 0 && id <= INT32_MAX, TT_ERR_FILE,
             "%s: 'eos_token_id' is not a token id or a list of them", tti_show_path(what));
    for (size_t i = 0; i < *n; i++) {
        if (ids[i] == (int32_t)id) {
            return TT_OK;
        }
    }
    TT_CHECK(*n < MAX_END_IDS, TT_ERR_FILE, "%s: 'eos_token_id' names more than %d ids",
             tti_show_path(what), MAX_END_IDS);
    ids[(*n)++] = (int32_t)id;
    return TT_OK;
}

static tt_status add_ids(const char *what, const json_t *object, int32_t *ids, size_t *n)
{
    const json_t *value = json_object_get(object, "eos_token_id");
    if (!value || json_is_null(value)) {
        return TT_OK;
    }
    if (!json_is_array(value)) {
        return add_id(what, value, ids, n);
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        TT_TRY(add_id(what, json_array_get(value, i), ids, n));
    }
    return TT_OK;
}

typedef struct generation_keys {
    bool do_sample;
    double temperature, top_p, min_p;
    int64_t top_k;
} generation_keys;

static tt_status read_generation(const char *what, const json_t *object, tt_generation *generation)
{
#define GENERATION_OFFSET(field) offsetof(generation_keys, field)
#define GENERATION_REAL(key, most)                                                                 \
    {                                                                                              \
        .type = TTI_KEY_REAL, .name = {#key}, .offset = GENERATION_OFFSET(key), .fallback = NAN,   \
        .min = 0, .max = (most)                                                                    \
    }
    static const tti_key keys[] = {
        {.type = TTI_KEY_BOOL, .name = {"do_sample"}, .offset = GENERATION_OFFSET(do_sample)},
        GENERATION_REAL(temperature, 1e6),
        GENERATION_REAL(top_p, 1),
        GENERATION_REAL(min_p, 1),
        {.type = TTI_KEY_INT,
         .name = {"top_k"},
         .offset = GENERATION_OFFSET(top_k),
         .fallback = -1,
         .min = -1,
         .max = INT32_MAX},
        TTI_KEYS_END};
    generation_keys values = {0};
    TT_TRY(tti_json_fill(what, object, keys, &values));
    *generation = (tt_generation){
        .do_sample = json_is_boolean(json_object_get(object, "do_sample")) ? values.do_sample : -1,
        .temperature = values.temperature,
        .top_p = values.top_p,
        .min_p = values.min_p,
        .top_k = values.top_k};
    return TT_OK;
}

tt_status tti_config_read_generation(const char *dir, const tti_hyper *hyper,
                                     tt_generation *generation_out, int32_t **ids_out,
                                     size_t *n_ids_out)
{
    tt_status st = TT_OK;
    size_t n = 0;
    json_t *object = NULL;
    tt_generation generation = {
        .do_sample = -1, .temperature = NAN, .top_p = NAN, .min_p = NAN, .top_k = -1};
    int32_t *ids = malloc(MAX_END_IDS * sizeof(*ids));
    TT_CHECK(ids, TT_ERR_NOMEM, "no memory for the end ids of %s", tti_show_path(dir));
    if (tti_file_exists(dir, GENERATION_NAME)) {
        st = tti_json_load(dir, GENERATION_NAME, TTI_CONFIG_BYTES, &object);
        if (st == TT_OK) {
            st = read_generation(GENERATION_NAME, object, &generation);
        }
        if (st == TT_OK) {
            st = add_ids(GENERATION_NAME, object, ids, &n);
        }
        json_decref(object);
    }
    if (st == TT_OK) {
        st = add_ids(hyper->what, hyper->root, ids, &n);
    }
    if (st == TT_OK && hyper->config != hyper->root) {
        st = add_ids(hyper->what, hyper->config, ids, &n);
    }
    if (st != TT_OK) {
        free(ids);
        return st;
    }
    *generation_out = generation;
    *ids_out = ids;
    *n_ids_out = n;
    return TT_OK;
}
