/* Out of memory in the tokenizer: each allocation of an encode or a decode fails in turn. The result is
 * TOK_E_MEMORY, nothing leaks, and the same call with memory gives the same as ever. */
#include "compiler/tokenizer/read_tokenizer.h"
#include "runtime/text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct { long made, live, fail_at; bool armed; } heap;

#if defined(__SANITIZE_ADDRESS__)
enum { CAN_FAIL = 0 }; /* a sanitizer's malloc cannot be replaced */
#else
enum { CAN_FAIL = 1 };
extern void *__libc_realloc(void *p, size_t n);
extern void __libc_free(void *p);

/* All that runtime/text allocates with. */
void *realloc(void *p, size_t n)
{
	if (heap.armed && heap.made++ == heap.fail_at) {
		errno = ENOMEM;
		return NULL;
	}
	heap.live += heap.armed && !p;
	return __libc_realloc(p, n);
}

void free(void *p)
{
	heap.live -= heap.armed && p;
	__libc_free(p);
}
#endif

static int encode(const Tok *t, const char *text, size_t n, int32_t *ids, int cap)
{
	heap.made = heap.live = 0;
	heap.armed = true;
	int count = tok_encode(t, text, n, true, true, ids, cap);
	heap.armed = false;
	return count;
}

static int64_t decode(const Tok *t, const int32_t *ids, int n, char *out, size_t cap)
{
	heap.made = heap.live = 0;
	heap.armed = true;
	int64_t size = tok_decode(t, ids, (size_t)n, false, out, cap);
	heap.armed = false;
	return size;
}

static void fail_each(const char *name, const char *text)
{
	Arena arena = {0};
	Diags diags = {.arena = &arena};
	TokenizerImage image;
	Tok tok;
	char folder[200], why[200], out[4096];
	int32_t ids[1024], again[1024];
	snprintf(folder, sizeof folder, "tests/fixtures/tokenizers/%s", name);
	assert_true(read_tokenizer(&arena, &diags, folder, NULL, NULL, 2000, &image));
	assert_int_equal(tok_open(&tok, image.bytes, image.n_bytes, why, sizeof why), 0);
	heap.fail_at = -1;
	int n = encode(&tok, text, strlen(text), ids, 1024);
	long allocations = heap.made;
	assert_in_range(n, 1, 1024);
	assert_in_range(allocations, 3, 1000);
	assert_int_equal(heap.live, 0);
	for (long k = 0; k < allocations; k++) {
		heap.fail_at = k;
		assert_int_equal(encode(&tok, text, strlen(text), again, 1024), TOK_E_MEMORY);
		assert_int_equal(heap.live, 0);
	}
	heap.fail_at = -1;
	assert_int_equal(encode(&tok, text, strlen(text), again, 1024), n);
	assert_memory_equal(ids, again, (size_t)n * sizeof *ids);
	int64_t size = decode(&tok, ids, n, out, sizeof out);
	assert_in_range(size, 1, (int64_t)sizeof out);
	allocations = heap.made;
	for (long k = 0; k < allocations; k++) {
		heap.fail_at = k;
		assert_int_equal(decode(&tok, ids, n, out, sizeof out), TOK_E_MEMORY);
		assert_int_equal(heap.live, 0);
	}
	arena_release(&arena);
}

static void test_each_allocation_fails(void **state)
{
	static const char text[] = "<s> the wheel\xFF e\xCC\x81 <x>  12345 \xE6\xB0\xB4 <|eot_id|> and on and on "
		"and on and on and on and on and on and on and on and on and on and on and on and on";
	(void)state;
	if (!CAN_FAIL)
		skip();
	fail_each("llama3", text);
	fail_each("llama2", text);
	fail_each("gemma", text);
	fail_each("deepseek", text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation_fails)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
