/* exchange_check.c - messages that have arrived, read by those they are for. Nothing in them is
 * used as a count, a place or an index before it is checked; what does not fit names the sender. */
#include "exchange_internal.h"
#include <string.h>

tt_status tti_wire_mismatch(const tt_exchange *x, const tti_chunk *c, int rank, const char *what,
                            uint64_t got, uint64_t expected)
{
    char a[TTI_NAME_BYTES], b[TTI_NAME_BYTES];
    return TT_FAIL(
        TT_ERR_PROTOCOL,
        "exchange handle %d, use %llu, chunk %d: %s of the message from %s to %s is %llu, "
        "expected %llu",
        c->handle->id, (unsigned long long)c->handle->use, c->place, what,
        tti_rank_name(x->world, rank, a, sizeof(a)),
        tti_rank_name(x->world, x->world->rank, b, sizeof(b)), (unsigned long long)got,
        (unsigned long long)expected);
}

/* Times of another host's clock mean nothing here. */
static bool is_due(const tt_world *world, const tti_wire_header *header, int rank)
{
    return world->real_node[rank] != world->real_node[world->rank] ||
           tti_is_due(header->visible_ns);
}

/* Fields that both kinds of message share. */
static tt_status check_header(const tt_exchange *x, const tti_chunk *c,
                              const tti_wire_header *header, uint32_t magic, int rank)
{
    const struct {
        const char *what;
        uint64_t got, expected;
    } fields[] = {
        {"magic", header->magic, magic},
        {"use", header->seq, c->handle->use},
        {"owner map epoch", header->epoch, c->handle->epoch},
        {"sender", (uint64_t)header->rank, (uint64_t)rank},
        {"chunk", header->chunk, (uint64_t)c->id},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].got != fields[i].expected) {
            return tti_wire_mismatch(x, c, rank, fields[i].what, fields[i].got, fields[i].expected);
        }
    }
    return TT_OK;
}

/* One owner's part of a message of rows, and where it lies. */
typedef struct wire_view {
    tti_wire_part part;
    int64_t first_group, first_entry;
    const tti_group *group; /* of all owners */
    const int32_t *index;
} wire_view;

/* Counts and parts. */
static tt_status check_parts(const tt_exchange *x, const tti_chunk *c,
                             const tti_wire_header *header, const unsigned char *message, int rank,
                             int mate, wire_view *view)
{
    const struct {
        const char *what;
        int64_t got, most;
    } counts[] = {
        {"number of rows", header->n_rows, x->chunk_tokens},
        {"number of entries", header->n_entries, x->chunk_tokens * x->K * x->width},
        {"number of groups", header->n_groups, header->n_entries},
    };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        if (counts[i].got < 0 || counts[i].got > counts[i].most) {
            return tti_wire_mismatch(x, c, rank, counts[i].what, (uint64_t)counts[i].got,
                                     (uint64_t)counts[i].most);
        }
    }
    const uint64_t bytes =
        tti_wire_head_bytes(x, header->n_owners, header->n_groups, header->n_entries) +
        (uint64_t)header->n_rows * x->layout.row_bytes;
    if (header->bytes != bytes) {
        return tti_wire_mismatch(x, c, rank, "length", header->bytes, bytes);
    }
    int64_t n_groups = 0, n_entries = 0;
    const unsigned char *at = message + TTI_HEADER_BYTES;
    for (int m = 0; m < header->n_owners; m++, at += sizeof(tti_wire_part)) {
        tti_wire_part part;
        memcpy(&part, at, sizeof(part));
        if (m == mate) {
            *view = (wire_view){.part = part, .first_group = n_groups, .first_entry = n_entries};
        }
        if (part.n_groups < 0 || part.n_entries < 0 || part.n_rows < 0 || part.part < 0 ||
            part.part >= x->width) {
            return tti_wire_mismatch(x, c, rank, "part of an owner", (uint64_t)m,
                                     (uint64_t)header->n_owners);
        }
        const uint64_t back = (uint64_t)part.n_entries * tti_far_stride(x, part.part),
                       room = x->layout.intake_bytes - x->layout.put;
        if (part.back_begin < TTI_HEADER_BYTES || (uint64_t)part.back_begin > room ||
            back > room - (uint64_t)part.back_begin) {
            return tti_wire_mismatch(x, c, rank, "place of results", (uint64_t)part.back_begin,
                                     room);
        }
        n_groups += part.n_groups;
        n_entries += part.n_entries;
    }
    if (view->part.n_entries > 0 &&
        view->part.part != (c->handle->part < 0 ? 0 : c->handle->part)) {
        return tti_wire_mismatch(x, c, rank, "columns of this owner", (uint64_t)view->part.part,
                                 (uint64_t)c->handle->part);
    }
    if (n_groups != header->n_groups || n_entries != header->n_entries) {
        return tti_wire_mismatch(x, c, rank, "sum of parts", (uint64_t)n_entries,
                                 (uint64_t)(uint32_t)header->n_entries);
    }
    view->group = (const tti_group *)(at + sizeof(tti_wire_part));
    view->index = (const int32_t *)(view->group + header->n_groups);
    return TT_OK;
}

