/* test_topology.c - who gets which cores, on machines given as text; and limits of control
 * groups, on faked files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cgroup.h"
#include "topology_internal.h"
#include "tutti/cpu.h"
#include "tutti/limits.h"
#include "tutti/log.h"
#include "tutti/memory.h"
#include "tutti/topology.h"
#include "ttk.h"

enum { MAX_CPUS = 256, TEXT_BYTES = 4096 };

static tt_topology *make(const char *synthetic)
{
    tt_topology *topology = NULL;
    if (tt_topology_create(synthetic, &topology) != TT_OK) {
        fail_msg("%s: %s", synthetic, tt_status_message());
    }
    return topology;
}

static tt_placement_cpus place(const tt_topology *topology, int rank, int n, int n_threads)
{
    static tt_placement_cpus cpus;
    assert_int_equal(tt_topology_place(topology, rank, n, false, n_threads, &cpus), TT_OK);
    return cpus;
}

/* 2 packages of 32 cores; siblings are 64 apart: node 0 = 0-31,64-95, node 1 = 32-63,96-127. */
static tt_topology *make_far_siblings(void)
{
    char text[TEXT_BYTES];
    int used = snprintf(text, sizeof(text),
                        "package:2 [numa(memory=64GB)] l3:1(size=32MB) core:32 pu:2(indexes=");
    for (int core = 0; core < 64; core++) {
        used += snprintf(text + used, sizeof(text) - (size_t)used, "%d,%d%s", core, core + 64,
                         core < 63 ? "," : ")");
    }
    return make(text);
}

/* The nodes of far_siblings by CPU number; -1 for an unbound thread. */
static int far_node(int cpu)
{
    return cpu < 0 ? -1 : cpu % 64 / 32;
}

static void info_counts_cores_cpus_nodes_and_caches(void **state)
{
    (void)state;
    tt_topology *topology = make_far_siblings();
    const tt_topology_info *info = tt_topology_get_info(topology);
    assert_int_equal(info->n_cores, 64);
    assert_int_equal(info->n_cpus, 128);
    assert_int_equal(info->n_cpus_host, 128);
    assert_int_equal(info->n_nodes, 2);
    assert_int_equal(info->l3_bytes, 32000000);
    assert_int_equal(info->memory_bytes, 128000000000);
    assert_int_equal(info->memory_limit_bytes, 128000000000);
    assert_true(info->cpu_quota == 0);
    assert_int_equal(tt_topology_restrict(topology, "0-3,64,127"), TT_OK);
    assert_int_equal(info->n_cores, 5); /* 0 and 64 are one core */
    assert_int_equal(info->n_cpus, 6);
    assert_int_equal(info->n_cpus_host, 128);
    tt_topology_destroy(&topology);
    assert_null(topology);
    tt_topology_destroy(&topology);
}

/* All n ranks together: one CPU per physical core, no core twice; each rank on one node, its
 * memory too. */
static void check_ranks(const tt_topology *topology, int n, int n_threads, int expect_threads,
                        int cores_per_node, int n_cores)
{
    bool used[MAX_CPUS] = {false};
    for (int r = 0; r < n; r++) {
        tt_placement_cpus cpus = place(topology, r, n, n_threads);
        assert_int_equal(cpus.n_threads, expect_threads);
        assert_false(cpus.shared);
        for (int t = 0; t < cpus.n_threads; t++) {
            assert_in_range(cpus.cpu[t], 0, MAX_CPUS - 1);
            int core = cpus.cpu[t] % n_cores; /* siblings are n_cores apart */
            assert_false(used[core]);
            used[core] = true;
            assert_int_equal(core / cores_per_node, cpus.node);
        }
    }
}

static void ranks_stay_on_one_node_with_far_siblings(void **state)
{
    (void)state;
    tt_topology *topology = make_far_siblings();
    check_ranks(topology, 2, 0, 32, 32, 64);
    check_ranks(topology, 4, 0, 16, 32, 64);
    check_ranks(topology, 64, 0, 1, 32, 64);
    check_ranks(topology, 4, 5, 5, 32, 64);
    /* One rank alone spans both nodes. */
    tt_placement_cpus cpus = place(topology, 0, 1, 0);
    assert_int_equal(cpus.n_threads, 64);
    assert_int_equal(cpus.node, -1);
    /* but stays on one if its threads fit there */
    cpus = place(topology, 0, 1, 32);
    assert_int_equal(cpus.node, far_node(cpus.cpu[0]));
    assert_int_equal(cpus.node, far_node(cpus.cpu[31]));
    tt_topology_destroy(&topology);
}

