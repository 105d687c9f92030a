/* chat_template_arithmetic.c - + - * / // % ** between values, as Python has them. Whole numbers
 * have 64 bits here: what exceeds them is an error, not a wrong number. */
#include "chat_template_internal.h"
#include <math.h>

static bool add_overflows(int64_t a, int64_t b)
{
    return (b > 0 && a > INT64_MAX - b) || (b < 0 && a < INT64_MIN - b);
}

static bool mul_overflows(int64_t a, int64_t b)
{
    if (a == 0 || b == 0) {
        return false;
    }
    if (a == -1 || b == -1) {
        return a == INT64_MIN || b == INT64_MIN;
    }
    int64_t limit = (a > 0) == (b > 0) ? INT64_MAX : INT64_MIN;
    return a > 0 ? (b > 0 ? a > limit / b : b < limit / a)
                 : (b > 0 ? a < limit / b : b < limit / a);
}

/* Rounds towards minus infinity; b is not 0. */
static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static tt_status power(int line, int64_t a, int64_t b, tti_value *out)
{
    int64_t result = 1;
    if (b < 0) {
        TTI_CHAT_CHECK(a != 0, line, "a division by zero");
        *out = tti_value_real(pow((double)a, (double)b));
        return TT_OK;
    }
    if (a >= -1 && a <= 1) { /* where no limit on b comes from the result */
        b = b > 0 ? 2 - b % 2 : 0;
    }
    for (; b > 0; b--) {
        TTI_CHAT_CHECK(!mul_overflows(result, a), line, "a number is too large");
        result *= a;
    }
    *out = tti_value_integer(result);
    return TT_OK;
}

static tt_status whole(int line, tti_operator op, int64_t a, int64_t b, tti_value *out)
{
    bool divides = op == TTI_OP_DIV || op == TTI_OP_FLOORDIV || op == TTI_OP_MOD;
    bool too_large = (op == TTI_OP_ADD && add_overflows(a, b)) ||
                     (op == TTI_OP_SUB && (b == INT64_MIN || add_overflows(a, -b))) ||
                     (op == TTI_OP_MUL && mul_overflows(a, b)) ||
                     (divides && a == INT64_MIN && b == -1);
    TTI_CHAT_CHECK(!too_large, line, "a number is too large");
    TTI_CHAT_CHECK(!divides || b != 0, line, "a division by zero");
    switch (op) {
    case TTI_OP_ADD:
        *out = tti_value_integer(a + b);
        return TT_OK;
    case TTI_OP_SUB:
        *out = tti_value_integer(a - b);
        return TT_OK;
    case TTI_OP_MUL:
        *out = tti_value_integer(a * b);
        return TT_OK;
    case TTI_OP_DIV:
        *out = tti_value_real((double)a / (double)b);
        return TT_OK;
    case TTI_OP_FLOORDIV:
        *out = tti_value_integer(floor_div(a, b));
        return TT_OK;
    case TTI_OP_MOD:
        *out = tti_value_integer(a - b * floor_div(a, b));
        return TT_OK;
    default:
        return power(line, a, b, out);
    }
}

static tt_status real(int line, tti_operator op, double a, double b, tti_value *out)
{
    bool divides = op == TTI_OP_DIV || op == TTI_OP_FLOORDIV || op == TTI_OP_MOD;
    double rest;
    TTI_CHAT_CHECK(!divides || b != 0, line, "a division by zero");
    switch (op) {
    case TTI_OP_ADD:
        *out = tti_value_real(a + b);
        return TT_OK;
    case TTI_OP_SUB:
        *out = tti_value_real(a - b);
        return TT_OK;
    case TTI_OP_MUL:
        *out = tti_value_real(a * b);
        return TT_OK;
    case TTI_OP_DIV:
        *out = tti_value_real(a / b);
        return TT_OK;
    case TTI_OP_FLOORDIV:
    case TTI_OP_MOD:
        rest = fmod(a, b);
        rest += rest != 0 && (rest < 0) != (b < 0) ? b : 0;
        rest = rest == 0 ? copysign(0, b) : rest;
        if (op == TTI_OP_MOD) {
            *out = tti_value_real(rest);
            return TT_OK;
        }
        rest = (a - rest) / b;
        *out = tti_value_real(rest - floor(rest) > 0.5 ? floor(rest) + 1 : floor(rest));
        return TT_OK;
    default:
        TTI_CHAT_CHECK(a != 0 || b >= 0, line, "a division by zero");
        TTI_CHAT_CHECK(a >= 0 || b == floor(b), line, "a power that is no real number");
        *out = tti_value_real(pow(a, b));
        return TT_OK;
    }
}

