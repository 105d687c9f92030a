/* quantization.c - quantization_config: what a checkpoint says of its own storage.
 *
 * How a matrix is stored is decided tensor by tensor, from what lies in the files (source_make.c).
 * What is said here settles what tensors cannot tell (the size of a block, the zero points'
 * convention), and must not contradict them. So lists of modules that are or are not converted are
 * not read.
 * Sources: the configurations of transformers, compressed-tensors, AutoGPTQ, AutoAWQ and
 * AutoRound. */
#include "model_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "tutti/log.h"

/* One group of keys, as stated. */
typedef struct stated {
    int64_t bits, group_size;
    bool symmetric, desc_act, static_groups, zero_point, is_marlin;
    const char *type, *strategy, *format, *version, *fmt;
} stated;

#define STATED(field) offsetof(stated, field)
#define INT(key, field, low, high, value)                                                          \
    {                                                                                              \
        .type = TTI_KEY_INT, .name = {key}, .offset = STATED(field), .fallback = (value),          \
        .min = (low), .max = (high)                                                                \
    }
#define BITS(...)                                                                                  \
    {                                                                                              \
        .type = TTI_KEY_INT, .flags = TTI_KEY_REQUIRED, .name = {__VA_ARGS__},                     \
        .offset = STATED(bits), .min = 1, .max = 16                                                \
    }
#define GROUP(...)                                                                                 \
    {                                                                                              \
        .type = TTI_KEY_INT, .name = {__VA_ARGS__}, .offset = STATED(group_size), .fallback = 128, \
        .min = -1, .max = TTI_MAX_WIDTH                                                            \
    }
#define FLAG(key, field, value)                                                                    \
    {                                                                                              \
        .type = TTI_KEY_BOOL, .name = {key}, .offset = STATED(field), .fallback = (value)          \
    }
#define TEXT(key, field, value)                                                                    \
    {                                                                                              \
        .type = TTI_KEY_STRING, .name = {key}, .offset = STATED(field), .text = (value)            \
    }

static bool is_one_of(const char *text, const char *const *list)
{
    while (*list && strcmp(*list, text) != 0) {
        list++;
    }
    return *list != NULL;
}

static tt_status check_group(const char *what, int64_t group_size)
{
    TT_CHECK(group_size != 0, TT_ERR_FILE,
             "%s: quantization_config: 'group_size' is 0 (-1 stands for all inputs)",
             tti_show_path(what));
    return TT_OK;
}

static void add_groups(tti_quantization *q, const stated *s, bool symmetric)
{
    q->rule[q->n_rules++] =
        (tti_quant_rule){.bits = (int)s->bits,
                         .symmetric = symmetric,
                         .strategy = s->group_size < 0 ? TTI_QUANT_CHANNEL : TTI_QUANT_GROUP,
                         .group = s->group_size};
}

/* A block of a weight that shares a scale: [outputs, inputs], both positive. */
static tt_status read_block(const char *what, const char *key, const json_t *value,
                            tti_quant_rule *rule)
{
    int64_t size[2] = {0, 0};
    for (size_t i = 0; i < 2 && json_array_size(value) == 2; i++) {
        size[i] = json_integer_value(json_array_get(value, i));
    }
    if (json_is_string(value)) {
        int used = 0;
        int n = sscanf(json_string_value(value), "%" SCNd64 "x%" SCNd64 "%n", &size[0], &size[1],
                       &used);
        size[0] = n == 2 && json_string_value(value)[used] == 0 ? size[0] : 0;
    }
    TT_CHECK(size[0] >= 1 && size[1] >= 1 && size[0] <= TTI_MAX_WIDTH && size[1] <= TTI_MAX_WIDTH,
             TT_ERR_FILE, "%s: quantization_config: '%s' is not a pair of sizes from 1 to %d",
             tti_show_path(what), key, TTI_MAX_WIDTH);
    rule->strategy = TTI_QUANT_BLOCK;
    rule->block = size[0];
    rule->group = size[1];
    return TT_OK;
}

