/* ngram.c - a table of n-grams for each length, which grows with the text: a lookup takes a few probes, however long it
 * is. A place in a table stands for the tokens before it in the text, which are compared, so no two n-grams are taken
 * for one another. What an adversary makes collide is forgotten after PROBES looks. A text that outgrows its tables is
 * indexed again in larger ones; both that and clearing them is work for ngrams_draft, which does a piece at a time.
 */
#include "runtime/ngram.h"

#include <stdlib.h>
#include <string.h>

enum { PROBES = 256, LEAST_BITS = 6, CLEARED_AT_ONCE = 1024 /* places: about the time of indexing a token */ };

static int bits_for(int tokens)
{
	int bits = LEAST_BITS;
	while (bits < 30 && 1 << bits < 2 * tokens)
		bits++;
	return bits;
}

/* The text's first or next tables are free, and have room for a quarter more than it has now. */
static void begin_tables(Ngrams *g)
{
	const int ahead = g->n + g->n / 4;
	g->bits = bits_for(ahead < g->room ? ahead : g->room);
	g->uncleared = (size_t)(g->max - g->min + 1) << g->bits;
	g->indexed = 0;
}

bool ngrams_open(Ngrams *g, int min, int max, int room)
{
	const size_t lengths = (size_t)(max - min + 1);
	*g = (Ngrams){.min = min, .max = max, .room = room};
	g->tokens = malloc(sizeof *g->tokens * (size_t)room);
	g->ends = calloc(lengths << bits_for(room), sizeof *g->ends); /* pages that no text needs are never touched */
	return g->tokens && g->ends;
}

void ngrams_close(Ngrams *g)
{
	free(g->tokens);
	free(g->ends);
	*g = (Ngrams){0};
}

void ngrams_start(Ngrams *g, const int32_t *tokens, int n)
{
	memcpy(g->tokens, tokens, sizeof *tokens * (size_t)n);
	g->n = n;
	begin_tables(g);
	g->worth = NGRAM_ONE;
	g->has_drafts = false;
}

void ngrams_push(Ngrams *g, int32_t token)
{
	if (g->n < g->room)
		g->tokens[g->n++] = token;
}

static uint32_t hash_of(const int32_t *tokens, int n)
{
	uint64_t h = 0x9E3779B97F4A7C15u;
	for (int i = 0; i < n; i++) {
		h = (h ^ (uint32_t)tokens[i]) * 0xBF58476D1CE4E5B9u;
		h ^= h >> 29;
	}
	return (uint32_t)(h >> 32);
}

/* The n-gram of `length` tokens that ends before `end` has its last place there; returns the one before it. */
static int index_ngram(Ngrams *g, int length, int end)
{
	int32_t *table = g->ends + ((size_t)(length - g->min) << g->bits);
	const uint32_t mask = (1u << g->bits) - 1;
	const int32_t *mine = g->tokens + end - length;
	uint32_t at = hash_of(mine, length) & mask;
	for (int i = 0; i < PROBES; i++, at = (at + 1) & mask) {
		const int before = table[at];
		if (before && memcmp(g->tokens + before - length, mine, sizeof *mine * (size_t)length) != 0)
			continue;
		table[at] = end;
		return before;
	}
	return 0;
}

bool ngrams_draft(Ngrams *g, int32_t *drafts, int n, int *work)
{
	if (bits_for(g->n) > g->bits)
		begin_tables(g);
	for (; g->indexed < g->n && *work > 0; --*work) {
		if (g->uncleared > 0) {
			const size_t some = g->uncleared < CLEARED_AT_ONCE ? g->uncleared : CLEARED_AT_ONCE;
			g->uncleared -= some;
			memset(g->ends + g->uncleared, 0, sizeof *g->ends * some);
			continue;
		}
		g->indexed++;
		for (int length = g->min; length <= g->max; length++)
			g->before[length] = g->indexed < length ? 0 : index_ngram(g, length, g->indexed);
	}
	int at = 0;
	for (int length = g->max; length >= g->min && !at && g->indexed == g->n; length--)
		at = g->before[length];
	for (int i = 0; i < n && at; i++)
		drafts[i] = at + i < g->n ? g->tokens[at + i] : drafts[at + i - g->n];
	return at;
}

void ngrams_draft_all(Ngrams *all, const int *slots, int n_slots, int32_t *drafts, int stride, int n, int work)
{
	const int equal = n_slots ? work / n_slots : 0;
	for (int i = 0; i < 2 * n_slots; i++) { /* twice: what the ones with little to do leave is for the others */
		const int slot = slots[i % n_slots];
		int share = i < n_slots ? equal : work;
		if (slot < 0)
			continue;
		work -= share;
		all[slot].has_drafts = ngrams_draft(&all[slot], drafts + slot * stride, n, &share);
		work += share;
	}
}

void ngrams_note(Ngrams *g, int accepted) { g->worth += (NGRAM_ONE * accepted - g->worth) / 8; }
void ngrams_pass(Ngrams *g) { g->worth += NGRAM_ONE / 128; }
