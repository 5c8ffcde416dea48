/* draft.c - the head that drafts (multi-token prediction) of families that have one.
 *
 *   x = fc([norm(embedding of the token at p + 1), norm(h at p)])    h: the model's rows after its final norm
 *   x = a layer with attention over positions up to p, and a cache of its own
 *   y = norm(x)                                                     the model's own head: logits of the token at p + 2;
 *                                                                   or those rows of it that [speculate] asks for
 *
 * A row of the model and the token after it are enough for the head's keys and values at that position; its attention,
 * MLP and logits are needed where a draft is wanted alone. So the head runs in three places:
 *
 *   prefill   keys and values of each row. Of the prompt's last row the next token is not known yet: what is written
 *             there is replaced by the first draft. The slot holds that row (held)
 *   verify    keys and values of each row with what was drawn after it. Those of rows whose draft was refused are
 *             replaced before a row looks at them, as the model's own are. The slot holds the last accepted row
 *   draft     once for each draft. The first is of the held row and the slot's last token, and later ones of the
 *             head's own y and the draft before
 *
 * With one row of a slot a verify step follows as well, so that drafts go on after steps without any.
 *
 * Names and formula: qwen3_5_mtp of vLLM, since transformers has no head; h is taken after the norm, as there.
 */
#include "compiler/read/config_keys.h"
#include "models/decoder/decoder.h"

static const char *prefix_of(const Compile *c) { return c->model.config.family->draft_prefix; }

/* How many tensors the checkpoint has of it, and the first. */
static int count_tensors(Compile *c, const StTensor **first)
{
	const char *pattern = arena_printf(&c->scratch, "%s.*", prefix_of(c));
	int n = 0;
	for (int i = 0; i < c->model.tensors.n; i++)
		if (name_matches(pattern, c->model.tensors.at[i].name))
			*first = n++ ? *first : &c->model.tensors.at[i];
	return n;
}

void d_speculate(Compile *c)
{
	const Config *cf = &c->model.config;
	const Options *o = &c->model.options;
	const StTensor *first;
	if (o->ngram_max) { /* of any family; what its head would draft is not asked for */
		g_speculate(c, o->verify_rows);
		return;
	}
	if (!prefix_of(c))
		return;
	const int n = count_tensors(c, &first);
	const char *layers = key_of_reader(cf->family, READER_DRAFT_LAYERS)->name;
	if (!n && cf->n_mtp && !c->cmd.random_weights) {
		fail_at(&c->diags, A0601, cf->at_mtp, "%s = %d: the checkpoint has no tensor %s.*", layers,
			cf->n_mtp, prefix_of(c));
		return;
	}
	/* a random head is never right: there is one only where it is asked for */
	const bool is_there = c->cmd.random_weights ? cf->n_mtp > 0 && o->asks_head : n > 0;
	if (!is_there && o->asks_head)
		fail_at(&c->diags, A0304, o->at_asks_head, "%s: the checkpoint has no head to draft with: "
			"no tensor %s.*, and %s = 0 (%s:%d)", o->asks_head, prefix_of(c), layers, cf->at_mtp.file, cf->at_mtp.line);
	if (!is_there || o->verify_rows < 2)
		return;
	if (cf->n_mtp > 1)
		fail_at(&c->diags, A0206, cf->at_mtp, "%s = %d: drafting heads of one layer are read; "
			"[speculate] rows = 1 leaves it out", layers, cf->n_mtp);
	g_speculate(c, o->verify_rows);
	read_draft_ids(c);
}

typedef struct Head {
	Decoder d;    /* of its layer */
	Product fc;
	int embedding_norm, hidden_norm, norm; /* weights */
	DraftHead scores;
} Head;

static const char *part_of(Compile *c, const Decoder *d, TensorRole role)
{
	return arena_printf(&c->arena, "%s.%s", d->prefix, d->names[role]);
}

static int norm_of(Compile *c, const Decoder *d, TensorRole role)
{
	return g_weight(c, arena_printf(&c->scratch, "%s.weight", part_of(c, d, role)), 1, c->model.config.hidden_dim, 0);
}

static Head head_of(Compile *c, const Decoder *d)
{
	const int hidden = c->model.config.hidden_dim;
	Head h = {.d = *d};
	h.d.prefix = prefix_of(c);
	g_products(c, 1, (const char *const[]){part_of(c, &h.d, NAME_DRAFT_FC)}, (int64_t[]){hidden}, (int64_t)2 * hidden,
		&h.fc);
	h.embedding_norm = norm_of(c, &h.d, NAME_DRAFT_EMBEDDING_NORM);
	h.hidden_norm = norm_of(c, &h.d, NAME_DRAFT_HIDDEN_NORM);
	h.norm = norm_of(c, &h.d, NAME_DRAFT_NORM);
	return h;
}

