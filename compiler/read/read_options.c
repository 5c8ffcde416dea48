/* read_options.c - MODEL.toml: how a model is to be compiled.
 *
 * Files are merged: models/defaults.toml and the family's, embedded in the program, which have a value for every key,
 * and the user's, from --model or the model folder. So there is no default in this file; where a value has to give way
 * to the checkpoint (a shorter context), the rule is at the option below and the result goes into the plan.
 * option_table.c has every key with type, range and meaning. An unknown key, a value of the wrong type or out of range,
 * a layer, op, template or token that does not exist: an error, never a default.
 */
#include "artifacts/closest.h"
#include "artifacts/formats.h"
#include "artifacts/hash.h"
#include "artifacts/numbers.h"
#include "artifacts/op_table.h"
#include "compiler/pick/times.h"
#include "compiler/read/option_reading.h"
#include "compiler/read/read_model.h"
#include "compiler/text/input.h"
#include "compiler/text/toml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef OptionReading Reading;

static const Value *chosen(const Reading *r, int k) { return option_chosen(r, k); }

/* Which keys there are ------------------------------------------------------------------------------ */

static void collect_keys(Reading *r, const Value *table, const char *prefix, const Value **slots)
{
	for (const Value *v = table->first; v; v = v->next) {
		const char *full = arena_printf(r->d->arena, "%s%s%s", prefix, *prefix ? "." : "", v->key);
		int k = 0;
		if (slots == r->base && strcmp(full, "family") == 0) /* read_family.c has read it */
			continue;
		while (k < N_OPTIONS && strcmp(option_table[k].key, full) != 0)
			k++;
		if (k < N_OPTIONS) {
			slots[k] = v; /* of [config], read_overrides.c has read its content */
		} else if (is_option_section(full) && v->kind == VALUE_TABLE) {
			collect_keys(r, v, full, slots);
		} else if (is_option_section(full)) {
			fail_at(r->d, A0303, v->at, "%s = %s: expected a table", full, value_text(r->d->arena, v));
		} else {
			const char *close = suggest_option(r->d->arena, full);
			fail_at(r->d, A0302, v->key_at, "unknown key %s%s",
				clip_text(r->d->arena, full, strlen(full), 80), did_you_mean(r->d->arena, close));
		}
	}
}

/* Plain options ------------------------------------------------------------------------------------- */

bool option_int(Reading *r, int k, int *out)
{
	const OptionRow *row = &option_table[k];
	return want_int(r->d, A0303, row->key, chosen(r, k), (int64_t)row->lo, (int64_t)row->hi, out);
}

static bool get_real(Reading *r, int k, const Value *v, double *out)
{
	const OptionRow *row = &option_table[k];
	return want_real(r->d, A0303, row->key, v, row->lo, row->above, row->hi, out);
}

static bool get_word(Reading *r, int k, const char *only, const char *why)
{
	const Value *v = chosen(r, k);
	const char *word;
	if (!want_string(r->d, A0303, option_table[k].key, v, &word))
		return false;
	return strcmp(word, only) == 0 || fail_at(r->d, k == FAMILY ? A0304 : A0303, v->at, "%s = %s: expected \"%s\"%s",
		option_table[k].key, value_text(r->d->arena, v), only, why);
}

/* A list of integers in [lo, hi], at least `min` of them; `ascending` strictly. */
static bool get_ints(Reading *r, int k, int64_t hi, int min, bool ascending, int *out, int *n)
{
	const OptionRow *row = &option_table[k];
	const Value *v = chosen(r, k);
	*n = 0;
	if (!want_array(r->d, A0303, row->key, v))
		return false;
	if (v->n < min || v->n > MAX_BUCKETS)
		return fail_at(r->d, A0303, v->at, "%s = %s: expected %d to %d entries", row->key,
			value_text(r->d->arena, v), min, MAX_BUCKETS);
	for (const Value *e = v->first; e; e = e->next) {
		const char *name = arena_printf(r->d->arena, "%s[%d]", row->key, *n);
		if (!want_int(r->d, A0303, name, e, (int64_t)row->lo, hi, &out[*n]))
			return false;
		for (int i = 0; i < *n; i++)
			if (ascending ? out[i] >= out[*n] : out[i] == out[*n])
				return fail_at(r->d, A0303, e->at, "%s = %d after %d: expected %s", name, out[*n], out[i],
					ascending ? "ascending values" : "every value once");
		++*n;
	}
	return true;
}

/* A number of the command line takes the place of the user's file's: noted, and recorded where it is another one. */
static void take_count(Reading *r, int k, const char *flag, int n)
{
	Arena *a = &r->c->arena;
	if (!n)
		return;
	const char *source = arena_printf(a, "%d", n);
	Value *v = arena_alloc(a, sizeof *v);
	*v = (Value){.kind = VALUE_INT, .integer = n, .at = {flag, 0, 0}, .source = source,
		.source_bytes = (int)strlen(source)};
	const Value *old = r->user[k];
	r->user[k] = v;
	if (!old || (old->kind == VALUE_INT && old->integer == n))
		return;
	note_at(r->d, A0308, old->at, "%s = %s is not used: %s %d", option_table[k].key, value_text(a, old), flag, n);
	*vec_push(a, &r->o->resolved) = (Option){arena_printf(a, "replaced.%s", option_table[k].key),
		arena_printf(a, "%s of %s, by %s %d", value_text(a, old), "MODEL.toml", flag, n)};
}

static void read_context(Reading *r)
{
	const Config *cf = &r->c->model.config;
	Options *o = r->o;
	o->at_max_context = chosen(r, MAX_CONTEXT)->at;
	if (!option_int(r, MAX_CONTEXT, &o->max_context) || cf->max_position <= 0)
		return;
	if (o->max_context > cf->max_position && r->user[MAX_CONTEXT])
		fail_at(r->d, A0304, o->at_max_context, "runtime.max_context = %d: max_position_embeddings = %d (%s:%d)",
			o->max_context, cf->max_position, cf->at_max_position.file, cf->at_max_position.line);
	else if (o->max_context > cf->max_position)
		o->max_context = cf->max_position;
	else if (o->max_context < cf->max_position && !r->user[MAX_CONTEXT])
		note_at(r->d, A0309, cf->at_max_position, "the model can read %d tokens; this plan's context is %d, the "
			"default of family %s: --context N changes it", cf->max_position, o->max_context, r->family->name);
}

