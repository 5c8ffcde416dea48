/* read_layer_kinds.c - what config.json says of layers that not every family has: experts, Gated DeltaNet, a drafting
 * head, windows.
 *
 * Where two keys say the same thing, both are read and compared: the pattern of layers as a list and as an interval,
 * the number of experts under its two names. What is windowed is what the family's class in transformers windows, which
 * differs between classes that have the same keys.
 */
#include "compiler/read/read_model.h"

#include <string.h>

typedef ConfigReading Reading;

static const Value *lookup(const Reading *r, const char *key) { return config_lookup(r, key); }

/* The name of the family's key of that kind; NULL = it has none. */
static const char *name_of(const Reading *r, KeyReader reader)
{
	const ConfigKey *k = key_of_reader(r->family, reader);
	return k ? k->name : NULL;
}

static double default_of(const Reading *r, KeyReader reader) { return key_of_reader(r->family, reader)->absent; }

static const char *field_name(const Reading *r, size_t to) { return key_of_field(r->family, to)->name; }

/* What a word of layer_types means; NULL = it is none of the family's. */
static const LayerWord *word_of(const Reading *r, const Value *v)
{
	for (int i = 0; i < r->family->n_words; i++)
		if (v->kind == VALUE_STRING && strcmp(v->string, r->family->words[i].word) == 0)
			return &r->family->words[i];
	return NULL;
}

static bool read_dim(Reading *r, const char *key, int hi, int *out)
{
	const Value *v = value_get(r->text, key);
	return v ? want_int(r->d, A0203, key, v, 1, hi, out)
		: fail_at(r->d, A0202, r->text->at, "%s is missing", key);
}

/* Experts ----------------------------------------------------------------------------------------------- */

static void read_experts(Reading *r)
{
	Config *cf = r->cf;
	const char *name = name_of(r, READER_EXPERTS), *check = name_of(r, READER_EXPERTS_CHECK);
	const Value *a = lookup(r, name), *b = check ? lookup(r, check) : NULL;
	const char *active = field_name(r, offsetof(Config, each.n_active));
	cf->at_experts = a ? a->at : r->text->at;
	bool size = read_dim(r, name, MAX_EXPERTS, &cf->each.n_experts);
	config_note(r, name, a, a ? NULL : "missing");
	if (a && b && !value_equal(a, b))
		fail_at(r->d, A0205, b->at, "%s = %s: %s in line %d says %s", check, value_text(r->d->arena, b), name,
			a->at.line, value_text(r->d->arena, a));
	if (key_of_field(r->family, offsetof(Config, expert_dim)) && !cf->expert_dim)
		fail_at(r->d, A0202, r->text->at, "%s is missing", field_name(r, offsetof(Config, expert_dim)));
	if (!cf->each.n_active && !lookup(r, active))
		fail_at(r->d, A0202, r->text->at, "%s is missing", active);
	if (size && cf->each.n_active > cf->each.n_experts)
		fail_at(r->d, A0205, lookup(r, active) ? lookup(r, active)->at : r->text->at, "%s = %d: %s = %d", active,
			cf->each.n_active, name, cf->each.n_experts);
}

static void check_groups(Reading *r)
{
	const LayerSpec *s = &r->cf->each;
	const ConfigKey *k = key_of_field(r->family, offsetof(Config, each.n_groups));
	const ConfigKey *top = key_of_field(r->family, offsetof(Config, each.top_groups));
	const char *groups = k ? k->name : "groups", *open = top ? top->name : "groups that are open";
	if (!s->n_experts)
		return;
	const Value *v = k ? lookup(r, k->name) : NULL, *t = top ? lookup(r, top->name) : NULL;
	const Loc at = v ? v->at : t ? t->at : r->text->at;
	if (s->n_experts % s->n_groups)
		fail_at(r->d, A0205, at, "%s = %d: must divide the %d experts", groups, s->n_groups, s->n_experts);
	else if (s->top_groups > s->n_groups)
		fail_at(r->d, A0205, t ? t->at : at, "%s = %d: %s = %d", open, s->top_groups, groups, s->n_groups);
	else if (s->n_active <= s->n_experts && s->n_active > s->n_experts / s->n_groups * s->top_groups)
		fail_at(r->d, A0205, t ? t->at : at, "%s = %d: groups of %d experts are less than the %d of a row", open,
			s->top_groups, s->n_experts / s->n_groups, s->n_active);
}

