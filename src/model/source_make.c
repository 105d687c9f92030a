/* source_make.c - how a matrix is stored: found from the types and companions of its tensor, held
 * against quantization_config.
 *
 *   plain                     X.weight f32, bf16, f16
 *   a block type of GGUF      X.weight
 *   codes of a byte           X.weight e4m3 or i8, X.weight_scale_inv or X.weight_scale: one, per output, per block [, X.weight_zero_point]
 *   packed (compressed-tensors) X.weight_packed i32, X.weight_scale [, X.weight_zero_point, X.weight_g_idx], X.weight_shape
 *   MXFP4                     X.weight_packed u8 and X.weight_scale u8, or X_blocks [..][groups][16] and X_scales
 *   GPTQ, AWQ                 X.qweight, X.qzeros, X.scales [, X.g_idx], all with inputs as the slow index
 * A companion may lie in another file: the table of the checkpoint knows all of them. Each shape is
 * checked here, so that reading needs no further check.
 * Sources: DeepSeek-V3's inference code (weight_scale_inv); the compressed-tensors, AutoGPTQ and
 * AutoAWQ libraries; the OCP Microscaling Formats Specification 1.0 and gpt-oss's own
 * implementation (MXFP4). */
#include "blocks.h"
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 320, SHORT_BYTES = 96, MX_GROUP = 32 };

/* One look-up. */
typedef struct making {
    const tti_checkpoint *checkpoint;
    const tti_quantization *q;
    const char *name; /* as asked for */
    const tti_entry *code;
    tti_source source;
    int64_t N, K, planes; /* of the matrix: outputs, inputs of each plane */
} making;

static const char *path_of(const making *m, const tti_entry *entry)
{
    return tti_show_path(m->checkpoint->file[entry->file_id].path);
}

static bool is_type(const tti_entry *entry, const char *name)
{
    return strcmp(entry->dtype->name, name) == 0;
}

/* A tensor that is looked up is understood, or refused: nothing of it goes unseen. */
static const tti_entry *claim(const tti_checkpoint *checkpoint, const char *name)
{
    tti_entry *entry = tti_table_find(&checkpoint->table, name);
    if (entry) {
        entry->claimed = true;
    }
    return entry;
}

/* The tensor whose name is that of the weight, less `drop` if it ends so, and `add`. */
static const tti_entry *companion(const making *m, const char *drop, const char *add)
{
    char name[NAME_BYTES];
    size_t n = strlen(m->name), n_drop = strlen(drop);
    if (n_drop > 0 && (n < n_drop || strcmp(m->name + n - n_drop, drop) != 0)) {
        return NULL;
    }
    n -= n_drop;
    if (n + strlen(add) >= sizeof(name)) {
        return NULL;
    }
    memcpy(name, m->name, n);
    strcpy(name + n, add);
    return claim(m->checkpoint, name);
}

static tt_status lacks(const making *m, const char *drop, const char *add)
{
    return TT_FAIL(TT_ERR_FILE, "%s: tensor '%s' is quantised, but '%.*s%s' is missing",
                   path_of(m, m->code), tti_show(m->code->name).text,
                   (int)(strlen(m->name) - strlen(drop)), tti_show(m->name).text, add);
}

static void show_shape(const tti_entry *entry, char text[SHORT_BYTES])
{
    size_t used = 1;
    strcpy(text, "[");
    for (int i = 0; i < entry->n_dims && i < TTI_MAX_DIMS; i++) {
        used += (size_t)snprintf(text + used, SHORT_BYTES - used, "%s%lld", i ? ", " : "",
                                 (long long)entry->dim[i]);
    }
    snprintf(text + used, SHORT_BYTES - used, "]");
}

static tt_status bad_shape(const making *m, const tti_entry *entry, const char *why)
{
    char have[SHORT_BYTES], code[SHORT_BYTES];
    show_shape(entry, have);
    show_shape(m->code, code);
    return TT_FAIL(TT_ERR_FILE, "%s: tensor '%s' %s has a shape that does not fit '%s' %s: %s",
                   path_of(m, entry), tti_show(entry->name).text, have,
                   tti_show(m->code->name).text, code, why);
}

