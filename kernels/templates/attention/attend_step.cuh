// attend_step.cuh - what the kernels of a decode row's attention share, attn_step and attn_step_extra: all but their
// contracts. The head of attn_step.cu says how it works.
//
// It is included behind struct Args.
#pragma once
#include "attention/attend_runs.cuh"

constexpr int GROUP = NH / NKV, GROUP_TILES = (GROUP + 15) / 16, HEADS = GROUP < 16 ? GROUP : 16;
constexpr int TABLE = MAX_PAGES <= 4096 ? (MAX_PAGES + 3) / 4 * 4 : 0; // entries of a page table in shared memory
static_assert(16 * STRIDE + Past::fresh_bytes + TABLE * 4 + (CLUSTER > 1 ? CLUSTER * HEADS * SHARE * 4 : 0)
	+ WARPS * RING_BYTES + bytes_of_totals(HEADS) <= dynamic_smem(), "SMEM is what attn_step lays out");

// What a warp prepares: every WARPS-th of the group's q heads and, in the run that holds the new position, k and v.
struct Prepared {
	static constexpr int rounds = (HEADS + 2 + WARPS - 1) / WARPS;
	H::Pairs x[rounds];
	H::Pairs of_row[IS_WHOLE ? rounds : 1]; // weights of norms over all heads, of each of the warp's
	Norms norms;
	float frequency[H::pairs];
};

// Column head of a task in a row of qkv: heads of q, then k, then v.
__device__ __forceinline__ int source_head(int task, int heads, int head0, int kv_head)
{
	return task < heads ? head0 + task : NH + (task - heads) * (FIRST_V - NH) + kv_head;
}

// Where the new k and v go: into shared memory, and, for the block that has them for all others, into the cache.
struct NewLine {
	char *fresh;
	float k_scale, v_scale;
	i64 line; // of k in the cache; v's is NKV * PAGE behind it
	bool is_kept;
};

// warp level: new k (which = 0) or v
__device__ __forceinline__ void keep(const Args &a, const NewLine &to, int which, const H::Pairs &x)
{
	H::store_to(Past::room(to.fresh, which), x);
	Past::keep(to.fresh, which, which ? to.v_scale : to.k_scale, to.is_kept ? a.kv : nullptr, a.kv_block,
		to.line + which * (NKV * PAGE));
}

// thread level: weights of norms over all heads
__device__ __forceinline__ void load_whole(Prepared &w, const Args &a, int heads, int head0, int kv_head)
{
#pragma unroll
	for (int r = 0; r < Prepared::rounds; r++) {
		const int task = threadIdx.x / 32 + r * WARPS;
		if (task < heads)
			H::load(w.of_row[r], a.q_norm + (head0 + task) * HDIM);
		else if (task == heads)
			H::load(w.of_row[r], a.k_norm + kv_head * HDIM);
	}
}

// block level: what rmsnorm over all heads of q, and over those of k, multiplies a row by
__device__ __forceinline__ float2 whole_factors(const bf16 *qkv)
{
	constexpr int of_q = NH * HDIM / 8, pieces = of_q + NKV * HDIM / 8;
	__shared__ float2 sums[WARPS];
	float q = 0.0f, k = 0.0f;
#pragma unroll
	for (int first = 0; first < pieces; first += THREADS) {
		const int i = first + int(threadIdx.x);
		float x[8], ss = 0.0f;
		if (pieces % THREADS && i >= pieces)
			break;
		unpack(load8(qkv + 8 * i), x);
#pragma unroll
		for (int e = 0; e < 8; e++)
			ss = fmaf(x[e], x[e], ss);
		q += i < of_q ? ss : 0.0f;
		k += i < of_q ? 0.0f : ss;
	}
	q = warp_sum(q);
	k = warp_sum(k);
	if (threadIdx.x % 32 == 0)
		sums[threadIdx.x / 32] = make_float2(q, k);
	__syncthreads();
	q = k = 0.0f;
#pragma unroll
	for (int i = 0; i < WARPS; i++) {
		q += sums[i].x;
		k += sums[i].y;
	}
	return make_float2(rsqrtf(q / (NH * HDIM) + float(EPS)), rsqrtf(k / (NKV * HDIM) + float(EPS)));
}

