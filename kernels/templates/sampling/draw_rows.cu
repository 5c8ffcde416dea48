// what      drawn[t], drawn_logprob[t]: what the logits of row t come to for position row_pos[t] + AHEAD
//           (draw_row.cuh), of rows in use whose slot has not ended; -1 and NaN when they are no numbers; other rows,
//           and all rows of a scoring step: 0, 0
// numerics  as in draw.cuh: cuts compare ordered integers and add probabilities as integers of 2^-31. Same bits every
//           run
// measured  H100 SXM, in a chain of its own kind, three rows of 248320 ids, greedy: 2.8 us
// why       a team of blocks a row, all rows at once. What a row draws does not depend on the rows before it: they are
//           the drafts, and whether they were right is found out afterwards
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(draw_rows, draw_best)
ARCH(80)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 3)
DIM(SLOTS, 8)
DIM(V, 49152)
DIM(PARTS, 3072)
DIM(DRAFTS, 2)
ATTR_INT(N_VALID, 49152)
ATTR_INT(AHEAD, 1)
REQUIRE(N_VALID >= 1 && N_VALID <= V)
REQUIRE(AHEAD >= 1 && AHEAD <= 2)
TUNE(CLUSTER, 8, 1)
REQUIRE(ROWS <= 65535)
ORDER(draw, PARTS, CLUSTER)
GRID(CLUSTER, ROWS, 1)
BLOCK(512)
SMEM(0)
READS(ROWS * (PARTS * 8 + 128))
WRITES(ROWS * 8)
FLOPS(ROWS * PARTS * 4)
struct Args {
	IN(i32, step, "4");
	INOUT(f32, logits, "ROWS, V");
	IN(f32, best, "ROWS, PARTS, 2");
	IN(i32, best_id, "ROWS, PARTS");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(f32, sampling, "SLOTS, 8");
	IN(i32, limits, "SLOTS, 8");
	IN(i32, rules, "SLOTS, 1536");
	IN(i32, masks, "SLOTS, ceil_div(V, 32)");
	IN(i32, masks_later, "SLOTS, DRAFTS, ceil_div(V, 32)");
	IN(i32, counts, "SLOTS, V");
	IN(i32, slot_token, "SLOTS");
	IN(i32, slot_len, "SLOTS");
	IN(i32, slot_draft, "SLOTS, DRAFTS");
	OUT(i32, drawn, "ROWS");
	OUT(f32, drawn_logprob, "ROWS");
};

#include "sampling/draw_row.cuh"

extern "C" __global__ void TOGETHER __launch_bounds__(THREADS, 1) draw_rows(const Args a)
{
	let_next_start();
	__shared__ Shared s;
	const int t = blockIdx.y, rank = blockIdx.x;
	const int slot = t < a.step[0] && !(a.step[3] & 1) ? a.row_slot[t] : -1;
	inputs_ready();
	Drawn d = { 0, 0.0f };
	if (slot >= 0 && a.slot_token[slot] >= 0)
		d = draw_row(s, a, t, slot, a.row_pos[t], a.counts + i64(slot) * V, a.masks, a.masks_later, Ids<false> {});
	if (rank == 0 && threadIdx.x == 0) {
		a.drawn[t] = d.token;
		a.drawn_logprob[t] = d.logprob;
	}
}
