/* swap_run.c - swaps every two references of a kind in a plan, one pair at a time, and asks the reader.
 *
 *   swap_run PLAN [MOST]      MOST: pairs of each kind and phase, spread evenly; default: all
 *
 * Prints a line for each kind: its name, how many pairs were tried, how many were refused; and beneath it what was
 * accepted: "  KIND PLACE". The plan is never written: the structs that were read are changed and checked again.
 */
#include "artifacts/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Swaps {
	Artifact a;
	const char *kind;
	char what[256];  /* the place in the plan */
	long most, tried, refused, step, seen;
	char reasons[65536]; /* of what is accepted */
	size_t n_reasons;
} Swaps;

static void *slurp(const char *path, int64_t *n)
{
	FILE *f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END) || (*n = ftell(f)) < 0 || fseek(f, 0, SEEK_SET))
		exit(2);
	void *bytes = malloc((size_t)*n + 1);
	if (!bytes || fread(bytes, 1, (size_t)*n, f) != (size_t)*n)
		exit(2);
	fclose(f);
	return bytes;
}

static void swap_bytes(void *a, void *b, size_t n)
{
	unsigned char *x = a, *y = b;
	for (size_t i = 0; i < n; i++) {
		const unsigned char t = x[i];
		x[i] = y[i];
		y[i] = t;
	}
}

static bool is_accepted(Swaps *s)
{
	char text[512] = "";
	Why why = {.text = text, .bytes = sizeof text};
	return check_artifact(&s->a, &why);
}

/* Swaps them, asks, and swaps them back. Equal bytes are no swap. */
static void try(Swaps *s, void *a, void *b, size_t n)
{
	if (memcmp(a, b, n) == 0 || s->seen++ % s->step)
		return;
	swap_bytes(a, b, n);
	s->tried++;
	if (!is_accepted(s)) {
		s->refused++;
	} else {
		const int k = snprintf(s->reasons + s->n_reasons, sizeof s->reasons - s->n_reasons, "  %s %s\n", s->kind,
			s->what);
		s->n_reasons += s->n_reasons + (size_t)k < sizeof s->reasons ? (size_t)k : 0;
	}
	swap_bytes(a, b, n);
}
#define TRY(s, a, b, ...) (snprintf((s)->what, sizeof (s)->what, __VA_ARGS__), try(s, &(a), &(b), sizeof(a)))

static bool are_alike(const Buf *a, const Buf *b)
{
	return a->arena == b->arena && a->dtype == b->dtype && a->n_dims == b->n_dims &&
		memcmp(a->shape, b->shape, sizeof a->shape[0] * (size_t)a->n_dims) == 0;
}

/* Joined weights that several launches read have a buffer for each, of the same bytes. */
static bool is_same_weight(const Phase *p, int a, int b)
{
	return a >= 0 && b >= 0 && p->bufs[a].arena == ARENA_WEIGHTS && are_alike(&p->bufs[a], &p->bufs[b]) &&
		p->bufs[a].offset == p->bufs[b].offset;
}

/* Two arguments of a launch. */
static void args_of_a_launch(Swaps *s, const TargetPlan *t, const Phase *p)
{
	(void)t;
	for (int i = 0; i < p->n_launches; i++)
		for (int a = 0; a < p->launches[i].n_args; a++)
			for (int b = 0; b < a; b++)
				TRY(s, p->launches[i].args[a].buf, p->launches[i].args[b].buf, "%s[%d] launch %d args %d and %d",
					phase_name(p->kind), p->rows, i, a, b);
}

/* The same argument of two launches of an op. */
static void args_of_two_launches(Swaps *s, const TargetPlan *t, const Phase *p)
{
	(void)t;
	for (int i = 0; i < p->n_launches; i++)
		for (int k = 0; k < i; k++)
			for (int a = 0; a < p->launches[i].n_args && p->launches[i].op == p->launches[k].op &&
				a < p->launches[k].n_args; a++)
				if (!is_same_weight(p, p->launches[i].args[a].buf, p->launches[k].args[a].buf))
					TRY(s, p->launches[i].args[a].buf, p->launches[k].args[a].buf, "%s[%d] launches %d and %d %s %s",
						phase_name(p->kind), p->rows, i, k, op_table[p->launches[i].op].name,
						op_table[p->launches[i].op].operands[p->launches[i].args[a].operand].name);
}

