/* test_feed_forward.c - feed-forward layers of every kind that tt_arch can name, on many layouts:
 * all must have the bits of one rank, which must agree with the formulas in double precision.
 *
 * The models are numbers only: this file stands in for the model room, so that kinds can be
 * combined that no checkpoint combines. Widths are awkward: 40 inner columns are two panels, so
 * that one of three parts of an expert is empty. */
/* TEST ranks: 1 2 3 4 6 */
/* TEST timeout: 120 */
#include "mpi_test.h"
#include <math.h>
#include "tutti/cpu.h"
#include "../../src/moe/moe_internal.h"

enum { L = 2, H = 72, E = 12, F = 40, F_SHARED = 33, F_DENSE = 100, T_ALL = 11, MAX_K = 3 };
enum { DENSE_LAYER = 0, MOE_LAYER = 1 };

/* The body that other rooms never see. */
struct tt_model {
    tt_arch arch;
    tt_layer layer[L];
    bool is_crowded;
};

/* ---- numbers ---- */

static float number(uint64_t seed, int64_t i)
{
    return (float)((int64_t)(test_mix(seed * 1000003u + (uint64_t)i) % 2001) - 1000) / 1000.0f;
}

static float x_at(int64_t t, int64_t h)
{
    return number(77, t * H + h);
}

typedef struct tti_source tti_source; /* only its address is used, as a number */

static uint64_t seed_of(const tt_tensor *tensor)
{
    return (uint64_t)(uintptr_t)tensor->source;
}

static bool is_vector(tt_role role)
{
    return role == TT_ROLE_ROUTER_BIAS || role == TT_ROLE_ROUTER_CHOICE_BIAS ||
           (role >= TT_ROLE_EXPERT_GATE_BIAS && role <= TT_ROLE_EXPERT_DOWN_BIAS);
}

/* A tensor of this name sends every token to the first CROWD experts. */
static const char loud_name[] = "bias that crowds";
enum { CROWD = 2 };

/* Weights keep sums near 1; biases are small beside it. */
static float element(const tt_tensor *tensor, int64_t i)
{
    float scale = tensor->cols > 1 ? 3.0f / sqrtf((float)tensor->cols) : 0.3f;
    float loud = tensor->name == loud_name && i < CROWD ? 100.0f : 0.0f;
    return number(seed_of(tensor), i) * scale + loud;
}

/* ---- in place of the model room ---- */

const tt_arch *tt_model_arch(const tt_model *model)
{
    return &model->arch;
}

static bool has_tensor(const tt_arch *a, tt_role role)
{
    switch (role) {
    case TT_ROLE_ROUTER_BIAS:
        return a->router.logit_bias;
    case TT_ROLE_ROUTER_CHOICE_BIAS:
        return a->router.choice_bias;
    case TT_ROLE_EXPERT_GATE_BIAS:
    case TT_ROLE_EXPERT_UP_BIAS:
    case TT_ROLE_EXPERT_DOWN_BIAS:
        return a->expert_bias;
    case TT_ROLE_SHARED_ROUTER:
        return a->shared_gate;
    default:
        return true;
    }
}

tt_tensor tt_model_tensor(const tt_model *model, tt_role role, int64_t layer, int64_t expert)
{
    static const int64_t shape[TT_ROLE_COUNT][2] = {
        [TT_ROLE_GATE] = {F_DENSE, H},         [TT_ROLE_UP] = {F_DENSE, H},
        [TT_ROLE_DOWN] = {H, F_DENSE},         [TT_ROLE_ROUTER] = {E, H},
        [TT_ROLE_ROUTER_BIAS] = {E, 1},        [TT_ROLE_ROUTER_CHOICE_BIAS] = {E, 1},
        [TT_ROLE_EXPERT_GATE] = {F, H},        [TT_ROLE_EXPERT_UP] = {F, H},
        [TT_ROLE_EXPERT_DOWN] = {H, F},        [TT_ROLE_EXPERT_GATE_BIAS] = {F, 1},
        [TT_ROLE_EXPERT_UP_BIAS] = {F, 1},     [TT_ROLE_EXPERT_DOWN_BIAS] = {H, 1},
        [TT_ROLE_SHARED_GATE] = {F_SHARED, H}, [TT_ROLE_SHARED_UP] = {F_SHARED, H},
        [TT_ROLE_SHARED_DOWN] = {H, F_SHARED}, [TT_ROLE_SHARED_ROUTER] = {1, H},
    };
    tt_tensor tensor = {0};
    if (has_tensor(&model->arch, role)) {
        /* The name tells a loud bias from others. */
        bool is_loud = model->is_crowded && role == TT_ROLE_ROUTER_CHOICE_BIAS;
        tensor.name = is_loud ? loud_name : "tensor";
        tensor.rows = shape[role][0];
        tensor.cols = shape[role][1];
        tensor.source =
            (const tti_source *)(uintptr_t)(1 + ((uint64_t)role * L + (uint64_t)layer) * E +
                                            (uint64_t)expert);
    }
    return tensor;
}

