/* layer_embeddings.c - per-layer embeddings (PLE): besides what it reads of the stream, a layer adds something of the
 * row's token that is its own.
 *
 *   e = (norm(projection(x0) / sqrt(hidden)) + sqrt(P) table[token]) / sqrt(2)    P elements for each layer; x0: the
 *                                                                                 embedded token; norm by layer
 *   x += norm(out(gelu(gate(x)) * e of the layer))
 */
#include "artifacts/numbers.h"
#include "models/decoder/decoder.h"

#include <math.h>

static const char *of_model(Compile *c, const Decoder *d, TensorRole role)
{
	return arena_printf(&c->arena, "%s.%s", d->prefix, d->names[role]);
}

static int scaled(Compile *c, int x, double factor, const char *name, int64_t cols)
{
	const Attrs attrs = {.factor = (float)factor};
	int y = g_activation(c, name, cols);
	g_op(c, OP_scale, -1, 0, &attrs, (int[]){x, y});
	return y;
}

int d_layer_embeddings(Compile *c, const StepTensors *s, const Decoder *d, int x0)
{
	const Config *cf = &c->model.config;
	const int width = cf->ple_dim;
	const int64_t all = (int64_t)cf->n_layers * width;
	if (!width)
		return -1;
	const char *const module = of_model(c, d, NAME_PLE_PROJECTION);
	Product projection;
	int table = g_weight(c, arena_printf(&c->scratch, "%s.weight", of_model(c, d, NAME_PLE_TABLE)), 2, cf->vocab, all);
	g_products(c, 1, &module, &all, cf->hidden_dim, &projection);
	int norm = g_weight(c, arena_printf(&c->scratch, "%s.weight", of_model(c, d, NAME_PLE_PROJECTION_NORM)), 1, width,
		0);
	int token = g_activation(c, "ple.token", all), y = g_activation(c, "ple.projection", all);
	int normed = g_activation(c, "ple.norm", all), sum = g_activation(c, "ple.sum", all);
	const Dtype dtype = c->graph.tensors[table].dtype; /* in which the root is rounded, as embeddings' scale is */
	const float root = (float)sqrt(width);
	g_op(c, OP_embed, -1, 0, NULL, (int[]){s->row_token, table, token});
	token = scaled(c, token, (double)(dtype == DT_bf16 ? numbers_rounded(dtype, root) : root), "ple.token.scaled", all);
	g_linear(c, -1, 0, &projection, x0, -1, y);
	y = scaled(c, y, 1 / sqrt(cf->hidden_dim), "ple.projection.scaled", all);
	const Attrs attrs = {.head_dim = width, .eps = (float)cf->norm_eps, .norm_one = cf->each.norm_one};
	g_op(c, OP_head_norm, -1, 0, &attrs, (int[]){y, norm, normed});
	g_op(c, OP_add, -1, 0, NULL, (int[]){normed, token, sum});
	return scaled(c, sum, sqrt(0.5), "ple", all);
}

int d_layer_embedding(Compile *c, const Decoder *d, int l, int x)
{
	const int width = d->spec.ple_dim, hidden = c->model.config.hidden_dim;
	if (!width)
		return x;
	Product gate, out;
	d_products(c, d, l, 1, (const TensorRole[]){NAME_PLE_GATE}, (int64_t[]){width}, hidden, &gate);
	d_products(c, d, l, 1, (const TensorRole[]){NAME_PLE_OUT}, (int64_t[]){hidden}, width, &out);
	const Attrs attrs = {.first = (l - d->first) * width};
	int e = d_act(c, l, "ple.own", DT_bf16, width), h = d_act(c, l, "ple.h", DT_bf16, width);
	g_op(c, OP_columns, l, BOTH, &attrs, (int[]){d->ple, e});
	int g = d_linear(c, l, x, &gate, -1, "ple.gate", width);
	g_op(c, d->spec.act == ACT_GELU_TANH ? OP_geglu : OP_swiglu, l, BOTH, NULL, (int[]){g, e, h});
	int y = d_linear(c, l, h, &out, -1, "ple.out", hidden);
	y = d_rmsnorm(c, d, l, y, d_vector(c, d, l, NAME_PLE_NORM, hidden), "ple.out.norm");
	return d_add(c, l, x, y, d->names[NAME_LAYER_SCALE] ? "ple.sum" : "out");
}
