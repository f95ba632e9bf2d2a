#include "shared/options.h"

#include "shared/units.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct value {
    bool given; /* on the command line */
    bool flag;
    int64_t integer; /* INT, BYTES */
    double number;   /* DOUBLE, MS */
    const char *text;
} value;

struct zs_options {
    const zs_command *command;
    value *values; /* as command->options */
    int n_arguments;
    const char **arguments;
};

/* ---- Words that are nearly right ---- */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Edit distance of Levenshtein (1966), case ignored; one row of the table at a time suffices. */
static int distance(const char *a, const char *b)
{
    enum { MAX_SIZE = 64 };
    const size_t n = strlen(a), m = strlen(b);
    if (n > MAX_SIZE || m > MAX_SIZE)
        return MAX_SIZE;
    int row[MAX_SIZE + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            const int upper = row[j];
            int best = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
            if (upper + 1 < best)
                best = upper + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
            diagonal = upper;
        }
    }
    return row[m];
}

const char *zs_options_nearest(const char *text, const char *const *words, int n)
{
    const char *nearest = NULL;
    int best = (int)(strlen(text) + 2) / 3 + 1;
    for (int i = 0; i < n; i++) {
        const int d = distance(text, words[i]);
        if (d < best) {
            best = d;
            nearest = words[i];
        }
    }
    return nearest;
}

/* ---- Values ---- */

/* Does the table restrict a number from above? Larger maxima mean "no limit". */
static bool has_max(const zs_option *option)
{
    return option->max < 9e18;
}

/* "1 .. 64" or "1 or more"; empty without a range. */
static const char *print_range(char *buffer, size_t size, const zs_option *option)
{
    char low[40], high[40];
    const bool numeric = option->kind == ZS_OPTION_INT || option->kind == ZS_OPTION_DOUBLE;
    buffer[0] = 0;
    if (!numeric || (!(option->min < 0 || option->min > 0) && !(option->max > 0)))
        return buffer;
    zs_units_print_double(low, sizeof low, option->min);
    if (has_max(option))
        snprintf(buffer, size, "%s .. %s", low,
                 zs_units_print_double(high, sizeof high, option->max));
    else
        snprintf(buffer, size, "%s or more", low);
    return buffer;
}

static bool check_range(const zs_option *option, double number, const char *text, zs_error *err)
{
    char range[100];
    print_range(range, sizeof range, option);
    if (!range[0] || (number >= option->min && (!has_max(option) || number <= option->max)))
        return true;
    return ZS_FAIL(err, ZS_ERR_INPUT, "--%s is %.60s, expected %s", option->name, text, range);
}

static bool is_choice(const char *choices, const char *text)
{
    const size_t size = strlen(text);
    for (const char *c = choices; c; c = strchr(c, '|'), c = c ? c + 1 : NULL) {
        if (size > 0 && strncmp(c, text, size) == 0 && (c[size] == '|' || !c[size]))
            return true;
    }
    return false;
}

static bool parse_value(value *v, const zs_option *option, const char *text, zs_error *err)
{
    bool ok = true;
    v->text = text;
    switch (option->kind) {
    case ZS_OPTION_FLAG:
        v->flag = strcmp(text, "true") == 0;
        return true;
    case ZS_OPTION_STRING:
        return true;
    case ZS_OPTION_CHOICE:
        return is_choice(option->choices, text) ||
               ZS_FAIL(err, ZS_ERR_INPUT, "--%s is \"%.60s\", expected one of %s", option->name,
                       text, option->choices);
    case ZS_OPTION_INT:
        ok = zs_units_parse_int(&v->integer, text, err);
        if (ok)
            return check_range(option, (double)v->integer, text, err);
        break;
    case ZS_OPTION_DOUBLE:
        ok = zs_units_parse_double(&v->number, text, err);
        if (ok)
            return check_range(option, v->number, text, err);
        break;
    case ZS_OPTION_BYTES:
        ok = zs_units_parse_bytes(&v->integer, text, err);
        break;
    case ZS_OPTION_MS:
        ok = zs_units_parse_ms(&v->number, text, err);
        break;
    }
    return ok || zs_error_prefix(err, "--%s", option->name);
}

