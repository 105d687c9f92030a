/* balancer.h - experts that change their slots while steps go on: what the engine's step asks of
 * it. Pure planning is in the balance room. */
#ifndef TUTTI_BALANCER_H
#define TUTTI_BALANCER_H
#include "engine_internal.h"

/* What a rank says in a step's vote; agreed is the most of each. */
typedef struct tti_balancer_word {
    int64_t busy, failed, order;
} tti_balancer_word;

/* After all rooms: the layout has staged slots. MPI: collective; errors are agreed. */
tt_status tti_balancer_create(tt_engine *engine, const tt_engine_balance *settings, int node,
                              tti_balancer **balancer_out);
void tti_balancer_destroy(tti_balancer **balancer);
void tti_balancer_say(tti_balancer *balancer, tti_balancer_word *word);
/* Does what follows from a vote, between steps, on all ranks alike. */
tt_status tti_balancer_act(tti_balancer *balancer, const tti_balancer_word *agreed);
/* A step has been computed. */
void tti_balancer_stepped(tti_balancer *balancer);
tt_balance_figures tti_balancer_get_figures(const tti_balancer *balancer);

/* ---- replan.c: rank 0's planning, on a thread of its own ---- */
typedef struct tti_replan {
    const tt_engine *engine;
    int64_t max_moves, window_steps;
    double slot_bytes; /* of an expert */
    tt_stream *thread;
    tt_event done;
    double *load;  /* load[L][E]: what it plans for */
    double step_s; /* of a step so far, and the part of it that goes with the experts' rows */
    double rows_part;
    tt_placement *goal; /* NULL: nothing that pays */
} tti_replan;
tt_status tti_replan_init(tti_replan *replan, const tt_engine *engine,
                          const tt_engine_balance *settings, double slot_bytes);
void tti_replan_fini(tti_replan *replan);
/* Plans for load[L][E], from the placement that there is, which stays until it is done. */
void tti_replan_begin(tti_replan *replan, const double *load);
bool tti_replan_is_done(tti_replan *replan);

#endif
