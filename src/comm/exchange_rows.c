/* exchange_rows.c - one use of a handle: rows out, rows in, results back, the sum.
 *
 * The order of events in memory is told in exchange_internal.h. Nothing here allocates or blocks;
 * waiting is done in poll's caller and in combine_end only. Results are rounded to wire_back by
 * put_result wherever they were computed, and summed in the order of choices, so y has the same
 * bits for every placement. */
#include "exchange_internal.h"
#include <stdio.h>
#include <string.h>
#include "ttk.h"

enum {
    SUM_BLOCK = 8 * TT_WIRE_GROUP
}; /* columns summed at a time: a result block in float (1 KiB) stays in L1 */

/* ---- tasks over a stream or on the caller ---- */

static void run(tt_stream *compute, int64_t n_floats, const char *name, tt_task_fn *fn, void *arg)
{
    if (compute && n_floats >= TTI_SMALL_FLOATS) {
        tt_stream_run(compute, name, fn, arg);
    } else {
        fn(arg, 0, 1);
    }
}

/* ---- dispatch ---- */

typedef struct rows_task {
    tt_exchange *x;
    tti_chunk *c;
    const float *from; /* from[T][ldx] */
    int64_t ldx;
    unsigned char *rows; /* in the window */
} rows_task;

static void round_rows(void *arg, int thread_id, int n_threads)
{
    const rows_task *task = arg;
    const tt_exchange *x = task->x;
    int64_t begin = 0, end = 0;
    tt_split(task->c->T, n_threads, thread_id, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        unsigned char *to = task->rows + (size_t)t * x->layout.row_stride;
        const float *from = task->from + t * task->ldx;
        if (!task->c->is_needed[t]) {
            continue;
        }
        tt_wire_round(x->wire, to, from, x->H);
    }
}

static int64_t n_far_rows(const tt_exchange *x, const tti_chunk *c)
{
    int64_t n = 0;
    for (int i = 0; i < x->paths.n_lanes; i++) {
        n += c->lane[i].n_rows;
    }
    return n;
}

/* Copies rows into the messages; rows of all messages form one list, split over threads. */
static void pack_rows(void *arg, int thread_id, int n_threads)
{
    const rows_task *task = arg;
    const tt_exchange *x = task->x;
    const tti_chunk *c = task->c;
    int64_t begin = 0, end = 0;
    tt_split(n_far_rows(x, c), n_threads, thread_id, &begin, &end);
    for (int i = 0; i < x->paths.n_lanes; i++) {
        const tti_lane *lane = &c->lane[i];
        int64_t first = lane->row_begin, n = lane->n_rows;
        for (int64_t j = begin > first ? begin : first; j < end && j < first + n; j++) {
            memcpy(tti_wire_row(x, lane, j - first),
                   task->rows + (size_t)c->far_row[j] * x->layout.row_stride, x->layout.row_bytes);
        }
    }
}

static void publish(tt_exchange *x, tti_chunk *c)
{
    tti_pub *pub = (tti_pub *)tti_window_part(x, x->world->rank, c->id);
    pub->visible_ns = tti_due(x->world);
    pub->epoch = c->handle->epoch;
    pub->status = (int32_t)c->handle->mine;
    pub->n_chunks = c->handle->n_own;
    memcpy(pub->text, c->handle->mine_text, sizeof(pub->text));
    atomic_store_explicit(&pub->seq, c->handle->use, memory_order_release);
}

/* This rank's rows of a chunk: rounded, packed for other nodes, published, on their way. */
static void send_rows(tt_exchange *x, tti_chunk *c, const float *rows, int64_t ldx,
                      tt_stream *compute)
{
    rows_task task = {x, c, rows, ldx, tti_window_part(x, x->world->rank, c->id) + x->layout.rows};
    run(compute, c->T * x->H, "round rows", round_rows, &task);
    if (x->paths.n_lanes > 0) {
        tti_wire_pack_heads(x, c);
        if (c->handle->mine == TT_OK) {
            run(compute, n_far_rows(x, c) * x->H, "pack rows", pack_rows, &task);
        }
    }
    publish(x, c);
    tti_wire_post(x, c);
}

