/* bench_work.c - bytes and operations of a step, by the plan's launches.
 *
 * Bytes are those that must be read: each operand of a launch once, or what the kernel's contract says where that is
 * less (a few rows of an embedding). What a kernel reads a second time is its own fault, so it is not counted.
 * Of experts those are read that some row chose: as many as were counted (bench_experts.c), else, by the contract, as
 * many as the bucket's rows can choose. Contracts speak of a full context; for attention, the one kind of launch whose
 * work depends on the text, keys and values of the positions that were really there take the place of the cache, and
 * multiplications follow them, as far as a row sees: by its contract a full context or its window. Multiplications of
 * codes by codes have rates of their own.
 */
#include "artifacts/op_table.h"
#include "runtime/cli/bench/bench.h"

#include <string.h>

static const Buf *operand(const Phase *p, const Launch *l, const char *name)
{
	int k = op_operand(l->op, name);
	for (int i = 0; k >= 0 && i < l->n_args; i++)
		if (l->args[i].operand == k && l->args[i].buf >= 0)
			return &p->bufs[l->args[i].buf];
	return NULL;
}

static double operand_bytes(const Phase *p, const Launch *l, const Buf *but, const Buf *nor)
{
	double bytes = 0;
	for (int i = 0; i < l->n_args; i++) {
		const Buf *b = l->args[i].buf < 0 ? NULL : &p->bufs[l->args[i].buf];
		if (b && b != but && b != nor && op_table[l->op].operands[l->args[i].operand].role != OPERAND_OUT)
			bytes += (double)b->bytes;
	}
	return bytes;
}

/* Keys and values of one position, or their block scales: [PAGES, 2, NKV, PAGE, ...]; 0 where there are none. */
static double position_bytes(const Buf *kv)
{
	return kv ? (double)kv->bytes / (double)(kv->shape[0] * kv->shape[3]) : 0;
}

/* What a window leaves of `use`. Rows of a sequence are consecutive. */
static void look_through(StepUse *use, double window)
{
	const double rows = use->rows / use->sequences, first = use->positions / use->rows - (rows - 1) / 2;
	const double most = use->sequences * (window + rows - 1);
	double whole = window - first + 1; /* rows that see all there is */
	whole = whole < 0 ? 0 : whole > rows ? rows : whole;
	use->positions = use->sequences * (whole * (first + (whole - 1) / 2) + (rows - whole) * window);
	use->history = use->history < most ? use->history : most;
}

static Work attention_work(const Phase *p, const Launch *l, const Buf *kv, const Buf *block, const Buf *o,
	StepUse use)
{
	const double width = (double)o->shape[o->n_dims - 1]; /* heads times elements of one */
	look_through(&use, (double)l->flops / (4 * width * p->rows));
	const double history = use.history * (position_bytes(kv) + position_bytes(block));
	return (Work){history + operand_bytes(p, l, kv, block), 4 * width * use.positions, 0, 0};
}

/* Bytes of the experts that no row chose. */
static double unread_experts(const Phase *p, const Launch *l, const StepUse *use)
{
	double bytes = 0;
	for (int i = 0; i < l->n_args && use->experts > 0; i++) {
		const Buf *b = l->args[i].buf < 0 ? NULL : &p->bufs[l->args[i].buf];
		const char *shape = operand_shape(l->op, l->args[i].operand);
		const bool is_of_experts = b && b->arena == ARENA_WEIGHTS && b->n_dims == 3 &&
			(strncmp(shape, "EXPERTS, ", 9) == 0 || strncmp(shape, "E, ", 3) == 0);
		if (is_of_experts && use->experts < (double)b->shape[0])
			bytes += (double)b->bytes * (1 - use->experts / (double)b->shape[0]);
	}
	return bytes;
}

Work launch_work(const Phase *p, const Launch *l, const StepUse *use)
{
	const Buf *kv = operand(p, l, "kv"), *block = operand(p, l, "kv_block");
	const Buf *o = operand(p, l, "o"), *logits = operand(p, l, "logits");
	if (kv && o)
		return attention_work(p, l, kv, block, o, *use);
	/* rows that are not in use cost time, but are no work */
	double share = p->kind > VERIFY ? 1 : logits ? (double)use->outs / p->outs
		: (double)use->rows / p->rows;
	double once = operand_bytes(p, l, kv, block) - unread_experts(p, l, use);
	Work w = {once < (double)l->read_bytes ? once : (double)l->read_bytes, share * (double)l->flops, 0, 0};
	if (l->op != OP_dequantise && operand(p, l, "x_scale"))
		w.fp8 = w.flops;
	if (l->op != OP_dequantise_fp4 && operand(p, l, "x_block"))
		w.fp4 = w.flops;
	return w;
}

void add_work(Work *sum, const Work *w)
{
	sum->bytes += w->bytes;
	sum->flops += w->flops;
	sum->fp8 += w->fp8;
	sum->fp4 += w->fp4;
}

Work phase_work(const Phase *p, const StepUse *use)
{
	Work sum = {0};
	for (int i = 0; i < p->n_launches; i++) {
		const Work w = launch_work(p, &p->launches[i], use);
		add_work(&sum, &w);
	}
	return sum;
}

const Phase *phase_for(const TargetPlan *t, PhaseKind kind, int rows, int outs, int each)
{
	for (int i = 0; t && i < t->n_phases; i++) /* ascending */
		if (t->phases[i].kind == kind && t->phases[i].each == each && t->phases[i].rows >= rows &&
			t->phases[i].outs >= outs)
			return &t->phases[i];
	return NULL;
}

double bound_us(const TimerBounds *b, const Work *w, BoundKind *kind)
{
	if (b->read_gbps <= 0 || b->gemm_tflops <= 0) {
		*kind = BOUND_NONE;
		return 0;
	}
	const double fp8 = b->fp8_tflops > 0 ? b->fp8_tflops : b->gemm_tflops;
	const double fp4 = b->fp4_tflops > 0 ? b->fp4_tflops : b->gemm_tflops;
	const double read = w->bytes / b->read_gbps * 1e-3;
	const double gemm = ((w->flops - w->fp8 - w->fp4) / b->gemm_tflops + w->fp8 / fp8 + w->fp4 / fp4) * 1e-6;
	*kind = gemm > read ? BOUND_GEMM : BOUND_READ;
	return gemm > read ? gemm : read;
}

const char *bound_name(BoundKind kind) { return kind == BOUND_READ ? "read" : kind == BOUND_GEMM ? "gemm" : ""; }
