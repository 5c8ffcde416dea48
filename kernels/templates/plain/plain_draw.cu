// what      drawn[t], drawn_logprob[t]: what the logits of row t come to for position row_pos[t] + AHEAD, of rows in
//           use whose slot has not ended; -1 and NaN when they are no numbers; other rows, and all rows of a scoring
//           step: 0, 0. Column v is of token ids[v] where there are ids
// numerics  as in draw.cuh: cuts compare ordered integers and add probabilities as integers of 2^-31. Same bits every
//           run
// measured  not yet
// why       the op alone: the best of each part of the vocabulary is not known here, so the row is read for its
//           largest value and its sum as if penalties had to be made
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(plain_draw, draw)
ARCH(80)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 3)
DIM(SLOTS, 8)
DIM(V, 49152)
DIM(VOCAB, 49152)
DIM(DRAFTS, 2)
ATTR_INT(N_VALID, 49152)
ATTR_INT(AHEAD, 1)
FLAG(IDS)
FLAG(MASKS)
FLAG(LATER)
REQUIRE(N_VALID >= 1 && N_VALID <= V)
REQUIRE(IDS ? V <= VOCAB : V == VOCAB)
REQUIRE(MASKS == LATER)
REQUIRE(AHEAD >= 1 && AHEAD <= 2)
TUNE(CLUSTER, 8, 1)
REQUIRE(ROWS <= 65535)
ORDER(plain, CLUSTER)
GRID(CLUSTER, ROWS, 1)
BLOCK(512)
SMEM(0)
READS(ROWS * (V * 8 + 128))
WRITES(ROWS * 8)
FLOPS(ROWS * V * 4)
struct Args {
	IN(i32, step, "4");
	INOUT(f32, logits, "ROWS, V");
	IN_IF(IDS, i32, ids, "V");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(f32, sampling, "SLOTS, 8");
	IN(i32, limits, "SLOTS, 8");
	IN(i32, rules, "SLOTS, 1536");
	IN_IF(MASKS, i32, masks, "SLOTS, ceil_div(V, 32)");
	IN_IF(LATER, i32, masks_later, "SLOTS, DRAFTS, ceil_div(V, 32)");
	IN(i32, counts, "SLOTS, VOCAB");
	IN(i32, slot_token, "SLOTS");
	IN(i32, slot_len, "SLOTS");
	IN(i32, slot_draft, "SLOTS, DRAFTS");
	OUT(i32, drawn, "ROWS");
	OUT(f32, drawn_logprob, "ROWS");
};

constexpr int PARTS = 1; // of the vocabulary: what draw.cuh does with parts is not called here
#include "sampling/draw.cuh"

extern "C" __global__ void TOGETHER __launch_bounds__(THREADS, 1) plain_draw(const Args a)
{
	let_next_start();
	__shared__ Shared s;
	const int t = blockIdx.y, rank = blockIdx.x;
	const int slot = t < a.step[0] && !(a.step[3] & 1) ? a.row_slot[t] : -1;
	const bool is_first = rank == 0 && threadIdx.x == 0;
	inputs_ready();
	if (rank >= TEAM)
		return;
	if (slot < 0 || a.slot_token[slot] < 0) {
		if (is_first) {
			a.drawn[t] = 0;
			a.drawn_logprob[t] = 0.0f;
		}
		return;
	}
	const Ids<IDS != 0> ids { a.ids };
	float *const logits = a.logits + i64(t) * V;
	const float *const sampling = a.sampling + slot * 8;
	const int position = a.row_pos[t] + AHEAD;
	const Rules rules = rules_of(a.rules, a.limits, slot);
	const int before = position - 1 - a.slot_len[slot]; // drafts
	const u32 *const mask = MASKS && LATER
		? mask_after(a.masks, a.masks_later, rules, slot, V, before, DRAFTS) : nullptr;
	const bool biased = is_biased(rules, mask, position);
	begin_draw(s, rank, mask);
	const Row row = penalised_row<DRAFTS>(s, logits, a.counts + i64(slot) * VOCAB, ids,
		a.slot_draft + i64(slot) * DRAFTS, before, sampling);
	const int id = pick(s, logits, row, sampling, a.limits + slot * 8, rules, biased, position, ids);
	meet(); // no block leaves while others read its memory
	if (!is_first)
		return;
	const float l = id < 0 ? 0.0f : id == row.id ? row.top : __ldcg(logits + id); // another block may have written it
	a.drawn[t] = id < 0 ? -1 : ids[id];
	a.drawn_logprob[t] = id < 0 ? __uint_as_float(0x7fc00000u) : l - row.top - logf(row.sum);
}