tt_status tt_load_linear(tt_load_params *params, const tt_tensor *tensor, int64_t row,
                         int64_t n_rows, tt_linear *linear)
{
    TT_TRY(tt_linear_init(linear, "test", &tensor->format, n_rows, tensor->cols, params->node));
    float *w = malloc((size_t)(n_rows * tensor->cols + 1) * sizeof(*w));
    for (int64_t i = 0; i < n_rows * tensor->cols; i++) {
        w[i] = element(tensor, row * tensor->cols + i);
    }
    ttk.pack(linear->panels, TTK_F32, w, TTK_F32, tensor->cols, 1, n_rows, tensor->cols, 0,
             tt_linear_n_panels(linear));
    free(w);
    return TT_OK;
}

tt_status tt_load_vector(tt_load_params *params, const tt_tensor *tensor, int64_t begin, int64_t n,
                         float **vector_out)
{
    *vector_out = NULL;
    if (!tensor->name || n == 0) {
        return TT_OK;
    }
    void *data = NULL;
    TT_TRY(tt_memory_alloc("test", (size_t)n * sizeof(float), params->node, &data));
    *vector_out = data;
    for (int64_t i = 0; i < n; i++) {
        (*vector_out)[i] = element(tensor, begin + i);
    }
    return TT_OK;
}

void tt_load_will_need(const tt_load_params *params, const tt_tensor *tensor, int64_t row,
                       int64_t n_rows)
{
    (void)params;
    (void)tensor;
    (void)row;
    (void)n_rows;
}

tt_status tt_load_told(const tt_load_params *params, tt_status st)
{
    (void)params;
    return st;
}

/* ---- the formulas in double ---- */

static double dot(const tt_model *model, tt_role role, tt_role bias, int64_t layer, int64_t expert,
                  int64_t row, const double *x)
{
    tt_tensor w = tt_model_tensor(model, role, layer, expert);
    double sum = 0;
    for (int64_t i = 0; i < w.cols; i++) {
        sum += (double)element(&w, row * w.cols + i) * x[i];
    }
    if (is_vector(bias)) {
        tt_tensor b = tt_model_tensor(model, bias, layer, expert);
        sum += b.name ? (double)element(&b, row) : 0.0;
    }
    return sum;
}

static double activation(const tt_arch *a, double g, double u)
{
    if (a->activation == TT_ACTIVATION_CLAMPED) {
        double limit = (double)a->activation_limit;
        g = fmin(g, limit);
        u = fmax(fmin(u, limit), -limit);
        return g / (1 + exp(-(double)a->activation_alpha * g)) * (u + 1);
    }
    return g / (1 + exp(-g)) * u;
}

/* y[H] += weight * down(act(gate x, up x)). roles: gate, up, down, then their biases. */
static void add_ffn(const tt_model *model, const tt_role *roles, int64_t layer, int64_t expert,
                    const double *x, double weight, double *y)
{
    double inner[F_DENSE];
    int64_t width = tt_model_tensor(model, roles[0], layer, expert).rows;
    for (int64_t f = 0; f < width; f++) {
        inner[f] = activation(&model->arch, dot(model, roles[0], roles[3], layer, expert, f, x),
                              dot(model, roles[1], roles[4], layer, expert, f, x));
    }
    for (int64_t h = 0; h < H; h++) {
        y[h] += weight * dot(model, roles[2], roles[5], layer, expert, h, inner);
    }
}

static float round_to(tt_wire wire, float v)
{
    if (wire == TT_WIRE_BF16) {
        ttk_bf16 b;
        ttk.f32_to_bf16(&b, &v, 1);
        ttk.bf16_to_f32(&v, &b, 1);
    }
    return v;
}

