/* diff.c - pair what two plans have, note what is not the same, say why.
 *
 * Everything is paired by name, so neither the order inside the files nor which plan comes first matters. The reasons
 * of a slot are the order of its sums, then facts in the order in which one decides the next: operands, the choice with
 * what the other ledger says of the kernel that lost it, constants, geometry and code.
 */
#include "artifacts/diff.h"
#include "artifacts/audit.h"
#include "artifacts/hash.h"
#include "artifacts/json_put.h"
#include "artifacts/op_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct Side { const TargetPlan *target; const Slot *ledger; const Phase *phase; } Side;

typedef struct SlotChange {
	int layer, last_layer; /* equal changes of neighbouring layers are listed once */
	OpKind op;
	int nth;               /* of the op in its layer */
	const Launch *at[2];   /* NULL = the plan has none there */
	char *reasons;         /* one a line; owned */
} SlotChange;

typedef struct PhaseChange {
	Side side[2]; /* phase NULL = the plan has none */
	SlotChange *slots; int n_slots, cap;
} PhaseChange;

typedef struct TargetChange {
	int at[2]; /* index in the artifact's targets; -1 = the plan has none */
	PhaseChange *phases; int n_phases, cap;
} TargetChange;

struct PlanDiff {
	const Artifact *of[2];
	TargetChange *targets; int n_targets, cap;
	bool is_short_of_memory;
};

/* Growth: false, and the whole diff is lost, when there is no memory. */
static bool grow(PlanDiff *d, void **at, int n, int *cap, size_t bytes)
{
	if (n < *cap)
		return true;
	int more = *cap ? 2 * *cap : 16;
	void *larger = realloc(*at, (size_t)more * bytes);
	if (!larger) {
		d->is_short_of_memory = true;
		return false;
	}
	*at = larger;
	*cap = more;
	return true;
}
#define PUSH(d, list, n, cap) grow((d), (void **)&(list), (n), &(cap), sizeof *(list))

/* Reasons ------------------------------------------------------------------------------------------ */

static const Slot *slot_of(const Side *s, const Launch *l) { return &s->ledger[l->slot]; }

/* The other ledger's word on a kernel: that combination, else the one line for all of its template. */
static const Candidate *find_candidate(const Slot *s, const Candidate *wanted)
{
	const Candidate *all = NULL;
	for (int i = 0; i < s->n_candidates; i++) {
		const Candidate *c = &s->candidates[i];
		if (strcmp(c->kernel, wanted->kernel) != 0)
			continue;
		if (strcmp(c->tunables, wanted->tunables) == 0)
			return c;
		if (!c->tunables[0])
			all = c;
	}
	return all;
}

static void say_word_on(const Slot *s, const Candidate *k, const char *where, FILE *out)
{
	const Candidate *c = find_candidate(s, k);
	const char *space = k->tunables[0] ? " " : "";
	if (!c)
		fprintf(out, "%s has no %s%s%s\n", where, k->kernel, space, k->tunables);
	else if (c->reason[0] && c->verdict != CHOSEN)
		fprintf(out, "%s: %s%s%s is %s: %s\n", where, k->kernel, space, k->tunables, verdict_name(c->verdict),
			c->reason);
	else
		fprintf(out, "%s: %s%s%s has %.2f us (%s)\n", where, k->kernel, space, k->tunables, c->cost_us, c->cost_from);
}

static void say_choice(const Slot *a, const Slot *b, FILE *out)
{
	const Candidate *ca = audit_chosen(a), *cb = audit_chosen(b);
	if (strcmp(ca->kernel, cb->kernel) == 0 && strcmp(ca->tunables, cb->tunables) == 0)
		return;
	say_word_on(a, cb, "a", out);
	say_word_on(b, ca, "b", out);
	if (strcmp(ca->cost_from, "pin") == 0 || strcmp(cb->cost_from, "pin") == 0)
		fprintf(out, "chosen by a pin in %s\n", strcmp(ca->cost_from, cb->cost_from) == 0 ? "both"
			: strcmp(ca->cost_from, "pin") == 0 ? "a" : "b");
}

