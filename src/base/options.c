/* options.c - fills a struct from option tables: defaults first, then the environment, then the
 * command line, each over the last. Which options were given is remembered per values pointer,
 * for tt_options_is_set. */
#include "tutti/options.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/log.h"

extern char **environ;

enum {
    MAX_VALUES = 16,  /* structs whose given options are remembered; the oldest is forgotten */
    MAX_GIVEN = 512,  /* options of one struct */
    NAME_BYTES = 64,  /* longest option name and its NUL */
    HELP_COLUMN = 34, /* where help text starts */
    HELP_LEFT_BYTES = 256,
    NEAR_SHARE = 3 /* a name is near if at most one letter of so many differs */
};

static const char ENVIRONMENT_PREFIX[] = "TUTTI_";

/* Variables that are read where they are needed, not through a table. */
static const char *const other_variables[] = {
    "TUTTI_CPU_HIDE", "TUTTI_DATADIR",          "TUTTI_FAKE_NODES",     "TUTTI_INJECT_DELAY_US",
    "TUTTI_VERBOSE",  "TUTTI_TEST_PIECE_BYTES", "TUTTI_TEST_SHM_BYTES", "TUTTI_INJECT_MB_S"};

typedef struct given {
    const void *values;
    int n;
    const char *name[MAX_GIVEN]; /* into the tables */
} given;

static given registry[MAX_VALUES];
static int registry_next;

static given *registry_find(const void *values)
{
    for (int i = 0; i < MAX_VALUES; i++) {
        if (registry[i].values == values) {
            return &registry[i];
        }
    }
    return NULL;
}

/* An empty record for `values`, in the place of its last parse or of the oldest struct. */
static given *registry_renew(const void *values)
{
    given *g = registry_find(values);
    if (!g) {
        g = &registry[registry_next];
        registry_next = (registry_next + 1) % MAX_VALUES;
    }
    g->values = values;
    g->n = 0;
    return g;
}

static bool given_has(const given *g, const char *name)
{
    for (int i = 0; i < g->n; i++) {
        if (!strcmp(g->name[i], name)) {
            return true;
        }
    }
    return false;
}

static void given_add(given *g, const char *name)
{
    if (!given_has(g, name) && g->n < MAX_GIVEN) {
        g->name[g->n++] = name;
    }
}

/* "max-batch" -> "TUTTI_MAX_BATCH" */
static void environment_name(const char *name, char *text, size_t text_bytes)
{
    int used = snprintf(text, text_bytes, "%s", ENVIRONMENT_PREFIX);
    size_t i = (size_t)used;
    for (; *name && i + 1 < text_bytes; name++, i++) {
        text[i] = *name == '-' ? '_' : (char)toupper((unsigned char)*name);
    }
    text[i] = 0;
}

static bool is_flag(const tt_option *o)
{
    return o->type == TT_OPTION_FLAG || o->type == TT_OPTION_SWITCH;
}

/* Levenshtein distance; names beyond NAME_BYTES compare by their beginnings. */
static int edit_distance(const char *a, size_t a_length, const char *b)
{
    int row[NAME_BYTES + 1];
    size_t n = strnlen(b, NAME_BYTES);
    size_t m = a_length < NAME_BYTES ? a_length : NAME_BYTES;
    for (size_t j = 0; j <= n; j++) {
        row[j] = (int)j;
    }
    for (size_t i = 1; i <= m; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int substitute = diagonal + (a[i - 1] != b[j - 1]);
            int least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            diagonal = row[j];
            row[j] = substitute < least ? substitute : least;
        }
    }
    return row[n];
}

static const tt_option *find_option(const tt_option *const *tables, const char *name, size_t length)
{
    for (; *tables; tables++) {
        for (const tt_option *o = *tables; o->name; o++) {
            if (strlen(o->name) == length && !strncmp(o->name, name, length)) {
                return o;
            }
        }
    }
    return NULL;
}

static const tt_option *find_letter(const tt_option *const *tables, char letter)
{
    for (; *tables; tables++) {
        for (const tt_option *o = *tables; o->name; o++) {
            if (o->letter && o->letter == letter) {
                return o;
            }
        }
    }
    return NULL;
}

/* The known name that was most likely meant; NULL if none is near. */
static const char *nearest_name(const tt_option *const *tables, const char *name, size_t length)
{
    const char *best = NULL;
    int best_distance = 0;
    for (; *tables; tables++) {
        for (const tt_option *o = *tables; o->name; o++) {
            int distance = edit_distance(name, length, o->name);
            if (!best || distance < best_distance) {
                best = o->name;
                best_distance = distance;
            }
        }
    }
    return best && (size_t)best_distance * NEAR_SHARE <= length ? best : NULL;
}