static void read_pages(Reading *r)
{
	Options *o = r->o;
	if (option_int(r, KV_PAGE, &o->page) && (o->page & (o->page - 1)))
		fail_at(r->d, A0303, chosen(r, KV_PAGE)->at, "kv.page = %d: expected a power of two", o->page);
	want_bool(r->d, A0303, option_table[KV_ROLLING].key, chosen(r, KV_ROLLING), &o->rolling);
	o->rolling = o->rolling && !r->c->cmd.text; /* calibrate looks at all keys of a text */
	option_int(r, CACHE_SNAPSHOTS, &o->snapshots);
	o->at_snapshots = chosen(r, CACHE_SNAPSHOTS)->at;
	if (option_int(r, KV_POOL_TOKENS, &o->pool_tokens) && o->pool_tokens && o->pool_tokens < o->max_context)
		fail_at(r->d, A0304, chosen(r, KV_POOL_TOKENS)->at,
			"kv.pool_tokens = %d: expected 0 or at least runtime.max_context = %d, one sequence must fit",
			o->pool_tokens, o->max_context);
}

/* The family's list ends at the first bucket that holds the most a step may have. A list of the user's stays as it
 * is. */
static void cut_buckets(int *list, int *n, int64_t most)
{
	int keep = 0;
	while (keep < *n && list[keep] < most)
		keep++;
	if (keep == *n)
		return;
	list[keep] = (int)most;
	*n = keep + 1;
}

/* Decode needs a bucket for all slots: where the family's list has none, it goes on to slots themselves. */
static void fit_decode(Options *o)
{
	cut_buckets(o->decode, &o->n_decode, o->slots);
	if (o->decode[o->n_decode - 1] == o->slots)
		return;
	o->n_decode += o->n_decode < MAX_BUCKETS;
	o->decode[o->n_decode - 1] = o->slots;
}

static void read_phases(Reading *r)
{
	Options *o = r->o;
	const int64_t most = (int64_t)option_table[KV_POOL_TOKENS].hi;
	get_ints(r, PREFILL_ROWS, (int64_t)option_table[PREFILL_ROWS].hi, 1, true, o->prefill, &o->n_prefill);
	bool slots = option_int(r, SLOTS, &o->slots);
	if (slots && !o->pool_tokens && (int64_t)o->slots * o->max_context > most)
		fail_at(r->d, A0304, chosen(r, SLOTS)->at, "runtime.slots = %d of runtime.max_context = %d: together at most "
			"%lld tokens, or give kv.pool_tokens", o->slots, o->max_context, (long long)most);
	if (slots && o->n_prefill && !r->user[PREFILL_ROWS]) /* no chunk is longer than what all sequences may hold */
		cut_buckets(o->prefill, &o->n_prefill, o->pool_tokens ? o->pool_tokens : (int64_t)o->slots * o->max_context);
	if (!get_ints(r, DECODE_ROWS, PLAN_MAX_SLOTS, 1, true, o->decode, &o->n_decode) || !slots)
		return;
	if (!r->user[DECODE_ROWS])
		fit_decode(o);
	else if (o->decode[o->n_decode - 1] < o->slots)
		fail_at(r->d, A0304, r->user[DECODE_ROWS]->at,
			"phases.decode = %s: expected a last entry of at least runtime.slots = %d",
			value_text(r->d->arena, r->user[DECODE_ROWS]), o->slots);
}

/* Prompts are cut on a grid of positions, and a step holds whole cells of it: at least one, unless no prompt is that
 * long. */
static void read_grid(Reading *r)
{
	Options *o = r->o;
	if (!option_int(r, PROMPT_GRID, &o->prompt_grid) || o->n_prefill == 0)
		return;
	const int last = o->prefill[o->n_prefill - 1];
	const bool is_delta = has_delta(r->family);
	if (!r->user[PROMPT_GRID] && !is_delta && o->prompt_grid > last)
		o->prompt_grid = last;
	const bool is_cut = o->max_context > o->prompt_grid; /* is there a prompt that may be? */
	if (is_cut && is_delta && o->prompt_grid % PLAN_DELTA_CELL)
		fail_at(r->d, A0304, chosen(r, PROMPT_GRID)->at, "phases.grid = %d: expected a multiple of %d, the rows that "
			"Gated DeltaNet solves together", o->prompt_grid, PLAN_DELTA_CELL);
	if (last < o->prompt_grid && last < o->max_context)
		fail_at(r->d, A0304, chosen(r, PREFILL_ROWS)->at, "phases.prefill = %s: expected a last entry of at least "
			"phases.grid = %d, since prompts are cut only at multiples of it",
			value_text(r->d->arena, chosen(r, PREFILL_ROWS)), o->prompt_grid);
}

/* The user's file, then generation_config.json, then the family's file. */
static void read_sampling_real(Reading *r, int k, double generation, double *out)
{
	*out = generation;
	if (r->user[k] || generation < 0)
		get_real(r, k, chosen(r, k), out);
}

static void read_sampling_int(Reading *r, int k, int generation, int *out)
{
	*out = generation;
	if (r->user[k] || generation < 0)
		option_int(r, k, out);
}

static void read_sampling(Reading *r)
{
	const Config *cf = &r->c->model.config;
	Options *o = r->o;
	read_sampling_real(r, TEMPERATURE, cf->temperature, &o->temperature);
	read_sampling_real(r, TOP_P, cf->top_p, &o->top_p);
	read_sampling_real(r, MIN_P, cf->min_p, &o->min_p);
	read_sampling_real(r, REPETITION_PENALTY, cf->repetition_penalty, &o->repetition_penalty);
	read_sampling_int(r, TOP_K, cf->top_k, &o->top_k);
	read_sampling_int(r, MAX_NEW_TOKENS, cf->max_new_tokens, &o->max_new_tokens);
	int64_t last = cf->vocab > 0 ? cf->vocab - 1 : MAX_VOCAB;
	get_ints(r, STOP, last, 0, false, o->stop, &o->n_stop);
	o->at_stop = chosen(r, STOP)->at;
}

