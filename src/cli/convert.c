/* convert.c - `tutti convert MODEL OUT`: a packed checkpoint, without MPI. */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT */
#include "config.h"
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>
#include "cli.h"
#include "tutti/convert.h"
#include "tutti/trace.h"

enum { MAX_THREADS = 64 };
#define NS_PER_S 1e9
#define BYTES_PER_GB 1e9

typedef struct bar {
    bool shows;
    int percent;
} bar;

static void show(void *arg, uint64_t written_bytes, uint64_t total_bytes)
{
    bar *b = arg;
    int percent = (int)(100.0 * (double)written_bytes / (double)total_bytes);
    if (b->shows && percent != b->percent) {
        b->percent = percent;
        fprintf(stderr, "\rconverting %3d %%  %.1f of %.1f MiB ", percent,
                (double)written_bytes / TTI_CLI_MIB, (double)total_bytes / TTI_CLI_MIB);
    }
}

static int count_threads(const tti_cli_options *options)
{
    cpu_set_t set;
    int n = options->threads > 0                           ? (int)options->threads
            : sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
                                                           : 1;
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}

/* One object on stdout. */
static tt_status print_json(const char *path, const char *out, uint64_t bytes, double s)
{
    json_t *json = json_pack("{s:s, s:s, s:I, s:f}", "model", path, "out", out, "bytes",
                             (json_int_t)bytes, "seconds", s);
    TT_CHECK(json, TT_ERR_NOMEM, "no memory for a line of JSON, or a path is not UTF-8");
    json_dumpf(json, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(json);
    return tti_cli_flush_stdout();
}

static tt_status convert(const tti_cli_options *options, const char *path, const char *out)
{
    tt_model *model = NULL;
    tt_stream *compute = NULL;
    uint64_t bytes = 0, begin_ns = tt_now_ns();
    bar b = {.shows = !options->quiet && isatty(STDERR_FILENO), .percent = -1};
    TT_TRY(tt_model_open(path, &model));
    tt_stream_params stream = {
        .name = "pack", .n_threads = count_threads(options), .join_caller = true};
    tt_status st = tt_stream_create(&stream, &compute);
    if (st == TT_OK) {
        tt_convert_params params = {.model = model,
                                    .out = out,
                                    .weights = (tt_weight_format)options->weights,
                                    .compute = compute,
                                    .progress = show,
                                    .progress_arg = &b};
        st = tt_convert(&params, &bytes);
    }
    if (b.percent >= 0) {
        fprintf(stderr, "\r%60s\r", "");
    }
    double s = (double)(tt_now_ns() - begin_ns) / NS_PER_S;
    if (st == TT_OK && options->json) {
        st = print_json(path, out, bytes, s);
    } else if (st == TT_OK && !options->quiet) {
        fprintf(stderr, "converted %.1f MiB in %.2f s, %.2f GB/s\n", (double)bytes / TTI_CLI_MIB, s,
                s > 0 ? (double)bytes / s / BYTES_PER_GB : 0.0);
    }
    tt_stream_destroy(&compute);
    tt_model_close(&model);
    return st;
}

int tti_cli_convert(const tti_cli_call *call)
{
    tt_status st =
        call->n_words == 2
            ? convert(call->options, call->word[0], call->word[1])
            : TT_FAIL(TT_ERR_USAGE,
                      "convert needs MODEL and OUT: tutti convert models/tiny-moe packed");
    return st == TT_OK ? 0 : tti_cli_fail_alone(st);
}