tt_status tt_exchange_dispatch_begin(tt_exchange *exchange, int handle, const float *x, int64_t ldx,
                                     tt_stream *compute)
{
    tti_handle *h = NULL;
    TT_TRY(tti_handle_find(exchange, handle, TTI_HANDLE_PREPARED, &h));
    TT_TRY(tt_world_error(exchange->world));
    h->wait = (tti_wait){0};
    h->idle_since_ns = 0;
    h->compute = compute;
    for (int i = 0; i < h->n_own; i++) {
        send_rows(exchange, &h->chunk[i], x + i * exchange->chunk_tokens * ldx, ldx, compute);
    }
    if (h->n_own == 0) { /* nothing to send, but others' rows will come */
        tti_wire_await(exchange, &h->chunk[0]);
    }
    h->stage = TTI_HANDLE_FLYING;
    for (int i = 0; i < h->n_own && exchange->owner_id >= 0; i++) {
        /* Own rows are first in the order of arrival: they need no waiting. */
        TT_TRY(tti_exchange_arrive(exchange, &h->chunk[i], exchange->source_id));
    }
    return TT_OK;
}

/* ---- arrivals and returns ---- */

/* All results of this use for one source are put. */
static void return_source(tt_exchange *x, tti_chunk *c, int source_id)
{
    tti_arrival *a = &c->arrival[source_id];
    const bool is_own = x->source[source_id] == x->world->rank,
               is_far = x->paths.rail[source_id] >= 0;
    c->n_returned++;
    a->ret->visible_ns = is_own || is_far ? 0 : tti_due(x->world);
    atomic_store_explicit(&a->ret->seq, c->handle->use, memory_order_release);
    if (is_far) {
        tti_wire_return(x, c, source_id);
    } else if (!is_own) {
        tti_count(c->handle, TTI_COUNT_NODE_BYTES, (uint64_t)a->n_entries * c->handle->part_bytes);
    }
}

static void charge_wait(tt_exchange *x, tti_handle *h, int rank)
{
    if (h->idle_since_ns != 0) { /* once, however many chunks are waited for */
        const uint64_t now = tt_now_ns(), since = h->charged_ns[rank] > h->idle_since_ns
                                                      ? h->charged_ns[rank]
                                                      : h->idle_since_ns;
        atomic_fetch_add_explicit(&x->peer_wait_ns[rank], now - since, memory_order_relaxed);
        h->charged_ns[rank] = now;
    }
}

static tt_status arrive_near(tt_exchange *x, tti_chunk *c, int source_id, bool *has_arrived_out)
{
    int rank = x->source[source_id];
    bool is_own = rank == x->world->rank;
    unsigned char *part = tti_window_part(x, rank, c->id);
    const tti_pub *pub = (const tti_pub *)part;
    *has_arrived_out = false;
    uint64_t seq = atomic_load_explicit(&pub->seq, memory_order_acquire);
    if (seq != c->handle->use || (!is_own && !tti_is_due(pub->visible_ns))) {
        return TT_OK;
    }
    if (!is_own) {
        char a[TTI_NAME_BYTES], b[TTI_NAME_BYTES];
        TT_CHECK(pub->status == TT_OK, TT_ERR_PEER, "%s failed with %s: %.*s",
                 tti_rank_name(x->world, rank, a, sizeof(a)),
                 tt_status_name((tt_status)pub->status), (int)sizeof(pub->text), pub->text);
        TT_CHECK(pub->epoch == c->handle->epoch, TT_ERR_PROTOCOL,
                 "exchange handle %d, use %llu: %s has owner map %llu, %s has %llu", c->handle->id,
                 (unsigned long long)c->handle->use, tti_rank_name(x->world, rank, a, sizeof(a)),
                 (unsigned long long)pub->epoch,
                 tti_rank_name(x->world, x->world->rank, b, sizeof(b)),
                 (unsigned long long)c->handle->epoch);
    }
    TT_CHECK(pub->n_chunks > c->place && pub->n_chunks <= x->n_chunks, TT_ERR_PROTOCOL,
             "exchange handle %d, use %llu: rank %d sends %d chunks of at most %d", c->handle->id,
             (unsigned long long)c->handle->use, rank, pub->n_chunks, x->n_chunks);
    const tti_share *share = (const tti_share *)(part + x->layout.share) + x->owner_id;
    c->arrival[source_id] = (tti_arrival){
        .has_arrived = true,
        .n_chunks = pub->n_chunks,
        .group = (const tti_group *)(part + x->layout.group) + share->group_begin,
        .n_groups = share->n_groups,
        .n_left = share->n_groups,
        .n_entries = share->n_entries,
        .index = (const int32_t *)(part + x->layout.index) + share->index_begin,
        .weight = x->weights_travel ? (const float *)(part + x->layout.weight) + share->index_begin
                                    : NULL,
        .rows = part + x->layout.rows,
        .row_bytes = x->layout.row_stride,
        .back = part + x->layout.back + share->back_begin,
        .back_stride = x->near_stride[c->handle->part < 0 ? 0 : c->handle->part],
        .back_wire = x->wire_back,
        .ret = (tti_return *)(part + x->layout.ret) + x->owner_id};
    if (!is_own) {
        tti_count(c->handle, TTI_COUNT_ROWS_IN, (uint64_t)share->n_rows);
        tti_count(c->handle, TTI_COUNT_NODE_BYTES, (uint64_t)share->n_rows * x->layout.row_bytes);
    }
    *has_arrived_out = true;
    return TT_OK;
}

