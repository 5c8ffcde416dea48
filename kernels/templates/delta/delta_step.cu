// what      a decode row of Gated DeltaNet, all of it but the products before and behind. For row t in use, of slot s:
//             q, k, v = silu(causal_conv(x[t, :C]));  conv[s] = its last TAPS rows
//             S = delta[s,h] of each value head, decayed and corrected by k and v;  o = q.S;  delta[s,h] = S
//             y[t,h,:] = rmsnorm(o) * norm * silu(z)
//           readers is the launch's own: how many value heads have read their key head's columns of conv. Idle rows:
//           y = 0, no state changes
// numerics  f32 from the inputs to the one rounding of y; the state stays f32, or is rounded to bf16 when it is stored,
//           which y does not see. Sums over a head's rows in an order that DK, DV and WARPS alone decide: same bits
//           every run; batch-invariant
// measured  H100 SXM, 16 key heads, heads of 128 x 128, in a chain, caches cold: 32 value heads 4.3 us for one row,
//           14.6 for eight (76 % of the read bandwidth); 48 value heads 4.7 us for one, 79 for 32 (84 %). No spills
// bytes     the state, read and written once, is nearly all of it
// early     no launch before this one in its step writes the states of its layer (EARLY), so they are on their way to
//           registers while the products in front end; then only x is missing
// why       a block is a value head: 32 of them already draw what the memory gives, since each has its whole state
//           under way at once. Value heads of one key head share its columns of conv, which the last of them to read
//           overwrites: all know before the wait whether they are the last
#include "shared/contract.cuh"
#include "shared/arrive.cuh"
#include "delta/delta.cuh"

KERNEL(delta_step, delta_step)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(SLOTS, 8)
DIM(COLS, 12352)
ATTR_INT(NK, 16)
ATTR_INT(NV, 32)
ATTR_INT(DK, 128)
ATTR_INT(DV, 128)
ATTR_INT(TAPS, 3)
ATTR_FLOAT(EPS, 1e-6f)
FLAG(BA)
DTYPES(CT, bf16, f16, f32)
DTYPES(AT, f32, bf16, f16)
DTYPES(BT, f32, bf16, f16)
DTYPES(NT, bf16, f16, f32)
DTYPES(ST, f32, bf16)
TUNE(WARPS, 8, 4, 16)
REQUIRE(NV % NK == 0)
REQUIRE(DK % 2 == 0 && DV % 4 == 0 && DV <= 32 * WARPS)
PREFER(WARPS == 16 || ROWS * NV > SMS)
REQUIRE(TAPS >= 1 && TAPS <= 7)
REQUIRE(COLS == 2 * NK * DK + 2 * NV * DV + (BA ? 0 : 2 * NV))
REQUIRE(DK * DV <= 4096 * WARPS)
REQUIRE(ROWS <= 65535)
ORDER(delta_step, WARPS)
GRID(NV, ROWS, 1)
BLOCK(32 * WARPS)
SMEM(0)
READS(ROWS * (COLS * 2 + (BA ? 4 * NV : 0) + NV * DK * DV * ST_BYTES + TAPS * (2 * NK * DK + NV * DV) * 2)
	+ (2 * NK * DK + NV * DV) * (TAPS + 1) * CT_BYTES)
WRITES(ROWS * (NV * DV * 2 + NV * DK * DV * ST_BYTES + TAPS * (2 * NK * DK + NV * DV) * 2))
FLOPS(ROWS * NV * DK * DV * 7)
EARLY(conv, delta, readers)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, COLS");
	IN_IF(BA, bf16, ba, "ROWS, 2 * NV");
	IN(CT, conv_w, "2 * NK * DK + NV * DV, 1, TAPS + 1");
	IN(AT, a_log, "NV");
	IN(BT, dt_bias, "NV");
	IN(NT, norm, "DV");
	IN(i32, row_slot, "ROWS");
	INOUT(bf16, conv, "SLOTS, TAPS * (2 * NK * DK + NV * DV)");
	INOUT(ST, delta, "SLOTS, NV * DK * DV");
	INOUT(i32, readers, "ROWS, NK");
	OUT(bf16, y, "ROWS, NV * DV");
};

constexpr int THREADS = 32 * WARPS, CONV = 2 * NK * DK + NV * DV, SHARERS = NV / NK;
constexpr int PAIRS = (2 * DK + DV) / 2, ROUNDS = ceil_div(PAIRS, THREADS); // of neighbouring columns of q, k, v
using Row = DeltaRow<DK, DV, THREADS>;

// First column in x of a pair of value head h.
__device__ __forceinline__ int column_of(int pair, int h)
{
	const int c = 2 * pair, k_head = h / SHARERS;
	return c < DK ? k_head * DK + c : c < 2 * DK ? (NK - 1 + k_head) * DK + c : 2 * NK * DK + h * DV + c - 2 * DK;
}

