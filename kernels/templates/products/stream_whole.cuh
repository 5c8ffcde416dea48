// stream_whole.cuh - streamed products of codes of e2m1 and a row of x in whole numbers (whole_numbers.cuh).
#pragma once
#include "products/stream_ring.cuh"
#include "products/whole_numbers.cuh"

// Few rows of x in whole numbers, a turn at a time; that of the next turn is on its way meanwhile. Several rows are
// those that are not NULL, in front.
template <class S, bool ONE, class Norm, class Ring> struct WholeStage {
	static constexpr int each = S::cols / 256, pitch = S::cols / 4, place = S::rows * pitch; // of 8 columns, in a lane
	using Weights = typename TypeIf<Ring::norm_there, Vec8<Norm>, int>::Type;
	uint4 *mine; // [rows][cols / 8][2]: four digits of the first four elements and of the others
	const bf16 *row[S::rows];
	int count;
	uint4 x[S::rows][each];
	Weights norm[each];

	// before other launches' results may be read: the norm's weights
	__device__ __forceinline__ WholeStage(uint4 *memory, const Ring &ring) : mine(memory) { read_norm(ring, 0); }

	// when they may
	template <class XRow> __device__ __forceinline__ void take(XRow x_row)
	{
		count = S::rows == 1;
#pragma unroll
		for (int t = 0; t < S::rows; t++) {
			row[t] = x_row(t);
			if constexpr (S::rows > 1)
				count += row[t] != nullptr;
		}
	}
	__device__ __forceinline__ bool has(int t) const { return S::rows == 1 || t < count; }

	__device__ __forceinline__ void read_norm(const Ring &ring, int turn)
	{
		if constexpr (Ring::norm_there)
#pragma unroll
			for (int i = 0; i < each; i++) {
				const int k = ring.column(turn) + (threadIdx.x % 32 + 32 * i) * 8;
				norm[i] = Weights();
				if (turn < ring.turns && (Ring::exact || k < S::k))
					norm[i] = load8(ring.norm + k);
			}
	}
	__device__ __forceinline__ void read(const Ring &ring, int turn)
	{
#pragma unroll
		for (int t = 0; t < S::rows; t++)
#pragma unroll
			for (int i = 0; i < each; i++) {
				const int k = ring.column(turn) + (threadIdx.x % 32 + 32 * i) * 8;
				x[t][i] = make_uint4(0, 0, 0, 0);
				if (row[t] && turn < ring.turns && (Ring::exact || k < S::k))
					x[t][i] = *reinterpret_cast<const uint4 *>(row[t] + k);
			}
	}

	// warp level: what was read of a row into its place; what sums with it are to be multiplied by. A lane's squares
	// add up
	__device__ __forceinline__ float fill(int t, float &squares)
	{
		u32 largest = 0; // of the magnitudes, as f32
#pragma unroll
		for (int i = 0; i < each; i++) {
			if constexpr (Ring::norm_there) {
				float sum = S::by_steps ? 0.0f : squares;
				x[t][i] = stream_norm<ONE>(x[t][i], norm[i], sum);
				squares = S::by_steps ? squares + stream_eighths(sum) : sum;
			}
			largest = max(largest, whole_largest(x[t][i]));
		}
#pragma unroll
		for (int m = 16; m; m /= 2)
			largest = max(largest, __shfl_xor_sync(~0u, largest, m));
		const float factor = __uint_as_float(whole_exponent(largest) << 23);
#pragma unroll
		for (int i = 0; i < each; i++) {
			u32 digit[4][2];
			whole_digits(x[t][i], factor, digit);
#pragma unroll
			for (int j = 0; j < 2; j++)
				mine[t * pitch + 2 * (int(threadIdx.x % 32) + 32 * i) + j] =
					make_uint4(digit[2 * j][0], digit[2 * j][1], digit[2 * j + 1][0], digit[2 * j + 1][1]);
		}
		return whole_factor(largest);
	}
};

// Of each row of x: rows g and g + 8 of each tile of w.
template <class S> struct WholeSums { float at[S::rows][S::tiles][2]; };

