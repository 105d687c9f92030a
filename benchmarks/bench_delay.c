/* bench_delay.c - what a delay on every message costs a decode step: two lanes that differ in the
 * injected delay alone. (Speed as such is `tutti bench`'s.)
 *
 * One measurement: B sequences start behind made-up keys and values and are decoded; steps are
 * timed in blocks, on rank 0 from the end of one step to the end of the next. There are two lanes,
 * 0 and d, and blocks alternate between them (the order turns with each round), so a drift of the
 * machine meets both. Tokens hang on sequence and position alone, so both lanes and all layouts
 * route alike. Prints JSON, one object a line: one about the run, then one per measurement with
 * every sample and the totals of all phases. --overlap-rows adds a third lane, with the delay d,
 * whose steps are computed in two parts. */
#define _GNU_SOURCE
#include "config.h"
#include "bench_rank.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/cpu.h"
#include "ttk.h"

enum {
    MAX_BATCHES = 16,
    MAX_DELAYS = 32,
    MAX_LANES = 3,
    SPARE_STEPS = 16,     /* steps in which sequences are admitted and first tokens come */
    TRACE_SPANS = 1 << 16 /* per thread */
};
#if TT_DEBUG
enum { IS_DEBUG_BUILD = 1 };
#else
enum { IS_DEBUG_BUILD = 0 };
#endif
#define NS_PER_US 1e3
#define NS_PER_S 1e9

typedef struct settings {
    bool help;
    const char *batch, *delays, *trace;
    int64_t prompt, block, rounds, warmup, seed, threads, dp, tp, ep, etp, chunk, overlap_rows;
    double deadline_s;
    int progress, weights, act, wire, wire_back, kv;
} settings;

#define AT(field) offsetof(settings, field)
static const tt_option options[] = {
    {"help", 'h', TT_OPTION_FLAG, AT(help), NULL, 0, 0, NULL, NULL, "print this help"},
    {"batch", 'b', TT_OPTION_STRING, AT(batch), "1", 0, 0, NULL, "LIST",
     "sequences over all groups, as 1,8,32"},
    {"prompt", 'p', TT_OPTION_INT, AT(prompt), "64", 1, 1e6, NULL, "N",
     "tokens before the first generated one"},
    {"block", 0, TT_OPTION_INT, AT(block), "10", 1, 1e5, NULL, "N", "timed steps in a row"},
    {"rounds", 0, TT_OPTION_INT, AT(rounds), "7", 1, 1e4, NULL, "N", "pairs of blocks"},
    {"warmup", 0, TT_OPTION_INT, AT(warmup), "3", 0, 1e5, NULL, "N",
     "steps before the first block"},
    {"delays", 0, TT_OPTION_STRING, AT(delays), "0", 0, 0, NULL, "LIST",
     "pairs of delay 0 and d: 50us, or 0.5x the shared expert's time per layer"},
    {"trace", 0, TT_OPTION_STRING, AT(trace), NULL, 0, 0, NULL, "FILE",
     "timeline of one more block of the last lane"},
    {"seed", 0, TT_OPTION_INT, AT(seed), "1", 0, 9e18, NULL, "N", "of prompts and tokens"},
    {"threads", 0, TT_OPTION_INT, AT(threads), "0", 0, 1024, NULL, "N",
     "per rank; 0 = its share of the cores"},
    {"dp", 0, TT_OPTION_INT, AT(dp), "0", 0, 65536, NULL, "D", "data-parallel groups; 0 = choose"},
    {"tp", 0, TT_OPTION_INT, AT(tp), "0", 0, 65536, NULL, "T", "ranks of a group; 0 = choose"},
    {"ep", 0, TT_OPTION_INT, AT(ep), "0", 0, 65536, NULL, "E", "expert ranks; 0 = all"},
    {"etp", 0, TT_OPTION_INT, AT(etp), "0", 0, 65536, NULL, "N",
     "ranks that split an expert; 0 = choose"},
    {"overlap-rows", 0, TT_OPTION_INT, AT(overlap_rows), "0", -1, 1e6, NULL, "N",
     "a third lane, with the delay, computes steps of N rows and more in two parts, -1 = where that proves faster; 0 = no such lane"},
    {"prefill-chunk", 0, TT_OPTION_INT, AT(chunk), "128", 1, 1e6, NULL, "N",
     "prompt tokens per group and step"},
    {"progress", 0, TT_OPTION_ENUM, AT(progress), "auto", 0, 0, "auto|thread|polled|caller", "MODE",
     "who calls MPI"},
    {"weights", 0, TT_OPTION_ENUM, AT(weights), "auto", 0, 0, TT_WEIGHTS_CHOICES, "FORMAT",
     "in memory"},
    {"act", 0, TT_OPTION_ENUM, AT(act), "auto", 0, 0, "auto|" TT_ACT_CHOICES, "FORMAT",
     "rows into products with quantised weights"},
    {"wire", 0, TT_OPTION_ENUM, AT(wire), "f32", 0, 0, TT_WIRE_CHOICES, "FORMAT",
     "rows to experts"},
    {"wire-back", 0, TT_OPTION_ENUM, AT(wire_back), "f32", 0, 0, TT_WIRE_CHOICES, "FORMAT",
     "results"},
    {"kv", 0, TT_OPTION_ENUM, AT(kv), "f32", 0, 0, TT_KV_CHOICES, "FORMAT",
     "cached keys and values"},
    {"deadline", 0, TT_OPTION_FLOAT, AT(deadline_s), "60", 0.1, 86400, NULL, "S",
     "seconds before a wait is given up"},
    {.name = NULL}};