/* "NAME=value ..." of the one side: what the other has instead. Both are sorted by name. */
static void say_words(const char *a, const char *b, FILE *out)
{
	while (*a || *b) {
		int na = (int)strcspn(a, " "), nb = (int)strcspn(b, " ");
		int ka = (int)strcspn(a, "= "), kb = (int)strcspn(b, "= ");
		int order = !*a ? 1 : !*b ? -1 : strncmp(a, b, (size_t)(ka > kb ? ka : kb));
		if (order == 0 && (na != nb || strncmp(a, b, (size_t)na) != 0))
			fprintf(out, "%.*s %.*s -> %.*s\n", ka, a, na - ka - (ka < na), a + ka + (ka < na), nb - kb - (kb < nb),
				b + kb + (kb < nb));
		else if (order < 0)
			fprintf(out, "%.*s only in a\n", na, a);
		else if (order > 0)
			fprintf(out, "%.*s only in b\n", nb, b);
		a += order <= 0 ? na + (a[na] == ' ') : 0;
		b += order >= 0 ? nb + (b[nb] == ' ') : 0;
	}
}

/* "x bf16 [1,576], w bf16 [960,576]": the operand of that name, n letters of it; its length is 0 when there is none. */
static const char *find_operand(const char *list, const char *name, int n, int *length)
{
	for (;; list += *length + 2) {
		const char *end = strstr(list, ", ");
		*length = end ? (int)(end - list) : (int)strlen(list);
		if (strncmp(list, name, (size_t)n) == 0 && list[n] == ' ')
			return list;
		if (!end)
			return *length = 0, list;
	}
}

static void say_operands(const char *a, const char *b, FILE *out)
{
	const char *const of[2] = {a, b};
	for (int side = 0; side < 2; side++)
		for (const char *at = of[side]; *at;) {
			const char *end = strstr(at, ", ");
			int n = end ? (int)(end - at) : (int)strlen(at), name = (int)strcspn(at, " "), m;
			const char *other = find_operand(of[!side], at, name, &m);
			if (!m)
				fprintf(out, "%.*s only in %s\n", n, at, side ? "b" : "a");
			else if (!side && (m != n || strncmp(at, other, (size_t)n) != 0))
				fprintf(out, "%.*s -> %.*s\n", n, at, m - name - 1, other + name + 1);
			at += n + (end ? 2 : 0);
		}
}

static void say_ints(const char *what, const int *a, const int *b, FILE *out)
{
	if (memcmp(a, b, 3 * sizeof *a) != 0)
		fprintf(out, "%s %dx%dx%d -> %dx%dx%d\n", what, a[0], a[1], a[2], b[0], b[1], b[2]);
}

static void say_int(const char *what, int64_t a, int64_t b, FILE *out)
{
	if (a != b)
		fprintf(out, "%s %" PRId64 " -> %" PRId64 "\n", what, a, b);
}

static const uint8_t *code_of(const Artifact *a, const Kernel *k)
{
	const Section *cubins = artifact_section(a, "cubins");
	return a->file && cubins ? a->file + cubins->offset + k->cubin_offset : NULL;
}

static void say_kernel(const PlanDiff *d, const Kernel *a, const Kernel *b, FILE *out)
{
	say_words(a->defines, b->defines, out);
	say_ints("block", a->block, b->block, out);
	say_int("shared memory", a->smem_bytes, b->smem_bytes, out);
	if (strcmp(a->name, b->name) != 0 || strcmp(a->defines, b->defines) != 0)
		return; /* another kernel: what follows from that is no news */
	const uint8_t *ca = code_of(d->of[0], a), *cb = code_of(d->of[1], b);
	if (memcmp(a->source_sha256, b->source_sha256, sizeof a->source_sha256) != 0)
		fprintf(out, "the source of %s differs\n", a->name);
	else if (ca && cb && (a->cubin_bytes != b->cubin_bytes || memcmp(ca, cb, (size_t)a->cubin_bytes) != 0))
		fprintf(out, "the machine code of %s differs\n", a->name);
	say_int("registers", a->registers, b->registers, out);
	say_int("spills", a->spill_bytes, b->spill_bytes, out);
}

