/* load.c - reads rows of a checkpoint tensor and packs them. Reading goes in pieces of whole panels, so that beside the
 * packed form only one piece is held; packing is spread over the compute stream. */
#include "tutti/load.h"
#include "tutti/memory.h"
#include <string.h>

enum { PIECE_BYTES = 8 << 20 }; /* of the file per read; large enough for a parallel file system */

ttk_format tt_load_format(tt_weight_format weights, const ttk_format *stored)
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
    return stored->code == TTK_F16 ? f32 : *stored;
}

typedef struct pack_task {
    tt_linear *linear;
    const void *src; /* the piece's first row */
    ttk_dtype src_type;
    int64_t row_stride, col_stride;
    int64_t panel_begin, panel_end;
    int64_t n_end; /* outputs that exist in this piece */
} pack_task;

static void pack_part(void *arg, int thread_id, int n_threads)
{
    const pack_task *task = arg;
    int64_t begin, end;
    tt_split(task->panel_end - task->panel_begin, n_threads, thread_id, &begin, &end);
    size_t panel_bytes = ttk_panel_bytes(&task->linear->format, task->linear->K);
    /* The piece is packed as a matrix of its own: its panel 0 is panel_begin of the whole. */
    unsigned char *panels =
        (unsigned char *)task->linear->panels + (size_t)task->panel_begin * panel_bytes;
    ttk.pack(panels, task->linear->format.code, task->src, task->src_type, task->row_stride,
             task->col_stride, task->n_end - task->panel_begin * TTK_PANEL, task->linear->K, begin,
             end);
}

static void pack(tt_load_params *params, pack_task *task)
{
    if (params->compute) {
        tt_stream_run(params->compute, "pack", pack_part, task);
    } else {
        pack_part(task, 0, 1);
    }
}

static tt_status read_piece(tt_load_params *params, const tt_tensor *tensor, int64_t row,
                            int64_t n_rows, void *buffer, ttk_unpacked *rows_out)
{
    TT_TRY(tt_model_read_rows(params->model, tensor, row, n_rows, buffer, rows_out));
    params->read_bytes += tt_tensor_file_bytes(tensor, n_rows);
    if (params->progress) {
        params->progress(params->progress_arg, params->read_bytes);
    }
    return TT_OK;
}

tt_status tt_load_linear(tt_load_params *params, const tt_tensor *tensor, int64_t row,
                         int64_t n_rows, tt_linear *linear)
{
    ttk_format format = tt_load_format(params->weights, &tensor->format);
    TT_TRY(tt_linear_init(linear, tensor->name, &format, n_rows, tensor->cols, params->node));
    size_t row_bytes = ttk_unpacked_bytes(&tensor->format, 1, tensor->cols);
    int64_t piece_rows = (int64_t)((size_t)PIECE_BYTES / (row_bytes + 1)) / TTK_PANEL * TTK_PANEL;
    if (piece_rows < TTK_PANEL) {
        piece_rows = TTK_PANEL;
    }
    if (piece_rows > n_rows) {
        piece_rows = n_rows;
    }
    void *buffer = NULL;
    size_t buffer_bytes = ttk_unpacked_bytes(&tensor->format, piece_rows, tensor->cols);
    tt_status st = tt_memory_alloc("a piece of a weight file", buffer_bytes, params->node, &buffer);
    for (int64_t done = 0; st == TT_OK && done < n_rows; done += piece_rows) {
        int64_t n = n_rows - done < piece_rows ? n_rows - done : piece_rows;
        ttk_unpacked rows;
        st = read_piece(params, tensor, row + done, n, buffer, &rows);
        if (st == TT_OK) {
            pack_task task = {linear,       rows.code, tensor->format.code,
                              tensor->cols, 1,         done / TTK_PANEL,
                              (done + n + TTK_PANEL - 1) / TTK_PANEL, done + n};
            pack(params, &task);
        }
    }
    tt_memory_free(buffer, buffer_bytes);
    if (st != TT_OK) {
        tt_linear_fini(linear);
        return tt_status_trace(st, __FILE__, __LINE__, __func__);
    }
    params->packed_bytes += linear->bytes;
    return TT_OK;
}

tt_status tt_load_linear_transposed(tt_load_params *params, const tt_tensor *tensor, int64_t row,
                                    int64_t n_rows, tt_linear *linear)
{
    ttk_format format = tt_load_format(params->weights, &tensor->format);
    TT_TRY(tt_linear_init(linear, tensor->name, &format, tensor->cols, n_rows, params->node));
    /* Small matrices only (a head's part of kv_b): read whole. */
    size_t bytes = ttk_unpacked_bytes(&tensor->format, n_rows, tensor->cols);
    void *buffer = NULL;
    ttk_unpacked rows;
    tt_status st = tt_memory_alloc("a piece of a weight file", bytes, params->node, &buffer);
    if (st == TT_OK) {
        st = read_piece(params, tensor, row, n_rows, buffer, &rows);
    }
    if (st == TT_OK) {
        pack_task task = {linear, rows.code, tensor->format.code, 1, tensor->cols,
                          0,      tt_linear_n_panels(linear), tensor->cols};
        pack(params, &task);
    }
    tt_memory_free(buffer, bytes);
    if (st != TT_OK) {
        tt_linear_fini(linear);
        return tt_status_trace(st, __FILE__, __LINE__, __func__);
    }
    params->packed_bytes += linear->bytes;
    return TT_OK;
}

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
