/* A tree that grows level by level by the drafter's confidence: which nodes a level has and which of them go on.
 *
 * Source: Li et al. 2024 (EAGLE-2). The same as `grow_candidates` of `what/eagle2.py`, number by number. Depends on the
 * statistics of rows alone.
 */
#ifndef EAGLE_TREE_H
#define EAGLE_TREE_H

#include "head_rows.h"

/* A candidate, in doubles for its reader. */
typedef struct {
    double token, parent;                          /* parent: its index among the candidates, or -1 */
    double score;                                  /* log-probability of its path */
    double prob, first, second, entropy;           /* of its token; of the row that it was read from */
} Node;

typedef struct {
    int64_t depth, width, size, k;                 /* levels; children of a node and nodes of a level that go on; nodes of
                                                    * the final tree; tokens that a row's statistics hold */
    double least;                                  /* no level below a path that is less probable */
    double sharpness;                              /* of the probabilities, see `token_logp` */
    int64_t ends;
    const int64_t *end;                            /* [ends] tokens without children */
    Node *nodes;                                   /* room for width + (depth - 1) width^2 */
    int64_t *fed;                                  /* the candidates whose rows are computed: room for (depth - 1) width */
    int64_t found, count, levels;                  /* candidates; of `fed`; groups of rows that were computed */
} Tree;

/* The log-sum-exp of a row's first k logits times the sharpness; of all its logits where that is 1. */
static double sum_of(const Tree *tree, const double *stats) {
    if (tree->sharpness == 1) return stats[2 * tree->k];
    double sum = 0;
    for (int64_t j = 0; j < tree->k; j++) sum += exp(tree->sharpness * (stats[j] - stats[0]));
    return tree->sharpness * stats[0] + log(sum);
}

/* The sharpened log-probability of the j-th token; at most 0, since rounding must not raise a child above its parent. */
static double token_logp(const Tree *tree, const double *stats, int64_t j, double sum) {
    double logp = tree->sharpness * stats[j] - sum;
    return logp > 0 ? 0 : logp;
}

/* Appends the best children of these parents, best first; `stats` [count, 2k + 2] are of the rows after the parents. */
static void expand(Tree *tree, const int64_t *parents, int64_t count, const double *stats) {
    int64_t first = tree->found;
    for (int64_t i = 0; i < count; i++, stats += 2 * tree->k + 2) {
        const double *ids = stats + tree->k, lse = stats[2 * tree->k], entropy = stats[2 * tree->k + 1];
        double above = parents[i] < 0 ? 0 : tree->nodes[parents[i]].score, sum = sum_of(tree, stats), best[2];
        for (int j = 0; j < 2; j++) best[j] = exp(stats[j] - lse > 0 ? 0 : stats[j] - lse);
        for (int64_t j = 0; j < tree->width; j++) {
            double own = token_logp(tree, stats, j, sum);
            Node node = {ids[j], (double)parents[i], above + own, exp(own), best[0], best[1], entropy < 0 ? 0 : entropy};
            int64_t at = tree->found++;
            for (; at > first && tree->nodes[at - 1].score < node.score; at--) tree->nodes[at] = tree->nodes[at - 1];
            tree->nodes[at] = node;
        }
    }
}

/* The probability of the path to this candidate, multiplied from the root on. */
static double path_chance(const Tree *tree, int64_t node) {
    int64_t parent = (int64_t)tree->nodes[node].parent;
    return (parent < 0 ? 1 : path_chance(tree, parent)) * tree->nodes[node].prob;
}

/* Whether this candidate may have a child in the final tree: fewer than size - 1 rank before it, and it ends nothing. */
static int goes_on(const Tree *tree, int64_t node) {
    int64_t before = 0;
    double score = tree->nodes[node].score;
    for (int64_t i = 0; i < tree->ends; i++) if (tree->nodes[node].token == (double)tree->end[i]) return 0;
    for (int64_t i = 0; i < tree->found; i++)
        before += tree->nodes[i].score > score || (i < node && tree->nodes[i].score == score);
    return before < tree->size - 1;
}

/* The candidates from `first` on that get children: the best `width` of those that may; returns how many. */
static int64_t next_frontier(const Tree *tree, int64_t first, int64_t *frontier) {
    int64_t count = 0;
    for (int64_t node = first; node < tree->found && count < tree->width; node++)
        if (goes_on(tree, node)) frontier[count++] = node;
    return count;
}
#endif
