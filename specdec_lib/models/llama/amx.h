/* Products in the tile registers of AMX, for bfloat16: whether they may be used, their shapes, and sums of tiles.
 *
 * A register takes sixteen words of sixteen outputs as they lie in memory. Sixteen rows take little more time than one. A
 * row's bits do not depend on how many rows a register holds. With -DVECTORS the registers are left alone.
 */
#ifndef AMX_H
#define AMX_H

#include "numbers.h"

enum {REGISTER = 16, SUMS = 4};                    /* rows of a register, and words too; registers that hold sums */

#if defined(__AMX_BF16__) && defined(__linux__) && defined(PAIRED) && !defined(VECTORS)
#define AMX
#include <sys/syscall.h>

extern long syscall(long number, ...);             /* `unistd.h` has it for other standards than C11 */

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

/* Shapes this thread's registers for so many rows: 0 to 3 hold sums, 4 rows, 5 to 7 tiles. */
static void shape_registers(int64_t rows) {
    Shapes shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) shapes.bytes[i] = 4 * LANES, shapes.rows[i] = (uint8_t)(i < 5 ? rows : REGISTER);
    _tile_loadconfig(&shapes);
}

INLINE void free_registers(void) { _tile_release(); }

#define TILE(register, j) _tile_loadd(register, tiles + ((j) * apart + k) * LANES, 4 * LANES)
#define BEGIN(register) if (from) _tile_loadd(register, from + (register), between); else _tile_zero(register)
#define KEEP(register) _tile_stored(register, out + (register), between)

/* Adds to the sums `from`, or to zeros, the products of rows x, of `words` words, with t <= SUMS tiles that lie `apart`
 * vectors apart. Rows of x lie `stride` bytes apart, rows of sums `between`. t is known where this is compiled. */
INLINE void sums_of_tiles(const int t, const word *tiles, int64_t apart, const void *x, int64_t stride, int64_t words,
                          const Lanes *from, Lanes *out, int64_t between) {
    BEGIN(0);
    if (t > 1) { BEGIN(1); }
    if (t > 2) { BEGIN(2); }
    if (t > 3) { BEGIN(3); }
    for (int64_t k = 0; k < words; k += REGISTER) {
        _tile_loadd(4, (const word *)x + k, stride);
        TILE(5, 0); _tile_dpbf16ps(0, 4, 5);
        if (t > 1) { TILE(6, 1); _tile_dpbf16ps(1, 4, 6); }
        if (t > 2) { TILE(7, 2); _tile_dpbf16ps(2, 4, 7); }
        if (t > 3) { TILE(5, 3); _tile_dpbf16ps(3, 4, 5); }
    }
    KEEP(0);
    if (t > 1) KEEP(1);
    if (t > 2) KEEP(2);
    if (t > 3) KEEP(3);
}

#undef TILE
#undef BEGIN
#undef KEEP

/* The same for a t that is known when it runs. */
static void amx_sums(int t, const word *tiles, int64_t apart, const void *x, int64_t stride, int64_t words,
                     const Lanes *from, Lanes *out, int64_t between) {
    __asm__ volatile("" ::: "memory");             /* the compiler does not know what the registers read and write */
    switch (t) {
        case 1: sums_of_tiles(1, tiles, apart, x, stride, words, from, out, between); break;
        case 2: sums_of_tiles(2, tiles, apart, x, stride, words, from, out, between); break;
        case 3: sums_of_tiles(3, tiles, apart, x, stride, words, from, out, between); break;
        default: sums_of_tiles(4, tiles, apart, x, stride, words, from, out, between);
    }
    __asm__ volatile("" ::: "memory");
}
#else                                              /* never used, and not there */
INLINE int amx_is_allowed(void) { return 0; }
INLINE void shape_registers(int64_t rows) { (void)rows; }
INLINE void free_registers(void) {}
INLINE void amx_sums(int t, const word *tiles, int64_t apart, const void *x, int64_t stride, int64_t words,
                     const Lanes *from, Lanes *out, int64_t between) {
    (void)t, (void)tiles, (void)apart, (void)x, (void)stride, (void)words, (void)from, (void)out, (void)between;
}
#endif
#endif
