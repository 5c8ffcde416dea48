/* read_config.c - config.json.
 *
 * A config is forty keys by a dozen writers, most of them default values no one looks at. The family's list
 * (its file in models/) says which of them are read, and what holds where one is absent: what its class in
 * transformers takes. Every other key is for foreign_keys.c: an error where it would change the result and no one here
 * does so, else a note or nothing.
 *
 * The language model's keys are at the top or under text_config; what says how text is wrapped (vocabulary, tied
 * head, end tokens) may be at either. Wherever a value is found twice it must be the same. [config] of MODEL.toml
 * is merged into it before anything is read.
 *
 * Nothing is converted and nothing guessed: 4096.0 and "4096" are not integers. All mistakes are recorded
 * before the pass returns.
 */
#include "artifacts/closest.h"
#include "compiler/read/read_model.h"
#include "compiler/text/input.h"
#include "compiler/text/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef ConfigReading Reading;

#define FIELD_OF(field) offsetof(Config, field)

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* What is found --------------------------------------------------------------------------------------- */

const Value *config_lookup(const ConfigReading *r, const char *key)
{
	const ConfigKey *k = find_config_key(r->family, key); /* without a family no list says so */
	const Value *v = value_get(r->text, key);
	if ((!v || v->kind == VALUE_NULL) && (!k || (k->flags & SHARED)))
		v = value_get(r->top, key);
	return v && v->kind != VALUE_NULL ? v : NULL;
}

void config_note(ConfigReading *r, const char *key, const Value *v, const char *default_text)
{
	bool is_default = !v || (v->kind == VALUE_NULL && default_text);
	*vec_push(&r->c->arena, &r->values) = (ConfigValue){key, is_default ? default_text : value_text(&r->c->arena, v),
		v ? v->at : r->text->at, is_default, NULL};
}

/* Where the last value that was written down comes from. */
static void config_note_from(ConfigReading *r, const char *from) { r->values.at[r->values.n - 1].from = from; }

static const ConfigValue *find_value(const Config *cf, const char *key)
{
	for (int i = 0; i < cf->n_values; i++)
		if (strcmp(cf->values[i].key, key) == 0)
			return &cf->values[i];
	bug("%s was never read as a key", key);
}

const char *config_said(Arena *a, const Config *cf, const char *key)
{
	const ConfigValue *v = find_value(cf, key);
	if (!v->is_default)
		return arena_printf(a, "%s = %s", key, v->text);
	return v->from ? arena_printf(a, "%s = %s, %s", key, v->text, v->from)
		: arena_printf(a, "%s = %s, the default of %s", key, v->text, cf->family->name);
}

Loc config_place(const Config *cf, const char *key) { return find_value(cf, key)->at; }

static bool is_full(const Value *v)
{
	if (v->kind != VALUE_ARRAY)
		return false;
	for (const Value *e = v->first; e; e = e->next)
		if (e->kind != VALUE_STRING || strcmp(e->string, "full_attention") != 0)
			return false;
	return true;
}

bool value_passes(const Value *v, int pass)
{
	if (v->kind == VALUE_NULL || (pass & FREE))
		return true;
	double x = v->kind == VALUE_INT ? (double)v->integer : v->kind == VALUE_REAL ? v->real : NAN;
	return ((pass & IS_FALSE) && v->kind == VALUE_BOOL && !v->boolean) || ((pass & IS_ZERO) && x == 0) ||
		((pass & IS_TRUE) && v->kind == VALUE_BOOL && v->boolean) || ((pass & IS_ONE) && x == 1) ||
		((pass & IS_FIFTY) && x == 50) ||
		((pass & IS_EMPTY) && (v->kind == VALUE_ARRAY || v->kind == VALUE_TABLE) && v->n == 0) ||
		((pass & IS_FULL) && is_full(v));
}

/* The text of one of the words that pass: "swish or silu". */
static bool is_word_of(const Value *v, const char *words)
{
	if (!words || v->kind != VALUE_STRING)
		return false;
	size_t n = strlen(v->string);
	for (const char *at = words; *at; at += strspn(at, " ")) {
		size_t len = strcspn(at, " ");
		if (len == n && memcmp(at, v->string, n) == 0 && (n != 2 || memcmp(at, "or", 2) != 0))
			return true;
		at += len;
	}
	return false;
}

