/* dense.c - graph of the dense decoder (see dense.h), and its rope frequencies. */
#include "models/dense/dense.h"

#include <math.h>

enum { BOTH = PHASE_PREFILL | PHASE_DECODE };

typedef struct Dense {
	const DenseTraits *has;
	const char *prefix;
	int inv_freq; /* tensor f32 [head_dim / 2] */
	Attrs attrs;
} Dense;

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

/* Weights of n modules of a layer, which read the same [ROWS, cols]. */
static void proj(Compile *c, const Dense *d, int l, int n, const char *const *modules, const int64_t *rows, int cols,
	Product *out)
{
	const char *names[4];
	for (int i = 0; i < n; i++)
		names[i] = arena_printf(&c->arena, "%s.layers.%d.%s", d->prefix, l, modules[i]);
	g_products(c, n, names, rows, cols, out);
}

static int vector(Compile *c, const Dense *d, int l, const char *name, int n)
{
	return g_weight(c, arena_printf(&c->arena, "%s.layers.%d.%s", d->prefix, l, name), 1, n, 0);
}

static int act(Compile *c, int l, const char *name, int64_t cols)
{
	return g_activation(c, arena_printf(&c->arena, "l%d.%s", l, name), cols);
}

static int linear(Compile *c, int l, int x, const Product *w, int bias, const char *name, int64_t cols)
{
	int y = act(c, l, name, cols);
	g_linear(c, l, BOTH, w, x, bias, y);
	return y;
}

static int rmsnorm(Compile *c, const Dense *d, int l, int x, int w, const char *name)
{
	int y = act(c, l, name, c->model.config.hidden_dim);
	g_op(c, OP_rmsnorm, l, BOTH, &d->attrs, (int[]){x, w, y});
	return y;
}

static int add(Compile *c, int l, int x, int y, const char *name)
{
	int z = act(c, l, name, c->model.config.hidden_dim);
	g_op(c, OP_add, l, BOTH, NULL, (int[]){x, y, z});
	return z;
}

