/* topology.c - reads a machine through hwloc: which logical CPUs this process may use, the
 * physical cores and NUMA nodes behind them, caches and memory. Never assumes that CPU numbers
 * of a core or node are contiguous, nor that a node with cores has memory. */
#define _GNU_SOURCE
#include "tutti/topology.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tutti/hash.h"
#include "tutti/log.h"
#include "topology_internal.h"

static bool any_node_has_memory(hwloc_topology_t hwloc)
{
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (node->attr->numanode.local_memory > 0) {
            return true;
        }
    }
    return false;
}

/* Descriptions without sizes have 0 everywhere: then the size says nothing, and every node
 * counts. */
static bool has_memory(hwloc_topology_t hwloc, hwloc_obj_t node)
{
    return node->attr->numanode.local_memory > 0 || !any_node_has_memory(hwloc);
}

/* The NUMA node of a core: of several (fast and large memory), the first with memory; NULL if
 * there is none. */
static hwloc_obj_t node_of_core(hwloc_topology_t hwloc, hwloc_const_bitmap_t core)
{
    hwloc_obj_t first = NULL, node = NULL;
    while ((node = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (!node->cpuset || !hwloc_bitmap_intersects(node->cpuset, core)) {
            continue;
        }
        if (has_memory(hwloc, node)) {
            return node;
        }
        if (!first) {
            first = node;
        }
    }
    return first;
}

/* The nearest node with memory by the firmware's latency table; NULL if there is no table. */
static hwloc_obj_t nearest_by_latency(hwloc_topology_t hwloc, hwloc_obj_t from)
{
    unsigned n = 1;
    struct hwloc_distances_s *table = NULL;
    if (!from ||
        hwloc_distances_get_by_type(hwloc, HWLOC_OBJ_NUMANODE, &n, &table,
                                    HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) != 0 ||
        n == 0 || !table) {
        return NULL;
    }
    hwloc_obj_t best = NULL;
    hwloc_uint64_t best_value = UINT64_MAX;
    int row = hwloc_distances_obj_index(table, from);
    for (unsigned i = 0; row >= 0 && i < table->nbobjs; i++) {
        hwloc_uint64_t value = table->values[(unsigned)row * table->nbobjs + i];
        if (table->objs[i] && has_memory(hwloc, table->objs[i]) && value < best_value) {
            best = table->objs[i];
            best_value = value;
        }
    }
    hwloc_distances_release(hwloc, table);
    return best;
}

/* The first node with memory in the smallest part of the machine that holds both it and the
 * core. */
static hwloc_obj_t nearest_by_tree(hwloc_topology_t hwloc, hwloc_obj_t core)
{
    for (hwloc_obj_t part = core->parent; part; part = part->parent) {
        hwloc_obj_t node = NULL;
        while ((node = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, node)) != NULL) {
            if (has_memory(hwloc, node) && hwloc_bitmap_isset(part->nodeset, node->os_index)) {
                return node;
            }
        }
    }
    return NULL;
}

static int memory_node_of(hwloc_topology_t hwloc, hwloc_obj_t node, hwloc_obj_t core)
{
    if (node && has_memory(hwloc, node)) {
        return (int)node->os_index;
    }
    hwloc_obj_t near = nearest_by_latency(hwloc, node);
    if (!near) {
        near = nearest_by_tree(hwloc, core);
    }
    if (node && near) {
        tt_log(TT_LOG_WARN, "NUMA node %u has cores but no memory; its threads use node %u's",
               node->os_index, near->os_index);
    }
    return near ? (int)near->os_index : -1;
}