/* What is not the same about two launches of one slot, a line each; "" = nothing. */
static void say_launch(const PlanDiff *d, const Side side[2], const Launch *a, const Launch *b, FILE *out)
{
	const Slot *sa = slot_of(&side[0], a), *sb = slot_of(&side[1], b);
	if (strcmp(audit_chosen(sa)->order, audit_chosen(sb)->order) != 0)
		fprintf(out, "adds as %s -> %s\n", audit_chosen(sa)->order, audit_chosen(sb)->order);
	if (strcmp(sa->operands, sb->operands) != 0)
		say_operands(sa->operands, sb->operands, out);
	say_choice(sa, sb, out);
	say_kernel(d, &side[0].target->kernels[a->kernel], &side[1].target->kernels[b->kernel], out);
	say_ints("grid", a->grid, b->grid, out);
	say_int("read bytes", a->read_bytes, b->read_bytes, out);
	say_int("written bytes", a->write_bytes, b->write_bytes, out);
	say_int("operations", a->flops, b->flops, out);
	say_int("starts early", a->overlaps, b->overlaps, out);
}

/* Pairing -------------------------------------------------------------------------------------------- */

static int nth_in_layer(const Phase *p, int i)
{
	int n = 0;
	for (int k = i - 1; k >= 0 && p->launches[k].layer == p->launches[i].layer; k--)
		n += p->launches[k].op == p->launches[i].op;
	return n;
}

/* The launch of that slot, searched from *hint on, which moves there; NULL when the phase has none. */
static const Launch *find_launch(const Phase *p, int layer, OpKind op, int nth, int *hint)
{
	for (int k = 0; k < p->n_launches; k++) {
		int i = (*hint + k) % p->n_launches;
		if (p->launches[i].layer == layer && p->launches[i].op == op && nth_in_layer(p, i) == nth) {
			*hint = i;
			return &p->launches[i];
		}
	}
	return NULL;
}

static bool same_change(const SlotChange *x, const SlotChange *y)
{
	for (int s = 0; s < 2; s++) {
		const Launch *k = x->at[s], *l = y->at[s];
		if (!k != !l || (k && (k->slot != l->slot || k->kernel != l->kernel)))
			return false;
	}
	return x->op == y->op && x->nth == y->nth && strcmp(x->reasons, y->reasons) == 0;
}

static void add_slot(PlanDiff *d, PhaseChange *p, SlotChange c)
{
	for (int i = p->n_slots - 1; i >= 0 && p->slots[i].last_layer >= c.layer - 1; i--)
		if (p->slots[i].last_layer == c.layer - 1 && same_change(&p->slots[i], &c)) {
			p->slots[i].last_layer = c.layer;
			free(c.reasons);
			return;
		}
	if (PUSH(d, p->slots, p->n_slots, p->cap))
		p->slots[p->n_slots++] = c;
	else
		free(c.reasons);
}

static void compare_slot(PlanDiff *d, PhaseChange *p, SlotChange c)
{
	size_t n;
	FILE *out = open_memstream(&c.reasons, &n);
	if (!out) {
		d->is_short_of_memory = true;
		return;
	}
	if (c.at[0] && c.at[1])
		say_launch(d, p->side, c.at[0], c.at[1], out);
	else
		fprintf(out, "only in %s\n", c.at[0] ? "a" : "b");
	bool is_lost = ferror(out);
	if (fclose(out) != 0 || is_lost)
		d->is_short_of_memory = true;
	if (c.reasons && n)
		add_slot(d, p, c);
	else
		free(c.reasons);
}

static void compare_phase(PlanDiff *d, PhaseChange *p)
{
	const Phase *a = p->side[0].phase, *b = p->side[1].phase;
	int hint = 0;
	for (int i = 0; i < a->n_launches; i++) {
		const Launch *l = &a->launches[i];
		SlotChange c = {l->layer, l->layer, l->op, nth_in_layer(a, i), {l, NULL}, NULL};
		c.at[1] = find_launch(b, c.layer, c.op, c.nth, &hint);
		compare_slot(d, p, c);
	}
	for (int i = hint = 0; i < b->n_launches; i++) {
		const Launch *l = &b->launches[i];
		SlotChange c = {l->layer, l->layer, l->op, nth_in_layer(b, i), {NULL, l}, NULL};
		if (!find_launch(a, c.layer, c.op, c.nth, &hint))
			compare_slot(d, p, c);
	}
}

