// what      z[t,:] = sum_j y[t,j,:] over the experts that this rank has, expert[t,j] not below 0; rows beyond step[0]
//           stay as they are
// numerics  added in f32 in the order of j; one rounding. Same bits every run, whatever is beside
// measured  not separately: bound by what it reads
// why       the end of a rank's whole experts: terms of other ranks' are not written here, and not read
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(sum_own, sum_own)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 512)
ATTR_INT(TOPK, 8)
DIM(K, 2048)
REQUIRE(K % 8 == 0)
ORDER(sum_terms)
GRID(ROWS, 1, 1)
BLOCK(256)
SMEM(0)
READS(ROWS * TOPK * (K * 2 + 4))
WRITES(ROWS * K * 2)
FLOPS(ROWS * TOPK * K)
struct Args {
	IN(i32, step, "4");
	IN(i32, expert, "ROWS, TOPK");
	IN(bf16, y, "ROWS, TOPK, K");
	OUT(bf16, z, "ROWS, K");
};

extern "C" __global__ void __launch_bounds__(256) sum_own(const Args a)
{
	const i64 t = blockIdx.x;
	let_next_start();
	inputs_ready();
	if (t >= a.step[0])
		return;
	bool is_own[TOPK];
#pragma unroll
	for (int j = 0; j < TOPK; j++)
		is_own[j] = a.expert[t * TOPK + j] >= 0;
	for (int k = int(threadIdx.x) * 8; k < K; k += 256 * 8) {
		float sum[8] = {}, v[8];
#pragma unroll
		for (int j = 0; j < TOPK; j++) {
			if (!is_own[j])
				continue;
			unpack(load8(a.y + (t * TOPK + j) * K + k), v);
#pragma unroll
			for (int i = 0; i < 8; i++)
				sum[i] += v[i];
		}
		*reinterpret_cast<uint4 *>(a.z + t * K + k) = pack8(sum);
	}
}
