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

int64_t tt_layout_widest(int64_t total, int n_parts)
{
    int64_t begin = 0;
    int64_t end = 0;
    tt_layout_columns(total, n_parts, 0, &begin, &end);
    return end - begin;
}

void tt_layout_deal(int64_t T, int tp, int tp_id, int64_t *begin_out, int64_t *end_out)
{
    tt_split(T, tp, tp_id, begin_out, end_out);
}

void tt_layout_experts(int64_t E, int n_groups, int group_id, int64_t *begin_out, int64_t *end_out)
{
    tt_split(E, n_groups, group_id, begin_out, end_out);
}

tt_delta_heads tt_layout_delta_heads(const tt_delta *delta, int tp, int tp_id)
{
    tt_delta_heads heads = {0, 0, 0, 0};
    if (delta->Nk > 0) {
        int64_t values_per_key = delta->Nv / delta->Nk;
        tt_split(delta->Nv, tp, tp_id, &heads.value_begin, &heads.value_end);
        heads.key_begin = heads.value_begin / values_per_key;
        heads.key_end = (heads.value_end + values_per_key - 1) / values_per_key;
        if (heads.value_begin == heads.value_end) {
            heads.key_end = heads.key_begin;
        }
    }
    return heads;
}

int64_t tt_delta_state_floats(const tt_delta *delta, const tt_delta_heads *heads)
{
    int64_t n_keys = heads->key_end - heads->key_begin,
            n_values = heads->value_end - heads->value_begin;
    int64_t channels = 2 * n_keys * delta->Dk + n_values * delta->Dv;
    int64_t floats =
        n_values * ttk_delta_state_floats(delta->Dk, delta->Dv) + (delta->conv - 1) * channels;
    enum { LINE_FLOATS = TT_CACHE_LINE / sizeof(float) };
    /* each sequence's begins at a cache line */
    return (floats + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
}
