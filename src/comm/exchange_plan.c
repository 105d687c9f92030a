/* exchange_plan.c - which row goes where: the owner map, and the plan of one use.
 *
 * A counting sort. set_owners numbers all (slot, part) pairs by (owner, local slot); prepare counts
 * entries per number, which gives each owner's share, its groups and its results' places in one
 * walk, and then drops every entry into its place. Cost is linear in entries and, for each chunk,
 * slots; nothing is allocated. */
#include "exchange_internal.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- owner map ---- */

typedef struct key_record {
    int32_t owner, local, slot, part; /* owner: its position */
} key_record;

static int compare_keys(const void *a, const void *b)
{
    const key_record *p = a, *q = b;
    if (p->owner != q->owner) {
        return p->owner < q->owner ? -1 : 1;
    }
    return (p->local > q->local) - (p->local < q->local);
}

static int owner_of_rank(const tt_exchange *x, int rank)
{
    int low = 0, high = x->n_owners - 1;
    while (low <= high) {
        int middle = low + (high - low) / 2;
        if (x->owner[middle] == rank) {
            return middle;
        }
        if (x->owner[middle] < rank) {
            low = middle + 1;
        } else {
            high = middle - 1;
        }
    }
    return -1;
}

static tt_status read_map(const tt_exchange *x, const tt_owner_map *map, key_record *record,
                          int *part_of)
{
    for (int o = 0; o < x->n_owners; o++) {
        part_of[o] = -1;
    }
    for (int64_t s = 0; s < map->n_slots; s++) {
        for (int w = 0; w < x->width; w++) {
            int rank = map->rank[s * x->width + w], local = map->local[s];
            int o = owner_of_rank(x, rank);
            TT_CHECK(o >= 0, TT_ERR_ARG, "slot %lld is given to rank %d, which is no owner",
                     (long long)s, rank);
            TT_CHECK(local >= 0, TT_ERR_ARG, "slot %lld has the local number %d", (long long)s,
                     local);
            TT_CHECK(part_of[o] < 0 || part_of[o] == w, TT_ERR_ARG,
                     "rank %d serves slot %lld as part %d and others as part %d: a rank returns "
                     "one part",
                     rank, (long long)s, w, part_of[o]);
            part_of[o] = w;
            record[s * x->width + w] = (key_record){x->paths.position[o], local, (int32_t)s, w};
        }
    }
    int64_t n = map->n_slots * x->width;
    qsort(record, (size_t)n, sizeof(*record), compare_keys);
    for (int64_t i = 1; i < n; i++) {
        TT_CHECK(compare_keys(&record[i - 1], &record[i]) != 0, TT_ERR_ARG,
                 "rank %d serves its slot %d twice, as slots %d and %d",
                 x->owner[x->paths.owner_at[record[i].owner]], record[i].local, record[i - 1].slot,
                 record[i].slot);
    }
    return TT_OK;
}

/* Makes room for n keys in the tables of the map and of each handle. */
static tt_status grow(tt_exchange *x, int64_t n)
{
    if (n <= x->key_capacity) {
        return TT_OK;
    }
    size_t bytes = (size_t)n * sizeof(int32_t);
    int32_t **tables[] = {&x->key, &x->key_owner, &x->key_local};
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        int32_t *table = realloc(*tables[i], bytes);
        TT_CHECK(table, TT_ERR_NOMEM, "no memory for a map of %lld slots", (long long)n);
        *tables[i] = table;
    }
    for (int i = 0; i < x->n_handles; i++) {
        int32_t *table = realloc(x->handle[i].key_at, bytes);
        TT_CHECK(table, TT_ERR_NOMEM, "no memory for a map of %lld slots", (long long)n);
        x->handle[i].key_at = table;
    }
    x->key_capacity = n;
    return TT_OK;
}

