/* blame_config.c - which one value of config.json do the checkpoint's tensors contradict?
 *
 * A wrong head_dim makes a wrong shape of six tensors of every layer. Each of them is right to complain, and none says
 * what is wrong. So the graph is built again with other values in place of one: of each size that a tensor's shape
 * suggests, and of the number of layers that the tensors' names do. If that leaves no error, or far fewer, the value is
 * what is reported, once, and what is left.
 *
 * A build of the graph takes milliseconds, and this is done only where there were errors.
 */
#include "compiler/graph/weights.h"
#include "compiler/read/config_keys.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TRIALS = 48, MOST_VALUES = 4 /* of one key */ };

typedef struct Size { size_t at; int more; /* of the key than of the field */ const char *key; } Size;
#define SIZE(field) {offsetof(Config, field), 0, NULL}
/* In the order in which they are tried; where two explain the same, the first is reported. */
static const Size sizes[] = {
	SIZE(hidden_dim), SIZE(vocab), SIZE(each.head_dim), SIZE(each.n_kv_heads), SIZE(each.n_heads), SIZE(each.ffn_dim),
	SIZE(each.shared_dim), SIZE(each.n_experts), SIZE(each.n_v_heads), SIZE(each.n_k_heads), SIZE(each.v_dim),
	SIZE(each.k_dim), {offsetof(Config, each.n_taps), 1, NULL},
};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

typedef struct Blame {
	Compile *c;
	const Compile *before;
	void (*build)(Compile *c);
	int n_trials;
	Compile *best;    /* of the trials, NULL = none is better */
	const char *key;  /* of it */
	int is;           /* its value there */
	const char *also; /* "linear_key_head_dim = 16": what explains everything as well; NULL = nothing does */
} Blame;

static int size_of(const Config *cf, const Size *s)
{
	return *(const int *)(const void *)((const char *)cf + s->at) + s->more;
}

/* The k-th size with the family's key for it; false where config.json says nothing of it. */
static bool size_at(const Config *cf, int k, Size *out)
{
	const ConfigKey *key = key_of_field(cf->family, sizes[k].at);
	*out = sizes[k];
	out->key = key ? key->name : "";
	for (int i = 0; i < cf->n_values; i++)
		if (strcmp(cf->values[i].key, out->key) == 0)
			return true;
	return false;
}

static const ConfigValue *value_of(const Config *cf, const char *key)
{
	for (int i = 0; i < cf->n_values; i++)
		if (strcmp(cf->values[i].key, key) == 0)
			return &cf->values[i];
	return NULL;
}

/* What is derived from others, anew. */
static void derive(Config *cf, int old_head_dim)
{
	const ConfigValue *dim = value_of(cf, key_of_field(cf->family, offsetof(Config, each.head_dim))->name);
	const ConfigValue *kv = value_of(cf, key_of_field(cf->family, offsetof(Config, each.n_kv_heads))->name);
	LayerSpec *s = &cf->each;
	if (dim && dim->from && s->head_dim == old_head_dim)
		s->head_dim = cf->hidden_dim / s->n_heads;
	if (kv && kv->from)
		s->n_kv_heads = s->n_heads;
	for (int i = cf->full_head_dim != 0; i < cf->n_ropes; i++) /* the first one is then of another head_dim */
		cf->ropes[i].rotary_dim = (int)((int64_t)cf->ropes[i].rotary_dim * s->head_dim / old_head_dim);
}

static bool is_sound(const Config *cf)
{
	const LayerSpec *s = &cf->each;
	bool is_even = s->head_dim % 2 == 0;
	for (int i = 0; i < cf->n_ropes; i++)
		is_even &= cf->ropes[i].rotary_dim % 2 == 0;
	return cf->hidden_dim > 0 && s->head_dim > 0 && is_even && s->n_kv_heads > 0 && s->n_heads % s->n_kv_heads == 0 &&
		s->n_active <= s->n_experts && (!s->n_k_heads || (s->n_v_heads % s->n_k_heads == 0 && s->n_taps > 0));
}

/* Does a tensor that fitted no longer fit? Then the value in the file was right, and something else is wrong. */
static bool spoils_one(const Compile *c, const Compile *trial)
{
	for (int i = 0; i < trial->misfits.n; i++) {
		int k = 0;
		while (k < c->misfits.n && c->misfits.at[k].t != trial->misfits.at[i].t)
			k++;
		if (k == c->misfits.n)
			return true;
	}
	return false;
}

/* The trial, kept where it is the best; NULL where the value makes no sense. */
static Compile *try_value(Blame *b, const Size *size, int value)
{
	Compile *c = b->c, *trial = ARENA_NEW(&c->arena, Compile);
	if (b->n_trials == MOST_TRIALS)
		return NULL;
	*trial = *b->before;
	Config *cf = &trial->model.config;
	int *to = (int *)(void *)((char *)cf + size->at), head_dim = cf->each.head_dim;
	*to = value - size->more;
	derive(cf, head_dim);
	if (!is_sound(cf))
		return NULL;
	b->n_trials++;
	for (int i = 0; i < trial->model.tensors.n; i++)
		trial->model.tensors.at[i].used_by = 0;
	trial->arena = c->arena; /* the trial goes on where the compile is, and back again after it */
	trial->scratch = c->scratch;
	trial->diags = (Diags){.arena = &trial->arena};
	b->build(trial);
	c->arena = trial->arena;
	c->scratch = trial->scratch;
	if (!trial->diags.n_errors && b->best && !b->best->diags.n_errors && !b->also && strcmp(b->key, size->key) != 0)
		b->also = arena_printf(&c->arena, "%s = %d", size->key, value);
	if (strcmp(size->key, "num_hidden_layers") != 0 && spoils_one(c, trial)) /* other layers have other tensors */
		return trial;
	const int best = b->best ? b->best->diags.n_errors : c->diags.n_errors - b->before->diags.n_errors;
	if (trial->diags.n_errors >= best || (trial->diags.n_errors && best - trial->diags.n_errors < 2))
		return trial;
	b->best = trial;
	b->key = size->key;
	b->is = value;
	return trial;
}

