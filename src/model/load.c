/* load.c - reads rows of a checkpoint tensor and packs them.
 *
 * The caller fetches a piece of the file, some MiB; then all threads of the compute stream take panels of it in turn, unpack their rows
 * into a few hundred KiB of their own, convert them if they must change, and pack them. So nothing but the packed form is ever whole in memory.
 * A row's result does not depend on the piece or the panel that it came with: any split of rows over ranks gives the same bits. */
#include "tutti/load.h"
#include <string.h>
#include "source.h"
#include "tutti/memory.h"

enum {
    PIECE_BYTES = 8 << 20, /* of the file per read; large enough for a parallel file system */
    LINE = 64
};

/* ---- formats ---- */

ttk_format tt_load_format(tt_weight_format weights, const tt_tensor *tensor)
{
    static const ttk_format f32 = {.code = TTK_F32}, bf16 = {.code = TTK_BF16};
    switch (weights) {
    case TT_WEIGHTS_F32:
        return f32;
    case TT_WEIGHTS_BF16:
        return bf16;
    case TT_WEIGHTS_AUTO:
        break;
    }
    return tensor->format.code == TTK_F16 ? f32 : tensor->format;
}

ttk_format tt_load_format_transposed(tt_weight_format weights, const tt_tensor *tensor, int64_t row, int64_t n_rows)
{
    const ttk_format *f = &tensor->format;
    ttk_format format = tt_load_format(weights, tensor);
    if (ttk_format_is_plain(&format) || weights != TT_WEIGHTS_AUTO) {
        return format;
    }
    const tti_source *s = tensor->source;
    int64_t left = 0, block = s->scheme == TTI_SCHEME_QUANT ? s->scale_rows : 1, at = tti_source_row(s, row, &left) % block;
    bool one = at + n_rows <= block, borders = at == 0 && block % 2 == 0;
    if (f->shift != TTK_SHIFT_NONE || f->super > 0 || left < n_rows || !(one || borders)) {
        return (ttk_format){.code = TTK_F32};
    }
    format.group = (int32_t)(one ? n_rows + n_rows % 2 : block);
    return format;
}

/* ---- packing ---- */

/* One piece on its way. */
typedef struct piece {
    tti_raw raw;
    tt_linear *linear;
    int64_t first;         /* its first row is this row of the matrix; a whole number of panels */
    unsigned char *memory; /* memory[n_threads * memory_bytes]: a panel's rows, unpacked and converted */
    size_t memory_bytes, unpacked_bytes, f32_bytes;
} piece;

