// sum_contract.cuh - contract fragment: z = the sum of part over all ranks, + bias, + residual, sum_peers*.cu.
#pragma once
#include "ranks/peers.cuh"

ARCH(90)
NUMERICS(f32_accumulate, batch_invariant)
DIM(K, 4096)
DIM(WORDS, 394240)
DTYPES(T, bf16, f32)
DTYPES(BT, bf16, f16, f32)
FLAG(BIAS)
FLAG(RESIDUAL)
ORDER(ranks)
BLOCK(512)
SMEM(0)
FLOPS(ROWS * K * 2)
struct Args {
	IN(i32, step, "4");
	IN(T, part, "ROWS, K");
	IN_IF(BIAS, BT, bias, "K");
	IN_IF(RESIDUAL, T, residual, "ROWS, K");
	INOUT(i32, peers, "WORDS");
	OUT(T, z, "ROWS, K");
};
