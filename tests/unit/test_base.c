/* test_base.c - arrays that grow: their memory goes with the number of elements, in every build, and what no element
 * has been pushed into is out of bounds for an address sanitizer.
 */
#include "compiler/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

typedef struct Wide { char bytes[208]; } Wide; /* about a tensor */

/* Bytes that an arena hands out while n elements are pushed, each of which is then as it was written. */
static size_t bytes_of(int n)
{
	Arena a = {0};
	VEC(Wide) list = {0};
	for (int i = 0; i < n; i++)
		memset(vec_push(&a, &list), i, sizeof *list.at);
	for (int i = 0; i < n; i++)
		assert_true(list.at[i].bytes[0] == (char)i && list.at[i].bytes[207] == (char)i);
	size_t bytes = a.total_bytes;
	arena_release(&a);
	return bytes;
}

static void memory_goes_with_the_number(void **state)
{
	(void)state;
	for (int n = 1; n < 20000; n = n * 3 + 1) {
		const size_t once = bytes_of(n), twice = bytes_of(2 * n);
		assert_true(once >= (size_t)n * sizeof(Wide));
		assert_true(once <= (size_t)(n < 8 ? 8 : 4 * n) * sizeof(Wide));
		assert_true(twice <= 3 * once);
	}
}

#ifdef __SANITIZE_ADDRESS__
static void unused_room_is_out_of_bounds(void **state)
{
	(void)state;
	Arena a = {0};
	VEC(Wide) list = {0};
	for (int n = 1; n <= 40; n++) {
		vec_push(&a, &list);
		assert_null(__asan_region_is_poisoned(list.at, (size_t)n * sizeof(Wide)));
		if (n < list.cap)
			assert_true(__asan_address_is_poisoned(list.at + n));
	}
	arena_release(&a);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_goes_with_the_number),
#ifdef __SANITIZE_ADDRESS__
		cmocka_unit_test(unused_room_is_out_of_bounds),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
