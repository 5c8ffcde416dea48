/* ref_draft.c - a step that drafts and verifies, around the model: its rows, draws, and what is accepted.
 *
 * EXACTNESS. A draw depends on the seed, the position and the scores alone (the logits stage, ref_slots.c). So the step
 * draws in each of a slot's rows the very token that a decode step would have drawn there, if the tokens before it are
 * those that decode would have made; and a draft is accepted if and only if it is this token. What comes out is drawn
 * from the model's own probabilities whatever the head proposes, and where a row's scores do not depend on other rows
 * of the step, as here, it is the text of plain decoding, token for token, greedy or sampled. The head draws its drafts
 * the same way, by the same random numbers, which makes them likelier to be met.
 */
#include "artifacts/ring.h"
#include "runtime/cpu/ref_call.h"

#include <string.h>

void ref_verify_rows(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "row_slot", 0), drafts = ref_dim(c, "slot_draft", 1);
	for (int64_t t = 0, j = 0; t < rows; t++) {
		const int slot = ref_ints(c, "row_slot")[t];
		const bool is_later = t && ref_ints(c, "row_slot")[t - 1] == slot;
		j = is_later ? j + (j < drafts) : 0;
		const int token = slot < 0 ? -1 : ref_ints(c, "slot_token")[slot];
		ref_ints(c, "row_token")[t] = token < 0 ? 0 : j ? ref_ints(c, "slot_draft")[slot * drafts + j - 1] : token;
		ref_ints(c, "row_pos")[t] = slot < 0 ? 0 : (int32_t)j + (token < 0 ? 0 : ref_ints(c, "slot_len")[slot]);
	}
}

void ref_draft_rows(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "row_slot", 0);
	for (int64_t t = 0; t < rows; t++) {
		const int slot = ref_ints(c, "row_slot")[t], token = slot < 0 ? -1 : ref_ints(c, "slot_token")[slot];
		const int length = token < 0 ? 0 : ref_ints(c, "slot_len")[slot];
		ref_ints(c, "row_token")[t] = token < 0 ? 0 : token;
		ref_ints(c, "row_pos")[t] = length > 0 ? length - 1 : 0;
	}
}

void ref_join(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "x", 0), n = ref_dim(c, "x", 1), m = ref_dim(c, "y", 1);
	for (int64_t t = 0; t < rows; t++) {
		float *z = ref_floats(c, "z") + t * (n + m);
		memcpy(z, ref_floats(c, "x") + t * n, (size_t)n * sizeof *z);
		memcpy(z + n, ref_floats(c, "y") + t * m, (size_t)m * sizeof *z);
	}
}

void ref_hold(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "x", 0), n = ref_dim(c, "x", 1);
	for (int64_t t = 0; t < rows; t++) { /* the last one stays */
		const int slot = ref_row_slot(c, t);
		if (slot >= 0 && (!ref_has(c, "slot_len") || ref_ints(c, "slot_len")[slot] == ref_ints(c, "row_pos")[t] + 1))
			memcpy(ref_floats(c, "held") + slot * n, ref_floats(c, "x") + t * n, (size_t)n * sizeof(float));
	}
}

void ref_recall(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "y", 0), n = ref_dim(c, "y", 1);
	for (int64_t t = 0; t < rows; t++) {
		const int slot = ref_ints(c, "row_slot")[t];
		float *y = ref_floats(c, "y") + t * n;
		if (slot < 0)
			memset(y, 0, (size_t)n * sizeof *y);
		else
			memcpy(y, ref_floats(c, "held") + slot * n, (size_t)n * sizeof *y);
	}
}

/* Does the row draw for a sequence that has not ended? Its slot, else -1. */
static int live_slot(const RefCall *c, int64_t t)
{
	const int slot = ref_ints(c, "step")[3] & 1 ? -1 : ref_row_slot(c, t);
	return slot >= 0 && ref_ints(c, "slot_token")[slot] >= 0 ? slot : -1;
}

/* Is a table of ids what the op says: ascending, and of the vocabulary? */
static bool are_ids(const int32_t *ids, int64_t n, int64_t vocab)
{
	for (int64_t i = 0; i < n; i++)
		if (ids[i] <= (i ? ids[i - 1] : -1) || ids[i] >= vocab)
			return false;
	return true;
}

