/* schedule.c - the sequences of one DP group and the batch of a step, as a pure function of what
 * all its ranks know. Decode rows come first, one a sequence; prompt rows fill up to prefill_chunk
 * beside them, in order of admission. */
#include "engine_internal.h"
#include <stdlib.h>
#include <string.h>

tt_status tti_schedule_init(tti_schedule *schedule, const tt_layout *layout, bool attends)
{
    memset(schedule, 0, sizeof(*schedule));
    if (!attends) {
        return TT_OK;
    }
    size_t n = (size_t)layout->max_batch_group, context = (size_t)layout->context;
    size_t pages = (context + TTK_PAGE - 1) / TTK_PAGE;
    schedule->capacity = layout->max_batch_group;
    schedule->context = layout->context;
    schedule->prefill_chunk = layout->prefill_chunk;
    schedule->active = calloc(n, sizeof(*schedule->active));
    schedule->idle = calloc(n, sizeof(*schedule->idle));
    schedule->storage = calloc(n, sizeof(*schedule->storage));
    schedule->token_storage = calloc(n * context, sizeof(int32_t));
    schedule->page_storage = calloc(n * pages, sizeof(int32_t));
    schedule->batch_sequence = calloc(n, sizeof(*schedule->batch_sequence));
    schedule->of_batch = calloc(n, sizeof(*schedule->of_batch));
    schedule->row_token = calloc((size_t)layout->max_rows_group, sizeof(int32_t));
    schedule->head_row = calloc((size_t)layout->max_rows_group, sizeof(*schedule->head_row));
    bool has_parts = true;
    for (int i = 0; i < TTI_MAX_PARTS; i++) {
        schedule->part[i].sequence = calloc(n, sizeof(*schedule->part[i].sequence));
        has_parts = has_parts && schedule->part[i].sequence;
    }
    TT_CHECK(schedule->active && schedule->idle && schedule->storage && schedule->token_storage &&
                 schedule->page_storage && schedule->batch_sequence && schedule->of_batch &&
                 schedule->row_token && schedule->head_row && has_parts,
             TT_ERR_NOMEM, "no memory for %zu sequences of %zu tokens", n, context);
    for (size_t i = 0; i < n; i++) {
        schedule->storage[i].token = schedule->token_storage + i * context;
        schedule->storage[i].page = schedule->page_storage + i * pages;
        schedule->idle[i] = &schedule->storage[n - 1 - i];
    }
    schedule->batch.sequence = schedule->batch_sequence;
    return TT_OK;
}

void tti_schedule_fini(tti_schedule *schedule)
{
    free(schedule->active);
    free(schedule->idle);
    free(schedule->storage);
    free(schedule->token_storage);
    free(schedule->page_storage);
    free(schedule->batch_sequence);
    free(schedule->of_batch);
    free(schedule->row_token);
    free(schedule->head_row);
    for (int i = 0; i < TTI_MAX_PARTS; i++) {
        free(schedule->part[i].sequence);
    }
    memset(schedule, 0, sizeof(*schedule));
}

tti_sequence *tti_schedule_admit(tti_schedule *schedule)
{
    if (schedule->n_active == schedule->capacity) {
        return NULL;
    }
    tti_sequence *sequence = schedule->idle[schedule->capacity - schedule->n_active - 1];
    schedule->active[schedule->n_active++] = sequence;
    return sequence;
}

static void remove_at(tti_schedule *schedule, int64_t i, tt_kv *kv)
{
    tti_sequence *sequence = schedule->active[i];
    tt_kv_release(kv, sequence->page, sequence->n_pages);
    sequence->n_pages = 0;
    memmove(&schedule->active[i], &schedule->active[i + 1],
            (size_t)(schedule->n_active - i - 1) * sizeof(*schedule->active));
    schedule->n_active--;
    schedule->idle[schedule->capacity - schedule->n_active - 1] = sequence;
}

void tti_schedule_drop(tti_schedule *schedule, uint64_t id, tt_kv *kv)
{
    for (int64_t i = 0; i < schedule->n_active; i++) {
        if (schedule->active[i]->id == id) {
            remove_at(schedule, i, kv);
            return;
        }
    }
}

/* Adds the next n rows of a sequence to the batch. */
static void add_rows(tti_schedule *schedule, tti_sequence *sequence, int64_t n)
{
    tt_batch *batch = &schedule->batch;
    tt_batch_sequence *part = &schedule->batch_sequence[batch->n_sequences];
    part->page = sequence->page;
    part->position = sequence->n_computed;
    part->first_row = batch->T;
    part->n_rows = n;
    part->slot = sequence - schedule->storage;
    part->max_tokens = sequence->max_tokens;
    schedule->of_batch[batch->n_sequences++] = sequence;
    for (int64_t i = 0; i < n; i++) {
        int64_t position = sequence->n_computed + i, row = batch->T + i;
        schedule->row_token[row] = sequence->token[position];
        if (sequence->score || position == sequence->n_tokens - 1) {
            tti_head_row head = {row, position, sequence};
            schedule->head_row[schedule->n_head_rows++] = head;
        }
    }
    batch->T += n;
}

