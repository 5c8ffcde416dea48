// contract.cuh - the words in which a template states its contract.
//
// The same text is read twice. kernelgen (libclang, -DKERNELGEN) sees annotated declarations and turns them
// into a row of the kernel table; NVRTC sees the argument struct, formulas as functions, and sizes: there every dim,
// attribute, flag, tunable and dtype variable is a macro of its name, defined on the command line.
//
// A family of templates states what its contracts share once, in a fragment: a file of these words that each of them
// includes after its KERNEL. What differs are PARAMs, numbers that the template defines before.
//
//   KERNEL(name, op)              one a file; name = file name = symbol; op is a row of artifacts/ops.h
//   ARCH(80, 90a)                 "80": sm_80 and every later architecture; "90a": that one alone
//   NUMERICS(f32_accumulate, batch_invariant)     the second: in this kernel, not between two of another bucket
//   MATRIX(wgmma)                 the instruction of the tensor cores, if not mma: the cost model takes its rate;
//                                 wgmma_fp8 is the one of e4m3
//   DIM(K, 4096)                  a constant the operands' shapes decide; second: an example, for reading the file
//   ATTR_INT(HDIM, 64)  ATTR_FLOAT(EPS, 1e-5f)   a constant the op carries (artifacts/attrs.h)
//   DTYPES(WT, bf16, f16)         a dtype variable and what it may stand for (the first is the example);
//                                 formulas and predicates also know WT_BITS, the bits of one element, and WT_BYTES
//                                 where each of the types has whole bytes
//   FLAG(BIAS)                    1 when the optional operand of IN_IF(BIAS, ...) is there, else 0
//   TUNE(WARPS, 4, 8)             a constant the compiler chooses
//   ORDER(chain, WARPS, 2 * BN)   on what the order of a row's sums depends: a word, and formulas whose values count.
//                                 Several add up, in the order of the text. Two kernels with equal ORDER that do one
//                                 op on the same operands give a row the same bits, whatever their buckets, tiles and
//                                 the rows beside it. What is not named here changes no bit. ORDER(exact): no sums
//   REQUIRE(K % 8 == 0)           a predicate over dims, attributes, tunables, flags, SMEM_MAX, the bytes of shared
//                                 memory that a block may have on the target, and SMS, the multiprocessors that its
//                                 card has, which code does not know; so are formulas
//   PREFER(ROWS >= 9)             a predicate that prunes candidates which are right, but never the fastest: they are
//                                 chosen where a pin or an equal ORDER asks for them, or where no other is left
//   PRUNE(CHAINS == 2)            the same, of candidates that are as fast as others: there is no use in trying them
//   PARAM(RESIDUAL, 0, 1)         in a fragment: a number that the template has defined (#define RESIDUAL 1), one of
//                                 those; formulas know it, code and #if have the macro
//   FORMULA(ring_bytes(int n), n * 128)    a function of whole numbers, for formulas and for code alike, where it is
//                                 constexpr. A call of it in a contract becomes its expression. It may call others
//                                 before it, and knows names that are declared by then, but not SMS
//   GRID(x, y, z) BLOCK(threads) SMEM(dynamic bytes) READS(bytes) WRITES(bytes) FLOPS(n)     formulas
//   PIECES(n)                     equal pieces of work that blocks take in turns; without it, each block is one
//   RATE(percent)                 of the rate of MATRIX that this reaches on a full card, as measured; without it 100
//   EARLY(kv, slot_len)           operands that the code may read before inputs_ready (types.cuh), as the steps before
//                                 have left them: state that no launch before this one in its step writes
//   struct Args { IN(bf16, x, "ROWS, K"); IN_IF(BIAS, WT, bias, "N"); INOUT(...); INOUT_IF(...); OUT(...); };
//        every field is a pointer and every operand of the op has one. IN_IF and INOUT_IF bind optional operands: the
//        flag is 1 or 0 and the pointer NULL when absent. IN or INOUT on an optional operand demands it; one that is
//        left out must be absent, and attributes that only its shape names are left out with it
//        TENSOR_MAP(w, w_map, ROWS, COLS) adds the field `w_map`, a tensor map (CUtensorMap) of operand w, which is
//        always there, as a matrix of its last dim by all others: tiles of ROWS x COLS elements, a row of 128 bytes,
//        128-byte swizzle, zeros outside. Its kernel takes `const __grid_constant__ Args a`. `w` counts as used
//
// Every attribute of the op is declared and used. A dim stands alone in the shape of an operand that is always
// there. Shapes name the op's dims consistently: what ops.h calls K in x and in w has one name here too.
// The kernel is `extern "C" __global__ void NAME(const Args a)`; DYNAMIC_SMEM(xs) in it names the dynamic shared
// memory, SMEM bytes of uint4; code after SMEM knows these bytes as dynamic_smem() and says in a static_assert what it
// needs.
// Formulas and predicates: integers, names, + - * / %, comparisons, && || !, ?:, ceil_div, min, max, align.
#pragma once

