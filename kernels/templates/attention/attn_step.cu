// what      a decode row's attention, all of it. For row t in use, at position P, the length of its slot (0 if that has
//           ended):
//             q = rope(norm?(q heads of qkv[t])), k = rope(norm?(k heads)), v = the v heads, where V_IS_K the k
//             heads; k, v -> kv at P
//             o[t,h,:] = softmax over p <= P of (SCALE q[h].k[p]) times v[p], with WINDOW over the last WINDOW of these
//             p, with CHUNKED over those of P's chunk, where GATED times sigmoid of the gate's element,
//             which stands behind v in qkv[t]
//           A cache of codes (e4m3 with kv_scale, e2m1 with kv_block too) is written and read as ops.h says.
//           part, part_ml and arrived are the launch's own: sums of runs with their maxima (log2 domain), and how
//           many blocks of a group have delivered theirs. Idle rows: o = 0, no state changes
// numerics  q rounded once to bf16, for a cache of e4m3 to f16 by a power of two, k and v once to what the cache keeps;
//           q and k behind all of rope, with ROTATE the Hadamard matrix too (ops.h). Scores and sums in f32,
//           probabilities rounded like q for the second product; codes are exact. How a history is cut into runs and
//           the order of all sums depend on its length, WARPS and RUN alone, and where RUN is 0 on SPLITS: same bits
//           every run; batch-invariant. With WINDOW the history is what of it the row sees, from a whole chunk on
// splits    runs enough that a long history keeps most multiprocessors busy, one block each, and none shorter
//           than 64 positions. Clusters where half of the card has room for them: where all of it is needed, they wait
//           until eight neighbours are free, and a step of Llama-3.2-1B is 3 % longer. Heads of 128 in bf16, 8 runs of
//           4 stages, at 1024 and 16384 positions: 3.8 and 28.0 us in clusters of 2, 4.2 and 32.5 of 4 or 8; 16 runs
//           4.9 and 25.8. Four warps: eight are 4 % faster at 16384 positions and 20 % slower at 512, but for codes,
//           which take twice the instructions a position. With a window none shorter than 128: the last 1024 of 32768
//           positions take an H200 4.7 us in 8 runs, 4.9 in 4, 5.5 in 16
// run       runs of one length for all buckets, where each bucket's own SPLITS would be other bits. H200, heads of 128,
//           us of RUN 0, 256 and 512, each with its best SPLITS: one row at 512 and 4096 positions 3.6, 5.0 (clusters
//           of 2: 3.8), 6.0 and 8.7, 9.2, 9.1; 8 rows 7.1, 7.5, 7.1 and 36.1, 38.8, 37.6; 32 rows 22.1, 22.8, 21.9 and
//           133, 135, 133. Eight splits in all buckets take 64 and 174 for 32 rows. Where memory does not wait for a
//           block, the end of a run costs it about 1 us: 16 runs of one block 57, as one run 41
// early     all positions before P are what earlier steps have left (EARLY), so the first STAGES chunks of a warp are
//           on the way, and the page table, the turn of rope and norm weights there, before the products in front of
//           this launch end; then only the row's own q, k and v are missing. Chunks of bf16 are small enough that four
//           stages are worth their room at long histories, and cost nothing at short ones
// measured  H100 SXM, SmolLM2-135M shape, whole steps: 366 us to 328 at the start, 429 to 404 behind 4096 positions, by
//           what is early. In a chain, caches cold: 9 heads of 64 over 3, 384 positions 2.8 us; 32 heads of 128 over 8,
//           16384 positions 25.8 us in bf16 (84 % of the read bound), 15.5 in e4m3 (70 %), 16.6 in e2m1 (37 %); four
//           rows of them in e4m3 48.3 us (90 %), in e2m1 43.9 (56 %), of 8192 positions in bf16 48.5 (90 %). No spills
// why       the heads of a group share one mma tile of 16 rows, so each key and value is read once for all of them;
//           padding them to 16 is free, as the tensor cores wait for memory. A value of 512 elements is more than the
//           registers of a warp hold: two blocks have half of it each, and the second reads the keys from the L2 cache,
//           where the first, which runs beside it, has brought them. Each warp streams chunks of 16 or 32
//           positions through a ring of its own, so nobody waits for a block until the end. Short histories are one run
//           of one block, which needs no merge. Up to CLUSTER runs are merged through the shared memory of the first of
//           their blocks (sm_90 and later), the others through global memory by the last block to deliver its own, in
//           ascending order either way. Blocks without a run leave at once, and count as arrived where a
//           cluster meets: runs are the slowest index of the grid, so those with work start first
#include "shared/contract.cuh"
#include "shared/activation.cuh"
#include "shared/arrive.cuh"
#include "attention/history.cuh"
#include "attention/rope.cuh"

KERNEL(attn_step, attention_step)
#define VERIFY 0
#define EXTRAS 0
#include "attention/step_contract.cuh"

#include "attention/attend_step.cuh"

extern "C" __global__ void TOGETHER __launch_bounds__(THREADS, 1) attn_step(const Args a) { attend_step(a); }
