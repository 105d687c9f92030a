/* buffers.c - what a rank of up to TT_PLAN_THREADS threads holds beside weights and KV, from above:
 * the buffers of the exchange, and what each room works in.
 *
 * The rooms take their buffers themselves, from exact counts; a plan is made where there is neither
 * MPI nor a thread. So the sums here follow those takes room by room, and tests/mpi/test_memory.c
 * holds them against what a loaded engine has on every layout and kind of model. */
#include "plan_internal.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Adds what rows * cols floats take. */
static void add_floats(uint64_t *bytes, int64_t rows, int64_t cols)
{
    *bytes = tti_plan_add(*bytes, tti_plan_mul(tti_plan_area(rows, cols), sizeof(float)));
}

static void add_bytes(uint64_t *bytes, int64_t n, uint64_t each)
{
    *bytes = tti_plan_add(*bytes, tti_plan_mul((uint64_t)n, each));
}

/* ---- the exchange ---- */

enum {
    ENTRY_BYTES = 32,  /* of one choice at one of the ranks that serve it: who, where, weight */
    PEER_BYTES = 4096, /* headers and states of one peer, with room for an error's text */
    OWNER_BYTES = 128  /* what a message says of one owner, and its line beside the message */
};

/* Whom a rank sends to and takes in from. */
typedef struct peers {
    int64_t n_owners;
    int64_t n_lanes;   /* messages of one use to other nodes */
    int64_t n_intakes; /* sources whose messages this rank takes in */
} peers;

static peers find_peers(const tt_layout *layout, int node)
{
    peers p = {.n_owners = (int64_t)layout->n_groups * layout->etp};
    int64_t n_mates = 0;
    for (int64_t i = 0; i < p.n_owners; i++) {
        n_mates += layout->role[layout->expert_rank[i]].node == node;
    }
    for (int i = 0; i < layout->dp * layout->tp; i++) {
        p.n_intakes += layout->role[layout->attention_rank[i]].node != node;
    }
    p.n_lanes = p.n_owners - n_mates;
    if (layout->route == TT_ROUTE_NODE) { /* each other node's sources are dealt out to the
                                           * owners of this one */
        const int64_t far_nodes = layout->n_nodes - 1;
        p.n_lanes = smaller(p.n_lanes, far_nodes);
        p.n_intakes =
            n_mates > 0 ? (p.n_intakes + far_nodes * (n_mates - 1)) / n_mates : p.n_intakes;
    }
    return p;
}

/* What one row takes, wherever it is: itself, the entries of its choices, its results. */
typedef struct row_bytes {
    uint64_t out, entries, window; /* window: all of it */
} row_bytes;

static row_bytes measure_row(const tt_arch *arch, const tt_layout *layout)
{
    const int64_t n_entries = arch->K * layout->etp;
    row_bytes row = {.out = tti_plan_add(tt_wire_row_bytes(layout->wire, arch->H), TT_CACHE_LINE),
                     .entries = tti_plan_area(n_entries, ENTRY_BYTES)};
    row.window = tti_plan_add(row.out, row.entries);
    add_bytes(&row.window, arch->K, tt_wire_row_bytes(layout->wire_back, arch->H));
    add_bytes(&row.window, n_entries, TT_CACHE_LINE); /* each result starts at a line */
    return row;
}

/* Of a source, for one row: its window, and for other nodes messages, of which a row is in at most
 * as many as it has choices. */
static uint64_t source_row_bytes(const tt_arch *arch, const tt_layout *layout, const peers *p)
{
    const row_bytes row = measure_row(arch, layout);
    const int64_t n_entries = arch->K * layout->etp;
    uint64_t bytes = row.window;
    add_bytes(&bytes, smaller(n_entries, p->n_lanes), row.out);
    bytes = tti_plan_add(bytes, p->n_lanes > 0 ? row.entries : 0);
    if (layout->combine == TT_COMBINE_REDUCED) { /* a row of sums for each message that a token
                                                  * goes out with */
        add_bytes(&bytes, smaller(n_entries, p->n_owners),
                  tt_wire_row_bytes(layout->wire_back, arch->H));
    }
    return bytes;
}

