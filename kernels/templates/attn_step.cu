// what      a decode row's attention, all of it. For row t in use, at position P = row_pos[t] of its slot:
//             q = rope(norm?(q heads of qkv[t])), k = rope(norm?(k heads)), v = the v heads; k, v -> kv at P
//             o[t,h,:] = softmax over p <= P of (SCALE q[h].k[p]) times v[p]
//           part, part_ml and arrived are the launch's own: sums of runs with their maxima (log2 domain), and how
//           many blocks of a group have delivered theirs. Idle rows: o = 0, no state changes
// numerics  q and k rounded to bf16 once; scores and sums in f32, probabilities rounded to bf16 for the second
//           product. How a history is cut into runs and the order of all sums depend on its length and the tunables
//           alone: same bits every run; batch-invariant
// measured  tests/gpu/results: share of the read bound at real shapes
// why       the heads of a group share one mma tile of 16 rows, so each key and value is read once for all of them;
//           padding them to 16 is free, as the tensor cores wait for memory. Each warp streams chunks of 16 positions
//           through a ring of its own, so nobody waits for a block until the end, and STAGES - 1 chunks a warp are
//           under way. Short histories are one run of one block, which needs no merge; long ones are cut into up to
//           SPLITS runs, and the last block to deliver its run merges them all in ascending order. Blocks without a
//           run leave at once: runs are the slowest index of the grid, so those with work start first
#include "contract.cuh"
#include "arrive.cuh"
#include "attend.cuh"
#include "paged.cuh"
#include "rope.cuh"

KERNEL(attn_step, attention_step)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(SLOTS, 8)
DIM(MAX_PAGES, 128)
DIM(PAGES, 1024)
ATTR_INT(HDIM, 64)
ATTR_INT(NH, 32)
ATTR_INT(NKV, 8)
ATTR_INT(PAGE, 16)
ATTR_FLOAT(SCALE, 0.125f)
ATTR_INT(ROTARY, 64)
ATTR_FLOAT(ROPE_FACTOR, 1.0f)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
FLAG(Q_NORM)
FLAG(K_NORM)
DTYPES(QT, bf16, f16, f32)
DTYPES(KT, bf16, f16, f32)
TUNE(SPLITS, 16, 1, 2, 4, 8, 32)
TUNE(WARPS, 4, 8)
TUNE(STAGES, 4, 3, 2)
REQUIRE(HDIM == 64 || HDIM == 80 || HDIM == 96 || HDIM == 128 || HDIM == 256)
REQUIRE(NH % NKV == 0)
REQUIRE(ROTARY % 2 == 0 && ROTARY <= HDIM)
REQUIRE(ROWS <= 65535)
REQUIRE(MAX_PAGES * PAGE <= 6000000)
GRID(NKV * ceil_div(NH / NKV, 16), ROWS, SPLITS)
BLOCK(32 * WARPS)
SMEM(16 * (HDIM * 2 + 16) + 4 * HDIM + WARPS * STAGES * 32 * (HDIM * 2 + 16))
READS(ROWS * ((NH + 2 * NKV) * HDIM * 2 + MAX_PAGES * PAGE * NKV * HDIM * 4))
WRITES(ROWS * (NH * HDIM * 2 + NKV * HDIM * 4 + (SPLITS > 1 ? NH * SPLITS * (HDIM + 2) * 4 : 0)))
FLOPS(4 * ROWS * NH * HDIM * (MAX_PAGES * PAGE))
struct Args {
	IN(i32, step, "4");
	IN(bf16, qkv, "ROWS, (NH + 2 * NKV) * HDIM");
	IN_IF(Q_NORM, QT, q_norm, "HDIM");
	IN_IF(K_NORM, KT, k_norm, "HDIM");
	IN(f32, inv_freq, "ROTARY / 2");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(i32, page_table, "SLOTS, MAX_PAGES");
	INOUT(bf16, kv, "PAGES, 2, NKV, PAGE, HDIM");
	OUT(f32, part, "ROWS, NH, SPLITS, HDIM");
	OUT(f32, part_ml, "ROWS, NH, SPLITS, 2");
	INOUT(i32, arrived, "ROWS, NH");
	OUT(bf16, o, "ROWS, NH * HDIM");
};

static_assert(NH % NKV == 0, "each kv head serves the same number of query heads");

