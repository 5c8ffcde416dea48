// what      y[t,c] = silu(sum_j conv_w[c,j] x[j rows on from TAPS before t, c]) over the rows of t's slot: of this
//           step, before them conv[s], which then holds the slot's last TAPS rows. Rows not in use stay as they are
// numerics  f32 from the inputs to the one rounding; batch-invariant
// measured  H200 SXM: 2048 rows of 10240 columns 26.6 us, 88 % of the read bandwidth, RUN 32 33.5; 8192 rows 93.7
// why       a thread goes down RUN rows of two columns with the last TAPS rows in registers. A slot's first TAPS rows
//           and what conv becomes belong to the block in which its first row lies: nobody else looks at conv, so
//           nobody need wait
#include "shared/contract.cuh"
#include "shared/activation.cuh"

KERNEL(conv_rows, conv_rows)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 2048)
DIM(SLOTS, 8)
DIM(SEGS, 8)
DIM(COLS, 12352)
DIM(C, 8192)
ATTR_INT(TAPS, 3)
DTYPES(CT, bf16, f16, f32)
TUNE(RUN, 8, 16, 32)
REQUIRE(C % 2 == 0 && COLS % 2 == 0 && C <= COLS)
REQUIRE(TAPS >= 1 && TAPS <= 7)
REQUIRE(RUN == 8 || ceil_div(C, 256) * ceil_div(ROWS, RUN) >= SMS)
REQUIRE(ceil_div(ROWS, RUN) <= 65535)
PREFER(RUN == 8 || RUN <= ROWS / 256)
ORDER(conv)
GRID(ceil_div(C, 256), ceil_div(ROWS, RUN), 1)
BLOCK(128)
SMEM(0)
READS(ROWS * C * 2 + ceil_div(ROWS, RUN) * C * TAPS * 2 + C * (TAPS + 1) * CT_BYTES)
WRITES(ROWS * C * 2)
FLOPS(2 * ROWS * C * (TAPS + 1))
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, COLS");
	IN(CT, conv_w, "C, 1, TAPS + 1");
	IN(i32, row_slot, "ROWS");
	IN(i32, seg, "SEGS, 4");
	INOUT(bf16, conv, "SLOTS, TAPS * C");
	OUT(bf16, y, "ROWS, C");
};

constexpr int BATCH = 8; // rows under way at once
static_assert(RUN % BATCH == 0, "a run is whole batches");

// Two columns of some rows that follow each other in a slot.
struct Past { u32 row[TAPS]; };

__device__ __forceinline__ u32 pair_at(const bf16 *p) { return *reinterpret_cast<const u32 *>(p); }

__device__ __forceinline__ void push(Past &past, u32 row)
{
#pragma unroll
	for (int j = 0; j + 1 < TAPS; j++)
		past.row[j] = past.row[j + 1];
	past.row[TAPS - 1] = row;
}

// thread level: y of one row
__device__ __forceinline__ u32 convolved(const float (&w)[2][TAPS + 1], const Past &past, u32 now)
{
	float sum[2] = { w[0][TAPS] * low_bf16(now), w[1][TAPS] * high_bf16(now) };
#pragma unroll
	for (int j = 0; j < TAPS; j++) {
		sum[0] = fmaf(w[0][j], low_bf16(past.row[j]), sum[0]);
		sum[1] = fmaf(w[1][j], high_bf16(past.row[j]), sum[1]);
	}
	return pack_bf16(silu(sum[0]), silu(sum[1]));
}

// Are the run's rows, and as many before it as its first one sees, all of one slot? Of a long prompt nearly all runs
// are. All that is read is asked for at once.
__device__ __forceinline__ bool is_within(const i32 *row_slot, int begin, int rows)
{
	if (begin < TAPS || begin + RUN > rows)
		return false;
	const int slot = row_slot[begin];
	bool same = slot >= 0;
#pragma unroll
	for (int j = 1; j <= TAPS; j++)
		same &= row_slot[begin - j] == slot;
#pragma unroll
	for (int j = 1; j < RUN; j++)
		same &= row_slot[begin + j] == slot;
	return same;
}