/* A key that restates what another one settles, or the only form that is read. */
static tt_status check_says(const char *what, const json_t *object, const char *key,
                            const char *want)
{
    const json_t *value = json_object_get(object, key);
    TT_CHECK(!value || json_is_null(value) ||
                 (json_is_string(value) && strcmp(json_string_value(value), want) == 0),
             TT_ERR_UNSUPPORTED, "%s: quantization_config: '%s' is not '%s'", tti_show_path(what),
             key, want);
    return TT_OK;
}

static tt_status read_fp8(const char *what, const json_t *object, tti_quantization *q)
{
    static const tti_key keys[] = {TEXT("fmt", fmt, "e4m3"), TTI_KEYS_END};
    stated s;
    TT_TRY(tti_json_fill(what, object, keys, &s));
    TT_CHECK(strcmp(s.fmt, "e4m3") == 0 || strcmp(s.fmt, "float8_e4m3fn") == 0, TT_ERR_UNSUPPORTED,
             "%s: quantization_config: fmt '%s' is not supported (e4m3 is)", tti_show_path(what),
             tti_show(s.fmt).text);
    TT_TRY(check_says(what, object, "expert_dtype", "fp8"));
    tti_quant_rule *rule = &q->rule[q->n_rules++];
    *rule =
        (tti_quant_rule){.bits = 8, .is_float = true, .symmetric = true, .strategy = TTI_QUANT_ANY};
    const json_t *block = json_object_get(object, "weight_block_size");
    return block && !json_is_null(block) ? read_block(what, "weight_block_size", block, rule)
                                         : TT_OK;
}

static tt_status read_gptq(const char *what, const json_t *object, tti_quantization *q)
{
    static const tti_key keys[] = {
        BITS("bits"),
        GROUP("group_size", "groupsize"),
        {.type = TTI_KEY_BOOL, .name = {"desc_act", "actorder"}, .offset = STATED(desc_act)},
        FLAG("static_groups", static_groups, 0),
        FLAG("sym", symmetric, 1),
        FLAG("is_marlin_format", is_marlin, 0),
        TEXT("checkpoint_format", format, "gptq"),
        TTI_KEYS_END};
    stated s;
    TT_TRY(tti_json_fill(what, object, keys, &s));
    TT_TRY(check_group(what, s.group_size));
    bool v2 = strcmp(s.format, "gptq_v2") == 0;
    TT_CHECK(
        (v2 || strcmp(s.format, "gptq") == 0) && !s.is_marlin, TT_ERR_UNSUPPORTED,
        "%s: quantization_config: checkpoint_format '%s' is not supported (gptq and gptq_v2 are)",
        tti_show_path(what), s.is_marlin ? "marlin" : tti_show(s.format).text);
    TT_TRY(check_says(what, object, "format", s.format));
    TT_TRY(check_says(what, object, "data_type", "int"));
    TT_TRY(check_says(what, object, "method", "gptq"));
    q->zeros_less_one = !v2;
    q->act_order = s.desc_act && !s.static_groups;
    q->varies = json_object_size(json_object_get(object, "dynamic")) > 0;
    add_groups(q, &s, s.symmetric);
    return TT_OK;
}

static tt_status read_awq(const char *what, const json_t *object, tti_quantization *q)
{
    static const tti_key keys[] = {BITS("bits", "w_bit"),
                                   GROUP("group_size", "q_group_size"),
                                   FLAG("zero_point", zero_point, 1),
                                   {.type = TTI_KEY_STRING,
                                    .name = {"version", "format"},
                                    .offset = STATED(version),
                                    .text = "gemm"}, /* format: transformers from 5 on, beside it */
                                   TTI_KEYS_END};
    stated s;
    TT_TRY(tti_json_fill(what, object, keys, &s));
    TT_TRY(check_group(what, s.group_size));
    TT_CHECK(strcmp(s.version, "gemm") == 0 || strcmp(s.version, "GEMM") == 0, TT_ERR_UNSUPPORTED,
             "%s: quantization_config: awq version '%s' is not supported (gemm is)",
             tti_show_path(what), tti_show(s.version).text);
    TT_TRY(check_says(what, object, "data_type", "int"));
    TT_TRY(check_says(what, object, "method", "awq"));
    TT_CHECK(s.bits == 4, TT_ERR_UNSUPPORTED,
             "%s: quantization_config: awq with %d bits is not supported (4 are)",
             tti_show_path(what), (int)s.bits);
    add_groups(q, &s, !s.zero_point);
    return TT_OK;
}

