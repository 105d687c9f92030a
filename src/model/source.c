/* source.c - reads the rows of a matrix from wherever its numbers lie: one range of a file, or several that
 * belong together (codes, scales, zeros), in the order of the matrix or in another that a view describes. */
#include "model_internal.h"
#include <stdlib.h>
#include <string.h>

tt_status tti_source_make(const tti_checkpoint *checkpoint, const char *name, tti_source *source_out, int64_t dims[TTI_MAX_DIMS],
                          int *n_dims_out)
{
    const tti_entry *entry = tti_table_find(&checkpoint->table, name);
    *n_dims_out = 0;
    if (!entry) {
        return TT_OK;
    }
    const char *path = tti_show_path(checkpoint->file[entry->file_id].path);
    ttk_dtype code = entry->dtype->type;
    TT_CHECK(entry->dtype->is_known && code <= TTK_F16, TT_ERR_UNSUPPORTED,
             "%s: tensor '%s' has the type %s, which is not supported (F32, BF16 and F16 are)", path,
             tti_show(name).text, entry->dtype->name);
    *source_out = (tti_source){.scheme = TTI_SCHEME_PLAIN,
                               .format = {.code = code},
                               .name = entry->name,
                               .part = {{entry->file_id, entry->offset, entry->bytes}}};
    *n_dims_out = entry->n_dims;
    for (int i = 0; i < entry->n_dims && i < TTI_MAX_DIMS; i++) {
        dims[i] = entry->dim[i];
    }
    return TT_OK;
}

/* Row r of the matrix is row first + (r / run) * stride + r % run of the plane. */
static int64_t plane_row(const tti_source *source, int64_t r)
{
    return source->first + r / source->run * source->stride + r % source->run;
}

static tt_status read_part(const tt_model *model, const tti_source *source, int part, uint64_t at, size_t n, void *dst)
{
    const tti_part *p = &source->part[part];
    TT_ASSERT(at + n <= p->bytes);
    tt_status st = tti_file_read(&model->file[p->file_id], p->offset + at, dst, n);
    /* The file knows what went wrong, only we know whose bytes they were. */
    return st == TT_OK ? TT_OK
                       : TT_FAIL(st, "%s (tensor '%s')", tt_status_message(), tti_show(source->name).text);
}

/* Elements of a matrix that lies as [file_rows][file_cols]: runs of rows that follow each other are one read. */
static tt_status read_straight(const tt_model *model, const tti_source *source, int64_t row, int64_t n_rows, void *dst)
{
    size_t row_bytes = (size_t)source->file_cols * ttk_dtype_bytes(source->format.code);
    uint64_t plane = (uint64_t)source->plane * (uint64_t)source->file_rows * row_bytes;
    for (int64_t done = 0; done < n_rows;) {
        int64_t r = row + done, left = source->run - r % source->run;
        int64_t n = source->stride == source->run || left > n_rows - done ? n_rows - done : left;
        TT_TRY(read_part(model, source, 0, plane + (uint64_t)plane_row(source, r) * row_bytes, (size_t)n * row_bytes,
                         (unsigned char *)dst + (size_t)done * row_bytes));
        done += n;
    }
    return TT_OK;
}

/* Elements of a matrix whose file holds [inputs][outputs]: of each file row the span that covers the wanted outputs. */
static tt_status read_transposed(const tt_model *model, const tti_source *source, int64_t row, int64_t n_rows, void *dst)
{
    size_t element = ttk_dtype_bytes(source->format.code);
    int64_t K = source->file_rows, begin = plane_row(source, row), end = plane_row(source, row + n_rows - 1) + 1;
    uint64_t plane = (uint64_t)source->plane * (uint64_t)source->file_rows * (uint64_t)source->file_cols * element;
    unsigned char *line = malloc((size_t)(end - begin) * element);
    TT_CHECK(line, TT_ERR_NOMEM, "no memory to read tensor '%s'", tti_show(source->name).text);
    tt_status st = TT_OK;
    for (int64_t k = 0; st == TT_OK && k < K; k++) {
        uint64_t at = plane + (uint64_t)(k * source->file_cols + begin) * element;
        st = read_part(model, source, 0, at, (size_t)(end - begin) * element, line);
        for (int64_t r = 0; st == TT_OK && r < n_rows; r++) {
            memcpy((unsigned char *)dst + (size_t)(r * K + k) * element,
                   line + (size_t)(plane_row(source, row + r) - begin) * element, element);
        }
    }
    free(line);
    return st;
}

