/* exchange.c - life of an exchange: parameters that all ranks must share, one window part per
 * source, buffers for far peers.
 *
 * Everything is sized for the worst case (all tokens of all sources to one owner), because a full
 * buffer in the middle of a step has no good answer. Buffers of this rank alone are reserved
 * address space, of which pages that no message reaches are never touched; windows, and so the
 * intakes of exchanges by node, are memory from the start (window.c). */
#include "exchange_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/memory.h"

enum { DEFAULT_HANDLES = 3, MAX_WIDTH = 1024 };

/* ---- sizes ---- */

void tti_part_bounds(const tt_exchange_params *params, int part, int64_t *begin_out,
                     int64_t *end_out)
{
    bool is_whole = params->width <= 1 || !params->back_columns;
    *begin_out = is_whole ? 0 : params->back_columns[part];
    *end_out = is_whole ? params->H : params->back_columns[part + 1];
}

static int width_of(const tt_exchange_params *params)
{
    return params->width == 0 ? 1 : params->width;
}

static int n_handles_of(const tt_exchange_params *params)
{
    return params->n_handles == 0 ? DEFAULT_HANDLES : params->n_handles;
}

static int64_t chunk_tokens_of(const tt_exchange_params *params)
{
    return params->chunk_tokens == 0 || params->chunk_tokens > params->max_tokens
               ? params->max_tokens
               : params->chunk_tokens;
}

/* Of a handle. */
static int64_t n_chunks_of(const tt_exchange_params *params)
{
    return params->max_tokens < 1 ? 1 : (params->max_tokens - 1) / chunk_tokens_of(params) + 1;
}

void tti_exchange_measure(const tt_exchange_params *params, const tti_paths *paths,
                          tti_exchange_layout *layout_out)
{
    tti_exchange_layout l = {0};
    int width = width_of(params);
    size_t tokens = (size_t)chunk_tokens_of(params), owners = (size_t)params->n_owners;
    size_t choices = tokens * (size_t)params->K, entries = choices * (size_t)width;
    const bool is_reduced = params->combine == TT_COMBINE_REDUCED,
               has_weights = params->weights_travel || is_reduced;
    l.entry_bytes = sizeof(int32_t) + (has_weights ? sizeof(float) : 0);
    l.row_bytes = tt_wire_row_bytes(params->wire, params->H);
    l.row_stride = tti_align(l.row_bytes);
    l.share = tti_align(sizeof(tti_pub));
    l.ret = l.share + owners * sizeof(tti_share);
    l.group = l.ret + owners * sizeof(tti_return);
    l.index = l.group + tti_align(entries * sizeof(tti_group));
    l.weight = l.index + tti_align(entries * sizeof(int32_t));
    l.rows = l.weight + (has_weights ? tti_align(entries * sizeof(float)) : 0);
    l.back = l.rows + tokens * l.row_stride;
    /* Each owner's results start at a line, after a header if they come as a message. */
    size_t back = owners * (size_t)(TTI_HEADER_BYTES + TTI_LINE), put_all = 0, put_widest = 0;
    for (int w = 0; w < width; w++) {
        int64_t begin = 0, end = 0;
        tti_part_bounds(params, w, &begin, &end);
        const size_t part = tt_wire_row_bytes(params->wire_back, end - begin);
        const size_t put = is_reduced ? tt_wire_row_bytes(TT_WIRE_F32, end - begin) : part;
        back += choices * tti_align(part);
        l.back_row_bytes += part;
        put_all += put;
        put_widest = put > put_widest ? put : put_widest;
    }
    if (is_reduced) { /* a row of sums for each message that a token goes out with */
        const size_t most = (size_t)params->K * (size_t)width;
        back += tokens * (most < owners ? most : owners) * l.back_row_bytes;
    }
    l.chunk_bytes = l.back + tti_align(back);

    /* One owner gets at most one entry per choice, all owners of a node at most all entries. */
    const bool by_node = paths->by_node;
    const size_t lane_entries = by_node ? entries : choices, part_bytes = sizeof(tti_wire_part);
    const size_t lane_owners = by_node ? owners : 1, lanes = (size_t)paths->n_lanes;
    const size_t least = TTI_HEADER_BYTES + TTI_FAIL_TEXT_BYTES;
    const size_t head = tti_align(TTI_HEADER_BYTES + (lane_owners + 1) * part_bytes +
                                  lane_entries * (sizeof(tti_group) + l.entry_bytes));
    l.message_bytes = head + tokens * l.row_bytes;
    l.message_bytes = tti_align(l.message_bytes < least ? least : l.message_bytes);
    const size_t put_bytes =
        tti_align(TTI_HEADER_BYTES + choices * (by_node ? put_all : put_widest));
    l.result_bytes =
        is_reduced ? tti_align(TTI_HEADER_BYTES + tokens * l.back_row_bytes) : put_bytes;
    size_t copies = (size_t)params->K * (size_t)width;
    copies = copies < lanes ? copies : lanes; /* a row goes on at most so many lanes */
    l.pool_bytes = lanes * (least + part_bytes + 2 * TTI_LINE) + owners * part_bytes +
                   entries * (sizeof(tti_group) + l.entry_bytes) + tokens * copies * l.row_bytes;
    l.message = sizeof(tti_gate) + (size_t)paths->n_mates * sizeof(tti_return);
    l.put = l.message + l.message_bytes;
    l.results = l.put + (is_reduced ? put_bytes : 0);
    l.intake_bytes = l.results + l.result_bytes;
    *layout_out = l;
}

