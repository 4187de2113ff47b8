/* Sixteen lanes in four registers of NEON, which every 64-bit ARM processor has; `lanes.h` says what they promise. */
#ifndef LANES_NEON_H
#define LANES_NEON_H

#include <arm_neon.h>

typedef struct {float32x4_t quarter[4];} Lanes;
typedef struct {uint32x4_t quarter[4];} Words;

/* What this makes of each quarter i, as a value of this type. */
#define EACH(type, made) type out; for (int i = 0; i < 4; i++) out.quarter[i] = made; return out

INLINE Lanes all(float x) { EACH(Lanes, vdupq_n_f32(x)); }
INLINE Lanes zeros(void) { return all(0); }
INLINE Lanes load(const float *from) { EACH(Lanes, vld1q_f32(from + 4 * i)); }
INLINE void save(float *to, Lanes x) { for (int i = 0; i < 4; i++) vst1q_f32(to + 4 * i, x.quarter[i]); }
INLINE Lanes plus(Lanes a, Lanes b) { EACH(Lanes, vaddq_f32(a.quarter[i], b.quarter[i])); }
INLINE Lanes minus(Lanes a, Lanes b) { EACH(Lanes, vsubq_f32(a.quarter[i], b.quarter[i])); }
INLINE Lanes times(Lanes a, Lanes b) { EACH(Lanes, vmulq_f32(a.quarter[i], b.quarter[i])); }

INLINE Lanes product_plus(Lanes a, Lanes b, Lanes c) {
    EACH(Lanes, vfmaq_f32(c.quarter[i], a.quarter[i], b.quarter[i]));
}

INLINE Lanes minus_product(Lanes a, Lanes b, Lanes c) {
    EACH(Lanes, vfmsq_f32(c.quarter[i], a.quarter[i], b.quarter[i]));
}

INLINE Lanes nearest(Lanes x) { EACH(Lanes, vrndnq_f32(x.quarter[i])); }

INLINE float32x4_t masked(uint32x4_t mask, float32x4_t x) {
    return vreinterpretq_f32_u32(vandq_u32(mask, vreinterpretq_u32_f32(x)));
}

/* Where n >= -150, for 0.7 < x < 1.5 and n <= 0. Two factors: 2^n may be no normal number. */
INLINE float32x4_t four_times_power(float32x4_t x, float32x4_t n) {
    const int32x4_t bias = vdupq_n_s32(127);
    int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1), rest = vsubq_s32(whole, half);
    float32x4_t power = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
    float32x4_t other = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
    return masked(vmvnq_u32(vcltq_f32(n, vdupq_n_f32(-150))), vmulq_f32(vmulq_f32(x, power), other));
}

INLINE Lanes times_power(Lanes x, Lanes n) { EACH(Lanes, four_times_power(x.quarter[i], n.quarter[i])); }

/* All bits of the first n lanes, from lane `from` on. */
INLINE uint32x4_t before(int64_t n, int from) {
    const int32x4_t lane = {0, 1, 2, 3};
    int count = n < LANES ? (int)n : LANES;
    return vcgtq_s32(vdupq_n_s32(count - from), lane);
}

INLINE Lanes first(int64_t n, Lanes x) { EACH(Lanes, masked(before(n, 4 * i), x.quarter[i])); }

/* As on other processors, b where either is not a number. */
INLINE float32x4_t greater_of(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }

INLINE Lanes greater(int64_t n, Lanes a, Lanes b) {
    EACH(Lanes, vbslq_f32(before(n, 4 * i), greater_of(a.quarter[i], b.quarter[i]), a.quarter[i]));
}

