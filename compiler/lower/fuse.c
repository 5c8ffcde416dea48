/* fuse.c - turn the graph into the launches-to-be of each phase and bucket.
 *
 * A fusion is a row of a table: the ops it covers, how each is found along the flow of data (match_fusion.c), and a
 * function that checks this flow and names the operands of the fused op. The first row that fits wins; an op that no
 * row covers is lowered alone (lower_op.c). A fusion is legal only if nothing else reads what disappears inside it.
 *
 * Several linears of one input become one (q, k, v): their weights follow each other in the weight
 * arena, and their outputs are columns of one tensor. Where that cannot be done the ledger has the reason.
 *
 * A norm goes into the products that read it, unless rows that are done serve these better (rows_of_products.c): then
 * it is a launch of its own. Rows that products want as codes become codes in the op that makes them, where that is a
 * norm or a swiglu, else in a launch of its own.
 */
#include "artifacts/numbers.h"
#include "compiler/lower/fuse.h"

#include <string.h>

enum { MAX_JOINED = 4 };

/* Several linears as one --------------------------------------------------------------------- */

/* Scales are joined like weights; rows that share a block scale must be rows of one weight. */
static bool joins_scales(Fuser *f, const GraphOp *a, const GraphOp *b)
{
	const Tensor *w = weight_tensor(f, a, "w");
	int step, rows = a->attrs.block_n;
	if (!joins(f, a, b, "w_scale", &step) || !joins(f, a, b, "w_row_scale", &step))
		return false;
	if (!weight_tensor(f, a, "w_scale"))
		return true;
	if (rows != b->attrs.block_n || a->attrs.block_k != b->attrs.block_k)
		return fail_note(f, arena_printf(&f->c->arena, "%s has scales of %d x %d elements, its neighbour of %d x %d",
			w->name, rows, a->attrs.block_k, b->attrs.block_n, b->attrs.block_k));
	return w->shape[0] % rows == 0 || fail_note(f, arena_printf(&f->c->arena, "%s has %lld rows, which do not end "
		"where a block of %d does: its neighbour's would have part of its last scale", w->name,
		(long long)w->shape[0], rows));
}

/* One LTensor for the weights (or scales, or biases) of n linears. */
static int joined_weight(Fuser *f, int first, int n, const char *name)
{
	const Tensor *w = weight_tensor(f, member(f, first), name);
	if (!w || n == 1)
		return w ? lower_tensor(f, operand(member(f, first), name)) : -1;
	LTensor l = {.name = w->name, .dtype = w->dtype, .role = ROLE_WEIGHT, .n_dims = w->n_dims,
		.tensor = -1, .weight = w->weight};
	l.shape[1] = w->n_dims > 1 ? w->shape[1] : 0;
	for (int i = 0; i < n; i++) {
		const Tensor *part = weight_tensor(f, member(f, first + i), name);
		l.shape[0] += part->shape[0];
		l.n_weights += part->n_weights;
	}
	l.name = arena_printf(&f->c->arena, "%s (+%d)", w->name, n - 1);
	*vec_push(&f->c->arena, &f->low->tensors) = l;
	return f->low->tensors.n - 1;
}

static int joined_output(Fuser *f, int first, int n)
{
	if (n == 1)
		return lower_tensor(f, operand(member(f, first), "y"));
	char *name = NULL;
	int64_t cols = 0;
	for (int i = 0; i < n; i++) {
		int t = operand(member(f, first + i), "y");
		const char *part = f->c->graph.tensors[t].name;
		name = name ? arena_printf(&f->c->arena, "%s+%s", name, strchr(part, '.') ? strchr(part, '.') + 1 : part)
			: arena_strdup(&f->c->arena, part);
		f->views[t] = (View){f->low->tensors.n, cols};
		cols += f->c->graph.tensors[t].shape[1];
	}
	*vec_push(&f->c->arena, &f->low->tensors) = (LTensor){.name = name, .dtype = DT_bf16,
		.role = ROLE_ACTIVATION, .n_dims = 2, .shape = {f->low->rows, cols}, .tensor = -1, .weight = -1};
	return f->low->tensors.n - 1;
}

/* The fusions ------------------------------------------------------------------------------------
 *
 * Each gets the position of its first op; the kinds are already right. */

static bool embed_next(Fuser *f, int i)
{
	if (operand(member(f, i), "row_token") != operand(member(f, i + 1), "row_token"))
		return false;
	LOp *op = new_op(f, OP_embed_next, member(f, i));
	bind_same(f, op, member(f, i));
	bind_same(f, op, member(f, i + 1));
	return true;
}

static bool embed_prompt(Fuser *f, int i)
{
	if (operand(member(f, i), "row_token") != operand(member(f, i + 1), "row_token"))
		return false;
	LOp *op = new_op(f, OP_embed_prompt, member(f, i));
	bind_same(f, op, member(f, i));
	bind_same(f, op, member(f, i + 1));
	return true;
}

/* How many linears from position i on read tensor x and can be joined. */
static int count_linears(Fuser *f, int i, int x)
{
	int n = 0, step;
	while (n < MAX_JOINED && i + n < f->n_at && member(f, i + n)->kind == OP_linear &&
		operand(member(f, i + n), "x") == x) {
		if (n && !(joins(f, member(f, i + n - 1), member(f, i + n), "w", &step) &&
			joins_scales(f, member(f, i + n - 1), member(f, i + n)) &&
			joins(f, member(f, i + n - 1), member(f, i + n), "bias", &step)))
			break;
		n++;
	}
	return n;
}

static int own_tensor(Fuser *f, const char *name, Dtype dtype, int64_t d0, int64_t d1)
{
	*vec_push(&f->c->arena, &f->low->tensors) = (LTensor){.name = name, .dtype = dtype, .role = ROLE_ACTIVATION,
		.n_dims = 2, .shape = {d0, d1}, .tensor = -1, .weight = -1};
	return f->low->tensors.n - 1;
}

