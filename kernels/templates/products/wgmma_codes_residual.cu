// what      z[t,n] = residual[t,n] + sum_k x[t,k] w[n,k] + bias[n], w codes of e2m1 or u4 in groups; for long
//           prompts; rows beyond step[0] stay as they are
// numerics  e2m1 times the scale of its group, and u4 less its zero, are bf16 exactly; bf16 products accumulated in f32
//           in ascending k, of u4 over at most 64 columns of a group, whose sums times its scale are added in f32, in
//           order; SPLIT runs of columns apart, then added in order; scale of the row, bias, residual; one
//           rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  H100 SXM, NVFP4: 2048 rows, K=14336, N=4096 735 TFLOP/s, K=4096 597; 128 rows 43 and 18 us. INT4 with
//           groups of 128: 437 and 421 TFLOP/s, 66 and 24 us. No spills
// tiles     64 WARPGROUPS x BM. BM = 256 decodes a code for twice as many rows; BM = 128 is for fewer of them, and all
//           that u4 has. Blocks in pairs (CLUSTER) share rows of x; where tiles are few, SPLIT blocks divide the
//           columns of one
// bytes     READS is what memory delivers: tiles that run together share their operands in the L2 cache
// why       sums stand turned round, so the residual is turned like them, eight rows by eight columns at a time; the
//           rest as in wgmma_codes_linear
#include "shared/contract.cuh"
#include "products/wgmma_codes.cuh"

KERNEL(wgmma_codes_residual, linear_residual)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(N, 2048)
ATTR_INT(BLOCK_N, 1)
ATTR_INT(BLOCK_K, 16)
FLAG(W_ROW_SCALE)
FLAG(BIAS)
DTYPES(WT, e2m1, u4)
DTYPES(ST, e4m3, e8m0, f32z)
DTYPES(BT, bf16, f16, f32)
TUNE(BM, 256, 128)
TUNE(WARPGROUPS, 2, 3)
TUNE(CLUSTER, 2, 1)
TUNE(SPLIT, 1, 2, 4)
REQUIRE(K % 32 == 0)
REQUIRE(N % 8 == 0)
REQUIRE(ROWS > 64)
REQUIRE(BLOCK_N == 1
	&& (ST_BITS == 8 ? BLOCK_K == 16 || BLOCK_K == 32
		: BM == 128 && WARPGROUPS == 2 && (BLOCK_K >= K || BLOCK_K % 32 == 0)))
REQUIRE(BM == 128 || ROWS > 128 && WARPGROUPS == 2)
REQUIRE(CLUSTER == 1 || N > 64 * WARPGROUPS)
REQUIRE(SPLIT == 1 || CLUSTER == 1 && BM == 128 && K >= 256 * SPLIT)
ORDER(wgmma_codes, SPLIT)
GRID(SPLIT > 1 ? SPLIT * ceil_div(ROWS, BM) * ceil_div(N, 64 * WARPGROUPS)
	: CLUSTER * min(SMS / CLUSTER, ceil_div(ROWS, BM) * ceil_div(ceil_div(N, 64 * WARPGROUPS), CLUSTER)), 1, 1)
BLOCK(128 * (WARPGROUPS + 1))
SMEM(231424)
READS(N * (K / 2 + ceil_div(K, BLOCK_K) * ST_BYTES + W_ROW_SCALE * 4) + ROWS * K * 2 + ROWS * N * 2
	+ BIAS * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(2 * ROWS * N * K)
PIECES(CLUSTER * SPLIT * ceil_div(ROWS, BM) * ceil_div(ceil_div(N, 64 * WARPGROUPS), CLUSTER))
RATE((SPLIT == 4 ? (4 * ceil_div(ROWS, BM) * ceil_div(N, 64 * WARPGROUPS) <= SMS * 10 / 13 ? 46 : 26)
	: SPLIT == 2 ? 48 : BM == 256 ? 74 : WARPGROUPS == 3 ? 56 : 52) - (ST_BITS == 32 ? 5 : 0)
	+ (CLUSTER * SPLIT > 1 ? 0 : ceil_div(ROWS, BM) * ceil_div(N, 64 * WARPGROUPS) <= SMS ? 1 : BM == 256 ? -8 : -1))
struct Args {
	TENSOR_MAP(x, x_map, BM / CLUSTER, 64);
	TENSOR_MAP(w, w_map, 64 * WARPGROUPS, 256);
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(WT, w, "N, K");
	IN(ST, w_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(W_ROW_SCALE, f32, w_row_scale, "N");
	IN_IF(BIAS, BT, bias, "N");
	IN(bf16, residual, "ROWS, N");
	OUT(bf16, z, "ROWS, N");
};

extern "C" __global__ void __cluster_dims__(CLUSTER * SPLIT, 1, 1) __launch_bounds__(128 * (WARPGROUPS + 1), 1)
wgmma_codes_residual(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(rings);
	const int rows = a.step[0];
	using P = CodeProducts<WT, ST, BLOCK_K, K, N, BM, WARPGROUPS, CLUSTER, SPLIT, 1>;
	const P operands = { &a.x_map, { &a.w_map }, { a.w_scale } };
	codes_products(rings, rows, operands, [&](auto &acc, int t0, int n0) {
		constexpr int tiles = sizeof acc / sizeof acc[0];
		scale_sums<P>(acc, W_ROW_SCALE ? a.w_row_scale : nullptr, BIAS ? a.bias : nullptr, n0);
		store_columns<N, tiles, 2>(a.z, a.residual, rows, t0, n0, [&](int i, int j, u32 more) {
			acc[j][2 * i] += low_bf16(more);
			acc[j][2 * i + 1] += high_bf16(more);
		}, [&](int i, int j) { return pack_bf16(acc[j][2 * i], acc[j][2 * i + 1]); });
	});
}
