/* overlap.c - whether steps are computed in two parts, where the layout leaves that open: tried
 * where ranks wait for messages, kept where it is faster.
 *
 * Two parts read weights twice and hide what ranks wait for. Neither is known before: messages may
 * cost time on the wire, which hides, or on the cores, which does not. So it is measured, for each
 * size of step (rows of a DP group, by powers of two) on its own. Steps are whole while the rank
 * that waits least waits less than a twentieth of them. Else come a few pairs of a step in parts
 * and a whole one, of nearly as many rows, and the median of their ratios decides. What it says
 * holds for a number of steps that doubles each time it says the same again. All ranks pass the
 * same numbers and so decide alike. */
#include "engine_internal.h"
#include <string.h>

/* Guesses that tests/unit/test_overlap holds against made-up machines: a trial in vain costs 4
 * steps in 264, below 1 %, and one step that something else made slow decides nothing. */
enum {
    WATCHED = 8,     /* whole steps whose waiting is judged together */
    MOST_TRIED = 32, /* steps of a trial that finds no pairs */
    FIRST_WHOLE = 256,
    LAST_WHOLE = 4096, /* whole steps after a trial in vain */
    FIRST_PARTS = 64,
    LAST_PARTS = 512 /* steps in parts until the next trial */
};
static const double worth_a_trial = 0.05; /* of a step, waited */
static const double worth_it = 0.98;      /* time of a step in parts over that of a whole one */
static const double unlike = 1.125;       /* rows of one step over the other's: no pair */

static void enter_mode(tti_overlap_size *size, tti_overlap_mode mode)
{
    size->mode = mode;
    size->n = size->n_pairs = 0;
    size->took_s = size->waited_s = 0.0;
}

/* Which of a pair comes first alternates, so that a steady drift falls on both. */
static bool is_tried_in_parts(const tti_overlap_size *size)
{
    return (size->n_pairs + size->has_half) % 2 == 0;
}

static tti_overlap_size *size_of(tti_overlap *overlap, int64_t rows)
{
    int at = 0;
    while (at < TTI_OVERLAP_SIZES - 1 && rows >> (at + 1) > 0) {
        at++;
    }
    return &overlap->size[at];
}

int tti_overlap_choose(tti_overlap *overlap, int64_t rows)
{
    const tti_overlap_size *size = size_of(overlap, rows);
    overlap->rows = rows > 1 ? rows : 0;
    overlap->is_in_parts =
        rows > 1 && (size->mode == TTI_OVERLAP_PARTS ||
                     (size->mode == TTI_OVERLAP_TRIES && is_tried_in_parts(size)));
    return overlap->is_in_parts ? TTI_MAX_PARTS : 1;
}

/* The mean of the two in the middle: one of each order. */
static double median_ratio(const double ratio[TTI_OVERLAP_PAIRS])
{
    double sorted[TTI_OVERLAP_PAIRS];
    for (int i = 0; i < TTI_OVERLAP_PAIRS; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > ratio[i]; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = ratio[i];
    }
    return (sorted[TTI_OVERLAP_PAIRS / 2 - 1] + sorted[TTI_OVERLAP_PAIRS / 2]) / 2;
}

/* What a trial found holds for a while. */
static void settle(tti_overlap_size *size, bool in_parts)
{
    const int first = in_parts ? FIRST_PARTS : FIRST_WHOLE,
              last = in_parts ? LAST_PARTS : LAST_WHOLE;
    const bool is_news = size->stay == 0 || in_parts != size->last_won;
    size->stay = is_news ? first : 2 * size->stay < last ? 2 * size->stay : last;
    size->last_won = in_parts;
    enter_mode(size, in_parts ? TTI_OVERLAP_PARTS : TTI_OVERLAP_PAUSES);
}

/* One more step of a trial. */
static void take_tried(tti_overlap_size *size, bool in_parts, int64_t rows, double step_s)
{
    size->has_half = !size->has_half;
    if (size->has_half) {
        size->half_rows = rows;
        size->half_s = step_s;
        return;
    }
    const double by = (double)rows / (double)size->half_rows;
    if (by <= unlike && by >= 1.0 / unlike) {
        size->ratio[size->n_pairs++] = in_parts ? step_s / size->half_s : size->half_s / step_s;
    }
    if (size->n_pairs == TTI_OVERLAP_PAIRS) {
        settle(size, median_ratio(size->ratio) < worth_it);
    } else if (size->n >= MOST_TRIED) {
        settle(size, false);
    }
}

void tti_overlap_took(tti_overlap *overlap, double step_s, double waited_s)
{
    const int64_t rows = overlap->rows;
    if (rows == 0) {
        return;
    }
    tti_overlap_size *size = size_of(overlap, rows);
    overlap->rows = 0;
    size->n++;
    size->took_s += step_s;
    size->waited_s += waited_s;
    switch (size->mode) {
    case TTI_OVERLAP_PAUSES:
        if (size->n >= size->stay) {
            enter_mode(size, TTI_OVERLAP_WATCHES);
        }
        break;
    case TTI_OVERLAP_WATCHES:
        if (size->n == WATCHED) {
            enter_mode(size, size->waited_s > worth_a_trial * size->took_s ? TTI_OVERLAP_TRIES
                                                                           : TTI_OVERLAP_WATCHES);
        }
        break;
    case TTI_OVERLAP_TRIES:
        take_tried(size, overlap->is_in_parts, rows, step_s);
        break;
    case TTI_OVERLAP_PARTS:
        if (size->n >= size->stay) {
            enter_mode(size, TTI_OVERLAP_TRIES);
        }
        break;
    }
}
