// what      rows of a verify step of Gated DeltaNet, all of them but the products before and behind. A slot has EACH
//           rows from a multiple of EACH on, or the first of them, where the step ends; version 0 of its state is
//           conv[s] and delta[s], version j conv_later[s, j - 1] and delta_later[s, j - 1]. From version
//           slot_version[s] on, row after row what delta_step does with one:
//             q, k, v = silu(causal_conv(x[t, :C]));  version j of conv = the last TAPS rows behind row j
//             S decayed and corrected by k and v;  o = q.S;  version j of delta = S behind row j
//             y[t,h,:] = rmsnorm(o) * norm * silu(z)
//           readers is the launch's own: how many value heads have read their key head's columns of conv. Idle rows:
//           y = 0, no state changes
// numerics  f32 from the inputs to the one rounding of y; the state stays f32, or is rounded to bf16 behind each row,
//           where it is stored. Each sum is made in the order of delta_step with the same WARPS: a row has the bits
//           that as many decode steps would have given it. Batch-invariant
// measured  H100 SXM, 16 key heads, heads of 128 x 128, in a chain, caches cold: 32 value heads, one slot, 5.0 us for
//           two rows, 9.2 for four (delta_step 3.9 for one); eight slots of three 25.5 (88 % of the read bandwidth); 48
//           value heads, three rows 8.1. Sixteen warps are best for one slot. A head's columns divided among a cluster
//           of two or four blocks take 1 to 2 us longer: rows wait for each other, not for room. No spills
// bytes     the state, read once and written EACH times, is nearly all of it
// early     no launch before this one in its step writes the states of its layer or which version is the slot's
//           (EARLY), so they are on their way to registers while the products in front end; then only x is missing
// why       a block is a value head of a slot and keeps its state in registers from the first row to the last. What
//           does not depend on the state (convolutions, lengths, gates) is made of all rows before the first, and
//           norms of all behind the last, so that between two rows there are two barriers and no more. Value heads of
//           one key head share its columns of conv, any version of which the last of them to read overwrites: all know
//           before the wait whether they are the last
#include "shared/contract.cuh"
#include "shared/arrive.cuh"
#include "delta/delta.cuh"

KERNEL(delta_verify, delta_verify_step)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 3)
DIM(SLOTS, 8)
DIM(DRAFTS, 2)
DIM(COLS, 12352)
ATTR_INT(NK, 16)
ATTR_INT(NV, 32)
ATTR_INT(DK, 128)
ATTR_INT(DV, 128)
ATTR_INT(TAPS, 3)
ATTR_FLOAT(EPS, 1e-6f)
ATTR_INT(EACH, 3)
FLAG(BA)
DTYPES(CT, bf16, f16, f32)
DTYPES(AT, f32, bf16, f16)
DTYPES(BT, f32, bf16, f16)
DTYPES(NT, bf16, f16, f32)
DTYPES(ST, f32, bf16)
TUNE(WARPS, 8, 4, 16)
REQUIRE(NV % NK == 0)
REQUIRE(DK % 2 == 0 && DV % 4 == 0 && DV <= 32 * WARPS)
REQUIRE(TAPS >= 1 && TAPS <= 7)
REQUIRE(COLS == 2 * NK * DK + 2 * NV * DV + (BA ? 0 : 2 * NV))
REQUIRE(DK * DV <= 4096 * WARPS)
REQUIRE(DRAFTS >= 1 && DRAFTS <= 3 && EACH >= 1 && EACH <= DRAFTS + 1 && ROWS % EACH == 0)
REQUIRE(EACH * (2 * DK + DV) <= 6144)
REQUIRE(ROWS / EACH <= 65535)
ORDER(delta_step, WARPS)
GRID(NV, ROWS / EACH, 1)
BLOCK(32 * WARPS)
SMEM(0)
READS(ROWS * (COLS * 2 + (BA ? 4 * NV : 0))
	+ ROWS / EACH * (NV * DK * DV * ST_BYTES + TAPS * (2 * NK * DK + NV * DV) * 2)
	+ (2 * NK * DK + NV * DV) * (TAPS + 1) * CT_BYTES)
