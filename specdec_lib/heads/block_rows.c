/* A block drafter without Python between its operations: rows of committed tokens, a block with the candidates of its
 * slots, and the walk from slot to slot.
 *
 * Products, attention, norms and statistics are compiled apart and called by address. Compiled for numbers in bfloat16, or
 * with -DSINGLE in single precision.
 */
#include "../models/llama/numbers.h"
#include "head_rows.h"

typedef struct {
    const void *qkv, *out, *gate_up, *down;
} Layer;

/* What is the same in all decodes. */
typedef struct {
    Product features, first, inject_first, inject, correction;
    const Layer *layers;                           /* the first one's qkv reads a token and a feature: `first` */
    int64_t count;                                 /* of layers */
    Multiply multiply;
    Finish finish;
    Norm norm;
    Attend attend;
    Stats stats;
    const number *weight, *embedding, *confidence; /* of the last norm [hidden]; [tokens, hidden]; [2 hidden] */
    const number *rows;                            /* output rows of candidates, by token or by column */
    int64_t by_token, hidden, levels, head_dim;
    float eps;
} Network;

/* What one decode holds. */
typedef struct {
    const Network *network;
    const Threads *threads;
    Rows rows;                                     /* heads, threads and pool; the rest is filled in here */
    number *feature;                               /* [hidden] of the token before the anchor */
    number *kv;                                    /* [layers, 2, kv_heads, capacity, head_dim] */
    int64_t capacity;
    const float *cosines, *sines;                  /* [capacity, head_dim]; sines with the sign of the rotation */
    Vocabulary vocabulary;
    const int64_t *ids;                            /* the token of each column of logits */
    const number *masks;                           /* [block - 1, hidden] */
    int64_t block;
    const int32_t *ends, *nodes;                   /* of a block, whose slots see each other, as in `Rows` */
} Head;

INLINE int64_t bytes_of(int64_t count) { return count * (int64_t)sizeof(number); }

static number *cached(const Head *head, int64_t layer, int64_t half, int64_t kv_head) {
    return head->kv + ((layer * 2 + half) * head->rows.kv_heads + kv_head) * head->capacity * head->network->head_dim;
}

/* Writes a row's keys, turned by the angles of its place, and values into the cache of a layer. */
static void write_row(const Head *head, int64_t layer, int64_t place, const number *kv) {
    int64_t d = head->network->head_dim, kv_heads = head->rows.kv_heads;
    const float *cosines = head->cosines + place * d, *sines = head->sines + place * d;
    for (int64_t h = 0; h < kv_heads; h++) {
        const number *key = kv + h * d;
        number *to = cached(head, layer, 0, h) + place * d;
        for (int64_t i = 0; i < d; i++)
            to[i] = stored(wide_of(key[i]) * cosines[i] + wide_of(key[(i + d / 2) % d]) * sines[i]);
        memcpy(cached(head, layer, 1, h) + place * d, kv + (kv_heads + h) * d, (size_t)bytes_of(d));
    }
}

/* The norms of tokens and features side by side [n, 2, hidden]; tokens are given as their embeddings. */
static void pair_up(const Network *net, int64_t n, const number *const *words, const number *features, int64_t apart,
                    number *pair) {
    for (int64_t i = 0; i < n; i++) {
        net->norm(words[i], NULL, 1, net->hidden, net->eps, pair + 2 * i * net->hidden);
        net->norm(features + i * apart, NULL, 1, net->hidden, net->eps, pair + (2 * i + 1) * net->hidden);
    }
}

/* Rows of committed tokens, from row `start` of the cache on, from the target's states [n, levels, hidden] of the tokens
 * before them; 1 = no memory. */
int keep_rows(const Head *head, const number *states, const int64_t *tokens, int64_t n, int64_t start) {
    const Network *net = head->network;
    int64_t h = net->hidden, first = net->inject_first.out, others = net->inject.matrix ? net->inject.out : 0;
    int64_t sizes[] = {bytes_of(n * net->levels * h), bytes_of(n * h), bytes_of(2 * n * h), bytes_of(n * h),
                       bytes_of(n * first), bytes_of(n * others), n * (int64_t)sizeof(number *)};
    size_t all = 0;
    for (int i = 0; i < 7; i++) all += whole_lines((size_t)sizes[i]);
    char *memory = aligned_alloc(64, all), *at = memory;
    if (!memory) return 1;
    number *normed = (number *)take(&at, sizes[0]), *features = (number *)take(&at, sizes[1]);
    number *pair = (number *)take(&at, sizes[2]), *alone = (number *)take(&at, sizes[3]);
    number *own = (number *)take(&at, sizes[4]), *more = (number *)take(&at, sizes[5]);
    const number **words = (const number **)take(&at, sizes[6]);
    net->norm(states, NULL, n * net->levels, h, net->eps, normed);
    int failed = net->features.multiply(net->features.matrix, normed, n, -1, features, head->threads);
    for (int64_t i = 0; i < n; i++) words[i] = net->embedding + tokens[i] * h;
    pair_up(net, n, words, features, h, pair);
    for (int64_t i = 0; i < n; i++) memcpy(alone + i * h, pair + (2 * i + 1) * h, (size_t)bytes_of(h));
    failed = failed || net->inject_first.multiply(net->inject_first.matrix, pair, n, -1, own, head->threads)
        || (others && net->inject.multiply(net->inject.matrix, alone, n, -1, more, head->threads));
    for (int64_t i = 0; !failed && i < n; i++) {
        write_row(head, 0, start + i, own + i * first);
        for (int64_t layer = 1; layer < net->count; layer++)
            write_row(head, layer, start + i, more + i * others + (layer - 1) * first);
    }
    if (n) memcpy(head->feature, features + (n - 1) * h, (size_t)bytes_of(h));
    free(memory);
    return failed;
}

