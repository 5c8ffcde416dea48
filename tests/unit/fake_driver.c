#include "tests/unit/fake_driver.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_OBJECTS = 4096, MAX_QUEUE = 4096, MAX_NODES = 4096, PARAM_BYTES = 512, MAX_WORDS = 4096 };

typedef struct Object {
	const char *kind;
	void *at;
	size_t bytes;
	void *map; size_t map_bytes; /* of memory that lies where chance says; NULL = of `take` */
} Object;

typedef struct Work { /* one operation on the stream */
	enum { COPY, FILL, KERNEL, GRAPH } kind;
	void *to;
	const void *from;
	size_t bytes;
	int value;                   /* FILL: byte; KERNEL: number */
	uint8_t params[PARAM_BYTES];
	struct CuGraph_ *graph;
	bool *done; int n_done;      /* [graph->n] nodes that ran; NULL = none so far */
	uint64_t hash;               /* COPY from the host: of the source when the copy was asked for */
	bool is_hashed;
} Work;

typedef struct Word { int32_t *at, value; } Word; /* written by a kernel, not seen by the host yet */

struct FakeQueue {
	Object objects[MAX_OBJECTS];
	int n_objects;
	Work work[MAX_QUEUE];
	long first, next; /* positions in an endless sequence of work */
	int n_kernels;
	Word words[MAX_WORDS]; int n_words; /* of mapped memory */
};

struct CuEvent_ { long at; };
struct CuKernel_ { int number; char name[64]; };
struct CuLibrary_ { struct CuKernel_ *kernels[64]; int n; };
struct CuStream_ { int unused; };
struct CuContext_ { int unused; };
/* fn: what a library captured, of what is in params; NULL = a kernel */
struct CuGraphNode_ { int index; int kernel; CuKernelNode asked; uint8_t params[PARAM_BYTES]; int n_deps; int *deps;
	void (*fn)(void *params); };
struct CuGraph_ { int n; struct CuGraphNode_ *nodes[MAX_NODES]; };
struct CuGraphExec_ { struct CuGraph_ *graph; };

static FakeDriver *fake;
static struct { CuGraph graph; CuGraphNode last[64]; int n; } capture; /* graph NULL: none is under way */
static struct CuContext_ the_context;

static void pass_time(void);

/* Counts and logs a call; the result it is to fail with, or success. */
static CuResult call(const char *fmt, ...)
{
	fake->calls++;
	if (fake->calls == fake->fail_at)
		fake->failed_call = fmt;
	if (fake->log) {
		va_list ap;
		va_start(ap, fmt);
		vfprintf(fake->log, fmt, ap);
		va_end(ap);
		fputc('\n', fake->log);
	}
	pass_time();
	return fake->calls == fake->fail_at ? fake->fail_with : CU_SUCCESS;
}
#define BEGIN(...) \
	do { \
		CuResult begin_result = call(__VA_ARGS__); \
		if (begin_result) \
			return begin_result; \
	} while (0)

static CuResult broken(const char *what)
{
	if (!fake->broken[0])
		snprintf(fake->broken, sizeof fake->broken, "%s", what);
	return 1; /* CUDA_ERROR_INVALID_VALUE */
}

static void *keep(const char *kind, void *at, size_t bytes)
{
	FakeQueue *q = fake->queue;
	if (q->n_objects == MAX_OBJECTS)
		abort();
	q->objects[q->n_objects++] = (Object){.kind = kind, .at = at, .bytes = bytes};
	fake->live++;
	return at;
}

static uint64_t chance(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x >> 11;
}

