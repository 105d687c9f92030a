/* panels.c - packed checkpoints as others are: each role's tensor is found by the role's own name,
 * checked against the architecture and the size of its range, and becomes a source. The metadata
 * are hostile like any file: what they say of a tensor must fit its bytes exactly. */
#include "panels.h"
#include <stdio.h>
#include <string.h>

static const char *const role_names[TT_ROLE_COUNT] = {
    [TT_ROLE_EMBED] = "embed",
    [TT_ROLE_FINAL_NORM] = "final_norm",
    [TT_ROLE_FINAL_NORM_BIAS] = "final_norm_bias",
    [TT_ROLE_HEAD] = "head",
    [TT_ROLE_HEAD_BIAS] = "head_bias",
    [TT_ROLE_ATTENTION_NORM] = "attention_norm",
    [TT_ROLE_ATTENTION_NORM_BIAS] = "attention_norm_bias",
    [TT_ROLE_FFN_NORM] = "ffn_norm",
    [TT_ROLE_FFN_NORM_BIAS] = "ffn_norm_bias",
    [TT_ROLE_Q] = "q",
    [TT_ROLE_K] = "k",
    [TT_ROLE_V] = "v",
    [TT_ROLE_O] = "o",
    [TT_ROLE_Q_BIAS] = "q_bias",
    [TT_ROLE_K_BIAS] = "k_bias",
    [TT_ROLE_V_BIAS] = "v_bias",
    [TT_ROLE_O_BIAS] = "o_bias",
    [TT_ROLE_Q_NORM] = "q_norm",
    [TT_ROLE_K_NORM] = "k_norm",
    [TT_ROLE_Q_GATE] = "q_gate",
    [TT_ROLE_SINKS] = "sinks",
    [TT_ROLE_Q_A] = "q_a",
    [TT_ROLE_Q_A_NORM] = "q_a_norm",
    [TT_ROLE_Q_B] = "q_b",
    [TT_ROLE_KV_A] = "kv_a",
    [TT_ROLE_KV_A_NORM] = "kv_a_norm",
    [TT_ROLE_KV_B] = "kv_b",
    [TT_ROLE_MLA_K] = "mla_k",
    [TT_ROLE_MLA_V] = "mla_v",
    [TT_ROLE_DELTA_QKV] = "delta_qkv",
    [TT_ROLE_DELTA_GATE] = "delta_gate",
    [TT_ROLE_DELTA_BETA] = "delta_beta",
    [TT_ROLE_DELTA_DECAY] = "delta_decay",
    [TT_ROLE_DELTA_CONV] = "delta_conv",
    [TT_ROLE_DELTA_DECAY_BIAS] = "delta_decay_bias",
    [TT_ROLE_DELTA_DECAY_RATE] = "delta_decay_rate",
    [TT_ROLE_DELTA_NORM] = "delta_norm",
    [TT_ROLE_DELTA_OUT] = "delta_out",
    [TT_ROLE_GATE] = "gate",
    [TT_ROLE_UP] = "up",
    [TT_ROLE_DOWN] = "down",
    [TT_ROLE_ROUTER] = "router",
    [TT_ROLE_ROUTER_BIAS] = "router_bias",
    [TT_ROLE_ROUTER_CHOICE_BIAS] = "router_choice_bias",
    [TT_ROLE_EXPERT_GATE] = "expert_gate",
    [TT_ROLE_EXPERT_UP] = "expert_up",
    [TT_ROLE_EXPERT_DOWN] = "expert_down",
    [TT_ROLE_EXPERT_GATE_BIAS] = "expert_gate_bias",
    [TT_ROLE_EXPERT_UP_BIAS] = "expert_up_bias",
    [TT_ROLE_EXPERT_DOWN_BIAS] = "expert_down_bias",
    [TT_ROLE_SHARED_GATE] = "shared_gate",
    [TT_ROLE_SHARED_UP] = "shared_up",
    [TT_ROLE_SHARED_DOWN] = "shared_down",
    [TT_ROLE_SHARED_ROUTER] = "shared_router",
};
static const char *const code_names[] = {
    [TTK_F32] = "f32",   [TTK_BF16] = "bf16", [TTK_F16] = "f16",  [TTK_I8] = "i8",
    [TTK_U8] = "u8",     [TTK_I4] = "i4",     [TTK_U4] = "u4",    [TTK_I6] = "i6",
    [TTK_E4M3] = "e4m3", [TTK_E2M1] = "e2m1", [TTK_E8M0] = "e8m0"};
static const char *const shift_names[] = {
    [TTK_SHIFT_NONE] = "none", [TTK_SHIFT_ZERO] = "zero", [TTK_SHIFT_OFFSET] = "offset"};
#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

