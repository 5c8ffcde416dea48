/* test_stops.c - text that ends at stop strings, against a search in the whole text.
 *
 * Texts over two letters are fed in pieces of every size, so that strings span pieces, overlap themselves and each
 * other, and begin without going on. Then real texts go through a tokenizer in several groupings of tokens, with every
 * part of them as a stop string.
 */
#include "runtime/text/stops.h"
#include "tests/unit/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct Want { size_t n; int stop; } Want; /* bytes of the text that stay; the string it ends at, or -1 */

/* The string that is complete first, the longest of those that end together, by looking at each end in turn. */
static Want want_of(const char *text, const char *const *stops, int n_stops, bool include)
{
	const size_t n = strlen(text);
	for (size_t end = 1; end <= n; end++) {
		int best = -1;
		for (int i = 0; i < n_stops; i++) {
			const size_t length = strlen(stops[i]);
			if (length <= end && memcmp(text + end - length, stops[i], length) == 0 &&
				(best < 0 || length > strlen(stops[best])))
				best = i;
		}
		if (best >= 0)
			return (Want){include ? end : end - strlen(stops[best]), best};
	}
	return (Want){n, -1};
}

static void set(Stops *s, const char *const *stops, int n_stops, bool include)
{
	size_t lengths[ATLAS_MAX_STOPS];
	for (int i = 0; i < n_stops; i++)
		lengths[i] = strlen(stops[i]);
	assert_true(stops_set(s, stops, lengths, n_stops, include));
}

static void check(const char *text, const char *const *stops, int n_stops)
{
	size_t longest = 1;
	for (int i = 0; i < n_stops; i++)
		longest = strlen(stops[i]) > longest ? strlen(stops[i]) : longest;
	Stops s = {0};
	for (int include = 0; include < 2; include++) {
		const Want want = want_of(text, stops, n_stops, include);
		set(&s, stops, n_stops, include);
		for (size_t piece = 1, n = strlen(text); piece <= n + 1; piece++) {
			char got[64];
			const char *out;
			size_t n_got = 0, n_out;
			for (size_t at = 0; at < n; at += piece) {
				const bool is_last = at + piece >= n;
				const size_t part = is_last ? n - at : piece;
				assert_true(is_last ? stops_end(&s, text + at, part, &out, &n_out)
					: stops_push(&s, text + at, part, &out, &n_out));
				memcpy(got + n_got, out, n_out);
				n_got += n_out;
				assert_true(s.matched || n_got + longest - 1 >= at + part); /* less than one is held back */
			}
			if (n_got != want.n || memcmp(got, text, want.n) != 0 || s.matched - 1 != want.stop)
				fail_msg("\"%s\" in pieces of %zu: got %zu bytes, stop %d; want %zu, %d", text, piece, n_got,
					s.matched - 1, want.n, want.stop);
			stops_restart(&s);
		}
	}
	stops_free(&s);
}

static void all_short_texts(void **state)
{
	static const char *const sets[][3] = {
		{"a"}, {"ab"}, {"aab"}, {"abab"}, {"bbb", "ab"}, {"ab", "aab"}, {"aabaa", "ba"}, {"abaab", "baaa", "bb"}};
	(void)state;
	for (size_t k = 0; k < sizeof sets / sizeof sets[0]; k++)
		for (unsigned bits = 1; bits < 1u << 10; bits++) { /* the letters below the highest set bit */
			char text[16] = "";
			int n = 31 - __builtin_clz(bits), n_stops = 0;
			for (int i = 0; i < n; i++)
				text[i] = bits >> i & 1 ? 'a' : 'b';
			while (n_stops < 3 && sets[k][n_stops])
				n_stops++;
			check(text, sets[k], n_stops);
		}
}

static void words_and_code_points(void **state)
{
	static const char *const stops[] = {"</end>", "\n\n", "\xe2\x82\xac"};
	(void)state;
	check("", stops, 3);
	check("no stop at all", stops, 3);
	check("one</en two</end>three", stops, 3);
	check("line\nline\n\nnever", stops, 3);
	check("costs 5 \xe2\x82\xac today", stops, 3);
	check("costs 5 \xe2\x82\xab today", stops, 3); /* the same first two bytes */
	check("plain", NULL, 0);
}

/* Strings are bytes: one with a NUL in it, and one of the greatest length. */
static void strings_are_bytes(void **state)
{
	char longest[ATLAS_MAX_STOP_BYTES], text[600];
	const char *const strings[] = {"a\0b", longest};
	const size_t n_bytes[] = {3, sizeof longest};
	const char *out;
	size_t n_out, n_got = 0;
	Stops s = {0};
	(void)state;
	memset(longest, 'x', sizeof longest);
	longest[sizeof longest - 1] = 'y';
	assert_true(stops_set(&s, strings, n_bytes, 2, false));
	assert_true(stops_push(&s, "1a\0c2a\0b3", 9, &out, &n_out));
	assert_true(n_out == 5 && memcmp(out, "1a\0c2", 5) == 0 && s.matched == 1);
	assert_true(stops_push(&s, "4", 1, &out, &n_out) && n_out == 0); /* nothing comes after the end */
	assert_true(stops_end(&s, "5", 1, &out, &n_out) && n_out == 0);
	stops_restart(&s);
	memset(text, 'x', sizeof text);
	text[500] = 'y';
	for (size_t i = 0; i < sizeof text; i++) {
		assert_true(stops_push(&s, text + i, 1, &out, &n_out));
		n_got += n_out;
	}
	assert_true(s.matched == 2 && n_got == 501 - sizeof longest);
	stops_free(&s);
}

