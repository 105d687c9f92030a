/* options.h - command line options from tables, each with an environment twin.
 *
 * A table row names an option once; from it come the flag (--name VALUE or --name=VALUE), the
 * variable (TUTTI_NAME, dashes as underscores; a SWITCH has none), the help text and the listing in
 * `tutti info`. The command line wins over the environment, the environment over the default.
 * Threads: set-up only. MPI: none. */
#ifndef TUTTI_OPTIONS_H
#define TUTTI_OPTIONS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "tutti/status.h"

typedef enum tt_option_type {
    TT_OPTION_FLAG,   /* bool; takes no value; the environment takes 0, 1, yes, no */
    TT_OPTION_SWITCH, /* as FLAG, but on the command line only: no variable */
    TT_OPTION_INT,    /* int64_t within [min, max] */
    TT_OPTION_FLOAT,  /* double within [min, max]; NaN is refused */
    TT_OPTION_BYTES,  /* int64_t; K, M, G, T are powers of 1024: "16G" */
    TT_OPTION_STRING, /* const char * into argv or the environment; NULL when absent and no
                       * default */
    TT_OPTION_ENUM,   /* int: index into choices ("f32|bf16|int8") */
    TT_OPTION_LIST    /* tt_option_list: may be given several times */
} tt_option_type;

enum { TT_OPTION_LIST_MAX = 256 };
typedef struct tt_option_list {
    int n;
    const char *item[TT_OPTION_LIST_MAX];
} tt_option_list;

typedef struct tt_option {
    const char *name; /* without dashes: "max-batch" */
    char letter;      /* short form, or 0 */
    tt_option_type type;
    size_t offset;             /* of the value in the caller's struct */
    const char *default_value; /* as a user would type it; NULL = zero / NULL / false */
    double min, max;           /* INT, FLOAT, BYTES; both 0 = no check */
    const char *choices;       /* ENUM: "a|b|c" */
    const char *argument;      /* for help: "N", "FILE" */
    const char *help;          /* one line */
} tt_option;

/* Fills `values` from defaults, environment and argv[1..argc). Words that are no options go to
 * positional[0..*n_positional_out) (room for argc entries); "--" ends options. `tables` is a
 * NULL-ended list of arrays, each ended by a row with name NULL.
 * Errors: TT_ERR_USAGE naming the option and, for unknown ones, the nearest known name if one is
 * near. */
TT_API tt_status tt_options_parse(const tt_option *const *tables, void *values, int argc,
                                  char **argv, const char **positional, int *n_positional_out);
/* True if the option was given on the command line or in the environment in the last parse of
 * `values`. */
TT_API bool tt_options_is_set(const void *values, const char *name);
/* Prints aligned help lines of one table. */
TT_API void tt_options_help(const tt_option *table, FILE *out);
/* Warns of TUTTI_... variables that no given table knows. */
TT_API void tt_options_warn_unknown_environment(const tt_option *const *tables);

#endif