static void read_ignore(Reading *r, const Value *v, bool must_match)
{
	if (!v || !want_array(r->d, A0303, option_table[IGNORE].key, v))
		return;
	int i = 0;
	for (const Value *e = v->first; e; e = e->next, i++) {
		const char *text, *star, *name = arena_printf(r->d->arena, "weights.ignore[%d]", i);
		if (!want_string(r->d, A0303, name, e, &text))
			continue;
		star = strchr(text, '*');
		if (!*text || (star && strchr(star + 1, '*')))
			fail_at(r->d, A0303, e->at, "%s = %s: expected a name with at most one *", name,
				value_text(r->d->arena, e));
		else
			*vec_push(&r->c->arena, &r->o->ignore_tensors) = (NamePattern){text, e->at, must_match};
	}
}

/* name: FORMAT_NAMES = "keep", which is no format. */
static const struct { FormatName name; WeightFormat format; bool is_bf16; } quant_formats[] = {
	{FORMAT_NAMES, FORMAT_PLAIN, false}, {NAME_BF16, FORMAT_PLAIN, true}, {NAME_FP8_BLOCK, FORMAT_FP8_BLOCK, false},
	{NAME_FP8_CHANNEL, FORMAT_FP8_CHANNEL, false}, {NAME_FP8_TENSOR, FORMAT_FP8_TENSOR, false},
	{NAME_NVFP4, FORMAT_NVFP4, false}, {NAME_MXFP4, FORMAT_MXFP4, false}};
enum { N_QUANT_FORMATS = sizeof quant_formats / sizeof quant_formats[0] };

/* Index in quant_formats, or N_QUANT_FORMATS. */
static int quant_format(const char *word)
{
	int k = 0;
	while (k < N_QUANT_FORMATS && strcmp(quant_formats[k].name == FORMAT_NAMES ? "keep"
		: format_names[quant_formats[k].name], word) != 0)
		k++;
	return k;
}

bool option_format(const char *word, WeightFormat *format)
{
	const int k = quant_format(word);
	*format = k < N_QUANT_FORMATS ? quant_formats[k].format : FORMAT_PLAIN;
	return *format != FORMAT_PLAIN;
}

/* What is made of weights goes into the plan, and calibrate's, which is gone again, holds what it must. */
bool option_may_be_made(const Reading *r)
{
	const CommandLine *cmd = &r->c->cmd;
	return cmd->embed_weights || cmd->random_weights || cmd->text;
}

bool option_by_reference(Reading *r, const char *name, const Value *v)
{
	return fail_at(r->d, A0304, v->at, "%s = \"%s\": --weights ref uses the checkpoint's files as they are, so no "
		"format can be changed", name, v->string);
}

/* A table of modules, each with the name of a format. */
static void read_formats(Reading *r, const Value *table)
{
	if (!table || !want_table(r->d, A0303, option_table[QUANT].key, table))
		return;
	for (const Value *v = table->first; v; v = v->next) {
		const char *word, *module = clip_text(r->d->arena, v->key, strlen(v->key), 80);
		const char *name = arena_printf(r->d->arena, "quant.\"%s\"", module);
		if (!want_string(r->d, A0303, name, v, &word))
			continue;
		const int k = quant_format(word);
		if (k == N_QUANT_FORMATS)
			fail_at(r->d, A0303, v->at, "%s = %s: expected fp8-block, fp8-channel, fp8-tensor, nvfp4, mxfp4, bf16 or "
				"keep", name, value_text(r->d->arena, v));
		else if (!*v->key || strncmp(v->key, "re:", 3) == 0)
			fail_at(r->d, A0303, v->key_at, "%s: expected the name of a module, or one with stars", name);
		else if ((quant_formats[k].format != FORMAT_PLAIN || quant_formats[k].is_bf16) && !option_may_be_made(r))
			option_by_reference(r, name, v);
		else
			*vec_push(&r->c->arena, &r->o->quant) = (QuantRule){.modules = {.text = v->key, .at = v->key_at},
				.format = quant_formats[k].format, .is_bf16 = quant_formats[k].is_bf16};
	}
}

/* Pins and bans --------------------------------------------------------------------------------------- */

static const KernelTemplate *find_template(Reading *r, const Value *v, const char *name)
{
	const char **names = ARENA_ARRAY(r->d->arena, const char *, n_kernel_table + 1);
	for (int i = 0; i < n_kernel_table; i++) {
		if (strcmp(kernel_table[i].name, name) == 0)
			return &kernel_table[i];
		names[i] = kernel_table[i].name;
	}
	const char *close = closest_name(name, names, n_kernel_table);
	fail_at(r->d, A0305, v->at, "template = %s: there is no such template%s",
		value_text(r->d->arena, v), close ? did_you_mean(r->d->arena, close) : ", `atlasc kernels` lists them");
	return NULL;
}

static bool read_rule_op(Reading *r, const Value *v, const KernelTemplate *template, const char **op)
{
	OpKind kind;
	const char *names[OP_COUNT];
	if (!want_string(r->d, A0303, "op", v, op))
		return false;
	for (int i = 0; i < OP_COUNT; i++)
		names[i] = op_table[i].name;
	if (!op_from_name(*op, &kind))
		return fail_at(r->d, A0305, v->at, "op = %s: there is no such op%s", value_text(r->d->arena, v),
			did_you_mean(r->d->arena, closest_name(*op, names, OP_COUNT)));
	return !template || template->op == kind || fail_at(r->d, A0304, v->at, "op = \"%s\": template %s implements %s",
		*op, template->name, op_table[template->op].name);
}

