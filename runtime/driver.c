/* driver.c - find the CUDA driver and its functions.
 *
 * cuGetProcAddress hands out the form of a function that a given CUDA version had, so that one binary works with
 * every later driver. It is itself looked up by the oldest versioned name that works.
 */
#include "runtime/driver.h"
#include "runtime/device.h"

#include <dlfcn.h>
#include <string.h>

typedef CuResult GetProcAddress(const char *symbol, void **fn, int version, uint64_t flags, int *status);

typedef struct Symbol { const char *name; int version; size_t offset; } Symbol;
static const Symbol symbols[] = {
#define DRIVER_ROW(name, version, args) {"cu" #name, version, offsetof(Driver, name)},
	DRIVER_TABLE(DRIVER_ROW)
#undef DRIVER_ROW
};

AtlasStatus driver_open(Driver *driver, AtlasError *error)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return error_set(error, ATLAS_NO_DRIVER, "libcuda.so.1 cannot be opened: %s", dlerror());
	GetProcAddress *find;
	void *at = dlsym(library, "cuGetProcAddress_v2");
	memcpy(&find, &at, sizeof find); /* ISO C has no conversion from object to function pointer */
	if (!at)
		return error_set(error, ATLAS_DRIVER_OLD, "the CUDA driver is older than 12.0: %d.%d or later is needed",
			DRIVER_VERSION_MIN / 1000, DRIVER_VERSION_MIN % 1000 / 10);
	for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
		int found = 0;
		at = NULL;
		if (find(symbols[i].name, &at, symbols[i].version, 0, &found) != CU_SUCCESS || !at)
			return error_set(error, ATLAS_DRIVER_OLD, "the CUDA driver lacks %s of version %d.%d",
				symbols[i].name, symbols[i].version / 1000, symbols[i].version % 1000 / 10);
		memcpy((char *)driver + symbols[i].offset, &at, sizeof at);
	}
	return ATLAS_OK;
}

CuResult driver_tensor_map(const Driver *driver, void *map, CuPtr at, Dtype dtype, int64_t bytes, int64_t columns,
	const int box[2])
{
	const int64_t size = dtype_bytes(dtype) ? dtype_bytes(dtype) : 1; /* codes of 4 bits are fetched as bytes */
	const int element = size == 1 ? CU_TENSOR_UINT8 : size == 2 ? CU_TENSOR_UINT16 : CU_TENSOR_UINT32;
	const unsigned long long row = (unsigned long long)dtype_span(dtype, columns);
	const unsigned long long dims[2] = {row / (unsigned long long)size, (unsigned long long)bytes / row};
	const unsigned tile[2] = {(unsigned)(dtype_span(dtype, box[1]) / size), (unsigned)box[0]};
	const unsigned steps[2] = {1, 1};
	return driver->TensorMapEncodeTiled(map, element, 2, at, dims, &row, tile, steps, 0, CU_TENSOR_SWIZZLE_128B,
		CU_TENSOR_PROMOTE_256B, 0);
}

AtlasStatus driver_status(CuResult result)
{
	switch (result) {
	case CU_SUCCESS: return ATLAS_OK;
	case CU_OUT_OF_MEMORY: return ATLAS_DEVICE_MEMORY;
	case CU_STUB_LIBRARY: return ATLAS_NO_DRIVER; /* the toolkit's stand-in for linking */
	case CU_NO_DEVICE: case CU_INVALID_DEVICE: case CU_DEVICE_UNAVAILABLE: return ATLAS_NO_DEVICE;
	case CU_NO_BINARY: return ATLAS_ARCH;
	case CU_INVALID_IMAGE: case CU_UNSUPPORTED_PTX: case CU_DRIVER_MISMATCH:
	case CU_COMPAT_NOT_SUPPORTED: return ATLAS_DRIVER_OLD;
	default: return ATLAS_DEVICE_FAULT;
	}
}

const char *driver_error(const Driver *driver, CuResult result)
{
	const char *name = NULL;
	return driver->GetErrorName(result, &name) == CU_SUCCESS && name ? name : "an unknown error";
}
