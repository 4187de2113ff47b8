/* Linear layers of numbers in bfloat16, or with -DSINGLE in single precision, for few rows: the weights are read once.
 *
 * An output is one sum over its inputs in order, in single precision; in bfloat16 the inputs go by pairs. So a row's
 * bits depend neither on the rows beside it, nor on threads, nor on how outputs are blocked.
 *
 * Outputs lie in tiles of 16, and inputs in words of 32 bits: [tile][word][16 outputs]. Needs AVX2 or AVX-512; products
 * in bfloat16 are emulated where the processor has none, with other bits.
 */
#include "linear.h"
#include "numbers.h"

/* Rows are cut into equal blocks of MOST at most. The registers hold the sums of a block with several tiles, the more the
 * fewer rows it has. The first block reads weights from memory, the others from the processor's cache. */
#if HELD == 32
enum {MOST = 9, WIDE = 4};
INLINE int64_t tiles_at_once(int64_t rows) { return rows <= 6 ? 4 : 3; }
#else
enum {MOST = 3, WIDE = 2};
INLINE int64_t tiles_at_once(int64_t rows) { return rows > 0 ? WIDE : 0; }
#endif
enum {CHUNK = 64};                                 /* rows that go through a layer together: they stay in the cache */
enum {LITTLE = 1 << 14, FEW = 4};                  /* words of weights, and rows, that are not worth a second thread */
enum {SHARES = 8};                                 /* of a product that a thread takes one after the other */

typedef struct {
    int64_t out, in;
    const word *weights;
    const float *bias;                             /* [out], added to the sums; or NULL */
} Matrix;

/* From rows of activations to what the tiles multiply. */
typedef struct {
    const Matrix *matrix;
    const number *x;                               /* [rows, in], unless the inputs are gated */
    const float *gates;                            /* [rows, 2 in]: silu(first half) times the second half; or NULL */
    float eps;                                     /* of the root mean square norm; below 0 there is none */
    number *taken;                                 /* [rows, words], zero behind the last input */
    int64_t rows, next;
} Inputs;

typedef struct {
    const Matrix *matrix;
    const Inputs *inputs;
    number *y;                                     /* [rows, out] */
    float *wide;                                   /* the same unrounded, instead of y; or NULL */
    const number *residual;                        /* [rows, out], added before rounding; or NULL */
    int64_t next, some;                            /* the next tile, and how many are taken at once */
} Product;

INLINE int64_t words_of_row(const Matrix *matrix) { return (matrix->in + PACKED - 1) / PACKED; }
INLINE int64_t tiles_of(const Matrix *matrix) { return (matrix->out + LANES - 1) / LANES; }

#ifdef SINGLE
INLINE float wide_of(number x) { return x; }
INLINE number stored(float x) { return x; }
#else
INLINE float wide_of(number x) { return single_of(x); }
INLINE number stored(float x) { return rounded(x); }
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

/* One over the root mean square of a row. */
static float inverse_rms(const number *x, int64_t in, float eps) {
    Lanes part = zeros();
    int64_t i = 0;
    for (; i + LANES <= in; i += LANES) part = product_plus(widened(x + i), widened(x + i), part);
    float sum = total(part);
    for (; i < in; i++) sum = fmaf(wide_of(x[i]), wide_of(x[i]), sum);
    return 1.0f / sqrtf(sum / (float)in + eps);
}

NORM(number, wide_of, stored)

static void enter(const Inputs *inputs, int64_t row) {
    const Matrix *matrix = inputs->matrix;
    int64_t in = matrix->in, whole = words_of_row(matrix) * PACKED;
    number *to = inputs->taken + row * whole;
    if (inputs->gates) {
        const float *gate = inputs->gates + 2 * row * in, *up = gate + in;
        for (int64_t i = 0; i < in; i++) to[i] = stored(gated(gate[i], up[i]));
    } else if (inputs->eps < 0) {
        memcpy(to, inputs->x + row * in, (size_t)in * sizeof(number));
    } else {
        const number *x = inputs->x + row * in;
        float scale = inverse_rms(x, in, inputs->eps);
        for (int64_t i = 0; i < in; i++) to[i] = stored(wide_of(x[i]) * scale);
    }
    for (int64_t i = in; i < whole; i++) to[i] = 0;
}

static void enter_some(void *about) {
    Inputs *inputs = about;
    for (int64_t row; (row = __atomic_fetch_add(&inputs->next, 1, __ATOMIC_RELAXED)) < inputs->rows;)
        enter(inputs, row);
}