tt_status tt_exchange_set_owners(tt_exchange *exchange, const tt_owner_map *map, uint64_t epoch)
{
    tt_exchange *x = exchange;
    if (!map) {
        x->epoch = epoch;
        return TT_OK;
    }
    TT_CHECK(map->n_slots >= 0 && map->n_slots <= INT32_MAX / x->width, TT_ERR_ARG,
             "a map of %lld slots", (long long)map->n_slots);
    int64_t n = map->n_slots * x->width;
    key_record *record = malloc((size_t)(n ? n : 1) * sizeof(*record));
    int *part_of = malloc((size_t)x->n_owners * sizeof(*part_of));
    tt_status st = TT_OK;
    if (!record || !part_of) {
        st = TT_FAIL(TT_ERR_NOMEM, "no memory for a map of %lld slots", (long long)map->n_slots);
    }
    if (st == TT_OK) {
        st = read_map(x, map, record, part_of);
    }
    if (st == TT_OK) {
        st = grow(x, n);
    }
    if (st == TT_OK) {
        memcpy(x->part_of, part_of, (size_t)x->n_owners * sizeof(*part_of));
        x->n_slots = map->n_slots;
        x->n_keys = n;
        x->max_local = -1;
        for (int64_t i = 0; i < n; i++) {
            const key_record *r = &record[i];
            x->key[(int64_t)r->slot * x->width + r->part] = (int32_t)i;
            x->key_owner[i] = x->paths.owner_at[r->owner];
            x->key_local[i] = r->local;
            if (x->key_owner[i] == x->owner_id && r->local > x->max_local) {
                x->max_local = r->local;
            }
        }
        x->epoch = epoch;
        x->has_map = true;
    }
    free(record);
    free(part_of);
    return st;
}

/* ---- plan of one use ---- */

static tt_status check_slots(const tt_exchange *x, int64_t T, const int32_t *slot)
{
    for (int64_t i = 0; i < T * x->K; i++) {
        TT_CHECK(slot[i] >= -1 && slot[i] < x->n_slots, TT_ERR_ARG,
                 "token %lld, choice %lld: slot %d of %lld", (long long)(i / x->K),
                 (long long)(i % x->K), slot[i], (long long)x->n_slots);
    }
    return TT_OK;
}

/* Counts entries per key and rows per owner and lane. */
static void count_entries(tt_exchange *x, tti_chunk *c, const int32_t *slot)
{
    tti_handle *h = c->handle;
    for (int64_t key = 0; key < x->n_keys; key++) {
        h->key_at[key] = 0;
    }
    for (int o = 0; o < x->n_owners; o++) {
        h->n_rows[o] = 0;
        h->last_token[o] = -1;
    }
    for (int i = 0; i < x->paths.n_lanes; i++) {
        c->lane[i].n_rows = 0;
        c->lane[i].last_token = -1;
    }
    for (int64_t t = 0; t < c->T; t++) {
        for (int64_t k = 0; k < x->K; k++) {
            int32_t s = slot[t * x->K + k];
            for (int w = 0; w < x->width && s >= 0; w++) {
                int32_t key = x->key[(int64_t)s * x->width + w];
                int32_t o = x->key_owner[key];
                h->key_at[key]++;
                if (h->last_token[o] != t) {
                    h->last_token[o] = t;
                    h->n_rows[o]++;
                }
                tti_lane *lane = x->lane_of_owner[o] >= 0 ? &c->lane[x->lane_of_owner[o]] : NULL;
                if (lane && lane->last_token != t) {
                    lane->last_token = t;
                    lane->n_rows++;
                }
            }
        }
    }
}

/* Bytes from one result to the next among those that owner o puts. */
static size_t back_stride(const tt_exchange *x, int o)
{
    const int part = x->part_of[o] < 0 ? 0 : x->part_of[o];
    return x->lane_of_owner[o] >= 0 ? tti_far_stride(x, part) : x->near_stride[part];
}