/* The op writes codes where the graph has rows t. */
static void write_codes(Fuser *f, LOp *op, int t)
{
	const Tensor *x = &f->c->graph.tensors[t];
	int64_t rows = f->low->rows, columns = x->shape[1];
	f->codes[t].tensor = own_tensor(f, arena_printf(&f->c->arena, "%s.e4m3", x->name), DT_e4m3, rows, columns);
	f->codes[t].scale = own_tensor(f, arena_printf(&f->c->arena, "%s.scale", x->name), DT_f32,
		(columns + FP8_BLOCK - 1) / FP8_BLOCK, rows);
	op->operands[op_operand(op->kind, "y")] = f->codes[t].tensor;
	op->operands[op_operand(op->kind, "y_scale")] = f->codes[t].scale;
	if (op->kind != OP_linear_swiglu_fp8)
		op->note = note_of_rows(f, ROWS_E4M3, DT_e4m3);
}

/* The same of codes of e2m1. */
static void write_e2m1(Fuser *f, LOp *op, int t)
{
	const Tensor *x = &f->c->graph.tensors[t];
	int64_t rows = f->low->rows, columns = x->shape[1];
	f->codes[t].tensor = own_tensor(f, arena_printf(&f->c->arena, "%s.e2m1", x->name), DT_e2m1, rows, columns);
	f->codes[t].block = own_tensor(f, arena_printf(&f->c->arena, "%s.block", x->name), DT_e4m3, rows,
		(columns + NVFP4_GROUP - 1) / NVFP4_GROUP);
	f->codes[t].scale = own_tensor(f, arena_printf(&f->c->arena, "%s.row_scale", x->name), DT_f32, rows, 0);
	f->low->tensors.at[f->codes[t].scale].n_dims = 1;
	op->operands[op_operand(op->kind, "y")] = f->codes[t].tensor;
	op->operands[op_operand(op->kind, "y_block")] = f->codes[t].block;
	op->operands[op_operand(op->kind, "y_row_scale")] = f->codes[t].scale;
	op->note = note_of_rows(f, ROWS_E2M1, DT_e2m1);
}

/* The op reads graph tensor t as x: as codes, where it is that. */
static void read_rows(Fuser *f, LOp *op, int t)
{
	if (f->codes[t].tensor < 0) {
		bind_tensor(f, op, "x", t);
		return;
	}
	op->operands[op_operand(op->kind, "x")] = f->codes[t].tensor;
	if (f->low->tensors.at[f->codes[t].tensor].dtype == DT_e2m1) {
		op->operands[op_operand(op->kind, "x_block")] = f->codes[t].block;
		op->operands[op_operand(op->kind, "x_row_scale")] = f->codes[t].scale;
	} else {
		op->operands[op_operand(op->kind, "x_scale")] = f->codes[t].scale;
	}
}

typedef enum NormPlace { INSIDE, APART, APART_AS_CODES, APART_AS_E2M1 } NormPlace;

/* Are there normed rows already, in the form that this op after the norm needs? */
static bool is_written(const Fuser *f, int rows, NormPlace place)
{
	const Codes *codes = &f->codes[rows];
	if (place == APART)
		return f->views[rows].tensor >= 0;
	return codes->tensor >= 0 &&
		(f->low->tensors.at[codes->tensor].dtype == DT_e2m1) == (place == APART_AS_E2M1);
}

/* The launch that writes the normed rows, for a product with that linear's weights. */
static void write_normed(Fuser *f, LOp *first, const GraphOp *norm, const GraphOp *linear, NormPlace place)
{
	if (place == APART_AS_CODES) {
		write_codes(f, first, operand(norm, "y"));
	} else if (place == APART_AS_E2M1) {
		write_e2m1(f, first, operand(norm, "y"));
	} else {
		bind_tensor(f, first, "y", operand(norm, "y"));
		first->note = note_of_rows(f, ROWS_PLAIN, weight_tensor(f, linear, "w")->dtype);
	}
}

/* The op `kind` on the normed rows, with that linear's weights: with the norm inside, or after a launch that writes
 * them. */
static LOp *op_behind_norm(Fuser *f, OpKind kind, const GraphOp *norm, const GraphOp *linear, NormPlace place)
{
	const OpKind firsts[] = {[INSIDE] = kind, [APART] = OP_norm_rows, [APART_AS_CODES] = OP_norm_rows_fp8,
		[APART_AS_E2M1] = OP_norm_rows_fp4};
	const int rows = operand(norm, "y");
	if (place == INSIDE || !is_written(f, rows, place)) {
		LOp *first = new_op(f, firsts[place], norm);
		merge_attrs(first, norm);
		bind_tensor(f, first, "step", input_named(f, "step"));
		bind_tensor(f, first, "x", operand(norm, "x"));
		bind_tensor(f, first, "norm", operand(norm, "w"));
		if (place == INSIDE)
			return first;
		write_normed(f, first, norm, linear, place);
	}
	LOp *op = new_op(f, kind, norm);
	bind_tensor(f, op, "step", input_named(f, "step"));
	if (place == APART)
		bind_tensor(f, op, "x", rows);
	else
		read_rows(f, op, rows);
	return op;
}

/* Where the norm of n joined linears from position i on is best. */
static NormPlace place_of_norm(const Fuser *f, int i, int n)
{
	int n_codes = 0, n_e2m1 = 0;
	while (n_e2m1 < n && multiplies_e2m1(f, OP_linear_rows, "w", member(f, i + n_e2m1)))
		n_e2m1++;
	while (n_codes < n && multiplies_codes(f, OP_linear_rows, "w", member(f, i + n_codes)))
		n_codes++;
	if (n_codes == n || n_e2m1 == n)
		return n_codes == n ? APART_AS_CODES : APART_AS_E2M1;
	int64_t columns = 0;
	for (int k = 0; k < n; k++)
		columns += weight_tensor(f, member(f, i + k), "w")->shape[0];
	return multiplies_tiles(f, OP_linear_rows, "w", member(f, i), columns) ? APART : INSIDE;
}

