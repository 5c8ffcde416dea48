// draw_row.cuh - a row of a step that ends nothing: what it draws, drafts counting as generated.
//
// Besides what draw.cuh wants, a template that draws rows has the dims ROWS, SLOTS and DRAFTS and the attribute AHEAD.
#pragma once
#include "draw.cuh"

// What a row draws: the token, -1 when its scores are not numbers, and its log probability.
struct Drawn { int token; float logprob; };

template <class Args_> __device__ __forceinline__ bool is_penalised(const Args_ &a, int slot)
{
	const float *const sampling = a.sampling + slot * 8;
	return sampling[3] != 1.0f || sampling[4] != 0.0f || sampling[5] != 0.0f;
}

// block level: has the block of that rank a part in a draw of the slot? The first one always.
template <class Args_> __device__ __forceinline__ bool draws(const Args_ &a, int slot, int rank)
{
	return rank == 0 || (rank < TEAM && (is_penalised(a, slot) || a.sampling[slot * 8] > 0.0f));
}

// team level: row t, which draws for a slot whose sequence has not ended; counts are the slot's. The result is that of
// the first thread of the first block; when it has it, all blocks have read what they read.
template <class Args_, class Ids_>
__device__ __forceinline__ Drawn draw_row(Shared &s, const Args_ &a, int t, int slot, int row_pos, const i32 *counts,
	Ids_ ids)
{
	float *const logits = a.logits + i64(t) * V;
	const float *const sampling = a.sampling + slot * 8;
	const int position = row_pos + AHEAD;
	const bool penalised = is_penalised(a, slot), in_team = TEAM > 1 && (penalised || sampling[0] > 0.0f);
	if (threadIdx.x == 0) {
		s.rank = blockIdx.x;
		s.turn = 0;
	}
	__syncthreads();
	const Row row = penalised
		? penalised_row<DRAFTS>(s, logits, counts, ids, a.slot_draft + i64(slot) * DRAFTS,
			position - 1 - a.slot_len[slot], sampling)
		: row_of_parts(s, a.best + i64(t) * PARTS * 2, a.best_id + i64(t) * PARTS);
	const bool good = row.sum > 0.0f; // a NaN or +inf makes the sum NaN; nothing but -inf leaves it 0
	int id = row.id;
	if (good && sampling[0] > 0.0f) {
		Candidates c = { logits, sampling[0], row.top, row.top / sampling[0], 64.0f / sampling[0], BINS, 0, false };
		const int drawn = draw(s, c, sampling, a.limits + slot * 8, position, ids);
		id = drawn < 0 ? id : drawn; // -1: a temperature so low that no number is left to compare
	}
	if (in_team)
		meet(); // nobody leaves while others read its memory
	if (!good)
		return { -1, __uint_as_float(0x7fc00000u) };
	const bool is_first = blockIdx.x == 0 && threadIdx.x == 0; // another block may have written the logit
	const float l = id == row.id || !is_first ? row.top : __ldcg(logits + id);
	return { ids[id], l - row.top - logf(row.sum) };
}
