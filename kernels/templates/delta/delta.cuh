// delta.cuh - Gated DeltaNet, what the kernels of one row after another share: a row's numbers, and a value head's
// state in the registers of a block.
//
// The state S [DK, DV] of a value head lies in all threads of a block: thread (r, c) holds columns 4c..4c+3 of the rows
// r, r + LANES, ... A row of the step needs of it two sums over its rows, k.S and q.S, and changes it by a product of
// two vectors:
//   change = rate * (v - decay * k.S)      o = decay * q.S + (q.k) * change      S = decay * S + k change
// so that one exchange between the threads is enough. All of it is f32; a state that memory has in bf16 is rounded when
// it is stored, and nowhere else.
#pragma once
#include "shared/activation.cuh"
#include "shared/reduce.cuh"

// Four columns of a state, as memory has them.
__device__ __forceinline__ float4 load_four(const float *from) { return *reinterpret_cast<const float4 *>(from); }
__device__ __forceinline__ float4 load_four(const bf16 *from)
{
	const uint2 x = *reinterpret_cast<const uint2 *>(from);
	return make_float4(low_bf16(x.x), high_bf16(x.x), low_bf16(x.y), high_bf16(x.y));
}

__device__ __forceinline__ void store_four(float *to, float4 x) { *reinterpret_cast<float4 *>(to) = x; }
__device__ __forceinline__ void store_four(bf16 *to, float4 x)
{
	*reinterpret_cast<uint2 *>(to) = make_uint2(pack_bf16(x.x, x.y), pack_bf16(x.z, x.w));
}

template <int DK_, int DV_, int THREADS_> struct DeltaState {
	static constexpr int groups = DV_ / 4, most = THREADS_ / groups, lanes = most < DK_ ? most : DK_;
	static constexpr int rows = (DK_ + lanes - 1) / lanes; // of a thread
	static constexpr int part_floats = 2 * lanes * DV_;    // of shared memory, for sums of lanes
	static_assert(DV_ % 4 == 0 && most >= 1, "a thread for each four columns");

	float4 s[rows];

	static __device__ __forceinline__ int lane() { return threadIdx.x / groups; }
	static __device__ __forceinline__ int column() { return threadIdx.x % groups * 4; }
	static __device__ __forceinline__ bool has_row(int i)
	{
		return lane() < lanes && (DK_ % lanes == 0 || lane() + i * lanes < DK_);
	}

	template <class T> __device__ __forceinline__ void load(const T *from)
	{
#pragma unroll
		for (int i = 0; i < rows; i++)
			s[i] = has_row(i) ? load_four(from + (lane() + i * lanes) * DV_ + column())
				: make_float4(0.0f, 0.0f, 0.0f, 0.0f);
	}

	template <class T> __device__ __forceinline__ void store(T *to) const
	{
#pragma unroll
		for (int i = 0; i < rows; i++)
			if (has_row(i))
				store_four(to + (lane() + i * lanes) * DV_ + column(), s[i]);
	}

	// block level: sums over this thread's rows of k S and q S into `part`; q and k [DK] lie in shared memory. What
	// follows a barrier may call sums().
	__device__ __forceinline__ void project(const float *q, const float *k, float *part) const
	{
		float4 held = make_float4(0.0f, 0.0f, 0.0f, 0.0f), out = held;
		if (lane() >= lanes)
			return;
#pragma unroll
		for (int i = 0; i < rows; i++) {
			const bool mine = has_row(i);
			const float kx = mine ? k[lane() + i * lanes] : 0.0f, qx = mine ? q[lane() + i * lanes] : 0.0f;
			held.x = fmaf(kx, s[i].x, held.x);
			held.y = fmaf(kx, s[i].y, held.y);
			held.z = fmaf(kx, s[i].z, held.z);
			held.w = fmaf(kx, s[i].w, held.w);
			out.x = fmaf(qx, s[i].x, out.x);
			out.y = fmaf(qx, s[i].y, out.y);
			out.z = fmaf(qx, s[i].z, out.z);
			out.w = fmaf(qx, s[i].w, out.w);
		}
		*reinterpret_cast<float4 *>(part + lane() * DV_ + column()) = held;
		*reinterpret_cast<float4 *>(part + (lanes + lane()) * DV_ + column()) = out;
	}

	// The sums of all lanes for one column, in ascending order of lanes; which: 0 of k, 1 of q.
	static __device__ __forceinline__ float sum(const float *part, int which, int at)
	{
		float x = 0.0f;
#pragma unroll
		for (int l = 0; l < lanes; l++)
			x += part[(which * lanes + l) * DV_ + at];
		return x;
	}

	// S = decay * S + k change; change [DV] lies in shared memory.
	__device__ __forceinline__ void change(const float *k, const float *by, float decay)
	{
		if (lane() >= lanes)
			return;
		const float4 c = *reinterpret_cast<const float4 *>(by + column());
#pragma unroll
		for (int i = 0; i < rows; i++) {
			const float kx = has_row(i) ? k[lane() + i * lanes] : 0.0f;
			s[i].x = fmaf(kx, c.x, decay * s[i].x);
			s[i].y = fmaf(kx, c.y, decay * s[i].y);
			s[i].z = fmaf(kx, c.z, decay * s[i].z);
			s[i].w = fmaf(kx, c.w, decay * s[i].w);
		}
	}
};

