/* exchange_sums.c - results that are summed on the node where they arise (TT_COMBINE_REDUCED), and
 * sums that come back.
 *
 * Owners put their results one by one, in f32, beside the message of rows that they belong to. Once
 * all owners that share it have put theirs, each of them sums a share of its rows, in an order that
 * hangs on the plan alone, and the rail sends the sums. */
#include "exchange_internal.h"
#include <string.h>
#include "ttk.h"

enum { SUM_COLUMNS = 8 * TT_WIRE_GROUP }; /* at a time: 1 KiB, which stays in L1 */

typedef struct share_task {
    const tt_exchange *x;
    const tti_chunk *c;
    const unsigned char *put;
    unsigned char *results;
    int64_t begin, end; /* rows */
} share_task;

/* Results of each row in the order of entries, that is of owners and their slots. */
static void list_rows(const tt_exchange *x, tti_chunk *c, const unsigned char *message,
                      const tti_wire_header *header)
{
    const unsigned char *parts = message + TTI_HEADER_BYTES;
    const tti_group *group =
        (const tti_group *)(parts + (size_t)(header->n_owners + 1) * sizeof(tti_wire_part));
    const int32_t *index = (const int32_t *)(group + header->n_groups);
    const float *weight = (const float *)(index + header->n_entries);
    memset(c->row_begin, 0, (size_t)(header->n_rows + 1) * sizeof(*c->row_begin));
    for (int32_t e = 0; e < header->n_entries; e++) {
        c->row_begin[index[e] + 1]++;
    }
    for (int32_t r = 0; r < header->n_rows; r++) {
        c->row_begin[r + 1] += c->row_begin[r];
    }
    int64_t e = 0;
    for (int m = 0; m < header->n_owners; m++) {
        tti_wire_part part;
        memcpy(&part, parts + (size_t)m * sizeof(part), sizeof(part));
        const size_t stride = tti_far_stride(x, part.part);
        for (int32_t i = 0; i < part.n_entries; i++, e++) {
            c->row_entry[c->row_begin[index[e]]++] =
                (tti_row_entry){(size_t)part.back_begin + (size_t)i * stride, part.part,
                                x->weights_travel ? 1.0f : weight[e]};
        }
    }
    for (int32_t r = header->n_rows; r > 0; r--) { /* where each began */
        c->row_begin[r] = c->row_begin[r - 1];
    }
    c->row_begin[0] = 0;
}

static void sum_share(void *arg, int thread_id, int n_threads)
{
    const share_task *task = arg;
    const tt_exchange *x = task->x;
    float sum[SUM_COLUMNS];
    int64_t begin = 0, end = 0;
    tt_split(task->end - task->begin, n_threads, thread_id, &begin, &end);
    for (int64_t r = task->begin + begin; r < task->begin + end; r++) {
        unsigned char *to = task->results + TTI_HEADER_BYTES + (size_t)r * x->layout.back_row_bytes;
        for (int w = 0; w < x->width; to += x->part_bytes[w], w++) {
            const int64_t first = x->back_columns[w], last = x->back_columns[w + 1];
            for (int64_t col = first; col < last; col += SUM_COLUMNS) {
                const int64_t n = last - col < SUM_COLUMNS ? last - col : SUM_COLUMNS;
                memset(sum, 0, (size_t)n * sizeof(*sum));
                for (int64_t e = task->c->row_begin[r]; e < task->c->row_begin[r + 1]; e++) {
                    const tti_row_entry *entry = &task->c->row_entry[e];
                    if (entry->part == w) {
                        ttk.axpy_f32(sum, entry->weight,
                                     (const float *)(task->put + entry->at) + (col - first), n);
                    }
                }
                tt_wire_round(x->wire_back, to + tt_wire_row_bytes(x->wire_back, col - first), sum,
                              n);
            }
        }
    }
}

/* The intake of a source whose rows are here and whose results this owner has still to sum; NULL if
 * there is none. */
