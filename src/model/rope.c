/* rope.c - rotary frequencies with the scalings that checkpoints state.
 *
 * inv_freq[i] = theta^(-2i/d), then changed by the scaling type; all in double, rounded to float
 * once at the end. Sources: RoPE arXiv:2104.09864; YaRN arXiv:2309.00071 (with the attention factor
 * and mscale keys of DeepSeek's configurations); Llama 3.1's "llama3" rule as its configurations
 * state it. */
#include "model_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    ROPE_REAL(partial_rotary_factor, 1, 1e-6, 1),
    ROPE_REAL(beta_fast, 32, 1e-6, MAX_FACTOR),
    ROPE_REAL(beta_slow, 1, 1e-6, MAX_FACTOR),
    ROPE_REAL(mscale, NAN, 0, MAX_FACTOR),
    ROPE_REAL(mscale_all_dim, NAN, 0, MAX_FACTOR),
    ROPE_REAL(low_freq_factor, NAN, 1e-6, MAX_FACTOR),
    ROPE_REAL(high_freq_factor, NAN, 1e-6, MAX_FACTOR),
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

tt_status tti_rope_parse(const char *what, const json_t *config, double default_theta,
                         tti_rope_keys *keys_out)
{
    const json_t *parameters, *scaling;
    TT_TRY(object_or_null(what, config, "rope_parameters", &parameters));
    TT_TRY(object_or_null(what, config, "rope_scaling", &scaling));
    if (parameters && scaling) {
        /* Both spellings: which one wins differs from loader to loader, so they must agree. */
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)scaling, key, value)
        {
            const json_t *other = json_object_get(parameters, key);
            TT_CHECK(strcmp(key, "type") == 0 || (other && json_equal(value, other)), TT_ERR_FILE,
                     "%s: rope_scaling and rope_parameters differ in '%s'", tti_show_path(what),
                     tti_show(key).text);
        }
    }
    const json_t *object = parameters ? parameters : scaling;

    tti_rope_keys keys = {0};
    const tti_key theta_key[] = {{.type = TTI_KEY_REAL,
                                  .name = {"rope_theta"},
                                  .offset = ROPE_OFFSET(theta),
                                  .fallback = default_theta,
                                  .min = 1.0001,
                                  .max = MAX_THETA},
                                 TTI_KEYS_END};
    const tti_key type_key[] = {
        {.type = TTI_KEY_STRING, .name = {"rope_type"}, .offset = ROPE_OFFSET(type), .text = NULL},
        TTI_KEYS_END};
    const tti_key old_type_key[] = {
        {.type = TTI_KEY_STRING, .name = {"type"}, .offset = ROPE_OFFSET(type), .text = "default"},
        TTI_KEYS_END};
    const json_t *theta_at =
        parameters && json_object_get(parameters, "rope_theta") ? parameters : config;
    TT_TRY(tti_json_fill(what, theta_at, theta_key, &keys));
    json_t *empty = json_object();
    TT_CHECK(empty, TT_ERR_NOMEM, "%s: no memory for its rotary keys", tti_show_path(what));
    tt_status st = tti_json_fill(what, object ? object : empty, scaling_keys, &keys);
    if (st == TT_OK) {
        st = tti_json_fill(what, object ? object : empty, type_key, &keys);
    }
    if (st == TT_OK && !keys.type) {
        st = tti_json_fill(what, object ? object : empty, old_type_key, &keys);
    }
    json_decref(empty);
    TT_TRY(st);
    if (!object || json_object_size(object) == 0) {
        keys.type = "default";
    }

    static const char *const known[] = {"default", "linear", "llama3", "yarn"};
    bool is_known = false;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        is_known |= strcmp(keys.type, known[i]) == 0;
    }
    TT_CHECK(
        is_known, TT_ERR_UNSUPPORTED,
        "%s: rotary scaling of type '%s' is not supported (default, linear, llama3 and yarn are)",
        tti_show_path(what), tti_show(keys.type).text);
    TT_CHECK(strcmp(keys.type, "default") == 0 || !isnan(keys.factor), TT_ERR_FILE,
             "%s: rotary scaling of type '%s' without 'factor'", tti_show_path(what), keys.type);
    *keys_out = keys;
    return TT_OK;
}

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
        } else if (wavelength >= original / high) {
            double s = (original / wavelength - low) / (high - low);
            freq[i] = (1 - s) * freq[i] / keys->factor + s * freq[i];
        }
    }
}

tt_status tti_rope_build(const char *what, const tti_rope_keys *keys, int64_t dim, bool interleaved,
                         int64_t context, tt_rope *rope_out)
{
    tt_status st = TT_OK;
    TT_CHECK(dim > 0 && dim % 2 == 0, TT_ERR_FILE, "%s: %lld rotary components per head: not even",
             tti_show_path(what), (long long)dim);
    int64_t n = dim / 2;
    double original = (double)(keys->original_context > 0 ? keys->original_context : context);
    tt_rope rope = {.dim = dim, .interleaved = interleaved, .attention_factor = 1};
    double *freq = malloc((size_t)n * sizeof(*freq));
    rope.inv_freq = malloc((size_t)n * sizeof(*rope.inv_freq));
    if (!freq || !rope.inv_freq) {
        st = TT_FAIL(TT_ERR_NOMEM, "no memory for %lld rotary frequencies", (long long)n);
        goto err_free;
    }
    for (int64_t i = 0; i < n; i++) {
        freq[i] = pow(keys->theta, -(double)(2 * i) / (double)dim);
    }
    if (strcmp(keys->type, "linear") == 0) {
        for (int64_t i = 0; i < n; i++) {
            freq[i] /= keys->factor;
        }
    } else if (strcmp(keys->type, "yarn") == 0) {
        if (keys->beta_fast < keys->beta_slow) {
            st = TT_FAIL(TT_ERR_FILE, "%s: yarn's beta_fast %g is below beta_slow %g",
                         tti_show_path(what), keys->beta_fast, keys->beta_slow);
            goto err_free;
        }
        yarn(keys, original, freq, n, &rope);
    } else if (strcmp(keys->type, "llama3") == 0) {
        if (!(keys->low_freq_factor < keys->high_freq_factor) || keys->original_context == 0) {
            st = TT_FAIL(TT_ERR_FILE,
                         "%s: llama3 rotary scaling needs low_freq_factor below high_freq_factor, "
                         "and original_max_position_embeddings",
                         tti_show_path(what));
            goto err_free;
        }
        llama3(keys, original, freq, n);
    }
    for (int64_t i = 0; i < n; i++) {
        rope.inv_freq[i] = (float)freq[i];
    }
    free(freq);
    *rope_out = rope;
    return TT_OK;

err_free:
    free(freq);
    free(rope.inv_freq);
    return st;
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
