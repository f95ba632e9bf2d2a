/* Runs a fuzz program without libFuzzer: each file of the corpus, cut off at every length when it
 * is small, then N mutations; number k always gives the same input. A child does the work, so that
 * a crash or an input that takes longer than LIMIT_S is reported with its number; --replay runs
 * that one and saves it as crash-K. CHECK_LONG in the environment multiplies N.
 *
 *     fuzz_x [--mutations N] [--replay K] FILE...
 */
#include "shared/files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/check.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LIMIT_S = 20,
    LONG_FACTOR = 20,
    MAX_FILES = 256,
    MAX_INPUT_BYTES = 64 * 1024,
    MAX_CUT_BYTES = 1024
};

typedef struct input {
    char text[MAX_INPUT_BYTES];
    size_t size;
} input;

typedef struct corpus_file {
    const char *text;
    size_t size;
} corpus_file;

static corpus_file files[MAX_FILES];
static int n_files;

/* Values and pieces that parsers and range checks get wrong. */
/* clang-format off */
static const char *const words[] = {
    "0", "-0", "-1", "1", "2", "3", "0.5", "1e999", "1e300", "-1e300", "1e-300", "2147483647",
    "2147483648", "4294967296", "65536", "1048576", "9007199254740991", "9007199254740993",
    "9223372036854775807", "NaN", "null", "true", "false", "\"\"", "\"x\"", "[]", "{}", "[[[[",
    "\\u0000", "\\ud800", "\xC3", "\"80GiB\"", "\"8000PiB\"", "\"1e-300s\"", "\"1e300GB/s\"", "1e15", "1.5", "80Gb/s", "1e18GiB", "(", ")", "+", "x",
    "1x(1xT4)", ",", ":", "-", "--",
};
/* clang-format on */

static void replace(input *in, size_t at, size_t n_old, const char *text, size_t n_new)
{
    if (in->size - n_old + n_new > MAX_INPUT_BYTES)
        return;
    memmove(in->text + at + n_new, in->text + at + n_old, in->size - at - n_old);
    memcpy(in->text + at, text, n_new);
    in->size += n_new - n_old;
}

static size_t pick(check_rng *rng, size_t end)
{
    return (size_t)check_rng_int(rng, 0, (int64_t)end - 1);
}