static bool read_rule_phase(Reading *r, const Value *v, const char **phase)
{
	if (!want_string(r->d, A0303, "phase", v, phase))
		return false;
	for (int p = 0; p < PROBE; p++)
		if (strcmp(*phase, phase_name((PhaseKind)p)) == 0)
			return true;
	return fail_at(r->d, A0305, v->at, "phase = %s: expected prefill, decode, draft, verify or acquire",
		value_text(r->d->arena, v));
}

/* { WARPS = 8, STAGES = 2 } -> STAGES 2, WARPS 8, every one legal by the template's contract */
static bool read_rule_tunables(Reading *r, const Value *v, const KernelTemplate *t, KernelRule *rule)
{
	const char *names[MAX_TUNABLES];
	if (!want_table(r->d, A0303, "tunables", v))
		return false;
	for (int i = 0; i < t->n_tunables; i++)
		names[i] = t->tunables[i].name;
	bool ok = true;
	for (const Value *e = v->first; e; e = e->next) {
		int i = 0, value, legal = 0;
		while (i < t->n_tunables && strcmp(names[i], e->key) != 0)
			i++;
		if (i == t->n_tunables) {
			const char *close = closest_name(e->key, names, t->n_tunables);
			ok = fail_at(r->d, A0305, e->key_at, "template %s has no tunable %s%s", t->name,
				clip_text(r->d->arena, e->key, strlen(e->key), 48), did_you_mean(r->d->arena, close));
			continue;
		}
		if (!want_int(r->d, A0303, e->key, e, INT32_MIN, INT32_MAX, &value)) {
			ok = false;
			continue;
		}
		const char *list = "";
		for (int j = 0; j < t->tunables[i].n_values; j++) {
			legal |= t->tunables[i].values[j] == value;
			list = arena_printf(r->d->arena, "%s%s%d", list, j ? ", " : "", t->tunables[i].values[j]);
		}
		if (!legal)
			ok = fail_at(r->d, A0312, e->at, "%s = %d: template %s knows %s", e->key, value, t->name, list);
	}
	const char *last = ""; /* by name, whatever their order in the file */
	RuleTunable *list = ARENA_ARRAY(&r->c->arena, RuleTunable, v->n);
	for (int done = 0; ok && done < v->n; done++) {
		const Value *least = NULL;
		for (const Value *e = v->first; e; e = e->next)
			if (strcmp(e->key, last) > 0 && (!least || strcmp(e->key, least->key) < 0))
				least = e;
		last = least->key;
		list[done] = (RuleTunable){last, (int)least->integer};
	}
	rule->tunables = list;
	rule->n_tunables = v->n;
	return ok;
}

/* "first-last" or "layer" */
static bool parse_range(const char *text, int *first, int *last)
{
	char *end;
	if (*text < '0' || *text > '9' || strlen(text) > 9)
		return false;
	*first = *last = (int)strtol(text, &end, 10);
	if (*end == '-' && end[1] >= '0' && end[1] <= '9')
		*last = (int)strtol(end + 1, &end, 10);
	return *end == 0 && *first <= *last;
}

static LayerSpec *layers_of(const Reading *r) { return r->c->model.config.layers; }

static int last_layer(const Reading *r)
{
	int n_layers = r->c->model.config.n_layers;
	return n_layers > 0 ? n_layers - 1 : PLAN_MAX_LAYERS - 1;
}

/* "first-last" or a list: sets named [PLAN_MAX_LAYERS] of each. */
static bool read_layers(Reading *r, const Value *v, bool *named)
{
	const int last = last_layer(r);
	if (v->kind == VALUE_STRING) {
		int from, to;
		if (!parse_range(v->string, &from, &to))
			return fail_at(r->d, A0303, v->at, "layers = %s: expected \"first-last\"",
				value_text(r->d->arena, v));
		if (to > last)
			return fail_at(r->d, A0305, v->at, "layers = \"%s\": the model has layers 0 to %d", v->string, last);
		for (int l = from; l <= to; l++)
			named[l] = true;
	} else if (v->kind != VALUE_ARRAY || v->n == 0) {
		return fail_at(r->d, A0303, v->at, "layers = %s: expected \"first-last\" or a list of layers that is not empty",
			value_text(r->d->arena, v));
	} else {
		for (const Value *e = v->first; e; e = e->next) {
			if (e->kind != VALUE_INT)
				return fail_at(r->d, A0303, e->at, "layers: %s is not a layer", value_text(r->d->arena, e));
			if (e->integer < 0 || e->integer > last)
				return fail_at(r->d, A0305, e->at, "layers: the model has layers 0 to %d, not %lld", last,
					(long long)e->integer);
			if (named[e->integer])
				return fail_at(r->d, A0303, e->at, "layers: %lld occurs twice", (long long)e->integer);
			named[e->integer] = true;
		}
	}
	return true;
}

/* Adds the rule for each run of consecutive layers. */
static bool add_rules(Reading *r, const Value *v, KernelRule rule)
{
	const int last = last_layer(r);
	bool named[PLAN_MAX_LAYERS] = {false};
	rule.layer_first = -1;
	rule.layer_last = r->c->model.config.n_layers;
	if (!v) {
		*vec_push(&r->c->arena, &r->o->rules) = rule;
		return true;
	}
	if (!read_layers(r, v, named))
		return false;
	for (int l = 0; l <= last; l++) {
		if (!named[l])
			continue;
		rule.layer_first = l;
		while (l + 1 <= last && named[l + 1])
			l++;
		rule.layer_last = l;
		*vec_push(&r->c->arena, &r->o->rules) = rule;
	}
	return true;
}

