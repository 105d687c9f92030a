/* made.c - a model that is in no file: the configuration of a released model (or of one of our
 * shapes) says what it computes, and each tensor that the architecture needs comes from
 * made_rows.c. So a shape can be timed, on any layout, before hundreds of GB are fetched. */
#include "made.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/load.h"

enum { LIST_BYTES = 1024 };
static const uint64_t ROLE_STEP = UINT64_C(0x9e3779b97f4a7c15);

/* One model in the making. */
typedef struct making {
    tt_model *model;
    const tti_family *family;
    const tti_quantization *native;
    tt_weight_format weights;
    uint64_t seed;
} making;

const char *tt_model_shape(size_t i)
{
    size_t n = 0;
    while (tti_shapes[n].name) {
        n++;
    }
    return i < n ? tti_shapes[i].name : NULL;
}

bool tt_model_is_made(const tt_model *model)
{
    return model->global[TT_ROLE_EMBED].source.scheme == TTI_SCHEME_MADE;
}

static tt_status find_shape(const char *name, const tti_shape **shape_out)
{
    char list[LIST_BYTES] = "";
    size_t used = 0;
    for (const tti_shape *s = tti_shapes; s->name; s++) {
        if (strcmp(s->name, name) == 0) {
            *shape_out = s;
            return TT_OK;
        }
        int n = snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "", s->name);
        used += n > 0 && (size_t)n < sizeof(list) - used ? (size_t)n : 0;
    }
    return TT_FAIL(TT_ERR_USAGE, "unknown shape '%s'; there are %s", tti_show(name).text, list);
}

/* ---- layers ---- */

/* Fewer layers, with the same share of dense ones first: at least one of those where there were
 * some, and one with experts. */
static tt_status cut_layers(tti_hyper *hyper, int64_t layers, const char *shape)
{
    int64_t all = hyper->arch.L, dense = hyper->first_dense;
    TT_CHECK(layers >= 0 && layers <= all, TT_ERR_USAGE, "--layers %lld: shape %s has %lld layers",
             (long long)layers, shape, (long long)all);
    if (layers == 0 || layers == all) {
        return TT_OK;
    }
    int64_t kept = (int64_t)llround((double)dense * (double)layers / (double)all);
    kept = kept < 1 && dense > 0 ? 1 : kept;
    hyper->first_dense = kept < layers ? kept : layers - 1;
    hyper->last_moe = hyper->last_moe < layers ? hyper->last_moe : layers - 1;
    hyper->arch.L = layers;
    return TT_OK;
}

/* ---- tensors ---- */

static bool is_expert_matrix(tt_role role)
{
    return role >= TT_ROLE_EXPERT_GATE && role <= TT_ROLE_EXPERT_DOWN;
}

/* What a matrix is stored as: as asked for, or as the maker has it. Of the makers' schemes FP8
 * covers all large matrices, the others experts alone. */
static ttk_format format_of(const making *m, tt_role role)
{
    const tti_quant_rule *rule = &m->native->rule[0];
    tt_tensor plain = {.role = role, .format = {.code = TTK_BF16}};
    tt_weight_format weights = m->weights;
    if (weights == TT_WEIGHTS_AUTO) {
        switch (m->native->method) {
        case TTI_QUANT_NONE:
            break;
        case TTI_QUANT_FP8:
            weights = TT_WEIGHTS_FP8;
            break;
        case TTI_QUANT_MXFP4:
            weights = is_expert_matrix(role) ? TT_WEIGHTS_MXFP4 : TT_WEIGHTS_AUTO;
            break;
        case TTI_QUANT_COMPRESSED:
        case TTI_QUANT_GPTQ:
        case TTI_QUANT_AWQ:
            weights = !is_expert_matrix(role) ? TT_WEIGHTS_AUTO
                      : rule->bits == 4       ? TT_WEIGHTS_INT4
                                              : TT_WEIGHTS_INT8;
            break;
        }
    }
    return tt_load_format(weights, &plain);
}

static const char *name_of(const making *m, tt_role role)
{
    const char *const *names = tti_role_names(m->family, role);
    return names && names[0] ? names[0] : "(half of a pair)";
}

