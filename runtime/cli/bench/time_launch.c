/* time_launch.c - launches between two events, alone on the card (see time_launch.h).
 *
 * What is to be timed becomes a graph, so that launching it costs the host one call whatever it holds. The stream
 * then gets: the long read of the probe phase, a first event, the graph, a second event. The read keeps the GPU busy
 * for longer than the host needs to queue the rest, and leaves nothing else in the L2 cache; for a warm cache
 * the graph runs once more before the first event.
 */
#include "runtime/cli/bench/time_launch.h"
#include "artifacts/op_table.h"

#include <stdlib.h>
#include <string.h>

enum { FILL_BYTES = 4 << 20, WARM_RUNS = 2, BOUND_REPS = 9, BOUND_CHAIN = 4 };
enum { PROBE_PRODUCT, PROBE_LONG, PROBE_SHORT, PROBE_LAUNCHES /* products of codes follow */ }; /* plan.h */

typedef struct Loaded { int64_t cubin_offset; CuLibrary loaded; } Loaded;

struct LaunchTimer {
	CudaView v;
	AtlasError error;
	const Phase *probe;
	CuPtr probe_arena, probe_io; /* io: `step` of the probe phase, so that the session's stays as it is */
	uint8_t *stage;              /* pinned: what goes to the device lies here until the copy is done */
	CuPtr *memory; int n_memory; /* all that was taken, the two above among them */
	Loaded *loaded; int n_loaded;
	CuEvent start, stop;
	TimedLaunch flush;           /* the long read */
};

static AtlasStatus fail(LaunchTimer *t, CuResult r, const char *call, const char *about)
{
	return error_set(&t->error, driver_status(r), "%s failed (%s): %s", call, about, driver_error(t->v.cu, r));
}

