// delta_chunks.cuh - prompts of Gated DeltaNet, 64 rows at a time: what delta_chunks and delta_chunks_team share,
// behind their Args and TEAM, the blocks of a cluster that a value head's columns are divided among.
//
// All is transposed: a warp has 16 columns of S, of X and of o in registers, where what one product gives is what the
// next one takes, and only q, k and the matrices of 64 x 64, which all warps share, lie in shared memory. The next rows
// are on their way meanwhile. What a warp has read of v makes room for its part of z, and then of y.
#pragma once
#include "shared/arrive.cuh"
#include "delta/delta.cuh"
#include "delta/chunk.cuh"

constexpr int COLUMNS = DV / TEAM; // of v, of a block
constexpr int WARPS = COLUMNS / 16, THREADS = 32 * WARPS;
constexpr int CONV = 2 * NK * DK + NV * DV, SHARERS = NV / NK;
constexpr int V_STRIDE = tile_stride(COLUMNS), STAGE_BYTES = CHUNK * (2 * K_STRIDE + V_STRIDE);
#if __CUDA_ARCH__ >= 900
constexpr bool is_team = TEAM > 1;
#else
constexpr bool is_team = false;
#endif

#include "delta/columns.cuh"

// Numbers of the chunk's rows.
struct RowNumbers {
	float q[CHUNK], k[CHUNK];   // what q and k are to be multiplied by
	float rate[CHUNK];          // b
	float total[CHUNK];         // G
	float4 factor[CHUNK];       // b; b e^G k; e^G q; e^(G_last - G) k
	float squares[2][TEAM * WARPS][CHUNK]; // of o, of all the team's warps, in turns
};

// What a block has: a value head, of which columns from v0 on.
struct Part { int head, v0, rank; };

// block level: n rows of the chunk that starts at row t; zeros behind them
__device__ __forceinline__ void fetch(u32 stage, const Args &a, int t, int n, const Part &p)
{
	constexpr int k_pieces = DK / 8, v_pieces = COLUMNS / 8, pieces = 2 * k_pieces + v_pieces;
	for (int i = threadIdx.x; i < CHUNK * pieces; i += THREADS) {
		const int row = i / pieces, at = i % pieces, which = at < 2 * k_pieces ? at / k_pieces : 2;
		const int piece = at - which * k_pieces, k_head = p.head / SHARERS;
		const int column = (which == 2 ? 2 * NK * DK + p.head * DV + p.v0 : (which * NK + k_head) * DK) + piece * 8;
		const bool inside = row < n;
		copy_async(stage + which * CHUNK * K_STRIDE + row * (which == 2 ? V_STRIDE : K_STRIDE) + piece * 16,
			a.qkv + i64(t + (inside ? row : 0)) * CONV + column, inside);
	}
	copy_commit();
}

// warp level: the warp's 16 columns of z, from v0 of the block's on, over those of v
__device__ __forceinline__ void fetch_gate(u32 tile, const Args &a, int t, int n, const Part &p, int v0)
{
	for (int i = threadIdx.x % 32; i < CHUNK * 2; i += 32) {
		const int row = i / 2, column = v0 + i % 2 * 8;
		const bool inside = row < n;
		copy_async(tile + row * V_STRIDE + column * 2,
			a.x + i64(t + (inside ? row : 0)) * COLS + CONV + p.head * DV + p.v0 + column, inside);
	}
	copy_commit();
}

// What a lane of the first warp brings of the two rows of its own: a and b of the head.
struct GateInputs { float a[2], b[2]; };
__device__ __forceinline__ void fetch(GateInputs &g, const Args &a, int t, int n, int h)
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int row = threadIdx.x % 32 * 2 + i, at = t + (row < n ? row : 0);
		const bf16 *ba = BA ? a.ba + i64(at) * (2 * NV) : a.x + i64(at) * COLS + CONV + NV * DV;
		g.b[i] = to_f32(ba[h]);
		g.a[i] = to_f32(ba[NV + h]);
	}
}

