/* Models that the programs know by name: the files of models/presets as text. */
#ifndef MODELS_PRESETS_H
#define MODELS_PRESETS_H

typedef struct zm_preset {
    const char *name;
    const char *text; /* normal form */
} zm_preset;

extern const zm_preset zm_presets[];
extern const int zm_n_presets;

#endif
