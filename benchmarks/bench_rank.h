/* bench_rank.h - what every rank of a benchmark is: MPI, its cores, a model on a layout, and
 * lanes.
 *
 * A lane is a world of its own with an engine in it. Lanes differ in the injected delay and in
 * whether batches are computed in two parts, and live side by side on the same ranks, threads and
 * files, so that their steps can be timed in turn. Errors end the program on all ranks: a benchmark
 * has nothing to save. */
#ifndef TUTTI_BENCH_RANK_H
#define TUTTI_BENCH_RANK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tutti/comm_mpi.h"
#include "tutti/tutti.h"

typedef struct bench_rank {
    int rank, size, n_lanes; /* n_lanes: at once */
    tt_topology *topology;
    tt_placement_cpus cpus;
    int n_sharing;        /* ranks that share this rank's affinity mask on its machine */
    tt_progress progress; /* as asked */
    double deadline_s;
    tt_model *model;
    bool default_act; /* the layout's `act` is the model's default */
    tt_layout *layout;
    tt_stream *compute; /* of all lanes: one works at a time */
} bench_rank;

typedef struct bench_lane {
    tt_world *world;
    tt_layout layout; /* the rank's, which owns its lists, but for what the lane has of its own */
    tt_engine *engine;
    int64_t delay_ns;
} bench_lane;

/* Prints the message and ends all ranks unless status is TT_OK. */
void bench_must(tt_status status);

/* n zeroed elements, or one; ends all ranks if there is no memory. */
void *bench_alloc(size_t n, size_t bytes);

/* Starts MPI for that many lanes at once and finds this rank's cores; n_threads 0 = a fair share.
 * MPI: collective. */
void bench_rank_begin(bench_rank *b, int n_lanes, int n_threads, tt_progress progress,
                      double deadline_s);
/* A checkpoint, or "made:SHAPE" or "made:SHAPE:LAYERS": random weights in the shape of a released
 * model, stored as `weights` says. */
void bench_model_open(const char *name, tt_weight_format weights, tt_model **model_out);
/* Opens the model and makes the layout for the ranks and nodes of `world`; n_ranks and
 * node_of_rank are filled in. Ends with a message if all lanes together do not fit into memory.
 * MPI: collective. */
void bench_rank_load(bench_rank *b, const char *path, tt_layout_params params, tt_world *world);
void bench_rank_end(bench_rank *b);

/* A world with this delay. MPI: collective. */
void bench_lane_open(bench_lane *lane, const bench_rank *b, int64_t delay_ns);
/* Loads the model in it; bench_rank_load was called. MPI: collective. */
/* overlap_rows: of tt_layout. */
void bench_lane_load(bench_lane *lane, bench_rank *b, int64_t overlap_rows);
void bench_lane_close(bench_lane *lane);

#endif
