/* roles.c - from names to meaning: every tensor that the architecture needs is looked up once, its
 * shape and type are checked, and what remains is an array per role, so that nobody else ever
 * handles a tensor's name. */
#include "model_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 256 }; /* of an expanded pattern; ours are below 100 */

bool tti_role_shape(const tt_arch *arch, tt_role role, int64_t layer, int64_t *rows_out,
                    int64_t *cols_out, bool *vector_out)
{
    const tt_arch *a = arch;
    bool of_layer = !tti_role_is_global(role);
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
        return MATRIX(mla, a->Nq * (a->nope_dim + a->v_dim), a->kv_rank);
    case TT_ROLE_MLA_K:
    case TT_ROLE_MLA_V:
        return false; /* instead of KV_B: set where the files have them */
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
} resolver;

/* What a look-up gives. n_dims = 0: nothing. */
typedef struct found {
    tti_source source;
    int64_t dims[TTI_MAX_DIMS];
    int n_dims;
} found;

/* A family's own names, or the common ones where it has none. */
static const char *const *names_of(const char *const *own, const char *const *common)
{
    return own[0] ? own : common;
}

static const char *const *role_names(const resolver *r, tt_role role)
{
    return names_of(r->family->tensors.role[role], tti_common_tensors.role[role]);
}

