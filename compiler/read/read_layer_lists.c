/* read_layer_lists.c - lists of config.json with an entry for each layer: which have an MLP in place of experts, query
 * heads, limits of activations, rope.
 *
 * Where drafting heads are layers after the last one, lists may go on for these; such entries are not read.
 */
#include "compiler/read/read_model.h"

#include <stdlib.h>
#include <string.h>

typedef ConfigReading Reading;

static const Value *lookup(const Reading *r, const char *key) { return config_lookup(r, key); }

static const char *name_of(const Reading *r, KeyReader reader)
{
	const ConfigKey *k = key_of_reader(r->family, reader);
	return k ? k->name : NULL;
}

static const char *entry_name(Reading *r, const char *name, int l)
{
	return arena_printf(r->d->arena, "%s[%d]", name, l);
}

static const char *member_name(Reading *r, const char *name, const Value *v)
{
	return arena_printf(r->d->arena, "%s.%s", name, clip_text(r->d->arena, v->key, strlen(v->key), 48));
}

bool layer_entries(ConfigReading *r, const char *name, const Value *v)
{
	const Config *cf = r->cf;
	if (!want_array(r->d, A0203, name, v))
		return false;
	if (cf->n_layers && v->n != cf->n_layers && v->n != cf->n_layers + cf->n_after)
		fail_at(r->d, A0205, v->at, "%s has %d entr%s: num_hidden_layers = %d%s", name, v->n, v->n == 1 ? "y" : "ies",
			cf->n_layers, cf->n_after ? arena_printf(r->d->arena, ", and %d layer%s after the last", cf->n_after,
			cf->n_after > 1 ? "s" : "") : "");
	return true;
}

/* MLPs ------------------------------------------------------------------------------------------------------ */

/* Words of a list, one a layer: dense ones have an MLP all the same. */
static void read_words(Reading *r, const char *name, const Value *v)
{
	int l = 0;
	if (!layer_entries(r, name, v))
		return;
	for (const Value *e = v->first; e && l < r->cf->n_layers; e = e->next, l++) {
		const char *word;
		if (!want_string(r->d, A0203, entry_name(r, name, l), e, &word))
			return;
		r->cf->layers[l].is_listed_dense = strcmp(word, "dense") == 0;
		if (!r->cf->layers[l].is_listed_dense && strcmp(word, "sparse") != 0) {
			fail_at(r->d, A0206, e->at, "%s = %s: expected \"dense\" or \"sparse\"", entry_name(r, name, l),
				value_text(r->d->arena, e));
			return;
		}
	}
}

/* Layer l is one with experts. */
static bool add_sparse(Reading *r, const char *name, const Value *at, int64_t l)
{
	const int n = r->cf->n_layers + r->cf->n_after;
	if (l < 0 || l >= n)
		return fail_at(r->d, A0205, at->at, "%s names layer %lld: there are %d", name, (long long)l, n);
	if (l < r->cf->n_layers)
		r->cf->layers[l].is_listed_dense = false;
	return true;
}

/* Numbers of the layers with experts: a list, or a text, "3,4,5". Without any they begin with the default, or are each
 * n-th. */
static void read_sparse_layers(Reading *r, const ConfigKey *k)
{
	const Value *v = lookup(r, k->name);
	const char *every_name = v ? NULL : name_of(r, READER_SPARSE_INTERVAL);
	const Value *interval = every_name ? lookup(r, every_name) : NULL;
	int every = every_name ? (int)key_of_reader(r->family, READER_SPARSE_INTERVAL)->absent : 1;
	if (interval && !want_int(r->d, A0203, every_name, interval, 1, PLAN_MAX_LAYERS, &every))
		return;
	for (int l = 0; l < PLAN_MAX_LAYERS; l++)
		r->cf->layers[l].is_listed_dense = v || l < (int)k->absent || (l + 1) % every != 0;
	for (const Value *e = v && v->kind == VALUE_ARRAY ? v->first : NULL; e; e = e->next) {
		int l;
		if (!want_int(r->d, A0203, k->name, e, 0, PLAN_MAX_LAYERS, &l) || !add_sparse(r, k->name, e, l))
			return;
	}
	if (!v || v->kind == VALUE_ARRAY)
		return;
	const char *text, *at;
	if (!want_string(r->d, A0203, k->name, v, &text))
		return;
	for (at = text + strspn(text, ", "); *at; at += strspn(at, ", ")) {
		char *end;
		const long l = strtol(at, &end, 10);
		if (end == at || (*end && *end != ',' && *end != ' ')) {
			fail_at(r->d, A0203, v->at, "%s = %s: expected numbers of layers, as in \"3,4,5\"", k->name,
				value_text(r->d->arena, v));
			return;
		}
		if (!add_sparse(r, k->name, v, l))
			return;
		at = end;
	}
}

