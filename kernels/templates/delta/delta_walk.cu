// what      delta_rows of what delta_solve has made of each chunk of 64 rows: for the chunks of a segment, in order, of
//           slot s and each value head h, with the row's factors f, G = f3:
//             X = solved (v - f0 k.S);  o = f1 q.S + scores X;  S = e^G_last S + (f2 e^(G_last - G) k)' X
//             y[t,h,:] = rmsnorm(o) * norm * silu(z)
//           from S = delta[s,h] on, which then is S. Other rows stay as they are
// numerics  tensor cores; q, k, v and scores are exact in bf16, S, X and what solves for it are two bf16 each, so a
//           product is good to 2^-16; sums and S in f32; a state of bf16 is rounded behind each chunk as if it were
//           stored, so that a prompt may be cut there. Same bits every run; a row's bits depend on those before it in
//           its segment alone
// measured  not yet timed. On an H200 the same walk by mma.sync, which reads shared memory twice as often, took for 32
//           value heads of 128 x 128 136 us for 2048 rows, 512 for 8192, 303 for 16 segments of 512, 14 for 128 rows;
//           delta_chunks_team takes 504, 2002, 1038 and 35
// why       the chain of a segment's chunks is what a prompt takes, so only k.S, solved and the change of S are in it.
//           A warpgroup has 64 columns of S, transposed, in registers, where what one product gives is what the next
//           takes; a second one makes the outputs of these columns from what the first leaves in shared memory, a third
//           brings the rows of the next chunks. Columns of a head are in TEAM blocks of a cluster, which send each
//           other the sums of squares
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(delta_walk, delta_walk)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 2048)
DIM(SLOTS, 8)
DIM(SEGS, 8)
DIM(COLS, 12352)
ATTR_INT(NK, 16)
ATTR_INT(NV, 32)
ATTR_INT(DK, 128)
ATTR_INT(DV, 128)
ATTR_FLOAT(EPS, 1e-6f)
DTYPES(NT, bf16, f16, f32)
DTYPES(ST, f32, bf16)
TUNE(TEAM, 2, 1)
REQUIRE(NV % NK == 0)
REQUIRE((DK == 64 || DK == 128) && DV == 64 * TEAM)
REQUIRE(COLS >= 2 * NK * DK + 2 * NV * DV && COLS % 8 == 0)
REQUIRE(SEGS <= 65535)
FORMULA(state_stage(), DK * 128 + 3 * 8192 + 1024)
FORMULA(output_stage(), DK * 128 + 2 * 8192 + 1024)
FORMULA(handed(), 4 * (DK / 16 * 1024 + 4096))
ORDER(delta_walk, 64)
GRID(NV * TEAM, min(SEGS, ROWS), 1)
BLOCK(384)
SMEM(2 * state_stage() + 2 * output_stage() + handed() + TEAM * 2048 + 256 + 1024)
READS(ROWS * NV * (2 * DK * TEAM + 2 * DV + 64 * 3 * TEAM + 8 * TEAM) * 2 + SEGS * NV * DK * DV * ST_BYTES)
WRITES(ROWS * NV * DV * 2 + SEGS * NV * DK * DV * ST_BYTES)
FLOPS(2 * ROWS * NV * (160 * DV + 6 * DK * DV))
struct Args {
	IN(i32, step, "4");
	IN(bf16, qkv, "ROWS, 2 * NK * DK + NV * DV");
	IN(bf16, x, "ROWS, COLS");
	IN(f32, solved, "ROWS, NV * 64");
	IN(bf16, scores, "ROWS, NV * 64");
	TENSOR_MAP(qkv, qkv_map, 64, 64);
	TENSOR_MAP(x, x_map, 64, 64);
	TENSOR_MAP(scores, scores_map, 64, 64);
	IN(f32, factors, "ROWS, NV * 4");
	IN(NT, norm, "DV");
	IN(i32, row_slot, "ROWS");
	IN(i32, seg, "SEGS, 4");
	INOUT(ST, delta, "SLOTS, NV * DK * DV");
	OUT(bf16, y, "ROWS, NV * DV");
};

