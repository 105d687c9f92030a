/* log.c - one line per call on stderr, so that lines of many threads and ranks do not mix. */
#include "tutti/log.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINE_BYTES = 2048 };

static _Atomic int log_level = -1; /* -1: not set, the environment decides */
static _Atomic int log_rank = -1;

void tt_log_set_level(tt_log_level level)
{
    atomic_store(&log_level, (int)level);
}

tt_log_level tt_log_get_level(void)
{
    int level = atomic_load(&log_level);
    if (level < 0) {
        const char *text = getenv("TUTTI_VERBOSE");
        level =
            text && text[0] >= '0' && text[0] <= '3' && text[1] == 0 ? text[0] - '0' : TT_LOG_WARN;
        atomic_store(&log_level, level);
    }
    return (tt_log_level)level;
}

void tt_log_set_rank(int rank)
{
    atomic_store(&log_rank, rank);
}

void tt_log(tt_log_level level, const char *format, ...)
{
    if (level > tt_log_get_level()) {
        return;
    }
    static const char *const names[] = {"error: ", "warning: ", "", ""};
    char line[LINE_BYTES];
    int rank = atomic_load(&log_rank);
    int used = rank >= 0 ? snprintf(line, sizeof(line), "tutti: rank %d: %s", rank, names[level])
                         : snprintf(line, sizeof(line), "tutti: %s", names[level]);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, args);
    va_end(args);
    size_t end = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (end > sizeof(line) - 2) {
        end = sizeof(line) - 2;
    }
    line[end] = '\n';
    line[end + 1] = 0;
    fputs(line, stderr);
}
