/* gguf_rope.c - the rotary embedding of a GGUF file: keys rope.scaling.* and tensors of divisors
 * become "rope_scaling".
 *
 * The tensors rule over the keys, as in the format's own loaders: rope_freqs of Llama-3 has one
 * divisor for each frequency whatever the length, rope_factors_short and _long ("longrope") two
 * lists of which the context's length chooses.
 * Source: the keys of the GGUF specification and of llama.cpp's loaders and converter
 * (llama-arch.cpp, convert_hf_to_gguf.py); what the factors mean, of its llama-context.cpp. */
#include "gguf_translation.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/log.h"

/* The numbers of an F32 tensor of one dimension as an array. *array_out is the caller's. */
static tt_status read_factors(const tti_translation *t, const char *name, json_t **array_out)
{
    enum { MAX_FACTORS = 1 << 16 };
    const tti_checkpoint *checkpoint = &t->model->checkpoint;
    tti_entry *entry = tti_table_find(&checkpoint->table, name);
    const char *path = tti_show_path(checkpoint->file[entry->file_id].path);
    TT_CHECK(strcmp(entry->dtype->name, "F32") == 0 && entry->n_dims == 1 &&
                 entry->dim[0] <= MAX_FACTORS,
             TT_ERR_FILE, "%s: tensor '%s' is not a list of F32 numbers", path, name);
    entry->claimed = true;
    float *factor = malloc((size_t)entry->bytes);
    json_t *array = json_array();
    tt_status st = factor && array
                       ? tti_file_read(&checkpoint->file[entry->file_id], entry->offset, factor,
                                       (size_t)entry->bytes)
                       : TT_FAIL(TT_ERR_NOMEM, "%s: no memory for tensor '%s'", path, name);
    for (int64_t i = 0; st == TT_OK && i < entry->dim[0]; i++) {
        if (!(factor[i] > 0) || !isfinite(factor[i])) {
            st = TT_FAIL(TT_ERR_FILE, "%s: tensor '%s' holds %g, which divides no frequency", path,
                         name, (double)factor[i]);
        } else if (json_array_append_new(array, json_real((double)factor[i])) != 0) {
            st = TT_FAIL(TT_ERR_NOMEM, "%s: no memory for tensor '%s'", path, name);
        }
    }
    free(factor);
    if (st != TT_OK) {
        json_decref(array);
        return st;
    }
    *array_out = array;
    return TT_OK;
}

/* Divisors of each frequency, for short and for long contexts: "longrope". rope_freqs has one list
 * for both. */
static tt_status put_divisors(const tti_translation *t, const char *short_name,
                              const char *long_name, json_t *scaling)
{
    bool same = strcmp(short_name, long_name) == 0;
    json_t *factor = NULL;
    TT_TRY(read_factors(t, short_name, &factor));
    int failed = json_object_set_new(scaling, "short_factor", factor);
    TT_TRY(read_factors(t, long_name, &factor));
    failed |= json_object_set_new(scaling, "long_factor", factor);
    int64_t context = tti_gguf_int_or(t, "context_length", 1),
            original = same ? context
                            : tti_gguf_int_or(t, "rope.scaling.original_context_length", context);
    failed |=
        json_object_set_new(scaling, "attention_factor", json_real(1)); /* put_scale() has it */
    failed |=
        json_object_set_new(scaling, "original_max_position_embeddings", json_integer(original));
    failed |= json_object_set_new(scaling, "rope_type", json_string("longrope"));
    TT_CHECK(!failed, TT_ERR_NOMEM, "%s: no memory for its configuration", tti_show_path(t->path));
    return TT_OK;
}

/* YaRN's factor of sine and cosine follows from the stretch alone. yarn_attn_factor is the
 * converter's copy of attention_factor, or of attn_factor, which means the inverse in some files;
 * llama.cpp ignores both, so a value that says otherwise is no more than reported. */
static tt_status check_yarn_factor(const tti_translation *t, double stretch)
{
    static const double TOLERANCE = 1e-6; /* it was rounded to f32 */
    char name[TTI_GGUF_KEY_BYTES];
    bool found;
    /* it is in the softmax scale */
    bool latent = tti_gguf_find_suffix(t, "rope.scaling.yarn_log_multiplier", name) != NULL;
    double stated = 1, mscale = stretch > 1 && !latent ? 1 + 0.1 * log(stretch) : 1;
    TT_TRY(tti_gguf_get_real(t, "rope.scaling.yarn_attn_factor", &stated, &found));
    if (found && fabs(stated - mscale) > TOLERANCE * mscale) {
        (void)tti_gguf_find_suffix(t, "rope.scaling.yarn_attn_factor", name);
        tt_log(
            TT_LOG_WARN,
            "%s: key '%s' is %g and ignored: yarn by a factor of %g scales sine and cosine by %g",
            tti_show_path(t->path), name, stated, stretch, mscale);
    }
    return TT_OK;
}

/* rope.scaling.attn_factor: multiplies sine and cosine whatever the type. A latent attention's
 * softmax scale would change with it. */
