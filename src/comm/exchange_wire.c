/* exchange_wire.c - rows and results between nodes: one message per direction, chunk and pair of a
 * source and a rail (an owner, or one for a whole node), counts in the header.
 *
 * A message of rows lands in a buffer for which a receive of the greatest size is always posted
 * (persistent), so nobody needs to know counts beforehand and nothing arrives unexpected. Messages
 * longer than a piece are cut; the first piece tells how many follow. Results are expected exactly:
 * the source knows from its own plan how many it gets from whom, and posts those receives before it
 * sends the rows. All MPI calls are in advance(), under the world's mpi_lock; the handle's thread
 * and progress hand buffers to each other through atomics. Whatever arrives is checked before it is
 * used as a count or an index. */
#include "exchange_internal.h"
#include <stdlib.h>
#include <string.h>

enum { ROWS_TAG = 0, RESULTS_TAG = 1, TAGS_PER_CHUNK = 2 };
_Static_assert(TT_EXCHANGE_MAX_CHUNKS <= 32768 / TAGS_PER_CHUNK,
               "MPI promises tags up to 32767, and tti_wire_header counts chunks in 16 bits");

static int tag_of(const tti_chunk *c, int kind)
{
    return c->id * TAGS_PER_CHUNK + kind;
}

/* When a message to another node may be seen: 0 = at once. With an injected rate it passes after
 * all that this rank sent before. */
static uint64_t due_far(tt_world *world, size_t bytes)
{
    if (world->inject_mb_s == 0) {
        return tti_due(world);
    }
    const uint64_t now = tt_now_ns(), takes = (uint64_t)bytes * 1000 / world->inject_mb_s;
    uint64_t free_ns = atomic_load_explicit(&world->link_free_ns, memory_order_relaxed), end;
    do {
        end = (free_ns > now ? free_ns : now) + takes;
    } while (!atomic_compare_exchange_weak_explicit(&world->link_free_ns, &free_ns, end,
                                                    memory_order_relaxed, memory_order_relaxed));
    return end + world->delay_ns;
}

/* ---- the form of a message of rows ---- */

size_t tti_wire_head_bytes(const tt_exchange *x, int64_t n_owners, int64_t n_groups,
                           int64_t n_entries)
{
    return tti_align(TTI_HEADER_BYTES + (size_t)(n_owners + 1) * sizeof(tti_wire_part) +
                     (size_t)n_groups * sizeof(tti_group) +
                     (size_t)n_entries * x->layout.entry_bytes);
}

static size_t lane_head_bytes(const tt_exchange *x, const tti_lane *lane)
{
    return tti_wire_head_bytes(x, lane->n_owners, lane->n_groups, lane->n_entries);
}

size_t tti_wire_message_bytes(const tt_exchange *x, const tti_lane *lane)
{
    return lane_head_bytes(x, lane) + (size_t)lane->n_rows * x->layout.row_bytes;
}

unsigned char *tti_wire_row(const tt_exchange *x, const tti_lane *lane, int64_t row)
{
    return lane->message + lane_head_bytes(x, lane) + (size_t)row * x->layout.row_bytes;
}

/* The parts of a lane's owners, their groups and entries: which follow each other in the window,
 * too. */
static void pack_parts(const tt_exchange *x, const tti_chunk *c, const tti_lane *lane)
{
    const unsigned char *window = tti_window_part(x, x->world->rank, c->id);
    const tti_share *share = (const tti_share *)(window + x->layout.share);
    const tti_share *first = &share[x->paths.owner_at[lane->first]];
    tti_wire_part part = {0};
    unsigned char *at = lane->message + TTI_HEADER_BYTES;
    for (int i = 0; i < lane->n_owners; i++, at += sizeof(part)) {
        const tti_share *s = &share[x->paths.owner_at[lane->first + i]];
        const int o = x->paths.owner_at[lane->first + i];
        const int64_t begin = s->back_begin - (x->is_reduced ? 0 : (int64_t)lane->back_begin);
        part = (tti_wire_part){begin, (int32_t)s->n_groups, (int32_t)s->n_entries,
                               (int32_t)s->n_rows, x->part_of[o] < 0 ? 0 : x->part_of[o]};
        memcpy(at, &part, sizeof(part));
    }
    part = (tti_wire_part){.back_begin = (int64_t)lane->result_bytes};
    memcpy(at, &part, sizeof(part));
    at += sizeof(part);
    const struct {
        size_t from, bytes;
    } lists[] = {
        {x->layout.group + (size_t)first->group_begin * sizeof(tti_group),
         (size_t)lane->n_groups * sizeof(tti_group)},
        {x->layout.index + (size_t)first->index_begin * sizeof(int32_t),
         (size_t)lane->n_entries * sizeof(int32_t)},
        {x->layout.weight + (size_t)first->index_begin * sizeof(float),
         x->weights_travel || x->is_reduced ? (size_t)lane->n_entries * sizeof(float) : 0},
    };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        memcpy(at, window + lists[i].from, lists[i].bytes);
        at += lists[i].bytes;
    }
}

