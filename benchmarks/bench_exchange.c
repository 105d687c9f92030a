/* bench_exchange.c - the exchange beside what MPI itself offers: rows to experts and results back,
 * on the same ranks, rows and choices.
 *
 * All ways take turns within each round, and all begin at a barrier; a time is that of the slowest
 * rank. Every run is checked: rows are small integers, so sums are exact whatever their order.
 * Bytes between nodes are the exchange's own counters, beside the least that the load needs. Limits
 * of the same run: MPI between pairs of ranks on different nodes, all pairs at once, and memcpy of
 * all ranks at once. */
#define _GNU_SOURCE
#include "config.h"
#include "bench_rank.h"
#include "exchange/load.h"
#include "exchange/ways.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIST = 16, MAX_WAYS = 6 };

typedef struct settings {
    bool help, json;
    const char *tokens, *hidden, *loads, *svg;
    int64_t top_k, experts, chunk, rounds, warmup, seed, threads;
    int wire, wire_back;
    double deadline_s;
} settings;

#define AT(field) offsetof(settings, field)
static const tt_option options[] = {
    {"help", 'h', TT_OPTION_FLAG, AT(help), NULL, 0, 0, NULL, NULL, "print this help"},
    {"tokens", 't', TT_OPTION_STRING, AT(tokens), "1,16,128", 0, 0, NULL, "LIST",
     "most tokens of a rank"},
    {"hidden", 'H', TT_OPTION_STRING, AT(hidden), "2048", 0, 0, NULL, "LIST", "row widths"},
    {"top-k", 'k', TT_OPTION_INT, AT(top_k), "8", 1, 64, NULL, "K", "experts of a token"},
    {"experts", 'e', TT_OPTION_INT, AT(experts), "128", 1, 65536, NULL, "E", "over all ranks"},
    {"loads", 0, TT_OPTION_STRING, AT(loads), "balanced", 0, 0, NULL, "LIST",
     "balanced, zipf, hot-expert, hot-rank, idle-rank, ragged; all = every one"},
    {"wire", 0, TT_OPTION_ENUM, AT(wire), "bf16", 0, 0, TT_WIRE_CHOICES, "FORMAT",
     "rows to experts"},
    {"wire-back", 0, TT_OPTION_ENUM, AT(wire_back), "bf16", 0, 0, TT_WIRE_CHOICES, "FORMAT",
     "results"},
    {"chunk", 0, TT_OPTION_INT, AT(chunk), "0", 0, 1e6, NULL, "N",
     "tokens that the exchange sends at once, 0 = all"},
    {"rounds", 'r', TT_OPTION_INT, AT(rounds), "20", 1, 1e6, NULL, "N", "timed turns of each way"},
    {"warmup", 0, TT_OPTION_INT, AT(warmup), "2", 0, 1e6, NULL, "N", "turns before"},
    {"threads", 0, TT_OPTION_INT, AT(threads), "1", 1, 1024, NULL, "N", "that copy, of a rank"},
    {"seed", 0, TT_OPTION_INT, AT(seed), "1", 0, 9e18, NULL, "N", "of the choices"},
    {"deadline", 0, TT_OPTION_FLOAT, AT(deadline_s), "60", 0.1, 86400, NULL, "S",
     "seconds before a wait is given up"},
    {"svg", 0, TT_OPTION_STRING, AT(svg), NULL, 0, 0, NULL, "FILE",
     "a map of who waited for whom, of the last load"},
    {"json", 0, TT_OPTION_FLAG, AT(json), NULL, 0, 0, NULL, NULL,
     "an object a line and nothing else"},
    {.name = NULL}};

/* What the slowest rank took in each round. */
typedef struct samples {
    double *dispatch_s, *all_s;
    tt_exchange_counters before, after; /* of the exchange: around the timed rounds, this rank */
    int64_t wrong;
} samples;

typedef struct bench {
    bench_rank r;
    settings s;
    tt_world *world;
    int *node_of_rank;
    double link_bytes_per_s, copy_bytes_per_s; /* of all ranks together */
} bench;

/* ---- options ---- */