static tt_status bad_type(const making *m, const tti_entry *entry, const char *wanted)
{
    return TT_FAIL(TT_ERR_UNSUPPORTED,
                   "%s: tensor '%s' has the type %s, which is not supported here (%s)",
                   path_of(m, entry), tti_show(entry->name).text, entry->dtype->name, wanted);
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b > 0);
}

static tti_part part_of(const tti_entry *entry, int64_t lines, int64_t words)
{
    return (tti_part){.file_id = entry->file_id,
                      .offset = entry->offset,
                      .bytes = entry->bytes,
                      .lines = lines,
                      .words = words,
                      .word_bytes = (uint16_t)(entry->dtype->bits / 8),
                      .bits = (uint16_t)entry->dtype->bits};
}

/* Packs elements of `bits` into the words of a part. */
static void pack_part(tti_part *part, int bits, tti_packing packing)
{
    part->bits = (uint16_t)bits;
    part->packing = bits == 8 * part->word_bytes ? TTI_PACKING_NONE : packing;
}

/* The last two dimensions of the codes, in words; those before are planes. */
static tt_status set_shape(making *m, int64_t *lines_out, int64_t *words_out)
{
    const tti_entry *c = m->code;
    TT_CHECK(c->n_dims >= 2 && c->n_dims <= TTI_MAX_DIMS && c->bytes > 0, TT_ERR_FILE,
             "%s: tensor '%s' is quantised, but is no matrix", path_of(m, c),
             tti_show(c->name).text);
    m->planes = 1;
    for (int i = 0; i < c->n_dims - 2; i++) {
        m->planes *= c->dim[i];
    }
    *lines_out = c->dim[c->n_dims - 2];
    *words_out = c->dim[c->n_dims - 1];
    return TT_OK;
}

/* True if a rule allows what was found. group: inputs per scale, block: outputs per scale. */
static bool fits_rule(const tti_quant_rule *rule, const making *m, int bits, bool is_float,
                      int64_t group, int64_t block)
{
    if (rule->bits != bits || rule->is_float != is_float) {
        return false;
    }
    bool all = group >= m->K, one = block >= m->N;
    switch (rule->strategy) {
    case TTI_QUANT_ANY:
        return true;
    case TTI_QUANT_TENSOR:
        return all && one;
    case TTI_QUANT_CHANNEL:
        return all && block == 1;
    case TTI_QUANT_GROUP:
        return block == 1 && (group == rule->group || (all && rule->group >= m->K));
    case TTI_QUANT_BLOCK:
        return (block == rule->block || (one && rule->block >= m->N)) &&
               (group == rule->group || (all && rule->group >= m->K));
    }
    return false;
}

static tt_status check_rules(const making *m, int bits, bool is_float, int64_t group, int64_t block)
{
    bool fits = m->q->varies;
    for (int i = 0; i < m->q->n_rules && !fits; i++) {
        fits = fits_rule(&m->q->rule[i], m, bits, is_float, group, block);
    }
    TT_CHECK(
        fits, TT_ERR_FILE,
        "%s: tensor '%s' [%lld, %lld] holds %d-bit codes with a scale for %lld outputs by %lld inputs; "
        "quantization_config says otherwise",
        path_of(m, m->code), tti_show(m->code->name).text, (long long)m->N, (long long)m->K, bits,
        (long long)(block < m->N ? block : m->N), (long long)(group < m->K ? group : m->K));
    return TT_OK;
}

/* Sets stored and format. What panels cannot keep, odd groups and inputs in an order of their own,
 * becomes plain. */
