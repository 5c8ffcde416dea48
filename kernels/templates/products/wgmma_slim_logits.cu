// what      logits[o,v] = cap?(sum_k x[o,k] w[v,k]), in f32, for up to 64 outs; outs beyond step[1] stay as they are
// numerics  bf16 products accumulated in f32 in ascending k; not rounded. Same bits every run; an out's bits do not
//           depend on the others
// measured  H200 SXM: 32 outs, K=4096, V=128256 254 us, 91 % of the read bandwidth; 64 outs, K=5120, V=248320 624 us
// tiles     128 ids, which are a part of the vocabulary, by 16, 32 or 64 outs, a stage of 64 columns
// bytes     READS is what memory delivers: x comes from the L2 cache for all tiles but one
// why       as wgmma_slim_linear: of BLOCKS blocks of a multiprocessor some read while others find their best and end
#include "shared/contract.cuh"
#include "shared/best.cuh"
#include "products/wgmma_slim.cuh"

KERNEL(wgmma_slim_logits, linear_logits)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma)
DIM(OUTS, 64)
DIM(K, 4096)
DIM(V, 128256)
ATTR_INT(N_VALID, 128256)
ATTR_FLOAT(CAP, 0.0f)
DTYPES(WT, bf16)
TUNE(BLOCKS, 2, 3)
REQUIRE(OUTS <= 64)
PREFER(BLOCKS == 2)
REQUIRE(K % 8 == 0)
REQUIRE(V % 8 == 0)
ORDER(wgmma_slim, 1)
ORDER(parts, 128)
GRID(ceil_div(V, 128), 1, 1)
BLOCK(288)
SMEM(slim_smem(BLOCKS))
READS(V * K * WT_BYTES + OUTS * K * 2)
WRITES(OUTS * (V * 4 + ceil_div(V, 128) * 12))
FLOPS(2 * OUTS * V * K)
RATE(50)
struct Args {
	TENSOR_MAP(x, x_map, slim_rows(OUTS), 64);
	TENSOR_MAP(w, w_map, 128, 64);
	IN(i32, step, "4");
	IN(bf16, x, "OUTS, K");
	IN(WT, w, "V, K");
	OUT(f32, logits, "OUTS, V");
	OUT(f32, best, "OUTS, ceil_div(V, 128), 2");
	OUT(i32, best_id, "OUTS, ceil_div(V, 128)");
};

using P = SlimProducts<OUTS, K, V, 1, BLOCKS, 1, 64>;

// 16 lanes, eight ids each from `first` on: the largest logit of those below n_valid, its lowest id, and the sum of
// e^(l - largest), in every lane
struct BestOfPart {
	float top, sum;
	int id;

	__device__ __forceinline__ BestOfPart(const float (&l)[8], int first, int n_valid)
		: top(minus_infinity()), sum(0.0f), id(first)
	{
#pragma unroll
		for (int i = 0; i < 8; i++)
			if (first + i < n_valid && l[i] > top) {
				top = l[i];
				id = first + i;
			}
#pragma unroll
		for (int m = 8; m; m >>= 1) {
			const float other = __shfl_xor_sync(~0u, top, m);
			const int other_id = __shfl_xor_sync(~0u, id, m);
			if (other > top || (other == top && other_id < id)) {
				top = other;
				id = other_id;
			}
		}
		const float base = top == minus_infinity() ? 0.0f : top;
#pragma unroll
		for (int i = 0; i < 8; i++)
			if (first + i < n_valid)
				sum += expf(l[i] - base);
#pragma unroll
		for (int m = 8; m; m >>= 1)
			sum += __shfl_xor_sync(~0u, sum, m);
	}
};

extern "C" __global__ void __launch_bounds__(288, BLOCKS) wgmma_slim_logits(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(ring);
	constexpr int parts = ceil_div(V, 128);
	const int outs = a.step[1];
	const P operands = { &a.x_map, { &a.w_map }, nullptr };
	slim_products(ring, outs, operands,
		[](auto &stages, int group, auto &acc) { slim_multiply<P>(stages, group, acc); }, [](int, int, int) {},
		[&](int, int o, int v, float (&l)[1][8]) {
			if constexpr (float(CAP) > 0.0f)
#pragma unroll
				for (int i = 0; i < 8; i++)
					l[0][i] = soft_cap(l[0][i], float(CAP));
			const BestOfPart best(l[0], v, N_VALID);
			if (o >= outs)
				return;
			if (v < V) {
				float4 *const line = reinterpret_cast<float4 *>(a.logits + i64(o) * V + v);
				line[0] = make_float4(l[0][0], l[0][1], l[0][2], l[0][3]);
				line[1] = make_float4(l[0][4], l[0][5], l[0][6], l[0][7]);
			}
			if (v % 128 == 0) {
				const i64 part = i64(o) * parts + v / 128;
				*reinterpret_cast<float2 *>(a.best + part * 2) = make_float2(best.top, best.sum);
				a.best_id[part] = best.id;
			}
		});
}
