// what      q[t,h,:] = rope(norm?(qkv[t,h,:])); kv[page of (row_slot[t], row_pos[t])] = rope(norm?(k)), v
//           rope turns the pair (x[i], x[i + ROTARY/2]) by row_pos[t] * inv_freq[i]; cos and sin times ROPE_FACTOR
// numerics  f32 from the bf16 input to the one rounding at the end. The angle is the f32 product, as in the
//           models' own code; its sine and cosine are good to 1e-7 up to 6e6 radians. Batch-invariant
// measured  H100 SXM: 1.8 us for one row, what any launch takes
// why       the range reduction is written out: the library's falls back to a table in local memory for large
//           angles, and positions times the first frequency are large. Idle rows get q = 0 and write no state
#include "contract.cuh"
#include "reduce.cuh"

KERNEL(rope_write, rope_write)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(SLOTS, 8)
DIM(MAX_PAGES, 128)
DIM(PAGES, 1024)
ATTR_INT(HDIM, 64)
ATTR_INT(NH, 32)
ATTR_INT(NKV, 8)
ATTR_INT(PAGE, 16)
ATTR_INT(ROTARY, 64)
ATTR_FLOAT(ROPE_FACTOR, 1.0f)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
FLAG(Q_NORM)
FLAG(K_NORM)
DTYPES(QT, bf16, f16, f32)
DTYPES(KT, bf16, f16, f32)
REQUIRE(HDIM % 2 == 0 && HDIM <= 256)
REQUIRE(ROTARY % 2 == 0 && ROTARY <= HDIM)
REQUIRE(ROWS <= 65535)
REQUIRE(MAX_PAGES * PAGE <= 6000000)
GRID(ceil_div(NH + 2 * NKV, 4), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * ((NH + 2 * NKV) * HDIM * 2 + 12) + ROTARY * 2)
WRITES(ROWS * (NH + 2 * NKV) * HDIM * 2)
FLOPS(ROWS * (NH + NKV) * ROTARY * 3)
struct Args {
	IN(i32, step, "4");
	IN(bf16, qkv, "ROWS, (NH + 2 * NKV) * HDIM");
	IN_IF(Q_NORM, QT, q_norm, "HDIM");
	IN_IF(K_NORM, KT, k_norm, "HDIM");
	IN(f32, inv_freq, "ROTARY / 2");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(i32, page_table, "SLOTS, MAX_PAGES");
	INOUT(bf16, kv, "PAGES, 2, NKV, PAGE, HDIM");
	OUT(bf16, q, "ROWS, NH * HDIM");
};

static_assert(ROTARY <= HDIM && ROTARY % 2 == 0, "rope turns pairs inside one head");

constexpr int PER_LANE = (HDIM / 2 + 31) / 32; // pairs a lane holds

// thread level: sine and cosine of 0 <= x < 6e6. Three-part pi/2; the first step is exact, because both sides are
// multiples of 2^-23 and their difference is below 1.
__device__ __forceinline__ void sin_cos(float x, float &sine, float &cosine)
{
	constexpr float magic = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer held in the low bits
	const float shifted = fmaf(x, 0.636619772f, magic), k = shifted - magic;
	const u32 quadrant = __float_as_uint(shifted);
	float r = fmaf(k, -1.57079637f, x);
	r = fmaf(k, 4.37113883e-8f, r);
	r = fmaf(k, 1.71512451e-15f, r);
	const float r2 = r * r;
	float s = fmaf(r2, -1.9515295891e-4f, 8.3321608736e-3f);
	s = fmaf(s, r2, -1.6666654611e-1f);
	s = fmaf(s * r2, r, r);
	float c = fmaf(r2, 2.443315711809948e-5f, -1.388731625493765e-3f);
	c = fmaf(c, r2, 4.166664568298827e-2f);
	c = fmaf(c * r2, r2, fmaf(r2, -0.5f, 1.0f));
	const bool swap = quadrant & 1;
	sine = swap ? c : s;
	cosine = swap ? s : c;
	sine = quadrant & 2 ? -sine : sine;
	cosine = (quadrant + 1) & 2 ? -cosine : cosine;
}

// Element of the head that is first or second of pair p: the rotated pairs, then what rope leaves alone.
__device__ __forceinline__ int pair_element(int p, int second)
{
	if (p < ROTARY / 2)
		return p + second * (ROTARY / 2);
	return ROTARY + 2 * (p - ROTARY / 2) + second;
}

// warp level: the head's rmsnorm, in place
template <class T> __device__ __forceinline__ void norm_head(float (&x)[PER_LANE][2], const T *w, int lane)
{
	float ss = 0.0f;
#pragma unroll
	for (int j = 0; j < PER_LANE; j++)
		ss += x[j][0] * x[j][0] + x[j][1] * x[j][1];
	const float scale = rsqrtf(warp_sum(ss) / HDIM + float(EPS));
#pragma unroll
	for (int j = 0; j < PER_LANE; j++) {
		const int p = lane + 32 * j;
		if (p < HDIM / 2)
			for (int e = 0; e < 2; e++)
				x[j][e] *= scale * ((NORM_ONE ? 1.0f : 0.0f) + to_f32(w[pair_element(p, e)]));
	}
}

extern "C" __global__ void __launch_bounds__(128) rope_write(const Args a)
{
	let_next_start();
	inputs_ready();
	const int h = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, t = blockIdx.y;
	if (h >= NH + 2 * NKV)
		return;
	const int slot = a.row_slot[t], pos = a.row_pos[t];
	const bool in_use = t < a.step[0] && slot >= 0;
	if (!in_use) {
		if (h < NH)
			for (int d = lane; d < HDIM; d += 32)
				store(a.q + (i64(t) * NH + h) * HDIM + d, 0.0f);
		return;
	}
	const bf16 *src = a.qkv + (i64(t) * (NH + 2 * NKV) + h) * HDIM;
	bf16 *dst;
	if (h < NH) {
		dst = a.q + (i64(t) * NH + h) * HDIM;
	} else {
		const i64 page = a.page_table[i64(slot) * MAX_PAGES + pos / PAGE];
		const int is_value = h >= NH + NKV, head = h - NH - is_value * NKV;
		dst = a.kv + (((page * 2 + is_value) * NKV + head) * PAGE + pos % PAGE) * HDIM;
	}
	float x[PER_LANE][2] = {};
#pragma unroll
	for (int j = 0; j < PER_LANE; j++) {
		const int p = lane + 32 * j;
		if (p < HDIM / 2)
			for (int e = 0; e < 2; e++)
				x[j][e] = to_f32(src[pair_element(p, e)]);
	}
	if constexpr (Q_NORM)
		if (h < NH)
			norm_head(x, a.q_norm, lane);
	if constexpr (K_NORM)
		if (h >= NH && h < NH + NKV)
			norm_head(x, a.k_norm, lane);
#pragma unroll
	for (int j = 0; j < PER_LANE; j++) {
		const int p = lane + 32 * j;
		if (p >= HDIM / 2)
			continue;
		float x0 = x[j][0], x1 = x[j][1];
		if (p < ROTARY / 2 && h < NH + NKV) {
			float s, c;
			sin_cos(float(pos) * a.inv_freq[p], s, c);
			s *= float(ROPE_FACTOR);
			c *= float(ROPE_FACTOR);
			const float y0 = x0 * c - x1 * s, y1 = x1 * c + x0 * s;
			x0 = y0;
			x1 = y1;
		}
		store(dst + pair_element(p, 0), x0);
		store(dst + pair_element(p, 1), x1);
	}
}