void tti_wire_pack_heads(tt_exchange *x, tti_chunk *c)
{
    for (int i = 0; i < x->paths.n_lanes; i++) {
        const tti_lane *lane = &c->lane[i];
        tti_wire_header header = {.magic = TTI_ROWS_MAGIC,
                                  .status = (int32_t)c->handle->mine,
                                  .seq = c->handle->use,
                                  .epoch = c->handle->epoch,
                                  .bytes = lane->message_bytes,
                                  .visible_ns = due_far(x->world, lane->message_bytes),
                                  .rank = x->world->rank,
                                  .chunk = (uint16_t)c->id,
                                  .n_chunks = (uint16_t)c->handle->n_own,
                                  .n_owners = lane->n_owners};
        if (c->handle->mine == TT_OK) {
            header.n_rows = (int32_t)lane->n_rows;
            header.n_entries = (int32_t)lane->n_entries;
            header.n_groups = (int32_t)lane->n_groups;
            pack_parts(x, c, lane);
        } else {
            memcpy(lane->message + TTI_HEADER_BYTES, c->handle->mine_text, TTI_FAIL_TEXT_BYTES);
        }
        memcpy(lane->message, &header, sizeof(header));
    }
}

/* ---- pieces ---- */

static tt_status send_pieces(tt_exchange *x, tti_chunk *c, const unsigned char *data, size_t bytes,
                             int rank, int tag, MPI_Request *request, int *n_out)
{
    size_t n = tti_n_pieces(x->world, bytes);
    tti_count(c->handle, TTI_COUNT_WIRE_OUT, bytes); /* before the peer can count it as received */
    tti_count(c->handle, TTI_COUNT_MESSAGES, n);
    for (size_t i = 0; i < n; i++) {
        TT_TRY(TT_MPI(MPI_Isend(data + i * x->world->piece_bytes,
                                tti_int(tti_piece_bytes(x->world, bytes, i)), MPI_BYTE, rank, tag,
                                x->comm, &request[i])));
        *n_out = tti_int(i + 1);
    }
    return TT_OK;
}

/* ---- source side of progress ---- */

static tt_status post(tt_exchange *x, tti_chunk *c)
{
    const int n_lanes = x->paths.n_lanes;
    unsigned char *back =
        n_lanes ? tti_window_part(x, x->world->rank, c->id) + x->layout.back : NULL;
    for (int i = 0; i < n_lanes; i++) { /* receives first: an answer must never be unexpected */
        tti_lane *lane = &c->lane[i];
        TT_ASSERT(lane->n_send == 0 && !lane->is_receiving); /* prepare has waited for that */
        unsigned char *at = back + lane->back_begin;
        size_t n = tti_n_pieces(x->world, lane->result_bytes);
        for (size_t p = 0; p < n; p++) {
            TT_TRY(TT_MPI(MPI_Irecv(at + p * x->world->piece_bytes,
                                    tti_int(tti_piece_bytes(x->world, lane->result_bytes, p)),
                                    MPI_BYTE, lane->rank, tag_of(c, RESULTS_TAG), x->comm,
                                    &lane->receive[p])));
        }
        lane->n_receive = tti_int(n);
        lane->is_receiving = true;
    }
    for (int i = 0; i < n_lanes; i++) {
        tti_lane *lane = &c->lane[(i + x->paths.first_lane) % n_lanes];
        tti_count(c->handle, TTI_COUNT_PAYLOAD, (uint64_t)lane->n_rows * x->layout.row_bytes);
        TT_TRY(send_pieces(x, c, lane->message, lane->message_bytes, lane->rank,
                           tag_of(c, ROWS_TAG), lane->send, &lane->n_send));
    }
    return TT_OK;
}

