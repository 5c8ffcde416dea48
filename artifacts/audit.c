/* audit.c - print a plan's launches with the decisions that chose them.
 *
 * The launches are the truth, the ledger says why: each launch names its entry, the entry its chosen candidate.
 * A phase is printed as runs of layers: the launches of one layer are listed together, and a layer whose launches
 * equal those of the layer before belongs to its run.
 */
#include "artifacts/audit.h"
#include "artifacts/formats.h"
#include "artifacts/hash.h"
#include "artifacts/json_put.h"
#include "artifacts/memory.h"
#include "artifacts/ranks.h"
#include "artifacts/op_table.h"
#include "artifacts/order.h"

#include <inttypes.h>
#include <string.h>

typedef struct Run { /* launches [first, first + n) of each of the layers [layer, last_layer] */
	int first, n, layer, last_layer;
} Run;

static int layer_end(const Phase *p, int i)
{
	int layer = p->launches[i].layer;
	while (i < p->n_launches && p->launches[i].layer == layer)
		i++;
	return i;
}

static bool same_launch(const Launch *a, const Launch *b)
{
	return a->op == b->op && a->kernel == b->kernel && memcmp(a->grid, b->grid, sizeof a->grid) == 0;
}

/* The run that starts at launch i; *next is the launch after it. */
static Run run_at(const Phase *p, int i, int *next)
{
	int end = layer_end(p, i);
	Run r = {i, end - i, p->launches[i].layer, p->launches[i].layer};
	while (end < p->n_launches && p->launches[end].layer == r.last_layer + 1 &&
		layer_end(p, end) - end == r.n) {
		int k = 0;
		while (k < r.n && same_launch(&p->launches[i + k], &p->launches[end + k]))
			k++;
		if (k < r.n)
			break;
		r.last_layer++;
		end += r.n;
	}
	*next = end;
	return r;
}

const Candidate *audit_chosen(const Slot *s)
{
	for (int i = 0; i < s->n_candidates; i++)
		if (s->candidates[i].verdict == CHOSEN)
			return &s->candidates[i];
	return NULL;
}

void audit_layers(const Artifact *a, int first, int last, char text[32])
{
	if (first < 0 || first >= a->graph.n_layers)
		snprintf(text, 32, first < 0 ? "start" : "end");
	else
		snprintf(text, 32, first == last ? "%d" : "%d-%d", first, last);
}

static bool is_shown(const Phase *p, const AuditOptions *o)
{
	return !o->phase || strcmp(o->phase, phase_name(p->kind)) == 0 || strcmp(o->phase, PHASE_LABEL(p)) == 0;
}

/* -1 and n_layers for "start" and "end"; false for what is no layer. */
static bool layer_number(const Artifact *a, const char *text, int *layer)
{
	char rest;
	*layer = strcmp(text, "start") == 0 ? -1 : a->graph.n_layers;
	return strcmp(text, "start") == 0 || strcmp(text, "end") == 0 ||
		(sscanf(text, "%d%c", layer, &rest) == 1 && *layer >= 0 && *layer < a->graph.n_layers);
}

static bool is_layer_shown(const Artifact *a, int first, int last, const AuditOptions *o)
{
	int layer;
	return !o->layer || (layer_number(a, o->layer, &layer) && layer >= first && layer <= last);
}

bool audit_has(const Artifact *a, const AuditOptions *o)
{
	for (int i = 0; i < a->n_targets; i++)
		for (int p = 0; p < a->targets[i].n_phases; p++) {
			const Phase *phase = &a->targets[i].phases[p];
			if ((o->target && strcmp(o->target, a->targets[i].target) != 0) || !is_shown(phase, o))
				continue;
			for (int k = 0; k < phase->n_launches; k++)
				if (is_layer_shown(a, phase->launches[k].layer, phase->launches[k].layer, o))
					return true;
		}
	return false;
}

static bool has_target(const Artifact *a, const AuditOptions *o)
{
	for (int i = 0; i < a->n_targets; i++)
		if (o->target && strcmp(a->targets[i].target, o->target) == 0)
			return true;
	return !o->target;
}

static const char *option_or(const Artifact *a, const char *what, const TargetPlan *t, const char *which,
	const char *none)
{
	const char *text = artifact_option_of(a, what, t->target, which);
	return text ? text : none;
}

