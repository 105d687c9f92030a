/* status.h - status codes and error text with causes.
 *
 * A function that can fail returns tt_status. The function that first knows the cause records
 * a message (TT_FAIL, TT_CHECK); callers only add a trace line (TT_TRY). The library never prints
 * errors: the program prints tt_status_message() once.
 *
 * Threads: message and trace are per thread. MPI: none. */
#ifndef TUTTI_STATUS_H
#define TUTTI_STATUS_H
#include <stdarg.h>
#include <stddef.h>
#include "tutti/compiler.h"

/* 0 is success; more negative is worse, so that MPI_MIN finds the worst. Ranges say what is
 * lost. */
typedef enum tt_status {
    TT_OK = 0,
    /* lost: the call */
    TT_ERR_ARG = -1,         /* a caller's value is out of range (a bug or an API misuse) */
    TT_ERR_USAGE = -2,       /* a user's option or combination of options; exit code 2 */
    TT_ERR_STATE = -3,       /* called in the wrong order */
    TT_ERR_UNSUPPORTED = -4, /* well-formed, but not built or not known */
    /* lost: the request */
    TT_ERR_REQUEST = -20, /* a request that cannot be served, as a prompt above the context */
    TT_ERR_NUMERIC = -21, /* NaN where a number must be */
    /* lost: the model or input */
    TT_ERR_FILE = -30,  /* a bad or missing model or input file; exit code 3 */
    TT_ERR_IO = -31,    /* the operating system refused a read or write */
    TT_ERR_NOMEM = -32, /* an allocation failed */
    TT_ERR_FIT = -33,   /* known before loading: it cannot fit in this memory; exit code 3 */
    /* lost: the step */
    TT_ERR_CAPACITY = -40, /* a fixed buffer would overflow */
    /* lost: the whole group of ranks; only local calls and destroy are legal afterwards */
    TT_ERR_MISMATCH = -60, /* ranks disagree on a value that must be equal */
    TT_ERR_PROTOCOL = -61, /* a message that does not belong here */
    TT_ERR_MPI = -62,      /* an MPI call failed; the message holds MPI's own text */
    TT_ERR_TIMEOUT = -63,  /* a peer did not answer within the deadline; exit code 4 */
    TT_ERR_PEER = -64      /* a peer failed; exit code 4 */
} tt_status;

enum { TT_STATUS_MESSAGE_BYTES = 1024 }; /* longest message, with its NUL */

/* Records the message of a new failure on this thread, clears the trace, returns code. */
TT_API tt_status tt_status_fail(tt_status code, const char *file, int line, const char *format, ...)
    TT_PRINTF(4, 5);
/* Adds "file:line function" to this thread's trace, returns code. */
TT_API tt_status tt_status_trace(tt_status code, const char *file, int line, const char *function);
/* Takes over a message that came from elsewhere (another thread or rank), returns code. */
TT_API tt_status tt_status_adopt(tt_status code, const char *message);
/* The message of this thread's last failure; "" if there was none. Valid until the next failure. */
TT_API const char *tt_status_message(void);
/* The trace of this thread's last failure, one line per level; "" if none. */
TT_API const char *tt_status_trace_text(void);
/* The name of a code, as "TT_ERR_FILE"; never NULL. */
TT_API const char *tt_status_name(tt_status code);
/* The program's exit code for a status: 0 done, 1 run-time failure, 2 usage, 3 bad model or
 * input, 4 a peer failed or timed out. */
TT_API int tt_status_exit_code(tt_status code);

/* An analyser of the caller alone cannot see that these return the code that they are given. `code`
 * is evaluated twice. */
#define TT_STATUS_GIVEN(call, code) ((void)(call), (code))
#define TT_FAIL(code, ...)                                                                         \
    TT_STATUS_GIVEN(tt_status_fail((code), __FILE__, __LINE__, __VA_ARGS__), (code))
#define TT_TRY(call)                                                                               \
    do {                                                                                           \
        tt_status tt_try_status = (call);                                                          \
        if (tt_try_status != TT_OK) {                                                              \
            return TT_STATUS_GIVEN(tt_status_trace(tt_try_status, __FILE__, __LINE__, __func__),   \
                                   tt_try_status);                                                 \
        }                                                                                          \
    } while (0)
#define TT_CHECK(cond, code, ...)                                                                  \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            return TT_FAIL((code), __VA_ARGS__);                                                   \
        }                                                                                          \
    } while (0)

/* For what only our own bug can break; compiled away without --enable-debug. */
#if TT_DEBUG
TT_API TT_NORETURN void tt_assert_failed(const char *condition, const char *file, int line);
#define TT_ASSERT(cond) ((cond) ? (void)0 : tt_assert_failed(#cond, __FILE__, __LINE__))
#else
#define TT_ASSERT(cond) ((void)sizeof(!(cond)))
#endif

#endif