// warp level: the sums of a turn in `slot`. b: of groups of 16 zeros in all lanes whose column of the product has none
// of a lane's codes
template <class S, class Ring, class Stage>
__device__ __forceinline__ void whole_turn(const Ring &ring, const Stage &stage, const char *slot, u32 table,
	u32 (&b)[2][2], WholeSums<S> &total)
{
	constexpr int together = S::block_k / 16; // steps whose sums are of the same groups, a group of 16 or a step each
	constexpr int at_once = together == 2 ? 1 : S::tiles; // as many as have registers
	const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
	const uint2 *const digits = reinterpret_cast<const uint2 *>(stage.mine) + 4 * q + g % 4;
	const char *scales[S::tiles];
#pragma unroll
	for (int m = 0; m < S::tiles; m++)
		scales[m] = slot + Ring::scales_at + (m * 16 + g) * Ring::row_place
			+ (Ring::scale_piece ? 0 : ring.scale_shift(m, g)) + q / 2;
#pragma unroll
	for (int step = 0; step < S::cols / 32; step += together)
#pragma unroll
		for (int m0 = 0; m0 < S::tiles; m0 += at_once) {
			u32 a[together][at_once][2][4];
			float scale[at_once][2];
#pragma unroll
			for (int j = 0; j < together; j++) {
				const char *const weights = ring.weights(slot, step + j);
#pragma unroll
				for (int m = 0; m < at_once; m++)
#pragma unroll
					for (int h = 0; h < 2; h++)
						whole_decode(ring.read(weights, (m0 + m) * 16 + 8 * h).at[0], table, a[j][m][h]);
			}
#pragma unroll
			for (int m = 0; m < at_once; m++)
#pragma unroll
				for (int h = 0; h < 2; h++)
					scale[m][h] = whole_scale(typename S::Scale(), *reinterpret_cast<const unsigned char *>(
						scales[m0 + m] + 8 * h * Ring::row_place + step * 32 / S::block_k));
#pragma unroll
			for (int t = 0; t < S::rows; t++) {
				if (!stage.has(t))
					break;
				if constexpr (together == 2) { // each step has four of the columns
					const uint2 v = digits[t * Stage::pitch * 2 + (step + g / 4) * 16];
					b[0][0] = g < 4 ? v.x : 0;
					b[0][1] = g < 4 ? v.y : 0;
					b[1][0] = g < 4 ? 0 : v.x;
					b[1][1] = g < 4 ? 0 : v.y;
				} else if (g / 4 == q / 2) {
					const uint2 v = digits[t * Stage::pitch * 2 + step * 16];
					b[(step + t) % 2][0] = v.x;
					b[(step + t) % 2][1] = v.y;
				}
#pragma unroll
				for (int m = 0; m < at_once; m++)
#pragma unroll
					for (int h = 0; h < 2; h++) {
						u32 sum[4] = { whole_zero, whole_zero, whole_zero, whole_zero };
#pragma unroll
						for (int j = 0; j < together; j++) {
							const u32 (&column)[2] = b[together == 2 ? j : (step + t) % 2];
							mma_whole(sum, a[j][m][h], column[0], column[1]);
						}
						float &of_row = total.at[t][m0 + m][h];
						of_row = fmaf(whole_sum(sum), scale[m][h], of_row);
					}
			}
		}
}