static void ranks_stay_on_one_node_with_four_nodes_a_package(void **state)
{
    (void)state;
    tt_topology *topology = make("package:2 numa:4(memory=16GB) core:8 pu:1");
    assert_int_equal(tt_topology_get_info(topology)->n_nodes, 8);
    check_ranks(topology, 8, 0, 8, 8, 64);
    check_ranks(topology, 16, 0, 4, 8, 64);
    check_ranks(topology, 4, 8, 8, 8, 64);
    check_ranks(topology, 2, 4, 4, 8, 64);
    /* Fewer ranks than nodes share out whole nodes, and a package is not torn. */
    for (int r = 0; r < 4; r++) {
        tt_placement_cpus cpus = place(topology, r, 4, 0);
        assert_int_equal(cpus.n_threads, 16);
        assert_int_equal(cpus.cpu[0], 16 * r);
        assert_int_equal(cpus.cpu[15], 16 * r + 15);
    }
    tt_topology_destroy(&topology);
}

static void mask_of_one_node_uses_that_node(void **state)
{
    (void)state;
    tt_topology *topology = make_far_siblings();
    assert_int_equal(tt_topology_restrict(topology, "32-63,96-127"), TT_OK);
    assert_int_equal(tt_topology_get_info(topology)->n_nodes, 1);
    for (int n = 2; n <= 4; n += 2) {
        for (int r = 0; r < n; r++) {
            tt_placement_cpus cpus = place(topology, r, n, 0);
            assert_int_equal(cpus.n_threads, 32 / n);
            assert_int_equal(cpus.node, 1);
            for (int t = 0; t < cpus.n_threads; t++) {
                assert_int_equal(far_node(cpus.cpu[t]), 1);
            }
        }
    }
    tt_topology_destroy(&topology);
}

/* 2 packages of 4 cores, siblings 8 apart; node 1 has no memory. */
static void node_without_memory_uses_the_nearest(void **state)
{
    (void)state;
    char path[TEXT_BYTES];
    const char *source = getenv("top_srcdir");
    snprintf(path, sizeof(path), "%s/tests/golden/topology_node_without_memory.xml",
             source ? source : ".");
    tt_topology *topology = make(path);
    assert_int_equal(tt_topology_get_info(topology)->n_nodes, 1);
    for (int n = 2; n <= 4; n += 2) {
        bool used[8] = {false};
        for (int r = 0; r < n; r++) {
            tt_placement_cpus cpus = place(topology, r, n, 0);
            assert_int_equal(cpus.n_threads, 8 / n);
            assert_int_equal(cpus.node, 0);
            for (int t = 0; t < cpus.n_threads; t++) {
                assert_int_equal(cpus.cpu[t] / 4, cpus.cpu[0] / 4); /* one package */
                assert_false(used[cpus.cpu[t]]);
                used[cpus.cpu[t]] = true;
            }
        }
    }
    tt_topology_destroy(&topology);
}

static void uneven_masks_are_dealt_fairly(void **state)
{
    (void)state;
    tt_topology *topology = make("package:2 [numa(memory=1GB)] core:8 pu:1");
    assert_int_equal(tt_topology_restrict(topology, "0-7,8-11"), TT_OK);
    int n_on_node[2] = {0, 0};
    for (int r = 0; r < 3; r++) { /* 8 + 4 cores: two ranks on node 0, one on node 1 */
        tt_placement_cpus cpus = place(topology, r, 3, 0);
        assert_int_equal(cpus.n_threads, 4);
        n_on_node[cpus.node]++;
    }
    assert_int_equal(n_on_node[0], 2);
    assert_int_equal(n_on_node[1], 1);
    /* Three ranks of five threads fit the 12 cores no more. */
    assert_true(place(topology, 0, 3, 5).shared);
    /* Two of six fit, though only with one rank across the nodes. */
    bool used[16] = {false};
    for (int r = 0; r < 2; r++) {
        tt_placement_cpus cpus = place(topology, r, 2, 6);
        assert_false(cpus.shared);
        for (int t = 0; t < 6; t++) {
            assert_false(used[cpus.cpu[t]]);
            used[cpus.cpu[t]] = true;
        }
        assert_int_equal(cpus.node, r == 0 ? 0 : -1);
    }
    tt_topology_destroy(&topology);
}

