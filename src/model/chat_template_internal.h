/* chat_template_internal.h - the parts of the chat template interpreter (a subset of Jinja).
 *
 *   lex -> parse -> tree;   JSON -> values;   run(tree, values) -> text and marks
 *
 * Tree, values and everything a run makes lie in one arena that is freed at once. Values are
 * immutable, as in the sandbox whose behaviour this follows; only a namespace changes. A run is
 * bounded in steps, depth, memory and bytes of output.
 * Threads: one at a time per run. MPI: none. */
#ifndef TUTTI_SRC_MODEL_CHAT_TEMPLATE_INTERNAL_H
#define TUTTI_SRC_MODEL_CHAT_TEMPLATE_INTERNAL_H
#include "chat_template.h"
#include <string.h>

/* ---- memory (chat_template_value.c) ---- */
typedef struct tti_chat_block tti_chat_block;
typedef struct tti_chat_arena {
    tti_chat_block *last;
    size_t n_bytes, max_bytes; /* of all blocks */
} tti_chat_arena;
/* Zeroed memory. Errors: TT_ERR_NOMEM; TT_ERR_REQUEST above max_bytes. */
tt_status tti_chat_alloc(tti_chat_arena *arena, size_t bytes, void **out);
void tti_chat_arena_fini(tti_chat_arena *arena);

/* ---- tree ---- */
enum {
    TTI_CHAT_PARSE_DEPTH_MAX = 100, /* of nested expressions and statements; bounds recursion */
    TTI_CHAT_LINE_SHOWN = 64        /* bytes of a name that a message shows */
};

typedef struct tti_string {
    const char *text; /* text[n], not NUL-terminated */
    size_t n;
} tti_string;

typedef enum tti_expr_kind {
    TTI_EXPR_STRING,
    TTI_EXPR_INTEGER,
    TTI_EXPR_REAL,
    TTI_EXPR_TRUE,
    TTI_EXPR_FALSE,
    TTI_EXPR_NONE,
    TTI_EXPR_NAME,
    TTI_EXPR_LIST,      /* args */
    TTI_EXPR_TUPLE,     /* args */
    TTI_EXPR_DICT,      /* args: key, value, key, value .. */
    TTI_EXPR_ATTRIBUTE, /* left.name */
    TTI_EXPR_SUBSCRIPT, /* left[right] */
    TTI_EXPR_SLICE,     /* left[args], three args, each may be absent (EXPR_ABSENT) */
    TTI_EXPR_ABSENT,
    TTI_EXPR_CALL,    /* left(args) */
    TTI_EXPR_FILTER,  /* left | name(args) */
    TTI_EXPR_TEST,    /* left is name(args) */
    TTI_EXPR_COMPARE, /* left op args[0] op args[1] ..: each arg has its operator */
    TTI_EXPR_AND,
    TTI_EXPR_OR,
    TTI_EXPR_NOT,
    TTI_EXPR_NEGATIVE,
    TTI_EXPR_POSITIVE,
    TTI_EXPR_ARITHMETIC, /* left op right */
    TTI_EXPR_CONCAT,     /* left ~ right */
    TTI_EXPR_IF          /* left if right else third (NULL: undefined) */
} tti_expr_kind;

typedef enum tti_operator {
    TTI_OP_NONE,
    TTI_OP_EQ,
    TTI_OP_NE,
    TTI_OP_LT,
    TTI_OP_LE,
    TTI_OP_GT,
    TTI_OP_GE,
    TTI_OP_IN,
    TTI_OP_NOT_IN,
    TTI_OP_ADD,
    TTI_OP_SUB,
    TTI_OP_MUL,
    TTI_OP_DIV,
    TTI_OP_FLOORDIV,
    TTI_OP_MOD,
    TTI_OP_POW
} tti_operator;

typedef struct tti_expr tti_expr;
/* One of the args of an expression. */
typedef struct tti_arg tti_arg;
struct tti_arg {
    const tti_expr *expr;
    tti_string keyword; /* n = 0: positional */
    tti_operator op;    /* COMPARE; of a call: TTI_OP_MUL for *list, TTI_OP_POW for **dict */
    tti_arg *next;
};
struct tti_expr {
    tti_expr_kind kind;
    tti_operator op;
    int line;
    unsigned depth;  /* of the tree below */
    tti_string name; /* STRING: its content; NAME, ATTRIBUTE, FILTER, TEST */
    union {
        int64_t integer;
        double real;
    } number;
    const tti_expr *left, *right, *third;
    const tti_arg *args;
};

