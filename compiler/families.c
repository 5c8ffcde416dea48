/* families.c - which folder of models/ serves which model_type and architecture of config.json. */
#include "models/families.h"

#include <string.h>

const Family family_table[] = {
	{"llama", {"llama"}, {"LlamaForCausalLM"}, build_llama},
	{"mistral", {"mistral"}, {"MistralForCausalLM"}, build_mistral},
	{"qwen2", {"qwen2"}, {"Qwen2ForCausalLM"}, build_qwen2},
	{"qwen3", {"qwen3"}, {"Qwen3ForCausalLM"}, build_qwen3},
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
