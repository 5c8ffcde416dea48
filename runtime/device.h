/* device.h - what a session asks of the thing that computes: the GPU (cuda.c) or the reference (cpu/).
 *
 * A device holds weights, state and buffers of one plan. The session writes a step's inputs into `io`, launches it, and
 * finds the results in `io` as they are drawn. It decides nothing about models: the plan did.
 */
#ifndef ATLAS_DEVICE_H
#define ATLAS_DEVICE_H

#include "artifacts/plan.h"
#include "runtime/atlas.h"

/* Host side of the INPUT and OUTPUT tensors, by name; ops.h says what they hold. Pinned staging memory on CUDA, the
 * tensors themselves on the reference. Owned by the device, at the same place for its whole life; sizes are those of
 * the largest step in `limits`. A device's first step finds them zeroed. */
typedef struct StepIo {
	int32_t *step;       /* [4] rows, outs, segments, flags (STEP_*); written by launch and trace */
	int32_t *row_token;  /* [rows] prefill only */
	int32_t *row_slot;   /* [rows] */
	int32_t *row_pos;    /* [rows] prefill only */
	int32_t *row_next;   /* [rows] prefill only; NULL where no head drafts */
	int32_t *slot_draft; /* [slots, verify_rows - 1] VERIFY; NULL where the host does not draft */
	int32_t *out_row;    /* [n_out_rows] */
	int n_out_rows;      /* the most outs of a step that reads them: where each row of a step has an out, it may not */
	int32_t *seg;        /* [slots, 4] prefill only */
	int32_t *acquire;    /* [slots] */
	float *new_sampling; /* [slots, 8] */
	int32_t *new_limits; /* [slots, 8] */
	int32_t *new_pages;  /* [slots, max_pages] */
	int32_t *new_rules;  /* [PLAN_RULES, PLAN_RULE_WORDS] of each slot that is acquired */
	int32_t *ring;       /* [slots, PLAN_RING_ENTRIES, PLAN_RING_WORDS] output */
} StepIo;

/* flags. SCORE: sample nothing. OUTS, with SCORE: of the PREFILL step launched last, whose rows and segments these are
 * again, only the logits, of other rows; of devices that have fewer outs than rows. */
enum { STEP_SCORE = 1, STEP_OUTS = 2 };

typedef struct StepLimits { /* most of each that one step takes */
	int prefill_rows, prefill_outs, decode_rows;
	int ahead; /* decode steps that may be launched before the result of the first is seen; at least 1 */
	int row;   /* launched that many at a time, decode steps cost least; at least 1 */
} StepLimits;

/* VERIFY where a head drafts, for a host that must know the drafts: they alone, then what follows them in a step of the
 * same size, with nothing but put_mask and read_drafts between. */
typedef enum StepPart { STEP_WHOLE, STEP_DRAFTS, STEP_REST } StepPart;

/* What is in use of a step. The device picks its bucket and makes the rest of it idle. */
typedef struct StepSize {
	PhaseKind phase;
	int rows, outs, segs; /* ACQUIRE: 0. DECODE: outs = rows, segs = 0. VERIFY: the same, `each` for each slot, one
							 after the other; a head's drafts before it are part of the step, of the same slots */
	int each;             /* VERIFY: rows of a slot, a number that the plan has for these slots; else 0 */
	int flags;
	StepPart part;
	bool is_same; /* the inputs in io are those of the step launched last: they need not be sent again */
} StepSize;

/* hidden [rows, cols] f32 of `layer`; non-zero = stop. `hidden` is valid during the call; the reference goes on from
 * what fn leaves there, a GPU from what it has. */
typedef int DeviceLayerFn(void *ctx, int layer, int rows, int cols, float *hidden);

typedef struct Device Device;

/* Statuses other than ATLAS_OK come with a sentence in Device.error. Faults are sticky in the session, not here. */
typedef struct DeviceOps {
	const char *kind; /* "cuda", "cpu" */
	/* Starts n >= 1 steps of that size, one after the other and after all that was launched before; more than one
	 * are DECODE or VERIFY, each of which goes on from the tokens of the one before. Results appear in io.ring as they
	 * are drawn. io's inputs may be changed when a result of these steps was seen, or after wait. Allocates nothing. */
	AtlasStatus (*launch)(Device *d, const StepSize *size, int n);
	/* Returns when all that was launched is done. */
	AtlasStatus (*wait)(Device *d);
	/* Is anything launched still under way? Does not wait. This is how a fault shows while the ring shows nothing. */
	AtlasStatus (*look)(Device *d, bool *is_busy);
	/* One step of phase PREFILL, launch by launch, calling fn after each layer; waits. ATLAS_STOPPED: fn said so. */
	AtlasStatus (*trace)(Device *d, const StepSize *size, DeviceLayerFn *fn, void *ctx);
	/* Elements [first, first + n) of the tensor of that name as the last step left them, as f32. */
	AtlasStatus (*read)(Device *d, const char *tensor, int64_t first, int64_t n, float *dst);
	/* Entries [first, first + n) of the slot's row in io.new_pages become those of the page table, after what was
	 * launched before and before what is launched next. They stay as they are until that is done. */
	AtlasStatus (*put_pages)(Device *d, int slot, int first, int n);
	/* words [mask_words], copied, become the mask of a row of the slot, its first or, of a verify step, a later one,
	 * after what was launched before and before what is launched next. NULL: that row draws nothing. */
	AtlasStatus (*put_mask)(Device *d, int slot, int row, const uint32_t *words);
	/* slot_draft [slots, verify_rows - 1] as what was launched leaves it, where a head drafts. Waits. */
	AtlasStatus (*read_drafts)(Device *d, int32_t *drafts);
	/* All bytes of pages [n], of every tensor that has pages of the pool, as what was launched leaves them, to bytes
	 * [n, page_bytes]; with is_back from there. Waits. */
	AtlasStatus (*copy_pages)(Device *d, const int32_t *pages, int n, uint8_t *bytes, bool is_back);
	/* All bytes of page `from` become those of page `to`, after what was launched before and before what is launched
	 * next. */
	AtlasStatus (*clone_page)(Device *d, int32_t from, int32_t to);
	/* Tokens [n] occur in the prompt of a slot that has read and generated nothing yet (counts). Waits. */
	AtlasStatus (*note_prompt)(Device *d, int slot, const int32_t *tokens, int n);
	/* The slot's states that zero_slots clears, and its windows before `position`, a multiple of the page (rolling.h),
	 * to a snapshot (Graph.snapshots), or back, in the order of clone_page. */
	AtlasStatus (*keep_states)(Device *d, int slot, int position, int snapshot, bool is_back);
	void (*close)(Device *d); /* frees the device itself as well */
} DeviceOps;