typedef enum tti_node_kind {
    TTI_NODE_TEXT,
    TTI_NODE_OUTPUT,
    TTI_NODE_IF,
    TTI_NODE_FOR,
    TTI_NODE_SET,
    TTI_NODE_SET_BLOCK,
    TTI_NODE_MACRO,
    TTI_NODE_CALL,
    TTI_NODE_FILTER, /* body through expr, a chain of filters over TTI_EXPR_ABSENT */
    TTI_NODE_WITH,
    TTI_NODE_SCOPE, /* generation blocks: the body, with names of its own */
    TTI_NODE_BREAK,
    TTI_NODE_CONTINUE
} tti_node_kind;

/* A parameter of a macro, a target of `set` and `for`, or a name of `with`. */
typedef struct tti_target tti_target;
struct tti_target {
    tti_string name;
    tti_string attribute;    /* n > 0: name.attribute, of a namespace */
    const tti_expr *value;   /* a macro's default, a `with`'s value; or NULL */
    const tti_target *inner; /* a nested tuple instead of a name */
    tti_target *next;
};

typedef struct tti_node tti_node;
struct tti_node {
    tti_node_kind kind;
    int line;
    tti_string text;       /* TEXT; the name of MACRO */
    const tti_expr *expr;  /* what to print, test, go over, assign or call; filters of SET_BLOCK */
    const tti_expr *where; /* FOR: its `if`, or NULL */
    const tti_target *target;
    bool unpack; /* the targets are a tuple */
    tti_node *body;
    tti_node *other; /* `else`; an `elif` is an IF there */
    bool is_elif;
    tti_node *next;
};

/* *root_out is NULL for an empty template. Errors: TT_ERR_UNSUPPORTED naming what is not known,
 * TT_ERR_FILE for a template that does not hold together; both with the line. */
tt_status tti_chat_parse(tti_chat_arena *arena, const char *source, size_t n, tti_node **root_out);

/* ---- values ---- */
typedef enum tti_kind {
    TTI_UNDEFINED,
    TTI_NONE,
    TTI_BOOL,
    TTI_INTEGER,
    TTI_REAL,
    TTI_STRING,
    TTI_LIST,
    TTI_TUPLE,
    TTI_VIEW,      /* what d.items(), d.keys(), d.values() and range() give */
    TTI_GENERATOR, /* what map, select .. give: always true, has no length, is used up once */
    TTI_DICT,
    TTI_NAMESPACE,
    TTI_LOOP,
    TTI_MACRO,
    TTI_METHOD,  /* of an object, by its builtin */
    TTI_FUNCTION /* a global */
} tti_kind;

typedef struct tti_value tti_value;
typedef struct tti_dict tti_dict;
typedef struct tti_builtin tti_builtin;
typedef struct tti_run tti_run;

typedef struct tti_generator {
    const tti_value *item; /* item[n] */
    size_t n;
    bool used;
} tti_generator;
typedef struct tti_bound_method {
    const tti_value *self;
    const tti_builtin *builtin;
} tti_bound_method;

struct tti_value {
    tti_kind kind;
    bool literal; /* STRING: all of it came from a message; meant if mark is NULL */
    bool grows;   /* STRING: it begins a buffer of concat, which may have room behind it */
    bool markup;  /* STRING: the filter safe made it */
    size_t n;     /* STRING: bytes; LIST, TUPLE, VIEW: items */
    union {
        bool truth;
        int64_t integer;
        double real;
        struct {
            const char *text;          /* text[n], valid UTF-8 */
            const unsigned char *mark; /* mark[n]: 1 where a message's byte is; or NULL */
        } string;
        struct {
            const tti_value *item; /* item[n] */
            const char *label;     /* VIEW: as Python calls it, as "dict_items" */
        } list;
        struct {
            const char *text;  /* UNDEFINED: the name [n] that had no value, or NULL */
            const char *owner; /* the kind of object that lacks it, or NULL: a variable */
        } undefined;
        tti_generator *generator;
        tti_dict *dict; /* DICT, NAMESPACE */
        struct tti_loop *loop;
        struct tti_macro *macro;
        const tti_bound_method *method;
        const tti_builtin *function;
    } as;
};

