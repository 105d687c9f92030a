/* claims.c - tensors that no role has taken: a checkpoint that holds a bias, a gate or a sink more
 * than its configuration describes is another model than the one that would be computed, so it is
 * refused.
 *
 * Looking a tensor up by name claims it (source_make.c, panels.c, gguf_rope.c); what is left over
 * at the end is held against the list here of what changes no logit. One pass over the table, each
 * name against a list of fixed length. */
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
/* By the end of a name. The scales are of activations and of caches of keys and values, which other
 * runtimes round to few bits. */
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

/* Layers behind the last one, where the configuration states that so many predict further tokens,
 * or where roles.c found them. */
static bool is_later_layer(const tti_claims *claims, int64_t layer)
{
    static const char *const keys[] = {"num_nextn_predict_layers", "num_mtp_modules"};
    int64_t n = claims->n_nextn > claims->arch->n_mtp ? claims->n_nextn : claims->arch->n_mtp;
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

/* Some GGUF files hold latent attention's matrix of keys and values whole beside its two parts,
 * which are what is computed with. */
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

/* Bytes of a number of a type that has a sign bit, on top, beside a zero; 1: each byte is to be
 * 0. */
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

/* ---- numbers that must be 0 ---- */

/* A quantised checkpoint of many experts has tens of thousands of biases of a few KiB, each between
 * other tensors, and each read may be a way to a file server and back. So they are read in the
 * order of the files, neighbours at once, and those that lie apart are asked for long before they
 * are needed, so that many are under way. (Reading what lies between as well was tried: of 36,000
 * with 96 KiB between them, 3.6 GB instead of 0.1, and ten times as long from a local disk.) */
enum {
    SPAN_BYTES = 4 << 20,  /* of one read */
    GAP_BYTES = 16 << 10,  /* between two tensors that are read at once */
    AHEAD = 128,           /* tensors that are asked for */
    AHEAD_BYTES = 1 << 20, /* of a tensor that is asked for; of a larger one the system reads
                            * ahead itself */
    MAX_BYTES = 64 << 20   /* a larger one is no bias, and is not believed to be 0 */
};

static int by_place(const void *a, const void *b)
{
    const tti_entry *x = *(const tti_entry *const *)a, *y = *(const tti_entry *const *)b;
    int files = (x->file_id > y->file_id) - (x->file_id < y->file_id);
    return files ? files : (x->offset > y->offset) - (x->offset < y->offset);
}

/* Numbers of the entry's type. */
static bool all_zero(const tti_entry *entry, const unsigned char *bytes, uint64_t n)
{
    if (n == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, (size_t)n - 1) == 0)) {
        return true;
    }
    size_t number = float_bytes(entry->dtype);
    bool zero = number > 1;
    for (uint64_t i = 0; i < n && zero; i++) {
        bool signed_byte = i % number == number - 1; /* -0.0 is 0 too */
        zero = (bytes[i] & (signed_byte ? 0x7f : 0xff)) == 0;
    }
    return zero;
}

/* Of one tensor, which may be larger than a span. */
static tt_status is_zero(const tti_file *file, const tti_entry *entry, unsigned char *span,
                         bool *zero_out)
{
    *zero_out = entry->bytes <= MAX_BYTES;
    for (uint64_t done = 0; *zero_out && done < entry->bytes; done += SPAN_BYTES) {
        size_t n = entry->bytes - done < SPAN_BYTES ? (size_t)(entry->bytes - done) : SPAN_BYTES;
        TT_TRY(tti_file_read(file, entry->offset + done, span, n));
        *zero_out = all_zero(entry, span, n);
    }
    return TT_OK;
}

/* How many of entry[n], in the order of by_place, one read takes, at least 1; and how many bytes
 * that are. */
static size_t span_of(const tti_entry **entry, size_t n, uint64_t *bytes_out)
{
    uint64_t begin = entry[0]->offset, end = begin + entry[0]->bytes;
    size_t taken = 1;
    while (taken < n && entry[taken]->file_id == entry[0]->file_id) {
        const tti_entry *next = entry[taken];
        uint64_t after = next->offset + next->bytes;
        if (next->offset > end + GAP_BYTES || after - begin > SPAN_BYTES) {
            break;
        }
        end = after > end ? after : end;
        taken++;
    }
    *bytes_out = end - begin;
    return taken;
}

/* Asks for entry[*asked] and so on before end. */
static void ask(const tti_checkpoint *checkpoint, const tti_entry **entry, size_t end,
                size_t *asked)
{
    for (; *asked < end; ++*asked) {
        const tti_entry *e = entry[*asked];
        if (e->bytes > 0 && e->bytes <= AHEAD_BYTES) {
            tti_file_will_need(&checkpoint->file[e->file_id], e->offset, (size_t)e->bytes);
        }
    }
}

