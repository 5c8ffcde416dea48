/* read_layer_kinds.c - what config.json says of layers that not every family has: experts, Gated DeltaNet, a drafting
 * head, windows.
 *
 * Where two keys say the same thing, both are read and compared: the pattern of layers as a list and as an interval,
 * the number of experts under its two names. What is windowed is what the family's class in transformers windows, which
 * differs between classes that have the same keys.
 */
#include "compiler/read_model.h"

#include <string.h>

typedef ConfigReading Reading;

static const Value *lookup(const Reading *r, const char *key) { return config_lookup(r, key); }

static bool is_word(const Value *v, const char *word)
{
	return v->kind == VALUE_STRING && strcmp(v->string, word) == 0;
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
	const Value *a = lookup(r, "num_experts"), *b = lookup(r, "num_local_experts");
	const ConfigKey *other = find_config_key(r->family, "num_local_experts");
	bool by_other = !a && b && (other->flags & OTHER_NAME);
	cf->at_experts = a ? a->at : b ? b->at : r->text->at;
	bool size = read_dim(r, by_other ? "num_local_experts" : "num_experts", MAX_EXPERTS, &cf->each.n_experts);
	config_note(r, "num_experts", by_other ? b : a, a || by_other ? NULL : "missing");
	if (a && b && !value_equal(a, b))
		fail_at(r->d, A0205, b->at, "num_local_experts = %s: num_experts in line %d says %s",
			value_text(r->d->arena, b), a->at.line, value_text(r->d->arena, a));
	if (size && cf->each.n_active > cf->each.n_experts)
		fail_at(r->d, A0205, lookup(r, "num_experts_per_tok")->at, "num_experts_per_tok = %d: num_experts = %d",
			cf->each.n_active, cf->each.n_experts);
}

/* Gated DeltaNet ------------------------------------------------------------------------------------------ */

/* What the class derives layer_types from where the file does not list them. */
enum { DEFAULT_INTERVAL = 4 };

static void read_pattern(Reading *r)
{
	const Value *list = lookup(r, "layer_types"), *every = value_get(r->text, "full_attention_interval");
	int interval = DEFAULT_INTERVAL, i = 0;
	LayerSpec *layers = r->cf->layers;
	if (list && every && every->kind == VALUE_NULL) /* the class does not look at it then */
		every = NULL;
	if (every && !want_int(r->d, A0203, "full_attention_interval", every, 1, PLAN_MAX_LAYERS, &interval))
		return;
	config_note(r, "full_attention_interval", every, every ? NULL : "4");
	for (int l = 0; l < PLAN_MAX_LAYERS; l++)
		layers[l].mixer = (l + 1) % interval ? MIXER_DELTA : MIXER_ATTENTION;
	for (const Value *e = list && list->kind == VALUE_ARRAY ? list->first : NULL; e && i < r->cf->n_layers;
		e = e->next) {
		bool delta = is_word(e, "linear_attention");
		if (!delta && !is_word(e, "full_attention")) /* read_layer_types reports it */
			return;
		if (every && delta != (layers[i].mixer == MIXER_DELTA)) {
			fail_at(r->d, A0205, e->at, "layer_types[%d] = %s: full_attention_interval = %d in line %d says otherwise",
				i, value_text(r->d->arena, e), interval, every->at.line);
			return;
		}
		layers[i++].mixer = delta ? MIXER_DELTA : MIXER_ATTENTION;
	}
}

/* In what its publisher keeps the state; the option state.dtype may say otherwise. */
static void read_state_dtype(Reading *r)
{
	const Value *v = lookup(r, "mamba_ssm_dtype");
	const char *word;
	r->cf->state_dtype = DT_f32;
	if (!v || !want_string(r->d, A0203, "mamba_ssm_dtype", v, &word))
		return;
	r->cf->at_state_dtype = v->at;
	if (strcmp(word, "bfloat16") == 0)
		r->cf->state_dtype = DT_bf16;
	else if (strcmp(word, "float32") != 0)
		fail_at(r->d, A0206, v->at, "mamba_ssm_dtype = %s: expected \"float32\" or \"bfloat16\"",
			value_text(r->d->arena, v));
}

static void read_delta(Reading *r)
{
	Config *cf = r->cf;
	int width = 1;
	const Value *v = lookup(r, "linear_num_value_heads");
	if (cf->each.n_k_heads && cf->each.n_v_heads % cf->each.n_k_heads)
		fail_at(r->d, A0205, v->at, "linear_num_value_heads = %d: expected a multiple of "
			"linear_num_key_heads = %d", cf->each.n_v_heads, cf->each.n_k_heads);
	if (read_dim(r, "linear_conv_kernel_dim", 64, &width) && width < 2)
		fail_at(r->d, A0206, lookup(r, "linear_conv_kernel_dim")->at, "linear_conv_kernel_dim = 1: expected 2 or more");
	config_note(r, "linear_conv_kernel_dim", value_get(r->text, "linear_conv_kernel_dim"), "missing");
	cf->each.n_taps = width - 1;
	read_state_dtype(r);
	read_pattern(r);
	v = lookup(r, "mtp_num_hidden_layers");
	cf->at_mtp = v ? v->at : r->text->at;
	if (v)
		want_int(r->d, A0203, "mtp_num_hidden_layers", v, 0, 8, &cf->n_mtp);
}

