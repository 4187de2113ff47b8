/* Attention of a block of rows in the tile registers of AMX, for bfloat16; `path_attention.c` includes it.
 *
 * Sixteen queries are multiplied at once. Values are taken in spans of 32 positions from the first one on: those that all
 * rows of the block see in place are laid out as tiles once, and what follows is laid out for each row, as far as it
 * differs from the row before. So a row goes through the same spans, in the same order, whatever is computed beside it.
 */
#ifndef PATH_AMX_H
#define PATH_AMX_H

enum {SPAN = 2 * REGISTER};                        /* positions of a tile of values */
enum {VALUE_TILES = HEAD / LANES};

/* What a block of queries of one key head needs. */
typedef struct {
    float *scores;                                 /* [queries, width], then weights */
    number *queries;                               /* [queries, HEAD] */
    word *shared, *own;                            /* values as tiles: [VALUE_TILES][words of positions][LANES] */
    Lanes *sums;                                   /* [queries, SUMS] */
    int32_t *columns;                              /* of a row's positions behind the shared ones, then of the last row's */
    int64_t limit, width, padded;                  /* columns, those up to whole spans, queries up to whole registers */
} Block;

/* Two values as words that hold a number of each, of position pair k of so many in a row of tiles. */
INLINE void lay_pair(const number *first, const number *second, int64_t k, int64_t pairs, word *tiles) {
    for (int j = 0; j < VALUE_TILES; j += 2) {
        Words a = load_words(first + LANES * j), b = second ? load_words(second + LANES * j) : all_words(0);
        _mm512_store_si512(tiles + (j * pairs + k) * LANES, pairs_low(a, b));
        _mm512_store_si512(tiles + ((j + 1) * pairs + k) * LANES, pairs_high(a, b));
    }
}

INLINE int64_t whole_spans(int64_t count) { return (count + SPAN - 1) / SPAN * SPAN; }

/* Values of the first `count` positions as tiles, in whole spans. */
static void lay_in_order(const number *values, int64_t count, word *tiles) {
    for (int64_t k = 0; k < count / 2; k++)
        lay_pair(values + 2 * k * HEAD, values + (2 * k + 1) * HEAD, k, count / 2, tiles);
}

/* Values of these columns as tiles whose rows hold `apart` pairs, where the tiles hold those of `last`, and zeros. */
static void lay_columns(const number *values, const int32_t *columns, int64_t count, const int32_t *last, int64_t held,
                        int64_t apart, word *tiles) {
    int64_t same = 0;
    while (same < least(count, held) && columns[same] == last[same]) same++;
    for (int64_t k = same / 2; 2 * k < count; k++) {
        const number *second = 2 * k + 1 < count ? values + columns[2 * k + 1] * (int64_t)HEAD : NULL;
        lay_pair(values + columns[2 * k] * (int64_t)HEAD, second, k, apart, tiles);
    }
    for (int64_t k = (count + 1) / 2; 2 * k < held; k++)
        for (int j = 0; j < VALUE_TILES; j++) memset(tiles + (j * apart + k) * LANES, 0, LANES * sizeof(word));
}

static void score_in_tiles(const Block *block, const number *keys, int64_t limit) {
    Words turned[2 * WORDS];
    for (int64_t at = 0; at < limit; at += 2 * LANES) {
        turn_keys(keys + at * HEAD, limit - 1 - at, turned);
        turn_keys(keys + (at + LANES) * HEAD, limit - 1 - at - LANES, turned + WORDS);
        for (int64_t i = 0; i < block->padded; i += REGISTER)
            amx_sums(2, (const word *)turned, WORDS, block->queries + i * HEAD, HEAD * sizeof(number), WORDS, NULL,
                     (Lanes *)(block->scores + i * block->width + at), block->width * (int64_t)sizeof(float));
    }
}

/* Weights of query i in place of its scores, with zeros up to a whole span. Returns one over their sum. */
static float weigh(const Block *block, const Rows *rows, int64_t row, int64_t i) {
    const int32_t *path = NULL;
    int64_t seen, more = path_of(rows, row, &seen, &path), n = seen + more;
    float *own = block->scores + i * block->width;
    for (int64_t c = 0; c < more; c++) own[seen + c] = own[seen + path[c]];        /* path[c] >= c */
    float scale = to_weights(own, n);
    if ((n - 1) / LANES % 2 == 0) store((number *)own + (n - 1) / LANES * LANES + LANES, zeros());
    return scale;
}

