/* gather.c - members of a group each fill a rectangle of a matrix, then all (or one) have the
 * whole.
 *
 * Each member publishes its packed rectangle in one of two regions of its window part, used in
 * turn, with the number of the use; near members copy from there. Far members get the same bytes as
 * a message, sent from the region, into one of two buffers with receives always posted. A region is
 * written again two uses later: by then every near reader must have said that it is done with it
 * (its `done` number), and MPI that the messages from it have left. With a single reader the others
 * leave after publishing, and this is what keeps them from running away. */
#include "gather_internal.h"
#include <stdlib.h>
#include <string.h>
#include "tutti/memory.h"
#include "tutti/plan.h"

enum {
    SMALL_FLOATS = 16384 /* below this waking threads costs more than the copy; a guess */
};

typedef enum far_stage { FAR_HEAD, FAR_REST, FAR_HERE, FAR_DONE } far_stage;

/* A far member: messages from it alternate between two buffers with a tag each; so do ours to
 * it. */
typedef struct far_member {
    int member, rank;
    uint64_t n_in, n_out; /* messages taken in; sent */
    unsigned char *buffer[TT_GATHER_REGIONS];
    MPI_Request *receive[TT_GATHER_REGIONS]; /* [most pieces] each, persistent */
    int n_receive[TT_GATHER_REGIONS];
    _Atomic int
        stage[TT_GATHER_REGIONS]; /* HERE -> DONE by the caller's thread, all else by progress */
    MPI_Request *send[TT_GATHER_REGIONS]; /* by region */
    int n_send[TT_GATHER_REGIONS];
} far_member;

struct tt_gather {
    tt_world *world;
    int n, me;   /* members; my place */
    int *member; /* member[n]: world ranks */
    int64_t max_floats;
    size_t region_bytes;
    bool has_window;
    tti_window window;
    MPI_Comm comm;
    unsigned char **near; /* near[n]: window part of a near member, or NULL */
    far_member *far;      /* far[n_far] */
    int n_far;
    unsigned char *buffers;
    uint64_t use;
    int reader[TT_GATHER_REGIONS]; /* who read region p when it was last used */
    int *missing;                  /* missing[n_missing]: members not here yet */
    int n_missing;
    bool waits_for_readers;
    /* progress */
    tti_op op;
    int send_to
        [TT_GATHER_REGIONS]; /* the reader of the use in each region; written before `posted` */
    uint64_t posted_from
        [TT_GATHER_REGIONS]; /* of the caller's thread: the last use posted from each region */
    _Atomic uint64_t
        posted; /* release by the caller's thread: the last use whose messages may leave */
    _Atomic uint64_t left
        [TT_GATHER_REGIONS]; /* release by progress: the last use of each region whose messages have all
                          * left */
    _Atomic bool is_open; /* between post and the end of exec */
    uint64_t sent,
        sent_from[TT_GATHER_REGIONS]; /* of progress: the last use given to MPI; from each region */
};

/* Window part: one line `done` (last use this rank has read), then the regions. */
static _Atomic uint64_t *done_of(unsigned char *part)
{
    return (_Atomic uint64_t *)(void *)part;
}

static tti_gather_head *region_of(const tt_gather *g, unsigned char *part, int region)
{
    return (tti_gather_head *)(void *)(part + TTI_LINE + (size_t)region * g->region_bytes);
}

static float *floats_of(tti_gather_head *head)
{
    return (float *)(void *)(head + 1);
}

static size_t message_bytes(int64_t n_floats)
{
    return sizeof(tti_gather_head) + (size_t)n_floats * sizeof(float);
}

static bool reads(int reader, int member)
{
    return reader == TT_GATHER_ALL || reader == member;
}

/* ---- progress of messages ---- */

static tt_status send_region(tt_gather *g, int region)
{
    tti_gather_head *head = region_of(g, g->near[g->me], region);
    const unsigned char *data = (const unsigned char *)head;
    size_t bytes = message_bytes(head->n_floats), n = tti_n_pieces(g->world, bytes);
    for (int i = 0; i < g->n_far; i++) {
        far_member *f = &g->far[(i + g->me) % g->n_far];
        if (!reads(g->send_to[region], f->member)) {
            continue;
        }
        int tag = (int)(f->n_out++ % TT_GATHER_REGIONS);
        for (size_t p = 0; p < n; p++) {
            TT_TRY(TT_MPI(MPI_Isend(data + p * g->world->piece_bytes,
                                    tti_int(tti_piece_bytes(g->world, bytes, p)), MPI_BYTE, f->rank,
                                    tag, g->comm, &f->send[region][p])));
            f->n_send[region] = tti_int(p + 1);
        }
    }
    return TT_OK;
}

