// what      o[t,h,:] = softmax_p(SCALE q[t,h,:].k[p,:]) v[p,:] over positions p <= row_pos[t] of the row's slot, with
//           WINDOW the last WINDOW of these, with CHUNKED those of its chunk, for the rows of the step's segments;
//           other rows stay as they are. SINKS: e^sinks[h] is one term more of the softmax's sum
// numerics  scores and sums in f32, probabilities rounded to bf16 for the second product, as the tensor cores take
//           them; one rounding at the end. Same bits every run; a row's bits depend on its history and KEYS: runs of
//           keys start at multiples of KEYS, and a run of which a row sees nothing leaves that row's state as it was
// measured  H100 SXM, causal work alone counted, pages of 64: 8192 rows from position 0, head dim 128 614 TFLOP/s
//           (attn_prefill 280), 64 502, 96 466, 256 640; head dim 128: 2048 rows 507, the last 2048 of 8192 580, 512
//           rows 15 us; pages of 16 cost an eighth at 8192 rows. No spills
// bytes     READS has every tile read half of a full context, FLOPS every row see all of it
// tiles     64 * GROUPS (row, head) pairs of one kv head, as in attn_prefill. Tiles of all segments and kv heads are
//           numbered, late ones (which see more keys) first; a block takes them in a snake, so that all end together
//           A block goes from tile to tile without a pause: the first scores of one are under way with the last values
//           of the one before
// roles     the first warpgroup has few registers and fetches: warp 0 keys and values, through the copy engine, a box
//           for each page and 64 columns; warps 1 to GROUPS the q of one warpgroup each. The others compute, 64 pairs
//           each. Runs of keys go from the last, the only ones that need a mask, to the first
// teams     few rows are few tiles: then the runs of one go to TEAM blocks of a cluster, which merge what they have
//           (attend_team.cuh). 64 rows behind 8192 positions take 32 us with four blocks a tile, 97 with one; 128 rows
//           behind 4096, which fill the card with clusters, 38 and 52. More tiles gain nothing
// why       while a warpgroup has its softmax to compute, the tensor cores are another's: they take turns in issuing
//           products. Within one, the scores of a run are under way together with the values of the run before.
//           A third stage of keys and values brought nothing, nor did leaving out the factor of a maximum that stayed
#include "shared/contract.cuh"
#include "shared/hopper.cuh"

KERNEL(attn_wgmma, attention)
#define KV_CODES 0
#include "attention/attend_flow_contract.cuh"
REQUIRE(PAGE % 8 == 0 && (PAGE % KEYS == 0 || KEYS % PAGE == 0))
REQUIRE(GROUPS == 2 || HDIM == 64)
ORDER(attend_down, KEYS, TEAM)
SMEM(flow_bytes())
RATE((HDIM == 64 ? (GROUPS == 3 ? 52 : 44) : HDIM == 96 ? 48 : 62) * (KEYS == 128 || HDIM == 256 ? 100 : 84) / 100)

__device__ __forceinline__ float k_factor(const Args &, int) { return 1.0f; }
__device__ __forceinline__ float v_factor(const Args &, int) { return 1.0f; }
#include "attention/attend_flow.cuh"
static_assert(1024 + barriers_at + 192 <= dynamic_smem(), "SMEM is what Shared lays out, from a multiple of 1024 on");

// Keys (half 0) or values (half 1) of positions p0..p0+KEYS-1, whole boxes up to the tile's end, one a lane, once the
// barrier `empty` lets them in.
static_assert(boxes * chunks <= 32, "one box a lane");
__device__ __forceinline__ void fetch(const Args &a, const Tile &t, int half, int p0, u32 to, u32 empty, u32 parity_,
	u32 full)
{
	const int lane = threadIdx.x % 32, i = lane / chunks, c = lane % chunks, p = p0 + i * box;
	const bool mine = i < boxes && p < t.end;
	const int page = mine ? a.page_table[i64(t.slot) * MAX_PAGES + p / PAGE] : 0;
	barrier_wait(empty, parity_);
	if (lane == 0)
		barrier_expect(full, min(boxes, ceil_div(t.end - p0, box)) * chunks * box * 128);
	__syncwarp();
	if (mine)
		copy_box(to + c * (KEYS * 128) + i * (box * 128), a.kv_map,
			((page * 2 + half) * NKV + t.head) * PAGE + p % PAGE, c * 64, full);
}

// Zeros for values of positions that no row sees: a probability of 0 does not silence a NaN.
__device__ __forceinline__ void zero_values(u32 tile, int from)
{
	const int lane = threadIdx.x % 32;
	for (int c = 0; c < chunks; c++)
		for (int i = from * 8 + lane; i < KEYS * 8; i += 32)
			store_shared(tile + c * (KEYS * 128) + i * 16, uint4 {});
	fence_for_async();
	__syncwarp();
}

__device__ __forceinline__ void fetch_keys_values(const Args &a, const Shared &shared)
{
	const int lane = threadIdx.x % 32;
	int use = 0, raw = 0;
	auto keys = [&](const Tile &t, int i) {
		const int now = use + i;
		fetch(a, t, 0, run_start(t, i), shared.k(now), shared.k_empty(now), parity(now) ^ 1,
			shared.k_full(now));
	};
	auto values = [&](const Tile &t, int i) {
		const int now = use + i, p0 = run_start(t, i), there = t.end - p0;
		const u32 full = there < KEYS ? shared.v_raw() : shared.v_full(now);
		fetch(a, t, 1, p0, shared.v(now), shared.v_empty(now), parity(now) ^ 1, full);
		if (there < KEYS) {
			barrier_wait(full, raw++ % 2);
			zero_values(shared.v(now), there);
			if (lane == 0)
				barrier_arrive(shared.v_full(now));
		}
	};
	Walk walk = start_walk(a);
	for (Tile t; next_tile(a, walk, t); use += t.steps) {
		for (int i = 0; i < t.steps; i++) {
			keys(t, i);
			if (i)
				values(t, i - 1);
		}
		if (TEAM == 1 || t.steps)
			values(t, t.steps - 1);
	}
}

extern "C" __global__ void TOGETHER __launch_bounds__(128 + 128 * GROUPS, 1)
attn_wgmma(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(tiles);
	const Shared shared = { (shared_address(tiles) + 1023) / 1024 * 1024 };
	const int warp = __shfl_sync(~0u, int(threadIdx.x / 32), 0);
	if (threadIdx.x == 0) {
		prefetch_map(a.kv_map);
		for (int i = 0; i < stages; i++) {
			barrier_init(shared.k_full(i), 1);
			barrier_init(shared.k_empty(i), 4 * GROUPS);
			barrier_init(shared.v_full(i), 1);
			barrier_init(shared.v_empty(i), 4 * GROUPS);
		}
		barrier_init(shared.v_raw(), 1);
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
		registers_down<fetch_registers>();
		if (warp == 0)
			fetch_keys_values(a, shared);
		else if (warp <= GROUPS)
			fetch_queries(a, shared, warp - 1);
	} else {
		registers_up<compute_registers>();
		compute(a, shared, warp / 4 - 1);
	}
}
