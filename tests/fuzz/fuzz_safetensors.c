/* A safetensors header, taken as that of a file with as many bytes of data as its first digits say,
 * is refused with a message, or its tensors tile the data. */
#include "executor/safetensors_file.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static int compare_begin(const void *a, const void *b)
{
    const zx_safetensors_entry *x = a, *y = b;
    if (x->begin_bytes != y->begin_bytes)
        return x->begin_bytes < y->begin_bytes ? -1 : 1;
    return (x->size_bytes > y->size_bytes) - (x->size_bytes < y->size_bytes);
}

static void check_tiling(zx_safetensors_entry *entries, int n, int64_t begin, int64_t end)
{
    for (int i = 1; i < n; i++)
        FUZZ_CHECK(strcmp(entries[i - 1].name, entries[i].name) < 0, "%s", entries[i].name);
    if (n > 0)
        qsort(entries, (size_t)n, sizeof *entries, compare_begin);
    for (int i = 0; i < n; i++) {
        const zx_safetensors_entry *e = &entries[i];
        FUZZ_CHECK(e->begin_bytes == begin && e->size_bytes >= e->count / 8 && e->count >= 0, "%s",
                   e->name);
        begin += e->size_bytes;
    }
    FUZZ_CHECK(begin == end, "%lld of %lld bytes", (long long)begin, (long long)end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    zs_arena *arena = NULL;
    zx_safetensors_entry *entries;
    zs_error err = {0};
    int n;
    const char *text = (const char *)data;
    int64_t data_bytes = 0;
    size_t n_digits = 0;
    while (n_digits < size && n_digits < 12 && text[n_digits] >= '0' && text[n_digits] <= '9')
        data_bytes = 10 * data_bytes + text[n_digits++] - '0';
    FUZZ_CHECK(zs_arena_open(&arena, &err), "%s", err.message);
    const size_t header_bytes = size - n_digits;
    const int64_t file_bytes = 8 + (int64_t)header_bytes + data_bytes;
    if (zx_safetensors_parse(&entries, &n, arena, text + n_digits, header_bytes, file_bytes, "fuzz",
                             &err))
        check_tiling(entries, n, 8 + (int64_t)header_bytes, file_bytes);
    else
        fuzz_check_error(&err);
    zs_arena_close(&arena);
    return 0;
}