typedef struct delay {
    double value;
    bool is_of_shared; /* in shared expert times instead of nanoseconds */
} delay;

/* This rank's totals over the timed blocks of a lane; what travels to rank 0. */
typedef struct totals {
    tt_phase_total phase[TT_PHASE_COUNT];
    uint64_t steps, bytes_read;
} totals;

typedef struct lane {
    bench_lane b;
    int64_t n_silent, n_tokens; /* sequences without a token yet; tokens of the last step */
    bool *has_spoken;           /* has_spoken[batch], rank 0 */
    uint64_t first_id;          /* request ids of a batch follow each other */
    totals totals;
    uint64_t *step_ns; /* step_ns[rounds * block], rank 0 */
} lane;

typedef struct bench {
    bench_rank r;
    settings s;
    int64_t batch[MAX_BATCHES], max_batch;
    int n_batches;
    delay delay[MAX_DELAYS];
    int n_delays;
    int64_t context;
    int64_t n_moe_layers;
    lane lane[MAX_LANES]; /* lane[0] has no delay and lives all the time */
    int n_lanes;
    double shared_ns; /* per layer, mean over ranks, at delay 0; NaN until measured */
} bench;

/* ---- options ---- */

/* Numbers parted by commas, each followed by at most a unit; unit_out may be NULL if none is
 * allowed. */
static int parse_list(const char *option, const char *text, int max_n, double *value_out,
                      char (*unit_out)[4])
{
    int n = 0;
    for (const char *at = text; *at; n++) {
        char *end;
        errno = 0;
        double value = strtod(at, &end);
        size_t unit = strcspn(end, ",");
        bool is_bad = end == at || errno || value < 0.0 || !isfinite(value) || n == max_n ||
                      unit > (unit_out ? 3 : 0);
        bench_must(is_bad ? TT_FAIL(TT_ERR_USAGE, "--%s %s: not a list of at most %d numbers",
                                    option, text, max_n)
                          : TT_OK);
        value_out[n] = value;
        if (unit_out) {
            memcpy(unit_out[n], end, unit);
            unit_out[n][unit] = 0;
        }
        at = end + unit + (end[unit] == ',');
    }
    return n;
}

