// wgmma_operands.cuh - contract fragment: operands and bytes of all products for long prompts, wgmma_*.cu.
//
// The fragment of a family includes it after its tunables and its tiles: x_box() rows of x and w_box() rows of a
// matrix, of x_columns() and w_columns(), are what the copy engine takes at a time. PARAMs say what is computed:
//
//   MATRICES   1: x w^T. 2: silu(x gate^T) * (x up^T)
//   RESIDUAL   1: z = residual + x w^T
//   RESIDUAL_MAP   1: the copy engine takes residual too, 128 x 64
//   SCALES     of the matrices: 0 none. 1 of blocks and of rows, where they are there; x is codes with scales.
//              2 of groups, and of rows where they are there
#if SCALES && MATRICES == 1
FLAG(W_ROW_SCALE) FORMULA(row_scales(), W_ROW_SCALE)
#elif SCALES
FLAG(GATE_ROW_SCALE) FLAG(UP_ROW_SCALE) FORMULA(row_scales(), GATE_ROW_SCALE + UP_ROW_SCALE)
#else
FORMULA(row_scales(), 0)
#endif
#if MATRICES == 1
FLAG(BIAS) FORMULA(biases(), BIAS)
#else
FLAG(GATE_BIAS) FLAG(UP_BIAS) FORMULA(biases(), GATE_BIAS + UP_BIAS)
#endif
DTYPES(BT, bf16, f16, f32)
FORMULA(added_bytes(), RESIDUAL * ROWS * N * 2 + biases() * N * BT_BYTES)
FLOPS(2 * MATRICES * ROWS * N * K)

#if SCALES == 1
#define BLOCK_SCALES(flag, name) IN_IF(flag, ST, name, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)")
#else
#define BLOCK_SCALES(flag, name) IN(ST, name, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)")
#endif
struct Args {
	TENSOR_MAP(x, x_map, x_box(), x_columns());
#if MATRICES == 1
	TENSOR_MAP(w, w_map, w_box(), w_columns());
#else
	TENSOR_MAP(gate, gate_map, w_box(), w_columns());
	TENSOR_MAP(up, up_map, w_box(), w_columns());
#endif
#if RESIDUAL_MAP
	TENSOR_MAP(residual, residual_map, 128, 64);
#endif
	IN(i32, step, "4");
#if SCALES == 1
	IN(e4m3, x, "ROWS, K");
	IN(f32, x_scale, "ceil_div(K, 128), ROWS");
#else
	IN(bf16, x, "ROWS, K");
#endif
#if MATRICES == 1
	IN(WT, w, "N, K");
#if SCALES
	BLOCK_SCALES(W_SCALE, w_scale);
	IN_IF(W_ROW_SCALE, f32, w_row_scale, "N");
#endif
	IN_IF(BIAS, BT, bias, "N");
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
#if RESIDUAL
	IN(bf16, residual, "ROWS, N");
	OUT(bf16, z, "ROWS, N");
#elif SCALES == 1 && MATRICES == 2
	OUT(e4m3, y, "ROWS, N");
	OUT(f32, y_scale, "ceil_div(N, 128), ROWS");
#else
	OUT(bf16, y, "ROWS, N");
#endif
};
