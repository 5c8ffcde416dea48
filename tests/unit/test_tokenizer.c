/* The tokenizer's interface in C, and what damaged compiled tokenizers do: be refused, or work
 * within their bounds. Ids themselves are compared with the reference library in tests/text/. */
#include "compiler/tokenizer/read_tokenizer.h"
#include "runtime/text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/fixtures/tokenizers/"

enum { N_FUZZ = 10000, N_FUZZ_JSON = 1000, MAX_IDS = 4096, MAX_FILE = 100000 };

static const char sample[] = "<|begin_of_text|> the e\xCC\x81 wheel's 12345\r\n\n  water <unk></s>  \xF0\x9F\x91\x8D "
	"\xE6\xB0\xB4 \xEA\xB0\x80 \xFF\xE2\x82 word<\xEF\xBD\x9CUser\xEF\xBD\x9C>";

typedef struct Loaded {
	Arena arena;
	Diags diags;
	TokenizerImage image;
	Tok tok;
} Loaded;

static void load(Loaded *l, const char *name)
{
	char folder[200], why[200];
	*l = (Loaded){0};
	l->diags.arena = &l->arena;
	snprintf(folder, sizeof folder, FOLDER "%s", name);
	assert_true(read_tokenizer(&l->arena, &l->diags, folder, NULL, NULL, 2000, &l->image));
	assert_int_equal(tok_open(&l->tok, l->image.bytes, l->image.n_bytes, why, sizeof why), 0);
}

static void unload(Loaded *l)
{
	arena_release(&l->arena);
}

static void test_counts_and_special_ids(void **state)
{
	Loaded l;
	const char *bytes;
	size_t n;
	bool special;
	(void)state;
	load(&l, "llama2");
	assert_int_equal(tok_n_ids(&l.tok), l.image.n_tokens);
	assert_int_equal(tok_bos(&l.tok), 1);
	assert_int_equal(tok_eos(&l.tok), 2);
	assert_true(tok_token_bytes(&l.tok, 2, &bytes, &n, &special));
	assert_true(special);
	assert_int_equal(n, 4);
	assert_memory_equal(bytes, "</s>", 4);
	assert_true(tok_token_bytes(&l.tok, 3 + 0xE2, &bytes, &n, &special)); /* <0xE2> */
	assert_false(special);
	assert_int_equal(n, 1);
	assert_memory_equal(bytes, "\xE2", 1);
	assert_false(tok_token_bytes(&l.tok, l.image.n_tokens, &bytes, &n, &special));
	assert_false(tok_token_bytes(&l.tok, -1, &bytes, &n, &special));
	assert_int_equal(n, 0);
	unload(&l);
}

/* The count is that of the whole text, whatever fits; nothing is written behind `cap`. */
static void test_small_buffers(void **state)
{
	Loaded l;
	int32_t all[MAX_IDS], some[MAX_IDS];
	(void)state;
	load(&l, "llama3");
	int n = tok_encode(&l.tok, sample, sizeof sample - 1, true, true, all, MAX_IDS);
	assert_in_range(n, 20, MAX_IDS - 1);
	assert_int_equal(all[0], tok_bos(&l.tok)); /* of the template */
	assert_int_equal(all[1], tok_bos(&l.tok)); /* of the text */
	assert_int_equal(tok_encode(&l.tok, sample, sizeof sample - 1, true, true, NULL, 0), n);
	for (int cap = 0; cap <= n; cap += 3) {
		memset(some, 0x55, sizeof some);
		assert_int_equal(tok_encode(&l.tok, sample, sizeof sample - 1, true, true, some, cap), n);
		assert_memory_equal(some, all, (size_t)cap * sizeof *all);
		assert_int_equal(some[cap], 0x55555555);
	}
	char text[1000], cut[1000];
	int64_t size = tok_decode(&l.tok, all, (size_t)n, false, text, sizeof text);
	assert_in_range(size, 20, 999);
	memset(cut, 0x55, sizeof cut);
	assert_int_equal(tok_decode(&l.tok, all, (size_t)n, false, cut, 7), size);
	assert_memory_equal(cut, text, 7);
	assert_int_equal(cut[7], 0x55);
	unload(&l);
}

static void test_empty_text(void **state)
{
	Loaded l;
	int32_t ids[4];
	(void)state;
	load(&l, "llama2");
	assert_int_equal(tok_encode(&l.tok, NULL, 0, false, true, ids, 4), 0);
	assert_int_equal(tok_encode(&l.tok, "", 0, true, true, ids, 4), 1);
	assert_int_equal(ids[0], 1);
	assert_int_equal(tok_decode(&l.tok, NULL, 0, true, NULL, 0), 0);
	unload(&l);
}

