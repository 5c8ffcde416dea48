/* memory.c - the items of a plan's memory (memory.h).
 *
 * A row of decode steps has a graph of its own with ROW_STEPS of them (runtime/cuda.c), which counts with the others;
 * drafts are in the graph of the verify step that follows them.
 */
#include "artifacts/memory.h"
#include "artifacts/ranks.h"
#include "artifacts/op_table.h"
#include "artifacts/rolling.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	ROW_STEPS = 4,
	PIECE_BYTES = 2 << 20,  /* the driver hands out device memory in such pieces */
	LOADER_BYTES = 2 << 20, /* in addition to the code, once there is any */
	NODE_BYTES = 5 << 9,    /* of a kernel node of a graph that was uploaded */
	KERNEL_BYTES = 32 << 10, /* of a kernel whose code is not there yet */
	STAGE_BYTES = 16 << 20, /* pinned: two stages through which weights go */
	/* What NCCL takes for a communicator: of each channel, of which runtime/ranks/nccl.c asks for 16, 10 MiB for the
	 * rank before this one in the ring and 2 MiB for the next (NVIDIA/nccl#1685, on H100s with NVLink). */
	NCCL_BYTES = 16 * (12 << 20),
};

static int64_t state_bytes(const Graph *g, const char *prefix)
{
	int64_t sum = 0;
	for (int i = 0; i < g->n_tensors; i++) {
		const Tensor *t = &g->tensors[i];
		int64_t n = 1;
		if (t->role != ROLE_STATE || strncmp(t->name, prefix, strlen(prefix)) != 0)
			continue;
		for (int d = 0; d < t->n_dims; d++)
			n *= t->shape[d];
		sum += dtype_span(t->dtype, n);
	}
	return sum;
}

MemoryLoad memory_load(const TargetPlan *t)
{
	MemoryLoad load = {0};
	bool has_decode = false;
	for (int p = 0; p < t->n_phases; p++) {
		const Phase *phase = &t->phases[p];
		bool has_row = phase->kind == DECODE && !has_decode;
		load.n_nodes += phase->kind == PROBE ? 0 : phase->n_launches * (has_row ? 1 + ROW_STEPS : 1);
		has_decode |= has_row;
	}
	for (int k = 0; k < t->n_kernels; k++) {
		bool is_first = true; /* equal cubins are stored once */
		for (int j = 0; j < k && is_first; j++)
			is_first = t->kernels[j].cubin_offset != t->kernels[k].cubin_offset;
		load.n_kernels += is_first;
		load.code_bytes += is_first ? t->kernels[k].cubin_bytes : 0;
	}
	return load;
}

static int larger_first(const void *a, const void *b)
{
	const MemoryItem *x = a, *y = b;
	return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : strcmp(x->name, y->name);
}

static int64_t round_up(int64_t bytes) { return (bytes + PIECE_BYTES - 1) / PIECE_BYTES * PIECE_BYTES; }

/* Allocations of less than a piece share pieces, first come first served. arena [n_arenas] */
static int64_t ends_of_pieces(const int64_t *arena, int n_arenas)
{
	int64_t taken = 0, asked = 0, room[ARENA_COUNT];
	int n = 0;
	for (int a = 0; a < n_arenas; a++) {
		int shared = 0;
		asked += arena[a];
		if (arena[a] >= PIECE_BYTES || arena[a] == 0) {
			taken += round_up(arena[a]);
			continue;
		}
		while (shared < n && room[shared] < arena[a])
			shared++;
		if (shared == n) {
			room[n++] = PIECE_BYTES;
			taken += PIECE_BYTES;
		}
		room[shared] -= arena[a];
	}
	return taken - asked;
}

int cleared_tensor(const Graph *g, int i)
{
	return g->ops[i].kind == OP_zero_slots ? g->ops[i].operands[op_operand(OP_zero_slots, "state")] : -1;
}

int64_t snapshot_bytes(const Graph *g)
{
	const int64_t most = (int64_t)1 << 46; /* of a plan that is not checked yet */
	const Rolling r = rolling_of(g);
	const int64_t kept = r.pages ? rolling_kept(r.window, r.page) : 0;
	int64_t sum = 0;
	for (int i = 0; i < g->n_ops && sum < most; i++) {
		const int state = cleared_tensor(g, i);
		int caches[2];
		sum += state >= 0 ? dtype_span(g->tensors[state].dtype, g->tensors[state].shape[1]) : 0;
		for (int k = rolling_caches(g, i, caches); k-- > 0;)
			sum += kept * rolling_page_bytes(g, caches[k]);
	}
	return sum;
}

/* Of caches that roll. */
static int64_t window_bytes(const Graph *g)
{
	const int64_t pages = (int64_t)rolling_of(g).pages * g->slots;
	int64_t sum = 0;
	for (int i = 0; i < g->n_ops; i++) {
		int caches[2];
		for (int k = rolling_caches(g, i, caches); k-- > 0;)
			sum += pages * rolling_page_bytes(g, caches[k]);
	}
	return sum;
}

