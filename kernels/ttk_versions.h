/* ttk_versions.h - the lists of versions of ops, each declared through the function type that is
 * its contract; and how the versions of attend share out their work buffer. Private to kernels/. */
#ifndef TUTTI_TTK_VERSIONS_H
#define TUTTI_TTK_VERSIONS_H
#include "ttk.h"

/* The ops that have a version for an instruction set, ttk_<op>_<isa>; ref has all of TTK_OPS.
 * Where several are met the later list wins. BOTH: for AVX2 and for AVX-512. */
#define TTK_VERSIONS_BOTH(X)                                                                       \
    X(gemm_f32)                                                                                    \
    X(gemm_bf16)                                                                                   \
    X(gemm_quant)                                                                                  \
    X(rmsnorm_f32)                                                                                 \
    X(layernorm_f32)                                                                               \
    X(rope_f32)                                                                                    \
    X(silu_mul_f32)                                                                                \
    X(clamped_mul_f32)                                                                             \
    X(add_f32)                                                                                     \
    X(axpy_f32)                                                                                    \
    X(f32_to_bf16)                                                                                 \
    X(bf16_to_f32)                                                                                 \
    X(sigmoid_f32)                                                                                 \
    X(softmax_f32)                                                                                 \
    X(attend)                                                                                      \
    X(attend_merge)                                                                                \
    X(conv_silu_f32)                                                                               \
    X(delta)                                                                                       \
    X(argmax_f32)

#define TTK_VERSIONS_AVX2(X)                                                                       \
    TTK_VERSIONS_BOTH(X)                                                                           \
    X(pack)                                                                                        \
    X(pack_quant)                                                                                  \
    X(quantize)                                                                                    \
    X(act8)                                                                                        \
    X(gemm_act8)                                                                                   \
    X(row8)                                                                                        \
    X(row8_f32)                                                                                    \
    X(row8_act8)

#define TTK_VERSIONS_AVX512(X) TTK_VERSIONS_BOTH(X)
#define TTK_VERSIONS_VNNI(X) X(gemm_act8)

/* With the flags that a version needs more: gemm_act8 hands few rows to the version for VNNI. */
#define TTK_VERSIONS_AMX(X)                                                                        \
    X(gemm_bf16_pairs, 0)                                                                          \
    X(gemm_act8, TTK_CPU_AVX512_VNNI)

#define TTK_DECLARE_REF(op) ttk_##op##_fn ttk_##op##_ref;
#define TTK_DECLARE_AVX2(op) ttk_##op##_fn ttk_##op##_avx2;
#define TTK_DECLARE_AVX512(op) ttk_##op##_fn ttk_##op##_avx512;
#define TTK_DECLARE_VNNI(op) ttk_##op##_fn ttk_##op##_vnni;
#define TTK_DECLARE_AMX(op, more) ttk_##op##_fn ttk_##op##_amx;
TTK_OPS(TTK_DECLARE_REF)
TTK_VERSIONS_AVX2(TTK_DECLARE_AVX2)
TTK_VERSIONS_AVX512(TTK_DECLARE_AVX512)
TTK_VERSIONS_VNNI(TTK_DECLARE_VNNI)
TTK_VERSIONS_AMX(TTK_DECLARE_AMX)

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
