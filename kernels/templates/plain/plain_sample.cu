// what      for each out row in use, over ids v < N_VALID: penalties in place, the slot's rules and mask, temperature,
//           top-k, top-p, min-p, the draw and the end of the slot's step: the formulas are those of sample.cu
// numerics  as in draw.cuh: cuts compare ordered integers and add probabilities as integers of 2^-31. Same bits every
//           run
// measured  not yet
// why       the op alone: the best of each part of the vocabulary is not known here, so the row is read for its
//           largest value and its sum as if penalties had to be made
#include "shared/contract.cuh"
#include "shared/types.cuh"
#include "sampling/ring.cuh"

KERNEL(plain_sample, sample)
ARCH(80)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 1)
DIM(OUTS, 1)
DIM(SLOTS, 8)
DIM(V, 49152)
DIM(STOPS, 2)
ATTR_INT(N_VALID, 49152)
REQUIRE(N_VALID >= 1 && N_VALID <= V)
TUNE(CLUSTER, 8, 1)
REQUIRE(OUTS <= 65535)
ORDER(plain, CLUSTER)
GRID(CLUSTER, OUTS, 1)
BLOCK(512)
SMEM(0)
READS(OUTS * (V * 8 + 128))
WRITES(OUTS * 28)
FLOPS(OUTS * V * 4)
struct Args {
	IN(i32, step, "4");
	INOUT(f32, logits, "OUTS, V");
	IN(i32, out_row, "OUTS");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(f32, sampling, "SLOTS, 8");
	IN(i32, limits, "SLOTS, 8");
	IN(i32, rules, "SLOTS, 1536");
	IN(i32, masks, "SLOTS, ceil_div(V, 32)");
	IN(i32, stop_tokens, "STOPS");
	INOUT(i32, counts, "SLOTS, V");
	INOUT(i32, slot_token, "SLOTS");
	INOUT(i32, slot_len, "SLOTS");
	INOUT(i32, ring, "SLOTS, 256");
};

constexpr int PARTS = 1; // of the vocabulary: what draw.cuh does with parts is not called here
#include "sampling/draw.cuh"

extern "C" __global__ void TOGETHER __launch_bounds__(THREADS, 1) plain_sample(const Args a)
{
	let_next_start();
	__shared__ Shared s;
	const int o = blockIdx.y, rank = blockIdx.x;
	const int t = o < a.step[1] && !(a.step[3] & 1) ? a.out_row[o] : -1;
	const int slot = t < 0 ? -1 : a.row_slot[t];
	inputs_ready();
	if (slot < 0 || rank >= TEAM || a.slot_token[slot] < 0)
		return;
	float *const logits = a.logits + i64(o) * V;
	i32 *const counts = a.counts + i64(slot) * V;
	const float *const sampling = a.sampling + slot * 8;
	const i32 *const limits = a.limits + slot * 8;
	const int position = a.row_pos[t] + 1;
	const Rules rules = rules_of(a.rules, a.limits, slot);
	const u32 *const mask = mask_of(a.masks, rules, slot, V);
	const bool biased = is_biased(rules, mask, position);
	begin_draw(s, rank, mask);
	const Row row = penalised_row<0>(s, logits, counts, Ids<false> {}, nullptr, 0, sampling);
	const int token = pick(s, logits, row, sampling, limits, rules, biased, position, Ids<false> {});
	meet(); // no block leaves while others read its memory, nor does the slot change before
	if (rank)
		return;
	const bool ends = is_end(rules, token);
	if (threadIdx.x)
		return;
	if (token < 0) {
		end_step(a.slot_token, a.slot_len, a.ring, slot, position, -1, 3, __uint_as_float(0x7fc00000u));
		return;
	}
	int done = ends ? 1 : position >= limits[3] ? 2 : 0;
	for (int i = 0; i < STOPS && !rules.keeps_on; i++)
		if (a.stop_tokens[i] == token)
			done = 1;
	counts[token]++;
	const float l = token == row.id ? row.top : __ldcg(logits + token); // another block may have written it
	end_step(a.slot_token, a.slot_len, a.ring, slot, position, token, done, l - row.top - logf(row.sum));
}