// warp level: b and G; rows that are not there change nothing
__device__ __forceinline__ void note_gates(RowNumbers &r, const GateInputs &in, int n, float minus_decay, float dt_bias)
{
	const int lane = threadIdx.x % 32;
	float log_decay[2], sum;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const bool is_there = lane * 2 + i < n;
		log_decay[i] = is_there ? minus_decay * softplus(in.a[i] + dt_bias) : 0.0f;
		r.rate[lane * 2 + i] = is_there ? sigmoid(in.b[i]) : 0.0f;
	}
	sum = log_decay[0] + log_decay[1];
#pragma unroll
	for (int m = 1; m < 32; m *= 2) {
		const float before = __shfl_up_sync(~0u, sum, m);
		sum += lane >= m ? before : 0.0f;
	}
	const float before = __shfl_up_sync(~0u, sum, 1);
	r.total[lane * 2] = (lane ? before : 0.0f) + log_decay[0]; // no row's G has anything of the next
	r.total[lane * 2 + 1] = sum;
}

// block level: the lengths of q and k of each row, four threads a row
__device__ __forceinline__ void note_lengths(RowNumbers &r, const char *stage)
{
	for (int i = threadIdx.x; i < CHUNK * 4; i += THREADS) {
		float sum[2] = {};
#pragma unroll
		for (int which = 0; which < 2; which++) {
			const char *row = stage + which * CHUNK * K_STRIDE + i / 4 * K_STRIDE;
#pragma unroll
			for (int p = 0; p < DK / 16; p++) {
				const uint2 x = *reinterpret_cast<const uint2 *>(row + (p * 4 + i % 4) * 8);
				const float v[4] = { low_bf16(x.x), high_bf16(x.x), low_bf16(x.y), high_bf16(x.y) };
#pragma unroll
				for (int e = 0; e < 4; e++)
					sum[which] = fmaf(v[e], v[e], sum[which]);
			}
			sum[which] += __shfl_xor_sync(~0u, sum[which], 1);
			sum[which] += __shfl_xor_sync(~0u, sum[which], 2);
		}
		if (i % 4 == 0) {
			r.q[i / 4] = rsqrtf((sum[0] + 1e-6f) * DK);
			r.k[i / 4] = rsqrtf(sum[1] + 1e-6f);
		}
	}
}

__device__ __forceinline__ void note_factors(RowNumbers &r)
{
	for (int i = threadIdx.x; i < CHUNK; i += THREADS) {
		const float decay = __expf(r.total[i]), rest = __expf(r.total[CHUNK - 1] - r.total[i]);
		r.factor[i] = make_float4(r.rate[i], r.rate[i] * decay * r.k[i], decay * r.q[i], rest * r.k[i]);
	}
}

// warp level: 16 rows of q or k times k, rows up to their own: of k, -A, whose blocks on the diagonal, which the solver
// needs in f32, go to `diagonal`; of q, what o is of X
__device__ __forceinline__ void relate(const RowNumbers &r, u32 stage, bool is_q, int strip, char *matrix,
	float (*diagonal)[16])
{
	const int g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
	const u32 k_tile = stage + CHUNK * K_STRIDE;
	float c[2 * BLOCKS][4] = {};
#pragma unroll
	for (int k = 0; k < DK; k += 16) {
		u32 x[4], b[4];
		load_a(x, is_q ? stage : k_tile, K_STRIDE, strip * 16, k);
#pragma unroll
		for (int n = 0; n < BLOCKS; n++)
			if (n <= strip) {
				load_b(b, k_tile, K_STRIDE, n * 16, k);
				mma(c[2 * n], x, b[0], b[1]);
				mma(c[2 * n + 1], x, b[2], b[3]);
			}
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int row = strip * 16 + g + 8 * i;
		const float total = r.total[row], scale = is_q ? r.q[row] : -r.rate[row] * r.k[row];
#pragma unroll
		for (int n = 0; n < 2 * BLOCKS; n++) {
			if (n / 2 > strip)
				continue;
			float v[2];
#pragma unroll
			for (int e = 0; e < 2; e++) {
				const int column = n * 8 + quad * 2 + e;
				const float decay = __expf(fminf(total - r.total[column], 0.0f));
				v[e] = column < row || (is_q && column == row) ? c[n][2 * i + e] * scale * r.k[column] * decay : 0.0f;
			}
			if (!is_q && n / 2 == strip)
				*reinterpret_cast<float2 *>(&diagonal[row][n % 2 * 8 + quad * 2]) = make_float2(v[0], v[1]);
			else
				put_pair(matrix, row, n * 8 + quad * 2, v[0], v[1]);
		}
	}
}

