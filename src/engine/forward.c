/* forward.c - the one forward loop. Every rank walks all layers in every step: one without rows
 * takes part in the exchange with T = 0, one without experts owns nothing there, one without
 * attention has nothing else to do. Layouts are values in it, not copies of it.
 *
 * A batch goes through the layers in one part or in two. With two, the exchange of each flies while
 * the other attends, and while one waits the other's experts run (not if ranks share experts: they
 * would have to choose alike): two batches side by side, or the halves of a prompt one behind the
 * other. All ranks cut alike, so handles are taken in the same order everywhere. A row's bits do
 * not depend on its part. */
#include "engine_internal.h"
#include "tutti/trace.h"

/* After dealing, each TP rank has new values of its own rows of x[T][H]: all get all rows. */
static tt_status gather_rows(tt_engine *engine, float *x, int64_t T)
{
    const tt_layout *layout = engine->layout;
    tt_rect rect[TT_LAYOUT_MAX_SPLIT];
    for (int part = 0; part < layout->tp; part++) {
        int64_t begin, end;
        tt_layout_deal(T, layout->tp, part, &begin, &end);
        tt_rect rows = {begin, end - begin, 0, engine->arch->H};
        rect[part] = rows;
    }
    tt_span span = tt_span_begin(TT_PHASE_GATHER, "gather rows");
    TT_TRY(tt_gather_exec(engine->row_gather, x, engine->arch->H, rect, TT_GATHER_ALL,
                          engine->compute));
    tt_span_end(&span, (uint64_t)T * (uint64_t)engine->arch->H * sizeof(float));
    return TT_OK;
}

/* What a half of a layer made joins its rows: x[n][H] += y[n][H], normed first where the
 * architecture says so. */
static void join(tt_engine *engine, const tti_norm *norm, float *x, float *y, int64_t n)
{
    const tt_arch *arch = engine->arch;
    if (arch->norm_place == TT_NORM_AFTER) {
        tti_trunk_norm(engine, norm, y, y, n);
    }
    if (arch->residual_scale == 1.0f) {
        tt_add_run(engine->compute, "add", x, y, n * arch->H);
    } else {
        tt_axpy_run(engine->compute, "add", x, arch->residual_scale, y, n * arch->H);
    }
}

/* What a half of a layer reads: the rows x[T][H] themselves, or normed into h[T][H]. */
static const float *enter(tt_engine *engine, const tti_norm *norm, const float *x, float *h,
                          int64_t T)
{
    if (engine->arch->norm_place == TT_NORM_AFTER) {
        return x;
    }
    tti_trunk_norm(engine, norm, x, h, T);
    return h;
}

/* Sends a part's dealt rows of `in` to the experts of a layer. */
static tt_status begin_moe(tt_engine *engine, tti_part *part, int64_t layer, const float *in,
                           tt_status mine)
{
    part->begin = part->end = 0;
    if (part->batch.T > 0) {
        tt_layout_deal(part->batch.T, engine->layout->tp, engine->role->tp_id, &part->begin,
                       &part->end);
    }
    part->handle = engine->next_handle;
    engine->next_handle = (part->handle + 1) % engine->layout->n_handles;
    part->is_flying = true;
    return tt_moe_begin(engine->moe, part->handle, layer, part->end - part->begin,
                        in + part->begin * engine->arch->H, mine);
}

/* Ends what a part began in a layer, if anything; `other` is a part that may fly as well, or
 * NULL. */
static tt_status end_moe(tt_engine *engine, tti_part *part, const tti_part *other, int64_t layer)
{
    const int64_t H = engine->arch->H;
    float *x = engine->x + part->first * H, *y = engine->y + part->first * H;
    if (!part->is_flying) {
        return TT_OK;
    }
    part->is_flying = false;
    TT_TRY(tt_moe_end(engine->moe, part->handle, other && other->is_flying ? other->handle : -1,
                      y + part->begin * H));
    if (part->batch.T == 0) {
        return TT_OK;
    }
    join(engine, &engine->ffn_norm[layer], x + part->begin * H, y + part->begin * H,
         part->end - part->begin);
    return gather_rows(engine, x, part->batch.T);
}

/* One layer of a part, up to where its rows fly. */
static tt_status run_layer(tt_engine *engine, tti_part *part, int64_t layer, tt_status mine)
{
    const int64_t H = engine->arch->H, T = part->batch.T;
    float *x = engine->x + part->first * H, *h = engine->h + part->first * H,
          *y = engine->y + part->first * H;
    const float *in = h; /* of the feed-forward half */
    if (T > 0) {
        in = enter(engine, &engine->attention_norm[layer], x, h, T);
        TT_TRY(tt_attention_forward(engine->attention, layer, &part->batch, in, y));
        join(engine, &engine->attention_norm[layer], x, y, T);
        in = enter(engine, &engine->ffn_norm[layer], x, h, T);
    }
    if (engine->arch->layer[layer].is_moe) {
        return begin_moe(engine, part, layer, in, mine);
    }
    if (T > 0) {
        TT_TRY(tt_moe_dense(engine->moe, layer, T, in, y));
        join(engine, &engine->ffn_norm[layer], x, y, T);
    }
    return TT_OK;
}

tt_status engine_forward(tt_engine *engine, tt_status mine)
{
    tti_schedule *schedule = &engine->schedule;
    const int n_parts = schedule->n_parts;
    const int64_t L = engine->arch->L;
    tt_moe_new_step(engine->moe);
    if (schedule->batch.T > 0) {
        tti_trunk_embed(engine, schedule->row_token, schedule->batch.T, engine->x);
    }
    for (int64_t l = 0; l <= L; l++) {
        for (int i = 0; i < n_parts; i++) {
            tti_part *part = &schedule->part[i];
            const tti_part *other = n_parts > 1 ? &schedule->part[1 - i] : NULL;
            TT_TRY(end_moe(engine, part, other, l - 1));
            if (l < L) {
                TT_TRY(run_layer(engine, part, l, mine));
            }
        }
    }
    return TT_OK;
}
