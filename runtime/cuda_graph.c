/* cuda_graph.c - launches become kernel nodes, their deps edges.
 *
 * In a row of phases the first launches of one wait for the last ones of that before: a launch without deps is a
 * first one, a launch that no other waits for a last one. Every launch comes before a last one and after a first one,
 * and kernels that start early wait for their predecessors before they end; so all of a phase is done before anything
 * of the next one reads or writes what they share.
 */
#include "runtime/cuda_graph.h"
#include "artifacts/op_table.h"

#include <stdlib.h>

enum { MAX_SUMMED = 16 };

typedef struct Building {
	const GraphContext *c;
	const GraphPart *parts; int n_parts;
	CuGraph graph;
	CuGraphNode *nodes;        /* of all parts, one after the other */
	CuGraphNode *deps;         /* of the node at hand */
	CuGraphNode *last; int n_last; /* nodes of the part before that no other waits for */
	CuGraphNode *from, *to; CuGraphEdge *edges; size_t n_edges; /* programmatic ones, added when all nodes are there */
	CuGraphNode summed[MAX_SUMMED]; /* what the kernel after a sum by NCCL waits for */
	const char **call, **about;
} Building;

static CuResult failed(Building *b, CuResult r, const char *call, const char *about)
{
	*b->call = call;
	*b->about = about;
	return r;
}

/* The nodes a launch waits for, into b->deps; mine: the nodes of its part. */
static int find_deps(const Building *b, const CuGraphNode *mine, const Launch *l)
{
	int n = 0;
	for (int d = 0; d < l->n_deps; d++)
		b->deps[n++] = mine[l->deps[d]];
	for (int d = 0; l->n_deps == 0 && d < b->n_last; d++)
		b->deps[n++] = b->last[d];
	return n;
}

static CuResult add_node(Building *b, const GraphPart *part, CuGraphNode *mine, int index)
{
	const GraphContext *c = b->c;
	const Launch *l = &part->p->launches[index];
	const Kernel *k = &c->plan->kernels[l->kernel];
	CuGraphNode *made = &mine[index];
	ArgImage image;
	void *params[] = {&image};
	CuKernelNode node = {.smem_bytes = (unsigned)k->smem_bytes, .params = params, .kern = c->kernels[l->kernel],
		.ctx = c->context};
	for (int d = 0; d < 3; d++) {
		node.grid[d] = (unsigned)l->grid[d];
		node.block[d] = (unsigned)k->block[d];
	}
	CuResult r = cuda_fill_args(c->cu, part->arena, part->p, l, &image, b->about);
	if (r != CU_SUCCESS)
		return failed(b, r, "cuTensorMapEncodeTiled", *b->about);
	int n = find_deps(b, mine, l);
	const bool is_summed = is_by_nccl(l->op), overlaps = l->overlaps && !is_summed;
	if (is_summed) {
		NcclNodes nodes = {b->summed, 0, MAX_SUMMED};
		r = cuda_peers_sum(&(PeerSum){c->cu, c->nccl, c->stream, b->graph, b->deps, n, &nodes}, part->p, l, part->arena,
			b->call, b->about);
		if (r != CU_SUCCESS)
			return r;
		n = nodes.n;
	}
	r = c->cu->GraphAddKernelNode(made, b->graph, is_summed ? b->summed : b->deps, overlaps ? 0 : (size_t)n, &node);
	if (r != CU_SUCCESS)
		return failed(b, r, "cuGraphAddKernelNode", k->name);
	for (int d = 0; overlaps && d < n; d++, b->n_edges++) {
		b->from[b->n_edges] = b->deps[d];
		b->to[b->n_edges] = *made;
		b->edges[b->n_edges] = (CuGraphEdge){.from_port = CU_KERNEL_PORT_PROGRAMMATIC, .type = CU_EDGE_PROGRAMMATIC};
	}
	return CU_SUCCESS;
}

static bool is_last(const Phase *p, int launch)
{
	for (int k = launch + 1; k < p->n_launches; k++)
		for (int d = 0; d < p->launches[k].n_deps; d++)
			if (p->launches[k].deps[d] == launch)
				return false;
	return true;
}

static CuResult fill(Building *b)
{
	CuGraphNode *mine = b->nodes;
	for (int k = 0; k < b->n_parts; k++) {
		const Phase *p = b->parts[k].p;
		for (int i = 0; i < p->n_launches; i++) {
			CuResult r = add_node(b, &b->parts[k], mine, i);
			if (r != CU_SUCCESS)
				return r;
		}
		b->n_last = 0;
		for (int i = 0; i < p->n_launches; i++)
			if (is_last(p, i))
				b->last[b->n_last++] = mine[i];
		mine += p->n_launches;
	}
	CuResult r = b->n_edges ? b->c->cu->GraphAddDependencies(b->graph, b->from, b->to, b->edges, b->n_edges)
		: CU_SUCCESS;
	return r == CU_SUCCESS ? r : failed(b, r, "cuGraphAddDependencies", phase_name(b->parts[0].p->kind));
}

