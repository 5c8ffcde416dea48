// what      for each out row o in use, of slot s, over ids v < N_VALID, whose best the head has left part by part:
//             penalties in place: counts != 0: l = l > 0 ? l / repetition : l * repetition; generated n times:
//             l -= presence; l -= frequency * n
//             then for the draw alone the slot's rules, of single tokens: l += value; -inf below a position; and
//             its mask: -inf where its bit is clear
//             temperature 0: the lowest id of the largest l; else z = l / temperature and of these stay, in this
//             order, the top_k largest and their equals, the fewest whose probability reaches top_p and the equals
//             of the last, those of at least min_p times the largest; then the lowest id of the largest z + g,
//             u = (x + 0.5) / 2^32 at most 1 - 2^-24, g = -log(-log1p(-u)), x = word v mod 4 of Philox4x32-10 with
//             counter {v / 4, position, 0, 0}, key {seed low, seed high}; position = row_pos + 1
//           logprob = log softmax(l)[token], penalised, before rules, mask, temperature and cuts
//           the sequence ends with a stop token of the model, unless the slot keeps on, or of a rule, a full slot, or
//           logits that are no numbers (token -1): slot_token = -1
//           idle outs, outs of slots that have ended, and all outs of a scoring step change nothing
// numerics  cuts compare ordered integers and add probabilities as integers of 2^-31: the result does not depend on
//           the order of the additions. Same bits every run
// measured  H200, 128256 ids in 8016 parts: 14 us drawn without cuts, 32 rows 23. H100 SXM: 3.0 us greedy; with
//           penalties and top_p 92 us (one block: 401), with top_k 50 besides 83 us (99); no spills. Most of that is
//           reading the bins of the other blocks
// why       CLUSTER blocks an out, a slice of its row each (one before sm_90): what is done for each value decides the
//           time. Without penalties the parts give the maximum and the sum, and a greedy draw is done. How cuts are
//           found is told in draw.cuh, which rows of drafts share; here the draw ends the step of its slot
#include "shared/contract.cuh"
#include "shared/types.cuh"
#include "sampling/ring.cuh"

KERNEL(sample, sample_best)
ARCH(80)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 1)
DIM(OUTS, 1)
DIM(SLOTS, 8)
DIM(V, 49152)
DIM(PARTS, 3072)
DIM(STOPS, 2)
ATTR_INT(N_VALID, 49152)
REQUIRE(N_VALID >= 1 && N_VALID <= V)
TUNE(CLUSTER, 8, 1)
REQUIRE(OUTS <= 65535)
ORDER(draw, PARTS, CLUSTER)
GRID(CLUSTER, OUTS, 1)
BLOCK(512)
SMEM(0)
READS(OUTS * (PARTS * 8 + 128))
WRITES(OUTS * 28)
FLOPS(OUTS * PARTS * 4)
struct Args {
	IN(i32, step, "4");
	INOUT(f32, logits, "OUTS, V");
	IN(f32, best, "OUTS, PARTS, 2");
	IN(i32, best_id, "OUTS, PARTS");
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

static_assert(N_VALID <= V, "only rows of the vocabulary can be sampled");

#include "sampling/draw.cuh"

// blocks of a multiprocessor: where teams may queue (sixteen need 128 multiprocessors in whole teams), one computes as
// one waits
constexpr int RESIDENT = OUTS > 12 ? 2 : 1;

extern "C" __global__ void TOGETHER __launch_bounds__(THREADS, RESIDENT) sample(const Args a)
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
	const bool penalised = sampling[3] != 1.0f || sampling[4] != 0.0f || sampling[5] != 0.0f;
	const u32 *const mask = mask_of(a.masks, rules, slot, V);
	const bool biased = is_biased(rules, mask, position);
	// else the parts say it all
	const bool in_team = TEAM > 1 && (penalised || biased || sampling[0] > 0.0f);
	if (rank && !in_team)
		return;
	begin_draw(s, rank, mask);
	const Row row = penalised ? penalised_row<0>(s, logits, counts, Ids<false> {}, nullptr, 0, sampling)
		: row_of_parts(s, a.best + i64(o) * PARTS * 2, a.best_id + i64(o) * PARTS);
	const int token = pick(s, logits, row, sampling, limits, rules, biased, position, Ids<false> {});
	if (in_team || biased)
		meet(); // nobody leaves while others read its memory, nor does the slot change before
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
