/* value.h - a value read from JSON or TOML, with its place and its spelling.
 *
 * Both readers give the same tree, so that one set of typed getters makes all messages:
 *
 *   model/config.json:12:26: error[A0203]: num_hidden_layers = "30": expected an integer from 1 to 1024
 *
 * Values live in the arena given to the reader. Nothing is converted: 4096.0 is not an integer,
 * "4096" is not a number, true is not 1. Only an integer where a real number is wanted passes.
 */
#ifndef ATLASC_VALUE_H
#define ATLASC_VALUE_H

#include "compiler/base.h"

typedef enum ValueKind {
	VALUE_NULL, VALUE_BOOL, VALUE_INT, VALUE_REAL,
	VALUE_NONFINITE, /* NaN, Infinity, -Infinity in config.json: tolerated until the number is needed */
	VALUE_STRING, VALUE_ARRAY, VALUE_TABLE,
} ValueKind;

typedef struct Value Value;
struct Value {
	ValueKind kind;
	int n;             /* elements of an array, members of a table, bytes of a string */
	union {
		bool boolean;
		int64_t integer;
		double real;
		const char *string; /* UTF-8 without NUL inside, ended by NUL */
		Value *first;       /* of an array or a table, in the order of the text */
	};
	Value *next;       /* the following element or member */
	const char *key;   /* of a member of a table, else NULL */
	Loc at, key_at;    /* TOML sets key_at; for JSON it is the same as at */
	const char *source; /* as written; not ended by NUL */
	int source_bytes;
	unsigned origin;   /* toml.c: how the table came about */
};

/* Member of a table by name, or NULL; also NULL when t is NULL or no table. */
const Value *value_get(const Value *t, const char *key);

/* The spelling, as clip_text does with at most `max` bytes; a TOML table of many lines as if it were one line. */
const char *value_spelling(Arena *a, const Value *v, size_t max);
/* The same with at most 48 bytes. */
const char *value_text(Arena *a, const Value *v);
/* The text that these paths (NULL = none) were read from, with base names alone: where a file lies is no input. */
const char *value_text_without_folders(Arena *a, const char *text, const Value *const *paths, int n_paths);

/* Foreign UTF-8 made fit for a message: one line, no control characters, at most `max` (> 3) bytes of it, cut
 * between code points and then ended by "...". In the arena. */
const char *clip_text(Arena *a, const char *text, size_t n, size_t max);

/* Same kind and content; an integer equals a real number of the same value. */
bool value_equal(const Value *a, const Value *b);

/* ": did you mean CLOSE?", or "" when `close` is NULL. */
const char *did_you_mean(Arena *a, const char *close);

/* Getters: true and *out set, or false after having recorded
 * "NAME = TEXT: expected ...". `code` is the code of the message. Bounds are inclusive. */
bool want_int(Diags *d, Code code, const char *name, const Value *v, int64_t lo, int64_t hi, int *out);
bool want_bool(Diags *d, Code code, const char *name, const Value *v, bool *out);
bool want_string(Diags *d, Code code, const char *name, const Value *v, const char **out);
/* Finite, lo <= x <= hi; with `above` lo < x. */
bool want_real(Diags *d, Code code, const char *name, const Value *v, double lo, bool above, double hi,
	double *out);
bool want_table(Diags *d, Code code, const char *name, const Value *v);
bool want_array(Diags *d, Code code, const char *name, const Value *v);

#endif
