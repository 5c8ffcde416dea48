// what      attention of a verify step, all of it. A slot has EACH rows from a multiple of EACH on, or the first of
//           them, where the step ends; they stand at positions P, P + 1, ..., P the length of the slot (0 if that has
//           ended). For row t in use, at position p:
//             q = rope(norm?(q heads of qkv[t])), k = rope(norm?(k heads)), v = norm?(v heads, where V_IS_K the k
//             heads); k, v -> kv at p
//             o[t,h,:] = softmax over positions up to p, with WINDOW the last WINDOW of them, with CHUNKED those of
//             p's chunk, of (SCALE q[h].k) times v, where GATED times sigmoid of the gate's element, which
//             stands behind v in qkv[t]. SINKS: e^sinks[h] is one term more of the softmax's sum
//           A cache of codes (e4m3 with kv_scale, e2m1 with kv_block too) is written and read as ops.h says.
//           part, part_ml and arrived are the launch's own, as in attn_step. Idle rows: o = 0, no state changes
// numerics  q rounded once to bf16, for a cache of e4m3 to f16 by a power of two, k and v once to what the cache keeps;
//           q and k behind all of rope, with ROTATE the Hadamard matrix too (ops.h). Scores and sums in f32,
//           probabilities rounded like q for the second product; codes are exact. All sums of a row are made in the
//           order of attn_step: where that has the same ORDER a row has the bits that as many decode steps would have
//           given it. Same bits every run; batch-invariant
// classes   a row's history, with WINDOW what it sees of that, is cut into runs by its own length. Rows whose histories
//           are cut in the same way look at them together, as one class; where a history has grown over a border, the
//           rows behind it look once more. A chunk that a row sees nothing of leaves its sums as they are, bit for bit
// early     all positions before P are what earlier steps have left, and so is P (EARLY): the first STAGES chunks of a
//           warp are on the way, turns and page table there, before the products in front of this launch end
// measured  H100 SXM, in a chain, caches cold, 16 heads of 256 over 2, 4096 positions in bf16: 12.3 us for two rows,
//           19.3 for four (attn_step 13.2 for one); 24 heads over 4, three rows 20.0 with 16 splits, 34.6 with 32
//           (attn_step 13.0, 13.7). Clusters of eight take 12.3 us for the first of these, one block alone that merges
//           20.1; in more than half of the card they wait for room, and clusters of two are best. No spills
// why       keys and values leave memory once for all rows of a slot. A tile of 16 lines for mma has eight places of
//           two heads each, lines p and p + 8, which are of one row: so a lane, which has two such lines, sees up to
//           one position, as in attn_step. Where EACH times a group's heads are more than a tile, another block reads
//           the keys again, from the L2 cache, since it runs beside the first. Runs are merged in ascending order: few
//           through shared memory by the first block of a cluster, more through global memory by the last one to
//           deliver its own, with its cluster's help, as the sums of 16 lines are much to read for one. Of heads of 512
//           a block has half of each value, as in attn_step
#include "shared/contract.cuh"
#include "shared/activation.cuh"
#include "shared/arrive.cuh"
#include "attention/history.cuh"
#include "attention/rope.cuh"

KERNEL(attn_verify, attention_verify)
#define VERIFY 1
#define EXTRAS 1
#include "attention/step_contract.cuh"

#include "attention/attend_runs.cuh"

constexpr int GROUP = NH / NKV, PAIRS = (GROUP + 1) / 2; // of a row's heads
constexpr int TILES = (EACH * PAIRS + 7) / 8, PLACES = EACH * PAIRS < 8 ? EACH * PAIRS : 8, LINES = 2 * PLACES;
constexpr int TABLE = MAX_PAGES <= 2048 ? (MAX_PAGES + 3) / 4 * 4 : 0; // entries of a page table in shared memory
constexpr int TURNS = (EACH * ROTARY + 3) / 4 * 4; // floats: sine and cosine of each pair of each row
constexpr int SHARES = CLUSTER > 1 && (HDIM < 128 || CLUSTER <= 2) ? CLUSTER : 0; // runs merged through shared memory
static_assert(16 * STRIDE + EACH * Past::fresh_bytes + (TABLE + TURNS + SHARES * LINES * SHARE) * 4
	+ WARPS * RING_BYTES + bytes_of_totals(LINES) <= dynamic_smem(), "SMEM is what attn_verify lays out");

