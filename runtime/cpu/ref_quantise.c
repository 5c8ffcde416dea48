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

void ref_quantise(const RefCall *c)
{
	int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1);
	float *scale = ref_floats(c, "y_scale");
	for (int64_t t = 0; t < rows; t++)
		for (int64_t k = 0; k < cols; k += FP8_BLOCK) {
			const float *x = ref_floats(c, "x") + t * cols + k;
			float *y = ref_floats(c, "y") + t * cols + k, largest = 0;
			int64_t n = cols - k < FP8_BLOCK ? cols - k : FP8_BLOCK;
			for (int64_t i = 0; i < n; i++)
				largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
			float s = scale[k / FP8_BLOCK * rows + t] = largest / 448 >= 0x1p-100f ? largest / 448 : 1;
			for (int64_t i = 0; i < n; i++)
				y[i] = numbers_rounded(DT_e4m3, x[i] / s);
		}
}

void ref_dequantise(const RefCall *c)
{
	int64_t rows = ref_dim(c, "x", 0), cols = ref_dim(c, "x", 1);
	const float *x = ref_floats(c, "x"), *scale = ref_floats(c, "x_scale");
	for (int64_t t = 0; t < rows; t++)
		for (int64_t k = 0; k < cols; k++)
			ref_floats(c, "y")[t * cols + k] = x[t * cols + k] * scale[k / FP8_BLOCK * rows + t];
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
