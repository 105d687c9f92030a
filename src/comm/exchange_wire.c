/* exchange_wire.c - rows and results between nodes: one message per pair of ranks and direction, counts in the header.
 *
 * A message of rows lands in a buffer for which a receive of the greatest size is always posted (persistent), so nobody needs to know
 * counts beforehand and nothing arrives unexpected. Messages longer than a piece are cut; the first piece tells how many
 * follow. Results are expected exactly: the source knows from its own plan how many it gets from whom, and posts those receives
 * before it sends the rows. All MPI calls are in advance(), under the world's mpi_lock; the handle's thread and progress hand
 * buffers to each other through atomics. Whatever arrives is checked before it is used as a count or an index. */
#include "exchange_internal.h"
#include <stdlib.h>
#include <string.h>

static const uint32_t rows_magic = 0x54545257;    /* "TTRW" */
static const uint32_t results_magic = 0x54545253; /* "TTRS" */
enum { ROWS_TAG = 0, RESULTS_TAG = 1, TAGS_PER_HANDLE = 2 };

static int tag_of(const tti_handle *h, int kind)
{
    return h->id * TAGS_PER_HANDLE + kind;
}

/* ---- the form of a message of rows ---- */

static size_t head_bytes(const tt_exchange *x, int64_t n_groups, int64_t n_entries)
{
    return tti_align(TTI_HEADER_BYTES + (size_t)n_groups * sizeof(tti_group) +
                     (size_t)n_entries * x->layout.entry_bytes);
}

size_t tti_wire_message_bytes(const tt_exchange *x, const tti_share *share)
{
    return head_bytes(x, share->n_groups, share->n_entries) +
           (size_t)share->n_rows * x->layout.row_bytes;
}

static const tti_share *share_of(const tt_exchange *x, const tti_handle *h, int owner_id)
{
    const unsigned char *part = tti_handle_part(x, x->world->rank, h->id);
    return (const tti_share *)(part + x->layout.share) + owner_id;
}

unsigned char *tti_wire_row(const tt_exchange *x, const tti_handle *h, const tti_far_owner *far,
                            int64_t row)
{
    const tti_share *share = share_of(x, h, far->owner_id);
    return far->message + head_bytes(x, share->n_groups, share->n_entries) +
           (size_t)row * x->layout.row_bytes;
}

void tti_wire_pack_heads(tt_exchange *x, tti_handle *h)
{
    const unsigned char *part = tti_handle_part(x, x->world->rank, h->id);
    const tti_group *group = (const tti_group *)(part + x->layout.group);
    const int32_t *index = (const int32_t *)(part + x->layout.index);
    for (int i = 0; i < x->n_far_owners; i++) {
        tti_far_owner *f = &h->far_owner[i];
        const tti_share *s = share_of(x, h, f->owner_id);
        tti_wire_header header = {.magic = rows_magic,
                                  .status = (int32_t)h->mine,
                                  .seq = h->use,
                                  .epoch = h->epoch,
                                  .bytes = f->message_bytes,
                                  .visible_ns = tti_due(x->world),
                                  .rank = x->world->rank,
                                  .handle = h->id};
        unsigned char *at = f->message + TTI_HEADER_BYTES;
        if (h->mine == TT_OK) {
            header.n_rows = (int32_t)s->n_rows;
            header.n_entries = (int32_t)s->n_entries;
            header.n_groups = (int32_t)s->n_groups;
            size_t group_bytes = (size_t)s->n_groups * sizeof(*group);
            memcpy(at, group + s->group_begin, group_bytes);
            memcpy(at + group_bytes, index + s->index_begin, (size_t)s->n_entries * sizeof(*index));
            if (x->weights_travel) {
                memcpy(at + group_bytes + (size_t)s->n_entries * sizeof(*index),
                       (const float *)(part + x->layout.weight) + s->index_begin,
                       (size_t)s->n_entries * sizeof(float));
            }
        } else {
            memcpy(at, h->mine_text, TTI_FAIL_TEXT_BYTES);
        }
        memcpy(f->message, &header, sizeof(header));
    }
}

/* ---- pieces ---- */

