// mma_fp4.cuh - tiles of x w^T of e2m1 codes with e4m3 scales of 16 columns, on the machinery of mma_codes.cuh; the
// tensor cores of sm_120a and sm_121a apply the scales themselves.
//
// m16n8k64 takes, beside its fragments, scales of four groups of 16 columns: one word a row of x and a row of w. Lane
// 4g holds those of row g, lane 4g + 1 those of row g + 8 (the other two lanes of the four are not read); of w, lane 4g
// holds those of column g. Here every lane loads a word that is right for its place, so that no choice is made.
//
// A stage is 256 columns, 128 bytes of codes a row and 16 of scales, which stand behind the codes of both operands.
#pragma once
#include "products/mma_codes.cuh"

template <int BM_, int BN_> struct Fp4Tile : CodeTile<BM_, BN_> {
	static constexpr int scales_at = (BM_ + BN_) * 128, stage_bytes = (BM_ + BN_) * 144, stages = 98304 / stage_bytes;
};

// c += 16 x 64 codes of e2m1 times 64 x 8, each 16 of k with a scale of e4m3 in either operand
__device__ __forceinline__ void mma_e2m1(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, u32 a_scales, u32 b_scales)
{
	asm("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 "
		"{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %12}, {%11}, {%12, %12};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(a_scales), "r"(b_scales), "n"(0));
}

// thread level: the scales of ROWS_ rows in a stage, four bytes at a time. row(r): the first scale of row r, and
// whether that row is; rows have COUNT_ scales, a multiple of 4
template <int ROWS_, int COUNT_, class Rows>
__device__ __forceinline__ void fill_fp4_scales(u32 tile, Rows row, int step)
{
	const int r0 = threadIdx.x / 4, piece = threadIdx.x % 4, at = step * 16 + piece * 4;
	const bool inside = COUNT_ % 16 == 0 || at < COUNT_;
#pragma unroll
	for (int i = 0; i < ROWS_ / 64; i++) {
		const int r = r0 + i * 64;
		const Row<char> from = row(r);
		copy_few_async<4>(tile + r * 16 + piece * 4, from.start + (inside ? at : 0), from.exists && inside);
	}
}

__device__ __forceinline__ u32 word_of(const uint4 &v, int i)
{
	return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// block level: acc = the sums, scales of 16 columns included; K ascends. *_row(r): the codes of row r of a tile,
// *_scales(r): the scales of that row
template <int BM_, int BN_, int K_, class XRow, class WRow, class XScales, class WScales>
__device__ __forceinline__ void fp4_products(uint4 *ring, XRow x_row, WRow w_row, XScales x_scales, WScales w_scales,
	float (&acc)[Fp4Tile<BM_, BN_>::m_tiles][Fp4Tile<BM_, BN_>::n_tiles][4])
{
	using T = Fp4Tile<BM_, BN_>;
	static_assert(K_ % 64 == 0, "scales are read four bytes at a time");
	constexpr int steps = ceil_div(K_, 256);
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const int m0 = warp % T::warps_m * T::warp_m, n0 = warp / T::warps_m * T::warp_n;
	const u32 base = shared_address(ring);
	auto fill = [&](int step, int slot) {
		if (step < steps) {
			const u32 stage = base + slot * T::stage_bytes;
			fill_codes<BM_, K_ / 2>(stage, x_row, step);
			fill_codes<BN_, K_ / 2>(stage + BM_ * 128, w_row, step);
			fill_fp4_scales<BM_, K_ / 16>(stage + T::scales_at, x_scales, step);
			fill_fp4_scales<BN_, K_ / 16>(stage + T::scales_at + BM_ * 16, w_scales, step);
		}
		copy_commit();
	};
	code_steps<T, steps>(fill, [&](int slot, int) {
		const u32 stage = base + slot * T::stage_bytes, scales = stage + T::scales_at;
		uint4 xs[T::m_tiles], ws[T::n_tiles]; // of all four products along k
#pragma unroll
		for (int m = 0; m < T::m_tiles; m++)
			xs[m] = load_shared16(scales + (m0 + m * 16 + g + q % 2 * 8) * 16);
#pragma unroll
		for (int j = 0; j < T::n_tiles; j++)
			ws[j] = load_shared16(scales + (BM_ + n0 + j * 8 + g) * 16);
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
					mma_e2m1(acc[m][j], a[m], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], word_of(xs[m], kk),
						word_of(ws[j], kk));
		}
	});
}
