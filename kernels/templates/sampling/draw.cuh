// draw.cuh - the token that a row of logits comes to: the stage of logits (runtime/cpu/ref_slots.c), by a team of
// blocks.
//
// Penalties in place, then greedy, or temperature, top-k, top-p, min-p and Gumbel-max; the log probability besides:
// sample.cu has the formulas. What the head has left of each part of the vocabulary (best.cuh) gives the maximum and
// the sum of a row without penalties, and decides a greedy draw from it.
//
// Cuts are found by counting into 2048 bins, first of equal width below the maximum (values crowd in a few
// floating-point exponents, so their bits would crowd in a few bins), then by the bits of the value inside the bin that
// holds the threshold. They compare ordered integers and add probabilities as integers of 2^-31, so the result does not
// depend on the order of the additions. When few enough values may still win, they are gathered in shared memory and
// the row is not read again. Bins are pairs of 32-bit words, which shared memory adds in one instruction, 64 bits in a
// loop that contention stretches: sums of 16-bit halves, or a carry where a slice is too long for them.
// The noise costs most where nothing is cut: a value whose z and a cheap bound of its noise stay below what another
// thread of the block has cannot win, and its division and logarithms are left out. No result depends on it.
// Philox: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011
//
// Rules of the slot (rules.cuh) change some logits for the draw alone. Thread i of each block has rule i: where its
// token's column is in the block's slice, the thread changes the logit, and puts it back when the token is drawn.
//
// A masked slot draws of the ids whose bits are set in its mask: the logits are read as -inf where a bit is clear, and
// what is -inf takes no part in the draw. A warp's values of one read share a word of the mask. The maximum and the sum
// are those without it.
//
// An id here is a column of the logits. Which token that is, Ids says: counts, drafts and the noise go by tokens.
//
// A template that draws has the dims V and PARTS, the attribute N_VALID, and the tunable CLUSTER: blocks a row, a slice
// of it each (one before sm_90). Its grid is (CLUSTER, rows or outs, 1), its block 512.
#pragma once
#include "shared/arrive.cuh"
#include "sampling/rules.cuh"

constexpr int THREADS = 512, BINS = 2048, LIST = 2048; // of a block
#if __CUDA_ARCH__ >= 900 && CLUSTER > 1
#define TOGETHER __cluster_dims__(CLUSTER, 1, 1)
constexpr int TEAM = CLUSTER; // blocks that share an out, a slice of the vocabulary each
#else
#define TOGETHER
constexpr int TEAM = 1;
#endif
constexpr int SLICE = ((N_VALID + TEAM - 1) / TEAM + 31) / 32 * 32;
constexpr bool HALVES = SLICE <= 65536; // sums of 16-bit halves of that many weights stay below 2^32
// Values a thread has under way: the row comes from L2, one block must hide its latency. Where each value costs much
// arithmetic a few suffice, and the code stays small: it is compiled for every vocabulary and bucket.
constexpr int LIGHT = 16, HEAVY = 2;
constexpr i32 GENERATED = (1 << 30) - 1; // bits of counts below the prompt's mark

// Tokens of columns: a table of ascending ones, or the columns themselves.
template <bool HAS_TABLE> struct Ids {
	const i32 *table;
	__device__ __forceinline__ int operator[](int v) const
	{
		if constexpr (HAS_TABLE)
			return table[v];
		return v;
	}

	// thread level: the column of a token, or -1
	__device__ __forceinline__ int column_of(int token) const
	{
		if constexpr (HAS_TABLE) {
			int low = 0, high = N_VALID; // it is in [low, high), if anywhere
			while (high - low > 1) {
				const int middle = (low + high) / 2;
				if (table[middle] <= token)
					low = middle;
				else
					high = middle;
			}
			return table[low] == token ? low : -1;
		}
		return token < N_VALID ? token : -1;
	}
};

