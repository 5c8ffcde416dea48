/* cuda.c - the GPU: memory, weights, kernels and one graph a phase, then replays.
 *
 * Opening does everything that can fail for a reason of the machine, in this order: driver, device, architecture,
 * memory. Each arena is one allocation of the size the plan says. A phase becomes a CUDA graph node by node
 * (cuda_graph.c). A step that speculates is one graph of two, draft and verify, of which each has its own image of the
 * inputs. A step sends its inputs in one piece, unless they are those of the step before, and launches one
 * graph; its results arrive in the ring, memory of the host that the kernels write to. Decode steps take their tokens
 * from the device, so any number of them can be on the stream before a result is looked at. The context is the
 * device's primary one, current only during our calls.
 */
#include "artifacts/memory.h"
#include "artifacts/numbers.h"
#include "artifacts/op_table.h"
#include "artifacts/seconds.h"
#include "runtime/cuda_graph.h"
#include "runtime/cuda_pages.h"
#include "runtime/cuda_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	AHEAD_MOST = PLAN_RING_ENTRIES / 2, /* decode steps in flight */
	ROW_STEPS = 4, /* of a graph that holds several */
	LOAD_THREADS = 8, /* that copy weights to pinned buffers: enough for a PCIe 5 link */
	MAKE_THREADS = 32, /* that make random ones there, at about 2 GB/s each */
	STAGE_BYTES = 8 << 20, /* of each of two pinned buffers: 8 MiB keep a PCIe 5 link busy */
};

typedef struct Span { int64_t from, to; } Span; /* bytes */
typedef struct LoadedCubin { int64_t offset; CuLibrary loaded; } LoadedCubin;

typedef struct Cuda {
	Device base;
	Driver cu;
	const Artifact *artifact;
	const TargetPlan *plan;
	CuDevice device;
	CuContext context;
	CuStream stream;
	CuEvent staged[2];
	CuPtr arena[ARENA_COUNT]; /* the ring's is `ring`: with unified addressing a pinned place has one address */
	CuPtr snapshots;          /* [graph.snapshots] one after the other; 0 = there are none */
	CuPtr draft_arena[ARENA_COUNT]; /* those of phase DRAFT: the same, but for its io */
	uint8_t *host_io;   /* pinned image of the io arena, followed by that of DRAFT's */
	int32_t *unread_seg; /* after it: the session's `seg` where no kernel reads it */
	uint8_t *ring;      /* pinned, mapped */
	Span *inputs;       /* [plan->n_phases] the part of the io arena that a phase reads before writing it */
	uint32_t *masks;    /* pinned, of each row of a slot (PageRoad) */
	uint8_t *stage[2];  /* pinned; weights go through them at open, results of read and trace later */
	LoadedCubin *cubins; int n_cubins;
	CuKernel *kernels;  /* [plan->n_kernels] */
	CuGraphExec *graphs; /* [plan->n_phases]; of VERIFY with the drafts before it */
	CuGraphExec *rests;  /* [plan->n_phases] of VERIFY with such, without them */
	CuGraphExec row; int row_phase; /* ROW_STEPS decode steps of one phase; NULL = none */
	int last_phase;     /* whose buffers hold the last step; -1 = none */
	int smem_limit;     /* bytes a block may ask for on this device */
	bool has_context;
	RankGroup *ranks;   /* NULL = one rank */
	CudaPeers peers;
	int32_t *rank;      /* input of that name; NULL = there is none */
	CudaPages pages;
	PageRoad road;      /* of these, by the first stage */
	const DeviceWatch *watch; /* NULL = none */
	CudaHaltFn *halt; void *halt_ctx; int halt_phase; /* cuda_halt */
	const CuPtr *halted_arena; /* of the launch that a step halts at */
} Cuda;

static AtlasStatus cuda_fail(Cuda *c, CuResult r, const char *call, const char *about)
{
	return error_set(&c->base.error, driver_status(r), "%s failed (%s%s%s): %s", call, about,
		*about ? ", " : "", c->base.name[0] ? c->base.name : "no device yet", driver_error(&c->cu, r));
}

