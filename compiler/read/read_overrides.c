/* read_overrides.c - MODEL.toml parsed, and its [config] merged into config.json.
 *
 * A checkpoint's files are hashed and signed by those who published them; what has to be said otherwise is said in
 * MODEL.toml, is recorded in the plan and reported in a note. Names are those of config.json, nested ones with dots or
 * as tables; tables are merged member by member. `unset` lists keys that are taken out.
 *
 * The result is a tree of its own: the file's values keep their places, those of [config] have theirs in MODEL.toml,
 * where every later message about them points.
 */
#include "compiler/read/read_model.h"
#include "compiler/text/input.h"
#include "compiler/text/toml.h"

#include <string.h>

typedef struct Laying {
	Compile *c;
	Diags *d;
	const Value *file; /* config.json */
	const Value *over; /* [config] */
} Laying;

void read_model_toml(Compile *c)
{
	Model *m = &c->model;
	char *text;
	size_t n;
	if (m->options.text) /* read before */
		return;
	m->options.text = "";
	const char *path = c->cmd.model_toml ? c->cmd.model_toml : input_path(&c->arena, c->cmd.model_dir, "MODEL.toml");
	if (!input_read(&c->arena, &c->diags, path, !c->cmd.model_toml, TOML_MAX_BYTES, &text, &n) || !text)
		return;
	if (n)
		input_call(&c->diags, "MODEL.toml");
	m->toml = toml_parse(&c->arena, &c->diags, path, text, n);
	if (m->toml)
		m->options.text = text;
}

/* For the plan, whole, in one line. */
static void record(Laying *l, const char *path, const Value *value)
{
	*vec_push(&l->c->arena, &l->c->model.options.resolved) = (Option){arena_printf(&l->c->arena, "config.%s", path),
		value ? value_spelling(&l->c->arena, value, 4096) : "unset"};
}

/* Does the path lead to a known key of config.json? Below rope parameters and quantization_config the
 * readers of these say what there is. */
static bool check_path(Laying *l, const char *path, Loc at)
{
	Arena *a = l->d->arena;
	const Value *text = value_get(l->file, "text_config");
	bool is_nested = text && text->kind == VALUE_TABLE, is_inner = strncmp(path, "text_config.", 12) == 0;
	const char *rest = is_inner ? path + 12 : path;
	const char *key = arena_strndup(a, rest, strcspn(rest, "."));
	const bool is_twice = is_inner && strcmp(key, "text_config") == 0;
	if (value_get(is_inner ? text : l->file, rest)) /* there, also under a name that has a dot */
		return true;
	if (is_twice || (!is_config_key(&l->c->families, key) && !value_get(is_inner ? text : l->file, key))) {
		const char *close = is_twice ? NULL : suggest_config_key(a, &l->c->families, key);
		return fail_at(l->d, A0307, at, "config.%s: no family has such a key%s", clip_text(a, path, strlen(path), 80),
			did_you_mean(a, close));
	}
	if (is_inner && !is_nested)
		return fail_at(l->d, A0307, at, "config.%s: config.json has no text_config: write config.%s", path, rest);
	const Value *type = is_nested ? value_get(text, "model_type") : NULL;
	const ConfigKey *k = find_config_key(type && type->kind == VALUE_STRING
		? family_by_model_type(&l->c->families, type->string) : NULL, key);
	const Value *inner = value_get(text, key);
	const bool is_below = k && (!(k->flags & SHARED) || (inner && inner->kind != VALUE_NULL));
	if (is_nested && !is_inner && is_below && !value_get(l->file, key))
		return fail_at(l->d, A0307, at, "config.%s: the language model's keys are in text_config: write "
			"config.text_config.%s", path, path);
	return true;
}

static Value *copy_value(Arena *a, const Value *v)
{
	Value *out = ARENA_NEW(a, Value);
	*out = *v;
	out->next = NULL;
	return out;
}

static void report(Laying *l, const char *path, const Value *was, const Value *now)
{
	Arena *a = l->d->arena;
	const char *old = was ? arena_printf(a, "config.json says %s in line %d", value_text(a, was), was->at.line)
		: "config.json does not have it";
	if (now)
		note_at(l->d, A0215, now->at, "config.%s = %s: %s", path, value_text(a, now), old);
}