static int parse_numbers(const char *option, const char *text, int64_t *value)
{
    int n = 0;
    for (const char *at = text; *at; n++) {
        char *end;
        errno = 0;
        const long long number = strtoll(at, &end, 10);
        const bool is_bad = end == at || errno || number < 1 || number > 1000000 || n == MAX_LIST ||
                            (*end && *end != ',');
        bench_must(is_bad ? TT_FAIL(TT_ERR_USAGE,
                                    "--%s %s: not a list of at most %d numbers from 1 to 1000000",
                                    option, text, MAX_LIST)
                          : TT_OK);
        value[n] = number;
        at = end + (*end == ',');
    }
    return n;
}

static int parse_loads(const char *text, load_kind *kind)
{
    if (strcmp(text, "all") == 0) {
        for (int i = 0; i < LOAD_KINDS; i++) {
            kind[i] = (load_kind)i;
        }
        return LOAD_KINDS;
    }
    int n = 0;
    for (const char *at = text; *at; n++) {
        const size_t length = strcspn(at, ",");
        int i = 0;
        while (i < LOAD_KINDS &&
               (strlen(load_names[i]) != length || strncmp(load_names[i], at, length) != 0)) {
            i++;
        }
        bench_must(i == LOAD_KINDS || n == LOAD_KINDS
                       ? TT_FAIL(TT_ERR_USAGE,
                                 "--loads %s: '%.*s' is none of the loads, or there are too many",
                                 text, (int)length, at)
                       : TT_OK);
        kind[n] = (load_kind)i;
        at += length + (at[length] == ',');
    }
    return n;
}

/* ---- limits ---- */

static double median(double *value, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        for (int64_t j = i; j > 0 && value[j] < value[j - 1]; j--) {
            const double swap = value[j];
            value[j] = value[j - 1];
            value[j - 1] = swap;
        }
    }
    return n % 2 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
}

