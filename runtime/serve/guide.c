/* guide.c - see guide.h. */
#include "runtime/serve/guide.h"
#include "runtime/grammar/vocab.h"
#include "runtime/serve/pieces.h"

#include <stdlib.h>
#include <string.h>

static const char marker[] = REASONING_CLOSER;
enum { MARKER = sizeof marker - 1 };

struct Guide {
	const GrammarVocab *vocab;
	GrammarText *text;
	bool is_free, has_free; /* reasoning goes on; words are those of it */
	bool needs_opener; int32_t opener; /* nothing came of the structure so far */
	char tail[2 * MARKER]; size_t n_tail; /* end of the reasoning so far */
	int32_t *ends; int n_ends;
	uint32_t *words;
};

Guide *guide_open(const GuideSource *source, const int32_t *ends, int n_ends)
{
	Guide *g = calloc(1, sizeof *g);
	if (!g)
		return NULL;
	g->vocab = source->vocab;
	g->is_free = source->after_reasoning;
	g->needs_opener = source->has_opener;
	g->opener = source->opener;
	g->words = malloc(sizeof *g->words * ((size_t)source->vocab->n_words + 1));
	g->ends = malloc(sizeof *ends * ((size_t)n_ends + 1));
	g->text = grammar_text_open(source->grammar, source->vocab, ends, n_ends);
	if (g->words && g->ends && g->text) {
		if (n_ends)
			memcpy(g->ends, ends, sizeof *ends * (size_t)n_ends);
		g->n_ends = n_ends;
		return g;
	}
	guide_close(g);
	return NULL;
}

void guide_close(Guide *g)
{
	if (!g)
		return;
	grammar_text_close(g->text);
	free(g->words);
	free(g->ends);
	free(g);
}

/* All tokens but those that would end the sequence before its structure began. */
static void allow_all(Guide *g)
{
	const GrammarVocab *v = g->vocab;
	for (int32_t id = 0; id < v->n_ids; id++) {
		const char *bytes;
		size_t n;
		bool special;
		const uint32_t bit = (uint32_t)1 << id % 32;
		const bool exists = tok_token_bytes(v->tok, id, &bytes, &n, &special);
		g->words[id / 32] = (g->words[id / 32] & ~bit) | (exists ? bit : 0);
	}
	for (int i = 0; i < g->n_ends; i++)
		if (g->ends[i] >= 0 && g->ends[i] < v->n_ids)
			g->words[g->ends[i] / 32] &= ~((uint32_t)1 << g->ends[i] % 32);
}

const uint32_t *guide_mask(Guide *g, int *n_words)
{
	*n_words = g->vocab->n_words;
	if (!g->is_free && !g->needs_opener)
		return grammar_text_mask(g->text, g->words) ? g->words : NULL;
	if (g->is_free) {
		if (!g->has_free)
			allow_all(g);
		g->has_free = true;
	} else {
		memset(g->words, 0, sizeof *g->words * (size_t)g->vocab->n_words);
		g->words[g->opener / 32] = (uint32_t)1 << g->opener % 32;
	}
	return g->words;
}

/* A token of reasoning. White space after the marker is dropped; other text there begins the structure. */
static void push_free(Guide *g, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (g->n_tail == sizeof g->tail) {
			memmove(g->tail, g->tail + MARKER, MARKER);
			g->n_tail = MARKER;
		}
		g->tail[g->n_tail++] = bytes[i];
		if (g->n_tail < MARKER || memcmp(g->tail + g->n_tail - MARKER, marker, MARKER) != 0)
			continue;
		size_t rest = i + 1;
		while (rest < n && strchr(" \n\r\t", bytes[rest]) && bytes[rest])
			rest++;
		if (rest == n || grammar_text_push_bytes(g->text, bytes + rest, n - rest)) {
			g->is_free = false;
			g->needs_opener &= rest == n;
			return;
		}
	}
}

bool guide_push(Guide *g, int32_t token)
{
	const char *bytes;
	size_t n;
	bool special;
	if (!g->is_free && !g->needs_opener)
		return grammar_text_push(g->text, token);
	if (!tok_token_bytes(g->vocab->tok, token, &bytes, &n, &special))
		return true;
	if (!g->is_free) {
		g->needs_opener = false;
		return grammar_text_push_bytes(g->text, bytes, n);
	}
	push_free(g, bytes, n);
	return true;
}

bool guide_is_over(const Guide *g) { return !g->is_free && grammar_text_is_over(g->text); }