/* Bytes of one code point in three tokens: nothing comes before the third. */
static void test_stream_waits_for_whole_points(void **state)
{
	Loaded l;
	TokStream s;
	int32_t ids[8];
	const char *text;
	size_t n;
	(void)state;
	load(&l, "llama3");
	int count = tok_encode(&l.tok, "\xEF\xBF\xBE", 3, false, true, ids, 8); /* U+FFFE: in no merge */
	assert_int_equal(count, 3);
	tok_stream_start(&s, &l.tok, true);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(tok_stream_push(&s, ids[i], &text, &n), 0);
		assert_int_equal(n, 0);
		assert_string_equal(text, "");
	}
	assert_int_equal(tok_stream_push(&s, ids[2], &text, &n), 0);
	assert_int_equal(n, 3);
	assert_string_equal(text, "\xEF\xBF\xBE");
	assert_int_equal(tok_stream_push(&s, ids[0], &text, &n), 0);
	assert_int_equal(tok_stream_push(&s, tok_eos(&l.tok), &text, &n), 0); /* skipped */
	assert_int_equal(n, 0);
	assert_int_equal(tok_stream_finish(&s, &text, &n), 0);
	assert_string_equal(text, "\xEF\xBF\xBD");
	tok_stream_free(&s);
	unload(&l);
}

static void test_too_long(void **state)
{
	Loaded l;
	(void)state;
	load(&l, "llama3");
	assert_int_equal(tok_encode(&l.tok, "", (size_t)TOK_MAX_TEXT + 1, false, true, NULL, 0), TOK_E_SIZE);
	unload(&l);
}

static void refused(const void *bytes, size_t n, const char *expected)
{
	Tok tok;
	char why[200];
	assert_int_equal(tok_open(&tok, bytes, n, why, sizeof why), TOK_E_FORMAT);
	assert_string_equal(why, expected);
}

static void test_refusals(void **state)
{
	Loaded l;
	(void)state;
	load(&l, "llama2");
	size_t n = l.image.n_bytes;
	char *copy = malloc(n + 8);
	TokHeader *h = (TokHeader *)copy;
	memcpy(copy, l.image.bytes, n);
	memset(copy + n, 0, 8);
	refused(copy, 7, "compiled tokenizer: not one");
	refused(copy, n - 8, "compiled tokenizer: cut off, or too long");
	refused(copy, n + 8, "compiled tokenizer: cut off, or too long");
	refused(copy + 4, n - 4, "compiled tokenizer: not aligned to 8 bytes");
	h->total_bytes += 8;
	refused(copy, n + 8, "compiled tokenizer: bytes behind the last section");
	h->total_bytes -= 8;
	h->version++;
	refused(copy, n, "compiled tokenizer: version 3, expected 2");
	h->version--;
	h->bos_id = (int32_t)h->n_ids;
	refused(copy, n, "compiled tokenizer: a special id outside the vocabulary");
	h->bos_id = 1;
	h->sections[TOK_SEC_MERGES].bytes = UINT32_MAX;
	refused(copy, n, "compiled tokenizer: section merges is misplaced");
	h->sections[TOK_SEC_MERGES] = ((const TokHeader *)l.image.bytes)->sections[TOK_SEC_MERGES];
	TokToken *tokens = (TokToken *)(copy + h->sections[TOK_SEC_TOKENS].offset);
	tokens[5].text = UINT32_MAX;
	refused(copy, n, "compiled tokenizer: a token outside its limits");
	memcpy(copy, l.image.bytes, n);
	/* each place with another byte, size or token, and equal tokens that are not */
	const uint32_t changes[] = {1, 2, 1 << 20, 1 << 24, 1u << 31};
	for (TokSection s = TOK_SEC_TREE; s <= TOK_SEC_TREE_SAME; s++) {
		uint32_t *words = (uint32_t *)(copy + h->sections[s].offset);
		for (uint32_t i = 0; i < h->sections[s].bytes / 4; i++)
			for (size_t k = 0; k < sizeof changes / sizeof changes[0]; k++) {
				words[i] ^= changes[k];
				refused(copy, n, "compiled tokenizer: a damaged tree of the vocabulary");
				words[i] ^= changes[k];
			}
	}
	free(copy);
	unload(&l);
}

/* Uses everything that reads the tables. */
static void use(const Tok *t)
{
	int32_t ids[256];
	char text[64];
	int n = tok_encode(t, sample, sizeof sample - 1, true, true, ids, 256);
	if (n < 0)
		return;
	n = n < 256 ? n : 256;
	for (int i = 0; i < 8 && n < 256; i++)
		ids[n++] = i * 37;
	assert_in_range(tok_decode(t, ids, (size_t)n, false, text, sizeof text), 0, 100000000);
	assert_in_range(tok_decode(t, ids, (size_t)n, true, text, sizeof text), 0, 100000000);
}

static uint64_t next_random(uint64_t *seed) /* xorshift64 */
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	return *seed ^= *seed << 17;
}

