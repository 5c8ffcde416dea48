/* fuse_experts.c - the launches of a layer's experts: what follows its last norm.
 *
 * That is the router, the experts that a row chose, and the one that all rows go to. What chooses writes the normed
 * rows too. Rows of a decode step stream the experts they chose as they come, where their weights are of types that
 * are streamed. More rows are put in order by expert first, and the products of a row's experts are then added in a
 * launch of their own. The kernels of either way add in an order of their own: where all phases are to give a row the
 * same bits, all of them go one way.
 */
#include "artifacts/numbers.h"
#include "artifacts/order.h"
#include "compiler/lower/fuse.h"

#include <string.h>

enum {
	FEW_AS_THEY_COME = 64, /* more are faster in order, unless those of answers queue up */
	MOST_AS_THEY_COME = 256, MOST_PAIRS = 4096, /* that the kernels take */
	ROOM_FOR_MOST = 200000 /* bytes of a block's shared memory, for their terms; as has_little_smem of contract.cuh */
};

/* The expert that all rows go to: with a share that each row has for it, or whole. */
typedef enum Shared { NO_SHARED, SHARED_BY_GATE, SHARED_WHOLE } Shared;

/* The ops of a layer's experts from position i on; those of the shared expert are NULL where there is none, those of
 * its share where it is whole. */
typedef struct ExpertOps {
	const GraphOp *norm, *router, *route, *experts, *gate, *up, *act, *down, *share, *gated, *both, *sum;
	int64_t width, shared_width; /* of an expert */
	Attrs attrs;
} ExpertOps;

static int64_t dim_of(const Fuser *f, const GraphOp *op, const char *name, int i)
{
	return f->c->graph.tensors[operand(op, name)].shape[i];
}

/* A plain product of the normed rows: what chooses is not read from codes. */
static bool is_plain_linear(Fuser *f, const GraphOp *linear, const GraphOp *norm, bool may_have_bias)
{
	if (operand(linear, "x") != operand(norm, "y") || (operand(linear, "bias") >= 0 && !may_have_bias))
		return false;
	return (operand(linear, "w_scale") < 0 && operand(linear, "w_row_scale") < 0) || fail_note(f,
		arena_printf(&f->c->arena, "%s has scales: routers are not read from codes",
		weight_tensor(f, linear, "w")->name));
}

/* gate and up as one matrix, each with blocks of its own, and down with blocks of the same size. */
static bool shared_expert(Fuser *f, ExpertOps *e)
{
	static const char *const parts[] = {"w", "w_scale", "w_row_scale"};
	const int n = operand(e->norm, "y");
	int step;
	if (operand(e->gate, "x") != n || operand(e->up, "x") != n || operand(e->gate, "bias") >= 0 ||
		operand(e->up, "bias") >= 0 || operand(e->down, "bias") >= 0 ||
		!flows(f, e->gate, "y", e->act, "gate") || !flows(f, e->up, "y", e->act, "up") ||
		!flows(f, e->act, "y", e->down, "x") || !flows(f, e->experts, "y", e->both, "x") ||
		!flows(f, e->gated ? e->gated : e->down, "y", e->both, "y") || !flows(f, e->both, "z", e->sum, "y"))
		return false;
	if (e->gated && (!is_plain_linear(f, e->share, e->norm, false) || !flows(f, e->down, "y", e->gated, "x") ||
		!flows(f, e->share, "y", e->gated, "gate") || dim_of(f, e->gated, "gate", 1) != 1))
		return false;
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (!joins(f, e->gate, e->up, parts[i], &step))
			return false;
	Attrs block, all;
	if (!block_of_two(f, e->gate, e->up, &block) || !block_of_two(f, e->gate, e->down, &all))
		return false;
	e->attrs.shared_block_n = all.block_n;
	e->attrs.shared_block_k = all.block_k;
	e->shared_width = dim_of(f, e->act, "y", 1);
	return true;
}

