/* shared.c - the shared expert in pieces: what there is to do while rows and results fly. The first
 * half of the pieces are panels of gate and up, the second half panels of down; the first also
 * finds the weight of its output, sigmoid(shared router . x), where the model has one. */
#include "moe_internal.h"
#include "tutti/trace.h"

/* The inputs of a piece: rounded with the first piece of each half. */
static tt_rows piece_rows(tt_moe *moe, tti_moe_flight *flight, bool is_down)
{
    const tt_act act = moe->layout->act;
    void *buffer = is_down ? flight->shared_inner_rounded : flight->shared_in_rounded;
    const float *x = is_down ? flight->shared_inner : flight->x;
    const int64_t K = is_down ? moe->layer[flight->layer].shared.F : moe->H;
    if (flight->shared_done % TTI_SHARED_PIECES == 0) {
        return tt_rows_round(act, moe->compute, buffer, x, K, flight->T, K);
    }
    return tt_rows_in(act, buffer, x, K, K);
}

/* A chain over k like all products; the one output column is the weight. */
static uint64_t find_weights(tt_moe *moe, tti_moe_flight *flight)
{
    const tt_linear *router = &moe->layer[flight->layer].shared_router;
    if (router->N == 0) {
        return 0;
    }
    const tt_rows x = tt_rows_plain(flight->x, moe->H);
    tt_linear_run(router, moe->compute, "shared router", flight->shared_weight, 1, &x, flight->T);
    ttk.sigmoid_f32(flight->shared_weight, flight->T);
    return tt_linear_bytes(router);
}

bool tti_moe_has_shared_piece(const tt_moe *moe, const tti_moe_flight *flight)
{
    return moe->layer[flight->layer].shared.F > 0 && flight->T > 0 &&
           flight->shared_done < 2 * TTI_SHARED_PIECES;
}

void tti_moe_shared_piece(tt_moe *moe, tti_moe_flight *flight)
{
    const tt_ffn *shared = &moe->layer[flight->layer].shared;
    tt_span span = tt_span_begin(TT_PHASE_SHARED, "shared expert");
    bool is_down = flight->shared_done >= TTI_SHARED_PIECES;
    const tt_linear *first = is_down ? &shared->down : &shared->gate;
    int64_t begin, end;
    tt_split(tt_linear_n_panels(first), TTI_SHARED_PIECES, flight->shared_done % TTI_SHARED_PIECES,
             &begin, &end);
    const tt_rows rows = piece_rows(moe, flight, is_down);
    tti_ffn_half half = {.in = &rows, .T = flight->T, .panel_begin = begin, .panel_end = end};
    if (is_down) {
        half.out = flight->shared_out;
        half.ld = moe->H;
        tti_ffn_run_down(shared, moe->compute, "shared down", &half);
    } else {
        half.out = flight->shared_inner;
        half.up = flight->shared_up;
        half.ld = shared->F;
        tti_ffn_run_inner(shared, moe->compute, "shared gate up", &half);
    }
    uint64_t bytes = flight->shared_done == 0 ? find_weights(moe, flight) : 0;
    uint64_t panel_bytes = ttk_panel_bytes(&first->format, first->K);
    panel_bytes += is_down ? 0 : ttk_panel_bytes(&shared->up.format, shared->up.K);
    bytes += (uint64_t)(end - begin) * panel_bytes;
    flight->shared_done++;
    moe->bytes_read += bytes;
    tt_span_end(&span, bytes);
}

typedef struct add_task {
    const tti_moe_flight *flight;
    float *y; /* y[T][H] */
    int64_t H;
} add_task;

static void add_part(void *arg, int thread_id, int n_threads)
{
    const add_task *task = arg;
    int64_t begin, end;
    tt_split(task->flight->T, n_threads, thread_id, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        ttk.axpy_f32(task->y + t * task->H, task->flight->shared_weight[t],
                     task->flight->shared_out + t * task->H, task->H);
    }
}

void tti_moe_add_shared(tt_moe *moe, const tti_moe_flight *flight, float *y)
{
    if (moe->layer[flight->layer].shared_router.N == 0) {
        tt_add_run(moe->compute, "add shared", y, flight->shared_out, flight->T * moe->H);
        return;
    }
    add_task task = {flight, y, moe->H};
    tt_stream_run(moe->compute, "add shared", add_part, &task);
}