static tt_status send_pieces(tt_exchange *x, tti_handle *h, const unsigned char *data, size_t bytes,
                             int rank, int tag, MPI_Request *request, int *n_out)
{
    size_t n = tti_n_pieces(x->world, bytes);
    tti_count(h, TTI_COUNT_WIRE_OUT, bytes); /* before the peer can count it as received */
    tti_count(h, TTI_COUNT_MESSAGES, n);
    for (size_t i = 0; i < n; i++) {
        TT_TRY(TT_MPI(MPI_Isend(data + i * x->world->piece_bytes,
                                tti_int(tti_piece_bytes(x->world, bytes, i)), MPI_BYTE, rank, tag,
                                x->comm, &request[i])));
        *n_out = tti_int(i + 1);
    }
    return TT_OK;
}

/* ---- source side of progress ---- */

static tt_status post(tt_exchange *x, tti_handle *h)
{
    unsigned char *back = tti_handle_part(x, x->world->rank, h->id) + x->layout.back;
    for (int i = 0; i < x->n_far_owners;
         i++) { /* receives first: an answer must never be unexpected */
        tti_far_owner *f = &h->far_owner[i];
        TT_ASSERT(f->n_send == 0 && !f->is_receiving); /* prepare has waited for that */
        unsigned char *at = back + share_of(x, h, f->owner_id)->back_begin - TTI_HEADER_BYTES;
        size_t n = tti_n_pieces(x->world, f->result_bytes);
        for (size_t p = 0; p < n; p++) {
            TT_TRY(
                TT_MPI(MPI_Irecv(at + p * x->world->piece_bytes,
                                 tti_int(tti_piece_bytes(x->world, f->result_bytes, p)), MPI_BYTE,
                                 f->rank, tag_of(h, RESULTS_TAG), x->comm, &f->receive[p])));
        }
        f->n_receive = tti_int(n);
        f->is_receiving = true;
    }
    /* Each source begins with another owner, so that not all send to the same first. */
    for (int i = 0; i < x->n_far_owners; i++) {
        tti_far_owner *f = &h->far_owner[(i + x->source_id) % x->n_far_owners];
        TT_TRY(send_pieces(x, h, f->message, f->message_bytes, f->rank, tag_of(h, ROWS_TAG),
                           f->send, &f->n_send));
    }
    return TT_OK;
}

static tt_status advance_owner(tt_exchange *x, tti_handle *h, tti_far_owner *f, bool *is_sending)
{
    bool done = false;
    TT_TRY(tti_test_all(f->send, f->n_send, &done));
    if (done) {
        f->n_send = 0;
    } else {
        *is_sending = true;
    }
    if (f->is_receiving) {
        TT_TRY(tti_test_all(f->receive, f->n_receive, &done));
        if (done) {
            f->is_receiving = false;
            tti_count(h, TTI_COUNT_WIRE_IN, f->result_bytes);
            atomic_store_explicit(&f->has_returned, true, memory_order_release);
            atomic_fetch_add_explicit(&x->world->n_events, 1, memory_order_relaxed);
        }
    }
    return TT_OK;
}

/* ---- owner side of progress ---- */

static tt_status protocol_error(const tt_exchange *x, const tti_handle *h, int rank,
                                const char *what, uint64_t got, uint64_t expected)
{
    char a[TTI_NAME_BYTES], b[TTI_NAME_BYTES];
    return TT_FAIL(TT_ERR_PROTOCOL,
                   "exchange handle %d, use %llu: %s of the message from %s to %s is %llu, "
                   "expected %llu",
                   h->id, (unsigned long long)h->use, what,
                   tti_rank_name(x->world, rank, a, sizeof(a)),
                   tti_rank_name(x->world, x->world->rank, b, sizeof(b)), (unsigned long long)got,
                   (unsigned long long)expected);
}

