/* read_layer_kinds.c - what config.json says of layers that not every family has: experts, Gated DeltaNet, a drafting
 * head.
 *
 * Which of these keys count is decided by the family: where it has no such layers they stay what they are elsewhere,
 * values that must change nothing. Where two keys say the same thing, both are read and compared: the pattern of
 * layers as a list and as an interval, the number of experts under its two names.
 */
#include <string.h>

#include "compiler/read_model.h"

typedef struct Reading {
	Diags *d;
	Config *cf;
	const Value *text;
	int traits;
} Reading;

typedef struct LayerKey { const char *name; int traits; int pass; } LayerKey;
enum { READ = -1 };

/* Keys of families with any of the traits: read here, or passing with values that change nothing. */
static const LayerKey layer_keys[] = {
	{"num_experts", FAMILY_EXPERTS, READ}, {"num_local_experts", FAMILY_EXPERTS, READ},
	{"num_experts_per_tok", FAMILY_EXPERTS, READ}, {"moe_intermediate_size", FAMILY_EXPERTS, READ},
	{"norm_topk_prob", FAMILY_EXPERTS, READ}, {"shared_expert_intermediate_size", FAMILY_SHARED, READ},
	{"decoder_sparse_step", FAMILY_EXPERTS, IS_ONE}, {"mlp_only_layers", FAMILY_EXPERTS, IS_EMPTY},
	{"output_router_logits", FAMILY_EXPERTS, FREE}, {"router_aux_loss_coef", FAMILY_EXPERTS, FREE},
	{"linear_num_key_heads", FAMILY_DELTA, READ}, {"linear_num_value_heads", FAMILY_DELTA, READ},
	{"linear_key_head_dim", FAMILY_DELTA, READ}, {"linear_value_head_dim", FAMILY_DELTA, READ},
	{"linear_conv_kernel_dim", FAMILY_DELTA, READ}, {"full_attention_interval", FAMILY_DELTA, READ},
	{"attn_output_gate", FAMILY_DELTA, READ}, {"output_gate_type", FAMILY_DELTA, READ},
	{"mamba_ssm_dtype", FAMILY_DELTA, READ}, {"mtp_num_hidden_layers", FAMILY_DELTA, READ},
	{"mtp_use_dedicated_embeddings", FAMILY_DELTA, IS_FALSE}, {"mlp_bias", FAMILY_DELTA, IS_FALSE},
};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

int family_traits(const Config *cf)
{
	const Family *family = cf->model_type ? family_by_model_type(cf->model_type) : NULL;
	return family ? family->traits : 0;
}

static const LayerKey *find_key(const Config *cf, const char *name)
{
	for (int i = 0; i < COUNT(layer_keys); i++)
		if (strcmp(layer_keys[i].name, name) == 0 && (layer_keys[i].traits & family_traits(cf)))
			return &layer_keys[i];
	return NULL;
}

bool is_layer_key(const Config *cf, const char *name) { return find_key(cf, name) != NULL; }

/* Null counts as absent. */
static const Value *lookup(const Reading *r, const char *key)
{
	const Value *v = value_get(r->text, key);
	return v && v->kind != VALUE_NULL ? v : NULL;
}

static bool read_dim(Reading *r, const char *key, int hi, int *out)
{
	const Value *v = lookup(r, key);
	return v ? want_int(r->d, A0203, key, v, 1, hi, out)
		: fail_at(r->d, A0202, r->text->at, "%s is missing", key);
}

/* Experts ----------------------------------------------------------------------------------------------- */

static void read_experts(Reading *r)
{
	Config *cf = r->cf;
	const Value *a = lookup(r, "num_experts"), *b = lookup(r, "num_local_experts"), *v = lookup(r, "norm_topk_prob");
	cf->at_experts = a ? a->at : b ? b->at : r->text->at;
	bool sizes = read_dim(r, a || !b ? "num_experts" : "num_local_experts", 1 << 14, &cf->n_experts);
	if (a && b && !value_equal(a, b))
		fail_at(r->d, A0205, b->at, "num_local_experts = %s: num_experts in line %d says %s",
			value_text(r->d->arena, b),
			a->at.line, value_text(r->d->arena, a));
	sizes &= read_dim(r, "num_experts_per_tok", 1 << 14, &cf->n_active);
	if (sizes && cf->n_active > cf->n_experts)
		fail_at(r->d, A0205, lookup(r, "num_experts_per_tok")->at, "num_experts_per_tok = %d: num_experts = %d",
			cf->n_active, cf->n_experts);
	if (read_dim(r, "moe_intermediate_size", MAX_DIM, &cf->ffn_dim))
		cf->at_ffn_dim = lookup(r, "moe_intermediate_size")->at;
	if (r->traits & FAMILY_SHARED)
		read_dim(r, "shared_expert_intermediate_size", MAX_DIM, &cf->shared_dim);
	cf->norm_topk = true;
	if (v)
		want_bool(r->d, A0203, "norm_topk_prob", v, &cf->norm_topk);
	else if (!(r->traits & FAMILY_DELTA)) /* the others' files do not have it: their shares always add up to 1 */
		fail_at(r->d, A0202, r->text->at, "norm_topk_prob is missing");
	if (v && !cf->norm_topk && (r->traits & FAMILY_DELTA))
		fail_at(r->d, A0206, v->at, "norm_topk_prob = false: expected true, as %s has it", cf->model_type);
}

