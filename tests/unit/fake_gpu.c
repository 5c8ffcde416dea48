#include "tests/unit/fake_gpu.h"
#include "artifacts/peers.h"
#include "artifacts/schema.h"
#include "runtime/cpu/ref_ops.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The plan's kernel behind the driver's number: sessions load those of steps alone, in the plan's order. */
static int kernel_of(const FakeGpu *g, int number)
{
	const TargetPlan *t = &g->artifact->targets[0];
	int n = 0;
	for (int k = 0; k < t->n_kernels || (g->is_reopened && n > 0); k++) {
		k = k < t->n_kernels ? k : 0; /* the next session's */
		bool is_of_a_step = false;
		for (int p = 0; p < t->n_phases; p++)
			for (int i = 0; i < t->phases[p].n_launches && t->phases[p].kind != PROBE; i++)
				is_of_a_step |= t->phases[p].launches[i].kernel == k;
		n += is_of_a_step;
		if (is_of_a_step && number-- == 0)
			return k;
	}
	return 0; /* of a phase that a test loads besides */
}

static size_t param_bytes(void *ctx, int number)
{
	const FakeGpu *g = ctx;
	return (size_t)g->artifact->targets[0].kernels[kernel_of(g, number)].param_bytes;
}

static void *address(const void *params, const Arg *a)
{
	void *at;
	memcpy(&at, (const char *)params + a->field_offset, sizeof at);
	return at;
}

/* The arenas' addresses follow from any argument; a launch fits when all its arguments give the same ones. Layers that
 * lie equally far apart all do that, but only one of them has the whole arena of weights where memory is. */
static bool is_launch(const TargetPlan *t, const Phase *p, const Launch *l, const void *params)
{
	char *arena[ARENA_COUNT] = {0};
	for (int i = 0; i < l->n_args; i++) {
		char *at = address(params, &l->args[i]);
		if ((l->args[i].buf < 0) != !at)
			return false;
		if (!at)
			continue;
		const Buf *b = &p->bufs[l->args[i].buf];
		char *base = at - b->offset;
		if ((arena[b->arena] && arena[b->arena] != base) || !fake_is_allocated(at, (size_t)b->bytes))
			return false;
		arena[b->arena] = base;
	}
	return !arena[ARENA_WEIGHTS] || fake_is_allocated(arena[ARENA_WEIGHTS], (size_t)t->arena_bytes[ARENA_WEIGHTS]);
}

static const Launch *find_launch(const TargetPlan *t, int kernel, const void *params, const Phase **phase)
{
	for (int p = 0; p < t->n_phases; p++)
		for (int i = 0; i < t->phases[p].n_launches; i++) {
			const Launch *l = &t->phases[p].launches[i];
			if (l->kernel == kernel && is_launch(t, &t->phases[p], l, params)) {
				*phase = &t->phases[p];
				return l;
			}
		}
	abort();
}

/* As the kernel was compiled: "EPS=0x1.4f8b58p-17f HDIM=64". */
static Attrs attrs_of(const TargetPlan *t, const Launch *l)
{
	Attrs a = {0};
	for (int k = 0; k < n_attr_fields; k++) {
		const size_t n = strlen(attr_fields[k].label);
		for (const char *s = t->kernels[l->kernel].defines; s; s = strchr(s, ' ') ? strchr(s, ' ') + 1 : NULL) {
			if (strncmp(s, attr_fields[k].label, n) != 0 || s[n] != '=')
				continue;
			const float value = strtof(s + n + 1, NULL);
			const int32_t whole = (int32_t)strtol(s + n + 1, NULL, 10);
			memcpy((char *)&a + attr_fields[k].offset, attr_fields[k].kind == F_INT ? (const void *)&whole : &value, 4);
		}
	}
	return a;
}

static int64_t elements(const Buf *b) { return b->bytes / dtype_bytes(b->dtype); }

static uint16_t to_bf16(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to nearest, ties to even */
}

static bool draws_tokens(OpKind op) { return op_operand(op, "ring") >= 0; }

