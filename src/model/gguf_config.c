/* gguf_config.c - from GGUF's metadata keys to the configuration object that the families of arch_*.c read.
 *
 * Each architecture string is a row: which family it is, which of GGUF's keys become which of the family's, and a function for
 * what is not one to one. Then nothing is described twice: defaults, limits and refusals are the family's own.
 * Where GGUF has no key, its loaders have a constant: the rows state it (put_*).
 * Source: the keys of the GGUF specification and of llama.cpp's loaders and converter (MODELS facts 9.3). */
#include "gguf_model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/log.h"

enum { KEY_BYTES = 256 };

/* What a translation works on. */
typedef struct translation {
    const tti_gguf_model *model;
    const tti_gguf *gguf;
    const char *path;
    tti_gguf_string architecture;
    json_t *config; /* being made */
    tti_gguf_facts *facts;
} translation;

/* ---- reading keys ---- */

/* The key "ARCHITECTURE.suffix"; NULL: absent. name[KEY_BYTES] gets its name. */
static const tti_gguf_key *find(const translation *t, const char *suffix, char *name)
{
    size_t n = t->architecture.n; /* short: it is in our table */
    memcpy(name, t->architecture.bytes, n);
    name[n] = '.';
    strncpy(name + n + 1, suffix, KEY_BYTES - n - 2);
    name[KEY_BYTES - 1] = 0;
    return tti_gguf_find(t->gguf, name);
}

static tt_status wrong(const translation *t, const char *name, const char *want)
{
    return TT_FAIL(TT_ERR_FILE, "%s: key '%s' is not %s", tti_show_path(t->path), name, want);
}

/* A whole number, which may be stated for each layer: then all that are not 0 must be equal. *found_out: it is there. */
static tt_status get_int(const translation *t, const char *suffix, int64_t *value_out, bool *found_out)
{
    char name[KEY_BYTES];
    const tti_gguf_key *key = find(t, suffix, name);
    *found_out = key != NULL;
    if (!key) {
        return TT_OK;
    }
    int64_t common = 0, value = 0;
    for (uint64_t i = 0; i < key->n; i++) {
        if (!tti_gguf_int(key, i, &value)) {
            return wrong(t, name, "a whole number");
        }
        TT_CHECK(value == 0 || common == 0 || value == common, TT_ERR_UNSUPPORTED, "%s: key '%s' differs from layer to layer (%lld, %lld)",
                 tti_show_path(t->path), name, (long long)common, (long long)value);
        common = value != 0 ? value : common;
    }
    *value_out = common;
    return TT_OK;
}

static tt_status get_real(const translation *t, const char *suffix, double *value_out, bool *found_out)
{
    char name[KEY_BYTES];
    const tti_gguf_key *key = find(t, suffix, name);
    *found_out = key != NULL;
    if (key && (key->is_array || !tti_gguf_real(key, 0, value_out) || !isfinite(*value_out))) {
        return wrong(t, name, "a number");
    }
    return TT_OK;
}

static tt_status get_bool(const translation *t, const char *suffix, bool *value_out, bool *found_out)
{
    char name[KEY_BYTES];
    const tti_gguf_key *key = find(t, suffix, name);
    *found_out = key != NULL;
    return !key || tti_gguf_bool(key, value_out) ? TT_OK : wrong(t, name, "a bool");
}

/* Keys that int_or is asked for. A wrong type is refused before, so that it never passes for absence. */
static tt_status check_types(const translation *t)
{
    static const char *const suffixes[] = {"attention.head_count", "attention.sliding_window", "block_count", "context_length", "embedding_length",
                                           "expert_count", "expert_feed_forward_length", "expert_gating_func", "expert_group_count",
                                           "expert_shared_feed_forward_length", "full_attention_interval", "leading_dense_block_count",
                                           "nextn_predict_layers", "rope.scaling.original_context_length", "ssm.inner_size",
                                           "ssm.time_step_rank"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        int64_t value;
        bool found;
        TT_TRY(get_int(t, suffixes[i], &value, &found));
    }
    return TT_OK;
}

static int64_t int_or(const translation *t, const char *suffix, int64_t fallback)
{
    bool found;
    int64_t value = fallback;
    return get_int(t, suffix, &value, &found) == TT_OK && found ? value : fallback;
}

static bool has_tensor(const translation *t, const char *name)
{
    return tti_table_find(&t->model->checkpoint.table, name) != NULL;
}

/* ---- writing the configuration ---- */

static tt_status put(const translation *t, const char *key, json_t *value)
{
    TT_CHECK(value && json_object_set_new(t->config, key, value) == 0, TT_ERR_NOMEM, "%s: no memory for its configuration",
             tti_show_path(t->path));
    return TT_OK;
}

static tt_status put_int(const translation *t, const char *key, int64_t value)
{
    return put(t, key, json_integer((json_int_t)value));
}

static tt_status put_real(const translation *t, const char *key, double value)
{
    return put(t, key, json_real(value));
}

static tt_status put_bool(const translation *t, const char *key, bool value)
{
    return put(t, key, json_boolean(value));
}