static void read_lists(bench *b)
{
    double value[MAX_DELAYS > MAX_BATCHES ? MAX_DELAYS : MAX_BATCHES];
    char unit[MAX_DELAYS][4];
    b->n_batches = parse_list("batch", b->s.batch, MAX_BATCHES, value, NULL);
    bench_must(b->n_batches == 0 ? TT_FAIL(TT_ERR_USAGE, "--batch is empty") : TT_OK);
    for (int i = 0; i < b->n_batches; i++) {
        b->batch[i] = (int64_t)value[i];
        bench_must(b->batch[i] < 1 || b->batch[i] > 65536
                       ? TT_FAIL(TT_ERR_USAGE, "--batch %s: a batch is 1 to 65536", b->s.batch)
                       : TT_OK);
        b->max_batch = b->batch[i] > b->max_batch ? b->batch[i] : b->max_batch;
    }
    b->n_delays = parse_list("delays", b->s.delays, MAX_DELAYS, value, unit);
    for (int i = 0; i < b->n_delays; i++) {
        bool is_x = strcmp(unit[i], "x") == 0, is_us = strcmp(unit[i], "us") == 0;
        bench_must(!is_x && !is_us && value[i] != 0.0
                       ? TT_FAIL(TT_ERR_USAGE, "--delays %s: write 50us, or 0.5x", b->s.delays)
                       : TT_OK);
        b->delay[i] = (delay){is_x ? value[i] : value[i] * NS_PER_US, is_x};
        bench_must(is_x && i == 0 && value[i] != 0.0
                       ? TT_FAIL(TT_ERR_USAGE,
                                 "--delays %s: begin with 0, which measures what x is", b->s.delays)
                       : TT_OK);
    }
    bench_must(
        b->n_delays > 0 && getenv("TUTTI_INJECT_DELAY_US")
            ? TT_FAIL(TT_ERR_USAGE, "TUTTI_INJECT_DELAY_US is set: it would delay both lanes")
            : TT_OK);
}

/* ---- requests ---- */

static void on_output(void *arg, const tt_output *output)
{
    lane *l = arg;
    int64_t i = (int64_t)(output->request_id - l->first_id);
    l->n_tokens++;
    if (!l->has_spoken[i]) {
        l->has_spoken[i] = true;
        l->n_silent--;
    }
}

