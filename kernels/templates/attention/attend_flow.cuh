// attend_flow.cuh - what the wgmma kernels of prefill attention share: the tiles and who has them, the q of a tile, and
// all that the computing warpgroups do. How keys and values get into shared memory is each kernel's own.
//
// It is included behind struct Args and two functions of the kernel: k_factor(a, head) and v_factor(a, head), by which
// scores and results are multiplied. The head of attn_wgmma.cu says how it all works together.
#pragma once
#include "attention/attend_team.cuh"

static_assert(NH % NKV == 0, "each kv head serves the same number of query heads");

constexpr int per_kv = NH / NKV, tile_pairs = 64 * GROUPS, chunks = (HDIM + 63) / 64;
constexpr int stages = 2, q_stages = HDIM > 128 ? 1 : 2;
constexpr int box = PAGE < KEYS ? PAGE : KEYS, boxes = KEYS / box;
constexpr int fetch_registers = GROUPS == 2 ? 40 : 32, compute_registers = GROUPS == 2 ? 232 : 160;

// Shared memory: q [q_stages, GROUPS] of 64 pairs, k [stages], v [stages], barriers; tiles in the 128-byte swizzle,
// chunks of 64 columns one behind the other.
constexpr int q_bytes = chunks * 64 * 128, half_bytes = chunks * KEYS * 128;
constexpr int k_at = q_stages * GROUPS * q_bytes, v_at = k_at + stages * half_bytes;
constexpr int barriers_at = v_at + stages * half_bytes;
constexpr int q_barriers = 4 * stages + 1;
struct Shared {
	u32 base;
	__device__ u32 q(int group, int use) const { return base + (use % q_stages * GROUPS + group) * q_bytes; }
	__device__ u32 k(int use) const { return base + k_at + use % stages * half_bytes; }
	__device__ u32 v(int use) const { return base + v_at + use % stages * half_bytes; }
	__device__ u32 barrier(int i) const { return base + barriers_at + i * 8; }
	__device__ u32 k_full(int use) const { return barrier(use % stages); }
	__device__ u32 k_empty(int use) const { return barrier(stages + use % stages); }
	__device__ u32 v_full(int use) const { return barrier(2 * stages + use % stages); }
	__device__ u32 v_empty(int use) const { return barrier(3 * stages + use % stages); }
	__device__ u32 v_raw() const { return barrier(4 * stages); } // values that still need zeros behind them
	__device__ u32 q_full(int group, int use) const { return barrier(q_barriers + use % q_stages * GROUPS + group); }
	__device__ u32 q_empty(int group, int use) const
	{
		return barrier(q_barriers + (q_stages + use % q_stages) * GROUPS + group);
	}
};
static_assert((q_barriers + 2 * q_stages * GROUPS) * 8 <= 192, "the barriers fit");

// the parity of a slot's barrier `full` for that use of a ring of STAGES_ slots
template <int STAGES_ = stages> __device__ __forceinline__ u32 parity(int use) { return use / STAGES_ % 2; }

#if !defined(KERNELGEN) && TEAM > 1
#define TOGETHER __cluster_dims__(TEAM, 1, 1)
#else
#define TOGETHER
#endif

// A tile: `pairs` of the segment whose first row is `first` and stands at position `pos`, from pair0 on. Its runs are
// those from run0 on; of them this block has `steps`; is_shared says that others of the team have some too.
struct Tile { int first, pairs, pair0, head, slot, pos, end, run0, steps; bool is_shared; };
constexpr int REACH = reach_of(WINDOW, CHUNKED);
static_assert(TEAM == 1 || WINDOW == 0, "which block of a team has a run is counted from the start of a history");

__device__ __forceinline__ int team_rank() { return TEAM == 1 ? 0 : int(blockIdx.x) % TEAM; }

// the first position of the i-th of this block's runs, the last first
__device__ __forceinline__ int run_start(const Tile &t, int i)
{
	return (t.run0 + team_run<TEAM>(t.steps - 1 - i, team_rank())) * KEYS;
}

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
	do {
		const int blocks = int(gridDim.x) / TEAM, block = int(blockIdx.x) / TEAM;
		const int place = walk.round % 2 ? blocks - 1 - block : block;
		const int index = walk.round++ * blocks + place;
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
		const int runs = ceil_div(t.end, KEYS);
		t.run0 = WINDOW > 0 ? max(first_seen<REACH>(t.pos + t.pair0 / per_kv), 0) / KEYS : 0; // its first row's
		t.steps = team_runs<TEAM>(runs - t.run0, team_rank());
		t.is_shared = TEAM > 1 && runs > team_turn;
	} while (t.slot < 0); // idle rows
	return true;
}

