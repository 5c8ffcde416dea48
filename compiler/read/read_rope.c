/* read_rope.c - rope parameters of a config, wherever its writer put them.
 *
 * Three places are in use: rope_parameters, rope_scaling, and for the base and the turned part of a head the config
 * itself; the type is called rope_type or type. A value may be in several places if it is the same. Which
 * parameters there are depends on the type: one that the type does not use, or that no type has, is refused, for it
 * would have changed the angles of the model as it was trained.
 */
#include "artifacts/closest.h"
#include "compiler/read/read_model.h"

#include <math.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

typedef ConfigReading Reading;

static const Value *lookup(const Reading *r, const char *key) { return config_lookup(r, key); }

/* A null is as good as no key where transformers takes it so; else it would compute with a None. */
enum { ON_DEFAULT = 1 << ROPE_DEFAULT, ON_LINEAR = 1 << ROPE_LINEAR, ON_LLAMA3 = 1 << ROPE_LLAMA3,
	ON_YARN = 1 << ROPE_YARN, ON_LONG = 1 << ROPE_LONGROPE, ON_PART = 1 << ROPE_PROPORTIONAL,
	ON_ALL = ON_DEFAULT | ON_LINEAR | ON_LLAMA3 | ON_YARN | ON_LONG | ON_PART,
	NULL_IS_ABSENT = 1 << 8 };

