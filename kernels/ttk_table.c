/* ttk_table.c - the choice among all versions of all ops.
 *
 * Rows stand in order of preference: ttk_init overlays every row whose needs the CPU meets, so
 * later rows win. The lists of ops and of versions are TTK_OPS (ttk.h) and TTK_VERSIONS_...
 * (ttk_versions.h); all here is made from them. */
#include "ttk.h"
#include "ttk_math.h"
#include "ttk_versions.h"
#include <string.h>

#define ROW(op, isa, need) {TTK_OP_##op, #op "_" #isa, (need), (ttk_any_fn *)ttk_##op##_##isa},
#define ROW_REF(op) ROW(op, ref, 0)
#define ROW_AVX2(op) ROW(op, avx2, TTK_CPU_AVX2)
#define ROW_AVX512(op) ROW(op, avx512, TTK_CPU_AVX512)
#define ROW_VNNI(op) ROW(op, vnni, TTK_CPU_AVX512 | TTK_CPU_AVX512_VNNI)
#define ROW_AMX(op, more) ROW(op, amx, TTK_CPU_AVX512 | TTK_CPU_AMX | (more))

/* clang-format off */
static const ttk_row rows[] = {
    TTK_OPS(ROW_REF)
#if TTK_HAVE_AVX2
    TTK_VERSIONS_AVX2(ROW_AVX2)
#endif
#if TTK_HAVE_AVX512
    TTK_VERSIONS_AVX512(ROW_AVX512)
    TTK_VERSIONS_VNNI(ROW_VNNI)
#endif
#if TTK_HAVE_AMX
    TTK_VERSIONS_AMX(ROW_AMX)
#endif
};
/* clang-format on */

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Where the version of each op stands in ttk_table. */
#define SLOT(op) offsetof(ttk_table, op),
static const size_t slots[TTK_OP_COUNT] = {TTK_OPS(SLOT)};

ttk_table ttk;
static ttk_set set_in_use;

const ttk_row *ttk_rows(size_t *n_rows_out)
{
    *n_rows_out = N_ROWS;
    return rows;
}

void ttk_init(unsigned cpu_flags)
{
    ttk_table fresh;
    memset(&fresh, 0, sizeof(fresh));
    unsigned used = 0;
    for (size_t i = 0; i < N_ROWS; i++) {
        if ((rows[i].need & ~cpu_flags) == 0) {
            /* By memcpy, as the slots have different pointer types of one representation. */
            memcpy((char *)&fresh + slots[rows[i].op], &rows[i].fn, sizeof(rows[i].fn));
            used |= rows[i].need;
        }
    }
    fresh.isa = used & TTK_CPU_AMX      ? "amx"
                : used & TTK_CPU_AVX512 ? "avx512"
                : used & TTK_CPU_AVX2   ? "avx2"
                                        : "ref";
    ttk = fresh;
    set_in_use = TTK_SET_FMA;
}

bool ttk_use_set(ttk_set set, unsigned cpu_flags)
{
    bool is_here = set != TTK_SET_AMX_BF16;
    for (size_t i = 0; i < N_ROWS; i++) {
        is_here = is_here || (rows[i].op == TTK_OP_gemm_bf16_pairs && rows[i].need != 0 &&
                              (rows[i].need & ~cpu_flags) == 0);
    }
    if (!is_here) {
        return false;
    }
    ttk_init(cpu_flags);
    if (set == TTK_SET_AMX_BF16) {
        ttk.gemm_bf16 = ttk.gemm_bf16_pairs;
    }
    set_in_use = set;
    return true;
}

const char *ttk_set_name(void)
{
    static const char *const names[] = {"fma", "amx-bf16", "blas"};
    return names[set_in_use];
}

size_t ttk_attend_work_floats(int64_t n, int64_t Dk, int64_t Dv)
{
    return (size_t)ttk_attend_work_cut(NULL, n, Dk, Dv).n_floats;
}

size_t ttk_attend_part_floats(int64_t Dv)
{
    return (size_t)(ttk_round_up(Dv, TTK_VALUE_CHUNK) + TTK_WORK_ALIGN);
}

size_t ttk_attend_part_state(int64_t Dv)
{
    return (size_t)ttk_round_up(Dv, TTK_VALUE_CHUNK);
}

float ttk_exp(float x)
{
    return ttk_math_exp(x);
}

float ttk_softplus(float x)
{
    return ttk_math_softplus(x);
}
