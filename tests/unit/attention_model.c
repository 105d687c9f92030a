/* attention_model.c - see attention_model.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "attention_model.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/memory.h"

/* ---- numbers ---- */

float model_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)(int32_t)((z ^ (z >> 31)) >> 40) * 0x1p-23f - 1.0f;
}

static bool attention_shape(const tt_model *model, tt_role role, int64_t layer, int64_t *rows,
                            int64_t *cols)
{
    const tt_arch *a = &model->arch;
    bool is_mla = a->attention == TT_ATTENTION_MLA;
    bool has_norm =
        a->qk_norm != TT_QK_NORM_NONE && !a->qk_norm_weightless && a->layer[layer].qk_norm;
    bool whole = a->qk_norm == TT_QK_NORM_WHOLE;
    int64_t q = is_mla ? a->Nq * (a->nope_dim + a->rope_dim) : a->Nq * a->D, kv = a->Nkv * a->D;
    const struct {
        tt_role role;
        bool is_there;
        int64_t rows, cols;
    } shape[] = {{TT_ROLE_Q, !is_mla || a->q_rank == 0, q, a->H},
                 {TT_ROLE_K, !is_mla, kv, a->H},
                 {TT_ROLE_V, !is_mla, kv, a->H},
                 {TT_ROLE_O, true, a->H, a->Nq * (is_mla ? a->v_dim : a->D)},
                 {TT_ROLE_Q_BIAS, a->qkv_bias, q, 1},
                 {TT_ROLE_K_BIAS, a->qkv_bias, kv, 1},
                 {TT_ROLE_V_BIAS, a->qkv_bias, kv, 1},
                 {TT_ROLE_O_BIAS, a->o_bias, a->H, 1},
                 {TT_ROLE_Q_NORM, has_norm, whole ? q : a->D, 1},
                 {TT_ROLE_K_NORM, has_norm, whole ? kv : a->D, 1},
                 {TT_ROLE_Q_GATE, a->attention_gate, q, a->H},
                 {TT_ROLE_SINKS, a->sinks, a->Nq, 1},
                 {TT_ROLE_Q_A, is_mla && a->q_rank > 0, a->q_rank, a->H},
                 {TT_ROLE_Q_A_NORM, is_mla && a->q_rank > 0, a->q_rank, 1},
                 {TT_ROLE_Q_B, is_mla && a->q_rank > 0, q, a->q_rank},
                 {TT_ROLE_KV_A, is_mla, a->kv_rank + a->rope_dim, a->H},
                 {TT_ROLE_KV_A_NORM, is_mla, a->kv_rank, 1},
                 {TT_ROLE_KV_B, is_mla && !model->arch.mla_split, a->Nq * (a->nope_dim + a->v_dim),
                  a->kv_rank},
                 {TT_ROLE_MLA_K, is_mla && model->arch.mla_split, a->Nq * a->kv_rank, a->nope_dim},
                 {TT_ROLE_MLA_V, is_mla && model->arch.mla_split, a->Nq * a->v_dim, a->kv_rank}};
    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        if (shape[i].role == role) {
            *rows = shape[i].rows;
            *cols = shape[i].cols;
            return shape[i].is_there;
        }
    }
    return false;
}

static bool delta_shape(const tt_arch *a, tt_role role, int64_t *rows, int64_t *cols)
{
    const tt_delta *d = &a->delta;
    int64_t W = 2 * d->Nk * d->Dk + d->Nv * d->Dv, values = d->Nv * d->Dv;
    const int64_t shape[TT_ROLE_COUNT][2] = {
        [TT_ROLE_DELTA_QKV] = {W, a->H},         [TT_ROLE_DELTA_GATE] = {values, a->H},
        [TT_ROLE_DELTA_BETA] = {d->Nv, a->H},    [TT_ROLE_DELTA_DECAY] = {d->Nv, a->H},
        [TT_ROLE_DELTA_CONV] = {W, d->conv},     [TT_ROLE_DELTA_DECAY_BIAS] = {d->Nv, 1},
        [TT_ROLE_DELTA_DECAY_RATE] = {d->Nv, 1}, [TT_ROLE_DELTA_NORM] = {d->Dv, 1},
        [TT_ROLE_DELTA_OUT] = {a->H, values}};
    *rows = shape[role][0];
    *cols = shape[role][1];
    return *rows > 0;
}

