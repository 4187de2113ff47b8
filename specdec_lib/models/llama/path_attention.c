/* Attention of rows, each over the columns of its own path, with the rotation of queries and keys.
 *
 * A row's bits depend on its own path alone, and on all nodes where they see each other. A score is one sum over a
 * head's numbers in order, whatever is computed beside it. The softmax and the sum over values take positions in order,
 * in bfloat16 by pairs. A row's positions lie in `columns`: the first `seen` in place, then those of its path. How rows
 * and columns are blocked changes no sum.
 *
 * Compiled for one head size, -DHEAD=64, a multiple of 32, and for numbers in bfloat16, or with -DSINGLE in single
 * precision. Needs the vectors of `lanes.h`; products in bfloat16 are emulated where the processor has none.
 */
#include "amx.h"
#include "linear.h"
#include "path_rows.h"

#if HEAD % 32
#error "a head is a multiple of 32 numbers"
#endif

enum {WORDS = HEAD / JOINED};                      /* words of factors of a query or a key */
enum {MOST = 6, WIDE = HELD / 8};                  /* queries, and sixteens of columns or values, that registers hold */
enum {SCRATCH = 1 << 18};                          /* scores of a block of rows, which stay in the second cache */
enum {LITTLE = 1 << 12, FEW = 16};                 /* scores, and rows, that are not worth a second thread */

typedef struct {
    const Rows *rows;
    number *qkv;                                     /* [rows, heads + 2 kv_heads, HEAD] */
    number *keys, *values;                           /* [kv_heads, columns, HEAD] */
    number *out;                                     /* [rows, heads, HEAD] */
    int64_t stride, blocks;                        /* numbers between key heads; blocks that the rows are cut into */
    int64_t next, done, failed;                    /* the next row to enter, the next job; whether memory was missing */
} Layer;

/* Rounds x as numbers are, stores it as factors and returns it. */
INLINE Lanes store_rounded(factor *out, Lanes x) {
#ifdef PAIRED
    Words halves = to_halves(x);
    save_halves(out, halves);
    return lower(halves);
#else
#ifdef EMULATED
    x = lower(to_halves(x));
#endif
    save(out, x);
    return x;
#endif
}

/* n times sixteen numbers from the sums that `add` keeps, scaled. */
#ifdef PAIRED                                      /* two sums hold 32 numbers, by turns of eight bytes */
INLINE void store_sums(number *out, int n, const Lanes *sums, Lanes scale) {
    for (int i = 0; i < n; i += 2)
        save_both(out + i * LANES, to_halves(times(sums[i], scale)), to_halves(times(sums[i + 1], scale)));
}
#else
INLINE void store_sums(number *out, int n, const Lanes *sums, Lanes scale) {
    for (int i = 0; i < n; i++) store(out + i * LANES, times(sums[i], scale));
}
#endif

INLINE Lanes exponentials(Lanes x) {
    Lanes n = nearest(times(x, all(1.44269504f)));
    Lanes r = minus_product(n, all(0.693145752f), x);
    r = minus_product(n, all(1.42860677e-6f), r);
    Lanes p = all(1.38888889e-3f);                 /* Taylor's: |r| < 0.35 leaves an error below 1e-7 */
    p = product_plus(p, r, all(8.33333333e-3f));
    p = product_plus(p, r, all(4.16666667e-2f));
    p = product_plus(p, r, all(1.66666667e-1f));
    p = product_plus(p, r, all(0.5f));
    p = product_plus(p, r, all(1.0f));
    return times_power(product_plus(p, r, all(1.0f)), n);
}

/* Writes x, turned by the angles, to `out`, which may be x. */
static void rotate(const number *x, const float *cosines, const float *sines, number *out) {
    Lanes part[HEAD / LANES];
    for (int i = 0; i < HEAD / LANES; i++) part[i] = widened(x + i * LANES);
    for (int i = 0; i < HEAD / LANES; i++) {
        Lanes other = part[(i + HEAD / LANES / 2) % (HEAD / LANES)];
        Lanes turned = product_plus(other, load(sines + i * LANES), times(part[i], load(cosines + i * LANES)));
        store(out + i * LANES, turned);
    }
}