static double slowest(double mine)
{
    double all = 0.0;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

/* The next rank, round the ring, that is on another node, by the same step for all of a node's
 * ranks; -1 = there is none. */
static int far_partner(const bench *b, int direction)
{
    for (int step = 1; step < b->r.size; step++) {
        const int other = (b->r.rank + direction * step + b->r.size * b->r.size) % b->r.size;
        bool all_far = true; /* a step that serves everybody pairs everybody */
        for (int r = 0; r < b->r.size; r++) {
            all_far = all_far && b->node_of_rank[(r + step) % b->r.size] != b->node_of_rank[r];
        }
        if (all_far) {
            return other;
        }
    }
    return -1;
}

/* Bytes per second that all ranks together send to other nodes, in messages of this size, both
 * directions at once. 0 = one node. */
static double measure_link(const bench *b, size_t bytes)
{
    enum { TURNS = 9, IN_FLIGHT = 4 };
    const int to = far_partner(b, 1), from = far_partner(b, -1);
    if (to < 0) {
        return 0.0;
    }
    unsigned char *out = bench_alloc(bytes, 1), *in = bench_alloc(bytes, IN_FLIGHT);
    double taken[TURNS];
    for (int turn = -1; turn < TURNS; turn++) { /* the first to get going */
        MPI_Request request[2 * IN_FLIGHT];
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        for (int i = 0; i < IN_FLIGHT; i++) {
            MPI_Irecv(in + (size_t)i * bytes, (int)bytes, MPI_BYTE, from, i, MPI_COMM_WORLD,
                      &request[i]);
            MPI_Isend(out, (int)bytes, MPI_BYTE, to, i, MPI_COMM_WORLD, &request[IN_FLIGHT + i]);
        }
        MPI_Waitall(2 * IN_FLIGHT, request, MPI_STATUSES_IGNORE);
        const double all = slowest(MPI_Wtime() - begin);
        if (turn >= 0) {
            taken[turn] = all;
        }
    }
    free(out);
    free(in);
    return (double)b->r.size * IN_FLIGHT * (double)bytes / median(taken, TURNS);
}

/* Bytes per second that all ranks copy together, from one place to another that are not in the
 * cache. */
static double measure_copy(const bench *b)
{
    enum { TURNS = 9, BYTES = 32 << 20 };
    unsigned char *from = bench_alloc(BYTES, 1), *to = bench_alloc(BYTES, 1);
    double taken[TURNS];
    memset(from, 1, BYTES);
    for (int turn = -1; turn < TURNS; turn++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        memcpy(to, from, BYTES);
        const double all = slowest(MPI_Wtime() - begin);
        if (turn >= 0) {
            taken[turn] = all;
        }
    }
    free(from);
    free(to);
    return (double)b->r.size * BYTES / median(taken, TURNS);
}

/* ---- one load ---- */

static int open_ways(const bench *b, const load *l, way *w)
{
    int n = 0;
    way_exchange(&w[n++], b->world, l, TT_ROUTE_DIRECT, TT_COMBINE_EXACT, b->r.compute);
    if (tt_world_n_nodes(b->world) > 1) {
        way_exchange(&w[n++], b->world, l, TT_ROUTE_NODE, TT_COMBINE_EXACT, b->r.compute);
        way_exchange(&w[n++], b->world, l, TT_ROUTE_NODE, TT_COMBINE_REDUCED, b->r.compute);
    }
    way_alltoallv(&w[n++], l, true);
    way_alltoallv(&w[n++], l, false);
    way_allgather(&w[n++], l);
    return n;
}

static void run_round(const load *l, way *w, int n_ways, int64_t round, samples *s, float *y)
{
    for (int i = 0; i < n_ways; i++) {
        way *turn = &w[(i + round + n_ways) % n_ways];
        samples *into = &s[turn - w];
        way_times times = {0};
        memset(y, 0x7f, (size_t)(l->n * l->H) * sizeof(*y));
        MPI_Barrier(MPI_COMM_WORLD);
        turn->run(turn, l, y, &times);
        if (round >= 0) {
            into->dispatch_s[round] = times.dispatch_s;
            into->all_s[round] = times.all_s;
        }
        into->wrong += load_wrong(l, y, turn->rounds_sums);
    }
}

static tt_exchange_counters counters_of(const way *w)
{
    const tt_exchange *x = way_get_exchange(w);
    return x ? tt_exchange_get_counters(x) : (tt_exchange_counters){0};
}

/* Sums over ranks of what the exchange sent in one use, and the least that it had to send. */
typedef struct traffic {
    double wire_bytes, node_bytes, messages, payload_bytes;
    double pairs;       /* of a chunk and whom its source sends to: of messages each way */
    double least_bytes; /* payload of rows, each once to each node (or rank), and of what comes
                         * back for them */
} traffic;

static traffic traffic_of(const bench *b, const load *l, const way *w, const samples *s)
{
    const load_least least = load_count(l, b->node_of_rank);
    const double rounds = (double)b->s.rounds;
    const bool by_node = strncmp(w->name, "node", 4) == 0;
    const int64_t rows = by_node ? least.rows_to_nodes : least.rows_to_far_ranks,
                  results = w->rounds_sums ? rows : least.results_from_nodes;
    double pairs = by_node ? (double)(tt_world_n_nodes(b->world) - 1) : 0.0;
    for (int r = 0; r < b->r.size && !by_node; r++) {
        pairs += b->node_of_rank[r] != b->node_of_rank[b->r.rank];
    }
    pairs *= (double)load_n_chunks(l);
    enum { N = 6 };
    const double mine[N] = {(double)(s->after.wire_bytes_out - s->before.wire_bytes_out) / rounds,
                            (double)(s->after.node_bytes - s->before.node_bytes) / rounds,
                            (double)(s->after.messages_out - s->before.messages_out) / rounds,
                            (double)rows * (double)tt_wire_row_bytes(l->wire, l->H) +
                                (double)results * (double)tt_wire_row_bytes(l->wire_back, l->H),
                            (double)(s->after.payload_bytes_out - s->before.payload_bytes_out) /
                                rounds,
                            pairs};
    double all[N];
    MPI_Allreduce(mine, all, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return (traffic){.wire_bytes = all[0],
                     .node_bytes = all[1],
                     .messages = all[2],
                     .least_bytes = all[3],
                     .payload_bytes = all[4],
                     .pairs = all[5]};
}

static void print_way(const bench *b, const load *l, const way *w, samples *s, const samples *all)
{
    const int64_t n = b->s.rounds;
    double *dispatch = bench_alloc((size_t)n, sizeof(*dispatch)),
           *total = bench_alloc((size_t)n, sizeof(*total));
    int64_t wrong = 0;
    MPI_Allreduce(s->dispatch_s, dispatch, (int)n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(s->all_s, total, (int)n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&s->wrong, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    const bool is_ours = way_get_exchange(w) != NULL;
    const traffic bytes = is_ours ? traffic_of(b, l, w, s) : (traffic){0};
    double *ratio = bench_alloc((size_t)n, sizeof(*ratio)),
           *first = bench_alloc((size_t)n, sizeof(*first));
    MPI_Allreduce(all[0].all_s, first, (int)n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int64_t i = 0; i < n; i++) {
        ratio[i] = total[i] / first[i];
    }
    const double dispatch_us = 1e6 * median(dispatch, n), all_us = 1e6 * median(total, n),
                 p95_us = 1e6 * total[(95 * n + 99) / 100 - 1], most_us = 1e6 * total[n - 1],
                 times = median(ratio, n);
    if (b->r.rank == 0 && b->s.json) {
        json_t *line =
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:I}", "record",
                      "way", "load", load_names[l->kind], "tokens", (json_int_t)l->T, "hidden",
                      (json_int_t)l->H, "top_k", (json_int_t)l->K, "experts", (json_int_t)l->E,
                      "way", w->name, "dispatch_us", dispatch_us, "all_us", all_us, "p95_us",
                      p95_us, "max_us", most_us, "over_direct", times, "wrong", (json_int_t)wrong);
        if (is_ours) {
            json_object_update_new(
                line, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "wire_bytes", bytes.wire_bytes,
                                "payload_bytes", bytes.payload_bytes, "least_bytes",
                                bytes.least_bytes, "node_bytes", bytes.node_bytes, "messages",
                                bytes.messages, "message_pairs", bytes.pairs));
        }
        json_dumpf(line, stdout, JSON_REAL_PRECISION(12));
        printf("\n");
        json_decref(line);
    } else if (b->r.rank == 0) {
        printf("  %-16s %9.1f %9.1f %9.1f %9.1f   %8.2f", w->name, dispatch_us, all_us, p95_us,
               most_us, times);
        if (is_ours) {
            printf("  %10.1f %7.3f %9.1f %8.1f", bytes.wire_bytes / 1e3,
                   bytes.least_bytes > 0 ? bytes.wire_bytes / bytes.least_bytes : 1.0,
                   bytes.node_bytes / 1e3, bytes.messages);
        }
        printf("%s\n", wrong ? "  WRONG" : "");
    }
    free(dispatch);
    free(total);
    free(ratio);
    free(first);
    bench_must(
        wrong ? TT_FAIL(TT_ERR_PROTOCOL, "%s: %lld values are wrong", w->name, (long long)wrong)
              : TT_OK);
}

/* ---- who waited for whom ---- */

static void draw_waits(const bench *b, const way *w)
{
    enum { CELL = 18, MARGIN = 60 };
    const tt_exchange *x = way_get_exchange(w);
    const size_t n = (size_t)b->r.size;
    uint64_t *mine = bench_alloc(n, sizeof(*mine)), *all = bench_alloc(n * n, sizeof(*all)),
             most = 1;
    tt_exchange_get_peer_waits(x, mine);
    bench_must(tt_world_allgather(b->world, mine, n * sizeof(*mine), all));
    for (size_t i = 0; i < n * n; i++) {
        most = all[i] > most ? all[i] : most;
    }
    FILE *out = b->r.rank == 0 ? fopen(b->s.svg, "w") : NULL;
    int64_t failed = b->r.rank == 0 && !out;
    bench_must(tt_world_max_i64(b->world, &failed, 1));
    bench_must(failed ? TT_FAIL(TT_ERR_USAGE, "--svg %s cannot be written", b->s.svg) : TT_OK);
    if (out) {
        const int side = MARGIN + (int)n * CELL + CELL;
        fprintf(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n",
            side, side + CELL);
        fprintf(
            out,
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"4\" y=\"14\">%s: time that a row's rank waited for a column's, "
            "most %.3f ms</text>\n",
            w->name, (double)most / 1e6);
        for (size_t r = 0; r < n; r++) {
            fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%zu</text>\n", MARGIN - 6,
                    MARGIN + (int)r * CELL + 13, r);
            fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%zu</text>\n",
                    MARGIN + (int)r * CELL + CELL / 2, MARGIN - 6, r);
            for (size_t c = 0; c < n; c++) {
                const int shade = 255 - (int)(255.0 * (double)all[r * n + c] / (double)most);
                fprintf(
                    out,
                    "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"rgb(255,%d,%d)\" stroke=\"#ccc\"><title>%zu waited %.3f ms for %zu"
                    "</title></rect>\n",
                    MARGIN + (int)c * CELL, MARGIN + (int)r * CELL, CELL, CELL, shade, shade, r,
                    (double)all[r * n + c] / 1e6, c);
            }
        }
        fprintf(out, "</svg>\n");
        failed = ferror(out) != 0;
        failed = fclose(out) != 0 || failed;
    }
    bench_must(tt_world_max_i64(b->world, &failed, 1));
    bench_must(failed ? TT_FAIL(TT_ERR_IO, "--svg %s cannot be written whole", b->s.svg) : TT_OK);
    free(mine);
    free(all);
}