/* A source has told how many chunks it uses. */
static void expect_chunks(tt_exchange *x, tti_handle *h, int source_id, int n_chunks)
{
    for (int i = 1; i < n_chunks; i++) {
        tti_expect(x, &h->chunk[i], source_id);
        tti_wire_await(x, &h->chunk[i]);
    }
    h->n_open = n_chunks > h->n_open ? n_chunks : h->n_open;
}

/* Takes a source's rows in; *has_arrived_out tells whether they were there. */
static tt_status try_arrive(tt_exchange *x, tti_chunk *c, int source_id, bool *has_arrived_out)
{
    TT_TRY(x->paths.rail[source_id] >= 0 ? tti_wire_arrive(x, c, source_id, has_arrived_out)
                                         : arrive_near(x, c, source_id, has_arrived_out));
    if (*has_arrived_out) {
        c->order[c->n_arrived++] = source_id;
        charge_wait(x, c->handle, x->source[source_id]);
        if (c->place == 0) {
            expect_chunks(x, c->handle, source_id, c->arrival[source_id].n_chunks);
        }
        if (c->arrival[source_id].n_groups == 0) {
            return_source(x, c, source_id); /* tells the source that we have seen this use */
        }
    }
    return TT_OK;
}

static void forget(int *list, int *n, int at)
{
    list[at] = list[--*n];
}

tt_status tti_exchange_arrive(tt_exchange *x, tti_chunk *c, int source_id)
{
    bool has_arrived = false;
    TT_TRY(try_arrive(x, c, source_id, &has_arrived));
    for (int i = 0; i < c->n_missing_sources && has_arrived; i++) {
        if (c->missing_source[i] == source_id) {
            forget(c->missing_source, &c->n_missing_sources, i);
            break;
        }
    }
    return TT_OK;
}

static tt_status try_returned(tt_exchange *x, tti_chunk *c, int owner_id, bool *has_returned_out)
{
    int lane = x->lane_of_owner[owner_id];
    if (lane >= 0) {
        return tti_wire_returned(x, c, &c->lane[lane], has_returned_out);
    }
    const unsigned char *part = tti_window_part(x, x->world->rank, c->id);
    const tti_return *ret = (const tti_return *)(part + x->layout.ret) + owner_id;
    *has_returned_out = atomic_load_explicit(&ret->seq, memory_order_acquire) == c->handle->use &&
                        tti_is_due(ret->visible_ns);
    return TT_OK;
}

/* What has arrived and returned in a chunk. */
static tt_status observe_chunk(tt_exchange *x, tti_chunk *c, bool *is_news_out)
{
    bool is_news = false;
    for (int i = 0; i < c->n_missing_sources;) {
        bool has_arrived = false;
        TT_TRY(try_arrive(x, c, c->missing_source[i], &has_arrived));
        if (has_arrived) {
            forget(c->missing_source, &c->n_missing_sources, i);
            is_news = true;
        } else {
            i++;
        }
    }
    for (int i = 0; i < c->n_missing_owners;) {
        bool has_returned = false;
        int owner_id = c->missing_owner[i];
        TT_TRY(try_returned(x, c, owner_id, &has_returned));
        if (has_returned) {
            charge_wait(x, c->handle, x->owner[owner_id]);
            forget(c->missing_owner, &c->n_missing_owners, i);
            is_news = true;
        } else {
            i++;
        }
    }
    if (x->is_reduced && x->owner_id >= 0) {
        const int n_summed = c->n_summed;
        tti_sums_make(x, c);
        is_news = is_news || c->n_summed > n_summed;
    }
    *is_news_out = *is_news_out || is_news;
    return TT_OK;
}

