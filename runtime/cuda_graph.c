/* cuda_graph.c - launches become kernel nodes, their deps edges.
 *
 * In a row of steps the first launches of a step wait for the last ones of the step before: a launch without deps is a
 * first one, a launch that no other waits for a last one. Every launch comes before a last one and after a first one,
 * and kernels that start early wait for their predecessors before they end; so all of a step is done before anything
 * of the next one reads or writes what steps share.
 */
#include "runtime/cuda_graph.h"

#include <stdlib.h>

typedef struct Building {
	const GraphContext *c;
	const Phase *p;
	CuGraph graph;
	CuGraphNode *nodes;        /* [steps * n_launches] */
	CuGraphNode *deps;         /* [n_launches + 1] of the node at hand */
	int *last; int n_last;     /* launches that no other waits for */
	CuGraphNode *from, *to; CuGraphEdge *edges; size_t n_edges; /* programmatic ones, added when all nodes are there */
	const char **call, **about;
} Building;

static CuResult failed(Building *b, CuResult r, const char *call, const char *about)
{
	*b->call = call;
	*b->about = about;
	return r;
}

/* The nodes a launch of this step waits for, into b->deps. */
static int find_deps(const Building *b, int step, const Launch *l)
{
	int n = 0, base = step * b->p->n_launches;
	for (int d = 0; d < l->n_deps; d++)
		b->deps[n++] = b->nodes[base + l->deps[d]];
	for (int d = 0; step > 0 && l->n_deps == 0 && d < b->n_last; d++)
		b->deps[n++] = b->nodes[base - b->p->n_launches + b->last[d]];
	return n;
}

static CuResult add_node(Building *b, int step, int index)
{
	const GraphContext *c = b->c;
	const Launch *l = &b->p->launches[index];
	const Kernel *k = &c->plan->kernels[l->kernel];
	CuGraphNode *made = &b->nodes[step * b->p->n_launches + index];
	ArgImage image;
	void *params[] = {&image};
	CuKernelNode node = {.smem_bytes = (unsigned)k->smem_bytes, .params = params, .kern = c->kernels[l->kernel],
		.ctx = c->context};
	for (int d = 0; d < 3; d++) {
		node.grid[d] = (unsigned)l->grid[d];
		node.block[d] = (unsigned)k->block[d];
	}
	CuResult r = cuda_fill_args(c->cu, c->arena, b->p, l, &image, b->about);
	if (r != CU_SUCCESS)
		return failed(b, r, "cuTensorMapEncodeTiled", *b->about);
	int n = find_deps(b, step, l);
	r = c->cu->GraphAddKernelNode(made, b->graph, b->deps, l->overlaps ? 0 : (size_t)n, &node);
	if (r != CU_SUCCESS)
		return failed(b, r, "cuGraphAddKernelNode", k->name);
	for (int d = 0; l->overlaps && d < n; d++, b->n_edges++) {
		b->from[b->n_edges] = b->deps[d];
		b->to[b->n_edges] = *made;
		b->edges[b->n_edges] = (CuGraphEdge){.from_port = CU_KERNEL_PORT_PROGRAMMATIC, .type = CU_EDGE_PROGRAMMATIC};
	}
	return CU_SUCCESS;
}

static CuResult fill(Building *b, int steps)
{
	for (int s = 0; s < steps; s++)
		for (int i = 0; i < b->p->n_launches; i++) {
			CuResult r = add_node(b, s, i);
			if (r != CU_SUCCESS)
				return r;
		}
	CuResult r = b->n_edges ? b->c->cu->GraphAddDependencies(b->graph, b->from, b->to, b->edges, b->n_edges)
		: CU_SUCCESS;
	return r == CU_SUCCESS ? r : failed(b, r, "cuGraphAddDependencies", phase_name(b->p->kind));
}