static tt_status advance_lane(tt_exchange *x, tti_chunk *c, tti_lane *lane, bool *is_sending)
{
    bool done = false;
    TT_TRY(tti_test_all(lane->send, lane->n_send, &done));
    if (done) {
        lane->n_send = 0;
    } else {
        *is_sending = true;
    }
    if (lane->is_receiving) {
        TT_TRY(tti_test_all(lane->receive, lane->n_receive, &done));
        if (done) {
            lane->is_receiving = false;
            tti_count(c->handle, TTI_COUNT_WIRE_IN, lane->result_bytes);
            atomic_store_explicit(&lane->has_returned, true, memory_order_release);
            atomic_fetch_add_explicit(&x->world->n_events, 1, memory_order_relaxed);
        }
    }
    return TT_OK;
}

/* ---- the rail: owner side of progress ---- */

static unsigned char *message_of(const tt_exchange *x, const tti_intake *in)
{
    return in->part + x->layout.message;
}

/* The first piece is here: how many follow? */
static tt_status read_head(tt_exchange *x, tti_chunk *c, tti_intake *in, const MPI_Status *status)
{
    tti_wire_header header;
    int got = 0;
    MPI_Get_count(status, MPI_BYTE, &got);
    if (got < TTI_HEADER_BYTES) {
        return tti_wire_mismatch(x, c, in->rank, "length", (uint64_t)got, TTI_HEADER_BYTES);
    }
    memcpy(&header, message_of(x, in), sizeof(header));
    if (header.magic != TTI_ROWS_MAGIC) {
        return tti_wire_mismatch(x, c, in->rank, "magic", header.magic, TTI_ROWS_MAGIC);
    }
    if (header.bytes < TTI_HEADER_BYTES || header.bytes > x->layout.message_bytes) {
        return tti_wire_mismatch(x, c, in->rank, "length", header.bytes, x->layout.message_bytes);
    }
    size_t first = tti_piece_bytes(x->world, (size_t)header.bytes, 0);
    if ((size_t)got != first) {
        return tti_wire_mismatch(x, c, in->rank, "first piece", (uint64_t)got, first);
    }
    in->n_receive = tti_int(tti_n_pieces(x->world, (size_t)header.bytes));
    for (int p = 1; p < in->n_receive; p++) {
        TT_TRY(TT_MPI(MPI_Start(&in->receive[p])));
    }
    tti_count(c->handle, TTI_COUNT_WIRE_IN, header.bytes);
    return TT_OK;
}

/* A source's first chunk tells of the others: progress looks after them from now on, whether or not
 * the handle's thread has seen it. */
static void expect_messages(tti_handle *h, int source_id, const tti_wire_header *header)
{
    tt_exchange *x = h->x;
    for (int i = 1; i < header->n_chunks && i < x->n_chunks; i++) {
        tti_chunk *c = &h->chunk[i];
        c->intake[x->paths.intake[source_id]].expected_seq = header->seq;
        tti_op_wake(x->world, &c->op);
    }
}

/* The whole message is here, and the last results have left: its owners may read it. */
static tt_status open_gate(tt_exchange *x, tti_chunk *c, tti_intake *in)
{
    tti_wire_header header;
    tti_wire_part end = {0};
    memcpy(&header, message_of(x, in), sizeof(header));
    /* Every use has a message from every far source in its first chunk. */
    const uint64_t least =
        c->place == 0 || in->expected_seq <= in->seq ? in->seq + 1 : in->expected_seq;
    if (c->place == 0 ? header.seq != least : header.seq < least) {
        return tti_wire_mismatch(x, c, in->rank, "use", header.seq, least);
    }
    if (header.status == TT_OK) {
        if (header.n_owners != x->paths.n_mates) {
            return tti_wire_mismatch(x, c, in->rank, "number of owners",
                                     (uint64_t)(uint32_t)header.n_owners,
                                     (uint64_t)x->paths.n_mates);
        }
        if (header.bytes < tti_wire_head_bytes(x, header.n_owners, 0, 0)) {
            return tti_wire_mismatch(x, c, in->rank, "length", header.bytes,
                                     tti_wire_head_bytes(x, header.n_owners, 0, 0));
        }
        memcpy(&end, message_of(x, in) + TTI_HEADER_BYTES + (size_t)header.n_owners * sizeof(end),
               sizeof(end));
        if (end.back_begin < TTI_HEADER_BYTES ||
            (uint64_t)end.back_begin > x->layout.result_bytes) {
            return tti_wire_mismatch(x, c, in->rank, "length of its results",
                                     (uint64_t)end.back_begin, x->layout.result_bytes);
        }
    }
    if (c->place == 0 && header.status == TT_OK) {
        expect_messages(c->handle, in->source_id, &header);
    }
    in->seq = header.seq;
    in->result_bytes = (size_t)end.back_begin;
    atomic_store_explicit(&((tti_gate *)in->part)->seq, header.seq, memory_order_release);
    atomic_fetch_add_explicit(&x->world->n_events, 1, memory_order_relaxed);
    return TT_OK;
}