/* A MoE layer on one token. Who is chosen is the router's own business, with tests of its own. */
static void moe_layer(const tt_model *model, tt_wire wire, int64_t t, double *y, bool *is_used)
{
    static const tt_role expert_roles[] = {TT_ROLE_EXPERT_GATE,    TT_ROLE_EXPERT_UP,
                                           TT_ROLE_EXPERT_DOWN,    TT_ROLE_EXPERT_GATE_BIAS,
                                           TT_ROLE_EXPERT_UP_BIAS, TT_ROLE_EXPERT_DOWN_BIAS};
    static const tt_role shared_roles[] = {TT_ROLE_SHARED_GATE, TT_ROLE_SHARED_UP,
                                           TT_ROLE_SHARED_DOWN, TT_ROLE_COUNT,
                                           TT_ROLE_COUNT,       TT_ROLE_COUNT};
    const tt_arch *a = &model->arch;
    double x[H], row[H];
    float z[E], bias[E], work[2 * E], weight[MAX_K];
    int32_t expert[MAX_K];
    for (int64_t h = 0; h < H; h++) {
        x[h] = (double)x_at(t, h);
    }
    tt_tensor b = tt_model_tensor(model, TT_ROLE_ROUTER_CHOICE_BIAS, MOE_LAYER, 0);
    for (int64_t e = 0; e < E; e++) {
        z[e] = (float)dot(model, TT_ROLE_ROUTER, TT_ROLE_ROUTER_BIAS, MOE_LAYER, 0, e, x);
        bias[e] = b.name ? element(&b, e) : 0.0f;
    }
    MUST(tt_router_choose(&(tt_chooser){&a->router, E, a->K, b.name ? bias : NULL, work}, z, expert,
                          weight));
    for (int64_t k = 0; k < a->K; k++) {
        double w = (double)weight[k];
        for (int64_t h = 0; h < H; h++) {
            row[h] = (double)round_to(wire, x_at(t, h)) * (a->router.weight_on_input ? w : 1.0);
        }
        add_ffn(model, expert_roles, MOE_LAYER, expert[k], row, a->router.weight_on_input ? 1.0 : w,
                y);
        is_used[expert[k]] = true;
    }
    if (a->F_shared > 0) {
        double g = a->shared_gate
                       ? dot(model, TT_ROLE_SHARED_ROUTER, TT_ROLE_COUNT, MOE_LAYER, 0, 0, x)
                       : 0;
        add_ffn(model, shared_roles, MOE_LAYER, 0, x, a->shared_gate ? 1 / (1 + exp(-g)) : 1.0, y);
    }
}

static void check_close(const char *name, const float *got, const double *want)
{
    double squares = 0, worst = 0;
    for (int64_t h = 0; h < H; h++) {
        double error = fabs((double)got[h] - want[h]);
        squares += want[h] * want[h];
        worst = error > worst || isnan(error) ? error : worst;
    }
    double rms = sqrt(squares / H);
    CHECK(rms > 1e-3 && worst <= 1e-5 * rms, "%s: error %g of %g", name, worst, rms);
}

/* ---- one layout ---- */

/* Sources take tokens in turn. y[T_ALL][H]: this rank's rows, else 0. Returns the weight bytes
 * read. */
static uint64_t run_moe(tt_moe *moe, const tt_layout *layout, int rank, float *y)
{
    const tt_rank_role *role = &layout->role[rank];
    int n_sources = layout->dp * layout->tp, source = role->dp_id * layout->tp + role->tp_id;
    float x[T_ALL * H], mine[T_ALL * H];
    int64_t T = 0;
    for (int64_t t = role->dp_id >= 0 ? source : T_ALL; t < T_ALL; t += n_sources, T++) {
        for (int64_t h = 0; h < H; h++) {
            x[T * H + h] = x_at(t, h);
        }
    }
    uint64_t before = tt_moe_bytes_read(moe);
    for (int use = 0; use < 3; use++) {
        /* All work buffers are NaN: nothing that was not written may be read, or multiplied by 0.
         * The second step is empty. */
        memset(mine, 0xff, sizeof(mine));
        memset(moe->arena.base, 0xff, moe->arena.used_bytes);
        MUST(tt_moe_begin(moe, use, MOE_LAYER, use == 1 ? 0 : T, x, TT_OK));
        MUST(tt_moe_end(moe, use, -1, mine));
    }
    memset(y, 0, sizeof(mine));
    for (int64_t i = 0; i < T; i++) {
        memcpy(y + (source + i * n_sources) * H, mine + i * H, H * sizeof(float));
    }
    return (tt_moe_bytes_read(moe) - before) / 2;
}

