/* load_file.c - counts of rows per layer and expert: what a run saves, what planners read.
 *
 * JSON, one object: "experts" E; "layers", a name for each of L ("layer 3", the layer's number in
 * the model, from 0; "mtp" for a draft layer); "total", L lists of E counts; "steps" (may be
 * absent), windows in order, each as "total" is; "tokens_per_step" (may be absent), tokens of a
 * window. Other keys are not looked at. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include "balance_internal.h"

enum { MOST_LAYERS = 1 << 16, MOST_EXPERTS = 1 << 20, MOST_WINDOWS = 1 << 20 };

void tt_load_counts_destroy(tt_load_counts **counts)
{
    tt_load_counts *c = *counts;
    if (c) {
        for (int64_t l = 0; c->layer && l < c->L; l++) {
            free(c->layer[l]);
        }
        free(c->layer);
        free(c->rows);
        free(c->total);
        free(c);
        *counts = NULL;
    }
}

tt_status tt_load_counts_create(int64_t L, int64_t E, int64_t n_windows, tt_load_counts **out)
{
    TT_CHECK(L >= 0 && L <= MOST_LAYERS && E >= 0 && E <= MOST_EXPERTS && n_windows >= 0 &&
                 n_windows <= MOST_WINDOWS,
             TT_ERR_ARG, "%" PRId64 " windows of %" PRId64 " layers of %" PRId64 " experts",
             n_windows, L, E);
    tt_load_counts *c = calloc(1, sizeof(*c));
    TT_CHECK(c, TT_ERR_NOMEM, "no memory for counts");
    c->L = L;
    c->E = E;
    c->n_windows = n_windows;
    c->layer = calloc((size_t)L + 1, sizeof(*c->layer));
    c->total = calloc((size_t)(L * E) + 1, sizeof(*c->total));
    c->rows = calloc((size_t)(n_windows * L * E) + 1, sizeof(*c->rows));
    if (!c->layer || !c->total || !c->rows) {
        tt_load_counts_destroy(&c);
        return TT_FAIL(TT_ERR_NOMEM,
                       "no memory for %" PRId64 " windows of %" PRId64 " layers of %" PRId64
                       " experts",
                       n_windows, L, E);
    }
    *out = c;
    return TT_OK;
}

/* ---- reading ---- */

/* A list of L lists of E counts. */
static tt_status read_counts(const char *path, const char *what, const json_t *list, int64_t L,
                             int64_t E, double *rows)
{
    TT_CHECK(json_is_array(list) && (int64_t)json_array_size(list) == L, TT_ERR_FILE,
             "%s: \"%s\" is not a list of %" PRId64 " layers", path, what, L);
    for (int64_t l = 0; l < L; l++) {
        const json_t *layer = json_array_get(list, (size_t)l);
        TT_CHECK(json_is_array(layer) && (int64_t)json_array_size(layer) == E, TT_ERR_FILE,
                 "%s: \"%s\", layer %" PRId64 ": not a list of %" PRId64 " counts", path, what, l,
                 E);
        for (int64_t e = 0; e < E; e++) {
            const json_t *count = json_array_get(layer, (size_t)e);
            const double x = json_is_number(count) ? json_number_value(count) : NAN;
            TT_CHECK(isfinite(x) && x >= 0.0, TT_ERR_FILE,
                     "%s: \"%s\", layer %" PRId64 ", expert %" PRId64 ": not a count", path, what,
                     l, e);
            rows[l * E + e] = x;
        }
    }
    return TT_OK;
}

static tt_status read_names(const char *path, const json_t *layers, tt_load_counts *c)
{
    for (int64_t l = 0; l < c->L; l++) {
        const char *name = json_string_value(json_array_get(layers, (size_t)l));
        TT_CHECK(name, TT_ERR_FILE, "%s: \"layers\", number %" PRId64 ": not a name", path, l);
        c->layer[l] = strdup(name);
        TT_CHECK(c->layer[l], TT_ERR_NOMEM, "%s: no memory for names", path);
    }
    return TT_OK;
}