uint64_t tt_tensor_file_bytes(const tt_tensor *tensor, int64_t n_rows)
{
    const tti_source *source = tensor->source;
    return (uint64_t)n_rows * (uint64_t)tensor->cols * ttk_dtype_bytes(source->format.code);
}

const char *tt_model_tensor_file(const tt_model *model, const tt_tensor *tensor)
{
    return strrchr(model->file[tensor->source->part[0].file_id].path, '/') + 1; /* a path is DIR/NAME */
}

uint64_t tt_tensor_hash(const tt_tensor *tensor)
{
    const tti_source *s = tensor->source;
    const uint64_t values[] = {(uint64_t)tensor->rows, (uint64_t)tensor->cols, (uint64_t)s->scheme, (uint64_t)s->format.code,
                               (uint64_t)s->format.scale, (uint64_t)s->format.group, (uint64_t)s->part[0].file_id, s->part[0].offset,
                               s->part[1].offset, (uint64_t)s->plane, (uint64_t)s->first, (uint64_t)s->stride,
                               (uint64_t)s->transposed, (uint64_t)s->map};
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a, a value at a time */
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        hash = (hash ^ values[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static tt_status check_range(const tt_tensor *tensor, int64_t row, int64_t n_rows)
{
    TT_CHECK(tensor->name && tensor->source, TT_ERR_ARG, "a tensor that is not in the checkpoint cannot be read");
    TT_CHECK(row >= 0 && n_rows >= 0 && row <= tensor->rows && n_rows <= tensor->rows - row, TT_ERR_ARG,
             "%lld rows from row %lld of tensor '%s' are outside its %lld rows", (long long)n_rows, (long long)row,
             tti_show(tensor->name).text, (long long)tensor->rows);
    return TT_OK;
}

tt_status tt_model_read_rows(const tt_model *model, const tt_tensor *tensor, int64_t row, int64_t n_rows, void *buffer,
                             ttk_unpacked *rows_out)
{
    TT_TRY(check_range(tensor, row, n_rows));
    const tti_source *source = tensor->source;
    if (n_rows > 0 && source->transposed) {
        TT_TRY(read_transposed(model, source, row, n_rows, buffer));
    } else {
        TT_TRY(read_straight(model, source, row, n_rows, buffer));
    }
    *rows_out = ttk_unpacked_in(&tensor->format, n_rows, tensor->cols, buffer);
    return TT_OK;
}

tt_status tt_model_read_f32(const tt_model *model, const tt_tensor *tensor, int64_t row, int64_t n_rows, float *dst)
{
    TT_TRY(check_range(tensor, row, n_rows));
    ttk_unpacked rows;
    size_t bytes = ttk_unpacked_bytes(&tensor->format, n_rows, tensor->cols);
    void *buffer = malloc(bytes + 1);
    TT_CHECK(buffer, TT_ERR_NOMEM, "no memory to read tensor '%s'", tti_show(tensor->name).text);
    tt_status st = tt_model_read_rows(model, tensor, row, n_rows, buffer, &rows);
    if (st == TT_OK) {
        ttk_unpacked_to_f32(&tensor->format, &rows, n_rows, tensor->cols, dst);
        tti_map_apply(tensor->source->map, dst, n_rows * tensor->cols);
    }
    free(buffer);
    return st;
}

void tti_map_apply(tti_map map, float *x, int64_t n)
{
    for (int64_t i = 0; map != TTI_MAP_NONE && i < n; i++) {
        x[i] = map == TTI_MAP_PLUS_ONE ? 1.0f + x[i] : map == TTI_MAP_EXP ? ttk_exp(x[i]) : -x[i];
    }
}
