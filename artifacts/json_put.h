/* json_put.h - strings and fields of JSON documents, as reports about plans write them. */
#ifndef ATLAS_JSON_PUT_H
#define ATLAS_JSON_PUT_H

#include <stdio.h>

void json_put(const char *text, FILE *out);                     /* "text", escaped; UTF-8 goes through as it is */
void json_put_field(const char *name, const char *text, FILE *out); /* "name":"text" */
void json_put_hash(const unsigned char hash[32], FILE *out);    /* "0f...": 64 digits */

#endif
