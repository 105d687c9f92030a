/* exchange.c - rows of an MoE layer to the ranks of their experts and back, in a program of one's
 * own: docs/exchange.md goes through it.
 *
 *   mpicc -o exchange exchange.c $(pkg-config --cflags --libs tutti) && mpirun -n 3 ./exchange */
/* TEST ranks: 1 3 4 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/comm_mpi.h>
#include <tutti/exchange.h>

enum { HIDDEN = 1000, TOP_K = 2, MAX_TOKENS = 16, EXPERTS_PER_RANK = 4 };

static void must(tt_status st)
{
    if (st != TT_OK) {
        fprintf(stderr, "%s\n", tt_status_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Expert e doubles, trebles, ... what it gets. */
static void expert(int e, const float *x, float *y)
{
    for (int h = 0; h < HIDDEN; h++) {
        y[h] = (float)(e + 2) * x[h];
    }
}

/* Serves whatever has landed; the exchange moves on in the meantime. */
static void serve(tt_exchange *exchange, int handle, int first_expert)
{
    static float x[HIDDEN], y[HIDDEN];
    tt_exchange_state state;
    tt_exchange_rows rows;
    do {
        must(tt_exchange_poll(exchange, handle, &state));
        while (tt_exchange_next_ready(exchange, handle, &rows)) {
            for (int i = 0; i < rows.n; i++) {
                tt_exchange_get_row(exchange, &rows, i, x);
                expert(first_expert + rows.slot, x, y);
                tt_exchange_put_result(exchange, handle, &rows, i, y);
            }
            must(tt_exchange_push(exchange, handle, &rows));
        }
    } while (!state.all_arrived || state.has_ready);
}

static tt_exchange *make_exchange(tt_world *world, int n_ranks)
{
    int *everyone = malloc((size_t)n_ranks * sizeof(*everyone));
    const int n_experts = n_ranks * EXPERTS_PER_RANK;
    int32_t *rank = malloc((size_t)n_experts * sizeof(*rank)),
            *local = malloc((size_t)n_experts * sizeof(*local));
    if (!everyone || !rank || !local) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int r = 0; r < n_ranks; r++) {
        everyone[r] = r;
    }
    for (int e = 0; e < n_experts; e++) { /* any map will do, and another one later, too */
        rank[e] = e / EXPERTS_PER_RANK;
        local[e] = e % EXPERTS_PER_RANK;
    }
    const tt_exchange_params params = {
        .H = HIDDEN,
        .K = TOP_K,
        .max_tokens = MAX_TOKENS,
        .wire = TT_WIRE_BF16,
        .wire_back = TT_WIRE_F32,
        .source = everyone,
        .n_sources = n_ranks,
        .owner = everyone,
        .n_owners = n_ranks,
    };
    tt_exchange *exchange = NULL;
    must(tt_exchange_create(world, &params, &exchange));
    must(tt_exchange_set_owners(exchange, &(tt_owner_map){n_experts, rank, local}, 1));
    free(everyone);
    free(rank);
    free(local);
    return exchange;
}

int main(int argc, char **argv)
{
    int provided, me, n_ranks;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);

    tt_world *world = NULL;
    must(tt_world_create(MPI_COMM_WORLD,
                         &(tt_world_params){.progress = TT_PROGRESS_CALLER, .comm_cpu = -1},
                         &world));
    tt_exchange *exchange = make_exchange(world, n_ranks);

    /* As many tokens as this rank likes: rank 0 has one, rank 1 two, ... */
    const int T = me % MAX_TOKENS + 1, n_experts = n_ranks * EXPERTS_PER_RANK;
    static float x[MAX_TOKENS][HIDDEN], y[MAX_TOKENS][HIDDEN];
    int32_t choice[MAX_TOKENS][TOP_K];
    float weight[MAX_TOKENS][TOP_K];
    for (int t = 0; t < T; t++) {
        for (int h = 0; h < HIDDEN; h++) {
            x[t][h] = (float)(h % 100);
        }
        for (int k = 0; k < TOP_K; k++) {
            choice[t][k] = (me + 3 * t + 5 * k) % n_experts;
            weight[t][k] = 0.5f;
        }
    }
    const int handle = 0;
    must(tt_exchange_prepare(exchange, handle, T, &choice[0][0], &weight[0][0], TT_OK));
    must(tt_exchange_dispatch_begin(exchange, handle, &x[0][0], HIDDEN, NULL));
    /* Rows fly: this is the time for work that needs none of them, such as a shared expert, with
     * tt_world_progress(world) now and then. */
    serve(exchange, handle, me * EXPERTS_PER_RANK);
    must(tt_exchange_combine_end(exchange, handle, &y[0][0], HIDDEN, NULL));

    int wrong = 0;
    for (int t = 0; t < T; t++) {
        const float factor = 0.5f * (float)(choice[t][0] + 2) + 0.5f * (float)(choice[t][1] + 2);
        for (int h = 0; h < HIDDEN; h++) {
            wrong += y[t][h] != factor * x[t][h];
        }
    }
    const tt_exchange_counters n = tt_exchange_get_counters(exchange);
    printf(
        "rank %d: %d tokens, %d values wrong; %llu rows sent to others, %llu bytes to other nodes\n",
        me, T, wrong, (unsigned long long)n.rows_out, (unsigned long long)n.wire_bytes_out);
    tt_exchange_destroy(&exchange);
    tt_world_destroy(&world);
    MPI_Finalize();
    return wrong != 0;
}
