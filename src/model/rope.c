/* rope.c - rotary frequencies with the scalings that checkpoints state.
 *
 * inv_freq[i] = theta^(-2i/d), then changed by the scaling type; all in double, rounded to float
 * once at the end. Sources: RoPE arXiv:2104.09864; LongRoPE arXiv:2402.13753; YaRN arXiv:2309.00071
 * (with the attention factor and mscale keys of DeepSeek's configurations); Llama 3.1's "llama3"
 * rule as its configurations state it. */
#include "model_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/log.h"

static const double PI = 3.14159265358979323846;

#define ROPE_OFFSET(field) offsetof(tti_rope_keys, field)
#define ROPE_REAL(key, value, low, high)                                                           \
    {                                                                                              \
        .type = TTI_KEY_REAL, .name = {#key}, .offset = ROPE_OFFSET(key), .fallback = (value),     \
        .min = (low), .max = (high)                                                                \
    }
enum {
    MAX_THETA = 1000000000, /* 1e9; models use up to 1e7 */
    MAX_FACTOR = 1 << 20    /* how far a context may be stretched, and other ratios */
};

/* Keys of rope_scaling or rope_parameters besides the type and theta. */
static const tti_key scaling_keys[] = {
    ROPE_REAL(factor, NAN, 1, MAX_FACTOR),
    ROPE_REAL(attention_factor, NAN, 1e-6, MAX_FACTOR),
    ROPE_REAL(partial_rotary_factor, NAN, 1e-6, 1),
    ROPE_REAL(beta_fast, 32, 1e-6, MAX_FACTOR),
    ROPE_REAL(beta_slow, 1, 1e-6, MAX_FACTOR),
    ROPE_REAL(mscale, NAN, 0, MAX_FACTOR),
    ROPE_REAL(mscale_all_dim, NAN, 0, MAX_FACTOR),
    ROPE_REAL(low_freq_factor, NAN, 1e-6, MAX_FACTOR),
    ROPE_REAL(high_freq_factor, NAN, 1e-6, MAX_FACTOR),
    ROPE_REAL(alpha, NAN, 1, MAX_FACTOR),
    ROPE_REAL(short_mscale, NAN, 1e-6, MAX_FACTOR),
    ROPE_REAL(long_mscale, NAN, 1e-6, MAX_FACTOR),
    {.type = TTI_KEY_INT,
     .name = {"original_max_position_embeddings"},
     .offset = ROPE_OFFSET(original_context),
     .min = 1,
     .max = TTI_MAX_CONTEXT},
    {.type = TTI_KEY_BOOL, .name = {"truncate"}, .offset = ROPE_OFFSET(truncate), .fallback = 1},
    TTI_KEYS_END};

static tt_status object_or_null(const char *what, const json_t *config, const char *key,
                                const json_t **object_out)
{
    const json_t *value = json_object_get(config, key);
    TT_CHECK(!value || json_is_null(value) || json_is_object(value), TT_ERR_FILE,
             "%s: '%s' is not an object", tti_show_path(what), key);
    *object_out = json_is_object(value) ? value : NULL;
    return TT_OK;
}

/* Keys that stand in the object, but not in scaling_keys. */
static const char *const other_keys[] = {"type", "rope_type", "rope_theta", "short_factor",
                                         "long_factor"};

/* Keys without a meaning for the type are ignored, as transformers does (attn_factor of some files
 * of Qwen3 with yarn is one), but not those that turn components by positions of their own. */
static tt_status check_known(const char *what, const json_t *object)
{
    const char *key, *unknown = NULL;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        bool known = json_is_null(value);
        for (const tti_key *row = scaling_keys; row->type != TTI_KEY_END; row++) {
            known |= strcmp(key, row->name[0]) == 0;
        }
        for (size_t i = 0; i < sizeof(other_keys) / sizeof(other_keys[0]); i++) {
            known |= strcmp(key, other_keys[i]) == 0;
        }
        TT_CHECK(known || strncmp(key, "mrope", strlen("mrope")) != 0, TT_ERR_UNSUPPORTED,
                 "%s: rotary key '%s' is not supported", tti_show_path(what), tti_show(key).text);
        unknown = known || unknown ? unknown : key;
    }
    if (unknown) {
        tt_log(TT_LOG_WARN, "%s: rotary key '%s' is not known: ignored", tti_show_path(what),
               tti_show(unknown).text);
    }
    return TT_OK;
}