// warp level: a head times its row's factor and weights, rounded as the result of an op of rows is
__device__ __forceinline__ void norm_whole(H::Pairs &x, const H::Pairs &w, float factor)
{
#pragma unroll
	for (int j = 0; j < H::pairs; j++)
#pragma unroll
		for (int e = 0; e < 2; e++)
			x[j][e] = low_bf16(pack_bf16(x[j][e] * factor * ((NORM_ONE ? 1.0f : 0.0f) + w[j][e]), 0.0f));
}

// block level: the row's q into its tile, the new k and v to their places
__device__ __forceinline__ void prepare(const Args &a, Prepared &w, const H::Pairs &turn, float2 factors, int heads,
	bool has_new, bf16 *q_tile, float *up, const NewLine &to)
{
#pragma unroll
	for (int r = 0; r < Prepared::rounds; r++) {
		const int task = threadIdx.x / 32 + r * WARPS;
		if (task >= heads + (has_new ? 2 : 0))
			break;
		if constexpr (IS_WHOLE)
			if (task <= heads)
				norm_whole(w.x[r], w.of_row[r], task < heads ? factors.x : factors.y);
		if constexpr (Q_NORM && !IS_WHOLE)
			if (task < heads)
				H::norm(w.x[r], w.norms.q, NORM_ONE != 0, float(EPS));
		if constexpr (K_NORM && !IS_WHOLE)
			if (task == heads)
				H::norm(w.x[r], w.norms.k, NORM_ONE != 0, float(EPS));
		if (task > heads)
			norm_value(w.x[r], w.norms);
		if (task <= heads)
			H::rope(w.x[r], turn);
		if (task < heads)
			put_q(q_tile + task * (STRIDE / 2), up + task, w.x[r]);
		else
			keep(a, to, task - heads, w.x[r]);
	}
}

// block level: of q's tile, the rows of no head and the columns behind a head
__device__ __forceinline__ void clear_rest(int heads, bf16 *q_tile)
{
	constexpr int pieces = Past::width / 8, behind = Past::width - HDIM;
	for (int i = threadIdx.x; i < (16 - heads) * pieces; i += THREADS)
		store_shared(shared_address(q_tile) + (heads + i / pieces) * STRIDE + i % pieces * 16, make_uint4(0, 0, 0, 0));
	for (int i = threadIdx.x; i < heads * behind; i += THREADS)
		store(q_tile + i / behind * (STRIDE / 2) + Past::column(HDIM + i % behind), 0.0f);
}

// block level: f(h, d) for each head of a group and each fourth element of what the block has of it
template <class F> __device__ __forceinline__ void each(int heads, F f)
{
	for (int i = threadIdx.x; i < heads * (VALUES / 4); i += THREADS)
		f(i / (VALUES / 4), i % (VALUES / 4) * 4);
}

// The first element of values that the block has.
__device__ __forceinline__ int first_value() { return PARTS_OF_V == 1 ? 0 : int(blockIdx.x) % PARTS_OF_V * VALUES; }

// thread level: elements d.. of a head, of all of them in the launch; its part i
__device__ __forceinline__ void write(const Args &a, i64 head, int d, float factor, const Sums &s)
{
	float gate[4] = { 1.0f, 1.0f, 1.0f, 1.0f };
	if constexpr (GATED != 0) // q, k and v of this row stand before its gates, and those of the rows before too
		load_gates(gate, a.qkv + (i64(blockIdx.y + 1) * FIRST_GATE + head) * HDIM + first_value() + d);
	*reinterpret_cast<uint2 *>(a.o + head * HDIM + first_value() + d) =
		s.result(a, int(head - i64(blockIdx.y) * NH), factor, gate);
}