/* ---- a run ---- */

static void run_load(bench *b, load *l)
{
    way w[MAX_WAYS];
    samples s[MAX_WAYS] = {{0}};
    load_make(l);
    const int n_ways = open_ways(b, l, w);
    float *y = bench_alloc((size_t)(l->n * l->H), sizeof(*y));
    for (int i = 0; i < n_ways; i++) {
        s[i].dispatch_s = bench_alloc((size_t)b->s.rounds, sizeof(double));
        s[i].all_s = bench_alloc((size_t)b->s.rounds, sizeof(double));
    }
    for (int64_t round = -b->s.warmup; round < 0; round++) {
        run_round(l, w, n_ways, round, s, y);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < n_ways; i++) {
        s[i].before = counters_of(&w[i]);
    }
    for (int64_t round = 0; round < b->s.rounds; round++) {
        run_round(l, w, n_ways, round, s, y);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (b->r.rank == 0 && !b->s.json) {
        printf(
            "\n%s, %lld tokens a rank, hidden %lld, %lld of %lld experts\n  %-16s %9s %9s %9s %9s   %8s  %10s %7s %9s %8s\n",
            load_names[l->kind], (long long)l->T, (long long)l->H, (long long)l->K, (long long)l->E,
            "way", "dispatch", "all us", "p95", "most", "x direct", "wire kB", "/least", "node kB",
            "messages");
    }
    for (int i = 0; i < n_ways; i++) {
        s[i].after = counters_of(&w[i]);
        print_way(b, l, &w[i], &s[i], s);
    }
    if (b->s.svg) {
        draw_waits(b, &w[n_ways > MAX_WAYS - 1 ? 1 : 0]);
    }
    for (int i = 0; i < n_ways; i++) {
        w[i].close(&w[i]);
        free(s[i].dispatch_s);
        free(s[i].all_s);
    }
    free(y);
    load_free(l);
}

static void print_run(bench *b, size_t message)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    const char *const wire = tt_wire_name((tt_wire)b->s.wire), *const wire_back = tt_wire_name(
                                                                   (tt_wire)b->s.wire_back);
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = 0;
    b->link_bytes_per_s = measure_link(b, message);
    b->copy_bytes_per_s = measure_copy(b);
    if (b->r.rank != 0) {
        return;
    }
    if (b->s.json) {
        json_t *line =
            json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:s, s:s, s:f, s:f, s:I}", "record",
                      "run", "tutti", PACKAGE_VERSION, "mpi", library, "ranks", b->r.size, "nodes",
                      tt_world_n_nodes(b->world), "threads", (json_int_t)b->s.threads, "chunk",
                      (json_int_t)b->s.chunk, "wire", wire, "wire_back", wire_back,
                      "link_bytes_per_s", b->link_bytes_per_s, "copy_bytes_per_s",
                      b->copy_bytes_per_s, "link_message", (json_int_t)message);
        json_dumpf(line, stdout, JSON_REAL_PRECISION(12));
        printf("\n");
        json_decref(line);
    } else {
        printf("tutti %s, %s; %d ranks on %d nodes, wire %s, back %s\n", PACKAGE_VERSION, library,
               b->r.size, tt_world_n_nodes(b->world), wire, wire_back);
        if (b->s.chunk > 0) {
            printf("the exchange sends at most %lld tokens of a rank at once\n",
                   (long long)b->s.chunk);
        }
        printf("limits: memcpy %.2f GB/s of all ranks", b->copy_bytes_per_s / 1e9);
        if (b->link_bytes_per_s > 0) {
            printf("; MPI between nodes %.2f GB/s of all ranks, messages of %zu bytes",
                   b->link_bytes_per_s / 1e9, message);
        }
        printf("\n");
    }
}

