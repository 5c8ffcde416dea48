/* driver.h - the part of the CUDA driver API that the runtime uses, as one table of functions.
 *
 * The declarations are our own (the driver's ABI is public and frozen per version), so nothing of CUDA is
 * needed to build, and a test can put another driver into the table. Names and argument orders are the API's;
 * the version in a row is the one whose form of the function is asked for.
 */
#ifndef ATLAS_DRIVER_H
#define ATLAS_DRIVER_H

#include "artifacts/plan.h"
#include "runtime/atlas.h"

#include <stddef.h>
#include <stdint.h>

typedef int CuResult;
typedef int CuDevice;
typedef unsigned long long CuPtr; /* device address */
typedef struct CuContext_ *CuContext;
typedef struct CuStream_ *CuStream;
typedef struct CuEvent_ *CuEvent;
typedef struct CuLibrary_ *CuLibrary;
typedef struct CuKernel_ *CuKernel;
typedef struct CuGraph_ *CuGraph;
typedef struct CuGraphNode_ *CuGraphNode;
typedef struct CuGraphExec_ *CuGraphExec;

typedef struct CuKernelNode { /* CUDA_KERNEL_NODE_PARAMS_v2 */
	void *func; /* NULL: kern is used */
	unsigned grid[3], block[3], smem_bytes;
	void **params, **extra;
	CuKernel kern;
	CuContext ctx;
} CuKernelNode;

typedef unsigned long long CuMemory; /* physical memory: CUmemGenericAllocationHandle */
typedef struct CuLocation { int type, id; } CuLocation; /* CUmemLocation */
typedef struct CuMemoryKind { /* CUmemAllocationProp */
	int type, handles;
	CuLocation location;
	void *meta;
	struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
} CuMemoryKind;
typedef struct CuAccess { CuLocation location; int flags; } CuAccess; /* CUmemAccessDesc */

typedef struct CuGraphEdge { /* CUgraphEdgeData */
	unsigned char from_port, to_port, type, reserved[5];
} CuGraphEdge;

enum {
	CU_SUCCESS = 0, CU_OUT_OF_MEMORY = 2, CU_STUB_LIBRARY = 34, CU_DEVICE_UNAVAILABLE = 46, CU_NO_DEVICE = 100,
	CU_INVALID_DEVICE = 101, CU_INVALID_IMAGE = 200, CU_NO_BINARY = 209, CU_UNSUPPORTED_PTX = 222,
	CU_NOT_FOUND = 500, CU_NOT_READY = 600, CU_DRIVER_MISMATCH = 803, CU_COMPAT_NOT_SUPPORTED = 804,

	CU_ATTR_CC_MAJOR = 75, CU_ATTR_CC_MINOR = 76, CU_ATTR_SMEM_OPTIN = 97,
	CU_EDGE_PROGRAMMATIC = 1,        /* CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC */
	CU_KERNEL_PORT_PROGRAMMATIC = 1, /* CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC */
	CU_KERNEL_MAX_DYNAMIC_SMEM = 8, /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
	CU_TENSOR_UINT8 = 0, CU_TENSOR_UINT16 = 1, CU_TENSOR_UINT32 = 2, /* CUtensorMapDataType */
	CU_TENSOR_SWIZZLE_128B = 3, CU_TENSOR_PROMOTE_256B = 3,          /* CUtensorMapSwizzle, ...L2promotion */
	CU_MEMORY_PINNED = 1, CU_HANDLE_POSIX_FD = 1, CU_LOCATION_DEVICE = 1, CU_ACCESS_READ_WRITE = 3,
	DRIVER_STREAM_NON_BLOCKING = 1,
	DRIVER_EVENT_DISABLE_TIMING = 2,
	DRIVER_HOST_MAPPED = 2, /* CU_MEMHOSTALLOC_DEVICEMAP */
	DRIVER_VERSION_MIN = 12040,     /* CUDA 12.4: cuKernelGetParamInfo */
};

