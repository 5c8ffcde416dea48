// attend_runs.cuh - what attention of decode rows and of verify rows have alike: a history in runs, and their merging.
//
// Rows are computed by the warps of blocks that have a run of the history each (attn_step.cu tells why). Here: how
// many runs, q on its way into a tile, and how sums of runs become a result. A template that includes this has the
// operands of attention_step, the dims and attributes of its heads and cache, and the tunables SPLITS (blocks that
// share a history), WARPS, STAGES, CLUSTER (blocks beside each other in z that merge their runs; one before sm_90) and
// RUN.
//
// RUN = 0: a history has as many runs as blocks, so SPLITS decides how sums are grouped. RUN > 0: runs have RUN
// positions, more where there would be more than MOST of them, and a block takes several where there are more runs
// than blocks. The sums of each run are added to those of all before it, one run after the other, whichever blocks
// have computed them: bits do not depend on SPLITS. Where one block has all runs it adds them up as it goes; else each
// run is a part in memory.
#pragma once

static_assert(NH % NKV == 0, "each kv head serves the same number of query heads");

using Past = History<KVT, HDIM, NKV, PAGE>;
constexpr bool is_codes = bits_of<KVT> < 16;
constexpr int THREADS = 32 * WARPS, CHUNK = Past::keys, STRIDE = tile_stride(Past::width);
constexpr int STAGE_BYTES = Past::stage_bytes, RING_BYTES = STAGES * STAGE_BYTES + Past::scratch_bytes; // of a warp
constexpr int VALUES = Past::v_columns, PARTS_OF_V = HDIM / VALUES; // columns of values that a block takes; blocks
constexpr int SUM_STRIDE = VALUES + 8; // floats from line to line: rows of a fragment fall into different banks
constexpr int ALONE = 4 * WARPS;     // chunks that one block reads sooner than several could merge
enum : int {
	MOST = 32,                                              // runs of RUN or more positions
	SEVERAL = RUN > 0 && SPLITS < MOST,                     // may a block take several runs?
	PARTS = RUN == 0 ? SPLITS : SPLITS == 1 ? 1 : int(MOST) // of a line, in memory
};
#if __CUDA_ARCH__ >= 900 && CLUSTER > 1
#define TOGETHER __cluster_dims__(1, 1, CLUSTER)
constexpr int TEAM = CLUSTER; // blocks that merge their runs together
#else
#define TOGETHER
constexpr int TEAM = 1;
#endif
constexpr int SHARE = VALUES + 4; // floats of a line that a block hands to its team: sums, maximum, weights, two free
using H = Head<HDIM, ROTARY, NEIGHBOURS, ROTATE>;
constexpr int REACH = reach_of(WINDOW, CHUNKED);

// The first chunk that a row at that position sees something of.
__device__ __forceinline__ int first_chunk(int pos) { return WINDOW > 0 ? max(first_seen<REACH>(pos), 0) / CHUNK : 0; }

// The runs of a history of some chunks: how many, and the chunks of each (the last may have fewer).
struct Runs { int n, chunks; };
__device__ __forceinline__ Runs runs_of(int chunks)
{
	if constexpr (RUN > 0) { // warps have equally many chunks of each run but the last
		static_assert(RUN % (WARPS * CHUNK) == 0 && SPLITS <= MOST, "whole rounds of the warps");
		const int each = chunks <= MOST * (RUN / CHUNK) ? RUN / CHUNK
			: ceil_div(ceil_div(chunks, MOST), WARPS) * WARPS;
		return { ceil_div(chunks, each), each };
	}
	const int wanted = chunks <= ALONE ? 1 : min(ceil_div(chunks, WARPS), SPLITS);
	const int each = ceil_div(chunks, wanted);
	return { ceil_div(chunks, each), each };
}

// Of n runs, how many a block takes, one after the other; the last that has any may take fewer. How many blocks have
// any.
__device__ __forceinline__ int runs_each(int n) { return SEVERAL != 0 ? ceil_div(n, SPLITS) : 1; }

__device__ __forceinline__ int blocks_of(int n)
{
	return SEVERAL == 0 ? n : SPLITS == 1 ? 1 : ceil_div(n, runs_each(n));
}

#if VERIFY
constexpr bool IS_WHOLE = false;
#else
constexpr bool IS_WHOLE = NORM_WHOLE != 0; // norms of q and k are over all heads of the row
#endif

// The weights of norms, a lane's part of a head.
struct Norms { H::Pairs q, k, v; };

__device__ __forceinline__ void load_norms(Norms &w, const Args &a)
{
	if constexpr (Q_NORM && !IS_WHOLE)
		H::load(w.q, a.q_norm);
	if constexpr (K_NORM && !IS_WHOLE)
		H::load(w.k, a.k_norm);
#if EXTRAS
	if constexpr (V_NORM)
		H::load(w.v, a.v_norm);
#endif
}