static tt_status read_all(const char *path, const json_t *root, tt_load_counts **out)
{
    const json_t *experts = json_object_get(root, "experts"),
                 *layers = json_object_get(root, "layers"), *total = json_object_get(root, "total"),
                 *steps = json_object_get(root, "steps"),
                 *tokens = json_object_get(root, "tokens_per_step");
    TT_CHECK(json_is_integer(experts) && json_integer_value(experts) > 0 && json_is_array(layers) &&
                 json_array_size(layers) > 0,
             TT_ERR_FILE, "%s: no counts of experts: \"experts\" or \"layers\" is missing or odd",
             path);
    TT_CHECK(!steps || json_is_array(steps), TT_ERR_FILE, "%s: \"steps\" is not a list", path);
    TT_CHECK(!tokens || (json_is_number(tokens) && json_number_value(tokens) > 0.0), TT_ERR_FILE,
             "%s: \"tokens_per_step\" is not a positive number", path);
    TT_TRY(tt_load_counts_create((int64_t)json_array_size(layers), json_integer_value(experts),
                                 (int64_t)json_array_size(steps), out));
    tt_load_counts *c = *out;
    c->tokens_per_window = tokens ? json_number_value(tokens) : 0.0;
    TT_TRY(read_names(path, layers, c));
    for (int64_t w = 0; w < c->n_windows; w++) {
        TT_TRY(read_counts(path, "steps", json_array_get(steps, (size_t)w), c->L, c->E,
                           c->rows + w * c->L * c->E));
    }
    if (total) {
        return read_counts(path, "total", total, c->L, c->E, c->total);
    }
    TT_CHECK(c->n_windows > 0, TT_ERR_FILE, "%s: neither \"total\" nor \"steps\"", path);
    for (int64_t i = 0; i < c->n_windows * c->L * c->E; i++) {
        c->total[i % (c->L * c->E)] += c->rows[i];
    }
    return TT_OK;
}

tt_status tti_balance_read_json(const char *path, json_t **root_out)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    TT_CHECK(root || error.line >= 0, TT_ERR_FILE, "%s: %s", path, error.text);
    TT_CHECK(root, TT_ERR_FILE, "%s: bad JSON at line %d, column %d: %s", path, error.line,
             error.column, error.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return TT_FAIL(TT_ERR_FILE, "%s: is JSON, but not an object", path);
    }
    *root_out = root;
    return TT_OK;
}

tt_status tt_load_counts_read(const char *path, tt_load_counts **counts_out)
{
    json_t *root = NULL;
    TT_TRY(tti_balance_read_json(path, &root));
    tt_load_counts *c = NULL;
    const tt_status st = read_all(path, root, &c);
    json_decref(root);
    if (st != TT_OK) {
        tt_load_counts_destroy(&c);
        return st;
    }
    *counts_out = c;
    return TT_OK;
}

/* ---- writing ---- */

json_t *tti_balance_numbers(const double *value, int64_t rows, int64_t cols)
{
    json_t *list = json_array();
    for (int64_t r = 0; r < rows; r++) {
        json_t *row = json_array();
        for (int64_t i = 0; i < cols; i++) {
            const double x = value[r * cols + i];
            json_array_append_new(row, x == floor(x) && x < 0x1p53 ? json_integer((json_int_t)x)
                                                                   : json_real(x));
        }
        json_array_append_new(list, row);
    }
    return list;
}

json_t *tti_balance_names(char *const *name, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) {
        json_array_append_new(list, json_string(name[i]));
    }
    return list;
}

/* In place only once it is whole: written beside it and renamed. */
tt_status tti_balance_write_json(const char *path, json_t *root)
{
    char *beside = malloc(strlen(path) + sizeof(".part"));
    if (!beside || !root) {
        free(beside);
        json_decref(root);
        return TT_FAIL(TT_ERR_NOMEM, "%s: no memory to write it", path);
    }
    memcpy(beside, path, strlen(path));
    memcpy(beside + strlen(path), ".part", sizeof(".part"));
    tt_status st = TT_OK;
    if (json_dump_file(root, beside, JSON_COMPACT | JSON_REAL_PRECISION(9)) != 0 ||
        rename(beside, path) != 0) {
        st = TT_FAIL(TT_ERR_IO, "%s: cannot be written", path);
        remove(beside);
    }
    free(beside);
    json_decref(root);
    return st;
}

tt_status tt_load_counts_write(const tt_load_counts *counts, const char *path)
{
    const tt_load_counts *c = counts;
    json_t *root = json_object(), *steps = json_array();
    json_object_set_new(root, "experts", json_integer(c->E));
    if (c->tokens_per_window > 0.0) {
        json_object_set_new(root, "tokens_per_step", json_real(c->tokens_per_window));
    }
    json_object_set_new(root, "layers", tti_balance_names(c->layer, c->L));
    json_object_set_new(root, "total", tti_balance_numbers(c->total, c->L, c->E));
    for (int64_t w = 0; w < c->n_windows; w++) {
        json_array_append_new(steps, tti_balance_numbers(c->rows + w * c->L * c->E, c->L, c->E));
    }
    json_object_set_new(root, "steps", steps);
    return tti_balance_write_json(path, root);
}