/* FN(name without "cu", version, arguments) */
#define DRIVER_TABLE(FN) \
	FN(Init, 2000, (unsigned flags)) \
	FN(DriverGetVersion, 2020, (int *version)) \
	FN(GetErrorName, 6000, (CuResult error, const char **name)) \
	FN(DeviceGetCount, 2000, (int *count)) \
	FN(DeviceGet, 2000, (CuDevice *device, int ordinal)) \
	FN(DeviceGetName, 2000, (char *name, int length, CuDevice device)) \
	FN(DeviceGetAttribute, 2000, (int *value, int attribute, CuDevice device)) \
	FN(DevicePrimaryCtxRetain, 7000, (CuContext *context, CuDevice device)) \
	FN(DevicePrimaryCtxRelease, 11000, (CuDevice device)) \
	FN(CtxPushCurrent, 4000, (CuContext context)) \
	FN(CtxPopCurrent, 4000, (CuContext *context)) \
	FN(MemGetInfo, 3020, (size_t *free_bytes, size_t *total_bytes)) \
	FN(MemAlloc, 3020, (CuPtr *at, size_t bytes)) \
	FN(MemFree, 3020, (CuPtr at)) \
	FN(DeviceGetUuid, 11040, (void *uuid, CuDevice device)) \
	FN(MemGetAllocationGranularity, 10020, (size_t *bytes, const CuMemoryKind *kind, int option)) \
	FN(MemCreate, 10020, (CuMemory *memory, size_t bytes, const CuMemoryKind *kind, unsigned long long flags)) \
	FN(MemRelease, 10020, (CuMemory memory)) \
	FN(MemAddressReserve, 10020, (CuPtr *at, size_t bytes, size_t align, CuPtr wish, unsigned long long flags)) \
	FN(MemAddressFree, 10020, (CuPtr at, size_t bytes)) \
	FN(MemMap, 10020, (CuPtr at, size_t bytes, size_t offset, CuMemory memory, unsigned long long flags)) \
	FN(MemUnmap, 10020, (CuPtr at, size_t bytes)) \
	FN(MemSetAccess, 10020, (CuPtr at, size_t bytes, const CuAccess *access, size_t n)) \
	FN(MemExportToShareableHandle, 10020, (void *handle, CuMemory memory, int type, unsigned long long flags)) \
	FN(MemImportFromShareableHandle, 10020, (CuMemory *memory, void *handle, int type)) \
	FN(MemHostAlloc, 2020, (void **at, size_t bytes, unsigned flags)) \
	FN(MemFreeHost, 2000, (void *at)) \
	FN(MemsetD8Async, 3020, (CuPtr at, unsigned char value, size_t bytes, CuStream stream)) \
	FN(MemcpyHtoDAsync, 3020, (CuPtr to, const void *from, size_t bytes, CuStream stream)) \
	FN(MemcpyDtoDAsync, 3020, (CuPtr to, CuPtr from, size_t bytes, CuStream stream)) \
	FN(MemcpyDtoHAsync, 3020, (void *to, CuPtr from, size_t bytes, CuStream stream)) \
	FN(StreamCreate, 2000, (CuStream *stream, unsigned flags)) \
	FN(StreamDestroy, 4000, (CuStream stream)) \
	FN(StreamSynchronize, 2000, (CuStream stream)) \
	FN(StreamQuery, 2000, (CuStream stream)) \
	FN(StreamBeginCaptureToGraph, 12030, (CuStream stream, CuGraph graph, const CuGraphNode *deps, \
		const CuGraphEdge *edges, size_t n_deps, int mode)) \
	FN(StreamGetCaptureInfo, 12030, (CuStream stream, int *state, unsigned long long *id, CuGraph *graph, \
		const CuGraphNode **deps, const CuGraphEdge **edges, size_t *n_deps)) \
	FN(StreamEndCapture, 10000, (CuStream stream, CuGraph *graph)) \
	FN(EventCreate, 2000, (CuEvent *event, unsigned flags)) \
	FN(EventDestroy, 4000, (CuEvent event)) \
	FN(EventRecord, 2000, (CuEvent event, CuStream stream)) \
	FN(EventSynchronize, 2000, (CuEvent event)) \
	FN(EventElapsedTime, 2000, (float *ms, CuEvent from, CuEvent to)) \
	FN(LibraryLoadData, 12000, (CuLibrary *library, const void *code, int *jit_options, \
		void **jit_values, unsigned n_jit, int *options, void **values, unsigned n)) \
	FN(LibraryUnload, 12000, (CuLibrary library)) \
	FN(LibraryGetKernel, 12000, (CuKernel *kernel, CuLibrary library, const char *name)) \
	FN(KernelSetAttribute, 12000, (int attribute, int value, CuKernel kernel, CuDevice device)) \
	FN(KernelGetParamInfo, 12040, (CuKernel kernel, size_t index, size_t *offset, size_t *bytes)) \
	FN(LaunchKernel, 4000, (CuKernel kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, \
		unsigned by, unsigned bz, unsigned smem_bytes, CuStream stream, void **params, \
		void **extra)) \
	FN(TensorMapEncodeTiled, 12000, (void *map, int element, unsigned rank, CuPtr at, \
		const unsigned long long *dims, const unsigned long long *strides, const unsigned *box, \
		const unsigned *steps, int interleave, int swizzle, int promotion, int fill)) \
	FN(GraphCreate, 10000, (CuGraph *graph, unsigned flags)) \
	FN(GraphDestroy, 10000, (CuGraph graph)) \
	FN(GraphAddKernelNode, 12000, (CuGraphNode *node, CuGraph graph, const CuGraphNode *deps, \
		size_t n_deps, const CuKernelNode *params)) \
	FN(GraphKernelNodeGetParams, 12000, (CuGraphNode node, CuKernelNode *params)) \
	FN(KernelGetName, 12030, (const char **name, CuKernel kernel)) \
	FN(FuncGetName, 12030, (const char **name, void *function)) \
	FN(GraphAddDependencies, 12030, (CuGraph graph, const CuGraphNode *from, const CuGraphNode *to, \
		const CuGraphEdge *edges, size_t n)) \
	FN(GraphInstantiateWithFlags, 11040, (CuGraphExec *exec, CuGraph graph, \
		unsigned long long flags)) \
	FN(GraphExecDestroy, 10000, (CuGraphExec exec)) \
	FN(GraphUpload, 11010, (CuGraphExec exec, CuStream stream)) \
	FN(GraphLaunch, 10000, (CuGraphExec exec, CuStream stream))

typedef struct Driver {
#define DRIVER_FIELD(name, version, args) CuResult (*name) args;
	DRIVER_TABLE(DRIVER_FIELD)
#undef DRIVER_FIELD
} Driver;

/* Opens libcuda.so.1 and looks every function up. The library stays loaded: the driver does not
 * support being unloaded while its own threads run.
 *   ATLAS_NO_DRIVER   there is no libcuda.so.1
 *   ATLAS_DRIVER_OLD  it lacks a function of the table, or is older than DRIVER_VERSION_MIN */
AtlasStatus driver_open(Driver *driver, AtlasError *error);

/* Writes the 128-byte tensor map of a buffer seen as a matrix of rows of `columns` elements: tiles of box[0] x box[1]
 * elements, 128-byte swizzle, zeros outside. `map` lies at a multiple of 64. */
CuResult driver_tensor_map(const Driver *driver, void *map, CuPtr at, Dtype dtype, int64_t bytes, int64_t columns,
	const int box[2]);

/* Which status a driver's result is; CU_SUCCESS is ATLAS_OK. */
AtlasStatus driver_status(CuResult result);

/* "CUDA_ERROR_OUT_OF_MEMORY"; static. */
const char *driver_error(const Driver *driver, CuResult result);

#endif
