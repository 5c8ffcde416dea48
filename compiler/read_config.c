/* read_config.c - config.json and generation_config.json.
 *
 * A config is forty keys by a dozen writers, most of them default values nobody looks at. Three kinds are told
 * apart: keys that are read here, checked for type, range and agreement with each other; keys that change the
 * result in a way that is not implemented, which pass only with the value that changes nothing; and keys
 * that change no result. A key of none of the three is named in a note, for it may be of the second kind.
 *
 * The language model's keys stand at the top or under text_config; what says how text is wrapped (vocabulary, tied
 * head, end tokens) may stand at either. Rope parameters stand in rope_parameters, rope_scaling and beside
 * them; wherever a value is found twice it must be the same.
 *
 * Nothing is converted and nothing guessed: 4096.0 and "4096" are not integers. All mistakes are recorded
 * before the pass returns.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compiler/input.h"
#include "compiler/json.h"
#include "compiler/read_model.h"

typedef struct Reading {
	Compile *c;
	Diags *d;
	Config *cf;
	const Value *top, *text; /* config.json; its text_config, or the same */
} Reading;

static const char *const keys_read[] = {
	"architectures", "attention_bias", "auto_map", "bos_token_id", "eos_token_id", "head_dim", "hidden_act",
	"hidden_size", "intermediate_size", "layer_types", "max_position_embeddings", "max_window_layers",
	"mlp_bias", "model_type", "num_attention_heads", "num_hidden_layers", "num_key_value_heads",
	"partial_rotary_factor", "quantization_config", "rms_norm_eps", "rope_parameters", "rope_scaling",
	"rope_theta", "sliding_window", "text_config", "tie_word_embeddings", "use_sliding_window", "vocab_size",
};

static const SpareKey keys_spare[] = {
	/* training, generation helpers of a library, names and versions: no result depends on them */
	{"_name_or_path", FREE}, {"_attn_implementation_autoset", FREE}, {"_commit_hash", FREE},
	{"attention_dropout", FREE}, {"begin_suppress_tokens", FREE}, {"chunk_size_feed_forward", FREE},
	{"classifier_dropout", FREE}, {"dtype", FREE}, {"embd_pdrop", FREE}, {"finetuning_task", FREE},
	{"hidden_dropout", FREE}, {"id2label", FREE}, {"initializer_range", FREE}, {"is_llama_config", FREE},
	{"label2id", FREE},
	{"license", FREE}, {"output_attentions", FREE}, {"output_hidden_states", FREE}, {"pad_token_id", FREE},
	{"prefix", FREE}, {"pretraining_tp", FREE}, {"problem_type", FREE}, {"resid_pdrop", FREE},
	{"return_dict", FREE}, {"sep_token_id", FREE}, {"task_specific_params", FREE}, {"tokenizer_class", FREE},
	{"torch_dtype", FREE}, {"torchscript", FREE}, {"transformers_version", FREE}, {"transformers.js_config", FREE},
	{"unsloth_fixed", FREE}, {"unsloth_version", FREE}, {"use_bfloat16", FREE}, {"use_cache", FREE},
	{"use_return_dict", FREE}, {"rope_interleaved", IS_FALSE}, {"rope_interleave", IS_FALSE},
	/* other arithmetic */
	{"add_cross_attention", IS_FALSE}, {"alibi", IS_FALSE}, {"attention_chunk_size", 0},
	{"attention_multiplier", 0}, {"attention_sinks", IS_FALSE}, {"attn_logit_softcapping", 0},
	{"attn_output_gate", IS_FALSE}, {"attn_temperature_tuning", IS_FALSE}, {"clip_qkv", 0},
	{"compression_config", 0}, {"cross_attention_hidden_size", 0}, {"dual_chunk_attention_config", 0},
	{"embedding_multiplier", IS_ONE}, {"final_logit_softcapping", 0}, {"first_k_dense_replace", IS_ZERO},
	{"is_decoder", IS_FALSE}, {"is_encoder_decoder", IS_FALSE}, {"kv_lora_rank", 0}, {"logit_scale", IS_ONE},
	{"logit_softcapping", 0}, {"logits_scaling", IS_ONE}, {"logits_to_keep", IS_ZERO},
	{"moe_intermediate_size", 0}, {"mup_enabled", IS_FALSE}, {"n_routed_experts", IS_ZERO},
	{"no_rope_layer_interval", 0}, {"no_rope_layers", IS_EMPTY}, {"num_experts", IS_ZERO},
	{"num_experts_per_tok", IS_ZERO}, {"num_local_experts", IS_ZERO}, {"num_nextn_predict_layers", IS_ZERO},
	{"parallel_attn", IS_FALSE}, {"pruned_heads", IS_EMPTY}, {"q_lora_rank", 0}, {"qk_layernorm", IS_FALSE},
	{"query_pre_attn_scalar", 0}, {"residual_multiplier", IS_ONE}, {"rope_local_base_freq", 0},
	{"scale_attention_softmax_in_fp32", FREE}, {"sliding_window_pattern", 0}, {"sparsity_config", IS_EMPTY},
	{"tie_encoder_decoder", IS_FALSE}, {"use_mrope", IS_FALSE}, {"use_parallel_residual", IS_FALSE},
	{"use_qk_norm", IS_FALSE},
};