/* Turns the queries of a row in place, and writes its keys and values into the cache. */
static void enter(const Layer *layer, int64_t row) {
    const Rows *rows = layer->rows;
    number *x = layer->qkv + row * (rows->heads + 2 * rows->kv_heads) * HEAD;
    const float *cosines = rows->cosines + row * HEAD, *sines = rows->sines + row * HEAD;
    for (int64_t h = 0; h < rows->heads; h++, x += HEAD) rotate(x, cosines, sines, x);
    number *key = layer->keys + (rows->first + row) * HEAD, *value = layer->values + (rows->first + row) * HEAD;
    for (int64_t h = 0; h < rows->kv_heads; h++, x += HEAD) rotate(x, cosines, sines, key + h * layer->stride);
    for (int64_t h = 0; h < rows->kv_heads; h++, x += HEAD)
        for (int i = 0; i < HEAD; i++) value[h * layer->stride + i] = x[i];
}

/* Sixteen columns from `keys` on, none behind `last`, as WORDS vectors: vector i holds word i of each. */
static void turn_keys(const number *keys, int64_t last, Words *out) {
#ifdef EMULATED
    Words pairs[WORDS / 2];
    transpose((const word *)keys, WORDS / 2, last, pairs);
    for (int i = 0; i < WORDS / 2; i++) out[2 * i] = as_words(lower(pairs[i])), out[2 * i + 1] = as_words(upper(pairs[i]));
#else
    transpose((const word *)keys, WORDS, last, out);
#endif
}

/* The scores of m queries at n times sixteen columns. */
INLINE void score(const int m, const int n, const word *const *q, const Words *columns, float *out, int64_t width) {
    Lanes sum[MOST][WIDE];
UNROLL(6)
    for (int i = 0; i < m; i++)
UNROLL(4)
        for (int j = 0; j < n; j++) sum[i][j] = zeros();
KEEP_ROLLED
    for (int w = 0; w < WORDS; w++) {
        Words key[WIDE];
UNROLL(4)
        for (int j = 0; j < n; j++) key[j] = columns[j * WORDS + w];
UNROLL(6)
        for (int i = 0; i < m; i++) {
            Words query = all_words(q[i][w]);
UNROLL(4)
            for (int j = 0; j < n; j++) sum[i][j] = dot(sum[i][j], query, key[j]);
        }
    }
UNROLL(6)
    for (int i = 0; i < m; i++)
UNROLL(4)
        for (int j = 0; j < n; j++) save(out + i * width + j * LANES, sum[i][j]);
}

/* Adds the values of some positions, weighted, to `sums` [m][n]: n times sixteen numbers of each value. A word holds
 * JOINED weights. The columns of the positions are `at`, or without it lie in order. */
INLINE void add(const int m, const int n, const number *values, const int32_t *at, int64_t words,
                const word *const *weights, Lanes *sums) {
    Lanes sum[MOST][WIDE];
UNROLL(6)
    for (int i = 0; i < m; i++)
UNROLL(4)
        for (int j = 0; j < n; j++) sum[i][j] = sums[i * n + j];
KEEP_ROLLED
    for (int64_t k = 0; k < words; k++) {
        const number *first = values + (at ? at[JOINED * k] : JOINED * k) * (int64_t)HEAD;
        Words value[WIDE];
#ifndef PAIRED
UNROLL(4)
        for (int j = 0; j < n; j++) value[j] = as_words(widened(first + LANES * j));
#else
        const number *second = values + (at ? at[2 * k + 1] : 2 * k + 1) * (int64_t)HEAD;
UNROLL(2)
        for (int j = 0; j < n; j += 2) {
            Words a = load_words(first + LANES * j), b = load_words(second + LANES * j);
            value[j] = pairs_low(a, b);
            value[j + 1] = pairs_high(a, b);
        }
#endif
UNROLL(6)
        for (int i = 0; i < m; i++) {
            Words weight = all_words(weights[i][k]);
UNROLL(4)
            for (int j = 0; j < n; j++) sum[i][j] = dot(sum[i][j], weight, value[j]);
        }
    }
UNROLL(6)
    for (int i = 0; i < m; i++)
UNROLL(4)
        for (int j = 0; j < n; j++) sums[i * n + j] = sum[i][j];
}

