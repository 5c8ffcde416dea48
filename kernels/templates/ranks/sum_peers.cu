// what      z = the sum of part over all ranks, + bias, + residual, of rows in use
// numerics  added in f32 in the order of ranks, then the bias, then the residual; one rounding. All ranks get the same
//           bits, whatever the number of rows
// measured  not yet
// why       each rank reads all parts itself (one shot): one meeting, no second one to hand results on. Parts are shown
//           as they are and the result is local, so peers touch nothing but slots and flags. As many blocks as there
//           are pieces of 4096 elements, at most 64: few enough to be on the card beside what waits for them
#include "shared/contract.cuh"

KERNEL(sum_peers, sum_peers)
DIM(ROWS, 16)
#include "ranks/sum_contract.cuh"
REQUIRE(T_BYTES == 4 || K % 8 == 0)
PREFER(ROWS * K * T_BYTES > 32768)
REQUIRE(WORDS % 128 == 0 && ROWS * K * T_BYTES <= (WORDS - 263168) * 2)
FORMULA(n_blocks(), min(64, ceil_div(ROWS * K, 4096)))
GRID(n_blocks(), 1, 1)
READS(ROWS * K * T_BYTES * (2 + RESIDUAL))
WRITES(ROWS * K * T_BYTES * 2)

#include "ranks/sum_rest.cuh"

constexpr int SLOT_WORDS = (WORDS - PEER_SLOTS) / 2;

extern "C" __global__ void __launch_bounds__(512) sum_peers(const Args a)
{
	using U = Unit<T, PER>;
	let_next_start();
	inputs_ready();
	const int block = blockIdx.x, blocks = n_blocks();
	const Peers p = peers_begin(a.peers, blocks);
	const i64 units = i64(min(a.step[0], ROWS)) * K / PER;
	const i64 from = units * block / blocks + threadIdx.x, to = units * (block + 1) / blocks;
	if (p.n > 1) {
		T *own = reinterpret_cast<T *>(p.slot(p.rank, SLOT_WORDS));
		for (i64 u = from; u < to; u += 512)
			U::store(own + u * PER, U::load(a.part + u * PER));
		peers_meet(p, block);
	}
	for (i64 u = from; u < to; u += 512) {
		float sum[PER], v[PER];
		if (p.n > 1) {
			decltype(U::load(a.part)) raw[PEER_MOST];
#pragma unroll
			for (int r = 0; r < PEER_MOST; r++)
				if (r < p.n)
					raw[r] = U::load_peer(reinterpret_cast<const T *>(p.slot(r, SLOT_WORDS)) + u * PER);
			U::unpack(raw[0], sum);
#pragma unroll
			for (int r = 1; r < PEER_MOST; r++)
				if (r < p.n) {
					U::unpack(raw[r], v);
#pragma unroll
					for (int i = 0; i < PER; i++)
						sum[i] += v[i];
				}
		} else {
			U::unpack(U::load(a.part + u * PER), sum);
		}
		add_rest<U>(a, u, sum);
		U::store(a.z + u * PER, U::pack(sum));
	}
}