/* The tensor of a role; nothing where the architecture has none. */
static void make_one(const making *m, tt_role role, int64_t layer, int64_t expert, tti_resolved *to)
{
    int64_t rows, cols;
    bool vector;
    if (!tti_role_shape(&m->model->arch, role, layer, &rows, &cols, &vector)) {
        return;
    }
    /* A tied head is the embedding. */
    tt_role made = role == TT_ROLE_HEAD && m->model->arch.tied_embeddings ? TT_ROLE_EMBED : role;
    ttk_format format = vector ? (ttk_format){.code = TTK_F32} : format_of(m, made);
    uint64_t place = ((uint64_t)made << 56) ^ ((uint64_t)layer << 32) ^ (uint64_t)expert;
    *to = (tti_resolved){.source = {.name = name_of(m, made)}};
    tti_made_init(&to->source, made, &format, rows, cols, m->seed * ROLE_STEP ^ place);
    to->tensor = (tt_tensor){
        .name = to->source.name, .rows = rows, .cols = cols, .format = to->source.format};
}

static tt_status make_experts(const making *m, int64_t layer)
{
    const tt_arch *a = &m->model->arch;
    int n_roles = a->expert_bias ? TTI_N_EXPERT_ROLES : TTI_N_EXPERT_MATRICES;
    tti_resolved *experts = calloc((size_t)a->E * (size_t)n_roles, sizeof(*experts));
    TT_CHECK(experts, TT_ERR_NOMEM, "no memory for the table of %lld experts", (long long)a->E);
    m->model->expert[layer] = experts;
    for (int i = 0; i < n_roles; i++) {
        for (int64_t e = 0; e < a->E; e++) {
            make_one(m, (tt_role)(TT_ROLE_EXPERT_GATE + i), layer, e, &experts[i * a->E + e]);
        }
    }
    return TT_OK;
}

static tt_status make_all(const making *m)
{
    tt_model *model = m->model;
    for (int i = 0; i < TTI_N_GLOBAL_ROLES; i++) {
        make_one(m, (tt_role)i, 0, 0, &model->global[i]);
    }
    for (int64_t layer = 0; layer < model->arch.L; layer++) {
        for (int i = TTI_N_GLOBAL_ROLES; i < TT_ROLE_COUNT; i++) {
            if (!tt_role_is_expert((tt_role)i)) {
                make_one(m, (tt_role)i, layer, 0, &model->layer[i][layer]);
            }
        }
        if (model->arch.layer[layer].is_moe) {
            TT_TRY(make_experts(m, layer));
        }
    }
    return TT_OK;
}

/* ---- a model ---- */

static char *print_text(const char *format, const char *text)
{
    size_t n = strlen(format) + strlen(text) + 1;
    char *copy = malloc(n);
    if (copy) {
        snprintf(copy, n, format, text);
    }
    return copy;
}

/* Everything but the tables of hyper, which go to the model with its arch. */
static tt_status fill(making *m, const tti_hyper *hyper, const tt_made_params *params)
{
    tt_model *model = m->model;
    model->arch = hyper->arch;
    model->name = print_text("%s", hyper->arch.name);
    model->arch.name = model->name;
    model->path = print_text("%s (made)", params->shape);
    model->generation = (tt_generation){
        .do_sample = -1, .temperature = NAN, .top_p = NAN, .min_p = NAN, .top_k = -1};
    TT_CHECK(model->name && model->path, TT_ERR_NOMEM, "no memory for shape %s", params->shape);
    TT_TRY(tti_roles_set_layers(model, m->family, hyper, hyper->arch.L));
    return make_all(m);
}

static tt_status make(const tt_made_params *params, const char *config, tt_model *model)
{
    json_t *root;
    tti_hyper hyper;
    making m = {.model = model, .weights = params->weights, .seed = params->seed + 1};
    TT_TRY(tti_json_parse(params->shape, config, strlen(config), &root));
    TT_TRY(tti_config_take(params->shape, root, &m.family, &hyper));
    m.native = &hyper.quantization;
    tt_status st = cut_layers(&hyper, params->layers, params->shape);
    if (st == TT_OK) {
        st = fill(&m, &hyper, params);
    } else {
        free(hyper.arch.rope.inv_freq);
        free(hyper.arch.rope.long_inv_freq);
    }
    json_decref(hyper.root);
    return st;
}

tt_status tt_model_make(const tt_made_params *params, tt_model **model_out)
{
    const tti_shape *shape = NULL;
    TT_TRY(find_shape(params->shape, &shape));
    tt_model *model = calloc(1, sizeof(*model));
    TT_CHECK(model, TT_ERR_NOMEM, "no memory for shape %s", params->shape);
    tt_status st = make(params, shape->config, model);
    if (st != TT_OK) {
        tt_model_close(&model);
        return st;
    }
    *model_out = model;
    return TT_OK;
}