static tt_status put_text(const translation *t, const char *key, const char *value)
{
    return put(t, key, json_string(value));
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
#define ROW_END                                                                                                                \
    {                                                                                                                          \
        NULL, NULL, ROW_INT, ROW_OPTIONAL, 0                                                                                   \
    }

/* What every architecture states. */
static const row common_rows[] = {
    {"embedding_length", "hidden_size", ROW_INT, ROW_REQUIRED, 0},
    {"attention.head_count", "num_attention_heads", ROW_INT, ROW_REQUIRED, 0},
    {"context_length", "max_position_embeddings", ROW_INT, ROW_REQUIRED, 0},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", ROW_REAL, ROW_OPTIONAL, 0},
    {"rope.freq_base", "rope_theta", ROW_REAL, ROW_OR, 10000},
    ROW_END};

static tt_status apply_row(const translation *t, const row *r)
{
    bool found = false, flag = false;
    int64_t whole = 0;
    double real = 0;
    tt_status st = r->kind == ROW_INT ? get_int(t, r->suffix, &whole, &found)
                   : r->kind == ROW_REAL ? get_real(t, r->suffix, &real, &found)
                                         : get_bool(t, r->suffix, &flag, &found);
    TT_TRY(st);
    if (!found) {
        char name[KEY_BYTES];
        (void)find(t, r->suffix, name);
        TT_CHECK(r->need != ROW_REQUIRED, TT_ERR_FILE, "%s: key '%s' is missing", tti_show_path(t->path), name);
        if (r->need == ROW_OPTIONAL) {
            return TT_OK;
        }
        whole = (int64_t)r->fallback;
        real = r->fallback;
        flag = r->fallback != 0;
    }
    return r->kind == ROW_INT ? put_int(t, r->key, whole) : r->kind == ROW_REAL ? put_real(t, r->key, real) : put_bool(t, r->key, flag);
}

static tt_status apply_rows(const translation *t, const row *rows)
{
    for (; rows && rows->suffix; rows++) {
        TT_TRY(apply_row(t, rows));
    }
    return TT_OK;
}

/* ---- what is not one to one ---- */

/* Keys that would change the computation unseen; each with the value that changes nothing. */
static tt_status refuse_unseen(const translation *t)
{
    static const struct {
        const char *suffix;
        double neutral, other; /* both change nothing */
    } rows[] = {{"attn_logit_softcapping", 0, 0},  {"final_logit_softcapping", 0, 0}, {"attention.max_alibi_bias", 0, 0},
                {"attention.causal", 1, 1},        {"use_parallel_residual", 0, 0},   {"expert_group_scale", 0, 1},
                {"attention.temperature_scale", 0, 0}, {"pooling_type", 0, 0},        {"rope.scaling.yarn_ext_factor", 1, 1},
                {"attention.shared_kv_layers", 0, 0},  {"attention.indexer.head_count", 0, 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char name[KEY_BYTES];
        const tti_gguf_key *key = find(t, rows[i].suffix, name);
        double value = 0;
        bool flag = false;
        if (!key) {
            continue;
        }
        if (tti_gguf_bool(key, &flag)) {
            value = flag ? 1 : 0;
        } else if (key->is_array || !tti_gguf_real(key, 0, &value)) {
            return wrong(t, name, "a number or a bool");
        }
        TT_CHECK(value == rows[i].neutral || value == rows[i].other, TT_ERR_UNSUPPORTED, "%s: key '%s' is %g, which is not supported",
                 tti_show_path(t->path), name, value);
    }
    return TT_OK;
}

/* Heads and their widths of grouped-query attention. */
static tt_status put_heads(const translation *t)
{
    bool found;
    int64_t n_q = int_or(t, "attention.head_count", 0), n_kv = n_q, key_width = 0, value_width = 0, rotary = 0;
    TT_TRY(get_int(t, "attention.head_count_kv", &n_kv, &found));
    TT_TRY(put_int(t, "num_key_value_heads", n_kv));
    TT_TRY(get_int(t, "attention.key_length", &key_width, &found));
    if (!found) {
        int64_t H = int_or(t, "embedding_length", 0);
        TT_CHECK(n_q > 0 && H % n_q == 0, TT_ERR_FILE, "%s: embedding_length %lld is no multiple of attention.head_count %lld, and no attention.key_length is given",
                 tti_show_path(t->path), (long long)H, (long long)n_q);
        key_width = H / n_q;
    }
    TT_TRY(put_int(t, "head_dim", key_width));
    TT_TRY(get_int(t, "attention.value_length", &value_width, &found));
    TT_CHECK(!found || value_width == key_width, TT_ERR_UNSUPPORTED, "%s: attention.value_length %lld differs from attention.key_length %lld",
             tti_show_path(t->path), (long long)value_width, (long long)key_width);
    TT_TRY(get_int(t, "rope.dimension_count", &rotary, &found));
    if (found && rotary != key_width) {
        TT_CHECK(rotary > 0 && rotary < key_width, TT_ERR_FILE, "%s: rope.dimension_count %lld is not within 1 and the %lld of a head",
                 tti_show_path(t->path), (long long)rotary, (long long)key_width);
        double part = (double)rotary / (double)key_width;
        while ((int64_t)((double)key_width * part) < rotary) {
            part = nextafter(part, 1); /* so that the family's width * part is rotary again */
        }
        TT_TRY(put_real(t, "partial_rotary_factor", part));
    }
    return TT_OK;
}

/* The numbers of an F32 tensor of one dimension as an array. *array_out is the caller's. */
static tt_status read_factors(const translation *t, const char *name, json_t **array_out)
{
    enum { MAX_FACTORS = 1 << 16 };
    const tti_checkpoint *checkpoint = &t->model->checkpoint;
    const tti_entry *entry = tti_table_find(&checkpoint->table, name);
    const char *path = tti_show_path(checkpoint->file[entry->file_id].path);
    TT_CHECK(strcmp(entry->dtype->name, "F32") == 0 && entry->n_dims == 1 && entry->dim[0] <= MAX_FACTORS, TT_ERR_FILE,
             "%s: tensor '%s' is not a list of F32 numbers", path, name);
    float *factor = malloc((size_t)entry->bytes);
    json_t *array = json_array();
    tt_status st = factor && array ? tti_file_read(&checkpoint->file[entry->file_id], entry->offset, factor, (size_t)entry->bytes)
                                   : TT_FAIL(TT_ERR_NOMEM, "%s: no memory for tensor '%s'", path, name);
    for (int64_t i = 0; st == TT_OK && i < entry->dim[0]; i++) {
        if (!(factor[i] > 0) || !isfinite(factor[i])) {
            st = TT_FAIL(TT_ERR_FILE, "%s: tensor '%s' holds %g, which divides no frequency", path, name, (double)factor[i]);
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

/* Divisors of each frequency, for short and for long contexts: "longrope". rope_freqs has one list for both. */
static tt_status put_divisors(const translation *t, const char *short_name, const char *long_name, json_t *scaling)
{
    bool found, same = strcmp(short_name, long_name) == 0;
    double attention_factor = 1;
    json_t *factor = NULL;
    TT_TRY(read_factors(t, short_name, &factor));
    int failed = json_object_set_new(scaling, "short_factor", factor);
    TT_TRY(read_factors(t, long_name, &factor));
    failed |= json_object_set_new(scaling, "long_factor", factor);
    TT_TRY(get_real(t, "rope.scaling.attn_factor", &attention_factor, &found));
    int64_t context = int_or(t, "context_length", 1), original = same ? context : int_or(t, "rope.scaling.original_context_length", context);
    failed |= json_object_set_new(scaling, "attention_factor", json_real(same || !found ? 1 : attention_factor));
    failed |= json_object_set_new(scaling, "original_max_position_embeddings", json_integer(original));
    failed |= json_object_set_new(scaling, "rope_type", json_string("longrope"));
    TT_CHECK(!failed, TT_ERR_NOMEM, "%s: no memory for its configuration", tti_show_path(t->path));
    return TT_OK;
}

/* rope.scaling.* of types "linear" and "yarn". */
static tt_status put_factors(const translation *t, const char *type, json_t *scaling)
{
    static const struct {
        const char *suffix, *key;
    } rows[] = {{"rope.scaling.factor", "factor"},
                {"rope.scaling.yarn_beta_fast", "beta_fast"},
                {"rope.scaling.yarn_beta_slow", "beta_slow"},
                {"rope.scaling.yarn_attn_factor", "attention_factor"},
                {"rope.scaling.yarn_log_multiplier", "mscale_all_dim"}};
    bool found;
    double value = 0;
    int failed = json_object_set_new(scaling, "rope_type", json_string(type));
    int64_t original = int_or(t, "rope.scaling.original_context_length", 0);
    if (original > 0) {
        failed |= json_object_set_new(scaling, "original_max_position_embeddings", json_integer(original));
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        TT_TRY(get_real(t, rows[i].suffix, &value, &found));
        if (!found || (i > 0 && strcmp(type, "yarn") != 0)) {
            continue;
        }
        if (strcmp(rows[i].key, "mscale_all_dim") == 0) {
            /* 0.1 times it, as f32: cut the digits that the f32 adds. mscale is equal in all models that state it. */
            value = round(value * 10 * 1e6) / 1e6;
            failed |= json_object_set_new(scaling, "mscale", json_real(value));
        }
        failed |= json_object_set_new(scaling, rows[i].key, json_real(value));
    }
    TT_CHECK(!failed, TT_ERR_NOMEM, "%s: no memory for its configuration", tti_show_path(t->path));
    return TT_OK;
}

static tt_status fill_rope(const translation *t, json_t *scaling)
{
    char name[KEY_BYTES];
    const tti_gguf_key *key = find(t, "rope.scaling.type", name);
    tti_gguf_string type = {"none", 4};
    bool found;
    double factor = 0;
    if (key && !tti_gguf_text(key, &type)) {
        return wrong(t, name, "a string");
    }
    if (has_tensor(t, "rope_freqs.weight")) {
        return put_divisors(t, "rope_freqs.weight", "rope_freqs.weight", scaling);
    }
    if (has_tensor(t, "rope_factors_long.weight") && has_tensor(t, "rope_factors_short.weight")) {
        return put_divisors(t, "rope_factors_short.weight", "rope_factors_long.weight", scaling);
    }
    bool yarn = type.n == 4 && memcmp(type.bytes, "yarn", 4) == 0;
    bool linear = type.n == 6 && memcmp(type.bytes, "linear", 6) == 0;
    bool none = type.n == 4 && memcmp(type.bytes, "none", 4) == 0;
    TT_CHECK(yarn || linear || none, TT_ERR_UNSUPPORTED, "%s: key '%s' is '%s', which is not supported without its tensors of factors",
             tti_show_path(t->path), name, tti_gguf_show(type).text);
    TT_TRY(get_real(t, "rope.scaling.factor", &factor, &found));
    if (none || !found || factor == 0 || (linear && factor == 1)) {
        return TT_OK;
    }
    return put_factors(t, yarn ? "yarn" : "linear", scaling);
}

static tt_status put_rope(const translation *t)
{
    json_t *scaling = json_object();
    TT_CHECK(scaling, TT_ERR_NOMEM, "%s: no memory for its configuration", tti_show_path(t->path));
    tt_status st = fill_rope(t, scaling);
    if (st != TT_OK || json_object_size(scaling) == 0) {
        json_decref(scaling);
        return st;
    }
    return put(t, "rope_scaling", scaling);
}

/* expert_gating_func, which must be what the architecture computes; absent and 0 leave it open. */
enum { GATING_OPEN = 0, GATING_SOFTMAX = 1, GATING_SIGMOID = 2, GATING_SOFTMAX_CHOSEN = 3 };
static tt_status check_gating(const translation *t, int64_t want)
{
    int64_t gating = int_or(t, "expert_gating_func", GATING_OPEN);
    TT_CHECK(gating == GATING_OPEN || gating == want, TT_ERR_UNSUPPORTED,
             "%s: key '%s.expert_gating_func' is %lld, which is not supported for this architecture (%lld is)", tti_show_path(t->path),
             tti_gguf_show(t->architecture).text, (long long)gating, (long long)want);
    return TT_OK;
}

/* Layers that predict further tokens are counted as blocks. */
static tt_status put_layers(const translation *t)
{
    bool found;
    int64_t blocks = 0, nextn = int_or(t, "nextn_predict_layers", 0);
    TT_TRY(get_int(t, "block_count", &blocks, &found));
    TT_CHECK(found && nextn >= 0 && blocks > nextn, TT_ERR_FILE, "%s: key '%s.block_count' is missing or below nextn_predict_layers",
             tti_show_path(t->path), tti_gguf_show(t->architecture).text);
    TT_TRY(put_int(t, "num_hidden_layers", blocks - nextn));
    return nextn > 0 ? put_int(t, "num_nextn_predict_layers", nextn) : TT_OK;
}

/* The rows of the embedding count, whatever vocab_size says: tokenizers may know fewer ids. */
static tt_status put_vocabulary(const translation *t)
{
    const tti_entry *entry = tti_table_find(&t->model->checkpoint.table, "token_embd.weight");
    TT_CHECK(entry && entry->n_dims == 2, TT_ERR_FILE, "%s: tensor 'token_embd.weight' is missing or not a matrix", tti_show_path(t->path));
    TT_TRY(put_int(t, "vocab_size", entry->dim[0]));
    return put_bool(t, "tie_word_embeddings", !has_tensor(t, "output.weight"));
}

/* The ids that end a text, for files whose tokenizer is not asked. */
static tt_status put_end_ids(const translation *t)
{
    static const char *const names[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    json_t *ids = json_array();
    TT_CHECK(ids, TT_ERR_NOMEM, "%s: no memory for its configuration", tti_show_path(t->path));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const tti_gguf_key *key = tti_gguf_find(t->gguf, names[i]);
        int64_t id = -1;
        if (key && (key->is_array || !tti_gguf_int(key, 0, &id))) {
            json_decref(ids);
            return wrong(t, names[i], "a whole number");
        }
        /* -1 and 2^32 - 1 are ways to say none. */
        if (key && id >= 0 && id < INT32_MAX && json_array_append_new(ids, json_integer(id)) != 0) {
            json_decref(ids);
            return TT_FAIL(TT_ERR_NOMEM, "%s: no memory for its configuration", tti_show_path(t->path));
        }
    }
    return put(t, "eos_token_id", ids);
}

/* ---- architectures ---- */

static tt_status finish_llama(translation *t)
{
    t->facts->interleaved = true;
    bool moe = int_or(t, "expert_count", 0) > 0;
    TT_TRY(put_text(t, "model_type", moe ? "mixtral" : "llama"));
    if (moe) {
        return check_gating(t, GATING_SOFTMAX);
    }
    TT_TRY(put_bool(t, "attention_bias", has_tensor(t, "blk.0.attn_q.bias")));
    return TT_OK;
}

/* Widths and ranks of latent attention. Newer files state the widths of the absorbed form as key_length and value_length, and the
 * heads' own under _mla. */
static tt_status put_latent(translation *t)
{
    bool found;
    int64_t rotary = 0, key_width = 0, value_width = 0, q_rank = 0;
    TT_TRY(get_int(t, "rope.dimension_count", &rotary, &found));
    TT_TRY(get_int(t, "attention.key_length_mla", &key_width, &found));
    if (!found) {
        TT_TRY(get_int(t, "attention.key_length", &key_width, &found));
        TT_TRY(get_int(t, "attention.value_length", &value_width, &found));
    } else {
        TT_TRY(get_int(t, "attention.value_length_mla", &value_width, &found));
    }
    TT_CHECK(rotary > 0 && key_width > rotary && found, TT_ERR_FILE,
             "%s: attention.key_length(_mla) %lld, attention.value_length(_mla) %lld and rope.dimension_count %lld are no widths of latent attention",
             tti_show_path(t->path), (long long)key_width, (long long)value_width, (long long)rotary);
    TT_TRY(put_int(t, "qk_rope_head_dim", rotary));
    TT_TRY(put_int(t, "qk_nope_head_dim", key_width - rotary));
    TT_TRY(put_int(t, "v_head_dim", value_width));
    TT_TRY(get_int(t, "attention.q_lora_rank", &q_rank, &found));
    TT_TRY(put(t, "q_lora_rank", found && q_rank > 0 ? json_integer(q_rank) : json_null()));
    t->facts->mla_split = has_tensor(t, "blk.0.attn_k_b.weight");
    return TT_OK;
}

static tt_status finish_deepseek2(translation *t)
{
    int64_t gating = int_or(t, "expert_gating_func", GATING_OPEN), groups = int_or(t, "expert_group_count", 1);
    int64_t dense = int_or(t, "leading_dense_block_count", 0);
    char bias[KEY_BYTES];
    snprintf(bias, sizeof(bias), "blk.%lld.exp_probs_b.bias", (long long)dense);
    if (gating == GATING_OPEN) { /* files of V2's time do not say */
        gating = has_tensor(t, bias) ? GATING_SIGMOID : GATING_SOFTMAX;
    }
    TT_CHECK(gating == GATING_SOFTMAX || gating == GATING_SIGMOID, TT_ERR_UNSUPPORTED, "%s: key 'deepseek2.expert_gating_func' is %lld, which is not supported",
             tti_show_path(t->path), (long long)gating);
    bool v3 = gating == GATING_SIGMOID;
    TT_TRY(put_text(t, "model_type", v3 ? "deepseek_v3" : "deepseek_v2"));
    if (!v3) {
        TT_TRY(put_text(t, "topk_method", groups > 1 ? "group_limited_greedy" : "greedy"));
    }
    return put_latent(t);
}

static tt_status finish_glm4moe(translation *t)
{
    TT_TRY(check_gating(t, GATING_SIGMOID));
    TT_TRY(put_bool(t, "attention_bias", has_tensor(t, "blk.0.attn_q.bias")));
    return put_bool(t, "use_qk_norm", has_tensor(t, "blk.0.attn_q_norm.weight"));
}

/* One name of a layer's kind for each layer; kind[1] where `is` says so. */
static tt_status put_layer_types(const translation *t, const char *const kind[2], bool (*is)(int64_t layer, int64_t period), int64_t period)
{
    json_t *types = json_array();
    int64_t n = int_or(t, "block_count", 0) - int_or(t, "nextn_predict_layers", 0);
    TT_CHECK(n <= TTI_MAX_LAYERS, TT_ERR_FILE, "%s: %lld layers are more than a model may have", tti_show_path(t->path), (long long)n);
    int failed = types == NULL;
    for (int64_t i = 0; i < n && !failed; i++) {
        failed = json_array_append_new(types, json_string(kind[is(i, period)]));
    }
    if (failed) {
        json_decref(types);
        types = NULL; /* put() says that memory is short */
    }
    return put(t, "layer_types", types);
}

static bool is_every(int64_t layer, int64_t period)
{
    return (layer + 1) % period == 0;
}

static tt_status finish_gpt_oss(translation *t)
{
    static const char *const kinds[] = {"sliding_attention", "full_attention"};
    TT_TRY(check_gating(t, GATING_SOFTMAX_CHOSEN));
    TT_TRY(put_bool(t, "attention_bias", true));
    json_t *scaling = json_object_get(t->config, "rope_scaling");
    TT_CHECK(!scaling || json_object_set_new(scaling, "truncate", json_false()) == 0, TT_ERR_NOMEM, "%s: no memory for its configuration",
             tti_show_path(t->path));
    return put_layer_types(t, kinds, is_every, 2);
}

static tt_status finish_granitemoe(translation *t)
{
    t->facts->interleaved = true;
    bool shared = int_or(t, "expert_shared_feed_forward_length", 0) > 0;
    json_t *names = json_pack("[s]", shared ? "GraniteMoeSharedForCausalLM" : "GraniteMoeForCausalLM");
    TT_TRY(put(t, "architectures", names));
    return put_text(t, "model_type", shared ? "granitemoeshared" : "granitemoe");
}

static tt_status finish_phimoe(translation *t)
{
    TT_TRY(check_gating(t, GATING_SOFTMAX));
    TT_TRY(put_bool(t, "attention_bias", has_tensor(t, "blk.0.attn_q.bias") || has_tensor(t, "blk.0.attn_qkv.bias")));
    /* Both multipliers of the cosines and sines are equal in the released model, and the file has one. */
    const json_t *factor = json_object_get(json_object_get(t->config, "rope_scaling"), "attention_factor");
    if (factor) {
        json_t *scaling = json_object_get(t->config, "rope_scaling");
        double value = json_number_value(factor);
        int failed = json_object_del(scaling, "attention_factor");
        failed |= json_object_set_new(scaling, "short_mscale", json_real(value));
        failed |= json_object_set_new(scaling, "long_mscale", json_real(value));
        TT_CHECK(!failed, TT_ERR_NOMEM, "%s: no memory for its configuration", tti_show_path(t->path));
    }
    return put_bool(t, "lm_head_bias", has_tensor(t, "output.bias"));
}

static tt_status finish_sigmoid(translation *t)
{
    return check_gating(t, GATING_SIGMOID);
}

static tt_status finish_softmax(translation *t)
{
    return check_gating(t, GATING_SOFTMAX);
}

/* Layers without a router are dense; no key says which. */
static tt_status put_dense_layers(const translation *t)
{
    json_t *layers = json_array();
    int64_t n = int_or(t, "block_count", 0) - int_or(t, "nextn_predict_layers", 0);
    int failed = layers == NULL;
    for (int64_t i = 0; i < n && i < TTI_MAX_LAYERS && !failed; i++) {
        char name[KEY_BYTES];
        snprintf(name, sizeof(name), "blk.%lld.ffn_gate_inp.weight", (long long)i);
        failed = !has_tensor(t, name) && json_array_append_new(layers, json_integer(i)) != 0;
    }
    if (failed) {
        json_decref(layers);
        layers = NULL; /* put() says that memory is short */
    }
    return put(t, "mlp_only_layers", layers);
}

static tt_status finish_qwen3moe(translation *t)
{
    TT_TRY(check_gating(t, GATING_SOFTMAX));
    return put_dense_layers(t);
}

static tt_status finish_qwen2moe(translation *t)
{
    TT_TRY(finish_qwen3moe(t));
    return put_bool(t, "qkv_bias", has_tensor(t, "blk.0.attn_q.bias") || has_tensor(t, "blk.0.attn_qkv.bias"));
}

/* Shared experts of ERNIE are as wide as routed ones, each. */
static tt_status finish_ernie(translation *t)
{
    const tti_entry *up = NULL;
    int64_t F = int_or(t, "expert_feed_forward_length", 0), dense = int_or(t, "leading_dense_block_count", 0);
    char name[KEY_BYTES];
    snprintf(name, sizeof(name), "blk.%lld.ffn_up_shexp.weight", (long long)dense);
    up = tti_table_find(&t->model->checkpoint.table, name);
    TT_CHECK(!up || (F > 0 && up->dim[0] % F == 0), TT_ERR_FILE, "%s: tensor '%s' is no multiple of expert_feed_forward_length %lld wide",
             tti_show_path(t->path), name, (long long)F);
    TT_TRY(put_int(t, "moe_num_shared_experts", up ? up->dim[0] / F : 0));
    return check_gating(t, GATING_SOFTMAX);
}

/* Three layers attend in chunks with a rotary embedding, each fourth to all without. A window of 0 says that all attend to all. */
static tt_status finish_llama4(translation *t)
{
    enum { CHUNK = 8192, PERIOD = 4, EXPERTS_WITHOUT_QK_NORM = 128 };
    bool found;
    int64_t window = CHUNK;
    TT_TRY(check_gating(t, GATING_SIGMOID));
    TT_TRY(put(t, "architectures", json_pack("[s]", "Llama4ForCausalLM"))); /* the text model alone */
    TT_TRY(get_int(t, "attention.sliding_window", &window, &found));
    TT_TRY(put_int(t, "attention_chunk_size", window > 0 ? window : int_or(t, "context_length", CHUNK)));
    TT_TRY(put_int(t, "no_rope_layer_interval", window > 0 ? PERIOD : int_or(t, "block_count", 0) + 1));
    /* No key says it; of the released models that of 128 experts has none. */
    return put_bool(t, "use_qk_norm", int_or(t, "expert_count", 0) != EXPERTS_WITHOUT_QK_NORM);
}

static tt_status finish_qwen3next(translation *t)
{
    static const char *const kinds[] = {"linear_attention", "full_attention"};
    int64_t inner = int_or(t, "ssm.inner_size", 0), n_v = int_or(t, "ssm.time_step_rank", 0);
    char name[KEY_BYTES];
    TT_CHECK(n_v > 0 && inner % n_v == 0, TT_ERR_FILE, "%s: ssm.inner_size %lld is no multiple of ssm.time_step_rank %lld",
             tti_show_path(t->path), (long long)inner, (long long)n_v);
    TT_TRY(put_int(t, "linear_value_head_dim", inner / n_v));
    TT_TRY(check_gating(t, GATING_SOFTMAX));
    const tti_gguf_key *key = find(t, "attention.recurrent_layers", name);
    if (!key) {
        int64_t period = int_or(t, "full_attention_interval", 4);
        TT_CHECK(period > 0, TT_ERR_FILE, "%s: full_attention_interval is %lld", tti_show_path(t->path), (long long)period);
        return put_layer_types(t, kinds, is_every, period);
    }
    int64_t n = int_or(t, "block_count", 0) - int_or(t, "nextn_predict_layers", 0);
    TT_CHECK(key->is_array && key->type == TTI_GGUF_BOOL && n > 0 && key->n >= (uint64_t)n, TT_ERR_FILE,
             "%s: key '%s' is not an array of a bool for each layer", tti_show_path(t->path), name);
    json_t *types = json_array();
    int failed = types == NULL;
    for (int64_t i = 0; i < n && !failed; i++) {
        failed = json_array_append_new(types, json_string(kinds[key->bytes[i] == 0]));
    }
    if (failed) {
        json_decref(types);
        types = NULL;
    }
    return put(t, "layer_types", types);
}

#define EXPERTS(key)                                                                                                           \
    {"expert_count", key, ROW_INT, ROW_REQUIRED, 0}, {"expert_used_count", "num_experts_per_tok", ROW_INT, ROW_REQUIRED, 0}
#define WIDTH(need) {"feed_forward_length", "intermediate_size", ROW_INT, need, 0}
#define EXPERT_WIDTH {"expert_feed_forward_length", "moe_intermediate_size", ROW_INT, ROW_REQUIRED, 0}
/* Of DeepSeek-V3's kin. */
#define ROUTER(norm)                                                                                                           \
    {"expert_shared_count", "n_shared_experts", ROW_INT, ROW_OR, 0},                                                           \
        {"leading_dense_block_count", "first_k_dense_replace", ROW_INT, ROW_OR, 0},                                            \
        {"expert_weights_scale", "routed_scaling_factor", ROW_REAL, ROW_OR, 1},                                                \
        {"expert_weights_norm", "norm_topk_prob", ROW_BOOL, ROW_OR, norm}, {"expert_group_count", "n_group", ROW_INT, ROW_OR, 1}, \
        {"expert_group_used_count", "topk_group", ROW_INT, ROW_OR, 1}

static const row llama_rows[] = {WIDTH(ROW_REQUIRED),
                                 {"expert_count", "num_local_experts", ROW_INT, ROW_OPTIONAL, 0},
                                 {"expert_used_count", "num_experts_per_tok", ROW_INT, ROW_OPTIONAL, 0},
                                 ROW_END};
static const row dense_rows[] = {WIDTH(ROW_REQUIRED), ROW_END};
static const row olmoe_rows[] = {EXPERTS("num_experts"), WIDTH(ROW_REQUIRED), {"attention.clamp_kqv", "clip_qkv", ROW_REAL, ROW_OPTIONAL, 0},
                                 {"expert_weights_norm", "norm_topk_prob", ROW_BOOL, ROW_OR, 0}, ROW_END};
static const row qwen2moe_rows[] = {EXPERTS("num_experts"), WIDTH(ROW_OPTIONAL), EXPERT_WIDTH,
                                    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", ROW_INT, ROW_REQUIRED, 0},
                                    {"expert_weights_norm", "norm_topk_prob", ROW_BOOL, ROW_OR, 0}, ROW_END};
static const row qwen3moe_rows[] = {EXPERTS("num_experts"), WIDTH(ROW_OPTIONAL), EXPERT_WIDTH,
                                    {"expert_weights_norm", "norm_topk_prob", ROW_BOOL, ROW_OR, 1}, ROW_END};
static const row qwen3next_rows[] = {EXPERTS("num_experts"), WIDTH(ROW_OPTIONAL), EXPERT_WIDTH,
                                     {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", ROW_INT, ROW_REQUIRED, 0},
                                     {"expert_weights_norm", "norm_topk_prob", ROW_BOOL, ROW_OR, 1},
                                     {"ssm.conv_kernel", "linear_conv_kernel_dim", ROW_INT, ROW_REQUIRED, 0},
                                     {"ssm.state_size", "linear_key_head_dim", ROW_INT, ROW_REQUIRED, 0},
                                     {"ssm.group_count", "linear_num_key_heads", ROW_INT, ROW_REQUIRED, 0},
                                     {"ssm.time_step_rank", "linear_num_value_heads", ROW_INT, ROW_REQUIRED, 0}, ROW_END};
static const row deepseek2_rows[] = {EXPERTS("n_routed_experts"), WIDTH(ROW_REQUIRED), EXPERT_WIDTH, ROUTER(0),
                                     {"attention.kv_lora_rank", "kv_lora_rank", ROW_INT, ROW_REQUIRED, 0}, ROW_END};
static const row glm4moe_rows[] = {EXPERTS("n_routed_experts"), WIDTH(ROW_REQUIRED), EXPERT_WIDTH, ROUTER(1), ROW_END};
static const row dots1_rows[] = {EXPERTS("n_routed_experts"), WIDTH(ROW_REQUIRED), EXPERT_WIDTH, ROUTER(0), ROW_END};
static const row gpt_oss_rows[] = {EXPERTS("num_local_experts"),
                                   {"expert_feed_forward_length", "intermediate_size", ROW_INT, ROW_REQUIRED, 0},
                                   {"attention.sliding_window", "sliding_window", ROW_INT, ROW_REQUIRED, 0}, ROW_END};
static const row granitemoe_rows[] = {EXPERTS("num_local_experts"), WIDTH(ROW_REQUIRED),
                                      {"expert_shared_feed_forward_length", "shared_intermediate_size", ROW_INT, ROW_OPTIONAL, 0},
                                      {"attention.scale", "attention_multiplier", ROW_REAL, ROW_OPTIONAL, 0},
                                      {"embedding_scale", "embedding_multiplier", ROW_REAL, ROW_OPTIONAL, 0},
                                      {"residual_scale", "residual_multiplier", ROW_REAL, ROW_OPTIONAL, 0},
                                      {"logit_scale", "logits_scaling", ROW_REAL, ROW_OPTIONAL, 0}, ROW_END};
static const row phimoe_rows[] = {EXPERTS("num_local_experts"), WIDTH(ROW_REQUIRED), ROW_END};
static const row minimax_rows[] = {EXPERTS("num_local_experts"), {"expert_feed_forward_length", "intermediate_size", ROW_INT, ROW_REQUIRED, 0},
                                   ROW_END};
static const row ernie_rows[] = {{"expert_count", "moe_num_experts", ROW_INT, ROW_REQUIRED, 0},
                                 {"expert_used_count", "moe_k", ROW_INT, ROW_REQUIRED, 0}, WIDTH(ROW_REQUIRED), EXPERT_WIDTH,
                                 {"leading_dense_block_count", "moe_layer_start_index", ROW_INT, ROW_OR, 0},
                                 {"interleave_moe_layer_step", "moe_layer_interval", ROW_INT, ROW_OR, 1}, ROW_END};
static const row llama4_rows[] = {EXPERTS("num_local_experts"), {"expert_feed_forward_length", "intermediate_size", ROW_INT, ROW_REQUIRED, 0},
                                  {"feed_forward_length", "intermediate_size_mlp", ROW_INT, ROW_REQUIRED, 0},
                                  {"interleave_moe_layer_step", "interleave_moe_layer_step", ROW_INT, ROW_REQUIRED, 0}, ROW_END};
static const row hunyuan_rows[] = {{"expert_count", "num_experts", ROW_INT, ROW_REQUIRED, 0}, {"expert_used_count", "moe_topk", ROW_INT, ROW_REQUIRED, 0},
                                   WIDTH(ROW_REQUIRED), EXPERT_WIDTH, {"expert_shared_count", "num_shared_expert", ROW_INT, ROW_OR, 1}, ROW_END};

/* One of GGUF's architectures. */
typedef struct gguf_arch {
    const char *name;       /* general.architecture */
    const char *model_type; /* of the family; NULL: finish() says */
    const row *rows;
    tt_status (*finish)(translation *t); /* NULL: nothing more */
    bool latent;                         /* attention has no heads of keys of its own */
} gguf_arch;
static const gguf_arch archs[] = {{"llama", NULL, llama_rows, finish_llama, false},
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

static tt_status find_arch(const translation *t, const gguf_arch **arch_out)
{
    char known[KNOWN_BYTES];
    size_t used = 0;
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (strlen(archs[i].name) == t->architecture.n && memcmp(archs[i].name, t->architecture.bytes, t->architecture.n) == 0) {
            *arch_out = &archs[i];
            return TT_OK;
        }
        if (used < sizeof(known)) {
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", archs[i].name);
        }
    }
    return TT_FAIL(TT_ERR_UNSUPPORTED, "%s: general.architecture '%s' is not supported; supported are %s", tti_show_path(t->path),
                   tti_gguf_show(t->architecture).text, known);
}

static tt_status translate(translation *t)
{
    const gguf_arch *arch = NULL;
    const tti_gguf_key *key = tti_gguf_find(t->gguf, "general.architecture");
    TT_CHECK(key, TT_ERR_FILE, "%s: key 'general.architecture' is missing", tti_show_path(t->path));
    TT_CHECK(tti_gguf_text(key, &t->architecture), TT_ERR_FILE, "%s: key 'general.architecture' is not a string", tti_show_path(t->path));
    TT_TRY(find_arch(t, &arch));
    TT_TRY(check_types(t));
    TT_TRY(refuse_unseen(t));
    if (arch->model_type) {
        TT_TRY(put_text(t, "model_type", arch->model_type));
    }
    TT_TRY(apply_rows(t, common_rows));
    TT_TRY(apply_rows(t, arch->rows));
    TT_TRY(put_layers(t));
    TT_TRY(put_vocabulary(t));
    TT_TRY(put_end_ids(t));
    TT_TRY(put_rope(t));
    if (!arch->latent) {
        TT_TRY(put_heads(t));
    }
    return arch->finish ? arch->finish(t) : TT_OK;
}

tt_status tti_gguf_config(const tti_gguf_model *model, json_t **config_out, tti_gguf_facts *facts_out)
{
    *facts_out = (tti_gguf_facts){0};
    translation t = {.model = model, .gguf = &model->header.gguf, .path = model->header.gguf.path, .config = json_object(), .facts = facts_out};
    TT_CHECK(t.config, TT_ERR_NOMEM, "%s: no memory for its configuration", tti_show_path(t.path));
    tt_status st = translate(&t);
    if (st != TT_OK) {
        json_decref(t.config);
        return st;
    }
    *config_out = t.config;
    return TT_OK;
}
