/* topology_internal.h - what topology.c finds and place.c and limits.c use. Shared
 * inside base and with its tests. */
#ifndef TUTTI_BASE_TOPOLOGY_INTERNAL_H
#define TUTTI_BASE_TOPOLOGY_INTERNAL_H
#include <hwloc.h>
#include "cgroup.h"
#include "tutti/topology.h"

/* An allowed physical core. */
typedef struct tti_core {
    int cpu;    /* OS index of its first allowed logical CPU */
    int domain; /* index into domains */
} tti_core;

/* The allowed cores of one NUMA node; never empty. */
typedef struct tti_domain {
    int first_core; /* its cores are cores[first_core, first_core + n_cores) */
    int n_cores;
    int memory_node; /* OS index of the node, or of the nearest one with memory; -1 = unknown */
} tti_domain;

struct tt_topology {
    hwloc_topology_t hwloc;
    hwloc_bitmap_t mask; /* allowed logical CPUs; never empty */
    tt_topology_info info;
    size_t llc_total_bytes; /* all last-level caches within the mask */
    /* Derived from mask: cores sorted by domain, domains in hwloc's order. */
    tti_core *cores;     /* cores[info.n_cores] */
    tti_domain *domains; /* domains[n_domains] */
    int n_domains;
};

/* Sets what the cgroup grants, as create does on a real machine. */
void tti_topology_set_limits(tt_topology *topology, const tti_cgroup_limits *limits);

#endif
