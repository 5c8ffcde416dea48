/* test_pool.c - every part of every job runs once, and is over when pool_run returns. */
#include "runtime/cpu/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

typedef struct Sums {
	int parts;
	long value[64]; /* one a part: written by its thread alone, read by the caller afterwards */
} Sums;

static void add_part(void *ctx, int part, int parts)
{
	Sums *s = ctx;
	if (part == 0)
		s->parts = parts;
	s->value[part] += part + 1;
}

static void test_jobs(void **state)
{
	(void)state;
	for (int threads = 1; threads <= 9; threads += 4) {
		enum { JOBS = 2000 };
		Pool *pool = pool_open(threads);
		Sums s = {0};
		assert_non_null(pool);
		assert_int_equal(pool_threads(pool), threads);
		for (int job = 1; job <= JOBS; job++) {
			pool_run(pool, add_part, &s);
			assert_int_equal(s.value[threads - 1], (long)threads * job);
		}
		assert_int_equal(s.parts, threads);
		for (int part = 0; part < 64; part++)
			assert_int_equal(s.value[part], part < threads ? (part + 1) * (long)JOBS : 0);
		pool_close(pool);
	}
}

static void test_limits(void **state)
{
	(void)state;
	Pool *few = pool_open(-3), *many = pool_open(1000);
	assert_int_equal(pool_threads(few), 1);
	assert_int_equal(pool_threads(many), 64);
	pool_close(few);
	pool_close(many); /* without a job */
	pool_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_jobs),
		cmocka_unit_test(test_limits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
