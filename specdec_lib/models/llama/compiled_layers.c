/* Several decoder layers in one call. Their products and their attention are compiled apart (`dense_linear.c` or
 * `four_bit.c`, `path_attention.c`) and called by address, so that nothing but C runs between two layers.
 */
#include "functions.h"
#include <string.h>

typedef struct {
    Multiply multiply;
    Finish finish;
    const void *threads;
    float eps;
} Code;

typedef struct {
    const void *qkv, *out, *gate_up, *down;
} Layer;

typedef struct {
    Attend attend;
    const void *about;                             /* `Rows` of the attention */
    int64_t count, stride, next;                   /* rows; numbers between heads; bytes between layers of the cache */
    char *keys, *values;                           /* of the first layer */
    void *qkv, *attended;                          /* memory for one layer */
} Rows;

/* Where outputs of some layers are kept: each row's lie side by side, in the order of `levels`. */
typedef struct {
    int64_t count;
    const int64_t *levels;                         /* the output of the layer before this one is kept */
    char *to;                                      /* of the first row */
    int64_t size, apart;                           /* bytes of an output, and from row to row */
} Taps;

/* Keeps y [rows], which the layers before `level` made, where it is tapped. */
static void keep(const Taps *taps, int64_t level, const char *y, int64_t rows) {
    for (int64_t place = 0; place < taps->count; place++)
        if (taps->levels[place] == level)
            for (int64_t row = 0; row < rows; row++)
                memcpy(taps->to + row * taps->apart + place * taps->size, y + row * taps->size, (size_t)taps->size);
}

/* x goes through `count` layers from layer `first` on, by way of y: they write to y, to x, to y and so on. Keeps taps
 * unless they are NULL; 1 = no memory. */
int through(const Code *code, const Layer *layers, int64_t first, int64_t count, const Rows *rows, const Taps *taps,
            void *x, void *y) {
    for (int64_t i = 0; i < count; i++) {
        const Layer *layer = layers + first + i;
        void *from = i % 2 ? y : x, *to = i % 2 ? x : y;
        int64_t at = i * rows->next;
        if (code->multiply(layer->qkv, from, rows->count, code->eps, rows->qkv, code->threads)
            || rows->attend(rows->about, rows->qkv, rows->keys + at, rows->values + at, rows->stride, rows->attended)
            || code->finish(layer->out, layer->gate_up, layer->down, from, rows->attended, rows->count, code->eps, to,
                            code->threads)) return 1;
        if (taps) keep(taps, first + i + 1, to, rows->count);
    }
    return 0;
}
