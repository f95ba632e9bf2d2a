#include "executor/convert_weights.h"

#include "executor/safetensors.h"
#include "executor/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Elements in host memory at a time, and in a file of a checkpoint that is made here. */
enum { CHUNK = 1 << 20, FILE_CHUNKS = 64 };

static zs_shard chunk_at(int64_t first, int64_t end)
{
    return (zs_shard){.first = first, .count = end - first < CHUNK ? end - first : CHUNK};
}

static bool find_checkpoint(char path[ZX_CHECKPOINT_PATH_SIZE], zs_arena *arena, const char *dir,
                            zs_error *err)
{
    int64_t *steps;
    int n;
    if (zx_checkpoint_is_one(dir)) {
        const bool fits =
            snprintf(path, ZX_CHECKPOINT_PATH_SIZE, "%s", dir) < ZX_CHECKPOINT_PATH_SIZE;
        return fits || ZS_FAIL(err, ZS_ERR_INPUT, "%.200s...: the path is too long", dir);
    }
    if (!zx_checkpoint_list(&steps, &n, arena, dir, err))
        return false;
    if (n == 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: holds no checkpoint (step-00000001/, ...)", dir);
    return zx_checkpoint_path(path, dir, steps[0], false, err);
}

static bool write_weights(const zx_safetensors *file, const zx_manifest *m, const char *folder,
                          const char *out, zx_real *buffer, zs_error *err)
{
    for (int64_t first = 0; first < m->n_params; first += CHUNK) {
        const zs_shard part = chunk_at(first, m->n_params);
        if (!zx_checkpoint_read(buffer, m, folder, ZX_ARRAY_WEIGHTS, part, err) ||
            !zx_safetensors_write(file, out, buffer, part.first, part.count, err))
            return false;
    }
    return true;
}

static bool checkpoint_to_file(zx_convert_weights_result *r, zs_arena *arena, const char *dir,
                               const char *out, zs_error *err)
{
    zx_manifest m;
    zx_safetensors file;
    zx_real *buffer = ZS_NEW(arena, zx_real, CHUNK, err);
    if (!buffer || !find_checkpoint(r->from, arena, dir, err) ||
        !zx_manifest_load(&m, arena, r->from, err))
        return false;
    for (int i = 0; i < m.n_files; i++)
        if (!zx_checkpoint_verify(&m, r->from, i, err))
            return false;
    if (!zx_safetensors_build(&file, arena, &m.model, err) ||
        !zx_safetensors_create(&file, out, err))
        return false;
    if (!write_weights(&file, &m, r->from, out, buffer, err) ||
        !zx_safetensors_publish(&file, out, err)) {
        zx_safetensors_discard(out);
        return false;
    }
    snprintf(r->path, sizeof r->path, "%s", out);
    r->n_params = m.n_params;
    return true;
}

bool zx_convert_checkpoint(zx_convert_weights_result *result, const char *dir, const char *out,
                           zs_error *err)
{
    struct stat info;
    zs_arena *arena;
    const size_t n = strlen(out);
    if (n < 12 || n >= sizeof result->path || strcmp(out + n - 12, ".safetensors") != 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "-o %.200s: expected a name that ends in .safetensors",
                       out);
    if (stat(out, &info) == 0 && !S_ISREG(info.st_mode))
        return ZS_FAIL(err, ZS_ERR_INPUT, "-o %s: is no regular file", out);
    if (!zs_arena_open(&arena, err))
        return false;
    const bool ok = checkpoint_to_file(result, arena, dir, out, err);
    zs_arena_close(&arena);
    return ok;
}

/* The config.json in the folder of the file. */
static const char *config_beside(zs_arena *arena, const char *file, zs_error *err)
{
    const char *slash = strrchr(file, '/');
    const int n = slash ? (int)(slash - file) + 1 : 0;
    return zs_arena_printf(arena, err, "%.*sconfig.json", n, file);
}

/* One file of the checkpoint at a time, so that memory stays bounded. */
static bool write_files(zx_manifest *m, zs_arena *arena, const zx_weights *weights,
                        const char *folder, zs_error *err)
{
    const int64_t most = (int64_t)CHUNK * FILE_CHUNKS;
    const int64_t n_files = (m->n_params + most - 1) / most;
    m->files = ZS_NEW(arena, zx_manifest_file, n_files, err);
    if (!m->files)
        return false;
    const int64_t longest = m->n_params < most ? m->n_params : most;
    zx_real *values = malloc((size_t)longest * sizeof *values);
    if (!values)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for %" PRId64 " weights", longest);
    bool ok = true;
    for (int64_t first = 0; ok && first < m->n_params; first += most) {
        const int64_t left = m->n_params - first;
        const zs_shard part = {.first = first, .count = left < most ? left : most};
        const zx_checkpoint_values from = {.arrays = {[ZX_ARRAY_WEIGHTS] = values},
                                           .elements = part};
        uint32_t crc;
        ok = zx_weights_read(values, weights, part, err) &&
             zx_checkpoint_write(&crc, folder, &from, err) &&
             zx_checkpoint_describe(&m->files[m->n_files++], arena, part, crc, err);
    }
    free(values);
    return ok;
}

static bool file_to_checkpoint(zx_convert_weights_result *r, zs_arena *arena,
                               const zx_weights *weights, const zm_model *model, const char *out,
                               zs_error *err)
{
    char folder[ZX_CHECKPOINT_PATH_SIZE];
    zx_manifest m = {.model = *model, .n_params = zm_model_n_params(model)};
    if (mkdir(out, 0777) != 0 && errno != EEXIST)
        return ZS_FAIL(err, ZS_ERR_INPUT, "-o %s: %s", out, strerror(errno));
    if (!zx_checkpoint_path(r->path, out, 0, false, err) ||
        !zx_checkpoint_path(folder, out, 0, true, err))
        return false;
    if (access(r->path, F_OK) == 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "-o %s: %s is there already", out, r->path);
    if (!zx_checkpoint_begin(out, 0, err))
        return false;
    if (!write_files(&m, arena, weights, folder, err) || !zx_manifest_save(&m, folder, err) ||
        !zx_checkpoint_publish(out, 0, err)) {
        zx_checkpoint_discard(out, 0);
        return false;
    }
    r->n_params = m.n_params;
    return true;
}

bool zx_convert_safetensors(zx_convert_weights_result *result, const char *file,
                            const char *model_source, const char *out, zs_error *err)
{
    zs_arena *arena;
    zm_model model;
    zx_weights weights = {0};
    if (!zs_arena_open(&arena, err))
        return false;
    const char *source = model_source ? model_source : config_beside(arena, file, err);
    bool ok = source && zm_model_load(&model, arena, source, err);
    if (!ok && !model_source)
        zs_error_prefix(err, "the model of %s (say --model MODEL)", file);
    ok = ok && zx_weights_open(&weights, arena, file, &model, err) &&
         file_to_checkpoint(result, arena, &weights, &model, out, err);
    zx_weights_close(&weights);
    if (ok)
        snprintf(result->from, sizeof result->from, "%s", file);
    zs_arena_close(&arena);
    return ok;
}