/* Notes what has happened. */
static tt_status observe(tt_exchange *x, tti_handle *h)
{
    bool is_news = false;
    for (int i = 0; i < h->n_open; i++) { /* the first one may open others */
        TT_TRY(observe_chunk(x, &h->chunk[i], &is_news));
    }
    if (is_news) {
        tti_wait_end(x->world, &h->wait);
    }
    return TT_OK;
}

/* ---- waiting ---- */

/* Rows are owed before results: who has not sent rows is further behind. Others of this node are
 * asked for what they are to take in or answer. */
static void owing_exchange(void *arg, bool *owes)
{
    const tti_handle *h = arg;
    const tt_exchange *x = h->x;
    for (int n = 0; n < h->n_open; n++) {
        const tti_chunk *c = &h->chunk[n];
        for (int i = 0; i < c->n_missing_sources; i++) {
            const int s = c->missing_source[i], rail = x->paths.rail[s];
            owes[rail >= 0 && rail != x->owner_id ? x->owner[rail] : x->source[s]] = true;
        }
        for (int i = 0; i < c->n_missing_owners; i++) {
            const int o = c->missing_owner[i], lane = x->lane_of_owner[o];
            owes[lane >= 0 ? c->lane[lane].rank : x->owner[o]] = true;
        }
        tti_wire_owing_mates(x, c, owes);
        tti_sums_owing(x, c, owes);
    }
}

/* The first chunk with rows that next_ready has not yielded; NULL if there is none. */
static tti_chunk *ready_chunk(tti_handle *h)
{
    for (int i = 0; i < h->n_open; i++) {
        tti_chunk *c = &h->chunk[i];
        for (; c->cursor < c->n_arrived; c->cursor++) {
            const tti_arrival *a = &c->arrival[c->order[c->cursor]];
            if (a->next_group < a->n_groups) {
                return c;
            }
        }
    }
    return NULL;
}

static bool is_chunk_over(const tt_exchange *x, const tti_chunk *c)
{
    const bool is_summed = !x->is_reduced || c->n_summed == c->n_far_expected;
    return is_summed && c->n_missing_owners == 0 && c->n_missing_sources == 0 &&
           c->n_returned == c->n_expected && tti_wire_has_answered(x, c);
}

/* A source whose first chunk is here has no other that we do not know of. */
static bool is_over(const tti_handle *h)
{
    bool all = true;
    for (int i = 0; i < h->n_open && all; i++) {
        all = is_chunk_over(h->x, &h->chunk[i]);
    }
    return all;
}

/* Chunks of sources whose rows are here and whose results this rank has not put. */
static int n_owed(const tti_handle *h)
{
    int n = 0;
    for (int i = 0; i < h->n_open; i++) {
        n += h->chunk[i].n_arrived - h->chunk[i].n_returned;
    }
    return n;
}

/* Chunks from the first on of which all rows are here. */
static int n_arrived_chunks(const tti_handle *h)
{
    int n = 0;
    while (n < h->n_open && h->chunk[n].n_missing_sources == 0) {
        n++;
    }
    return n;
}

/* Whether rows are here that this rank can take up: any, or where it takes whole chunks in turn,
 * those of chunks before the first that is not whole. */
static bool can_compute(const tt_exchange *x, const tti_handle *h)
{
    const int n = x->takes_whole_chunks ? n_arrived_chunks(h) : h->n_open;
    bool can = false;
    for (int i = 0; i < n && !can; i++) {
        can = h->chunk[i].n_arrived > h->chunk[i].n_returned;
    }
    return can;
}

/* This rank waits for others only if it owes nothing itself that it could do: its own computing is
 * no waiting. */
static tt_status check_wait(tt_exchange *x, tti_handle *h)
{
    if (can_compute(x, h) || is_over(h)) {
        tti_wait_end(x->world, &h->wait);
        h->idle_since_ns = 0;
        return TT_OK;
    }
    if (h->idle_since_ns == 0) {
        h->idle_since_ns = tt_now_ns();
    }
    h->wait.what = "an exchange";
    h->wait.owing = owing_exchange;
    h->wait.arg = h;
    return tti_wait_check(x->world, &h->wait);
}

