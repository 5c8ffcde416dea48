/* ops_of_ranks.h - rows of ops.h, in its terms: what several ranks compute together (artifacts/ranks.h). */
OP(sum_ranks, OP_GRAPH | OP_RANKS, "", "z = the sum of part over all ranks, in their order in f32, + bias",
	IN(floats, part, "ROWS, K"), IN_OPT(weight, bias, "K"), OUT(floats, z, "ROWS, K"))
OP(gather_ranks, OP_GRAPH | OP_RANKS, "RANKS", "z = part of all ranks, one after the other, in their order",
	IN(floats, part, "ROWS, N"), OUT(floats, z, "ROWS, RANKS * N"))
OP(own_experts, OP_GRAPH | OP_RANKS, "OWN", "own = expert - rank * OWN where below OWN and not below 0, else -1",
	IN(ints, rank, "1"), IN(ints, expert, "ROWS, TOPK"), OUT(ints, own, "ROWS, TOPK"))
OP(group_own, OP_PLAN, "TOPK", "group_rows, without pairs whose expert is below 0: they are in no row's order",
	STEP, IN(ints, expert, "ROWS, TOPK"), OUT(ints, pair, "ROWS * TOPK"), OUT(ints, first, "FIRSTS"))
OP(sum_own, OP_PLAN, "TOPK", "sum_terms of pairs whose expert is not below 0: 0 where a row has none",
	STEP, IN(ints, expert, "ROWS, TOPK"), IN(floats, y, "ROWS, TOPK, K"), OUT(floats, z, "ROWS, K"))
OP(mean_squares, OP_GRAPH | OP_RANKS, "", "y[t,0] = mean(x[t,:]^2)",
	IN(floats, x, "ROWS, K"), OUT(floats, y, "ROWS, 1"))
OP(norm_mean, OP_GRAPH | OP_RANKS, "EPS NORM_ONE RANKS",
	"y[t,:] = x[t,:] / sqrt(m[t,0] / RANKS + EPS) * (w or 1 + w), m the sum of mean_squares over ranks",
	IN(floats, x, "ROWS, K"), IN(floats, m, "ROWS, 1"), IN(weight, w, "K"), OUT(floats, y, "ROWS, K"))
OP(sum_peers, OP_PLAN, "",
	"sum_ranks, of rows in use; with residual then add. peers is the rank's own arena; one of zeros is that of a rank "
	"alone",
	STEP, IN(floats, part, "ROWS, K"), IN_OPT(weight, bias, "K"), IN_OPT(floats, residual, "ROWS, K"),
	INOUT(peer, peers, "WORDS"), OUT(floats, z, "ROWS, K"))
OP(sum_nccl, OP_PLAN, "",
	"sum_peers, where NCCL makes sum of part, of all rows of the phase, before the kernel is launched; a rank alone "
	"copies it. peers orders collectives",
	STEP, IN(floats, part, "ROWS, K"), IN_OPT(weight, bias, "K"), IN_OPT(floats, residual, "ROWS, K"),
	INOUT(peer, peers, "WORDS"), OUT(floats, sum, "ROWS, K"), OUT(floats, z, "ROWS, K"))
OP(gather_peers, OP_PLAN, "RANKS",
	"gather_ranks, of outs in use. peers as in sum_peers; alone, part is that of all ranks",
	STEP, IN(floats, part, "OUTS, N"), INOUT(peer, peers, "WORDS"), OUT(floats, z, "OUTS, RANKS * N"))
OP(gather_nccl, OP_PLAN, "RANKS",
	"gather_peers, where NCCL puts part of all ranks into all, of all outs of the phase, before the kernel is "
	"launched; a rank alone copies it. peers orders collectives",
	STEP, IN(floats, part, "OUTS, N"), INOUT(peer, peers, "WORDS"), OUT(floats, all, "RANKS * OUTS, N"),
	OUT(floats, z, "OUTS, RANKS * N"))
