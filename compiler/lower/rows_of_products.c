/* rows_of_products.c - from how many rows of a step on do products take which rows: by the target, the weights and
 * MODEL.toml.
 *
 * Few rows are multiplied as they come, a norm inside the product. Many are multiplied in tiles that come straight
 * from memory, which leaves no place for a norm on the way, so it writes its rows first. What that costs, a launch
 * and the rows twice, more rows do not change, and what it saves grows with them. Decode steps of 8B in bf16 on an
 * H200, contexts of 128 tokens, norms inside and apart: 24 rows 4.85 and 5.02 ms, 32 rows 5.20 and 4.94, 64 rows 7.7
 * and 5.0, 128 rows 12.8 and 6.5, 256 rows 18.4 and 10.6. Weights of e4m3 gain from fewer rows on, since codes are
 * decoded once for all rows of a tile and not for each few: products of 27B at 32 rows, inside and apart, 57 and 27
 * us, 123 and 64; at 16 rows 33 and 26, 66 and 63, which the launch before takes back. Codes of four bits take less
 * to read than to decode: 8B in NVFP4 at 32 rows 4.70 and 7.73 ms.
 *
 * Codes of e4m3 are multiplied by rows of e4m3 in prompts. In decode and verify that is a choice of MODEL.toml, since a
 * row's bits depend on it, and its text with them.
 */
#include "artifacts/numbers.h"
#include "artifacts/order.h"
#include "compiler/lower/fuse.h"

/* As many rows come as they are, if tiles take more: of prompts, of answers, and of these by codes of e4m3 and u4. */
enum { FEW_OF_PROMPT = 64, FEW_OF_ANSWERS = 24, FEW_BY_E4M3 = 16, FEW_BY_U4 = 32 };

/* The least rows of a step with which products of this phase, by weights of that dtype, take such rows; 0 = they never
 * do. */
static int first_rows(const Fuser *f, Rows rows, Dtype weights)
{
	if (f->low->kind == PREFILL)
		return FEW_OF_PROMPT + 1;
	if (rows == ROWS_PLAIN)
		return (weights == DT_e4m3 ? FEW_BY_E4M3 : weights == DT_u4 ? FEW_BY_U4 : FEW_OF_ANSWERS) + 1;
	return rows == ROWS_E4M3 ? f->c->model.options.fp8_rows : 0;
}

static bool has_enough(const Fuser *f, Rows rows, Dtype weights, bool is_of_outs)
{
	const Options *o = &f->c->model.options;
	const bool is_alike = o->is_invariant && order_set(f->low->kind) != ORDER_FREE;
	const int least = f->low->kind == PREFILL ? o->prefill[0] : o->decode[0];
	int n = is_of_outs ? f->low->outs : f->low->rows;
	if (is_alike && least < n)
		n = least;
	const int first = first_rows(f, rows, weights);
	return first && n >= first;
}

bool has_rows_for_codes(const Fuser *f) { return has_enough(f, ROWS_E4M3, DT_e4m3, false); }

/* The scales that the linear's w has must be operands of the template as well. */
static bool takes_scales(const Fuser *f, const KernelTemplate *t, const char *weights, const GraphOp *linear)
{
	static const char *const ends[] = {"scale", "row_scale"};
	for (int i = 0; i < 2; i++) {
		char ours[32], theirs[32];
		snprintf(ours, sizeof ours, "w_%s", ends[i]);
		snprintf(theirs, sizeof theirs, "%s_%s", weights, ends[i]);
		if (weight_tensor(f, linear, ours) && !takes_field(t, theirs))
			return false;
	}
	return true;
}

/* Does a template of this target multiply such rows as `product`, whose operand `weights` is the w of `linear`? Plain
 * ones in tiles that come straight from memory: others are no reason to write them first. */
static bool is_served(const Fuser *f, Rows rows, OpKind product, const char *weights, const GraphOp *linear)
{
	const Dtype dtype = weight_tensor(f, linear, "w")->dtype;
	const bool is_many = has_enough(f, rows, dtype, product == OP_linear_logits);
	const KernelTemplate *t = NULL;
	while (is_many && (t = next_template(f, product, t)))
		if (takes_field(t, "x_scale") == (rows == ROWS_E4M3) && takes_field(t, "x_block") == (rows == ROWS_E2M1) &&
			(rows != ROWS_PLAIN || t->n_maps) && takes_scales(f, t, weights, linear) && takes_dtype(t, weights, dtype))
			return true;
	return false;
}

/* Blocks of scales of e4m3, if it has any, are those that tiles and products of codes by codes take. */
static bool has_tile_blocks(const Fuser *f, const GraphOp *linear)
{
	return weight_tensor(f, linear, "w")->dtype != DT_e4m3 || !weight_tensor(f, linear, "w_scale") ||
		(linear->attrs.block_n == FP8_BLOCK && linear->attrs.block_k == FP8_BLOCK);
}

bool multiplies_tiles(const Fuser *f, OpKind product, const char *weights, const GraphOp *linear, int64_t columns)
{
	const Tensor *w = weight_tensor(f, linear, "w");
	return columns % 8 == 0 && dtype_span(w->dtype, w->shape[1]) % 16 == 0 && has_tile_blocks(f, linear) &&
		is_served(f, ROWS_PLAIN, product, weights, linear);
}

bool multiplies_outs(const Fuser *f, const GraphOp *linear)
{
	return multiplies_tiles(f, OP_linear_logits, "w", linear, weight_tensor(f, linear, "w")->shape[0]);
}

bool multiplies_codes(const Fuser *f, OpKind product, const char *weights, const GraphOp *linear)
{
	const Tensor *w = weight_tensor(f, linear, "w");
	return w->dtype == DT_e4m3 && w->shape[0] % 16 == 0 && w->shape[1] % 16 == 0 && has_tile_blocks(f, linear) &&
		is_served(f, ROWS_E4M3, product, weights, linear);
}

bool multiplies_e2m1(const Fuser *f, OpKind product, const char *weights, const GraphOp *linear)
{
	const Tensor *w = weight_tensor(f, linear, "w"), *scale = weight_tensor(f, linear, "w_scale");
	return f->c->model.options.native_fp4 && w->dtype == DT_e2m1 && scale && scale->dtype == DT_e4m3 &&
		linear->attrs.block_k == NVFP4_GROUP && w->shape[1] % (4 * NVFP4_GROUP) == 0 &&
		is_served(f, ROWS_E2M1, product, weights, linear);
}

const char *note_of_rows(const Fuser *f, Rows rows, Dtype weights)
{
	static const char *const what[] = {[ROWS_PLAIN] = "tiles that come straight from memory are multiplied faster",
		[ROWS_E4M3] = "codes are multiplied by codes", [ROWS_E2M1] = "codes of e2m1 are multiplied by codes"};
	const char *by = rows == ROWS_E2M1 ? "kernels.fp4 = \"native\": "
		: rows == ROWS_E4M3 && f->low->kind != PREFILL ? "numerics.fp8_rows: " : "";
	return arena_printf(&f->c->arena, "%sfrom %d rows on, %s on %s", by, first_rows(f, rows, weights), what[rows],
		f->target->name);
}
