/* read_family.c - the facts of a family, from its file.
 *
 * A file has a table [family] with a name, the model types and architectures that it serves, and below it
 *
 *   keys     of config.json, as the class in transformers reads them, with its defaults
 *   layer    what its layers have whatever the keys say
 *   layers   words of layer_types
 *   tensors  names of tensors by role, where they are not the usual ones
 *   draft    its drafting head
 *
 * and, next to [family], options of MODEL.toml in which it differs from models/defaults.toml. Every mistake is recorded
 * with its place before the compile stops; those of an embedded file are found by tests.
 */
#include "artifacts/closest.h"
#include "compiler/read/config_keys.h"
#include "compiler/text/input.h"
#include "compiler/text/toml.h"
#include "compiler/tokenizer/tokenizer_config.h"

#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define FIELD(field) offsetof(Config, field)

typedef struct Facts { Compile *c; Diags *d; Family *f; } Facts;

#define wrong(r, v, ...) fail_at((r)->d, A0216, (v)->at, __VA_ARGS__)

/* Keys of config.json ------------------------------------------------------------------------------------- */

#define CODE(key) {.name = key, .rule = KEY_CODE}
#define SHARED_CODE(key) {.name = key, .rule = KEY_CODE, .flags = SHARED}

/* What all families have with one meaning; a family's own key of the same name takes its place. */
static const ConfigKey common_keys[] = {
	SHARED_CODE("architectures"), SHARED_CODE("auto_map"), SHARED_CODE("quantization_config"),
	SHARED_CODE("tie_word_embeddings"), CODE("model_type"), CODE("text_config"), CODE("rope_parameters"),
	CODE("rope_scaling"), CODE("rope_theta"), CODE("partial_rotary_factor"), CODE("original_max_position_embeddings"),
	{"hidden_size", KEY_INT, 0, NEEDED, FIELD(hidden_dim), {0}, FIELD(at_hidden_dim), 1, MAX_DIM, 0, 0, NULL},
	{"num_hidden_layers", KEY_INT, 0, NEEDED, FIELD(n_layers), {0}, FIELD(at_n_layers), 1, PLAN_MAX_LAYERS, 0, 0,
		NULL},
	{"num_attention_heads", KEY_INT, 0, NEEDED, FIELD(each.n_heads), {0}, 0, 1, MAX_HEADS, 0, 0, NULL},
	{"vocab_size", KEY_INT, 0, NEEDED | SHARED, FIELD(vocab), {0}, FIELD(at_vocab), 1, MAX_VOCAB, 0, 0, NULL},
	{"max_position_embeddings", KEY_INT, 0, NEEDED, FIELD(max_position), {0}, FIELD(at_max_position), 1,
		MAX_POSITION, 0, 0, NULL},
	{"rms_norm_eps", KEY_REAL, 0, 0, FIELD(norm_eps), {0}, 0, 0, 1, 1e-6, 0, NULL},
	{.name = "hidden_act", .rule = KEY_MUST, .word = "silu"},
};

/* What a key may be: the word of `is`. A size has no meaningful default, unless the class has one or other keys
 * give it (DERIVED). */
enum { DERIVED = 1 << 8, HAS_DEFAULT = 1 << 9 /* must have one */, MAX_THETA = 1000000000 };
/* Meanings of keys that all files of a checkpoint, or all families, have under one name. */
static const struct { const char *word, *key; } fixed_names[] = {{"bos", "bos_token_id"}, {"eos", "eos_token_id"},
	{"tied", "tie_word_embeddings"}, {"rope_theta", "rope_theta"}, {"code", "auto_map"}};