// thread level: v of a head as the cache gets it
__device__ __forceinline__ void norm_value(H::Pairs &x, const Norms &w)
{
#if EXTRAS
	if constexpr (V_NORM)
		H::norm(x, w.v, NORM_ONE != 0, float(EPS));
#endif
}

// thread level: of a head, the sum of weights l, relative to their maximum m, with its sink
__device__ __forceinline__ float all_weights(const Args &a, int head, float m, float l)
{
#if EXTRAS
	if constexpr (SINKS)
		return add_sink(l, m, a.sinks, head);
#endif
	return l;
}

// Heads of a row of qkv, and the first of values and of gates among them.
constexpr int FIRST_V = V_IS_K ? NH : NH + NKV, FIRST_GATE = FIRST_V + NKV, ROW_HEADS = FIRST_GATE + GATED * NH;

// warp level: a head of q becomes a row of its tile, in f16 (history.cuh) by a power of two, `up` what it takes back
__device__ __forceinline__ void put_q(bf16 *row, float *up, const H::Pairs &x)
{
	float down = 1.0f;
	if constexpr (Past::is_half) {
		u32 largest = 0;
#pragma unroll
		for (int j = 0; j < H::pairs; j++)
			largest = max(largest, max(__float_as_uint(fabsf(x[j][0])), __float_as_uint(fabsf(x[j][1]))));
#pragma unroll
		for (int m = 16; m; m >>= 1)
			largest = max(largest, __shfl_xor_sync(~0u, largest, m));
		const u32 exponent = max(largest >> 23, 20u);
		down = __uint_as_float((261u - exponent) << 23);
		*up = __uint_as_float((exponent - 7u) << 23);
	}
#pragma unroll
	for (int j = 0; j < H::pairs; j++)
#pragma unroll
		for (int e = 0; e < 2; e++)
			if (H::exists(j)) {
				bf16 *to = row + Past::column(H::element(j, e));
				if constexpr (Past::is_half)
					to->bits = static_cast<unsigned short>(pack_f16(x[j][e] * down, 0.0f));
				else
					store(to, x[j][e]);
			}
}

// Four elements of BATCH runs of a line, each with its maximum and its sum of weights, in ascending order: part(i) is
// the i-th's float4, pair(i) those two. Runs from n on are not there.
template <int BATCH> struct Parts {
	float4 v[BATCH];
	float2 ml[BATCH];

	template <class Part, class Pair> __device__ __forceinline__ void load(int n, Part part, Pair pair)
	{
#pragma unroll
		for (int i = 0; i < BATCH; i++) {
			v[i] = part(min(i, n - 1));
			ml[i] = pair(min(i, n - 1));
		}
	}
};

// Sums of some runs of a line, relative to their maximum: four elements of the head.
struct Sums {
	float m, l, x[4];

	__device__ __forceinline__ Sums() : m(minus_infinity()), l(0.0f), x {} {}

	// Adds the first n parts. The first of all is never empty, so the maximum is a number.
	template <int BATCH> __device__ __forceinline__ void add(const Parts<BATCH> &p, int n)
	{
		float top = m;
#pragma unroll
		for (int i = 0; i < BATCH; i++)
			top = fmaxf(top, p.ml[i].x);
		const float shrink = exp2_fast(m - top);
		m = top;
		l *= shrink;
#pragma unroll
		for (int e = 0; e < 4; e++)
			x[e] *= shrink;
#pragma unroll
		for (int i = 0; i < BATCH; i++) {
			const float weight = i < n ? exp2_fast(p.ml[i].x - m) : 0.0f;
			l = fmaf(p.ml[i].y, weight, l);
			x[0] = fmaf(p.v[i].x, weight, x[0]);
			x[1] = fmaf(p.v[i].y, weight, x[1]);
			x[2] = fmaf(p.v[i].z, weight, x[2]);
			x[3] = fmaf(p.v[i].w, weight, x[3]);
		}
	}

	template <int BATCH, class Part, class Pair> __device__ __forceinline__ void add(int n, Part part, Pair pair)
	{ // as Parts::load takes them
		Parts<BATCH> p;
		p.load(n, part, pair);
		add(p, n);
	}

	// Adds the sums of the next run, which has seen something.
	__device__ __forceinline__ void follow(float4 v, float2 ml)
	{
		const float top = fmaxf(m, ml.x), shrink = exp2_fast(m - top), weight = exp2_fast(ml.x - top);
		m = top;
		l = fmaf(ml.y, weight, __fmul_rn(l, shrink));
		x[0] = fmaf(v.x, weight, __fmul_rn(x[0], shrink));
		x[1] = fmaf(v.y, weight, __fmul_rn(x[1], shrink));
		x[2] = fmaf(v.z, weight, __fmul_rn(x[2], shrink));
		x[3] = fmaf(v.w, weight, __fmul_rn(x[3], shrink));
	}

