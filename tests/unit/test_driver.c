/* test_driver.c - our declarations of the driver's interface against CUDA's own header, where there is one. */
#include "runtime/driver.h"
#include "runtime/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#if __has_include(<cuda.h>)
#include <cuda.h>
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CU_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME(CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(CU_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(CU_UNSUPPORTED_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(CU_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(CU_COMPAT_NOT_SUPPORTED, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
SAME(CU_ATTR_CC_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_ATTR_CC_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_ATTR_SMEM_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(CU_KERNEL_MAX_DYNAMIC_SMEM, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(CU_EDGE_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
SAME(CU_KERNEL_PORT_PROGRAMMATIC, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
SAME(DRIVER_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(DRIVER_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
#define SAME_FIELD(ours, theirs) \
	_Static_assert(offsetof(CuKernelNode, ours) == offsetof(CUDA_KERNEL_NODE_PARAMS_v2, theirs), #theirs)
SAME_FIELD(func, func);
SAME_FIELD(grid, gridDimX);
SAME_FIELD(block, blockDimX);
SAME_FIELD(smem_bytes, sharedMemBytes);
SAME_FIELD(params, kernelParams);
SAME_FIELD(extra, extra);
SAME_FIELD(kern, kern);
SAME_FIELD(ctx, ctx);
_Static_assert(sizeof(CuGraphEdge) == sizeof(CUgraphEdgeData) &&
	offsetof(CuGraphEdge, type) == offsetof(CUgraphEdgeData, type), "edges");
_Static_assert(sizeof(CuKernelNode) == sizeof(CUDA_KERNEL_NODE_PARAMS_v2), "node parameters");
_Static_assert(sizeof(CuPtr) == sizeof(CUdeviceptr) && sizeof(CuDevice) == sizeof(CUdevice) &&
	sizeof(CuResult) == sizeof(CUresult), "scalars");
#endif

static void results_become_statuses(void **state)
{
	(void)state;
	assert_int_equal(driver_status(CU_SUCCESS), ATLAS_OK);
	assert_int_equal(driver_status(CU_OUT_OF_MEMORY), ATLAS_DEVICE_MEMORY);
	assert_int_equal(driver_status(CU_NO_DEVICE), ATLAS_NO_DEVICE);
	assert_int_equal(driver_status(CU_DEVICE_UNAVAILABLE), ATLAS_NO_DEVICE);
	assert_int_equal(driver_status(CU_STUB_LIBRARY), ATLAS_NO_DRIVER);
	assert_int_equal(driver_status(CU_NO_BINARY), ATLAS_ARCH);
	assert_int_equal(driver_status(CU_UNSUPPORTED_PTX), ATLAS_DRIVER_OLD);
	assert_int_equal(driver_status(CU_DRIVER_MISMATCH), ATLAS_DRIVER_OLD);
	assert_int_equal(driver_status(700), ATLAS_DEVICE_FAULT);
	assert_int_equal(driver_status(-1), ATLAS_DEVICE_FAULT);
}

/* With a driver, every function of the table is found; without one, it is said which library is missing. */
static unsigned long long map_dims[2], map_stride;
static unsigned map_box[2];
static int map_element;

static CuResult see_map(void *map, int element, unsigned rank, CuPtr at, const unsigned long long *dims,
	const unsigned long long *strides, const unsigned *box, const unsigned *steps, int interleave, int swizzle,
	int promotion, int fill)
{
	(void)map, (void)at, (void)steps, (void)interleave, (void)promotion, (void)fill;
	assert_true(rank == 2 && swizzle == CU_TENSOR_SWIZZLE_128B);
	map_element = element;
	map_stride = strides[0];
	for (int i = 0; i < 2; i++) {
		map_dims[i] = dims[i];
		map_box[i] = box[i];
	}
	return CU_SUCCESS;
}

/* 96 rows of 512 elements in tiles of 64 rows of 128 bytes; codes of four bits count as bytes. */
static void maps_are_of_bytes(void **state)
{
	static const struct { Dtype dtype; int columns, element; unsigned long long across; } want[] = {
		{DT_bf16, 64, CU_TENSOR_UINT16, 512}, {DT_f32, 32, CU_TENSOR_UINT32, 512}, {DT_e4m3, 128, CU_TENSOR_UINT8, 512},
		{DT_e2m1, 256, CU_TENSOR_UINT8, 256}, {DT_u4, 256, CU_TENSOR_UINT8, 256}};
	Driver driver = {.TensorMapEncodeTiled = see_map};
	(void)state;
	for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
		const int box[2] = {64, want[i].columns};
		const int64_t row = dtype_span(want[i].dtype, 512);
		assert_int_equal(driver_tensor_map(&driver, NULL, 0, want[i].dtype, 96 * row, 512, box), CU_SUCCESS);
		assert_int_equal(map_element, want[i].element);
		assert_true(map_stride == (unsigned long long)row && map_dims[0] == want[i].across && map_dims[1] == 96);
		assert_int_equal(map_box[1], 64);
		assert_int_equal(map_box[0] * (unsigned)map_stride / map_dims[0], 128);
	}
}

static void opens_or_says_why(void **state)
{
	Driver driver = {0};
	AtlasError error = {0};
	(void)state;
	AtlasStatus s = driver_open(&driver, &error);
	if (s == ATLAS_OK)
		assert_true(driver.Init && driver.GraphLaunch);
	else
		assert_true(s == ATLAS_NO_DRIVER ? strstr(error.text, "libcuda.so.1") != NULL
			: s == ATLAS_DRIVER_OLD && error.text[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(results_become_statuses),
		cmocka_unit_test(maps_are_of_bytes),
		cmocka_unit_test(opens_or_says_why),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
