/* cuda_peers.h - the memory that the GPUs of several ranks show each other: made, handed round, mapped. */
#ifndef ATLAS_CUDA_PEERS_H
#define ATLAS_CUDA_PEERS_H

#include "artifacts/op_table.h"
#include "runtime/driver.h"
#include "runtime/ranks/nccl.h"
#include "runtime/ranks/rank_group.h"

typedef struct CudaPeers { /* zeroed = none */
	int n, rank;
	size_t bytes;                       /* of each arena, as it is mapped */
	CuPtr at[PLAN_MAX_RANKS];           /* where this rank sees each of them; 0 = not yet */
	CuMemory memory[PLAN_MAX_RANKS];
	bool is_mapped[PLAN_MAX_RANKS];
	Nccl *nccl;                         /* of a plan that has sums by it; NULL = none */
	void *abort;                        /* pinned word: the host's, to make kernels give up waiting */
} CudaPeers;

typedef struct PeerRoad { /* nothing is owned */
	const Driver *cu;
	CuDevice device;
	CuStream stream;
	const Artifact *artifact;
	const TargetPlan *plan;
	RankGroup *group;
	bool shares_card; /* ranks may be on one GPU */
	const char *card; /* its name */
	const NcclRoad *nccl;
} PeerRoad;

/* With the device's context current, on all ranks at the same time. Compares first what they must have alike; when it
 * returns, every rank maps every arena, all are zero but for their heads, and none has begun. */
AtlasStatus cuda_peers_open(const PeerRoad *road, CudaPeers *p, AtlasError *error);
static inline bool is_by_nccl(OpKind op) { return op == OP_sum_nccl || op == OP_gather_nccl; }
/* What NCCL does before the kernel of a launch that is_by_nccl: as nodes of a graph, which the kernel then waits for,
 * or on the stream. */
typedef struct PeerSum {
	const Driver *cu;
	Nccl *nccl;
	CuStream stream;
	CuGraph graph; /* NULL = on the stream */
	const CuGraphNode *deps; int n_deps;
	NcclNodes *nodes;
} PeerSum;
CuResult cuda_peers_sum(const PeerSum *how, const Phase *p, const Launch *l, const CuPtr *arena, const char **call,
	const char **about);
void cuda_peers_close(const Driver *cu, RankGroup *group, CudaPeers *p);

#endif
