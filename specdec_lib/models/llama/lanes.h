/* Sixteen numbers in single precision, or sixteen words of 32 bits, computed together: in one register with AVX-512,
 * in two with AVX2, in four with NEON on ARM.
 *
 * All give a lane the same bits: each operation rounds once, and `total` adds halves, then quarters, and so on. HELD
 * values of type Lanes fit into the registers.
 */
#ifndef LANES_H
#define LANES_H

#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
typedef uint32_t word __attribute__((may_alias));
enum {LANES = 16};

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define HELD 32
#include "lanes_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#define HELD 8
#include "lanes_avx2.h"
#elif defined(__aarch64__)
#define HELD 8
#include "lanes_neon.h"
#else
#error "this processor has neither AVX-512 nor AVX2 nor NEON"
#endif
#endif
