/* stops.c - see stops.h. What is held back is the longest end of the text that begins a stop string, so output lags by
 * less than one of them, and never by part of a code point where they are UTF-8.
 */
#include "runtime/text/stops.h"

#include <stdlib.h>
#include <string.h>

bool stops_set(Stops *s, const char *const *strings, const size_t *n_bytes, int n, bool include)
{
	size_t all = 0;
	for (int i = 0; i < n; i++)
		all += n_bytes[i];
	char *bytes = malloc(all + 1);
	if (!bytes)
		return false;
	free(s->bytes);
	s->bytes = bytes;
	s->n = n;
	s->include = include;
	for (int i = 0; i < n; i++) {
		memcpy(bytes + s->end[i], strings[i], n_bytes[i]);
		s->end[i + 1] = s->end[i] + n_bytes[i];
	}
	return true;
}

static size_t length_of(const Stops *s, int i) { return s->end[i + 1] - s->end[i]; }

/* Where the string ends that is complete first, and which it is, the longest of those that end together: what is cut
 * does not depend on how the text came in pieces. -1: none is there. */
static int first_match(const Stops *s, size_t *end)
{
	int best = -1;
	for (int i = 0; i < s->n; i++) {
		const size_t n = length_of(s, i);
		const char *at = memmem(s->text, s->n_text, s->bytes + s->end[i], n);
		const size_t ends = at ? (size_t)(at - s->text) + n : 0;
		if (at && (best < 0 || ends < *end || (ends == *end && n > length_of(s, best)))) {
			best = i;
			*end = ends;
		}
	}
	return best;
}

/* Length of the longest end of the text that is a beginning of a string. */
static size_t open_end(const Stops *s)
{
	size_t longest = 0;
	for (int i = 0; i < s->n; i++) {
		size_t n = length_of(s, i) - 1;
		for (n = n < s->n_text ? n : s->n_text; n > longest; n--)
			if (memcmp(s->text + s->n_text - n, s->bytes + s->end[i], n) == 0)
				longest = n;
	}
	return longest;
}

/* What was handed out goes, what was held back is the beginning of the text. */
static void drop_out(Stops *s)
{
	s->n_text -= s->n_out;
	if (s->n_text)
		memmove(s->text, s->text + s->n_out, s->n_text);
	s->n_out = 0;
}

static bool append(Stops *s, const char *from, size_t n)
{
	if (s->cap - s->n_text < n) {
		const size_t cap = (s->n_text + n) * 2 + 64;
		char *text = realloc(s->text, cap);
		if (!text)
			return false;
		s->text = text;
		s->cap = cap;
	}
	if (n)
		memcpy(s->text + s->n_text, from, n);
	s->n_text += n;
	return true;
}

bool stops_push(Stops *s, const char *from, size_t n, const char **out, size_t *n_out)
{
	*out = s->n ? "" : from;
	*n_out = s->n ? 0 : n;
	if (s->n == 0 || s->matched)
		return true;
	drop_out(s);
	if (!append(s, from, n))
		return false;
	size_t end = 0;
	const int found = first_match(s, &end);
	s->matched = found + 1;
	if (found >= 0)
		s->n_text = s->n_out = s->include ? end : end - length_of(s, found);
	else
		s->n_out = s->n_text - open_end(s);
	if (s->n_out)
		*out = s->text;
	*n_out = s->n_out;
	return true;
}

bool stops_end(Stops *s, const char *from, size_t n, const char **out, size_t *n_out)
{
	if (!stops_push(s, from, n, out, n_out))
		return false;
	if (s->n == 0 || s->matched || s->n_text == 0)
		return true;
	*out = s->text;
	*n_out = s->n_out = s->n_text;
	return true;
}

void stops_restart(Stops *s)
{
	s->n_text = s->n_out = 0;
	s->matched = 0;
}

void stops_free(Stops *s)
{
	free(s->bytes);
	free(s->text);
}
