/* print.c - a layout as people read it: one line of what was chosen and why, then one line per
 * rank. */
#include "tutti/plan.h"
#include <inttypes.h>
#include "plan_internal.h"

enum { TEXT_BYTES = 64, N_PARTS = 6, TOTAL = N_PARTS - 1 };

static const char *attention_text(const tt_rank_role *role, char *text)
{
    if (role->dp_id < 0) {
        return "-";
    }
    snprintf(text, TEXT_BYTES, "dp %d tp %d heads %" PRId64 "-%" PRId64, role->dp_id, role->tp_id,
             role->head_begin, role->head_end - 1);
    return text;
}

static const char *experts_text(const tt_arch *arch, const tt_layout *layout,
                                const tt_rank_role *role, char *text)
{
    if (role->group_id < 0) {
        return "-";
    }
    int64_t first = 0;
    int64_t end = 0;
    tt_layout_experts(arch->E, layout->n_groups, role->group_id, &first, &end);
    int length = end > first ? snprintf(text, TEXT_BYTES, "%" PRId64 "-%" PRId64, first, end - 1)
                             : snprintf(text, TEXT_BYTES, "none");
    if (layout->etp > 1 && length > 0) {
        snprintf(text + length, TEXT_BYTES - (size_t)length, " part %d/%d", role->etp_id,
                 layout->etp);
    }
    return text;
}

tt_status tt_plan_print(const tt_model *model, const tt_layout *layout, FILE *out)
{
    const tt_arch *arch = tt_model_arch(model);
    fprintf(out, "layout: %d rank%s on %d node%s; %s\n", layout->n_ranks,
            layout->n_ranks == 1 ? "" : "s", layout->n_nodes, layout->n_nodes == 1 ? "" : "s",
            layout->why);
    fprintf(out,
            "        rows per step: %" PRId64 " per DP group, %" PRId64
            " dispatched per rank; KV pool: %" PRId64 " pages of %d tokens\n",
            layout->max_rows_group, layout->max_rows_rank, layout->kv_pages, TTI_PLAN_PAGE_TOKENS);
    bool is_shared = layout->replicate == TT_REPLICATE_NODE;
    fprintf(out, "%5s %5s  %-24s %-18s %11s %11s %11s %11s %11s", "rank", "node", "attention",
            "experts", "dense", "experts", "KV", "exchange", "work");
    if (is_shared) {
        fprintf(out, " %11s", "borrowed");
    }
    fprintf(out, " %11s\n", "total");
    for (int rank = 0; rank < layout->n_ranks; rank++) {
        const tt_rank_role *role = &layout->role[rank];
        tt_rank_memory m;
        TT_TRY(tt_plan_memory(model, layout, rank, &m));
        const uint64_t part[N_PARTS] = {m.dense_bytes,    m.expert_bytes, m.kv_bytes,
                                        m.exchange_bytes, m.work_bytes,   m.total_bytes};
        char attention[TEXT_BYTES], experts[TEXT_BYTES];
        fprintf(out, "%5d %5d  %-24s %-18s", rank, role->node, attention_text(role, attention),
                experts_text(arch, layout, role, experts));
        for (int i = 0; i < N_PARTS; i++) {
            char bytes[TEXT_BYTES];
            if (i == TOTAL && is_shared) {
                fprintf(out, " %11s", tti_plan_bytes_text(m.borrowed_bytes, bytes, sizeof(bytes)));
            }
            fprintf(out, " %11s", tti_plan_bytes_text(part[i], bytes, sizeof(bytes)));
        }
        fputc('\n', out);
    }
    TT_CHECK(!ferror(out), TT_ERR_IO, "the layout could not be printed");
    return TT_OK;
}