typedef struct Meaning {
	const char *word;
	ConfigKey key; /* but for its name */
} Meaning;
#define SIZE(word, field, most) {word, {.rule = KEY_INT, .flags = NEEDED, .to = FIELD(field), .lo = 1, .hi = most}}
#define SWITCH(word, field) {word, {.rule = KEY_BOOL, .flags = HAS_DEFAULT, .to = FIELD(field)}}
#define READ(word, how, ...) {word, {.rule = KEY_CODE, .reader = how, __VA_ARGS__}}
static const Meaning meanings[] = {
	{"head_dim", {.rule = KEY_INT, .flags = DERIVED, .to = FIELD(each.head_dim), .at = FIELD(at_head_dim), .lo = 1,
		.hi = 4096}},
	{"n_kv_heads", {.rule = KEY_INT, .flags = DERIVED, .to = FIELD(each.n_kv_heads), .lo = 1, .hi = MAX_HEADS}},
	SIZE("ffn_dim", each.ffn_dim, MAX_DIM), SIZE("shared_dim", each.shared_dim, MAX_DIM),
	{"expert_dim", {.rule = KEY_INT, .flags = NEEDED, .to = FIELD(expert_dim), .lo = 1, .hi = MAX_DIM}},
	{"full_head_dim", {.rule = KEY_INT, .flags = HAS_DEFAULT, .to = FIELD(full_head_dim), .lo = 2, .hi = 4096}},
	{"full_kv_heads", {.rule = KEY_INT, .flags = DERIVED, .to = FIELD(full_kv_heads), .lo = 1, .hi = MAX_HEADS}},
	SWITCH("full_v_is_k", full_v_is_k), SWITCH("has_experts", has_experts), SWITCH("double_wide", is_double_wide),
	{"n_kv_shared", {.rule = KEY_INT, .flags = HAS_DEFAULT, .to = FIELD(n_kv_shared), .lo = 0, .hi = PLAN_MAX_LAYERS}},
	{"ple_dim", {.rule = KEY_INT, .flags = HAS_DEFAULT, .to = FIELD(ple_dim), .lo = 0, .hi = MAX_DIM}},
	{"ple_vocab", {.rule = KEY_INT, .flags = HAS_DEFAULT, .to = FIELD(ple_vocab), .lo = 1, .hi = MAX_VOCAB}},
	{"logit_cap", {.rule = KEY_REAL, .flags = DERIVED, .to = FIELD(logit_cap), .lo = 0, .hi = 1e6}},
	SIZE("n_active", each.n_active, MAX_EXPERTS), SIZE("n_k_heads", each.n_k_heads, MAX_HEADS),
	SIZE("n_v_heads", each.n_v_heads, MAX_HEADS), SIZE("k_dim", each.k_dim, 4096), SIZE("v_dim", each.v_dim, 4096),
	SWITCH("qkv_bias", each.qkv_bias), SWITCH("o_bias", each.o_bias), SWITCH("mlp_bias", each.mlp_bias),
	SWITCH("norm_topk", each.norm_topk), SWITCH("has_qk_norm", has_qk_norm),
	{"n_dense", {.rule = KEY_INT, .flags = HAS_DEFAULT, .to = FIELD(n_dense), .lo = 0, .hi = PLAN_MAX_LAYERS}},
	SIZE("dense_dim", dense_dim, MAX_DIM),
	{"n_shared", {.rule = KEY_INT, .flags = HAS_DEFAULT, .to = FIELD(n_shared), .lo = 0, .hi = 64}},
	{"n_groups", {.rule = KEY_INT, .flags = HAS_DEFAULT, .to = FIELD(each.n_groups), .lo = 1, .hi = 32}},
	{"top_groups", {.rule = KEY_INT, .flags = HAS_DEFAULT, .to = FIELD(each.top_groups), .lo = 1, .hi = 32}},
	{"share_scale", {.rule = KEY_REAL, .flags = HAS_DEFAULT, .to = FIELD(each.share_scale), .lo = 0, .hi = 1e4}},
	{"gate_slope", {.rule = KEY_REAL, .flags = HAS_DEFAULT, .to = FIELD(each.gate_slope), .lo = 0, .hi = 1e4}},
	{"gate_limit", {.rule = KEY_REAL, .flags = HAS_DEFAULT, .to = FIELD(each.gate_limit), .lo = 0, .hi = 1e4}},
	{"query_scale", {.rule = KEY_REAL, .flags = DERIVED, .to = FIELD(each.query_scale), .lo = 0, .hi = 1e6}},
	{"n_after", {.rule = KEY_INT, .flags = HAS_DEFAULT, .to = FIELD(n_after), .lo = 0, .hi = 64}},
	READ("sparse_layers", READER_SPARSE_LAYERS, .flags = HAS_DEFAULT, .hi = PLAN_MAX_LAYERS),
	READ("sparse_interval", READER_SPARSE_INTERVAL, .flags = HAS_DEFAULT, .lo = 1, .hi = PLAN_MAX_LAYERS),
	{"scales_from", {.rule = KEY_INT, .flags = HAS_DEFAULT, .to = FIELD(scales_from), .lo = 1, .hi = MAX_POSITION}},
	{"scales_late", {.rule = KEY_BOOL, .flags = HAS_DEFAULT, .to = FIELD(scales_late)}},
	READ("window_heads", READER_WINDOW_HEADS, .flags = 0), READ("window_table", READER_WINDOW_TABLE, .flags = 0),
	READ("layer_tables", READER_LAYER_TABLES, .flags = 0), READ("rotary_parts", READER_ROTARY_PARTS, .flags = 0),
	READ("gate_limits", READER_GATE_LIMITS, .flags = 0), READ("shared_limits", READER_SHARED_LIMITS, .flags = 0),
	READ("mlp_types", READER_MLP_TYPES, .flags = 0), READ("layer_heads", READER_LAYER_HEADS, .flags = 0),
	READ("code", READER_CODE, .flags = 0),
	{"norm_eps", {.rule = KEY_REAL, .flags = HAS_DEFAULT, .to = FIELD(norm_eps), .lo = 0, .hi = 1}},
	{"bos", {.rule = KEY_ID, .flags = SHARED | MAY_BE_NULL, .absent = -1}},
	{"eos", {.rule = KEY_ID, .flags = SHARED | MAY_BE_NULL, .absent = -1}},
	READ("window", READER_WINDOW, .lo = 1, .hi = MAX_POSITION),
	READ("has_window", READER_HAS_WINDOW, .flags = 0),
	READ("first_window", READER_FIRST_WINDOW, .flags = HAS_DEFAULT, .hi = MAX_DIM),
	READ("layer_types", READER_LAYER_TYPES, .flags = 0),
	READ("interval", READER_INTERVAL, .flags = HAS_DEFAULT, .lo = 1, .hi = PLAN_MAX_LAYERS),
	READ("n_experts", READER_EXPERTS, .to = FIELD(each.n_experts)),
	READ("n_experts_check", READER_EXPERTS_CHECK, .flags = 0),
	READ("conv_width", READER_TAPS, .to = FIELD(each.n_taps)), READ("state_dtype", READER_STATE_DTYPE, .flags = 0),
	READ("draft_layers", READER_DRAFT_LAYERS, .flags = 0), READ("tied", READER_TIE, .flags = HAS_DEFAULT),
	READ("rope_theta", READER_THETA, .flags = HAS_DEFAULT, .lo = 1, .hi = MAX_THETA),
	READ("own_theta", READER_OWN_THETA, .flags = HAS_DEFAULT, .lo = 1, .hi = MAX_THETA),
	READ("full_interval", READER_FULL_INTERVAL, .flags = HAS_DEFAULT, .lo = 1, .hi = PLAN_MAX_LAYERS),
	{"rotary_dim", {.rule = KEY_INT, .flags = DERIVED, .to = FIELD(rotary_dim), .lo = 2, .hi = 4096}},
	READ("rope_layers", READER_ROPE_LAYERS, .flags = 0),
	READ("rope_interval", READER_ROPE_INTERVAL, .flags = HAS_DEFAULT, .lo = 1, .hi = PLAN_MAX_LAYERS),
};
/* Values by which a key changes nothing, besides false, true, 0, 1 and []. */
static const struct { const char *word; int pass; } passes[] = {{"any", FREE}, {"no window", IF_NO_WINDOW},
	{"full_attention alone", IS_FULL}};