/* ---- The command line ---- */

typedef struct parser {
    zs_options *out;
    const zs_command *command;
    zs_arena *arena;
    int argc, at;
    char **argv;
    zs_error *err;
} parser;

static int find_name(const zs_command *command, const char *name, size_t size)
{
    for (int i = 0; i < command->n_options; i++) {
        const char *known = command->options[i].name;
        if (strncmp(known, name, size) == 0 && !known[size])
            return i;
    }
    return -1;
}

static bool fail_unknown(const parser *p, const char *name, int size)
{
    char word[100];
    snprintf(word, sizeof word, "%.*s", size, name);
    const char **names = ZS_NEW(p->arena, const char *, p->command->n_options, p->err);
    if (!names)
        return false;
    const char *nearest = NULL;
    for (int i = 0; i < p->command->n_options; i++) {
        names[i] = p->command->options[i].name;
        if (!nearest && strlen(word) >= 3 && strncmp(names[i], word, strlen(word)) == 0)
            nearest = names[i]; /* cut off: --time for --time-limit */
    }
    if (!nearest)
        nearest = zs_options_nearest(word, names, p->command->n_options);
    if (nearest)
        return ZS_FAIL(p->err, ZS_ERR_INPUT, "unknown option \"--%s\", did you mean \"--%s\"?",
                       word, nearest);
    return ZS_FAIL(p->err, ZS_ERR_INPUT, "unknown option \"--%s\", see --help", word);
}

static bool set_value(parser *p, int i, const char *text)
{
    p->out->values[i].given = true;
    return parse_value(&p->out->values[i], &p->command->options[i], text, p->err);
}

/* Sets option i from the following argument. */
static bool take_next(parser *p, int i)
{
    const zs_option *option = &p->command->options[i];
    if (p->at >= p->argc)
        return ZS_FAIL(p->err, ZS_ERR_INPUT, "--%s needs a value, expected --%s %s", option->name,
                       option->name, option->value_name ? option->value_name : option->choices);
    return set_value(p, i, p->argv[p->at++]);
}

/* --name, --name=value, --name value, --no-name */
static bool parse_long(parser *p, const char *name)
{
    const char *equals = strchr(name, '=');
    const size_t size = equals ? (size_t)(equals - name) : strlen(name);
    int i = find_name(p->command, name, size);
    if (i < 0 && size > 3 && strncmp(name, "no-", 3) == 0) {
        i = find_name(p->command, name + 3, size - 3);
        if (i >= 0 && p->command->options[i].kind == ZS_OPTION_FLAG && !equals)
            return set_value(p, i, "false");
        i = -1;
    }
    if (i < 0)
        return fail_unknown(p, name, (int)(size < 90 ? size : 90));
    if (p->command->options[i].kind != ZS_OPTION_FLAG)
        return equals ? set_value(p, i, equals + 1) : take_next(p, i);
    if (equals)
        return ZS_FAIL(p->err, ZS_ERR_INPUT, "--%s takes no value, given \"%.60s\"",
                       p->command->options[i].name, equals + 1);
    return set_value(p, i, "true");
}

/* -x, -xvalue, -x value, and flags in a row: -vx value */
static bool parse_letters(parser *p, const char *letters)
{
    for (const char *c = letters; *c; c++) {
        int i = 0;
        while (i < p->command->n_options && p->command->options[i].letter != *c)
            i++;
        if (i == p->command->n_options)
            return ZS_FAIL(p->err, ZS_ERR_INPUT, "unknown option \"-%c\" in \"-%.60s\", see --help",
                           *c, letters);
        if (p->command->options[i].kind != ZS_OPTION_FLAG)
            return c[1] ? set_value(p, i, c + 1) : take_next(p, i);
        if (!set_value(p, i, "true"))
            return false;
    }
    return true;
}

static bool check_arguments(const zs_options *o, zs_error *err)
{
    const zs_command *command = o->command;
    if (o->n_arguments > command->max_arguments)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: unexpected argument \"%.100s\", see --help",
                       command->name, o->arguments[command->max_arguments]);
    if (o->n_arguments < command->min_arguments)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: %d of %d arguments given, expected %s",
                       command->name, o->n_arguments, command->min_arguments, command->arguments);
    return true;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    }
    return false;
}

