// what      q[t,h,:] = rope(norm?(qkv[t,h,:])); kv[page of (row_slot[t], row_pos[t])] = rope(norm?(k)), norm?(v); where
//           V_IS_K, v is k as it stands in qkv
//           rope turns the pair (x[i], x[i + ROTARY/2]), or where NEIGHBOURS (x[2i], x[2i + 1]), by row_pos[t] *
//           inv_freq[i]; cos and sin times ROPE_FACTOR. Where ROTATE, it multiplies the head by the Hadamard
//           matrix then (ops.h)
// numerics  f32 from the bf16 input to the one rounding at the end, of q to bf16, of k and v to what the cache keeps.
//           The angle is the f32 product, as in the models' own code; its sine and cosine are good to 1e-7 up to 6e6
//           radians. Batch-invariant
// measured  H100 SXM: 1.8 us for one row, what any launch takes
//           A cache of codes (e4m3 with kv_scale, e2m1 with kv_block too) is written as ops.h says, from the same f32:
//           bit for bit what the reference makes of these numbers
// why       the range reduction is written out: the library's falls back to a table in local memory for large
//           angles, and positions times the first frequency are large. Idle rows get q = 0 and write no state
#include "shared/contract.cuh"
#include "attention/kv.cuh"
#include "attention/rope.cuh"

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
ATTR_INT(V_IS_K, 0)
ATTR_INT(GATED, 0)
ATTR_INT(PAGE, 16)
ATTR_INT(ROTARY, 64)
ATTR_INT(NEIGHBOURS, 0)
ATTR_INT(ROTATE, 0)
ATTR_FLOAT(ROPE_FACTOR, 1.0f)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
FLAG(Q_NORM)
FLAG(K_NORM)
FLAG(V_NORM)
DTYPES(QT, bf16, f16, f32)
FLAG(KV_SCALE)
FLAG(KV_BLOCK)
DTYPES(KT, bf16, f16, f32)
DTYPES(VT, f32, bf16, f16)
DTYPES(KVT, bf16, e4m3, e2m1)
REQUIRE(KV_SCALE == (KVT_BITS <= 8) && KV_BLOCK == (KVT_BITS == 4))
REQUIRE(KVT_BITS == 16 && !ROTATE || HDIM % 16 == 0)
REQUIRE(HDIM % 2 == 0 && HDIM <= 512)
REQUIRE(!V_IS_K || !GATED)
REQUIRE(ROTARY % 2 == 0 && ROTARY <= HDIM)
REQUIRE(ROWS <= 65535)
REQUIRE(MAX_PAGES * PAGE <= 6000000)
ORDER(rope)
GRID(ceil_div(NH + 2 * NKV, 4), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * ((NH + (2 - V_IS_K) * NKV) * HDIM * 2 + 12) + ROTARY * 2)
WRITES(ROWS * (NH * HDIM * 2 + 2 * NKV * (HDIM * KVT_BITS / 8 + (KV_BLOCK ? HDIM / 16 : 0))))
FLOPS(ROWS * (NH + NKV) * (ROTARY * 3 + ROTATE * HDIM * 6))
struct Args {
	IN(i32, step, "4");
	IN(bf16, qkv, "ROWS, (NH + (2 - V_IS_K) * NKV + GATED * NH) * HDIM");
	IN_IF(Q_NORM, QT, q_norm, "HDIM");
	IN_IF(K_NORM, KT, k_norm, "HDIM");
	IN(f32, inv_freq, "ROTARY / 2");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(i32, page_table, "SLOTS, MAX_PAGES");
	INOUT(KVT, kv, "PAGES, 2, NKV, PAGE, HDIM");
	IN_IF(KV_SCALE, f32, kv_scale, "2, NKV");
	INOUT_IF(KV_BLOCK, e4m3, kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16");
	OUT(bf16, q, "ROWS, NH * HDIM");
	IN_IF(V_NORM, VT, v_norm, "HDIM");
};

using H = Head<HDIM, ROTARY, NEIGHBOURS, ROTATE>;

template <class T> __device__ __forceinline__ void norm(H::Pairs &x, const T *weights)
{
	H::Pairs w;
	H::load(w, weights);
	H::norm(x, w, NORM_ONE != 0, float(EPS));
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
	const int column = V_IS_K && h >= NH + NKV ? h - NKV : h;
	const bf16 *src = a.qkv + (i64(t) * (NH + (2 - V_IS_K) * NKV + GATED * NH) + column) * HDIM;
	i64 line = 0; // of the cache
	int scale = 0; // place of its scale
	if (h >= NH) {
		const i64 page = a.page_table[i64(slot) * MAX_PAGES + pos / PAGE];
		const int is_value = h >= NH + NKV, head = h - NH - is_value * NKV;
		line = ((page * 2 + is_value) * NKV + head) * PAGE + pos % PAGE;
		scale = h - NH;
	}
	H::Pairs x;
	H::load(x, src);
	if constexpr (Q_NORM)
		if (h < NH)
			norm(x, a.q_norm);
	if constexpr (K_NORM)
		if (h >= NH && h < NH + NKV)
			norm(x, a.k_norm);
	if constexpr (V_NORM)
		if (h >= NH + NKV)
			norm(x, a.v_norm);
	if (h < NH + NKV) {
		float frequency[H::pairs];
		H::Pairs turn;
		H::load_frequencies(frequency, a.inv_freq);
		H::angles(turn, frequency, pos, float(ROPE_FACTOR));
		H::rope(x, turn);
	}
	if (h < NH) {
		H::store_to(a.q + (i64(t) * NH + h) * HDIM, x);
	} else {
		if constexpr (bits_of<KVT> == 16) {
			H::store_to(a.kv + line * HDIM, x);
		} else {
			__shared__ alignas(16) float heads[4][HDIM];
			float *head = heads[threadIdx.x / 32];
			H::store_to(head, x);
			__syncwarp();
			keep_head<KVT, HDIM>(head, a.kv_scale[scale], kv_at(a.kv, line * HDIM),
				a.kv_block + line * (HDIM / NVFP4_GROUP));
		}
	}
}
