/* Out of memory in chat templates: each allocation of opening a program and of rendering fails in turn. Nothing leaks,
 * the fault is CHAT_NO_MEMORY, and the same call with memory gives the same as ever. */
#include "compiler/chat/template.h"
#include "runtime/text/chat.h"

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
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void __libc_free(void *p);

static bool fails(void)
{
	if (!heap.armed)
		return false;
	if (heap.made++ == heap.fail_at) {
		errno = ENOMEM;
		return true;
	}
	heap.live++;
	return false;
}

/* All that the interpreter allocates with. */
void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return fails() ? NULL : __libc_calloc(n, size); }
void free(void *p)
{
	heap.live -= heap.armed && p;
	__libc_free(p);
}
#endif

static const char template_text[] =
	"{% macro f(a, b=2) %}{{ a ~ b }}{% endmacro %}{% set ns = namespace(s='') %}"
	"{% for m in messages %}{% set ns.s = ns.s + m.content %}{{ m | tojson(indent=1) }}{{ f(m.role) | upper }}"
	"{% endfor %}"
	"{{ ns.s.split() | sort | join('-') }}{{ strftime_now('%Y') }}{{ messages | map(attribute='n') | list }}"
	"{{ 'x' * 70000 }}";

static void test_each_allocation_fails(void **state)
{
	static const char json[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"one two\", \"n\": 1.5}, "
		"{\"role\": \"assistant\", \"content\": \"three\", \"n\": null}]}";
	const ChatLimits limits = {1000000, 1 << 20, 1 << 24};
	Arena arena = {0};
	Diags diags = {.arena = &arena};
	ChatImage image;
	ChatProgram program;
	ChatPrompt prompt, again;
	ChatFailure failure;
	char why[200];
	int n_failed = 0;
	(void)state;
	if (!CAN_FAIL)
		skip();
	compile_template(&arena, &diags, "t", template_text, strlen(template_text), NULL, 0, &image);
	assert_true(chat_open(&program, image.bytes, image.n, why, sizeof why));
	for (long k = 0; k < 3; k++) {
		heap.made = heap.live = 0;
		heap.fail_at = k;
		heap.armed = true;
		const bool opened = chat_open(&program, image.bytes, image.n, why, sizeof why);
		heap.armed = false;
		assert_false(opened);
		assert_string_equal(why, "compiled chat template: no memory to check it");
		assert_int_equal(heap.live, 0);
	}
	assert_true(chat_open(&program, image.bytes, image.n, why, sizeof why));
	heap.made = 0;
	heap.fail_at = -1;
	heap.armed = true;
	ChatFault fault = chat_render(&program, json, strlen(json), 0, limits, &prompt, &failure);
	heap.armed = false;
	assert_int_equal(fault, CHAT_OK);
	const long allocations = heap.made;
	assert_in_range(allocations, 4, 1000);
	for (long k = 0; k < allocations; k++) {
		heap.made = heap.live = 0;
		heap.fail_at = k;
		heap.armed = true;
		fault = chat_render(&program, json, strlen(json), 0, limits, &again, &failure);
		heap.armed = false;
		if (fault == CHAT_OK) { /* an allocation of strftime's, which does without */
			assert_string_equal(again.text, prompt.text);
			chat_prompt_free(&again);
			continue;
		}
		n_failed++;
		assert_int_equal(fault, CHAT_NO_MEMORY);
		assert_string_equal(failure.text + strlen(failure.text) - 22, "no memory for the chat");
		assert_null(again.text);
		assert_int_equal(heap.live, 0);
	}
	assert_in_range(n_failed, 4, 1000);
	assert_int_equal(chat_render(&program, json, strlen(json), 0, limits, &again, &failure), CHAT_OK);
	assert_string_equal(again.text, prompt.text);
	chat_prompt_free(&again);
	chat_prompt_free(&prompt);
	arena_release(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation_fails)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
