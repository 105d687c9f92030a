/* bench_report.c - what `tutti bench` says: one object a line (--json), or a table for people. Each
 * speed stands beside the machine's limits, which were measured in the same run. */
#include "config.h"
#include "bench.h"
#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include "describe.h"
#include "tutti/cpu.h"
#include "tutti/load.h"
#include "ttk.h"

#define BYTES_PER_GB 1e9
#define BYTES_PER_MB 1e6
#define NS_PER_MS 1e6
enum { SHOWN_PHASES = 8, PER_MULTIPLY_ADD = 2 };

/* ---- figures ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median, least and most of n samples; n >= 1. */
static void sort_out(const double *sample, int64_t n, double *median, double *least, double *most)
{
    double *sorted = malloc((size_t)n * sizeof(*sorted));
    *median = *least = *most = sample[0];
    if (!sorted) {
        return; /* rather one sample than none */
    }
    memcpy(sorted, sample, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), compare_doubles);
    *least = sorted[0];
    *most = sorted[n - 1];
    *median = n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
    free(sorted);
}

/* Multiplications and additions of one token's products with weights (attention over keys comes on
 * top). */
static double token_operations(const tt_model *model, bool with_head)
{
    const tt_arch *a = tt_model_arch(model);
    int64_t total = 0, active = 0, table = a->V * a->H;
    tt_model_count_parameters(model, &total, &active);
    active -= a->tied_embeddings ? 0 : table; /* looked up, not multiplied */
    active -= with_head ? 0 : table;
    return (double)PER_MULTIPLY_ADD * (double)active;
}

/* Which arithmetic the most of the products are: of bytes where rows enter them as such, of bf16 in
 * the kernel set for that, else of floats. */
typedef enum arithmetic { ARITHMETIC_FMA, ARITHMETIC_INT8, ARITHMETIC_BF16 } arithmetic;
static const char *const arithmetic_names[] = {"fma", "int8", "bf16"};

static arithmetic arithmetic_of(const tti_bench *b)
{
    return b->session.layout->act == TT_ACT_INT8     ? ARITHMETIC_INT8
           : strcmp(ttk_set_name(), "amx-bf16") == 0 ? ARITHMETIC_BF16
                                                     : ARITHMETIC_FMA;
}

static double peak_of(const tt_limits *limits, arithmetic kind)
{
    return kind == ARITHMETIC_INT8   ? limits->int8_per_s
           : kind == ARITHMETIC_BF16 ? limits->bf16_per_s
                                     : limits->fma_per_s;
}

/* Of all ranks: reads, or operations. */
static double sum_limits(const tti_bench *b, bool is_peak)
{
    double sum = 0;
    for (int r = 0; r < b->launch->size; r++) {
        const tt_limits *l = &b->limits[r];
        double mine = is_peak ? peak_of(l, arithmetic_of(b)) : tt_limits_read(l);
        if (mine <= 0) {
            return 0;
        }
        sum += mine;
    }
    return sum;
}

tti_bench_figures tti_bench_figure(const tti_bench *b, const tti_bench_result *result)
{
    const tti_bench_case *what = &result->what;
    const tt_arch *a = tt_model_arch(b->session.model);
    double tokens = (double)what->tokens * (double)what->batch, median, least, most;
    sort_out(result->sample_s, result->n_samples, &median, &least, &most);
    double bytes = 0, kv = 0, touched = 0, steps = (double)result->of_rank[0].steps;
    for (int r = 0; r < b->launch->size; r++) {
        bytes += (double)result->of_rank[r].bytes_read;
        kv += (double)result->of_rank[r].kv_bytes_read;
        touched += (double)result->of_rank[r].experts_touched;
    }
    double all_tokens = tokens * (double)result->n_samples;
    tti_bench_figures f = {.tokens_per_s = tokens / median,
                           .least = tokens / most,
                           .most = tokens / least,
                           .ms_per_step = 1e3 * median * (double)result->n_samples / steps,
                           .bytes_per_token = bytes / all_tokens,
                           .kv_bytes_per_token = kv / all_tokens};
    double read = sum_limits(b, false), peak = sum_limits(b, true);
    f.read_bytes_per_s = f.bytes_per_token * f.tokens_per_s;
    f.share_of_read = read > 0 ? f.read_bytes_per_s / read : 0;
    f.operations_per_s = token_operations(b->session.model, !what->is_prefill) * f.tokens_per_s;
    f.share_of_peak = peak > 0 ? f.operations_per_s / peak : 0;
    if (!what->is_prefill && b->n_moe_layers > 0) {
        f.experts = touched / steps / (double)b->n_moe_layers;
        f.experts_uniform =
            (double)a->E * (1.0 - pow(1.0 - (double)a->K / (double)a->E, (double)what->batch));
    }
    return f;
}