uint64_t tt_exchange_memory_bytes(const tt_exchange_params *params, const int *node_of_rank,
                                  int n_ranks, int rank)
{
    if (rank < 0 || rank >= n_ranks) {
        return 0;
    }
    tt_exchange_params p = *params;
    tti_paths paths;
    p.route = tt_route_choose(p.route, p.owner, p.n_owners, node_of_rank);
    if (tti_paths_make(&p, node_of_rank, rank, &paths) != TT_OK) {
        return UINT64_MAX;
    }
    tti_exchange_layout l;
    tti_exchange_measure(&p, &paths, &l);
    const bool is_source = tti_find_rank(p.source, p.n_sources, rank) >= 0;
    uint64_t per_chunk = is_source ? l.chunk_bytes + (paths.n_lanes ? l.pool_bytes : 0) : 0;
    per_chunk += (uint64_t)paths.n_intakes * l.intake_bytes;
    tti_paths_free(&paths);
    return per_chunk * (uint64_t)n_chunks_of(&p) * (uint64_t)n_handles_of(&p);
}

/* ---- parameters ---- */

static tt_status check_ranks(const char *what, const int *list, int n, int size)
{
    TT_CHECK(n >= 1 && list, TT_ERR_ARG, "an exchange without %ss", what);
    for (int i = 0; i < n; i++) {
        TT_CHECK(list[i] >= 0 && list[i] < size && (i == 0 || list[i] > list[i - 1]), TT_ERR_ARG,
                 "%s %d of %d is rank %d: not an ascending list of ranks below %d", what, i, n,
                 list[i], size);
    }
    return TT_OK;
}