static bool expert_ops(Fuser *f, int i, Shared shared, ExpertOps *e)
{
	static const int n_ops[] = {[NO_SHARED] = 4, [SHARED_BY_GATE] = 11, [SHARED_WHOLE] = 9}; /* before the sum */
	static const int n_readers[] = {[NO_SHARED] = 2, [SHARED_BY_GATE] = 5, [SHARED_WHOLE] = 4}; /* of the normed rows */
	*e = (ExpertOps){.norm = member(f, i), .router = member(f, i + 1), .route = member(f, i + 2),
		.experts = member(f, i + 3), .sum = member(f, i + n_ops[shared])};
	const int n = operand(e->norm, "y");
	if (operand(e->experts, "x") != n || f->uses[n] != n_readers[shared] ||
		!is_plain_linear(f, e->router, e->norm, e->route->kind == OP_route) ||
		!flows(f, e->router, "y", e->route, "logits") || !flows(f, e->route, "expert", e->experts, "expert") ||
		!flows(f, e->route, "share", e->experts, "share"))
		return false;
	e->attrs = e->experts->attrs;
	e->width = dim_of(f, e->experts, "down", 2);
	if (shared == NO_SHARED)
		return flows(f, e->experts, "y", e->sum, "y");
	const GraphOp **const by_gate[] = {&e->gate, &e->up, &e->act, &e->down, &e->share, &e->gated, &e->both};
	const GraphOp **const is_whole[] = {&e->gate, &e->up, &e->act, &e->down, &e->both};
	for (int k = 0; k < n_ops[shared] - 4; k++)
		*(shared == SHARED_WHOLE ? is_whole : by_gate)[k] = member(f, i + 4 + k);
	return shared_expert(f, e);
}

/* Tensors between the launches of a layer's experts. */
typedef struct ExpertTensors { int share, h, pair, first, y, h_scale; } ExpertTensors;

static int layer_tensor(Fuser *f, const GraphOp *of, const char *name, Dtype dtype, int n_dims, const int64_t *shape)
{
	LTensor *t = vec_push(&f->c->arena, &f->low->tensors);
	*t = (LTensor){.name = arena_printf(&f->c->arena, "l%d.%s", of->layer, name), .dtype = dtype,
		.role = ROLE_ACTIVATION, .n_dims = n_dims, .tensor = -1, .weight = -1};
	memcpy(t->shape, shape, sizeof shape[0] * (size_t)n_dims);
	return f->low->tensors.n - 1;
}

/* An LTensor, as the operand of that name if the op has one. */
static void put(LOp *op, const char *name, int tensor)
{
	const int i = op_operand(op->kind, name);
	if (i >= 0)
		op->operands[i] = tensor;
}

