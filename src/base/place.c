/* place.c - which cores each of the ranks that share a mask gets.
 *
 * Ranks are dealt to NUMA nodes one by one, each to the node where its share of cores would be
 * largest; the ranks of a node then split its cores. So no rank straddles nodes while it can be
 * avoided, and the smallest share is as large as that allows. With fewer ranks than nodes, each
 * rank gets whole nodes. Threads are left unbound where cores must be shared, and where a CPU
 * quota rather than the mask sets the number: such a mask is shared with strangers, who may
 * choose the same first cores. */
#include "tutti/topology.h"
#include <stdlib.h>
#include "tutti/log.h"
#include "tutti/stream.h"
#include "topology_internal.h"

/* Cores [begin, end) of the list. */
typedef struct core_range {
    int begin, end;
} core_range;

static core_range split_range(core_range range, int n, int i)
{
    int64_t begin, end;
    tt_split(range.end - range.begin, n, i, &begin, &end);
    return (core_range){range.begin + (int)begin, range.begin + (int)end};
}

/* The domain that the next rank goes to: the largest share, the first of equals.
 * n_ranks[n_domains]: dealt so far. */
static int next_domain(const tt_topology *topology, const int *n_ranks)
{
    int best = 0;
    for (int d = 1; d < topology->n_domains; d++) {
        /* cores[d] / (ranks[d] + 1) > cores[best] / (ranks[best] + 1), without rounding */
        if ((int64_t)topology->domains[d].n_cores * (n_ranks[best] + 1) >
            (int64_t)topology->domains[best].n_cores * (n_ranks[d] + 1)) {
            best = d;
        }
    }
    return best;
}

/* Deals n_local ranks to domains with at least n_threads cores each and finds the share of
 * local_rank (ranks are numbered domain by domain). False if some rank would have to straddle
 * domains. */
static bool deal(const tt_topology *topology, int local_rank, int n_local, int n_threads,
                 int *n_ranks, core_range *share_out)
{
    for (int r = 0; r < n_local; r++) {
        int d = next_domain(topology, n_ranks);
        if (topology->domains[d].n_cores / (n_ranks[d] + 1) < n_threads) {
            return false;
        }
        n_ranks[d]++;
    }
    int first = 0;
    for (int d = 0; d < topology->n_domains; d++) {
        if (local_rank < first + n_ranks[d]) {
            const tti_domain *domain = &topology->domains[d];
            core_range all = {domain->first_core, domain->first_core + domain->n_cores};
            *share_out = split_range(all, n_ranks[d], local_rank - first);
            return true;
        }
        first += n_ranks[d];
    }
    return false;
}

/* The cores of one rank; at least n_threads of them, which the caller has made sure there are. */
static tt_status find_share(const tt_topology *topology, int local_rank, int n_local, int n_threads,
                            bool wants_all, core_range *share_out)
{
    core_range all = {0, topology->info.n_cores};
    if (wants_all && n_local < topology->n_domains) {
        core_range domains = split_range((core_range){0, topology->n_domains}, n_local, local_rank);
        const tti_domain *last = &topology->domains[domains.end - 1];
        *share_out = (core_range){topology->domains[domains.begin].first_core,
                                  last->first_core + last->n_cores};
        return TT_OK;
    }
    int *n_ranks = calloc((size_t)topology->n_domains, sizeof(*n_ranks));
    TT_CHECK(n_ranks, TT_ERR_NOMEM, "placement: out of memory");
    if (!deal(topology, local_rank, n_local, n_threads, n_ranks, share_out)) {
        *share_out = split_range(all, n_local, local_rank);
    }
    free(n_ranks);
    return TT_OK;
}

/* The one memory node of these cores; -1 if they have several. */
static int node_of(const tt_topology *topology, core_range range)
{
    int node = topology->domains[topology->cores[range.begin].domain].memory_node;
    for (int c = range.begin; c < range.end; c++) {
        if (topology->domains[topology->cores[c].domain].memory_node != node) {
            return -1;
        }
    }
    return node;
}

tt_status tt_topology_place(const tt_topology *topology, int local_rank, int n_local,
                            bool masks_differ, int n_threads, tt_placement_cpus *cpus_out)
{
    TT_CHECK(n_local >= 1 && local_rank >= 0 && local_rank < n_local, TT_ERR_ARG,
             "placement: rank %d of %d on this host", local_rank, n_local);
    TT_CHECK(n_threads >= 0 && n_threads <= TT_TOPOLOGY_MAX_THREADS, TT_ERR_ARG,
             "placement: %d threads, must be 1 to %d", n_threads, (int)TT_TOPOLOGY_MAX_THREADS);
    const tt_topology_info *info = &topology->info;
    int n_sharers = masks_differ ? 1 : n_local; /* ranks that share the cores of the mask */
    int rank = masks_differ ? 0 : local_rank;
    /* All ranks of the host live on one quota, whatever their masks are. */
    double quota_share = info->cpu_quota / n_local;
    bool has_quota = info->cpu_quota > 0 && quota_share < info->n_cpus / (double)n_sharers;
    core_range all = {0, info->n_cores};
    core_range share = all;
    bool wants_all = n_threads == 0;
    int n = wants_all ? 1 : n_threads;
    bool is_short = (int64_t)n * n_sharers > info->n_cores;
    if (!is_short) {
        TT_TRY(find_share(topology, rank, n_sharers, n, wants_all, &share));
    }
    if (wants_all && !is_short) {
        n = share.end - share.begin;
        if (has_quota && quota_share < n) {
            n = quota_share < 1 ? 1 : (int)quota_share;
        }
        n = n < TT_TOPOLOGY_MAX_THREADS ? n : TT_TOPOLOGY_MAX_THREADS;
    }
    if (is_short && !wants_all && info->n_cpus < n) {
        tt_log(TT_LOG_WARN,
               "%d threads were asked for, but this rank's mask allows %d logical CPU%s of the "
               "host's %d; check the launcher's binding (mpirun --bind-to none, srun -c)",
               n, info->n_cpus, info->n_cpus == 1 ? "" : "s", info->n_cpus_host);
    }
    if (!wants_all && has_quota && n > quota_share) {
        tt_log(TT_LOG_WARN,
               "%d threads were asked for, but the CPU quota grants this rank %.2f CPUs", n,
               quota_share);
    }
    *cpus_out = (tt_placement_cpus){
        .n_threads = n,
        .shared = is_short || (has_quota && quota_share < 1),
    };
    bool is_bound = !is_short && !has_quota;
    for (int t = 0; t < n; t++) {
        cpus_out->cpu[t] = is_bound ? topology->cores[share.begin + t].cpu : -1;
    }
    core_range used = is_bound ? (core_range){share.begin, share.begin + n} : all;
    cpus_out->node = node_of(topology, used);
    return TT_OK;
}
