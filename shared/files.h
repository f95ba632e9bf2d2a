/* Whole files: read at once, written all or nothing, so that a reader never sees half a file. */
#ifndef SHARED_FILES_H
#define SHARED_FILES_H

#include "shared/arena.h"
#include "shared/error.h"

#include <stddef.h>

/* Reads all of path, or of stdin for "-", into the arena, with a final 0 that *size does not count.
 * A file that cannot be read or is larger than 1 GiB is ZS_ERR_INPUT. */
ZS_MUST_CHECK bool zs_files_load(const char **text, size_t *size, zs_arena *arena, const char *path,
                                 zs_error *err);

/* Writes to a temporary file in the same folder, flushes it to the disk and renames it to path; on
 * failure (ZS_ERR_RUNTIME) what was at path stays and nothing else is left behind. "-" is stdout;
 * a device or pipe is written directly; a link keeps pointing at what it names. */
ZS_MUST_CHECK bool zs_files_save(const char *path, const char *text, size_t size, zs_error *err);

/* Opens /dev/null in place of each of stdin, stdout and stderr that is closed, for reading only:
 * what is written there still fails, and no file opened later takes its number. */
void zs_files_keep_standard(void);

#endif
