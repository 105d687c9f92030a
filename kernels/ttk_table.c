/* ttk_table.c - the one place that knows all versions of all ops.
 *
 * Rows stand in order of preference: ttk_init overlays every row whose needs the CPU meets, so
 * later rows win. A new version is a file, its name in ttk_versions.h and Makefile.inc, and a row
 * here. The unused NULL arm of the conditional in TTK_ROW makes a wrong signature a compiler
 * warning. */
#include "ttk.h"
#include "ttk_math.h"
#include "ttk_versions.h"
#include <string.h>

#define TTK_ROW(op, isa, need)                                                                     \
    {                                                                                              \
        TTK_OP_##op, #op "_" #isa, (need),                                                         \
            (ttk_any_fn *)(1 ? ttk_##op##_##isa : (ttk_##op##_fn *)0)                              \
    }

static const ttk_row rows[] = {
    TTK_ROW(pack, ref, 0),
    TTK_ROW(pack_quant, ref, 0),
    TTK_ROW(unpack, ref, 0),
    TTK_ROW(quantize, ref, 0),
    TTK_ROW(gemm_f32, ref, 0),
    TTK_ROW(gemm_bf16, ref, 0),
    TTK_ROW(gemm_bf16_pairs, ref, 0),
    TTK_ROW(gemm_quant, ref, 0),
    TTK_ROW(act8, ref, 0),
    TTK_ROW(gemm_act8, ref, 0),
    TTK_ROW(row8, ref, 0),
    TTK_ROW(row8_f32, ref, 0),
    TTK_ROW(row8_act8, ref, 0),
    TTK_ROW(rmsnorm_f32, ref, 0),
    TTK_ROW(layernorm_f32, ref, 0),
    TTK_ROW(rope_f32, ref, 0),
    TTK_ROW(silu_mul_f32, ref, 0),
    TTK_ROW(clamped_mul_f32, ref, 0),
    TTK_ROW(add_f32, ref, 0),
    TTK_ROW(axpy_f32, ref, 0),
    TTK_ROW(f32_to_bf16, ref, 0),
    TTK_ROW(bf16_to_f32, ref, 0),
    TTK_ROW(sigmoid_f32, ref, 0),
    TTK_ROW(softmax_f32, ref, 0),
    TTK_ROW(attend, ref, 0),
    TTK_ROW(attend_merge, ref, 0),
    TTK_ROW(conv_silu_f32, ref, 0),
    TTK_ROW(delta, ref, 0),
    TTK_ROW(topk_f32, ref, 0),
    TTK_ROW(argmax_f32, ref, 0),
#if TTK_HAVE_AVX2
    TTK_ROW(pack, avx2, TTK_CPU_AVX2),
    TTK_ROW(pack_quant, avx2, TTK_CPU_AVX2),
    TTK_ROW(quantize, avx2, TTK_CPU_AVX2),
    TTK_ROW(gemm_f32, avx2, TTK_CPU_AVX2),
    TTK_ROW(gemm_bf16, avx2, TTK_CPU_AVX2),
    TTK_ROW(gemm_quant, avx2, TTK_CPU_AVX2),
    TTK_ROW(act8, avx2, TTK_CPU_AVX2),
    TTK_ROW(gemm_act8, avx2, TTK_CPU_AVX2),
    TTK_ROW(row8, avx2, TTK_CPU_AVX2),
    TTK_ROW(row8_f32, avx2, TTK_CPU_AVX2),
    TTK_ROW(row8_act8, avx2, TTK_CPU_AVX2),
    TTK_ROW(rmsnorm_f32, avx2, TTK_CPU_AVX2),
    TTK_ROW(layernorm_f32, avx2, TTK_CPU_AVX2),
    TTK_ROW(rope_f32, avx2, TTK_CPU_AVX2),
    TTK_ROW(silu_mul_f32, avx2, TTK_CPU_AVX2),
    TTK_ROW(clamped_mul_f32, avx2, TTK_CPU_AVX2),
    TTK_ROW(add_f32, avx2, TTK_CPU_AVX2),
    TTK_ROW(axpy_f32, avx2, TTK_CPU_AVX2),
    TTK_ROW(f32_to_bf16, avx2, TTK_CPU_AVX2),
    TTK_ROW(bf16_to_f32, avx2, TTK_CPU_AVX2),
    TTK_ROW(sigmoid_f32, avx2, TTK_CPU_AVX2),
    TTK_ROW(softmax_f32, avx2, TTK_CPU_AVX2),
    TTK_ROW(attend, avx2, TTK_CPU_AVX2),
    TTK_ROW(attend_merge, avx2, TTK_CPU_AVX2),
    TTK_ROW(conv_silu_f32, avx2, TTK_CPU_AVX2),
    TTK_ROW(delta, avx2, TTK_CPU_AVX2),
    TTK_ROW(argmax_f32, avx2, TTK_CPU_AVX2),
#endif
#if TTK_HAVE_AVX512
    TTK_ROW(gemm_f32, avx512, TTK_CPU_AVX512),
    TTK_ROW(gemm_bf16, avx512, TTK_CPU_AVX512),
    TTK_ROW(gemm_quant, avx512, TTK_CPU_AVX512),
    TTK_ROW(gemm_act8, vnni, TTK_CPU_AVX512 | TTK_CPU_AVX512_VNNI),
    TTK_ROW(rmsnorm_f32, avx512, TTK_CPU_AVX512),
    TTK_ROW(layernorm_f32, avx512, TTK_CPU_AVX512),
    TTK_ROW(rope_f32, avx512, TTK_CPU_AVX512),
    TTK_ROW(silu_mul_f32, avx512, TTK_CPU_AVX512),
    TTK_ROW(clamped_mul_f32, avx512, TTK_CPU_AVX512),
    TTK_ROW(add_f32, avx512, TTK_CPU_AVX512),
    TTK_ROW(axpy_f32, avx512, TTK_CPU_AVX512),
    TTK_ROW(f32_to_bf16, avx512, TTK_CPU_AVX512),
    TTK_ROW(bf16_to_f32, avx512, TTK_CPU_AVX512),
    TTK_ROW(sigmoid_f32, avx512, TTK_CPU_AVX512),
    TTK_ROW(softmax_f32, avx512, TTK_CPU_AVX512),
    TTK_ROW(attend, avx512, TTK_CPU_AVX512),
    TTK_ROW(attend_merge, avx512, TTK_CPU_AVX512),
    TTK_ROW(conv_silu_f32, avx512, TTK_CPU_AVX512),
    TTK_ROW(delta, avx512, TTK_CPU_AVX512),
    TTK_ROW(argmax_f32, avx512, TTK_CPU_AVX512),
#endif
#if TTK_HAVE_AMX
    TTK_ROW(gemm_bf16_pairs, amx, TTK_CPU_AVX512 | TTK_CPU_AMX),
    TTK_ROW(gemm_act8, amx, TTK_CPU_AVX512 | TTK_CPU_AVX512_VNNI | TTK_CPU_AMX),
#endif
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Where the version of each op stands in ttk_table. */
static const size_t slots[TTK_OP_COUNT] = {
    [TTK_OP_pack] = offsetof(ttk_table, pack),
    [TTK_OP_pack_quant] = offsetof(ttk_table, pack_quant),
    [TTK_OP_unpack] = offsetof(ttk_table, unpack),
    [TTK_OP_quantize] = offsetof(ttk_table, quantize),
    [TTK_OP_gemm_f32] = offsetof(ttk_table, gemm_f32),
    [TTK_OP_gemm_bf16] = offsetof(ttk_table, gemm_bf16),
    [TTK_OP_gemm_bf16_pairs] = offsetof(ttk_table, gemm_bf16_pairs),
    [TTK_OP_gemm_quant] = offsetof(ttk_table, gemm_quant),
    [TTK_OP_act8] = offsetof(ttk_table, act8),
    [TTK_OP_gemm_act8] = offsetof(ttk_table, gemm_act8),
    [TTK_OP_row8] = offsetof(ttk_table, row8),
    [TTK_OP_row8_f32] = offsetof(ttk_table, row8_f32),
    [TTK_OP_row8_act8] = offsetof(ttk_table, row8_act8),
    [TTK_OP_rmsnorm_f32] = offsetof(ttk_table, rmsnorm_f32),
    [TTK_OP_layernorm_f32] = offsetof(ttk_table, layernorm_f32),
    [TTK_OP_rope_f32] = offsetof(ttk_table, rope_f32),
    [TTK_OP_silu_mul_f32] = offsetof(ttk_table, silu_mul_f32),
    [TTK_OP_clamped_mul_f32] = offsetof(ttk_table, clamped_mul_f32),
    [TTK_OP_add_f32] = offsetof(ttk_table, add_f32),
    [TTK_OP_axpy_f32] = offsetof(ttk_table, axpy_f32),
    [TTK_OP_f32_to_bf16] = offsetof(ttk_table, f32_to_bf16),
    [TTK_OP_bf16_to_f32] = offsetof(ttk_table, bf16_to_f32),
    [TTK_OP_sigmoid_f32] = offsetof(ttk_table, sigmoid_f32),
    [TTK_OP_softmax_f32] = offsetof(ttk_table, softmax_f32),
    [TTK_OP_attend] = offsetof(ttk_table, attend),
    [TTK_OP_attend_merge] = offsetof(ttk_table, attend_merge),
    [TTK_OP_conv_silu_f32] = offsetof(ttk_table, conv_silu_f32),
    [TTK_OP_delta] = offsetof(ttk_table, delta),
    [TTK_OP_topk_f32] = offsetof(ttk_table, topk_f32),
    [TTK_OP_argmax_f32] = offsetof(ttk_table, argmax_f32),
};

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
