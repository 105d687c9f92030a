/* rope_f32_avx512.c - rotary position embedding, 16 pairs at a time. */
#include "vec_avx512.h"
#include "ttk_versions.h"

static void turn_halves(float *head, int64_t half, const float *cos, const float *sin)
{
    for (int64_t i = 0; i < half; i += VEC) {
        __mmask16 mask = vec_mask(half - i);
        __m512 a = _mm512_maskz_loadu_ps(mask, head + i);
        __m512 b = _mm512_maskz_loadu_ps(mask, head + half + i);
        __m512 c = _mm512_maskz_loadu_ps(mask, cos + i);
        __m512 s = _mm512_maskz_loadu_ps(mask, sin + i);
        _mm512_mask_storeu_ps(head + i, mask, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
        _mm512_mask_storeu_ps(head + half + i, mask, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
    }
}

static void turn_neighbours(float *head, int64_t half, const float *cos, const float *sin)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd =
        _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i second =
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    for (int64_t i = 0; i < half; i += VEC) {
        __mmask16 mask = vec_mask(half - i);
        __mmask16 mask_low = vec_mask(2 * (half - i));
        __mmask16 mask_high = vec_mask(2 * (half - i) - VEC);
        __m512 low = _mm512_maskz_loadu_ps(mask_low, head + 2 * i);
        __m512 high = _mm512_maskz_loadu_ps(mask_high, head + 2 * i + VEC);
        __m512 a = _mm512_permutex2var_ps(low, even, high);
        __m512 b = _mm512_permutex2var_ps(low, odd, high);
        __m512 c = _mm512_maskz_loadu_ps(mask, cos + i);
        __m512 s = _mm512_maskz_loadu_ps(mask, sin + i);
        __m512 turned_a = _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s));
        __m512 turned_b = _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s));
        _mm512_mask_storeu_ps(head + 2 * i, mask_low,
                              _mm512_permutex2var_ps(turned_a, first, turned_b));
        _mm512_mask_storeu_ps(head + 2 * i + VEC, mask_high,
                              _mm512_permutex2var_ps(turned_a, second, turned_b));
    }
}

void ttk_rope_f32_avx512(float *x, int64_t n_heads, int64_t head_stride, int64_t d,
                         const float *cos, const float *sin, bool interleaved)
{
    for (int64_t h = 0; h < n_heads; h++) {
        if (interleaved) {
            turn_neighbours(x + h * head_stride, d / 2, cos, sin);
        } else {
            turn_halves(x + h * head_stride, d / 2, cos, sin);
        }
    }
}