struct alignas(16) Shared {
	u32 low[BINS], high[BINS]; // weight in a bin of the slice: its lower and upper halves apart, or 64 bits
	u64 warps[THREADS / 32];
	u64 told[2]; // what the block tells its team, in turns
	int turn;
	u64 before; // weight above the bin that holds the threshold
	const u32 *mask; // of the slot; NULL = there is none
	int rank; // in the team
	int bin, n_listed;
	u32 bar; // order of the largest z + g that any thread of the block has
	float list_l[LIST];
	int list_id[LIST];
};

// block level: what the others of the block know of the draw
__device__ __forceinline__ void begin_draw(Shared &s, int rank, const u32 *mask)
{
	if (threadIdx.x == 0) {
		s.rank = rank;
		s.turn = 0;
		s.mask = mask;
	}
	__syncthreads();
}

// thread level: -inf for ids first, first + THREADS and so on whose bits are clear. Their words are read where there
// are values: not behind the end.
template <int BATCH> __device__ __forceinline__ void forbid(const u32 *mask, int first, float (&l)[BATCH])
{
#pragma unroll
	for (int j = 0; j < BATCH; j++)
		if (l[j] > minus_infinity() && !(__ldg(mask + (first + j * THREADS) / 32) >> threadIdx.x % 32 & 1))
			l[j] = minus_infinity();
}

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

// team level
__device__ __forceinline__ void meet()
{
	if constexpr (TEAM > 1)
		team_meet();
	else
		__syncthreads();
}

// team level: what each block of the team tells, in the order of their ranks, through f(rank, value)
template <class F> __device__ __forceinline__ void hear(Shared &s, u64 mine, F f)
{
	if constexpr (TEAM == 1) {
		f(0, mine);
	} else {
		const int turn = s.turn;
		__syncthreads();
		if (threadIdx.x == 0) {
			s.told[turn] = mine; // all have read what stood there: they have met since
			s.turn = turn ^ 1;
		}
		team_meet();
#pragma unroll
		for (int r = 0; r < TEAM; r++)
			f(r, load2_of_rank(at_rank(&s.told[turn], r)));
	}
}

// block level
__device__ __forceinline__ u64 block_max(Shared &s, u64 x)
{
#pragma unroll
	for (int m = 16; m; m >>= 1)
		x = max(x, __shfl_xor_sync(~0u, x, m));
	if (threadIdx.x % 32 == 0)
		s.warps[threadIdx.x / 32] = x;
	__syncthreads();
	x = s.warps[threadIdx.x % (THREADS / 32)];
#pragma unroll
	for (int m = THREADS / 64; m; m >>= 1)
		x = max(x, __shfl_xor_sync(~0u, x, m));
	__syncthreads();
	return x;
}

// team level
__device__ __forceinline__ u64 team_max(Shared &s, u64 x)
{
	u64 all = 0;
	hear(s, block_max(s, x), [&](int, u64 theirs) { all = max(all, theirs); });
	return all;
}

// block level
__device__ __forceinline__ float block_add(Shared &s, float x)
{
#pragma unroll
	for (int m = 16; m; m >>= 1)
		x += __shfl_xor_sync(~0u, x, m);
	if (threadIdx.x % 32 == 0)
		s.warps[threadIdx.x / 32] = __float_as_uint(x);
	__syncthreads();
	x = __uint_as_float(u32(s.warps[threadIdx.x % (THREADS / 32)]));
#pragma unroll
	for (int m = THREADS / 64; m; m >>= 1)
		x += __shfl_xor_sync(~0u, x, m);
	__syncthreads();
	return x;
}

// thread level: nobody waits for an old value, unless 64 bits need a carry
__device__ __forceinline__ void add_to_bin(Shared &s, int bin, u32 weight, bool is_count)
{
	if (is_count) {
		atomicAdd(&s.low[bin], weight);
	} else if (HALVES) {
		atomicAdd(&s.low[bin], weight & 0xffffu);
		if (weight >> 16)
			atomicAdd(&s.high[bin], weight >> 16);
	} else if (weight) {
		const u32 old = atomicAdd(&s.low[bin], weight);
		if (old + weight < old)
			atomicAdd(&s.high[bin], 1u);
	}
}

