/* tune_trials.c - time one kernel the way it runs in a step: after another launch, on cold weights.
 *
 * A launch alone, with the stream idle before it, shows what starting it costs; in a step most of that is hidden
 * by the launch before, and kernels that prefetch their weights hide more. So a trial is a chain of launches of one
 * kernel, each starting as the plan lets it start, and each on a copy of weights and state of its own, more of them
 * than the L2 cache holds. Of keys and values a step reads few pages: each launch has others, and a long history
 * follows a short one. Activations are shared: in a step they were just written.
 *
 * Memory is one pool: what kernels write first, then what has rules (tune_inputs.c), then random numbers, which no
 * trial writes to but where the op updates them. A trial takes as much of each part as it needs.
 */
#include "artifacts/op_table.h"
#include "runtime/cli/tune/tune.h"

#include <stdlib.h>
#include <string.h>

enum {
	COLD_BYTES = 256 << 20, /* of copies: twice the L2 of any card */
	CHAIN_MOST = 48, CHAIN_LEAST = 4, CHAIN_US = 1500,
	RANDOM_BYTES = 32 << 20,       /* of numbers, written again and again */
};

typedef struct Layout { /* bytes of the parts of the pool; of ruled and copy those of one, and how many */
	int64_t outputs, ruled, inputs, copy;
	int n_ruled, n_copies;
} Layout;

struct Tuner {
	LaunchTimer *timer;
	const Graph *g;
	const TargetPlan *set;
	CuPtr pool;
	int64_t outputs_bytes, ruled_bytes; /* of the first two parts of the pool */
	uint8_t *ruled;   /* [ruled_bytes] host image */
	TimedLaunch chain[CHAIN_MOST];
	AtlasError error; /* of what the timer did not do; empty = the timer knows */
};

const AtlasError *tune_error(const Tuner *t) { return t->error.status == ATLAS_OK ? timer_error(t->timer) : &t->error; }

typedef enum Part { OUTPUTS, RULED, INPUTS, COPY } Part;

static Part part_of(const Phase *p, int buf)
{
	const Launch *l = &p->launches[0];
	const Buf *b = &p->bufs[buf];
	for (int i = 0; i < l->n_args; i++)
		if (l->args[i].buf == buf && op_table[l->op].operands[l->args[i].operand].role == OPERAND_OUT)
			return OUTPUTS;
	if (tune_is_ruled(b))
		return RULED;
	return b->arena == ARENA_WEIGHTS || b->arena == ARENA_STATE ? COPY : INPUTS;
}

/* Places each buffer in its part: offsets [p->n_bufs]. */
static Layout lay_out(const Phase *p, int64_t *offsets)
{
	Layout l = {.n_ruled = 1, .n_copies = 1};
	int64_t *parts[] = {[OUTPUTS] = &l.outputs, [RULED] = &l.ruled, [INPUTS] = &l.inputs, [COPY] = &l.copy};
	for (int i = 0; i < p->n_bufs; i++) {
		int64_t *at = parts[part_of(p, i)];
		offsets[i] = *at;
		*at += (p->bufs[i].bytes + PLAN_BUF_ALIGN - 1) / PLAN_BUF_ALIGN * PLAN_BUF_ALIGN;
		if (strcmp(p->bufs[i].name, "kv") == 0)
			l.n_ruled = CHAIN_MOST;
		if (strcmp(p->bufs[i].name, "sampling") == 0 && l.n_ruled == 1)
			l.n_ruled = 2; /* greedy, sampled */
	}
	if (l.copy)
		l.n_copies = (int)((COLD_BYTES + l.copy - 1) / l.copy);
	if (l.n_copies > CHAIN_MOST)
		l.n_copies = CHAIN_MOST;
	return l;
}

static int64_t body_bytes(const Layout *l) { return l->inputs + l->copy * l->n_copies; }

/* Random bf16 numbers from 2^-7 to 1 with either sign; two of them are an f32 of that size, one an f16. */
static void fill_random(uint16_t *to, size_t n)
{
	uint64_t state = 0x2545F4914F6CDD1Du;
	for (size_t i = 0; i < n; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		to[i] = (uint16_t)(0x3c00 + (state & 0x807f) + (state >> 20) % 7 * 0x80);
	}
}

