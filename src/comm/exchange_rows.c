/* exchange_rows.c - one use of a handle: rows out, rows in, results back, the sum.
 *
 * The order of events in memory is told in exchange_internal.h. Nothing here allocates or blocks; waiting is done in poll's
 * caller and in combine_end only. Results are rounded to wire_back by put_result wherever they were computed, and
 * summed in the order of choices, so y has the same bits for every placement. */
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
    tti_handle *h;
    const float *from; /* from[T][ldx] */
    int64_t ldx;
    unsigned char *rows; /* in the window */
} rows_task;

static void round_rows(void *arg, int thread_id, int n_threads)
{
    const rows_task *task = arg;
    const tt_exchange *x = task->x;
    int64_t begin = 0, end = 0;
    tt_split(task->h->T, n_threads, thread_id, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        unsigned char *to = task->rows + (size_t)t * x->layout.row_stride;
        const float *from = task->from + t * task->ldx;
        if (!task->h->is_needed[t]) {
            continue;
        }
        tt_wire_round(x->wire, to, from, x->H);
    }
}

static int64_t n_far_rows(const tt_exchange *x, const tti_handle *h)
{
    int64_t n = 0;
    for (int i = 0; i < x->paths.n_lanes; i++) {
        n += h->lane[i].n_rows;
    }
    return n;
}

/* Copies rows into the messages; rows of all messages form one list, split over threads. */
static void pack_rows(void *arg, int thread_id, int n_threads)
{
    const rows_task *task = arg;
    const tt_exchange *x = task->x;
    const tti_handle *h = task->h;
    int64_t begin = 0, end = 0;
    tt_split(n_far_rows(x, h), n_threads, thread_id, &begin, &end);
    for (int i = 0; i < x->paths.n_lanes; i++) {
        const tti_lane *lane = &h->lane[i];
        int64_t first = lane->row_begin, n = lane->n_rows;
        for (int64_t j = begin > first ? begin : first; j < end && j < first + n; j++) {
            memcpy(tti_wire_row(x, lane, j - first),
                   task->rows + (size_t)h->far_row[j] * x->layout.row_stride, x->layout.row_bytes);
        }
    }
}

static void publish(tt_exchange *x, tti_handle *h)
{
    tti_pub *pub = (tti_pub *)tti_handle_part(x, x->world->rank, h->id);
    pub->visible_ns = tti_due(x->world);
    pub->epoch = h->epoch;
    pub->status = (int32_t)h->mine;
    memcpy(pub->text, h->mine_text, sizeof(pub->text));
    atomic_store_explicit(&pub->seq, h->use, memory_order_release);
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
    if (exchange->source_id >= 0) {
        unsigned char *part = tti_handle_part(exchange, exchange->world->rank, handle);
        rows_task task = {exchange, h, x, ldx, part + exchange->layout.rows};
        run(compute, h->T * exchange->H, "round rows", round_rows, &task);
        if (exchange->paths.n_lanes > 0) {
            tti_wire_pack_heads(exchange, h);
            if (h->mine == TT_OK) {
                run(compute, n_far_rows(exchange, h) * exchange->H, "pack rows", pack_rows, &task);
            }
        }
        publish(exchange, h);
    }
    h->stage = TTI_HANDLE_FLYING;
    tti_wire_post(exchange, h);
    if (exchange->source_id >= 0 && exchange->owner_id >= 0) {
        /* Own rows are first in the order of arrival: they need no waiting. */
        TT_TRY(tti_exchange_arrive(exchange, h, exchange->source_id));
    }
    return TT_OK;
}

/* ---- arrivals and returns ---- */

/* All results of this use for one source are put. */
static void return_source(tt_exchange *x, tti_handle *h, int source_id)
{
    tti_arrival *a = &h->arrival[source_id];
    const bool is_own = x->source[source_id] == x->world->rank, is_far = x->paths.rail[source_id] >= 0;
    h->n_returned++;
    a->ret->visible_ns = is_own || is_far ? 0 : tti_due(x->world);
    atomic_store_explicit(&a->ret->seq, h->use, memory_order_release);
    if (is_far) {
        tti_wire_return(x, h, source_id);
    } else if (!is_own) {
        tti_count(h, TTI_COUNT_NODE_BYTES, (uint64_t)a->n_entries * h->part_bytes);
    }
}

static void charge_wait(tt_exchange *x, tti_handle *h, int rank)
{
    if (h->idle_since_ns != 0) {
        atomic_fetch_add_explicit(&x->peer_wait_ns[rank], tt_now_ns() - h->idle_since_ns,
                                  memory_order_relaxed);
    }
}

