/* fake_libnccl.c - NCCL for the fake driver: processes meet in shared memory and add in the order of ranks.
 *
 * It holds ranks to what NCCL asks for: the same calls in the same order, with equal counts and types (else result 5),
 * a configuration that its version knows, nothing after an abort. In the environment: FAKE_NCCL_VERSION (23203);
 * FAKE_NCCL_FAIL "K" or "K@R": the K-th call of each process, or of rank R's from its joining on, fails with result 2;
 * FAKE_NCCL_DIE the same, but the process is killed; FAKE_NCCL_LOG: a file to which each call's name is added;
 * FAKE_NCCL_TAKES: bytes of the device for each channel of a communicator. It waits for ever for a rank that does not
 * come, as NCCL does.
 */
#include "artifacts/numbers.h"
#include "runtime/ranks/nccl.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { MOST_RANKS = 8, MOST_CALLS = 4096, MOST_BYTES = 1 << 20 };

typedef struct World {
	_Atomic int joined;
	_Atomic uint64_t asked[MOST_CALLS]; /* count and type of the i-th sum that is asked for */
	_Atomic uint32_t shown[MOST_RANKS]; /* sums that a rank has begun to make */
	uint8_t part[2][MOST_RANKS][MOST_BYTES];
} World;

typedef struct Comm {
	World *w;
	int n, rank, asked;
	uint32_t made;
	bool is_over;
	CuPtr buffers;
} Comm;

typedef struct Config { size_t size; unsigned magic, version; int blocking, cga, min_blocks, max_blocks; } Config;

static int n_calls, own_rank = -1;
static char last_error[128];

/* Is this the call that the variable says? "K" or "K@R". */
static bool is_due(const char *name)
{
	int call = 0, rank = -1;
	const char *text = getenv(name);
	return text && sscanf(text, "%d@%d", &call, &rank) >= 1 && call == n_calls && (rank < 0 || rank == own_rank);
}

static int begin(const char *name)
{
	const char *log = getenv("FAKE_NCCL_LOG");
	n_calls++;
	FILE *f = log ? fopen(log, "ab") : NULL;
	if (f) {
		fprintf(f, "%s\n", name);
		fclose(f);
	}
	if (is_due("FAKE_NCCL_DIE"))
		kill(getpid(), SIGKILL);
	if (!is_due("FAKE_NCCL_FAIL"))
		return 0;
	snprintf(last_error, sizeof last_error, "%s was made to fail", name);
	return 2;
}
#define BEGIN(name) \
	do { \
		const int begin_result = begin(name); \
		if (begin_result) \
			return begin_result; \
	} while (0)

static int misused(const char *what)
{
	snprintf(last_error, sizeof last_error, "%s", what);
	return 5;
}

EXPORT int ncclGetVersion(int *version)
{
	BEGIN("ncclGetVersion");
	*version = getenv("FAKE_NCCL_VERSION") ? atoi(getenv("FAKE_NCCL_VERSION")) : 23203;
	return 0;
}

EXPORT int ncclGetUniqueId(NcclId *id)
{
	BEGIN("ncclGetUniqueId");
	memset(id, 0, sizeof *id);
	snprintf(id->bytes, sizeof id->bytes, "/atlas-fake-nccl-%d", (int)getpid());
	return 0;
}

/* Of the driver that the process has opened; NULL = there is none. */
static void *driver_call(const char *name)
{
	CuResult (*find)(const char *, void **, int, uint64_t, int *);
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *fn = NULL;
	void *at = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
	int status;
	memcpy(&find, &at, sizeof at);
	return at && find(name, &fn, 13000, 0, &status) == CU_SUCCESS ? fn : NULL;
}

static CuResult take(Comm *c, int channels)
{
	const char *each = getenv("FAKE_NCCL_TAKES");
	CuResult (*alloc)(CuPtr *, size_t);
	void *at = each ? driver_call("cuMemAlloc") : NULL;
	memcpy(&alloc, &at, sizeof at);
	return at ? alloc(&c->buffers, (size_t)channels * (size_t)atoll(each)) : CU_SUCCESS;
}

static void give(const Comm *c)
{
	CuResult (*release)(CuPtr);
	void *at = c->buffers ? driver_call("cuMemFree") : NULL;
	memcpy(&release, &at, sizeof at);
	if (at)
		release(c->buffers);
}