typedef struct tti_entry {
    tti_value key, value;
} tti_entry;
struct tti_dict {
    tti_entry *entry; /* entry[n], in order of insertion */
    size_t n, capacity;
};

/* ---- a run ---- */
typedef struct tti_scope tti_scope;
typedef struct tti_variable tti_variable;
struct tti_variable {
    tti_string name;
    tti_value value;
    bool is_set; /* false: room that an earlier round of the loop left */
    tti_variable *next;
};
struct tti_scope {
    tti_scope *outer;
    tti_variable *first;
};
typedef struct tti_loop {
    const tti_value *item; /* item[n] */
    size_t n, round;
    tti_value changed; /* what loop.changed() saw */
} tti_loop;
typedef struct tti_macro {
    const tti_node *node;
    tti_scope *scope; /* where it was defined */
} tti_macro;
typedef struct tti_sink {
    tt_text text, mark; /* grow alike */
} tti_sink;
typedef enum tti_jump { TTI_JUMP_NONE, TTI_JUMP_BREAK, TTI_JUMP_CONTINUE } tti_jump;
enum { TTI_CHAT_STACK_VALUES = 512 }; /* arguments in flight; more go to the arena */
struct tti_run {
    tti_chat_arena arena;
    tti_chat_limits limits;
    int64_t n_steps;
    int depth;
    tti_scope *scope;
    tti_sink *sink;
    tti_scope globals;
    int64_t now_s;
    bool has_now;
    int64_t n_macros; /* defined so far; each keeps the scope around it */
    tti_jump jump;    /* a break or continue on its way to its loop */
    tti_value *stack; /* stack[TTI_CHAT_STACK_VALUES], n_stack in use */
    size_t n_stack;
};

/* Records "chat template, line N: ...". */
#define TTI_CHAT_FAIL(code, line, ...)                                                             \
    TT_STATUS_GIVEN(tti_chat_fail((code), (line), __FILE__, __LINE__, __VA_ARGS__), (code))
#define TTI_CHAT_CHECK(cond, line, ...)                                                            \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            return TTI_CHAT_FAIL(TT_ERR_REQUEST, (line), __VA_ARGS__);                             \
        }                                                                                          \
    } while (0)
TT_PRINTF(5, 6)
tt_status tti_chat_fail(tt_status code, int line, const char *file, int source_line,
                        const char *format, ...);
/* Bytes of a name that a message shows, for %.*s. */
int tti_chat_shown(size_t n);

/* Counts work: a step for each expression, statement, item, and for each 16 bytes of text. */
tt_status tti_chat_count(tti_run *r, int line, size_t n_steps);
tt_status tti_chat_count_bytes(tti_run *r, int line, size_t n_bytes);
/* One level deeper; `leave` on the way back, also on errors. */
tt_status tti_chat_enter(tti_run *r, int line);
void tti_chat_leave(tti_run *r);

/* ---- values (chat_template_value.c) ---- */
bool tti_string_is(tti_string s, const char *word);
tti_value tti_value_string(const char *text, size_t n, bool literal);
tti_value tti_value_word(const char *word);
tti_value tti_value_bool(bool truth);
tti_value tti_value_integer(int64_t number);
tti_value tti_value_real(double number);
tti_value tti_value_none(void);
tti_value tti_value_undefined(tti_string name, const char *owner);
tti_value tti_value_items(tti_kind kind, const tti_value *item, size_t n);
/* Python's name of the type, as "str". */
const char *tti_value_type(const tti_value *v);
bool tti_value_is_true(const tti_value *v);
bool tti_value_is_number(const tti_value *v); /* bool too */
bool tti_value_is(const tti_value *v, const char *word);
double tti_value_to_real(const tti_value *v);
int64_t tti_value_to_integer(const tti_value *v); /* BOOL, INTEGER */
/* Bytes [start, start + n) of a string, marks kept. */
tti_value tti_value_part(const tti_value *s, size_t start, size_t n);
tt_status tti_value_equal(tti_run *r, int line, const tti_value *a, const tti_value *b, bool *out);
/* -1, 0, 1. Errors: kinds that have no order. */
tt_status tti_value_order(tti_run *r, int line, const tti_value *a, const tti_value *b, int *out);
tt_status tti_value_contains(tti_run *r, int line, const tti_value *box, const tti_value *item,
                             bool *out);