static tt_status add_lists(tti_run *r, int line, const tti_value *a, const tti_value *b,
                           tti_value *out)
{
    tti_value *items;
    TT_TRY(tti_chat_count(r, line, a->n + b->n));
    TT_TRY(tti_value_array(r, a->n + b->n, &items));
    if (a->n) {
        memcpy(items, a->as.list.item, a->n * sizeof(*items));
    }
    if (b->n) {
        memcpy(items + a->n, b->as.list.item, b->n * sizeof(*items));
    }
    *out = tti_value_items(a->kind, items, a->n + b->n);
    return TT_OK;
}

static tt_status repeat_list(tti_run *r, int line, const tti_value *list, int64_t times,
                             tti_value *out)
{
    tti_value *items;
    size_t n = times > 0 ? (size_t)times : 0;
    TTI_CHAT_CHECK(list->n == 0 || n <= r->arena.max_bytes / sizeof(*items) / list->n, line,
                   "a list is too long");
    TT_TRY(tti_chat_count(r, line, n * list->n));
    TT_TRY(tti_value_array(r, n * list->n, &items));
    for (size_t k = 0; k < n * list->n; k++) {
        items[k] = list->as.list.item[k % list->n];
    }
    *out = tti_value_items(list->kind, items, n * list->n);
    return TT_OK;
}

/* What the filter safe made is markup, and a string that is added to it gets escaped. */
static tt_status add_strings(tti_run *r, int line, const tti_value *a, const tti_value *b,
                             tti_value *out)
{
    tti_value left = *a, right = *b;
    bool markup = a->markup || b->markup;
    if (markup && !a->markup) {
        TT_TRY(tti_text_escape(r, line, a, &left));
    }
    if (markup && !b->markup) {
        TT_TRY(tti_text_escape(r, line, b, &right));
    }
    TT_TRY(tti_text_join(r, line, &left, &right, out));
    out->markup = markup;
    return TT_OK;
}

static bool is_list(const tti_value *v)
{
    return v->kind == TTI_LIST || v->kind == TTI_TUPLE;
}

static bool is_whole(const tti_value *v)
{
    return v->kind == TTI_INTEGER || v->kind == TTI_BOOL;
}

tt_status tti_chat_arithmetic(tti_run *r, int line, tti_operator op, const tti_value *a,
                              const tti_value *b, tti_value *out)
{
    static const char *const names[] = {
        [TTI_OP_ADD] = "+",       [TTI_OP_SUB] = "-", [TTI_OP_MUL] = "*",  [TTI_OP_DIV] = "/",
        [TTI_OP_FLOORDIV] = "//", [TTI_OP_MOD] = "%", [TTI_OP_POW] = "**",
    };
    if (is_whole(a) && is_whole(b)) {
        return whole(line, op, tti_value_to_integer(a), tti_value_to_integer(b), out);
    }
    if (tti_value_is_number(a) && tti_value_is_number(b)) {
        return real(line, op, tti_value_to_real(a), tti_value_to_real(b), out);
    }
    if (op == TTI_OP_ADD && a->kind == TTI_STRING && b->kind == TTI_STRING) {
        return add_strings(r, line, a, b, out);
    }
    if (op == TTI_OP_ADD && is_list(a) && a->kind == b->kind) {
        return add_lists(r, line, a, b, out);
    }
    if (op == TTI_OP_MUL && (is_whole(a) || is_whole(b))) {
        const tti_value *many = is_whole(a) ? b : a, *times = is_whole(a) ? a : b;
        if (many->kind == TTI_STRING) {
            return tti_text_repeat(r, line, many, tti_value_to_integer(times), out);
        }
        if (is_list(many)) {
            return repeat_list(r, line, many, tti_value_to_integer(times), out);
        }
    }
    if (op == TTI_OP_MOD && a->kind == TTI_STRING) {
        return TTI_CHAT_FAIL(TT_ERR_UNSUPPORTED, line, "%% on a string is not supported");
    }
    return TTI_CHAT_FAIL(TT_ERR_REQUEST, line, "%s is between values of types %s and %s", names[op],
                         tti_value_type(a), tti_value_type(b));
}
