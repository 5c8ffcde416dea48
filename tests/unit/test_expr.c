/* test_expr.c - contract expressions against the C compiler itself, and every message of the parser.
 *
 * The differential test gives each expression twice, as C source and as data: the macro
 * SAME(e) compares expr_eval("e") with what the compiler made of e. Names are C variables of the same name.
 */
#include "compiler/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#pragma GCC diagnostic ignored "-Wparentheses" /* precedence is what is tested */

static int64_t value_of(const char *text, const ExprEnv *env)
{
	int64_t v = -999;
	char why[200] = "";
	if (!expr_eval(text, env, &v, why, sizeof why))
		fail_msg("%s: %s", text, why);
	return v;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t align(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

static void test_same_as_c(void **state)
{
	(void)state;
	static const int64_t values[] = {1, 2, 3, 7, 8, 64, 576, 4864};
	enum { N = sizeof values / sizeof values[0] };
	for (int i = 0; i < N * N; i++) {
		int64_t K = values[i % N], ROWS = values[i / N], H_1 = K - ROWS;
		ExprEnv outer = {.names = (ExprName[]){{"ROWS", ROWS}, {"K", -1}}, .n = 2};
		ExprEnv env = {.names = (ExprName[]){{"K", K}, {"H_1", H_1}}, .n = 2, .outer = &outer};
#define SAME(e) assert_int_equal(value_of(#e, &env), (int64_t)(e))
		SAME(K);
		SAME(K - ROWS - 1);
		SAME(K / ROWS / 2);
		SAME(K - ROWS * 3 % 5);
		SAME(K * ROWS / 3 * 2);
		SAME(-K + +ROWS);
		SAME(- -K);
		SAME(!K + !!ROWS);
		SAME(-K % 3);
		SAME(H_1 / 2);
		SAME((K + ROWS) * (K - ROWS));
		SAME(K < ROWS);
		SAME(K <= ROWS == ROWS >= K);
		SAME((K > ROWS) + (K != ROWS) * 2);
		SAME((K == 8 || K == 64) && ROWS <= 8);
		SAME(K % 8 == 0 ? ROWS : ROWS > 8 ? 1 : K);
		SAME(K > 8 ? K > 64 ? 1 : 2 : 3);
		SAME(H_1 && 100 / (H_1 ? H_1 : 1) > 3);
		SAME(!H_1 || K / H_1);
		SAME(H_1 ? K / H_1 : -1);
		SAME(ceil_div(K, ROWS) + min(K, ROWS) * max(K, ROWS));
		SAME(align(ROWS * K * 2, 128) + align(1, K));
		SAME(min(max(K, 3), ceil_div(K + 1, 2)));
		SAME((K == 8 || K == 2) == (ROWS != 2 && K < 9));
		SAME(1 || 0);
		SAME(K - 1 < ROWS + 1);
#undef SAME
	}
	assert_int_equal(value_of(" 9223372036854775807 ", NULL), INT64_MAX);
	assert_int_equal(value_of("ceil_div(0 - 5, 2)", NULL), -2);
	assert_int_equal(value_of("0 && 1 / 0", NULL), 0);
	assert_int_equal(value_of("1 ? 2 : 9223372036854775807 + 1", NULL), 2);
	assert_int_equal(value_of("0 ? ceil_div(1, 0) : 3", NULL), 3);
}

static const struct { const char *text, *why; } refused[] = {
	{"", "column 1: expected a value, found the end"},
	{"K +", "column 4: expected a value, found the end"},
	{"K K", "column 3: expected an operator or the end, found 'K'"},
	{"(K", "column 3: expected ')', found the end"},
	{"K)", "column 2: expected an operator or the end, found ')'"},
	{"K = 8", "column 3: expected an operator or the end, found '='"},
	{"K & 7", "column 3: expected an operator or the end, found '&'"},
	{"K ? 1", "column 6: expected ':', found the end"},
	{"* 2", "column 1: expected a value, found '*'"},
	{"K * FOO", "column 5: unknown name FOO"},
	{"0 ? FOO : 1", "column 5: unknown name FOO"},
	{"sqrt(4)", "column 1: unknown function sqrt: expected ceil_div, min, max or align"},
	{"min(4)", "column 6: expected ',', found ')'"},
	{"min(4, 5, 6)", "column 9: expected ')', found ','"},
	{"1.5", "column 1: only whole decimal numbers are known here"},
	{"0x10", "column 1: only whole decimal numbers are known here"},
	{"010", "column 1: a number does not start with 0"},
	{"9223372036854775808", "column 1: the number does not fit in 64 bits"},
	{"9223372036854775807 + 1", "column 21: the result does not fit in 64 bits"},
	{"-9223372036854775807 - 2", "column 22: the result does not fit in 64 bits"},
	{"4294967296 * 4294967296", "column 12: the result does not fit in 64 bits"},
	{"(-9223372036854775807 - 1) / -1", "column 28: the result does not fit in 64 bits"},
	{"-(-9223372036854775807 - 1)", "column 1: the result does not fit in 64 bits"},
	{"align(9223372036854775807, 4096)", "column 1: the result does not fit in 64 bits"},
	{"1 / (K - K)", "column 3: division by zero"},
	{"1 % 0", "column 3: division by zero"},
	{"ceil_div(K, 0)", "column 1: ceil_div by 0, which is not positive"},
	{"align(K, 0 - 2)", "column 1: align by -2, which is not positive"},
};

static void test_messages(void **state)
{
	(void)state;
	ExprEnv env = {.names = (ExprName[]){{"K", 576}}, .n = 1};
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		char why[200] = "";
		int64_t v;
		if (expr_eval(refused[i].text, &env, &v, why, sizeof why))
			fail_msg("'%s' was accepted", refused[i].text);
		assert_string_equal(why, refused[i].why);
		char small[12]; /* a short buffer is cut, never overrun */
		assert_false(expr_eval(refused[i].text, &env, &v, small, sizeof small));
		assert_memory_equal(small, refused[i].why, sizeof small - 1);
		assert_int_equal(small[sizeof small - 1], 0);
	}
}

/* 64 levels are the limit, whatever makes them; beyond it a message, not a stack overflow. */
static void test_depth(void **state)
{
	(void)state;
	enum { MANY = 100000 }; /* opening texts of at most 9 bytes */
	static const struct { const char *open, *close; int legal; } shapes[] = {
		{"(", ")", 63}, {"!", "", 63}, {"- ", "", 63}, {"1 ? 1 : ", "", 63}, {"min(1, ", ")", 63},
	};
	char *text = malloc(MANY * 16);
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		const int counts[] = {shapes[i].legal, shapes[i].legal + 1, MANY};
		for (int j = 0; j < 3; j++) {
			char *p = text, why[200] = "";
			for (int k = 0; k < counts[j]; k++)
				p = stpcpy(p, shapes[i].open);
			p = stpcpy(p, "1");
			for (int k = 0; k < counts[j]; k++)
				p = stpcpy(p, shapes[i].close);
			int64_t v;
			bool ok = expr_eval(text, NULL, &v, why, sizeof why);
			assert_int_equal(ok, j == 0);
			assert_int_equal(strstr(why, "nested deeper than 64") != NULL, j != 0);
		}
	}
	free(text);
}