__device__ __forceinline__ void write_part(const Args &a, i64 head, int d, int i, const Sums &s)
{
	*reinterpret_cast<float4 *>(a.part + (head * PARTS + i) * HDIM + first_value() + d) =
		make_float4(s.x[0], s.x[1], s.x[2], s.x[3]);
	if (d == 0) // blocks of other values write the same
		*reinterpret_cast<float2 *>(a.part_ml + (head * PARTS + i) * 2) = make_float2(s.m, s.l);
}

// block level: a group's result from n parts
__device__ __forceinline__ void merge(const Args &a, i64 head0, int heads, float factor, int n)
{
	constexpr int BATCH = PARTS < 16 ? PARTS : 16;
	each(heads, [&](int h, int d) {
		const i64 head = head0 + h;
		const float *part = a.part + head * PARTS * HDIM + first_value() + d, *ml = a.part_ml + head * PARTS * 2;
		Sums s;
#pragma unroll 1
		for (int first = 0; first < n; first += BATCH)
			s.join<BATCH>(n - first,
				[&](int i) { return __ldcg(reinterpret_cast<const float4 *>(part + (first + i) * HDIM)); },
				[&](int i) { return __ldcg(reinterpret_cast<const float2 *>(ml + (first + i) * 2)); });
		write(a, head, d, factor, s);
	});
}

// block level: each warp's heads to its place there
template <bool IN_RINGS>
__device__ __forceinline__ void hand_in(const Past::State &state, const Handed<HEADS, IN_RINGS> &to, int heads)
{
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (g + 8 * i >= heads)
			continue;
		float *row = to.line(warp, g, 8 * i);
		Past::take(state, i, [&](int d, auto x) { *reinterpret_cast<decltype(x) *>(row + d) = x; });
		if (quad == 0)
			*reinterpret_cast<float2 *>(row + VALUES) = make_float2(state.m[0][i], state.l[0][i]);
	}
}