static tt_status set_format(making *m, ttk_dtype code, ttk_dtype scale, ttk_shift shift,
                            int64_t group)
{
    tti_source *s = &m->source;
    int64_t all = m->K + (m->K & 1); /* a group is even; the only one may be longer than the row */
    group = group >= m->K ? all : group;
    TT_CHECK(all <= INT32_MAX, TT_ERR_FILE, "%s: tensor '%s' has %lld inputs", path_of(m, m->code),
             tti_show(m->code->name).text, (long long)m->K);
    s->scheme = TTI_SCHEME_QUANT;
    s->name = m->code->name;
    s->plane_rows = m->N;
    s->stored = (ttk_format){.code = code, .scale = scale, .shift = shift, .group = (int32_t)group};
    s->format = s->stored;
    if (group % 2 != 0 || (m->q->act_order && s->part[TTI_PART_GROUPS].bytes > 0 && group < m->K)) {
        s->format = (ttk_format){.code = TTK_F32};
    }
    return TT_OK;
}

/* ---- codes of a byte ---- */

/* Inputs and outputs that share a scale, from the shape of the scales: as many as planes, per
 * output, or blocks. */
static tt_status find_sharing(const making *m, const tti_entry *scale, int64_t *group_out,
                              int64_t *block_out)
{
    int64_t n = 1; /* scales */
    for (int i = 0; i < scale->n_dims && i < TTI_MAX_DIMS; i++) {
        n *= scale->dim[i];
    }
    if (scale->n_dims > TTI_MAX_DIMS) {
        return bad_shape(m, scale, "it has too many dimensions");
    }
    int64_t last = scale->n_dims > 0 ? scale->dim[scale->n_dims - 1] : 1,
            before = scale->n_dims > 1 ? scale->dim[scale->n_dims - 2] : 1;
    *group_out = m->K;
    *block_out = m->N;
    for (int i = 0; i < m->q->n_rules; i++) {
        const tti_quant_rule *rule = &m->q->rule[i];
        int64_t group = rule->group < m->K && rule->group > 0 ? rule->group : m->K;
        int64_t block =
            rule->strategy == TTI_QUANT_BLOCK ? (rule->block < m->N ? rule->block : m->N) : 1;
        if ((rule->strategy == TTI_QUANT_BLOCK || rule->strategy == TTI_QUANT_GROUP) &&
            scale->n_dims >= 2 && before == ceil_div(m->N, block) &&
            last == ceil_div(m->K, group) && n == m->planes * before * last) {
            *group_out = group;
            *block_out = block;
            return TT_OK;
        }
    }
    if (n == m->planes) {
        return TT_OK;
    }
    *block_out = 1;
    bool per_output = n == m->planes * m->N && (last == m->N || (last == 1 && before == m->N));
    return per_output
               ? TT_OK
               : bad_shape(
                     m, scale,
                     "neither one scale, nor one per output, nor one per block as quantization_config says");
}

/* *scale_out stays NULL where there is none. */
static tt_status find_scale(const making *m, const tti_entry **scale_out)
{
    const tti_entry *inverse = companion(m, "", "_scale_inv"), *scale = companion(m, "", "_scale");
    bool has_blocks = m->q->method == TTI_QUANT_FP8 && m->q->rule[0].strategy == TTI_QUANT_BLOCK;
    TT_CHECK(
        m->q->method == TTI_QUANT_FP8 || m->q->method == TTI_QUANT_COMPRESSED, TT_ERR_FILE,
        "%s: tensor '%s' has the type %s, but the configuration has no quantization_config of quant_method fp8 or compressed-tensors",
        path_of(m, m->code), tti_show(m->name).text, m->code->dtype->name);
    TT_CHECK(!inverse || !scale || m->q->method == TTI_QUANT_COMPRESSED || has_blocks, TT_ERR_FILE,
             "%s: tensor '%s' has both a weight_scale_inv and a weight_scale", path_of(m, m->code),
             tti_show(m->name).text);
    if (m->q->method == TTI_QUANT_COMPRESSED) {
        *scale_out = scale;
        return scale ? TT_OK : lacks(m, "", "_scale");
    }
    *scale_out = has_blocks || !scale ? inverse : scale;
    return *scale_out ? TT_OK : lacks(m, "", "_scale_inv");
}

static bool is_scale_type(const tti_entry *entry)
{
    return entry->dtype->is_known &&
           (entry->dtype->type <= TTK_F16 || entry->dtype->type == TTK_E8M0);
}