static void collect(void *ctx, const char *name, int n)
{
	sprintf((char *)ctx + strlen(ctx), "%.*s ", n, name);
}

static void test_names(void **state)
{
	(void)state;
	char names[200] = "", why[200];
	assert_true(expr_names("K % 8 == 0 ? ceil_div(N, K) : K1 + 0 * N && 1 / 0", collect, names, why, sizeof why));
	assert_string_equal(names, "K N K1 ");
	assert_false(expr_names("K % ", collect, names, why, sizeof why));
	assert_string_equal(why, "column 5: expected a value, found the end");
}

static void test_list(void **state)
{
	(void)state;
	char item[12];
	const char *list = " ROWS, 2 * ceil_div(N, 8)\t,min(a, (b)) ";
	static const char *const items[] = {"ROWS", "2 * ceil_di", "min(a, (b))"};
	for (int i = 0; i < 3; i++) {
		assert_true(expr_next(&list, item, sizeof item));
		assert_string_equal(item, items[i]);
	}
	assert_false(expr_next(&list, item, sizeof item));
	assert_false(expr_next(&(const char *){"  "}, item, sizeof item));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_as_c), cmocka_unit_test(test_messages),
		cmocka_unit_test(test_depth), cmocka_unit_test(test_names), cmocka_unit_test(test_list),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