// What a block is about: rows j .. end - 1 of a slot whose first is `begin`, at position `start`; of them a tile of
// pairs of heads of one kv head, and a part of the values.
struct Class {
	int begin, j, end, start, kv_head, tile, part;

	struct Line { int row, head; bool exists; }; // row of the step, query head
	__device__ __forceinline__ Line line(int i) const // its two lines of a place stand together
	{
		const int unit = tile * 8 + i / 2, row = j + unit / PAIRS, of_group = unit % PAIRS * 2 + i % 2;
		return { begin + row, kv_head * GROUP + of_group, row < end && of_group < GROUP };
	}
	// the last position that the rows of a place see
	__device__ __forceinline__ int last(int place) const
	{
		return start + min(j + (tile * 8 + place) / PAIRS, end - 1);
	}
	__device__ __forceinline__ bool is_wanted() const { return tile * 8 < (end - j) * PAIRS; }
};

// Rows whose histories are cut like that of row j, if it is the first of them; else end = j.
__device__ __forceinline__ int end_of_class(int start, int j, int n, int begin, const Runs &runs)
{
	auto is_like = [&](int row) {
		const int pos = start + row, from = first_chunk(pos);
		const Runs r = runs_of(pos / CHUNK + 1 - from);
		return r.n == runs.n && r.chunks == runs.chunks && from == begin;
	};
	int end = j;
	if (j == 0 || !is_like(j - 1))
		for (end = j + 1; end < n && is_like(end);)
			end++;
	return end;
}

// What a warp prepares: every WARPS-th of the tile's lines of q and, in a run that holds new positions, of the new
// keys and values: k, v of the slot's first row, then of the next.
struct Prepared {
	static constexpr int rounds = (LINES + 2 * EACH + WARPS - 1) / WARPS;
	H::Pairs x[rounds];
	Norms norms;
};

// block level: sine and cosine of each row's position
__device__ __forceinline__ void make_turns(float *turns, const Args &a, int start)
{
	for (int i = threadIdx.x; i < EACH * (ROTARY / 2); i += THREADS) {
		float sine, cosine;
		sin_cos(float(start + i / (ROTARY / 2)) * a.inv_freq[i % (ROTARY / 2)], sine, cosine);
		*reinterpret_cast<float2 *>(turns + 2 * i) =
			make_float2(sine * float(ROPE_FACTOR), cosine * float(ROPE_FACTOR));
	}
}

__device__ __forceinline__ void turn(H::Pairs &x, const float *turns, int row)
{
	H::Pairs by = {};
#pragma unroll
	for (int j = 0; j < H::pairs; j++)
		if (H::turns(j)) {
			const float2 t = *reinterpret_cast<const float2 *>(
				turns + 2 * (row * (ROTARY / 2) + int(threadIdx.x % 32) + 32 * j));
			by[j][0] = t.x;
			by[j][1] = t.y;
		}
	H::rope(x, by);
}

// Where new keys and values go: into shared memory, those of row j `fresh_bytes` behind those of row j - 1, and, from
// the one block that keeps them for all others, into the cache.
struct NewLines {
	char *fresh;
	const i32 *table;
	float scale[2]; // of keys, of values
	bool is_kept;   // those of the class
};

// warp level: the new k (which = 0) or v of a row
__device__ __forceinline__ void keep(const Args &a, const Class &c, const NewLines &to, int row, int which,
	const H::Pairs &x)
{
	char *const fresh = to.fresh + row * Past::fresh_bytes;
	const int pos = c.start + row;
	const bool is_kept = to.is_kept && row >= c.j;
	const i64 line = is_kept ? Past::line(to.table[pos / PAGE], which, c.kv_head, pos) : 0;
	H::store_to(Past::room(fresh, which), x);
	Past::keep(fresh, which, to.scale[which], is_kept ? a.kv : nullptr, a.kv_block, line);
}

