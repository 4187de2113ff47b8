/* The numbers that layers and attention compute with: bfloat16, or with -DSINGLE single precision; two or one in a word. */
#ifndef NUMBERS_H
#define NUMBERS_H

#include "lanes.h"

#ifdef SINGLE
typedef float number;
enum {PACKED = 1};                                 /* numbers in a word of 32 bits */

INLINE Lanes dot(Lanes sum, Words a, Words b) { return product_plus(as_lanes(a), as_lanes(b), sum); }
INLINE Lanes widened(const number *x) { return load(x); }
INLINE void store(number *out, Lanes x) { save(out, x); }
#else
typedef uint16_t number;                           /* the upper half of a float */
enum {PACKED = 2};

INLINE Lanes dot(Lanes sum, Words a, Words b) {
#if defined(__AVX512BF16__) && HELD == 32
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
#else
    return product_plus(upper(a), upper(b), product_plus(lower(a), lower(b), sum));
#endif
}

INLINE Lanes widened(const number *x) { return load_halves(x); }
INLINE void store(number *out, Lanes x) { save_halves(out, to_halves(x)); }
#endif
#endif
