/* twice_check.c - facts that a plan states in two places, or that follow from others.
 *
 * Every such fact of plan.h, and where it is compared:
 *
 *   Section.hash, leaves, Weight.hash      the bytes                                plan_read.c, seal.c
 *   name of plan.T, audit.T, candidates.T  TargetPlan.target, cc_major, cc_minor    plan_read.c, plan_check.c
 *   bytes of weights and buffers           dtype and shape                          plan_check.c
 *   max_pages, pages                       max_context, verify_rows, page           plan_check.c
 *   verify_rows, slots; Phase.each         the graph's ladder                       plan_check.c
 *   Tensor.weight, n_weights, dtype        bytes, dtypes and offsets of the weights plan_check.c
 *   Cut; digest, row_bytes of RankPhase    shapes of tensors and weights; the graph  rank_check.c, plan_check.c
 *   inputs, outputs, state of slots        frame_table; operands of their names     plan_check.c
 *   shapes of operands                     the op's row in ops.h                    shape_check.c
 *   GraphOp.attrs page; n_valid            graph.page; columns of the logits        shape_check.c; here
 *   stop_tokens; ids of a draft vocabulary bytes of the weights with them; vocab    here
 *   snapshots                              ops zero_slots, pages of slots           here
 *   the page table of windows              slots, pages of their caches             here; plan_check.c
 *   options runtime.*, kv.page, family     the graph                                here
 *   Buf name, dtype, shape, arena          its tensor's; in each phase one place    plan_check.c
 *   Buf.first, last                        the launches that touch it               use_check.c
 *   arena_bytes                            ends of the buffers; weight_arena_bytes  use_check.c, plan_check.c
 *   Buf.offset of weights, Arg.buf         what the graph's ops read and write      meaning_check.c
 *   Launch.layer                           layer of the ops that it stands for      use_check.c, meaning_check.c
 *   Launch.produces_layer                  tensor lN.out, which it writes           plan_check.c
 *   Launch.deps, overlaps, Arg.early       which launches touch the same bytes      hazard_check.c
 *   Launch.grid, maps, work                the contract, of the kernel's constants  contract_check.c
 *   Kernel.block, smem_bytes               the contract                             contract_check.c
 *   Kernel.entry, param_bytes, registers,  the cubin                                plan_check.c
 *     spill_bytes, static_smem_bytes
 *   field_offset of arguments and maps     param_bytes: they fill the struct        plan_check.c
 *   constants that are attributes          attributes of the layer's ops; Phase.each contract_check.c
 *   Slot: op, phase, rows, outs, each, chosen  launches and kernels that name it        plan_check.c, contract_check.c
 *   Slot.operands, attrs                   buffers and kernel of the launch         contract_check.c
 *   Slot.layer_first, layer_last           layers of its launches                   here
 *
 * What nothing can be compared with, and why:
 *
 *   which of two cubins of one template    Cubins do not state their constants. With equal entry, registers and memory
 *                                          they differ in code alone: `atlas verify --rebuild` compiles them again
 *   bytes of two equal weights             Only the hashes say which is which, and who signed them
 *   places of scratch, io and state        Any that overlap nowhere are right; the host and all launches read them here
 *   names of results without a buffer      They are for people
 *   results that nothing reads             Which of two is which (log probabilities of drafts) makes no difference
 *   order of launches, of ops              Any that the edges, and writes before reads, allow is right
 *   costs and reasons of the ledger        What the compiler thought
 *   smem_block_bytes, n_sms                The reader knows no GPUs; a kernel that asks for too much does not load, and
 *                                          by any count of multiprocessors the same is computed
 *   sampling defaults, bos_token           generation_config.json is not in the plan
 */
#include "artifacts/memory.h"
#include "artifacts/reader.h"
#include "artifacts/rolling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSE(...) why_not(why, READ_MALFORMED, __VA_ARGS__)

/* Ints of a weight of that many dims that the compiler made; NULL where its bytes are elsewhere. */
static const uint8_t *ints_of(const Artifact *a, int tensor, int n_dims, int64_t *n)
{
	const Graph *g = &a->graph;
	const Tensor *t = tensor < 0 ? NULL : &g->tensors[tensor];
	if (!t || t->role != ROLE_WEIGHT || t->dtype != DT_i32 || t->n_dims != n_dims ||
		!artifact_holds_weight(a, t->weight))
		return NULL;
	*n = t->shape[0];
	return a->file + artifact_section(a, "weights")->offset + g->weights[t->weight].offset;
}

static int32_t int_at(const uint8_t *p) { return (int32_t)little_endian(p); }

static bool check_stop_tokens(const Artifact *a, int op, int tensor, Why *why)
{
	const Graph *g = &a->graph;
	int64_t n;
	const uint8_t *at = ints_of(a, tensor, 1, &n);
	bool same = !at || n == g->n_stop_tokens;
	for (int i = 0; at && same && i < g->n_stop_tokens; i++)
		same = int_at(at + 4 * i) == g->stop_tokens[i];
	return same || REFUSE("graph op %d (%s): %s does not hold the %d stop tokens of the graph", op,
		op_table[g->ops[op].kind].name, g->tensors[tensor].name, g->n_stop_tokens);
}

