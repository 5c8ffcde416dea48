// what      z[o,:] = part[o,:] of rank 0, then that of rank 1, ...: of outs in use; NCCL has put the ranks' parts one
//           after the other into all before. Alone, part is that of all ranks
// numerics  bytes as they are
// measured  not yet
// why       what is left of gather_peers where ranks are on several hosts, or parts so long that the library moves them
//           faster: it gives [RANKS, OUTS, N], and a draw reads a row of all ranks
#include "shared/contract.cuh"
#include "ranks/peers.cuh"

KERNEL(gather_nccl, gather_nccl)
ARCH(90)
NUMERICS(exact)
DIM(OUTS, 8)
DIM(N, 64128)
DIM(WORDS, 1289216)
ATTR_INT(RANKS, 2)
REQUIRE(RANKS <= 8)
ORDER(exact)
GRID(ceil_div(OUTS * N, 4096), 1, 1)
BLOCK(512)
SMEM(0)
READS(OUTS * N * 4 * RANKS + 64)
WRITES(OUTS * N * 4 * RANKS)
FLOPS(0)
struct Args {
	IN(i32, step, "4");
	IN(f32, part, "OUTS, N");
	INOUT(i32, peers, "WORDS");
	OUT(f32, all, "RANKS * OUTS, N");
	OUT(f32, z, "OUTS, RANKS * N");
};

constexpr int PER = N % 4 == 0 ? 4 : 1;

extern "C" __global__ void __launch_bounds__(512) gather_nccl(const Args a)
{
	using U = Unit<f32, PER>;
	let_next_start();
	inputs_ready();
	const bool is_alone = a.peers[PEER_RANKS] == 0;
	const i64 units = i64(min(a.step[1], OUTS)) * N / PER, to = min(units, i64(blockIdx.x + 1) * (4096 / PER));
	for (i64 u = i64(blockIdx.x) * (4096 / PER) + threadIdx.x; u < to; u += 512) {
		const i64 o = u * PER / N, column = u * PER % N;
#pragma unroll
		for (int r = 0; r < RANKS; r++) {
			f32 *all = a.all + i64(r) * OUTS * N + u * PER;
			const auto raw = U::load(is_alone ? a.part + u * PER : all);
			if (is_alone)
				U::store(all, raw);
			U::store(a.z + (o * RANKS + r) * N + column, raw);
		}
	}
}
