#include "shared/error.h"

#include <stdarg.h>
#include <string.h>

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
    return false;
}

void zs_error_print(FILE *out, const char *program, const zs_error *err)
{
    fprintf(out, "%s: %s\n", program, err->message);
}