/* The first piece is here: how many follow? */
static tt_status read_head(tt_exchange *x, tti_handle *h, tti_far_source *f,
                           const MPI_Status *status)
{
    tti_wire_header header;
    int got = 0;
    MPI_Get_count(status, MPI_BYTE, &got);
    if (got < TTI_HEADER_BYTES) {
        return protocol_error(x, h, f->rank, "length", (uint64_t)got, TTI_HEADER_BYTES);
    }
    memcpy(&header, f->message, sizeof(header));
    if (header.magic != rows_magic) {
        return protocol_error(x, h, f->rank, "magic", header.magic, rows_magic);
    }
    if (header.bytes < TTI_HEADER_BYTES || header.bytes > x->layout.message_bytes) {
        return protocol_error(x, h, f->rank, "length", header.bytes, x->layout.message_bytes);
    }
    size_t first = tti_piece_bytes(x->world, (size_t)header.bytes, 0);
    if ((size_t)got != first) {
        return protocol_error(x, h, f->rank, "first piece", (uint64_t)got, first);
    }
    f->n_receive = tti_int(tti_n_pieces(x->world, (size_t)header.bytes));
    for (int p = 1; p < f->n_receive; p++) {
        TT_TRY(TT_MPI(MPI_Start(&f->receive[p])));
    }
    tti_count(h, TTI_COUNT_WIRE_IN, header.bytes);
    return TT_OK;
}

static tt_status advance_source(tt_exchange *x, tti_handle *h, tti_far_source *f, bool *is_sending)
{
    bool is_sent = false, is_here = false;
    int stage = atomic_load_explicit(&f->stage, memory_order_acquire), seen = stage;
    TT_TRY(tti_test_all(f->send, f->n_send, &is_sent));
    if (is_sent) {
        f->n_send = 0;
    }
    if (stage == TTI_FAR_DONE) {
        /* The receive first: the next rows may follow the results at once. */
        TT_TRY(TT_MPI(MPI_Start(&f->receive[0])));
        TT_TRY(send_pieces(x, h, f->results, f->result_bytes, f->rank, tag_of(h, RESULTS_TAG),
                           f->send, &f->n_send));
        is_sent = false;
        stage = TTI_FAR_HEAD;
        seen = stage;
        atomic_store_explicit(&h->is_sending, true, memory_order_relaxed);
        atomic_store_explicit(&f->stage, stage,
                              memory_order_release); /* is_sending first: see tti_wire_drain */
        atomic_fetch_add_explicit(&x->world->n_events, 1, memory_order_relaxed);
    }
    if (stage == TTI_FAR_HEAD) {
        MPI_Status status;
        int done = 0;
        TT_TRY(TT_MPI(MPI_Test(&f->receive[0], &done, &status)));
        if (done) {
            TT_TRY(read_head(x, h, f, &status));
            stage = TTI_FAR_REST;
        }
    }
    if (stage == TTI_FAR_REST) {
        TT_TRY(tti_test_all(f->receive + 1, f->n_receive - 1, &is_here));
        if (is_here) {
            stage = TTI_FAR_FULL;
        }
    }
    if (stage == TTI_FAR_FULL && is_sent) { /* only now may our results be overwritten */
        stage = TTI_FAR_HERE;
        atomic_fetch_add_explicit(&x->world->n_events, 1, memory_order_relaxed);
    }
    *is_sending = *is_sending || !is_sent;
    /* Only what changed here: at TTI_FAR_HERE the handle's thread may set TTI_FAR_DONE while we look. */
    if (stage != seen) {
        atomic_store_explicit(&f->stage, stage, memory_order_release);
    }
    return TT_OK;
}

/* Looked at after the op was put to rest. The use may be over already and have left something to send. */
static bool has_new_work(const tt_exchange *x, const tti_handle *h)
{
    bool is_new = atomic_load(&h->is_open) || atomic_load(&h->must_post);
    for (int i = 0; i < x->n_far_sources && !is_new; i++) {
        is_new = atomic_load(&h->far_source[i].stage) == TTI_FAR_DONE;
    }
    return is_new;
}

static tt_status advance(tti_op *op)
{
    tti_handle *h = op->arg;
    tt_exchange *x = h->x;
    bool is_sending = false, is_open = atomic_load_explicit(&h->is_open, memory_order_acquire);
    if (atomic_load_explicit(&h->must_post, memory_order_acquire)) {
        atomic_store_explicit(&h->is_sending, true, memory_order_relaxed);
        atomic_store_explicit(&h->must_post, false,
                              memory_order_release); /* is_sending first: see tti_wire_drain */
        TT_TRY(post(x, h));
    }
    for (int i = 0; i < x->n_far_owners; i++) {
        TT_TRY(advance_owner(x, h, &h->far_owner[i], &is_sending));
    }
    for (int i = 0; i < x->n_far_sources; i++) {
        TT_TRY(advance_source(x, h, &h->far_source[i], &is_sending));
    }
    atomic_store_explicit(&h->is_sending, is_sending, memory_order_release);
    if (!is_open && !is_sending) { /* the use is over, and so is all that it sent */
        tti_op_rest(x->world, op);
        if (has_new_work(x, h)) {
            tti_op_wake(x->world, op);
        }
    }
    return TT_OK;
}

