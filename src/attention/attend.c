/* attend.c - spreads the attention of a batch over threads. Rows of one sequence that follow each
 * other form tiles, so that each key and value is read and widened once for all rows and heads of a
 * tile; a unit of work is a tile and some heads that share keys. Where such units are few or uneven
 * and contexts long, a unit takes only a run of the context's blocks and leaves their parts, which
 * a second pass merges in ascending order. Parts have one buffer of fixed size, so this goes by
 * waves. How rows, heads and blocks are grouped changes no bit: see ttk_attend_args. */
#include "attention_internal.h"
#include <stdatomic.h>

enum {
    TILE_QUERIES = TT_ATTEND_QUERIES,
    RUN_BLOCKS = 8,      /* at most, of one unit: 512 keys */
    SPREAD_KEYS = 512,   /* shorter contexts are never spread: a wave's two hand-overs cost as
                          * much as some of their blocks */
    UNITS_PER_THREAD = 4 /* with fewer, or with units longer than this part of a thread's
                          * share, the end of a pass is uneven */
};

typedef struct attend_pass {
    tt_attention *attention;
    const tti_attend_job *job;
    int64_t n_kv;    /* sets of heads that share keys */
    int64_t n_parts; /* a set is cut in so many parts */
    int64_t n_tiles, tile_rows;
    bool is_spread;
    int64_t run_blocks;               /* spread: blocks of a run */
    int64_t part_floats, slot_floats; /* of one query's part of a block, of a unit's parts */
    int64_t unit_begin, unit_end;     /* of the wave at hand; not spread: all */
    _Atomic int64_t next;             /* relaxed: only hands out numbers */
    _Atomic uint64_t keys_read;       /* relaxed: a statistic */
} attend_pass;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t parts_of(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit;
}

/* ---- heads ---- */

/* Local heads [begin, end) of part `part` of those that use local KV head `kv`. */
static void heads_of_set(const attend_pass *pass, int64_t set, int64_t *begin, int64_t *end)
{
    const tt_rank_role *role = pass->attention->role;
    int64_t per_kv = pass->job->heads_per_kv, kv = set / pass->n_parts, kv_begin = 0,
            kv_end = pass->job->n_heads;
    if (per_kv > 0) {
        int64_t first = (role->kv_begin + kv) * per_kv;
        kv_begin = most(first, role->head_begin) - role->head_begin;
        kv_end = least(first + per_kv, role->head_end) - role->head_begin;
    }
    tt_split(kv_end - kv_begin, pass->n_parts, set % pass->n_parts, begin, end);
    *begin += kv_begin;
    *end += kv_begin;
}

/* ---- tiles ---- */

/* Cuts rows into tiles at whole multiples of their size, so that no tile's rows end in different
 * blocks. */
static void cut_tiles(attend_pass *pass, const tt_batch *batch)
{
    tt_attention *attention = pass->attention;
    pass->n_tiles = 0;
    for (int64_t s = 0; s < batch->n_sequences; s++) {
        const tt_batch_sequence *sequence = &batch->sequence[s];
        for (int64_t i = 0; i < sequence->n_rows;) {
            int64_t position = sequence->position + i;
            tti_attend_tile *tile = &attention->tile[pass->n_tiles++];
            tile->row = sequence->first_row + i;
            tile->n_rows =
                least(pass->tile_rows - position % pass->tile_rows, sequence->n_rows - i);
            int64_t first = tti_first_visible(pass->job->layer, position);
            tile->block = first / TTK_BLOCK;
            tile->n_blocks = (position + tile->n_rows - 1) / TTK_BLOCK - tile->block + 1;
            for (int64_t r = 0; r < tile->n_rows; r++) {
                attention->row_first[tile->row + r] =
                    tti_first_visible(pass->job->layer, position + r);
            }
            i += tile->n_rows;
        }
    }
}

static int64_t n_sets(const attend_pass *pass)
{
    return pass->n_kv * pass->n_parts;
}

static int64_t n_runs(const attend_pass *pass, const tti_attend_tile *tile)
{
    return pass->is_spread ? parts_of(tile->n_blocks, pass->run_blocks) : 1;
}

