/* Sixteen lanes in two registers of AVX2; `lanes.h` says what they promise. */
#ifndef LANES_AVX2_H
#define LANES_AVX2_H

#include <immintrin.h>

typedef struct {__m256 low, high;} Lanes;
typedef Lanes Words;

INLINE Lanes all(float x) { return (Lanes){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE Lanes zeros(void) { return (Lanes){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INLINE Lanes load(const float *from) { return (Lanes){_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }

INLINE void save(float *to, Lanes x) {
    _mm256_storeu_ps(to, x.low);
    _mm256_storeu_ps(to + 8, x.high);
}

INLINE Lanes plus(Lanes a, Lanes b) { return (Lanes){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
INLINE Lanes minus(Lanes a, Lanes b) { return (Lanes){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
INLINE Lanes times(Lanes a, Lanes b) { return (Lanes){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }

INLINE Lanes product_plus(Lanes a, Lanes b, Lanes c) {
    return (Lanes){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

INLINE Lanes minus_product(Lanes a, Lanes b, Lanes c) {
    return (Lanes){_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}

INLINE Lanes nearest(Lanes x) {
    enum {WAY = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC};
    return (Lanes){_mm256_round_ps(x.low, WAY), _mm256_round_ps(x.high, WAY)};
}

/* Where n >= -150, for 0.7 < x < 1.5 and n <= 0. Two factors: 2^n may be no normal number. */
INLINE __m256 eight_times_power(__m256 x, __m256 n) {
    const __m256i bias = _mm256_set1_epi32(127);
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), rest = _mm256_sub_epi32(whole, half);
    __m256 power = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    __m256 other = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    __m256 there = _mm256_cmp_ps(n, _mm256_set1_ps(-150), _CMP_NLT_UQ);
    return _mm256_and_ps(there, _mm256_mul_ps(_mm256_mul_ps(x, power), other));
}

INLINE Lanes times_power(Lanes x, Lanes n) {
    return (Lanes){eight_times_power(x.low, n.low), eight_times_power(x.high, n.high)};
}

/* All bits of the first n lanes, from lane `from` on. */
INLINE __m256 before(int64_t n, int from) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    int count = n < LANES ? (int)n : LANES;
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count - from), lane));
}

INLINE Lanes first(int64_t n, Lanes x) {
    return (Lanes){_mm256_and_ps(before(n, 0), x.low), _mm256_and_ps(before(n, 8), x.high)};
}

INLINE Lanes greater(int64_t n, Lanes a, Lanes b) {
    return (Lanes){_mm256_blendv_ps(a.low, _mm256_max_ps(a.low, b.low), before(n, 0)),
                   _mm256_blendv_ps(a.high, _mm256_max_ps(a.high, b.high), before(n, 8))};
}

INLINE float greatest(Lanes x) {
    __m256 eight = _mm256_max_ps(x.high, x.low);
    __m128 four = _mm_max_ps(_mm256_extractf128_ps(eight, 1), _mm256_castps256_ps128(eight));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

INLINE float total(Lanes x) {
    __m256 eight = _mm256_add_ps(x.high, x.low);
    __m128 four = _mm_add_ps(_mm256_extractf128_ps(eight, 1), _mm256_castps256_ps128(eight));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

INLINE Lanes as_lanes(Words x) { return x; }
INLINE Words as_words(Lanes x) { return x; }
INLINE Words load_words(const void *from) { return load(from); }

INLINE Words all_words(word x) {
    __m256 eight = _mm256_castsi256_ps(_mm256_set1_epi32((int)x));
    return (Words){eight, eight};
}

INLINE __m256i low_of(Words x) { return _mm256_castps_si256(x.low); }
INLINE __m256i high_of(Words x) { return _mm256_castps_si256(x.high); }
INLINE Words words_of(__m256i low, __m256i high) {
    return (Words){_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)};
}

INLINE Lanes lower(Words x) { return words_of(_mm256_slli_epi32(low_of(x), 16), _mm256_slli_epi32(high_of(x), 16)); }

INLINE Lanes upper(Words x) {
    const __m256 mask = all_words(0xffff0000u).low;
    return (Lanes){_mm256_and_ps(x.low, mask), _mm256_and_ps(x.high, mask)};
}

INLINE Words pairs_low(Words a, Words b) {
    return words_of(_mm256_unpacklo_epi16(low_of(a), low_of(b)), _mm256_unpacklo_epi16(high_of(a), high_of(b)));
}

INLINE Words pairs_high(Words a, Words b) {
    return words_of(_mm256_unpackhi_epi16(low_of(a), low_of(b)), _mm256_unpackhi_epi16(high_of(a), high_of(b)));
}

INLINE Lanes load_halves(const uint16_t *from) {
    __m128i low = _mm_loadu_si128((const void *)from), high = _mm_loadu_si128((const void *)(from + 8));
    return lower(words_of(_mm256_cvtepu16_epi32(low), _mm256_cvtepu16_epi32(high)));
}

INLINE __m256i eight_to_halves(__m256 x) {
    __m256i bits = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i none = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(up, _mm256_set1_epi32(0x7fc0), none);
}

INLINE Words to_halves(Lanes x) { return words_of(eight_to_halves(x.low), eight_to_halves(x.high)); }

INLINE void save_halves(uint16_t *to, Words x) {
    __m256i mixed = _mm256_packus_epi32(low_of(x), high_of(x));
    _mm256_storeu_si256((void *)to, _mm256_permute4x64_epi64(mixed, 0xd8));
}

INLINE void save_both(uint16_t *to, Words low, Words high) {
    _mm256_storeu_si256((void *)to, _mm256_packus_epi32(low_of(low), low_of(high)));
    _mm256_storeu_si256((void *)(to + LANES), _mm256_packus_epi32(high_of(low), high_of(high)));
}

/* Four words of each of eight rows: two rows share a vector, so that two times four by four are turned at once. */
INLINE void turn(const word *const *rows, int at, __m256 *out) {
    __m256 a[4];
    __m256d b[4];
    for (int i = 0; i < 4; i++) {
        __m128 low = _mm_loadu_ps((const void *)(rows[i] + at)), high = _mm_loadu_ps((const void *)(rows[i + 4] + at));
        a[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
    }
    for (int i = 0; i < 4; i += 2) {
        b[i] = _mm256_castps_pd(_mm256_unpacklo_ps(a[i], a[i + 1]));
        b[i + 1] = _mm256_castps_pd(_mm256_unpackhi_ps(a[i], a[i + 1]));
    }
    for (int i = 0; i < 2; i++) {
        out[2 * i] = _mm256_castpd_ps(_mm256_unpacklo_pd(b[i], b[i + 2]));
        out[2 * i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(b[i], b[i + 2]));
    }
}

INLINE void transpose(const word *rows, const int words, int64_t last, Words *out) {
    const word *row[LANES];
    for (int i = 0; i < LANES; i++) row[i] = rows + (i < last ? i : last) * words;
    for (int at = 0; at < words; at += 4) {
        __m256 low[4], high[4];
        turn(row, at, low);
        turn(row + 8, at, high);
        for (int i = 0; i < 4; i++) out[at + i] = (Words){low[i], high[i]};
    }
}

#endif