static void run_all(bench *b)
{
    int64_t tokens[MAX_LIST], hidden[MAX_LIST];
    load_kind kind[LOAD_KINDS];
    const int n_tokens = parse_numbers("tokens", b->s.tokens, tokens),
              n_hidden = parse_numbers("hidden", b->s.hidden, hidden);
    const int n_kinds = parse_loads(b->s.loads, kind);
    bench_must(b->s.top_k > b->s.experts ? TT_FAIL(TT_ERR_USAGE, "--top-k %lld of --experts %lld",
                                                   (long long)b->s.top_k, (long long)b->s.experts)
                                         : TT_OK);
    print_run(b, 16 * tt_wire_row_bytes((tt_wire)b->s.wire, hidden[0]));
    for (int i = 0; i < n_kinds; i++) {
        for (int h = 0; h < n_hidden; h++) {
            for (int t = 0; t < n_tokens; t++) {
                load l = {.kind = kind[i],
                          .T = tokens[t],
                          .H = hidden[h],
                          .K = b->s.top_k,
                          .E = b->s.experts,
                          .rank = b->r.rank,
                          .size = b->r.size,
                          .seed = (uint64_t)b->s.seed,
                          .wire = (tt_wire)b->s.wire,
                          .wire_back = (tt_wire)b->s.wire_back,
                          .chunk = b->s.chunk};
                run_load(b, &l);
            }
        }
    }
}

