// what      o[t,h,:] = softmax_p(SCALE q[t,h,:].k[p,:]) v[p,:] over positions p <= row_pos[t] of the row's slot, with
//           WINDOW the last WINDOW of these, with CHUNKED those of its chunk, for the rows of the step's segments;
//           other rows stay as they are. SINKS: e^sinks[h] is one term more of the softmax's sum
// numerics  scores and sums in f32, probabilities rounded to bf16 for the second product, as the tensor cores take
//           them; one rounding at the end. Same bits every run; a row's bits depend on its own history and KEYS
// measured  H100 SXM (mma.sync reaches 640 TFLOP/s there), causal work alone counted: 8192 rows, head dim 128 307
//           TFLOP/s, 2048 rows 262, head dim 64 238. KEYS=64 with PAIRS=128 and head dim 128 parks 28 bytes of
//           registers and is faster all the same: shared memory, not the tensor cores, is what is short
// bytes     READS has every tile read half of a full context, FLOPS every row see all of it
// why       a tile is PAIRS (row, head) pairs of one kv head: keys and values are read once for the whole group, and a
//           segment of a few rows still fills the tensor cores. Any group size serves. Late tiles see more keys, so
//           those of all kv heads start first. Of heads of 512 a block makes half of the columns, as many as registers
//           hold, and its neighbour, which has the same keys, the others
#include "shared/contract.cuh"
#include "attention/attend.cuh"
#include "attention/paged.cuh"

KERNEL(attn_prefill, attention)
ARCH(80)
TUNE(KEYS, 64, 32)
TUNE(PAIRS, 64, 128)
FORMULA(pairs_a_tile(), PAIRS)
#define KV_CODES 2
#define MAPS 0
#include "attention/prompt_contract.cuh"
REQUIRE(HDIM == 32 || HDIM == 64 || HDIM == 80 || HDIM == 96 || HDIM == 128 || HDIM == 256 || HDIM == 512)
REQUIRE(PAIRS == 64 || (ROWS * (NH / NKV) >= 128 && HDIM <= 128))
REQUIRE(row_tiles() + SEGS <= 65535)
ORDER(attend_up, KEYS)
FORMULA(parts_of_v(), HDIM > 256 ? 2 : 1)
GRID(NKV * parts_of_v(), row_tiles() + SEGS, 1)
BLOCK(128)
SMEM(KVT_BITS == 16 ? (PAIRS + 4 * KEYS) * (HDIM * 2 + 16)
	: (PAIRS + 2 * KEYS) * (HDIM * 2 + 16) + 2 * KEYS * raw_key_bytes())
PIECES(row_tiles() * NKV * parts_of_v())
RATE(HDIM == 64 ? (PAIRS == 128 ? 32 : 28) + (KEYS == 64 ? 6 : 0) : PAIRS == 128 ? (KEYS == 64 ? 48 : 43) : 37)

static_assert(NH % NKV == 0, "each kv head serves the same number of query heads");
static_assert((PAIRS + 2 * KEYS) * tile_stride(HDIM) + 2 * KEYS * (bits_of<KVT> == 16 ? tile_stride(HDIM)
	: HDIM / NVFP4_GROUP * (kv_bytes<KVT>(NVFP4_GROUP) + (bits_of<KVT> == 4 ? 4 : 0))) <= dynamic_smem(),
	"SMEM is what the tiles take and, of codes, what PagedTiles fetches");

constexpr int GROUP = NH / NKV, THREADS = 128, M_TILES = PAIRS / 64; // a warp: PAIRS / 4 pairs, 16 a tile
constexpr bool is_codes = bits_of<KVT> < 16;
constexpr int REACH = reach_of(WINDOW, CHUNKED);

