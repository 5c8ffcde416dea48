// what      kv[page of (row_slot[t], row_pos[t])] = k[t,:], v[t,:] for rows in use
// numerics  a copy, or the codes that ops.h asks for, bit for bit what the reference makes of these numbers. Batch-
//           invariant
// measured  not separately: what any launch takes
// why       the op alone; with the turn before it rope_write does both
#include "shared/contract.cuh"
#include "attention/kv.cuh"

KERNEL(plain_kv_write, kv_write)
ARCH(80)
NUMERICS(exact, batch_invariant)
DIM(ROWS, 1)
DIM(SLOTS, 8)
DIM(MAX_PAGES, 128)
DIM(PAGES, 1024)
ATTR_INT(HDIM, 64)
ATTR_INT(NKV, 8)
ATTR_INT(PAGE, 16)
FLAG(KV_SCALE)
FLAG(KV_BLOCK)
DTYPES(KVT, bf16, e4m3, e2m1)
REQUIRE(KV_SCALE == (KVT_BITS <= 8) && KV_BLOCK == (KVT_BITS == 4))
REQUIRE(KVT_BITS == 16 || HDIM % 16 == 0 && HDIM <= 256)
REQUIRE(ROWS <= 65535)
ORDER(plain)
GRID(ceil_div(2 * NKV, 4), ROWS, 1)
BLOCK(128)
SMEM(0)
READS(ROWS * (2 * NKV * HDIM * 2 + 12))
WRITES(ROWS * 2 * NKV * (HDIM * KVT_BITS / 8 + (KV_BLOCK ? HDIM / 16 : 0)))
FLOPS(0)
struct Args {
	IN(i32, step, "4");
	IN(bf16, k, "ROWS, NKV * HDIM");
	IN(bf16, v, "ROWS, NKV * HDIM");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(i32, page_table, "SLOTS, MAX_PAGES");
	INOUT(KVT, kv, "PAGES, 2, NKV, PAGE, HDIM");
	IN_IF(KV_SCALE, f32, kv_scale, "2, NKV");
	INOUT_IF(KV_BLOCK, e4m3, kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16");
};

// warp level: a head as a cache of that type without scales keeps it
template <class T> __device__ __forceinline__ void copy_head(T *to, const bf16 *from)
{
	for (int d = threadIdx.x % 32; d < HDIM; d += 32)
		store(to + d, to_f32(from[d]));
}

extern "C" __global__ void __launch_bounds__(128) plain_kv_write(const Args a)
{
	let_next_start();
	inputs_ready();
	const int h = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, t = blockIdx.y; // h: first k, then v
	const int slot = h < 2 * NKV && t < a.step[0] ? a.row_slot[t] : -1;
	if (slot < 0)
		return;
	const int pos = a.row_pos[t];
	const i64 page = a.page_table[i64(slot) * MAX_PAGES + pos / PAGE];
	const i64 line = (page * 2 * NKV + h) * PAGE + pos % PAGE; // of the cache
	const bf16 *const from = (h < NKV ? a.k : a.v) + (i64(t) * NKV + h % NKV) * HDIM;
	if constexpr (bits_of<KVT> == 16) {
		copy_head(a.kv + line * HDIM, from);
	} else {
		__shared__ alignas(16) float heads[4][HDIM];
		float *const head = heads[threadIdx.x / 32];
		for (int d = lane; d < HDIM; d += 32)
			head[d] = to_f32(from[d]);
		__syncwarp();
		keep_head<KVT, HDIM>(head, a.kv_scale[h], kv_at(a.kv, line * HDIM), a.kv_block + line * (HDIM / NVFP4_GROUP));
	}
}