void tti_bench_name(const tti_bench_case *what, char name[TTI_BENCH_NAME_BYTES])
{
    snprintf(name, TTI_BENCH_NAME_BYTES, "%s%lld", what->is_prefill ? "pp" : "tg",
             (long long)what->tokens);
}

/* ---- JSON ---- */

static tt_status print_line(json_t *object)
{
    TT_CHECK(object, TT_ERR_NOMEM, "no memory for a line of JSON");
    int bad = json_dumpf(object, stdout, JSON_COMPACT);
    json_decref(object);
    fputc('\n', stdout);
    TT_CHECK(bad == 0, TT_ERR_IO, "stdout cannot be written: %s", strerror(errno));
    return tti_cli_flush_stdout();
}

static json_t *model_json(const tti_bench *b)
{
    const tt_model *model = b->session.model;
    const tt_arch *a = tt_model_arch(model);
    int64_t total = 0, active = 0;
    tt_model_count_parameters(model, &total, &active);
    return json_pack("{s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
                     "path", tt_model_path(model), "made", tt_model_is_made(model), "architecture",
                     a->name, "layers", (json_int_t)a->L, "moe_layers", (json_int_t)b->n_moe_layers,
                     "hidden", (json_int_t)a->H, "heads", (json_int_t)a->Nq, "vocabulary",
                     (json_int_t)a->V, "experts", (json_int_t)a->E, "experts_per_token",
                     (json_int_t)a->K, "expert_width", (json_int_t)a->F, "shared_width",
                     (json_int_t)a->F_shared, "parameters", (json_int_t)total, "active_parameters",
                     (json_int_t)active, "tensors", tti_cli_formats_json(model));
}

static json_t *machine_json(const tti_bench *b)
{
    static const char *const modes[] = {"auto", "thread", "polled", "caller"};
    const tt_topology_info *i = tt_topology_get_info(b->launch->topology);
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    MPI_Get_library_version(mpi, &n);
    mpi[strcspn(mpi, "\n")] = 0;
    return json_pack(
        "{s:s, s:s, s:i, s:i, s:f, s:i, s:b, s:s, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:b}",
        "host", tt_world_host(b->launch->world, 0), "cpu", tt_cpu_name(), "cores_of_rank_0",
        i->n_cores, "cpus_host", i->n_cpus_host, "cpu_quota", i->cpu_quota, "threads",
        tt_stream_n_threads(b->session.compute), "cores_shared", b->launch->cpus.shared, "progress",
        modes[tt_world_progress_mode(b->launch->world)], "l3_bytes", (json_int_t)i->l3_bytes,
        "memory_bytes", (json_int_t)i->memory_bytes, "memory_available_bytes",
        (json_int_t)i->memory_available_bytes, "kernels", ttk_set_name(), "isa", ttk.isa,
        "compiler", TT_CONFIGURE_CC " " __VERSION__, "flags", TT_CONFIGURE_CFLAGS, "mpi", mpi,
        "debug_build", TT_DEBUG);
}

static json_t *limits_json(const tti_bench *b)
{
    json_t *ranks = json_array();
    for (int r = 0; r < b->launch->size; r++) {
        const tt_limits *l = &b->limits[r];
        json_array_append_new(
            ranks, json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "buffer_bytes",
                             (json_int_t)l->buffer_bytes, "sum_bytes_per_s", l->sum_bytes_per_s,
                             "triad_bytes_per_s", l->triad_bytes_per_s, "fma_per_s", l->fma_per_s,
                             "int8_per_s", l->int8_per_s, "bf16_per_s", l->bf16_per_s));
    }
    return json_pack("{s:f, s:f, s:s, s:o}", "read_bytes_per_s", sum_limits(b, false),
                     "operations_per_s", sum_limits(b, true), "operations",
                     arithmetic_names[arithmetic_of(b)], "ranks", ranks);
}

