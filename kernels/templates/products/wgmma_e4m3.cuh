// wgmma_e4m3.cuh - tiles of x w^T of bf16 rows by weights of e4m3, on the machinery of wgmma_codes.cuh (sm_90a only).
//
// As there w is the first operand, decoded exactly to bf16 on its way through registers. A stage is 128 bytes of each
// row of w, 128 columns, which is one block of scales along k: the tensor cores sum it alone, and then each sum is
// added, times the scale of its block, to f32 accumulators. A warpgroup's rows of a part lie in one block.
//
// Fragments: of a row's 16 columns lane q of four needs bytes 2q, 2q + 1, 2q + 8 and 2q + 9, which it loads as two
// pairs. That takes a third of what shared memory delivers where memory delivers w at its full rate.
#pragma once
#include "products/wgmma_codes.cuh"

// What a launch multiplies, and its form. Scale_ is of 128 x 128 blocks.
template <class Scale_, int K_, int N_, int BM_, int WARPGROUPS_, int SPLIT_, int PARTS_>
struct ByteProducts {
	using Tile = CodeTile<BM_, WARPGROUPS_, 8>;
	using Scale = Scale_;
	static constexpr int bits = 8, n = N_, bm = BM_, cluster = 1, split = SPLIT_, parts = PARTS_;
	static constexpr int columns = Tile::rows / PARTS_; // of y in a tile
	static constexpr int stages = ceil_div(K_, 128);
	static constexpr float unit = 1.0f;                 // sums times this are the values
	using Tiles = CodeTiles<BM_, columns, N_, 1, SPLIT_>;
	static_assert(K_ % 16 == 0 && N_ % 8 == 0, "rows are read and written 16 bytes at a time");
	static_assert(BM_ <= (WARPGROUPS_ == 2 ? 128 : WARPGROUPS_ == 3 ? 64 : 32),
		"sums of a stage have registers of their own");
	static_assert(stages >= SPLIT_, "each block has a run of columns");

	const TensorMap *x, *w[PARTS_];
	const Scale_ *scale[PARTS_]; // NULL without

	// the run of stages of this block
	static __device__ int first() { return SPLIT_ == 1 ? 0 : int(blockIdx.x) % SPLIT_ * stages / SPLIT_; }
	static __device__ int last() { return SPLIT_ == 1 ? stages : (int(blockIdx.x) % SPLIT_ + 1) * stages / SPLIT_; }
};

// Two neighbouring codes as two bf16 (thread level). A code's sign fills the byte above it; four bits up, sign,
// exponent and fraction lie where a bf16 has them, and a multiplication sets the exponent right, of subnormal codes
// too.
__device__ __forceinline__ u32 byte_pair(u32 codes)
{
	u32 y;
	asm("prmt.b32 %0, %1, 0, 0x9180;" : "=r"(y) : "r"(codes));
	return multiply_bf16(y << 4 & 0x87f087f0u, pair_of_two_to(120));
}

__device__ __forceinline__ u32 load_shared_2(u32 from)
{
	u32 x;
	asm volatile("ld.shared.u16 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
	return x;
}

// one warpgroup, number `group` of them: acc = its 64 rows of the tile times all rows of x, in ascending k
template <class P>
__device__ __forceinline__ void bytes_multiply(CodeRings<typename P::Tile> &ring, int group, int column, const P &p,
	float (&acc)[P::bm / 8][4])
{
	using T = typename P::Tile;
	constexpr int mine = 64 / P::parts;                             // rows of a part that a warpgroup has
	constexpr u32 second = (P::parts == 1 ? 8 : P::columns) * 128;  // bytes from a thread's first row to its other one
	const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
	const u32 at = (group * mine + warp * (mine / 4) + lane / 4) * 128 + lane / 4 * 16 + lane % 4 * 2;
	const i64 block = i64(min(column + group * mine, P::n - 1) / 128) * P::stages;
	u32 w[2][4][4];
	float part[P::bm / 8][4] = {};
#pragma unroll
	for (int j = 0; j < P::bm / 8; j++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			acc[j][i] = 0.0f;
	float now[P::parts], next[P::parts]; // scales of 32 stages, one a lane: a load a stage would be waited for
	auto load = [&](int stage) {
#pragma unroll
		for (int i = 0; i < P::parts; i++)
			next[i] = p.scale[i] ? to_f32(p.scale[i][block + min(stage + lane, P::last() - 1)]) : 1.0f;
	};
	auto decode = [&](int step, u32 (&to)[4][4]) { // the fragments of four products: of 64 rows and 16 columns each
		const u32 from = ring.w_stage() + at;
#pragma unroll
		for (int i = 0; i < 4; i++)
#pragma unroll
			for (int j = 0; j < 4; j++)
				to[i][j] = byte_pair(load_shared_2((from ^ (step * 4 + i) * 16) + j % 2 * second + j / 2 * 8));
	};
	load(P::first());
	barrier_wait(ring.w.full(), ring.w.turn);
	decode(0, w[0]);
	for (int stage = P::first(); stage < P::last(); stage++) {
		const int within = (stage - P::first()) % 32;
		if (within == 0) {
#pragma unroll
			for (int i = 0; i < P::parts; i++)
				now[i] = next[i];
			load(stage + 32);
		}
		barrier_wait(ring.x.full(), ring.x.turn);
		u64 x = tile_descriptor(ring.x_stage());
		wgmma_begin();
		wgmma_decoded<0>(part, w[0][0], x);
#pragma unroll
		for (int i = 1; i < 4; i++)
			wgmma_decoded<1>(part, w[0][i], x + 2 * i);
		wgmma_commit();
		const u32 before = ring.x.free();
		ring.x.advance();
		decode(1, w[1]);
		wgmma_release<1>(ring.w.free());
		ring.w.advance();
		barrier_wait(ring.x.full(), ring.x.turn);
		x = tile_descriptor(ring.x_stage());
		wgmma_begin();
#pragma unroll
		for (int i = 0; i < 4; i++)
			wgmma_decoded<1>(part, w[1][i], x + 2 * i);
		wgmma_commit();
		wgmma_wait<1>();
		hold(w[0]);
		wgmma_release<1>(before);
		if (stage + 1 < P::last()) {
			barrier_wait(ring.w.full(), ring.w.turn);
			decode(0, w[0]);
		}
		wgmma_wait<0>();
		hold(part);
		hold(w[1]);
		wgmma_release<1>(ring.x.free());
		ring.x.advance();
		float scale[2]; // of a thread's two rows
#pragma unroll
		for (int i = 0; i < 2; i++)
			scale[i] = __shfl_sync(~0u, now[i % P::parts], within);
#pragma unroll
		for (int j = 0; j < P::bm / 8; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				acc[j][i] = fmaf(part[j][i], scale[i / 2], acc[j][i]);
	}
}