// How much weight a cut keeps: `count` of it, or `share` of all that is there.
struct Want {
	u64 count;
	float share; // 0 = count holds
};

// team level: the weight in four neighbouring bins of all slices
__device__ __forceinline__ void weights_of_bins(Shared &s, int first, u64 (&x)[4])
{
	constexpr int shift = HALVES ? 16 : 32;
#pragma unroll
	for (int i = 0; i < 4; i++)
		x[i] = 0;
#pragma unroll
	for (int r = 0; r < TEAM; r++) {
		uint4 low, high;
		if constexpr (TEAM == 1) {
			low = *reinterpret_cast<const uint4 *>(s.low + first);
			high = *reinterpret_cast<const uint4 *>(s.high + first);
		} else {
			low = load4_of_rank(at_rank(s.low + first, r));
			high = load4_of_rank(at_rank(s.high + first, r));
		}
		x[0] += (u64(high.x) << shift) + low.x;
		x[1] += (u64(high.y) << shift) + low.y;
		x[2] += (u64(high.z) << shift) + low.z;
		x[3] += (u64(high.w) << shift) + low.w;
	}
}

// team level: the first bin at which the running weight of all slices reaches what is wanted, into s.bin; what is still
// wanted of that bin is returned. Bins are zero again on return.
__device__ __noinline__ u64 find_bin(Shared &s, Want want)
{
	constexpr int mine = BINS / THREADS;
	static_assert(mine == 4, "a thread has four bins");
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = mine * threadIdx.x;
	meet();
	u64 x[mine], sum = 0;
	weights_of_bins(s, first, x);
#pragma unroll
	for (int i = 0; i < mine; i++)
		sum += x[i];
	u64 upto = sum;
#pragma unroll
	for (int d = 1; d < 32; d *= 2) {
		const u64 left = __shfl_up_sync(~0u, upto, d);
		if (lane >= d)
			upto += left;
	}
	if (lane == 31)
		s.warps[warp] = upto;
	meet(); // and all have read the bins
	u64 total = 0;
	for (int w = 0; w < THREADS / 32; w++) {
		if (w == warp)
			upto += total;
		total += s.warps[w];
	}
	const u64 count = want.share > 0.0f ? u64(double(want.share) * double(total)) : want.count;
	const u64 target = max(min(count, total), u64(1));
	u64 before = upto - sum;
#pragma unroll
	for (int i = 0; i < mine; i++) {
		s.low[first + i] = s.high[first + i] = 0;
		if (before < target && target <= before + x[i]) {
			s.bin = first + i;
			s.before = before;
		}
		before += x[i];
	}
	__syncthreads();
	return target - s.before;
}

// thread level: the penalties of an id that occurs, generated n times. _rn: never fused into one rounding
__device__ __forceinline__ float penalise(float l, i32 n, const float *sampling)
{
	const float repetition = sampling[3], presence = sampling[4], frequency = sampling[5];
	l = l > 0.0f ? l / repetition : __fmul_rn(l, repetition);
	return n ? __fsub_rn(__fsub_rn(l, presence), __fmul_rn(frequency, float(n))) : l;
}

// thread level: both halves by one instruction, where the compiler makes two of an ordinary product
__device__ __forceinline__ u64 wide_product(u32 a, u32 b)
{
	u64 y;
	asm("mul.wide.u32 %0, %1, %2;" : "=l"(y) : "r"(a), "r"(b));
	return y;
}

// The words of four tokens from 4 * block on.
struct Noise { u32 word[4]; };

