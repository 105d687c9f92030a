/* exchange_case.h - a case of an exchange: sizes, routing, roles, and what every rank can compute of it without a message. */
#ifndef TUTTI_EXCHANGE_CASE_H
#define TUTTI_EXCHANGE_CASE_H
#include "mpi_test.h"
#include "tutti/exchange.h"

typedef enum routing {
    ROUTE_RANDOM,
    ROUTE_HOLES, /* -1 among the choices, whole rows of -1, NaN weights there */
    ROUTE_ONE,   /* every choice of every token is slot 0 */
    ROUTE_TWICE, /* a slot is named twice in a row */
    ROUTE_OWN,   /* only slots of this rank, if it has any */
    ROUTE_LAST   /* only slots of the last owner */
} routing;
typedef enum tokens { TOKENS_RAGGED, TOKENS_NONE, TOKENS_MOST, TOKENS_ONE_SOURCE } tokens;
typedef enum roles {
    ROLES_ALL,
    ROLES_APART /* first half sources, rest owners */,
    ROLES_EVEN_OWN
} roles;

typedef struct test_case {
    const char *name;
    int64_t H, K, max_tokens;
    tt_wire wire, wire_back;
    int width;
    int64_t n_slots;
    int n_handles, n_uses; /* uses per handle */
    routing route;
    tokens count;
    roles role;
    bool odd_values; /* NaN, Inf, denormals, -0 in the payload */
    bool sleeps;     /* some ranks dawdle */
    bool new_maps;   /* another owner map for each use */
    bool travels;    /* weights go to the owners */
} test_case;

typedef struct world_case {
    tt_world *world;
    const test_case *c;
    tt_exchange *x;
    int source[TEST_MAX_RANKS], owner[TEST_MAX_RANKS];
    int n_sources, n_owners, source_id, owner_id;
    int64_t back_columns[TEST_MAX_RANKS + 1];
    int32_t *rank, *local; /* the map in force */
    tt_route route;        /* not AUTO */
    tt_combine combine;
    uint64_t dice; /* differs between ranks: order of events */
} world_case;

/* One use under way. */
typedef struct flight {
    int use; /* -1: not begun */
    bool is_open;
    int64_t T;
    int32_t *slot_of_local; /* local -> slot on this rank in this use, -1 */
    float *y;
    tt_exchange_rows held[64]; /* groups computed and not pushed */
    int n_held;
} flight;

enum { LOCAL_OFFSET = 3, GUARD = 7 };
enum { CROWDED = 3 }; /* ranks that share few cores */

/* ---- inputs: functions of (case, handle, use, source, token, choice) ---- */

uint64_t seed_of(const world_case *w, int handle, int use, int source_id, int64_t t, int64_t k);
int64_t tokens_of(const world_case *w, int handle, int use, int source_id);
/* Slots go round the groups of owners; another map shifts them. */
int group_of(const world_case *w, int64_t slot, int map);
int map_of(const world_case *w, int use);
int32_t slot_at(const world_case *w, int handle, int use, int source_id, int64_t t, int64_t k);
float value_of(const world_case *w, uint64_t seed, int64_t c);
float weight_at(const world_case *w, int handle, int use, int source_id, int64_t t, int64_t k);
float expert(int64_t slot, float x);

/* ---- what comes of them ---- */

/* y[H] of token t of this rank, bit by bit. */
void expect_token(const world_case *w, int handle, int use, int64_t t, float *y);

/* All uses of a case by one route and one way to combine. */
void run_route(tt_world *world, const test_case *c, tt_route route, tt_combine combine,
               uint64_t seed);
/* All routes and ways to combine; or one of them if many ranks share few cores, but for wide rows,
 * which go far beyond a buffer that is too small. */
void run_case(tt_world *world, const test_case *c, uint64_t seed);

/* What must be refused, and that the exchange works after it. */
void exchange_refusals(tt_world *world);
/* Rank 1 has no memory for its messages: all ranks get that, nobody hangs, and the world is
 * whole. */
void one_rank_without_memory(tt_world *world);

#endif