static tt_status check_params(const tt_world *world, const tt_exchange_params *p)
{
    int width = width_of(p), n_handles = n_handles_of(p);
    TT_CHECK(p->H >= 1 && p->K >= 1 && p->max_tokens >= 1, TT_ERR_ARG,
             "exchange of %lld tokens with %lld choices and rows of %lld", (long long)p->max_tokens,
             (long long)p->K, (long long)p->H);
    TT_CHECK(width >= 1 && width <= MAX_WIDTH, TT_ERR_ARG, "exchange of width %d", width);
    TT_CHECK(n_handles >= 1 && p->chunk_tokens >= 0 &&
                 n_chunks_of(p) <= TT_EXCHANGE_MAX_CHUNKS / n_handles,
             TT_ERR_ARG,
             "exchange of %d handles for %lld tokens in chunks of %lld: at most %d chunks",
             n_handles, (long long)p->max_tokens, (long long)p->chunk_tokens,
             (int)TT_EXCHANGE_MAX_CHUNKS);
    TT_CHECK(p->H <= INT32_MAX && p->max_tokens <= INT32_MAX / width &&
                 p->K <= INT32_MAX / width / p->max_tokens,
             TT_ERR_ARG,
             "exchange of %lld tokens x %lld choices x %d parts: more than 2^31 entries",
             (long long)p->max_tokens, (long long)p->K, width);
    TT_CHECK(p->wire >= 0 && p->wire < TT_WIRE_COUNT && p->wire_back >= 0 &&
                 p->wire_back < TT_WIRE_COUNT,
             TT_ERR_ARG, "wire formats %d and %d", (int)p->wire, (int)p->wire_back);
    TT_CHECK(p->route == TT_ROUTE_AUTO || p->route == TT_ROUTE_DIRECT || p->route == TT_ROUTE_NODE,
             TT_ERR_ARG, "route %d", (int)p->route);
    TT_CHECK(p->combine == TT_COMBINE_EXACT || p->combine == TT_COMBINE_REDUCED, TT_ERR_ARG,
             "combine %d", (int)p->combine);
    TT_TRY(check_ranks("source", p->source, p->n_sources, world->size));
    TT_TRY(check_ranks("owner", p->owner, p->n_owners, world->size));
    TT_CHECK(width == 1 || p->back_columns, TT_ERR_ARG, "width %d without back_columns", width);
    for (int w = 0; w < width && width > 1; w++) {
        TT_CHECK(p->back_columns[0] == 0 && p->back_columns[width] == p->H &&
                     p->back_columns[w] <= p->back_columns[w + 1],
                 TT_ERR_ARG, "back_columns part %d is [%lld, %lld) of %lld", w,
                 (long long)p->back_columns[w], (long long)p->back_columns[w + 1], (long long)p->H);
    }
    return TT_OK;
}

/* Every field by itself, so that the message names it. */
static tt_status check_equal(tt_world *world, const tt_exchange_params *p)
{
    const struct {
        const char *what;
        int64_t value;
    } fields[] = {
        {"exchange row width H", p->H},
        {"exchange choices K", p->K},
        {"exchange max_tokens", p->max_tokens},
        {"exchange n_handles", n_handles_of(p)},
        {"exchange chunk_tokens", chunk_tokens_of(p)},
        {"exchange wire format", (int64_t)p->wire},
        {"exchange wire_back format", (int64_t)p->wire_back},
        {"exchange n_sources", p->n_sources},
        {"exchange n_owners", p->n_owners},
        {"exchange width", width_of(p)},
        {"exchange weights_travel", p->weights_travel},
        {"exchange route", (int64_t)p->route},
        {"exchange combine", (int64_t)p->combine},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        TT_TRY(
            tt_world_check_equal(world, fields[i].what, &fields[i].value, sizeof(fields[i].value)));
    }
    TT_TRY(tt_world_check_equal(world, "exchange list of sources", p->source,
                                (size_t)p->n_sources * sizeof(int)));
    TT_TRY(tt_world_check_equal(world, "exchange list of owners", p->owner,
                                (size_t)p->n_owners * sizeof(int)));
    if (width_of(p) > 1) {
        TT_TRY(tt_world_check_equal(world, "exchange back_columns", p->back_columns,
                                    ((size_t)p->width + 1) * sizeof(int64_t)));
    }
    return TT_OK;
}

/* ---- memory ---- */

static tt_status alloc_array(void *pointer_out, size_t n, size_t bytes)
{
    void *data = calloc(n ? n : 1, bytes);
    TT_CHECK(data, TT_ERR_NOMEM, "no memory for %llu x %llu bytes of an exchange",
             (unsigned long long)n, (unsigned long long)bytes);
    memcpy(pointer_out, &data, sizeof(data));
    return TT_OK;
}