constexpr int GROUP = NH / NKV, GROUP_TILES = (GROUP + 15) / 16, HEADS = GROUP < 16 ? GROUP : 16;
constexpr int THREADS = 32 * WARPS, CHUNK = 16, STRIDE = tile_stride(HDIM), STAGE_BYTES = 2 * CHUNK * STRIDE;
constexpr int SUM_STRIDE = HDIM + 8; // floats from head to head: rows of a fragment fall into different banks
constexpr int ALONE = 4 * WARPS;     // chunks that one block reads sooner than several could merge
using H = Head<HDIM, ROTARY>;

// The runs of a history of some chunks: how many, and the chunks of each (the last may have fewer).
struct Runs { int n, chunks; };
__device__ __forceinline__ Runs runs_of(int chunks)
{
	const int wanted = chunks <= ALONE ? 1 : min(ceil_div(chunks, WARPS), SPLITS);
	const int each = ceil_div(chunks, wanted);
	return { ceil_div(chunks, each), each };
}

// What a warp prepares: every WARPS-th of the group's q heads and, in the run that holds the new position, k and v.
struct Prepared {
	static constexpr int rounds = (HEADS + 2 + WARPS - 1) / WARPS;
	H::Pairs x[rounds], q_weights, k_weights;
	float frequency[H::pairs];
};

__device__ __forceinline__ void load_weights(Prepared &w, const Args &a)
{
	H::load_frequencies(w.frequency, a.inv_freq);
	if constexpr (Q_NORM)
		H::load(w.q_weights, a.q_norm);
	if constexpr (K_NORM)
		H::load(w.k_weights, a.k_norm);
}

// Column head of a task in a row of qkv: heads of q, then k, then v.
__device__ __forceinline__ int source_head(int task, int heads, int head0, int kv_head)
{
	return task < heads ? head0 + task : NH + (task - heads) * NKV + kv_head;
}

// block level: the row's q into its tile, the new k and v into `fresh` and, when `line` is not NULL, into the cache
__device__ __forceinline__ void prepare(Prepared &w, int pos, int heads, bool has_new, bf16 *q_tile, bf16 *fresh,
	bf16 *line)
{
	H::Pairs turn;
	H::angles(turn, w.frequency, pos, float(ROPE_FACTOR));
#pragma unroll
	for (int r = 0; r < Prepared::rounds; r++) {
		const int task = threadIdx.x / 32 + r * WARPS;
		if (task >= heads + (has_new ? 2 : 0))
			break;
		if constexpr (Q_NORM)
			if (task < heads)
				H::norm(w.x[r], w.q_weights, NORM_ONE != 0, float(EPS));
		if constexpr (K_NORM)
			if (task == heads)
				H::norm(w.x[r], w.k_weights, NORM_ONE != 0, float(EPS));
		if (task <= heads)
			H::rotate(w.x[r], turn);
		if (task < heads) {
			H::store_to(q_tile + task * (STRIDE / 2), w.x[r]);
		} else {
			H::store_to(fresh + (task - heads) * HDIM, w.x[r]);
			if (line)
				H::store_to(line + (task - heads) * (NKV * PAGE * HDIM), w.x[r]);
		}
	}
	for (int i = threadIdx.x; i < (16 - heads) * (HDIM / 8); i += THREADS) // rows of no head
		store_shared(shared_address(q_tile) + (heads + i / (HDIM / 8)) * STRIDE + i % (HDIM / 8) * 16,
			make_uint4(0, 0, 0, 0));
}

// warp level: the new position's k and v become their row of a chunk
__device__ __forceinline__ void insert(u32 stage, int row, const bf16 *fresh)
{
	constexpr int pieces = HDIM / 8;
	for (int i = threadIdx.x % 32; i < 2 * pieces; i += 32)
		store_shared(stage + (i / pieces * CHUNK + row) * STRIDE + i % pieces * 16,
			reinterpret_cast<const uint4 *>(fresh)[i]);
	__syncwarp();
}

