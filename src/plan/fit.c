/* fit.c - whether a layout's memory is there: node by node, what its ranks will hold against what
 * is available; the refusal of what cannot fit, and the choice between private and shared dense
 * weights. */
#include <stdio.h>
#include "plan_internal.h"

enum { TEXT_BYTES = 32 };

const char *tti_plan_bytes_text(uint64_t bytes, char *text, size_t size)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t i = 0;
    while (value >= 1024.0 && i + 1 < sizeof(unit) / sizeof(unit[0])) {
        value /= 1024.0;
        i++;
    }
    snprintf(text, size, i == 0 ? "%.0f %s" : "%.2f %s", value, unit[i]);
    return text;
}

/* What one node's ranks hold together; dense_bytes without what is borrowed. */
typedef struct node_need {
    tt_rank_memory sum;
    int node, n_ranks, n_attend;
} node_need;

static tt_status need_of_node(const tt_model *model, const tt_layout *layout, int node,
                              node_need *need_out)
{
    node_need need = {.node = node};
    tt_rank_memory *sum = &need.sum;
    for (int rank = 0; rank < layout->n_ranks; rank++) {
        if (layout->role[rank].node != node) {
            continue;
        }
        tt_rank_memory m;
        TT_TRY(tt_plan_memory(model, layout, rank, &m));
        sum->dense_bytes = tti_plan_add(sum->dense_bytes, m.dense_bytes - m.borrowed_bytes);
        sum->expert_bytes = tti_plan_add(sum->expert_bytes, m.expert_bytes);
        sum->kv_bytes = tti_plan_add(sum->kv_bytes, m.kv_bytes);
        sum->exchange_bytes = tti_plan_add(sum->exchange_bytes, m.exchange_bytes);
        sum->work_bytes = tti_plan_add(sum->work_bytes, m.work_bytes);
        sum->borrowed_bytes = tti_plan_add(sum->borrowed_bytes, m.borrowed_bytes);
        sum->total_bytes = tti_plan_add(sum->total_bytes, m.total_bytes);
        need.n_ranks++;
        need.n_attend += layout->role[rank].dp_id >= 0;
    }
    *need_out = need;
    return TT_OK;
}

/* The first node that has too little room; *fits_out is true if none has. */
static tt_status find_misfit(const tt_model *model, const tt_layout *layout,
                             const uint64_t *available_bytes, bool *fits_out, node_need *need_out)
{
    *fits_out = false;
    for (int node = 0; node < layout->n_nodes; node++) {
        if (available_bytes[node] > 0) {
            TT_TRY(need_of_node(model, layout, node, need_out));
            if (need_out->sum.total_bytes > available_bytes[node]) {
                return TT_OK;
            }
        }
    }
    *fits_out = true;
    return TT_OK;
}

tt_status tt_plan_check_fit(const tt_model *model, const tt_layout *layout,
                            const uint64_t *available_bytes)
{
    bool fits;
    node_need need = {0};
    TT_TRY(find_misfit(model, layout, available_bytes, &fits, &need));
    if (fits) {
        return TT_OK;
    }
    const tt_rank_memory *m = &need.sum;
    uint64_t room = available_bytes[need.node];
    char needed[TEXT_BYTES], there[TEXT_BYTES], dense[TEXT_BYTES], experts[TEXT_BYTES],
        kv[TEXT_BYTES], buffers[TEXT_BYTES];
    bool is_shared = layout->replicate == TT_REPLICATE_NODE;
    const char *help = "a smaller context, max-batch or prefill-chunk, or more nodes";
    if (tti_plan_add(m->dense_bytes, m->expert_bytes) > room) {
        help = m->expert_bytes > m->dense_bytes
                   ? "more nodes, over which the experts spread"
                   : "a larger tp, or fewer ranks that each hold dense weights";
    }
    return TT_FAIL(TT_ERR_FIT,
                   "node %d needs %s for its %d ranks, but %s are available (dense weights %s%s, "
                   "experts %s, KV %s, exchange and work %s); what helps: %s%s",
                   need.node, tti_plan_bytes_text(m->total_bytes, needed, sizeof(needed)),
                   need.n_ranks, tti_plan_bytes_text(room, there, sizeof(there)),
                   is_shared ? "once per node " : "",
                   tti_plan_bytes_text(m->dense_bytes, dense, sizeof(dense)),
                   tti_plan_bytes_text(m->expert_bytes, experts, sizeof(experts)),
                   tti_plan_bytes_text(m->kv_bytes, kv, sizeof(kv)),
                   tti_plan_bytes_text(tti_plan_add(m->exchange_bytes, m->work_bytes), buffers,
                                       sizeof(buffers)),
                   !is_shared && need.n_attend > 1 ? "--replicate node, " : "", help);
}

tt_status tt_plan_settle(const tt_model *model, tt_layout *layout, const uint64_t *available_bytes,
                         char *why_out, size_t why_bytes)
{
    why_out[0] = 0;
    if (layout->replicate == TT_REPLICATE_AUTO) {
        bool fits;
        node_need own = {0}, shared = {0};
        layout->replicate = TT_REPLICATE_NUMA;
        TT_TRY(find_misfit(model, layout, available_bytes, &fits, &own));
        if (fits) {
            return TT_OK;
        }
        layout->replicate = TT_REPLICATE_NODE;
        TT_TRY(need_of_node(model, layout, own.node, &shared));
        if (shared.sum.borrowed_bytes == 0) {
            layout->replicate = TT_REPLICATE_NUMA; /* nothing to share there */
        } else {
            layout->must_share = true;
            char needed[TEXT_BYTES], there[TEXT_BYTES], saved[TEXT_BYTES];
            snprintf(
                why_out, why_bytes,
                "node %d would need %s with dense weights of its own on each rank, and %s are available: the ranks of a node share them, "
                "which saves %s (--replicate node)",
                own.node, tti_plan_bytes_text(own.sum.total_bytes, needed, sizeof(needed)),
                tti_plan_bytes_text(available_bytes[own.node], there, sizeof(there)),
                tti_plan_bytes_text(shared.sum.borrowed_bytes, saved, sizeof(saved)));
        }
    }
    return tt_plan_check_fit(model, layout, available_bytes);
}
