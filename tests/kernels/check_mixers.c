/* check_mixers.c - checkers of the layer norm and of the gated delta net: its convolution, its
 * recurrence, and softplus, from which the caller makes the decay. */
#include "check.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_T = 6, MAX_WIDTH = 700, MAX_TAPS = 6, MAX_DK = 150 };

/* ---- layer norm ---- */

static bool layernorm_is_right(const float *y, const float *x, const float *g, const float *b,
                               int64_t H, double eps, const char *what)
{
    double mean = 0.0, square = 0.0, size = 0.0;
    for (int64_t h = 0; h < H; h++) {
        mean += (double)x[h] / (double)H;
        size += fabs((double)x[h]) / (double)H;
    }
    for (int64_t h = 0; h < H; h++) {
        square += ((double)x[h] - mean) * ((double)x[h] - mean) / (double)H;
    }
    double scale = 1.0 / sqrt(square + eps);
    /* Each sum has H / 16 + 4 roundings; an error of the mean moves every difference, and the scale
     * by at most as much. */
    double roundings = HALF_ULP * ((double)H / 16.0 + 16.0);
    double shift = size * roundings;
    for (int64_t h = 0; h < H; h++) {
        double scaled = ((double)x[h] - mean) * scale;
        double want = scaled * (double)g[h] + (b ? (double)b[h] : 0.0);
        double bound = fabs((double)g[h]) *
                           (fabs(scaled) * (roundings + 2.0 * shift * scale) + shift * scale) +
                       4.0 * HALF_ULP * (fabs(want) + fabs(scaled * (double)g[h]));
        if (!close_to(y[h], want, bound, what, h)) {
            return false;
        }
    }
    return true;
}

bool check_layernorm_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    values kind = (values)rng_below(r, VALUES_COUNT);
    int64_t T = rng_below(r, MAX_T), H = rng_size(r, MAX_WIDTH);
    int64_t ldx = H + rng_below(r, 3), ldy = H + rng_below(r, 3);
    bool has_b = rng_below(r, 3) != 0, in_place = rng_below(r, 3) == 0;
    float eps = kind == VALUES_PLAIN ? 1e-5f : 0.0f;
    char what[120];
    snprintf(what, sizeof(what), "layernorm T %lld H %lld b %d in place %d values %d", (long long)T,
             (long long)H, has_b, in_place, kind);
    buffer x = filled(r, strided(T, ldx, H), kind);
    buffer g = filled(r, (size_t)H, kind);
    buffer b = filled(r, (size_t)H, kind);
    const float *bias = has_b ? buffer_f32(&b) : NULL;
    ldy = in_place ? ldx : ldy;
    buffer got = in_place ? buffer_copy(&x) : buffer_new(strided(T, ldy, H), sizeof(float));
    buffer want = buffer_copy(&got);
    ((ttk_layernorm_f32_fn *)fn)(buffer_f32(&got), ldy,
                                 in_place ? buffer_f32(&got) : buffer_f32(&x), ldx, buffer_f32(&g),
                                 bias, T, H, eps);
    ((ttk_layernorm_f32_fn *)ref)(buffer_f32(&want), ldy,
                                  in_place ? buffer_f32(&want) : buffer_f32(&x), ldx,
                                  buffer_f32(&g), bias, T, H, eps);
    bool ok = same_f32(&got, &want, what) && (in_place || gaps_kept(&got, T, ldy, H, what));
    for (int64_t t = 0; ok && kind == VALUES_PLAIN && t < T; t++) {
        ok = layernorm_is_right(buffer_f32(&got) + t * ldy, buffer_f32(&x) + t * ldx,
                                buffer_f32(&g), bias, H, (double)eps, what);
    }
    BUFFERS_FREE(&x, &g, &b, &got, &want);
    return ok;
}

/* ---- convolution ---- */

