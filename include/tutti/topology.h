/* topology.h - what this process may use of its machine: cores inside the affinity mask, CPU quota
 * and memory limit of its cgroup, NUMA nodes, caches; and which cores a rank's threads get.
 * Source: hwloc; a synthetic or XML topology can stand in, so that a laptop can test any node.
 * Threads: set-up only; const afterwards. MPI: none. */
#ifndef TUTTI_TOPOLOGY_H
#define TUTTI_TOPOLOGY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tutti/status.h"

typedef struct tt_topology tt_topology; /* opaque */

enum { TT_TOPOLOGY_MAX_THREADS = 1024 };

typedef struct tt_topology_info {
    int n_cores;                     /* physical cores with at least one allowed logical CPU */
    int n_cpus;                      /* allowed logical CPUs (the affinity mask) */
    int n_cpus_host;                 /* logical CPUs of the host */
    double cpu_quota;                /* CPUs that the cgroup grants; 0 = no limit */
    int n_nodes;                     /* NUMA nodes with memory that the mask touches */
    size_t l3_bytes;                 /* largest last-level cache within the mask; 0 = unknown */
    uint64_t memory_bytes;           /* physical memory of the host */
    uint64_t memory_limit_bytes;     /* min(physical, cgroup limit) */
    uint64_t memory_available_bytes; /* what can be taken now: min(MemAvailable, limit - used) */
} tt_topology_info;

/* Where one rank's threads go. */
typedef struct tt_placement_cpus {
    int n_threads;
    int cpu[TT_TOPOLOGY_MAX_THREADS]; /* OS index of each thread's logical CPU; -1 = unbound */
    int node;                         /* OS index of the NUMA node for its memory; -1 = any */
    bool shared;                      /* cores are shared with another rank: oversubscribed */
} tt_placement_cpus;

/* `synthetic` NULL reads this machine (with the mask and cgroup limits of this process); otherwise
 * a hwloc synthetic description ("package:2 numa:1 core:8 pu:2") or the path of an hwloc XML file.
 * Errors: TT_ERR_ARG for a bad description, TT_ERR_IO. */
TT_API tt_status tt_topology_create(const char *synthetic, tt_topology **topology_out);
TT_API void tt_topology_destroy(tt_topology **topology);
TT_API const tt_topology_info *tt_topology_get_info(const tt_topology *topology);
/* Restricts the allowed CPUs to a list, as "0-3,8"; for tests and faked masks. */
TT_API tt_status tt_topology_restrict(tt_topology *topology, const char *cpu_list);

/* Chooses cores for local rank `local_rank` of `n_local` ranks that share this mask, or that each
 * have a mask of their own (`masks_differ`: the launcher bound each rank already; then all cores of
 * the mask are this rank's). n_threads 0 means as many as fairly fall to this rank: min(cores of
 * its share, floor of the quota's share), at least 1. One thread per physical core; a rank's cores
 * come from one NUMA node where they fit; no core serves two ranks unless there are too few (then
 * shared = true and cpu[] = -1, unbound).
 * Where the cgroup's quota and not the mask limits the threads, they stay unbound (cpu[] = -1),
 * since the mask's other users may choose the same cores; a quota of less than one CPU a rank
 * counts as shared.
 * Pure: same input, same output. */
TT_API tt_status tt_topology_place(const tt_topology *topology, int local_rank, int n_local,
                                   bool masks_differ, int n_threads, tt_placement_cpus *cpus_out);

/* A stable hash of the affinity mask: equal on two ranks of one host iff they share one mask. */
TT_API uint64_t tt_topology_mask_hash(const tt_topology *topology);

#endif