/* Gated DeltaNet ------------------------------------------------------------------------------------------ */

static void read_pattern(Reading *r)
{
	const char *list_name = name_of(r, READER_LAYER_TYPES), *name = name_of(r, READER_INTERVAL);
	const Value *list = lookup(r, list_name), *every = value_get(r->text, name);
	int interval = (int)default_of(r, READER_INTERVAL), i = 0;
	LayerSpec *layers = r->cf->layers;
	if (list && every && every->kind == VALUE_NULL) /* the class does not look at it then */
		every = NULL;
	if (every && !want_int(r->d, A0203, name, every, 1, PLAN_MAX_LAYERS, &interval))
		return;
	config_note(r, name, every, every ? NULL : arena_printf(&r->c->arena, "%d", interval));
	for (int l = 0; l < PLAN_MAX_LAYERS; l++)
		layers[l].mixer = (l + 1) % interval ? MIXER_DELTA : MIXER_ATTENTION;
	for (const Value *e = list && list->kind == VALUE_ARRAY ? list->first : NULL; e && i < r->cf->n_layers;
		e = e->next) {
		const LayerWord *word = word_of(r, e);
		if (!word) /* read_layer_types reports it */
			return;
		bool delta = word->mixer == MIXER_DELTA;
		if (every && delta != (layers[i].mixer == MIXER_DELTA)) {
			fail_at(r->d, A0205, e->at, "%s[%d] = %s: %s = %d in line %d says otherwise", list_name, i,
				value_text(r->d->arena, e), name, interval, every->at.line);
			return;
		}
		layers[i++].mixer = delta ? MIXER_DELTA : MIXER_ATTENTION;
	}
}

/* In what its publisher keeps the state; the option state.dtype may say otherwise. */
static void read_state_dtype(Reading *r)
{
	const char *word, *name = name_of(r, READER_STATE_DTYPE);
	const Value *v = name ? lookup(r, name) : NULL;
	r->cf->state_dtype = DT_f32;
	if (!v || !want_string(r->d, A0203, name, v, &word))
		return;
	r->cf->at_state_dtype = v->at;
	if (strcmp(word, "bfloat16") == 0)
		r->cf->state_dtype = DT_bf16;
	else if (strcmp(word, "float32") != 0)
		fail_at(r->d, A0206, v->at, "%s = %s: expected \"float32\" or \"bfloat16\"", name,
			value_text(r->d->arena, v));
}

static void read_delta(Reading *r)
{
	Config *cf = r->cf;
	int width = 1;
	const char *k_heads = field_name(r, offsetof(Config, each.n_k_heads)), *taps = name_of(r, READER_TAPS);
	const char *v_heads = field_name(r, offsetof(Config, each.n_v_heads));
	if (cf->each.n_k_heads && cf->each.n_v_heads % cf->each.n_k_heads)
		fail_at(r->d, A0205, lookup(r, v_heads)->at, "%s = %d: expected a multiple of %s = %d", v_heads,
			cf->each.n_v_heads, k_heads, cf->each.n_k_heads);
	if (read_dim(r, taps, 64, &width) && width < 2)
		fail_at(r->d, A0206, lookup(r, taps)->at, "%s = 1: expected 2 or more", taps);
	config_note(r, taps, value_get(r->text, taps), "missing");
	cf->each.n_taps = width - 1;
	read_state_dtype(r);
	read_pattern(r);
}