static const Phase *find_phase(const TargetPlan *t, const Phase *like)
{
	for (int i = 0; i < t->n_phases; i++)
		if (t->phases[i].kind == like->kind && t->phases[i].rows == like->rows &&
			t->phases[i].outs == like->outs && t->phases[i].each == like->each)
			return &t->phases[i];
	return NULL;
}

static Side side_of(const Artifact *a, int target, const Phase *phase)
{
	return (Side){&a->targets[target], a->ledger[target], phase};
}

static void free_phase(PhaseChange *p)
{
	for (int i = 0; i < p->n_slots; i++)
		free(p->slots[i].reasons);
	free(p->slots);
}

static void compare_target(PlanDiff *d, TargetChange *t)
{
	const TargetPlan *a = &d->of[0]->targets[t->at[0]], *b = &d->of[1]->targets[t->at[1]];
	for (int side = 0; side < 2; side++) {
		const TargetPlan *mine = side ? b : a;
		for (int i = 0; i < mine->n_phases; i++) {
			const Phase *other = find_phase(side ? a : b, &mine->phases[i]);
			if (side && other)
				continue; /* done from the other side */
			PhaseChange p = {.side = {side_of(d->of[0], t->at[0], side ? NULL : &mine->phases[i]),
				side_of(d->of[1], t->at[1], side ? &mine->phases[i] : other)}};
			if (other)
				compare_phase(d, &p);
			if ((p.n_slots || !other) && PUSH(d, t->phases, t->n_phases, t->cap))
				t->phases[t->n_phases++] = p;
			else
				free_phase(&p);
		}
	}
}

static int find_target(const Artifact *a, const char *name)
{
	for (int i = 0; i < a->n_targets; i++)
		if (strcmp(a->targets[i].target, name) == 0)
			return i;
	return -1;
}

static bool same_arenas(const PlanDiff *d, const TargetChange *t)
{
	return memcmp(d->of[0]->targets[t->at[0]].arena_bytes, d->of[1]->targets[t->at[1]].arena_bytes,
		sizeof d->of[0]->targets[0].arena_bytes) == 0;
}

PlanDiff *diff_make(const Artifact *a, const Artifact *b)
{
	PlanDiff *d = calloc(1, sizeof *d);
	if (!d)
		return NULL;
	d->of[0] = a;
	d->of[1] = b;
	for (int side = 0; side < 2; side++)
		for (int i = 0; i < d->of[side]->n_targets; i++) {
			int other = find_target(d->of[!side], d->of[side]->targets[i].target);
			if (side && other >= 0)
				continue;
			TargetChange t = {.at = {side ? other : i, side ? i : other}};
			if (other >= 0)
				compare_target(d, &t);
			if ((other < 0 || t.n_phases || !same_arenas(d, &t)) && PUSH(d, d->targets, d->n_targets, d->cap))
				d->targets[d->n_targets++] = t;
		}
	if (!d->is_short_of_memory)
		return d;
	diff_free(d);
	return NULL;
}

void diff_free(PlanDiff *d)
{
	for (int t = 0; d && t < d->n_targets; t++) {
		for (int p = 0; p < d->targets[t].n_phases; p++)
			free_phase(&d->targets[t].phases[p]);
		free(d->targets[t].phases);
	}
	if (d)
		free(d->targets);
	free(d);
}

/* Options, weights, sections: lists that are walked when they are printed ------------------------------- */

typedef struct Pair { const char *name, *a, *b; } Pair; /* NULL = the plan has none */
typedef void PairFn(void *ctx, const Pair *p);

/* But the text and name of MODEL.toml: its meaning are the other options. */
static int each_option(const PlanDiff *d, PairFn *f, void *ctx)
{
	int n = 0;
	for (int side = 0; side < 2; side++)
		for (int i = 0; i < d->of[side]->n_options; i++) {
			const Option *o = &d->of[side]->options[i];
			const char *other = artifact_option(d->of[!side], o->name);
			if (strcmp(o->name, "input.model_toml") == 0 || strcmp(o->name, "input.model_name") == 0)
				continue;
			if (side ? other != NULL : other && strcmp(other, o->value) == 0)
				continue;
			Pair p = {o->name, side ? NULL : o->value, side ? o->value : other};
			if (f)
				f(ctx, &p);
			n++;
		}
	return n;
}

