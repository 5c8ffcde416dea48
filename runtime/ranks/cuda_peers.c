/* cuda_peers.c - each rank makes its arena and gives the others a file descriptor of it.
 *
 * Physical memory lives while any process maps it, so no order of ends is wrong. An arena is zeroed before its
 * descriptor is given away, and nothing is launched before all ranks have written the heads of theirs: no kernel can
 * find a word that is not there yet.
 */
#include "runtime/ranks/cuda_peers.h"
#include "artifacts/hash.h"
#include "artifacts/op_table.h"
#include "artifacts/peers.h"
#include "artifacts/ranks.h"
#include "runtime/device.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CALL(fn, ...) \
	do { \
		const CuResult call_result = road->cu->fn(__VA_ARGS__); \
		if (call_result != CU_SUCCESS) \
			return error_set(error, driver_status(call_result), "cu" #fn " failed (memory of ranks, %s): %s", \
				road->card, driver_error(road->cu, call_result)); \
	} while (0)
#define TRY(expression) \
	do { \
		AtlasStatus try_status = (expression); \
		if (try_status != ATLAS_OK) \
			return try_status; \
	} while (0)

static AtlasStatus compare(const PeerRoad *road, const Nccl *nccl, AtlasError *error)
{
	RankFacts facts = {.driver = 0};
	Sha256 h;
	memcpy(facts.plan, road->artifact->root, sizeof facts.plan);
	sha256_start(&h);
	for (int i = 0; i < road->artifact->ranks.n_phases; i++)
		sha256_add(&h, road->artifact->ranks.phases[i].digest, sizeof road->artifact->ranks.phases[i].digest);
	sha256_end(&h, facts.schedule);
	group_build(facts.build);
	snprintf(facts.card, sizeof facts.card, "%s", road->card);
	CALL(DriverGetVersion, &facts.driver);
	CALL(DeviceGetUuid, facts.gpu, road->device);
	facts.nccl = nccl ? nccl->version : 0;
	return group_compare(road->group, &facts, road->shares_card, error);
}

static AtlasStatus map(const PeerRoad *road, CudaPeers *p, int rank, AtlasError *error)
{
	const CuAccess access = {{CU_LOCATION_DEVICE, road->device}, CU_ACCESS_READ_WRITE};
	CALL(MemAddressReserve, &p->at[rank], p->bytes, 0, 0, 0);
	CALL(MemMap, p->at[rank], p->bytes, 0, p->memory[rank], 0);
	p->is_mapped[rank] = true;
	const CuResult r = road->cu->MemSetAccess(p->at[rank], p->bytes, &access, 1);
	if (r == CU_SUCCESS)
		return ATLAS_OK;
	return error_set(error, ATLAS_NO_DEVICE, "rank %d cannot reach the memory of rank %d (%s): %s", p->rank, rank,
		road->card, driver_error(road->cu, r));
}

static AtlasStatus make_own(const PeerRoad *road, CudaPeers *p, int *fd, AtlasError *error)
{
	const CuMemoryKind kind = {.type = CU_MEMORY_PINNED, .handles = CU_HANDLE_POSIX_FD,
		.location = {CU_LOCATION_DEVICE, road->device}};
	size_t unit = 0;
	CALL(MemGetAllocationGranularity, &unit, &kind, 0);
	unit = unit ? unit : 1;
	p->bytes = ((size_t)road->plan->arena_bytes[ARENA_PEER] + unit - 1) / unit * unit;
	CALL(MemCreate, &p->memory[p->rank], p->bytes, &kind, 0);
	TRY(map(road, p, p->rank, error));
	CALL(MemsetD8Async, p->at[p->rank], 0, p->bytes, road->stream);
	CALL(StreamSynchronize, road->stream);
	if (!group_spans_hosts(road->group))
		CALL(MemExportToShareableHandle, fd, p->memory[p->rank], CU_HANDLE_POSIX_FD, 0);
	return ATLAS_OK;
}

static AtlasStatus take_others(const PeerRoad *road, CudaPeers *p, const int *fds, AtlasError *error)
{
	for (int r = 0; r < p->n; r++) {
		if (r == p->rank)
			continue;
		CALL(MemImportFromShareableHandle, &p->memory[r], (void *)(uintptr_t)fds[r], CU_HANDLE_POSIX_FD);
		TRY(map(road, p, r, error));
	}
	return ATLAS_OK;
}