/* The columns of a row's positions from `shared` on; returns their count. */
static int64_t columns_behind(const Rows *rows, int64_t row, int64_t shared, int32_t *columns) {
    const int32_t *path = NULL;
    int64_t seen, more = path_of(rows, row, &seen, &path), count = 0;
    for (int64_t c = shared; c < seen; c++) columns[count++] = (int32_t)c;
    for (int64_t c = 0; c < more; c++) columns[count++] = (int32_t)rows->context + path[c];
    return count;
}

/* The weighted sums of the rows from `from` on over the numbers of values that tiles `first` to `first + t` hold. */
static void sum_tiles(const Layer *layer, const Block *block, int64_t head, int64_t from, int64_t to, int64_t shared,
                      int first, int t, const float *scales) {
    const Rows *rows = layer->rows;
    const number *values = layer->values + head * layer->stride;
    int64_t group = rows->heads / rows->kv_heads, stride = block->width * (int64_t)sizeof(float), pairs = shared / 2;
    int64_t apart = whole_spans(block->limit - shared) / 2, held = 0;
    int32_t *columns = block->columns, *last = columns + block->limit;
    memset(block->own, 0, (size_t)(VALUE_TILES * apart * LANES) * sizeof(word));
    for (int64_t i = 0; i < block->padded; i += REGISTER)
        amx_sums(t, block->shared + first * pairs * LANES, pairs, block->scores + i * block->width, stride, pairs, NULL,
                 block->sums + i * SUMS, SUMS * sizeof(Lanes));
    for (int64_t row = from; row < to; row++) {
        int64_t count = columns_behind(rows, row, shared, columns), at = (row - from) * group;
        lay_columns(values, columns, count, last, held, apart, block->own);
        for (int64_t g = 0; g < group; g += REGISTER) {
            Lanes out[REGISTER][SUMS];
            const number *weights = (const number *)(block->scores + (at + g) * block->width) + shared;
            amx_sums(t, block->own + first * apart * LANES, apart, weights, stride, whole_spans(count) / 2,
                     block->sums + (at + g) * SUMS, out[0], SUMS * sizeof(Lanes));
            for (int64_t j = 0; j < least(group - g, REGISTER); j++) {
                number *y = layer->out + (row * rows->heads + head * group + g + j) * HEAD + first * LANES;
                store_sums(y, t, out[j], all(scales[at + g + j]));
            }
        }
        int32_t *free = last;
        last = columns, columns = free, held = count;
    }
}

/* Rows `from` to `to` of one key head; false without memory. */
static int attend_in_tiles(const Layer *layer, int64_t head, int64_t from, int64_t to) {
    const Rows *rows = layer->rows;
    int64_t group = rows->heads / rows->kv_heads, queries = (to - from) * group, limit = rows->first + to, shared;
    int64_t padded = (queries + REGISTER - 1) / REGISTER * REGISTER, spare = padded + REGISTER;
    int64_t width = whole_spans(limit), step = (rows->heads + 2 * rows->kv_heads) * HEAD;
    const int32_t *path = NULL;
    path_of(rows, from, &shared, &path);           /* no later row sees less in place */
    shared = shared / SPAN * SPAN;
    size_t scores = sizeof(float) * (size_t)(spare * width), q = sizeof(number) * (size_t)(padded * HEAD);
    size_t tiles = sizeof(number) * (size_t)((width + SPAN) * HEAD), sums = (size_t)spare * SUMS * sizeof(Lanes);
    char *memory = aligned_alloc(64, scores + q + tiles + sums + (size_t)whole_lines(4 * (size_t)(2 * limit + padded)));
    if (!memory) return 0;
    Block block = {.scores = (float *)memory, .queries = (number *)(memory + scores), .limit = limit, .width = width,
                   .padded = padded};
    block.shared = (word *)(memory + scores + q), block.own = block.shared + shared / 2 * HEAD;
    block.sums = (Lanes *)(memory + scores + q + tiles);
    block.columns = (int32_t *)(memory + scores + q + tiles + sums);
    float *scales = (float *)(block.columns + 2 * limit);
    for (int64_t i = 0; i < queries; i++)
        memcpy(block.queries + i * HEAD, layer->qkv + (from + i / group) * step + (head * group + i % group) * HEAD,
               HEAD * sizeof(number));
    score_in_tiles(&block, layer->keys + head * layer->stride, limit);
    for (int64_t i = 0; i < queries; i++) scales[i] = weigh(&block, rows, from + i / group, i);
    lay_in_order(layer->values + head * layer->stride, shared, block.shared);
    for (int first = 0; first < VALUE_TILES; first += SUMS)
        sum_tiles(layer, &block, head, from, to, shared, first, (int)least(SUMS, VALUE_TILES - first), scales);
    free(memory);
    return 1;
}
#endif
