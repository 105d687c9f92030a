/* roles.c - from names to meaning: every tensor that the architecture needs is looked up once, its
 * shape and type are checked, and what remains is an array per role, so that nobody else ever
 * handles a tensor's name. */
#include "panels.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/log.h"

enum { NAME_BYTES = 256 }; /* of an expanded pattern; ours are below 100 */

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

/* The names of the tensor that may hold this role and another; NULL if no such thing exists.
 * *second_out: it is the other half. */
static const char *const *pair_names(const resolver *r, tt_role role, bool *second_out)
{
    static const struct {
        tt_role first, second;
    } pairs[TTI_PAIR_COUNT] = {
        [TTI_PAIR_DENSE] = {TT_ROLE_GATE, TT_ROLE_UP},
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
static void expand(const resolver *r, const char *pattern, int64_t layer, int64_t expert,
                   char *name)
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

/* What the checkpoint has under the first of the spellings that it has at all; out->n_dims = 0 if
 * none. */
static tt_status find(const resolver *r, const char *const *spellings, int64_t layer,
                      int64_t expert, found *out)
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
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%lld", i ? ", " : "", (long long)dim[i]);
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
    return TT_FAIL(TT_ERR_FILE,
                   "%s: tensor '%s' has the shape [%s], the configuration asks for [%s]",
                   tti_show_path(r->checkpoint->file[f->source.part[0].file_id].path),
                   tti_show(f->source.name).text, have, need);
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
    w->view = (tti_view){
        .file_rows = w->rows, .segment = {{w->rows, 0, w->rows, w->rows}}, .n_segments = 1};
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
    w->view.segment[0] =
        turns ? (tti_segment){n, second, 1, 2} : (tti_segment){n, second ? n : 0, n, n};
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
    resolved.tensor = (tt_tensor){
        .name = source->name, .rows = w->rows, .cols = w->cols, .format = source->format};
    return resolved;
}

/* Looks a role up: under its own names, else as half of a pair. Refuses if it is not there; expert
 * roles may be planes, then `planes` chooses what name a refusal gives. */
static tt_status look_up(const resolver *r, tt_role role, int64_t layer, bool planes, wanted *w,
                         found *f)
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
    TT_CHECK(names && names[0], TT_ERR_UNSUPPORTED,
             "%s: no name is known for a tensor that %s needs",
             tti_show_path(r->checkpoint->source), tti_show(r->arch->name).text);
    int i = 0;
    while (planes && is_per_expert(names[i]) && i + 1 < TTI_SPELLINGS && names[i + 1]) {
        i++;
    }
    return missing(r, names[i], layer, 0);
}

/* The tensor of a role that is not an expert's; *resolved_out is left alone where the architecture
 * has none. */
static tt_status resolve_one(const resolver *r, tt_role role, int64_t layer,
                             tti_resolved *resolved_out)
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

/* Planes of all experts: [E][outputs][inputs], or [E][inputs][outputs] where the family stores them
 * so; of such a family the other order is accepted too where the shape leaves no doubt. */
static tt_status check_planes(const resolver *r, const found *f, const wanted *w,
                              bool *transposed_out)
{
    int64_t E = r->arch->E, rows = w->view.file_rows, cols = w->cols;
    const int64_t straight[] = {E, rows, cols}, turned[] = {E, cols, rows};
    int n_dims = w->vector ? 2 : 3;
    bool turns =
        r->family->tensors.transposed && f->source.scheme == TTI_SCHEME_PLAIN && !w->vector;
    *transposed_out = turns && (rows == cols || !has_shape(f, n_dims, straight));
    return check_shape(r, f, n_dims, *transposed_out ? turned : straight);
}

/* One role of all experts of a layer: experts[E]. *planes: in: how a missing tensor is named; out:
 * how they lie. */
static tt_status resolve_role_of_experts(const resolver *r, tt_role role, int64_t layer,
                                         bool *planes, tti_resolved *experts)
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
        TT_TRY(resolve_role_of_experts(r, (tt_role)(TT_ROLE_EXPERT_GATE + i), layer, &planes,
                                       experts + i * a->E));
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

tt_status tti_roles_set_layers(tt_model *model, const tti_family *family, const tti_hyper *hyper,
                               int64_t n_layers)
{
    tt_arch *arch = &model->arch;
    TT_TRY(allocate(model, n_layers));
    for (int64_t layer = 0; layer < n_layers; layer++) {
        arch->layer[layer] = (tt_layer){.is_moe = arch->E > 0 && family->layer_is_moe(hyper, layer),
                                        .rope = true,
                                        .qk_norm = arch->qk_norm != TT_QK_NORM_NONE};
        if (family->set_layer) {
            family->set_layer(hyper, layer, &arch->layer[layer]);
        }
    }
    return TT_OK;
}

