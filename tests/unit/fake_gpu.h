/* fake_gpu.h - executes the kernels of a plan by what their ops mean, on the fake driver's memory.
 *
 * The driver knows a kernel number and an argument struct; the plan says which launches have that kernel, and
 * the addresses in the struct say which launch it is. Its operands are converted to float, given to the reference
 * function of the op, and converted back. So a plan runs whole, fused ops, buffers, edges and all, without a GPU.
 */
#ifndef TESTS_FAKE_GPU_H
#define TESTS_FAKE_GPU_H

#include "artifacts/plan.h"
#include "tests/unit/fake_driver.h"

typedef struct FakeGpu {
	bool is_reopened; /* sessions follow one another, and each loads the plan's kernels */
	FakeDriver *driver;
	const Artifact *artifact; /* target 0 is executed */
	int n_executed;
	int spoiled; /* 1 + a slot whose logits are NaN */
	OpKind bad_op; int bad_layer; float bad_factor; /* what the op's launches there leave in bf16 is so many times too
													   large; 0 = none is */
	bool is_lazy; /* only what concerns slots is executed; logits are 0 */
} FakeGpu;

/* Sets the driver's ctx, param_bytes and execute. */
void fake_gpu_start(FakeGpu *gpu, FakeDriver *driver, const Artifact *artifact);

#endif