/* Of a rank that takes in messages, for one row of one of their sources: what the source's window
 * has, and results before they are summed. */
static uint64_t intake_row_bytes(const tt_arch *arch, const tt_layout *layout)
{
    uint64_t bytes = measure_row(arch, layout).window;
    if (layout->combine == TT_COMBINE_REDUCED) {
        add_floats(&bytes, arch->K, arch->H);
    }
    return bytes;
}

uint64_t tti_plan_exchange_bytes(const tt_arch *arch, const tt_layout *layout, int rank)
{
    const tt_rank_role *role = &layout->role[rank];
    const peers p = find_peers(layout, role->node);
    uint64_t per_row = 0, per_chunk = 0;
    if (p.n_owners == 0) {
        return 0;
    }
    if (role->dp_id >= 0) {
        per_row = source_row_bytes(arch, layout, &p);
        add_bytes(&per_chunk, 1 + p.n_owners + p.n_lanes, PEER_BYTES);
    }
    if (role->group_id >= 0) {
        add_bytes(&per_row, p.n_intakes, intake_row_bytes(arch, layout));
        add_bytes(&per_chunk, p.n_intakes, PEER_BYTES);
        add_bytes(&per_chunk, p.n_intakes, tti_plan_area(p.n_owners, OWNER_BYTES));
    }
    add_bytes(&per_chunk, tt_layout_chunk_rows(layout), per_row);
    return tti_plan_mul(tti_plan_mul(per_chunk, (uint64_t)tt_layout_n_chunks(layout)),
                        (uint64_t)layout->n_handles);
}

/* ---- gathers ---- */

/* A gather of `n` ranks of which each gives at most `floats`: its part of the windows, and what
 * comes from members on other nodes. */
static uint64_t gather_bytes(const tt_layout *layout, int rank, const int *member, int n,
                             uint64_t floats)
{
    enum { HEAD_BYTES = 2 * TT_CACHE_LINE }; /* of a region, and what rounding to a line takes */
    uint64_t region = tti_plan_add(tti_plan_mul(floats, sizeof(float)), HEAD_BYTES);
    int64_t n_far = 0;
    if (n <= 1) {
        return 0;
    }
    for (int i = 0; i < n; i++) {
        n_far += layout->role[member[i]].node != layout->role[rank].node;
    }
    return tti_plan_mul(region, (uint64_t)(1 + n_far) * TT_GATHER_REGIONS);
}

static int64_t head_width(const tt_arch *arch)
{
    return arch->attention == TT_ATTENTION_MLA ? arch->v_dim : arch->D;
}

/* Of the attention ranks of a DP group: heads and output columns, those of dense layers, and rows
 * with logits; of an expert group: inner columns. */
static uint64_t all_gather_bytes(const tt_arch *arch, const tt_layout *layout, int rank)
{
    const tt_rank_role *role = &layout->role[rank];
    uint64_t bytes = 0;
    if (role->dp_id >= 0) {
        const int tp = layout->tp;
        const int *member = layout->attention_rank + role->dp_id * tp;
        const int64_t columns = tt_layout_widest(arch->H, tp);
        int64_t heads = larger((arch->Nq + tp - 1) / tp * head_width(arch), columns);
        heads = larger(heads, (arch->delta.Nv + tp - 1) / tp * arch->delta.Dv);
        const int64_t dense = larger(tt_layout_widest(arch->F_dense, tp), columns);
        const int64_t logits = larger(tt_layout_widest(arch->V, tp), arch->H);
        const uint64_t floats[] = {tti_plan_area(layout->max_rows_group, heads),
                                   tti_plan_area(layout->max_rows_group, dense),
                                   tti_plan_add(tti_plan_area(layout->max_rows_rank, arch->H),
                                                tti_plan_area(TT_HEAD_ROWS, logits))};
        for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
            bytes = tti_plan_add(bytes, gather_bytes(layout, rank, member, tp, floats[i]));
        }
    }
    if (role->group_id >= 0) {
        const int etp = layout->etp;
        const uint64_t floats =
            tti_plan_area(tt_layout_job_rows(layout), tt_layout_widest(arch->F, etp));
        bytes = tti_plan_add(
            bytes,
            gather_bytes(layout, rank, layout->expert_rank + role->group_id * etp, etp, floats));
    }
    return bytes;
}

