// what      o[t,h,:] = softmax_p(SCALE q[t,h,:].k[p,:]) v[p,:] over positions p <= row_pos[t] of the row's slot, for
//           the rows of the step's segments; other rows stay as they are
// numerics  scores and sums in f32, probabilities rounded to bf16 for the second product, as the tensor cores take
//           them; one rounding at the end. Same bits every run; a row's bits depend on its own history alone: runs of
//           keys start at multiples of KEYS, and a run of which a row sees nothing leaves that row's state as it was
// measured  H100 SXM, causal work alone counted, 8192 rows from position 0: head dim 128 593 TFLOP/s (attn_prefill 188),
//           64 475, 96 442, 256 603; the last 2048 rows of 8192, head dim 128: 588. No spills
// bytes     READS has every tile read half of a full context, FLOPS every row see all of it
// tiles     64 * GROUPS (row, head) pairs of one kv head, as in attn_prefill. Tiles of all segments and kv heads are
//           numbered, late ones (which see more keys) first; a block takes them in a snake, so that all end together
// roles     the first warpgroup has few registers and fetches: warp 0 keys and values, through the copy engine, a box
//           for each page and 64 columns; warps 1 to GROUPS the q of one warpgroup each. The others compute, 64 pairs
//           each. Runs of keys go from the last, the only ones that need a mask, to the first
// why       while a warpgroup has its softmax to compute, the tensor cores are another's: they take turns in issuing
//           products. Within one, the scores of a run are under way together with the values of the run before.
//           132 is the number of multiprocessors of the only target
#include "contract.cuh"
#include "attend_wgmma.cuh"

KERNEL(attn_wgmma, attention)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
MATRIX(wgmma)
DIM(ROWS, 512)
DIM(SLOTS, 8)
DIM(SEGS, 8)
DIM(MAX_PAGES, 128)
DIM(PAGES, 1024)
ATTR_INT(HDIM, 128)
ATTR_INT(NH, 32)
ATTR_INT(NKV, 8)
ATTR_INT(PAGE, 64)
ATTR_FLOAT(SCALE, 0.125f)
TUNE(KEYS, 128, 64)
TUNE(GROUPS, 2, 3)
REQUIRE(HDIM == 64 || HDIM == 96 || HDIM == 128 || HDIM == 256)
REQUIRE(NH % NKV == 0)
REQUIRE(PAGE % 8 == 0 && (PAGE % KEYS == 0 || KEYS % PAGE == 0))
REQUIRE(HDIM <= 128 || KEYS == 64)
REQUIRE(GROUPS == 2 || HDIM == 64)
GRID(min(132, (ceil_div(ROWS * (NH / NKV), 64 * GROUPS) + SEGS) * NKV), 1, 1)
BLOCK(128 + 128 * GROUPS)
SMEM(1024 + (64 * GROUPS + 4 * KEYS) * ceil_div(HDIM, 64) * 128 + 128)
READS(ROWS * NH * HDIM * 2 + ceil_div(ROWS * (NH / NKV), 64 * GROUPS) * MAX_PAGES * PAGE * NKV * HDIM * 2)
WRITES(ROWS * NH * HDIM * 2)
FLOPS(4 * ROWS * NH * HDIM * (MAX_PAGES * PAGE))
struct Args {
	IN(i32, step, "4");
	IN(bf16, q, "ROWS, NH * HDIM");
	IN(bf16, kv, "PAGES, 2, NKV, PAGE, HDIM");
	TENSOR_MAP(kv, kv_map, min(PAGE, KEYS), 64);
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(i32, seg, "SEGS, 4");
	IN(i32, page_table, "SLOTS, MAX_PAGES");
	OUT(bf16, o, "ROWS, NH * HDIM");
};

static_assert(NH % NKV == 0, "each kv head serves the same number of query heads");

constexpr int per_kv = NH / NKV, tile_pairs = 64 * GROUPS, chunks = (HDIM + 63) / 64, stages = 2;
constexpr int box = PAGE < KEYS ? PAGE : KEYS, boxes = KEYS / box;
constexpr int fetch_registers = GROUPS == 2 ? 40 : 32, compute_registers = GROUPS == 2 ? 232 : 160;

// Shared memory: q [GROUPS] of 64 pairs, k [stages], v [stages], barriers; tiles in the 128-byte swizzle, chunks of 64
// columns one behind the other.
constexpr int q_bytes = chunks * 64 * 128, kv_bytes = chunks * KEYS * 128;
constexpr int k_at = GROUPS * q_bytes, v_at = k_at + stages * kv_bytes, barriers_at = v_at + stages * kv_bytes;
struct Shared {
	u32 base;
	__device__ u32 q(int group) const { return base + group * q_bytes; }
	__device__ u32 k(int use) const { return base + k_at + use % stages * kv_bytes; }
	__device__ u32 v(int use) const { return base + v_at + use % stages * kv_bytes; }
	__device__ u32 barrier(int i) const { return base + barriers_at + i * 8; }
	__device__ u32 k_full(int use) const { return barrier(use % stages); }
	__device__ u32 k_empty(int use) const { return barrier(stages + use % stages); }
	__device__ u32 v_full(int use) const { return barrier(2 * stages + use % stages); }
	__device__ u32 v_empty(int use) const { return barrier(3 * stages + use % stages); }
	__device__ u32 v_raw() const { return barrier(4 * stages); } // values that still need zeros behind them
	__device__ u32 q_full(int group) const { return barrier(4 * stages + 1 + group); }
	__device__ u32 q_empty(int group) const { return barrier(4 * stages + 1 + GROUPS + group); }
};
static_assert((4 * stages + 1 + 2 * GROUPS) * 8 <= 128, "the barriers fit");

