/* layout.c - who does what: chooses dp, tp and expert groups, and gives every rank its roles.
 *
 * Ranks are walked node by node, never by number, so that any mapping of ranks to nodes gives
 * groups that lie within a node wherever they can. All of it is a pure function of the parameters;
 * every rank computes the same layout.
 *
 * What is chosen where no flag says it:
 *   attention ranks  all, or those of --split
 *   dp, tp           if nodes have equally many attention ranks: tp is the divisor of their number,
 *                    at most the query heads, that the cost model (predict.c) finds fastest for
 *                    max_batch sequences; dp follows. Else dp = ranks, tp = 1.
 *   only dp given    the largest tp whose dp groups lie within nodes (--split: ranks / dp)
 *   only tp given    as many groups as lie within nodes (--split: ranks / tp)
 *   expert ranks     all; --ep N: the first N of the walk; or those of --split. etp = 1.
 *   sizes            max_batch 8, prefill_chunk 512, context min(the model's, 4096), 3 handles
 * A TP group leaves its node only if the user's dp x tp cannot be had otherwise; `why` says so. */
#include "tutti/plan.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/hash.h"
#include "tutti/stream.h"
#include "plan_internal.h"

enum {
    DEFAULT_MAX_BATCH = 8,
    DEFAULT_PREFILL_CHUNK = 512, /* rows: with 128 experts of 8 for a token each has 32, from
                                  * where on weights no longer wait for memory */
    DEFAULT_CONTEXT = 4096,      /* tokens; a model's own limit is often more than memory holds */
    DEFAULT_HANDLES = 3,         /* the exchange's contract: at least 3 in flight */
    MAX_HANDLES = 64,
    MAX_SPARE = 1 << 10, /* slots */
    MAX_RANKS = 1 << 20,
    MAX_ROWS = 1 << 20,     /* of a batch or a chunk: rows x choices stay in 32 bits on the wire */
    NAMED_COUNTS_BYTES = 96 /* text of the counts that would be allowed */
};

/* Ranks that may take one role, node by node and ascending within a node. */
typedef struct rank_list {
    int n;
    int *rank;    /* rank[n] */
    int *on_node; /* on_node[n_nodes]: how many of them each node has */
} rank_list;

/* What one call of tt_layout_create works with; all of it is freed at its end. */
typedef struct draft {
    const tt_arch *arch;
    const tt_layout_params *params;
    rank_list attention, experts;
    bool *attends, *serves; /* [n_ranks]: may take the role */
    int *spare;             /* spare[n_ranks]: scratch */
} draft;

/* ---- the walk over nodes ---- */

static int node_of(const tt_layout_params *params, int rank)
{
    return params->node_of_rank ? params->node_of_rank[rank] : 0;
}

/* Lists the ranks marked in wanted[n_ranks], the first max_n of the walk. start[n_ranks] is
 * scratch. */
static void fill_list(rank_list *list, const tt_layout_params *params, int n_nodes,
                      const bool *wanted, int max_n, int *start)
{
    memset(list->on_node, 0, (size_t)n_nodes * sizeof(int));
    for (int rank = 0; rank < params->n_ranks; rank++) {
        list->on_node[node_of(params, rank)] += wanted[rank];
    }
    list->n = 0;
    for (int node = 0; node < n_nodes; node++) {
        start[node] = list->n;
        list->n += list->on_node[node];
    }
    for (int rank = 0; rank < params->n_ranks; rank++) {
        if (wanted[rank]) {
            list->rank[start[node_of(params, rank)]++] = rank;
        }
    }
    for (int node = n_nodes - 1; list->n > max_n; node--) {
        int n_over = list->n - max_n;
        int n_drop = n_over < list->on_node[node] ? n_over : list->on_node[node];
        list->on_node[node] -= n_drop;
        list->n -= n_drop;
    }
}

/* Groups of `width` that lie within nodes. */
static int whole_groups(const rank_list *list, int n_nodes, int width)
{
    int n_groups = 0;
    for (int node = 0; node < n_nodes; node++) {
        n_groups += list->on_node[node] / width;
    }
    return n_groups;
}

/* Writes n_groups groups to placed[n_groups * width]: first those that lie within a node, then, if
 * these are too few, groups of what is left over. Returns how many groups span nodes. */
