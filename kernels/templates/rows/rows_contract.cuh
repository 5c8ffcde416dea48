// rows_contract.cuh - contract fragment: rows normed, made codes, or both, norm_rows*.cu and quant_rows*.cu.
//
//   NORM     1: of x, before
//   Y_BITS   16: y is bf16. 8: codes of e4m3 with a scale of each 128 columns. 4: codes of e2m1 with scales of 16
//            columns and of the row
//
// A block has one row, a thread `pieces` times 16 bytes of it, at least least_pieces() where the row is long enough.
PARAM(NORM, 0, 1)
PARAM(Y_BITS, 16, 8, 4)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 2048)
DIM(K, 4096)
#if NORM
ATTR_FLOAT(EPS, 1e-5f) ATTR_INT(NORM_ONE, 0)
DTYPES(NT, bf16, f16, f32) FORMULA(norm_bytes(), K * NT_BYTES)
ORDER(norm)
#else
FORMULA(norm_bytes(), 0)
#endif
#if Y_BITS == 8
ORDER(quotients, 128)
#elif Y_BITS == 4
ORDER(quotients, 16)
#endif
REQUIRE(K % (Y_BITS == 4 ? 16 : 8) == 0)
FORMULA(least_pieces(), Y_BITS == 16 ? 4 : NORM || Y_BITS == 4 ? 2 : 1)
FORMULA(row_threads(), K < 8192 * least_pieces() ? ceil_div(K, 256 * least_pieces()) * 32 : 1024)
GRID(ROWS, 1, 1)
BLOCK(row_threads())
READS(ROWS * K * 2 + norm_bytes())
WRITES(ROWS * (Y_BITS == 16 ? K * 2 : Y_BITS == 8 ? K + ceil_div(K, 128) * 4 : K / 2 + ceil_div(K, 16) + 4))
FLOPS((4 * NORM + (Y_BITS == 16 ? 0 : Y_BITS == 8 ? 4 : 8)) * ROWS * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
#if NORM
	IN(NT, norm, "K");
#endif
#if Y_BITS == 16
	OUT(bf16, y, "ROWS, K");
#elif Y_BITS == 8
	OUT(e4m3, y, "ROWS, K");
	OUT(f32, y_scale, "ceil_div(K, 128), ROWS");
#else
	OUT(e2m1, y, "ROWS, K");
	OUT(e4m3, y_block, "ROWS, ceil_div(K, 16)");
	OUT(f32, y_row_scale, "ROWS");
#endif
};

constexpr int threads = row_threads(), pieces = ceil_div(K / 8, threads);
