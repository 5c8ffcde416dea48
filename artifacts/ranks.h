/* ranks.h - one graph on several ranks (plan.h, Ranks): what of a weight is whose, and the order of collectives.
 *
 * Each rank runs the graph with its own parts of weights and state and its own `rank`; all else is equal. A tensor of
 * rows is then one of
 *   whole    the same bits on all ranks
 *   part     a term of a sum: that of all ranks is what the graph of one rank has there
 *   cut      some of its columns: those of the rank's heads, or of its range of them
 * rank_check.c has the rule of each op. sum_ranks and gather_ranks are the collectives: what they give is whole.
 */
#ifndef ATLAS_RANKS_H
#define ATLAS_RANKS_H

#include "artifacts/op_table.h"

/* Number of ranks that run the plan: 1 where it has no section for more. */
static inline int ranks_of(const Ranks *r) { return r->n ? r->n : 1; }

/* How a tensor of role WEIGHT is cut; NULL: it is whole on each rank. */
const Cut *ranks_cut(const Ranks *r, int tensor);
/* Shape of a tensor with the parts of all ranks: of the weights in the file. A tensor of the graph. */
void ranks_whole_shape(const Graph *g, const Ranks *r, const Tensor *t, int64_t shape[PLAN_MAX_DIMS]);

/* A rank's part of a cut tensor: ranges of its whole bytes, which follow each other in what the rank has. Sub-byte
 * elements are in whole bytes. */
typedef struct CutRange { int64_t from, bytes; } CutRange;
int64_t ranks_n_ranges(const Tensor *t, const Cut *c);
CutRange ranks_range(const Ranks *r, const Tensor *t, const Cut *c, int rank, int64_t i);
int64_t ranks_tensor_bytes(const Tensor *t); /* of a rank's part of a weight */

/* The graph as a rank's launches see it: *view is g with the tensors and weights of a rank, which it owns. Each tensor
 * of role WEIGHT has one weight, by its name, with its shape; they are in the order of the tensors' weights in the
 * file, and lie in the rank's weight arena where Ranks.places says (0 while that is not known). False when there is no
 * memory. The indices of g and of r are sound. */
bool ranks_view(const Graph *g, const Ranks *r, Graph *view);
void ranks_view_free(Graph *view);
/* Bytes of the largest part that a rank gives to a collective, in steps of at most that many rows and outs. */
int64_t ranks_largest_part(const Graph *g, int64_t rows, int64_t outs);

bool ranks_use_nccl(const TargetPlan *t); /* is any launch NCCL's? */
static inline bool is_collective(OpKind op) { return op == OP_sum_ranks || op == OP_gather_ranks; }
/* The collectives of a phase. Digest: SHA-256 of "collectives", 0, the number of ranks, the phase's bit and, for each
 * in the order of execution, its index among the graph's ops, its columns, 1 if its rows are outs, else 0, all as
 * u64 little-endian, and its op's name with a 0. */
RankPhase ranks_phase(const Graph *g, const Ranks *r, int phase);

#endif
