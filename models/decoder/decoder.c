/* decoder.c - a decoder of its layers (see decoder.h), its MLP, and the frequencies of rope. */
#include "models/decoder/decoder.h"

#include <math.h>

/* Frequencies of rope, f32 [head_dim / 2]: default theta^(-2i/d); linear divides by factor; llama3 keeps
 * short wavelengths, divides long ones and blends between (Llama 3.1 reference code); yarn blends by
 * dimension (arXiv 2309.00071, section 3.2); longrope has a divisor for each pair, one list for contexts up to the
 * original one and one beyond, of which transformers takes either by the length that a text has so far; proportional
 * turns the first pairs alone. */
static void rope_frequencies(const Rope *r, int dim, int context, float *out)
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
			ramp = r->original_context / wavelength - r->low_freq; /* the factors may be equal: nothing is between */
			ramp = r->high_freq > r->low_freq ? ramp / (r->high_freq - r->low_freq) : ramp > 0;
			ramp = fmin(fmax(ramp, 0), 1);
			f = (1 - ramp) * f / r->factor + ramp * f;
			break;
		case ROPE_YARN:
			ramp = fmin(fmax((i - low) / (high - low), 0), 1);
			f = f / r->factor * ramp + f * (1 - ramp);
			break;
		case ROPE_LONGROPE:
			f /= (context <= r->original_context ? r->short_factor : r->long_factor)[i];
			break;
		case ROPE_PROPORTIONAL:
			f = i < r->n_turned ? f / (r->factor > 0 ? r->factor : 1) : 0;
			break;
		}
		out[i] = (float)f;
	}
}

/* The factor on cos and sin. Yarn: given, or from mscale, or 0.1 ln(factor) + 1; longrope: given, or
 * sqrt(1 + ln(factor) / ln(original_context)). */
static double rope_factor(const Rope *r)
{
	if (r->kind != ROPE_YARN && r->kind != ROPE_LONGROPE)
		return 1;
	if (r->attention_factor != 0)
		return r->attention_factor;
	double ln = r->factor > 1 ? log(r->factor) : 0;
	if (r->kind == ROPE_LONGROPE)
		return ln > 0 ? sqrt(1 + ln / log(r->original_context)) : 1;
	if (r->mscale != 0 && r->mscale_all_dim != 0)
		return (0.1 * r->mscale * ln + 1) / (0.1 * r->mscale_all_dim * ln + 1);
	return 0.1 * ln + 1;
}

const char *d_name(Compile *c, const Decoder *d, int l, const char *name)
{
	return arena_printf(&c->arena, "%s.%s.%d.%s", d->prefix, d->names[NAME_LAYERS], l - d->first, name);
}

const char *d_part(Compile *c, const Decoder *d, int l, TensorRole role) { return d_name(c, d, l, d->names[role]); }

void d_products(Compile *c, const Decoder *d, int l, int n, const TensorRole *roles, const int64_t *rows, int cols,
	Product *out)
{
	const char *names[4];
	for (int i = 0; i < n; i++)
		names[i] = d_part(c, d, l, roles[i]);
	g_products(c, n, names, rows, cols, out);
}

void d_parts(Compile *c, const Decoder *d, int l, int n, TensorRole module, const char *const *names,
	const int64_t *rows, int cols, Product *out)
{
	const char *all = d_part(c, d, l, module);
	Piece pieces[4];
	int64_t of = 0, at = 0;
	for (int i = 0; i < n; i++)
		of += rows[i];
	for (int i = 0; i < n; at += rows[i++]) {
		pieces[i] = (Piece){all, of, at, rows[i], NULL};
		out[i] = (Product){.name = arena_printf(&c->arena, "%s.%s", all, names[i]), .n_pieces = 1,
			.pieces = &pieces[i], .cols = cols};
	}
	g_products_of(c, n, out);
}

int d_vector(Compile *c, const Decoder *d, int l, TensorRole role, int n)
{
	return g_weight(c, arena_printf(&c->scratch, "%s.weight", d_part(c, d, l, role)), 1, n, 0);
}