static int place_groups(const rank_list *list, int n_nodes, int width, int n_groups, int *placed,
                        int *spare)
{
    int n_wanted = n_groups * width;
    int n_placed = 0;
    int n_spare = 0;
    const int *rank = list->rank;
    for (int node = 0; node < n_nodes; node++) {
        int n_whole = list->on_node[node] / width * width;
        for (int i = 0; i < list->on_node[node]; i++, rank++) {
            if (i < n_whole && n_placed < n_wanted) {
                placed[n_placed++] = *rank;
            } else {
                spare[n_spare++] = *rank;
            }
        }
    }
    int n_spanning = (n_wanted - n_placed) / width;
    for (int i = 0; n_placed < n_wanted; i++) {
        TT_ASSERT(i < n_spare);
        placed[n_placed++] = spare[i];
    }
    return n_spanning;
}

/* ---- choosing ---- */

static void add_why(tt_layout *layout, const char *format, ...) TT_PRINTF(2, 3);
static void add_why(tt_layout *layout, const char *format, ...)
{
    size_t used = strlen(layout->why);
    va_list args;
    va_start(args, format);
    vsnprintf(layout->why + used, sizeof(layout->why) - used, format, args);
    va_end(args);
}

/* Ranks per node of the list if all nodes that have any have equally many, else 0. */
static int even_ranks_per_node(const rank_list *list, int n_nodes, int *n_used_nodes_out)
{
    int per_node = 0;
    int n_used_nodes = 0;
    bool even = true;
    for (int node = 0; node < n_nodes; node++) {
        if (list->on_node[node] > 0) {
            even = even && (per_node == 0 || per_node == list->on_node[node]);
            per_node = list->on_node[node];
            n_used_nodes++;
        }
    }
    *n_used_nodes_out = n_used_nodes;
    return even ? per_node : 0;
}

/* The tp among the divisors of the ranks per node that the cost model finds fastest for max_batch
 * sequences. */
static void choose_both(const draft *d, tt_layout *layout)
{
    int n = d->attention.n;
    int n_used_nodes = 0;
    int per_node = even_ranks_per_node(&d->attention, layout->n_nodes, &n_used_nodes);
    double best_s = 0.0;
    layout->tp = 1;
    for (int tp = 1;
         tp <= (per_node > 0 ? per_node : 1) && tp <= d->arch->Nq && tp <= TT_LAYOUT_MAX_SPLIT;
         tp++) {
        if (tp > 1 && per_node % tp != 0) {
            continue;
        }
        int64_t dp = n / tp, rows = (layout->max_batch + dp - 1) / dp;
        double seconds = tti_plan_tp_seconds(d->arch, tp, rows);
        if (tp == 1 || seconds < best_s) {
            best_s = seconds;
            layout->tp = tp;
        }
    }
    layout->dp = n / layout->tp;
    if (per_node == 0) {
        add_why(layout, " (one DP group per rank: nodes have unequal numbers of ranks)");
    } else if (n > 1) {
        add_why(layout, " (predicted fastest for batch %" PRId64 ", TP inside a node)",
                layout->max_batch);
    }
}

/* The largest tp that gives dp groups within nodes; 1 if there is none. */
static int largest_tp(const draft *d, int n_nodes, int dp)
{
    int best = 1;
    for (int tp = 2; tp <= d->arch->Nq && tp <= d->attention.n / dp && tp <= TT_LAYOUT_MAX_SPLIT;
         tp++) {
        if (whole_groups(&d->attention, n_nodes, tp) >= dp) {
            best = tp;
        }
    }
    return best;
}