/* Fills the logits of a slot's outs, or of all (-1), with a byte: 0xff makes them NaN. */
static void spoil(const RefCall *c, int slot, int byte)
{
	const RefOperand *logits = &c->operand[op_operand(c->op, "logits")];
	const int32_t *out_row = c->operand[op_operand(c->op, "out_row")].data;
	const int32_t *row_slot = c->operand[op_operand(c->op, "row_slot")].data;
	for (int64_t o = 0; o < logits->shape[0]; o++)
		if (slot < 0 || (out_row[o] >= 0 && row_slot[out_row[o]] == slot))
			memset((float *)logits->data + o * logits->shape[1], byte, sizeof(float) * (size_t)logits->shape[1]);
}

/* Collectives as kernels/templates/ranks/peers.cuh has them, by one block: parts of all ranks into c->ranks. */
typedef struct Parts { const void *of[PLAN_MAX_RANKS]; float *floats[PLAN_MAX_RANKS]; } Parts;

static void wait_for_all(const uint32_t *own, uint32_t *const *arena, uint32_t epoch)
{
	const int n = (int)own[PEER_RANKS], rank = (int)own[PEER_RANK];
	uint32_t *stops;
	memcpy(&stops, own + PEER_ABORT, sizeof stops);
	for (int r = 0; r < n; r++)
		if (r != rank)
			__atomic_store_n(arena[r] + PEER_FLAGS + rank, epoch, __ATOMIC_RELEASE);
	for (int r = 0; r < n; r++)
		while (r != rank && (int32_t)(__atomic_load_n(own + PEER_FLAGS + r, __ATOMIC_ACQUIRE) - epoch) < 0 &&
			!__atomic_load_n(stops, __ATOMIC_RELAXED))
			usleep(20);
}

static void meet(const FakeGpu *g, const Buf *part, const void *own_part, uint32_t *own, int64_t words, RefCall *c,
	Parts *parts)
{
	const int n = (int)own[PEER_RANKS];
	const uint32_t epoch = ++own[PEER_EPOCH];
	const int64_t slot = PEER_SLOTS + (int64_t)(epoch & 1) * (words - PEER_SLOTS) / 2;
	uint32_t *arena[PLAN_MAX_RANKS];
	memcpy(arena, own + PEER_ARENAS, sizeof arena);
	memcpy(own + slot, own_part, (size_t)part->bytes);
	wait_for_all(own, arena, epoch);
	for (int r = 0; r < n; r++) {
		parts->floats[r] = g->driver->take((size_t)elements(part), sizeof(float));
		ref_convert(&(RefOperand){.data = arena[r] + slot, .dtype = part->dtype}, 0, elements(part), parts->floats[r]);
		parts->of[r] = parts->floats[r];
	}
	c->ranks = parts->of;
	c->n_ranks = n;
}

static const Arg *arg_of(const Launch *l, const char *name)
{
	const Arg *found = NULL;
	for (int i = 0; i < l->n_args; i++)
		found = l->args[i].operand == op_operand(l->op, name) ? &l->args[i] : found;
	return found;
}

static void meet_at(const FakeGpu *g, const Phase *p, const Launch *l, const void *params, RefCall *c, Parts *parts)
{
	const Arg *part = arg_of(l, "part"), *peers = arg_of(l, "peers");
	const bool is_own = peers && l->op != OP_sum_nccl && l->op != OP_gather_nccl;
	if (is_own && ((uint32_t *)address(params, peers))[PEER_RANKS] > 1)
		meet(g, &p->bufs[part->buf], address(params, part), address(params, peers), elements(&p->bufs[peers->buf]), c,
			parts);
}