/* Numbers the units: tile by tile, run by run, set by set: sets of heads that share keys read them
 * at about the same time. */
static void number_units(attend_pass *pass)
{
    pass->unit_begin = 0;
    pass->unit_end = 0;
    for (int64_t t = 0; t < pass->n_tiles; t++) {
        tti_attend_tile *tile = &pass->attention->tile[t];
        tile->unit = pass->unit_end;
        pass->unit_end += n_runs(pass, tile) * n_sets(pass);
    }
}

static const tti_attend_tile *tile_of_unit(const attend_pass *pass, int64_t unit)
{
    const tti_attend_tile *tile = pass->attention->tile;
    int64_t low = 0, high = pass->n_tiles; /* tile[low].unit <= unit */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        *(tile[middle].unit <= unit ? &low : &high) = middle;
    }
    return tile + low;
}

/* ---- the plan of a pass: free to depend on the number of threads, since it changes no bit ---- */

/* Rows of a tile and parts of a set of heads: tiles of TILE_QUERIES queries, smaller where that
 * leaves threads without work and contexts are too short to be spread. */
static void choose_tiles(attend_pass *pass, const tt_batch *batch, int64_t n_threads)
{
    const tti_attend_job *job = pass->job;
    int64_t heads = job->heads_per_kv > 0 ? least(job->heads_per_kv, job->n_heads) : job->n_heads;
    int64_t longest = 0, want = UNITS_PER_THREAD * n_threads;
    for (int64_t s = 0; s < batch->n_sequences; s++) {
        longest = most(longest, batch->sequence[s].position + batch->sequence[s].n_rows);
    }
    bool is_short = longest < SPREAD_KEYS || pass->attention->parts_floats == 0;
    pass->n_parts = most(parts_of(heads, TILE_QUERIES), 1);
    heads = most(parts_of(heads, pass->n_parts), 1);
    pass->tile_rows = 1;
    while (pass->tile_rows * 2 * heads <= TILE_QUERIES && pass->tile_rows < TTK_BLOCK) {
        pass->tile_rows *= 2;
    }
    while (is_short && pass->tile_rows > 1 &&
           parts_of(batch->T, pass->tile_rows) * n_sets(pass) < want) {
        pass->tile_rows /= 2;
    }
    if (is_short && batch->T * n_sets(pass) < n_threads) {
        pass->n_parts *= parts_of(n_threads, batch->T * n_sets(pass));
    }
}

/* Whether to spread blocks, and how long runs are. `capacity`: floats of the buffer of parts. */
static void choose_runs(attend_pass *pass, int64_t capacity, int64_t n_threads)
{
    const tti_attend_job *job = pass->job;
    int64_t blocks = 0, longest = 0, rows = 0;
    for (int64_t t = 0; t < pass->n_tiles; t++) {
        blocks += pass->attention->tile[t].n_blocks;
        longest = most(longest, pass->attention->tile[t].n_blocks);
        rows = most(rows, pass->attention->tile[t].n_rows);
    }
    blocks *= n_sets(pass);
    int64_t heads = job->heads_per_kv > 0 ? job->heads_per_kv : job->n_heads;
    int64_t block_floats = rows * parts_of(heads, pass->n_parts) * pass->part_floats;
    pass->is_spread = n_threads > 1 && longest * TTK_BLOCK >= SPREAD_KEYS &&
                      longest * n_threads * UNITS_PER_THREAD > blocks &&
                      capacity >= n_threads * block_floats;
    if (!pass->is_spread) {
        return;
    }
    pass->run_blocks = least(parts_of(blocks, n_threads * UNITS_PER_THREAD * 2), RUN_BLOCKS);
    pass->run_blocks = least(pass->run_blocks, capacity / (n_threads * block_floats));
    pass->slot_floats = pass->run_blocks * block_floats;
}

/* ---- the first pass ---- */