/* True if a module of auto-round's extra_config has codes of its own; 16 bits or more are none,
 * which shows in the tensors. */
static bool has_own_codes(const json_t *extra, const json_t *object)
{
    static const char *const keys[] = {"bits", "group_size", "sym"};
    const char *name;
    json_t *module;
    json_object_foreach((json_t *)extra, name, module)
    {
        const json_t *bits = json_object_get(module, "bits");
        bool plain = json_is_integer(bits) && json_integer_value(bits) >= 16;
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && !plain; i++) {
            const json_t *value = json_object_get(module, keys[i]);
            if (value && !json_is_null(value) &&
                !json_equal(value, json_object_get(object, keys[i]))) {
                return true;
            }
        }
    }
    return false;
}

/* AutoRound packs as AutoGPTQ or AutoAWQ do, and says which. Without a word it was GPTQ; how its
 * zero points are stored is then known (checked, matrix by matrix) of symmetric ones only. */
static tt_status read_auto_round(const char *what, const json_t *object, tti_quantization *q)
{
    static const tti_key keys[] = {TEXT("packing_format", format, NULL), FLAG("sym", symmetric, 1),
                                   TTI_KEYS_END};
    stated s;
    TT_TRY(tti_json_fill(what, object, keys, &s));
    TT_CHECK(s.format || s.symmetric, TT_ERR_UNSUPPORTED,
             "%s: quantization_config: auto-round without 'packing_format' is supported if it is "
             "symmetric",
             tti_show_path(what));
    const char *format = s.format ? s.format : "auto_gptq";
    format +=
        strncmp(format, "auto_round:", strlen("auto_round:")) == 0 ? strlen("auto_round:") : 0;
    bool awq = strcmp(format, "auto_awq") == 0,
         own = has_own_codes(json_object_get(object, "extra_config"), object);
    TT_CHECK(awq || strcmp(format, "auto_gptq") == 0, TT_ERR_UNSUPPORTED,
             "%s: quantization_config: packing_format '%s' is not supported (auto_round:auto_gptq "
             "and auto_round:auto_awq are)",
             tti_show_path(what), tti_show(s.format).text);
    TT_CHECK(!awq || !own, TT_ERR_UNSUPPORTED,
             "%s: quantization_config: 'extra_config' with other codes is not supported with "
             "packing_format '%s'",
             tti_show_path(what), tti_show(s.format).text);
    if (!awq) {
        q->method = TTI_QUANT_GPTQ;
        TT_TRY(read_gptq(what, object, q));
        q->varies = own;
        return TT_OK;
    }
    q->method = TTI_QUANT_AWQ;
    json_t *copy = json_copy((json_t *)object);
    TT_CHECK(copy && json_object_set_new(copy, "zero_point", json_boolean(!s.symmetric)) == 0,
             TT_ERR_NOMEM, "%s: no memory for its quantization_config", tti_show_path(what));
    tt_status st = read_awq(what, copy, q);
    json_decref(copy);
    return st;
}

static tt_status read_mxfp4(const char *what, const json_t *object, tti_quantization *q)
{
    (void)what;
    (void)object;
    q->rule[q->n_rules++] = (tti_quant_rule){
        .bits = 4, .is_float = true, .symmetric = true, .strategy = TTI_QUANT_GROUP, .group = 32};
    return TT_OK;
}

