// what      for each out row o in use, of slot s, over ids v < N_VALID:
//             penalties in place: counts != 0: l = l > 0 ? l / repetition : l * repetition; generated n times:
//             l -= presence; l -= frequency * n
//             temperature 0: the lowest id of the largest l; else z = l / temperature and of these stay, in this
//             order, the top_k largest and their equals, the fewest whose probability reaches top_p and the equals
//             of the last, those of at least min_p times the largest; then the lowest id of the largest z + g,
//             u = (x + 0.5) / 2^32 at most 1 - 2^-24, g = -log(-log1p(-u)), x = first word of Philox4x32-10 with
//             counter {v, position, 0, 0}, key {seed low, seed high}; position = row_pos + 1
//           out_logprob = log softmax(l)[token], penalised, before temperature and cuts
//           idle outs, and all outs of a scoring step: token -1, done 0, logprob 0, and no state changes
// numerics  cuts compare ordered integers and add probabilities as integers of 2^-32: the result does not depend on
//           the order of the additions. Same bits every run
// measured  tests/gpu/results
// why       one block an out: the row stays in L2. Cuts are found by counting into 2048 bins, first of equal width
//           below the maximum (values crowd in a few floating-point exponents, so bits would crowd in a few bins),
//           then by the bits of the value inside the bin that holds the threshold. Once top_k has left few enough,
//           they are gathered in shared memory and the row is not read again
// Philox: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011
#include "contract.cuh"
#include "types.cuh"

KERNEL(sample, sample)
ARCH(80)
NUMERICS(f32, batch_invariant)
DIM(ROWS, 1)
DIM(OUTS, 1)
DIM(SLOTS, 8)
DIM(V, 49152)
DIM(STOPS, 2)
ATTR_INT(N_VALID, 49152)
REQUIRE(N_VALID >= 1 && N_VALID <= V)
GRID(OUTS, 1, 1)
BLOCK(1024)
SMEM(0)
READS(OUTS * (V * 8 + 128))
WRITES(OUTS * 24)
FLOPS(OUTS * V * 4)
struct Args {
	IN(i32, step, "4");
	INOUT(f32, logits, "OUTS, V");
	IN(i32, out_row, "OUTS");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(f32, sampling, "SLOTS, 8");
	IN(i32, limits, "SLOTS, 8");
	IN(i32, stop_tokens, "STOPS");
	INOUT(i32, counts, "SLOTS, V");
	INOUT(i32, slot_token, "SLOTS");
	INOUT(i32, slot_len, "SLOTS");
	OUT(i32, out_token, "OUTS");
	OUT(i32, out_done, "OUTS");
	OUT(f32, out_logprob, "OUTS");
};

static_assert(N_VALID <= V, "only rows of the vocabulary can be sampled");

constexpr int THREADS = 1024, BINS = 2048, LIST = 2048;
constexpr i32 GENERATED = (1 << 30) - 1; // bits of counts below the prompt's mark

struct Shared {
	u64 bins[BINS];
	u64 warps[32];
	u64 before; // weight above the bin that holds the threshold
	int bin, n_listed;
	float list_z[LIST];
	int list_id[LIST];
};

// An integer that orders like the float.
__device__ __forceinline__ u32 order_of(float x)
{
	const u32 b = __float_as_uint(x);
	return b & 0x80000000u ? ~b : b | 0x80000000u;
}