/* generation_config.json: read, and what would choose tokens in ways that the logits stage does not know */
static const char *const generation_keys_read[] = {
	"bos_token_id", "do_sample", "eos_token_id", "max_new_tokens", "min_p", "repetition_penalty", "temperature",
	"top_k", "top_p",
};
static const SpareKey generation_keys_spare[] = {
	{"_from_model_config", FREE}, {"cache_implementation", FREE}, {"chat_format", FREE}, {"early_stopping", FREE},
	{"length_penalty", FREE}, {"max_length", FREE}, {"max_window_size", FREE}, {"output_attentions", FREE},
	{"output_hidden_states", FREE}, {"output_scores", FREE}, {"pad_token_id", FREE}, {"renormalize_logits", FREE},
	{"return_dict_in_generate", FREE}, {"transformers_version", FREE}, {"trust_remote_code", FREE},
	{"use_cache", FREE}, {"is_assistant", FREE}, {"num_assistant_tokens", FREE},
	{"num_assistant_tokens_schedule", FREE}, {"assistant_confidence_threshold", FREE},
	{"bad_words_ids", IS_EMPTY}, {"begin_suppress_tokens", IS_EMPTY}, {"constraints", IS_EMPTY},
	{"diversity_penalty", IS_ZERO}, {"dola_layers", 0}, {"encoder_no_repeat_ngram_size", IS_ZERO},
	{"encoder_repetition_penalty", IS_ONE}, {"epsilon_cutoff", IS_ZERO}, {"eta_cutoff", IS_ZERO},
	{"exponential_decay_length_penalty", 0}, {"forced_bos_token_id", 0}, {"forced_decoder_ids", 0},
	{"forced_eos_token_id", 0}, {"guidance_scale", IS_ONE}, {"min_length", IS_ZERO}, {"min_new_tokens", IS_ZERO},
	{"no_repeat_ngram_size", IS_ZERO}, {"num_beam_groups", IS_ONE}, {"num_beams", IS_ONE},
	{"num_return_sequences", IS_ONE}, {"penalty_alpha", IS_ZERO}, {"sequence_bias", IS_EMPTY},
	{"stop_strings", IS_EMPTY}, {"suppress_tokens", IS_EMPTY}, {"typical_p", IS_ONE},
	{"watermarking_config", 0},
};

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

bool value_passes(const Value *v, int pass)
{
	if (v->kind == VALUE_NULL || (pass & FREE))
		return true;
	double x = v->kind == VALUE_INT ? (double)v->integer : v->kind == VALUE_REAL ? v->real : NAN;
	return ((pass & IS_FALSE) && v->kind == VALUE_BOOL && !v->boolean) || ((pass & IS_ZERO) && x == 0) ||
		((pass & IS_ONE) && x == 1) ||
		((pass & IS_EMPTY) && (v->kind == VALUE_ARRAY || v->kind == VALUE_TABLE) && v->n == 0);
}

/* Every member of `table` that is not read: harmless, neutral, refused, or named in one note. */
static void check_spare_keys(Reading *r, const Value *table, const char *const *read, int n_read,
	const SpareKey *spare, int n_spare)
{
	const char *unknown = NULL;
	Loc at = {0};
	for (const Value *v = table->first; v; v = v->next) {
		bool known = table == r->text && is_layer_key(r->cf, v->key);
		for (int i = 0; i < n_read && !known; i++)
			known = strcmp(v->key, read[i]) == 0;
		for (int i = 0; i < n_spare && !known; i++) {
			known = strcmp(v->key, spare[i].name) == 0;
			if (known && !value_passes(v, spare[i].pass))
				fail_at(r->d, A0206, v->at, "%s = %s: what it asks for is not implemented", v->key,
					value_text(r->d->arena, v));
		}
		if (known)
			continue;
		if (!unknown)
			at = v->at;
		const char *key = clip_text(r->d->arena, v->key, strlen(v->key), 48);
		unknown = unknown ? arena_printf(r->d->arena, "%s, %s", unknown, key) : key;
		if (strlen(unknown) > 400) /* a note is a line, not a listing */
			break;
	}
	if (unknown)
		note_at(r->d, A0207, at, "unknown keys are not used: %s", unknown);
}

