/* steady.h - between the interposers (steady_interpose.c, linked into a debug program) and the
 * counters (steady.c, in the library). Exported, because the two may lie in different shared
 * objects. Not installed. */
#ifndef TUTTI_BASE_STEADY_H
#define TUTTI_BASE_STEADY_H
#include "tutti/compiler.h"

TT_API void tt_steady_count_allocation(void);
TT_API void tt_steady_count_lock(void);

#endif