/* Memory, not cleared: of `take`, or somewhere. Of a place that is taken already another one is tried. */
static void *keep_memory(const char *kind, size_t bytes)
{
	if (!fake->places)
		return keep(kind, fake->take(1, bytes), bytes);
	const size_t shift = (1 + chance(&fake->places) % 15) * 256, map_bytes = shift + bytes;
	void *map = MAP_FAILED;
	for (int i = 0; i < 1000 && map == MAP_FAILED; i++) {
		const uint64_t half = (uint64_t)1 << (33 + chance(&fake->places) % 13);
		const uint64_t at = half + chance(&fake->places) % half;
		map = mmap((void *)(uintptr_t)(at & ~(uint64_t)0xffff), map_bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	}
	if (map == MAP_FAILED)
		abort();
	void *at = keep(kind, (char *)map + shift, bytes);
	Object *o = &fake->queue->objects[fake->queue->n_objects - 1];
	o->map = map;
	o->map_bytes = map_bytes;
	return at;
}

static void free_object(const Object *o);
static void end_work_on(const Object *o);

/* Releases happen even when they are told to fail: a real driver's state is unknown then. */
static bool drop(const char *kind, const void *at)
{
	FakeQueue *q = fake->queue;
	for (int i = 0; i < q->n_objects; i++)
		if (q->objects[i].at == at && strcmp(q->objects[i].kind, kind) == 0) {
			Object o = q->objects[i];
			q->objects[i] = q->objects[--q->n_objects];
			fake->live--;
			end_work_on(&o);
			free_object(&o);
			return true;
		}
	broken("an object was given back that nobody has");
	return false;
}

static bool within(const char *kind, const void *at, size_t bytes)
{
	const FakeQueue *q = fake->queue;
	for (int i = 0; i < q->n_objects; i++) {
		const char *from = q->objects[i].at;
		if (strcmp(q->objects[i].kind, kind) == 0 && (const char *)at >= from &&
			(const char *)at + bytes <= from + q->objects[i].bytes)
			return true;
	}
	return false;
}

bool fake_is_allocated(const void *at, size_t bytes)
{
	return within("device", at, bytes) || within("mapped", at, bytes);
}

static void *host(CuPtr at) { return (void *)(uintptr_t)at; }

static void free_nodes(struct CuGraph_ *g)
{
	for (int i = 0; i < g->n; i++) {
		fake->give(g->nodes[i]->deps);
		fake->give(g->nodes[i]);
	}
	fake->give(g);
}

static void free_object(const Object *o)
{
	if (strcmp(o->kind, "context") == 0)
		return;
	if (strcmp(o->kind, "memory") == 0) {
		close((int)(uintptr_t)o->at);
		return;
	}
	if (strcmp(o->kind, "graph") == 0) {
		free_nodes(o->at);
		return;
	}
	if (o->map) {
		munmap(o->map, o->map_bytes);
		return;
	}
	if (strcmp(o->kind, "exec") == 0)
		free_nodes(((struct CuGraphExec_ *)o->at)->graph);
	struct CuLibrary_ *library = strcmp(o->kind, "library") == 0 ? o->at : NULL;
	for (int i = 0; library && i < library->n; i++)
		fake->give(library->kernels[i]);
	fake->give(o->at);
}

/* The stream ------------------------------------------------------------------------------------- */

static uint64_t hash_of(const uint8_t *at, size_t n)
{
	uint64_t h = n, word = 0;
	for (; n >= sizeof word; at += sizeof word, n -= sizeof word) {
		memcpy(&word, at, sizeof word);
		h = (h ^ word) * 0x9E3779B97F4A7C15u;
		h ^= h >> 29;
	}
	for (; n > 0; n--)
		h = (h ^ *at++) * 0x9E3779B97F4A7C15u;
	return h;
}

/* All words that kernels wrote so far are there. */
static void show_words(void)
{
	FakeQueue *q = fake->queue;
	for (int i = 0; i < q->n_words; i++)
		*q->words[i].at = q->words[i].value;
	q->n_words = 0;
}

/* A kernel. Where there are delays, the host sees none of the words that it wrote into mapped memory yet. */
static void execute(int kernel, const void *params)
{
	FakeQueue *q = fake->queue;
	show_words(); /* the device itself sees what was written before */
	uint8_t *before[MAX_WORDS / 64] = {0};
	int n = 0;
	for (int i = 0; i < q->n_objects && fake->delays; i++)
		if (strcmp(q->objects[i].kind, "mapped") == 0 && n < MAX_WORDS / 64) {
			before[n] = fake->take(1, q->objects[i].bytes);
			memcpy(before[n++], q->objects[i].at, q->objects[i].bytes);
		}
	fake->execute(fake->ctx, kernel, params);
	for (int i = 0, k = 0; i < q->n_objects && k < n; i++) {
		if (strcmp(q->objects[i].kind, "mapped") != 0)
			continue;
		int32_t *now = q->objects[i].at;
		const size_t n_words = memcmp(now, before[k], q->objects[i].bytes) ? q->objects[i].bytes / sizeof *now : 0;
		for (size_t w = 0; w < n_words && q->n_words < MAX_WORDS; w++)
			if (memcmp(&now[w], before[k] + w * sizeof *now, sizeof *now) != 0) {
				q->words[q->n_words++] = (Word){&now[w], now[w]};
				memcpy(&now[w], before[k] + w * sizeof *now, sizeof *now);
			}
		fake->give(before[k++]);
	}
}

/* Of the nodes that may run: the one built last, or any where there are delays. */
static int pick_node(const struct CuGraph_ *g, const bool *done)
{
	int pick = -1, n_ready = 0;
	for (int i = 0; i < g->n; i++) {
		bool ready = !done[i];
		for (int d = 0; d < g->nodes[i]->n_deps; d++)
			ready = ready && done[g->nodes[i]->deps[d]];
		if (ready && (!fake->delays || chance(&fake->delays) % (uint64_t)++n_ready == 0))
			pick = i;
	}
	if (pick < 0)
		abort();
	return pick;
}

/* One node of the graph. True: it was the last. */
static bool run_node(Work *w)
{
	const struct CuGraph_ *g = w->graph;
	for (int i = 0; !fake->execute && i < g->n; i++)
		if (g->nodes[i]->fn)
			g->nodes[i]->fn(g->nodes[i]->params);
	if (fake->execute && w->n_done < g->n) {
		if (!w->done)
			w->done = fake->take((size_t)g->n, 1);
		const struct CuGraphNode_ *node = g->nodes[pick_node(g, w->done)];
		w->done[node->index] = true;
		if (node->fn) {
			uint8_t params[PARAM_BYTES];
			memcpy(params, node->params, sizeof params);
			node->fn(params);
			return fake->execute && ++w->n_done < g->n ? false : (fake->give(w->done), w->done = NULL, true);
		}
		fake->n_launches++;
		if (fake->ran)
			fake->ran(fake->ran_ctx, node->asked.kern->name, &node->asked);
		execute(node->kernel, node->params);
	}
	if (fake->execute && ++w->n_done < g->n)
		return false;
	fake->give(w->done);
	w->done = NULL;
	return true;
}

/* The next part of the oldest work: a copy, a fill, a kernel, a node of a graph. */
static void advance(void)
{
	FakeQueue *q = fake->queue;
	Work *w = &q->work[q->first % MAX_QUEUE];
	bool is_done = true;
	if (w->kind == COPY && w->is_hashed && hash_of(w->from, w->bytes) != w->hash)
		broken("the source of a copy was changed before the copy ran");
	if (w->kind == COPY)
		memcpy(w->to, w->from, w->bytes);
	else if (w->kind == FILL)
		memset(w->to, w->value, w->bytes);
	else if (w->kind == GRAPH)
		is_done = run_node(w);
	else if (fake->execute)
		execute(w->value, w->params);
	q->first += is_done;
}

static void drain(long until)
{
	while (fake->queue->first < until)
		advance();
	show_words();
}

/* Each call takes some time, in which the device may do nothing, a little or much. Of the words that wait to be seen
 * some arrive, in any order. */
static void pass_time(void)
{
	FakeQueue *q = fake->queue;
	if (!fake->delays || chance(&fake->delays) % 2)
		return;
	for (int parts = 1 << chance(&fake->delays) % 8; parts > 0; parts--)
		if (q->n_words && chance(&fake->delays) % 4) {
			Word *w = &q->words[chance(&fake->delays) % (uint64_t)q->n_words];
			*w->at = w->value;
			*w = q->words[--q->n_words];
		} else if (q->first < q->next) {
			advance();
		}
}

static bool points_into(const uint8_t *params, const Object *o)
{
	for (size_t i = 0; i < PARAM_BYTES; i += sizeof(CuPtr)) {
		CuPtr at;
		memcpy(&at, params + i, sizeof at);
		if (at - (CuPtr)(uintptr_t)o->at < o->bytes)
			return true;
	}
	return false;
}

static bool meets(const void *at, size_t n, const Object *o)
{
	return (const char *)at < (const char *)o->at + o->bytes && (const char *)o->at < (const char *)at + n;
}

static bool is_kernel_of(const struct CuLibrary_ *library, int kernel)
{
	for (int i = 0; i < library->n; i++)
		if (library->kernels[i]->number == kernel)
			return true;
	return false;
}

static bool launch_uses(int kernel, const uint8_t *params, const Object *o)
{
	return strcmp(o->kind, "library") == 0 ? is_kernel_of(o->at, kernel) : o->bytes > 0 && points_into(params, o);
}

static bool work_uses(const Work *w, const Object *o)
{
	if (strcmp(o->kind, "stream") == 0)
		return true;
	if (w->kind == COPY || w->kind == FILL)
		return meets(w->to, w->bytes, o) || (w->kind == COPY && meets(w->from, w->bytes, o));
	if (w->kind == KERNEL)
		return launch_uses(w->value, w->params, o);
	if (strcmp(o->kind, "exec") == 0)
		return ((const struct CuGraphExec_ *)o->at)->graph == w->graph;
	for (int i = 0; i < w->graph->n; i++)
		if (launch_uses(w->graph->nodes[i]->kernel, w->graph->nodes[i]->params, o))
			return true;
	return false;
}

/* What work on its way uses may not be given back: that is a fault of the caller, unless a call has failed, after which
 * it is unknown what is on its way. Nothing of the work runs any more. */
static void end_work_on(const Object *o)
{
	FakeQueue *q = fake->queue;
	bool is_used = false;
	for (long i = q->first; i < q->next && !is_used; i++)
		is_used = work_uses(&q->work[i % MAX_QUEUE], o);
	for (int i = 0; i < q->n_words && !is_used; i++)
		is_used = meets(q->words[i].at, sizeof(int32_t), o);
	if (!is_used)
		return;
	if (!fake->failed_call)
		broken("something was given back that work on its way uses");
	for (; q->first < q->next; q->first++)
		if (q->work[q->first % MAX_QUEUE].kind == GRAPH)
			fake->give(q->work[q->first % MAX_QUEUE].done);
	q->n_words = 0;
}

static Work *push(void)
{
	FakeQueue *q = fake->queue;
	if (q->next - q->first == MAX_QUEUE)
		drain(q->first + 1);
	return &q->work[q->next++ % MAX_QUEUE];
}

/* The functions, in the order of the table ---------------------------------------------------------- */

static CuResult fake_Init(unsigned flags)
{
	BEGIN("Init %u", flags);
	return CU_SUCCESS;
}

static CuResult fake_DriverGetVersion(int *version)
{
	BEGIN("DriverGetVersion");
	*version = fake->version;
	return CU_SUCCESS;
}

static CuResult fake_GetErrorName(CuResult error, const char **name)
{
	*name = error == CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
	return CU_SUCCESS;
}

static CuResult fake_DeviceGetCount(int *count)
{
	BEGIN("DeviceGetCount");
	*count = fake->n_devices;
	return CU_SUCCESS;
}

static CuResult fake_DeviceGet(CuDevice *device, int ordinal)
{
	BEGIN("DeviceGet %d", ordinal);
	*device = ordinal;
	return CU_SUCCESS;
}

static CuResult fake_DeviceGetName(char *name, int length, CuDevice device)
{
	BEGIN("DeviceGetName %d", device);
	snprintf(name, (size_t)length, "%s", fake->name ? fake->name : "Fake GPU");
	return CU_SUCCESS;
}

static CuResult fake_DeviceGetAttribute(int *value, int attribute, CuDevice device)
{
	BEGIN("DeviceGetAttribute %d of %d", attribute, device);
	*value = attribute == CU_ATTR_CC_MAJOR ? fake->cc_major : attribute == CU_ATTR_CC_MINOR ? fake->cc_minor
		: fake->smem_optin;
	return CU_SUCCESS;
}

static CuResult fake_DevicePrimaryCtxRetain(CuContext *context, CuDevice device)
{
	BEGIN("DevicePrimaryCtxRetain %d", device);
	*context = &the_context;
	keep("context", &the_context, 0);
	return CU_SUCCESS;
}

/* The last release ends the context with all that lives in it. */
static CuResult fake_DevicePrimaryCtxRelease(CuDevice device)
{
	CuResult r = call("DevicePrimaryCtxRelease %d", device);
	FakeQueue *q = fake->queue;
	drop("context", &the_context);
	if (within("context", &the_context, 0))
		return r;
	fake->n_abandoned += q->n_objects;
	while (q->n_objects)
		drop(q->objects[0].kind, q->objects[0].at);
	return r;
}

static CuResult fake_CtxPushCurrent(CuContext context)
{
	BEGIN("CtxPushCurrent");
	fake->context_depth++;
	return context == &the_context ? CU_SUCCESS : broken("a context that is none");
}

static CuResult fake_CtxPopCurrent(CuContext *context)
{
	CuResult r = call("CtxPopCurrent");
	*context = &the_context;
	fake->context_depth--;
	return r;
}

static CuResult fake_MemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	BEGIN("MemGetInfo");
	*free_bytes = *total_bytes = fake->memory_bytes;
	for (int i = 0; i < fake->queue->n_objects; i++)
		if (strcmp(fake->queue->objects[i].kind, "device") == 0)
			*free_bytes -= fake->queue->objects[i].bytes;
	return CU_SUCCESS;
}

