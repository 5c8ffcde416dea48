// what      a decode row's attention as in attn_step, with norms of values, norms over all heads, or sinks: v = norm?(v
//           heads); where NORM_WHOLE q and k are normed as a row each, and rounded; e^sinks[h] is one term more of the
//           softmax's sum of head h
// numerics  those of attn_step, by the same code: where there are neither, the same bits. A sink is added to the sum of
//           all runs, at the end
// measured  H200, 1026 positions, caches cold, a launch alone: 64 heads of 64 over 8 with sinks 9.7 us, with a window
//           of 128 8.4, 16 heads of 512 over 2 18.5, of 256 over 8 with a window of 1024 13.3; of 32 rows 26.8, 9.8,
//           52.6, 78.5. 48 heads of 128 over 8, normed as one row: 10.1; of 32 rows, 386 positions, 26.6.
//           No spills
// why       a template of its own, since the compiler reads arguments of more than 128 bytes where they are used:
//           with them attn_step would be other code than the one whose times are known
#include "shared/contract.cuh"
#include "shared/activation.cuh"
#include "shared/arrive.cuh"
#include "attention/history.cuh"
#include "attention/rope.cuh"

KERNEL(attn_step_extra, attention_step)
#define VERIFY 0
#define EXTRAS 1
#include "attention/step_contract.cuh"
REQUIRE(V_NORM || SINKS || NORM_WHOLE)

#include "attention/attend_step.cuh"

extern "C" __global__ void TOGETHER __launch_bounds__(THREADS, 1) attn_step_extra(const Args a) { attend_step(a); }
