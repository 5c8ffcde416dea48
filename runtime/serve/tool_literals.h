/* tool_literals.h - arguments of calls as literals: where they end, and the JSON that they are.
 *
 * Of Python, city="Bern", days=[1, None]; or with a mark around strings, city:<|"|>Bern<|"|>,days:[1,null].
 */
#ifndef ATLAS_TOOL_LITERALS_H
#define ATLAS_TOOL_LITERALS_H

#include "runtime/serve/json_scan.h"

typedef struct LiteralScan { /* zeroed but for `quote` = after the bracket that opens the arguments */
	const char *quote; /* the mark around strings; NULL = ' or ", with escapes */
	int depth;
	char open;         /* the quote of the string that is open; 0 = none */
	bool is_escaped;
	size_t n_matched;  /* bytes of `quote` that came */
} LiteralScan;

/* One byte more. JSON_DONE: it is a bracket that closes the one before the arguments, of whatever kind. JSON_BAD: they
 * are nested deeper than JSON_SCAN_DEPTH. */
JsonEnd literal_scan(LiteralScan *s, char c);
/* What is between the brackets, as a JSON object: *json [*n], free(); NULL where it is no list of names and values.
 * False: no memory. */
bool literals_to_json(const char *quote, const char *text, size_t n_text, char **json, size_t *n);
/* The same of one object or list of Python. */
bool literal_to_json(const char *text, size_t n_text, char **json, size_t *n);

#endif