/* Sets layout->dp and tp from what was asked and the rule above. */
static tt_status choose_attention(const draft *d, tt_layout *layout)
{
    const tt_layout_params *p = d->params;
    const char *of_what = p->split ? "attention ranks of --split" : "ranks";
    int n = d->attention.n;
    TT_CHECK(p->dp <= n, TT_ERR_USAGE, "dp %d is above the %d %s", p->dp, n, of_what);
    TT_CHECK(p->tp <= n, TT_ERR_USAGE, "tp %d is above the %d %s", p->tp, n, of_what);
    TT_CHECK(p->tp <= d->arch->Nq, TT_ERR_USAGE,
             "tp %d is above the model's %" PRId64 " heads (allowed: 1 to %" PRId64 ")", p->tp,
             d->arch->Nq, d->arch->Nq);
    layout->dp = p->dp;
    layout->tp = p->tp;
    if (p->dp > 0 && p->tp > 0) {
        add_why(layout, " (as asked)");
    } else if (p->dp > 0) {
        layout->tp = p->split ? n / p->dp : largest_tp(d, layout->n_nodes, p->dp);
        add_why(layout, " (dp as asked, tp the largest that fits)");
        TT_CHECK(layout->tp <= d->arch->Nq, TT_ERR_USAGE,
                 "dp %d over the %d %s gives tp %d, above the model's %" PRId64 " heads", p->dp, n,
                 of_what, layout->tp, d->arch->Nq);
    } else if (p->tp > 0) {
        int within = whole_groups(&d->attention, layout->n_nodes, p->tp);
        layout->dp = p->split || within == 0 ? n / p->tp : within;
        add_why(layout, " (tp as asked)");
    } else {
        choose_both(d, layout);
    }
    TT_CHECK(layout->tp <= TT_LAYOUT_MAX_SPLIT, TT_ERR_USAGE, "tp %d is above %d", layout->tp,
             TT_LAYOUT_MAX_SPLIT);
    int64_t n_used = (int64_t)layout->dp * layout->tp;
    TT_CHECK(n_used <= n, TT_ERR_USAGE, "dp %d x tp %d = %" PRId64 " is above the %d %s",
             layout->dp, layout->tp, n_used, n, of_what);
    TT_CHECK(!p->split || n_used == n, TT_ERR_USAGE,
             "dp %d x tp %d = %" PRId64 " does not use the %d attention ranks of --split",
             layout->dp, layout->tp, n_used, n);
    return TT_OK;
}

/* The counts that divide the expert ranks of every node: "1, 2, 4". */
static void allowed_etp(const draft *d, int n_nodes, char *text, size_t size)
{
    size_t used = 0;
    for (int etp = 1; etp <= d->experts.n && used + 1 < size; etp++) {
        bool divides = true;
        for (int node = 0; node < n_nodes; node++) {
            divides = divides && d->experts.on_node[node] % etp == 0;
        }
        if (divides) {
            int length = snprintf(text + used, size - used, "%s%d", used ? ", " : "", etp);
            used += length > 0 ? (size_t)length : 0;
        }
    }
}

/* Sets layout->n_groups and etp. A model without experts has no groups and no expert ranks. */
static tt_status choose_experts(draft *d, tt_layout *layout)
{
    const tt_layout_params *p = d->params;
    layout->n_groups = 0;
    layout->etp = 1;
    if (d->arch->E == 0) {
        TT_CHECK(p->ep == 0 && p->etp <= 1, TT_ERR_USAGE, "ep %d, etp %d: the model has no experts",
                 p->ep, p->etp);
        d->experts.n = 0;
        return TT_OK;
    }
    TT_CHECK(p->ep <= p->n_ranks, TT_ERR_USAGE, "ep %d is above the %d ranks", p->ep, p->n_ranks);
    TT_CHECK(d->experts.n > 0, TT_ERR_USAGE,
             "--split %s: no expert ranks are named, but the model has %" PRId64 " experts",
             p->split, d->arch->E);
    TT_CHECK(!p->split || p->ep == 0 || p->ep == d->experts.n, TT_ERR_USAGE,
             "ep %d is not the %d expert ranks of --split", p->ep, d->experts.n);
    int etp = p->etp > 0 ? p->etp : 1;
    for (int node = 0; node < layout->n_nodes; node++) {
        if (d->experts.on_node[node] % etp != 0) {
            char allowed[NAMED_COUNTS_BYTES] = "";
            allowed_etp(d, layout->n_nodes, allowed, sizeof(allowed));
            return TT_FAIL(TT_ERR_USAGE,
                           "etp %d does not divide the %d expert ranks of node %d (allowed: %s)",
                           etp, d->experts.on_node[node], node, allowed);
        }
    }
    layout->etp = etp;
    layout->n_groups = d->experts.n / etp;
    return TT_OK;
}

/* ---- giving roles ---- */