__device__ __forceinline__ float value_of(u32 order)
{
	return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

// The larger value wins, then the lower id.
__device__ __forceinline__ u64 contender(float value, int id) { return u64(order_of(value)) << 32 | u32(~id); }

// block level
__device__ __forceinline__ u64 block_max(Shared &s, u64 x)
{
#pragma unroll
	for (int m = 16; m; m >>= 1)
		x = max(x, __shfl_xor_sync(~0u, x, m));
	if (threadIdx.x % 32 == 0)
		s.warps[threadIdx.x / 32] = x;
	__syncthreads();
	x = s.warps[threadIdx.x % 32];
#pragma unroll
	for (int m = 16; m; m >>= 1)
		x = max(x, __shfl_xor_sync(~0u, x, m));
	__syncthreads();
	return x;
}

__device__ __forceinline__ float block_add(Shared &s, float x)
{
#pragma unroll
	for (int m = 16; m; m >>= 1)
		x += __shfl_xor_sync(~0u, x, m);
	if (threadIdx.x % 32 == 0)
		s.warps[threadIdx.x / 32] = __float_as_uint(x);
	__syncthreads();
	x = __uint_as_float(u32(s.warps[threadIdx.x % 32]));
#pragma unroll
	for (int m = 16; m; m >>= 1)
		x += __shfl_xor_sync(~0u, x, m);
	__syncthreads();
	return x;
}

// block level: the first bin at which the running weight reaches `want`, into s.bin; what lies before it, into
// s.before. With less than `want` in all bins: the last bin. Bins are zero again on return.
__device__ __forceinline__ void find_bin(Shared &s, u64 want)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	__syncthreads();
	const u64 x0 = s.bins[2 * threadIdx.x], x1 = s.bins[2 * threadIdx.x + 1];
	u64 upto = x0 + x1;
#pragma unroll
	for (int d = 1; d < 32; d *= 2) {
		const u64 left = __shfl_up_sync(~0u, upto, d);
		if (lane >= d)
			upto += left;
	}
	if (lane == 31)
		s.warps[warp] = upto;
	__syncthreads();
	u64 warps_before = 0, total = 0;
	for (int w = 0; w < 32; w++) {
		if (w < warp)
			warps_before += s.warps[w];
		total += s.warps[w];
	}
	upto += warps_before;
	want = max(min(want, total), u64(1));
	const u64 begin = upto - x0 - x1;
	if (begin < want && want <= upto) {
		const bool second = begin + x0 < want;
		s.bin = 2 * threadIdx.x + second;
		s.before = second ? begin + x0 : begin;
	}
	s.bins[2 * threadIdx.x] = 0;
	s.bins[2 * threadIdx.x + 1] = 0;
	__syncthreads();
}

__device__ __forceinline__ u32 philox(u32 v, u32 position, u32 key0, u32 key1)
{
	u32 c0 = v, c1 = position, c2 = 0, c3 = 0;
#pragma unroll
	for (int round = 0; round < 10; round++) {
		const u32 n0 = __umulhi(c2, 0xCD9E8D57u) ^ c1 ^ key0, n1 = c2 * 0xCD9E8D57u;
		const u32 n2 = __umulhi(c0, 0xD2511F53u) ^ c3 ^ key1, n3 = c0 * 0xD2511F53u;
		c0 = n0;
		c1 = n1;
		c2 = n2;
		c3 = n3;
		key0 += 0x9E3779B9u;
		key1 += 0xBB67AE85u;
	}
	return c0;
}

__device__ __forceinline__ float gumbel(u32 x)
{
	const float u = fminf((float(x) + 0.5f) * 2.3283064365386963e-10f, 0.99999994f);
	return -logf(-log1pf(-u));
}

// The values that may still win: the row, or the list once it holds them all; those below `floor` are cut.
struct Candidates {
	const float *logits;
	float temperature, top; // top: the largest z
	u32 floor;
	bool listed;

	// Calls f(z, id) for each that stayed; every thread of the block takes its share.
	template <class F> __device__ __forceinline__ void each(const Shared &s, F f) const
	{
		const int n = listed ? s.n_listed : N_VALID;
		for (int i = threadIdx.x; i < n; i += THREADS) {
			const float z = listed ? s.list_z[i] : logits[i] / temperature;
			if (order_of(z) >= floor)
				f(z, listed ? s.list_id[i] : i);
		}
	}

	// Bins of width 1/64 below the top; the last one takes the rest.
	__device__ __forceinline__ int bin(float z) const { return int(fminf((top - z) * 64.0f, float(BINS - 1))); }
};

// Probability in 2^-32 of the largest; below 2^18 of them stay below 2^50.
__device__ __forceinline__ u64 mass_of(float z, float top) { return u64(expf(z - top) * 4294967296.0f); }

// block level: raises the floor to the largest threshold at which what reaches it weighs at least `want`.
template <class Weight> __device__ __forceinline__ void cut(Shared &s, Candidates &c, u64 want, bool gather, Weight weight)
{
	c.each(s, [&](float z, int) { atomicAdd(&s.bins[c.bin(z)], weight(z)); });
	find_bin(s, want);
	const int bin = s.bin;
	want -= s.before;
	if (gather && !c.listed) {
		if (threadIdx.x == 0)
			s.n_listed = 0;
		__syncthreads();
		c.each(s, [&](float z, int id) {
			if (c.bin(z) > bin)
				return;
			const int at = atomicAdd(&s.n_listed, 1);
			if (at < LIST) {
				s.list_z[at] = z;
				s.list_id[at] = id;
			}
		});
		__syncthreads();
		c.listed = s.n_listed <= LIST;
	}
	u32 prefix = 0;
	auto digit = [&](int shift, int width) {
		const u32 mask = (1u << width) - 1;
		c.each(s, [&](float z, int) {
			const u32 order = order_of(z);
			if (c.bin(z) == bin && (shift + width == 32 || order >> (shift + width) == prefix))
				atomicAdd(&s.bins[mask - (order >> shift & mask)], weight(z));
		});
		find_bin(s, want);
		prefix = prefix << width | (mask - s.bin);
		want -= s.before;
	};
	digit(21, 11);
	digit(10, 11);
	digit(0, 10);
	c.floor = max(c.floor, prefix);
	__syncthreads();
}