// block level: the class's q into its tile, new keys and values to their places
__device__ __forceinline__ void prepare(const Args &a, Prepared &w, const Class &c, const float *turns, bool has_new,
	bf16 *q_tile, float *up, const NewLines &to)
{
	const int warp = threadIdx.x / 32, tasks = LINES + (has_new ? 2 * c.end : 0);
#pragma unroll
	for (int r = 0; r < Prepared::rounds; r++) {
		const int task = warp + r * WARPS, row = (task - LINES) / 2;
		const Class::Line line = c.line(task);
		if (task < LINES ? line.exists : task < tasks)
			H::load(w.x[r], a.qkv + HDIM * (task < LINES ? i64(line.row) * ROW_HEADS + line.head
				: i64(c.begin + row) * ROW_HEADS + NH + (task - LINES) % 2 * (FIRST_V - NH) + c.kv_head));
	}
#pragma unroll
	for (int r = 0; r < Prepared::rounds; r++) {
		const int task = warp + r * WARPS, row = (task - LINES) / 2;
		if (task >= tasks)
			break;
		if (task < LINES) {
			const Class::Line line = c.line(task);
			if (!line.exists)
				continue;
			if constexpr (Q_NORM)
				H::norm(w.x[r], w.norms.q, NORM_ONE != 0, float(EPS));
			turn(w.x[r], turns, line.row - c.begin);
			put_q(q_tile + (task / 2 + task % 2 * 8) * (STRIDE / 2), up + task / 2 + task % 2 * 8, w.x[r]);
			continue;
		}
		if ((task - LINES) % 2 == 0) {
			if constexpr (K_NORM)
				H::norm(w.x[r], w.norms.k, NORM_ONE != 0, float(EPS));
			turn(w.x[r], turns, row);
		} else {
			norm_value(w.x[r], w.norms);
		}
		keep(a, c, to, row, (task - LINES) % 2, w.x[r]);
	}
}

// block level: f(i, line, d) for each line of the tile that is there and each fourth element of the block's values
template <class F> __device__ __forceinline__ void each(const Class &c, F f)
{
	for (int i = threadIdx.x; i < LINES * (VALUES / 4); i += THREADS)
		if (const Class::Line line = c.line(i / (VALUES / 4)); line.exists)
			f(i / (VALUES / 4), line, i % (VALUES / 4) * 4);
}

// thread level: elements d.. of what the block has of a line; its run i
__device__ __forceinline__ void write(const Args &a, const Class &c, const Class::Line &line, int d, float factor,
	const Sums &s)
{
	const int at = c.part * VALUES + d;
	float gate[4] = { 1.0f, 1.0f, 1.0f, 1.0f };
	if constexpr (GATED != 0)
		load_gates(gate, a.qkv + (i64(line.row) * ROW_HEADS + FIRST_GATE + line.head) * HDIM + at);
	*reinterpret_cast<uint2 *>(a.o + (i64(line.row) * NH + line.head) * HDIM + at) =
		s.result(a, line.head, factor, gate);
}

__device__ __forceinline__ void write_part(const Args &a, const Class &c, const Class::Line &line, int d, int i,
	const Sums &s)
{
	const i64 at = (i64(line.row) * NH + line.head) * PARTS + i;
	*reinterpret_cast<float4 *>(a.part + at * HDIM + c.part * VALUES + d) = make_float4(s.x[0], s.x[1], s.x[2], s.x[3]);
	if (d == 0) // blocks of other values write the same
		*reinterpret_cast<float2 *>(a.part_ml + at * 2) = make_float2(s.m, s.l);
}

