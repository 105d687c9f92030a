/* steady.c - counts heap allocations and mutex locks, to prove that the step path has none. The
 * counts come from steady_interpose.c; while a thread is inside a foreign library (MPI), its own
 * are not counted. */
#include "steady.h"
#include <stdatomic.h>
#include <stdlib.h>
#include "tutti/trace.h"

static _Atomic uint64_t n_allocations;
static _Atomic uint64_t n_locks;
static _Atomic bool is_linked; /* an interposer has called */
static _Thread_local int foreign_depth;

void tt_steady_count_allocation(void)
{
    if (!atomic_load_explicit(&is_linked, memory_order_relaxed)) {
        atomic_store_explicit(&is_linked, true, memory_order_relaxed);
    }
    if (foreign_depth == 0) {
        atomic_fetch_add_explicit(&n_allocations, 1, memory_order_relaxed);
    }
}

void tt_steady_count_lock(void)
{
    if (foreign_depth == 0) {
        atomic_fetch_add_explicit(&n_locks, 1, memory_order_relaxed);
    }
}

bool tt_steady_is_counting(void)
{
#if TT_DEBUG
    if (!atomic_load_explicit(&is_linked, memory_order_relaxed)) {
        /* Asked before the first allocation, or there is no interposer: one allocation tells. */
        void *volatile probe = malloc(1);
        free(probe);
    }
#endif
    return atomic_load_explicit(&is_linked, memory_order_relaxed);
}

uint64_t tt_steady_allocations(void)
{
    return atomic_load_explicit(&n_allocations, memory_order_relaxed);
}

uint64_t tt_steady_locks(void)
{
    return atomic_load_explicit(&n_locks, memory_order_relaxed);
}

void tt_steady_enter_foreign(void)
{
    foreign_depth++;
}

void tt_steady_leave_foreign(void)
{
    TT_ASSERT(foreign_depth > 0);
    foreign_depth--;
}
