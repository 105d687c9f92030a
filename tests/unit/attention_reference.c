/* attention_reference.c - what a layer computes, in double precision and by the formulas as
 * written: every score before any sum, latent attention in its plain form, the recurrence without
 * parts. One sequence, no cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "attention_model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *take(int64_t n)
{
    double *x = calloc((size_t)n + 1, sizeof(*x));
    assert_non_null(x);
    return x;
}

/* y[rows] = w x (+ bias), w being rows [row, row + rows) of a role's tensor. */
static void product(const tt_model *model, tt_role role, tt_role bias, int64_t layer, int64_t row,
                    int64_t rows, const double *x, double *y)
{
    int64_t all, cols;
    assert_true(model_shape(model, role, layer, &all, &cols));
    const float *w = model->weight[role][layer] + row * cols;
    for (int64_t i = 0; i < rows; i++) {
        y[i] = bias < TT_ROLE_COUNT && model->weight[bias][layer]
                   ? (double)model->weight[bias][layer][row + i]
                   : 0.0;
        for (int64_t k = 0; k < cols; k++) {
            y[i] += (double)w[i * cols + k] * x[k];
        }
    }
}

static void normalise(double *x, int64_t n, const float *w, double eps)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] = x[i] / sqrt(sum / (double)n + eps) * (w ? (double)w[i] : 1.0);
    }
}

/* The first rope.dim components of a head, at a position of a sequence of T. */
static void rotate(const tt_arch *a, int64_t T, double *x, int64_t position)
{
    const tt_rope *rope = &a->rope;
    bool is_long = rope->long_inv_freq && T > rope->long_from;
    for (int64_t i = 0; i < rope->dim / 2; i++) {
        double angle =
            (double)((float)position * (is_long ? rope->long_inv_freq[i] : rope->inv_freq[i]));
        double factor = (double)(is_long ? rope->long_attention_factor : rope->attention_factor);
        double *p = rope->interleaved ? x + 2 * i : x + i,
               *q = rope->interleaved ? x + 2 * i + 1 : x + i + rope->dim / 2;
        double u = *p, v = *q, c = cos(angle) * factor, s = sin(angle) * factor;
        *p = u * c - v * s;
        *q = v * c + u * s;
    }
}

static bool is_visible(const tt_layer *layer, int64_t query, int64_t key)
{
    return key <= query && (layer->window == 0 || query - key < layer->window) &&
           (layer->chunk == 0 || query / layer->chunk == key / layer->chunk);
}

/* out[Dv] = softmax(q . k * scale, sink) v over what row t sees; keys and values of one head, row j
 * at k + j*k_row. */
static void attend(const tt_arch *a, const tt_layer *layer, int64_t t, const double *q,
                   const double *k, int64_t k_row, int64_t Dk, const double *v, int64_t v_row,
                   int64_t Dv, const float *sink, double *out)
{
    double *p = take(t + 1), max = sink ? (double)*sink : -INFINITY;
    for (int64_t j = 0; j <= t; j++) {
        double dot = 0.0;
        for (int64_t d = 0; d < Dk; d++) {
            dot += q[d] * k[j * k_row + d];
        }
        p[j] = is_visible(layer, t, j) ? dot * (double)a->softmax_scale : -INFINITY;
        max = p[j] > max ? p[j] : max;
    }
    double sum = sink ? exp((double)*sink - max) : 0.0;
    for (int64_t j = 0; j <= t; j++) {
        p[j] = exp(p[j] - max);
        sum += p[j];
    }
    for (int64_t d = 0; d < Dv; d++) {
        out[d] = 0.0;
        for (int64_t j = 0; j <= t; j++) {
            out[d] += p[j] / sum * v[j * v_row + d];
        }
    }
    free(p);
}

/* ---- grouped-query ---- */

static void prepare(const tt_model *model, int64_t l, int64_t T, double *x, int64_t n_heads,
                    const float *w, int64_t position)
{
    const tt_arch *a = &model->arch;
    bool whole = a->qk_norm == TT_QK_NORM_WHOLE;
    for (int step = 0; step < 2; step++) {
        bool is_norm = (step == 1) == a->qk_norm_after_rope;
        int64_t n = is_norm && whole ? 1 : n_heads,
                width = is_norm && whole ? n_heads * a->D : a->D;
        for (int64_t h = 0; h < n; h++) {
            if (is_norm && a->qk_norm != TT_QK_NORM_NONE && a->layer[l].qk_norm) {
                normalise(x + h * width, width, w, (double)a->norm_eps);
            } else if (!is_norm && a->layer[l].rope) {
                rotate(a, T, x + h * a->D, position);
            }
        }
    }
}

