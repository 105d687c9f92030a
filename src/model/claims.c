/* claims.c - tensors that no role has taken: a checkpoint that holds a bias, a gate or a sink more than its configuration describes is another
 * model than the one that would be computed, so it is refused.
 *
 * Looking a tensor up by name claims it (source_make.c, panels.c, gguf_rope.c); what is left over at the end is held against the list here of what
 * changes no logit. One pass over the table, each name against a list of fixed length. */
#include "model_internal.h"
#include <stdlib.h>
#include <string.h>
#include "tutti/log.h"

typedef enum claim_kind {
    CLAIM_NONE,    /* unknown: refused */
    CLAIM_USELESS, /* tables that are computed anew, scales of what is not stored, copies */
    CLAIM_LATER,   /* layers that predict further tokens and are not run */
    CLAIM_PART,    /* pictures and sound: the text model is computed without */
    CLAIM_IF_ZERO  /* added to something: harmless if all its numbers are 0 */
} claim_kind;

typedef struct claim {
    const char *text;
    claim_kind kind;
} claim;

/* By the beginning of a name: parts beside the text model. */
static const claim beginnings[] = {
    {"mtp.", CLAIM_LATER},
    {"model.mtp", CLAIM_LATER},
    {"vision_model.", CLAIM_PART},
    {"model.vision_model.", CLAIM_PART},
    {"vision_tower.", CLAIM_PART},
    {"model.vision_tower.", CLAIM_PART},
    {"visual.", CLAIM_PART},
    {"model.visual.", CLAIM_PART},
    {"multi_modal_projector.", CLAIM_PART},
    {"model.multi_modal_projector.", CLAIM_PART},
    {"mm_projector.", CLAIM_PART},
    {"audio_tower.", CLAIM_PART},
    {"model.audio_tower.", CLAIM_PART},
};
/* By the end of a name. The scales are of activations and of caches of keys and values, which other runtimes round to few bits. */
static const claim endings[] = {
    {"rotary_emb.inv_freq", CLAIM_USELESS},
    {"rotary_emb.original_inv_freq", CLAIM_USELESS},
    {"rotary_emb.cos_cached", CLAIM_USELESS},
    {"rotary_emb.sin_cached", CLAIM_USELESS},
    {".attn_rot_embd.weight", CLAIM_USELESS},
    {"input_scale", CLAIM_USELESS},
    {".activation_scale", CLAIM_USELESS},
    {".act_scale", CLAIM_USELESS},
    {"input_zero_point", CLAIM_USELESS},
    {"output_scale", CLAIM_USELESS},
    {"output_zero_point", CLAIM_USELESS},
    {".q_scale", CLAIM_USELESS},
    {".k_scale", CLAIM_USELESS},
    {".v_scale", CLAIM_USELESS},
    {".kv_scale", CLAIM_USELESS},
    {".prob_scale", CLAIM_USELESS},
    {".bias", CLAIM_IF_ZERO},
    {"_zero_point", CLAIM_IF_ZERO},
};

static bool begins(const char *name, const char *text)
{
    return strncmp(name, text, strlen(text)) == 0;
}

static bool ends(const char *name, const char *text)
{
    size_t n = strlen(name), n_text = strlen(text);
    return n >= n_text && strcmp(name + n - n_text, text) == 0;
}

/* The layer of a name like that of the norm before attention; -1: it is of none. */
static int64_t layer_of(const tti_claims *claims, const char *name)
{
    const char *pattern = tti_role_names(claims->family, TT_ROLE_ATTENTION_NORM)[0];
    size_t n_prefix = strlen(claims->prefix), n = strcspn(pattern, "%");
    if (strncmp(name, claims->prefix, n_prefix) != 0 || strncmp(name + n_prefix, pattern, n) != 0) {
        return -1;
    }
    const char *digits = name + n_prefix + n;
    char *end = NULL;
    long long layer = digits[0] >= '0' && digits[0] <= '9' ? strtoll(digits, &end, 10) : -1;
    return layer >= 0 && *end == '.' ? layer : -1;
}

/* Layers behind the last one, where the configuration states that so many predict further tokens, or where roles.c found them. */
static bool is_later_layer(const tti_claims *claims, int64_t layer)
{
    static const char *const keys[] = {"num_nextn_predict_layers", "num_mtp_modules"};
    int64_t n = claims->arch->n_mtp;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        int64_t stated = json_integer_value(json_object_get(claims->config, keys[i]));
        n = stated > n ? stated : n;
    }
    return layer >= claims->arch->L && layer - claims->arch->L < n;
}

