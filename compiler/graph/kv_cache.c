/* kv_cache.c - the cache of a layer: its tensors in the format that MODEL.toml gives the layer, its pages, its scales.
 *
 * ops.h says what a format is: kv_scale and kv_block. The scales of heads are found under the names that writers
 * have given them, M being the layer's attention ("model.layers.0.self_attn"):
 *
 *   of keys    M.k_proj.k_scale  M.k_scale  M.attn.k_scale  M.k_proj.output_scale  M.qkv_proj.k_scale  M.kv_scale
 *   of values  M.v_proj.v_scale  M.v_scale  M.attn.v_scale  M.v_proj.output_scale  M.qkv_proj.v_scale  M.kv_scale
 *
 * one for all heads or one each: the largest magnitude that the writer saw, over 448. An e2m1 cache takes the same: its
 * run scales reach as far and leave room above. They come from the file of kv.scales where MODEL.toml names one, else
 * from the checkpoint. Where only keys or only values have one, it serves both; where neither has, it is 1; a note says
 * so in both cases. A cache in bf16 has no scales: those that are there anyway are reported as unused. Another name is
 * refused like every tensor that nothing reads.
 *
 * Keys that are rotated ([kv] rotate) have another largest magnitude. `atlasc calibrate` writes it over 448 as
 * M.rotated_k_scale, next to that of keys as they were; each layer reads the one that it needs. Where a rotated layer
 * has only the latter, as in checkpoints, it serves, with a note: what rotation makes of a key with a few large
 * elements is smaller than these, of any key at most sqrt(HDIM) times as large, and what goes beyond becomes the
 * largest code.
 */
#include "artifacts/numbers.h"
#include "artifacts/rolling.h"
#include "compiler/graph/modules.h"
#include "compiler/read/family.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROTATED_NAME "rotated_k_scale"
enum { N_FORMS = 6 };

static const char *const scale_names[2][N_FORMS] = {
	{"k_proj.k_scale", "k_scale", "attn.k_scale", "k_proj.output_scale", "qkv_proj.k_scale", "kv_scale"},
	{"v_proj.v_scale", "v_scale", "attn.v_scale", "v_proj.output_scale", "qkv_proj.v_scale", "kv_scale"}};
/* of queries and probabilities, which are not quantised here */
static const char *const other_names[] = {"q_proj.q_scale", "q_scale", "attn.q_scale", "q_proj.output_scale",
	"qkv_proj.q_scale", "prob_scale", "attn.prob_scale"};
static const char *const side_names[2] = {"keys", "values"};

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static StTensor *find(Compile *c, const char *module, const char *part)
{
	const char *name = arena_printf(&c->scratch, "%s.%s", module, part);
	if (!c->model.options.kv_scales)
		return g_find_tensor(c, name);
	for (int i = 0; i < c->model.kv_scales.n; i++)
		if (strcmp(c->model.kv_scales.at[i].name, name) == 0)
			return &c->model.kv_scales.at[i];
	return NULL;
}

/* The scale of keys (0) or values (1) of a module; NULL where there is none. Two of them must say the same. */
static StTensor *find_scale(Compile *c, const char *module, int side, bool is_rotated)
{
	StTensor *first = NULL, *rotated = side == 0 ? find(c, module, ROTATED_NAME) : NULL;
	if (rotated)
		rotated->used_by++;
	for (int i = 0; i < N_FORMS; i++) {
		StTensor *t = find(c, module, scale_names[side][i]);
		if (!t)
			continue;
		t->used_by++;
		if (first && !same_contents(c, first, t))
			fail_at(&c->diags, A0604, loc_of(c, t), "%s and %s differ: both would be the scale of the layer's %s",
				first->name, t->name, side_names[side]);
		first = first ? first : t;
	}
	if (side == 0 && is_rotated && first && !rotated && !c->kv_told.n_plain++)
		c->kv_told.plain = first->name;
	return is_rotated && rotated ? rotated : first;
}

