/* guide.h - a sequence that is to have a structure: the masks of its tokens, from its grammar and its text so far. */
#ifndef ATLAS_GUIDE_H
#define ATLAS_GUIDE_H

#include "runtime/grammar/grammar.h"

enum { GUIDE_MARKS = 16 };

/* What a request asks for; constant, of any thread. */
typedef struct GuideSource {
	const Grammar *grammar;    /* NULL = its text is free */
	const GrammarVocab *vocab;
	const char *closer;        /* the prompt ends where reasoning has begun: the structure begins after this; or NULL */
	int32_t marks[GUIDE_MARKS]; /* [n_marks] added tokens that may be of the structure, where their text fits */
	int n_marks;
} GuideSource;

typedef struct Guide Guide;
/* ends [n_ends]: tokens that end the sequence. NULL: no memory. */
Guide *guide_open(const GuideSource *source, const int32_t *ends, int n_ends);
void guide_close(Guide *g); /* NULL is fine */
/* The mask [*n_words] of the next token, until the next call. NULL: it is not known. */
const uint32_t *guide_mask(Guide *g, int *n_words);
/* Masks [n, n_words] after the first, second, ... of drafts [n], while the text takes them and goes on, by what
 * guide_mask gave last; returns how many. The text stays as it was. */
int guide_masks_after(Guide *g, const int32_t *drafts, int n, uint32_t *words);
/* False: the token was none of the mask's. */
bool guide_push(Guide *g, int32_t token);
bool guide_is_over(const Guide *g); /* the text is whole and cannot go on */

#endif
