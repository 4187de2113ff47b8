/* Sums of a block of rows with a few tiles of weights, in the tile registers of AMX, for bfloat16.
 *
 * A register takes sixteen words of sixteen outputs as they lie in memory. A block of sixteen rows takes little more time
 * than one row, that of reading the weights. A row's bits do not depend on how many rows its register holds. With
 * -DVECTORS the registers are left alone.
 */
#ifndef DENSE_AMX_H
#define DENSE_AMX_H

#include "dense_vectors.h"

#if defined(__AMX_BF16__) && defined(__linux__) && HELD == 32 && !defined(SINGLE) && !defined(VECTORS)
#include <sys/syscall.h>

extern long syscall(long number, ...);             /* `unistd.h` has it for other standards than C11 */

enum {AMX_ROWS = 16, AMX_CHUNK = 128};             /* of a register, and words too; that go through a layer together */
enum {ASK = 0x1023, TILE_DATA = 18};               /* Linux: ARCH_REQ_XCOMP_PERM, and the state that is asked for */

/* What LDTILECFG reads. */
typedef struct {
    uint8_t palette, start, none[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} Shapes;

/* Whether the system lets this process use the registers; asked once. */
static int amx_is_allowed(void) {
    static int known;                              /* 1 = yes, -1 = no; threads that ask at once get the same answer */
    int found = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!found) {
        found = syscall(SYS_arch_prctl, ASK, TILE_DATA) ? -1 : 1;
        __atomic_store_n(&known, found, __ATOMIC_RELAXED);
    }
    return found > 0;
}

/* Shapes this thread's registers for so many rows: 0 to 3 hold sums, 4 rows, 5 to 7 weights. */
static void shape_registers(int64_t rows) {
    Shapes shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) shapes.bytes[i] = 4 * LANES, shapes.rows[i] = (uint8_t)(i < 5 ? rows : AMX_ROWS);
    _tile_loadconfig(&shapes);
}

INLINE void free_registers(void) { _tile_release(); }

#define WEIGHTS(register, j) _tile_loadd(register, weights + ((j) * words + k) * LANES, 4 * LANES)
#define KEEP(register) _tile_stored(register, &out[0][register], WIDE * sizeof(Lanes))

/* The sums [rows][WIDE] of t <= 4 tiles that lie `words` vectors apart; t is known where this is compiled. */
INLINE void sums_in_registers(const int t, const word *weights, const word *x, int64_t words, Lanes (*out)[WIDE]) {
    _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
    for (int64_t k = 0; k < words; k += AMX_ROWS) {
        _tile_loadd(4, x + k, words * sizeof(word));
        WEIGHTS(5, 0); _tile_dpbf16ps(0, 4, 5);
        if (t > 1) { WEIGHTS(6, 1); _tile_dpbf16ps(1, 4, 6); }
        if (t > 2) { WEIGHTS(7, 2); _tile_dpbf16ps(2, 4, 7); }
        if (t > 3) { WEIGHTS(5, 3); _tile_dpbf16ps(3, 4, 5); }
    }
    KEEP(0);
    if (t > 1) KEEP(1);
    if (t > 2) KEEP(2);
    if (t > 3) KEEP(3);
}

/* The sums of t tiles, in registers that are shaped for the rows. */
static void amx_sums(int t, const word *weights, const word *x, int64_t words, Lanes (*out)[WIDE]) {
    __asm__ volatile("" ::: "memory");             /* the compiler does not know what the registers read and write */
    switch (t) {
        case 1: sums_in_registers(1, weights, x, words, out); break;
        case 2: sums_in_registers(2, weights, x, words, out); break;
        case 3: sums_in_registers(3, weights, x, words, out); break;
        default: sums_in_registers(4, weights, x, words, out);
    }
    __asm__ volatile("" ::: "memory");
}

#undef WEIGHTS
#undef KEEP
#else
enum {AMX_ROWS = MOST, AMX_CHUNK = 0};
INLINE int amx_is_allowed(void) { return 0; }
INLINE void shape_registers(int64_t rows) { (void)rows; }
INLINE void free_registers(void) {}
INLINE void amx_sums(int t, const word *weights, const word *x, int64_t words, Lanes (*out)[WIDE]) {
    BLOCKS[0][t - 1](weights, x, words, out);
}
#endif
#endif
