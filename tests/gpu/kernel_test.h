/* kernel_test.h - what the parts of the kernel test share. */
#ifndef TEST_KERNEL_TEST_H
#define TEST_KERNEL_TEST_H

#include "tests/gpu/gpu.h"
#include "tests/gpu/kernel_case.h"

#define IMAGE_BYTES ((int64_t)256 << 20)
#define BENCH_BYTES ((int64_t)6 << 30)

typedef struct Settings {
	int cases, jobs;
	uint64_t seed;
	const char *only;  /* part of a template's name, or NULL */
	const char *fixed; /* "HDIM=128 PAGE=64": constants that are not drawn, or NULL */
	const char *without; /* a constant that orders leave out, or NULL */
	const char *nccl; /* only that: a library, on one rank */
	bool small, no_gpu, bench, self_check, orders;
	const Target *target;
	const char *cache_dir; /* of compiled kernels, or NULL */
	char nvrtc[32];        /* its version, where there is a cache */
} Settings;

/* nvrtc_compile, through the cache. */
bool test_compile(const Settings *s, const KernelSource *source, Cubin *out, char **log);

/* Draws until the operands can be filled too, at the smallest limits that admit any; *seed becomes the one that did. */
bool draw_case(Case *c, const KernelTemplate *t, const CaseLimits *limits, uint64_t *seed);

/* Writes the template's tensor map of that index for its operand at `at` into an argument struct aligned to 64. */
bool case_map(Gpu *g, const Case *c, int map, CuPtr at, uint8_t *params);

/* kernel_steps.c: of a verify step, whose image afterwards is `got`: has each row the bits that decode's kernel gives
 * it? True for other templates. run: d once; the image that comes back, or NULL and why not in out->why. */
typedef const uint8_t *StepRunner(void *ctx, Case *d, Outcome *out);
bool has_steps(OpKind op); /* is there such a kernel? */
bool rows_are_steps(const Case *c, const Target *target, const uint8_t *got, StepRunner *run, void *ctx, Outcome *out);

/* kernel_orders.c: kernels of the case's op with other tunables, templates, ROWS and OUTS, on the same rows: those of
 * equal ORDER must give equal bits. `got`: the case's image afterwards. Some at random, by seed. run as above; NULL
 * without a reason: it was compiled and not run. */
typedef struct OrderTally { int equal, other, other_bits; } OrderTally;
bool orders_hold(const Case *c, const Settings *s, uint64_t seed, const uint8_t *got, StepRunner *run, void *ctx,
	OrderTally *tally, Outcome *out);

/* kernel_self.c: does the comparison notice? Needs no GPU. 0, or 1 when something went unnoticed. */
int self_check(const Settings *s);
int nccl_run(Gpu *g, const char *file);

/* kernel_bench.c: without a GPU it compiles and no more. Else times kernels at shapes of real models with cold caches,
 * against the read rate and the tensor rate measured in the same run. Prints a table; 0, or 1 when something failed. */
int bench_all(const Settings *s, Gpu *gpu);

#endif
