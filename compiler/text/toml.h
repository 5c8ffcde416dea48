/* toml.h - the subset of TOML 1.0 that MODEL.toml is written in.
 *
 * Read: comments, bare, quoted and dotted keys, tables, arrays of tables, basic and literal strings on one
 * line, integers (also 0x, 0o, 0b, with underscores), floats, booleans, arrays, inline tables.
 * Refused with a word of their own: dates and times, multi-line strings, inf and nan.
 * Limits: 1 MiB of text, 16 levels, 8 parts of a key, 64 KiB of a string, 1024 members of a table.
 * What is accepted means what TOML 1.0 says; what TOML 1.0 forbids is refused (repeated keys and tables, tables
 * reopened through dotted keys, control characters, bad UTF-8 ...).
 */
#ifndef ATLASC_TOML_H
#define ATLASC_TOML_H

#include "compiler/text/value.h"

enum { TOML_MAX_BYTES = 1 << 20 };

/* The root table, in `a`, or NULL after having recorded one A0301 with line and column. `text` needs no final
 * NUL and must stay as long as the tree. `file` is the name used in places. */
const Value *toml_parse(Arena *a, Diags *d, const char *file, const char *text, size_t n);

#endif