static void read_mlp_types(Reading *r)
{
	const char *name = name_of(r, READER_MLP_TYPES);
	const ConfigKey *sparse = key_of_reader(r->family, READER_SPARSE_LAYERS);
	const Value *v = name ? lookup(r, name) : NULL;
	if (v)
		read_words(r, name, v);
	else if (sparse)
		read_sparse_layers(r, sparse);
	else if (name)
		fail_at(r->d, A0202, r->text->at, "%s is missing", name);
}

/* Query heads ------------------------------------------------------------------------------------------------- */

static bool set_heads(Reading *r, int l, int heads, const char *name, Loc at)
{
	const int kv = r->cf->each.n_kv_heads;
	r->cf->layers[l].listed_heads = heads;
	return !kv || heads % kv == 0 || fail_at(r->d, A0205, at, "%s = %d: %s = %d must divide it", name, heads,
		key_of_field(r->family, offsetof(Config, each.n_kv_heads))->name, kv);
}

/* Query heads of each layer. */
static void read_layer_heads(Reading *r)
{
	const char *name = name_of(r, READER_LAYER_HEADS);
	const Value *v = name ? lookup(r, name) : NULL;
	int l = 0;
	if (!v || !layer_entries(r, name, v))
		return;
	for (const Value *e = v->first; e && l < r->cf->n_layers; e = e->next, l++) {
		int heads;
		if (!want_int(r->d, A0203, entry_name(r, name, l), e, 1, MAX_HEADS, &heads) ||
				!set_heads(r, l, heads, entry_name(r, name, l), e->at))
			return;
	}
}

/* What a table says of layers with a window: its query heads; the rest must be as in the other layers. *heads: 0 = it
 * does not say. */
static bool read_window_table(Reading *r, const char *name, const Value *table, int *heads)
{
	const LayerSpec *each = &r->cf->each;
	const struct { const char *name; int is; } same[] = {
		{key_of_field(r->family, offsetof(Config, each.n_kv_heads))->name, each->n_kv_heads},
		{"num_attention_groups", each->n_kv_heads}, {"head_dim", each->head_dim}, {"true_head_dim", each->head_dim}};
	if (!want_table(r->d, A0203, name, table))
		return false;
	for (const Value *v = table->first; v; v = v->next) {
		const char *member = member_name(r, name, v);
		size_t i = 0;
		int n;
		while (i < sizeof same / sizeof same[0] && strcmp(same[i].name, v->key) != 0)
			i++;
		if (strcmp(v->key, "attention_type") == 0) {
			if (v->kind != VALUE_STRING || strcmp(v->string, "sliding_attention") != 0)
				return fail_at(r->d, A0206, v->at, "%s = %s: expected \"sliding_attention\"", member,
					value_text(r->d->arena, v));
		} else if (strcmp(v->key, "num_attention_heads") == 0) {
			if (!want_int(r->d, A0203, member, v, 1, MAX_HEADS, heads))
				return false;
		} else if (i == sizeof same / sizeof same[0]) {
			return fail_at(r->d, A0206, v->at, "%s = %s: this feature is not implemented", member,
				value_text(r->d->arena, v));
		} else if (!want_int(r->d, A0203, member, v, 1, MAX_DIM, &n)) {
			return false;
		} else if (n != same[i].is) {
			return fail_at(r->d, A0206, v->at, "%s = %d: other layers have %d, and one number for all is implemented",
				member, n, same[i].is);
		}
	}
	return true;
}

/* Query heads of layers with a window. */
static void read_window_heads(Reading *r)
{
	const char *name = name_of(r, READER_WINDOW_HEADS), *table_name = name_of(r, READER_WINDOW_TABLE);
	const Value *v = name ? lookup(r, name) : NULL, *table = table_name ? lookup(r, table_name) : NULL;
	int heads = 0, listed = 0;
	if ((v && !want_int(r->d, A0203, name, v, 1, MAX_HEADS, &heads)) ||
			(table && !read_window_table(r, table_name, table, &listed)))
		return;
	if (heads && listed && heads != listed)
		fail_at(r->d, A0205, table->at, "%s.num_attention_heads = %d: %s = %d in line %d", table_name, listed, name,
			heads, v->at.line);
	heads = heads ? heads : listed;
	for (int l = 0; l < r->cf->n_layers && heads; l++)
		if (r->cf->layers[l].window && !set_heads(r, l, heads, v ? name : arena_printf(r->d->arena,
				"%s.num_attention_heads", table_name), v ? v->at : table->at))
			return;
}