void name_in_list(Arena *a, NameList *list, const Value *member)
{
	if (list->is_cut)
		return;
	const char *key = clip_text(a, member->key, strlen(member->key), 48);
	if (!list->text)
		list->at = member->at;
	list->text = list->text ? arena_printf(a, "%s, %s", list->text, key) : key;
	list->is_cut = strlen(list->text) > 400; /* a note is a line, not a listing */
}

/* Keys that are not read ------------------------------------------------------------------------------- */

/* "swish or silu" as a message has it. */
static const char *words_text(Arena *a, const char *words)
{
	const char *text = "";
	for (const char *at = words; *at; at += strspn(at, " ")) {
		int n = (int)strcspn(at, " ");
		text = n == 2 && memcmp(at, "or", 2) == 0 ? arena_printf(a, "%s or ", text)
			: arena_printf(a, "%s\"%.*s\"", text, n, at);
		at += n;
	}
	return text;
}

static bool is_windowed(const Config *cf)
{
	bool any = false;
	for (int l = 0; l < cf->n_layers; l++)
		any |= cf->layers[l].window > 0;
	return any;
}

/* What the family says of a key that it does not read into anything. */
static void check_own_key(Reading *r, const ConfigKey *k, const Value *v, NameList *ignored)
{
	Arena *a = r->d->arena;
	if (k->rule == KEY_IGNORED && !value_passes(v, k->pass) && !((k->pass & IF_NO_WINDOW) && !is_windowed(r->cf)))
		name_in_list(a, ignored, v);
	if (k->rule != KEY_MUST || (v->kind != VALUE_NULL && value_passes(v, k->pass)) || is_word_of(v, k->word) ||
			(v->kind == VALUE_NULL && (k->flags & MAY_BE_NULL)))
		return;
	const char *expected = k->word ? words_text(a, k->word) : k->pass & IS_FULL ? "\"full_attention\" alone" :
		k->pass & IS_TRUE ? "true" :
		k->pass & IS_FALSE ? "false" : k->pass & IS_ONE ? "1" : "[]";
	fail_at(r->d, A0206, v->at, "%s = %s: expected %s, as %s has it", k->name, value_text(a, v), expected,
		r->family->name);
}

/* Names of the families that read the key, "qwen3_next and qwen3_5"; NULL = none. */
static const char *readers_of(const Families *families, Arena *a, const char *key)
{
	const char *text = NULL;
	int n = 0, at = 0;
	for (int i = 0; i < families->n; i++) {
		const ConfigKey *k = find_config_key(&families->at[i], key);
		n += k && k->rule != KEY_IGNORED;
	}
	for (int i = 0; i < families->n; i++) {
		const ConfigKey *k = find_config_key(&families->at[i], key);
		if (k && k->rule != KEY_IGNORED && ++at)
			text = text ? arena_printf(a, "%s%s%s", text, at == n ? " and " : ", ", families->at[i].name) :
				families->at[i].name;
	}
	return text;
}

/* A key that the family does not have. */
static void check_foreign_key(Reading *r, const Value *v, NameList *ignored, NameList *unknown)
{
	int pass;
	const char *word, *readers;
	Arena *a = r->d->arena;
	switch (foreign_key(v->key, &pass, &word)) {
	case KEY_UNKNOWN:
		name_in_list(a, unknown, v);
		break;
	case KEY_OTHER_ARITHMETIC:
		if (value_passes(v, pass) || is_word_of(v, word))
			break;
		readers = readers_of(&r->c->families, a, v->key);
		fail_at(r->d, A0206, v->at, "%s = %s: this feature is not implemented%s", v->key, value_text(a, v), readers
			? arena_printf(a, " for %s: it is a key of %s", r->family->name, readers) : "");
		break;
	case KEY_GENERATION:
		if (!value_passes(v, pass))
			name_in_list(a, ignored, v);
		break;
	case KEY_NO_RESULT: case KEY_WRAPPER:
		break;
	}
}

/* What is read in one place must not say something else in the other; tied heads and tokens go by rules of their own,
 * and each level names its own class. */
