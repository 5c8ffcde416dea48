// what      y[t,i] = silu(x[t,:].gate[i,:] + gate_bias[i]) * (x[t,:].up[i,:] + up_bias[i]), for up to 64 rows; rows
//           beyond step[0] stay as they are
// numerics  bf16 products accumulated in f32 in ascending k; biases, silu and product in f32; one rounding. Same bits
//           every run; a row's bits do not depend on the other rows
// measured  H200 SXM, K=4096, N=14336: 64 rows 63.8 us, 80 % of the read bandwidth. No spills
// tiles     64 x BN, of which half are rows of gate and half of up
// bytes     READS is what memory delivers: x comes from the L2 cache for all tiles but one
// why       a tile of wgmma_swiglu is 128 rows of x: of 64 it multiplies and keeps in its ring as many that are not
//           there
#include "shared/contract.cuh"
#include "products/wgmma_few.cuh"

KERNEL(wgmma_few_swiglu, linear_swiglu)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma)
DIM(ROWS, 64)
DIM(K, 4096)
DIM(N, 14336)
FLAG(GATE_BIAS)
FLAG(UP_BIAS)
DTYPES(WT, bf16)
DTYPES(BT, bf16, f16, f32)
TUNE(BN, 256, 128)
REQUIRE(K % 8 == 0)
REQUIRE(N % 8 == 0)
REQUIRE(ROWS <= 64)
ORDER(wgmma_few, 1)
GRID(ceil_div(N, BN / 2), 1, 1)
BLOCK(384)
SMEM(231424)
READS(2 * N * K * WT_BYTES + ROWS * K * 2 + (GATE_BIAS + UP_BIAS) * N * BT_BYTES)
WRITES(ROWS * N * 2)
FLOPS(4 * ROWS * N * K)
RATE(BN == 256 ? 65 : 50)
struct Args {
	TENSOR_MAP(x, x_map, 64, 64);
	TENSOR_MAP(gate, gate_map, BN / 4, 64);
	TENSOR_MAP(up, up_map, BN / 4, 64);
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(WT, gate, "N, K");
	IN(WT, up, "N, K");
	IN_IF(GATE_BIAS, BT, gate_bias, "N");
	IN_IF(UP_BIAS, BT, up_bias, "N");
	OUT(bf16, y, "ROWS, N");
};

extern "C" __global__ void __launch_bounds__(384, 1) wgmma_few_swiglu(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	using P = FewProducts<ROWS, K, N, BN, 1, 2>;
	const int rows = a.step[0];
	const P operands = { &a.x_map, { &a.gate_map, &a.up_map } };
	few_products(ring, rows, operands,
		[](auto &stages, int group, auto &acc) { few_multiply<P>(stages, group, acc); }, [](int, int, int) {},
		[&](int, int t, int n, const float (&v)[8][2]) {
			float y[4][2];
#pragma unroll
			for (int j = 0; j < 4; j++) {
				const int column = n + (j - int(threadIdx.x) % 4) * 8 + threadIdx.x % 4 * 2;
				float2 gate = make_float2(v[j][0], v[j][1]), up = make_float2(v[4 + j][0], v[4 + j][1]);
				if constexpr (GATE_BIAS) {
					const float2 b = bias_pair<N>(a.gate_bias, column);
					gate = make_float2(gate.x + b.x, gate.y + b.y);
				}
				if constexpr (UP_BIAS) {
					const float2 b = bias_pair<N>(a.up_bias, column);
					up = make_float2(up.x + b.x, up.y + b.y);
				}
				y[j][0] = gate.x / (1.0f + __expf(-gate.x)) * up.x;
				y[j][1] = gate.y / (1.0f + __expf(-gate.y)) * up.y;
			}
			few_store<N>(a.y, rows, t, n, y, nullptr, nullptr, static_cast<const bf16 *>(nullptr));
		});
}
