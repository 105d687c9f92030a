/* ttk_versions.h - every compiled version of every op, declared through the function type that is
 * its contract; and how the versions of attend share out their work buffer. Private to kernels/. */
#ifndef TUTTI_TTK_VERSIONS_H
#define TUTTI_TTK_VERSIONS_H
#include "ttk.h"

ttk_pack_fn ttk_pack_ref, ttk_pack_avx2;
ttk_pack_quant_fn ttk_pack_quant_ref, ttk_pack_quant_avx2;
ttk_unpack_fn ttk_unpack_ref;
ttk_quantize_fn ttk_quantize_ref, ttk_quantize_avx2;
ttk_gemm_f32_fn ttk_gemm_f32_ref, ttk_gemm_f32_avx2, ttk_gemm_f32_avx512;
ttk_gemm_bf16_fn ttk_gemm_bf16_ref, ttk_gemm_bf16_avx2, ttk_gemm_bf16_avx512;
ttk_gemm_quant_fn ttk_gemm_quant_ref, ttk_gemm_quant_avx2, ttk_gemm_quant_avx512;
ttk_act8_fn ttk_act8_ref, ttk_act8_avx2;
ttk_gemm_act8_fn ttk_gemm_act8_ref, ttk_gemm_act8_avx2, ttk_gemm_act8_vnni;
ttk_rmsnorm_f32_fn ttk_rmsnorm_f32_ref, ttk_rmsnorm_f32_avx2, ttk_rmsnorm_f32_avx512;
ttk_layernorm_f32_fn ttk_layernorm_f32_ref, ttk_layernorm_f32_avx2, ttk_layernorm_f32_avx512;
ttk_rope_f32_fn ttk_rope_f32_ref, ttk_rope_f32_avx2, ttk_rope_f32_avx512;
ttk_silu_mul_f32_fn ttk_silu_mul_f32_ref, ttk_silu_mul_f32_avx2, ttk_silu_mul_f32_avx512;
ttk_clamped_mul_f32_fn ttk_clamped_mul_f32_ref, ttk_clamped_mul_f32_avx2,
    ttk_clamped_mul_f32_avx512;
ttk_add_f32_fn ttk_add_f32_ref, ttk_add_f32_avx2, ttk_add_f32_avx512;
ttk_axpy_f32_fn ttk_axpy_f32_ref, ttk_axpy_f32_avx2, ttk_axpy_f32_avx512;
ttk_f32_to_bf16_fn ttk_f32_to_bf16_ref, ttk_f32_to_bf16_avx2, ttk_f32_to_bf16_avx512;
ttk_bf16_to_f32_fn ttk_bf16_to_f32_ref, ttk_bf16_to_f32_avx2, ttk_bf16_to_f32_avx512;
ttk_sigmoid_f32_fn ttk_sigmoid_f32_ref, ttk_sigmoid_f32_avx2, ttk_sigmoid_f32_avx512;
ttk_softmax_f32_fn ttk_softmax_f32_ref, ttk_softmax_f32_avx2, ttk_softmax_f32_avx512;
ttk_attend_fn ttk_attend_ref, ttk_attend_avx2, ttk_attend_avx512;
ttk_conv_silu_f32_fn ttk_conv_silu_f32_ref, ttk_conv_silu_f32_avx2, ttk_conv_silu_f32_avx512;
ttk_delta_fn ttk_delta_ref, ttk_delta_avx2, ttk_delta_avx512;
ttk_topk_f32_fn ttk_topk_f32_ref;
ttk_argmax_f32_fn ttk_argmax_f32_ref, ttk_argmax_f32_avx2, ttk_argmax_f32_avx512;

/* ---- the work buffer of attend; every part starts on a multiple of TTK_WORK_ALIGN floats ----
 *   p[G][TTK_BLOCK], O[G][Dv rounded up to whole chunks], states[TTK_ATTEND_STATES][G rounded up]
 * (M, L, a, b), keys[TTK_KEY_GROUP][Dk rounded up] and values[TTK_BLOCK][TTK_VALUE_CHUNK]: f32
 * copies of a few bf16 keys or values, made once for all heads and small enough to stay in the L1
 * cache. */
enum {
    TTK_WORK_ALIGN = 16, /* floats; one cache line */
    TTK_ATTEND_STATES = 4,
    TTK_KEY_GROUP = 8,   /* keys; at the largest Dk in use (576) they take 18 KiB */
    TTK_VALUE_CHUNK = 32 /* elements of each value; 64 of them take 8 KiB */
};

static inline int64_t ttk_round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

typedef struct ttk_attend_work {
    float *p;                     /* p[G][TTK_BLOCK] */
    float *o;                     /* o[G][ldo] */
    int64_t ldo;                  /* Dv rounded up to whole chunks */
    float *max, *sum;             /* max[G], sum[G]: M and L so far */
    float *old_scale, *new_scale; /* [G]: a and b of the block at hand */
    float *keys;                  /* keys[TTK_KEY_GROUP][ldk] */
    int64_t ldk;                  /* Dk rounded up */
    float *values;                /* values[TTK_BLOCK][TTK_VALUE_CHUNK] */
} ttk_attend_work;

static inline ttk_attend_work ttk_attend_work_cut(float *work, int64_t G, int64_t Dk, int64_t Dv)
{
    ttk_attend_work w;
    int64_t heads = ttk_round_up(G, TTK_WORK_ALIGN);
    w.ldo = ttk_round_up(Dv, TTK_VALUE_CHUNK);
    w.ldk = ttk_round_up(Dk, TTK_WORK_ALIGN);
    w.p = work;
    w.o = w.p + G * TTK_BLOCK;
    w.max = w.o + G * w.ldo;
    w.sum = w.max + heads;
    w.old_scale = w.sum + heads;
    w.new_scale = w.old_scale + heads;
    w.keys = w.new_scale + heads;
    w.values = w.keys + TTK_KEY_GROUP * w.ldk;
    return w;
}

#endif
