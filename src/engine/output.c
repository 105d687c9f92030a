/* output.c - from the last hidden rows to tokens and scores, and their way to rank 0.
 *
 * Head rows are taken in blocks (head.c); the group's first rank draws tokens or scores, and
 * reports the block to rank 0 (messages of fixed size; logits follow where asked for). When all
 * blocks are done the drawn tokens go to the TP peers, so that all commit alike. */
#include "engine_internal.h"
#include <math.h>
#include <string.h>
#include "tutti/trace.h"

/* One head row's result, as it travels. */
typedef struct result {
    uint64_t id;
    int64_t position;
    double nll;
    int32_t token;
    int32_t finish;
    int32_t has_logits;
    int32_t pad;
} result;

/* A block of results; `last` ends a group's report of this step. */
typedef struct report {
    int32_t n;
    int32_t last;
    result result[TT_HEAD_ROWS];
} report;

static void tell(tt_engine *engine, const result *r, const float *logits, tt_output_fn *output,
                 void *arg)
{
    tt_output out = {r->id, r->token, r->position, (tt_finish)r->finish, r->nll, logits};
    if (!tti_admission_knows(engine, r->id)) {
        return; /* cancelled since the step began */
    }
    if (out.finish != TT_FINISH_NONE) {
        tti_admission_ended(engine, r->id);
    }
    if (output) {
        output(arg, &out);
    }
}

typedef struct block_task {
    tt_engine *engine;
    const tti_head_row *head;
    int64_t first, n;
} block_task;

/* ---- tokens and scores of a block, on the group's first rank ---- */

static void draw_part(void *arg, int thread_id, int n_threads)
{
    const block_task *task = arg;
    tt_engine *engine = task->engine;
    int64_t V = engine->arch->V, begin, end;
    int64_t n_known = tti_head_known(engine);
    void *work =
        (unsigned char *)engine->sample_work + (size_t)thread_id * engine->sample_work_bytes;
    tt_split(task->n, n_threads, thread_id, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const tti_sequence *sequence = task->head[i].sequence;
        int64_t position = task->head[i].position;
        float *logits = engine->logits + i * V;
        int32_t *token = &engine->head_token[task->first + i];
        engine->head_nll[i] = (double)NAN;
        *token = -1;
        for (int64_t v = 0; engine->arch->logit_divisor != 1.0f && v < V; v++) {
            logits[v] /= engine->arch->logit_divisor;
        }
        if (sequence->score) {
            if (position + 1 < sequence->n_tokens) {
                engine->head_nll[i] = tti_sampler_nll(logits, V, sequence->token[position + 1]);
            }
            continue;
        }
        if (engine->hook) {
            engine->hook(engine->hook_arg, sequence->id, sequence->token, sequence->n_tokens,
                         logits, V);
        }
        tt_status st =
            tti_sampler_draw(&sequence->sampling, position, logits, n_known, work, token);
        if (st != TT_OK) {
            engine->thread_status[thread_id] = st;
        }
    }
}

static tt_status draw(tt_engine *engine, const block_task *task)
{
    int n_threads = tt_stream_n_threads(engine->compute);
    memset(engine->thread_status, 0, (size_t)n_threads * sizeof(tt_status));
    tt_span span = tt_span_begin(TT_PHASE_SAMPLE, "sample");
    block_task copy = *task;
    tt_stream_run(engine->compute, "draw", draw_part, &copy);
    tt_span_end(&span, 0);
    for (int i = 0; i < n_threads; i++) {
        TT_CHECK(engine->thread_status[i] == TT_OK, engine->thread_status[i],
                 "a row of logits holds no number: the weights or activations hold NaN or Inf");
    }
    return TT_OK;
}

/* A block of which only the best tokens are known. */
static tt_status nothing_scored(tt_engine *engine, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        engine->head_nll[i] = (double)NAN;
    }
    return TT_OK;
}

/* Hands a block to rank 0, which may be this rank. Scored rows keep their logits; drawn ones have
 * used them up. */
