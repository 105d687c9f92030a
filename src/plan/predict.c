/* predict.c - the cost model: how long one decode step takes on a layout, from measured rates.
 *
 * Decoding a few sequences is bound by reading weights, so time is bytes over bandwidth:
 *   attention part  dense weights (of the embedding only the rows) + visible KV of the group's sequences and their recurrent states
 *   expert part     E_g * (1 - (1 - K/E)^T) of the E_g experts that the rank's group holds: the
 *                   expected distinct ones when T tokens choose K of E uniformly
 * Attention and experts of a layer follow each other and every layer waits for its slowest rank, so
 *   step = (max over ranks of attention bytes + max over ranks of expert bytes) / read rate
 *          + per MoE layer: two crossings (rows out, results back) and their bytes over the link
 *          + per layer, if tp > 1: the gathers of heads, o_proj and FFN columns, each a fixed time and a time per row
 * Arithmetic, skewed routing and overlap are not in it; it ranks layouts, it is no promise. */
#include "tutti/plan.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "plan_internal.h"

enum {
    CROSSINGS_PER_MOE_LAYER = 2,
    GATHERS_PER_MOE_LAYER = 3,  /* heads, o_proj columns, dealt rows */
    GATHERS_PER_DENSE_LAYER = 4 /* heads, o_proj columns, FFN inner columns, FFN outer columns */
};

tt_rates tt_rates_default(void)
{
    /* Guesses, for a plan made on a login node: a NUMA domain with a few DDR channels, a 100 Gbit/s
     * adapter shared by few ranks, small-message times usual for such networks and for shared
     * memory. */
    tt_rates rates = {.read_bytes_per_s = 40e9,
                      .link_bytes_per_s = 6e9,
                      .link_latency_s = 3e-6,
                      .window_latency_s = 3e-6};
    return rates;
}

/* A row through a gather inside a node costs its copy and some bookkeeping. Measured on 16 Sapphire
 * Rapids cores (one rank each). */
static const double gather_row_s = 0.5e-6;
static const double gather_bytes_per_s = 5e9;

static bool is_positive(double value)
{
    return isfinite(value) && value > 0.0;
}

/* Expected share of a group's experts that T tokens touch. */
static double touched_share(const tt_arch *arch, int64_t T)
{
    double missed = 1.0 - (double)arch->K / (double)arch->E; /* by one token */
    return 1.0 - pow(missed > 0.0 ? missed : 0.0, (double)T);
}

/* The chance that none of a token's K different choices is among e of the E experts, if all are as
 * likely. */
static double missed_share(const tt_arch *arch, double e)
{
    double share = 1.0;
    for (int64_t k = 0; k < arch->K; k++) {
        const double left = ((double)(arch->E - k) - e) / (double)(arch->E - k);
        share *= left > 0.0 ? left : 0.0;
    }
    return share;
}

/* What a source sends for a row: messages, rows and choices that go to other nodes. */
typedef struct far_traffic {
    double messages, copies, choices;
} far_traffic;

/* From the node that sends most. */
static tt_status most_traffic(const tt_arch *arch, const tt_layout *layout, far_traffic *most_out)
{
    const double per_group = (double)arch->E / (double)layout->n_groups;
    far_traffic most = {0};
    int *groups_on = calloc((size_t)layout->n_nodes, sizeof(*groups_on));
    TT_CHECK(groups_on, TT_ERR_NOMEM, "no memory for %d nodes", layout->n_nodes);
    for (int g = 0; g < layout->n_groups; g++) {
        groups_on[layout->role[layout->expert_rank[g * layout->etp]].node]++;
    }
    int last_node = -1;
    for (int i = 0; i < layout->dp * layout->tp; i++) {
        const int here = layout->role[layout->attention_rank[i]].node;
        far_traffic far = {0};
        for (int node = 0; node < layout->n_nodes && here != last_node; node++) {
            const double n = groups_on[node];
            if (node == here || n == 0.0) {
                continue;
            }
            far.choices += (double)arch->K * n / (double)layout->n_groups;
            if (layout->route == TT_ROUTE_DIRECT) {
                far.messages += n * layout->etp;
                far.copies += n * layout->etp * (1.0 - missed_share(arch, per_group));
            } else {
                far.messages += 1.0;
                far.copies += 1.0 - missed_share(arch, per_group * n);
            }
        }
        last_node = here;
        most = far.copies + far.choices > most.copies + most.choices ? far : most;
    }
    free(groups_on);
    *most_out = most;
    return TT_OK;
}

/* Seconds that the exchange of one MoE layer takes on the rank with most to send to other nodes;
 * choices fall on experts uniformly. */
static double exchange_seconds(const tt_arch *arch, const tt_layout *layout, const tt_rates *rates,
                               const far_traffic *far, int64_t rows)
{
    const double results = layout->combine == TT_COMBINE_REDUCED ? far->copies : far->choices;
    const double bytes =
        (double)rows * (far->copies * (double)tt_wire_row_bytes(layout->wire, arch->H) +
                        results * (double)tt_wire_row_bytes(layout->wire_back, arch->H));
    const double latency = far->messages > 0.0 ? rates->link_latency_s : rates->window_latency_s;
    return CROSSINGS_PER_MOE_LAYER * latency + bytes / rates->link_bytes_per_s;
}

/* Seconds of one gather of rows[n_rows][H] inside a TP group. */
static double gather_seconds(const tt_arch *arch, double latency_s, int64_t n_rows)
{
    double row_s = gather_row_s + (double)arch->H * sizeof(float) / gather_bytes_per_s;
    return latency_s + (double)n_rows * row_s;
}