static void too_few_cores_leave_threads_unbound(void **state)
{
    (void)state;
    tt_topology *topology = make("numa:1(memory=1GB) core:2 pu:1");
    for (int r = 0; r < 8; r++) {
        tt_placement_cpus cpus = place(topology, r, 8, 0);
        assert_int_equal(cpus.n_threads, 1);
        assert_true(cpus.shared);
        assert_int_equal(cpus.cpu[0], -1);
        assert_int_equal(cpus.node, 0);
    }
    tt_placement_cpus cpus = place(topology, 1, 2, 3);
    assert_int_equal(cpus.n_threads, 3);
    assert_true(cpus.shared);
    assert_int_equal(cpus.cpu[2], -1);
    tt_topology_destroy(&topology);
}

static void own_masks_are_not_divided(void **state)
{
    (void)state;
    tt_topology *topology = make_far_siblings();
    tt_placement_cpus cpus;
    assert_int_equal(tt_topology_restrict(topology, "32-47,96-111"), TT_OK);
    assert_int_equal(tt_topology_place(topology, 3, 4, true, 0, &cpus), TT_OK);
    assert_int_equal(cpus.n_threads, 16);
    assert_int_equal(cpus.node, 1);
    assert_int_equal(cpus.cpu[0], 32);
    assert_int_equal(tt_topology_place(topology, 3, 4, true, 4, &cpus), TT_OK);
    assert_int_equal(cpus.n_threads, 4);
    assert_false(cpus.shared);
    /* The launcher's mask of one CPU, and more threads asked for. */
    assert_int_equal(tt_topology_restrict(topology, "40"), TT_OK);
    assert_int_equal(tt_topology_place(topology, 0, 2, true, 0, &cpus), TT_OK);
    assert_int_equal(cpus.n_threads, 1);
    assert_int_equal(cpus.cpu[0], 40);
    assert_int_equal(tt_topology_place(topology, 0, 2, true, 8, &cpus), TT_OK);
    assert_int_equal(cpus.n_threads, 8);
    assert_true(cpus.shared);
    assert_int_equal(cpus.cpu[7], -1);
    tt_topology_destroy(&topology);
}

static void quota_limits_threads(void **state)
{
    (void)state;
    tt_topology *topology = make("package:2 [numa(memory=64GB)] core:32 pu:1");
    tti_cgroup_limits limits = {.cpu_quota = 6.5,
                                .memory_limit_bytes = (uint64_t)8 << 30,
                                .memory_available_bytes = (uint64_t)3 << 30};
    tti_topology_set_limits(topology, &limits);
    assert_int_equal(tt_topology_get_info(topology)->memory_limit_bytes, (uint64_t)8 << 30);
    assert_int_equal(tt_topology_get_info(topology)->memory_available_bytes, (uint64_t)3 << 30);
    assert_int_equal(place(topology, 0, 1, 0).n_threads, 6);
    assert_int_equal(place(topology, 1, 2, 0).n_threads, 3);
    assert_int_equal(place(topology, 0, 8, 0).n_threads, 1);
    assert_true(place(topology, 0, 8, 0).shared); /* less than a CPU each */
    assert_false(place(topology, 0, 6, 0).shared);
    /* The other CPUs of the mask are somebody's: no thread insists on one. */
    assert_int_equal(place(topology, 0, 1, 0).cpu[0], -1);
    assert_int_equal(place(topology, 0, 1, 10).n_threads, 10);
    /* A quota as large as the mask changes nothing. */
    limits.cpu_quota = 64;
    tti_topology_set_limits(topology, &limits);
    assert_int_equal(place(topology, 1, 2, 0).n_threads, 32);
    assert_int_equal(place(topology, 1, 2, 0).cpu[0], 32);
    tt_topology_destroy(&topology);
}

static void bad_descriptions_and_lists_are_refused(void **state)
{
    (void)state;
    tt_topology *topology = NULL;
    tt_placement_cpus cpus;
    assert_int_equal(tt_topology_create("no topology", &topology), TT_ERR_ARG);
    assert_int_equal(tt_topology_create("/nowhere/at/all.xml", &topology), TT_ERR_IO);
    assert_int_equal(tt_topology_create("/dev/null", &topology), TT_ERR_ARG);
    assert_null(topology);
    topology = make("core:4 pu:1");
    assert_int_equal(tt_topology_restrict(topology, ""), TT_ERR_ARG);
    assert_int_equal(tt_topology_restrict(topology, "all"), TT_ERR_ARG);
    assert_int_equal(tt_topology_restrict(topology, "9"), TT_ERR_ARG);
    assert_int_equal(tt_topology_get_info(topology)->n_cores, 4);
    assert_int_equal(tt_topology_place(topology, 2, 2, false, 0, &cpus), TT_ERR_ARG);
    assert_int_equal(tt_topology_place(topology, 0, 1, false, -1, &cpus), TT_ERR_ARG);
    assert_int_equal(tt_topology_place(topology, 0, 1, false, 1025, &cpus), TT_ERR_ARG);
    tt_topology_destroy(&topology);
}