/* Any two arguments of a phase whose buffers are alike. */
static void args_alike(Swaps *s, const TargetPlan *t, const Phase *p)
{
	(void)t;
	for (int i = 0; i < p->n_launches; i++)
		for (int k = 0; k < i; k++)
			for (int a = 0; a < p->launches[i].n_args; a++)
				for (int b = 0; b < p->launches[k].n_args; b++) {
					Arg *x = &p->launches[i].args[a], *y = &p->launches[k].args[b];
					if (x->buf >= 0 && y->buf >= 0 && are_alike(&p->bufs[x->buf], &p->bufs[y->buf]) &&
						!is_same_weight(p, x->buf, y->buf))
						TRY(s, x->buf, y->buf, "%s[%d] launches %d and %d %s %s and %s %s", phase_name(p->kind),
							p->rows, i, k, op_table[p->launches[i].op].name,
							op_table[p->launches[i].op].operands[x->operand].name, op_table[p->launches[k].op].name,
							op_table[p->launches[k].op].operands[y->operand].name);
				}
}

static void maps_of_a_launch(Swaps *s, const TargetPlan *t, const Phase *p)
{
	(void)t;
	for (int i = 0; i < p->n_launches; i++)
		for (int a = 0; a < p->launches[i].n_maps; a++)
			for (int b = 0; b < a; b++)
				TRY(s, p->launches[i].maps[a].buf, p->launches[i].maps[b].buf, "%s[%d] launch %d maps %d and %d",
					phase_name(p->kind), p->rows, i, a, b);
}

static void offsets_of_bufs(Swaps *s, const TargetPlan *t, const Phase *p)
{
	(void)t;
	for (int i = 0; i < p->n_bufs; i++)
		for (int k = 0; k < i; k++)
			if (p->bufs[i].arena == p->bufs[k].arena && p->bufs[i].arena != ARENA_SCRATCH &&
				p->bufs[i].arena != ARENA_PROBE)
				TRY(s, p->bufs[i].offset, p->bufs[k].offset, "%s[%d] buffers %s and %s", phase_name(p->kind), p->rows,
					p->bufs[i].name, p->bufs[k].name);
}

static void tensors_of_bufs(Swaps *s, const TargetPlan *t, const Phase *p)
{
	(void)t;
	for (int i = 0; i < p->n_bufs; i++)
		for (int k = 0; k < i; k++)
			TRY(s, p->bufs[i].tensor, p->bufs[k].tensor, "%s[%d] buffers %s and %s", phase_name(p->kind), p->rows,
				p->bufs[i].name, p->bufs[k].name);
}

static void kernels_of_launches(Swaps *s, const TargetPlan *t, const Phase *p)
{
	(void)t;
	for (int i = 0; i < p->n_launches; i++)
		for (int k = 0; k < i; k++)
			TRY(s, p->launches[i].kernel, p->launches[k].kernel, "%s[%d] launches %d and %d", phase_name(p->kind),
				p->rows, i, k);
}

static void layers_of_launches(Swaps *s, const TargetPlan *t, const Phase *p)
{
	(void)t;
	for (int i = 0; i < p->n_launches; i++)
		for (int k = 0; k < i; k++)
			TRY(s, p->launches[i].layer, p->launches[k].layer, "%s[%d] launches %d and %d", phase_name(p->kind),
				p->rows, i, k);
}

static void made_layers_of_launches(Swaps *s, const TargetPlan *t, const Phase *p)
{
	(void)t;
	for (int i = 0; i < p->n_launches; i++)
		for (int k = 0; k < i; k++)
			TRY(s, p->launches[i].produces_layer, p->launches[k].produces_layer, "%s[%d] launches %d and %d",
				phase_name(p->kind), p->rows, i, k);
}

