/* Linear layers of numbers in bfloat16, or with -DSINGLE in single precision, for few rows: the weights are read once.
 *
 * An output is one sum over its inputs in order, in single precision; in bfloat16 the inputs go by pairs. So a row's
 * bits depend neither on the rows beside it, nor on threads, nor on how outputs are blocked.
 *
 * Outputs lie in tiles of 16, and inputs in words of 32 bits. So many tiles as `tiles_together` says are a group and lie as
 * [word][tile][16 outputs], so that what is multiplied at once is read in order. A group begins at the first tile and, of an
 * even number, at the middle one; what is left before the middle or the end is a smaller group. Needs the vectors of
 * `lanes.h`. Products in bfloat16 are those of AMX where the processor has it, else of AVX-512, else emulated: each has
 * its own bits.
 */
#include "amx.h"
#include "dense_vectors.h"

enum {CHUNK = 64, AMX_CHUNK = 128};                /* rows that go through a layer together: they stay in the cache */
enum {BLOCK_ROWS = MOST > 16 ? MOST : 16};         /* of a block, of vectors or of AMX */
enum {LITTLE = 1 << 14};                           /* words of weights that are not worth a second thread */
enum {FEW = 16};                                   /* rows that each thread takes in for itself: sooner than it gets them */

typedef struct {
    int64_t out, in;
    const word *weights;
    const float *bias;                             /* [out], added to the sums; or NULL */
} Matrix;

/* From rows of activations to what the tiles multiply. */
typedef struct {
    const Matrix *matrix;
    const number *x;                               /* [rows, in] */
    float eps;                                     /* of the root mean square norm; below 0 there is none */
    factor *taken;                                 /* [rows, words], zero behind the last input; of each thread if few */
    const factor *read;                            /* what tiles read: `taken`, or x as it lies; NULL: each thread its own */
    int64_t rows, next, room;                      /* rows that the memory holds */
} Inputs;

typedef struct {
    const Matrix *matrix;
    const Inputs *inputs;
    number *y;                                     /* [rows, out] */
    const number *residual;                        /* [rows, out], added before rounding; or NULL */
    factor *gates;                                 /* instead of y: silu(first half) times second, [rows, gated] */
    int64_t gated;
    Share *shares;                                 /* [count] of all steps */
    int64_t count, threads;                        /* threads that began */
} Product;

/* A whole number of vectors. */
INLINE int64_t words_of_row(const Matrix *matrix) { return (matrix->in + PACKED * LANES - 1) / (PACKED * LANES) * LANES; }
INLINE int64_t tiles_of(const Matrix *matrix) { return (matrix->out + LANES - 1) / LANES; }

#ifdef EMULATED
INLINE factor factor_of(number x) { return wide_of(x); }
#else
INLINE factor factor_of(number x) { return x; }
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

static void enter(const Inputs *inputs, int64_t row, factor *taken) {
    const Matrix *matrix = inputs->matrix;
    int64_t in = matrix->in, whole = words_of_row(matrix) * PACKED;
    const number *x = inputs->x + row * in;
    factor *to = taken + row * whole;
    if (inputs->eps < 0) {
        for (int64_t i = 0; i < in; i++) to[i] = factor_of(x[i]);
    } else {
        float scale = inverse_rms(x, in, inputs->eps);
        for (int64_t i = 0; i < in; i++) to[i] = factor_of(stored(wide_of(x[i]) * scale));
    }
    for (int64_t i = in; i < whole; i++) to[i] = 0;
}

static void enter_some(void *about) {
    Inputs *inputs = about;
    for (int64_t row; (row = __atomic_fetch_add(&inputs->next, 1, __ATOMIC_RELAXED)) < inputs->rows;)
        enter(inputs, row, inputs->taken);
}

/* Sixteen outputs of one row: adds to the sums and rounds. */
INLINE void leave(const Product *product, int64_t row, int64_t at, Lanes sums) {
    const Matrix *matrix = product->matrix;
    int64_t place = row * matrix->out + at, count = matrix->out - at;
    if (count >= LANES) {
        if (matrix->bias) sums = plus(sums, load(matrix->bias + at));
        if (product->residual) sums = plus(sums, widened(product->residual + place));
        store(product->y + place, sums);
        return;
    }
    float x[LANES];
    save(x, sums);
    for (int64_t l = 0; l < count; l++) {
        if (matrix->bias) x[l] += matrix->bias[at + l];
        if (product->residual) x[l] += wide_of(product->residual[place + l]);
        product->y[place + l] = stored(x[l]);
    }
}