/* The latency of a gather: that of the slowest link inside any TP group. */
static double gather_latency(const tt_layout *layout, const tt_rates *rates)
{
    for (int i = 0; i < layout->dp * layout->tp; i++) {
        int first = layout->attention_rank[i / layout->tp * layout->tp];
        if (layout->role[layout->attention_rank[i]].node != layout->role[first].node) {
            return rates->link_latency_s;
        }
    }
    return rates->window_latency_s;
}

double tti_plan_tp_seconds(const tt_arch *arch, int tp, int64_t n_rows)
{
    enum { BF16_BYTES = 2 }; /* what checkpoints hold; the choice hardly depends on it */
    tt_rates rates = tt_rates_default();
    /* Elements that tp divides, and elements that every rank reads whole. */
    double split = (double)arch->V * (double)arch->H, whole = 0.0;
    int64_t n_gathers = 0;
    for (int64_t layer = 0; layer < arch->L; layer++) {
        double H = (double)arch->H, Nq = (double)arch->Nq;
        if (arch->layer[layer].mixer == TT_MIXER_DELTA) {
            const tt_delta *d = &arch->delta;
            split += H * (2.0 * (double)(d->Nk * d->Dk) + 3.0 * (double)(d->Nv * d->Dv));
        } else if (arch->attention == TT_ATTENTION_MLA) {
            double q_in = arch->q_rank > 0 ? (double)arch->q_rank : H;
            split += Nq * ((double)(arch->nope_dim + arch->rope_dim) * q_in +
                           (double)(arch->nope_dim + arch->v_dim) * (double)arch->kv_rank +
                           (double)arch->v_dim * H);
            whole += H * (double)(arch->q_rank + arch->kv_rank + arch->rope_dim);
        } else {
            split += (2.0 * (Nq + (double)arch->Nkv) + (arch->attention_gate ? Nq : 0.0)) *
                     (double)arch->D * H;
        }
        if (arch->E > 0 && arch->layer[layer].is_moe) {
            whole += H * ((double)arch->E + 3.0 * (double)arch->F_shared);
            n_gathers += GATHERS_PER_MOE_LAYER;
        } else {
            split += 3.0 * H * (double)arch->F_dense;
            n_gathers += GATHERS_PER_DENSE_LAYER;
        }
    }
    double seconds = (split / tp + whole) * BF16_BYTES / rates.read_bytes_per_s;
    if (tp > 1) {
        seconds += (double)n_gathers * gather_seconds(arch, rates.window_latency_s, n_rows);
    }
    return seconds;
}

tt_status tt_plan_predict(const tt_model *model, const tt_layout *layout, const tt_rates *rates,
                          int64_t batch, int64_t context, double *step_s_out, double *bytes_out)
{
    TT_CHECK(batch >= 1 && context >= 0, TT_ERR_ARG,
             "a step of %" PRId64 " sequences at context %" PRId64 " cannot be predicted", batch,
             context);
    TT_CHECK(is_positive(rates->read_bytes_per_s) && is_positive(rates->link_bytes_per_s) &&
                 rates->link_latency_s >= 0.0 && rates->window_latency_s >= 0.0,
             TT_ERR_ARG, "rates must be positive numbers");
    const tt_arch *arch = tt_model_arch(model);
    int64_t group_batch = batch / layout->dp + (batch % layout->dp != 0);
    int64_t rank_rows = group_batch / layout->tp + (group_batch % layout->tp != 0);
    double share = layout->n_groups > 0 ? touched_share(arch, batch) : 0.0;
    double embedding_rows = (double)tti_plan_embedding_bytes(model) /
                            (double)(arch->V > 0 ? arch->V : 1) * (double)group_batch;
    double most_attention = 0.0, most_experts = 0.0, most_weights = 0.0;
    for (int rank = 0; rank < layout->n_ranks; rank++) {
        bool attends = layout->role[rank].dp_id >= 0;
        double dense = (double)tti_plan_dense_bytes(model, layout, rank);
        dense += attends ? embedding_rows : 0.0;
        double kv =
            (double)tti_plan_context_bytes(arch, layout, rank, context) * (double)group_batch;
        double experts = share * (double)tti_plan_expert_bytes(model, layout, rank);
        most_attention = fmax(most_attention, dense + kv);
        most_experts = fmax(most_experts, experts);
        most_weights = fmax(most_weights, dense + experts);
    }
    double step_s = (most_attention + most_experts) / rates->read_bytes_per_s;
    if (layout->n_ranks > 1) {
        double gather_s = layout->tp == 1
                              ? 0.0
                              : gather_seconds(arch, gather_latency(layout, rates), group_batch);
        double moe_s = 0.0;
        if (layout->n_groups > 0) {
            far_traffic far = {0};
            TT_TRY(most_traffic(arch, layout, &far));
            moe_s = exchange_seconds(arch, layout, rates, &far, rank_rows);
        }
        for (int64_t layer = 0; layer < arch->L; layer++) {
            bool is_moe = arch->E > 0 && arch->layer[layer].is_moe;
            step_s += is_moe ? moe_s + GATHERS_PER_MOE_LAYER * gather_s
                             : GATHERS_PER_DENSE_LAYER * gather_s;
        }
    }
    *step_s_out = step_s;
    *bytes_out = most_weights;
    return TT_OK;
}