static void weight_text(const Weight *w, char text[192])
{
	int n = snprintf(text, 192, "%s [", dtype_name(w->dtype));
	for (int k = 0; k < w->n_dims; k++)
		n += snprintf(text + n, 192 - (size_t)n, "%s%" PRId64, k ? "," : "", w->shape[k]);
	n += snprintf(text + n, 192 - (size_t)n, "] ");
	if (w->made) {
		snprintf(text + n, 192 - (size_t)n, "made at open: %s", made_name(w->made));
		return;
	}
	hex_text(w->hash, 8, text + n);
}

static const Weight *find_weight(const Graph *g, const char *name, int *hint)
{
	for (int k = 0; k < g->n_weights; k++) {
		int i = (*hint + k) % g->n_weights;
		if (strcmp(g->weights[i].name, name) == 0)
			return *hint = i, &g->weights[i];
	}
	return NULL;
}

static int each_weight(const PlanDiff *d, PairFn *f, void *ctx)
{
	int n = 0;
	for (int side = 0; side < 2; side++) {
		const Graph *g = &d->of[side]->graph;
		for (int i = 0, hint = 0; i < g->n_weights; i++) {
			const Weight *w = &g->weights[i], *other = find_weight(&d->of[!side]->graph, w->name, &hint);
			char mine[192], its[192] = "";
			weight_text(w, mine);
			if (other)
				weight_text(other, its);
			if (side ? other != NULL : other && strcmp(mine, its) == 0)
				continue;
			Pair p = {w->name, side ? NULL : mine, side ? mine : other ? its : NULL};
			if (f)
				f(ctx, &p);
			n++;
		}
	}
	return n;
}

/* What is compared as bytes. */
static int each_section(const PlanDiff *d, PairFn *f, void *ctx)
{
	static const char *const names[] = {"tokenizer", "chat_template", "chat_program"};
	int n = 0;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		const Section *s[2] = {artifact_section(d->of[0], names[i]), artifact_section(d->of[1], names[i])};
		char text[2][20] = {"", ""};
		if (!s[0] && !s[1])
			continue;
		if (s[0] && s[1] && memcmp(s[0]->hash, s[1]->hash, sizeof s[0]->hash) == 0)
			continue;
		Pair p = {names[i], s[0] ? hex_text(s[0]->hash, 8, text[0]) : NULL,
			s[1] ? hex_text(s[1]->hash, 8, text[1]) : NULL};
		if (f)
			f(ctx, &p);
		n++;
	}
	return n;
}

bool diff_is_empty(const PlanDiff *d)
{
	return !d->n_targets && !each_option(d, NULL, NULL) && !each_weight(d, NULL, NULL) && !each_section(d, NULL, NULL);
}

/* Text -------------------------------------------------------------------------------------------------- */

typedef struct Listing { FILE *out; const char *what; int n; } Listing;

static void text_pair(void *ctx, const Pair *p)
{
	Listing *l = ctx;
	fprintf(l->out, "%-8s %-28s %s -> %s\n", l->what, p->name, p->a ? p->a : "none", p->b ? p->b : "none");
}

/* Weights of several layers whose names differ in the number of the layer alone, and which differ in the same way. */
typedef struct Group {
	char name[256]; /* of the first */
	int number;     /* where the layer's number is in it; -1 = there is none */
	char side[2][192]; /* of the first; "none" */
	unsigned char layers[PLAN_MAX_LAYERS / 8 + 1];
	int n;
} Group;
typedef struct Groups { PlanDiff *d; Group *at; int n, cap; } Groups;

/* -1 too where a file names a layer that no model has, or the name does not fit. */
static int layer_number(const char *name)
{
	const char *at = strstr(name, ".layers.");
	const size_t digits = at ? strspn(at + 8, "0123456789") : 0;
	return digits && digits < 6 && atoi(at + 8) < PLAN_MAX_LAYERS && strlen(name) < sizeof ((Group *)0)->name
		? (int)(at + 8 - name) : -1;
}

/* Bytes of "f32 [2,1] 31e98574e8af3ddf" without the hash. */
static size_t without_hash(const char *text)
{
	const char *end = strrchr(text, ']');
	return end && strspn(end + 1, " 0123456789abcdef") == strlen(end + 1) ? (size_t)(end + 1 - text) : strlen(text);
}

