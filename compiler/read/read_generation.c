/* read_generation.c - generation_config.json: how tokens are drawn where MODEL.toml does not say otherwise.
 *
 * Read are the settings that the logits stage has; what would choose tokens in a way that it does not know passes with
 * the value that changes nothing. Files of a library's older versions keep the same keys in config.json, where its
 * newer ones drop them: read_config.c notes that.
 */
#include "compiler/read/config_keys.h"
#include "compiler/read/read_model.h"
#include "compiler/text/input.h"
#include "compiler/text/json.h"

#include <string.h>

static const SpareKey keys_read[] = {
	{"bos_token_id", FREE}, {"do_sample", IS_FALSE}, {"eos_token_id", FREE}, {"max_new_tokens", 0}, {"min_p", IS_ZERO},
	{"repetition_penalty", IS_ONE}, {"temperature", IS_ONE}, {"top_k", IS_FIFTY}, {"top_p", IS_ONE},
};
static const SpareKey keys_spare[] = {
	{"_commit_hash", FREE}, {"_from_model_config", FREE}, {"assistant_confidence_threshold", FREE},
	{"assistant_early_exit", FREE}, {"assistant_ensemble_weight", 0}, {"assistant_lookbehind", FREE},
	{"bad_words_ids", IS_EMPTY}, {"begin_suppress_tokens", IS_EMPTY}, {"cache_config", FREE},
	{"cache_implementation", FREE}, {"chat_format", FREE}, {"compile_config", FREE}, {"constraints", IS_EMPTY},
	{"continuous_batching_config", FREE}, {"decoder_start_token_id", FREE}, {"disable_compile", FREE},
	{"diversity_penalty", IS_ZERO}, {"dola_layers", 0}, {"early_stopping", FREE},
	{"encoder_no_repeat_ngram_size", IS_ZERO}, {"encoder_repetition_penalty", IS_ONE}, {"epsilon_cutoff", IS_ZERO},
	{"eta_cutoff", IS_ZERO}, {"exponential_decay_length_penalty", 0}, {"force_words_ids", IS_EMPTY},
	{"forced_bos_token_id", 0}, {"forced_decoder_ids", 0}, {"forced_eos_token_id", 0}, {"guidance_scale", IS_ONE},
	{"is_assistant", FREE}, {"length_penalty", FREE}, {"low_memory", FREE}, {"max_cache_len", FREE},
	{"max_length", FREE}, {"max_matching_ngram_size", FREE}, {"max_time", 0}, {"max_window_size", FREE},
	{"min_length", IS_ZERO}, {"min_new_tokens", IS_ZERO}, {"no_repeat_ngram_size", IS_ZERO},
	{"num_assistant_tokens", FREE}, {"num_assistant_tokens_schedule", FREE}, {"num_beam_groups", IS_ONE},
	{"num_beams", IS_ONE}, {"num_return_sequences", IS_ONE}, {"output_attentions", FREE},
	{"output_hidden_states", FREE}, {"output_logits", FREE}, {"output_scores", FREE}, {"pad_token_id", FREE},
	{"penalty_alpha", IS_ZERO}, {"prefill_chunk_size", FREE}, {"prompt_lookup_num_tokens", FREE},
	{"remove_invalid_values", IS_FALSE}, {"renormalize_logits", FREE}, {"return_dict_in_generate", FREE},
	{"sequence_bias", IS_EMPTY}, {"speculation_type", FREE}, {"stop_strings", IS_EMPTY}, {"suppress_tokens", IS_EMPTY},
	{"target_lookbehind", FREE}, {"token_healing", IS_FALSE}, {"top_h", 0}, {"transformers_version", FREE},
	{"trust_remote_code", FREE}, {"typical_p", IS_ONE}, {"use_cache", FREE}, {"use_mtp", FREE},
	{"watermarking_config", 0},
};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static const SpareKey *find_key(const SpareKey *list, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(list[i].name, name) == 0)
			return &list[i];
	return NULL;
}

bool generation_key(const char *name, int *pass)
{
	const SpareKey *k = find_key(keys_read, COUNT(keys_read), name);
	if (!k)
		k = find_key(keys_spare, COUNT(keys_spare), name);
	*pass = k ? k->pass : FREE;
	return k != NULL;
}

static const Value *lookup(const Value *g, const char *key)
{
	const Value *v = value_get(g, key);
	return v && v->kind != VALUE_NULL ? v : NULL;
}

static void read_number(Diags *d, const Value *g, const char *key, double lo, bool above, double hi, double *out)
{
	const Value *v = lookup(g, key);
	if (v)
		want_real(d, A0203, key, v, lo, above, hi, out);
}

static void check_generation_keys(Diags *d, const Value *g)
{
	NameList unknown = {0};
	for (const Value *v = g->first; v; v = v->next) {
		int pass;
		if (!generation_key(v->key, &pass))
			name_in_list(d->arena, &unknown, v);
		else if (!find_key(keys_read, COUNT(keys_read), v->key) && !value_passes(v, pass))
			fail_at(d, A0206, v->at, "%s = %s: this feature is not implemented", v->key, value_text(d->arena, v));
	}
	if (unknown.text)
		note_at(d, A0207, unknown.at, "unknown keys are not used: %s", unknown.text);
}

const Value *read_generation(Compile *c, Config *cf)
{
	enum { LIBRARY_TOP_K = 50 }; /* what sampling without a top_k means to the library that writes these files */
	Diags *d = &c->diags;
	bool absent, sample = false;
	cf->temperature = cf->top_p = cf->min_p = cf->repetition_penalty = -1;
	cf->top_k = cf->max_new_tokens = -1;
	const Value *g = json_read(&c->arena, &c->scratch, d, &json_config_rules,
		input_path(&c->arena, c->cmd.model_dir, "generation_config.json"), &absent);
	if (!g)
		return NULL;
	const Value *v = lookup(g, "do_sample");
	if (v)
		want_bool(d, A0203, "do_sample", v, &sample);
	read_number(d, g, "temperature", 0, false, 100, &cf->temperature);
	read_number(d, g, "top_p", 0, true, 1, &cf->top_p);
	read_number(d, g, "min_p", 0, false, 1, &cf->min_p);
	read_number(d, g, "repetition_penalty", 1e-3, false, 100, &cf->repetition_penalty);
	v = lookup(g, "top_k");
	if (v)
		want_int(d, A0203, "top_k", v, 0, MAX_VOCAB, &cf->top_k);
	else if (sample)
		cf->top_k = LIBRARY_TOP_K;
	v = lookup(g, "max_new_tokens");
	if (v)
		want_int(d, A0203, "max_new_tokens", v, 1, MAX_POSITION, &cf->max_new_tokens);
	if (!sample)
		cf->temperature = 0;
	else if (cf->temperature < 0)
		cf->temperature = 1;
	check_generation_keys(d, g);
	return g;
}
