// what      each row in use whose slot s has not ended, one row a slot, draws a token for position row_pos[t] + AHEAD
//           (draw_row.cuh), 0 when its scores are no numbers: the slot's draft number row_pos[t] + 1 - slot_len[s], and
//           the row's own token; row_pos[t] and draft_len[s] go one on. Rows of slots that have ended draw 0, idle rows
//           nothing. Logits may be of fewer ids than there are: of the first V, or of those in ids
// numerics  as in draw.cuh: cuts compare ordered integers and add probabilities as integers of 2^-31. Same bits every
//           run
// measured  H100 SXM, in a chain of its own kind, one row of 248320 ids, greedy: 2.9 us
// why       what is drawn is kept where it is drawn: a launch of its own would cost more than all of it
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(draw_draft, draw_draft)
ARCH(80)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 3)
DIM(SLOTS, 8)
DIM(V, 32768)
DIM(VOCAB, 49152)
DIM(PARTS, 2048)
DIM(DRAFTS, 2)
ATTR_INT(N_VALID, 32768)
ATTR_INT(AHEAD, 1)
FLAG(IDS)
REQUIRE(N_VALID >= 1 && N_VALID <= V)
REQUIRE(V <= VOCAB)
REQUIRE(AHEAD >= 1 && AHEAD <= 2)
TUNE(CLUSTER, 8, 1)
REQUIRE(ROWS <= 65535)
ORDER(draw, PARTS, CLUSTER)
GRID(CLUSTER, ROWS, 1)
BLOCK(512)
SMEM(0)
READS(ROWS * (PARTS * 8 + 128))
WRITES(ROWS * 16)
FLOPS(ROWS * PARTS * 4)
struct Args {
	IN(i32, step, "4");
	INOUT(f32, logits, "ROWS, V");
	IN_IF(IDS, i32, ids, "V");
	IN(f32, best, "ROWS, PARTS, 2");
	IN(i32, best_id, "ROWS, PARTS");
	IN(i32, row_slot, "ROWS");
	IN(f32, sampling, "SLOTS, 8");
	IN(i32, limits, "SLOTS, 8");
	IN(i32, rules, "SLOTS, 1536");
	IN(i32, counts, "SLOTS, VOCAB");
	IN(i32, slot_token, "SLOTS");
	IN(i32, slot_len, "SLOTS");
	INOUT(i32, slot_draft, "SLOTS, DRAFTS");
	INOUT(i32, row_token, "ROWS");
	INOUT(i32, row_pos, "ROWS");
	INOUT(i32, draft_len, "SLOTS");
};

#include "sampling/draw_row.cuh"

extern "C" __global__ void TOGETHER __launch_bounds__(THREADS, 1) draw_draft(const Args a)
{
	let_next_start();
	__shared__ Shared s;
	const int t = blockIdx.y, rank = blockIdx.x, slot = a.row_slot[t];
	const bool may_draw = t < a.step[0] && !(a.step[3] & 1);
	inputs_ready();
	if (slot < 0)
		return;
	int token = 0;
	const int row_pos = a.row_pos[t];
	if (may_draw && a.slot_token[slot] >= 0)
		token = max(draw_row(s, a, t, slot, row_pos, a.counts + i64(slot) * VOCAB, nullptr, nullptr,
			Ids<IDS != 0> { a.ids }).token, 0);
	const int i = row_pos + 1 - a.slot_len[slot];
	if (rank || threadIdx.x || i < 0 || i >= DRAFTS)
		return;
	a.slot_draft[i64(slot) * DRAFTS + i] = token;
	a.row_token[t] = token;
	a.row_pos[t] = row_pos + 1;
	a.draft_len[slot]++;
}
