/* fuzz_model.c - everything that can be asked of an open checkpoint: each role of each layer and
 * expert, its rows as floats and as they are stored. What an open accepted must be readable without
 * a fault of memory or arithmetic, and be of the size it says. */
#include "fuzz.h"
#include "tutti/model.h"
#include "tutti/status.h"
#include <stdlib.h>

enum {
    READ_BYTES = 64 << 10, /* of rows at once; one row may be more */
    MAX_READS = 64,        /* of one tensor: the first rows and the last */
    MAX_LAYERS = 8,
    MAX_EXPERTS = 16
};

static void read_rows(const tt_model *model, const tt_tensor *tensor, int64_t row, int64_t n)
{
    float *values = malloc((size_t)n * (size_t)tensor->cols * sizeof(float));
    size_t n_bytes = ttk_unpacked_bytes(&tensor->format, n, tensor->cols);
    void *bytes = malloc(n_bytes > 0 ? n_bytes : 1);
    FUZZ_MUST(values && bytes);
    ttk_unpacked rows;
    (void)tt_tensor_file_bytes(tensor, n);
    (void)tt_model_read_rows(model, tensor, row, n, bytes, &rows);
    (void)tt_model_read_f32(model, tensor, row, n, values);
    free(bytes);
    free(values);
}

static void read_tensor(const tt_model *model, tt_tensor tensor)
{
    if (!tensor.name) {
        return;
    }
    FUZZ_MUST(tensor.rows > 0 && tensor.cols > 0);
    int64_t most = READ_BYTES / 4 / tensor.cols;
    int64_t chunk = most > 0 ? most : 1;
    (void)tt_format_name(&tensor.format);
    int reads = 0;
    for (int64_t row = 0; row < tensor.rows && reads < MAX_READS; row += chunk, reads++) {
        read_rows(model, &tensor, row, chunk < tensor.rows - row ? chunk : tensor.rows - row);
    }
    read_rows(model, &tensor, tensor.rows - 1, 1);
}

void fuzz_open_model(const char *path)
{
    tt_model *model = NULL;
    if (tt_model_open(path, &model) != TT_OK) {
        FUZZ_MUST(!model && tt_status_message()[0]);
        return;
    }
    const tt_arch *arch = tt_model_arch(model);
    int64_t n_layers = arch->L + arch->n_mtp, n_experts = arch->E > 0 ? arch->E : 1;
    int64_t total, active;
    size_t n_ends;
    (void)tt_model_end_ids(model, &n_ends);
    (void)tt_model_generation(model);
    tt_model_count_parameters(model, &total, &active);
    FUZZ_MUST(total > 0 && active > 0);
    for (int role = 0; role < TT_ROLE_COUNT; role++) {
        for (int64_t layer = 0; layer < n_layers && layer < MAX_LAYERS; layer++) {
            for (int64_t e = 0; e < n_experts && e < MAX_EXPERTS; e++) {
                read_tensor(model, tt_model_tensor(model, (tt_role)role, layer, e));
                if (role < TT_ROLE_EXPERT_GATE || role > TT_ROLE_EXPERT_DOWN_BIAS) {
                    break;
                }
            }
        }
    }
    tt_model_close(&model);
}