// block level: the tile's result from n parts, or what block `rank` of `helpers` has of it: two items of a thread at
// once, so that twice as much is under way
__device__ __forceinline__ void merge(const Args &a, const Class &c, float factor, int n, int rank, int helpers)
{
	constexpr int BATCH = PARTS < 16 ? PARTS : 16, ITEMS = LINES * (VALUES / 4), AT_ONCE = 2;
	const int step = helpers * THREADS;
#pragma unroll 1
	for (int item = rank * THREADS + threadIdx.x; item < ITEMS; item += AT_ONCE * step) {
		Sums s[AT_ONCE];
#pragma unroll 1
		for (int first = 0; first < n; first += BATCH) {
			Parts<BATCH> p[AT_ONCE];
#pragma unroll
			for (int k = 0; k < AT_ONCE; k++) {
				const int i = item + k * step;
				const Class::Line line = c.line(i / (VALUES / 4));
				const i64 at = (i64(line.row) * NH + line.head) * PARTS + first;
				const float *part = a.part + at * HDIM + c.part * VALUES + i % (VALUES / 4) * 4;
				const float *ml = a.part_ml + at * 2;
				if (i < ITEMS && line.exists)
					p[k].load(n - first,
						[&](int r) { return __ldcg(reinterpret_cast<const float4 *>(part + r * HDIM)); },
						[&](int r) { return __ldcg(reinterpret_cast<const float2 *>(ml + r * 2)); });
			}
#pragma unroll
			for (int k = 0; k < AT_ONCE; k++)
				s[k].join(p[k], n - first);
		}
#pragma unroll
		for (int k = 0; k < AT_ONCE; k++)
			if (const int i = item + k * step; i < ITEMS)
				if (const Class::Line line = c.line(i / (VALUES / 4)); line.exists)
					write(a, c, line, i % (VALUES / 4) * 4, factor, s[k]);
	}
}

// block level: each warp's lines to its place
template <bool IN_RINGS>
__device__ __forceinline__ void hand_in(const Past::State &state, const Handed<LINES, IN_RINGS> &to)
{
	const int warp = threadIdx.x / 32, place = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
	if (place >= PLACES)
		return;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float *row = to.line(warp, place * 2 + i);
		Past::take(state, i, [&](int d, auto x) { *reinterpret_cast<decltype(x) *>(row + d) = x; });
		if (quad == 0)
			*reinterpret_cast<float2 *>(row + VALUES) = make_float2(state.m[0][i], state.l[0][i]);
	}
}

// The slot's new keys and values that fall into a chunk.
__device__ __forceinline__ void insert_new(const Class &c, int chunk, u32 stage, const char *fresh)
{
#pragma unroll 1
	for (int row = 0; row < c.end; row++)
		if ((c.start + row) / CHUNK == chunk)
			Past::insert(stage, (c.start + row) % CHUNK, fresh + row * Past::fresh_bytes, c.part);
}

// block level: rows that are idle
__device__ __forceinline__ void write_idle(const Args &a, int t, int kv_head)
{
	inputs_ready();
	for (int i = threadIdx.x; i < GROUP * HDIM; i += THREADS)
		store(a.o + (i64(t) * NH + kv_head * GROUP) * HDIM + i, 0.0f);
}

