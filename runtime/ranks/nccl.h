/* nccl.h - NCCL as a library that is opened when a plan has work for it (sum_nccl, gather_nccl), and not before.
 *
 * The declarations are our own, as those of the driver are. NCCL reads variables of the environment and files that
 * change the order of sums: a process that has some is refused, and what decides that order is set (nccl_guard.c).
 */
#ifndef ATLAS_NCCL_H
#define ATLAS_NCCL_H

#include "runtime/driver.h"

#include <stdbool.h>

typedef struct NcclId { char bytes[128]; } NcclId;

enum { NCCL_VERSION_MIN = 22703 }; /* 2.27.3: configurations are of at least this form; tested with 2.32.3 */

/* Nodes of a graph after which a sum is there. */
typedef struct NcclNodes { CuGraphNode *last; int n, room; } NcclNodes;

/* to = the sum of `from` over all ranks, `count` elements of bf16 or f32; or from of all ranks, in their order. */
typedef struct NcclSum { CuPtr from, to; int64_t count; Dtype dtype; CuStream stream; bool gathers; } NcclSum;

/* An opened library; functions are pointers, so that libatlas, which has no ranks, is not linked with them. */
typedef struct Nccl Nccl;
struct Nccl {
	int version; /* 23203: 2.32.3 */
	/* Rank 0 makes the name under which all meet. */
	AtlasStatus (*name)(Nccl *n, NcclId *id, AtlasError *error);
	/* With the context of the rank's GPU current, on all ranks at the same time. Blocks until all are there. */
	AtlasStatus (*join)(Nccl *n, const NcclId *id, int ranks, int rank, AtlasError *error);
	/* On its stream; what failed in *call, its text in *about. */
	CuResult (*sum)(Nccl *n, const NcclSum *s, const char **call, const char **about);
	/* The same as nodes of a graph after `deps`: `nodes` are then those to wait for. Where there is nothing to do NCCL
	 * has no node, and they are deps. */
	CuResult (*capture)(Nccl *n, const Driver *cu, CuGraph graph, const CuGraphNode *deps, int n_deps,
		const NcclSum *s, NcclNodes *nodes, const char **call, const char **about);
	/* After the graphs that have its nodes. was_lost: nothing is waited for. */
	void (*close)(Nccl *n, bool was_lost);
};

/* Opens `file`, NULL = libnccl.so.2. ATLAS_UNSUPPORTED: it is not there, lacks a function, is older than
 * NCCL_VERSION_MIN, or would read what may change results. */
typedef AtlasStatus NcclLoadFn(const char *file, Nccl **nccl, AtlasError *error);
NcclLoadFn nccl_load;
typedef struct NcclRoad { NcclLoadFn *load; const char *file; } NcclRoad;

/* nccl_guard.c: refuses variables and files that NCCL would read; sets those that decide the order of sums. */
AtlasStatus nccl_guard(AtlasError *error);
/* The first variable that a file of NCCL's sets and that may change a result; "" = none, or there is no file. */
void nccl_conf_fault(const char *path, char name[64]);

#endif
