/* json_put.h - the pieces of JSON that reports about plans and the verbs print. */
#ifndef ATLAS_JSON_PUT_H
#define ATLAS_JSON_PUT_H

#include <stddef.h>
#include <stdio.h>

/* Bytes of the code point of UTF-8 at p, of which n bytes are there; 0 when there is none. */
size_t json_code_point(const unsigned char *p, size_t n);
/* Quoted; n bytes of UTF-8, invalid bytes as U+FFFD. */
void json_text(FILE *out, const char *text, size_t n);
void json_quoted(FILE *out, const char *text);
void json_number(FILE *out, double value);                      /* null when it is not finite */
void json_field(FILE *out, const char *name, const char *text); /* "name":"text" */
void json_fields(FILE *out, ...) __attribute__((sentinel)); /* "a":"x","b":"y" of "a", x, "b", y, NULL */
void json_hash(FILE *out, const unsigned char hash[32]);        /* "0f...": 64 digits */

#endif