static AtlasStatus fill_pool(Tuner *t, int64_t bytes)
{
	int64_t piece = bytes < RANDOM_BYTES ? bytes : RANDOM_BYTES;
	uint16_t *numbers = malloc((size_t)piece + 1);
	if (!numbers)
		return ATLAS_NO_MEMORY;
	fill_random(numbers, (size_t)piece / sizeof *numbers);
	AtlasStatus s = ATLAS_OK;
	for (int64_t at = 0; at < bytes && s == ATLAS_OK; at += piece)
		s = timer_write(t->timer, t->pool + (CuPtr)at, numbers, bytes - at < piece ? bytes - at : piece);
	free(numbers);
	return s;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

AtlasStatus tune_start(LaunchTimer *timer, const Graph *g, const TargetPlan *set, const bool *wanted, Tuner **tuner)
{
	int64_t offsets[PLAN_MAX_OPERANDS], body = 0;
	Tuner *t = *tuner = aligned_alloc(_Alignof(Tuner), sizeof *t); /* as tensor maps among arguments want it */
	if (!t)
		return ATLAS_NO_MEMORY;
	*t = (Tuner){.timer = timer, .g = g, .set = set};
	for (int i = 0; i < set->n_phases; i++) {
		if (!wanted[i])
			continue;
		Layout l = lay_out(&set->phases[i], offsets);
		t->outputs_bytes = larger(t->outputs_bytes, l.outputs);
		t->ruled_bytes = larger(t->ruled_bytes, l.ruled * l.n_ruled);
		body = larger(body, body_bytes(&l));
	}
	t->ruled = malloc((size_t)t->ruled_bytes + 1);
	int64_t front = t->outputs_bytes + t->ruled_bytes;
	AtlasStatus s = t->ruled ? timer_memory(timer, front + body, &t->pool) : ATLAS_NO_MEMORY;
	if (s == ATLAS_OK)
		s = fill_pool(t, front + body);
	if (s != ATLAS_OK) {
		tune_end(t);
		*tuner = NULL;
	}
	return s;
}

void tune_end(Tuner *t)
{
	if (t)
		free(t->ruled);
	free(t);
}

static AtlasStatus write_ruled(Tuner *t, const Phase *p, const Layout *l, const int64_t *offsets)
{
	for (int n = 0; n < l->n_ruled; n++)
		for (int i = 0; i < p->n_bufs; i++)
			if (part_of(p, i) == RULED)
				tune_rule(t->g, p, &p->bufs[i], n, t->ruled + n * l->ruled + offsets[i]);
	return l->ruled ? timer_write(t->timer, t->pool + (CuPtr)t->outputs_bytes, t->ruled, l->n_ruled * l->ruled)
		: ATLAS_OK;
}

static AtlasStatus report(Tuner *t, CuResult r, const char *call)
{
	if (r != CU_SUCCESS)
		error_set(&t->error, driver_status(r), "%s failed: %s", call, driver_error(timer_view(t->timer)->cu, r));
	return driver_status(r);
}

/* Launch after launch on the copies in turn. */
static AtlasStatus make_chain(Tuner *t, int trial, const Layout *l, const int64_t *offsets)
{
	const int64_t body = t->outputs_bytes + t->ruled_bytes;
	const Kernel *k = &t->set->kernels[trial];
	Phase p = t->set->phases[trial];
	const Launch *launch = &p.launches[0];
	Buf bufs[PLAN_MAX_OPERANDS];
	CuPtr arena[ARENA_COUNT];
	CuKernel kernel;
	CuContext popped;
	const CudaView *v = timer_view(t->timer);
	AtlasStatus s = timer_kernel(t->timer, k, &kernel);
	if (s == ATLAS_OK)
		s = report(t, v->cu->CtxPushCurrent(v->context), "cuCtxPushCurrent");
	if (s != ATLAS_OK)
		return s;
	for (int a = 0; a < ARENA_COUNT; a++)
		arena[a] = t->pool;
	memcpy(bufs, p.bufs, sizeof *bufs * (size_t)p.n_bufs);
	for (int n = 0; n < CHAIN_MOST && s == ATLAS_OK; n++) {
		const int64_t starts[] = {[OUTPUTS] = 0, [RULED] = t->outputs_bytes + n % l->n_ruled * l->ruled,
			[INPUTS] = body, [COPY] = body + l->inputs + n % l->n_copies * l->copy};
		TimedLaunch *one = &t->chain[n];
		const char *about;
		*one = (TimedLaunch){.kernel = kernel, .smem_bytes = k->smem_bytes, .overlaps = launch->overlaps};
		memcpy(one->grid, launch->grid, sizeof one->grid);
		memcpy(one->block, k->block, sizeof one->block);
		for (int i = 0; i < p.n_bufs; i++)
			bufs[i].offset = starts[part_of(&t->set->phases[trial], i)] + offsets[i];
		p.bufs = bufs;
		s = report(t, cuda_fill_args(v->cu, arena, &p, launch, &one->args, &about), "cuTensorMapEncodeTiled");
	}
	v->cu->CtxPopCurrent(&popped);
	return s;
}

/* As many launches as take about CHAIN_US, by a first look at a few; an even number of them. */
static AtlasStatus choose_length(Tuner *t, int *n)
{
	LaunchTime few;
	AtlasStatus s = timer_measure(t->timer, t->chain, CHAIN_LEAST, 1, true, &few);
	if (s != ATLAS_OK)
		return s;
	double wanted = CHAIN_US / (few.us / CHAIN_LEAST) + 1;
	*n = wanted < CHAIN_LEAST ? CHAIN_LEAST : wanted > CHAIN_MOST ? CHAIN_MOST : (int)wanted / 2 * 2;
	return s;
}

AtlasStatus tune_time(Tuner *t, int trial, int reps, int *n, LaunchTime *one)
{
	int64_t offsets[PLAN_MAX_OPERANDS];
	const Phase *p = &t->set->phases[trial];
	Layout l = lay_out(p, offsets);
	AtlasStatus s = write_ruled(t, p, &l, offsets);
	if (s == ATLAS_OK)
		s = make_chain(t, trial, &l, offsets);
	if (s == ATLAS_OK && *n == 0)
		s = choose_length(t, n);
	if (s == ATLAS_OK)
		s = timer_measure(t->timer, t->chain, *n, reps, true, one);
	if (s == ATLAS_OK)
		*one = (LaunchTime){one->us / *n, one->low_us / *n, one->high_us / *n, reps};
	return s;
}