/* Puts a tensor's scales into out [n_heads]. False after having said what is wrong with them. */
static bool read_scale(Compile *c, const StTensor *t, int n_heads, float *out)
{
	int64_t n = 1, longest = 1;
	for (int i = 0; i < t->n_dims; i++) {
		n *= t->shape[i];
		longest = t->shape[i] > longest ? t->shape[i] : longest;
	}
	if (n != longest || (n != 1 && n != n_heads))
		return fail_at(&c->diags, A0602, loc_of(c, t), "tensor %s has shape %s: expected one element, or %d, one for "
			"each key and value head", t->name, g_shape_text(c, t->n_dims, t->shape), n_heads);
	if (!t->is_supported || (t->dtype != DT_f32 && t->dtype != DT_bf16 && t->dtype != DT_f16))
		return fail_at(&c->diags, A0603, loc_of(c, t), "tensor %s has dtype %s: expected F32, BF16 or F16", t->name,
			t->dtype_text);
	void *raw = arena_alloc(&c->scratch, (size_t)t->bytes + 1);
	if (!read_tensor(c, t, raw))
		return false;
	numbers_convert(t->dtype, raw, 0, n, out);
	int64_t bad = first_bad_scale(t->dtype, raw, n);
	if (bad >= 0)
		return fail_at(&c->diags, A0606, loc_of(c, t), "tensor %s: element %lld of %lld is %g: expected a positive "
			"number", t->name, (long long)bad, (long long)n, (double)out[bad]);
	for (int h = 1; h < n_heads && n == 1; h++)
		out[h] = out[0];
	return true;
}

/* kv_scale of a layer, as a constant. */
static int add_scale(Compile *c, const char *module, int n_heads, bool is_rotated)
{
	float *scales = ARENA_ARRAY(&c->scratch, float, 2 * n_heads);
	StTensor *found[2];
	bool is_random = c->cmd.random_weights && !c->model.options.kv_scales; /* there is no checkpoint */
	for (int side = 0; side < 2; side++)
		found[side] = is_random ? NULL : find_scale(c, module, side, is_rotated);
	for (int i = 0; i < 2 * n_heads; i++)
		scales[i] = 1;
	bool is_one = found[0] == found[1] || !found[0] || !found[1];
	const StTensor *only = found[0] ? found[0] : found[1];
	if (!is_one) {
		read_scale(c, found[0], n_heads, scales);
		read_scale(c, found[1], n_heads, scales + n_heads);
	} else if (only && read_scale(c, only, n_heads, scales)) {
		memcpy(scales + n_heads, scales, sizeof *scales * (size_t)n_heads);
	}
	if (only && found[0] != found[1] && is_one && !c->kv_told.n_shared++)
		c->kv_told.shared = only->name;
	if (!only && !c->kv_told.n_unscaled++)
		c->kv_told.unscaled = arena_strdup(&c->arena, module);
	return g_table(c, arena_printf(&c->arena, "atlas.%s.kv_scale", module), DT_f32, 2, n_heads, scales);
}

/* Pages ------------------------------------------------------------------------------------------------- */

/* Does a layer of the model look back less far than its context? What drafts has pages of the pool all the same. */
static bool has_window(const Compile *c, int layer, const LayerSpec *spec)
{
	return layer < c->graph.n_layers && spec->mixer == MIXER_ATTENTION && spec->window > 0 &&
		spec->window < c->graph.max_context;
}

/* The longest window; *all: that of each layer with attention, and of the model alone. 0: there is none. */
static int longest_window(const Compile *c, bool *all)
{
	int most = 0;
	*all = !head_drafts(&c->graph);
	for (int l = 0; l < c->graph.n_layers; l++) {
		const LayerSpec *spec = &c->model.config.layers[l];
		if (has_window(c, l, spec))
			most = spec->window > most ? spec->window : most;
		else
			*all &= spec->mixer != MIXER_ATTENTION;
	}
	return most;
}