/* One more than the last layer that a tensor names; 0 = none does. */
static int layers_of_names(Compile *c)
{
	const Family *f = c->model.config.family;
	const char *layers = arena_printf(&c->scratch, ".%s.", f->names[NAME_LAYERS]);
	int n = 0;
	for (int i = 0; i < c->model.tensors.n; i++) {
		const char *name = c->model.tensors.at[i].name, *at = strstr(name, layers);
		bool is_model = false; /* and no drafting head */
		for (int p = 0; at && f->prefixes[p]; p++)
			is_model |= strcmp(arena_strndup(&c->scratch, name, (size_t)(at - name)), f->prefixes[p]) == 0;
		if (!is_model)
			continue;
		long l = strtol(at + strlen(layers), NULL, 10);
		if (l >= n && l < PLAN_MAX_LAYERS)
			n = (int)l + 1;
	}
	return n;
}

/* Sizes of which a dimension is a multiple. */
static void try_multiples(Blame *b)
{
	Config *cf = &b->c->model.config;
	for (int k = 0; k < N_SIZES; k++) {
		Size size;
		int tried[MOST_VALUES], n = 0;
		if (!size_at(cf, k, &size))
			continue;
		const int value = size_of(cf, &size);
		for (int i = 0; i < b->c->misfits.n && n < MOST_VALUES; i++) {
			const Misfit *m = &b->c->misfits.at[i];
			for (int d = 0; d < m->n_dims && d < m->t->n_dims && n < MOST_VALUES; d++) {
				int64_t product = value * m->t->shape[d], other = m->want[d] > 0 ? product / m->want[d] : 0;
				bool is_new = other > 0 && other != value && other <= MAX_VOCAB && product % m->want[d] == 0;
				for (int j = 0; j < n; j++)
					is_new &= tried[j] != other;
				if (!is_new)
					continue;
				tried[n++] = (int)other;
				try_value(b, &size, (int)other);
			}
		}
	}
}

/* Sizes of which a dimension is a multiple and something more: twice or half the size shows how much. */
static void try_sums(Blame *b)
{
	Config *cf = &b->c->model.config;
	const Misfit *m = b->c->misfits.n ? &b->c->misfits.at[0] : NULL;
	for (int k = 0; m && k < N_SIZES; k++) {
		Size size;
		if (!size_at(cf, k, &size))
			continue;
		const int value = size_of(cf, &size);
		if (value < 1 || value > MAX_DIM)
			continue;
		int probed = 2 * value;
		const Compile *probe = try_value(b, &size, probed);
		if (!probe && value % 2 == 0)
			probe = try_value(b, &size, probed = value / 2);
		for (int i = 0; probe && i < probe->misfits.n; i++) {
			const Misfit *t = &probe->misfits.at[i];
			const int64_t more = t->want[0] - m->want[0], off = (m->t->shape[0] - m->want[0]) * (probed - value);
			if (t->t != m->t || !more || off % more)
				continue;
			const int64_t other = value + off / more;
			if (other > 0 && other <= MAX_DIM)
				try_value(b, &size, (int)other);
		}
	}
}

/* The line, and what is left of the errors. */
static void report(Blame *b)
{
	Compile *c = b->c;
	const Misfit *first = c->misfits.n ? &c->misfits.at[0] : NULL;
	const int n = c->misfits.n - b->best->misfits.n;
	const Config *cf = &c->model.config;
	const char *said = config_said(&c->arena, cf, b->key);
	const Loc at = config_place(cf, b->key);
	const Diags left = b->best->diags;
	c->diags = b->before->diags;
	if (strcmp(b->key, "num_hidden_layers") == 0)
		fail_at(&c->diags, A0214, at, "%s: the checkpoint has tensors of %d layer%s", said, b->is,
			b->is > 1 ? "s" : "");
	else if (n > 0)
		fail_at(&c->diags, A0214, at, "%s: %d tensor%s of the checkpoint ha%s the shape of %s = %d%s%s, as %s %s, "
			"not %s", said, n, n > 1 ? "s" : "", n > 1 ? "ve" : "s", b->key, b->is, b->also ? ", or of " : "",
			b->also ? b->also : "", first->t->name, g_shape_text(c, first->t->n_dims, first->t->shape),
			g_shape_text(c, first->n_dims, first->want));
	else
		fail_at(&c->diags, A0214, at, "%s: the checkpoint's tensors are those of %s = %d", said, b->key, b->is);
	for (int i = 0; i < left.n; i++)
		if (!left.list[i].is_note)
			fail_at(&c->diags, left.list[i].code, left.list[i].at, "%s", left.list[i].text);
	if (left.n_errors > left.n)
		c->diags.n_errors += left.n_errors - left.n;
}

void blame_config(Compile *c, const Compile *before, void (*build)(Compile *c))
{
	Blame blame = {.c = c, .before = before, .build = build};
	if (!c->model.config.n_values) /* made by a test, not read */
		return;
	const int n_layers = layers_of_names(c);
	if (n_layers && n_layers != c->model.config.n_layers)
		try_value(&blame, &(Size){offsetof(Config, n_layers), 0, "num_hidden_layers"}, n_layers);
	try_multiples(&blame);
	if (!blame.best)
		try_sums(&blame);
	if (blame.best)
		report(&blame);
}
