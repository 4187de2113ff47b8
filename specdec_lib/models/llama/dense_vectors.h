/* Sums of a block of rows with a few tiles of weights, in vector registers. */
#ifndef DENSE_VECTORS_H
#define DENSE_VECTORS_H

#include "linear.h"
#include "numbers.h"

/* The registers hold the sums of a block with the tiles of a group. The first block reads weights from memory, in the order
 * in which they lie there, the others from the processor's cache. */
#if HELD == 32
enum {MOST = 9, TOGETHER = 3, WIDE = 4};           /* rows of a block, tiles of a group; tiles that AMX multiplies at once */
#else
enum {MOST = 3, TOGETHER = 2, WIDE = TOGETHER};
#endif

typedef void (*Block)(const word *weights, const word *x, int64_t words, Lanes (*out)[WIDE]);

/* The sums [r][WIDE] of a group of t tiles and r rows: both are known where this is compiled. */
INLINE void sums_of(const int r, const int t, const word *weights, const word *x, int64_t words, Lanes (*out)[WIDE]) {
    Lanes sums[MOST][TOGETHER];
#pragma GCC unroll 32
    for (int i = 0; i < r; i++)
#pragma GCC unroll 4
        for (int j = 0; j < t; j++) sums[i][j] = zeros();
#pragma GCC unroll 1
    for (int64_t k = 0; k < words; k++) {
        Words w[TOGETHER];
#pragma GCC unroll 4
        for (int j = 0; j < t; j++) w[j] = load_words(weights + (k * t + j) * LANES);
#pragma GCC unroll 32
        for (int i = 0; i < r; i++) {
            Words one = all_words(x[i * words + k]);
#pragma GCC unroll 4
            for (int j = 0; j < t; j++) sums[i][j] = dot(sums[i][j], w[j], one);
        }
    }
#pragma GCC unroll 32
    for (int i = 0; i < r; i++)
#pragma GCC unroll 4
        for (int j = 0; j < t; j++) out[i][j] = sums[i][j];
}

#define BLOCK(r, t) static void block_##r##_##t(const word *weights, const word *x, int64_t words, Lanes (*out)[WIDE]) { \
    sums_of(r, t, weights, x, words, out); }
#define UP_TO_2(r) BLOCK(r, 1) BLOCK(r, 2)
#define UP_TO_3(r) UP_TO_2(r) BLOCK(r, 3)
#define NAMES_2(r) {block_##r##_1, block_##r##_2}
#define NAMES_3(r) {block_##r##_1, block_##r##_2, block_##r##_3}

#if HELD == 32
UP_TO_3(1) UP_TO_3(2) UP_TO_3(3) UP_TO_3(4) UP_TO_3(5) UP_TO_3(6) UP_TO_3(7) UP_TO_3(8) UP_TO_3(9)
static const Block BLOCKS[MOST][TOGETHER] = {
    NAMES_3(1), NAMES_3(2), NAMES_3(3), NAMES_3(4), NAMES_3(5), NAMES_3(6), NAMES_3(7), NAMES_3(8), NAMES_3(9)};
#else
UP_TO_2(1) UP_TO_2(2) UP_TO_2(3)
static const Block BLOCKS[MOST][TOGETHER] = {NAMES_2(1), NAMES_2(2), NAMES_2(3)};
#endif
#endif
