/* The rows of one forward, as attention reads them (`path_attention.c`). */
#ifndef PATH_ROWS_H
#define PATH_ROWS_H

#include "linear.h"

/* What is the same for all layers. Rows `first` to `first + rows` of the cache are fed; those from `context` on are
 * nodes, and node i sees, besides the context, nodes[ends[i] .. ends[i + 1]], which rise: the path that ends with it, or
 * all nodes, then fed at once. Without `ends` a row sees all before. */
typedef struct {
    int64_t rows, first, context, heads, kv_heads, threads;
    const int32_t *ends, *nodes;
    const float *cosines, *sines;                  /* [rows, HEAD]; sines with the sign of the rotation */
    Parallel parallel;                             /* GOMP_parallel of torch's own thread pool */
} Rows;

#endif
