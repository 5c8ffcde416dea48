/* receipt_cupti.c - kernels that ran, from CUPTI's activity records.
 *
 * The declarations are our own, as those of the driver: the first 112 bytes of a kernel's record have been the same
 * since CUDA 9, and nothing after them is read. CUPTI calls back without any pointer of ours, from a thread of its
 * own: `listening` is the one mutable object of file scope that the tree has (scripts/check_globals.sh).
 */
#include "runtime/cli/trust/receipt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct KernelRecord { /* CUpti_ActivityKernel4 and later */
	uint32_t kind;
	uint8_t cache_config, shared_config;
	uint16_t registers;
	uint32_t cache_requested, cache_executed;
	uint64_t start, end, completed;
	uint32_t device, context, stream;
	int32_t grid[3], block[3], static_smem_bytes, smem_bytes;
	uint32_t local_bytes, local_total_bytes, correlation;
	int64_t grid_id;
	const char *name;
} KernelRecord;
_Static_assert(offsetof(KernelRecord, grid) == 52 && offsetof(KernelRecord, name) == 104, "the record as CUPTI has it");

enum { KIND_CONCURRENT_KERNEL = 10, FLUSH_FORCED = 1, OLDEST_VERSION = 12, BUFFER_BYTES = 4 << 20 };

typedef int GetVersion(uint32_t *version);
typedef int Register(void (*request)(uint8_t **, size_t *, size_t *),
	void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t));
typedef int Enable(uint32_t kind);
typedef int FlushAll(uint32_t flag);
typedef int NextRecord(uint8_t *buffer, size_t bytes, void **record);
typedef int Dropped(void *context, uint32_t stream, size_t *dropped);

static struct { pthread_mutex_t lock; Listener *listener; } listening = {PTHREAD_MUTEX_INITIALIZER, NULL};

static void *find(void *library, const char *name)
{
	return dlsym(library, name);
}
/* ISO C has no conversion from object to function pointer. */
#define FUNCTION(type, l, name) \
	type *name##_fn; \
	void *name##_at = find((l)->cupti, #name); \
	memcpy(&name##_fn, &name##_at, sizeof name##_fn)

static const char *keep_name(Listener *l, const char *name)
{
	for (int i = 0; i < l->n_names; i++)
		if (strcmp(l->names[i], name) == 0)
			return l->names[i];
	char **names = realloc(l->names, sizeof *names * (size_t)(l->n_names + 1));
	char *copy = strdup(name);
	l->names = names ? names : l->names;
	if (!names || !copy) {
		free(copy);
		return NULL;
	}
	return l->names[l->n_names++] = copy;
}

static void keep(Listener *l, const KernelRecord *r)
{
	if (l->n == l->cap) {
		int cap = l->cap ? 2 * l->cap : 4096;
		RanKernel *ran = realloc(l->ran, sizeof *ran * (size_t)cap);
		if (!ran) {
			l->is_short_of_memory = true;
			return;
		}
		l->ran = ran;
		l->cap = cap;
	}
	const char *name = keep_name(l, r->name ? r->name : "");
	l->is_short_of_memory |= !name;
	l->ran[l->n++] = (RanKernel){.seen = {.name = name ? name : "", .grid = {r->grid[0], r->grid[1], r->grid[2]},
		.block = {r->block[0], r->block[1], r->block[2]}, .smem_bytes = r->smem_bytes, .registers = r->registers,
		.static_smem_bytes = r->static_smem_bytes}, .start_ns = r->start};
}

static void on_request(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
	*buffer = aligned_alloc(8, BUFFER_BYTES);
	*bytes = *buffer ? BUFFER_BYTES : 0;
	*most_records = 0; /* as many as fit */
}

static void on_complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
	(void)bytes;
	pthread_mutex_lock(&listening.lock);
	Listener *l = listening.listener;
	if (l) {
		FUNCTION(NextRecord, l, cuptiActivityGetNextRecord);
		FUNCTION(Dropped, l, cuptiActivityGetNumDroppedRecords);
		size_t dropped = 0;
		for (void *at = NULL; valid && cuptiActivityGetNextRecord_fn(buffer, valid, &at) == 0;)
			if (*(uint32_t *)at == KIND_CONCURRENT_KERNEL)
				keep(l, at);
		if (cuptiActivityGetNumDroppedRecords_fn(context, stream, &dropped) == 0)
			l->dropped += (int64_t)dropped;
	}
	pthread_mutex_unlock(&listening.lock);
	free(buffer);
}

