/* kernel_bench.c - how fast the kernels are at shapes of real models.
 *
 * A row is one template at one shape; every combination of its tunables is timed. Launches stand one after
 * another in one graph, overlapping as in a plan, each with its own copy of the large operands, so that nothing is
 * found in the L2 cache but what a kernel itself put there. Two rates measured in the same run are the bounds: reading
 * memory with 16-byte loads, and mma.sync in registers. Contents are random; index operands are legal: decode rows
 * stand at the end of a full context, a prefill chunk is one segment that ends there.
 */
#include "tests/gpu/kernel_test.h"

#include <nvrtc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TRIALS = 2048, SMALL = 1 << 20 /* bytes: operands below are not copied */, MAX_LAUNCHES = 400 };

/* formats of weights, of one and of two */
#define FP8 "WT=e4m3 ST=bf16 W_SCALE=1 W_ROW_SCALE=0 BLOCK_N=128 BLOCK_K=128"
#define FP8_TWO "WT=e4m3 ST=bf16 GATE_SCALE=1 UP_SCALE=1 GATE_ROW_SCALE=0 UP_ROW_SCALE=0 BLOCK_N=128 BLOCK_K=128"
#define NVFP4 "WT=e2m1 ST=e4m3 W_SCALE=1 W_ROW_SCALE=1 BLOCK_N=1 BLOCK_K=16"
#define NVFP4_TWO "WT=e2m1 ST=e4m3 GATE_SCALE=1 UP_SCALE=1 GATE_ROW_SCALE=1 UP_ROW_SCALE=1 BLOCK_N=1 BLOCK_K=16"
#define NVFP4_ROWS " WT=e2m1 ST=e4m3 W_ROW_SCALE=1 BLOCK_N=1 BLOCK_K=16"
#define NVFP4_ROWS_TWO " WT=e2m1 ST=e4m3 GATE_ROW_SCALE=1 UP_ROW_SCALE=1 BLOCK_N=1 BLOCK_K=16"
#define INT4_ROWS " WT=u4 ST=f32z W_ROW_SCALE=0 BLOCK_N=1 BLOCK_K=128"
#define INT4_ROWS_TWO " WT=u4 ST=f32z GATE_ROW_SCALE=0 UP_ROW_SCALE=0 BLOCK_N=1 BLOCK_K=128"
#define INT4 "WT=u4 ST=f32z W_SCALE=1 W_ROW_SCALE=0 BLOCK_N=1 BLOCK_K=128"
#define INT4_TWO "WT=u4 ST=f32z GATE_SCALE=1 UP_SCALE=1 GATE_ROW_SCALE=0 UP_ROW_SCALE=0 BLOCK_N=1 BLOCK_K=128"

#define FP8_ROWS " WT=e4m3 ST=bf16 W_SCALE=1 W_ROW_SCALE=0 BLOCK_N=128 BLOCK_K=128"
#define FP8_ROWS_TWO " WT=e4m3 ST=bf16 GATE_SCALE=1 UP_SCALE=1 GATE_ROW_SCALE=0 UP_ROW_SCALE=0 BLOCK_N=128 BLOCK_K=128"

#define DELTA " DK=128 DV=128 TAPS=3 BA=1" /* b and a stand in bf16 beside products of codes */
#define FP8_BLOCK " BLOCK_N=128 BLOCK_K=128"