void tti_panels_name(tt_role role, int64_t layer, int64_t expert, char name[TTI_PANELS_NAME_BYTES])
{
    int used = snprintf(name, TTI_PANELS_NAME_BYTES, "%s", role_names[role]);
    if (!tt_role_is_global(role)) {
        used +=
            snprintf(name + used, TTI_PANELS_NAME_BYTES - (size_t)used, ".%lld", (long long)layer);
    }
    if (tt_role_is_expert(role)) {
        snprintf(name + used, TTI_PANELS_NAME_BYTES - (size_t)used, ".%lld", (long long)expert);
    }
}

bool tti_panels_is_plain(tt_role role, const tt_tensor *tensor)
{
    return tensor->cols == 1 || role == TT_ROLE_DELTA_CONV ||
           (role == TT_ROLE_EMBED && ttk_format_is_plain(&tensor->format));
}

json_t *tti_panels_format_json(const ttk_format *format)
{
    return json_pack("[s, s, s, i, i]", code_names[format->code], code_names[format->scale],
                     shift_names[format->shift], (int)format->group, (int)format->super);
}

/* ---- reading ---- */

static const char *path_of(const tti_checkpoint *checkpoint)
{
    return tti_show_path(checkpoint->source);
}

static int index_of(const json_t *text, const char *const *names, int n)
{
    for (int i = 0; i < n && json_is_string(text); i++) {
        if (names[i] && strcmp(names[i], json_string_value(text)) == 0) {
            return i;
        }
    }
    return -1;
}

/* What panels can be: the kernels believe a format. */
static bool is_sound(const ttk_format *f)
{
    bool wide = f->scale == TTK_F32 || f->scale == TTK_BF16 || f->scale == TTK_F16,
         small = f->scale == TTK_U8 || f->scale == TTK_I8;
    if (ttk_format_is_plain(f)) {
        return f->code != TTK_F16 && f->shift == TTK_SHIFT_NONE && f->group == 0 && f->super == 0 &&
               f->scale == TTK_F32;
    }
    return f->code != TTK_E8M0 && f->group > 0 && f->group % 2 == 0 && f->super >= 0 &&
           (f->super > 0 ? small && f->shift != TTK_SHIFT_ZERO
                         : wide || (f->scale == TTK_E8M0 && f->shift == TTK_SHIFT_NONE));
}

static bool read_format(const json_t *json, ttk_format *format)
{
    int code = index_of(json_array_get(json, 0), code_names, COUNT(code_names)),
        scale = index_of(json_array_get(json, 1), code_names, COUNT(code_names));
    int shift = index_of(json_array_get(json, 2), shift_names, COUNT(shift_names));
    json_int_t group = json_integer_value(json_array_get(json, 3)),
               super = json_integer_value(json_array_get(json, 4));
    if (json_array_size(json) != 5 || code < 0 || scale < 0 || shift < 0 || group < 0 ||
        group > 2 * TTI_MAX_WIDTH || super < 0 || super > TTI_MAX_WIDTH) {
        return false;
    }
    *format = (ttk_format){.code = (ttk_dtype)code,
                           .scale = (ttk_dtype)scale,
                           .shift = (ttk_shift)shift,
                           .group = (int32_t)group,
                           .super = (int32_t)super};
    return is_sound(format);
}

tt_status tti_panels_read(const tti_checkpoint *checkpoint, tti_panels *panels_out)
{
    tti_panels p = {0};
    TT_TRY(tti_json_parse(path_of(checkpoint), checkpoint->table.panels,
                          strlen(checkpoint->table.panels), &p.root));
    p.formats = json_object_get(p.root, "formats");
    p.tensors = json_object_get(p.root, "tensors");
    p.n_mtp = json_integer_value(json_object_get(p.root, "n_mtp"));
    p.mla_split = json_is_true(json_object_get(p.root, "mla_split"));
    p.interleaved = json_is_true(json_object_get(p.root, "rope_interleaved"));
    json_int_t version = json_integer_value(json_object_get(p.root, "version")),
               layout = json_integer_value(json_object_get(p.root, "panels"));
    const char *endian = json_string_value(json_object_get(p.root, "endian"));
    tt_status st = TT_OK;
    if (version != TTI_PANELS_VERSION || layout != TTK_PANEL_LAYOUT || !endian ||
        strcmp(endian, TTI_PANELS_ENDIAN) != 0) {
        st = TT_FAIL(
            TT_ERR_UNSUPPORTED,
            "%s: is a packed checkpoint of version %lld with panel layout %lld, %s-endian; this tutti reads version %d, panel layout "
            "%d, %s-endian: convert the model again",
            path_of(checkpoint), (long long)version, (long long)layout,
            endian ? tti_show(endian).text : "un", TTI_PANELS_VERSION, TTK_PANEL_LAYOUT,
            TTI_PANELS_ENDIAN);
    } else if (!json_is_array(p.formats) || !json_is_object(p.tensors) || p.n_mtp < 0 ||
               p.n_mtp > TTI_MAX_LAYERS) {
        st = TT_FAIL(TT_ERR_FILE, "%s: the description of its panels is damaged",
                     path_of(checkpoint));
    }
    if (st != TT_OK) {
        json_decref(p.root);
        return st;
    }
    *panels_out = p;
    return TT_OK;
}

