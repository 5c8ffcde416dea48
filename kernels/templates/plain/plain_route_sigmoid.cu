// what      s = sigmoid(logits[t,:]); expert[t,:] = the TOPK largest s + bias, the lowest id among equals, out of the
//           TOP_GROUPS best of GROUPS groups by the sum of their two largest; share[t,j] = their s, with NORM_TOPK over
//           (the sum of these + SHARE_EPS), times SHARE_SCALE
// numerics  f32; s is kept beside s + bias, from which a large bias could not be taken again. Same bits every run;
//           batch-invariant
// measured  not separately: what any launch takes
// why       the op alone: a warp a row, an expert's score in one lane
#include "shared/contract.cuh"
#include "experts/route.cuh"

KERNEL(plain_route_sigmoid, route_sigmoid)
ARCH(80)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 1)
DIM(EXPERTS, 128)
ATTR_INT(TOPK, 8)
ATTR_INT(NORM_TOPK, 1)
ATTR_INT(GROUPS, 1)
ATTR_INT(TOP_GROUPS, 1)
ATTR_FLOAT(SHARE_EPS, 1e-20f)
ATTR_FLOAT(SHARE_SCALE, 2.5f)
FLAG(BIAS)
DTYPES(BT, f32, bf16, f16)
REQUIRE(EXPERTS <= 1024 && TOPK <= 32)
REQUIRE(GROUPS >= 1 && GROUPS <= 32 && EXPERTS % GROUPS == 0 && TOP_GROUPS >= 1 && TOP_GROUPS <= GROUPS)
REQUIRE(TOPK <= EXPERTS / GROUPS * TOP_GROUPS)
ORDER(plain)
GRID(ceil_div(ROWS, 4), 1, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * EXPERTS * 4 + BIAS * EXPERTS * BT_BYTES)
WRITES(ROWS * TOPK * 8)
FLOPS(ROWS * EXPERTS * 8)
struct Args {
	IN(f32, logits, "ROWS, EXPERTS");
	IN_IF(BIAS, BT, bias, "EXPERTS");
	OUT(i32, expert, "ROWS, TOPK");
	OUT(f32, share, "ROWS, TOPK");
};

constexpr int EACH = ceil_div(EXPERTS, 32), OF = EXPERTS / GROUPS;

// As large as x by comparison of integers; 0 is less than all of them.
__device__ __forceinline__ u32 ordered(float x)
{
	const u32 bits = __float_as_uint(x + 0.0f); // -0 is as large as 0
	return max(bits ^ (bits >> 31 ? ~0u : 0x80000000u), 1u);
}

// Lane g's is the sum of the two largest scores of group g.
__device__ __forceinline__ float group_sum(const float (&score)[EACH], int lane)
{
	float mine = 0.0f;
	for (int g = 0; g < GROUPS; g++) {
		float first = minus_infinity(), second = minus_infinity();
#pragma unroll
		for (int i = 0; i < EACH; i++)
			if ((i * 32 + lane) / OF == g) {
				second = fmaxf(second, fminf(first, score[i]));
				first = fmaxf(first, score[i]);
			}
#pragma unroll
		for (int step = 16; step > 0; step /= 2) {
			const float a = __shfl_xor_sync(~0u, first, step), b = __shfl_xor_sync(~0u, second, step);
			second = fmaxf(fmaxf(second, b), fminf(first, a));
			first = fmaxf(first, a);
		}
		if (lane == g)
			mine = OF > 1 ? first + second : first;
	}
	return mine;
}

extern "C" __global__ void __launch_bounds__(128) plain_route_sigmoid(const Args a)
{
	let_next_start();
	inputs_ready();
	const i64 t = blockIdx.x * 4 + threadIdx.x / 32;
	const int lane = threadIdx.x % 32;
	if (t >= ROWS)
		return;
	float s[EACH], score[EACH], chosen = float(SHARE_EPS), mine = 0.0f;
	u32 key[EACH], id = 0, open = ~0u; // bit g: group g is among the best
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		const int e = i * 32 + lane;
		s[i] = e < EXPERTS ? sigmoid(a.logits[t * EXPERTS + e]) : 0.0f;
		score[i] = e < EXPERTS ? s[i] : minus_infinity();
		if constexpr (BIAS)
			score[i] += e < EXPERTS ? to_f32(a.bias[e]) : 0.0f;
	}
	if (GROUPS > 1) {
		const float sum = group_sum(score, lane);
		int before = 0;
#pragma unroll
		for (int g = 0; g < GROUPS; g++) {
			const float other = __shfl_sync(~0u, sum, g);
			before += other > sum || (other == sum && g < lane);
		}
		open = __ballot_sync(~0u, before < TOP_GROUPS);
	}
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		const int e = i * 32 + lane;
		key[i] = e < EXPERTS && (open >> (e / OF) & 1) ? ordered(score[i]) : 0u;
	}
	for (int j = 0; j < TOPK; j++) {
		u32 best = 0, at = ~0u;
#pragma unroll
		for (int i = 0; i < EACH; i++)
			if (key[i] > best) {
				best = key[i];
				at = i * 32 + lane;
			}
		const u32 top = warp_max_bits(best), e = min(warp_min_bits(best == top ? at : ~0u), u32(EXPERTS - 1));
		float worth = 0.0f;
#pragma unroll
		for (int i = 0; i < EACH; i++)
			if (i * 32 + lane == int(e)) {
				worth = s[i];
				key[i] = 0;
			}
		worth = __shfl_sync(~0u, worth, e % 32);
		chosen += worth;
		if (lane == j) {
			id = e;
			mine = worth;
		}
	}
	if (lane < TOPK) {
		a.expert[t * TOPK + lane] = int(id);
		a.share[t * TOPK + lane] = (NORM_TOPK ? mine / chosen : mine) * float(SHARE_SCALE);
	}
}
