/* panels.h - the packed checkpoints that `tutti convert` writes: safetensors whose tensors are
 * named by role and hold packed panels (U8), or plain numbers. The entry "tutti" of __metadata__
 * says in JSON what each tensor is. Private to the model room. MPI: none. */
#ifndef TUTTI_SRC_MODEL_PANELS_H
#define TUTTI_SRC_MODEL_PANELS_H
#include "model_internal.h"

enum {
    TTI_PANELS_VERSION = 2, /* of the metadata */
    TTI_PANELS_NAME_BYTES = 96
};
static const char TTI_PANELS_KEY[] = "tutti";
static const char TTI_PANELS_ENDIAN[] = "little";

/* What the metadata say of one tensor. */
typedef struct tti_panels_facts {
    ttk_format format;
    int64_t rows, cols;
    int64_t scale_rows, scale_first; /* as tti_source has them */
} tti_panels_facts;

/* "expert_gate.3.17": role, layer unless global, expert of expert roles. */
void tti_panels_name(tt_role role, int64_t layer, int64_t expert, char name[TTI_PANELS_NAME_BYTES]);
/* Numbers of these roles are kept plain: [rows][cols] of the dtype that they have. */
bool tti_panels_is_plain(tt_role role, const tt_tensor *tensor);
/* [code, scale, shift, group, super], and back. Owner of *json: the caller. */
json_t *tti_panels_format_json(const ttk_format *format);

/* The description of a packed checkpoint. */
typedef struct tti_panels {
    json_t *root, *formats, *tensors; /* root is owned */
    int64_t n_mtp;
    bool mla_split;
    bool interleaved; /* what the configuration does not say: rows of q and k were permuted
                       * (tt_rope.interleaved) */
} tti_panels;
/* Reads the metadata of a checkpoint. Errors: TT_ERR_FILE; TT_ERR_UNSUPPORTED for another version,
 * byte order or panel layout. */
tt_status tti_panels_read(const tti_checkpoint *checkpoint, tti_panels *panels_out);
void tti_panels_fini(tti_panels *panels);
/* The tensor of a role that has the shape [rows][cols]. Errors: TT_ERR_FILE naming file and
 * tensor. */
tt_status tti_panels_resolve(const tti_panels *panels, const tti_checkpoint *checkpoint,
                             tt_role role, int64_t layer, int64_t expert, const int64_t shape[2],
                             tti_resolved *resolved_out);

#endif
