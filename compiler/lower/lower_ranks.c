/* lower_ranks.c - collectives become launches on the memory that ranks show each other.
 *
 * All of them have the same arena (artifacts/peers.h), whose slots hold the largest part of any step: its size is the
 * same in all phases, since a phase may follow any other.
 */
#include "artifacts/peers.h"
#include "artifacts/ranks.h"
#include "compiler/lower/fuse.h"

static int64_t words(const Compile *c)
{
	const Options *o = &c->model.options;
	const Graph *g = &c->graph;
	int64_t rows = 1, outs = 1;
	for (int i = 0; i < o->n_prefill; i++) {
		const int of_prompt = o->prefill[i] < o->slots ? o->prefill[i] : o->slots;
		rows = o->prefill[i] > rows ? o->prefill[i] : rows;
		outs = of_prompt > outs ? of_prompt : outs;
	}
	for (int each = 1; each == 1 || each <= g->verify_rows; each++)
		for (int i = 0; i < o->n_decode; i++) {
			const int n = each == 1 || fuse_has_step(c, i, each) ? o->decode[i] * each : 1;
			rows = n > rows ? n : rows;
			outs = n > outs ? n : outs;
		}
	return peer_words(ranks_largest_part(g, rows, outs));
}

/* Is the collective NCCL's? By the bytes of a part in this phase. */
static bool is_of_nccl(const Fuser *f, const GraphOp *op)
{
	const Tensor *part = &f->c->graph.tensors[operand(op, "part")];
	const int64_t rows = op->kind == OP_gather_ranks ? f->low->outs : f->low->rows;
	const int above = f->c->model.options.nccl_above;
	return above >= 0 && dtype_span(part->dtype, rows * part->shape[1]) > above;
}

/* z: the tensor that gets what is summed or gathered. */
static LOp *collective(Fuser *f, const GraphOp *op, int z)
{
	const bool gathers = op->kind == OP_gather_ranks, is_nccl = is_of_nccl(f, op);
	LOp *l = new_op(f, gathers ? is_nccl ? OP_gather_nccl : OP_gather_peers : is_nccl ? OP_sum_nccl : OP_sum_peers, op);
	merge_attrs(l, op);
	bind_tensor(f, l, "step", input_named(f, "step"));
	bind_tensor(f, l, "part", operand(op, "part"));
	if (op->kind == OP_sum_ranks)
		bind_tensor(f, l, "bias", operand(op, "bias"));
	bind_own(f, l, "peers", ROLE_STATE, true, DT_i32, 1, (int64_t[]){words(f->c)});
	f->low->tensors.at[l->operands[op_operand(l->kind, "peers")]].is_peer = true;
	if (l->kind == OP_sum_nccl)
		bind_own(f, l, "sum", ROLE_ACTIVATION, false, f->c->graph.tensors[z].dtype, 2,
			(int64_t[]){f->low->rows, f->c->graph.tensors[z].shape[1]});
	if (l->kind == OP_gather_nccl)
		bind_own(f, l, "all", ROLE_ACTIVATION, false, DT_f32, 2, (int64_t[]){f->c->ranks.n * f->low->outs,
			f->c->graph.tensors[operand(op, "part")].shape[1]});
	bind_tensor(f, l, "z", z);
	return l;
}

void lower_collective(Fuser *f, const GraphOp *op) { collective(f, op, operand(op, "z")); }

bool fuse_sum_peers(Fuser *f, int i)
{
	const GraphOp *sum = member(f, i), *add = member(f, i + 1);
	if (!flows(f, sum, "z", add, "y"))
		return false;
	LOp *l = collective(f, sum, operand(add, "z"));
	l->layer = add->layer;
	bind_tensor(f, l, "residual", operand(add, "x"));
	return true;
}
