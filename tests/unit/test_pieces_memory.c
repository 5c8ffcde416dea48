/* Out of memory while answers are parsed: each allocation fails in turn. Nothing leaks, and what a sink got before is
 * the beginning of what it gets with memory. */
#include "runtime/serve/tool_formats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct { long made, live, fail_at; bool armed, failed; } heap;

#if defined(__SANITIZE_ADDRESS__)
enum { CAN_FAIL = 0 }; /* a sanitizer's malloc cannot be replaced */
#else
enum { CAN_FAIL = 1 };
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void __libc_free(void *p);

static bool fails(bool is_new)
{
	if (!heap.armed)
		return false;
	if (heap.made++ == heap.fail_at) {
		errno = ENOMEM;
		heap.failed = true;
		return true;
	}
	heap.live += is_new;
	return false;
}

void *malloc(size_t n) { return fails(true) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return fails(true) ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return fails(!p) ? NULL : __libc_realloc(p, n); }
void free(void *p)
{
	heap.live -= heap.armed && p;
	__libc_free(p);
}
#endif

typedef struct Got { char text[4096]; size_t n; } Got;

static bool take(void *ctx, const Piece *p)
{
	Got *got = ctx;
	const char kind = (char)('0' + p->kind);
	assert_true(got->n + p->n + p->n_arguments + 1 < sizeof got->text);
	got->text[got->n++] = kind;
	memcpy(got->text + got->n, p->bytes, p->n);
	got->n += p->n;
	if (p->n_arguments)
		memcpy(got->text + got->n, p->arguments, p->n_arguments);
	got->n += p->n_arguments;
	return true;
}

static bool parse(const char *format, json_t *tools, const char *answer, Got *got)
{
	const char *marks = strcmp(format, "harmony") == 0 ? "<|channel|>analysis<|message|><|end|>" : "<think></think>";
	got->n = 0;
	PieceParser *p = pieces_open(tool_format_named(format), tools, reasoning_of(marks, strlen(marks)), false);
	const bool good =
		p && pieces_push(p, answer, strlen(answer), take, got) && pieces_finish(p, take, got);
	pieces_close(p);
	return good;
}

static void each_allocation_fails(void **state)
{
	static const char tools_text[] = "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":"
		"{\"a\":{\"type\":\"integer\"}}}}}]";
	static const struct { const char *format, *answer; } cases[] = {
		{"hermes", "<think>Hm.</think>\n\nSo:\n<tool_call>[{\"name\": \"f\", \"arguments\": {\"a\": \"0123456789\"}},"
			"{\"name\": \"f\", \"arguments\": \"{}\"}]</tool_call> and <tool_call> is text"},
		{"qwen3_coder", "<function=f><parameter=a>\n1\n</parameter><parameter=b>\n2\n</parameter></function> so"},
		{"gemma4", "So: <|tool_call>call:f{a:1,b:[<|\"|>0123456789<|\"|>]}<tool_call|>"},
		{"harmony", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
			"<|constrain|>json<|message|>{\"a\": 1}<|call|><|start|>assistant to=functions.g<|message|>{}"},
		{"mistral_calls", "Right.[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS][{\"name\": \"f\"}]"},
	};
	json_t *tools = json_loads(tools_text, 0, NULL);
	static Got whole, cut;
	(void)state;
	if (!CAN_FAIL)
		skip();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int n_refused = 0;
		assert_true(parse(cases[i].format, tools, cases[i].answer, &whole));
		for (heap.fail_at = 0, heap.failed = true; heap.failed; heap.fail_at++) {
			heap.made = heap.live = 0;
			heap.failed = false;
			heap.armed = true;
			const bool good = parse(cases[i].format, tools, cases[i].answer, &cut);
			heap.armed = false;
			assert_int_equal(heap.live, 0);
			assert_true(good || (heap.failed && cut.n <= whole.n && memcmp(cut.text, whole.text, cut.n) == 0));
			n_refused += !good;
			if (good)
				assert_true(cut.n == whole.n && memcmp(cut.text, whole.text, cut.n) == 0);
		}
		assert_true(n_refused >= 4);
	}
	json_decref(tools);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_fails)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
