/* placement_file.c - placements as files: what `tutti balance` writes and a run reads.
 *
 * JSON, one object: "experts" E; "groups"; "slots_per_group" S; "layers", a name for each as in
 * files of counts; "expert_of_slot", for each layer groups * S experts or -1; "share", for each
 * layer as many numbers: the part of its expert's rows that a slot gets. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include "balance_internal.h"

tt_status tt_placement_write(const tt_placement *placement, char *const *layer, const char *path)
{
    const tt_placement *p = placement;
    const int64_t n = p->n_groups * p->slots_per_group;
    double *value = calloc((size_t)(2 * p->L * n) + 1, sizeof(*value));
    TT_CHECK(value, TT_ERR_NOMEM, "%s: no memory to write it", path);
    double *share = value + p->L * n;
    for (int64_t i = 0; i < p->L * n; i++) {
        value[i] = p->expert_of_slot[i];
    }
    for (int64_t i = 0; i < p->L * p->E; i++) {
        for (int64_t r = p->replica_begin[i]; r < p->replica_begin[i + 1]; r++) {
            share[i / p->E * n + p->replica_slot[r]] = (double)p->replica_share[r];
        }
    }
    json_t *root = json_object();
    json_object_set_new(root, "experts", json_integer(p->E));
    json_object_set_new(root, "groups", json_integer(p->n_groups));
    json_object_set_new(root, "slots_per_group", json_integer(p->slots_per_group));
    json_object_set_new(root, "layers", tti_balance_names(layer, p->L));
    json_object_set_new(root, "expert_of_slot", tti_balance_numbers(value, p->L, n));
    json_object_set_new(root, "share", tti_balance_numbers(share, p->L, n));
    free(value);
    return tti_balance_write_json(path, root);
}

/* ---- reading ---- */

static tt_status read_count(const char *path, const json_t *root, const char *key, int64_t most,
                            int64_t *out)
{
    const json_t *value = json_object_get(root, key);
    TT_CHECK(json_is_integer(value) && json_integer_value(value) > 0 &&
                 json_integer_value(value) <= most,
             TT_ERR_FILE, "%s: \"%s\" is missing or not a number from 1 to %" PRId64, path, key,
             most);
    *out = json_integer_value(value);
    return TT_OK;
}

/* Number i of layer l of a list of lists; NULL if it is not there. */
static const json_t *number_at(const json_t *list, int64_t l, int64_t i)
{
    return json_array_get(json_array_get(list, (size_t)l), (size_t)i);
}

static bool has_shape(const json_t *list, int64_t L, int64_t n)
{
    bool is_shape = json_is_array(list) && (int64_t)json_array_size(list) == L;
    for (int64_t l = 0; is_shape && l < L; l++) {
        const json_t *layer = json_array_get(list, (size_t)l);
        is_shape = json_is_array(layer) && (int64_t)json_array_size(layer) == n;
    }
    return is_shape;
}

/* One layer's slots, and then its replicas, expert by expert. */
static tt_status read_layer(const char *path, const json_t *slots, const json_t *shares, int64_t l,
                            tt_placement *p)
{
    const int64_t n = p->n_groups * p->slots_per_group;
    int32_t *expert = p->expert_of_slot + l * n;
    int64_t at = p->replica_begin[l * p->E];
    for (int64_t s = 0; s < n; s++) {
        const json_t *value = number_at(slots, l, s);
        const json_int_t e = json_is_integer(value) ? json_integer_value(value) : -2;
        TT_CHECK(e >= -1 && e < p->E, TT_ERR_FILE,
                 "%s: layer %" PRId64 ", slot %" PRId64 ": not an expert below %" PRId64 ", nor -1",
                 path, l, s, p->E);
        TT_CHECK(json_is_number(number_at(shares, l, s)), TT_ERR_FILE,
                 "%s: layer %" PRId64 ", slot %" PRId64 ": the share is not a number", path, l, s);
        expert[s] = (int32_t)e;
    }
    for (int64_t e = 0; e < p->E; e++) {
        for (int64_t s = 0; s < n; s++) {
            if (expert[s] == e) {
                p->replica_slot[at] = (int32_t)s;
                p->replica_share[at++] = (float)json_number_value(number_at(shares, l, s));
            }
        }
        p->replica_begin[l * p->E + e + 1] = at;
    }
    return TT_OK;
}

static tt_status read_all(const char *path, const json_t *root, tt_placement **out,
                          char ***layer_out)
{
    int64_t E = 0, n_groups = 0, S = 0;
    TT_TRY(read_count(path, root, "experts", INT32_MAX, &E));
    TT_TRY(read_count(path, root, "groups", INT16_MAX, &n_groups));
    TT_TRY(read_count(path, root, "slots_per_group", E, &S));
    const json_t *layers = json_object_get(root, "layers"),
                 *slots = json_object_get(root, "expert_of_slot"),
                 *shares = json_object_get(root, "share");
    const int64_t L = (int64_t)json_array_size(layers), n = n_groups * S;
    TT_CHECK(json_is_array(layers) && has_shape(slots, L, n) && has_shape(shares, L, n),
             TT_ERR_FILE,
             "%s: \"expert_of_slot\" and \"share\" must have %" PRId64
             " numbers for each of the \"layers\"",
             path, n);
    TT_TRY(tti_placement_alloc(L, E, (int)n_groups, S, out));
    *layer_out = calloc((size_t)L + 1, sizeof(**layer_out));
    TT_CHECK(*layer_out, TT_ERR_NOMEM, "%s: no memory for names", path);
    for (int64_t l = 0; l < L; l++) {
        const char *name = json_string_value(json_array_get(layers, (size_t)l));
        TT_CHECK(name, TT_ERR_FILE, "%s: \"layers\", number %" PRId64 ": not a name", path, l);
        (*layer_out)[l] = strdup(name);
        TT_CHECK((*layer_out)[l], TT_ERR_NOMEM, "%s: no memory for names", path);
        TT_TRY(read_layer(path, slots, shares, l, *out));
    }
    const tt_status st = tt_placement_check(*out);
    if (st != TT_OK) {
        char why[TT_STATUS_MESSAGE_BYTES];
        memcpy(why, tt_status_message(), sizeof(why));
        why[sizeof(why) - 1] = '\0';
        return TT_FAIL(TT_ERR_FILE, "%s: %s", path, why);
    }
    return TT_OK;
}

void tt_placement_free_names(char ***layer, int64_t n)
{
    for (int64_t l = 0; *layer && l < n; l++) {
        free((*layer)[l]);
    }
    free(*layer);
    *layer = NULL;
}

tt_status tt_placement_read(const char *path, tt_placement **placement_out, char ***layer_out)
{
    json_t *root = NULL;
    tt_placement *p = NULL;
    char **layer = NULL;
    TT_TRY(tti_balance_read_json(path, &root));
    const tt_status st = read_all(path, root, &p, &layer);
    json_decref(root);
    if (st != TT_OK) {
        tt_placement_free_names(&layer, p ? p->L : 0);
        tt_placement_destroy(&p);
        return st;
    }
    *placement_out = p;
    *layer_out = layer;
    return TT_OK;
}