static void run_dense(tt_moe *moe, const tt_layout *layout, int rank, float *y)
{
    float x[T_ALL * H];
    for (int64_t i = 0; i < T_ALL * H; i++) {
        x[i] = x_at(i / H, i % H);
    }
    if (layout->role[rank].dp_id >= 0) {
        MUST(tt_moe_dense(moe, DENSE_LAYER, T_ALL, x, y));
    }
}

typedef struct outcome {
    float moe[T_ALL * H], dense[T_ALL * H];
    uint64_t bytes;
} outcome;

static void run_layout(tt_world *world, const tt_model *model, tt_layout_params params,
                       outcome *out)
{
    int rank = tt_world_rank(world), n = tt_world_size(world), node_of_rank[TEST_MAX_RANKS];
    for (int r = 0; r < n; r++) {
        node_of_rank[r] = tt_world_node(world, r);
    }
    params.n_ranks = n;
    params.node_of_rank = node_of_rank;
    params.max_batch = 4;
    params.prefill_chunk = 4 * T_ALL;
    params.context = 64;
    tt_layout *layout = NULL;
    tt_placement *placement = NULL;
    tt_stream *compute = NULL;
    tt_moe *moe = NULL;
    MUST(tt_layout_create(&model->arch, &params, &layout));
    MUST(tt_placement_linear(model->arch.L, model->arch.E, layout->n_groups, 0, &placement));
    tt_stream_params stream = {"compute", 1 + rank % 2, true, NULL};
    MUST(tt_stream_create(&stream, &compute));
    tt_load_params load = {.model = model, .node = TT_MEMORY_ANY_NODE};
    tt_moe_params moe_params = {model, layout, world, placement, compute, &load};
    MUST(tt_moe_create(&moe_params, &moe));
    memset(out, 0, sizeof(*out));
    if (model->arch.E > 0) {
        out->bytes = run_moe(moe, layout, rank, out->moe);
    } else {
        CHECK(!tt_moe_exchange(moe), "a model without experts has an exchange");
    }
    if (model->arch.F_dense > 0) {
        run_dense(moe, layout, rank, out->dense);
    }
    tt_moe_destroy(&moe);
    tt_stream_destroy(&compute);
    tt_placement_destroy(&placement);
    tt_layout_destroy(&layout);
}

/* ---- kinds ---- */

typedef struct kind {
    const char *name;
    tt_score score;
    int64_t K, F_shared, F_dense;
    bool weight_on_input, biases, shared_gate, is_clamped, no_experts;
    tt_wire wire, wire_back;
    bool is_crowded; /* most ranks get no row */
} kind;

static const kind kinds[] = {
    {"plain", TT_SCORE_SOFTMAX, 2, F_SHARED, F_DENSE, 0, 0, 0, 0, 0, TT_WIRE_F32, TT_WIRE_F32, 0},
    {"biases, clamped", TT_SCORE_SOFTMAX_CHOSEN, 3, 0, F_DENSE, 0, 1, 0, 1, 0, TT_WIRE_F32,
     TT_WIRE_F32, 0},
    {"weight on input", TT_SCORE_SIGMOID_CHOSEN, 1, F_SHARED, F_DENSE, 1, 0, 0, 0, 0, TT_WIRE_F32,
     TT_WIRE_F32, 0},
    {"weight on input, many choices, bf16", TT_SCORE_SIGMOID_CHOSEN, 3, F_SHARED, 0, 1, 1, 0, 0, 0,
     TT_WIRE_BF16, TT_WIRE_F32, 0},
    {"weight on input, bf16 back", TT_SCORE_SIGMOID, 2, F_SHARED, 0, 1, 1, 1, 1, 0, TT_WIRE_BF16,
     TT_WIRE_BF16, 0},
    {"weighed shared expert, all layers MoE", TT_SCORE_SOFTMAX, 3, F_SHARED, 0, 0, 0, 1, 0, 0,
     TT_WIRE_F32, TT_WIRE_F32, 0},
    {"one after the other", TT_SCORE_SPARSEMIXER, 2, 0, 0, 0, 0, 0, 0, 0, TT_WIRE_F32, TT_WIRE_F32,
     0},
    {"no experts", TT_SCORE_SOFTMAX, 0, 0, F_DENSE, 0, 0, 0, 1, 1, TT_WIRE_F32, TT_WIRE_F32, 0},
    {"all to two experts", TT_SCORE_SIGMOID, 2, F_SHARED, 0, 0, 0, 0, 0, 0, TT_WIRE_F32,
     TT_WIRE_F32, 1},
};

