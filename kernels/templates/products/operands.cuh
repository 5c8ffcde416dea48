// operands.cuh - contract fragment: operands and bytes of products of rows with one matrix or two.
//
// The fragment of a family includes it after its dims, WT and, of scales, ST and their blocks.
// What is computed and how operands stand, the template or the family says in numbers:
//
//   MATRICES   1: x w^T. 2: silu(x gate^T) * (x up^T)
//   NORM       1: of x, before
//   RESIDUAL   1: z = residual + the product
//   NARROW     1: a few more columns, y_narrow, by a second matrix in bf16, w_narrow; not defined: 0
//   LOGITS     1: of the rows that out_row names, over the vocabulary, with the best of each part_ids() columns
//   X_BITS     16: x is bf16. 8: codes of e4m3 with a scale of each 128 columns; then two matrices make such codes too.
//              4: codes of e2m1 with scales of 16 columns and of the row
//   SCALES     of the matrices: 0 none. 1 of blocks and of rows, where they are there. 2 of groups, and of rows where
//              they are there
//   MAPS       1: the copy engine takes x and the matrices, x_box() rows of x and w_box() of a matrix at a time, of
//              x_columns() and w_columns(). 2: and the residual, where there is one, 128 x 64
PARAM(MATRICES, 1, 2)
PARAM(NORM, 0, 1)
PARAM(RESIDUAL, 0, 1)
PARAM(LOGITS, 0, 1)
#ifndef NARROW
#define NARROW 0
#endif
PARAM(NARROW, 0, 1)
PARAM(X_BITS, 16, 8, 4)
PARAM(SCALES, 0, 1, 2)
PARAM(MAPS, 0, 1, 2)
#if LOGITS
FORMULA(n_rows(), OUTS) FORMULA(n_columns(), V)
ATTR_INT(N_VALID, 128256) ATTR_FLOAT(CAP, 0.0f)
#else
FORMULA(n_rows(), ROWS) FORMULA(n_columns(), N)
DTYPES(BT, bf16, f16, f32)
#endif
#if NARROW
DIM(M, 64)
FORMULA(narrow(), M)
#else
FORMULA(narrow(), 0)
#endif
#if NORM
ATTR_FLOAT(EPS, 1e-5f) ATTR_INT(NORM_ONE, 0)
DTYPES(NT, bf16, f16, f32) FORMULA(norm_size(), NT_BYTES)
#else
FORMULA(norm_size(), 0)
#endif
#if SCALES && MATRICES == 1
FLAG(W_ROW_SCALE) FORMULA(n_row_scales(), W_ROW_SCALE)
#elif SCALES
FLAG(GATE_ROW_SCALE) FLAG(UP_ROW_SCALE) FORMULA(n_row_scales(), GATE_ROW_SCALE + UP_ROW_SCALE)
#else
FORMULA(n_row_scales(), 0)
#endif
#if SCALES == 1 && MATRICES == 1
FLAG(W_SCALE) FORMULA(scaled(), W_SCALE)
#elif SCALES == 1
FLAG(GATE_SCALE) FLAG(UP_SCALE) FORMULA(scaled(), GATE_SCALE)
REQUIRE(GATE_SCALE == UP_SCALE)
#else
FORMULA(scaled(), SCALES / 2)
#endif
#if LOGITS
FORMULA(biases(), 0)
#elif MATRICES == 1
FLAG(BIAS) FORMULA(biases(), BIAS)
#else
FLAG(GATE_BIAS) FLAG(UP_BIAS) FORMULA(biases(), GATE_BIAS + UP_BIAS)
#endif
// Bytes of the matrices with their scales, of a row of x, and of what is added.
#if SCALES
FORMULA(matrix_bytes(), MATRICES * (n_columns() * K * WT_BITS / 8
	+ scaled() * ceil_div(n_columns(), max(BLOCK_N, 1)) * ceil_div(K, max(BLOCK_K, 1)) * ST_BITS / 8)
	+ n_row_scales() * n_columns() * 4)
