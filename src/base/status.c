/* status.c - the message and the trace of the last failure, one of each per thread. */
#include "tutti/status.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRACE_BYTES = 2048 }; /* about twenty levels; what does not fit is dropped */

static _Thread_local char message[TT_STATUS_MESSAGE_BYTES];
static _Thread_local char trace[TRACE_BYTES];

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

tt_status tt_status_fail(tt_status code, const char *file, int line, const char *format, ...)
{
    /* A caller may pass the old message as an argument, so the new one is made beside it. */
    char fresh[TT_STATUS_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(fresh, sizeof(fresh), format, args);
    va_end(args);
    memcpy(message, fresh, sizeof(message));
    snprintf(trace, sizeof(trace), "  %s at %s:%d\n", tt_status_name(code), base_name(file), line);
    return code;
}

tt_status tt_status_trace(tt_status code, const char *file, int line, const char *function)
{
    size_t used = strlen(trace);
    snprintf(trace + used, sizeof(trace) - used, "  from %s at %s:%d\n", function, base_name(file),
             line);
    return code;
}

tt_status tt_status_adopt(tt_status code, const char *text)
{
    char fresh[TT_STATUS_MESSAGE_BYTES];
    snprintf(fresh, sizeof(fresh), "%s", text);
    memcpy(message, fresh, sizeof(message));
    trace[0] = 0;
    return code;
}

const char *tt_status_message(void)
{
    return message;
}

const char *tt_status_trace_text(void)
{
    return trace;
}

const char *tt_status_name(tt_status code)
{
    switch (code) {
    case TT_OK:
        return "TT_OK";
    case TT_ERR_ARG:
        return "TT_ERR_ARG";
    case TT_ERR_USAGE:
        return "TT_ERR_USAGE";
    case TT_ERR_STATE:
        return "TT_ERR_STATE";
    case TT_ERR_UNSUPPORTED:
        return "TT_ERR_UNSUPPORTED";
    case TT_ERR_REQUEST:
        return "TT_ERR_REQUEST";
    case TT_ERR_NUMERIC:
        return "TT_ERR_NUMERIC";
    case TT_ERR_FILE:
        return "TT_ERR_FILE";
    case TT_ERR_IO:
        return "TT_ERR_IO";
    case TT_ERR_NOMEM:
        return "TT_ERR_NOMEM";
    case TT_ERR_FIT:
        return "TT_ERR_FIT";
    case TT_ERR_CAPACITY:
        return "TT_ERR_CAPACITY";
    case TT_ERR_MISMATCH:
        return "TT_ERR_MISMATCH";
    case TT_ERR_PROTOCOL:
        return "TT_ERR_PROTOCOL";
    case TT_ERR_MPI:
        return "TT_ERR_MPI";
    case TT_ERR_TIMEOUT:
        return "TT_ERR_TIMEOUT";
    case TT_ERR_PEER:
        return "TT_ERR_PEER";
    }
    return "unknown status";
}

int tt_status_exit_code(tt_status code)
{
    switch (code) {
    case TT_OK:
        return 0;
    case TT_ERR_USAGE:
        return 2;
    case TT_ERR_FILE:
    case TT_ERR_UNSUPPORTED:
    case TT_ERR_FIT:
    case TT_ERR_REQUEST:
        return 3;
    case TT_ERR_TIMEOUT:
    case TT_ERR_PEER:
        return 4;
    default:
        return 1;
    }
}

#if TT_DEBUG
void tt_assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "tutti: assertion failed: %s at %s:%d\n", condition, base_name(file), line);
    abort();
}
#endif
