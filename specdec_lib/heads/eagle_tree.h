/* A tree that grows level by level by the drafter's confidence: which nodes a level has and which of them go on.
 *
 * Source: Li et al. 2024 (EAGLE-2). The same as `grow_candidates` of `what/eagle2.py`, number by number. Depends on the
 * statistics of rows alone.
 */
#ifndef EAGLE_TREE_H
#define EAGLE_TREE_H

#include "head_rows.h"
#include "text_counts.h"

enum { MOST = 32 };                                /* tokens that a row's statistics may hold: `WIDEST` of eagle_rows.py */

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
    double sharpness;                              /* of the probabilities, see `log_chances` */
    const TextCounts *counts;                      /* of the text, which raise the scores of tokens; NULL = none */
    int64_t ends, ranks;
    const int64_t *end;                            /* [ends] tokens without children */
    const double *worth;                           /* [ranks] what the probability of a path must be, by rank */
    Node *nodes;                                   /* room for width + (depth - 1) width^2 */
    int64_t *fed;                                  /* the candidates whose rows are computed: room for (depth - 1) width */
    int64_t found, count, levels;                  /* candidates; of `fed`; groups of rows that were computed */
} Tree;

/* The tokens of the path to this candidate, -1 = the root, into `path`; returns how many. */
static int64_t path_to(const Tree *tree, int64_t node, int64_t *path) {
    if (node < 0) return 0;
    int64_t depth = path_to(tree, (int64_t)tree->nodes[node].parent, path);
    path[depth] = (int64_t)tree->nodes[node].token;
    return depth + 1;
}

/* The log-probabilities of a row's first k tokens after this path, as `log_chances` of `what/eagle2.py`: sharpened and
 * with counts, over these alone; else over all. At most 0, since rounding must not raise a child above its parent. */
static void log_chances(const Tree *tree, const double *stats, const int64_t *path, int64_t depth, double *logp) {
    int64_t k = tree->k, counted = tree->counts && tree->counts->weight > 0;
    double best = -INFINITY, sum = 0, total = stats[2 * k];
    if (counted) counted_chances(tree->counts, path, depth, stats + k, k, logp);
    for (int64_t j = 0; j < k; j++) {
        logp[j] = tree->sharpness * stats[j] + (counted ? tree->counts->weight * logp[j] : 0);
        if (logp[j] > best) best = logp[j];
    }
    if (counted || tree->sharpness != 1) {
        for (int64_t j = 0; j < k; j++) sum += exp(logp[j] - best);
        total = best + log(sum);
    }
    for (int64_t j = 0; j < k; j++) logp[j] = logp[j] - total > 0 ? 0 : logp[j] - total;
}

/* The columns of the best `count` of k log-probabilities, best first, the earlier one first among equals. */
static void best_columns(const double *logp, int64_t k, int64_t count, int64_t *columns) {
    for (int64_t j = 0; j < k; j++) {
        int64_t at = j < count ? j : count;
        for (; at > 0 && logp[columns[at - 1]] < logp[j]; at--) if (at < count) columns[at] = columns[at - 1];
        if (at < count) columns[at] = j;
    }
}

/* Appends the best children of these parents, best first; `stats` [count, 2k + 2] are of the rows after the parents.
 * `path` has room for a path. */
static void expand(Tree *tree, const int64_t *parents, int64_t count, const double *stats, int64_t *path) {
    int64_t first = tree->found, k = tree->k, columns[MOST];
    double logp[MOST];
    for (int64_t i = 0; i < count; i++, stats += 2 * k + 2) {
        const double *ids = stats + k, lse = stats[2 * k], entropy = stats[2 * k + 1];
        double above = parents[i] < 0 ? 0 : tree->nodes[parents[i]].score, best[2];
        for (int j = 0; j < 2; j++) best[j] = exp(stats[j] - lse > 0 ? 0 : stats[j] - lse);
        log_chances(tree, stats, path, path_to(tree, parents[i], path), logp);
        best_columns(logp, k, tree->width, columns);
        for (int64_t j = 0; j < tree->width; j++) {
            double own = logp[columns[j]];
            Node node = {ids[columns[j]], (double)parents[i], above + own, exp(own), best[0], best[1],
                         entropy < 0 ? 0 : entropy};
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

/* Whether this candidate may have a child in the final tree: fewer than size - 1 rank before it, it ends nothing, and a
 * child, which ranks behind it and has at most its probability, can be worth its row. */
static int goes_on(const Tree *tree, int64_t node) {
    int64_t before = 0;
    double score = tree->nodes[node].score;
    for (int64_t i = 0; i < tree->ends; i++) if (tree->nodes[node].token == (double)tree->end[i]) return 0;
    for (int64_t i = 0; i < tree->found; i++)
        before += tree->nodes[i].score > score || (i < node && tree->nodes[i].score == score);
    int64_t rank = before + 1 < tree->ranks ? before + 1 : tree->ranks - 1;
    return before < tree->size - 1 && (rank < 0 || exp(score) >= tree->worth[rank]);
}

/* The candidates from `first` on that get children: the best `width` of those that may; returns how many. */
static int64_t next_frontier(const Tree *tree, int64_t first, int64_t *frontier) {
    int64_t count = 0;
    for (int64_t node = first; node < tree->found && count < tree->width; node++)
        if (goes_on(tree, node)) frontier[count++] = node;
    return count;
}
#endif
