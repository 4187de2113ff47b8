/* The rows of an EAGLE head: features, the layer, output rows and their statistics, without Python in between.
 *
 * Products, attention, norms and statistics are compiled apart and called by address. Row t of a committed token reads
 * the target's hidden states; a node's row reads the output of its parent's row. All numbers are of one kind, `size`
 * bytes each.
 */
#include "eagle_tree.h"
#include "head_rows.h"

/* What is the same in all decodes. */
typedef struct {
    Product features, qkv;                         /* states -> feature; token and feature -> qkv */
    Finish finish;
    const void *out, *gate_up, *down;              /* matrices of the layer's second half */
    Norm norm;
    Attend attend;
    Stats stats;
    const char *weight, *embedding;                /* of the norm before the logits [hidden]; [tokens, hidden] */
    int64_t hidden, levels, attended, angles, size;        /* numbers of a row; tapped layers; bytes of a number */
    float eps;
} Network;

/* What one decode holds. */
typedef struct {
    const Network *network;
    const Threads *threads;
    Rows rows;                                     /* heads, threads and pool; the rest is filled in here */
    char *outputs, *keys, *values;                 /* [capacity, hidden]; the cache */
    int64_t stride;                                /* numbers between key heads */
    const float *cosines, *sines;                  /* [capacity, angles], by position */
    Vocabulary vocabulary;
    const int64_t *ids;                            /* the token of each column of logits */
} Head;

/* Rows `first` to `first + count` of the cache, all of committed tokens or all nodes. */
typedef struct {
    int64_t first, count, context;
    const int64_t *tokens, *positions;
    const char *states;                            /* of committed tokens [count, levels, hidden]; NULL for nodes */
    const int64_t *parents;                        /* of nodes: the row whose output each reads */
    const int32_t *ends, *nodes;                   /* as in `Rows` */
} Group;

/* Computes the rows into the cache, and the outputs of nodes. Of committed rows only the last one's is ever read: the
 * others go no further than their keys and values. 1 = no memory. */
int run_rows(const Head *head, const Group *group) {
    const Network *net = head->network;
    int64_t n = group->count, row = net->hidden * net->size, angles = n * net->angles * (int64_t)sizeof(float);
    int64_t read = group->states ? 1 : n, before = n - read;
    int64_t sizes[] = {n * net->levels * row, n * row, 2 * n * row, n * net->qkv.out * net->size,
                       n * net->attended * net->size, angles, angles};
    size_t all = 0;
    for (int i = 0; i < 7; i++) all += whole_lines((size_t)sizes[i]);
    char *memory = aligned_alloc(64, all), *at = memory;
    if (!memory) return 1;
    char *states = take(&at, sizes[0]), *g = take(&at, sizes[1]), *both = take(&at, sizes[2]);
    char *qkv = take(&at, sizes[3]), *attended = take(&at, sizes[4]);
    float *cosines = (float *)take(&at, angles), *sines = (float *)take(&at, angles);
    int failed = 0;
    if (group->states) {
        net->norm(group->states, NULL, n * net->levels, net->hidden, net->eps, states);
        failed = net->features.multiply(net->features.matrix, states, n, -1, g, head->threads);
    } else
        for (int64_t i = 0; i < n; i++) memcpy(g + i * row, head->outputs + group->parents[i] * row, (size_t)row);
    for (int64_t i = 0; i < n; i++) {
        size_t bytes = (size_t)net->angles * sizeof(float);
        net->norm(net->embedding + group->tokens[i] * row, NULL, 1, net->hidden, net->eps, both + 2 * i * row);
        net->norm(g + i * row, NULL, 1, net->hidden, net->eps, both + (2 * i + 1) * row);
        memcpy(cosines + i * net->angles, head->cosines + group->positions[i] * net->angles, bytes);
        memcpy(sines + i * net->angles, head->sines + group->positions[i] * net->angles, bytes);
    }
    Rows rows = head->rows;
    rows.rows = n, rows.first = group->first, rows.context = group->context, rows.ends = group->ends;
    rows.nodes = group->nodes, rows.cosines = cosines, rows.sines = sines;
    failed = failed || net->qkv.multiply(net->qkv.matrix, both, n, -1, qkv, head->threads)
        || net->attend(&rows, qkv, head->keys, head->values, head->stride, attended)
        || net->finish(net->out, net->gate_up, net->down, g + before * row,
                       attended + before * net->attended * net->size, read, net->eps,
                       head->outputs + (group->first + before) * row, head->threads);
    free(memory);
    return failed;
}

/* Logits [count, trained and added] after the rows from `first` on, and their statistics; 1 = no memory. */
int score_rows(const Head *head, int64_t first, int64_t count, int64_t k, char *logits, double *stats) {
    const Network *net = head->network;
    int64_t columns = columns_of(&head->vocabulary);
    char *read = aligned_alloc(64, whole_lines((size_t)(count * net->hidden * net->size)));
    if (!read) return 1;
    net->norm(head->outputs + first * net->hidden * net->size, net->weight, count, net->hidden, net->eps, read);
    int failed = joined_logits(&head->vocabulary, read, count, logits, head->threads);
    free(read);
    if (!failed) net->stats(logits, count, columns, columns, head->ids, k, stats, head->threads);
    return failed;
}

