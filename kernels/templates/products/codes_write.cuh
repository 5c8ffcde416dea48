// codes_write.cuh - what wgmma_codes_* and wgmma_e4m3_* do with the sums of a tile, behind a contract fragment, its
// Args, MATRICES and RESIDUAL (operands.cuh).
#pragma once
#include "products/wgmma_codes.cuh"

// block level: the tiles of this block, from the product of codes that `operands` is to rows of y, or of z
template <class P> __device__ __forceinline__ void write_products(uint4 *rings, const Args &a, const P &operands)
{
	const int rows = a.step[0];
	codes_products(rings, rows, operands, [&](auto &acc, int t0, int n0) {
		constexpr int tiles = sizeof acc / sizeof acc[0];
#if MATRICES == 2
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
#else
#if RESIDUAL
		bf16 *const out = a.z;
		const bf16 *const more = a.residual;
#else
		bf16 *const out = a.y;
		const bf16 *const more = nullptr;
#endif
		scale_sums<P>(acc, W_ROW_SCALE ? a.w_row_scale : nullptr, BIAS ? a.bias : nullptr, n0);
		store_columns<N, tiles, 2>(out, more, rows, t0, n0, [&](int i, int j, u32 two) {
			acc[j][2 * i] += low_bf16(two);
			acc[j][2 * i + 1] += high_bf16(two);
		}, [&](int i, int j) { return pack_bf16(acc[j][2 * i], acc[j][2 * i + 1]); });
#endif
	});
}
