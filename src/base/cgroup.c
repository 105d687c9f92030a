/* cgroup.c - the smallest limit on the way from this process's group up to the root counts,
 * since every group up there is charged too. Version 2 has one tree (cpu.max, memory.max),
 * version 1 a tree per controller; both may be mounted. Inside a container the path in
 * /proc/self/cgroup may be the host's and not exist here: walking up ends at the mount's root,
 * which then is the container's own group. */
#include "cgroup.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = PATH_MAX, LINE_BYTES = PATH_MAX + 256, BYTES_PER_KIB = 1024 };
/* Version 1 writes "no limit" as the largest multiple of the page size; nobody has an exbibyte. */
static const uint64_t V1_NO_LIMIT = (uint64_t)1 << 60;

/* Where one controller's files lie, and their names in its version. */
typedef struct cgroup_files {
    bool is_v2;
    char base[PATH_BYTES];  /* the mount's root */
    char group[PATH_BYTES]; /* below it: "" or "/a/b" */
} cgroup_files;

/* First line of base + group + "/" + name, without its newline; false if there is none. */
static bool read_line(const cgroup_files *files, const char *name, char *line, size_t line_bytes)
{
    char path[3 * PATH_BYTES];
    snprintf(path, sizeof(path), "%s%s/%s", files->base, files->group, name);
    FILE *file = fopen(path, "r");
    if (!file) {
        return false;
    }
    bool ok = fgets(line, (int)line_bytes, file) != NULL;
    fclose(file);
    if (ok) {
        line[strcspn(line, "\n")] = 0;
    }
    return ok;
}

static bool parse_u64(const char *text, uint64_t *value_out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9') {
        return false; /* "max", "-1", empty */
    }
    *value_out = strtoull(text, &end, 10);
    return *end == 0 || *end == ' ';
}

static bool read_u64(const cgroup_files *files, const char *name, uint64_t *value_out)
{
    char line[64];
    return read_line(files, name, line, sizeof(line)) && parse_u64(line, value_out);
}

/* The value of "key N" in a file of such lines; 0 if absent. */
static uint64_t read_keyed(const char *path, const char *key)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        return 0;
    }
    char line[256];
    uint64_t value = 0;
    size_t length = strlen(key);
    while (fgets(line, sizeof(line), file)) {
        if (!strncmp(line, key, length) && (line[length] == ' ' || line[length] == ':')) {
            value = strtoull(line + length + 1, NULL, 10);
            break;
        }
    }
    fclose(file);
    return value;
}

static void apply_cpu(const cgroup_files *files, tti_cgroup_limits *limits)
{
    uint64_t quota = 0, period = 0;
    if (files->is_v2) {
        char line[64];
        if (!read_line(files, "cpu.max", line, sizeof(line)) || !parse_u64(line, &quota)) {
            return;
        }
        const char *space = strchr(line, ' ');
        if (!space || !parse_u64(space + 1, &period)) {
            return;
        }
    } else if (!read_u64(files, "cpu.cfs_quota_us", &quota) ||
               !read_u64(files, "cpu.cfs_period_us", &period)) {
        return;
    }
    if (quota == 0 || period == 0) {
        return;
    }
    double cpus = (double)quota / (double)period;
    if (limits->cpu_quota == 0 || cpus < limits->cpu_quota) {
        limits->cpu_quota = cpus;
    }
}

static void apply_memory(const cgroup_files *files, tti_cgroup_limits *limits)
{
    uint64_t limit, used = 0;
    const char *limit_name = files->is_v2 ? "memory.max" : "memory.limit_in_bytes";
    const char *used_name = files->is_v2 ? "memory.current" : "memory.usage_in_bytes";
    if (!read_u64(files, limit_name, &limit) || limit >= V1_NO_LIMIT) {
        return;
    }
    if (limit < limits->memory_limit_bytes) {
        limits->memory_limit_bytes = limit;
    }
    /* The group is charged for cached file pages, which the kernel drops before it refuses
     * anything: a model that was just read must not look like memory in use. */
    char path[3 * PATH_BYTES];
    snprintf(path, sizeof(path), "%s%s/memory.stat", files->base, files->group);
    uint64_t cached = read_keyed(path, files->is_v2 ? "inactive_file" : "total_inactive_file");
    read_u64(files, used_name, &used);
    used -= cached < used ? cached : used;
    uint64_t left = used < limit ? limit - used : 0;
    if (left < limits->memory_available_bytes) {
        limits->memory_available_bytes = left;
    }
}