static bool read_rule(Reading *r, const Value *t, bool is_pin)
{
	static const char *const keys[] = {"template", "op", "phase", "layers", "tunables"};
	enum { N_KEYS = sizeof keys / sizeof keys[0] };
	const Value *at[N_KEYS] = {NULL};
	const char *what = is_pin ? "kernels.pin" : "kernels.ban";
	KernelRule rule = {.is_pin = is_pin, .at = t->at};
	bool ok = true;
	for (const Value *v = t->first; v; v = v->next) {
		int k = 0;
		while (k < N_KEYS && strcmp(keys[k], v->key) != 0)
			k++;
		const char *close = k == N_KEYS ? closest_name(v->key, keys, N_KEYS) : NULL;
		if (k < N_KEYS)
			at[k] = v;
		else
			ok = fail_at(r->d, A0302, v->key_at, "unknown key %s.%s%s", what,
				clip_text(r->d->arena, v->key, strlen(v->key), 48), did_you_mean(r->d->arena, close));
	}
	if (!at[0])
		return fail_at(r->d, A0303, t->at, "%s: template is missing", what);
	if (!want_string(r->d, A0303, "template", at[0], &rule.template_name))
		return false;
	const KernelTemplate *template = find_template(r, at[0], rule.template_name);
	ok &= template != NULL;
	if (at[1])
		ok &= read_rule_op(r, at[1], template, &rule.op);
	if (at[2])
		ok &= read_rule_phase(r, at[2], &rule.phase);
	if (at[4] && template)
		ok &= read_rule_tunables(r, at[4], template, &rule);
	return ok && add_rules(r, at[3], rule);
}

static void read_rules(Reading *r, const Value *v, int k)
{
	if (!v || !want_array(r->d, A0303, option_table[k].key, v))
		return;
	for (const Value *t = v->first; t; t = t->next)
		if (want_table(r->d, A0303, option_table[k].key, t))
			read_rule(r, t, k == PIN);
}

/* The cache, layer by layer --------------------------------------------------------------------------- */

static bool read_kv_format(Reading *r, const char *name, const Value *v, Dtype *out)
{
	const Config *cf = &r->c->model.config;
	const char *word;
	if (!want_string(r->d, A0303, name, v, &word))
		return false;
	if (!cache_from_name(word, out))
		return fail_at(r->d, A0303, v->at, "%s = %s: expected \"bf16\", \"fp8\" or \"nvfp4\"", name,
			value_text(r->d->arena, v));
	if (*out == DT_e2m1 && cf->each.head_dim > 0 && cf->each.head_dim % NVFP4_GROUP)
		return fail_at(r->d, A0304, v->at, "%s = \"nvfp4\": head_dim = %d (%s:%d) is not a multiple of %d "
			"elements, which share a scale", name, cf->each.head_dim, cf->at_head_dim.file, cf->at_head_dim.line,
			NVFP4_GROUP);
	if (*out != DT_bf16 && !r->o->at_kv.file)
		r->o->at_kv = v->at;
	return true;
}

static void read_kv_ends(Reading *r)
{
	const int n = last_layer(r) + 1;
	for (int k = KV_BF16_FIRST; k <= KV_BF16_LAST; k++) {
		int count;
		if (!option_int(r, k, &count))
			continue;
		if (count > n)
			fail_at(r->d, A0304, chosen(r, k)->at, "%s = %d: the model has %d layers", option_table[k].key, count, n);
		for (int i = 0; i < count && i < n; i++)
			layers_of(r)[k == KV_BF16_FIRST ? i : n - 1 - i].kv = DT_bf16;
	}
}

static bool read_layers_rotate(Reading *r, const Value *v, const Value *format, Dtype dtype)
{
	bool is_wanted;
	return want_bool(r->d, A0303, "kv.layers.rotate", v, &is_wanted) && (!is_wanted || dtype != DT_bf16 ||
		fail_at(r->d, A0304, v->at, "kv.layers.rotate = true: dtype = %s, only keys that become codes are "
			"rotated", value_text(r->d->arena, format)));
}

/* [[kv.layers]] */
static void read_kv_layers(Reading *r, const Value *list)
{
	static const char *const keys[] = {"layers", "dtype", "rotate"};
	bool taken[PLAN_MAX_LAYERS] = {false};
	if (!list || !want_array(r->d, A0303, "kv.layers", list))
		return;
	for (const Value *t = list->first; t; t = t->next) {
		bool named[PLAN_MAX_LAYERS] = {false};
		Dtype dtype;
		if (!want_table(r->d, A0303, "kv.layers", t))
			continue;
		for (const Value *v = t->first; v; v = v->next)
			if (strcmp(v->key, keys[0]) != 0 && strcmp(v->key, keys[1]) != 0 && strcmp(v->key, keys[2]) != 0)
				fail_at(r->d, A0302, v->key_at, "unknown key kv.layers.%s%s",
					clip_text(r->d->arena, v->key, strlen(v->key), 48),
					did_you_mean(r->d->arena, closest_name(v->key, keys, 3)));
		const Value *layers = value_get(t, keys[0]), *format = value_get(t, keys[1]), *rotate = value_get(t, keys[2]);
		if (!layers || !format)
			fail_at(r->d, A0303, t->at, "kv.layers: %s is missing", layers ? "dtype" : "layers");
		else if (read_layers(r, layers, named) && read_kv_format(r, "kv.layers.dtype", format, &dtype) &&
			(!rotate || read_layers_rotate(r, rotate, format, dtype)))
			for (int l = 0; l <= last_layer(r); l++) {
				const int back = layers_of(r)[l].kv_back;
				if (named[l] && taken[l])
					fail_at(r->d, A0303, layers->at, "kv.layers: layer %d occurs twice", l);
				if (named[l] && back && !named[l - back])
					fail_at(r->d, A0304, layers->at, "kv.layers: layer %d reads the keys and values of layer %d: name "
						"that one", l, l - back);
				if (named[l])
					layers_of(r)[l].kv = dtype;
				if (named[l] && rotate)
					layers_of(r)[l].rotate = rotate->boolean;
				taken[l] |= named[l];
			}
	}
}

/* Products of e2m1 by e2m1 are asked for, as rows of four bits change what the model computes; and only of a GPU that
 * multiplies them: elsewhere they would be decoded, and nothing gained. */