/* `base` with the members of `over` laid on it; base may be NULL. */
static Value *lay_table(Laying *l, const Value *base, const Value *over, const char *prefix)
{
	Arena *a = &l->c->arena;
	Value *out = copy_value(a, base ? base : over), **end = &out->first;
	out->first = NULL;
	out->n = 0;
	for (const Value *v = base ? base->first : NULL; v; v = v->next, end = &(*end)->next, out->n++)
		*end = copy_value(a, v);
	for (const Value *v = over->first; v; v = v->next) {
		const char *path = arena_printf(a, "%s%s%s", prefix, *prefix ? "." : "", v->key);
		const Value *was = value_get(base, v->key);
		Value *now;
		if (!*prefix && strcmp(v->key, "unset") == 0)
			continue;
		const int n_errors = l->d->n_errors;
		if (strchr(v->key, '.') && !was) {
			fail_at(l->d, A0307, v->key_at, "config.%s: quotes make it a single name, which config.json does not have: "
				"remove the quotes", path);
			continue;
		}
		if (v->kind == VALUE_TABLE && v->n) {
			if (was && was->kind != VALUE_TABLE && was->kind != VALUE_NULL) {
				fail_at(l->d, A0307, v->at, "config.%s is a table: config.json says %s in line %d", path,
					value_text(l->d->arena, was), was->at.line);
				continue;
			}
			now = lay_table(l, was && was->kind == VALUE_TABLE ? was : NULL, v, path);
			if (!was && l->d->n_errors > n_errors) /* nothing else is reported of a table that should not be there */
				continue;
			now->at = was && was->kind == VALUE_TABLE ? was->at : v->key_at;
		} else {
			if (!check_path(l, path, v->key_at))
				continue;
			now = copy_value(a, v);
			report(l, path, was, v);
			record(l, path, v);
		}
		now->key = v->key;
		Value **at = &out->first;
		while (*at && strcmp((*at)->key, v->key) != 0)
			at = &(*at)->next;
		now->next = *at ? (*at)->next : NULL;
		out->n += !*at;
		*at = now;
	}
	return out;
}

/* What [config] has under a path, or NULL. */
static const Value *given(const Laying *l, const char *path)
{
	const Value *v = *path ? l->over : NULL;
	for (size_t n; v && *path; path += n + (path[n] == '.')) {
		n = strcspn(path, ".");
		v = value_get(v, arena_strndup(l->d->arena, path, n));
	}
	return v;
}

/* Takes a key out of a tree that is ours. */
static void unset(Laying *l, Value *tree, const Value *name)
{
	const char *path = name->string;
	Value *table = tree;
	const Value *other = given(l, path);
	if (other) {
		fail_at(l->d, A0307, name->at, "config.unset: line %d gives %s a value", other->at.line, path);
		return;
	}
	for (;;) {
		size_t n = value_get(table, path) ? strlen(path) : strcspn(path, "."); /* some names have a dot */
		const char *part = arena_strndup(l->d->arena, path, n);
		Value **at = table->kind == VALUE_TABLE ? &table->first : NULL;
		while (at && *at && strcmp((*at)->key, part) != 0)
			at = &(*at)->next;
		if (!at || !*at) {
			fail_at(l->d, A0307, name->at, "config.unset: config.json has no %s",
				clip_text(l->d->arena, name->string, strlen(name->string), 80));
			return;
		}
		if (!path[n]) {
			note_at(l->d, A0215, name->at, "config.unset: %s, of which config.json says %s in line %d", name->string,
				value_text(l->d->arena, *at), (*at)->at.line);
			record(l, name->string, NULL);
			*at = (*at)->next;
			table->n--;
			return;
		}
		Value *own = copy_value(&l->c->arena, *at), **end = &own->first; /* the file's tree stays as it is */
		if (own->kind == VALUE_TABLE) {
			own->first = NULL;
			for (const Value *v = (*at)->first; v; v = v->next, end = &(*end)->next)
				*end = copy_value(&l->c->arena, v);
		}
		own->next = (*at)->next;
		*at = own;
		table = own;
		path += n + 1;
	}
}

const Value *lay_config_over(Compile *c, const Value *config)
{
	const Value *over = value_get(c->model.toml, "config"), *list = value_get(over, "unset");
	Laying laying = {c, &c->diags, config, over}, *l = &laying;
	if (!over || !want_table(l->d, A0303, "config", over))
		return config;
	Value *out = lay_table(l, config, over, "");
	if (list && want_array(l->d, A0303, "config.unset", list))
		for (const Value *e = list->first; e; e = e->next) {
			const char *name;
			if (want_string(l->d, A0303, "config.unset", e, &name))
				unset(l, out, e);
		}
	return out;
}
