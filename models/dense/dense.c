/* dense.c - graph of the dense decoder (see dense.h), and its rope frequencies. */
#include "models/dense/dense.h"

#include <math.h>

/* Frequencies of rope, f32 [head_dim / 2]: default theta^(-2i/d); linear divides by factor; llama3 keeps
 * short wavelengths, divides long ones and blends between (Llama 3.1 reference code); yarn blends by
 * dimension (arXiv 2309.00071, section 3.2). */
static void rope_frequencies(const Rope *r, int dim, float *out)
{
	const double pi = 3.14159265358979323846;
	double low = 0, high = 0;
	if (r->kind == ROPE_YARN) {
		double scale = dim / (2 * log(r->theta));
		low = scale * log(r->original_context / (2 * pi * r->beta_fast));
		high = scale * log(r->original_context / (2 * pi * r->beta_slow));
		low = fmax(r->truncate ? floor(low) : low, 0);
		high = fmin(r->truncate ? ceil(high) : high, dim - 1);
		if (high == low)
			high += 0.001;
	}
	for (int i = 0; i < dim / 2; i++) {
		double f = pow(r->theta, -2.0 * i / dim);
		double wavelength = 2 * pi / f, ramp;
		switch (r->kind) {
		case ROPE_DEFAULT:
			break;
		case ROPE_LINEAR:
			f /= r->factor;
			break;
		case ROPE_LLAMA3:
			ramp = (r->original_context / wavelength - r->low_freq) / (r->high_freq - r->low_freq);
			ramp = fmin(fmax(ramp, 0), 1);
			f = (1 - ramp) * f / r->factor + ramp * f;
			break;
		case ROPE_YARN:
			ramp = fmin(fmax((i - low) / (high - low), 0), 1);
			f = f / r->factor * ramp + f * (1 - ramp);
			break;
		}
		out[i] = (float)f;
	}
}

/* Yarn's factor on cos and sin: given, or from mscale, or 0.1 ln(factor) + 1. */
static double rope_factor(const Rope *r)
{
	if (r->kind != ROPE_YARN)
		return 1;
	if (r->attention_factor != 0)
		return r->attention_factor;
	double ln = r->factor > 1 ? log(r->factor) : 0;
	if (r->mscale != 0 && r->mscale_all_dim != 0)
		return (0.1 * r->mscale * ln + 1) / (0.1 * r->mscale_all_dim * ln + 1);
	return 0.1 * ln + 1;
}

const char *d_name(Compile *c, const Dense *d, int l, const char *name)
{
	return arena_printf(&c->arena, "%s.layers.%d.%s", d->prefix, l - d->first, name);
}

void d_products(Compile *c, const Dense *d, int l, int n, const char *const *modules, const int64_t *rows, int cols,
	Product *out)
{
	const char *names[4];
	for (int i = 0; i < n; i++)
		names[i] = d_name(c, d, l, modules[i]);
	g_products(c, n, names, rows, cols, out);
}

int d_vector(Compile *c, const Dense *d, int l, const char *name, int n)
{
	return g_weight(c, d_name(c, d, l, name), 1, n, 0);
}

int d_act(Compile *c, int l, const char *name, Dtype dtype, int64_t cols)
{
	return g_tensor(c, ROLE_ACTIVATION, dtype, arena_printf(&c->arena, "l%d.%s", l, name), 2,
		(int64_t[]){DIM_ROWS, cols});
}

int d_linear(Compile *c, int l, int x, const Product *w, int bias, const char *name, int64_t cols)
{
	int y = d_act(c, l, name, DT_bf16, cols);
	g_linear(c, l, BOTH, w, x, bias, y);
	return y;
}

int d_rmsnorm(Compile *c, const Dense *d, int l, int x, int w, const char *name)
{
	int y = d_act(c, l, name, DT_bf16, c->model.config.hidden_dim);
	g_op(c, OP_rmsnorm, l, BOTH, &d->attrs, (int[]){x, w, y});
	return y;
}

int d_add(Compile *c, int l, int x, int y, const char *name)
{
	int z = d_act(c, l, name, DT_bf16, c->model.config.hidden_dim);
	g_op(c, OP_add, l, BOTH, NULL, (int[]){x, y, z});
	return z;
}

