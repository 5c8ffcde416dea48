// what      y[t,i] = silu(x[t,:].gate[i,:] + gate_bias[i]) * (x[t,:].up[i,:] + up_bias[i]), gate and up codes of e2m1
//           or u4 in groups; for long prompts; rows beyond step[0] stay as they are
// numerics  e2m1 times the scale of its group, and u4 less its zero, are bf16 exactly; bf16 products accumulated in f32
//           in ascending k, of u4 over at most 64 columns of a group, whose sums times its scale are added in f32, in
//           order; SPLIT runs of columns apart, then added in order; scales of rows, biases, silu and product in f32;
//           one rounding. Same bits every run; a row's bits do not depend on the other rows
// measured  H100 SXM, NVFP4, K=4096, N=14336: 2048 rows 730 TFLOP/s, 128 rows 63 us. INT4 with groups of 128: 457
//           TFLOP/s, 73 us. No spills
// tiles     64 WARPGROUPS x BM. BM = 256 decodes a code for twice as many rows; BM = 128 is for fewer of them, and all
//           that u4 has. Blocks in pairs (CLUSTER) share rows of x; where tiles are few, SPLIT blocks divide the
//           columns of one
// bytes     READS is what memory delivers: tiles that run together share their operands in the L2 cache
// why       a warp's 16 rows of w are eight of gate and the same of up: both halves of an output stand in one thread's
//           accumulators; the rest as in wgmma_codes_linear
#include "shared/contract.cuh"
#include "products/wgmma_codes.cuh"

KERNEL(wgmma_codes_swiglu, linear_swiglu)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(N, 8192)
ATTR_INT(BLOCK_N, 1)
ATTR_INT(BLOCK_K, 16)
FLAG(GATE_ROW_SCALE)
FLAG(UP_ROW_SCALE)
FLAG(GATE_BIAS)
FLAG(UP_BIAS)
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
REQUIRE(CLUSTER == 1 || N > 32 * WARPGROUPS)
REQUIRE(SPLIT == 1 || CLUSTER == 1 && BM == 128 && K >= 256 * SPLIT)
ORDER(wgmma_codes, SPLIT)
GRID(SPLIT > 1 ? SPLIT * ceil_div(ROWS, BM) * ceil_div(N, 32 * WARPGROUPS)
	: CLUSTER * min(SMS / CLUSTER, ceil_div(ROWS, BM) * ceil_div(ceil_div(N, 32 * WARPGROUPS), CLUSTER)), 1, 1)
BLOCK(128 * (WARPGROUPS + 1))
SMEM(231424)
READS(N * (K + 2 * ceil_div(K, BLOCK_K) * ST_BYTES + (GATE_ROW_SCALE + UP_ROW_SCALE) * 4) + ROWS * K * 2
	+ (GATE_BIAS + UP_BIAS) * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(4 * ROWS * N * K)
PIECES(CLUSTER * SPLIT * ceil_div(ROWS, BM) * ceil_div(ceil_div(N, 32 * WARPGROUPS), CLUSTER))
RATE((SPLIT == 4 ? (4 * ceil_div(ROWS, BM) * ceil_div(N, 32 * WARPGROUPS) <= SMS * 10 / 13 ? 46 : 26)
	: SPLIT == 2 ? 48 : BM == 256 ? 74 : WARPGROUPS == 3 ? 56 : 52) - (ST_BITS == 32 ? 5 : 0)
	+ (CLUSTER * SPLIT > 1 ? 0 : ceil_div(ROWS, BM) * ceil_div(N, 32 * WARPGROUPS) <= SMS ? 1 : BM == 256 ? -8 : -1))
struct Args {
	TENSOR_MAP(x, x_map, BM / CLUSTER, 64);
	TENSOR_MAP(gate, gate_map, 32 * WARPGROUPS, 256);
	TENSOR_MAP(up, up_map, 32 * WARPGROUPS, 256);
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(WT, gate, "N, K");
	IN(WT, up, "N, K");
	IN(ST, gate_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(GATE_ROW_SCALE, f32, gate_row_scale, "N");
	IN(ST, up_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");
	IN_IF(UP_ROW_SCALE, f32, up_row_scale, "N");
	IN_IF(GATE_BIAS, BT, gate_bias, "N");
	IN_IF(UP_BIAS, BT, up_bias, "N");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __cluster_dims__(CLUSTER * SPLIT, 1, 1) __launch_bounds__(128 * (WARPGROUPS + 1), 1)
wgmma_codes_swiglu(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(rings);
	const int rows = a.step[0];
	using P = CodeProducts<WT, ST, BLOCK_K, K, N, BM, WARPGROUPS, CLUSTER, SPLIT, 2>;
	const P operands = { &a.x_map, { &a.gate_map, &a.up_map }, { a.gate_scale, a.up_scale } };
	codes_products(rings, rows, operands, [&](auto &acc, int t0, int n0) {
		constexpr int tiles = sizeof acc / sizeof acc[0];
		const int n = min(n0 + int(threadIdx.x) % 32 / 4, N - 1);
		float scale[2] = { P::unit, P::unit }, bias[2] = {};
		if constexpr (GATE_ROW_SCALE)
			scale[0] *= a.gate_row_scale[n];
		if constexpr (UP_ROW_SCALE)
			scale[1] *= a.up_row_scale[n];
		if constexpr (GATE_BIAS)
			bias[0] = to_f32(a.gate_bias[n]);
		if constexpr (UP_BIAS)
			bias[1] = to_f32(a.up_bias[n]);
		store_columns<N, tiles, 1>(a.y, nullptr, rows, t0, n0, [](int, int, u32) {}, [&](int, int j) {
			float y[2];
#pragma unroll
			for (int i = 0; i < 2; i++) {
				const float gate = fmaf(acc[j][i], scale[0], bias[0]), up = fmaf(acc[j][2 + i], scale[1], bias[1]);
				y[i] = __fdividef(gate, 1.0f + __expf(-gate)) * up;
			}
			return pack_bf16(y[0], y[1]);
		});
	});
}