void tti_panels_fini(tti_panels *panels)
{
    json_decref(panels->root);
    *panels = (tti_panels){0};
}

static tt_status damaged(const tti_checkpoint *checkpoint, const char *name, const char *why)
{
    return TT_FAIL(TT_ERR_FILE, "%s: tensor '%s' %s", path_of(checkpoint), name, why);
}

/* Of a tensor that lies as panels: fills source and format. */
static tt_status set_panels(const tti_panels *panels, const tti_checkpoint *checkpoint,
                            const tti_entry *entry, const int64_t shape[2], const json_t *facts,
                            tti_source *source)
{
    ttk_format format;
    json_int_t scale_rows = json_integer_value(json_array_get(facts, 3)),
               scale_first = json_integer_value(json_array_get(facts, 4));
    if (json_array_size(facts) != 5 || json_integer_value(json_array_get(facts, 1)) != shape[0] ||
        json_integer_value(json_array_get(facts, 2)) != shape[1]) {
        return damaged(checkpoint, entry->name,
                       "is described with another shape than the configuration asks for");
    }
    json_int_t id = json_integer_value(json_array_get(facts, 0));
    if (id < 0 || !read_format(json_array_get(panels->formats, (size_t)id), &format) ||
        scale_rows < 1 || scale_rows > TTI_MAX_WIDTH || scale_first < 0 ||
        scale_first >= scale_rows) {
        return damaged(checkpoint, entry->name, "is described with a format that cannot be");
    }
    if (strcmp(entry->dtype->name, "U8") != 0 ||
        entry->bytes != ttk_packed_bytes(&format, shape[0], shape[1])) {
        return damaged(checkpoint, entry->name, "has not as many bytes as its panels");
    }
    size_t panel_bytes = ttk_panel_bytes(&format, shape[1]);
    source->scheme = TTI_SCHEME_PANELS;
    source->format = source->stored = format;
    source->scale_rows = scale_rows;
    source->scale_first = scale_first;
    source->part[TTI_PART_CODE] = (tti_part){.lines = (shape[0] + TTK_PANEL - 1) / TTK_PANEL,
                                             .words = (int64_t)panel_bytes,
                                             .word_bytes = 1,
                                             .bits = 8};
    return TT_OK;
}

static tt_status set_plain(const tti_checkpoint *checkpoint, const tti_entry *entry,
                           const int64_t shape[2], tti_source *source)
{
    int64_t cols = entry->n_dims == 2 ? entry->dim[1] : 1;
    if (!entry->dtype->is_known || entry->dtype->type > TTK_F16) {
        return damaged(checkpoint, entry->name, "is of a type that is not plain numbers");
    }
    if (entry->n_dims < 1 || entry->n_dims > 2 || entry->dim[0] != shape[0] || cols != shape[1]) {
        return damaged(checkpoint, entry->name,
                       "has another shape than the configuration asks for");
    }
    source->scheme = TTI_SCHEME_PLAIN;
    source->format = (ttk_format){.code = entry->dtype->type};
    source->part[TTI_PART_CODE] = (tti_part){.word_bytes = (uint16_t)(entry->dtype->bits / 8),
                                             .bits = (uint16_t)entry->dtype->bits};
    return TT_OK;
}

tt_status tti_panels_resolve(const tti_panels *panels, const tti_checkpoint *checkpoint,
                             tt_role role, int64_t layer, int64_t expert, const int64_t shape[2],
                             tti_resolved *resolved_out)
{
    char name[TTI_PANELS_NAME_BYTES];
    tti_resolved resolved = {0};
    tti_source *source = &resolved.source;
    tti_panels_name(role, layer, expert, name);
    tti_entry *entry = tti_table_find(&checkpoint->table, name);
    if (!entry) {
        return damaged(checkpoint, name, "is missing");
    }
    entry->claimed = true;
    const json_t *facts = json_object_get(panels->tensors, name);
    TT_TRY(facts ? set_panels(panels, checkpoint, entry, shape, facts, source)
                 : set_plain(checkpoint, entry, shape, source));
    tti_part *part = &source->part[TTI_PART_CODE];
    part->file_id = entry->file_id;
    part->offset = entry->offset;
    part->bytes = entry->bytes;
    source->name = entry->name;
    source->file_rows = source->plane_rows = shape[0];
    source->file_cols = shape[1];
    source->segment[0] = (tti_segment){shape[0], 0, shape[0], shape[0]};
    source->n_segments = 1;
    resolved.tensor = (tt_tensor){
        .name = entry->name, .rows = shape[0], .cols = shape[1], .format = source->format};
    *resolved_out = resolved;
    return TT_OK;
}
