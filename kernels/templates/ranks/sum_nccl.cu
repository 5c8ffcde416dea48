// what      z = sum + bias + residual, of rows in use; NCCL has made sum of all ranks' parts before. Alone, sum is part
// numerics  the sum is NCCL's: of bf16 rounded at each of its steps, in an order that follows from the number of
//           elements, so from the phase. Then f32, one rounding
// measured  not yet
// why       what is left of sum_peers where a sum is so long that a ring moves fewer bytes than one shot does. peers
//           puts the launches that others wait for in one order on all ranks
#include "shared/contract.cuh"
#include "ranks/peers.cuh"

KERNEL(sum_nccl, sum_nccl)
ARCH(90)
NUMERICS(f32_accumulate)
DIM(ROWS, 512)
DIM(K, 4096)
DIM(WORDS, 394240)
DTYPES(T, bf16, f32)
DTYPES(BT, bf16, f16, f32)
FLAG(BIAS)
FLAG(RESIDUAL)
REQUIRE(T_BYTES == 4 || K % 8 == 0)
ORDER(nccl, ROWS * K)
GRID(ceil_div(ROWS * K, 4096), 1, 1)
BLOCK(512)
SMEM(0)
READS(ROWS * K * T_BYTES * (1 + RESIDUAL) + 64)
WRITES(ROWS * K * T_BYTES)
FLOPS(ROWS * K * 2)
struct Args {
	IN(i32, step, "4");
	IN(T, part, "ROWS, K");
	IN_IF(BIAS, BT, bias, "K");
	IN_IF(RESIDUAL, T, residual, "ROWS, K");
	INOUT(i32, peers, "WORDS");
	OUT(T, sum, "ROWS, K");
	OUT(T, z, "ROWS, K");
};

#include "ranks/sum_rest.cuh"

extern "C" __global__ void __launch_bounds__(512) sum_nccl(const Args a)
{
	using U = Unit<T, PER>;
	let_next_start();
	inputs_ready();
	const bool is_alone = a.peers[PEER_RANKS] == 0;
	const i64 units = i64(min(a.step[0], ROWS)) * K / PER, to = min(units, i64(blockIdx.x + 1) * (4096 / PER));
	for (i64 u = i64(blockIdx.x) * (4096 / PER) + threadIdx.x; u < to; u += 512) {
		float sum[PER];
		const auto raw = U::load((is_alone ? a.part : a.sum) + u * PER);
		if (is_alone)
			U::store(a.sum + u * PER, raw);
		U::unpack(raw, sum);
		add_rest<U>(a, u, sum);
		U::store(a.z + u * PER, U::pack(sum));
	}
}