// The rows of a slot from `first` on, of which there are `n`, leave their last in conv.
__device__ __forceinline__ void keep(bf16 *conv, const bf16 *x, int n)
{
#pragma unroll
	for (int j = 0; j < TAPS; j++) { // ascending: an older row is read before it is overwritten
		const int from = n - TAPS + j;
		*reinterpret_cast<u32 *>(conv + j * C) =
			pair_at(from >= 0 ? x + i64(from) * COLS : conv + (j + n) * C);
	}
}

// thread level: the run's rows one after the other, and those of a slot that begins in it up to TAPS more
__device__ __forceinline__ void walk(const Args &a, const float (&w)[2][TAPS + 1], int c, int begin, int rows)
{
	const bf16 *const x = a.x + c;
	Past past = {};
	int slot = -1, before = 0; // the slot at hand; its rows before this one, at most TAPS
	int first = begin;         // its first row; -1: another block's
	while (before < TAPS && begin - before > 0 && a.row_slot[begin - before - 1] == a.row_slot[begin])
		before++;
	if (before) {
		slot = a.row_slot[begin];
		first = -1;
		for (int j = before; j > 0; j--)
			push(past, pair_at(x + i64(begin - j) * COLS));
	}
	for (int t = begin; t < rows; t++) {
		const int of = a.row_slot[t];
		if (of != slot) {
			if (t >= begin + RUN)
				break;
			slot = of;
			first = t;
			before = 0;
			if (slot >= 0)
#pragma unroll
				for (int j = 0; j < TAPS; j++)
					past.row[j] = pair_at(a.conv + (i64(slot) * TAPS + j) * C + c);
		} else if (t >= begin + RUN && (first < 0 || before >= TAPS)) {
			break;
		}
		if (slot < 0)
			continue;
		const u32 now = pair_at(x + i64(t) * COLS);
		if (first >= 0 || before >= TAPS)
			*reinterpret_cast<u32 *>(a.y + i64(t) * C + c) = convolved(w, past, now);
		push(past, now);
		before = min(before + 1, TAPS);
	}
}

extern "C" __global__ void __launch_bounds__(128) conv_rows(const Args a)
{
	const int c = (blockIdx.x * 128 + threadIdx.x) * 2, begin = blockIdx.y * RUN;
	const int rows = a.step[0];
	let_next_start();
	float w[2][TAPS + 1];
	if (c < C)
#pragma unroll
		for (int j = 0; j <= TAPS; j++) {
			w[0][j] = to_f32(a.conv_w[c * (TAPS + 1) + j]);
			w[1][j] = to_f32(a.conv_w[(c + 1) * (TAPS + 1) + j]);
		}
	inputs_ready();
	if (c >= C || begin >= rows)
		return;
	const bf16 *const x = a.x + c;
	Past past = {};
	if (is_within(a.row_slot, begin, rows)) {
#pragma unroll
		for (int j = TAPS; j > 0; j--)
			push(past, pair_at(x + i64(begin - j) * COLS));
#pragma unroll 1
		for (int t = begin; t < begin + RUN; t += BATCH) {
			u32 now[BATCH];
#pragma unroll
			for (int i = 0; i < BATCH; i++)
				now[i] = pair_at(x + i64(t + i) * COLS);
#pragma unroll
			for (int i = 0; i < BATCH; i++) {
				*reinterpret_cast<u32 *>(a.y + i64(t + i) * C + c) = convolved(w, past, now[i]);
				push(past, now[i]);
			}
		}
	} else {
		walk(a, w, c, begin, rows);
	}
	for (int s = 0; s < a.step[2]; s++) {
		const int from = a.seg[s * 4];
		if (from >= begin && from < begin + RUN)
			keep(a.conv + i64(a.seg[s * 4 + 2]) * TAPS * C + c, x + i64(from) * COLS, a.seg[s * 4 + 1]);
	}
}
