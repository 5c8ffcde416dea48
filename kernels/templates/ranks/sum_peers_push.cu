// what      as sum_peers, of parts of at most 32 KiB
// numerics  as sum_peers: the same bits
// measured  not yet
// why       each 8 bytes go to the other ranks with the epoch next to each half, in one store of 16: what arrives says
//           itself that it is there, so there is no flag, no fence, and nothing is read across cards. Twice the bytes,
//           a third of the ways. Slots are taken in turns as those of sum_peers, and the same argument holds: a rank
//           sends for the next collective when it has read all of this one
#include "shared/contract.cuh"

KERNEL(sum_peers_push, sum_peers)
DIM(ROWS, 1)
#include "ranks/sum_contract.cuh"
REQUIRE(K * T_BYTES % 8 == 0)
REQUIRE(ROWS * K * T_BYTES <= 32768 && WORDS >= 263168)
FORMULA(n_blocks(), ceil_div(ROWS * K * T_BYTES, 4096))
GRID(n_blocks(), 1, 1)
READS(ROWS * K * T_BYTES * (3 + RESIDUAL))
WRITES(ROWS * K * T_BYTES * 3)

constexpr int PER = 8 / T_BYTES; // elements of a thread

__device__ __forceinline__ void unpack8(uint2 raw, float (&v)[PER])
{
	if constexpr (PER == 4) {
		v[0] = low_bf16(raw.x);
		v[1] = high_bf16(raw.x);
		v[2] = low_bf16(raw.y);
		v[3] = high_bf16(raw.y);
	} else {
		v[0] = __uint_as_float(raw.x);
		v[1] = __uint_as_float(raw.y);
	}
}

extern "C" __global__ void __launch_bounds__(512) sum_peers_push(const Args a)
{
	let_next_start();
	inputs_ready();
	const Peers p = peers_begin(a.peers, n_blocks());
	const int u = blockIdx.x * 512 + threadIdx.x, units = min(a.step[0], ROWS) * (K / PER);
	if (u >= max(units, 1)) // of no rows one piece goes round all the same, so that ranks meet
		return;
	const uint2 own = *reinterpret_cast<const uint2 *>(a.part + i64(u) * PER);
	const i32 *abort = *reinterpret_cast<const i32 *const *>(p.own + PEER_ABORT);
	for (int r = 0; r < p.n; r++)
		if (r != p.rank)
			store16_sys(p.pushed(r, p.rank) + u * 4, make_uint4(own.x, p.epoch, own.y, p.epoch));
	float sum[PER] = {}, v[PER];
	for (int r = 0; r < p.n; r++) {
		uint2 raw = own;
		if (r != p.rank && p.n > 1) {
			uint4 seen = load16_sys(p.pushed(p.rank, r) + u * 4);
			for (int turn = 1; seen.y != p.epoch || seen.w != p.epoch; turn++) {
				if (turn % 64 == 0 && load_relaxed_sys(abort)) {
					p.own[PEER_FAULT] = 1;
					break;
				}
				seen = load16_sys(p.pushed(p.rank, r) + u * 4);
			}
			raw = make_uint2(seen.x, seen.z);
		}
		unpack8(raw, v);
#pragma unroll
		for (int i = 0; i < PER; i++)
			sum[i] = r ? sum[i] + v[i] : v[i];
	}
	if (u >= units)
		return;
#pragma unroll
	for (int i = 0; i < PER && BIAS; i++)
		sum[i] += to_f32(a.bias[(i64(u) * PER + i) % K]);
	if (RESIDUAL) {
		unpack8(*reinterpret_cast<const uint2 *>(a.residual + i64(u) * PER), v);
#pragma unroll
		for (int i = 0; i < PER; i++)
			sum[i] += v[i];
	}
	uint2 z;
	if constexpr (PER == 4)
		z = make_uint2(pack_bf16(sum[0], sum[1]), pack_bf16(sum[2], sum[3]));
	else
		z = make_uint2(__float_as_uint(sum[0]), __float_as_uint(sum[1]));
	*reinterpret_cast<uint2 *>(a.z + i64(u) * PER) = z;
}
