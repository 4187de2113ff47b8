/* What drafters in C share: their products, the layer behind a product of their own, and logits over a draft vocabulary. */
#ifndef HEAD_ROWS_H
#define HEAD_ROWS_H

#include "../models/llama/functions.h"
#include "../models/llama/path_rows.h"

typedef struct {
    Multiply multiply;
    const void *matrix;                            /* NULL: there is none */
    int64_t out;                                   /* numbers of a row of the product, with padding */
} Product;

/* What reads outputs: the rows of the tokens that a drafter was trained for, and those of the text's own tokens. */
typedef struct {
    Product trained, text;
    int64_t added, size;                           /* the text's own tokens, without padding; bytes of a number */
} Vocabulary;

INLINE int64_t columns_of(const Vocabulary *vocabulary) { return vocabulary->trained.out + vocabulary->added; }

/* The next so many bytes of a memory. */
INLINE char *take(char **memory, int64_t bytes) {
    char *own = *memory;
    *memory += whole_lines((size_t)bytes);
    return own;
}

/* Logits [count, trained and added] of what was read of these outputs; 1 = no memory. */
static int joined_logits(const Vocabulary *vocabulary, const char *read, int64_t count, char *logits,
                         const Threads *threads) {
    int64_t trained = vocabulary->trained.out, columns = columns_of(vocabulary);
    int64_t text = vocabulary->text.matrix ? vocabulary->text.out : 0;
    size_t size = (size_t)vocabulary->size, apart = text ? whole_lines((size_t)(count * trained) * size) : 0;
    char *memory = text ? aligned_alloc(64, apart + whole_lines((size_t)(count * text) * size)) : NULL;
    if (text && !memory) return 1;
    char *known = text ? memory : logits, *added = memory + apart;
    int failed = vocabulary->trained.multiply(vocabulary->trained.matrix, read, count, -1, known, threads)
        || (text && vocabulary->text.multiply(vocabulary->text.matrix, read, count, -1, added, threads));
    for (int64_t i = 0; text && i < count; i++) {
        char *to = logits + (size_t)(i * columns) * size;
        memcpy(to, known + (size_t)(i * trained) * size, (size_t)trained * size);
        memcpy(to + (size_t)trained * size, added + (size_t)(i * text) * size, (size_t)vocabulary->added * size);
    }
    free(memory);
    return failed;
}
#endif