void g_roll(Compile *c, StepTensors *s)
{
	Graph *g = &c->graph;
	const Options *o = &c->model.options;
	const int rows = o->n_prefill ? o->prefill[o->n_prefill - 1] : 0;
	bool all = false;
	const int window = o->rolling ? longest_window(c, &all) : 0;
	s->rolling_table = -1;
	if (!window)
		return;
	const int pages = rolling_pages(window, rows > g->verify_rows ? rows : g->verify_rows, g->page);
	const int64_t wanted = (int64_t)g->slots * pages + (int64_t)o->snapshots * rolling_kept(window, g->page);
	if (pages >= g->max_pages || wanted >= g->pages)
		return;
	int32_t *table = ARENA_ARRAY(&c->scratch, int32_t, (size_t)g->slots * (size_t)g->max_pages);
	for (int i = 0; i < g->slots * g->max_pages; i++)
		table[i] = i / g->max_pages * pages + i % g->max_pages % pages;
	s->rolling_pages = pages;
	s->rolling_table = g_table(c, ROLLING_TABLE, DT_i32, g->slots, g->max_pages, table);
	if (all) /* those of the pool are numbers without memory: there is one for each position */
		g->pages = g->slots * g->max_pages;
}

Cache g_cache(Compile *c, const StepTensors *s, int layer, const char *module, const LayerSpec *spec)
{
	const int at = layer < c->graph.n_layers ? layer : c->graph.n_layers; /* the drafting head has one cache */
	const bool rolls = s->rolling_pages && has_window(c, layer, spec);
	const int table = rolls ? s->rolling_table : s->page_table;
	const char *name = arena_printf(&c->arena, "kv.%d", at);
	int64_t shape[5] = {rolls ? c->graph.slots * s->rolling_pages : c->graph.pages, 2, spec->n_kv_heads, c->graph.page,
		spec->head_dim};
	for (int i = 0; at == c->graph.n_layers && i < c->graph.n_tensors; i++)
		if (strcmp(c->graph.tensors[i].name, name) == 0)
			return (Cache){i, -1, -1, table};
	Cache cache = {g_tensor(c, ROLE_STATE, spec->kv, name, 5, shape), -1, -1, table};
	if (spec->kv == DT_bf16)
		return cache;
	cache.scale = add_scale(c, module, spec->n_kv_heads, spec->rotate);
	shape[4] /= NVFP4_GROUP;
	if (spec->kv == DT_e2m1)
		cache.block = g_tensor(c, ROLE_STATE, DT_e4m3, arena_printf(&c->arena, "kv_block.%d", layer), 5, shape);
	return cache;
}

/* What is left ------------------------------------------------------------------------------------------ */

/* "self_attn." */
static const char *attention_of(Compile *c)
{
	return arena_printf(&c->scratch, "%s.", c->model.config.family->names[NAME_ATTENTION]);
}

static bool ends_in(const char *name, const char *part)
{
	size_t n = strlen(name), k = strlen(part);
	return n > k && name[n - k - 1] == '.' && strcmp(name + n - k, part) == 0;
}

static bool is_known(Compile *c, const char *name)
{
	bool known = ends_in(name, ROTATED_NAME);
	if (!strstr(name, attention_of(c)))
		return false;
	for (int i = 0; i < 2 * N_FORMS; i++)
		known |= ends_in(name, scale_names[i / N_FORMS][i % N_FORMS]);
	for (int i = 0; i < COUNT(other_names); i++)
		known |= ends_in(name, other_names[i]);
	return known;
}

const char *kv_scale_hint(Compile *c, const char *name)
{
	const char *end = strrchr(name, '.'), *text = "";
	if (!end || !strstr(name, attention_of(c)) || !strstr(end, "scale") || strstr(end, "weight") ||
			strstr(end, "input") || strstr(end, "activation"))
		return "";
	for (int i = 0; i < N_FORMS; i++)
		text = arena_printf(&c->arena, "%s%s%s", text, i == 0 ? "" : i + 1 < N_FORMS ? ", " : " or ",
			scale_names[0][i]);
	return arena_printf(&c->arena, "; scales are expected as %s%s for keys, and in the same form for values",
		attention_of(c), text);
}