static void set_rows(const attend_pass *pass, const tti_attend_tile *tile, int64_t set,
                     ttk_attend_args *args)
{
    const tt_attention *attention = pass->attention;
    const tti_attend_job *job = pass->job;
    int64_t kv = set / pass->n_parts, begin, end;
    heads_of_set(pass, set, &begin, &end);
    args->q = job->q + tile->row * job->q_row + begin * job->q_head;
    args->q_row = job->q_row;
    args->q_head = job->q_head;
    args->out = job->out + tile->row * job->out_row + begin * job->out_head;
    args->out_row = job->out_row;
    args->out_head = job->out_head;
    args->pages = attention->page_table + attention->page_begin[attention->row_sequence[tile->row]];
    args->kv_type = attention->kv->type;
    args->k_offset = kv * job->k_part;
    args->v_offset = args->k_offset + job->v_offset;
    args->k_stride = job->k_stride;
    args->v_stride = job->v_stride;
    args->k_scales = args->k_offset + job->k_scales; /* an element is a byte where there are
                                                      * scales */
    args->v_scales = args->k_offset + job->v_scales;
    args->tail_scales = args->k_offset + job->tail_scales;
    args->k_tail = job->k_tail;
    args->R = tile->n_rows;
    args->G = end - begin;
    args->Dk = job->Dk;
    args->Dv = job->Dv;
    args->first = attention->row_first + tile->row;
    args->last = attention->row_position[tile->row];
    args->sink = job->sinks ? job->sinks + begin : NULL;
    args->scale = attention->arch->softmax_scale;
}

/* A tile's blocks of run `run`: [begin, end). */
static void blocks_of_run(const attend_pass *pass, const tti_attend_tile *tile, int64_t run,
                          int64_t *begin, int64_t *end)
{
    *begin = tile->block;
    *end = tile->block + tile->n_blocks;
    if (pass->is_spread) {
        *begin += run * pass->run_blocks;
        *end = least(*begin + pass->run_blocks, *end);
    }
}

static void attend_part(void *arg, int thread_id, int n_threads)
{
    (void)n_threads;
    attend_pass *pass = arg;
    tt_attention *attention = pass->attention;
    uint64_t keys = 0;
    for (;;) {
        int64_t unit =
            pass->unit_begin + atomic_fetch_add_explicit(&pass->next, 1, memory_order_relaxed);
        if (unit >= pass->unit_end) {
            break;
        }
        /* Long rows first: the last rows of a prefill chunk see the most keys. */
        int64_t at = pass->is_spread ? unit : pass->unit_end - 1 - unit;
        const tti_attend_tile *tile = tile_of_unit(pass, at);
        int64_t set = (at - tile->unit) % n_sets(pass), run = (at - tile->unit) / n_sets(pass);
        ttk_attend_args args = {0};
        set_rows(pass, tile, set, &args);
        if (args.G == 0) {
            continue;
        }
        blocks_of_run(pass, tile, run, &args.block_begin, &args.block_end);
        args.parts = n_runs(pass, tile) > 1
                         ? attention->parts + (unit - pass->unit_begin) * pass->slot_floats
                         : NULL;
        args.work = attention->attend_work + thread_id * attention->attend_floats;
        ttk.attend(&args);
        if (set % pass->n_parts == 0) {
            int64_t begin = most(args.block_begin * TTK_BLOCK, args.first[0]);
            keys += (uint64_t)(least(args.block_end * TTK_BLOCK, args.last + args.R) - begin);
        }
    }
    atomic_fetch_add_explicit(&pass->keys_read, keys, memory_order_relaxed);
}

/* ---- the second pass ---- */

/* The first run of a tile whose unit of set `set` is not below `unit`. */
static int64_t run_from(const attend_pass *pass, const tti_attend_tile *tile, int64_t set,
                        int64_t unit)
{
    int64_t ahead = unit - tile->unit - set;
    return ahead > 0 ? least(parts_of(ahead, n_sets(pass)), n_runs(pass, tile)) : 0;
}