EXPORT int ncclCommInitRankConfig(Comm **comm, int n, NcclId id, int rank, const Config *config)
{
	own_rank = rank;
	BEGIN("ncclCommInitRankConfig");
	if (config->magic != 0xcafebeef || config->blocking != 1 || config->min_blocks != config->max_blocks ||
		config->size < 72 || config->size > 120)
		return misused("a configuration that is none");
	if (strcmp(getenv("NCCL_ALGO"), "Ring") != 0 || strcmp(getenv("NCCL_NVLS_ENABLE"), "0") != 0)
		return misused("an environment that decides nothing");
	const int fd = shm_open(id.bytes, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(World)) != 0)
		return 2;
	Comm *c = calloc(1, sizeof *c);
	*c = (Comm){mmap(NULL, sizeof(World), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), n, rank, 0, 0, false, 0};
	close(fd);
	atomic_fetch_add(&c->w->joined, 1);
	while (atomic_load(&c->w->joined) < n)
		usleep(100);
	shm_unlink(id.bytes);
	*comm = c;
	return take(c, config->min_blocks) == CU_SUCCESS ? 0 : 1;
}

EXPORT int ncclCommGetAsyncError(Comm *c, int *error)
{
	BEGIN("ncclCommGetAsyncError");
	*error = c->is_over ? 5 : 0;
	return 0;
}

static int end(Comm *c)
{
	give(c);
	munmap(c->w, sizeof *c->w);
	free(c);
	return 0;
}

EXPORT int ncclCommDestroy(Comm *c)
{
	BEGIN("ncclCommDestroy");
	return end(c);
}

EXPORT int ncclCommAbort(Comm *c)
{
	BEGIN("ncclCommAbort");
	return end(c);
}

EXPORT const char *ncclGetErrorString(int result) { return result == 5 ? "invalid usage" : "unhandled system error"; }
EXPORT const char *ncclGetLastError(const Comm *c)
{
	(void)c;
	return last_error;
}

typedef struct Sum { Comm *comm; const void *from; void *to; size_t count; int dtype; bool gathers; } Sum;

static float at(const void *from, size_t i, int dtype)
{
	float f;
	if (dtype == 7) {
		memcpy(&f, (const char *)from + 4 * i, 4);
	} else {
		const uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
		memcpy(&f, &bits, 4);
	}
	return f;
}

static void put(void *to, size_t i, int dtype, float f)
{
	uint32_t bits;
	memcpy(&bits, &f, 4);
	if (dtype == 7)
		memcpy((char *)to + 4 * i, &f, 4);
	else
		((uint16_t *)to)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void make_sum(void *params)
{
	const Sum *s = params;
	Comm *c = s->comm;
	const size_t bytes = s->count * (s->dtype == 7 ? 4 : 2);
	uint8_t (*part)[MOST_BYTES] = c->w->part[c->made & 1];
	if (bytes > MOST_BYTES)
		abort();
	memcpy(part[c->rank], s->from, bytes);
	atomic_store(&c->w->shown[c->rank], ++c->made);
	for (int r = 0; r < c->n; r++)
		while ((int32_t)(atomic_load(&c->w->shown[r]) - c->made) < 0)
			usleep(20);
	for (int r = 0; r < c->n && s->gathers; r++)
		memcpy((char *)s->to + (size_t)r * bytes, part[r], bytes);
	for (size_t i = 0; i < s->count && !s->gathers; i++) {
		float sum = at(part[0], i, s->dtype);
		for (int r = 1; r < c->n; r++)
			sum += at(part[r], i, s->dtype);
		put(s->to, i, s->dtype, sum);
	}
}

static int add(const Sum *s, int op, CuStream stream)
{
	Comm *c = s->comm;
	const int dtype = s->dtype;
	bool (*on_stream)(void (*fn)(void *), const void *params, size_t n);
	uint64_t none = 0;
	const uint64_t asked = (uint64_t)s->count << 9 | (uint64_t)s->gathers << 8 | (uint64_t)dtype;
	if (c->is_over || op != 0 || (dtype != 7 && dtype != 9) || !stream || c->asked == MOST_CALLS)
		return misused("a sum of what is none");
	_Atomic uint64_t *same = &c->w->asked[c->asked++];
	if (!atomic_compare_exchange_strong(same, &none, asked) && none != asked)
		return misused("ranks ask for different sums");
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *found = library ? dlsym(library, "cuAtlasFakeCall")
		: NULL;
	if (!found)
		return misused("the driver is not the fake one");
	memcpy(&on_stream, &found, sizeof found);
	on_stream(make_sum, s, sizeof *s);
	return 0;
}

EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int dtype, int op, Comm *c, CuStream stream)
{
	BEGIN("ncclAllReduce");
	return add(&(Sum){c, from, to, count, dtype, false}, op, stream);
}

EXPORT int ncclAllGather(const void *from, void *to, size_t count, int dtype, Comm *c, CuStream stream)
{
	BEGIN("ncclAllGather");
	return add(&(Sum){c, from, to, count, dtype, true}, 0, stream);
}
