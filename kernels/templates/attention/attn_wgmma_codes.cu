// what      attention of prefill as in attn_wgmma, from a cache of e4m3 or e2m1 codes (artifacts/ops.h)
// numerics  codes become bf16 exactly; the scale of a head multiplies its scores in f32, that of the values the result.
//           Else as attn_wgmma, whose tiles, turns and teams these are (attend_flow.cuh)
// measured  H100 SXM: right in all trials of both formats; not timed yet, RATE is an estimate. 168 registers, no spills
// why       the tensor cores read tiles of bf16, so somebody has to make them: all four warps of the first warpgroup,
//           a quarter of the rows each. Codes come by cp.async, one tile ahead, into a place that the lane which
//           fetched them reads alone; the warps that have a q to fetch do it where its tile begins
#include "shared/hopper.cuh"
#include "attention/kv.cuh"

KERNEL(attn_wgmma_codes, attention)
#define KV_CODES 1
#include "attention/attend_flow_contract.cuh"
ORDER(attend_codes_down, KEYS, TEAM)
SMEM(flow_bytes() + 2 * KEYS * raw_key_bytes())
RATE(HDIM == 64 ? 26 : 34)

__device__ __forceinline__ float k_factor(const Args &a, int head) { return kv_factor<KVT>(a.kv_scale, head); }
__device__ __forceinline__ float v_factor(const Args &a, int head) { return kv_factor<KVT>(a.kv_scale, NKV + head); }
#include "attention/attend_flow.cuh"

constexpr int fetch_most = HDIM > 128 ? 56 : 72, compute_most = HDIM > 128 ? 224 : 216; // registers

// What a warp fetches of a tile of keys or values: some rows, run by run; behind the codes, of e2m1, the four bytes of
// memory that each run's scale is among. Two such places a warp.
constexpr int rows_each = KEYS / 4, a_row = HDIM / NVFP4_GROUP, runs_each = rows_each * a_row;
constexpr int run_bytes = kv_bytes<KVT>(NVFP4_GROUP), blocks_at = runs_each * run_bytes;
constexpr int raw_each = blocks_at + (bits_of<KVT> == 4 ? runs_each * 4 : 0);
static_assert(1024 + barriers_at + 192 + 8 * raw_each <= dynamic_smem(), "SMEM is what Shared and raw_place lay out");
__device__ __forceinline__ u32 raw_place(const Shared &shared, int i)
{
	return shared.base + barriers_at + 192 + (i * 4 + int(threadIdx.x) / 32) * raw_each;
}

// A tile of keys (half 0) or values (half 1), the use-th of all; is_first: of its tile of pairs
struct Item { int slot, head, end, half, p0, use; bool is_first; };

// All of a block, in the order in which they are needed: K0 K1 V0 K2 V1 ... V(last)
struct Items {
	Walk walk;
	Tile t;
	int at, use, tile; // of the 2 t.steps of t; uses before t; tiles before t

	__device__ __forceinline__ bool next(const Args &a, Item &x)
	{
		while (at == 2 * t.steps) {
			use += t.steps;
			if (!next_tile(a, walk, t))
				return false;
			tile++;
			at = 0;
		}
		const bool is_last = at == 2 * t.steps - 1;
		const int half = at > 0 && (at % 2 == 0 || is_last);
		const int i = !half ? (at + 1) / 2 : is_last ? t.steps - 1 : at / 2 - 1;
		x = { t.slot, t.head, t.end, half, run_start(t, i), use + i, at == 0 };
		at++;
		return true;
	}
};

