/* memory.h - what a plan takes of a device's memory, item by item, before anything is taken.
 *
 * Arenas are exact: the runtime makes one allocation of each. State is classified by what its tensors are. What the
 * driver takes for the plan's sake, kernels and graphs, is predicted from their number and bytes; the rates below were
 * measured (tests/gpu/results/memory.txt). The driver's own context, which any program has, is not in the list.
 */
#ifndef ATLAS_MEMORY_H
#define ATLAS_MEMORY_H

#include "artifacts/plan.h"

typedef struct MemoryItem {
	const char *name;
	bool is_on_device; /* else in pinned memory of the host */
	int64_t bytes;
} MemoryItem;
enum { MEMORY_MAX_ITEMS = 15 };

/* What the driver keeps of kernels and graphs. */
typedef struct MemoryLoad {
	int n_kernels, n_nodes;
	int64_t code_bytes; /* of the cubins; -1 = not compiled yet */
} MemoryLoad;
MemoryLoad memory_load(const TargetPlan *t);

/* The tensor that op i clears when a slot is acquired, [slots, n]; -1: it is not zero_slots. */
int cleared_tensor(const Graph *g, int i);
/* Bytes of a snapshot: of a slot's states, which zero_slots clears, and of the pages that hold its windows (rolling.h).
 * 0: a slot has neither. */
int64_t snapshot_bytes(const Graph *g);
/* Into items [MEMORY_MAX_ITEMS], largest first; returns how many. */
int memory_items(const Graph *g, const TargetPlan *t, const MemoryLoad *load, MemoryItem *items);
/* Of each of several ranks: what follows from the graph, without scratch, buffers of collectives and kernels; has_nccl:
 * and from NCCL, if it makes collectives. */
int memory_of_rank(const Graph *g, bool has_nccl, MemoryItem *items);
/* Their sum on the device. */
int64_t memory_on_device(const MemoryItem *items, int n);
/* "weights 1.9 MiB, keys and values 1.5 MiB, scratch 0.1 MiB": the largest three on the device. Returns text. */
const char *memory_largest(const MemoryItem *items, int n, char *text, size_t bytes);
/* "900 bytes", "1.0 KiB", "16384.0 MiB": in the largest unit up to MiB that does not make it 0. Returns text. */
const char *memory_text(int64_t bytes, char text[32]);
/* "24GiB", "512MiB", "64KiB", "1000000": bytes, at least 1. False when it is none of these. */
bool memory_parse(const char *text, int64_t *bytes);

#endif