/* Keeps of entry[n] those that are not 0, and sets their number. */
static tt_status drop_zeros(const tti_checkpoint *checkpoint, const tti_entry **entry, size_t *n_io)
{
    size_t n = *n_io, n_kept = 0, n_reads = 0, asked = 0;
    unsigned char *span = n > 0 ? malloc(SPAN_BYTES) : NULL;
    TT_CHECK(span || n == 0, TT_ERR_NOMEM, "no memory to look for zeros");
    tt_status st = TT_OK;
    if (n > 0) {
        qsort(entry, n, sizeof(*entry), by_place);
    }
    for (size_t i = 0, taken; i < n && st == TT_OK; i += taken) {
        const tti_file *file = &checkpoint->file[entry[i]->file_id];
        uint64_t begin = entry[i]->offset, bytes; /* kept ones overwrite entry[i] */
        bool zero = false;
        taken = span_of(entry + i, n - i, &bytes);
        asked = asked < i + taken ? i + taken : asked; /* what is read now needs no asking */
        ask(checkpoint, entry, i + taken + AHEAD < n ? i + taken + AHEAD : n, &asked);
        st = taken == 1 ? is_zero(file, entry[i], span, &zero)
                        : tti_file_read(file, begin, span, (size_t)bytes);
        for (size_t k = i; k < i + taken && st == TT_OK; k++) {
            if (taken == 1
                    ? !zero
                    : !all_zero(entry[k], span + (entry[k]->offset - begin), entry[k]->bytes)) {
                entry[n_kept++] = entry[k];
            }
        }
        n_reads++;
    }
    free(span);
    if (n > 0) {
        tt_log(TT_LOG_DEBUG, "%s: %zu tensors looked through for zeros in %zu reads",
               tti_show_path(checkpoint->source), n, n_reads);
    }
    *n_io = n_kept;
    return st;
}

/* ---- what is left over ---- */

/* Tensors that nobody claimed, by what becomes of them. */
typedef struct leftover {
    const tti_entry **zero; /* zero[n_zero]: to be read; room for all */
    size_t n_zero, n_refused, n_parts;
    const tti_entry *refused, *part; /* the first of each */
    int64_t later_first, later_end;  /* layers that are not run, by the numbers in names */
} leftover;

/* The number in a name, "mtp.layers.3.norm.weight"; 0 where there is none. */
static int64_t number_in(const char *name)
{
    for (const char *c = strchr(name, '.'); c; c = strchr(c + 1, '.')) {
        size_t n = strspn(c + 1, "0123456789");
        if (n > 0 && n < 10 && c[1 + n] == '.') {
            return strtoll(c + 1, NULL, 10);
        }
    }
    return 0;
}

static void sort_one(const tti_claims *claims, const tti_entry *entry, leftover *left)
{
    int64_t layer;
    switch (kind_of(claims, entry->name)) {
    case CLAIM_USELESS:
        break;
    case CLAIM_LATER:
        layer = number_in(entry->name);
        left->later_first =
            left->later_end == 0 || layer < left->later_first ? layer : left->later_first;
        left->later_end = layer + 1 > left->later_end ? layer + 1 : left->later_end;
        break;
    case CLAIM_PART:
        left->part = left->part ? left->part : entry;
        left->n_parts++;
        break;
    case CLAIM_IF_ZERO:
        left->zero[left->n_zero++] = entry;
        break;
    case CLAIM_NONE:
        left->refused = left->refused ? left->refused : entry;
        left->n_refused++;
        break;
    }
}

/* Those that are not 0 after all; the first of the table is named. */
static void refuse_others(leftover *left)
{
    for (size_t i = 0; i < left->n_zero; i++) {
        left->refused =
            !left->refused || left->zero[i] < left->refused ? left->zero[i] : left->refused;
    }
    left->n_refused += left->n_zero;
}

static tt_status refuse(const tti_claims *claims, const leftover *left)
{
    char more[48] = "";
    snprintf(more, sizeof(more), " (and %zu more)", left->n_refused - 1);
    return TT_FAIL(TT_ERR_UNSUPPORTED,
                   "%s: tensor '%s'%s has no place in %s as the configuration describes it: "
                   "results would lack it",
                   tti_show_path(claims->checkpoint->file[left->refused->file_id].path),
                   tti_show(left->refused->name).text, left->n_refused > 1 ? more : "",
                   tti_show(claims->arch->name).text);
}

/* Says once what of the model is not computed. */
static void report(const tti_claims *claims, const leftover *left)
{
    const char *source = tti_show_path(claims->checkpoint->source);
    int64_t n = left->later_end - left->later_first;
    n = n > claims->arch->n_mtp ? n : claims->arch->n_mtp;
    if (n > 0) {
        tt_log(TT_LOG_INFO, "%s: %lld layer%s not run", source, (long long)n,
               n > 1 ? "s that predict further tokens are" : " that predicts further tokens is");
    }
    if (left->n_parts > 0) {
        tt_log(TT_LOG_WARN,
               "%s: %zu tensors ('%s' and so on) are of parts for pictures or sound, which are not "
               "run: text only",
               source, left->n_parts, tti_show(left->part->name).text);
    }
}

tt_status tti_claims_check(const tti_claims *claims)
{
    const tti_checkpoint *checkpoint = claims->checkpoint;
    leftover left = {.zero = malloc((checkpoint->table.n + 1) * sizeof(*left.zero))};
    TT_CHECK(left.zero, TT_ERR_NOMEM, "no memory to sort %zu tensors", checkpoint->table.n);
    for (size_t i = 0; i < checkpoint->table.n; i++) {
        if (!checkpoint->table.entry[i].claimed) {
            sort_one(claims, &checkpoint->table.entry[i], &left);
        }
    }
    tt_status st = drop_zeros(checkpoint, left.zero, &left.n_zero);
    if (st == TT_OK) {
        refuse_others(&left);
        st = left.n_refused > 0 ? refuse(claims, &left) : TT_OK;
    }
    if (st == TT_OK) {
        report(claims, &left);
    }
    free(left.zero);
    return st;
}
