/* lexeme.h - regular languages over bytes: expressions, and the deterministic automata that they become. */
#ifndef ATLAS_GRAMMAR_LEXEME_H
#define ATLAS_GRAMMAR_LEXEME_H

#include "runtime/grammar/grammar.h"

/* Work so far of a compilation, which has an end: what takes longer is refused. */
typedef struct Effort {
	int64_t left;      /* elementary steps, about a nanosecond or two each */
	const char *why;   /* NULL = all is well; else static: what was too much, or is not supported */
	int at;            /* byte of the expression that it is about, -1 = none */
	const Tok *tok;    /* whose table of characters \p{...} reads; NULL: it is refused */
} Effort;

/* Says why, if nothing was said before; returns false. */
bool effort_refuse(Effort *e, const char *why, int at);
/* False: there were not as many left, which is the reason then. */
bool effort_spend(Effort *e, int64_t steps);
/* Room for `n` elements of array *at, doubled as needed. */
bool effort_reserve(Effort *e, void **at, uint32_t *cap, uint32_t n, size_t bytes);
#define GROW(e, at, cap, n) effort_reserve((e), (void **)&(at), &(cap), (n), sizeof *(at))

/* An automaton: state 0 is dead, 1 the start; every other state leads to an accepting one. */
typedef struct Lexeme {
	uint32_t n_states, n_classes;
	uint8_t class_of[256];
	uint16_t *next;   /* [n_states, n_classes] */
	uint8_t *accepts; /* [n_states] */
	uint8_t *ends;    /* [n_states] accepts, and nothing follows */
	uint64_t (*bytes)[4]; /* [n_states] set of the bytes that lead on */
	uint8_t *like;    /* [n_states] the state of a string's lexeme from which the same texts follow, 0 = none; NULL: it
					   * was not asked for */
	/* Of a string's lexeme whose texts can be counted, else NULL: */
	bool *is_inside;  /* [n_states] the next byte begins no character */
	uint32_t *least, *most, *solid; /* [n_states] characters to come: least, and every count from solid to most, can be;
									 * others may be, and are left out; most ENDLESS = any */
	uint32_t span;    /* the largest of them that is not ENDLESS */
	bool has_gaps;    /* of a state there is a count between least and solid */
} Lexeme;
enum { ENDLESS = UINT32_MAX };

static inline uint32_t lexeme_step(const Lexeme *l, uint32_t state, uint8_t byte)
{
	return l->next[state * l->n_classes + l->class_of[byte]];
}
static inline bool lexeme_is_empty(const Lexeme *l) { return l->n_states < 2; } /* not even the empty text */
void lexeme_free(Lexeme *l);
/* *l becomes the same language, without what is known of it for masks. */
bool lexeme_copy(const Lexeme *from, Lexeme *l, Effort *e);
/* States that lead nowhere become 0; fills `ends` and `bytes` anew. */
bool lexeme_prune(Lexeme *l, Effort *e);

typedef enum Writing {
	AS_TEXT,        /* the bytes of the text */
	AS_JSON_STRING, /* between the quotes of a JSON string and the closing one: '"', '\' and control characters are
					 * escaped, in one way; other characters are not */
} Writing;

/* How an expression and a text meet. */
typedef enum Search {
	WHOLE, /* all of the text matches */
	PART,  /* some part of it does, as `pattern` of JSON schemas means it */
} Search;

/* The expression, zero-terminated UTF-8, in the syntax of ECMAScript without what looks back. */
bool lexeme_of_regex(const char *text, Search search, Writing writing, Lexeme *l, Effort *e);
/* PART, AS_JSON_STRING: the strings of *l with *lo to *hi characters. A long repetition between parts of fixed lengths
 * is in *l without its counts. */
bool lexeme_of_pattern(const char *text, Lexeme *l, uint32_t *lo, uint32_t *hi, Effort *e);
/* The texts [n], zero-terminated or of n_bytes, as they are. */
bool lexeme_of_texts(const char *const *texts, const size_t *n_bytes, uint32_t n, Lexeme *l, Effort *e);

/* What is in a and in b; in a and not in b; in one of them. */
typedef enum Combine { BOTH, FIRST_ONLY, EITHER } Combine;
bool lexeme_combine(const Lexeme *a, const Lexeme *b, Combine how, Lexeme *l, Effort *e);
/* What is in `a`, strings as JSON, and has from lo to hi code points; hi UINT32_MAX = any number. */
bool lexeme_of_length(const Lexeme *a, uint32_t lo, uint32_t hi, Lexeme *l, Effort *e);
/* Fills is_inside, least, most and solid, unless counts are missing without end; `string` is of lexeme_of_string. */
bool lexeme_count(Lexeme *l, const Lexeme *string, Effort *e);
/* Can a text from this state have from lo to hi characters? */
static inline bool lexeme_can_have(const Lexeme *l, uint32_t state, uint32_t lo, uint32_t hi)
{
	const uint32_t from = l->solid[state] > lo ? l->solid[state] : lo;
	const uint32_t until = l->most[state] < hi ? l->most[state] : hi;
	return from <= until || (lo <= l->least[state] && l->least[state] <= hi);
}
/* Is all of the text of the language? */
bool lexeme_has(const Lexeme *l, const void *text, size_t n);

/* Any JSON string from after its first quote: state STRING_START is between two characters, where a character begins
 * with every byte but '"'. */
enum { STRING_START = 1 };
bool lexeme_of_string(Lexeme *l, Effort *e);
/* Fills l->like, unless the automaton is large. */
bool lexeme_compare(Lexeme *l, const Lexeme *string, Effort *e);

#endif