/* Calls `apply` for the group and each of its parents, the mount's root included. */
static void walk_up(cgroup_files *files, tti_cgroup_limits *limits,
                    void (*apply)(const cgroup_files *, tti_cgroup_limits *))
{
    size_t end = strlen(files->group);
    while (end > 0 && files->group[end - 1] == '/') {
        files->group[--end] = 0;
    }
    if (strstr(files->group, "/..")) {
        files->group[0] = 0; /* outside this cgroup namespace: only its root can be seen */
    }
    for (;;) {
        apply(files, limits);
        char *slash = strrchr(files->group, '/');
        if (!slash) {
            return;
        }
        *slash = 0;
    }
}

static bool list_has(const char *list, const char *word)
{
    size_t length = strlen(word);
    while (*list) {
        size_t n = strcspn(list, ",");
        if (n == length && !strncmp(list, word, n)) {
            return true;
        }
        list += n + (list[n] == ',');
    }
    return false;
}

static bool file_exists(const char *path)
{
    FILE *file = fopen(path, "r");
    if (file) {
        fclose(file);
    }
    return file != NULL;
}

/* One line of /proc/self/cgroup, "id:controllers:group"; version 2 has id 0 and no controllers. */
static void apply_line(const char *root, char *line, tti_cgroup_limits *limits)
{
    static const struct {
        const char *controller;
        void (*apply)(const cgroup_files *, tti_cgroup_limits *);
    } readers[] = {{"cpu", apply_cpu}, {"memory", apply_memory}};
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) {
        return;
    }
    *controllers++ = 0;
    *group++ = 0;
    bool is_v2 = !strcmp(line, "0") && !*controllers;
    for (size_t r = 0; r < sizeof(readers) / sizeof(readers[0]); r++) {
        if (!is_v2 && !list_has(controllers, readers[r].controller)) {
            continue;
        }
        cgroup_files files = {.is_v2 = is_v2};
        if (is_v2) {
            /* Beside version 1 trees, systemd mounts the version 2 tree one level below. */
            char probe[2 * PATH_BYTES];
            snprintf(probe, sizeof(probe), "%s/sys/fs/cgroup/unified/cgroup.controllers", root);
            snprintf(files.base, sizeof(files.base), "%s/sys/fs/cgroup%s", root,
                     file_exists(probe) ? "/unified" : "");
        } else {
            snprintf(files.base, sizeof(files.base), "%s/sys/fs/cgroup/%s", root,
                     readers[r].controller);
        }
        snprintf(files.group, sizeof(files.group), "%s", group);
        walk_up(&files, limits, readers[r].apply);
        if (!is_v2 && strcmp(controllers, readers[r].controller) != 0) {
            /* Trees of several controllers: "cpu,cpuacct", where "cpu" need not be linked to it. */
            snprintf(files.base, sizeof(files.base), "%s/sys/fs/cgroup/%s", root, controllers);
            snprintf(files.group, sizeof(files.group), "%s", group);
            walk_up(&files, limits, readers[r].apply);
        }
    }
}

void tti_cgroup_read(const char *root, tti_cgroup_limits *limits_out)
{
    char path[2 * PATH_BYTES];
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    uint64_t total = read_keyed(path, "MemTotal") * BYTES_PER_KIB;
    uint64_t available = read_keyed(path, "MemAvailable") * BYTES_PER_KIB;
    *limits_out = (tti_cgroup_limits){
        .memory_total_bytes = total,
        .memory_limit_bytes = UINT64_MAX,
        .memory_available_bytes = available > 0 ? available : total,
    };
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    if (!file) {
        return;
    }
    char line[LINE_BYTES];
    while (fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = 0;
        apply_line(root, line, limits_out);
    }
    fclose(file);
}
