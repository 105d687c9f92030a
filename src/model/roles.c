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
    bool mla = a->attention == TT_ATTENTION_MLA;
    bool moe = !tti_role_is_global(role) && a->layer_is_moe[layer];
    bool shared = moe && a->F_shared > 0;
    int64_t n_q = a->Nq * (mla ? a->nope_dim + a->rope_dim : a->D);
    int64_t n_kv = a->Nkv * a->D;
    bool head_norm = a->qk_norm == TT_QK_NORM_HEAD;
#define MATRIX(present, rows, cols)                                                                \
    (*rows_out = (rows), *cols_out = (cols), *vector_out = false, (present))
#define VECTOR(present, rows) (*rows_out = (rows), *cols_out = 1, *vector_out = true, (present))
    switch (role) {
    case TT_ROLE_EMBED:
    case TT_ROLE_HEAD:
        return MATRIX(true, a->V, a->H);
    case TT_ROLE_FINAL_NORM:
    case TT_ROLE_ATTENTION_NORM:
    case TT_ROLE_FFN_NORM:
        return VECTOR(true, a->H);
    case TT_ROLE_Q:
        return MATRIX(!mla || a->q_rank == 0, n_q, a->H);
    case TT_ROLE_K:
    case TT_ROLE_V:
        return MATRIX(!mla, n_kv, a->H);
    case TT_ROLE_O:
        return MATRIX(true, a->H, mla ? a->Nq * a->v_dim : n_q);
    case TT_ROLE_Q_BIAS:
        return VECTOR(!mla && a->qkv_bias, n_q);
    case TT_ROLE_K_BIAS:
    case TT_ROLE_V_BIAS:
        return VECTOR(!mla && a->qkv_bias, n_kv);
    case TT_ROLE_O_BIAS:
        return VECTOR(!mla && a->o_bias, a->H);
    case TT_ROLE_Q_NORM:
        return VECTOR(!mla && a->qk_norm != TT_QK_NORM_NONE, head_norm ? a->D : n_q);
    case TT_ROLE_K_NORM:
        return VECTOR(!mla && a->qk_norm != TT_QK_NORM_NONE, head_norm ? a->D : n_kv);
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
    case TT_ROLE_GATE:
    case TT_ROLE_UP:
        return MATRIX(!moe, a->F_dense, a->H);
    case TT_ROLE_DOWN:
        return MATRIX(!moe, a->H, a->F_dense);
    case TT_ROLE_ROUTER:
        return MATRIX(moe, a->E, a->H);
    case TT_ROLE_ROUTER_CHOICE_BIAS:
        return VECTOR(moe && a->router.choice_bias, a->E);
    case TT_ROLE_EXPERT_GATE:
    case TT_ROLE_EXPERT_UP:
        return MATRIX(moe, a->F, a->H);
    case TT_ROLE_EXPERT_DOWN:
        return MATRIX(moe, a->H, a->F);
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

/* The first of the spellings that the checkpoint has; NULL if none. name[NAME_BYTES] gets the one
 * found, or the first. */
static const tti_entry *find(const resolver *r, const char *const *spellings, int64_t layer,
                             int64_t expert, char *name)
{
    for (int i = 0; i < TTI_SPELLINGS && spellings[i]; i++) {
        char other[NAME_BYTES];
        expand(spellings[i], layer, expert, i == 0 ? name : other);
        const tti_entry *entry = tti_table_find(&r->checkpoint->table, i == 0 ? name : other);
        if (entry) {
            if (i > 0) {
                memcpy(name, other, sizeof(other));
            }
            return entry;
        }
    }
    return NULL;
}

static tt_status missing(const resolver *r, const char *name)
{
    return TT_FAIL(TT_ERR_FILE, "%s: tensor '%s' is missing, %s needs it",
                   tti_show_path(r->checkpoint->source), name, tti_show(r->arch->name).text);
}

/* Checks that entry is dim[n_dims] of a usable type. */
static tt_status check_entry(const resolver *r, const tti_entry *entry, int n_dims,
                             const int64_t *dim)
{
    const char *path = tti_show_path(r->checkpoint->file[entry->file_id].path);
    bool fits = entry->n_dims == n_dims;
    for (int i = 0; i < n_dims && fits; i++) {
        fits = entry->dim[i] == dim[i];
    }
    if (!fits) {
        char have[128] = "", need[128] = "";
        size_t used = 0;
        for (int i = 0; i < entry->n_dims && i < TTI_MAX_DIMS; i++) {
            used += (size_t)snprintf(have + used, sizeof(have) - used, "%s%lld", i ? ", " : "",
                                     (long long)entry->dim[i]);
        }
        if (entry->n_dims > TTI_MAX_DIMS) {
            snprintf(have + used, sizeof(have) - used, ", ...");
        }
        used = 0;
        for (int i = 0; i < n_dims; i++) {
            used += (size_t)snprintf(need + used, sizeof(need) - used, "%s%lld", i ? ", " : "",
                                     (long long)dim[i]);
        }
        return TT_FAIL(TT_ERR_FILE,
                       "%s: tensor '%s' has the shape [%s], the configuration asks for [%s]", path,
                       tti_show(entry->name).text, have, need);
    }
    TT_CHECK(entry->dtype->type != TT_DTYPE_OTHER, TT_ERR_UNSUPPORTED,
             "%s: tensor '%s' has the type %s, which is not supported (F32, BF16 and F16 are)",
             path, tti_show(entry->name).text, entry->dtype->name);
    return TT_OK;
}

static tt_tensor whole_tensor(const tti_entry *entry, int64_t rows, int64_t cols)
{
    return (tt_tensor){.name = entry->name,
                       .type = entry->dtype->type,
                       .rows = rows,
                       .cols = cols,
                       .file_id = entry->file_id,
                       .offset = entry->offset};
}

/* The tensor of a role; *tensor_out is left alone where the architecture has none. */
static tt_status resolve_one(const resolver *r, tt_role role, int64_t layer, int64_t expert,
                             tt_tensor *tensor_out)
{
    char name[NAME_BYTES];
    int64_t dim[2];
    bool vector = false;
    if (!tti_role_shape(r->arch, role, layer, &dim[0], &dim[1], &vector)) {
        return TT_OK;
    }
    const tti_entry *entry = find(r, role_names(r, role), layer, expert, name);
    if (!entry) {
        return missing(r, name);
    }
    TT_TRY(check_entry(r, entry, vector ? 1 : 2, dim));
    *tensor_out = whole_tensor(entry, dim[0], dim[1]);
    return TT_OK;
}

/* Experts of a layer that lie in two tensors: gate_up[E][2F][H], gate rows first, and
 * down[E][H][F]. experts[3][E]. */
static tt_status resolve_fused(const resolver *r, int64_t layer, const tti_entry *gate_up,
                               tt_tensor *experts)
{
    char name[NAME_BYTES];
    const tt_arch *a = r->arch;
    const tti_entry *down = find(
        r, names_of(r->family->tensors.fused_down, tti_common_tensors.fused_down), layer, 0, name);
    if (!down) {
        return missing(r, name);
    }
    TT_TRY(check_entry(r, down, 3, (int64_t[]){a->E, a->H, a->F}));
    /* The shapes were checked against the size of the file: no product below can overflow. */
    uint64_t gate_bytes = (uint64_t)a->F * (uint64_t)a->H * tt_dtype_bytes(gate_up->dtype->type);
    uint64_t down_bytes = (uint64_t)a->H * (uint64_t)a->F * tt_dtype_bytes(down->dtype->type);
    for (int64_t e = 0; e < a->E; e++) {
        tt_tensor gate_e = whole_tensor(gate_up, a->F, a->H);
        tt_tensor down_e = whole_tensor(down, a->H, a->F);
        gate_e.offset += 2 * (uint64_t)e * gate_bytes;
        down_e.offset += (uint64_t)e * down_bytes;
        tt_tensor up_e = gate_e;
        up_e.offset += gate_bytes;
        experts[e] = gate_e;
        experts[a->E + e] = up_e;
        experts[2 * a->E + e] = down_e;
    }
    return TT_OK;
}

static tt_status resolve_experts(const resolver *r, int64_t layer, tt_model *model)
{
    char name[NAME_BYTES];
    const tt_arch *a = r->arch;
    const tti_entry *fused =
        find(r, names_of(r->family->tensors.fused_gate_up, tti_common_tensors.fused_gate_up), layer,
             0, name);
    const tti_entry *first = find(r, role_names(r, TT_ROLE_EXPERT_GATE), layer, 0, name);
    if (!fused && !first) {
        return missing(r, name);
    }
    /* The array below is as large as E says, so E is held against what the files hold first. */
    if (first) {
        TT_CHECK((uint64_t)a->E * TTI_N_EXPERT_ROLES <= r->checkpoint->table.n, TT_ERR_FILE,
                 "%s: the configuration states %lld experts, the checkpoint has %zu tensors",
                 tti_show_path(r->checkpoint->source), (long long)a->E, r->checkpoint->table.n);
    } else {
        TT_TRY(check_entry(r, fused, 3, (int64_t[]){a->E, 2 * a->F, a->H}));
    }
    tt_tensor *experts = calloc((size_t)a->E * TTI_N_EXPERT_ROLES, sizeof(*experts));
    TT_CHECK(experts, TT_ERR_NOMEM, "no memory for the table of %lld experts", (long long)a->E);
    model->expert[layer] = experts;
    if (!first) {
        return resolve_fused(r, layer, fused, experts);
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
    const char *const probe[TTI_SPELLINGS] = {r->family->mtp_probe};
    char name[NAME_BYTES];
    while (probe[0] && n < n_stated && find(r, probe, r->arch->L + n, 0, name)) {
        n++;
    }
    return n;
}

static tt_status allocate(tt_model *model, int64_t n_layers)
{
    size_t n = (size_t)n_layers;
    model->arch.layer_is_moe = calloc(n, sizeof(*model->arch.layer_is_moe));
    model->expert = calloc(n, sizeof(*model->expert));
    bool enough = model->arch.layer_is_moe && model->expert;
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
        arch->layer_is_moe[layer] = family->layer_is_moe(hyper, layer);
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
        if (arch->layer_is_moe[layer]) {
            TT_TRY(resolve_experts(&r, layer, model));
        }
    }
    return TT_OK;
}