/* of experts, the shared one among them */
#define EXPERTS_BF16 " WT=bf16 SCALE=0 ROW_SCALE=0"
#define EXPERTS_FP8 " WT=e4m3 ST=bf16 SCALE=1 ROW_SCALE=0 BLOCK_N=128 BLOCK_K=128"
#define EXPERTS_NVFP4 " WT=e2m1 ST=e4m3 SCALE=1 ROW_SCALE=1 BLOCK_N=1 BLOCK_K=16"
#define NO_SHARED " SHARED=0 SHARED_SCALE=0 SHARED_ROW_SCALE=0"
#define QUEUE_FP8 " SHARED=1 SHARED_SCALE=1 SHARED_ROW_SCALE=0 SHARED_BLOCK_N=128 SHARED_BLOCK_K=128"
#define QUEUE_NVFP4 " SHARED=1 SHARED_SCALE=1 SHARED_ROW_SCALE=1 SHARED_BLOCK_N=1 SHARED_BLOCK_K=16"
#define SHARED_FP8 " SWT=e4m3 SST=bf16" QUEUE_FP8
#define SHARED_NVFP4 " SWT=e2m1 SST=e4m3" QUEUE_NVFP4
#define OSS " WT=e2m1 ST=e8m0 BT=bf16 SCALE=1 BLOCK_N=1 BLOCK_K=32"
#define OSS_UP "K=2880 EXPERTS=32 N=5760 WIDTH=11520 TOPK=4" OSS
#define OSS_DOWN "K=2880 EXPERTS=32 N=2880 WIDTH=11520 TOPK=4 ROW_SCALE=0" NO_SHARED OSS
#define M2_UP(experts) "K=3072 EXPERTS=" #experts " N=3072 WIDTH=12288 TOPK=8" EXPERTS_NVFP4 NO_SHARED
#define M2_DOWN(experts) "K=3072 EXPERTS=" #experts " N=1536 WIDTH=12288 TOPK=8" EXPERTS_NVFP4 NO_SHARED
#define E4M3_PRODUCTS(rows) \
	{"wgmma_e4m3_linear", "27B qkv x" #rows, "ROWS=" #rows " K=5120 N=16384 BIAS=0" FP8_ROWS}, \
	{"wgmma_e4m3_residual", "27B o x" #rows, "ROWS=" #rows " K=6144 N=5120 BIAS=0" FP8_ROWS}, \
	{"wgmma_e4m3_swiglu", "27B gate up x" #rows, "ROWS=" #rows " K=5120 N=17408 GATE_BIAS=0 UP_BIAS=0" FP8_ROWS_TWO}, \
	{"wgmma_e4m3_residual", "27B down x" #rows, "ROWS=" #rows " K=17408 N=5120 BIAS=0" FP8_ROWS}, \
	{"wgmma_e4m3_linear", "8B qkv x" #rows, "ROWS=" #rows " K=4096 N=6144 BIAS=0" FP8_ROWS}, \
	{"wgmma_e4m3_residual", "8B o x" #rows, "ROWS=" #rows " K=4096 N=4096 BIAS=0" FP8_ROWS}, \
	{"wgmma_e4m3_swiglu", "8B gate up x" #rows, "ROWS=" #rows " K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0" FP8_ROWS_TWO}, \
	{"wgmma_e4m3_residual", "8B down x" #rows, "ROWS=" #rows " K=14336 N=4096 BIAS=0" FP8_ROWS}
#define SLIM_PRODUCTS(rows) \
	{"wgmma_slim_fp8_linear", "27B qkv x" #rows, "ROWS=" #rows " K=5120 N=16384 BIAS=0" FP8_ROWS}, \
	{"wgmma_slim_fp8_residual", "27B o x" #rows, "ROWS=" #rows " K=6144 N=5120 BIAS=0" FP8_ROWS}, \
	{"wgmma_slim_fp8_swiglu", "27B gate up x" #rows, \
		"ROWS=" #rows " K=5120 N=17408 GATE_BIAS=0 UP_BIAS=0" FP8_ROWS_TWO}, \
	{"wgmma_slim_fp8_residual", "27B down x" #rows, "ROWS=" #rows " K=17408 N=5120 BIAS=0" FP8_ROWS}, \
	{"wgmma_slim_linear", "8B qkv x" #rows, "ROWS=" #rows " K=4096 N=6144 BIAS=0"}, \
	{"wgmma_slim_residual", "8B o x" #rows, "ROWS=" #rows " K=4096 N=4096 BIAS=0"}, \
	{"wgmma_slim_swiglu", "8B gate up x" #rows, "ROWS=" #rows " K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0"}, \
	{"wgmma_slim_residual", "8B down x" #rows, "ROWS=" #rows " K=14336 N=4096 BIAS=0"}
#define ROW_PRODUCTS(name, format) \
	{"stream_row_residual", name " 8B o", "ROWS=1 K=4096 N=4096 BIAS=0 " format}, \
	{"stream_row_residual", name " 8B down", "ROWS=1 K=14336 N=4096 BIAS=0 " format}, \
	{"stream_row_residual", name " 27B o", "ROWS=1 K=6144 N=5120 BIAS=0 " format}, \
	{"stream_row_residual", name " 27B down", "ROWS=1 K=17408 N=5120 BIAS=0 " format}
#define UP_35B "K=2048 EXPERTS=128 N=1024 WIDTH=4608 TOPK=8 " /* half of its experts, of which a step reads as many */
#define DOWN_35B "K=2048 EXPERTS=128 N=512 WIDTH=4608 TOPK=8 "
#define UP_256 "K=2048 EXPERTS=256 N=1024 WIDTH=4608 TOPK=8 "
#define DOWN_256 "K=2048 EXPERTS=256 N=512 WIDTH=4608 TOPK=8 "
#define ROUTE_35B "K=2048 EXPERTS=256 TOPK=8 NORM_ONE=1 NORM_TOPK=1 SHARED=1"
#define UP_30B "K=2048 EXPERTS=128 N=1536 WIDTH=6144 TOPK=8 "
#define DOWN_30B "K=2048 EXPERTS=128 N=768 WIDTH=6144 TOPK=8 "

typedef struct Shape { const char *tmpl, *label, *fixed; } Shape;
static const Shape shapes[] = {
	{"stream_norm", "1B qkv", "ROWS=1 K=2048 N=3072 BIAS=0 NORM_ONE=0"},
	{"stream_residual", "1B o", "ROWS=1 K=2048 N=2048 BIAS=0"},
	{"stream_swiglu", "1B gate up", "ROWS=1 K=2048 N=8192 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0"},
	{"stream_residual", "1B down", "ROWS=1 K=8192 N=2048 BIAS=0"},
	{"stream_logits", "1B head", "ROWS=1 OUTS=1 K=2048 V=128256 NORM_ONE=0 N_VALID=128256"},
	{"stream_norm", "8B qkv", "ROWS=1 K=4096 N=6144 BIAS=0 NORM_ONE=0"},
	{"stream_residual", "8B o", "ROWS=1 K=4096 N=4096 BIAS=0"},
	{"stream_swiglu", "8B gate up", "ROWS=1 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0"},
	{"stream_residual", "8B down", "ROWS=1 K=14336 N=4096 BIAS=0"},
	{"stream_logits", "8B head", "ROWS=1 OUTS=1 K=4096 V=128256 NORM_ONE=0 N_VALID=128256"},
	{"stream_norm", "135M qkv", "ROWS=1 K=576 N=960 BIAS=0 NORM_ONE=0"},
	{"stream_residual", "135M o", "ROWS=1 K=576 N=576 BIAS=0"},
	{"stream_swiglu", "135M gate up", "ROWS=1 K=576 N=1536 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0"},
	{"stream_residual", "135M down", "ROWS=1 K=1536 N=576 BIAS=0"},
	{"stream_logits", "135M head", "ROWS=1 OUTS=1 K=576 V=49152 NORM_ONE=0 N_VALID=49152"},
	{"stream_norm", "8B qkv x8", "ROWS=8 K=4096 N=6144 BIAS=0 NORM_ONE=0"},
	{"stream_residual", "8B o x8", "ROWS=8 K=4096 N=4096 BIAS=0"},
	{"stream_swiglu", "8B gate up x8", "ROWS=8 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0"},
	{"stream_residual", "8B down x8", "ROWS=8 K=14336 N=4096 BIAS=0"},
	{"stream_logits", "8B head x8", "ROWS=8 OUTS=8 K=4096 V=128256 NORM_ONE=0 N_VALID=128256"},
	{"stream_norm", "8B qkv x16", "ROWS=16 K=4096 N=6144 BIAS=0 NORM_ONE=0"},
	{"stream_residual", "8B o x16", "ROWS=16 K=4096 N=4096 BIAS=0"},
	{"stream_swiglu", "8B gate up x16", "ROWS=16 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0"},
	{"stream_residual", "8B down x16", "ROWS=16 K=14336 N=4096 BIAS=0"},
	{"stream_logits", "8B head x16", "ROWS=16 OUTS=16 K=4096 V=128256 NORM_ONE=0 N_VALID=128256"},
	{"stream_norm", "8B qkv x32", "ROWS=32 K=4096 N=6144 BIAS=0 NORM_ONE=0"},
	{"stream_residual", "8B o x32", "ROWS=32 K=4096 N=4096 BIAS=0"},
	{"stream_swiglu", "8B gate up x32", "ROWS=32 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0"},
	{"stream_residual", "8B down x32", "ROWS=32 K=14336 N=4096 BIAS=0"},
	{"stream_logits", "8B head x32", "ROWS=32 OUTS=32 K=4096 V=128256 NORM_ONE=0 N_VALID=128256"},
	{"stream_norm", "fp8 8B qkv", "ROWS=1 K=4096 N=6144 BIAS=0 NORM_ONE=0 " FP8},
	{"stream_norm_narrow", "fp8 35B qkvz, ba", "ROWS=1 K=2048 N=12288 M=64 BIAS=0 NORM_ONE=1 " FP8},
	{"stream_residual", "fp8 8B o", "ROWS=1 K=4096 N=4096 BIAS=0 " FP8},
	{"stream_swiglu", "fp8 8B gate up", "ROWS=1 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0 " FP8_TWO},
	{"stream_residual", "fp8 8B down", "ROWS=1 K=14336 N=4096 BIAS=0 " FP8},
	{"stream_logits", "fp8 8B head", "ROWS=1 OUTS=1 K=4096 V=128256 NORM_ONE=0 N_VALID=128256 " FP8},
	{"stream_norm", "fp8x8 8B qkv", "ROWS=8 K=4096 N=6144 BIAS=0 NORM_ONE=0 " FP8},
	{"stream_residual", "fp8x8 8B o", "ROWS=8 K=4096 N=4096 BIAS=0 " FP8},
	{"stream_swiglu", "fp8x8 8B gate up", "ROWS=8 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0 " FP8_TWO},
	{"stream_residual", "fp8x8 8B down", "ROWS=8 K=14336 N=4096 BIAS=0 " FP8},
	{"stream_logits", "fp8x8 8B head", "ROWS=8 OUTS=8 K=4096 V=128256 NORM_ONE=0 N_VALID=128256 " FP8},
	{"stream_norm", "fp8x32 8B qkv", "ROWS=32 K=4096 N=6144 BIAS=0 NORM_ONE=0 " FP8},
	{"stream_residual", "fp8x32 8B o", "ROWS=32 K=4096 N=4096 BIAS=0 " FP8},
	{"stream_swiglu", "fp8x32 8B gate up", "ROWS=32 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0 " FP8_TWO},
	{"stream_residual", "fp8x32 8B down", "ROWS=32 K=14336 N=4096 BIAS=0 " FP8},
	{"stream_norm", "nvfp4 8B qkv", "ROWS=1 K=4096 N=6144 BIAS=0 NORM_ONE=0 " NVFP4},
	{"stream_residual", "nvfp4 8B o", "ROWS=1 K=4096 N=4096 BIAS=0 " NVFP4},
	{"stream_swiglu", "nvfp4 8B gate up", "ROWS=1 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0 " NVFP4_TWO},
	{"stream_residual", "nvfp4 8B down", "ROWS=1 K=14336 N=4096 BIAS=0 " NVFP4},
	ROW_PRODUCTS("fp8", FP8),
	ROW_PRODUCTS("nvfp4", NVFP4),
	{"stream_norm", "nvfp4x8 8B qkv", "ROWS=8 K=4096 N=6144 BIAS=0 NORM_ONE=0 " NVFP4},
	{"stream_residual", "nvfp4x8 8B o", "ROWS=8 K=4096 N=4096 BIAS=0 " NVFP4},
	{"stream_swiglu", "nvfp4x8 8B gate up", "ROWS=8 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0 " NVFP4_TWO},
	{"stream_residual", "nvfp4x8 8B down", "ROWS=8 K=14336 N=4096 BIAS=0 " NVFP4},
	{"stream_norm", "nvfp4x32 8B qkv", "ROWS=32 K=4096 N=6144 BIAS=0 NORM_ONE=0 " NVFP4},
	{"stream_residual", "nvfp4x32 8B o", "ROWS=32 K=4096 N=4096 BIAS=0 " NVFP4},
	{"stream_swiglu", "nvfp4x32 8B gate up", "ROWS=32 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0 " NVFP4_TWO},
	{"stream_residual", "nvfp4x32 8B down", "ROWS=32 K=14336 N=4096 BIAS=0 " NVFP4},
	{"stream_norm", "int4 8B qkv", "ROWS=1 K=4096 N=6144 BIAS=0 NORM_ONE=0 " INT4},
	{"stream_residual", "int4 8B o", "ROWS=1 K=4096 N=4096 BIAS=0 " INT4},
	{"stream_swiglu", "int4 8B gate up", "ROWS=1 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0 " INT4_TWO},
	{"stream_residual", "int4 8B down", "ROWS=1 K=14336 N=4096 BIAS=0 " INT4},
	{"stream_norm", "int4x8 8B qkv", "ROWS=8 K=4096 N=6144 BIAS=0 NORM_ONE=0 " INT4},
	{"stream_residual", "int4x8 8B o", "ROWS=8 K=4096 N=4096 BIAS=0 " INT4},
	{"stream_swiglu", "int4x8 8B gate up", "ROWS=8 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0 " INT4_TWO},
	{"stream_residual", "int4x8 8B down", "ROWS=8 K=14336 N=4096 BIAS=0 " INT4},
	{"stream_norm", "int4x32 8B qkv", "ROWS=32 K=4096 N=6144 BIAS=0 NORM_ONE=0 " INT4},
	{"stream_residual", "int4x32 8B o", "ROWS=32 K=4096 N=4096 BIAS=0 " INT4},
	{"stream_swiglu", "int4x32 8B gate up", "ROWS=32 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0 " INT4_TWO},
	{"stream_residual", "int4x32 8B down", "ROWS=32 K=14336 N=4096 BIAS=0 " INT4},
	{"gemv_swiglu", "1B gate up f16", "ROWS=1 K=2048 N=8192 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0"},
	{"gemv_residual", "1B down f16 x8", "ROWS=8 K=8192 N=2048 BIAS=0"},
	{"gemm_swiglu", "1B gate up x64", "ROWS=64 K=2048 N=8192 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0"},
	{"gemm_norm", "1B qkv x512", "ROWS=512 K=2048 N=3072 BIAS=0 NORM_ONE=0"},
	{"gemm_residual", "1B down x512", "ROWS=512 K=8192 N=2048 BIAS=0"},
	{"gemm_swiglu", "1B gate up x512", "ROWS=512 K=2048 N=8192 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0"},
	{"gemm_swiglu", "8B gate up x2048", "ROWS=2048 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0"},
	{"gemm_norm", "8B qkv x2048", "ROWS=2048 K=4096 N=6144 BIAS=0 NORM_ONE=0"},
	{"gemm_residual", "8B o x2048", "ROWS=2048 K=4096 N=4096 BIAS=0"},
	{"gemm_residual", "8B down x2048", "ROWS=2048 K=14336 N=4096 BIAS=0"},
	{"gemm_swiglu", "fp8 8B gate up x2048", "ROWS=2048 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0 " FP8_TWO},
	{"gemm_residual", "fp8 8B down x2048", "ROWS=2048 K=14336 N=4096 BIAS=0 " FP8},
	{"gemm_swiglu", "nvfp4 8B gate up x2048", "ROWS=2048 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0 " NVFP4_TWO},
	{"gemm_norm", "nvfp4 8B qkv x2048", "ROWS=2048 K=4096 N=6144 BIAS=0 NORM_ONE=0 " NVFP4},
	{"gemm_residual", "nvfp4 8B down x2048", "ROWS=2048 K=14336 N=4096 BIAS=0 " NVFP4},
	{"gemm_swiglu", "int4 8B gate up x2048", "ROWS=2048 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 NORM_ONE=0 " INT4_TWO},
	{"gemm_norm", "int4 8B qkv x2048", "ROWS=2048 K=4096 N=6144 BIAS=0 NORM_ONE=0 " INT4},
	{"gemm_residual", "int4 8B down x2048", "ROWS=2048 K=14336 N=4096 BIAS=0 " INT4},
	{"wgmma_linear", "1B qkv x512", "ROWS=512 K=2048 N=3072 BIAS=0"},
	{"wgmma_residual", "1B down x512", "ROWS=512 K=8192 N=2048 BIAS=0"},
	{"wgmma_swiglu", "1B gate up x512", "ROWS=512 K=2048 N=8192 GATE_BIAS=0 UP_BIAS=0"},
	{"wgmma_swiglu", "8B gate up x2048", "ROWS=2048 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0"},
	{"wgmma_linear", "8B qkv x2048", "ROWS=2048 K=4096 N=6144 BIAS=0"},
	{"wgmma_residual", "8B o x2048", "ROWS=2048 K=4096 N=4096 BIAS=0"},
	{"wgmma_residual", "8B down x2048", "ROWS=2048 K=14336 N=4096 BIAS=0"},
	{"wgmma_residual", "8192 cubed", "ROWS=8192 K=8192 N=8192 BIAS=0"},
	{"wgmma_residual", "1B o x512", "ROWS=512 K=2048 N=2048 BIAS=0"},
	{"wgmma_residual", "8B o x512", "ROWS=512 K=4096 N=4096 BIAS=0"},
	{"wgmma_residual", "8B o x128", "ROWS=128 K=4096 N=4096 BIAS=0"},
	{"wgmma_swiglu", "8B gate up x128", "ROWS=128 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0"},
	SLIM_PRODUCTS(16),
	SLIM_PRODUCTS(32),
	SLIM_PRODUCTS(64),
	{"wgmma_slim_logits", "8B head x32", "OUTS=32 K=4096 V=128256 N_VALID=128256"},
	{"wgmma_slim_logits", "27B head x64", "OUTS=64 K=5120 V=248320 N_VALID=248320"},
	{"wgmma_few_residual", "8B o x32", "ROWS=32 K=4096 N=4096 BIAS=0"},
	{"wgmma_few_residual", "8B down x32", "ROWS=32 K=14336 N=4096 BIAS=0"},
	{"stream_residual", "8B o x32", "ROWS=32 K=4096 N=4096 BIAS=0"},
	{"stream_residual", "8B down x32", "ROWS=32 K=14336 N=4096 BIAS=0"},
	{"wgmma_few_linear", "8B qkv x64", "ROWS=64 K=4096 N=6144 BIAS=0"},
	{"wgmma_few_residual", "8B o x64", "ROWS=64 K=4096 N=4096 BIAS=0"},
	{"wgmma_few_residual", "8B down x64", "ROWS=64 K=14336 N=4096 BIAS=0"},
	{"wgmma_few_linear", "8B qkv x128", "ROWS=128 K=4096 N=6144 BIAS=0"},
	{"wgmma_few_residual", "8B o x128", "ROWS=128 K=4096 N=4096 BIAS=0"},
	{"wgmma_few_residual", "8B down x128", "ROWS=128 K=14336 N=4096 BIAS=0"},
	{"wgmma_few_linear", "8B qkv x256", "ROWS=256 K=4096 N=6144 BIAS=0"},
	{"wgmma_few_residual", "8B o x256", "ROWS=256 K=4096 N=4096 BIAS=0"},
	{"wgmma_few_residual", "8B down x256", "ROWS=256 K=14336 N=4096 BIAS=0"},
	{"wgmma_few_swiglu", "8B gate up x64", "ROWS=64 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0"},
	{"wgmma_swiglu", "8B gate up x64", "ROWS=64 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0"},
	{"wgmma_swiglu", "8B gate up x256", "ROWS=256 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0"},
	{"wgmma_linear", "8B qkv x64", "ROWS=64 K=4096 N=6144 BIAS=0"},
	{"wgmma_linear", "8B qkv x128", "ROWS=128 K=4096 N=6144 BIAS=0"},
	{"wgmma_linear", "8B qkv x256", "ROWS=256 K=4096 N=6144 BIAS=0"},
	{"wgmma_residual", "8B down x64", "ROWS=64 K=14336 N=4096 BIAS=0"},
	{"wgmma_residual", "8B down x256", "ROWS=256 K=14336 N=4096 BIAS=0"},
	{"wgmma_codes_linear", "nvfp4 8B qkv x2048", "ROWS=2048 K=4096 N=6144 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_residual", "nvfp4 8B o x2048", "ROWS=2048 K=4096 N=4096 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_swiglu", "nvfp4 8B gate up x2048", "ROWS=2048 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0" NVFP4_ROWS_TWO},
	{"wgmma_codes_residual", "nvfp4 8B down x2048", "ROWS=2048 K=14336 N=4096 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_linear", "int4 8B qkv x2048", "ROWS=2048 K=4096 N=6144 BIAS=0" INT4_ROWS},
	{"wgmma_codes_residual", "int4 8B o x2048", "ROWS=2048 K=4096 N=4096 BIAS=0" INT4_ROWS},
	{"wgmma_codes_swiglu", "int4 8B gate up x2048", "ROWS=2048 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0" INT4_ROWS_TWO},
	{"wgmma_codes_residual", "int4 8B down x2048", "ROWS=2048 K=14336 N=4096 BIAS=0" INT4_ROWS},
	{"wgmma_codes_linear", "nvfp4 8B qkv x512", "ROWS=512 K=4096 N=6144 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_residual", "nvfp4 8B o x512", "ROWS=512 K=4096 N=4096 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_swiglu", "nvfp4 8B gate up x512", "ROWS=512 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0" NVFP4_ROWS_TWO},
	{"wgmma_codes_residual", "nvfp4 8B down x512", "ROWS=512 K=14336 N=4096 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_linear", "nvfp4 8B qkv x128", "ROWS=128 K=4096 N=6144 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_residual", "nvfp4 8B o x128", "ROWS=128 K=4096 N=4096 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_swiglu", "nvfp4 8B gate up x128", "ROWS=128 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0" NVFP4_ROWS_TWO},
	{"wgmma_codes_residual", "nvfp4 8B down x128", "ROWS=128 K=14336 N=4096 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_linear", "int4 8B qkv x128", "ROWS=128 K=4096 N=6144 BIAS=0" INT4_ROWS},
	{"wgmma_codes_residual", "int4 8B o x128", "ROWS=128 K=4096 N=4096 BIAS=0" INT4_ROWS},
	{"wgmma_codes_swiglu", "int4 8B gate up x128", "ROWS=128 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0" INT4_ROWS_TWO},
	{"wgmma_codes_residual", "int4 8B down x128", "ROWS=128 K=14336 N=4096 BIAS=0" INT4_ROWS},
	{"wgmma_fp8_residual", "8192 cubed", "ROWS=8192 K=8192 N=8192 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_fp8_residual", "4096x7168x2048", "ROWS=4096 K=2048 N=7168 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_fp8_linear", "8192 cubed", "ROWS=8192 K=8192 N=8192 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_fp8_linear", "4096x7168x2048", "ROWS=4096 K=2048 N=7168 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_fp8_linear", "8B qkv x2048", "ROWS=2048 K=4096 N=6144 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_fp8_residual", "8B o x2048", "ROWS=2048 K=4096 N=4096 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_fp8_swiglu", "8B gate up x2048", "ROWS=2048 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 GATE_SCALE=1 "
		"UP_SCALE=1 GATE_ROW_SCALE=0 UP_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_fp8_residual", "8B down x2048", "ROWS=2048 K=14336 N=4096 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_linear", "8B qkv x64", "ROWS=64 K=4096 N=6144 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "8B down x64", "ROWS=64 K=14336 N=4096 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "27B down x64", "ROWS=64 K=17408 N=5120 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_linear", "8B qkv x128", "ROWS=128 K=4096 N=6144 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "8B down x128", "ROWS=128 K=14336 N=4096 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "27B down x128", "ROWS=128 K=17408 N=5120 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_linear", "8B qkv x256", "ROWS=256 K=4096 N=6144 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "8B down x256", "ROWS=256 K=14336 N=4096 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "27B down x256", "ROWS=256 K=17408 N=5120 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_fp8_residual", "27B down x64", "ROWS=64 K=17408 N=5120 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_swiglu", "27B gate up x64", "ROWS=64 K=5120 N=17408 GATE_BIAS=0 UP_BIAS=0 GATE_SCALE=1 "
		"UP_SCALE=1 GATE_ROW_SCALE=0 UP_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_swiglu", "8B gate up x64", "ROWS=64 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 GATE_SCALE=1 "
		"UP_SCALE=1 GATE_ROW_SCALE=0 UP_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_fp8_swiglu", "27B gate up x64", "ROWS=64 K=5120 N=17408 GATE_BIAS=0 UP_BIAS=0 GATE_SCALE=1 "
		"UP_SCALE=1 GATE_ROW_SCALE=0 UP_ROW_SCALE=0" FP8_BLOCK},
	E4M3_PRODUCTS(16), E4M3_PRODUCTS(32), E4M3_PRODUCTS(64), E4M3_PRODUCTS(128), E4M3_PRODUCTS(256),
	{"wgmma_codes_linear", "nvfp4 8B qkv x32", "ROWS=32 K=4096 N=6144 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_residual", "nvfp4 8B o x32", "ROWS=32 K=4096 N=4096 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_swiglu", "nvfp4 8B gate up x32", "ROWS=32 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0" NVFP4_ROWS_TWO},
	{"wgmma_codes_residual", "nvfp4 8B down x32", "ROWS=32 K=14336 N=4096 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_linear", "nvfp4 8B qkv x64", "ROWS=64 K=4096 N=6144 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_residual", "nvfp4 8B o x64", "ROWS=64 K=4096 N=4096 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_swiglu", "nvfp4 8B gate up x64", "ROWS=64 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0" NVFP4_ROWS_TWO},
	{"wgmma_codes_residual", "nvfp4 8B down x64", "ROWS=64 K=14336 N=4096 BIAS=0" NVFP4_ROWS},
	{"wgmma_codes_linear", "int4 8B qkv x32", "ROWS=32 K=4096 N=6144 BIAS=0" INT4_ROWS},
	{"wgmma_codes_residual", "int4 8B o x32", "ROWS=32 K=4096 N=4096 BIAS=0" INT4_ROWS},
	{"wgmma_codes_swiglu", "int4 8B gate up x32", "ROWS=32 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0" INT4_ROWS_TWO},
	{"wgmma_codes_residual", "int4 8B down x32", "ROWS=32 K=14336 N=4096 BIAS=0" INT4_ROWS},
	{"wgmma_codes_linear", "int4 8B qkv x64", "ROWS=64 K=4096 N=6144 BIAS=0" INT4_ROWS},
	{"wgmma_codes_residual", "int4 8B o x64", "ROWS=64 K=4096 N=4096 BIAS=0" INT4_ROWS},
	{"wgmma_codes_swiglu", "int4 8B gate up x64", "ROWS=64 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0" INT4_ROWS_TWO},
	{"wgmma_codes_residual", "int4 8B down x64", "ROWS=64 K=14336 N=4096 BIAS=0" INT4_ROWS},
	{"wgmma_few_fp8_linear", "27B qkv x32", "ROWS=32 K=5120 N=16384 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "27B o x32", "ROWS=32 K=6144 N=5120 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "27B down x32", "ROWS=32 K=17408 N=5120 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_swiglu", "27B gate up x32", "ROWS=32 K=5120 N=17408 GATE_BIAS=0 UP_BIAS=0 GATE_SCALE=1 "
		"UP_SCALE=1 GATE_ROW_SCALE=0 UP_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_linear", "8B qkv x32", "ROWS=32 K=4096 N=6144 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "8B o x32", "ROWS=32 K=4096 N=4096 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "8B down x32", "ROWS=32 K=14336 N=4096 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_swiglu", "8B gate up x32", "ROWS=32 K=4096 N=14336 GATE_BIAS=0 UP_BIAS=0 GATE_SCALE=1 "
		"UP_SCALE=1 GATE_ROW_SCALE=0 UP_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_linear", "27B qkv x64", "ROWS=64 K=5120 N=16384 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "27B o x64", "ROWS=64 K=6144 N=5120 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "8B o x64", "ROWS=64 K=4096 N=4096 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_linear", "27B qkv x128", "ROWS=128 K=5120 N=16384 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "27B o x128", "ROWS=128 K=6144 N=5120 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "8B o x128", "ROWS=128 K=4096 N=4096 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_linear", "27B qkv x256", "ROWS=256 K=5120 N=16384 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "27B o x256", "ROWS=256 K=6144 N=5120 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"wgmma_few_fp8_residual", "8B o x256", "ROWS=256 K=4096 N=4096 BIAS=0 W_SCALE=1 W_ROW_SCALE=0" FP8_BLOCK},
	{"norm_rows", "8B x64", "ROWS=64 K=4096 NORM_ONE=0"},
	{"norm_rows_fp8", "8B x2048", "ROWS=2048 K=4096 NORM_ONE=0"},
	{"quant_rows", "8B x2048", "ROWS=2048 K=4096"},
	{"norm_rows_fp8", "27B x16", "ROWS=16 K=5120 NORM_ONE=1"},
	{"norm_rows_fp8", "27B x8192", "ROWS=8192 K=5120 NORM_ONE=1"},
	{"norm_rows", "8B x2048", "ROWS=2048 K=4096 NORM_ONE=0"},
	{"norm_rows", "1B x512", "ROWS=512 K=2048 NORM_ONE=0"},
	{"gemm_logits", "8B head x64", "ROWS=64 OUTS=64 K=4096 V=128256 NORM_ONE=0 N_VALID=128256"},
	{"wgmma_logits", "8B head x64", "OUTS=64 K=4096 V=128256 N_VALID=128256"},
	{"gemm_logits", "8B head x128", "ROWS=128 OUTS=128 K=4096 V=128256 NORM_ONE=0 N_VALID=128256"},
	{"wgmma_logits", "8B head x128", "OUTS=128 K=4096 V=128256 N_VALID=128256"},
	{"gemm_logits", "8B head x256", "ROWS=256 OUTS=256 K=4096 V=128256 NORM_ONE=0 N_VALID=128256"},
	{"wgmma_logits", "8B head x256", "OUTS=256 K=4096 V=128256 N_VALID=128256"},
	{"gemm_logits", "1B head x64", "ROWS=64 OUTS=64 K=2048 V=128256 NORM_ONE=0 N_VALID=128256"},
	{"attn_step", "135M 384", "ROWS=1 SLOTS=1 MAX_PAGES=6 PAGE=64 HDIM=64 NH=9 NKV=3 ROTARY=64 Q_NORM=0 K_NORM=0"},
	{"attn_step", "1B 512", "ROWS=1 SLOTS=1 MAX_PAGES=8 PAGE=64 HDIM=64 NH=32 NKV=8 ROTARY=64 Q_NORM=0 K_NORM=0"},
	{"attn_step", "1B 16k", "ROWS=1 SLOTS=1 MAX_PAGES=256 PAGE=64 HDIM=64 NH=32 NKV=8 ROTARY=64 Q_NORM=0 K_NORM=0"},
	{"attn_step", "1B 16k e4m3", "ROWS=1 SLOTS=1 MAX_PAGES=256 PAGE=64 HDIM=64 NH=32 NKV=8 ROTARY=64 Q_NORM=0 K_NORM=0 "
		"KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"attn_step", "8B 1k",
		"ROWS=1 SLOTS=1 MAX_PAGES=16 PAGES=18 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 Q_NORM=0 K_NORM=0"},
	{"attn_step", "8B 16k",
		"ROWS=1 SLOTS=1 MAX_PAGES=256 PAGES=258 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 Q_NORM=0 K_NORM=0"},
	{"attn_step", "8B 16k e4m3", "ROWS=1 SLOTS=1 MAX_PAGES=256 PAGES=258 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"Q_NORM=0 K_NORM=0 KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"attn_step", "8B 16k e2m1", "ROWS=1 SLOTS=1 MAX_PAGES=256 PAGES=258 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"Q_NORM=0 K_NORM=0 KVT=e2m1 KV_SCALE=1 KV_BLOCK=1"},
	{"attn_step", "8B 8k x4",
		"ROWS=4 SLOTS=4 MAX_PAGES=128 PAGES=514 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 Q_NORM=0 K_NORM=0"},
	{"attn_step", "8B 16k x4 e4m3", "ROWS=4 SLOTS=4 MAX_PAGES=256 PAGES=1026 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"Q_NORM=0 K_NORM=0 KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"attn_step", "8B 16k x4 e2m1", "ROWS=4 SLOTS=4 MAX_PAGES=256 PAGES=1026 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"Q_NORM=0 K_NORM=0 KVT=e2m1 KV_SCALE=1 KV_BLOCK=1"},
	{"attn_prefill", "1B 2k", "ROWS=2048 SLOTS=1 MAX_PAGES=128 PAGE=16 HDIM=64 NH=32 NKV=8"},
	{"attn_step", "8B 16k x4 e4m3 rotated", "ROWS=4 SLOTS=4 MAX_PAGES=256 PAGES=1026 PAGE=64 HDIM=128 NH=32 NKV=8 "
		"ROTARY=128 ROTATE=1 Q_NORM=0 K_NORM=0 KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"attn_step", "8B 512 e4m3", "ROWS=1 SLOTS=1 MAX_PAGES=8 PAGES=10 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"Q_NORM=0 K_NORM=0 KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"attn_step", "8B 512 e4m3 rotated", "ROWS=1 SLOTS=1 MAX_PAGES=8 PAGES=10 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"ROTATE=1 Q_NORM=0 K_NORM=0 KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"rope_write", "1B", "ROWS=1 SLOTS=1 MAX_PAGES=512 PAGE=16 HDIM=64 NH=32 NKV=8 ROTARY=64 Q_NORM=0 K_NORM=0"},
	{"rope_write", "8B 2k e4m3", "ROWS=2048 SLOTS=1 MAX_PAGES=32 PAGES=34 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"Q_NORM=0 K_NORM=0 KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"rope_write", "8B 2k e4m3 rotated", "ROWS=2048 SLOTS=1 MAX_PAGES=32 PAGES=34 PAGE=64 HDIM=128 NH=32 NKV=8 "
		"ROTARY=128 ROTATE=1 Q_NORM=0 K_NORM=0 KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"rope_write", "27B 2k e4m3 rotated", "ROWS=2048 SLOTS=1 MAX_PAGES=32 PAGES=34 PAGE=64 HDIM=256 NH=24 NKV=4 "
		"ROTARY=64 ROTATE=1 GATED=1 NORM_ONE=1 Q_NORM=1 K_NORM=1 KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"route_rows", "35B-A3B", "ROWS=1 " ROUTE_35B},
	{"route_rows", "35B-A3B x2", "ROWS=2 " ROUTE_35B},
	{"route_rows", "35B-A3B x4", "ROWS=4 " ROUTE_35B},
	{"route_rows", "35B-A3B x8", "ROWS=8 " ROUTE_35B},
	{"route_rows", "35B-A3B x16", "ROWS=16 " ROUTE_35B},
	{"route_rows", "35B-A3B x32", "ROWS=32 " ROUTE_35B},
	{"route_rows", "35B-A3B x64", "ROWS=64 " ROUTE_35B},
	{"route_rows", "35B-A3B x256", "ROWS=256 " ROUTE_35B},
	{"stream_experts_up", "fp8 35B-A3B", "ROWS=1 " UP_35B EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_down", "fp8 35B-A3B", "ROWS=1 " DOWN_35B EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_up", "nvfp4 35B-A3B", "ROWS=1 " UP_35B EXPERTS_NVFP4 SHARED_NVFP4},
	{"stream_experts_down", "nvfp4 35B-A3B", "ROWS=1 " DOWN_35B EXPERTS_NVFP4 SHARED_NVFP4},
	{"stream_experts_up_clamped", "mxfp4 oss", "ROWS=1 " OSS_UP},
	{"stream_experts_down_biased", "mxfp4 oss", "ROWS=1 " OSS_DOWN},
	{"stream_experts_up_clamped", "mxfp4 oss x32", "ROWS=32 " OSS_UP},
	{"stream_experts_down_biased", "mxfp4 oss x32", "ROWS=32 " OSS_DOWN},
	{"stream_experts_up", "nvfp4 m2", "ROWS=1 " M2_UP(64)},
	{"stream_experts_down", "nvfp4 m2", "ROWS=1 " M2_DOWN(64)},
	{"stream_experts_up", "nvfp4 m2 x32", "ROWS=32 " M2_UP(256)},
	{"stream_experts_down", "nvfp4 m2 x32", "ROWS=32 " M2_DOWN(256)},
	{"stream_experts_up", "fp8 30B-A3B", "ROWS=1 " UP_30B EXPERTS_FP8 NO_SHARED},
	{"stream_experts_down", "fp8 30B-A3B", "ROWS=1 " DOWN_30B EXPERTS_FP8 NO_SHARED},
	{"stream_experts_up", "bf16 30B-A3B", "ROWS=1 " UP_30B EXPERTS_BF16 NO_SHARED},
	{"stream_experts_down", "bf16 30B-A3B", "ROWS=1 " DOWN_30B EXPERTS_BF16 NO_SHARED},
	{"stream_experts_up", "fp8 35B-A3B x4", "ROWS=4 " UP_35B EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_down", "fp8 35B-A3B x4", "ROWS=4 " DOWN_35B EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_up", "fp8 30B-A3B x8", "ROWS=8 " UP_30B EXPERTS_FP8 NO_SHARED},
	{"stream_experts_down", "fp8 30B-A3B x8", "ROWS=8 " DOWN_30B EXPERTS_FP8 NO_SHARED},
	{"stream_experts_up", "fp8 35B x8 of 256", "ROWS=8 " UP_256 EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_up", "fp8 35B x16 of 256", "ROWS=16 " UP_256 EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_up", "fp8 35B x32 of 256", "ROWS=32 " UP_256 EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_up", "fp8 35B x64 of 256", "ROWS=64 " UP_256 EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_up", "fp8 35B x128 of 256", "ROWS=128 " UP_256 EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_down", "fp8 35B x8 of 256", "ROWS=8 " DOWN_256 EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_down", "fp8 35B x16 of 256", "ROWS=16 " DOWN_256 EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_down", "fp8 35B x32 of 256", "ROWS=32 " DOWN_256 EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_down", "fp8 35B x64 of 256", "ROWS=64 " DOWN_256 EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_down", "fp8 35B x128 of 256", "ROWS=128 " DOWN_256 EXPERTS_FP8 SHARED_FP8},
	{"queue_experts_up", "fp8 35B x16 of 256", "ROWS=16 " UP_256 EXPERTS_FP8 QUEUE_FP8},
	{"queue_experts_up", "fp8 35B x32 of 256", "ROWS=32 " UP_256 EXPERTS_FP8 QUEUE_FP8},
	{"queue_experts_up", "fp8 35B x64 of 256", "ROWS=64 " UP_256 EXPERTS_FP8 QUEUE_FP8},
	{"queue_experts_up", "fp8 35B x128 of 256", "ROWS=128 " UP_256 EXPERTS_FP8 QUEUE_FP8},
	{"queue_experts_up", "fp8 35B x256 of 256", "ROWS=256 " UP_256 EXPERTS_FP8 QUEUE_FP8},
	{"queue_experts_down", "fp8 35B x16 of 256", "ROWS=16 " DOWN_256 EXPERTS_FP8 QUEUE_FP8},
	{"queue_experts_down", "fp8 35B x32 of 256", "ROWS=32 " DOWN_256 EXPERTS_FP8 QUEUE_FP8},
	{"queue_experts_down", "fp8 35B x64 of 256", "ROWS=64 " DOWN_256 EXPERTS_FP8 QUEUE_FP8},
	{"queue_experts_down", "fp8 35B x128 of 256", "ROWS=128 " DOWN_256 EXPERTS_FP8 QUEUE_FP8},
	{"queue_experts_down", "fp8 35B x256 of 256", "ROWS=256 " DOWN_256 EXPERTS_FP8 QUEUE_FP8},
	{"queue_experts_up", "bf16 30B-A3B x32", "ROWS=32 " UP_30B EXPERTS_BF16 NO_SHARED},
	{"queue_experts_up", "nvfp4 35B x32 of 256", "ROWS=32 " UP_256 EXPERTS_NVFP4 QUEUE_NVFP4},
	{"queue_experts_up", "bf16 30B-A3B x128", "ROWS=128 " UP_30B EXPERTS_BF16 NO_SHARED},
	{"queue_experts_up", "nvfp4 35B x128 of 256", "ROWS=128 " UP_256 EXPERTS_NVFP4 QUEUE_NVFP4},
	{"gemm_experts_up", "bf16 30B-A3B x128", "ROWS=128 " UP_30B EXPERTS_BF16 NO_SHARED},
	{"gemm_experts_up", "nvfp4 35B x128 of 256", "ROWS=128 " UP_256 EXPERTS_NVFP4 SHARED_NVFP4},
	{"queue_experts_down", "bf16 30B-A3B x32", "ROWS=32 " DOWN_30B EXPERTS_BF16 NO_SHARED},
	{"queue_experts_down", "nvfp4 35B x32 of 256", "ROWS=32 " DOWN_256 EXPERTS_NVFP4 QUEUE_NVFP4},
	{"queue_experts_down", "bf16 30B-A3B x128", "ROWS=128 " DOWN_30B EXPERTS_BF16 NO_SHARED},
	{"queue_experts_down", "nvfp4 35B x128 of 256", "ROWS=128 " DOWN_256 EXPERTS_NVFP4 QUEUE_NVFP4},
	{"gemm_experts_down", "bf16 30B-A3B x128", "ROWS=128 " DOWN_30B EXPERTS_BF16 NO_SHARED},
	{"gemm_experts_down", "nvfp4 35B x128 of 256", "ROWS=128 " DOWN_256 EXPERTS_NVFP4 SHARED_NVFP4},
	{"gemm_experts_up", "fp8 35B x16 of 256", "ROWS=16 " UP_256 EXPERTS_FP8 SHARED_FP8},
	{"gemm_experts_up", "fp8 35B x32 of 256", "ROWS=32 " UP_256 EXPERTS_FP8 SHARED_FP8},
	{"gemm_experts_up", "fp8 35B x64 of 256", "ROWS=64 " UP_256 EXPERTS_FP8 SHARED_FP8},
	{"gemm_experts_up", "fp8 35B x128 of 256", "ROWS=128 " UP_256 EXPERTS_FP8 SHARED_FP8},
	{"gemm_experts_down", "fp8 35B x16 of 256", "ROWS=16 " DOWN_256 EXPERTS_FP8 SHARED_FP8},
	{"gemm_experts_down", "fp8 35B x32 of 256", "ROWS=32 " DOWN_256 EXPERTS_FP8 SHARED_FP8},
	{"gemm_experts_down", "fp8 35B x64 of 256", "ROWS=64 " DOWN_256 EXPERTS_FP8 SHARED_FP8},
	{"gemm_experts_down", "fp8 35B x128 of 256", "ROWS=128 " DOWN_256 EXPERTS_FP8 SHARED_FP8},
	{"stream_experts_up", "bf16 30B-A3B x32", "ROWS=32 " UP_30B EXPERTS_BF16 NO_SHARED},
	{"stream_experts_up", "fp8 30B-A3B x32", "ROWS=32 " UP_30B EXPERTS_FP8 NO_SHARED},
	{"stream_experts_up", "nvfp4 35B x32 of 256", "ROWS=32 " UP_256 EXPERTS_NVFP4 SHARED_NVFP4},
	{"stream_experts_down", "bf16 30B-A3B x32", "ROWS=32 " DOWN_30B EXPERTS_BF16 NO_SHARED},
	{"stream_experts_down", "fp8 30B-A3B x32", "ROWS=32 " DOWN_30B EXPERTS_FP8 NO_SHARED},
	{"stream_experts_down", "nvfp4 35B x32 of 256", "ROWS=32 " DOWN_256 EXPERTS_NVFP4 SHARED_NVFP4},
	{"gemm_experts_up", "bf16 30B-A3B x32", "ROWS=32 " UP_30B EXPERTS_BF16 NO_SHARED},
	{"gemm_experts_up", "nvfp4 35B x32 of 256", "ROWS=32 " UP_256 EXPERTS_NVFP4 SHARED_NVFP4},
	{"gemm_experts_down", "bf16 30B-A3B x32", "ROWS=32 " DOWN_30B EXPERTS_BF16 NO_SHARED},
	{"gemm_experts_down", "nvfp4 35B x32 of 256", "ROWS=32 " DOWN_256 EXPERTS_NVFP4 SHARED_NVFP4},
	{"route_tiles", "35B-A3B x16", "ROWS=16 " ROUTE_35B},
	{"route_tiles", "35B-A3B x32", "ROWS=32 " ROUTE_35B},
	{"route_tiles", "35B-A3B x64", "ROWS=64 " ROUTE_35B},
	{"route_tiles", "35B-A3B x256", "ROWS=256 " ROUTE_35B},
	{"route_tiles", "35B-A3B x2048", "ROWS=2048 " ROUTE_35B},
	{"group_rows", "35B-A3B x32", "ROWS=32 FIRSTS=257 TOPK=8"},
	{"group_rows", "35B-A3B x2048", "ROWS=2048 FIRSTS=257 TOPK=8"},
	{"gemm_experts_up", "fp8 30B-A3B x32", "ROWS=32 " UP_30B EXPERTS_FP8 NO_SHARED},
	{"gemm_experts_down", "fp8 30B-A3B x32", "ROWS=32 " DOWN_30B EXPERTS_FP8 NO_SHARED},
	{"gemm_experts_up", "fp8 30B-A3B x2048", "ROWS=2048 " UP_30B EXPERTS_FP8 NO_SHARED},
	{"gemm_experts_down", "fp8 30B-A3B x2048", "ROWS=2048 " DOWN_30B EXPERTS_FP8 NO_SHARED},
	{"gemm_experts_up", "bf16 30B-A3B x2048", "ROWS=2048 " UP_30B EXPERTS_BF16 NO_SHARED},
	{"gemm_experts_down", "bf16 30B-A3B x2048", "ROWS=2048 " DOWN_30B EXPERTS_BF16 NO_SHARED},
	{"gemm_experts_up", "nvfp4 35B-A3B x2048", "ROWS=2048 " UP_35B EXPERTS_NVFP4 SHARED_NVFP4},
	{"gemm_experts_down", "nvfp4 35B-A3B x2048", "ROWS=2048 " DOWN_35B EXPERTS_NVFP4 SHARED_NVFP4},
	{"gather_codes", "35B-A3B x2048", "ROWS=2048 K=2048 TOPK=8 PAIRS=18432"},
	{"wgmma_experts_up", "fp8 30B-A3B x2048", "ROWS=2048 SHARES=8 " UP_30B EXPERTS_FP8},
	{"wgmma_experts_down", "fp8 30B-A3B x2048", "ROWS=2048 SHARES=8 " DOWN_30B EXPERTS_FP8},
	{"wgmma_experts_up_shared", "fp8 35B-A3B x2048", "ROWS=2048 SHARES=9 " UP_35B EXPERTS_FP8 SHARED_FP8},
	{"wgmma_experts_down_shared", "fp8 35B-A3B x2048", "ROWS=2048 SHARES=9 " DOWN_35B EXPERTS_FP8 SHARED_FP8},
	{"wgmma_experts_up_shared", "fp8 35B-A3B x8192", "ROWS=8192 SHARES=9 " UP_35B EXPERTS_FP8 SHARED_FP8},
	{"wgmma_experts_down_shared", "fp8 35B-A3B x8192", "ROWS=8192 SHARES=9 " DOWN_35B EXPERTS_FP8 SHARED_FP8},
	{"sum_experts", "35B-A3B x2048", "ROWS=2048 SHARES=9 K=2048"},
	{"embed_next", "1B", "ROWS=1 SLOTS=1 V=128256 H=2048"},
	{"sample", "128k greedy", "ROWS=1 OUTS=1 SLOTS=1 V=128256 PARTS=8016 N_VALID=128256 STOPS=2"},
	{"sample", "128k drawn x256", "ROWS=256 OUTS=256 SLOTS=256 V=128256 PARTS=1002 N_VALID=128256 STOPS=2"},
	{"sample", "128k drawn x1", "ROWS=1 OUTS=1 SLOTS=1 V=128256 PARTS=8016 N_VALID=128256 STOPS=2"},
	{"sample", "248k drawn x64", "ROWS=64 OUTS=64 SLOTS=64 V=248320 PARTS=7760 N_VALID=248320 STOPS=2"},
	{"sample", "128k top_k 50", "ROWS=1 OUTS=1 SLOTS=1 V=128256 PARTS=8016 N_VALID=128256 STOPS=2"},
	{"sample", "128k top_p", "ROWS=1 OUTS=1 SLOTS=1 V=128256 PARTS=8016 N_VALID=128256 STOPS=2"},
	{"sample", "128k greedy biased", "ROWS=1 OUTS=1 SLOTS=1 V=128256 PARTS=8016 N_VALID=128256 STOPS=2"},
	{"sample", "128k top_p biased", "ROWS=1 OUTS=1 SLOTS=1 V=128256 PARTS=8016 N_VALID=128256 STOPS=2"},
	{"sample", "128k greedy masked", "ROWS=1 OUTS=1 SLOTS=1 V=128256 PARTS=8016 N_VALID=128256 STOPS=2"},
	{"sample", "128k drawn masked", "ROWS=1 OUTS=1 SLOTS=1 V=128256 PARTS=8016 N_VALID=128256 STOPS=2"},
	{"sample", "128k top_p masked", "ROWS=1 OUTS=1 SLOTS=1 V=128256 PARTS=8016 N_VALID=128256 STOPS=2"},
	{"sample", "128k drawn x32", "ROWS=32 OUTS=32 SLOTS=32 V=128256 PARTS=1002 N_VALID=128256 STOPS=2"},
	{"sample", "128k drawn masked x32", "ROWS=32 OUTS=32 SLOTS=32 V=128256 PARTS=1002 N_VALID=128256 STOPS=2"},
	{"attn_prefill", "8B 2k", "ROWS=2048 SLOTS=1 MAX_PAGES=32 PAGES=34 PAGE=64 HDIM=128 NH=32 NKV=8"},
	{"attn_prefill", "8B 8k", "ROWS=8192 SLOTS=1 MAX_PAGES=128 PAGES=130 PAGE=64 HDIM=128 NH=32 NKV=8"},
	{"attn_prefill", "8B 64 of 8k", "ROWS=64 SLOTS=1 MAX_PAGES=128 PAGES=130 PAGE=64 HDIM=128 NH=32 NKV=8"},
	{"attn_prefill", "8B 2k e4m3", "ROWS=2048 SLOTS=1 MAX_PAGES=32 PAGES=34 PAGE=64 HDIM=128 NH=32 NKV=8 "
		"KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"attn_wgmma_codes", "8B 2k e4m3", "ROWS=2048 SLOTS=1 MAX_PAGES=32 PAGES=34 PAGE=64 HDIM=128 NH=32 NKV=8 "
		"KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"attn_wgmma_codes", "8B 8k e4m3", "ROWS=8192 SLOTS=1 MAX_PAGES=128 PAGES=130 PAGE=64 HDIM=128 NH=32 NKV=8 "
		"KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"attn_wgmma_codes", "8B 8k e2m1", "ROWS=8192 SLOTS=1 MAX_PAGES=128 PAGES=130 PAGE=64 HDIM=128 NH=32 NKV=8 "
		"KVT=e2m1 KV_SCALE=1 KV_BLOCK=1"},
	{"attn_wgmma", "8B 128 of 4k", "ROWS=128 SLOTS=1 MAX_PAGES=64 PAGES=66 PAGE=64 HDIM=128 NH=32 NKV=8"},
	{"attn_wgmma", "8B 64 of 8k", "ROWS=64 SLOTS=1 MAX_PAGES=128 PAGES=130 PAGE=64 HDIM=128 NH=32 NKV=8"},
	{"attn_wgmma", "1B 2k", "ROWS=2048 SLOTS=1 MAX_PAGES=32 PAGES=34 PAGE=64 HDIM=64 NH=32 NKV=8"},
	{"attn_wgmma", "1B 8k", "ROWS=8192 SLOTS=1 MAX_PAGES=128 PAGES=130 PAGE=64 HDIM=64 NH=32 NKV=8"},
	{"attn_wgmma", "8B 512", "ROWS=512 SLOTS=1 MAX_PAGES=8 PAGES=10 PAGE=64 HDIM=128 NH=32 NKV=8"},
	{"attn_wgmma", "8B 2k", "ROWS=2048 SLOTS=1 MAX_PAGES=32 PAGES=34 PAGE=64 HDIM=128 NH=32 NKV=8"},
	{"attn_wgmma", "8B 2k of 8k", "ROWS=2048 SLOTS=1 MAX_PAGES=128 PAGES=130 PAGE=64 HDIM=128 NH=32 NKV=8"},
	{"attn_wgmma", "8B 8k", "ROWS=8192 SLOTS=1 MAX_PAGES=128 PAGES=130 PAGE=64 HDIM=128 NH=32 NKV=8"},
	{"attn_wgmma", "8B 2k of 32k", "ROWS=2048 SLOTS=1 MAX_PAGES=512 PAGES=514 PAGE=64 HDIM=128 NH=32 NKV=8"},
	{"attn_wgmma", "8B 2k of 32k, window of 1k",
		"ROWS=2048 SLOTS=1 MAX_PAGES=512 PAGES=514 PAGE=64 HDIM=128 NH=32 NKV=8 WINDOW=1024"},
	{"attn_step", "8B 32k", "ROWS=1 SLOTS=1 MAX_PAGES=512 PAGES=514 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 Q_NORM=0 "
		"K_NORM=0"},
	{"attn_step", "8B 32k, window of 1k", "ROWS=1 SLOTS=1 MAX_PAGES=512 PAGES=514 PAGE=64 HDIM=128 NH=32 NKV=8 "
		"ROTARY=128 Q_NORM=0 K_NORM=0 WINDOW=1024"},
	{"attn_verify", "8B 32k x3, window of 1k", "ROWS=3 EACH=3 SLOTS=1 MAX_PAGES=512 PAGES=514 PAGE=64 HDIM=128 NH=32 "
		"NKV=8 ROTARY=128 Q_NORM=0 K_NORM=0 WINDOW=1024"},
	{"attn_wgmma", "8B 8k page 16", "ROWS=8192 SLOTS=1 MAX_PAGES=512 PAGES=514 PAGE=16 HDIM=128 NH=32 NKV=8"},
	{"attn_wgmma", "head of 96, 8k", "ROWS=8192 SLOTS=1 MAX_PAGES=128 PAGES=130 PAGE=64 HDIM=96 NH=32 NKV=32"},
	{"attn_step", "27B 4k", "ROWS=1 SLOTS=1 MAX_PAGES=64 PAGES=66 PAGE=64 HDIM=256 NH=24 NKV=4 ROTARY=64 GATED=1 "
		"NORM_ONE=1 Q_NORM=1 K_NORM=1"},
	{"attn_verify", "27B 4k x3", "ROWS=3 EACH=3 SLOTS=1 MAX_PAGES=64 PAGES=66 PAGE=64 HDIM=256 NH=24 NKV=4 ROTARY=64 "
		"GATED=1 NORM_ONE=1 Q_NORM=1 K_NORM=1"},
	{"attn_verify", "35B 4k x2", "ROWS=2 EACH=2 SLOTS=1 MAX_PAGES=64 PAGES=66 PAGE=64 HDIM=256 NH=16 NKV=2 ROTARY=64 "
		"GATED=1 NORM_ONE=1 Q_NORM=1 K_NORM=1"},
	{"attn_step", "27B 4k e4m3", "ROWS=1 SLOTS=1 MAX_PAGES=64 PAGES=66 PAGE=64 HDIM=256 NH=24 NKV=4 ROTARY=64 GATED=1 "
		"NORM_ONE=1 Q_NORM=1 K_NORM=1 KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"attn_step", "27B 4k e4m3 rotated", "ROWS=1 SLOTS=1 MAX_PAGES=64 PAGES=66 PAGE=64 HDIM=256 NH=24 NKV=4 ROTARY=64 "
		"ROTATE=1 GATED=1 NORM_ONE=1 Q_NORM=1 K_NORM=1 KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"attn_verify", "35B 4k x4", "ROWS=4 EACH=4 SLOTS=1 MAX_PAGES=64 PAGES=66 PAGE=64 HDIM=256 NH=16 NKV=2 ROTARY=64 "
		"GATED=1 NORM_ONE=1 Q_NORM=1 K_NORM=1"},
	{"attn_step", "8B 512", "ROWS=1 SLOTS=1 MAX_PAGES=8 PAGES=10 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"Q_NORM=0 K_NORM=0"},
	{"attn_step", "8B 4k", "ROWS=1 SLOTS=1 MAX_PAGES=64 PAGES=66 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"Q_NORM=0 K_NORM=0"},
	{"attn_step", "8B 512 x8", "ROWS=8 SLOTS=8 MAX_PAGES=8 PAGES=66 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"Q_NORM=0 K_NORM=0"},
	{"attn_step", "8B 4k x8", "ROWS=8 SLOTS=8 MAX_PAGES=64 PAGES=514 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"Q_NORM=0 K_NORM=0"},
	{"attn_step", "8B 512 x32", "ROWS=32 SLOTS=32 MAX_PAGES=8 PAGES=258 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"Q_NORM=0 K_NORM=0"},
	{"attn_step", "8B 4k x32", "ROWS=32 SLOTS=32 MAX_PAGES=64 PAGES=2050 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"Q_NORM=0 K_NORM=0"},
	{"attn_step", "8B 4k x32 e4m3", "ROWS=32 SLOTS=32 MAX_PAGES=64 PAGES=2050 PAGE=64 HDIM=128 NH=32 NKV=8 ROTARY=128 "
		"Q_NORM=0 K_NORM=0 KVT=e4m3 KV_SCALE=1 KV_BLOCK=0"},
	{"attn_step", "35B 4k x32", "ROWS=32 SLOTS=32 MAX_PAGES=64 PAGES=2050 PAGE=64 HDIM=256 NH=16 NKV=2 ROTARY=64 "
		"GATED=1 NORM_ONE=1 Q_NORM=1 K_NORM=1"},
	{"attn_verify", "35B 4k 32 of x3", "ROWS=96 EACH=3 SLOTS=32 MAX_PAGES=64 PAGES=2050 PAGE=64 HDIM=256 NH=16 NKV=2 "
		"ROTARY=64 GATED=1 NORM_ONE=1 Q_NORM=1 K_NORM=1"},
	{"attn_step", "35B 4k", "ROWS=1 SLOTS=1 MAX_PAGES=64 PAGES=66 PAGE=64 HDIM=256 NH=16 NKV=2 ROTARY=64 GATED=1 "
		"NORM_ONE=1 Q_NORM=1 K_NORM=1"},
	{"stream_logits", "35B head", "ROWS=1 OUTS=1 K=2048 V=248320 NORM_ONE=1 N_VALID=248320"},
	{"stream_logits", "fp8 35B head", "ROWS=1 OUTS=1 K=2048 V=248320 NORM_ONE=1 N_VALID=248320 " FP8},
	{"stream_logits", "35B head 32k", "ROWS=1 OUTS=1 K=2048 V=32768 NORM_ONE=1 N_VALID=32768"},
	{"stream_logits", "fp8 35B head 32k", "ROWS=1 OUTS=1 K=2048 V=32768 NORM_ONE=1 N_VALID=32768 " FP8},
	{"draw_draft", "35B greedy", "ROWS=1 SLOTS=1 DRAFTS=2 V=248320 VOCAB=248320 PARTS=15520 N_VALID=248320 AHEAD=2 "
		"IDS=0"},
	{"draw_draft", "35B 32k greedy", "ROWS=1 SLOTS=1 DRAFTS=2 V=32768 VOCAB=248320 PARTS=2048 N_VALID=32768 AHEAD=2 "
		"IDS=1"},
	{"delta_verify", "35B x2", "ROWS=2 SLOTS=1 DRAFTS=1 EACH=2 NK=16 NV=32" DELTA},
	{"delta_verify", "35B x4", "ROWS=4 SLOTS=1 DRAFTS=3 EACH=4 NK=16 NV=32" DELTA},
	{"delta_verify", "35B 8 of x3", "ROWS=24 SLOTS=8 DRAFTS=2 EACH=3 NK=16 NV=32" DELTA},
	{"delta_verify", "27B x3", "ROWS=3 SLOTS=1 DRAFTS=2 EACH=3 NK=16 NV=48" DELTA},
	{"delta_verify", "27B x3 bf16", "ROWS=3 SLOTS=1 DRAFTS=2 EACH=3 NK=16 NV=48 ST=bf16" DELTA},
	{"delta_step", "35B", "ROWS=1 SLOTS=1 NK=16 NV=32" DELTA},
	{"delta_step", "35B bf16", "ROWS=1 SLOTS=1 NK=16 NV=32 ST=bf16" DELTA},
	{"delta_step", "35B x8 bf16", "ROWS=8 SLOTS=8 NK=16 NV=32 ST=bf16" DELTA},
	{"delta_step", "35B x8", "ROWS=8 SLOTS=8 NK=16 NV=32" DELTA},
	{"delta_step", "27B", "ROWS=1 SLOTS=1 NK=16 NV=48" DELTA},
	{"delta_step", "27B x16", "ROWS=16 SLOTS=16 NK=16 NV=48" DELTA},
	{"delta_step", "27B x32", "ROWS=32 SLOTS=32 NK=16 NV=48" DELTA},
	{"delta_step", "27B x64", "ROWS=64 SLOTS=64 NK=16 NV=48" DELTA},
	{"delta_step", "27B x32 bf16", "ROWS=32 SLOTS=32 NK=16 NV=48 ST=bf16" DELTA},
	{"delta_rows", "27B x8", "ROWS=8 SLOTS=1 NK=16 NV=48" DELTA},
	{"delta_chunks_team", "27B 64", "ROWS=64 SLOTS=1 NK=16 NV=48" DELTA},
	{"delta_chunks_team", "27B 2k", "ROWS=2048 SLOTS=1 NK=16 NV=48" DELTA},
	{"delta_chunks_team", "35B 2k", "ROWS=2048 SLOTS=1 NK=16 NV=32" DELTA},
	{"delta_solve", "27B 2k", "ROWS=2048 SEGS=1 NK=16 NV=48" DELTA},
	{"delta_solve", "35B 2k", "ROWS=2048 SEGS=1 NK=16 NV=32" DELTA},
	{"delta_walk", "27B 64", "ROWS=64 SLOTS=1 NK=16 NV=48" DELTA},
	{"delta_walk", "27B 2k", "ROWS=2048 SLOTS=1 NK=16 NV=48" DELTA},
	{"delta_walk", "35B 2k", "ROWS=2048 SLOTS=1 NK=16 NV=32" DELTA},
	{"delta_chunks", "27B 64", "ROWS=64 SLOTS=1 NK=16 NV=48" DELTA},
	{"delta_chunks", "27B 2k", "ROWS=2048 SLOTS=1 NK=16 NV=48" DELTA},
	{"delta_chunks", "27B 2k bf16", "ROWS=2048 SLOTS=1 NK=16 NV=48 ST=bf16" DELTA},
	{"delta_chunks", "35B 2k", "ROWS=2048 SLOTS=1 NK=16 NV=32" DELTA},
	{"conv_rows", "27B 2k", "ROWS=2048 SLOTS=1 COLS=16384 C=10240 TAPS=3"},
	{"conv_rows", "27B 8k", "ROWS=8192 SLOTS=1 COLS=16384 C=10240 TAPS=3"},
	{"gate_rows", "27B 2k", "ROWS=2048 N=6144 COLS=14336"},
	{"attn_wgmma", "head of 256, 8k", "ROWS=8192 SLOTS=1 MAX_PAGES=128 PAGES=130 PAGE=64 HDIM=256 NH=16 NKV=8"},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static const char bound_source[] =
	"extern \"C\" __global__ void __launch_bounds__(512) read_all(const uint4 *p, unsigned *out, long long n) {\n"
	"  long long stride = (long long)gridDim.x * 512, i = blockIdx.x * 512ll + threadIdx.x;\n"
	"  unsigned s = 0;\n"
	"  for (; i + 7 * stride < n; i += 8 * stride) {\n"
	"    uint4 v[8];\n"
	"#pragma unroll\n"
	"    for (int j = 0; j < 8; j++)\n"
	"      asm volatile(\"ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];\"\n"
	"        : \"=r\"(v[j].x), \"=r\"(v[j].y), \"=r\"(v[j].z), \"=r\"(v[j].w) : \"l\"(p + i + j * stride));\n"
	"#pragma unroll\n"
	"    for (int j = 0; j < 8; j++) s ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;\n"
	"  }\n"
	"  if (s == 0x12345678) out[0] = s;\n"
	"}\n"
	"extern \"C\" __global__ void __launch_bounds__(256) mma_all(const uint4 *p, unsigned *out, long long n) {\n"
	"  float c[8][4] = {};\n"
	"  uint4 a = p[threadIdx.x], b = p[256 + threadIdx.x];\n"
	"  for (long long i = 0; i < n; i++)\n"
	"#pragma unroll\n"
	"    for (int j = 0; j < 8; j++)\n"
	"      asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, \"\n"
	"        \"{%8,%9}, {%0,%1,%2,%3};\" : \"+f\"(c[j][0]), \"+f\"(c[j][1]), \"+f\"(c[j][2]), \"+f\"(c[j][3])\n"
	"        : \"r\"(a.x), \"r\"(a.y), \"r\"(a.z), \"r\"(a.w), \"r\"(b.x), \"r\"(b.y));\n"
	"  float s = 0;\n"
	"  for (int j = 0; j < 8; j++) s += c[j][0] + c[j][1] + c[j][2] + c[j][3];\n"
	"  if (s == 1.25f) out[0] = 1;\n"
	"}\n";

typedef struct Bounds { double read_gbps, mma_tflops; } Bounds;

static bool compile_bounds(const Settings *s, Cubin *out)
{
	char arch[64];
	snprintf(arch, sizeof arch, "--gpu-architecture=%s", s->target->name);
	const char *options[] = {arch};
	char why[256];
	nvrtcProgram program = NULL;
	bool ok = nvrtc_ready(why, sizeof why) &&
		nvrtcCreateProgram(&program, bound_source, "bounds.cu", 0, NULL, NULL) == NVRTC_SUCCESS &&
		nvrtcCompileProgram(program, 1, options) == NVRTC_SUCCESS &&
		nvrtcGetCUBINSize(program, &out->n) == NVRTC_SUCCESS && (out->bytes = malloc(out->n)) &&
		nvrtcGetCUBIN(program, (char *)out->bytes) == NVRTC_SUCCESS;
	nvrtcDestroyProgram(&program);
	return ok;
}

typedef struct BoundArgs { CuPtr p, out; long long n; } BoundArgs;

static double time_bound(Gpu *g, const Cubin *cubin, const char *entry, int block, BoundArgs args)
{
	GpuKernel k;
	double seconds = -1;
	if (gpu_load(g, cubin, entry, 0, &k)) {
		void *params[3] = {&args.p, &args.out, &args.n};
		double best = 1e9;
		for (int i = 0; i < 5; i++) { /* one launch of some milliseconds each */
			struct timespec t0, t1;
			clock_gettime(CLOCK_MONOTONIC, &t0);
			unsigned grid = (unsigned)g->target->n_sms * 4;
			CuResult r = g->driver.LaunchKernel(k.kernel, grid, 1, 1, (unsigned)block, 1, 1, 0, g->stream,
				params, NULL);
			if (!gpu_ok(g, r, entry) ||
				!gpu_ok(g, g->driver.StreamSynchronize(g->stream), entry))
				return -1;
			clock_gettime(CLOCK_MONOTONIC, &t1);
			double t = (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec);
			best = t < best ? t : best;
		}
		seconds = best;
	}
	gpu_unload(g, &k);
	return seconds;
}

static bool measure_bounds(const Settings *s, Gpu *g, Bounds *b)
{
	Cubin cubin = {0};
	if (!compile_bounds(s, &cubin))
		return false;
	int64_t bytes = g->memory_bytes - 4096, rounds = 20000;
	double read = time_bound(g, &cubin, "read_all", 512, (BoundArgs){g->memory, g->memory + (CuPtr)bytes, bytes / 16});
	double mma = time_bound(g, &cubin, "mma_all", 256, (BoundArgs){g->memory, g->memory + (CuPtr)bytes, rounds});
	free(cubin.bytes);
	if (read <= 0 || mma <= 0)
		return false;
	b->read_gbps = (double)bytes / read * 1e-9;
	b->mma_tflops = (double)g->target->n_sms * 4 * 8 /* warps */ * 8 * 4096.0 * (double)rounds / mma * 1e-12;
	printf("bounds of this run: reads %.0f GB/s, mma.sync %.0f TFLOP/s\n", b->read_gbps, b->mma_tflops);
	return true;
}

/* Trials ------------------------------------------------------------------------------------------ */

typedef struct BenchTrial { int shape; char fixed[384]; Case c; Cubin cubin; double seconds; } BenchTrial;
typedef struct Bench {
	const Settings *settings;
	BenchTrial *trials;
	int n;
	atomic_int next;
} Bench;

static const KernelTemplate *template_named(const char *name)
{
	for (int i = 0; i < n_kernel_table; i++)
		if (strcmp(kernel_table[i].name, name) == 0)
			return &kernel_table[i];
	return NULL;
}

/* --only: a piece of "TEMPLATE LABEL". */
static bool is_wanted(const Settings *s, int shape)
{
	char name[64];
	snprintf(name, sizeof name, "%s %s", shapes[shape].tmpl, shapes[shape].label);
	return !s->only || strstr(name, s->only);
}

/* Every combination of tunables that the predicates admit and --fix leaves. */
static void list_trials(Bench *b, int shape)
{
	const KernelTemplate *t = template_named(shapes[shape].tmpl);
	CaseLimits limits = {INT64_MAX, INT64_MAX, b->settings->target, .draws = 500}; /* little is left to draw */
	int combinations = 1;
	for (int i = 0; t && i < t->n_tunables; i++)
		combinations *= t->tunables[i].n_values;
	for (int k = 0; t && template_serves(t, b->settings->target) && k < combinations && b->n < MAX_TRIALS; k++) {
		BenchTrial *trial = &b->trials[b->n];
		int rest = k, n = snprintf(trial->fixed, sizeof trial->fixed, "%s", shapes[shape].fixed);
		bool is_left = true;
		for (int i = 0; i < t->n_tunables; i++) {
			const ContractTunable *tune = &t->tunables[i];
			int value = tune->values[rest % tune->n_values];
			int64_t only;
			n += snprintf(trial->fixed + n, sizeof trial->fixed - (size_t)n, " %s=%d", tune->name, value);
			rest /= tune->n_values;
			is_left &= !fixed_value(b->settings->fixed, tune->name, &only) || only == value;
		}
		trial->shape = shape;
		limits.fixed = trial->fixed;
		if (is_left && case_choose(&trial->c, t, 1, &limits))
			b->n++;
	}
}

static void *compile_trials(void *arg)
{
	Bench *b = arg;
	for (int i; (i = atomic_fetch_add(&b->next, 1)) < b->n;) {
		BenchTrial *t = &b->trials[i];
		KernelSource source = {t->c.tmpl, t->c.defines, b->settings->target->name};
		char *log = NULL;
		if (!test_compile(b->settings, &source, &t->cubin, &log))
			fprintf(stderr, "%s: %s\n", t->c.tmpl->name, log);
		free(log);
	}
	return NULL;
}

/* A full step: decode rows at the end of their context, or rows of one slot, a segment that fills it up. */
static void seat(Case *c)
{
	int64_t rows = case_value(c, "ROWS", 1), outs = case_value(c, "OUTS", 0);
	int64_t slots = case_value(c, "SLOTS", case_value(c, "SEGS", 0));
	int64_t capacity = case_value(c, "MAX_PAGES", 1) * case_value(c, "PAGE", 1);
	int64_t each = case_each(c) ? case_each(c) : 1; /* of a slot */
	bool has_seg = case_field(c, "seg") >= 0, prefill = has_seg || (slots > 0 && rows > slots * each);
	c->step = (Rows){.rows = (int)rows, .outs = (int)outs, .segs = has_seg};
	c->step.slot = case_alloc(c, rows * 4);
	c->step.pos = case_alloc(c, rows * 4);
	c->step.out_row = case_alloc(c, outs * 4);
	c->step.seg = case_alloc(c, slots * 16);
	for (int32_t t = 0; t < rows; t++) {
		c->step.slot[t] = (int32_t)(prefill ? 0 : t / each);
		c->step.pos[t] = (int32_t)(prefill ? capacity - rows + t : capacity - each + t % each);
	}
	for (int32_t o = 0; o < outs; o++)
		c->step.out_row[o] = o;
	if (has_seg)
		memcpy(c->step.seg, (int32_t[4]){0, (int32_t)rows, 0, c->step.pos[0]}, 16);
}

/* How rows of shapes sample: greedily, at temperature 1, or with penalties, temperature, top_p and perhaps top_k. */
static void set_sampling(CaseBuffer *b, const char *name, const char *label)
{
	bool greedy = strstr(label, "greedy"), top_k = strstr(label, "top_k"), drawn = strstr(label, "drawn");
	if (strcmp(name, "sampling") == 0)
		for (int64_t i = 0; i < b->n; i += 8)
			memcpy((float *)b->before + i, greedy || drawn ? (float[8]){drawn, 1, 0, 1}
				: (float[8]){0.8f, 0.95f, 0.01f, 1.1f, 0.1f, 0.1f}, 32);
	if (strcmp(name, "slot_token") == 0) /* in trials some have ended */
		for (int64_t i = 0; i < b->n; i++)
			((int32_t *)b->before)[i] = 1;
	if (strcmp(name, "counts") == 0) /* a text has few different tokens */
		for (int64_t i = 0; i < b->n; i++)
			((int32_t *)b->before)[i] = i % 257 == 0;
	if (strcmp(name, "masks") == 0) /* a quarter of the tokens */
		memset(b->before, 0x11, (size_t)b->bytes);
	if (strcmp(name, "limits") == 0)
		for (int64_t i = 0; i < b->n; i += 8)
			memcpy((int32_t *)b->before + i,
				(int32_t[8]){top_k ? 50 : 0, 1, 2, 1000, 0, 0, 0, (strstr(label, "biased") ? 300 : 0) |
					(strstr(label, "masked") ? 1 << 17 : 0)}, 32);
}

/* Contents of a small operand: legal, as in a trial. */
static bool upload(Gpu *g, Case *c, int field, int64_t at, const char *label)
{
	CaseBuffer *b = &c->buf[field];
	if (c->tmpl->fields[field].role == OPERAND_OUT)
		return true;
	uint8_t *raw = case_alloc(c, b->bytes);
	if (!case_operand(c, field))
		return false;
	set_sampling(b, c->tmpl->fields[field].name, label);
	case_encode(b, b->before, raw);
	return gpu_ok(g, g->driver.MemcpyHtoDAsync(g->memory + (CuPtr)at, raw, (size_t)b->bytes, g->stream),
			"cuMemcpyHtoD") &&
		gpu_ok(g, g->driver.StreamSynchronize(g->stream), "cuMemcpyHtoD");
}

typedef struct Params { _Alignas(64) uint8_t bytes[PLAN_MAX_PARAM_BYTES]; } Params;

/* Argument structs of n launches: small operands once at the front, large ones at a place of their own each. */
static bool place(Gpu *g, Case *c, const char *label, Params *params, int n)
{
	int64_t front = 0, large = 0;
	seat(c);
	for (int i = 0; i < c->tmpl->n_fields; i++) {
		CaseBuffer *b = &c->buf[i];
		if (!b->present)
			continue;
		int64_t bytes = (b->bytes + 255) / 256 * 256;
		bool shared = b->dtype == DT_i32 || b->bytes < SMALL || strcmp(c->tmpl->fields[i].name, "best") == 0;
		if (shared && !upload(g, c, i, front, label))
			return false;
		for (int k = 0; k < n; k++) {
			int64_t room = g->memory_bytes - (64 << 20) - bytes, step = (bytes * k + large) % (room / 256 * 256);
			CuPtr at = g->memory + (CuPtr)(shared ? front : (64 << 20) + step);
			memcpy(params[k].bytes + c->tmpl->fields[i].offset, &at, sizeof at);
			for (int m = 0; m < c->tmpl->n_maps; m++)
				if (c->tmpl->maps[m].field == i && !case_map(g, c, m, at, params[k].bytes))
					return false;
		}
		if (shared)
			front += bytes;
		else
			large += bytes * n;
	}
	return front < 64 << 20 && gpu_ok(g, g->driver.StreamSynchronize(g->stream), "cuStreamSynchronize");
}

/* Each operand once, the state of the delta rule there and back; of experts what the contract says. */
static double moved_bytes(const Case *c)
{
	double bytes = 0, said = (double)(c->reads + c->writes);
	for (int i = 0; i < c->tmpl->n_fields; i++)
		if (c->buf[i].present && !case_is_own(c, i) && strncmp(c->tmpl->fields[i].name, "kv", 2) != 0)
			bytes += (double)c->buf[i].bytes * (strcmp(c->tmpl->fields[i].name, "delta") == 0 ? 2 : 1);
	int64_t hdim = case_value(c, "HDIM", 0), n_kv = case_value(c, "NKV", 0);
	bool prefill = case_field(c, "seg") >= 0;
	double capacity = (double)case_value(c, "MAX_PAGES", 0) * (double)case_value(c, "PAGE", 0);
	int64_t slots = case_value(c, "ROWS", 0) / (case_each(c) ? case_each(c) : 1); /* in a step that is no prefill */
	double tokens = case_field(c, "kv") < 0 ? 0 : case_field(c, "o") < 0 ? (double)case_value(c, "ROWS", 0)
		: capacity * (double)(prefill ? 1 : slots);
	int kv = case_field(c, "kv"), block = case_field(c, "kv_block");
	double bits = kv < 0 ? 0 : (double)dtype_span(c->buf[kv].dtype, 8);
	if (block >= 0 && c->buf[block].present)
		bits += 0.5; /* a scale of a byte for 16 */
	bytes += tokens * 2 * (double)n_kv * (double)hdim * bits / 8;
	return case_value(c, "EXPERTS", 0) && said < bytes ? said : bytes;
}

static double useful_flops(const Case *c)
{
	if (case_field(c, "seg") < 0 || case_field(c, "kv") < 0)
		return (double)c->flops;
	double rows = (double)case_value(c, "ROWS", 0); /* causal: each row sees one key more than the row before */
	double before = (double)case_value(c, "MAX_PAGES", 0) * (double)case_value(c, "PAGE", 0) - rows;
	return 4 * (rows * before + rows * (rows + 1) / 2) * (double)(case_value(c, "NH", 0) * case_value(c, "HDIM", 0));
}

static void time_trial(Gpu *g, BenchTrial *t)
{
	double bytes = moved_bytes(&t->c);
	int n = (int)(1.5e9 / bytes) + 8;
	n = n > MAX_LAUNCHES ? MAX_LAUNCHES : n;
	Params *params = aligned_alloc(_Alignof(Params), (size_t)n * sizeof *params);
	/* one struct of pointers: the driver takes it as one parameter */
	void **list = malloc((size_t)n * sizeof *list);
	GpuKernel k = {0};
	t->seconds = -1;
	if (params)
		memset(params, 0, (size_t)n * sizeof *params);
	if (params && list && place(g, &t->c, shapes[t->shape].label, params, n) &&
		gpu_load(g, &t->cubin, t->c.tmpl->name, t->c.smem, &k)) {
		for (int i = 0; i < n; i++)
			list[i] = params[i].bytes;
		GpuLaunches l = {k.kernel, {t->c.grid[0], t->c.grid[1], t->c.grid[2]}, t->c.block, t->c.smem, n,
			t->c.tmpl->overlaps && g->target->cc_major >= 9, list};
		t->seconds = gpu_time(g, &l) / n;
	}
	gpu_unload(g, &k);
	free(list);
	free(params);
}

static void print_trial(const BenchTrial *t, const Bounds *b, const char *mark)
{
	double gbps = moved_bytes(&t->c) / t->seconds * 1e-9, tflops = useful_flops(&t->c) / t->seconds * 1e-12;
	bool by_flops = tflops / b->mma_tflops > gbps / b->read_gbps;
	printf("%-1s %-14s %-17s %9.2f us %7.0f GB/s %7.1f TFLOP/s %5.1f %% of %s  %s\n", mark, t->c.tmpl->name,
		shapes[t->shape].label, t->seconds * 1e6, gbps, tflops,
		100 * (by_flops ? tflops / b->mma_tflops : gbps / b->read_gbps), by_flops ? "mma" : "reads",
		t->fixed + strlen(shapes[t->shape].fixed) + 1);
}

static bool fill_memory(Gpu *g)
{
	int64_t chunk = 64 << 20;
	uint16_t *host = malloc((size_t)chunk);
	Random r = {7};
	if (!host)
		return false;
	/* bf16 between 2^-8 and 2 with random signs and digits; as e4m3 no NaN */
	for (int64_t i = 0; i < chunk / 2; i += 4) {
		uint64_t bits = random_bits(&r);
		for (int j = 0; j < 4; j++, bits >>= 16)
			host[i + j] = (uint16_t)((bits & 0x807f) + 0x3b00 + (bits >> 8 & 3) * 0x100 + (bits >> 7 & 1) * 0x80
				- ((bits & 0x7f) == 0x7f));
	}
	bool ok = true;
	for (int64_t at = 0; ok && at + chunk <= g->memory_bytes; at += chunk)
		ok = gpu_ok(g, g->driver.MemcpyHtoDAsync(g->memory + (CuPtr)at, host, (size_t)chunk, g->stream),
				"cuMemcpyHtoD") &&
			gpu_ok(g, g->driver.StreamSynchronize(g->stream), "cuMemcpyHtoD");
	free(host);
	return ok;
}

/* Times all trials and prints a line for each; the number of those that failed. */
static int time_all(Bench *b, Gpu *g)
{
	Bounds bounds;
	int failed = 0;
	if (!fill_memory(g) || !measure_bounds(b->settings, g, &bounds)) {
		fprintf(stderr, "kernel_test: bounds: %s\n", g->why);
		return 1;
	}
	for (int i = 0; i < b->n && !g->dead; i++)
		if (b->trials[i].cubin.bytes)
			time_trial(g, &b->trials[i]);
	for (int i = 0, end; i < b->n; i = end) {
		int best = -1;
		for (end = i; end < b->n && b->trials[end].shape == b->trials[i].shape; end++) {
			failed += !(b->trials[end].seconds > 0);
			if (b->trials[end].seconds > 0 && (best < 0 || b->trials[end].seconds < b->trials[best].seconds))
				best = end;
		}
		for (int k = i; k < end; k++)
			if (b->trials[k].seconds > 0)
				print_trial(&b->trials[k], &bounds, k == best ? "*" : "");
	}
	if (failed)
		printf("%d trials failed: %s\n", failed, g->why);
	return failed;
}

int bench_all(const Settings *s, Gpu *g)
{
	Bench b = {.settings = s, .trials = calloc(MAX_TRIALS, sizeof(BenchTrial))};
	pthread_t threads[64];
	int failed = 0;
	if (!b.trials)
		return 5;
	for (int i = 0; i < N_SHAPES; i++)
		if (is_wanted(s, i))
			list_trials(&b, i);
	for (int i = 0; i < s->jobs; i++)
		pthread_create(&threads[i], NULL, compile_trials, &b);
	for (int i = 0; i < s->jobs; i++)
		pthread_join(threads[i], NULL);
	if (g)
		failed = time_all(&b, g);
	for (int i = 0; i < b.n; i++) {
		failed += !b.trials[i].cubin.bytes;
		case_free(&b.trials[i].c);
		free(b.trials[i].cubin.bytes);
	}
	if (!g)
		printf("%d kernels, %d failed\n", b.n, failed);
	free(b.trials);
	return failed ? 1 : 0;
}
