/* fill.c - made-up keys and values, so that a sequence can be timed at any depth without computing
 * what comes before.
 *
 * Every number is uniform in [-1, 1) and hangs on (seed, layer, KV head of the model, position)
 * alone, so all layouts hold the same; keys are not rotated, which only renames random numbers.
 * States of recurrent layers start empty, as at position 0: their cost does not depend on depth. */
#include "attention_internal.h"
#include <string.h>

enum { PER_WORD = 4 }; /* numbers from one 64-bit hash */

typedef struct fill_task {
    tt_attention *attention;
    const int32_t *page; /* page[n_pages] */
    int64_t n, n_pages;  /* positions, and the pages that hold them */
    uint64_t seed;
} fill_task;

/* The finaliser of splitmix64. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void make_numbers(float *x, int64_t n, uint64_t key)
{
    for (int64_t i = 0; i < n; i += PER_WORD) {
        uint64_t word = mix(key + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15));
        for (int64_t j = i; j < i + PER_WORD && j < n; j++, word >>= 16) {
            x[j] = (float)(int16_t)(word & 0xffff) * 0x1p-15f;
        }
    }
}

/* One page of one layer. x: room for a key and a value of one head, or a latent. */
static void fill_page(const fill_task *task, int64_t layer, int64_t p, float *x)
{
    tt_attention *attention = task->attention;
    const tt_arch *arch = attention->arch;
    void *page = tti_kv_page(attention->kv, layer, task->page[p]);
    for (int64_t token = 0; token < TTK_PAGE && p * TTK_PAGE + token < task->n; token++) {
        uint64_t key =
            mix(task->seed + mix(((uint64_t)layer << 40) + (uint64_t)(p * TTK_PAGE + token) + 1));
        if (arch->attention == TT_ATTENTION_MLA) {
            make_numbers(x, attention->key_width, key);
            tti_mla_store(attention, page, token, x);
            continue;
        }
        for (int64_t h = 0; h < attention->n_kv; h++) {
            make_numbers(x, 2 * arch->D, mix(key + (uint64_t)(attention->role->kv_begin + h)));
            tti_gqa_store(attention, page, token, h, x, x + arch->D);
        }
    }
}

static void fill_part(void *arg, int thread_id, int n_threads)
{
    const fill_task *task = arg;
    tt_attention *attention = task->attention;
    const tt_arch *arch = attention->arch;
    float *x = attention->fill_work + thread_id * attention->fill_floats;
    int64_t begin, end;
    tt_split(task->n_pages, n_threads, thread_id, &begin, &end);
    for (int64_t layer = 0; layer < arch->L; layer++) {
        for (int64_t p = begin; arch->layer[layer].mixer == TT_MIXER_ATTENTION && p < end; p++) {
            fill_page(task, layer, p, x);
        }
    }
}

void tt_attention_fill(tt_attention *attention, const int32_t *page, int64_t n, int64_t slot,
                       uint64_t seed)
{
    fill_task task = {attention, page, n, (n + TTK_PAGE - 1) / TTK_PAGE, mix(seed)};
    size_t floats = (size_t)attention->state_floats;
    for (int64_t layer = 0; layer < attention->arch->L; layer++) {
        if (attention->arch->layer[layer].mixer == TT_MIXER_DELTA && floats > 0) {
            memset(attention->layer[layer].state + (size_t)slot * floats, 0,
                   floats * sizeof(float));
        }
    }
    tt_stream_run(attention->compute, "fill", fill_part, &task);
}