/* Kernels that atlas tune would time. */
static int n_candidates(const Artifact *a, int target) { return a->candidates ? a->candidates[target].n_kernels : 0; }

/* Text --------------------------------------------------------------------------------------------- */

const char *audit_place(const Artifact *a, const Candidate *c)
{
	for (int i = 0; i < a->n_contracts; i++) {
		const ContractTerm *t = strcmp(a->contracts[i].name, c->kernel) == 0 ? contract_predicate(&a->contracts[i],
			c->predicate) : NULL;
		if (t)
			return t->name;
	}
	return "";
}

/* The rest of a line about one that was not chosen: its name, then why. */
static void text_other(const Artifact *a, const Candidate *c, FILE *out)
{
	const char *at = audit_place(a, c);
	fprintf(out, " %s%s%s", c->kernel, c->tunables[0] ? " " : "", c->tunables);
	if (!c->reason[0] || c->verdict == PRUNED) /* what the contract's preference costs */
		fprintf(out, ", %.2f us (%s)", c->cost_us, c->cost_from);
	if (c->reason[0])
		fprintf(out, ": %s%s%s%s", c->reason, *at ? " (" : "", at, *at ? ")" : "");
	fputc('\n', out);
}

static void text_others(const Artifact *a, const Slot *s, FILE *out)
{
	for (int i = 0; i < s->n_candidates; i++) {
		const Candidate *c = &s->candidates[i];
		if (c->verdict == CHOSEN && !c->reason[0])
			continue;
		fprintf(out, "  %-7s   %-15s   %-8s", "", "", verdict_name(c->verdict));
		text_other(a, c, out);
	}
}

static int name_kernel(const TargetPlan *t, const Slot *ledger, const Launch *l, char name[128])
{
	const Candidate *c = audit_chosen(&ledger[l->slot]);
	return snprintf(name, 128, "%s%s%s", t->kernels[l->kernel].name, c->tunables[0] ? " " : "", c->tunables);
}

int audit_weights(const Phase *p, const Launch *l, const Slot *ledger, char text[AUDIT_WEIGHTS])
{
	WeightFormatOf weights[MAX_LAUNCH_WEIGHTS];
	const int n = launch_weights(p, l, &ledger[l->slot], weights);
	int at = snprintf(text, AUDIT_WEIGHTS, "%s", n ? "" : "-");
	for (int i = 0; i < n; i++) {
		char one[FORMAT_TEXT];
		at += snprintf(text + at, AUDIT_WEIGHTS - (size_t)at, "%s%s", i ? " + " : "", format_text(&weights[i], one));
	}
	return at;
}

/* Columns of a phase that are as wide as what is in them. */
typedef struct Widths { int name, weights; } Widths;

static Widths find_widths(const TargetPlan *t, const Slot *ledger, const Phase *p)
{
	char name[128], weights[AUDIT_WEIGHTS];
	Widths w = {(int)strlen("template"), (int)strlen("weights")};
	for (int i = 0; i < p->n_launches; i++) {
		int n = name_kernel(t, ledger, &p->launches[i], name);
		w.name = n > w.name ? n : w.name;
		n = audit_weights(p, &p->launches[i], ledger, weights);
		w.weights = n > w.weights ? n : w.weights;
	}
	return w;
}

static void text_launch(const Artifact *a, int target, const Phase *p, const Launch *l, const char *layers, Widths w,
	const AuditOptions *o, FILE *out)
{
	const TargetPlan *t = &a->targets[target];
	const Slot *ledger = a->ledger[target];
	const Kernel *k = &t->kernels[l->kernel];
	const Slot *s = &ledger[l->slot];
	const Candidate *c = audit_chosen(s);
	const char *cache = *launch_cache(p, l) ? launch_cache(p, l) : "-";
	char name[128], grid[40], weights[AUDIT_WEIGHTS];
	name_kernel(t, ledger, l, name);
	audit_weights(p, l, ledger, weights);
	snprintf(grid, sizeof grid, "%dx%dx%d", l->grid[0], l->grid[1], l->grid[2]);
	fprintf(out, "  %-7s %-15s  %-*s  %-*s  %-10s %12s %5d %7d %4d %6d %10.3f %10.2f %-8s  %s\n", layers,
		op_table[l->op].name, w.name, name, w.weights, weights, cache, grid, k->block[0] * k->block[1] * k->block[2],
		k->smem_bytes + k->static_smem_bytes, k->registers, k->spill_bytes,
		(double)(l->read_bytes + l->write_bytes) / 1e6, c->cost_us, c->cost_from, c->order);
	if (o->reasons)
		text_others(a, s, out);
}