/* Windows -------------------------------------------------------------------------------------------------
 *
 * Only full attention is implemented. A window matters only to rows further than it from the start, so it is
 * kept, and check_model refuses a context that is longer. The keys that a family lists say how its class decides: a
 * class without use_sliding_window means its number; one without max_window_layers means it for every layer. */

enum { DEFAULT_WINDOW = 4096, DEFAULT_FIRST_WINDOW = 28 }; /* of all classes that have these keys */

static bool has_key(const Reading *r, const char *key)
{
	const ConfigKey *k = find_config_key(r->family, key);
	return k && k->rule == KEY_CODE;
}

/* layer_types, where the class reads it: is_windowed [n_layers] by it. False where the file does not list them. */
static bool read_layer_types(Reading *r, bool *is_windowed)
{
	const Value *v = lookup(r, "layer_types");
	const bool has_delta = r->family->traits & FAMILY_DELTA;
	const char *other = has_delta ? "linear_attention" : "sliding_attention";
	const Value *wrong = NULL;
	int i = 0, at = 0, n_wrong = 0;
	if (!v || !want_array(r->d, A0203, "layer_types", v))
		return false;
	if (r->cf->n_layers && v->n != r->cf->n_layers)
		fail_at(r->d, A0205, v->at, "layer_types has %d entr%s: num_hidden_layers = %d", v->n,
			v->n == 1 ? "y" : "ies", r->cf->n_layers);
	for (const Value *e = v->first; e; e = e->next, i++) {
		bool is_other = is_word(e, other);
		if (i < r->cf->n_layers)
			is_windowed[i] = is_other && !has_delta;
		if (is_other || is_word(e, "full_attention"))
			continue;
		if (!n_wrong++)
			wrong = e, at = i;
	}
	if (wrong)
		fail_at(r->d, A0206, wrong->at, "layer_types[%d] = %s%s: expected \"full_attention\" or \"%s\"", at,
			value_text(r->d->arena, wrong), n_wrong > 1 ? arena_printf(r->d->arena, " and %d other%s", n_wrong - 1,
			n_wrong > 2 ? "s" : "") : "", other);
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
	const Value *v = value_get(r->text, "sliding_window"), *flag = value_get(r->text, "use_sliding_window");
	const bool has_flag = has_key(r, "use_sliding_window");
	bool on = !has_flag;
	int window = DEFAULT_WINDOW;
	if (has_flag && flag && !want_bool(r->d, A0203, "use_sliding_window", flag, &on))
		return -1;
	if (v && v->kind != VALUE_NULL && !want_int(r->d, A0203, "sliding_window", v, 1, MAX_POSITION, &window))
		return -1;
	if (has_flag)
		config_note(r, "use_sliding_window", flag, "false");
	config_note(r, "sliding_window", v, v ? NULL : "4096");
	return on && !(v && v->kind == VALUE_NULL) ? window : 0;
}

static void read_windows(Reading *r)
{
	Config *cf = r->cf;
	const int n = cf->n_layers;
	bool *is_windowed = ARENA_ARRAY(&r->c->arena, bool, n + 1);
	int first = has_key(r, "max_window_layers") ? DEFAULT_FIRST_WINDOW : 0;
	bool is_listed = has_key(r, "layer_types") && read_layer_types(r, is_windowed);
	if (!has_key(r, "sliding_window"))
		return;
	const int window = read_window_number(r);
	const Value *from = value_get(r->text, "max_window_layers"), *list = lookup(r, "layer_types");
	if (has_key(r, "max_window_layers")) {
		if (from && !want_int(r->d, A0203, "max_window_layers", from, 0, MAX_DIM, &first))
			return;
		config_note(r, "max_window_layers", from, "28");
	}
	for (int l = 0; l < n && !is_listed; l++)
		is_windowed[l] = window > 0 && l >= first;
	const int l = first_of(is_windowed, n);
	if (window < 0 || l == n)
		return;
	if (!window) { /* as much as transformers would say, which finds no number for its mask */
		const Value *number = value_get(r->text, "sliding_window");
		fail_at(r->d, A0205, list->at, "layer_types[%d] = \"sliding_attention\": there is no window, as %s", l,
			number && number->kind == VALUE_NULL ? "sliding_window = null"
			: value_get(r->text, "use_sliding_window") ? "use_sliding_window = false"
			: arena_printf(r->d->arena, "use_sliding_window = false, the default of %s", r->family->name));
		return;
	}
	for (int k = 0; k < n; k++)
		cf->layers[k].window = is_windowed[k] ? window : 0;
}

void read_layer_kinds(ConfigReading *r)
{
	if (r->family->traits & FAMILY_EXPERTS)
		read_experts(r);
	if (r->family->traits & FAMILY_DELTA)
		read_delta(r);
	read_windows(r);
}
