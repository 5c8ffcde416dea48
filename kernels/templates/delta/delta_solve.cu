// what      for each chunk of 64 rows of a segment, from its first on, and each value head: what the changes of a chunk
//           are of what its rows ask for, (1 + A)^-1 b; what outputs are of the changes; four factors of a row
//           (artifacts/ops.h). Upper halves are zeros
// numerics  tensor cores on q and k, exact in bf16; sums and the inverses of blocks of 16 rows in f32, what is made of
//           these by operands of two bf16, so a product is good to 2^-16. Same bits every run; a row's bits depend on
//           those before it in its chunk alone
// measured  H200, 2048 and 8192 rows, heads of 128 x 128, 16 key heads: 32 value heads 35 and 137 us, 48 of them 46 and
//           172; 128 rows 11 us with one head a block, 13 with two. No spills
// why       nothing here depends on a state, so all chunks are solved at once, and the walk from chunk to chunk
//           (delta_walk) has only products. A block has HEADS value heads of one key head, whose products they share
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(delta_solve, delta_solve)
ARCH(90a)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 2048)
DIM(SEGS, 8)
DIM(COLS, 12352)
ATTR_INT(NK, 16)
ATTR_INT(NV, 32)
ATTR_INT(DK, 128)
ATTR_INT(DV, 128)
FLAG(BA)
DTYPES(AT, f32, bf16, f16)
DTYPES(BT, f32, bf16, f16)
TUNE(HEADS, 2, 3, 1)
REQUIRE(NV % NK == 0 && NV / NK % HEADS == 0)
PREFER(HEADS == 1 ? ROWS < 512 || NV == NK : ROWS >= 512)
REQUIRE(DK % 16 == 0 && DK <= 128 && DV % 8 == 0)
REQUIRE(COLS == 2 * NK * DK + 2 * NV * DV + (BA ? 0 : 2 * NV) && COLS % 8 == 0)
REQUIRE(ROWS / 64 + SEGS <= 65535)
ORDER(delta_solve, 64)
GRID(NV / HEADS, ROWS / 64 + min(SEGS, ROWS), 1)
BLOCK(256)
SMEM(max(2 * 64 * (2 * DK + 16), HEADS * 64 * 144) + HEADS * (2 * 64 * 144 + 4096 + 512 + 1280) + 512)
READS(ROWS * (NV / HEADS * 2 * DK + 2 * NV) * 2)
WRITES(ROWS * NV * (64 * 4 + 64 * 2 + 16))
FLOPS(2 * ROWS * NV * (64 * DK / HEADS + 32 * 64))
struct Args {
	IN(i32, step, "4");
	IN(bf16, qkv, "ROWS, 2 * NK * DK + NV * DV");
	IN(bf16, x, "ROWS, COLS");
	IN_IF(BA, bf16, ba, "ROWS, 2 * NV");
	IN(AT, a_log, "NV");
	IN(BT, dt_bias, "NV");
	IN(i32, seg, "SEGS, 4");
	OUT(f32, solved, "ROWS, NV * 64");
	OUT(bf16, scores, "ROWS, NV * 64");
	OUT(f32, factors, "ROWS, NV * 4");
};

#include "shared/activation.cuh"
#include "delta/chunk.cuh"

constexpr int THREADS = 256, CONV = 2 * NK * DK + NV * DV, SHARERS = NV / NK;

// Numbers of the chunk's rows.
struct RowNumbers {
	float q[CHUNK], k[CHUNK];                     // what q and k are to be multiplied by
	float rate[HEADS][CHUNK], total[HEADS][CHUNK]; // b; G
	// e^(G - G_first), of the first of the row's 16 rows, and e^(G_first - G) k, of such a first row and those before
	float near[HEADS][CHUNK], far[HEADS][BLOCKS][CHUNK];
};

// Shared memory: q and k, which scores take the place of; -A of each head with the inverses of its diagonal blocks, in
// two parts, and these blocks in f32; numbers.
constexpr int TILES = 2 * CHUNK * K_STRIDE > HEADS * MATRIX ? 2 * CHUNK * K_STRIDE : HEADS * MATRIX;
static_assert(TILES + HEADS * (2 * MATRIX + CHUNK * 64) + int(sizeof(RowNumbers)) <= dynamic_smem(), "all of it");