/* Sixteen gates of one row with what they let through: silu(gate) up, rounded once. */
INLINE void leave_gated(const Product *product, int64_t row, int64_t at, Lanes gate, Lanes up) {
    const float *bias = product->matrix->bias;
    float a[LANES], b[LANES];
    if (bias) gate = plus(gate, load(bias + at)), up = plus(up, load(bias + product->matrix->out / 2 + at));
    save(a, gate), save(b, up);
    factor *to = product->gates + row * product->gated + at;
    for (int l = 0; l < LANES; l++) to[l] = factor_of(stored(gated(a[l], b[l])));
}

/* Tiles that lie in one group: [words][tiles][16 outputs]. */
int tiles_together(void) { return amx_is_allowed() ? 1 : TOGETHER; }

/* How rows are cut into blocks: into equal ones for vectors, into full registers and a rest for AMX. */
typedef struct {
    int64_t rows, count, shaped;                   /* rows that the registers are shaped for */
    int amx;
    const factor *x;                               /* [rows, words] */
} Blocks;

static Blocks blocks_of(int64_t rows, const factor *x) {
    int amx = amx_is_allowed();
    int64_t most = amx ? REGISTER : MOST, count = (rows + most - 1) / most;
    return (Blocks){rows, count, 0, amx, x};
}

INLINE int64_t begin_of(const Blocks *blocks, int64_t block) {
    return blocks->amx ? least(block * REGISTER, blocks->rows) : block * blocks->rows / blocks->count;
}

INLINE void sums_of_block(Blocks *blocks, int64_t rows, int t, const word *weights, const factor *x, int64_t words,
                          Lanes (*out)[WIDE]) {
    if (!blocks->amx) {
        BLOCKS[rows - 1][t - 1](weights, (const word *)x, words, out);
        return;
    }
    if (rows != blocks->shaped) shape_registers(blocks->shaped = rows);
    amx_sums(t, weights, words, x, words * (int64_t)sizeof(word), words, NULL, out[0], sizeof *out);
}

/* A step multiplies so many tiles of a half, or of all if they are odd; with gates also those of what they let through. */
typedef struct {
    int64_t half, most, each, count;               /* tiles of a half and of a step; steps of a half and in all */
} Steps;

static Steps steps_of(const Product *product) {
    int64_t tiles = tiles_of(product->matrix), half = tiles % 2 ? tiles : tiles / 2;
    int64_t most = amx_is_allowed() ? SUMS : TOGETHER, each = (half + most - 1) / most;
    return (Steps){half, most, each, product->gates ? each : each * (tiles / half)};
}

/* One step for all rows. */
static void multiply_tiles(const Product *product, const Steps *steps, int64_t step, Blocks *blocks) {
    int64_t words = words_of_row(product->matrix), place = step % steps->each * steps->most;
    int64_t first = step / steps->each * steps->half + place;
    int t = (int)least(steps->half - place, steps->most);
    const word *weights = product->matrix->weights + first * words * LANES;
    for (int64_t block = 0; block < blocks->count; block++) {
        int64_t from = begin_of(blocks, block), to = begin_of(blocks, block + 1);
        const factor *x = blocks->x + from * words * PACKED;
        Lanes out[BLOCK_ROWS][WIDE], up[BLOCK_ROWS][WIDE];
        sums_of_block(blocks, to - from, t, weights, x, words, out);
        if (product->gates) sums_of_block(blocks, to - from, t, weights + steps->half * words * LANES, x, words, up);
        for (int64_t row = from; row < to; row++)
            for (int j = 0; j < t; j++) {
                int64_t at = (first + j) * LANES, i = row - from;
                if (product->gates) leave_gated(product, row, at, out[i][j], up[i][j]);
                else leave(product, row, at, out[i][j]);
            }
    }
}

/* The inputs of a thread that takes them in for itself. */
static const factor *own_inputs(const Inputs *inputs, int64_t thread) {
    factor *taken = inputs->taken + thread * inputs->rows * words_of_row(inputs->matrix) * PACKED;
    for (int64_t row = 0; row < inputs->rows; row++) enter(inputs, row, taken);
    return taken;
}

static void multiply_some(void *about) {
    Product *product = about;
    const Inputs *inputs = product->inputs;
    Steps steps = steps_of(product);
    int64_t thread = __atomic_fetch_add(&product->threads, 1, __ATOMIC_RELAXED);
    Blocks blocks = blocks_of(inputs->rows, inputs->read ? inputs->read : own_inputs(inputs, thread));
    for (int64_t step, i = 0; (step = next_step(product->shares, product->count, thread, &i)) >= 0;)
        multiply_tiles(product, &steps, step, &blocks);
    if (blocks.amx) free_registers();
}

