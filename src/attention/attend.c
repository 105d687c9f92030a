/* attend.c - spreads the attention of a batch over threads. A unit is one row and some heads that share keys; units come from one atomic
 * queue. How heads are grouped changes no bit: heads do not meet inside the kernel. */
#include "attention_internal.h"
#include <stdatomic.h>

typedef struct attend_pass {
    tt_attention *attention;
    const tti_attend_job *job;
    int64_t T;
    int64_t n_kv;        /* sets of heads that share keys */
    int64_t n_parts;     /* a set is cut in so many parts when there are few rows */
    _Atomic int64_t next_unit;   /* relaxed: only hands out numbers */
    _Atomic uint64_t keys_read;  /* relaxed: a statistic */
} attend_pass;

/* Local heads [begin, end) that use local KV head `kv`. */
static void heads_of_kv(const attend_pass *pass, int64_t kv, int64_t *begin, int64_t *end)
{
    const tt_rank_role *role = pass->attention->role;
    int64_t per_kv = pass->job->heads_per_kv;
    if (per_kv == 0) {
        *begin = 0;
        *end = pass->job->n_heads;
        return;
    }
    int64_t first = (role->kv_begin + kv) * per_kv, last = first + per_kv;
    *begin = first > role->head_begin ? first - role->head_begin : 0;
    *end = (last < role->head_end ? last : role->head_end) - role->head_begin;
}

static void attend_part(void *arg, int thread_id, int n_threads)
{
    (void)n_threads;
    attend_pass *pass = arg;
    tt_attention *attention = pass->attention;
    const tti_attend_job *job = pass->job;
    int64_t n_units = pass->T * pass->n_kv * pass->n_parts;
    uint64_t keys = 0;
    for (;;) {
        int64_t unit = atomic_fetch_add_explicit(&pass->next_unit, 1, memory_order_relaxed);
        if (unit >= n_units) {
            break;
        }
        /* Long rows first: the last rows of a prefill chunk see the most keys. */
        int64_t row = pass->T - 1 - unit / (pass->n_kv * pass->n_parts);
        int64_t kv = unit / pass->n_parts % pass->n_kv, set_begin, set_end, begin, end;
        heads_of_kv(pass, kv, &set_begin, &set_end);
        tt_split(set_end - set_begin, pass->n_parts, unit % pass->n_parts, &begin, &end);
        if (begin == end) {
            continue;
        }
        ttk_attend_args args = {0};
        args.q = job->q + row * job->q_row + (set_begin + begin) * job->q_head;
        args.ldq = job->q_head;
        args.out = job->out + row * job->out_row + (set_begin + begin) * job->out_head;
        args.ldo = job->out_head;
        args.pages = attention->page_table + attention->page_begin[attention->row_sequence[row]];
        args.kv_type = attention->kv->type;
        args.k_offset = kv * job->k_part;
        args.v_offset = args.k_offset + job->v_offset;
        args.k_stride = job->k_stride;
        args.v_stride = job->v_stride;
        args.G = end - begin;
        args.Dk = job->Dk;
        args.Dv = job->Dv;
        args.last = attention->row_position[row];
        args.first = tti_first_visible(job->layer, args.last);
        args.sink = job->sinks ? job->sinks + set_begin + begin : NULL;
        args.scale = attention->arch->softmax_scale;
        args.work = attention->attend_work + thread_id * attention->attend_floats;
        ttk.attend(&args);
        keys += (uint64_t)(args.last - args.first + 1);
    }
    atomic_fetch_add_explicit(&pass->keys_read, keys, memory_order_relaxed);
}

void tti_attend_rows(tt_attention *attention, const tt_batch *batch, const tti_attend_job *job)
{
    attend_pass pass = {0};
    pass.attention = attention;
    pass.job = job;
    pass.T = batch->T;
    pass.n_kv = job->heads_per_kv ? attention->n_kv : 1;
    int64_t n_threads = tt_stream_n_threads(attention->compute);
    pass.n_parts = 1;
    if (pass.T * pass.n_kv < n_threads) {
        pass.n_parts = (n_threads + pass.T * pass.n_kv - 1) / (pass.T * pass.n_kv);
    }
    tt_stream_run(attention->compute, "attend", attend_part, &pass);
    int64_t elements = job->heads_per_kv ? job->Dk + job->Dv : job->Dk; /* a latent is key and value */
    attention->kv_bytes_read +=
        pass.keys_read * (uint64_t)elements * (uint64_t)ttk_dtype_bytes(attention->kv->type);
}