#include "shared/activation.cuh"
#include "shared/hopper.cuh"
#include "delta/columns.cuh"
#include "delta/wgmma.cuh"

constexpr int COLUMNS = 64, WARPS = 4; // of v, of a block; warps of each kind
constexpr int LOADERS = 96;            // threads that bring what states read; a warp brings that of outputs
constexpr int STATE_STAGE = state_stage(), OUTPUT_STAGE = output_stage(), HANDED = handed() / WARPS;
constexpr int CONV = 2 * NK * DK + NV * DV, SHARERS = NV / NK, STEPS = DK / 16;

// What a block has: a value head, of which columns from v0 on, of a segment.
struct Part { int head, v0, rank, first, rows; };

// Where all is in shared memory. Of a stage of the states: k, `solved` in two parts, v, factors; of the outputs: q,
// scores, z, factors. Tiles are 64 x 64, in the swizzle of hopper.cuh. What a warp of the states hands to one of the
// outputs: S, and X.
struct Places {
	u32 state, output, handed, squares, barriers;

	__device__ __forceinline__ u32 state_of(int c) const { return state + c % 2 * STATE_STAGE; }
	__device__ __forceinline__ u32 output_of(int c) const { return output + c % 2 * OUTPUT_STAGE; }
	__device__ __forceinline__ u32 handed_of(int w) const { return handed + w * HANDED; }
	__device__ __forceinline__ u32 squares_of(int c) const { return squares + c % 2 * (TEAM * 1024); }
	__device__ __forceinline__ u32 barrier(int i) const { return barriers + i * 8; }
};
constexpr int TILE = CHUNK * 128, SOLVED_AT = DK * 128, SCORES_AT = SOLVED_AT, V_AT = SOLVED_AT + 2 * TILE,
	Z_AT = SCORES_AT + TILE;
constexpr int STATE_FACTORS_AT = V_AT + TILE, OUTPUT_FACTORS_AT = Z_AT + TILE, X_AT = STEPS * 1024;

// Barriers: two of each of these for stages, or one for each warp of the states.
enum Barrier { STATE_FULL = 0, STATE_EMPTY = 2, OUTPUT_FULL = 4, OUTPUT_EMPTY = 6, SQUARES = 8, S_FULL = 10,
	S_EMPTY = S_FULL + WARPS, X_FULL = S_EMPTY + WARPS, X_EMPTY = X_FULL + WARPS, ALL = X_EMPTY + WARPS };
static_assert(ALL * 8 <= 256, "barriers");

// what this thread has copied so far counts once for the barrier when it is there
__device__ __forceinline__ void arrive_with_copies(u32 barrier)
{
	asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(barrier) : "memory");
}

// the 16-byte piece of a row of a tile
__device__ __forceinline__ u32 piece_of(u32 tile, int row, int piece)
{
	return tile + row * 128 + (piece ^ row % 8) * 16;
}

// two floats to the same place of the block of that rank, for its barrier
__device__ __forceinline__ void send(u32 to, u32 barrier, int rank, float x, float y)
{
	asm volatile("{\n"
		".reg .b32 there, counts;\n"
		"mapa.shared::cluster.u32 there, %0, %2;\n"
		"mapa.shared::cluster.u32 counts, %1, %2;\n"
		"st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, [counts];\n"
		"}" :: "r"(to), "r"(barrier), "r"(rank), "f"(x), "f"(y) : "memory");
}

// warp level: all lanes are done with what the barrier guards. racecheck of compute-sanitizer does not follow the order
// that __syncwarp gives, and reports hazards; it reports none where each lane arrives
__device__ __forceinline__ void warp_arrive(u32 barrier)
{
	__syncwarp();
	if (threadIdx.x % 32 == 0)
		barrier_arrive(barrier);
}

