/* Products of 16-bit integers with NEON, each an exact sum in 32 bits. The integers lie in order: `vld4q_u8` brings one
 * of four inputs of all sixteen outputs together.
 */
#include <arm_neon.h>

#define NAME "NEON"
enum {MOST = 4};                                   /* 16 of 32 registers hold sums of a group */

INLINE void lay(const int32_t *n, int16_t *fixed) { for (int i = 0; i < GROUP; i++) fixed[i] = (int16_t)n[i]; }

INLINE float32x4_t half_floats(const uint16_t *x) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x))); }

/* The codes of an input, `part` of the one or two in each byte of v. */
INLINE uint8x16_t part_of(const int bits, const int part, uint8x16_t v) {
    return bits == 8 ? v : part ? vshrq_n_u8(v, 4) : vandq_u8(v, vdupq_n_u8(15));
}

/* Adds the codes of an input times its integer to the sums of sixteen outputs. */
INLINE void add_input(int32x4_t *sum, int16x8_t low, int16x8_t high, int16_t n) {
    sum[0] = vmlal_n_s16(sum[0], vget_low_s16(low), n);
    sum[1] = vmlal_high_n_s16(sum[1], low, n);
    sum[2] = vmlal_n_s16(sum[2], vget_low_s16(high), n);
    sum[3] = vmlal_high_n_s16(sum[3], high, n);
}

/* Sums [r][4] of a group: its codes times the integers of r rows. */
INLINE void sums_of(const int r, const int bits, const uint8_t *codes, const int16_t *x, int64_t groups,
                    int32x4_t (*sum)[4]) {
    const int parts = 8 / bits;
KEEP_ROLLED
    for (int k = 0; k < bits; k++) {
        uint8x16x4_t v = vld4q_u8(codes + 64 * k);
UNROLL(2)
        for (int part = 0; part < parts; part++) {
UNROLL(4)
            for (int j = 0; j < 4; j++) {
                uint8x16_t code = part_of(bits, part, v.val[j]);
                int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(code)));
                int16x8_t high = vreinterpretq_s16_u16(vmovl_high_u8(code));
UNROLL(4)
                for (int i = 0; i < r; i++)
                    add_input(sum[i], low, high, x[i * groups * GROUP + (k * parts + part) * 4 + j]);
            }
        }
    }
}

/* One tile, in quarters of four outputs, times r rows. */
INLINE void tile(const int r, const int bits, const int minima, const uint8_t *codes, const uint16_t *scales,
                 int64_t groups, const int16_t *x, const float *steps, const float *sums, const int32_t *starts,
                 float (*out)[LANES]) {
    float32x4_t all[MOST][4];
    for (int i = 0; i < r; i++) for (int q = 0; q < 4; q++) all[i][q] = vdupq_n_f32(0);
KEEP_ROLLED
    for (int64_t g = 0; g < groups; g++, codes += 64 * bits, scales += LANES * (1 + minima), x += GROUP) {
        int32x4_t sum[MOST][4];
UNROLL(4)
        for (int i = 0; i < r; i++)
UNROLL(4)
            for (int q = 0; q < 4; q++) sum[i][q] = vdupq_n_s32(bits == 8 ? starts[i * groups + g] : 0);
        sums_of(r, bits, codes, x, groups, sum);
UNROLL(4)
        for (int q = 0; q < 4; q++) {
            float32x4_t d = half_floats(scales + 4 * q), m = minima ? half_floats(scales + LANES + 4 * q) : d;
UNROLL(4)
            for (int i = 0; i < r; i++) {
                float32x4_t worth = vmulq_n_f32(vcvtq_f32_s32(sum[i][q]), steps[i * groups + g]);
                all[i][q] = vfmaq_f32(all[i][q], worth, d);
                if (minima) all[i][q] = vfmaq_n_f32(all[i][q], m, sums[i * groups + g]);
            }
        }
    }
    for (int i = 0; i < r; i++) for (int q = 0; q < 4; q++) vst1q_f32(out[i] + 4 * q, all[i][q]);
}

/* Calls `tile` with a count of rows that the compiler knows. */
#define KNOWN(r, ...) switch (r) { \
    case 1: tile(1, __VA_ARGS__); break; case 2: tile(2, __VA_ARGS__); break; case 3: tile(3, __VA_ARGS__); break; \
    default: tile(4, __VA_ARGS__); }

#include "four_bit_vectors.h"