bool check_conv_silu_f32(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    values kind = (values)rng_below(r, VALUES_COUNT);
    int64_t n = rng_size(r, MAX_WIDTH), n_taps = rng_below(r, MAX_TAPS), ldw = n + rng_below(r, 3);
    char what[120];
    snprintf(what, sizeof(what), "conv_silu n %lld taps %lld values %d", (long long)n,
             (long long)n_taps, kind);
    buffer x[MAX_TAPS];
    const float *rows[MAX_TAPS] = {NULL};
    for (int64_t j = 0; j < n_taps; j++) {
        x[j] = filled(r, (size_t)n, kind);
        rows[j] = buffer_f32(&x[j]);
    }
    buffer w = filled(r, strided(n_taps, ldw, n), kind);
    buffer got = buffer_new((size_t)n, sizeof(float));
    buffer want = buffer_copy(&got);
    ((ttk_conv_silu_f32_fn *)fn)(buffer_f32(&got), rows, buffer_f32(&w), ldw, n_taps, n);
    ((ttk_conv_silu_f32_fn *)ref)(buffer_f32(&want), rows, buffer_f32(&w), ldw, n_taps, n);
    bool ok = same_f32(&got, &want, what);
    for (int64_t i = 0; ok && kind == VALUES_PLAIN && i < n; i++) {
        double a = 0.0, size = 0.0;
        for (int64_t j = 0; j < n_taps; j++) {
            double term = (double)buffer_f32(&w)[j * ldw + i] * (double)rows[j][i];
            a += term;
            size += fabs(term);
        }
        double y = a / (1.0 + exp(-a));
        /* silu's slope is at most 1.1 */
        double bound = HALF_ULP * (1.1 * (double)n_taps * size + 10.0 * fabs(y));
        ok = close_to(buffer_f32(&got)[i], y, bound, what, i);
    }
    for (int64_t j = 0; j < n_taps; j++) {
        buffer_free(&x[j]);
    }
    BUFFERS_FREE(&w, &got, &want);
    return ok;
}

/* ---- softplus ---- */

static bool softplus_is_right(rng *r)
{
    enum { TRIES = 300, MAX_ULP = 4 };
    for (int i = 0; i < TRIES; i++) {
        float x = (i % 3 == 0 ? 100.0f : i % 3 == 1 ? 10.0f : 1.0f) * rng_plain(r);
        double want = x > 0.0f ? (double)x + log1p(exp(-(double)x)) : log1p(exp((double)x));
        int exponent;
        frexp(want, &exponent);
        double bound = x < -87.3f ? 0x1p-125 : (double)MAX_ULP * ldexp(1.0, exponent - 24);
        if (!close_to(ttk_softplus(x), want, bound, "ttk_softplus", i)) {
            return fault("ttk_softplus(%a)", (double)x);
        }
    }
    float nan = ttk_softplus(NAN);
    return (nan != nan && ttk_softplus(INFINITY) == INFINITY && ttk_softplus(-INFINITY) == 0.0f) ||
           fault("ttk_softplus: a special value");
}

/* ---- recurrence ---- */

/* One case; state and out are the buffers that a run changes. */
typedef struct delta_case {
    ttk_delta_args args;
    buffer q, k, v, decay, beta, state, out;
} delta_case;

static delta_case delta_new(rng *r, values kind)
{
    delta_case c;
    memset(&c, 0, sizeof(c));
    ttk_delta_args *a = &c.args;
    a->Dk = rng_size(r, MAX_DK);
    a->n = rng_below(r, 3) == 0 ? rng_below(r, TTK_DELTA_COLUMNS + 1) : TTK_DELTA_COLUMNS;
    a->T = rng_below(r, MAX_T);
    a->ldq = a->Dk + rng_below(r, 3);
    a->ldk = a->Dk + rng_below(r, 3);
    a->ldv = a->n + rng_below(r, 3);
    a->ldo = a->n + rng_below(r, 3);
    a->ld_gate = 1 + rng_below(r, 3);
    c.q = filled(r, strided(a->T, a->ldq, a->Dk), kind);
    c.k = filled(r, strided(a->T, a->ldk, a->Dk), kind);
    c.v = filled(r, strided(a->T, a->ldv, a->n), kind);
    c.decay = filled(r, strided(a->T, a->ld_gate, 1), kind);
    c.beta = filled(r, strided(a->T, a->ld_gate, 1), kind);
    c.state = filled(r, (size_t)(a->Dk * TTK_DELTA_COLUMNS), kind);
    c.out = buffer_new(strided(a->T, a->ldo, a->n), sizeof(float));
    a->q = buffer_f32(&c.q);
    a->k = buffer_f32(&c.k);
    a->v = buffer_f32(&c.v);
    a->decay = buffer_f32(&c.decay);
    a->beta = buffer_f32(&c.beta);
    return c;
}

static void delta_run(ttk_any_fn *fn, ttk_delta_args args, const buffer *state, const buffer *out)
{
    args.state = buffer_f32(state);
    args.out = buffer_f32(out);
    ((ttk_delta_fn *)fn)(&args);
}

/* Column j in double. Each step's error is carried on by decay and by k, both at most 1 here, and
 * grows by a part of what was summed. */
