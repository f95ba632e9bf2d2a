/* UTF-8 (RFC 3629), of which all text in files and messages consists. */
#ifndef SHARED_UTF8_H
#define SHARED_UTF8_H

#include <stddef.h>

/* Bytes of the valid character at text, of which size bytes may be read; 0 if there is none. */
int zs_utf8_size(const char *text, size_t size);

#endif