/* Items of anything that can be gone over; uses a generator up. */
tt_status tti_value_iterate(tti_run *r, int line, const tti_value *v, const tti_value **item_out,
                            size_t *n_out);
tt_status tti_value_length(tti_run *r, int line, const tti_value *v, size_t *n_out);
tt_status tti_value_array(tti_run *r, size_t n, tti_value **out);
const tti_value *tti_dict_find(const tti_dict *dict, const char *key, size_t n);
tt_status tti_dict_get(tti_run *r, int line, const tti_dict *dict, const tti_value *key,
                       const tti_value **out);
tt_status tti_dict_create(tti_run *r, size_t capacity, tti_dict **out);
tt_status tti_dict_set(tti_run *r, int line, tti_dict *dict, const tti_value *key,
                       const tti_value *value);
/* The keys, values or pairs, as a view. */
tt_status tti_dict_view(tti_run *r, const tti_dict *dict, char what, tti_value *out);
/* A dict of JSON; every string in it is marked as literal. */
tt_status tti_value_from_json(tti_run *r, const json_t *json, tti_value *out);

/* ---- text (chat_template_print.c) ---- */
/* Appends to a sink; bounded. */
tt_status tti_sink_put(tti_run *r, int line, tti_sink *sink, const char *text, size_t n,
                       bool literal);
tt_status tti_sink_word(tti_run *r, int line, tti_sink *sink, const char *word);
tt_status tti_sink_value(tti_run *r, int line, tti_sink *sink, const tti_value *string);
/* Moves a sink's text into the arena and empties it. */
tt_status tti_sink_take(tti_run *r, int line, tti_sink *sink, tti_value *out);
void tti_sink_fini(tti_sink *sink);
/* str(v) as Python has it. */
tt_status tti_value_print(tti_run *r, int line, const tti_value *v, tti_value *out);
tt_status tti_value_repr(tti_run *r, int line, tti_sink *sink, const tti_value *v);
typedef struct tti_json_style {
    tti_value indent; /* a string, or undefined: all in one line */
    tti_value item_separator, key_separator;
    bool ascii, sort_keys;
} tti_json_style;
tt_status tti_value_to_json(tti_run *r, int line, tti_sink *sink, const tti_value *v,
                            const tti_json_style *style, int level);
enum { TTI_REAL_BYTES = 40 };
void tti_real_print(double number, char out[TTI_REAL_BYTES]);

/* ---- text operations (chat_template_text.c) ---- */
tt_status tti_text_join(tti_run *r, int line, const tti_value *a, const tti_value *b,
                        tti_value *out);
tt_status tti_text_repeat(tti_run *r, int line, const tti_value *s, int64_t times, tti_value *out);
size_t tti_text_n_chars(const tti_value *s);
/* The byte at which character k begins; its end for k >= n. */
size_t tti_text_offset(const tti_value *s, size_t k);
/* s[start:stop:step] over characters; absent ones are NULL. */
tt_status tti_text_slice(tti_run *r, int line, const tti_value *s, int64_t start, int64_t step,
                         size_t n, tti_value *out);
tt_status tti_text_chars(tti_run *r, int line, const tti_value *s, tti_value *list_out);
/* sides: 1 left, 2 right, 3 both; chars NULL: white space. */
tti_value tti_text_strip(const tti_value *s, const tti_value *chars, unsigned sides);
typedef enum tti_case {
    TTI_CASE_UPPER,
    TTI_CASE_LOWER,
    TTI_CASE_SWAP,
    TTI_CASE_CAPITALIZE,
    TTI_CASE_TITLE,       /* str.title */
    TTI_CASE_FILTER_TITLE /* the filter's */
} tti_case;
tt_status tti_text_case(tti_run *r, int line, const tti_value *s, tti_case how, tti_value *out);
/* count < 0: all. */
tt_status tti_text_replace(tti_run *r, int line, const tti_value *s, const tti_value *from,
                           const tti_value *to, int64_t count, tti_value *out);
/* separator NULL: white space. */
tt_status tti_text_split(tti_run *r, int line, const tti_value *s, const tti_value *separator,
                         int64_t max_splits, bool from_right, tti_value *list_out);
tt_status tti_text_lines(tti_run *r, int line, const tti_value *s, bool keep_ends,
                         tti_value *list_out);