static tt_status break_if_group(tt_world *world, tt_status st)
{
    return st <= TT_ERR_MISMATCH ? tti_world_break(world, st) : st;
}

tt_status tt_exchange_poll(tt_exchange *exchange, int handle, tt_exchange_state *state_out)
{
    tt_exchange *x = exchange;
    tti_handle *h = NULL;
    TT_TRY(tti_handle_find(x, handle, TTI_HANDLE_FLYING, &h));
    TT_TRY(tt_world_error(x->world));
    tti_count(h, TTI_COUNT_POLLS, 1);
    tti_progress(x->world);
    tt_status st = observe(x, h);
    if (st != TT_OK) {
        return break_if_group(x->world, st);
    }
    TT_TRY(check_wait(x, h));
    state_out->n_arrived = n_arrived_chunks(h);
    state_out->all_arrived = state_out->n_arrived == h->n_open;
    state_out->has_ready = ready_chunk(h) != NULL;
    state_out->all_returned = is_over(h);
    return TT_OK;
}

void tt_exchange_rest(tt_exchange *exchange, int handle)
{
    tti_handle *h = NULL;
    if (tti_handle_find(exchange, handle, TTI_HANDLE_FLYING, &h) == TT_OK) {
        tti_wait_end(exchange->world, &h->wait);
        h->idle_since_ns = 0;
    }
}

/* ---- rows and results ---- */

bool tt_exchange_next_ready(tt_exchange *exchange, int handle, tt_exchange_rows *rows_out)
{
    tti_handle *h = NULL;
    tti_chunk *c =
        tti_handle_find(exchange, handle, TTI_HANDLE_FLYING, &h) == TT_OK ? ready_chunk(h) : NULL;
    if (!c) {
        return false;
    }
    int source_id = c->order[c->cursor];
    tti_arrival *a = &c->arrival[source_id];
    const tti_group *g = &a->group[a->next_group++];
    *rows_out = (tt_exchange_rows){.slot = g->slot,
                                   .n = g->n,
                                   .source_id = source_id,
                                   .first = (int32_t)a->next_entry,
                                   .base = a->rows,
                                   .index = a->index + a->next_entry,
                                   .row_bytes = a->row_bytes,
                                   .weight = a->weight ? a->weight + a->next_entry : NULL,
                                   .chunk = c->place};
    a->next_entry += g->n;
    return true;
}

void tt_exchange_get_row(const tt_exchange *exchange, const tt_exchange_rows *rows, int32_t i,
                         float *dst)
{
    const unsigned char *row =
        (const unsigned char *)rows->base + rows->row_bytes * (size_t)rows->index[i];
    tt_wire_widen(exchange->wire, dst, row, exchange->H);
}

bool tt_exchange_get_act8(const tt_exchange *exchange, const tt_exchange_rows *rows, int32_t i,
                          void *act8)
{
    if (exchange->wire == TT_WIRE_INT8) {
        ttk.row8_act8(act8,
                      (const unsigned char *)rows->base + rows->row_bytes * (size_t)rows->index[i],
                      exchange->H);
    }
    return exchange->wire == TT_WIRE_INT8;
}

void tt_exchange_put_result(tt_exchange *exchange, int handle, const tt_exchange_rows *rows,
                            int32_t i, const float *y)
{
    const tti_handle *h = &exchange->handle[handle];
    const tti_arrival *a = &h->chunk[rows->chunk].arrival[rows->source_id];
    unsigned char *to = a->back + ((size_t)rows->first + (size_t)i) * a->back_stride;
    TT_ASSERT(rows->first + i < a->n_entries);
    tt_wire_round(a->back_wire, to, y, h->part_columns);
}

tt_status tt_exchange_push(tt_exchange *exchange, int handle, const tt_exchange_rows *rows)
{
    tti_handle *h = NULL;
    TT_TRY(tti_handle_find(exchange, handle, TTI_HANDLE_FLYING, &h));
    TT_CHECK(rows->source_id >= 0 && rows->source_id < exchange->n_sources && rows->chunk >= 0 &&
                 rows->chunk < h->n_open,
             TT_ERR_ARG, "push of source %d of %d, chunk %d of %d", rows->source_id,
             exchange->n_sources, rows->chunk, h->n_open);
    tti_chunk *c = &h->chunk[rows->chunk];
    tti_arrival *a = &c->arrival[rows->source_id];
    TT_CHECK(a->n_left > 0, TT_ERR_STATE, "slot %d of source %d is pushed twice", rows->slot,
             rows->source_id);
    a->n_left--;
    if (a->n_left == 0) {
        return_source(exchange, c, rows->source_id);
    }
    return TT_OK;
}

