/* made_weights.c - which weights of --random-weights are of what (Weight.made).
 *
 * Their bytes are a function of that and the seed (artifacts/random_weights.h): emit makes them for the plan, or, with
 * --weights ref, the plan only says how, and they are made when a session is opened.
 */
#include "compiler/graph/made_weights.h"

static bool is_constant(const Compile *c, int w)
{
	for (int i = 0; i < c->constants.n; i++)
		if (c->constants.at[i].weight == w)
			return true;
	return false;
}

static const MadeProduct *product_of(const Compile *c, int w)
{
	for (int i = 0; i < c->made.n; i++) {
		const MadeProduct *p = &c->made.at[i];
		if (p->codes == w || p->scale == w || p->row_scale == w)
			return p;
	}
	return NULL;
}

static MadeAs made_as(const MadeProduct *p, int w)
{
	if (!p)
		return MADE_NUMBERS;
	if (w == p->codes)
		return MADE_CODES;
	if (p->format == FORMAT_INT4)
		return MADE_U4_SCALES;
	if (p->format < FORMAT_NVFP4)
		return p->format == FORMAT_FP8_TENSOR ? MADE_E4M3_SCALE : MADE_E4M3_SCALES;
	return w == p->scale ? MADE_E2M1_SCALES : MADE_E2M1_SCALE;
}

Weight random_weight_of(const Compile *c, int w)
{
	const MadeProduct *p = product_of(c, w);
	Weight out = c->graph.weights[w];
	out.made = made_as(p, w);
	const bool has_cols = out.made >= MADE_E4M3_SCALES && !(out.made == MADE_E2M1_SCALES && out.dtype == DT_e4m3);
	out.made_cols = has_cols ? p->cols : 0;
	return out;
}

void mark_made_weights(Compile *c)
{
	if (!c->cmd.random_weights || c->cmd.embed_weights)
		return;
	for (int w = 0; w < c->graph.n_weights; w++)
		if (!c->graph.weights[w].file && !is_constant(c, w))
			c->graph.weights[w] = random_weight_of(c, w);
}