/* One role of a packed checkpoint, in one layer (0 for a global role); of all experts. */
static tt_status resolve_panel(const resolver *r, const tti_panels *panels, tt_role role,
                               int64_t layer, tt_model *model)
{
    const tt_arch *a = r->arch;
    int n_roles = a->expert_bias ? TTI_N_EXPERT_ROLES : TTI_N_EXPERT_MATRICES;
    bool global = tt_role_is_global(role), expert = tt_role_is_expert(role);
    int64_t shape[2];
    bool vector;
    if (!tti_role_shape(a, role, layer, &shape[0], &shape[1], &vector)) {
        return TT_OK;
    }
    if (expert && !model->expert[layer]) {
        TT_CHECK((uint64_t)a->E * (uint64_t)n_roles <= r->checkpoint->table.n, TT_ERR_FILE,
                 "%s: the configuration states %lld experts, the checkpoint has %zu tensors",
                 tti_show_path(r->checkpoint->source), (long long)a->E, r->checkpoint->table.n);
        model->expert[layer] = calloc((size_t)a->E * (size_t)n_roles, sizeof(**model->expert));
        TT_CHECK(model->expert[layer], TT_ERR_NOMEM, "no memory for the table of %lld experts",
                 (long long)a->E);
    }
    for (int64_t e = 0; e < (expert ? a->E : 1); e++) {
        tti_resolved *to =
            expert ? &model->expert[layer][(int64_t)(role - TT_ROLE_EXPERT_GATE) * a->E + e]
                   : (global ? &model->global[role] : &model->layer[role][layer]);
        TT_TRY(tti_panels_resolve(panels, r->checkpoint, role, layer, e, shape, to));
    }
    return TT_OK;
}

static tt_status resolve_global(const resolver *r, const tti_panels *panels, tt_model *model)
{
    for (int i = 0; i < TTI_N_GLOBAL_ROLES; i++) {
        tt_role role = (tt_role)i;
        bool tied = role == TT_ROLE_HEAD && r->arch->tied_embeddings;
        TT_TRY(panels ? resolve_panel(r, panels, role, 0, model)
                      : resolve_one(r, tied ? TT_ROLE_EMBED : role, 0, &model->global[role]));
    }
    return TT_OK;
}

static tt_status resolve_layer(const resolver *r, const tti_panels *panels, int64_t layer,
                               tt_model *model)
{
    for (int i = TTI_N_GLOBAL_ROLES; i < TT_ROLE_COUNT; i++) {
        tt_role role = (tt_role)i;
        if (panels) {
            TT_TRY(resolve_panel(r, panels, role, layer, model));
        } else if (!tt_role_is_expert(role)) {
            TT_TRY(resolve_one(r, role, layer, &model->layer[role][layer]));
        }
    }
    return panels || !r->arch->layer[layer].is_moe ? TT_OK : resolve_experts(r, layer, model);
}

/* A layer as if it had never been looked for. */
static void forget_layer(tt_model *model, int64_t layer)
{
    for (int role = 0; role < TT_ROLE_COUNT; role++) {
        if (model->layer[role]) {
            model->layer[role][layer] = (tti_resolved){0};
        }
    }
    free(model->expert[layer]);
    model->expert[layer] = NULL;
}

/* Layers behind the last one are not run, so one that cannot be used ends them and refuses
 * nothing. */
static tt_status resolve_layers(const resolver *r, const tti_panels *panels, tt_model *model)
{
    tt_arch *a = &model->arch;
    for (int64_t layer = 0; layer < a->L + a->n_mtp; layer++) {
        tt_status st = resolve_layer(r, panels, layer, model);
        bool is_bad = st == TT_ERR_FILE || st == TT_ERR_UNSUPPORTED;
        if (is_bad && layer >= a->L) {
            tt_log(TT_LOG_WARN,
                   "layer %lld, which predicts further tokens and is not run, cannot be used: %s",
                   (long long)layer, tt_status_message());
            forget_layer(model, layer);
            a->n_mtp = layer - a->L;
        } else {
            TT_TRY(st);
        }
    }
    return TT_OK;
}

static tt_status resolve(tt_model *model, const tti_family *family, const tti_hyper *hyper,
                         const tti_checkpoint *checkpoint, const tti_panels *panels)
{
    tt_arch *arch = &model->arch;
    resolver r = {.family = family, .checkpoint = checkpoint, .arch = arch, .prefix = ""};
    if (family->prefix) {
        char name[NAME_BYTES];
        r.prefix = family->prefix;
        expand(&r, role_names(&r, TT_ROLE_EMBED)[0], 0, 0, name);
        r.prefix = tti_table_find(&checkpoint->table, name) ? family->prefix : "";
    }
    arch->n_mtp = panels ? (panels->n_mtp < hyper->n_nextn ? panels->n_mtp : hyper->n_nextn)
                         : count_mtp(&r, hyper->n_nextn);
    arch->mla_split = panels ? panels->mla_split : arch->mla_split;
    arch->rope.interleaved |= panels && panels->interleaved;
    int64_t n_layers = arch->L + arch->n_mtp;
    TT_CHECK((uint64_t)n_layers <= checkpoint->table.n, TT_ERR_FILE,
             "%s: the configuration states %lld layers, the checkpoint has %zu tensors",
             tti_show_path(checkpoint->source), (long long)n_layers, checkpoint->table.n);
    TT_TRY(tti_roles_set_layers(model, family, hyper, n_layers));
    TT_TRY(resolve_global(&r, panels, model));
    TT_TRY(resolve_layers(&r, panels, model));
    return tti_claims_check(
        &(tti_claims){family, checkpoint, arch, r.prefix, hyper->config, hyper->n_nextn});
}

tt_status tti_roles_resolve(tt_model *model, const tti_family *family, const tti_hyper *hyper,
                            const tti_checkpoint *checkpoint)
{
    tti_panels panels = {0};
    if (checkpoint->table.panels) {
        TT_TRY(tti_panels_read(checkpoint, &panels));
    }
    tt_status st =
        resolve(model, family, hyper, checkpoint, checkpoint->table.panels ? &panels : NULL);
    tti_panels_fini(&panels);
    return st;
}
