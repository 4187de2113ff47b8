/* Sums of a block of rows with a few tiles of weights, in vector registers. */
#ifndef DENSE_VECTORS_H
#define DENSE_VECTORS_H

#include "linear.h"
#include "numbers.h"

/* The registers hold the sums of a block with several tiles, the more the fewer rows it has. The first block reads weights
 * from memory, the others from the processor's cache. */
#if HELD == 32
enum {MOST = 9, WIDE = 4};
INLINE int64_t vector_tiles(int64_t rows) { return rows <= 6 ? 4 : 3; }
#else
enum {MOST = 3, WIDE = 2};
INLINE int64_t vector_tiles(int64_t rows) { return rows > 0 ? WIDE : 0; }
#endif

typedef void (*Block)(const word *weights, const word *x, int64_t words, Lanes (*out)[WIDE]);

/* The sums [r][WIDE] of t tiles that lie `words` vectors apart, and r rows: both are known where this is compiled. */
INLINE void sums_of(const int r, const int t, const word *weights, const word *x, int64_t words, Lanes (*out)[WIDE]) {
    Lanes sums[MOST][WIDE];
#pragma GCC unroll 32
    for (int i = 0; i < r; i++)
#pragma GCC unroll 4
        for (int j = 0; j < t; j++) sums[i][j] = zeros();
#pragma GCC unroll 1
    for (int64_t k = 0; k < words; k++) {
        Words w[WIDE];
#pragma GCC unroll 4
        for (int j = 0; j < t; j++) w[j] = load_words(weights + (j * words + k) * LANES);
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
#define UP_TO_4(r) UP_TO_3(r) BLOCK(r, 4)
#define NAMES_2(r) {block_##r##_1, block_##r##_2}
#define NAMES_3(r) {block_##r##_1, block_##r##_2, block_##r##_3}
#define NAMES_4(r) {block_##r##_1, block_##r##_2, block_##r##_3, block_##r##_4}

#if HELD == 32
UP_TO_4(1) UP_TO_4(2) UP_TO_4(3) UP_TO_4(4) UP_TO_4(5) UP_TO_4(6) UP_TO_3(7) UP_TO_3(8) UP_TO_3(9)
static const Block BLOCKS[MOST][WIDE] = {
    NAMES_4(1), NAMES_4(2), NAMES_4(3), NAMES_4(4), NAMES_4(5), NAMES_4(6), NAMES_3(7), NAMES_3(8), NAMES_3(9)};
#else
UP_TO_2(1) UP_TO_2(2) UP_TO_2(3)
static const Block BLOCKS[MOST][WIDE] = {NAMES_2(1), NAMES_2(2), NAMES_2(3)};
#endif
#endif