int memory_items(const Graph *g, const TargetPlan *t, const MemoryLoad *load, MemoryItem *items)
{
	const int64_t kv = state_bytes(g, "kv"), windows = window_bytes(g), all = state_bytes(g, "");
	int64_t arena[ARENA_COUNT];
	memcpy(arena, t->arena_bytes, sizeof arena);
	arena[ARENA_IO] *= io_images(g);
	int64_t taken[ARENA_RING + 1] = {0};
	memcpy(taken, arena, ARENA_RING * sizeof *taken);
	taken[ARENA_RING] = g->snapshots * snapshot_bytes(g);
	const int64_t code = load->code_bytes >= 0 ? load->code_bytes : load->n_kernels * (int64_t)KERNEL_BYTES;
	const MemoryItem list[] = {{"weights", true, arena[ARENA_WEIGHTS]}, {"keys and values", true, kv - windows},
		{"state of slots", true, all - kv}, {"padding and counters", true, arena[ARENA_STATE] - all},
		{"scratch", true, arena[ARENA_SCRATCH]}, {"inputs", true, arena[ARENA_IO]},
		{"ends of allocations", true, ends_of_pieces(taken, ARENA_RING + 1)},
		{"kernels", true, code ? round_up(code) + LOADER_BYTES : 0},
		{"graphs", true, round_up(load->n_nodes * (int64_t)NODE_BYTES)},
		{"inputs and staging", false, arena[ARENA_IO] + STAGE_BYTES}, {"results", false, arena[ARENA_RING]},
		{"keys in windows", true, windows}, {"snapshots of states", true, taken[ARENA_RING]},
		{"seen by other ranks", true, arena[ARENA_PEER]},
		{"buffers of NCCL", true, ranks_use_nccl(t) ? NCCL_BYTES : 0}};
	_Static_assert(sizeof list / sizeof list[0] <= MEMORY_MAX_ITEMS, "room for all items");
	const int always = sizeof list / sizeof list[0] - 4; /* no line of a thing that most models do not have */
	int n = 0;
	for (int i = 0; i < (int)(sizeof list / sizeof list[0]); i++)
		if (i < always || list[i].bytes)
			items[n++] = list[i];
	qsort(items, (size_t)n, sizeof *items, larger_first);
	return n;
}

/* Weights of a rank: its parts of what is cut, and all others. What it has whole and in part is there twice. */
static int64_t weights_of_rank(const Graph *g)
{
	int64_t sum = 0;
	for (int i = 0; i < g->n_tensors; i++)
		if (g->tensors[i].role == ROLE_WEIGHT)
			sum += (ranks_tensor_bytes(&g->tensors[i]) + PLAN_BUF_ALIGN - 1) / PLAN_BUF_ALIGN * PLAN_BUF_ALIGN;
	return sum;
}

int memory_of_rank(const Graph *g, bool has_nccl, MemoryItem *items)
{
	const int64_t kv = state_bytes(g, "kv");
	const MemoryItem list[] = {{"weights", true, weights_of_rank(g)}, {"keys and values", true, kv},
		{"state of slots", true, state_bytes(g, "") - kv},
		{"snapshots of states", true, g->snapshots * snapshot_bytes(g)},
		{"buffers of NCCL", true, has_nccl ? NCCL_BYTES : 0}};
	int n = 0;
	for (int i = 0; i < (int)(sizeof list / sizeof list[0]); i++)
		if (i < 3 || list[i].bytes)
			items[n++] = list[i];
	qsort(items, (size_t)n, sizeof *items, larger_first);
	return n;
}

int64_t memory_on_device(const MemoryItem *items, int n)
{
	int64_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += items[i].is_on_device ? items[i].bytes : 0;
	return sum;
}

const char *memory_largest(const MemoryItem *items, int n, char *text, size_t bytes)
{
	size_t at = 0;
	char size[32];
	text[0] = 0;
	for (int i = 0, named = 0; i < n && named < 3 && at < bytes; i++)
		if (items[i].is_on_device)
			at += (size_t)snprintf(text + at, bytes - at, "%s%s %s", named++ ? ", " : "", items[i].name,
				memory_text(items[i].bytes, size));
	return text;
}

const char *memory_text(int64_t bytes, char text[32])
{
	if (bytes < 1 << 10)
		snprintf(text, 32, "%lld bytes", (long long)bytes);
	else if (bytes < 1 << 20)
		snprintf(text, 32, "%.1f KiB", (double)bytes / (1 << 10));
	else
		snprintf(text, 32, "%.1f MiB", (double)bytes / (1 << 20));
	return text;
}

bool memory_parse(const char *text, int64_t *bytes)
{
	static const struct { const char *unit; int64_t bytes; } units[] = {
		{"", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
	char *end;
	errno = 0;
	long long n = strtoll(text, &end, 10);
	for (size_t u = 0; u < sizeof units / sizeof units[0]; u++)
		if (strcmp(end, units[u].unit) == 0 && end != text && !errno && n >= 1 && n <= INT64_MAX / units[u].bytes) {
			*bytes = n * units[u].bytes;
			return true;
		}
	return false;
}