/* Index of `text` in "a|b|c"; -1 if it is not there. */
static int choice_index(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (int i = 0; *choices; i++) {
        size_t n = strcspn(choices, "|");
        if (n == length && !strncmp(choices, text, n)) {
            return i;
        }
        choices += n + (choices[n] == '|');
    }
    return -1;
}

static tt_status check_range(const tt_option *o, const char *origin, const char *text, double value)
{
    if (o->min == 0 && o->max == 0) {
        return TT_OK;
    }
    TT_CHECK(value >= o->min && value <= o->max, TT_ERR_USAGE,
             "%s: %s is not within %.15g to %.15g", origin, text, o->min, o->max);
    return TT_OK;
}

static tt_status parse_int(const tt_option *o, const char *origin, const char *text,
                           int64_t *value_out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    TT_CHECK(end != text && *end == 0 && !isspace((unsigned char)text[0]), TT_ERR_USAGE,
             "%s: '%s' is not a whole number", origin, text);
    TT_CHECK(errno != ERANGE, TT_ERR_USAGE, "%s: %s is too large", origin, text);
    TT_TRY(check_range(o, origin, text, (double)value));
    *value_out = value;
    return TT_OK;
}

static tt_status parse_float(const tt_option *o, const char *origin, const char *text,
                             double *value_out)
{
    char *end;
    double value = strtod(text, &end);
    TT_CHECK(end != text && *end == 0 && !isspace((unsigned char)text[0]), TT_ERR_USAGE,
             "%s: '%s' is not a number", origin, text);
    TT_CHECK(isfinite(value), TT_ERR_USAGE, "%s: '%s' is not a finite number", origin, text);
    TT_TRY(check_range(o, origin, text, value));
    *value_out = value;
    return TT_OK;
}

/* "16G", "1.5g", "4096": decimal digits with an optional fraction, then at most one letter. */
static tt_status parse_bytes(const tt_option *o, const char *origin, const char *text,
                             int64_t *value_out)
{
    static const char suffixes[] = "KMGT";
    size_t digits = strspn(text, "0123456789.");
    const char *suffix = text + digits;
    const char *unit = *suffix ? strchr(suffixes, toupper((unsigned char)*suffix)) : NULL;
    int shift = unit ? 10 * (int)(unit - suffixes + 1) : 0;
    bool is_form_good = digits > 0 && (*suffix == 0 || (unit && suffix[1] == 0));
    int64_t value = 0;
    if (is_form_good && memchr(text, '.', digits)) {
        char *end;
        double number = strtod(text, &end);
        double bytes = ldexp(number, shift);
        is_form_good = end == suffix;
        TT_CHECK(!is_form_good || bytes < 0x1p63, TT_ERR_USAGE, "%s: %s is too large", origin,
                 text);
        value = is_form_good ? (int64_t)bytes : 0;
    } else if (is_form_good) {
        errno = 0;
        unsigned long long number = strtoull(text, NULL, 10);
        TT_CHECK(errno != ERANGE && number <= (unsigned long long)(INT64_MAX >> shift),
                 TT_ERR_USAGE, "%s: %s is too large", origin, text);
        value = (int64_t)(number << shift);
    }
    TT_CHECK(is_form_good, TT_ERR_USAGE, "%s: '%s' is not a size as 512M or 16G", origin, text);
    TT_TRY(check_range(o, origin, text, (double)value));
    *value_out = value;
    return TT_OK;
}

static tt_status parse_flag(const char *origin, const char *text, bool *value_out)
{
    bool yes = !strcmp(text, "1") || !strcmp(text, "yes");
    bool no = !strcmp(text, "0") || !strcmp(text, "no");
    TT_CHECK(yes || no, TT_ERR_USAGE, "%s: '%s' is none of 0, 1, yes, no", origin, text);
    *value_out = yes;
    return TT_OK;
}

/* Stores `text` as the value of option o; `origin` says where it came from, for messages. */
static tt_status store(const tt_option *o, void *values, const char *origin, const char *text)
{
    void *place = (char *)values + o->offset;
    switch (o->type) {
    case TT_OPTION_FLAG:
    case TT_OPTION_SWITCH:
        TT_TRY(parse_flag(origin, text, place));
        break;
    case TT_OPTION_INT:
        TT_TRY(parse_int(o, origin, text, place));
        break;
    case TT_OPTION_FLOAT:
        TT_TRY(parse_float(o, origin, text, place));
        break;
    case TT_OPTION_BYTES:
        TT_TRY(parse_bytes(o, origin, text, place));
        break;
    case TT_OPTION_STRING:
        *(const char **)place = text;
        break;
    case TT_OPTION_ENUM: {
        int index = choice_index(o->choices, text);
        TT_CHECK(index >= 0, TT_ERR_USAGE, "%s: '%s' is none of %s", origin, text, o->choices);
        *(int *)place = index;
        break;
    }
    case TT_OPTION_LIST: {
        tt_option_list *list = place;
        TT_CHECK(list->n < TT_OPTION_LIST_MAX, TT_ERR_USAGE, "%s: given more than %d times", origin,
                 (int)TT_OPTION_LIST_MAX);
        list->item[list->n++] = text;
        break;
    }
    }
    return TT_OK;
}