// block level: the merge of all runs of the group's heads, in ascending order
__device__ __forceinline__ void merge(const Args &a, i64 head, int heads, int n)
{
	constexpr int BATCH = SPLITS < 16 ? SPLITS : 16;
	for (int i = threadIdx.x; i < heads * (HDIM / 4); i += THREADS) {
		const int h = i / (HDIM / 4), d = i % (HDIM / 4) * 4;
		const float *part = a.part + (head + h) * SPLITS * HDIM + d, *part_ml = a.part_ml + (head + h) * SPLITS * 2;
		float m = minus_infinity(), l = 0.0f, sum[4] = {};
#pragma unroll 1
		for (int first = 0; first < n; first += BATCH) {
			float4 x[BATCH];
			float2 ml[BATCH];
			float top = m;
#pragma unroll
			for (int j = 0; j < BATCH; j++) {
				const int run = min(first + j, n - 1);
				x[j] = __ldcg(reinterpret_cast<const float4 *>(part + run * HDIM));
				ml[j] = __ldcg(reinterpret_cast<const float2 *>(part_ml + run * 2));
			}
#pragma unroll
			for (int j = 0; j < BATCH; j++)
				top = fmaxf(top, ml[j].x);
			const float shrink = exp2_fast(m - top);
			m = top;
			l *= shrink;
#pragma unroll
			for (int e = 0; e < 4; e++)
				sum[e] *= shrink;
#pragma unroll
			for (int j = 0; j < BATCH; j++) {
				const float weight = first + j < n ? exp2_fast(ml[j].x - m) : 0.0f;
				l = fmaf(ml[j].y, weight, l);
				sum[0] = fmaf(x[j].x, weight, sum[0]);
				sum[1] = fmaf(x[j].y, weight, sum[1]);
				sum[2] = fmaf(x[j].z, weight, sum[2]);
				sum[3] = fmaf(x[j].w, weight, sum[3]);
			}
		}
		const float scale = 1.0f / l;
		*reinterpret_cast<uint2 *>(a.o + (head + h) * HDIM + d) =
			make_uint2(pack_bf16(sum[0] * scale, sum[1] * scale), pack_bf16(sum[2] * scale, sum[3] * scale));
	}
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) attn_step(const Args a)
{
	let_next_start();
	DYNAMIC_SMEM(smem); // q [16 rows], the new k and v, then a ring of STAGES chunks a warp; at the end their sums
	__shared__ float warp_ml[WARPS][HEADS][2];
	__shared__ bool is_last;
	constexpr float scale_log2 = float(SCALE) * 1.4426950408889634f;
	const int kv_head = blockIdx.x / GROUP_TILES, t = blockIdx.y, run = blockIdx.z;
	const int in_group = blockIdx.x % GROUP_TILES * 16, heads = min(GROUP - in_group, 16);
	const int head0 = kv_head * GROUP + in_group, warp = threadIdx.x / 32;
	Prepared w;
	load_weights(w, a);
	const int rows = a.step[0];
	inputs_ready();

	const int slot = t < rows ? a.row_slot[t] : -1, pos = a.row_pos[t];
	const bf16 *qkv = a.qkv + i64(t) * (NH + 2 * NKV) * HDIM;
#pragma unroll
	for (int r = 0; r < Prepared::rounds; r++) // before anything is known of the row, so that the loads overlap
		if (const int task = warp + r * WARPS; task < heads + 2)
			H::load(w.x[r], qkv + source_head(task, heads, head0, kv_head) * HDIM);
	if (slot < 0) {
		if (run == 0)
			for (int i = threadIdx.x; i < heads * HDIM; i += THREADS)
				store(a.o + (i64(t) * NH + head0) * HDIM + i, 0.0f);
		return;
	}
	const int chunks = pos / CHUNK + 1;
	const Runs runs = runs_of(chunks);
	if (run >= runs.n)
		return;
	const bool has_new = run == runs.n - 1;
	const int end = min((run + 1) * runs.chunks, chunks);
	const i32 *table = a.page_table + i64(slot) * MAX_PAGES;
	bf16 *const q_tile = reinterpret_cast<bf16 *>(smem), *const fresh = q_tile + 16 * (STRIDE / 2);
	const u32 ring = shared_address(fresh + 2 * HDIM) + warp * STAGES * STAGE_BYTES;
	int filled = run * runs.chunks + warp, to = 0; // the warp's next chunk and its stage
	auto fill = [&] {
		if (filled < end)
			fill_sixteen<HDIM, NKV, PAGE>(ring + to * STAGE_BYTES, a.kv, table, kv_head, filled * CHUNK, pos);
		copy_commit();
		filled += WARPS;
		to = to + 1 == STAGES ? 0 : to + 1;
	};
#pragma unroll
	for (int i = 0; i < STAGES - 1; i++)
		fill();

	bf16 *line = nullptr;
	if (has_new && in_group == 0)
		line = a.kv + ((i64(table[pos / PAGE]) * 2 * NKV + kv_head) * PAGE + pos % PAGE) * HDIM;
	prepare(w, pos, heads, has_new, q_tile, fresh, line);
	__syncthreads();
	Attention<HDIM, 1> state;
	attention_start(state, shared_address(q_tile), 0);
	const int last[1][2] = { { pos, pos } };
	int from = 0;
#pragma unroll 1
	for (int c = run * runs.chunks + warp; c < end; c += WARPS) {
		const u32 stage = ring + from * STAGE_BYTES;
		copy_wait<STAGES - 2>();
		__syncwarp(); // the chunk has arrived for all lanes, and all are done with the one before
		fill();
		const bool is_newest = c == chunks - 1;
		if (is_newest)
			insert(stage, pos % CHUNK, fresh);
		attention_step<CHUNK>(state, shared_address(q_tile), 0, stage, stage + CHUNK * STRIDE, c * CHUNK, last,
			is_newest, scale_log2);
		from = from + 1 == STAGES ? 0 : from + 1;
	}
	attention_finish(state);
	copy_wait<0>();
	__syncthreads();

	// the warps' sums become one: each warp's heads into the rings, which nobody uses any more
	float *const sums = reinterpret_cast<float *>(fresh + 2 * HDIM);
	static_assert(WARPS * HEADS * SUM_STRIDE * 4 <= WARPS * STAGES * STAGE_BYTES, "the warps' sums fit the rings");
	const int g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (g + 8 * i >= heads)
			continue;
		float *row = sums + (warp * HEADS + g + 8 * i) * SUM_STRIDE + quad * 2;
#pragma unroll
		for (int d = 0; d < HDIM / 8; d++)
			*reinterpret_cast<float2 *>(row + d * 8) = make_float2(state.o[0][d][2 * i], state.o[0][d][2 * i + 1]);
		if (quad == 0) {
			warp_ml[warp][g + 8 * i][0] = state.m[0][i];
			warp_ml[warp][g + 8 * i][1] = state.l[0][i];
		}
	}
	__syncthreads();
	const i64 head = i64(t) * NH + head0;
	for (int i = threadIdx.x; i < heads * (HDIM / 4); i += THREADS) {
		const int h = i / (HDIM / 4), d = i % (HDIM / 4) * 4;
		float m = warp_ml[0][h][0], l = 0.0f, sum[4] = {}; // the first warp of a run has a chunk: m is a number
#pragma unroll
		for (int k = 1; k < WARPS; k++)
			m = fmaxf(m, warp_ml[k][h][0]);
#pragma unroll
		for (int k = 0; k < WARPS; k++) {
			const float weight = exp2_fast(warp_ml[k][h][0] - m);
			const float4 x = *reinterpret_cast<const float4 *>(sums + (k * HEADS + h) * SUM_STRIDE + d);
			l = fmaf(warp_ml[k][h][1], weight, l);
			sum[0] = fmaf(x.x, weight, sum[0]);
			sum[1] = fmaf(x.y, weight, sum[1]);
			sum[2] = fmaf(x.z, weight, sum[2]);
			sum[3] = fmaf(x.w, weight, sum[3]);
		}
		if (runs.n == 1) {
			const float scale = 1.0f / l;
			*reinterpret_cast<uint2 *>(a.o + (head + h) * HDIM + d) =
				make_uint2(pack_bf16(sum[0] * scale, sum[1] * scale), pack_bf16(sum[2] * scale, sum[3] * scale));
			continue;
		}
		*reinterpret_cast<float4 *>(a.part + ((head + h) * SPLITS + run) * HDIM + d) =
			make_float4(sum[0], sum[1], sum[2], sum[3]);
		if (d == 0)
			*reinterpret_cast<float2 *>(a.part_ml + ((head + h) * SPLITS + run) * 2) = make_float2(m, l);
	}
	if (runs.n == 1)
		return;
	__syncthreads();
	if (threadIdx.x == 0)
		is_last = last_to_arrive(a.arrived + head, runs.n);
	__syncthreads();
	if (is_last)
		merge(a, head, heads, runs.n);
}
