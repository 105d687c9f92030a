/* phases.c - gathers totals and spans of all ranks.
 *
 * Each rank writes its spans as text with its rank as process number; rank 0 puts the pieces into
 * one JSON object. The pieces end with a comma each, so a closing object of rank 0's follows them.
 * When the group is lost nobody can be asked: the rank that tells the error shows its own part. */
#include "config.h"
#include "phases.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/log.h"
#include "tutti/trace.h"

#define NS_PER_MS 1e6
enum { TAG_SIZE = 1, TAG_TEXT = 2 };

static void get_totals(tt_phase_total mine[TT_PHASE_COUNT])
{
    for (int p = 0; p < TT_PHASE_COUNT; p++) {
        mine[p] = (tt_phase_total){0};
        tt_phase_get((tt_phase)p, &mine[p]);
    }
}

/* all[n][TT_PHASE_COUNT]: of n ranks from first on. */
static void print_table(const tt_phase_total *all, int first, int n)
{
    double step_ms = 0;
    for (int r = 0; r < n; r++) {
        double ms = (double)all[r * TT_PHASE_COUNT + TT_PHASE_STEP].ns / NS_PER_MS;
        step_ms = ms > step_ms ? ms : step_ms;
    }
    fprintf(stderr, "%-16s %10s %14s %12s %6s %8s %8s\n", "phase", "calls", "MiB", "max ms", "rank",
            "of step", "max/min");
    for (int p = TT_PHASE_NONE + 1; p < TT_PHASE_COUNT; p++) {
        uint64_t calls = 0, bytes = 0, most = 0, least = UINT64_MAX;
        int slowest = 0;
        for (int r = 0; r < n; r++) {
            const tt_phase_total *t = &all[r * TT_PHASE_COUNT + p];
            calls += t->calls;
            bytes += t->bytes;
            slowest = t->ns > most ? r : slowest;
            most = t->ns > most ? t->ns : most;
            least = t->ns < least ? t->ns : least;
        }
        if (calls == 0) {
            continue;
        }
        char ratio[32] = "-"; /* some rank spent nothing */
        if (least > 0) {
            snprintf(ratio, sizeof(ratio), "%.2f", (double)most / (double)least);
        }
        double ms = (double)most / NS_PER_MS;
        fprintf(stderr, "%-16s %10llu %14.2f %12.3f %6d %6.1f %% %8s\n", tt_phase_name((tt_phase)p),
                (unsigned long long)calls, (double)bytes / TTI_CLI_MIB, ms, first + slowest,
                step_ms > 0 ? 100 * ms / step_ms : 0.0, ratio);
    }
}

tt_status tti_cli_phases_print(tti_cli_session *session)
{
    tti_cli_launch *launch = session->launch;
    tt_phase_total mine[TT_PHASE_COUNT];
    get_totals(mine);
    tt_phase_total *all = calloc((size_t)launch->size, sizeof(mine));
    tt_status status = all ? TT_OK : TT_FAIL(TT_ERR_NOMEM, "no memory for %d ranks", launch->size);
    status = tt_world_agree(launch->world, status);
    if (status == TT_OK) {
        status = tt_world_allgather(launch->world, mine, sizeof(mine), all);
    }
    if (status == TT_OK && launch->rank == 0) {
        print_table(all, 0, launch->size);
    }
    free(all);
    return status;
}

/* This rank's spans as text; the caller frees. */
static tt_status spans_text(const tti_cli_session *session, char **text_out, uint64_t *bytes_out)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    TT_CHECK(out, TT_ERR_NOMEM, "no memory for the timeline");
    int rank = session->launch->rank;
    tt_status status = tt_trace_write(out, rank, tt_world_host(session->launch->world, rank),
                                      session->trace_origin_ns);
    bool bad = ferror(out) != 0;
    bad = fclose(out) != 0 || bad;
    if (status == TT_OK && bad) {
        status = TT_FAIL(TT_ERR_NOMEM, "no memory for the timeline");
    }
    if (status != TT_OK) {
        free(text);
        return status;
    }
    *text_out = text;
    *bytes_out = n;
    return TT_OK;
}