static void check_shared_key(Reading *r, const ConfigKey *k, const Value *outer)
{
	const Value *inner = value_get(r->text, k->name);
	const bool is_one = k->rule == KEY_INT || strcmp(k->name, "quantization_config") == 0;
	if (is_one && inner && inner->kind != VALUE_NULL && outer->kind != VALUE_NULL && !value_equal(inner, outer))
		fail_at(r->d, A0205, outer->at, "%s = %s: text_config in line %d says %s", k->name,
			value_text(r->d->arena, outer), inner->at.line, value_text(r->d->arena, inner));
}

/* Outside text_config: what the language model would read is under the other name, and is not read here. */
static void check_outer_key(Reading *r, const Value *v, NameList *ignored, NameList *unknown)
{
	int pass;
	const char *word;
	const ConfigKey *k = find_config_key(r->family, v->key);
	ForeignKind kind = foreign_key(v->key, &pass, &word);
	if (strcmp(v->key, "transformers_weights") == 0) { /* read there, whatever is inside */
		check_foreign_key(r, v, ignored, unknown);
		return;
	}
	if (k && (k->flags & SHARED))
		check_shared_key(r, k, v);
	if ((k && (k->flags & SHARED)) || strcmp(v->key, "text_config") == 0 || strcmp(v->key, "model_type") == 0)
		return;
	if (!k && kind == KEY_UNKNOWN)
		name_in_list(r->d->arena, unknown, v);
	else if (v->kind != VALUE_NULL && (k ? k->pass != FREE : !value_passes(v, pass) && !is_word_of(v, word)))
		name_in_list(r->d->arena, ignored, v);
}

static void check_all_keys(Reading *r)
{
	NameList ignored = {0}, unknown = {0}, outer = {0};
	for (const Value *v = r->text->first; v; v = v->next) {
		const ConfigKey *k = find_config_key(r->family, v->key);
		if (r->text != r->top && strcmp(v->key, "text_config") == 0)
			name_in_list(r->d->arena, &ignored, v);
		else if (k)
			check_own_key(r, k, v, &ignored);
		else
			check_foreign_key(r, v, &ignored, &unknown);
	}
	for (const Value *v = r->text == r->top ? NULL : r->top->first; v; v = v->next)
		check_outer_key(r, v, &outer, &unknown);
	if (ignored.text)
		note_at(r->d, A0213, ignored.at, "keys that %s does not have are not used: %s", r->family->name, ignored.text);
	if (outer.text)
		note_at(r->d, A0213, outer.at, "keys outside text_config are not used: %s", outer.text);
	if (unknown.text)
		note_at(r->d, A0207, unknown.at, "unknown keys are not used: %s", unknown.text);
}

/* Which model ------------------------------------------------------------------------------------ */

static const char *known_model_types(Arena *a, const Families *families, const char *seen)
{
	const char *list = "", *names[64];
	int n = 0;
	for (int i = 0; i < families->n; i++)
		for (int j = 0; families->at[i].model_types[j] && n < COUNT(names); j++) {
			names[n++] = families->at[i].model_types[j];
			list = arena_printf(a, "%s%s%s", list, *list ? ", " : "", names[n - 1]);
		}
	return arena_printf(a, "%s%s", list, did_you_mean(a, closest_name(seen, names, n)));
}

static void read_architecture(Reading *r)
{
	const Value *v = config_lookup(r, "architectures");
	if (!v) {
		fail_at(r->d, A0202, r->text->at, "architectures is missing");
		return;
	}
	if (v->kind != VALUE_ARRAY || v->n != 1 || v->first->kind != VALUE_STRING) {
		fail_at(r->d, A0204, v->at, "architectures = %s: expected a list of one name", value_text(r->d->arena, v));
		return;
	}
	const Family *family = r->family;
	const char *seen = v->first->string, *expected = "";
	if (!family) /* reported already */
		return;
	for (int j = 0; family->architectures[j]; j++) {
		if (strcmp(seen, family->architectures[j]) == 0)
			return;
		expected = arena_printf(r->d->arena, "%s%s%s", expected, j ? ", " : "", family->architectures[j]);
	}
	fail_at(r->d, A0204, v->first->at, "architectures = [%s]: expected %s", value_text(r->d->arena, v->first),
		expected);
}

