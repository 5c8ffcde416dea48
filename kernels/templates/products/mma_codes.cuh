// mma_codes.cuh - tiles of x w^T where both are codes, multiplied as codes by mma.sync (sm_89 and sm_12x).
//
// A block of eight warps, two by four, computes BM rows of x against BN rows of w. Both stream through a ring of stages
// of 128 bytes a row, filled by cp.async all but one stage ahead: 128 columns of e4m3, 256 of e2m1. The 16-byte piece p
// of row r stands at place p ^ (r % 8), so that the rows that ldmatrix reads together touch different banks.
//
// A product takes 32 bytes of a row, whatever they hold: m16n8k32 of e4m3, m16n8k64 of e2m1. Fragments, with
// g = lane / 4 and q = lane % 4, are words of four bytes:
//   a[0..3]  rows g, g + 8, g, g + 8; bytes 4q, 4q, 16 + 4q, 16 + 4q
//   b[0..1]  column g of the product; bytes 4q, 16 + 4q
//   c[0..3]  (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1)
// which is what ldmatrix gives of a tile of bytes: it moves words and does not ask what is in them.
//
// Contracts define their names as macros, so names here are in lower case or end in an underscore.
#pragma once
#include "products/gemm_codes.cuh"
#include "shared/quant.cuh"

// For contracts: the ring of tiles of bm rows of x and bn of w, of which a stage has row_bytes.
FORMULA(code_ring(int bm, int bn, int row_bytes), 98304 / ((bm + bn) * row_bytes) * ((bm + bn) * row_bytes))

template <int BM_, int BN_> struct CodeTile {
	static constexpr int threads = 256, warps_m = 2, warps_n = 4, warp_m = BM_ / warps_m, warp_n = BN_ / warps_n;
	static constexpr int m_tiles = warp_m / 16, n_tiles = warp_n / 8; // mma tiles of a warp
	static constexpr int stage_bytes = (BM_ + BN_) * 128, stages = 98304 / stage_bytes; // what a block of sm_89 has
	static_assert(BM_ % 32 == 0 && BN_ % 64 == 0 && stages >= 2, "warps have whole tiles, and the ring turns");
};

__device__ __forceinline__ int code_place(int row, int piece) { return piece ^ row % 8; }

// thread level: ROWS_ rows of a stage. row(r): where row r starts, in bytes, and whether it is; rows have BYTES_ bytes
template <int ROWS_, int BYTES_, class Rows>
__device__ __forceinline__ void fill_codes(u32 tile, Rows row, int step)
{
	const int r0 = threadIdx.x / 8, piece = threadIdx.x % 8, at = step * 128 + piece * 16;
	const bool inside = BYTES_ % 128 == 0 || at < BYTES_;
	static_assert(ROWS_ % 32 == 0, "256 threads fill 32 rows at a time");
#pragma unroll
	for (int i = 0; i < ROWS_ / 32; i++) {
		const int r = r0 + i * 32;
		const Row<char> from = row(r);
		copy_async(tile + r * 128 + code_place(r, piece) * 16, from.start + (inside ? at : 0), from.exists && inside);
	}
}

// Row n of a matrix of N_ rows of BYTES_ bytes.
template <int N_, int BYTES_, class E> __device__ __forceinline__ Row<char> code_row(const E *matrix, int n)
{
	static_assert(sizeof(E) == 1, "codes");
	const bool exists = n < N_;
	return Row<char> { reinterpret_cast<const char *>(matrix) + (exists ? i64(n) * BYTES_ : 0), exists };
}

// The scale of row n, of the last one past its end, in 128 columns.
template <int N_, int K_, int BLOCK_N_, int BLOCK_K_, class S>
__device__ __forceinline__ float block_scale(const S *scales, int n, int step)
{
	constexpr int rows = BLOCK_N_ > 0 ? BLOCK_N_ : 1, columns = BLOCK_K_ > 0 ? BLOCK_K_ : K_;
	return to_f32(scales[i64(min(n, N_ - 1) / rows) * ceil_div(K_, columns) + step * 128 / columns]);
}

