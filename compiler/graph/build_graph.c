/* build_graph.c - say what the model means.
 *
 * models/decoder lists the tensors and ops of the model's layers through builder.h. At the end every tensor of the
 * checkpoint must have been used or be on the ignore list.
 */
#include "artifacts/memory.h"
#include "compiler/graph/made_weights.h"
#include "compiler/graph/weights.h"
#include "compiler/read/config_keys.h"
#include "compiler/read/quant_lists.h"

#include <stdlib.h>
#include <string.h>

/* Leftovers -------------------------------------------------------------------------------- */

/* The pattern that lets a tensor lie unused, or NULL. */
static const NamePattern *ignored_by(const Compile *c, const char *name)
{
	for (int i = 0; i < c->model.options.ignore_tensors.n; i++)
		if (name_matches(c->model.options.ignore_tensors.at[i].text, name))
			return &c->model.options.ignore_tensors.at[i];
	return NULL;
}

/* A head in addition to a tied embedding, as some writers leave it: a copy says nothing new, anything else contradicts
 * config.json. */
static void check_tied_head(Compile *c, const StTensor *head, Loc at)
{
	const StTensor *embedding = NULL;
	const char *pattern = arena_printf(&c->scratch, "*%s.weight", c->model.config.family->names[NAME_EMBEDDING]);
	for (int i = 0; i < c->model.tensors.n && !embedding; i++)
		if (c->model.tensors.at[i].used_by && name_matches(pattern, c->model.tensors.at[i].name))
			embedding = &c->model.tensors.at[i];
	int line = c->model.config.at_tie.line;
	const char *file = c->model.config.at_tie.file;
	if (embedding && same_contents(c, head, embedding))
		note_at(&c->diags, A0605, at, "%s is equal to %s and tie_word_embeddings = true (%s:%d): not read",
			head->name, embedding->name, file, line);
	else
		fail_at(&c->diags, A0604, at, "%s differs from %s, but tie_word_embeddings = true (%s:%d) "
			"makes that the head; list it under [weights] ignore to drop it",
			head->name, embedding ? embedding->name : "the embedding", file, line);
}

/* Of a bias that no op reads: the module it belongs to is one of the model's, and all of it is zero, as some writers
 * add one to whatever they quantise. *at: of the first element that is not zero, else -1. */
static bool is_zero_bias(Compile *c, const StTensor *t, int64_t *at)
{
	static const char *const parts[] = {"weight", "weight_packed", "qweight"};
	const char *dot = strrchr(t->name, '.');
	bool has_module = false;
	*at = -1;
	if (!dot || strcmp(dot, ".bias") != 0 || t->n_dims != 1 || !t->is_supported ||
			(t->dtype != DT_bf16 && t->dtype != DT_f16 && t->dtype != DT_f32))
		return false;
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		const StTensor *of = g_find_tensor(c, arena_printf(&c->scratch, "%.*s.%s", (int)(dot - t->name), t->name,
			parts[i]));
		has_module |= of && of->used_by;
	}
	uint8_t *bytes = arena_alloc(&c->scratch, (size_t)t->bytes + 1);
	const int64_t size = dtype_bytes(t->dtype);
	if (!has_module || !read_tensor(c, t, bytes))
		return false;
	for (int64_t i = 0; i < t->bytes && *at < 0; i++) /* the last byte of an element has its sign */
		if (bytes[i] & (i % size == size - 1 ? 0x7f : 0xff))
			*at = i / size;
	return *at < 0;
}

/* Of a layer after the last one, which drafts. */
static bool is_after_layers(Compile *c, const char *name)
{
	const Config *cf = &c->model.config;
	for (int i = 0; cf->n_after && cf->family->prefixes[i]; i++) {
		const char *head = arena_printf(&c->scratch, "%s.%s.", cf->family->prefixes[i], cf->family->names[NAME_LAYERS]);
		const size_t n = strlen(head);
		if (strncmp(name, head, n) != 0 || name[n] < '0' || name[n] > '9')
			continue;
		const long l = strtol(name + n, NULL, 10);
		return l >= cf->n_layers && l < cf->n_layers + cf->n_after;
	}
	return false;
}