/* Calls the driver; on failure returns from the function around it. */
#define CALL(c, about, fn, ...) \
	do { \
		CuResult call_result = (c)->cu.fn(__VA_ARGS__); \
		if (call_result != CU_SUCCESS) \
			return cuda_fail(c, call_result, "cu" #fn, about); \
	} while (0)
#define TRY(expression) \
	do { \
		AtlasStatus try_status = (expression); \
		if (try_status != ATLAS_OK) \
			return try_status; \
	} while (0)

/* Choosing the device ------------------------------------------------------------------------------- */

static void list_targets(const Artifact *a, char *text, size_t n)
{
	size_t at = (size_t)snprintf(text, n, a->n_targets ? "" : "the reference device only");
	for (int i = 0; i < a->n_targets && at < n; i++)
		at += (size_t)snprintf(text + at, n - at, i ? ", %s" : "%s", a->targets[i].target);
}

static AtlasStatus choose_device(Cuda *c, int index)
{
	int version, count, major, minor;
	char targets[128];
	CALL(c, "", Init, 0);
	CALL(c, "", DriverGetVersion, &version);
	if (version < DRIVER_VERSION_MIN)
		return error_set(&c->base.error, ATLAS_DRIVER_OLD, "the driver supports CUDA %d.%d: %d.%d or later is needed",
			version / 1000, version % 1000 / 10, DRIVER_VERSION_MIN / 1000,
			DRIVER_VERSION_MIN % 1000 / 10);
	CALL(c, "", DeviceGetCount, &count);
	if (index < 0 || index >= count)
		return error_set(&c->base.error, ATLAS_NO_DEVICE, "GPU %d: the driver shows %d", index, count);
	CALL(c, "", DeviceGet, &c->device, index);
	CALL(c, "", DeviceGetName, c->base.name, sizeof c->base.name, c->device);
	CALL(c, "", DeviceGetAttribute, &major, CU_ATTR_CC_MAJOR, c->device);
	CALL(c, "", DeviceGetAttribute, &minor, CU_ATTR_CC_MINOR, c->device);
	CALL(c, "", DeviceGetAttribute, &c->smem_limit, CU_ATTR_SMEM_OPTIN, c->device);
	c->plan = cuda_find_target(c->artifact, major, minor);
	list_targets(c->artifact, targets, sizeof targets);
	if (!c->plan)
		return error_set(&c->base.error, ATLAS_ARCH, "%s has compute capability %d.%d: the plan is for %s",
			c->base.name, major, minor, targets);
	c->base.target = c->plan->target;
	for (int i = 0; i < c->plan->n_kernels; i++) {
		const Kernel *k = &c->plan->kernels[i];
		if (k->smem_bytes + k->static_smem_bytes > c->smem_limit)
			return error_set(&c->base.error, ATLAS_ARCH, "kernel %s needs %d bytes of shared memory: %s has %d",
				k->name, k->smem_bytes + k->static_smem_bytes, c->base.name, c->smem_limit);
	}
	return ATLAS_OK;
}

/* Memory --------------------------------------------------------------------------------------------- */

static AtlasStatus take_memory(Cuda *c)
{
	int64_t bytes[ARENA_COUNT];
	size_t free_bytes, total_bytes;
	const int64_t snapshots = c->artifact->graph.snapshots * snapshot_bytes(&c->artifact->graph);
	int64_t need = snapshots + c->plan->arena_bytes[ARENA_PEER];
	memcpy(bytes, c->plan->arena_bytes, sizeof bytes);
	bytes[ARENA_IO] *= io_images(&c->artifact->graph);
	for (int i = 0; i < ARENA_RING; i++)
		need += bytes[i];
	CALL(c, "", MemGetInfo, &free_bytes, &total_bytes);
	if ((uint64_t)need > free_bytes)
		return error_set(&c->base.error, ATLAS_DEVICE_MEMORY,
			"%s: %.1f MiB needed (weights %.1f, state %.1f, scratch %.1f, io %.1f), %.1f of %.1f MiB free",
			c->base.name, (double)need / 1048576, (double)bytes[0] / 1048576,
			(double)(bytes[1] + snapshots) / 1048576, (double)bytes[2] / 1048576, (double)bytes[3] / 1048576,
			(double)free_bytes / 1048576, (double)total_bytes / 1048576);
	for (int i = 0; i < ARENA_RING; i++)
		if (bytes[i])
			CALL(c, arena_name((ArenaKind)i), MemAlloc, &c->arena[i], (size_t)bytes[i]);
	if (snapshots)
		CALL(c, "snapshots", MemAlloc, &c->snapshots, (size_t)snapshots);
	c->base.bytes = need;
	void *host;
	if (bytes[ARENA_RING]) {
		CALL(c, "ring", MemHostAlloc, &host, (size_t)bytes[ARENA_RING], DRIVER_HOST_MAPPED);
		memset(host, 0, (size_t)bytes[ARENA_RING]);
		c->ring = host;
		c->arena[ARENA_RING] = (CuPtr)(uintptr_t)host;
	}
	const size_t io_bytes = (size_t)bytes[ARENA_IO], seg_bytes = (size_t)c->artifact->graph.slots * 16;
	CALL(c, "pinned io", MemHostAlloc, &host, io_bytes + seg_bytes, 0);
	c->host_io = memset(host, 0, io_bytes + seg_bytes);
	void *seg = c->host_io + io_bytes;
	c->unread_seg = seg;
	const Graph *g = &c->artifact->graph;
	const int mask_rows = g->verify_rows ? g->verify_rows : 1;
	const size_t masks = (size_t)g->slots * (size_t)mask_rows * 4 * (size_t)mask_words(g);
	CALL(c, "pinned masks", MemHostAlloc, &host, masks, 0);
	c->masks = memset(host, 0, masks);
	for (int i = 0; i < 2; i++) {
		CALL(c, "pinned staging", MemHostAlloc, &host, STAGE_BYTES, 0);
		c->stage[i] = host;
	}
	for (int i = 0; i < ARENA_COUNT; i++) /* weights are copied, scratch is undefined at every step's start */
		if (bytes[i] && (i == ARENA_STATE || i == ARENA_IO))
			CALL(c, arena_name((ArenaKind)i), MemsetD8Async, c->arena[i], 0, (size_t)bytes[i], c->stream);
	c->road = (PageRoad){.cu = &c->cu, .stream = c->stream, .state = c->arena[ARENA_STATE], .stage = c->stage[0],
		.stage_bytes = STAGE_BYTES, .pages = &c->pages, .masks = c->masks,
		.mask_words = mask_words(g), .rows = mask_rows};
	memcpy(c->draft_arena, c->arena, sizeof c->arena);
	c->draft_arena[ARENA_IO] += (CuPtr)(bytes[ARENA_IO] - c->plan->arena_bytes[ARENA_IO]);
	return ATLAS_OK;
}

static AtlasStatus load_weights(Cuda *c, const DeviceConfig *config)
{
	const long processors = sysconf(_SC_NPROCESSORS_ONLN), most = config->random ? MAKE_THREADS : LOAD_THREADS;
	const WeightRoad road = {.cu = &c->cu, .stream = c->stream, .arena = c->arena[ARENA_WEIGHTS],
		.stage = {c->stage[0], c->stage[1]}, .staged = {c->staged[0], c->staged[1]}, .stage_bytes = STAGE_BYTES,
		.threads = (int)(processors < most ? processors : most),
		.compare = config->compares_weights ? c->artifact : NULL, .files = config->files, .unhashed = config->unhashed,
		.random = config->random, .seed = config->seed};
	const char *call = "", *about = "";
	const Artifact *a = c->artifact;
	CuResult r = c->ranks ? cuda_load_parts(&road, a, group_rank(c->ranks), config->weights, &call, &about)
		: cuda_load_weights(&road, &a->graph, config->weights, &call, &about);
	if (!call)
		return error_set(&c->base.error, ATLAS_INTEGRITY, "weight %.200s differs from the one that was compiled",
			about);
	return r == CU_SUCCESS ? ATLAS_OK : cuda_fail(c, r, call, about);
}

/* Kernels and graphs ------------------------------------------------------------------------------------ */

static AtlasStatus load_cubin(Cuda *c, const Kernel *k, CuLibrary *library)
{
	const Section *cubins = artifact_section(c->artifact, "cubins");
	for (int i = 0; i < c->n_cubins; i++)
		if (c->cubins[i].offset == k->cubin_offset) {
			*library = c->cubins[i].loaded;
			return ATLAS_OK;
		}
	CALL(c, k->name, LibraryLoadData, library, c->artifact->file + cubins->offset + k->cubin_offset, NULL,
		NULL, 0, NULL, NULL, 0);
	c->cubins[c->n_cubins++] = (LoadedCubin){k->cubin_offset, *library};
	return ATLAS_OK;
}

/* Kernels that only phase PROBE has are left alone. */
static bool is_of_a_step(const TargetPlan *t, int kernel)
{
	for (int p = 0; p < t->n_phases; p++)
		for (int i = 0; t->phases[p].kind != PROBE && i < t->phases[p].n_launches; i++)
			if (t->phases[p].launches[i].kernel == kernel)
				return true;
	return false;
}

static AtlasStatus load_kernels(Cuda *c)
{
	for (int i = 0; i < c->plan->n_kernels; i++) {
		const Kernel *k = &c->plan->kernels[i];
		if (!is_of_a_step(c->plan, i))
			continue;
		CuLibrary library;
		size_t offset, bytes;
		TRY(load_cubin(c, k, &library));
		CALL(c, k->name, LibraryGetKernel, &c->kernels[i], library, k->entry);
		CALL(c, k->name, KernelGetParamInfo, c->kernels[i], 0, &offset, &bytes);
		if (bytes != (size_t)k->param_bytes) /* the offset is that of its alignment */
			return error_set(&c->base.error, ATLAS_MALFORMED,
				"kernel %s takes %zu bytes of arguments, the plan passes %d", k->name, bytes, k->param_bytes);
		if (k->smem_bytes > 0)
			CALL(c, k->name, KernelSetAttribute, CU_KERNEL_MAX_DYNAMIC_SMEM, k->smem_bytes, c->kernels[i],
				c->device);
	}
	return ATLAS_OK;
}

CuResult cuda_fill_args(const Driver *cu, const CuPtr *arena, const Phase *p, const Launch *l, ArgImage *image,
	const char **about)
{
	memset(image, 0, sizeof *image);
	for (int i = 0; i < l->n_args; i++) {
		if (l->args[i].buf < 0)
			continue;
		const Buf *b = &p->bufs[l->args[i].buf];
		CuPtr at = arena[b->arena] + (CuPtr)b->offset;
		memcpy(image->bytes + l->args[i].field_offset, &at, sizeof at);
	}
	for (int i = 0; i < l->n_maps; i++) {
		const Buf *b = &p->bufs[l->maps[i].buf];
		CuResult r = driver_tensor_map(cu, image->bytes + l->maps[i].field_offset, arena[b->arena] + (CuPtr)b->offset,
			b->dtype, b->bytes, b->shape[b->n_dims - 1], l->maps[i].box);
		*about = b->name;
		if (r != CU_SUCCESS)
			return r;
	}
	return CU_SUCCESS;
}

/* The drafts before a verify step: the phase DRAFT of the same slots. -1: of another phase, or there is none. */
static int draft_of(const Cuda *c, int verify)
{
	for (int i = 0; i < c->plan->n_phases; i++)
		if (c->plan->phases[verify].kind == VERIFY && c->plan->phases[i].kind == DRAFT &&
			c->plan->phases[i].each == c->plan->phases[verify].each &&
			c->plan->phases[i].rows * c->plan->phases[i].each == c->plan->phases[verify].rows)
			return i;
	return -1;
}

static AtlasStatus build_graph(Cuda *c, int phase, int draft, int steps, CuGraphExec *exec)
{
	const GraphContext context = {&c->cu, c->plan, c->kernels, c->context, c->stream, c->peers.nccl, c->watch};
	GraphPart parts[2 * ROW_STEPS];
	int n = 0;
	for (int i = 0; i < steps; i++) {
		if (draft >= 0)
			parts[n++] = (GraphPart){&c->plan->phases[draft], c->draft_arena};
		parts[n++] = (GraphPart){&c->plan->phases[phase],
			c->plan->phases[phase].kind == DRAFT ? c->draft_arena : c->arena};
	}
	const char *call = "", *about = "";
	CuResult r = cuda_graph_build(&context, parts, n, exec, &call, &about);
	if (r == CU_OUT_OF_HOST_MEMORY)
		return error_set(&c->base.error, ATLAS_NO_MEMORY, "no memory for %d graph nodes",
			steps * c->plan->phases[phase].n_launches);
	return r == CU_SUCCESS ? ATLAS_OK : cuda_fail(c, r, call, about);
}

/* One step of each phase, a verify step with its drafts, and each of these two alone; besides a row of decode steps of
 * the smallest bucket, where a step is so short that the gap between two graphs shows. */
static AtlasStatus build_graphs(Cuda *c)
{
	bool has_decode = false;
	for (int i = 0; i < c->plan->n_phases; i++) {
		const Phase *p = &c->plan->phases[i];
		const int draft = draft_of(c, i);
		if (p->kind == PROBE)
			continue;
		if (p->kind == VERIFY && p->each > 1 && head_drafts(&c->artifact->graph) && draft < 0)
			return error_set(&c->base.error, ATLAS_MALFORMED, "verify[%d] has no drafts before it", p->rows);
		TRY(build_graph(c, i, draft, 1, &c->graphs[i]));
		if (draft >= 0)
			TRY(build_graph(c, i, -1, 1, &c->rests[i]));
		if (p->kind == DECODE && !has_decode && c->base.limits.ahead >= 2 * ROW_STEPS) {
			TRY(build_graph(c, i, -1, ROW_STEPS, &c->row));
			c->row_phase = i;
			c->base.limits.row = ROW_STEPS;
		}
		has_decode |= p->kind == DECODE;
	}
	return ATLAS_OK;
}

/* Steps ------------------------------------------------------------------------------------------------ */

/* The smallest bucket that holds the step, or -1. Phases of a kind with equal rows of a slot ascend. */
static int find_phase(const Cuda *c, const StepSize *size)
{
	int found = -1;
	for (int i = 0; i < c->plan->n_phases; i++) {
		const Phase *p = &c->plan->phases[i];
		bool is_wish = c->halt && i == c->halt_phase;
		if (p->kind == size->phase && p->each == size->each && p->rows >= size->rows && p->outs >= size->outs &&
			(found < 0 || is_wish))
			found = i;
	}
	return found;
}

/* Writes `step`, and makes the rows and outs of the bucket beyond the step idle. */
static void prepare_phase(Cuda *c, const StepSize *size)
{
	StepIo *io = &c->base.io;
	const Phase *p = &c->plan->phases[c->last_phase];
	io->step[0] = size->rows;
	io->step[1] = size->outs;
	io->step[2] = size->segs;
	io->step[3] = size->flags;
	if (c->rank)
		*c->rank = group_rank(c->ranks);
	for (int i = size->rows; i < p->rows; i++)
		io->row_slot[i] = -1;
	for (int i = size->rows; i < p->rows && size->phase == PREFILL; i++)
		io->row_token[i] = io->row_pos[i] = 0;
	for (int i = size->rows; i < p->rows && size->phase == PREFILL && io->row_next; i++)
		io->row_next[i] = 0;
	for (int i = size->outs; i < p->outs && i < io->n_out_rows; i++)
		io->out_row[i] = -1;
}

static AtlasStatus prepare(Cuda *c, const StepSize *size)
{
	c->last_phase = find_phase(c, size);
	if (c->last_phase < 0)
		return error_set(&c->base.error, ATLAS_UNSUPPORTED, "no %s phase for %d rows and %d outs",
			phase_name(size->phase), size->rows, size->outs);
	c->base.bucket = c->plan->phases[c->last_phase].rows;
	prepare_phase(c, size);
	return ATLAS_OK;
}

/* The place of an input in the image of the drafts, from that in the other one. */
static int32_t *of_drafts(const Cuda *c, int32_t *input)
{
	return (int32_t *)((char *)input + c->plan->arena_bytes[ARENA_IO]);
}

/* The drafts before a verify step are of the same slots, a row each. */
static void prepare_drafts(Cuda *c, const StepSize *size, int draft)
{
	const StepIo *io = &c->base.io;
	const int each = size->each, rows = size->rows / each;
	int32_t *row_slot = of_drafts(c, io->row_slot), *out_row = of_drafts(c, io->out_row);
	memcpy(of_drafts(c, io->step), (int32_t[]){rows, rows, 0, size->flags}, 4 * sizeof(int32_t));
	if (c->rank)
		*of_drafts(c, c->rank) = group_rank(c->ranks);
	for (int i = 0; i < c->plan->phases[draft].rows; i++)
		row_slot[i] = i < rows ? io->row_slot[i * each] : -1;
	for (int i = 0; i < c->plan->phases[draft].rows && i < io->n_out_rows; i++)
		out_row[i] = i < rows ? i : -1;
}

/* What a phase reads of its image, to the device's own. */
static AtlasStatus copy_image(Cuda *c, int phase, CuPtr to, const uint8_t *from)
{
	const Span s = c->inputs[phase];
	if (s.to > s.from)
		CALL(c, "inputs", MemcpyHtoDAsync, to + (CuPtr)s.from, from + s.from, (size_t)(s.to - s.from), c->stream);
	return ATLAS_OK;
}

static AtlasStatus copy_inputs(Cuda *c, const StepSize *size)
{
	const int draft = draft_of(c, c->last_phase);
	TRY(copy_image(c, c->last_phase, c->arena[ARENA_IO], c->host_io));
	if (draft < 0)
		return ATLAS_OK;
	prepare_drafts(c, size, draft);
	return copy_image(c, draft, c->draft_arena[ARENA_IO], c->host_io + c->plan->arena_bytes[ARENA_IO]);
}

static AtlasStatus launch_one(Cuda *c, const CuPtr *arena, const Phase *p, const Launch *l)
{
	const Kernel *k = &c->plan->kernels[l->kernel];
	ArgImage image;
	void *params[] = {&image};
	const char *about = "", *call = "cuTensorMapEncodeTiled";
	CuResult r = cuda_fill_args(&c->cu, arena, p, l, &image, &about);
	if (r == CU_SUCCESS && is_by_nccl(l->op))
		r = cuda_peers_sum(&(PeerSum){.nccl = c->peers.nccl, .stream = c->stream}, p, l, arena, &call, &about);
	if (r != CU_SUCCESS)
		return cuda_fail(c, r, call, about);
	CALL(c, k->name, LaunchKernel, c->kernels[l->kernel], (unsigned)l->grid[0], (unsigned)l->grid[1],
		(unsigned)l->grid[2], (unsigned)k->block[0], (unsigned)k->block[1], (unsigned)k->block[2],
		(unsigned)k->smem_bytes, c->stream, params, NULL);
	return ATLAS_OK;
}

static AtlasStatus halt_at(Cuda *c, const Phase *p, const Launch *l, bool is_after)
{
	const bool is_draft = c->halted_arena == c->draft_arena;
	CALL(c, "a step that halts", StreamSynchronize, c->stream);
	return c->halt(c->halt_ctx, p, l, is_draft ? of_drafts(c, c->base.io.step) : c->base.io.step, is_after);
}

static AtlasStatus launch_halting(Cuda *c, const Phase *p, const CuPtr *arena)
{
	c->halted_arena = arena;
	for (int i = 0; i < p->n_launches; i++) {
		TRY(halt_at(c, p, &p->launches[i], false));
		TRY(launch_one(c, arena, p, &p->launches[i]));
		TRY(halt_at(c, p, &p->launches[i], true));
	}
	return ATLAS_OK;
}

/* The logits of other rows of the step launched last. */
static AtlasStatus launch_outs(Cuda *c, const StepSize *size)
{
	const Phase *p = c->last_phase < 0 ? NULL : &c->plan->phases[c->last_phase];
	if (!p || p->kind != PREFILL || size->rows > p->rows || size->outs > p->outs)
		return error_set(&c->base.error, ATLAS_ARGUMENT, "the last step was not a prompt of %d rows and %d outs",
			size->rows, size->outs);
	int first = 0;
	while (first < p->n_launches && op_operand(p->launches[first].op, "out_row") < 0)
		first++;
	prepare_phase(c, size);
	TRY(copy_inputs(c, size));
	for (int i = first; i < p->n_launches; i++)
		if (cuda_is_of_outs(p, first, i))
			TRY(launch_one(c, c->arena, p, &p->launches[i]));
	return ATLAS_OK;
}

/* A step of the phase prepared last, with its drafts, or a part of it. */
static AtlasStatus halting_step(Cuda *c, StepPart part)
{
	const int draft = draft_of(c, c->last_phase);
	if (draft >= 0 && part != STEP_REST)
		TRY(launch_halting(c, &c->plan->phases[draft], c->draft_arena));
	return part == STEP_DRAFTS ? ATLAS_OK : launch_halting(c, &c->plan->phases[c->last_phase], c->arena);
}

static AtlasStatus launch_steps(Cuda *c, const StepSize *size, int n)
{
	if (size->flags & STEP_OUTS)
		return launch_outs(c, size);
	if (!size->is_same || (c->halt && size->part != STEP_REST)) {
		TRY(prepare(c, size));
		TRY(copy_inputs(c, size));
	}
	for (int i = 0; c->halt && i < n; i++)
		TRY(halting_step(c, size->part));
	if (c->halt)
		return ATLAS_OK;
	const int draft = draft_of(c, c->last_phase);
	const CuGraphExec exec = size->part == STEP_DRAFTS ? c->graphs[draft] : size->part == STEP_REST
		? c->rests[c->last_phase] : c->graphs[c->last_phase];
	for (int made = 0, row; made < n; made += row) {
		row = c->row && c->last_phase == c->row_phase && n - made >= ROW_STEPS ? ROW_STEPS : 1;
		CALL(c, phase_name(size->phase), GraphLaunch, row > 1 ? c->row : exec, c->stream);
		if (c->watch && draft >= 0 && size->part != STEP_REST)
			c->watch->launched(c->watch->ctx, draft, row);
		if (c->watch && size->part != STEP_DRAFTS)
			c->watch->launched(c->watch->ctx, c->last_phase, row);
	}
	return ATLAS_OK;
}

static AtlasStatus wait_for_all(Cuda *c)
{
	CALL(c, "steps", StreamSynchronize, c->stream);
	return ATLAS_OK;
}

static AtlasStatus look(Cuda *c, bool *is_busy)
{
	CuResult r = c->cu.StreamQuery(c->stream);
	*is_busy = r == CU_NOT_READY;
	return r == CU_SUCCESS || *is_busy ? ATLAS_OK : cuda_fail(c, r, "cuStreamQuery", "steps");
}

/* Elements [first, first + n) of a buffer; ends with the stream idle. */
static AtlasStatus read_buf(Cuda *c, const Buf *b, int64_t first, int64_t n, float *dst)
{
	int size = dtype_bytes(b->dtype);
	if (size == 0)
		return error_set(&c->base.error, ATLAS_UNSUPPORTED, "%s has elements of less than a byte", b->name);
	int64_t most = STAGE_BYTES / size;
	if (first < 0 || n < 0 || n > b->bytes / size - first)
		return error_set(&c->base.error, ATLAS_ARGUMENT, "elements %lld..%lld of %s, which has %lld",
			(long long)first, (long long)(first + n), b->name, (long long)(b->bytes / size));
	for (int64_t at = 0; at < n; at += most) {
		int64_t part = n - at < most ? n - at : most;
		CALL(c, b->name, MemcpyDtoHAsync, c->stage[0],
			c->arena[b->arena] + (CuPtr)(b->offset + (first + at) * size), (size_t)(part * size), c->stream);
		CALL(c, b->name, StreamSynchronize, c->stream);
		numbers_convert(b->dtype, c->stage[0], 0, part, dst + at);
	}
	return ATLAS_OK;
}

static AtlasStatus read_named(Cuda *c, const char *tensor, int64_t first, int64_t n, float *dst)
{
	const Phase *p = c->last_phase < 0 ? NULL : &c->plan->phases[c->last_phase];
	for (int i = 0; p && i < p->n_bufs; i++)
		if (strcmp(p->bufs[i].name, tensor) == 0)
			return read_buf(c, &p->bufs[i], first, n, dst);
	return error_set(&c->base.error, ATLAS_UNSUPPORTED, "the last step has no tensor %s", tensor);
}

/* What a launch leaves of the layer that it completes: as plan_check.c has it. */
static const Buf *output_of(const Phase *p, const Launch *l)
{
	char name[32];
	snprintf(name, sizeof name, "l%d.out", l->produces_layer);
	for (int i = 0; i < l->n_args; i++)
		if (l->args[i].buf >= 0 && strcmp(p->bufs[l->args[i].buf].name, name) == 0)
			return &p->bufs[l->args[i].buf];
	return NULL;
}

static AtlasStatus trace_launches(Cuda *c, const StepSize *size, DeviceLayerFn *fn, void *ctx)
{
	TRY(prepare(c, size));
	TRY(copy_inputs(c, size));
	const Phase *p = &c->plan->phases[c->last_phase];
	for (int i = 0; i < p->n_launches; i++) {
		const Launch *l = &p->launches[i];
		TRY(launch_one(c, c->arena, p, l));
		const Buf *b = l->produces_layer >= 0 ? output_of(p, l) : NULL;
		if (!b)
			continue;
		int64_t cols = b->bytes / dtype_bytes(b->dtype) / p->rows, n = cols * size->rows;
		float *hidden = malloc(sizeof *hidden * (size_t)n);
		AtlasStatus s = hidden ? read_buf(c, b, 0, n, hidden)
			: error_set(&c->base.error, ATLAS_NO_MEMORY, "no memory for a layer of %lld values", (long long)n);
		if (s == ATLAS_OK && fn(ctx, l->produces_layer, size->rows, (int)cols, hidden) != 0)
			s = ATLAS_STOPPED;
		free(hidden);
		if (s != ATLAS_OK) {
			c->cu.StreamSynchronize(c->stream);
			return s;
		}
	}
	CALL(c, "trace", StreamSynchronize, c->stream);
	return ATLAS_OK;
}

/* The interface ------------------------------------------------------------------------------------------ */

static AtlasStatus enter(Cuda *c)
{
	CALL(c, "", CtxPushCurrent, c->context);
	return ATLAS_OK;
}

static AtlasStatus leave(Cuda *c, AtlasStatus s)
{
	CuContext popped;
	c->cu.CtxPopCurrent(&popped);
	return s;
}

/* The body of an operation: a call with the context of the device, c, current. */
#define IN_CONTEXT(d, call) \
	Cuda *c = (Cuda *)(d); \
	TRY(enter(c)); \
	return leave(c, call)

static AtlasStatus put_pages(Cuda *c, int slot, int first, int n)
{
	const int64_t at = (int64_t)slot * c->artifact->graph.max_pages + first;
	CALL(c, "page table", MemcpyHtoDAsync, c->arena[ARENA_STATE] + (CuPtr)(c->pages.table + 4 * at),
		c->base.io.new_pages + at, 4 * (size_t)n, c->stream);
	return ATLAS_OK;
}

static AtlasStatus copy_pages(Cuda *c, const int32_t *pages, int n, uint8_t *bytes, bool is_back)
{
	const char *call = "";
	const CuResult r = cuda_copy_pages(&c->road, pages, n, bytes, is_back, &call);
	return r == CU_SUCCESS ? ATLAS_OK : cuda_fail(c, r, call, "pages");
}

static AtlasStatus cuda_launch(Device *d, const StepSize *size, int n) { IN_CONTEXT(d, launch_steps(c, size, n)); }
static AtlasStatus cuda_wait(Device *d) { IN_CONTEXT(d, wait_for_all(c)); }
static AtlasStatus cuda_look(Device *d, bool *is_busy) { IN_CONTEXT(d, look(c, is_busy)); }

static AtlasStatus cuda_trace(Device *d, const StepSize *size, DeviceLayerFn *fn, void *ctx)
{
	IN_CONTEXT(d, trace_launches(c, size, fn, ctx));
}

static AtlasStatus cuda_read(Device *d, const char *tensor, int64_t first, int64_t n, float *dst)
{
	IN_CONTEXT(d, read_named(c, tensor, first, n, dst));
}

static AtlasStatus cuda_put_pages(Device *d, int slot, int first, int n)
{
	IN_CONTEXT(d, put_pages(c, slot, first, n));
}

static AtlasStatus cuda_move_pages(Device *d, const int32_t *pages, int n, uint8_t *bytes, bool is_back)
{
	IN_CONTEXT(d, copy_pages(c, pages, n, bytes, is_back));
}

static AtlasStatus copied(Cuda *c, CuResult r, const char *call, const char *about)
{
	return leave(c, r == CU_SUCCESS ? ATLAS_OK : cuda_fail(c, r, call, about));
}

static AtlasStatus cuda_copy_page(Device *d, int32_t from, int32_t to)
{
	Cuda *c = (Cuda *)d;
	TRY(enter(c));
	return copied(c, cuda_clone_page(&c->road, from, to), "cuMemcpyDtoDAsync", "a page");
}

static AtlasStatus cuda_allow(Device *d, int slot, int row, const uint32_t *words)
{
	Cuda *c = (Cuda *)d;
	TRY(enter(c));
	return copied(c, cuda_put_mask(&c->road, slot, row, words), "cuMemcpyHtoDAsync", "a mask");
}

static AtlasStatus read_drafts(Cuda *c, int32_t *drafts)
{
	const size_t bytes = sizeof *drafts * (size_t)c->artifact->graph.slots * (size_t)(c->road.rows - 1);
	CALL(c, "drafts", MemcpyDtoHAsync, c->stage[0], c->arena[ARENA_STATE] + (CuPtr)c->pages.drafts, bytes, c->stream);
	CALL(c, "drafts", StreamSynchronize, c->stream);
	memcpy(drafts, c->stage[0], bytes);
	return ATLAS_OK;
}

static AtlasStatus cuda_read_drafts(Device *d, int32_t *drafts) { IN_CONTEXT(d, read_drafts(c, drafts)); }

static AtlasStatus cuda_note_tokens(Device *d, int slot, const int32_t *tokens, int n)
{
	Cuda *c = (Cuda *)d;
	const char *call = "";
	TRY(enter(c));
	const CuResult r = cuda_note_prompt(&c->road, c->artifact->graph.vocab, slot, tokens, n, &call);
	return copied(c, r, call, "counts");
}

static AtlasStatus cuda_keep_slot(Device *d, int slot, int position, int snapshot, bool is_back)
{
	Cuda *c = (Cuda *)d;
	TRY(enter(c));
	const CuPtr at = c->snapshots + (CuPtr)(snapshot * snapshot_bytes(&c->artifact->graph));
	return copied(c, cuda_keep_states(&c->road, slot, position, at, is_back), "cuMemcpyDtoDAsync", "states");
}

int64_t cuda_io_bytes(Device *d) { return ((Cuda *)d)->plan->arena_bytes[ARENA_IO]; }

/* With drafts, all: they have inputs of their own, made of these. */
uint8_t *cuda_image(Device *d, const StepSize *size, int64_t *from, int64_t *bytes)
{
	const Cuda *c = (Cuda *)d;
	const int phase = size->flags & STEP_OUTS ? c->last_phase : find_phase(c, size);
	const Span all = {0, cuda_io_bytes(d)}, s = phase < 0 || size->phase == VERIFY ? all : c->inputs[phase];
	*from = s.from;
	*bytes = s.to > s.from ? s.to - s.from : 0;
	return c->host_io;
}

void cuda_put_image(Device *d, const uint8_t *bytes, int64_t from, int64_t n)
{
	memcpy(((Cuda *)d)->host_io + from, bytes, (size_t)n);
}

static void give_back(Cuda *c)
{
	Driver *cu = &c->cu;
	if (c->stream)
		cu->StreamSynchronize(c->stream);
	for (int i = 0; c->graphs && i < 2 * c->plan->n_phases; i++)
		if (c->graphs[i])
			cu->GraphExecDestroy(c->graphs[i]);
	if (c->row)
		cu->GraphExecDestroy(c->row);
	for (int i = 0; i < c->n_cubins; i++)
		cu->LibraryUnload(c->cubins[i].loaded);
	for (int i = 0; i < ARENA_COUNT; i++)
		if (c->arena[i] && i != ARENA_RING && i != ARENA_PEER)
			cu->MemFree(c->arena[i]);
	cuda_peers_close(cu, c->ranks, &c->peers);
	if (c->snapshots)
		cu->MemFree(c->snapshots);
	if (c->ring)
		cu->MemFreeHost(c->ring);
	for (int i = 0; i < 2; i++) {
		if (c->stage[i])
			cu->MemFreeHost(c->stage[i]);
		if (c->staged[i])
			cu->EventDestroy(c->staged[i]);
	}
	if (c->host_io)
		cu->MemFreeHost(c->host_io);
	if (c->masks)
		cu->MemFreeHost(c->masks);
	if (c->stream)
		cu->StreamDestroy(c->stream);
}

/* Failures are ignored: a device that failed cannot give back more cleanly. */
static void cuda_close(Device *d)
{
	Cuda *c = (Cuda *)d;
	CuContext popped;
	if (c->has_context) {
		if (c->cu.CtxPushCurrent(c->context) == CU_SUCCESS) {
			give_back(c);
			c->cu.CtxPopCurrent(&popped);
		}
		c->cu.DevicePrimaryCtxRelease(c->device);
	}
	free(c->cubins);
	free(c->kernels);
	free(c->graphs);
	free(c->inputs);
	cuda_free_pages(&c->pages);
	free(c);
}

static const DeviceOps cuda_ops = {"cuda", cuda_launch, cuda_wait, cuda_look, cuda_trace, cuda_read, cuda_put_pages,
	cuda_allow, cuda_read_drafts, cuda_move_pages, cuda_copy_page, cuda_note_tokens, cuda_keep_slot, cuda_close};

bool cuda_view(Device *d, CudaView *view)
{
	const Cuda *c = (const Cuda *)d;
	if (d->ops == &cuda_ops)
		*view = (CudaView){&c->cu, c->artifact, c->plan, c->device, c->context, c->stream, c->arena, c->draft_arena,
			c->kernels, c->peers.nccl};
	return d->ops == &cuda_ops;
}

void cuda_halt(Device *d, CudaHaltFn *fn, void *ctx, int phase)
{
	Cuda *c = (Cuda *)d;
	c->halt = fn;
	c->halt_ctx = ctx;
	c->halt_phase = phase;
}

const TargetPlan *cuda_target(const Device *d) { return ((const Cuda *)d)->plan; }

AtlasStatus cuda_read_bytes(Device *d, const Buf *b, uint8_t *dst)
{
	Cuda *c = (Cuda *)d;
	for (int64_t at = 0; at < b->bytes; at += STAGE_BYTES) {
		int64_t part = b->bytes - at < STAGE_BYTES ? b->bytes - at : STAGE_BYTES;
		CALL(c, b->name, MemcpyDtoHAsync, c->stage[0], c->halted_arena[b->arena] + (CuPtr)(b->offset + at),
			(size_t)part, c->stream);
		CALL(c, b->name, StreamSynchronize, c->stream);
		memcpy(dst + at, c->stage[0], (size_t)part);
	}
	return ATLAS_OK;
}

/* The most outs of a phase that has `out_row`. */
static int most_outs(const Cuda *c)
{
	int most = 1;
	for (int p = 0; p < c->plan->n_phases; p++)
		for (int b = 0; b < c->plan->phases[p].n_bufs; b++)
			if (c->plan->phases[p].outs > most && strcmp(c->plan->phases[p].bufs[b].name, "out_row") == 0)
				most = c->plan->phases[p].outs;
	return most;
}

/* Host pointers of inputs and outputs, by the tensors' places in the io arena. Each is there for the largest step. */
static AtlasStatus find_io(Cuda *c)
{
	StepIo *io = &c->base.io;
	const Graph *g = &c->artifact->graph;
	const StepLimits *l = &c->base.limits;
	const int64_t most = (int64_t)l->decode_rows * (g->verify_rows ? g->verify_rows : 1); /* of a flight's step */
	int64_t rows = l->prefill_rows > most ? l->prefill_rows : most;
	const int64_t outs = most_outs(c);
	const struct { const char *name; void *field; int64_t n; } wanted[] = {
		{"step", &io->step, 4}, {"row_token", &io->row_token, rows}, {"row_slot", &io->row_slot, rows},
		{"row_pos", &io->row_pos, rows}, {"row_next", &io->row_next, head_drafts(g) ? rows : 0},
		{"slot_draft", &io->slot_draft, g->ngram_max ? (int64_t)g->slots * (g->verify_rows - 1) : 0},
		{"out_row", &io->out_row, outs}, {"rank", &c->rank, -1 /* may be absent */},
		{"seg", &io->seg, (int64_t)g->slots * 4}, {"acquire", &io->acquire, g->slots},
		{"new_sampling", &io->new_sampling, (int64_t)g->slots * 8},
		{"new_limits", &io->new_limits, (int64_t)g->slots * 8},
		{"new_pages", &io->new_pages, (int64_t)g->slots * g->max_pages},
		{"new_rules", &io->new_rules, PLAN_RULES * PLAN_RULE_WORDS},
		{"ring", &io->ring, (int64_t)g->slots * PLAN_RING_ENTRIES * PLAN_RING_WORDS}};
	for (size_t w = 0; w < sizeof wanted / sizeof wanted[0]; w++) {
		const Buf *largest = NULL;
		if (wanted[w].n == 0)
			continue;
		for (int p = 0; p < c->plan->n_phases; p++)
			for (int b = 0; b < c->plan->phases[p].n_bufs; b++) {
				const Buf *buf = &c->plan->phases[p].bufs[b];
				if ((buf->arena == ARENA_IO || buf->arena == ARENA_RING) && strcmp(buf->name, wanted[w].name) == 0 &&
					(!largest || buf->bytes > largest->bytes))
					largest = buf;
			}
		if (!largest && wanted[w].field == &io->seg) {
			io->seg = c->unread_seg;
			continue;
		}
		if (!largest && wanted[w].n < 0)
			continue;
		if (!largest || largest->bytes < 4 * wanted[w].n)
			return error_set(&c->base.error, ATLAS_MALFORMED, "the plan has no %s for %lld values",
				wanted[w].name, (long long)wanted[w].n);
		void *at = (largest->arena == ARENA_RING ? c->ring : c->host_io) + largest->offset;
		memcpy(wanted[w].field, &at, sizeof at);
	}
	io->n_out_rows = (int)outs;
	return ATLAS_OK;
}

/* What the host must send before each phase: the inputs that it reads as they come. */
static void find_inputs(Cuda *c)
{
	for (int i = 0; i < c->plan->n_phases; i++) {
		const Phase *p = &c->plan->phases[i];
		Span *s = &c->inputs[i];
		*s = (Span){c->plan->arena_bytes[ARENA_IO], 0};
		for (int k = 0; k < p->n_bufs; k++) {
			const Buf *b = &p->bufs[k];
			if (b->arena != ARENA_IO || !cuda_reads_first(p, k))
				continue;
			s->from = b->offset < s->from ? b->offset : s->from;
			s->to = b->offset + b->bytes > s->to ? b->offset + b->bytes : s->to;
		}
	}
}

static void set_limits(Cuda *c)
{
	StepLimits *l = &c->base.limits;
	for (int i = 0; i < c->plan->n_phases; i++) { /* ascending: the last of a kind is the largest */
		const Phase *p = &c->plan->phases[i];
		if (p->kind == PREFILL)
			l->prefill_rows = p->rows, l->prefill_outs = p->outs;
		if (p->kind == DECODE)
			l->decode_rows = p->rows;
	}
}

/* Adds the time since *from to a total, and moves *from to now. */
static void lap(double *from, double *total)
{
	const double now = seconds_now();
	*total += now - *from;
	*from = now;
}

static AtlasStatus tell_stage(Cuda *c, WatchStage stage)
{
	size_t free_bytes, total_bytes;
	if (!c->watch)
		return ATLAS_OK;
	CALL(c, "", MemGetInfo, &free_bytes, &total_bytes);
	c->watch->stage(c->watch->ctx, stage, (int64_t)free_bytes, (int64_t)total_bytes);
	return ATLAS_OK;
}

static AtlasStatus open_peers(Cuda *c, const DeviceConfig *config)
{
	const PeerRoad road = {&c->cu, c->device, c->stream, c->artifact, c->plan, c->ranks, config->shares_card,
		c->base.name, config->nccl};
	TRY(cuda_peers_open(&road, &c->peers, &c->base.error));
	c->arena[ARENA_PEER] = c->draft_arena[ARENA_PEER] = c->peers.at[group_rank(c->ranks)];
	return ATLAS_OK;
}

static AtlasStatus open_context(Cuda *c, const DeviceConfig *config)
{
	DeviceTimes *times = &c->base.times;
	double clock = 0, none = 0;
	lap(&clock, &none);
	CALL(c, "", StreamCreate, &c->stream, DRIVER_STREAM_NON_BLOCKING);
	for (int i = 0; i < 2; i++)
		CALL(c, "", EventCreate, &c->staged[i], DRIVER_EVENT_DISABLE_TIMING);
	TRY(tell_stage(c, WATCH_CONTEXT));
	TRY(take_memory(c));
	if (c->ranks)
		TRY(open_peers(c, config));
	TRY(tell_stage(c, WATCH_ARENAS));
	lap(&clock, &times->memory);
	set_limits(c);
	TRY(find_io(c));
	find_inputs(c);
	TRY(load_kernels(c));
	TRY(tell_stage(c, WATCH_KERNELS));
	lap(&clock, &times->kernels);
	TRY(build_graphs(c));
	CALL(c, "graphs", StreamSynchronize, c->stream); /* uploads and cleared state belong to what was timed so far */
	TRY(tell_stage(c, WATCH_GRAPHS));
	lap(&clock, &times->graphs);
	if (config->weights)
		TRY(load_weights(c, config));
	lap(&clock, &times->weights);
	return tell_stage(c, WATCH_WEIGHTS);
}

static AtlasStatus open_device(Cuda *c, const DeviceConfig *config)
{
	double clock = 0, none = 0;
	lap(&clock, &none);
	c->artifact = config->artifact;
	c->watch = config->watch;
	c->ranks = config->ranks;
	c->base.ops = &cuda_ops;
	c->last_phase = -1;
	c->base.limits.ahead = config->steps_ahead < 1 ? AHEAD_DEFAULT
		: config->steps_ahead < AHEAD_MOST ? config->steps_ahead : AHEAD_MOST;
	c->base.limits.row = 1;
	const Driver *driver = config->started ? cuda_started(config->started) : config->driver;
	if (driver)
		c->cu = *driver;
	else
		TRY(driver_open(&c->cu, &c->base.error));
	TRY(choose_device(c, config->index));
	c->cubins = calloc((size_t)c->plan->n_kernels + 1, sizeof *c->cubins);
	c->kernels = calloc((size_t)c->plan->n_kernels + 1, sizeof *c->kernels);
	c->graphs = calloc(2 * (size_t)c->plan->n_phases + 1, sizeof *c->graphs);
	c->rests = c->graphs + c->plan->n_phases;
	c->inputs = calloc((size_t)c->plan->n_phases + 1, sizeof *c->inputs);
	if (!c->cubins || !c->kernels || !c->graphs || !c->inputs ||
		!cuda_find_pages(c->plan, &c->artifact->graph, &c->pages))
		return error_set(&c->base.error, ATLAS_NO_MEMORY, "no memory for %d kernels", c->plan->n_kernels);
	const Graph *g = &c->artifact->graph;
	const CudaPages *x = &c->pages;
	const char *missing = x->table < 0 ? "page_table" : x->counts < 0 ? "counts" : x->masks < 0 ? "masks"
		: g->verify_rows && x->later < 0 ? "masks_later" : head_drafts(g) && x->drafts < 0 ? "slot_draft" : NULL;
	if (missing)
		return error_set(&c->base.error, ATLAS_MALFORMED, "the plan has no %s", missing);
	c->base.page_bytes = c->pages.bytes;
	CALL(c, "", DevicePrimaryCtxRetain, &c->context, c->device);
	c->has_context = true;
	TRY(enter(c));
	lap(&clock, &c->base.times.context);
	return leave(c, open_context(c, config));
}

AtlasStatus cuda_open(const DeviceConfig *config, Device **device, AtlasError *error)
{
	Cuda *c = calloc(1, sizeof *c);
	*device = NULL;
	if (!c)
		return error_set(error, ATLAS_NO_MEMORY, "no memory for the device");
	AtlasStatus s = open_device(c, config);
	*device = s == ATLAS_OK ? &c->base : NULL;
	if (s != ATLAS_OK && error)
		*error = c->base.error;
	if (s != ATLAS_OK)
		cuda_close(&c->base);
	return s;
}