static bool same_group(const Group *g, const Group *x)
{
	if (g->number < 0 || g->number != x->number || strncmp(g->name, x->name, (size_t)g->number) != 0)
		return false;
	const char *digits = "0123456789", *a = g->name + g->number, *b = x->name + x->number;
	for (int s = 0; s < 2; s++) {
		const size_t n = without_hash(g->side[s]);
		if (n != without_hash(x->side[s]) || strncmp(g->side[s], x->side[s], n) != 0)
			return false;
	}
	return strcmp(a + strspn(a, digits), b + strspn(b, digits)) == 0;
}

static void group_pair(void *ctx, const Pair *p)
{
	Groups *list = ctx;
	Group x = {.number = layer_number(p->name), .n = 1};
	snprintf(x.name, sizeof x.name, "%s", p->name);
	snprintf(x.side[0], sizeof x.side[0], "%s", p->a ? p->a : "none");
	snprintf(x.side[1], sizeof x.side[1], "%s", p->b ? p->b : "none");
	const int layer = x.number < 0 ? 0 : atoi(x.name + x.number);
	Group *g = NULL;
	for (int i = 0; i < list->n && !g; i++)
		g = same_group(&list->at[i], &x) ? &list->at[i] : NULL;
	if (!g && PUSH(list->d, list->at, list->n, list->cap)) {
		g = &list->at[list->n++];
		*g = x;
	} else if (g) {
		g->n++;
	}
	if (g)
		g->layers[layer / 8] |= (unsigned char)(1 << layer % 8);
}

static bool has_layer(const Group *g, int l) { return l < PLAN_MAX_LAYERS && (g->layers[l / 8] >> l % 8 & 1); }

static void text_group(const Group *g, FILE *out)
{
	if (g->n == 1) {
		fprintf(out, "%-8s %-28s %s -> %s\n", "weight", g->name, g->side[0], g->side[1]);
		return;
	}
	fprintf(out, "%-8s %.*s", "weight", g->number, g->name);
	for (int l = 0, end, is_first = 1; l < PLAN_MAX_LAYERS; l = end, is_first = 0) {
		while (l < PLAN_MAX_LAYERS && !has_layer(g, l))
			l++;
		for (end = l; has_layer(g, end);)
			end++;
		if (l < end)
			fprintf(out, end > l + 1 ? "%s%d-%d" : "%s%d", is_first ? "" : ",", l, end - 1);
	}
	const char *rest = g->name + g->number + strspn(g->name + g->number, "0123456789");
	fprintf(out, "%s %.*s -> %.*s, %d weights\n", rest, (int)without_hash(g->side[0]), g->side[0],
		(int)without_hash(g->side[1]), g->side[1], g->n);
}

typedef struct Work { int launches; double bytes, us; } Work;

static Work work_of(const Side *s)
{
	Work w = {s->phase ? s->phase->n_launches : 0, 0, s->phase ? audit_expected_us(s->ledger, s->phase) : 0};
	for (int i = 0; i < w.launches; i++)
		w.bytes += (double)(s->phase->launches[i].read_bytes + s->phase->launches[i].write_bytes);
	return w;
}

static void text_kernel(const Side *s, const Launch *l, FILE *out)
{
	const Candidate *c = l ? audit_chosen(slot_of(s, l)) : NULL;
	fprintf(out, "%s%s%s", c ? c->kernel : "none", c && c->tunables[0] ? " " : "", c ? c->tunables : "");
}

static bool is_same_kernel(const PhaseChange *p, const SlotChange *c)
{
	if (!c->at[0] || !c->at[1])
		return false;
	const Candidate *a = audit_chosen(slot_of(&p->side[0], c->at[0]));
	const Candidate *b = audit_chosen(slot_of(&p->side[1], c->at[1]));
	return strcmp(a->kernel, b->kernel) == 0 && strcmp(a->tunables, b->tunables) == 0;
}