/* Lays out shares and groups, owners in order of position; turns counts into first places. */
static void lay_out(tt_exchange *x, tti_chunk *c, tti_share *share, tti_group *group)
{
    tti_handle *h = c->handle;
    int64_t key = 0, entry = 0, n_groups = 0, back = 0, put = 0;
    for (int at = 0; at < x->n_owners; at++) {
        const int o = x->paths.owner_at[at];
        tti_lane *lane = x->lane_of_owner[o] >= 0 ? &c->lane[x->lane_of_owner[o]] : NULL;
        tti_share *s = &share[o];
        s->index_begin = entry;
        s->group_begin = n_groups;
        for (; key < x->n_keys && x->key_owner[key] == o; key++) {
            int32_t n = h->key_at[key];
            h->key_at[key] = (int32_t)entry;
            if (n > 0) {
                group[n_groups++] = (tti_group){x->key_local[key], n};
                entry += n;
            }
        }
        s->n_entries = entry - s->index_begin;
        s->n_groups = n_groups - s->group_begin;
        s->n_rows = h->n_rows[o];
        if (!lane || at == lane->first) { /* the results of a lane's owners come as one message */
            back = (int64_t)tti_align((size_t)back);
        }
        if (lane && at == lane->first) {
            lane->back_begin = (size_t)back;
            lane->n_entries = lane->n_groups = 0;
            back += TTI_HEADER_BYTES;
            put = TTI_HEADER_BYTES;
            back += x->is_reduced ? lane->n_rows * (int64_t)x->layout.back_row_bytes : 0;
        }
        const int64_t bytes = s->n_entries * (int64_t)back_stride(x, o);
        const bool is_put_there = lane && x->is_reduced; /* and never comes here one by one */
        s->back_begin = is_put_there ? put : back;
        put += bytes;
        back += is_put_there ? 0 : bytes;
        if (lane) {
            lane->n_entries += s->n_entries;
            lane->n_groups += s->n_groups;
            lane->result_bytes = (size_t)back - lane->back_begin;
        } else if (x->owner[o] != x->world->rank) {
            tti_count(h, TTI_COUNT_ROWS_OUT, (uint64_t)s->n_rows);
        }
    }
}

/* Where each lane's message and list of rows lie. */
static void lay_out_messages(tt_exchange *x, tti_chunk *c)
{
    unsigned char *at = c->pool;
    int64_t row = 0;
    for (int i = 0; i < x->paths.n_lanes; i++) {
        tti_lane *lane = &c->lane[i];
        lane->message = at;
        lane->message_bytes = c->handle->mine == TT_OK
                                  ? tti_wire_message_bytes(x, lane)
                                  : (size_t)TTI_HEADER_BYTES + TTI_FAIL_TEXT_BYTES;
        at += tti_align(lane->message_bytes);
        lane->row_begin = row;
        row += lane->n_rows;
        tti_count(c->handle, TTI_COUNT_ROWS_OUT, (uint64_t)lane->n_rows);
    }
}

/* `part` is this rank's window part, whose shares are laid out. */
static void place_entries(tt_exchange *x, tti_chunk *c, const int32_t *slot, const float *weight,
                          unsigned char *part)
{
    const tti_share *share = (const tti_share *)(part + x->layout.share);
    int32_t *index = (int32_t *)(part + x->layout.index);
    float *travelling = (float *)(part + x->layout.weight); /* of entries */
    for (int i = 0; i < x->paths.n_lanes; i++) {
        c->lane[i].n_rows = 0;
        c->lane[i].last_token = -1;
    }
    for (int64_t t = 0; t < c->T; t++) {
        c->is_needed[t] = false;
        for (int64_t k = 0; k < x->K; k++) {
            int32_t s = slot[t * x->K + k];
            for (int w = 0; w < x->width; w++) {
                int64_t *result = &c->result[(t * x->K + k) * x->width + w];
                *result = -1;
                if (s < 0) {
                    continue;
                }
                int32_t key = x->key[(int64_t)s * x->width + w];
                int32_t o = x->key_owner[key];
                tti_lane *lane = x->lane_of_owner[o] >= 0 ? &c->lane[x->lane_of_owner[o]] : NULL;
                c->is_needed[t] = true;
                if (lane && lane->last_token != t) {
                    lane->last_token = t;
                    c->far_row[lane->row_begin + lane->n_rows++] = (int32_t)t;
                }
                int32_t entry = c->handle->key_at[key]++;
                /* Near owners read the row where it is; in a message rows are numbered by
                 * themselves. */
                if (x->weights_travel || x->is_reduced) {
                    travelling[entry] = weight[t * x->K + k];
                }
                index[entry] = lane ? (int32_t)(lane->n_rows - 1) : (int32_t)t;
                if (!lane || !x->is_reduced) {
                    *result = share[o].back_begin +
                              (entry - share[o].index_begin) * (int64_t)back_stride(x, o);
                }
            }
        }
    }
}