typedef struct DeviceTimes { double context, memory, kernels, graphs, weights; } DeviceTimes; /* of opening, seconds */

struct Device { /* first member of each implementation's own struct */
	const DeviceOps *ops;
	StepIo io;
	StepLimits limits;
	char name[256];     /* of the hardware */
	const char *target; /* "" when there is none */
	int64_t bytes;      /* memory taken on the device */
	int64_t page_bytes; /* of one page of the pool, all tensors that have such pages together */
	DeviceTimes times;
	int bucket;         /* rows of the compiled step that the last launch went through; where none is compiled, the most
						   rows of a step of its phase */
	double waited;      /* seconds so far in which the session waited for it or, of the reference, it computed */
	AtlasError error;   /* last failure */
};

/* An observer of a GPU (atlas receipt, atlas memory). Everything is as the driver reports it, in the thread that
 * calls the device, with its context current. */
typedef enum WatchStage { /* of opening: what was made by then */
	WATCH_CONTEXT, WATCH_ARENAS, WATCH_KERNELS, WATCH_GRAPHS, WATCH_WEIGHTS, WATCH_STAGES
} WatchStage;
typedef struct SeenLaunch {
	const char *name; /* the function's symbol; valid during the call */
	int grid[3], block[3], smem_bytes /* dynamic */;
	int registers, static_smem_bytes; /* -1 = not known */
} SeenLaunch;
typedef struct DeviceWatch {
	void *ctx;
	void (*stage)(void *ctx, WatchStage stage, int64_t free_bytes, int64_t total_bytes); /* of the device's memory */
	/* Each kernel node of each graph that steps replay, read back from the graph: the launch of the plan's phase that
	 * it was made for, and the index of its step in the graph. */
	void (*node)(void *ctx, int phase, int step, int launch, const SeenLaunch *seen);
	void (*launched)(void *ctx, int phase, int steps); /* steps of a phase of the plan were put on the stream */
} DeviceWatch;

struct Driver;
enum { AHEAD_DEFAULT = 8 };
typedef struct DeviceConfig {
	const Artifact *artifact;       /* outlives the device */
	const uint8_t *const *weights;  /* [graph.n_weights] host bytes of each weight; outlive the device. NULL on CUDA:
									   none are copied, the device is there for measuring kernels alone */
	const struct PlanFiles *files;  /* that these are mapped from (plan_file.h); outlive the device. NULL: memory */
	bool compares_weights;          /* CUDA: with their hashes, while they are copied to the device */
	const struct RandomTables *random; /* for weights that are made at open, which `weights` has NULL for; NULL = there
									   are none */
	uint64_t seed;                  /* of these */
	const uint8_t *unhashed;        /* but for the weight whose bytes these are; NULL = all of them */
	int index;                      /* of the GPU */
	int n_threads;                  /* reference: 0 = one a processor */
	int steps_ahead;                /* CUDA: wish for limits.ahead; 0 = AHEAD_DEFAULT */
	const struct Driver *driver;    /* CUDA: the driver to use; NULL = load libcuda.so.1 (driver.h) */
	AtlasDevice *started;           /* CUDA: may be NULL, in place of `driver`: its own is used, waited for */
	const DeviceWatch *watch;       /* CUDA: outlives the device; NULL = no watch */
	struct RankGroup *ranks;        /* CUDA: of a plan of several ranks, joined; outlives the device. Else NULL */
	bool shares_card;               /* of these: several may be on one GPU */
	const struct NcclRoad *nccl;    /* of these: how that library is opened (nccl.h) */
} DeviceConfig;

/* On failure *device is NULL, error says why and everything is given back. */
AtlasStatus cuda_open(const DeviceConfig *config, Device **device, AtlasError *error);
AtlasStatus cpu_open(const DeviceConfig *config, Device **device, AtlasError *error);

/* Writes status and sentence into *error (may be NULL); returns status. */
AtlasStatus error_set(AtlasError *error, AtlasStatus status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
