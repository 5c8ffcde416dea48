// route_contract.cuh - contract fragment: the norm, the router's product and the choice of experts in one launch,
// route_rows*.cu and route_tiles*.cu. Their own files state tunables and the launch, between this one's dims and Args.
//
//   SIGMOID   0: shares of a softmax, and with shared_gate one of the expert that all rows go to. 1: by sigmoids, some
//             with a bias for the choice alone; where a row has one share more, it is 1
//   BIASED    1: the router's product has a bias
//   SCALED    1: logits are of rows that nobody else reads, times FACTOR, and each share times what its expert has
#pragma once
#include "shared/arrive.cuh"
#include "shared/mma.cuh"
#include "experts/route.cuh"

PARAM(SIGMOID, 0, 1)
PARAM(BIASED, 0, 1)
PARAM(SCALED, 0, 1)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(K, 2048)
DIM(EXPERTS, 256)
ATTR_FLOAT(EPS, 1e-6f)
ATTR_INT(NORM_ONE, 0)
ATTR_INT(TOPK, 8)
ATTR_INT(NORM_TOPK, 1)
DTYPES(NT, bf16, f16, f32)
DTYPES(RT, bf16, f16, f32)
#if SIGMOID
DIM(SHARES, 8)
ATTR_INT(GROUPS, 1) ATTR_INT(TOP_GROUPS, 1) ATTR_FLOAT(SHARE_EPS, 1e-20f) ATTR_FLOAT(SHARE_SCALE, 2.5f)
FLAG(BIAS)
DTYPES(BT, f32, bf16, f16)
REQUIRE(SHARES == TOPK || SHARES == TOPK + 1)
REQUIRE(GROUPS >= 1 && GROUPS <= 32 && EXPERTS % GROUPS == 0 && TOP_GROUPS >= 1 && TOP_GROUPS <= GROUPS)
REQUIRE(TOPK <= EXPERTS / GROUPS * TOP_GROUPS)
FORMULA(n_shares(), SHARES) FORMULA(gate_bytes(), 0) FORMULA(bias_bytes(), BIAS * EXPERTS * BT_BYTES)
#elif SCALED
ATTR_FLOAT(FACTOR, 0.02f)
DTYPES(BT, bf16, f16, f32)
FORMULA(n_shares(), TOPK) FORMULA(gate_bytes(), 0) FORMULA(bias_bytes(), EXPERTS * BT_BYTES)
#else
FLAG(SHARED)
DTYPES(GT, bf16, f16, f32)
FORMULA(n_shares(), TOPK + SHARED) FORMULA(gate_bytes(), SHARED * K * GT_BYTES)
#if BIASED
DTYPES(BT, bf16, f16, f32)
FORMULA(bias_bytes(), EXPERTS * BT_BYTES)
#else
FORMULA(bias_bytes(), 0)
#endif
#endif
REQUIRE(K % 8 == 0)
REQUIRE(TOPK <= EXPERTS && TOPK <= 32 && EXPERTS <= 1024)
WRITES(ROWS * (!SCALED * K * 2 + EXPERTS * 4 + (TOPK + n_shares()) * 4))
FLOPS(2 * ROWS * (EXPERTS + n_shares() - TOPK) * K)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, K");
	IN(NT, norm, "K");
	IN(RT, router, "EXPERTS, K");
#if SIGMOID
	IN_IF(BIAS, BT, bias, "EXPERTS");
#elif SCALED
	IN(BT, by, "EXPERTS");
#else
	IN_IF(SHARED, GT, shared_gate, "1, K");
#endif
	INOUT(i32, routed, "ROWS");
#if !SCALED
	OUT(bf16, n, "ROWS, K");
#endif
	OUT(f32, logits, "ROWS, EXPERTS");
	OUT(i32, expert, "ROWS, TOPK");
#if SIGMOID
	OUT(f32, share, "ROWS, SHARES");
#elif SCALED
	OUT(f32, share, "ROWS, TOPK");
#else
	OUT(f32, share, "ROWS, TOPK + SHARED");
#endif
#if BIASED
	IN(BT, router_bias, "EXPERTS");
#endif
};

#if SIGMOID || SCALED
using Gate = NT;
constexpr int is_gated = 0, shares = n_shares();
__device__ __forceinline__ const Gate *gate_of(const Args &a) { return a.norm; }
#else
using Gate = GT;
constexpr int is_gated = SHARED, shares = TOPK + SHARED;
__device__ __forceinline__ const Gate *gate_of(const Args &a) { return a.shared_gate; }
#endif

// warp level: the experts of row t
__device__ __forceinline__ void choose(const Args &a, int t)
{
	const float *const logits = a.logits + i64(t) * EXPERTS;
	i32 *const expert = a.expert + i64(t) * TOPK;
	float *const share = a.share + i64(t) * shares;
#if SIGMOID
	route_row_by_sigmoid<EXPERTS, TOPK, GROUPS, TOP_GROUPS, NORM_TOPK != 0>(logits, BIAS ? a.bias : nullptr,
		float(SHARE_EPS), float(SHARE_SCALE), expert, share);
#else
	route_row<EXPERTS, TOPK, NORM_TOPK != 0>(logits, expert, share);
#endif
#if SCALED
	const int lane = threadIdx.x % 32; // that wrote its choice
	if (lane < TOPK)
		share[lane] *= to_f32(a.by[expert[lane]]);
#endif
}

// thread level: what becomes of the sum of an expert's product
__device__ __forceinline__ float logit_of(const Args &a, float sum, int e)
{
#if BIASED
	return sum + to_f32(a.router_bias[e]);
#elif SCALED
	return sum * float(FACTOR);
#else
	return sum;
#endif
}
