/* check_choose.c - checkers of topk and argmax, against the definition: count who stands before an
 * element. */
#include "check.h"
#include <string.h>

enum { MAX_LENGTH = 300, MAX_LONG = 5000, N_LEVELS = 4 };

/* Whether element i comes before j in the order of choice. */
static bool is_before(const float *c, int64_t i, int64_t j)
{
    bool nan_i = c[i] != c[i];
    bool nan_j = c[j] != c[j];
    if (nan_i || nan_j) {
        return nan_i == nan_j ? i < j : nan_j;
    }
    return c[i] == c[j] ? i < j : c[i] > c[j];
}

/* Values with many ties, -inf and NaN. */
static void fill_tied(rng *r, float *c, int64_t n)
{
    static const uint32_t odd[] = {0x7fc00000u, 0xff800000u, 0x80000000u, 0x00000000u, 0x7f800000u};
    int64_t kind = rng_below(r, 4);
    for (int64_t i = 0; i < n; i++) {
        c[i] = kind == 0 ? rng_plain(r) : (float)rng_below(r, N_LEVELS);
        if (kind >= 2 && rng_below(r, kind == 2 ? 2 : 20) == 0) {
            memcpy(&c[i], &odd[rng_below(r, kind == 2 ? 2 : 5)], sizeof(c[i]));
        }
    }
}

bool check_topk_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    (void)ref; /* the definition below decides alone */
    int64_t n = rng_size(r, MAX_LENGTH);
    int64_t k = rng_below(r, 3) == 0 ? n : rng_below(r, n + 1);
    buffer c = buffer_new((size_t)n, sizeof(float));
    buffer idx = buffer_new((size_t)k, sizeof(int32_t));
    fill_tied(r, buffer_f32(&c), n);
    buffer kept = buffer_copy(&c);
    ((ttk_topk_f32_fn *)fn)(idx.data, c.data, n, k);
    bool ok = memcmp(kept.data, c.data, c.bytes) == 0 || fault("topk changed its input");
    const int32_t *chosen = idx.data;
    for (int64_t i = 0; ok && i < k; i++) {
        int64_t n_before = 0;
        ok = chosen[i] >= 0 && chosen[i] < n;
        for (int64_t j = 0; ok && j < n; j++) {
            n_before += is_before(c.data, j, chosen[i]);
        }
        ok = (ok && n_before == i) ||
             fault("topk n %lld k %lld: place %lld", (long long)n, (long long)k, (long long)i);
    }
    BUFFERS_FREE(&c, &idx, &kept);
    return ok;
}

bool check_argmax_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    int64_t n = rng_below(r, 8) == 0 ? rng_below(r, MAX_LONG) : rng_size(r, MAX_LENGTH);
    buffer c = buffer_new((size_t)n, sizeof(float));
    fill_tied(r, buffer_f32(&c), n);
    int64_t got = ((ttk_argmax_f32_fn *)fn)(c.data, n);
    int64_t want = -1;
    for (int64_t i = 0; i < n; i++) {
        if (buffer_f32(&c)[i] == buffer_f32(&c)[i] && (want < 0 || is_before(c.data, i, want))) {
            want = i;
        }
    }
    bool ok = got == want || fault("argmax n %lld: got %lld, want %lld", (long long)n,
                                   (long long)got, (long long)want);
    ok = ok && ((ttk_argmax_f32_fn *)ref)(c.data, n) == want;
    buffer_free(&c);
    return ok;
}