static void join_linears(Fuser *f, LOp *op, int i, int n)
{
	static const char *const parts[] = {"w", "w_scale", "w_row_scale", "bias"};
	for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++)
		op->operands[op_operand(op->kind, parts[k])] = joined_weight(f, i, n, parts[k]);
	op->operands[op_operand(op->kind, "y")] = joined_output(f, i, n);
	merge_attrs(op, member(f, i));
}

enum { FEW_ROWS = 16, FEW_COLUMNS = 128 };

/* May the n_more linears after n others, from position i on, be narrow columns of the same launch? They are few, in
 * bf16 and without a bias, rows are few too, and none are multiplied in tiles or by codes. In an invariant plan each
 * product stays what it is for many rows, since the sums of all buckets have one order. */
static bool are_narrow(Fuser *f, int i, int n, int n_more)
{
	int64_t columns = 0;
	for (int k = i + n; k < i + n + n_more; k++) {
		const Tensor *w = weight_tensor(f, member(f, k), "w");
		if (w->dtype != DT_bf16 || weight_tensor(f, member(f, k), "bias"))
			return false;
		columns += w->shape[0];
	}
	const Tensor *w = weight_tensor(f, member(f, i), "w");
	const int block = member(f, i)->attrs.block_n;
	const KernelTemplate *t = next_template(f, OP_norm_linear_narrow, NULL);
	return n_more && columns <= FEW_COLUMNS && f->low->rows <= FEW_ROWS && w->shape[1] % 128 == 0 && t &&
		(w->dtype == DT_bf16 ||
			(w->dtype == DT_e4m3 && block == member(f, i)->attrs.block_k && block % FP8_BLOCK == 0)) &&
		!f->c->model.options.is_invariant && place_of_norm(f, i, n) == INSIDE &&
		place_of_norm(f, i + n, n_more) == INSIDE;
}

/* The products in bf16 that read tensor x, from op `from` on, into f->at; are they all that read it? */
static bool find_readers(Fuser *f, int from, int x)
{
	f->n_at = 0;
	for (int i = from; i < f->n_ops && f->n_at < MAX_MEMBERS && f->n_at < f->uses[x]; i++)
		if (op_at(f, i)->kind == OP_linear && !f->is_lowered[i] && operand(op_at(f, i), "x") == x &&
			f->c->graph.tensors[operand(op_at(f, i), "y")].dtype == DT_bf16)
			f->at[f->n_at++] = i;
	return f->n_at > 0 && f->uses[x] == f->n_at;
}

/* Groups of those products, all of which read x: as many as can be joined, by number, less those that a launch reads
 * which does not take columns of a tensor. f->split says why there are several. */
static void group_readers(Fuser *f, int x, int *group);

static int size_of_group(const Fuser *f, const int *group, int at)
{
	int n = 0;
	while (at + n < f->n_at && group[at + n] == group[at])
		n++;
	return n;
}

/* The norm at position i and all that reads it: linears, joined as far as they can be, if what follows reads columns.
 * Each group takes the normed rows as it likes them, from a launch that writes them so, or norms them itself. */
static bool norm_linear(Fuser *f, int i)
{
	const GraphOp *norm = op_at(f, i);
	const int y = operand(norm, "y");
	int group[MAX_MEMBERS];
	if (!find_readers(f, i, y))
		return false;
	group_readers(f, y, group);
	for (int at = 0, n = 0; at < f->n_at; at += n) {
		n = size_of_group(f, group, at);
		const int n_narrow = at + n < f->n_at ? size_of_group(f, group, at + n) : 0;
		const NormPlace place = place_of_norm(f, at, n);
		if (are_narrow(f, at, n, n_narrow)) {
			LOp *op = op_behind_norm(f, OP_norm_linear_narrow, norm, member(f, at), INSIDE);
			join_linears(f, op, at, n);
			op->operands[op_operand(op->kind, "w_narrow")] = joined_weight(f, at + n, n_narrow, "w");
			op->operands[op_operand(op->kind, "y_narrow")] = joined_output(f, at + n, n_narrow);
			n += n_narrow;
			continue;
		}
		LOp *op = op_behind_norm(f, place == INSIDE ? OP_norm_linear : OP_linear_rows, norm, member(f, at), place);
		join_linears(f, op, at, n);
		if (n == 1 && f->n_at > 1)
			op->alone = f->split ? f->split : "what follows takes each of the products apart";
	}
	f->is_lowered[i] = true;
	for (int k = 0; k < f->n_at; k++)
		f->is_lowered[f->at[k]] = true;
	return true;
}

/* Are members i and i + 1 a linear and its sum with what it is added to? */
static bool is_residual(const Fuser *f, int i)
{
	return member(f, i) && member(f, i + 1) && flows(f, member(f, i), "y", member(f, i + 1), "y");
}

/* Are gate and up at position i multiplied by codes, and what they make by codes as well? */
static bool swiglu_of_codes(const Fuser *f, int i)
{
	return multiplies_codes(f, OP_linear_swiglu_fp8, "gate", member(f, i)) &&
		multiplies_codes(f, OP_linear_swiglu_fp8, "up", member(f, i + 1)) && is_residual(f, i + 3) &&
		flows(f, member(f, i + 2), "y", member(f, i + 3), "x") &&
		multiplies_codes(f, OP_linear_residual, "w", member(f, i + 3));
}

