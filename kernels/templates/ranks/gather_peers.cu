// what      z[o,:] = part[o,:] of rank 0, then that of rank 1, ...: of outs in use
// numerics  bytes as they are
// measured  not yet
// why       as sum_peers; columns of a rank stay together, so pieces of 16 bytes are read and written in rows
#include "shared/contract.cuh"
#include "ranks/peers.cuh"

KERNEL(gather_peers, gather_peers)
ARCH(90)
NUMERICS(exact)
DIM(OUTS, 8)
DIM(N, 64128)
DIM(WORDS, 1289216)
ATTR_INT(RANKS, 2)
REQUIRE(WORDS % 128 == 0 && OUTS * N * 4 <= (WORDS - 263168) * 2)
REQUIRE(RANKS <= 8)
FORMULA(n_blocks(), min(64, ceil_div(OUTS * N, 4096)))
ORDER(exact)
GRID(n_blocks(), 1, 1)
BLOCK(512)
SMEM(0)
READS(OUTS * N * 4 * (RANKS + 1))
WRITES(OUTS * N * 4 * (RANKS + 1))
FLOPS(0)
struct Args {
	IN(i32, step, "4");
	IN(f32, part, "OUTS, N");
	INOUT(i32, peers, "WORDS");
	OUT(f32, z, "OUTS, RANKS * N");
};

constexpr int PER = N % 4 == 0 ? 4 : 1, SLOT_WORDS = (WORDS - PEER_SLOTS) / 2;

extern "C" __global__ void __launch_bounds__(512) gather_peers(const Args a)
{
	using U = Unit<f32, PER>;
	let_next_start();
	inputs_ready();
	const int block = blockIdx.x, blocks = n_blocks();
	const Peers p = peers_begin(a.peers, blocks);
	const i64 units = i64(min(a.step[1], OUTS)) * N / PER;
	const i64 from = units * block / blocks + threadIdx.x, to = units * (block + 1) / blocks;
	if (p.n > 1) {
		f32 *own = reinterpret_cast<f32 *>(p.slot(p.rank, SLOT_WORDS));
		for (i64 u = from; u < to; u += 512)
			U::store(own + u * PER, U::load(a.part + u * PER));
		peers_meet(p, block);
	}
	for (i64 u = from; u < to; u += 512) {
		const i64 o = u * PER / N, column = u * PER % N;
#pragma unroll
		for (int r = 0; r < RANKS; r++) {
			const f32 *from_rank = p.n > 1 ? reinterpret_cast<const f32 *>(p.slot(r, SLOT_WORDS)) : a.part;
			U::store(a.z + (o * RANKS + r) * N + column, U::load_peer(from_rank + u * PER));
		}
	}
}