const ConfigKey *find_config_key(const Family *family, const char *name)
{
	for (const ConfigKey *k = family ? family->keys : NULL; k && k->name; k++)
		if (strcmp(k->name, name) == 0)
			return k;
	return NULL;
}

const ConfigKey *key_of_reader(const Family *family, KeyReader reader)
{
	for (const ConfigKey *k = family->keys; k->name; k++)
		if (k->rule == KEY_CODE && k->reader == reader)
			return k;
	return NULL;
}

/* Is it read into that field? */
static bool is_of(const ConfigKey *k, size_t field)
{
	bool any = field && k->to == field;
	for (int i = 0; i < MAX_ALSO; i++)
		any |= field && k->also[i] == field;
	return any;
}

const ConfigKey *key_of_field(const Family *family, size_t to)
{
	for (const ConfigKey *k = family->keys; k->name; k++)
		if (is_of(k, to))
			return k;
	return NULL;
}

/* Tables ------------------------------------------------------------------------------------------------------ */

static const char *key_text(Facts *r, const Value *v) { return clip_text(r->d->arena, v->key, strlen(v->key), 48); }

/* Records members of a table that are none of its keys; NULL = it is no table, which is recorded. */
static const Value *table(Facts *r, const Value *v, const char *name, const char *const *keys, int n)
{
	if (!v || !want_table(r->d, A0216, name, v))
		return NULL;
	for (const Value *m = v->first; m; m = m->next) {
		int i = 0;
		while (i < n && strcmp(keys[i], m->key) != 0)
			i++;
		if (i == n)
			fail_at(r->d, A0216, m->key_at, "%s has no key %s%s", name, key_text(r, m),
				did_you_mean(r->d->arena, closest_name(m->key, keys, n)));
	}
	return v;
}

/* A text of the arena that is not empty; `otherwise` where the key is absent. */
static const char *text(Facts *r, const Value *of, const char *key, const char *name, const char *otherwise)
{
	const Value *v = value_get(of, key);
	const char *out = otherwise;
	if (v && want_string(r->d, A0216, name, v, &out) && !*out)
		wrong(r, v, "%s = \"\": expected a name", name);
	return out;
}

/* A list of 1 to `most` texts, ended by NULL; out [most + 1] is left as it is where the key is absent. */
static void texts(Facts *r, const Value *of, const char *key, const char *name, int most, const char **out)
{
	const Value *v = value_get(of, key);
	int n = 0;
	if (!v || !want_array(r->d, A0216, name, v))
		return;
	if (v->n < 1 || v->n > most)
		wrong(r, v, "%s = %s: expected 1 to %d names", name, value_text(r->d->arena, v), most);
	for (const Value *e = v->first; e && n < most; e = e->next)
		if (want_string(r->d, A0216, name, e, &out[n]))
			n++;
	memset(&out[n], 0, sizeof *out * (size_t)(most + 1 - n));
}

/* One of some words: its index, or -1 after having recorded that it is none; `otherwise` where the key is absent. */
static int choice(Facts *r, const Value *of, const char *key, const char *name, const char *const *words, int n,
	int otherwise)
{
	const Value *v = value_get(of, key);
	const char *word, *list = "";
	if (!v)
		return otherwise;
	if (!want_string(r->d, A0216, name, v, &word))
		return otherwise;
	for (int i = 0; i < n; i++)
		if (strcmp(words[i], word) == 0)
			return i;
	for (int i = 0; i < n; i++)
		list = arena_printf(r->d->arena, "%s%s\"%s\"", list, i == 0 ? "" : i + 1 < n ? ", " : " or ", words[i]);
	wrong(r, v, "%s = %s: expected %s", name, value_text(r->d->arena, v), list);
	return otherwise;
}

static void flag(Facts *r, const Value *of, const char *key, const char *name, bool *out)
{
	const Value *v = value_get(of, key);
	if (v)
		want_bool(r->d, A0216, name, v, out);
}

/* Keys -------------------------------------------------------------------------------------------------------- */

/* One value of must or unused. */
static bool add_pass(const Value *v, ConfigKey *k, Arena *a)
{
	if (v->kind == VALUE_BOOL)
		k->pass |= v->boolean ? IS_TRUE : IS_FALSE;
	else if (v->kind == VALUE_INT && (v->integer == 0 || v->integer == 1))
		k->pass |= v->integer ? IS_ONE : IS_ZERO;
	else if (v->kind == VALUE_ARRAY && v->n == 0)
		k->pass |= IS_EMPTY;
	else if (v->kind == VALUE_STRING && *v->string && !strpbrk(v->string, " \""))
		k->word = k->word ? arena_printf(a, "%s or %s", k->word, v->string) : v->string;
	else
		return false;
	return true;
}

static bool read_pass(Facts *r, const char *name, const Value *v, ConfigKey *k)
{
	const char *list = "";
	for (int i = 0; i < COUNT(passes); i++) {
		if (k->rule == KEY_MUST && passes[i].pass != IS_FULL)
			continue;
		if (v->kind == VALUE_STRING && strcmp(v->string, passes[i].word) == 0) {
			k->pass = passes[i].pass;
			return true;
		}
		list = arena_printf(r->d->arena, "%s, or \"%s\"", list, passes[i].word);
	}
	if (v->kind == VALUE_ARRAY && (v->n || k->rule == KEY_IGNORED)) {
		for (const Value *e = v->first; e; e = e->next)
			if (!add_pass(e, k, &r->c->arena))
				return wrong(r, e, "%s: %s is not false, true, 0, 1, [] or a word", name, value_text(r->d->arena, e));
		return true;
	}
	return wrong(r, v, "%s = %s: expected a list of values%s", name, value_text(r->d->arena, v), list);
}