extern "C" __global__ void __launch_bounds__(THREADS) delta_step(const Args a)
{
	__shared__ alignas(16) float qkv[2 * DK + DV];
	__shared__ Row::Shared shared;
	__shared__ bool is_last;
	let_next_start();
	const int h = blockIdx.x, t = blockIdx.y, at = threadIdx.x;
	const int row_slot = a.row_slot[t], slot = t < a.step[0] ? row_slot : -1;
	if (slot < 0) {
		inputs_ready();
		if (at < DV)
			store(a.y + (i64(t) * NV + h) * DV + at, 0.0f);
		return;
	}
	u32 past[ROUNDS][TAPS]; // two columns of each of the slot's last rows
	bf16 *const conv = a.conv + i64(slot) * TAPS * CONV;
	ST *const delta = a.delta + (i64(slot) * NV + h) * DK * DV;
#pragma unroll
	for (int i = 0; i < ROUNDS; i++)
#pragma unroll
		for (int j = 0; j < TAPS; j++)
			past[i][j] = at + i * THREADS < PAIRS
				? *reinterpret_cast<const u32 *>(conv + j * CONV + column_of(at + i * THREADS, h)) : 0;
	Row::State state;
	state.load(delta);
	float w[ROUNDS][2][TAPS + 1];
#pragma unroll
	for (int i = 0; i < ROUNDS; i++)
#pragma unroll
		for (int e = 0; e < 2; e++)
#pragma unroll
			for (int j = 0; j <= TAPS; j++)
				w[i][e][j] = at + i * THREADS < PAIRS
					? to_f32(a.conv_w[(column_of(at + i * THREADS, h) + e) * (TAPS + 1) + j]) : 0.0f;
	const float a_log = to_f32(a.a_log[h]), dt_bias = to_f32(a.dt_bias[h]);
	const float norm = at < DV ? to_f32(a.norm[at]) : 0.0f;
	if constexpr (SHARERS > 1) {
#pragma unroll
		for (int i = 0; i < ROUNDS; i++)
#pragma unroll
			for (int j = 0; j < TAPS; j++)
				asm volatile("" :: "r"(past[i][j]) : "memory"); // they are here before the barrier
		__syncthreads();
		if (at == 0)
			is_last = last_to_arrive(a.readers + t * NK + h / SHARERS, SHARERS);
	}
	inputs_ready(); // all above comes from the steps before, and is under way while the launches before this one end

	const bf16 *x = a.x + i64(t) * COLS;
	u32 now[ROUNDS];
#pragma unroll
	for (int i = 0; i < ROUNDS; i++)
		now[i] = at + i * THREADS < PAIRS
			? *reinterpret_cast<const u32 *>(x + column_of(at + i * THREADS, h)) : 0;
	const bf16 *ba = BA ? a.ba + i64(t) * (2 * NV) : x + CONV + NV * DV;
	const float b_of = to_f32(ba[h]), a_of = to_f32(ba[NV + h]);
	const float z = at < DV ? to_f32(x[CONV + h * DV + at]) : 0.0f;
#pragma unroll
	for (int i = 0; i < ROUNDS; i++) {
		float sum[2] = { w[i][0][TAPS] * low_bf16(now[i]), w[i][1][TAPS] * high_bf16(now[i]) };
#pragma unroll
		for (int j = 0; j < TAPS; j++) {
			sum[0] = fmaf(w[i][0][j], low_bf16(past[i][j]), sum[0]);
			sum[1] = fmaf(w[i][1][j], high_bf16(past[i][j]), sum[1]);
		}
		if (at + i * THREADS < PAIRS)
			*reinterpret_cast<float2 *>(qkv + 2 * (at + i * THREADS)) = make_float2(silu(sum[0]), silu(sum[1]));
	}
	__syncthreads();
	const Gates gates = delta_gates(a_of, b_of, a_log, dt_bias);
	const float y = Row::advance(state, shared, qkv, qkv + DK, qkv + 2 * DK, gates, norm, z, float(EPS));
	if (at < DV)
		store(a.y + (i64(t) * NV + h) * DV + at, y);
	state.store(delta);
#pragma unroll
	for (int i = 0; i < ROUNDS; i++) {
		const int pair = at + i * THREADS;
		if (pair >= PAIRS || (SHARERS > 1 && pair < DK && !is_last))
			continue;
#pragma unroll
		for (int j = 0; j < TAPS; j++)
			*reinterpret_cast<u32 *>(conv + j * CONV + column_of(pair, h)) = j + 1 < TAPS ? past[i][j + 1] : now[i];
	}
}