static tt_status read_head(tt_gather *g, far_member *f, int slot, const MPI_Status *status)
{
    char a[TTI_NAME_BYTES], b[TTI_NAME_BYTES];
    tti_gather_head head;
    int got = 0;
    MPI_Get_count(status, MPI_BYTE, &got);
    memset(&head, 0, sizeof(head));
    memcpy(&head, f->buffer[slot], (size_t)got < sizeof(head) ? (size_t)got : sizeof(head));
    bool is_sane = (size_t)got >= sizeof(head) && head.magic == TTI_GATHER_MAGIC &&
                   head.n_floats >= 0 && head.n_floats <= g->max_floats && head.rank == f->rank &&
                   (size_t)got == tti_piece_bytes(g->world, message_bytes(head.n_floats), 0);
    TT_CHECK(is_sane, TT_ERR_PROTOCOL,
             "a message of %d bytes from %s to %s is no part of a gather of %lld floats", got,
             tti_rank_name(g->world, f->rank, a, sizeof(a)),
             tti_rank_name(g->world, g->world->rank, b, sizeof(b)), (long long)g->max_floats);
    f->n_receive[slot] = tti_int(tti_n_pieces(g->world, message_bytes(head.n_floats)));
    for (int p = 1; p < f->n_receive[slot]; p++) {
        TT_TRY(TT_MPI(MPI_Start(&f->receive[slot][p])));
    }
    return TT_OK;
}

static tt_status advance_slot(tt_gather *g, far_member *f, int slot)
{
    int stage = atomic_load_explicit(&f->stage[slot], memory_order_acquire);
    bool is_here = false;
    if (stage == FAR_DONE) {
        TT_TRY(TT_MPI(MPI_Start(&f->receive[slot][0])));
        stage = FAR_HEAD;
        atomic_store_explicit(&f->stage[slot], stage, memory_order_relaxed);
    }
    if (stage == FAR_HEAD) {
        MPI_Status status;
        int done = 0;
        TT_TRY(TT_MPI(MPI_Test(&f->receive[slot][0], &done, &status)));
        if (!done) {
            return TT_OK;
        }
        TT_TRY(read_head(g, f, slot, &status));
        stage = FAR_REST;
        atomic_store_explicit(&f->stage[slot], stage, memory_order_relaxed);
    }
    if (stage == FAR_REST) {
        TT_TRY(tti_test_all(f->receive[slot] + 1, f->n_receive[slot] - 1, &is_here));
        if (is_here) {
            atomic_store_explicit(&f->stage[slot], FAR_HERE, memory_order_release);
            atomic_fetch_add_explicit(&g->world->n_events, 1, memory_order_relaxed);
        }
    }
    return TT_OK;
}

static tt_status advance(tti_op *op)
{
    tt_gather *g = op->arg;
    bool is_sending = false, is_open = atomic_load_explicit(&g->is_open, memory_order_acquire);
    while (g->sent <
           atomic_load_explicit(&g->posted, memory_order_acquire)) { /* in the order of uses */
        g->sent++;
        g->sent_from[g->sent % TT_GATHER_REGIONS] = g->sent;
        TT_TRY(send_region(g, (int)(g->sent % TT_GATHER_REGIONS)));
    }
    for (int p = 0; p < TT_GATHER_REGIONS; p++) {
        bool has_left = true;
        for (int i = 0; i < g->n_far; i++) {
            far_member *f = &g->far[i];
            bool is_sent = false;
            TT_TRY(tti_test_all(f->send[p], f->n_send[p], &is_sent));
            f->n_send[p] = is_sent ? 0 : f->n_send[p];
            has_left = has_left && is_sent;
            TT_TRY(advance_slot(g, f, p));
        }
        is_sending = is_sending || !has_left;
        if (has_left) {
            atomic_store_explicit(&g->left[p], g->sent_from[p], memory_order_release);
        }
    }
    if (!is_open && !is_sending) {
        tti_op_rest(g->world, op);
        /* A whole use may have been posted and ended since is_open was read: what it left to send
         * must not be lost. */
        if (atomic_load(&g->is_open) || g->sent < atomic_load(&g->posted)) {
            tti_op_wake(g->world, op);
        }
    }
    return TT_OK;
}

