// what      rows of x as codes of e4m3, each as often as products of experts need it: y[i,:] is row pair[i] / TOPK, and
//           where all rows go to one expert more, y[ROWS * TOPK + t,:] is row t again; y_scale[k / 128, i] is the
//           largest |x| of its 128 columns / 448, y = x / y_scale; rows of pairs that are not in use stay as they are
// numerics  exact but for the two quotients; codes rounded to nearest even. Same bits every run; a row's bits do not
//           depend on the other rows
// why       the copy engine fetches boxes of neighbouring rows, so rows of an expert have to be neighbours. Written as
//           codes they are half of what they were; the products read them from the L2 cache. A block has
//           four rows, whose loads are under way at once
// quotients a row is made once for each expert that it goes to, so instructions are what this costs: x / s is x times
//           about 1 / s, and one step of correction. That gives the f32 that a division does, for each of the 128 times
//           128 significands of x and of the largest |x|, with a reciprocal two units off either way
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

// 16 lanes, eight columns each: their scale, in every lane, and the codes of this lane's, as code_columns_of has them
__device__ __forceinline__ float codes_of(const Vec8<bf16> &x, uint2 &codes)
{
	float v[8], largest = 0.0f, inverse;
	unpack(x, v);
#pragma unroll
	for (int e = 0; e < 8; e++)
		largest = fmaxf(largest, fabsf(v[e]));
#pragma unroll
	for (int m = 8; m; m >>= 1)
		largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, m));
	float s = largest;
	if (largest < -minus_infinity()) {
		s = quotient(largest, 448.0f, 1.0f / 448.0f);
		s = s >= __uint_as_float(0x0d800000u) /* 2^-100, as code_scale has it */ ? s : 1.0f;
	}
	asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(s));
	s = s < -minus_infinity() ? s : 0.0f; // of an infinite scale all quotients are 0, or no numbers
#pragma unroll
	for (int e = 0; e < 8; e++)
		v[e] = quotient(v[e], s, inverse);
	codes.x = pack_e4m3(v[0], v[1], v[2], v[3]);
	codes.y = pack_e4m3(v[4], v[5], v[6], v[7]);
	return s > 0.0f ? s : largest;
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
			uint2 codes;
			const float scale = codes_of(x[r], codes);
			const int i = int(blockIdx.x) * each + r;
			if (row[r] < 0 || k >= K)
				continue;
			*reinterpret_cast<uint2 *>(a.y + i64(i) * K + k) = codes;
			if (k % code_columns == 0)
				a.y_scale[i64(k / code_columns) * PAIRS + i] = scale;
		}
	}
}
