/* families.c - which folder of models/ serves which model_type and architecture of config.json. */
#include "models/families.h"

#include <string.h>

const Family family_table[] = {
	{"llama", {"llama"}, {"LlamaForCausalLM"}, build_llama, 0, llama_keys},
	{"mistral", {"mistral"}, {"MistralForCausalLM"}, build_mistral, 0, mistral_keys},
	{"qwen2", {"qwen2"}, {"Qwen2ForCausalLM"}, build_qwen2, 0, qwen2_keys},
	{"qwen3", {"qwen3"}, {"Qwen3ForCausalLM"}, build_qwen3, 0, qwen3_keys},
	{"qwen3_moe", {"qwen3_moe"}, {"Qwen3MoeForCausalLM"}, build_qwen3_moe, FAMILY_EXPERTS,
		qwen3_moe_keys},
	{"qwen3_next", {"qwen3_next"}, {"Qwen3NextForCausalLM"}, build_qwen3_next,
		FAMILY_EXPERTS | FAMILY_SHARED | FAMILY_DELTA, qwen3_next_keys},
	{"qwen3_5", {"qwen3_5", "qwen3_5_text"}, {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"}, build_qwen3_5,
		FAMILY_DELTA, qwen3_5_keys},
	{"qwen3_5_moe", {"qwen3_5_moe", "qwen3_5_moe_text"},
		{"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"}, build_qwen3_5,
		FAMILY_EXPERTS | FAMILY_SHARED | FAMILY_DELTA, qwen3_5_moe_keys},
};
const int n_family_table = sizeof family_table / sizeof family_table[0];

const Family *family_by_model_type(const char *model_type)
{
	for (int i = 0; i < n_family_table; i++)
		for (int j = 0; j < 4 && family_table[i].model_types[j]; j++)
			if (strcmp(family_table[i].model_types[j], model_type) == 0)
				return &family_table[i];
	return NULL;
}
