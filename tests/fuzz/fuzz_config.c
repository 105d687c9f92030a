/* fuzz_config.c - config.json and generation_config.json: what a family accepts must give shapes
 * for every role of every layer.
 *
 * Bound on memory: 8 MiB + 96 n. JSON takes up to 48 bytes of tree per byte of text, and keys are
 * looked at once or copied. Fixed: the table of inverse frequencies, of TTI_MAX_WIDTH / 2 floats
 * where a head is as wide as may be stated, with its numbers in double while it is made (6 MiB); a
 * second one takes a list of as many factors in the file. */
#include "fuzz.h"
#include "model_internal.h"
#include "tutti/log.h"
#include <stdlib.h>

enum { PART_CONFIG, PART_GENERATION, PARTS };
static const char *const names[PARTS] = {"config.json", "generation_config.json"};
enum { FIXED_BYTES = 8 << 20, FACTOR = 96, MAX_LAYERS = 64 };

static void look_at_layers(const tti_family *family, tti_hyper *hyper)
{
    tt_arch *arch = &hyper->arch;
    int64_t n = arch->L < MAX_LAYERS ? arch->L : MAX_LAYERS;
    arch->layer = calloc((size_t)arch->L, sizeof(*arch->layer));
    FUZZ_MUST(arch->layer);
    for (int64_t layer = 0; layer < n; layer++) {
        arch->layer[layer] = (tt_layer){.is_moe = arch->E > 0 && family->layer_is_moe(hyper, layer),
                                        .rope = true,
                                        .qk_norm = arch->qk_norm != TT_QK_NORM_NONE};
        if (family->set_layer) {
            family->set_layer(hyper, layer, &arch->layer[layer]);
        }
    }
    for (int role = 0; role < TT_ROLE_COUNT; role++) {
        for (int64_t layer = 0; layer < n; layer++) {
            int64_t rows, cols;
            bool vector;
            if (!tti_role_shape(arch, (tt_role)role, layer, &rows, &cols, &vector)) {
                continue;
            }
            FUZZ_MUST(rows > 0 && cols > 0 && rows <= INT64_MAX / cols / 8);
            tti_view view = {
                .file_rows = rows, .segment = {{rows, 0, rows, rows}}, .n_segments = 1};
            if (family->view) {
                family->view(arch, (tt_role)role, &view);
            }
            FUZZ_MUST(view.file_rows > 0 && view.n_segments > 0 && view.n_segments <= TTI_SEGMENTS);
        }
    }
    free(arch->layer);
}

static void read_config(void)
{
    const tti_family *family;
    tti_hyper hyper;
    if (tti_config_read(fuzz_folder(), names[PART_CONFIG], &family, &hyper) != TT_OK) {
        return;
    }
    tt_generation generation;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    if (tti_config_read_generation(fuzz_folder(), &hyper, &generation, &ids, &n_ids) == TT_OK) {
        free(ids);
    }
    look_at_layers(family, &hyper);
    free(hyper.arch.rope.inv_freq);
    free(hyper.arch.rope.long_inv_freq);
    json_decref(hyper.root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_part part[PARTS];
    fuzz_split(data, n, names, PARTS, part);
    fuzz_write(names[PART_CONFIG], &part[PART_CONFIG]);
    fuzz_write(names[PART_GENERATION], &part[PART_GENERATION]);
    tt_log_set_level(TT_LOG_ERROR);
    fuzz_memory_begin(FIXED_BYTES, FACTOR, n);
    read_config();
    fuzz_memory_end();
    return 0;
}