/* Both spellings in one file: which one wins differs from loader to loader, so they must agree. */
static tt_status check_agree(const char *what, const json_t *parameters, const json_t *scaling)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)scaling, key, value)
    {
        const json_t *other = json_object_get(parameters, key);
        TT_CHECK(strcmp(key, "type") == 0 || (other && json_equal(value, other)), TT_ERR_FILE,
                 "%s: rope_scaling and rope_parameters differ in '%s'", tti_show_path(what),
                 tti_show(key).text);
    }
    return TT_OK;
}

/* theta stands in the object, beside it, or in both. */
static tt_status fill_theta(const char *what, const json_t *config, const json_t *object,
                            double default_theta, tti_rope_keys *keys)
{
    const tti_key theta[] = {ROPE_REAL(theta, default_theta, 1.0001, MAX_THETA), TTI_KEYS_END};
    tti_key theta_key[2];
    memcpy(theta_key, theta, sizeof(theta_key));
    theta_key[0].name[0] = "rope_theta";
    const json_t *inner = json_object_get(object, "rope_theta"),
                 *outer = json_object_get(config, "rope_theta");
    bool has_inner = inner && !json_is_null(inner), has_outer = outer && !json_is_null(outer);
    if (has_outer) {
        TT_TRY(tti_json_fill(what, config, theta_key, keys));
    }
    double outer_theta = keys->theta;
    TT_TRY(tti_json_fill(what, has_inner ? object : config, theta_key, keys));
    TT_CHECK(!has_outer || outer_theta == keys->theta, TT_ERR_FILE,
             "%s: rope_theta is stated twice and differs", tti_show_path(what));
    return TT_OK;
}

/* Keys that may stand beside the object instead of in it. */
static tt_status fill_outer(const char *what, const json_t *config, const json_t *object,
                            double default_theta, tti_rope_keys *keys)
{
    static const tti_key partial[] = {ROPE_REAL(partial_rotary_factor, NAN, 1e-6, 1), TTI_KEYS_END};
    static const tti_key original[] = {{.type = TTI_KEY_INT,
                                        .name = {"original_max_position_embeddings"},
                                        .offset = ROPE_OFFSET(original_context),
                                        .min = 1,
                                        .max = TTI_MAX_CONTEXT},
                                       TTI_KEYS_END};
    static const tti_key scale[] = {{.type = TTI_KEY_REAL,
                                     .name = {TTI_ROPE_SCALE_KEY},
                                     .offset = ROPE_OFFSET(attention_scale),
                                     .fallback = 1,
                                     .min = 1e-6,
                                     .max = MAX_FACTOR},
                                    TTI_KEYS_END};
    TT_TRY(fill_theta(what, config, object, default_theta, keys));
    TT_TRY(tti_json_fill(what, config, scale, keys));
    double inner = keys->partial_rotary_factor;
    TT_TRY(tti_json_fill(what, config, partial, keys));
    TT_CHECK(
        isnan(inner) || isnan(keys->partial_rotary_factor) || inner == keys->partial_rotary_factor,
        TT_ERR_FILE, "%s: partial_rotary_factor is stated twice and differs", tti_show_path(what));
    keys->partial_rotary_factor = isnan(inner) ? keys->partial_rotary_factor : inner;
    return keys->original_context == 0 ? tti_json_fill(what, config, original, keys) : TT_OK;
}