bool model_shape(const tt_model *model, tt_role role, int64_t layer, int64_t *rows, int64_t *cols)
{
    return model->layer[layer].mixer == TT_MIXER_DELTA
               ? delta_shape(&model->arch, role, rows, cols)
               : attention_shape(model, role, layer, rows, cols);
}

void model_fill(tt_model *model, uint64_t seed)
{
    model->arch.layer = model->layer;
    for (int role = 0; role < TT_ROLE_COUNT; role++) {
        for (int64_t l = 0; l < model->arch.L; l++) {
            int64_t rows, cols;
            if (!model_shape(model, (tt_role)role, l, &rows, &cols)) {
                continue;
            }
            uint64_t state = seed * 1000 + (uint64_t)(role * 10 + l);
            float *w = malloc((size_t)(rows * cols) * sizeof(float));
            assert_non_null(w);
            for (int64_t i = 0; i < rows * cols; i++) {
                w[i] = model_random(&state) * (cols > 8 ? 2.0f / sqrtf((float)cols) : 1.0f);
                w[i] = role == TT_ROLE_DELTA_DECAY_RATE ? 0.6f + 0.5f * w[i] : w[i];
            }
            model->weight[role][l] = w;
        }
    }
}

void model_free(tt_model *model)
{
    for (int role = 0; role < TT_ROLE_COUNT; role++) {
        for (int l = 0; l < MODEL_MAX_LAYERS; l++) {
            free(model->weight[role][l]);
            model->weight[role][l] = NULL;
        }
    }
    free(model->arch.rope.inv_freq);
    free(model->arch.rope.long_inv_freq);
}

/* ---- what the attention room asks of the model room; the layer and role of a tensor travel in
 * its name ---- */

const tt_arch *tt_model_arch(const tt_model *model)
{
    return &model->arch;
}

tt_tensor tt_model_tensor(const tt_model *model, tt_role role, int64_t layer, int64_t expert)
{
    (void)expert;
    tt_tensor tensor = {0};
    if (model_shape(model, role, layer, &tensor.rows, &tensor.cols)) {
        tensor.name = (const char *)model->weight[role][layer];
    }
    return tensor;
}

static tt_status load_strided(tt_load_params *params, const float *src, int64_t row_stride,
                              int64_t col_stride, int64_t N, int64_t K, tt_linear *linear)
{
    const ttk_format f32 = {.code = TTK_F32};
    TT_TRY(tt_linear_init(linear, "test", &f32, N, K, params->node));
    ttk.pack(linear->panels, TTK_F32, src, TTK_F32, row_stride, col_stride, N, K, 0,
             tt_linear_n_panels(linear));
    return TT_OK;
}

tt_status tt_load_linear(tt_load_params *params, const tt_tensor *tensor, int64_t row,
                         int64_t n_rows, tt_linear *linear)
{
    assert_non_null(tensor->name);
    assert_true(row >= 0 && row + n_rows <= tensor->rows);
    return load_strided(params, (const float *)tensor->name + row * tensor->cols, tensor->cols, 1,
                        n_rows, tensor->cols, linear);
}

tt_status tt_load_linears(tt_load_params *params, const tt_tensor *tensor,
                          const tt_load_target *target, int n_targets)
{
    for (int i = 0; i < n_targets; i++) {
        const tt_load_target *t = &target[i];
        assert_true(tensor->name && t->row >= 0 && t->row + t->n_rows <= tensor->rows);
        const float *src = (const float *)tensor->name + t->row * tensor->cols;
        TT_TRY(
            t->transposed
                ? load_strided(params, src, 1, tensor->cols, tensor->cols, t->n_rows, t->linear)
                : load_strided(params, src, tensor->cols, 1, t->n_rows, tensor->cols, t->linear));
    }
    return TT_OK;
}

tt_status tt_load_told(const tt_load_params *params, tt_status st)
{
    (void)params;
    return st;
}

tt_status tt_load_vector(tt_load_params *params, const tt_tensor *tensor, int64_t begin, int64_t n,
                         float **vector_out)
{
    *vector_out = NULL;
    if (!tensor->name || n == 0) {
        return TT_OK;
    }
    void *vector;
    assert_true(begin >= 0 && begin + n <= tensor->rows * tensor->cols);
    TT_TRY(tt_memory_alloc("test", (size_t)n * sizeof(float), params->node, &vector));
    memcpy(vector, (const float *)tensor->name + begin, (size_t)n * sizeof(float));
    *vector_out = vector;
    return TT_OK;
}