static void text_slot(const PlanDiff *d, const PhaseChange *p, const SlotChange *c, FILE *out)
{
	char layers[32];
	double bytes[2] = {0, 0}, us[2] = {0, 0};
	for (int s = 0; s < 2; s++)
		if (c->at[s]) {
			bytes[s] = (double)(c->at[s]->read_bytes + c->at[s]->write_bytes);
			us[s] = audit_chosen(slot_of(&p->side[s], c->at[s]))->cost_us;
		}
	audit_layers(d->of[c->at[0] ? 0 : 1], c->layer, c->last_layer, layers);
	fprintf(out, "  %-7s %-16s ", layers, op_table[c->op].name);
	text_kernel(&p->side[0], c->at[0], out);
	if (!is_same_kernel(p, c)) {
		fputs(" -> ", out);
		text_kernel(&p->side[1], c->at[1], out);
	}
	fprintf(out, "  MB %.3f -> %.3f  us %.2f -> %.2f\n", bytes[0] / 1e6, bytes[1] / 1e6, us[0], us[1]);
	for (const char *r = c->reasons; *r; r = strchr(r, '\n') + 1)
		fprintf(out, "            %.*s\n", (int)strcspn(r, "\n"), r);
}

static void text_target(const PlanDiff *d, const TargetChange *t, FILE *out)
{
	if (t->at[0] < 0 || t->at[1] < 0) {
		int side = t->at[0] < 0;
		fprintf(out, "target   %s  only in %s\n", d->of[side]->targets[t->at[side]].target, side ? "b" : "a");
		return;
	}
	const TargetPlan *a = &d->of[0]->targets[t->at[0]], *b = &d->of[1]->targets[t->at[1]];
	fprintf(out, "target   %s\n", a->target);
	for (int i = 0; i < ARENA_COUNT; i++)
		if (a->arena_bytes[i] != b->arena_bytes[i])
			fprintf(out, "memory   %-28s %" PRId64 " -> %" PRId64 " bytes\n", arena_name((ArenaKind)i),
				a->arena_bytes[i], b->arena_bytes[i]);
	for (int i = 0; i < t->n_phases; i++) {
		const PhaseChange *p = &t->phases[i];
		const Phase *phase = p->side[0].phase ? p->side[0].phase : p->side[1].phase;
		Work wa = work_of(&p->side[0]), wb = work_of(&p->side[1]);
		fprintf(out, "%s  launches %d -> %d  MB %.3f -> %.3f  us %.2f -> %.2f%s\n", PHASE_LABEL(phase),
			wa.launches, wb.launches, wa.bytes / 1e6, wb.bytes / 1e6, wa.us, wb.us,
			!p->side[0].phase ? "  only in b" : !p->side[1].phase ? "  only in a" : "");
		for (int k = 0; k < p->n_slots; k++)
			text_slot(d, p, &p->slots[k], out);
	}
}

bool diff_text(PlanDiff *d, bool unfolded, FILE *out)
{
	if (diff_is_empty(d)) {
		bool same = memcmp(d->of[0]->root, d->of[1]->root, sizeof d->of[0]->root) == 0;
		fprintf(out, "the plans are equal%s\n", same ? "" : " in meaning; their bytes are not");
		return true;
	}
	Listing options = {out, "option", 0}, weights = {out, "weight", 0}, sections = {out, "section", 0};
	Groups groups = {.d = d};
	each_option(d, text_pair, &options);
	each_weight(d, unfolded ? text_pair : group_pair, unfolded ? (void *)&weights : &groups);
	for (int i = 0; i < groups.n; i++)
		text_group(&groups.at[i], out);
	free(groups.at);
	each_section(d, text_pair, &sections);
	for (int i = 0; i < d->n_targets; i++)
		text_target(d, &d->targets[i], out);
	return !d->is_short_of_memory;
}

/* JSON ---------------------------------------------------------------------------------------------------- */

static void json_or_null(const char *text, FILE *out)
{
	if (text)
		json_quoted(out, text);
	else
		fputs("null", out);
}

static void json_pair(void *ctx, const Pair *p)
{
	Listing *l = ctx;
	fputs(l->n++ ? ",{" : "{", l->out);
	json_field(l->out, "name", p->name);
	fputs(",\"a\":", l->out);
	json_or_null(p->a, l->out);
	fputs(",\"b\":", l->out);
	json_or_null(p->b, l->out);
	fputc('}', l->out);
}

static void json_pairs(const PlanDiff *d, const char *name, int (*each)(const PlanDiff *, PairFn *, void *), FILE *out)
{
	Listing l = {out, name, 0};
	fprintf(out, ",\"%s\":[", name);
	each(d, json_pair, &l);
	fputc(']', out);
}