void tti_schedule_plan(tti_schedule *schedule)
{
    schedule->batch.T = 0;
    schedule->batch.n_sequences = 0;
    schedule->n_head_rows = 0;
    for (int64_t i = 0; i < schedule->n_active; i++) {
        tti_sequence *sequence = schedule->active[i];
        if (sequence->n_tokens - sequence->n_computed == 1) {
            add_rows(schedule, sequence, 1);
        }
    }
    int64_t budget = schedule->prefill_chunk;
    for (int64_t i = 0; i < schedule->n_active && budget > 0; i++) {
        tti_sequence *sequence = schedule->active[i];
        int64_t left = sequence->n_tokens - sequence->n_computed;
        if (left > 1) {
            int64_t n = left < budget ? left : budget;
            add_rows(schedule, sequence, n);
            budget -= n;
        }
    }
}

int64_t tti_schedule_rows(const tti_schedule *schedule)
{
    int64_t decode = 0, prompt = 0;
    for (int64_t i = 0; i < schedule->n_active; i++) {
        const int64_t left = schedule->active[i]->n_tokens - schedule->active[i]->n_computed;
        decode += left == 1;
        prompt += left > 1 ? left : 0;
    }
    return decode + (prompt < schedule->prefill_chunk ? prompt : schedule->prefill_chunk);
}

void tti_schedule_cut(tti_schedule *schedule, int n)
{
    const tt_batch *batch = &schedule->batch;
    schedule->n_parts = n;
    for (int i = 0; i < n; i++) {
        tti_part *part = &schedule->part[i];
        int64_t end;
        tt_split(batch->T, n, i, &part->first, &end);
        part->batch = (tt_batch){.T = end - part->first, .sequence = part->sequence};
        part->is_flying = false;
        for (int64_t s = 0; s < batch->n_sequences; s++) {
            tt_batch_sequence cut = batch->sequence[s];
            const int64_t from = cut.first_row > part->first ? cut.first_row : part->first;
            const int64_t to = cut.first_row + cut.n_rows < end ? cut.first_row + cut.n_rows : end;
            cut.position += from - cut.first_row;
            cut.first_row = from - part->first;
            cut.n_rows = to - from;
            if (cut.n_rows > 0) {
                part->sequence[part->batch.n_sequences++] = cut;
            }
        }
    }
}

tt_finish tti_sequence_finish(const tti_sequence *sequence, int32_t token)
{
    if (sequence->score) {
        return TT_FINISH_LENGTH;
    }
    for (int32_t i = 0; i < sequence->n_end; i++) {
        if (sequence->end_id[i] == token) {
            return TT_FINISH_STOP;
        }
    }
    return sequence->n_tokens + 1 >= sequence->max_tokens ? TT_FINISH_LENGTH : TT_FINISH_NONE;
}

int32_t tt_engine_random_token(uint64_t seed, int64_t position, int64_t V)
{
    /* splitmix64 at a place that both choose. */
    uint64_t z = (seed + 1) * UINT64_C(0xd1342543de82ef95) +
                 (uint64_t)position * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (int32_t)((z ^ (z >> 31)) % (uint64_t)V);
}

void tti_schedule_commit(tti_schedule *schedule, const int32_t *token, tt_kv *kv, int64_t V)
{
    for (int64_t s = 0; s < schedule->batch.n_sequences; s++) {
        schedule->of_batch[s]->n_computed += schedule->batch_sequence[s].n_rows;
    }
    for (int64_t i = 0; i < schedule->n_head_rows; i++) {
        tti_sequence *sequence = schedule->head_row[i].sequence;
        if (sequence->score) {
            continue;
        }
        if (tti_sequence_finish(sequence, token[i]) != TT_FINISH_NONE) {
            sequence->n_computed = sequence->max_tokens; /* marks the end */
        } else {
            int32_t next = sequence->random_tokens ? tt_engine_random_token(sequence->sampling.seed,
                                                                            sequence->n_tokens, V)
                                                   : token[i];
            sequence->token[sequence->n_tokens++] = next;
        }
    }
    for (int64_t i = schedule->n_active - 1; i >= 0; i--) {
        const tti_sequence *sequence = schedule->active[i];
        if (sequence->n_computed >= sequence->n_tokens) {
            remove_at(schedule, i, kv);
        }
    }
}
