/* Hugging Face's config.json of GPT-2, OPT and LLaMA. Keys that this program does not know are
 * ignored, for these files are full of them; those that change what the model computes and that it
 * cannot follow are refused. */
#ifndef MODELS_HF_CONFIG_H
#define MODELS_HF_CONFIG_H

#include "models/model.h"

/* Absent and null keys take the defaults of transformers: GPT2Config, OPTConfig, LlamaConfig. Sizes
 * have none but the MLP width of GPT-2 (4 C), key and value heads (all heads) and LLaMA's positions
 * (2048). */
ZS_MUST_CHECK bool zm_hf_config_parse(zm_model *out, const zs_json *object, const char *name,
                                      zs_error *err);

#endif