/* What each type of scaling needs. */
static tt_status check_type(const char *what, const tti_rope_keys *keys)
{
    static const char *const known[] = {"default", "linear", "dynamic",
                                        "llama3",  "yarn",   "longrope"};
    bool is_known = false;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        is_known |= strcmp(keys->type, known[i]) == 0;
    }
    TT_CHECK(is_known, TT_ERR_UNSUPPORTED,
             "%s: rotary scaling of type '%s' is not supported (default, linear, dynamic, llama3, "
             "yarn and longrope are)",
             tti_show_path(what), tti_show(keys->type).text);
    bool dynamic = strcmp(keys->type, "dynamic") == 0,
         longrope = strcmp(keys->type, "longrope") == 0;
    TT_CHECK(dynamic || isnan(keys->alpha), TT_ERR_UNSUPPORTED,
             "%s: rotary key 'alpha' is supported with type dynamic only", tti_show_path(what));
    TT_CHECK(strcmp(keys->type, "default") == 0 || longrope || !isnan(keys->factor) ||
                 (dynamic && !isnan(keys->alpha)),
             TT_ERR_FILE, "%s: rotary scaling of type '%s' without 'factor'", tti_show_path(what),
             keys->type);
    TT_CHECK(!longrope || (keys->short_factor && keys->long_factor && keys->original_context > 0),
             TT_ERR_FILE,
             "%s: rotary scaling of type longrope needs short_factor, long_factor and "
             "original_max_position_embeddings",
             tti_show_path(what));
    TT_CHECK((longrope && !isnan(keys->short_mscale)) == !isnan(keys->long_mscale) &&
                 (longrope || isnan(keys->short_mscale)),
             TT_ERR_FILE, "%s: short_mscale and long_mscale go together, with type longrope",
             tti_show_path(what));
    return TT_OK;
}

/* An object that scales says how: without a type, or with one that scales nothing, other loaders
 * differ in what they make of it. */
static tt_status check_untyped(const char *what, const json_t *object, const char *type)
{
    const json_t *rope_type = json_object_get(object, "rope_type"),
                 *old_type = json_object_get(object, "type");
    bool is_typed =
        (rope_type && !json_is_null(rope_type)) || (old_type && !json_is_null(old_type));
    if (strcmp(type, "default") != 0) {
        return TT_OK;
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        bool scales = !json_is_null(value) && strcmp(key, "rope_theta") != 0 &&
                      strcmp(key, "partial_rotary_factor") != 0 && strcmp(key, "type") != 0 &&
                      strcmp(key, "rope_type") != 0;
        TT_CHECK(!scales || is_typed, TT_ERR_FILE,
                 "%s: rotary scaling has '%s', but no 'rope_type'", tti_show_path(what), key);
        /* Of the keys beside a stated default, these would be the scaling itself; others are
         * leftovers. */
        scales = ((strcmp(key, "factor") == 0 || strcmp(key, "attention_factor") == 0) &&
                  json_number_value(value) != 1) ||
                 strcmp(key, "short_factor") == 0 || strcmp(key, "long_factor") == 0;
        TT_CHECK(!scales || json_is_null(value), TT_ERR_FILE,
                 "%s: rotary scaling of type 'default' has '%s'", tti_show_path(what), key);
    }
    return TT_OK;
}

tt_status tti_rope_parse(const char *what, const json_t *config, double default_theta,
                         tti_rope_keys *keys_out)
{
    static const tti_key type_keys[2][2] = {
        {{.type = TTI_KEY_STRING, .name = {"rope_type"}, .offset = ROPE_OFFSET(type), .text = NULL},
         TTI_KEYS_END},
        {{.type = TTI_KEY_STRING, .name = {"type"}, .offset = ROPE_OFFSET(type), .text = "default"},
         TTI_KEYS_END}};
    const json_t *parameters, *scaling;
    TT_TRY(object_or_null(what, config, "rope_parameters", &parameters));
    TT_TRY(object_or_null(what, config, "rope_scaling", &scaling));
    if (parameters && scaling) {
        TT_TRY(check_agree(what, parameters, scaling));
    }
    const json_t *object = parameters ? parameters : scaling;
    tti_rope_keys keys = {0};
    json_t *empty = json_object();
    TT_CHECK(empty, TT_ERR_NOMEM, "%s: no memory for its rotary keys", tti_show_path(what));
    const json_t *from = object ? object : empty;
    tt_status st = check_known(what, from);
    if (st == TT_OK) {
        st = tti_json_fill(what, from, scaling_keys, &keys);
    }
    for (int i = 0; i < 2 && st == TT_OK && !keys.type; i++) {
        st = tti_json_fill(what, from, type_keys[i], &keys);
    }
    json_decref(empty);
    TT_TRY(st);
    TT_TRY(fill_outer(what, config, object, default_theta, &keys));
    TT_TRY(check_untyped(what, object, keys.type));
    keys.short_factor = json_object_get(object, "short_factor");
    keys.long_factor = json_object_get(object, "long_factor");
    TT_TRY(check_type(what, &keys));
    *keys_out = keys;
    return TT_OK;
}

