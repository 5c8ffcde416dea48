// what      for the rows of each segment, in order, of slot s and each value head h:
//             S = delta[s,h], decayed and corrected by the row's k and v;  o = q.S
//             y[t,h,:] = rmsnorm(o) * norm * silu(z)
//           then delta[s,h] = S. Other rows stay as they are
// numerics  f32 from the inputs to the one rounding of y; the state stays f32, or is rounded to bf16 behind each CELL
//           rows of a segment and its last. Sums over a head's rows in an order that DK, DV and WARPS alone decide:
//           same bits every run; batch-invariant, and a prompt may be cut behind each CELL rows, with f32 anywhere
// measured  H100 SXM, 48 value heads of 128 x 128: 1.4 us a row. No spills
// why       a block is a value head of a segment and keeps its state in registers from the first row to the last; the
//           next row is on its way meanwhile. For short segments; long ones are for delta_chunks
#include "shared/contract.cuh"
#include "delta/delta.cuh"

KERNEL(delta_rows, delta_rows)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 8)
DIM(SLOTS, 8)
DIM(SEGS, 8)
DIM(COLS, 12352)
ATTR_INT(NK, 16)
ATTR_INT(NV, 32)
ATTR_INT(DK, 128)
ATTR_INT(DV, 128)
ATTR_FLOAT(EPS, 1e-6f)
FLAG(BA)
DTYPES(AT, f32, bf16, f16)
DTYPES(BT, f32, bf16, f16)
DTYPES(NT, bf16, f16, f32)
DTYPES(ST, f32, bf16)
TUNE(WARPS, 8, 4, 16)
REQUIRE(NV % NK == 0)
REQUIRE(DK % 2 == 0 && DV % 4 == 0 && DV <= 32 * WARPS)
REQUIRE(COLS == 2 * NK * DK + 2 * NV * DV + (BA ? 0 : 2 * NV))
REQUIRE(DK * DV <= 4096 * WARPS)
REQUIRE(ROWS <= 8 || DK % 16 || DK > 128 || DV % 16 || DV > 128 || COLS % 8)
REQUIRE(SEGS <= 65535)
ORDER(delta_rows, WARPS)
GRID(NV, SEGS, 1)
BLOCK(32 * WARPS)
SMEM(0)
READS(ROWS * (2 * NK * DK + 2 * NV * DV + 2 * NV) * 2 + SEGS * NV * DK * DV * ST_BYTES)
WRITES(ROWS * NV * DV * 2 + SEGS * NV * DK * DV * ST_BYTES)
FLOPS(ROWS * NV * DK * DV * 7)
struct Args {
	IN(i32, step, "4");
	IN(bf16, qkv, "ROWS, 2 * NK * DK + NV * DV");
	IN(bf16, x, "ROWS, COLS");
	IN_IF(BA, bf16, ba, "ROWS, 2 * NV");
	IN(AT, a_log, "NV");
	IN(BT, dt_bias, "NV");
	IN(NT, norm, "DV");
	IN(i32, row_slot, "ROWS");
	IN(i32, seg, "SEGS, 4");
	INOUT(ST, delta, "SLOTS, NV * DK * DV");
	OUT(bf16, y, "ROWS, NV * DV");
};

constexpr int CELL = 64; // as delta_chunks' chunks (ops.h, delta_rule)
constexpr int THREADS = 32 * WARPS, CONV = 2 * NK * DK + NV * DV, SHARERS = NV / NK;
constexpr int PAIRS = (2 * DK + DV) / 2, ROUNDS = ceil_div(PAIRS, THREADS); // of neighbouring columns of q, k, v
using Row = DeltaRow<DK, DV, THREADS>;

// What a thread brings of a row.
struct Next { u32 pair[ROUNDS]; float a, b, z; };

__device__ __forceinline__ void fetch(Next &n, const Args &a, int t, int h)
{
	const bf16 *qkv = a.qkv + i64(t) * CONV, *x = a.x + i64(t) * COLS;
	const bf16 *ba = BA ? a.ba + i64(t) * (2 * NV) : x + CONV + NV * DV;
#pragma unroll
	for (int i = 0; i < ROUNDS; i++) {
		const int pair = threadIdx.x + i * THREADS, c = 2 * pair, k_head = h / SHARERS;
		const int at = c < DK ? k_head * DK + c : c < 2 * DK ? (NK - 1 + k_head) * DK + c
			: 2 * NK * DK + h * DV + c - 2 * DK;
		n.pair[i] = pair < PAIRS ? *reinterpret_cast<const u32 *>(qkv + at) : 0;
	}
	n.b = to_f32(ba[h]);
	n.a = to_f32(ba[NV + h]);
	n.z = int(threadIdx.x) < DV ? to_f32(x[CONV + h * DV + threadIdx.x]) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(THREADS) delta_rows(const Args a)
{
	__shared__ alignas(16) float rows[2][2 * DK + DV];
	__shared__ Row::Shared shared;
	let_next_start();
	const int h = blockIdx.x, at = threadIdx.x;
	const float a_log = to_f32(a.a_log[h]), dt_bias = to_f32(a.dt_bias[h]);
	const float norm = at < DV ? to_f32(a.norm[at]) : 0.0f;
	inputs_ready();
	if (int(blockIdx.y) >= a.step[2])
		return;
	const int first = a.seg[blockIdx.y * 4], end = first + a.seg[blockIdx.y * 4 + 1], slot = a.row_slot[first];
	ST *const delta = a.delta + (i64(slot) * NV + h) * DK * DV;
	Row::State state;
	state.load(delta);
	Next next;
	fetch(next, a, first, h);
#pragma unroll 1
	for (int t = first; t < end; t++) {
		float *const row = rows[t % 2];
#pragma unroll
		for (int i = 0; i < ROUNDS; i++)
			if (const int pair = at + i * THREADS; pair < PAIRS)
				*reinterpret_cast<float2 *>(row + 2 * pair) =
					make_float2(low_bf16(next.pair[i]), high_bf16(next.pair[i]));
		const Gates gates = delta_gates(next.a, next.b, a_log, dt_bias);
		const float z = next.z;
		if (t + 1 < end)
			fetch(next, a, t + 1, h);
		__syncthreads();
		const float y = Row::advance(state, shared, row, row + DK, row + 2 * DK, gates, norm, z, float(EPS));
		if (at < DV)
			store(a.y + (i64(t) * NV + h) * DV + at, y);
		if (sizeof(ST) < 4 && (t + 1 - first) % CELL == 0) { // each thread its own elements
			state.store(delta);
			state.load(delta);
		}
	}
	state.store(delta);
}