/* A key of the language model; for `shared` ones the top level is asked as well. Null counts as absent. */
static const Value *lookup(const Reading *r, const char *key, bool shared)
{
	const Value *v = value_get(r->text, key);
	if ((!v || v->kind == VALUE_NULL) && shared)
		v = value_get(r->top, key);
	return v && v->kind != VALUE_NULL ? v : NULL;
}

static bool fail_missing(Reading *r, const char *key)
{
	return fail_at(r->d, A0202, r->text->at, "%s is missing", key);
}

static bool read_dim(Reading *r, const char *key, bool shared, int64_t hi, int *out, Loc *at)
{
	const Value *v = lookup(r, key, shared);
	if (!v && !(v = value_get(r->text, key))) /* a null is shown as such */
		return fail_missing(r, key);
	*at = v->at;
	return want_int(r->d, A0203, key, v, 1, hi, out);
}

/* Absent or null: stays as it is. */
static bool read_bool(Reading *r, const char *key, bool *out, Loc *at)
{
	const Value *v = lookup(r, key, false);
	if (!v)
		return true;
	*at = v->at;
	return want_bool(r->d, A0203, key, v, out);
}

/* Which model ------------------------------------------------------------------------------------ */

static const char *known_names(Arena *a, bool architectures)
{
	const char *list = "";
	for (int i = 0; i < n_family_table; i++)
		for (int j = 0; j < 4; j++) {
			const char *name = architectures ? family_table[i].architectures[j] : family_table[i].model_types[j];
			if (name)
				list = arena_printf(a, "%s%s%s", list, *list ? ", " : "", name);
		}
	return list;
}

static void read_architecture(Reading *r)
{
	const Value *v = lookup(r, "architectures", true);
	if (!v) {
		fail_missing(r, "architectures");
		return;
	}
	if (v->kind != VALUE_ARRAY || v->n != 1 || v->first->kind != VALUE_STRING) {
		fail_at(r->d, A0204, v->at, "architectures = %s: expected a list of one name", value_text(r->d->arena, v));
		return;
	}
	const Family *family = r->cf->model_type ? family_by_model_type(r->cf->model_type) : NULL;
	const char *seen = v->first->string, *expected = family ? "" : known_names(r->d->arena, true);
	for (int j = 0; family && j < 4 && family->architectures[j]; j++) {
		if (strcmp(seen, family->architectures[j]) == 0)
			return;
		expected = arena_printf(r->d->arena, "%s%s%s", expected, j ? ", " : "", family->architectures[j]);
	}
	fail_at(r->d, A0204, v->first->at, "architectures = [%s]: expected %s%s",
		value_text(r->d->arena, v->first), family ? "" : "one of ", expected);
}

static void read_kind(Reading *r)
{
	const Value *v = lookup(r, "model_type", false), *code = lookup(r, "auto_map", true);
	if (!v) {
		fail_missing(r, "model_type");
	} else if (want_string(r->d, A0203, "model_type", v, &r->cf->model_type)) {
		r->cf->at_model_type = v->at;
		if (!family_by_model_type(r->cf->model_type))
			fail_at(r->d, A0204, v->at, "model_type = %s: expected one of %s", value_text(r->d->arena, v),
				known_names(r->d->arena, false));
	}
	read_architecture(r);
	if (code && !value_passes(code, IS_EMPTY))
		fail_at(r->d, A0204, code->at, "auto_map names Python code of the checkpoint: it is never run");
	read_quant(r->c, lookup(r, "quantization_config", true));
}

/* Shape ----------------------------------------------------------------------------------------- */