/* Calls `name` with a first argument that the compiler knows. */
#define KNOWN(m, name, ...) switch (m) { \
    case 1: name(1, __VA_ARGS__); break; case 2: name(2, __VA_ARGS__); break; case 3: name(3, __VA_ARGS__); break; \
    case 4: name(4, __VA_ARGS__); break; case 5: name(5, __VA_ARGS__); break; default: name(6, __VA_ARGS__); }

static void scores(int m, int n, const word *const *q, const Words *columns, float *out, int64_t width) {
    switch (n) {
        case 1: KNOWN(m, score, 1, q, columns, out, width); break;
#if HELD == 32
        case 2: KNOWN(m, score, 2, q, columns, out, width); break;
        case 3: KNOWN(m, score, 3, q, columns, out, width); break;
#endif
        default: KNOWN(m, score, WIDE, q, columns, out, width);
    }
}

static void add_all(int m, int n, const number *values, const int32_t *at, int64_t words, const word *const *weights,
                    Lanes *sums) {
    if (n == WIDE && !at) { KNOWN(m, add, WIDE, values, NULL, words, weights, sums); }
    else if (n == WIDE) { KNOWN(m, add, WIDE, values, at, words, weights, sums); }
#if HELD == 32
    else if (!at) { KNOWN(m, add, 2, values, NULL, words, weights, sums); }
    else { KNOWN(m, add, 2, values, at, words, weights, sums); }
#endif
}

/* Replaces n scores by weights, rounded as numbers are, then by zeros up to a multiple of sixteen. Returns one over their
 * sum. */
static float to_weights(float *scores, int64_t n) {
    Lanes most = all(-__builtin_inff()), sum = zeros();
    int64_t c = 0, whole = n / LANES * LANES;
    for (; c < whole; c += LANES) most = greater(LANES, most, load(scores + c));
    if (c < n) most = greater(n - c, most, load(scores + c));
    most = all(greatest(most));
    for (c = 0; c < whole; c += LANES)
        sum = plus(sum, store_rounded((factor *)scores + c, exponentials(minus(load(scores + c), most))));
    if (c < n) {
        Lanes rest = first(n - c, exponentials(minus(load(scores + c), most)));
        sum = plus(sum, store_rounded((factor *)scores + c, rest));
    }
    return 1.0f / total(sum);
}

/* How many columns a row sees in place, and the nodes that follow; their count is returned. */
INLINE int64_t path_of(const Rows *rows, int64_t row, int64_t *seen, const int32_t **path) {
    int64_t node = rows->first + row - rows->context;
    if (!rows->ends || node < 0) {
        *seen = rows->first + row + 1;
        return 0;
    }
    *seen = rows->context;
    *path = rows->nodes + rows->ends[node];
    return rows->ends[node + 1] - rows->ends[node];
}

/* Whether nodes see those behind them, too: in a tree the first one sees itself alone. */
INLINE int both_ways(const Rows *rows) { return rows->ends && rows->ends[1] > 1; }