/* The "weights" of one of compressed-tensors' groups. */
static tt_status read_weights(const char *what, const json_t *weights, tti_quantization *q)
{
    static const tti_key keys[] = {
        INT("num_bits", bits, 1, 16, 8),  INT("group_size", group_size, -1, TTI_MAX_WIDTH, -1),
        FLAG("symmetric", symmetric, 1),  TEXT("type", type, "int"),
        TEXT("strategy", strategy, NULL), TTI_KEYS_END};
    static const char *const names[] = {[TTI_QUANT_TENSOR] = "tensor",
                                        [TTI_QUANT_CHANNEL] = "channel",
                                        [TTI_QUANT_GROUP] = "group",
                                        [TTI_QUANT_BLOCK] = "block"};
    stated s;
    TT_TRY(tti_json_fill(what, weights, keys, &s));
    TT_TRY(check_group(what, s.group_size));
    TT_CHECK(q->n_rules < TTI_QUANT_RULES, TT_ERR_UNSUPPORTED,
             "%s: quantization_config: more than %d config_groups", tti_show_path(what),
             TTI_QUANT_RULES);
    tti_quant_rule *rule = &q->rule[q->n_rules];
    *rule = (tti_quant_rule){.bits = (int)s.bits,
                             .is_float = strcmp(s.type, "float") == 0,
                             .symmetric = s.symmetric,
                             .strategy = s.group_size > 0 ? TTI_QUANT_GROUP : TTI_QUANT_CHANNEL,
                             .group = s.group_size};
    if (s.strategy && strcmp(s.strategy, "tensor_group") != 0) {
        int i = TTI_QUANT_TENSOR;
        while (i <= TTI_QUANT_BLOCK && strcmp(names[i], s.strategy) != 0) {
            i++;
        }
        TT_CHECK(i <= TTI_QUANT_BLOCK, TT_ERR_UNSUPPORTED,
                 "%s: quantization_config: strategy '%s' is not supported", tti_show_path(what),
                 tti_show(s.strategy).text);
        rule->strategy = (tti_quant_strategy)i;
    }
    TT_CHECK(rule->strategy != TTI_QUANT_GROUP || s.group_size > 0, TT_ERR_FILE,
             "%s: quantization_config: strategy 'group' without a positive 'group_size'",
             tti_show_path(what));
    if (rule->strategy == TTI_QUANT_BLOCK) {
        TT_TRY(
            read_block(what, "block_structure", json_object_get(weights, "block_structure"), rule));
    }
    q->n_rules++;
    return TT_OK;
}

static tt_status check_format(const char *what, const json_t *object)
{
    static const char *const formats[] = {
        "dense",          "naive-quantized",      "int-quantized",   "float-quantized",
        "pack-quantized", "mxfp4-pack-quantized", "mixed-precision", NULL};
    const json_t *format = json_object_get(object, "format");
    TT_CHECK(!format || json_is_null(format) || json_is_string(format), TT_ERR_FILE,
             "%s: quantization_config: 'format' is not a string", tti_show_path(what));
    const char *text = json_string_value(format);
    TT_CHECK(!text || is_one_of(text, formats), TT_ERR_UNSUPPORTED,
             "%s: quantization_config: format '%s' is not supported", tti_show_path(what),
             tti_show(text).text);
    return TT_OK;
}

static tt_status read_compressed(const char *what, const json_t *object, tti_quantization *q)
{
    const char *name;
    json_t *group;
    const json_t *groups = json_object_get(object, "config_groups");
    const char *sparsity =
        json_string_value(json_object_get(json_object_get(object, "sparsity_config"), "format"));
    TT_CHECK(!sparsity || strcmp(sparsity, "dense") == 0, TT_ERR_UNSUPPORTED,
             "%s: quantization_config: sparsity_config of format '%s' is not supported",
             tti_show_path(what), tti_show(sparsity).text);
    TT_TRY(check_format(what, object));
    TT_CHECK(json_is_object(groups), TT_ERR_FILE,
             "%s: quantization_config: has no object 'config_groups'", tti_show_path(what));
    json_object_foreach((json_t *)groups, name, group)
    {
        TT_CHECK(json_is_object(group), TT_ERR_FILE,
                 "%s: quantization_config: config_groups '%s' is not an object",
                 tti_show_path(what), tti_show(name).text);
        TT_TRY(check_format(what, group));
        const json_t *weights = json_object_get(group, "weights");
        if (weights && !json_is_null(weights)) {
            TT_CHECK(json_is_object(weights), TT_ERR_FILE,
                     "%s: quantization_config: 'weights' of '%s' is not an object",
                     tti_show_path(what), tti_show(name).text);
            TT_TRY(read_weights(what, weights, q));
        }
    }
    return TT_OK;
}