static void json_side(const Side *s, const Launch *l, FILE *out)
{
	if (!l) {
		fputs("null", out);
		return;
	}
	const Candidate *c = audit_chosen(slot_of(s, l));
	fputc('{', out);
	json_fields(out, "template", c->kernel, "tunables", c->tunables, NULL);
	fprintf(out, ",\"read_bytes\":%" PRId64 ",\"write_bytes\":%" PRId64 ",\"flops\":%" PRId64 ",\"cost_us\":%.17g,",
		l->read_bytes, l->write_bytes, l->flops, c->cost_us);
	json_fields(out, "cost_from", c->cost_from, "order", c->order, NULL);
	fputc('}', out);
}

static void json_slot(const PhaseChange *p, const SlotChange *c, FILE *out)
{
	fprintf(out, "{\"layers\":[%d,%d],", c->layer, c->last_layer);
	json_field(out, "op", op_table[c->op].name);
	fprintf(out, ",\"nth\":%d,\"a\":", c->nth);
	json_side(&p->side[0], c->at[0], out);
	fputs(",\"b\":", out);
	json_side(&p->side[1], c->at[1], out);
	fputs(",\"reasons\":[", out);
	for (char *r = c->reasons, *end; (end = strchr(r, '\n')); r = end + 1) {
		*end = 0;
		if (r != c->reasons)
			fputc(',', out);
		json_quoted(out, r);
		*end = '\n';
	}
	fputs("]}", out);
}

static void json_phase(const PhaseChange *p, FILE *out)
{
	const Phase *phase = p->side[0].phase ? p->side[0].phase : p->side[1].phase;
	Work a = work_of(&p->side[0]), b = work_of(&p->side[1]);
	fputc('{', out);
	json_field(out, "phase", phase_name(phase->kind));
	fprintf(out, ",\"rows\":%d,\"outs\":%d,\"each\":%d,\"in\":[%s,%s],\"launches\":[%d,%d],\"bytes\":[%.17g,%.17g],"
		"\"cost_us\":[%.17g,%.17g],\"slots\":[", phase->rows, phase->outs, phase->each,
		p->side[0].phase ? "true" : "false",
		p->side[1].phase ? "true" : "false", a.launches, b.launches, a.bytes, b.bytes, a.us, b.us);
	for (int i = 0; i < p->n_slots; i++) {
		if (i)
			fputc(',', out);
		json_slot(p, &p->slots[i], out);
	}
	fputs("]}", out);
}

static void json_target(const PlanDiff *d, const TargetChange *t, FILE *out)
{
	int side = t->at[0] < 0;
	bool both = t->at[0] >= 0 && t->at[1] >= 0;
	fputc('{', out);
	json_field(out, "target", d->of[side]->targets[t->at[side]].target);
	fprintf(out, ",\"in\":[%s,%s],\"arena_bytes\":{", t->at[0] >= 0 ? "true" : "false",
		t->at[1] >= 0 ? "true" : "false");
	for (int i = 0, n = 0; both && i < ARENA_COUNT; i++) {
		int64_t a = d->of[0]->targets[t->at[0]].arena_bytes[i], b = d->of[1]->targets[t->at[1]].arena_bytes[i];
		if (a != b)
			fprintf(out, "%s\"%s\":[%" PRId64 ",%" PRId64 "]", n++ ? "," : "", arena_name((ArenaKind)i), a, b);
	}
	fputs("},\"phases\":[", out);
	for (int i = 0; i < t->n_phases; i++) {
		if (i)
			fputc(',', out);
		json_phase(&t->phases[i], out);
	}
	fputs("]}", out);
}

void diff_json(const PlanDiff *d, FILE *out)
{
	fprintf(out, "{\"schema_version\":1,\"equal\":%s,\"roots\":[", diff_is_empty(d) ? "true" : "false");
	json_hash(out, d->of[0]->root);
	fputc(',', out);
	json_hash(out, d->of[1]->root);
	fputc(']', out);
	json_pairs(d, "options", each_option, out);
	json_pairs(d, "weights", each_weight, out);
	json_pairs(d, "sections", each_section, out);
	fputs(",\"targets\":[", out);
	for (int i = 0; i < d->n_targets; i++) {
		if (i)
			fputc(',', out);
		json_target(d, &d->targets[i], out);
	}
	fputs("]}\n", out);
}
