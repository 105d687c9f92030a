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

int64_t tti_source_row(const tti_source *source, int64_t r, int64_t *left_out)
{
    const tti_segment *segment = source->segment;
    while (r >= segment->rows && segment < source->segment + source->n_segments - 1) {
        r -= segment->rows;
        segment++;
    }
    if (left_out) {
        *left_out = segment->stride == segment->run ? segment->rows - r : segment->run - r % segment->run;
    }
    return segment->first + r / segment->run * segment->stride + r % segment->run;
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

enum { BLOCK_BYTES = 4 << 20 }; /* of a file that are read at once to pick rows or columns from */

/* How many of the rows [row, row + n_rows) of the matrix lie within `span` rows of the plane; *begin_out, *end_out: the rows of the
 * plane that hold them. At least one row. */
static int64_t rows_within(const tti_source *source, int64_t row, int64_t n_rows, int64_t span, int64_t *begin_out, int64_t *end_out)
{
    int64_t begin = 0, end = 0, taken = 0;
    while (taken < n_rows) {
        int64_t left, first = tti_source_row(source, row + taken, &left);
        left = left < n_rows - taken ? left : n_rows - taken;
        int64_t low = taken == 0 || first < begin ? first : begin;
        int64_t room = low + span - first; /* rows of this run that fit */
        if (taken > 0 && (end - low > span || room < 1)) {
            break;
        }
        left = taken > 0 && left > room ? room : left;
        begin = low;
        end = first + left > end ? first + left : end;
        taken += left;
    }
    *begin_out = begin;
    *end_out = end;
    return taken;
}

/* Elements of a matrix that lies as [file_rows][file_cols]. Rows that follow each other are one read, where they are few, many
 * runs are. */
static tt_status read_straight(const tt_model *model, const tti_source *source, int64_t row, int64_t n_rows, unsigned char *dst)
{
    size_t row_bytes = (size_t)source->file_cols * ttk_dtype_bytes(source->format.code);
    uint64_t plane = (uint64_t)source->plane * (uint64_t)source->file_rows * row_bytes;
    unsigned char *block = NULL;
    tt_status st = TT_OK;
    for (int64_t done = 0; st == TT_OK && done < n_rows;) {
        int64_t left, begin, end, first = tti_source_row(source, row + done, &left);
        int64_t n = left < n_rows - done ? left : n_rows - done;
        if (n == n_rows - done || (size_t)n * row_bytes >= BLOCK_BYTES / 4) {
            st = read_part(model, source, 0, plane + (uint64_t)first * row_bytes, (size_t)n * row_bytes,
                           dst + (size_t)done * row_bytes);
            done += n;
            continue;
        }
        n = rows_within(source, row + done, n_rows - done, (int64_t)(BLOCK_BYTES / row_bytes), &begin, &end);
        if (!block && !(block = malloc(BLOCK_BYTES))) {
            return TT_FAIL(TT_ERR_NOMEM, "no memory to read tensor '%s'", tti_show(source->name).text);
        }
        st = read_part(model, source, 0, plane + (uint64_t)begin * row_bytes, (size_t)(end - begin) * row_bytes, block);
        for (int64_t r = 0; st == TT_OK && r < n; r++) {
            memcpy(dst + (size_t)(done + r) * row_bytes,
                   block + (size_t)(tti_source_row(source, row + done + r, NULL) - begin) * row_bytes, row_bytes);
        }
        done += n;
    }
    free(block);
    return st;
}

enum { TILE_ROWS = 32 }; /* outputs turned at once: a cache line or two of each file row, and few enough streams of writes */

/* dst[r][k] = block[k][column[r]] for k < n_k: lines of the block are `line` elements apart, rows of dst K. */
static void turn(const unsigned char *block, size_t element, size_t line, int64_t n_k, const int64_t *column, int64_t n_rows,
                 unsigned char *dst, size_t K)
{
    for (int64_t tile = 0; tile < n_rows; tile += TILE_ROWS) {
        int64_t end = tile + TILE_ROWS < n_rows ? tile + TILE_ROWS : n_rows;
        for (size_t k = 0; k < (size_t)n_k; k++) {
            const unsigned char *from = block + k * line * element;
            for (int64_t r = tile; r < end; r++) {
                unsigned char *to = dst + ((size_t)r * K + k) * element;
                if (element == sizeof(uint16_t)) {
                    memcpy(to, from + (size_t)column[r] * sizeof(uint16_t), sizeof(uint16_t));
                } else {
                    memcpy(to, from + (size_t)column[r] * element, element);
                }
            }
        }
    }
}

/* Elements of a matrix whose file holds [inputs][outputs]: of each file row the span that covers the wanted outputs, several file
 * rows at once where the span is not a small part of them. */
static tt_status read_transposed(const tt_model *model, const tti_source *source, int64_t row, int64_t n_rows, unsigned char *dst)
{
    size_t element = ttk_dtype_bytes(source->format.code), cols = (size_t)source->file_cols;
    int64_t K = source->file_rows, begin, end;
    (void)rows_within(source, row, n_rows, source->file_cols, &begin, &end);
    size_t span = (size_t)(end - begin), line = span * 4 >= cols ? cols : span;
    int64_t lines = line == cols && BLOCK_BYTES / (cols * element) > 1 ? (int64_t)(BLOCK_BYTES / (cols * element)) : 1;
    uint64_t plane = (uint64_t)source->plane * (uint64_t)K * cols * element;
    unsigned char *block = malloc((size_t)lines * line * element);
    int64_t *column = malloc((size_t)n_rows * sizeof(*column));
    tt_status st = block && column ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory to read tensor '%s'", tti_show(source->name).text);
    for (int64_t r = 0; st == TT_OK && r < n_rows; r++) {
        column[r] = tti_source_row(source, row + r, NULL) - begin;
    }
    for (int64_t k = 0; st == TT_OK && k < K; k += lines) {
        int64_t n = lines < K - k ? lines : K - k;
        st = read_part(model, source, 0, plane + ((uint64_t)k * cols + (uint64_t)begin) * element,
                       ((size_t)(n - 1) * cols + span) * element, block);
        if (st == TT_OK) {
            turn(block, element, cols, n, column, n_rows, dst + (size_t)k * element, (size_t)K);
        }
    }
    free(block);
    free(column);
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
                               s->part[1].offset, (uint64_t)s->plane, (uint64_t)s->file_rows, (uint64_t)s->file_cols,
                               (uint64_t)s->transposed, (uint64_t)s->map};
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a, a value at a time */
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        hash = (hash ^ values[i]) * UINT64_C(0x100000001b3);
    }
    for (int i = 0; i < s->n_segments; i++) {
        const tti_segment *g = &s->segment[i];
        const uint64_t part[] = {(uint64_t)g->rows, (uint64_t)g->first, (uint64_t)g->run, (uint64_t)g->stride};
        for (size_t k = 0; k < sizeof(part) / sizeof(part[0]); k++) {
            hash = (hash ^ part[k]) * UINT64_C(0x100000001b3);
        }
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
