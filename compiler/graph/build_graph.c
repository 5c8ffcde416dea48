/* build_graph.c - say what the model means.
 *
 * The family of the checkpoint's model_type lists its tensors and ops through the builder below. What belongs
 * to every decoder, whatever its layers, is added here: the step's inputs and outputs, the slots' state, the
 * embedding in front, the head and the sampling at the end, and the acquire phase. At the end every tensor of the
 * checkpoint must have been used or be on the ignore list.
 */
#include "compiler/graph/builder.h"
#include "compiler/read/config_keys.h"
#include "compiler/read/quant_lists.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int g_tensor(Compile *c, Role role, Dtype dtype, const char *name, int n_dims, const int64_t *shape)
{
	Graph *g = &c->graph;
	VEC(Tensor) list = {g->tensors, g->n_tensors, c->graph_cap[0]};
	Tensor *t = vec_push(&c->arena, &list);
	*t = (Tensor){.name = arena_strdup(&c->arena, name), .dtype = dtype, .role = role,
		.n_dims = n_dims, .weight = -1};
	memcpy(t->shape, shape, (size_t)n_dims * sizeof *shape);
	g->tensors = list.at;
	g->n_tensors = list.n;
	c->graph_cap[0] = list.cap;
	return g->n_tensors - 1;
}

int g_activation(Compile *c, const char *name, int64_t cols)
{
	return g_tensor(c, ROLE_ACTIVATION, DT_bf16, name, 2, (int64_t[]){DIM_ROWS, cols});
}