double audit_expected_us(const Slot *ledger, const Phase *p)
{
	double us = 0;
	for (int i = 0; i < p->n_launches; i++)
		us += audit_chosen(&ledger[p->launches[i].slot])->cost_us;
	return us;
}

static void text_phase(const Artifact *a, int target, const Phase *p, const AuditOptions *o, FILE *out)
{
	const TargetPlan *t = &a->targets[target];
	const Widths w = find_widths(t, a->ledger[target], p);
	char set[ORDER_SET_TEXT];
	double bytes = 0;
	for (int i = 0; i < p->n_launches; i++)
		bytes += (double)(p->launches[i].read_bytes + p->launches[i].write_bytes);
	fprintf(out, "\n%s  outs %d  %d launches  %.1f MB  %.1f us by the ledger%s%s\n", PHASE_LABEL(p), p->outs,
		p->n_launches, bytes / 1e6, audit_expected_us(a->ledger[target], p),
		*order_set_text(a, t, p->kind, set) ? "  equal orders in " : "", set);
	fprintf(out, "  %-7s %-15s  %-*s  %-*s  %-10s %12s %5s %7s %4s %6s %10s %10s %-8s  %s\n", "layers", "op", w.name,
		"template", w.weights, "weights", "cache", "grid", "block", "smem", "regs", "spills", "MB", "us", "from",
		"order");
	for (int i = 0, next; i < p->n_launches; i = next) {
		char layers[32];
		Run r = run_at(p, i, &next);
		if (!is_layer_shown(a, r.layer, r.last_layer, o))
			continue;
		audit_layers(a, r.layer, r.last_layer, layers);
		for (int k = 0; k < r.n; k++)
			text_launch(a, target, p, &p->launches[i + k], k ? "" : layers, w, o, out);
	}
}

/* "products: 28 e4m3 128x128, 1 bf16", and what the caches are. */
static void print_formats(const Graph *g, FILE *out)
{
	ProductCount products[MAX_PRODUCTS];
	const int n = graph_products(g, products);
	char text[FORMAT_TEXT];
	fputs("products:", out);
	for (int i = 0; i < n; i++)
		fprintf(out, "%s %d %s", i ? "," : "", products[i].n, format_text(&products[i].format, text));
	fputs("\ncaches: ", out);
	print_caches(g, out);
	fputc('\n', out);
}

/* What the reference device runs. */
static void print_graph_phases(const Graph *g, FILE *out)
{
	fputs("graph ", out);
	for (int p = 0; p < PROBE; p++) {
		int n = 0;
		for (int i = 0; i < g->n_ops; i++)
			n += (g->ops[i].phases & phase_bit((PhaseKind)p)) != 0;
		if (n)
			fprintf(out, "  %s %d ops", phase_name((PhaseKind)p), n);
	}
	fputs("\ntarget  none: for the reference device\n", out);
}

/* What each rank has, and what all of them do together. */
static void print_ranks(const Artifact *a, FILE *out)
{
	const Ranks *r = &a->ranks;
	const char *experts = artifact_option(a, "parallel.experts");
	MemoryItem items[MEMORY_MAX_ITEMS];
	const int n = memory_of_rank(&a->graph, a->n_targets && ranks_use_nccl(&a->targets[0]), items);
	fprintf(out, "ranks   %d  experts %s  %d tensors cut  each rank %.1f MiB\n", r->n, experts ? experts : "whole",
		r->n_cuts, (double)memory_on_device(items, n) / 1048576);
	for (int i = 0; i < r->n_phases; i++) {
		int p = 0;
		while (phase_bit((PhaseKind)p) != r->phases[i].phase)
			p++;
		fprintf(out, "        %-8s %d collectives, %lld bytes a row, schedule ", phase_name((PhaseKind)p),
			r->phases[i].n_collectives, (long long)r->phases[i].row_bytes);
		hex_put(out, r->phases[i].digest, 8);
		fputc('\n', out);
	}
}