/* ---- what it asks of the comm room: ranks are threads that meet at a barrier ---- */

typedef struct group {
    pthread_barrier_t barrier;
    int n;
    float *full[MODEL_MAX_RANKS];
    int64_t value[MODEL_MAX_RANKS][2];
} group;
struct tt_world {
    group *group;
    int rank;
};
struct tt_gather {
    tt_world *world;
};

int tt_world_rank(const tt_world *world)
{
    return world->rank;
}

tt_status tt_world_agree(tt_world *world, tt_status mine)
{
    (void)world;
    assert_int_equal(mine, TT_OK);
    return TT_OK;
}

tt_status tt_world_max_i64(tt_world *world, int64_t *values, int n)
{
    group *g = world->group;
    assert_int_equal(n, 2);
    memcpy(g->value[world->rank], values, sizeof(g->value[0]));
    pthread_barrier_wait(&g->barrier);
    for (int r = 0; r < g->n; r++) {
        for (int i = 0; i < n; i++) {
            values[i] = g->value[r][i] > values[i] ? g->value[r][i] : values[i];
        }
    }
    pthread_barrier_wait(&g->barrier);
    return TT_OK;
}

tt_status tt_gather_create(tt_world *world, const int *members, int n, int64_t max_floats,
                           tt_gather **gather_out)
{
    (void)members;
    (void)max_floats;
    assert_int_equal(n, world->group->n);
    *gather_out = calloc(1, sizeof(**gather_out));
    assert_non_null(*gather_out);
    (*gather_out)->world = world;
    return TT_OK;
}

void tt_gather_destroy(tt_gather **gather)
{
    free(*gather);
    *gather = NULL;
}

tt_status tt_gather_exec(tt_gather *gather, float *full, int64_t ld, const tt_rect *rect,
                         int reader, tt_stream *compute)
{
    (void)compute;
    group *g = gather->world->group;
    assert_int_equal(reader, TT_GATHER_ALL);
    g->full[gather->world->rank] = full;
    pthread_barrier_wait(&g->barrier);
    for (int r = 0; r < g->n; r++) {
        for (int64_t row = rect[r].row;
             r != gather->world->rank && row < rect[r].row + rect[r].n_rows; row++) {
            memcpy(full + row * ld + rect[r].col, g->full[r] + row * ld + rect[r].col,
                   (size_t)rect[r].n_cols * sizeof(float));
        }
    }
    pthread_barrier_wait(&g->barrier);
    return TT_OK;
}

/* ---- a run ---- */

typedef struct rank_run {
    pthread_t thread;
    tt_world world;
    const tt_model *model;
    const run_params *params;
    const tt_layout *layout;
    int64_t layer, longest;
    const float *x;
    float *y;
} rank_run;

/* The next rows of each sequence that has some left; returns false when none has. Copies them to
 * and from the batch's rows. */
static bool next_batch(const rank_run *run, int64_t *done, int32_t *page, tt_batch_sequence *part,
                       tt_batch *batch)
{
    const run_params *p = run->params;
    int64_t pages = (p->context + TTK_PAGE - 1) / TTK_PAGE;
    batch->T = batch->n_sequences = 0;
    batch->sequence = part;
    for (int64_t s = 0; s < p->n_sequences; s++) {
        int64_t left = p->length[s] - done[s], n = left < p->chunk ? left : p->chunk;
        if (n > 0) {
            tt_batch_sequence next = {page + s * pages,       done[s],     batch->T, n,
                                      p->n_sequences - 1 - s, p->length[s]};
            part[batch->n_sequences++] = next;
            batch->T += n;
        }
    }
    return batch->T > 0;
}