static void make_model(const kind *k, tt_model *model)
{
    memset(model, 0, sizeof(*model));
    model->is_crowded = k->is_crowded;
    model->arch =
        (tt_arch){.name = k->name,
                  .L = L,
                  .H = H,
                  .V = 64,
                  .context = 64,
                  .Nq = 8,
                  .Nkv = 8,
                  .D = 8,
                  .E = k->no_experts ? 0 : E,
                  .K = k->K,
                  .F = k->no_experts ? 0 : F,
                  .F_shared = k->F_shared,
                  .F_dense = k->F_dense,
                  .shared_gate = k->shared_gate,
                  .expert_bias = k->biases,
                  .activation = k->is_clamped ? TT_ACTIVATION_CLAMPED : TT_ACTIVATION_SILU,
                  .activation_limit = 0.9f,
                  .activation_alpha = 1.702f,
                  .router = {.score = k->score,
                             .choice_bias = k->score == TT_SCORE_SIGMOID,
                             .logit_bias = k->biases,
                             .n_groups = 1,
                             .n_groups_kept = 1,
                             .scale = 1.5f,
                             .weight_on_input = k->weight_on_input,
                             .jitter = 0.2f}};
    model->arch.layer = model->layer;
    model->layer[DENSE_LAYER].is_moe = k->F_dense == 0;
    model->layer[MOE_LAYER].is_moe = !k->no_experts;
}

/* One rank is right, and reads the bytes of what it uses once. */
static void check_one_rank(const kind *k, const tt_model *model, const outcome *one)
{
    static const tt_role dense_roles[] = {TT_ROLE_GATE,  TT_ROLE_UP,    TT_ROLE_DOWN,
                                          TT_ROLE_COUNT, TT_ROLE_COUNT, TT_ROLE_COUNT};
    bool is_used[E] = {false};
    for (int64_t t = 0; t < T_ALL; t++) {
        double y[H] = {0}, dense[H] = {0}, x[H];
        for (int64_t h = 0; h < H; h++) {
            x[h] = (double)x_at(t, h);
        }
        if (k->F_dense > 0) {
            add_ffn(model, dense_roles, DENSE_LAYER, 0, x, 1.0, dense);
            check_close(k->name, one->dense + t * H, dense);
        }
        if (!k->no_experts) {
            moe_layer(model, k->wire, t, y, is_used);
        }
        if (!k->no_experts && k->wire_back == TT_WIRE_F32) {
            check_close(k->name, one->moe + t * H, y);
        }
    }
    ttk_format f32 = {.code = TTK_F32};
    uint64_t bytes = ttk_packed_bytes(&f32, E, H) + (k->biases ? E * sizeof(float) : 0);
    for (int e = 0; e < E; e++) {
        bytes += is_used[e] ? 2 * ttk_packed_bytes(&f32, F, H) + ttk_packed_bytes(&f32, H, F) +
                                  (k->biases ? (2 * F + H) * sizeof(float) : 0)
                            : 0;
    }
    bytes += k->F_shared > 0
                 ? 2 * ttk_packed_bytes(&f32, F_SHARED, H) + ttk_packed_bytes(&f32, H, F_SHARED)
                 : 0;
    bytes += k->shared_gate ? ttk_packed_bytes(&f32, 1, H) : 0;
    CHECK(k->no_experts || one->bytes == bytes, "%s: %llu bytes read, not %llu", k->name,
          (unsigned long long)one->bytes, (unsigned long long)bytes);
}

static void check_layout(tt_world *world, const kind *k, const tt_model *model,
                         tt_layout_params params, const outcome *one)
{
    outcome got;
    run_layout(world, model, params, &got);
    uint32_t bits[T_ALL * H], all[T_ALL * H];
    memcpy(bits, got.moe, sizeof(bits));
    MPI_Allreduce(bits, all, T_ALL * H, MPI_UINT32_T, MPI_BOR, MPI_COMM_WORLD);
    CHECK(memcmp(all, one->moe, sizeof(all)) == 0,
          "%s: dp %d tp %d etp %d has other bits than one rank", k->name, params.dp, params.tp,
          params.etp);
    bool attends = test_rank < params.dp * params.tp;
    CHECK(!attends || memcmp(got.dense, one->dense, sizeof(got.dense)) == 0,
          "%s: dp %d tp %d: a dense layer has other bits than one rank", k->name, params.dp,
          params.tp);
}

