/* steady_interpose.c - takes the place of malloc and pthread_mutex_lock in a debug program,
 * counts and goes on to glibc. It must be linked into the program itself: a definition in the
 * executable wins over libc's in all its libraries. glibc keeps the real allocators under second
 * names, so none has to be looked up (a look-up would itself allocate). Elsewhere, in builds
 * without --enable-debug, and under sanitizers, which interpose the same names, this file is
 * empty. A wait on a condition needs a locked mutex, so counting pthread_mutex_lock covers it. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "steady.h"
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

/* Also keeps the file from being empty. */
TT_API extern const int tt_steady_is_interposed;

#if TT_DEBUG && !IS_SANITIZED && defined(__GLIBC__)
#include <dlfcn.h>
#include <pthread.h>

const int tt_steady_is_interposed = 1;

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *data, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

TT_API void *malloc(size_t bytes);
TT_API void *calloc(size_t n, size_t bytes);
TT_API void *realloc(void *data, size_t bytes);
TT_API void *aligned_alloc(size_t alignment, size_t bytes);
TT_API int posix_memalign(void **data_out, size_t alignment, size_t bytes);
TT_API int pthread_mutex_lock(pthread_mutex_t *mutex);

void *malloc(size_t bytes)
{
    tt_steady_count_allocation();
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    tt_steady_count_allocation();
    return __libc_calloc(n, bytes);
}

void *realloc(void *data, size_t bytes)
{
    tt_steady_count_allocation();
    return __libc_realloc(data, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    tt_steady_count_allocation();
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **data_out, size_t alignment, size_t bytes)
{
    tt_steady_count_allocation();
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0) {
        return EINVAL;
    }
    void *data = __libc_memalign(alignment, bytes);
    if (!data) {
        return ENOMEM;
    }
    *data_out = data;
    return 0;
}

typedef int lock_fn(pthread_mutex_t *mutex);

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static _Atomic(lock_fn *) real;
    lock_fn *lock = atomic_load_explicit(&real, memory_order_relaxed);
    if (!lock) {
        /* POSIX lets a data pointer from dlsym hold a function's address; C asks for this
         * detour. */
        *(void **)&lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
        atomic_store_explicit(&real, lock, memory_order_relaxed);
    }
    tt_steady_count_lock();
    return lock(mutex);
}
#else
const int tt_steady_is_interposed = 0;
#endif
