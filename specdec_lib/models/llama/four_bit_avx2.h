/* Products of pairs of 16-bit integers, each an exact sum in 32 bits: at most 2 * 255 * 32640 < 2^24, and `four_bit.c`
 * says what a group gives. No sum is kept in 16 bits. Codes are widened to 16 bits in registers.
 *
 * Bytes would do no better: 4-bit codes times the high and the low bytes are two products and two sums for four inputs
 * of eight outputs, as here, but need twice the sums in registers, so fewer rows share the unpacked codes. 8-bit codes
 * cannot be taken so: 2 * 255 * 128 is beyond the 16 bits of a sum of pairs.
 *
 * A shift by 0 or 8 leaves bytes 0 and 2, or 1 and 3, of an output's four in two halves of its lane, so the integers of
 * every four inputs lie in the order 0, 2, 1, 3.
 */
#include <immintrin.h>

#define NAME "AVX2"
enum {MOST = 6};                                   /* 12 sums, two vectors of codes, one of integers, one to spare */

/* Leaves a sum in its register: else a compiler adds up products first, and has too few registers to hold them. */
#define KEEP(x) __asm__("" : "+x"(x))

INLINE void lay(const int32_t *n, int16_t *fixed) {
    for (int i = 0; i < GROUP; i += 4) {
        fixed[i] = (int16_t)n[i], fixed[i + 1] = (int16_t)n[i + 2];
        fixed[i + 2] = (int16_t)n[i + 1], fixed[i + 3] = (int16_t)n[i + 3];
    }
}

INLINE __m256i two_of(const int16_t *x) { int32_t two; memcpy(&two, x, 4); return _mm256_set1_epi32(two); }
INLINE __m256 half_floats(const uint16_t *x) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)x)); }

/* Codes in 16 bits, `part` of the four or two in each 16 bits of v. */
INLINE __m256i part_of(const int bits, const int part, __m256i v) {
    const int shift = bits == 8 ? 8 * part : part / 2 * 4 + part % 2 * 8;
    __m256i moved = shift ? _mm256_srli_epi16(v, shift) : v;
    return shift + bits == 16 ? moved : _mm256_and_si256(moved, _mm256_set1_epi16(bits == 8 ? 255 : 15));
}

/* One tile, in halves of eight outputs, times r rows. */
INLINE void tile(const int r, const int bits, const int minima, const uint8_t *codes, const uint16_t *scales,
                 int64_t groups, const int16_t *x, const float *steps, const float *sums, const int32_t *starts,
                 float (*out)[LANES]) {
    const int parts = 16 / bits;
    __m256 all[MOST][2];
UNROLL(8)
    for (int i = 0; i < r; i++) all[i][0] = all[i][1] = _mm256_setzero_ps();
KEEP_ROLLED
    for (int64_t g = 0; g < groups; g++, codes += 64 * bits, scales += LANES * (1 + minima), x += GROUP) {
        __m256i sum[MOST][2];
UNROLL(8)
        for (int i = 0; i < r; i++)
            sum[i][0] = sum[i][1] = _mm256_set1_epi32(bits == 8 ? starts[i * groups + g] : 0);
KEEP_ROLLED
        for (int k = 0; k < bits; k++) {
            __m256i low = _mm256_loadu_si256((const void *)(codes + 64 * k));
            __m256i high = _mm256_loadu_si256((const void *)(codes + 64 * k + 32));
UNROLL(4)
            for (int j = 0; j < parts; j++) {
                __m256i first = part_of(bits, j, low), second = part_of(bits, j, high);
UNROLL(8)
                for (int i = 0; i < r; i++) {
                    __m256i two = two_of(x + i * groups * GROUP + 2 * (k * parts + j));
                    sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(first, two));
                    sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(second, two));
                    KEEP(sum[i][0]);
                    KEEP(sum[i][1]);
                }
            }
        }
UNROLL(2)
        for (int h = 0; h < 2; h++) {
            __m256 d = half_floats(scales + 8 * h), m = minima ? half_floats(scales + LANES + 8 * h) : d;
UNROLL(8)
            for (int i = 0; i < r; i++) {
                __m256 worth = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][h]), _mm256_set1_ps(steps[i * groups + g]));
                all[i][h] = _mm256_fmadd_ps(worth, d, all[i][h]);
                if (minima) all[i][h] = _mm256_fmadd_ps(_mm256_set1_ps(sums[i * groups + g]), m, all[i][h]);
            }
        }
    }
UNROLL(8)
    for (int i = 0; i < r; i++) {
        _mm256_storeu_ps(out[i], all[i][0]);
        _mm256_storeu_ps(out[i] + 8, all[i][1]);
    }
}

/* Calls `tile` with a count of rows that the compiler knows. */
#define KNOWN(r, ...) switch (r) { \
    case 1: tile(1, __VA_ARGS__); break; case 2: tile(2, __VA_ARGS__); break; case 3: tile(3, __VA_ARGS__); break; \
    case 4: tile(4, __VA_ARGS__); break; case 5: tile(5, __VA_ARGS__); break; default: tile(6, __VA_ARGS__); }

#include "four_bit_vectors.h"
