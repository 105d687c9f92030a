/* shapes.c - the shapes that have a name, and how a command line changes one. */
#include "make_model.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const mm_shape shapes[] = {
    {.name = "tiny", .note = "as models/tiny-moe, without its MTP layer; 23 MB", .is_mla = 1, .L = 6, .n_dense = 1, .H = 256, .V = 4096,
     .context = 1024, .E = 32, .K = 4, .F = 64, .n_shared = 1, .F_dense = 768, .n_groups = 4, .n_groups_kept = 2, .Nq = 4, .q_rank = 96,
     .kv_rank = 64, .nope_dim = 32, .rope_dim = 16, .v_dim = 32},
    {.name = "small-mla", .note = "DeepSeek-V3's architecture at width 1024; 1.6 GB", .is_mla = 1, .L = 8, .n_dense = 1, .H = 1024,
     .V = 32768, .context = 40960, .E = 64, .K = 8, .F = 512, .n_shared = 1, .F_dense = 4096, .n_groups = 1, .n_groups_kept = 1, .Nq = 16,
     .q_rank = 512, .kv_rank = 256, .nope_dim = 64, .rope_dim = 32, .v_dim = 64},
    {.name = "a", .note = "0.8 B parameters, 64 experts of 512; 1.7 GB", .L = 8, .H = 1024, .V = 4096, .context = 40960, .E = 64, .K = 8,
     .F = 512, .F_dense = 2048, .Nq = 16, .Nkv = 4, .D = 64},
    {.name = "b", .note = "widths of OLMoE-1B-7B in Qwen3-MoE's architecture; 13.8 GB", .L = 16, .H = 2048, .V = 50304, .context = 40960,
     .E = 64, .K = 8, .F = 1024, .F_dense = 4096, .Nq = 16, .Nkv = 16, .D = 128},
    {.name = "c", .note = "widths of Qwen3-30B-A3B, 12 of its 48 layers; 16.2 GB", .L = 12, .H = 2048, .V = 151936, .context = 40960, .E = 128,
     .K = 8, .F = 768, .F_dense = 6144, .Nq = 32, .Nkv = 4, .D = 128},
    {.name = "d", .note = "widths of DeepSeek-V3, 64 of 256 experts, 1 dense + 3 MoE layers and the MTP layer; 31 GB", .is_mla = 1, .L = 4,
     .n_dense = 1, .H = 7168, .V = 129280, .context = 40960, .E = 64, .K = 8, .F = 2048, .n_shared = 1, .F_dense = 18432, .n_groups = 8,
     .n_groups_kept = 4, .Nq = 128, .q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .v_dim = 128, .n_mtp = 1},
    {.name = "v3-layer", .note = "one MoE layer of DeepSeek-V3, a small vocabulary; 11.8 GB in fp8", .is_mla = 1, .L = 1, .H = 7168,
     .V = 4096, .context = 40960, .E = 256, .K = 8, .F = 2048, .n_shared = 1, .F_dense = 18432, .n_groups = 8, .n_groups_kept = 4, .Nq = 128,
     .q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .v_dim = 128},
};
/* clang-format on */
enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static const struct {
    const char *name;
    size_t offset;
    int64_t min, max;
} fields[] = {
    {"layers", offsetof(mm_shape, L), 1, 1000},
    {"dense", offsetof(mm_shape, n_dense), 0, 1000},
    {"hidden", offsetof(mm_shape, H), 2, 1 << 16},
    {"vocab", offsetof(mm_shape, V), MM_N_TOKENS, 1 << 24},
    {"context", offsetof(mm_shape, context), 16, 1 << 24},
    {"experts", offsetof(mm_shape, E), 1, 1 << 14},
    {"chosen", offsetof(mm_shape, K), 1, 1 << 10},
    {"width", offsetof(mm_shape, F), 2, 1 << 16},
    {"shared", offsetof(mm_shape, n_shared), 0, 64},
    {"dense-width", offsetof(mm_shape, F_dense), 2, 1 << 18},
    {"groups", offsetof(mm_shape, n_groups), 1, 1 << 10},
    {"groups-kept", offsetof(mm_shape, n_groups_kept), 1, 1 << 10},
    {"heads", offsetof(mm_shape, Nq), 1, 1 << 12},
    {"kv-heads", offsetof(mm_shape, Nkv), 1, 1 << 12},
    {"head-width", offsetof(mm_shape, D), 2, 1 << 12},
    {"q-rank", offsetof(mm_shape, q_rank), 1, 1 << 14},
    {"kv-rank", offsetof(mm_shape, kv_rank), 1, 1 << 14},
    {"nope", offsetof(mm_shape, nope_dim), 1, 1 << 12},
    {"rope", offsetof(mm_shape, rope_dim), 2, 1 << 12},
    {"v-width", offsetof(mm_shape, v_dim), 1, 1 << 12},
    {"mtp", offsetof(mm_shape, n_mtp), 0, 1},
};
enum { N_FIELDS = sizeof(fields) / sizeof(fields[0]) };

const mm_shape *mm_shape_find(const char *name)
{
    for (int i = 0; i < N_SHAPES; i++) {
        if (strcmp(shapes[i].name, name) == 0) {
            return &shapes[i];
        }
    }
    return NULL;
}

const char *mm_shape_set(mm_shape *shape, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals) {
        return "is not FIELD=NUMBER";
    }
    for (int i = 0; i < N_FIELDS; i++) {
        if (strlen(fields[i].name) != (size_t)(equals - text) ||
            strncmp(fields[i].name, text, (size_t)(equals - text)) != 0) {
            continue;
        }
        char *end;
        errno = 0;
        long long value = strtoll(equals + 1, &end, 10);
        if (errno || end == equals + 1 || *end || value < fields[i].min || value > fields[i].max) {
            return "has a number out of range";
        }
        *(int64_t *)((char *)shape + fields[i].offset) = value;
        return NULL;
    }
    return "names no field of a shape";
}

const char *mm_shape_fault(const mm_shape *s)
{
    if (s->n_dense > s->L) {
        return "more dense layers than layers";
    }
    if (s->K > s->E) {
        return "more experts chosen than there are";
    }
    if (s->is_mla && (s->n_groups_kept > s->n_groups || s->E % s->n_groups != 0 ||
                      s->K > s->E / s->n_groups * s->n_groups_kept)) {
        return "groups do not fit the experts";
    }
    if (!s->is_mla && (s->n_shared > 0 || s->n_mtp > 0)) {
        return "this architecture has no shared experts and no MTP layer";
    }
    if (!s->is_mla && s->Nq % s->Nkv != 0) {
        return "heads are not a multiple of kv-heads";
    }
    if ((s->is_mla ? s->rope_dim : s->D) % 2 != 0) {
        return "an odd rotary width";
    }
    return NULL;
}

void mm_shapes_print(FILE *out)
{
    fputs("shapes:\n", out);
    for (int i = 0; i < N_SHAPES; i++) {
        fprintf(out, "  %-10s %s\n", shapes[i].name, shapes[i].note);
    }
    fputs("fields:", out);
    for (int i = 0; i < N_FIELDS; i++) {
        fprintf(out, "%s%s", i % 11 == 0 ? "\n  " : " ", fields[i].name);
    }
    fputc('\n', out);
}