#else
FORMULA(matrix_bytes(), MATRICES * n_columns() * K * WT_BYTES)
#endif
FORMULA(x_row_bytes(), X_BITS == 16 ? K * 2 : X_BITS == 8 ? K + ceil_div(K, 128) * 4 : K / 2 + ceil_div(K, 16) + 4)
#if LOGITS
FORMULA(added_bytes(), 0)
#else
FORMULA(added_bytes(), RESIDUAL * ROWS * N * 2 + biases() * N * BT_BYTES)
#endif
FLOPS(2 * MATRICES * n_rows() * (n_columns() + narrow()) * K)
#if LOGITS
WRITES(n_rows() * (n_columns() * 4 + ceil_div(n_columns(), part_ids()) * 12))
#elif MATRICES == 2 && X_BITS == 8
WRITES(n_rows() * (n_columns() + ceil_div(n_columns(), 128) * 4))
#else
WRITES(n_rows() * (n_columns() + narrow()) * 2)
#endif

#if SCALES == 1
#define BLOCK_SCALES(flag, name) IN_IF(flag, ST, name, "ceil_div(n_columns(), BLOCK_N), ceil_div(K, BLOCK_K)")
#else
#define BLOCK_SCALES(flag, name) IN(ST, name, "ceil_div(n_columns(), BLOCK_N), ceil_div(K, BLOCK_K)")
#endif
struct Args {
#if MAPS
	TENSOR_MAP(x, x_map, x_box(), x_columns());
#if MATRICES == 1
	TENSOR_MAP(w, w_map, w_box(), w_columns());
#else
	TENSOR_MAP(gate, gate_map, w_box(), w_columns());
	TENSOR_MAP(up, up_map, w_box(), w_columns());
#endif
#if MAPS == 2 && RESIDUAL
	TENSOR_MAP(residual, residual_map, 128, 64);
#endif
#endif
	IN(i32, step, "4");
#if X_BITS == 16
	IN(bf16, x, "ROWS, K");
#elif X_BITS == 8
	IN(e4m3, x, "ROWS, K");
	IN(f32, x_scale, "ceil_div(K, 128), ROWS");
#else
	IN(e2m1, x, "ROWS, K");
	IN(e4m3, x_block, "ROWS, ceil_div(K, 16)");
	IN(f32, x_row_scale, "ROWS");
#endif
#if LOGITS
	IN(i32, out_row, "OUTS");
#endif
#if NORM
	IN(NT, norm, "K");
#endif
#if MATRICES == 1
	IN(WT, w, "n_columns(), K");
#if SCALES
	BLOCK_SCALES(W_SCALE, w_scale);
	IN_IF(W_ROW_SCALE, f32, w_row_scale, "n_columns()");
#endif
#if !LOGITS
	IN_IF(BIAS, BT, bias, "N");
#endif
#if NARROW
	IN(bf16, w_narrow, "M, K");
#endif
#else
	IN(WT, gate, "N, K");
	IN(WT, up, "N, K");
#if SCALES
	BLOCK_SCALES(GATE_SCALE, gate_scale);
	IN_IF(GATE_ROW_SCALE, f32, gate_row_scale, "N");
	BLOCK_SCALES(UP_SCALE, up_scale);
	IN_IF(UP_ROW_SCALE, f32, up_row_scale, "N");
#endif
	IN_IF(GATE_BIAS, BT, gate_bias, "N");
	IN_IF(UP_BIAS, BT, up_bias, "N");
#endif
#if LOGITS
	OUT(f32, logits, "OUTS, V");
	OUT(f32, best, "OUTS, ceil_div(V, part_ids()), 2");
	OUT(i32, best_id, "OUTS, ceil_div(V, part_ids())");
#elif RESIDUAL
	IN(bf16, residual, "ROWS, N");
	OUT(bf16, z, "ROWS, N");
#elif MATRICES == 2 && X_BITS == 8
	OUT(e4m3, y, "ROWS, N");
	OUT(f32, y_scale, "ceil_div(N, 128), ROWS");
#else
	OUT(bf16, y, "ROWS, N");
#if NARROW
	OUT(bf16, y_narrow, "ROWS, M");
#endif
#endif
};