/* A table on its way: freq[n] comes in plain. */
typedef struct frequencies {
    const char *what;
    const tti_rope_keys *keys;
    int64_t context;
    bool is_long; /* the second table of longrope */
    double *freq;
    int64_t n;
} frequencies;

static double yarn_mscale(double scale, double m)
{
    return scale <= 1 ? 1 : 0.1 * m * log(scale) + 1;
}

/* Which component turns r times over the original context. */
static double yarn_component(double r, double d, double original, double theta)
{
    return d * log(original / (r * 2 * PI)) / (2 * log(theta));
}

static void yarn(const tti_rope_keys *keys, double original, double *freq, int64_t n, tt_rope *rope)
{
    double d = (double)(2 * n);
    double low = yarn_component(keys->beta_fast, d, original, keys->theta);
    double high = yarn_component(keys->beta_slow, d, original, keys->theta);
    if (keys->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, d - 1);
    if (low == high) {
        high += 0.001;
    }
    for (int64_t i = 0; i < n; i++) {
        double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
        freq[i] = freq[i] / keys->factor * ramp + freq[i] * (1 - ramp);
    }
    if (!isnan(keys->attention_factor)) {
        rope->attention_factor = (float)keys->attention_factor;
    } else if (keys->mscale > 0 && keys->mscale_all_dim > 0) {
        rope->attention_factor = (float)(yarn_mscale(keys->factor, keys->mscale) /
                                         yarn_mscale(keys->factor, keys->mscale_all_dim));
    } else {
        rope->attention_factor = (float)yarn_mscale(keys->factor, 1);
    }
}

static void llama3(const tti_rope_keys *keys, double original, double *freq, int64_t n)
{
    double low = keys->low_freq_factor, high = keys->high_freq_factor;
    for (int64_t i = 0; i < n; i++) {
        double wavelength = 2 * PI / freq[i];
        if (wavelength > original / low) {
            freq[i] /= keys->factor;
            /* equal ones leave no band between */
        } else if (wavelength >= original / high && low < high) {
            double s = (original / wavelength - low) / (high - low);
            freq[i] = (1 - s) * freq[i] / keys->factor + s * freq[i];
        }
    }
}

/* freq[i] /= factor[i] of a list of n numbers. */
static tt_status divide_by_list(const char *what, const char *name, const json_t *list,
                                double *freq, int64_t n)
{
    TT_CHECK(json_is_array(list) && json_array_size(list) == (size_t)n, TT_ERR_FILE,
             "%s: '%s' is not a list of %lld numbers", tti_show_path(what), name, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        double factor = json_number_value(json_array_get(list, (size_t)i));
        TT_CHECK(factor >= 1e-6 && factor <= MAX_FACTOR, TT_ERR_FILE,
                 "%s: '%s' holds what is no factor at place %lld", tti_show_path(what), name,
                 (long long)i);
        freq[i] /= factor;
    }
    return TT_OK;
}

/* One of the two tables of longrope. */
static tt_status longrope(const frequencies *f, float *attention_factor)
{
    const tti_rope_keys *keys = f->keys;
    double original = (double)keys->original_context;
    double factor = isnan(keys->factor) ? (double)f->context / original : keys->factor;
    double mscale = f->is_long ? keys->long_mscale : keys->short_mscale;
    double by_length = factor <= 1 || original <= 1 ? 1 : sqrt(1 + log(factor) / log(original));
    *attention_factor = (float)(!isnan(mscale)                   ? mscale
                                : !isnan(keys->attention_factor) ? keys->attention_factor
                                                                 : by_length);
    return f->is_long ? divide_by_list(f->what, "long_factor", keys->long_factor, f->freq, f->n)
                      : divide_by_list(f->what, "short_factor", keys->short_factor, f->freq, f->n);
}