// warp level: held = k.S, o = q.S, of all rows
__device__ __forceinline__ void project(Rows &held, Rows &o, const State &s, u32 stage)
{
#pragma unroll
	for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			held[n][e] = o[n][e] = 0.0f;
#pragma unroll
	for (int k = 0; k < DK / 16; k++) {
		Split part;
		part.take(s[2 * k], s[2 * k + 1]);
#pragma unroll
		for (int n = 0; n < BLOCKS; n++) {
			u32 b[4];
			load_b(b, stage + CHUNK * K_STRIDE, K_STRIDE, n * 16, k * 16);
			multiply(held[2 * n], part, b[0], b[1]);
			multiply(held[2 * n + 1], part, b[2], b[3]);
			load_b(b, stage, K_STRIDE, n * 16, k * 16);
			multiply(o[2 * n], part, b[0], b[1]);
			multiply(o[2 * n + 1], part, b[2], b[3]);
		}
	}
}

// warp level: 16 rows of the warp's columns of v or of z, transposed, as products have them
__device__ __forceinline__ void load_columns(float (&x)[2][4], u32 tile, int block, int v0)
{
	u32 b[4];
	load_b_transposed(b, tile, V_STRIDE, block * 16, v0);
#pragma unroll
	for (int i = 0; i < 2; i++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			x[i][2 * half] = low_bf16(b[i + 2 * half]);
			x[i][2 * half + 1] = high_bf16(b[i + 2 * half]);
		}
}

// warp level: what the changes solve for, b (v - e^G k.S), from held = k.S; o = e^G q.S
__device__ __forceinline__ void start(Rows &x, Rows &o, const RowNumbers &r, u32 v_tile)
{
	const int v0 = threadIdx.x / 32 * 16, quad = threadIdx.x % 4;
#pragma unroll
	for (int n = 0; n < BLOCKS; n++) {
		float v[2][4];
		load_columns(v, v_tile, n, v0);
#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				const float4 f = r.factor[(2 * n + i) * 8 + quad * 2 + e];
#pragma unroll
				for (int half = 0; half < 4; half += 2) {
					x[2 * n + i][half + e] = f.x * v[i][half + e] - f.y * x[2 * n + i][half + e];
					o[2 * n + i][half + e] *= f.z;
				}
			}
	}
}

// warp level: the changes, and what o has of them: 16 rows after the other
__device__ __forceinline__ void solve(Rows &x, Rows &o, u32 minus_a, u32 q_k)
{
	Split solved[BLOCKS];
#pragma unroll
	for (int row = 0; row < BLOCKS; row++) {
		float(&x0)[4] = x[2 * row], (&x1)[4] = x[2 * row + 1];
#pragma unroll
		for (int column = 0; column < row; column++)
			multiply(x0, x1, solved[column], minus_a, row * 16, column * 16);
		solved[row].take(x0, x1);
#pragma unroll
		for (int e = 0; e < 4; e++)
			x0[e] = x1[e] = 0.0f;
		multiply(x0, x1, solved[row], minus_a, row * 16, row * 16);
		solved[row].take(x0, x1);
#pragma unroll
		for (int column = 0; column <= row; column++)
			multiply(o[2 * row], o[2 * row + 1], solved[column], q_k, row * 16, column * 16);
	}
}