// warp level: rows row0..row0 + 15, bytes 32 kk .. 32 kk + 31, as a fragment of x
__device__ __forceinline__ void load_code_a(u32 (&a)[4], u32 tile, int row0, int kk)
{
	const int lane = threadIdx.x % 32, row = row0 + lane % 16;
	load_matrices(a, tile + row * 128 + code_place(row, 2 * kk + lane / 16) * 16);
}

// the same of w: b[0..1] of rows row0..row0 + 7, b[2..3] of the next eight
__device__ __forceinline__ void load_code_b(u32 (&b)[4], u32 tile, int row0, int kk)
{
	const int lane = threadIdx.x % 32, row = row0 + lane / 16 * 8 + lane % 8;
	load_matrices(b, tile + row * 128 + code_place(row, 2 * kk + lane / 8 % 2) * 16);
}

// c += 16 x 32 codes of e4m3 times 32 x 8
__device__ __forceinline__ void mma_e4m3(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
	asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		"{%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// block level: runs through a ring of T::stages. fill(step, slot) asks for a stage, if there is one, and commits;
// multiply(slot, step) takes one
template <class T, int STEPS_, class Fill, class Multiply>
__device__ __forceinline__ void code_steps(Fill fill, Multiply multiply)
{
	for (int s = 0; s < T::stages - 1; s++)
		fill(s, s);
	int slot = 0;
	for (int step = 0; step < STEPS_; step++) {
		copy_wait<T::stages - 2>();
		__syncthreads(); // this stage has arrived for all, and nobody reads the stage filled next
		fill(step + T::stages - 1, slot == 0 ? T::stages - 1 : slot - 1);
		multiply(slot, step);
		slot = slot + 1 == T::stages ? 0 : slot + 1;
	}
}

// block level, e4m3: acc = the sums, scales of columns and blocks included. A stage is summed alone, in ascending k,
// since the tensor cores keep few bits of a running sum of codes; what it gives is added in f32, times its two scales.
//   x_scale(r, step)   of row r of the block's BM         w_scale(c, step)   of rows c..c + 7 of its BN
template <int BM_, int BN_, int K_, class XRow, class WRow, class XScale, class WScale>
__device__ __forceinline__ void e4m3_products(uint4 *ring, XRow x_row, WRow w_row, XScale x_scale, WScale w_scale,
	float (&acc)[CodeTile<BM_, BN_>::m_tiles][CodeTile<BM_, BN_>::n_tiles][4])
{
	using T = CodeTile<BM_, BN_>;
	static_assert(K_ % 16 == 0, "rows are read 16 bytes at a time");
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
	const int m0 = warp % T::warps_m * T::warp_m, n0 = warp / T::warps_m * T::warp_n;
	constexpr int steps = ceil_div(K_, 128);
	const u32 base = shared_address(ring);
	auto fill = [&](int step, int slot) {
		if (step < steps) {
			fill_codes<BM_, K_>(base + slot * T::stage_bytes, x_row, step);
			fill_codes<BN_, K_>(base + slot * T::stage_bytes + BM_ * 128, w_row, step);
		}
		copy_commit();
	};
	code_steps<T, steps>(fill, [&](int slot, int step) {
		const u32 stage = base + slot * T::stage_bytes;
		float xs[T::m_tiles][2], ws[T::n_tiles], sums[T::m_tiles][T::n_tiles][4] = {};
#pragma unroll
		for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
			for (int i = 0; i < 2; i++)
				xs[m][i] = x_scale(m0 + m * 16 + g + 8 * i, step);
#pragma unroll
		for (int j = 0; j < T::n_tiles; j++)
			ws[j] = w_scale(n0 + j * 8, step);
#pragma unroll
		for (int kk = 0; kk < 4; kk++) {
			u32 a[T::m_tiles][4], b[T::n_tiles / 2][4];
#pragma unroll
			for (int m = 0; m < T::m_tiles; m++)
				load_code_a(a[m], stage, m0 + m * 16, kk);
#pragma unroll
			for (int j = 0; j < T::n_tiles / 2; j++)
				load_code_b(b[j], stage + BM_ * 128, n0 + j * 16, kk);
#pragma unroll
			for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
				for (int j = 0; j < T::n_tiles; j++)
					mma_e4m3(sums[m][j], a[m], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
		}
#pragma unroll
		for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
			for (int j = 0; j < T::n_tiles; j++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					acc[m][j][i] = fmaf(sums[m][j][i], xs[m][i / 2] * ws[j], acc[m][j][i]);
	});
}

// warp level: calls f(row, column, value of column, value of column + 1) for every pair of sums, row and column counted
// in the block's tile
template <int BM_, int BN_, class F>
__device__ __forceinline__ void each_pair(
	const float (&acc)[CodeTile<BM_, BN_>::m_tiles][CodeTile<BM_, BN_>::n_tiles][4], F f)
{
	using T = CodeTile<BM_, BN_>;
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const int m0 = warp % T::warps_m * T::warp_m, n0 = warp / T::warps_m * T::warp_n;
#pragma unroll
	for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int j = 0; j < T::n_tiles; j++)
				f(m0 + m * 16 + g + 8 * i, n0 + j * 8 + 2 * q, acc[m][j][2 * i], acc[m][j][2 * i + 1]);
}

// block level: what the products gave, for rows t0... and columns n0... of y [ROWS_, N_]: times row_factor(t) and
// scales of rows of w, plus residual, plus bias, as far as there are such; one rounding. `a` has w_row_scale [N_],
// residual [ROWS_, N_] and bias [N_]
template <int BM_, int BN_, int ROWS_, int N_, bool HAS_SCALE_, bool HAS_RESIDUAL_, bool HAS_BIAS_, class A,
	class Factor>
__device__ __forceinline__ void store_products(
	const float (&acc)[CodeTile<BM_, BN_>::m_tiles][CodeTile<BM_, BN_>::n_tiles][4], int t0, int n0, const A &a,
	Factor row_factor, bf16 *y)
{
	each_pair<BM_, BN_>(acc, [&](int r, int c, float lo, float hi) {
		const int t = t0 + r, n = n0 + c;
		if (t >= ROWS_ || n >= N_)
			return;
		const bool both = n + 1 < N_;
		const i64 at = i64(t) * N_ + n;
		lo *= row_factor(t);
		hi *= row_factor(t);
		if constexpr (HAS_SCALE_) {
			lo *= a.w_row_scale[n];
			hi *= a.w_row_scale[both ? n + 1 : n];
		}
		if constexpr (HAS_RESIDUAL_) {
			lo += to_f32(a.residual[at]);
			hi += both ? to_f32(a.residual[at + 1]) : 0.0f;
		}
		if constexpr (HAS_BIAS_) {
			lo += to_f32(a.bias[n]);
			hi += both ? to_f32(a.bias[n + 1]) : 0.0f;
		}
		store_pair(y + at, lo, hi, both, N_ % 2 == 0);
	});
}

// thread level: silu(gate) * up of column n, of what the products gave for both; `a` has their scales of rows and
// biases
template <bool GATE_SCALE_, bool UP_SCALE_, bool GATE_BIAS_, bool UP_BIAS_, class A>
__device__ __forceinline__ float gated(const A &a, float gate, float up, int n)
{
	if constexpr (GATE_SCALE_)
		gate *= a.gate_row_scale[n];
	if constexpr (UP_SCALE_)
		up *= a.up_row_scale[n];
	if constexpr (GATE_BIAS_)
		gate += to_f32(a.gate_bias[n]);
	if constexpr (UP_BIAS_)
		up += to_f32(a.up_bias[n]);
	return gate / (1.0f + __expf(-gate)) * up;
}