	// Adds the first n runs of p in the order that the contract states. One that is not there changes no bit, the sign
	// of a zero included, and no branch keeps the exponentials of all runs from being under way at once.
	template <int BATCH> __device__ __forceinline__ void join(const Parts<BATCH> &p, int n)
	{
		if constexpr (RUN == 0)
			add(p, n);
		else
#pragma unroll
			for (int i = 0; i < BATCH; i++)
				follow(i < n ? p.v[i] : make_float4(-0.0f, -0.0f, -0.0f, -0.0f),
					i < n ? p.ml[i] : make_float2(minus_infinity(), 0.0f));
	}

	template <int BATCH, class Part, class Pair> __device__ __forceinline__ void join(int n, Part part, Pair pair)
	{
		if constexpr (RUN == 0) {
			add<BATCH>(n, part, pair);
		} else {
			Parts<BATCH> p;
			p.load(n, part, pair);
			join(p, n);
		}
	}

	// `factor`: what all values were divided by; gate: what each element of the result is multiplied by; head: whose
	// sink is one weight more
	__device__ __forceinline__ uint2 result(const Args &a, int head, float factor, const float (&gate)[4]) const
	{
		const float scale = factor / all_weights(a, head, m, l);
		return make_uint2(pack_bf16(x[0] * scale * gate[0], x[1] * scale * gate[1]),
			pack_bf16(x[2] * scale * gate[2], x[3] * scale * gate[3]));
	}
};

// Where the warps' sums of a run lie, LINES of each warp: together, or at the same place of each warp's ring.
template <int LINES, bool IN_RINGS> struct Handed {
	float *at;

	__device__ __forceinline__ float *line(int warp, int i, int more = 0) const
	{
		return IN_RINGS ? at + warp * (RING_BYTES / 4) + (i + more) * SUM_STRIDE
			: at + (warp * LINES + i + more) * SUM_STRIDE;
	}
};

// Sums of the runs that a block is through with, in shared memory: of each item, four elements of a line, which only
// one thread touches.
template <int ITEMS> struct Totals {
	float4 *x; // [ITEMS], then their maxima and sums of weights

	__device__ __forceinline__ float *end() const { return reinterpret_cast<float *>(x) + ITEMS * 6; }

	// s, of the block's next run, becomes all up to it
	__device__ __forceinline__ void add_to(Sums &s, int item, bool is_first) const
	{
		const float2 *ml = reinterpret_cast<const float2 *>(x + ITEMS) + item;
		Sums all;
		if (!is_first) {
			const float4 v = x[item];
			all.x[0] = v.x;
			all.x[1] = v.y;
			all.x[2] = v.z;
			all.x[3] = v.w;
			all.m = ml->x;
			all.l = ml->y;
		}
		all.follow(make_float4(s.x[0], s.x[1], s.x[2], s.x[3]), make_float2(s.m, s.l));
		s = all;
	}

	__device__ __forceinline__ void keep(const Sums &s, int item) const
	{
		x[item] = make_float4(s.x[0], s.x[1], s.x[2], s.x[3]);
		reinterpret_cast<float2 *>(x + ITEMS)[item] = make_float2(s.m, s.l);
	}
};

// Bytes of a block's totals of so many lines and, where a stage has no room for them, of its warps' sums of a run.
constexpr int bytes_of_totals(int lines)
{
	return SEVERAL == 0 ? 0
		: lines * VALUES * 6 + (lines * SUM_STRIDE * 4 <= STAGE_BYTES ? 0 : WARPS * lines * SUM_STRIDE * 4);
}

// warp level: nothing seen, q as it is
template <class State> __device__ __forceinline__ void restart(State &s)
{
#pragma unroll
	for (int d = 0; d < State::values / 8; d++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			s.o[0][d][i] = 0.0f;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		s.m[0][i] = minus_infinity();
		s.l[0][i] = 0.0f;
	}
}

// thread level: what four elements of the result are multiplied by, from the first one's place in qkv
__device__ __forceinline__ void load_gates(float (&gate)[4], const bf16 *at)
{
	const uint2 x = *reinterpret_cast<const uint2 *>(at);
	gate[0] = sigmoid(low_bf16(x.x));
	gate[1] = sigmoid(high_bf16(x.x));
	gate[2] = sigmoid(low_bf16(x.y));
	gate[3] = sigmoid(high_bf16(x.y));
}