/* Changes the frequencies by the scaling that keys state. */
static tt_status scale(const frequencies *f, tt_rope *rope)
{
    const tti_rope_keys *keys = f->keys;
    double original = (double)(keys->original_context > 0 ? keys->original_context : f->context);
    if (strcmp(keys->type, "linear") == 0) {
        for (int64_t i = 0; i < f->n; i++) {
            f->freq[i] /= keys->factor;
        }
    } else if (strcmp(keys->type, "yarn") == 0) {
        TT_CHECK(keys->beta_fast >= keys->beta_slow, TT_ERR_FILE,
                 "%s: yarn's beta_fast %g is below beta_slow %g", tti_show_path(f->what),
                 keys->beta_fast, keys->beta_slow);
        yarn(keys, original, f->freq, f->n, rope);
    } else if (strcmp(keys->type, "llama3") == 0) {
        TT_CHECK(keys->low_freq_factor <= keys->high_freq_factor && keys->original_context > 0,
                 TT_ERR_FILE,
                 "%s: llama3 rotary scaling needs low_freq_factor up to high_freq_factor, "
                 "and original_max_position_embeddings",
                 tti_show_path(f->what));
        llama3(keys, original, f->freq, f->n);
    } else if (strcmp(keys->type, "longrope") == 0) {
        return longrope(f, f->is_long ? &rope->long_attention_factor : &rope->attention_factor);
    }
    return TT_OK;
}

/* theta^(-2i/dim), scaled, as floats in a new table. */
static tt_status build_table(const char *what, const tti_rope_keys *keys, int64_t context,
                             bool is_long, tt_rope *rope, float **table_out)
{
    int64_t n = rope->dim / 2;
    double *freq = malloc((size_t)n * sizeof(*freq));
    float *table = malloc((size_t)n * sizeof(*table));
    double theta = keys->theta;
    /* "dynamic" (NTK by length) leaves all as it is up to the model's context, and no run is
     * longer; its alpha counts always. */
    if (strcmp(keys->type, "dynamic") == 0 && !isnan(keys->alpha) && rope->dim > 2) {
        theta *= pow(keys->alpha, (double)rope->dim / (double)(rope->dim - 2));
    }
    for (int64_t i = 0; freq && i < n; i++) {
        freq[i] = pow(theta, -(double)(2 * i) / (double)rope->dim);
    }
    const frequencies all = {what, keys, context, is_long, freq, n};
    tt_status st = freq && table ? scale(&all, rope)
                                 : TT_FAIL(TT_ERR_NOMEM, "no memory for %lld rotary frequencies",
                                           (long long)n);
    for (int64_t i = 0; st == TT_OK && i < n; i++) {
        table[i] = (float)freq[i];
    }
    free(freq);
    if (st != TT_OK) {
        free(table);
        return st;
    }
    *table_out = table;
    return TT_OK;
}

tt_status tti_rope_build(const char *what, const tti_rope_keys *keys, int64_t dim, bool interleaved,
                         int64_t context, tt_rope *rope_out)
{
    TT_CHECK(dim > 0 && dim % 2 == 0, TT_ERR_FILE, "%s: %lld rotary components per head: not even",
             tti_show_path(what), (long long)dim);
    tt_rope rope = {.dim = dim, .interleaved = interleaved, .attention_factor = 1};
    TT_TRY(build_table(what, keys, context, false, &rope, &rope.inv_freq));
    if (strcmp(keys->type, "longrope") == 0) {
        rope.long_from = keys->original_context;
        tt_status st = build_table(what, keys, context, true, &rope, &rope.long_inv_freq);
        if (st != TT_OK) {
            free(rope.inv_freq);
            return st;
        }
    }
    rope.attention_factor *= (float)keys->attention_scale;
    rope.long_attention_factor *= (float)keys->attention_scale;
    *rope_out = rope;
    return TT_OK;
}

tt_status tti_rope_extend(const char *what, const tti_rope_keys *keys, int64_t *context)
{
    if (strcmp(keys->type, "yarn") != 0) {
        return TT_OK;
    }
    double all =
        (double)(keys->original_context > 0 ? keys->original_context : *context) * keys->factor;
    TT_CHECK(all <= TTI_MAX_CONTEXT, TT_ERR_FILE,
             "%s: rotary scaling reaches %.0f positions, more than the %d that are supported",
             tti_show_path(what), all, TTI_MAX_CONTEXT);
    *context = (int64_t)all > *context ? (int64_t)all : *context;
    return TT_OK;
}

double tti_rope_softmax_factor(const tti_rope_keys *keys)
{
    if (strcmp(keys->type, "default") == 0 || isnan(keys->mscale_all_dim) ||
        keys->mscale_all_dim == 0) {
        return 1;
    }
    double m = yarn_mscale(keys->factor, keys->mscale_all_dim);
    return m * m;
}