void g_op(Compile *c, OpKind kind, int layer, int phases, const Attrs *attrs, const int *operands)
{
	Graph *g = &c->graph;
	VEC(GraphOp) list = {g->ops, g->n_ops, c->graph_cap[1]};
	GraphOp *op = vec_push(&c->arena, &list);
	*op = (GraphOp){.kind = kind, .layer = layer < g->n_layers ? layer : g->n_layers,
		.phases = phases ? phases : c->layer_phases};
	for (int i = 0; i < PLAN_MAX_OPERANDS; i++)
		op->operands[i] = i < op_table[kind].n_operands ? operands[i] : -1;
#define ATTR(NAME, field, type, meaning) \
	if (attrs && op_has_attr(kind, #NAME)) \
		op->attrs.field = attrs->field;
#include "artifacts/attrs.h"
#undef ATTR
	g->ops = list.at;
	g->n_ops = list.n;
	c->graph_cap[1] = list.cap;
}

int g_add_weights(Compile *c, const char *name, int n_dims, const int64_t *shape, int n, const Weight *w)
{
	Graph *g = &c->graph;
	VEC(Weight) list = {g->weights, g->n_weights, c->graph_cap[2]};
	for (int i = 0; i < n; i++)
		*vec_push(&c->arena, &list) = w[i];
	g->weights = list.at;
	g->n_weights = list.n;
	c->graph_cap[2] = list.cap;
	int t = g_tensor(c, ROLE_WEIGHT, w->dtype, name, n_dims, shape);
	g->tensors[t].weight = g->n_weights - n;
	g->tensors[t].n_weights = n;
	return t;
}

int g_add_weight(Compile *c, const Weight *w) { return g_add_weights(c, w->name, w->n_dims, w->shape, 1, w); }

StTensor *g_find_tensor(Compile *c, const char *name)
{
	int lo = 0, hi = c->model.tensors.n - 1;
	while (lo <= hi) {
		int mid = (lo + hi) / 2, order = strcmp(name, c->model.tensors.at[mid].name);
		if (order == 0)
			return &c->model.tensors.at[mid];
		if (order < 0)
			hi = mid - 1;
		else
			lo = mid + 1;
	}
	return NULL;
}

const char *g_shape_text(Compile *c, int n_dims, const int64_t *shape)
{
	char text[128] = "[";
	for (int i = 0, at = 1; i < n_dims; i++)
		at += snprintf(text + at, sizeof text - (size_t)at, i ? ", %lld" : "%lld", (long long)shape[i]);
	return arena_printf(&c->arena, "%s]", text);
}

bool g_misfit(Compile *c, const StTensor *t, int n_dims, const int64_t *want)
{
	Misfit m = {.t = t, .n_dims = n_dims};
	memcpy(m.want, want, (size_t)n_dims * sizeof *want);
	*vec_push(&c->arena, &c->misfits) = m;
	return fail_at(&c->diags, A0602, loc_of(c, t), "tensor %s has shape %s: config.json asks for %s", t->name,
		g_shape_text(c, t->n_dims, t->shape), g_shape_text(c, n_dims, want));
}

static int weight(Compile *c, const char *name, bool required, int n_dims, const int64_t *shape)
{
	Weight w = {.name = arena_strdup(&c->arena, name), .dtype = DT_bf16, .n_dims = n_dims};
	memcpy(w.shape, shape, (size_t)n_dims * sizeof *shape);
	for (int i = 0; i < c->graph.n_tensors; i++) /* a tied head uses the embedding again */
		if (c->graph.tensors[i].role == ROLE_WEIGHT && strcmp(c->graph.tensors[i].name, name) == 0)
			return i;
	Loc place = {c->model.config.at_hidden_dim.file, 0, 0};
	if (c->cmd.random_weights) {
		w.dtype = c->model.config.dtype;
		w.bytes = dtype_bytes(w.dtype);
		bool fits = true;
		for (int i = 0; i < n_dims; i++)
			fits &= !__builtin_mul_overflow(w.bytes, shape[i], &w.bytes);
		if (!fits)
			fail_at(&c->diags, A0801, place, "tensor %s would have more bytes than 64 bits count", name);
		return required ? g_add_weight(c, &w) : -1;
	}
	StTensor *t = g_find_tensor(c, name);
	if (!t) {
		if (!required)
			return -1;
		fail_at(&c->diags, A0601, place, "tensor %s is missing: %s needs it with shape %s", name,
			c->graph.family, g_shape_text(c, n_dims, shape));
		return g_add_weight(c, &w);
	}
	t->used_by++;
	bool is_float = t->is_supported && (t->dtype == DT_bf16 || t->dtype == DT_f16 || t->dtype == DT_f32);
	w.dtype = is_float ? t->dtype : DT_bf16;
	w.bytes = t->bytes;
	w.file = c->model.shards.at[t->shard].name;
	w.file_offset = t->offset;
	place.file = c->model.shards.at[t->shard].path;
	if (!is_float)
		fail_at(&c->diags, A0603, place, "tensor %s has dtype %s: expected BF16, F16 or F32", name,
			t->dtype_text);
	if (t->n_dims != n_dims || memcmp(t->shape, shape, (size_t)n_dims * sizeof *shape) != 0)
		g_misfit(c, t, n_dims, shape);
	return g_add_weight(c, &w);
}

int g_weight(Compile *c, const char *name, int n_dims, int64_t d0, int64_t d1)
{
	return weight(c, name, true, n_dims, (int64_t[]){d0, d1});
}

int g_weight_opt(Compile *c, const char *name, int n_dims, int64_t d0, int64_t d1)
{
	return weight(c, name, false, n_dims, (int64_t[]){d0, d1});
}

int g_weight_of(Compile *c, const char *name, int n_dims, const int64_t *shape)
{
	return weight(c, name, true, n_dims, shape);
}

static int constant(Compile *c, const Weight *w, const void *values)
{
	int t = g_add_weight(c, w);
	*vec_push(&c->arena, &c->constants) = (Constant){c->graph.n_weights - 1,
		memcpy(arena_alloc(&c->arena, (size_t)w->bytes), values, (size_t)w->bytes)};
	return t;
}

int g_constant(Compile *c, const char *name, Dtype dtype, int n, const void *values)
{
	return constant(c, &(Weight){.name = arena_strdup(&c->arena, name), .dtype = dtype, .n_dims = 1, .shape = {n},
		.bytes = dtype_span(dtype, n)}, values);
}

int g_table(Compile *c, const char *name, Dtype dtype, int rows, int cols, const void *values)
{
	return constant(c, &(Weight){.name = arena_strdup(&c->arena, name), .dtype = dtype, .n_dims = 2,
		.shape = {rows, cols}, .bytes = dtype_span(dtype, (int64_t)rows * cols)}, values);
}

/* Frame: everything around the layers ------------------------------------------------------ */

static int state(Compile *c, const char *name, Dtype dtype, int64_t d0, int64_t d1)
{
	return g_tensor(c, ROLE_STATE, dtype, name, d1 ? 2 : 1, (int64_t[]){d0, d1});
}

static int host(Compile *c, Role role, Dtype dtype, const char *name, int64_t d0, int64_t d1)
{
	return g_tensor(c, role, dtype, name, d1 ? 2 : 1, (int64_t[]){d0, d1});
}

int g_slot_state(Compile *c, const char *name, Dtype dtype, int64_t cols)
{
	int t = state(c, name, dtype, c->graph.slots, cols);
	*vec_push(&c->arena, &c->slot_states) = t;
	return t;
}

int g_later_state(Compile *c, const char *name, Dtype dtype, int64_t cols)
{
	return g_tensor(c, ROLE_STATE, dtype, name, 3, (int64_t[]){c->graph.slots, c->graph.verify_rows - 1, cols});
}

void g_speculate(Compile *c, int verify_rows)
{
	Graph *g = &c->graph;
	const Options *o = &c->model.options;
	const int more = verify_rows ? verify_rows - 1 : 0;
	const int64_t pool = ((int64_t)o->pool_tokens + o->page - 1) / o->page;
	g->verify_rows = verify_rows;
	g->max_pages = (o->max_context + more + o->page - 1) / o->page;
	/* a pool just large enough for one sequence holds its drafts as well */
	g->pages = (int)(!o->pool_tokens ? (int64_t)o->slots * g->max_pages : pool > g->max_pages ? pool : g->max_pages);
}

static void add_frame_tensors(Compile *c, StepTensors *s)
{
	const Graph *g = &c->graph;
	s->step = host(c, ROLE_INPUT, DT_i32, "step", 4, 0);
	s->row_slot = host(c, ROLE_INPUT, DT_i32, "row_slot", DIM_ROWS, 0);
	s->out_row = host(c, ROLE_INPUT, DT_i32, "out_row", DIM_OUTS, 0); /* decode needs these, prefill the next too */
	s->row_token = host(c, ROLE_INPUT, DT_i32, "row_token", DIM_ROWS, 0);
	s->row_pos = host(c, ROLE_INPUT, DT_i32, "row_pos", DIM_ROWS, 0);
	s->seg = host(c, ROLE_INPUT, DT_i32, "seg", g->slots, 4);
	s->row_next = s->slot_draft = s->slot_version = -1;
	if (g->verify_rows)
		s->row_next = host(c, ROLE_INPUT, DT_i32, "row_next", DIM_ROWS, 0);
	s->page_table = state(c, "page_table", DT_i32, g->slots, g->max_pages);
	s->slot_len = state(c, "slot_len", DT_i32, g->slots, 0);
	s->slot_token = state(c, "slot_token", DT_i32, g->slots, 0);
	s->sampling = state(c, "sampling", DT_f32, g->slots, 8);
	s->limits = state(c, "limits", DT_i32, g->slots, 8);
	s->rules = state(c, "rules", DT_i32, g->slots, PLAN_RULES * PLAN_RULE_WORDS);
	s->counts = state(c, "counts", DT_i32, g->slots, g->vocab);
	if (!g->verify_rows)
		return;
	s->slot_draft = state(c, "slot_draft", DT_i32, g->slots, g->verify_rows - 1);
	s->slot_version = state(c, "slot_version", DT_i32, g->slots, 0);
}

static void add_sampling(Compile *c, StepTensors *s, const DecoderEnds *ends, const Attrs *attrs)
{
	Graph *g = &c->graph;
	int end = g->n_layers, both = PHASE_PREFILL | PHASE_DECODE;
	int64_t outs_hidden[] = {DIM_OUTS, g->hidden_dim}, outs_vocab[] = {DIM_OUTS, g->vocab};
	int last = g_tensor(c, ROLE_ACTIVATION, DT_bf16, "out.hidden", 2, outs_hidden);
	int normed = g_tensor(c, ROLE_ACTIVATION, DT_bf16, "out.norm", 2, outs_hidden);
	int logits = g_tensor(c, ROLE_ACTIVATION, DT_f32, "logits", 2, outs_vocab);
	g_op(c, OP_gather, end, both, NULL, (int[]){ends->x, s->out_row, last});
	g_op(c, OP_rmsnorm, end, both, attrs, (int[]){last, ends->norm, normed});
	g_linear(c, end, both, &ends->head, normed, -1, logits);

	s->stop_tokens = g_constant(c, "atlas.stop_tokens", DT_i32, g->n_stop_tokens, g->stop_tokens);
	s->ring = host(c, ROLE_OUTPUT, DT_i32, "ring", g->slots, PLAN_RING_ENTRIES * PLAN_RING_WORDS);
	g_op(c, OP_sample, end, both, attrs,
		(int[]){s->step, logits, s->out_row, s->row_slot, s->row_pos, s->sampling, s->limits, s->rules,
			s->stop_tokens, s->counts, s->slot_token, s->slot_len, s->ring});
}

void g_acquire(Compile *c, const StepTensors *s)
{
	const Graph *g = &c->graph;
	int wanted = host(c, ROLE_INPUT, DT_i32, "acquire", g->slots, 0);
	int new_sampling = host(c, ROLE_INPUT, DT_f32, "new_sampling", g->slots, 8);
	int new_limits = host(c, ROLE_INPUT, DT_i32, "new_limits", g->slots, 8);
	int new_pages = host(c, ROLE_INPUT, DT_i32, "new_pages", g->slots, g->max_pages);
	int new_rules = host(c, ROLE_INPUT, DT_i32, "new_rules", PLAN_RULES * PLAN_RULE_WORDS, 0);
	g_op(c, OP_acquire, -1, PHASE_ACQUIRE, NULL,
		(int[]){wanted, new_sampling, new_limits, new_pages, new_rules, s->slot_len, s->slot_token, s->counts,
			s->sampling, s->limits, s->rules, s->page_table, s->slot_version});
	for (int i = 0; i < c->slot_states.n; i++)
		g_op(c, OP_zero_slots, -1, PHASE_ACQUIRE, NULL, (int[]){wanted, c->slot_states.at[i]});
}

void g_begin(Compile *c, const char *prefix, StepTensors *s, DecoderEnds *ends)
{
	const Graph *g = &c->graph;
	const Config *cf = &c->model.config;
	*s = (StepTensors){0};
	add_frame_tensors(c, s);
	ends->table = g_weight(c, arena_printf(&c->arena, "%s.%s.weight", prefix, cf->family->names[NAME_EMBEDDING]), 2,
		cf->vocab, cf->hidden_dim);
	ends->x = g_activation(c, "x0", cf->hidden_dim);
	g_op(c, OP_slot_rows, -1, PHASE_DECODE, NULL,
		(int[]){s->row_slot, s->slot_token, s->slot_len, s->row_token, s->row_pos});
	g_op(c, OP_note_prompt, -1, PHASE_PREFILL, NULL, (int[]){s->step, s->row_token, s->row_slot, s->counts});
	if (g->verify_rows)
		g_op(c, OP_verify_rows, -1, PHASE_VERIFY, NULL,
			(int[]){s->row_slot, s->slot_token, s->slot_len, s->slot_draft, s->row_token, s->row_pos});
	c->layer_phases = PHASE_PREFILL | PHASE_DECODE | (g->verify_rows ? PHASE_VERIFY : 0);
	g_op(c, OP_embed, -1, 0, NULL, (int[]){s->row_token, ends->table, ends->x});
}

void g_head(Compile *c, const char *prefix, const Attrs *attrs, StepTensors *s, DecoderEnds *ends)
{
	const Config *cf = &c->model.config;
	const char *head = cf->family->names[NAME_HEAD];
	ends->norm = g_weight(c, arena_printf(&c->arena, "%s.%s.weight", prefix, cf->family->names[NAME_FINAL_NORM]), 1,
		cf->hidden_dim, 0);
	if (cf->tie_embeddings)
		g_tied_product(c, head, c->graph.tensors[ends->table].name, ends->table, cf->vocab, cf->hidden_dim,
			&ends->head);
	else
		g_products(c, 1, &head, (int64_t[]){cf->vocab}, cf->hidden_dim, &ends->head);
	add_sampling(c, s, ends, attrs);
}

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

static void check_all_used(Compile *c)
{
	const StTensor *first = NULL, *zero = NULL; /* ignored; a bias of zeros */
	Loc first_at = {0};
	int n_ignored = 0, n_zero = 0;
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