__device__ __forceinline__ void fetch_raw(const Args &a, const Item &x, u32 raw)
{
	const int lane = threadIdx.x % 32, first = x.p0 + int(threadIdx.x) / 32 * rows_each;
	const i32 *table = a.page_table + i64(x.slot) * MAX_PAGES;
#pragma unroll 2
	for (int i = lane; i < runs_each; i += 32) {
		const int p = first + i / a_row;
		const bool inside = p < x.end;
		const i64 page = inside ? table[p / PAGE] : 0;
		const i64 run = inside ? (((page * 2 + x.half) * NKV + x.head) * PAGE + p % PAGE) * a_row + i % a_row : 0;
		copy_run_async(raw + i * run_bytes, kv_at(a.kv, run * NVFP4_GROUP), inside);
		if constexpr (bits_of<KVT> == 4)
			copy_few_async<4>(raw + blocks_at + i * 4, a.kv_block + run / 4 * 4, inside);
	}
}

// Positions that no row sees are codes of zero here: a probability of 0 does not silence a NaN.
__device__ __forceinline__ void decode(const Shared &shared, const Item &x, u32 raw)
{
	const int lane = threadIdx.x % 32, row0 = int(threadIdx.x) / 32 * rows_each;
	const u32 tile = x.half ? shared.v(x.use) : shared.k(x.use);
	barrier_wait(x.half ? shared.v_empty(x.use) : shared.k_empty(x.use), parity(x.use) ^ 1);
#pragma unroll 1
	for (int i = lane; i < runs_each; i += 32) {
		const int row = row0 + i / a_row, piece = i % a_row * 2;
		uint4 y[2];
		u32 block = 0;
		if constexpr (bits_of<KVT> == 4)
			block = byte_of_word(raw + blocks_at + i * 4, (x.p0 + row) % 4 * a_row + i % a_row);
		decode_run<KVT>(raw + i * run_bytes, block, y);
#pragma unroll
		for (int k = 0; k < 2; k++)
			store_shared(tile + piece / 8 * (KEYS * 128) + row * 128 + ((piece + k) % 8 ^ row % 8) * 16, y[k]);
	}
	fence_for_async();
	__syncwarp();
	if (lane == 0)
		barrier_arrive(x.half ? shared.v_full(x.use) : shared.k_full(x.use));
}

// warp level: every warp of the first warpgroup
__device__ __forceinline__ void fetch(const Args &a, const Shared &shared, int warp)
{
	Items items = { start_walk(a), {}, 0, 0, -1 };
	Item now, after;
	bool has = items.next(a, now);
	int place = 0;
	if (has)
		fetch_raw(a, now, raw_place(shared, place));
	copy_commit();
	while (has) {
		const bool more = items.next(a, after);
		if (more)
			fetch_raw(a, after, raw_place(shared, 1 - place));
		copy_commit();
		if (now.is_first && warp > 0 && warp <= GROUPS) // a tile has two items or more: `items` is still at this one
			fetch_tile_queries(a, shared, items.t, warp - 1, items.tile, int(threadIdx.x) % 32);
		copy_wait<1>();
		decode(shared, now, raw_place(shared, place));
		now = after;
		has = more;
		place = 1 - place;
	}
}

extern "C" __global__ void TOGETHER __launch_bounds__(128 + 128 * GROUPS, 1)
attn_wgmma_codes(const Args a)
{
	DYNAMIC_SMEM(tiles);
	const Shared shared = { (shared_address(tiles) + 1023) / 1024 * 1024 };
	const int warp = __shfl_sync(~0u, int(threadIdx.x / 32), 0);
	if (threadIdx.x == 0) {
		for (int i = 0; i < stages; i++) {
			barrier_init(shared.k_full(i), 4);
			barrier_init(shared.k_empty(i), 4 * GROUPS);
			barrier_init(shared.v_full(i), 4);
			barrier_init(shared.v_empty(i), 4 * GROUPS);
		}
		for (int i = 0; i < GROUPS; i++) {
			for (int stage = 0; stage < q_stages; stage++) {
				barrier_init(shared.q_full(i, stage), 1);
				barrier_init(shared.q_empty(i, stage), 4);
			}
		}
		barrier_init_done();
	}
	let_next_start();
	inputs_ready();
	__syncthreads();
	if (warp < 4) {
		registers_down<fetch_most>();
		fetch(a, shared, warp);
	} else {
		registers_up<compute_most>();
		compute(a, shared, warp / 4 - 1);
	}
}