/* ---- waiting ---- */

static void owing_gather(void *arg, bool *owes)
{
    const tt_gather *g = arg;
    for (int i = 0; i < g->n_missing; i++) {
        owes[g->member[g->missing[i]]] = true;
    }
    if (!g->waits_for_readers) {
        return;
    }
    int region = (int)(g->use % TT_GATHER_REGIONS);
    for (int i = 0; i < g->n; i++) {
        if (g->near[i] && reads(g->reader[region], i) &&
            atomic_load_explicit(done_of(g->near[i]), memory_order_acquire) + TT_GATHER_REGIONS <
                g->use) {
            owes[g->member[i]] = true;
        }
    }
    for (int i = 0; i < g->n_far; i++) {
        owes[g->far[i].rank] = owes[g->far[i].rank] || g->far[i].n_send[region] > 0;
    }
}

/* Nobody reads this use's region any more. */
static bool is_region_free(tt_gather *g, int region)
{
    for (int i = 0; i < g->n && g->use > TT_GATHER_REGIONS; i++) {
        if (g->near[i] && reads(g->reader[region], i) &&
            atomic_load_explicit(done_of(g->near[i]), memory_order_acquire) + TT_GATHER_REGIONS <
                g->use) {
            return false;
        }
    }
    return true;
}

/* All messages from the region have left. */
static bool is_region_sent(const tt_gather *g, int region)
{
    return atomic_load_explicit(&g->left[region], memory_order_acquire) >= g->posted_from[region];
}

static tt_status wait_region(tt_gather *g, int region)
{
    tti_wait wait = {.what = "a gather", .owing = owing_gather, .arg = g};
    g->n_missing = 0;
    g->waits_for_readers = true;
    while (!is_region_free(g, region) || !is_region_sent(g, region)) {
        TT_TRY(tti_wait_once(g->world, &wait));
    }
    tti_wait_end(g->world, &wait);
    g->waits_for_readers = false;
    return TT_OK;
}

/* ---- one use ---- */

static void publish(tt_gather *g, int region, const float *full, int64_t ld, const tt_rect *rect)
{
    tti_gather_head *head = region_of(g, g->near[g->me], region);
    float *to = floats_of(head);
    for (int64_t r = 0; r < rect->n_rows && rect->n_cols > 0; r++) {
        memcpy(to + r * rect->n_cols, full + (rect->row + r) * ld + rect->col,
               (size_t)rect->n_cols * sizeof(*to));
    }
    head->magic = TTI_GATHER_MAGIC;
    head->n_floats = rect->n_rows * rect->n_cols;
    head->rank = g->world->rank;
    head->visible_ns = g->world->delay_ns ? tt_now_ns() + g->world->delay_ns : 0;
    atomic_store_explicit(&head->seq, g->use, memory_order_release);
}

static void post(tt_gather *g, int region, int reader)
{
    if (g->n_far == 0) {
        return;
    }
    g->send_to[region] = reader;
    g->posted_from[region] = g->use;
    atomic_store_explicit(&g->posted, g->use, memory_order_release);
    atomic_store(&g->is_open, true);
    tti_op_wake(g->world, &g->op);
    tti_progress(g->world);
}

static far_member *far_of(tt_gather *g, int member)
{
    for (int i = 0; i < g->n_far; i++) {
        if (g->far[i].member == member) {
            return &g->far[i];
        }
    }
    return NULL;
}