static tt_status make_bytes(making *m)
{
    tti_source *s = &m->source;
    const tti_entry *scale = NULL, *zero;
    int64_t group = 0, block = 0;
    TT_TRY(set_shape(m, &m->N, &m->K));
    TT_TRY(find_scale(m, &scale));
    TT_CHECK(is_scale_type(scale), TT_ERR_UNSUPPORTED,
             "%s: tensor '%s' has the type %s, scales are F32, BF16, F16 or F8_E8M0",
             path_of(m, scale), tti_show(scale->name).text, scale->dtype->name);
    TT_TRY(find_sharing(m, scale, &group, &block));
    bool is_float = m->code->dtype->type == TTK_E4M3;
    TT_TRY(check_rules(m, 8, is_float, group, block));
    s->part[TTI_PART_CODE] = part_of(m->code, m->N, m->K);
    s->part[TTI_PART_SCALE] = part_of(scale, ceil_div(m->N, block), ceil_div(m->K, group));
    s->scale_rows = block;
    zero = is_float ? NULL : companion(m, "", "_zero_point");
    ttk_dtype code = m->code->dtype->type;
    if (zero) {
        TT_CHECK(is_type(zero, "I8"), TT_ERR_UNSUPPORTED,
                 "%s: tensor '%s' has the type %s, zero points are I8", path_of(m, zero),
                 tti_show(zero->name).text, zero->dtype->name);
        if (zero->bytes !=
            (uint64_t)(m->planes * s->part[TTI_PART_SCALE].lines * s->part[TTI_PART_SCALE].words)) {
            return bad_shape(m, zero, "as many zero points as scales are needed");
        }
        s->part[TTI_PART_ZERO] =
            part_of(zero, s->part[TTI_PART_SCALE].lines, s->part[TTI_PART_SCALE].words);
        s->flip = 0x80;
        code = TTK_U8;
    }
    return set_format(m, code, scale->dtype->type, code == TTK_U8 ? TTK_SHIFT_ZERO : TTK_SHIFT_NONE,
                      group);
}

/* ---- compressed-tensors ---- */

/* Codes of MXFP4, two in a byte: lines are outputs; scales[..][words * 2 / 32]. */
static tt_status make_mxfp4(making *m, const tti_entry *scale, int64_t lines, int64_t words)
{
    tti_source *s = &m->source;
    m->N = lines;
    m->K = 2 * words;
    TT_CHECK(is_type(m->code, "U8"), TT_ERR_UNSUPPORTED,
             "%s: tensor '%s' has the type %s, codes of MXFP4 are U8", path_of(m, m->code),
             tti_show(m->code->name).text, m->code->dtype->name);
    TT_CHECK(is_type(scale, "U8") || is_type(scale, "F8_E8M0"), TT_ERR_UNSUPPORTED,
             "%s: tensor '%s' has the type %s, scales of MXFP4 are U8 or F8_E8M0",
             path_of(m, scale), tti_show(scale->name).text, scale->dtype->name);
    int64_t G = ceil_div(m->K, MX_GROUP);
    if (scale->n_dims < 2 ||
        scale->dim[scale->n_dims < TTI_MAX_DIMS ? scale->n_dims - 1 : TTI_MAX_DIMS - 1] != G ||
        scale->bytes != (uint64_t)(m->planes * m->N * G)) {
        return bad_shape(m, scale, "a scale for every 32 inputs is needed");
    }
    TT_TRY(check_rules(m, 4, true, MX_GROUP, 1));
    s->part[TTI_PART_CODE] = part_of(m->code, lines, words);
    pack_part(&s->part[TTI_PART_CODE], 4, TTI_PACKING_INPUTS);
    s->part[TTI_PART_SCALE] = part_of(scale, m->N, G);
    s->scale_rows = 1;
    return set_format(m, TTK_E2M1, TTK_E8M0, TTK_SHIFT_NONE, MX_GROUP);
}

