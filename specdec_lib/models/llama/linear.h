/* What linear layers in C share: threads and what each does, a norm's factor, the exponential, and memory in whole cache
 * lines.
 *
 * `LANES` is defined before this is included. Sums are taken in one order, whatever the compiler makes of the loops.
 */
#ifndef LINEAR_H
#define LINEAR_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef INLINE
#define INLINE static inline __attribute__((always_inline))
#endif

/* For the next loop: as many bodies in a row as it has turns, n at most; and a body for each turn. */
#ifdef __clang__
#define UNROLL(n) _Pragma("clang loop unroll(full)")
#define KEEP_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define PRAGMA(words) _Pragma(#words)
#define UNROLL(n) PRAGMA(GCC unroll n)
#define KEEP_ROLLED PRAGMA(GCC unroll 1)
#endif

typedef uint16_t half;                             /* the upper half of a float */
typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned);

typedef struct {
    int64_t count;
    Parallel parallel;                             /* GOMP_parallel of torch's own thread pool */
} Threads;

INLINE float of_bits(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
INLINE uint32_t bits_of(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }
INLINE float single_of(half x) { return of_bits((uint32_t)x << 16); }

INLINE half rounded(float x) {
    uint32_t bits = bits_of(x), up = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (half)(x != x ? 0x7fc0 : up);
}

INLINE float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 87.0f ? 87.0f : x;
    float shifted = fmaf(x, 1.44269504f, 12582912.0f), n = shifted - 12582912.0f;       /* to the nearest integer */
    float r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, x));
    float p = 1.38888889e-3f;                      /* Taylor's: |r| < 0.35 leaves an error below 1e-7 */
    p = fmaf(p, r, 8.33333333e-3f);
    p = fmaf(p, r, 4.16666667e-2f);
    p = fmaf(p, r, 1.66666667e-1f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return p * of_bits((bits_of(shifted) - 0x4b400000u + 127) << 23);
}

INLINE float gated(float gate, float up) { return gate * up / (1.0f + exponential(-gate)); }      /* silu(gate) up */

INLINE size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }
INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

/* Steps that one thread takes in the order of their weights in memory; threads that are done help it. */
typedef struct {
    int64_t next, end;
    char apart[48];                                /* fills a cache line */
} Share;

enum {SHARES = 64};                                /* threads that begin at places of their own */

/* Cuts so many steps into a share for each thread; returns how many there are. */
INLINE int64_t share_out(Share *shares, int64_t threads, int64_t steps) {
    int64_t count = least(threads, SHARES);
    for (int64_t i = 0; i < count; i++)
        shares[i] = (Share){.next = i * steps / count, .end = (i + 1) * steps / count};
    return count;
}

/* The next step of this thread, from share `at` after its own; -1 = none is left in any. */
INLINE int64_t next_step(Share *shares, int64_t count, int64_t thread, int64_t *at) {
    for (; *at < count; ++*at) {
        Share *share = shares + (thread + *at) % count;
        int64_t step = __atomic_fetch_add(&share->next, 1, __ATOMIC_RELAXED);
        if (step < share->end) return step;
    }
    return -1;
}

/* `norm`: y [rows, in] = x over its root mean square, times the weight unless that is NULL; rounded once. */
#define NORM(number, wide_of, stored) \
    void norm(const number *x, const number *weight, int64_t rows, int64_t in, float eps, number *y) { \
        for (int64_t row = 0; row < rows; row++, x += in, y += in) { \
            float scale = inverse_rms(x, in, eps); \
            if (weight) for (int64_t i = 0; i < in; i++) y[i] = stored(wide_of(x[i]) * scale * wide_of(weight[i])); \
            else for (int64_t i = 0; i < in; i++) y[i] = stored(wide_of(x[i]) * scale); \
        } \
    }

#endif
