// gemm_codes.cuh - tiles of x w^T on the tensor cores where w are codes: e4m3, e2m1 or u4 with scales.
//
// gemm.cuh with another tile of w. Codes go through the ring as they lie in memory, by cp.async, and become bf16 in
// registers, exactly: every e4m3 is one, every e2m1 times its e4m3 or e8m0 scale, and every u4 less its zero. So a tile
// of w costs a half or a quarter of the shared memory and of its bandwidth, and each warp decodes what it multiplies.
//
// The order of k inside a step of 64 columns is ours as long as both operands agree: a lane's part of two products is
// eight neighbouring codes of a row of w and the same columns, a piece of 16 bytes, of a row of x. Which piece it is of
// half h of a step is `Codes::piece`: for e2m1 both are neighbours, so that they have one scale of a group of 16; for
// e4m3 and u4 a half is 32 columns, the least that a block scale may span. Pieces are stored where rows that are read
// together touch different banks (`swizzle`); nothing is padded.
//
// Scales of groups of e2m1 multiply the codes as they are decoded. Those of larger blocks, and of groups of u4,
// multiply sums in f32: of each block's columns apart, before they are added to the total. Scales of rows are the
// caller's (`scale` gives him the unit of decoding along with 1 / rms).
//
// Ring, one stage: x tile (BM rows of 128 bytes), codes (BN rows of 64 columns), 64 norm weights.
#pragma once
#include "shared/codes.cuh"
#include "products/gemm.cuh"
#include "shared/u4.cuh"

// Elements of a row of K_ as units of the pointer to it: two e2m1 stand in each.
template <class W, int K_> constexpr int row_units = bits_of<W> < 8 ? K_ / 2 : K_;

// How a weight is stored. BLOCK_N_ and BLOCK_K_ are 0 where there are no scales of blocks.
template <class W_, bool SCALED_, class Scale_, int BLOCK_N_, int BLOCK_K_> struct Codes {
	using W = W_;
	using Scale = Scale_;
	static constexpr int bits = bits_of<W_>;
	static constexpr int row_bytes = 8 * bits, pieces = row_bytes / 16; // 64 columns
	static constexpr int block_n = SCALED_ ? BLOCK_N_ : 1, block_k = SCALED_ ? BLOCK_K_ : 1 << 30;
	static constexpr bool zeroed = bits == 4 && SCALED_ && same_type<Scale_, f32z>::value;
	static constexpr bool grouped = bits == 4 && !zeroed, blocked = SCALED_ && !grouped;
	// decoded codes times this are the values
	static constexpr float unit = grouped && same_type<Scale_, e4m3>::value ? E2M1_UNIT : 1.0f;
	static_assert(!grouped || (SCALED_ && sizeof(Scale_) == 1 && BLOCK_N_ == 1 && BLOCK_K_ % 16 == 0),
		"e2m1 in groups");
	static_assert(same_type<W_, u4>::value == zeroed && (!zeroed || BLOCK_N_ == 1), "u4 has zeros, and nothing else");

	// the 16-byte piece of a row of x, 64 columns, that lane q of four multiplies in half h, and where it is stored
	static __device__ int piece(int h, int q) { return grouped ? 2 * q + h : 4 * h + q; }
	static __device__ int place(int row, int piece) { return grouped ? piece ^ row % 2 : piece ^ row % 2 * 4; }
	static __device__ int code_place(int row, int piece)
	{
		return grouped ? piece : zeroed ? piece ^ row / 4 % 2 : piece ^ row / 2 % 2 * 2;
	}
};

// The scale of a group, twice, as e2m1_weights takes it.
__device__ __forceinline__ u32 group_scale(e4m3 s) { return e2m1_scale(s.bits); }
__device__ __forceinline__ u32 group_scale(e8m0 s)
{
	const float x = to_f32(s);
	return pack_bf16(x, x);
}

template <class Scale> __device__ __forceinline__ void e2m1_weights(u32 codes, u32 scale, u32 (&y)[4])
{
	if constexpr (same_type<Scale, e8m0>::value) { // the power of two leaves no room for the exponent of the code
		e2m1_to_bf16(codes, pair_of_two_to(126), y);
#pragma unroll
		for (int i = 0; i < 4; i++)
			y[i] = multiply_bf16(y[i], scale);
	} else {
		e2m1_to_bf16(codes, scale, y);
	}
}

