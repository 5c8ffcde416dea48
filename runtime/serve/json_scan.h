/* json_scan.h - JSON as its bytes come: where an object or a list ends, or that it is not JSON.
 *
 * For text that a model writes: one pass, a fixed depth, nothing allocated, and values stay the bytes that they were,
 * so that a number of thirty digits reaches the client as it is.
 */
#ifndef ATLAS_JSON_SCAN_H
#define ATLAS_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_SCAN_DEPTH = 64 };

typedef enum JsonEnd { JSON_MORE, JSON_DONE, JSON_BAD } JsonEnd;

typedef struct JsonScan { /* zeroed = before an object or a list */
	uint64_t lists;     /* bit k: what is open at depth k is a list */
	int depth;
	unsigned char state, after_string; /* of json_scan.c */
	const char *rest;   /* of true, false or null; of \uXXXX, as many bytes as digits are expected */
} JsonScan;

/* One byte more. JSON_DONE: it closes the object or list that the first byte opened. JSON_BAD: no JSON goes on so, or
 * it is nested deeper than JSON_SCAN_DEPTH. After either the scan is over. */
JsonEnd json_scan(JsonScan *s, unsigned char c);
/* Is the text one object or list, without blanks around it? */
bool json_scan_whole(const char *text, size_t n);
/* Is the text one object, with or without blanks around it? Numbers may be of any size. */
bool json_scan_object(const char *text, size_t n);
/* Is the text a value of JSON that may be a member, which counts for the depth? */
bool json_scan_value(const char *text, size_t n);
/* Is the text a number of JSON? *is_integer: without fraction and exponent. */
bool json_scan_number(const char *text, size_t n, bool *is_integer);

typedef struct JsonSlice { const char *at; size_t n; } JsonSlice; /* bytes of a text; a string with its quotes */

/* The next member or element of an object or list that json_scan_whole accepts. *at: 0 at first. False: there are no
 * more. key: of an object; NULL for lists. */
bool json_scan_next(const char *text, size_t n, size_t *at, JsonSlice *key, JsonSlice *value);
/* What a string says, [*n] and free(); half a surrogate pair is U+FFFD. NULL: no memory. */
char *json_scan_text(JsonSlice string, size_t *n);
/* Escapes of half a surrogate pair and of U+0000 become \ufffd, which is as long: a request that has the others is
 * refused, so that no client could send them back. */
void json_scan_mend(char *text, size_t n);

#endif