/* Where a member's rectangle is now; NULL if it is not here (or not due) yet. */
static tt_status find_data(tt_gather *g, int region, int member, const tt_rect *rect,
                           const float **data_out)
{
    tti_gather_head *head = NULL;
    *data_out = NULL;
    if (g->near[member]) {
        head = region_of(g, g->near[member], region);
        if (atomic_load_explicit(&head->seq, memory_order_acquire) != g->use) {
            return TT_OK;
        }
    } else {
        far_member *f = far_of(g, member);
        TT_CHECK(f, TT_ERR_STATE, "gather: member %d is neither near nor far", member);
        int slot = (int)(f->n_in % TT_GATHER_REGIONS);
        if (atomic_load_explicit(&f->stage[slot], memory_order_acquire) != FAR_HERE) {
            return TT_OK;
        }
        head = (tti_gather_head *)(void *)f->buffer[slot];
    }
    bool is_one_clock =
        g->world->real_node[g->member[member]] == g->world->real_node[g->world->rank];
    if (is_one_clock && head->visible_ns != 0 && tt_now_ns() < head->visible_ns) {
        return TT_OK;
    }
    char a[TTI_NAME_BYTES], b[TTI_NAME_BYTES];
    uint64_t seq = atomic_load_explicit(&head->seq, memory_order_relaxed);
    TT_CHECK(seq == g->use && head->n_floats == rect->n_rows * rect->n_cols, TT_ERR_PROTOCOL,
             "gather %llu on %s wants %lld floats of %s, which sent %lld in its gather %llu",
             (unsigned long long)g->use, tti_rank_name(g->world, g->world->rank, a, sizeof(a)),
             (long long)(rect->n_rows * rect->n_cols),
             tti_rank_name(g->world, g->member[member], b, sizeof(b)), (long long)head->n_floats,
             (unsigned long long)seq);
    *data_out = floats_of(head);
    return TT_OK;
}

static void release_data(tt_gather *g, int member)
{
    far_member *f = g->near[member] ? NULL : far_of(g, member);
    if (f) {
        atomic_store_explicit(&f->stage[f->n_in % TT_GATHER_REGIONS], FAR_DONE,
                              memory_order_release);
        f->n_in++;
    }
}

typedef struct copy_task {
    tt_gather *g;
    int region;
    float *full;
    int64_t ld;
    const tt_rect *rect; /* rect[n] */
} copy_task;

static void copy_rows(float *full, int64_t ld, const tt_rect *rect, const float *data,
                      int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end && rect->n_cols > 0; r++) {
        memcpy(full + (rect->row + r) * ld + rect->col, data + r * rect->n_cols,
               (size_t)rect->n_cols * sizeof(*full));
    }
}

/* Copies a part of all rows of all other members' rectangles: they are all here. */
static void copy_part(void *arg, int thread_id, int n_threads)
{
    const copy_task *task = arg;
    for (int m = 0; m < task->g->n; m++) {
        const float *data = NULL;
        if (m != task->g->me &&
            find_data(task->g, task->region, m, &task->rect[m], &data) == TT_OK && data) {
            int64_t begin = 0, end = 0;
            tt_split(task->rect[m].n_rows, n_threads, thread_id, &begin, &end);
            copy_rows(task->full, task->ld, &task->rect[m], data, begin, end);
        }
    }
}

/* Waits for the members in missing[]; those that are here are copied at once unless the copy is
 * shared by threads. */
static tt_status take_in(tt_gather *g, const copy_task *task, bool is_shared)
{
    tti_wait wait = {.what = "a gather", .owing = owing_gather, .arg = g};
    while (g->n_missing > 0) {
        for (int i = 0; i < g->n_missing;) {
            int m = g->missing[i];
            const float *data = NULL;
            TT_TRY(find_data(g, task->region, m, &task->rect[m], &data));
            if (!data) {
                i++;
                continue;
            }
            if (!is_shared) {
                copy_rows(task->full, task->ld, &task->rect[m], data, 0, task->rect[m].n_rows);
                release_data(g, m);
            }
            g->missing[i] = g->missing[--g->n_missing];
        }
        if (g->n_missing > 0) {
            TT_TRY(tti_wait_once(g->world, &wait));
        }
    }
    tti_wait_end(g->world, &wait);
    return TT_OK;
}