/* Groups and index of this owner. */
static tt_status check_entries(const tt_exchange *x, const tti_chunk *c, const wire_view *view,
                               int32_t n_rows, int rank)
{
    int64_t sum = 0;
    for (int64_t g = view->first_group; g < view->first_group + view->part.n_groups; g++) {
        if (view->group[g].slot < 0 || view->group[g].slot > c->handle->max_local ||
            view->group[g].n <= 0) {
            return tti_wire_mismatch(x, c, rank, "slot of a group",
                                     (uint64_t)(uint32_t)view->group[g].slot,
                                     (uint64_t)(uint32_t)c->handle->max_local);
        }
        sum += view->group[g].n;
    }
    if (sum != view->part.n_entries) {
        return tti_wire_mismatch(x, c, rank, "sum of groups", (uint64_t)sum,
                                 (uint64_t)(uint32_t)view->part.n_entries);
    }
    for (int64_t e = view->first_entry; e < view->first_entry + view->part.n_entries; e++) {
        if (view->index[e] < 0 || view->index[e] >= n_rows) {
            return tti_wire_mismatch(x, c, rank, "row of an entry",
                                     (uint64_t)(uint32_t)view->index[e],
                                     (uint64_t)(uint32_t)n_rows);
        }
    }
    return TT_OK;
}

static tt_status failed_source(const tt_exchange *x, const tti_wire_header *header,
                               const unsigned char *message, int rank)
{
    char name[TTI_NAME_BYTES];
    const uint64_t text = header->bytes - TTI_HEADER_BYTES;
    return TT_FAIL(TT_ERR_PEER, "%s failed with %s: %.*s",
                   tti_rank_name(x->world, rank, name, sizeof(name)),
                   tt_status_name((tt_status)header->status),
                   (int)(text < TTI_FAIL_TEXT_BYTES ? text : TTI_FAIL_TEXT_BYTES),
                   (const char *)message + TTI_HEADER_BYTES);
}

tt_status tti_wire_arrive(tt_exchange *x, tti_chunk *c, int source_id, bool *has_arrived_out)
{
    *has_arrived_out = false;
    unsigned char *intake = tti_intake_part(x, source_id, c->id);
    if (atomic_load_explicit(&((tti_gate *)intake)->seq, memory_order_acquire) != c->handle->use) {
        return TT_OK;
    }
    const unsigned char *message = intake + x->layout.message;
    const int rank = x->source[source_id],
              mate = x->paths.position[x->owner_id] - x->paths.mate_first;
    tti_wire_header header;
    wire_view view = {{0}, 0, 0, NULL, NULL};
    memcpy(&header, message, sizeof(header));
    if (!is_due(x->world, &header, rank)) {
        return TT_OK;
    }
    TT_TRY(check_header(x, c, &header, TTI_ROWS_MAGIC, rank));
    if (header.status != TT_OK) {
        return failed_source(x, &header, message, rank);
    }
    if (header.n_chunks <= c->place || header.n_chunks > x->n_chunks) {
        return tti_wire_mismatch(x, c, rank, "number of chunks", header.n_chunks,
                                 (uint64_t)x->n_chunks);
    }
    TT_TRY(check_parts(x, c, &header, message, rank, mate, &view));
    TT_TRY(check_entries(x, c, &view, header.n_rows, rank));
    c->arrival[source_id] = (tti_arrival){
        .has_arrived = true,
        .n_chunks = header.n_chunks,
        .group = view.group + view.first_group,
        .n_groups = view.part.n_groups,
        .n_left = view.part.n_groups,
        .n_entries = view.part.n_entries,
        .index = view.index + view.first_entry,
        .weight = x->weights_travel
                      ? (const float *)(view.index + header.n_entries) + view.first_entry
                      : NULL,
        .rows =
            message + tti_wire_head_bytes(x, header.n_owners, header.n_groups, header.n_entries),
        .row_bytes = x->layout.row_bytes,
        .back = intake + x->layout.put + view.part.back_begin,
        .back_stride = tti_far_stride(x, c->handle->part < 0 ? 0 : c->handle->part),
        .back_wire = x->is_reduced ? TT_WIRE_F32 : x->wire_back,
        .ret = tti_intake_returns(intake) + mate};
    tti_count(c->handle, TTI_COUNT_ROWS_IN, (uint64_t)view.part.n_rows);
    if (x->paths.rail[source_id] != x->owner_id) {
        tti_count(c->handle, TTI_COUNT_NODE_BYTES,
                  (uint64_t)view.part.n_rows * x->layout.row_bytes +
                      (uint64_t)view.part.n_entries *
                          tti_far_stride(x, c->handle->part < 0 ? 0 : c->handle->part));
    }
    *has_arrived_out = true;
    return TT_OK;
}

tt_status tti_wire_returned(tt_exchange *x, tti_chunk *c, const tti_lane *lane,
                            bool *has_returned_out)
{
    *has_returned_out = false;
    if (!atomic_load_explicit(&lane->has_returned, memory_order_acquire)) {
        return TT_OK;
    }
    tti_wire_header header;
    memcpy(&header, tti_window_part(x, x->world->rank, c->id) + x->layout.back + lane->back_begin,
           sizeof(header));
    if (!is_due(x->world, &header, lane->rank)) {
        return TT_OK;
    }
    TT_TRY(check_header(x, c, &header, TTI_RESULTS_MAGIC, lane->rank));
    if (header.bytes != lane->result_bytes) {
        return tti_wire_mismatch(x, c, lane->rank, "length of results", header.bytes,
                                 lane->result_bytes);
    }
    if (header.n_entries != lane->n_entries) {
        return tti_wire_mismatch(x, c, lane->rank, "number of results",
                                 (uint64_t)(uint32_t)header.n_entries, (uint64_t)lane->n_entries);
    }
    *has_returned_out = true;
    return TT_OK;
}