/* Token ids of columns, ascending. */
static bool check_ids(const Artifact *a, int op, int tensor, Why *why)
{
	const Graph *g = &a->graph;
	int64_t n = 0;
	const uint8_t *at = ints_of(a, tensor, 1, &n);
	for (int64_t i = 0, before = -1; at && i < n; before = int_at(at + 4 * i), i++)
		if (int_at(at + 4 * i) <= before || int_at(at + 4 * i) >= g->vocab)
			return REFUSE("graph op %d (%s): %s: id %d after %lld: expected ascending ids below %d", op,
				op_table[g->ops[op].kind].name, g->tensors[tensor].name, int_at(at + 4 * i), (long long)before,
				g->vocab);
	return true;
}

/* Kernels look up pages here without a check of their own. */
static bool check_rolling_table(const Artifact *a, Why *why)
{
	const Graph *g = &a->graph;
	const Rolling r = rolling_of(g);
	int64_t slots = 0;
	const uint8_t *at = ints_of(a, r.table, 2, &slots);
	if (r.table < 0)
		return true;
	if (!at)
		return REFUSE("tensor %s: its bytes are not in the plan", g->tensors[r.table].name);
	for (int64_t i = 0, n = slots * g->max_pages; i < n; i++)
		if (int_at(at + 4 * i) != i / g->max_pages * r.pages + i % g->max_pages % r.pages)
			return REFUSE("tensor %s: entry %lld is %d: expected the pages of each slot in turn, %d of them",
				g->tensors[r.table].name, (long long)i, int_at(at + 4 * i), r.pages);
	return true;
}

static bool check_op(const Artifact *a, int index, Why *why)
{
	const Graph *g = &a->graph;
	const GraphOp *op = &g->ops[index];
	const int stops = op_operand(op->kind, "stop_tokens"), ids = op_operand(op->kind, "ids");
	const int logits = op_operand(op->kind, "logits");
	if (op_has_attr(op->kind, "N_VALID") && logits >= 0 && (op->attrs.n_valid < 1 ||
		op->attrs.n_valid > g->tensors[op->operands[logits]].shape[1]))
		return REFUSE("graph op %d (%s): N_VALID = %d of %lld columns", index, op_table[op->kind].name,
			op->attrs.n_valid, (long long)g->tensors[op->operands[logits]].shape[1]);
	return (stops < 0 || check_stop_tokens(a, index, op->operands[stops], why)) &&
		(ids < 0 || check_ids(a, index, op->operands[ids], why));
}

static bool check_options(const Artifact *a, Why *why)
{
	const Graph *g = &a->graph;
	const struct { const char *name; int value; } numbers[] = {{"runtime.slots", g->slots},
		{"runtime.max_context", g->max_context}, {"kv.page", g->page}};
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		const char *option = artifact_option(a, numbers[i].name);
		char text[16];
		snprintf(text, sizeof text, "%d", numbers[i].value);
		if (option && strcmp(option, text) != 0)
			return REFUSE("option %s = %.40s: the graph has %s", numbers[i].name, option, text);
	}
	const int64_t most = (int64_t)1 << 42, bytes = snapshot_bytes(g);
	if (g->snapshots && (!bytes || bytes > most / g->snapshots))
		return REFUSE("graph: %d snapshots of %lld bytes: at most 4 TiB expected, none of no states", g->snapshots,
			(long long)bytes);
	const char *family = artifact_option(a, "model.family");
	return !family || strcmp(family, g->family) == 0 ||
		REFUSE("option model.family = %.40s: the graph's family is %.40s", family, g->family);
}

/* Each decision is of launches from its first layer to its last. */
bool check_ledger_layers(const Artifact *a, int target, Why *why)
{
	const TargetPlan *t = &a->targets[target];
	const int n = a->n_ledger[target];
	int (*layers)[2] = malloc(sizeof *layers * ((size_t)n + 1));
	if (!layers)
		return why_not(why, READ_NO_MEMORY, "no memory to compare %d decisions", n);
	for (int i = 0; i < n; i++)
		layers[i][0] = PLAN_MAX_LAYERS + 1, layers[i][1] = -2;
	for (int p = 0; p < t->n_phases; p++)
		for (int i = 0; i < t->phases[p].n_launches; i++) {
			const Launch *l = &t->phases[p].launches[i];
			int *of = layers[l->slot];
			of[0] = l->layer < of[0] ? l->layer : of[0];
			of[1] = l->layer > of[1] ? l->layer : of[1];
		}
	bool good = true;
	for (int i = 0; i < n && good; i++) {
		const Slot *s = &a->ledger[target][i];
		good = (layers[i][0] == s->layer_first && layers[i][1] == s->layer_last) || (layers[i][1] < -1
			? REFUSE("ledger entry %d (%s): it has no launch", i, op_table[s->op].name)
			: REFUSE("ledger entry %d (%s): layers %d to %d, its launches are in layers %d to %d",
				i, op_table[s->op].name,
				s->layer_first, s->layer_last, layers[i][0], layers[i][1]));
	}
	free(layers);
	return good;
}

bool check_graph_twice(const Artifact *a, Why *why)
{
	for (int i = 0; i < a->graph.n_ops; i++)
		if (!check_op(a, i, why))
			return false;
	return check_rolling_table(a, why) && check_options(a, why);
}