static bool norm_swiglu(Fuser *f, int i)
{
	const GraphOp *norm = member(f, i), *gate = member(f, i + 1), *up = member(f, i + 2), *act = member(f, i + 3);
	int n = operand(norm, "y");
	if (operand(gate, "x") != n || operand(up, "x") != n || f->uses[n] != 2 ||
		!flows(f, gate, "y", act, "gate") || !flows(f, up, "y", act, "up"))
		return false;
	Attrs block;
	if (!block_of_two(f, gate, up, &block))
		return false;
	static const OpKind kinds[] = {[INSIDE] = OP_norm_swiglu, [APART] = OP_linear_swiglu,
		[APART_AS_CODES] = OP_linear_swiglu_fp8, [APART_AS_E2M1] = OP_linear_swiglu};
	const bool is_e2m1 = multiplies_e2m1(f, OP_linear_swiglu, "gate", gate) &&
		multiplies_e2m1(f, OP_linear_swiglu, "up", up);
	const int64_t columns = weight_tensor(f, gate, "w")->shape[0];
	const bool is_apart = multiplies_tiles(f, OP_linear_swiglu, "gate", gate, columns) &&
		multiplies_tiles(f, OP_linear_swiglu, "up", up, columns);
	NormPlace place = swiglu_of_codes(f, i + 1) ? APART_AS_CODES : is_e2m1 ? APART_AS_E2M1 : is_apart ? APART : INSIDE;
	LOp *op = op_behind_norm(f, kinds[place], norm, gate, place);
	bind_weight(f, op, "gate", gate);
	bind_weight(f, op, "up", up);
	op->attrs.block_n = block.block_n;
	op->attrs.block_k = block.block_k;
	bind_tensor(f, op, "gate_bias", operand(gate, "bias"));
	bind_tensor(f, op, "up_bias", operand(up, "bias"));
	if (place == APART_AS_CODES)
		write_codes(f, op, operand(act, "y"));
	else
		bind_tensor(f, op, "y", operand(act, "y"));
	return true;
}

/* An op that multiplies rows as they are, or their codes, which a launch before it makes of them: what another reader
 * of the rows multiplies may be of another form. */
static LOp *op_on_rows(Fuser *f, OpKind kind, const GraphOp *lin)
{
	const int x = operand(lin, "x");
	const bool is_e4m3 = multiplies_codes(f, kind, "w", lin), is_e2m1 = !is_e4m3 && multiplies_e2m1(f, kind, "w", lin);
	const bool are_codes = is_e4m3 || is_e2m1;
	if (are_codes && !is_written(f, x, is_e4m3 ? APART_AS_CODES : APART_AS_E2M1)) {
		LOp *codes = new_op(f, is_e4m3 ? OP_quant_rows : OP_quant_rows_fp4, lin);
		bind_tensor(f, codes, "step", input_named(f, "step"));
		bind_tensor(f, codes, "x", x);
		(is_e4m3 ? write_codes : write_e2m1)(f, codes, x);
	}
	LOp *op = new_op(f, kind, lin);
	if (are_codes)
		read_rows(f, op, x);
	else
		bind_tensor(f, op, "x", x);
	bind_tensor(f, op, "step", input_named(f, "step"));
	return op;
}

static LOp *product_of_rows(Fuser *f, OpKind kind, const GraphOp *lin)
{
	LOp *op = op_on_rows(f, kind, lin);
	bind_weight(f, op, "w", lin);
	bind_tensor(f, op, "bias", operand(lin, "bias"));
	merge_attrs(op, lin);
	return op;
}

/* One that no other op takes along. What it makes in f32 are scores, which are not of codes. */
static bool lone_product(Fuser *f, int i)
{
	const GraphOp *lin = member(f, i);
	if (f->c->graph.tensors[operand(lin, "y")].dtype != DT_bf16)
		return false;
	bind_tensor(f, product_of_rows(f, OP_linear_rows, lin), "y", operand(lin, "y"));
	return true;
}

/* Several of the same rows, which no norm made for them alone: the first group of those that read them. */
static bool joined_products(Fuser *f, int i)
{
	const GraphOp *lin = member(f, i);
	const int x = operand(lin, "x"), at = f->at[i];
	int group[MAX_MEMBERS];
	find_readers(f, at, x);
	const bool is_first = f->n_at > 1 && f->at[0] == at;
	if (is_first)
		group_readers(f, x, group);
	const int n = is_first ? size_of_group(f, group, 0) : 0;
	if (n > 1) {
		join_linears(f, op_on_rows(f, OP_linear_rows, lin), 0, n);
		for (int k = 1; k < n; k++)
			f->is_lowered[f->at[k]] = true;
	}
	f->at[0] = at;
	f->n_at = 1;
	return n > 1;
}

static bool linear_residual(Fuser *f, int i)
{
	const GraphOp *lin = member(f, i), *sum = member(f, i + 1);
	if (!is_residual(f, i))
		return false;
	LOp *op = product_of_rows(f, OP_linear_residual, lin);
	bind_tensor(f, op, "residual", operand(sum, "x"));
	bind_tensor(f, op, "z", operand(sum, "z"));
	return true;
}

/* The head, soft_cap of its logits, if it is there, and what draws from it. */
static bool draw_from_head(Fuser *f, int i)
{
	const GraphOp *take = member(f, i), *norm = member(f, i + 1), *lin = member(f, i + 2), *draw = member(f, i + 3);
	const GraphOp *cap = member(f, i + 4);
	if (!flows(f, take, "y", norm, "x") || !flows(f, norm, "y", lin, "x") || operand(lin, "bias") >= 0 ||
		(cap && !flows(f, lin, "y", cap, "x")) || !flows(f, cap ? cap : lin, "y", draw, "logits") ||
		operand(take, "out_row") != operand(draw, "out_row"))
		return false;
	fuse_head(f, &(Head){norm, lin, cap, draw, operand(take, "x"), operand(take, "out_row")}, OP_sample_best);
	return true;
}

/* The first row that fits wins. Members are numbered as the functions know them: the one at which a fusion begins,
 * those that are found from another, those that may be absent, and those that another launch does. */
#define ANCHOR(kind) {kind, -1, NULL, NULL, false, false}
#define FOUND(kind, from, out, in) {kind, from, out, in, false, false}
#define MAYBE(kind, from, out, in) {kind, from, out, in, true, false}
#define SEEN(kind, from, out, in, is_optional) {kind, from, out, in, is_optional, true}
#define ROUTED(route, experts) FOUND(OP_rmsnorm, 3, "x", "y"), FOUND(OP_linear, 2, "logits", "y"), \
	FOUND(route, 3, "expert", "expert"), ANCHOR(experts)