__device__ __forceinline__ uint4 load4(u32 from)
{
	uint4 v;
	asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from)
		: "memory");
	return v;
}

__device__ __forceinline__ float4 load_factors(u32 factors, int row)
{
	const uint4 v = load4(factors + row * 16);
	return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}

// warp level: an operand as its lanes have it, to shared memory and back
__device__ __forceinline__ void hand(u32 to, const Split &s)
{
	const u32 at = to + threadIdx.x % 32 * 16;
	store_shared(at, make_uint4(s.hi[0], s.hi[1], s.hi[2], s.hi[3]));
	store_shared(at + 512, make_uint4(s.lo[0], s.lo[1], s.lo[2], s.lo[3]));
}
__device__ __forceinline__ void take(Split &s, u32 from)
{
	const u32 at = from + threadIdx.x % 32 * 16;
	const uint4 hi = load4(at), lo = load4(at + 512);
	s.hi[0] = hi.x, s.hi[1] = hi.y, s.hi[2] = hi.z, s.hi[3] = hi.w;
	s.lo[0] = lo.x, s.lo[1] = lo.y, s.lo[2] = lo.z, s.lo[3] = lo.w;
}

// Loaders (their threads, `lane` of LOADERS) ------------------------------------------------------------------------

// rows of as many tiles as their columns have, from a column on; zeros behind n
__device__ __forceinline__ void fetch_rows(u32 to, const bf16 *from, int tiles, int n, int lane)
{
	for (int i = lane; i < tiles * CHUNK * 8; i += LOADERS) {
		const int tile = i / (CHUNK * 8), row = i / 8 % CHUNK, piece = i % 8;
		const bool inside = row < n;
		copy_async(piece_of(to + tile * TILE, row, piece), from + i64(inside ? row : 0) * CONV + tile * 64 + piece * 8,
			inside);
	}
}