static void read_kind(Reading *r)
{
	const Value *v = value_get(r->text, "model_type"), *code = config_lookup(r, "auto_map");
	if (!v || v->kind == VALUE_NULL) {
		fail_at(r->d, A0202, r->text->at, "model_type is missing");
	} else if (want_string(r->d, A0203, "model_type", v, &r->cf->model_type)) {
		r->family = r->cf->family = family_by_model_type(&r->c->families, r->cf->model_type);
		if (!r->family)
			fail_at(r->d, A0204, v->at, "model_type = %s: expected one of %s", value_text(r->d->arena, v),
				known_model_types(r->d->arena, &r->c->families, r->cf->model_type));
	}
	read_architecture(r);
	if (r->family)
		r->family = r->cf->family = family_as_written(r->c, r->family, r->text);
	if (code && r->family && key_of_reader(r->family, READER_CODE))
		note_at(r->d, A0213, code->at, "auto_map names Python code of the checkpoint: it is never run, the class of %s "
			"in transformers is followed", r->family->name);
	else if (code && !value_passes(code, IS_EMPTY))
		fail_at(r->d, A0204, code->at, "auto_map names Python code of the checkpoint: it is never run");
	read_quant(r->c, config_lookup(r, "quantization_config"));
}

/* Values into fields ------------------------------------------------------------------------------------ */

static const char *number_text(Arena *a, double x) { return arena_printf(a, "%.17g", x); }

/* The default; of an integer 0 means what other keys give. */
/* The other switches that the key is. */
static void keep_also(const Reading *r, const ConfigKey *k, const void *to)
{
	for (int i = 0; i < MAX_ALSO; i++)
		if (k->also[i])
			*(bool *)(void *)((char *)r->cf + k->also[i]) = *(const bool *)to;
}

static void take_default(Reading *r, const ConfigKey *k, const Value *null, void *to)
{
	Arena *a = &r->c->arena;
	if (k->rule == KEY_INT)
		*(int *)to = null ? 0 : (int)k->absent; /* where null is allowed it means: from other keys */
	else if (k->rule == KEY_REAL)
		*(double *)to = k->absent;
	else
		*(bool *)to = k->absent != 0;
	keep_also(r, k, to);
	if (k->rule == KEY_BOOL || (k->rule == KEY_REAL && k->absent > 0) || (!null && k->absent != 0))
		config_note(r, k->name, null, k->rule == KEY_BOOL ? (k->absent != 0 ? "true" : "false")
			: k->rule == KEY_REAL ? arena_printf(a, "%g", k->absent) : number_text(a, k->absent));
}

/* False where there is a mistake. */
static bool read_field(Reading *r, const ConfigKey *k)
{
	const Value *v = k->flags & SHARED ? config_lookup(r, k->name) : NULL;
	void *to = (char *)r->cf + k->to;
	bool may_be_null = k->flags & MAY_BE_NULL;
	if (!v)
		v = value_get(r->text, k->name); /* a null is shown as such */
	if (k->at)
		*(Loc *)(void *)((char *)r->cf + k->at) = v ? v->at : r->text->at;
	if (!v && (k->flags & NEEDED))
		return fail_at(r->d, A0202, r->text->at, "%s is missing", k->name);
	if (!v || (v->kind == VALUE_NULL && may_be_null)) {
		take_default(r, k, v, to);
		return true;
	}
	bool ok = k->rule == KEY_INT ? want_int(r->d, A0203, k->name, v, (int64_t)k->lo, (int64_t)k->hi, to)
		: k->rule == KEY_REAL ? want_real(r->d, A0203, k->name, v, k->lo, true, k->hi, to)
		: want_bool(r->d, A0203, k->name, v, to);
	config_note(r, k->name, v, NULL);
	keep_also(r, k, to);
	return ok;
}

/* Absent, or a null that means the same; any other null has been refused. */
static bool is_left_out(const Reading *r, const Value *v, const char *key)
{
	return !v || (v->kind == VALUE_NULL && (find_config_key(r->family, key)->flags & MAY_BE_NULL));
}

