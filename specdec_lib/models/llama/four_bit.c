/* Linear layers whose weights are codes of 4 or 8 bits in groups of 32 inputs: w = d q + m, as a GGUF holds them.
 *
 * Activations enter as 16-bit integers with one power of two for each row and group, so a group's sum over its codes
 * is an exact integer in whatever order it is taken. The groups of an output are added in order, in single precision.
 * So a row's bits depend neither on the rows beside it, nor on threads, nor on which of the four tiles is compiled:
 * `four_bit_avx512.h`, `four_bit_avx2.h`, `four_bit_neon.h`, or `four_bit_portable.h`, which -DPORTABLE chooses.
 * A bfloat16 activation enters exactly if it is at least 1/64 of its group's largest, else to 2^-14 of the largest.
 *
 * Outputs lie in tiles of 16. Codes [tile][group][load][16 outputs][4 bytes]: a byte of the 4-bit kind holds inputs i
 * and i + 4 of the eight of a load, one of the 8-bit kind holds 128 more than the code of one of four inputs. Scales
 * [tile][group][d, m][16] in float16. A header says how the 32 integers of a row and group lie in its 64 bytes.
 *
 * Sums never overflow 32 bits. An integer n has |n| <= 32640, so a group of 4-bit codes gives at most 32 * 15 * 32640 <
 * 2^24. The codes of 8 bits are 0 to 255, and -128 times the sum of the integers is added: any part of that sum lies
 * below 32 * (255 + 128) * 32640 < 2^29.
 */
enum {LANES = 16, GROUP = 32};
enum {CHUNK = 64};                                 /* rows that go through a layer together: they stay in the cache */
enum {LITTLE = 1 << 10, FEW = 4};                  /* tiles x groups, and rows, that are not worth a second thread */

#include "linear.h"

typedef struct {
    int64_t out, in, bits, minima;                 /* minima: whether there is an m */
    const uint8_t *codes;
    const uint16_t *scales;
    const float *norm;                             /* [in], multiplied into the inputs; or NULL */
    const float *factor, *bias;                    /* [out], multiplied into the sums and added; or NULL */
} Matrix;

INLINE int64_t groups_of(const Matrix *matrix) { return (matrix->in + GROUP - 1) / GROUP; }
INLINE int64_t tiles_of(const Matrix *matrix) { return (matrix->out + LANES - 1) / LANES; }

/* A tile's header gives MOST, the rows that share a tile's unpacked codes, its NAME, `lay`, and `tile_of`: the products
 * of r rows, which lie `groups` groups apart in x, steps, sums and starts, with the codes and scales of one tile. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__) && !defined(PORTABLE)
#include "four_bit_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && !defined(PORTABLE)
#include "four_bit_avx2.h"
#elif defined(__aarch64__) && !defined(PORTABLE)
#include "four_bit_neon.h"
#else
#include "four_bit_portable.h"
#endif

/* From rows of activations to integers. */
typedef struct {
    const Matrix *matrix;
    const half *x;                                 /* [rows, in], unless the inputs are gated */
    const float *gates;                            /* [rows, 2 in]: silu(first half) times the second half; or NULL */
    float eps;                                     /* of the root mean square norm; below 0 there is none */
    int16_t *fixed;                                /* [rows, groups, GROUP] integers, as the tile reads them */
    float *steps, *sums;                           /* [rows, groups]: what an integer of 1 is worth; the sum of all */
    int32_t *starts;                               /* [rows, groups]: -128 times the sum of the integers */
    int64_t rows, next;
} Inputs;

typedef struct {
    const Matrix *matrix;
    const Inputs *inputs;
    half *y;                                       /* [rows, out] */
    float *wide;                                   /* the same unrounded, instead of y; or NULL */
    const half *residual;                          /* [rows, out], added before rounding; or NULL */
    int64_t rows;
    Share *shares;                                 /* [count] of all tiles */
    int64_t count, threads;                        /* threads that began */
} Product;

/* One over the root mean square of a row. */
static float inverse_rms(const half *x, int64_t in, float eps) {
    float part[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= in; i += LANES)
        for (int l = 0; l < LANES; l++) part[l] = fmaf(single_of(x[i + l]), single_of(x[i + l]), part[l]);
    for (int l = 0; i + l < in; l++) part[l] = fmaf(single_of(x[i + l]), single_of(x[i + l]), part[l]);
    for (int l = 0; l < LANES; l++) sum += part[l];
    return 1.0f / sqrtf(sum / (float)in + eps);
}

NORM(half, single_of, rounded)