/* ---- the handle's thread ---- */

void tti_wire_post(tt_exchange *x, tti_handle *h)
{
    if (x->n_far_owners + x->n_far_sources == 0) {
        return;
    }
    for (int i = 0; i < x->n_far_owners; i++) {
        atomic_store_explicit(&h->far_owner[i].has_returned, false, memory_order_relaxed);
    }
    atomic_store_explicit(&h->is_sending, true, memory_order_relaxed);
    atomic_store_explicit(&h->must_post, true, memory_order_release);
    atomic_store(&h->is_open, true);
    tti_op_wake(x->world, &h->op);
    tti_progress(x->world);
}

void tti_wire_return(tt_exchange *x, tti_handle *h, tti_far_source *far)
{
    const tti_arrival *a = &h->arrival[far->source_id];
    far->result_bytes = TTI_HEADER_BYTES + (size_t)a->n_entries * h->part_bytes;
    tti_wire_header header = {.magic = results_magic,
                              .seq = h->use,
                              .epoch = h->epoch,
                              .bytes = far->result_bytes,
                              .visible_ns = tti_due(x->world),
                              .n_entries = (int32_t)a->n_entries,
                              .rank = x->world->rank,
                              .handle = h->id};
    memcpy(far->results, &header, sizeof(header));
    atomic_store_explicit(&far->stage, TTI_FAR_DONE, memory_order_release);
    tti_op_wake(x->world, &h->op);
    tti_progress(x->world);
}

/* Whom we still send to; mpi_lock held. */
static void owing_sends(void *arg, bool *owes)
{
    const tti_handle *h = arg;
    for (int i = 0; i < h->x->n_far_sources; i++) {
        const tti_far_source *f = &h->far_source[i];
        owes[f->rank] = owes[f->rank] || f->n_send > 0;
    }
    for (int i = 0; i < h->x->n_far_owners; i++) {
        const tti_far_owner *f = &h->far_owner[i];
        owes[f->rank] = owes[f->rank] || f->n_send > 0;
    }
}

static bool is_draining(const tt_exchange *x, const tti_handle *h)
{
    if (atomic_load_explicit(&h->must_post, memory_order_acquire)) {
        return true;
    }
    for (int i = 0; i < x->n_far_sources; i++) {
        if (atomic_load_explicit(&h->far_source[i].stage, memory_order_acquire) == TTI_FAR_DONE) {
            return true;
        }
    }
    return atomic_load_explicit(&h->is_sending, memory_order_acquire);
}

tt_status tti_wire_drain(tt_exchange *x, tti_handle *h)
{
    tti_wait wait = {.what = "an exchange's sends", .owing = owing_sends, .arg = h};
    while (x->n_far_owners + x->n_far_sources > 0 && is_draining(x, h)) {
        TT_TRY(tti_wait_once(x->world, &wait));
    }
    tti_wait_end(x->world, &wait);
    return TT_OK;
}

/* Times of another host's clock mean nothing here. */
static bool is_due(const tt_world *world, const tti_wire_header *header, int rank)
{
    return world->real_node[rank] != world->real_node[world->rank] ||
           tti_is_due(header->visible_ns);
}

/* Fields that both kinds of message share. */
static tt_status check_header(const tt_exchange *x, const tti_handle *h,
                              const tti_wire_header *header, uint32_t magic, int rank)
{
    const struct {
        const char *what;
        uint64_t got, expected;
    } fields[] = {
        {"magic", header->magic, magic},
        {"use", header->seq, h->use},
        {"owner map epoch", header->epoch, h->epoch},
        {"sender", (uint64_t)header->rank, (uint64_t)rank},
        {"handle", (uint64_t)header->handle, (uint64_t)h->id},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].got != fields[i].expected) {
            return protocol_error(x, h, rank, fields[i].what, fields[i].got, fields[i].expected);
        }
    }
    return TT_OK;
}