static CuResult fake_MemAlloc(CuPtr *at, size_t bytes)
{
	BEGIN("MemAlloc %zu", bytes);
	if (bytes == 0)
		return broken("an allocation of nothing");
	void *p = keep_memory("device", bytes);
	memset(p, 0xff, bytes);
	fake->n_allocations++;
	*at = (CuPtr)(uintptr_t)p;
	return CU_SUCCESS;
}

static CuResult fake_MemFree(CuPtr at)
{
	CuResult r = call("MemFree");
	drop("device", host(at));
	return r;
}

/* Devices differ in the first byte. */
static CuResult fake_DeviceGetUuid(void *uuid, CuDevice device)
{
	BEGIN("DeviceGetUuid %d", device);
	memset(uuid, 0, 16);
	*(char *)uuid = (char)device;
	return CU_SUCCESS;
}

static CuResult fake_MemGetAllocationGranularity(size_t *bytes, const CuMemoryKind *kind, int option)
{
	BEGIN("MemGetAllocationGranularity");
	*bytes = 65536;
	return kind->type == CU_MEMORY_PINNED && option == 0 ? CU_SUCCESS : broken("memory of another kind");
}

/* Physical memory is a file of memory, which other processes may map. */
static CuResult fake_MemCreate(CuMemory *memory, size_t bytes, const CuMemoryKind *kind, unsigned long long flags)
{
	BEGIN("MemCreate %zu", bytes);
	const int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
	if (bytes == 0 || bytes % 65536 || kind->handles != CU_HANDLE_POSIX_FD || flags)
		return broken("memory that cannot be shared");
	if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
		abort();
	*memory = (CuMemory)fd;
	keep("memory", (void *)(uintptr_t)*memory, bytes);
	return CU_SUCCESS;
}

