/* roles.c - from names to meaning: every tensor that the architecture needs is looked up once, its
 * shape and type are checked, and what remains is an array per role, so that nobody else ever
 * handles a tensor's name. */
#include "panels.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 256 }; /* of an expanded pattern; ours are below 100 */

bool tti_role_shape(const tt_arch *arch, tt_role role, int64_t layer, int64_t *rows_out,
                    int64_t *cols_out, bool *vector_out)
{
    const tt_arch *a = arch;
    bool of_layer = !tt_role_is_global(role);
    bool delta = of_layer && a->layer[layer].mixer == TT_MIXER_DELTA;
    bool mla = a->attention == TT_ATTENTION_MLA && !delta, gqa = !mla && !delta;
    bool moe = of_layer && a->layer[layer].is_moe;
    bool shared = moe && a->F_shared > 0;
    int64_t n_q = a->Nq * (mla ? a->nope_dim + a->rope_dim : a->D);
    int64_t n_kv = a->Nkv * a->D;
    bool head_norm = a->qk_norm == TT_QK_NORM_HEAD;
    bool qk_norm = gqa && a->qk_norm != TT_QK_NORM_NONE && !a->qk_norm_weightless;
    int64_t delta_width = 2 * a->delta.Nk * a->delta.Dk + a->delta.Nv * a->delta.Dv;
#define MATRIX(present, rows, cols)                                                                \
    (*rows_out = (rows), *cols_out = (cols), *vector_out = false, (present))
#define VECTOR(present, rows) (*rows_out = (rows), *cols_out = 1, *vector_out = true, (present))
    switch (role) {
    case TT_ROLE_EMBED:
    case TT_ROLE_HEAD:
        return MATRIX(true, a->V, a->H);
    case TT_ROLE_HEAD_BIAS:
        return VECTOR(a->head_bias, a->V);
    case TT_ROLE_FINAL_NORM:
    case TT_ROLE_ATTENTION_NORM:
    case TT_ROLE_FFN_NORM:
        return VECTOR(true, a->H);
    case TT_ROLE_FINAL_NORM_BIAS:
    case TT_ROLE_ATTENTION_NORM_BIAS:
    case TT_ROLE_FFN_NORM_BIAS:
        return VECTOR(a->norm == TT_NORM_LAYER, a->H);
    case TT_ROLE_Q:
        return MATRIX(gqa || (mla && a->q_rank == 0), n_q, a->H);
    case TT_ROLE_K:
    case TT_ROLE_V:
        return MATRIX(gqa, n_kv, a->H);
    case TT_ROLE_O:
        return MATRIX(gqa || mla, a->H, mla ? a->Nq * a->v_dim : n_q);
    case TT_ROLE_Q_BIAS:
        return VECTOR(gqa && a->qkv_bias, n_q);
    case TT_ROLE_K_BIAS:
    case TT_ROLE_V_BIAS:
        return VECTOR(gqa && a->qkv_bias, n_kv);
    case TT_ROLE_O_BIAS:
        return VECTOR(gqa && a->o_bias, a->H);
    case TT_ROLE_Q_NORM:
        return VECTOR(qk_norm, head_norm ? a->D : n_q);
    case TT_ROLE_K_NORM:
        return VECTOR(qk_norm, head_norm ? a->D : n_kv);
    case TT_ROLE_Q_GATE:
        return MATRIX(gqa && a->attention_gate, n_q, a->H);
    case TT_ROLE_SINKS:
        return VECTOR(gqa && a->sinks, a->Nq);
    case TT_ROLE_Q_A:
        return MATRIX(mla && a->q_rank > 0, a->q_rank, a->H);
    case TT_ROLE_Q_A_NORM:
        return VECTOR(mla && a->q_rank > 0, a->q_rank);
    case TT_ROLE_Q_B:
        return MATRIX(mla && a->q_rank > 0, n_q, a->q_rank);
    case TT_ROLE_KV_A:
        return MATRIX(mla, a->kv_rank + a->rope_dim, a->H);
    case TT_ROLE_KV_A_NORM:
        return VECTOR(mla, a->kv_rank);
    case TT_ROLE_KV_B:
        return MATRIX(mla && !a->mla_split, a->Nq * (a->nope_dim + a->v_dim), a->kv_rank);
    case TT_ROLE_MLA_K:
        return MATRIX(mla && a->mla_split, a->Nq * a->kv_rank, a->nope_dim);
    case TT_ROLE_MLA_V:
        return MATRIX(mla && a->mla_split, a->Nq * a->v_dim, a->kv_rank);
    case TT_ROLE_DELTA_QKV:
        return MATRIX(delta, delta_width, a->H);
    case TT_ROLE_DELTA_GATE:
        return MATRIX(delta, a->delta.Nv * a->delta.Dv, a->H);
    case TT_ROLE_DELTA_BETA:
    case TT_ROLE_DELTA_DECAY:
        return MATRIX(delta, a->delta.Nv, a->H);
    case TT_ROLE_DELTA_CONV:
        return MATRIX(delta, delta_width, a->delta.conv);
    case TT_ROLE_DELTA_DECAY_BIAS:
    case TT_ROLE_DELTA_DECAY_RATE:
        return VECTOR(delta, a->delta.Nv);
    case TT_ROLE_DELTA_NORM:
        return VECTOR(delta, a->delta.Dv);
    case TT_ROLE_DELTA_OUT:
        return MATRIX(delta, a->H, a->delta.Nv * a->delta.Dv);
    case TT_ROLE_GATE:
    case TT_ROLE_UP:
        return MATRIX(!moe, a->F_dense, a->H);
    case TT_ROLE_DOWN:
        return MATRIX(!moe, a->H, a->F_dense);
    case TT_ROLE_ROUTER:
        return MATRIX(moe, a->E, a->H);
    case TT_ROLE_ROUTER_BIAS:
        return VECTOR(moe && a->router.logit_bias, a->E);
    case TT_ROLE_ROUTER_CHOICE_BIAS:
        return VECTOR(moe && a->router.choice_bias, a->E);
    case TT_ROLE_EXPERT_GATE:
    case TT_ROLE_EXPERT_UP:
        return MATRIX(moe, a->F, a->H);
    case TT_ROLE_EXPERT_DOWN:
        return MATRIX(moe, a->H, a->F);
    case TT_ROLE_EXPERT_GATE_BIAS:
    case TT_ROLE_EXPERT_UP_BIAS:
        return VECTOR(moe && a->expert_bias, a->F);
    case TT_ROLE_EXPERT_DOWN_BIAS:
        return VECTOR(moe && a->expert_bias, a->H);
    case TT_ROLE_SHARED_ROUTER:
        return MATRIX(shared && a->shared_gate, 1, a->H);
    case TT_ROLE_SHARED_GATE:
    case TT_ROLE_SHARED_UP:
        return MATRIX(shared, a->F_shared, a->H);
    case TT_ROLE_SHARED_DOWN:
        return MATRIX(shared, a->H, a->F_shared);
    case TT_ROLE_COUNT:
        break;
    }
    return false;
#undef MATRIX
#undef VECTOR
}