/* Decisions of layers that do not follow each other may be the same twice. */
static bool is_same_decision(const Slot *a, const Slot *b)
{
	return a->op == b->op && a->layer_first == b->layer_first && a->layer_last == b->layer_last &&
		strcmp(a->operands, b->operands) == 0 && strcmp(a->attrs, b->attrs) == 0;
}

static void decisions_of_launches(Swaps *s, const TargetPlan *t, const Phase *p)
{
	const Slot *ledger = s->a.ledger[t - s->a.targets];
	for (int i = 0; i < p->n_launches; i++)
		for (int k = 0; k < i; k++)
			if (!is_same_decision(&ledger[p->launches[i].slot], &ledger[p->launches[k].slot]))
				TRY(s, p->launches[i].slot, p->launches[k].slot, "%s[%d] launches %d and %d", phase_name(p->kind),
					p->rows, i, k);
}

/* All that is not a phase's. */
static void cubins_of_kernels(Swaps *s)
{
	for (int i = 0; i < s->a.n_targets; i++)
		for (int k = 0; k < s->a.targets[i].n_kernels; k++)
			for (int j = 0; j < k; j++) {
				Kernel *x = &s->a.targets[i].kernels[k], *y = &s->a.targets[i].kernels[j];
				struct { int64_t at, n; } both[2] = {{x->cubin_offset, x->cubin_bytes},
					{y->cubin_offset, y->cubin_bytes}};
				if (both[0].at == both[1].at || s->seen++ % s->step)
					continue;
				x->cubin_offset = both[1].at, x->cubin_bytes = both[1].n;
				y->cubin_offset = both[0].at, y->cubin_bytes = both[0].n;
				s->tried++;
				if (!is_accepted(s))
					s->refused++;
				else
					s->n_reasons += (size_t)snprintf(s->reasons + s->n_reasons, sizeof s->reasons - s->n_reasons,
						"  %s %s [%s] and [%s]\n", s->kind, x->name, x->defines, y->defines);
				x->cubin_offset = both[0].at, x->cubin_bytes = both[0].n;
				y->cubin_offset = both[1].at, y->cubin_bytes = both[1].n;
			}
}

static void constants_of_kernels(Swaps *s)
{
	for (int i = 0; i < s->a.n_targets; i++)
		for (int k = 0; k < s->a.targets[i].n_kernels; k++)
			for (int j = 0; j < k; j++)
				TRY(s, s->a.targets[i].kernels[k].defines, s->a.targets[i].kernels[j].defines, "%s [%s] and [%s]",
					s->a.targets[i].kernels[k].name, s->a.targets[i].kernels[k].defines,
					s->a.targets[i].kernels[j].defines);
}

static void operands_of_an_op(Swaps *s)
{
	for (int i = 0; i < s->a.graph.n_ops; i++)
		for (int a = 0; a < op_table[s->a.graph.ops[i].kind].n_operands; a++)
			for (int b = 0; b < a; b++)
				TRY(s, s->a.graph.ops[i].operands[a], s->a.graph.ops[i].operands[b], "op %d (%s) operands %d and %d", i,
					op_table[s->a.graph.ops[i].kind].name, a, b);
}

static void operands_of_two_ops(Swaps *s)
{
	GraphOp *ops = s->a.graph.ops;
	for (int i = 0; i < s->a.graph.n_ops; i++)
		for (int k = 0; k < i; k++)
			for (int a = 0; a < op_table[ops[i].kind].n_operands && ops[k].kind == ops[i].kind; a++)
				TRY(s, ops[i].operands[a], ops[k].operands[a], "ops %d and %d (%s) operand %d", i, k,
					op_table[ops[i].kind].name, a);
}

static void attributes_of_ops(Swaps *s)
{
	GraphOp *ops = s->a.graph.ops;
	for (int i = 0; i < s->a.graph.n_ops; i++)
		for (int k = 0; k < i; k++)
			if (ops[k].kind == ops[i].kind)
				TRY(s, ops[i].attrs, ops[k].attrs, "ops %d and %d (%s)", i, k, op_table[ops[i].kind].name);
}