static const Meaning *meaning_of(Facts *r, const char *name, const Value *v)
{
	const char *words[COUNT(meanings)], *word;
	for (int i = 0; i < COUNT(meanings); i++)
		words[i] = meanings[i].word;
	if (!want_string(r->d, A0216, name, v, &word))
		return NULL;
	for (int i = 0; i < COUNT(meanings); i++)
		if (strcmp(words[i], word) == 0)
			return &meanings[i];
	const char *close = closest_name(word, words, COUNT(meanings));
	wrong(r, v, "%s = %s: there is no such meaning of a key%s", name, value_text(r->d->arena, v),
		did_you_mean(r->d->arena, close));
	return NULL;
}

/* is = "ffn_dim", or ["qkv_bias", "o_bias"] of two switches, or three. */
static bool read_is(Facts *r, const char *name, const Value *v, ConfigKey *k)
{
	const bool is_list = v->kind == VALUE_ARRAY && v->n >= 2 && v->n <= 1 + MAX_ALSO;
	const Meaning *m = meaning_of(r, name, is_list ? v->first : v);
	size_t also[MAX_ALSO] = {0};
	if (!m)
		return false;
	for (const Value *more = is_list ? v->first->next : NULL, *first = more; more; more = more->next) {
		const Meaning *other = meaning_of(r, name, more);
		if (!other)
			return false;
		if (m->key.rule != KEY_BOOL || other->key.rule != KEY_BOOL)
			return wrong(r, v, "%s = %s: only true and false can be of several things", name,
				value_text(r->d->arena, v));
		also[more != first] = other->key.to;
	}
	const char *key = k->name;
	for (int i = 0; i < COUNT(fixed_names); i++)
		if (strcmp(fixed_names[i].word, m->word) == 0 && strcmp(fixed_names[i].key, key) != 0)
			return wrong(r, v, "%s = \"%s\": all files of a checkpoint have it as %s", name, m->word,
				fixed_names[i].key);
	const int flags = k->flags;
	*k = m->key;
	k->name = key;
	k->flags |= flags;
	memcpy(k->also, also, sizeof also);
	return true;
}

static void read_default(Facts *r, const char *name, const Value *of, ConfigKey *k)
{
	const Value *v = value_get(of, "default");
	const bool is_bool = k->rule == KEY_BOOL || k->reader == READER_HAS_WINDOW || k->reader == READER_TIE;
	const char *full = arena_printf(r->d->arena, "%s.default", name);
	int n = 0;
	bool on = false;
	if (!v && (k->flags & HAS_DEFAULT || k->reader == READER_HAS_WINDOW))
		wrong(r, of, "%s: default is missing: what the class has where config.json says nothing", name);
	if (v && is_bool && want_bool(r->d, A0216, full, v, &on))
		k->absent = on;
	else if (v && k->rule == KEY_REAL)
		want_real(r->d, A0216, full, v, k->lo, true, k->hi, &k->absent);
	else if (v && !is_bool && (k->rule == KEY_INT || k->rule == KEY_ID || k->hi > 0)) {
		if (want_int(r->d, A0216, full, v, (int64_t)k->lo, k->rule == KEY_ID ? MAX_VOCAB : (int64_t)k->hi, &n))
			k->absent = n;
		k->flags &= ~NEEDED;
	} else if (v && !is_bool)
		wrong(r, v, "%s = %s: this key has no default", full, value_text(r->d->arena, v));
	k->flags &= ~(HAS_DEFAULT | DERIVED);
}

/* { is = ..., default = ..., null = true }, { must = [...] }, { unused = [...] } or { as = ... }: false after a
 * mistake. */
static bool read_key(Facts *r, const Value *v, ConfigKey *k)
{
	static const char *const members[] = {"is", "default", "null", "must", "unused", "as"};
	const char *name = arena_printf(r->d->arena, "family.keys.%s", key_text(r, v));
	const Value *is = NULL, *must = NULL, *unused = NULL;
	bool null = false;
	*k = (ConfigKey){.name = v->key};
	if (!table(r, v, name, members, COUNT(members)))
		return false;
	if (value_get(v, "as")) {
		k->rule = KEY_ALIAS;
		k->word = text(r, v, "as", arena_printf(r->d->arena, "%s.as", name), NULL);
		return v->n == 1 || wrong(r, v, "%s: another name of %s has nothing else", name, k->word);
	}
	is = value_get(v, "is");
	must = value_get(v, "must");
	unused = value_get(v, "unused");
	if (!is + !must + !unused != 2)
		return wrong(r, v, "%s: expected one of is, must, unused and as", name);
	if (!is && value_get(v, "default"))
		return wrong(r, value_get(v, "default"), "%s.default: only a key that is read has one", name);
	flag(r, v, "null", arena_printf(r->d->arena, "%s.null", name), &null);
	k->flags = null ? MAY_BE_NULL : 0;
	k->rule = must ? KEY_MUST : KEY_IGNORED;
	if (!is)
		return read_pass(r, arena_printf(r->d->arena, "%s.%s", name, must ? "must" : "unused"), must ? must : unused,
			k);
	if (!read_is(r, arena_printf(r->d->arena, "%s.is", name), is, k))
		return false;
	read_default(r, name, v, k);
	if (null && k->rule == KEY_INT)
		k->flags &= ~NEEDED;
	return true;
}

/* No two keys are of one thing. */
static void check_twice(Facts *r, const Value *v, const ConfigKey *keys, int n)
{
	const ConfigKey *k = &keys[n];
	for (int i = 0; i < n; i++) {
		const ConfigKey *o = &keys[i];
		bool same_field = is_of(o, k->to);
		for (int j = 0; j < MAX_ALSO; j++)
			same_field |= is_of(o, k->also[j]);
		const bool same_reader = k->rule == KEY_CODE && o->rule == KEY_CODE && k->reader && k->reader == o->reader;
		if (same_field || same_reader)
			wrong(r, v, "family.keys.%s and %s are read into one thing", k->name, o->name);
	}
}

