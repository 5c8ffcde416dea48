// route_rows.cuh - routers of steps of up to some hundred rows, route_rows*.cu: the rest of the contract, and the
// kernel.
//
// RUN rows of x are copied to a block's shared memory, all at once; a warp has EACH rows of the router in registers
// before the launches before this one have ended. So few rows fill the card, and many read the router once for RUN of
// them. Of each RUN rows the block that comes last chooses, a warp a row; a block of its own writes n and the share of
// the expert that all rows go to, for which none of the others wait.
#pragma once

TUNE(RUN, 1, 2, 4, 8)
TUNE(EACH, 1, 2)
PREFER(ROWS <= 128)
PREFER(RUN < 2 * ROWS && EACH == (ROWS <= 32 ? 1 : 2))
PREFER(RUN == 8 || ROWS * EXPERTS <= (ROWS <= 16 ? 1024 : 2048) * RUN * EACH)
ORDER(route_rows)
GRID(ceil_div(EXPERTS, 8 * EACH) + !SCALED, ceil_div(ROWS, RUN), 1)
BLOCK(256)
SMEM(K * (RUN * 2 + NT_BYTES))
READS(ceil_div(ROWS, RUN) * (EXPERTS * K * RT_BYTES + bias_bytes()) + gate_bytes() + K * NT_BYTES
	+ ceil_div(EXPERTS, 8 * EACH) * ROWS * K * 2)

constexpr int warps = 8, pieces = ceil_div(K, 256); // a lane has 8 columns of each piece

__device__ __forceinline__ int column(int piece) { return (piece * 32 + int(threadIdx.x) % 32) * 8; }

// A row of the router, of which so many pieces are in registers as 32 / EACH bytes an element allow.
struct RouterRow {
	static constexpr int room = 32 / (EACH * int(sizeof(RT))), held = pieces < room ? pieces : room;
	const RT *row;
	Vec8<RT> early[held];
	__device__ __forceinline__ void fetch(const RT *from)
	{
		row = from;
#pragma unroll
		for (int i = 0; i < held; i++)
			early[i] = load8_once(row + (column(i) < K ? column(i) : 0));
	}
	__device__ __forceinline__ Vec8<RT> piece(int i) const
	{
		return i < held ? early[i < held ? i : 0] : load8_once(row + column(i));
	}
};

// 8 elements of a weight times those of the norm
template <class T, class Norm>
__device__ __forceinline__ void times_norm(const Vec8<T> &weight, const Vec8<Norm> &norm, float (&w)[8])
{
	float m[8];
	unpack(weight, w);
	unpack(norm, m);
#pragma unroll
	for (int e = 0; e < 8; e++)
		w[e] *= NORM_ONE ? 1.0f + m[e] : m[e];
}

__device__ __forceinline__ float inverse_rms(float ss) { return rsqrtf(warp_sum(ss) / K + float(EPS)); }

#if !SCALED
// Weights of the norm and of the gate of the expert that all rows go to, of a lane's columns: so many pieces are in
// registers before the launches before this one have ended as there is room for.
struct NormWeights {
	static constexpr int room = 32 / int(sizeof(NT) + is_gated * sizeof(Gate)), held = pieces < room ? pieces : room;
	Vec8<NT> norm[held];
	Vec8<Gate> gate[is_gated ? held : 1];
	__device__ __forceinline__ explicit NormWeights(const Args &a)
	{
#pragma unroll
		for (int i = 0; i < held; i++) {
			const int k = column(i) < K ? column(i) : 0;
			norm[i] = load8(a.norm + k);
			if constexpr (is_gated)
				gate[i] = load8(gate_of(a) + k);
		}
	}
	__device__ __forceinline__ Vec8<NT> norm_piece(const Args &a, int i) const
	{
		return i < held ? norm[i < held ? i : 0] : load8(a.norm + column(i));
	}
	__device__ __forceinline__ Vec8<Gate> gate_piece(const Args &a, int i) const
	{
		return i < held ? gate[i < held ? i : 0] : load8(gate_of(a) + column(i));
	}
};

// warp level: row t of n, and its share of the expert that all rows go to
__device__ __forceinline__ void norm_row(const Args &a, const NormWeights &weights, int t)
{
	constexpr int held = pieces < 8 ? pieces : 8;
	const bf16 *const x = a.x + i64(t) * K;
	Vec8<bf16> row[held];
#pragma unroll
	for (int i = 0; i < held; i++)
		row[i] = load8(x + (column(i) < K ? column(i) : 0));
	const auto piece = [&](int i) { return i < held ? row[i < held ? i : 0] : load8(x + column(i)); };
	float ss = 0.0f, dot = 0.0f;
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		if (column(i) >= K)
			break;
		float v[8], w[8];
		unpack(piece(i), v);
#pragma unroll
		for (int e = 0; e < 8; e++)
			ss = fmaf(v[e], v[e], ss);
		if constexpr (is_gated) {
			times_norm(weights.gate_piece(a, i), weights.norm_piece(a, i), w);
#pragma unroll
			for (int e = 0; e < 8; e++)
				dot = fmaf(v[e], w[e], dot);
		}
	}
	const float scale = inverse_rms(ss);
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		const int k = column(i);
		if (k >= K)
			break;
		float v[8];
		times_norm(piece(i), weights.norm_piece(a, i), v);
