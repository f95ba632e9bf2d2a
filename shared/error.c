#include "shared/error.h"

#include "shared/utf8.h"

#include <stdarg.h>
#include <string.h>

/* A message may quote a file or an option: what would break the line or the terminal, and
 * characters that were cut in two, become '?'. */
static void clean(char *text)
{
    size_t size = strlen(text);
    while (size > 0) {
        const int n = zs_utf8_size(text, size);
        if (n == 0 || (unsigned char)*text < 0x20 || *text == 0x7F)
            *text = '?';
        text += n > 0 ? n : 1;
        size -= (size_t)(n > 0 ? n : 1);
    }
}

bool zs_error_set(zs_error *err, zs_code code, const char *file, int line, const char *format, ...)
{
    if (!err)
        return false;
    err->code = code;
    err->file = file;
    err->line = line;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    clean(err->message);
    return false;
}

bool zs_error_prefix(zs_error *err, const char *format, ...)
{
    if (!err)
        return false;
    char text[2 * ZS_ERROR_MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, ZS_ERROR_MESSAGE_SIZE - 2, format, args);
    va_end(args);
    strcat(text, ": ");
    strcat(text, err->message);
    memcpy(err->message, text, sizeof err->message - 1);
    err->message[sizeof err->message - 1] = 0;
    clean(err->message);
    return false;
}

void zs_error_print(FILE *out, const char *program, const zs_error *err)
{
    fprintf(out, "%s: %s\n", program, err->message);
}