bool zs_options_parse(zs_options **out, bool *help, zs_arena *arena, const zs_command *command,
                      int argc, char **argv, zs_error *err)
{
    zs_options *o = ZS_NEW(arena, zs_options, 1, err);
    if (!o)
        return false;
    o->command = command;
    o->values = ZS_NEW(arena, value, command->n_options, err);
    o->arguments = ZS_NEW(arena, const char *, argc, err);
    if (!o->values || !o->arguments)
        return false;
    for (int i = 0; i < command->n_options; i++) {
        const zs_option *option = &command->options[i];
        if (option->default_text && !parse_value(&o->values[i], option, option->default_text, err))
            return zs_error_prefix(err, "default of");
    }
    *help = asks_for_help(argc, argv);
    *out = o;
    if (*help)
        return true;

    parser p = {o, command, arena, argc, 0, argv, err};
    bool ok = true, only_arguments = false;
    while (ok && p.at < argc) {
        const char *text = argv[p.at++];
        if (only_arguments || text[0] != '-' || !text[1])
            o->arguments[o->n_arguments++] = text;
        else if (strcmp(text, "--") == 0)
            only_arguments = true;
        else if (text[1] == '-')
            ok = parse_long(&p, text + 2);
        else
            ok = parse_letters(&p, text + 1);
    }
    return ok && check_arguments(o, err);
}

/* ---- Getters ---- */

static const value *get(const zs_options *o, const char *name, zs_option_kind kind,
                        zs_option_kind other)
{
    const int i = find_name(o->command, name, strlen(name));
    assert(i >= 0 && "the option is in the table");
    assert(o->command->options[i].kind == kind || o->command->options[i].kind == other);
    (void)kind;
    (void)other;
    return &o->values[i];
}

bool zs_options_is_set(const zs_options *o, const char *name)
{
    const int i = find_name(o->command, name, strlen(name));
    assert(i >= 0 && "the option is in the table");
    return o->values[i].given;
}

bool zs_options_flag(const zs_options *o, const char *name)
{
    return get(o, name, ZS_OPTION_FLAG, ZS_OPTION_FLAG)->flag;
}

int64_t zs_options_int(const zs_options *o, const char *name)
{
    return get(o, name, ZS_OPTION_INT, ZS_OPTION_INT)->integer;
}

double zs_options_double(const zs_options *o, const char *name)
{
    return get(o, name, ZS_OPTION_DOUBLE, ZS_OPTION_DOUBLE)->number;
}

const char *zs_options_string(const zs_options *o, const char *name)
{
    return get(o, name, ZS_OPTION_STRING, ZS_OPTION_CHOICE)->text;
}

int64_t zs_options_bytes(const zs_options *o, const char *name)
{
    return get(o, name, ZS_OPTION_BYTES, ZS_OPTION_BYTES)->integer;
}

double zs_options_ms(const zs_options *o, const char *name)
{
    return get(o, name, ZS_OPTION_MS, ZS_OPTION_MS)->number;
}

int zs_options_n_arguments(const zs_options *o)
{
    return o->n_arguments;
}

const char *zs_options_argument(const zs_options *o, int i)
{
    return o->arguments[i];
}

const zs_command *zs_options_find_command(const zs_command *commands, int n_commands,
                                          const char *name, zs_error *err)
{
    const char *nearest = NULL;
    int best = 0;
    for (int i = 0; i < n_commands; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
        const int d = distance(name, commands[i].name);
        if (zs_options_nearest(name, &commands[i].name, 1) && (!nearest || d < best)) {
            nearest = commands[i].name;
            best = d;
        }
    }
    if (nearest)
        ZS_FAIL(err, ZS_ERR_INPUT, "unknown command \"%.60s\", did you mean \"%s\"?", name,
                nearest);
    else
        ZS_FAIL(err, ZS_ERR_INPUT, "unknown command \"%.60s\", see --help", name);
    return NULL;
}

/* ---- Help ---- */