static void check_all_used(Compile *c)
{
	const StTensor *first = NULL, *zero = NULL, *after = NULL; /* ignored; a bias of zeros; of a drafting head */
	Loc first_at = {0};
	int n_ignored = 0, n_zero = 0, n_after = 0;
	const char *head = arena_printf(&c->scratch, "%s.weight", c->model.config.family->names[NAME_HEAD]);
	for (int i = 0; i < c->model.tensors.n; i++) {
		const StTensor *t = &c->model.tensors.at[i];
		Loc at = loc_of(c, t);
		if (t->used_by)
			continue;
		const NamePattern *pattern = ignored_by(c, t->name);
		if (pattern) {
			if (!n_ignored++) {
				first = t;
				first_at = pattern->at;
			}
			continue;
		}
		int64_t not_zero;
		if (is_after_layers(c, t->name)) {
			after = n_after++ ? after : t;
			continue;
		}
		if (c->model.config.tie_embeddings && strcmp(t->name, head) == 0)
			check_tied_head(c, t, at);
		else if (is_zero_bias(c, t, &not_zero))
			zero = n_zero++ ? zero : t;
		else if (not_zero >= 0)
			fail_at(&c->diags, A0604, at, "tensor %s %s is not used by %s, and element %lld of it is not zero: list it "
				"under [weights] ignore if that is meant", t->name, g_shape_text(c, t->n_dims, t->shape),
				c->graph.family, (long long)not_zero);
		else
			fail_at(&c->diags, A0604, at,
				"tensor %s %s is not used by %s: list it under [weights] ignore if that is meant%s",
				t->name, g_shape_text(c, t->n_dims, t->shape), c->graph.family, kv_scale_hint(c, t->name));
	}
	if (n_zero)
		note_at(&c->diags, A0613, loc_of(c, zero), "%s%s zero everywhere: %s has no such bias, and adds none",
			zero->name, n_zero > 1 ? arena_printf(&c->scratch, " and %d more biases are", n_zero - 1) : " is",
			c->graph.family);
	if (n_after)
		note_at(&c->diags, A0605, loc_of(c, after), "%s%s not read: drafting heads after the last layer", after->name,
			n_after > 1 ? arena_printf(&c->scratch, " and %d more are", n_after - 1) : " is");
	if (n_ignored > 1)
		note_at(&c->diags, A0605, first_at, "weights.ignore: %s and %d more are not read", first->name, n_ignored - 1);
	else if (n_ignored)
		note_at(&c->diags, A0605, first_at, "weights.ignore: %s is not read", first->name);
}

static void set_stop_tokens(Compile *c)
{
	Graph *g = &c->graph;
	const Config *cf = &c->model.config;
	const Options *o = &c->model.options;
	g->stop_tokens = ARENA_ARRAY(&c->arena, int, cf->n_eos + o->n_stop + 1);
	for (int i = 0; i < cf->n_eos; i++)
		g->stop_tokens[g->n_stop_tokens++] = cf->eos[i];
	for (int i = 0; i < o->n_stop; i++) {
		bool seen = false;
		for (int j = 0; j < g->n_stop_tokens; j++)
			seen |= g->stop_tokens[j] == o->stop[i];
		if (!seen)
			g->stop_tokens[g->n_stop_tokens++] = o->stop[i];
	}
	if (!g->n_stop_tokens)
		g->stop_tokens[g->n_stop_tokens++] = -1; /* never sampled: no stop token at all */
}

static void build(Compile *c)
{
	const Config *cf = &c->model.config;
	const Options *o = &c->model.options;
	const Family *family = cf->family;
	if (!family)
		bug("model_type %s passed check_model without a family", cf->model_type);
	lay_layers(c);
	Graph *g = &c->graph;
	*g = (Graph){.family = family->name, .n_layers = cf->n_layers, .vocab = cf->vocab,
		.hidden_dim = cf->hidden_dim, .slots = o->slots, .max_context = o->max_context, .page = o->page,
		.prompt_grid = o->prompt_grid,
		.bos_token = cf->bos,
		.temperature = (float)o->temperature, .top_p = (float)o->top_p, .min_p = (float)o->min_p,
		.repetition_penalty = (float)o->repetition_penalty, .top_k = o->top_k,
		.max_new_tokens = o->max_new_tokens};
	set_stop_tokens(c);
	g_speculate(c, 0);
	build_decoder(c);
	g->snapshots = snapshot_bytes(g) ? o->snapshots : 0;
	check_quant_lists(c);
	check_quant_rules(c);
	check_kv_scales(c);
	check_all_used(c);
	mark_made_weights(c);
}

/* build_graph - ops over typed tensors from the validated checkpoint.
 *
 *   needs   Model
 *   gives   Graph (weights without offsets)
 *   breaks  nothing
 *   fails   a tensor that is missing, of another shape or dtype, or that no op reads; where one value of config.json
 *           explains these, that value alone
 */
void build_graph(Compile *c)
{
	const Compile before = *c;
	build(c);
	if (c->diags.n_errors > before.diags.n_errors && !c->cmd.random_weights)
		blame_config(c, &before, build);
}
