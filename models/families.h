/* families.h - a builder and a list of keys for each family; the table that names them is compiler/families.c. */
#ifndef MODELS_FAMILIES_H
#define MODELS_FAMILIES_H

#include "compiler/config_keys.h"

void build_llama(Compile *c);
void build_mistral(Compile *c);
void build_qwen2(Compile *c);
void build_qwen3(Compile *c);
void build_qwen3_moe(Compile *c);
void build_qwen3_next(Compile *c);
void build_qwen3_5(Compile *c); /* with experts or without */

/* Of config.json; each list ends with a key without a name (facts.c of the family). */
extern const ConfigKey llama_keys[], mistral_keys[], qwen2_keys[], qwen3_keys[], qwen3_moe_keys[],
	qwen3_next_keys[], qwen3_5_keys[], qwen3_5_moe_keys[];

#endif
