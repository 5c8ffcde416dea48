/* cuda_graph.h - phases of a plan as one CUDA graph: a step of one or two of them, or several steps in a row. */
#ifndef ATLAS_CUDA_GRAPH_H
#define ATLAS_CUDA_GRAPH_H

#include "runtime/cuda.h"
#include "runtime/ranks/cuda_peers.h"

typedef struct GraphContext { /* nothing is owned or kept */
	const Driver *cu;
	const TargetPlan *plan;
	const CuKernel *kernels;  /* [plan->n_kernels] those of the phase are loaded */
	CuContext context;
	CuStream stream;
	Nccl *nccl;               /* of a plan that has sums by it, else NULL */
	const DeviceWatch *watch; /* called for each node; NULL = none */
} GraphContext;

enum { CU_OUT_OF_HOST_MEMORY = -1 }; /* a result of ours, not the driver's */

typedef struct GraphPart { /* a phase, on arenas of its own where it needs them */
	const Phase *p;
	const CuPtr *arena; /* [ARENA_COUNT] */
} GraphPart;

/* The instance, uploaded. Each of the n parts starts when the one before it is done, as its kernels see it: edges
 * between them are programmatic where the plan says that a kernel waits itself. On failure *exec is NULL, *call names
 * what failed and *about what it was for. */
CuResult cuda_graph_build(const GraphContext *c, const GraphPart *parts, int n, CuGraphExec *exec, const char **call,
	const char **about);

/* Does the first launch that touches the buffer read it? */
bool cuda_reads_first(const Phase *p, int buf);
/* Does the launch read something of the step's outs? `first` is the first launch that does. */
bool cuda_is_of_outs(const Phase *p, int first, int launch);

#endif
