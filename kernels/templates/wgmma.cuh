// wgmma.cuh - tiles of x w^T through wgmma, for many rows (sm_90a only).
//
// A block computes 128 rows of x against BN rows of w with two warpgroups, each 64 rows by all BN. Both operands
// stream through a ring of tiles of 64 columns. wgmma reads them from shared memory by descriptor, in the layout
// that its 128-byte swizzle wants: a row is 128 bytes, and the 16-byte piece p of row r lies at place p ^ (r % 8).
// cp.async of single pieces writes that layout as easily as any other, and zeros past the edges.
//
// All warps fill and all multiply. A step waits for its stage, starts its products, and only then asks for the
// stage two or more steps ahead, so addresses are computed while the tensor cores work. Products of the step before
// are still under way at that moment; those of the step before that are over in every warp, which is what
// frees the slot being filled: hence the ring looks two stages less ahead than it is long.
//
// A norm in front takes x through registers, as gemm.cuh does: fragments become bf16(x * norm) and their squares are
// summed. The tensor cores read such registers while the next step prepares, so there are two sets of them.
//
// Contracts define their names as macros, so names here are in lower case or end in an underscore.
// In contracts:  BLOCK(256)  SMEM((BN == 256 ? 4 : 6) * ((128 + BN) * 128 + 256) + 1024)
#pragma once
#include "gemm.cuh"

template <int BN_> struct WideTile {
	static constexpr int bm = 128, bk = 64, threads = 256, stages = BN_ == 256 ? 4 : 6, ahead = stages - 2;
	static constexpr int w_at = bm * bk * 2, stage_bytes = (bm + BN_) * bk * 2, norm_bytes = 256;
	static_assert(BN_ == 128 || BN_ == 256, "the shapes of wgmma spelled out below");
};

// Tensor core instructions --------------------------------------------------------------------------------------
//
// Accumulators of m64nNk16, in each warp of the warpgroup 16 rows, with g = lane / 4 and q = lane % 4: acc[j][0..3]
// are (g, 8j + 2q), (g, 8j + 2q + 1), (g + 8, 8j + 2q), (g + 8, 8j + 2q + 1), as mma.sync has them. An x fragment in
// registers is one of mma.m16n8k16.

// warpgroup level: what this thread wrote to accumulators and fragments is seen by the products that follow
__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void wgmma_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
}

// thread level: shared memory that this thread wrote becomes visible to wgmma after the next barrier
__device__ __forceinline__ void fence_for_wgmma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Registers that products under way still touch stay theirs until here: values are neither moved up nor replaced.
template <int A_, int B_> __device__ __forceinline__ void hold(float (&r)[A_][B_])
{
#pragma unroll
	for (int i = 0; i < A_; i++)
#pragma unroll
		for (int j = 0; j < B_; j++)
			asm volatile("" : "+f"(r[i][j]) :: "memory");
}

template <int A_, int B_> __device__ __forceinline__ void hold(u32 (&r)[A_][B_])
{
#pragma unroll
	for (int i = 0; i < A_; i++)
#pragma unroll
		for (int j = 0; j < B_; j++)
			asm volatile("" : "+r"(r[i][j]) :: "memory");
}

// The descriptor of a tile at `address` (a multiple of 1024 bytes): 128-byte swizzle, k innermost, 1024 bytes from
// one group of eight rows to the next. Sixteen columns on: 2 more (it counts 16 bytes).
__device__ __forceinline__ u64 tile_descriptor(u32 address)
{
	return u64(1) << 62 | u64(1024 / 16) << 32 | u64(1) << 16 | (address & 0x3ffff) >> 4;
}