static void read_fp4(Reading *r)
{
	const Value *v = r->user[FP4];
	const char *word;
	if (!v || !want_string(r->d, A0303, option_table[FP4].key, v, &word))
		return;
	r->o->native_fp4 = strcmp(word, "native") == 0;
	if (!r->o->native_fp4 && strcmp(word, "weight_only") != 0)
		fail_at(r->d, A0303, v->at, "kernels.fp4 = %s: expected \"native\" or \"weight_only\"",
			value_text(r->d->arena, v));
	for (int i = 0; r->o->native_fp4 && i < r->c->cmd.n_targets; i++) {
		const Target *t = target_by_name(r->c->cmd.targets[i]);
		if (t && !multiplies_fp4(t))
			fail_at(r->d, A0706, v->at, "kernels.fp4 = \"native\": %s has no tensor cores that multiply e2m1 by e2m1 "
				"with a scale for each 16 columns; sm_120a and sm_121a have, and weight_only works on every target",
				t->name);
	}
}

static void read_fuse(Reading *r)
{
	const Value *v = r->user[FUSE];
	bool fuse = true;
	if (v && want_bool(r->d, A0303, option_table[FUSE].key, v, &fuse))
		r->o->no_fusion = !fuse;
}

static void read_numerics(Reading *r)
{
	const Value *v = r->user[INVARIANT];
	if (v && want_bool(r->d, A0303, option_table[INVARIANT].key, v, &r->o->is_invariant))
		r->o->at_invariant = v->at;
	if (r->user[FP8_ROWS])
		option_int(r, FP8_ROWS, &r->o->fp8_rows);
}

static void read_parallel(Reading *r)
{
	const Value *ranks = r->user[PARALLEL_RANKS], *experts = r->user[PARALLEL_EXPERTS];
	const char *word;
	int n = 1;
	if (ranks && option_int(r, PARALLEL_RANKS, &n) && (n & (n - 1)))
		fail_at(r->d, A0303, ranks->at, "%s = %d: expected 1, 2, 4 or 8", option_table[PARALLEL_RANKS].key, n);
	r->o->n_ranks = n;
	r->o->nccl_above = -1;
	if (r->user[PARALLEL_NCCL])
		option_int(r, PARALLEL_NCCL, &r->o->nccl_above);
	r->o->at_ranks = ranks ? ranks->at : (Loc){0};
	if (!experts || !want_string(r->d, A0303, option_table[PARALLEL_EXPERTS].key, experts, &word))
		return;
	r->o->cuts_experts = strcmp(word, "cut") == 0;
	if (!r->o->cuts_experts && strcmp(word, "whole") != 0)
		fail_at(r->d, A0303, experts->at, "%s = %s: expected \"whole\" or \"cut\"", option_table[PARALLEL_EXPERTS].key,
			value_text(r->d->arena, experts));
}

/* A path in MODEL.toml starts at the folder of that file. */
const char *option_path(Reading *r, const Value *v, const char *name)
{
	const char *slash = strrchr(v->at.file, '/');
	return *name == '/' || !slash ? name : input_path(&r->c->arena,
		arena_strndup(&r->c->arena, v->at.file, (size_t)(slash - v->at.file) + 1), name);
}

static void read_kv_scales(Reading *r)
{
	const Value *v = chosen(r, KV_SCALES);
	const char *name;
	if (!want_string(r->d, A0303, option_table[KV_SCALES].key, v, &name) || !*name)
		return;
	r->o->at_kv_scales = v->at;
	r->o->kv_scales = option_path(r, v, name);
}

static void read_kv(Reading *r)
{
	Options *o = r->o;
	Dtype all = DT_bf16;
	bool rotate = false;
	read_kv_format(r, option_table[KV_DTYPE].key, chosen(r, KV_DTYPE), &all);
	want_bool(r->d, A0303, option_table[KV_ROTATE].key, chosen(r, KV_ROTATE), &rotate);
	LayerSpec *layers = layers_of(r);
	for (int l = 0; l < PLAN_MAX_LAYERS; l++) {
		layers[l].kv = all;
		layers[l].rotate = rotate;
	}
	read_kv_ends(r);
	read_kv_layers(r, chosen(r, KV_LAYERS));
	for (int l = 0; l <= last_layer(r); l++)
		layers[l].rotate = layers[l].rotate && layers[l].kv != DT_bf16;
	for (int l = 0; l <= last_layer(r); l++) {
		layers[l].rotate = layers[l - layers[l].kv_back].rotate;
		layers[l].kv = layers[l - layers[l].kv_back].kv;
	}
	read_kv_scales(r);
	for (int l = 0; r->c->cmd.text && l < PLAN_MAX_LAYERS; l++) { /* calibrate: scales are still to be made */
		layers[l].kv = DT_bf16;
		layers[l].rotate = false;
	}
	o->kv_scales = r->c->cmd.text ? NULL : o->kv_scales;
}

/* States --------------------------------------------------------------------------------------------- */

static void read_state(Reading *r)
{
	const Config *cf = &r->c->model.config;
	const Value *v = chosen(r, STATE_DTYPE);
	const bool has_states = has_delta(r->family);
	const char *word, *name = option_table[STATE_DTYPE].key;
	r->o->state = has_states ? cf->state_dtype : DT_f32;
	if (v && want_string(r->d, A0303, name, v, &word)) {
		r->o->state = strcmp(word, "bf16") == 0 ? DT_bf16 : DT_f32;
		if (r->o->state == DT_f32 && strcmp(word, "f32") != 0)
			fail_at(r->d, A0303, v->at, "%s = %s: expected \"f32\" or \"bf16\"", name, value_text(r->d->arena, v));
		if (r->o->state == DT_bf16 && !has_states)
			fail_at(r->d, A0304, v->at, "%s = \"bf16\": %s has no recurrent states; the families that have them are "
				"%s", name, r->family->name, families_text(r->d->arena, &r->c->families, has_delta));
	}
	if (has_states && cf->state_dtype == DT_bf16)
		note_at(r->d, A0212, cf->at_state_dtype, "%s = \"bfloat16\": states are kept in %s, as %s",
			key_of_reader(r->family, READER_STATE_DTYPE)->name, dtype_name(r->o->state),
			!v ? "that says; [state] dtype in MODEL.toml decides"
			: arena_printf(r->d->arena, "%s in %s:%d says", name, v->at.file, v->at.line));
}

