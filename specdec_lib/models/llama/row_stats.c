/* Statistics of rows of logits: the k largest with their columns, log-sum-exp, and entropy in nats.
 *
 * A row is read twice: for its largest logits, and for the sums over exp(x - largest), which are taken in one order.
 * Of equal logits the one of the first column comes first. Logits are in single precision, or with -DHALF in bfloat16.
 */
#include <stddef.h>

#define INLINE static inline __attribute__((always_inline))
enum {LANES = 16};
#include "linear.h"

#ifdef HALF
typedef half number;
INLINE float wide_of(number x) { return single_of(x); }
#else
typedef float number;
INLINE float wide_of(number x) { return x; }
#endif

enum {BLOCK = 128, SOME = 1024, MOST = 64};        /* columns of a block and of a partial sum; the largest k */
enum {LITTLE = 1 << 16};                           /* numbers that are not worth a second thread */
static const float LOWEST = -87.0f;                /* exp of it, times any number of columns, is nothing */

typedef struct {
    const number *logits;                          /* [rows, columns], rows `stride` apart */
    const int64_t *ids;                            /* [columns] the token of each column; or NULL for its number */
    double *out;                                   /* [rows, 2k + 2]: logits, tokens, log-sum-exp, entropy */
    int64_t rows, columns, stride, k, next;
} Rows;

/* The k largest in order; those behind the first k columns go in only where a block has one that is larger. */
static void largest_of(const number *x, int64_t columns, int64_t k, float *value, int64_t *place) {
    int64_t held = 0;
    for (int64_t from = 0; from < columns; from += BLOCK) {
        int64_t to = least(from + BLOCK, columns);
        if (held == k && to - from == BLOCK) {
            float limit = value[k - 1];
            int larger = 0;                        /* not the largest number: compilers make no vectors of that loop */
            for (int i = 0; i < BLOCK; i++) larger |= wide_of(x[from + i]) > limit;
            if (!larger) continue;
        }
        for (int64_t i = from; i < to; i++) {
            float one = wide_of(x[i]);
            if (held == k && !(one > value[k - 1])) continue;
            int64_t at = held < k ? held++ : k - 1;
            for (; at > 0 && one > value[at - 1]; at--) value[at] = value[at - 1], place[at] = place[at - 1];
            value[at] = one, place[at] = i;
        }
    }
}

/* The sums of exp(d) and of d exp(d), for the distances d of all logits from the largest. */
static void sums_of(const number *x, int64_t columns, float most, double *weight, double *moment) {
    *weight = *moment = 0;
    for (int64_t from = 0; from < columns; from += SOME) {
        int64_t to = least(from + SOME, columns), i = from;
        float sum[LANES] = {0}, product[LANES] = {0};
        for (; i + LANES <= to; i += LANES)
            for (int l = 0; l < LANES; l++) {
                float d = wide_of(x[i + l]) - most;
                d = d < LOWEST ? LOWEST : d;
                float e = exponential(d);
                sum[l] += e, product[l] = fmaf(e, d, product[l]);
            }
        for (int l = 0; i < to; i++, l++) {
            float d = wide_of(x[i]) - most;
            d = d < LOWEST ? LOWEST : d;
            float e = exponential(d);
            sum[l] += e, product[l] = fmaf(e, d, product[l]);
        }
        for (int l = 0; l < LANES; l++) *weight += sum[l], *moment += product[l];
    }
}

static void some_rows(void *about) {
    Rows *rows = about;
    int64_t k = rows->k, row;
    while ((row = __atomic_fetch_add(&rows->next, 1, __ATOMIC_RELAXED)) < rows->rows) {
        const number *x = rows->logits + row * rows->stride;
        double *out = rows->out + row * (2 * k + 2), weight, moment;
        float value[MOST];
        int64_t place[MOST];
        largest_of(x, rows->columns, k, value, place);
        sums_of(x, rows->columns, value[0], &weight, &moment);
        for (int64_t i = 0; i < k; i++)
            out[i] = value[i], out[k + i] = (double)(rows->ids ? rows->ids[place[i]] : place[i]);
        out[2 * k] = value[0] + log(weight);
        out[2 * k + 1] = log(weight) - moment / weight;
    }
}

/* Fills `out`; k is at most MOST and at most the number of columns. */
void row_stats(const number *logits, int64_t rows, int64_t columns, int64_t stride, const int64_t *ids, int64_t k,
               double *out, const Threads *threads) {
    Rows all = {logits, ids, out, rows, columns, stride, k, 0};
    if (threads->count > 1 && threads->parallel && rows > 1 && rows * columns > LITTLE)
        threads->parallel(some_rows, &all, (unsigned)threads->count, 0);
    else
        some_rows(&all);
}
