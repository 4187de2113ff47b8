/* The compiled functions that other C code calls by address. */
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#include <stdint.h>

/* Of `dense_linear.c` and `four_bit.c`; 1 = no memory. */
typedef int (*Multiply)(const void *matrix, const void *x, int64_t rows, float eps, void *y, const void *threads);
typedef int (*Finish)(const void *out, const void *gate_up, const void *down, const void *x, const void *attended,
                      int64_t rows, float eps, void *y, const void *threads);
typedef void (*Norm)(const void *x, const void *weight, int64_t rows, int64_t in, float eps, void *y);

/* Of `path_attention.c`; 1 = no memory. */
typedef int (*Attend)(const void *rows, void *qkv, void *keys, void *values, int64_t stride, void *out);

/* Of `row_stats.c`. */
typedef void (*Stats)(const void *logits, int64_t rows, int64_t columns, int64_t stride, const int64_t *ids, int64_t k,
                      double *out, const void *threads);

#endif