int main(int argc, char **argv)
{
    static const tt_option *const tables[] = {options, NULL};
    bench b = {0};
    int n_operands = 0;
    const char **operand = bench_alloc((size_t)argc, sizeof(*operand));
    const tt_status st = tt_options_parse(tables, &b.s, argc, argv, operand, &n_operands);
    free(operand);
    if (st == TT_OK && b.s.help) {
        printf("mpirun -n 4 bench_exchange [options]\n\noptions:\n");
        tt_options_help(options, stdout);
        return 0;
    }
    /* Polled: the collectives of MPI are called beside the world, by the same thread. */
    bench_rank_begin(&b.r, 1, (int)b.s.threads, TT_PROGRESS_POLLED, b.s.deadline_s);
    bench_must(st);
    bench_must(n_operands ? TT_FAIL(TT_ERR_USAGE, "bench_exchange takes options only") : TT_OK);
    bench_lane lane;
    bench_lane_open(&lane, &b.r, 0);
    b.world = lane.world;
    b.node_of_rank = bench_alloc((size_t)b.r.size, sizeof(int));
    for (int r = 0; r < b.r.size; r++) {
        b.node_of_rank[r] = tt_world_node(b.world, r);
    }
    tt_stream_params stream = {.name = "compute",
                               .n_threads = b.r.cpus.n_threads,
                               .join_caller = true,
                               .cpu = b.r.cpus.cpu};
    bench_must(tt_stream_create(&stream, &b.r.compute));
    run_all(&b);
    free(b.node_of_rank);
    bench_lane_close(&lane);
    bench_rank_end(&b.r);
    return 0;
}
