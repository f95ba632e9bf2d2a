#include "executor/backend.h"

#include <string.h>

/* What this build contains. */
static const zx_backend_ops *const backends[] = {&zx_backend_cpu};

enum { N_BACKENDS = sizeof(backends) / sizeof(backends[0]) };

/* What other builds contain, with the meson option that puts it in. */
static const struct {
    const char *name;
    const char *option;
} absent[] = {{"cuda", "-Dcuda=enabled"}};

const zx_backend_ops *zx_backend_find(const char *name, zs_error *err)
{
    for (int i = 0; i < N_BACKENDS; i++) {
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    }
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++) {
        if (strcmp(absent[i].name, name) == 0) {
            ZS_FAIL(err, ZS_ERR_INPUT, "backend \"%s\" is not in this build; meson option %s", name,
                    absent[i].option);
            return NULL;
        }
    }
    ZS_FAIL(err, ZS_ERR_INPUT, "backend \"%s\" is unknown, expected \"%s\"", name,
            backends[0]->name);
    return NULL;
}
