#include "tests/unit/synthetic.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HIDDEN = 64, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64, FFN = 96, VOCAB = 40 };

static int by_name(const void *a, const void *b)
{
	return strcmp(((const StTensor *)a)->name, ((const StTensor *)b)->name);
}

static void tensor(Compile *c, const char *name, int64_t d0, int64_t d1)
{
	int64_t bytes = 2 * d0 * (d1 ? d1 : 1);
	int64_t at = c->model.shards.at[0].bytes;
	*vec_push(&c->arena, &c->model.tensors) = (StTensor){.name = arena_strdup(&c->arena, name),
		.dtype = DT_bf16, .n_dims = d1 ? 2 : 1, .shape = {d0, d1}, .offset = at, .bytes = bytes,
		.is_supported = true, .dtype_text = "BF16"};
	c->model.shards.at[0].bytes = at + bytes;
}

static void layer(Compile *c, int l, const char *model_type)
{
	const struct { const char *name; int64_t d0, d1; } list[] = {
		{"input_layernorm.weight", HIDDEN, 0}, {"post_attention_layernorm.weight", HIDDEN, 0},
		{"self_attn.q_proj.weight", HEADS * HEAD_DIM, HIDDEN},
		{"self_attn.k_proj.weight", KV_HEADS * HEAD_DIM, HIDDEN},
		{"self_attn.v_proj.weight", KV_HEADS * HEAD_DIM, HIDDEN},
		{"self_attn.o_proj.weight", HIDDEN, HEADS * HEAD_DIM}, {"mlp.gate_proj.weight", FFN, HIDDEN},
		{"mlp.up_proj.weight", FFN, HIDDEN}, {"mlp.down_proj.weight", HIDDEN, FFN}};
	for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
		tensor(c, arena_printf(&c->arena, "model.layers.%d.%s", l, list[i].name), list[i].d0, list[i].d1);
	if (strcmp(model_type, "qwen2") == 0) {
		tensor(c, arena_printf(&c->arena, "model.layers.%d.self_attn.q_proj.bias", l), HEADS * HEAD_DIM, 0);
		tensor(c, arena_printf(&c->arena, "model.layers.%d.self_attn.k_proj.bias", l), KV_HEADS * HEAD_DIM, 0);
		tensor(c, arena_printf(&c->arena, "model.layers.%d.self_attn.v_proj.bias", l), KV_HEADS * HEAD_DIM, 0);
	}
	if (strcmp(model_type, "qwen3") == 0) {
		tensor(c, arena_printf(&c->arena, "model.layers.%d.self_attn.q_norm.weight", l), HEAD_DIM, 0);
		tensor(c, arena_printf(&c->arena, "model.layers.%d.self_attn.k_norm.weight", l), HEAD_DIM, 0);
	}
}

void synthetic_family(Compile *c, const char *model_type)
{
	Config *cf = &c->model.config;
	cf->model_type = model_type;
	load_families(c);
	cf->family = family_by_model_type(&c->families, model_type);
	cf->each = cf->family->layer;
	cf->each.n_heads = HEADS;
	cf->each.n_kv_heads = KV_HEADS;
	cf->each.head_dim = HEAD_DIM;
	cf->each.ffn_dim = FFN;
}

void synthetic_model(Compile *c, const char *model_type)
{
	*c = (Compile){0};
	c->diags.arena = &c->arena;
	c->cmd = (CommandLine){.targets = {"sm_90a"}, .n_targets = 1, .jobs = 1};
	Config *cf = &c->model.config;
	*cf = (Config){.hidden_dim = HIDDEN, .n_layers = LAYERS, .vocab = VOCAB, .max_position = 128,
		.norm_eps = 1e-5, .tie_embeddings = true, .bos = -1, .eos = {2}, .n_eos = 1,
		.ropes = {{.kind = ROPE_DEFAULT, .theta = 10000, .rotary_dim = HEAD_DIM}}, .n_ropes = 1};
	synthetic_family(c, model_type);
	cf->at_hidden_dim = cf->at_tie = (Loc){"config.json", 1, 1};
	c->model.options = (Options){.slots = 4, .max_context = 128, .page = 16, .prefill = {32}, .n_prefill = 1,
		.prompt_grid = 16,
		.decode = {1, 4}, .n_decode = 2, .top_p = 1, .repetition_penalty = 1, .max_new_tokens = 16};
	c->model.n_tokens = VOCAB;
	*vec_push(&c->arena, &c->model.shards) = (Shard){"model.safetensors", "model.safetensors", 0};
	tensor(c, "model.embed_tokens.weight", VOCAB, HIDDEN);
	tensor(c, "model.norm.weight", HIDDEN, 0);
	for (int l = 0; l < LAYERS; l++)
		layer(c, l, model_type);
	qsort(c->model.tensors.at, (size_t)c->model.tensors.n, sizeof(StTensor), by_name);
}

void synthetic_layers(Compile *c, int n)
{
	for (int l = LAYERS; l < n; l++)
		layer(c, l, c->model.config.model_type);
	c->model.config.n_layers = n;
	qsort(c->model.tensors.at, (size_t)c->model.tensors.n, sizeof(StTensor), by_name);
}

void synthetic_vocab(Compile *c, int n)
{
	Shard *file = &c->model.shards.at[0];
	c->model.config.vocab = c->model.n_tokens = n;
	for (int i = 0; i < c->model.tensors.n; i++) {
		StTensor *t = &c->model.tensors.at[i];
		if (strcmp(t->name, "model.embed_tokens.weight") != 0)
			continue;
		t->shape[0] = n;
		t->bytes = 2 * (int64_t)n * HIDDEN;
		t->offset = file->bytes; /* behind the others, in place of its old bytes */
		file->bytes += t->bytes;
	}
}

void synthetic_dtype(Compile *c, const char *name, Dtype dtype)
{
	for (int i = 0; i < c->model.tensors.n; i++) {
		StTensor *t = &c->model.tensors.at[i];
		if (strcmp(t->name, name) == 0) {
			t->bytes = t->bytes / dtype_bytes(t->dtype) * dtype_bytes(dtype);
			t->dtype = dtype;
		}
	}
}

void synthetic_free(Compile *c)
{
	arena_release(&c->scratch);
	arena_release(&c->arena);
}