static tt_status check_rects(const tt_gather *g, int64_t ld, const tt_rect *rect, int reader,
                             int64_t *n_floats_out)
{
    TT_CHECK(reader == TT_GATHER_ALL || (reader >= 0 && reader < g->n), TT_ERR_ARG,
             "reader %d of %d members", reader, g->n);
    *n_floats_out = 0;
    for (int m = 0; m < g->n; m++) {
        const tt_rect *r = &rect[m];
        TT_CHECK(r->row >= 0 && r->n_rows >= 0 && r->col >= 0 && r->n_cols >= 0 &&
                     r->n_cols <= ld - r->col,
                 TT_ERR_ARG, "rectangle %d: rows %lld + %lld, columns %lld + %lld of %lld", m,
                 (long long)r->row, (long long)r->n_rows, (long long)r->col, (long long)r->n_cols,
                 (long long)ld);
        TT_CHECK(r->n_cols == 0 || r->n_rows <= g->max_floats / r->n_cols, TT_ERR_CAPACITY,
                 "rectangle %d of %lld x %lld floats, the gather was made for %lld", m,
                 (long long)r->n_rows, (long long)r->n_cols, (long long)g->max_floats);
        *n_floats_out += r->n_rows * r->n_cols;
    }
    return TT_OK;
}

static tt_status exec(tt_gather *g, float *full, int64_t ld, const tt_rect *rect, int reader,
                      tt_stream *compute)
{
    int64_t n_floats = 0;
    TT_TRY(tt_world_error(g->world));
    TT_TRY(check_rects(g, ld, rect, reader, &n_floats));
    g->use++;
    int region = (int)(g->use % TT_GATHER_REGIONS);
    TT_TRY(wait_region(g, region));
    publish(g, region, full, ld, &rect[g->me]);
    g->reader[region] = reader;
    post(g, region, reader);
    if (reads(reader, g->me)) {
        copy_task task = {g, region, full, ld, rect};
        bool is_shared = compute && n_floats >= SMALL_FLOATS;
        for (int m = 0; m < g->n; m++) {
            if (m != g->me) {
                g->missing[g->n_missing++] = m;
            }
        }
        TT_TRY(take_in(g, &task, is_shared));
        if (is_shared) {
            tt_stream_run(compute, "gather", copy_part, &task);
            for (int m = 0; m < g->n; m++) {
                release_data(g, m);
            }
        }
    }
    atomic_store_explicit(done_of(g->near[g->me]), g->use, memory_order_release);
    if (g->world->mode == TT_PROGRESS_CALLER) { /* nobody sends for us after we return */
        tti_wait wait = {.what = "a gather", .owing = owing_gather, .arg = g};
        while (!is_region_sent(g, region)) {
            TT_TRY(tti_wait_once(g->world, &wait));
        }
        tti_wait_end(g->world, &wait);
    }
    atomic_store_explicit(&g->is_open, false, memory_order_release);
    return TT_OK;
}

tt_status tt_gather_exec(tt_gather *gather, float *full, int64_t ld, const tt_rect *rect,
                         int reader, tt_stream *compute)
{
    if (gather->n <= 1) {
        return TT_OK;
    }
    tt_status st = exec(gather, full, ld, rect, reader, compute);
    return st <= TT_ERR_MISMATCH ? tti_world_break(gather->world, st) : st;
}

/* ---- life ---- */

typedef struct group_key {
    int64_t n, max_floats;
    uint64_t hash;
} group_key;

static group_key key_of(const int *members, int n, int64_t max_floats)
{
    group_key key = {n, n > 1 ? max_floats : 0, 0};
    for (int i = 0; i < n; i++) {
        key.hash = key.hash * 1000003u + (uint64_t)members[i] + 1; /* order matters */
    }
    return key;
}

static tt_status check_members(const tt_world *world, const int *members, int n, int64_t max_floats)
{
    int found = 0;
    TT_CHECK(n >= 0 && n <= world->size && max_floats >= 0 && max_floats <= INT64_MAX / 64,
             TT_ERR_ARG, "a gather of %d members with %lld floats", n, (long long)max_floats);
    for (int i = 0; i < n; i++) {
        TT_CHECK(members[i] >= 0 && members[i] < world->size, TT_ERR_ARG,
                 "gather member %d is rank %d of %d", i, members[i], world->size);
        found += members[i] == world->rank;
        for (int j = 0; j < i; j++) {
            TT_CHECK(members[i] != members[j], TT_ERR_ARG, "rank %d is twice in a gather",
                     members[i]);
        }
    }
    TT_CHECK(n == 0 || found == 1, TT_ERR_ARG, "rank %d is not in its own gather", world->rank);
    return TT_OK;
}