/* What a look-up needs to know; lives through one resolve. */
typedef struct resolver {
    const tti_family *family;
    const tti_checkpoint *checkpoint;
    const tt_arch *arch;
    const char *prefix; /* of all names */
} resolver;

/* What a look-up gives. n_dims = 0: nothing. */
typedef struct found {
    tti_source source;
    int64_t dims[TTI_MAX_DIMS];
    int n_dims;
    const char *pattern; /* that its name was made of */
} found;

/* A family's own names, or the common ones where it has none. */
static const char *const *names_of(const char *const *own, const char *const *common)
{
    return own[0] ? own : common;
}

const char *const *tti_role_names(const tti_family *family, tt_role role)
{
    return names_of(family->tensors.role[role], tti_common_tensors.role[role]);
}

static const char *const *role_names(const resolver *r, tt_role role)
{
    return tti_role_names(r->family, role);
}

/* The names of the tensor that may hold this role and another; NULL if no such thing exists. *second_out: it is the other half. */
static const char *const *pair_names(const resolver *r, tt_role role, bool *second_out)
{
    static const struct {
        tt_role first, second;
    } pairs[TTI_PAIR_COUNT] = {[TTI_PAIR_DENSE] = {TT_ROLE_GATE, TT_ROLE_UP},
                               [TTI_PAIR_EXPERT] = {TT_ROLE_EXPERT_GATE, TT_ROLE_EXPERT_UP},
                               [TTI_PAIR_EXPERT_BIAS] = {TT_ROLE_EXPERT_GATE_BIAS, TT_ROLE_EXPERT_UP_BIAS},
                               [TTI_PAIR_SHARED] = {TT_ROLE_SHARED_GATE, TT_ROLE_SHARED_UP}};
    for (int i = 0; i < TTI_PAIR_COUNT; i++) {
        if (role == pairs[i].first || role == pairs[i].second) {
            *second_out = role == pairs[i].second;
            return names_of(r->family->tensors.pair[i], tti_common_tensors.pair[i]);
        }
    }
    return NULL;
}

