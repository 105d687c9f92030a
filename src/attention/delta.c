/* delta.c - the gated delta net: a state S[Dk][Dv] per value head and sequence instead of keys and
 * values, changed token by token.
 *
 *   [q|k|v] = silu(conv(qkv x)), causal, channel by channel;   q = q / |q| * Dk^-1/2,  k = k / |k|
 *   beta = sigmoid(b),  decay = exp(-rate * softplus(a + bias))
 *   S = decay S;   S += k (beta (v - S^T k))^T;   o = S^T q;   out = w * rms(o) * silu(z)
 * Value head j uses key head j / (Nv / Nk). Under TP a rank has a run of value heads and the key
 * heads they need. |x| is sqrt(sum x^2 + 1e-6), made by the rms norm: x / sqrt(sum/Dk + 1e-6/Dk) =
 * sqrt(Dk) x / |x|, so that its weights are Dk^-1 for q and Dk^-1/2 for k.
 * How rows are cut into steps changes no bit: the convolution keeps its last inputs, the state its
 * floats, and every sum its order.
 * Source: arXiv:2412.06464. */
#include "attention_internal.h"
#include <stdatomic.h>
#include <string.h>

static const float unit_eps = 1e-6f;

typedef struct delta_task {
    tt_attention *attention;
    const tti_attention_layer *layer;
    const tt_batch *batch;
    int64_t n_keys, n_values;  /* local heads */
    int64_t out_row;           /* elements from row to row of heads */
    float *out;                /* the first local head's output of row 0 */
    _Atomic int64_t next_unit; /* relaxed: only hands out numbers */
} delta_task;

/* A sequence's state of head h and part p; behind the heads' states lie the convolution's last
 * inputs, [taps - 1][channels], oldest first. */
static float *state_of(const delta_task *task, int64_t slot, int64_t h, int64_t part)
{
    const tt_delta *delta = &task->attention->arch->delta;
    return task->layer->state + slot * task->attention->state_floats +
           h * ttk_delta_state_floats(delta->Dk, delta->Dv) + part * delta->Dk * TTK_DELTA_COLUMNS;
}

static float *inputs_of(const delta_task *task, int64_t slot)
{
    return state_of(task, slot, task->n_values, 0);
}

/* ---- convolution, lengths, gates ---- */

/* The rows that the taps of row t see: earlier rows of this step, inputs kept from earlier steps,
 * or nothing before position 0. */
static void find_taps(const delta_task *task, int64_t t, int64_t channel, const float **tap)
{
    const tt_attention *attention = task->attention;
    const tt_batch_sequence *sequence = &task->batch->sequence[attention->row_sequence[t]];
    int64_t kept = attention->arch->delta.conv - 1, in_step = t - sequence->first_row;
    for (int64_t j = 0; j <= kept; j++) {
        int64_t back = kept - j;
        const float *row;
        if (back <= in_step) {
            row = attention->mixed + (t - back) * attention->channels;
        } else if (back <= in_step + sequence->position) {
            row = inputs_of(task, sequence->slot) + (kept - (back - in_step)) * attention->channels;
        } else {
            row = attention->zeros;
        }
        tap[j] = row + channel;
    }
}

static void make_gates(const delta_task *task, int64_t t, int64_t h)
{
    const tt_attention *attention = task->attention;
    int64_t head = attention->delta_heads.value_begin + h, at = t * task->n_values + h;
    ttk.sigmoid_f32(&attention->beta[at], 1);
    float steps = ttk_softplus(attention->decay[at] + task->layer->decay_bias.x[head]);
    attention->decay[at] = ttk_exp(-(task->layer->decay_rate.x[head] * steps));
}

/* A unit is one row and one head of q, k or v. */
static void convolve_part(void *arg, int thread_id, int n_threads)
{
    const delta_task *task = arg;
    const tt_attention *attention = task->attention;
    const tt_delta *delta = &attention->arch->delta;
    int64_t units = 2 * task->n_keys + task->n_values, begin, end;
    float eps = unit_eps / (float)delta->Dk;
    tt_split(task->batch->T * units, n_threads, thread_id, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / units, unit = i % units, h = unit - 2 * task->n_keys;
        int64_t width = h < 0 ? delta->Dk : delta->Dv;
        int64_t channel = h < 0 ? unit * delta->Dk : 2 * task->n_keys * delta->Dk + h * delta->Dv;
        const float *tap[TTI_MAX_TAPS];
        find_taps(task, t, channel, tap);
        float *out = attention->convolved + t * attention->channels + channel;
        ttk.conv_silu_f32(out, tap, task->layer->conv.x + channel, attention->channels, delta->conv,
                          width);
        if (h < 0) {
            ttk.rmsnorm_f32(out, width, out, width,
                            unit < task->n_keys ? attention->q_unit : attention->k_unit, 1, width,
                            eps);
        } else {
            make_gates(task, t, h);
        }
    }
}

/* ---- recurrence ---- */

/* Channels [begin, end) of the inputs that the next step's convolution will see. */
static void keep_inputs(const delta_task *task, const tt_batch_sequence *sequence, int64_t begin,
                        int64_t end)
{
    const tt_attention *attention = task->attention;
    int64_t kept = attention->arch->delta.conv - 1, channels = attention->channels;
    size_t bytes = (size_t)(end - begin) * sizeof(float);
    float *inputs = inputs_of(task, sequence->slot) + begin;
    for (int64_t j = 0; j < kept; j++) {
        int64_t row = sequence->n_rows - kept + j; /* of this step; before it where negative */
        const float *from = row >= 0
                                ? attention->mixed + (sequence->first_row + row) * channels + begin
                                : inputs + (j + sequence->n_rows) * channels;
        memcpy(inputs + j * channels, from, bytes); /* ascending, so that nothing is overwritten
                                                     * before it moved */
    }
}