#define WGMMA_4(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define WGMMA_16(j) WGMMA_4(j), WGMMA_4(j + 1), WGMMA_4(j + 2), WGMMA_4(j + 3)
#define WGMMA_64(j) WGMMA_16(j), WGMMA_16(j + 4), WGMMA_16(j + 8), WGMMA_16(j + 12)
#define WGMMA_64_NAMES "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
	"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
	"%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_128_NAMES WGMMA_64_NAMES ", " \
	"%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
	"%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
	"%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
	"%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_TEXT(n) "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 {"

// warpgroup level: c += 64 rows of x, 16 columns, times as many of w; x by descriptor
__device__ __forceinline__ void wgmma(float (&c)[16][4], u64 x, u64 w)
{
	asm volatile(WGMMA_TEXT("128") WGMMA_64_NAMES "}, %64, %65, 1, 1, 1, 0, 0;" : WGMMA_64(0) : "l"(x), "l"(w));
}

__device__ __forceinline__ void wgmma(float (&c)[32][4], u64 x, u64 w)
{
	asm volatile(WGMMA_TEXT("256") WGMMA_128_NAMES "}, %128, %129, 1, 1, 1, 0, 0;"
		: WGMMA_64(0), WGMMA_64(16) : "l"(x), "l"(w));
}

// the same, x in registers
__device__ __forceinline__ void wgmma(float (&c)[16][4], const u32 (&x)[4], u64 w)
{
	asm volatile(WGMMA_TEXT("128") WGMMA_64_NAMES "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
		: WGMMA_64(0) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(w));
}

__device__ __forceinline__ void wgmma(float (&c)[32][4], const u32 (&x)[4], u64 w)
{
	asm volatile(WGMMA_TEXT("256") WGMMA_128_NAMES "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 0;"
		: WGMMA_64(0), WGMMA_64(16) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(w));
}

// Tiles ---------------------------------------------------------------------------------------------------------

// block level: ROWS_ rows of an operand, columns k0..k0+63, into a swizzled tile
template <int ROWS_, int K_, class Rows> __device__ __forceinline__ void wgmma_fill(u32 tile, Rows row, int k0)
{
	const int r0 = threadIdx.x / 8, piece = threadIdx.x % 8;
	const bool in_k = K_ % 64 == 0 || k0 + piece * 8 < K_;
	const int k = in_k ? k0 + piece * 8 : 0;
	const u32 to = tile + r0 * 128 + (piece ^ r0 % 8) * 16;
#pragma unroll
	for (int i = 0; i < ROWS_ / 32; i++) {
		const Row<bf16> src = row(r0 + i * 32);
		copy_async(to + i * 32 * 128, src.start + k, src.exists && in_k);
	}
}

// warp level: the fragments of rows row0..row0+15, all 64 columns
__device__ __forceinline__ void wgmma_fragments(u32 (&x)[4][4], u32 tile, int row0)
{
	const int lane = threadIdx.x % 32, r = row0 + lane % 16;
#pragma unroll
	for (int i = 0; i < 4; i++)
		load_matrices(x[i], tile + r * 128 + ((2 * i + lane / 16) ^ r % 8) * 16);
}

// block level: acc += x w^T over all of K; scale[i] = 1 / rms of the thread's rows g and g + 8, or 1 without a norm.
//   x_row(r)  Row<bf16> of row r of the block's 128      w_row(r)  Row<bf16> of row r of its BN
// Calls let_next_start and inputs_ready: w and norm are weights, x may come from the launch before.
template <int BN_, int K_, bool NORM, bool ONE, class Norm, class XRow, class WRow>
__device__ __forceinline__ void wgmma_gemm(uint4 *dynamic, XRow x_row, WRow w_row, const Norm *norm, float eps,
	float (&acc)[BN_ / 8][4], float (&scale)[2])
{
	using T = WideTile<BN_>;
	static_assert(K_ % 8 == 0, "rows are read 16 bytes at a time");
	constexpr int steps = (K_ + T::bk - 1) / T::bk, norms_at = T::stages * T::stage_bytes;
	const u32 start = shared_address(dynamic), base = (start + 1023) / 1024 * 1024;
	const char *norms = reinterpret_cast<const char *>(dynamic) + (base - start) + norms_at;
	const int warp = __shfl_sync(~0u, int(threadIdx.x / 32), 0), group = warp / 4;
	float ss[2] = {};
	int slot = 0, next = T::ahead; // of the step, and of the one filled after it

	auto fill_x = [&](int step, int to) {
		if (step < steps)
			wgmma_fill<T::bm, K_>(base + to * T::stage_bytes, x_row, step * T::bk);
	};
	auto fill_weights = [&](int step, int to) {
		if (step < steps) {
			wgmma_fill<BN_, K_>(base + to * T::stage_bytes + T::w_at, w_row, step * T::bk);
			if constexpr (NORM)
				gemm_fill_norm<T, K_>(base + norms_at + to * T::norm_bytes, norm, step * T::bk);
		}
	};
	auto multiply = [&](int step, u32 (&x)[4][4]) {
		copy_wait<T::ahead - 1>();
		fence_for_wgmma();
		__syncthreads();
		const u32 stage = base + slot * T::stage_bytes;
		const u64 w = tile_descriptor(stage + T::w_at);
		if constexpr (NORM) {
			const Norm *weights = reinterpret_cast<const Norm *>(norms + slot * T::norm_bytes);
			wgmma_fragments(x, stage, warp * 16);
#pragma unroll
			for (int i = 0; i < 4; i++)
				gemm_norm_fragment<ONE>(x[i], weights, i * 16, ss);
			wgmma_begin();
#pragma unroll
			for (int i = 0; i < 4; i++)
				wgmma(acc, x[i], w + 2 * i);
		} else {
			const u64 rows = tile_descriptor(stage + group * (64 * 128));
			wgmma_begin();
#pragma unroll
			for (int i = 0; i < 4; i++)
				wgmma(acc, rows + 2 * i, w + 2 * i);
		}
		wgmma_commit();
		fill_x(step + T::ahead, next);
		fill_weights(step + T::ahead, next);
		copy_commit();
		slot = slot + 1 == T::stages ? 0 : slot + 1;
		next = next + 1 == T::stages ? 0 : next + 1;
		wgmma_wait<1>();
	};
	let_next_start();
	for (int s = 0; s < T::ahead; s++)
		fill_weights(s, s);
	inputs_ready(); // weights are there before what the launch before computes
	for (int s = 0; s < T::ahead; s++) {
		fill_x(s, s);
		copy_commit();
	}
	u32 even[4][4] = {}, odd[4][4] = {};
	for (int step = 0; step + 1 < steps; step += 2) {
		multiply(step, even);
		hold(odd); // of the step before this
		multiply(step + 1, odd);
		hold(even);
	}
	if constexpr (steps % 2)
		multiply(steps - 1, even);
	wgmma_wait<0>();
	hold(even);
	hold(odd);
	hold(acc);
#pragma unroll
	for (int i = 0; i < 2; i++) {
		ss[i] += __shfl_xor_sync(~0u, ss[i], 1);
		ss[i] += __shfl_xor_sync(~0u, ss[i], 2);
		scale[i] = NORM ? rsqrtf(ss[i] / K_ + eps) : 1.0f;
	}
}

// Results -------------------------------------------------------------------------------------------------------
//
// A thread's results of a tile lie as its accumulators do: v[i][j] holds columns 8j + 2q and 8j + 2q + 1 of row g + 8i
// of the warp's 16. In memory 16 bytes are eight columns of one row, so the four lanes of a row exchange words.

// warp level: word j of lane q and word q of lane j change places, within each four lanes
__device__ __forceinline__ void quad_transpose(u32 (&v)[4])
{
#pragma unroll
	for (int bit = 1; bit <= 2; bit *= 2) {
		const bool upper = threadIdx.x & bit;
#pragma unroll
		for (int j = 0; j < 4; j++) {
			if (j & bit)
				continue;
			const u32 got = __shfl_xor_sync(~0u, upper ? v[j] : v[j + bit], bit);
			(upper ? v[j] : v[j + bit]) = got;
		}
	}
}

template <int TILES_> __device__ __forceinline__ void transpose_tile(u32 (&v)[2][TILES_])
{
	static_assert(TILES_ % 4 == 0, "lanes exchange four words");
#pragma unroll
	for (int i = 0; i < 2; i++)
#pragma unroll
		for (int j = 0; j < TILES_; j += 4) {
			u32 w[4] = { v[i][j], v[i][j + 1], v[i][j + 2], v[i][j + 3] };
			quad_transpose(w);
#pragma unroll
			for (int k = 0; k < 4; k++)
				v[i][j + k] = w[k];
		}
}

// warp level: a tile of a matrix of N_ columns from or to memory. `at` is the tile's first element; `rows` and
// `columns` are what the matrix has from there on.
template <int N_, int TILES_>
__device__ __forceinline__ void load_tile(u32 (&v)[2][TILES_], const bf16 *at, int rows, int columns)
{
	const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int r = row + 8 * i;
		const bf16 *line = at + i64(r) * N_;
		if constexpr (N_ % 8 == 0) {
#pragma unroll
			for (int j = 0; j < TILES_; j += 4) {
				const int c = (j + q) * 8;
				uint4 w = {};
				if (r < rows && c < columns)
					w = *reinterpret_cast<const uint4 *>(line + c);
				v[i][j] = w.x;
				v[i][j + 1] = w.y;
				v[i][j + 2] = w.z;
				v[i][j + 3] = w.w;
			}
		} else {
#pragma unroll
			for (int j = 0; j < TILES_; j++) {
				const int c = j * 8 + 2 * q;
				v[i][j] = pack_bf16(r < rows && c < columns ? to_f32(line[c]) : 0.0f,
					r < rows && c + 1 < columns ? to_f32(line[c + 1]) : 0.0f);
			}
		}
	}
	if constexpr (N_ % 8 == 0) // once all loads are under way
		transpose_tile(v);
}

template <int N_, int TILES_>
__device__ __forceinline__ void store_tile(bf16 *at, int rows, int columns, u32 (&v)[2][TILES_])
{
	const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	if constexpr (N_ % 8 == 0)
		transpose_tile(v);
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int r = row + 8 * i;
		bf16 *line = at + i64(r) * N_;
		if (r >= rows)
			continue;
		if constexpr (N_ % 8 == 0) {
#pragma unroll
			for (int j = 0; j < TILES_; j += 4) {
				const int c = (j + q) * 8;
				if (c < columns)
					*reinterpret_cast<uint4 *>(line + c) = make_uint4(v[i][j], v[i][j + 1], v[i][j + 2], v[i][j + 3]);
			}
		} else {
#pragma unroll
			for (int j = 0; j < TILES_; j++) {
				const int c = j * 8 + 2 * q;
				if (c < columns)
					store_pair(line + c, low_bf16(v[i][j]), high_bf16(v[i][j]), c + 1 < columns, N_ % 2 == 0);
			}
		}
	}
}

// Element n of a bias of N_ elements, 0 past its end.
template <int N_, class B> __device__ __forceinline__ float bias_at(const B *bias, int n)
{
	return n < N_ ? to_f32(bias[n]) : 0.0f;
}
