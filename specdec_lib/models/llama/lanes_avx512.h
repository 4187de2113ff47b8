/* Sixteen lanes in one register of AVX-512; `lanes.h` says what they promise. */
#ifndef LANES_AVX512_H
#define LANES_AVX512_H

#include <immintrin.h>

typedef __m512 Lanes;
typedef __m512i Words;

INLINE Lanes zeros(void) { return _mm512_setzero_ps(); }
INLINE Lanes all(float x) { return _mm512_set1_ps(x); }
INLINE Lanes load(const float *from) { return _mm512_loadu_ps(from); }
INLINE void save(float *to, Lanes x) { _mm512_storeu_ps(to, x); }
INLINE Lanes plus(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
INLINE Lanes minus(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
INLINE Lanes times(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
INLINE Lanes product_plus(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }        /* a b + c */
INLINE Lanes minus_product(Lanes a, Lanes b, Lanes c) { return _mm512_fnmadd_ps(a, b, c); }      /* c - a b */
INLINE Lanes nearest(Lanes x) { return _mm512_roundscale_ps(x, 0); }     /* whole number, of two the even one */

/* x 2^n for a whole n, and zero below 2^-150, whatever x is. */
INLINE Lanes times_power(Lanes x, Lanes n) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(n, _mm512_set1_ps(-150), _CMP_NLT_UQ), x, n);
}

INLINE __mmask16 before(int64_t n) { return n < LANES ? (__mmask16)((1u << n) - 1) : 0xffff; }
INLINE Lanes first(int64_t n, Lanes x) { return _mm512_maskz_mov_ps(before(n), x); }     /* n lanes, then zeros */
/* The greater number in each of the first n lanes; behind them those of a. */
INLINE Lanes greater(int64_t n, Lanes a, Lanes b) { return _mm512_mask_max_ps(a, before(n), a, b); }
INLINE float greatest(Lanes x) { return _mm512_reduce_max_ps(x); }
INLINE float total(Lanes x) { return _mm512_reduce_add_ps(x); }

INLINE Lanes as_lanes(Words x) { return _mm512_castsi512_ps(x); }
INLINE Words as_words(Lanes x) { return _mm512_castps_si512(x); }
INLINE Words all_words(word x) { return _mm512_set1_epi32((int)x); }
INLINE Words load_words(const void *from) { return _mm512_loadu_si512(from); }

/* Numbers of 16 bits are the upper halves of floats, two in a word. */
INLINE Lanes lower(Words x) { return as_lanes(_mm512_slli_epi32(x, 16)); }
INLINE Lanes upper(Words x) { return as_lanes(_mm512_and_si512(x, all_words(0xffff0000u))); }
INLINE Words pairs_low(Words a, Words b) { return _mm512_unpacklo_epi16(a, b); }
INLINE Words pairs_high(Words a, Words b) { return _mm512_unpackhi_epi16(a, b); }

INLINE Lanes load_halves(const uint16_t *from) {
    return as_lanes(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from)), 16));
}

/* Rounded to 16 bits, each in the lower half of a lane. */
INLINE Words to_halves(Lanes x) {
    Words bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    Words up = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    return _mm512_mask_mov_epi32(up, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc0));
}

INLINE void save_halves(uint16_t *to, Words x) { _mm256_storeu_si256((void *)to, _mm512_cvtepi32_epi16(x)); }
/* The numbers that `pairs_low` and `pairs_high` took from 32 in a row, back in their order. */
INLINE void save_both(uint16_t *to, Words low, Words high) { _mm512_storeu_si512(to, _mm512_packus_epi32(low, high)); }

/* Sixteen rows of so many words, a multiple of sixteen, as one vector per word: vector i holds word i of each row. Row
 * `last` stands for those behind it. */
INLINE void transpose(const word *rows, const int words, int64_t last, Words *out) {
    for (int at = 0; at < words; at += LANES, out += LANES) {
        Words a[LANES], b[LANES];
        for (int i = 0; i < LANES; i++) a[i] = load_words(i < last ? rows + i * words + at : rows + last * words + at);
        for (int i = 0; i < LANES; i += 2) {
            b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
            b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
        }
        for (int i = 0; i < LANES; i += 4) {
            a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
            a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
            a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
            a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
        }
        for (int i = 0; i < 4; i++) {
            Words low0 = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88);
            Words low1 = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0x88);
            Words high0 = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xdd);
            Words high1 = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0xdd);
            out[i] = _mm512_shuffle_i32x4(low0, low1, 0x88);
            out[i + 8] = _mm512_shuffle_i32x4(low0, low1, 0xdd);
            out[i + 4] = _mm512_shuffle_i32x4(high0, high1, 0x88);
            out[i + 12] = _mm512_shuffle_i32x4(high0, high1, 0xdd);
        }
    }
}

#endif