#ifdef KERNELGEN

#define CONTRACT_CAT2(a, b) a##b
#define CONTRACT_CAT(a, b) CONTRACT_CAT2(a, b)
#define CONTRACT(...) extern int CONTRACT_CAT(contract_, __COUNTER__) __attribute__((annotate(__VA_ARGS__)))
#define KERNEL(name, op) CONTRACT("kernel;" #name ";" #op);
#define ARCH(...) CONTRACT("arch;" #__VA_ARGS__);
#define NUMERICS(...) CONTRACT("numerics;" #__VA_ARGS__);
#define MATRIX(...) CONTRACT("matrix;" #__VA_ARGS__);
#define DIM(name, example) CONTRACT("dim;" #name); constexpr int name = example;
#define ATTR_INT(name, example) CONTRACT("attr_int;" #name); constexpr int name = example;
#define ATTR_FLOAT(name, example) CONTRACT("attr_float;" #name); constexpr float name = example;
#define CONTRACT_FIRST(a, ...) a
#define DTYPES(var, ...) \
	CONTRACT("dtypes;" #var ";" #__VA_ARGS__); typedef CONTRACT_FIRST(__VA_ARGS__, 0) var; \
	constexpr int var##_BITS = bits_of<var>, var##_BYTES = bits_of<var> / 8;
#define TUNE(name, ...) CONTRACT("tune;" #name ";" #__VA_ARGS__); constexpr int name = CONTRACT_FIRST(__VA_ARGS__, 0);
#define FLAG(name) CONTRACT("flag;" #name); constexpr int name = 1;
#define PARAM_IS(name, value, ...) CONTRACT("param;" name ";" #value ";" #__VA_ARGS__);
#define PARAM(name, ...) PARAM_IS(#name, name, __VA_ARGS__)
#define FORMULA(head, ...) CONTRACT("formula;" #head ";" #__VA_ARGS__); CONTRACT_FUNCTION(head, __VA_ARGS__)
#define ORDER(...) CONTRACT("order;" #__VA_ARGS__);
#define REQUIRE(...) CONTRACT("require;" #__VA_ARGS__);
#define PREFER(...) CONTRACT("prefer;" #__VA_ARGS__);
#define PRUNE(...) CONTRACT("prune;" #__VA_ARGS__);
#define GRID(x, y, z) CONTRACT("grid;" #x ";" #y ";" #z);
#define BLOCK(...) CONTRACT("block;" #__VA_ARGS__);
#define SMEM(...) CONTRACT("smem;" #__VA_ARGS__); CONTRACT_FUNCTION(dynamic_smem(), __VA_ARGS__)
#define READS(...) CONTRACT("reads;" #__VA_ARGS__);
#define WRITES(...) CONTRACT("writes;" #__VA_ARGS__);
#define FLOPS(...) CONTRACT("flops;" #__VA_ARGS__);
#define PIECES(...) CONTRACT("pieces;" #__VA_ARGS__);
#define RATE(...) CONTRACT("rate;" #__VA_ARGS__);
#define EARLY(...) CONTRACT("early;" #__VA_ARGS__);
#define IN(type, name, shape) const type *name __attribute__((annotate("in;" #type ";" shape)))
#define IN_IF(flag, type, name, shape) const type *name __attribute__((annotate("in_if;" #type ";" shape ";" #flag)))
#define INOUT(type, name, shape) type *name __attribute__((annotate("inout;" #type ";" shape)))
#define INOUT_IF(flag, type, name, shape) type *name __attribute__((annotate("inout_if;" #type ";" shape ";" #flag)))
#define OUT(type, name, shape) type *name __attribute__((annotate("out;" #type ";" shape)))
#define TENSOR_MAP(operand, name, rows, cols) \
	TensorMap name __attribute__((annotate("map;" #operand ";" #rows ";" #cols)))

#define DYNAMIC_SMEM(name) extern uint4 name[]
#define __global__ __attribute__((annotate("global")))
#define __device__
#define __shared__
#define __constant__
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline
#define __grid_constant__
#define __restrict__
#define __launch_bounds__(...) __attribute__((annotate("bounds;" #__VA_ARGS__)))
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))

typedef __SIZE_TYPE__ size_t;
struct Dim3 { unsigned x, y, z; };
struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
extern const Dim3 threadIdx, blockIdx, blockDim, gridDim;
void __syncthreads();
int __syncthreads_or(int);
void __syncwarp(unsigned = ~0u);
void __threadfence();
template <class T> T __shfl_xor_sync(unsigned, T, int, int = 32);
template <class T> T __shfl_sync(unsigned, T, int, int = 32);
template <class T> T __shfl_down_sync(unsigned, T, int, int = 32);
template <class T> T __shfl_up_sync(unsigned, T, unsigned, int = 32);
unsigned __ballot_sync(unsigned, int);
int __all_sync(unsigned, int);
int __any_sync(unsigned, int);
unsigned __activemask();
int __syncthreads_and(int);
int __syncthreads_count(int);
void __threadfence_block();
void __nanosleep(unsigned);
void __trap();
template <class T> T __ldg(const T *);
template <class T> T __ldcg(const T *);
template <class T> T __ldcs(const T *);
template <class T> void __stcg(T *, T);
template <class T> void __stcs(T *, T);
template <class T> T atomicCAS(T *, T, T);
template <class T> T atomicExch(T *, T);
template <class T> T atomicMin(T *, T);
template <class T> T atomicAdd(T *, T);
template <class T> T atomicOr(T *, T);
template <class T> T atomicMax(T *, T);
unsigned __float_as_uint(float);
float __uint_as_float(unsigned);
unsigned __umulhi(unsigned, unsigned);
int __float_as_int(float);
float __int_as_float(int);
int __popc(unsigned);
int __clz(int);
int __popcll(unsigned long long);
int __ffsll(long long);
unsigned __brev(unsigned);
unsigned __byte_perm(unsigned, unsigned, unsigned);
unsigned __funnelshift_r(unsigned, unsigned, unsigned);
unsigned long long __umul64hi(unsigned long long, unsigned long long);
int __float2int_rn(float);
int __float2int_rz(float);
float __fsub_rn(float, float);
float __fmul_rn(float, float);
float __fdividef(float, float);
float __logf(float);
int __ffs(int);
float fmaf(float, float, float);
float rsqrtf(float);
float sqrtf(float);
float expf(float);
float exp2f(float);
float logf(float);
float log1pf(float);
float log2f(float);
float fmaxf(float, float);
float fminf(float, float);
float fabsf(float);
float floorf(float);
float ceilf(float);
float truncf(float);
float rintf(float);
float tanhf(float);
float sinf(float);
float cosf(float);
float powf(float, float);
float ldexpf(float, int);
double fma(double, double, double);
double floor(double);
double rint(double);
void sincos(double, double *, double *);
bool isnan(float);
bool isinf(float);
void sincosf(float, float *, float *);
float __expf(float);
template <class T> T min(T, T);
template <class T> T max(T, T);
uint4 make_uint4(unsigned, unsigned, unsigned, unsigned);
uint2 make_uint2(unsigned, unsigned);
float2 make_float2(float, float);
float4 make_float4(float, float, float, float);
unsigned __cvta_generic_to_shared(const void *);

#else

#define KERNEL(name, op)
#define ARCH(...)
#define NUMERICS(...)
#define MATRIX(...)
#define DIM(name, example)
#define ATTR_INT(name, example)
#define ATTR_FLOAT(name, example)
#define DTYPES(var, ...) constexpr int var##_BITS = bits_of<var>, var##_BYTES = bits_of<var> / 8;
#define TUNE(name, ...)
#define FLAG(name)
#define PARAM(name, ...)
#define FORMULA(head, ...) CONTRACT_FUNCTION(head, __VA_ARGS__)
#define ORDER(...)
#define REQUIRE(...)
#define PREFER(...)
#define PRUNE(...)
#define GRID(x, y, z)
#define BLOCK(...)
#define SMEM(...) CONTRACT_FUNCTION(dynamic_smem(), __VA_ARGS__)
#define READS(...)
#define WRITES(...)
#define FLOPS(...)
#define PIECES(...)
#define RATE(...)
#define EARLY(...)
#define IN(type, name, shape) const type *name
#define IN_IF(flag, type, name, shape) const type *name
#define INOUT(type, name, shape) type *name
#define INOUT_IF(flag, type, name, shape) type *name
#define OUT(type, name, shape) type *name
#define TENSOR_MAP(operand, name, rows, cols) TensorMap name
#define DYNAMIC_SMEM(name) extern __shared__ uint4 name[]

#endif

#ifndef SMEM_MAX // atlasc defines it for the target
constexpr int SMEM_MAX = 232448;
#endif

struct alignas(64) TensorMap { unsigned long long opaque[16]; }; // CUtensorMap

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

template <class T> constexpr int bits_of = 8 * sizeof(T); // of an element of a dtype

// What code sees of formulas. Functions of that name elsewhere are not constexpr.
namespace formula {
constexpr int min(int a, int b) { return a < b ? a : b; }
constexpr int max(int a, int b) { return a > b ? a : b; }
constexpr int align(int a, int b) { return ceil_div(a, b) * b; }
}
#define CONTRACT_FUNCTION(head, ...) \
	constexpr int head { using formula::min; using formula::max; using formula::align; return __VA_ARGS__; }

// Does a block have less shared memory than on sm_90a and sm_100a, 227 KiB? On such targets nothing was measured, so
// what is fast elsewhere excludes nothing there. The least is that of sm_89 and sm_12x, 99 KiB.
FORMULA(has_little_smem(), SMEM_MAX < 200000)
FORMULA(has_least_smem(), SMEM_MAX < 160000)