static size_t round_to_line(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static bool same_format(const ttk_format *a, const ttk_format *b)
{
    return a->code == b->code && a->scale == b->scale && a->shift == b->shift && a->group == b->group && a->super == b->super;
}

/* Packs n rows (one panel at most) of format `from` at `panel`. */
static void pack_rows(const ttk_format *to, void *panel, const ttk_format *from, const ttk_unpacked *rows, int64_t n, int64_t K, float *f32)
{
    if (!ttk_format_is_plain(to) && same_format(to, from)) {
        ttk.pack_quant(panel, to, rows, n, K, 0, 1);
        return;
    }
    const void *src = rows->code;
    ttk_dtype type = from->code;
    if (!ttk_format_is_plain(from)) {
        ttk_unpacked_to_f32(from, rows, n, K, f32);
        src = f32;
        type = TTK_F32;
    }
    ttk.pack(panel, to->code, src, type, K, 1, n, K, 0, 1);
}

static void pack_piece(void *arg, int thread_id, int n_threads)
{
    const piece *p = arg;
    const tt_tensor *tensor = p->raw.tensor;
    int64_t K = tensor->cols, begin, end, n_panels = (p->raw.n_rows + TTK_PANEL - 1) / TTK_PANEL;
    size_t panel_bytes = ttk_panel_bytes(&p->linear->format, K);
    unsigned char *memory = p->memory + (size_t)thread_id * p->memory_bytes;
    tt_split(n_panels, n_threads, thread_id, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i * TTK_PANEL, n = p->raw.n_rows - row < TTK_PANEL ? p->raw.n_rows - row : TTK_PANEL;
        ttk_unpacked rows;
        tti_raw_unpack(&p->raw, row, n, memory, &rows);
        pack_rows(&p->linear->format, (unsigned char *)p->linear->panels + (size_t)(p->first / TTK_PANEL + i) * panel_bytes, &tensor->format,
                  &rows, n, K, (float *)(memory + p->unpacked_bytes));
    }
}

static void run_all(const tt_load_params *params, tt_task_fn *fn, void *arg)
{
    if (params->compute) {
        tt_stream_run(params->compute, "pack", fn, arg);
    } else {
        fn(arg, 0, 1);
    }
}

static int n_threads_of(const tt_load_params *params)
{
    return params->compute ? tt_stream_n_threads(params->compute) : 1;
}

/* The kept buffer, at least so large. What was in it is lost. */
static tt_status need_buffer(tt_load_params *params, size_t bytes)
{
    if (bytes <= params->buffer_bytes) {
        return TT_OK;
    }
    tt_load_end(params);
    TT_TRY(tt_memory_alloc("a piece of a weight file", bytes, params->node, &params->buffer));
    params->buffer_bytes = bytes;
    return TT_OK;
}

void tt_load_end(tt_load_params *params)
{
    tt_memory_free(params->buffer, params->buffer_bytes);
    params->buffer = NULL;
    params->buffer_bytes = 0;
}

static tt_status fetch(tt_load_params *params, const tti_raw *raw)
{
    TT_TRY(tti_raw_fetch(params->model, raw));
    params->read_bytes += tt_tensor_file_bytes(raw->tensor, raw->n_rows);
    if (params->progress) {
        params->progress(params->progress_arg, params->read_bytes);
    }
    return TT_OK;
}

static tt_status check_rows(const tt_tensor *tensor, int64_t row, int64_t n_rows)
{
    TT_CHECK(tensor->name && row >= 0 && n_rows >= 0 && row <= tensor->rows && n_rows <= tensor->rows - row, TT_ERR_ARG,
             "%lld rows from row %lld of tensor '%s' are outside its %lld rows", (long long)n_rows, (long long)row,
             tensor->name ? tensor->name : "", (long long)tensor->rows);
    return TT_OK;
}

/* Fills the matrix from pieces of `step` rows. */
static tt_status load_pieces(tt_load_params *params, const tt_tensor *tensor, int64_t row, tt_linear *linear)
{
    int64_t step = tti_raw_rows(tensor, PIECE_BYTES, TTK_PANEL, linear->N);
    piece p = {.linear = linear};
    p.unpacked_bytes = round_to_line(ttk_unpacked_bytes(&tensor->format, TTK_PANEL, tensor->cols));
    p.f32_bytes = ttk_format_is_plain(&tensor->format) ? 0 : round_to_line(TTK_PANEL * (size_t)tensor->cols * sizeof(float));
    p.memory_bytes = p.unpacked_bytes + p.f32_bytes;
    size_t all_memory = p.memory_bytes * (size_t)n_threads_of(params);
    for (int64_t done = 0; done < linear->N; done += step) {
        int64_t n = linear->N - done < step ? linear->N - done : step;
        TT_TRY(need_buffer(params, all_memory + tti_raw_bytes(tensor, row + done, n)));
        p.memory = params->buffer;
        p.first = done;
        p.raw = (tti_raw){.tensor = tensor, .row = row + done, .n_rows = n, .bytes = p.memory + all_memory};
        TT_TRY(fetch(params, &p.raw));
        run_all(params, pack_piece, &p);
    }
    return TT_OK;
}

tt_status tt_load_linear(tt_load_params *params, const tt_tensor *tensor, int64_t row, int64_t n_rows, tt_linear *linear)
{
    TT_TRY(check_rows(tensor, row, n_rows));
    ttk_format format = tt_load_format(params->weights, tensor);
    TT_TRY(tt_linear_init(linear, tensor->name, &format, n_rows, tensor->cols, params->node));
    tt_status st = load_pieces(params, tensor, row, linear);
    if (st != TT_OK) {
        tt_linear_fini(linear);
        return tt_status_trace(st, __FILE__, __LINE__, __func__);
    }
    params->packed_bytes += linear->bytes;
    return TT_OK;
}

/* ---- transposed ---- */

/* Rows of a tensor become columns: to[n][k] = from[k][n], codes and scales; the group of `format` is of rows. */
static void turn(const ttk_format *from, const ttk_unpacked *rows, int64_t n_rows, int64_t cols, const ttk_format *to, const ttk_unpacked *out)
{
    int64_t from_groups = (cols + from->group - 1) / from->group, to_groups = (n_rows + to->group - 1) / to->group;
    size_t scale = ttk_dtype_bytes(from->scale);
    for (int64_t n = 0; n < cols; n++) {
        for (int64_t k = 0; k < n_rows; k++) {
            ((unsigned char *)out->code)[n * n_rows + k] = ((const unsigned char *)rows->code)[k * cols + n];
        }
        for (int64_t g = 0; g < to_groups; g++) {
            memcpy((unsigned char *)out->scale + (size_t)(n * to_groups + g) * scale,
                   (const unsigned char *)rows->scale + (size_t)(g * to->group * from_groups + n / from->group) * scale, scale);
        }
    }
}

/* Small matrices only (a head's part of kv_b): whole, by the caller. */
static tt_status load_turned(tt_load_params *params, const tt_tensor *tensor, int64_t row, tt_linear *linear)
{
    const ttk_format *from = &tensor->format, *to = &linear->format;
    int64_t n_rows = linear->K, cols = tensor->cols;
    size_t unpacked = round_to_line(ttk_unpacked_bytes(from, n_rows, cols));
    size_t turned = round_to_line(ttk_format_is_plain(to) ? (size_t)(n_rows * cols) * sizeof(float) : ttk_unpacked_bytes(to, cols, n_rows));
    TT_TRY(need_buffer(params, unpacked + turned + tti_raw_bytes(tensor, row, n_rows)));
    unsigned char *memory = params->buffer;
    tti_raw raw = {.tensor = tensor, .row = row, .n_rows = n_rows, .bytes = memory + unpacked + turned};
    ttk_unpacked rows;
    TT_TRY(fetch(params, &raw));
    tti_raw_unpack(&raw, 0, n_rows, memory, &rows);
    int64_t n_panels = tt_linear_n_panels(linear);
    if (!ttk_format_is_plain(to)) {
        ttk_unpacked out = ttk_unpacked_in(to, cols, n_rows, memory + unpacked);
        turn(from, &rows, n_rows, cols, to, &out);
        ttk.pack_quant(linear->panels, to, &out, cols, n_rows, 0, n_panels);
        return TT_OK;
    }
    const void *src = rows.code;
    ttk_dtype type = from->code;
    if (!ttk_format_is_plain(from)) {
        ttk_unpacked_to_f32(from, &rows, n_rows, cols, (float *)(memory + unpacked));
        src = memory + unpacked;
        type = TTK_F32;
    }
    ttk.pack(linear->panels, to->code, src, type, 1, cols, cols, n_rows, 0, n_panels);
    return TT_OK;
}

tt_status tt_load_linear_transposed(tt_load_params *params, const tt_tensor *tensor, int64_t row, int64_t n_rows, tt_linear *linear)
{
    TT_TRY(check_rows(tensor, row, n_rows));
    ttk_format format = tt_load_format_transposed(params->weights, tensor, row, n_rows);
    TT_TRY(tt_linear_init(linear, tensor->name, &format, tensor->cols, n_rows, params->node));
    tt_status st = load_turned(params, tensor, row, linear);
    if (st != TT_OK) {
        tt_linear_fini(linear);
        return tt_status_trace(st, __FILE__, __LINE__, __func__);
    }
    params->packed_bytes += linear->bytes;
    return TT_OK;
}

/* ---- vectors ---- */

tt_status tt_load_vector(tt_load_params *params, const tt_tensor *tensor, int64_t begin, int64_t n,
                         float **vector_out)
{
    *vector_out = NULL;
    if (!tensor->name || n == 0) {
        return TT_OK;
    }
    void *vector = NULL, *whole = NULL;
    int64_t n_all = tensor->rows * tensor->cols;
    size_t bytes = (size_t)n * sizeof(float), whole_bytes = (size_t)n_all * sizeof(float);
    TT_CHECK(begin >= 0 && begin + n <= n_all, TT_ERR_ARG, "%s: elements [%lld, %lld) of %lld",
             tensor->name, (long long)begin, (long long)(begin + n), (long long)n_all);
    TT_TRY(tt_memory_alloc(tensor->name, bytes, params->node, &vector));
    tt_status st = tt_memory_alloc("a vector of a weight file", whole_bytes, params->node, &whole);
    if (st == TT_OK) {
        st = tt_model_read_f32(params->model, tensor, 0, tensor->rows, whole);
    }
    if (st == TT_OK) {
        memcpy(vector, (float *)whole + begin, bytes);
        params->read_bytes += tt_tensor_file_bytes(tensor, tensor->rows);
    }
    tt_memory_free(whole, whole_bytes);
    if (st != TT_OK) {
        tt_memory_free(vector, bytes);
        return tt_status_trace(st, __FILE__, __LINE__, __func__);
    }
    params->packed_bytes += bytes;
    *vector_out = vector;
    return TT_OK;
}
