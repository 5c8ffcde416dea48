// what      rows of x as codes of e4m3, each as often as products of experts need it: y[i,:] is row pair[i] / TOPK, and
//           where all rows go to one expert more, y[ROWS * TOPK + t,:] is row t again; y_scale[k / 128, i] is the
//           largest |x| of its 128 columns / 448, y = x / y_scale; rows of pairs that are not in use stay as they are
// numerics  exact but for the two quotients; codes rounded to nearest even. Same bits every run; a row's bits do not
//           depend on the other rows
// why       the copy engine fetches boxes of neighbouring rows, so rows of an expert have to be neighbours. Written as
//           codes they are half of what they were; the products read them from the L2 cache. A block has
//           four rows, whose loads are under way at once
#include "shared/contract.cuh"
#include "shared/quant.cuh"

KERNEL(gather_codes, gather_codes)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 2048)
DIM(K, 2048)
DIM(PAIRS, 18432)
ATTR_INT(TOPK, 8)
REQUIRE(K % 8 == 0)
REQUIRE(PAIRS == ROWS * TOPK || PAIRS == ROWS * (TOPK + 1))
ORDER(quotients, 128)
GRID(ceil_div(PAIRS, 4), 1, 1)
BLOCK(K < 8192 ? ceil_div(K, 256) * 32 : 1024)
READS(ROWS * K * 2 + ROWS * TOPK * 4)
WRITES(PAIRS * K + PAIRS * ceil_div(K, 128) * 4)
FLOPS(4 * PAIRS * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(i32, pair, "ROWS * TOPK");
	OUT(e4m3, y, "PAIRS, K");
	OUT(f32, y_scale, "ceil_div(K, 128), PAIRS");
};

constexpr int threads = K < 8192 ? ceil_div(K, 256) * 32 : 1024, pieces = ceil_div(K / 8, threads), each = 4;

// The row that row i of y is of, -1 where it is in no use.
__device__ __forceinline__ int row_of(const Args &a, int i)
{
	const int again = i - ROWS * TOPK;
	if (again >= 0)
		return i < PAIRS && again < a.step[0] ? again : -1;
	const int pair = a.pair[i];
	return pair < 0 ? -1 : pair / TOPK;
}

extern "C" __global__ void __launch_bounds__(K < 8192 ? ceil_div(K, 256) * 32 : 1024) gather_codes(const Args a)
{
	let_next_start();
	inputs_ready();
	int row[each];
#pragma unroll
	for (int r = 0; r < each; r++)
		row[r] = row_of(a, int(blockIdx.x) * each + r);
#pragma unroll
	for (int p = 0; p < pieces; p++) {
		const int k = (p * threads + int(threadIdx.x)) * 8;
		Vec8<bf16> x[each] = {};
#pragma unroll
		for (int r = 0; r < each; r++)
			if (row[r] >= 0 && k < K)
				x[r] = load8(a.x + i64(row[r]) * K + k);
#pragma unroll
		for (int r = 0; r < each; r++) {
			float v[8];
			uint2 codes;
			unpack(x[r], v);
			const float scale = code_columns_of(v, codes);
			const int i = int(blockIdx.x) * each + r;
			if (row[r] < 0 || k >= K)
				continue;
			*reinterpret_cast<uint2 *>(a.y + i64(i) * K + k) = codes;
			if (k % code_columns == 0)
				a.y_scale[i64(k / code_columns) * PAIRS + i] = scale;
		}
	}
}