/* What a node runs, by the graph's own word. */
static CuResult tell_node(Building *b, int phase, int step, int launch)
{
	const GraphContext *c = b->c;
	CuKernelNode node = {0};
	SeenLaunch seen = {.registers = -1, .static_smem_bytes = -1};
	CuResult r = c->cu->GraphKernelNodeGetParams(b->nodes[step * b->p->n_launches + launch], &node);
	if (r != CU_SUCCESS)
		return failed(b, r, "cuGraphKernelNodeGetParams", phase_name(b->p->kind));
	r = node.func ? c->cu->FuncGetName(&seen.name, node.func) : c->cu->KernelGetName(&seen.name, node.kern);
	if (r != CU_SUCCESS)
		return failed(b, r, node.func ? "cuFuncGetName" : "cuKernelGetName", phase_name(b->p->kind));
	for (int d = 0; d < 3; d++) {
		seen.grid[d] = (int)node.grid[d];
		seen.block[d] = (int)node.block[d];
	}
	seen.smem_bytes = (int)node.smem_bytes;
	c->watch->node(c->watch->ctx, phase, step, launch, &seen);
	return CU_SUCCESS;
}

static CuResult tell_nodes(Building *b, int steps)
{
	CuResult r = CU_SUCCESS;
	for (int s = 0; s < steps; s++)
		for (int i = 0; b->c->watch && i < b->p->n_launches && r == CU_SUCCESS; i++)
			r = tell_node(b, (int)(b->p - b->c->plan->phases), s, i);
	return r;
}

static CuResult instantiate(Building *b, int steps, CuGraphExec *exec)
{
	const Driver *cu = b->c->cu;
	const char *name = phase_name(b->p->kind);
	CuResult r = cu->GraphCreate(&b->graph, 0);
	if (r != CU_SUCCESS)
		return failed(b, r, "cuGraphCreate", name);
	r = fill(b, steps);
	if (r == CU_SUCCESS)
		r = tell_nodes(b, steps);
	if (r == CU_SUCCESS && (r = cu->GraphInstantiateWithFlags(exec, b->graph, 0)) != CU_SUCCESS) {
		*exec = NULL;
		failed(b, r, "cuGraphInstantiate", name);
	}
	if (r == CU_SUCCESS && (r = cu->GraphUpload(*exec, b->c->stream)) != CU_SUCCESS) {
		cu->GraphExecDestroy(*exec);
		*exec = NULL;
		failed(b, r, "cuGraphUpload", name);
	}
	cu->GraphDestroy(b->graph); /* the instance stands alone */
	return r;
}

/* Fills b->last; how many edges there can be at most. */
static size_t find_last(Building *b, int steps)
{
	const Phase *p = b->p;
	size_t n_deps = 0, n_first = 0;
	for (int i = 0; i < p->n_launches; i++) {
		bool is_last = true;
		for (int k = i + 1; k < p->n_launches && is_last; k++)
			for (int d = 0; d < p->launches[k].n_deps; d++)
				is_last &= p->launches[k].deps[d] != i;
		if (is_last)
			b->last[b->n_last++] = i;
		n_deps += (size_t)p->launches[i].n_deps;
		n_first += p->launches[i].n_deps == 0;
	}
	return (size_t)steps * (n_deps + n_first * (size_t)b->n_last);
}

CuResult cuda_graph_build(const GraphContext *c, const Phase *p, int steps, CuGraphExec *exec, const char **call,
	const char **about)
{
	Building b = {.c = c, .p = p, .call = call, .about = about};
	size_t n = (size_t)p->n_launches, all = n * (size_t)steps;
	*exec = NULL;
	b.nodes = malloc((all + n + 1) * sizeof *b.nodes);
	b.last = malloc(n * sizeof *b.last);
	CuResult r = CU_OUT_OF_HOST_MEMORY;
	if (b.nodes && b.last) {
		size_t room = find_last(&b, steps);
		b.deps = b.nodes + all;
		b.from = malloc((2 * room + 1) * sizeof *b.from);
		b.to = b.from ? b.from + room : NULL;
		b.edges = malloc((room + 1) * sizeof *b.edges);
		if (b.from && b.edges)
			r = instantiate(&b, steps, exec);
	}
	free(b.nodes);
	free(b.last);
	free(b.from);
	free(b.edges);
	return r;
}