static unsigned char *unsummed_intake(const tt_exchange *x, const tti_chunk *c, int source_id)
{
    const tti_arrival *a = &c->arrival[source_id];
    return x->paths.rail[source_id] >= 0 && c->is_expected[source_id] && a->has_arrived &&
                   !a->is_summed
               ? tti_intake_part(x, source_id, c->id)
               : NULL;
}

void tti_sums_owing(const tt_exchange *x, const tti_chunk *c, bool *owes)
{
    for (int s = 0; s < x->n_sources && x->is_reduced && x->owner_id >= 0; s++) {
        unsigned char *intake = unsummed_intake(x, c, s);
        for (int m = 0; m < x->paths.n_mates && intake; m++) {
            const int owner_id = x->paths.owner_at[x->paths.mate_first + m];
            const bool has_put = atomic_load_explicit(&tti_intake_returns(intake)[m].seq,
                                                      memory_order_acquire) == c->handle->use;
            owes[x->owner[owner_id]] =
                owes[x->owner[owner_id]] || (!has_put && owner_id != x->owner_id);
        }
    }
}

void tti_sums_make(tt_exchange *x, tti_chunk *c)
{
    for (int s = 0; s < x->n_sources && c->n_summed < c->n_far_expected; s++) {
        tti_arrival *a = &c->arrival[s];
        unsigned char *intake = unsummed_intake(x, c, s);
        if (!intake || !tti_all_raised(x, intake, c->handle->use, false)) {
            continue;
        }
        const unsigned char *message = intake + x->layout.message;
        const int mate = x->paths.position[x->owner_id] - x->paths.mate_first;
        tti_wire_header header;
        memcpy(&header, message, sizeof(header));
        share_task task = {
            .x = x, .c = c, .put = intake + x->layout.put, .results = intake + x->layout.results};
        tt_split(header.n_rows, x->paths.n_mates, mate, &task.begin, &task.end);
        list_rows(x, c, message, &header);
        if (c->handle->compute && (task.end - task.begin) * x->H >= TTI_SMALL_FLOATS) {
            tt_stream_run(c->handle->compute, "sum results", sum_share, &task);
        } else {
            sum_share(&task, 0, 1);
        }
        a->is_summed = true;
        c->n_summed++;
        atomic_store_explicit(&tti_intake_returns(intake)[mate].summed, c->handle->use,
                              memory_order_release);
        tti_wire_return(x, c, s);
    }
}

/* The first row of a lane whose token is not below t. */
static int64_t first_row(const tti_chunk *c, const tti_lane *lane, int64_t t)
{
    int64_t low = 0, high = lane->n_rows;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (c->far_row[lane->row_begin + middle] < t) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void tti_sums_add(const tt_exchange *x, const tti_chunk *c, float *y, int64_t ldy, int64_t begin,
                  int64_t end)
{
    float wide[SUM_COLUMNS];
    const unsigned char *back = tti_window_part(x, x->world->rank, c->id) + x->layout.back;
    for (int i = 0; i < x->paths.n_lanes; i++) {
        const tti_lane *lane = &c->lane[i];
        for (int64_t r = first_row(c, lane, begin);
             r < lane->n_rows && c->far_row[lane->row_begin + r] < end; r++) {
            const unsigned char *row =
                back + lane->back_begin + TTI_HEADER_BYTES + (size_t)r * x->layout.back_row_bytes;
            float *to = y + c->far_row[lane->row_begin + r] * ldy;
            for (int w = 0; w < x->width; row += x->part_bytes[w], w++) {
                const int64_t first = x->back_columns[w], last = x->back_columns[w + 1];
                for (int64_t col = first; col < last; col += SUM_COLUMNS) {
                    const int64_t n = last - col < SUM_COLUMNS ? last - col : SUM_COLUMNS;
                    tt_wire_widen(x->wire_back, wide,
                                  row + tt_wire_row_bytes(x->wire_back, col - first), n);
                    ttk.add_f32(to + col, wide, n);
                }
            }
        }
    }
}