static tt_status arrive_near(tt_exchange *x, tti_handle *h, int source_id, bool *has_arrived_out)
{
    int rank = x->source[source_id];
    bool is_own = rank == x->world->rank;
    unsigned char *part = tti_handle_part(x, rank, h->id);
    const tti_pub *pub = (const tti_pub *)part;
    *has_arrived_out = false;
    uint64_t seq = atomic_load_explicit(&pub->seq, memory_order_acquire);
    if (seq != h->use || (!is_own && !tti_is_due(pub->visible_ns))) {
        return TT_OK;
    }
    if (!is_own) {
        char a[TTI_NAME_BYTES], b[TTI_NAME_BYTES];
        TT_CHECK(pub->status == TT_OK, TT_ERR_PEER, "%s failed with %s: %.*s",
                 tti_rank_name(x->world, rank, a, sizeof(a)),
                 tt_status_name((tt_status)pub->status), (int)sizeof(pub->text), pub->text);
        TT_CHECK(pub->epoch == h->epoch, TT_ERR_PROTOCOL,
                 "exchange handle %d, use %llu: %s has owner map %llu, %s has %llu", h->id,
                 (unsigned long long)h->use, tti_rank_name(x->world, rank, a, sizeof(a)),
                 (unsigned long long)pub->epoch,
                 tti_rank_name(x->world, x->world->rank, b, sizeof(b)),
                 (unsigned long long)h->epoch);
    }
    const tti_share *share = (const tti_share *)(part + x->layout.share) + x->owner_id;
    h->arrival[source_id] =
        (tti_arrival){.has_arrived = true,
                      .group = (const tti_group *)(part + x->layout.group) + share->group_begin,
                      .n_groups = share->n_groups,
                      .n_left = share->n_groups,
                      .n_entries = share->n_entries,
                      .index = (const int32_t *)(part + x->layout.index) + share->index_begin,
                      .weight = x->weights_travel
                                    ? (const float *)(part + x->layout.weight) + share->index_begin
                                    : NULL,
                      .rows = part + x->layout.rows,
                      .row_bytes = x->layout.row_stride,
                      .back = part + x->layout.back + share->back_begin,
                      .back_stride = x->near_stride[h->part < 0 ? 0 : h->part],
                      .back_wire = x->wire_back,
                      .ret = (tti_return *)(part + x->layout.ret) + x->owner_id};
    if (!is_own) {
        tti_count(h, TTI_COUNT_ROWS_IN, (uint64_t)share->n_rows);
        tti_count(h, TTI_COUNT_NODE_BYTES, (uint64_t)share->n_rows * x->layout.row_bytes);
    }
    *has_arrived_out = true;
    return TT_OK;
}

/* Takes a source's rows in; *has_arrived_out tells whether they were there. */
static tt_status try_arrive(tt_exchange *x, tti_handle *h, int source_id, bool *has_arrived_out)
{
    TT_TRY(x->paths.rail[source_id] >= 0 ? tti_wire_arrive(x, h, source_id, has_arrived_out)
                                         : arrive_near(x, h, source_id, has_arrived_out));
    if (*has_arrived_out) {
        h->order[h->n_arrived++] = source_id;
        charge_wait(x, h, x->source[source_id]);
        if (h->arrival[source_id].n_groups == 0) {
            return_source(x, h, source_id); /* tells the source that we have seen this use */
        }
    }
    return TT_OK;
}

static void forget(int *list, int *n, int at)
{
    list[at] = list[--*n];
}

tt_status tti_exchange_arrive(tt_exchange *x, tti_handle *h, int source_id)
{
    bool has_arrived = false;
    TT_TRY(try_arrive(x, h, source_id, &has_arrived));
    for (int i = 0; i < h->n_missing_sources && has_arrived; i++) {
        if (h->missing_source[i] == source_id) {
            forget(h->missing_source, &h->n_missing_sources, i);
            break;
        }
    }
    return TT_OK;
}

static tt_status try_returned(tt_exchange *x, tti_handle *h, int owner_id, bool *has_returned_out)
{
    int lane = x->lane_of_owner[owner_id];
    if (lane >= 0) {
        return tti_wire_returned(x, h, &h->lane[lane], has_returned_out);
    }
    const unsigned char *part = tti_handle_part(x, x->world->rank, h->id);
    const tti_return *ret = (const tti_return *)(part + x->layout.ret) + owner_id;
    *has_returned_out = atomic_load_explicit(&ret->seq, memory_order_acquire) == h->use &&
                        tti_is_due(ret->visible_ns);
    return TT_OK;
}