static tt_status put_scale(const tti_translation *t)
{
    char name[TTI_GGUF_KEY_BYTES];
    static const double MIN_SCALE = 1e-4, MAX_SCALE = 1e4;
    bool found;
    double scale = 1;
    TT_TRY(tti_gguf_get_real(t, "rope.scaling.attn_factor", &scale, &found));
    if (!found || scale == 1) {
        return TT_OK;
    }
    (void)tti_gguf_find_suffix(t, "rope.scaling.attn_factor", name);
    TT_CHECK(scale >= MIN_SCALE && scale <= MAX_SCALE, TT_ERR_FILE,
             "%s: key '%s' is %g, outside [%g, %g]", tti_show_path(t->path), name, scale, MIN_SCALE,
             MAX_SCALE);
    TT_CHECK(!tti_gguf_int_or(t, "attention.kv_lora_rank", 0), TT_ERR_UNSUPPORTED,
             "%s: key '%s' is %g, which is not supported for this architecture (1 is)",
             tti_show_path(t->path), name, scale);
    return tti_gguf_put_real(t, TTI_ROPE_SCALE_KEY, scale);
}

/* rope.scaling.* of types "linear" and "yarn". */
static tt_status put_factors(const tti_translation *t, const char *type, json_t *scaling)
{
    static const struct {
        const char *suffix, *key;
    } rows[] = {{"rope.scaling.factor", "factor"},
                {"rope.scaling.yarn_beta_fast", "beta_fast"},
                {"rope.scaling.yarn_beta_slow", "beta_slow"},
                {"rope.scaling.yarn_log_multiplier", "mscale_all_dim"}};
    bool found;
    double value = 0;
    int failed = json_object_set_new(scaling, "rope_type", json_string(type));
    int64_t original = tti_gguf_int_or(t, "rope.scaling.original_context_length", 0);
    if (original > 0) {
        failed |= json_object_set_new(scaling, "original_max_position_embeddings",
                                      json_integer(original));
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        TT_TRY(tti_gguf_get_real(t, rows[i].suffix, &value, &found));
        if (!found || (i > 0 && strcmp(type, "yarn") != 0)) {
            continue;
        }
        if (strcmp(rows[i].key, "mscale_all_dim") == 0) {
            /* 0.1 times it, as f32: cut the digits that the f32 adds. mscale is equal in all models
             * that state it. */
            value = round(value * 10 * 1e6) / 1e6;
            failed |= json_object_set_new(scaling, "mscale", json_real(value));
        }
        failed |= json_object_set_new(scaling, rows[i].key, json_real(value));
    }
    TT_CHECK(!failed, TT_ERR_NOMEM, "%s: no memory for its configuration", tti_show_path(t->path));
    return TT_OK;
}

static tt_status fill_rope(const tti_translation *t, json_t *scaling)
{
    char name[TTI_GGUF_KEY_BYTES];
    const tti_gguf_key *key = tti_gguf_find_suffix(t, "rope.scaling.type", name);
    tti_gguf_string type = {"linear", 6}; /* what readers of GGUF take an absent type for */
    bool found;
    double factor = 0;
    if (key && !tti_gguf_text(key, &type)) {
        return tti_gguf_wrong(t, name, "a string");
    }
    TT_TRY(tti_gguf_get_real(t, "rope.scaling.factor", &factor, &found));
    if (!found) {
        TT_TRY(tti_gguf_get_real(t, "rope.scale_linear", &factor, &found)); /* of old files */
    }
    if (tti_gguf_has_tensor(t, "rope_freqs.weight")) {
        TT_CHECK(!found || factor == 0 || factor == 1, TT_ERR_UNSUPPORTED,
                 "%s: tensor 'rope_freqs.weight' and a rope.scaling.factor of %g together are not "
                 "supported",
                 tti_show_path(t->path), factor);
        return put_divisors(t, "rope_freqs.weight", "rope_freqs.weight", scaling);
    }
    if (tti_gguf_has_tensor(t, "rope_factors_long.weight") &&
        tti_gguf_has_tensor(t, "rope_factors_short.weight")) {
        return put_divisors(t, "rope_factors_short.weight", "rope_factors_long.weight", scaling);
    }
    bool yarn = type.n == 4 && memcmp(type.bytes, "yarn", 4) == 0;
    bool linear = type.n == 6 && memcmp(type.bytes, "linear", 6) == 0;
    bool none = type.n == 4 && memcmp(type.bytes, "none", 4) == 0;
    TT_CHECK(yarn || linear || none, TT_ERR_UNSUPPORTED,
             "%s: key '%s' is '%s', which is not supported without its tensors of factors",
             tti_show_path(t->path), name, tti_gguf_show(type).text);
    if (none || !found || factor == 0 || (linear && factor == 1)) {
        return TT_OK;
    }
    TT_TRY(yarn ? check_yarn_factor(t, factor) : TT_OK);
    TT_TRY(put_factors(t, yarn ? "yarn" : "linear", scaling));
    TT_CHECK(json_object_set_new(scaling, "factor", json_real(factor)) == 0, TT_ERR_NOMEM,
             "%s: no memory for its configuration", tti_show_path(t->path));
    return TT_OK;
}

tt_status tti_gguf_put_rope(const tti_translation *t)
{
    TT_TRY(put_scale(t));
    json_t *scaling = json_object();
    TT_CHECK(scaling, TT_ERR_NOMEM, "%s: no memory for its configuration", tti_show_path(t->path));
    tt_status st = fill_rope(t, scaling);
    if (st != TT_OK || json_object_size(scaling) == 0) {
        json_decref(scaling);
        return st;
    }
    return tti_gguf_put(t, "rope_scaling", scaling);
}