static bool delta_column_is_right(const delta_case *c, const buffer *got_state,
                                  const buffer *got_out, int64_t j, const char *what)
{
    const ttk_delta_args *a = &c->args;
    double s[MAX_DK], error[MAX_DK];
    for (int64_t i = 0; i < a->Dk; i++) {
        s[i] = (double)buffer_f32(&c->state)[i * TTK_DELTA_COLUMNS + j];
        error[i] = 0.0;
    }
    double unit = HALF_ULP * (double)(a->Dk + 4);
    for (int64_t t = 0; t < a->T; t++) {
        double decay = (double)a->decay[t * a->ld_gate], beta = (double)a->beta[t * a->ld_gate];
        double m = 0.0, m_size = 0.0, m_error = 0.0, o = 0.0, o_size = 0.0, o_error = 0.0;
        for (int64_t i = 0; i < a->Dk; i++) {
            double k = (double)a->k[t * a->ldk + i];
            s[i] *= decay;
            error[i] = error[i] * fabs(decay) + fabs(s[i]) * HALF_ULP;
            m += k * s[i];
            m_size += fabs(k * s[i]);
            m_error += fabs(k) * error[i];
        }
        double v = j < a->n ? (double)a->v[t * a->ldv + j] : 0.0;
        double d = beta * (v - m);
        double d_error =
            fabs(beta) * (m_error + m_size * unit + 2.0 * HALF_ULP * (fabs(v) + fabs(m)));
        for (int64_t i = 0; i < a->Dk; i++) {
            double k = (double)a->k[t * a->ldk + i], q = (double)a->q[t * a->ldq + i];
            s[i] += k * d;
            error[i] += fabs(k) * d_error + 2.0 * HALF_ULP * fabs(s[i]);
            o += q * s[i];
            o_size += fabs(q * s[i]);
            o_error += fabs(q) * error[i];
        }
        if (j < a->n && !close_to(buffer_f32(got_out)[t * a->ldo + j], o,
                                  2.0 * (o_error + o_size * unit) + 1e-30, what, j)) {
            return false;
        }
    }
    for (int64_t i = 0; i < a->Dk; i++) {
        if (!close_to(buffer_f32(got_state)[i * TTK_DELTA_COLUMNS + j], s[i],
                      2.0 * error[i] + 1e-30, what, i)) {
            return false;
        }
    }
    return true;
}

/* Cut in two runs, the tokens give the same state and outputs. */
static bool delta_may_be_cut(ttk_any_fn *fn, const delta_case *c, const buffer *state,
                             const buffer *out, rng *r)
{
    ttk_delta_args first = c->args, second = c->args;
    int64_t cut = rng_below(r, c->args.T + 1);
    buffer cut_state = buffer_copy(&c->state);
    buffer cut_out = buffer_new(out->bytes / sizeof(float), sizeof(float));
    first.T = cut;
    delta_run(fn, first, &cut_state, &cut_out);
    second.T -= cut;
    second.q += cut * second.ldq;
    second.k += cut * second.ldk;
    second.v += cut * second.ldv;
    second.decay += cut * second.ld_gate;
    second.beta += cut * second.ld_gate;
    second.state = buffer_f32(&cut_state);
    second.out = buffer_f32(&cut_out) + cut * second.ldo;
    ((ttk_delta_fn *)fn)(&second);
    bool ok = same_f32(&cut_state, state, "delta state of a cut run") &&
              same_f32(&cut_out, out, "delta output of a cut run");
    BUFFERS_FREE(&cut_state, &cut_out);
    return ok;
}

bool check_delta(ttk_any_fn *fn, ttk_any_fn *ref, rng *r)
{
    values kind = (values)rng_below(r, VALUES_COUNT);
    delta_case c = delta_new(r, kind);
    char what[120];
    snprintf(what, sizeof(what), "delta Dk %lld n %lld T %lld values %d", (long long)c.args.Dk,
             (long long)c.args.n, (long long)c.args.T, kind);
    buffer got_state = buffer_copy(&c.state), want_state = buffer_copy(&c.state);
    buffer got = buffer_copy(&c.out), want = buffer_copy(&c.out);
    delta_run(fn, c.args, &got_state, &got);
    delta_run(ref, c.args, &want_state, &want);
    bool ok = same_f32(&got, &want, what) && same_f32(&got_state, &want_state, what) &&
              gaps_kept(&got, c.args.T, c.args.ldo, c.args.n, what) &&
              delta_may_be_cut(fn, &c, &got_state, &got, r);
    for (int64_t j = 0; ok && kind == VALUES_PLAIN && j < TTK_DELTA_COLUMNS; j++) {
        ok = delta_column_is_right(&c, &got_state, &got, j, what);
    }
    ok = ok && softplus_is_right(r);
    BUFFERS_FREE(&c.q, &c.k, &c.v, &c.decay, &c.beta, &c.state, &c.out, &got_state, &want_state,
                 &got, &want);
    return ok;
}
