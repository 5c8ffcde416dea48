/* test_stop_text.c - text cut before stop texts, against a search in the whole text.
 *
 * Texts over two or three letters are fed in pieces of every size, so that stop texts span pieces,
 * overlap themselves and each other, and begin without going on.
 */
#include "runtime/cli/stop_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Feeds the text in pieces of `piece` bytes; the result is a string, to be freed. */
static char *fed(const char *text, const char *const *stops, int n_stops, size_t piece, bool *found)
{
	StopText s = {.stops = stops, .n_stops = n_stops};
	Bytes out = {0};
	size_t n = strlen(text);
	*found = false;
	for (size_t at = 0; at < n && !*found; at += piece) {
		size_t before = out.n;
		assert_true(stop_text_push(&s, text + at, n - at < piece ? n - at : piece, &out, found));
		assert_true(out.n >= before);
		if (!*found && at + piece < n) { /* less than one stop text is held back */
			size_t longest = 0;
			for (int i = 0; i < n_stops; i++)
				longest = strlen(stops[i]) > longest ? strlen(stops[i]) : longest;
			assert_true(out.n + (longest ? longest - 1 : 0) >= at + piece);
		}
	}
	if (!*found)
		assert_true(stop_text_finish(&s, &out));
	assert_true(bytes_add(&out, "", 1));
	free(s.held.at);
	return out.at;
}

static void check(const char *text, const char *const *stops, int n_stops)
{
	size_t want = strlen(text), want_end = want + 1;
	bool is_there = false;
	for (int i = 0; i < n_stops; i++) {
		const char *at = strstr(text, stops[i]);
		size_t start = at ? (size_t)(at - text) : 0, end = start + strlen(stops[i]);
		is_there |= at != NULL;
		if (at && (end < want_end || (end == want_end && start < want))) { /* complete first */
			want = start;
			want_end = end;
		}
	}
	for (size_t piece = 1; piece <= strlen(text) + 1; piece++) {
		bool found;
		char *got = fed(text, stops, n_stops, piece, &found);
		if (strlen(got) != want || memcmp(got, text, want) != 0 || found != is_there)
			fail_msg("\"%s\" in pieces of %zu: got \"%s\", want its first %zu bytes", text, piece,
				got, want);
		free(got);
	}
}

static void test_all_short_texts(void **state)
{
	(void)state;
	static const char *const sets[][3] = {
		{"a"}, {"ab"}, {"aab"}, {"abab"}, {"bbb", "ab"}, {"aabaa", "ba"}, {"abaab", "baaa", "bb"}};
	for (size_t k = 0; k < sizeof sets / sizeof sets[0]; k++)
		for (unsigned bits = 1; bits < 1u << 10;
			bits++) { /* the letters below the highest set bit */
			char text[16] = "";
			int n = 31 - __builtin_clz(bits), n_stops = 0;
			for (int i = 0; i < n; i++)
				text[i] = bits >> i & 1 ? 'a' : 'b';
			while (n_stops < 3 && sets[k][n_stops])
				n_stops++;
			check(text, sets[k], n_stops);
		}
}

static void test_words_and_code_points(void **state)
{
	(void)state;
	static const char *const stops[] = {"</end>", "\n\n", "\xe2\x82\xac"};
	check("", stops, 3);
	check("no stop at all", stops, 3);
	check("one</en two</end>three", stops, 3);
	check("line\nline\n\nnever", stops, 3);
	check("costs 5 \xe2\x82\xac today", stops, 3);
	check("costs 5 \xe2\x82\xab today", stops, 3); /* the same first two bytes */
	check("plain", NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_short_texts),
		cmocka_unit_test(test_words_and_code_points),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