static void read_keys(Facts *r, const Value *list)
{
	const int most = COUNT(common_keys) + (list && list->kind == VALUE_TABLE ? list->n : 0);
	ConfigKey *keys = ARENA_ARRAY(&r->c->arena, ConfigKey, most + 1);
	int n = COUNT(common_keys);
	memcpy(keys, common_keys, sizeof common_keys);
	r->f->keys = keys;
	if (!list || !want_table(r->d, A0216, "family.keys", list))
		return;
	for (const Value *v = list->first; v; v = v->next) {
		ConfigKey k;
		if (!read_key(r, v, &k))
			continue;
		int i = 0;
		while (i < COUNT(common_keys) && strcmp(common_keys[i].name, k.name) != 0)
			i++;
		const ConfigKey *old = i < COUNT(common_keys) ? &common_keys[i] : NULL;
		if (old && (old->rule != k.rule || old->to != k.to)) {
			wrong(r, v, "family.keys.%s: every family has this key, with another meaning", k.name);
		} else if (old) {
			k.flags |= old->flags & ~NEEDED;
			keys[i] = k;
		} else {
			keys[n] = k;
			check_twice(r, v, keys, n++);
		}
	}
	for (int i = COUNT(common_keys); i < n; i++) {
		const bool is_alias = keys[i].rule == KEY_ALIAS && keys[i].word;
		const ConfigKey *of = is_alias ? find_config_key(r->f, keys[i].word) : NULL;
		if (is_alias && (!of || of - keys < COUNT(common_keys) || of->rule == KEY_ALIAS))
			wrong(r, value_get(list, keys[i].name), "family.keys.%s.as = \"%s\": this table reads no such key",
				keys[i].name, keys[i].word);
	}
}

const Family *family_as_written(Compile *c, const Family *family, const struct Value *text)
{
	int n = 0;
	for (const ConfigKey *k = family->keys; k->name; k++)
		n++;
	ConfigKey *keys = ARENA_ARRAY(&c->arena, ConfigKey, n + 1);
	memcpy(keys, family->keys, sizeof *keys * (size_t)(n + 1));
	Family *copy = arena_alloc(&c->arena, sizeof *copy);
	*copy = *family;
	copy->keys = keys;
	for (int i = 0; i < n; i++) {
		const Value *v = keys[i].rule == KEY_ALIAS ? value_get(text, keys[i].name) : NULL;
		const Value *other = v && v->kind != VALUE_NULL ? value_get(text, keys[i].word) : NULL;
		if (other && other->kind != VALUE_NULL && !value_equal(v, other))
			fail_at(&c->diags, A0205, v->at, "%s = %s: %s in line %d says %s", keys[i].name,
				value_text(c->diags.arena, v), keys[i].word, other->at.line, value_text(c->diags.arena, other));
		for (int j = 0; j < n && v && v->kind != VALUE_NULL && (!other || other->kind == VALUE_NULL); j++)
			if (keys[j].rule != KEY_ALIAS && strcmp(keys[j].name, keys[i].word) == 0) {
				keys[j].name = keys[i].name;
				keys[i].name = keys[i].word;
				break;
			}
	}
	return copy;
}

/* Layers ----------------------------------------------------------------------------------------------------- */

static void read_layer(Facts *r, const Value *v)
{
	static const char *const keys[] = {"norms", "norm_weight", "qk_norm", "gate", "head_gate", "qkv_bias",
		"rotary_part", "mrope", "act", "router", "shared_gate", "share_eps", "scale_embeddings", "v_norm",
		"query_scale", "last_is_full", "rope_is_stated", "experts_may_be_transposed", "sinks", "rope_pairs",
		"share_input", "shared_as_wide"};
	static const char *const gates[] = {"none", "sigmoid", "softplus"};
	static const char *const acts[] = {"silu", "gelu_tanh", "clamped", "relu_squared"};
	static const char *const routers[] = {"softmax", "sigmoid"};
	static const char *const norms[] = {"before", "after", "both"}, *const weights[] = {"w", "1 + w"};
	static const char *const qk_norms[] = {"none", "head", "whole", "turned heads"};
	static const char *const pairs[] = {"halves", "neighbours"};
	LayerSpec *s = &r->f->layer;
	v = table(r, v, "family.layer", keys, COUNT(keys));
	const int where = choice(r, v, "norms", "family.layer.norms", norms, 3, 0);
	s->pre_norm = where != 1;
	s->post_norm = where != 0;
	s->norm_one = choice(r, v, "norm_weight", "family.layer.norm_weight", weights, 2, 0) == 1;
	s->qk_norm = (QkNorm)choice(r, v, "qk_norm", "family.layer.qk_norm", qk_norms, COUNT(qk_norms), QK_NORM_NONE);
	s->head_gate = (HeadGate)choice(r, v, "head_gate", "family.layer.head_gate", gates, 3, HEAD_GATE_NONE);
	s->act = (Act)choice(r, v, "act", "family.layer.act", acts, COUNT(acts), ACT_SILU);
	s->neighbours = choice(r, v, "rope_pairs", "family.layer.rope_pairs", pairs, 2, 0) == 1;
	s->router = (Router)choice(r, v, "router", "family.layer.router", routers, 2, ROUTER_SOFTMAX);
	s->norm_topk = s->shared_gate = true; /* where nothing says so */
	s->n_groups = s->top_groups = 1;
	s->share_scale = 1;
	flag(r, v, "shared_gate", "family.layer.shared_gate", &s->shared_gate);
	flag(r, v, "experts_may_be_transposed", "family.layer.experts_may_be_transposed", &s->may_be_turned);
	flag(r, v, "scale_embeddings", "family.layer.scale_embeddings", &r->f->scale_embeddings);
	if (value_get(v, "share_eps"))
		want_real(r->d, A0216, "family.layer.share_eps", value_get(v, "share_eps"), 0, false, 1, &s->share_eps);
	if (value_get(v, "query_scale"))
		want_real(r->d, A0216, "family.layer.query_scale", value_get(v, "query_scale"), 0, true, 1e6, &s->query_scale);
	flag(r, v, "v_norm", "family.layer.v_norm", &s->v_norm);
	flag(r, v, "last_is_full", "family.layer.last_is_full", &r->f->is_last_full);
	flag(r, v, "rope_is_stated", "family.layer.rope_is_stated", &r->f->is_rope_stated);
	flag(r, v, "gate", "family.layer.gate", &s->has_gate);
	flag(r, v, "share_input", "family.layer.share_input", &s->share_input);
	s->norm_topk = !s->share_input;
	flag(r, v, "shared_as_wide", "family.layer.shared_as_wide", &r->f->is_shared_as_wide);
	flag(r, v, "sinks", "family.layer.sinks", &s->sinks);
	flag(r, v, "qkv_bias", "family.layer.qkv_bias", &s->qkv_bias);
	flag(r, v, "mrope", "family.layer.mrope", &r->f->has_mrope);
	const Value *part = value_get(v, "rotary_part");
	if (part)
		want_real(r->d, A0216, "family.layer.rotary_part", part, 0, true, 1, &r->f->rotary_part);
}