/* All members of my group must have passed the same list and size. */
static tt_status check_group(tt_world *world, const int *members, int n, int64_t max_floats,
                             const group_key *all)
{
    group_key mine = key_of(members, n, max_floats);
    for (int i = 0; i < n; i++) {
        const group_key *k = &all[members[i]];
        char a[TTI_NAME_BYTES], b[TTI_NAME_BYTES];
        TT_CHECK(k->n == mine.n && k->max_floats == mine.max_floats && k->hash == mine.hash,
                 TT_ERR_MISMATCH, "members or size of a gather differ between %s and %s",
                 tti_rank_name(world, world->rank, a, sizeof(a)),
                 tti_rank_name(world, members[i], b, sizeof(b)));
    }
    return TT_OK;
}

static tt_status alloc_far(tt_gather *g)
{
    if (g->n_far == 0) {
        return TT_OK;
    }
    size_t bytes = tti_align(message_bytes(g->max_floats)),
           n_pieces = tti_n_pieces(g->world, bytes);
    void *data = NULL;
    TT_TRY(tt_memory_alloc("gather receive buffers", (size_t)g->n_far * TT_GATHER_REGIONS * bytes,
                           TT_MEMORY_ANY_NODE, &data));
    g->buffers = data;
    for (int i = 0; i < g->n_far; i++) {
        for (int p = 0; p < TT_GATHER_REGIONS; p++) {
            far_member *f = &g->far[i];
            f->buffer[p] = g->buffers + ((size_t)i * TT_GATHER_REGIONS + (size_t)p) * bytes;
            f->receive[p] = calloc(n_pieces, sizeof(MPI_Request));
            f->send[p] = calloc(n_pieces, sizeof(MPI_Request));
            TT_CHECK(f->receive[p] && f->send[p], TT_ERR_NOMEM, "no memory for a gather");
            for (size_t q = 0; q < n_pieces; q++) {
                f->receive[p][q] = f->send[p][q] = MPI_REQUEST_NULL;
            }
        }
    }
    return TT_OK;
}

static tt_status alloc_gather(tt_world *world, const int *members, int n, int64_t max_floats,
                              tt_gather **g_out)
{
    tt_gather *g = calloc(1, sizeof(*g));
    TT_CHECK(g, TT_ERR_NOMEM, "no memory for a gather");
    *g_out = g;
    g->world = world;
    g->comm = MPI_COMM_NULL;
    g->n = n;
    g->max_floats = max_floats;
    g->region_bytes = tti_align(message_bytes(max_floats));
    if (n <= 1) {
        return TT_OK;
    }
    g->member = calloc((size_t)n, sizeof(*g->member));
    g->near = calloc((size_t)n, sizeof(*g->near));
    g->missing = calloc((size_t)n, sizeof(*g->missing));
    g->far = calloc((size_t)n, sizeof(*g->far));
    TT_CHECK(g->member && g->near && g->missing && g->far, TT_ERR_NOMEM,
             "no memory for a gather of %d", n);
    for (int i = 0; i < n; i++) {
        g->member[i] = members[i];
        g->me = members[i] == world->rank ? i : g->me;
        if (!tti_is_near(world, members[i])) {
            g->far[g->n_far].member = i;
            g->far[g->n_far++].rank = members[i];
        }
    }
    return alloc_far(g);
}

/* Local memory only. */
static void free_gather(tt_gather *g)
{
    if (!tt_world_is_broken(g->world)) { /* else MPI may still write into these */
        for (int i = 0; i < g->n_far && g->far; i++) {
            for (int p = 0; p < TT_GATHER_REGIONS; p++) {
                free(g->far[i].receive[p]);
                free(g->far[i].send[p]);
            }
        }
        tt_memory_free(g->buffers, (size_t)g->n_far * TT_GATHER_REGIONS *
                                       tti_align(message_bytes(g->max_floats)));
    }
    free(g->far);
    free(g->member);
    free(g->near);
    free(g->missing);
    free(g);
}

static tt_status open_far(tt_gather *g)
{
    tt_status st = TT_OK;
    size_t bytes = message_bytes(g->max_floats), n_pieces = tti_n_pieces(g->world, bytes);
    tti_lock(g->world);
    for (int i = 0; i < g->n_far; i++) {
        far_member *f = &g->far[i];
        for (int p = 0; p < TT_GATHER_REGIONS && st == TT_OK; p++) {
            for (size_t q = 0; q < n_pieces && st == TT_OK; q++) {
                st = TT_MPI(MPI_Recv_init(f->buffer[p] + q * g->world->piece_bytes,
                                          tti_int(tti_piece_bytes(g->world, bytes, q)), MPI_BYTE,
                                          f->rank, p, g->comm, &f->receive[p][q]));
            }
            if (st == TT_OK) {
                st = TT_MPI(MPI_Start(&f->receive[p][0]));
            }
        }
    }
    tti_unlock(g->world);
    if (g->n_far > 0) {
        g->op = (tti_op){.advance = advance, .arg = g};
        tti_op_register(g->world, &g->op);
    }
    return st;
}