static void *run_rank(void *arg)
{
    rank_run *run = arg;
    const run_params *p = run->params;
    int64_t H = run->model->arch.H, pages = (p->context + TTK_PAGE - 1) / TTK_PAGE,
            done[MODEL_MAX_SEQUENCES] = {0};
    tt_stream *compute;
    tt_kv *kv;
    tt_attention *attention;
    tt_stream_params stream = {"compute", p->n_threads, true, NULL};
    assert_int_equal(tt_stream_create(&stream, &compute), TT_OK);
    assert_int_equal(
        tt_kv_create(&run->model->arch, run->layout, run->world.rank, TT_MEMORY_ANY_NODE, &kv),
        TT_OK);
    tt_load_params load = {.model = run->model, .node = TT_MEMORY_ANY_NODE};
    tt_attention_params params = {run->model, run->layout, &run->world, kv, compute, &load};
    assert_int_equal(tt_attention_create(&params, &attention), TT_OK);
    int32_t *page = malloc((size_t)(p->n_sequences * pages) * sizeof(*page));
    float *x = malloc((size_t)(run->layout->max_rows_group * H) * sizeof(float));
    float *y = malloc((size_t)(run->layout->max_rows_group * H) * sizeof(float));
    assert_true(page && x && y);
    assert_int_equal(tt_kv_acquire(kv, p->n_sequences * pages, page), TT_OK);
    tt_batch_sequence part[MODEL_MAX_SEQUENCES];
    tt_batch batch;
    for (int64_t round = 0; round < 2; round++) { /* the second in the same slots and pages as
                                                   * the first */
        memset(done, 0, sizeof(done));
        while (next_batch(run, done, page, part, &batch)) {
            for (int64_t i = 0; i < batch.n_sequences; i++) {
                int64_t s = p->n_sequences - 1 - part[i].slot;
                memcpy(x + part[i].first_row * H,
                       run->x + (s * run->longest + part[i].position) * H,
                       (size_t)(part[i].n_rows * H) * sizeof(float));
            }
            assert_int_equal(tt_attention_forward(attention, run->layer, &batch, x, y), TT_OK);
            for (int64_t i = 0; i < batch.n_sequences; i++) {
                int64_t s = p->n_sequences - 1 - part[i].slot;
                memcpy(run->y + (s * run->longest + part[i].position) * H,
                       y + part[i].first_row * H, (size_t)(part[i].n_rows * H) * sizeof(float));
                done[s] += part[i].n_rows;
            }
        }
    }
    free(page);
    free(x);
    free(y);
    tt_attention_destroy(&attention);
    tt_kv_destroy(&kv);
    tt_stream_destroy(&compute);
    return NULL;
}

void model_run(const tt_model *model, const run_params *params, int64_t layer, const float *x,
               float *y)
{
    tt_layout_params layout_params = {.n_ranks = params->tp,
                                      .dp = 1,
                                      .tp = params->tp,
                                      .max_batch = params->n_sequences,
                                      .prefill_chunk = params->chunk * params->n_sequences,
                                      .context = params->context,
                                      .kv = params->kv};
    tt_layout *layout;
    group g;
    rank_run run[MODEL_MAX_RANKS];
    int64_t longest = 0;
    for (int64_t s = 0; s < params->n_sequences; s++) {
        longest = params->length[s] > longest ? params->length[s] : longest;
    }
    size_t n = (size_t)(params->n_sequences * longest * model->arch.H);
    assert_int_equal(tt_layout_create(&model->arch, &layout_params, &layout), TT_OK);
    memset(&g, 0, sizeof(g));
    g.n = params->tp;
    pthread_barrier_init(&g.barrier, NULL, (unsigned)params->tp);
    for (int r = 0; r < params->tp; r++) {
        rank_run one = {.world = {&g, r},
                        .model = model,
                        .params = params,
                        .layout = layout,
                        .layer = layer,
                        .longest = longest,
                        .x = x,
                        .y = r == 0 ? y : calloc(n, sizeof(float))};
        run[r] = one;
        assert_non_null(run[r].y);
        assert_int_equal(pthread_create(&run[r].thread, NULL, run_rank, &run[r]), 0);
    }
    for (int r = 0; r < params->tp; r++) {
        pthread_join(run[r].thread, NULL);
    }
    for (int r = 1; r < params->tp; r++) {
        for (int64_t s = 0; s < params->n_sequences; s++) {
            size_t at = (size_t)(s * longest * model->arch.H),
                   bytes = (size_t)(params->length[s] * model->arch.H) * sizeof(float);
            assert_memory_equal(run[r].y + at, y + at, bytes);
        }
        free(run[r].y);
    }
    pthread_barrier_destroy(&g.barrier);
    tt_layout_destroy(&layout);
}
