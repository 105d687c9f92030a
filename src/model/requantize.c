/* requantize.c - weights in another format than the checkpoint's: which matrices (--weights), into
 * what, and the rounding.
 *
 * Rows become floats and are rounded group by group (ttk.quantize), each for itself: so the bits do
 * not depend on which rows a rank holds. Only the matrices that most bytes and products are in
 * change. Embedding, head, routers, the small matrices of gates, and kv_b (of which a part is
 * packed transposed) stay as stored: an error there touches every token, and they are a few per
 * cent of the bytes. */
#include "requantize.h"
#include "model_internal.h"
#include "tutti/log.h"

static const struct {
    const char *name;
    ttk_format format; /* of matrices that change; AUTO has none */
} formats[TT_WEIGHTS_COUNT] = {
    [TT_WEIGHTS_AUTO] = {"auto", {0}},
    [TT_WEIGHTS_F32] = {"f32", {.code = TTK_F32}},
    [TT_WEIGHTS_BF16] = {"bf16", {.code = TTK_BF16}},
    [TT_WEIGHTS_INT8] = {"int8", {TTK_I8, TTK_F16, TTK_SHIFT_NONE, 32, 0}},
    [TT_WEIGHTS_INT4] = {"int4", {TTK_I4, TTK_F16, TTK_SHIFT_NONE, 32, 0}},
    [TT_WEIGHTS_FP8] = {"fp8", {TTK_E4M3, TTK_F32, TTK_SHIFT_NONE, 128, 0}},
    [TT_WEIGHTS_MXFP4] = {"mxfp4", {TTK_E2M1, TTK_E8M0, TTK_SHIFT_NONE, 32, 0}},
};

const char *tt_weights_name(tt_weight_format weights)
{
    return formats[weights].name;
}

static bool can_change(tt_role role)
{
    switch (role) {
    case TT_ROLE_Q:
    case TT_ROLE_K:
    case TT_ROLE_V:
    case TT_ROLE_O:
    case TT_ROLE_Q_GATE:
    case TT_ROLE_Q_A:
    case TT_ROLE_Q_B:
    case TT_ROLE_KV_A:
    case TT_ROLE_DELTA_QKV:
    case TT_ROLE_DELTA_GATE:
    case TT_ROLE_DELTA_OUT:
    case TT_ROLE_GATE:
    case TT_ROLE_UP:
    case TT_ROLE_DOWN:
    case TT_ROLE_EXPERT_GATE:
    case TT_ROLE_EXPERT_UP:
    case TT_ROLE_EXPERT_DOWN:
    case TT_ROLE_SHARED_GATE:
    case TT_ROLE_SHARED_UP:
    case TT_ROLE_SHARED_DOWN:
        return true;
    default:
        return false;
    }
}

ttk_format tt_load_format(tt_weight_format weights, const tt_tensor *tensor)
{
    const ttk_format *to = &formats[weights].format;
    if (weights != TT_WEIGHTS_AUTO && (ttk_format_is_plain(to) || can_change(tensor->role))) {
        return *to;
    }
    return tensor->format.code == TTK_F16 ? formats[TT_WEIGHTS_F32].format : tensor->format;
}

bool tti_same_format(const ttk_format *a, const ttk_format *b)
{
    return a->code == b->code && a->scale == b->scale && a->shift == b->shift &&
           a->group == b->group && a->super == b->super;
}

/* ---- rounding ---- */

static size_t float_bytes(int64_t n, int64_t K)
{
    return tti_round_to_line((size_t)n * (size_t)K * sizeof(float));
}

size_t tti_requantize_bytes(const ttk_format *to, int64_t n, int64_t K)
{
    return float_bytes(n, K) + tti_round_to_line(ttk_unpacked_bytes(to, n, K));
}

static const float *floats_of(const ttk_format *from, const ttk_unpacked *rows, int64_t n,
                              int64_t K, float *work)
{
    if (from->code == TTK_F32) {
        return rows->code;
    }
    if (from->code == TTK_BF16) {
        ttk.bf16_to_f32(work, rows->code, n * K);
    } else {
        ttk_unpacked_to_f32(from, rows, n, K, work);
    }
    return work;
}

ttk_unpacked tti_requantize(const ttk_format *to, const ttk_format *from, const ttk_unpacked *rows,
                            int64_t n, int64_t K, void *work)
{
    const float *w = floats_of(from, rows, n, K, work);
    ttk_unpacked out = ttk_unpacked_in(to, n, K, (unsigned char *)work + float_bytes(n, K));
    ttk.quantize(to, w, n, K, &out);
    return out;
}

/* ---- what is said of it ---- */

tt_act tt_load_default_act(const tt_model *model, tt_weight_format weights)
{
    for (int64_t layer = 0; layer < model->arch.L; layer++) {
        const bool is_moe = model->arch.layer[layer].is_moe;
        if (is_moe || model->arch.E == 0) {
            tt_tensor tensor =
                tt_model_tensor(model, is_moe ? TT_ROLE_EXPERT_GATE : TT_ROLE_GATE, layer, 0);
            ttk_format format = tt_load_format(weights, &tensor);
            return ttk_format_is_plain(&format)                         ? TT_ACT_F32
                   : format.code == TTK_E4M3 || format.code == TTK_E2M1 ? TT_ACT_BF16
                   : ttk_can_act8(&format, tensor.cols)                 ? TT_ACT_INT8
                                                                        : TT_ACT_F32;
        }
    }
    return TT_ACT_F32;
}

void tt_load_warn_requantized(const tt_model *model, tt_weight_format weights)
{
    const char *first = NULL;
    int64_t n = 0;
    tt_tensor tensor;
    if (ttk_format_is_plain(&formats[weights].format)) {
        return;
    }
    for (tt_tensor_place at = {0}; tt_model_next_tensor(model, &at, &tensor);) {
        ttk_format to = tt_load_format(weights, &tensor);
        if (can_change(at.role) && at.layer < model->arch.L &&
            !ttk_format_is_plain(&tensor.format) && !tti_same_format(&tensor.format, &to)) {
            first = first ? first : tensor.name;
            n++;
        }
    }
    if (n > 0) {
        tt_log(
            TT_LOG_WARN,
            "%s: %lld matrices ('%s' and so on) are quantised already; --weights %s rounds them a second time",
            tti_show_path(model->path), (long long)n, tti_show(first).text, formats[weights].name);
    }
}