/* The numbers of one group as integers; a group with an infinite one, or none, gives NaN. */
INLINE void to_integers(const float *v, int16_t *fixed, float *step, float *sum, int32_t *start) {
    uint32_t most = 0;
    int32_t all = 0, n[GROUP];
    for (int i = 0; i < GROUP; i++) {
        uint32_t size = bits_of(v[i]) & 0x7fffffff;
        most = size > most ? size : most;
    }
    int finite = most < 0x7f800000;
    uint32_t exponent = (most + 0x10000) >> 23;    /* of 255/256 on, the next one: the high byte is at most 127 */
    exponent = exponent < 15 ? 15 : exponent > 254 ? 254 : exponent;
    float inverse = finite ? of_bits((268 - exponent) << 23) : 0.0f;       /* the largest has 15 bits */
    for (int i = 0; i < GROUP; i++) {
        int32_t near = (int32_t)(bits_of(fmaf(v[i], inverse, 12582912.0f)) - 0x4b400000u);
        n[i] = near > 32639 ? 32639 : near < -32640 ? -32640 : near;
        all += n[i];
    }
    lay(n, fixed);
    *step = finite ? of_bits((exponent - 14) << 23) : NAN;
    *sum = *step * (float)all;
    *start = -128 * all;
}

static void enter(const Inputs *inputs, int64_t row) {
    const Matrix *matrix = inputs->matrix;
    int64_t in = matrix->in, groups = groups_of(matrix);
    const half *x = inputs->gates ? NULL : inputs->x + row * in;
    const float *gate = inputs->gates ? inputs->gates + 2 * row * in : NULL, *up = gate ? gate + in : NULL;
    float scale = inputs->eps < 0 ? 1.0f : inverse_rms(x, in, inputs->eps);
    for (int64_t g = 0; g < groups; g++) {
        float v[GROUP] = {0};
        int64_t at = g * GROUP;
        int count = in - at < GROUP ? (int)(in - at) : GROUP;
        if (inputs->gates && count == GROUP)       /* a known count: the compiler vectorises */
            for (int i = 0; i < GROUP; i++) v[i] = gated(gate[at + i], up[at + i]);
        else if (inputs->gates)
            for (int i = 0; i < count; i++) v[i] = gated(gate[at + i], up[at + i]);
        else if (count == GROUP)
            for (int i = 0; i < GROUP; i++) v[i] = single_of(x[at + i]) * scale;
        else
            for (int i = 0; i < count; i++) v[i] = single_of(x[at + i]) * scale;
        if (matrix->norm)
            for (int i = 0; i < count; i++) v[i] *= matrix->norm[at + i];
        int64_t place = row * groups + g;
        to_integers(v, inputs->fixed + place * GROUP, inputs->steps + place, inputs->sums + place,
                    inputs->starts + place);
    }
}

static void enter_some(void *about) {
    Inputs *inputs = about;
    for (int64_t row; (row = __atomic_fetch_add(&inputs->next, 1, __ATOMIC_RELAXED)) < inputs->rows;)
        enter(inputs, row);
}

/* Scales, shifts, adds and rounds what a tile gave for one row. */
INLINE void leave(const Product *product, int64_t row, int64_t at, float *x) {
    const Matrix *matrix = product->matrix;
    int64_t place = row * matrix->out + at;
    int count = matrix->out - at < LANES ? (int)(matrix->out - at) : LANES;
    if (matrix->factor) for (int l = 0; l < count; l++) x[l] *= matrix->factor[at + l];
    if (matrix->bias) for (int l = 0; l < count; l++) x[l] += matrix->bias[at + l];
    if (product->residual) for (int l = 0; l < count; l++) x[l] += single_of(product->residual[place + l]);
    if (product->wide) for (int l = 0; l < count; l++) product->wide[place + l] = x[l];
    else for (int l = 0; l < count; l++) product->y[place + l] = rounded(x[l]);
}

static void multiply_tile(const Product *product, int64_t tile) {
    const Matrix *matrix = product->matrix;
    const Inputs *inputs = product->inputs;
    int64_t groups = groups_of(matrix), rows = product->rows, blocks = (rows + MOST - 1) / MOST;
    const uint8_t *codes = matrix->codes + tile * groups * 64 * matrix->bits;
    const uint16_t *scales = matrix->scales + tile * groups * LANES * (1 + matrix->minima);
    for (int64_t block = 0; block < blocks; block++) {
        int64_t from = block * rows / blocks, to = (block + 1) * rows / blocks, place = from * groups;
        float out[MOST][LANES];
        tile_of((int)(to - from), matrix, codes, scales, inputs->fixed + place * GROUP,
                inputs->steps + place, inputs->sums + place, inputs->starts + place, out);
        for (int64_t row = from; row < to; row++) leave(product, row, tile * LANES, out[row - from]);
    }
}