tt_status tti_exchange_observe(tt_exchange *x, tti_handle *h)
{
    bool is_news = false;
    for (int i = 0; i < h->n_missing_sources;) {
        bool has_arrived = false;
        TT_TRY(try_arrive(x, h, h->missing_source[i], &has_arrived));
        if (has_arrived) {
            forget(h->missing_source, &h->n_missing_sources, i);
            is_news = true;
        } else {
            i++;
        }
    }
    for (int i = 0; i < h->n_missing_owners;) {
        bool has_returned = false;
        int owner_id = h->missing_owner[i];
        TT_TRY(try_returned(x, h, owner_id, &has_returned));
        if (has_returned) {
            charge_wait(x, h, x->owner[owner_id]);
            forget(h->missing_owner, &h->n_missing_owners, i);
            is_news = true;
        } else {
            i++;
        }
    }
    if (x->is_reduced && x->owner_id >= 0) {
        const int n_summed = h->n_summed;
        tti_sums_make(x, h);
        is_news = is_news || h->n_summed > n_summed;
    }
    if (is_news) {
        tti_wait_end(x->world, &h->wait);
    }
    return TT_OK;
}

/* ---- waiting ---- */

/* Rows are owed before results: who has not sent rows is further behind. Others of this node are asked for what they are to take in or answer. */
static void owing_exchange(void *arg, bool *owes)
{
    const tti_handle *h = arg;
    const tt_exchange *x = h->x;
    for (int i = 0; i < h->n_missing_sources; i++) {
        const int s = h->missing_source[i], rail = x->paths.rail[s];
        owes[rail >= 0 && rail != x->owner_id ? x->owner[rail] : x->source[s]] = true;
    }
    for (int i = 0; i < h->n_missing_owners; i++) {
        const int o = h->missing_owner[i], lane = x->lane_of_owner[o];
        owes[lane >= 0 ? h->lane[lane].rank : x->owner[o]] = true;
    }
    tti_wire_owing_mates(x, h, owes);
    tti_sums_owing(x, h, owes);
}

static bool has_ready(tti_handle *h)
{
    while (h->cursor < h->n_arrived) {
        const tti_arrival *a = &h->arrival[h->order[h->cursor]];
        if (a->next_group < a->n_groups) {
            return true;
        }
        h->cursor++;
    }
    return false;
}

static bool is_over(const tti_handle *h)
{
    if (h->x->is_reduced && h->n_summed < h->x->n_far_sources) {
        return false;
    }
    return h->n_missing_owners == 0 && h->n_missing_sources == 0 &&
           (h->x->owner_id < 0 || h->n_returned == h->x->n_sources) && tti_wire_has_answered(h->x, h);
}

