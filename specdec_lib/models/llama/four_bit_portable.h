/* Plain C for any processor. The integers lie in order. */
#define NAME "plain C"
enum {MOST = 8};

INLINE void lay(const int32_t *n, int16_t *fixed) { for (int i = 0; i < GROUP; i++) fixed[i] = (int16_t)n[i]; }

INLINE float half_float(uint16_t x) {
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, rest = x & 1023;
    float small = (float)rest * 5.9604644775390625e-8f;           /* 2^-24 */
    float whole = of_bits((exponent == 31 ? 255u << 23 : (exponent + 112) << 23) | rest << 13);
    return of_bits(sign | bits_of(exponent ? whole : small));
}

static void tile_of(int r, const Matrix *matrix, const uint8_t *codes, const uint16_t *scales, const int16_t *x,
                    const float *steps, const float *sums, const int32_t *starts, float (*out)[LANES]) {
    int64_t groups = groups_of(matrix);
    int bits = (int)matrix->bits, minima = (int)matrix->minima, parts = 8 / bits;
    for (int i = 0; i < r; i++) {
        float all[LANES] = {0};
        for (int64_t g = 0; g < groups; g++) {
            const int16_t *own = x + (i * groups + g) * GROUP;
            const uint16_t *d = scales + g * LANES * (1 + minima);
            int32_t sum[LANES];
            for (int l = 0; l < LANES; l++) sum[l] = bits == 8 ? starts[i * groups + g] : 0;
            for (int at = 0; at < GROUP; at++) {
                const uint8_t *v = codes + (g * bits + at / (4 * parts)) * 64 + at % 4;
                int32_t n = own[at], shift = at / 4 % parts * 4, mask = bits == 4 ? 15 : 255;
                for (int l = 0; l < LANES; l++) sum[l] += (v[4 * l] >> shift & mask) * n;
            }
            for (int l = 0; l < LANES; l++)
                all[l] = fmaf((float)sum[l] * steps[i * groups + g], half_float(d[l]), all[l]);
            for (int l = 0; minima && l < LANES; l++)
                all[l] = fmaf(sums[i * groups + g], half_float(d[LANES + l]), all[l]);
        }
        memcpy(out[i], all, sizeof all);
    }
}