/* Merges what the wave holds of query `query` of a tile's set. */
static void merge_query(const attend_pass *pass, const tti_attend_tile *tile, int64_t set,
                        int64_t query)
{
    tt_attention *attention = pass->attention;
    ttk_attend_args rows = {0};
    set_rows(pass, tile, set, &rows);
    int64_t n = rows.R * rows.G;
    if (query >= n || n_runs(pass, tile) == 1) {
        return;
    }
    int64_t r = query / rows.G, g = query % rows.G, begin, end, head;
    int64_t first = rows.first[r] / TTK_BLOCK, last = (rows.last + r) / TTK_BLOCK;
    heads_of_set(pass, set, &head, &end);
    ttk_attend_merge_args merge = {0};
    merge.stride = n * pass->part_floats;
    merge.Dv = rows.Dv;
    merge.sink = rows.sink ? rows.sink + g : NULL;
    merge.out = rows.out + r * rows.out_row + g * rows.out_head;
    merge.state = attention->merge_state + ((tile->row + r) * pass->job->n_heads + head + g) * 2;
    int64_t run_end = run_from(pass, tile, set, pass->unit_end);
    for (int64_t run = run_from(pass, tile, set, pass->unit_begin); run < run_end; run++) {
        blocks_of_run(pass, tile, run, &begin, &end);
        int64_t seen = most(begin, first);
        merge.n = least(end, last + 1) - seen;
        if (merge.n <= 0) {
            continue;
        }
        int64_t slot = tile->unit + run * n_sets(pass) + set - pass->unit_begin;
        merge.parts = attention->parts + slot * pass->slot_floats +
                      ((seen - begin) * n + query) * pass->part_floats;
        merge.is_first = seen == first;
        merge.is_last = end > last;
        ttk.attend_merge(&merge);
    }
}

/* A piece of work is a query of a set of one of the wave's tiles. */
static void merge_part(void *arg, int thread_id, int n_threads)
{
    (void)thread_id;
    (void)n_threads;
    attend_pass *pass = arg;
    const tti_attend_tile *from = tile_of_unit(pass, pass->unit_begin),
                          *to = tile_of_unit(pass, pass->unit_end - 1);
    int64_t n_pieces = (to - from + 1) * n_sets(pass) * TILE_QUERIES;
    for (;;) {
        int64_t piece = atomic_fetch_add_explicit(&pass->next, 1, memory_order_relaxed);
        if (piece >= n_pieces) {
            break;
        }
        int64_t pair = piece / TILE_QUERIES;
        merge_query(pass, from + pair / n_sets(pass), pair % n_sets(pass), piece % TILE_QUERIES);
    }
}

/* ---- both ---- */

static void run_waves(attend_pass *pass)
{
    tt_attention *attention = pass->attention;
    int64_t n_units = pass->unit_end, n_slots = attention->parts_floats / pass->slot_floats;
    for (int64_t unit = 0; unit < n_units; unit += n_slots) {
        pass->unit_begin = unit;
        pass->unit_end = least(unit + n_slots, n_units);
        atomic_store_explicit(&pass->next, 0, memory_order_relaxed);
        tt_stream_run(attention->compute, "attend", attend_part, pass);
        atomic_store_explicit(&pass->next, 0, memory_order_relaxed);
        tt_stream_run(attention->compute, "merge blocks", merge_part, pass);
    }
}

void tti_attend_rows(tt_attention *attention, const tt_batch *batch, const tti_attend_job *job)
{
    attend_pass pass = {0};
    int64_t n_threads = tt_stream_n_threads(attention->compute);
    pass.attention = attention;
    pass.job = job;
    pass.n_kv = job->heads_per_kv ? attention->n_kv : 1;
    pass.part_floats = (int64_t)ttk_attend_part_floats(job->Dv);
    choose_tiles(&pass, batch, n_threads);
    cut_tiles(&pass, batch);
    choose_runs(&pass, attention->parts_floats, n_threads);
    number_units(&pass);
    if (pass.is_spread) {
        run_waves(&pass);
    } else {
        tt_stream_run(attention->compute, "attend", attend_part, &pass);
    }
    attention->kv_bytes_read += pass.keys_read * (uint64_t)job->key_bytes;
}
