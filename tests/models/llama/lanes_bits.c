/* Prints the bits of what every function of `lanes.h` makes of the same numbers, a line for each function and turn. */
#include "lanes.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static uint32_t state = 1;

static uint32_t bits(void) { return state = state * 1664525u + 1013904223u, state >> 8 ^ state << 8; }

static float in_range(float from, float to) { return from + (to - from) * (float)(bits() >> 8) / 16777216.0f; }

static float special(int i) {
    const float some[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-42f, 0.5f, 1.5f, 2.5f, 3e38f, -1.0039062f};
    return some[i % (int)(sizeof some / sizeof *some)];
}

static void print(const char *name, const void *from, int count) {
    uint32_t found[LANES];
    memcpy(found, from, (size_t)count * sizeof *found);
    printf("%s", name);
    for (int i = 0; i < count; i++) {
        float x;
        memcpy(&x, found + i, sizeof x);
        printf(" %08x", x != x ? 0x7fc00000u : found[i]);       /* any number that is none */
    }
    printf("\n");
}

static void print_lanes(const char *name, Lanes x) { float out[LANES]; save(out, x); print(name, out, LANES); }
static void print_one(const char *name, float x) { print(name, &x, 1); }

static void numbers(int turn) {
    float a[LANES], b[LANES], c[LANES], small[LANES], power[LANES];
    for (int i = 0; i < LANES; i++) {
        a[i] = turn ? in_range(-2, 2) * (float)pow(2, i - 8) : special(i);
        b[i] = turn ? in_range(-2, 2) : special(i + turn + 5);
        c[i] = in_range(-1, 1), small[i] = in_range(0.71f, 1.49f), power[i] = (float)-(int)(bits() % 170);
    }
    Lanes x = load(a), y = load(b), z = load(c);
    print_lanes("plus", plus(x, y)), print_lanes("minus", minus(x, y)), print_lanes("times", times(x, y));
    print_lanes("product_plus", product_plus(x, y, z)), print_lanes("minus_product", minus_product(x, y, z));
    print_lanes("nearest", nearest(x)), print_lanes("times_power", times_power(load(small), load(power)));
    print_lanes("all", all(b[0])), print_lanes("zeros", zeros());
    for (int n = 0; n <= LANES + 1; n += 3) print_lanes("first", first(n, y)), print_lanes("greater", greater(n, z, y));
    print_one("greatest", greatest(turn ? y : z)), print_one("total", total(turn ? y : z));
}

static void words(void) {
    uint16_t in[4 * LANES], out[4 * LANES];
    word rows[LANES * 2 * LANES];
    for (int i = 0; i < 4 * LANES; i++) in[i] = (uint16_t)bits();
    for (int i = 0; i < LANES * 2 * LANES; i++) rows[i] = bits() & 0x7f7fffffu;
    Words x = load_words(in), y = load_words(in + 2 * LANES), low = pairs_low(x, y), high = pairs_high(x, y);
    print_lanes("lower", lower(x)), print_lanes("upper", upper(x)), print_lanes("halves", load_halves(in));
    print_lanes("low", lower(low)), print_lanes("high", upper(high)), print_lanes("words", as_lanes(all_words(rows[1])));
    save_halves(out, to_halves(as_lanes(load_words(rows)))), print("to_halves", out, LANES / 2);
    save_both(out, to_halves(lower(low)), to_halves(lower(high))), print("save_both", out, LANES);
    Words turned[2 * LANES];
    transpose(rows, 2 * LANES, 13, turned);
    for (int i = 0; i < 2 * LANES; i++) print_lanes("transpose", as_lanes(turned[i]));
}

int main(void) {
    for (int turn = 0; turn < 40; turn++) numbers(turn), words();
    return 0;
}
