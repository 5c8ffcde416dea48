// what      logits[o,v] = cap?(sum_k x[o,k] w[v,k]), in f32, for many outs; outs beyond step[1] stay as they are
// numerics  bf16 products accumulated in f32 in ascending k; not rounded. Same bits every run; an out's bits do not
//           depend on the others
// measured  H200 SXM, K=4096, V=128256: 64 outs 291 us, 128 outs 302 us, 80 % of the read bandwidth; 256 outs 449 us,
//           599 TFLOP/s; gemm_logits takes 379, 571, 1194. No spills
// tiles     128 x BN, which is a part of the vocabulary. Blocks in pairs (CLUSTER) share each tile of w
// bytes     READS is what memory delivers: tiles that run together share their operands in the L2 cache
// why       as wgmma_linear; the four lanes that have a row of a tile find its best among themselves
#include "shared/contract.cuh"
#include "shared/best.cuh"
#include "products/wgmma.cuh"

KERNEL(wgmma_logits, linear_logits)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma)
DIM(OUTS, 128)
DIM(K, 4096)
DIM(V, 128256)
ATTR_INT(N_VALID, 128256)
ATTR_FLOAT(CAP, 0.0f)
DTYPES(WT, bf16)
TUNE(BN, 256, 128)
TUNE(CLUSTER, 2, 1)
REQUIRE(K % 8 == 0)
REQUIRE(V % 8 == 0)
REQUIRE(CLUSTER == 1 || OUTS > 128)
PREFER(OUTS > 64)
ORDER(wgmma)
ORDER(parts, BN)
GRID(min(SMS / CLUSTER * CLUSTER, wgmma_pieces(OUTS, V, BN, CLUSTER)), 1, 1)
BLOCK(384)
SMEM(wgmma_smem(BN))
READS(V * K * WT_BYTES + OUTS * K * 2)
WRITES(OUTS * (V * 4 + ceil_div(V, BN) * 12))
FLOPS(2 * OUTS * V * K)
PIECES(wgmma_pieces(OUTS, V, BN, CLUSTER))
RATE((BN == 256 ? 74 : 65) + (CLUSTER == 2 ? 0 : BN == 256 ? -1 : -8))
struct Args {
	TENSOR_MAP(x, x_map, 128, 64);
	TENSOR_MAP(w, w_map, BN / CLUSTER, 64);
	IN(i32, step, "4");
	IN(bf16, x, "OUTS, K");
	IN(WT, w, "V, K");
	OUT(f32, logits, "OUTS, V");
	OUT(f32, best, "OUTS, ceil_div(V, BN), 2");
	OUT(i32, best_id, "OUTS, ceil_div(V, BN)");
};

// warp level: of row g + 8 i of what a warp has of a tile, the largest value, its lowest id, and the sum of
// e^(l - largest). first: the id of this lane's first column; those from n_valid on do not exist
struct BestOfRow {
	float top, sum;
	int id;

	template <int TILES_>
	__device__ __forceinline__ BestOfRow(const float (&acc)[TILES_][4], int i, int first, int n_valid)
		: top(minus_infinity()), sum(0.0f), id(first)
	{
#pragma unroll
		for (int j = 0; j < TILES_; j++)
#pragma unroll
			for (int e = 0; e < 2; e++)
				if (first + j * 8 + e < n_valid && acc[j][2 * i + e] > top) {
					top = acc[j][2 * i + e];
					id = first + j * 8 + e;
				}
#pragma unroll
		for (int m = 1; m <= 2; m *= 2) {
			const float other = __shfl_xor_sync(~0u, top, m);
			const int other_id = __shfl_xor_sync(~0u, id, m);
			if (other > top || (other == top && other_id < id)) {
				top = other;
				id = other_id;
			}
		}
		const float base = top == minus_infinity() ? 0.0f : top;
#pragma unroll
		for (int j = 0; j < TILES_; j++)
#pragma unroll
			for (int e = 0; e < 2; e++)
				if (first + j * 8 + e < n_valid)
					sum += expf(acc[j][2 * i + e] - base);
		sum += __shfl_xor_sync(~0u, sum, 1);
		sum += __shfl_xor_sync(~0u, sum, 2);
	}
};

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(384, 1)
wgmma_logits(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	constexpr int parts = ceil_div(V, BN);
	const int outs = a.step[1];
	const Products<1> operands = { &a.x_map, { &a.w_map }, nullptr };
	wgmma_products<BN, K, V, CLUSTER>(ring, outs, operands, [&](auto &acc, int o0, int v0) {
		if constexpr (float(CAP) > 0.0f)
#pragma unroll
			for (int j = 0; j < BN / 8; j++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					acc[j][i] = soft_cap(acc[j][i], float(CAP));
		const int q = threadIdx.x % 4, out = o0 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const int o = out + 8 * i;
			const BestOfRow best(acc, i, v0 + 2 * q, N_VALID);
			if (o >= outs)
				continue;
			float *line = a.logits + i64(o) * V + v0 + 2 * q;
#pragma unroll
			for (int j = 0; j < BN / 8; j++)
				if (v0 + j * 8 < V)
					*reinterpret_cast<float2 *>(line + j * 8) = make_float2(acc[j][2 * i], acc[j][2 * i + 1]);
			if (q == 0) {
				const i64 part = i64(o) * parts + v0 / BN;
				*reinterpret_cast<float2 *>(a.best + part * 2) = make_float2(best.top, best.sum);
				a.best_id[part] = best.id;
			}
		}
	});
}
