// route_tiles.cuh - routers of prompts, route_tiles*.cu: the rest of the contract, and the kernel.
//
// A block norms 16 rows once, for itself and for what comes after, and keeps them in shared memory; rows of the router
// come straight from the L2 cache, a lane's eight neighbours being its part of two products. Where there are few rows,
// PARTS blocks share the experts, and the last of them chooses.
#pragma once

TUNE(PARTS, 1, 2, 4, 8)
PREFER(ROWS > 128)
PREFER(PARTS == 1 || 11 * ceil_div(ROWS, 16) * PARTS <= 12 * SMS && EXPERTS >= 32 * PARTS)
ORDER(route_tiles)
GRID(ceil_div(ROWS, 16), PARTS, 1)
BLOCK(256)
SMEM(16 * (K * 2 + 64))
READS(ceil_div(ROWS, 16) * (EXPERTS * K * RT_BYTES + bias_bytes()) + gate_bytes() + K * NT_BYTES
	+ PARTS * ROWS * K * 2)

constexpr int warps = 8, pitch = K * 2 + 64; // bytes of a row in shared memory: neighbours start half a turn apart

// warp level: row t of n, to `own` and, when it leaves, to memory, with the share of the expert that all rows go to
__device__ __forceinline__ void norm_row(const Args &a, int t, bool leaves, char *own)
{
	constexpr int pieces = ceil_div(K, 256), held = pieces < 16 ? pieces : 16;
	const bf16 *const x = a.x + i64(t) * K;
	const int first = int(threadIdx.x) % 32 * 8;
	uint4 row[held];
	float ss = 0.0f, dot = 0.0f;
	const auto piece = [&](int i) {
		const int k = first + i * 256;
		return k < K ? *reinterpret_cast<const uint4 *>(x + k) : make_uint4(0, 0, 0, 0);
	};
#pragma unroll
	for (int i = 0; i < held; i++)
		row[i] = piece(i);
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		float v[8];
		unpack(Vec8<bf16> { i < held ? row[i < held ? i : 0] : piece(i) }, v);
#pragma unroll
		for (int e = 0; e < 8; e++)
			ss = fmaf(v[e], v[e], ss);
	}
	const float scale = rsqrtf(warp_sum(ss) / K + float(EPS));
#pragma unroll
	for (int i = 0; i < pieces; i++) {
		const int k = first + i * 256;
		if (k >= K)
			break;
		float v[8], m[8];
		unpack(Vec8<bf16> { i < held ? row[i < held ? i : 0] : piece(i) }, v);
		unpack(load8(a.norm + k), m);
#pragma unroll
		for (int e = 0; e < 8; e++)
			v[e] *= scale * (NORM_ONE ? 1.0f + m[e] : m[e]);
		const uint4 y = pack8(v);
		*reinterpret_cast<uint4 *>(own + k * 2) = y;
		if (!leaves)
			continue;
#if !SCALED
		*reinterpret_cast<uint4 *>(a.n + i64(t) * K + k) = y;
#endif
		if constexpr (is_gated) {
			unpack(load8(gate_of(a) + k), m);
#pragma unroll
			for (int e = 0; e < 8; e++)
				dot = fmaf(v[e], m[e], dot);
		}
	}
	if constexpr (is_gated) {
		dot = warp_sum(dot);
		if (leaves && first == 0)
			a.share[i64(t) * (TOPK + 1) + TOPK] = sigmoid(dot);
	} else if constexpr (shares > TOPK) {
		if (leaves && first == 0)
			a.share[i64(t) * shares + TOPK] = 1.0f;
	}
}

__device__ __forceinline__ uint4 router_piece(const RT *w)
{
	if constexpr (same_type<RT, bf16>::value)
		return *reinterpret_cast<const uint4 *>(w);
	float v[8];
	unpack(load8(w), v);
	return pack8(v);
}

// block level: the whole kernel
__device__ __forceinline__ void route_tiles_of(const Args &a)
{
	constexpr int part = ceil_div(ceil_div(EXPERTS, PARTS), 8) * 8; // experts of a block
	constexpr int tiles = ceil_div(part, 8 * warps), steps = ceil_div(K, 32);
	constexpr int ahead = tiles <= 2 ? 8 : tiles <= 4 ? 4 : 2; // steps whose weights are asked for together
	__shared__ bool is_last;
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(normed);
	const int t0 = blockIdx.x * 16, end = min(min(t0 + 16, ROWS), a.step[0]), e0 = blockIdx.y * part;
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	char *const rows = reinterpret_cast<char *>(normed);
	if (t0 >= end)
		return;
	for (int r = warp; r < 16; r += warps)
		if (t0 + r < end)
			norm_row(a, t0 + r, blockIdx.y == 0, rows + r * pitch);
		else
			for (int k = int(threadIdx.x) % 32 * 8; k < K; k += 256)
				*reinterpret_cast<uint4 *>(rows + r * pitch + k * 2) = make_uint4(0, 0, 0, 0);
	__syncthreads();

	float acc[tiles][4] = {};
	const RT *w[tiles];
#pragma unroll
	for (int j = 0; j < tiles; j++) {
		const int e = e0 + (j * warps + warp) * 8 + g;
		w[j] = a.router + i64(min(e, EXPERTS - 1)) * K + 8 * q;
	}
	for (int s0 = 0; s0 < steps; s0 += ahead) {
		uint4 b[ahead][tiles];
#pragma unroll
		for (int s = 0; s < ahead; s++)
#pragma unroll
			for (int j = 0; j < tiles; j++)
				b[s][j] = (s0 + s) * 32 + 8 * q < K ? router_piece(w[j] + (s0 + s) * 32) : make_uint4(0, 0, 0, 0);
#pragma unroll
		for (int s = 0; s < ahead; s++) {
			const int k = (s0 + s) * 32 + 8 * q;
			uint4 x[2] = {};
			if (k < K) {
				x[0] = *reinterpret_cast<const uint4 *>(rows + g * pitch + k * 2);
				x[1] = *reinterpret_cast<const uint4 *>(rows + (g + 8) * pitch + k * 2);
			}
			const u32 first[4] = { x[0].x, x[1].x, x[0].y, x[1].y }, second[4] = { x[0].z, x[1].z, x[0].w, x[1].w };
#pragma unroll
			for (int j = 0; j < tiles; j++) {
				mma(acc[j], first, b[s][j].x, b[s][j].y);
				mma(acc[j], second, b[s][j].z, b[s][j].w);
			}
		}
	}
#pragma unroll
	for (int j = 0; j < tiles; j++)
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const int t = t0 + g + i / 2 * 8, local = (j * warps + warp) * 8 + 2 * q + i % 2, e = e0 + local;
			if (t < end && local < part && e < EXPERTS)
				a.logits[i64(t) * EXPERTS + e] = logit_of(a, acc[j][i], e);
		}
	__syncthreads();
	if (PARTS > 1 && threadIdx.x == 0)
		is_last = last_to_arrive(a.routed + blockIdx.x, PARTS);
	__syncthreads();
	if (PARTS > 1 && !is_last)
		return;
	for (int t = t0 + warp; t < end; t += warps)
		choose(a, t);
}