__device__ __forceinline__ uint4 load_shared16(u32 from)
{
	uint4 v;
	asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from));
	return v;
}

__device__ __forceinline__ uint2 load_shared8(u32 from)
{
	uint2 v;
	asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from));
	return v;
}

__device__ __forceinline__ u32 load_shared4(u32 from)
{
	u32 v;
	asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from));
	return v;
}

// thread level: ROWS_ rows of 64 columns into the ring. A row is PIECES_ times 16 bytes; place(r, piece) says where.
template <class T, int ROWS_, int PIECES_, int K_, class E, class Rows, class Place>
__device__ __forceinline__ void gemm_fill_pieces(u32 tile, Rows row, int step, Place place)
{
	constexpr int apart = T::threads / PIECES_, count = (ROWS_ + apart - 1) / apart, columns = T::bk / PIECES_;
	const int r0 = threadIdx.x / PIECES_, piece = threadIdx.x % PIECES_, k = step * T::bk + piece * columns;
	const bool in_k = K_ % T::bk == 0 || k < K_;
#pragma unroll
	for (int i = 0; i < count; i++) {
		const int r = r0 + i * apart;
		if (ROWS_ % apart && r >= ROWS_)
			break;
		const Row<E> src = row(r);
		const char *from = reinterpret_cast<const char *>(src.start) + (in_k ? k * 16 / columns : 0);
		copy_async(tile + r * (PIECES_ * 16) + place(r, piece) * 16, from, src.exists && in_k);
	}
}

// A block's stage in the ring, and what a warp and its lanes take of it.
template <int BM_, int BN_, class C> struct CodeStage {
	using T = Tile<BM_, BN_>;
	static constexpr int w_at = BM_ * 128, norm_at = w_at + BN_ * C::row_bytes, bytes = norm_at + T::norm_bytes;

	// half h of a step: rows g and g + 8 of m16 tile m
	static __device__ __forceinline__ void load_x(uint4 (&x)[2], u32 stage, int row0, int h)
	{
		const int row = row0 + threadIdx.x % 32 / 4, piece = C::piece(h, threadIdx.x % 4);
#pragma unroll
		for (int i = 0; i < 2; i++)
			x[i] = load_shared16(stage + (row + 8 * i) * 128 + C::place(row, piece) * 16);
	}

	// the lane's codes in row g of n8 tile `row0`: of half h of a step, or of both where one scale is theirs
	static __device__ __forceinline__ uint2 load_codes(u32 stage, int row0, int h)
	{
		const int row = row0 + threadIdx.x % 32 / 4, q = threadIdx.x % 4;
		if constexpr (C::grouped)
			return load_shared8(stage + w_at + row * C::row_bytes + q * 8);
		else if constexpr (C::zeroed)
			return make_uint2(load_shared4(stage + w_at + row * C::row_bytes + C::code_place(row, h) * 16 + q * 4), 0);
		else
			return load_shared8(stage + w_at + row * C::row_bytes + C::code_place(row, 2 * h + q / 2) * 16 + q % 2 * 8);
	}
};