/* All rows of a sequence through some columns of one head's state. */
static void run_unit(const delta_task *task, const tt_batch_sequence *sequence, int64_t h,
                     int64_t part)
{
    const tt_attention *attention = task->attention;
    const tt_delta *delta = &attention->arch->delta;
    const tt_delta_heads *heads = &attention->delta_heads;
    int64_t key = (heads->value_begin + h) / (delta->Nv / delta->Nk) - heads->key_begin;
    int64_t column = part * TTK_DELTA_COLUMNS, left = delta->Dv - column, t = sequence->first_row;
    const float *row = attention->convolved + t * attention->channels;
    ttk_delta_args args = {0};
    args.state = state_of(task, sequence->slot, h, part);
    args.Dk = delta->Dk;
    args.n = left < TTK_DELTA_COLUMNS ? left : TTK_DELTA_COLUMNS;
    args.T = sequence->n_rows;
    args.q = row + key * delta->Dk;
    args.k = row + (task->n_keys + key) * delta->Dk;
    args.v = row + 2 * task->n_keys * delta->Dk + h * delta->Dv + column;
    args.ldq = args.ldk = args.ldv = attention->channels;
    args.decay = attention->decay + t * task->n_values + h;
    args.beta = attention->beta + t * task->n_values + h;
    args.ld_gate = task->n_values;
    args.out = task->out + t * task->out_row + h * delta->Dv + column;
    args.ldo = task->out_row;
    if (sequence->position == 0) {
        memset(args.state, 0, (size_t)(delta->Dk * TTK_DELTA_COLUMNS) * sizeof(float));
    }
    ttk.delta(&args);
}

static void recur_part(void *arg, int thread_id, int n_threads)
{
    delta_task *task = arg;
    int64_t parts = ttk_delta_parts(task->attention->arch->delta.Dv), begin, end;
    int64_t n_sequences = task->batch->n_sequences, n_units = n_sequences * task->n_values * parts;
    tt_split(task->attention->channels, n_threads, thread_id, &begin, &end);
    for (int64_t s = 0; s < n_sequences; s++) {
        keep_inputs(task, &task->batch->sequence[s], begin, end);
    }
    for (;;) {
        int64_t unit = atomic_fetch_add_explicit(&task->next_unit, 1, memory_order_relaxed);
        if (unit >= n_units) {
            break;
        }
        /* Prompt rows stand behind decoding ones and take longest, so they go first. */
        int64_t s = n_sequences - 1 - unit / (task->n_values * parts);
        run_unit(task, &task->batch->sequence[s], unit / parts % task->n_values, unit % parts);
    }
}

/* ---- output norm and gate ---- */

static void finish_part(void *arg, int thread_id, int n_threads)
{
    const delta_task *task = arg;
    const tt_attention *attention = task->attention;
    int64_t Dv = attention->arch->delta.Dv, begin, end;
    tt_split(task->batch->T * task->n_values, n_threads, thread_id, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / task->n_values, h = i % task->n_values;
        float *out = task->out + t * task->out_row + h * Dv;
        ttk.rmsnorm_f32(out, Dv, out, Dv, task->layer->delta_norm.x, 1, Dv,
                        attention->arch->norm_eps);
        ttk.silu_mul_f32(out, Dv, attention->z + i * Dv, Dv, out, Dv, 1, Dv);
    }
}

void tti_delta_heads(tt_attention *attention, int64_t layer_id, const tt_batch *batch,
                     const tt_rows *x)
{
    const tt_arch *arch = attention->arch;
    const tt_delta *delta = &arch->delta;
    const tt_delta_heads *heads = &attention->delta_heads;
    const tti_attention_layer *layer = &attention->layer[layer_id];
    int64_t T = batch->T, channels = attention->channels;
    delta_task task = {0};
    task.attention = attention;
    task.layer = layer;
    task.batch = batch;
    task.n_keys = heads->key_end - heads->key_begin;
    task.n_values = heads->value_end - heads->value_begin;
    task.out_row = delta->Nv * delta->Dv;
    task.out = attention->heads + heads->value_begin * delta->Dv;
    if (task.n_values == 0) {
        return; /* more ranks than heads */
    }
    const tt_linear *part[] = {&layer->q, &layer->k, &layer->v};
    static const char *const name[] = {"delta q", "delta k", "delta v"};
    float *to = attention->mixed;
    for (int i = 0; i < 3; i++) {
        tt_linear_run(part[i], attention->compute, name[i], to, channels, x, T);
        to += part[i]->N;
    }
    tt_linear_run(&layer->gate, attention->compute, "delta z", attention->z, layer->gate.N, x, T);
    tt_linear_run(&layer->beta, attention->compute, "delta beta", attention->beta, task.n_values, x,
                  T);
    tt_linear_run(&layer->decay, attention->compute, "delta decay", attention->decay, task.n_values,
                  x, T);
    tt_stream_run(attention->compute, "delta convolution", convolve_part, &task);
    tt_stream_run(attention->compute, "delta recurrence", recur_part, &task);
    tt_stream_run(attention->compute, "delta output", finish_part, &task);
    attention->kv_bytes_read +=
        (uint64_t)(batch->n_sequences * attention->state_floats) * sizeof(float);
}
