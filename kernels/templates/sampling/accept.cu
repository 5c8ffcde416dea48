// what      row_next[t] = drawn[t], 0 where none was drawn. Of each slot that has not ended, from its first row on:
//           drawn[t] is the slot's token as sample makes it one, and the next row's turn comes if its row_token is this
//           token, or, where limits[s, 4 + j] of draft j is not 0 and the slot not masked, if this position is of that
//           share; else, or where the sequence ends, or is masked and the next row drew nothing, the rows of the slot
//           are done. slot_version[s] = the number of the last row
//           that counted
// numerics  integers, and log probabilities as they come
// measured  H100 SXM, in a chain of its own kind, three rows: 2.3 us, little more than any launch takes
// why       a thread a row: the first of a slot goes through its rows, a handful
#include "shared/contract.cuh"
#include "shared/types.cuh"
#include "sampling/ring.cuh"
#include "sampling/rules.cuh"

KERNEL(accept, accept)
ARCH(80)
NUMERICS(exact)
DIM(ROWS, 3)
DIM(SLOTS, 8)
DIM(V, 49152)
DIM(STOPS, 2)
ORDER(exact)
GRID(ceil_div(ROWS, 128), 1, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * 24 + STOPS * 4)
WRITES(ROWS * 32)
FLOPS(0)
struct Args {
	IN(i32, step, "4");
	IN(i32, drawn, "ROWS");
	IN(f32, drawn_logprob, "ROWS");
	IN(i32, row_token, "ROWS");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(i32, limits, "SLOTS, 8");
	IN(i32, rules, "SLOTS, 1536");
	IN(i32, stop_tokens, "STOPS");
	INOUT(i32, counts, "SLOTS, V");
	INOUT(i32, slot_token, "SLOTS");
	INOUT(i32, slot_len, "SLOTS");
	INOUT(i32, slot_version, "SLOTS");
	INOUT(i32, ring, "SLOTS, 256");
	OUT(i32, row_next, "ROWS");
};

// thread level: does draft `i` of a slot, at `position`, count whatever was drawn there? `share` of 2^16 positions do.
__device__ __forceinline__ bool is_given(int position, int i, int share)
{
	u32 h = (u32(position) * 4 + i) * 0x9E3779B1u;
	h ^= h >> 15;
	h *= 0x85EBCA77u;
	h ^= h >> 13;
	h *= 0xC2B2AE3Du;
	return int(h >> 16) < share;
}

// thread level: is it a stop token of the model, which counts, or of a rule?
__device__ __forceinline__ bool stops(const Args &a, const Rules &rules, int token)
{
	bool is_stop = false;
	for (int k = 0; k < STOPS && !rules.keeps_on; k++)
		is_stop |= a.stop_tokens[k] == token;
#pragma unroll 4
	for (int k = 0; k < rules.n; k++) {
		const Rule rule = rules.at(k);
		is_stop |= rule.is_end && rule.token == token;
	}
	return is_stop;
}

__device__ __forceinline__ int slot_of(const Args &a, int t) { return t < min(a.step[0], ROWS) ? a.row_slot[t] : -1; }

extern "C" __global__ void __launch_bounds__(128) accept(const Args a)
{
	let_next_start();
	inputs_ready();
	const int first = blockIdx.x * 128 + threadIdx.x;
	if (first >= ROWS)
		return;
	a.row_next[first] = a.drawn[first] < 0 || a.drawn[first] >= V ? 0 : a.drawn[first];
	const int slot = a.step[3] & 1 ? -1 : slot_of(a, first);
	if (slot < 0 || (first > 0 && a.row_slot[first - 1] == slot) || a.slot_token[slot] < 0)
		return;
	const i32 *const limits = a.limits + i64(slot) * 8;
	const Rules rules = rules_of(a.rules, a.limits, slot);
	bool goes_on = true;
	for (int t = first; goes_on; t++) {
		const int token = a.drawn[t] < V ? a.drawn[t] : -1, position = a.row_pos[t] + 1, i = t - first;
		const int done = token < 0 ? 3 : stops(a, rules, token) ? 1 : position >= limits[3] ? 2 : 0;
		const int share = i < 3 && !rules.is_masked ? limits[4 + i] : 0;
		goes_on = done == 0 && slot_of(a, t + 1) == slot
			&& (share ? is_given(position, i, share) : a.row_token[t + 1] == token)
			&& (!rules.is_masked || a.drawn[t + 1] >= 0);
		if (token >= 0)
			a.counts[i64(slot) * V + token]++;
		a.slot_version[slot] = i;
		end_step(a.slot_token, a.slot_len, a.ring, slot, position, token, goes_on ? 4 : done, a.drawn_logprob[t]);
	}
}
