/* slots.c - the experts of this rank's slots: loaded, and changed between steps.
 *
 * With closed slots each holds what it was loaded with, and takes the memory of that. Open slots of
 * a layer are alike, the empty ones too: each has room for any expert of the layer, whose matrices
 * have one format and, packed, one size. So to move an expert is to copy bytes: its panels, with
 * the scales that are in them, and its biases. */
#include "moe_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- checks ---- */

static const int32_t *experts_of(const tt_moe *moe, int64_t layer)
{
    const tt_placement *p = moe->placement;
    return p->expert_of_slot + (layer * p->n_groups + moe->role->group_id) * p->slots_per_group;
}

tt_status tti_slots_check(const tt_moe *moe, const tt_load_params *load)
{
    const tt_placement *p = moe->placement;
    TT_CHECK(p->L == moe->L && p->E == moe->E && p->n_groups == moe->layout->n_groups &&
                 p->slots_per_group == moe->layout->slots_per_group,
             TT_ERR_ARG, "a placement of another model or layout");
    for (int64_t l = 0; l < moe->L && moe->layout->open_slots; l++) {
        for (int64_t e = 1; moe->arch->layer[l].is_moe && e < moe->E; e++) {
            TT_CHECK(tti_ffn_alike(load, &tti_ffn_expert, l, 0, e), TT_ERR_UNSUPPORTED,
                     "layer %lld: experts 0 and %lld are stored in different formats, so they "
                     "cannot take each other's place: use --balance off",
                     (long long)l, (long long)e);
        }
    }
    return TT_OK;
}

/* ---- loading ---- */

/* Memory of a layer's slots: of all that are open, or of those with an expert. */
static tt_status take_memory(tt_moe *moe, tt_load_params *load, int64_t layer)
{
    tti_moe_layer *l = &moe->layer[layer];
    const int32_t *expert = experts_of(moe, layer);
    size_t bytes = 0;
    for (int64_t s = 0; s < moe->n_slots; s++) {
        const int64_t like = moe->layout->open_slots ? 0 : expert[s];
        bytes +=
            like >= 0 ? tti_ffn_packed_bytes(load, &tti_ffn_expert, layer, like, &moe->part) : 0;
    }
    l->slot = calloc((size_t)moe->n_slots + 1, sizeof(*l->slot));
    TT_CHECK(l->slot, TT_ERR_NOMEM, "no memory for %lld expert slots", (long long)moe->n_slots);
    if (bytes > 0) {
        char what[40];
        snprintf(what, sizeof(what), "experts of layer %lld", (long long)layer);
        TT_TRY(tt_arena_init(&l->experts, what, bytes, load->node));
    }
    load->arena = bytes > 0 ? &l->experts : NULL;
    return TT_OK;
}

/* Each matrix is a read of its own and the next expert is told ahead: neighbouring slots are
 * neighbours in files, which the system's own read-ahead sees. Neither telling it megabytes ahead
 * nor joining reads is faster, even of small experts (128 KiB a matrix, 3072 of them, cold cache:
 * 1.8 s as here, 2.4 s told 4 MiB ahead; the calls themselves take below 2 % of it). */
tt_status tti_slots_load(tt_moe *moe, tt_load_params *load, int64_t layer)
{
    tti_moe_layer *l = &moe->layer[layer];
    const int32_t *expert = experts_of(moe, layer);
    TT_TRY(take_memory(moe, load, layer));
    for (int64_t s = 0; s < moe->n_slots; s++) {
        if (expert[s] >= 0) {
            if (s + 1 < moe->n_slots && expert[s + 1] >= 0) {
                tti_ffn_will_need(load, &tti_ffn_expert, layer, expert[s + 1], &moe->part);
            }
            TT_TRY(tti_ffn_load(load, &tti_ffn_expert, layer, expert[s], &moe->part, &l->slot[s]));
        } else if (moe->layout->open_slots) {
            TT_TRY(tti_ffn_reserve(load, &tti_ffn_expert, layer, 0, &moe->part, &l->slot[s]));
        }
    }
    /* it was sized as its parts were then taken */
    TT_ASSERT(l->experts.used_bytes == l->experts.size_bytes);
    return TT_OK;
}

void tti_slots_fini(tt_moe *moe, tti_moe_layer *layer)
{
    for (int64_t s = 0; layer->slot && s < moe->n_slots; s++) {
        tt_ffn_fini(&layer->slot[s]);
    }
    free(layer->slot);
    tt_arena_fini(&layer->experts);
}

/* ---- choosing among replicas ---- */

/* Choices of one rank in one layer from where on its own counts say more than the placement's
 * shares. Guessed: some rows for each expert. */
enum { LEVEL_CHOICES = 256 };

tt_status tti_slots_spread(tt_moe *moe)
{
    const tt_layout *layout = moe->layout;
    const int rank = tt_world_rank(moe->world);
    int *distance = calloc((size_t)layout->n_groups + 1, sizeof(*distance));
    TT_CHECK(distance, TT_ERR_NOMEM, "no memory for %d expert groups", layout->n_groups);
    for (int g = 0; g < layout->n_groups; g++) {
        const int *member = layout->expert_rank + (int64_t)g * layout->etp;
        distance[g] = layout->role[member[0]].node == moe->role->node ? 1 : 2;
        for (int i = 0; i < layout->etp; i++) {
            distance[g] = member[i] == rank ? 0 : distance[g];
        }
    }
    const tt_spread_params params = {moe->placement, distance, LEVEL_CHOICES};
    const tt_status st = tt_spread_create(&params, &moe->spread);
    free(distance);
    return st;
}

/* ---- changes ---- */

int tt_moe_slot_parts(const tt_moe *moe, int64_t layer, int64_t slot, tt_moe_part *part)
{
    const tt_ffn *ffn = &moe->layer[layer].slot[slot];
    const tt_linear *const linear[] = {&ffn->gate, &ffn->up, &ffn->down};
    int n = 0;
    for (size_t i = 0; i < sizeof(linear) / sizeof(linear[0]); i++) {
        if (linear[i]->bytes > 0) {
            part[n++] = (tt_moe_part){linear[i]->panels, linear[i]->bytes};
        }
        if (linear[i]->bias && linear[i]->N > 0) {
            part[n++] = (tt_moe_part){linear[i]->bias, (size_t)linear[i]->N * sizeof(float)};
        }
    }
    return n;
}

tt_status tt_moe_take_placement(tt_moe *moe, int64_t layer)
{
    if (moe->spread) {
        tt_spread_set(moe->spread, moe->placement, layer);
    }
    return tt_exchange_set_owners(moe->exchange, NULL, moe->placement->epoch);
}