static tt_status alloc_requests(const tt_exchange *x, size_t bytes, MPI_Request **list_out)
{
    size_t n = tti_n_pieces(x->world, bytes);
    TT_TRY(alloc_array(list_out, n, sizeof(MPI_Request)));
    for (size_t i = 0; i < n; i++) {
        (*list_out)[i] = MPI_REQUEST_NULL;
    }
    return TT_OK;
}

static tt_status alloc_source(tt_exchange *x, tti_chunk *c)
{
    size_t tokens = (size_t)x->chunk_tokens, choices = tokens * (size_t)x->K;
    size_t lanes = (size_t)x->paths.n_lanes, entries = choices * (size_t)x->width;
    size_t copies =
        (size_t)x->K * (size_t)x->width < lanes ? (size_t)x->K * (size_t)x->width : lanes;
    TT_TRY(alloc_array(&c->weight, choices, sizeof(*c->weight)));
    TT_TRY(alloc_array(&c->result, entries, sizeof(*c->result)));
    TT_TRY(alloc_array(&c->is_needed, tokens, sizeof(*c->is_needed)));
    TT_TRY(alloc_array(&c->far_row, tokens * copies, sizeof(*c->far_row)));
    TT_TRY(alloc_array(&c->lane, lanes, sizeof(*c->lane)));
    if (lanes) {
        void *pool = NULL;
        TT_TRY(
            tt_memory_alloc("exchange messages", x->layout.pool_bytes, TT_MEMORY_ANY_NODE, &pool));
        c->pool = pool;
    }
    for (int i = 0; i < x->paths.n_lanes; i++) {
        const tti_lane_path *path = &x->paths.lane[i];
        tti_lane *lane = &c->lane[i];
        lane->rank = x->owner[path->rail];
        lane->first = path->first;
        lane->n_owners = path->n;
        TT_TRY(alloc_requests(x, x->layout.message_bytes, &lane->send));
        TT_TRY(alloc_requests(x, x->layout.result_bytes, &lane->receive));
    }
    return TT_OK;
}

static tt_status alloc_owner(tt_exchange *x, tti_chunk *c)
{
    TT_TRY(alloc_array(&c->intake, (size_t)x->paths.n_intakes, sizeof(*c->intake)));
    if (x->is_reduced) {
        TT_TRY(alloc_array(&c->row_begin, (size_t)x->chunk_tokens + 1, sizeof(*c->row_begin)));
        TT_TRY(alloc_array(&c->row_entry, (size_t)(x->chunk_tokens * x->K) * (size_t)x->width,
                           sizeof(*c->row_entry)));
    }
    for (int s = 0; s < x->n_sources; s++) {
        if (x->paths.rail[s] == x->owner_id) {
            tti_intake *in = &c->intake[x->paths.intake[s]];
            in->rank = x->source[s];
            in->source_id = s;
            TT_TRY(alloc_requests(x, x->layout.message_bytes, &in->receive));
            TT_TRY(alloc_requests(x, x->layout.result_bytes, &in->send));
        }
    }
    return TT_OK;
}

static tt_status alloc_chunk(tt_exchange *x, tti_chunk *c)
{
    size_t n_owners = (size_t)x->n_owners, n_sources = (size_t)x->n_sources;
    TT_TRY(alloc_array(&c->missing_owner, n_owners, sizeof(*c->missing_owner)));
    TT_TRY(alloc_array(&c->arrival, n_sources, sizeof(*c->arrival)));
    TT_TRY(alloc_array(&c->is_expected, n_sources, sizeof(*c->is_expected)));
    TT_TRY(alloc_array(&c->order, n_sources, sizeof(*c->order)));
    TT_TRY(alloc_array(&c->missing_source, n_sources, sizeof(*c->missing_source)));
    if (x->source_id >= 0) {
        TT_TRY(alloc_source(x, c));
    }
    if (x->owner_id >= 0) {
        TT_TRY(alloc_owner(x, c));
    }
    return TT_OK;
}