__device__ __forceinline__ Noise philox(u32 block, u32 position, u32 key0, u32 key1)
{
	u32 c0 = block, c1 = position, c2 = 0, c3 = 0;
#pragma unroll
	for (int round = 0; round < 10; round++) {
		const u64 a = wide_product(c2, 0xCD9E8D57u), b = wide_product(c0, 0xD2511F53u);
		c0 = u32(a >> 32) ^ c1 ^ key0;
		c1 = u32(a);
		c2 = u32(b >> 32) ^ c3 ^ key1;
		c3 = u32(b);
		key0 += 0x9E3779B9u;
		key1 += 0xBB67AE85u;
	}
	return { { c0, c1, c2, c3 } };
}

__device__ __forceinline__ u32 word_of(const Noise &n, int i)
{
	const u32 low = i & 1 ? n.word[1] : n.word[0], high = i & 1 ? n.word[3] : n.word[2];
	return i & 2 ? high : low;
}

__device__ __forceinline__ float gumbel(u32 x)
{
	const float u = fminf((float(x) + 0.5f) * 2.3283064365386963e-10f, 0.99999994f);
	return -logf(-log1pf(-u));
}

// thread level: e^x for x <= 0, to a few units in the last place
__device__ __forceinline__ float exp_fast(float x)
{
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
	return y;
}