static void read_draft_layers(Reading *r)
{
	const char *name = name_of(r, READER_DRAFT_LAYERS);
	const Value *v = lookup(r, name);
	r->cf->at_mtp = v ? v->at : r->text->at;
	if (v)
		want_int(r->d, A0203, name, v, 0, 8, &r->cf->n_mtp);
}

/* Layers whose positions turn nothing ---------------------------------------------------------------------- */

/* A list has 1 where rope turns, and without one it turns in all layers but every interval-th. */
static void read_rope_layers(Reading *r)
{
	const char *name = name_of(r, READER_ROPE_LAYERS), *every_name = name_of(r, READER_ROPE_INTERVAL);
	const Value *list = value_get(r->text, name), *every = every_name ? value_get(r->text, every_name) : NULL;
	int interval = every_name ? (int)default_of(r, READER_ROPE_INTERVAL) : 0, l = 0;
	if (every && !want_int(r->d, A0203, every_name, every, 1, PLAN_MAX_LAYERS, &interval))
		return;
	if (every_name)
		config_note(r, every_name, every, every ? NULL : arena_printf(&r->c->arena, "%d", interval));
	for (int i = 0; interval && i < PLAN_MAX_LAYERS; i++)
		r->cf->layers[i].rope = (i + 1) % interval ? 0 : -1;
	if (!list || list->kind == VALUE_NULL || !layer_entries(r, name, list))
		return;
	for (const Value *e = list->first; e && l < r->cf->n_layers; e = e->next, l++) {
		int turns = 0;
		if (!want_int(r->d, A0203, arena_printf(r->d->arena, "%s[%d]", name, l), e, 0, 1, &turns))
			return;
		r->cf->layers[l].rope = turns ? 0 : -1;
	}
}

/* Windows -------------------------------------------------------------------------------------------------
 *
 * The keys that a family lists say how its class decides: a class without use_sliding_window means its number; one
 * without max_window_layers means it for every layer. */

/* layer_types, where the class reads it: is_windowed [n_layers] by it. False where the file does not list them. */
static bool read_layer_types(Reading *r, bool *is_windowed)
{
	const char *name = name_of(r, READER_LAYER_TYPES), *expected = "";
	const Value *v = lookup(r, name), *wrong = NULL;
	const Family *f = r->family;
	int i = 0, at = 0, n_wrong = 0;
	if (!v || !layer_entries(r, name, v))
		return false;
	for (const Value *e = v->first; e; e = e->next, i++) {
		const LayerWord *word = word_of(r, e);
		if (i < r->cf->n_layers)
			is_windowed[i] = word && word->is_windowed;
		if (!word && !n_wrong++)
			wrong = e, at = i;
	}
	for (int k = 0; k < f->n_words; k++)
		expected = arena_printf(r->d->arena, "%s%s\"%s\"", expected, k == 0 ? "" : k + 1 < f->n_words ? ", " : " or ",
			f->words[k].word);
	if (wrong)
		fail_at(r->d, A0206, wrong->at, "%s[%d] = %s%s: expected %s", name, at, value_text(r->d->arena, wrong),
			n_wrong > 1 ? arena_printf(r->d->arena, " and %d other%s", n_wrong - 1, n_wrong > 2 ? "s" : "") : "",
			expected);
	return true;
}

static int first_of(const bool *is, int n)
{
	int i = 0;
	while (i < n && !is[i])
		i++;
	return i;
}

/* The window of those layers that have one, 0 = the number is not meant or null; -1 after a mistake. */
static int read_window_number(Reading *r)
{
	const char *name = name_of(r, READER_WINDOW), *flag_name = name_of(r, READER_HAS_WINDOW);
	const Value *v = value_get(r->text, name), *flag = flag_name ? value_get(r->text, flag_name) : NULL;
	bool on = !flag_name || default_of(r, READER_HAS_WINDOW) != 0;
	const bool is_on = on;
	int window = (int)default_of(r, READER_WINDOW);
	if (flag && !want_bool(r->d, A0203, flag_name, flag, &on))
		return -1;
	if (v && v->kind != VALUE_NULL && !want_int(r->d, A0203, name, v, 1, MAX_POSITION, &window))
		return -1;
	if (flag_name)
		config_note(r, flag_name, flag, is_on ? "true" : "false");
	config_note(r, name, v, v ? NULL : window ? arena_printf(&r->c->arena, "%d", window) : "null");
	return on && !(v && v->kind == VALUE_NULL) ? window : 0;
}