static tt_status alloc_handle(tt_exchange *x, tti_handle *h, int id)
{
    h->x = x;
    h->id = id;
    TT_TRY(alloc_array(&h->charged_ns, (size_t)x->world->size, sizeof(*h->charged_ns)));
    TT_TRY(alloc_array(&h->last_token, (size_t)x->n_owners, sizeof(*h->last_token)));
    TT_TRY(alloc_array(&h->n_rows, (size_t)x->n_owners, sizeof(*h->n_rows)));
    TT_TRY(alloc_array(&h->chunk, (size_t)x->n_chunks, sizeof(*h->chunk)));
    for (int i = 0; i < x->n_chunks; i++) {
        h->chunk[i].handle = h;
        h->chunk[i].id = id * x->n_chunks + i;
        h->chunk[i].place = i;
        TT_TRY(alloc_chunk(x, &h->chunk[i]));
    }
    return TT_OK;
}

static void free_chunk(tt_exchange *x, tti_chunk *c)
{
    for (int i = 0; i < x->paths.n_lanes && c->lane; i++) {
        free(c->lane[i].send);
        free(c->lane[i].receive);
    }
    for (int i = 0; i < x->paths.n_intakes && c->intake; i++) {
        free(c->intake[i].send);
        free(c->intake[i].receive);
    }
    tt_memory_free(c->pool, x->layout.pool_bytes);
    free(c->weight);
    free(c->result);
    free(c->is_needed);
    free(c->far_row);
    free(c->missing_owner);
    free(c->arrival);
    free(c->is_expected);
    free(c->order);
    free(c->missing_source);
    free(c->lane);
    free(c->intake);
    free(c->row_begin);
    free(c->row_entry);
}

static void free_handle(tt_exchange *x, tti_handle *h)
{
    for (int i = 0; i < x->n_chunks && h->chunk; i++) {
        free_chunk(x, &h->chunk[i]);
    }
    free(h->chunk);
    free(h->charged_ns);
    free(h->key_at);
    free(h->last_token);
    free(h->n_rows);
}

static size_t all_intakes_bytes(const tt_exchange *x)
{
    return (size_t)x->paths.n_intakes * (size_t)tti_all_chunks(x) * x->layout.intake_bytes;
}

/* Of intakes that nobody but this rank reads. */
static size_t own_intake_bytes(const tt_exchange *x)
{
    return x->paths.by_node ? 0 : all_intakes_bytes(x);
}

static size_t source_bytes(const tt_exchange *x)
{
    return (size_t)tti_all_chunks(x) * x->layout.chunk_bytes;
}

static void free_exchange(tt_exchange *x)
{
    for (int i = 0; i < x->n_handles && x->handle; i++) {
        free_handle(x, &x->handle[i]);
    }
    free(x->handle);
    tt_memory_free(x->own_intakes, own_intake_bytes(x));
    tti_paths_free(&x->paths);
    free(x->lane_of_owner);
    free(x->rail_offset);
    free(x->source);
    free(x->owner);
    free(x->back_columns);
    free(x->near_stride);
    free(x->part_bytes);
    free(x->key);
    free(x->key_owner);
    free(x->key_local);
    free(x->part_of);
    free(x->peer_wait_ns);
    free(x);
}

/* Who sends through whom, and where that lies. */
static tt_status find_paths(tt_exchange *x, const tt_exchange_params *params)
{
    tt_exchange_params p = *params;
    p.route = tt_route_choose(p.route, p.owner, p.n_owners, x->world->node);
    TT_TRY(tti_paths_make(&p, x->world->node, x->world->rank, &x->paths));
    tti_exchange_measure(&p, &x->paths, &x->layout);
    TT_TRY(alloc_array(&x->lane_of_owner, (size_t)x->n_owners, sizeof(int)));
    TT_TRY(alloc_array(&x->rail_offset, (size_t)x->paths.n_mates, sizeof(size_t)));
    for (int o = 0; o < x->n_owners; o++) {
        x->lane_of_owner[o] = -1;
    }
    for (int i = 0; i < x->paths.n_lanes; i++) {
        for (int at = x->paths.lane[i].first; at < x->paths.lane[i].first + x->paths.lane[i].n;
             at++) {
            x->lane_of_owner[x->paths.owner_at[at]] = i;
        }
    }
    for (int m = 0; m < x->paths.n_mates; m++) {
        const int rank = x->owner[x->paths.owner_at[x->paths.mate_first + m]];
        x->rail_offset[m] = tti_find_rank(x->source, x->n_sources, rank) >= 0 ? source_bytes(x) : 0;
    }
    if (own_intake_bytes(x) > 0) {
        void *data = NULL;
        TT_TRY(tt_memory_alloc("exchange receive buffers", own_intake_bytes(x), TT_MEMORY_ANY_NODE,
                               &data));
        x->own_intakes = data;
    }
    return TT_OK;
}