/* The group of each input, where it is stated. */
static tt_status add_groups(making *m, const tti_entry *groups)
{
    if (!groups || groups->bytes == 0) {
        return TT_OK;
    }
    if (!is_type(groups, "I32")) {
        return bad_type(m, groups, "I32 is");
    }
    if (groups->n_dims != 1 || groups->dim[0] != m->K || m->planes != 1) {
        return bad_shape(m, groups, "one number for each input is needed");
    }
    m->source.part[TTI_PART_GROUPS] = part_of(groups, 1, m->K);
    return TT_OK;
}

/* Which bits a word of i32 must hold for K inputs in groups as the rules say; 0: none of them
 * fits. */
static int bits_of_words(const making *m, int64_t words, int64_t G)
{
    for (int i = 0; i < m->q->n_rules; i++) {
        const tti_quant_rule *rule = &m->q->rule[i];
        if (rule->is_float || (rule->bits != 4 && rule->bits != 8)) {
            continue;
        }
        int64_t K = words * (32 / rule->bits),
                group = rule->strategy == TTI_QUANT_GROUP && rule->group < K ? rule->group : K;
        if (ceil_div(K, group) == G) {
            return rule->bits;
        }
    }
    return 0;
}

static tt_status add_packed_zeros(making *m, const tti_entry *zero, int bits, int64_t G)
{
    if (!is_type(zero, "I32")) {
        return bad_type(m, zero, "zero points are I32");
    }
    int64_t lines = ceil_div(m->N, 32 / bits);
    if (zero->n_dims != 2 || zero->dim[0] != lines || zero->dim[1] != G) {
        return bad_shape(m, zero,
                         "a zero point for every scale, packed along the outputs, is needed");
    }
    m->source.part[TTI_PART_ZERO] = part_of(zero, lines, G);
    pack_part(&m->source.part[TTI_PART_ZERO], bits, TTI_PACKING_OUTPUTS);
    return TT_OK;
}

/* The bits of a code, inputs, and inputs that share a scale, from the shape of the scales. */
static tt_status size_packed(making *m, const tti_entry *scale, int64_t words, int *bits_out,
                             int64_t *group_out)
{
    int64_t G = scale->n_dims == m->code->n_dims && scale->n_dims <= TTI_MAX_DIMS
                    ? scale->dim[scale->n_dims - 1]
                    : 0;
    int bits = G > 0 ? bits_of_words(m, words, G) : 0;
    if (bits == 0 || scale->dim[scale->n_dims - 2] != m->N ||
        scale->bytes / (scale->dtype->bits / 8) != (uint64_t)(m->planes * m->N * G)) {
        return bad_shape(m, scale,
                         "no config_groups of quantization_config with 4 or 8 bits fits them");
    }
    m->K = words * (32 / bits);
    int64_t group = G == 1 ? m->K : 0;
    for (int i = 0; i < m->q->n_rules && group == 0; i++) {
        const tti_quant_rule *rule = &m->q->rule[i];
        group = rule->bits == bits && !rule->is_float && rule->strategy == TTI_QUANT_GROUP &&
                        ceil_div(m->K, rule->group) == G
                    ? rule->group
                    : 0;
    }
    *bits_out = bits;
    *group_out = group;
    return check_rules(m, bits, false, group, 1);
}

static tt_status add_packed_shape(making *m, const tti_entry *shape)
{
    TT_CHECK((is_type(shape, "I64") || is_type(shape, "I32")) && shape->n_dims == 1 &&
                 shape->dim[0] == 2,
             TT_ERR_FILE, "%s: tensor '%s' is not two numbers of I64 or I32", path_of(m, shape),
             tti_show(shape->name).text);
    m->source.part[TTI_PART_SHAPE] = part_of(shape, 1, 2);
    return TT_OK;
}

