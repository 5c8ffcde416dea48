/* marked.c - tokens of plain bytes and then one that is none of them, as "king.com" where a name may end with a full
 * stop: what follows that byte does not depend on how much came before it, as long as it was not too much. States of a
 * lexeme that differ by a count have such tokens in common. They are found once, by how far ahead that byte is.
 */
#include "runtime/grammar/marked.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_MARKED = 48 };

/* Adds the tokens at `place`, whose byte leads to state `to`, and below. */
static bool add_below(Marked *k, const GrammarVocab *v, const Lexeme *l, const Mark *mark, uint32_t to, Level *levels)
{
	const uint32_t deep = mark->depth < SHORT ? mark->depth : SHORT;
	uint32_t *words = k->upto[deep] ? k->upto[deep] : calloc((size_t)v->n_words, sizeof *words), depth = 0;
	Effort e = {.at = -1};
	k->upto[deep] = words;
	levels[0] = (Level){vocab_end(v, mark->at), to, 0};
	for (uint32_t i = mark->at; i < levels[0].end && words;) {
		while (i >= levels[depth].end)
			depth--;
		const uint32_t at = i == mark->at ? to : lexeme_step(l, levels[depth].state, vocab_byte(v, i));
		if (at == 0) {
			i = vocab_end(v, i);
			continue;
		}
		vocab_set(v, words, i);
		if (l->accepts[at] && vocab_end(v, i) > i + 1) {
			if (!GROW(&e, k->exits, k->exits_cap, k->n_exits + 1))
				return false;
			k->exits[k->n_exits++] = (Place){i, mark->depth};
		}
		if (vocab_end(v, i) > i + 1 && !l->ends[at])
			levels[++depth] = (Level){vocab_end(v, i), at, 0};
		i = l->ends[at] ? vocab_end(v, i) : i + 1;
	}
	return words;
}

static int by_place(const void *a, const void *b)
{
	const Place *x = a, *y = b;
	return (x->at > y->at) - (x->at < y->at);
}

static bool fill(Marked *k, const GrammarVocab *v, const Lexeme *l, Level *levels)
{
	bool good = true;
	for (int g = 0; g < GROUPS; g++)
		for (uint32_t i = v->first_mark[g]; i < v->first_mark[g + 1] && good && (k->key.other >> g & 1); i++) {
			const Mark *mark = &v->marks[i];
			const uint32_t to = k->key.to[vocab_byte(v, mark->at)];
			if (to && !(mark->above & ~k->key.groups) && k->key.is_first == (mark->depth == 0))
				good = add_below(k, v, l, mark, to, levels);
		}
	const uint32_t *before = NULL;
	for (int d = 0; d <= SHORT && good; d++) {
		for (int i = 0; i < v->n_words && k->upto[d] && before; i++)
			k->upto[d][i] |= before[i];
		before = k->upto[d] ? k->upto[d] : before;
	}
	if (k->n_exits)
		qsort(k->exits, k->n_exits, sizeof *k->exits, by_place);
	return good;
}

static void free_one(Marked *k)
{
	for (int d = 0; k && d <= SHORT; d++)
		free(k->upto[d]);
	if (k)
		free(k->exits);
	free(k);
}

void marked_free(Marked *all)
{
	for (Marked *next; all; all = next) {
		next = all->next;
		free_one(all);
	}
}

static Marked *find(Marked *all, const MarkedKey *key)
{
	while (all && memcmp(&all->key, key, sizeof *key) != 0)
		all = all->next;
	return all;
}

const Marked *marked_tokens(AtomTable *t, const GrammarVocab *v, const Lexeme *l, const MarkedKey *key, Level *levels)
{
	pthread_mutex_lock(&t->lock);
	Marked *k = find(t->marked, key);
	const bool is_full = t->n_marked >= MOST_MARKED;
	pthread_mutex_unlock(&t->lock);
	if (k || is_full)
		return k;
	k = calloc(1, sizeof *k);
	if (k)
		k->key = *key;
	if (!k || !fill(k, v, l, levels)) {
		free_one(k);
		return NULL;
	}
	pthread_mutex_lock(&t->lock);
	k->next = t->marked; /* another thread may have made the same: both stay */
	t->marked = k;
	t->n_marked++;
	pthread_mutex_unlock(&t->lock);
	return k;
}

/* Those with the byte at most `reach` bytes ahead; NULL: there are none. */
static const uint32_t *words_upto(const Marked *k, uint32_t reach)
{
	int d = reach < SHORT ? (int)reach : SHORT;
	while (d >= 0 && !k->upto[d])
		d--;
	return d < 0 ? NULL : k->upto[d];
}

bool marked_can_reach(const Marked *k, const GrammarVocab *v, uint32_t reach)
{
	return reach < SHORT || !k->upto[SHORT] || reach >= v->depth;
}

bool marked_add(AtomMask *m, const GrammarVocab *v, const Marked *first, const Marked *later, uint32_t reach)
{
	const uint32_t *const words[] = {words_upto(first, 0), words_upto(later, reach)};
	uint32_t i = 0, j = 0;
	for (int k = 0; k < 2; k++)
		for (int w = 0; w < v->n_words && words[k]; w++)
			m->words[w] |= words[k][w];
	m->exits = malloc(sizeof *m->exits * ((size_t)first->n_exits + later->n_exits + 1));
	while (m->exits && (i < first->n_exits || j < later->n_exits)) {
		if (j == later->n_exits || (i < first->n_exits && first->exits[i].at < later->exits[j].at))
			m->exits[m->n_exits++] = first->exits[i++].at;
		else if (later->exits[j++].chars <= reach)
			m->exits[m->n_exits++] = later->exits[j - 1].at;
	}
	return m->exits;
}