/* Counts, groups and index of a message of rows. */
static tt_status check_rows(const tt_exchange *x, const tti_handle *h,
                            const tti_wire_header *header, const unsigned char *message, int rank)
{
    int64_t most = x->max_tokens * x->K;
    if (header->n_rows < 0 || header->n_rows > x->max_tokens) {
        return protocol_error(x, h, rank, "number of rows", (uint64_t)(uint32_t)header->n_rows,
                              (uint64_t)x->max_tokens);
    }
    if (header->n_entries < 0 || header->n_entries > most) {
        return protocol_error(x, h, rank, "number of entries",
                              (uint64_t)(uint32_t)header->n_entries, (uint64_t)most);
    }
    if (header->n_groups < 0 || header->n_groups > header->n_entries) {
        return protocol_error(x, h, rank, "number of groups", (uint64_t)(uint32_t)header->n_groups,
                              (uint64_t)header->n_entries);
    }
    uint64_t bytes = head_bytes(x, header->n_groups, header->n_entries) +
                     (uint64_t)header->n_rows * x->layout.row_bytes;
    if (header->bytes != bytes) {
        return protocol_error(x, h, rank, "length", header->bytes, bytes);
    }
    const tti_group *group = (const tti_group *)(message + TTI_HEADER_BYTES);
    const int32_t *index = (const int32_t *)(group + header->n_groups);
    int64_t sum = 0;
    for (int32_t g = 0; g < header->n_groups; g++) {
        if (group[g].slot < 0 || group[g].slot > h->max_local || group[g].n <= 0) {
            return protocol_error(x, h, rank, "slot of a group", (uint64_t)(uint32_t)group[g].slot,
                                  (uint64_t)(uint32_t)h->max_local);
        }
        sum += group[g].n;
    }
    if (sum != header->n_entries) {
        return protocol_error(x, h, rank, "sum of groups", (uint64_t)sum,
                              (uint64_t)header->n_entries);
    }
    for (int32_t e = 0; e < header->n_entries; e++) {
        if (index[e] < 0 || index[e] >= header->n_rows) {
            return protocol_error(x, h, rank, "row of an entry", (uint64_t)(uint32_t)index[e],
                                  (uint64_t)(uint32_t)header->n_rows);
        }
    }
    return TT_OK;
}

tt_status tti_wire_arrive(tt_exchange *x, tti_handle *h, tti_far_source *far, bool *has_arrived_out)
{
    *has_arrived_out = false;
    if (atomic_load_explicit(&far->stage, memory_order_acquire) != TTI_FAR_HERE) {
        return TT_OK;
    }
    tti_wire_header header;
    memcpy(&header, far->message, sizeof(header));
    if (!is_due(x->world, &header, far->rank)) {
        return TT_OK;
    }
    TT_TRY(check_header(x, h, &header, rows_magic, far->rank));
    if (header.status != TT_OK) {
        char name[TTI_NAME_BYTES];
        return TT_FAIL(TT_ERR_PEER, "%s failed with %s: %.*s",
                       tti_rank_name(x->world, far->rank, name, sizeof(name)),
                       tt_status_name((tt_status)header.status),
                       (int)(header.bytes - TTI_HEADER_BYTES < TTI_FAIL_TEXT_BYTES
                                 ? header.bytes - TTI_HEADER_BYTES
                                 : TTI_FAIL_TEXT_BYTES),
                       (const char *)far->message + TTI_HEADER_BYTES);
    }
    TT_TRY(check_rows(x, h, &header, far->message, far->rank));
    const tti_group *group = (const tti_group *)(far->message + TTI_HEADER_BYTES);
    const int32_t *index = (const int32_t *)(group + header.n_groups);
    h->arrival[far->source_id] =
        (tti_arrival){.has_arrived = true,
                      .group = group,
                      .n_groups = header.n_groups,
                      .n_left = header.n_groups,
                      .n_entries = header.n_entries,
                      .index = index,
                      .weight = x->weights_travel ? (const float *)(index + header.n_entries) : NULL,
                      .rows = far->message + head_bytes(x, header.n_groups, header.n_entries),
                      .row_bytes = x->layout.row_bytes,
                      .back = far->results + TTI_HEADER_BYTES,
                      .back_stride = h->part_bytes,
                      .far = far};
    tti_count(h, TTI_COUNT_ROWS_IN, (uint64_t)header.n_rows);
    *has_arrived_out = true;
    return TT_OK;
}