static CuResult fake_MemRelease(CuMemory memory)
{
	CuResult r = call("MemRelease");
	drop("memory", (void *)(uintptr_t)memory);
	return r;
}

static CuResult fake_MemAddressReserve(CuPtr *at, size_t bytes, size_t align, CuPtr wish, unsigned long long flags)
{
	BEGIN("MemAddressReserve %zu", bytes);
	void *map = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED || align || wish || flags)
		abort();
	keep("range", map, bytes);
	fake->queue->objects[fake->queue->n_objects - 1].map = map;
	fake->queue->objects[fake->queue->n_objects - 1].map_bytes = bytes;
	*at = (CuPtr)(uintptr_t)map;
	return CU_SUCCESS;
}

static CuResult fake_MemAddressFree(CuPtr at, size_t bytes)
{
	CuResult r = call("MemAddressFree %zu", bytes);
	if (within("device", host(at), 1))
		return broken("addresses that are in use");
	drop("range", host(at));
	return r;
}

static CuResult fake_MemMap(CuPtr at, size_t bytes, size_t offset, CuMemory memory, unsigned long long flags)
{
	BEGIN("MemMap %zu", bytes);
	if (!within("range", host(at), bytes) || !within("memory", (void *)(uintptr_t)memory, 1) || offset || flags)
		return broken("a mapping of what is not there");
	if (mmap(host(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (int)memory, 0) == MAP_FAILED)
		abort();
	keep("device", host(at), bytes);
	fake->queue->objects[fake->queue->n_objects - 1].map = host(at);
	fake->queue->objects[fake->queue->n_objects - 1].map_bytes = bytes;
	return CU_SUCCESS;
}

static CuResult fake_MemUnmap(CuPtr at, size_t bytes)
{
	CuResult r = call("MemUnmap %zu", bytes);
	drop("device", host(at));
	return r;
}

static CuResult fake_MemSetAccess(CuPtr at, size_t bytes, const CuAccess *access, size_t n)
{
	BEGIN("MemSetAccess %zu", bytes);
	return within("device", host(at), bytes) && n == 1 && access->flags == CU_ACCESS_READ_WRITE &&
		access->location.type == CU_LOCATION_DEVICE ? CU_SUCCESS : broken("access to what is not mapped");
}

static CuResult fake_MemExportToShareableHandle(void *handle, CuMemory memory, int type, unsigned long long flags)
{
	BEGIN("MemExportToShareableHandle");
	if (!within("memory", (void *)(uintptr_t)memory, 1) || type != CU_HANDLE_POSIX_FD || flags)
		return broken("a handle of what is not there");
	const int fd = dup((int)memory);
	memcpy(handle, &fd, sizeof fd);
	return CU_SUCCESS;
}

static CuResult fake_MemImportFromShareableHandle(CuMemory *memory, void *handle, int type)
{
	BEGIN("MemImportFromShareableHandle");
	const int fd = type == CU_HANDLE_POSIX_FD ? dup((int)(uintptr_t)handle) : -1;
	if (fd < 0)
		return broken("a handle that is none");
	*memory = (CuMemory)fd;
	keep("memory", (void *)(uintptr_t)*memory, 1);
	return CU_SUCCESS;
}

static CuResult fake_MemHostAlloc(void **at, size_t bytes, unsigned flags)
{
	BEGIN("MemHostAlloc %zu, flags %u", bytes, flags);
	*at = keep_memory(flags & DRIVER_HOST_MAPPED ? "mapped" : "pinned", bytes);
	memset(*at, 0xff, bytes < 65536 ? bytes : 65536); /* large ones would take the test's time */
	fake->n_allocations++;
	return CU_SUCCESS;
}

static CuResult fake_MemFreeHost(void *at)
{
	CuResult r = call("MemFreeHost");
	drop(within("mapped", at, 1) ? "mapped" : "pinned", at);
	return r;
}

static CuResult fake_MemsetD8Async(CuPtr at, unsigned char value, size_t bytes, CuStream stream)
{
	BEGIN("MemsetD8Async %d, %zu", value, bytes);
	if (!stream || !fake_is_allocated(host(at), bytes))
		return broken("a fill outside of what was allocated");
	*push() = (Work){.kind = FILL, .to = host(at), .value = value, .bytes = bytes};
	return CU_SUCCESS;
}

static CuResult fake_MemcpyHtoDAsync(CuPtr to, const void *from, size_t bytes, CuStream stream)
{
	BEGIN("MemcpyHtoDAsync %zu", bytes);
	if (!stream || !fake_is_allocated(host(to), bytes) || !within("pinned", from, bytes))
		return broken("a copy to the device outside of what was allocated");
	*push() = (Work){.kind = COPY, .to = host(to), .from = from, .bytes = bytes, .is_hashed = true,
		.hash = hash_of(from, bytes)};
	return CU_SUCCESS;
}

static CuResult fake_MemcpyDtoDAsync(CuPtr to, CuPtr from, size_t bytes, CuStream stream)
{
	BEGIN("MemcpyDtoDAsync %zu", bytes);
	if (!stream || !fake_is_allocated(host(to), bytes) || !fake_is_allocated(host(from), bytes))
		return broken("a copy on the device outside of what was allocated");
	*push() = (Work){.kind = COPY, .to = host(to), .from = host(from), .bytes = bytes};
	return CU_SUCCESS;
}

/* Until it ran, what it overwrites is as undefined as memory that is new. */
static CuResult fake_MemcpyDtoHAsync(void *to, CuPtr from, size_t bytes, CuStream stream)
{
	BEGIN("MemcpyDtoHAsync %zu", bytes);
	if (!stream || !fake_is_allocated(host(from), bytes) || !within("pinned", to, bytes))
		return broken("a copy to the host outside of what was allocated");
	memset(to, 0xff, bytes);
	*push() = (Work){.kind = COPY, .to = to, .from = host(from), .bytes = bytes};
	return CU_SUCCESS;
}

static CuResult fake_StreamCreate(CuStream *stream, unsigned flags)
{
	BEGIN("StreamCreate %u", flags);
	*stream = keep("stream", fake->take(1, sizeof **stream), 0);
	return CU_SUCCESS;
}

static CuResult fake_StreamDestroy(CuStream stream)
{
	CuResult r = call("StreamDestroy");
	drop("stream", stream);
	return r;
}

static CuResult fake_StreamSynchronize(CuStream stream)
{
	BEGIN("StreamSynchronize");
	drain(fake->queue->next);
	return stream ? CU_SUCCESS : broken("the default stream");
}

static CuResult fake_StreamBeginCaptureToGraph(CuStream stream, CuGraph graph, const CuGraphNode *deps,
	const CuGraphEdge *edges, size_t n, int mode)
{
	BEGIN("StreamBeginCaptureToGraph after %zu, mode %d", n, mode);
	if (!stream || capture.graph || edges || n > sizeof capture.last / sizeof *capture.last)
		return broken("a capture");
	capture.graph = graph;
	capture.n = (int)n;
	for (size_t i = 0; i < n; i++)
		capture.last[i] = deps[i];
	return CU_SUCCESS;
}

static CuResult fake_StreamGetCaptureInfo(CuStream stream, int *state, unsigned long long *id, CuGraph *graph,
	const CuGraphNode **deps, const CuGraphEdge **edges, size_t *n)
{
	BEGIN("StreamGetCaptureInfo");
	*state = stream && capture.graph;
	*id = 1;
	*graph = capture.graph;
	*deps = capture.last;
	*edges = NULL;
	*n = (size_t)capture.n;
	return CU_SUCCESS;
}

static CuResult fake_StreamEndCapture(CuStream stream, CuGraph *graph)
{
	CuResult r = call("StreamEndCapture");
	*graph = capture.graph;
	if (!stream || !capture.graph)
		return broken("the end of a capture");
	capture.graph = NULL;
	return r;
}

bool fake_call_on_stream(void (*fn)(void *), const void *params, size_t n)
{
	uint8_t copy[PARAM_BYTES] = {0};
	memcpy(copy, params, n);
	if (!capture.graph) {
		drain(fake->queue->next);
		fn(copy);
		return false;
	}
	struct CuGraphNode_ *made = fake->take(1, sizeof *made);
	*made = (struct CuGraphNode_){.index = capture.graph->n, .kernel = -1, .n_deps = capture.n, .fn = fn,
		.deps = fake->take((size_t)capture.n + 1, sizeof(int))};
	for (int i = 0; i < capture.n; i++)
		made->deps[i] = capture.last[i]->index;
	memcpy(made->params, copy, sizeof copy);
	capture.graph->nodes[capture.graph->n++] = capture.last[0] = made;
	capture.n = 1;
	return true;
}

/* Somebody who asks is somebody who lets time pass. */
static CuResult fake_StreamQuery(CuStream stream)
{
	FakeQueue *q = fake->queue;
	BEGIN("StreamQuery");
	if (!stream)
		return broken("the default stream");
	if (q->first == q->next && !q->n_words)
		return CU_SUCCESS;
	if (!fake->delays)
		drain(q->first + 1);
	return CU_NOT_READY;
}

static CuResult fake_EventCreate(CuEvent *event, unsigned flags)
{
	BEGIN("EventCreate %u", flags);
	*event = keep("event", fake->take(1, sizeof **event), 0);
	return CU_SUCCESS;
}

static CuResult fake_EventDestroy(CuEvent event)
{
	CuResult r = call("EventDestroy");
	drop("event", event);
	return r;
}

static CuResult fake_EventRecord(CuEvent event, CuStream stream)
{
	BEGIN("EventRecord");
	event->at = fake->queue->next;
	return stream ? CU_SUCCESS : broken("the default stream");
}

static CuResult fake_EventSynchronize(CuEvent event)
{
	BEGIN("EventSynchronize");
	drain(event->at);
	return CU_SUCCESS;
}

/* A quarter of a millisecond for each operation on the stream between the two. */
static CuResult fake_EventElapsedTime(float *ms, CuEvent from, CuEvent to)
{
	BEGIN("EventElapsedTime");
	if (fake->queue->first < to->at)
		return broken("a time of work that is not done");
	*ms = 0.25f * (float)(to->at - from->at);
	return CU_SUCCESS;
}

static CuResult fake_LibraryLoadData(CuLibrary *library, const void *code, int *jit_options, void **jit_values,
	unsigned n_jit, int *options, void **values, unsigned n)
{
	(void)jit_options, (void)jit_values, (void)options, (void)values;
	BEGIN("LibraryLoadData");
	if (memcmp(code, "\177ELF", 4) != 0 || n_jit || n)
		return CU_INVALID_IMAGE;
	*library = keep("library", fake->take(1, sizeof **library), 0);
	return CU_SUCCESS;
}

static CuResult fake_LibraryUnload(CuLibrary library)
{
	CuResult r = call("LibraryUnload");
	drop("library", library);
	return r;
}

static CuResult fake_LibraryGetKernel(CuKernel *kernel, CuLibrary library, const char *name)
{
	BEGIN("LibraryGetKernel %s", name);
	if (library->n == 64)
		return broken("too many kernels in one library");
	*kernel = library->kernels[library->n++] = fake->take(1, sizeof **kernel);
	(*kernel)->number = fake->queue->n_kernels++;
	snprintf((*kernel)->name, sizeof (*kernel)->name, "%s", name);
	if (fake->swapped && strcmp(fake->swapped, name) == 0) /* the code of another function */
		snprintf((*kernel)->name, sizeof (*kernel)->name, "another");
	return CU_SUCCESS;
}

static CuResult fake_KernelSetAttribute(int attribute, int value, CuKernel kernel, CuDevice device)
{
	(void)device;
	BEGIN("KernelSetAttribute kernel %d: %d = %d", kernel->number, attribute, value);
	return value <= fake->smem_optin ? CU_SUCCESS : broken("more shared memory than there is");
}

static CuResult fake_KernelGetParamInfo(CuKernel kernel, size_t index, size_t *offset, size_t *bytes)
{
	BEGIN("KernelGetParamInfo kernel %d, %zu", kernel->number, index);
	*offset = 0;
	*bytes = fake->param_bytes(fake->ctx, kernel->number);
	return CU_SUCCESS;
}

static CuResult fake_LaunchKernel(CuKernel kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
	unsigned by, unsigned bz, unsigned smem_bytes, CuStream stream, void **params, void **extra)
{
	BEGIN("LaunchKernel kernel %d grid %u,%u,%u block %u,%u,%u smem %u", kernel->number, gx, gy, gz, bx, by,
		bz, smem_bytes);
	if (!stream || extra)
		return broken("a launch elsewhere");
	Work *w = push();
	*w = (Work){.kind = KERNEL, .value = kernel->number};
	memcpy(w->params, params[0], fake->param_bytes(fake->ctx, kernel->number));
	fake->n_launches++;
	return CU_SUCCESS;
}

/* A map holds the address it is of, so that a test can see it in the arguments. */
static CuResult fake_TensorMapEncodeTiled(void *map, int element, unsigned rank, CuPtr at,
	const unsigned long long *dims, const unsigned long long *strides, const unsigned *box, const unsigned *steps,
	int interleave, int swizzle, int promotion, int fill)
{
	BEGIN("TensorMapEncodeTiled %llu x %llu by %u x %u", dims[1], dims[0], box[1], box[0]);
	const unsigned bytes = element == CU_TENSOR_UINT8 ? 1 : element == CU_TENSOR_UINT16 ? 2 : 4;
	if (rank != 2 || (uintptr_t)map % 64 || at % 16 || strides[0] % 16 || strides[0] != dims[0] * bytes ||
		box[0] * bytes != 128 || box[1] < 1 || box[1] > 256 || steps[0] != 1 || steps[1] != 1 || interleave ||
		swizzle != CU_TENSOR_SWIZZLE_128B || promotion < 0 || promotion > 3 || fill)
		return broken("tensor map");
	memset(map, 0, PLAN_TENSOR_MAP_BYTES);
	memcpy(map, &at, sizeof at);
	return CU_SUCCESS;
}

static CuResult fake_GraphCreate(CuGraph *graph, unsigned flags)
{
	BEGIN("GraphCreate %u", flags);
	*graph = keep("graph", fake->take(1, sizeof **graph), 0);
	return CU_SUCCESS;
}

static CuResult fake_GraphDestroy(CuGraph graph)
{
	CuResult r = call("GraphDestroy");
	drop("graph", graph);
	return r;
}

/* Edges that the kernels themselves wait for: the fake runs nodes in order, so it only has to know them. */
static CuResult fake_GraphAddDependencies(CuGraph graph, const CuGraphNode *from, const CuGraphNode *to,
	const CuGraphEdge *edges, size_t n)
{
	BEGIN("GraphAddDependencies %zu", n);
	for (size_t i = 0; i < n; i++) {
		const CuGraphEdge *e = &edges[i];
		if (e->from_port != CU_KERNEL_PORT_PROGRAMMATIC || e->to_port || e->type != CU_EDGE_PROGRAMMATIC ||
			from[i]->index >= to[i]->index || to[i]->index >= graph->n)
			return broken("graph edge");
		int *deps = fake->take((size_t)to[i]->n_deps + 1, sizeof(int));
		if (to[i]->n_deps)
			memcpy(deps, to[i]->deps, sizeof(int) * (size_t)to[i]->n_deps);
		deps[to[i]->n_deps++] = from[i]->index;
		fake->give(to[i]->deps);
		to[i]->deps = deps;
	}
	return CU_SUCCESS;
}

static CuResult fake_GraphAddKernelNode(CuGraphNode *node, CuGraph graph, const CuGraphNode *deps, size_t n_deps,
	const CuKernelNode *p)
{
	char edges[256] = "";
	for (size_t i = 0, at = 0; i < n_deps && at < sizeof edges; i++)
		at += (size_t)snprintf(edges + at, sizeof edges - at, " %d", deps[i]->index);
	BEGIN("GraphAddKernelNode %d: kernel %d grid %u,%u,%u block %u,%u,%u smem %u after%s", graph->n,
		p->kern->number, p->grid[0], p->grid[1], p->grid[2], p->block[0], p->block[1], p->block[2],
		p->smem_bytes, n_deps ? edges : " nothing");
	if (p->func || p->extra || p->ctx != &the_context || graph->n == MAX_NODES)
		return broken("node parameters");
	struct CuGraphNode_ *made = fake->take(1, sizeof *made);
	*made = (struct CuGraphNode_){.index = graph->n, .kernel = p->kern->number, .asked = *p, .n_deps = (int)n_deps,
		.deps = fake->take(n_deps + 1, sizeof(int))};
	for (size_t i = 0; i < n_deps; i++)
		made->deps[i] = deps[i]->index;
	memcpy(made->params, p->params[0], fake->param_bytes(fake->ctx, p->kern->number));
	graph->nodes[graph->n++] = *node = made;
	return CU_SUCCESS;
}

static CuResult fake_GraphKernelNodeGetParams(CuGraphNode node, CuKernelNode *params)
{
	BEGIN("GraphKernelNodeGetParams %d", node->index);
	*params = node->asked;
	params->params = NULL;
	return CU_SUCCESS;
}

static CuResult fake_KernelGetName(const char **name, CuKernel kernel)
{
	BEGIN("KernelGetName kernel %d", kernel->number);
	*name = kernel->name;
	return CU_SUCCESS;
}

static CuResult fake_FuncGetName(const char **name, void *function)
{
	(void)name, (void)function;
	return broken("a function that is no kernel of a library");
}

static CuResult fake_GraphInstantiateWithFlags(CuGraphExec *exec, CuGraph graph, unsigned long long flags)
{
	BEGIN("GraphInstantiate %llu", flags);
	struct CuGraph_ *copy = fake->take(1, sizeof *copy);
	for (copy->n = 0; copy->n < graph->n; copy->n++) {
		const struct CuGraphNode_ *from = graph->nodes[copy->n];
		struct CuGraphNode_ *to = copy->nodes[copy->n] = fake->take(1, sizeof *to);
		*to = *from;
		to->deps = fake->take((size_t)from->n_deps + 1, sizeof(int));
		memcpy(to->deps, from->deps, sizeof(int) * (size_t)from->n_deps);
	}
	*exec = keep("exec", fake->take(1, sizeof **exec), 0);
	(*exec)->graph = copy;
	return CU_SUCCESS;
}

static CuResult fake_GraphExecDestroy(CuGraphExec exec)
{
	CuResult r = call("GraphExecDestroy");
	drop("exec", exec);
	return r;
}

static CuResult fake_GraphUpload(CuGraphExec exec, CuStream stream)
{
	BEGIN("GraphUpload");
	return exec && stream ? CU_SUCCESS : broken("an upload of nothing");
}

static CuResult fake_GraphLaunch(CuGraphExec exec, CuStream stream)
{
	BEGIN("GraphLaunch of %d nodes", exec->graph->n);
	*push() = (Work){.kind = GRAPH, .graph = exec->graph};
	if (fake->is_eager)
		drain(fake->queue->next);
	return stream ? CU_SUCCESS : broken("the default stream");
}

uint64_t fake_delays(uint64_t seed) { return seed * 0x9E3779B97F4A7C15u; }

void fake_driver_start(FakeDriver *f, Driver *table)
{
	const char *seed = getenv("FAKE_CUDA_DELAYS");
	*f = (FakeDriver){.n_devices = 1, .cc_major = 9, .cc_minor = 0, .smem_optin = 232448, .version = 13000,
		.memory_bytes = (size_t)1 << 34, .delays = fake_delays(seed ? strtoull(seed, NULL, 10) : 0),
		.take = calloc, .give = free, .queue = calloc(1, sizeof *f->queue)};
	fake = f;
#define FAKE_ROW(name, version, args) table->name = fake_##name;
	DRIVER_TABLE(FAKE_ROW)
#undef FAKE_ROW
}

void fake_driver_stop(FakeDriver *f)
{
	end_work_on(&(Object){.kind = "stream"});
	free(f->queue);
	f->queue = NULL;
	fake = NULL;
}