/* q, k, v and, with it, the gate: rows of q_proj are, head after head, those of the query and those of the gate. */
static void products_qkv(Compile *c, const Dense *d, int l, Product *w)
{
	const Config *cf = &c->model.config;
	const int hdim = cf->head_dim, nq = cf->n_heads * hdim, nkv = cf->n_kv_heads * hdim;
	static const char *const names[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
	if (!d->has->gate) {
		d_products(c, d, l, 3, names, (int64_t[]){nq, nkv, nkv}, cf->hidden_dim, w);
		return;
	}
	const char *modules[3];
	for (int i = 0; i < 3; i++)
		modules[i] = d_name(c, d, l, names[i]);
	Piece *q = ARENA_ARRAY(&c->scratch, Piece, 2 * cf->n_heads), *gate = q + cf->n_heads;
	for (int h = 0; h < cf->n_heads; h++) {
		q[h] = (Piece){modules[0], 2 * nq, (int64_t)2 * h * hdim, hdim};
		gate[h] = (Piece){modules[0], 2 * nq, (int64_t)(2 * h + 1) * hdim, hdim};
	}
	const Piece k = {modules[1], nkv, 0, nkv}, v = {modules[2], nkv, 0, nkv};
	const ProductSpec specs[] = {{.name = arena_printf(&c->arena, "%s.query", modules[0]), cf->n_heads, q, 0, false},
		{.name = modules[1], 1, &k, 0, false}, {.name = modules[2], 1, &v, 0, false},
		{.name = arena_printf(&c->arena, "%s.gate", modules[0]), cf->n_heads, gate, 0, false}};
	g_products_of(c, 4, specs, cf->hidden_dim, w);
}

/* x plus attention. The weights of q, k, v follow each other, so that they can be read as one. */
int d_attention(Compile *c, const StepTensors *s, const Dense *d, int l, int x)
{
	const Config *cf = &c->model.config;
	int hidden = cf->hidden_dim, nq = cf->n_heads * cf->head_dim, nkv = cf->n_kv_heads * cf->head_dim;
	int norm = d_vector(c, d, l, "input_layernorm.weight", hidden);
	Product w[4], wo;
	products_qkv(c, d, l, w);
	int bq = -1, bk = -1, bv = -1;
	if (d->has->qkv_bias) {
		bq = d_vector(c, d, l, "self_attn.q_proj.bias", nq);
		bk = d_vector(c, d, l, "self_attn.k_proj.bias", nkv);
		bv = d_vector(c, d, l, "self_attn.v_proj.bias", nkv);
	}
	int n = d_rmsnorm(c, d, l, x, norm, "attn.norm");
	int q = d_linear(c, l, n, &w[0], bq, "q", nq);
	int k = d_linear(c, l, n, &w[1], bk, "k", nkv);
	int v = d_linear(c, l, n, &w[2], bv, "v", nkv);
	int gate = d->has->gate ? d_linear(c, l, n, &w[3], -1, "attn.gate", nq) : -1;
	if (d->has->head_norm) {
		int q_norm = d_vector(c, d, l, "self_attn.q_norm.weight", cf->head_dim);
		int k_norm = d_vector(c, d, l, "self_attn.k_norm.weight", cf->head_dim);
		int qn = d_act(c, l, "q.norm", DT_bf16, nq), kn = d_act(c, l, "k.norm", DT_bf16, nkv);
		g_op(c, OP_head_norm, l, BOTH, &d->attrs, (int[]){q, q_norm, qn});
		g_op(c, OP_head_norm, l, BOTH, &d->attrs, (int[]){k, k_norm, kn});
		q = qn;
		k = kn;
	}
	int qr = d_act(c, l, "q.rope", DT_bf16, nq), kr = d_act(c, l, "k.rope", DT_bf16, nkv);
	int o = d_act(c, l, "attn", DT_bf16, nq);
	g_op(c, OP_rope, l, BOTH, &d->attrs, (int[]){q, d->inv_freq, s->row_pos, qr});
	g_op(c, OP_rope, l, BOTH, &d->attrs, (int[]){k, d->inv_freq, s->row_pos, kr});
	Cache kv = g_cache(c, l, d_name(c, d, l, "self_attn"), &d->attrs);
	g_op(c, OP_kv_write, l, BOTH, &d->attrs,
		(int[]){s->step, kr, v, s->row_slot, s->row_pos, s->page_table, kv.kv, kv.scale, kv.block});
	g_op(c, OP_attention, l, BOTH, &d->attrs,
		(int[]){s->step, qr, kv.kv, kv.scale, kv.block, s->row_slot, s->row_pos, s->seg, s->page_table, o});
	if (d->has->gate) {
		int gated = d_act(c, l, "attn.gated", DT_bf16, nq);
		g_op(c, OP_sigmoid_gate, l, BOTH, NULL, (int[]){o, gate, gated});
		o = gated;
	}
	d_products(c, d, l, 1, (const char *const[]){"self_attn.o_proj"}, (int64_t[]){hidden}, nq, &wo);
	int bo = d->has->o_bias ? d_vector(c, d, l, "self_attn.o_proj.bias", hidden) : -1;
	return d_add(c, l, x, d_linear(c, l, o, &wo, bo, "attn.o", hidden), "mid");
}

void d_keys(Compile *c, const StepTensors *s, const Dense *d, int l, int x)
{
	const Config *cf = &c->model.config;
	const int nkv = cf->n_kv_heads * cf->head_dim;
	int norm = d_vector(c, d, l, "input_layernorm.weight", cf->hidden_dim);
	Product w[4];
	products_qkv(c, d, l, w);
	int n = d_rmsnorm(c, d, l, x, norm, "attn.norm");
	int k = d_linear(c, l, n, &w[1], -1, "k", nkv), v = d_linear(c, l, n, &w[2], -1, "v", nkv);
	int k_norm = d_vector(c, d, l, "self_attn.k_norm.weight", cf->head_dim);
	int kn = d_act(c, l, "k.norm", DT_bf16, nkv), kr = d_act(c, l, "k.rope", DT_bf16, nkv);
	g_op(c, OP_head_norm, l, BOTH, &d->attrs, (int[]){k, k_norm, kn});
	g_op(c, OP_rope, l, BOTH, &d->attrs, (int[]){kn, d->inv_freq, s->row_pos, kr});
	Cache kv = g_cache(c, l, d_name(c, d, l, "self_attn"), &d->attrs);
	g_op(c, OP_kv_write, l, BOTH, &d->attrs,
		(int[]){s->step, kr, v, s->row_slot, s->row_pos, s->page_table, kv.kv, kv.scale, kv.block});
}

int d_mlp(Compile *c, const Dense *d, int l, int x)
{
	int hidden = c->model.config.hidden_dim, ffn = c->model.config.ffn_dim;
	bool has_bias = d->has->mlp_bias;
	int norm = d_vector(c, d, l, "post_attention_layernorm.weight", hidden);
	Product w[2], w_down;
	d_products(c, d, l, 2, (const char *const[]){"mlp.gate_proj", "mlp.up_proj"}, (int64_t[]){ffn, ffn}, hidden, w);
	int b_gate = has_bias ? d_vector(c, d, l, "mlp.gate_proj.bias", ffn) : -1;
	int b_up = has_bias ? d_vector(c, d, l, "mlp.up_proj.bias", ffn) : -1;
	d_products(c, d, l, 1, (const char *const[]){"mlp.down_proj"}, (int64_t[]){hidden}, ffn, &w_down);
	int b_down = has_bias ? d_vector(c, d, l, "mlp.down_proj.bias", hidden) : -1;
	int n = d_rmsnorm(c, d, l, x, norm, "mlp.norm");
	int gate = d_linear(c, l, n, &w[0], b_gate, "gate", ffn);
	int up = d_linear(c, l, n, &w[1], b_up, "up", ffn);
	int h = d_act(c, l, "h", DT_bf16, ffn);
	g_op(c, OP_swiglu, l, BOTH, NULL, (int[]){gate, up, h});
	return d_add(c, l, x, d_linear(c, l, h, &w_down, b_down, "mlp.down", hidden), "out");
}

static int layer(Compile *c, const StepTensors *s, int l, int x, const void *traits)
{
	const Config *cf = &c->model.config;
	Dense d = *(const Dense *)traits;
	d.attrs.rotate = c->model.options.rotate[l];
	x = cf->is_delta && cf->is_delta[l] ? d_delta(c, s, &d, l, x) : d_attention(c, s, &d, l, x);
	return cf->n_experts ? d_experts(c, &d, l, x) : d_mlp(c, &d, l, x);
}

void build_dense(Compile *c, const DenseTraits *has)
{
	const Config *cf = &c->model.config;
	d_speculate(c);
	/* multimodal checkpoints keep the language model one level deeper */
	Dense d = {.has = has, .prefix = g_find_tensor(c, "model.language_model.embed_tokens.weight")
		? "model.language_model" : "model"};
	float *inv_freq = ARENA_ARRAY(&c->arena, float, cf->rotary_dim / 2);
	rope_frequencies(&cf->rope, cf->rotary_dim, inv_freq);
	d.inv_freq = g_constant(c, "atlas.inv_freq", DT_f32, cf->rotary_dim / 2, inv_freq);
	d.attrs = (Attrs){.head_dim = cf->head_dim, .n_heads = cf->n_heads, .n_kv_heads = cf->n_kv_heads,
		.page = c->graph.page, .rotary_dim = cf->rotary_dim, .eps = (float)cf->norm_eps, .norm_one = has->norm_one,
		.scale = (float)(1 / sqrt(cf->head_dim)), .rope_factor = (float)rope_factor(&cf->rope),
		.n_valid = c->model.n_tokens, .ahead = 1, .n_active = cf->n_active, .norm_topk = cf->norm_topk,
		.n_k_heads = cf->n_k_heads, .n_v_heads = cf->n_v_heads, .k_dim = cf->k_dim, .v_dim = cf->v_dim,
		.n_taps = cf->n_taps};
	g_decoder(c, d.prefix, &d.attrs, layer, d_draft, &d);
}
