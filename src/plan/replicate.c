/* replicate.c - what ranks of a node hold once under TT_REPLICATE_NODE. Ranks of different DP
 * groups with the same TP part have the same dense matrices; those of different parts have some in
 * common (routers, shared experts, the embedding, key heads that several parts need). Each matrix
 * is counted at the lowest rank of the node that has it. */
#include <stdlib.h>
#include "plan_internal.h"
#include "tutti/shared_memory.h"

const char *tt_replicate_name(tt_replicate replicate)
{
    static const char *const names[TT_REPLICATE_COUNT] = {"auto", "numa", "node"};
    return replicate >= 0 && replicate < TT_REPLICATE_COUNT ? names[replicate] : "?";
}

static int by_contents(const void *a, const void *b)
{
    const tti_plan_matrix *x = a, *y = b;
    const int64_t left[] = {x->role, x->form, x->layer, x->row, x->n_rows},
                  right[] = {y->role, y->form, y->layer, y->row, y->n_rows};
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
        if (left[i] != right[i]) {
            return left[i] < right[i] ? -1 : 1;
        }
    }
    return 0;
}

/* Takes out of `list` what rank `other` has too; returns its bytes. */
static tt_status take_out(const tt_model *model, const tt_layout *layout, int other,
                          tti_plan_list *list, uint64_t *bytes)
{
    tti_plan_list theirs = {0};
    tt_status st = tti_plan_list_dense(model, layout, other, &theirs);
    if (st == TT_OK && theirs.n > 0) {
        size_t n = 0;
        qsort(theirs.matrix, theirs.n, sizeof(*theirs.matrix), by_contents);
        for (size_t i = 0; i < list->n; i++) {
            if (bsearch(&list->matrix[i], theirs.matrix, theirs.n, sizeof(*theirs.matrix),
                        by_contents)) {
                *bytes = tti_plan_add(*bytes, list->matrix[i].bytes);
            } else {
                list->matrix[n++] = list->matrix[i];
            }
        }
        list->n = n;
    }
    free(theirs.matrix);
    return st;
}

tt_status tti_plan_borrowed_bytes(const tt_model *model, const tt_layout *layout, int rank,
                                  uint64_t *bytes_out)
{
    const tt_rank_role *mine = &layout->role[rank];
    int lowest[TT_LAYOUT_MAX_SPLIT]; /* lowest[tp]: of the ranks below this one on its node, with
                                      * that part; -1: none */
    for (int t = 0; t < layout->tp; t++) {
        lowest[t] = -1;
    }
    for (int r = rank - 1; r >= 0 && mine->dp_id >= 0; r--) {
        if (layout->role[r].node == mine->node && layout->role[r].dp_id >= 0) {
            lowest[layout->role[r].tp_id] = r;
        }
    }
    tti_plan_list list = {0};
    uint64_t bytes = 0;
    tt_status st = mine->dp_id >= 0 ? tti_plan_list_dense(model, layout, rank, &list) : TT_OK;
    /* all, so the others need not be looked at */
    if (st == TT_OK && mine->dp_id >= 0 && lowest[mine->tp_id] >= 0) {
        st = take_out(model, layout, lowest[mine->tp_id], &list, &bytes);
    }
    for (int t = 0; t < layout->tp && st == TT_OK && list.n > 0; t++) {
        st = lowest[t] >= 0 ? take_out(model, layout, lowest[t], &list, &bytes) : TT_OK;
    }
    free(list.matrix);
    TT_TRY(st);
    *bytes_out = bytes;
    return TT_OK;
}

tt_status tt_plan_shared_room(const tt_model *model, const tt_layout *layout, int rank,
                              size_t *n_matrices_out, size_t *arena_bytes_out)
{
    TT_CHECK(rank >= 0 && rank < layout->n_ranks, TT_ERR_ARG, "rank %d: not in 0 to %d", rank,
             layout->n_ranks - 1);
    tti_plan_list list = {0};
    uint64_t bytes = 0;
    tt_status st = tti_plan_list_dense(model, layout, rank, &list);
    for (size_t i = 0; i < list.n; i++) {
        uint64_t one = list.matrix[i].bytes; /* and before it less than what it is aligned to */
        bytes = tti_plan_add(bytes, tti_plan_add(one, tt_shared_alignment((size_t)one)));
    }
    *n_matrices_out = list.n;
    *arena_bytes_out = (size_t)bytes;
    free(list.matrix);
    return st;
}