/* ---- work space ---- */

/* The residual stream, its norm and what a layer gives; rows of logits, with what sampling takes;
 * tokens and pages of sequences. A rank without attention has one row of each. */
static uint64_t trunk_bytes(const tt_arch *arch, const tt_layout *layout, const tt_rank_role *role)
{
    const bool attends = role->dp_id >= 0;
    uint64_t bytes = 0;
    add_floats(&bytes, attends ? layout->max_rows_group : 1, 3 * arch->H + 2);
    add_floats(&bytes, attends ? TT_HEAD_ROWS : 1, arch->V + arch->H);
    add_floats(&bytes, TT_HEAD_ROWS, 2 * layout->tp + 4); /* likelihoods, the best of each part */
    if (!attends) {
        return bytes;
    }
    add_bytes(&bytes, 1, tt_rows_bytes(layout->act, TT_HEAD_ROWS, arch->H));
    add_floats(&bytes, TT_PLAN_THREADS, 2 * arch->V); /* ids */
    enum { FOUND_FLOATS = TT_HEAD_BEST_COLUMNS + 2 }; /* of a row: logits, the best of them */
    add_floats(&bytes, TT_PLAN_THREADS, FOUND_FLOATS * TT_HEAD_ROWS);
    enum { PAGE_TABLE_BYTES = sizeof(void *) + sizeof(int32_t) };
    add_floats(&bytes, layout->max_batch_group, layout->context);
    add_bytes(&bytes, layout->max_batch_group * (layout->context / TTI_PLAN_PAGE_TOKENS + 1),
              PAGE_TABLE_BYTES);
    return bytes;
}

/* Floats of a row in attention: q, keys, values, gate; MLA's low ranks and latent forms. */
static int64_t attention_width(const tt_arch *arch, const tt_rank_role *role)
{
    const int64_t n_heads = role->head_end - role->head_begin;
    if (arch->attention == TT_ATTENTION_MLA) {
        const int64_t key = arch->kv_rank + arch->rope_dim;
        return n_heads * (arch->nope_dim + arch->rope_dim) + arch->q_rank + key +
               n_heads * (key + arch->kv_rank);
    }
    /* A norm over all heads needs all of them here. */
    const bool whole = arch->qk_norm == TT_QK_NORM_WHOLE;
    const int64_t n_kv = role->kv_end - role->kv_begin;
    return ((whole ? arch->Nq : n_heads) + (whole ? arch->Nkv : n_kv) + n_kv +
            (arch->attention_gate ? n_heads : 0)) *
           arch->D;
}

/* Of gated delta layers: before and after the convolution, z, gates. */
static int64_t delta_width(const tt_arch *arch, const tt_layout *layout, const tt_rank_role *role)
{
    const tt_delta *d = &arch->delta;
    if (d->Nk == 0) {
        return 0;
    }
    const tt_delta_heads heads = tt_layout_delta_heads(d, layout->tp, role->tp_id);
    const int64_t n_values = heads.value_end - heads.value_begin;
    const int64_t channels = 2 * (heads.key_end - heads.key_begin) * d->Dk + n_values * d->Dv;
    return 2 * channels + n_values * d->Dv + 2 * n_values;
}