static bool all_returned(const tt_exchange *x, const tti_intake *in)
{
    return tti_all_raised(x, in->part, in->seq, x->is_reduced);
}

/* What goes back for a message of rows, but for the header. */
static uint64_t result_payload(const tt_exchange *x, const unsigned char *message,
                               const tti_wire_header *rows)
{
    uint64_t bytes = x->is_reduced ? (uint64_t)rows->n_rows * x->layout.back_row_bytes : 0;
    for (int m = 0; m < rows->n_owners && !x->is_reduced; m++) {
        tti_wire_part part;
        memcpy(&part, message + TTI_HEADER_BYTES + (size_t)m * sizeof(part), sizeof(part));
        bytes += (uint64_t)part.n_entries * x->part_bytes[part.part];
    }
    return bytes;
}

/* All owners have put their results. */
static tt_status answer(tt_exchange *x, tti_chunk *c, tti_intake *in)
{
    unsigned char *results = in->part + x->layout.results;
    tti_wire_header rows;
    memcpy(&rows, message_of(x, in), sizeof(rows));
    tti_wire_header header = {.magic = TTI_RESULTS_MAGIC,
                              .seq = rows.seq,
                              .epoch = rows.epoch,
                              .bytes = in->result_bytes,
                              .visible_ns = due_far(x->world, in->result_bytes),
                              .n_entries = rows.n_entries,
                              .rank = x->world->rank,
                              .chunk = (uint16_t)c->id,
                              .n_owners = rows.n_owners};
    memcpy(results, &header, sizeof(header));
    tti_count(c->handle, TTI_COUNT_PAYLOAD,
              rows.status == TT_OK ? result_payload(x, message_of(x, in), &rows) : 0);
    /* The receive first: the next rows may follow the results at once. */
    TT_TRY(TT_MPI(MPI_Start(&in->receive[0])));
    return send_pieces(x, c, results, in->result_bytes, in->rank, tag_of(c, RESULTS_TAG), in->send,
                       &in->n_send);
}

static tt_status advance_intake(tt_exchange *x, tti_chunk *c, tti_intake *in, bool *is_sending)
{
    bool is_sent = false, is_here = false;
    int stage = atomic_load_explicit(&in->stage, memory_order_relaxed), seen = stage;
    TT_TRY(tti_test_all(in->send, in->n_send, &is_sent));
    if (is_sent) {
        in->n_send = 0;
    }
    if (stage == TTI_INTAKE_OPEN && all_returned(x, in)) {
        atomic_store_explicit(&c->is_sending, true, memory_order_relaxed);
        TT_TRY(answer(x, c, in));
        is_sent = false;
        stage = seen = TTI_INTAKE_HEAD;
        /* is_sending first: see tti_wire_drain */
        atomic_store_explicit(&in->stage, stage, memory_order_release);
        atomic_store_explicit(&in->answered, in->seq, memory_order_release);
        atomic_fetch_add_explicit(&x->world->n_events, 1, memory_order_relaxed);
    }
    if (stage == TTI_INTAKE_HEAD) {
        MPI_Status status;
        int done = 0;
        TT_TRY(TT_MPI(MPI_Test(&in->receive[0], &done, &status)));
        if (done) {
            TT_TRY(read_head(x, c, in, &status));
            stage = TTI_INTAKE_REST;
        }
    }
    if (stage == TTI_INTAKE_REST) {
        TT_TRY(tti_test_all(in->receive + 1, in->n_receive - 1, &is_here));
        if (is_here) {
            stage = TTI_INTAKE_FULL;
        }
    }
    if (stage == TTI_INTAKE_FULL && is_sent) { /* only now may our results be overwritten */
        TT_TRY(open_gate(x, c, in));
        stage = TTI_INTAKE_OPEN;
    }
    *is_sending = *is_sending || !is_sent;
    if (stage != seen) {
        atomic_store_explicit(&in->stage, stage, memory_order_release);
    }
    return TT_OK;
}