// block level: all of the launch
__device__ __forceinline__ void attend_step(const Args &a)
{
	let_next_start();
	// q [16 rows], the new k and v, page table, shares of the team, a ring of STAGES chunks a warp: at the end its
	// sums; SEVERAL: the block's totals and, where a stage has no room for them, the warps' sums of a run
	DYNAMIC_SMEM(smem);
	__shared__ bool is_last;
	__shared__ float q_up[16];
	bf16 *const q_tile = reinterpret_cast<bf16 *>(smem);
	NewLine fresh = { reinterpret_cast<char *>(smem) + 16 * STRIDE, 1.0f, 1.0f, 0, false };
	i32 *const pages = reinterpret_cast<i32 *>(fresh.fresh + Past::fresh_bytes);
	float *const shares = reinterpret_cast<float *>(pages + TABLE);
	float *const rings = shares + (CLUSTER > 1 ? CLUSTER * HEADS * SHARE : 0);
	const Totals<HEADS * (VALUES / 4)> totals = { reinterpret_cast<float4 *>(rings + WARPS * RING_BYTES / 4) };
	const int tile = blockIdx.x / PARTS_OF_V, part = PARTS_OF_V == 1 ? 0 : int(blockIdx.x) % PARTS_OF_V;
	const int kv_head = tile / GROUP_TILES, t = blockIdx.y, block = blockIdx.z;
	const int in_group = tile % GROUP_TILES * 16, head0 = kv_head * GROUP + in_group, warp = threadIdx.x / 32;
	const int heads = min(GROUP - in_group, 16);
	const i64 head = i64(t) * NH + head0;
	const int row_slot = a.row_slot[t], slot = t < a.step[0] ? row_slot : -1;
	if (slot < 0) {
		if (block || part)
			return;
		inputs_ready();
		for (int i = threadIdx.x; i < heads * HDIM; i += THREADS)
			store(a.o + head * HDIM + i, 0.0f);
		return;
	}
	const int token = a.slot_token[slot], length = a.slot_len[slot], pos = token < 0 ? 0 : length;
	const i32 *table = a.page_table + i64(slot) * MAX_PAGES;
	if constexpr (TABLE != 0)
		for (int i = threadIdx.x; i < MAX_PAGES; i += THREADS)
			pages[i] = table[i];
	Prepared w;
	H::load_frequencies(w.frequency, a.inv_freq);
	load_norms(w.norms, a);
	if constexpr (IS_WHOLE)
		load_whole(w, a, heads, head0, kv_head);
	const float scale_log2 = float(SCALE) * 1.4426950408889634f * kv_factor<KVT>(a.kv_scale, kv_head);
	const float v_factor = kv_factor<KVT>(a.kv_scale, NKV + kv_head);
	const int begin = first_chunk(pos), chunks = pos / CHUNK + 1; // those from `begin` on are seen
	const Runs runs = runs_of(chunks - begin);
	const int first_run = block * runs_each(runs.n);
	const bool in_team = TEAM > 1 && runs.n > 1 && runs.n <= TEAM;
	if (first_run >= runs.n)
		return;
	if (in_team)
		team_arrive();
	const bool has_new = block == blocks_of(runs.n) - 1;
	const int end = min(begin + (first_run + runs_each(runs.n)) * runs.chunks, chunks);
	const u32 ring = shared_address(rings) + warp * RING_BYTES;
	int filled = begin + first_run * runs.chunks + warp, to = 0; // the warp's next chunk and its stage
	auto fill = [&] {
		if (filled < end)
			Past::fill(ring + to * STAGE_BYTES, a.kv, a.kv_block, table, kv_head, part, filled * CHUNK, pos);
		copy_commit();
		filled += WARPS;
		to = to + 1 == STAGES ? 0 : to + 1;
	};
	if constexpr (TABLE != 0) {
		table = pages;
		__syncthreads();
	}
#pragma unroll
	for (int i = 0; i < STAGES; i++)
		fill();
	H::Pairs turn;
	H::angles(turn, w.frequency, pos, float(ROPE_FACTOR));
	clear_rest(heads, q_tile);
	if (threadIdx.x >= heads && threadIdx.x < 16)
		q_up[threadIdx.x] = 1.0f;
	fresh.is_kept = has_new && in_group == 0 && part == 0;
	if (fresh.is_kept)
		fresh.line = Past::line(table[pos / PAGE], 0, kv_head, pos);
	if constexpr (is_codes) {
		fresh.k_scale = a.kv_scale[kv_head];
		fresh.v_scale = a.kv_scale[NKV + kv_head];
	}
	inputs_ready(); // all above comes from the steps before, and is under way while the launches before this one end

	const bf16 *qkv = a.qkv + i64(t) * ROW_HEADS * HDIM;
#pragma unroll
	for (int r = 0; r < Prepared::rounds; r++)
		if (const int task = warp + r * WARPS; task < heads + 2)
			H::load(w.x[r], qkv + source_head(task, heads, head0, kv_head) * HDIM);
	float2 factors = { 1.0f, 1.0f };
	if constexpr (IS_WHOLE)
		factors = whole_factors(qkv);
	prepare(a, w, turn, factors, heads, has_new, q_tile, q_up, fresh);
	__syncthreads();
	float up[2] = { 1.0f, 1.0f };
	if constexpr (Past::is_half)
#pragma unroll
		for (int i = 0; i < 2; i++)
			up[i] = q_up[threadIdx.x % 32 / 4 + 8 * i];
	Past::State state;
	attention_start(state, shared_address(q_tile), 0);
	int from = 0, run = first_run, left = runs.chunks / WARPS; // chunks that a warp has not seen of its run
#pragma unroll 1
	for (int c = begin + first_run * runs.chunks + warp; c < end; c += WARPS) {
		const u32 stage = ring + from * STAGE_BYTES;
		copy_wait<STAGES - 1>();
		__syncwarp(); // the chunk has arrived for all lanes
		const bool is_newest = c == chunks - 1;
		if (is_newest)
			Past::insert(stage, pos % CHUNK, fresh.fresh, part);
		Past::look<REACH>(state, shared_address(q_tile), stage, ring + STAGES * STAGE_BYTES, up, part, c * CHUNK, pos,
			is_newest || (WINDOW > 0 && c == begin), scale_log2);
		__syncwarp(); // and all are done with it
		if constexpr (SEVERAL != 0)
			if (--left == 0 && begin + (run + 1) * runs.chunks < end) {
				constexpr bool is_room = HEADS * SUM_STRIDE * 4 <= STAGE_BYTES; // for a warp's sums
				const Handed<HEADS, is_room> sums = { is_room ? rings + from * (STAGE_BYTES / 4) : totals.end() };
				attention_finish(state);
				hand_in(state, sums, heads);
				__syncthreads();
				each(heads, [&](int h, int d) {
					Sums s;
					s.add<WARPS>(WARPS, [&](int i) { return *reinterpret_cast<const float4 *>(sums.line(i, h) + d); },
						[&](int i) { return *reinterpret_cast<const float2 *>(sums.line(i, h) + VALUES); });
					if (blocks_of(runs.n) > 1) {
						write_part(a, head + h, d, run, s);
						return;
					}
					totals.add_to(s, h * (VALUES / 4) + d / 4, run == 0);
					totals.keep(s, h * (VALUES / 4) + d / 4);
				});
				__syncthreads(); // the warps' sums have been read
				restart(state);
				run++;
				left = runs.chunks / WARPS;
			}
		fill();
		from = from + 1 == STAGES ? 0 : from + 1;
	}
	attention_finish(state);
	copy_wait<0>();
	__syncthreads();
	static_assert(WARPS * HEADS * SUM_STRIDE * 4 <= WARPS * RING_BYTES, "the warps' sums fit the rings");
	hand_in(state, Handed<HEADS, false> { rings }, heads);
	__syncthreads();

	if (in_team)
		team_wait(); // all blocks of the team have started: the first one's memory is there
	each(heads, [&](int h, int d) {
		const float *row = rings + h * SUM_STRIDE;
		Sums s;
		s.add<WARPS>(WARPS, // the first warp of a run has a chunk
			[&](int i) { return *reinterpret_cast<const float4 *>(row + i * HEADS * SUM_STRIDE + d); },
			[&](int i) { return *reinterpret_cast<const float2 *>(row + i * HEADS * SUM_STRIDE + VALUES); });
		if (in_team) {
			const u32 share = at_rank(shares + (run * HEADS + h) * SHARE, 0);
			store_at_rank(share + d * 4, make_float4(s.x[0], s.x[1], s.x[2], s.x[3]));
			if (d == 0)
				store_at_rank(share + VALUES * 4, make_float4(s.m, s.l, 0.0f, 0.0f));
		} else if (blocks_of(runs.n) > 1) {
			write_part(a, head + h, d, run, s);
		} else {
			if constexpr (SEVERAL != 0)
				if (runs.n > 1)
					totals.add_to(s, h * (VALUES / 4) + d / 4, false);
			write(a, head + h, d, v_factor, s);
		}
	});
	if (blocks_of(runs.n) == 1)
		return;
	if (in_team) {
		team_arrive();
		if (block)
			return;
		team_wait();
		each(heads, [&](int h, int d) {
			const float *row = shares + h * SHARE;
			Sums s;
			s.join<TEAM>(runs.n,
				[&](int i) { return *reinterpret_cast<const float4 *>(row + i * HEADS * SHARE + d); },
				[&](int i) { return *reinterpret_cast<const float2 *>(row + i * HEADS * SHARE + VALUES); });
			write(a, head + h, d, v_factor, s);
		});
		return;
	}
	__syncthreads();
	if (threadIdx.x == 0) // blocks of other values count at the next head
		is_last = last_to_arrive(a.arrived + head + part, blocks_of(runs.n));
	__syncthreads();
	if (is_last)
		merge(a, head, heads, v_factor, runs.n);
}