tt_status tti_wire_returned(tt_exchange *x, tti_handle *h, tti_far_owner *far,
                            bool *has_returned_out)
{
    *has_returned_out = false;
    if (!atomic_load_explicit(&far->has_returned, memory_order_acquire)) {
        return TT_OK;
    }
    const tti_share *share = share_of(x, h, far->owner_id);
    tti_wire_header header;
    memcpy(&header,
           tti_handle_part(x, x->world->rank, h->id) + x->layout.back + share->back_begin -
               TTI_HEADER_BYTES,
           sizeof(header));
    if (!is_due(x->world, &header, far->rank)) {
        return TT_OK;
    }
    TT_TRY(check_header(x, h, &header, results_magic, far->rank));
    if (header.bytes != far->result_bytes) {
        return protocol_error(x, h, far->rank, "length of results", header.bytes,
                              far->result_bytes);
    }
    if (header.n_entries != share->n_entries) {
        return protocol_error(x, h, far->rank, "number of results",
                              (uint64_t)(uint32_t)header.n_entries, (uint64_t)share->n_entries);
    }
    *has_returned_out = true;
    return TT_OK;
}

/* ---- life ---- */

tt_status tti_wire_open(tt_exchange *x, tti_handle *h)
{
    tt_status st = TT_OK;
    tti_lock(x->world);
    for (int i = 0; i < x->n_far_sources && st == TT_OK; i++) {
        tti_far_source *f = &h->far_source[i];
        size_t bytes = x->layout.message_bytes, n = tti_n_pieces(x->world, bytes);
        for (size_t p = 0; p < n && st == TT_OK; p++) {
            st = TT_MPI(MPI_Recv_init(f->message + p * x->world->piece_bytes,
                                      tti_int(tti_piece_bytes(x->world, bytes, p)), MPI_BYTE,
                                      f->rank, tag_of(h, ROWS_TAG), x->comm, &f->receive[p]));
        }
        if (st == TT_OK) {
            st = TT_MPI(MPI_Start(&f->receive[0]));
        }
    }
    tti_unlock(x->world);
    h->op = (tti_op){.advance = advance, .arg = h};
    tti_op_register(x->world, &h->op);
    return st;
}

static void drop(MPI_Request *request, size_t n, bool is_receive)
{
    for (size_t i = 0; i < n; i++) {
        if (request[i] != MPI_REQUEST_NULL && is_receive) {
            MPI_Cancel(&request[i]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (request[i] != MPI_REQUEST_NULL) {
            MPI_Wait(&request[i], MPI_STATUS_IGNORE);
        }
        if (request[i] != MPI_REQUEST_NULL) { /* persistent */
            MPI_Request_free(&request[i]);
        }
    }
}

void tti_wire_close(tt_exchange *x, tti_handle *h)
{
    tti_op_unregister(x->world, &h->op);
    if (tt_world_is_broken(x->world)) {
        return;
    }
    size_t n_rows = tti_n_pieces(x->world, x->layout.message_bytes);
    size_t n_results = tti_n_pieces(x->world, x->layout.result_bytes);
    tti_lock(x->world);
    for (int i = 0; i < x->n_far_sources; i++) {
        drop(h->far_source[i].send, n_results, false);
        if (atomic_load(&h->far_source[i].stage) == TTI_FAR_HEAD) {
            drop(h->far_source[i].receive, 1, true);
        }
        for (size_t p = 0; p < n_rows; p++) {
            if (h->far_source[i].receive[p] != MPI_REQUEST_NULL) {
                MPI_Request_free(&h->far_source[i].receive[p]);
            }
        }
    }
    for (int i = 0; i < x->n_far_owners; i++) {
        drop(h->far_owner[i].send, n_rows, false);
        drop(h->far_owner[i].receive, n_results, true);
    }
    tti_unlock(x->world);
}