static const Fusion fusions[] = {
	{"embed_next", embed_next, false, 2, {ANCHOR(OP_slot_rows), FOUND(OP_embed, 0, "row_token", "row_token")}},
	{"embed_prompt", embed_prompt, false, 2, {ANCHOR(OP_note_prompt), FOUND(OP_embed, 0, "row_token", "row_token")}},
	{"norm_swiglu", norm_swiglu, false, 6, {FOUND(OP_rmsnorm, 1, "x", "y"), FOUND(OP_linear, 3, "gate", "y"),
		FOUND(OP_linear, 3, "up", "y"), ANCHOR(OP_swiglu), SEEN(OP_linear, 3, "y", "x", true),
		SEEN(OP_add, 4, "y", "y", true)}},
	{"norm_geglu", fuse_norm_geglu, false, 4, {FOUND(OP_rmsnorm, 1, "x", "y"), FOUND(OP_linear, 3, "gate", "y"),
		FOUND(OP_linear, 3, "up", "y"), ANCHOR(OP_geglu)}},
	{"linear_swiglu", fuse_linear_swiglu, false, 3, {FOUND(OP_linear, 2, "gate", "y"), FOUND(OP_linear, 2, "up", "y"),
		ANCHOR(OP_swiglu)}},
	{"norm_residual", fuse_norm_residual, false, 3, {ANCHOR(OP_rmsnorm), FOUND(OP_add, 0, "y", "y"),
		MAYBE(OP_scale_by, 1, "z", "x")}},
	{"attention_step", fuse_attention_step, COLUMNS_OF_ANSWERS, 7, {FOUND(OP_rmsnorm, 2, "x", "y"),
		FOUND(OP_rmsnorm, 3, "x", "y"), ANCHOR(OP_rope), FOUND(OP_rope, 4, "k", "y"), FOUND(OP_kv_write, 5, "kv", "kv"),
		FOUND(OP_attention, 2, "y", "q"), MAYBE(OP_sigmoid_gate, 5, "o", "x")}},
	{"attention_step", fuse_attention_step, true, 8, {MAYBE(OP_head_norm, 2, "x", "y"),
		MAYBE(OP_head_norm, 3, "x", "y"), ANCHOR(OP_rope), FOUND(OP_rope, 4, "k", "y"),
		FOUND(OP_kv_write, 5, "kv", "kv"), FOUND(OP_attention, 2, "y", "q"), MAYBE(OP_sigmoid_gate, 5, "o", "x"),
		MAYBE(OP_head_norm, 4, "v", "y")}},
	{"rope_write", fuse_rope_write, true, 7, {MAYBE(OP_head_norm, 2, "x", "y"), MAYBE(OP_head_norm, 3, "x", "y"),
		ANCHOR(OP_rope), FOUND(OP_rope, 4, "k", "y"), FOUND(OP_kv_write, 5, "kv", "kv"),
		SEEN(OP_attention, 2, "y", "q", false), MAYBE(OP_head_norm, 4, "v", "y")}},
	{"gate_rows", fuse_gate_rows, true, 1, {ANCHOR(OP_sigmoid_gate)}},
	{"delta_layer", fuse_delta, true, 3, {ANCHOR(OP_causal_conv), FOUND(OP_delta_rule, 0, "y", "qkv"),
		FOUND(OP_gated_norm, 1, "o", "x")}},
	{"delta_layer", fuse_delta, true, 3, {ANCHOR(OP_conv_verify), FOUND(OP_delta_verify, 0, "y", "qkv"),
		FOUND(OP_gated_norm, 1, "o", "x")}},
	{"norm_logits", draw_from_head, false, 4, {ANCHOR(OP_gather), FOUND(OP_rmsnorm, 0, "y", "x"),
		FOUND(OP_linear, 1, "y", "x"), FOUND(OP_sample, 2, "y", "logits")}},
	{"norm_logits", draw_from_head, false, 5, {ANCHOR(OP_gather), FOUND(OP_rmsnorm, 0, "y", "x"),
		FOUND(OP_linear, 1, "y", "x"), FOUND(OP_sample, 4, "y", "logits"), FOUND(OP_soft_cap, 2, "y", "x")}},
	FUSIONS_OF_RANKS {"linear_residual", linear_residual, false, 2, {ANCHOR(OP_linear), FOUND(OP_add, 0, "y", "y")}},
	{"linear_rows", joined_products, false, 1, {ANCHOR(OP_linear)}},
	{"linear_rows", lone_product, false, 1, {ANCHOR(OP_linear)}},
	{"embed_verify", fuse_embed_verify, false, 2, {ANCHOR(OP_verify_rows),
		FOUND(OP_embed, 0, "row_token", "row_token")}},
	{"draft_first", fuse_draft_first, false, 6, {ANCHOR(OP_draft_rows), FOUND(OP_recall, 0, "row_slot", "row_slot"),
		FOUND(OP_embed, 0, "row_token", "row_token"), FOUND(OP_rmsnorm, 2, "x", "x"), FOUND(OP_rmsnorm, 1, "y", "x"),
		FOUND(OP_join, 3, "y", "x")}},
	{"follow_rows", fuse_follow_prompt, false, 6, {ANCHOR(OP_rmsnorm), FOUND(OP_hold, 0, "y", "x"),
		FOUND(OP_embed_next_token, 3, "x", "x"), FOUND(OP_rmsnorm, 5, "x", "y"), FOUND(OP_rmsnorm, 0, "y", "x"),
		FOUND(OP_join, 4, "y", "y")}},
	{"accept", fuse_accept, false, 9, {ANCHOR(OP_rmsnorm), FOUND(OP_linear, 0, "y", "x"),
		FOUND(OP_draw, 1, "y", "logits"), FOUND(OP_accept, 2, "drawn", "drawn"), FOUND(OP_hold, 0, "y", "x"),
		FOUND(OP_embed_next_token, 6, "x", "x"), FOUND(OP_rmsnorm, 8, "x", "y"), FOUND(OP_rmsnorm, 0, "y", "x"),
		FOUND(OP_join, 7, "y", "y")}},
	{"accept", fuse_accept_alone, false, 4, {ANCHOR(OP_rmsnorm), FOUND(OP_linear, 0, "y", "x"),
		FOUND(OP_draw, 1, "y", "logits"), FOUND(OP_accept, 2, "drawn", "drawn")}},
	{"accept", fuse_accept_alone, false, 5, {ANCHOR(OP_rmsnorm), FOUND(OP_linear, 0, "y", "x"),
		FOUND(OP_draw, 4, "y", "logits"), FOUND(OP_accept, 2, "drawn", "drawn"), FOUND(OP_soft_cap, 1, "y", "x")}},
	{"draw_draft", fuse_draft, false, 8, {ANCHOR(OP_rmsnorm), FOUND(OP_linear, 0, "y", "x"),
		FOUND(OP_draw, 1, "y", "logits"), FOUND(OP_keep_draft, 2, "drawn", "drawn"),
		FOUND(OP_embed, 3, "row_token", "row_token"), FOUND(OP_rmsnorm, 4, "x", "x"), FOUND(OP_rmsnorm, 0, "y", "x"),
		FOUND(OP_join, 6, "y", "y")}},
	{"draw_draft", fuse_last_draft, false, 4, {ANCHOR(OP_rmsnorm), FOUND(OP_linear, 0, "y", "x"),
		FOUND(OP_draw, 1, "y", "logits"), FOUND(OP_keep_draft, 2, "drawn", "drawn")}},
	{"keys_write", fuse_keys, true, 4, {MAYBE(OP_head_norm, 1, "x", "y"), ANCHOR(OP_rope),
		FOUND(OP_kv_write, 1, "y", "k"), MAYBE(OP_head_norm, 2, "v", "y")}},
	{"experts", fuse_experts_and_shared, false, 12, {ROUTED(OP_route, OP_experts),
		FOUND(OP_linear, 6, "gate", "y"), FOUND(OP_linear, 6, "up", "y"), FOUND(OP_swiglu, 7, "x", "y"),
		FOUND(OP_linear, 9, "x", "y"), FOUND(OP_linear, 9, "gate", "y"), FOUND(OP_sigmoid_gate, 10, "y", "y"),
		FOUND(OP_add, 3, "y", "x"), FOUND(OP_add, 10, "z", "y")}},
	{"experts", fuse_experts_and_whole, false, 10, {ROUTED(OP_route_sigmoid, OP_experts),
		FOUND(OP_linear, 6, "gate", "y"), FOUND(OP_linear, 6, "up", "y"), FOUND(OP_swiglu, 7, "x", "y"),
		FOUND(OP_linear, 8, "y", "y"), FOUND(OP_add, 3, "y", "x"), FOUND(OP_add, 8, "z", "y")}},
	{"experts", fuse_experts, false, 5, {ROUTED(OP_route, OP_experts), FOUND(OP_add, 3, "y", "y")}},
	{"experts", fuse_experts, false, 5, {ROUTED(OP_route, OP_experts_clamped), FOUND(OP_add, 3, "y", "y")}},
	{"experts", fuse_experts, false, 5, {ROUTED(OP_route_sigmoid, OP_experts), FOUND(OP_add, 3, "y", "y")}},
	{"experts", fuse_experts, false, 5, {ROUTED(OP_route_sigmoid, OP_experts_limited), FOUND(OP_add, 3, "y", "y")}},
	{"experts", fuse_lone_experts, false, 1, {ANCHOR(OP_experts_gelu)}},
	{"norm_route", fuse_scaled_route, false, 5, {FOUND(OP_rmsnorm, 1, "x", "y"), FOUND(OP_linear, 2, "x", "y"),
		FOUND(OP_scale, 3, "logits", "y"), ANCHOR(OP_route), FOUND(OP_scale_shares, 3, "share", "share")}},
};