// block level: temperature, cuts and the draw
__device__ __forceinline__ int draw(Shared &s, Candidates &c, const float *sampling, const i32 *limits, int position)
{
	const float top_p = sampling[1], min_p = sampling[2];
	const int top_k = limits[0];
	s.bins[2 * threadIdx.x] = 0;
	s.bins[2 * threadIdx.x + 1] = 0;
	__syncthreads();
	if (top_k > 0 && top_k < N_VALID)
		cut(s, c, top_k, true, [](float) { return u64(1); });
	if (top_p < 1.0f) {
		const float top = c.top;
		if (threadIdx.x == 0)
			s.before = 0;
		__syncthreads();
		u64 mine = 0;
		c.each(s, [&](float z, int) { mine += mass_of(z, top); });
#pragma unroll
		for (int m = 16; m; m >>= 1)
			mine += __shfl_xor_sync(~0u, mine, m);
		if (threadIdx.x % 32 == 0)
			atomicAdd(&s.before, mine);
		__syncthreads();
		const u64 want = u64(double(top_p) * double(s.before));
		__syncthreads();
		cut(s, c, want, false, [top](float z) { return mass_of(z, top); });
	}
	u64 best = 0;
	const u32 key0 = limits[1], key1 = limits[2];
	c.each(s, [&](float z, int id) {
		if (z < c.top && expf(z - c.top) < min_p)
			return;
		best = max(best, contender(z + gumbel(philox(id, position, key0, key1)), id));
	});
	return int(~u32(block_max(s, best)));
}

extern "C" __global__ void __launch_bounds__(THREADS) sample(const Args a)
{
	__shared__ Shared s;
	const int o = blockIdx.x;
	const int t = o < a.step[1] && !(a.step[3] & 1) ? a.out_row[o] : -1;
	const int slot = t < 0 ? -1 : a.row_slot[t];
	if (slot < 0) {
		if (threadIdx.x == 0) {
			a.out_token[o] = -1;
			a.out_done[o] = 0;
			a.out_logprob[o] = 0.0f;
		}
		return;
	}
	float *const logits = a.logits + i64(o) * V;
	i32 *const counts = a.counts + i64(slot) * V;
	const float *const sampling = a.sampling + slot * 8;
	const float repetition = sampling[3], presence = sampling[4], frequency = sampling[5];
	const bool penalised = repetition != 1.0f || presence != 0.0f || frequency != 0.0f;

	// penalties, the largest value, and the softmax's sum relative to each thread's own running maximum
	u64 best = 0;
	float m = minus_infinity(), sum = 0.0f;
#pragma unroll 4
	for (int v = threadIdx.x; v < N_VALID; v += THREADS) {
		float l = logits[v];
		if (penalised) {
			const i32 count = counts[v], n = count & GENERATED;
			if (count) {
				l = l > 0.0f ? l / repetition : __fmul_rn(l, repetition); // _rn: never fused into one rounding
				if (n)
					l = __fsub_rn(__fsub_rn(l, presence), __fmul_rn(frequency, float(n)));
				logits[v] = l;
			}
		}
		best = max(best, contender(l, v));
		if (l > m) {
			sum = sum * expf(m - l) + 1.0f;
			m = l;
		} else {
			sum += expf(l - m);
		}
	}
	best = block_max(s, best);
	int token = int(~u32(best));
	const float top = value_of(u32(best >> 32));
	sum = block_add(s, m == minus_infinity() ? 0.0f : sum * expf(m - top));

	const int position = a.row_pos[t] + 1;
	const i32 *const limits = a.limits + slot * 8;
	if (sampling[0] > 0.0f) {
		Candidates c = { logits, sampling[0], top / sampling[0], 0, false };
		token = draw(s, c, sampling, limits, position);
	}
	if (threadIdx.x)
		return;
	int done = position >= limits[3] ? 2 : 0;
	for (int i = 0; i < STOPS; i++)
		if (a.stop_tokens[i] == token)
			done = 1;
	counts[token]++;
	a.slot_token[slot] = token;
	a.slot_len[slot] = position;
	a.out_token[o] = token;
	a.out_done[o] = done;
	a.out_logprob[o] = logits[token] - top - logf(sum);
}
