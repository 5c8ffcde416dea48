// draw_row.cuh - a row of a step that ends nothing: what it draws, drafts counting as generated.
//
// Besides what draw.cuh wants, a template that draws rows has the dims ROWS, SLOTS and DRAFTS and the attribute AHEAD.
#pragma once
#include "sampling/draw.cuh"

// What a row draws: the token, -1 when its scores are not numbers, and its log probability.
struct Drawn { int token; float logprob; };

// team level: row t, which draws for a slot whose sequence has not ended; counts are the slot's, masks and masks_later
// those of all slots, NULL where no mask holds. The result is that of the first thread of the first block; when it has
// it, all blocks have read what they read. Blocks without a part in the draw return at once.
template <class Args_, class Ids_>
__device__ __forceinline__ Drawn draw_row(Shared &s, const Args_ &a, int t, int slot, int row_pos, const i32 *counts,
	const i32 *masks, const i32 *masks_later, Ids_ ids)
{
	float *const logits = a.logits + i64(t) * V;
	const float *const sampling = a.sampling + slot * 8;
	const int position = row_pos + AHEAD;
	const Rules rules = rules_of(a.rules, a.limits, slot);
	const bool penalised = sampling[3] != 1.0f || sampling[4] != 0.0f || sampling[5] != 0.0f;
	const int before = position - 1 - a.slot_len[slot]; // drafts
	const u32 *const mask = masks ? mask_after(masks, masks_later, rules, slot, V, before, DRAFTS) : nullptr;
	const bool biased = is_biased(rules, mask, position);
	const bool in_team = TEAM > 1 && (penalised || biased || sampling[0] > 0.0f);
	if (blockIdx.x && !in_team)
		return { 0, 0.0f };
	begin_draw(s, blockIdx.x, mask);
	const Row row = penalised
		? penalised_row<DRAFTS>(s, logits, counts, ids, a.slot_draft + i64(slot) * DRAFTS, before,
			sampling)
		: row_of_parts(s, a.best + i64(t) * PARTS * 2, a.best_id + i64(t) * PARTS);
	const int id = pick(s, logits, row, sampling, a.limits + slot * 8, rules, biased, position, ids);
	if (in_team || biased)
		meet(); // nobody leaves while others read its memory
	if (id < 0)
		return { -1, __uint_as_float(0x7fc00000u) };
	const bool is_first = blockIdx.x == 0 && threadIdx.x == 0; // another block may have written the logit
	const float l = id == row.id || !is_first ? row.top : __ldcg(logits + id);
	return { ids[id], l - row.top - logf(row.sum) };
}