static void clear(const tt_option *o, void *values)
{
    static const size_t sizes[] = {
        [TT_OPTION_FLAG] = sizeof(bool),     [TT_OPTION_SWITCH] = sizeof(bool),
        [TT_OPTION_INT] = sizeof(int64_t),   [TT_OPTION_FLOAT] = sizeof(double),
        [TT_OPTION_BYTES] = sizeof(int64_t), [TT_OPTION_STRING] = sizeof(char *),
        [TT_OPTION_ENUM] = sizeof(int),      [TT_OPTION_LIST] = sizeof(tt_option_list),
    };
    memset((char *)values + o->offset, 0, sizes[o->type]);
}

/* Defaults, and over them the environment. An empty variable counts as absent: shells make those
 * easily. */
static tt_status apply_defaults(const tt_option *const *tables, void *values, given *g)
{
    for (; *tables; tables++) {
        for (const tt_option *o = *tables; o->name; o++) {
            char origin[NAME_BYTES + sizeof(ENVIRONMENT_PREFIX)];
            clear(o, values);
            if (o->default_value) {
                TT_TRY(store(o, values, o->name, o->default_value));
            }
            if (o->type == TT_OPTION_SWITCH) {
                continue;
            }
            environment_name(o->name, origin, sizeof(origin));
            const char *text = getenv(origin);
            if (text && *text) {
                if (o->type == TT_OPTION_LIST) {
                    clear(o, values);
                }
                TT_TRY(store(o, values, origin, text));
                given_add(g, o->name);
            }
        }
    }
    return TT_OK;
}

/* The walk over argv. */
typedef struct cursor {
    const tt_option *const *tables;
    void *values;
    given *command_line; /* what was seen on it, so that a list drops the environment's once */
    int argc;
    char **argv;
    int i; /* the word at hand */
} cursor;

static tt_status store_word(cursor *c, const tt_option *o, const char *origin, const char *text)
{
    if (o->type == TT_OPTION_LIST && !given_has(c->command_line, o->name)) {
        clear(o, c->values);
    }
    TT_TRY(store(o, c->values, origin, text));
    given_add(c->command_line, o->name);
    return TT_OK;
}

static tt_status take_next_word(cursor *c, const char *origin, const char **text_out)
{
    TT_CHECK(c->i + 1 < c->argc, TT_ERR_USAGE, "%s needs a value", origin);
    *text_out = c->argv[++c->i];
    return TT_OK;
}

/* --name, --name VALUE, --name=VALUE */
static tt_status parse_long(cursor *c)
{
    const char *name = c->argv[c->i] + 2;
    size_t length = strcspn(name, "=");
    const char *text = name[length] == '=' ? name + length + 1 : NULL;
    const tt_option *o = find_option(c->tables, name, length);
    if (!o) {
        const char *near = nearest_name(c->tables, name, length);
        return TT_FAIL(TT_ERR_USAGE, "unknown option --%.*s%s%s%s", (int)length, name,
                       near ? "; did you mean --" : "", near ? near : "", near ? "?" : "");
    }
    char origin[NAME_BYTES + 2];
    snprintf(origin, sizeof(origin), "--%s", o->name);
    if (is_flag(o)) {
        TT_CHECK(!text, TT_ERR_USAGE, "%s takes no value", origin);
        return store_word(c, o, origin, "yes");
    }
    if (!text) {
        TT_TRY(take_next_word(c, origin, &text));
    }
    return store_word(c, o, origin, text);
}

/* -n 5, -n5, and flags in a row: -jv */
static tt_status parse_letters(cursor *c)
{
    const char *word = c->argv[c->i];
    for (const char *letter = word + 1; *letter; letter++) {
        const tt_option *o = find_letter(c->tables, *letter);
        TT_CHECK(o, TT_ERR_USAGE, "unknown option -%c in '%s'", *letter, word);
        char origin[NAME_BYTES + 8];
        snprintf(origin, sizeof(origin), "-%c (--%s)", o->letter, o->name);
        if (is_flag(o)) {
            TT_TRY(store_word(c, o, origin, "yes"));
            continue;
        }
        const char *text = letter + 1;
        if (!*text) {
            TT_TRY(take_next_word(c, origin, &text));
        }
        return store_word(c, o, origin, text);
    }
    return TT_OK;
}

