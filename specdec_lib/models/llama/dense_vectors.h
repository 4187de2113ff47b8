/* Sums of a block of rows with a few tiles of weights, in vector registers. */
#ifndef DENSE_VECTORS_H
#define DENSE_VECTORS_H

#include "linear.h"
#include "numbers.h"

/* The registers hold the sums of a block with the tiles of a group. The first block reads weights from memory, in the order
 * in which they lie there, the others from the processor's cache. */
#if HELD == 32
enum {MOST = 14, TOGETHER = 2, WIDE = 4};          /* rows of a block, tiles of a group; tiles that AMX multiplies at once */
enum {AHEAD = 96, BUSY = PACKED == 2 ? 5 : 6};     /* vectors that memory is asked for ahead, from so many rows on */
/* Measured on an EPYC (Zen 4): with nine rows and three tiles, ten rows took a quarter longer. */
INLINE void fetch(const int r, const int t, const word *weights) {
UNROLL(4)
    for (int j = 0; j < t; j++)
        if (r >= BUSY) __builtin_prefetch(weights + (AHEAD + j) * LANES, 0, 2);
}
#else
enum {MOST = 6, TOGETHER = 1, WIDE = TOGETHER, AHEAD = 24};      /* vectors that memory is asked for ahead */
INLINE void fetch(const int r, const int t, const word *weights) {
    (void)r, (void)t, __builtin_prefetch(weights + AHEAD * LANES);
}
#endif

/* The factors in words of weights, all or those of one step: where they are widened, the lower halves go first. */
#ifdef EMULATED
enum {STEPS = 2};
INLINE Words of_weights(const word *weights, int step) {
    return as_words(step ? upper(load_words(weights)) : lower(load_words(weights)));
}
#else
enum {STEPS = 1};
INLINE Words of_weights(const word *weights, int step) { return (void)step, load_words(weights); }
#endif

/* x [rows, words * STEPS]: a row's words of factors. */
typedef void (*Block)(const word *weights, const word *x, int64_t words, Lanes (*out)[WIDE]);

/* The sums [r][WIDE] of a group of t tiles and r rows: both are known where this is compiled. */
INLINE void sums_of(const int r, const int t, const word *weights, const word *x, int64_t words, Lanes (*out)[WIDE]) {
    Lanes sums[MOST][TOGETHER];
UNROLL(32)
    for (int i = 0; i < r; i++)
UNROLL(4)
        for (int j = 0; j < t; j++) sums[i][j] = zeros();
KEEP_ROLLED
    for (int64_t k = 0; k < words; k++) {
        fetch(r, t, weights + k * t * LANES);
UNROLL(2)
        for (int step = 0; step < STEPS; step++) {
            Words w[TOGETHER];
UNROLL(4)
            for (int j = 0; j < t; j++) w[j] = of_weights(weights + (k * t + j) * LANES, step);
UNROLL(32)
            for (int i = 0; i < r; i++) {
                Words one = all_words(x[(i * words + k) * STEPS + step]);
UNROLL(4)
                for (int j = 0; j < t; j++) sums[i][j] = dot(sums[i][j], w[j], one);
            }
        }
    }
UNROLL(32)
    for (int i = 0; i < r; i++)
UNROLL(4)
        for (int j = 0; j < t; j++) out[i][j] = sums[i][j];
}

#define BLOCK(r, t) static void block_##r##_##t(const word *weights, const word *x, int64_t words, Lanes (*out)[WIDE]) { \
    sums_of(r, t, weights, x, words, out); }

#if HELD == 32
#define BLOCKS_OF(r) BLOCK(r, 1) BLOCK(r, 2)
#define NAMES_OF(r) {block_##r##_1, block_##r##_2}
BLOCKS_OF(1) BLOCKS_OF(2) BLOCKS_OF(3) BLOCKS_OF(4) BLOCKS_OF(5) BLOCKS_OF(6) BLOCKS_OF(7)
BLOCKS_OF(8) BLOCKS_OF(9) BLOCKS_OF(10) BLOCKS_OF(11) BLOCKS_OF(12) BLOCKS_OF(13) BLOCKS_OF(14)
static const Block BLOCKS[MOST][TOGETHER] = {NAMES_OF(1), NAMES_OF(2), NAMES_OF(3), NAMES_OF(4), NAMES_OF(5),
                                             NAMES_OF(6), NAMES_OF(7), NAMES_OF(8), NAMES_OF(9), NAMES_OF(10),
                                             NAMES_OF(11), NAMES_OF(12), NAMES_OF(13), NAMES_OF(14)};
#else
BLOCK(1, 1) BLOCK(2, 1) BLOCK(3, 1) BLOCK(4, 1) BLOCK(5, 1) BLOCK(6, 1)
static const Block BLOCKS[MOST][TOGETHER] = {{block_1_1}, {block_2_1}, {block_3_1}, {block_4_1}, {block_5_1}, {block_6_1}};
#endif
#endif