WRITES(ROWS * (NV * DV * 2 + NV * DK * DV * ST_BYTES + TAPS * (2 * NK * DK + NV * DV) * 2))
FLOPS(ROWS * NV * DK * DV * 7)
EARLY(slot_version, conv, conv_later, delta, delta_later, readers)
struct Args {
	IN(i32, step, "4");
	IN(bf16, x, "ROWS, COLS");
	IN_IF(BA, bf16, ba, "ROWS, 2 * NV");
	IN(CT, conv_w, "2 * NK * DK + NV * DV, 1, TAPS + 1");
	IN(AT, a_log, "NV");
	IN(BT, dt_bias, "NV");
	IN(NT, norm, "DV");
	IN(i32, row_slot, "ROWS");
	IN(i32, slot_version, "SLOTS");
	INOUT(bf16, conv, "SLOTS, TAPS * (2 * NK * DK + NV * DV)");
	INOUT(bf16, conv_later, "SLOTS, DRAFTS, TAPS * (2 * NK * DK + NV * DV)");
	INOUT(ST, delta, "SLOTS, NV * DK * DV");
	INOUT(ST, delta_later, "SLOTS, DRAFTS, NV * DK * DV");
	INOUT(i32, readers, "ROWS, NK");
	OUT(bf16, y, "ROWS, NV * DV");
};

constexpr int THREADS = 32 * WARPS, CONV = 2 * NK * DK + NV * DV, SHARERS = NV / NK;
constexpr int PAIRS = (2 * DK + DV) / 2, ROUNDS = ceil_div(PAIRS, THREADS); // of neighbouring columns of q, k, v
constexpr int NORM_WARPS = (DV + 31) / 32;
using State = DeltaState<DK, DV, THREADS>;

// First column in x of a pair of value head h.
__device__ __forceinline__ int column_of(int pair, int h)
{
	const int c = 2 * pair, k_head = h / SHARERS;
	return c < DK ? k_head * DK + c : c < 2 * DK ? (NK - 1 + k_head) * DK + c : 2 * NK * DK + h * DV + c - 2 * DK;
}

// Version j of a slot's n elements.
template <class T> __device__ __forceinline__ T *version_at(T *first, T *later, int slot, int j, int n)
{
	return j ? later + (i64(slot) * DRAFTS + j - 1) * n : first + i64(slot) * n;
}

// The state to memory, which the next row finds as it is there. DeltaState's own store becomes several of four bytes
// each where more than one follow each other.
__device__ __forceinline__ void store_state(State &state, float *to)
{
#pragma unroll
	for (int i = 0; i < State::rows; i++)
		if (State::has_row(i))
			asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::
				"l"(to + (State::lane() + i * State::lanes) * DV + State::column()), "f"(state.s[i].x),
				"f"(state.s[i].y), "f"(state.s[i].z), "f"(state.s[i].w) : "memory");
}
__device__ __forceinline__ void store_state(State &state, bf16 *to)
{
#pragma unroll
	for (int i = 0; i < State::rows; i++) {
		float4 &s = state.s[i];
		const u32 left = pack_bf16(s.x, s.y), right = pack_bf16(s.z, s.w);
		s = make_float4(low_bf16(left), high_bf16(left), low_bf16(right), high_bf16(right));
		if (State::has_row(i))
			asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::
				"l"(to + (State::lane() + i * State::lanes) * DV + State::column()), "r"(left), "r"(right) : "memory");
	}
}

// Two columns of a slot's rows: the TAPS before this step, then those of it. Row i - TAPS stands in element i.
struct Window { u32 pair[TAPS + EACH]; };

extern "C" __global__ void __launch_bounds__(THREADS) delta_verify(const Args a)
{
	__shared__ alignas(16) float qkv[EACH][2 * DK + DV], part[State::part_floats], by[DV];
	__shared__ float squares[EACH][NORM_WARPS];
	__shared__ Gates gates[EACH];
	__shared__ Lengths scale[EACH];
	__shared__ bool is_last;
	let_next_start();
	const int h = blockIdx.x, first = blockIdx.y * EACH, at = threadIdx.x, rows = a.step[0];
	const int slot = first < rows ? a.row_slot[first] : -1;
	int n = 0; // rows of the slot
	while (slot >= 0 && n < EACH && first + n < rows && a.row_slot[first + n] == slot)
		n++;
	if (slot < 0) {
		inputs_ready();
		for (int j = 0; j < EACH && at < DV; j++)
			store(a.y + (i64(first + j) * NV + h) * DV + at, 0.0f);
		return;
	}
	const int said = a.slot_version[slot], version = said > 0 && said <= DRAFTS ? said : 0;
	const bf16 *const conv = version_at(a.conv, a.conv_later, slot, version, TAPS * CONV);
	Window window[ROUNDS];
#pragma unroll
	for (int i = 0; i < ROUNDS; i++)
#pragma unroll
		for (int j = 0; j < TAPS; j++)
			window[i].pair[j] = at + i * THREADS < PAIRS
				? *reinterpret_cast<const u32 *>(conv + j * CONV + column_of(at + i * THREADS, h)) : 0;
	State state;
	state.load(version_at(a.delta, a.delta_later, slot, version, NV * DK * DV) + h * (DK * DV));
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
				asm volatile("" :: "r"(window[i].pair[j]) : "memory"); // they are here before the barrier
		__syncthreads();
		if (at == 0)
			is_last = last_to_arrive(a.readers + first * NK + h / SHARERS, SHARERS);
	}
	inputs_ready(); // all above comes from the steps before, and is under way while the launches before this one end