// Fetching (warp level) -----------------------------------------------------------------------------------------

// q of one warpgroup's 64 pairs: pair i of a segment is row i / per_kv, head t.head * per_kv + i % per_kv; use: how
// many tiles were before
__device__ __forceinline__ void fetch_tile_queries(const Args &a, const Shared &shared, const Tile &t, int group,
	int use, int lane)
{
	barrier_wait(shared.q_empty(group, use), parity<q_stages>(use) ^ 1);
	constexpr int pieces = HDIM / 8;
#pragma unroll 4
	for (int i = lane; i < 64 * pieces; i += 32) {
		const int r = i / pieces, piece = i % pieces, pair = t.pair0 + group * 64 + r;
		const bool inside = pair < t.pairs;
		const i64 row = t.first + (inside ? pair / per_kv : 0);
		const int head = t.head * per_kv + (inside ? pair % per_kv : 0);
		copy_async(shared.q(group, use) + piece / 8 * (64 * 128) + r * 128 + (piece % 8 ^ r % 8) * 16,
			a.q + (row * NH + head) * HDIM + piece * 8, inside);
	}
	copy_commit();
	copy_wait<0>();
	fence_for_async();
	__syncwarp();
	if (lane == 0)
		barrier_arrive(shared.q_full(group, use));
}

__device__ __forceinline__ void fetch_queries(const Args &a, const Shared &shared, int group)
{
	const int lane = threadIdx.x % 32;
	int use = 0;
	Walk walk = start_walk(a);
	for (Tile t; next_tile(a, walk, t); use++) {
		if (TEAM > 1 && !t.steps)
			continue;
		fetch_tile_queries(a, shared, t, group, use, lane);
	}
}

// Computing (warpgroup level) -----------------------------------------------------------------------------------

template <bool B_> struct Known { static constexpr bool value = B_; };

// What this thread's two rows and its warpgroup see: positions from all_from (where there is a window) to below all_see
// are seen by every row. Rows past the segment are computed like others, on zeros, and stored nowhere.
struct View { int pair, last[2], all_from, all_see; };

__device__ __forceinline__ View view_of(const Tile &t, int group)
{
	const int first = t.pair0 + group * 64, pair = first + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
	auto position = [&](int at) { return at < t.pairs ? t.pos + at / per_kv : 1 << 30; };
	return { pair, { position(pair), position(pair + 8) }, first_seen<REACH>(position(min(first + 63, t.pairs - 1))),
		position(first) + 1 };
}

// A pair's sum of weights, relative to its maximum, with its sink.
__device__ __forceinline__ float all_weights(const Args &a, const Tile &t, int pair, float m, float l)
{
	if constexpr (SINKS)
		return add_sink(l, m, a.sinks, t.head * per_kv + pair % per_kv);
	return l;
}

// top: the largest of a row's scores. It and `sum` are of the tile's own, which others may follow already
__device__ __forceinline__ void store_rows(const Args &a, const Tile &t, int pair, const float (&top)[2],
	const float (&sum)[2], const float (&o)[HDIM / 8][4])
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const float l = all_weights(a, t, pair + 8 * i, top[i], row_sum(sum[i]));
		const float scale = l > 0.0f ? v_factor(a, t.head) / l : 0.0f;
		const int at = pair + 8 * i;
		if (at >= t.pairs)
			continue;
		bf16 *to = a.o + (i64(t.first + at / per_kv) * NH + t.head * per_kv + at % per_kv) * HDIM + threadIdx.x % 4 * 2;
#pragma unroll
		for (int d = 0; d < HDIM / 8; d++)
			*reinterpret_cast<u32 *>(to + d * 8) = pack_bf16(o[d][2 * i] * scale, o[d][2 * i + 1] * scale);
	}
}

static_assert(TEAM == 1 || team_share_bytes(tile_pairs, HDIM) <= barriers_at, "a share fits where the tiles were");

__device__ __forceinline__ void store_merged(const Args &a, const Shared &shared, const Tile &t, int group,
	WideAttention<KEYS, HDIM> &state)
{
	named_wait(1 + GROUPS, GROUPS * 128); // nobody needs the tiles any more
	team_merge<TEAM, GROUPS>(state, shared.base, group, team_rank(), t.pairs - t.pair0,
		[&](int row, float m, float l) { return all_weights(a, t, t.pair0 + row, m, l); },
		[&](int row, int column, float4 v) {
			const int at = t.pair0 + row;
			bf16 *to = a.o + (i64(t.first + at / per_kv) * NH + t.head * per_kv + at % per_kv) * HDIM + column;
			const float scale = v_factor(a, t.head);
			*reinterpret_cast<uint2 *>(to) =
				make_uint2(pack_bf16(v.x * scale, v.y * scale), pack_bf16(v.z * scale, v.w * scale));
		});
}