extern "C" __global__ void __launch_bounds__(THREADS) attn_prefill(const Args a)
{
	let_next_start();
	inputs_ready();
	DYNAMIC_SMEM(tiles); // q [PAIRS], then two stages of K [KEYS], V [KEYS]; of codes one, and one as they are
	constexpr int stride = tile_stride(HDIM), stage_bytes = 2 * KEYS * stride;

	// which segment, and which PAIRS pairs of it
	int tile = int(gridDim.y) - 1 - int(blockIdx.y), first = 0, pairs = 0;
	const int n_segs = min(a.step[2], SEGS);
	for (int s = 0; s < n_segs && !pairs; s++) {
		const int n = a.seg[s * 4 + 1] * GROUP, n_tiles = ceil_div(n, PAIRS);
		if (tile < n_tiles) {
			first = a.seg[s * 4];
			pairs = n;
		} else {
			tile -= n_tiles;
		}
	}
	if (!pairs)
		return;
	constexpr int values = value_columns(HDIM), parts_of_values = HDIM / values;
	const int part = parts_of_values == 1 ? 0 : int(blockIdx.x) % parts_of_values;
	const int slot = a.row_slot[first], kv_head = blockIdx.x / parts_of_values, pair0 = tile * PAIRS;
	if (slot < 0)
		return;
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
	const i32 *table = a.page_table + i64(slot) * MAX_PAGES;

	// q tile: pair i is row first + i / GROUP, head kv_head * GROUP + i % GROUP
	const u32 q_tile = shared_address(tiles), ring = q_tile + PAIRS * stride;
	for (int i = threadIdx.x; i < PAIRS * (HDIM / 8); i += THREADS) {
		const int pair = pair0 + i / (HDIM / 8), piece = i % (HDIM / 8);
		const bool inside = pair < pairs;
		const i64 row = first + (inside ? pair / GROUP : 0), head = kv_head * GROUP + (inside ? pair % GROUP : 0);
		copy_async(q_tile + i / (HDIM / 8) * stride + piece * 16, a.q + (row * NH + head) * HDIM + piece * 8, inside);
	}
	const int last_pair = min(pair0 + PAIRS, pairs) - 1;
	const int end = a.row_pos[first + last_pair / GROUP] + 1, steps = ceil_div(end, KEYS);
	const int begin = WINDOW > 0 ? max(first_seen<REACH>(a.row_pos[first + pair0 / GROUP]), 0) / KEYS : 0; // step
	using Tiles = PagedTiles<KVT, THREADS, KEYS, HDIM, NKV, PAGE>;
	auto fill = [&](int step) {
		if (step < steps)
			Tiles::fetch(ring + (is_codes ? 1 : step % 2) * stage_bytes, a.kv, a.kv_block, table, kv_head,
				step * KEYS, end);
		copy_commit();
	};
	fill(begin);

	// what each of this thread's rows sees; rows past the segment see nothing. All of the warp's see the positions from
	// all_from (where there is a window) to all_see
	int last[M_TILES][2], all_from = 0, all_see = 0x7fffffff;
	const int warp_row = warp * 16 * M_TILES, pair = pair0 + warp_row + g;
#pragma unroll
	for (int t = 0; t < M_TILES; t++)
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const int at = pair + 16 * t + 8 * i;
			last[t][i] = at < pairs ? a.row_pos[first + at / GROUP] : -1;
			all_from = max(all_from, first_seen<REACH>(last[t][i]));
			all_see = min(all_see, last[t][i]);
		}
#pragma unroll
	for (int m = 16; m; m >>= 1) {
		if constexpr (WINDOW > 0)
			all_from = max(all_from, __shfl_xor_sync(~0u, all_from, m));
		all_see = min(all_see, __shfl_xor_sync(~0u, all_see, m));
	}

	const float scale_log2 = float(SCALE) * 1.4426950408889634f * kv_factor<KVT>(a.kv_scale, kv_head);
	Attention<HDIM, M_TILES> state;
	for (int step = begin; step < steps; step++) {
		copy_wait<0>();
		__syncthreads(); // this stage has arrived for all, and nobody reads the other any more
		if constexpr (is_codes)
			Tiles::decode(ring, ring + stage_bytes, step * KEYS);
		fill(step + 1);
		if constexpr (is_codes)
			__syncthreads();
		if (step == begin)
			attention_start(state, q_tile, warp_row);
		const u32 k = ring + (is_codes ? 0 : step % 2) * stage_bytes;
		attention_step<KEYS, REACH, HDIM>(state, q_tile, warp_row, k, k + KEYS * stride + part * values * 2,
			step * KEYS, last,
			step * KEYS + KEYS - 1 > all_see || (WINDOW > 0 && step * KEYS < all_from), scale_log2);
	}
	attention_finish(state);
	const float v_factor = kv_factor<KVT>(a.kv_scale, NKV + kv_head);
#pragma unroll
	for (int t = 0; t < M_TILES; t++)
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const int at = pair + 16 * t + 8 * i;
			if (at >= pairs)
				continue;
			if constexpr (SINKS)
				state.l[t][i] = add_sink(state.l[t][i], state.m[t][i], a.sinks, kv_head * GROUP + at % GROUP);
			const float scale = state.l[t][i] > 0.0f ? v_factor / state.l[t][i] : 0.0f;
			bf16 *o = a.o + (i64(first + at / GROUP) * NH + kv_head * GROUP + at % GROUP) * HDIM + part * values
				+ quad * 2;
#pragma unroll
			for (int d = 0; d < values / 8; d++)
				*reinterpret_cast<u32 *>(o + d * 8) =
					pack_bf16(state.o[t][d][2 * i] * scale, state.o[t][d][2 * i + 1] * scale);
		}
}
