/* spin.c - backoff of waiting loops, and events. A short pause phase covers waits of about a
 * microsecond without leaving the core; after it each round yields, so that a thread that holds
 * up the others gets the core when ranks share cores. */
#define _GNU_SOURCE
#include "tutti/stream.h"
#include <sched.h>
#include <time.h>

enum {
    SPIN_PAUSES = 128, /* about 1-4 us: longer than a barrier, shorter than a time slice. Guessed */
    SPIN_YIELDS = 4000, /* about 1-2 ms of yields on an idle core before the sleepy form sleeps */
    SPIN_SLEEP_FIRST_NS = 50000, /* first sleeps: about what a wake-up costs */
    SPIN_SHORT_SLEEPS = 40,      /* about 4 ms of short sleeps, then long ones */
    SPIN_SLEEP_LONG_NS = 1000000 /* 1 ms: with about 5 us a wake-up, below 1 % of a core */
};

static inline void spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    /* "yield" is a no-op on most cores; isb waits about as long as x86's pause. */
    __asm__ volatile("isb" : : : "memory");
#endif
}

void tt_spin_once(tt_spin *spin)
{
    if (spin->n < SPIN_PAUSES) {
        spin->n++;
        spin_pause();
        return;
    }
    sched_yield();
}

void tt_spin_sleepy_once(tt_spin *spin)
{
    const uint32_t first_sleep = SPIN_PAUSES + SPIN_YIELDS;
    if (spin->n < SPIN_PAUSES) {
        spin_pause();
    } else if (spin->n < first_sleep) {
        sched_yield();
    } else {
        bool is_short = spin->n < first_sleep + SPIN_SHORT_SLEEPS;
        struct timespec t = {.tv_nsec = is_short ? SPIN_SLEEP_FIRST_NS : SPIN_SLEEP_LONG_NS};
        nanosleep(&t, NULL);
    }
    if (spin->n < first_sleep + SPIN_SHORT_SLEEPS) {
        spin->n++;
    }
}

bool tt_event_query(tt_event *event)
{
    return atomic_load_explicit(&event->done, memory_order_acquire) >= event->target;
}

void tt_event_wait(tt_event *event)
{
    tt_spin spin = {0};
    while (!tt_event_query(event)) {
        tt_spin_once(&spin);
    }
}