enum { HELP_COLUMNS = 80, HELP_INDENT = 26 };

/* Characters, not bytes. */
static int width(const char *text, size_t size)
{
    int n = 0;
    for (size_t i = 0; i < size; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

/* Prints text in lines of at most HELP_COLUMNS that begin at column indent; the cursor stands at
 * column at. A line of the text that begins with a blank is kept as it is (an example). */
static void print_wrapped(FILE *out, const char *text, int indent, int at)
{
    while (*text) {
        const size_t line = strcspn(text, "\n");
        const bool verbatim = *text == ' ';
        for (size_t i = 0; i < line;) {
            const size_t word = verbatim ? line : strcspn(text + i, " \n");
            const int columns = width(text + i, word);
            if (word > 0 && at > indent && at + 1 + columns > HELP_COLUMNS) {
                fputc('\n', out);
                at = 0;
            } else if (word > 0 && at > indent) {
                fputc(' ', out);
                at++;
            }
            if (word > 0) {
                if (at < indent)
                    fprintf(out, "%*s", indent - at, "");
                at = (at < indent ? indent : at) + columns;
                fwrite(text + i, 1, word, out);
            }
            i += word + 1;
        }
        fputc('\n', out);
        at = 0;
        text += line + (text[line] == '\n');
    }
}

static void print_option(FILE *out, const zs_option *option)
{
    char left[100], range[100], note[200] = "";
    const char *of_value = option->value_name ? option->value_name : option->choices;
    snprintf(left, sizeof left, option->letter ? "  -%c, " : "      ", option->letter);
    size_t used = strlen(left);
    const bool off = option->kind == ZS_OPTION_FLAG && option->default_text &&
                     strcmp(option->default_text, "true") == 0;
    snprintf(left + used, sizeof left - used, "--%s%s%s%s", off ? "no-" : "", option->name,
             of_value ? " " : "", of_value ? of_value : "");
    fputs(left, out);
    int at = width(left, strlen(left));
    if (at > HELP_INDENT - 2) {
        fputc('\n', out);
        at = 0;
    }
    print_range(range, sizeof range, option);
    if (option->kind == ZS_OPTION_CHOICE && option->value_name)
        snprintf(range, sizeof range, "%s", option->choices);
    const bool has_default = option->default_text && option->kind != ZS_OPTION_FLAG;
    if (range[0] || has_default)
        snprintf(note, sizeof note, " (%s%s%s%s)", range, range[0] && has_default ? "; " : "",
                 has_default ? "default " : "", has_default ? option->default_text : "");
    char text[1000];
    snprintf(text, sizeof text, "%s%s", option->help, note);
    print_wrapped(out, text, HELP_INDENT, at);
}

static void print_program(FILE *out, const char *program, const char *about,
                          const zs_command *commands, int n_commands)
{
    fprintf(out, "Usage: %s COMMAND [OPTION]... [ARGUMENT]...\n\n", program);
    print_wrapped(out, about, 0, 0);
    fprintf(out, "\nCommands:\n");
    for (int i = 0; i < n_commands; i++) {
        const int at = fprintf(out, "  %-10s", commands[i].name);
        print_wrapped(out, commands[i].summary, 14, at);
    }
    fprintf(out, "\nOptions of a command: %s COMMAND --help\n", program);
}

void zs_options_print_help(FILE *out, const char *program, const char *about,
                           const zs_command *commands, int n_commands, const zs_command *command)
{
    if (!command) {
        print_program(out, program, about, commands, n_commands);
        return;
    }
    fprintf(out, "Usage: %s %s [OPTION]...%s%s\n\n", program, command->name,
            command->arguments[0] ? " " : "", command->arguments);
    print_wrapped(out, command->summary, 0, 0);
    if (command->details && command->details[0]) {
        fputc('\n', out);
        print_wrapped(out, command->details, 0, 0);
    }
    fprintf(out, "\nOptions:\n");
    for (int i = 0; i < command->n_options; i++)
        print_option(out, &command->options[i]);
    static const zs_option help = {
        .name = "help", .letter = 'h', .kind = ZS_OPTION_FLAG, .help = "Show this text."};
    print_option(out, &help);
}
