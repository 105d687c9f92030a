/* chat_template_lex.h - from a template's text to tokens: what chat_template_lex.c offers to the
 * two files of the parser. */
#ifndef TUTTI_SRC_MODEL_CHAT_TEMPLATE_LEX_H
#define TUTTI_SRC_MODEL_CHAT_TEMPLATE_LEX_H
#include "chat_template_internal.h"

typedef enum tti_token_kind {
    TTI_TOKEN_END, /* the bracket that closes the tag is ahead */
    TTI_TOKEN_NAME,
    TTI_TOKEN_STRING,
    TTI_TOKEN_INTEGER,
    TTI_TOKEN_REAL,
    TTI_TOKEN_OPERATOR
} tti_token_kind;
typedef struct tti_token {
    tti_token_kind kind;
    tti_string text; /* a string's content with its escapes resolved */
    int64_t integer;
    double real;
} tti_token;

typedef enum tti_tag { TTI_TAG_NONE, TTI_TAG_BLOCK, TTI_TAG_OUTPUT } tti_tag;

typedef struct tti_lexer {
    tti_chat_arena *arena;
    const char *source; /* source[n], newlines are \n */
    size_t n;
    size_t at; /* the next byte to read */
    int line;  /* of counted_to */
    size_t counted_to;
    tti_tag tag;       /* we are in */
    unsigned brackets; /* open in the tag: it cannot end before they do */
    unsigned depth;    /* of the parser */
    tti_token token;   /* the one ahead */
} tti_lexer;

int tti_lex_line(tti_lexer *p);
#define TTI_LEX_FAIL(p, code, ...) TTI_CHAT_FAIL((code), tti_lex_line(p), __VA_ARGS__)
tt_status tti_lex_begin(tti_lexer *p, tti_chat_arena *arena, const char *source, size_t n);
/* Reads the next token of the tag. */
tt_status tti_lex_next(tti_lexer *p);
/* Leaves the tag, whose end is ahead. */
tt_status tti_lex_end_tag(tti_lexer *p);
/* The text up to the next tag, less the white space that the tag takes; comments are gone and raw
 * blocks are text. *more_out: call again for the text behind. Then p->tag says in which tag we are
 * (its first token is not read yet), NONE at the end. */
tt_status tti_lex_text(tti_lexer *p, tti_string *text_out, bool *more_out);

bool tti_lex_is(const tti_lexer *p, tti_token_kind kind, const char *text);
tt_status tti_lex_refuse(tti_lexer *p);
/* Reads over a token that must be there. */
tt_status tti_lex_expect(tti_lexer *p, tti_token_kind kind, const char *text);
/* Reads over a token if it is there. */
tt_status tti_lex_accept(tti_lexer *p, tti_token_kind kind, const char *text, bool *found_out);
tt_status tti_lex_name(tti_lexer *p, tti_string *name_out);
tt_status tti_lex_enter(tti_lexer *p);
void tti_lex_leave(tti_lexer *p);

/* ---- expressions (chat_template_parse.c) ---- */
tt_status tti_parse_expression(tti_lexer *p, const tti_expr **out);
/* Without `if`, as behind `in` of a loop. */
tt_status tti_parse_simple(tti_lexer *p, const tti_expr **out);
/* One expression, or several with commas as a tuple. */
tt_status tti_parse_tuple(tti_lexer *p, bool with_if, const tti_expr **out);
/* A chain of filters over TTI_EXPR_ABSENT, its first name ahead. */
tt_status tti_parse_filters(tti_lexer *p, const tti_expr **out);

#endif