/* ---- combine ---- */

typedef struct sum_task {
    tt_exchange *x;
    tti_chunk *c;
    float *y; /* y[T][ldy] of the chunk */
    int64_t ldy;
    const unsigned char *back;
} sum_task;

/* y[t] = fmaf chain over k from +0. Columns are independent, so blocks and parts do not change a
 * bit. */
static void sum_part(const sum_task *task, int64_t t, int part)
{
    const tt_exchange *x = task->x;
    const tti_chunk *c = task->c;
    float wide[SUM_BLOCK];
    int64_t begin = x->back_columns[part], end = x->back_columns[part + 1];
    for (int64_t col = begin; col < end; col += SUM_BLOCK) {
        int64_t n = end - col < SUM_BLOCK ? end - col : SUM_BLOCK;
        float *y = task->y + t * task->ldy + col;
        memset(y, 0, (size_t)n * sizeof(*y));
        for (int64_t k = 0; k < x->K; k++) {
            int64_t at = c->result[(t * x->K + k) * x->width + part];
            if (at < 0) {
                continue;
            }
            const unsigned char *result =
                task->back + at + tt_wire_row_bytes(x->wire_back, col - begin);
            if (x->wire_back != TT_WIRE_F32) {
                tt_wire_widen(x->wire_back, wide, result, n);
            }
            ttk.axpy_f32(y, c->weight[t * x->K + k],
                         x->wire_back == TT_WIRE_F32 ? (const float *)(const void *)result : wide,
                         n);
        }
    }
}

static void sum_rows(void *arg, int thread_id, int n_threads)
{
    const sum_task *task = arg;
    int64_t begin = 0, end = 0;
    tt_split(task->c->T, n_threads, thread_id, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        for (int w = 0; w < task->x->width; w++) {
            sum_part(task, t, w);
        }
    }
    if (task->x->is_reduced) {
        tti_sums_add(task->x, task->c, task->y, task->ldy, begin, end);
    }
}

static tt_status wait_over(tt_exchange *x, tti_handle *h)
{
    tt_spin spin = {0};
    while (!is_over(h)) {
        TT_TRY(observe(x, h));
        TT_CHECK(
            n_owed(h) == 0, TT_ERR_STATE,
            "exchange handle %d: combine before the results of %d chunks of sources were pushed",
            h->id, n_owed(h));
        TT_TRY(check_wait(x, h));
        if (!is_over(h)) {
            tti_progress(x->world);
            tt_spin_once(&spin);
        }
    }
    /* In `caller` mode nobody sends for us after we have returned to the caller. */
    for (int i = 0; i < h->n_open && x->world->mode == TT_PROGRESS_CALLER; i++) {
        TT_TRY(tti_wire_drain(x, &h->chunk[i]));
    }
    return TT_OK;
}

tt_status tt_exchange_combine_end(tt_exchange *exchange, int handle, float *y, int64_t ldy,
                                  tt_stream *compute)
{
    tt_exchange *x = exchange;
    tti_handle *h = NULL;
    TT_TRY(tti_handle_find(x, handle, TTI_HANDLE_FLYING, &h));
    TT_TRY(tt_world_error(x->world));
    uint64_t begin_ns = tt_now_ns();
    tt_status st = wait_over(x, h);
    tti_count(h, TTI_COUNT_WAIT_NS, tt_now_ns() - begin_ns);
    if (st != TT_OK) {
        return break_if_group(x->world, st);
    }
    for (int i = 0; i < h->n_own; i++) {
        tti_chunk *c = &h->chunk[i];
        sum_task task = {x, c, y + i * x->chunk_tokens * ldy, ldy,
                         tti_window_part(x, x->world->rank, c->id) + x->layout.back};
        run(compute, c->T * x->H * x->K, "sum rows", sum_rows, &task);
    }
    tti_wait_end(x->world, &h->wait);
    for (int i = 0; i < h->n_open; i++) {
        atomic_store_explicit(&h->chunk[i].is_open, false, memory_order_release);
    }
    h->stage = TTI_HANDLE_FREE;
    return TT_OK;
}