static void submit(bench *b, lane *l, int64_t batch)
{
    int64_t n_prompt = b->s.prompt;
    int32_t *prompt = malloc((size_t)n_prompt * sizeof(*prompt));
    l->has_spoken = calloc((size_t)batch, sizeof(*l->has_spoken));
    bench_must(prompt && l->has_spoken ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for prompts"));
    l->n_silent = batch;
    for (int64_t i = 0; i < batch; i++) {
        uint64_t seed = ((uint64_t)b->s.seed << 32) + (uint64_t)i, id;
        for (int64_t t = 0; t < n_prompt; t++) {
            prompt[t] = tt_engine_random_token(seed, t, tt_model_arch(b->r.model)->V);
        }
        tt_request request = {.prompt = prompt,
                              .n_prompt = n_prompt,
                              .max_new = b->context - n_prompt,
                              .sampling = {.seed = seed},
                              .n_made = n_prompt - 1,
                              .random_tokens = true};
        bench_must(tt_engine_submit(l->b.engine, &request, &id));
        l->first_id = i == 0 ? id : l->first_id;
    }
    free(prompt);
}

static bool step(lane *l)
{
    bool busy = false;
    l->n_tokens = 0;
    bench_must(tt_engine_step(l->b.engine, on_output, l, &busy));
    return busy;
}

/* Other ranks take part in what rank 0 does until it calls leave. */
static bool enter(const bench *b, lane *l)
{
    bench_must(tt_world_barrier(l->b.world));
    if (b->r.rank != 0) {
        bench_must(tt_engine_follow(l->b.engine));
    }
    return b->r.rank == 0;
}

static void leave(lane *l)
{
    bench_must(tt_engine_stop(l->b.engine));
}

/* Sequences in, until each of them has a token; then some steps more. */
static void start_batch(bench *b, lane *l, int64_t batch)
{
    if (b->r.rank == 0) {
        submit(b, l, batch);
    }
    if (enter(b, l)) {
        while (l->n_silent > 0) {
            step(l);
        }
        for (int64_t i = 0; i < b->s.warmup; i++) {
            step(l);
        }
        leave(l);
    }
}

static void end_batch(bench *b, lane *l, int64_t batch)
{
    if (enter(b, l)) {
        for (int64_t i = 0; i < batch; i++) {
            bench_must(tt_engine_cancel(l->b.engine, l->first_id + (uint64_t)i));
        }
        while (step(l)) {
        }
        leave(l);
        free(l->has_spoken);
        l->has_spoken = NULL;
    }
}

/* ---- timing ---- */

/* One block: a step that lets all ranks fall in, then timed ones. ns[block] on rank 0, or NULL. */
static void run_block(bench *b, lane *l, int64_t batch, uint64_t *ns)
{
    uint64_t read_before = tt_engine_get_figures(l->b.engine).bytes_read;
    tt_phase_reset();
    if (enter(b, l)) {
        step(l);
        uint64_t before = tt_now_ns();
        for (int64_t i = 0; i < b->s.block; i++) {
            step(l);
            uint64_t now = tt_now_ns();
            bench_must(l->n_tokens == batch
                           ? TT_OK
                           : TT_FAIL(TT_ERR_STATE, "a step gave %lld tokens to %lld sequences",
                                     (long long)l->n_tokens, (long long)batch));
            if (ns) {
                ns[i] = now - before;
            }
            before = now;
        }
        leave(l);
    }
    l->totals.steps += (uint64_t)b->s.block + 1;
    l->totals.bytes_read += tt_engine_get_figures(l->b.engine).bytes_read - read_before;
    for (int p = 0; p < TT_PHASE_COUNT; p++) {
        tt_phase_total now;
        tt_phase_get((tt_phase)p, &now);
        l->totals.phase[p].calls += now.calls;
        l->totals.phase[p].ns += now.ns;
        l->totals.phase[p].bytes += now.bytes;
    }
}

/* Rank 0's spans, then the others', each rank in its turn; the file must be one that all ranks
 * see. */
static void write_trace(bench *b, lane *l, int64_t batch)
{
    bench_must(tt_trace_enable(TRACE_SPANS));
    bench_must(tt_world_barrier(l->b.world));
    uint64_t origin_ns = tt_now_ns();
    run_block(b, l, batch, NULL);
    for (int r = 0; r < b->r.size; r++) {
        if (r == b->r.rank) {
            FILE *out = fopen(b->s.trace, r == 0 ? "w" : "a");
            bench_must(
                out ? TT_OK
                    : TT_FAIL(TT_ERR_IO, "%s cannot be written: %s", b->s.trace, strerror(errno)));
            fputs(r == 0 ? "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" : "", out);
            bench_must(tt_trace_write(out, r, tt_world_host(l->b.world, r), origin_ns));
            if (r == b->r.size - 1) {
                fputs("{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":0,\"args\":{\"labels\":"
                      "\"bench_delay\"}}\n]}\n",
                      out);
            }
            bench_must(fclose(out) == 0 ? TT_OK
                                        : TT_FAIL(TT_ERR_IO, "%s cannot be written", b->s.trace));
        }
        bench_must(tt_world_barrier(l->b.world));
    }
}

/* ---- what is printed ---- */

static void print_json(json_t *object)
{
    if (!object || json_dumpf(object, stdout, JSON_COMPACT) != 0) {
        bench_must(TT_FAIL(TT_ERR_NOMEM, "no memory for a line of JSON"));
    }
    putchar('\n');
    fflush(stdout);
    json_decref(object);
}

/* Every rank's value; the caller frees. MPI: collective. */
static void *gather(bench *b, const void *mine, size_t bytes)
{
    void *all = calloc((size_t)b->r.size, bytes);
    bench_must(all ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for %d ranks", b->r.size));
    bench_must(tt_world_allgather(b->lane[0].b.world, mine, bytes, all));
    return all;
}

static json_t *layout_json(const bench *b)
{
    const tt_layout *l = b->r.layout;
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:s}", "ranks", l->n_ranks, "nodes",
                     l->n_nodes, "dp", l->dp, "tp", l->tp, "groups", l->n_groups, "etp", l->etp,
                     "context", (json_int_t)l->context, "max_batch", (json_int_t)l->max_batch,
                     "why", l->why);
}

