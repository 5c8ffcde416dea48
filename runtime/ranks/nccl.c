/* nccl.c - the few functions of NCCL that collectives need: see nccl.h.
 *
 * Calls block: what makes a rank end while another one is missing is the watching thread (rank_group.c), not NCCL,
 * which has no limit of time. A configuration is written as the newest version known here has it, cut to what the
 * library's own version had: the library trusts size and version.
 */
#include "runtime/ranks/nccl.h"
#include "runtime/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct NcclComm_ *NcclComm;
typedef struct NcclConfig { /* ncclConfig_t of 2.32.3; INT_MIN and NULL: not set */
	size_t size;
	unsigned magic, version;
	int blocking, cga, min_blocks, max_blocks;
	const char *net;
	int shares, traffic;
	const char *name;
	int collnet, policy, shrinks, nvls_blocks; /* 2.27 */
	int net_channels, is_central;              /* 2.28 */
	int graph_usage, rma;                      /* 2.29 */
	int most_peers, graph_order;               /* 2.30 */
	int launch_order, rma_signals, rma_early, host_cft, nvls_hosts; /* 2.32 */
} NcclConfig;
_Static_assert(sizeof(NcclConfig) == 120 && offsetof(NcclConfig, nvls_hosts) == 112, "ncclConfig_t");

enum { NCCL_SUM = 0, NCCL_F32 = 7, NCCL_BF16 = 9, NCCL_OK = 0, BLOCKS = 16, MAGIC = 0xcafebeef, GRAPHS_MANY = 2,
	CAPTURE_RELAXED = 2, CAPTURE_ACTIVE = 1, CU_OF_NCCL = 999 /* CUDA's "unknown error": the text is NCCL's */ };

#define NCCL_TABLE(FN) \
	FN(GetVersion, (int *version)) \
	FN(GetUniqueId, (NcclId *id)) \
	FN(CommInitRankConfig, (NcclComm *comm, int ranks, NcclId id, int rank, NcclConfig *config)) \
	FN(CommDestroy, (NcclComm comm)) \
	FN(CommAbort, (NcclComm comm)) \
	FN(CommGetAsyncError, (NcclComm comm, int *error)) \
	FN(AllReduce, (const void *from, void *to, size_t count, int dtype, int op, NcclComm comm, CuStream stream)) \
	FN(AllGather, (const void *from, void *to, size_t count, int dtype, NcclComm comm, CuStream stream))

typedef struct Library {
	Nccl base;
#define NCCL_FIELD(name, args) int (*name) args;
	NCCL_TABLE(NCCL_FIELD)
#undef NCCL_FIELD
	const char *(*GetLastError)(NcclComm comm);
	const char *(*GetErrorString)(int result);
	NcclComm comm;
	char text[256]; /* of the last failure */
} Library;

static bool find(void *library, const char *name, void *to)
{
	void *at = dlsym(library, name);
	memcpy(to, &at, sizeof at); /* ISO C has no conversion from object to function pointer */
	return at;
}

