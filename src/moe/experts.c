/* experts.c - the grouped product: all landed rows of all slots at once.
 *
 * Groups are sorted by slot, so that each expert's weights are read once for all its rows. Threads
 * take units (an expert and a few neighbouring panels, which are read as one stream) from one
 * atomic queue; a unit's sums are fixed, so who takes it changes no bit. First gate, up and
 * activation of all experts, then down of all. */
#include "moe_internal.h"
#include <stdatomic.h>
#include <string.h>
#include "tutti/trace.h"

enum {
    UNIT_PANELS = 8,     /* most of a unit */
    UNIT_WORK = 16,      /* panels times rows: beyond that reads are no longer what takes the
                          * time, and progress is polled between units */
    UNITS_PER_THREAD = 4 /* that there should be, so that threads end together; more, shorter
                          * ones cost 16 cores up to 40 % */
};

typedef struct expert_pass {
    tt_moe *moe;
    const tti_moe_layer *layer;
    int handle;
    int64_t n_jobs, n_rows;
    bool is_down;
    int64_t unit_panels;
    _Atomic int64_t next_unit; /* relaxed: only hands out numbers */
} expert_pass;

/* All ranks that serve a slot together see its rows in this order. */
static bool is_before(const tt_exchange_rows *a, const tt_exchange_rows *b)
{
    if (a->slot != b->slot) {
        return a->slot < b->slot;
    }
    return a->source_id != b->source_id ? a->source_id < b->source_id : a->chunk < b->chunk;
}

/* Shell sort: few items, nearly sorted, no allocation. */
static void sort_groups(tt_exchange_rows *group, int64_t n)
{
    for (int64_t gap = n / 2; gap > 0; gap /= 2) {
        for (int64_t i = gap; i < n; i++) {
            tt_exchange_rows moving = group[i];
            int64_t j = i;
            while (j >= gap && is_before(&moving, &group[j - gap])) {
                group[j] = group[j - gap];
                j -= gap;
            }
            group[j] = moving;
        }
    }
}

/* Makes jobs from groups [begin, ...) until the row buffers are full; returns the first group
 * left. */
static int64_t make_jobs(tt_moe *moe, const tt_exchange_rows *group, int64_t begin,
                         int64_t n_groups, expert_pass *pass)
{
    int64_t g = begin;
    pass->n_jobs = 0;
    pass->n_rows = 0;
    while (g < n_groups && pass->n_rows + group[g].n <= moe->job_rows) {
        tti_moe_job *job = pass->n_jobs ? &moe->job[pass->n_jobs - 1] : NULL;
        if (!job || job->slot != group[g].slot) {
            job = &moe->job[pass->n_jobs++];
            job->slot = group[g].slot;
            job->group_begin = g;
            job->row = pass->n_rows;
            job->n = 0;
        }
        job->n += group[g].n;
        pass->n_rows += group[g].n;
        job->group_end = ++g;
    }
    return g;
}

/* Calls fn for this thread's share of the rows of all jobs: row r of the buffer is row i of group
 * g. */
typedef void row_fn(expert_pass *pass, const tt_exchange_rows *group, int32_t i, int64_t row);

static void for_rows(expert_pass *pass, int thread_id, int n_threads, row_fn *fn)
{
    tt_moe *moe = pass->moe;
    const tt_exchange_rows *group = moe->flight[pass->handle].chosen;
    int64_t begin, end, row = 0;
    tt_split(pass->n_rows, n_threads, thread_id, &begin, &end);
    for (int64_t j = 0; j < pass->n_jobs && row < end; j++) {
        for (int64_t g = moe->job[j].group_begin; g < moe->job[j].group_end && row < end; g++) {
            int64_t first = begin > row ? begin - row : 0;
            for (int64_t i = first; i < group[g].n && row + i < end; i++) {
                fn(pass, &group[g], (int32_t)i, row + i);
            }
            row += group[g].n;
        }
    }
}

/* int8 rows that came as int8 are taken as they are. */
static bool take_act8(const tt_moe *moe, const tt_ffn *ffn, const tt_exchange_rows *group,
                      int32_t i, int64_t row)
{
    const tt_act act = moe->layout->act;
    if (act != TT_ACT_INT8 || group->weight || tt_linear_act(&ffn->gate, act) != act ||
        tt_linear_act(&ffn->up, act) != act) {
        return false;
    }
    const size_t stride = tt_rows_in(act, moe->job_rounded, moe->job_x, moe->H, moe->H).stride;
    return tt_exchange_get_act8(moe->exchange, group, i,
                                (unsigned char *)moe->job_rounded + (size_t)row * stride);
}