/* A rank whose router sees no number: it says so, and its peers learn of it. */
static void not_a_number_is_told_to_all(tt_world *world, const tt_model *model)
{
    int node_of_rank[TEST_MAX_RANKS] = {0};
    tt_layout_params params = {.n_ranks = test_size,
                               .node_of_rank = node_of_rank,
                               .dp = test_size,
                               .tp = 1,
                               .context = 64,
                               .max_batch = test_size};
    tt_layout *layout = NULL;
    tt_placement *placement = NULL;
    tt_stream *compute = NULL;
    tt_moe *moe = NULL;
    MUST(tt_layout_create(&model->arch, &params, &layout));
    MUST(tt_placement_linear(L, E, layout->n_groups, 0, &placement));
    tt_stream_params stream = {"compute", 1, true, NULL};
    MUST(tt_stream_create(&stream, &compute));
    tt_load_params load = {.model = model, .node = TT_MEMORY_ANY_NODE};
    tt_moe_params moe_params = {model, layout, world, placement, compute, &load};
    MUST(tt_moe_create(&moe_params, &moe));
    MPI_Barrier(MPI_COMM_WORLD); /* who is still being created would learn of the failure there */
    float x[H] = {0}, y[H];
    x[3] = test_rank == test_size - 1 ? NAN : 1.0f;
    tt_status st = tt_moe_begin(moe, 0, MOE_LAYER, 1, x, TT_OK);
    if (test_rank == test_size - 1) {
        CHECK(st == TT_ERR_NUMERIC && strstr(tt_status_message(), "layer 1"), "%s: %s",
              tt_status_name(st), tt_status_message());
    } else {
        st = st == TT_OK ? tt_moe_end(moe, 0, -1, y) : st; /* a fast peer's failure is seen by
                                                            * the first call already */
        CHECK(st == TT_ERR_PEER && strstr(tt_status_message(), "not a number"), "%s: %s",
              tt_status_name(st), tt_status_message());
    }
    MPI_Barrier(MPI_COMM_WORLD); /* nobody frees what others still read */
    tt_moe_destroy(&moe);
    tt_stream_destroy(&compute);
    tt_placement_destroy(&placement);
    tt_layout_destroy(&layout);
}

static void with_split(int split, const outcome *one, const tt_model *models)
{
    int fake_node[TEST_MAX_RANKS];
    test_split(split, test_size, fake_node);
    tt_world_params params = {
        .deadline_s = 60.0, .n_cores = 1, .comm_cpu = -1, .fake_node = fake_node};
    tt_world *world = NULL;
    MUST(tt_world_create(MPI_COMM_WORLD, &params, &world));
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        for (int tp = 1; tp <= test_size; tp++) {
            for (int etp = 1; etp <= 3 && test_size % tp == 0; etp++) {
                bool fits = test_size % etp == 0 && (split == 0 || (etp == 1 && tp == 1));
                if (fits && (etp == 1 || !kinds[i].no_experts)) {
                    tt_layout_params p = {.dp = test_size / tp,
                                          .tp = tp,
                                          .etp = etp,
                                          .wire = kinds[i].wire,
                                          .wire_back = kinds[i].wire_back};
                    check_layout(world, &kinds[i], &models[i], p, &one[i]);
                }
            }
        }
    }
    if (split == 0) {
        not_a_number_is_told_to_all(world, &models[0]);
    }
    tt_world_destroy(&world);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv);
    ttk_init(tt_cpu_flags());
    enum { N = sizeof(kinds) / sizeof(kinds[0]) };
    static outcome one[N];
    static tt_model models[N];
    tt_world *alone = NULL;
    tt_world_params params = {.deadline_s = 60.0, .n_cores = 1, .comm_cpu = -1};
    MUST(tt_world_create(MPI_COMM_SELF, &params, &alone));
    for (size_t i = 0; i < N; i++) {
        make_model(&kinds[i], &models[i]);
        tt_layout_params p = {
            .dp = 1, .tp = 1, .etp = 1, .wire = kinds[i].wire, .wire_back = kinds[i].wire_back};
        run_layout(alone, &models[i], p, &one[i]);
        check_one_rank(&kinds[i], &models[i], &one[i]);
    }
    tt_world_destroy(&alone);
    with_split(1, one, models); /* several nodes */
    with_split(0, one, models);
    return test_end("feed-forward layers");
}