// The copy engine brings whole chunks. What is behind a segment's last row may be no numbers, and would get into all
// products, so the threads bring a chunk that ends before.
__device__ __forceinline__ void load_for_states(const Args &a, const Places &at, const Part &p, int lane)
{
	constexpr int each = LOADERS / 16, n_of = (CHUNK + each - 1) / each; // rows of a turn, turns
	const int k_column = (NK + p.head / SHARERS) * DK, v_column = 2 * NK * DK + p.head * DV + p.v0;
#pragma unroll 1
	for (int c = 0; c * CHUNK < p.rows; c++) {
		const int t = p.first + c * CHUNK, left = p.rows - c * CHUNK, n = left < CHUNK ? left : CHUNK;
		const u32 stage = at.state_of(c), full = at.barrier(STATE_FULL + c % 2);
		const float *const solved = a.solved + (i64(t + lane / 16) * NV + p.head) * CHUNK + lane % 16 * 4;
		float4 part[n_of]; // of the lower half of it
#pragma unroll
		for (int i = 0; i < n_of; i++) {
			const int row = i * each + lane / 16;
			part[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
			if (row < n && lane % 16 / 4 <= row / 16)
				part[i] = *reinterpret_cast<const float4 *>(solved + i * (each * NV * CHUNK));
		}
		float4 factor = make_float4(0.0f, 0.0f, 0.0f, 0.0f); // of row `lane`, as the states need it
		const float last = a.factors[(i64(t + n - 1) * NV + p.head) * 4 + 3];
		if (lane < n)
			factor = *reinterpret_cast<const float4 *>(a.factors + (i64(t + lane) * NV + p.head) * 4);
		barrier_wait(at.barrier(STATE_EMPTY + c % 2), 1 - c / 2 % 2);
		if (n < CHUNK) {
			fetch_rows(stage, a.qkv + i64(t) * CONV + k_column, DK / 64, n, lane);
			fetch_rows(stage + V_AT, a.qkv + i64(t) * CONV + v_column, 1, n, lane);
			copy_commit();
			if (lane == 0)
				barrier_arrive(full);
		} else if (lane == 0) {
			barrier_expect(full, DK * 128 + TILE);
			for (int i = 0; i < DK / 64; i++)
				copy_box(stage + i * TILE, a.qkv_map, t, k_column + i * 64, full);
			copy_box(stage + V_AT, a.qkv_map, t, v_column, full);
		}
		const float rest = __expf(fminf(last - factor.w, 0.0f)) * factor.z;
		if (lane < CHUNK)
			store_shared(stage + STATE_FACTORS_AT + lane * 16, make_uint4(__float_as_uint(factor.x),
			__float_as_uint(factor.y), __float_as_uint(rest), __float_as_uint(__expf(last))));
#pragma unroll
		for (int i = 0; i < n_of; i++) {
			if (CHUNK % each && i * each + lane / 16 >= CHUNK)
				break;
			const u32 to = piece_of(stage + SOLVED_AT, i * each + lane / 16, lane % 16 / 2) + lane % 2 * 8;
			const u32 hi[2] = { pack_bf16(part[i].x, part[i].y), pack_bf16(part[i].z, part[i].w) };
			const u32 lo[2] = { pack_bf16(part[i].x - low_bf16(hi[0]), part[i].y - high_bf16(hi[0])),
				pack_bf16(part[i].z - low_bf16(hi[1]), part[i].w - high_bf16(hi[1])) };
			asm volatile("st.shared.v2.u32 [%0], {%1, %2};" :: "r"(to), "r"(hi[0]), "r"(hi[1]) : "memory");
			asm volatile("st.shared.v2.u32 [%0], {%1, %2};" :: "r"(to + TILE), "r"(lo[0]), "r"(lo[1]) : "memory");
		}
		if (n < CHUNK)
			copy_wait<0>();
		fence_for_async();
		barrier_arrive(full);
	}
}

// Nothing of a row of these gets into another's.
__device__ __forceinline__ void load_for_outputs(const Args &a, const Places &at, const Part &p, int lane)
{
#pragma unroll 1
	for (int c = 0; c * CHUNK < p.rows; c++) {
		const int t = p.first + c * CHUNK, left = p.rows - c * CHUNK;
		const u32 stage = at.output_of(c), full = at.barrier(OUTPUT_FULL + c % 2);
		barrier_wait(at.barrier(OUTPUT_EMPTY + c % 2), 1 - c / 2 % 2);
		if (lane == 0) {
			barrier_expect(full, DK * 128 + 2 * TILE);
			for (int i = 0; i < DK / 64; i++)
				copy_box(stage + i * TILE, a.qkv_map, t, p.head / SHARERS * DK + i * 64, full);
			copy_box(stage + SCORES_AT, a.scores_map, t, p.head * CHUNK, full);
			copy_box(stage + Z_AT, a.x_map, t, CONV + p.head * DV + p.v0, full);
		}
#pragma unroll
		for (int row = lane; row < CHUNK; row += 32)
			copy_async(stage + OUTPUT_FACTORS_AT + row * 16,
				a.factors + (i64(t + (row < left ? row : 0)) * NV + p.head) * 4, row < left);
		arrive_with_copies(full);
	}
}

// 16 rows of the warp's columns of v or of z, transposed, as products have them
__device__ __forceinline__ void load_columns(u32 (&b)[4], u32 tile, int block, int v0)
{
	const int lane = threadIdx.x % 32;
	load_matrices_transposed(b, piece_of(tile, block * 16 + lane % 16, v0 / 8 + lane / 16));
}

__device__ __forceinline__ void unpack(float (&x)[2][4], const u32 (&b)[4])
{
#pragma unroll
	for (int i = 0; i < 2; i++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			x[i][2 * half] = low_bf16(b[i + 2 * half]);
			x[i][2 * half + 1] = high_bf16(b[i + 2 * half]);
		}
}

// Products (warpgroup level) ------------------------------------------------------------------------------------

// c = or += a b of all rows, b being k or q
__device__ __forceinline__ void project(Rows &c, const Split (&a)[STEPS], u32 tile, int first, int n)
{
	const u64 b = tile_descriptor(tile);
#pragma unroll
	for (int k = first; k < first + n; k++) {
		const u64 columns = b + (k / 4 * TILE + k % 4 * 32) / 16;
		if (k == 0)
			wgmma_rows<0>(c, a[k].hi, columns);
		else
			wgmma_rows<1>(c, a[k].hi, columns);
		wgmma_rows<1>(c, a[k].lo, columns);
	}
	wgmma_commit();
}

// The chain (the warps of the states) ---------------------------------------------------------------------------

// what a chunk asks for, v - f0 k.S; S is handed on
__device__ __forceinline__ void ask(Split (&asked)[BLOCKS], const State &s, u32 stage, u32 to, int v0)
{
	constexpr int half = STEPS / 2;
	const int quad = threadIdx.x % 4;
	Rows held;
	Split part[STEPS];
#pragma unroll
	for (int k0 = 0; k0 < STEPS; k0 += half) {
#pragma unroll
		for (int k = k0; k < k0 + half; k++)
			part[k].take(s[2 * k], s[2 * k + 1]);
		wgmma_begin();
		project(held, part, stage, k0, half);
#pragma unroll
		for (int k = k0; k < k0 + half; k++)
			hand(to + k * 1024, part[k]);
	}
	u32 pairs[BLOCKS][4];
#pragma unroll
	for (int n = 0; n < BLOCKS; n++)
		load_columns(pairs[n], stage + V_AT, n, v0);
	wgmma_wait<0>();
	hold(held);
#pragma unroll
	for (int n = 0; n < BLOCKS; n++) {
		float v[2][4];
		unpack(v, pairs[n]);
#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				const float f = load_factors(stage + STATE_FACTORS_AT, (2 * n + i) * 8 + quad * 2 + e).x;
				v[i][e] -= f * held[2 * n + i][e];
				v[i][2 + e] -= f * held[2 * n + i][2 + e];
			}
		asked[n].take(v[0], v[1]);
	}
}