static void give_attention_role(const tt_arch *arch, const tt_layout *layout, int dp_id, int tp_id)
{
    tt_rank_role *role = &layout->role[layout->attention_rank[dp_id * layout->tp + tp_id]];
    role->dp_id = dp_id;
    role->tp_id = tp_id;
    tt_split(arch->Nq, layout->tp, tp_id, &role->head_begin, &role->head_end);
    if (arch->attention == TT_ATTENTION_MLA) {
        role->kv_begin = 0;
        role->kv_end = 1; /* the latent, which all heads share */
        return;
    }
    int64_t heads_per_kv = arch->Nq / arch->Nkv;
    role->kv_begin = role->head_begin / heads_per_kv;
    role->kv_end = (role->head_end - 1) / heads_per_kv + 1;
}

static tt_status give_roles(const draft *d, tt_layout *layout)
{
    for (int rank = 0; rank < layout->n_ranks; rank++) {
        layout->role[rank] = (tt_rank_role){.node = node_of(d->params, rank),
                                            .dp_id = -1,
                                            .tp_id = -1,
                                            .group_id = -1,
                                            .etp_id = -1};
    }
    int n_spanning = place_groups(&d->attention, layout->n_nodes, layout->tp, layout->dp,
                                  layout->attention_rank, d->spare);
    if (n_spanning > 0) {
        add_why(layout, "; warning: tp spans nodes in %d of %d groups", n_spanning, layout->dp);
    }
    for (int dp_id = 0; dp_id < layout->dp; dp_id++) {
        for (int tp_id = 0; tp_id < layout->tp; tp_id++) {
            give_attention_role(d->arch, layout, dp_id, tp_id);
        }
    }
    place_groups(&d->experts, layout->n_nodes, layout->etp, layout->n_groups, layout->expert_rank,
                 d->spare);
    for (int i = 0; i < layout->n_groups * layout->etp; i++) {
        tt_rank_role *role = &layout->role[layout->expert_rank[i]];
        role->group_id = i / layout->etp;
        role->etp_id = i % layout->etp;
    }
    for (int rank = 0; rank < layout->n_ranks; rank++) {
        TT_CHECK(layout->role[rank].dp_id >= 0 || layout->role[rank].group_id >= 0, TT_ERR_USAGE,
                 "rank %d (node %d) would have no role: dp %d x tp %d take %d of %d ranks, experts "
                 "%d; start fewer ranks or raise dp, tp or ep",
                 rank, layout->role[rank].node, layout->dp, layout->tp, layout->dp * layout->tp,
                 layout->n_ranks, layout->n_groups * layout->etp);
    }
    return TT_OK;
}

/* ---- sizes ---- */

