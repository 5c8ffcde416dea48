/* families.c - which folder of models/ serves which model_type and architecture of config.json. */
#include "compiler/builder.h"
#include "models/families.h"

#include <string.h>

#define PLAIN .pre_norm = true, .norm_topk = true
#define HYBRID PLAIN, .qk_norm = QK_NORM_HEAD, .norm_one = true, .has_gate = true

const Family family_table[] = {
	{"llama", {"llama"}, {"LlamaForCausalLM"}, {PLAIN}, false, 0, llama_keys},
	{"mistral", {"mistral"}, {"MistralForCausalLM"}, {PLAIN}, false, 0, mistral_keys},
	{"qwen2", {"qwen2"}, {"Qwen2ForCausalLM"}, {PLAIN, .qkv_bias = true}, false, 0, qwen2_keys},
	{"qwen3", {"qwen3"}, {"Qwen3ForCausalLM"}, {PLAIN, .qk_norm = QK_NORM_HEAD}, false, 0, qwen3_keys},
	{"qwen3_moe", {"qwen3_moe"}, {"Qwen3MoeForCausalLM"}, {PLAIN, .qk_norm = QK_NORM_HEAD}, false, FAMILY_EXPERTS,
		qwen3_moe_keys},
	{"qwen3_next", {"qwen3_next"}, {"Qwen3NextForCausalLM"}, {HYBRID}, true,
		FAMILY_EXPERTS | FAMILY_SHARED | FAMILY_DELTA, qwen3_next_keys},
	{"qwen3_5", {"qwen3_5", "qwen3_5_text"}, {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"}, {HYBRID}, false,
		FAMILY_DELTA, qwen3_5_keys},
	{"qwen3_5_moe", {"qwen3_5_moe", "qwen3_5_moe_text"},
		{"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"}, {HYBRID}, false,
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

void lay_layers(Compile *c)
{
	Config *cf = &c->model.config;
	const LayerSpec *old = cf->layers;
	cf->layers = ARENA_ARRAY(&c->arena, LayerSpec, PLAN_MAX_LAYERS);
	for (int l = 0; l < PLAN_MAX_LAYERS; l++) {
		LayerSpec *s = &cf->layers[l];
		*s = cf->each;
		if (!old)
			continue;
		s->mixer = old[l].mixer;
		s->window = old[l].window;
		s->kv = old[l].kv;
		s->rotate = old[l].rotate;
	}
}

LayerSpec layer_spec(const Config *cf, int l)
{
	if (l < cf->n_layers)
		return cf->layers[l];
	LayerSpec s = cf->each;
	s.kv = DT_bf16;
	s.rotate = false;
	return s;
}

bool any_delta(const Config *cf)
{
	bool any = false;
	for (int l = 0; l < cf->n_layers; l++)
		any |= cf->layers[l].mixer == MIXER_DELTA;
	return any;
}