__device__ __forceinline__ u32 round_of(int use) { return use / stages % 2; }

// A tile: `pairs` of the segment whose first row is `first` and stands at position `pos`, from pair0 on.
struct Tile { int first, pairs, pair0, head, slot, pos, end, steps; };

// The tiles of this block, one after another; every role walks them alike.
struct Walk { int tiles, round; }; // of one kv head; how many this block has had

__device__ __forceinline__ Walk start_walk(const Args &a)
{
	Walk walk = {};
	const int n = min(a.step[2], SEGS);
	for (int s = 0; s < n; s++)
		walk.tiles += ceil_div(a.seg[s * 4 + 1] * per_kv, tile_pairs);
	return walk;
}

__device__ __forceinline__ bool next_tile(const Args &a, Walk &walk, Tile &t)
{
	const int place = walk.round % 2 ? int(gridDim.x) - 1 - int(blockIdx.x) : int(blockIdx.x);
	const int index = walk.round++ * int(gridDim.x) + place;
	if (index >= walk.tiles * NKV)
		return false;
	int tile = walk.tiles - 1 - index / NKV;
	t.head = index % NKV;
	for (int s = 0;; s++) {
		t.first = a.seg[s * 4];
		t.pairs = a.seg[s * 4 + 1] * per_kv;
		const int here = ceil_div(t.pairs, tile_pairs);
		if (tile < here)
			break;
		tile -= here;
	}
	t.pair0 = tile * tile_pairs;
	t.slot = a.row_slot[t.first];
	t.pos = a.row_pos[t.first];
	t.end = t.pos + (min(t.pair0 + tile_pairs, t.pairs) - 1) / per_kv + 1;
	t.steps = t.slot < 0 ? 0 : ceil_div(t.end, KEYS);
	return true;
}

// Fetching (warp level) -----------------------------------------------------------------------------------------

// keys (half 0) or values (half 1) of positions p0..p0+KEYS-1, whole boxes up to the tile's end
__device__ __forceinline__ void fetch(const Args &a, const Tile &t, int half, int p0, u32 to, u32 barrier)
{
	const int lane = threadIdx.x % 32, n = min(boxes, ceil_div(t.end - p0, box));
	const i32 *table = a.page_table + i64(t.slot) * MAX_PAGES;
	if (lane == 0)
		barrier_expect(barrier, n * chunks * box * 128);
	__syncwarp();
	for (int i = lane; i < n * chunks; i += 32) {
		const int p = p0 + i / chunks * box, c = i % chunks;
		const int row = ((table[p / PAGE] * 2 + half) * NKV + t.head) * PAGE + p % PAGE;
		copy_box(to + c * (KEYS * 128) + i / chunks * (box * 128), a.kv_map, row, c * 64, barrier);
	}
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
		barrier_wait(shared.k_empty(use + i), round_of(use + i) ^ 1);
		fetch(a, t, 0, (t.steps - 1 - i) * KEYS, shared.k(use + i), shared.k_full(use + i));
	};
	auto values = [&](const Tile &t, int i) {
		const int p0 = (t.steps - 1 - i) * KEYS, there = t.end - p0;
		const u32 to = shared.v(use + i), full = shared.v_full(use + i);
		barrier_wait(shared.v_empty(use + i), round_of(use + i) ^ 1);
		fetch(a, t, 1, p0, to, there < KEYS ? shared.v_raw() : full);
		if (there < KEYS) {
			barrier_wait(shared.v_raw(), raw++ % 2);
			zero_values(to, there);
			if (lane == 0)
				barrier_arrive(full);
		}
	};
	Walk walk = start_walk(a);
	for (Tile t; next_tile(a, walk, t); use += t.steps) {
		for (int i = 0; i < t.steps; i++) {
			keys(t, i);
			if (i)
				values(t, i - 1);
		}
		if (t.steps)
			values(t, t.steps - 1);
	}
}

// q of one warpgroup's 64 pairs: pair i of a segment is row i / per_kv, head t.head * per_kv + i % per_kv
__device__ __forceinline__ void fetch_queries(const Args &a, const Shared &shared, int group)
{
	const int lane = threadIdx.x % 32;
	int use = 0;
	Walk walk = start_walk(a);
	for (Tile t; next_tile(a, walk, t);) {
		if (!t.steps)
			continue;
		barrier_wait(shared.q_empty(group), use++ % 2 ^ 1);
		constexpr int pieces = HDIM / 8;
#pragma unroll 4
		for (int i = lane; i < 64 * pieces; i += 32) {
			const int r = i / pieces, piece = i % pieces, pair = t.pair0 + group * 64 + r;
			const bool inside = pair < t.pairs;
			const i64 row = t.first + (inside ? pair / per_kv : 0);
			const int head = t.head * per_kv + (inside ? pair % per_kv : 0);
			copy_async(shared.q(group) + piece / 8 * (64 * 128) + r * 128 + (piece % 8 ^ r % 8) * 16,
				a.q + (row * NH + head) * HDIM + piece * 8, inside);
		}
		copy_commit();
		copy_wait<0>();
		fence_for_async();
		__syncwarp();
		if (lane == 0)
			barrier_arrive(shared.q_full(group));
	}
}

