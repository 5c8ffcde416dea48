/* tokenizer_json.h - checked access to the JSON of tokenizer files, shared by the files that read
 * their parts. A Reader remembers the file; a value is named in messages by its path,
 * for example `pre_tokenizer.pretokenizers[0].pattern`.
 */
#ifndef ATLASC_TOKENIZER_JSON_H
#define ATLASC_TOKENIZER_JSON_H

#include "compiler/tokenizer/tokenizer_spec.h"

#include <jansson.h>

typedef struct Reader {
	Arena *arena;
	Diags *diags;
	const char *file; /* as the user would name it */
	TokenizerSpec *spec;
	json_t *vocab; /* model.vocab */
} Reader;

/* A value with its path. `v` is NULL when an optional value is absent or null. */
typedef struct Json {
	json_t *v;
	const char *path;
} Json;

bool reject(Reader *r, Code code, Json at, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Reads and parses Reader.file: strict JSON, no duplicate keys. NULL after reporting. */
json_t *load_json(Reader *r);

Json child(Reader *r, Json of, const char *key);  /* absent or null: v = NULL */
Json element(Reader *r, Json of, size_t index);

/* The value of `key`; report A0504 and return false if absent or of another type. */
bool get_string(Reader *r, Json of, const char *key, Str *out);
bool get_bool(Reader *r, Json of, const char *key, bool *out);
bool get_count(Reader *r, Json of, const char *key, int64_t *out); /* integer >= 0 */
bool get_point(Reader *r, Json of, const char *key, Str *out);     /* a string of one character */
bool get_array(Reader *r, Json of, const char *key, Json *out);
bool get_bool_or(Reader *r, Json of, const char *key, bool absent, bool *out);

/* A0502 for every key of an object that is not in the space-separated list. */
bool only_keys(Reader *r, Json of, const char *keys);

/* For messages: a string cut to a readable length, quoted. */
const char *quoted(Reader *r, Str s);

bool str_is(Str s, const char *literal);
bool str_same(Str a, Str b);
Str str_replace(Arena *a, Str text, Str what, Str by);

/* Parts of tokenizer.json: read_tokenizer_steps.c. */
bool read_normalizer(Reader *r, Json at);
bool read_pre_tokenizer(Reader *r, Json at);
bool read_decoder(Reader *r, Json at); /* fills the texts of all tokens; their names are known */
int alphabet_byte(uint32_t cp);        /* the byte a character of the byte-level alphabet represents, or -1 */

#endif
