/* rank_parts.c - what the ranks gave to the collective that this one has just made, as its arena and theirs still hold
 * it: kernels/templates/ranks/peers.cuh says how long. What was pushed here has its epoch next to it; else it is in the
 * slot of the rank that gave it.
 */
#include "runtime/meet/rank_parts.h"
#include "artifacts/numbers.h"
#include "artifacts/op_table.h"
#include "artifacts/peers.h"
#include "runtime/cuda.h"

#include <stdlib.h>
#include <string.h>

static const Buf *operand_buf(const Phase *p, const Launch *l, const char *name)
{
	const int operand = op_operand(l->op, name);
	for (int i = 0; i < l->n_args; i++)
		if (l->args[i].operand == operand && l->args[i].buf >= 0)
			return &p->bufs[l->args[i].buf];
	return NULL;
}

/* `words` words of the arenas, from word `at` of this rank's on. */
static AtlasStatus read_words(Device *d, const Buf *peers, int64_t at, int64_t words, uint32_t *to)
{
	Buf part = *peers;
	part.offset += 4 * at;
	part.bytes = 4 * words;
	return cuda_read_bytes(d, &part, (uint8_t *)to);
}

/* Words [n] of 8 bytes each that rank `from` has pushed here in that epoch; *is_there: all have its mark. */
static AtlasStatus read_pushed(Device *d, const Buf *peers, int from, uint32_t epoch, int64_t n, uint32_t *raw,
	bool *is_there)
{
	const int64_t at = PEER_PUSHED + ((int64_t)(epoch & 1) * 8 + from) * PEER_PIECE;
	const AtlasStatus s = read_words(d, peers, at, 4 * n, raw);
	*is_there = s == ATLAS_OK;
	for (int64_t i = 0; i < n && *is_there; i++) {
		*is_there = raw[4 * i + 1] == epoch && raw[4 * i + 3] == epoch;
		raw[2 * i] = raw[4 * i];
		raw[2 * i + 1] = raw[4 * i + 2];
	}
	return s;
}

AtlasStatus rank_parts(Device *d, const Phase *p, const Launch *l, const float *own, int64_t n, RankParts *out)
{
	const Buf *part = operand_buf(p, l, "part"), *peers = operand_buf(p, l, "peers");
	uint32_t head[PEER_FLAGS];
	uint64_t arena[PLAN_MAX_RANKS];
	*out = (RankParts){.n = 0};
	AtlasStatus s = read_words(d, peers, 0, PEER_FLAGS, head);
	if (s != ATLAS_OK)
		return s;
	const int ranks = (int)head[PEER_RANKS], rank = (int)head[PEER_RANK];
	const uint32_t epoch = head[PEER_EPOCH];
	memcpy(arena, head + PEER_ARENAS, sizeof arena);
	const int64_t bytes = n * dtype_bytes(part->dtype), slot_words = (peers->bytes / 4 - PEER_SLOTS) / 2;
	const bool may_be_pushed = l->op == OP_sum_peers && bytes % 8 == 0 && 4 * (bytes / 8) <= PEER_PIECE;
	uint32_t *raw = malloc((size_t)(2 * bytes) + 4);
	for (int r = 0; r < ranks && s == ATLAS_OK; r++) {
		float *to = out->floats[r] = malloc(sizeof(float) * (size_t)n + 4);
		bool is_there = false;
		if (!raw || !to) {
			s = error_set(&d->error, ATLAS_NO_MEMORY, "no memory for the parts of %d ranks", ranks);
			break;
		}
		out->of[r] = to;
		if (r == rank) {
			memcpy(to, own, sizeof(float) * (size_t)n);
			continue;
		}
		if (may_be_pushed)
			s = read_pushed(d, peers, r, epoch, bytes / 8, raw, &is_there);
		if (s == ATLAS_OK && !is_there)
			s = read_words(d, peers, (int64_t)(arena[r] - arena[rank]) / 4 + PEER_SLOTS + (epoch & 1) * slot_words,
				(bytes + 3) / 4, raw);
		numbers_convert(part->dtype, (const uint8_t *)raw, 0, n, to);
	}
	free(raw);
	out->n = ranks;
	return s;
}

void rank_parts_free(RankParts *parts)
{
	for (int r = 0; r < PLAN_MAX_RANKS; r++)
		free(parts->floats[r]);
	*parts = (RankParts){.n = 0};
}
