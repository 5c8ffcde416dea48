// attend_runs.cuh - what attention of decode rows and of verify rows have alike: a history in runs, and their merging.
//
// Rows are computed by the warps of blocks that have a run of the history each (attn_step.cu tells why). Here: how
// many runs, q on its way into a tile, and how sums of runs become a result. A template that includes this has the
// operands of attention_step, the dims and attributes of its heads and cache, and the tunables SPLITS, WARPS, STAGES
// and CLUSTER: blocks beside each other in z that merge their runs (one before sm_90).
#pragma once

static_assert(NH % NKV == 0, "each kv head serves the same number of query heads");

using Past = History<KVT, HDIM, NKV, PAGE>;
constexpr bool is_codes = bits_of<KVT> < 16;
constexpr int THREADS = 32 * WARPS, CHUNK = Past::keys, STRIDE = tile_stride(Past::width);
constexpr int STAGE_BYTES = Past::stage_bytes, RING_BYTES = STAGES * STAGE_BYTES + Past::scratch_bytes; // of a warp
constexpr int SUM_STRIDE = HDIM + 8; // floats from line to line: rows of a fragment fall into different banks
constexpr int ALONE = 4 * WARPS;     // chunks that one block reads sooner than several could merge
#if __CUDA_ARCH__ >= 900 && CLUSTER > 1
#define TOGETHER __cluster_dims__(1, 1, CLUSTER)
constexpr int TEAM = CLUSTER; // blocks that merge their runs together
#else
#define TOGETHER
constexpr int TEAM = 1;
#endif
constexpr int SHARE = HDIM + 4; // floats of a line that a block hands to its team: sums, maximum, weights, two free
using H = Head<HDIM, ROTARY, ROTATE>;

// The runs of a history of some chunks: how many, and the chunks of each (the last may have fewer).
struct Runs { int n, chunks; };
__device__ __forceinline__ Runs runs_of(int chunks)
{
	const int wanted = chunks <= ALONE ? 1 : min(ceil_div(chunks, WARPS), SPLITS);
	const int each = ceil_div(chunks, wanted);
	return { ceil_div(chunks, each), each };
}

// The weights of norms, a lane's part of a head.
struct Norms { H::Pairs q, k; };

__device__ __forceinline__ void load_norms(Norms &w, const Args &a)
{
	if constexpr (Q_NORM)
		H::load(w.q, a.q_norm);
	if constexpr (K_NORM)
		H::load(w.k, a.k_norm);
}

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

	// `factor`: what all values were divided by; gate: what each element of the result is multiplied by
	__device__ __forceinline__ uint2 result(float factor, const float (&gate)[4]) const
	{
		const float scale = factor / l;
		return make_uint2(pack_bf16(x[0] * scale * gate[0], x[1] * scale * gate[1]),
			pack_bf16(x[2] * scale * gate[2], x[3] * scale * gate[3]));
	}
};

// thread level: what four elements of the result are multiplied by, from the first one's place in qkv
__device__ __forceinline__ void load_gates(float (&gate)[4], const bf16 *at)
{
	const uint2 x = *reinterpret_cast<const uint2 *>(at);
	gate[0] = sigmoid(low_bf16(x.x));
	gate[1] = sigmoid(high_bf16(x.x));
	gate[2] = sigmoid(low_bf16(x.y));
	gate[3] = sigmoid(high_bf16(x.y));
}