// warp level: the state behind the chunk
__device__ __forceinline__ void change(State &s, Rows &x, const RowNumbers &r, u32 k_tile)
{
	const int quad = threadIdx.x % 4;
	const float decay = __expf(r.total[CHUNK - 1]);
#pragma unroll
	for (int n = 0; n < DK / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			s[n][e] *= decay;
#pragma unroll
	for (int row = 0; row < BLOCKS; row++) {
		Split by;
#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				x[2 * row + i][e] *= r.factor[(2 * row + i) * 8 + quad * 2 + e % 2].w;
		by.take(x[2 * row], x[2 * row + 1]);
#pragma unroll
		for (int n = 0; n < DK / 16; n++) {
			u32 b[4];
			load_b_transposed(b, k_tile, K_STRIDE, row * 16, n * 16);
			multiply(s[2 * n], by, b[0], b[1]);
			multiply(s[2 * n + 1], by, b[2], b[3]);
		}
	}
}

// warp level: the warp's sums of squares of o to all blocks of the team
__device__ __forceinline__ void share_squares(float (*squares)[CHUNK], const Rows &o, int rank)
{
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
	for (int n = 0; n < CHUNK / 8; n++) {
		float sum[2];
#pragma unroll
		for (int e = 0; e < 2; e++) {
			sum[e] = o[n][e] * o[n][e] + o[n][2 + e] * o[n][2 + e];
#pragma unroll
			for (int m = 4; m < 32; m *= 2)
				sum[e] += __shfl_xor_sync(~0u, sum[e], m);
		}
		float *const to = &squares[rank * WARPS + warp][n * 8 + quad * 2];
		if (g != n)
			continue;
		if constexpr (is_team) {
#pragma unroll
			for (int i = 0; i < TEAM; i++)
				store2_at_rank(at_rank(to, i), sum[0], sum[1]);
		} else {
			*reinterpret_cast<float2 *>(to) = make_float2(sum[0], sum[1]);
		}
	}
}

// warp level: y from o and z, where z was
__device__ __forceinline__ void finish(const Rows &o, const float (*squares)[CHUNK], const float (&norm)[2], u32 z_tile,
	char *y_rows)
{
	const int v0 = threadIdx.x / 32 * 16, g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
	for (int n = 0; n < BLOCKS; n++) {
		float z[2][4];
		load_columns(z, z_tile, n, v0);
		__syncwarp();
#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				const int row = (2 * n + i) * 8 + quad * 2 + e;
				float sum = 0.0f;
#pragma unroll
				for (int w = 0; w < TEAM * WARPS; w++)
					sum += squares[w][row];
				const float scale = rsqrtf(sum / DV + float(EPS));
				bf16 *to = reinterpret_cast<bf16 *>(y_rows + row * V_STRIDE) + v0 + g;
				store(to, o[2 * n + i][e] * scale * norm[0] * silu(z[i][e]));
				store(to + 8, o[2 * n + i][2 + e] * scale * norm[1] * silu(z[i][2 + e]));
			}
	}
}

// warp level: the warp's columns of y to memory
__device__ __forceinline__ void write(const Args &a, const char *y_rows, int t, int n, const Part &p)
{
	const int v0 = threadIdx.x / 32 * 16;
	for (int i = threadIdx.x % 32; i < CHUNK * 2; i += 32)
		if (const int row = i / 2, column = v0 + i % 2 * 8; row < n)
			*reinterpret_cast<uint4 *>(a.y + (i64(t + row) * NV + p.head) * DV + p.v0 + column) =
				*reinterpret_cast<const uint4 *>(y_rows + row * V_STRIDE + column * 2);
}

