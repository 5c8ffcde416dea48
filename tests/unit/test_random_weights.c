/* test_random_weights.c - weights that are made up: their statistics, and that any piece of them can be made alone. */
#include "artifacts/random_weights.h"
#include "runtime/cpu/ref_ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { COLS = 384, ROWS = 512, N = ROWS * COLS };

static Weight matrix(Dtype dtype)
{
	return (Weight){.name = "model.layers.3.mlp.up_proj.weight", .dtype = dtype, .n_dims = 2, .shape = {ROWS, COLS},
		.bytes = (int64_t)N * dtype_bytes(dtype)};
}

static Weight vector(const char *name, Dtype dtype)
{
	return (Weight){.name = name, .dtype = dtype, .n_dims = 1, .shape = {N}, .bytes = (int64_t)N * dtype_bytes(dtype)};
}

static void make_piece(const Weight *w, uint64_t seed, int64_t at, uint8_t *to, int64_t n)
{
	static RandomTables tables;
	Weight made = *w;
	made.made = w->made ? w->made : MADE_NUMBERS;
	assert_true(random_is_sound(&made));
	random_tables(&tables);
	random_bytes(&tables, &made, seed, at, to, (size_t)n);
}

static void *make(const Weight *w, uint64_t seed)
{
	void *bytes = malloc((size_t)w->bytes);
	make_piece(w, seed, 0, bytes, w->bytes);
	return bytes;
}

static float *values(const Weight *w, uint64_t seed)
{
	RefOperand raw = {make(w, seed), w->dtype, 1, {N}, false};
	float *f = malloc(sizeof *f * N);
	ref_convert(&raw, 0, N, f);
	free(raw.data);
	return f;
}

static void expect(const Weight *w, double mean, double deviation)
{
	float *v = values(w, 7);
	double sum = 0, squares = 0, fourth = 0, next = 0;
	for (int i = 0; i < N; i++)
		sum += (double)v[i] / N;
	for (int i = 0; i < N; i++) {
		double d = ((double)v[i] - sum) / deviation;
		squares += d * d / N;
		fourth += d * d * d * d / N;
		next += i ? d * ((double)v[i - 1] - sum) / deviation / N : 0;
		assert_true(fabs(d) < 3.6);
	}
	assert_float_equal(sum, mean, 5 * deviation / sqrt(N));
	assert_float_equal(squares, 1, 0.02);
	assert_float_equal(fourth, 2.7, 0.1); /* four uniform values; 3 would be normal */
	assert_float_equal(next, 0, 5 / sqrt(N)); /* neighbours do not know of each other */
	free(v);
}

static void numbers_have_the_size_of_their_kind(void **state)
{
	static const Dtype dtypes[] = {DT_bf16, DT_f16, DT_f32};
	(void)state;
	for (int i = 0; i < 3; i++) {
		Weight w = matrix(dtypes[i]), norm = vector("model.layers.0.self_attn.q_norm.weight", dtypes[i]);
		Weight bias = vector("model.layers.0.self_attn.q_proj.bias", dtypes[i]);
		expect(&w, 0, 1 / sqrt(COLS));
		expect(&norm, 1, 0.1);
		expect(&bias, 0, 0.02);
	}
}

/* The same numbers in every type, rounded to the nearest. */
static void types_differ_by_rounding_alone(void **state)
{
	Weight wide = matrix(DT_f32), bf16 = matrix(DT_bf16), f16 = matrix(DT_f16);
	float *a = values(&wide, 1), *b = values(&bf16, 1), *h = values(&f16, 1);
	(void)state;
	for (int i = 0; i < N; i++) {
		assert_true(fabsf(a[i] - b[i]) <= fabsf(a[i]) * 0x1p-8f);
		assert_true(fabsf(a[i] - h[i]) <= fabsf(a[i]) * 0x1p-11f + 0x1p-14f);
	}
	free(a);
	free(b);
	free(h);
}