/* What goes into the plan ----------------------------------------------------------------------------- */

static void resolve(Reading *r, const char *name, const char *value)
{
	*vec_push(&r->c->arena, &r->o->resolved) = (Option){name, value};
}

static const char *real_text(Arena *a, double x)
{
	for (int digits = 1;; digits++) { /* the shortest that reads back as x */
		const char *text = arena_printf(a, "%.*g", digits, x);
		if (digits == 17 || strtod(text, NULL) == x)
			return text;
	}
}

static const char *ints_text(Arena *a, const int *v, int n)
{
	const char *text = "[";
	for (int i = 0; i < n; i++)
		text = arena_printf(a, "%s%s%d", text, i ? ", " : "", v[i]);
	return arena_printf(a, "%s]", text);
}

static const char *ladder_text(Arena *a, const Options *o)
{
	const char *text = "[";
	for (int i = 0; i < o->n_ladder; i++)
		text = arena_printf(a, "%s%s[%d, %d]", text, i ? ", " : "", o->ladder[i].slots, o->ladder[i].rows);
	return arena_printf(a, "%s]", text);
}

static int by_name(const void *x, const void *y)
{
	return strcmp(((const Option *)x)->name, ((const Option *)y)->name);
}

static void resolve_rules(Reading *r)
{
	Arena *a = &r->c->arena;
	int n[2] = {0};
	for (const Value *v = r->user[QUANT] ? r->user[QUANT]->first : NULL; v; v = v->next)
		resolve(r, arena_printf(a, "quant.%s", v->key), v->string);
	for (int i = 0; i < r->o->rules.n; i++) {
		const KernelRule *k = &r->o->rules.at[i];
		const char *text = arena_printf(a, "template=%s", k->template_name);
		if (k->op)
			text = arena_printf(a, "%s op=%s", text, k->op);
		if (k->phase)
			text = arena_printf(a, "%s phase=%s", text, k->phase);
		if (k->layer_first >= 0)
			text = arena_printf(a, "%s layers=%d-%d", text, k->layer_first, k->layer_last);
		if (k->n_tunables)
			text = arena_printf(a, "%s %s", text, rule_tunables(a, k));
		resolve(r, arena_printf(a, "kernels.%s.%03d", k->is_pin ? "pin" : "ban", n[k->is_pin]++), text);
	}
}

/* "bf16 0, fp8 1-30, bf16 31", "fp8 rotated 0-31": each layer once. */
static const char *kv_text(Reading *r)
{
	Arena *a = &r->c->arena;
	const LayerSpec *s = layers_of(r);
	const char *text = "";
	for (int l = 0, end; l <= last_layer(r); l = end) {
		for (end = l + 1; end <= last_layer(r) && s[end].kv == s[l].kv && s[end].rotate == s[l].rotate;)
			end++;
		text = arena_printf(a, "%s%s%s%s %d", text, l ? ", " : "", cache_name(s[l].kv), s[l].rotate ? " rotated" : "",
			l);
		if (end > l + 1)
			text = arena_printf(a, "%s-%d", text, end - 1);
	}
	return text;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static const char *facts_hash(Reading *r)
{
	uint8_t hash[32];
	char *text = arena_alloc(&r->c->arena, 65);
	sha256_of(r->family->text, r->family->n_text, hash);
	for (int i = 0; i < 32; i++)
		sprintf(text + 2 * i, "%02x", hash[i]);
	return text;
}

static void resolve_options(Reading *r)
{
	Arena *a = &r->c->arena;
	const Options *o = r->o;
	const char *ignore = "[";
	for (int i = 0; i < o->ignore_tensors.n; i++)
		ignore = arena_printf(a, "%s%s%s", ignore, i ? ", " : "", o->ignore_tensors.at[i].text);
	const struct { int k; int value; } ints[] = {
		{SLOTS, o->slots}, {MAX_CONTEXT, o->max_context}, {KV_PAGE, o->page}, {KV_POOL_TOKENS, o->pool_tokens},
		{PROMPT_GRID, o->prompt_grid}, {CACHE_SNAPSHOTS, o->snapshots},
		{KV_BF16_FIRST, (int)chosen(r, KV_BF16_FIRST)->integer}, {KV_BF16_LAST, (int)chosen(r, KV_BF16_LAST)->integer},
		{TOP_K, o->top_k}, {MAX_NEW_TOKENS, o->max_new_tokens},
	};
	const struct { int k; double value; } reals[] = {
		{TEMPERATURE, o->temperature}, {TOP_P, o->top_p}, {MIN_P, o->min_p},
		{REPETITION_PENALTY, o->repetition_penalty},
	};
	for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++)
		resolve(r, option_table[ints[i].k].key, arena_printf(a, "%d", ints[i].value));
	for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
		resolve(r, option_table[reals[i].k].key, real_text(a, reals[i].value));
	resolve(r, option_table[FAMILY].key, r->family->name);
	if (r->family->is_users)
		resolve(r, "family.facts", arena_printf(a, "%s, sha256 %s", r->family->input, facts_hash(r)));
	resolve(r, option_table[KV_DTYPE].key, chosen(r, KV_DTYPE)->string);
	if (r->user[KV_ROTATE])
		resolve(r, option_table[KV_ROTATE].key, r->user[KV_ROTATE]->boolean ? "true" : "false");
	if (r->user[KV_ROLLING])
		resolve(r, option_table[KV_ROLLING].key, r->user[KV_ROLLING]->boolean ? "true" : "false");
	if (o->kv_scales)
		resolve(r, option_table[KV_SCALES].key, base_name(chosen(r, KV_SCALES)->string));
	if (r->user[FP4])
		resolve(r, option_table[FP4].key, r->user[FP4]->string);
	if (r->user[FUSE])
		resolve(r, option_table[FUSE].key, o->no_fusion ? "false" : "true");
	if (has_delta(r->family))
		resolve(r, option_table[STATE_DTYPE].key, dtype_name(o->state));
	if (o->ngram_max)
		resolve(r, option_table[SPECULATE_DRAFTER].key, DRAFTER_NGRAM);
	if (o->ngram_max)
		resolve(r, option_table[SPECULATE_NGRAM].key, ints_text(a, (int[]){o->ngram_min, o->ngram_max}, 2));
	if (o->n_ladder > 1)
		resolve(r, option_table[SPECULATE_LADDER].key, ladder_text(a, o));
	else if (r->base[SPECULATE_ROWS] || o->ngram_max)
		resolve(r, option_table[SPECULATE_ROWS].key, arena_printf(a, "%d", o->verify_rows));
	if (o->draft_format != FORMAT_PLAIN)
		resolve(r, option_table[SPECULATE_HEAD].key, r->user[SPECULATE_HEAD]->string);
	if (o->n_draft_ids)
		resolve(r, option_table[SPECULATE_VOCABULARY].key, arena_printf(a, "%d", o->n_draft_ids));
	if (o->draft_ids_file)
		resolve(r, option_table[SPECULATE_VOCABULARY_FILE].key, base_name(o->draft_ids_file));
	if (r->user[CARD])
		resolve(r, option_table[CARD].key, r->user[CARD]->string);
	if (r->user[INVARIANT])
		resolve(r, option_table[INVARIANT].key, o->is_invariant ? "true" : "false");
	if (r->user[FP8_ROWS])
		resolve(r, option_table[FP8_ROWS].key, arena_printf(a, "%d", o->fp8_rows));
	if (o->n_ranks > 1)
		resolve(r, option_table[PARALLEL_RANKS].key, arena_printf(a, "%d", o->n_ranks));
	if (o->n_ranks > 1 && o->nccl_above >= 0)
		resolve(r, option_table[PARALLEL_NCCL].key, arena_printf(a, "%d", o->nccl_above));
	if (o->n_ranks > 1)
		resolve(r, option_table[PARALLEL_EXPERTS].key, o->cuts_experts ? "cut" : "whole");
	resolve(r, option_table[KV_LAYERS].key, kv_text(r));
	resolve(r, option_table[PREFILL_ROWS].key, ints_text(a, o->prefill, o->n_prefill));
	resolve(r, option_table[DECODE_ROWS].key, ints_text(a, o->decode, o->n_decode));
	resolve(r, option_table[STOP].key, ints_text(a, o->stop, o->n_stop));
	resolve(r, option_table[IGNORE].key, arena_printf(a, "%s]", ignore));
	resolve_rules(r);
	qsort(o->resolved.at, (size_t)o->resolved.n, sizeof o->resolved.at[0], by_name);
}