/* Nothing is drawn by a table that is none. */
void ref_draw(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "logits", 0), columns = ref_dim(c, "logits", 1), vocab = ref_dim(c, "counts", 1);
	const int64_t most = ref_dim(c, "slot_draft", 1);
	const int32_t *ids = ref_has(c, "ids") ? ref_ints(c, "ids") : NULL;
	double *scores = ref_take(c, 2 * sizeof(double) * (size_t)columns);
	const bool is_good = scores && (!ids || are_ids(ids, columns, vocab));
	for (int64_t t = 0; t < rows && scores; t++) {
		const int slot = live_slot(c, t);
		float *logprob = ref_floats(c, "drawn_logprob") + t;
		int32_t *drawn = ref_ints(c, "drawn") + t;
		*drawn = 0;
		*logprob = 0;
		if (slot < 0 || !is_good)
			continue;
		const int position = ref_ints(c, "row_pos")[t] + c->attrs.ahead;
		const int64_t before = position - 1 - ref_ints(c, "slot_len")[slot];
		const DrawOf d = {.ids = ids, .counts = ref_ints(c, "counts") + slot * vocab,
			.drafts = ref_ints(c, "slot_draft") + slot * most, .n_drafts = (int)(before < most ? before : most),
			.sampling = ref_floats(c, "sampling") + slot * 8, .limits = ref_ints(c, "limits") + slot * 8,
			.rules = ref_ints(c, "rules") + slot * PLAN_RULES * PLAN_RULE_WORDS, .mask = ref_mask(c, slot, before),
			.n = c->attrs.n_valid, .position = position};
		*drawn = ref_draw_token(&d, ref_floats(c, "logits") + t * columns, scores, logprob);
	}
}

void ref_keep_draft(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "drawn", 0), drafts = ref_dim(c, "slot_draft", 1);
	for (int64_t t = 0; t < rows; t++) {
		const int slot = ref_ints(c, "row_slot")[t], drawn = ref_ints(c, "drawn")[t];
		int32_t *row_pos = &ref_ints(c, "row_pos")[t];
		const int64_t i = slot < 0 ? -1 : (int64_t)*row_pos + 1 - ref_ints(c, "slot_len")[slot];
		if (i < 0 || i >= drafts) /* idle, or of a sequence that has ended */
			continue;
		ref_ints(c, "row_token")[t] = ref_ints(c, "slot_draft")[slot * drafts + i] = drawn < 0 ? 0 : drawn;
		++*row_pos;
	}
}

/* The slot's token is that of row t, its j-th in the step. */
static void commit(const RefCall *c, int64_t t, int slot, int64_t j, int token, int done)
{
	const int64_t vocab = ref_dim(c, "counts", 1);
	const int position = ref_ints(c, "row_pos")[t] + 1;
	const bool is_end = done != 0 && done != 4;
	if (token >= 0)
		ref_ints(c, "counts")[slot * vocab + token]++;
	ref_ints(c, "slot_token")[slot] = is_end ? -1 : token;
	ref_ints(c, "slot_len")[slot] = position;
	ref_ints(c, "slot_version")[slot] = (int32_t)j;
	int32_t *entry = ref_ints(c, "ring") +
		(slot * PLAN_RING_ENTRIES + position % PLAN_RING_ENTRIES) * PLAN_RING_WORDS;
	ring_write(entry, (RingEntry){position, token, done, ref_floats(c, "drawn_logprob")[t]});
}

/* Does draft i of a slot, at `position`, count whatever was drawn there? share: of 2^16 positions. */
static bool is_given(int position, int64_t i, int share)
{
	uint32_t h = ((uint32_t)position * 4 + (uint32_t)i) * 0x9E3779B1u;
	h ^= h >> 15;
	h *= 0x85EBCA77u;
	h ^= h >> 13;
	h *= 0xC2B2AE3Du;
	return (int)(h >> 16) < share;
}

/* Rows t and on of one slot that has not ended. */
static void accept_rows(const RefCall *c, int64_t t, int slot)
{
	const int64_t rows = ref_dim(c, "drawn", 0), vocab = ref_dim(c, "counts", 1);
	const int32_t *limits = ref_ints(c, "limits") + slot * 8;
	const bool is_masked = ref_is_masked(limits);
	bool goes_on = true;
	for (int64_t j = 0; goes_on; j++, t++) {
		const int drawn = ref_ints(c, "drawn")[t], token = drawn < vocab ? drawn : -1;
		const int position = ref_ints(c, "row_pos")[t] + 1;
		const int share = j < PLAN_MAX_VERIFY - 1 && !is_masked ? limits[4 + j] : 0;
		int done = ref_done(c, slot, token, position);
		goes_on = done == 0 && t + 1 < rows && ref_row_slot(c, t + 1) == slot &&
			(share ? is_given(position, j, share) : ref_ints(c, "row_token")[t + 1] == token) &&
			(!is_masked || ref_ints(c, "drawn")[t + 1] >= 0);
		commit(c, t, slot, j, token, goes_on ? 4 : done);
	}
}

void ref_accept(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "drawn", 0), vocab = ref_dim(c, "counts", 1);
	for (int64_t t = 0; t < rows; t++) {
		const int drawn = ref_ints(c, "drawn")[t], slot = live_slot(c, t);
		ref_ints(c, "row_next")[t] = drawn < 0 || drawn >= vocab ? 0 : drawn;
		if (slot >= 0 && (t == 0 || ref_ints(c, "row_slot")[t - 1] != slot))
			accept_rows(c, t, slot);
	}
}