// issues the changes that solve for it
__device__ __forceinline__ void solve(Rows &x, const Split (&asked)[BLOCKS], u32 solved)
{
	const u64 hi = tile_descriptor(solved), lo = tile_descriptor(solved + TILE);
	wgmma_begin();
#pragma unroll
	for (int k = 0; k < BLOCKS; k++) {
		if (k == 0)
			wgmma_rows<0>(x, asked[k].lo, hi + k * 2);
		else
			wgmma_rows<1>(x, asked[k].lo, hi + k * 2);
		wgmma_rows<1>(x, asked[k].hi, lo + k * 2);
		wgmma_rows<1>(x, asked[k].hi, hi + k * 2);
	}
	wgmma_commit();
}

// issues the change of a state that has decayed
__device__ __forceinline__ void change(State &s, const Split (&by)[BLOCKS], u32 k_tile)
{
	const u64 rows = tile_descriptor(k_tile, TILE);
	wgmma_begin();
#pragma unroll
	for (int k = 0; k < BLOCKS; k++) {
		wgmma_state(s, by[k].hi, rows + k * 128);
		wgmma_state(s, by[k].lo, rows + k * 128);
	}
	wgmma_commit();
}

__device__ __forceinline__ void walk_states(const Args &a, const Places &at, const Part &p, int warp)
{
	const int v0 = warp * 16, quad = threadIdx.x % 4;
	const u32 handed = at.handed_of(warp);
	ST *const delta = a.delta + (i64(a.row_slot[p.first]) * NV + p.head) * DK * DV;
	State s;
	each(p.v0 + v0, [&](int i, int j, int n, int e) { s[n][e] = to_f32(delta[i * DV + j]); });
#pragma unroll 1
	for (int c = 0; c * CHUNK < p.rows; c++) {
		const u32 stage = at.state_of(c);
		barrier_wait(at.barrier(STATE_FULL + c % 2), c / 2 % 2);
		barrier_wait(at.barrier(S_EMPTY + warp), 1 - c % 2);
		Split asked[BLOCKS], by[BLOCKS];
		Rows x;
		ask(asked, s, stage, handed, v0);
		warp_arrive(at.barrier(S_FULL + warp));
		solve(x, asked, stage + SOLVED_AT);
		const float decay = load_factors(stage + STATE_FACTORS_AT, 0).w;
		each(0, [&](int, int, int n, int e) { s[n][e] *= decay; });
		float rest[2 * BLOCKS][2];
#pragma unroll
		for (int i = 0; i < 4 * BLOCKS; i++)
			rest[i / 2][i % 2] = load_factors(stage + STATE_FACTORS_AT, i / 2 * 8 + quad * 2 + i % 2).z;
		wgmma_wait<0>();
		hold(x);
#pragma unroll
		for (int n = 0; n < BLOCKS; n++) {
			float scaled[2][4];
#pragma unroll
			for (int i = 0; i < 2; i++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					scaled[i][e] = rest[2 * n + i][e % 2] * x[2 * n + i][e];
			by[n].take(scaled[0], scaled[1]);
		}
		change(s, by, stage);
		barrier_wait(at.barrier(X_EMPTY + warp), 1 - c % 2);
#pragma unroll
		for (int n = 0; n < BLOCKS; n++) {
			Split part;
			part.take(x[2 * n], x[2 * n + 1]);
			hand(handed + X_AT + n * 1024, part);
		}
		warp_arrive(at.barrier(X_FULL + warp));
		wgmma_wait<0>();
		hold(s);
		warp_arrive(at.barrier(STATE_EMPTY + c % 2));
		if (sizeof(ST) < 4) // a prompt may be cut here, where the state would be stored and loaded
			each(p.v0 + v0, [&](int, int, int n, int e) {
				ST held;
				store(&held, s[n][e]);
				s[n][e] = to_f32(held);
			});
	}
	each(p.v0 + v0, [&](int i, int j, int n, int e) { store(&delta[i * DV + j], s[n][e]); });
}

// Outputs (a warp of them) --------------------------------------------------------------------------------------

// of the state before the chunk, which is read by then
__device__ __forceinline__ void begin_outputs(Rows &o, u32 stage, u32 from, u32 read)
{
	const int quad = threadIdx.x % 4;
	Split part[STEPS];
#pragma unroll
	for (int k = 0; k < STEPS; k++)
		take(part[k], from + k * 1024);
	wgmma_begin();
	project(o, part, stage, 0, STEPS);
	warp_arrive(read);
	wgmma_wait<0>();
	hold(o);
#pragma unroll
	for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
		for (int e = 0; e < 2; e++) {
			const float f = load_factors(stage + OUTPUT_FACTORS_AT, n * 8 + quad * 2 + e).y;
			o[n][e] *= f;
			o[n][2 + e] *= f;
		}
}

// of the chunk's changes, which are read by then
__device__ __forceinline__ void add_changes(Rows &o, u32 scores, u32 from, u32 read)
{
	const u64 b = tile_descriptor(scores);
	Split part[BLOCKS];
#pragma unroll
	for (int k = 0; k < BLOCKS; k++)
		take(part[k], from + k * 1024);
	wgmma_begin();
#pragma unroll
	for (int k = 0; k < BLOCKS; k++) {
		wgmma_rows<1>(o, part[k].hi, b + k * 2);
		wgmma_rows<1>(o, part[k].lo, b + k * 2);
	}
	wgmma_commit();
	warp_arrive(read);
	wgmma_wait<0>();
	hold(o);
}

// The lanes with bit m have the upper N of 2 N sums from here on, the others the lower.
template <int N_> __device__ __forceinline__ void halve(float (&sum)[CHUNK / 4], int m)
{
	const bool has_upper = threadIdx.x & m;
#pragma unroll
	for (int i = 0; i < N_; i++) {
		const float other = __shfl_xor_sync(~0u, has_upper ? sum[i] : sum[N_ + i], m);
		sum[i] = (has_upper ? sum[N_ + i] : sum[i]) + other;
	}
}

// the warp's sums of squares to all blocks of the team: each step halves the rows of which a lane has a part
__device__ __forceinline__ void share_squares(const Rows &o, u32 squares, u32 barrier, int rank, int warp)
{
	const int lane = threadIdx.x % 32;
	float sum[CHUNK / 4];
#pragma unroll
	for (int i = 0; i < CHUNK / 4; i++)
		sum[i] = o[i / 2][i % 2] * o[i / 2][i % 2] + o[i / 2][2 + i % 2] * o[i / 2][2 + i % 2];
	halve<CHUNK / 8>(sum, 16);
	halve<CHUNK / 16>(sum, 8);
	halve<CHUNK / 32>(sum, 4);
	const u32 to = squares + ((rank * WARPS + warp) * CHUNK + lane * 2) * 4;
	if (TEAM == 1) { // no cluster
		asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(to), "f"(sum[0]), "f"(sum[1]) : "memory");
		warp_arrive(barrier);
		return;
	}
#pragma unroll
	for (int i = 0; i < TEAM; i++)
		send(to, barrier, i, sum[0], sum[1]);
}