/* layer_types: the first word is that of a layer with nothing special. */
static void read_words(Facts *r, const Value *list)
{
	static const char *const keys[] = {"mixer", "window", "chunks", "rope"}, *const mixers[] = {"attention", "delta"};
	static const char *const ropes[] = {"first", "own", "stated", "none", "none next to windows"};
	Family *f = r->f;
	f->words[f->n_words++] = (LayerWord){"full_attention", MIXER_ATTENTION, false, false, WORD_ROPE_FIRST};
	if (!list || !want_table(r->d, A0216, "family.layers", list))
		return;
	for (const Value *v = list->first; v; v = v->next) {
		const char *name = arena_printf(r->d->arena, "family.layers.%s", key_text(r, v));
		LayerWord word = {.word = v->key};
		const Value *rope = value_get(v, "rope");
		if (strcmp(v->key, "full_attention") == 0 && rope && v->n == 1) {
			f->words[0].rope = (WordRope)choice(r, v, "rope", arena_printf(r->d->arena, "%s.rope", name), ropes, 5, 0);
			if (has_own_rope(&f->words[0]))
				wrong(r, rope, "%s.rope: the first table is that of full_attention", name);
			continue;
		}
		if (f->n_words == MAX_WORDS) {
			wrong(r, v, "%s: at most %d kinds of layers besides full_attention", name, MAX_WORDS - 1);
			break;
		}
		for (int i = 0; i < f->n_words; i++)
			if (strcmp(f->words[i].word, v->key) == 0)
				wrong(r, v, "%s: every family has layers of this word", name);
		if (!table(r, v, name, keys, COUNT(keys)))
			continue;
		word.mixer = (Mixer)choice(r, v, "mixer", arena_printf(r->d->arena, "%s.mixer", name), mixers, 2, 0);
		flag(r, v, "window", arena_printf(r->d->arena, "%s.window", name), &word.is_windowed);
		flag(r, v, "chunks", arena_printf(r->d->arena, "%s.chunks", name), &word.is_chunked);
		if (word.is_chunked && !word.is_windowed)
			wrong(r, v, "%s.chunks: chunks are windows, and there is no window = true", name);
		word.rope = (WordRope)choice(r, v, "rope", arena_printf(r->d->arena, "%s.rope", name), ropes, 5, 0);
		for (int i = 0; i < f->n_words && has_own_rope(&word); i++)
			if (has_own_rope(&f->words[i]))
				wrong(r, rope, "%s.rope: %s has one already, and one is implemented", name, f->words[i].word);
		if (word.mixer == MIXER_DELTA && (word.is_windowed || word.rope != WORD_ROPE_FIRST))
			wrong(r, v, "%s: only attention has %s", name, word.is_windowed ? "a window" : "rope");
		f->words[f->n_words++] = word;
	}
}

bool has_own_rope(const LayerWord *word) { return word->rope == WORD_ROPE_OWN || word->rope == WORD_ROPE_STATED; }

bool has_delta(const Family *f)
{
	bool any = false;
	for (int i = 0; i < f->n_words; i++)
		any |= f->words[i].mixer == MIXER_DELTA;
	return any;
}

bool has_experts(const Family *f) { return key_of_reader(f, READER_EXPERTS) != NULL; }

/* Tensors ----------------------------------------------------------------------------------------------------- */

#define ROLE(constant, key, usual) key,
static const char *const role_keys[] = {TENSOR_ROLES(ROLE) "prefix"};
#undef ROLE
#define ROLE(constant, key, usual) usual,
static const char *const usual_names[] = {TENSOR_ROLES(ROLE)};
#undef ROLE

static void read_names(Facts *r, const Value *v)
{
	Family *f = r->f;
	memcpy(f->names, usual_names, sizeof usual_names);
	/* multimodal checkpoints keep the language model one level deeper */
	f->prefixes[0] = "model.language_model";
	f->prefixes[1] = "model";
	if (!(v = table(r, v, "family.tensors", role_keys, N_NAMES + 1)))
		return;
	for (int i = 0; i < N_NAMES; i++)
		f->names[i] = text(r, v, role_keys[i], arena_printf(r->d->arena, "family.tensors.%s", role_keys[i]),
			f->names[i]);
	texts(r, v, "prefix", "family.tensors.prefix", MAX_PREFIXES, f->prefixes);
}

/* The whole --------------------------------------------------------------------------------------------------- */

typedef struct Need { bool is_there; const char *word, *of; } Need;

static bool is_read(const Family *f, const char *word)
{
	for (int i = 0; i < COUNT(meanings); i++)
		if (strcmp(meanings[i].word, word) == 0)
			return meanings[i].key.to ? key_of_field(f, meanings[i].key.to) != NULL
				: key_of_reader(f, meanings[i].key.reader) != NULL;
	bug("no key is a %s", word);
}