/* A head that is stored although it is the embedding; its bias would be something else. */
static bool is_tied_copy(const tti_claims *claims, const char *name)
{
    const char *head = tti_role_names(claims->family, TT_ROLE_HEAD)[0];
    size_t n_prefix = strlen(claims->prefix), n = strlen(head) - strlen("weight");
    return claims->arch->tied_embeddings && begins(name, claims->prefix) &&
           strncmp(name + n_prefix, head, n) == 0 && !ends(name, ".bias");
}

/* Some GGUF files hold latent attention's matrix of keys and values whole beside its two parts, which are what is computed with. */
static bool is_whole_copy(const tti_claims *claims, const char *name)
{
    int64_t layer = layer_of(claims, name);
    return claims->arch->mla_split && layer >= 0 && layer < claims->arch->L &&
           ends(name, ".attn_kv_b.weight");
}

static claim_kind kind_of(const tti_claims *claims, const char *name)
{
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
        if (begins(name, beginnings[i].text)) {
            return beginnings[i].kind;
        }
    }
    if (is_later_layer(claims, layer_of(claims, name))) {
        return CLAIM_LATER;
    }
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        if (ends(name, endings[i].text)) {
            return endings[i].kind;
        }
    }
    return is_tied_copy(claims, name) || is_whole_copy(claims, name) ? CLAIM_USELESS : CLAIM_NONE;
}

/* Bytes of a number of a type that has a sign bit, on top, beside a zero; 1: each byte is to be 0. */
static size_t float_bytes(const tti_dtype_info *dtype)
{
    static const char *const names[] = {"F64", "F32", "F16", "BF16"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(dtype->name, names[i]) == 0) {
            return (size_t)dtype->bits / 8;
        }
    }
    return 1;
}

static tt_status check_zeros(const tti_file *file, const tti_entry *entry, bool *zeros_out)
{
    enum { PIECE_BYTES = 16 << 10, MAX_BYTES = 64 << 20 };
    unsigned char piece[PIECE_BYTES];
    size_t number = float_bytes(entry->dtype);
    *zeros_out = entry->bytes <= MAX_BYTES;
    for (uint64_t done = 0; *zeros_out && done < entry->bytes; done += PIECE_BYTES) {
        size_t n = entry->bytes - done < PIECE_BYTES ? (size_t)(entry->bytes - done) : PIECE_BYTES;
        TT_TRY(tti_file_read(file, entry->offset + done, piece, n));
        for (size_t i = 0; i < n; i++) {
            bool signed_byte = number > 1 && i % number == number - 1; /* -0.0 is 0 too */
            *zeros_out = *zeros_out && (piece[i] & (signed_byte ? 0x7f : 0xff)) == 0;
        }
    }
    return TT_OK;
}

/* Says once what of the model is not computed. */
static void report_parts(const tti_claims *claims, const char *first, size_t n)
{
    if (n > 0) {
        tt_log(TT_LOG_WARN,
               "%s: %zu tensors ('%s' and so on) are of parts for pictures or sound, which are not "
               "run: text only",
               tti_show_path(claims->checkpoint->source), n, tti_show(first).text);
    }
}

tt_status tti_claims_check(const tti_claims *claims)
{
    const tti_checkpoint *checkpoint = claims->checkpoint;
    const tti_entry *refused = NULL, *part = NULL;
    size_t n_refused = 0, n_parts = 0;
    for (size_t i = 0; i < checkpoint->table.n; i++) {
        const tti_entry *entry = &checkpoint->table.entry[i];
        if (entry->claimed) {
            continue;
        }
        claim_kind kind = kind_of(claims, entry->name);
        bool zeros = false;
        if (kind == CLAIM_IF_ZERO) {
            TT_TRY(check_zeros(&checkpoint->file[entry->file_id], entry, &zeros));
        }
        if (kind == CLAIM_PART) {
            part = part ? part : entry;
            n_parts++;
        } else if (kind == CLAIM_NONE || (kind == CLAIM_IF_ZERO && !zeros)) {
            refused = refused ? refused : entry;
            n_refused++;
        }
    }
    if (n_refused > 0) {
        char more[48] = "";
        snprintf(more, sizeof(more), " (and %zu more)", n_refused - 1);
        return TT_FAIL(TT_ERR_UNSUPPORTED,
                       "%s: tensor '%s'%s has no place in %s as the configuration describes it: "
                       "results would lack it",
                       tti_show_path(checkpoint->file[refused->file_id].path),
                       tti_show(refused->name).text, n_refused > 1 ? more : "",
                       tti_show(claims->arch->name).text);
    }
    report_parts(claims, part ? part->name : "", n_parts);
    return TT_OK;
}