static hwloc_obj_type_t core_type(hwloc_topology_t hwloc)
{
    return hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

/* Adds the allowed cores whose node is `node` (NULL: none) as one domain, if there are any. */
static void add_domain(tt_topology *topology, hwloc_obj_t node, hwloc_bitmap_t scratch)
{
    hwloc_topology_t hwloc = topology->hwloc;
    tti_domain *domain = &topology->domains[topology->n_domains];
    *domain = (tti_domain){.first_core = topology->info.n_cores, .memory_node = -1};
    hwloc_obj_t core = NULL;
    while ((core = hwloc_get_next_obj_by_type(hwloc, core_type(hwloc), core)) != NULL) {
        hwloc_bitmap_and(scratch, core->cpuset, topology->mask);
        int cpu = hwloc_bitmap_first(scratch);
        if (cpu < 0 || node_of_core(hwloc, core->cpuset) != node) {
            continue;
        }
        if (domain->n_cores == 0) {
            domain->memory_node = memory_node_of(hwloc, node, core);
        }
        topology->cores[topology->info.n_cores++] =
            (tti_core){.cpu = cpu, .domain = topology->n_domains};
        domain->n_cores++;
    }
    if (domain->n_cores > 0) {
        topology->n_domains++;
    }
}

static void find_caches(tt_topology *topology)
{
    static const hwloc_obj_type_t types[] = {HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE,
                                             HWLOC_OBJ_L2CACHE};
    topology->info.l3_bytes = 0;
    topology->llc_total_bytes = 0;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]) && !topology->info.l3_bytes; i++) {
        hwloc_obj_t cache = NULL;
        while ((cache = hwloc_get_next_obj_by_type(topology->hwloc, types[i], cache)) != NULL) {
            size_t bytes = (size_t)cache->attr->cache.size;
            if (!hwloc_bitmap_intersects(cache->cpuset, topology->mask)) {
                continue;
            }
            topology->llc_total_bytes += bytes;
            if (bytes > topology->info.l3_bytes) {
                topology->info.l3_bytes = bytes;
            }
        }
    }
}

/* Recomputes all that depends on the mask. */
static tt_status rebuild(tt_topology *topology)
{
    hwloc_topology_t hwloc = topology->hwloc;
    int n_cores = hwloc_get_nbobjs_by_type(hwloc, core_type(hwloc));
    int n_nodes = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_NUMANODE);
    TT_CHECK(n_cores > 0 && n_nodes >= 0, TT_ERR_ARG, "topology: no cores found");
    free(topology->cores);
    free(topology->domains);
    topology->cores = calloc((size_t)n_cores, sizeof(*topology->cores));
    topology->domains = calloc((size_t)n_nodes + 2, sizeof(*topology->domains));
    hwloc_bitmap_t scratch = hwloc_bitmap_alloc();
    if (!topology->cores || !topology->domains || !scratch) {
        hwloc_bitmap_free(scratch);
        return TT_FAIL(TT_ERR_NOMEM, "topology: out of memory");
    }
    tt_topology_info *info = &topology->info;
    info->n_cpus = hwloc_bitmap_weight(topology->mask);
    info->n_cores = 0;
    info->n_nodes = 0;
    topology->n_domains = 0;
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        add_domain(topology, node, scratch);
        if (has_memory(hwloc, node) && node->cpuset &&
            hwloc_bitmap_intersects(node->cpuset, topology->mask)) {
            info->n_nodes++;
        }
    }
    add_domain(topology, NULL, scratch);
    hwloc_bitmap_free(scratch);
    find_caches(topology);
    return TT_OK;
}

void tti_topology_set_limits(tt_topology *topology, const tti_cgroup_limits *limits)
{
    tt_topology_info *info = &topology->info;
    info->cpu_quota = limits->cpu_quota;
    if (limits->memory_total_bytes > 0) {
        info->memory_bytes = limits->memory_total_bytes;
    }
    info->memory_limit_bytes = limits->memory_limit_bytes < info->memory_bytes
                                   ? limits->memory_limit_bytes
                                   : info->memory_bytes;
    info->memory_available_bytes = limits->memory_available_bytes < info->memory_limit_bytes
                                       ? limits->memory_available_bytes
                                       : info->memory_limit_bytes;
}

/* Loads this machine, an XML file or a synthetic description into topology->hwloc. */
static tt_status load(tt_topology *topology, const char *synthetic)
{
    TT_CHECK(hwloc_topology_init(&topology->hwloc) == 0, TT_ERR_NOMEM, "topology: out of memory");
    if (synthetic) {
        const char *dot = strrchr(synthetic, '.');
        if (access(synthetic, F_OK) == 0 || (dot && !strcmp(dot, ".xml"))) {
            TT_CHECK(access(synthetic, R_OK) == 0, TT_ERR_IO, "topology: cannot read %s",
                     synthetic);
            TT_CHECK(hwloc_topology_set_xml(topology->hwloc, synthetic) == 0, TT_ERR_ARG,
                     "topology: %s is not a hwloc XML file", synthetic);
        } else {
            TT_CHECK(hwloc_topology_set_synthetic(topology->hwloc, synthetic) == 0, TT_ERR_ARG,
                     "topology: '%s' is neither a file nor a hwloc description", synthetic);
        }
    }
    TT_CHECK(hwloc_topology_load(topology->hwloc) == 0, synthetic ? TT_ERR_ARG : TT_ERR_IO,
             "topology: hwloc cannot load %s", synthetic ? synthetic : "this machine");
    return TT_OK;
}

