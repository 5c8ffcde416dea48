/* test_trace.c - how outputs of two devices are compared: figures by hand, and numbers that are none. */
#include "runtime/cli/cli_trace.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

enum { ROWS = 3, COLS = 4 };

static const float want[ROWS * COLS] = {1, 2, 2, 0, 0, 0, 0, 0, 3, 0, 4, 0};

static void test_figures(void **state)
{
	float got[ROWS * COLS] = {1, 2, 2, 0, 0, 0, 0, 0, 4, 0, 3, 0};
	double cosines[ROWS];
	(void)state;
	const Difference d = trace_compare(got, want, ROWS, COLS, cosines);
	assert_true(fabs(d.cosine - 24.0 / 25) < 1e-12); /* a row of zeros is equal to one */
	assert_true(d.median == 1 && d.max_error == 1 && d.relative == 0.25);
	assert_true(fabs(d.rms - sqrt(2.0 / 34)) < 1e-12);
}

/* Wherever the number that is none stands, and whatever comes behind it, each figure that it enters is none. */
static void test_no_number(void **state)
{
	(void)state;
	for (int at = 0; at < ROWS * COLS; at++) {
		float got[ROWS * COLS];
		double cosines[ROWS];
		for (int i = 0; i < ROWS * COLS; i++)
			got[i] = i == at ? NAN : want[i];
		const Difference d = trace_compare(got, want, ROWS, COLS, cosines);
		assert_true(isnan(d.cosine) && isnan(d.max_error) && isnan(d.relative) && isnan(d.rms));
		assert_true(isnan(cosines[0]) && d.median == 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_figures), cmocka_unit_test(test_no_number)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
