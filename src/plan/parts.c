/* parts.c - how one size is cut over ranks: panels of columns, dealt rows, experts of a group.
 *
 * Every cut is the same fixed split (tt_split), applied to another unit, so that each rank can tell
 * every other rank's part without asking. */
#include "tutti/plan.h"
#include "tutti/stream.h"
#include "ttk.h"

void tt_layout_columns(int64_t total, int n_parts, int part, int64_t *begin_out, int64_t *end_out)
{
    /* A panel never serves two ranks: each packs whole panels, and only the last one is padded. */
    int64_t n_panels = total / TTK_PANEL + (total % TTK_PANEL != 0);
    int64_t begin = 0;
    int64_t end = 0;
    tt_split(n_panels, n_parts, part, &begin, &end);
    *begin_out = begin < n_panels ? begin * TTK_PANEL : total;
    *end_out = end < n_panels ? end * TTK_PANEL : total;
}

void tt_layout_deal(int64_t T, int tp, int tp_id, int64_t *begin_out, int64_t *end_out)
{
    tt_split(T, tp, tp_id, begin_out, end_out);
}

void tt_layout_experts(int64_t E, int n_groups, int group_id, int64_t *begin_out, int64_t *end_out)
{
    tt_split(E, n_groups, group_id, begin_out, end_out);
}
