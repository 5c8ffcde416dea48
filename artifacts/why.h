/* why.h - the sentence that a reader or writer of a file gives its caller (decode.c). */
#ifndef ATLAS_WHY_H
#define ATLAS_WHY_H

#include <stdbool.h>
#include <stddef.h>

/* Into why [n], cut to it; returns false, so that a function can `return say_why(...)`. */
bool say_why(char *why, size_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