static void gqa(const tt_model *model, int64_t l, int64_t T, const double *x, double *heads)
{
    const tt_arch *a = &model->arch;
    int64_t D = a->D, Q = a->Nq * D, K = a->Nkv * D;
    double *q = take(T * Q), *k = take(T * K), *v = take(T * K), *gate = take(Q);
    for (int64_t t = 0; t < T; t++) {
        product(model, TT_ROLE_Q, TT_ROLE_Q_BIAS, l, 0, Q, x + t * a->H, q + t * Q);
        product(model, TT_ROLE_K, TT_ROLE_K_BIAS, l, 0, K, x + t * a->H, k + t * K);
        product(model, TT_ROLE_V, TT_ROLE_V_BIAS, l, 0, K, x + t * a->H, v + t * K);
        prepare(model, l, T, q + t * Q, a->Nq, model->weight[TT_ROLE_Q_NORM][l], t);
        prepare(model, l, T, k + t * K, a->Nkv, model->weight[TT_ROLE_K_NORM][l], t);
        for (int64_t i = 0; a->layer[l].scale_queries && i < Q; i++) {
            q[t * Q + i] *= 1.0 + (double)a->query_scale *
                                      log(1.0 + floor((double)(t + 1) / (double)a->query_floor));
        }
        for (int64_t h = 0; h < a->Nq; h++) {
            int64_t kv = h / (a->Nq / a->Nkv);
            const float *sink = a->sinks ? model->weight[TT_ROLE_SINKS][l] + h : NULL;
            attend(a, &a->layer[l], t, q + t * Q + h * D, k + kv * D, K, D, v + kv * D, K, D, sink,
                   heads + t * Q + h * D);
        }
        if (a->attention_gate) {
            product(model, TT_ROLE_Q_GATE, TT_ROLE_COUNT, l, 0, Q, x + t * a->H, gate);
            for (int64_t i = 0; i < Q; i++) {
                heads[t * Q + i] /= 1.0 + exp(-gate[i]);
            }
        }
    }
    free(q);
    free(k);
    free(v);
    free(gate);
}

/* ---- latent ---- */

static void mla(const tt_model *model, int64_t l, int64_t T, const double *x, double *heads)
{
    const tt_arch *a = &model->arch;
    int64_t r = a->kv_rank, dn = a->nope_dim, dr = a->rope_dim, dv = a->v_dim, head = dn + dr,
            K = a->Nq * head, V = a->Nq * dv;
    double *k = take(T * K), *v = take(T * V), *q = take(K), *low = take(a->q_rank),
           *latent = take(r + dr);
    const float *wk = model->weight[TT_ROLE_MLA_K][l];
    for (int64_t t = 0; t < T; t++) {
        product(model, TT_ROLE_KV_A, TT_ROLE_COUNT, l, 0, r + dr, x + t * a->H, latent);
        normalise(latent, r, model->weight[TT_ROLE_KV_A_NORM][l], (double)a->mla_norm_eps);
        rotate(a, T, latent + r, t);
        for (int64_t h = 0; h < a->Nq; h++) {
            double *key = k + t * K + h * head;
            memcpy(key + dn, latent + r, (size_t)dr * sizeof(double));
            if (!model->arch.mla_split) {
                product(model, TT_ROLE_KV_B, TT_ROLE_COUNT, l, h * (dn + dv), dn, latent, key);
                product(model, TT_ROLE_KV_B, TT_ROLE_COUNT, l, h * (dn + dv) + dn, dv, latent,
                        v + t * V + h * dv);
                continue;
            }
            product(model, TT_ROLE_MLA_V, TT_ROLE_COUNT, l, h * dv, dv, latent, v + t * V + h * dv);
            for (int64_t i = 0; i < dn; i++) {
                key[i] = 0.0;
                for (int64_t j = 0; j < r; j++) {
                    key[i] += (double)wk[(h * r + j) * dn + i] * latent[j];
                }
            }
        }
        if (a->q_rank > 0) {
            product(model, TT_ROLE_Q_A, TT_ROLE_COUNT, l, 0, a->q_rank, x + t * a->H, low);
            normalise(low, a->q_rank, model->weight[TT_ROLE_Q_A_NORM][l], (double)a->mla_norm_eps);
            product(model, TT_ROLE_Q_B, TT_ROLE_COUNT, l, 0, K, low, q);
        } else {
            product(model, TT_ROLE_Q, TT_ROLE_COUNT, l, 0, K, x + t * a->H, q);
        }
        for (int64_t h = 0; h < a->Nq; h++) {
            rotate(a, T, q + h * head + dn, t);
            attend(a, &a->layer[l], t, q + h * head, k + h * head, K, head, v + h * dv, V, dv, NULL,
                   heads + t * V + h * dv);
        }
    }
    free(k);
    free(v);
    free(q);
    free(low);
    free(latent);
}

/* ---- gated delta net ---- */

/* One token of one value head: q[Dk] and k[Dk] of unit length (q then shortened), v[Dv]; S[Dk][Dv]
 * moves on. */
