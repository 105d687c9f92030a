/* attend.c - attention of one query row over paged keys and values, block by block with a running
 * maximum. A NaN score makes its own p, and through l and o the whole row, NaN, whether or not it
 * wins a maximum. */
#include "ttk_math.h"
#include "ttk_versions.h"

/* Element i of the key or value that starts `offset` elements into the page of `position`. */
static float kv_element(const ttk_attend_args *a, int64_t position, int64_t offset, int64_t stride,
                        int64_t i)
{
    const void *page = a->pages[position / TTK_PAGE];
    int64_t at = offset + position % TTK_PAGE * stride + i;
    return a->kv_type == TTK_F32 ? ((const float *)page)[at]
                                 : ttk_math_f32_of_bf16(((const ttk_bf16 *)page)[at]);
}

static float score(const ttk_attend_args *a, const float *q_Dk, int64_t position)
{
    float lane[TTK_LANES] = {0};
    for (int64_t i = 0; i < a->Dk; i++) {
        float k = kv_element(a, position, a->k_offset, a->k_stride, i);
        lane[i % TTK_LANES] = fmaf(q_Dk[i], k, lane[i % TTK_LANES]);
    }
    return ttk_math_lanes16(lane) * a->scale;
}

static void attend_head(const ttk_attend_args *a, int64_t g, float *p, float *O)
{
    const float *q_Dk = a->q + g * a->ldq;
    float M = 0.0f;
    float L = 0.0f;
    for (int64_t begin = a->first; begin <= a->last;) {
        int64_t block = begin / TTK_BLOCK;
        int64_t end = (block + 1) * TTK_BLOCK;
        end = end <= a->last ? end : a->last + 1;
        bool is_first = block == a->first / TTK_BLOCK;
        /* scores, their maximum, and the sum of their exponentials; p[j], j = position mod 64 */
        float m = -INFINITY;
        for (int64_t position = begin; position < end; position++) {
            float s = score(a, q_Dk, position);
            p[position % TTK_BLOCK] = s;
            m = s > m ? s : m;
        }
        float lane[TTK_LANES] = {0};
        for (int64_t position = begin; position < end; position++) {
            int64_t j = position % TTK_BLOCK;
            p[j] = ttk_math_exp(p[j] - m);
            lane[j % TTK_LANES] = lane[j % TTK_LANES] + p[j];
        }
        float l = ttk_math_lanes16(lane);
        /* merge */
        float merged = m > M ? m : M;
        float old_scale = ttk_math_exp(M - merged);
        float new_scale = ttk_math_exp(m - merged);
        M = is_first ? m : merged;
        L = is_first ? l : fmaf(L, old_scale, l * new_scale);
        for (int64_t d = 0; d < a->Dv; d++) {
            float o = 0.0f;
            for (int64_t position = begin; position < end; position++) {
                float v = kv_element(a, position, a->v_offset, a->v_stride, d);
                o = fmaf(p[position % TTK_BLOCK], v, o);
            }
            O[d] = is_first ? o : fmaf(O[d], old_scale, o * new_scale);
        }
        begin = end;
    }
    if (a->sink) {
        float merged = a->sink[g] > M ? a->sink[g] : M;
        float old_scale = ttk_math_exp(M - merged);
        float new_scale = ttk_math_exp(a->sink[g] - merged);
        L = fmaf(L, old_scale, 1.0f * new_scale);
        for (int64_t d = 0; d < a->Dv; d++) {
            O[d] = fmaf(O[d], old_scale, 0.0f * new_scale);
        }
    }
    for (int64_t d = 0; d < a->Dv; d++) {
        a->out[g * a->ldo + d] = O[d] / L;
    }
}

void ttk_attend_ref(const ttk_attend_args *args)
{
    ttk_attend_work w = ttk_attend_work_cut(args->work, args->G, args->Dk, args->Dv);
    for (int64_t g = 0; g < args->G; g++) {
        attend_head(args, g, w.p + g * TTK_BLOCK, w.o + g * w.ldo);
    }
}
