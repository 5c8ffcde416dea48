/* test_numbers.c - narrow number formats: what codes are worth, and which code a number gets.
 *
 * Values are rebuilt from the formats' definitions by ldexp; the code of a number is looked for among all of them.
 */
#include "artifacts/numbers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static float value_of(Dtype dtype, uint8_t code)
{
	float value;
	numbers_convert(dtype, &code, 0, 1, &value);
	return value;
}

/* By definition; codes without the sign. */
static double defined(Dtype dtype, int code)
{
	int fraction_bits = dtype == DT_e4m3 ? 3 : 1, bias = dtype == DT_e4m3 ? 7 : 1;
	int exponent = code >> fraction_bits, fraction = code & ((1 << fraction_bits) - 1);
	if (exponent == 0)
		return ldexp(fraction, 1 - bias - fraction_bits);
	return ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

static int codes_of(Dtype dtype) { return dtype == DT_e4m3 ? 0x7f : 8; } /* numbers without sign */
static uint8_t sign_of(Dtype dtype) { return dtype == DT_e4m3 ? 0x80 : 8; }

static uint8_t nearest(Dtype dtype, float x)
{
	int best = 0;
	double a = fmin(fabs((double)x), defined(dtype, codes_of(dtype) - 1));
	for (int code = 1; code < codes_of(dtype); code++) {
		double here = fabs(defined(dtype, code) - a), there = fabs(defined(dtype, best) - a);
		if (here < there || (!(here > there) && code % 2 == 0))
			best = code;
	}
	return (uint8_t)(best | (signbit(x) ? sign_of(dtype) : 0));
}

/* Eight bits of mantissa, ties to even. */
static void test_rounding_to_bf16(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 1 << 20; i++) {
		const uint32_t bits = i << 12 | i * 2654435761u >> 20; /* four bits below bf16's last, and any */
		float x, got;
		int exponent;
		memcpy(&x, &bits, sizeof x);
		got = numbers_rounded(DT_bf16, x);
		if (isnan(x)) {
			assert_true(isnan(got));
			continue;
		}
		const double mantissa = frexp((double)x, &exponent);
		const int at = exponent < -125 ? -133 : exponent - 8; /* subnormal: units of 2^-133 */
		assert_true(isinf(x) ? got == x : got == (float)ldexp(rint(ldexp(mantissa, exponent - at)), at));
		assert_true(signbit(x) == signbit(got));
	}
	assert_true(numbers_rounded(DT_bf16, 1 + 0x1p-8f) == 1 && numbers_rounded(DT_bf16, 1 + 0x3p-8f) == 1 + 0x1p-6f);
	assert_true(isinf(numbers_rounded(DT_bf16, 0x1.ffp+127f)));
	assert_true(numbers_rounded(DT_bf16, 0x1.fep+127f) == 0x1.fep+127f);
}

static void test_values(void **state)
{
	(void)state;
	for (Dtype dtype = DT_e4m3; dtype <= DT_e2m1; dtype++)
		for (int code = 0; code < codes_of(dtype); code++) {
			float up = value_of(dtype, (uint8_t)code), down = value_of(dtype, (uint8_t)(code | sign_of(dtype)));
			assert_memory_equal(&up, &(float){(float)defined(dtype, code)}, sizeof up);
			assert_memory_equal(&down, &(float){-(float)defined(dtype, code)}, sizeof down);
			assert_int_equal(numbers_code(dtype, up), code);
			assert_int_equal(numbers_code(dtype, down), code | sign_of(dtype));
		}
	assert_true(isnan(value_of(DT_e4m3, 0x7f)) && isnan(value_of(DT_e4m3, 0xff)));
	assert_true(value_of(DT_e4m3, 0x7e) == 448 && value_of(DT_e2m1, 7) == 6);
}

/* Every bf16, and the neighbours of what lies half way between two values. */
static void test_codes(void **state)
{
	(void)state;
	for (Dtype dtype = DT_e4m3; dtype <= DT_e2m1; dtype++) {
		for (uint32_t half = 0; half < 0x10000; half++) {
			uint32_t bits = half << 16;
			float x;
			memcpy(&x, &bits, sizeof x);
			if (!isnan(x))
				assert_int_equal(numbers_code(dtype, x), nearest(dtype, x));
		}
		for (int code = 0; code + 1 < codes_of(dtype); code++) {
			float half = (float)((defined(dtype, code) + defined(dtype, code + 1)) / 2);
			assert_int_equal(numbers_code(dtype, half), code + code % 2);
			assert_int_equal(numbers_code(dtype, nextafterf(half, 0)), code);
			assert_int_equal(numbers_code(dtype, nextafterf(half, INFINITY)), code + 1);
		}
	}
}

static void test_edges(void **state)
{
	(void)state;
	static const struct { float x; uint8_t e4m3, e2m1; } rows[] = {
		{448, 0x7e, 7}, {464, 0x7e, 7}, {465, 0x7e, 7}, {1e38f, 0x7e, 7}, {-1e38f, 0xfe, 15}, {INFINITY, 0x7e, 7},
		{-INFINITY, 0xfe, 15}, {NAN, 0x7f, 7}, {0x1p-10f, 0, 0}, {0x1.8p-9f, 2, 0}, {1.0625f, 0x38, 2},
		{1.1875f, 0x3a, 2}, {1.3125f, 0x3a, 3}, {0.25f, 0x28, 0}, {0.75f, 0x34, 2}, {2.5f, 0x42, 4}, {5, 0x4a, 6},
		{-0.1f, 0x9d, 8}, {-0.0f, 0x80, 8}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_int_equal(numbers_code(DT_e4m3, rows[i].x), rows[i].e4m3);
		assert_int_equal(numbers_code(DT_e2m1, rows[i].x), rows[i].e2m1);
	}
}

/* Integers, and scales that keep every digit of an f16 or a bf16 beside a zero. */
static void test_zeros(void **state)
{
	(void)state;
	const uint8_t pair = 0xa5;
	float two[2], value;
	numbers_convert(DT_u4, &pair, 0, 2, two);
	assert_true(two[0] == 5 && two[1] == 10);
	for (uint32_t i = 0; i < 0x10000; i++) {
		const uint16_t half = (uint16_t)i;
		for (int k = 0; k < 2; k++) {
			float scale;
			numbers_convert(k ? DT_f16 : DT_bf16, &half, 0, 1, &scale);
			if (isnan(scale))
				continue;
			const uint32_t zeroed[] = {0, numbers_zeroed(scale, i % 32)};
			numbers_convert(DT_f32z, zeroed, 1, 1, &value);
			assert_memory_equal(&value, &scale, sizeof value);
			assert_int_equal(numbers_zero(zeroed[1]), i % 32);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values), cmocka_unit_test(test_codes), cmocka_unit_test(test_edges),
		cmocka_unit_test(test_zeros), cmocka_unit_test(test_rounding_to_bf16)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