/* As much as transformers would say, which finds no number for its mask. */
static void fail_no_window(Reading *r, int l)
{
	const char *list = name_of(r, READER_LAYER_TYPES), *name = name_of(r, READER_WINDOW);
	const char *flag = name_of(r, READER_HAS_WINDOW);
	const Value *v = lookup(r, list), *number = value_get(r->text, name), *word = v->first;
	for (int i = 0; i < l; i++)
		word = word->next;
	fail_at(r->d, A0205, v->at, "%s[%d] = \"%s\": there is no window, as %s", list, l, word->string,
		number && number->kind == VALUE_NULL ? arena_printf(r->d->arena, "%s = null", name)
		: !flag ? arena_printf(r->d->arena, "%s = null, the default of %s", name, r->family->name)
		: value_get(r->text, flag) ? arena_printf(r->d->arena, "%s = false", flag)
		: arena_printf(r->d->arena, "%s = false, the default of %s", flag, r->family->name));
}

/* By which rope table layers turn, where it goes by the layer's word. */
static void set_ropes(Reading *r, const bool *is_windowed, int window)
{
	const Family *f = r->family;
	WordRope ropes[2] = {f->words[0].rope, WORD_ROPE_FIRST}; /* of those without a window, and of those with one */
	for (int i = 1; i < f->n_words; i++)
		ropes[1] = f->words[i].is_windowed ? f->words[i].rope : ropes[1];
	for (int l = 0; l < r->cf->n_layers && (ropes[0] || ropes[1]); l++) {
		const WordRope rope = ropes[is_windowed[l]];
		const bool has_none = rope == WORD_ROPE_NONE || (rope == WORD_ROPE_NONE_NEXT_TO_WINDOWS && window > 0);
		r->cf->layers[l].rope = has_none ? -1 : rope == WORD_ROPE_OWN || rope == WORD_ROPE_STATED;
	}
}

/* Do windows not slide, but divide a sequence? */
static bool has_chunks(const Family *f)
{
	bool any = false;
	for (int i = 0; i < f->n_words; i++)
		any |= f->words[i].is_chunked;
	return any;
}

/* Which layers have a window where no list says so: all but every n-th, those without rope, of chunks those with it,
 * those from `first` on. */
static bool is_windowed_alone(Reading *r, int l, int every, int first)
{
	if (name_of(r, READER_FULL_INTERVAL))
		return (l + 1) % every != 0;
	return name_of(r, READER_ROPE_LAYERS) ? (r->cf->layers[l].rope < 0) != has_chunks(r->family) : l >= first;
}