/* The weighted sums of m queries, from query `at` of row `row` on, whose weights lie in `weights`. */
static void sum_values(const Layer *layer, int64_t head, int64_t row, int64_t at, int m, const float *weights,
                       int64_t width, const float *scale, int32_t *columns) {
    const Rows *rows = layer->rows;
    const number *values = layer->values + head * layer->stride;
    int64_t group = rows->heads / rows->kv_heads, seen, shared;
    const int32_t *path = NULL;
    const word *w[MOST];
    for (int i = 0; i < m; i++) w[i] = (const word *)(weights + i * width);
    path_of(rows, row, &shared, &path);            /* no later row sees less in place */
    shared /= JOINED;
    for (int from = 0; from < HEAD; from += WIDE * LANES) {
        int n = HEAD - from < WIDE * LANES ? (HEAD - from) / LANES : WIDE;
        Lanes sums[MOST * WIDE];
        for (int i = 0; i < m * n; i++) sums[i] = zeros();
        add_all(m, n, values + from, NULL, shared, w, sums);
        for (int i = 0; i < m;) {                  /* the rest of each row's positions */
            int64_t own = (at + i) / group, more = path_of(rows, row + own, &seen, &path), count = 0;
            int same = 1;
            while (i + same < m && (at + i + same) / group == own) same++;
            for (int64_t c = JOINED * shared; c < seen; c++) columns[count++] = (int32_t)c;
            for (int64_t c = 0; c < more; c++) columns[count++] = (int32_t)rows->context + path[c];
            columns[count] = columns[count - !!count];     /* an odd last one stands beside itself: weight zero */
            const word *rest[MOST];
            for (int j = 0; j < same; j++) rest[j] = w[i + j] + shared;
            int64_t words = (count + JOINED - 1) / JOINED;
            if (count) add_all(same, n, values + from, columns, words, rest, sums + i * n);
            i += same;
        }
        for (int i = 0; i < m; i++) {
            int64_t own = (at + i) / group, g = (at + i) % group;
            number *out = layer->out + ((row + own) * rows->heads + head * group + g) * HEAD + from;
            store_sums(out, n, sums + i * n, all(scale[i]));
        }
    }
}

#ifdef AMX
#include "path_amx.h"
#endif

/* Where query i of a block's first query lies, in numbers, where rows lie `step` apart. */
INLINE int64_t place_of(int64_t i, int64_t group, int64_t step) { return i / group * step + i % group * HEAD; }

/* Rows `from` to `to` of one key head; false without memory. */
static int attend_block(const Layer *layer, int64_t head, int64_t from, int64_t to) {
#ifdef AMX
    if (amx_is_allowed() && !both_ways(layer->rows)) return attend_in_tiles(layer, head, from, to);
#endif
    const Rows *rows = layer->rows;
    int64_t group = rows->heads / rows->kv_heads, queries = (to - from) * group;
    int64_t limit = rows->first + (both_ways(rows) ? rows->rows : to);
    int64_t width = (limit + LANES - 1) / LANES * LANES, step = (rows->heads + 2 * rows->kv_heads) * HEAD;
    int64_t tiles = width / LANES, parts = (group + MOST - 1) / MOST;      /* a group goes through registers in parts */
    int64_t most = group <= MOST ? MOST / group * group : (group + parts - 1) / parts;
    int64_t wide = sizeof(factor) > sizeof(number) ? queries * HEAD : 0;   /* numbers of queries that are widened */
    size_t bytes = sizeof(float) * (size_t)(queries * width + wide) + sizeof(int32_t) * (size_t)(limit + 2);
    float *all = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!all) return 0;
    float *widened_queries = all + queries * width;
    int32_t *columns = (int32_t *)(widened_queries + wide);
    const number *keys = layer->keys + head * layer->stride, *first = layer->qkv + from * step + head * group * HEAD;
    Words turned[WIDE * WORDS];
    for (int64_t i = 0; i < wide; i += LANES)
        save(widened_queries + i, widened(first + place_of(i / HEAD, group, step) + i % HEAD));
    for (int64_t tile = 0; tile < tiles; tile += WIDE) {
        int n = tiles - tile < WIDE ? (int)(tiles - tile) : WIDE;
        for (int j = 0; j < n; j++) {
            int64_t at = (tile + j) * LANES;
            turn_keys(keys + at * HEAD, limit - 1 - at, turned + j * WORDS);
        }
        for (int64_t i = 0; i < queries; i += MOST) {
            int m = queries - i < MOST ? (int)(queries - i) : MOST;
            const word *q[MOST] = {0};
            for (int j = 0; j < m; j++)
                q[j] = wide ? (const word *)(widened_queries + (i + j) * HEAD)
                            : (const word *)(first + place_of(i + j, group, step));
            scores(m, n, q, turned, all + i * width + tile * LANES, width);
        }
    }
    for (int64_t i = 0; i < queries;) {
        float scale[MOST];
        int64_t left = group <= MOST ? queries - i : group - i % group;
        int m = left < most ? (int)left : (int)most;
        for (int j = 0; j < m; j++) {
            const int32_t *path = NULL;
            int64_t seen, more = path_of(rows, from + (i + j) / group, &seen, &path);
            float *own = all + (i + j) * width;
            for (int64_t c = 0; c < more; c++) own[seen + c] = own[seen + path[c]];        /* path[c] >= c */
            scale[j] = to_weights(own, seen + more);
        }
        sum_values(layer, head, from + i / group, i % group, m, all + i * width, width, scale, columns);
        i += m;
    }
    free(all);
    return 1;
}