// thread level: log2 of a normal x, to 2^-21
__device__ __forceinline__ float log2_fast(float x)
{
	float y;
	asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

// The values of the slice that may still win: its logits l, or the list once it holds them all. Those in bins behind
// last_bin are cut, and those in it whose z = l / temperature orders below `floor`: a division only where it decides.
struct Candidates {
	const float *logits;
	float temperature, top, top_z; // largest l, largest z
	float bins_per_logit;          // bins are 1/64 of z wide
	int last_bin;
	u32 floor;
	bool listed;

	__device__ __forceinline__ float z_of(float l) const { return l / temperature; }
	// Falls when l rises, so a cut is a bin and a threshold inside it. The last bin takes the rest.
	__device__ __forceinline__ int bin(float l) const
	{
		return int(fminf((top - l) * bins_per_logit, float(BINS - 1)));
	}
	// Probability relative to the largest, in 2^-31; below 2^-31 of it nothing counts.
	__device__ __forceinline__ u32 mass(float l) const
	{
		return u32(exp_fast((top - l) * bins_per_logit * (-1.0f / 64.0f)) * 2147483648.0f);
	}
	__device__ __forceinline__ bool stays(float l, int b) const
	{
		return b < last_bin || (b == last_bin && order_of(z_of(l)) >= floor);
	}

	// Calls f(l, bin, id) for each that stayed; every thread of the block takes its share.
	template <int BATCH, class F> __device__ __forceinline__ void each(const Shared &s, F f) const
	{
		if (listed) {
#pragma unroll 1
			for (int i = threadIdx.x; i < s.n_listed; i += THREADS) {
				const float l = s.list_l[i];
				const int b = bin(l);
				if (stays(l, b))
					f(l, b, s.list_id[i]);
			}
			return;
		}
		const int end = min((s.rank + 1) * SLICE, N_VALID);
		const u32 *const mask = s.mask;
#pragma unroll 1
		for (int i = s.rank * SLICE + threadIdx.x; i < end; i += BATCH * THREADS) {
			float l[BATCH];
#pragma unroll
			for (int j = 0; j < BATCH; j++)
				l[j] = i + j * THREADS < end ? logits[i + j * THREADS] : minus_infinity();
			if (mask)
				forbid(mask, i, l);
#pragma unroll
			for (int j = 0; j < BATCH; j++) {
				const int b = bin(l[j]);
				if (l[j] > minus_infinity() && stays(l[j], b))
					f(l[j], b, i + j * THREADS);
			}
		}
	}

	// Calls f(l, id, x) for each that stayed and of which both say that it may win: `may_win` of l, then `wins` of l
	// and x, its token's word of `noise`. What they leave out is left out before bins are looked at, and values go side
	// by side. Of columns that are tokens four neighbours share a block of words.
	template <int BATCH, class Ids_, class May, class NoiseOf, class Wins, class F>
	__device__ __forceinline__ void each_likely(const Shared &s, Ids_ ids, May may_win, NoiseOf noise, Wins wins, F f)
		const
	{
		if (same_type<Ids_, Ids<false>>::value && !listed)
			likely_neighbours(s, may_win, noise, wins, f);
		else
			likely_apart<BATCH>(s, ids, may_win, noise, wins, f);
	}

	template <class May, class NoiseOf, class Wins, class F>
	__device__ __forceinline__ void likely_neighbours(const Shared &s, May may_win, NoiseOf noise, Wins wins, F f) const
	{
		const int end = min((s.rank + 1) * SLICE, N_VALID);
		const u32 *const mask = s.mask;
		auto load = [&](float (&l)[4], int at) {
			float4 v = make_float4(minus_infinity(), minus_infinity(), minus_infinity(), minus_infinity());
			if (V % 4 == 0 && at < end) // rows are whole, and what is behind N_VALID is in them
				v = *reinterpret_cast<const float4 *>(logits + at);
			const float of[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
			for (int j = 0; j < 4; j++)
				l[j] = at + j >= end ? minus_infinity() : V % 4 == 0 ? of[j] : logits[at + j];
		};
		int i = s.rank * SLICE + 4 * int(threadIdx.x);
		float soon[4], then[4]; // on their way while the values before them are looked at
		load(soon, i);
		load(then, i + 4 * THREADS);
#pragma unroll 1
		for (; i < end; i += 4 * THREADS) {
			float l[4];
			bool is_likely = false;
			const u32 allowed = mask ? __ldg(mask + i / 32) >> i % 32 : 15;
#pragma unroll
			for (int j = 0; j < 4; j++) {
				l[j] = allowed >> j & 1 ? soon[j] : minus_infinity();
				soon[j] = then[j];
				is_likely |= l[j] > minus_infinity() && may_win(l[j]);
			}
			load(then, i + 8 * THREADS);
			if (!is_likely)
				continue;
			const Noise x = noise(i);
#pragma unroll
			for (int j = 0; j < 4; j++)
				if (l[j] > minus_infinity() && wins(l[j], x.word[j]) && stays(l[j], bin(l[j])))
					f(l[j], i + j, x.word[j]);
		}
	}

	template <int BATCH, class Ids_, class May, class NoiseOf, class Wins, class F>
	__device__ __forceinline__ void likely_apart(const Shared &s, Ids_ ids, May may_win, NoiseOf noise, Wins wins, F f)
		const
	{
		const int end = listed ? s.n_listed : min((s.rank + 1) * SLICE, N_VALID);
		const u32 *const mask = listed ? nullptr : s.mask;
		auto load = [&](float (&l)[BATCH], int first) {
#pragma unroll
			for (int j = 0; j < BATCH; j++) {
				const int at = first + j * THREADS;
				l[j] = at < end ? listed ? s.list_l[at] : logits[at] : minus_infinity();
			}
		};
		int i = (listed ? 0 : s.rank * SLICE) + threadIdx.x;
		float soon[BATCH], then[BATCH]; // on their way while the values before them are looked at
		load(soon, i);
		load(then, i + BATCH * THREADS);
#pragma unroll 1
		for (; i < end; i += BATCH * THREADS) {
			float l[BATCH];
			int id[BATCH];
			u32 x[BATCH];
			bool is_likely = false;
#pragma unroll
			for (int j = 0; j < BATCH; j++) {
				const int at = i + j * THREADS;
				id[j] = at < end ? listed ? s.list_id[at] : at : 0;
				l[j] = soon[j];
				soon[j] = then[j];
			}
			load(then, i + 2 * BATCH * THREADS);
			if (mask)
				forbid(mask, i, l);
#pragma unroll
			for (int j = 0; j < BATCH; j++)
				is_likely |= l[j] > minus_infinity() && may_win(l[j]);
			if (!is_likely)
				continue;
#pragma unroll
			for (int j = 0; j < BATCH; j++)
				x[j] = word_of(noise(ids[id[j]]), ids[id[j]] % 4);
#pragma unroll
			for (int j = 0; j < BATCH; j++)
				if (l[j] > minus_infinity() && wins(l[j], x[j]) && stays(l[j], bin(l[j])))
					f(l[j], id[j], x[j]);
		}
	}
};

// team level: what stayed in bins up to `bin` into the lists, when it fits; nothing changes when it does not.
__device__ __forceinline__ void gather(Shared &s, Candidates &c, int bin)
{
	volatile int *n_listed = &s.n_listed;
	if (threadIdx.x == 0)
		s.n_listed = 0;
	__syncthreads();
	c.each<LIGHT>(s, [&](float l, int b, int id) {
		if (b > bin || *n_listed > LIST)
			return;
		const int at = atomicAdd(&s.n_listed, 1);
		if (at < LIST) {
			s.list_l[at] = l;
			s.list_id[at] = id;
		}
	});
	__syncthreads();
	bool fits = true;
	hear(s, u64(s.n_listed), [&](int, u64 n) { fits &= n <= LIST; });
	c.listed = fits;
}

// team level: cuts what lies below the largest threshold at which what reaches it weighs what is wanted.
__device__ __forceinline__ void cut(Shared &s, Candidates &c, Want want, bool by_mass)
{
	c.each<LIGHT>(s, [&](float l, int b, int) { add_to_bin(s, b, by_mass ? c.mass(l) : 1u, !by_mass); });
	u64 rest = find_bin(s, want);
	const int bin = s.bin;
	if (!c.listed)
		gather(s, c, bin);
	u32 prefix = 0;
#pragma unroll 1
	for (int level = 0; level < 3; level++) { // 11, 11 and 10 bits of z
		const int shift = level == 0 ? 21 : level == 1 ? 10 : 0;
		const u32 mask = level == 2 ? 1023 : 2047;
		c.each<HEAVY>(s, [&](float l, int b, int) {
			const u32 order = b == bin ? order_of(c.z_of(l)) : 0;
			if (b == bin && (level == 0 || order >> (level == 1 ? 21 : 10) == prefix))
				add_to_bin(s, mask - (order >> shift & mask), by_mass ? c.mass(l) : 1u, !by_mass);
		});
		rest = find_bin(s, Want { rest, 0.0f });
		prefix = prefix * (mask + 1) + (mask - s.bin);
	}
	c.floor = bin == c.last_bin ? max(c.floor, prefix) : prefix;
	c.last_bin = bin;
	__syncthreads();
}

// team level: temperature, cuts and the draw; -1 when nothing could be drawn
template <class Ids_>
__device__ __forceinline__ int draw(Shared &s, Candidates &c, const float *sampling, const i32 *limits, int position,
	Ids_ ids)
{
	const float top_p = sampling[1], min_p = sampling[2];
	const int top_k = limits[0];
	for (int i = threadIdx.x; i < BINS; i += THREADS)
		s.low[i] = s.high[i] = 0;
	if (threadIdx.x == 0)
		s.bar = 0;
	__syncthreads();
#pragma unroll 1
	for (int by_mass = 0; by_mass < 2; by_mass++)
		if (by_mass ? top_p < 1.0f : top_k > 0 && top_k < N_VALID)
			cut(s, c, by_mass ? Want { 1, top_p } : Want { u64(top_k), 0.0f }, by_mass);
	u64 best = 0;
	const u32 key0 = limits[1], key1 = limits[2];
	const float per_logit = 1.0f / c.temperature;
	const volatile u32 *bar = &s.bar;
	// no less than z, whatever is rounded
	auto z_most = [&](float l) { return fmaf(fabsf(l * per_logit), 1e-6f, fmaf(l, per_logit, 1e-3f)); };
	auto may_win = [&](float l) { return order_of(z_most(l) + 23.0f) >= *bar; }; // no g is more
	auto noise = [&](int token) { return philox(token / 4, position, key0, key1); };
	auto wins = [&](float l, u32 x) { // g is at most -log(u)
		return order_of(fmaf(log2_fast(float(x) + 0.5f), -0.69314718f, z_most(l) + 22.1807098f)) >= *bar;
	};
	c.each_likely<4>(s, ids, may_win, noise, wins, [&](float l, int id, u32 x) {
		const float z = c.z_of(l);
		if (z < c.top_z && expf(z - c.top_z) < min_p)
			return;
		const u64 mine = contender(z + gumbel(x), id);
		if (mine > best) {
			best = mine;
			atomicMax(&s.bar, u32(mine >> 32));
		}
	});
	return int(~u32(team_max(s, best)));
}

// What a row of logits comes to: the largest, its lowest id, and the sum of e^(l - largest).
struct Row { float top, sum; int id; };

// thread level: one more value, of weight w relative to it
__device__ __forceinline__ void gain(float &m, float &sum, int &mark, float l, float w, int id)
{
	if (l > m) {
		sum *= exp_fast(m - l);
		m = l;
		mark = id;
	}
	sum = fmaf(w, exp_fast(l - m), sum);
}

constexpr float LEAST = -3.402823466e38f; // the least number: -inf - LEAST is never a NaN

// block level: from the parts that the head has left
__device__ __forceinline__ Row row_of_parts(Shared &s, const float *best, const i32 *best_id)
{
	float m = LEAST, sum = 0.0f;
	int part = -1;
#pragma unroll 1
	for (int first = threadIdx.x; first < PARTS; first += LIGHT * THREADS) {
		float2 b[LIGHT];
#pragma unroll
		for (int j = 0; j < LIGHT; j++)
			b[j] = first + j * THREADS < PARTS ? reinterpret_cast<const float2 *>(best)[first + j * THREADS]
				: make_float2(minus_infinity(), 0.0f);
#pragma unroll
		for (int j = 0; j < LIGHT; j++)
			gain(m, sum, part, b[j].x, b[j].y, first + j * THREADS);
	}
	const u64 first = block_max(s, part >= 0 ? contender(m, part) : 0);
	const float top = value_of(u32(first >> 32));
	// no part at all: nothing but -inf or NaN, and the sum says so
	return { top, block_add(s, sum * exp_fast(m - top)), first ? best_id[int(~u32(first))] : 0 };
}

// team level: from the logits, which the penalties change in place; the slot's first n_drafts drafts, at most MOST of
// them, count as generated
template <int MOST, class Ids_>
__device__ __forceinline__ Row penalised_row(Shared &s, float *logits, const i32 *counts, Ids_ ids, const i32 *drafts,
	int n_drafts, const float *sampling)
{
	i32 draft[MOST + 1]; // and one more, since no array is empty
#pragma unroll
	for (int i = 0; i < MOST; i++)
		draft[i] = i < n_drafts ? drafts[i] : -1;
	float m = LEAST, sum = 0.0f;
	int id = -1;
	const int end = min((s.rank + 1) * SLICE, N_VALID);
#pragma unroll 1
	for (int first = s.rank * SLICE + threadIdx.x; first < end; first += LIGHT * THREADS) {
		float l[LIGHT];
		i32 count[LIGHT];
#pragma unroll
		for (int j = 0; j < LIGHT; j++) {
			const int v = first + j * THREADS;
			l[j] = v < end ? logits[v] : minus_infinity();
			count[j] = v < end ? counts[ids[v]] : 0;
		}
#pragma unroll
		for (int j = 0; j < LIGHT; j++) {
			const int v = first + j * THREADS;
			if (v >= end)
				break;
			const int token = ids[v];
			int n = count[j] & GENERATED;
#pragma unroll
			for (int i = 0; i < MOST; i++)
				n += draft[i] == token;
			if (count[j] || (MOST > 0 && n)) {
				l[j] = penalise(l[j], n, sampling);
				logits[v] = l[j];
			}
			gain(m, sum, id, l[j], 1.0f, v);
		}
	}
	const u64 best = team_max(s, id >= 0 ? contender(m, id) : 0);
	const float top = value_of(u32(best >> 32));
	sum = block_add(s, sum * exp_fast(m - top));
	float all = 0.0f;
	hear(s, __float_as_uint(sum), [&](int, u64 theirs) { all += __uint_as_float(u32(theirs)); });
	return { top, all, int(~u32(best)) };
}

static_assert(RULES <= THREADS, "a thread has one rule");

// block level: do the rules, or a mask, change a score at that position?
__device__ __forceinline__ bool is_biased(const Rules &rules, const u32 *mask, int position)
{
	if (rules.n == 0 || mask)
		return mask;
	const int i = threadIdx.x;
	return __syncthreads_or(i < rules.n && rules.at(i).changes(position));
}

// block level: is it a token by which the rules end the sequence?
__device__ __forceinline__ bool is_end(const Rules &rules, int token)
{
	if (rules.n == 0)
		return false;
	bool ends = false;
	if (int(threadIdx.x) < rules.n) {
		const Rule rule = rules.at(threadIdx.x);
		ends = rule.is_end && rule.token == token;
	}
	return __syncthreads_or(ends);
}

// team level: the largest logit that the mask leaves with its lowest id, as a contender; 0 when none is above -inf
__device__ __noinline__ u64 largest(Shared &s, const float *logits)
{
	u64 best = 0;
	const int end = min((s.rank + 1) * SLICE, N_VALID);
	const u32 *const mask = s.mask;
#pragma unroll 1
	for (int first = s.rank * SLICE + threadIdx.x; first < end; first += LIGHT * THREADS) {
		float l[LIGHT];
#pragma unroll
		for (int j = 0; j < LIGHT; j++)
			l[j] = first + j * THREADS < end ? logits[first + j * THREADS] : minus_infinity();
		if (mask)
			forbid(mask, first, l);
#pragma unroll
		for (int j = 0; j < LIGHT; j++)
			if (l[j] > minus_infinity())
				best = max(best, contender(l[j], first + j * THREADS));
	}
	return team_max(s, best);
}

// team level: the id that is drawn from a row of logits, penalised as they are, or -1 when they are no numbers or
// rules and mask leave none. The logits are on return what they were.
template <class Ids_>
__device__ __forceinline__ int pick(Shared &s, float *logits, const Row &row, const float *sampling, const i32 *limits,
	const Rules &rules, bool biased, int position, Ids_ ids)
{
	bool good = row.sum > 0.0f; // a NaN or +inf makes the sum NaN; nothing but -inf leaves it 0
	float top = row.top, before = 0.0f;
	int id = row.id, changed = -1;
	if (biased) {
		if (int(threadIdx.x) < rules.n) {
			const Rule rule = rules.at(threadIdx.x);
			const int v = rule.token < 0 ? -1 : ids.column_of(rule.token);
			if (v >= s.rank * SLICE && v < (s.rank + 1) * SLICE) {
				changed = v;
				before = logits[v];
				logits[v] = rule.of(before, position);
			}
		}
		__syncthreads();
		const u64 best = largest(s, logits);
		top = value_of(u32(best >> 32));
		id = int(~u32(best));
		good = good && best && top - top == 0.0f; // not +inf
	}
	if (good && sampling[0] > 0.0f) {
		Candidates c = { logits, sampling[0], top, top / sampling[0], 64.0f / sampling[0], BINS, 0, false };
		const int drawn = draw(s, c, sampling, limits, position, ids);
		id = drawn < 0 ? id : drawn; // -1: a temperature so low that no number is left to compare
	}
	if (biased) {
		__syncthreads();
		if (changed >= 0)
			logits[changed] = before;
	}
	return good ? id : -1;
}