static tt_status init(tt_topology *topology, const char *synthetic)
{
    TT_TRY(load(topology, synthetic));
    hwloc_topology_t hwloc = topology->hwloc;
    topology->mask = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(hwloc));
    TT_CHECK(topology->mask, TT_ERR_NOMEM, "topology: out of memory");
    hwloc_bitmap_and(topology->mask, topology->mask, hwloc_topology_get_topology_cpuset(hwloc));
    topology->info.n_cpus_host = hwloc_bitmap_weight(hwloc_topology_get_complete_cpuset(hwloc));
    topology->info.memory_bytes = hwloc_get_root_obj(hwloc)->total_memory;
    tti_cgroup_limits limits = {.memory_limit_bytes = UINT64_MAX,
                                .memory_available_bytes = UINT64_MAX};
    if (!synthetic) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        topology->info.n_cpus_host = online > 0 ? (int)online : topology->info.n_cpus_host;
        /* The calling thread's mask: what the launcher gave, as long as no stream has bound this
         * thread. */
        hwloc_bitmap_t bound = hwloc_bitmap_alloc();
        if (bound && hwloc_get_cpubind(hwloc, bound, HWLOC_CPUBIND_THREAD) == 0 &&
            hwloc_bitmap_intersects(bound, topology->mask)) {
            hwloc_bitmap_and(topology->mask, topology->mask, bound);
        }
        hwloc_bitmap_free(bound);
        tti_cgroup_read("", &limits);
    }
    TT_CHECK(!hwloc_bitmap_iszero(topology->mask), TT_ERR_ARG, "topology: no CPU is allowed");
    TT_TRY(rebuild(topology));
    tti_topology_set_limits(topology, &limits);
    return TT_OK;
}

tt_status tt_topology_create(const char *synthetic, tt_topology **topology_out)
{
    tt_topology *topology = calloc(1, sizeof(*topology));
    TT_CHECK(topology, TT_ERR_NOMEM, "topology: out of memory");
    tt_status st = init(topology, synthetic);
    if (st != TT_OK) {
        tt_topology_destroy(&topology);
        return st;
    }
    *topology_out = topology;
    return TT_OK;
}

void tt_topology_destroy(tt_topology **topology)
{
    if (!*topology) {
        return;
    }
    free((*topology)->cores);
    free((*topology)->domains);
    hwloc_bitmap_free((*topology)->mask);
    if ((*topology)->hwloc) {
        hwloc_topology_destroy((*topology)->hwloc);
    }
    free(*topology);
    *topology = NULL;
}

const tt_topology_info *tt_topology_get_info(const tt_topology *topology)
{
    return &topology->info;
}

tt_status tt_topology_restrict(tt_topology *topology, const char *cpu_list)
{
    TT_CHECK(cpu_list[0] && strspn(cpu_list, "0123456789-,") == strlen(cpu_list), TT_ERR_ARG,
             "topology: '%s' is not a list of CPUs as 0-3,8", cpu_list);
    hwloc_bitmap_t list = hwloc_bitmap_alloc();
    TT_CHECK(list, TT_ERR_NOMEM, "topology: out of memory");
    bool ok = hwloc_bitmap_list_sscanf(list, cpu_list) == 0 &&
              hwloc_bitmap_intersects(list, topology->mask);
    if (ok) {
        hwloc_bitmap_and(topology->mask, topology->mask, list);
    }
    hwloc_bitmap_free(list);
    TT_CHECK(ok, TT_ERR_ARG, "topology: '%s' names no allowed CPU", cpu_list);
    return rebuild(topology);
}

uint64_t tt_topology_mask_hash(const tt_topology *topology)
{
    uint64_t hash = TT_HASH_BEGIN; /* of the indices of the allowed CPUs */
    for (int cpu = hwloc_bitmap_first(topology->mask); cpu >= 0;
         cpu = hwloc_bitmap_next(topology->mask, cpu)) {
        hash = tt_hash_value(hash, (uint64_t)cpu, 4);
    }
    return hash;
}