static tt_status write_piece(const tti_cli_session *session, const char *text, uint64_t n)
{
    TT_CHECK(text && fwrite(text, 1, (size_t)n, session->trace) == (size_t)n, TT_ERR_IO,
             "%s cannot be written: %s", session->options->trace, strerror(errno));
    return TT_OK;
}

/* Takes one rank's piece. *written keeps the first failure of the file; the return value is the
 * group's. */
static tt_status receive_piece(const tti_cli_session *session, int peer, tt_status *written)
{
    tt_world *world = session->launch->world;
    uint64_t n = 0;
    TT_TRY(tt_world_recv(world, peer, TAG_SIZE, &n, sizeof(n)));
    char *text = malloc((size_t)n + 1);
    /* The peer waits to hear whether its text is wanted, so that it never sends into the void. */
    uint64_t wanted = text ? n : 0;
    tt_status status = tt_world_send(world, peer, TAG_SIZE, &wanted, sizeof(wanted));
    if (status == TT_OK && wanted > 0) {
        status = tt_world_recv(world, peer, TAG_TEXT, text, (size_t)n);
    }
    if (status == TT_OK && *written == TT_OK) {
        *written = text ? write_piece(session, text, n)
                        : TT_FAIL(TT_ERR_NOMEM, "no memory for the timeline of rank %d", peer);
    }
    free(text);
    return status;
}

static const char head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
static const char tail[] = "{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":0,\"args\":{"
                           "\"labels\":\"tutti\"}}\n]}\n";

static tt_status gather_pieces(tti_cli_session *session, const char *text, uint64_t n)
{
    tti_cli_launch *launch = session->launch;
    if (launch->rank != 0) {
        uint64_t wanted = 0;
        TT_TRY(tt_world_send(launch->world, 0, TAG_SIZE, &n, sizeof(n)));
        TT_TRY(tt_world_recv(launch->world, 0, TAG_SIZE, &wanted, sizeof(wanted)));
        if (wanted > 0) {
            TT_TRY(tt_world_send(launch->world, 0, TAG_TEXT, text, (size_t)n));
        }
        return tt_world_agree(launch->world, TT_OK);
    }
    tt_status written = write_piece(session, head, sizeof(head) - 1);
    if (written == TT_OK) {
        written = write_piece(session, text, n);
    }
    for (int peer = 1; peer < launch->size; peer++) {
        TT_TRY(receive_piece(session, peer, &written));
    }
    if (written == TT_OK) {
        written = write_piece(session, tail, sizeof(tail) - 1);
    }
    int bad = fclose(session->trace);
    session->trace = NULL;
    if (written == TT_OK && bad) {
        written = TT_FAIL(TT_ERR_IO, "%s cannot be written: %s", session->options->trace,
                          strerror(errno));
    }
    return tt_world_agree(launch->world, written);
}

tt_status tti_cli_trace_gather(tti_cli_session *session)
{
    char *text = NULL;
    uint64_t n = 0;
    tt_status status = tt_world_agree(session->launch->world, spans_text(session, &text, &n));
    if (status == TT_OK && text) {
        status = gather_pieces(session, text, n);
    }
    free(text);
    return status;
}

void tti_cli_phases_of_lost(const tti_cli_session *session)
{
    tt_phase_total mine[TT_PHASE_COUNT];
    get_totals(mine);
    fprintf(stderr, "until then, rank %d alone:\n", session->launch->rank);
    print_table(mine, session->launch->rank, 1);
    fflush(stderr);
}

void tti_cli_trace_of_lost(tti_cli_session *session)
{
    const tti_cli_launch *launch = session->launch;
    FILE *out = session->trace ? session->trace : fopen(session->options->trace, "w");
    session->trace = NULL;
    bool good = out && fwrite(head, 1, sizeof(head) - 1, out) == sizeof(head) - 1 &&
                tt_trace_write(out, launch->rank, tt_world_host(launch->world, launch->rank),
                               session->trace_origin_ns) == TT_OK &&
                fwrite(tail, 1, sizeof(tail) - 1, out) == sizeof(tail) - 1;
    int why = errno;
    if (out && fclose(out) != 0 && good) {
        good = false;
        why = errno;
    }
    if (!good) {
        tt_log(TT_LOG_WARN, "%s cannot be written: %s", session->options->trace, strerror(why));
    }
}
