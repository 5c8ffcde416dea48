/* ref_quantise.c - rows as codes with scales, and back.
 *
 * Codes are what they are worth, in f32: what is quantised has been through the format.
 */
#include "artifacts/numbers.h"
#include "runtime/cpu/ref_call.h"

#include <math.h>

float ref_group_scale(const float *x, int64_t n, float scale)
{
	float largest = 0;
	for (int64_t i = 0; i < n; i++)
		largest = isnan(x[i]) || isnan(largest) ? NAN : fmaxf(largest, fabsf(x[i]));
	float group = numbers_rounded(DT_e4m3, largest / scale / 6);
	return group < 0x1p-9f ? 0x1p-9f : group;
}

void ref_codes_of(const float *x, int64_t n, float *y, float *scale, int64_t stride)
{
	for (int64_t from = 0; from < n; from += FP8_BLOCK) {
		const int64_t to = n - from < FP8_BLOCK ? n : from + FP8_BLOCK;
		float largest = 0;
		for (int64_t k = from; k < to; k++)
			largest = fabsf(x[k]) > largest ? fabsf(x[k]) : largest;
		const float s = scale[from / FP8_BLOCK * stride] = largest / 448 >= 0x1p-100f ? largest / 448 : 1;
		for (int64_t k = from; k < to; k++)
			y[k] = numbers_rounded(DT_e4m3, x[k] / s);
	}
}

void ref_values_of(const float *codes, int64_t n, const float *scale, int64_t stride, float *y)
{
	for (int64_t k = 0; k < n; k++)
		y[k] = codes[k] * scale[k / FP8_BLOCK * stride];
}

void ref_quantise(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1);
	for (int64_t t = 0; t < rows; t++)
		ref_codes_of(ref_floats(c, "x") + t * cols, cols, ref_floats(c, "y") + t * cols, ref_floats(c, "y_scale") + t,
			rows);
}

void ref_dequantise(const RefCall *c)
{
	const int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1);
	for (int64_t t = 0; t < rows; t++)
		ref_values_of(ref_floats(c, "x") + t * cols, cols, ref_floats(c, "x_scale") + t, rows,
			ref_floats(c, "y") + t * cols);
}

void ref_quantise_fp4(const RefCall *c)
{
	int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1), blocks = ref_dim(c, "y_block", 1);
	for (int64_t t = 0; t < rows; t++) {
		const float *x = ref_floats(c, "x") + t * cols;
		float *y = ref_floats(c, "y") + t * cols, *block = ref_floats(c, "y_block") + t * blocks, largest = 0;
		for (int64_t k = 0; k < cols; k++)
			largest = fmaxf(largest, fabsf(x[k])); /* of the numbers */
		float row = ref_floats(c, "y_row_scale")[t] = largest / 2688 >= 0x1p-100f ? largest / 2688 : 1;
		for (int64_t b = 0; b < blocks; b++) {
			int64_t first = b * NVFP4_GROUP, end = first + NVFP4_GROUP < cols ? first + NVFP4_GROUP : cols;
			block[b] = ref_group_scale(x + first, end - first, row);
			for (int64_t k = first; k < end; k++)
				y[k] = numbers_rounded(DT_e2m1, x[k] / (block[b] * row));
		}
	}
}

void ref_dequantise_fp4(const RefCall *c)
{
	int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1), blocks = ref_dim(c, "x_block", 1);
	const float *x = ref_floats(c, "x"), *block = ref_floats(c, "x_block"), *row = ref_floats(c, "x_row_scale");
	for (int64_t t = 0; t < rows; t++)
		for (int64_t k = 0; k < cols; k++)
			ref_floats(c, "y")[t * cols + k] = x[t * cols + k] * block[t * blocks + k / NVFP4_GROUP] * row[t];
}