tt_status tt_options_parse(const tt_option *const *tables, void *values, int argc, char **argv,
                           const char **positional, int *n_positional_out)
{
    static given command_line;
    given *g = registry_renew(values);
    TT_TRY(apply_defaults(tables, values, g));
    command_line.n = 0;
    cursor c = {tables, values, &command_line, argc, argv, 1};
    bool has_ended = false;
    int n_positional = 0;
    for (; c.i < argc; c.i++) {
        const char *word = argv[c.i];
        if (has_ended || word[0] != '-' || !word[1]) {
            positional[n_positional++] = word;
        } else if (!strcmp(word, "--")) {
            has_ended = true;
        } else if (word[1] == '-') {
            TT_TRY(parse_long(&c));
        } else {
            TT_TRY(parse_letters(&c));
        }
    }
    for (int i = 0; i < command_line.n; i++) {
        given_add(g, command_line.name[i]);
    }
    *n_positional_out = n_positional;
    return TT_OK;
}

bool tt_options_is_set(const void *values, const char *name)
{
    const given *g = registry_find(values);
    return g && given_has(g, name);
}

/* "within A to B" for the help text, if the option has a range. */
static void print_facts(const tt_option *o, FILE *out)
{
    bool has_range = o->min != 0 || o->max != 0;
    if (o->default_value && has_range) {
        fprintf(out, " (default %s; %.15g to %.15g)", o->default_value, o->min, o->max);
    } else if (o->default_value) {
        fprintf(out, " (default %s)", o->default_value);
    } else if (has_range) {
        fprintf(out, " (%.15g to %.15g)", o->min, o->max);
    }
}

void tt_options_help(const tt_option *table, FILE *out)
{
    for (const tt_option *o = table; o->name; o++) {
        char left[HELP_LEFT_BYTES];
        char letter[8] = "    ";
        if (o->letter) {
            snprintf(letter, sizeof(letter), "-%c, ", o->letter);
        }
        const char *argument = o->argument;
        if (!argument) {
            argument = is_flag(o) ? "" : o->choices ? o->choices : "VALUE";
        }
        int used = snprintf(left, sizeof(left), "  %s--%s%s%s", letter, o->name,
                            *argument ? " " : "", argument);
        if (used >= HELP_COLUMN) {
            fprintf(out, "%s\n%*s", left, (int)HELP_COLUMN, "");
        } else {
            fprintf(out, "%-*s", (int)HELP_COLUMN, left);
        }
        fputs(o->help ? o->help : "", out);
        if (o->type == TT_OPTION_ENUM && o->argument) {
            fprintf(out, ": %s", o->choices);
        }
        print_facts(o, out);
        fputc('\n', out);
    }
}

static bool is_known_variable(const tt_option *const *tables, const char *variable, size_t length)
{
    for (size_t i = 0; i < sizeof(other_variables) / sizeof(other_variables[0]); i++) {
        if (strlen(other_variables[i]) == length &&
            !strncmp(variable, other_variables[i], length)) {
            return true;
        }
    }
    for (; *tables; tables++) {
        for (const tt_option *o = *tables; o->name; o++) {
            char name[NAME_BYTES + sizeof(ENVIRONMENT_PREFIX)];
            environment_name(o->name, name, sizeof(name));
            if (o->type != TT_OPTION_SWITCH && strlen(name) == length &&
                !strncmp(variable, name, length)) {
                return true;
            }
        }
    }
    return false;
}

void tt_options_warn_unknown_environment(const tt_option *const *tables)
{
    size_t prefix = sizeof(ENVIRONMENT_PREFIX) - 1;
    for (char **e = environ; e && *e; e++) {
        size_t length = strcspn(*e, "=");
        if (length <= prefix || strncmp(*e, ENVIRONMENT_PREFIX, prefix) != 0 ||
            is_known_variable(tables, *e, length)) {
            continue;
        }
        char name[NAME_BYTES] = {0};
        for (size_t i = 0; i + prefix < length && i + 1 < sizeof(name); i++) {
            char letter = (*e)[prefix + i];
            name[i] = letter == '_' ? '-' : (char)tolower((unsigned char)letter);
        }
        const char *near = nearest_name(tables, name, strlen(name));
        char near_variable[NAME_BYTES + sizeof(ENVIRONMENT_PREFIX)];
        environment_name(near ? near : "", near_variable, sizeof(near_variable));
        tt_log(TT_LOG_WARN, "%.*s is set, but no option reads it%s%s%s", (int)length, *e,
               near ? "; did you mean " : "", near ? near_variable : "", near ? "?" : "");
    }
}
