/* cuda.h - the GPU of an open device, for what measures it (time_launch.c). */
#ifndef ATLAS_CUDA_H
#define ATLAS_CUDA_H

#include "runtime/device.h"
#include "runtime/driver.h"

typedef struct CudaView { /* all owned by the device, valid until it closes */
	const Driver *cu;
	const Artifact *artifact;
	const TargetPlan *plan;
	CuDevice device;
	CuContext context; /* push it around driver calls */
	CuStream stream;   /* of the steps: what is put on it runs after the last step */
	const CuPtr *arena; /* [ARENA_COUNT] addresses; 0 = empty, or one that only measurements take */
	const CuPtr *draft_arena; /* the same of phase DRAFT, whose io is its own */
	const CuKernel *kernels; /* [plan->n_kernels] those of steps */
	struct Nccl *nccl; /* of a plan of several ranks that has collectives by it, else NULL */
} CudaView;

/* False: the device is no GPU. */
bool cuda_view(Device *d, CudaView *view);

/* Called before and after each launch, with the stream idle and the context current. step: the tensor of that name
 * (ops.h). Anything but ATLAS_OK ends the step with it; the device's error is then the caller's. */
typedef AtlasStatus CudaHaltFn(void *ctx, const Phase *p, const Launch *l, const int32_t *step, bool is_after);
/* From now on steps halt before and after each launch, those that phase `phase` has room for in its bucket, whatever
 * smaller one there is. fn NULL: graphs again. The device is one that cuda_view takes. */
void cuda_halt(Device *d, CudaHaltFn *fn, void *ctx, int phase);
const TargetPlan *cuda_target(const Device *d); /* of the same device */
/* All bytes of a buffer, as they are, while a step halts. */
AtlasStatus cuda_read_bytes(Device *d, const Buf *b, uint8_t *dst);

/* The inputs of steps in pinned memory, of which a step reads [from, from + bytes) as they come: for a caller that
 * has another device do the same. The device is one that cuda_view takes, and between calls of it. */
uint8_t *cuda_image(Device *d, const StepSize *size, int64_t *from, int64_t *bytes);
void cuda_put_image(Device *d, const uint8_t *bytes, int64_t from, int64_t n);
int64_t cuda_io_bytes(Device *d); /* of all of them */

/* The argument struct of a launch, as the kernel reads it; aligned as a tensor map in it is. */
typedef struct ArgImage { _Alignas(64) uint8_t bytes[PLAN_MAX_PARAM_BYTES]; } ArgImage;

/* Addresses of buffers in the given arenas, and tensor maps. Fails only with what cuTensorMapEncodeTiled says; *about
 * is then the buffer's name. */
CuResult cuda_fill_args(const Driver *cu, const CuPtr *arena, const Phase *p, const Launch *l, ArgImage *image,
	const char **about);

/* The plan of that compute capability, NULL when there is none. */
const TargetPlan *cuda_find_target(const Artifact *a, int major, int minor);

/* The plan that a GPU would run, without opening it, and the GPU's name; NULL = there is no such GPU, or no plan for
 * it. */
const TargetPlan *cuda_would_run(const Driver *cu, const Artifact *a, int index, char name[256]);

/* Waits for the GPU to be started; its driver, NULL when there is none. */
const Driver *cuda_started(AtlasDevice *d);

#endif
