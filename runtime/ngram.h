/* ngram.h - drafts without a head, by prompt lookup: what followed the last tokens of a text where they occurred before
 * in it, most lately. One object for each slot. Nothing here decides what a text is: a draft counts where the model
 * draws it.
 */
#ifndef ATLAS_NGRAM_H
#define ATLAS_NGRAM_H

#include "artifacts/plan.h"

enum { NGRAM_ONE = 256 /* of `worth`: a draft */ };

typedef struct Ngrams {
	int min, max;        /* tokens of the n-grams that are looked for: 1 to PLAN_MAX_NGRAM */
	int room, n;         /* tokens that there is room for; of the text so far, prompt and answer */
	int32_t *tokens;     /* [room] owned */
	int32_t *ends;       /* [max - min + 1, 2^bits] owned: for each n-gram of that length its last place: the index
							after it, 0 = free. Open addressing */
	int bits;            /* of the text's tables, which hold at most half of what they have room for */
	size_t uncleared;    /* places of `ends`, the first ones, that may be another text's */
	int indexed;         /* tokens whose n-grams are in the tables */
	int before[PLAN_MAX_NGRAM + 1]; /* by length: where the last n-gram occurred before, as in ends; 0 = nowhere */
	int worth;           /* drafts that counted in each step that had some, on average, times NGRAM_ONE; lately ones
							count most, and a text without any yet has one */
	bool has_drafts;     /* the step in flight has some */
} Ngrams;

/* For texts of at most `room` tokens. Memory of the host is reserved for them and used as texts grow. False: there is
 * not enough. ngrams_close gives back what was taken, then as well. No other function takes memory or can fail. */
bool ngrams_open(Ngrams *g, int min, int max, int room);
void ngrams_close(Ngrams *g);
/* A text begins with tokens [n], n <= room, which are copied; the one before is forgotten. */
void ngrams_start(Ngrams *g, const int32_t *tokens, int n);
/* Its next token; none after room. */
void ngrams_push(Ngrams *g, int32_t token);
/* Looks at most at *work tokens of those that it has not seen, or clears tables for as long, and takes what it did from
 * *work. True: all tokens are looked at and the text's last n-gram was there before; then drafts [n] follow its last
 * token. Past the text's end its own drafts go on, as in a text that repeats itself. */
bool ngrams_draft(Ngrams *g, int32_t *drafts, int n, int *work);
/* The same for the texts of a step: those of all [*] that slots [n_slots] name, where -1 names none. Sets has_drafts of
 * each, and drafts [*, stride], a row for each slot; `work` is for all together, so that a step costs no more where
 * many long prompts come at once. */
void ngrams_draft_all(Ngrams *all, const int *slots, int n_slots, int32_t *drafts, int stride, int n, int work);
/* A step read the drafts: `accepted` of them counted, 0 or more. */
void ngrams_note(Ngrams *g, int accepted);
/* There were drafts, but no step read them: they become worth a little more, so that they are tried again. */
void ngrams_pass(Ngrams *g);

#endif
