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
ttk_gemm_bf16_pairs_fn ttk_gemm_bf16_pairs_ref, ttk_gemm_bf16_pairs_amx;
ttk_gemm_quant_fn ttk_gemm_quant_ref, ttk_gemm_quant_avx2, ttk_gemm_quant_avx512;
ttk_act8_fn ttk_act8_ref, ttk_act8_avx2;
ttk_row8_fn ttk_row8_ref, ttk_row8_avx2;
ttk_row8_f32_fn ttk_row8_f32_ref, ttk_row8_f32_avx2;
ttk_row8_act8_fn ttk_row8_act8_ref, ttk_row8_act8_avx2;
ttk_gemm_act8_fn ttk_gemm_act8_ref, ttk_gemm_act8_avx2, ttk_gemm_act8_vnni, ttk_gemm_act8_amx;
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
ttk_attend_merge_fn ttk_attend_merge_ref, ttk_attend_merge_avx2, ttk_attend_merge_avx512;
ttk_conv_silu_f32_fn ttk_conv_silu_f32_ref, ttk_conv_silu_f32_avx2, ttk_conv_silu_f32_avx512;
ttk_delta_fn ttk_delta_ref, ttk_delta_avx2, ttk_delta_avx512;
ttk_topk_f32_fn ttk_topk_f32_ref;
ttk_argmax_f32_fn ttk_argmax_f32_ref, ttk_argmax_f32_avx2, ttk_argmax_f32_avx512;

/* ---- the work buffer of attend; every part starts on a multiple of TTK_WORK_ALIGN floats ----
 * Copies of the queries and of a few keys and values lie there as f32, made once for all that use
 * them: a key's elements but its tail, and its tail, each filled up with zeros to whole lanes.
 * Zeros change no sum but the sign of a zero, which no result shows. */
enum {
    TTK_WORK_ALIGN = 16, /* floats; one cache line */
    TTK_KEY_GROUP = 8,   /* keys; at the largest Dk in use (576) they take 18 KiB */
    TTK_VALUE_CHUNK = 32 /* elements of each value; 64 of them take 8 KiB */
};

static inline int64_t ttk_round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

typedef struct ttk_attend_work {
    float *p;                     /* p[n][TTK_BLOCK] */
    float *o;                     /* o[n][ldo]: O so far */
    int64_t ldo;                  /* Dv rounded up to whole chunks */
    float *q;                     /* q[n][ldk] */
    int64_t ldk;                  /* two parts, each rounded up */
    float *max, *sum;             /* max[n], sum[n]: M and L so far */
    float *old_scale, *new_scale; /* [n]: a and b of the block at hand */
    int32_t *begin, *end;         /* [n]: the slots of the block at hand that a query sees */
    int32_t *is_fresh;            /* [n]: its o of this block is stored as it is */
    float *keys;                  /* keys[TTK_KEY_GROUP][ldk] */
    float *values;                /* values[TTK_BLOCK][TTK_VALUE_CHUNK] */
    float *value_scales;          /* [TTK_BLOCK], TTK_I8 */
    int64_t n_floats;             /* of all that */
} ttk_attend_work;

/* Takes n floats, or cells as large, from work (which may be NULL, to count). */
static inline float *ttk_attend_take(float *work, int64_t *used, int64_t n)
{
    float *part = work ? work + *used : NULL;
    *used += ttk_round_up(n, TTK_WORK_ALIGN);
    return part;
}

static inline ttk_attend_work ttk_attend_work_cut(float *work, int64_t n, int64_t Dk, int64_t Dv)
{
    ttk_attend_work w;
    int64_t used = 0;
    w.ldo = ttk_round_up(Dv, TTK_VALUE_CHUNK);
    w.ldk = ttk_round_up(Dk, TTK_WORK_ALIGN) + TTK_WORK_ALIGN; /* wherever the tail begins */
    w.p = ttk_attend_take(work, &used, n * TTK_BLOCK);
    w.o = ttk_attend_take(work, &used, n * w.ldo);
    w.q = ttk_attend_take(work, &used, n * w.ldk);
    w.max = ttk_attend_take(work, &used, n);
    w.sum = ttk_attend_take(work, &used, n);
    w.old_scale = ttk_attend_take(work, &used, n);
    w.new_scale = ttk_attend_take(work, &used, n);
    w.begin = (int32_t *)ttk_attend_take(work, &used, n);
    w.end = (int32_t *)ttk_attend_take(work, &used, n);
    w.is_fresh = (int32_t *)ttk_attend_take(work, &used, n);
    w.keys = ttk_attend_take(work, &used, TTK_KEY_GROUP * w.ldk);
    w.values = ttk_attend_take(work, &used, TTK_BLOCK * TTK_VALUE_CHUNK);
    w.value_scales = ttk_attend_take(work, &used, TTK_BLOCK);
    w.n_floats = used;
    return w;
}

#endif