// block level: q and k of the chunk, zeros behind its rows
__device__ __forceinline__ void fetch(u32 tile, const Args &a, const Chunk &c, int k_head)
{
	constexpr int pieces = DK / 8;
	for (int i = threadIdx.x; i < CHUNK * 2 * pieces; i += THREADS) {
		const int row = i / (2 * pieces), which = i / pieces % 2, piece = i % pieces;
		const bool inside = row < c.rows;
		copy_async(tile + which * CHUNK * K_STRIDE + row * K_STRIDE + piece * 16,
			a.qkv + i64(c.first + (inside ? row : 0)) * CONV + (which * NK + k_head) * DK + piece * 8, inside);
	}
	copy_commit();
}

// warp level: b and G of a head; rows that are not there change nothing
__device__ __forceinline__ void note_gates(float *rate, float *total, const Args &a, const Chunk &c, int h)
{
	const int lane = threadIdx.x % 32;
	const float minus_decay = -expf(to_f32(a.a_log[h])), dt_bias = to_f32(a.dt_bias[h]);
	float log_decay[2];
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const bool is_there = lane * 2 + i < c.rows;
		const i64 at = c.first + (is_there ? lane * 2 + i : 0);
		const bf16 *ba = BA ? a.ba + at * (2 * NV) : a.x + at * COLS + CONV + NV * DV;
		log_decay[i] = is_there ? minus_decay * softplus(to_f32(ba[NV + h]) + dt_bias) : 0.0f;
		rate[lane * 2 + i] = is_there ? sigmoid(to_f32(ba[h])) : 0.0f;
	}
	float sum = log_decay[0] + log_decay[1];
#pragma unroll
	for (int m = 1; m < 32; m *= 2) {
		const float before = __shfl_up_sync(~0u, sum, m);
		sum += lane >= m ? before : 0.0f;
	}
	const float before = __shfl_up_sync(~0u, sum, 1);
	total[lane * 2] = (lane ? before : 0.0f) + log_decay[0]; // no row's G has anything of the next
	total[lane * 2 + 1] = sum;
}

// block level: the lengths of q and k of each row, four threads a row
__device__ __forceinline__ void note_lengths(RowNumbers &r, const char *tile)
{
	const int row = threadIdx.x / 4;
	float sum[2] = {};
#pragma unroll
	for (int which = 0; which < 2; which++) {
		const char *from = tile + which * CHUNK * K_STRIDE + row * K_STRIDE;
#pragma unroll
		for (int p = 0; p < DK / 16; p++) {
			const uint2 x = *reinterpret_cast<const uint2 *>(from + (p * 4 + threadIdx.x % 4) * 8);
			const float v[4] = { low_bf16(x.x), high_bf16(x.x), low_bf16(x.y), high_bf16(x.y) };
#pragma unroll
			for (int e = 0; e < 4; e++)
				sum[which] = fmaf(v[e], v[e], sum[which]);
		}
		sum[which] += __shfl_xor_sync(~0u, sum[which], 1);
		sum[which] += __shfl_xor_sync(~0u, sum[which], 2);
	}
	if (threadIdx.x % 4 == 0) {
		r.q[row] = rsqrtf((sum[0] + 1e-6f) * DK);
		r.k[row] = rsqrtf(sum[1] + 1e-6f);
	}
}

// block level: what the walk multiplies by
__device__ __forceinline__ void write_factors(const Args &a, const RowNumbers &r, const Chunk &c, int h0)
{
	for (int i = threadIdx.x; i < c.rows * HEADS; i += THREADS) {
		const int row = i / HEADS, e = i % HEADS;
		const float total = r.total[e][row], decay = __expf(total);
		*reinterpret_cast<float4 *>(a.factors + (i64(c.first + row) * NV + h0 + e) * 4) =
			make_float4(decay * r.k[row], decay * r.q[row], r.k[row], total);
	}
}

