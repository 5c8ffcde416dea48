/* estimate.c - the items of the arenas that plan_memory has laid out, and of what the driver will take in addition.
 *
 * No kernel is compiled, so the code of each counts by what kernels have at most.
 */
#include "compiler/plan/estimate.h"
#include "artifacts/memory.h"
#include "artifacts/ranks.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static bool is_new(const Lowered *low, int i, const Lowered *phases)
{
	const Pick *mine = &low->picks.at[i];
	for (const Lowered *p = phases; p <= low; p++)
		for (int k = 0; k < (p == low ? i : p->picks.n); k++) {
			const Pick *other = &p->picks.at[k];
			if (other->template_index == mine->template_index && strcmp(other->defines, mine->defines) == 0)
				return false;
		}
	return true;
}

/* Launches, which are still to be made, are the ops that were lowered; and kernels, where they are, the picks. */
static MemoryLoad load_of(const TargetWork *work)
{
	TargetPlan plan = work->plan;
	MemoryLoad load = {.code_bytes = -1};
	Phase phases[PHASE_KINDS * MAX_BUCKETS];
	for (int p = 0; p < work->phases.n; p++) {
		const Lowered *low = &work->phases.at[p];
		phases[p] = (Phase){.kind = low->kind, .n_launches = low->ops.n};
		for (int i = 0; i < low->picks.n; i++)
			load.n_kernels += is_new(low, i, work->phases.at);
	}
	plan.phases = phases;
	plan.n_phases = work->phases.n;
	const MemoryLoad made = memory_load(&plan);
	load.n_nodes = made.n_nodes;
	return plan.n_kernels ? made : load;
}

static int list_items(const Compile *c, const TargetWork *work, MemoryItem *items)
{
	const MemoryLoad load = load_of(work);
	return memory_items(&c->graph, &work->plan, &load, items);
}

static json_t *json_of(const TargetPlan *p, const MemoryItem *items, int n)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "item", items[i].name, "where",
			items[i].is_on_device ? "device" : "host", "bytes", (json_int_t)items[i].bytes));
	return json_pack("{s:s, s:I, s:o}", "target", p->target, "device_bytes", (json_int_t)memory_on_device(items, n),
		"items", list);
}

/* Collectives of a step of that many rows and outs; how long they take, without what they are launched with. */
static int collectives_of(const Compile *c, PhaseKind kind, int rows, int outs, double *us)
{
	int n = 0;
	*us = 0;
	for (int i = 0; i < c->graph.n_ops; i++) {
		const GraphOp *op = &c->graph.ops[i];
		if (!is_collective(op->kind) || !(op->phases & phase_bit(kind)))
			continue;
		const Tensor *part = &c->graph.tensors[op->operands[0]];
		const int64_t bytes = dtype_span(part->dtype, (part->shape[0] == DIM_OUTS ? outs : rows) * part->shape[1]);
		const int above = c->model.options.nccl_above;
		const bool is_nccl = above >= 0 && bytes > above, has_two = op->kind == OP_sum_ranks && !is_nccl;
		const double one = collective_cost(c->ranks.n, bytes, !is_nccl);
		*us += has_two ? fmin(one, collective_cost(c->ranks.n, bytes, 2)) : one;
		n++;
	}
	return n;
}

static void estimate_collectives(const Compile *c, json_t *list, FILE *out)
{
	const Options *o = &c->model.options;
	const struct { PhaseKind kind; int rows, outs; } steps[] = {{DECODE, 1, 1},
		{DECODE, o->decode[o->n_decode - 1], o->decode[o->n_decode - 1]}, {PREFILL, o->prefill[o->n_prefill - 1], 1}};
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		double us;
		const int n = collectives_of(c, steps[i].kind, steps[i].rows, steps[i].outs, &us);
		if (list)
			json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:f}", "phase", phase_name(steps[i].kind), "rows",
				steps[i].rows, "collectives", n, "us", us));
		else
			fprintf(out, "  %s of %d row%s: %d collectives, about %.2f ms by published times of NVLink\n",
				phase_name(steps[i].kind), steps[i].rows, steps[i].rows == 1 ? "" : "s", n, us / 1e3);
	}
}

