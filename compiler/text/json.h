/* json.h - JSON of checkpoints, strictly, every value with line and column.
 *
 * Refused: a byte-order mark, as by Python's json; anything jansson refuses (bad UTF-8, trailing text, leading zeros,
 * integers beyond 64 bits, numbers beyond double, \u0000), a name twice in one object, nesting deeper and more values
 * than the rules say.
 * The top level is an object.
 */
#ifndef ATLASC_JSON_H
#define ATLASC_JSON_H

#include "compiler/text/value.h"

typedef struct JsonRules {
	Code code;          /* of what is wrong with the text */
	int64_t max_bytes;  /* of a file (json_read) */
	int max_depth;      /* at most JSON_MAX_DEPTH */
	int max_values;
	bool nonfinite;     /* NaN, Infinity, -Infinity and {"__float__": "NaN"} become VALUE_NONFINITE */
	bool no_integers;   /* integers become VALUE_REAL, of any size; for files of which none is read */
} JsonRules;
enum { JSON_MAX_DEPTH = 64 };
extern const JsonRules json_config_rules; /* of small files: 16 MiB, 64 levels, 2^18 values, nonfinite */
extern const JsonRules json_text_rules;   /* the same with no_integers: tokenizer configs say 10^30 for "no limit" */

/* What holds for the bytes of every JSON file: UTF-8 without a byte-order mark and without NUL bytes. False after
 * having recorded an error. */
bool json_check_text(Diags *d, Code code, const char *file, const char *text, size_t n);

/* The tree, in `a`, or NULL after having recorded an error. `text` has n bytes and a NUL after them, must
 * stay as long as the tree (Value.source points there) and may be written to. `scratch` holds what is not
 * wanted afterwards. `file` is the name used in places. */
const Value *json_parse(Arena *a, Arena *scratch, Diags *d, const JsonRules *rules, const char *file,
	char *text, size_t n);

/* The same from a file. *absent (may be NULL = must exist) is set when there is none of that name. */
const Value *json_read(Arena *a, Arena *scratch, Diags *d, const JsonRules *rules, const char *path, bool *absent);

#endif