/* The pass ---------------------------------------------------------------------------------------------- */

/* A layer of defaults: an embedded file or the family's. */
static void read_base(Reading *r, const Value *t, const char *input, const char *text, size_t n)
{
	input_note(r->d, input, text, n);
	collect_keys(r, t, "", r->base);
}

static void read_defaults(Reading *r)
{
	Compile *c = r->c;
	const Family *f = r->family;
	for (int i = 0; i < n_family_toml; i++) {
		const char *text = family_toml[i].text;
		if (strcmp(family_toml[i].name, "defaults") != 0)
			continue;
		const Value *t = toml_parse(&c->arena, r->d, "models/defaults.toml", text, strlen(text));
		if (t)
			read_base(r, t, "models-defaults.toml", text, strlen(text));
	}
	for (int k = 0; k < N_OPTIONS; k++)
		if (!r->base[k] && option_table[k].type < T_FORMATS && k != FAMILY)
			bug("models/defaults.toml has no %s", option_table[k].key);
	read_base(r, f->facts, f->input, f->text, f->n_text);
}

static void read_user_file(Reading *r)
{
	const Value *t = r->c->model.toml;
	if (!t)
		return;
	collect_keys(r, t, "", r->user);
	const Value *const paths[] = {r->user[KV_SCALES], r->user[SPECULATE_VOCABULARY_FILE]};
	r->o->text = value_text_without_folders(&r->c->arena, r->o->text, paths, sizeof paths / sizeof paths[0]);
}

/* read_options - MODEL.toml, resolved.
 *
 *   needs   config (its family decides whose defaults hold)
 *   gives   Model.options, complete; Compile.tunings
 *   fails   A0102, A0104, A0106, A03xx, A0703, A0707; all that are found, but of bad TOML only the first
 */
void read_options(Compile *c)
{
	Reading r = {.c = c, .d = &c->diags, .o = &c->model.options};
	r.family = c->model.config.family;
	int before = r.d->n_errors;
	read_model_toml(c);
	read_user_file(&r);
	take_count(&r, MAX_CONTEXT, "--context", c->cmd.context);
	take_count(&r, SLOTS, "--slots", c->cmd.slots);
	const char *card = NULL;
	const Value *of_card = r.user[CARD];
	if (of_card)
		(void)want_string(r.d, A0303, option_table[CARD].key, of_card, &card);
	read_tuning(c, card, of_card ? of_card->at : (Loc){0});
	if (!r.family) /* read_config has said so; without the family's file there is nothing to resolve */
		return;
	read_defaults(&r);
	if (r.user[FAMILY])
		get_word(&r, FAMILY, r.family->name, ", the family of config.json");
	read_context(&r);
	read_pages(&r);
	read_kv(&r);
	read_phases(&r);
	read_grid(&r);
	read_sampling(&r);
	read_ignore(&r, r.base[IGNORE], false);
	read_ignore(&r, r.user[IGNORE], true);
	read_formats(&r, r.user[QUANT]);
	read_fp4(&r);
	read_fuse(&r);
	read_numerics(&r);
	read_parallel(&r);
	read_state(&r);
	read_speculate(&r);
	for (int k = PIN; k <= BAN; k++) {
		read_rules(&r, r.base[k], k);
		read_rules(&r, r.user[k], k);
	}
	if (r.d->n_errors == before)
		resolve_options(&r);
}