static tt_status copy_params(tt_exchange *x, const tt_exchange_params *p)
{
    const tt_world *world = x->world;
    x->H = p->H;
    x->K = p->K;
    x->max_tokens = p->max_tokens;
    x->chunk_tokens = chunk_tokens_of(p);
    x->n_handles = n_handles_of(p);
    x->n_chunks = (int)n_chunks_of(p);
    x->width = width_of(p);
    x->wire = p->wire;
    x->weights_travel = p->weights_travel;
    x->takes_whole_chunks = p->takes_whole_chunks;
    x->is_reduced = p->combine == TT_COMBINE_REDUCED;
    x->wire_back = p->wire_back;
    x->n_sources = p->n_sources;
    x->n_owners = p->n_owners;
    size_t width = (size_t)x->width;
    TT_TRY(alloc_array(&x->source, (size_t)p->n_sources, sizeof(int)));
    TT_TRY(alloc_array(&x->owner, (size_t)p->n_owners, sizeof(int)));
    TT_TRY(alloc_array(&x->back_columns, width + 1, sizeof(int64_t)));
    TT_TRY(alloc_array(&x->near_stride, width, sizeof(size_t)));
    TT_TRY(alloc_array(&x->part_bytes, width, sizeof(size_t)));
    TT_TRY(alloc_array(&x->part_of, (size_t)p->n_owners, sizeof(int)));
    TT_TRY(alloc_array(&x->peer_wait_ns, (size_t)world->size, sizeof(*x->peer_wait_ns)));
    TT_TRY(alloc_array(&x->handle, (size_t)x->n_handles, sizeof(*x->handle)));
    memcpy(x->source, p->source, (size_t)p->n_sources * sizeof(int));
    memcpy(x->owner, p->owner, (size_t)p->n_owners * sizeof(int));
    for (int w = 0; w < x->width; w++) {
        tti_part_bounds(p, w, &x->back_columns[w], &x->back_columns[w + 1]);
        x->part_bytes[w] =
            tt_wire_row_bytes(p->wire_back, x->back_columns[w + 1] - x->back_columns[w]);
        x->near_stride[w] = tti_align(x->part_bytes[w]);
    }
    x->source_id = tti_find_rank(x->source, x->n_sources, world->rank);
    x->owner_id = tti_find_rank(x->owner, x->n_owners, world->rank);
    TT_TRY(find_paths(x, p));
    for (int i = 0; i < x->n_handles; i++) {
        TT_TRY(alloc_handle(x, &x->handle[i], i));
    }
    return TT_OK;
}

/* ---- create, destroy ---- */

static tti_chunk *chunk_at(const tt_exchange *x, int id)
{
    return &x->handle[id / x->n_chunks].chunk[id % x->n_chunks];
}

static tt_status open_wire(tt_exchange *x)
{
    TT_TRY(tti_comm_dup(x->world, &x->comm));
    tt_status st = TT_OK;
    for (int i = 0; i < tti_all_chunks(x) && st == TT_OK; i++) {
        st = tti_wire_open(x, chunk_at(x, i));
    }
    return st;
}