/* Damages a copy of exactly n bytes: flips in the header, in small sections, anywhere; cuts. */
static size_t damage(unsigned char *copy, size_t n, uint64_t *seed)
{
	const TokHeader *h = (const TokHeader *)copy;
	int flips = 1 + (int)(next_random(seed) % 4);
	TokSpan span = h->sections[next_random(seed) % TOK_SEC_COUNT];
	for (int i = 0; i < flips; i++) {
		uint64_t where = next_random(seed), kind = next_random(seed) % 4;
		size_t at = kind == 0 ? where % sizeof *h : kind == 1 && span.bytes && span.offset < n ?
			span.offset + where % (span.bytes < n - span.offset ? span.bytes : n - span.offset) : where % n;
		copy[at] = (unsigned char)(next_random(seed) % 3 ? copy[at] ^ 1u << next_random(seed) % 8 : next_random(seed));
	}
	return next_random(seed) % 16 ? n : next_random(seed) % (n + 1);
}

static void test_damaged(void **state)
{
	static const char *const names[] = {"llama3", "llama2", "gemma", "deepseek"};
	uint64_t seed = 0x9E3779B97F4A7C15u;
	int opened = 0;
	(void)state;
	for (int k = 0; k < 4; k++) {
		Loaded l;
		load(&l, names[k]);
		for (int i = 0; i < N_FUZZ / 4; i++) {
			Tok tok;
			char why[200];
			unsigned char *copy = malloc(l.image.n_bytes);
			memcpy(copy, l.image.bytes, l.image.n_bytes);
			size_t n = damage(copy, l.image.n_bytes, &seed);
			unsigned char *exact = realloc(copy, n ? n : 1); /* so that sanitizers see the end */
			if (tok_open(&tok, exact, n, why, sizeof why) == 0) {
				use(&tok);
				opened++;
			}
			free(exact);
		}
		unload(&l);
	}
	assert_in_range(opened, N_FUZZ / 10, N_FUZZ - N_FUZZ / 10); /* both ways out were tried */
}

/* Reads a file of at most MAX_FILE bytes. */
static size_t slurp(const char *path, char *out)
{
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	size_t n = fread(out, 1, MAX_FILE, f);
	fclose(f);
	assert_in_range(n, 1, MAX_FILE - 1);
	return n;
}

/* tokenizer.json with bytes changed, doubled and left out is refused with a reason, or it compiles to
 * something that opens and works. */
static void test_damaged_json(void **state)
{
	static const char *const names[] = {"llama3", "llama2", "gemma", "deepseek"};
	static const char bytes[] = "\"\\{}[],:0123456789eE-+.ntf \xFF\xE2\x96";
	char *text = malloc(MAX_FILE), *copy = malloc(MAX_FILE);
	char folder[] = "/tmp/test_tokenizer_XXXXXX", path[100], why[200];
	uint64_t seed = 0x9E3779B97F4A7C15u;
	int compiled = 0;
	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/tokenizer.json", folder);
	for (int i = 0; i < N_FUZZ_JSON; i++) {
		char source[200];
		snprintf(source, sizeof source, FOLDER "%s/tokenizer.json", names[i % 4]);
		size_t n = slurp(source, text), tail = n > 4000 ? n - 4000 : 0;
		memcpy(copy, text, n);
		for (uint64_t k = 1 + next_random(&seed) % 3; k; k--) { /* mostly in the first and last parts */
			uint64_t r = next_random(&seed), where = r % 3 ? r / 3 % 4000 : tail + r / 3 % (n - tail);
			copy[where % n] = next_random(&seed) % 2 ? bytes[next_random(&seed) % (sizeof bytes - 1)] :
				(char)(copy[where % n] ^ 1 << next_random(&seed) % 7);
		}
		FILE *f = fopen(path, "wb");
		assert_non_null(f);
		assert_int_equal(fwrite(copy, 1, n, f), n);
		fclose(f);
		Loaded l = {0};
		l.diags.arena = &l.arena;
		if (read_tokenizer(&l.arena, &l.diags, folder, NULL, NULL, 2000, &l.image)) {
			compiled++;
			assert_int_equal(tok_open(&l.tok, l.image.bytes, l.image.n_bytes, why, sizeof why), 0);
			use(&l.tok);
		} else {
			assert_in_range(l.diags.n_errors, 1, 100000);
		}
		unload(&l);
	}
	assert_in_range(compiled, 3, N_FUZZ_JSON - 100); /* little survives: merges name tokens by spelling */
	remove(path);
	remove(folder);
	free(text);
	free(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts_and_special_ids), cmocka_unit_test(test_small_buffers),
		cmocka_unit_test(test_empty_text), cmocka_unit_test(test_stream_waits_for_whole_points),
		cmocka_unit_test(test_too_long), cmocka_unit_test(test_refusals), cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_damaged_json),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