static void ops_of_the_graph(Swaps *s)
{
	for (int i = 0; i < s->a.graph.n_ops; i++)
		for (int k = 0; k < i; k++)
			TRY(s, s->a.graph.ops[i].kind, s->a.graph.ops[k].kind, "ops %d and %d", i, k);
}

static void weights_of_tensors(Swaps *s)
{
	Tensor *t = s->a.graph.tensors;
	for (int i = 0; i < s->a.graph.n_tensors; i++)
		for (int k = 0; k < i; k++)
			if (t[i].weight >= 0 && t[k].weight >= 0)
				TRY(s, t[i].weight, t[k].weight, "tensors %s and %s", t[i].name, t[k].name);
}

static void offsets_of_weights(Swaps *s)
{
	Weight *w = s->a.graph.weights;
	for (int i = 0; i < s->a.graph.n_weights; i++)
		for (int k = 0; k < i; k++)
			TRY(s, w[i].offset, w[k].offset, "weights %s and %s", w[i].name, w[k].name);
}

static void names_of_tensors(Swaps *s)
{
	Tensor *t = s->a.graph.tensors;
	for (int i = 0; i < s->a.graph.n_tensors; i++)
		for (int k = 0; k < i; k++)
			if (t[i].role != ROLE_WEIGHT && t[k].role != ROLE_WEIGHT)
				TRY(s, t[i].name, t[k].name, "tensors %s and %s", t[i].name, t[k].name);
}

/* Runs a kind twice: first to count its pairs. */
static void run(Swaps *s, const char *kind, void (*whole)(Swaps *), void (*of_phase)(Swaps *, const TargetPlan *,
	const Phase *))
{
	s->kind = kind;
	s->tried = s->refused = 0;
	s->n_reasons = 0;
	s->reasons[0] = 0;
	for (int pass = 0; pass < 2; pass++) {
		const long pairs = s->seen;
		s->step = pass == 0 ? __LONG_MAX__ : s->most && pairs > s->most ? pairs / s->most : 1;
		s->seen = pass == 0; /* at 1: none is tried */
		if (whole)
			whole(s);
		for (int i = 0; of_phase && i < s->a.n_targets; i++)
			for (int p = 0; p < s->a.targets[i].n_phases; p++)
				if (s->a.targets[i].phases[p].kind != PROBE)
					of_phase(s, &s->a.targets[i], &s->a.targets[i].phases[p]);
	}
	printf("%s %ld %ld\n%s", kind, s->tried, s->refused, s->reasons);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static Swaps s;
	char why[512] = "";
	int64_t n;
	if (argc < 2)
		return 2;
	void *bytes = slurp(argv[1], &n);
	s.most = argc > 2 ? atol(argv[2]) : 0;
	if (artifact_read(bytes, n, NULL, &s.a, why, sizeof why) != READ_OK) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
#define WHOLE(kind) run(&s, #kind, kind, NULL)
#define PHASE(kind) run(&s, #kind, NULL, kind)
	PHASE(args_of_a_launch);
	PHASE(args_of_two_launches);
	PHASE(args_alike);
	PHASE(maps_of_a_launch);
	PHASE(offsets_of_bufs);
	PHASE(tensors_of_bufs);
	PHASE(kernels_of_launches);
	PHASE(layers_of_launches);
	PHASE(made_layers_of_launches);
	PHASE(decisions_of_launches);
	WHOLE(cubins_of_kernels);
	WHOLE(constants_of_kernels);
	WHOLE(operands_of_an_op);
	WHOLE(operands_of_two_ops);
	WHOLE(attributes_of_ops);
	WHOLE(ops_of_the_graph);
	WHOLE(weights_of_tensors);
	WHOLE(offsets_of_weights);
	WHOLE(names_of_tensors);
	artifact_free(&s.a);
	free(bytes);
	return 0;
}
