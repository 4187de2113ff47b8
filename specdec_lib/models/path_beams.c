/* DiffuSpec's path search: the candidates of each slot by cumulative mass, and a beam search through them.
 *
 * The same as `narrow` and `search` of lattice.py with a trigram's probabilities, see there and in ngram.py. Of equally
 * good paths the first one stays first.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum {NOTHING = -1, MOST = 64};                    /* no token; the most candidates of a slot and beams */
enum {MEAN, SUM, ACCEPTED};                               /* scores of a path */

typedef struct {
    const int64_t *keys;                           /* [count] context times vocabulary plus token, ascending */
    const double *mass, *left;                     /* of each key; what is left after each context, the last unknown */
    int64_t count;
} Order;

typedef struct {
    const double *unigram;
    Order bigram, trigram;
    int64_t vocab, contexts;                       /* contexts: pairs that a trigram may follow */
} Trigram;

typedef struct {
    const Trigram *proxy;                          /* NULL: the slots alone count */
    const int64_t *ids, *ends;                     /* [slots, top] best first; [end_count] */
    const double *logp;                            /* [slots, top] */
    int64_t slots, top, end_count, cap, keep_end, beam, score, last[2];
    double mass, weight;
    int64_t *kept;                                 /* out, [slots]: candidates of each slot, 0 after the last one */
    double *statistics;                            /* out, [slots, 3]: two best probabilities, entropy in nats */
    int64_t *columns, *lengths;                    /* out, [beam, slots] and [beam] */
    double *scores;                                /* out, [beam] */
} Search;

typedef struct {
    int64_t columns[MOST], last[2], length, over;
    double total, hoped, value;                    /* hoped: expected number of accepted tokens */
} Beam;

static int is_end(const Search *s, int64_t token) {
    for (int64_t i = 0; i < s->end_count; i++)
        if (s->ends[i] == token) return 1;
    return 0;
}

/* The place of a pair, NOTHING where it is not stored. */
static int64_t place_of(const Order *order, int64_t vocab, int64_t context, int64_t token) {
    if (context == NOTHING || token == NOTHING) return NOTHING;
    int64_t key = context * vocab + token, low = 0, high = order->count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (order->keys[middle] < key) low = middle + 1;
        else high = middle;
    }
    return low < order->count && order->keys[low] == key ? low : NOTHING;
}

static double mixed(const Order *order, int64_t vocab, int64_t contexts, int64_t context, int64_t token, double below) {
    int64_t place = place_of(order, vocab, context, token);
    double own = place == NOTHING ? 0 : order->mass[place];
    return own + order->left[context == NOTHING ? contexts : context] * below;
}

static double log_chance(const Trigram *t, const int64_t *last, int64_t pair, int64_t token) {
    double below = mixed(&t->bigram, t->vocab, t->vocab, last[1], token, t->unigram[token]);
    return log(mixed(&t->trigram, t->vocab, t->contexts, pair, token, below));
}

/* The columns of a slot's candidates, likeliest first; returns how many. */
static int64_t candidates(const Search *s, int64_t slot, int64_t *found) {
    const int64_t *ids = s->ids + slot * s->top;
    const double *logp = s->logp + slot * s->top;
    double before = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < s->top; i++) {
        double prob = exp(logp[i]), sum = before + prob;
        int kept = i < s->cap && (i == 0 || sum - prob < s->mass);
        before = sum;
        if (!isfinite(logp[i]) || !(kept || (s->keep_end && is_end(s, ids[i])))) continue;
        int64_t at = n++;
        for (; at > 0 && logp[i] > logp[found[at - 1]]; at--) found[at] = found[at - 1];
        found[at] = i;
    }
    return n;
}

static void describe(const Search *s, int64_t slot) {
    const double *logp = s->logp + slot * s->top;
    double *out = s->statistics + 3 * slot, sum = 0, entropy = 0;
    for (int64_t i = 0; i < s->top; i++) {
        double prob = exp(logp[i]);
        sum += prob;
        if (prob > 0) entropy -= prob * logp[i];
    }
    double rest = sum < 1 ? 1 - sum : 0;
    out[0] = exp(logp[0]), out[1] = s->top > 1 ? exp(logp[1]) : 0;
    out[2] = rest > 0 ? entropy - rest * log(rest) : entropy;
}

static double value_of(const Search *s, const Beam *b) {
    return s->score == SUM ? b->total : s->score == ACCEPTED ? b->hoped : b->total / (b->length > 0 ? b->length : 1);
}

/* Puts a path behind all that are at least as good, where there is room. */
static void enter(const Search *s, Beam *best, int64_t *count, Beam *one) {
    one->value = value_of(s, one);
    if (*count == s->beam && !(one->value > best[*count - 1].value)) return;
    int64_t at = *count < s->beam ? (*count)++ : *count - 1;
    for (; at > 0 && one->value > best[at - 1].value; at--) best[at] = best[at - 1];
    best[at] = *one;
}

/* One slot more for every open path; ended ones stay as they are. */
static int64_t step(const Search *s, int64_t slot, const Beam *from, int64_t count, Beam *best) {
    int64_t columns[MOST], n = candidates(s, slot, columns), held = 0;
    const int64_t *ids = s->ids + slot * s->top;
    s->kept[slot] = n;
    for (int64_t b = 0; b < count; b++) {
        Beam one = from[b];
        if (from[b].over) {
            enter(s, best, &held, &one);
            continue;
        }
        int64_t pair = s->proxy ? place_of(&s->proxy->bigram, s->proxy->vocab, from[b].last[0], from[b].last[1]) : NOTHING;
        for (int64_t i = 0; i < n; i++) {
            int64_t token = ids[columns[i]];
            double gain = s->logp[slot * s->top + columns[i]];
            if (s->proxy)
                gain = s->weight * gain + (1 - s->weight) * log_chance(s->proxy, from[b].last, pair, token);
            one = from[b];
            one.total += gain, one.hoped += exp(one.total);
            one.columns[one.length++] = columns[i];
            one.last[0] = one.last[1], one.last[1] = token, one.over = is_end(s, token);
            if (one.total > -INFINITY) enter(s, best, &held, &one);
        }
    }
    return held;
}

/* Returns the number of paths, best first. */
int64_t search_paths(const Search *s) {
    Beam beams[2][MOST];
    int64_t count = 1, now = 0, last = 0;
    memset(&beams[0][0], 0, sizeof(Beam));
    memcpy(beams[0][0].last, s->last, sizeof s->last);
    for (int64_t slot = 0; slot < s->slots; slot++) describe(s, slot), s->kept[slot] = 0;
    while (last < s->slots - 1 && !is_end(s, s->ids[last * s->top])) last++;         /* a slot whose best is an end */
    for (int64_t slot = 0; slot <= last && slot < s->slots; slot++) {
        int64_t open = 0, columns[MOST];
        for (int64_t b = 0; b < count; b++) open += !beams[now][b].over;
        if (open) count = step(s, slot, beams[now], count, beams[!now]), now = !now;
        else s->kept[slot] = candidates(s, slot, columns);
    }
    for (int64_t b = 0; b < count; b++) {
        const Beam *one = &beams[now][b];
        memcpy(s->columns + b * s->slots, one->columns, sizeof(int64_t) * one->length);
        s->lengths[b] = one->length, s->scores[b] = value_of(s, one);
    }
    return count;
}