static tt_status make_packed(making *m)
{
    tti_source *s = &m->source;
    int64_t lines, words;
    const tti_entry *scale = companion(m, "", "_scale"), *zero = companion(m, "", "_zero_point"),
                    *shape = companion(m, "", "_shape");
    TT_TRY(set_shape(m, &lines, &words));
    TT_CHECK(
        m->q->method == TTI_QUANT_COMPRESSED, TT_ERR_FILE,
        "%s: tensor '%s' is packed, but the configuration has no quantization_config of quant_method compressed-tensors",
        path_of(m, m->code), tti_show(m->code->name).text);
    TT_CHECK(!companion(m, "", "_global_scale"), TT_ERR_UNSUPPORTED,
             "%s: tensor '%s' is in NVFP4, which is not supported", path_of(m, m->code),
             tti_show(m->code->name).text);
    if (!scale) {
        return lacks(m, "", "_scale");
    }
    if (!is_type(m->code, "I32")) {
        TT_CHECK(!zero, TT_ERR_UNSUPPORTED,
                 "%s: tensor '%s' is of a matrix in MXFP4, which has no zero points",
                 path_of(m, zero), tti_show(zero->name).text);
        return make_mxfp4(m, scale, lines, words);
    }
    if (!is_scale_type(scale)) {
        return bad_type(m, scale, "scales are F32, BF16 or F16");
    }
    m->N = lines;
    int bits = 0;
    int64_t group = 0;
    TT_TRY(size_packed(m, scale, words, &bits, &group));
    s->part[TTI_PART_CODE] = part_of(m->code, lines, words);
    pack_part(&s->part[TTI_PART_CODE], bits, TTI_PACKING_INPUTS);
    s->part[TTI_PART_SCALE] = part_of(scale, m->N, scale->dim[scale->n_dims - 1]);
    s->scale_rows = 1;
    if (zero) {
        TT_TRY(add_packed_zeros(m, zero, bits, s->part[TTI_PART_SCALE].words));
    }
    if (shape) {
        TT_TRY(add_packed_shape(m, shape));
    }
    TT_TRY(add_groups(m, companion(m, "", "_g_idx")));
    s->flip = !zero && bits == 8 ? 0x80 : 0;
    ttk_dtype code = bits == 4 ? (zero ? TTK_U4 : TTK_I4) : (zero ? TTK_U8 : TTK_I8);
    TT_TRY(set_format(m, code, scale->dtype->type, zero ? TTK_SHIFT_ZERO : TTK_SHIFT_NONE, group));
    if (s->part[TTI_PART_GROUPS].bytes > 0 && group < m->K) {
        s->format = (ttk_format){.code = TTK_F32};
    }
    return TT_OK;
}

/* ---- GPTQ, AWQ ---- */

static tt_status check_transposed(making *m, const tti_entry *scale, const tti_entry *zero,
                                  int bits)
{
    int64_t G = scale->dim[0];
    if (!is_type(m->code, "I32")) {
        return bad_type(m, m->code, "I32 is");
    }
    if (!is_type(zero, "I32")) {
        return bad_type(m, zero, "I32 is");
    }
    if (!is_scale_type(scale)) {
        return bad_type(m, scale, "F16, BF16 and F32 are");
    }
    if (scale->n_dims != 2 || scale->dim[1] != m->N) {
        return bad_shape(m, scale, "a scale for each group and output is needed");
    }
    if (zero->n_dims != 2 || zero->dim[0] != G || zero->dim[1] != ceil_div(m->N, 32 / bits)) {
        return bad_shape(m, zero, "a zero point for each scale is needed");
    }
    return TT_OK;
}

