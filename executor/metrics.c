#include "executor/metrics.h"

#include "shared/files.h"
#include "shared/json.h"
#include "shared/units.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LISTED_IDS = 64 };

struct zx_metrics {
    FILE *file; /* NULL: stdout only */
    char path[4096];
    int64_t n_steps;
    int64_t log_every;
};

/* The step of a line; -1: a last line, or one that a killed run did not finish. */
static int64_t line_step(const char *line, size_t size)
{
    int64_t step = -1;
    zs_arena *arena;
    const zs_json *root;
    zs_error err;
    if (!zs_arena_open(&arena, &err))
        return -1;
    if (!zs_json_parse(&root, arena, line, size, "metrics.jsonl", &err) ||
        zs_json_type_of(root) != ZS_JSON_OBJECT ||
        !zs_json_opt_int(&step, root, "step", 0, INT64_MAX, &err))
        step = -1;
    zs_arena_close(&arena);
    return step;
}

/* Bytes of the lines up to a step: what follows will be run, and written, again. */
static bool kept_bytes(off_t *out, const char *path, int64_t n_done, zs_error *err)
{
    const char *text;
    size_t size, kept = 0;
    zs_arena *arena;
    if (!zs_arena_open(&arena, err))
        return false;
    const bool ok = zs_files_load(&text, &size, arena, path, err);
    while (ok && kept < size) {
        const char *end = memchr(text + kept, '\n', size - kept);
        const size_t n = end ? (size_t)(end - text) - kept + 1 : 0;
        const int64_t step = end ? line_step(text + kept, n) : -1;
        if (step < 0 || step > n_done)
            break;
        kept += n;
    }
    zs_arena_close(&arena);
    *out = (off_t)kept;
    return ok;
}

/* Two runs that write one file would mix their lines: the file is locked until it is closed. */
static FILE *open_locked(const char *path, const char *folder, int64_t n_done, zs_error *err)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    struct stat info;
    FILE *file = NULL;
    off_t kept = 0;
    if (fd < 0) {
        ZS_FAIL(err, ZS_ERR_INPUT, "--out %s: metrics.jsonl: %s", folder, strerror(errno));
        return NULL;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        ZS_FAIL(err, ZS_ERR_INPUT,
                "--out %s: another run is writing metrics.jsonl there; give each run a folder of "
                "its own",
                folder);
    else if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && n_done > 0 &&
             !kept_bytes(&kept, path, n_done, err))
        zs_error_prefix(err, "--out");
    else if (fstat(fd, &info) != 0 ||
             (S_ISREG(info.st_mode) &&
              (ftruncate(fd, kept) != 0 || lseek(fd, kept, SEEK_SET) < 0)) ||
             !(file = fdopen(fd, "w")))
        ZS_FAIL(err, ZS_ERR_INPUT, "--out %s: metrics.jsonl: %s", folder, strerror(errno));
    if (!file)
        close(fd);
    return file;
}

bool zx_metrics_open(zx_metrics **out, const char *folder, int64_t n_done, int64_t n_steps,
                     int64_t log_every, zs_error *err)
{
    zx_metrics *m = calloc(1, sizeof *m);
    if (!m)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for metrics");
    m->n_steps = n_steps;
    m->log_every = log_every;
    if (folder) {
        if (snprintf(m->path, sizeof m->path, "%s/metrics.jsonl", folder) >= (int)sizeof m->path)
            ZS_FAIL(err, ZS_ERR_INPUT, "--out %.60s...: the path is too long", folder);
        else if (mkdir(folder, 0777) != 0 && errno != EEXIST)
            ZS_FAIL(err, ZS_ERR_INPUT, "--out %s: %s", folder, strerror(errno));
        else
            m->file = open_locked(m->path, folder, n_done, err);
        if (!m->file) {
            free(m);
            return false;
        }
    }
    *out = m;
    return true;
}

void zx_metrics_close(zx_metrics **metrics)
{
    zx_metrics *m = *metrics;
    if (m && m->file)
        fclose(m->file);
    free(m);
    *metrics = NULL;
}

static bool begin_line(zs_json_writer **w, zs_error *err)
{
    if (!zs_json_writer_open(w, err))
        return false;
    zs_json_writer_set_compact(*w);
    zs_json_begin_object(*w, NULL);
    return true;
}

