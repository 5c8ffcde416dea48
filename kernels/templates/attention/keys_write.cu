// what      kv[page of (row_slot[t], row_pos[t])] = rope(norm?(k heads of keys[t])), norm?(v heads),
//           for rows in use
// numerics  those of rope_write, whose keys and values these are, bit for bit. Batch-invariant
// measured  H100 SXM, in a chain of its own kind, three rows of two heads: 1.8 us, what any launch takes
// why       a drafting head follows the model's rows with its keys and values alone: nobody asks what attends to them
#include "shared/contract.cuh"
#include "attention/kv.cuh"
#include "attention/rope.cuh"

KERNEL(keys_write, keys_write)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 1)
DIM(SLOTS, 8)
DIM(MAX_PAGES, 128)
DIM(PAGES, 1024)
ATTR_INT(HDIM, 64)
ATTR_INT(NKV, 8)
ATTR_INT(PAGE, 16)
ATTR_INT(ROTARY, 64)
ATTR_INT(NEIGHBOURS, 0)
ATTR_INT(ROTATE, 0)
ATTR_FLOAT(ROPE_FACTOR, 1.0f)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
FLAG(K_NORM)
FLAG(V_NORM)
FLAG(KV_SCALE)
FLAG(KV_BLOCK)
DTYPES(KT, bf16, f16, f32)
DTYPES(VT, f32, bf16, f16)
DTYPES(KVT, bf16, e4m3, e2m1)
REQUIRE(KV_SCALE == (KVT_BITS <= 8) && KV_BLOCK == (KVT_BITS == 4))
REQUIRE(KVT_BITS == 16 && !ROTATE || HDIM % 16 == 0)
REQUIRE(HDIM % 2 == 0 && HDIM <= 512)
REQUIRE(ROTARY % 2 == 0 && ROTARY <= HDIM)
REQUIRE(ROWS <= 65535)
REQUIRE(MAX_PAGES * PAGE <= 6000000)
ORDER(rope)
GRID(ceil_div(2 * NKV, 4), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * (2 * NKV * HDIM * 2 + 12) + ROTARY * 2)
WRITES(ROWS * 2 * NKV * (HDIM * KVT_BITS / 8 + (KV_BLOCK ? HDIM / 16 : 0)))
FLOPS(ROWS * NKV * (ROTARY * 3 + ROTATE * HDIM * 6))
struct Args {
	IN(i32, step, "4");
	IN(bf16, keys, "ROWS, 2 * NKV * HDIM");
	IN_IF(K_NORM, KT, k_norm, "HDIM");
	IN(f32, inv_freq, "ROTARY / 2");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(i32, page_table, "SLOTS, MAX_PAGES");
	INOUT(KVT, kv, "PAGES, 2, NKV, PAGE, HDIM");
	IN_IF(KV_SCALE, f32, kv_scale, "2, NKV");
	INOUT_IF(KV_BLOCK, e4m3, kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16");
	IN_IF(V_NORM, VT, v_norm, "HDIM");
};

using H = Head<HDIM, ROTARY, NEIGHBOURS, ROTATE>;

template <class T> __device__ __forceinline__ void norm(H::Pairs &x, const T *weights)
{
	H::Pairs w;
	H::load(w, weights);
	H::norm(x, w, NORM_ONE != 0, float(EPS));
}

extern "C" __global__ void __launch_bounds__(128) keys_write(const Args a)
{
	let_next_start();
	inputs_ready();
	const int h = blockIdx.x * 4 + threadIdx.x / 32, t = blockIdx.y;
	const int slot = h < 2 * NKV && t < a.step[0] ? a.row_slot[t] : -1, pos = a.row_pos[t];
	if (slot < 0)
		return;
	const bool is_value = h >= NKV;
	const i64 page = a.page_table[i64(slot) * MAX_PAGES + pos / PAGE];
	const i64 line = (page * 2 * NKV + h) * PAGE + pos % PAGE; // of the cache
	H::Pairs x;
	H::load(x, a.keys + (i64(t) * 2 * NKV + h) * HDIM);
	if (!is_value) {
		if constexpr (K_NORM)
			norm(x, a.k_norm);
		float frequency[H::pairs];
		H::Pairs turn;
		H::load_frequencies(frequency, a.inv_freq);
		H::angles(turn, frequency, pos, float(ROPE_FACTOR));
		H::rope(x, turn);
	} else if constexpr (V_NORM) {
		norm(x, a.v_norm);
	}
	if constexpr (bits_of<KVT> == 16) {
		H::store_to(a.kv + line * HDIM, x);
	} else {
		__shared__ alignas(16) float heads[4][HDIM];
		float *head = heads[threadIdx.x / 32];
		H::store_to(head, x);
		__syncwarp();
		keep_head<KVT, HDIM>(head, a.kv_scale[h], kv_at(a.kv, line * HDIM), a.kv_block + line * (HDIM / NVFP4_GROUP));
	}
}
