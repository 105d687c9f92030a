/* forward.c - the one forward loop. Every rank walks all layers in every step: one without rows takes part in the exchange with T = 0, one without experts
 * owns nothing there, one without attention has nothing else to do. Layouts are values in it, not copies of it. */
#include "engine_internal.h"
#include "tutti/trace.h"

/* After dealing, each TP rank has new values of its own rows of x: all get all rows. */
static tt_status gather_rows(tt_engine *engine, int64_t T)
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
    TT_TRY(tt_gather_exec(engine->row_gather, engine->x, engine->arch->H, rect, TT_GATHER_ALL,
                          engine->compute));
    tt_span_end(&span, (uint64_t)T * (uint64_t)engine->arch->H * sizeof(float));
    return TT_OK;
}

/* What a half of a layer made joins its rows: x[n][H] += y[n][H], normed first where the architecture says so. */
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

/* What a half of a layer reads: the rows themselves, or normed into h. */
static const float *enter(tt_engine *engine, const tti_norm *norm, int64_t T)
{
    if (engine->arch->norm_place == TT_NORM_AFTER) {
        return engine->x;
    }
    tti_trunk_norm(engine, norm, engine->x, engine->h, T);
    return engine->h;
}

/* The feed-forward half of a MoE layer, on dealt rows of `in`. */
static tt_status moe_half(tt_engine *engine, int64_t layer, int64_t T, const float *in, tt_status mine)
{
    int64_t H = engine->arch->H, begin = 0, end = 0;
    if (T > 0) {
        tt_layout_deal(T, engine->layout->tp, engine->role->tp_id, &begin, &end);
    }
    int handle = engine->next_handle;
    engine->next_handle = (handle + 1) % engine->layout->n_handles;
    TT_TRY(tt_moe_begin(engine->moe, handle, layer, end - begin, in + begin * H, mine));
    TT_TRY(tt_moe_end(engine->moe, handle, engine->y + begin * H));
    if (T == 0) {
        return TT_OK;
    }
    join(engine, &engine->ffn_norm[layer], engine->x + begin * H, engine->y + begin * H, end - begin);
    return gather_rows(engine, T);
}

tt_status engine_forward(tt_engine *engine, tt_status mine)
{
    const tt_arch *arch = engine->arch;
    const tt_batch *batch = &engine->schedule.batch;
    int64_t T = batch->T;
    if (T > 0) {
        tti_trunk_embed(engine, engine->schedule.row_token, T, engine->x);
    }
    for (int64_t l = 0; l < arch->L; l++) {
        const float *in = engine->h; /* of the feed-forward half */
        if (T > 0) {
            in = enter(engine, &engine->attention_norm[l], T);
            TT_TRY(tt_attention_forward(engine->attention, l, batch, in, engine->y));
            join(engine, &engine->attention_norm[l], engine->x, engine->y, T);
            in = enter(engine, &engine->ffn_norm[l], T);
        }
        if (arch->layer[l].is_moe) {
            TT_TRY(moe_half(engine, l, T, in, mine));
        } else if (T > 0) {
            TT_TRY(tt_moe_dense(engine->moe, l, T, in, engine->y));
            join(engine, &engine->ffn_norm[l], engine->x, engine->y, T);
        }
    }
    return TT_OK;
}