/* Tensors without usual names, of parts that the keys give layers. */
static void check_parts(Facts *r, const Value *family)
{
	const Family *f = r->f;
	static const struct { const char *word; TensorRole first, last; } parts[] = {
		{"ple_dim", NAME_PLE_TABLE, NAME_PLE_PROJECTION_NORM}, {"ple_dim", NAME_PLE_GATE, NAME_PLE_NORM},
		{"expert_dim", NAME_EXPERTS_NORM, NAME_DENSE_POST_NORM}};
	for (int i = 0; i < COUNT(parts); i++)
		for (int role = parts[i].first; role <= (int)parts[i].last; role++)
			if (is_read(f, parts[i].word) && !f->names[role])
				wrong(r, family, "family.tensors: %s has no usual name: %s needs it", role_keys[role], parts[i].word);
	if (is_read(f, "expert_dim") && !f->layer.pre_norm)
		wrong(r, family, "family.layer.norms: an MLP next to experts has a norm before it");
}

/* What the kinds of layers need and no line gives. */
static void check_whole(Facts *r, const Value *family)
{
	const Family *f = r->f;
	const bool delta = has_delta(f), experts = has_experts(f);
	bool windows = false;
	for (int i = 0; i < f->n_words; i++)
		windows |= f->words[i].is_windowed;
	const Need needs[] = {{true, "head_dim", "attention"}, {true, "n_kv_heads", "attention"},
		{true, "ffn_dim", "an MLP"}, {experts, "n_active", "experts"},
		{is_read(f, "n_active") || is_read(f, "shared_dim") || is_read(f, "n_shared") || is_read(f, "dense_dim") ||
			f->layer.router == ROUTER_SIGMOID, "n_experts", "experts"},
		{is_read(f, "n_dense") || is_read(f, "mlp_types"), "dense_dim", "an MLP next to experts"},
		{is_read(f, "expert_dim") || is_read(f, "has_experts"), "n_experts", "experts"},
		{is_read(f, "expert_dim"), "has_experts", "an MLP next to experts"},
		{is_read(f, "full_kv_heads"), "full_v_is_k", "full_kv_heads"},
		{is_read(f, "double_wide"), "n_kv_shared", "double_wide"}, {is_read(f, "ple_dim"), "ple_vocab", "ple_dim"},
		{delta, "n_k_heads", "delta"}, {delta, "n_v_heads", "delta"}, {delta, "k_dim", "delta"},
		{delta, "v_dim", "delta"}, {delta, "conv_width", "delta"}, {delta, "interval", "delta"},
		{delta, "layer_types", "delta"},
		{f->draft_prefix, "draft_layers", "family.draft"}, {windows, "window", "a window"},
		{windows, "layer_types", "a window by word"}, {f->layer.act == ACT_CLAMPED, "n_experts", "act = \"clamped\""},
		{f->layer.act == ACT_CLAMPED, "gate_slope", "act = \"clamped\""},
		{f->layer.act == ACT_CLAMPED, "gate_limit", "act = \"clamped\""}};
	for (int i = 0; i < COUNT(needs); i++)
		if (needs[i].is_there && !is_read(f, needs[i].word))
			wrong(r, family, "family.keys: no key is \"%s\", which %s needs", needs[i].word, needs[i].of);
	if (f->layer.post_norm && (!f->names[NAME_MIXER_POST_NORM] || !f->names[NAME_MLP_POST_NORM]))
		wrong(r, family, "family.tensors: norms after mixer and MLP have no usual names: mixer_post_norm and "
			"mlp_post_norm must be there");
	check_parts(r, family);
	if (!f->names[NAME_DELTA_QKVZ] != !f->names[NAME_DELTA_BA])
		wrong(r, family, "family.tensors: delta_qkvz and delta_ba are there together, or neither is");
	if (f->layer.head_gate && (!f->names[NAME_HEAD_GATE] || f->layer.has_gate))
		wrong(r, family, "family.layer.head_gate: head_gate has no usual name in family.tensors, and excludes gate");
	if (f->names[NAME_QKV] && f->layer.has_gate)
		wrong(r, family, "family.tensors: qkv has no rows of a gate, which family.layer.gate needs");
	if (f->layer.act == ACT_CLAMPED && (is_read(f, "shared_dim") || is_read(f, "n_shared") || is_read(f, "dense_dim")))
		wrong(r, family, "family.layer.act = \"clamped\": of experts that rows choose alone");
	if (f->layer.act == ACT_RELU_SQUARED && (has_experts(f) || f->names[NAME_GATE_UP]))
		wrong(r, family, "family.layer.act = \"relu_squared\": of an MLP without a gate alone");
	if (f->layer.share_input && f->layer.router != ROUTER_SIGMOID)
		wrong(r, family, "family.layer.share_input: the share is a sigmoid's, and router = \"sigmoid\" is missing");
	if (f->draft_prefix && !f->layer.pre_norm)
		wrong(r, family, "family.draft: a drafting head of layers without a norm before them is not implemented");
}

static void read_tokenizer_class(Facts *r, const Value *v)
{
	static const char *const keys[] = {"class", "always"};
	Family *f = r->f;
	if (!v)
		return;
	if (v->kind == VALUE_STRING && strcmp(v->string, "unchanged") == 0) {
		f->tokenizer = "";
		f->is_tokenizer_final = true;
	} else if (table(r, v, "family.tokenizer", keys, COUNT(keys))) {
		f->tokenizer = text(r, v, "class", "family.tokenizer.class", NULL);
		flag(r, v, "always", "family.tokenizer.always", &f->is_tokenizer_final);
		if (f->tokenizer && !is_tokenizer_class(f->tokenizer))
			wrong(r, value_get(v, "class"), "family.tokenizer.class = \"%s\": this class is not implemented",
				f->tokenizer);
		if (!f->tokenizer)
			wrong(r, v, "family.tokenizer: class is missing");
	}
}

