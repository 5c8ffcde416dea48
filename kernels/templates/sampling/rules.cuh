// rules.cuh - what a request says of single tokens: scores changed, tokens that are not drawn yet, tokens that end it.
//
// A slot has limits[s, 7] mod 2^16 rules, the first ones of its row of `rules` (artifacts/ops.h). Each is of another
// token. The same word says whether the slot is masked. One without both costs that word and one branch.
#pragma once
#include "shared/types.cuh"

constexpr int RULES = 384, RULE_WORDS = 4; // of a slot; of a rule

struct Rule {
	int token;
	float value;  // added to the token's score
	int before;   // below this position it is not drawn
	bool is_end;  // it ends the sequence

	__device__ __forceinline__ bool changes(int position) const { return value != 0.0f || position < before; }
	__device__ __forceinline__ float of(float l, int position) const
	{
		return position < before ? minus_infinity() : value != 0.0f ? l + value : l;
	}
};

// A slot's rules.
struct Rules {
	const i32 *words; // of rule 0
	int n;
	bool keeps_on;    // the model's stop tokens are tokens like others
	bool is_masked;   // each of its tokens is drawn by a mask

	__device__ __forceinline__ Rule at(int i) const
	{
		const uint4 w = reinterpret_cast<const uint4 *>(words)[i];
		return { int(w.x), __uint_as_float(w.y), int(w.z), w.w != 0 };
	}
};

// The slot's mask after that many of its `most` drafts, of a vocabulary of n; NULL = it has none.
__device__ __forceinline__ const u32 *mask_after(const i32 *masks, const i32 *masks_later, const Rules &rules, int slot,
	int n, int drafts, int most)
{
	if (!rules.is_masked)
		return nullptr;
	const int j = min(drafts, most), words = (n + 31) / 32;
	return reinterpret_cast<const u32 *>(j > 0 ? masks_later + (i64(slot) * most + j - 1) * words
		: masks + i64(slot) * words);
}

// The slot's mask, of a vocabulary of n; NULL = it has none.
__device__ __forceinline__ const u32 *mask_of(const i32 *masks, const Rules &rules, int slot, int n)
{
	return rules.is_masked ? reinterpret_cast<const u32 *>(masks) + i64(slot) * ((n + 31) / 32) : nullptr;
}

__device__ __forceinline__ Rules rules_of(const i32 *rules, const i32 *limits, int slot)
{
	const i32 word = limits[i64(slot) * 8 + 7];
	return { rules + i64(slot) * RULES * RULE_WORDS, min(word & 0xffff, RULES), (word >> 16 & 1) != 0,
		(word >> 17 & 1) != 0 };
}
