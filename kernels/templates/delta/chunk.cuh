// chunk.cuh - Gated DeltaNet, 64 rows at a time: what all kernels of chunks share. DK is the contract's.
#pragma once
#include "shared/mma.cuh"

constexpr int CHUNK = 64, BLOCKS = CHUNK / 16;
constexpr int K_STRIDE = tile_stride(DK), M_STRIDE = tile_stride(CHUNK), MATRIX = CHUNK * M_STRIDE;

// An operand of a product, 16 x 16, as two.
struct Split {
	u32 hi[4], lo[4];

	__device__ __forceinline__ void put(int i, float x, float y)
	{
		hi[i] = pack_bf16(x, y);
		lo[i] = pack_bf16(x - low_bf16(hi[i]), y - high_bf16(hi[i]));
	}

	// Results of two neighbouring products: rows g and g + 8, columns 2q.. of each.
	__device__ __forceinline__ void take(const float (&left)[4], const float (&right)[4])
	{
		put(0, left[0], left[1]);
		put(1, left[2], left[3]);
		put(2, right[0], right[1]);
		put(3, right[2], right[3]);
	}
};

// c += a b, where b is exact
__device__ __forceinline__ void multiply(float (&c)[4], const Split &a, u32 b0, u32 b1)
{
	mma(c, a.hi, b0, b1);
	mma(c, a.lo, b0, b1);
}

// Two neighbouring products c += a b of a block at (row, column) of a matrix of 64 x 64 in two parts.
__device__ __forceinline__ void multiply(float (&c0)[4], float (&c1)[4], const Split &a, u32 matrix, int row,
	int column)
{
	u32 hi[4], lo[4];
	load_b(hi, matrix, M_STRIDE, row, column);
	load_b(lo, matrix + MATRIX, M_STRIDE, row, column);
	mma(c0, a.lo, hi[0], hi[1]);
	mma(c1, a.lo, hi[2], hi[3]);
	mma(c0, a.hi, lo[0], lo[1]);
	mma(c1, a.hi, lo[2], lo[3]);
	mma(c0, a.hi, hi[0], hi[1]);
	mma(c1, a.hi, hi[2], hi[3]);
}

// thread level: elements (row, column), (row, column + 1) of such a matrix
__device__ __forceinline__ void put_pair(char *matrix, int row, int column, float x, float y)
{
	char *at = matrix + row * M_STRIDE + column * 2;
	const u32 hi = pack_bf16(x, y);
	*reinterpret_cast<u32 *>(at) = hi;
	*reinterpret_cast<u32 *>(at + MATRIX) = pack_bf16(x - low_bf16(hi), y - high_bf16(hi));
}

// warp level: the inverse of 1 + A of a block on the diagonal, from -A, to its place in the matrix; a lane has a column
__device__ __forceinline__ void invert(const float (*minus)[16], char *matrix, int block)
{
	const int lane = threadIdx.x % 32;
	float x[16];
#pragma unroll
	for (int i = 0; i < 16; i++) {
		float sum[4] = { i == lane ? 1.0f : 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
		for (int k = 0; k < i; k += 4) {
			const float4 m = *reinterpret_cast<const float4 *>(&minus[i][k]); // 0 from the diagonal on
			sum[0] = fmaf(m.x, x[k], sum[0]);
			sum[1] = k + 1 < i ? fmaf(m.y, x[k + 1], sum[1]) : sum[1];
			sum[2] = k + 2 < i ? fmaf(m.z, x[k + 2], sum[2]) : sum[2];
			sum[3] = k + 3 < i ? fmaf(m.w, x[k + 3], sum[3]) : sum[3];
		}
		x[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
	}
#pragma unroll
	for (int i = 0; i < 16; i++) {
		const float next = __shfl_down_sync(~0u, x[i], 1);
		if (lane < 16 && lane % 2 == 0)
			put_pair(matrix, block * 16 + i, block * 16 + lane, x[i], next);
	}
}

// Rows of a segment that are solved together; none: there is no such chunk.
struct Chunk { int first, rows; };

// warp level: chunk `i` of all segments, in their order
__device__ __forceinline__ Chunk find_chunk(const i32 *seg, int n_segs, int i)
{
	const int lane = threadIdx.x % 32;
	for (int base = 0; base < n_segs; base += 32) {
		const bool is_there = base + lane < n_segs;
		const int first = is_there ? seg[(base + lane) * 4] : 0, rows = is_there ? seg[(base + lane) * 4 + 1] : 0;
		int end = (rows + CHUNK - 1) / CHUNK;
#pragma unroll
		for (int m = 1; m < 32; m *= 2) {
			const int before = __shfl_up_sync(~0u, end, m);
			end += lane >= m ? before : 0;
		}
		const unsigned later = __ballot_sync(~0u, end > i);
		if (later) {
			const int at = __ffs(int(later)) - 1;
			const int begin = __shfl_sync(~0u, end - (rows + CHUNK - 1) / CHUNK, at), skip = (i - begin) * CHUNK;
			const int left = __shfl_sync(~0u, rows, at) - skip;
			return { __shfl_sync(~0u, first, at) + skip, left < CHUNK ? left : CHUNK };
		}
		i -= __shfl_sync(~0u, end, 31);
	}
	return { 0, 0 };
}
