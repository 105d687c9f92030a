/* shared.c - the shared expert in pieces: what there is to do while rows and results fly. The first half of the pieces are panels of gate
 * and up, the second half panels of down. */
#include "moe_internal.h"
#include "tutti/trace.h"

bool tti_moe_shared_piece(tt_moe *moe, tti_moe_flight *flight)
{
    const tt_ffn *shared = &moe->layer[flight->layer].shared;
    if (shared->F == 0 || flight->T == 0 || flight->shared_done == 2 * TTI_SHARED_PIECES) {
        return false;
    }
    tt_span span = tt_span_begin(TT_PHASE_SHARED, "shared expert");
    bool is_down = flight->shared_done >= TTI_SHARED_PIECES;
    const tt_linear *first = is_down ? &shared->down : &shared->gate;
    int64_t begin, end;
    tt_split(tt_linear_n_panels(first), TTI_SHARED_PIECES, flight->shared_done % TTI_SHARED_PIECES,
             &begin, &end);
    if (is_down) {
        tti_ffn_run_down(shared, moe->compute, "shared down", flight->shared_out, moe->H,
                         flight->shared_inner, shared->F, flight->T, begin, end);
    } else {
        tti_ffn_run_inner(shared, moe->compute, "shared gate up", flight->shared_inner,
                          flight->shared_up, shared->F, flight->x, flight->T, begin, end);
    }
    flight->shared_done++;
    uint64_t panel_bytes = ttk_panel_bytes(&first->format, first->K);
    uint64_t bytes = (uint64_t)(end - begin) * panel_bytes * (is_down ? 1 : 2);
    moe->bytes_read += bytes;
    tt_span_end(&span, bytes);
    return true;
}
