/* constant_rows.h - the number of rows of a tile as a constant, without which its sums do not become
 * registers. */
#ifndef TUTTI_TTK_CONSTANT_ROWS_H
#define TUTTI_TTK_CONSTANT_ROWS_H

#define TTK_IF_FEWER(n, most, TILE)                                                                \
    case n:                                                                                        \
        if ((n) < (most)) {                                                                        \
            TILE(n);                                                                               \
        }                                                                                          \
        break;

/* TILE(rows); rows in [1, most], most at most 8. */
#define TTK_CONSTANT_ROWS(rows, most, TILE)                                                        \
    switch ((rows) < (most) ? (int)(rows) : 0) {                                                   \
        TTK_IF_FEWER(1, most, TILE)                                                                \
        TTK_IF_FEWER(2, most, TILE)                                                                \
        TTK_IF_FEWER(3, most, TILE)                                                                \
        TTK_IF_FEWER(4, most, TILE)                                                                \
        TTK_IF_FEWER(5, most, TILE)                                                                \
        TTK_IF_FEWER(6, most, TILE)                                                                \
        TTK_IF_FEWER(7, most, TILE)                                                                \
    default:                                                                                       \
        TILE(most);                                                                                \
        break;                                                                                     \
    }

#endif