static void enter_some(void *about) {
    Layer *layer = about;
    for (int64_t row; (row = __atomic_fetch_add(&layer->next, 8, __ATOMIC_RELAXED)) < layer->rows->rows;)
        for (int64_t i = row; i < row + 8 && i < layer->rows->rows; i++) enter(layer, i);
}

static void attend_some(void *about) {
    Layer *layer = about;
    int64_t rows = layer->rows->rows, blocks = layer->blocks, jobs = layer->rows->kv_heads * blocks;
    if (amx_is_allowed()) shape_registers(REGISTER);
    for (int64_t job; (job = __atomic_fetch_add(&layer->done, 1, __ATOMIC_RELAXED)) < jobs;) {
        int64_t head = job % layer->rows->kv_heads, block = blocks - 1 - job / layer->rows->kv_heads;  /* long first */
        if (!attend_block(layer, head, block * rows / blocks, (block + 1) * rows / blocks))
            __atomic_store_n(&layer->failed, 1, __ATOMIC_RELAXED);
    }
    if (amx_is_allowed()) free_registers();
}

/* Into how many blocks the rows are cut, so that scores stay in the processor's cache and threads end together. */
static int64_t blocks_of(const Rows *rows) {
    int64_t group = rows->heads / rows->kv_heads, most = SCRATCH / (group * (rows->first + rows->rows));
    int64_t blocks = most < 1 ? rows->rows : (rows->rows + most - 1) / most;
    for (; blocks < rows->rows; blocks++) {
        int64_t jobs = rows->kv_heads * blocks, turns = (jobs + rows->threads - 1) / rows->threads;
        if (10 * jobs >= 9 * turns * rows->threads) break;
    }
    return blocks;
}

/* Attention of one layer for all rows; returns 0, or 1 without memory. */
int attend(const Rows *rows, number *qkv, number *keys, number *values, int64_t stride, number *out) {
    Layer layer = {rows, qkv, keys, values, out, stride, blocks_of(rows), 0, 0, 0};
    int several = rows->threads > 1 && rows->parallel && rows->rows * rows->heads * (rows->first + rows->rows) > LITTLE;
    if (several && rows->rows > FEW) rows->parallel(enter_some, &layer, (unsigned)rows->threads, 0);
    else enter_some(&layer);
    if (several && rows->kv_heads * layer.blocks > 1) rows->parallel(attend_some, &layer, (unsigned)rows->threads, 0);
    else attend_some(&layer);
    return layer.failed != 0;
}