/* The greedy chain of `count` tokens after `row`, the last one computed: the logits [count, columns] that each is read
 * from, and their statistics. The rows of its tokens lie behind `row`; 1 = no memory. */
int run_chain(const Head *head, int64_t row, int64_t count, int64_t k, char *logits, double *stats) {
    size_t bytes = (size_t)(columns_of(&head->vocabulary) * head->network->size);
    for (int64_t i = 0; i < count; i++, row++) {
        double *own = stats + i * (2 * k + 2);
        if (score_rows(head, row, 1, k, logits + (size_t)i * bytes, own)) return 1;
        int64_t token = (int64_t)own[k], next = row + 1;
        Group group = {.first = next, .count = 1, .context = next + 1, .tokens = &token, .positions = &next,
                       .parents = &row};
        if (i + 1 < count && run_rows(head, &group)) return 1;
    }
    return 0;
}

/* Memory of a growing tree. */
typedef struct {
    char *logits;                                  /* [width, columns] */
    double *stats;                                 /* [width, 2k + 2] */
    int64_t *frontier, *tokens, *positions, *parents;      /* [width] */
    int64_t *places;                               /* [candidates] which row of `fed` a candidate is */
    int64_t *path;                                 /* [depth] */
    int32_t *ends, *paths;                         /* as `ends` and `nodes` of `Rows`, for all of `fed` */
} Growing;

/* Computes the rows of these candidates, the next level of `fed`, which begin at row `first`. */
static int run_level(const Head *head, Tree *tree, Growing *now, int64_t context, int64_t count, int *chain) {
    int64_t before = tree->count, first = context + before;
    for (int64_t i = 0; i < count; i++) {
        int64_t node = now->frontier[i], parent = (int64_t)tree->nodes[node].parent, place = tree->count++;
        int64_t above = parent < 0 ? -1 : now->places[parent];
        int32_t *end = now->ends + place, *to = now->paths + *end;
        int32_t length = above < 0 ? 0 : now->ends[above + 1] - now->ends[above];
        if (length) memcpy(to, now->paths + now->ends[above], (size_t)length * sizeof(int32_t));
        to[length] = (int32_t)place, end[1] = *end + length + 1;
        now->tokens[i] = (int64_t)tree->nodes[node].token, now->positions[i] = context + length;
        now->parents[i] = context + above, tree->fed[place] = node, now->places[node] = place;
        *chain = *chain && above == place - 1;
    }
    tree->levels++;
    Group group = {.first = first, .count = count, .context = context, .tokens = now->tokens,
                   .positions = now->positions, .parents = now->parents};
    if (!*chain) group.ends = now->ends, group.nodes = now->paths;
    return run_rows(head, &group);
}

/* Grows the tree behind the `context` rows that are computed, whose last one proposes the first level: candidates into
 * `nodes`, rows of those that were asked into the cache; 1 = no memory. */
int run_tree(const Head *head, int64_t context, Tree *tree) {
    int64_t width = tree->width, most = width * (tree->depth - 1), columns = columns_of(&head->vocabulary);
    size_t sizes[] = {(size_t)(width * columns * head->network->size), (size_t)(width * (2 * tree->k + 2)) * 8,
                      (size_t)width * 8, (size_t)width * 8, (size_t)width * 8, (size_t)width * 8,
                      (size_t)(width + most * width) * 8, (size_t)tree->depth * 8, (size_t)(most + 1) * 4,
                      (size_t)(most * tree->depth) * 4};
    size_t all = 0;
    for (int i = 0; i < 10; i++) all += whole_lines(sizes[i]);
    char *memory = aligned_alloc(64, all), *at = memory;
    if (!memory) return 1;
    void *parts[10];
    for (int i = 0; i < 10; i++) parts[i] = take(&at, (int64_t)sizes[i]);
    Growing now = {parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6], parts[7], parts[8], parts[9]};
    int64_t count = 1, row = context - 1;
    int failed = 0, chain = 1;
    now.frontier[0] = -1, now.ends[0] = 0;
    tree->found = tree->count = tree->levels = 0;
    for (int64_t level = 0; level < tree->depth && count && !failed; level++) {
        int64_t first = tree->found;
        failed = score_rows(head, row, count, tree->k, now.logits, now.stats);
        if (failed) break;
        expand(tree, now.frontier, count, now.stats, now.path);
        if (level + 1 == tree->depth || path_chance(tree, first) < tree->least) break;
        count = next_frontier(tree, first, now.frontier), row = context + tree->count;
        failed = count && run_level(head, tree, &now, context, count, &chain);
    }
    free(memory);
    return failed;
}
