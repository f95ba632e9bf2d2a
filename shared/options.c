#include "shared/options.h"

#include <stdlib.h>
#include <string.h>

/* Edit distance of Levenshtein (1966), case ignored; two rows of the table suffice. */
static int distance(const char *a, const char *b)
{
    enum { MAX = 64 };
    const size_t n = strlen(a), m = strlen(b);
    if (n > MAX || m > MAX)
        return MAX;
    int row[MAX + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            const int upper = row[j];
            const char x = a[i - 1] >= 'A' && a[i - 1] <= 'Z' ? (char)(a[i - 1] + 32) : a[i - 1];
            const char y = b[j - 1] >= 'A' && b[j - 1] <= 'Z' ? (char)(b[j - 1] + 32) : b[j - 1];
            int best = diagonal + (x != y);
            if (upper + 1 < best)
                best = upper + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
            diagonal = upper;
        }
    }
    return row[m];
}

const char *zs_options_nearest(const char *text, const char *const *words, int n)
{
    const char *nearest = NULL;
    int best = (int)(strlen(text) + 2) / 3 + 1; /* a typo in a word of four letters still counts */
    for (int i = 0; i < n; i++) {
        const int d = distance(text, words[i]);
        if (d < best) {
            best = d;
            nearest = words[i];
        }
    }
    return nearest;
}