static tt_status make_transposed(making *m)
{
    tti_source *s = &m->source;
    const tti_quant_rule *rule = &m->q->rule[0];
    bool awq = m->q->method == TTI_QUANT_AWQ;
    int64_t lines, words;
    TT_CHECK(
        awq || m->q->method == TTI_QUANT_GPTQ, TT_ERR_FILE,
        "%s: tensor '%s' is packed, but the configuration has no quantization_config of quant_method gptq or awq",
        path_of(m, m->code), tti_show(m->code->name).text);
    const tti_entry *scale = companion(m, ".weight", ".scales"),
                    *zero = companion(m, ".weight", ".qzeros");
    TT_TRY(set_shape(m, &lines, &words));
    if (!scale || !zero) {
        return lacks(m, ".weight", scale ? ".qzeros" : ".scales");
    }
    TT_CHECK(m->planes == 1 && m->code->n_dims == 2 && scale->n_dims == 2 && scale->bytes > 0,
             TT_ERR_FILE, "%s: tensors '%s' and '%s' are not matrices", path_of(m, m->code),
             tti_show(m->code->name).text, tti_show(scale->name).text);
    m->N = scale->dim[1];
    int bits = rule->bits;
    if (m->q->varies && zero->n_dims == 2 && zero->dim[1] > 0 &&
        zero->dim[1] == ceil_div(m->N, 4)) {
        bits = 8;
    }
    TT_CHECK(bits == 4 || bits == 8, TT_ERR_UNSUPPORTED,
             "%s: tensor '%s' has %d-bit codes, which are not supported (4 and 8 are)",
             path_of(m, m->code), tti_show(m->code->name).text, bits);
    int64_t per = 32 / bits, G = scale->dim[0];
    m->K = awq ? lines : lines * per;
    if ((awq ? words != ceil_div(m->N, per) : words != m->N)) {
        return bad_shape(m, scale, "it has another number of outputs");
    }
    int64_t group = rule->strategy == TTI_QUANT_GROUP && rule->group < m->K ? rule->group : m->K;
    if (ceil_div(m->K, group) != G) {
        return bad_shape(m, scale, "quantization_config states another group_size");
    }
    TT_TRY(check_transposed(m, scale, zero, bits));
    s->part[TTI_PART_CODE] = part_of(m->code, lines, words);
    pack_part(&s->part[TTI_PART_CODE], bits, awq ? TTI_PACKING_OUTPUTS : TTI_PACKING_INPUTS);
    s->part[TTI_PART_SCALE] = part_of(scale, G, m->N);
    s->part[TTI_PART_ZERO] = part_of(zero, G, zero->dim[1]);
    pack_part(&s->part[TTI_PART_ZERO], bits, TTI_PACKING_OUTPUTS);
    for (int i = TTI_PART_CODE; i <= TTI_PART_ZERO; i++) {
        s->part[i].transposed = true;
        s->part[i].awq = awq && i != TTI_PART_SCALE;
    }
    s->scale_rows = 1;
    s->zero_add = m->q->zeros_less_one;
    if (!awq) {
        TT_TRY(add_groups(m, companion(m, ".weight", ".g_idx")));
    }
    s->zeros_even = rule->symmetric && !m->q->varies;
    s->flip = s->zeros_even && bits == 8 ? 0x80 : 0;
    ttk_dtype code =
        bits == 4 ? (s->zeros_even ? TTK_I4 : TTK_U4) : (s->zeros_even ? TTK_I8 : TTK_U8);
    return set_format(m, code, scale->dtype->type, s->zeros_even ? TTK_SHIFT_NONE : TTK_SHIFT_ZERO,
                      group);
}

/* ---- the rest ---- */

/* A tensor that is there under its own name, and is no codes. */
static tt_status make_plain(making *m)
{
    const tti_entry *c = m->code;
    const tti_dtype_info *dtype = c->dtype;
    const tti_block_type *block = dtype->block;
    bool plain = dtype->is_known && dtype->type <= TTK_F16;
    TT_CHECK(
        plain || (block && block->is_supported), TT_ERR_UNSUPPORTED,
        "%s: tensor '%s' has the type %s, which is not supported (F32, BF16 and F16 are, and the quantised ones that tutti(1) lists)",
        path_of(m, c), tti_show(c->name).text, dtype->name);
    m->source.scheme = plain ? TTI_SCHEME_PLAIN : TTI_SCHEME_BLOCKS;
    m->source.format = plain ? (ttk_format){.code = dtype->type} : block->format;
    m->source.block = plain ? NULL : block;
    m->source.name = c->name;
    m->source.part[TTI_PART_CODE] = part_of(c, 0, 0);
    if (!plain) {
        TT_CHECK(c->n_dims > 0 && c->n_dims <= TTI_MAX_DIMS &&
                     c->dim[c->n_dims - 1] % block->elements == 0,
                 TT_ERR_FILE, "%s: rows of tensor '%s' are not whole blocks of %s", path_of(m, c),
                 tti_show(c->name).text, dtype->name);
        m->source.part[TTI_PART_CODE].word_bytes = (uint16_t)block->bytes;
        m->source.part[TTI_PART_CODE].bits = (uint16_t)(8 * block->bytes);
    }
    return TT_OK;
}

