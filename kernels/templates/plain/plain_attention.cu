// what      o[t,h,:] = softmax_p(SCALE q[t,h,:].k[p,:]) v[p,:] over positions p <= row_pos[t] of the row's slot, with
//           WINDOW the last WINDOW of these, with CHUNKED those of its chunk, of rows in use; other rows stay as they
//           are. SINKS: e^sinks[h] is one term more of the softmax's sum
// numerics  scores, weights and sums in f32; one rounding. The order of a row's sums depends on its position alone:
//           same bits every run, whatever the rows beside it
// measured  not yet
// why       the op alone, a block for each row and head, for what no other attention takes: heads of any even size,
//           rows that no segments list. A warp has every eighth run of four positions, and the warps' sums are put
//           together at the end
#include "shared/contract.cuh"
#include "attention/kv.cuh"
#include "plain/plain_codes.cuh"
#include "shared/reduce.cuh"

KERNEL(plain_attention, attention_rows)
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
ATTR_FLOAT(SCALE, 0.125f)
ATTR_INT(WINDOW, 0)
ATTR_INT(CHUNKED, 0)
REQUIRE(!CHUNKED || WINDOW > 0)
FLAG(KV_SCALE)
FLAG(KV_BLOCK)
FLAG(SINKS)
DTYPES(KVT, bf16, e4m3, e2m1)
DTYPES(SINKT, bf16, f16, f32)
REQUIRE(KV_SCALE == (KVT_BITS <= 8) && KV_BLOCK == (KVT_BITS == 4))
REQUIRE(HDIM % 2 == 0 && HDIM <= 1024 && (KVT_BITS > 4 || HDIM % 16 == 0))
REQUIRE(NH % NKV == 0)
REQUIRE(ROWS <= 65535)
ORDER(plain)
FORMULA(seen(), WINDOW > 0 ? min(WINDOW, MAX_PAGES * PAGE) : MAX_PAGES * PAGE)
GRID(NH, ROWS, 1)
BLOCK(256)
SMEM(0)
READS(ROWS * (NH * HDIM * 2 + seen() * NKV * (HDIM * KVT_BITS / 8 + (KV_BLOCK ? HDIM / 16 : 0))))
WRITES(ROWS * NH * HDIM * 2)
FLOPS(4 * ROWS * NH * HDIM * seen())
struct Args {
	IN(i32, step, "4");
	IN(bf16, q, "ROWS, NH * HDIM");
	IN(KVT, kv, "PAGES, 2, NKV, PAGE, HDIM");
	IN_IF(KV_SCALE, f32, kv_scale, "2, NKV");
	IN_IF(KV_BLOCK, e4m3, kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16");
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(i32, page_table, "SLOTS, MAX_PAGES");
	OUT(bf16, o, "ROWS, NH * HDIM");
	IN_IF(SINKS, SINKT, sinks, "NH");
};

constexpr int WARPS = 8, RUN = 4, PAIRS = ceil_div(HDIM / 2, 32); // PAIRS: neighbours that a lane has of a head

// thread level: elements i and i + 1 of the cache, i even, without the scale of the head
__device__ __forceinline__ float2 pair_at(const Args &a, i64 i)
{
	if constexpr (bits_of<KVT> == 16) {
		const u32 x = *reinterpret_cast<const u32 *>(a.kv + i);
		return make_float2(low_bf16(x), high_bf16(x));
	} else if constexpr (bits_of<KVT> == 8) {
		const u32 x = *reinterpret_cast<const unsigned short *>(a.kv + i);
		return make_float2(e4m3_to_f32(x & 0xff), e4m3_to_f32(x >> 8));
	} else {
		const u32 x = *reinterpret_cast<const unsigned char *>(a.kv + i / 2);
		const float block = to_f32(a.kv_block[i / NVFP4_GROUP]);
		return make_float2(e2m1_to_f32(x & 15) * block, e2m1_to_f32(x >> 4) * block);
	}
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) plain_attention(const Args a)
{
	__shared__ float sums[WARPS][HDIM], largest[WARPS], weights[WARPS];
	let_next_start();
	inputs_ready();
	const int h = blockIdx.x, t = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int slot = t < a.step[0] ? a.row_slot[t] : -1, kv_head = h / (NH / NKV);
	if (slot < 0)
		return;
	const int last = a.row_pos[t],
		first = WINDOW == 0 ? 0 : CHUNKED ? last - last % max(WINDOW, 1) : max(last - WINDOW + 1, 0);
	const i32 *const table = a.page_table + i64(slot) * MAX_PAGES;
	float k_factor = 1.0f, v_factor = 1.0f;
	if constexpr (KV_SCALE) {
		k_factor = a.kv_scale[kv_head];
		v_factor = a.kv_scale[NKV + kv_head];
	}
	const float scale_log2 = float(SCALE) * 1.4426950408889634f * k_factor;
	float q[PAIRS][2], o[PAIRS][2] = {}, m = minus_infinity(), l = 0.0f;
#pragma unroll
	for (int j = 0; j < PAIRS; j++)
#pragma unroll
		for (int e = 0; e < 2; e++) {
			const int d = 2 * (lane + 32 * j) + e;
			q[j][e] = d < HDIM ? to_f32(a.q[(i64(t) * NH + h) * HDIM + d]) * scale_log2 : 0.0f;
		}
	for (int p0 = first + warp * RUN; p0 <= last; p0 += WARPS * RUN) {
		i64 line[RUN];
		float s[RUN], top = m;
#pragma unroll
		for (int u = 0; u < RUN; u++) {
			const int p = min(p0 + u, last);
			line[u] = ((i64(table[p / PAGE]) * 2 * NKV + kv_head) * PAGE + p % PAGE) * HDIM;
			s[u] = 0.0f;
#pragma unroll
			for (int j = 0; j < PAIRS; j++) {
				const int d = 2 * (lane + 32 * j);
				const float2 k = d < HDIM ? pair_at(a, line[u] + d) : make_float2(0.0f, 0.0f);
				s[u] = fmaf(q[j][0], k.x, fmaf(q[j][1], k.y, s[u]));
			}
		}
#pragma unroll
		for (int u = 0; u < RUN; u++) {
			s[u] = warp_sum(s[u]);
			s[u] = p0 + u <= last ? s[u] : minus_infinity();
			top = fmaxf(top, s[u]);
		}
		const float keep = exp2f(m - top);
		m = top;
		l *= keep;
#pragma unroll
		for (int j = 0; j < PAIRS; j++) {
			o[j][0] *= keep;
			o[j][1] *= keep;
		}
#pragma unroll
		for (int u = 0; u < RUN; u++) {
			const float weight = exp2f(s[u] - m);
			l += weight;
#pragma unroll
			for (int j = 0; j < PAIRS; j++) {
				const int d = 2 * (lane + 32 * j);
				if (d < HDIM) {
					const float2 v = pair_at(a, line[u] + i64(NKV) * PAGE * HDIM + d);
					o[j][0] = fmaf(weight, v.x, o[j][0]);
					o[j][1] = fmaf(weight, v.y, o[j][1]);
				}
			}
		}
	}
#pragma unroll
	for (int j = 0; j < PAIRS; j++)
#pragma unroll
		for (int e = 0; e < 2; e++) {
			const int d = 2 * (lane + 32 * j) + e;
			if (d < HDIM)
				sums[warp][d] = o[j][e];
		}
	if (lane == 0) {
		largest[warp] = m;
		weights[warp] = l;
	}
	__syncthreads();
	float top = largest[0], all = 0.0f, share[WARPS];
#pragma unroll
	for (int w = 1; w < WARPS; w++)
		top = fmaxf(top, largest[w]);
	if constexpr (SINKS) {
		const float sink = to_f32(a.sinks[h]) * 1.4426950408889634f;
		top = fmaxf(top, sink);
		all = exp2f(sink - top);
	}
#pragma unroll
	for (int w = 0; w < WARPS; w++) {
		share[w] = exp2f(largest[w] - top); // 0 of a warp without positions
		all = fmaf(weights[w], share[w], all);
	}
	for (int d = threadIdx.x; d < HDIM; d += 32 * WARPS) {
		float sum = 0.0f;
#pragma unroll
		for (int w = 0; w < WARPS; w++)
			sum = fmaf(sums[w][d], share[w], sum);
		store(a.o + (i64(t) * NH + h) * HDIM + d, sum / all * v_factor);
	}
}