static LOp *expert_op(Fuser *f, OpKind kind, const ExpertOps *e)
{
	LOp *op = new_op(f, kind, e->experts);
#define ATTR(NAME, field, type, meaning) \
	if (op_has_attr(kind, #NAME)) \
		op->attrs.field = e->attrs.field;
#include "artifacts/attrs.h"
#undef ATTR
	put(op, "step", lower_tensor(f, input_named(f, "step")));
	return op;
}

static void put_all(LOp *op, const ExpertTensors *t)
{
	put(op, "share", t->share);
	put(op, "h", t->h);
	put(op, "h_scale", t->h_scale);
	put(op, "pair", t->pair);
	put(op, "first", t->first);
	put(op, "y", t->y);
}

/* One LTensor for rows of gate and of up. */
static int gate_and_up(Fuser *f, const ExpertOps *e, const char *part)
{
	const Tensor *gate = weight_tensor(f, e->gate, part), *up = weight_tensor(f, e->up, part);
	if (!gate)
		return -1;
	LTensor *t = vec_push(&f->c->arena, &f->low->tensors);
	*t = (LTensor){.name = arena_printf(&f->c->arena, "%s (+1)", gate->name), .dtype = gate->dtype, .role = ROLE_WEIGHT,
		.n_dims = gate->n_dims, .tensor = -1, .weight = gate->weight, .n_weights = gate->n_weights + up->n_weights};
	memcpy(t->shape, gate->shape, sizeof t->shape);
	t->shape[0] += up->shape[0];
	return f->low->tensors.n - 1;
}

/* Weights of the experts, of those names that both ops have. */
static void bind_weights(Fuser *f, LOp *op, const ExpertOps *e, int n, const char *const *names)
{
	for (int i = 0; i < n; i++)
		if (op_operand(op->kind, names[i]) >= 0 && op_operand(e->experts->kind, names[i]) >= 0)
			bind_tensor(f, op, names[i], operand(e->experts, names[i]));
}

/* The weights of experts on the way up, or down. */
static void bind_up(Fuser *f, LOp *op, const ExpertOps *e)
{
	bind_weights(f, op, e, 4, (const char *[]){"gate_up", "gate_up_scale", "gate_up_row_scale", "gate_up_bias"});
	if (op_operand(op->kind, "n") >= 0)
		bind_tensor(f, op, "n", operand(e->experts, "x"));
	if (!e->gate)
		return;
	put(op, "shared", gate_and_up(f, e, "w"));
	put(op, "shared_scale", gate_and_up(f, e, "w_scale"));
	put(op, "shared_row_scale", gate_and_up(f, e, "w_row_scale"));
}

static void bind_down(Fuser *f, LOp *op, const ExpertOps *e)
{
	bind_weights(f, op, e, 4, (const char *[]){"down", "down_scale", "down_row_scale", "down_bias"});
	if (e->gate)
		bind_weight(f, op, "shared_down", e->down);
}

static void bind_sum(Fuser *f, LOp *op, const ExpertOps *e)
{
	bind_tensor(f, op, "residual", operand(e->sum, "x"));
	bind_tensor(f, op, "z", operand(e->sum, "z"));
}

/* The way up of rows in bf16. */
static OpKind kind_of_up(const ExpertOps *e)
{
	return e->experts->kind == OP_experts_clamped ? OP_experts_up_clamped
		: e->experts->kind == OP_experts_limited ? OP_experts_up_limited
		: e->experts->kind == OP_experts_gelu ? OP_experts_up_gelu : OP_experts_up;
}

static void as_they_come(Fuser *f, const ExpertOps *e, const ExpertTensors *t)
{
	LOp *op = expert_op(f, kind_of_up(e), e);
	bind_up(f, op, e);
	bind_tensor(f, op, "expert", operand(e->experts, "expert"));
	put_all(op, t);
	op = expert_op(f, OP_experts_down, e);
	bind_down(f, op, e);
	bind_tensor(f, op, "expert", operand(e->experts, "expert"));
	put_all(op, t);
	if (e->experts->kind != OP_experts_clamped) /* whose biases count by their shares */
		put(op, "share", -1);
	if (e->sum)
		bind_sum(f, op, e);
	else
		bind_tensor(f, op, "z", operand(e->experts, "y"));
}

/* The rows as codes in the order of experts; t gets what experts make of them on the way up. */
static void gather(Fuser *f, const ExpertOps *e, ExpertTensors *t, int64_t all)
{
	const int x = operand(e->experts, "x");
	const int64_t cols = f->c->graph.tensors[x].shape[1];
	LOp *op = expert_op(f, OP_gather_codes, e);
	bind_tensor(f, op, "x", x);
	put(op, "pair", t->pair);
	put(op, "y", layer_tensor(f, e->experts, "pairs.e4m3", DT_e4m3, 2, (int64_t[]){all, cols}));
	put(op, "y_scale", layer_tensor(f, e->experts, "pairs.scale", DT_f32, 2,
		(int64_t[]){(cols + FP8_BLOCK - 1) / FP8_BLOCK, all}));
	op->note = note_of_rows(f, ROWS_E4M3, DT_e4m3);
	t->h = layer_tensor(f, e->experts, "h.e4m3", DT_e4m3, 2, (int64_t[]){all, e->width});
	t->h_scale = layer_tensor(f, e->experts, "h.scale", DT_f32, 2,
		(int64_t[]){(e->width + FP8_BLOCK - 1) / FP8_BLOCK, all});
}

/* Are its rows' choices those that a rank has, with -1 for the others? */
static bool are_own(const Fuser *f, const GraphOp *experts)
{
	for (int i = 0; i < f->c->graph.n_ops; i++)
		if (f->c->graph.ops[i].kind == OP_own_experts &&
			operand(&f->c->graph.ops[i], "own") == operand(experts, "expert"))
			return true;
	return false;
}

static void in_order(Fuser *f, const ExpertOps *e, ExpertTensors *t, bool as_codes)
{
	const int64_t rows = f->low->rows, pairs = rows * e->attrs.n_active;
	const bool is_clamped = e->experts->kind == OP_experts_clamped, is_own = are_own(f, e->experts);
	const int64_t shares = e->attrs.n_active + (e->gate != NULL), experts = dim_of(f, e->experts, "gate_up", 0);
	t->pair = layer_tensor(f, e->experts, "pair", DT_i32, 1, (int64_t[]){pairs});
	t->first = layer_tensor(f, e->experts, "first", DT_i32, 1, (int64_t[]){experts + 1});
	t->y = layer_tensor(f, e->experts, "terms", DT_bf16, 3, (int64_t[]){rows, shares, dim_of(f, e->experts, "x", 1)});
	LOp *op = expert_op(f, is_own ? OP_group_own : OP_group_rows, e);
	bind_tensor(f, op, "expert", operand(e->experts, "expert"));
	put_all(op, t);
	if (as_codes)
		gather(f, e, t, rows * shares);
	const LOp *codes = as_codes ? &f->low->ops.at[f->low->ops.n - 1] : NULL;
	const int x = codes ? codes->operands[op_operand(OP_gather_codes, "y")] : -1;
	const int x_scale = codes ? codes->operands[op_operand(OP_gather_codes, "y_scale")] : -1;
	op = expert_op(f, as_codes ? OP_experts_up_fp8 : kind_of_up(e), e);
	bind_up(f, op, e);
	if (e->experts->kind != OP_experts) /* rows in no pair are none of theirs */
		put(op, "step", -1);
	put(op, "x", x);
	put(op, "x_scale", x_scale);
	put_all(op, t);
	op = expert_op(f, as_codes ? OP_experts_down_fp8 : is_clamped ? OP_experts_down_biased : OP_experts_down_rows, e);
	bind_down(f, op, e);
	put_all(op, t);
	op = expert_op(f, e->sum ? OP_sum_experts : is_own ? OP_sum_own : OP_sum_terms, e);
	put_all(op, t);
	if (is_own)
		bind_tensor(f, op, "expert", operand(e->experts, "expert"));
	if (e->sum)
		bind_sum(f, op, e);
	else
		bind_tensor(f, op, "z", operand(e->experts, "y"));
}

/* Does a kernel that streams the experts as they come take this weight, and has it just that of these operands? */
static bool is_streamed(const Fuser *f, OpKind op, const char *field, int weight, bool has_bias, bool has_residual)
{
	const KernelTemplate *t = NULL;
	while (weight >= 0 && (t = next_template(f, op, t)))
		if (takes_field(t, "expert") && takes_dtype(t, field, f->c->graph.tensors[weight].dtype) &&
			(op != OP_experts_down || (takes_field(t, "down_bias") == has_bias &&
			takes_field(t, "residual") == has_residual)))
			return true;
	return weight < 0;
}

static bool are_streamed(const Fuser *f, const ExpertOps *e)
{
	if (are_own(f, e->experts))
		return false;
	const OpKind up = kind_of_up(e);
	const bool has_bias = e->experts->kind == OP_experts_clamped, has_sum = e->sum != NULL;
	const int gate = e->gate ? operand(e->gate, "w") : -1, down = e->gate ? operand(e->down, "w") : -1;
	return is_streamed(f, up, "gate_up", operand(e->experts, "gate_up"), has_bias, has_sum) &&
		is_streamed(f, OP_experts_down, "down", operand(e->experts, "down"), has_bias, has_sum) &&
		is_streamed(f, up, "shared", gate, has_bias, has_sum) &&
		is_streamed(f, OP_experts_down, "shared_down", down, has_bias, has_sum);
}

/* Is there a template for this op, with or without a shared expert, whose weights are codes? */
static bool has_template(const Fuser *f, OpKind op, const char *shared, bool has_shared)
{
	const KernelTemplate *t = NULL;
	while ((t = next_template(f, op, t)))
		if (takes_field(t, shared) == has_shared)
			return true;
	return false;
}

static bool are_blocks(int block_n, int block_k)
{
	return (block_n == FP8_BLOCK && block_k == FP8_BLOCK) || (block_n == 0 && block_k == 0);
}

/* Rows become codes where all experts are, from as many as in other products. An expert's columns are whole
 * blocks of scales, the shared one is as wide as the others. */
static bool go_as_codes(const Fuser *f, const ExpertOps *e)
{
	const Tensor *tensors = f->c->graph.tensors;
	return e->experts->kind == OP_experts && has_rows_for_codes(f) &&
		tensors[operand(e->experts, "gate_up")].dtype == DT_e4m3 &&
		tensors[operand(e->experts, "down")].dtype == DT_e4m3 && e->width % FP8_BLOCK == 0 &&
		dim_of(f, e->experts, "x", 1) % 16 == 0 && are_blocks(e->attrs.block_n, e->attrs.block_k) &&
		(!e->gate || (e->shared_width == e->width && weight_tensor(f, e->gate, "w")->dtype == DT_e4m3 &&
			weight_tensor(f, e->down, "w")->dtype == DT_e4m3 &&
			are_blocks(e->attrs.shared_block_n, e->attrs.shared_block_k))) &&
		has_template(f, OP_experts_up_fp8, "shared", e->gate != NULL) &&
		has_template(f, OP_experts_down_fp8, "shared_down", e->gate != NULL);
}

/* Do experts queue up (expert_queue.cuh)? Those of codes of e4m3, and the one that all rows go to only if it is of the
 * same kind. */
static bool queue_up(const Fuser *f, const ExpertOps *e)
{
	const Tensor *tensors = f->c->graph.tensors;
	return e->experts->kind == OP_experts && f->target->smem_block_bytes >= ROOM_FOR_MOST &&
		tensors[operand(e->experts, "gate_up")].dtype == DT_e4m3 &&
		tensors[operand(e->experts, "down")].dtype == DT_e4m3 && (!e->gate || (e->shared_width == e->width &&
			weight_tensor(f, e->gate, "w")->dtype == DT_e4m3 && weight_tensor(f, e->down, "w")->dtype == DT_e4m3));
}

/* Do the rows of this phase stream the experts they chose? In an invariant plan all phases of a set do, or none. */
static bool come_as_they_are(const Fuser *f, const ExpertOps *e)
{
	const Options *o = &f->c->model.options;
	const OrderSet set = order_set(f->low->kind);
	const int n_active = e->attrs.n_active;
	int rows = f->low->rows, most = f->low->kind != PREFILL && queue_up(f, e) ? MOST_AS_THEY_COME : FEW_AS_THEY_COME;
	if (o->is_invariant && set == ORDER_PROMPTS) {
		rows = o->prefill[o->n_prefill - 1];
	} else if (o->is_invariant && set == ORDER_ANSWERS) {
		rows = o->decode[o->n_decode - 1];
		for (int k = 0; k < o->n_decode; k++)
			for (int each = 2; each <= f->c->graph.verify_rows; each++)
				if (fuse_has_step(f->c, k, each) && o->decode[k] * each > rows)
					rows = o->decode[k] * each;
		most = MOST_AS_THEY_COME;
	}
	return rows <= most && rows * n_active <= MOST_PAIRS;
}

/* The norm, the router and the choice, without the shares. */
static LOp *norm_and_route(Fuser *f, const ExpertOps *e)
{
	const bool by_sigmoid = e->route->kind == OP_route_sigmoid;
	LOp *op = new_op(f, by_sigmoid ? OP_norm_route_sigmoid : OP_norm_route, e->norm);
	merge_attrs(op, e->norm);
	merge_attrs(op, e->route);
	bind_tensor(f, op, "step", input_named(f, "step"));
	bind_tensor(f, op, "x", operand(e->norm, "x"));
	bind_tensor(f, op, "norm", operand(e->norm, "w"));
	bind_tensor(f, op, "router", operand(e->router, "w"));
	if (by_sigmoid) {
		bind_tensor(f, op, "bias", operand(e->route, "bias"));
	} else {
		bind_tensor(f, op, "router_bias", operand(e->router, "bias"));
		bind_tensor(f, op, "shared_gate", e->share ? operand(e->share, "w") : -1);
	}
	bind_tensor(f, op, "n", operand(e->norm, "y"));
	bind_tensor(f, op, "logits", operand(e->router, "y"));
	bind_tensor(f, op, "expert", operand(e->route, "expert"));
	bind_own(f, op, "routed", ROLE_STATE, true, DT_i32, 1, (int64_t[]){f->low->rows});
	return op;
}

static bool experts_at(Fuser *f, int i, Shared shared)
{
	ExpertOps e;
	if (!expert_ops(f, i, shared, &e))
		return false;
	const int64_t rows = f->low->rows, active = e.attrs.n_active, shares = active + (shared != NO_SHARED);
	const bool as_codes = go_as_codes(f, &e);
	ExpertTensors t = {-1, -1, -1, -1, -1, -1};
	t.share = layer_tensor(f, e.route, "shares", DT_f32, 2, (int64_t[]){rows, shares});
	if (!as_codes)
		t.h = layer_tensor(f, e.route, "h", DT_bf16, 2, (int64_t[]){rows, active * e.width + e.shared_width});
	put_all(norm_and_route(f, &e), &t);
	if (!as_codes && come_as_they_are(f, &e) && are_streamed(f, &e))
		as_they_come(f, &e, &t);
	else
		in_order(f, &e, &t, as_codes);
	return true;
}

/* The op alone, with what its launches leave between them. */
static ExpertOps lone_experts(Fuser *f, const GraphOp *op, ExpertTensors *t)
{
	const ExpertOps e = {.experts = op, .attrs = op->attrs, .width = dim_of(f, op, "down", 2)};
	*t = (ExpertTensors){lower_tensor(f, operand(op, "share")), -1, -1, -1, -1, -1};
	t->h = layer_tensor(f, op, "h", DT_bf16, 2, (int64_t[]){f->low->rows, e.attrs.n_active * e.width});
	return e;
}

void lower_experts(Fuser *f, const GraphOp *op)
{
	ExpertTensors t;
	const ExpertOps e = lone_experts(f, op, &t);
	in_order(f, &e, &t, false);
}

bool fuse_lone_experts(Fuser *f, int i)
{
	const GraphOp *op = member(f, i);
	const ExpertOps e = {.experts = op, .attrs = op->attrs};
	ExpertTensors t;
	if (!come_as_they_are(f, &e) || !are_streamed(f, &e))
		return false;
	const ExpertOps all = lone_experts(f, op, &t);
	as_they_come(f, &all, &t);
	return true;
}

bool fuse_experts_of_ranks(Fuser *f, int i) { return f->c->ranks.n && fuse_lone_experts(f, i); }

bool fuse_route_of_ranks(Fuser *f, int i)
{
	const ExpertOps e = {.norm = member(f, i), .router = member(f, i + 1), .route = member(f, i + 2)};
	if (!f->c->ranks.n || !is_plain_linear(f, e.router, e.norm, e.route->kind == OP_route) ||
		!flows(f, e.router, "y", e.route, "logits"))
		return false;
	bind_tensor(f, norm_and_route(f, &e), "share", operand(e.route, "share"));
	return true;
}

bool fuse_scaled_route(Fuser *f, int i)
{
	const GraphOp *norm = member(f, i), *router = member(f, i + 1), *scale = member(f, i + 2);
	const GraphOp *route = member(f, i + 3), *by = member(f, i + 4);
	if (!flows(f, norm, "y", router, "x") || !is_plain_linear(f, router, norm, false) ||
		!flows(f, router, "y", scale, "x") || !flows(f, scale, "y", route, "logits") ||
		!flows(f, route, "share", by, "share") || operand(by, "expert") != operand(route, "expert"))
		return false;
	LOp *op = new_op(f, OP_norm_route_scaled, norm);
	merge_attrs(op, norm);
	merge_attrs(op, scale);
	merge_attrs(op, route);
	bind_tensor(f, op, "step", input_named(f, "step"));
	bind_tensor(f, op, "x", operand(norm, "x"));
	bind_tensor(f, op, "norm", operand(norm, "w"));
	bind_tensor(f, op, "router", operand(router, "w"));
	bind_tensor(f, op, "by", operand(by, "w"));
	bind_tensor(f, op, "logits", operand(scale, "y"));
	bind_tensor(f, op, "expert", operand(route, "expert"));
	bind_tensor(f, op, "share", operand(by, "y"));
	bind_own(f, op, "routed", ROLE_STATE, true, DT_i32, 1, (int64_t[]){f->low->rows});
	return true;
}

bool fuse_experts(Fuser *f, int i) { return experts_at(f, i, NO_SHARED); }
bool fuse_experts_and_shared(Fuser *f, int i) { return experts_at(f, i, SHARED_BY_GATE); }
bool fuse_experts_and_whole(Fuser *f, int i) { return experts_at(f, i, SHARED_WHOLE); }