/* Is any collective NCCL's? */
static bool has_nccl(const Compile *c)
{
	const Options *o = &c->model.options;
	const int prompt = o->prefill[o->n_prefill - 1], rows = prompt > o->slots ? prompt : o->slots;
	return o->nccl_above >= 0 && ranks_largest_part(&c->graph, rows, o->slots) > o->nccl_above;
}

/* One line for all ranks, since they differ in nothing. */
static void estimate_rank(Compile *c, bool json, FILE *out)
{
	MemoryItem items[MEMORY_MAX_ITEMS];
	char size[32];
	const int n = memory_of_rank(&c->graph, has_nccl(c), items);
	const int64_t all = memory_on_device(items, n);
	if (json) {
		json_t *rank = json_of(&(TargetPlan){.target = ""}, items, n);
		json_t *steps = json_array();
		json_object_del(rank, "target");
		estimate_collectives(c, steps, out);
		json_t *root = json_pack("{s:i, s:i, s:i, s:i, s:o, s:o}", "schema_version", 1,
			"slots", c->graph.slots, "max_context", c->graph.max_context, "ranks", c->ranks.n, "each_rank", rank,
			"steps", steps);
		json_dumpf(root, out, JSON_INDENT(2));
		fputc('\n', out);
		json_decref(root);
		return;
	}
	fprintf(out, "each of %d ranks: %d slots of %d tokens: %s, besides scratch, buffers of collectives and kernels\n",
		c->ranks.n, c->graph.slots, c->graph.max_context, memory_text(all, size));
	for (int i = 0; i < n; i++)
		fprintf(out, "  %-21s %-6s %16lld bytes\n", items[i].name, "device", (long long)items[i].bytes);
	estimate_collectives(c, NULL, out);
}

void estimate_memory(Compile *c, bool json, FILE *out)
{
	if (c->ranks.n) {
		estimate_rank(c, json, out);
		return;
	}
	json_t *targets = json_array();
	for (int w = 0; w < c->work.n; w++) {
		const TargetPlan *p = &c->work.at[w].plan;
		MemoryItem items[MEMORY_MAX_ITEMS];
		char size[32];
		int n = list_items(c, &c->work.at[w], items);
		if (json)
			json_array_append_new(targets, json_of(p, items, n));
		else
			fprintf(out, "%s: %d slots of %d tokens: %s on the device\n", p->target, c->graph.slots,
				c->graph.max_context, memory_text(memory_on_device(items, n), size));
		for (int i = 0; !json && i < n; i++)
			fprintf(out, "  %-21s %-6s %16lld bytes\n", items[i].name, items[i].is_on_device ? "device" : "host",
				(long long)items[i].bytes);
	}
	json_t *root = json_pack("{s:i, s:i, s:i, s:o}", "schema_version", 1, "slots", c->graph.slots, "max_context",
		c->graph.max_context, "targets", targets);
	if (json) {
		json_dumpf(root, out, JSON_INDENT(2));
		fputc('\n', out);
	}
	json_decref(root);
}

void check_budget(Compile *c)
{
	for (int w = c->ranks.n ? -1 : 0; w < c->work.n && c->cmd.memory_budget; w++) {
		MemoryItem items[MEMORY_MAX_ITEMS];
		char largest[160], sizes[2][32];
		const int n = w < 0 ? memory_of_rank(&c->graph, has_nccl(c), items) : list_items(c, &c->work.at[w], items);
		const int64_t need = memory_on_device(items, n);
		const char *of = w < 0 ? arena_printf(&c->scratch, "each of %d ranks", c->ranks.n) : c->work.at[w].plan.target;
		if (need > c->cmd.memory_budget)
			fail_at(&c->diags, A0804, (Loc){0}, "%s: %s on the device%s, the budget is %s; the largest: %s", of,
				memory_text(need, sizes[0]), w < 0 ? " and more" : "", memory_text(c->cmd.memory_budget, sizes[1]),
				memory_largest(items, n, largest, sizeof largest));
	}
}
