/* families.h - a list of keys for each family; the table that names them is compiler/families.c. */
#ifndef MODELS_FAMILIES_H
#define MODELS_FAMILIES_H

#include "compiler/config_keys.h"

/* Of config.json; each list ends with a key without a name (facts.c of the family). */
extern const ConfigKey llama_keys[], mistral_keys[], qwen2_keys[], qwen3_keys[], qwen3_moe_keys[],
	qwen3_next_keys[], qwen3_5_keys[], qwen3_5_moe_keys[];

#endif