static tt_status report_block(tt_engine *engine, const block_task *task, bool last,
                              tt_output_fn *output, void *arg)
{
    report block;
    memset(&block, 0, sizeof(block));
    block.n = (int32_t)task->n;
    block.last = last;
    for (int64_t i = 0; i < task->n; i++) {
        const tti_sequence *sequence = task->head[i].sequence;
        result *r = &block.result[i];
        r->id = sequence->id;
        r->position = task->head[i].position;
        r->nll = engine->head_nll[i];
        r->token = engine->head_token[task->first + i];
        r->has_logits = sequence->score && sequence->logits;
        if (!sequence->score) {
            r->finish = (int32_t)tti_sequence_finish(sequence, r->token);
        } else if (r->position == sequence->n_tokens - 1) {
            r->finish = TT_FINISH_LENGTH;
        }
    }
    if (engine->rank != 0) {
        TT_TRY(tt_world_send(engine->world, 0, TTI_RESULT_TAG, &block, sizeof(block)));
    }
    size_t row_bytes = (size_t)engine->arch->V * sizeof(float);
    for (int64_t i = 0; i < task->n; i++) {
        float *logits = engine->logits + i * engine->arch->V;
        if (engine->rank == 0) {
            tell(engine, &block.result[i], block.result[i].has_logits ? logits : NULL, output, arg);
        } else if (block.result[i].has_logits) {
            TT_TRY(tt_world_send(engine->world, 0, TTI_LOGITS_TAG, logits, row_bytes));
        }
    }
    return TT_OK;
}

/* The drawn tokens, bit by bit in floats, from the group's first rank to the others. */
static tt_status share_tokens(tt_engine *engine, int64_t n)
{
    tt_rect rect[TT_LAYOUT_MAX_SPLIT];
    memset(rect, 0, (size_t)engine->layout->tp * sizeof(rect[0]));
    rect[0].n_rows = 1;
    rect[0].n_cols = n;
    float *bits = engine->head_x; /* work; every value is written by member 0 before it is read */
    int64_t most = (int64_t)TT_HEAD_ROWS * engine->arch->H;
    for (int64_t done = 0; done < n; done += most) {
        int64_t part = n - done < most ? n - done : most;
        rect[0].n_cols = part;
        memcpy(bits, engine->head_token + done, (size_t)part * sizeof(float));
        TT_TRY(tt_gather_exec(engine->row_gather, bits, part, rect, TT_GATHER_ALL, NULL));
        memcpy(engine->head_token + done, bits, (size_t)part * sizeof(float));
    }
    return TT_OK;
}

tt_status tti_output_run(tt_engine *engine, tt_output_fn *output, void *arg)
{
    const tti_schedule *schedule = &engine->schedule;
    bool is_first = engine->role->tp_id == 0;
    int64_t n = schedule->n_head_rows;
    for (int64_t done = 0; done < n; done += TT_HEAD_ROWS) {
        block_task task = {engine, schedule->head_row + done, done,
                           n - done < TT_HEAD_ROWS ? n - done : TT_HEAD_ROWS};
        bool is_drawn = tti_head_takes_best(engine, task.head, task.n);
        if (is_drawn) {
            TT_TRY(tti_head_best(engine, task.head, task.n, engine->head_token + done));
        } else {
            TT_TRY(tti_head_logits(engine, task.head, task.n));
        }
        if (is_first) {
            TT_TRY(is_drawn ? nothing_scored(engine, task.n) : draw(engine, &task));
            TT_TRY(report_block(engine, &task, done + task.n == n, output, arg));
        }
    }
    if (is_first && n == 0) {
        block_task none = {engine, NULL, 0, 0};
        TT_TRY(report_block(engine, &none, true, output, arg));
    }
    if (engine->layout->tp > 1 && n > 0) {
        TT_TRY(share_tokens(engine, n));
    }
    return TT_OK;
}

tt_status tti_output_collect(tt_engine *engine, tt_output_fn *output, void *arg)
{
    size_t row_bytes = (size_t)engine->arch->V * sizeof(float);
    for (int g = 0; g < engine->layout->dp; g++) {
        int rank = engine->layout->attention_rank[g * engine->layout->tp];
        report block = {0, rank == 0, {{0, 0, 0, 0, 0, 0, 0}}};
        while (!block.last) {
            TT_TRY(tt_world_recv(engine->world, rank, TTI_RESULT_TAG, &block, sizeof(block)));
            TT_CHECK(block.n >= 0 && block.n <= TT_HEAD_ROWS, TT_ERR_PROTOCOL,
                     "rank %d reported %d results", rank, block.n);
            for (int32_t i = 0; i < block.n; i++) {
                const float *logits = NULL;
                if (block.result[i].has_logits) {
                    TT_TRY(tt_world_recv(engine->world, rank, TTI_LOGITS_TAG, engine->logits,
                                         row_bytes));
                    logits = engine->logits;
                }
                tell(engine, &block.result[i], logits, output, arg);
            }
        }
    }
    return TT_OK;
}
