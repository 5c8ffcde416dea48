/* nccl_run.c - kernel_test --nccl FILE: the real library, of one rank, through the runtime's own module.
 *
 * Of one rank NCCL copies, or does nothing in place: what is shown is that the library is found and its version taken,
 * that it accepts the configuration, that a graph gets its node and runs it as often as it is launched, and that
 * communicators begin and end. No kernel of a collective runs.
 */
#include "runtime/ranks/nccl.h"
#include "tests/gpu/kernel_test.h"

#include <stdio.h>
#include <string.h>

enum { BYTES = 1 << 20, TIMES = 6, LAUNCHES = 3 };

/* Does `to` hold BYTES of that value? */
static bool holds(Gpu *g, CuPtr to, uint8_t *host, uint8_t value)
{
	memset(host, 0, BYTES);
	if (!gpu_ok(g, g->driver.MemcpyDtoHAsync(host, to, BYTES, g->stream), "cuMemcpyDtoHAsync") ||
		!gpu_ok(g, g->driver.StreamSynchronize(g->stream), "cuStreamSynchronize"))
		return false;
	for (int i = 0; i < BYTES; i++)
		if (host[i] != value)
			return false;
	return true;
}

/* Nodes of a capture after `deps`; -1: it failed. */
static int captured(Gpu *g, Nccl *n, CuGraph graph, CuGraphNode *nodes, int *n_nodes, const NcclSum *s)
{
	CuGraphNode last[8];
	NcclNodes found = {last, 0, 8};
	const char *call = "", *about = "";
	const CuResult r = n->capture(n, &g->driver, graph, nodes, *n_nodes, s, &found, &call, &about);
	if (r != CU_SUCCESS) {
		printf("%s: %s (%d)\n", call, about, r);
		return -1;
	}
	const bool is_new = found.n != *n_nodes || (found.n && memcmp(last, nodes, sizeof *last * (size_t)found.n) != 0);
	memcpy(nodes, last, sizeof *last * (size_t)found.n);
	*n_nodes = found.n;
	return is_new;
}

static bool graph_runs(Gpu *g, Nccl *n, uint8_t *host)
{
	const CuPtr from = g->memory, to = g->memory + BYTES;
	const NcclSum apart = {from, to, BYTES / 2, DT_bf16, g->stream, false};
	const NcclSum in_place = {to, to, BYTES / 2, DT_bf16, g->stream, false};
	CuGraph graph;
	CuGraphExec exec = NULL;
	CuGraphNode nodes[8];
	int n_nodes = 0;
	bool good = gpu_ok(g, g->driver.GraphCreate(&graph, 0), "cuGraphCreate");
	const int first = good ? captured(g, n, graph, nodes, &n_nodes, &apart) : -1;
	const int second = first < 0 ? -1 : captured(g, n, graph, nodes, &n_nodes, &in_place);
	printf("capture: a sum of %d bytes makes %s, in place %s; %d to wait for\n", BYTES, first > 0 ? "a node" : "none",
		second > 0 ? "a node" : "none", n_nodes);
	good = good && first == 1 && second >= 0 &&
		gpu_ok(g, g->driver.GraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiate");
	for (int i = 0; good && i < LAUNCHES; i++) {
		const unsigned char value = (unsigned char)(0x3c + i);
		good = gpu_ok(g, g->driver.MemsetD8Async(from, value, BYTES, g->stream), "cuMemsetD8Async") &&
			gpu_ok(g, g->driver.MemsetD8Async(to, 0, BYTES, g->stream), "cuMemsetD8Async") &&
			gpu_ok(g, g->driver.GraphLaunch(exec, g->stream), "cuGraphLaunch") && holds(g, to, host, value);
	}
	printf("graph: %d launches, %s\n", LAUNCHES, good ? "equal bits" : "WRONG");
	if (exec)
		g->driver.GraphExecDestroy(exec);
	g->driver.GraphDestroy(graph);
	return good;
}

static bool stream_runs(Gpu *g, Nccl *n, uint8_t *host)
{
	const NcclSum s = {g->memory, g->memory + BYTES, BYTES / 4, DT_f32, g->stream, false};
	const char *call = "", *about = "";
	const bool good = gpu_ok(g, g->driver.MemsetD8Async(s.from, 0x3d, BYTES, g->stream), "cuMemsetD8Async") &&
		gpu_ok(g, g->driver.MemsetD8Async(s.to, 0, BYTES, g->stream), "cuMemsetD8Async") &&
		n->sum(n, &s, &call, &about) == CU_SUCCESS && holds(g, s.to, host, 0x3d);
	printf("stream: %s %s%s\n", good ? "equal bits" : "WRONG", call, about);
	return good;
}

int nccl_run(Gpu *g, const char *file)
{
	AtlasError error = {0};
	uint8_t *host = NULL;
	bool good = gpu_ok(g, g->driver.MemHostAlloc((void **)&host, BYTES, 0), "cuMemHostAlloc");
	for (int i = 0; good && i < TIMES; i++) {
		Nccl *n;
		NcclId id;
		if (nccl_load(file, &n, &error) != ATLAS_OK)
			break;
		if (i == 0)
			printf("NCCL %d.%d.%d\n", n->version / 10000, n->version / 100 % 100, n->version % 100);
		good = n->name(n, &id, &error) == ATLAS_OK && n->join(n, &id, 1, 0, &error) == ATLAS_OK;
		good = good && (i || graph_runs(g, n, host)) && (i || stream_runs(g, n, host));
		n->close(n, i % 2); /* ended, and broken off */
	}
	good = good && !error.text[0];
	printf("%d communicators of one rank: %s %s%s\n", TIMES, good ? "ok" : "FAILED", error.text, g->why);
	if (host)
		g->driver.MemFreeHost(host);
	return good ? 0 : 1;
}