static void delta_step(const tt_delta *d, const double *q, const double *k, const double *v,
                       double decay, double beta, double *S, double *out)
{
    for (int64_t j = 0; j < d->Dv; j++) {
        double seen = 0.0;
        for (int64_t i = 0; i < d->Dk; i++) {
            S[i * d->Dv + j] *= decay;
            seen += S[i * d->Dv + j] * k[i];
        }
        out[j] = 0.0;
        for (int64_t i = 0; i < d->Dk; i++) {
            S[i * d->Dv + j] += k[i] * beta * (v[j] - seen);
            out[j] += S[i * d->Dv + j] * q[i];
        }
    }
}

static void unit(double *x, int64_t n, double length)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] *= length / sqrt(sum + 1e-6);
    }
}

static void delta(const tt_model *model, int64_t l, int64_t T, const double *x, double *heads)
{
    const tt_arch *a = &model->arch;
    const tt_delta *d = &a->delta;
    int64_t keys = d->Nk * d->Dk, values = d->Nv * d->Dv, W = 2 * keys + values,
            state = d->Dk * d->Dv;
    double *raw = take(T * W), *mixed = take(W), *z = take(values), *b = take(d->Nv),
           *g = take(d->Nv), *S = take(d->Nv * state);
    for (int64_t t = 0; t < T; t++) {
        const double *row = x + t * a->H;
        product(model, TT_ROLE_DELTA_QKV, TT_ROLE_COUNT, l, 0, W, row, raw + t * W);
        product(model, TT_ROLE_DELTA_GATE, TT_ROLE_COUNT, l, 0, values, row, z);
        product(model, TT_ROLE_DELTA_BETA, TT_ROLE_COUNT, l, 0, d->Nv, row, b);
        product(model, TT_ROLE_DELTA_DECAY, TT_ROLE_COUNT, l, 0, d->Nv, row, g);
        for (int64_t c = 0; c < W; c++) {
            double sum = 0.0;
            for (int64_t j = 0; j < d->conv; j++) {
                int64_t from = t - (d->conv - 1) + j;
                sum += from >= 0 ? (double)model->weight[TT_ROLE_DELTA_CONV][l][c * d->conv + j] *
                                       raw[from * W + c]
                                 : 0.0;
            }
            mixed[c] = sum / (1.0 + exp(-sum));
        }
        for (int64_t h = 0; h < d->Nk; h++) {
            unit(mixed + h * d->Dk, d->Dk, 1.0 / sqrt((double)d->Dk));
            unit(mixed + keys + h * d->Dk, d->Dk, 1.0);
        }
        for (int64_t h = 0; h < d->Nv; h++) {
            int64_t key = h / (d->Nv / d->Nk);
            double *out = heads + t * values + h * d->Dv;
            double steps = log1p(exp(g[h] + (double)model->weight[TT_ROLE_DELTA_DECAY_BIAS][l][h]));
            double decay = exp(-(double)model->weight[TT_ROLE_DELTA_DECAY_RATE][l][h] * steps);
            delta_step(d, mixed + key * d->Dk, mixed + keys + key * d->Dk,
                       mixed + 2 * keys + h * d->Dv, decay, 1.0 / (1.0 + exp(-b[h])), S + h * state,
                       out);
            normalise(out, d->Dv, model->weight[TT_ROLE_DELTA_NORM][l], (double)a->norm_eps);
            for (int64_t i = 0; i < d->Dv; i++) {
                double zi = z[h * d->Dv + i];
                out[i] *= zi / (1.0 + exp(-zi));
            }
        }
    }
    free(raw);
    free(mixed);
    free(z);
    free(b);
    free(g);
    free(S);
}

void reference_run(const tt_model *model, int64_t layer, int64_t T, const float *x, double *y)
{
    const tt_arch *a = &model->arch;
    bool is_delta = a->layer[layer].mixer == TT_MIXER_DELTA,
         is_mla = a->attention == TT_ATTENTION_MLA;
    int64_t width = is_delta ? a->delta.Nv * a->delta.Dv : a->Nq * (is_mla ? a->v_dim : a->D);
    double *rows = take(T * a->H), *heads = take(T * width);
    for (int64_t i = 0; i < T * a->H; i++) {
        rows[i] = (double)x[i];
    }
    if (is_delta) {
        delta(model, layer, T, rows, heads);
    } else if (is_mla) {
        mla(model, layer, T, rows, heads);
    } else {
        gqa(model, layer, T, rows, heads);
    }
    for (int64_t t = 0; t < T; t++) {
        product(model, is_delta ? TT_ROLE_DELTA_OUT : TT_ROLE_O,
                is_delta ? TT_ROLE_COUNT : TT_ROLE_O_BIAS, layer, 0, a->H, heads + t * width,
                y + t * a->H);
    }
    free(rows);
    free(heads);
}