/* Which of the products at hand makes tensor t; -1 = none of them. */
static int maker_of(const Fuser *f, const int *products, int n, int t)
{
	for (int k = 0; k < n; k++)
		if (operand(op_at(f, products[k]), "y") == t)
			return k;
	return -1;
}

static bool is_made_by_member(const Fuser *f, int t)
{
	for (int m = 0; m < f->n_at; m++)
		for (int k = 0; member(f, m) && k < op_table[member(f, m)->kind].n_operands; k++)
			if (member(f, m)->operands[k] == t && op_table[member(f, m)->kind].operands[k].role == OPERAND_OUT)
				return true;
	return false;
}

/* Of the members that f->at holds: what they read of the products is of one group, and values are columns of it or a
 * member's; b and a of a delta rule may be of another. */
static bool is_of_one_group(const Fuser *f, const int *products, int n, const int *group)
{
	int of[2] = {-1, -1};
	for (int m = 0; m < f->n_at; m++) {
		const GraphOp *op = member(f, m);
		for (int k = 0; op && k < op_table[op->kind].n_operands; k++) {
			const int maker = op->operands[k] < 0 ? -1 : maker_of(f, products, n, op->operands[k]);
			const char *name = op_table[op->kind].operands[k].name;
			int *const want = &of[strcmp(name, "a") == 0 || strcmp(name, "b") == 0];
			if (maker >= 0 && *want >= 0 && *want != group[maker])
				return false;
			*want = maker >= 0 ? group[maker] : *want;
			if (maker < 0 && op->kind == OP_kv_write && strcmp(name, "v") == 0 &&
				!is_made_by_member(f, op->operands[k]))
				return false;
			if (maker < 0 && op->kind == OP_rmsnorm && strcmp(name, "x") == 0) /* of q or k, made before */
				return false;
		}
	}
	return true;
}

/* Do all ops that read what op `from` makes, and other products with it, read columns? Where v is k, one does not. */
static bool is_column_read(Fuser *f, const int *products, int n, const int *group, int from)
{
	const int t = operand(op_at(f, from), "y");
	bool is_read = f->uses[t] > 0;
	for (int i = from + 1, left = f->uses[t]; i < f->n_ops && left > 0 && is_read; i++)
		for (int k = 0; k < op_table[op_at(f, i)->kind].n_operands && is_read; k++) {
			const GraphOp *op = op_at(f, i);
			if (op->operands[k] != t || op_table[op->kind].operands[k].role == OPERAND_OUT)
				continue;
			is_read = false;
			for (size_t r = 0; r < sizeof fusions / sizeof fusions[0] && !is_read; r++)
				is_read = (op->kind != OP_sigmoid_gate || is_gate_of_elements(f, op)) && fusions[r].reads_columns &&
					find_fusion(f, &fusions[r], i) && is_of_one_group(f, products, n, group);
			left--;
		}
	return is_read;
}