// The rows of a segment, of what this block has of a value head.
__device__ __forceinline__ void go_through_segment(const Args &a, uint4 *smem)
{
	// stages of q, k, v; -A with the inverses of its diagonal blocks, and q k, each in two parts; numbers of rows
	let_next_start();
	const int warp = threadIdx.x / 32, v0 = warp * 16, g = threadIdx.x % 32 / 4;
	const int h = blockIdx.x / TEAM, rank = blockIdx.x % TEAM;
	const Part part = { h, rank * COLUMNS, rank };
	const float minus_decay = -expf(to_f32(a.a_log[h])), dt_bias = to_f32(a.dt_bias[h]);
	const float norm[2] = { to_f32(a.norm[part.v0 + v0 + g]), to_f32(a.norm[part.v0 + v0 + g + 8]) };
	inputs_ready();
	if (int(blockIdx.y) >= a.step[2])
		return;
	if constexpr (is_team)
		team_arrive();
	char *const stages = reinterpret_cast<char *>(smem), *const minus_a = stages + STAGES * STAGE_BYTES;
	char *const q_k = minus_a + 2 * MATRIX;
	float (*const diagonal)[16] = reinterpret_cast<float (*)[16]>(q_k + 2 * MATRIX); // [CHUNK][16]
	RowNumbers &r = *reinterpret_cast<RowNumbers *>(q_k + 2 * MATRIX + CHUNK * 64);
	const int first = a.seg[blockIdx.y * 4], rows = a.seg[blockIdx.y * 4 + 1], slot = a.row_slot[first];
	ST *const delta = a.delta + (i64(slot) * NV + h) * DK * DV;
	GateInputs gates;
	fetch(shared_address(stages), a, first, rows, part);
	if (warp == 0)
		fetch(gates, a, first, rows, h);
	State s;
	each(part.v0 + v0, [&](int i, int j, int n, int e) { s[n][e] = to_f32(delta[i * DV + j]); });
#pragma unroll 1
	for (int t = 0, turn = 0; t < rows; t += CHUNK, turn = STAGES - 1 - turn) {
		char *const stage = stages + turn * STAGE_BYTES;
		const u32 tile = shared_address(stage), v_tile = tile + 2 * CHUNK * K_STRIDE;
		char *const v_rows = stage + 2 * CHUNK * K_STRIDE;
		const int n_rows = rows - t, next = n_rows - CHUNK;
		copy_wait<0>();
		__syncthreads(); // the rows are here, and all are done with those before
		if (STAGES == 2 && next > 0)
			fetch(shared_address(stages + (1 - turn) * STAGE_BYTES), a, first + t + CHUNK, next, part);
		if (warp == 0) {
			note_gates(r, gates, n_rows, minus_decay, dt_bias);
			if (next > 0)
				fetch(gates, a, first + t + CHUNK, next, h);
		}
		note_lengths(r, stage);
		__syncthreads();
		note_factors(r);
#pragma unroll 1
		for (int i = warp; i < 2 * BLOCKS; i += WARPS) { // long strips of q go with short ones of k
			const bool is_q = i >= BLOCKS;
			relate(r, tile, is_q, is_q ? 2 * BLOCKS - 1 - i : i, is_q ? q_k : minus_a, diagonal);
		}
		__syncthreads();
#pragma unroll 1
		for (int block = warp; block < BLOCKS; block += WARPS)
			invert(diagonal + block * 16, minus_a, block);
		Rows x, o;
		project(x, o, s, tile);
		start(x, o, r, v_tile);
		__syncwarp();
		fetch_gate(v_tile, a, first + t, n_rows, part, v0);
		__syncthreads(); // the inverses are there
		solve(x, o, shared_address(minus_a), shared_address(q_k));
		change(s, x, r, tile + CHUNK * K_STRIDE);
		if (sizeof(ST) < 4 && next > 0) // a prompt may be cut here, where the state would be stored and loaded
			each(part.v0 + v0, [&](int, int, int n, int e) {
				ST held;
				store(&held, s[n][e]);
				s[n][e] = to_f32(held);
			});
		float (*const squares)[CHUNK] = r.squares[t / CHUNK % 2];
		if (is_team && t == 0)
			team_wait(); // all of the team have started: their memory is there
		share_squares(squares, o, part.rank);
		copy_wait<0>();
		if constexpr (is_team)
			team_meet();
		else
			__syncthreads(); // the squares are there, as is the warp's part of z
		finish(o, squares, norm, v_tile, v_rows);
		__syncwarp();
		write(a, v_rows, first + t, n_rows, part);
		if (STAGES == 1 && next > 0) {
			__syncthreads();
			fetch(shared_address(stages), a, first + t + CHUNK, next, part);
		}
	}
	each(part.v0 + v0, [&](int i, int j, int n, int e) { store(&delta[i * DV + j], s[n][e]); });
}