/* Sixteen outputs of one row: adds to the sums and rounds. */
INLINE void leave(const Product *product, int64_t row, int64_t at, Lanes sums) {
    const Matrix *matrix = product->matrix;
    int64_t place = row * matrix->out + at, count = matrix->out - at;
    if (count >= LANES) {
        if (matrix->bias) sums = plus(sums, load(matrix->bias + at));
        if (product->residual) sums = plus(sums, widened(product->residual + place));
        if (product->wide) save(product->wide + place, sums);
        else store(product->y + place, sums);
        return;
    }
    float x[LANES];
    save(x, sums);
    for (int64_t l = 0; l < count; l++) {
        if (matrix->bias) x[l] += matrix->bias[at + l];
        if (product->residual) x[l] += wide_of(product->residual[place + l]);
        if (product->wide) product->wide[place + l] = x[l];
        else product->y[place + l] = stored(x[l]);
    }
}

INLINE int64_t blocks_of(int64_t rows) { return (rows + MOST - 1) / MOST; }

/* Tiles `first` to `first + t` for all rows. */
static void multiply_tiles(const Product *product, int64_t first, int t) {
    const Inputs *inputs = product->inputs;
    int64_t words = words_of_row(product->matrix), rows = inputs->rows, blocks = blocks_of(rows);
    const word *weights = product->matrix->weights + first * words * LANES, *x = (const word *)inputs->taken;
    for (int64_t block = 0; block < blocks; block++) {
        int64_t from = block * rows / blocks, to = (block + 1) * rows / blocks;
        Lanes out[MOST][WIDE];
        BLOCKS[to - from - 1][t - 1](weights, x + from * words, words, out);
        for (int64_t row = from; row < to; row++)
            for (int j = 0; j < t; j++) leave(product, row, (first + j) * LANES, out[row - from][j]);
    }
}

static void multiply_some(void *about) {
    Product *product = about;
    int64_t tiles = tiles_of(product->matrix), some = product->some, rows = product->inputs->rows;
    int64_t blocks = blocks_of(rows), wide = tiles_at_once((rows + blocks - 1) / blocks);
    for (int64_t from; (from = __atomic_fetch_add(&product->next, some, __ATOMIC_RELAXED)) < tiles;)
        for (int64_t to = least(from + some, tiles), at = from; at < to; at += wide)
            multiply_tiles(product, at, (int)least(to - at, wide));
}

/* Takes the inputs in, and multiplies. */
static void run(Inputs *inputs, Product *product, const Threads *threads) {
    const Matrix *matrix = inputs->matrix;
    int64_t tiles = tiles_of(matrix), words = words_of_row(matrix);
    int several = threads->count > 1 && threads->parallel && inputs->rows * tiles * words > LITTLE / LANES;
    inputs->next = product->next = 0;
    product->matrix = matrix, product->inputs = inputs;
    product->some = largest(1, tiles / (SHARES * threads->count));
    if (several && inputs->rows >= FEW) threads->parallel(enter_some, inputs, (unsigned)threads->count, 0);
    else enter_some(inputs);
    if (several) threads->parallel(multiply_some, product, (unsigned)threads->count, 0);
    else multiply_some(product);
}

/* Memory for the inputs of so many words, and `more` bytes before; false without it. */
static char *take(Inputs *inputs, int64_t words, size_t more) {
    char *memory = aligned_alloc(64, whole_lines(more) + whole_lines((size_t)words * sizeof(word)));
    if (memory) inputs->taken = (number *)(memory + whole_lines(more));
    return memory;
}

/* y [rows, out] = x [rows, in] times the matrix, x first divided by its root mean square unless eps < 0; 1 = no memory */
int multiply(const Matrix *matrix, const number *x, int64_t rows, float eps, number *y, const Threads *threads) {
    Inputs inputs = {.matrix = matrix, .eps = eps};
    char *memory = take(&inputs, least(rows, CHUNK) * words_of_row(matrix), 0);
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
int finish(const Matrix *out, const Matrix *gate_up, const Matrix *down, const number *x, const number *attended,
           int64_t rows, float eps, number *y, const Threads *threads) {
    int64_t most = least(rows, CHUNK), hidden = out->out;
    int64_t words = most * largest(words_of_row(out), largest(words_of_row(gate_up), words_of_row(down)));
    size_t states = whole_lines((size_t)(most * hidden) * sizeof(number));
    Inputs inputs = {0};
    char *memory = take(&inputs, words, states + (size_t)(most * gate_up->out) * sizeof(float));
    if (!memory) return 1;
    number *h = (number *)memory;
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
