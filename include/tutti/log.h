/* log.h - log lines on stderr: lower case, "rank 3: message".
 * Threads: any thread; a line is written by one call. MPI: none (the rank is told by
 * tt_log_set_rank). */
#ifndef TUTTI_LOG_H
#define TUTTI_LOG_H
#include "tutti/compiler.h"

typedef enum tt_log_level {
    TT_LOG_ERROR = 0, /* cannot go on */
    TT_LOG_WARN = 1,  /* odd */
    TT_LOG_INFO = 2,  /* once per run */
    TT_LOG_DEBUG = 3  /* per object */
} tt_log_level;

/* Lines above this level are dropped. Default TT_LOG_WARN; TUTTI_VERBOSE=0..3 sets it. */
TT_API void tt_log_set_level(tt_log_level level);
TT_API tt_log_level tt_log_get_level(void);
/* Sets the rank that prefixes each line; -1 (default) prints none. */
TT_API void tt_log_set_rank(int rank);
TT_API void tt_log(tt_log_level level, const char *format, ...) TT_PRINTF(2, 3);

#endif
