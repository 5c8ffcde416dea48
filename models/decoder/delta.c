/* delta.c - Gated DeltaNet in place of attention.
 *
 *   q, k, v = silu(conv(in_proj(n)))    a causal convolution of each column, whose last rows the slot keeps
 *   o = delta_rule(q, k, v, a, b)       a state [DK, DV] for each value head, which the slot keeps
 *   x += out_proj(gated_norm(o, z))
 *
 * Some checkpoints keep the rows of in_proj by key head (delta_qkvz, delta_ba): q, k, v and z of the first, then of the
 * second. They are taken from the file in the order in which others have them, so that both are one graph.
 */
#include "models/decoder/decoder.h"

/* n pieces from `to` on: rows [at, at + count) of each of n groups of `stride` rows. */
static Piece *take(Piece *to, const char *module, int n, int64_t stride, int64_t at, int64_t count)
{
	for (int g = 0; g < n; g++)
		*to++ = (Piece){module, n * stride, g * stride + at, count, NULL};
	return to;
}

/* qkv, z, b, a of rows that are ordered by key head. */
static void grouped_products(Compile *c, const Decoder *d, int l, Product *out)
{
	const LayerSpec *p = &d->spec;
	const int nk = p->n_k_heads, per = p->n_v_heads / nk;
	const int64_t dk = p->k_dim, dv = (int64_t)per * p->v_dim, wide = 2 * dk + 2 * dv;
	const char *qkvz = d_part(c, d, l, NAME_DELTA_QKVZ), *ba = d_part(c, d, l, NAME_DELTA_BA);
	Piece *first = ARENA_ARRAY(&c->scratch, Piece, 6 * nk);
	Piece *z = take(take(take(first, qkvz, nk, wide, 0, dk), qkvz, nk, wide, dk, dk), qkvz, nk, wide, 2 * dk, dv);
	Piece *b = take(z, qkvz, nk, wide, 2 * dk + dv, dv), *a = take(b, ba, nk, 2 * per, 0, per);
	take(a, ba, nk, 2 * per, per, per);
	const struct { TensorRole role; int n; Piece *pieces; } all[] = {{NAME_DELTA_QKV, 3 * nk, first},
		{NAME_DELTA_Z, nk, z}, {NAME_DELTA_B, nk, b}, {NAME_DELTA_A, nk, a}};
	for (int i = 0; i < 4; i++)
		out[i] = (Product){.name = d_part(c, d, l, all[i].role), .n_pieces = all[i].n, .pieces = all[i].pieces,
			.cols = c->model.config.hidden_dim};
	g_products_of(c, 4, out);
}

int d_delta(Compile *c, const StepTensors *s, const Decoder *d, int l, int x)
{
	static const TensorRole roles[] = {NAME_DELTA_QKV, NAME_DELTA_Z, NAME_DELTA_B, NAME_DELTA_A};
	static const char *const names[] = {"qkv", "z", "b", "a"};
	const LayerSpec *p = &d->spec;
	const int hidden = c->model.config.hidden_dim, nv = p->n_v_heads, values = nv * p->v_dim;
	const int mixed = 2 * p->n_k_heads * p->k_dim + values;
	const int64_t rows[] = {mixed, values, nv, nv};
	const Dtype state = c->model.options.state;
	Product w[4], wo;
	int norm = d_pre_norm(c, d, l, NAME_MIXER_NORM), y[4];
	if (d->names[NAME_DELTA_QKVZ])
		grouped_products(c, d, l, w);
	else
		d_products(c, d, l, 4, roles, rows, hidden, w);
	int w_conv = g_weight_of(c, arena_printf(&c->scratch, "%s.weight", d_part(c, d, l, NAME_DELTA_CONV)), 3,
		(int64_t[]){mixed, 1, p->n_taps + 1});
	int a_log = g_weight(c, d_part(c, d, l, NAME_DELTA_A_LOG), 1, nv, 0);
	int dt_bias = g_weight(c, d_part(c, d, l, NAME_DELTA_DT_BIAS), 1, nv, 0);
	int w_norm = d_vector(c, d, l, NAME_DELTA_NORM, p->v_dim);
	d_products(c, d, l, 1, (const TensorRole[]){NAME_DELTA_OUT}, (int64_t[]){hidden}, values, &wo);
	int n = d_before(c, d, l, x, norm, "attn.norm");
	for (int i = 0; i < 4; i++)
		y[i] = d_linear(c, l, n, &w[i], -1, names[i], rows[i]);
	int conv = g_slot_state(c, arena_printf(&c->arena, "conv.%d", l), DT_bf16, (int64_t)p->n_taps * mixed);
	int delta = g_slot_state(c, arena_printf(&c->arena, "delta.%d", l), state, (int64_t)nv * p->k_dim * p->v_dim);
	int turned = d_act(c, l, "conv", DT_bf16, mixed), o = d_act(c, l, "delta", DT_bf16, values);
	int normed = d_act(c, l, "delta.norm", DT_bf16, values);
	const int plain = PHASE_PREFILL | PHASE_DECODE;
	g_op(c, OP_causal_conv, l, plain, &d->attrs, (int[]){s->step, y[0], w_conv, s->row_slot, conv, turned});
	if (c->graph.verify_rows) {
		int later = g_later_state(c, arena_printf(&c->arena, "conv_later.%d", l), DT_bf16, (int64_t)p->n_taps * mixed);
		g_op(c, OP_conv_verify, l, PHASE_VERIFY, &d->attrs,
			(int[]){s->step, y[0], w_conv, s->row_slot, s->slot_version, conv, later, turned});
	}
	g_op(c, OP_delta_rule, l, plain, &d->attrs,
		(int[]){s->step, turned, y[3], y[2], a_log, dt_bias, s->row_slot, delta, o});
	if (c->graph.verify_rows) {
		int later = g_later_state(c, arena_printf(&c->arena, "delta_later.%d", l), state,
			(int64_t)nv * p->k_dim * p->v_dim);
		g_op(c, OP_delta_verify, l, PHASE_VERIFY, &d->attrs,
			(int[]){s->step, turned, y[3], y[2], a_log, dt_bias, s->row_slot, s->slot_version, delta, later, o});
	}
	Attrs attrs = d->attrs;
	attrs.head_dim = p->v_dim;
	g_op(c, OP_gated_norm, l, BOTH, &attrs, (int[]){o, y[1], w_norm, normed});
	return d_after(c, d, l, x, d_linear(c, l, normed, &wo, -1, "attn.o", hidden), NAME_MIXER_POST_NORM, "mid");
}