/* The first place of part in s at or after byte `from`, and the last in all of s; -1: none. Both
 * count the bytes that they look at. */
tt_status tti_text_find(tti_run *r, int line, const tti_value *s, size_t from,
                        const tti_value *part, int64_t *found_out);
tt_status tti_text_find_last(tti_run *r, int line, const tti_value *s, const tti_value *part,
                             int64_t *found_out);
tt_status tti_text_escape(tti_run *r, int line, const tti_value *s, tti_value *out);
bool tti_char_is_blank(uint32_t c); /* str.isspace */

/* ---- builtins ---- */
typedef struct tti_args {
    const tti_value *value; /* value[n] */
    size_t n;
    const tti_entry *keyword; /* keyword[n_keywords] */
    size_t n_keywords;
} tti_args;
enum { TTI_PARAMS_MAX = 5 };
/* One call of a builtin: the arguments by the names in its table row. */
typedef struct tti_call {
    int line;
    const tti_builtin *builtin;
    const tti_value *self; /* what a filter, test or method works on */
    const tti_args *args;  /* as they were given */
    tti_value arg[TTI_PARAMS_MAX];
    bool given[TTI_PARAMS_MAX];
} tti_call;
typedef tt_status tti_builtin_fn(tti_run *r, const tti_call *call, tti_value *out);
struct tti_builtin {
    const char *name;
    const char *params; /* "a b?": b may be absent; NULL: the function takes args as they come */
    tti_builtin_fn *fn;
    int variant; /* for functions that serve several rows */
};
/* Tables end with a row without a name. */
extern const tti_builtin tti_chat_filters[], tti_chat_sequence_filters[], tti_chat_tests[];
extern const tti_builtin tti_chat_functions[];
extern const tti_builtin tti_chat_string_methods[], tti_chat_dict_methods[],
    tti_chat_list_methods[], tti_chat_loop_methods[];
const tti_builtin *tti_builtin_find(const tti_builtin *table, tti_string name);
/* NULL: not known. */
const tti_builtin *tti_chat_find_filter(tti_string name);
tt_status tti_builtin_call(tti_run *r, int line, const tti_builtin *builtin, const tti_value *self,
                           const tti_args *args, tti_value *out);
/* The filter, the test of that name, for a template that needs it. */
tt_status tti_chat_need_filter(int line, tti_string name, const tti_builtin **builtin_out);
tt_status tti_chat_need_test(int line, tti_string name, const tti_builtin **builtin_out);
const tti_builtin *tti_chat_find_test(tti_string name);
/* Reads arguments as numbers and strings. */
tt_status tti_call_integer(const tti_call *call, int k, int64_t fallback, int64_t *out);
tt_status tti_call_string(const tti_call *call, const tti_value *v, const tti_value **out);

/* ---- evaluation (chat_template_eval.c, chat_template_run.c) ---- */
tt_status tti_chat_evaluate(tti_run *r, const tti_expr *expr, tti_value *out);
/* Filters of a chain over `input`. */
tt_status tti_chat_evaluate_chain(tti_run *r, const tti_expr *expr, const tti_value *input,
                                  tti_value *out);
/* As Jinja resolves a.b (attribute first) and a["b"] (item first). */
tt_status tti_chat_attribute(tti_run *r, int line, const tti_value *object, tti_string name,
                             tti_value *out);
tt_status tti_chat_item(tti_run *r, int line, const tti_value *object, const tti_value *key,
                        tti_value *out);
tt_status tti_chat_arithmetic(tti_run *r, int line, tti_operator op, const tti_value *a,
                              const tti_value *b, tti_value *out);
tt_status tti_chat_call(tti_run *r, int line, const tti_value *callee, const tti_args *args,
                        tti_value *out);
/* A call, with one more argument `caller`. */
tt_status tti_chat_evaluate_call_with(tti_run *r, const tti_expr *expr, const tti_value *caller,
                                      tti_value *out);
tt_status tti_chat_call_macro(tti_run *r, int line, const tti_macro *macro, const tti_args *args,
                              tti_value *out);
/* Both count the names that they go along. *found_out is NULL where there is none. */
tt_status tti_chat_define(tti_run *r, int line, tti_scope *scope, tti_string name,
                          const tti_value *value);
tt_status tti_chat_lookup(tti_run *r, int line, tti_string name, const tti_value **found_out);

#endif