/* One of each kind that there is, with what it is made for. */
static const struct { Dtype dtype; MadeAs made; int cols; } kinds[] = {
	{DT_bf16, MADE_NUMBERS, 0}, {DT_f16, MADE_NUMBERS, 0}, {DT_f32, MADE_NUMBERS, 0}, {DT_e4m3, MADE_CODES, 0},
	{DT_e2m1, MADE_CODES, 0}, {DT_u4, MADE_CODES, 0}, {DT_f32, MADE_E4M3_SCALES, COLS}, {DT_f32, MADE_E4M3_SCALE, COLS},
	{DT_e4m3, MADE_E2M1_SCALES, 0}, {DT_e8m0, MADE_E2M1_SCALES, COLS}, {DT_f32, MADE_E2M1_SCALE, COLS},
	{DT_f32z, MADE_U4_SCALES, COLS}};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static Weight of_kind(int i)
{
	Weight w = matrix(kinds[i].dtype);
	w.bytes = dtype_span(w.dtype, N);
	w.made = kinds[i].made;
	w.made_cols = kinds[i].cols;
	return w;
}

static void any_piece_can_be_made_alone(void **state)
{
	(void)state;
	for (int i = 0; i < N_KINDS; i++) {
		const Weight w = of_kind(i);
		const int64_t unit = dtype_bytes(w.dtype) ? dtype_bytes(w.dtype) : 1, all = w.bytes / unit;
		uint8_t *whole = make(&w, 3), *part = malloc((size_t)w.bytes);
		for (int64_t at = 0, n = 1; at < all; at += n, n = n * 5 % 1009 + 1) {
			n = n < all - at ? n : all - at;
			make_piece(&w, 3, at * unit, part + at * unit, n * unit);
		}
		assert_memory_equal(whole, part, (size_t)w.bytes);
		free(whole);
		free(part);
	}
}

/* What goes together and nothing else: of each kind, no other dtype and no other number of columns. */
static void only_what_goes_together_is_sound(void **state)
{
	(void)state;
	for (int made = 0; made < MADE_COUNT; made++)
		for (int dtype = 0; dtype < DT_COUNT; dtype++)
			for (int cols = -1; cols <= 1; cols++) {
				const Weight w = {.name = "w", .dtype = (Dtype)dtype, .made = (MadeAs)made, .made_cols = cols};
				bool known = false;
				for (int i = 0; i < N_KINDS; i++)
					known |= kinds[i].dtype == w.dtype && kinds[i].made == w.made &&
						(kinds[i].cols ? cols == 1 : cols == 0);
				assert_int_equal(random_is_sound(&w), known);
			}
	Weight wide = of_kind(6);
	wide.made_cols = INT32_MAX;
	assert_true(random_is_sound(&wide));
	wide.made_cols++;
	assert_false(random_is_sound(&wide));
}

static void seeds_are_whole_numbers(void **state)
{
	static const char *const wrong[] = {"", "x", "-1", "+1", " 1", "1 ", "01", "1.0", "18446744073709551616",
		"99999999999999999999999999"};
	Option o = {"weights.random_seed", "18446744073709551615"};
	const Artifact a = {.options = &o, .n_options = 1}, none = {.n_options = 0};
	uint64_t seed;
	(void)state;
	assert_true(random_seed(&a, &seed) && seed == UINT64_MAX);
	o.value = "0";
	assert_true(random_seed(&a, &seed) && seed == 0);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		o.value = wrong[i];
		assert_false(random_seed(&a, &seed));
	}
	assert_false(random_seed(&none, &seed));
}

static int equal_values(const Weight *a, uint64_t seed_a, const Weight *b, uint64_t seed_b)
{
	uint16_t *x = make(a, seed_a), *y = make(b, seed_b);
	int n = 0;
	for (int i = 0; i < N; i++)
		n += x[i] == y[i];
	free(x);
	free(y);
	return n;
}

static void seeds_and_names_give_other_numbers(void **state)
{
	Weight a = matrix(DT_bf16), b = a;
	(void)state;
	b.name = "model.layers.4.mlp.up_proj.weight";
	assert_int_equal(equal_values(&a, 5, &a, 5), N);
	assert_true(equal_values(&a, 5, &a, 6) < N / 100);
	assert_true(equal_values(&a, 0, &a, UINT64_MAX) < N / 100);
	assert_true(equal_values(&a, 5, &b, 5) < N / 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_have_the_size_of_their_kind),
		cmocka_unit_test(types_differ_by_rounding_alone),
		cmocka_unit_test(any_piece_can_be_made_alone), cmocka_unit_test(only_what_goes_together_is_sound),
		cmocka_unit_test(seeds_are_whole_numbers),
		cmocka_unit_test(seeds_and_names_give_other_numbers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