/* ---- memory ---- */

/* What the ranks say they hold, in all. */
typedef struct stated {
    double weights, kv, buffers, windows, before; /* before: the program and MPI */
} stated;

static double resident_of(const tti_cli_resident *r)
{
    return (double)(r->pss_bytes > 0 ? r->pss_bytes : r->rss_bytes);
}

static tt_status state_memory(const tti_bench *b, stated *s)
{
    *s = (stated){0};
    for (int r = 0; r < b->launch->size; r++) {
        tt_rank_memory plan;
        TT_TRY(tt_plan_memory(b->session.model, b->session.layout, r, &plan));
        const tti_cli_rank_load *load = &b->session.load[r];
        double own = (double)load->packed_bytes - (double)load->shared_bytes;
        s->weights += (double)load->packed_bytes;
        s->kv += (double)plan.kv_bytes;
        s->buffers += (double)b->loaded[r].held_bytes - (double)b->before[r].held_bytes - own -
                      (double)plan.kv_bytes;
        s->windows += (double)b->loaded[r].window_bytes - (double)b->before[r].window_bytes;
        s->before += resident_of(&b->before[r]);
    }
    return TT_OK;
}

static double all_stated(const stated *s)
{
    return s->weights + s->kv + s->buffers + s->windows + s->before;
}

static double sum_resident(const tti_bench *b, const tti_cli_resident *of_rank)
{
    double sum = 0;
    for (int r = 0; r < b->launch->size; r++) {
        sum += resident_of(&of_rank[r]);
    }
    return sum;
}

static json_t *resident_json(const tti_bench *b, const tti_cli_resident *of_rank, const stated *s)
{
    json_t *ranks = json_array();
    for (int r = 0; r < b->launch->size; r++) {
        json_array_append_new(ranks, json_pack("{s:I, s:I, s:I, s:I}", "rss_bytes",
                                               (json_int_t)of_rank[r].rss_bytes, "rss_most_bytes",
                                               (json_int_t)of_rank[r].rss_most_bytes, "pss_bytes",
                                               (json_int_t)of_rank[r].pss_bytes, "held_bytes",
                                               (json_int_t)of_rank[r].held_bytes));
    }
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "resident_bytes",
                     sum_resident(b, of_rank), "stated_bytes", all_stated(s), "weight_bytes",
                     s->weights, "kv_bytes", s->kv, "buffer_bytes", s->buffers, "window_bytes",
                     s->windows, "program_bytes", s->before, "ranks", ranks);
}

static void print_resident(const tti_bench *b, const char *when, const tti_cli_resident *of_rank,
                           const stated *s)
{
    printf(
        "memory    %.1f MiB resident %s; stated %.1f: weights %.1f, KV %.1f (comes as it is used), buffers %.1f, exchange %.1f, program and MPI "
        "%.1f\n",
        sum_resident(b, of_rank) / TTI_CLI_MIB, when, all_stated(s) / TTI_CLI_MIB,
        s->weights / TTI_CLI_MIB, s->kv / TTI_CLI_MIB, s->buffers / TTI_CLI_MIB,
        s->windows / TTI_CLI_MIB, s->before / TTI_CLI_MIB);
}

/* ---- the run ---- */

static void print_heading(const tti_bench *b)
{
    const tt_model *model = b->session.model;
    const tt_arch *a = tt_model_arch(model);
    const tt_layout *layout = b->session.layout;
    const tt_limits *l = &b->limits[0];
    int64_t total = 0, active = 0;
    int size = b->launch->size, threads = tt_stream_n_threads(b->session.compute);
    tt_model_count_parameters(model, &total, &active);
    printf("model     %s: %lld layers, %.2f G parameters, %.2f G of them for a token\n",
           tt_model_path(model), (long long)a->L, (double)total / BYTES_PER_GB,
           (double)active / BYTES_PER_GB);
    tti_cli_print_layout(stdout, layout, 10);
    printf("\n");
    printf("machine   %s; %d rank%s of %d thread%s\n", tt_cpu_name(), size, size == 1 ? "" : "s",
           threads, threads == 1 ? "" : "s");
    printf(
        "limits    %.2f GB/s of reads (rank 0: sum %.2f, triad %.2f over %.0f MiB), %.1f GOP/s (%s)\n",
        sum_limits(b, false) / BYTES_PER_GB, l->sum_bytes_per_s / BYTES_PER_GB,
        l->triad_bytes_per_s / BYTES_PER_GB, (double)l->buffer_bytes / TTI_CLI_MIB,
        sum_limits(b, true) / BYTES_PER_GB, arithmetic_names[arithmetic_of(b)]);
}