/* How it was made, what runs it and how that rounds activations, which says nothing of the numbers.
 * The names are those that AutoGPTQ, GPTQModel, AutoAWQ, AutoRound, transformers and
 * compressed-tensors write. */
static const char *const recipe_keys[] = {"quant_method",
                                          "modules_to_not_convert",
                                          "meta",
                                          "backend",
                                          "batch_size",
                                          "dataset",
                                          "tokenizer",
                                          "model_name_or_path",
                                          "model_file_base_name",
                                          "damp_percent",
                                          "damp_auto_increment",
                                          "true_sequential",
                                          "use_exllama",
                                          "disable_exllama",
                                          "exllama_config",
                                          "use_cuda_fp16",
                                          "max_input_length",
                                          "cache_block_outputs",
                                          "pad_token_id",
                                          "model_seqlen",
                                          "seqlen",
                                          "nsamples",
                                          "iters",
                                          "lr",
                                          "minmax_lr",
                                          "train_bs",
                                          "amp",
                                          "gradient_accumulate_steps",
                                          "low_gpu_mem_usage",
                                          "autoround_version",
                                          "enable_minmax_tuning",
                                          "enable_norm_bias_tuning",
                                          "enable_quanted_input",
                                          "use_quant_input",
                                          "scale_dtype",
                                          "dequantize",
                                          "do_fuse",
                                          "fuse_max_seq_len",
                                          "modules_to_fuse",
                                          "mse",
                                          "act_group_aware",
                                          "fail_safe",
                                          "quantizer",
                                          "offload_to_disk",
                                          "offload_to_disk_path",
                                          "fallback",
                                          "failsafe",
                                          "pack_impl",
                                          "gptaq",
                                          "gptaq_alpha",
                                          "gptaq_memory_device",
                                          "foem",
                                          "v2",
                                          "v2_alpha",
                                          "scale_search",
                                          "model_free",
                                          "act_bits",
                                          "act_data_type",
                                          "act_group_size",
                                          "act_sym",
                                          "act_dynamic",
                                          "use_optimized_inference",
                                          NULL};

/* Which modules are converted shows in the tensors; an own width of some is checked against
 * them. */
static const char *const module_keys[] = {"block_name_to_quantize",
                                          "to_quant_block_names",
                                          "module_name_preceding_first_block",
                                          "modules_in_block_to_quantize",
                                          "modules_to_convert",
                                          "ignored_layers",
                                          "quant_block_list",
                                          "quant_lm_head",
                                          "ignore",
                                          "lm_head",
                                          "dynamic",
                                          NULL};

/* scale_fmt is of activations, kv_cache_scheme of a cache: neither is stored. */
static const char *const fp8_keys[] = {"fmt",       "weight_block_size", "activation_scheme",
                                       "scale_fmt", "kv_cache_scheme",   "expert_dtype",
                                       NULL};
static const char *const compressed_keys[] = {"config_groups",
                                              "format",
                                              "version",
                                              "quantization_status",
                                              "global_compression_ratio",
                                              "kv_cache_scheme",
                                              "sparsity_config",
                                              "run_compressed",
                                              NULL};
static const char *const mxfp4_keys[] = {NULL};
static const char *const gptq_keys[] = {"bits",
                                        "group_size",
                                        "groupsize",
                                        "desc_act",
                                        "actorder",
                                        "method",
                                        "static_groups",
                                        "sym",
                                        "is_marlin_format",
                                        "checkpoint_format",
                                        "format",
                                        "pack_dtype",
                                        "data_type",
                                        NULL};
static const char *const awq_keys[] = {"bits",       "w_bit",     "group_size", "q_group_size",
                                       "zero_point", "version",   "format",     "method",
                                       "sym",        "data_type", NULL};
/* GPTQ's and, if it packs so, AWQ's: whichever it is, nothing but these. */
static const char *const auto_round_keys[] = {"bits",           "group_size",   "sym", "data_type",
                                              "packing_format", "extra_config", NULL};