// o times norm and the gate of z
__device__ __forceinline__ void gate(Rows &o, const float (&norm)[2], u32 tile, int v0)
{
#pragma unroll
	for (int n = 0; n < BLOCKS; n++) {
		u32 pairs[4];
		float z[2][4];
		load_columns(pairs, tile, n, v0);
		unpack(z, pairs);
#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				o[2 * n + i][e] *= norm[e / 2] * silu(z[i][e]);
	}
}

// y from what is gated, where z was
__device__ __forceinline__ void finish(const Rows &o, u32 squares, u32 tile, int v0)
{
	const int lane = threadIdx.x % 32, quad = threadIdx.x % 4;
	float sum[2] = {}, scale[2]; // of rows 2 lane, 2 lane + 1
#pragma unroll
	for (int w = 0; w < DV / 16; w++) {
		sum[0] += __uint_as_float(load_shared(squares + (w * CHUNK + lane * 2) * 4));
		sum[1] += __uint_as_float(load_shared(squares + (w * CHUNK + lane * 2 + 1) * 4));
	}
#pragma unroll
	for (int e = 0; e < 2; e++)
		scale[e] = rsqrtf(sum[e] / DV + float(EPS));
#pragma unroll
	for (int n = 0; n < BLOCKS; n++) {
		u32 y[4];
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const float(&x)[4] = o[2 * n + i];
			const float first = __shfl_sync(~0u, scale[0], (2 * n + i) * 4 + quad);
			const float second = __shfl_sync(~0u, scale[1], (2 * n + i) * 4 + quad);
			y[i] = pack_bf16(x[0] * first, x[1] * second);
			y[i + 2] = pack_bf16(x[2] * first, x[3] * second);
		}
		const u32 to = piece_of(tile, n * 16 + lane % 16, v0 / 8 + lane / 16);
		asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
			:: "r"(to), "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]) : "memory");
	}
}