bool audit_text(const Artifact *a, const AuditOptions *o, FILE *out)
{
	const Graph *g = &a->graph;
	if (!has_target(a, o))
		return false;
	fprintf(out, "plan    %s  %d layers  hidden_dim %d  vocab %d  weights %.1f MiB  root ", g->family,
		g->n_layers, g->hidden_dim, g->vocab, (double)g->weight_arena_bytes / 1048576);
	hex_put(out, a->root, 32);
	fputc('\n', out);
	print_formats(g, out);
	if (!a->n_targets)
		print_graph_phases(g, out);
	if (a->ranks.n)
		print_ranks(a, out);
	for (int i = 0; i < a->n_targets; i++) {
		const TargetPlan *t = &a->targets[i];
		if (o->target && strcmp(t->target, o->target) != 0)
			continue;
		fprintf(out, "target  %s  %d kernels  state %.1f MiB  scratch %.1f MiB  times %.12s\n", t->target, t->n_kernels,
			(double)t->arena_bytes[ARENA_STATE] / 1048576, (double)t->arena_bytes[ARENA_SCRATCH] / 1048576,
			option_or(a, "tuning", t, "", "none")); /* SHA-256 of the times that its kernels were chosen by */
		fprintf(out, "        run on: %s   times of: %s\n", option_or(a, "target", t, ".ran_on", "not recorded"),
			option_or(a, "tuning", t, ".card", "no card"));
		if (n_candidates(a, i))
			fprintf(out, "        %d candidates for atlas tune\n", n_candidates(a, i));
		for (int p = 0; p < t->n_phases; p++)
			if (is_shown(&t->phases[p], o))
				text_phase(a, i, &t->phases[p], o, out);
	}
	return true;
}

/* One decision ----------------------------------------------------------------------------------------- */

static void why_launch(const Artifact *a, const TargetPlan *t, const Slot *s, const Launch *l, FILE *out)
{
	const Candidate *c = audit_chosen(s);
	fprintf(out, "%s  %s  layer %d  %s: %s\n", t->target, LEDGER_LABEL(s), l->layer,
		op_table[l->op].name, op_meanings[l->op]);
	fprintf(out, "operands  %s\nattrs     %s\nconstants %s\n", s->operands, s->attrs, t->kernels[l->kernel].defines);
	fprintf(out, "work      reads %" PRId64 " bytes, writes %" PRId64 ", %" PRId64 " operations\n", l->read_bytes,
		l->write_bytes, l->flops);
	fprintf(out, "chosen    %s%s%s, %.2f us (%s)\norder     %s\n", c->kernel, c->tunables[0] ? " " : "", c->tunables,
		c->cost_us, c->cost_from, c->order);
	for (int i = 0; i < a->n_contracts; i++)
		for (int k = 0; strcmp(a->contracts[i].name, c->kernel) == 0 && k < a->contracts[i].n_terms; k++)
			if (strcmp(a->contracts[i].terms[k].kind, "requires") == 0)
				fprintf(out, "  holds   %s\n", a->contracts[i].terms[k].text);
	for (int i = 0; i < s->n_candidates; i++) {
		c = &s->candidates[i];
		if (c->verdict == CHOSEN && !c->reason[0])
			continue;
		fprintf(out, "%-9s", verdict_name(c->verdict));
		text_other(a, c, out);
	}
}

bool audit_why(const Artifact *a, const AuditOptions *o, const char *slot, FILE *out)
{
	char phase[64], layer[16], op[64], rest;
	int number;
	bool found = false;
	if (sscanf(slot, "%63[^/]/%15[^/]/%63[a-z_0-9]%c", phase, layer, op, &rest) != 3 ||
		!layer_number(a, layer, &number))
		return false;
	AuditOptions only = {.phase = phase};
	for (int i = 0; i < a->n_targets; i++)
		for (int p = 0; p < a->targets[i].n_phases; p++) {
			const TargetPlan *t = &a->targets[i];
			const Phase *x = &t->phases[p];
			if ((o->target && strcmp(o->target, t->target) != 0) || !is_shown(x, &only))
				continue;
			for (int k = 0; k < x->n_launches; k++)
				if (x->launches[k].layer == number && strcmp(op_table[x->launches[k].op].name, op) == 0) {
					if (found)
						fputc('\n', out);
					why_launch(a, t, &a->ledger[i][x->launches[k].slot], &x->launches[k], out);
					found = true;
				}
		}
	return found;
}