// What a row says of a value head beside q, k and v: e^g, by which its state decays, and beta, the rate of change.
struct Gates { float decay, rate; };
__device__ __forceinline__ Gates delta_gates(float a, float b, float a_log, float dt_bias)
{
	return { expf(-expf(a_log) * softplus(a + dt_bias)), sigmoid(b) };
}

// Factors on q and k of a head, and what they make of their product.
struct Lengths { float q, k, qk; };

// warp level: from q and k [DK] in shared memory; every lane gets the result
template <int DK_> __device__ __forceinline__ Lengths lengths(const float *q, const float *k)
{
	float qq = 0.0f, kk = 0.0f, qk = 0.0f;
#pragma unroll
	for (int i = threadIdx.x % 32; i < DK_; i += 32) {
		qq = fmaf(q[i], q[i], qq);
		kk = fmaf(k[i], k[i], kk);
		qk = fmaf(q[i], k[i], qk);
	}
	Lengths l = { rsqrtf((warp_sum(qq) + 1e-6f) * DK_), rsqrtf(warp_sum(kk) + 1e-6f), 0.0f };
	l.qk = warp_sum(qk) * l.q * l.k;
	return l;
}

// A value head's row: q, k [DK] and v [DV] in shared memory, the state in registers, all threads of the block. Two
// barriers; the row may be overwritten behind the second. Threads below DV, a column each, give z and get y.
template <int DK_, int DV_, int THREADS_> struct DeltaRow {
	using State = DeltaState<DK_, DV_, THREADS_>;
	static_assert(DV_ <= THREADS_, "a thread for each column");

	struct Shared {
		alignas(16) float part[State::part_floats], change[DV_];
		float squares[(DV_ + 31) / 32];
	};

	static __device__ __forceinline__ float advance(State &state, Shared &shared, const float *q, const float *k,
		const float *v, Gates g, float norm, float z, float eps)
	{
		const int at = threadIdx.x;
		float o = 0.0f;
		state.project(q, k, shared.part);
		__syncthreads();
		if (at < (DV_ + 31) / 32 * 32) {
			const Lengths l = lengths<DK_>(q, k);
			if (at < DV_) {
				const float change = g.rate * (v[at] - g.decay * l.k * State::sum(shared.part, 0, at));
				o = g.decay * l.q * State::sum(shared.part, 1, at) + l.qk * change;
				shared.change[at] = l.k * change;
			}
			const float squares = warp_sum(o * o);
			if (at % 32 == 0)
				shared.squares[at / 32] = squares;
		}
		__syncthreads();
		state.change(k, shared.change, g.decay);
		float squares = 0.0f;
#pragma unroll
		for (int i = 0; i < (DV_ + 31) / 32; i++)
			squares += shared.squares[i];
		return o * rsqrtf(squares / DV_ + eps) * norm * silu(z);
	}
};
