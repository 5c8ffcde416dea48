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

extern "C" __global__ void __launch_bounds__(128) plain_route_sigmoid(const Args a)
{
	let_next_start();
	inputs_ready();
	const i64 t = blockIdx.x * 4 + threadIdx.x / 32;
	if (t < ROWS)
		route_row_by_sigmoid<EXPERTS, TOPK, GROUPS, TOP_GROUPS, NORM_TOPK != 0>(a.logits + t * EXPERTS,
			BIAS ? a.bias : nullptr, float(SHARE_EPS), float(SHARE_SCALE), a.expert + t * TOPK, a.share + t * TOPK);
}