/* Normed outputs [block, hidden] of the anchor and the masks behind it, from row `start` of the cache on; 1 = no memory. */
static int run_block(const Head *head, int64_t anchor, int64_t start, number *out) {
    const Network *net = head->network;
    int64_t n = head->block, h = net->hidden, wide = net->first.out, seen = head->rows.heads * net->head_dim;
    int64_t sizes[] = {bytes_of(2 * n * h), bytes_of(n * h), bytes_of(n * h), bytes_of(n * wide), bytes_of(n * seen),
                       n * (int64_t)sizeof(number *)};
    size_t all = 0;
    for (int i = 0; i < 6; i++) all += whole_lines((size_t)sizes[i]);
    char *memory = aligned_alloc(64, all), *at = memory;
    if (!memory) return 1;
    number *pair = (number *)take(&at, sizes[0]), *x = (number *)take(&at, sizes[1]), *y = (number *)take(&at, sizes[2]);
    number *qkv = (number *)take(&at, sizes[3]), *attended = (number *)take(&at, sizes[4]);
    const number **words = (const number **)take(&at, sizes[5]);
    for (int64_t i = 0; i < n; i++) {
        words[i] = i ? head->masks + (i - 1) * h : net->embedding + anchor * h;
        memcpy(x + i * h, head->feature, (size_t)bytes_of(h));
    }
    pair_up(net, n, words, head->feature, 0, pair);
    Rows rows = head->rows;
    rows.rows = n, rows.first = rows.context = start, rows.ends = head->ends, rows.nodes = head->nodes;
    rows.cosines = head->cosines + start * net->head_dim, rows.sines = head->sines + start * net->head_dim;
    int failed = 0;
    for (int64_t i = 0; !failed && i < net->count; i++) {
        const Layer *layer = net->layers + i;
        failed = (i ? net->multiply(layer->qkv, x, n, net->eps, qkv, head->threads)
                    : net->first.multiply(net->first.matrix, pair, n, -1, qkv, head->threads))
            || net->attend(&rows, qkv, cached(head, i, 0, 0), cached(head, i, 1, 0), head->capacity * net->head_dim, attended)
            || net->finish(layer->out, layer->gate_up, layer->down, x, attended, n, net->eps, y, head->threads);
        number *last = x;
        x = y, y = last;
    }
    if (!failed) net->norm(x, net->weight, n, h, net->eps, out);
    free(memory);
    return failed;
}

/* The sum of products of two rows; its order does not depend on the processor. */
static float product_of(const number *a, const number *b, int64_t count) {
    float part[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++) part[l] = fmaf(wide_of(a[i + l]), wide_of(b[i + l]), part[l]);
    for (int l = 0; i < count; i++, l++) part[l] = fmaf(wide_of(a[i]), wide_of(b[i]), part[l]);
    for (int l = 0; l < LANES; l++) sum += part[l];
    return sum;
}

INLINE int64_t column_of(const double *told, int64_t k, int64_t place) { return (int64_t)told[k + place]; }

INLINE const number *row_of(const Head *head, int64_t column) {
    const Network *net = head->network;
    return net->rows + (net->by_token ? head->ids[column] : column) * net->hidden;
}

/* The scores [k] of a slot's candidates, corrected by the token before it, whose normed embedding is left in `before` and
 * what it adds to the slot's state in `added`; 1 = no memory. */
static int corrected(const Head *head, int64_t token, int64_t k, const double *told, number *before, number *added,
                     double *scores) {
    const Network *net = head->network;
    int64_t h = net->hidden;
    for (int64_t c = 0; c < k; c++)
        for (int64_t i = 0; i < bytes_of(h); i += 64)
            __builtin_prefetch((const char *)row_of(head, column_of(told, k, c)) + i);
    net->norm(net->embedding + token * h, NULL, 1, h, net->eps, before);
    if (net->correction.multiply(net->correction.matrix, before, 1, -1, added, head->threads)) return 1;
    for (int64_t c = 0; c < k; c++)
        scores[c] = (float)(told[c] - told[2 * k]) + product_of(row_of(head, column_of(told, k, c)), added, h);
    return 0;
}