static json_t *model_json(const bench *b)
{
    const tt_arch *a = tt_model_arch(b->r.model);
    int64_t total = 0, active = 0;
    tt_model_count_parameters(b->r.model, &total, &active);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "path",
                     tt_model_path(b->r.model), "architecture", a->name, "layers", (json_int_t)a->L,
                     "moe_layers", (json_int_t)b->n_moe_layers, "hidden", (json_int_t)a->H, "heads",
                     (json_int_t)a->Nq, "vocabulary", (json_int_t)a->V, "experts", (json_int_t)a->E,
                     "chosen", (json_int_t)a->K, "expert_width", (json_int_t)a->F, "shared_width",
                     (json_int_t)a->F_shared, "parameters", (json_int_t)total, "active_parameters",
                     (json_int_t)active);
}

static json_t *machine_json(const bench *b)
{
    static const char *const modes[] = {"auto", "thread", "polled", "caller"};
    const tt_topology_info *i = tt_topology_get_info(b->r.topology);
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    MPI_Get_library_version(mpi, &n);
    mpi[strcspn(mpi, "\n")] = 0;
    return json_pack(
        "{s:s, s:s, s:i, s:i, s:f, s:i, s:b, s:s, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:b}",
        "host", tt_world_host(b->lane[0].b.world, 0), "cpu", tt_cpu_name(), "cores_of_rank_0",
        i->n_cores, "cpus_host", i->n_cpus_host, "cpu_quota", i->cpu_quota, "threads",
        tt_stream_n_threads(b->r.compute), "cores_shared", b->r.cpus.shared, "progress",
        modes[tt_world_progress_mode(b->lane[0].b.world)], "l3_bytes", (json_int_t)i->l3_bytes,
        "memory_bytes", (json_int_t)i->memory_bytes, "memory_available_bytes",
        (json_int_t)i->memory_available_bytes, "kernels", ttk_set_name(), "isa", ttk.isa,
        "compiler", TT_CONFIGURE_CC " " __VERSION__, "flags", TT_CONFIGURE_CFLAGS, "mpi", mpi,
        "debug_build", IS_DEBUG_BUILD);
}

static tt_layout_params layout_params(const bench *b)
{
    return (tt_layout_params){.dp = (int)b->s.dp,
                              .tp = (int)b->s.tp,
                              .ep = (int)b->s.ep,
                              .etp = (int)b->s.etp,
                              .max_batch = b->max_batch,
                              .prefill_chunk = b->s.chunk,
                              .context = b->context,
                              .weights = (tt_weight_format)b->s.weights,
                              /* auto: bench_rank_load */
                              .act = b->s.act == 0 ? TT_ACT_F32 : (tt_act)(b->s.act - 1),
                              .wire = (tt_wire)b->s.wire,
                              .wire_back = (tt_wire)b->s.wire_back,
                              .kv = (tt_kv_format)b->s.kv};
}

static void print_run(bench *b)
{
    if (b->r.rank == 0) {
        print_json(json_pack("{s:s, s:s, s:o, s:o, s:o}", "record", "run", "version",
                             PACKAGE_VERSION, "model", model_json(b), "layout", layout_json(b),
                             "machine", machine_json(b)));
    }
}

static json_t *phases_json(const bench *b, const totals *all)
{
    json_t *phases = json_object();
    for (int p = TT_PHASE_NONE + 1; p < TT_PHASE_COUNT; p++) {
        json_t *calls = json_array(), *ns = json_array(), *bytes = json_array();
        bool is_used = false;
        for (int r = 0; r < b->r.size; r++) {
            const tt_phase_total *t = &all[r].phase[p];
            json_array_append_new(calls, json_integer((json_int_t)t->calls));
            json_array_append_new(ns, json_integer((json_int_t)t->ns));
            json_array_append_new(bytes, json_integer((json_int_t)t->bytes));
            is_used = is_used || t->calls > 0;
        }
        json_t *phase = json_pack("{s:o, s:o, s:o}", "calls", calls, "ns", ns, "bytes", bytes);
        if (is_used) {
            json_object_set_new(phases, tt_phase_name((tt_phase)p), phase);
        } else {
            json_decref(phase);
        }
    }
    return phases;
}