/* What the layer reads, of embedded tokens and rows of the positions before them. */
static int fuse_rows(Compile *c, const Head *h, int l, int embedded, int rows)
{
	const int hidden = c->model.config.hidden_dim;
	int e = d_rmsnorm(c, &h->d, l, embedded, h->embedding_norm, "embed.norm");
	int n = d_rmsnorm(c, &h->d, l, rows, h->hidden_norm, "hidden.norm");
	int both = d_act(c, l, "joined", DT_bf16, (int64_t)2 * hidden);
	g_op(c, OP_join, l, BOTH, NULL, (int[]){e, n, both});
	return d_linear(c, l, both, &h->fc, -1, "fc", hidden);
}

static int rows_of_i32(Compile *c, const char *name)
{
	return g_tensor(c, ROLE_ACTIVATION, DT_i32, name, 1, (int64_t[]){DIM_ROWS});
}

/* Logits of rows by a head, and what they draw, by masks or with -1 without; tensors "NAME.logits", "NAME.drawn",
 * "NAME.logprob", of which the last two are put into out. */
static void draw(Compile *c, const StepTensors *s, const DraftHead *head, const Attrs *attrs, const char *name,
	int rows, int masks, int out[2])
{
	const int end = c->graph.n_layers;
	int logits = g_logits(c, end, BOTH, &head->rows, rows, arena_printf(&c->arena, "%s.logits", name), DIM_ROWS);
	out[0] = rows_of_i32(c, arena_printf(&c->arena, "%s.drawn", name));
	out[1] = g_tensor(c, ROLE_ACTIVATION, DT_f32, arena_printf(&c->arena, "%s.logprob", name), 1,
		(int64_t[]){DIM_ROWS});
	g_op(c, OP_draw, end, BOTH, attrs, (int[]){s->step, logits, head->ids, s->row_slot, s->row_pos, s->sampling,
		s->limits, s->rules, masks, masks < 0 ? -1 : s->masks_later, s->counts, s->slot_token, s->slot_len,
		s->slot_draft, out[0], out[1]});
}

/* Verify: what the rows draw, which says how many of them count. */
static void accept_drawn(Compile *c, const StepTensors *s, const DecoderEnds *ends, const Attrs *attrs, int rows)
{
	const DraftHead model = {ends->head, c->graph.vocab, -1};
	int drawn[2];
	c->layer_phases = PHASE_VERIFY;
	draw(c, s, &model, attrs, "verify", rows, s->masks, drawn);
	g_op(c, OP_accept, c->graph.n_layers, BOTH, NULL, (int[]){s->step, drawn[0], drawn[1], s->row_token, s->row_slot,
		s->row_pos, s->limits, s->rules, s->stop_tokens, s->counts, s->slot_token, s->slot_len, s->slot_version,
		s->ring, s->row_next});
}

/* Prefill and verify: the head's keys and values of the model's rows, and which row the slot holds. */
static void follow(Compile *c, const StepTensors *s, const DecoderEnds *ends, Head *h, int held)
{
	const int l = h->d.first = c->graph.n_layers, hidden = c->model.config.hidden_dim;
	c->layer_phases = PHASE_PREFILL | PHASE_VERIFY;
	int rows = d_rmsnorm(c, &h->d, l, ends->x, ends->norm, "hidden");
	accept_drawn(c, s, ends, &h->d.attrs, rows);
	g_op(c, OP_hold, l, BOTH, NULL, (int[]){s->step, rows, s->row_slot, s->row_pos, s->slot_len, held});
	c->layer_phases = PHASE_PREFILL;
	g_op(c, OP_hold, l, BOTH, NULL, (int[]){s->step, rows, s->row_slot, s->row_pos, -1, held});
	c->layer_phases = PHASE_PREFILL | PHASE_VERIFY;
	int next = d_act(c, l, "next", DT_bf16, hidden);
	g_op(c, OP_embed_next_token, l, BOTH, NULL, (int[]){s->row_next, ends->table, next});
	d_keys(c, s, &h->d, l, fuse_rows(c, h, l, next, rows));
}

