/* attention.c - attention with grouped queries, over pages of keys and values.
 *
 *   q, k, v = linears of n    q and k normalised by head or over the whole of each, then turned by their position
 *   x += o_proj(attention(q, k, v))    times the sigmoid of a gate where there is one
 *
 * A layer may have no v_proj: then v is what k_proj gives. It may have no k and v at all, and read those of a layer
 * before it. A model may have sinks: a score a head besides those of the positions.
 */
#include "models/decoder/decoder.h"

#include <string.h>

/* q, k, v and, with it, the gate: rows of q_proj are, head after head, those of the query and those of the gate. */
static void products_qkv(Compile *c, const Decoder *d, int l, Product *w)
{
	const LayerSpec *s = &d->spec;
	const int hdim = s->head_dim, nq = s->n_heads * hdim, nkv = s->n_kv_heads * hdim, cols = c->model.config.hidden_dim;
	static const TensorRole roles[] = {NAME_Q, NAME_K, NAME_V};
	const int64_t rows[] = {nq, nkv, nkv};
	const int n_own = s->kv_back ? 1 : s->v_is_k ? 2 : 3;
	if (n_own < 3)
		d_products(c, d, l, n_own, roles, rows, cols, w);
	else if (d->names[NAME_QKV])
		d_parts(c, d, l, 3, NAME_QKV, (const char *[]){"query", "key", "value"}, rows, cols, w);
	else if (!d->spec.has_gate)
		d_products(c, d, l, 3, roles, rows, cols, w);
	if (n_own < 3 || d->names[NAME_QKV] || !d->spec.has_gate)
		return;
	const char *modules[3];
	for (int i = 0; i < 3; i++)
		modules[i] = d_part(c, d, l, roles[i]);
	Piece *q = ARENA_ARRAY(&c->scratch, Piece, 2 * s->n_heads), *gate = q + s->n_heads;
	for (int h = 0; h < s->n_heads; h++) {
		q[h] = (Piece){modules[0], 2 * nq, (int64_t)2 * h * hdim, hdim, NULL};
		gate[h] = (Piece){modules[0], 2 * nq, (int64_t)(2 * h + 1) * hdim, hdim, NULL};
	}
	Piece k = {modules[1], nkv, 0, nkv, NULL}, v = {modules[2], nkv, 0, nkv, NULL};
	const struct { const char *name; int n; Piece *pieces; } all[] = {
		{arena_printf(&c->arena, "%s.query", modules[0]), s->n_heads, q}, {modules[1], 1, &k}, {modules[2], 1, &v},
		{arena_printf(&c->arena, "%s.gate", modules[0]), s->n_heads, gate}};
	for (int i = 0; i < 4; i++)
		w[i] = (Product){.name = all[i].name, .n_pieces = all[i].n, .pieces = all[i].pieces, .cols = cols};
	g_products_of(c, 4, w);
}

/* Ones in the place of a norm's weight over heads. */
static int no_weight(Compile *c, const Decoder *d)
{
	const LayerSpec *s = &d->spec;
	const char *name = arena_printf(&c->scratch, "atlas.no_weight.%d", s->head_dim);
	float *ones = ARENA_ARRAY(&c->scratch, float, s->head_dim);
	for (int i = 0; i < c->graph.n_tensors; i++)
		if (strcmp(c->graph.tensors[i].name, name) == 0)
			return i;
	for (int i = 0; i < s->head_dim; i++)
		ones[i] = s->norm_one ? 0 : 1;
	return g_constant(c, name, DT_f32, s->head_dim, ones);
}

/* The weight of q_norm or k_norm, of that many heads; -1 = there is none. */
static int head_norm(Compile *c, const Decoder *d, int l, int heads, TensorRole role)
{
	if (d->spec.qk_norm == QK_NORM_TURNED)
		return d->spec.rope < 0 ? -1 : no_weight(c, d);
	return d->spec.qk_norm == QK_NORM_NONE ? -1
		: d_vector(c, d, l, role, (d->spec.qk_norm == QK_NORM_WHOLE ? heads : 1) * d->spec.head_dim);
}

