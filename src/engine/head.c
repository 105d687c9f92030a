/* head.c - the vocabulary product, for the rows that need it.
 *
 * Each TP rank computes its columns, and the group's first rank gathers them. Where all rows of a
 * block want only their likeliest token, no logit leaves its thread: each thread takes the best of
 * its columns while they are in its cache, and ranks exchange one value and one id per row. */
#include "engine_internal.h"
#include <math.h>
#include <string.h>
#include "tutti/trace.h"

enum { BEST_PANELS = TT_HEAD_BEST_COLUMNS / TTK_PANEL };

/* What a thread found: of each row the largest logit of its columns, ties to the smaller id; -1: no
 * number among them. */
typedef struct head_found {
    float value[TT_HEAD_ROWS];
    int32_t id[TT_HEAD_ROWS];
    float logits[TT_HEAD_ROWS][TT_HEAD_BEST_COLUMNS]; /* work */
} head_found;

typedef struct head_task {
    tt_engine *engine;
    const tti_head_row *head;
    const tt_rows *rows;
    int64_t n;
} head_task;

int64_t tti_head_known(const tt_engine *engine)
{
    int64_t V = engine->arch->V;
    return engine->n_known_ids > 0 && engine->n_known_ids < V ? engine->n_known_ids : V;
}

size_t tti_head_work_bytes(void)
{
    return sizeof(head_found);
}

/* ---- rows ---- */

static void norm_part(void *arg, int thread_id, int n_threads)
{
    const head_task *task = arg;
    tt_engine *engine = task->engine;
    int64_t H = engine->arch->H, begin, end;
    tt_split(task->n, n_threads, thread_id, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        tti_norm_rows(engine->arch, &engine->final_norm, engine->head_x + i * H,
                      engine->x + task->head[i].row * H, 1);
    }
}

static tt_rows normed_rows(head_task *task)
{
    tt_engine *engine = task->engine;
    const int64_t H = engine->arch->H;
    const tt_act act = tt_linear_act(&engine->head, engine->layout->act);
    tt_stream_run(engine->compute, "final norm", norm_part, task);
    return tt_rows_round(act, engine->compute, engine->head_rounded, engine->head_x, H, task->n, H);
}

/* ---- all logits ---- */

tt_status tti_head_logits(tt_engine *engine, const tti_head_row *head, int64_t n)
{
    const tt_layout *layout = engine->layout;
    int64_t V = engine->arch->V;
    tt_rect rect[TT_LAYOUT_MAX_SPLIT];
    for (int part = 0; part < layout->tp; part++) {
        tt_rect columns = {0, n, 0, 0};
        tt_layout_columns(V, layout->tp, part, &columns.col, &columns.n_cols);
        columns.n_cols -= columns.col;
        rect[part] = columns;
    }
    tt_span span = tt_span_begin(TT_PHASE_HEAD, "head");
    head_task task = {engine, head, NULL, n};
    const tt_rows rows = normed_rows(&task);
    tt_linear_run(&engine->head, engine->compute, "head", engine->logits + engine->head_begin, V,
                  &rows, n);
    TT_TRY(tt_gather_exec(engine->row_gather, engine->logits, V, rect, 0, engine->compute));
    engine->trunk_bytes_read += tt_linear_bytes(&engine->head);
    tt_span_end(&span, tt_linear_bytes(&engine->head));
    return TT_OK;
}

/* ---- the best only ---- */

bool tti_head_takes_best(const tt_engine *engine, const tti_head_row *head, int64_t n)
{
    if (engine->hook || engine->arch->logit_divisor != 1.0f) {
        return false;
    }
    for (int64_t i = 0; i < n; i++) {
        if (head[i].sequence->score || !tti_sampler_is_greedy(&head[i].sequence->sampling)) {
            return false;
        }
    }
    return true;
}

/* Takes (value, id) if it is better; ids come in ascending order. */
static void take_better(float *value, int32_t *id, float other_value, int32_t other_id)
{
    if (other_id >= 0 && (*id < 0 || other_value > *value)) {
        *value = other_value;
        *id = other_id;
    }
}