static void group_readers(Fuser *f, int x, int *group)
{
	int products[MAX_MEMBERS], n = f->n_at, at = 0, k = 0, own = MAX_MEMBERS;
	memcpy(products, f->at, sizeof products);
	f->split = NULL;
	for (int g = 0, joined; (joined = count_linears(f, at, x)) > 0; at += joined, g++) {
		f->split = at ? f->split : f->note;
		for (int i = 0; i < joined; i++)
			group[at + i] = g;
	}
	while (k < n) { /* one that is not read so becomes a group, those after it another; then from the start */
		const bool is_alone = (k == 0 || group[k - 1] != group[k]) && (k + 1 == n || group[k + 1] != group[k]);
		if (is_alone || is_column_read(f, products, n, group, products[k])) {
			k++;
			continue;
		}
		for (int i = n - 1, of = group[k]; i >= k; i--)
			group[i] = group[i] == of ? own + (i > k) : group[i];
		own += 2;
		k = 0;
	}
	memcpy(f->at, products, sizeof products);
	f->n_at = n;
}

/* Lowers op i, which is not lowered yet, and all that its launches cover. */
static void lower_at(Fuser *f, int i)
{
	f->note = NULL;
	if (f->c->model.options.no_fusion) {
		lower_op(f, op_at(f, i), "kernels.fuse = false");
		f->is_lowered[i] = true;
		return;
	}
	for (size_t r = 0; r < sizeof fusions / sizeof fusions[0]; r++)
		if (match_fusion(f, &fusions[r], i) && fusions[r].apply(f, 0)) {
			take_members(f, &fusions[r]);
			return;
		}
	if (op_at(f, i)->kind == OP_rmsnorm && norm_linear(f, i))
		return;
	lower_op(f, op_at(f, i), f->note);
	f->is_lowered[i] = true;
}

/* Marks the op whose output is the layer's: the one that completes "l<layer>.out". */
static void mark_layer_outputs(Fuser *f)
{
	for (int i = 0; i < f->low->ops.n; i++) {
		LOp *op = &f->low->ops.at[i];
		if (op->layer < 0 || op->layer >= f->c->graph.n_layers)
			continue;
		char name[32];
		snprintf(name, sizeof name, "l%d.out", op->layer);
		for (int k = 0; k < op_table[op->kind].n_operands; k++)
			if (op_table[op->kind].operands[k].role == OPERAND_OUT && op->operands[k] >= 0 &&
				strcmp(f->low->tensors.at[op->operands[k]].name, name) == 0)
				op->produces_layer = op->layer;
	}
}

static void lower_phase(Compile *c, TargetWork *work, PhaseKind kind, int rows, int outs, int each)
{
	const Graph *g = &c->graph;
	Lowered *low = vec_push(&c->arena, &work->phases);
	*low = (Lowered){.kind = kind, .rows = rows, .outs = outs, .each = each};
	Fuser f = {.c = c, .target = work->target, .low = low, .ops = ARENA_ARRAY(&c->scratch, int, g->n_ops),
		.views = ARENA_ARRAY(&c->scratch, View, g->n_tensors),
		.codes = ARENA_ARRAY(&c->scratch, Codes, g->n_tensors),
		.uses = ARENA_ARRAY(&c->scratch, int, g->n_tensors)};
	for (int i = 0; i < g->n_tensors; i++)
		f.views[i].tensor = f.codes[i].tensor = -1;
	const int end = phase_ops(g, kind, each);
	for (int i = 0; i < end; i++) {
		if (!(g->ops[i].phases & phase_bit(kind)))
			continue;
		f.ops[f.n_ops++] = i;
		const OpInfo *info = &op_table[g->ops[i].kind];
		for (int k = 0; k < info->n_operands; k++)
			if (g->ops[i].operands[k] >= 0 && info->operands[k].role != OPERAND_OUT)
				f.uses[g->ops[i].operands[k]]++;
	}
	f.is_lowered = ARENA_ARRAY(&c->scratch, bool, f.n_ops + 1);
	for (int i = 0; i < f.n_ops; i++)
		if (!f.is_lowered[i])
			lower_at(&f, i);
	mark_layer_outputs(&f);
}

/* A buffer of phase PROBE; data of no meaning. */
static int probe_tensor(Compile *c, Lowered *low, const char *name, Dtype dtype, int64_t d0, int64_t d1)
{
	*vec_push(&c->arena, &low->tensors) = (LTensor){.name = name, .dtype = dtype, .role = ROLE_ACTIVATION,
		.n_dims = d1 ? 2 : 1, .shape = {d0, d1}, .tensor = -1, .weight = -1};
	return low->tensors.n - 1;
}

static LOp *probe_op(Compile *c, Lowered *low, OpKind kind)
{
	LOp *op = vec_push(&c->arena, &low->ops);
	*op = (LOp){.kind = kind, .layer = -1, .produces_layer = -1, .pick = -1};
	for (int i = 0; i < PLAN_MAX_OPERANDS; i++)
		op->operands[i] = -1;
	return op;
}

enum { SIDE = 8192 /* rows and columns of the products of phase PROBE */ };

/* Does a product of the phases so far have rows of codes, with scales in that operand? */
static bool has_product_of(const TargetWork *work, const char *scales)
{
	for (int p = 0; p < work->phases.n; p++)
		for (int i = 0; i < work->phases.at[p].ops.n; i++) {
			const LOp *op = &work->phases.at[p].ops.at[i];
			const int k = op_operand(op->kind, scales), step = op_operand(op->kind, "step");
			if (step >= 0 && k >= 0 && op->operands[k] >= 0) /* those of one op alone have no step */
				return true;
		}
	return false;
}