/* Of tensors that nothing has read: known names count as read now. How many, and the first. */
static int drop_known(Compile *c, StTensor *list, int n, const StTensor **first)
{
	int n_dropped = 0;
	for (int i = 0; i < n; i++) {
		if (list[i].used_by || !is_known(c, list[i].name))
			continue;
		list[i].used_by++;
		*first = n_dropped++ ? *first : &list[i];
	}
	return n_dropped;
}

static const char *and_others(Compile *c, int n, const char *what)
{
	return n > 1 ? arena_printf(&c->arena, " and %d %s", n - 1, what) : "";
}

static void tell_made_up(Compile *c)
{
	const Options *o = &c->model.options;
	if (c->kv_told.n_unscaled)
		note_at(&c->diags, A0610, o->at_kv, "%s%s: there are no scales of keys and values, 1 is used; `atlasc "
			"calibrate` measures them", c->kv_told.unscaled, and_others(c, c->kv_told.n_unscaled, "more"));
	if (c->kv_told.n_shared)
		note_at(&c->diags, A0610, o->at_kv, "%s%s: used for keys and values: the other scale is missing",
			c->kv_told.shared, and_others(c, c->kv_told.n_shared, "more"));
	if (c->kv_told.n_plain)
		note_at(&c->diags, A0610, o->at_kv, "%s%s: measured before keys are rotated, used for rotated ones; `atlasc "
			"calibrate` measures these", c->kv_told.plain, and_others(c, c->kv_told.n_plain, "more"));
}

static bool is_any_quantised(const Compile *c)
{
	bool any = false;
	for (int l = 0; l < c->graph.n_layers; l++)
		any |= c->model.config.layers[l].kv != DT_bf16;
	return any;
}

/* Of the file that kv.scales names every tensor has a layer. */
static void check_file(Compile *c)
{
	const StTensor *first;
	const int n_layers = c->graph.n_layers;
	const char *layers = arena_printf(&c->scratch, ".%s.", c->model.config.family->names[NAME_LAYERS]);
	for (int i = 0; i < c->model.kv_scales.n; i++) {
		StTensor *t = &c->model.kv_scales.at[i];
		const char *layer = strstr(t->name, layers);
		if (t->used_by || !is_known(c, t->name) || !layer || atoi(layer + strlen(layers)) < n_layers)
			continue;
		t->used_by++;
		fail_at(&c->diags, A0604, loc_of(c, t), "tensor %s: the model has layers 0 to %d", t->name, n_layers - 1);
	}
	drop_known(c, c->model.kv_scales.at, c->model.kv_scales.n, &first); /* of layers in bf16 */
	for (int i = 0; i < c->model.kv_scales.n; i++)
		if (!c->model.kv_scales.at[i].used_by)
			fail_at(&c->diags, A0604, loc_of(c, &c->model.kv_scales.at[i]), "tensor %s is not a scale of keys or "
				"values%s",
				c->model.kv_scales.at[i].name, kv_scale_hint(c, c->model.kv_scales.at[i].name));
}

void check_kv_scales(Compile *c)
{
	Model *m = &c->model;
	const StTensor *first = NULL;
	tell_made_up(c);
	if (m->quant.kv && !is_any_quantised(c))
		note_at(&c->diags, A0607, m->quant.at_kv, "%s: keys and values are kept in bf16; [kv] dtype in MODEL.toml "
			"decides", m->quant.kv);
	int n = drop_known(c, m->tensors.at, m->tensors.n, &first);
	const char *why = m->options.kv_scales ? "kv.scales names a file" : is_any_quantised(c)
		? "keys and values of these layers are kept in bf16, queries and probabilities in all of them"
		: "keys and values are kept in bf16";
	if (n)
		note_at(&c->diags, A0607, loc_of(c, first), "%s%s not used: %s", first->name,
			n > 1 ? and_others(c, n, "more are") : " is", why);
	check_file(c);
}
