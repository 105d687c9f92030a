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

/* Refuses what no family computes yet. */
static tt_status check_common(const char *what, const json_t *config)
{
    const json_t *quantization = json_object_get(config, "quantization_config");
    if (quantization && !json_is_null(quantization)) {
        const char *method = json_string_value(json_object_get(quantization, "quant_method"));
        return TT_FAIL(TT_ERR_UNSUPPORTED,
                       "%s: quantization_config (quant_method '%s') is not supported; "
                       "a bf16, f16 or f32 copy is needed",
                       tti_show_path(what), method ? tti_show(method).text : "");
    }
    static const struct {
        const char *key, *value;
    } only[] = {{"hidden_act", "silu"}, {"hidden_activation", "silu"}};
    for (size_t i = 0; i < sizeof(only) / sizeof(only[0]); i++) {
        const json_t *value = json_object_get(config, only[i].key);
        if (!value || json_is_null(value)) {
            continue;
        }
        TT_CHECK(json_is_string(value), TT_ERR_FILE, "%s: '%s' is not a string",
                 tti_show_path(what), only[i].key);
        TT_CHECK(strcmp(json_string_value(value), only[i].value) == 0, TT_ERR_UNSUPPORTED,
                 "%s: %s '%s' is not supported (%s is)", tti_show_path(what), only[i].key,
                 tti_show(json_string_value(value)).text, only[i].value);
    }
    const json_t *types = json_object_get(config, "layer_types");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        TT_CHECK(type && strcmp(type, "full_attention") == 0, TT_ERR_UNSUPPORTED,
                 "%s: layer %zu of type '%s' is not supported", tti_show_path(what), i,
                 type ? tti_show(type).text : "");
    }
    return TT_OK;
}

tt_status tti_config_read(const char *dir, const char *what, const tti_family **family_out,
                          tti_hyper *hyper_out)
{
    const tti_family *family;
    tti_hyper hyper = {.what = what, .arch = {.embedding_scale = 1, .residual_scale = 1, .logit_divisor = 1}};
    json_t *config = NULL;
    TT_TRY(tti_json_load(dir, CONFIG_NAME, TTI_CONFIG_BYTES, &config));
    hyper.config = config;
    tt_status st = tti_family_find(what, config, &family, &hyper.arch.name);
    if (st == TT_OK) {
        st = check_common(what, config);
    }
    if (st == TT_OK) {
        st = tti_json_fill(what, config, family->keys, &hyper);
    }
    if (st == TT_OK) {
        st = tti_rope_parse(what, config, family->rope_theta, &hyper.rope);
    }
    if (st == TT_OK) {
        st = family->finish(&hyper);
    }
    if (st != TT_OK) {
        free(hyper.arch.rope.inv_freq);
        json_decref(config);
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
    static const tti_key keys[] = {
        {.type = TTI_KEY_BOOL, .name = {"do_sample"}, .offset = GENERATION_OFFSET(do_sample)},
        {.type = TTI_KEY_REAL,
         .name = {"temperature"},
         .offset = GENERATION_OFFSET(temperature),
         .fallback = NAN,
         .min = 0,
         .max = 1e6},
        {.type = TTI_KEY_REAL,
         .name = {"top_p"},
         .offset = GENERATION_OFFSET(top_p),
         .fallback = NAN,
         .min = 0,
         .max = 1},
        {.type = TTI_KEY_REAL,
         .name = {"min_p"},
         .offset = GENERATION_OFFSET(min_p),
         .fallback = NAN,
         .min = 0,
         .max = 1},
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

tt_status tti_config_read_generation(const char *dir, const char *what, const json_t *config,
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
        st = add_ids(what, config, ids, &n);
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