static bool is_word(char c)
{
    return c == '.' || c == '_' || c == '-' || c == '"' || (c >= '0' && c <= '9') ||
           (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The word or number around a place. */
static void find_word(const input *in, size_t *at, size_t *n)
{
    size_t first = *at, end = *at;
    while (first > 0 && is_word(in->text[first - 1]))
        first--;
    while (end < in->size && is_word(in->text[end]))
        end++;
    *at = first;
    *n = end - first;
}

static void mutate(input *in, check_rng *rng)
{
    const char *word = words[pick(rng, sizeof words / sizeof words[0])];
    if (in->size == 0) {
        replace(in, 0, 0, word, strlen(word));
        return;
    }
    size_t at = pick(rng, in->size), n = 0;
    char piece[256];
    switch (check_rng_int(rng, 0, 7)) {
    case 0: /* another bit */
        in->text[at] = (char)(in->text[at] ^ (1 << check_rng_int(rng, 0, 7)));
        break;
    case 1: /* insert a word */
        replace(in, at, 0, word, strlen(word));
        break;
    case 2:
    case 3: /* another value */
        find_word(in, &at, &n);
        replace(in, at, n, word, strlen(word));
        break;
    case 4: /* delete up to 32 bytes */
        n = pick(rng, in->size - at < 32 ? in->size - at : 32) + 1;
        replace(in, at, n, "", 0);
        break;
    case 5: /* delete or repeat a line */
        while (at > 0 && in->text[at - 1] != '\n')
            at--;
        while (at + n < in->size && n < sizeof piece && in->text[at + n] != '\n')
            n++;
        n += at + n < in->size && n < sizeof piece;
        memcpy(piece, in->text + at, n);
        if (check_rng_int(rng, 0, 1))
            replace(in, at, n, "", 0);
        else
            replace(in, at, 0, piece, n);
        break;
    case 6: { /* a piece of another file */
        const corpus_file *other = &files[pick(rng, (size_t)n_files)];
        if (other->size > 0) {
            const size_t from = pick(rng, other->size);
            const size_t most = other->size - from < 128 ? other->size - from : 128;
            replace(in, at, 0, other->text + from, pick(rng, most) + 1);
        }
        break;
    }
    default: { /* swap two words */
        size_t from = pick(rng, in->size), n_from = 0;
        find_word(in, &from, &n_from);
        n_from = n_from < sizeof piece ? n_from : sizeof piece;
        memcpy(piece, in->text + from, n_from);
        find_word(in, &at, &n);
        replace(in, at, n, piece, n_from);
        break;
    }
    }
}

/* The input lies in a block of its own size, so that a read beyond its end is noticed. */
static void run(const char *text, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        exit(1);
    memcpy(copy, text, size);
    alarm(LIMIT_S);
    LLVMFuzzerTestOneInput(copy, size);
    alarm(0);
    free(copy);
}

static void make_mutation(input *in, int64_t number)
{
    check_rng rng = check_rng_from((uint64_t)number);
    const corpus_file *from = &files[pick(&rng, (size_t)n_files)];
    in->size = from->size < MAX_INPUT_BYTES ? from->size : MAX_INPUT_BYTES;
    memcpy(in->text, from->text, in->size);
    /* Mostly one or two: what still parses reaches the checks behind the parser. */
    const int64_t n =
        check_rng_int(&rng, 0, 3) ? check_rng_int(&rng, 1, 2) : check_rng_int(&rng, 3, 12);
    for (int64_t i = 0; i < n; i++)
        mutate(in, &rng);
}

static void run_corpus(void)
{
    for (int i = 0; i < n_files; i++) {
        run(files[i].text, files[i].size);
        for (size_t size = 0; size < files[i].size && files[i].size <= MAX_CUT_BYTES; size++)
            run(files[i].text, size);
    }
}

static void replay(input *in, int64_t number)
{
    char path[64];
    zs_error err;
    make_mutation(in, number);
    snprintf(path, sizeof path, "crash-%" PRId64, number);
    if (!zs_files_save(path, in->text, in->size, &err))
        zs_error_print(stderr, "fuzz", &err);
    run(in->text, in->size);
}

static int wait_for(pid_t child, const int64_t *current)
{
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (*current < 0)
        fprintf(stderr, "failed on the corpus itself");
    else
        fprintf(stderr, "failed on mutation %" PRId64 ", see --replay", *current);
    if (WIFSIGNALED(status))
        fprintf(stderr, ": %s",
                WTERMSIG(status) == SIGALRM ? "too slow" : strsignal(WTERMSIG(status)));
    fputc('\n', stderr);
    return 1;
}

int main(int argc, char **argv)
{
    static input in;
    int64_t n_mutations = 1000, number = -1;
    zs_arena *arena = NULL;
    zs_error err;
    if (!zs_arena_open(&arena, &err))
        return 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--mutations") == 0 && i + 1 < argc) {
            n_mutations = strtoll(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--replay") == 0 && i + 1 < argc) {
            number = strtoll(argv[++i], NULL, 10);
        } else if (n_files < MAX_FILES) {
            corpus_file *file = &files[n_files++];
            if (!zs_files_load(&file->text, &file->size, arena, argv[i], &err)) {
                zs_error_print(stderr, "fuzz", &err);
                return 1;
            }
        }
    }
    if (getenv("CHECK_LONG"))
        n_mutations *= LONG_FACTOR;
    if (n_files == 0) {
        fprintf(stderr, "no corpus\n");
        return 1;
    }
    if (number >= 0) {
        replay(&in, number);
        zs_arena_close(&arena);
        return 0;
    }

    int64_t *current =
        mmap(NULL, sizeof *current, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (current == MAP_FAILED)
        return 1;
    *current = -1;
    pid_t child = fork();
    if (child == 0) {
        run_corpus();
        for (int64_t i = 0; i < n_mutations; i++) {
            *current = i;
            make_mutation(&in, i);
            run(in.text, in.size);
        }
        zs_arena_close(&arena);
        exit(0);
    }
    int result = wait_for(child, current);
    fprintf(stderr, "%d files, %" PRId64 " mutations\n", n_files, n_mutations);
    zs_arena_close(&arena);
    return result;
}