tt_status tt_exchange_create(tt_world *world, const tt_exchange_params *params,
                             tt_exchange **exchange_out)
{
    TT_TRY(tt_world_agree(world, check_params(world, params)));
    TT_TRY(check_equal(world, params));
    tt_exchange *x = calloc(1, sizeof(*x));
    tt_status st = TT_OK;
    if (!x) {
        st = TT_FAIL(TT_ERR_NOMEM, "no memory for an exchange");
    } else {
        x->world = world;
        x->comm = MPI_COMM_NULL;
        st = copy_params(x, params);
    }
    st = tt_world_agree(world, st);
    if (st != TT_OK) {
        if (x) { /* not every rank has one: no barrier */
            free_exchange(x);
        }
        return st;
    }
    size_t bytes = x->source_id >= 0 ? source_bytes(x) : 0;
    bytes += x->paths.by_node ? all_intakes_bytes(x) : 0;
    bytes = bytes ? bytes : TTI_LINE;
    st = tti_window_create(world, "the exchange windows", bytes, &x->window);
    if (st == TT_OK) {
        st = tt_world_agree(world, open_wire(x));
    }
    if (st != TT_OK) {
        tt_exchange_destroy(&x);
        return st;
    }
    *exchange_out = x;
    return TT_OK;
}

void tt_exchange_destroy(tt_exchange **exchange)
{
    tt_exchange *x = *exchange;
    *exchange = NULL;
    if (!x) {
        return;
    }
    tt_world *world = x->world;
    if (!tt_world_is_broken(world)) {
        tt_world_barrier(world); /* nobody reads our window any more */
    }
    for (int i = 0; i < tti_all_chunks(x) && x->handle; i++) {
        if (chunk_at(x, i)->op.advance) {
            tti_wire_close(x, chunk_at(x, i));
        }
    }
    if (tt_world_is_broken(world)) {
        x->handle = NULL; /* MPI may still write into its buffers: they stay until the process
                           * ends */
        x->own_intakes = NULL;
        x->n_handles = 0;
    }
    tti_window_destroy(world, &x->window);
    tti_comm_free(world, &x->comm);
    free_exchange(x);
}

/* ---- the rest ---- */

tt_status tti_handle_find(tt_exchange *x, int handle, tti_handle_stage stage, tti_handle **h_out)
{
    static const char *const names[] = {"free", "prepared", "under way"};
    TT_CHECK(handle >= 0 && handle < x->n_handles, TT_ERR_ARG, "exchange handle %d of %d", handle,
             x->n_handles);
    tti_handle *h = &x->handle[handle];
    TT_CHECK(h->stage == stage, TT_ERR_STATE, "exchange handle %d is %s, not %s", handle,
             names[h->stage], names[stage]);
    *h_out = h;
    return TT_OK;
}

tt_exchange_counters tt_exchange_get_counters(const tt_exchange *exchange)
{
    uint64_t sum[TTI_COUNTERS] = {0};
    for (int i = 0; i < exchange->n_handles; i++) {
        for (int c = 0; c < TTI_COUNTERS; c++) {
            sum[c] += atomic_load_explicit(&exchange->handle[i].count[c], memory_order_relaxed);
        }
    }
    return (tt_exchange_counters){.uses = sum[TTI_COUNT_USES],
                                  .rows_out = sum[TTI_COUNT_ROWS_OUT],
                                  .rows_in = sum[TTI_COUNT_ROWS_IN],
                                  .node_bytes = sum[TTI_COUNT_NODE_BYTES],
                                  .wire_bytes_out = sum[TTI_COUNT_WIRE_OUT],
                                  .wire_bytes_in = sum[TTI_COUNT_WIRE_IN],
                                  .payload_bytes_out = sum[TTI_COUNT_PAYLOAD],
                                  .messages_out = sum[TTI_COUNT_MESSAGES],
                                  .wait_ns = sum[TTI_COUNT_WAIT_NS],
                                  .polls = sum[TTI_COUNT_POLLS]};
}

void tt_exchange_get_peer_waits(const tt_exchange *exchange, uint64_t *wait_ns)
{
    for (int r = 0; r < exchange->world->size; r++) {
        wait_ns[r] = atomic_load_explicit(&exchange->peer_wait_ns[r], memory_order_relaxed);
    }
}