static void multiply_some(void *about) {
    Product *product = about;
    int64_t thread = __atomic_fetch_add(&product->threads, 1, __ATOMIC_RELAXED);
    for (int64_t tile, i = 0; (tile = next_step(product->shares, product->count, thread, &i)) >= 0;)
        multiply_tile(product, tile);
}

/* Takes the inputs in, and multiplies. */
static void run(Inputs *inputs, Product *product, const Threads *threads) {
    const Matrix *matrix = inputs->matrix;
    int64_t tiles = tiles_of(matrix), work = inputs->rows * tiles * groups_of(matrix);
    int several = threads->count > 1 && threads->parallel && work > LITTLE;
    Share shares[SHARES];
    inputs->next = product->threads = 0;
    product->matrix = matrix, product->inputs = inputs, product->rows = inputs->rows, product->shares = shares;
    product->count = share_out(shares, several ? threads->count : 1, tiles);
    if (several && inputs->rows >= FEW) threads->parallel(enter_some, inputs, (unsigned)threads->count, 0);
    else enter_some(inputs);
    if (several) threads->parallel(multiply_some, product, (unsigned)threads->count, 0);
    else multiply_some(product);
}

/* Memory for the integers of so many groups of all rows together, and `more` bytes before; false without it. */
static char *take(Inputs *inputs, int64_t groups, size_t more) {
    size_t integers = 2 * (size_t)groups * GROUP, others = whole_lines(3 * (size_t)groups * sizeof(float));
    char *memory = aligned_alloc(64, whole_lines(more) + integers + others);
    if (!memory) return NULL;
    inputs->fixed = (int16_t *)(memory + whole_lines(more));
    inputs->steps = (float *)(memory + whole_lines(more) + integers);
    inputs->sums = inputs->steps + groups;
    inputs->starts = (int32_t *)(inputs->sums + groups);
    return memory;
}

/* Which tile this is, for people. */
const char *tile_name(void) { return NAME; }

/* y [rows, out] = x [rows, in] times the matrix, x first divided by its root mean square unless eps < 0; 1 = no memory */
int multiply(const Matrix *matrix, const half *x, int64_t rows, float eps, half *y, const Threads *threads) {
    Inputs inputs = {.matrix = matrix, .eps = eps};
    char *memory = take(&inputs, least(rows, CHUNK) * groups_of(matrix), 0);
    if (!memory) return 1;
    for (int64_t at = 0; at < rows; at += CHUNK) {
        Product product = {.y = y + at * matrix->out};
        inputs.x = x + at * matrix->in, inputs.rows = least(rows - at, CHUNK);
        run(&inputs, &product, threads);
    }
    free(memory);
    return 0;
}

/* The rest of a layer after its attention: y = h + down(silu(gate) up), where h = x + out(attended), and gate and up
 * are the halves of gate_up applied to the norm of h; 1 = no memory. */
int finish(const Matrix *out, const Matrix *gate_up, const Matrix *down, const half *x, const half *attended,
           int64_t rows, float eps, half *y, const Threads *threads) {
    int64_t most = least(rows, CHUNK), hidden = out->out, groups = groups_of(out);
    groups = most * largest(groups, largest(groups_of(gate_up), groups_of(down)));
    size_t states = whole_lines((size_t)(most * hidden) * sizeof(half));
    Inputs inputs = {0};
    char *memory = take(&inputs, groups, states + (size_t)(most * gate_up->out) * sizeof(float));
    if (!memory) return 1;
    half *h = (half *)memory;
    float *wide = (float *)(memory + states);
    for (int64_t at = 0; at < rows; at += CHUNK) {
        inputs.rows = least(rows - at, CHUNK);
        inputs.matrix = out, inputs.x = attended + at * out->in, inputs.gates = NULL, inputs.eps = -1;
        run(&inputs, &(Product){.y = h, .residual = x + at * hidden}, threads);
        inputs.matrix = gate_up, inputs.x = h, inputs.eps = eps;
        run(&inputs, &(Product){.wide = wide}, threads);
        inputs.matrix = down, inputs.gates = wide, inputs.eps = -1;
        run(&inputs, &(Product){.y = y + at * hidden, .residual = h}, threads);
    }
    free(memory);
    return 0;
}
