/* ways.h - the ways of moving rows to experts and results back that are timed beside each other on
 * the same load. */
#ifndef TUTTI_BENCH_EXCHANGE_WAYS_H
#define TUTTI_BENCH_EXCHANGE_WAYS_H
#include "load.h"
#include "tutti/comm_mpi.h"
#include "tutti/tutti.h"

/* One use, on this rank. */
typedef struct way_times {
    double dispatch_s; /* until all rows that come to this rank are here */
    double all_s;
} way_times;

typedef struct way way;
struct way {
    const char *name;
    /* Moves the load and sums up: y[n][H]. MPI: collective over all ranks. */
    void (*run)(way *w, const load *l, float *y, way_times *times);
    void (*close)(way *w);
    void *state;
    bool rounds_sums; /* to wire_back */
};

/* tt_exchange over `route`: "direct", "node" or, with REDUCED, "node-reduced". MPI: collective. */
void way_exchange(way *w, tt_world *world, const load *l, tt_route route, tt_combine combine,
                  tt_stream *compute);
tt_exchange *way_get_exchange(const way *w);
/* MPI_Alltoall of counts, then MPI_Alltoallv: a row for every choice (naive), or for every rank
 * that serves one (deduplicated). */
void way_alltoallv(way *w, const load *l, bool is_naive);
/* MPI_Allgatherv of all tokens; every rank sums what its experts give; MPI_Reduce_scatter of
 * f32. */
void way_allgather(way *w, const load *l);
#endif