/* Looked at after the op was put to rest. The use may be over already and have left something to
 * send. */
static bool has_new_work(const tt_exchange *x, const tti_chunk *c)
{
    bool is_new = atomic_load(&c->is_open) || atomic_load(&c->must_post);
    for (int i = 0; i < x->paths.n_intakes && !is_new; i++) {
        is_new =
            atomic_load(&c->intake[i].stage) == TTI_INTAKE_OPEN && all_returned(x, &c->intake[i]);
    }
    return is_new;
}

static tt_status advance(tti_op *op)
{
    tti_chunk *c = op->arg;
    tt_exchange *x = c->handle->x;
    bool is_sending = false, is_open = atomic_load_explicit(&c->is_open, memory_order_acquire),
         is_coming = false;
    if (atomic_load_explicit(&c->must_post, memory_order_acquire)) {
        atomic_store_explicit(&c->is_sending, true, memory_order_relaxed);
        atomic_store_explicit(&c->must_post, false,
                              memory_order_release); /* is_sending first: see tti_wire_drain */
        TT_TRY(post(x, c));
    }
    for (int i = 0; i < x->paths.n_lanes; i++) {
        TT_TRY(advance_lane(x, c, &c->lane[i], &is_sending));
    }
    for (int i = 0; i < x->paths.n_intakes; i++) {
        TT_TRY(advance_intake(x, c, &c->intake[i], &is_sending));
        is_coming = is_coming || c->intake[i].expected_seq > c->intake[i].seq;
    }
    atomic_store_explicit(&c->is_sending, is_sending, memory_order_release);
    if (!is_open && !is_sending && !is_coming) { /* the use is over, and so is all that it sent */
        tti_op_rest(x->world, op);
        if (has_new_work(x, c)) {
            tti_op_wake(x->world, op);
        }
    }
    return TT_OK;
}

/* ---- the handle's thread ---- */

void tti_wire_post(tt_exchange *x, tti_chunk *c)
{
    if (x->paths.n_lanes + x->paths.n_intakes == 0) {
        return;
    }
    for (int i = 0; i < x->paths.n_lanes; i++) {
        atomic_store_explicit(&c->lane[i].has_returned, false, memory_order_relaxed);
    }
    atomic_store_explicit(&c->is_sending, true, memory_order_relaxed);
    atomic_store_explicit(&c->must_post, true, memory_order_release);
    tti_wire_await(x, c);
    tti_progress(x->world);
}

void tti_wire_await(tt_exchange *x, tti_chunk *c)
{
    if (x->paths.n_lanes + x->paths.n_intakes > 0) {
        atomic_store(&c->is_open, true);
        tti_op_wake(x->world, &c->op);
    }
}

void tti_wire_return(tt_exchange *x, tti_chunk *c, int source_id)
{
    if (x->paths.rail[source_id] == x->owner_id) {
        tti_op_wake(x->world, &c->op);
        tti_progress(x->world);
    }
}

/* Whether all that came to this rank in the handle's last use is answered. */
static bool has_answered(const tt_exchange *x, const tti_chunk *c)
{
    bool all = true;
    for (int i = 0; i < x->paths.n_intakes && all; i++) {
        const tti_intake *in = &c->intake[i];
        all = !c->is_expected[in->source_id] ||
              atomic_load_explicit(&in->answered, memory_order_acquire) == c->handle->use;
    }
    return all;
}

/* Only in exchanges by node: without mates, what this rank has returned is all that is awaited. */
bool tti_wire_has_answered(const tt_exchange *x, const tti_chunk *c)
{
    return !x->paths.by_node || has_answered(x, c);
}