int d_bias(Compile *c, const Decoder *d, int l, bool is_there, TensorRole role, int n)
{
	return is_there ? g_weight(c, arena_printf(&c->scratch, "%s.bias", d_part(c, d, l, role)), 1, n, 0) : -1;
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

int d_rmsnorm(Compile *c, const Decoder *d, int l, int x, int w, const char *name)
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

int d_pre_norm(Compile *c, const Decoder *d, int l, TensorRole role)
{
	return d->spec.pre_norm ? d_vector(c, d, l, role, c->model.config.hidden_dim) : -1;
}

int d_before(Compile *c, const Decoder *d, int l, int x, int w, const char *name)
{
	return w < 0 ? x : d_rmsnorm(c, d, l, x, w, name);
}

int d_after(Compile *c, const Decoder *d, int l, int x, int y, TensorRole norm, const char *name)
{
	if (d->spec.post_norm)
		y = d_rmsnorm(c, d, l, y, d_vector(c, d, l, norm, c->model.config.hidden_dim),
			arena_printf(&c->scratch, "%s.norm", name));
	return d_add(c, l, x, y, name);
}

void d_gate(Compile *c, const Decoder *d, int l, int gate, int up, int y)
{
	const Attrs limit = {.gate_limit = (float)d->spec.shared_limit};
	const OpKind kind = d->spec.act == ACT_GELU_TANH ? OP_geglu : limit.gate_limit > 0 ? OP_swiglu_limited : OP_swiglu;
	g_op(c, kind, l, BOTH, &limit, (int[]){gate, up, y});
}

/* down(max(up, 0)^2): no gate. */
static int ungated(Compile *c, const Decoder *d, int l, int x, int norm, int ffn)
{
	const int hidden = c->model.config.hidden_dim;
	Product w, w_down;
	d_products(c, d, l, 1, (const TensorRole[]){NAME_UP}, (int64_t[]){ffn}, hidden, &w);
	int b_up = d_bias(c, d, l, d->spec.mlp_bias, NAME_UP, ffn);
	d_products(c, d, l, 1, (const TensorRole[]){NAME_DOWN}, (int64_t[]){hidden}, ffn, &w_down);
	int b_down = d_bias(c, d, l, d->spec.mlp_bias, NAME_DOWN, hidden);
	int up = d_linear(c, l, d_before(c, d, l, x, norm, "mlp.norm"), &w, b_up, "up", ffn);
	int h = d_act(c, l, "h", DT_bf16, ffn);
	g_op(c, OP_relu_squared, l, BOTH, NULL, (int[]){up, h});
	return d_linear(c, l, h, &w_down, b_down, "mlp.down", hidden);
}

static int dense(Compile *c, const Decoder *d, int l, int x, int norm, int ffn)
{
	if (d->spec.act == ACT_RELU_SQUARED)
		return ungated(c, d, l, x, norm, ffn);
	const int hidden = c->model.config.hidden_dim;
	const bool has_bias = d->spec.mlp_bias;
	Product w[2], w_down;
	const int64_t rows[] = {ffn, ffn};
	if (d->names[NAME_GATE_UP])
		d_parts(c, d, l, 2, NAME_GATE_UP, (const char *[]){"gate", "up"}, rows, hidden, w);
	else
		d_products(c, d, l, 2, (const TensorRole[]){NAME_GATE, NAME_UP}, rows, hidden, w);
	int b_gate = d_bias(c, d, l, has_bias, NAME_GATE, ffn), b_up = d_bias(c, d, l, has_bias, NAME_UP, ffn);
	d_products(c, d, l, 1, (const TensorRole[]){NAME_DOWN}, (int64_t[]){hidden}, ffn, &w_down);
	int b_down = d_bias(c, d, l, has_bias, NAME_DOWN, hidden);
	int n = d_before(c, d, l, x, norm, "mlp.norm");
	int gate = d_linear(c, l, n, &w[0], b_gate, "gate", ffn);
	int up = d_linear(c, l, n, &w[1], b_up, "up", ffn);
	int h = d_act(c, l, "h", DT_bf16, ffn);
	d_gate(c, d, l, gate, up, h);
	return d_linear(c, l, h, &w_down, b_down, "mlp.down", hidden);
}

/* Experts and an MLP next to them, each with a norm before it and one after it. */
static int both(Compile *c, const Decoder *d, int l, int x, int norm)
{
	const int hidden = c->model.config.hidden_dim;
	int y = dense(c, d, l, x, norm, d->spec.dense_dim);
	y = d_rmsnorm(c, d, l, y, d_vector(c, d, l, NAME_DENSE_POST_NORM, hidden), "mlp.out");
	int n = d_rmsnorm(c, d, l, x, d_vector(c, d, l, NAME_EXPERTS_NORM, hidden), "experts.norm");
	n = d_experts(c, d, l, n, x);
	n = d_rmsnorm(c, d, l, n, d_vector(c, d, l, NAME_EXPERTS_POST_NORM, hidden), "experts.out");
	return d_add(c, l, y, n, "mlp.both");
}

int d_mlp(Compile *c, const Decoder *d, int l, int x)
{
	const LayerSpec *s = &d->spec;
	const bool is_last = !s->ple_dim && !d->names[NAME_LAYER_SCALE]; /* what it gives is the layer's output */
	int norm = d_pre_norm(c, d, l, NAME_MLP_NORM), y;
	if (s->dense_dim)
		y = both(c, d, l, x, norm);
	else if (s->n_experts)
		y = d_experts(c, d, l, d_before(c, d, l, x, norm, "mlp.norm"), x);
	else
		y = dense(c, d, l, x, norm, s->ffn_dim);
	x = d_layer_embedding(c, d, l, d_after(c, d, l, x, y, NAME_MLP_POST_NORM, is_last ? "out" : "mlp.sum"));
	if (!d->names[NAME_LAYER_SCALE])
		return x;
	int z = d_act(c, l, "out", DT_bf16, c->model.config.hidden_dim);
	g_op(c, OP_scale_by, l, BOTH, NULL, (int[]){x, g_weight(c, d_part(c, d, l, NAME_LAYER_SCALE), 1, 1, 0), z});
	return z;
}

/* The same for layer l. */
static Decoder d_layer(Compile *c, const Decoder *model, int l)
{
	const Config *cf = &c->model.config;
	Decoder d = *model;
	const LayerSpec s = d.spec = layer_spec(cf, l);
	const Rope *rope = s.rope < 0 ? NULL : &cf->ropes[s.rope];
	d.attrs = (Attrs){.head_dim = s.head_dim, .n_heads = s.n_heads, .n_kv_heads = s.n_kv_heads, .page = c->graph.page,
		.rotary_dim = rope ? rope->rotary_dim : 0, .rope_factor = rope ? (float)rope_factor(rope) : 1,
		.neighbours = s.neighbours, .rotate = s.rotate, .eps = (float)cf->norm_eps, .norm_one = s.norm_one,
		.scale = (float)(1 / sqrt(s.query_scale > 0 ? s.query_scale : s.head_dim)),
		.window = s.window < c->graph.max_context ? s.window : 0, /* as long as the context it hides nothing */
		.chunked = s.window < c->graph.max_context && s.chunked,
		.n_valid = c->model.n_tokens, .ahead = 1, .n_active = s.n_active, .norm_topk = s.norm_topk,
		.n_groups = s.n_groups, .top_groups = s.top_groups, .share_eps = (float)s.share_eps,
		.share_scale = (float)s.share_scale, .gate_slope = (float)s.gate_slope,
		.n_k_heads = s.n_k_heads, .n_v_heads = s.n_v_heads, .k_dim = s.k_dim, .v_dim = s.v_dim, .n_taps = s.n_taps};
	return d;
}

/* The first prefix whose embedding is there, else the last. */
static const char *prefix_of(Compile *c)
{
	const Family *f = c->model.config.family;
	int i = 0;
	while (f->prefixes[i + 1] && !g_find_tensor(c, arena_printf(&c->scratch, "%s.%s.weight", f->prefixes[i],
			f->names[NAME_EMBEDDING])))
		i++;
	return f->prefixes[i];
}

/* How many rows are verified in a step is known before all tensors; what drafts comes after sampling. */
void build_decoder(Compile *c)
{
	const Config *cf = &c->model.config;
	StepTensors s;
	DecoderEnds ends;
	d_speculate(c);
	Decoder model = {.prefix = prefix_of(c), .names = cf->family->names};
	for (int i = 0; i < cf->n_ropes; i++) {
		const int n = cf->ropes[i].rotary_dim;
		float *inv_freq = ARENA_ARRAY(&c->arena, float, n / 2);
		rope_frequencies(&cf->ropes[i], n, c->model.options.max_context, inv_freq);
		model.inv_freq[i] = g_constant(c, i ? arena_printf(&c->scratch, "atlas.inv_freq.%d", i) : "atlas.inv_freq",
			DT_f32, n / 2, inv_freq);
	}
	model.caches = ARENA_ARRAY(&c->arena, Cache, cf->n_layers + 1);
	g_begin(c, model.prefix, &s, &ends);
	model.ple = d_layer_embeddings(c, &s, &model, ends.x);
	for (int l = 0; l < cf->n_layers; l++) {
		const Decoder d = d_layer(c, &model, l);
		ends.x = d.spec.mixer == MIXER_DELTA ? d_delta(c, &s, &d, l, ends.x) : d_attention(c, &s, &d, l, ends.x);
		ends.x = d_mlp(c, &d, l, ends.x);
	}
	model = d_layer(c, &model, cf->n_layers);
	g_head(c, model.prefix, &model.attrs, &s, &ends);
	d_draft(c, &s, &ends, &model);
	g_acquire(c, &s);
}