/* Gated DeltaNet ------------------------------------------------------------------------------------------ */

static void read_pattern(Reading *r)
{
	const Value *list = lookup(r, "layer_types"), *every = lookup(r, "full_attention_interval");
	int interval = 0, i = 0;
	bool *is_delta = ARENA_ARRAY(r->d->arena, bool, r->cf->n_layers + 1);
	r->cf->is_delta = is_delta;
	if (every && !want_int(r->d, A0203, "full_attention_interval", every, 1, PLAN_MAX_LAYERS, &interval))
		return;
	if (!list && !every)
		fail_at(r->d, A0202, r->text->at, "layer_types is missing, and full_attention_interval as well");
	for (int l = 0; l < r->cf->n_layers && interval; l++)
		is_delta[l] = (l + 1) % interval != 0;
	for (const Value *e = list && list->kind == VALUE_ARRAY ? list->first : NULL; e && i < r->cf->n_layers;
		e = e->next) {
		bool delta = e->kind == VALUE_STRING && strcmp(e->string, "linear_attention") == 0;
		if (interval && delta != is_delta[i]) {
			fail_at(r->d, A0205, e->at, "layer_types[%d] = %s: full_attention_interval = %d in line %d says otherwise",
				i, value_text(r->d->arena, e), interval, every->at.line);
			return;
		}
		is_delta[i++] = delta;
	}
}

/* A word that, where it is there, must be one of two. */
static void check_word(Reading *r, const char *key, const char *a, const char *b)
{
	const Value *v = lookup(r, key);
	const char *word;
	if (v && want_string(r->d, A0203, key, v, &word) && strcmp(word, a) != 0 && strcmp(word, b) != 0)
		fail_at(r->d, A0206, v->at, "%s = %s: expected \"%s\"", key, value_text(r->d->arena, v), a);
}

/* In what its publisher keeps the state; the option state.dtype may say otherwise. */
static void read_state_dtype(Reading *r)
{
	const Value *v = lookup(r, "mamba_ssm_dtype");
	const char *word;
	r->cf->state_dtype = DT_f32;
	if (!v || !want_string(r->d, A0203, "mamba_ssm_dtype", v, &word))
		return;
	r->cf->at_state_dtype = v->at;
	if (strcmp(word, "bfloat16") == 0)
		r->cf->state_dtype = DT_bf16;
	else if (strcmp(word, "float32") != 0)
		fail_at(r->d, A0206, v->at, "mamba_ssm_dtype = %s: expected \"float32\" or \"bfloat16\"",
			value_text(r->d->arena, v));
}

static void read_delta(Reading *r)
{
	Config *cf = r->cf;
	int width = 1;
	bool gate = true;
	const Value *v = lookup(r, "attn_output_gate"), *values = lookup(r, "linear_num_value_heads");
	bool heads = read_dim(r, "linear_num_key_heads", 4096, &cf->n_k_heads);
	heads &= read_dim(r, "linear_num_value_heads", 4096, &cf->n_v_heads);
	if (heads && cf->n_v_heads % cf->n_k_heads)
		fail_at(r->d, A0205, values->at, "linear_num_value_heads = %d: expected a multiple of "
			"linear_num_key_heads = %d", cf->n_v_heads, cf->n_k_heads);
	read_dim(r, "linear_key_head_dim", 4096, &cf->k_dim);
	read_dim(r, "linear_value_head_dim", 4096, &cf->v_dim);
	if (read_dim(r, "linear_conv_kernel_dim", 64, &width) && width < 2)
		fail_at(r->d, A0206, lookup(r, "linear_conv_kernel_dim")->at, "linear_conv_kernel_dim = 1: expected 2 or more");
	cf->n_taps = width - 1;
	if (v && want_bool(r->d, A0203, "attn_output_gate", v, &gate) && !gate)
		fail_at(r->d, A0206, v->at, "attn_output_gate = false: expected true, as %s has it", cf->model_type);
	check_word(r, "output_gate_type", "swish", "silu");
	read_state_dtype(r);
	read_pattern(r);
	v = lookup(r, "mtp_num_hidden_layers");
	cf->at_mtp = v ? v->at : r->text->at;
	if (v)
		want_int(r->d, A0203, "mtp_num_hidden_layers", v, 0, 8, &cf->n_mtp);
}

void read_layer_kinds(Diags *d, const Value *text, Config *cf)
{
	Reading r = {d, cf, text, family_traits(cf)};
	if (r.traits & FAMILY_EXPERTS)
		read_experts(&r);
	if (r.traits & FAMILY_DELTA)
		read_delta(&r);
	for (const Value *v = text->first; v; v = v->next) {
		const LayerKey *key = find_key(cf, v->key);
		if (key && key->pass != READ && !value_passes(v, key->pass))
			fail_at(d, A0206, v->at, "%s = %s: what it asks for is not implemented", v->key, value_text(d->arena, v));
	}
}