// block level, as `gemm`: acc += x w^T over all of K, scales of blocks included; scale[m][i] times acc counts.
//   w_row(r)   Row<W> of row r of the block's BN
//   scales(r)  the first scale of that row, of some row if there is none
template <int BM_, int BN_, int K_, bool NORM, bool ONE, class C, class Norm, class XRow, class WRow, class Scales>
__device__ __forceinline__ void gemm_codes(uint4 *ring, XRow x_row, WRow w_row, Scales scales, const Norm *norm,
	float eps,
	float (&acc)[Tile<BM_, BN_>::m_tiles][Tile<BM_, BN_>::n_tiles][4],
	float (&scale)[Tile<BM_, BN_>::m_tiles][2])
{
	using T = Tile<BM_, BN_>;
	using S = CodeStage<BM_, BN_, C>;
	static_assert(K_ * C::bits % 128 == 0, "rows are read 16 bytes at a time");
	constexpr int steps = (K_ + T::bk - 1) / T::bk, last_scale = ceil_div(K_, C::block_k) - 1;
	constexpr bool apart = C::blocked && last_scale > 0; // sums of a block of columns are kept apart until it ends
	static_assert(!apart || C::block_k % 32 == 0, "a block's columns are whole halves of steps");
	const u32 base = shared_address(ring);
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const int m0 = warp % T::warps_m * T::warp_m, n0 = warp / T::warps_m * T::warp_n;
	float ss[T::m_tiles][2] = {}, block[apart ? T::m_tiles : 1][apart ? T::n_tiles : 1][4] = {};

	auto fill = [&](int step, int slot) {
		if (step < steps) {
			const u32 stage = base + slot * S::bytes;
			gemm_fill_pieces<T, BM_, 8, K_, bf16>(stage, x_row, step, C::place);
			gemm_fill_pieces<T, BN_, C::pieces, K_, typename C::W>(stage + S::w_at, w_row, step, C::code_place);
			if constexpr (NORM)
				gemm_fill_norm<T, K_>(stage + S::norm_at, norm, step * T::bk);
		}
		copy_commit();
	};
	typename C::Scale next[C::grouped ? T::n_tiles : 1]; // scales of the next step's codes
	auto fetch = [&](int j, int step) {
		next[j] = scales(n0 + j * 8 + g)[min((step * T::bk + 16 * q) / C::block_k, last_scale)];
	};
	// with zeros: of this lane's row of each tile, in this step and in the next; in both halves, or one each
	constexpr int halves = C::zeroed && C::block_k % T::bk ? 2 : 1;
	typename C::Scale now[C::zeroed ? T::n_tiles : 1][halves], then[C::zeroed ? T::n_tiles : 1][halves];
	auto fetch_zeroed = [&](int j, int step) {
#pragma unroll
		for (int h = 0; h < halves; h++)
			then[j][h] = scales(n0 + j * 8 + g)[min((step * T::bk + 32 * h) / C::block_k, last_scale)];
	};
	// acc += sums of scale `at`'s columns, times it; they start anew
	auto promote = [&](auto &sums, int at, int h) {
#pragma unroll
		for (int j = 0; j < T::n_tiles; j++) {
			float s0, s1;
			if constexpr (C::zeroed) { // rows 2q and 2q + 1 are other lanes'
				const float mine = to_f32(now[j][h % halves]);
				s0 = __shfl_sync(~0u, mine, 8 * q);
				s1 = __shfl_sync(~0u, mine, 8 * q + 4);
			} else {
				s0 = to_f32(scales(n0 + j * 8 + 2 * q)[at]);
				s1 = C::block_n % 8 == 0 ? s0 : to_f32(scales(n0 + j * 8 + 2 * q + 1)[at]);
			}
#pragma unroll
			for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
				for (int i = 0; i < 4; i++) {
					acc[m][j][i] = apart ? fmaf(sums[m][j][i], i % 2 ? s1 : s0, acc[m][j][i])
						: acc[m][j][i] * (i % 2 ? s1 : s0);
					if constexpr (apart)
						sums[m][j][i] = 0.0f;
				}
		}
	};
	for (int s = 0; s < T::stages - 1; s++)
		fill(s, s);
	if constexpr (C::grouped) {
#pragma unroll
		for (int j = 0; j < T::n_tiles; j++)
			fetch(j, 0);
	}
	if constexpr (C::zeroed) {
#pragma unroll
		for (int j = 0; j < T::n_tiles; j++)
			fetch_zeroed(j, 0);
	}
	int slot = 0;
	for (int step = 0; step < steps; step++) {
		copy_wait<T::stages - 2>();
		__syncthreads(); // this stage has arrived for all, and nobody reads the stage filled next
		fill(step + T::stages - 1, slot == 0 ? T::stages - 1 : slot - 1);
		const u32 stage = base + slot * S::bytes;
		const Norm *weights =
			reinterpret_cast<const Norm *>(reinterpret_cast<const char *>(ring) + slot * S::bytes + S::norm_at);
		uint2 codes[T::n_tiles];
		u32 group[C::grouped ? T::n_tiles : 1];
		if constexpr (C::grouped) {
#pragma unroll
			for (int j = 0; j < T::n_tiles; j++) {
				group[j] = group_scale(next[j]);
				fetch(j, step + 1);
			}
		}
		if constexpr (C::zeroed) {
#pragma unroll
			for (int j = 0; j < T::n_tiles; j++) {
#pragma unroll
				for (int h = 0; h < halves; h++)
					now[j][h] = then[j][h];
				fetch_zeroed(j, step + 1);
			}
		}
#pragma unroll
		for (int h = 0; h < 2; h++) {
			uint4 x[T::m_tiles][2];
			u32 a[T::m_tiles][2][4]; // of two products
#pragma unroll
			for (int m = 0; m < T::m_tiles; m++)
				S::load_x(x[m], stage, m0 + m * 16, h);
#pragma unroll
			for (int j = 0; j < T::n_tiles; j++)
				if (h == 0 || !C::grouped)
					codes[j] = S::load_codes(stage, n0 + j * 8, h);
#pragma unroll
			for (int m = 0; m < T::m_tiles; m++) {
				const u32 first[4] = { x[m][0].x, x[m][1].x, x[m][0].y, x[m][1].y };
				const u32 second[4] = { x[m][0].z, x[m][1].z, x[m][0].w, x[m][1].w };
#pragma unroll
				for (int i = 0; i < 4; i++) {
					a[m][0][i] = first[i];
					a[m][1][i] = second[i];
				}
				if constexpr (NORM) {
					gemm_norm_fragment<ONE, 2>(a[m][0], weights + C::piece(h, q) * 8, ss[m]);
					gemm_norm_fragment<ONE, 2>(a[m][1], weights + C::piece(h, q) * 8 + 4, ss[m]);
				}
			}
#pragma unroll
			for (int j = 0; j < T::n_tiles; j++) {
				u32 b[4];
				if constexpr (C::grouped) {
					e2m1_weights<typename C::Scale>(h ? codes[j].y : codes[j].x, group[j], b);
				} else if constexpr (C::zeroed) {
					u4_to_bf16(codes[j].x, u4_zero(now[j][h % halves]), b);
				} else {
					e4m3_numbers(codes[j].x, b[0], b[1]);
					e4m3_numbers(codes[j].y, b[2], b[3]);
				}
#pragma unroll
				for (int e = 0; e < 2; e++)
#pragma unroll
					for (int m = 0; m < T::m_tiles; m++) {
						if constexpr (apart)
							mma(block[m][j], a[m][e], b[2 * e], b[2 * e + 1]);
						else
							mma(acc[m][j], a[m][e], b[2 * e], b[2 * e + 1]);
					}
			}
			if constexpr (apart) {
				const int end = step * T::bk + h * 32 + 32;
				if (end % C::block_k == 0 || (h == 1 && step + 1 == steps && K_ % C::block_k))
					promote(block, min((end - 1) / C::block_k, last_scale), h);
			}
		}
		slot = slot + 1 == T::stages ? 0 : slot + 1;
	}
	if constexpr (C::blocked && !apart)
		promote(acc, 0, 0);
	gemm_scales<BM_, BN_, K_, NORM>(ss, eps, scale);
#pragma unroll
	for (int m = 0; m < T::m_tiles; m++)
#pragma unroll
		for (int i = 0; i < 2; i++)
			scale[m][i] *= C::unit;
}

// block level: the product by whichever of the two the weights need
template <int BM_, int BN_, int K_, bool NORM, bool ONE, class C, class Norm, class XRow, class WRow, class Scales>
__device__ __forceinline__ void gemm_weights(uint4 *ring, XRow x_row, WRow w_row, Scales scales, const Norm *norm,
	float eps, float (&acc)[Tile<BM_, BN_>::m_tiles][Tile<BM_, BN_>::n_tiles][4],
	float (&scale)[Tile<BM_, BN_>::m_tiles][2])
{
	if constexpr (C::bits < 16)
		gemm_codes<BM_, BN_, K_, NORM, ONE, C>(ring, x_row, w_row, scales, norm, eps, acc, scale);
	else
		gemm<BM_, BN_, K_, NORM, ONE, typename C::W>(ring, x_row, w_row, norm, eps, acc, scale);
}

// The first scale of row n of a weight of N_ rows, of the last one past its end; tiles have ROWS_ rows.
template <class C, int N_, int K_, int ROWS_>
__device__ __forceinline__ const typename C::Scale *scale_row(const typename C::Scale *scales, int n)
{
	return scales + i64((N_ % ROWS_ ? min(n, N_ - 1) : n) / C::block_n) * ceil_div(K_, C::block_k);
}
