/* compiler.h - the few compiler extensions that the headers use, and checked narrowing casts.
 * Everything outside this file and the ISA kernels is plain C11. */
#ifndef TUTTI_COMPILER_H
#define TUTTI_COMPILER_H
#include <stdint.h>

#ifndef TT_DEBUG
#define TT_DEBUG 0 /* 1 when configured with --enable-debug */
#endif

#if defined(__GNUC__)
#define TT_API __attribute__((visibility("default")))
#define TT_PRINTF(format_arg, first_arg) __attribute__((format(printf, format_arg, first_arg)))
#define TT_NORETURN __attribute__((noreturn))
#else
#define TT_API
#define TT_PRINTF(format_arg, first_arg)
#define TT_NORETURN
#endif

enum { TT_CACHE_LINE = 64 }; /* bytes; also the alignment of every tensor */

typedef uint16_t tt_bf16; /* the upper half of an IEEE binary32 */

#endif
