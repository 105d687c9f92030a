/* cpu.c - CPUID says what the processor has, XGETBV what the operating system saves on a context
 * switch; a feature counts only with both. AMX state is given to a process on request only, so
 * the kernel is asked once. */
#define _GNU_SOURCE /* syscall */
#include "tutti/cpu.h"
#include "ttk.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/log.h"

enum { CPU_NAME_BYTES = 128 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned flags;
static char name[CPU_NAME_BYTES];

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    /* arch_prctl(2) and XCR0 bits, from the Intel SDM volume 1, chapter 13 */
    REQUEST_XSTATE_PERMISSION = 0x1023, /* ARCH_REQ_XCOMP_PERM, absent from older headers */
    XSTATE_TILE_DATA = 18,
    XCR0_AVX = 0x6,       /* SSE and AVX state */
    XCR0_AVX512 = 0xe6,   /* and masks, upper halves, upper registers */
    XCR0_AMX = 0x3 << 17, /* tile configuration and data */
    /* CPUID leaf 7, EDX; not all compilers' headers have them */
    CPUID_AMX_BF16 = 1 << 22,
    CPUID_AMX_TILE = 1 << 24,
    CPUID_AMX_INT8 = 1 << 25,
    CPUID_AVX512_BF16 = 1 << 5, /* leaf 7.1, EAX */
    CPUID_BRAND_FIRST = (int)0x80000002u,
    CPUID_BRAND_LEAVES = 3,
    CPUID_BRAND_BYTES = 48 /* 3 leaves of 16 bytes */
};

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static unsigned detect_flags(void)
{
    unsigned a, b, c, d;
    unsigned found = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) {
        return 0;
    }
    uint64_t xcr0 = read_xcr0();
    bool has_base = (c & bit_AVX) && (c & bit_FMA) && (c & bit_F16C);
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has_base || !(b & bit_AVX2) ||
        (xcr0 & XCR0_AVX) != XCR0_AVX) {
        return 0;
    }
    found |= TTK_CPU_AVX2;
    unsigned need = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    if ((b & need) == need && (xcr0 & XCR0_AVX512) == XCR0_AVX512) {
        found |= TTK_CPU_AVX512;
        if (c & bit_AVX512VNNI) {
            found |= TTK_CPU_AVX512_VNNI;
        }
    }
    unsigned amx = CPUID_AMX_TILE | CPUID_AMX_INT8 | CPUID_AMX_BF16;
    bool has_amx = (found & TTK_CPU_AVX512_VNNI) && (d & amx) == amx &&
                   __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & CPUID_AVX512_BF16);
    if (has_amx && (xcr0 & XCR0_AMX) == XCR0_AMX &&
        syscall(SYS_arch_prctl, REQUEST_XSTATE_PERMISSION, XSTATE_TILE_DATA) == 0) {
        found |= TTK_CPU_AMX;
    }
    return found;
}

static void detect_name(void)
{
    unsigned words[CPUID_BRAND_BYTES / sizeof(unsigned)];
    for (unsigned leaf = 0; leaf < CPUID_BRAND_LEAVES; leaf++) {
        unsigned *w = words + 4 * leaf;
        if (!__get_cpuid((unsigned)CPUID_BRAND_FIRST + leaf, w, w + 1, w + 2, w + 3)) {
            return;
        }
    }
    char text[CPUID_BRAND_BYTES + 1] = {0};
    memcpy(text, words, CPUID_BRAND_BYTES);
    size_t begin = strspn(text, " ");
    size_t end = strlen(text);
    while (end > begin && text[end - 1] == ' ') {
        end--;
    }
    text[end] = 0;
    snprintf(name, sizeof(name), "%s", text + begin);
}
#else
static unsigned detect_flags(void)
{
    return 0;
}

/* The "model name" or "CPU part" line of /proc/cpuinfo, if there is one. */
static void detect_name(void)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) {
        return;
    }
    char line[256];
    while (!name[0] && fgets(line, sizeof(line), file)) {
        char *colon = strchr(line, ':');
        if (colon && (!strncmp(line, "model name", 10) || !strncmp(line, "CPU part", 8))) {
            line[strcspn(line, "\n")] = 0;
            snprintf(name, sizeof(name), "%s", colon + 1 + strspn(colon + 1, " "));
        }
    }
    fclose(file);
}
#endif

/* What TUTTI_CPU_HIDE takes away. A level that others build upon takes these along, so that
 * hiding it shows the program on a CPU that could exist. */
static const struct {
    const char *name;
    unsigned hidden;
} hide_words[] = {
    {"avx2", TTK_CPU_AVX2 | TTK_CPU_AVX512 | TTK_CPU_AVX512_VNNI | TTK_CPU_AMX},
    {"avx512", TTK_CPU_AVX512 | TTK_CPU_AVX512_VNNI | TTK_CPU_AMX},
    {"vnni", TTK_CPU_AVX512_VNNI | TTK_CPU_AMX},
    {"amx", TTK_CPU_AMX},
};

static unsigned hidden_flags(const char *list)
{
    unsigned hidden = 0;
    while (list && *list) {
        size_t length = strcspn(list, ",");
        bool known = length == 0;
        for (size_t i = 0; i < sizeof(hide_words) / sizeof(hide_words[0]); i++) {
            if (length == strlen(hide_words[i].name) &&
                !strncmp(list, hide_words[i].name, length)) {
                hidden |= hide_words[i].hidden;
                known = true;
            }
        }
        if (!known) {
            tt_log(TT_LOG_WARN, "TUTTI_CPU_HIDE: '%.*s' is none of avx2, avx512, vnni, amx",
                   (int)length, list);
        }
        list += length + (list[length] == ',');
    }
    return hidden;
}

static void detect(void)
{
    flags = detect_flags() & ~hidden_flags(getenv("TUTTI_CPU_HIDE"));
    detect_name();
    if (!name[0]) {
        snprintf(name, sizeof(name), "unknown processor");
    }
}

unsigned tt_cpu_flags(void)
{
    pthread_once(&once, detect);
    return flags;
}

const char *tt_cpu_name(void)
{
    pthread_once(&once, detect);
    return name;
}