#define CALL(t, about, fn, ...) \
	do { \
		CuResult call_result = (t)->v.cu->fn(__VA_ARGS__); \
		if (call_result != CU_SUCCESS) \
			return fail(t, call_result, "cu" #fn, about); \
	} while (0)
#define TRY(expression) \
	do { \
		AtlasStatus try_status = (expression); \
		if (try_status != ATLAS_OK) \
			return try_status; \
	} while (0)

static AtlasStatus enter(LaunchTimer *t)
{
	CALL(t, "timer", CtxPushCurrent, t->v.context);
	return ATLAS_OK;
}

static AtlasStatus leave(LaunchTimer *t, AtlasStatus s)
{
	CuContext popped;
	t->v.cu->CtxPopCurrent(&popped);
	return s;
}

const AtlasError *timer_error(const LaunchTimer *timer) { return &timer->error; }
const CudaView *timer_view(const LaunchTimer *timer) { return &timer->v; }

/* Memory ------------------------------------------------------------------------------------------------ */

static AtlasStatus take(LaunchTimer *t, int64_t bytes, CuPtr *at)
{
	CuPtr *list = realloc(t->memory, sizeof *list * (size_t)(t->n_memory + 1));
	if (!list)
		return error_set(&t->error, ATLAS_NO_MEMORY, "no memory for a list of %d allocations", t->n_memory + 1);
	t->memory = list;
	CALL(t, "buffers to measure with", MemAlloc, at, (size_t)bytes);
	t->memory[t->n_memory++] = *at;
	return ATLAS_OK;
}

AtlasStatus timer_memory(LaunchTimer *t, int64_t bytes, CuPtr *at)
{
	TRY(enter(t));
	return leave(t, take(t, bytes, at));
}

static AtlasStatus copy_in(LaunchTimer *t, CuPtr to, const void *from, int64_t bytes)
{
	for (int64_t at = 0; at < bytes; at += FILL_BYTES) {
		int64_t n = bytes - at < FILL_BYTES ? bytes - at : FILL_BYTES;
		memcpy(t->stage, (const uint8_t *)from + at, (size_t)n);
		CALL(t, "buffers to measure with", MemcpyHtoDAsync, to + (CuPtr)at, t->stage, (size_t)n, t->v.stream);
		CALL(t, "buffers to measure with", StreamSynchronize, t->v.stream);
	}
	return ATLAS_OK;
}

AtlasStatus timer_write(LaunchTimer *t, CuPtr to, const void *from, int64_t bytes)
{
	TRY(enter(t));
	return leave(t, copy_in(t, to, from, bytes));
}

/* bf16 numbers, nearly normal, of standard deviation 1/8: a product of 8192 of them stays near one. Never zeros:
 * multiplying zeros takes less power, hence less time. */
static void fill_random(uint16_t *to, size_t n)
{
	uint64_t state = 1;
	for (size_t i = 0; i < n; i++) {
		uint64_t z = state += 0x9E3779B97F4A7C15u; /* splitmix64 */
		z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
		z = (z ^ z >> 27) * 0x94D049BB133111EBu;
		z ^= z >> 31;
		float sum = 0;
		for (int k = 0; k < 64; k += 16)
			sum += (float)(int16_t)(z >> k) * 0x1p-15f;
		sum *= 0.108f;
		uint32_t bits;
		memcpy(&bits, &sum, sizeof bits);
		to[i] = (uint16_t)(bits >> 16);
	}
}

/* Numbers of a dtype, never zeros all over nor NaN; scales are positive and small. */
static void fill_dtype(Dtype dtype, bool is_scale, uint8_t *to, size_t n)
{
	fill_random((uint16_t *)(void *)to, n / sizeof(uint16_t));
	for (size_t i = 0; dtype == DT_e4m3 && i < n; i++) { /* two octaves below 2: sign, then 0x28 to 0x47 */
		const uint32_t mixed = (uint32_t)(i + 1) * 2654435761u;
		to[i] = (uint8_t)((is_scale ? 0 : mixed >> 24 & 0x80) | (0x28 + (mixed >> 19 & 0x1f)));
	}
	for (size_t i = 0; dtype == DT_f32 && i + 4 <= n; i += 4) {
		const float scale = 0x1p-6f * (1 + (float)(to[i] & 63) * 0x1p-6f);
		memcpy(to + i, &scale, sizeof scale);
	}
}

/* The same numbers again and again: a multiplier does not know. */
static AtlasStatus fill_buf(LaunchTimer *t, const Buf *b, bool is_scale)
{
	fill_dtype(b->dtype, is_scale, t->stage, b->bytes < FILL_BYTES ? (size_t)b->bytes : FILL_BYTES);
	for (int64_t at = 0; at < b->bytes; at += FILL_BYTES)
		CALL(t, "probe arena", MemcpyHtoDAsync, t->probe_arena + (CuPtr)(b->offset + at), t->stage,
			(size_t)(b->bytes - at < FILL_BYTES ? b->bytes - at : FILL_BYTES), t->v.stream);
	CALL(t, "probe arena", StreamSynchronize, t->v.stream); /* the stage is filled again */
	return ATLAS_OK;
}

/* What the launch reads: launches of the phase share memory. */
static AtlasStatus fill_operands(LaunchTimer *t, const Launch *l)
{
	for (int i = 0; i < l->n_args; i++) {
		const Buf *b = l->args[i].buf < 0 ? NULL : &t->probe->bufs[l->args[i].buf];
		const OperandInfo *o = &op_table[l->op].operands[l->args[i].operand];
		if (b && b->arena == ARENA_PROBE && o->role != OPERAND_OUT)
			TRY(fill_buf(t, b, strstr(o->name, "scale") || strstr(o->name, "block")));
	}
	return ATLAS_OK;
}

/* What the long read reads: bf16 numbers. */
static AtlasStatus fill_probe(LaunchTimer *t, int64_t bytes)
{
	const Buf all = {.dtype = DT_bf16, .bytes = bytes};
	return fill_buf(t, &all, false);
}

static AtlasStatus take_probe(LaunchTimer *t)
{
	int64_t io_bytes = 0, bytes = t->v.plan->arena_bytes[ARENA_PROBE];
	int step_at = 0;
	for (int i = 0; i < t->probe->n_bufs; i++) {
		const Buf *b = &t->probe->bufs[i];
		if (b->arena != ARENA_IO)
			continue;
		step_at = (int)b->offset;
		io_bytes = b->offset + b->bytes > io_bytes ? b->offset + b->bytes : io_bytes;
	}
	TRY(take(t, bytes, &t->probe_arena));
	TRY(fill_probe(t, bytes));
	TRY(take(t, io_bytes, &t->probe_io));
	const int32_t step[4] = {t->probe->rows};
	return copy_in(t, t->probe_io + (CuPtr)step_at, step, sizeof step);
}

/* Kernels and launches ----------------------------------------------------------------------------------- */

static AtlasStatus load_cubin(LaunchTimer *t, const Kernel *k, CuLibrary *library)
{
	const Section *cubins = artifact_section(t->v.artifact, "cubins");
	for (int i = 0; i < t->n_loaded; i++)
		if (t->loaded[i].cubin_offset == k->cubin_offset) {
			*library = t->loaded[i].loaded;
			return ATLAS_OK;
		}
	Loaded *list = realloc(t->loaded, sizeof *list * (size_t)(t->n_loaded + 1));
	if (!list)
		return error_set(&t->error, ATLAS_NO_MEMORY, "no memory for a list of %d kernels", t->n_loaded + 1);
	t->loaded = list;
	CALL(t, k->name, LibraryLoadData, library, t->v.artifact->file + cubins->offset + k->cubin_offset, NULL, NULL, 0,
		NULL, NULL, 0);
	t->loaded[t->n_loaded++] = (Loaded){k->cubin_offset, *library};
	return ATLAS_OK;
}

static AtlasStatus load_kernel(LaunchTimer *t, const Kernel *k, CuKernel *kernel)
{
	CuLibrary library;
	TRY(load_cubin(t, k, &library));
	CALL(t, k->name, LibraryGetKernel, kernel, library, k->entry);
	if (k->smem_bytes > 0)
		CALL(t, k->name, KernelSetAttribute, CU_KERNEL_MAX_DYNAMIC_SMEM, k->smem_bytes, *kernel, t->v.device);
	return ATLAS_OK;
}

AtlasStatus timer_kernel(LaunchTimer *t, const Kernel *k, CuKernel *kernel)
{
	TRY(enter(t));
	return leave(t, load_kernel(t, k, kernel));
}

static AtlasStatus make_launch(LaunchTimer *t, const Phase *p, const Launch *l, TimedLaunch *out)
{
	const Kernel *k = &t->v.plan->kernels[l->kernel];
	const char *about = "";
	CuPtr arena[ARENA_COUNT];
	memcpy(arena, p->kind == DRAFT ? t->v.draft_arena : t->v.arena, sizeof arena);
	if (p->kind == PROBE) {
		arena[ARENA_PROBE] = t->probe_arena;
		arena[ARENA_IO] = t->probe_io;
	}
	*out = (TimedLaunch){.smem_bytes = k->smem_bytes};
	memcpy(out->grid, l->grid, sizeof out->grid);
	memcpy(out->block, k->block, sizeof out->block);
	TRY(load_kernel(t, k, &out->kernel));
	CuResult r = cuda_fill_args(t->v.cu, arena, p, l, &out->args, &about);
	return r == CU_SUCCESS ? ATLAS_OK : fail(t, r, "cuTensorMapEncodeTiled", about);
}

AtlasStatus timer_launch(LaunchTimer *t, const Phase *p, const Launch *l, TimedLaunch *out)
{
	TRY(enter(t));
	return leave(t, make_launch(t, p, l, out));
}

static AtlasStatus launch(LaunchTimer *t, const TimedLaunch *l)
{
	void *params[] = {(void *)(uintptr_t)&l->args};
	CALL(t, "a single launch", LaunchKernel, l->kernel, (unsigned)l->grid[0], (unsigned)l->grid[1],
		(unsigned)l->grid[2], (unsigned)l->block[0], (unsigned)l->block[1], (unsigned)l->block[2],
		(unsigned)l->smem_bytes, t->v.stream, params, NULL);
	return ATLAS_OK;
}

AtlasStatus timer_run(LaunchTimer *t, const TimedLaunch *l)
{
	TRY(enter(t));
	return leave(t, launch(t, l));
}

/* Measuring ---------------------------------------------------------------------------------------------- */

/* A chain: each waits for the one before, or starts early where it says so. */
static AtlasStatus fill_graph(LaunchTimer *t, CuGraph graph, const TimedLaunch *launches, int n)
{
	CuGraphNode before = NULL, node;
	for (int i = 0; i < n; i++, before = node) {
		const TimedLaunch *l = &launches[i];
		void *params[] = {(void *)(uintptr_t)&l->args};
		CuKernelNode made = {.smem_bytes = (unsigned)l->smem_bytes, .params = params, .kern = l->kernel,
			.ctx = t->v.context};
		for (int d = 0; d < 3; d++) {
			made.grid[d] = (unsigned)l->grid[d];
			made.block[d] = (unsigned)l->block[d];
		}
		bool is_plain = i > 0 && !l->overlaps;
		CALL(t, "timed launches", GraphAddKernelNode, &node, graph, is_plain ? &before : NULL, is_plain, &made);
		CuGraphEdge edge = {.from_port = CU_KERNEL_PORT_PROGRAMMATIC, .type = CU_EDGE_PROGRAMMATIC};
		if (i > 0 && l->overlaps)
			CALL(t, "timed launches", GraphAddDependencies, graph, &before, &node, &edge, 1);
	}
	return ATLAS_OK;
}

static AtlasStatus build(LaunchTimer *t, const TimedLaunch *launches, int n, CuGraphExec *exec)
{
	CuGraph graph;
	CALL(t, "timed launches", GraphCreate, &graph, 0);
	AtlasStatus s = fill_graph(t, graph, launches, n);
	CuResult r = s == ATLAS_OK ? t->v.cu->GraphInstantiateWithFlags(exec, graph, 0) : CU_SUCCESS;
	t->v.cu->GraphDestroy(graph);
	return r == CU_SUCCESS ? s : fail(t, r, "cuGraphInstantiate", "timed launches");
}

static AtlasStatus time_once(LaunchTimer *t, CuGraphExec exec, bool is_cold, float *ms)
{
	TRY(launch(t, &t->flush));
	if (!is_cold)
		CALL(t, "timed launches", GraphLaunch, exec, t->v.stream);
	CALL(t, "timed launches", EventRecord, t->start, t->v.stream);
	CALL(t, "timed launches", GraphLaunch, exec, t->v.stream);
	CALL(t, "timed launches", EventRecord, t->stop, t->v.stream);
	CALL(t, "timed launches", EventSynchronize, t->stop);
	CALL(t, "timed launches", EventElapsedTime, ms, t->start, t->stop);
	return ATLAS_OK;
}

static int compare_ms(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static AtlasStatus time_many(LaunchTimer *t, CuGraphExec exec, int reps, bool is_cold, LaunchTime *out)
{
	float *ms = malloc(sizeof *ms * (size_t)reps), unused;
	if (!ms)
		return error_set(&t->error, ATLAS_NO_MEMORY, "no memory for %d times", reps);
	AtlasStatus s = ATLAS_OK;
	for (int i = 0; i < WARM_RUNS && s == ATLAS_OK; i++)
		s = time_once(t, exec, is_cold, &unused);
	for (int i = 0; i < reps && s == ATLAS_OK; i++)
		s = time_once(t, exec, is_cold, &ms[i]);
	if (s == ATLAS_OK) {
		qsort(ms, (size_t)reps, sizeof *ms, compare_ms);
		*out = (LaunchTime){.us = 500 * ((double)ms[(reps - 1) / 2] + (double)ms[reps / 2]),
			.low_us = 1e3 * (double)ms[reps / 4], .high_us = 1e3 * (double)ms[reps - 1 - reps / 4], .reps = reps};
	}
	free(ms);
	return s;
}

static AtlasStatus measure(LaunchTimer *t, const TimedLaunch *launches, int n, int reps, bool is_cold, LaunchTime *out)
{
	CuGraphExec exec;
	TRY(build(t, launches, n, &exec));
	AtlasStatus s = ATLAS_OK;
	CuResult r = t->v.cu->GraphUpload(exec, t->v.stream);
	if (r != CU_SUCCESS)
		s = fail(t, r, "cuGraphUpload", "timed launches");
	if (s == ATLAS_OK)
		s = time_many(t, exec, reps, is_cold, out);
	if (s != ATLAS_OK)
		t->v.cu->StreamSynchronize(t->v.stream); /* nothing may still use what is destroyed */
	t->v.cu->GraphExecDestroy(exec);
	return s;
}

AtlasStatus timer_measure(LaunchTimer *t, const TimedLaunch *launches, int n, int reps, bool is_cold, LaunchTime *out)
{
	TRY(enter(t));
	return leave(t, measure(t, launches, n, reps, is_cold, out));
}

/* TFLOP/s of a product of the probe phase. */
static AtlasStatus measure_product(LaunchTimer *t, const Launch *l, double *tflops)
{
	TimedLaunch chain[BOUND_CHAIN], one;
	LaunchTime time;
	TRY(enter(t));
	TRY(leave(t, fill_operands(t, l)));
	TRY(timer_launch(t, t->probe, l, &one));
	for (int i = 0; i < BOUND_CHAIN; i++)
		chain[i] = one;
	TRY(timer_measure(t, chain, BOUND_CHAIN, BOUND_REPS, false, &time));
	*tflops = BOUND_CHAIN * (double)l->flops / time.us * 1e-6;
	return ATLAS_OK;
}

static bool has_operand(const Launch *l, const char *name)
{
	const int k = op_operand(l->op, name);
	for (int i = 0; i < l->n_args; i++)
		if (l->args[i].operand == k && l->args[i].buf >= 0)
			return true;
	return false;
}

AtlasStatus timer_bounds(LaunchTimer *t, TimerBounds *out)
{
	const Launch *l = t->probe->launches;
	TimedLaunch chain[BOUND_CHAIN], one;
	LaunchTime read, least;
	TimerBounds found = {0};
	TRY(timer_launch(t, t->probe, &l[PROBE_LONG], &one));
	for (int i = 0; i < BOUND_CHAIN; i++)
		chain[i] = one;
	TRY(timer_measure(t, chain, BOUND_CHAIN, BOUND_REPS, false, &read));
	found.read_gbps = BOUND_CHAIN * (double)l[PROBE_LONG].read_bytes / read.us * 1e-3;
	TRY(measure_product(t, &l[PROBE_PRODUCT], &found.gemm_tflops));
	for (int i = PROBE_LAUNCHES; i < t->probe->n_launches; i++)
		TRY(measure_product(t, &l[i], has_operand(&l[i], "x_block") ? &found.fp4_tflops : &found.fp8_tflops));
	TRY(timer_launch(t, t->probe, &l[PROBE_SHORT], &one));
	TRY(timer_measure(t, &one, 1, BOUND_REPS, true, &least));
	found.launch_us = least.us;
	*out = found;
	return ATLAS_OK;
}

/* Life --------------------------------------------------------------------------------------------------- */

static AtlasStatus prepare(LaunchTimer *t)
{
	CALL(t, "timer", EventCreate, &t->start, 0);
	CALL(t, "timer", EventCreate, &t->stop, 0);
	void *stage;
	CALL(t, "pinned staging", MemHostAlloc, &stage, FILL_BYTES, 0);
	t->stage = stage;
	TRY(take_probe(t));
	return make_launch(t, t->probe, &t->probe->launches[PROBE_LONG], &t->flush);
}

static AtlasStatus open_timer(LaunchTimer *t, Device *device)
{
	if (!cuda_view(device, &t->v))
		return error_set(&t->error, ATLAS_UNSUPPORTED, strcmp(device->ops->kind, "cuda") == 0
			? "a plan of several ranks: what is timed alone on rank 0 would wait for the others"
			: "device %s has no launches to time", device->ops->kind);
	for (int i = 0; i < t->v.plan->n_phases; i++)
		if (t->v.plan->phases[i].kind == PROBE)
			t->probe = &t->v.plan->phases[i];
	static const OpKind ops[PROBE_LAUNCHES] = {[PROBE_PRODUCT] = OP_linear_residual, [PROBE_LONG] = OP_read_probe,
		[PROBE_SHORT] = OP_read_probe};
	bool is_known = t->probe && t->probe->n_launches >= PROBE_LAUNCHES;
	for (int i = 0; is_known && i < t->probe->n_launches; i++)
		is_known = t->probe->launches[i].op == (i < PROBE_LAUNCHES ? ops[i] : OP_linear_residual);
	if (!is_known)
		return error_set(&t->error, ATLAS_UNSUPPORTED,
			"the plan has no phase to measure the GPU with: compile it again");
	TRY(enter(t));
	return leave(t, prepare(t));
}

AtlasStatus timer_open(Device *device, LaunchTimer **timer, AtlasError *error)
{
	LaunchTimer *t = aligned_alloc(_Alignof(LaunchTimer), sizeof *t);
	*timer = NULL;
	if (!t)
		return error_set(error, ATLAS_NO_MEMORY, "no memory for a timer");
	*t = (LaunchTimer){0};
	AtlasStatus s = open_timer(t, device);
	if (s != ATLAS_OK) {
		if (error)
			*error = t->error;
		timer_close(t);
		return s;
	}
	*timer = t;
	return ATLAS_OK;
}

void timer_close(LaunchTimer *t)
{
	CuContext popped;
	if (!t)
		return;
	const Driver *cu = t->v.cu;
	if (cu && cu->CtxPushCurrent(t->v.context) == CU_SUCCESS) {
		cu->StreamSynchronize(t->v.stream);
		for (int i = 0; i < t->n_loaded; i++)
			cu->LibraryUnload(t->loaded[i].loaded);
		for (int i = 0; i < t->n_memory; i++)
			cu->MemFree(t->memory[i]);
		if (t->stage)
			cu->MemFreeHost(t->stage);
		if (t->start)
			cu->EventDestroy(t->start);
		if (t->stop)
			cu->EventDestroy(t->stop);
		cu->CtxPopCurrent(&popped);
	}
	free(t->loaded);
	free(t->memory);
	free(t);
}
