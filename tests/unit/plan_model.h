/* plan_model.h - models for tests of the plan room: an architecture and tensor types, no files.
 * They stand in for src/model, so that sizes of any model can be planned without its checkpoint. */
#ifndef TESTS_PLAN_MODEL_H
#define TESTS_PLAN_MODEL_H
#include "tutti/model.h"
#include "tutti/plan.h"

enum { PLAN_MODEL_MAX_LAYERS = 128 };

/* The body that the plan room never sees. */
struct tt_model {
    tt_arch arch; /* layer points to layer */
    tt_layer layer[PLAN_MODEL_MAX_LAYERS];
    ttk_format format; /* of every matrix */
};

/* 2 layers (dense, MoE), H 64, 4 heads of 16 over 2 KV heads, E 8, K 2, F 48, F_dense 128,
 * F_shared 40, V 320; bf16. */
void plan_model_small(tt_model *model);
/* The same body with latent attention: q_rank 24, kv_rank 32, nope 16, rope 8, v 16. */
void plan_model_small_latent(tt_model *model);
/* The published sizes of a 671 B latent-attention model: 61 layers (3 dense), 256 experts; bf16. */
void plan_model_large(tt_model *model);
/* The layout, or a failed test. */
tt_layout *plan_layout(const tt_arch *arch, const tt_layout_params *params);

#endif