// Computing (warpgroup level) -----------------------------------------------------------------------------------

template <bool B_> struct Known { static constexpr bool value = B_; };

__device__ __forceinline__ void store_rows(const Args &a, const Tile &t, int pair, WideAttention<KEYS, HDIM> &state)
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float l = state.l[i];
		l += __shfl_xor_sync(~0u, l, 1);
		l += __shfl_xor_sync(~0u, l, 2);
		const float scale = l > 0.0f ? 1.0f / l : 0.0f;
		const int at = pair + 8 * i;
		if (at >= t.pairs)
			continue;
		bf16 *o = a.o + (i64(t.first + at / per_kv) * NH + t.head * per_kv + at % per_kv) * HDIM + threadIdx.x % 4 * 2;
#pragma unroll
		for (int d = 0; d < HDIM / 8; d++)
			*reinterpret_cast<u32 *>(o + d * 8) = pack_bf16(state.o[d][2 * i] * scale, state.o[d][2 * i + 1] * scale);
	}
}

__device__ __forceinline__ void compute(const Args &a, const Shared &shared, int group)
{
	constexpr float scale_log2 = float(SCALE) * 1.4426950408889634f;
	const int lane = threadIdx.x % 32, my_row = threadIdx.x % 128 / 32 * 16 + lane / 4;
	auto release = [&](u32 barrier) {
		if (lane == 0)
			barrier_arrive(barrier);
	};
	WideAttention<KEYS, HDIM> state = {};
	int use = 0, tiles = 0;
	if (group == GROUPS - 1)
		named_arrive(1, 256); // the first warpgroup begins
	Walk walk = start_walk(a);
	for (Tile t; next_tile(a, walk, t); use += t.steps) {
		if (!t.steps)
			continue;
		const int pair = t.pair0 + group * 64 + my_row, unseen = 1 << 30;
		const int last[2] = { pair < t.pairs ? t.pos + pair / per_kv : unseen,
			pair + 8 < t.pairs ? t.pos + (pair + 8) / per_kv : unseen };
		const int first_pair = t.pair0 + group * 64;
		const int all_see = (first_pair < t.pairs ? t.pos + first_pair / per_kv : unseen) + 1; // so many positions

		wide_start(state);
		barrier_wait(shared.q_full(group), tiles++ % 2);
		barrier_wait(shared.k_full(use), round_of(use));
		wgmma_begin();
		wide_scores(state, shared.q(group), shared.k(use));
		wgmma_wait<0>();
		hold(state.s);
		release(shared.k_empty(use));
		wide_mask(state, (t.steps - 1) * KEYS, last);
		wide_softmax(state, scale_log2);
		wide_round(state);
		barrier_wait(shared.v_full(use), round_of(use));

		auto turn = [&](int i, auto masked) { // the i-th run, with the values of the run before
			const int now = use + i, before = now - 1;
			barrier_wait(shared.k_full(now), round_of(now));
			named_wait(1 + group, 256);
			wgmma_begin();
			wide_scores(state, shared.q(group), shared.k(now));
			wide_values(state, shared.v(before));
			named_arrive(1 + (group + 1) % GROUPS, 256);
			wgmma_wait<1>();
			hold(state.s);
			release(shared.k_empty(now));
			if constexpr (decltype(masked)::value)
				wide_mask(state, (t.steps - 1 - i) * KEYS, last);
			wide_softmax(state, scale_log2);
			hold(state.s);
			barrier_wait(shared.v_full(now), round_of(now));
			wgmma_wait<0>();
			hold(state.o);
			hold(state.p);
			release(shared.v_empty(before));
			wide_round(state);
			wide_shrink(state);
		};
		int i = 1;
		for (; i < t.steps && (t.steps - i) * KEYS > all_see; i++)
			turn(i, Known<true> {});
		for (; i < t.steps; i++)
			turn(i, Known<false> {});

		release(shared.q_empty(group));
		const int before = use + t.steps - 1;
		wgmma_begin();
		wide_values(state, shared.v(before));
		wgmma_wait<0>();
		hold(state.o);
		hold(state.p);
		release(shared.v_empty(before));
		store_rows(a, t, pair, state);
	}
	if (group == 0)
		named_wait(1, 256); // of the last warpgroup's last turn
}

extern "C" __global__ void __launch_bounds__(128 + 128 * GROUPS, 1) attn_wgmma(const __grid_constant__ Args a)
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
			barrier_init(shared.q_full(i), 1);
			barrier_init(shared.q_empty(i), 4);
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
