/* ferry.h - bulk transfers between pairs of ranks beside the steps: begun, forgotten, asked for.
 *
 * A transfer is cut into pieces that progress sends one after the other, under a cap of bytes per
 * second out of a rank, so that a step's own messages pass between them; each piece carries a hash
 * of its bytes. Transfers cannot be called back: data stays alive until tt_ferry_poll says that
 * nothing is under way. Both sides name a transfer by the same key and begin those of one pair in
 * the same order.
 * Life: create, rounds of begin ... poll, destroy. MPI: create and destroy are collective on the
 * world, all else is local and never waits. Threads: one at a time per object, beside progress. */
#ifndef TUTTI_FERRY_H
#define TUTTI_FERRY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tutti/comm.h"

typedef struct tt_ferry tt_ferry; /* opaque */

typedef struct tt_ferry_params {
    int max_items;      /* transfers of a round on this rank; larger numbers of ranks may differ */
    double bytes_per_s; /* out of this rank; 0 = no cap */
} tt_ferry_params;

/* Errors are agreed: TT_ERR_ARG, TT_ERR_NOMEM, TT_ERR_MPI. TUTTI_INJECT_FERRY=fail:R damages what
 * rank R sends, stall:R keeps it from sending (for tests). */
TT_API tt_status tt_ferry_create(tt_world *world, const tt_ferry_params *params,
                                 tt_ferry **ferry_out);
/* Waits, with the world's deadline, until nothing is under way. Accepts a pointer to NULL. */
TT_API void tt_ferry_destroy(tt_ferry **ferry);

/* Begins one; bytes > 0, alike on both sides; a key is any number. TT_ERR_CAPACITY above max_items.
 */
TT_API tt_status tt_ferry_send(tt_ferry *ferry, int peer, uint64_t key, const void *data,
                               size_t bytes);
TT_API tt_status tt_ferry_recv(tt_ferry *ferry, int peer, uint64_t key, void *data, size_t bytes);

/* Of the round: everything begun since the last call that said IDLE or FAILED. */
typedef enum tt_ferry_state {
    TT_FERRY_IDLE, /* all is there, or nothing was begun */
    TT_FERRY_BUSY,
    TT_FERRY_FAILED /* all has ended, but something that came was not what was sent:
                      * tt_ferry_why */
} tt_ferry_state;
TT_API tt_ferry_state tt_ferry_poll(tt_ferry *ferry);
/* Why the last round failed, "" if none did. */
TT_API const char *tt_ferry_why(const tt_ferry *ferry);
/* Bytes that this rank has sent since create. */
TT_API uint64_t tt_ferry_bytes(const tt_ferry *ferry);

#endif
