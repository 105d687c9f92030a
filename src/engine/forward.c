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

/* The feed-forward half of a MoE layer, on dealt rows. */
static tt_status moe_half(tt_engine *engine, int64_t layer, int64_t T, tt_status mine)
{
    int64_t H = engine->arch->H, begin = 0, end = 0;
    if (T > 0) {
        tt_layout_deal(T, engine->layout->tp, engine->role->tp_id, &begin, &end);
    }
    int handle = engine->next_handle;
    engine->next_handle = (handle + 1) % engine->layout->n_handles;
    TT_TRY(tt_moe_begin(engine->moe, handle, layer, end - begin, engine->h + begin * H, mine));
    TT_TRY(tt_moe_end(engine->moe, handle, engine->y + begin * H));
    tt_add_run(engine->compute, "add", engine->x + begin * H, engine->y + begin * H,
               (end - begin) * H);
    return T > 0 ? gather_rows(engine, T) : TT_OK;
}

tt_status engine_forward(tt_engine *engine, tt_status mine)
{
    const tt_arch *arch = engine->arch;
    const tt_batch *batch = &engine->schedule.batch;
    int64_t T = batch->T, H = arch->H;
    if (T > 0) {
        tti_trunk_embed(engine, engine->schedule.row_token, T, engine->x);
    }
    for (int64_t l = 0; l < arch->L; l++) {
        if (T > 0) {
            tti_trunk_norm(engine, engine->attention_norm[l], engine->x, engine->h, T);
            TT_TRY(tt_attention_forward(engine->attention, l, batch, engine->h, engine->y));
            tt_add_run(engine->compute, "add", engine->x, engine->y, T * H);
            tti_trunk_norm(engine, engine->ffn_norm[l], engine->x, engine->h, T);
        }
        if (arch->layer[l].is_moe) {
            TT_TRY(moe_half(engine, l, T, mine));
        } else if (T > 0) {
            TT_TRY(tt_moe_dense(engine->moe, l, T, engine->h, engine->y));
            tt_add_run(engine->compute, "add", engine->x, engine->y, T * H);
        }
    }
    return TT_OK;
}
