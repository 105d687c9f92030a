/* sampler.c - draws a token from logits. The order is the reference library's: temperature, top-k,
 * top-p, min-p. The random number is a hash of (seed, position), so a token depends on nothing
 * else; sums run in a fixed order in double.
 * Candidates come best first from a heap, so that only as many are sorted as are kept. */
#include "engine_internal.h"
#include <math.h>

/* Philox-4x32-10 on one counter: 64 random bits for (seed, position). Source: Salmon et al.,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
static uint64_t philox(uint64_t seed, uint64_t counter)
{
    const uint32_t M0 = 0xD2511F53u, M1 = 0xCD9E8D57u, W0 = 0x9E3779B9u, W1 = 0xBB67AE85u;
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)M0 * c[0], p1 = (uint64_t)M1 * c[2];
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)p1;
        c[3] = (uint32_t)p0;
        c[0] = n0;
        c[2] = n2;
        k0 += W0;
        k1 += W1;
    }
    return (uint64_t)c[1] << 32 | c[0];
}

/* Uniform in [0, 1), 53 bits. */
static double uniform(uint64_t seed, int64_t position)
{
    return (double)(philox(seed, (uint64_t)position) >> 11) * 0x1p-53;
}

/* ---- a heap of ids, the likeliest on top, ties to the smaller id ---- */

static bool before(const float *p, int32_t a, int32_t b)
{
    return p[a] > p[b] || (p[a] == p[b] && a < b);
}

static void sift_down(int32_t *heap, int64_t n, int64_t i, const float *p)
{
    int32_t moving = heap[i];
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= n) {
            break;
        }
        if (child + 1 < n && before(p, heap[child + 1], heap[child])) {
            child++;
        }
        if (!before(p, heap[child], moving)) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

size_t tti_sampler_work_bytes(int64_t V)
{
    return (size_t)V * 2 * sizeof(int32_t); /* heap and kept ids */
}

/* Likelihoods relative to the best, in place of the logits; ids that are not numbers get 0. */
static void relative(const tt_sampling *sampling, float best, float *logits, int64_t V)
{
    float inverse = (float)(1.0 / sampling->temperature);
    for (int64_t i = 0; i < V; i++) {
        logits[i] = isnan(logits[i]) ? 0.0f : ttk_exp((logits[i] - best) * inverse);
    }
}

/* Takes the likeliest ids off a heap until top-k, top-p and min-p are satisfied; returns how many
 * are kept, best first. */
static int64_t keep(const tt_sampling *sampling, const float *p, int64_t V, int32_t *heap,
                    int32_t *kept)
{
    int64_t n = 0, most = sampling->top_k > 0 && sampling->top_k < V ? sampling->top_k : V;
    for (int64_t i = 0; i < V; i++) {
        heap[i] = (int32_t)i;
    }
    for (int64_t i = V / 2 - 1; i >= 0; i--) {
        sift_down(heap, V, i, p);
    }
    /* With top-k, the mass that top-p is a share of is that of the k; without, that of all. */
    double mass = 0.0;
    if (most == V) {
        for (int64_t i = 0; i < V; i++) {
            mass += (double)p[i];
        }
    }
    double so_far = 0.0;
    while (n < most) {
        int32_t id = heap[0];
        if (n > 0 && (p[id] <= 0.0f || (double)p[id] < sampling->min_p)) {
            break;
        }
        if (most == V && n > 0 && so_far >= sampling->top_p * mass) {
            break;
        }
        kept[n++] = id;
        so_far += (double)p[id];
        heap[0] = heap[V - n];
        sift_down(heap, V - n, 0, p);
    }
    if (most < V && sampling->top_p < 1.0) {
        double part = 0.0;
        int64_t within = 0;
        while (within < n && (within == 0 || part < sampling->top_p * so_far)) {
            part += (double)p[kept[within++]];
        }
        n = within;
    }
    return n;
}

bool tti_sampler_is_greedy(const tt_sampling *sampling)
{
    return sampling->temperature <= TT_GREEDY_BELOW || sampling->top_p <= 0.0 ||
           sampling->top_k == 1;
}

tt_status tti_sampler_draw(const tt_sampling *sampling, int64_t position, float *logits, int64_t V,
                           void *work, int32_t *token_out)
{
    int64_t best = ttk.argmax_f32(logits, V);
    TT_CHECK(best >= 0 && logits[best] > -INFINITY && logits[best] < INFINITY, TT_ERR_NUMERIC,
             "the logits at position %lld are not numbers", (long long)position);
    if (tti_sampler_is_greedy(sampling)) {
        *token_out = (int32_t)best;
        return TT_OK;
    }
    relative(sampling, logits[best], logits, V);
    double u = uniform(sampling->seed, position), mass = 0.0, so_far = 0.0;
    bool all = sampling->top_k <= 0 && sampling->top_p >= 1.0 && sampling->min_p <= 0.0;
    int32_t *heap = work, *kept = heap + V;
    int64_t n = all ? V : keep(sampling, logits, V, heap, kept);
    for (int64_t i = 0; i < n; i++) {
        mass += (double)logits[all ? i : kept[i]];
    }
    int32_t token = (int32_t)best;
    for (int64_t i = 0; i < n; i++) {
        int32_t id = all ? (int32_t)i : kept[i];
        if (logits[id] <= 0.0f) {
            continue;
        }
        token = id; /* rounding may leave u above the last sum: then the last one that is
                     * possible */
        so_far += (double)logits[id];
        if (u * mass < so_far) {
            break;
        }
    }
    *token_out = token;
    return TT_OK;
}

double tti_sampler_nll(const float *logits, int64_t V, int32_t id)
{
    float best = -INFINITY;
    for (int64_t i = 0; i < V; i++) {
        best = logits[i] > best ? logits[i] : best;
    }
    double sum = 0.0;
    for (int64_t i = 0; i < V; i++) {
        sum += exp((double)logits[i] - (double)best);
    }
    return log(sum) - ((double)logits[id] - (double)best);
}
