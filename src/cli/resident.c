/* resident.c - reads /proc/self: status has a process's own view, smaps_rollup (Linux 4.14) shares
 * out what several map. */
#include "config.h"
#include "resident.h"
#include <stdio.h>
#include "tutti/memory.h"

enum { LINE_BYTES = 256, KIB = 1024 };

/* Bytes of the line "KEY  NUMBER kB" of a file; 0 if there is none. */
static uint64_t read_kib(const char *path, const char *format)
{
    char line[LINE_BYTES];
    unsigned long long kib = 0;
    FILE *file = fopen(path, "r");
    while (file && kib == 0 && fgets(line, sizeof(line), file)) {
        (void)sscanf(line, format, &kib);
    }
    if (file) {
        fclose(file);
    }
    return (uint64_t)kib * KIB;
}

tti_cli_resident tti_cli_resident_now(const tt_world *world)
{
    return (tti_cli_resident){.rss_bytes = read_kib("/proc/self/status", "VmRSS: %llu kB"),
                              .rss_most_bytes = read_kib("/proc/self/status", "VmHWM: %llu kB"),
                              .pss_bytes = read_kib("/proc/self/smaps_rollup", "Pss: %llu kB"),
                              .held_bytes = tt_memory_used_bytes(),
                              .window_bytes = world ? tt_world_window_bytes(world) : 0};
}