/* What other keys give where these are absent. */
static void derive_heads(Reading *r)
{
	Config *cf = r->cf;
	LayerSpec *each = &cf->each;
	const char *kv_name = key_of_field(r->family, offsetof(Config, each.n_kv_heads))->name;
	const char *dim_name = key_of_field(r->family, offsetof(Config, each.head_dim))->name;
	Arena *a = r->d->arena;
	const Value *kv = value_get(r->text, kv_name), *dim = value_get(r->text, dim_name);
	const bool no_kv = is_left_out(r, kv, kv_name), no_dim = is_left_out(r, dim, dim_name);
	if (each->n_heads && !each->n_kv_heads && no_kv) {
		each->n_kv_heads = each->n_heads;
		config_note(r, kv_name, kv, number_text(&r->c->arena, each->n_heads));
		config_note_from(r, "num_attention_heads");
	}
	if (each->n_heads && cf->hidden_dim && !each->head_dim && no_dim) {
		Loc at = value_get(r->text, "num_attention_heads")->at;
		if (cf->hidden_dim % each->n_heads) {
			fail_at(r->d, A0205, at, "%s is missing, and num_attention_heads = %d does not divide "
				"hidden_size = %d", dim_name, each->n_heads, cf->hidden_dim);
			return;
		}
		each->head_dim = cf->hidden_dim / each->n_heads;
		cf->at_head_dim = at;
		config_note(r, dim_name, dim, number_text(&r->c->arena, each->head_dim));
		config_note_from(r, "hidden_size / num_attention_heads");
	}
	cf->values = r->values.at;
	cf->n_values = r->values.n;
	if (each->head_dim % 2)
		fail_at(r->d, A0205, cf->at_head_dim, "%s: expected an even number, rope turns pairs",
			config_said(a, cf, dim_name));
	if (each->n_heads && each->n_kv_heads && each->n_heads % each->n_kv_heads)
		fail_at(r->d, A0205, config_place(cf, kv_name), "%s: must divide num_attention_heads = %d",
			config_said(a, cf, kv_name), each->n_heads);
}

static void read_fields(Reading *r)
{
	r->cf->each = r->family->layer;
	r->cf->has_qk_norm = r->cf->has_experts = true;
	r->cf->scale_embeddings = r->family->scale_embeddings;
	for (const ConfigKey *k = r->family->keys; k->name; k++)
		if (k->rule == KEY_INT || k->rule == KEY_REAL || k->rule == KEY_BOOL)
			read_field(r, k);
	if (!r->cf->has_qk_norm)
		r->cf->each.qk_norm = QK_NORM_NONE;
	if (key_of_field(r->family, FIELD_OF(n_shared)))
		r->cf->each.shared_dim = r->cf->n_shared * r->cf->each.ffn_dim;
	if (r->family->is_shared_as_wide)
		r->cf->each.shared_dim = r->cf->each.ffn_dim;
	derive_heads(r);
}

static void read_tie(Reading *r)
{
	const Value *inner = value_get(r->text, "tie_word_embeddings");
	const Value *outer = value_get(r->top, "tie_word_embeddings");
	const Value *v = outer ? outer : inner;
	const ConfigKey *k = key_of_reader(r->family, READER_TIE);
	r->cf->at_tie = v ? v->at : r->text->at;
	r->cf->tie_embeddings = k && k->absent != 0;
	config_note(r, "tie_word_embeddings", v, v ? NULL : r->cf->tie_embeddings ? "true" : "false");
	if (!v || !want_bool(r->d, A0203, "tie_word_embeddings", v, &r->cf->tie_embeddings))
		return;
	bool is_there = true;
	if (inner && want_bool(r->d, A0203, "tie_word_embeddings", inner, &is_there) && !value_equal(inner, v))
		fail_at(r->d, A0205, v->at, "tie_word_embeddings = %s: text_config in line %d says %s",
			value_text(r->d->arena, v), inner->at.line, value_text(r->d->arena, inner));
}

/* Special tokens ---------------------------------------------------------------------------------- */

bool add_eos(Config *cf, int id, Loc at)
{
	int i = 0;
	while (i < cf->n_eos && cf->eos[i] < id)
		i++;
	if (i < cf->n_eos && cf->eos[i] == id)
		return true;
	if (cf->n_eos == MAX_EOS)
		return false;
	memmove(&cf->eos[i + 1], &cf->eos[i], sizeof cf->eos[0] * (size_t)(cf->n_eos - i));
	memmove(&cf->at_eos[i + 1], &cf->at_eos[i], sizeof cf->at_eos[0] * (size_t)(cf->n_eos - i));
	cf->eos[i] = id;
	cf->at_eos[i] = at;
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
		if (read_token(r, name, e, &id) && !add_eos(r->cf, id, e->at)) {
			fail_at(r->d, A0210, e->at, "more than %d different eos_token_id", MAX_EOS);
			return;
		}
	}
}

