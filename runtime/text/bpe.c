/* bpe.c - one piece of text to token ids by byte-pair encoding.
 *
 * A word starts as a list of symbols, bytes or code points. Then the pair of neighbours with the
 * lowest rank, leftmost among equals, becomes one symbol, until no pair has a rank. A heap of
 * (rank, position) finds the next pair; an entry whose pair has changed meanwhile is recognised by
 * its rank, which is kept with the left symbol. A word of n symbols costs n log n.
 */
#include "runtime/text/encoder.h"

#define NONE UINT32_MAX

/* Id of a token by its key, or NONE. */
static uint32_t find_token(const Tok *t, const unsigned char *key, size_t n)
{
	uint32_t mask = t->count[TOK_SEC_VOCAB_HASH] - 1, slot = tok_hash_string(key, n) & mask, at;
	while ((at = t->vocab_hash[slot]) != 0) {
		const TokToken *o = &t->tokens[at - 1];
		if (o->key_bytes == n && !memcmp(t->strings + o->key, key, n))
			return at - 1;
		slot = (slot + 1) & mask;
	}
	return NONE;
}

static uint32_t find_merge(const Tok *t, uint32_t left, uint32_t right)
{
	uint32_t mask = t->count[TOK_SEC_MERGE_HASH] - 1, slot = tok_hash_pair(left, right) & mask, at;
	while ((at = t->merge_hash[slot]) != 0) {
		const TokMerge *m = &t->merges[at - 1];
		if (m->left == left && m->right == right)
			return at - 1;
		slot = (slot + 1) & mask;
	}
	return NONE;
}

/* Heap of rank << 32 | position, least on top ------------------------------------------------- */

static void heap_put(Encoder *e, uint32_t rank, uint32_t position)
{
	if (!RESERVE(e, e->heap, e->heap_cap, e->heap_n + 1))
		return;
	uint64_t key = (uint64_t)rank << 32 | position;
	size_t i = e->heap_n++;
	for (; i && e->heap[(i - 1) / 2] > key; i = (i - 1) / 2)
		e->heap[i] = e->heap[(i - 1) / 2];
	e->heap[i] = key;
}

static uint64_t heap_take(Encoder *e)
{
	uint64_t top = e->heap[0], last = e->heap[--e->heap_n];
	size_t i = 0, k;
	for (; (k = 2 * i + 1) < e->heap_n; i = k) {
		if (k + 1 < e->heap_n && e->heap[k + 1] < e->heap[k])
			k++;
		if (e->heap[k] >= last)
			break;
		e->heap[i] = e->heap[k];
	}
	if (e->heap_n)
		e->heap[i] = last;
	return top;
}

/* Symbols ------------------------------------------------------------------------------------- */

typedef struct Word {
	size_t n;      /* symbols */
	uint32_t unk;  /* unknown token not yet added, or NONE */
} Word;

static void add_symbol(Encoder *e, Word *w, uint32_t id)
{
	if (!RESERVE(e, e->symbols, e->symbols_cap, w->n + 1))
		return;
	uint32_t i = (uint32_t)w->n++;
	e->symbols[i] = (Symbol){id, NONE, i ? i - 1 : NONE, NONE};
	if (i)
		e->symbols[i - 1].next = i;
}

static void add_known(Encoder *e, Word *w, uint32_t id)
{
	if (w->unk != NONE)
		add_symbol(e, w, w->unk);
	w->unk = NONE;
	add_symbol(e, w, id);
}

/* An unknown symbol waits, so that the next unknown one can be fused with it. Without an unknown
 * token it is dropped. */
static void add_unknown(Encoder *e, Word *w)
{
	const TokHeader *h = e->tok->header;
	if (h->unk_id < 0)
		return;
	if (w->unk != NONE && !(h->flags & TOK_FUSE_UNK))
		add_symbol(e, w, w->unk);
	w->unk = (uint32_t)h->unk_id;
}

/* Byte fallback of one code point. A waiting unknown token comes after the bytes: that is how
 * the reference library orders them, too. */
static bool add_bytes(Encoder *e, Word *w, const unsigned char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!e->tok->byte_ids[s[i]])
			return false;
	for (size_t i = 0; i < n; i++)
		add_symbol(e, w, e->tok->byte_ids[s[i]] - 1);
	return true;
}

static size_t split_word(Encoder *e, const unsigned char *text, size_t n)
{
	const Tok *t = e->tok;
	bool byte_level = t->header->flags & TOK_BYTE_LEVEL;
	Word w = {0, NONE};
	for (size_t at = 0, len; at < n && !e->error; at += len) {
		uint32_t id, cp;
		len = byte_level ? 1 : utf8_take(text + at, n - at, &cp);
		id = byte_level ? t->byte_ids[text[at]] - 1 : find_token(t, text + at, len);
		if (id != NONE)
			add_known(e, &w, id);
		else if (byte_level || !(t->header->flags & TOK_BYTE_FALLBACK) || !add_bytes(e, &w, text + at, len))
			add_unknown(e, &w);
	}
	if (w.unk != NONE)
		add_symbol(e, &w, w.unk);
	return w.n;
}

/* Merging ------------------------------------------------------------------------------------- */

/* Looks up the pair that starts at symbol i. */
static void rank_pair(Encoder *e, uint32_t i)
{
	Symbol *s = &e->symbols[i];
	s->rank = s->next == NONE ? NONE : find_merge(e->tok, s->id, e->symbols[s->next].id);
	if (s->rank != NONE)
		heap_put(e, s->rank, i);
}

static void merge_symbols(Encoder *e, size_t n)
{
	e->heap_n = 0;
	for (size_t i = 0; i + 1 < n && !e->error; i++)
		rank_pair(e, (uint32_t)i);
	while (e->heap_n && !e->error) {
		uint64_t top = heap_take(e);
		uint32_t i = (uint32_t)top;
		Symbol *s = &e->symbols[i];
		if (s->rank != (uint32_t)(top >> 32))
			continue;
		Symbol *right = &e->symbols[s->next];
		s->id = e->tok->merges[s->rank].result;
		right->rank = NONE;
		s->next = right->next;
		if (s->next != NONE)
			e->symbols[s->next].prev = i;
		if (s->prev != NONE)
			rank_pair(e, s->prev);
		rank_pair(e, i);
	}
}

void encode_word(Encoder *e, const unsigned char *text, size_t n)
{
	const Tok *t = e->tok;
	if (t->header->flags & TOK_IGNORE_MERGES) {
		uint32_t id = find_token(t, text, n);
		if (id != NONE) {
			encoder_put_id(e, id);
			return;
		}
	}
	size_t n_symbols = split_word(e, text, n);
	if (e->error || !n_symbols)
		return;
	merge_symbols(e, n_symbols);
	for (uint32_t i = 0; i != NONE; i = e->symbols[i].next)
		encoder_put_id(e, e->symbols[i].id);
}