static void read_head_dim(Reading *r, bool sizes_known)
{
	Config *cf = r->cf;
	const Value *v = lookup(r, "head_dim", false);
	if (v) {
		cf->at_head_dim = v->at;
		if (!want_int(r->d, A0203, "head_dim", v, 1, 4096, &cf->head_dim))
			return;
	} else {
		cf->at_head_dim = cf->at_n_heads;
		if (!sizes_known)
			return;
		if (cf->hidden_dim % cf->n_heads) {
			fail_at(r->d, A0205, cf->at_n_heads,
				"head_dim is missing, and num_attention_heads = %d does not divide hidden_size = %d", cf->n_heads,
				cf->hidden_dim);
			return;
		}
		cf->head_dim = cf->hidden_dim / cf->n_heads;
	}
	if (cf->head_dim % 2)
		fail_at(r->d, A0205, cf->at_head_dim, "head_dim = %d: expected an even number, rope turns pairs",
			cf->head_dim);
}

static void read_shape(Reading *r)
{
	Config *cf = r->cf;
	bool hidden = read_dim(r, "hidden_size", false, MAX_DIM, &cf->hidden_dim, &cf->at_hidden_dim);
	read_dim(r, "num_hidden_layers", false, PLAN_MAX_LAYERS, &cf->n_layers, &cf->at_n_layers);
	bool heads = read_dim(r, "num_attention_heads", false, 4096, &cf->n_heads, &cf->at_n_heads);
	if (!(family_traits(cf) & FAMILY_EXPERTS)) /* whose width read_layer_kinds finds */
		read_dim(r, "intermediate_size", false, MAX_DIM, &cf->ffn_dim, &cf->at_ffn_dim);
	read_dim(r, "vocab_size", true, MAX_VOCAB, &cf->vocab, &cf->at_vocab);
	const Value *v = lookup(r, "num_key_value_heads", false);
	cf->n_kv_heads = cf->n_heads;
	cf->at_n_kv_heads = v ? v->at : cf->at_n_heads;
	if (v && want_int(r->d, A0203, "num_key_value_heads", v, 1, 4096, &cf->n_kv_heads) && heads &&
			cf->n_heads % cf->n_kv_heads)
		fail_at(r->d, A0205, v->at, "num_key_value_heads = %d: must divide num_attention_heads = %d",
			cf->n_kv_heads, cf->n_heads);
	read_head_dim(r, hidden && heads);
	read_dim(r, "max_position_embeddings", false, MAX_POSITION, &cf->max_position, &cf->at_max_position);
	v = lookup(r, "rms_norm_eps", false);
	if (v || (v = value_get(r->text, "rms_norm_eps")))
		want_real(r->d, A0203, "rms_norm_eps", v, 0, true, 1, &cf->norm_eps);
	else
		fail_missing(r, "rms_norm_eps");
	v = lookup(r, "hidden_act", false);
	cf->hidden_act = "silu"; /* of all families when the key is absent */
	cf->at_act = v ? v->at : r->text->at;
	if (v && want_string(r->d, A0203, "hidden_act", v, &cf->hidden_act) && strcmp(cf->hidden_act, "silu") != 0)
		fail_at(r->d, A0206, v->at, "hidden_act = %s: expected \"silu\"", value_text(r->d->arena, v));
	read_bool(r, "attention_bias", &cf->attention_bias, &cf->at_bias);
	read_bool(r, "mlp_bias", &cf->mlp_bias, &cf->at_bias);
}

static void read_tie(Reading *r)
{
	const Value *inner = lookup(r, "tie_word_embeddings", false);
	const Value *outer = value_get(r->top, "tie_word_embeddings");
	const Value *v = outer && outer->kind != VALUE_NULL ? outer : inner;
	r->cf->at_tie = v ? v->at : r->text->at;
	if (!v || !want_bool(r->d, A0203, "tie_word_embeddings", v, &r->cf->tie_embeddings))
		return;
	if (inner && !value_equal(inner, v))
		fail_at(r->d, A0205, v->at, "tie_word_embeddings = %s: text_config in line %d says %s",
			value_text(r->d->arena, v), inner->at.line, value_text(r->d->arena, inner));
}

/* Attention windows -------------------------------------------------------------------------------
 *
 * Only full attention is implemented. A window matters only to rows further than it from the start, so it is
 * kept, and check_model refuses a context that is longer. */