/* Samples as one list per block, in nanoseconds. */
static json_t *samples_json(const bench *b, const lane *l, int64_t n_rounds)
{
    json_t *blocks = json_array();
    for (int64_t round = 0; round < n_rounds; round++) {
        json_t *block = json_array();
        for (int64_t i = 0; i < b->s.block; i++) {
            json_array_append_new(block,
                                  json_integer((json_int_t)l->step_ns[round * b->s.block + i]));
        }
        json_array_append_new(blocks, block);
    }
    return blocks;
}

static void print_measurement(bench *b, int64_t batch, int64_t n_rounds)
{
    json_t *lanes = json_array();
    for (int i = 0; i < b->n_lanes; i++) {
        lane *l = &b->lane[i];
        totals *all = gather(b, &l->totals, sizeof(l->totals));
        uint64_t bytes = 0, shared_ns = 0;
        for (int r = 0; r < b->r.size; r++) {
            bytes += all[r].bytes_read;
            shared_ns += all[r].phase[TT_PHASE_SHARED].ns;
        }
        double layers = (double)b->n_moe_layers * (double)l->totals.steps * (double)b->r.size;
        if (i == 0) {
            b->shared_ns = (double)shared_ns / layers; /* alike on all ranks */
        }
        if (b->r.rank == 0) {
            json_array_append_new(lanes,
                                  json_pack("{s:f, s:I, s:o, s:I, s:I, s:o}", "delay_us",
                                            (double)l->b.delay_ns / NS_PER_US, "overlap_rows",
                                            (json_int_t)l->b.layout.overlap_rows, "step_ns",
                                            samples_json(b, l, n_rounds), "steps_in_phases",
                                            (json_int_t)l->totals.steps, "bytes_read",
                                            (json_int_t)bytes, "phases", phases_json(b, all)));
        }
        free(all);
    }
    if (b->r.rank == 0) {
        print_json(json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "record", "steps", "batch",
                             (json_int_t)batch, "prompt", (json_int_t)b->s.prompt, "block",
                             (json_int_t)b->s.block, "rounds", (json_int_t)n_rounds, "lanes",
                             lanes));
    } else {
        json_decref(lanes);
    }
}

/* ---- one measurement ---- */

static void measure(bench *b, int64_t batch, bool is_last)
{
    int64_t n_rounds = 0;
    for (int i = 0; i < b->n_lanes; i++) {
        b->lane[i].totals = (totals){0};
        start_batch(b, &b->lane[i], batch);
    }
    for (; n_rounds < b->s.rounds; n_rounds++) {
        for (int i = 0; i < b->n_lanes; i++) {
            lane *l = &b->lane[(n_rounds + i) % b->n_lanes];
            run_block(b, l, batch, l->step_ns ? l->step_ns + n_rounds * b->s.block : NULL);
        }
    }
    print_measurement(b, batch, n_rounds);
    if (is_last && b->s.trace) {
        write_trace(b, &b->lane[b->n_lanes - 1], batch);
    }
    for (int i = 0; i < b->n_lanes; i++) {
        end_batch(b, &b->lane[i], batch);
    }
}

static void measure_delay(bench *b, int64_t batch, const delay *d, bool is_last)
{
    bool is_known = !d->is_of_shared || b->shared_ns > 0.0;
    bench_must(is_known ? TT_OK
                        : TT_FAIL(TT_ERR_USAGE,
                                  "no time of a shared expert was measured: write --delays in us"));
    int64_t delay_ns = (int64_t)(d->is_of_shared ? d->value * b->shared_ns : d->value);
    b->n_lanes = b->s.overlap_rows != 0 ? 3 : 2;
    for (int i = 1; i < b->n_lanes; i++) {
        bench_lane_open(&b->lane[i].b, &b->r, delay_ns);
        bench_lane_load(&b->lane[i].b, &b->r, i == 2 ? b->s.overlap_rows : 0);
    }
    /* x stays what the first pair, without a delay in either lane, has measured. */
    double shared_ns = b->shared_ns;
    measure(b, batch, is_last);
    b->shared_ns = isnan(shared_ns) ? b->shared_ns : shared_ns;
    for (int i = 1; i < b->n_lanes; i++) {
        bench_lane_close(&b->lane[i].b);
    }
    b->n_lanes = 1;
}