extern "C" __global__ void TOGETHER __launch_bounds__(THREADS, 1) attn_verify(const Args a)
{
	let_next_start();
	// q [16 lines], new keys and values, page table, turns, shares of the team, a ring of STAGES chunks a warp: at the
	// end its sums; SEVERAL: as in attn_step
	DYNAMIC_SMEM(smem);
	__shared__ alignas(8) float is_ours[2]; // the first: the merging is
	__shared__ float q_up[16];
	bf16 *const q_tile = reinterpret_cast<bf16 *>(smem);
	NewLines fresh = { reinterpret_cast<char *>(smem) + 16 * STRIDE, nullptr, { 1.0f, 1.0f }, false };
	i32 *const pages = reinterpret_cast<i32 *>(fresh.fresh + EACH * Past::fresh_bytes);
	float *const turns = reinterpret_cast<float *>(pages + TABLE), *const shares = turns + TURNS;
	float *const rings = shares + SHARES * LINES * SHARE;
	const Totals<LINES * (VALUES / 4)> totals = { reinterpret_cast<float4 *>(rings + WARPS * RING_BYTES / 4) };
	const int t = blockIdx.y, block = blockIdx.z, warp = threadIdx.x / 32, in_use = a.step[0];
	const int tile = int(blockIdx.x) / PARTS_OF_V;
	Class c = { t / EACH * EACH, t % EACH, 0, 0, tile / TILES, tile % TILES,
		PARTS_OF_V == 1 ? 0 : int(blockIdx.x) % PARTS_OF_V };
	const int row_slot = a.row_slot[t], slot = t < in_use ? row_slot : -1;
	if (slot < 0) {
		if (block == 0 && c.tile == 0 && c.part == 0)
			write_idle(a, t, c.kv_head);
		return;
	}
	int n = c.j + 1; // rows of the slot
	while (n < EACH && c.begin + n < in_use && a.row_slot[c.begin + n] == slot)
		n++;
	const int token = a.slot_token[slot], length = a.slot_len[slot];
	c.start = token < 0 ? 0 : length;
	const int begin = first_chunk(c.start + c.j); // of what the class sees
	const Runs runs = runs_of((c.start + c.j) / CHUNK + 1 - begin);
	c.end = end_of_class(c.start, c.j, n, begin, runs);
	const int first_run = block * runs_each(runs.n);
	if (!c.is_wanted() || first_run >= runs.n)
		return;
	const bool in_team = TEAM > 1 && runs.n > 1 && runs.n <= SHARES;
	if (in_team)
		team_arrive();
	fresh.table = a.page_table + i64(slot) * MAX_PAGES;
	if constexpr (TABLE != 0)
		for (int i = threadIdx.x; i < MAX_PAGES; i += THREADS)
			pages[i] = fresh.table[i];
	Prepared w;
	load_norms(w.norms, a);
	const float scale_log2 = float(SCALE) * 1.4426950408889634f * kv_factor<KVT>(a.kv_scale, c.kv_head);
	const float v_factor = kv_factor<KVT>(a.kv_scale, NKV + c.kv_head);
	const int chunks = (c.start + c.end - 1) / CHUNK + 1;
	const int end = min(begin + (first_run + runs_each(runs.n)) * runs.chunks, chunks);
	const bool has_new = end > c.start / CHUNK;
	const u32 ring = shared_address(rings) + warp * RING_BYTES;
	for (int i = threadIdx.x; i < 16 * STRIDE / 16; i += THREADS)
		smem[i] = make_uint4(0, 0, 0, 0);
	if (threadIdx.x < 16)
		q_up[threadIdx.x] = 1.0f;
	if constexpr (TABLE != 0)
		fresh.table = pages;
	__syncthreads();
	int filled = begin + first_run * runs.chunks + warp, to = 0; // the warp's next chunk and its stage
	auto fill = [&] {
		if (filled < end)
			Past::fill(ring + to * STAGE_BYTES, a.kv, a.kv_block, fresh.table, c.kv_head, c.part, filled * CHUNK,
				c.start);
		copy_commit();
		filled += WARPS;
		to = to + 1 == STAGES ? 0 : to + 1;
	};
#pragma unroll
	for (int i = 0; i < STAGES; i++)
		fill();
	make_turns(turns, a, c.start);
	fresh.is_kept = block == blocks_of(runs.n) - 1 && c.tile == 0 && c.part == 0;
	if constexpr (is_codes) {
		fresh.scale[0] = a.kv_scale[c.kv_head];
		fresh.scale[1] = a.kv_scale[NKV + c.kv_head];
	}
	__syncthreads();
	inputs_ready(); // all above comes from the steps before, and is under way while the launches before this one end

	prepare(a, w, c, turns, has_new, q_tile, q_up, fresh);
	__syncthreads();
	const int place = threadIdx.x % 32 / 4, seen = c.last(place);
	float up[2] = { 1.0f, 1.0f };
	if constexpr (Past::is_half)
#pragma unroll
		for (int i = 0; i < 2; i++)
			up[i] = q_up[place + 8 * i];
	Past::State state;
	attention_start(state, shared_address(q_tile), 0);
	int from = 0, run = first_run, left = runs.chunks / WARPS; // chunks that a warp has not seen of its run
#pragma unroll 1
	for (int chunk = begin + first_run * runs.chunks + warp; chunk < end; chunk += WARPS) {
		const u32 stage = ring + from * STAGE_BYTES;
		copy_wait<STAGES - 1>();
		__syncwarp(); // the chunk has arrived for all lanes
		if (chunk >= c.start / CHUNK)
			insert_new(c, chunk, stage, fresh.fresh);
		Past::look<REACH>(state, shared_address(q_tile), stage, ring + STAGES * STAGE_BYTES, up, c.part, chunk * CHUNK,
			seen, chunk * CHUNK + CHUNK > c.start + c.j + 1 || (WINDOW > 0 && chunk == begin), scale_log2);
		__syncwarp(); // and all are done with it
		if constexpr (SEVERAL != 0)
			if (--left == 0 && begin + (run + 1) * runs.chunks < end) {
				constexpr bool is_room = LINES * SUM_STRIDE * 4 <= STAGE_BYTES; // for a warp's sums
				const Handed<LINES, is_room> sums = { is_room ? rings + from * (STAGE_BYTES / 4) : totals.end() };
				attention_finish(state);
				hand_in(state, sums);
				__syncthreads();
				each(c, [&](int i, const Class::Line &line, int d) {
					Parts<WARPS> parts;
					parts.load(WARPS, [&](int k) { return *reinterpret_cast<const float4 *>(sums.line(k, i) + d); },
						[&](int k) { return *reinterpret_cast<const float2 *>(sums.line(k, i) + VALUES); });
					Sums s;
					s.add(parts, WARPS);
					if (blocks_of(runs.n) > 1) {
						write_part(a, c, line, d, run, s);
						return;
					}
					totals.add_to(s, i * (VALUES / 4) + d / 4, run == 0);
					totals.keep(s, i * (VALUES / 4) + d / 4);
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
	static_assert(WARPS * LINES * SUM_STRIDE * 4 <= WARPS * RING_BYTES, "the warps' sums fit the rings");
	const Handed<LINES, false> sums = { rings };
	hand_in(state, sums);
	__syncthreads();

	if (in_team)
		team_wait(); // all blocks of the team have started: the first one's memory is there
	each(c, [&](int i, const Class::Line &line, int d) {
		Parts<WARPS> parts; // each row sees something of the first warp's first chunk of a run
		parts.load(WARPS, [&](int k) { return *reinterpret_cast<const float4 *>(sums.line(k, i) + d); },
			[&](int k) { return *reinterpret_cast<const float2 *>(sums.line(k, i) + VALUES); });
		Sums s;
		s.add(parts, WARPS);
		if (in_team) {
			const u32 share = at_rank(shares + (run * LINES + i) * SHARE, 0);
			store_at_rank(share + d * 4, make_float4(s.x[0], s.x[1], s.x[2], s.x[3]));
			if (d == 0)
				store_at_rank(share + VALUES * 4, make_float4(s.m, s.l, 0.0f, 0.0f));
		} else if (blocks_of(runs.n) > 1) {
			write_part(a, c, line, d, run, s);
		} else {
			if constexpr (SEVERAL != 0)
				if (runs.n > 1)
					totals.add_to(s, i * (VALUES / 4) + d / 4, false);
			write(a, c, line, d, v_factor, s);
		}
	});
	if (blocks_of(runs.n) == 1)
		return;
	if (in_team) {
		team_arrive();
		if (block)
			return;
		team_wait();
		each(c, [&](int i, const Class::Line &line, int d) {
			const float *row = shares + i * SHARE;
			Parts<TEAM> parts;
			parts.load(runs.n, [&](int k) { return *reinterpret_cast<const float4 *>(row + k * LINES * SHARE + d); },
				[&](int k) { return *reinterpret_cast<const float2 *>(row + k * LINES * SHARE + VALUES); });
			Sums s;
			s.join(parts, runs.n);
			write(a, c, line, d, v_factor, s);
		});
		return;
	}
	// the counter is of the tile's first line, of other values the next head's; blocks of a cluster that have a run
	// arrive as one, and learn whether they are the last
	const Class::Line first = c.line(0);
	const int rank = block % TEAM, helpers = min(TEAM, blocks_of(runs.n) - (block - rank));
	__threadfence();
	__syncthreads();
	if constexpr (TEAM > 1)
		team_meet();
	if (rank == 0 && threadIdx.x == 0) {
		const bool is_last = last_to_arrive(a.arrived + i64(first.row) * NH + first.head + c.part,
			ceil_div(blocks_of(runs.n), TEAM));
		is_ours[0] = is_last ? 1.0f : 0.0f;
		if constexpr (TEAM > 1)
			for (int i = 1; i < helpers; i++)
				store2_at_rank(at_rank(is_ours, i), is_ours[0], 0.0f);
	}
	__syncthreads();
	if constexpr (TEAM > 1)
		team_meet();
	if (is_ours[0] != 0.0f)
		merge(a, c, v_factor, runs.n, rank, helpers);
}