static void mask_hash_tells_masks_apart(void **state)
{
    (void)state;
    tt_topology *a = make_far_siblings(), *b = make_far_siblings();
    assert_true(tt_topology_mask_hash(a) == tt_topology_mask_hash(b));
    assert_int_equal(tt_topology_restrict(a, "0-3"), TT_OK);
    assert_true(tt_topology_mask_hash(a) != tt_topology_mask_hash(b));
    assert_int_equal(tt_topology_restrict(b, "0-2,4"), TT_OK);
    assert_true(tt_topology_mask_hash(a) != tt_topology_mask_hash(b));
    tt_topology_destroy(&a);
    tt_topology_destroy(&b);
}

/* ---- control groups ---- */

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/tutti-test-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

/* Writes a file below the faked root, with its folders. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(full, 0755);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void without_groups_the_host_is_the_limit(void **state)
{
    (void)state;
    tti_cgroup_limits limits;
    tti_cgroup_read(root, &limits); /* no files at all */
    assert_true(limits.cpu_quota == 0);
    assert_int_equal(limits.memory_total_bytes, 0);
    put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:   10 kB\nMemAvailable:    600 kB\n");
    put("/proc/self/cgroup", "0::/\n");
    tti_cgroup_read(root, &limits);
    assert_int_equal(limits.memory_total_bytes, 1024000);
    assert_int_equal(limits.memory_available_bytes, 614400);
    assert_true(limits.memory_limit_bytes == UINT64_MAX);
}

