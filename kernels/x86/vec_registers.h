/* vec_registers.h - how loops over registers are written, for every vec_*.h.
 *
 * A body that serves several ISAs is written once, in terms of what each vec_*.h defines: `vec` and
 * `veci` are registers, VEC is the floats in one, MM(add_ps) is _mm256_add_ps or _mm512_add_ps, and
 * MMI(and) is _mm256_and_si256 or _mm512_and_si512. It is included by a file of the ISA, which adds
 * what only that has, and becomes the same instructions as if it were written for it. */
#ifndef TUTTI_TTK_VEC_REGISTERS_H
#define TUTTI_TTK_VEC_REGISTERS_H
#include "ttk_math.h"

#define TTK_INLINE static inline __attribute__((always_inline))

/* Before a loop over registers, which must be unrolled for its arrays to become registers. */
#if defined(__clang__)
#define TTK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TTK_UNROLL _Pragma("GCC unroll 32")
#endif

#endif