static int normed(Compile *c, const Decoder *d, int l, int x, int heads, int w, const char *name)
{
	if (w < 0)
		return x;
	int y = d_act(c, l, name, DT_bf16, (int64_t)heads * d->spec.head_dim);
	Attrs attrs = d->attrs;
	if (d->spec.qk_norm == QK_NORM_TURNED) /* after rope, whose factor heads lose there: it had raised their squares */
		attrs.eps /= attrs.rope_factor * attrs.rope_factor;
	g_op(c, d->spec.qk_norm == QK_NORM_WHOLE ? OP_rmsnorm : OP_head_norm, l, BOTH, &attrs, (int[]){x, w, y});
	return y;
}

static int turn(Compile *c, const StepTensors *s, const Decoder *d, int l, int x, int heads, const char *name)
{
	if (d->spec.rope < 0)
		return x;
	int y = d_act(c, l, name, DT_bf16, (int64_t)heads * d->spec.head_dim);
	Attrs attrs = d->attrs;
	if (d->spec.qk_norm == QK_NORM_TURNED)
		attrs.rope_factor = 1;
	g_op(c, OP_rope, l, BOTH, &attrs, (int[]){x, d->inv_freq[d->spec.rope], s->row_pos, y});
	return y;
}

/* v with each head normalised, without a weight. */
static int normed_values(Compile *c, const Decoder *d, int l, int v)
{
	const LayerSpec *s = &d->spec;
	if (!s->v_norm)
		return v;
	const int w = no_weight(c, d);
	int y = d_act(c, l, "v.norm", DT_bf16, (int64_t)s->n_kv_heads * s->head_dim);
	g_op(c, OP_head_norm, l, BOTH, &d->attrs, (int[]){v, w, y});
	return y;
}

/* Tensors of keys and values that files have for a layer which reads another's: transformers does not read them. */
static void leave_out(Compile *c, const Decoder *d, int l)
{
	static const TensorRole roles[] = {NAME_K, NAME_V, NAME_K_NORM};
	const StTensor *first = NULL;
	int n = 0;
	for (int k = 0; k < 3; k++) {
		const char *pattern = arena_printf(&c->scratch, "%s.*", d_part(c, d, l, roles[k]));
		for (int i = 0; i < c->model.tensors.n; i++) {
			StTensor *t = &c->model.tensors.at[i];
			if (!name_matches(pattern, t->name))
				continue;
			first = n++ ? first : t;
			t->used_by++;
		}
	}
	if (n)
		note_at(&c->diags, A0605, (Loc){c->model.shards.at[first->shard].path, 0, 0}, "%s and %d more are not read: "
			"layer %d has the keys and values of layer %d", first->name, n - 1, l, l - d->spec.kv_back);
}

static Cache write_keys(Compile *c, const StepTensors *s, const Decoder *d, int l, int k, int v)
{
	Cache kv = g_cache(c, s, l, d_part(c, d, l, NAME_ATTENTION), &d->spec);
	if (l < c->graph.n_layers)
		d->caches[l] = kv;
	g_op(c, OP_kv_write, l, BOTH, &d->attrs,
		(int[]){s->step, k, v, s->row_slot, s->row_pos, kv.table, kv.kv, kv.scale, kv.block});
	return kv;
}

enum { Q, K, V };

/* Of rows n, as the layer has them: -1 = another layer does. */
static void linears_qkv(Compile *c, const Decoder *d, int l, int n, const Product *w, const int *bias, int *qkv)
{
	const LayerSpec *p = &d->spec;
	const int nkv = p->n_kv_heads * p->head_dim;
	qkv[Q] = d_linear(c, l, n, &w[Q], bias[Q], "q", p->n_heads * p->head_dim);
	qkv[K] = p->kv_back ? -1 : d_linear(c, l, n, &w[K], bias[K], "k", nkv);
	qkv[V] = p->kv_back || p->v_is_k ? qkv[K] : d_linear(c, l, n, &w[V], bias[V], "v", nkv);
}

static void norm_and_turn(Compile *c, const StepTensors *s, const Decoder *d, int l, int *qkv)
{
	const LayerSpec *p = &d->spec;
	const bool has_keys = !p->kv_back;
	int q_norm = head_norm(c, d, l, p->n_heads, NAME_Q_NORM);
	int k_norm = has_keys ? head_norm(c, d, l, p->n_kv_heads, NAME_K_NORM) : -1;
	qkv[Q] = normed(c, d, l, qkv[Q], p->n_heads, q_norm, "q.norm");
	qkv[K] = normed(c, d, l, qkv[K], p->n_kv_heads, k_norm, "k.norm");
	qkv[V] = has_keys ? normed_values(c, d, l, qkv[V]) : -1;
	qkv[Q] = turn(c, s, d, l, qkv[Q], p->n_heads, "q.rope");
	qkv[K] = has_keys ? turn(c, s, d, l, qkv[K], p->n_kv_heads, "k.rope") : -1;
}