INLINE float greatest(Lanes x) {
    float32x4_t low = greater_of(x.quarter[2], x.quarter[0]), high = greater_of(x.quarter[3], x.quarter[1]);
    float32x4_t four = greater_of(high, low), two = greater_of(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(greater_of(two, vdupq_laneq_f32(two, 1)), 0);
}

INLINE float total(Lanes x) {
    float32x4_t low = vaddq_f32(x.quarter[2], x.quarter[0]), high = vaddq_f32(x.quarter[3], x.quarter[1]);
    float32x4_t four = vaddq_f32(high, low), two = vaddq_f32(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(two, 0) + vgetq_lane_f32(two, 1);
}

INLINE Lanes as_lanes(Words x) { EACH(Lanes, vreinterpretq_f32_u32(x.quarter[i])); }
INLINE Words as_words(Lanes x) { EACH(Words, vreinterpretq_u32_f32(x.quarter[i])); }
INLINE Words all_words(word x) { EACH(Words, vdupq_n_u32(x)); }
INLINE Words load_words(const void *from) { return as_words(load(from)); }

INLINE Lanes lower(Words x) { EACH(Lanes, vreinterpretq_f32_u32(vshlq_n_u32(x.quarter[i], 16))); }
INLINE Lanes upper(Words x) {
    EACH(Lanes, vreinterpretq_f32_u32(vandq_u32(x.quarter[i], vdupq_n_u32(0xffff0000u))));
}

INLINE uint16x8_t halves_of(Words x, int i) { return vreinterpretq_u16_u32(x.quarter[i]); }
INLINE Words pairs_low(Words a, Words b) {
    EACH(Words, vreinterpretq_u32_u16(vzip1q_u16(halves_of(a, i), halves_of(b, i))));
}

INLINE Words pairs_high(Words a, Words b) {
    EACH(Words, vreinterpretq_u32_u16(vzip2q_u16(halves_of(a, i), halves_of(b, i))));
}

INLINE Lanes load_halves(const uint16_t *from) {
    EACH(Lanes, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(from + 4 * i), 16)));
}

INLINE uint32x4_t four_to_halves(float32x4_t x) {
    uint32x4_t bits = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t up = vshrq_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
    return vbslq_u32(vceqq_f32(x, x), up, vdupq_n_u32(0x7fc0));
}

INLINE Words to_halves(Lanes x) { EACH(Words, four_to_halves(x.quarter[i])); }

INLINE void save_halves(uint16_t *to, Words x) {
    for (int i = 0; i < 4; i++) vst1_u16(to + 4 * i, vmovn_u32(x.quarter[i]));
}

INLINE void save_both(uint16_t *to, Words low, Words high) {
    for (int i = 0; i < 4; i++)
        vst1q_u16(to + 8 * i, vcombine_u16(vmovn_u32(low.quarter[i]), vmovn_u32(high.quarter[i])));
}

/* Four words of each of four rows. */
INLINE void turn(const word *const *rows, int at, uint32x4_t *out) {
    uint32x4_t a[4];
    uint64x2_t b[4];
    for (int i = 0; i < 4; i++) a[i] = vld1q_u32((const uint32_t *)(rows[i] + at));
    for (int i = 0; i < 4; i += 2) {
        b[i] = vreinterpretq_u64_u32(vzip1q_u32(a[i], a[i + 1]));
        b[i + 1] = vreinterpretq_u64_u32(vzip2q_u32(a[i], a[i + 1]));
    }
    for (int i = 0; i < 2; i++) {
        out[2 * i] = vreinterpretq_u32_u64(vzip1q_u64(b[i], b[i + 2]));
        out[2 * i + 1] = vreinterpretq_u32_u64(vzip2q_u64(b[i], b[i + 2]));
    }
}

INLINE void transpose(const word *rows, const int words, int64_t last, Words *out) {
    const word *row[LANES];
    for (int i = 0; i < LANES; i++) row[i] = rows + (i < last ? i : last) * words;
    for (int at = 0; at < words; at += 4)
        for (int quarter = 0; quarter < 4; quarter++) {
            uint32x4_t turned[4];
            turn(row + 4 * quarter, at, turned);
            for (int i = 0; i < 4; i++) out[at + i].quarter[quarter] = turned[i];
        }
}

#endif
