/* choose.c - the largest values and their places: topk and argmax. Ties go to the smaller index;
 * NaN sorts below -inf. */
#include "ttk_versions.h"

/* Whether `later`, which stands behind `earlier` in the array, comes before it in the order of
 * choice. */
static bool beats(float later, float earlier)
{
    bool later_is_nan = later != later;
    bool earlier_is_nan = earlier != earlier;
    return later > earlier || (earlier_is_nan && !later_is_nan);
}

/* Keeps idx sorted, best first, and inserts each element at its place if it is among the best k so
 * far. */
void ttk_topk_f32_ref(int32_t *idx, const float *c, int64_t n, int64_t k)
{
    int64_t n_kept = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t place = n_kept;
        while (place > 0 && beats(c[i], c[idx[place - 1]])) {
            place--;
        }
        if (place == k) {
            continue;
        }
        n_kept = n_kept < k ? n_kept + 1 : k;
        for (int64_t j = n_kept - 1; j > place; j--) {
            idx[j] = idx[j - 1];
        }
        idx[place] = (int32_t)i;
    }
}

int64_t ttk_argmax_f32_ref(const float *c, int64_t n)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (c[i] == c[i] && (best < 0 || c[i] > c[best])) {
            best = i;
        }
    }
    return best;
}