/* Room for the scores of k candidates, and behind them for `before` and `added`; NULL = no memory. */
static double *room_for(const Network *net, int64_t k, number **before, number **added) {
    size_t scores = whole_lines((size_t)k * sizeof(double));
    char *memory = aligned_alloc(64, scores + whole_lines((size_t)bytes_of(net->hidden + net->correction.out)));
    *before = memory ? (number *)(memory + scores) : NULL;
    *added = memory ? *before + net->hidden : NULL;
    return (double *)memory;
}

/* The greedy chain through the slots, whose normed outputs are x and whose k candidates `told` holds. For each slot `out`
 * gets the token, the two largest probabilities among its candidates, their entropy, and the confidence; 1 = no memory. */
static int walk(const Head *head, int64_t token, const number *x, int64_t slots, int64_t k, const double *told, double *out) {
    const Network *net = head->network;
    int64_t h = net->hidden;
    number *before, *added;
    double *scores = room_for(net, k, &before, &added);
    int failed = !scores;
    for (int64_t slot = 0; !failed && slot < slots; slot++, x += h, told += 2 * k + 2, out += 5) {
        if ((failed = corrected(head, token, k, told, before, added, scores))) break;
        int64_t best = 0;
        for (int64_t c = 1; c < k; c++)
            if (scores[c] > scores[best]) best = c;
        double sum = 0, moment = 0, second = -HUGE_VAL;
        for (int64_t c = 0; c < k; c++) {
            double d = scores[c] - scores[best], weight = exp(d);
            sum += weight, moment += weight > 0 ? weight * d : 0;
            if (c != best && scores[c] > second) second = scores[c];
        }
        float sure = product_of(x, net->confidence, h) + product_of(before, net->confidence + h, h);
        token = head->ids[column_of(told, k, best)];
        out[0] = (double)token, out[1] = 1 / sum, out[2] = exp(second - scores[best]) / sum;
        out[3] = log(sum) - moment / sum, out[4] = 1 / (1 + exp(-sure));
    }
    free(scores);
    return failed;
}

/* The k candidates of a slot after this token, best first: their places, their log-probabilities, and the entropy, with
 * what they lack to 1 as one token: `out` [2k + 1]. The correction shifts probability among them. A token below 0 corrects
 * nothing; 1 = no memory. */
int candidates_after(const Head *head, int64_t token, int64_t k, const double *told, double *out) {
    number *before, *added;
    double *scores = room_for(head->network, k, &before, &added), own = 0, sum = 0, entropy = 0;
    if (!scores) return 1;
    for (int64_t c = 0; c < k; c++) scores[c] = (float)(told[c] - told[2 * k]), own += exp(scores[c]);
    int failed = token >= 0 && corrected(head, token, k, told, before, added, scores);
    for (int64_t c = 0; !failed && c < k; c++) {
        int64_t at = c;
        for (; at > 0 && scores[c] > out[k + at - 1]; at--) out[at] = out[at - 1], out[k + at] = out[k + at - 1];
        out[at] = (double)c, out[k + at] = scores[c];
    }
    for (int64_t c = 0; !failed && c < k; c++) sum += exp(out[k + c] - out[k]);
    double shift = token < 0 ? 0 : log(own) - log(sum) - out[k], rest = own < 1 ? 1 - own : 0;
    for (int64_t c = 0; !failed && c < k; c++) {
        double logp = out[k + c] += shift;
        entropy -= logp > -HUGE_VAL ? exp(logp) * logp : 0;
    }
    out[2 * k] = entropy - (rest > 0 ? rest * log(rest) : 0);
    free(scores);
    return failed;
}

/* Fills the block after these rows: for each of its first `slots` slots the statistics `told` [2k + 2] of the slot alone,
 * with columns for tokens, and unless `walked` is NULL the walk's [5]; 1 = no memory. */
int draft_block(const Head *head, int64_t anchor, int64_t start, int64_t slots, int64_t k, double *told, double *walked) {
    const Network *net = head->network;
    int64_t columns = columns_of(&head->vocabulary);
    size_t outputs = whole_lines((size_t)bytes_of(head->block * net->hidden));
    char *memory = aligned_alloc(64, outputs + whole_lines((size_t)bytes_of(slots * columns)));
    if (!memory) return 1;
    char *logits = memory + outputs;
    int failed = run_block(head, anchor, start, (number *)memory)
        || joined_logits(&head->vocabulary, memory, slots, logits, head->threads);
    if (!failed) net->stats(logits, slots, columns, columns, NULL, k, told, head->threads);
    if (!failed && walked) failed = walk(head, anchor, (const number *)memory, slots, k, told, walked);
    free(memory);
    return failed;
}