/* Steps that a measurement takes, and so the context. */
static void size_up(bench *b, const char *path)
{
    tt_model *model = NULL;
    bench_model_open(path, (tt_weight_format)b->s.weights, &model);
    int64_t traced = b->s.trace ? 1 : 0, starting = SPARE_STEPS + b->max_batch / SPARE_STEPS;
    b->context = b->s.prompt + starting + b->s.warmup + (b->s.rounds + traced) * (b->s.block + 1);
    bench_must(
        b->context <= tt_model_arch(model)->context
            ? TT_OK
            : TT_FAIL(
                  TT_ERR_USAGE,
                  "%lld rounds of %lld steps do not fit behind %lld tokens: the context is %lld",
                  (long long)b->s.rounds, (long long)b->s.block, (long long)b->s.prompt,
                  (long long)tt_model_arch(model)->context));
    for (int64_t l = 0; l < tt_model_arch(model)->L; l++) {
        b->n_moe_layers += tt_model_arch(model)->layer[l].is_moe;
    }
    tt_model_close(&model);
}

static void run(bench *b, const char *path)
{
    size_up(b, path);
    b->n_lanes = 1;
    bench_lane_open(&b->lane[0].b, &b->r, 0);
    b->r.default_act = b->s.act == 0;
    bench_rank_load(&b->r, path, layout_params(b), b->lane[0].b.world);
    bench_lane_load(&b->lane[0].b, &b->r, 0);
    for (int i = 0; i < MAX_LANES && b->r.rank == 0; i++) {
        b->lane[i].step_ns = calloc((size_t)(b->s.rounds * b->s.block), sizeof(uint64_t));
        bench_must(b->lane[i].step_ns ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for samples"));
    }
    print_run(b);
    for (int i = 0; i < b->n_batches; i++) {
        b->shared_ns = (double)NAN;
        for (int d = 0; d < b->n_delays; d++) {
            measure_delay(b, b->batch[i], &b->delay[d],
                          i == b->n_batches - 1 && d == b->n_delays - 1);
        }
    }
    bench_lane_close(&b->lane[0].b);
    for (int i = 0; i < MAX_LANES; i++) {
        free(b->lane[i].step_ns);
    }
}

int main(int argc, char **argv)
{
    static bench b;
    static const tt_option *const tables[] = {options, NULL};
    const char **positional = calloc((size_t)argc, sizeof(*positional));
    int n_positional = 0;
    if (!positional) {
        return 1;
    }
    tt_status status = tt_options_parse(tables, &b.s, argc, argv, positional, &n_positional);
    if (status == TT_OK && !b.s.help && n_positional != 1) {
        status = TT_FAIL(TT_ERR_USAGE, "one MODEL is wanted, not %d", n_positional);
    }
    if (status != TT_OK || b.s.help) {
        fprintf(b.s.help ? stdout : stderr, "%s%susage: bench_delay [options] MODEL\n",
                status != TT_OK ? tt_status_message() : "", status != TT_OK ? "\n" : "");
        tt_options_help(options, b.s.help ? stdout : stderr);
        free(positional);
        return tt_status_exit_code(status);
    }
    bench_rank_begin(&b.r, b.s.overlap_rows != 0 ? MAX_LANES : MAX_LANES - 1, (int)b.s.threads,
                     (tt_progress)b.s.progress, b.s.deadline_s);
    read_lists(&b);
    run(&b, positional[0]);
    free(positional);
    bench_rank_end(&b.r);
    return 0;
}