/* The first function that it lacks; NULL = none. */
static const char *find_all(void *library, Library *n)
{
#define NCCL_ROW(name, args) \
	if (!find(library, "nccl" #name, &n->name)) \
		return "nccl" #name;
	NCCL_TABLE(NCCL_ROW)
#undef NCCL_ROW
	return !find(library, "ncclGetLastError", &n->GetLastError) ? "ncclGetLastError"
		: !find(library, "ncclGetErrorString", &n->GetErrorString) ? "ncclGetErrorString" : NULL;
}

static const char *why(Library *n, int result)
{
	const char *last = n->GetLastError(NULL), *text = n->GetErrorString(result);
	snprintf(n->text, sizeof n->text, "%s%s%s", text ? text : "an unknown error", last && *last ? ": " : "",
		last ? last : "");
	return n->text;
}

static AtlasStatus name_all(Nccl *nccl, NcclId *id, AtlasError *error)
{
	Library *n = (Library *)nccl;
	const int r = n->GetUniqueId(id);
	return r == NCCL_OK ? ATLAS_OK : error_set(error, ATLAS_DEVICE_FAULT, "ncclGetUniqueId failed: %s", why(n, r));
}

static NcclConfig config_of(int version)
{
	static const struct { int since, version; size_t size; } forms[] = {{0, 22703, offsetof(NcclConfig, net_channels)},
		{22800, 22803, offsetof(NcclConfig, graph_usage)}, {22900, 22902, offsetof(NcclConfig, most_peers)},
		{23000, 23004, offsetof(NcclConfig, launch_order)}, {23203, 23203, sizeof(NcclConfig)}};
	NcclConfig c = {.magic = MAGIC, .blocking = 1, .cga = INT_MIN, .min_blocks = BLOCKS, .max_blocks = BLOCKS,
		.shares = INT_MIN, .traffic = INT_MIN, .collnet = 0, .policy = INT_MIN, .shrinks = INT_MIN,
		.nvls_blocks = INT_MIN, .net_channels = INT_MIN, .is_central = INT_MIN, .graph_usage = GRAPHS_MANY,
		.rma = INT_MIN, .most_peers = INT_MIN, .graph_order = INT_MIN, .launch_order = INT_MIN, .rma_signals = INT_MIN,
		.rma_early = INT_MIN, .host_cft = INT_MIN, .nvls_hosts = INT_MAX /* none */};
	for (size_t i = 0; i < sizeof forms / sizeof forms[0] && version >= forms[i].since; i++) {
		c.version = (unsigned)forms[i].version;
		c.size = forms[i].size;
	}
	return c;
}

static AtlasStatus join_all(Nccl *nccl, const NcclId *id, int ranks, int rank, AtlasError *error)
{
	Library *n = (Library *)nccl;
	NcclConfig config = config_of(nccl->version);
	int late = NCCL_OK;
	int r = n->CommInitRankConfig(&n->comm, ranks, *id, rank, &config);
	if (r == NCCL_OK && (r = n->CommGetAsyncError(n->comm, &late)) == NCCL_OK)
		r = late;
	return r == NCCL_OK ? ATLAS_OK : error_set(error, ATLAS_DEVICE_FAULT, "ncclCommInitRankConfig failed: %s",
		why(n, r));
}

static CuResult sum_all(Nccl *nccl, const NcclSum *s, const char **call, const char **about)
{
	Library *n = (Library *)nccl;
	const void *from = (const void *)(uintptr_t)s->from;
	void *to = (void *)(uintptr_t)s->to;
	const int dtype = s->dtype == DT_bf16 ? NCCL_BF16 : NCCL_F32;
	const int r = s->gathers ? n->AllGather(from, to, (size_t)s->count, dtype, n->comm, s->stream)
		: n->AllReduce(from, to, (size_t)s->count, dtype, NCCL_SUM, n->comm, s->stream);
	if (r == NCCL_OK)
		return CU_SUCCESS;
	*call = s->gathers ? "ncclAllGather" : "ncclAllReduce";
	*about = why(n, r);
	return CU_OF_NCCL;
}

static CuResult capture_sum(Nccl *nccl, const Driver *cu, CuGraph graph, const CuGraphNode *deps, int n_deps,
	const NcclSum *s, NcclNodes *nodes, const char **call, const char **about)
{
	const CuGraphNode *found = NULL;
	const CuGraphEdge *edges = NULL;
	unsigned long long id;
	CuGraph same = NULL;
	size_t n_found = 0;
	int state = 0;
	*call = "cuStreamBeginCaptureToGraph";
	*about = "a sum by NCCL";
	CuResult r = cu->StreamBeginCaptureToGraph(s->stream, graph, deps, NULL, (size_t)n_deps, CAPTURE_RELAXED);
	if (r != CU_SUCCESS)
		return r;
	r = sum_all(nccl, s, call, about);
	if (r == CU_SUCCESS) {
		*call = "cuStreamGetCaptureInfo";
		r = cu->StreamGetCaptureInfo(s->stream, &state, &id, &same, &found, &edges, &n_found);
	}
	nodes->n = 0;
	for (size_t i = 0; r == CU_SUCCESS && i < n_found && nodes->n < nodes->room; i++)
		nodes->last[nodes->n++] = found[i];
	if (r == CU_SUCCESS && (state != CAPTURE_ACTIVE || n_found > (size_t)nodes->room))
		r = CU_OF_NCCL;
	same = NULL;
	const CuResult ended = cu->StreamEndCapture(s->stream, &same);
	if (r == CU_SUCCESS && ended != CU_SUCCESS)
		*call = "cuStreamEndCapture";
	return r == CU_SUCCESS ? ended : r;
}

static void close_all(Nccl *nccl, bool was_lost)
{
	Library *n = (Library *)nccl;
	if (n->comm && was_lost)
		n->CommAbort(n->comm);
	else if (n->comm)
		n->CommDestroy(n->comm);
	free(n);
}

AtlasStatus nccl_load(const char *file, Nccl **nccl, AtlasError *error)
{
	const char *path = file ? file : "libnccl.so.2";
	*nccl = NULL;
	const AtlasStatus guarded = nccl_guard(error);
	if (guarded != ATLAS_OK)
		return guarded;
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* for good: it does not support being unloaded */
	if (!library)
		return error_set(error, ATLAS_UNSUPPORTED, "the plan has sums by NCCL, and %s cannot be opened: %s", path,
			dlerror());
	Library *n = calloc(1, sizeof *n);
	if (!n)
		return error_set(error, ATLAS_NO_MEMORY, "no memory for NCCL");
	const char *lacks = find_all(library, n);
	int result = NCCL_OK;
	if (lacks)
		error_set(error, ATLAS_UNSUPPORTED, "%s lacks %s", path, lacks);
	else if ((result = n->GetVersion(&n->base.version)) != NCCL_OK)
		error_set(error, ATLAS_UNSUPPORTED, "ncclGetVersion failed: %s", why(n, result));
	else if (n->base.version < NCCL_VERSION_MIN)
		error_set(error, ATLAS_UNSUPPORTED, "NCCL is of version %d.%d.%d: %d.%d.%d or later is needed",
			n->base.version / 10000, n->base.version / 100 % 100, n->base.version % 100, NCCL_VERSION_MIN / 10000,
			NCCL_VERSION_MIN / 100 % 100, NCCL_VERSION_MIN % 100);
	else
		*nccl = &n->base;
	if (!*nccl) {
		free(n);
		return error ? error->status : ATLAS_UNSUPPORTED;
	}
	n->base = (Nccl){n->base.version, name_all, join_all, sum_all, capture_sum, close_all};
	return ATLAS_OK;
}