static tt_status open_gather(tt_gather *g)
{
    size_t bytes = g->n > 1 ? TTI_LINE + TT_GATHER_REGIONS * g->region_bytes : TTI_LINE;
    g->has_window = true;
    TT_TRY(tti_window_create(g->world, "the gather windows", bytes, &g->window));
    for (int i = 0; i < g->n && g->n > 1; i++) {
        if (tti_is_near(g->world, g->member[i])) {
            g->near[i] = g->window.base[g->world->node_rank[g->member[i]]];
        }
    }
    TT_TRY(tti_comm_dup(g->world, &g->comm));
    return tt_world_agree(g->world, open_far(g));
}

tt_status tt_gather_create(tt_world *world, const int *members, int n, int64_t max_floats,
                           tt_gather **gather_out)
{
    tt_gather *g = NULL;
    bool is_open = false; /* something collective is, or was tried, on all ranks alike */
    group_key *all = calloc((size_t)world->size, sizeof(*all));
    tt_status st =
        all ? check_members(world, members, n, max_floats) : TT_FAIL(TT_ERR_NOMEM, "no memory");
    st = tt_world_agree(world, st);
    int64_t largest = n;
    if (st == TT_OK) {
        group_key mine = key_of(members, n, max_floats);
        st = tt_world_allgather(world, &mine, sizeof(mine), all);
    }
    if (st == TT_OK) {
        st = tt_world_agree(world, check_group(world, members, n, max_floats, all));
    }
    if (st == TT_OK) {
        st = tt_world_max_i64(world, &largest, 1);
    }
    if (st == TT_OK) {
        st = tt_world_agree(world, alloc_gather(world, members, n, max_floats, &g));
    }
    if (st == TT_OK && largest > 1 && g) { /* groups of one need nothing */
        is_open = true;
        st = open_gather(g);
    }
    free(all);
    if (st != TT_OK) {
        if (is_open) {
            tt_gather_destroy(&g);
        } else if (g) { /* not every rank has one: no barrier */
            free_gather(g);
        }
        return st;
    }
    *gather_out = g;
    return TT_OK;
}

static void close_far(tt_gather *g)
{
    tti_op_unregister(g->world, &g->op);
    if (tt_world_is_broken(g->world)) {
        return;
    }
    size_t n_pieces = tti_n_pieces(g->world, message_bytes(g->max_floats));
    tti_lock(g->world);
    for (int i = 0; i < g->n_far; i++) {
        for (int p = 0; p < TT_GATHER_REGIONS; p++) {
            far_member *f = &g->far[i];
            for (size_t q = 0; q < n_pieces; q++) {
                if (f->send[p][q] != MPI_REQUEST_NULL) {
                    MPI_Wait(&f->send[p][q], MPI_STATUS_IGNORE); /* its receive is posted */
                }
                if (q == 0 && atomic_load(&f->stage[p]) == FAR_HEAD &&
                    f->receive[p][q] != MPI_REQUEST_NULL) {
                    MPI_Cancel(&f->receive[p][q]);
                    MPI_Wait(&f->receive[p][q], MPI_STATUS_IGNORE);
                }
                if (f->receive[p][q] != MPI_REQUEST_NULL) {
                    MPI_Request_free(&f->receive[p][q]);
                }
            }
        }
    }
    tti_unlock(g->world);
}

void tt_gather_destroy(tt_gather **gather)
{
    tt_gather *g = *gather;
    *gather = NULL;
    if (!g) {
        return;
    }
    tt_world *world = g->world;
    if (!tt_world_is_broken(world)) {
        tt_world_barrier(world);
    }
    if (g->op.advance) {
        close_far(g);
    }
    if (g->has_window) {
        tti_window_destroy(world, &g->window);
        tti_comm_free(world, &g->comm);
    }
    free_gather(g);
}
