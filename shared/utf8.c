#include "shared/utf8.h"

int zs_utf8_size(const char *text, size_t size)
{
    const unsigned char *c = (const unsigned char *)text;
    if (size == 0)
        return 0;
    if (c[0] < 0x80)
        return 1;
    const int n = c[0] >= 0xF0 ? 4 : c[0] >= 0xE0 ? 3 : 2;
    if (c[0] < 0xC2 || c[0] > 0xF4 || size < (size_t)n)
        return 0;
    for (int i = 1; i < n; i++) {
        if ((c[i] & 0xC0) != 0x80)
            return 0;
    }
    /* Longer than needed, surrogates, beyond U+10FFFF. */
    if ((c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xED && c[1] > 0x9F) ||
        (c[0] == 0xF0 && c[1] < 0x90) || (c[0] == 0xF4 && c[1] > 0x8F))
        return 0;
    return n;
}
