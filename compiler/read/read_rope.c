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
	ON_YARN = 1 << ROPE_YARN, ON_ALL = ON_DEFAULT | ON_LINEAR | ON_LLAMA3 | ON_YARN,
	NULL_IS_ABSENT = 1 << 8 };

static const struct { const char *name; int kinds; } rope_keys[] = {
	{"rope_type", ON_ALL}, {"type", ON_ALL | NULL_IS_ABSENT}, {"rope_theta", ON_ALL}, {"partial_rotary_factor", ON_ALL},
	{"original_max_position_embeddings", ON_ALL}, {"finetuned", ON_ALL | NULL_IS_ABSENT},
	{"factor", ON_LINEAR | ON_LLAMA3 | ON_YARN}, {"low_freq_factor", ON_LLAMA3}, {"high_freq_factor", ON_LLAMA3},
	{"attention_factor", ON_YARN | NULL_IS_ABSENT}, {"beta_fast", ON_YARN | NULL_IS_ABSENT},
	{"beta_slow", ON_YARN | NULL_IS_ABSENT}, {"mscale", ON_YARN | NULL_IS_ABSENT},
	{"mscale_all_dim", ON_YARN | NULL_IS_ABSENT}, {"truncate", ON_YARN},
	/* positions of images, in three parts: those of text are three equal ones */
	{"mrope_interleaved", ON_ALL | NULL_IS_ABSENT}, {"mrope_section", ON_ALL | NULL_IS_ABSENT},
};
static const char *const rope_types[] = {
	[ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn",
};
static const char *const rope_places[] = {"rope_parameters", "rope_scaling", ""};

static const Value *rope_place(const Reading *r, int i)
{
	return *rope_places[i] ? lookup(r, rope_places[i]) : r->text;
}

/* A parameter wherever it is; *name is its full name. NULL when absent. Two different values: an error. */
static const Value *rope_value(Reading *r, const char *key, const char *old_key, bool bare, const char **name)
{
	const Value *found = NULL;
	*name = key;
	for (int i = 0; i < (bare ? 3 : 2); i++) {
		for (int old = 0; old < (old_key ? 2 : 1); old++) {
			const char *spelled = old ? old_key : key;
			const Value *v = value_get(rope_place(r, i), spelled);
			if (!v || v->kind == VALUE_NULL)
				continue;
			const char *full = arena_printf(r->d->arena, "%s%s%s", rope_places[i], *rope_places[i] ? "." : "", spelled);
			if (!found) {
				found = v;
				*name = full;
			} else if (!value_equal(found, v)) {
				fail_at(r->d, A0209, v->at, "%s = %s: %s = %s in line %d says otherwise", full,
					value_text(r->d->arena, v), *name, value_text(r->d->arena, found), found->at.line);
			}
		}
	}
	return found;
}

typedef struct RopeNumber { const char *key; double *out; double lo; bool above; bool required; } RopeNumber;

static bool read_rope_number(Reading *r, RopeNumber want)
{
	const char *name;
	const Value *v = rope_value(r, want.key, NULL, strcmp(want.key, "rope_theta") == 0, &name);
	if (v)
		return want_real(r->d, A0209, name, v, want.lo, want.above, 1e12, want.out);
	for (int i = 0; i < 2 && want.required; i++)
		if (value_get(rope_place(r, i), want.key)) /* a null, which check_rope_keys reports */
			return false;
	return !want.required || fail_at(r->d, A0209, r->cf->ropes[0].at, "%s is missing: rope_type = %s needs it",
		want.key, rope_types[r->cf->ropes[0].kind]);
}

static bool read_original_context(Reading *r)
{
	const char *name;
	const Value *v = rope_value(r, "original_max_position_embeddings", NULL, true, &name);
	if (v)
		return want_int(r->d, A0209, name, v, 1, MAX_POSITION, &r->cf->ropes[0].original_context);
	r->cf->ropes[0].original_context = r->cf->max_position; /* what transformers takes where it is missing */
	return true;
}

/* A name that other engines read, as a factor of what yarn gives; transformers reads attention_factor alone, which is
 * the whole. */
static void fail_attn_factor(Reading *r, const Value *v, int place)
{
	const char *name;
	const Value *factor = rope_value(r, "factor", NULL, false, &name);
	double f = factor && factor->kind == VALUE_INT ? (double)factor->integer
		: factor && factor->kind == VALUE_REAL ? factor->real : 1;
	const char *outer = r->text == r->top ? "" : "text_config.";
	double own = v->kind == VALUE_INT ? (double)v->integer : v->kind == VALUE_REAL ? v->real : 1;
	fail_at(r->d, A0209, v->at, "%s.attn_factor = %s: transformers does not read it, other engines multiply by it: "
		"write [config] in MODEL.toml, unset = [\"%s%s.attn_factor\"], and where it is meant "
		"%s%s.attention_factor = %.6g", rope_places[place], value_text(r->d->arena, v), outer, rope_places[place],
		outer, rope_places[place], own * (f > 1 ? 0.1 * log(f) + 1 : 1));
}

/* Keys that no rope type has, or that this one does not use. */
static void check_rope_keys(Reading *r)
{
	const char *names[COUNT(rope_keys)];
	for (int k = 0; k < COUNT(rope_keys); k++)
		names[k] = rope_keys[k].name;
	for (int i = 0; i < 2; i++) {
		const Value *place = rope_place(r, i);
		for (const Value *v = place && place->kind == VALUE_TABLE ? place->first : NULL; v; v = v->next) {
			int k = 0;
			while (k < COUNT(rope_keys) && strcmp(rope_keys[k].name, v->key) != 0)
				k++;
			bool is_image = k < COUNT(rope_keys) && strncmp(v->key, "mrope", 5) == 0;
			if (strcmp(v->key, "attn_factor") == 0) {
				fail_attn_factor(r, v, i);
				continue;
			}
			if (k == COUNT(rope_keys) || (is_image && !r->family->has_mrope)) {
				const char *close = closest_name(v->key, names, COUNT(rope_keys));
				fail_at(r->d, A0209, v->at, "%s.%s is unknown%s", rope_places[i],
					clip_text(r->d->arena, v->key, strlen(v->key), 48), did_you_mean(r->d->arena, close));
			} else if (v->kind == VALUE_NULL && !(rope_keys[k].kinds & NULL_IS_ABSENT)) {
				fail_at(r->d, A0209, v->at, "%s.%s = null: expected a value, or no such key", rope_places[i], v->key);
			} else if (v->kind != VALUE_NULL && !(rope_keys[k].kinds >> r->cf->ropes[0].kind & 1)) {
				fail_at(r->d, A0209, v->at, "%s.%s = %s: rope_type = %s does not use it", rope_places[i], v->key,
					value_text(r->d->arena, v), rope_types[r->cf->ropes[0].kind]);
			}
		}
	}
}

static bool read_rope_kind(Reading *r)
{
	Rope *rope = &r->cf->ropes[0];
	const char *name, *type;
	bool ok = true;
	rope->at = r->text->at;
	for (int i = 1; i >= 0; i--) {
		const Value *place = rope_place(r, i);
		if (place) {
			rope->at = place->at;
			ok &= want_table(r->d, A0209, rope_places[i], place);
		}
	}
	if (!ok)
		return false;
	const Value *v = rope_value(r, "rope_type", "type", false, &name);
	rope->kind = ROPE_DEFAULT;
	if (!v) {
		const Value *scaling = lookup(r, "rope_scaling");
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
	return fail_at(r->d, A0209, v->at, "%s = %s: expected default, linear, llama3 or yarn", name,
		value_text(r->d->arena, v));
}

/* How much of a head is turned: all of it, where the family has no part of its own. */
static void read_part(Reading *r)
{
	Config *cf = r->cf;
	const char *name;
	const Value *v = rope_value(r, "partial_rotary_factor", NULL, true, &name);
	bool may_be_part = r->family->rotary_part > 0;
	double part = may_be_part ? r->family->rotary_part : 1;
	cf->ropes[0].rotary_dim = cf->each.head_dim;
	if (v && !want_real(r->d, A0209, name, v, 0, true, 1, &part))
		return;
	const double dim = part * cf->each.head_dim;
	if (!may_be_part && part != 1)
		fail_at(r->d, A0206, v->at, "%s = %g: expected 1, partly turned heads are not implemented", name, part);
	else if (cf->each.head_dim % 2 == 0 && (dim != (int)dim || (int)dim % 2)) /* an odd head_dim is reported */
		fail_at(r->d, A0205, v ? v->at : r->text->at, "partial_rotary_factor = %g%s: expected an even number of "
			"elements of %s", part, v ? "" : arena_printf(r->d->arena, ", the default of %s", r->family->name),
			config_said(r->d->arena, cf, key_of_field(r->family, offsetof(Config, each.head_dim))->name));
	else
		cf->ropes[0].rotary_dim = (int)dim;
}

/* transformers takes rope_scaling in place of rope_parameters where both are there, whole: what only the other one
 * has, and the config itself has not, would be read here and not there. */
static void compare_places(Reading *r)
{
	const Value *read = rope_place(r, 1), *other = rope_place(r, 0);
	if (!read || !other || !read->n)
		return;
	for (const Value *v = other->first; v; v = v->next) {
		bool is_type = strcmp(v->key, "type") == 0 || strcmp(v->key, "rope_type") == 0;
		if (v->kind != VALUE_NULL && !is_type && !value_get(read, v->key) && !lookup(r, v->key))
			fail_at(r->d, A0209, v->at, "%s.%s: %s in line %d lacks it, and they must say the same", rope_places[0],
				clip_text(r->d->arena, v->key, strlen(v->key), 48), rope_places[1], read->at.line);
	}
}

void read_rope(ConfigReading *r)
{
	Config *cf = r->cf;
	Rope *rope = &cf->ropes[0];
	const char *name;
	const Value *v;
	cf->n_ropes = 1;
	const ConfigKey *theta = key_of_reader(r->family, READER_THETA);
	rope->theta = theta ? theta->absent : 10000; /* where the key is absent */
	rope->truncate = true;
	rope->beta_fast = 32;
	rope->beta_slow = 1;
	if (!read_rope_kind(r))
		return;
	compare_places(r);
	check_rope_keys(r);
	for (int i = 0; i < 2; i++) { /* transformers would compute with a None */
		v = value_get(r->text, i ? "partial_rotary_factor" : "rope_theta");
		if (v && v->kind == VALUE_NULL)
			fail_at(r->d, A0209, v->at, "%s = null: expected a number, or no such key", v->key);
	}
	read_rope_number(r, (RopeNumber){"rope_theta", &rope->theta, 0, true, false});
	read_part(r);
	if (rope->kind != ROPE_DEFAULT)
		read_rope_number(r, (RopeNumber){"factor", &rope->factor, 1, false, true});
	if (rope->kind == ROPE_LLAMA3) {
		read_original_context(r);
		if (read_rope_number(r, (RopeNumber){"low_freq_factor", &rope->low_freq, 0, true, true}) &&
				read_rope_number(r, (RopeNumber){"high_freq_factor", &rope->high_freq, 0, true, true}) &&
				rope->high_freq <= rope->low_freq)
			fail_at(r->d, A0209, rope->at, "high_freq_factor = %g: must be above low_freq_factor = %g",
				rope->high_freq, rope->low_freq);
	}
	if (rope->kind == ROPE_YARN) {
		bool original = read_original_context(r);
		read_rope_number(r, (RopeNumber){"attention_factor", &rope->attention_factor, 0, true, false});
		read_rope_number(r, (RopeNumber){"mscale", &rope->mscale, 0, false, false});
		read_rope_number(r, (RopeNumber){"mscale_all_dim", &rope->mscale_all_dim, 0, false, false});
		if (read_rope_number(r, (RopeNumber){"beta_fast", &rope->beta_fast, 0, true, false}) &&
				read_rope_number(r, (RopeNumber){"beta_slow", &rope->beta_slow, 0, true, false}) &&
				rope->beta_fast < rope->beta_slow)
			fail_at(r->d, A0209, rope->at, "beta_fast = %g: must not be below beta_slow = %g", rope->beta_fast,
				rope->beta_slow);
		v = rope_value(r, "truncate", NULL, false, &name);
		if (v)
			want_bool(r->d, A0209, name, v, &rope->truncate);
		double reach = original ? rope->factor * rope->original_context : 0;
		if (reach > cf->max_position && reach <= MAX_POSITION) /* files name the context before stretching */
			cf->max_position = (int)reach;
	}
}