static void read_bos(Reading *r, const Value *table)
{
	const Value *v = value_get(table, "bos_token_id");
	if (v && v->kind != VALUE_NULL && read_token(r, "bos_token_id", v, &r->cf->bos))
		r->cf->at_bos = v->at;
}

/* Where no file names any, those that the class has; not where they lie after the vocabulary. */
static void default_token(Reading *r, const char *key, bool is_open)
{
	const ConfigKey *k = find_config_key(r->family, key);
	bool is_stated = value_get(r->text, key) || value_get(r->top, key); /* a null: there is none */
	if (!is_open || is_stated || !k || k->rule != KEY_ID || k->absent < 0 || k->absent >= r->cf->vocab)
		return;
	if (strcmp(key, "bos_token_id") == 0)
		r->cf->bos = (int)k->absent;
	else
		add_eos(r->cf, (int)k->absent, r->text->at);
	config_note(r, key, NULL, number_text(&r->c->arena, k->absent));
}

static void read_tokens(Reading *r, const Value *generation)
{
	const Value *const tables[] = {r->top, r->text == r->top ? NULL : r->text, generation};
	for (int i = 0; i < COUNT(tables); i++) {
		read_eos(r, tables[i]);
		read_bos(r, tables[i]);
	}
	default_token(r, "bos_token_id", r->cf->bos < 0);
	default_token(r, "eos_token_id", r->cf->n_eos == 0);
}

/* What the checkpoint's tensors would be of. Older writers call the key torch_dtype; files of quant_method mxfp4 may
 * have neither, and bf16. */
static void read_dtype(Reading *r, const char *path)
{
	static const struct { const char *name; Dtype dtype; } known[] = {
		{"bfloat16", DT_bf16}, {"float16", DT_f16}, {"float32", DT_f32}};
	const Value *v = config_lookup(r, "dtype"); /* which goes before the other, as in transformers */
	const char *text;
	if (!v)
		v = config_lookup(r, "torch_dtype");
	if (!v && r->c->model.quant.name && strcmp(r->c->model.quant.name, "mxfp4") == 0) {
		r->cf->dtype = DT_bf16;
		return;
	}
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

/* read_config - what the checkpoint says it is.
 *
 *   needs   cmd.model_dir
 *   gives   Model.dir, Model.config, Model.quant, Model.toml
 *   fails   A0102, A0104, A0106, A02xx, A0301, A0307; all that are found, but of bad TOML only the first
 */
void read_config(Compile *c)
{
	Config *cf = &c->model.config;
	Reading r = {.c = c, .d = &c->diags, .cf = cf};
	const char *path = c->cmd.config_file ? c->cmd.config_file : input_path(&c->arena, c->cmd.model_dir, "config.json");
	c->model.dir = c->cmd.model_dir;
	cf->bos = -1;
	lay_layers(c); /* of nothing yet */
	r.top = json_read(&c->arena, &c->scratch, r.d, &json_config_rules, path, NULL);
	if (!r.top)
		return;
	input_call(r.d, "config.json");
	load_families(c);
	read_model_toml(c); /* what is wrong with it is reported; the config is read all the same */
	r.top = lay_config_over(c, r.top);
	r.text = value_get(r.top, "text_config");
	if (!r.text || r.text->kind == VALUE_NULL)
		r.text = r.top;
	else if (!want_table(r.d, A0203, "text_config", r.text))
		return;
	read_kind(&r);
	if (!r.family) /* whose keys these are no one can say */
		return;
	read_fields(&r);
	read_tie(&r);
	if (c->cmd.random_weights)
		read_dtype(&r, path);
	read_rope(&r);
	read_layer_kinds(&r);
	lay_layers(c);
	check_all_keys(&r);
	read_tokens(&r, read_generation(c, cf));
	cf->values = r.values.at;
	cf->n_values = r.values.n;
}