static void gather_row(expert_pass *pass, const tt_exchange_rows *group, int32_t i, int64_t row)
{
    const tt_moe *moe = pass->moe;
    float *x = moe->job_x + row * moe->H;
    if (take_act8(moe, &pass->layer->slot[group->slot], group, i, row)) {
        return;
    }
    tt_exchange_get_row(moe->exchange, group, i, x);
    /* The choice's own weight: other experts may have the same row with another. */
    for (int64_t h = 0; group->weight && h < moe->H; h++) {
        x[h] *= group->weight[i];
    }
    tt_rows_round_part(moe->layout->act, moe->job_rounded, moe->job_x, moe->H, row, row + 1,
                       moe->H);
}

static void gather_part(void *arg, int thread_id, int n_threads)
{
    for_rows(arg, thread_id, n_threads, gather_row);
}

static void put_row(expert_pass *pass, const tt_exchange_rows *group, int32_t i, int64_t row)
{
    tt_moe *moe = pass->moe;
    tt_exchange_put_result(moe->exchange, pass->handle, group, i,
                           moe->job_y + row * (moe->part.h_end - moe->part.h_begin));
}

static void put_part(void *arg, int thread_id, int n_threads)
{
    for_rows(arg, thread_id, n_threads, put_row);
}

static int64_t job_panels(const expert_pass *pass, int64_t j)
{
    const tt_ffn *ffn = &pass->layer->slot[pass->moe->job[j].slot];
    return tt_linear_n_panels(pass->is_down ? &ffn->down : &ffn->gate);
}

/* Units are numbered over all jobs, panels of one job in order. */
static void product_part(void *arg, int thread_id, int n_threads)
{
    (void)thread_id;
    (void)n_threads;
    expert_pass *pass = arg;
    tt_moe *moe = pass->moe;
    bool polls = tt_world_progress_mode(moe->world) == TT_PROGRESS_POLLED;
    const tt_rows all =
        pass->is_down
            ? tt_rows_in(moe->layout->act, moe->job_rounded, moe->job_gate, moe->F, moe->F)
            : tt_rows_in(moe->layout->act, moe->job_rounded, moe->job_x, moe->H, moe->H);
    int64_t j = 0, first_unit = 0;
    for (;;) {
        int64_t unit = atomic_fetch_add_explicit(&pass->next_unit, 1, memory_order_relaxed);
        int64_t n_panels = 0;
        for (; j < pass->n_jobs; j++) {
            n_panels = job_panels(pass, j);
            int64_t n_units = (n_panels + pass->unit_panels - 1) / pass->unit_panels;
            if (unit < first_unit + n_units) {
                break;
            }
            first_unit += n_units;
        }
        if (j == pass->n_jobs) {
            return;
        }
        const tt_ffn *ffn = &pass->layer->slot[moe->job[j].slot];
        int64_t panel = (unit - first_unit) * pass->unit_panels, row = moe->job[j].row;
        int64_t end = n_panels - panel < pass->unit_panels ? n_panels : panel + pass->unit_panels;
        const tt_rows rows = tt_rows_from(&all, row);
        tti_ffn_half half = {
            .in = &rows, .T = moe->job[j].n, .panel_begin = panel, .panel_end = end};
        if (pass->is_down) {
            half.ld = moe->part.h_end - moe->part.h_begin;
            half.out = moe->job_y + row * half.ld;
            tti_ffn_down(ffn, &half);
        } else {
            half.ld = moe->F;
            half.out = moe->job_gate + row * half.ld + moe->part.f_begin;
            half.up = moe->job_up + row * half.ld + moe->part.f_begin;
            tti_ffn_inner(ffn, &half);
        }
        if (polls) {
            tt_world_progress(moe->world);
        }
    }
}

static void run_products(expert_pass *pass, bool is_down)
{
    int64_t n_panels = 0;
    pass->is_down = is_down;
    for (int64_t j = 0; j < pass->n_jobs; j++) {
        n_panels += job_panels(pass, j);
    }
    int64_t most = UNIT_WORK * pass->n_jobs / pass->n_rows;
    most = most < UNIT_PANELS ? most : UNIT_PANELS;
    n_panels /= UNITS_PER_THREAD * tt_stream_n_threads(pass->moe->compute);
    n_panels = n_panels < most ? n_panels : most;
    pass->unit_panels = n_panels < 1 ? 1 : n_panels;
    atomic_store_explicit(&pass->next_unit, 0, memory_order_relaxed);
    tt_stream_run(pass->moe->compute, is_down ? "experts down" : "experts gate up", product_part,
                  pass);
}

