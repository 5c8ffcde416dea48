// what      as sum_peers, in two shots: a rank adds its piece for all, then gives it to the others
// numerics  as sum_peers: the same bits, since a piece has all ranks' parts in their order, its bias and its residual,
//           and is rounded once, by the rank that adds it
// measured  not yet
// why       in one shot a rank reads RANKS - 1 whole parts; here as many pieces, and is sent as many: of 4 ranks half
//           the bytes, of 8 a quarter, for a second meeting, which has an epoch of its own. Of 2 it gains nothing.
//           Results are sent to the slot in which no parts are: who sends has seen that all had begun this launch, so
//           had ended what used that slot. One epoch more is passed over, so that the next collective shows its parts
//           where results were, which nobody else reads, and these parts stay until all have ended that one. Of a
//           block's columns each rank has a piece, so that block b waits for blocks b alone
#include "shared/contract.cuh"

KERNEL(sum_peers_two, sum_peers)
DIM(ROWS, 16)
#include "ranks/sum_contract.cuh"
REQUIRE(T_BYTES == 4 || K % 8 == 0)
PREFER(ROWS * K * T_BYTES > 32768)
REQUIRE(WORDS % 128 == 0 && ROWS * K * T_BYTES <= (WORDS - 263168) * 2)
FORMULA(n_blocks(), min(64, ceil_div(ROWS * K, 4096)))
GRID(n_blocks(), 1, 1)
READS(ROWS * K * T_BYTES * (3 + RESIDUAL))
WRITES(ROWS * K * T_BYTES * 3)

#include "ranks/sum_rest.cuh"

constexpr int SLOT_WORDS = (WORDS - PEER_SLOTS) / 2;

extern "C" __global__ void __launch_bounds__(512) sum_peers_two(const Args a)
{
	using U = Unit<T, PER>;
	let_next_start();
	inputs_ready();
	const int block = blockIdx.x, blocks = n_blocks(), thread = threadIdx.x;
	const Peers parts = peers_begin(a.peers, blocks, 3); // of parts, of results, and one that none has
	const Peers sums = { parts.own, parts.n, parts.rank, parts.epoch + 1 };
	const int n = parts.n, rank = parts.rank;
	const i64 units = i64(min(a.step[0], ROWS)) * K / PER;
	const i64 from = units * block / blocks, to = units * (block + 1) / blocks; // the block's
	const i64 own_from = from + (to - from) * rank / n, own_to = from + (to - from) * (rank + 1) / n; // this rank's
	if (n > 1) {
		T *shown = reinterpret_cast<T *>(parts.slot(rank, SLOT_WORDS));
		for (i64 u = from + thread; u < to; u += 512)
			U::store(shown + u * PER, U::load(a.part + u * PER));
		peers_meet(parts, block);
	}
	for (i64 u = own_from + thread; u < own_to; u += 512) {
		float sum[PER], v[PER];
		decltype(U::load(a.part)) raw[PEER_MOST];
#pragma unroll
		for (int r = 0; r < PEER_MOST; r++)
			if (r < n)
				raw[r] = n > 1 ? U::load_peer(reinterpret_cast<const T *>(parts.slot(r, SLOT_WORDS)) + u * PER)
					: U::load(a.part + u * PER);
		U::unpack(raw[0], sum);
#pragma unroll
		for (int r = 1; r < PEER_MOST; r++)
			if (r < n) {
				U::unpack(raw[r], v);
#pragma unroll
				for (int i = 0; i < PER; i++)
					sum[i] += v[i];
			}
		add_rest<U>(a, u, sum);
		const auto z = U::pack(sum);
		U::store(a.z + u * PER, z);
#pragma unroll
		for (int r = 0; r < PEER_MOST; r++)
			if (r < n && r != rank)
				U::store(reinterpret_cast<T *>(sums.slot(r, SLOT_WORDS)) + u * PER, z);
	}
	if (n == 1)
		return;
	peers_meet(sums, block);
	const T *sent = reinterpret_cast<const T *>(sums.slot(rank, SLOT_WORDS));
	for (i64 u = from + thread; u < to; u += 512)
		if (u < own_from || u >= own_to)
			U::store(a.z + u * PER, U::load_peer(sent + u * PER));
}