static void version_2_takes_the_smallest_on_the_way_up(void **state)
{
    (void)state;
    tti_cgroup_limits limits;
    put("/proc/meminfo", "MemTotal: 100000000 kB\nMemAvailable: 90000000 kB\n");
    put("/proc/self/cgroup", "0::/job/step\n");
    put("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
    put("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/job/cpu.max", "650000 100000\n");
    put("/sys/fs/cgroup/job/step/memory.max", "8000000\n");
    put("/sys/fs/cgroup/job/step/memory.current", "1000000\n");
    put("/sys/fs/cgroup/job/memory.max", "9000000\n");
    put("/sys/fs/cgroup/job/memory.current", "8500000\n");
    put("/sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 100000\nactive_file 7\n");
    tti_cgroup_read(root, &limits);
    assert_true(limits.cpu_quota == 6.5);
    assert_int_equal(limits.memory_limit_bytes, 8000000);
    assert_int_equal(limits.memory_available_bytes,
                     600000); /* the parent's siblings use the rest */
    put("/sys/fs/cgroup/job/step/cpu.max", "200000 100000\n");
    put("/sys/fs/cgroup/job/memory.current", "9500000\n"); /* over the limit: nothing is left */
    put("/sys/fs/cgroup/job/memory.stat", "");
    tti_cgroup_read(root, &limits);
    assert_true(limits.cpu_quota == 2);
    assert_int_equal(limits.memory_available_bytes, 0);
    put("/sys/fs/cgroup/job/step/cpu.max", "nonsense\n");
    put("/sys/fs/cgroup/job/cpu.max", "100000 0\n");
    tti_cgroup_read(root, &limits);
    assert_true(limits.cpu_quota == 0);
}

static void version_1_reads_each_controller(void **state)
{
    (void)state;
    tti_cgroup_limits limits;
    put("/proc/meminfo", "MemTotal: 100000000 kB\nMemAvailable: 90000000 kB\n");
    put("/proc/self/cgroup", "11:cpuset:/x\n4:memory:/slurm/job\n2:cpu,cpuacct:/slurm\n0::/\n");
    put("/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us", "350000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes", "5\n");
    put("/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "5000000\n");
    put("/sys/fs/cgroup/memory/slurm/memory.usage_in_bytes", "2000000\n");
    put("/sys/fs/cgroup/memory/slurm/memory.stat", "inactive_file 1\ntotal_inactive_file 500000\n");
    tti_cgroup_read(root, &limits);
    assert_true(limits.cpu_quota == 3.5);
    assert_int_equal(limits.memory_limit_bytes, 5000000);
    assert_int_equal(limits.memory_available_bytes, 3500000);
}

static void container_sees_its_own_group_as_the_root(void **state)
{
    (void)state;
    tti_cgroup_limits limits;
    put("/proc/meminfo", "MemTotal: 100000000 kB\n");
    put("/proc/self/cgroup", "4:memory:/docker/0123\n0::/../../elsewhere\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "7000000\n");
    put("/sys/fs/cgroup/unified/cgroup.controllers", "cpu\n");
    put("/sys/fs/cgroup/unified/cpu.max", "150000 100000\n");
    tti_cgroup_read(root, &limits);
    assert_int_equal(limits.memory_limit_bytes, 7000000);
    assert_true(limits.cpu_quota == 1.5);
}

static void this_machine_makes_sense(void **state)
{
    (void)state;
    tt_topology *topology = NULL;
    assert_int_equal(tt_topology_create(NULL, &topology), TT_OK);
    const tt_topology_info *info = tt_topology_get_info(topology);
    assert_true(info->n_cores >= 1 && info->n_cores <= info->n_cpus);
    assert_true(info->n_cpus <= info->n_cpus_host);
    assert_true(info->memory_bytes > (uint64_t)64 << 20);
    assert_true(info->memory_limit_bytes <= info->memory_bytes);
    assert_true(info->memory_available_bytes <= info->memory_limit_bytes);
    print_message("# %d cores, %d cpus, L3 %zu bytes, quota %g, %.1f of %.1f GB free\n",
                  info->n_cores, info->n_cpus, info->l3_bytes, info->cpu_quota,
                  (double)info->memory_available_bytes * 1e-9, (double)info->memory_bytes * 1e-9);
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        tt_stream *stream = NULL;
        tt_stream_params params = {.name = "limits", .n_threads = n_threads};
        tt_limits limits;
        size_t bytes = tt_limits_buffer_bytes(topology);
        assert_true(bytes >= 4 * info->l3_bytes || bytes >= info->memory_available_bytes / 5);
        assert_int_equal(tt_stream_create(&params, &stream), TT_OK);
        assert_int_equal(tt_limits_measure(stream, bytes, TT_MEMORY_ANY_NODE, 3, &limits), TT_OK);
        print_message("# %d threads: sum %.1f, triad %.1f GB/s; %.0f GFLOP/s, int8 %.0f GOP/s\n",
                      n_threads, limits.sum_bytes_per_s * 1e-9, limits.triad_bytes_per_s * 1e-9,
                      limits.fma_per_s * 1e-9, limits.int8_per_s * 1e-9);
        assert_true(limits.sum_bytes_per_s > 1e8 && limits.sum_bytes_per_s < 1e12);
        assert_true(limits.triad_bytes_per_s > 1e8 && limits.triad_bytes_per_s < 1e12);
        assert_true(tt_limits_read(&limits) >= limits.sum_bytes_per_s &&
                    tt_limits_read(&limits) >= limits.triad_bytes_per_s);
        assert_true(!(tt_cpu_flags() & TTK_CPU_AVX2) ||
                    (limits.fma_per_s > 1e9 && limits.int8_per_s > limits.fma_per_s / 2));
        assert_int_equal(tt_limits_measure(stream, bytes, TT_MEMORY_ANY_NODE, 0, &limits),
                         TT_ERR_ARG);
        assert_int_equal(tt_limits_measure(stream, 100, TT_MEMORY_ANY_NODE, 1, &limits),
                         TT_ERR_ARG);
        tt_stream_destroy(&stream);
    }
    tt_topology_destroy(&topology);
}

int main(void)
{
#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(info_counts_cores_cpus_nodes_and_caches),
        cmocka_unit_test(ranks_stay_on_one_node_with_far_siblings),
        cmocka_unit_test(ranks_stay_on_one_node_with_four_nodes_a_package),
        cmocka_unit_test(mask_of_one_node_uses_that_node),
        cmocka_unit_test(node_without_memory_uses_the_nearest),
        cmocka_unit_test(uneven_masks_are_dealt_fairly),
        cmocka_unit_test(too_few_cores_leave_threads_unbound),
        cmocka_unit_test(own_masks_are_not_divided),
        cmocka_unit_test(quota_limits_threads),
        cmocka_unit_test(bad_descriptions_and_lists_are_refused),
        cmocka_unit_test(mask_hash_tells_masks_apart),
        WITH_ROOT(without_groups_the_host_is_the_limit),
        WITH_ROOT(version_2_takes_the_smallest_on_the_way_up),
        WITH_ROOT(version_1_reads_each_controller),
        WITH_ROOT(container_sees_its_own_group_as_the_root),
        cmocka_unit_test(this_machine_makes_sense),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    tt_log_set_level(TT_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
