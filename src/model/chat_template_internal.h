/* chat_template_internal.h - a chat template as a tree: what chat_template_parse.c makes and
 * chat_template.c runs. Everything lies in one arena that is freed at once. Threads: one at a
 * time per tree. MPI: none. */
#ifndef TUTTI_SRC_MODEL_CHAT_TEMPLATE_INTERNAL_H
#define TUTTI_SRC_MODEL_CHAT_TEMPLATE_INTERNAL_H
#include "tokenizer_internal.h"

/* Memory that is only freed together; all-zero is empty. */
typedef struct tti_chat_block tti_chat_block;
typedef struct tti_chat_arena {
    tti_chat_block *last;
} tti_chat_arena;
/* Zeroed; NULL if memory is out. */
void *tti_chat_alloc(tti_chat_arena *arena, size_t bytes);
void tti_chat_arena_fini(tti_chat_arena *arena);

enum {
    TTI_CHAT_DEPTH_MAX = 64 /* of nested expressions and of nested statements; bounds recursion */
};

typedef enum tti_expr_kind {
    TTI_EXPR_STRING,
    TTI_EXPR_INTEGER,
    TTI_EXPR_TRUE,
    TTI_EXPR_FALSE,
    TTI_EXPR_NONE,
    TTI_EXPR_NAME,
    TTI_EXPR_ATTRIBUTE, /* left.text */
    TTI_EXPR_SUBSCRIPT, /* left[right] */
    TTI_EXPR_EQUAL,
    TTI_EXPR_NOT_EQUAL,
    TTI_EXPR_AND,
    TTI_EXPR_OR,
    TTI_EXPR_NOT,   /* of left */
    TTI_EXPR_ADD,   /* + : both are strings, or both integers */
    TTI_EXPR_CONCAT /* ~ : both become strings */
} tti_expr_kind;
typedef struct tti_expr tti_expr;
struct tti_expr {
    tti_expr_kind kind;
    unsigned depth; /* of the tree below, at most TTI_CHAT_DEPTH_MAX */
    int line;
    const char *text; /* text[n]: STRING, NAME, ATTRIBUTE */
    size_t n;
    int64_t number; /* INTEGER */
    const tti_expr *left, *right;
};

typedef enum tti_node_kind {
    TTI_NODE_TEXT,
    TTI_NODE_OUTPUT,
    TTI_NODE_IF,
    TTI_NODE_FOR
} tti_node_kind;
typedef struct tti_node tti_node;
struct tti_node {
    tti_node_kind kind;
    int line;
    const char *text; /* text[n]: TEXT; the variable of FOR */
    size_t n;
    const tti_expr *expr; /* what to print, to test or to go over */
    tti_node *body;
    tti_node *other; /* `else`; an `elif` is an IF there */
    tti_node *next;
};

/* *root_out is NULL for an empty template. Errors: TT_ERR_UNSUPPORTED naming what is not known,
 * TT_ERR_FILE for a template that does not hold together; both with the line. */
tt_status tti_chat_parse(tti_chat_arena *arena, const char *source, size_t n, tti_node **root_out);

#endif