__device__ __forceinline__ void walk_outputs(const Args &a, const Places &at, const Part &p, int warp)
{
	const int v0 = warp * 16, g = threadIdx.x % 32 / 4;
	const u32 handed = at.handed_of(warp);
	const float norm[2] = { to_f32(a.norm[p.v0 + v0 + g]), to_f32(a.norm[p.v0 + v0 + g + 8]) };
#pragma unroll 1
	for (int c = 0; c * CHUNK < p.rows; c++) {
		const int t = p.first + c * CHUNK, n = p.rows - c * CHUNK;
		const u32 stage = at.output_of(c), tile = stage + Z_AT, squares = at.squares_of(c);
		const u32 of_squares = at.barrier(SQUARES + c % 2);
		if (TEAM > 1 && threadIdx.x % 32 == 0 && warp == 0)
			barrier_expect(of_squares, TEAM * 1024);
		barrier_wait(at.barrier(OUTPUT_FULL + c % 2), c / 2 % 2);
		barrier_wait(at.barrier(S_FULL + warp), c % 2);
		Rows o;
		begin_outputs(o, stage, handed, at.barrier(S_EMPTY + warp));
		barrier_wait(at.barrier(X_FULL + warp), c % 2);
		add_changes(o, stage + SCORES_AT, handed + X_AT, at.barrier(X_EMPTY + warp));
		share_squares(o, squares, of_squares, p.rank, warp);
		gate(o, norm, tile, v0);
		barrier_wait(of_squares, c / 2 % 2);
		finish(o, squares, tile, v0);
		__syncwarp();
		for (int i = threadIdx.x % 32; i < CHUNK * 2; i += 32)
			if (const int row = i / 2, piece = v0 / 8 + i % 2; row < n)
				*reinterpret_cast<uint4 *>(a.y + (i64(t + row) * NV + p.head) * DV + p.v0 + piece * 8) =
					load4(piece_of(tile, row, piece));
		fence_for_async(); // y stands where the copy engine will put z
		warp_arrive(at.barrier(OUTPUT_EMPTY + c % 2));
	}
}