static void read_family(Facts *r)
{
	static const char *const keys[] = {"name", "model_types", "architectures", "tokenizer", "keys", "layer", "layers",
		"tensors", "draft"}, *const draft_keys[] = {"prefix"};
	Family *f = r->f;
	const int before = r->d->n_errors;
	const Value *v = value_get(f->facts, "family");
	if (!v) {
		wrong(r, f->facts, "there is no table [family]: this file has no facts of a family");
		return;
	}
	if (!table(r, v, "family", keys, COUNT(keys)))
		return;
	f->name = text(r, v, "name", "family.name", NULL);
	texts(r, v, "model_types", "family.model_types", MAX_TYPES, f->model_types);
	texts(r, v, "architectures", "family.architectures", MAX_TYPES, f->architectures);
	for (int i = 0; i < 3; i++)
		if (!value_get(v, keys[i]))
			wrong(r, v, "family.%s is missing", keys[i]);
	read_tokenizer_class(r, value_get(v, "tokenizer"));
	read_keys(r, value_get(v, "keys"));
	read_layer(r, value_get(v, "layer"));
	read_words(r, value_get(v, "layers"));
	read_names(r, value_get(v, "tensors"));
	const Value *draft = table(r, value_get(v, "draft"), "family.draft", draft_keys, 1);
	if (draft && !(f->draft_prefix = text(r, draft, "prefix", "family.draft.prefix", NULL)))
		wrong(r, draft, "family.draft: prefix is missing");
	if (r->d->n_errors == before)
		check_whole(r, v);
}

/* True where the file gives a family. */
static bool add_family(Compile *c, Family *f)
{
	Facts r = {c, &c->diags, f};
	const int before = c->diags.n_errors;
	f->facts = toml_parse(&c->arena, &c->diags, f->file, f->text, f->n_text);
	if (f->facts)
		read_family(&r);
	return c->diags.n_errors == before;
}

void load_families(Compile *c)
{
	Families *list = &c->families;
	if (list->at)
		return;
	list->at = ARENA_ARRAY(&c->arena, Family, n_family_toml + 1);
	if (c->cmd.family) {
		Family *f = &list->at[0];
		char *bytes;
		*f = (Family){.file = c->cmd.family, .is_users = true, .input = input_name(c->cmd.family, "family.toml")};
		if (input_read(&c->arena, &c->diags, f->file, false, TOML_MAX_BYTES, &bytes, &f->n_text) && bytes) {
			f->text = bytes;
			list->n += add_family(c, f);
		}
	}
	for (int i = 0; i < n_family_toml; i++) {
		const char *name = family_toml[i].name;
		Family *f = &list->at[list->n];
		if (strcmp(name, "defaults") == 0)
			continue;
		*f = (Family){.file = arena_printf(&c->arena, "models/%s.toml", name), .text = family_toml[i].text,
			.n_text = strlen(family_toml[i].text), .input = arena_printf(&c->arena, "models-%s.toml", name)};
		if (!add_family(c, f) && !c->cmd.family)
			return;
		list->n++;
	}
}

const Family *family_by_model_type(const Families *families, const char *model_type)
{
	for (int i = 0; i < families->n; i++)
		for (int j = 0; families->at[i].model_types[j]; j++)
			if (strcmp(families->at[i].model_types[j], model_type) == 0)
				return &families->at[i];
	return NULL;
}

bool has_draft(const Family *f) { return f->draft_prefix != NULL; }

const char *families_text(Arena *a, const Families *families, bool is(const Family *f))
{
	const char *text = "";
	int n = 0, at = 0;
	for (int i = 0; i < families->n; i++)
		n += is(&families->at[i]);
	for (int i = 0; i < families->n; i++)
		if (is(&families->at[i]) && ++at)
			text = arena_printf(a, "%s%s%s", text, at == 1 ? "" : at == n ? " and " : ", ", families->at[i].name);
	return text;
}

/* Config.layers ----------------------------------------------------------------------------------------------- */

/* What a layer without a window has of its own. */
static void lay_full_layer(const Config *cf, LayerSpec *s)
{
	if (s->window)
		return;
	s->head_dim = cf->full_head_dim ? cf->full_head_dim : s->head_dim;
	s->v_is_k = cf->full_v_is_k;
	s->n_kv_heads = s->v_is_k && cf->full_kv_heads ? cf->full_kv_heads : s->n_kv_heads;
}

/* One of the last layers reads what the last one before these, with a window or without as itself, has written. Where
 * there is none, read_layer_kinds has said so. */
static void lay_shared_layer(const Config *cf, LayerSpec *s, int l)
{
	const int first = cf->n_layers - cf->n_kv_shared;
	if (first <= 0 || l < first || l >= cf->n_layers)
		return;
	s->ffn_dim *= cf->is_double_wide ? 2 : 1;
	s->kv_back = layers_back(cf, l);
}

int layers_back(const Config *cf, int l)
{
	for (int k = cf->n_layers - cf->n_kv_shared - 1; k >= 0; k--)
		if (!cf->layers[k].window == !cf->layers[l].window)
			return l - k;
	return 0;
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
		s->chunked = old[l].chunked;
		s->rope = old[l].rope;
		s->is_listed_dense = old[l].is_listed_dense;
		s->listed_heads = old[l].listed_heads;
		s->gate_limit = old[l].gate_limit > 0 ? old[l].gate_limit : cf->each.gate_limit;
		s->shared_limit = old[l].shared_limit;
		s->n_heads = s->listed_heads ? s->listed_heads : s->n_heads;
		lay_full_layer(cf, s);
		lay_shared_layer(cf, s, l);
		s->ple_dim = cf->ple_dim;
		s->is_dense = s->is_listed_dense || l < cf->n_dense;
		if (s->is_dense) {
			s->n_experts = s->shared_dim = 0;
			s->ffn_dim = cf->dense_dim;
		}
		if (s->n_experts && cf->expert_dim) {
			s->dense_dim = s->ffn_dim;
			s->ffn_dim = cf->expert_dim;
		}
		s->kv = old[l - s->kv_back].kv;
		s->rotate = old[l - s->kv_back].rotate;
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
