/* attention_model.h - models for tests of the attention room: random numbers for each role, no
 * files; TP ranks as threads of one process. What the room asks of the model and comm rooms is
 * answered here, so that neither is linked. */
#ifndef TESTS_ATTENTION_MODEL_H
#define TESTS_ATTENTION_MODEL_H
#include "tutti/attention.h"

enum { MODEL_MAX_LAYERS = 2, MODEL_MAX_RANKS = 8, MODEL_MAX_SEQUENCES = 3 };

/* The body that the attention room never sees. */
struct tt_model {
    tt_arch arch; /* layer points to layer */
    tt_layer layer[MODEL_MAX_LAYERS];
    float *weight[TT_ROLE_COUNT][MODEL_MAX_LAYERS];
};

/* Makes the weights that arch says there are; the same for the same seed. */
void model_fill(tt_model *model, uint64_t seed);
void model_free(tt_model *model);
/* Shape of a role's tensor; false if the model has none. */
bool model_shape(const tt_model *model, tt_role role, int64_t layer, int64_t *rows, int64_t *cols);
/* A number in [-1, 1). */
float model_random(uint64_t *state);

/* How a batch of sequences is run through a layer. */
typedef struct run_params {
    int tp, n_threads;
    int64_t chunk;   /* rows of a sequence in one step */
    int64_t context; /* of the layout */
    int64_t n_sequences;
    const int64_t *length; /* length[n_sequences] */
    tt_kv_format kv;
} run_params;
/* y[sequence][row][H] = layer `layer` on x[sequence][row][H], both as long as the longest sequence;
 * all ranks must agree on y. */
void model_run(const tt_model *model, const run_params *params, int64_t layer, const float *x,
               float *y);

/* The same of one sequence of T rows in double precision, by the formulas as written (latent
 * attention: the plain form, not the absorbed one). */
void reference_run(const tt_model *model, int64_t layer, int64_t T, const float *x, double *y);

#endif
