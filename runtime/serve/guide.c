/* guide.c - see guide.h. */
#include "runtime/serve/guide.h"
#include "runtime/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CLOSER = 32 };

struct Guide {
	const GrammarVocab *vocab;
	GrammarText *text;
	GuideSource source;
	bool is_free, has_free; /* reasoning goes on; words are those of it */
	char tail[MAX_CLOSER]; size_t n_tail; /* end of the reasoning so far */
	int32_t *ends; int n_ends;
	uint32_t *words;
};

/* A mark that ends the sequence is no text of it. */
static void leave_out_ends(Guide *g)
{
	int n = 0;
	for (int i = 0; i < g->source.n_marks; i++) {
		bool is_end = false;
		for (int k = 0; k < g->n_ends; k++)
			is_end |= g->ends[k] == g->source.marks[i];
		if (!is_end)
			g->source.marks[n++] = g->source.marks[i];
	}
	g->source.n_marks = n;
}

Guide *guide_open(const GuideSource *source, const int32_t *ends, int n_ends)
{
	Guide *g = calloc(1, sizeof *g);
	if (!g)
		return NULL;
	g->vocab = source->vocab;
	g->source = *source;
	g->is_free = source->closer != NULL;
	g->words = malloc(sizeof *g->words * ((size_t)source->vocab->n_words + 1));
	g->ends = malloc(sizeof *ends * ((size_t)n_ends + 1));
	g->text = grammar_text_open(source->grammar, source->vocab, ends, n_ends);
	if (g->words && g->ends && g->text) {
		if (n_ends)
			memcpy(g->ends, ends, sizeof *ends * (size_t)n_ends);
		g->n_ends = n_ends;
		leave_out_ends(g);
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
	memcpy(g->words, v->known, sizeof *g->words * (size_t)v->n_words);
	for (int i = 0; i < g->n_ends; i++)
		if (g->ends[i] >= 0 && g->ends[i] < v->n_ids)
			g->words[g->ends[i] / 32] &= ~((uint32_t)1 << g->ends[i] % 32);
}

/* A mark comes in place of tokens that spell it. Where nothing else may come, they are taken away: they begin with its
 * text, or it with theirs. */
static bool is_spelled_alone(const Guide *g, const int32_t *marks, int n_marks)
{
	const Tok *tok = g->vocab->tok;
	const char *bytes, *mark;
	size_t n, n_mark;
	bool special;
	for (int word = 0; word < g->vocab->n_words; word++)
		for (uint32_t left = g->words[word]; left; left &= left - 1) {
			bool is_spelled = false;
			if (!tok_token_bytes(tok, word * 32 + __builtin_ctz(left), &bytes, &n, &special))
				return false;
			for (int i = 0; i < n_marks && !is_spelled; i++)
				is_spelled = tok_token_bytes(tok, marks[i], &mark, &n_mark, &special) &&
					memcmp(bytes, mark, n < n_mark ? n : n_mark) == 0;
			if (!is_spelled)
				return false;
		}
	return true;
}

static void allow_marks(Guide *g)
{
	int32_t marks[GUIDE_MARKS];
	const char *bytes;
	size_t n;
	bool special;
	int n_marks = 0;
	for (int i = 0; i < g->source.n_marks; i++)
		if (tok_token_bytes(g->vocab->tok, g->source.marks[i], &bytes, &n, &special) &&
			grammar_text_takes(g->text, bytes, n))
			marks[n_marks++] = g->source.marks[i];
	if (n_marks && is_spelled_alone(g, marks, n_marks))
		memset(g->words, 0, sizeof *g->words * (size_t)g->vocab->n_words);
	for (int i = 0; i < n_marks; i++)
		g->words[marks[i] / 32] |= (uint32_t)1 << marks[i] % 32;
}

const uint32_t *guide_mask(Guide *g, int *n_words)
{
	*n_words = g->vocab->n_words;
	if (g->is_free) {
		if (!g->has_free)
			allow_all(g);
		g->has_free = true;
		return g->words;
	}
	if (!grammar_text_mask(g->text, g->words))
		return NULL;
	allow_marks(g);
	return g->words;
}

/* A token of reasoning. White space after the mark that ends it is dropped; other text there begins the structure. */
static void push_free(Guide *g, const char *bytes, size_t n)
{
	const char *closer = g->source.closer;
	const size_t n_closer = strlen(closer);
	for (size_t i = 0; i < n; i++) {
		if (g->n_tail == sizeof g->tail) {
			memmove(g->tail, g->tail + 1, sizeof g->tail - 1);
			g->n_tail--;
		}
		g->tail[g->n_tail++] = bytes[i];
		if (g->n_tail < n_closer || memcmp(g->tail + g->n_tail - n_closer, closer, n_closer) != 0)
			continue;
		size_t rest = i + 1;
		while (rest < n && strchr(" \n\r\t", bytes[rest]) && bytes[rest])
			rest++;
		if (rest == n || grammar_text_push_bytes(g->text, bytes + rest, n - rest)) {
			g->is_free = false;
			return;
		}
	}
}

static bool is_mark(const Guide *g, int32_t token)
{
	for (int i = 0; i < g->source.n_marks; i++)
		if (g->source.marks[i] == token)
			return true;
	return false;
}

bool guide_push(Guide *g, int32_t token)
{
	const char *bytes;
	size_t n;
	bool special;
	if (!g->is_free && !is_mark(g, token))
		return grammar_text_push(g->text, token);
	if (!tok_token_bytes(g->vocab->tok, token, &bytes, &n, &special))
		return true;
	if (!g->is_free)
		return grammar_text_push_bytes(g->text, bytes, n);
	push_free(g, bytes, n);
	return true;
}

bool guide_is_over(const Guide *g) { return !g->is_free && grammar_text_is_over(g->text); }

int guide_masks_after(Guide *g, const int32_t *drafts, int n, uint32_t *words)
{
	const Guide before = *g;
	const int n_words = g->vocab->n_words;
	const size_t bytes = sizeof *words * (size_t)n_words;
	int k = 0;
	grammar_text_try(g->text);
	for (; k < n; k++) {
		const int32_t draft = drafts[k];
		const bool is_id = draft >= 0 && draft < g->vocab->n_ids;
		if (!is_id || !(g->words[draft / 32] >> draft % 32 & 1) || !guide_push(g, draft) || guide_is_over(g))
			break;
		g->words = words + (size_t)k * (size_t)n_words;
		if (g->is_free)
			memcpy(g->words, before.words, bytes);
		else if (grammar_text_mask(g->text, g->words))
			allow_marks(g);
		else
			break;
	}
	grammar_text_back(g->text);
	*g = before;
	return k;
}