/* Appends the finished object and closes the writer. */
static bool end_line(zx_metrics *m, zs_json_writer *w, zs_error *err)
{
    const char *text;
    size_t size;
    zs_json_end_object(w);
    bool ok = zs_json_writer_text(w, &text, &size, err);
    if (ok && (fwrite(text, 1, size, m->file) != size || fflush(m->file) != 0))
        ok = ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: %s", m->path, strerror(errno));
    zs_json_writer_close(&w);
    return ok;
}

/* FNV-1a 64 of the ids' bytes, as text: JSON readers lose digits beyond 2^53. */
static const char *digest_text(char text[32], const int64_t *ids, int64_t n)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int64_t i = 0; i < n; i++)
        for (int byte = 0; byte < 8; byte++)
            hash = (hash ^ ((uint64_t)ids[i] >> (8 * byte) & 0xff)) * UINT64_C(0x100000001b3);
    snprintf(text, 32, "%016" PRIx64, hash);
    return text;
}

bool zx_metrics_step(zx_metrics *m, const zx_step_result *r, const int64_t *ids, int64_t n_ids,
                     double step_ms, int64_t memory_bytes, zs_error *err)
{
    const double tokens_per_s = step_ms > 0 ? 1000 * (double)r->n_tokens / step_ms : 0;
    char memory[32], digest[32];
    if (r->step % m->log_every == 0 || r->step == m->n_steps) {
        printf("step %" PRId64 "/%" PRId64 " | loss %.7f | grad_norm %.6f | lr %.3e | %" PRId64
               " tokens | %.0f tokens/s | %.1f ms | %s\n",
               r->step, m->n_steps, r->loss, r->grad_norm, r->lr, r->n_tokens, tokens_per_s,
               step_ms, zs_units_print_bytes(memory, sizeof memory, memory_bytes));
        fflush(stdout);
    }
    zs_json_writer *w;
    if (!m->file)
        return true;
    if (!begin_line(&w, err))
        return false;
    zs_json_put_int(w, "step", r->step);
    zs_json_put_double(w, "loss", r->loss);
    zs_json_put_double(w, "grad_norm", r->grad_norm);
    zs_json_put_double(w, "lr", r->lr);
    zs_json_put_int(w, "tokens", r->n_tokens);
    zs_json_put_string(w, "sequences_digest", digest_text(digest, ids, n_ids));
    if (n_ids <= MAX_LISTED_IDS) {
        zs_json_begin_array(w, "sequences");
        for (int64_t i = 0; i < n_ids; i++)
            zs_json_put_int(w, NULL, ids[i]);
        zs_json_end_array(w);
    }
    zs_json_put_double(w, "step_ms", step_ms);
    zs_json_put_double(w, "tokens_per_s", tokens_per_s);
    return end_line(m, w, err);
}

bool zx_metrics_eval(zx_metrics *m, int64_t step, double loss, int64_t n_sequences, double eval_ms,
                     zs_error *err)
{
    printf("step %" PRId64 "/%" PRId64 " | eval loss %.7f | %" PRId64 " sequences | %.1f ms\n",
           step, m->n_steps, loss, n_sequences, eval_ms);
    fflush(stdout);
    zs_json_writer *w;
    if (!m->file)
        return true;
    if (!begin_line(&w, err))
        return false;
    zs_json_put_int(w, "step", step);
    zs_json_put_double(w, "eval_loss", loss);
    zs_json_put_int(w, "eval_sequences", n_sequences);
    zs_json_put_double(w, "eval_ms", eval_ms);
    return end_line(m, w, err);
}

bool zx_metrics_done(zx_metrics *m, int64_t n_steps, uint64_t params_digest,
                     const double *memory_bytes, int n_ranks, double total_ms, zs_error *err)
{
    char digest[32];
    snprintf(digest, sizeof digest, "%016" PRIx64, params_digest);
    printf("done: %" PRId64 " steps in %.1f s, params_digest %s\n", n_steps, total_ms / 1000,
           digest);
    fflush(stdout);
    zs_json_writer *w;
    if (!m->file)
        return true;
    if (!begin_line(&w, err))
        return false;
    zs_json_put_bool(w, "done", true);
    zs_json_put_int(w, "steps", n_steps);
    zs_json_put_string(w, "params_digest", digest);
    zs_json_begin_array(w, "memory_bytes");
    for (int rank = 0; rank < n_ranks; rank++)
        zs_json_put_int(w, NULL, (int64_t)memory_bytes[rank]);
    zs_json_end_array(w);
    zs_json_put_double(w, "total_ms", total_ms);
    return end_line(m, w, err);
}