INLINE int64_t chunk(void) { return amx_is_allowed() ? AMX_CHUNK : CHUNK; }

/* Makes of the inputs what tiles read, unless each thread does; plain ones that fill their words are read in place. */
static void take_in(Inputs *inputs, const Threads *threads, int several) {
    inputs->read = inputs->taken, inputs->next = 0;
    if (sizeof(factor) == sizeof(number) && inputs->eps < 0 && inputs->matrix->in == PACKED * words_of_row(inputs->matrix))
        inputs->read = (const factor *)inputs->x;
    else if (inputs->rows <= FEW && inputs->rows * (several ? threads->count : 1) <= inputs->room) inputs->read = NULL;
    else if (several) threads->parallel(enter_some, inputs, (unsigned)threads->count, 0);
    else enter_some(inputs);
}

/* Takes the inputs in, unless there is no x because they are, and multiplies. */
static void run(Inputs *inputs, Product *product, const Threads *threads) {
    const Matrix *matrix = inputs->matrix;
    int64_t tiles = tiles_of(matrix), words = words_of_row(matrix);
    int several = threads->count > 1 && threads->parallel && inputs->rows * tiles * words > LITTLE / LANES;
    if (inputs->x) take_in(inputs, threads, several);
    Share shares[SHARES];
    product->matrix = matrix, product->inputs = inputs, product->shares = shares, product->threads = 0;
    product->count = share_out(shares, several ? threads->count : 1, steps_of(product).count);
    if (several) threads->parallel(multiply_some, product, (unsigned)threads->count, 0);
    else multiply_some(product);
}

/* Memory for the inputs of so many rows of so many words, and `more` bytes before; false without it. */
static char *take(Inputs *inputs, int64_t rows, int64_t words, size_t more, const Threads *threads) {
    inputs->room = rows <= FEW ? rows * largest(1, threads->count) : rows;
    size_t bytes = (size_t)(inputs->room * words * PACKED) * sizeof(factor);
    char *memory = aligned_alloc(64, whole_lines(more) + whole_lines(bytes));
    if (memory) inputs->taken = (factor *)(memory + whole_lines(more));
    return memory;
}

/* y [rows, out] = x [rows, in] times the matrix, x first divided by its root mean square unless eps < 0; 1 = no memory */
int multiply(const Matrix *matrix, const number *x, int64_t rows, float eps, number *y, const Threads *threads) {
    Inputs inputs = {.matrix = matrix, .eps = eps};
    int64_t most = least(rows, chunk());
    char *memory = take(&inputs, most, words_of_row(matrix), 0, threads);
    if (!memory) return 1;
    for (int64_t at = 0; at < rows; at += most) {
        Product product = {.y = y + at * matrix->out};
        inputs.x = x + at * matrix->in, inputs.rows = least(rows - at, most);
        run(&inputs, &product, threads);
    }
    free(memory);
    return 0;
}

/* The rest of a layer after its attention: y = h + down(silu(gate) up), where h = x + out(attended), and gate and up
 * are the halves of gate_up, of whole tiles, applied to the norm of h; 1 = no memory. */
int finish(const Matrix *out, const Matrix *gate_up, const Matrix *down, const number *x, const number *attended,
           int64_t rows, float eps, number *y, const Threads *threads) {
    int64_t most = least(rows, chunk()), hidden = out->out, whole = words_of_row(down) * PACKED;
    size_t states = whole_lines((size_t)(most * hidden) * sizeof(number));
    size_t gates = whole_lines((size_t)(most * whole) * sizeof(factor));
    Inputs inputs = {0};
    char *memory = take(&inputs, most, largest(words_of_row(out), words_of_row(gate_up)), states + gates, threads);
    if (!memory) return 1;
    number *h = (number *)memory;
    factor *through = (factor *)(memory + states);
    if (whole > down->in) memset(through, 0, gates);
    for (int64_t at = 0; at < rows; at += most) {
        inputs.rows = least(rows - at, most);
        inputs.matrix = out, inputs.x = attended + at * out->in, inputs.eps = -1;
        run(&inputs, &(Product){.y = h, .residual = x + at * hidden}, threads);
        inputs.matrix = gate_up, inputs.x = h, inputs.eps = eps;
        run(&inputs, &(Product){.gates = through, .gated = whole}, threads);
        inputs.matrix = down, inputs.x = NULL, inputs.read = through;
        run(&inputs, &(Product){.y = y + at * hidden, .residual = h}, threads);
    }
    free(memory);
    return 0;
}