/* Tables by number of layer, as transformers writes them, of query heads alone: what other keys say already. */
static void check_layer_tables(Reading *r)
{
	const char *name = name_of(r, READER_LAYER_TABLES);
	const Value *tables = name ? lookup(r, name) : NULL;
	if (!tables || !want_table(r->d, A0203, name, tables))
		return;
	for (const Value *t = tables->first; t; t = t->next) {
		const char *table = member_name(r, name, t);
		char *end;
		const long l = strtol(t->key, &end, 10);
		if (*end || end == t->key || l < 0 || l >= r->cf->n_layers) {
			fail_at(r->d, A0205, t->at, "%s: there are layers 0 to %d", table, r->cf->n_layers - 1);
			return;
		}
		if (!want_table(r->d, A0203, table, t))
			return;
		const int has = r->cf->layers[l].listed_heads ? r->cf->layers[l].listed_heads : r->cf->each.n_heads;
		for (const Value *v = t->first; v; v = v->next)
			if (strcmp(v->key, "num_attention_heads") != 0)
				fail_at(r->d, A0206, v->at, "%s.%s = %s: this feature is not implemented", table, v->key,
					value_text(r->d->arena, v));
			else if (v->kind != VALUE_INT || v->integer != has)
				fail_at(r->d, A0205, v->at, "%s.%s = %s: the layer has %d heads by the other keys", table, v->key,
					value_text(r->d->arena, v), has);
	}
}

/* Activations ------------------------------------------------------------------------------------------------ */

/* Largest values, of layers whose entry is neither 0 nor null. */
static void read_limits(Reading *r, KeyReader reader, size_t to)
{
	const char *name = name_of(r, reader);
	const Value *v = name ? lookup(r, name) : NULL;
	int l = 0;
	if (!v || (v->kind == VALUE_ARRAY && !v->n) || !layer_entries(r, name, v))
		return;
	for (const Value *e = v->first; e && l < r->cf->n_layers; e = e->next, l++)
		if (e->kind != VALUE_NULL && !want_real(r->d, A0203, entry_name(r, name, l), e, 0, false, 1e6,
				(double *)(void *)((char *)&r->cf->layers[l] + to)))
			return;
}

void read_layer_lists(ConfigReading *r)
{
	read_mlp_types(r);
	read_layer_heads(r);
	read_window_heads(r);
	check_layer_tables(r);
	read_limits(r, READER_GATE_LIMITS, offsetof(LayerSpec, gate_limit));
	read_limits(r, READER_SHARED_LIMITS, offsetof(LayerSpec, shared_limit));
}

/* Rope ----------------------------------------------------------------------------------------------------------- */

/* The entry of the layers of a word: all of them have the same one. `all`: one number for all layers, or a list. NULL =
 * there is no such layer, or a mistake. */
static const Value *entry_of_word(Reading *r, const char *name, const Value *all, const Value *words, const char *word)
{
	const Value *found = NULL, *w = words ? words->first : NULL;
	int l = 0, first = 0;
	if (all->kind != VALUE_ARRAY)
		return all;
	for (const Value *e = all->first; e && l < r->cf->n_layers; e = e->next, l++, w = w ? w->next : NULL) {
		const bool is_its = w ? w->kind == VALUE_STRING && strcmp(w->string, word) == 0
			: strcmp(word, "full_attention") == 0;
		if (is_its && found && !value_equal(found, e)) {
			fail_at(r->d, A0209, e->at, "%s = %s: %s = %s, and all layers of %s turn by one table",
				entry_name(r, name, l), value_text(r->d->arena, e), entry_name(r, name, first),
				value_text(r->d->arena, found), word);
			return NULL;
		}
		first = is_its && !found ? l : first;
		found = is_its && !found ? e : found;
	}
	return found;
}

const Value *rope_of_word(ConfigReading *r, const char *word)
{
	static const char *const keys[] = {"rope_theta", "partial_rotary_factor"};
	const char *list_name = name_of(r, READER_LAYER_TYPES), *parts = name_of(r, READER_ROTARY_PARTS);
	const Value *words = list_name ? lookup(r, list_name) : NULL;
	Value *table = arena_alloc(&r->c->arena, sizeof *table), **end = &table->first;
	*table = (Value){.kind = VALUE_TABLE, .at = r->text->at};
	for (int i = 0; i < 2; i++) {
		const char *name = i ? parts : keys[0];
		const Value *all = value_get(r->text, name);
		if (!all || (i && all->kind == VALUE_NULL) || (all->kind == VALUE_ARRAY && !layer_entries(r, name, all)))
			continue;
		const Value *entry = entry_of_word(r, name, all, words && words->kind == VALUE_ARRAY ? words : NULL, word);
		if (!entry)
			continue;
		*end = arena_alloc(&r->c->arena, sizeof **end);
		**end = *entry;
		(*end)->key = keys[i];
		(*end)->next = NULL;
		end = &(*end)->next;
		table->n++;
	}
	return table;
}