/* A text and its tokens in one grouping: as the tokenizer has it, in two parts, or code point by code point. */
static size_t tokens_of(const AtlasPlan *plan, const char *text, size_t from, size_t to, int32_t *tokens, size_t cap)
{
	size_t n;
	assert_int_equal(atlas_encode(plan, text + from, to - from, 0, tokens, cap, &n), ATLAS_OK);
	assert_true(n <= cap);
	return n;
}

static bool is_border(const char *text, size_t at) { return ((unsigned char)text[at] & 0xc0) != 0x80; }

static size_t group(const AtlasPlan *plan, const char *text, size_t cut, int32_t *tokens, size_t cap)
{
	const size_t n = strlen(text);
	size_t made = 0;
	if (cut < n)
		return tokens_of(plan, text, 0, cut, tokens, cap) +
			tokens_of(plan, text, cut, n, tokens + tokens_of(plan, text, 0, cut, tokens, cap), cap / 2);
	for (size_t from = 0, to; from < n; from = to) {
		to = from + 1;
		while (!is_border(text, to))
			to++;
		made += tokens_of(plan, text, from, to, tokens + made, cap - made);
	}
	return made;
}

static char *decoded(AtlasText *t, const int32_t *tokens, size_t n, char *out)
{
	const char *bytes;
	size_t n_bytes, at = 0;
	for (size_t i = 0; i <= n; i++) {
		assert_int_equal(i < n ? atlas_text_push(t, tokens[i], &bytes, &n_bytes)
			: atlas_text_finish(t, &bytes, &n_bytes), ATLAS_OK);
		memcpy(out + at, bytes, n_bytes);
		at += n_bytes;
	}
	out[at] = 0;
	return out;
}

static void check_tokens(AtlasText *t, const char *text, const int32_t *tokens, size_t n)
{
	char whole[512], got[512], stop[512], other[] = "never there";
	const char *const stops[] = {other, stop};
	assert_int_equal(atlas_text_stops(t, NULL, NULL, 0, 0), ATLAS_OK);
	assert_string_equal(decoded(t, tokens, n, whole), text);
	atlas_text_restart(t);
	const size_t length = strlen(whole);
	for (size_t from = 0; from < length; from++)
		for (size_t to = from + 1; to <= length && to <= from + 9; to++) {
			const size_t n_bytes[] = {strlen(other), to - from};
			const int include = (int)(from + to) % 2;
			memcpy(stop, whole + from, to - from);
			stop[to - from] = 0;
			const Want want = want_of(whole, stops, 2, include);
			assert_int_equal(atlas_text_stops(t, stops, n_bytes, 2, include), ATLAS_OK);
			decoded(t, tokens, n, got);
			assert_int_equal(atlas_text_stopped(t), 1);
			if (strlen(got) != want.n || memcmp(got, whole, want.n) != 0)
				fail_msg("\"%s\" to \"%s\": got \"%s\"", whole, stop, got);
			assert_int_equal(atlas_text_stops(t, stops, n_bytes, 2, include), ATLAS_ARGUMENT); /* it has begun */
			atlas_text_restart(t);
			assert_int_equal(atlas_text_stopped(t), -1);
		}
}

/* Every part of a text as the stop string, cut at every byte, in every grouping of tokens. */
static void tokens_in_any_grouping(void **state)
{
	static const char *const texts[] = {"Hello, world! <|im_end|>\n\nok",
		"na\xc3\xafve \xe2\x82\xac""5 \xf0\x9f\x98\x80 end"};
	char why[256];
	AtlasPlan *plan;
	AtlasText *t;
	Rig r;
	(void)state;
	rig_checkpoint(&r, "tests/fixtures/llama");
	const PlanBlob blobs[] = {r.made.blob, {"tokenizer", r.made.c.model.tokenizer, r.made.c.model.tokenizer_bytes}};
	PlanParts parts = r.made.parts;
	parts.blobs = blobs;
	parts.n_blobs = 2;
	assert_true(artifact_write(r.made.path, &parts, why, sizeof why));
	assert_int_equal(atlas_plan_open(r.made.path, NULL, &plan, &r.error), ATLAS_OK);
	assert_int_equal(atlas_text_open(plan, 1, &t), ATLAS_OK);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		for (size_t cut = 0; cut <= strlen(texts[i]); cut++) {
			int32_t tokens[256];
			if (is_border(texts[i], cut)) {
				const size_t n = group(plan, texts[i], cut, tokens, 256);
				assert_true(n > 0);
				check_tokens(t, texts[i], tokens, n);
			}
		}
	atlas_text_close(t);
	atlas_plan_close(plan);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_short_texts),
		cmocka_unit_test(words_and_code_points),
		cmocka_unit_test(strings_are_bytes),
		cmocka_unit_test(tokens_in_any_grouping),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
