/* What followed the same tokens earlier in a text, as the probability of tokens: an n-gram model of that text.
 *
 * The same as `TextCounts.chances` of `text_counts.py`, number by number; its head has the source and the formula.
 */
#ifndef TEXT_COUNTS_H
#define TEXT_COUNTS_H

#include <stdint.h>

enum { LONGEST = 6, PLACES = 64 };                 /* `LONGEST` and `PLACES` of text_counts.py */

typedef struct {
    const int64_t *text, *before;                  /* [length] tokens; where each stood last before, or -1 */
    const int64_t *last;                           /* [known] the last place of every token, or -1 */
    int64_t length, known;
    double weight;                                 /* of a probability in a token's score; 0 = nothing is counted */
} TextCounts;

/* The places where the last token of a text and path stood earlier: what followed, and how many tokens agree. */
typedef struct {
    int64_t count, next[PLACES], agree[PLACES];
} Earlier;

static int64_t token_at(const TextCounts *counts, const int64_t *path, int64_t place) {
    return place < counts->length ? counts->text[place] : path[place - counts->length];
}

static void add_place(Earlier *found, const TextCounts *counts, const int64_t *path, int64_t end, int64_t place) {
    int64_t agree = 1;
    while (agree < LONGEST && agree <= place
           && token_at(counts, path, place - agree) == token_at(counts, path, end - 1 - agree)) agree++;
    found->agree[found->count] = agree;
    found->next[found->count++] = token_at(counts, path, place + 1);
}

/* The last places, newest first. */
static void find_places(Earlier *found, const TextCounts *counts, const int64_t *path, int64_t depth) {
    int64_t length = counts->length, end = length + depth, token = token_at(counts, path, end - 1);
    found->count = 0;
    for (int64_t place = end - 2; place >= length && found->count < PLACES; place--)
        if (path[place - length] == token) add_place(found, counts, path, end, place);
    int64_t place = !depth ? counts->before[length - 1] : token < counts->known ? counts->last[token] : -1;
    for (; place >= 0 && found->count < PLACES; place = counts->before[place])
        add_place(found, counts, path, end, place);
}

/* How many different tokens followed where so many tokens agree. */
static int64_t kinds_of(const Earlier *found, int64_t agree) {
    int64_t kinds = 0;
    for (int64_t i = 0; i < found->count; i++) {
        int64_t j = 0;
        if (found->agree[i] < agree) continue;
        while (j < i && !(found->agree[j] >= agree && found->next[j] == found->next[i])) j++;
        kinds += j == i;
    }
    return kinds;
}

/* The probabilities of these k tokens after the text, which is not empty, and the path of `depth` tokens behind it. */
static void counted_chances(const TextCounts *counts, const int64_t *path, int64_t depth, const double *ids, int64_t k,
                            double *chances) {
    Earlier found;
    find_places(&found, counts, path, depth);
    for (int64_t j = 0; j < k; j++) chances[j] = 0;
    for (int64_t agree = 1; agree <= LONGEST; agree++) {
        int64_t total = 0, kinds = kinds_of(&found, agree);
        for (int64_t i = 0; i < found.count; i++) total += found.agree[i] >= agree;
        if (!total) return;
        for (int64_t j = 0; j < k; j++) {
            int64_t hits = 0;
            for (int64_t i = 0; i < found.count; i++)
                hits += found.agree[i] >= agree && (double)found.next[i] == ids[j];
            chances[j] = ((double)hits + (double)kinds * chances[j]) / (double)(total + kinds);
        }
    }
}
#endif