static bool is_per_expert(const char *pattern)
{
    return strstr(pattern, "%E") != NULL;
}

/* Writes pattern with %L and %E replaced into name[NAME_BYTES]. */
static void expand(const resolver *r, const char *pattern, int64_t layer, int64_t expert, char *name)
{
    size_t used = (size_t)snprintf(name, NAME_BYTES, "%s", r->prefix);
    for (const char *c = pattern; *c; c++) {
        if (*c == '%') {
            c++;
            used += (size_t)snprintf(name + used, NAME_BYTES - used, "%lld",
                                     (long long)(*c == 'L' ? layer : expert));
        } else {
            name[used++] = *c;
        }
        TT_ASSERT(used < NAME_BYTES - 1);
    }
    name[used] = 0;
}

/* What the checkpoint has under the first of the spellings that it has at all; out->n_dims = 0 if none. */
static tt_status find(const resolver *r, const char *const *spellings, int64_t layer, int64_t expert, found *out)
{
    out->n_dims = 0;
    for (int i = 0; i < TTI_SPELLINGS && spellings && spellings[i] && out->n_dims == 0; i++) {
        char name[NAME_BYTES];
        expand(r, spellings[i], layer, expert, name);
        out->pattern = spellings[i];
        TT_TRY(tti_source_make(r->checkpoint, name, &out->source, out->dims, &out->n_dims));
    }
    return TT_OK;
}

static tt_status missing(const resolver *r, const char *pattern, int64_t layer, int64_t expert)
{
    char name[NAME_BYTES];
    expand(r, pattern, layer, expert, name);
    return TT_FAIL(TT_ERR_FILE, "%s: tensor '%s' is missing, %s needs it",
                   tti_show_path(r->checkpoint->source), name, tti_show(r->arch->name).text);
}

static void show_dims(char *text, size_t bytes, const int64_t *dim, int n_dims)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < n_dims && i < TTI_MAX_DIMS; i++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", i ? ", " : "", (long long)dim[i]);
    }
    if (n_dims > TTI_MAX_DIMS) {
        snprintf(text + used, bytes - used, ", ...");
    }
}

/* The dimensions other than 1: [1][E] and [W][1][4] are stored where [E] and [W][4] are meant. */
static int squeeze(const int64_t *dim, int n_dims, int64_t *out)
{
    int n = 0;
    for (int i = 0; i < n_dims; i++) {
        if (dim[i] != 1) {
            out[n++] = dim[i];
        }
    }
    return n;
}

static bool has_shape(const found *f, int n_dims, const int64_t *dim)
{
    int64_t have[TTI_MAX_DIMS], want[TTI_MAX_DIMS];
    if (f->n_dims > TTI_MAX_DIMS) {
        return false;
    }
    int n_have = squeeze(f->dims, f->n_dims, have), n_want = squeeze(dim, n_dims, want);
    return n_have == n_want && memcmp(have, want, (size_t)n_have * sizeof(have[0])) == 0;
}

/* Checks that what was found has the shape dim[n_dims]. */
static tt_status check_shape(const resolver *r, const found *f, int n_dims, const int64_t *dim)
{
    if (has_shape(f, n_dims, dim)) {
        return TT_OK;
    }
    char have[128], need[128];
    show_dims(have, sizeof(have), f->dims, f->n_dims);
    show_dims(need, sizeof(need), dim, n_dims);
    return TT_FAIL(TT_ERR_FILE, "%s: tensor '%s' has the shape [%s], the configuration asks for [%s]",
                   tti_show_path(r->checkpoint->file[f->source.part[0].file_id].path), tti_show(f->source.name).text, have,
                   need);
}

/* A role's shape, and which part of its tensor it is. */
typedef struct wanted {
    int64_t rows, cols;
    bool vector;
    tti_view view;
} wanted;

