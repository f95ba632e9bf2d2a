/* A checkpoint's manifest is refused with a message, or its files tile the model, their names stay
 * in the folder, and its normal form reads back to itself. */
#include "executor/manifest.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void write(zs_json_writer *w, const void *document)
{
    zx_manifest_write(w, NULL, document);
}

static void check_files(const zx_manifest *m)
{
    int64_t end = 0;
    for (int i = 0; i < m->n_files; i++) {
        const zx_manifest_file *f = &m->files[i];
        FUZZ_CHECK(f->elements.first == end && f->elements.count > 0, "file %d", i);
        FUZZ_CHECK(f->size_bytes == 12 * f->elements.count, "file %d", i);
        FUZZ_CHECK(f->name[0] && f->name[0] != '.' && !strchr(f->name, '/'), "%s", f->name);
        end += f->elements.count;
    }
    FUZZ_CHECK(end == zm_model_n_params(&m->model), "%lld elements", (long long)end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const zs_json *root = NULL;
    zx_manifest m = {0}, again = {0};
    zs_error err = {0};
    zs_arena *arena = fuzz_open(&root, data, size);
    if (root && !zx_manifest_parse(&m, arena, root, &err)) {
        fuzz_check_error(&err);
    } else if (root) {
        check_files(&m);
        if (!zx_manifest_check_model(&m, &m.model, &err))
            FUZZ_CHECK(false, "%s", err.message);
        const char *text = fuzz_print(arena, write, &m);
        FUZZ_CHECK(zx_manifest_parse(&again, arena, fuzz_parse(arena, text), &err), "%s\n%s",
                   err.message, text);
        const char *second = fuzz_print(arena, write, &again);
        FUZZ_CHECK(strcmp(text, second) == 0, "%s\nbecame\n%s", text, second);
    }
    zs_arena_close(&arena);
    return 0;
}