/* What a node runs, by the graph's own word. */
static CuResult tell_node(Building *b, const Phase *p, CuGraphNode made, int step, int launch)
{
	const GraphContext *c = b->c;
	CuKernelNode node = {0};
	SeenLaunch seen = {.registers = -1, .static_smem_bytes = -1};
	CuResult r = c->cu->GraphKernelNodeGetParams(made, &node);
	if (r != CU_SUCCESS)
		return failed(b, r, "cuGraphKernelNodeGetParams", phase_name(p->kind));
	r = node.func ? c->cu->FuncGetName(&seen.name, node.func) : c->cu->KernelGetName(&seen.name, node.kern);
	if (r != CU_SUCCESS)
		return failed(b, r, node.func ? "cuFuncGetName" : "cuKernelGetName", phase_name(p->kind));
	for (int d = 0; d < 3; d++) {
		seen.grid[d] = (int)node.grid[d];
		seen.block[d] = (int)node.block[d];
	}
	seen.smem_bytes = (int)node.smem_bytes;
	c->watch->node(c->watch->ctx, (int)(p - c->plan->phases), step, launch, &seen);
	return CU_SUCCESS;
}

static CuResult tell_nodes(Building *b)
{
	CuResult r = CU_SUCCESS;
	const CuGraphNode *mine = b->nodes;
	for (int k = 0; b->c->watch && k < b->n_parts; k++) {
		const Phase *p = b->parts[k].p;
		int step = 0;
		for (int i = 0; i < k; i++)
			step += b->parts[i].p == p;
		for (int i = 0; i < p->n_launches && r == CU_SUCCESS; i++)
			r = tell_node(b, p, mine[i], step, i);
		mine += p->n_launches;
	}
	return r;
}

static CuResult instantiate(Building *b, CuGraphExec *exec)
{
	const Driver *cu = b->c->cu;
	const char *name = phase_name(b->parts[b->n_parts - 1].p->kind);
	CuResult r = cu->GraphCreate(&b->graph, 0);
	if (r != CU_SUCCESS)
		return failed(b, r, "cuGraphCreate", name);
	r = fill(b);
	if (r == CU_SUCCESS)
		r = tell_nodes(b);
	if (r == CU_SUCCESS && (r = cu->GraphInstantiateWithFlags(exec, b->graph, 0)) != CU_SUCCESS) {
		*exec = NULL;
		failed(b, r, "cuGraphInstantiate", name);
	}
	if (r == CU_SUCCESS && (r = cu->GraphUpload(*exec, b->c->stream)) != CU_SUCCESS) {
		cu->GraphExecDestroy(*exec);
		*exec = NULL;
		failed(b, r, "cuGraphUpload", name);
	}
	cu->GraphDestroy(b->graph); /* the instance does not need the graph any more */
	return r;
}

/* How many edges there can be at most; the nodes of all parts, and those of the largest. */
static size_t count_edges(const Building *b, size_t *all, size_t *most)
{
	size_t edges = 0, n_last = 0;
	*all = *most = 0;
	for (int k = 0; k < b->n_parts; k++) {
		const Phase *p = b->parts[k].p;
		size_t n = (size_t)p->n_launches, found = 0;
		for (int i = 0; i < p->n_launches; i++) {
			edges += p->launches[i].n_deps ? (size_t)p->launches[i].n_deps : n_last;
			found += is_last(p, i);
		}
		n_last = found;
		*all += n;
		*most = n > *most ? n : *most;
	}
	return edges;
}

CuResult cuda_graph_build(const GraphContext *c, const GraphPart *parts, int n, CuGraphExec *exec, const char **call,
	const char **about)
{
	Building b = {.c = c, .parts = parts, .n_parts = n, .call = call, .about = about};
	size_t all, most, room = count_edges(&b, &all, &most);
	*exec = NULL;
	b.nodes = malloc((all + 2 * most + 1) * sizeof *b.nodes);
	b.from = malloc((2 * room + 1) * sizeof *b.from);
	b.edges = malloc((room + 1) * sizeof *b.edges);
	CuResult r = CU_OUT_OF_HOST_MEMORY;
	if (b.nodes && b.from && b.edges) {
		b.deps = b.nodes + all;
		b.last = b.deps + most;
		b.to = b.from + room;
		r = instantiate(&b, exec);
	}
	free(b.nodes);
	free(b.from);
	free(b.edges);
	return r;
}

bool cuda_is_of_outs(const Phase *p, int first, int launch)
{
	const Launch *l = &p->launches[launch];
	if (op_operand(l->op, "out_row") >= 0)
		return true;
	for (int i = 0; i < l->n_args; i++) {
		const int buf = l->args[i].buf;
		if (buf < 0 || p->bufs[buf].arena != ARENA_SCRATCH ||
			op_table[l->op].operands[l->args[i].operand].role == OPERAND_OUT)
			continue;
		for (int k = p->bufs[buf].first > first ? p->bufs[buf].first : first; k < launch; k++)
			for (int a = 0; a < p->launches[k].n_args; a++)
				if (p->launches[k].args[a].buf == buf && cuda_is_of_outs(p, first, k) && operand_is_written(
						op_table[p->launches[k].op].operands[p->launches[k].args[a].operand].role))
					return true;
	}
	return false;
}

bool cuda_reads_first(const Phase *p, int buf)
{
	for (int l = 0; l < p->n_launches; l++)
		for (int a = 0; a < p->launches[l].n_args; a++)
			if (p->launches[l].args[a].buf == buf)
				return op_table[p->launches[l].op].operands[p->launches[l].args[a].operand].role != OPERAND_OUT;
	return false;
}