/* x plus attention. The weights of q, k, v stand one after the other, so that they can be read as one. */
static int attention(Compile *c, const StepTensors *s, const Dense *d, int l, int x)
{
	const Config *cf = &c->model.config;
	int hidden = cf->hidden_dim, nq = cf->n_heads * cf->head_dim, nkv = cf->n_kv_heads * cf->head_dim;
	int norm = vector(c, d, l, "input_layernorm.weight", hidden);
	Product w[3], wo;
	proj(c, d, l, 3, (const char *const[]){"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
		(int64_t[]){nq, nkv, nkv}, hidden, w);
	int bq = -1, bk = -1, bv = -1;
	if (d->has->qkv_bias) {
		bq = vector(c, d, l, "self_attn.q_proj.bias", nq);
		bk = vector(c, d, l, "self_attn.k_proj.bias", nkv);
		bv = vector(c, d, l, "self_attn.v_proj.bias", nkv);
	}
	int n = rmsnorm(c, d, l, x, norm, "attn.norm");
	int q = linear(c, l, n, &w[0], bq, "q", nq);
	int k = linear(c, l, n, &w[1], bk, "k", nkv);
	int v = linear(c, l, n, &w[2], bv, "v", nkv);
	if (d->has->head_norm) {
		int q_norm = vector(c, d, l, "self_attn.q_norm.weight", cf->head_dim);
		int k_norm = vector(c, d, l, "self_attn.k_norm.weight", cf->head_dim);
		int qn = act(c, l, "q.norm", nq), kn = act(c, l, "k.norm", nkv);
		g_op(c, OP_head_norm, l, BOTH, &d->attrs, (int[]){q, q_norm, qn});
		g_op(c, OP_head_norm, l, BOTH, &d->attrs, (int[]){k, k_norm, kn});
		q = qn;
		k = kn;
	}
	int qr = act(c, l, "q.rope", nq), kr = act(c, l, "k.rope", nkv), o = act(c, l, "attn", nq);
	g_op(c, OP_rope, l, BOTH, &d->attrs, (int[]){q, d->inv_freq, s->row_pos, qr});
	g_op(c, OP_rope, l, BOTH, &d->attrs, (int[]){k, d->inv_freq, s->row_pos, kr});
	Cache kv = g_cache(c, l, arena_printf(&c->arena, "%s.layers.%d.self_attn", d->prefix, l), &d->attrs);
	g_op(c, OP_kv_write, l, BOTH, &d->attrs,
		(int[]){s->step, kr, v, s->row_slot, s->row_pos, s->page_table, kv.kv, kv.scale, kv.block});
	g_op(c, OP_attention, l, BOTH, &d->attrs,
		(int[]){s->step, qr, kv.kv, kv.scale, kv.block, s->row_slot, s->row_pos, s->seg, s->page_table, o});
	proj(c, d, l, 1, (const char *const[]){"self_attn.o_proj"}, (int64_t[]){hidden}, nq, &wo);
	int bo = d->has->o_bias ? vector(c, d, l, "self_attn.o_proj.bias", hidden) : -1;
	return add(c, l, x, linear(c, l, o, &wo, bo, "attn.o", hidden), "mid");
}

static int mlp(Compile *c, const Dense *d, int l, int x)
{
	int hidden = c->model.config.hidden_dim, ffn = c->model.config.ffn_dim;
	bool has_bias = d->has->mlp_bias;
	int norm = vector(c, d, l, "post_attention_layernorm.weight", hidden);
	Product w[2], w_down;
	proj(c, d, l, 2, (const char *const[]){"mlp.gate_proj", "mlp.up_proj"}, (int64_t[]){ffn, ffn}, hidden, w);
	int b_gate = has_bias ? vector(c, d, l, "mlp.gate_proj.bias", ffn) : -1;
	int b_up = has_bias ? vector(c, d, l, "mlp.up_proj.bias", ffn) : -1;
	proj(c, d, l, 1, (const char *const[]){"mlp.down_proj"}, (int64_t[]){hidden}, ffn, &w_down);
	int b_down = has_bias ? vector(c, d, l, "mlp.down_proj.bias", hidden) : -1;
	int n = rmsnorm(c, d, l, x, norm, "mlp.norm");
	int gate = linear(c, l, n, &w[0], b_gate, "gate", ffn);
	int up = linear(c, l, n, &w[1], b_up, "up", ffn);
	int h = act(c, l, "h", ffn);
	g_op(c, OP_swiglu, l, BOTH, NULL, (int[]){gate, up, h});
	return add(c, l, x, linear(c, l, h, &w_down, b_down, "mlp.down", hidden), "out");
}

static int layer(Compile *c, const StepTensors *s, int l, int x, const void *traits)
{
	return mlp(c, traits, l, attention(c, s, traits, l, x));
}

void build_dense(Compile *c, const DenseTraits *has)
{
	const Config *cf = &c->model.config;
	/* multimodal checkpoints keep the language model one level deeper */
	Dense d = {.has = has, .prefix = g_find_tensor(c, "model.language_model.embed_tokens.weight")
		? "model.language_model" : "model"};
	float *inv_freq = ARENA_ARRAY(&c->arena, float, cf->head_dim / 2);
	rope_frequencies(&cf->rope, cf->head_dim, inv_freq);
	d.inv_freq = g_constant(c, "atlas.inv_freq", DT_f32, cf->head_dim / 2, inv_freq);
	d.attrs = (Attrs){.head_dim = cf->head_dim, .n_heads = cf->n_heads, .n_kv_heads = cf->n_kv_heads,
		.page = c->graph.page, .rotary_dim = cf->head_dim, .eps = (float)cf->norm_eps,
		.scale = (float)(1 / sqrt(cf->head_dim)), .rope_factor = (float)rope_factor(&cf->rope),
		.n_valid = c->model.n_tokens};
	g_decoder(c, d.prefix, &d.attrs, layer, &d);
}