static void *open_library(const char *path)
{
	static const char *const places[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so",
		"/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", "/usr/local/cuda/lib64/libcupti.so"};
	void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	for (size_t i = 0; !path && !library && i < sizeof places / sizeof places[0]; i++)
		library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
	return library;
}

bool listener_start(Listener *l, const char *path, char *why, size_t why_bytes)
{
	static const char *const needed[] = {"cuptiGetVersion", "cuptiActivityRegisterCallbacks", "cuptiActivityEnable",
		"cuptiActivityDisable", "cuptiActivityFlushAll", "cuptiActivityGetNextRecord",
		"cuptiActivityGetNumDroppedRecords"};
	*l = (Listener){.cupti = open_library(path)};
	if (!l->cupti) {
		const char *what = dlerror();
		snprintf(why, why_bytes, "CUPTI cannot be opened: %.200s", path && what ? what : "no libcupti.so is found");
		return false;
	}
	for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
		if (!find(l->cupti, needed[i])) {
			snprintf(why, why_bytes, "CUPTI lacks %s", needed[i]);
			return false;
		}
	FUNCTION(GetVersion, l, cuptiGetVersion);
	FUNCTION(Register, l, cuptiActivityRegisterCallbacks);
	FUNCTION(Enable, l, cuptiActivityEnable);
	if (cuptiGetVersion_fn(&l->version) != 0 || l->version < OLDEST_VERSION) {
		snprintf(why, why_bytes, "CUPTI of version %u: %d or later is needed", l->version, OLDEST_VERSION);
		return false;
	}
	pthread_mutex_lock(&listening.lock);
	listening.listener = l;
	pthread_mutex_unlock(&listening.lock);
	int r = cuptiActivityRegisterCallbacks_fn(on_request, on_complete);
	r = r ? r : cuptiActivityEnable_fn(KIND_CONCURRENT_KERNEL);
	if (r != 0)
		snprintf(why, why_bytes, "CUPTI reports no kernels: its result is %d", r);
	return r == 0;
}

static int by_start(const void *a, const void *b)
{
	const RanKernel *x = a, *y = b;
	return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

bool listener_stop(Listener *l, char *why, size_t why_bytes)
{
	FUNCTION(FlushAll, l, cuptiActivityFlushAll);
	FUNCTION(Enable, l, cuptiActivityDisable);
	int r = cuptiActivityFlushAll_fn(FLUSH_FORCED);
	r = r ? r : cuptiActivityDisable_fn(KIND_CONCURRENT_KERNEL);
	pthread_mutex_lock(&listening.lock);
	listening.listener = NULL;
	pthread_mutex_unlock(&listening.lock);
	if (l->n)
		qsort(l->ran, (size_t)l->n, sizeof *l->ran, by_start);
	if (r != 0)
		snprintf(why, why_bytes, "CUPTI does not hand over its records: its result is %d", r);
	else if (l->dropped || l->is_short_of_memory)
		snprintf(why, why_bytes, "%lld records of kernels were lost", (long long)l->dropped);
	return r == 0 && !l->dropped && !l->is_short_of_memory;
}

void listener_free(Listener *l)
{
	pthread_mutex_lock(&listening.lock);
	listening.listener = listening.listener == l ? NULL : listening.listener;
	pthread_mutex_unlock(&listening.lock);
	for (int i = 0; i < l->n_names; i++)
		free(l->names[i]);
	free(l->names);
	free(l->ran); /* the library stays: its threads run */
	*l = (Listener){0};
}
