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

/* Where outputs of some layers are kept: each row's lie side by side, in the order of `levels`. */
typedef struct {
    int64_t count;
    const int64_t *levels;                         /* the output of the layer before this one is kept */
    char *to;                                      /* of the first row */
    int64_t size, apart;                           /* bytes of an output, and from row to row */
} Taps;

/* Rows of one sequence, which attend over a cache of their own; those of several lie one behind the other. */
typedef struct {
    Attend attend;
    const void *about;                             /* `Rows` of the attention */
    int64_t count, stride, next;                   /* rows; numbers between heads; bytes between layers of the cache */
    char *keys, *values;                           /* of the first layer */
    void *qkv, *attended;                          /* memory for one layer, where these rows begin */
    int64_t begin;                                 /* bytes of x before these rows */
    const Taps *taps;                              /* NULL = none */
} Rows;

/* Keeps y [rows], which the layers before `level` made, where it is tapped. */
static void keep(const Taps *taps, int64_t level, const char *y, int64_t rows) {
    for (int64_t place = 0; place < taps->count; place++)
        if (taps->levels[place] == level)
            for (int64_t row = 0; row < rows; row++)
                memcpy(taps->to + row * taps->apart + place * taps->size, y + row * taps->size, (size_t)taps->size);
}

/* x [all] goes through `count` layers from layer `first` on, by way of y: they write to y, to x, to y and so on. Its
 * rows are those of so many sequences: `qkv` and `attended` of the first one hold the rows of all. 1 = no memory. */
int through(const Code *code, const Layer *layers, int64_t first, int64_t count, const Rows *rows, int64_t sequences,
            int64_t all, void *x, void *y) {
    for (int64_t i = 0; i < count; i++) {
        const Layer *layer = layers + first + i;
        void *from = i % 2 ? y : x, *to = i % 2 ? x : y;
        if (code->multiply(layer->qkv, from, all, code->eps, rows->qkv, code->threads)) return 1;
        for (const Rows *own = rows; own < rows + sequences; own++) {
            int64_t at = i * own->next;
            if (own->attend(own->about, own->qkv, own->keys + at, own->values + at, own->stride, own->attended))
                return 1;
        }
        if (code->finish(layer->out, layer->gate_up, layer->down, from, rows->attended, all, code->eps, to,
                         code->threads)) return 1;
        for (const Rows *own = rows; own < rows + sequences; own++)
            if (own->taps) keep(own->taps, first + i + 1, (char *)to + own->begin, own->count);
    }
    return 0;
}