static void best_part(void *arg, int thread_id, int n_threads)
{
    const head_task *task = arg;
    const tt_engine *engine = task->engine;
    head_found *found = (head_found *)engine->head_found + thread_id;
    int64_t begin, end, left = tti_head_known(engine) - engine->head_begin;
    tt_split(tt_linear_n_panels(&engine->head), n_threads, thread_id, &begin, &end);
    for (int64_t i = 0; i < task->n; i++) {
        found->id[i] = -1;
    }
    left = left < engine->head.N ? left : engine->head.N;
    for (int64_t p = begin; p < end && p * TTK_PANEL < left; p += BEST_PANELS) {
        const int64_t last = p + BEST_PANELS < end ? p + BEST_PANELS : end, column = p * TTK_PANEL;
        const int64_t n =
            left - column < (last - p) * TTK_PANEL ? left - column : (last - p) * TTK_PANEL;
        tt_linear_some(&engine->head, &found->logits[0][0], TT_HEAD_BEST_COLUMNS, task->rows,
                       task->n, p, last);
        for (int64_t i = 0; i < task->n; i++) {
            const int64_t best = ttk.argmax_f32(found->logits[i], n);
            if (best >= 0) {
                take_better(&found->value[i], &found->id[i], found->logits[i][best],
                            (int32_t)(engine->head_begin + column + best));
            }
        }
    }
}

/* The best of all TP ranks, on the group's first: values and ids, bit by bit in floats, one line
 * per rank. */
static tt_status best_of_ranks(tt_engine *engine, int64_t n, float *value, int32_t *id)
{
    const int tp = engine->layout->tp;
    const int64_t width = 2 * TT_HEAD_ROWS;
    tt_rect rect[TT_LAYOUT_MAX_SPLIT];
    float *line = engine->head_best + engine->role->tp_id * width;
    for (int part = 0; part < tp; part++) {
        rect[part] = (tt_rect){part, 1, 0, width};
    }
    memcpy(line, value, (size_t)n * sizeof(float));
    memcpy(line + TT_HEAD_ROWS, id, (size_t)n * sizeof(int32_t));
    TT_TRY(tt_gather_exec(engine->row_gather, engine->head_best, width, rect, 0, NULL));
    for (int part = 1; part < tp && engine->role->tp_id == 0; part++) {
        const float *other = engine->head_best + part * width;
        for (int64_t i = 0; i < n; i++) {
            int32_t other_id;
            memcpy(&other_id, other + TT_HEAD_ROWS + i, sizeof(other_id));
            take_better(&value[i], &id[i], other[i], other_id);
        }
    }
    return TT_OK;
}

tt_status tti_head_best(tt_engine *engine, const tti_head_row *head, int64_t n, int32_t *token)
{
    float value[TT_HEAD_ROWS] = {0};
    tt_span span = tt_span_begin(TT_PHASE_HEAD, "head");
    head_task task = {engine, head, NULL, n};
    const tt_rows rows = normed_rows(&task);
    task.rows = &rows;
    tt_stream_run(engine->compute, "head", best_part, &task);
    for (int64_t i = 0; i < n; i++) {
        token[i] = -1;
        for (int t = 0; t < tt_stream_n_threads(engine->compute); t++) {
            const head_found *found = (const head_found *)engine->head_found + t;
            take_better(&value[i], &token[i], found->value[i], found->id[i]);
        }
    }
    TT_TRY(best_of_ranks(engine, n, value, token));
    engine->trunk_bytes_read += tt_linear_bytes(&engine->head);
    tt_span_end(&span, tt_linear_bytes(&engine->head));
    for (int64_t i = 0; i < n && engine->role->tp_id == 0; i++) {
        TT_CHECK(
            token[i] >= 0 && value[i] > -INFINITY && value[i] < INFINITY, TT_ERR_NUMERIC,
            "the logits at position %lld are not numbers: the weights or activations hold NaN or Inf",
            (long long)head[i].position);
    }
    return TT_OK;
}