static void read_windows(Reading *r)
{
	Config *cf = r->cf;
	const int n = cf->n_layers;
	bool *is_windowed = ARENA_ARRAY(&r->c->arena, bool, n + 1);
	const char *first_name = name_of(r, READER_FIRST_WINDOW);
	int first = first_name ? (int)default_of(r, READER_FIRST_WINDOW) : 0;
	bool is_listed = name_of(r, READER_LAYER_TYPES) && read_layer_types(r, is_windowed);
	if (!name_of(r, READER_WINDOW))
		return;
	const int window = read_window_number(r);
	if (first_name) {
		const Value *from = value_get(r->text, first_name);
		const char *text = arena_printf(&r->c->arena, "%d", first);
		if (from && !want_int(r->d, A0203, first_name, from, 0, MAX_DIM, &first))
			return;
		config_note(r, first_name, from, text);
	}
	const char *every_name = name_of(r, READER_FULL_INTERVAL);
	int every = every_name ? (int)default_of(r, READER_FULL_INTERVAL) : 1;
	const Value *interval = every_name && !is_listed ? lookup(r, every_name) : NULL;
	if (interval && !want_int(r->d, A0203, every_name, interval, 1, PLAN_MAX_LAYERS, &every))
		return;
	for (int l = 0; l < n && !is_listed; l++)
		is_windowed[l] = window > 0 && is_windowed_alone(r, l, every, first);
	if (r->family->is_last_full && n)
		is_windowed[n - 1] = false;
	set_ropes(r, is_windowed, window);
	const int l = first_of(is_windowed, n);
	if (window < 0 || l == n)
		return;
	if (!window) {
		fail_no_window(r, l);
		return;
	}
	for (int k = 0; k < n; k++) {
		cf->layers[k].window = is_windowed[k] ? window : 0;
		cf->layers[k].chunked = is_windowed[k] && has_chunks(r->family);
	}
}

/* Place of a key that is read into that field. */
static Loc place_of(const Reading *r, size_t field)
{
	const Value *v = lookup(r, field_name(r, field));
	return v ? v->at : r->text->at;
}

/* What layers without a window have of their own, and per-layer embeddings. */
static void check_sizes(Reading *r)
{
	const Config *cf = r->cf;
	const size_t dim = offsetof(Config, full_head_dim), heads = offsetof(Config, full_kv_heads);
	const size_t vocab = offsetof(Config, ple_vocab);
	if (cf->full_head_dim % 2)
		fail_at(r->d, A0205, place_of(r, dim), "%s = %d: expected an even number, rope turns pairs", field_name(r, dim),
			cf->full_head_dim);
	if (cf->full_v_is_k && cf->full_kv_heads && cf->each.n_heads % cf->full_kv_heads)
		fail_at(r->d, A0205, place_of(r, heads), "%s = %d: must divide num_attention_heads = %d", field_name(r, heads),
			cf->full_kv_heads, cf->each.n_heads);
	if (cf->ple_dim && cf->ple_vocab != cf->vocab)
		fail_at(r->d, A0205, place_of(r, vocab), "%s = %d: vocab_size = %d, and each token needs an embedding",
			field_name(r, vocab), cf->ple_vocab, cf->vocab);
}

/* Each of the layers that share keys and values finds some. */
static void check_shared(Reading *r)
{
	const Config *cf = r->cf;
	const size_t field = offsetof(Config, n_kv_shared);
	for (int l = cf->n_layers - cf->n_kv_shared; cf->n_kv_shared && l < cf->n_layers; l++)
		if (l < 0 || !layers_back(cf, l)) {
			fail_at(r->d, A0205, place_of(r, field), "%s = %d: num_hidden_layers = %d, and no layer before the last %d "
				"has keys and values of the kind that layer %d reads", field_name(r, field), cf->n_kv_shared,
				cf->n_layers, cf->n_kv_shared, l < 0 ? 0 : l);
			return;
		}
}

void read_layer_kinds(ConfigReading *r)
{
	if (has_experts(r->family) && r->cf->has_experts)
		read_experts(r);
	else
		r->cf->each.n_experts = r->cf->each.n_active = r->cf->expert_dim = 0;
	check_groups(r);
	const size_t active = offsetof(Config, each.n_active);
	if (r->cf->each.share_input && r->cf->each.n_active > 1)
		fail_at(r->d, A0205, place_of(r, active), "%s = %d: a share of what an expert reads is implemented for one "
			"expert a row", field_name(r, active), r->cf->each.n_active);
	if (has_delta(r->family))
		read_delta(r);
	if (r->family->draft_prefix)
		read_draft_layers(r);
	if (name_of(r, READER_ROPE_LAYERS))
		read_rope_layers(r);
	read_windows(r);
	check_sizes(r);
	check_shared(r);
	read_layer_lists(r);
}