void tti_wire_owing_mates(const tt_exchange *x, const tti_chunk *c, bool *owes)
{
    for (int i = 0; i < x->paths.n_intakes; i++) {
        const tti_intake *in = &c->intake[i];
        const tti_return *ret = tti_intake_returns(in->part);
        const bool is_open = atomic_load_explicit(&((const tti_gate *)in->part)->seq,
                                                  memory_order_acquire) == c->handle->use;
        for (int m = 0; m < x->paths.n_mates && is_open; m++) {
            const int owner_id = x->paths.owner_at[x->paths.mate_first + m];
            const bool has_returned =
                atomic_load_explicit(x->is_reduced ? &ret[m].summed : &ret[m].seq,
                                     memory_order_acquire) == c->handle->use;
            owes[x->owner[owner_id]] =
                owes[x->owner[owner_id]] || (!has_returned && owner_id != x->owner_id);
        }
    }
}

/* Whom we still send to; mpi_lock held. */
static void owing_sends(void *arg, bool *owes)
{
    const tti_chunk *c = arg;
    for (int i = 0; i < c->handle->x->paths.n_intakes; i++) {
        const tti_intake *in = &c->intake[i];
        owes[in->rank] = owes[in->rank] || in->n_send > 0;
    }
    for (int i = 0; i < c->handle->x->paths.n_lanes; i++) {
        const tti_lane *lane = &c->lane[i];
        owes[lane->rank] = owes[lane->rank] || lane->n_send > 0;
    }
}

/* Not what belongs to the next use: its rows may be here already. */
static bool is_draining(const tt_exchange *x, const tti_chunk *c)
{
    return atomic_load_explicit(&c->must_post, memory_order_acquire) || !has_answered(x, c) ||
           atomic_load_explicit(&c->is_sending, memory_order_acquire);
}

tt_status tti_wire_drain(tt_exchange *x, tti_chunk *c)
{
    tti_wait wait = {.what = "an exchange's sends", .owing = owing_sends, .arg = c};
    while (x->paths.n_lanes + x->paths.n_intakes > 0 && is_draining(x, c)) {
        TT_TRY(tti_wait_once(x->world, &wait));
    }
    tti_wait_end(x->world, &wait);
    return TT_OK;
}

/* ---- life ---- */

tt_status tti_wire_open(tt_exchange *x, tti_chunk *c)
{
    tt_status st = TT_OK;
    tti_lock(x->world);
    for (int i = 0; i < x->paths.n_intakes && st == TT_OK; i++) {
        tti_intake *in = &c->intake[i];
        size_t bytes = x->layout.message_bytes, n = tti_n_pieces(x->world, bytes);
        in->part = tti_intake_part(x, in->source_id, c->id);
        for (size_t p = 0; p < n && st == TT_OK; p++) {
            st = TT_MPI(MPI_Recv_init(message_of(x, in) + p * x->world->piece_bytes,
                                      tti_int(tti_piece_bytes(x->world, bytes, p)), MPI_BYTE,
                                      in->rank, tag_of(c, ROWS_TAG), x->comm, &in->receive[p]));
        }
        if (st == TT_OK) {
            st = TT_MPI(MPI_Start(&in->receive[0]));
        }
    }
    tti_unlock(x->world);
    c->op = (tti_op){.advance = advance, .arg = c};
    tti_op_register(x->world, &c->op);
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

void tti_wire_close(tt_exchange *x, tti_chunk *c)
{
    tti_op_unregister(x->world, &c->op);
    if (tt_world_is_broken(x->world)) {
        return;
    }
    size_t n_rows = tti_n_pieces(x->world, x->layout.message_bytes);
    size_t n_results = tti_n_pieces(x->world, x->layout.result_bytes);
    tti_lock(x->world);
    for (int i = 0; i < x->paths.n_intakes; i++) {
        drop(c->intake[i].send, n_results, false);
        if (atomic_load(&c->intake[i].stage) == TTI_INTAKE_HEAD) {
            drop(c->intake[i].receive, 1, true);
        }
        for (size_t p = 0; p < n_rows; p++) {
            if (c->intake[i].receive[p] != MPI_REQUEST_NULL) {
                MPI_Request_free(&c->intake[i].receive[p]);
            }
        }
    }
    for (int i = 0; i < x->paths.n_lanes; i++) {
        drop(c->lane[i].send, n_rows, false);
        drop(c->lane[i].receive, n_results, true);
    }
    tti_unlock(x->world);
}
