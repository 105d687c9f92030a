/* overlap.c - whether steps are computed in two parts, where the layout leaves that open: tried where ranks wait for messages, kept where it is faster.
 *
 * Two parts read weights twice and hide what ranks wait for. Neither is known before: messages may cost time on the wire, which hides, or on the cores,
 * which does not. So it is measured, for each size of step (rows of a DP group, by powers of two) on its own. Steps are whole while the rank that waits
 * least waits less than a twentieth of them. Else a few steps are taken in turn in parts and whole; what was faster goes on, to be held against the other
 * again after RETRY steps; a trial that brought nothing is repeated after a pause that doubles. All ranks pass the same numbers and so decide alike. */
#include "engine_internal.h"
#include <string.h>

enum {
    WATCHED = 8,     /* whole steps whose waiting is judged together */
    TRIED = 8,       /* steps of a trial, in the order in which a steady drift falls on both alike */
    RETRY = 512,     /* steps in parts until the next trial */
    FIRST_PAUSE = 256, LAST_PAUSE = 4096 /* whole steps after a trial in vain */
};
static const bool is_tried_in_parts[TRIED] = {true, false, false, true, true, false, false, true};
static const double worth_a_trial = 0.05; /* of a step, waited */
static const double worth_it = 0.98;      /* time in parts over time of whole steps */

static void enter_mode(tti_overlap_size *size, tti_overlap_mode mode)
{
    size->mode = mode;
    size->n = 0;
    size->waited = 0.0;
    memset(size->took, 0, sizeof(size->took));
    memset(size->worst, 0, sizeof(size->worst));
}

int tti_overlap_choose(tti_overlap *overlap, int64_t rows)
{
    int at = 0;
    while (at < TTI_OVERLAP_SIZES - 1 && rows >> (at + 1) > 0) {
        at++;
    }
    tti_overlap_size *size = &overlap->size[at];
    overlap->current = rows > 1 ? size : NULL;
    overlap->is_in_parts = rows > 1 && (size->mode == TTI_OVERLAP_PARTS || (size->mode == TTI_OVERLAP_TRIES && is_tried_in_parts[size->n]));
    return overlap->is_in_parts ? 2 : 1;
}

/* The slowest step of each kind is left out: something else may have come between. */
static bool parts_won(const tti_overlap_size *size)
{
    return size->took[true] - size->worst[true] < worth_it * (size->took[false] - size->worst[false]);
}

void tti_overlap_took(tti_overlap *overlap, double step_s, double waited_s)
{
    tti_overlap_size *size = overlap->current;
    if (!size) {
        return;
    }
    const bool kind = overlap->is_in_parts;
    overlap->current = NULL;
    size->n++;
    size->waited += waited_s;
    size->took[kind] += step_s;
    size->worst[kind] = step_s > size->worst[kind] ? step_s : size->worst[kind];
    switch (size->mode) {
    case TTI_OVERLAP_PAUSES:
        if (size->n >= size->pause) {
            enter_mode(size, TTI_OVERLAP_WATCHES);
        }
        break;
    case TTI_OVERLAP_WATCHES:
        if (size->n == WATCHED) {
            enter_mode(size, size->waited > worth_a_trial * size->took[false] ? TTI_OVERLAP_TRIES : TTI_OVERLAP_WATCHES);
        }
        break;
    case TTI_OVERLAP_TRIES:
        if (size->n == TRIED && parts_won(size)) {
            size->pause = 0;
            enter_mode(size, TTI_OVERLAP_PARTS);
        } else if (size->n == TRIED) {
            size->pause = size->pause == 0 ? FIRST_PAUSE : size->pause < LAST_PAUSE ? 2 * size->pause : LAST_PAUSE;
            enter_mode(size, TTI_OVERLAP_PAUSES);
        }
        break;
    case TTI_OVERLAP_PARTS:
        if (size->n == RETRY) {
            enter_mode(size, TTI_OVERLAP_TRIES);
        }
        break;
    }
}