/* JSON ---------------------------------------------------------------------------------------------- */

static void json_candidates(const Artifact *a, const Slot *s, FILE *out)
{
	fputs("\"candidates\":[", out);
	for (int i = 0; i < s->n_candidates; i++) {
		const Candidate *c = &s->candidates[i];
		fputs(i ? ",{" : "{", out);
		json_fields(out, "template", c->kernel, "tunables", c->tunables, "verdict", verdict_name(c->verdict), "reason",
			c->reason, "at", audit_place(a, c), NULL);
		fprintf(out, ",\"cost_us\":%.17g,", c->cost_us);
		json_fields(out, "cost_from", c->cost_from, "order", c->order, NULL);
		fputc('}', out);
	}
	fputc(']', out);
}

/* The fields of a format, inside an object. */
static void json_format(const WeightFormatOf *f, FILE *out)
{
	char text[FORMAT_TEXT];
	json_fields(out, "format", format_names[f->name], "codes", dtype_name(f->codes), NULL);
	fprintf(out, ",\"block\":[%d,%d],", f->block_n, f->block_k);
	json_field(out, "text", format_text(f, text));
}

static void json_weights(const Phase *p, const Launch *l, const Slot *slot, FILE *out)
{
	WeightFormatOf weights[MAX_LAUNCH_WEIGHTS];
	const int n = launch_weights(p, l, slot, weights);
	fputs(",\"weights\":[", out);
	for (int i = 0; i < n; i++) {
		fputs(i ? ",{" : "{", out);
		json_format(&weights[i], out);
		fputc('}', out);
	}
	fputs("],", out);
	json_field(out, "cache", launch_cache(p, l));
}

static void json_products(const Graph *g, FILE *out)
{
	ProductCount products[MAX_PRODUCTS];
	const int n = graph_products(g, products);
	fputs(",\"products\":[", out);
	for (int i = 0; i < n; i++) {
		fprintf(out, "%s\"count\":%d,", i ? ",{" : "{", products[i].n);
		json_format(&products[i].format, out);
		fputc('}', out);
	}
	fputc(']', out);
}

static void json_launch(const Artifact *a, const TargetPlan *t, const Slot *ledger, const Phase *p, const Launch *l,
	const Run *r, FILE *out)
{
	const Kernel *k = &t->kernels[l->kernel];
	const Slot *s = &ledger[l->slot];
	fprintf(out, "{\"layers\":[%d,%d],", r->layer, r->last_layer);
	json_fields(out, "op", op_table[l->op].name, "operands", s->operands, "attrs", s->attrs, "template", k->name,
		"defines", k->defines, NULL);
	json_weights(p, l, s, out);
	fprintf(out, ",\"grid\":[%d,%d,%d],\"block\":[%d,%d,%d],\"smem_bytes\":%d,\"static_smem_bytes\":%d,"
		"\"registers\":%d,\"spill_bytes\":%d,\"read_bytes\":%" PRId64 ",\"write_bytes\":%" PRId64
		",\"flops\":%" PRId64 ",", l->grid[0], l->grid[1], l->grid[2], k->block[0], k->block[1],
		k->block[2], k->smem_bytes, k->static_smem_bytes, k->registers, k->spill_bytes, l->read_bytes,
		l->write_bytes, l->flops);
	json_candidates(a, s, out);
	fputc('}', out);
}

static void json_phase(const Artifact *a, const TargetPlan *t, const Slot *ledger, const Phase *p, FILE *out)
{
	char set[ORDER_SET_TEXT];
	fputc('{', out);
	json_field(out, "phase", phase_name(p->kind));
	fprintf(out, ",\"rows\":%d,\"outs\":%d,\"each\":%d,", p->rows, p->outs, p->each);
	json_field(out, "equal_orders", order_set_text(a, t, p->kind, set));
	fputs(",\"launches\":[", out);
	for (int i = 0, next; i < p->n_launches; i = next) {
		Run r = run_at(p, i, &next);
		for (int k = 0; k < r.n; k++) {
			if (i + k)
				fputc(',', out);
			json_launch(a, t, ledger, p, &p->launches[i + k], &r, out);
		}
	}
	fputs("]}", out);
}