static AtlasStatus write_head(const PeerRoad *road, CudaPeers *p, AtlasError *error)
{
	void *head;
	CALL(MemHostAlloc, &p->abort, sizeof(uint32_t), DRIVER_HOST_MAPPED);
	*(volatile uint32_t *)p->abort = 0;
	group_set_abort(road->group, p->abort);
	CALL(MemHostAlloc, &head, PEER_FLAGS * sizeof(uint32_t), 0);
	uint32_t *words = memset(head, 0, PEER_FLAGS * sizeof(uint32_t));
	const uint64_t abort = (uint64_t)(uintptr_t)p->abort;
	words[PEER_RANKS] = (uint32_t)p->n;
	words[PEER_RANK] = (uint32_t)p->rank;
	memcpy(&words[PEER_ABORT], &abort, sizeof abort);
	for (int r = 0; r < p->n; r++)
		memcpy(&words[PEER_ARENAS + 2 * r], &p->at[r], sizeof p->at[r]);
	CuResult r = road->cu->MemcpyHtoDAsync(p->at[p->rank], words, PEER_FLAGS * sizeof(uint32_t), road->stream);
	r = r == CU_SUCCESS ? road->cu->StreamSynchronize(road->stream) : r;
	road->cu->MemFreeHost(head);
	return r == CU_SUCCESS ? ATLAS_OK : error_set(error, driver_status(r), "cuMemcpyHtoDAsync failed (memory of ranks, "
		"%s): %s", road->card, driver_error(road->cu, r));
}

/* Ranks on several hosts have no memory of each other. */
static AtlasStatus check_hosts(const PeerRoad *road, AtlasError *error)
{
	for (int p = 0; p < road->plan->n_phases && group_spans_hosts(road->group); p++)
		for (int i = 0; i < road->plan->phases[p].n_launches; i++) {
			const OpKind op = road->plan->phases[p].launches[i].op;
			if (!is_by_nccl(op) && op_operand(op, "peers") >= 0)
				return error_set(error, ATLAS_UNSUPPORTED, "the plan has collectives in the memory of one host (%s, in "
					"phase %s): for ranks that meet at HOST:PORT it is compiled with [parallel] nccl_above = 0",
					op_table[op].name, phase_name(road->plan->phases[p].kind));
		}
	return ATLAS_OK;
}

static AtlasStatus join_nccl(const PeerRoad *road, CudaPeers *p, AtlasError *error)
{
	NcclId id = {{0}};
	if (p->rank == 0)
		TRY(p->nccl->name(p->nccl, &id, error));
	TRY(group_say(road->group, &id, sizeof id, error));
	return p->nccl->join(p->nccl, &id, p->n, p->rank, error);
}

CuResult cuda_peers_sum(const PeerSum *how, const Phase *p, const Launch *l, const CuPtr *arena, const char **call,
	const char **about)
{
	const Buf *part = NULL, *to = NULL;
	const bool gathers = l->op == OP_gather_nccl;
	for (int i = 0; i < l->n_args; i++) {
		part = l->args[i].operand == op_operand(l->op, "part") ? &p->bufs[l->args[i].buf] : part;
		to = l->args[i].operand == op_operand(l->op, gathers ? "all" : "sum") ? &p->bufs[l->args[i].buf] : to;
	}
	const NcclSum s = {arena[part->arena] + (CuPtr)part->offset, arena[to->arena] + (CuPtr)to->offset,
		part->bytes / dtype_bytes(part->dtype), part->dtype, how->stream, gathers};
	return how->graph ? how->nccl->capture(how->nccl, how->cu, how->graph, how->deps, how->n_deps, &s, how->nodes, call,
		about) : how->nccl->sum(how->nccl, &s, call, about);
}

AtlasStatus cuda_peers_open(const PeerRoad *road, CudaPeers *p, AtlasError *error)
{
	int own = -1, fds[PLAN_MAX_RANKS];
	p->n = group_ranks(road->group);
	p->rank = group_rank(road->group);
	for (int r = 0; r < PLAN_MAX_RANKS; r++)
		fds[r] = -1;
	TRY(check_hosts(road, error));
	if (ranks_use_nccl(road->plan))
		TRY(road->nccl->load(road->nccl->file, &p->nccl, error));
	TRY(compare(road, p->nccl, error));
	AtlasStatus s = make_own(road, p, &own, error);
	const bool is_shared = !group_spans_hosts(road->group);
	s = s == ATLAS_OK && is_shared ? group_swap_fds(road->group, own, fds, error) : s;
	s = s == ATLAS_OK && is_shared ? take_others(road, p, fds, error) : s;
	s = s == ATLAS_OK ? write_head(road, p, error) : s;
	for (int r = 0; r < p->n; r++)
		if (fds[r] >= 0 && fds[r] != own)
			close(fds[r]);
	if (own >= 0)
		close(own);
	s = s == ATLAS_OK && p->nccl ? join_nccl(road, p, error) : s;
	return s == ATLAS_OK ? group_barrier(road->group, error) : s;
}

void cuda_peers_close(const Driver *cu, RankGroup *group, CudaPeers *p)
{
	if (!p->n)
		return;
	if (p->nccl)
		p->nccl->close(p->nccl, group_was_lost(group));
	group_set_abort(group, NULL);
	for (int r = 0; r < p->n; r++) {
		if (p->is_mapped[r])
			cu->MemUnmap(p->at[r], p->bytes);
		if (p->at[r])
			cu->MemAddressFree(p->at[r], p->bytes);
		if (p->memory[r])
			cu->MemRelease(p->memory[r]);
	}
	if (p->abort)
		cu->MemFreeHost(p->abort);
	*p = (CudaPeers){.n = 0};
}
