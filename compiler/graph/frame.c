/* frame.c - what belongs to every decoder, whatever its layers: the step's inputs and outputs, the slots' state, the
 * embedding in front, the head and the sampling at the end, and the acquire phase.
 */
#include "artifacts/numbers.h"
#include "compiler/graph/builder.h"
#include "compiler/read/family.h"

#include <math.h>

static int state(Compile *c, const char *name, Dtype dtype, int64_t d0, int64_t d1)
{
	return g_tensor(c, ROLE_STATE, dtype, name, d1 ? 2 : 1, (int64_t[]){d0, d1});
}

static int host(Compile *c, Role role, Dtype dtype, const char *name, int64_t d0, int64_t d1)
{
	return g_tensor(c, role, dtype, name, d1 ? 2 : 1, (int64_t[]){d0, d1});
}

void g_speculate(Compile *c, int verify_rows)
{
	Graph *g = &c->graph;
	const Options *o = &c->model.options;
	const int more = verify_rows ? verify_rows - 1 : 0;
	const int64_t pool = ((int64_t)o->pool_tokens + o->page - 1) / o->page;
	g->verify_rows = verify_rows;
	g->ladder = c->model.options.ladder;
	g->n_ladder = verify_rows ? o->n_ladder : 0;
	g->ngram_min = verify_rows ? o->ngram_min : 0;
	g->ngram_max = verify_rows ? o->ngram_max : 0;
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
	s->row_next = s->slot_draft = s->slot_version = s->masks_later = -1;
	if (g->verify_rows)
		s->row_next = host(c, ROLE_INPUT, DT_i32, "row_next", DIM_ROWS, 0);
	s->page_table = state(c, "page_table", DT_i32, g->slots, g->max_pages);
	g_roll(c, s);
	s->slot_len = state(c, "slot_len", DT_i32, g->slots, 0);
	s->slot_token = state(c, "slot_token", DT_i32, g->slots, 0);
	s->sampling = state(c, "sampling", DT_f32, g->slots, 8);
	s->limits = state(c, "limits", DT_i32, g->slots, 8);
	s->rules = state(c, "rules", DT_i32, g->slots, PLAN_RULES * PLAN_RULE_WORDS);
	s->masks = state(c, "masks", DT_i32, g->slots, mask_words(g));
	s->counts = state(c, "counts", DT_i32, g->slots, g->vocab);
	if (!g->verify_rows)
		return;
	s->slot_draft = host(c, g->ngram_max ? ROLE_INPUT : ROLE_STATE, DT_i32, "slot_draft", g->slots, g->verify_rows - 1);
	s->slot_version = state(c, "slot_version", DT_i32, g->slots, 0);
	s->masks_later = g_later_state(c, "masks_later", DT_i32, mask_words(g));
}

int g_logits(Compile *c, int layer, int phases, const Product *head, int x, const char *name, int64_t rows)
{
	const Attrs attrs = {.cap = (float)c->model.config.logit_cap};
	const int64_t shape[] = {rows, head->rows};
	int logits = g_tensor(c, ROLE_ACTIVATION, DT_f32, name, 2, shape), made = logits;
	if (attrs.cap > 0)
		made = g_tensor(c, ROLE_ACTIVATION, DT_f32, arena_printf(&c->arena, "%s.uncapped", name), 2, shape);
	g_linear(c, layer, phases, head, x, -1, made);
	if (attrs.cap > 0)
		g_op(c, OP_soft_cap, layer, phases, &attrs, (int[]){made, logits});
	return logits;
}

static void add_sampling(Compile *c, StepTensors *s, const DecoderEnds *ends, const Attrs *attrs)
{
	Graph *g = &c->graph;
	int end = g->n_layers, both = PHASE_PREFILL | PHASE_DECODE;
	int64_t outs_hidden[] = {DIM_OUTS, g->hidden_dim};
	int last = g_tensor(c, ROLE_ACTIVATION, DT_bf16, "out.hidden", 2, outs_hidden);
	int normed = g_tensor(c, ROLE_ACTIVATION, DT_bf16, "out.norm", 2, outs_hidden);
	g_op(c, OP_gather, end, both, NULL, (int[]){ends->x, s->out_row, last});
	g_op(c, OP_rmsnorm, end, both, attrs, (int[]){last, ends->norm, normed});
	int logits = g_logits(c, end, both, &ends->head, normed, "logits", DIM_OUTS);

	s->stop_tokens = g_constant(c, "atlas.stop_tokens", DT_i32, g->n_stop_tokens, g->stop_tokens);
	s->ring = host(c, ROLE_OUTPUT, DT_i32, "ring", g->slots, PLAN_RING_ENTRIES * PLAN_RING_WORDS);
	g_op(c, OP_sample, end, both, attrs,
		(int[]){s->step, logits, s->out_row, s->row_slot, s->row_pos, s->sampling, s->limits, s->rules,
			s->masks, s->stop_tokens, s->counts, s->slot_token, s->slot_len, s->ring});
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
	if (!cf->scale_embeddings) {
		g_op(c, OP_embed, -1, 0, NULL, (int[]){s->row_token, ends->table, ends->x});
		return;
	}
	const Dtype dtype = g->tensors[ends->table].dtype;
	const float root = (float)sqrt(cf->hidden_dim);
	const Attrs attrs = {.factor = dtype == DT_bf16 ? numbers_rounded(dtype, root) : root};
	const int plain = g_activation(c, "x0.plain", cf->hidden_dim);
	g_op(c, OP_embed, -1, 0, NULL, (int[]){s->row_token, ends->table, plain});
	g_op(c, OP_scale, -1, 0, &attrs, (int[]){plain, ends->x});
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