// warp level: all turns, the ring's first ones being under way: sums of rows g and g + 8 of each tile, in lane 4g.
// squares: of each row of x
template <class S, class Ring, class Stage>
__device__ __forceinline__ void whole_sums(const Ring &ring, Stage &stage, WholeSums<S> &sums,
	float (&squares)[S::rows])
{
	const float unit = whole_unit(typename S::Scale()), lowest = threadIdx.x % 2 ? 1.0f : 65536.0f; // digit's
	const u32 table = whole_table(shared_address(ring.mine) >> 31);
	u32 b[2][2] = {};
	int slot = 0, to_fill = S::ahead % S::depth;
	stage.read(ring, 0);
	for (int turn = 0; turn < ring.turns; turn++) {
		float factor[S::rows];
#pragma unroll
		for (int t = 0; t < S::rows; t++)
			if (stage.has(t))
				factor[t] = stage.fill(t, squares[t]) * lowest;
		__syncwarp();
		stage.read_norm(ring, turn + 1);
		stage.read(ring, turn + 1);
		copy_wait<S::ahead - 1>();
		__syncwarp();
		WholeSums<S> total = {};
		whole_turn<S>(ring, stage, ring.mine + slot * Ring::turn_bytes, table, b, total);
#pragma unroll
		for (int t = 0; t < S::rows; t++)
#pragma unroll
			for (int m = 0; m < S::tiles; m++)
#pragma unroll
				for (int h = 0; h < 2; h++)
					if (stage.has(t))
						sums.at[t][m][h] = fmaf(total.at[t][m][h] * unit, factor[t], sums.at[t][m][h]);
		__syncwarp(); // the slot is read by all
		const int next = turn + S::ahead;
		ring.fill(next < S::depth ? ring.turns : next, to_fill); // the first ones are there already
		to_fill = to_fill + 1 == S::depth ? 0 : to_fill + 1;
		slot = slot + 1 == S::depth ? 0 : slot + 1;
	}
	copy_wait<0>();
	__syncwarp();
#pragma unroll
	for (int t = 0; t < S::rows; t++)
#pragma unroll
		for (int m = 0; m < S::tiles; m++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				float &sum = sums.at[t][m][h];
				sum += __shfl_xor_sync(~0u, sum, 1);
				sum += __shfl_xor_sync(~0u, sum, 2);
			}
}

// warp level: the same into the ring's place, and the sums of squares behind
template <class S, class Ring, class Stage, class XRow>
__device__ __forceinline__ void whole_products(const Ring &ring, Stage &stage, XRow x_row)
{
	WholeSums<S> sums = {};
	float squares[S::rows] = {};
	stage.take(x_row);
	whole_sums<S>(ring, stage, sums, squares);
	float *const out = reinterpret_cast<float *>(ring.mine);
	const int g = threadIdx.x % 32 / 4;
	if (threadIdx.x % 4 == 0)
#pragma unroll
		for (int t = 0; t < S::rows; t++)
#pragma unroll
			for (int m = 0; m < S::tiles; m++)
#pragma unroll
				for (int h = 0; h < 2; h++)
					out[t * S::column + m * 16 + 8 * h + g] = sums.at[t][m][h];
	if constexpr (Ring::norm_there)
#pragma unroll
		for (int t = 0; t < S::rows; t++) {
			float sum = squares[t];
			if constexpr (S::by_steps) {
				sum += __shfl_xor_sync(~0u, sum, 1);
				sum += __shfl_xor_sync(~0u, sum, 2);
			} else {
				sum = warp_sum(sum);
			}
			if (threadIdx.x % 32 == 0)
				out[S::norm_at + t] = sum;
		}
}

// warp level: the sums of a warp's own turns; its group has not met. The parameters are those of stream_at
template <class S, bool FULL, bool ONE, class Norm, class WTile, class XRow, class Ready>
__device__ __forceinline__ bool stream_whole(uint4 *place, uint4 *staged, WTile w_tile, XRow x_row, const Norm *norm,
	bool some, Ready ready, StreamSums<S> &sums)
{
	using Ring = StreamRing<S, FULL, Norm>;
	const Ring ring(place, w_tile, norm);
	ring.begin();
	WholeStage<S, ONE, Norm, Ring> stage(staged, ring);
	inputs_ready();
	if (!some) {
		copy_wait<0>();
		return false;
	}
	ready();
	whole_products<S>(ring, stage, x_row);
	__syncwarp();
	sums.first = reinterpret_cast<float *>(ring.mine) - ring.turn * (Ring::warp_bytes / 4);
	sums.stride = Ring::warp_bytes / 4;
	return true;
}