static const struct { const char *name; int kinds; } rope_keys[] = {
	{"rope_type", ON_ALL}, {"type", ON_ALL | NULL_IS_ABSENT}, {"rope_theta", ON_ALL}, {"partial_rotary_factor", ON_ALL},
	{"original_max_position_embeddings", ON_ALL}, {"finetuned", ON_ALL | NULL_IS_ABSENT},
	{"factor", ON_LINEAR | ON_LLAMA3 | ON_YARN | ON_LONG | ON_PART},
	{"short_factor", ON_LONG}, {"long_factor", ON_LONG},
	{"low_freq_factor", ON_LLAMA3}, {"high_freq_factor", ON_LLAMA3},
	{"attention_factor", ON_YARN | ON_LONG | NULL_IS_ABSENT}, {"beta_fast", ON_YARN | NULL_IS_ABSENT},
	{"beta_slow", ON_YARN | NULL_IS_ABSENT}, {"mscale", ON_YARN | NULL_IS_ABSENT},
	{"mscale_all_dim", ON_YARN | NULL_IS_ABSENT}, {"truncate", ON_YARN},
	/* positions of images, in three parts: those of text are three equal ones */
	{"mrope_interleaved", ON_ALL | NULL_IS_ABSENT}, {"mrope_section", ON_ALL | NULL_IS_ABSENT},
};
static const char *const rope_types[] = {
	[ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn",
	[ROPE_LONGROPE] = "longrope", [ROPE_PROPORTIONAL] = "proportional",
};

/* One table of a file, and where its parameters are: NULL = not there. */
enum { PARAMETERS, SCALING, BARE, N_PLACES };
typedef struct Table {
	Reading *r;
	Rope *rope;
	const Value *place[N_PLACES];
	const char *label[N_PLACES]; /* "rope_parameters", "" */
} Table;

/* A parameter wherever it is; *name is its full name. NULL when absent. Two different values: an error. */
static const Value *rope_value(const Table *t, const char *key, const char *old_key, bool bare, const char **name)
{
	const Value *found = NULL;
	*name = key;
	for (int i = 0; i < (bare ? 3 : 2); i++) {
		for (int old = 0; old < (old_key ? 2 : 1); old++) {
			const char *spelled = old ? old_key : key;
			const Value *v = value_get(t->place[i], spelled);
			Diags *d = t->r->d;
			if (!v || v->kind == VALUE_NULL)
				continue;
			const char *full = arena_printf(d->arena, "%s%s%s", t->label[i], *t->label[i] ? "." : "", spelled);
			if (!found) {
				found = v;
				*name = full;
			} else if (!value_equal(found, v)) {
				fail_at(d, A0209, v->at, "%s = %s: %s = %s in line %d says otherwise", full, value_text(d->arena, v),
					*name, value_text(d->arena, found), found->at.line);
			}
		}
	}
	return found;
}

typedef struct RopeNumber { const char *key; double *out; double lo; bool above; bool required; } RopeNumber;

static bool read_rope_number(const Table *t, RopeNumber want)
{
	Reading *r = t->r;
	const char *name;
	const Value *v = rope_value(t, want.key, NULL, strcmp(want.key, "rope_theta") == 0, &name);
	if (v)
		return want_real(r->d, A0209, name, v, want.lo, want.above, 1e12, want.out);
	for (int i = 0; i < 2 && want.required; i++)
		if (value_get(t->place[i], want.key)) /* a null, which check_rope_keys reports */
			return false;
	return !want.required || fail_at(r->d, A0209, t->rope->at, "%s is missing: rope_type = %s needs it", want.key,
		rope_types[t->rope->kind]);
}

static bool read_original_context(const Table *t)
{
	Reading *r = t->r;
	const char *name;
	const Value *v = rope_value(t, "original_max_position_embeddings", NULL, true, &name);
	if (v)
		return want_int(r->d, A0209, name, v, 1, MAX_POSITION, &t->rope->original_context);
	if (t->rope->kind == ROPE_LONGROPE)
		return fail_at(r->d, A0209, t->rope->at, "original_max_position_embeddings is missing: rope_type = longrope "
			"needs it");
	t->rope->original_context = r->cf->max_position; /* what transformers takes where it is missing */
	return true;
}

/* A name that other engines read, as a factor of what yarn gives; transformers reads attention_factor alone, which is
 * the whole. */
static void fail_attn_factor(const Table *t, const Value *v, int place)
{
	Reading *r = t->r;
	const char *name;
	const Value *factor = rope_value(t, "factor", NULL, false, &name);
	double f = factor && factor->kind == VALUE_INT ? (double)factor->integer
		: factor && factor->kind == VALUE_REAL ? factor->real : 1;
	const char *outer = r->text == r->top ? "" : "text_config.";
	double own = v->kind == VALUE_INT ? (double)v->integer : v->kind == VALUE_REAL ? v->real : 1;
	fail_at(r->d, A0209, v->at, "%s.attn_factor = %s: transformers does not read it, other engines multiply by it: "
		"write [config] in MODEL.toml, unset = [\"%s%s.attn_factor\"], and where it is meant "
		"%s%s.attention_factor = %.6g", t->label[place], value_text(r->d->arena, v), outer, t->label[place], outer,
		t->label[place], own * (f > 1 ? 0.1 * log(f) + 1 : 1));
}

/* Keys that no rope type has, or that this one does not use. */
static void check_rope_keys(const Table *t)
{
	Reading *r = t->r;
	const char *names[COUNT(rope_keys)];
	for (int k = 0; k < COUNT(rope_keys); k++)
		names[k] = rope_keys[k].name;
	for (int i = 0; i < 2; i++) {
		const Value *place = t->place[i];
		for (const Value *v = place && place->kind == VALUE_TABLE ? place->first : NULL; v; v = v->next) {
			int k = 0;
			while (k < COUNT(rope_keys) && strcmp(rope_keys[k].name, v->key) != 0)
				k++;
			bool is_image = k < COUNT(rope_keys) && strncmp(v->key, "mrope", 5) == 0;
			if (strcmp(v->key, "attn_factor") == 0) {
				fail_attn_factor(t, v, i);
				continue;
			}
			if (k == COUNT(rope_keys) || (is_image && !r->family->has_mrope)) {
				const char *close = closest_name(v->key, names, COUNT(rope_keys));
				fail_at(r->d, A0209, v->at, "%s.%s is unknown%s", t->label[i],
					clip_text(r->d->arena, v->key, strlen(v->key), 48), did_you_mean(r->d->arena, close));
			} else if (v->kind == VALUE_NULL && !(rope_keys[k].kinds & NULL_IS_ABSENT)) {
				fail_at(r->d, A0209, v->at, "%s.%s = null: expected a value, or no such key", t->label[i], v->key);
			} else if (v->kind != VALUE_NULL && !(rope_keys[k].kinds >> t->rope->kind & 1)) {
				fail_at(r->d, A0209, v->at, "%s.%s = %s: rope_type = %s does not use it", t->label[i], v->key,
					value_text(r->d->arena, v), rope_types[t->rope->kind]);
			}
		}
	}
}

static bool read_rope_kind(const Table *t)
{
	Reading *r = t->r;
	Rope *rope = t->rope;
	const char *name, *type;
	bool ok = true;
	rope->at = r->text->at;
	for (int i = 1; i >= 0; i--) {
		const Value *place = t->place[i];
		if (place) {
			rope->at = place->at;
			ok &= want_table(r->d, A0209, t->label[i], place);
		}
	}
	if (!ok)
		return false;
	const Value *v = rope_value(t, "rope_type", "type", false, &name);
	rope->kind = ROPE_DEFAULT;
	if (!v) {
		const Value *scaling = t->place[SCALING];
		return !scaling || scaling->n == 0 || value_get(scaling, "rope_theta") ||
			fail_at(r->d, A0209, scaling->at, "rope_scaling.rope_type is missing");
	}
	if (!want_string(r->d, A0209, name, v, &type))
		return false;
	for (int k = 0; k < COUNT(rope_types); k++)
		if (strcmp(type, rope_types[k]) == 0) {
			rope->kind = (RopeKind)k;
			return true;
		}
	return fail_at(r->d, A0209, v->at, "%s = %s: expected default, linear, llama3, yarn, longrope or "
		"proportional", name,
		value_text(r->d->arena, v));
}

/* Elements of a head that the table turns: of layers without a window the first one is. */
static int head_of(const Table *t)
{
	const Config *cf = t->r->cf;
	return cf->full_head_dim && t->rope == &cf->ropes[0] ? cf->full_head_dim : cf->each.head_dim;
}

/* How much of a head is turned: all of it, where the family has no part of its own. */
static void read_part(const Table *t)
{
	Reading *r = t->r;
	Config *cf = r->cf;
	const char *name;
	const Value *v = rope_value(t, "partial_rotary_factor", NULL, true, &name);
	bool may_be_part = r->family->rotary_part > 0;
	double part = may_be_part ? r->family->rotary_part : 1;
	t->rope->rotary_dim = head_of(t);
	if (v && !want_real(r->d, A0209, name, v, 0, true, 1, &part))
		return;
	if (t->rope->kind == ROPE_PROPORTIONAL) {
		t->rope->n_turned = (int)(part * head_of(t) / 2);
		return;
	}
	const double dim = cf->rotary_dim && !v ? cf->rotary_dim : part * head_of(t);
	if (cf->rotary_dim && (dim != cf->rotary_dim || dim > cf->each.head_dim)) {
		const char *key = key_of_field(r->family, offsetof(Config, rotary_dim))->name;
		fail_at(r->d, A0205, config_place(cf, key), "%s = %d: %s", key, cf->rotary_dim, v
			? arena_printf(r->d->arena, "%s = %g in line %d says otherwise", name, part, v->at.line)
			: arena_printf(r->d->arena, "heads have %d elements", cf->each.head_dim));
		return;
	}
	if (!may_be_part && part != 1)
		fail_at(r->d, A0206, v->at, "%s = %g: expected 1, partly turned heads are not implemented", name, part);
	else if (head_of(t) % 2 == 0 && (dim != (int)dim || (int)dim % 2)) /* an odd head_dim is reported */
		fail_at(r->d, A0205, v ? v->at : r->text->at, "partial_rotary_factor = %g%s: expected an even number of "
			"elements of %s", part, v ? "" : arena_printf(r->d->arena, ", the default of %s", r->family->name),
			config_said(r->d->arena, cf, key_of_field(r->family, offsetof(Config, each.head_dim))->name));
	else
		t->rope->rotary_dim = (int)dim;
}

/* transformers takes rope_scaling in place of rope_parameters where both are there, whole: what only the other one
 * has, and the config itself has not, would be read here and not there. */
static void compare_places(const Table *t)
{
	Reading *r = t->r;
	const Value *read = t->place[SCALING], *other = t->place[PARAMETERS];
	if (!read || !other || !read->n)
		return;
	for (const Value *v = other->first; v; v = v->next) {
		bool is_type = strcmp(v->key, "type") == 0 || strcmp(v->key, "rope_type") == 0;
		if (v->kind != VALUE_NULL && !is_type && !value_get(read, v->key) && !lookup(r, v->key))
			fail_at(r->d, A0209, v->at, "%s.%s: %s in line %d lacks it, and they must say the same",
				t->label[PARAMETERS], clip_text(r->d->arena, v->key, strlen(v->key), 48), t->label[SCALING],
				read->at.line);
	}
}

/* A factor for each pair, f64 [rotary_dim / 2]. */
static const double *read_factors(const Table *t, const char *key)
{
	const char *name;
	Diags *d = t->r->d;
	const Value *v = rope_value(t, key, NULL, false, &name);
	const int n = t->rope->rotary_dim / 2;
	int at = 0;
	double *list = ARENA_ARRAY(&t->r->c->arena, double, n + 1);
	if (!v)
		fail_at(d, A0209, t->rope->at, "%s is missing: rope_type = longrope needs it", key);
	else if (want_array(d, A0209, name, v) && v->n != n)
		fail_at(d, A0209, v->at, "%s has %d number%s: %d of a head's elements are turned, in %d pairs", name, v->n,
			v->n == 1 ? "" : "s", t->rope->rotary_dim, n);
	else if (v->kind == VALUE_ARRAY)
		for (const Value *e = v->first; e; e = e->next, at++)
			want_real(d, A0209, arena_printf(d->arena, "%s[%d]", name, at), e, 0, true, 1e12, &list[at]);
	return list;
}

/* Which of the two lists holds is decided when the context is known (rope_frequencies). */
static void read_longrope(const Table *t)
{
	Rope *rope = t->rope;
	const Config *cf = t->r->cf;
	rope->short_factor = read_factors(t, "short_factor");
	rope->long_factor = read_factors(t, "long_factor");
	read_rope_number(t, (RopeNumber){"attention_factor", &rope->attention_factor, 0, true, false});
	rope->factor = 0;
	if (read_original_context(t) && read_rope_number(t, (RopeNumber){"factor", &rope->factor, 0, true, false}) &&
			rope->factor == 0)
		rope->factor = (double)cf->max_position / rope->original_context;
}

static void read_table(const Table *t)
{
	Reading *r = t->r;
	Config *cf = r->cf;
	Rope *rope = t->rope;
	const char *name;
	const Value *v;
	rope->truncate = true;
	rope->beta_fast = 32;
	rope->beta_slow = 1;
	if (!read_rope_kind(t))
		return;
	compare_places(t);
	check_rope_keys(t);
	for (int i = 0; i < 2; i++) { /* transformers would compute with a None */
		v = value_get(t->place[BARE], i ? "partial_rotary_factor" : "rope_theta");
		if (v && v->kind == VALUE_NULL)
			fail_at(r->d, A0209, v->at, "%s = null: expected a number, or no such key", v->key);
	}
	read_rope_number(t, (RopeNumber){"rope_theta", &rope->theta, 0, true, false});
	read_part(t);
	if (rope->kind == ROPE_LONGROPE)
		read_longrope(t);
	else if (rope->kind != ROPE_DEFAULT)
		read_rope_number(t, (RopeNumber){"factor", &rope->factor, 1, false, rope->kind != ROPE_PROPORTIONAL});
	if (rope->kind == ROPE_LLAMA3) {
		read_original_context(t);
		if (read_rope_number(t, (RopeNumber){"low_freq_factor", &rope->low_freq, 0, true, true}) &&
				read_rope_number(t, (RopeNumber){"high_freq_factor", &rope->high_freq, 0, true, true}) &&
				rope->high_freq < rope->low_freq)
			fail_at(r->d, A0209, rope->at, "high_freq_factor = %g: must not be below low_freq_factor = %g",
				rope->high_freq, rope->low_freq);
	}
	if (rope->kind == ROPE_YARN) {
		bool original = read_original_context(t);
		read_rope_number(t, (RopeNumber){"attention_factor", &rope->attention_factor, 0, true, false});
		read_rope_number(t, (RopeNumber){"mscale", &rope->mscale, 0, false, false});
		read_rope_number(t, (RopeNumber){"mscale_all_dim", &rope->mscale_all_dim, 0, false, false});
		if (read_rope_number(t, (RopeNumber){"beta_fast", &rope->beta_fast, 0, true, false}) &&
				read_rope_number(t, (RopeNumber){"beta_slow", &rope->beta_slow, 0, true, false}) &&
				rope->beta_fast < rope->beta_slow)
			fail_at(r->d, A0209, rope->at, "beta_fast = %g: must not be below beta_slow = %g", rope->beta_fast,
				rope->beta_slow);
		v = rope_value(t, "truncate", NULL, false, &name);
		if (v)
			want_bool(r->d, A0209, name, v, &rope->truncate);
		double reach = original ? rope->factor * rope->original_context : 0;
		if (reach > cf->max_position && reach <= MAX_POSITION) /* files name the context before stretching */
			cf->max_position = (int)reach;
	}
}

/* Does rope_parameters have a table for each kind of layer, by its word in layer_types? */
static bool is_by_word(const Reading *r, const Value *parameters)
{
	bool any = false;
	for (int i = 0; i < r->family->n_words; i++)
		any |= value_get(parameters, r->family->words[i].word) != NULL;
	return any;
}

/* The words' tables: rope_parameters.WORD. What is around them is of all where a table has it not. */
static void read_tables_by_word(Reading *r, const Value *parameters, const char *const *words)
{
	const Value *scaling = lookup(r, "rope_scaling");
	if (scaling && scaling->n)
		fail_at(r->d, A0209, scaling->at, "rope_scaling: rope_parameters in line %d has tables for kinds of layers, "
			"which take its place", parameters->at.line);
	for (const Value *v = parameters->first; v; v = v->next)
		if (strcmp(v->key, words[0]) != 0 && strcmp(v->key, words[1]) != 0 &&
				strcmp(v->key, "original_max_position_embeddings") != 0)
			fail_at(r->d, A0209, v->at, "rope_parameters.%s: next to tables for kinds of layers it is of none",
				clip_text(r->d->arena, v->key, strlen(v->key), 48));
	for (int i = 0; i < 2; i++) {
		const Value *own = value_get(parameters, words[i]);
		const char *label = arena_printf(r->d->arena, "rope_parameters.%s", words[i]);
		read_table(&(Table){r, &r->cf->ropes[i], {own && own->kind != VALUE_NULL ? own : NULL, NULL, parameters},
			{label, "", "rope_parameters"}});
	}
}

void read_rope(ConfigReading *r)
{
	Config *cf = r->cf;
	const Value *parameters = lookup(r, "rope_parameters"), *scaling = lookup(r, "rope_scaling");
	const ConfigKey *theta = key_of_reader(r->family, READER_THETA), *own = key_of_reader(r->family, READER_OWN_THETA);
	const char *words[2] = {"full_attention", NULL};
	bool must_be_stated = false;
	for (int i = 0; i < r->family->n_words; i++) {
		words[1] = has_own_rope(&r->family->words[i]) ? r->family->words[i].word : words[1];
		must_be_stated |= r->family->words[i].rope == WORD_ROPE_STATED;
	}
	cf->n_ropes = words[1] ? 2 : 1;
	cf->ropes[0].theta = cf->ropes[1].theta = theta ? theta->absent : 10000; /* where no key says it */
	if (own)
		cf->ropes[1].theta = own->absent;
	if (words[1] && is_by_word(r, parameters)) {
		read_tables_by_word(r, parameters, words);
		return;
	}
	if (words[1] && key_of_reader(r->family, READER_ROTARY_PARTS)) {
		if (parameters)
			fail_at(r->d, A0209, parameters->at, "rope_parameters.%s is missing: %s reads a table for each kind of "
				"layer, or none", words[0], r->family->name);
		cf->ropes[1].theta = cf->ropes[0].theta;
		for (int i = 0; i < 2; i++) /* rope_scaling is of full_attention */
			read_table(&(Table){r, &cf->ropes[i], {NULL, i ? NULL : scaling,
				rope_of_word(r, words[i])}, {"rope_parameters", "rope_scaling", ""}});
		return;
	}
	if (must_be_stated) {
		fail_at(r->d, A0209, parameters ? parameters->at : r->text->at, "rope_parameters.%s is missing: %s states a "
			"table for each kind of layer", words[0], r->family->name);
		return;
	}
	if (r->family->is_rope_stated && !(parameters && parameters->n) && !(scaling && scaling->n)) {
		fail_at(r->d, A0209, parameters ? parameters->at : scaling ? scaling->at : r->text->at,
			"rope_scaling is missing: in that case the class of %s has another table than the default one: write "
			"rope_scaling or rope_parameters with a rope_type", r->family->name);
		return;
	}
	read_table(&(Table){r, &cf->ropes[0], {parameters, scaling, r->text},
		{"rope_parameters", "rope_scaling", ""}});
	if (!words[1])
		return;
	/* of the default type, whatever the others are; its theta is of a key of its own, or the class's default */
	Rope *rope = &cf->ropes[1];
	const Value *v = own ? value_get(r->text, own->name) : NULL;
	rope->at = v ? v->at : r->text->at;
	rope->rotary_dim = cf->ropes[0].rotary_dim;
	if (v)
		want_real(r->d, A0209, own->name, v, 0, true, 1e12, &rope->theta);
	else if (!own && rope->theta != cf->ropes[0].theta)
		fail_at(r->d, A0209, cf->ropes[0].at, "rope_theta = %g: the class gives layers of %s %g all the same: write "
			"rope_parameters with a table for each kind of layer", cf->ropes[0].theta, words[1], rope->theta);
}