/* The second shot: this rank has added all of z, but gives the others its piece and takes theirs of them. */
static void swap_pieces(const Buf *buf, uint8_t *z, uint32_t *own, int64_t words)
{
	const int n = (int)own[PEER_RANKS], rank = (int)own[PEER_RANK];
	const uint32_t epoch = ++own[PEER_EPOCH];
	const int64_t slot = PEER_SLOTS + (int64_t)(epoch & 1) * (words - PEER_SLOTS) / 2, each = dtype_bytes(buf->dtype);
	const int64_t from = elements(buf) * rank / n * each, to = elements(buf) * (rank + 1) / n * each;
	uint32_t *arena[PLAN_MAX_RANKS];
	memcpy(arena, own + PEER_ARENAS, sizeof arena);
	for (int r = 0; r < n; r++)
		if (r != rank)
			memcpy((uint8_t *)(arena[r] + slot) + from, z + from, (size_t)(to - from));
	wait_for_all(own, arena, epoch);
	memcpy(z, own + slot, (size_t)from);
	memcpy(z + to, (uint8_t *)(own + slot) + to, (size_t)(buf->bytes - to));
	own[PEER_EPOCH]++;
}

static void meet_again(const TargetPlan *t, const Phase *p, const Launch *l, const void *params)
{
	const Arg *z = arg_of(l, "z"), *peers = arg_of(l, "peers");
	if (peers && peers_in_two_shots(t->kernels[l->kernel].name) &&
		((uint32_t *)address(params, peers))[PEER_RANKS] > 1)
		swap_pieces(&p->bufs[z->buf], address(params, z), address(params, peers), elements(&p->bufs[peers->buf]));
}

static void execute(void *ctx, int number, const void *params)
{
	FakeGpu *g = ctx;
	const int kernel = kernel_of(g, number);
	const Phase *p;
	const TargetPlan *t = &g->artifact->targets[0];
	const Launch *l = find_launch(t, kernel, params, &p);
	if (g->is_lazy && l->op != OP_acquire && l->op != OP_embed_next && !draws_tokens(l->op))
		return;
	RefCall c = {.op = l->op, .attrs = attrs_of(t, l)};
	float *floats[PLAN_MAX_OPERANDS] = {0};
	for (int i = 0; i < l->n_args; i++) {
		if (l->args[i].buf < 0)
			continue;
		const Buf *b = &p->bufs[l->args[i].buf];
		RefOperand *o = &c.operand[l->args[i].operand];
		*o = (RefOperand){.data = address(params, &l->args[i]), .dtype = b->dtype, .n_dims = b->n_dims};
		memcpy(o->shape, b->shape, sizeof o->shape);
		if (b->dtype != DT_bf16 || b->arena == ARENA_WEIGHTS)
			continue;
		float *f = floats[l->args[i].operand] = g->driver->take((size_t)elements(b), sizeof *f);
		ref_convert(o, 0, elements(b), f);
		o->data = f;
		o->dtype = DT_f32;
		o->is_bf16 = true;
	}
	if (draws_tokens(l->op) && (g->is_lazy || g->spoiled))
		spoil(&c, g->is_lazy ? -1 : g->spoiled - 1, g->is_lazy ? 0 : 0xff);
	c.scratch = g->driver->take(ref_scratch_bytes(&c) + 16, 1);
	Parts parts = {{NULL}, {NULL}};
	meet_at(g, p, l, params, &c, &parts);
	ref_op(&c);
	for (int r = 0; r < PLAN_MAX_RANKS; r++)
		g->driver->give(parts.floats[r]);
	g->driver->give(c.scratch);
	const bool is_bad = g->bad_factor != 0 && l->op == g->bad_op && l->layer == g->bad_layer;
	for (int i = 0; i < l->n_args; i++) {
		OperandRole role = op_table[l->op].operands[l->args[i].operand].role;
		float *f = floats[l->args[i].operand];
		if (f && operand_is_written(role)) {
			uint16_t *to = address(params, &l->args[i]);
			const int64_t n = elements(&p->bufs[l->args[i].buf]);
			for (int64_t k = 0; k < n; k++)
				to[k] = to_bf16(is_bad ? f[k] * g->bad_factor : f[k]);
		}
		g->driver->give(f);
	}
	meet_again(t, p, l, params);
	g->n_executed++;
}

void fake_gpu_start(FakeGpu *gpu, FakeDriver *driver, const Artifact *artifact)
{
	*gpu = (FakeGpu){.driver = driver, .artifact = artifact};
	driver->ctx = gpu;
	driver->param_bytes = param_bytes;
	driver->execute = execute;
}