/* One draft a slot of the rows; returns the head's own rows, which the next one reads. */
static int draft_once(Compile *c, const StepTensors *s, const DecoderEnds *ends, Head *h, int l, int rows)
{
	const Config *cf = &c->model.config;
	Attrs attrs = h->d.attrs;
	int drawn[2], embedded = d_act(c, l, "token", DT_bf16, cf->hidden_dim);
	attrs.ahead = 2;
	attrs.n_valid = h->scores.n < attrs.n_valid ? h->scores.n : attrs.n_valid;
	h->d.first = l;
	g_op(c, OP_embed, l, BOTH, NULL, (int[]){s->row_token, ends->table, embedded});
	int x = d_attention(c, s, &h->d, l, fuse_rows(c, h, l, embedded, rows));
	x = d_mlp(c, &h->d, l, x);
	int y = d_rmsnorm(c, &h->d, l, x, h->norm, "hidden");
	draw(c, s, &h->scores, &attrs, arena_printf(&c->arena, "draft%d", l - c->graph.n_layers), y, -1, drawn);
	g_op(c, OP_keep_draft, l, BOTH, NULL,
		(int[]){drawn[0], s->row_slot, s->slot_len, s->slot_draft, s->row_token, s->row_pos});
	return y;
}

/* How much of the graph there was. */
typedef struct Mark { int tensors, ops, weights, constants, made, products; } Mark;

static void cut_back(Compile *c, const Mark *m)
{
	c->graph.n_tensors = m->tensors;
	c->graph.n_ops = m->ops;
	c->graph.n_weights = m->weights;
	c->constants.n = m->constants;
	c->made.n = m->made;
	c->products.n = m->products;
}

/* A head that is left out is built all the same, so that every tensor is looked at as a layer's are, and taken away
 * again: no step runs it. */
static void check_unread(Compile *c, const StepTensors *s, const Decoder *d)
{
	const Config *cf = &c->model.config;
	const StTensor *first;
	const int n = c->cmd.random_weights || !prefix_of(c) ? 0 : count_tensors(c, &first);
	if (!n)
		return;
	const Mark before = {c->graph.n_tensors, c->graph.n_ops, c->graph.n_weights, c->constants.n, c->made.n,
		c->products.n};
	Head h = head_of(c, d);
	for (int l = 0; l < (cf->n_mtp ? cf->n_mtp : 1); l++) {
		int x = d_attention(c, s, &h.d, l, d_act(c, l, "mtp", DT_bf16, cf->hidden_dim));
		d_mlp(c, &h.d, l, x);
	}
	cut_back(c, &before);
	note_at(&c->diags, A0605, (Loc){c->model.shards.at[first->shard].path, 0, 0},
		"%s and %d more of the drafting head are checked and not read: [speculate] %s leaves it out", first->name,
		n - 1, c->graph.ngram_max ? "drafter = \"ngram\"" : "rows = 1");
}

void d_draft(Compile *c, const StepTensors *s, const DecoderEnds *ends, const Decoder *d)
{
	const int rows = c->graph.verify_rows, before = c->diags.n_errors;
	if (!head_drafts(&c->graph))
		check_unread(c, s, d);
	if (rows && c->graph.ngram_max) {
		Decoder end = *d;
		end.first = c->graph.n_layers;
		c->layer_phases = PHASE_VERIFY;
		accept_drawn(c, s, ends, &end.attrs, d_rmsnorm(c, &end, c->graph.n_layers, ends->x, ends->norm, "hidden"));
	}
	if (!head_drafts(&c->graph))
		return;
	const int hidden = c->model.config.hidden_dim, n_layers = c->graph.n_layers;
	Head h = head_of(c, d);
	int held = g_tensor(c, ROLE_STATE, DT_bf16, "held", 2, (int64_t[]){c->graph.slots, hidden});
	h.scores = g_draft_head(c, ends);
	follow(c, s, ends, &h, held);
	c->layer_phases = PHASE_DRAFT;
	int x = d_act(c, n_layers + 1, "held", DT_bf16, hidden);
	g_op(c, OP_draft_rows, n_layers, BOTH, NULL,
		(int[]){s->row_slot, s->slot_token, s->slot_len, s->row_token, s->row_pos});
	g_op(c, OP_recall, n_layers, BOTH, NULL, (int[]){s->row_slot, held, x});
	for (int i = 1; i < rows && (i == 1 || c->diags.n_errors == before); i++) /* the first one looks at all tensors */
		x = draft_once(c, s, ends, &h, n_layers + i, x);
}