/* The product again, of codes of e4m3 or of e2m1. */
static void probe_codes(Compile *c, Fuser *f, Lowered *low, bool is_fp4)
{
	const Dtype codes = is_fp4 ? DT_e2m1 : DT_e4m3;
	const int groups = SIDE / (is_fp4 ? NVFP4_GROUP : 128);
	const struct { const char *name; Dtype dtype; int64_t d0, d1; } operands[] = {
		{"x", codes, SIDE, SIDE}, {"w", codes, SIDE, SIDE}, {"residual", DT_bf16, SIDE, SIDE},
		{"z", DT_bf16, SIDE, SIDE},
		{is_fp4 ? "x_block" : "x_scale", is_fp4 ? DT_e4m3 : DT_f32, is_fp4 ? SIDE : groups, is_fp4 ? groups : SIDE},
		{"w_scale", is_fp4 ? DT_e4m3 : DT_f32, is_fp4 ? SIDE : groups, groups},
		{"x_row_scale", DT_f32, SIDE, 0}, {"w_row_scale", DT_f32, SIDE, 0}};
	LOp *op = probe_op(c, low, OP_linear_residual);
	op->attrs.block_n = is_fp4 ? 1 : 128;
	op->attrs.block_k = is_fp4 ? NVFP4_GROUP : 128;
	bind_tensor(f, op, "step", input_named(f, "step"));
	for (size_t i = 0; i < sizeof operands / sizeof operands[0] - (is_fp4 ? 0 : 2); i++) /* fp8: without rows' */
		op->operands[op_operand(OP_linear_residual, operands[i].name)] = probe_tensor(c, low,
			arena_printf(&c->arena, "probe.%s_%s", is_fp4 ? "fp4" : "fp8", operands[i].name), operands[i].dtype,
			operands[i].d0, operands[i].d1);
}

/* The phase that measures (plan.h): a product of squares, one long read, one short; products of codes where there are
 * such. */
static void lower_probe(Compile *c, TargetWork *work)
{
	enum { PART_WORDS = 8192, PARTS = 32768 /* 1 GiB */ };
	static const struct { const char *x, *part; int parts; } reads[] = {
		{"probe.long", "probe.long_part", PARTS}, {"probe.short", "probe.short_part", 1}};
	const bool has_fp8 = has_product_of(work, "x_scale"), has_fp4 = has_product_of(work, "x_block");
	Lowered *low = vec_push(&c->arena, &work->phases);
	*low = (Lowered){.kind = PROBE, .rows = SIDE};
	Fuser f = {.c = c, .low = low, .views = ARENA_ARRAY(&c->scratch, View, c->graph.n_tensors)};
	for (int i = 0; i < c->graph.n_tensors; i++)
		f.views[i].tensor = -1;
	static const char *const square[] = {"x", "w", "residual", "z"};
	LOp *product = probe_op(c, low, OP_linear_residual);
	bind_tensor(&f, product, "step", input_named(&f, "step"));
	for (size_t i = 0; i < sizeof square / sizeof square[0]; i++)
		product->operands[op_operand(OP_linear_residual, square[i])] = probe_tensor(c, low,
			arena_printf(&c->arena, "probe.%s", square[i]), DT_bf16, SIDE, SIDE);
	for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
		LOp *op = probe_op(c, low, OP_read_probe);
		op->operands[op_operand(OP_read_probe, "x")] = probe_tensor(c, low, reads[i].x, DT_i32,
			(int64_t)reads[i].parts * PART_WORDS, 0);
		op->operands[op_operand(OP_read_probe, "part")] = probe_tensor(c, low, reads[i].part, DT_i32,
			reads[i].parts, 0);
	}
	if (has_fp8)
		probe_codes(c, &f, low, false);
	if (has_fp4)
		probe_codes(c, &f, low, true);
}

bool fuse_has_step(const Compile *c, int bucket, int each)
{
	const Options *o = &c->model.options;
	const Graph *g = &c->graph;
	bool has = false;
	for (int n = bucket ? o->decode[bucket - 1] + 1 : 1; n <= o->decode[bucket] && n <= g->slots; n++)
		has |= ladder_rows(g, n) == each || (g->ngram_max && each == 1);
	return has;
}

/* fuse - per target, phase and bucket, the ops that each become one launch.
 *
 *   needs   Graph
 *   gives   TargetWork.phases (picks empty)
 *   breaks  nothing
 *   fails   never: what cannot be fused stays an op of its own
 */
void fuse(Compile *c)
{
	const Options *o = &c->model.options;
	for (int i = 0; i < c->cmd.n_targets; i++) {
		TargetWork *work = vec_push(&c->arena, &c->work);
		const Target *t = target_by_name(c->cmd.targets[i]);
		*work = (TargetWork){.target = t,
			.plan = {.target = t->name, .cc_major = t->cc_major, .cc_minor = t->cc_minor,
				.smem_block_bytes = t->smem_block_bytes, .n_sms = t->n_sms}};
		for (int k = 0; k < o->n_prefill; k++)
			lower_phase(c, work, PREFILL, o->prefill[k],
				o->prefill[k] < o->slots ? o->prefill[k] : o->slots, 0);
		for (int k = 0; k < o->n_decode; k++)
			lower_phase(c, work, DECODE, o->decode[k], o->decode[k], 0);
		for (int each = 2; each <= c->graph.verify_rows && head_drafts(&c->graph); each++)
			for (int k = 0; k < o->n_decode; k++)
				if (fuse_has_step(c, k, each))
					lower_phase(c, work, DRAFT, o->decode[k], o->decode[k], each);
		for (int each = 1; each <= c->graph.verify_rows; each++)
			for (int k = 0; k < o->n_decode; k++)
				if (fuse_has_step(c, k, each))
					lower_phase(c, work, VERIFY, o->decode[k] * each, o->decode[k] * each, each);
		lower_phase(c, work, ACQUIRE, 0, 0, 0);
		lower_probe(c, work);
	}
}