static uint64_t attention_bytes(const tt_arch *arch, const tt_layout *layout,
                                const tt_rank_role *role)
{
    enum { ROW_TABLE_FLOATS = 16 }; /* where a row stands, what it sees, its tile */
    const bool mla = arch->attention == TT_ATTENTION_MLA;
    const int64_t n_heads = role->head_end - role->head_begin, rows = layout->max_rows_group;
    const int64_t heads = larger(arch->Nq * head_width(arch), arch->delta.Nv * arch->delta.Dv);
    const int64_t key = mla ? arch->kv_rank + arch->rope_dim : arch->D,
                  value = mla ? arch->kv_rank : arch->D;
    uint64_t bytes = tt_rows_bytes(layout->act, rows, larger(larger(arch->H, arch->q_rank), heads));
    add_floats(&bytes, rows, attention_width(arch, role) + delta_width(arch, layout, role) + heads);
    add_floats(&bytes, rows, 2 * n_heads + ROW_TABLE_FLOATS); /* states of merges */
    add_floats(&bytes, TT_PLAN_THREADS,
               (int64_t)ttk_attend_work_floats(TT_ATTEND_QUERIES, key, value) + key + value);
    add_floats(&bytes, tt_plan_attend_parts_floats(arch, layout, role), 1);
    /* rotary tables, of local layers too, and query scales; constants of delta layers */
    add_floats(&bytes, layout->context, 2 * arch->rope.dim + 1);
    add_floats(&bytes, 1, delta_width(arch, layout, role) + 2 * arch->delta.Dk);
    return bytes;
}

/* Of the attention role: routing, shared experts, dense layers. */
static uint64_t dense_ffn_bytes(const tt_arch *arch, const tt_layout *layout)
{
    enum {
        CHOICE_FLOATS = 3, /* expert, slot, weight */
        EXPERT_BYTES = 24,
        COPY_BYTES = 64 /* of one that may be replicated, in one layer */
    };
    const int64_t rows = layout->max_rows_rank;
    uint64_t bytes = 0, shared = 0;
    add_floats(&bytes, rows, arch->E + CHOICE_FLOATS * arch->K);
    add_floats(&bytes, TT_PLAN_THREADS, 2 * arch->E + 1);
    add_bytes(&bytes, arch->L * arch->E, sizeof(uint64_t)); /* counts of choices */
    if (layout->open_slots) {
        add_bytes(&bytes, arch->L * arch->E, EXPERT_BYTES);
        add_bytes(&bytes, (arch->L + 1) * layout->n_groups * layout->slots_per_group, COPY_BYTES);
    }
    add_floats(&bytes, layout->max_rows_group, 2 * arch->F_dense);
    add_bytes(&bytes, 1,
              tt_rows_bytes(layout->act, layout->max_rows_group, larger(arch->F_dense, arch->H)));
    add_floats(&shared, rows, 2 * arch->F_shared + arch->H + 1);
    add_bytes(&shared, 1, tt_rows_bytes(layout->act, rows, arch->H));
    add_bytes(&shared, 1, tt_rows_bytes(layout->act, rows, arch->F_shared));
    add_bytes(&bytes, layout->n_handles, shared);
    return bytes;
}

/* Of the expert role: rows in, gate, up, rows out, as rounded; lists of groups of rows. */
static uint64_t expert_ffn_bytes(const tt_arch *arch, const tt_layout *layout)
{
    enum { GROUP_FLOATS = 16 }; /* of a group of rows for one expert, in each list of such */
    const int64_t rows = tt_layout_job_rows(layout);
    const int64_t n_slots = layout->slots_per_group;
    const int64_t n_groups = tt_layout_max_groups(arch, layout, n_slots);
    uint64_t bytes = tt_rows_bytes(layout->act, rows, larger(arch->H, arch->F));
    add_floats(&bytes, rows, 2 * arch->H + 2 * arch->F);
    add_floats(&bytes, n_groups, (1 + 2 * (int64_t)layout->n_handles) * GROUP_FLOATS);
    add_bytes(&bytes, arch->L * n_slots, sizeof(uint64_t)); /* touches */
    return bytes;
}

uint64_t tti_plan_work_bytes(const tt_arch *arch, const tt_layout *layout, int rank)
{
    const tt_rank_role *role = &layout->role[rank];
    uint64_t bytes = tti_plan_add(TT_PLAN_PROCESS_BYTES, trunk_bytes(arch, layout, role));
    if (role->dp_id >= 0) {
        bytes = tti_plan_add(bytes, attention_bytes(arch, layout, role));
        bytes = tti_plan_add(bytes, dense_ffn_bytes(arch, layout));
    }
    if (role->group_id >= 0) {
        bytes = tti_plan_add(bytes, expert_ffn_bytes(arch, layout));
    }
    return tti_plan_add(bytes, all_gather_bytes(arch, layout, rank));
}