__device__ __forceinline__ void compute(const Args &a, const Shared &shared, int group)
{
	constexpr float log2_e = 1.4426950408889634f;
	auto release = [&](u32 barrier) {
		if (threadIdx.x % 32 == 0)
			barrier_arrive(barrier);
	};
	WideAttention<KEYS, HDIM> state = {};
	Walk walk = start_walk(a);
	Tile t, over; // the tile, and the one before
	int use = 0, q_use = 0; // of the tile's first run, of its q
	if (!next_tile(a, walk, t))
		return;
	View view = view_of(t, group);
	float scale_log2 = float(SCALE) * log2_e * k_factor(a, t.head);
	wide_forget(state);
	wide_clear(state);
	if (TEAM > 1 && !t.steps) {
		if (t.is_shared)
			store_merged(a, shared, t, group, state);
		return;
	}

	// the first tile's first run
	if (group == GROUPS - 1)
		named_arrive(1, 256); // the first warpgroup begins
	barrier_wait(shared.q_full(group, q_use), parity<q_stages>(q_use));
	barrier_wait(shared.k_full(use), parity(use));
	wgmma_begin();
	wide_scores(state, shared.q(group, q_use), shared.k(use));
	wgmma_wait<0>();
	hold(state.s);
	release(shared.k_empty(use));
	wide_mask<REACH>(state, run_start(t, 0), view.last);
	wide_softmax(state, scale_log2);
	wide_round(state);
	barrier_wait(shared.v_full(use), parity(use));

	// Every other run: its scores together with the values of the run before, which may be a tile's last. Values are
	// waited for where the softmax ends, so that the compiler does not move the softmax behind the products.
	auto turn = [&](int i, auto masked, auto finish) {
		const int now = use + i, before = now - 1;
		barrier_wait(shared.k_full(now), parity(now));
		named_wait(1 + group, 256);
		wgmma_begin();
		wide_scores(state, shared.q(group, q_use), shared.k(now));
		wide_values(state, shared.v(before));
		named_arrive(1 + (group + 1) % GROUPS, 256);
		wgmma_wait<1>();
		hold(state.s);
		release(shared.k_empty(now));
		if constexpr (decltype(masked)::value)
			wide_mask<REACH>(state, run_start(t, i), view.last);
		wide_softmax(state, scale_log2);
		hold(state.s);
		barrier_wait(shared.v_full(now), parity(now));
		wgmma_wait<0>();
		hold(state.o);
		hold(state.p);
		release(shared.v_empty(before));
		finish();
		wide_round(state);
	};
	auto shrink = [&] { wide_shrink(state); };
	for (;;) {
		int i = 1;
		for (; i < t.steps && run_start(t, i) + KEYS > view.all_see; i++)
			turn(i, Known<true> {}, shrink);
		for (; i < t.steps && (WINDOW == 0 || run_start(t, i) >= view.all_from); i++)
			turn(i, Known<false> {}, shrink);
		if constexpr (WINDOW > 0)
			for (; i < t.steps; i++)
				turn(i, Known<true> {}, shrink);
		release(shared.q_empty(group, q_use));
		use += t.steps;
		q_use++;

		over = t;
		const int pair = view.pair;
		if (!next_tile(a, walk, t))
			break;
		const float top[2] = { state.m[0], state.m[1] }, sum[2] = { state.l[0], state.l[1] };
		wide_forget(state);
		view = view_of(t, group);
		scale_log2 = float(SCALE) * log2_e * k_factor(a, t.head);
		barrier_wait(shared.q_full(group, q_use), parity<q_stages>(q_use));
		turn(0, Known<true> {}, [&] {
			store_rows(a, over, pair, top, sum, state.o);
			wide_clear(state);
		});
	}
	wgmma_begin();
	wide_values(state, shared.v(use - 1));
	wgmma_wait<0>();
	hold(state.o);
	hold(state.p);
	if (TEAM > 1 && over.is_shared)
		store_merged(a, shared, over, group, state);
	else
		store_rows(a, over, view.pair, state.m, state.l, state.o);
	if (group == 0)
		named_wait(1, 256); // of the last warpgroup's last turn
}