#pragma unroll
	for (int j = 0; j < EACH; j++) // of rows that are not there: 0
#pragma unroll
		for (int i = 0; i < ROUNDS; i++)
			window[i].pair[TAPS + j] = j < n && at + i * THREADS < PAIRS ? *reinterpret_cast<const u32 *>(
				a.x + i64(first + j) * COLS + column_of(at + i * THREADS, h)) : 0;
	float z[EACH], o[EACH] = {};
#pragma unroll
	for (int j = 0; j < EACH; j++)
		z[j] = j < n && at < DV ? to_f32(a.x[i64(first + j) * COLS + CONV + h * DV + at]) : 0.0f;
	if (at < n) {
		const bf16 *ba = BA ? a.ba + i64(first + at) * (2 * NV) : a.x + i64(first + at) * COLS + CONV + NV * DV;
		gates[at] = delta_gates(to_f32(ba[NV + h]), to_f32(ba[h]), a_log, dt_bias);
	}
#pragma unroll
	for (int j = 0; j < EACH; j++)
#pragma unroll
		for (int i = 0; i < ROUNDS; i++) {
			const u32 now = window[i].pair[TAPS + j];
			float sum[2] = { w[i][0][TAPS] * low_bf16(now), w[i][1][TAPS] * high_bf16(now) };
#pragma unroll
			for (int k = 0; k < TAPS; k++) {
				sum[0] = fmaf(w[i][0][k], low_bf16(window[i].pair[j + k]), sum[0]);
				sum[1] = fmaf(w[i][1][k], high_bf16(window[i].pair[j + k]), sum[1]);
			}
			if (at + i * THREADS < PAIRS)
				*reinterpret_cast<float2 *>(qkv[j] + 2 * (at + i * THREADS)) = make_float2(silu(sum[0]), silu(sum[1]));
		}
	__syncthreads();
	if (const int j = at / 32; j < EACH) {
		const Lengths l = lengths<DK>(qkv[j], qkv[j] + DK);
		if (at % 32 == 0)
			scale[j] = l;
	}
#pragma unroll
	for (int j = 0; j < EACH; j++) {
		const float *const q = qkv[j], *const k = q + DK, *const v = k + DK;
		if (j >= n)
			break;
		state.project(q, k, part);
		__syncthreads();
		const Gates g = gates[j];
		if (at < DV) {
			const Lengths l = scale[j];
			const float change = g.rate * (v[at] - g.decay * l.k * State::sum(part, 0, at));
			o[j] = g.decay * l.q * State::sum(part, 1, at) + l.qk * change;
			by[at] = l.k * change;
		}
		__syncthreads();
		state.change(k, by, g.decay);
		store_state(state, version_at(a.delta, a.delta_later, slot, j, NV * DK * DV) + h * (DK * DV));
	}
#pragma unroll
	for (int j = 0; j < EACH; j++)
		if (at < NORM_WARPS * 32) {
			const float of_warp = warp_sum(j < n && at < DV ? o[j] * o[j] : 0.0f);
			if (at % 32 == 0)
				squares[j][at / 32] = of_warp;
		}
	__syncthreads();
#pragma unroll
	for (int j = 0; j < EACH; j++) {
		float all = 0.0f;
#pragma unroll
		for (int i = 0; i < NORM_WARPS; i++)
			all += squares[j][i];
		if (at < DV)
			store(a.y + (i64(first + j) * NV + h) * DV + at,
				j < n ? o[j] * rsqrtf(all / DV + float(EPS)) * norm * silu(z[j]) : 0.0f);
	}
#pragma unroll
	for (int j = 0; j < EACH; j++) {
		if (j >= n)
			break;
		bf16 *const to = version_at(a.conv, a.conv_later, slot, j, TAPS * CONV);
#pragma unroll
		for (int i = 0; i < ROUNDS; i++) {
			const int pair = at + i * THREADS;
			if (pair >= PAIRS || (SHARERS > 1 && pair < DK && !is_last))
				continue;
#pragma unroll
			for (int k = 0; k < TAPS; k++)
				*reinterpret_cast<u32 *>(to + k * CONV + column_of(pair, h)) = window[i].pair[j + 1 + k];
		}
	}
}
