/* Four products of bytes at once: an integer lies as two bytes, 256 high + low, in [high, low][32]. */
#include <immintrin.h>

#define NAME "AVX-512 VNNI"
enum {MOST = 8};
enum {AHEAD = 16, BUSY = 4};                       /* groups that memory is asked for ahead, from so many rows on */
/* Measured on an EPYC (Zen 4): products of fewer rows take longer with it where their codes are not in the cache. */

INLINE void lay(const int32_t *n, int16_t *fixed) {
    int8_t *bytes = (int8_t *)fixed;
    for (int i = 0; i < GROUP; i++) {
        int32_t high = (n[i] + 128) >> 8;
        bytes[i] = (int8_t)high;
        bytes[GROUP + i] = (int8_t)(n[i] - 256 * high);
    }
}

INLINE __m512i four_of(const int8_t *x) { int32_t four; memcpy(&four, x, 4); return _mm512_set1_epi32(four); }
INLINE __m512 half_floats(const uint16_t *x) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)x)); }

/* One tile times r rows. */
INLINE void tile(const int r, const int bits, const int minima, const uint8_t *codes, const uint16_t *scales,
                 int64_t groups, const int16_t *fixed, const float *steps, const float *sums, const int32_t *starts,
                 float (*out)[LANES]) {
    const int8_t *x = (const int8_t *)fixed;
    const int loads = bits, parts = 8 / bits, ways = r <= 2 ? 2 : 1;       /* sums of a row's high bytes, and of low */
    const __m512i mask = _mm512_set1_epi8(15);
    __m512 all[MOST];
UNROLL(8)
    for (int i = 0; i < r; i++) all[i] = _mm512_setzero_ps();
KEEP_ROLLED
    for (int64_t g = 0; g < groups; g++, codes += 64 * loads, scales += LANES * (1 + minima), x += 2 * GROUP) {
        if (r >= BUSY) {
            _mm_prefetch((const char *)(scales + AHEAD * LANES * (1 + minima)), _MM_HINT_T0);
UNROLL(8)
            for (int k = 0; k < loads; k++) _mm_prefetch((const char *)(codes + 64 * (AHEAD * loads + k)), _MM_HINT_T0);
        }
        __m512i high[MOST], low[MOST];
UNROLL(8)
        for (int i = 0; i < r * ways; i++) {
            high[i] = _mm512_setzero_si512();
            low[i] = bits == 8 && i % ways == 0 ? _mm512_set1_epi32(starts[i / ways * groups + g]) : high[i];
        }
UNROLL(8)
        for (int k = 0; k < loads; k++) {
            __m512i v = _mm512_loadu_si512(codes + 64 * k), part[2] = {v, v};
            if (bits == 4) {
                part[0] = _mm512_and_si512(v, mask);
                part[1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
            }
UNROLL(2)
            for (int j = 0; j < parts; j++)
UNROLL(8)
                for (int i = 0; i < r; i++) {
                    const int at = k * parts + j, way = i * ways + at % ways;
                    const int8_t *own = x + 2 * i * groups * GROUP + 4 * at;
                    high[way] = _mm512_dpbusd_epi32(high[way], part[j], four_of(own));
                    low[way] = _mm512_dpbusd_epi32(low[way], part[j], four_of(own + GROUP));
                }
        }
        __m512 d = half_floats(scales), m = minima ? half_floats(scales + LANES) : d;
UNROLL(8)
        for (int i = 0; i < r; i++) {
            __m512i upper = high[i * ways], whole = low[i * ways];
            if (ways > 1) {
                upper = _mm512_add_epi32(upper, high[i * ways + 1]);
                whole = _mm512_add_epi32(whole, low[i * ways + 1]);
            }
            whole = _mm512_add_epi32(whole, _mm512_slli_epi32(upper, 8));
            __m512 worth = _mm512_mul_ps(_mm512_cvtepi32_ps(whole), _mm512_set1_ps(steps[i * groups + g]));
            all[i] = _mm512_fmadd_ps(worth, d, all[i]);
            if (minima) all[i] = _mm512_fmadd_ps(_mm512_set1_ps(sums[i * groups + g]), m, all[i]);
        }
    }
UNROLL(8)
    for (int i = 0; i < r; i++) _mm512_storeu_ps(out[i], all[i]);
}

/* Calls `tile` with a count of rows that the compiler knows. */
#define KNOWN(r, ...) switch (r) { \
    case 1: tile(1, __VA_ARGS__); break; case 2: tile(2, __VA_ARGS__); break; case 3: tile(3, __VA_ARGS__); break; \
    case 4: tile(4, __VA_ARGS__); break; case 5: tile(5, __VA_ARGS__); break; case 6: tile(6, __VA_ARGS__); break; \
    case 7: tile(7, __VA_ARGS__); break; default: tile(8, __VA_ARGS__); }

#include "four_bit_vectors.h"