static void json_target(const Artifact *a, const TargetPlan *t, const Slot *ledger, int candidates, FILE *out)
{
	fputc('{', out);
	json_field(out, "target", t->target);
	fprintf(out, ",\"smem_block_bytes\":%d,\"n_sms\":%d,\"n_candidates\":%d,\"arena_bytes\":{", t->smem_block_bytes,
		t->n_sms, candidates);
	for (int i = 0; i < (t->arena_bytes[ARENA_PEER] ? ARENA_COUNT : ARENA_STORED); i++)
		fprintf(out, "%s\"%s\":%" PRId64, i ? "," : "", arena_name((ArenaKind)i), t->arena_bytes[i]);
	fputs("},\"phases\":[", out);
	for (int i = 0; i < t->n_phases; i++) {
		if (i)
			fputc(',', out);
		json_phase(a, t, ledger, &t->phases[i], out);
	}
	fputs("]}", out);
}

static void json_contracts(const Artifact *a, FILE *out)
{
	fputs(",\"contracts\":[", out);
	for (int i = 0; i < a->n_contracts; i++) {
		const Contract *k = &a->contracts[i];
		fputs(i ? ",{" : "{", out);
		json_fields(out, "template", k->name, "op", op_table[k->op].name, NULL);
		fputs(",\"terms\":[", out);
		for (int t = 0; t < k->n_terms; t++) {
			fputs(t ? ",{" : "{", out);
			json_fields(out, "kind", k->terms[t].kind, "name", k->terms[t].name, "text", k->terms[t].text, NULL);
			fputc('}', out);
		}
		fputs("]}", out);
	}
	fputc(']', out);
}

static void json_ranks(const Artifact *a, FILE *out)
{
	const Ranks *r = &a->ranks;
	MemoryItem items[MEMORY_MAX_ITEMS];
	const int n = memory_of_rank(&a->graph, a->n_targets && ranks_use_nccl(&a->targets[0]), items);
	fprintf(out, ",\"ranks\":{\"n\":%d,\"cuts\":%d,\"bytes_of_each\":%lld,\"phases\":[", r->n, r->n_cuts,
		(long long)memory_on_device(items, n));
	for (int i = 0; i < r->n_phases; i++) {
		fprintf(out, "%s{\"phase\":%d,\"collectives\":%d,\"row_bytes\":%lld,\"digest\":\"", i ? "," : "",
			r->phases[i].phase, r->phases[i].n_collectives, (long long)r->phases[i].row_bytes);
		hex_put(out, r->phases[i].digest, 32);
		fputs("\"}", out);
	}
	fputs("]}", out);
}

bool audit_json(const Artifact *a, const AuditOptions *o, FILE *out)
{
	bool is_first = true;
	if (!has_target(a, o))
		return false;
	fputs("{\"schema_version\":1,", out);
	json_field(out, "family", a->graph.family);
	fprintf(out, ",\"n_layers\":%d,\"root\":\"", a->graph.n_layers);
	hex_put(out, a->root, 32);
	fputs("\",\"options\":{", out);
	for (int i = 0; i < a->n_options; i++) {
		if (i)
			fputc(',', out);
		json_quoted(out, a->options[i].name);
		fputc(':', out);
		json_quoted(out, a->options[i].value);
	}
	fputc('}', out);
	json_products(&a->graph, out);
	json_contracts(a, out);
	if (a->ranks.n)
		json_ranks(a, out);
	fputs(",\"targets\":[", out);
	for (int i = 0; i < a->n_targets; i++) {
		if (o->target && strcmp(a->targets[i].target, o->target) != 0)
			continue;
		if (!is_first)
			fputc(',', out);
		is_first = false;
		json_target(a, &a->targets[i], a->ledger[i], n_candidates(a, i), out);
	}
	fputs("]}\n", out);
	return true;
}