/* False if the architecture has no such tensor in this layer. */
static bool want(const resolver *r, tt_role role, int64_t layer, wanted *w)
{
    if (!tti_role_shape(r->arch, role, layer, &w->rows, &w->cols, &w->vector)) {
        return false;
    }
    w->view = (tti_view){.file_rows = w->rows, .segment = {{w->rows, 0, w->rows, w->rows}}, .n_segments = 1};
    if (r->family->view) {
        r->family->view(r->arch, role, &w->view);
    }
    return true;
}

/* Makes w one half of a tensor that holds two roles. */
static void want_half(const resolver *r, bool second, wanted *w)
{
    bool turns = r->family->tensors.pairs_in_turns;
    int64_t n = w->rows;
    w->view.file_rows = 2 * n;
    w->view.segment[0] = turns ? (tti_segment){n, second, 1, 2} : (tti_segment){n, second ? n : 0, n, n};
}

/* What was found, as the matrix that is wanted: of plane `plane`. */
static tti_resolved resolved_of(const found *f, const wanted *w, int64_t plane, bool transposed)
{
    tti_resolved resolved = {.source = f->source};
    tti_source *source = &resolved.source;
    source->plane = plane;
    source->transposed = transposed;
    source->file_rows = transposed ? w->cols : w->view.file_rows;
    source->file_cols = transposed ? w->view.file_rows : w->cols;
    memcpy(source->segment, w->view.segment, sizeof(source->segment));
    source->n_segments = w->view.n_segments;
    source->map = w->view.map;
    resolved.tensor = (tt_tensor){.name = source->name, .rows = w->rows, .cols = w->cols, .format = source->format};
    return resolved;
}

/* Looks a role up: under its own names, else as half of a pair. Refuses if it is not there; expert roles may be planes, then
 * `planes` chooses what name a refusal gives. */
static tt_status look_up(const resolver *r, tt_role role, int64_t layer, bool planes, wanted *w, found *f)
{
    bool second = false;
    TT_TRY(find(r, role_names(r, role), layer, 0, f));
    if (f->n_dims > 0) {
        return TT_OK;
    }
    const char *const *pair = pair_names(r, role, &second);
    TT_TRY(find(r, pair, layer, 0, f));
    if (f->n_dims > 0) {
        want_half(r, second, w);
        return TT_OK;
    }
    const char *const *names = role_names(r, role);
    if (!names[0]) {
        names = pair;
    }
    TT_CHECK(names && names[0], TT_ERR_UNSUPPORTED, "%s: no name is known for a tensor that %s needs",
             tti_show_path(r->checkpoint->source), tti_show(r->arch->name).text);
    int i = 0;
    while (planes && is_per_expert(names[i]) && i + 1 < TTI_SPELLINGS && names[i + 1]) {
        i++;
    }
    return missing(r, names[i], layer, 0);
}

/* The tensor of a role that is not an expert's; *resolved_out is left alone where the architecture has none. */
static tt_status resolve_one(const resolver *r, tt_role role, int64_t layer, tti_resolved *resolved_out)
{
    wanted w;
    found f;
    if (!want(r, role, layer, &w)) {
        return TT_OK;
    }
    TT_TRY(look_up(r, role, layer, false, &w, &f));
    TT_TRY(check_shape(r, &f, w.vector ? 1 : 2, (int64_t[]){w.view.file_rows, w.cols}));
    *resolved_out = resolved_of(&f, &w, 0, false);
    return TT_OK;
}

/* Planes of all experts: [E][outputs][inputs], or [E][inputs][outputs] where the family stores them so; of such a family the other
 * order is accepted too where the shape leaves no doubt. */
static tt_status check_planes(const resolver *r, const found *f, const wanted *w, bool *transposed_out)
{
    int64_t E = r->arch->E, rows = w->view.file_rows, cols = w->cols;
    const int64_t straight[] = {E, rows, cols}, turned[] = {E, cols, rows};
    int n_dims = w->vector ? 2 : 3;
    bool turns = r->family->tensors.transposed && f->source.scheme == TTI_SCHEME_PLAIN && !w->vector;
    *transposed_out = turns && (rows == cols || !has_shape(f, n_dims, straight));
    return check_shape(r, f, n_dims, *transposed_out ? turned : straight);
}