__device__ __forceinline__ void init_barriers(const Places &at)
{
	for (int i = 0; i < 2; i++) {
		barrier_init(at.barrier(STATE_FULL + i), 1 + LOADERS);
		barrier_init(at.barrier(STATE_EMPTY + i), WARPS);
		barrier_init(at.barrier(OUTPUT_FULL + i), 1 + 32);
		barrier_init(at.barrier(OUTPUT_EMPTY + i), WARPS);
		barrier_init(at.barrier(SQUARES + i), TEAM == 1 ? WARPS : 1);
	}
	for (int i = S_FULL; i < ALL; i++)
		barrier_init(at.barrier(i), 1);
	barrier_init_done();
}

#if __CUDA_ARCH__ >= 900
#define TOGETHER __cluster_dims__(TEAM, 1, 1)
#else
#define TOGETHER
#endif

extern "C" __global__ void TOGETHER __launch_bounds__(384, 1) delta_walk(const __grid_constant__ Args a)
{
	DYNAMIC_SMEM(smem);
	let_next_start();
	inputs_ready();
	if (int(blockIdx.y) >= a.step[2])
		return;
	const u32 start = (shared_address(smem) + 1023) / 1024 * 1024;
	Places at = { start, start + 2 * STATE_STAGE };
	at.handed = at.output + 2 * OUTPUT_STAGE;
	at.squares = at.handed + WARPS * HANDED;
	at.barriers = at.squares + TEAM * 2048;
	const int rank = blockIdx.x % TEAM, warp = threadIdx.x / 32;
	const i32 *const seg = a.seg + blockIdx.y * 4;
	const Part part = { int(blockIdx.x) / TEAM, rank * COLUMNS, rank, seg[0], seg[1] };
	if (threadIdx.x == 0)
		init_barriers(at);
	cluster_sync(); // all of the team know their barriers
	if (warp < WARPS) {
		registers_up<224>();
		walk_states(a, at, part, warp);
	} else if (warp < 2 * WARPS) {
		registers_up<176>();
		walk_outputs(a, at, part, warp - WARPS);
	} else {
		registers_down<104>();
		if (const int lane = threadIdx.x - 64 * WARPS; lane < LOADERS)
			load_for_states(a, at, part, lane);
		else
			load_for_outputs(a, at, part, lane - LOADERS);
	}
	cluster_sync(); // nobody's memory goes while others write to it
}