/* x plus attention. The weights of q, k, v follow each other, so that they can be read as one. */
int d_attention(Compile *c, const StepTensors *s, const Decoder *d, int l, int x)
{
	const LayerSpec *p = &d->spec;
	const int hidden = c->model.config.hidden_dim, nq = p->n_heads * p->head_dim, nkv = p->n_kv_heads * p->head_dim;
	int norm = d_pre_norm(c, d, l, NAME_MIXER_NORM);
	Product w[4], wo;
	int bias[3], qkv[3];
	products_qkv(c, d, l, w);
	bias[Q] = d_bias(c, d, l, p->qkv_bias, NAME_Q, nq);
	bias[K] = d_bias(c, d, l, p->qkv_bias && !p->kv_back, NAME_K, nkv);
	bias[V] = d_bias(c, d, l, p->qkv_bias && !p->kv_back && !p->v_is_k, NAME_V, nkv);
	int n = d_before(c, d, l, x, norm, "attn.norm");
	linears_qkv(c, d, l, n, w, bias, qkv);
	int gate = p->has_gate ? d_linear(c, l, n, &w[3], -1, "attn.gate", nq) : -1;
	norm_and_turn(c, s, d, l, qkv);
	int o = d_act(c, l, "attn", DT_bf16, nq);
	int sinks = p->sinks ? g_weight(c, d_part(c, d, l, NAME_SINKS), 1, p->n_heads, 0) : -1;
	if (p->kv_back)
		leave_out(c, d, l);
	const Cache kv = p->kv_back ? d->caches[l - p->kv_back] : write_keys(c, s, d, l, qkv[K], qkv[V]);
	g_op(c, OP_attention, l, BOTH, &d->attrs,
		(int[]){s->step, qkv[Q], kv.kv, kv.scale, kv.block, s->row_slot, s->row_pos, s->seg, kv.table, sinks, o});
	if (p->has_gate) {
		int gated = d_act(c, l, "attn.gated", DT_bf16, nq);
		g_op(c, OP_sigmoid_gate, l, BOTH, NULL, (int[]){o, gate, gated});
		o = gated;
	}
	if (p->head_gate) {
		Product g;
		d_products(c, d, l, 1, (const TensorRole[]){NAME_HEAD_GATE}, (int64_t[]){p->n_heads}, hidden, &g);
		int gated = d_act(c, l, "attn.gated", DT_bf16, nq);
		gate = d_linear(c, l, n, &g, -1, "attn.gate", p->n_heads);
		g_op(c, p->head_gate == HEAD_GATE_SOFTPLUS ? OP_softplus_gate : OP_sigmoid_gate, l, BOTH, NULL,
			(int[]){o, gate, gated});
		o = gated;
	}
	d_products(c, d, l, 1, (const TensorRole[]){NAME_O}, (int64_t[]){hidden}, nq, &wo);
	int bo = d_bias(c, d, l, p->o_bias, NAME_O, hidden);
	return d_after(c, d, l, x, d_linear(c, l, o, &wo, bo, "attn.o", hidden), NAME_MIXER_POST_NORM, "mid");
}

void d_keys(Compile *c, const StepTensors *s, const Decoder *d, int l, int x)
{
	const int heads = d->spec.n_kv_heads, nkv = heads * d->spec.head_dim;
	int norm = d_pre_norm(c, d, l, NAME_MIXER_NORM);
	Product w[4];
	products_qkv(c, d, l, w);
	int n = d_before(c, d, l, x, norm, "attn.norm");
	int k = d_linear(c, l, n, &w[1], -1, "k", nkv), v = d_linear(c, l, n, &w[2], -1, "v", nkv);
	k = normed(c, d, l, k, heads, head_norm(c, d, l, heads, NAME_K_NORM), "k.norm");
	v = normed_values(c, d, l, v);
	k = turn(c, s, d, l, k, heads, "k.rope");
	write_keys(c, s, d, l, k, v);
}