/* One role of all experts of a layer: experts[E]. *planes: in: how a missing tensor is named; out: how they lie. */
static tt_status resolve_role_of_experts(const resolver *r, tt_role role, int64_t layer, bool *planes, tti_resolved *experts)
{
    wanted w;
    found f;
    bool transposed = false;
    if (!want(r, role, layer, &w)) {
        return TT_OK;
    }
    TT_TRY(look_up(r, role, layer, *planes, &w, &f));
    *planes = !is_per_expert(f.pattern);
    if (*planes) {
        TT_TRY(check_planes(r, &f, &w, &transposed));
    }
    const char *const name[TTI_SPELLINGS] = {f.pattern};
    for (int64_t e = 0; e < r->arch->E; e++) {
        if (!*planes) {
            TT_TRY(find(r, name, layer, e, &f));
            if (f.n_dims == 0) {
                return missing(r, name[0], layer, e);
            }
            TT_TRY(check_shape(r, &f, w.vector ? 1 : 2, (int64_t[]){w.view.file_rows, w.cols}));
        }
        experts[e] = resolved_of(&f, &w, *planes ? e : 0, transposed);
    }
    return TT_OK;
}

static tt_status resolve_experts(const resolver *r, int64_t layer, tt_model *model)
{
    const tt_arch *a = r->arch;
    wanted w;
    found f;
    bool planes = false;
    /* The array below is as large as E says, so E is held against what the files hold first. */
    if (want(r, TT_ROLE_EXPERT_GATE, layer, &w)) {
        TT_TRY(look_up(r, TT_ROLE_EXPERT_GATE, layer, false, &w, &f));
        if (is_per_expert(f.pattern)) {
            TT_CHECK((uint64_t)a->E * 2 <= r->checkpoint->table.n, TT_ERR_FILE,
                     "%s: the configuration states %lld experts, the checkpoint has %zu tensors",
                     tti_show_path(r->checkpoint->source), (long long)a->E, r->checkpoint->table.n);
        } else {
            TT_TRY(check_planes(r, &f, &w, &(bool){false}));
        }
    }
    int n_roles = a->expert_bias ? TTI_N_EXPERT_ROLES : TTI_N_EXPERT_MATRICES;
    tti_resolved *experts = calloc((size_t)a->E * (size_t)n_roles, sizeof(*experts));
    TT_CHECK(experts, TT_ERR_NOMEM, "no memory for the table of %lld experts", (long long)a->E);
    model->expert[layer] = experts;
    for (int i = 0; i < n_roles; i++) {
        TT_TRY(resolve_role_of_experts(r, (tt_role)(TT_ROLE_EXPERT_GATE + i), layer, &planes, experts + i * a->E));
    }
    return TT_OK;
}

/* How many of the MTP layers that the configuration states the checkpoint has. */
static int64_t count_mtp(const resolver *r, int64_t n_stated)
{
    int64_t n = 0;
    char name[NAME_BYTES];
    while (r->family->mtp_probe && n < n_stated) {
        expand(r, r->family->mtp_probe, r->arch->L + n, 0, name);
        if (!tti_table_find(&r->checkpoint->table, name)) {
            break;
        }
        n++;
    }
    return n;
}

static tt_status allocate(tt_model *model, int64_t n_layers)
{
    size_t n = (size_t)n_layers;
    model->arch.layer = calloc(n, sizeof(*model->arch.layer));
    model->expert = calloc(n, sizeof(*model->expert));
    bool enough = model->arch.layer && model->expert;
    for (int role = TTI_N_GLOBAL_ROLES; role < TT_ROLE_COUNT; role++) {
        if (!tt_role_is_expert((tt_role)role)) {
            model->layer[role] = calloc(n, sizeof(*model->layer[role]));
            enough = enough && model->layer[role];
        }
    }
    TT_CHECK(enough, TT_ERR_NOMEM, "no memory for the tables of %zu layers", n);
    return TT_OK;
}