tt_status tti_bench_print_run(const tti_bench *b)
{
    stated s;
    TT_TRY(state_memory(b, &s));
    if (b->options.json) {
        return print_line(
            json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:I}", "record", "run", "version",
                      PACKAGE_VERSION, "model", model_json(b), "layout",
                      tti_cli_layout_json(b->session.layout), "machine", machine_json(b), "limits",
                      limits_json(b), "load", tti_cli_load_json(&b->session), "memory",
                      resident_json(b, b->loaded, &s), "repeat", (json_int_t)b->options.repeat));
    }
    print_heading(b);
    double seconds = 0, packed = 0;
    for (int r = 0; r < b->launch->size; r++) {
        seconds = b->session.load[r].seconds > seconds ? b->session.load[r].seconds : seconds;
        packed += (double)b->session.load[r].packed_bytes;
    }
    printf("load      %.1f MiB of weights %s in %.2f s, %.2f GB/s\n", packed / TTI_CLI_MIB,
           tt_model_is_made(b->session.model) ? "made" : "packed", seconds,
           seconds > 0 ? packed / seconds / BYTES_PER_GB : 0.0);
    print_resident(b, "after loading", b->loaded, &s);
    printf("\n%-8s %6s %7s %10s %21s %9s %10s %8s %6s %6s  %s\n", "test", "batch", "depth",
           "tokens/s", "[least .. most]", "ms/step", "MB/token", "GB/s", "reads", "peak",
           "experts/layer");
    return tti_cli_flush_stdout();
}

tt_status tti_bench_print_end(const tti_bench *b)
{
    stated s;
    TT_TRY(state_memory(b, &s));
    if (b->options.json) {
        return print_line(
            json_pack("{s:s, s:o}", "record", "end", "memory", resident_json(b, b->at_end, &s)));
    }
    printf(
        "\nreads: share of the read limit; peak: share of the arithmetic limit, products with weights only; experts/layer: distinct ones that a "
        "step had rows for, beside what uniform routing would give\n");
    print_resident(b, "at the end", b->at_end, &s);
    return tti_cli_flush_stdout();
}

/* ---- a result ---- */

/* Milliseconds per step of a phase, on the rank where it is most. */
static double phase_ms(const tti_bench *b, const tti_bench_result *result, int phase)
{
    double most = 0;
    for (int r = 0; r < b->launch->size; r++) {
        const tti_bench_totals *t = &result->of_rank[r];
        double ms = t->steps > 0 ? (double)t->phase[phase].ns / NS_PER_MS / (double)t->steps : 0;
        most = ms > most ? ms : most;
    }
    return most;
}