/* Writes pattern with %L and %E replaced into name[NAME_BYTES]. */
static void expand(const char *pattern, int64_t layer, int64_t expert, char *name)
{
    size_t used = 0;
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

/* What the checkpoint has under the first of the spellings that it has at all; *n_dims_out = 0 if none. name[NAME_BYTES]
 * gets the one found, or the first. */
static tt_status find(const resolver *r, const char *const *spellings, int64_t layer, int64_t expert, char *name, found *out)
{
    out->n_dims = 0;
    for (int i = 0; i < TTI_SPELLINGS && spellings[i]; i++) {
        char other[NAME_BYTES];
        expand(spellings[i], layer, expert, other);
        TT_TRY(tti_source_make(r->checkpoint, other, &out->source, out->dims, &out->n_dims));
        if (i == 0 || out->n_dims > 0) {
            memcpy(name, other, sizeof(other));
        }
        if (out->n_dims > 0) {
            return TT_OK;
        }
    }
    return TT_OK;
}

static tt_status missing(const resolver *r, const char *name)
{
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

/* Checks that what was found has the shape dim[n_dims]. */
static tt_status check_shape(const resolver *r, const found *f, int n_dims, const int64_t *dim)
{
    bool fits = f->n_dims == n_dims;
    for (int i = 0; i < n_dims && fits; i++) {
        fits = f->dims[i] == dim[i];
    }
    if (fits) {
        return TT_OK;
    }
    char have[128], need[128];
    show_dims(have, sizeof(have), f->dims, f->n_dims);
    show_dims(need, sizeof(need), dim, n_dims);
    return TT_FAIL(TT_ERR_FILE, "%s: tensor '%s' has the shape [%s], the configuration asks for [%s]",
                   tti_show_path(r->checkpoint->file[f->source.part[0].file_id].path), tti_show(f->source.name).text, have,
                   need);
}

/* The matrix [rows][cols] that is rows [first, first + rows) of plane `plane` of planes [file_rows][cols]. */
static tti_resolved view_of(const found *f, int64_t plane, int64_t file_rows, int64_t first, int64_t rows, int64_t cols)
{
    tti_resolved resolved = {.source = f->source};
    resolved.source.plane = plane;
    resolved.source.file_rows = file_rows;
    resolved.source.file_cols = cols;
    resolved.source.first = first;
    resolved.source.run = resolved.source.stride = rows;
    resolved.tensor = (tt_tensor){.name = f->source.name, .rows = rows, .cols = cols, .format = f->source.format};
    return resolved;
}

/* The tensor of a role; *resolved_out is left alone where the architecture has none. */
static tt_status resolve_one(const resolver *r, tt_role role, int64_t layer, int64_t expert,
                             tti_resolved *resolved_out)
{
    char name[NAME_BYTES];
    int64_t dim[2];
    bool vector = false;
    found f;
    if (!tti_role_shape(r->arch, role, layer, &dim[0], &dim[1], &vector)) {
        return TT_OK;
    }
    TT_TRY(find(r, role_names(r, role), layer, expert, name, &f));
    if (f.n_dims == 0) {
        return missing(r, name);
    }
    TT_TRY(check_shape(r, &f, vector ? 1 : 2, dim));
    *resolved_out = view_of(&f, 0, dim[0], 0, dim[0], dim[1]);
    return TT_OK;
}

/* Experts of a layer that lie in two tensors: gate_up[E][2F][H], gate rows first, and
 * down[E][H][F]. experts[TTI_N_EXPERT_ROLES][E]. */
static tt_status resolve_fused(const resolver *r, int64_t layer, const found *gate_up, tti_resolved *experts)
{
    char name[NAME_BYTES];
    const tt_arch *a = r->arch;
    found down;
    TT_TRY(find(r, names_of(r->family->tensors.fused_down, tti_common_tensors.fused_down), layer, 0, name, &down));
    if (down.n_dims == 0) {
        return missing(r, name);
    }
    TT_TRY(check_shape(r, &down, 3, (int64_t[]){a->E, a->H, a->F}));
    for (int64_t e = 0; e < a->E; e++) {
        experts[e] = view_of(gate_up, e, 2 * a->F, 0, a->F, a->H);
        experts[a->E + e] = view_of(gate_up, e, 2 * a->F, a->F, a->F, a->H);
        experts[2 * a->E + e] = view_of(&down, e, a->H, 0, a->H, a->F);
    }
    return TT_OK;
}

static tt_status resolve_experts(const resolver *r, int64_t layer, tt_model *model)
{
    char name[NAME_BYTES];
    const tt_arch *a = r->arch;
    found fused, first;
    TT_TRY(find(r, names_of(r->family->tensors.fused_gate_up, tti_common_tensors.fused_gate_up), layer, 0, name, &fused));
    TT_TRY(find(r, role_names(r, TT_ROLE_EXPERT_GATE), layer, 0, name, &first));
    if (fused.n_dims == 0 && first.n_dims == 0) {
        return missing(r, name);
    }
    /* The array below is as large as E says, so E is held against what the files hold first. */
    if (first.n_dims > 0) {
        TT_CHECK((uint64_t)a->E * 3 <= r->checkpoint->table.n, TT_ERR_FILE,
                 "%s: the configuration states %lld experts, the checkpoint has %zu tensors",
                 tti_show_path(r->checkpoint->source), (long long)a->E, r->checkpoint->table.n);
    } else {
        TT_TRY(check_shape(r, &fused, 3, (int64_t[]){a->E, 2 * a->F, a->H}));
    }
    tti_resolved *experts = calloc((size_t)a->E * TTI_N_EXPERT_ROLES, sizeof(*experts));
    TT_CHECK(experts, TT_ERR_NOMEM, "no memory for the table of %lld experts", (long long)a->E);
    model->expert[layer] = experts;
    if (first.n_dims == 0) {
        return resolve_fused(r, layer, &fused, experts);
    }
    for (int64_t e = 0; e < a->E; e++) {
        for (int i = 0; i < TTI_N_EXPERT_ROLES; i++) {
            TT_TRY(resolve_one(r, (tt_role)(TT_ROLE_EXPERT_GATE + i), layer, e,
                               &experts[i * a->E + e]));
        }
    }
    return TT_OK;
}

/* How many of the MTP layers that the configuration states the checkpoint has. */
static int64_t count_mtp(const resolver *r, int64_t n_stated)
{
    int64_t n = 0;
    char name[NAME_BYTES];
    while (r->family->mtp_probe && n < n_stated) {
        expand(r->family->mtp_probe, r->arch->L + n, 0, name);
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
        if (!tti_role_is_expert((tt_role)role)) {
            model->layer[role] = calloc(n, sizeof(*model->layer[role]));
            enough = enough && model->layer[role];
        }
    }
    TT_CHECK(enough, TT_ERR_NOMEM, "no memory for the tables of %zu layers", n);
    return TT_OK;
}

tt_status tti_roles_resolve(tt_model *model, const tti_family *family, const tti_hyper *hyper,
                            const tti_checkpoint *checkpoint)
{
    tt_arch *arch = &model->arch;
    resolver r = {.family = family, .checkpoint = checkpoint, .arch = arch};
    arch->n_mtp = count_mtp(&r, hyper->n_nextn);
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
    for (int role = 0; role < TTI_N_GLOBAL_ROLES; role++) {
        bool tied = role == TT_ROLE_HEAD && arch->tied_embeddings;
        tt_role from = tied ? TT_ROLE_EMBED : (tt_role)role;
        TT_TRY(resolve_one(&r, from, 0, 0, &model->global[role]));
    }
    for (int64_t layer = 0; layer < n_layers; layer++) {
        for (int role = TTI_N_GLOBAL_ROLES; role < TT_ROLE_COUNT; role++) {
            if (!tti_role_is_expert((tt_role)role)) {
                TT_TRY(resolve_one(&r, (tt_role)role, layer, 0, &model->layer[role][layer]));
            }
        }
        if (arch->layer[layer].is_moe) {
            TT_TRY(resolve_experts(&r, layer, model));
        }
    }
    return TT_OK;
}