/* All tensors of a packed checkpoint. */
static tt_status resolve_panels(const resolver *r, const tti_panels *panels, tt_model *model)
{
    const tt_arch *a = r->arch;
    int n_roles = a->expert_bias ? TTI_N_EXPERT_ROLES : TTI_N_EXPERT_MATRICES;
    for (int i = 0; i < TT_ROLE_COUNT; i++) {
        tt_role role = (tt_role)i;
        bool global = tt_role_is_global(role), expert = tt_role_is_expert(role);
        for (int64_t layer = 0; layer < (global ? 1 : a->L + a->n_mtp); layer++) {
            int64_t shape[2];
            bool vector;
            if (!tti_role_shape(a, role, layer, &shape[0], &shape[1], &vector)) {
                continue;
            }
            if (expert && !model->expert[layer]) {
                TT_CHECK((uint64_t)a->E * (uint64_t)n_roles <= r->checkpoint->table.n, TT_ERR_FILE,
                         "%s: the configuration states %lld experts, the checkpoint has %zu tensors", tti_show_path(r->checkpoint->source),
                         (long long)a->E, r->checkpoint->table.n);
                model->expert[layer] = calloc((size_t)a->E * (size_t)n_roles, sizeof(**model->expert));
                TT_CHECK(model->expert[layer], TT_ERR_NOMEM, "no memory for the table of %lld experts", (long long)a->E);
            }
            for (int64_t e = 0; e < (expert ? a->E : 1); e++) {
                tti_resolved *to = expert ? &model->expert[layer][(i - TT_ROLE_EXPERT_GATE) * a->E + e]
                                          : (global ? &model->global[i] : &model->layer[i][layer]);
                TT_TRY(tti_panels_resolve(panels, r->checkpoint, role, layer, e, shape, to));
            }
        }
    }
    return TT_OK;
}

/* All tensors of any other checkpoint. */
static tt_status resolve_roles(const resolver *r, tt_model *model)
{
    const tt_arch *arch = r->arch;
    for (int role = 0; role < TTI_N_GLOBAL_ROLES; role++) {
        bool tied = role == TT_ROLE_HEAD && arch->tied_embeddings;
        tt_role from = tied ? TT_ROLE_EMBED : (tt_role)role;
        TT_TRY(resolve_one(r, from, 0, &model->global[role]));
    }
    for (int64_t layer = 0; layer < arch->L + arch->n_mtp; layer++) {
        for (int role = TTI_N_GLOBAL_ROLES; role < TT_ROLE_COUNT; role++) {
            if (!tt_role_is_expert((tt_role)role)) {
                TT_TRY(resolve_one(r, (tt_role)role, layer, &model->layer[role][layer]));
            }
        }
        if (arch->layer[layer].is_moe) {
            TT_TRY(resolve_experts(r, layer, model));
        }
    }
    return TT_OK;
}

static tt_status resolve(tt_model *model, const tti_family *family, const tti_hyper *hyper, const tti_checkpoint *checkpoint,
                         const tti_panels *panels)
{
    tt_arch *arch = &model->arch;
    resolver r = {.family = family, .checkpoint = checkpoint, .arch = arch, .prefix = ""};
    if (family->prefix) {
        char name[NAME_BYTES];
        r.prefix = family->prefix;
        expand(&r, role_names(&r, TT_ROLE_EMBED)[0], 0, 0, name);
        r.prefix = tti_table_find(&checkpoint->table, name) ? family->prefix : "";
    }
    arch->n_mtp = panels ? (panels->n_mtp < hyper->n_nextn ? panels->n_mtp : hyper->n_nextn) : count_mtp(&r, hyper->n_nextn);
    arch->mla_split = panels ? panels->mla_split : arch->mla_split;
    arch->rope.interleaved |= panels && panels->interleaved;
    int64_t n_layers = arch->L + arch->n_mtp;
    TT_CHECK((uint64_t)n_layers <= checkpoint->table.n, TT_ERR_FILE,
             "%s: the configuration states %lld layers, the checkpoint has %zu tensors",
             tti_show_path(checkpoint->source), (long long)n_layers, checkpoint->table.n);
    TT_TRY(allocate(model, n_layers));
    for (int64_t layer = 0; layer < n_layers; layer++) {
        arch->layer[layer] = (tt_layer){.is_moe = arch->E > 0 && family->layer_is_moe(hyper, layer),
                                        .rope = true,
                                        .qk_norm = arch->qk_norm != TT_QK_NORM_NONE};
        if (family->set_layer) {
            family->set_layer(hyper, layer, &arch->layer[layer]);
        }
    }
    TT_TRY(panels ? resolve_panels(&r, panels, model) : resolve_roles(&r, model));
    return tti_claims_check(&(tti_claims){family, checkpoint, arch, r.prefix, hyper->config});
}

tt_status tti_roles_resolve(tt_model *model, const tti_family *family, const tti_hyper *hyper,
                            const tti_checkpoint *checkpoint)
{
    tti_panels panels = {0};
    if (checkpoint->table.panels) {
        TT_TRY(tti_panels_read(checkpoint, &panels));
    }
    tt_status st = resolve(model, family, hyper, checkpoint, checkpoint->table.panels ? &panels : NULL);
    tti_panels_fini(&panels);
    return st;
}
