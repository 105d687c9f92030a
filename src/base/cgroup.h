/* cgroup.h - CPU quota and memory of this process's control groups, and the memory of the host,
 * as the kernel's files tell. Shared inside base; the files' root can be faked. Threads: any.
 * MPI: none. */
#ifndef TUTTI_BASE_CGROUP_H
#define TUTTI_BASE_CGROUP_H
#include <stdint.h>

typedef struct tti_cgroup_limits {
    double cpu_quota;                /* CPUs' worth of time; 0 = no limit */
    uint64_t memory_total_bytes;     /* of the host; 0 = unknown */
    uint64_t memory_limit_bytes;     /* of the groups; UINT64_MAX = no limit */
    uint64_t memory_available_bytes; /* what can be taken now: of the host and of the groups */
} tti_cgroup_limits;

/* Reads root/proc/self/cgroup, root/proc/meminfo and root/sys/fs/cgroup. `root` is "" on a real
 * machine. A file that is missing or makes no sense sets no limit: many systems have only some
 * of them. */
void tti_cgroup_read(const char *root, tti_cgroup_limits *limits_out);

#endif
