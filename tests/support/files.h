/* Files that tests write into a folder of their own, removed at the end. */
#ifndef TESTS_SUPPORT_FILES_H
#define TESTS_SUPPORT_FILES_H

#include <stddef.h>
#include <stdint.h>

/* Path of a file of this name in the program's temporary folder, made on first use and removed with
 * all its files at exit. Valid until exit. */
const char *check_path(const char *name);

/* The same, made as a folder. */
const char *check_folder(const char *name);

/* Removes a file, or a folder with all that is in it. */
void check_remove_path(const char *path);

/* Writes size bytes to such a file and returns its path; ends the program when that fails. */
const char *check_write_file(const char *name, const void *data, size_t size);

/* A token file in llm.c's layout: magic 20240520 and uint16 ids. */
const char *check_write_tokens(const char *name, const int *ids, int64_t n);

/* The whole file with a final 0, to be freed; NULL when it cannot be read. */
char *check_read_file(const char *path, size_t *size);

#endif