/* What the owner side expects of this use. */
static void expect_sources(tt_exchange *x, tti_handle *h)
{
    h->part = x->part_of[x->owner_id];
    int part = h->part < 0 ? 0 : h->part;
    h->part_bytes = x->part_bytes[part];
    h->part_columns = x->back_columns[part + 1] - x->back_columns[part];
    h->max_local = x->max_local;
    for (int s = 0; s < x->n_sources; s++) {
        tti_expect(x, &h->chunk[0], s);
    }
}

void tti_expect(tt_exchange *x, tti_chunk *c, int source_id)
{
    c->is_expected[source_id] = true;
    c->n_expected++;
    c->n_far_expected += x->paths.rail[source_id] >= 0;
    c->missing_source[c->n_missing_sources++] = source_id;
    c->arrival[source_id] = (tti_arrival){0};
}

/* Nothing has happened yet in this use. */
static void reset_chunk(const tt_exchange *x, tti_chunk *c)
{
    c->T = 0;
    c->n_missing_owners = c->n_missing_sources = 0;
    c->n_arrived = c->cursor = c->n_returned = c->n_summed = 0;
    c->n_expected = c->n_far_expected = 0;
    memset(c->is_expected, 0, (size_t)x->n_sources * sizeof(*c->is_expected));
}

/* The plan of this rank's tokens in a chunk. */
static void plan_chunk(tt_exchange *x, tti_chunk *c, const int32_t *slot, const float *weight)
{
    unsigned char *part = tti_window_part(x, x->world->rank, c->id);
    count_entries(x, c, slot);
    lay_out(x, c, (tti_share *)(part + x->layout.share), (tti_group *)(part + x->layout.group));
    lay_out_messages(x, c);
    place_entries(x, c, slot, weight, part);
    for (int64_t i = 0; i < c->T * x->K; i++) {
        c->weight[i] = x->weights_travel ? 1.0f : weight[i];
    }
    c->n_missing_owners = x->n_owners;
    for (int o = 0; o < x->n_owners; o++) {
        c->missing_owner[o] = o;
    }
}

tt_status tt_exchange_prepare(tt_exchange *exchange, int handle, int64_t T, const int32_t *slot,
                              const float *weight, tt_status mine)
{
    tt_exchange *x = exchange;
    tti_handle *h = NULL;
    TT_TRY(tti_handle_find(x, handle, TTI_HANDLE_FREE, &h));
    TT_CHECK(T >= 0 && T <= x->max_tokens, TT_ERR_ARG,
             "%lld tokens, the exchange was made for %lld", (long long)T, (long long)x->max_tokens);
    TT_CHECK(T == 0 || x->source_id >= 0, TT_ERR_ARG, "%lld tokens on rank %d, which is no source",
             (long long)T, x->world->rank);
    TT_CHECK(x->has_map, TT_ERR_STATE, "the exchange has no owner map yet");
    TT_TRY(check_slots(x, T, slot));
    for (int i = 0; i < h->n_open; i++) { /* normally done long ago: what the last use still
                                           * sends is overwritten below */
        TT_TRY(tti_wire_drain(x, &h->chunk[i]));
    }
    for (int i = 0; i < h->n_open; i++) {
        reset_chunk(x, &h->chunk[i]);
    }
    h->use++;
    h->epoch = x->epoch;
    h->mine = mine;
    snprintf(h->mine_text, sizeof(h->mine_text), "%s", mine == TT_OK ? "" : tt_status_message());
    h->n_own = 0;
    for (int64_t begin = 0; x->source_id >= 0 && (begin == 0 || (begin < T && mine == TT_OK));
         begin += x->chunk_tokens) {
        tti_chunk *c = &h->chunk[h->n_own++];
        c->T = T - begin < x->chunk_tokens ? T - begin : x->chunk_tokens;
        plan_chunk(x, c, slot + begin * x->K, weight + begin * x->K);
    }
    h->n_open = h->n_own > 1 ? h->n_own : 1;
    if (x->owner_id >= 0) {
        expect_sources(x, h);
    }
    h->stage = TTI_HANDLE_PREPARED;
    tti_count(h, TTI_COUNT_USES, 1);
    return TT_OK;
}
