#include "planner/what_if.h"

#include "shared/units.h"

#include <string.h>

static const double MIN_PERCENT = 0.01, MAX_PERCENT = 10000;

/* Even the product of so many is a number. */
enum { MAX_CONDITIONS = 64 };

#define EXAMPLES "expected such as \"node0:gpu1 slower 10%%\" or \"nic node2 half\""

static char *trim(char *text)
{
    while (*text == ' ')
        text++;
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ')
        text[--length] = 0;
    return text;
}

/* Cuts the last word off text and returns it; NULL when text is one word. */
static char *cut_last_word(char *text)
{
    char *blank = strrchr(text, ' ');
    if (!blank)
        return NULL;
    *blank = 0;
    trim(text);
    return blank + 1;
}

static bool parse_percent(double *out, zs_arena *arena, const char *word, const char *condition,
                          zs_error *err)
{
    const size_t length = strlen(word);
    if (length < 2 || word[length - 1] != '%')
        return ZS_FAIL(err, ZS_ERR_INPUT, "--what-if \"%s\": \"%s\" is no percentage, " EXAMPLES,
                       condition, word);
    char *number = zs_arena_strndup(arena, word, length - 1, err);
    if (!number || !zs_units_parse_double(out, number, err))
        return zs_error_prefix(err, "--what-if \"%s\"", condition);
    if (!(*out >= MIN_PERCENT && *out <= MAX_PERCENT))
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "--what-if \"%s\": \"%s\" is out of range, expected %g%% to %.0f%%",
                       condition, word, MIN_PERCENT, MAX_PERCENT);
    return true;
}

static int find_node(const zs_cluster *cluster, const char *name)
{
    for (int node = 0; node < cluster->n_nodes; node++)
        if (strcmp(cluster->nodes[node].name, name) == 0)
            return node;
    return -1;
}

/* "node0:gpu1" -> node and gpu; gpu -1 for all of a node. false: no such node or GPU. */
static bool find_place(int *node, int *gpu, zs_arena *arena, const zs_cluster *cluster,
                       const char *who)
{
    *gpu = -1;
    *node = find_node(cluster, who);
    if (*node >= 0)
        return true;
    const char *colon = strrchr(who, ':');
    int64_t index = 0;
    zs_error ignored;
    if (!colon || strncmp(colon, ":gpu", 4) != 0 ||
        !zs_units_parse_int(&index, colon + 4, &ignored))
        return false;
    const char *name = zs_arena_strndup(arena, who, (size_t)(colon - who), &ignored);
    *node = name ? find_node(cluster, name) : -1;
    if (*node < 0 || index < 0 || index >= cluster->nodes[*node].n_devices)
        return false;
    *gpu = (int)index;
    return true;
}

static bool scale_times(zp_what_if *w, zs_arena *arena, const zs_cluster *cluster, const char *who,
                        double factor, const char *condition, zs_error *err)
{
    int at_node = -1, at_gpu = -1, device = 0, n = 0;
    const bool is_place = find_place(&at_node, &at_gpu, arena, cluster, who);
    const zs_gpu *known = is_place ? NULL : zs_gpus_find(who);
    const char *type = known ? known->type : who;
    for (int node = 0; node < cluster->n_nodes; node++)
        for (int gpu = 0; gpu < cluster->nodes[node].n_devices; gpu++, device++) {
            const bool meant = is_place ? node == at_node && (at_gpu < 0 || gpu == at_gpu)
                                        : strcmp(cluster->nodes[node].devices[gpu].type, type) == 0;
            if (meant) {
                w->time_factor[device] *= factor;
                n++;
            }
        }
    return n > 0 || ZS_FAIL(err, ZS_ERR_INPUT,
                            "--what-if \"%s\": \"%s\" is no GPU, node or GPU type of the cluster",
                            condition, who);
}

static bool scale_links(double *factors, zs_arena *arena, const zs_cluster *cluster,
                        const char *name, const char *share, const char *condition, zs_error *err)
{
    double percent = 0;
    if (strcmp(share, "half") == 0)
        percent = 50;
    else if (strcmp(share, "double") == 0)
        percent = 200;
    else if (!parse_percent(&percent, arena, share, condition, err))
        return false;
    const int only = find_node(cluster, name);
    if (*name && only < 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "--what-if \"%s\": \"%s\" is no node of the cluster",
                       condition, name);
    for (int node = 0; node < cluster->n_nodes; node++)
        if (!*name || node == only)
            factors[node] *= percent / 100;
    return true;
}

static bool parse_condition(zp_what_if *w, zs_arena *arena, const zs_cluster *cluster, char *text,
                            zs_error *err)
{
    const char *condition = zs_arena_strdup(arena, text, err);
    if (!condition)
        return false;
    char *last = cut_last_word(text);
    if (!last)
        return ZS_FAIL(err, ZS_ERR_INPUT, "--what-if \"%s\": " EXAMPLES, condition);
    const bool is_nic = strcmp(text, "nic") == 0 || strncmp(text, "nic ", 4) == 0;
    const bool is_link = strcmp(text, "link") == 0 || strncmp(text, "link ", 5) == 0;
    char *verb = strrchr(text, ' ');
    if (verb && (strcmp(verb + 1, "slower") == 0 || strcmp(verb + 1, "faster") == 0)) {
        double percent = 0;
        const bool slower = strcmp(verb + 1, "slower") == 0;
        *verb = 0;
        if (!parse_percent(&percent, arena, last, condition, err))
            return false;
        const double factor = 1 + percent / 100;
        return scale_times(w, arena, cluster, trim(text), slower ? factor : 1 / factor, condition,
                           err);
    }
    if (is_nic || is_link)
        return scale_links(is_nic ? w->nic_factor : w->intra_factor, arena, cluster,
                           trim(text + (is_nic ? 3 : 4)), last, condition, err);
    return ZS_FAIL(err, ZS_ERR_INPUT, "--what-if \"%s\": " EXAMPLES, condition);
}

bool zp_what_if_parse(zp_what_if *out, zs_arena *arena, const zs_cluster *cluster, const char *text,
                      zs_error *err)
{
    const int n_devices = zs_cluster_n_devices(cluster);
    zp_what_if w = {.time_factor = ZS_NEW(arena, double, n_devices, err),
                    .nic_factor = ZS_NEW(arena, double, cluster->n_nodes, err),
                    .intra_factor = ZS_NEW(arena, double, cluster->n_nodes, err)};
    char *rest = zs_arena_strdup(arena, text ? text : "", err);
    if (!w.time_factor || !w.nic_factor || !w.intra_factor || !rest)
        return false;
    for (int i = 0; i < n_devices; i++)
        w.time_factor[i] = 1;
    for (int node = 0; node < cluster->n_nodes; node++)
        w.nic_factor[node] = w.intra_factor[node] = 1;
    if (!*trim(rest))
        rest = NULL;
    for (int n = 0; rest; n++) {
        if (n == MAX_CONDITIONS)
            return ZS_FAIL(err, ZS_ERR_INPUT, "--what-if has more than %d conditions",
                           MAX_CONDITIONS);
        char *comma = strchr(rest, ',');
        if (comma)
            *comma = 0;
        if (!parse_condition(&w, arena, cluster, trim(rest), err))
            return false;
        rest = comma ? comma + 1 : NULL;
    }
    *out = w;
    return true;
}