/* Codes under another name than the weight's. */
static tt_status make_elsewhere(making *m, bool *found_out)
{
    const tti_entry *scales;
    *found_out = true;
    if ((m->code = companion(m, "", "_packed"))) {
        return make_packed(m);
    }
    if ((m->code = companion(m, ".weight", ".qweight"))) {
        return make_transposed(m);
    }
    if ((m->code = companion(m, "", "_blocks"))) {
        int64_t groups, words;
        TT_CHECK(
            m->q->method == TTI_QUANT_MXFP4, TT_ERR_FILE,
            "%s: tensor '%s' is in MXFP4, but the configuration has no quantization_config of quant_method mxfp4",
            path_of(m, m->code), tti_show(m->code->name).text);
        TT_TRY(set_shape(m, &groups, &words));
        TT_CHECK(m->code->n_dims >= 3 && words == MX_GROUP / 2 && groups <= TTI_MAX_WIDTH,
                 TT_ERR_FILE, "%s: tensor '%s' is not [..., groups, 16]", path_of(m, m->code),
                 tti_show(m->code->name).text);
        if (!(scales = companion(m, "", "_scales"))) {
            return lacks(m, "", "_scales");
        }
        int64_t rows = m->code->dim[m->code->n_dims - 3];
        m->planes /= rows;
        return make_mxfp4(m, scales, rows, groups * words);
    }
    *found_out = false;
    return TT_OK;
}

/* What is read later must lie inside its part. */
static tt_status check_parts(const making *m)
{
    for (int i = 0; i < TTI_PARTS; i++) {
        const tti_part *p = &m->source.part[i];
        int64_t planes = i == TTI_PART_GROUPS || i == TTI_PART_SHAPE ? 1 : m->planes;
        TT_CHECK(p->bytes == 0 ||
                     (uint64_t)(planes * p->lines * p->words) * p->word_bytes == p->bytes,
                 TT_ERR_FILE, "%s: what belongs to tensor '%s' has %llu bytes instead of %llu",
                 path_of(m, m->code), tti_show(m->code->name).text, (unsigned long long)p->bytes,
                 (unsigned long long)((uint64_t)(planes * p->lines * p->words) * p->word_bytes));
    }
    return TT_OK;
}

tt_status tti_source_make(const tti_checkpoint *checkpoint, const char *name,
                          tti_source *source_out, int64_t dims[TTI_MAX_DIMS], int *n_dims_out)
{
    making m = {.checkpoint = checkpoint, .q = &checkpoint->quantization, .name = name};
    const tti_entry *own = claim(checkpoint, name);
    bool found = true;
    *n_dims_out = 0;
    m.code = own;
    if (!own) {
        TT_TRY(make_elsewhere(&m, &found));
    } else if (!own->dtype->block && own->dtype->is_known &&
               (own->dtype->type == TTK_E4M3 || own->dtype->type == TTK_I8)) {
        TT_TRY(make_bytes(&m));
    } else {
        TT_TRY(make_plain(&m));
    }
    if (!found) {
        return TT_OK;
    }
    int n = m.code->n_dims;
    bool blocks = !own && n >= 3 && n <= TTI_MAX_DIMS && companion(&m, "", "_blocks") == m.code;
    *n_dims_out = blocks ? n - 1 : n;
    for (int i = 0; i < n && i < TTI_MAX_DIMS; i++) {
        dims[i] = m.code->dim[i];
    }
    if (m.source.scheme == TTI_SCHEME_QUANT) {
        TT_TRY(check_parts(&m));
        dims[*n_dims_out - 2] = m.N;
        dims[*n_dims_out - 1] = m.K;
    }
    *source_out = m.source;
    return TT_OK;
}