/* 1 = layers with a window, 0 = all full, -1 = no layer_types (or a mistake, recorded) */
static int read_layer_types(Reading *r)
{
	const Value *v = lookup(r, "layer_types", false);
	if (!v || !want_array(r->d, A0203, "layer_types", v))
		return -1;
	if (r->cf->n_layers && v->n != r->cf->n_layers)
		fail_at(r->d, A0205, v->at, "layer_types has %d entr%s: num_hidden_layers = %d", v->n,
			v->n == 1 ? "y" : "ies", r->cf->n_layers);
	int windows = 0, i = 0;
	for (const Value *e = v->first; e; e = e->next, i++) {
		if (e->kind == VALUE_STRING && strcmp(e->string, "sliding_attention") == 0)
			windows = 1;
		else if ((family_traits(r->cf) & FAMILY_DELTA) && e->kind == VALUE_STRING &&
				strcmp(e->string, "linear_attention") == 0)
			continue;
		else if (e->kind != VALUE_STRING || strcmp(e->string, "full_attention") != 0)
			fail_at(r->d, A0206, e->at, "layer_types[%d] = %s: expected \"full_attention\" or \"sliding_attention\"",
				i, value_text(r->d->arena, e));
	}
	return windows;
}

static void read_window(Reading *r)
{
	int windows = read_layer_types(r);
	const Value *v = lookup(r, "sliding_window", false), *from = lookup(r, "max_window_layers", false);
	bool is_qwen = r->cf->model_type && strncmp(r->cf->model_type, "qwen", 4) == 0;
	bool on = !is_qwen; /* qwen files always carry a number; a flag says whether it is meant */
	Loc at;
	if (!read_bool(r, "use_sliding_window", &on, &at))
		return;
	int first = 0;
	if (from && !want_int(r->d, A0203, "max_window_layers", from, 0, MAX_DIM, &first))
		return;
	if (windows == 1 && !v) {
		fail_at(r->d, A0202, r->text->at, "sliding_window is missing: layer_types has \"sliding_attention\"");
		return;
	}
	/* layer_types decides, except for mistral, whose attention looks at the number alone */
	bool is_mistral = r->cf->model_type && strcmp(r->cf->model_type, "mistral") == 0;
	bool meant = windows >= 0 && !is_mistral ? windows : on && !(is_qwen && first >= r->cf->n_layers);
	int window;
	if (!v || !meant || !want_int(r->d, A0203, "sliding_window", v, 1, MAX_POSITION, &window))
		return;
	r->cf->window = window;
	r->cf->at_window = v->at;
}

/* Special tokens ---------------------------------------------------------------------------------- */

bool add_eos(Config *cf, int id)
{
	int i = 0;
	while (i < cf->n_eos && cf->eos[i] < id)
		i++;
	if (i < cf->n_eos && cf->eos[i] == id)
		return true;
	if (cf->n_eos == MAX_EOS)
		return false;
	memmove(&cf->eos[i + 1], &cf->eos[i], sizeof cf->eos[0] * (size_t)(cf->n_eos - i));
	cf->eos[i] = id;
	cf->n_eos++;
	return true;
}

static bool read_token(Reading *r, const char *name, const Value *v, int *id)
{
	int vocab = r->cf->vocab ? r->cf->vocab : MAX_VOCAB;
	if (v->kind == VALUE_INT && v->integer >= 0 && v->integer < vocab) {
		*id = (int)v->integer;
		return true;
	}
	return fail_at(r->d, A0210, v->at, "%s = %s: expected a token id from 0 to %d (vocab_size = %d)", name,
		value_text(r->d->arena, v), vocab - 1, vocab);
}

static void read_eos(Reading *r, const Value *table)
{
	const Value *v = value_get(table, "eos_token_id");
	int id, i = 0;
	if (!v || v->kind == VALUE_NULL)
		return;
	if (v->kind == VALUE_ARRAY && v->n == 0)
		fail_at(r->d, A0210, v->at, "eos_token_id = []: expected a token id or a list of some");
	bool is_list = v->kind == VALUE_ARRAY;
	for (const Value *e = is_list ? v->first : v; e; e = is_list ? e->next : NULL, i++) {
		const char *name = is_list ? arena_printf(r->d->arena, "eos_token_id[%d]", i) : "eos_token_id";
		if (read_token(r, name, e, &id) && !add_eos(r->cf, id)) {
			fail_at(r->d, A0210, e->at, "more than %d different eos_token_id", MAX_EOS);
			return;
		}
	}
}

static void read_bos(Reading *r, const Value *table)
{
	const Value *v = value_get(table, "bos_token_id");
	if (v && v->kind != VALUE_NULL)
		read_token(r, "bos_token_id", v, &r->cf->bos);
}