static tt_status check_params(const tt_arch *arch, const tt_layout_params *p)
{
    TT_CHECK(p->n_ranks >= 1 && p->n_ranks <= MAX_RANKS, TT_ERR_ARG, "%d ranks: not in 1 to %d",
             p->n_ranks, MAX_RANKS);
    TT_CHECK(arch->Nq >= 1 && arch->L >= 0 && arch->E >= 0 && arch->context >= 1, TT_ERR_ARG,
             "a model of %" PRId64 " heads, %" PRId64 " layers, %" PRId64
             " experts and context %" PRId64 " cannot be laid out",
             arch->Nq, arch->L, arch->E, arch->context);
    TT_CHECK(arch->attention == TT_ATTENTION_MLA || (arch->Nkv >= 1 && arch->Nq % arch->Nkv == 0),
             TT_ERR_ARG, "%" PRId64 " KV heads do not divide %" PRId64 " heads", arch->Nkv,
             arch->Nq);
    for (int rank = 0; p->node_of_rank && rank < p->n_ranks; rank++) {
        TT_CHECK(p->node_of_rank[rank] >= 0 && p->node_of_rank[rank] < p->n_ranks, TT_ERR_ARG,
                 "rank %d is on node %d: not in 0 to %d", rank, p->node_of_rank[rank],
                 p->n_ranks - 1);
    }
    TT_CHECK(p->dp >= 0 && p->tp >= 0 && p->ep >= 0 && p->etp >= 0, TT_ERR_USAGE,
             "dp %d, tp %d, ep %d, etp %d: none may be negative", p->dp, p->tp, p->ep, p->etp);
    TT_CHECK(p->max_batch >= 0 && p->max_batch <= MAX_ROWS, TT_ERR_USAGE,
             "max-batch %" PRId64 ": not in 1 to %d", p->max_batch, MAX_ROWS);
    TT_CHECK(p->prefill_chunk >= 0 && p->prefill_chunk <= MAX_ROWS, TT_ERR_USAGE,
             "prefill-chunk %" PRId64 ": not in 1 to %d", p->prefill_chunk, MAX_ROWS);
    TT_CHECK(p->context >= 0 && p->context <= arch->context, TT_ERR_USAGE,
             "context %" PRId64 " is above the model's %" PRId64, p->context, arch->context);
    TT_CHECK(p->n_handles >= 0 && p->n_handles <= MAX_HANDLES, TT_ERR_USAGE,
             "%d exchange handles: not in 1 to %d", p->n_handles, MAX_HANDLES);
    TT_CHECK(p->exchange_chunk >= 0, TT_ERR_USAGE, "exchange-chunk %" PRId64 " is negative",
             p->exchange_chunk);
    TT_CHECK(p->spare_slots >= 0 && p->spare_slots <= MAX_SPARE && p->staged_slots >= 0 &&
                 p->staged_slots <= MAX_SPARE,
             TT_ERR_USAGE, "%" PRId64 " spare slots: not in 0 to %d", p->spare_slots, MAX_SPARE);
    TT_CHECK(p->kv_memory_bytes >= 0, TT_ERR_USAGE, "kv-memory %" PRId64 " is negative",
             p->kv_memory_bytes);
    return TT_OK;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static void set_sizes(const tt_arch *arch, const tt_layout_params *p, tt_layout *layout)
{
    layout->n_ranks = p->n_ranks;
    layout->n_nodes = 1;
    for (int rank = 0; rank < p->n_ranks; rank++) {
        if (node_of(p, rank) >= layout->n_nodes) {
            layout->n_nodes = node_of(p, rank) + 1;
        }
    }
    int64_t short_context = arch->context < DEFAULT_CONTEXT ? arch->context : DEFAULT_CONTEXT;
    layout->max_batch = p->max_batch > 0 ? p->max_batch : DEFAULT_MAX_BATCH;
    layout->prefill_chunk = p->prefill_chunk > 0 ? p->prefill_chunk : DEFAULT_PREFILL_CHUNK;
    layout->context = p->context > 0 ? p->context : short_context;
    layout->n_handles = p->n_handles > 0 ? p->n_handles : DEFAULT_HANDLES;
    layout->weights = p->weights;
    layout->act = p->act;
    layout->wire = p->wire;
    layout->wire_back = p->wire_back;
    layout->route = p->route;
    layout->combine = p->combine;
    layout->kv = p->kv;
    layout->replicate = p->replicate;
    const bool may_overlap =
        layout->n_handles > 1 && (p->overlap_rows > 0 || (layout->n_nodes > 1 && arch->E > 0));
    layout->overlap_rows = may_overlap ? p->overlap_rows : 0;
    layout->exchange_chunk = p->exchange_chunk;
}

/* Once the groups are known. */
static void set_slots(const tt_arch *arch, const tt_layout_params *p, tt_layout *layout)
{
    if (layout->n_groups == 0) {
        return;
    }
    layout->slots_per_group = divide_up(arch->E, layout->n_groups);
    layout->open_slots = p->open_slots;
    if (p->open_slots) {
        const int64_t spare = arch->E - layout->slots_per_group;
        layout->slots_per_group += p->spare_slots < spare ? p->spare_slots : spare;
        layout->staged_slots = layout->n_groups > 1 ? p->staged_slots : 0;
    }
}

/* Rows of a step, once dp and tp are known. */
static void set_rows(tt_layout *layout)
{
    layout->max_batch_group = divide_up(layout->max_batch, layout->dp);
    layout->max_rows_group = layout->max_batch_group + layout->prefill_chunk;
    layout->max_rows_rank = divide_up(layout->max_rows_group, layout->tp);
}

int64_t tt_layout_n_chunks(const tt_layout *layout)
{
    return layout->exchange_chunk == 0 || layout->max_rows_rank == 0
               ? 1
               : divide_up(layout->max_rows_rank, layout->exchange_chunk);
}

int64_t tt_layout_chunk_rows(const tt_layout *layout)
{
    return tt_layout_n_chunks(layout) > 1 ? layout->exchange_chunk : layout->max_rows_rank;
}

int64_t tt_layout_max_groups(const tt_arch *arch, const tt_layout *layout, int64_t n_slots)
{
    const int64_t choices = tt_layout_chunk_rows(layout) * arch->K;
    return (choices < n_slots ? choices : n_slots) * layout->dp * layout->tp *
           tt_layout_n_chunks(layout);
}

/* Pages of every attention rank's pool: equal on all, so the rank with most KV heads decides. */
static tt_status set_kv_pages(const tt_arch *arch, const tt_layout_params *p, tt_layout *layout)
{
    int64_t sequence_pages = divide_up(layout->context, TTI_PLAN_PAGE_TOKENS);
    if (p->kv_memory_bytes == 0) {
        layout->kv_pages = layout->max_batch_group * sequence_pages;
        return TT_OK;
    }
    uint64_t token_bytes = 1; /* a model without layers caches nothing; any pool is enough */
    for (int i = 0; i < layout->dp * layout->tp; i++) {
        uint64_t bytes = tt_plan_kv_bytes_per_token(arch, layout, layout->attention_rank[i]);
        token_bytes = bytes > token_bytes ? bytes : token_bytes;
    }
    uint64_t page_bytes = tti_plan_mul(token_bytes, TTI_PLAN_PAGE_TOKENS);
    layout->kv_pages = (int64_t)((uint64_t)p->kv_memory_bytes / page_bytes);
    TT_CHECK(layout->kv_pages >= sequence_pages, TT_ERR_USAGE,
             "kv-memory of %" PRId64 " bytes holds %" PRId64
             " tokens, below one sequence of context %" PRId64 ", which takes %" PRIu64
             " bytes on a rank; lower the context or raise kv-memory",
             p->kv_memory_bytes, layout->kv_pages * TTI_PLAN_PAGE_TOKENS, layout->context,
             tti_plan_mul(page_bytes, (uint64_t)sequence_pages));
    return TT_OK;
}

/* ---- life cycle ---- */

static void free_draft(draft *d)
{
    free(d->attention.rank);
    free(d->attention.on_node);
    free(d->experts.rank);
    free(d->experts.on_node);
    free(d->attends);
    free(d->serves);
    free(d->spare);
}

static tt_status alloc_draft(draft *d, int n_nodes)
{
    size_t n_ranks = (size_t)d->params->n_ranks;
    d->attention.rank = calloc(n_ranks, sizeof(int));
    d->attention.on_node = calloc((size_t)n_nodes, sizeof(int));
    d->experts.rank = calloc(n_ranks, sizeof(int));
    d->experts.on_node = calloc((size_t)n_nodes, sizeof(int));
    d->attends = calloc(n_ranks, sizeof(bool));
    d->serves = calloc(n_ranks, sizeof(bool));
    d->spare = calloc(n_ranks, sizeof(int));
    TT_CHECK(d->attention.rank && d->attention.on_node && d->experts.rank && d->experts.on_node &&
                 d->attends && d->serves && d->spare,
             TT_ERR_NOMEM, "no memory to lay out %zu ranks", n_ranks);
    return TT_OK;
}

/* Fills a zeroed layout; the caller destroys it on an error. */
static tt_status fill_layout(draft *d, tt_layout *layout)
{
    const tt_layout_params *p = d->params;
    if (p->split) {
        TT_TRY(tti_plan_parse_split(p->split, p->n_ranks, d->attends, d->serves));
    } else {
        memset(d->attends, true, (size_t)p->n_ranks);
        memset(d->serves, true, (size_t)p->n_ranks);
    }
    int max_experts = !p->split && p->ep > 0 ? p->ep : p->n_ranks;
    fill_list(&d->attention, p, layout->n_nodes, d->attends, p->n_ranks, d->spare);
    fill_list(&d->experts, p, layout->n_nodes, d->serves, max_experts, d->spare);

    tt_layout reason =
        *layout; /* collects the reason of dp and tp, which stands behind their values */
    TT_TRY(choose_attention(d, &reason));
    layout->dp = reason.dp;
    layout->tp = reason.tp;
    TT_TRY(choose_experts(d, layout));
    add_why(layout, "dp %d x tp %d%s", layout->dp, layout->tp, reason.why);
    if (layout->n_groups > 0) {
        add_why(layout, ", %d expert groups x etp %d", layout->n_groups, layout->etp);
        if (layout->n_groups > d->arch->E) {
            add_why(layout, " (%" PRId64 " without an expert)", layout->n_groups - d->arch->E);
        }
    }

    layout->role = calloc((size_t)p->n_ranks, sizeof(*layout->role));
    layout->attention_rank = calloc((size_t)p->n_ranks, sizeof(int));
    layout->expert_rank = calloc((size_t)p->n_ranks, sizeof(int));
    TT_CHECK(layout->role && layout->attention_rank && layout->expert_rank, TT_ERR_NOMEM,
             "no memory for the roles of %d ranks", p->n_ranks);
    TT_TRY(give_roles(d, layout));
    layout->route = tt_route_choose(p->route, layout->expert_rank, layout->n_groups * layout->etp,
                                    p->node_of_rank);
    set_rows(layout);
    set_slots(d->arch, p, layout);
    TT_CHECK(tt_layout_n_chunks(layout) <= TT_EXCHANGE_MAX_CHUNKS / layout->n_handles, TT_ERR_USAGE,
             "exchange-chunk %" PRId64 " cuts %" PRId64 " rows of a rank in more than %d chunks",
             layout->exchange_chunk, layout->max_rows_rank,
             TT_EXCHANGE_MAX_CHUNKS / layout->n_handles);
    TT_TRY(set_kv_pages(d->arch, p, layout));
    add_why(layout, "; batch %" PRId64 "%s, prompt chunk %" PRId64 "%s, context %" PRId64,
            layout->max_batch, p->max_batch ? "" : " by default", layout->prefill_chunk,
            p->prefill_chunk ? "" : " by default", layout->context);
    if (p->context == 0) {
        add_why(layout, " by default (model: %" PRId64 ")", d->arch->context);
    }
    return TT_OK;
}

tt_status tt_layout_create(const tt_arch *arch, const tt_layout_params *params,
                           tt_layout **layout_out)
{
    TT_TRY(check_params(arch, params));
    tt_layout *layout = calloc(1, sizeof(*layout));
    TT_CHECK(layout, TT_ERR_NOMEM, "no memory for a layout");
    set_sizes(arch, params, layout);
    draft d = {.arch = arch, .params = params};
    tt_status st = alloc_draft(&d, layout->n_nodes);
    if (st == TT_OK) {
        st = fill_layout(&d, layout);
    }
    free_draft(&d);
    if (st != TT_OK) {
        tt_layout_destroy(&layout);
        return tt_status_trace(st, __FILE__, __LINE__, __func__);
    }
    *layout_out = layout;
    return TT_OK;
}

void tt_layout_destroy(tt_layout **layout)
{
    if (*layout) {
        free((*layout)->role);
        free((*layout)->attention_rank);
        free((*layout)->expert_rank);
        free(*layout);
        *layout = NULL;
    }
}

/* ---- hash ---- */

/* Field by field, for padding has no value. `why` is left out: it tells how a layout was found, and
 * the same layout may be found in two ways. */
uint64_t tt_layout_hash(const tt_layout *layout)
{
    const int64_t head[] = {layout->n_ranks,
                            layout->n_nodes,
                            layout->dp,
                            layout->tp,
                            layout->n_groups,
                            layout->etp,
                            layout->max_batch,
                            layout->max_batch_group,
                            layout->prefill_chunk,
                            layout->max_rows_group,
                            layout->max_rows_rank,
                            layout->context,
                            layout->kv_pages,
                            layout->n_handles,
                            layout->weights,
                            layout->act,
                            layout->wire,
                            layout->wire_back,
                            layout->route,
                            layout->combine,
                            layout->kv,
                            layout->replicate,
                            layout->overlap_rows,
                            layout->exchange_chunk,
                            layout->slots_per_group,
                            layout->open_slots,
                            layout->staged_slots};
    uint64_t hash = TT_HASH_BEGIN;
    for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++) {
        hash = tt_hash_u64(hash, (uint64_t)head[i]);
    }
    for (int rank = 0; rank < layout->n_ranks; rank++) {
        const tt_rank_role *r = &layout->role[rank];
        const int64_t role[] = {r->node,       r->dp_id,    r->tp_id,    r->group_id, r->etp_id,
                                r->head_begin, r->head_end, r->kv_begin, r->kv_end};
        for (size_t i = 0; i < sizeof(role) / sizeof(role[0]); i++) {
            hash = tt_hash_u64(hash, (uint64_t)role[i]);
        }
    }
    /* attention_rank and expert_rank follow from the roles. */
    return hash;
}