/* With ETP every member has the activations of its own columns: each gets all of them. */
static tt_status share_inner(tt_moe *moe, int64_t n_rows)
{
    int etp = moe->layout->etp;
    tt_rect rect[TT_LAYOUT_MAX_SPLIT];
    for (int part = 0; part < etp; part++) {
        int64_t begin, end;
        tt_layout_columns(moe->F, etp, part, &begin, &end);
        tt_rect r = {0, n_rows, begin, end - begin};
        rect[part] = r;
    }
    return tt_gather_exec(moe->etp_gather, moe->job_gate, moe->F, rect, TT_GATHER_ALL,
                          moe->compute);
}

static uint64_t count_bytes(const tt_moe *moe, const expert_pass *pass)
{
    uint64_t bytes = 0;
    for (int64_t j = 0; j < pass->n_jobs; j++) {
        bytes += tti_ffn_bytes(&pass->layer->slot[moe->job[j].slot]);
    }
    return bytes;
}

/* Moves the groups that `which` means to `chosen`, in order of slot; the others stay. Returns their
 * number. */
static int64_t choose_groups(const tt_moe *moe, tti_moe_flight *flight, tti_moe_which which)
{
    tt_exchange_rows *group = flight->group;
    int64_t n_chosen = 0, n_left = 0;
    int32_t one_slot = -1; /* rows that others wait for first, else our own */
    sort_groups(group, flight->n_groups);
    for (int64_t g = 0; g < flight->n_groups && which == TTI_MOE_ONE_SLOT; g++) {
        if (one_slot < 0 || group[g].source_id != moe->own_source_id) {
            one_slot = group[g].slot;
            if (group[g].source_id != moe->own_source_id) {
                break;
            }
        }
    }
    for (int64_t begin = 0, end; begin < flight->n_groups; begin = end) {
        bool has_far = false;
        for (end = begin; end < flight->n_groups && group[end].slot == group[begin].slot; end++) {
            has_far = has_far || (group[end].source_id != moe->own_source_id &&
                                  group[end].chunk < flight->chunks_done);
        }
        const bool is_wanted = which == TTI_MOE_ALL || (which == TTI_MOE_FAR && has_far);
        for (int64_t g = begin; g < end; g++) {
            if (group[begin].slot == one_slot ||
                (is_wanted && group[g].chunk < flight->chunks_done)) {
                flight->chosen[n_chosen++] = group[g];
            } else {
                group[n_left++] = group[g];
            }
        }
    }
    flight->n_groups = n_left;
    return n_chosen;
}

tt_status tti_moe_run_experts(tt_moe *moe, int handle, tti_moe_flight *flight, tti_moe_which which)
{
    expert_pass pass;
    memset(&pass, 0, sizeof(pass));
    pass.moe = moe;
    pass.layer = &moe->layer[flight->layer];
    pass.handle = handle;
    uint64_t bytes = 0;
    tt_status st = TT_OK;
    int64_t n_chosen = choose_groups(moe, flight, which);
    if (n_chosen == 0) {
        return TT_OK;
    }
    bool only_own = true;
    for (int64_t g = 0; g < n_chosen; g++) {
        only_own = only_own && flight->chosen[g].source_id == moe->own_source_id;
    }
    tt_span span = tt_span_begin(TT_PHASE_EXPERTS, only_own ? "own experts" : "experts");
    for (int64_t done = 0; st == TT_OK && done < n_chosen;) {
        int64_t next = make_jobs(moe, flight->chosen, done, n_chosen, &pass);
        TT_ASSERT(next > done);
        tt_stream_run(moe->compute, "gather rows", gather_part, &pass);
        run_products(&pass, false);
        if (moe->layout->etp > 1) {
            st = share_inner(moe, pass.n_rows);
        }
        if (st == TT_OK) {
            tt_rows_round(moe->layout->act, moe->compute, moe->job_rounded, moe->job_gate, moe->F,
                          pass.n_rows, moe->F);
            run_products(&pass, true);
            tt_stream_run(moe->compute, "put results", put_part, &pass);
        }
        for (int64_t g = done; st == TT_OK && g < next; g++) {
            const tt_exchange_rows *group = &flight->chosen[g];
            int64_t at = flight->layer * moe->n_slots + group->slot;
            moe->experts_touched += moe->touched_in[at] != moe->n_steps;
            moe->touched_in[at] = moe->n_steps;
            st = tt_exchange_push(moe->exchange, handle, group);
        }
        bytes += count_bytes(moe, &pass);
        done = next;
    }
    moe->bytes_read += bytes;
    tt_span_end(&span, bytes);
    return st;
}