/* What the checkpoint's tensors would be of. Newer writers call the key dtype. */
static void read_dtype(Reading *r, const char *path)
{
	static const struct { const char *name; Dtype dtype; } known[] = {
		{"bfloat16", DT_bf16}, {"float16", DT_f16}, {"float32", DT_f32}};
	const Value *v = lookup(r, "torch_dtype", true);
	const char *text;
	if (!v)
		v = lookup(r, "dtype", true);
	if (!v) {
		fail_at(r->d, A0202, (Loc){path, 0, 0}, "torch_dtype is missing: --random-weights needs it");
		return;
	}
	if (!want_string(r->d, A0203, v->key, v, &text))
		return;
	for (int i = 0; i < COUNT(known); i++)
		if (strcmp(text, known[i].name) == 0) {
			r->cf->dtype = known[i].dtype;
			return;
		}
	fail_at(r->d, A0203, v->at, "%s = %s: expected bfloat16, float16 or float32", v->key,
		value_text(r->d->arena, v));
}

/* generation_config.json ---------------------------------------------------------------------------- */

static void read_generation_number(Reading *r, const Value *g, const char *key, bool above, double hi, double *out)
{
	const Value *v = value_get(g, key);
	if (v && v->kind != VALUE_NULL)
		want_real(r->d, A0203, key, v, 0, above, hi, out);
}

static void read_generation(Reading *r)
{
	enum { LIBRARY_TOP_K = 50 }; /* what sampling without a top_k means to the library that writes these files */
	Config *cf = r->cf;
	Compile *c = r->c;
	bool absent, sample = false;
	cf->temperature = cf->top_p = cf->min_p = cf->repetition_penalty = -1;
	cf->top_k = cf->max_new_tokens = -1;
	const Value *g = json_read(&c->arena, &c->scratch, r->d, &json_config_rules,
		input_path(&c->arena, c->cmd.model_dir, "generation_config.json"), &absent);
	if (!g)
		return;
	const Value *v = value_get(g, "do_sample");
	if (v && v->kind != VALUE_NULL)
		want_bool(r->d, A0203, "do_sample", v, &sample);
	read_generation_number(r, g, "temperature", false, 100, &cf->temperature);
	read_generation_number(r, g, "top_p", true, 1, &cf->top_p);
	read_generation_number(r, g, "min_p", false, 1, &cf->min_p);
	read_generation_number(r, g, "repetition_penalty", true, 100, &cf->repetition_penalty);
	v = value_get(g, "top_k");
	if (v && v->kind != VALUE_NULL)
		want_int(r->d, A0203, "top_k", v, 0, MAX_VOCAB, &cf->top_k);
	else if (sample)
		cf->top_k = LIBRARY_TOP_K;
	v = value_get(g, "max_new_tokens");
	if (v && v->kind != VALUE_NULL)
		want_int(r->d, A0203, "max_new_tokens", v, 1, MAX_POSITION, &cf->max_new_tokens);
	if (!sample)
		cf->temperature = 0;
	else if (cf->temperature < 0)
		cf->temperature = 1;
	read_eos(r, g);
	read_bos(r, g);
	check_spare_keys(r, g, generation_keys_read, COUNT(generation_keys_read), generation_keys_spare,
		COUNT(generation_keys_spare));
}

/* read_config - what the checkpoint says it is.
 *
 *   needs   cmd.model_dir
 *   gives   Model.dir, Model.config, Model.quant
 *   fails   A0102, A0104, A0106, A02xx; all that are found in both files
 */
void read_config(Compile *c)
{
	Config *cf = &c->model.config;
	Reading r = {.c = c, .d = &c->diags, .cf = cf};
	const char *path = c->cmd.config_file ? c->cmd.config_file : input_path(&c->arena, c->cmd.model_dir, "config.json");
	c->model.dir = c->cmd.model_dir;
	cf->bos = -1;
	r.top = json_read(&c->arena, &c->scratch, r.d, &json_config_rules, path, NULL);
	if (!r.top)
		return;
	input_call(r.d, "config.json");
	r.text = value_get(r.top, "text_config");
	if (!r.text || r.text->kind == VALUE_NULL)
		r.text = r.top;
	else if (!want_table(r.d, A0203, "text_config", r.text))
		return;
	read_kind(&r);
	read_shape(&r);
	read_tie(&r);
	read_window(&r);
	if (c->cmd.random_weights)
		read_dtype(&r, path);
	read_rope(r.d, r.text, cf);
	read_layer_kinds(r.d, r.text, cf);
	read_eos(&r, r.top);
	if (r.text != r.top)
		read_eos(&r, r.text);
	read_bos(&r, r.top);
	read_bos(&r, r.text);
	check_spare_keys(&r, r.text, keys_read, COUNT(keys_read), keys_spare, COUNT(keys_spare));
	read_generation(&r);
}