static const struct quant_method {
    const char *name;
    tti_quant_method method;
    tt_status (*read)(const char *what, const json_t *object, tti_quantization *q);
    const char *const *keys;
} methods[] = {{"fp8", TTI_QUANT_FP8, read_fp8, fp8_keys},
               {"compressed-tensors", TTI_QUANT_COMPRESSED, read_compressed, compressed_keys},
               {"mxfp4", TTI_QUANT_MXFP4, read_mxfp4, mxfp4_keys},
               {"gptq", TTI_QUANT_GPTQ, read_gptq, gptq_keys},
               {"awq", TTI_QUANT_AWQ, read_awq, awq_keys},
               {"auto-round", TTI_QUANT_GPTQ, read_auto_round, auto_round_keys},
               {"intel/auto-round", TTI_QUANT_GPTQ, read_auto_round, auto_round_keys}};

/* True if some method has a meaning for a key. */
static bool is_read_by_any(const char *key)
{
    bool found = false;
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        found = found || is_one_of(key, methods[i].keys);
    }
    return found;
}

/* Words in the names of keys that change what the numbers mean, or how they are stored. */
static const char *const telling_words[] = {
    "bit",       "block",    "cluster", "codebook", "dtype", "fmt",      "format",
    "group",     "hadamard", "lora",    "outlier",  "pack",  "permut",   "residual",
    "rotat",     "scale",    "scaling", "smooth",   "spars", "strategy", "sym",
    "transform", "type",     "zero",    NULL};

static bool is_telling(const char *key)
{
    const char *const *word = telling_words;
    while (*word && !strstr(key, *word)) {
        word++;
    }
    return *word != NULL;
}

/* The rule for keys that we know nothing of: an empty or negative one changes nothing; one that
 * another method reads, or whose name has one of the telling words, may change what the numbers
 * mean and is refused; any other is of the recipe, and a warning. */
static tt_status check_known(const char *what, const json_t *object, const char *const *own)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        bool is_empty = json_is_null(value) || json_is_false(value) ||
                        (json_is_array(value) && json_array_size(value) == 0) ||
                        (json_is_object(value) && json_object_size(value) == 0);
        if (is_empty || is_one_of(key, own) || is_one_of(key, recipe_keys) ||
            is_one_of(key, module_keys)) {
            continue;
        }
        TT_CHECK(!is_read_by_any(key) && !is_telling(key), TT_ERR_UNSUPPORTED,
                 "%s: quantization_config: '%s' is not supported", tti_show_path(what),
                 tti_show(key).text);
        tt_log(
            TT_LOG_WARN,
            "%s: quantization_config: '%s' is not known and taken for a key of the recipe: ignored",
            tti_show_path(what), tti_show(key).text);
    }
    return TT_OK;
}

tt_status tti_quantization_read(const char *what, const json_t *config, tti_quantization *q_out)
{
    *q_out = (tti_quantization){0};
    const json_t *object = json_object_get(config, "quantization_config");
    if (!object || json_is_null(object)) {
        object = json_object_get(
            config, "compression_config"); /* an older spelling of compressed-tensors */
    }
    if (!object || json_is_null(object)) {
        return TT_OK;
    }
    TT_CHECK(json_is_object(object), TT_ERR_FILE, "%s: 'quantization_config' is not an object",
             tti_show_path(what));
    const json_t *method = json_object_get(object, "quant_method");
    TT_CHECK(json_is_string(method), TT_ERR_FILE,
             "%s: quantization_config: has no string 'quant_method'", tti_show_path(what));
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (strcmp(json_string_value(method), methods[i].name) == 0) {
            q_out->method = methods[i].method;
            TT_TRY(methods[i].read(what, object, q_out));
            return check_known(what, object, methods[i].keys);
        }
    }
    return TT_FAIL(TT_ERR_UNSUPPORTED,
                   "%s: quantization_config: quant_method '%s' is not supported (fp8, "
                   "compressed-tensors, mxfp4, gptq, awq and auto-round are)",
                   tti_show_path(what), tti_show(json_string_value(method)).text);
}