// block level: decay between blocks of 16 rows; exponents are never positive
__device__ __forceinline__ void note_decay(RowNumbers &r)
{
	for (int i = threadIdx.x; i < HEADS * BLOCKS * CHUNK; i += THREADS) {
		const int row = i % CHUNK, block = i / CHUNK % BLOCKS, e = i / CHUNK / BLOCKS;
		const float rest = r.total[e][block * 16] - r.total[e][row];
		r.far[e][block][row] = row < block * 16 ? __expf(rest) * r.k[row] : 0.0f;
		if (row / 16 == block)
			r.near[e][row] = __expf(-rest);
	}
}

using Strip = float[2 * BLOCKS][4];

// warp level: products of 16 rows of q or k with those of k, up to their own
__device__ __forceinline__ void relate(Strip &c, u32 tile, bool is_q, int strip)
{
	const u32 k_tile = tile + CHUNK * K_STRIDE;
#pragma unroll
	for (int n = 0; n < 2 * BLOCKS; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			c[n][e] = 0.0f;
#pragma unroll
	for (int k = 0; k < DK; k += 16) {
		u32 x[4], b[4];
		load_a(x, is_q ? tile : k_tile, K_STRIDE, strip * 16, k);
#pragma unroll
		for (int n = 0; n < BLOCKS; n++)
			if (n <= strip) {
				load_b(b, k_tile, K_STRIDE, n * 16, k);
				mma(c[2 * n], x, b[0], b[1]);
				mma(c[2 * n + 1], x, b[2], b[3]);
			}
	}
}

// warp level: -A of a head, whose blocks on the diagonal, which the inverses need in f32, go to `diagonal`; of q its
// scores, zeros in the upper half
__device__ __forceinline__ void scale(const Strip &c, const RowNumbers &r, int e, bool is_q, int strip, char *matrix,
	float (*diagonal)[16])
{
	const int g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int row = strip * 16 + g + 8 * i;
		const float total = r.total[e][row], by = is_q ? r.q[row] : -r.rate[e][row] * r.k[row];
		const float by_far = by * r.near[e][row];
#pragma unroll
		for (int n = 0; n < 2 * BLOCKS; n++) {
			if (n / 2 > strip && !is_q)
				continue;
			float v[2] = {};
#pragma unroll
			for (int j = 0; j < 2; j++) {
				const int column = n * 8 + quad * 2 + j;
				if (n / 2 < strip)
					v[j] = c[n][2 * i + j] * by_far * r.far[e][strip][column];
				else if (column < row || (is_q && column == row))
					v[j] = c[n][2 * i + j] * by * r.k[column] * __expf(total - r.total[e][column]);
			}
			if (is_q)
				*reinterpret_cast<u32 *>(matrix + row * M_STRIDE + (n * 8 + quad * 2) * 2) = pack_bf16(v[0], v[1]);
			else if (n / 2 == strip)
				*reinterpret_cast<float2 *>(&diagonal[row][n % 2 * 8 + quad * 2]) = make_float2(v[0], v[1]);
			else
				put_pair(matrix, row, n * 8 + quad * 2, v[0], v[1]);
		}
	}
}

// Sums of the products of two operands of two parts each, apart, since one product waits for the other of its sum.
struct Sums { float part[3][2][4]; };

__device__ __forceinline__ void multiply(Sums &s, const Split &a, u32 matrix, int row, int column)
{
	u32 hi[4], lo[4];
	load_b(hi, matrix, M_STRIDE, row, column);
	load_b(lo, matrix + MATRIX, M_STRIDE, row, column);
#pragma unroll
	for (int i = 0; i < 2; i++) {
		mma(s.part[0][i], a.lo, hi[2 * i], hi[2 * i + 1]);
		mma(s.part[1][i], a.hi, lo[2 * i], lo[2 * i + 1]);
		mma(s.part[2][i], a.hi, hi[2 * i], hi[2 * i + 1]);
	}
}

__device__ __forceinline__ void add(float (&x0)[4], float (&x1)[4], const Sums &s)
{
#pragma unroll
	for (int e = 0; e < 4; e++) {
		x0[e] += s.part[0][0][e] + s.part[1][0][e] + s.part[2][0][e];
		x1[e] += s.part[0][1][e] + s.part[1][1][e] + s.part[2][1][e];
	}
}

