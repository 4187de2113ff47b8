/* The numbers that layers and attention compute with: bfloat16, or with -DSINGLE single precision; two or one in a word.
 *
 * Products take words of factors. In bfloat16 a word holds two of them where the processor multiplies pairs; elsewhere
 * numbers are widened before they are multiplied, one in a word, and the second product is added after the first.
 */
#ifndef NUMBERS_H
#define NUMBERS_H

#include "lanes.h"
#include "linear.h"

#ifdef SINGLE
typedef float number;
enum {PACKED = 1};                                 /* numbers in a word of 32 bits */

INLINE Lanes widened(const number *x) { return load(x); }
INLINE void store(number *out, Lanes x) { save(out, x); }
INLINE float wide_of(number x) { return x; }
INLINE number stored(float x) { return x; }
#else
typedef uint16_t number;                           /* the upper half of a float */
enum {PACKED = 2};

INLINE Lanes widened(const number *x) { return load_halves(x); }
INLINE void store(number *out, Lanes x) { save_halves(out, to_halves(x)); }
INLINE float wide_of(number x) { return single_of(x); }
INLINE number stored(float x) { return rounded(x); }
#endif

#if !defined(SINGLE) && defined(__AVX512BF16__) && HELD == 32
#define PAIRED
typedef number factor;
enum {JOINED = 2};                                 /* factors in a word */

INLINE Lanes dot(Lanes sum, Words a, Words b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }
#else
#ifndef SINGLE
#define EMULATED
#endif
typedef float factor;
enum {JOINED = 1};

INLINE Lanes dot(Lanes sum, Words a, Words b) { return product_plus(as_lanes(a), as_lanes(b), sum); }
#endif
#endif
