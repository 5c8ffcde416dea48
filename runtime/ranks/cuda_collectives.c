/* cuda_collectives.c - how long the collectives of a step take on their own.
 *
 * Inside the graph of a step nothing can be timed, and nothing may come between its launches. So the launches that
 * wait for other ranks become a graph of their own, one after the other as in the step, on the step's own buffers; all
 * ranks launch it as often, and events come before and after. What this leaves out: that ranks come to a collective
 * at different moments, and what a step overlaps with it.
 */
#include "artifacts/op_table.h"
#include "runtime/cuda_graph.h"
#include "runtime/ranks/rank_device.h"

#include <stdlib.h>

enum { WARM = 2 };

static CuResult time_graph(const CudaView *v, CuGraphExec exec, int reps, double *us)
{
	CuEvent at[2] = {NULL, NULL};
	float ms = 0;
	CuResult r = CU_SUCCESS;
	for (int i = 0; i < 2 && r == CU_SUCCESS; i++)
		r = v->cu->EventCreate(&at[i], 0);
	for (int i = 0; i < WARM + reps && r == CU_SUCCESS; i++) {
		if (i == WARM)
			r = v->cu->EventRecord(at[0], v->stream);
		r = r == CU_SUCCESS ? v->cu->GraphLaunch(exec, v->stream) : r;
	}
	r = r == CU_SUCCESS ? v->cu->EventRecord(at[1], v->stream) : r;
	r = r == CU_SUCCESS ? v->cu->EventSynchronize(at[1]) : r;
	r = r == CU_SUCCESS ? v->cu->EventElapsedTime(&ms, at[0], at[1]) : r;
	for (int i = 0; i < 2; i++)
		if (at[i])
			v->cu->EventDestroy(at[i]);
	*us = 1e3 * (double)ms / reps;
	return r;
}

int phase_collectives(const Phase *p)
{
	int n = 0;
	for (int i = 0; i < p->n_launches; i++)
		n += op_operand(p->launches[i].op, "peers") >= 0;
	return n;
}

AtlasStatus cuda_collectives(Device *d, int phase, int reps, double *us)
{
	CudaView v;
	CuContext popped;
	AtlasStatus s = d->ops->wait(d);
	if (s != ATLAS_OK)
		return s;
	if (!cuda_view(d, &v))
		return error_set(&d->error, ATLAS_UNSUPPORTED, "device %s has no graphs to time", d->ops->kind);
	const Phase *p = &v.plan->phases[phase];
	const int n = phase_collectives(p);
	Launch *chain = calloc((size_t)n + 1, sizeof *chain);
	int *before = calloc((size_t)n + 1, sizeof *before), k = 0;
	if (!chain || !before) {
		free(chain);
		free(before);
		return error_set(&d->error, ATLAS_NO_MEMORY, "no memory for %d collectives", n);
	}
	for (int i = 0; i < p->n_launches; i++)
		if (op_operand(p->launches[i].op, "peers") >= 0) {
			chain[k] = p->launches[i];
			before[k] = k - 1;
			chain[k].deps = &before[k];
			chain[k].n_deps = k > 0;
			k++;
		}
	Phase alone = *p;
	alone.launches = chain;
	alone.n_launches = n;
	const GraphContext context = {v.cu, v.plan, v.kernels, v.context, v.stream, v.nccl, NULL};
	const GraphPart part = {&alone, v.arena};
	const char *call = "cuGraphLaunch", *about = "collectives";
	CuGraphExec exec = NULL;
	double took = 0;
	CuResult r = v.cu->CtxPushCurrent(v.context);
	if (r == CU_SUCCESS) {
		r = n ? cuda_graph_build(&context, &part, 1, &exec, &call, &about) : CU_SUCCESS;
		if (r == CU_SUCCESS && n)
			r = time_graph(&v, exec, reps, &took);
		if (exec)
			v.cu->GraphExecDestroy(exec);
		v.cu->CtxPopCurrent(&popped);
	}
	free(chain);
	free(before);
	*us = took;
	return r == CU_SUCCESS ? ATLAS_OK : error_set(&d->error, r == CU_OUT_OF_HOST_MEMORY ? ATLAS_NO_MEMORY
		: driver_status(r), "%s failed (%s): %d", call, about, (int)r);
}