/* This rank waits for others only if it owes nothing itself: its own computing is no waiting. */
static tt_status check_wait(tt_exchange *x, tti_handle *h)
{
    if (h->n_returned < h->n_arrived || is_over(h)) {
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
    tt_status st = tti_exchange_observe(x, h);
    if (st != TT_OK) {
        return break_if_group(x->world, st);
    }
    TT_TRY(check_wait(x, h));
    state_out->all_arrived = h->n_missing_sources == 0;
    state_out->has_ready = has_ready(h);
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
    if (tti_handle_find(exchange, handle, TTI_HANDLE_FLYING, &h) != TT_OK || !has_ready(h)) {
        return false;
    }
    int source_id = h->order[h->cursor];
    tti_arrival *a = &h->arrival[source_id];
    const tti_group *g = &a->group[a->next_group++];
    *rows_out = (tt_exchange_rows){.slot = g->slot,
                                   .n = g->n,
                                   .source_id = source_id,
                                   .first = (int32_t)a->next_entry,
                                   .base = a->rows,
                                   .index = a->index + a->next_entry,
                                   .row_bytes = a->row_bytes,
                                   .weight = a->weight ? a->weight + a->next_entry : NULL};
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

bool tt_exchange_get_act8(const tt_exchange *exchange, const tt_exchange_rows *rows, int32_t i, void *act8)
{
    if (exchange->wire == TT_WIRE_INT8) {
        ttk.row8_act8(act8, (const unsigned char *)rows->base + rows->row_bytes * (size_t)rows->index[i], exchange->H);
    }
    return exchange->wire == TT_WIRE_INT8;
}

void tt_exchange_put_result(tt_exchange *exchange, int handle, const tt_exchange_rows *rows,
                            int32_t i, const float *y)
{
    const tti_handle *h = &exchange->handle[handle];
    const tti_arrival *a = &h->arrival[rows->source_id];
    unsigned char *to = a->back + ((size_t)rows->first + (size_t)i) * a->back_stride;
    TT_ASSERT(rows->first + i < a->n_entries);
    tt_wire_round(a->back_wire, to, y, h->part_columns);
}

tt_status tt_exchange_push(tt_exchange *exchange, int handle, const tt_exchange_rows *rows)
{
    tti_handle *h = NULL;
    TT_TRY(tti_handle_find(exchange, handle, TTI_HANDLE_FLYING, &h));
    TT_CHECK(rows->source_id >= 0 && rows->source_id < exchange->n_sources, TT_ERR_ARG,
             "push of source %d of %d", rows->source_id, exchange->n_sources);
    tti_arrival *a = &h->arrival[rows->source_id];
    TT_CHECK(a->n_left > 0, TT_ERR_STATE, "slot %d of source %d is pushed twice", rows->slot,
             rows->source_id);
    a->n_left--;
    if (a->n_left == 0) {
        return_source(exchange, h, rows->source_id);
    }
    return TT_OK;
}

/* ---- combine ---- */

typedef struct sum_task {
    tt_exchange *x;
    tti_handle *h;
    float *y; /* y[T][ldy] */
    int64_t ldy;
    const unsigned char *back;
} sum_task;

/* y[t] = fmaf chain over k from +0. Columns are independent, so blocks and parts do not change a bit. */
static void sum_part(const sum_task *task, int64_t t, int part)
{
    const tt_exchange *x = task->x;
    const tti_handle *h = task->h;
    float wide[SUM_BLOCK];
    int64_t begin = x->back_columns[part], end = x->back_columns[part + 1];
    for (int64_t c = begin; c < end; c += SUM_BLOCK) {
        int64_t n = end - c < SUM_BLOCK ? end - c : SUM_BLOCK;
        float *y = task->y + t * task->ldy + c;
        memset(y, 0, (size_t)n * sizeof(*y));
        for (int64_t k = 0; k < x->K; k++) {
            int64_t at = h->result[(t * x->K + k) * x->width + part];
            if (at < 0) {
                continue;
            }
            const unsigned char *result = task->back + at + tt_wire_row_bytes(x->wire_back, c - begin);
            if (x->wire_back != TT_WIRE_F32) {
                tt_wire_widen(x->wire_back, wide, result, n);
            }
            ttk.axpy_f32(y, h->weight[t * x->K + k], x->wire_back == TT_WIRE_F32 ? (const float *)(const void *)result : wide, n);
        }
    }
}

static void sum_rows(void *arg, int thread_id, int n_threads)
{
    const sum_task *task = arg;
    int64_t begin = 0, end = 0;
    tt_split(task->h->T, n_threads, thread_id, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        for (int w = 0; w < task->x->width; w++) {
            sum_part(task, t, w);
        }
    }
    if (task->x->is_reduced) {
        tti_sums_add(task->x, task->h, task->y, task->ldy, begin, end);
    }
}

static tt_status wait_over(tt_exchange *x, tti_handle *h)
{
    tt_spin spin = {0};
    while (!is_over(h)) {
        TT_TRY(tti_exchange_observe(x, h));
        TT_CHECK(h->n_returned == h->n_arrived, TT_ERR_STATE,
                 "exchange handle %d: combine before the results of %d sources were pushed", h->id,
                 h->n_arrived - h->n_returned);
        TT_TRY(check_wait(x, h));
        if (!is_over(h)) {
            tti_progress(x->world);
            tt_spin_once(&spin);
        }
    }
    /* In `caller` mode nobody sends for us after we have returned to the caller. */
    return x->world->mode == TT_PROGRESS_CALLER ? tti_wire_drain(x, h) : TT_OK;
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
    if (x->source_id >= 0) {
        sum_task task = {x, h, y, ldy, tti_handle_part(x, x->world->rank, handle) + x->layout.back};
        run(compute, h->T * x->H * x->K, "sum rows", sum_rows, &task);
    }
    tti_wait_end(x->world, &h->wait);
    atomic_store_explicit(&h->is_open, false, memory_order_release);
    h->stage = TTI_HANDLE_FREE;
    return TT_OK;
}
