/* rope_f32_avx2.c - rotary position embedding, 8 pairs at a time. */
#include "vec_avx2.h"
#include "ttk_versions.h"

static void turn_pair(float *first, float *second, float c, float s)
{
    float a = *first;
    float b = *second;
    float a_sin = a * s;
    float b_sin = b * s;
    *first = fmaf(a, c, -b_sin);
    *second = fmaf(b, c, a_sin);
}

static void turn_halves(float *head, int64_t half, const float *cos, const float *sin)
{
    int64_t i = 0;
    for (; i + VEC <= half; i += VEC) {
        __m256 a = _mm256_loadu_ps(head + i);
        __m256 b = _mm256_loadu_ps(head + half + i);
        __m256 c = _mm256_loadu_ps(cos + i);
        __m256 s = _mm256_loadu_ps(sin + i);
        _mm256_storeu_ps(head + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
        _mm256_storeu_ps(head + half + i, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
    }
    for (; i < half; i++) {
        turn_pair(&head[i], &head[half + i], cos[i], sin[i]);
    }
}

/* The order in which a shuffle of two registers of pairs leaves the pairs: 0 1 4 5 2 3 6 7. */
static __m256 load_shuffled(const float *x)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_loadu_ps(x)), 0xd8));
}

static void turn_neighbours(float *head, int64_t half, const float *cos, const float *sin)
{
    int64_t i = 0;
    for (; i + VEC <= half; i += VEC) {
        __m256 low = _mm256_loadu_ps(head + 2 * i);
        __m256 high = _mm256_loadu_ps(head + 2 * i + VEC);
        __m256 a = _mm256_shuffle_ps(low, high, 0x88);
        __m256 b = _mm256_shuffle_ps(low, high, 0xdd);
        __m256 c = load_shuffled(cos + i);
        __m256 s = load_shuffled(sin + i);
        __m256 turned_a = _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s));
        __m256 turned_b = _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s));
        _mm256_storeu_ps(head + 2 * i, _mm256_unpacklo_ps(turned_a, turned_b));
        _mm256_storeu_ps(head + 2 * i + VEC, _mm256_unpackhi_ps(turned_a, turned_b));
    }
    for (; i < half; i++) {
        turn_pair(&head[2 * i], &head[2 * i + 1], cos[i], sin[i]);
    }
}

void ttk_rope_f32_avx2(float *x, int64_t n_heads, int64_t head_stride, int64_t d, const float *cos,
                       const float *sin, bool interleaved)
{
    for (int64_t h = 0; h < n_heads; h++) {
        if (interleaved) {
            turn_neighbours(x + h * head_stride, d / 2, cos, sin);
        } else {
            turn_halves(x + h * head_stride, d / 2, cos, sin);
        }
    }
}