// warp level: 16 columns of (1 + A)^-1 b, transposed, 16 rows after the other
__device__ __forceinline__ void solve(float (&x)[2 * BLOCKS][4], const float *rate, u32 minus_a, int strip)
{
	const int g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
	Split solved[BLOCKS];
#pragma unroll
	for (int n = 0; n < 2 * BLOCKS; n++)
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const int row = n * 8 + quad * 2 + e % 2, column = strip * 16 + g + e / 2 * 8;
			x[n][e] = row == column ? rate[row] : 0.0f;
		}
#pragma unroll
	for (int row = 0; row < BLOCKS; row++) {
		if (row < strip)
			continue;
		float(&x0)[4] = x[2 * row], (&x1)[4] = x[2 * row + 1];
		Sums sums = {};
#pragma unroll
		for (int column = 0; column < row; column++)
			if (column >= strip)
				multiply(sums, solved[column], minus_a, row * 16, column * 16);
		add(x0, x1, sums);
		solved[row].take(x0, x1);
#pragma unroll
		for (int e = 0; e < 4; e++)
			x0[e] = x1[e] = 0.0f;
		sums = {};
		multiply(sums, solved[row], minus_a, row * 16, row * 16);
		add(x0, x1, sums);
		solved[row].take(x0, x1);
	}
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) delta_solve(const Args a)
{
	DYNAMIC_SMEM(smem);
	let_next_start();
	inputs_ready();
	const Chunk chunk = find_chunk(a.seg, a.step[2], blockIdx.y);
	if (chunk.rows == 0)
		return;
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4, h0 = blockIdx.x * HEADS;
	char *const tile = reinterpret_cast<char *>(smem), *const minus_a = tile + TILES;
	float (*const diagonal)[16] = reinterpret_cast<float (*)[16]>(minus_a + HEADS * 2 * MATRIX); // [HEADS * CHUNK][16]
	RowNumbers &r = *reinterpret_cast<RowNumbers *>(minus_a + HEADS * (2 * MATRIX + CHUNK * 64));
	fetch(shared_address(tile), a, chunk, h0 / SHARERS);
	if (warp < HEADS)
		note_gates(r.rate[warp], r.total[warp], a, chunk, h0 + warp);
	copy_wait<0>();
	__syncthreads();
	note_lengths(r, tile);
	Strip c;
	const bool is_q = warp >= BLOCKS;
	const int strip = is_q ? 2 * BLOCKS - 1 - warp : warp; // long strips of q go with short ones of k
	relate(c, shared_address(tile), is_q, strip);
	__syncthreads(); // lengths are there, and q and k were read
	note_decay(r);
	__syncthreads();
#pragma unroll 1
	for (int e = 0; e < HEADS; e++)
		scale(c, r, e, is_q, strip, is_q ? tile + e * MATRIX : minus_a + e * 2 * MATRIX, diagonal + e * CHUNK);
	write_factors(a, r, chunk, h0);
	__syncthreads();
	for (int i = threadIdx.x; i < HEADS * chunk.rows * 8; i += THREADS) {
		const int e = i / 8 % HEADS, row = i / 8 / HEADS, piece = i % 8;
		*reinterpret_cast<uint4 *>(a.scores + (i64(chunk.first + row) * NV + h0 + e) * CHUNK + piece * 8) =
			*reinterpret_cast<const uint4 *>(tile + e * MATRIX + row * M_STRIDE + piece * 16);
	}
#pragma unroll 1
	for (int i = warp; i < HEADS * BLOCKS; i += THREADS / 32)
		invert(diagonal + i * 16, minus_a + i / BLOCKS * 2 * MATRIX, i % BLOCKS);
	__syncthreads();
#pragma unroll 1
	for (int i = warp; i < HEADS * BLOCKS; i += THREADS / 32) {
		const int e = i / BLOCKS, at = i % BLOCKS;
		float x[2 * BLOCKS][4];
		solve(x, r.rate[e], shared_address(minus_a + e * 2 * MATRIX), at);
		float *const to = a.solved + (i64(chunk.first) * NV + h0 + e) * CHUNK + at * 16 + g;
#pragma unroll
		for (int n = 0; n < 2 * BLOCKS; n++)
#pragma unroll
			for (int j = 0; j < 4; j++)
				if (const int row = n * 8 + quad * 2 + j % 2; row < chunk.rows)
					to[i64(row) * NV * CHUNK + j / 2 * 8] = x[n][j];
	}
}
