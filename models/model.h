/* Architecture of a language model: embedding, n_blocks transformer blocks, head. From a preset
 * name, a Hugging Face config.json of GPT-2, OPT or LLaMA, or our own normal form. */
#ifndef MODELS_MODEL_H
#define MODELS_MODEL_H

#include "shared/json.h"

#define ZM_MODEL_FORMAT "zplan-model"
#define ZM_MODEL_VERSION 1

typedef enum zm_family { ZM_GPT2, ZM_OPT, ZM_LLAMA, ZM_N_FAMILIES } zm_family;
typedef enum zm_activation {
    ZM_GELU_TANH,
    ZM_GELU,
    ZM_RELU,
    ZM_SILU,
    ZM_N_ACTIVATIONS
} zm_activation;

extern const char *const zm_family_names[ZM_N_FAMILIES]; /* "gpt2", "opt", "llama" */
extern const char
    *const zm_activation_names[ZM_N_ACTIVATIONS]; /* "gelu_new", "gelu", "relu", "silu" */

typedef struct zm_model {
    const char *name; /* preset or file name without folder and extension */
    zm_family family; /* decides norm kind, positions, tensor names */
    int n_blocks;     /* L, >= 1 */
    int n_channels;   /* C, hidden size */
    int n_heads;      /* NH, query heads; divides C */
    int n_kv_heads;   /* divides n_heads; = n_heads except LLaMA with GQA */
    int n_ffn;        /* width of the MLP */
    int n_vocab;      /* V */
    int n_positions;  /* longest sequence (maxT) */
    zm_activation activation;
    double norm_eps;
    double rope_theta; /* LLaMA; 0 otherwise */
    bool tied;         /* head matrix = embedding matrix */
    double dropout;    /* as the config states it; training takes its own option */
} zm_model;

/* source: preset name ("gpt2-124m"), a path to a config.json of Hugging Face or of ours, a folder
 * that holds config.json, or "-". A file called config.json is named after its folder. */
ZS_MUST_CHECK bool zm_model_load(zm_model *out, zs_arena *arena, const char *source, zs_error *err);

/* From an object: ours when it has "format": ZM_MODEL_FORMAT, else Hugging Face's. name: see above.
 */
ZS_MUST_CHECK bool zm_model_parse(zm_model *out, zs_arena *arena, const zs_json *object,
                                  const char *name, zs_error *err);

/* Every rule (divisibility, ranges, what a family allows); names field and value. */
ZS_MUST_CHECK bool zm_model_check(const zm_model *model, zs_error *err);

/* The first broken rule: the name of its field (static), what is wrong with it in fault; NULL when
 * there is none. Readers of files put the place in the file before it. */
enum { ZM_FAULT_SIZE = 160 };
const char *zm_model_find_fault(const zm_model *model, char fault[ZM_FAULT_SIZE]);

/* T <= n_positions, else ZS_ERR_INPUT with both numbers. */
ZS_MUST_CHECK bool zm_model_check_seq_len(const zm_model *model, int seq_len, zs_error *err);

/* Our normal form. */
void zm_model_write(zs_json_writer *w, const char *key, const zm_model *model);

/* Names of the presets, for messages and help. */
const char *const *zm_model_presets(int *n);

#endif