static json_t *phases_json(const tti_bench *b, const tti_bench_result *result)
{
    json_t *phases = json_object();
    for (int p = TT_PHASE_NONE + 1; p < TT_PHASE_COUNT; p++) {
        json_t *calls = json_array(), *ns = json_array(), *bytes = json_array();
        bool is_used = false;
        for (int r = 0; r < b->launch->size; r++) {
            const tt_phase_total *t = &result->of_rank[r].phase[p];
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

/* Seconds of each sample; of decoding also the nanoseconds of each step. */
static void add_samples(const tti_bench_result *result, json_t *object)
{
    json_t *samples = json_array(), *steps = json_array();
    int64_t n_steps = result->what.is_prefill ? 0 : result->what.tokens;
    for (int64_t i = 0; i < result->n_samples; i++) {
        json_t *of_sample = json_array();
        json_array_append_new(samples, json_real(result->sample_s[i]));
        for (int64_t j = 0; j < n_steps; j++) {
            json_array_append_new(of_sample,
                                  json_integer((json_int_t)result->step_ns[i * n_steps + j]));
        }
        json_array_append_new(steps, of_sample);
    }
    json_object_set_new(object, "sample_s", samples);
    if (n_steps > 0) {
        json_object_set_new(object, "step_ns", steps);
    } else {
        json_decref(steps);
    }
}

static tt_status print_json(const tti_bench *b, const tti_bench_result *result,
                            const tti_bench_figures *f)
{
    char name[TTI_BENCH_NAME_BYTES], drawn[32];
    const tti_bench_case *what = &result->what;
    tti_bench_name(what, name);
    snprintf(drawn, sizeof(drawn), "%016llx", (unsigned long long)result->drawn);
    json_t *line = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:s, s:o}",
        "record", what->is_prefill ? "prefill" : "decode", "test", name, "tokens",
        (json_int_t)what->tokens, "batch", (json_int_t)what->batch, "depth",
        (json_int_t)what->depth, "tokens_per_s", f->tokens_per_s, "tokens_per_s_least", f->least,
        "tokens_per_s_most", f->most, "ms_per_step", f->ms_per_step, "bytes_per_token",
        f->bytes_per_token, "kv_bytes_per_token", f->kv_bytes_per_token, "read_bytes_per_s",
        f->read_bytes_per_s, "share_of_read", f->share_of_read, "operations_per_s",
        f->operations_per_s, "share_of_peak", f->share_of_peak, "steps",
        (json_int_t)result->of_rank[0].steps, "steps_in_parts",
        (json_int_t)result->of_rank[0].steps_in_parts, "drawn", drawn, "phases",
        phases_json(b, result));
    if (line && !what->is_prefill && b->n_moe_layers > 0) {
        json_object_set_new(line, "experts_per_layer", json_real(f->experts));
        json_object_set_new(line, "experts_per_layer_uniform", json_real(f->experts_uniform));
    }
    if (line) {
        add_samples(result, line);
    }
    return print_line(line);
}

/* The phases that take most of a step, longest first. */
static void print_phases(const tti_bench *b, const tti_bench_result *result)
{
    bool is_shown[TT_PHASE_COUNT] = {false};
    double step = phase_ms(b, result, TT_PHASE_STEP);
    printf("         ");
    for (int shown = 0; shown < SHOWN_PHASES; shown++) {
        int best = TT_PHASE_NONE;
        for (int p = TT_PHASE_NONE + 1; p < TT_PHASE_STEP; p++) {
            bool is_more =
                best == TT_PHASE_NONE || phase_ms(b, result, p) > phase_ms(b, result, best);
            best = !is_shown[p] && is_more ? p : best;
        }
        double ms = phase_ms(b, result, best);
        if (best == TT_PHASE_NONE || ms <= 0.005 * step) {
            break;
        }
        is_shown[best] = true;
        printf("%s %s %.2f ms", shown ? "," : "", tt_phase_name((tt_phase)best), ms);
    }
    fputc('\n', stdout);
}

/* "12 %", or "-" where it is not known. */
static void print_share(double share)
{
    if (share > 0) {
        printf(" %4.0f %%", 100 * share);
    } else {
        printf(" %6s", "-");
    }
}

tt_status tti_bench_print_result(const tti_bench *b, const tti_bench_result *result)
{
    tti_bench_figures f = tti_bench_figure(b, result);
    if (b->options.json) {
        return print_json(b, result, &f);
    }
    char name[TTI_BENCH_NAME_BYTES], range[32];
    tti_bench_name(&result->what, name);
    snprintf(range, sizeof(range), "[%.1f .. %.1f]", f.least, f.most);
    printf("%-8s %6lld %7lld %10.1f %21s %9.2f %10.2f %8.2f", name, (long long)result->what.batch,
           (long long)result->what.depth, f.tokens_per_s, range, f.ms_per_step,
           f.bytes_per_token / BYTES_PER_MB, f.read_bytes_per_s / BYTES_PER_GB);
    print_share(f.share_of_read);
    print_share(f.share_of_peak);
    if (f.experts_uniform > 0) {
        printf("  %.1f (%.1f)", f.experts, f.experts_uniform);
    }
    fputc('\n', stdout);
    print_phases(b, result);
    return tti_cli_flush_stdout();
}
