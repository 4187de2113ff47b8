/* Several decoder layers in one call. Their products and their attention are compiled apart (`dense_linear.c` or
 * `four_bit.c`, `path_attention.c`) and called by address, so that nothing but C runs between two layers.
 */
#include "functions.h"

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

/* x goes through the layers by way of y: layers write to y, to x, to y and so on; 1 = no memory. */
int through(const Code *code, const Layer *layers, int64_t count, const Rows *rows, void *x, void *y) {
    for (int64_t i = 0; i < count; i++) {
        const Layer *layer = layers + i;
        void *from = i % 2 ? y : x, *to = i % 2 ? x : y;
        int64_t at = i * rows->next;
        if (code->multiply(layer->qkv, from, rows->count, code->eps, rows->qkv, code->threads)
            || rows->attend(rows->about, rows->qkv, rows->keys + at, rows->values + at, rows->stride, rows->attended)
            || code->finish(layer->out, layer->gate_up, layer->down, from, rows->attended, rows->count, code->eps, to,
                            code->threads)) return 1;
    }
    return 0;
}
