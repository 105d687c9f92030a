/* split.c - reads --split, which names the ranks of each role.
 *
 *   split   = section { "," section }        "attention:0-3+8,experts:4-7"
 *   section = ( "attention" | "experts" ) ":" range { "+" range }
 *   range   = rank [ "-" rank ]
 *
 * "," parts sections and nothing else, "+" joins ranges, so no list is ambiguous. A rank may
 * stand in both sections; within one it may stand once. */
#include "plan_internal.h"
#include <inttypes.h>
#include <string.h>

/* Reads a rank at *text and moves past it. */
static tt_status read_rank(const char *split, const char **text, int n_ranks, int *rank_out)
{
    const char *at = *text;
    int64_t value = 0;
    TT_CHECK(*at >= '0' && *at <= '9', TT_ERR_USAGE,
             "--split %s: a rank number is expected at \"%s\", as in attention:0-3+8,experts:4-7",
             split, at);
    for (; *at >= '0' && *at <= '9'; at++) {
        /* Capped, not wrapped: any value above n_ranks is refused below. */
        value = value > INT32_MAX ? value : value * 10 + (*at - '0');
    }
    TT_CHECK(value < n_ranks, TT_ERR_USAGE,
             "--split %s: rank %" PRId64 " is above the last rank %d", split, value, n_ranks - 1);
    *text = at;
    *rank_out = (int)value;
    return TT_OK;
}

/* Reads "a" or "a-b" at *text and marks its ranks. */
static tt_status read_range(const char *split, const char **text, int n_ranks, bool *marked)
{
    int first = 0;
    TT_TRY(read_rank(split, text, n_ranks, &first));
    int last = first;
    if (**text == '-') {
        (*text)++;
        TT_TRY(read_rank(split, text, n_ranks, &last));
    }
    TT_CHECK(first <= last, TT_ERR_USAGE, "--split %s: the range %d-%d runs backwards", split,
             first, last);
    for (int rank = first; rank <= last; rank++) {
        TT_CHECK(!marked[rank], TT_ERR_USAGE, "--split %s: rank %d stands twice in one section",
                 split, rank);
        marked[rank] = true;
    }
    return TT_OK;
}

tt_status tti_plan_parse_split(const char *split, int n_ranks, bool *attends, bool *serves)
{
    const struct {
        const char *name;
        bool *marked;
    } section[] = {{"attention:", attends}, {"experts:", serves}};
    enum { N_SECTIONS = sizeof(section) / sizeof(section[0]) };
    bool seen[N_SECTIONS] = {false};
    const char *text = split;
    for (;;) {
        size_t i = 0;
        while (i < N_SECTIONS && strncmp(text, section[i].name, strlen(section[i].name)) != 0) {
            i++;
        }
        TT_CHECK(i < N_SECTIONS, TT_ERR_USAGE,
                 "--split %s: \"attention:\" or \"experts:\" is expected at \"%s\" (ranges of one "
                 "section are joined by '+')",
                 split, text);
        TT_CHECK(!seen[i], TT_ERR_USAGE, "--split %s: the section \"%s\" stands twice", split,
                 section[i].name);
        seen[i] = true;
        text += strlen(section[i].name);
        TT_TRY(read_range(split, &text, n_ranks, section[i].marked));
        while (*text == '+') {
            text++;
            TT_TRY(read_range(split, &text, n_ranks, section[i].marked));
        }
        if (*text == 0) {
            break;
        }
        TT_CHECK(*text == ',', TT_ERR_USAGE, "--split %s: ',' or '+' is expected at \"%s\"", split,
                 text);
        text++;
    }
    TT_CHECK(seen[0], TT_ERR_USAGE, "--split %s: no attention ranks are named", split);
    return TT_OK;
}
