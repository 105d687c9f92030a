/* attend.c - attention of query rows over paged keys and values, block by block, and the merge of
 * blocks with a running maximum. A NaN score makes its own p, and through l and o the whole row,
 * NaN, whether or not it wins a maximum. */
#include "ttk_math.h"
#include "ttk_versions.h"

/* Element i of the key or value that starts `offset` elements into the page of `position`. */
static float kv_element(const ttk_attend_args *a, int64_t position, int64_t offset, int64_t stride,
                        int64_t i)
{
    const void *page = a->pages[position / TTK_PAGE];
    int64_t at = offset + position % TTK_PAGE * stride + i;
    switch (a->kv_type) {
    case TTK_F32:
        return ((const float *)page)[at];
    case TTK_BF16:
        return ttk_math_f32_of_bf16(((const ttk_bf16 *)page)[at]);
    default:
        return (float)((const int8_t *)page)[at];
    }
}

/* One of the scales that stand at `offset` bytes into the page of `position`. */
static float kv_scale(const ttk_attend_args *a, int64_t position, int64_t offset)
{
    const char *page = a->pages[position / TTK_PAGE];
    return ((const float *)(const void *)(page + offset))[position % TTK_PAGE];
}

/* 16-lane sum of q . k over elements [begin, end). */
static float dot(const ttk_attend_args *a, const float *q_Dk, int64_t position, int64_t begin,
                 int64_t end)
{
    float lane[TTK_LANES] = {0};
    for (int64_t i = begin; i < end; i++) {
        float k = kv_element(a, position, a->k_offset, a->k_stride, i);
        int64_t at = (i - begin) % TTK_LANES;
        lane[at] = fmaf(q_Dk[i], k, lane[at]);
    }
    return ttk_math_lanes16(lane);
}

static float score(const ttk_attend_args *a, const float *q_Dk, int64_t position)
{
    if (a->kv_type != TTK_I8) {
        return dot(a, q_Dk, position, 0, a->Dk) * a->scale;
    }
    int64_t tail = a->Dk - a->k_tail;
    float s = dot(a, q_Dk, position, 0, tail) * kv_scale(a, position, a->k_scales);
    if (a->k_tail > 0) {
        s = fmaf(dot(a, q_Dk, position, tail, a->Dk), kv_scale(a, position, a->tail_scales), s);
    }
    return s * a->scale;
}

/* (m, l, o) of one head over positions [begin, end) of one block; o[Dv]. */
static void attend_block(const ttk_attend_args *a, const float *q_Dk, int64_t begin, int64_t end,
                         float *o, float *m_out, float *l_out)
{
    float p[TTK_BLOCK]; /* by position mod 64 */
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
        p[j] = a->kv_type == TTK_I8 ? p[j] * kv_scale(a, position, a->v_scales) : p[j];
    }
    for (int64_t d = 0; d < a->Dv; d++) {
        o[d] = 0.0f;
        for (int64_t position = begin; position < end; position++) {
            float v = kv_element(a, position, a->v_offset, a->v_stride, d);
            o[d] = fmaf(p[position % TTK_BLOCK], v, o[d]);
        }
    }
    *m_out = m;
    *l_out = ttk_math_lanes16(lane);
}

/* Merges a block's (m, l, o) into (state[0], state[1], O); o may be NULL: all 0. */
static void merge(float *state, float *O, int64_t Dv, float m, float l, const float *o,
                  bool is_first)
{
    if (is_first) {
        state[0] = m;
        state[1] = l;
        memcpy(O, o, (size_t)Dv * sizeof(float));
        return;
    }
    float merged = m > state[0] ? m : state[0];
    float old_scale = ttk_math_exp(state[0] - merged);
    float new_scale = ttk_math_exp(m - merged);
    state[0] = merged;
    state[1] = fmaf(state[1], old_scale, l * new_scale);
    for (int64_t d = 0; d < Dv; d++) {
        O[d] = fmaf(O[d], old_scale, (o ? o[d] : 0.0f) * new_scale);
    }
}

static void finish(float *state, float *out, int64_t Dv, const float *sink)
{
    if (sink) {
        merge(state, out, Dv, *sink, 1.0f, NULL, false);
    }
    for (int64_t d = 0; d < Dv; d++) {
        out[d] = out[d] / state[1];
    }
}

/* Head g of row r. */
static void attend_head(const ttk_attend_args *a, int64_t r, int64_t g)
{
    const float *q_Dk = a->q + r * a->q_row + g * a->q_head;
    float *out = a->parts ? NULL : a->out + r * a->out_row + g * a->out_head;
    float *o = a->work; /* [Dv] */
    float state[2] = {0};
    int64_t first = a->first[r], last = a->last + r;
    for (int64_t block = first / TTK_BLOCK; block <= last / TTK_BLOCK; block++) {
        int64_t begin = block * TTK_BLOCK, end = begin + TTK_BLOCK;
        bool is_first = begin <= first;
        begin = is_first ? first : begin;
        end = end <= last ? end : last + 1;
        if (!a->parts) {
            float m, l;
            attend_block(a, q_Dk, begin, end, o, &m, &l);
            merge(state, out, a->Dv, m, l, o, is_first);
        } else if (block >= a->block_begin && block < a->block_end) {
            int64_t at = ((block - a->block_begin) * a->R + r) * a->G + g;
            float *part = a->parts + at * (int64_t)ttk_attend_part_floats(a->Dv);
            float *part_state = part + ttk_attend_part_state(a->Dv);
            attend_block(a, q_Dk, begin, end, part, part_state, part_state + 1);
        }
    }
    if (!a->parts) {
        finish(state, out, a->Dv, a->sink ? a->sink + g : NULL);
    }
}

void ttk_attend_ref(const ttk_attend_args *args)
{
    for (int64_t r = 0; r < args->R; r++) {
        for (int64_t g = 0; g < args->G; g++) {
            attend_head(args, r, g);
        }
    }
}

void ttk_attend_merge_ref(const ttk_attend_merge_args *args)
{
    for (int64_t i = 0; i < args->n; i++) {
        const float *part = args->parts + i * args->stride;
        const float *part_state = part + ttk_attend_part_state(args->Dv);
        merge(args->state, args->out, args->Dv, part_state[0], part_state[1], part,
              args->is_first && i == 0);
    }
    if (args->is_last) {
        finish(args->state, args->out, args->Dv, args->sink);
    }
}