#pragma unroll
		for (int e = 0; e < 8; e++)
			v[e] *= scale;
		*reinterpret_cast<uint4 *>(a.n + i64(t) * K + k) = pack8(v);
	}
	if constexpr (is_gated) {
		const float y = warp_sum(dot) * scale;
		if (threadIdx.x % 32 == 0)
			a.share[i64(t) * shares + TOPK] = sigmoid(y);
	} else if constexpr (shares > TOPK) {
		if (threadIdx.x % 32 == 0)
			a.share[i64(t) * shares + TOPK] = 1.0f;
	}
}
#endif

// warp level: lane l gets the sum of v[l / (32 / N_)] over all lanes, added up as warp_sum does
template <int N_, int APART_ = 16> __device__ __forceinline__ float sum_of_lane(const float (&v)[N_])
{
	static_assert((N_ & (N_ - 1)) == 0 && N_ <= 32, "each lane ends with one of them");
	constexpr int left = N_ > 1 ? N_ / 2 : 1;
	const bool upper = threadIdx.x & APART_;
	float sum[left];
#pragma unroll
	for (int i = 0; i < left; i++) {
		const float own = N_ > 1 && upper ? v[i + N_ - left] : v[i], other = N_ > 1 && !upper ? v[i + N_ - left] : v[i];
		sum[i] = own + __shfl_xor_sync(~0u, other, APART_);
	}
	if constexpr (APART_ == 1)
		return sum[0];
	else
		return sum_of_lane<left, APART_ / 2>(sum);
}

// block level: the whole kernel
__device__ __forceinline__ void route_rows_of(const Args &a)
{
	constexpr int blocks = ceil_div(EXPERTS, warps * EACH), results = RUN * EACH;
	__shared__ bool is_last;
	__shared__ float scale[RUN];
	DYNAMIC_SMEM(staged); // RUN rows of x, then the norm
	let_next_start();
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int t0 = blockIdx.y * RUN, end = min(min(t0 + RUN, ROWS), a.step[0]);
	if (t0 >= end)
		return;
#if !SCALED
	if (blockIdx.x == blocks) {
		const NormWeights weights(a);
		inputs_ready();
		for (int t = t0 + warp; t < end; t += warps)
			norm_row(a, weights, t);
		return;
	}
#endif
	const int e0 = (int(blockIdx.x) * warps + warp) * EACH;
	RouterRow router[EACH];
#pragma unroll
	for (int j = 0; j < EACH; j++)
		router[j].fetch(a.router + i64(min(e0 + j, EXPERTS - 1)) * K);
	const bf16 *const rows = reinterpret_cast<const bf16 *>(staged);
	const NT *const norm = reinterpret_cast<const NT *>(rows + RUN * K);
	constexpr int norm_pieces = K * int(sizeof(NT)) / 16, row_pieces = K / 8;
	for (int i = threadIdx.x; i < norm_pieces; i += 256)
		copy_async(shared_address(norm) + i * 16, reinterpret_cast<const uint4 *>(a.norm) + i, true);
	inputs_ready();
	const uint4 *const x = reinterpret_cast<const uint4 *>(a.x + i64(t0) * K);
	for (int i = threadIdx.x; i < RUN * row_pieces; i += 256) {
		const bool exists = i / row_pieces < end - t0;
		copy_async(shared_address(rows) + i * 16, x + (exists ? i : 0), exists);
	}
	copy_commit();
	copy_wait<0>();
	__syncthreads();

	float dot[results] = {}, ss = 0.0f; // ss: of row `warp`
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		const int k = column(i);
		if (k >= K)
			break;
		float w[EACH][8];
#pragma unroll
		for (int j = 0; j < EACH; j++)
			times_norm(router[j].piece(i), load8(norm + k), w[j]);
#pragma unroll
		for (int t = 0; t < RUN; t++) {
			float v[8];
			unpack(load8(rows + t * K + k), v);
#pragma unroll
			for (int j = 0; j < EACH; j++)
#pragma unroll
				for (int e = 0; e < 8; e++)
					dot[t * EACH + j] = fmaf(v[e], w[j][e], dot[t * EACH + j]);
			if (t == warp)
#pragma unroll
				for (int e = 0; e < 8; e++)
					ss = fmaf(v[e], v[e], ss);
		}
	}
	const float inverse = inverse_rms(ss);
	if (warp < RUN && lane == 0)
		scale[warp] = inverse;
	const float sum = sum_of_lane(dot);
	const int mine = lane / (32 / results), t = t0 + mine / EACH, e = e0 + mine % EACH;
	__syncthreads();
	if (lane % (32 / results) == 0 && t < end && e < EXPERTS)
		a.logits[i64(t) * EXPERTS + e] = logit_of(a, sum * scale[mine / EACH], e);
	__syncthreads();
	if (threadIdx.x == 0)
		is_last = last_to_arrive(a.routed + blockIdx.y, blocks);
	__syncthreads();
	if (!is_last)
		return;
	for (int r = t0 + warp; r < end; r += warps)
		choose(a, r);
}
