/* stop_text.c - see stop_text.h. What is held back is the longest end of the text that begins a
 * stop text, so output lags by less than one stop text, and never by part of a code point when the
 * stops are UTF-8. */
#include "runtime/cli/stop_text.h"

#include <stdlib.h>
#include <string.h>

bool bytes_add(Bytes *b, const char *from, size_t n)
{
	if (b->cap - b->n < n) {
		size_t cap = (b->n + n) * 2 + 64;
		char *at = realloc(b->at, cap);
		if (!at)
			return false;
		b->at = at;
		b->cap = cap;
	}
	if (n)
		memcpy(b->at + b->n, from, n);
	b->n += n;
	return true;
}

/* Where the stop text begins that is complete first, the longest of those that end together: what
 * is cut does not depend on how the text came in pieces. held.n when there is none. */
static size_t first_stop(const StopText *s)
{
	size_t first = s->held.n, first_end = s->held.n + 1;
	for (int i = 0; i < s->n_stops && s->held.n; i++) {
		size_t n = strlen(s->stops[i]);
		const char *at = memmem(s->held.at, s->held.n, s->stops[i], n);
		size_t start = at ? (size_t)(at - s->held.at) : s->held.n, end = start + n;
		if (at && (end < first_end || (end == first_end && start < first))) {
			first = start;
			first_end = end;
		}
	}
	return first;
}

/* Length of the longest end of the held text that is a beginning of a stop text. */
static size_t open_end(const StopText *s)
{
	size_t longest = 0;
	for (int i = 0; i < s->n_stops; i++) {
		size_t n = strlen(s->stops[i]) - 1;
		for (n = n < s->held.n ? n : s->held.n; n > longest; n--)
			if (memcmp(s->held.at + s->held.n - n, s->stops[i], n) == 0)
				longest = n;
	}
	return longest;
}

bool stop_text_push(StopText *s, const char *from, size_t n, Bytes *out, bool *found)
{
	if (!bytes_add(&s->held, from, n))
		return false;
	size_t certain = first_stop(s);
	*found = certain < s->held.n;
	if (!*found)
		certain -= open_end(s);
	if (!bytes_add(out, s->held.at, certain))
		return false;
	s->held.n = *found ? 0 : s->held.n - certain;
	if (s->held.n)
		memmove(s->held.at, s->held.at + certain, s->held.n);
	return true;
}

bool stop_text_finish(StopText *s, Bytes *out)
{
	bool good = bytes_add(out, s->held.at, s->held.n);
	s->held.n = 0;
	return good;
}
