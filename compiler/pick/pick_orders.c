/* pick_orders.c - [numerics] invariant: the kernels of an op in all phases of a set, chosen together.
 *
 * A sequence has the same bits in whatever bucket a step runs, if each op adds in one order in all of them. So all
 * buckets of prompts are one set, all of decode and verify another (artifacts/order.h), and what is chosen for an op is
 * an order first: one that every phase of the set has an admissible candidate of; then in each phase the cheapest
 * kernel that adds so. Of several such orders that of least cost wins: the sum over the phases of its time over that of
 * the phase's fastest candidate. Where no order is common, the compile is refused, and the orders of each phase are
 * listed: there is no fall-back. Pins and bans only take candidates away.
 *
 * An order is hardly ever measured in each phase, and the model's times (cost.c) are of another scale than measured
 * ones: an order must neither win nor lose because it was measured. So what was not takes as long as the measured
 * candidate that is most like it, of its template if there is one, or longer by as much as the model says: not less,
 * since the model does not see all that takes time. A preference of its contract that it does not meet counts in
 * addition, and more than all that the model says where nothing was measured.
 *
 * Phases of a set are walked in lock step, since what one op's kernel decides (parts of the vocabulary, splits of a
 * history) are shapes of the next op.
 */
#include "compiler/pick/picker.h"

#include <stdio.h>
#include <string.h>

enum { ORDERS_SHOWN = 8 /* of a phase, in a refusal */ };

#define TASTE 0.1 /* of its time, for each preference that a candidate does not meet, where it was not measured */

typedef struct Set {
	Picker *p;
	Lowered *const *lows; int n;
	int *partner[MAX_PHASES]; /* [ops of lows[0]] index of the op that does the same there, -1 = none */
	bool *is_paired[MAX_PHASES]; /* [ops of lows[m]] */
	const char *name; /* "decode 1 to 32 and verify 3 to 96" */
} Set;

typedef struct Group { /* an op in the phases that have it */
	int n, phase[MAX_PHASES];
	LOp *op[MAX_PHASES];
	const char *operands[MAX_PHASES];
	Decision d[MAX_PHASES];
} Group;

static void go_to(Picker *p, Lowered *low, LOp *op)
{
	p->low = low;
	p->op = op;
}

/* Pairs --------------------------------------------------------------------------------------------------- */

/* Has every kernel of this op nothing to add? */
static bool is_exact(OpKind op)
{
	for (int i = 0; i < n_kernel_table; i++)
		if (kernel_table[i].op == op && strcmp(kernel_table[i].orders[0].name, ORDER_EXACT) != 0)
			return false;
	return true;
}

/* The partner in `low` of op i of `of`; -1 = there is none. Ops of a layer follow one another; *from: its first one in
 * `low`, or before it. */
static int find_partner(const Lowered *of, int i, const Lowered *low, int *from)
{
	const LOp *op = &of->ops.at[i];
	int nth = 0;
	for (int k = i - 1; k >= 0 && of->ops.at[k].layer == op->layer; k--)
		nth += order_op(of->ops.at[k].kind) == order_op(op->kind);
	while (*from < low->ops.n && low->ops.at[*from].layer < op->layer)
		++*from;
	for (int k = *from; k < low->ops.n && low->ops.at[k].layer == op->layer; k++)
		if (order_op(low->ops.at[k].kind) == order_op(op->kind) && nth-- == 0)
			return k;
	return -1;
}

/* "norm_rows linear_rows attention ...": the ops of a layer. */
static const char *ops_text(const Set *s, const Lowered *low, int layer)
{
	const char *text = "";
	for (int i = 0; i < low->ops.n; i++)
		if (low->ops.at[i].layer == layer)
			text = arena_printf(&s->p->c->scratch, "%s%s%s", text, *text ? " " : "",
				op_table[low->ops.at[i].kind].name);
	return text;
}

/* Layers are equal op for op, but for copies and counts. */
static bool check_lowering(const Set *s, const Lowered *a, int i, const Lowered *b)
{
	const Graph *g = &s->p->c->graph;
	const int layer = a->ops.at[i].layer;
	if (layer < 0 || layer >= g->n_layers || is_exact(a->ops.at[i].kind))
		return true;
	return fail_at(&s->p->c->diags, A0732, s->p->c->model.options.at_invariant, "numerics.invariant: layer %d is not "
		"lowered alike (%s)\n    %s: %s\n    %s: %s", layer, s->p->work->target->name, PHASE_LABEL(a),
		ops_text(s, a, layer), PHASE_LABEL(b), ops_text(s, b, layer));
}

/* False: refused. */
static bool pair_ops(Set *s)
{
	const Lowered *lead = s->lows[0];
	for (int m = 1; m < s->n; m++) {
		const Lowered *low = s->lows[m];
		s->partner[m] = ARENA_ARRAY(&s->p->c->scratch, int, lead->ops.n);
		s->is_paired[m] = ARENA_ARRAY(&s->p->c->scratch, bool, low->ops.n);
		for (int i = 0, from = 0; i < lead->ops.n; i++) {
			const int at = s->partner[m][i] = find_partner(lead, i, low, &from);
			if (at >= 0)
				s->is_paired[m][at] = true;
			else if (!check_lowering(s, lead, i, low))
				return false;
		}
		for (int i = 0; i < low->ops.n; i++)
			if (!s->is_paired[m][i] && !check_lowering(s, low, i, lead))
				return false;
	}
	return true;
}

static const char *name_set(const Set *s)
{
	const char *text = "";
	for (int m = 0, end; m < s->n; m = end) {
		const PhaseKind kind = s->lows[m]->kind;
		int least = s->lows[m]->rows, most = least;
		for (end = m; end < s->n && s->lows[end]->kind == kind; end++) {
			least = s->lows[end]->rows < least ? s->lows[end]->rows : least;
			most = s->lows[end]->rows > most ? s->lows[end]->rows : most;
		}
		text = arena_printf(&s->p->c->arena, "%s%s%s %d", text, *text ? " and " : "", phase_name(kind), least);
		if (most > least)
			text = arena_printf(&s->p->c->arena, "%s to %d", text, most);
	}
	return text;
}

/* The common order -------------------------------------------------------------------------------------------- */

/* How many tunables of their template differ. */
static int count_other(const Pick *a, const Pick *b)
{
	int n = 0;
	for (int i = 0; i < kernel_table[a->template_index].n_tunables; i++)
		n += a->values[i] != b->values[i];
	return n;
}

/* What a candidate of phase m takes that was not measured, by the measured one that is most like it: of its template,
 * in the nearest phase, with the fewest other tunables; of equals the slowest one. */
static double estimate(const Group *g, int m, const Admitted *a)
{
	enum { PER_PHASE = MAX_TUNABLES + 1, PER_TEMPLATE = PER_PHASE * MAX_PHASES };
	const Admitted *like = NULL;
	int least = 0;
	for (int k = 0; k < g->n; k++)
		for (int i = 0; i < g->d[k].admitted.n; i++) {
			const Admitted *b = &g->d[k].admitted.at[i];
			const bool is_of_it = b->pick.template_index == a->pick.template_index;
			const int far = (is_of_it ? count_other(&a->pick, &b->pick) : PER_TEMPLATE)
				+ (k < m ? m - k : k - m) * PER_PHASE;
			if (b->time && (!like || far < least || (far == least && b->time->us > like->time->us))) {
				like = b;
				least = far;
			}
		}
	const double us = !like ? a->model_us : a->model_us < like->model_us ? like->time->us
		: a->model_us * like->time->us / like->model_us;
	return us * (1 + TASTE * a->n_not_preferred);
}

/* Gives every admitted candidate its cost. */
static void estimate_all(Group *g)
{
	for (int m = 0; m < g->n; m++)
		for (int i = 0; i < g->d[m].admitted.n; i++) {
			const Admitted *a = &g->d[m].admitted.at[i];
			Considered *k = &g->d[m].candidates.at[a->candidate];
			if (k->cost_from != FROM_PIN)
				k->cost_from = a->time ? FROM_TIMES : FROM_MODEL;
			k->cost_us = a->time ? a->time->us : estimate(g, m, a);
		}
}

/* May it be chosen among those of its order? What was measured, and what contracts prefer most. */
static bool is_eligible(const Decision *d, const Admitted *a)
{
	for (int i = 0; i < d->admitted.n && !a->time; i++) {
		const Admitted *b = &d->admitted.at[i];
		if (strcmp(b->order, a->order) == 0 && b->n_not_preferred < a->n_not_preferred)
			return false;
	}
	return true;
}

/* The cheapest that adds in this order; NULL = none does. */
static const Admitted *choose_of(const Decision *d, const char *order)
{
	const Admitted *best = NULL;
	for (int i = 0; i < d->admitted.n; i++) {
		const Admitted *a = &d->admitted.at[i];
		if (strcmp(a->order, order) == 0 && is_eligible(d, a) && (!best ||
			d->candidates.at[a->candidate].cost_us < d->candidates.at[best->candidate].cost_us))
			best = a;
	}
	return best;
}

/* The time of the fastest candidate, in microseconds: of those that their contracts prefer, if there are any. */
static double least_cost(const Decision *d)
{
	double least[2] = {-1, -1};
	for (int i = 0; i < d->admitted.n; i++) {
		const bool is_preferred = d->admitted.at[i].is_preferred;
		const double us = d->candidates.at[d->admitted.at[i].candidate].cost_us;
		if (least[is_preferred] < 0 || us < least[is_preferred])
			least[is_preferred] = us;
	}
	return least[1] < 0 ? least[0] : least[1];
}

typedef struct Rank { int n_not_preferred; double cost; } Rank; /* sums over the phases */

/* Is admitted candidate i the first of its order in the first phase, and is it one of all phases? */
static bool is_common(const Group *g, int i, Rank *rank)
{
	const char *order = g->d[0].admitted.at[i].order;
	*rank = (Rank){0, 0};
	for (int k = 0; k < i; k++)
		if (strcmp(g->d[0].admitted.at[k].order, order) == 0)
			return false;
	for (int m = 0; m < g->n; m++) {
		const Admitted *best = choose_of(&g->d[m], order);
		if (!best)
			return false;
		const double us = g->d[m].candidates.at[best->candidate].cost_us, least = least_cost(&g->d[m]);
		rank->cost += least > 0 ? us / least : us;
		rank->n_not_preferred += best->n_not_preferred;
	}
	return true;
}

/* The order that wins; NULL = none is common. */
static const char *common_order(const Group *g)
{
	const char *best = NULL;
	Rank least = {0, 0}, rank;
	bool is_measured = false;
	for (int m = 0; m < g->n; m++)
		for (int i = 0; i < g->d[m].admitted.n; i++)
			is_measured |= g->d[m].admitted.at[i].time != NULL;
	for (int i = 0; i < g->d[0].admitted.n; i++) {
		if (!is_common(g, i, &rank))
			continue;
		const int more = is_measured ? 0 : rank.n_not_preferred - least.n_not_preferred;
		if (!best || more < 0 || (more == 0 && rank.cost < least.cost)) {
			best = g->d[0].admitted.at[i].order;
			least = rank;
		}
	}
	return best;
}

/* By preferences, then the model, then their place. */
static bool is_likelier(const Admitted *a, const Admitted *b)
{
	if (a->n_not_preferred != b->n_not_preferred)
		return a->n_not_preferred < b->n_not_preferred;
	return a->model_us < b->model_us || (a->model_us <= b->model_us && a->candidate < b->candidate);
}

/* --candidates: in each phase those of each common order that its contract prefers most, and then the model: what was
 * measured once shall not decide what is measured next. */
static void add_trials_of(Set *s, const Group *g)
{
	Rank rank;
	for (int i = 0; s->p->c->cmd.candidates && i < g->d[0].admitted.n; i++) {
		const char *order = g->d[0].admitted.at[i].order;
		for (int m = 0; m < g->n && is_common(g, i, &rank); m++) {
			const Decision *d = &g->d[m];
			go_to(s->p, s->lows[g->phase[m]], g->op[m]);
			s->p->ahead = m;
			const Admitted *before = NULL;
			for (int n = 0; n < s->p->c->cmd.candidates; n++) {
				const Admitted *next = NULL;
				for (int k = 0; k < d->admitted.n; k++) {
					const Admitted *a = &d->admitted.at[k];
					if (strcmp(a->order, order) == 0 && (!before || is_likelier(before, a)) &&
						(!next || is_likelier(a, next)))
						next = a;
				}
				if (!next)
					break;
				add_trial(s->p, &next->pick);
				before = next;
			}
		}
	}
	s->p->ahead = 0;
}

/* Is it an order that every phase would have, were there no rules? */
static bool would_be_common(const Group *g, const char *order)
{
	for (int m = 0; m < g->n; m++) {
		bool has = false;
		for (int k = 0; k < g->d[m].candidates.n && !has; k++)
			has = strcmp(g->d[m].candidates.at[k].order, order) == 0;
		if (!has)
			return false;
	}
	return true;
}

/* The pin or ban that took every common order away; NULL = there was none. */
static const KernelRule *rule_of_group(const Group *g)
{
	bool would = false;
	for (int k = 0; k < g->d[0].candidates.n && !would; k++)
		would = *g->d[0].candidates.at[k].order && would_be_common(g, g->d[0].candidates.at[k].order);
	for (int m = 0; would && m < g->n; m++) {
		const KernelRule *rule = rule_to_blame(&g->d[m], 0);
		if (rule)
			return rule;
	}
	return NULL;
}

/* "stream(8,64,2); gemm; and 3 more": the orders that a phase has. */
static const char *orders_text(const Set *s, const Decision *d)
{
	const char *text = "";
	int n = 0;
	for (int i = 0; i < d->admitted.n; i++) {
		int before = 0;
		while (strcmp(d->admitted.at[before].order, d->admitted.at[i].order) != 0)
			before++;
		if (before == i && n++ < ORDERS_SHOWN)
			text = arena_printf(&s->p->c->scratch, "%s%s%s", text, *text ? "; " : "", d->admitted.at[i].order);
	}
	return n <= ORDERS_SHOWN ? text : arena_printf(&s->p->c->scratch, "%s; and %d more", text, n - ORDERS_SHOWN);
}

static void refuse_group(Set *s, const Group *g)
{
	Picker *p = s->p;
	const char *orders = "";
	for (int m = 0; m < g->n; m++)
		orders = arena_printf(&p->c->scratch, "%s\n    %s: %s", orders, PHASE_LABEL(s->lows[g->phase[m]]),
			orders_text(s, &g->d[m]));
	go_to(p, s->lows[g->phase[0]], g->op[0]);
	refuse_orders(p, rule_of_group(g), s->name, orders);
}

/* What the ledger says of those that were admitted and not chosen. */
static void give_verdicts(const Set *s, Decision *d, const Admitted *best)
{
	const double least = d->candidates.at[best->candidate].cost_us;
	for (int i = 0; i < d->admitted.n; i++) {
		const Admitted *a = &d->admitted.at[i];
		Considered *k = &d->candidates.at[a->candidate];
		const bool is_alike = strcmp(a->order, best->order) == 0;
		if (!a->is_preferred && !(is_alike && is_eligible(d, a))) {
			k->verdict = PRUNED;
		} else if (!is_alike) {
			k->verdict = BANNED;
			k->note = arena_printf(&s->p->c->arena, "%s add in the order of %s", s->name, best->order);
			if (k->cost_us > 0 && k->cost_us < least)
				k->note = arena_printf(&s->p->c->arena, "%s: %.1f %% faster", k->note, 100 * (1 - k->cost_us / least));
		}
	}
}

static void decide_group(Set *s, Group *g)
{
	Picker *p = s->p;
	bool is_again = true, is_refused = false;
	for (int m = 0; m < g->n; m++) {
		go_to(p, s->lows[g->phase[m]], g->op[m]);
		g->operands[m] = operands_text(p);
		is_again = is_again && reuse(p, g->operands[m], true);
	}
	for (int m = 0; m < g->n; m++) {
		go_to(p, s->lows[g->phase[m]], g->op[m]);
		if (is_again) {
			reuse(p, g->operands[m], false);
			continue;
		}
		g->d[m] = consider_all(p);
		if (!g->d[m].admitted.n) {
			refuse(p, &g->d[m], g->operands[m]);
			is_refused = true;
		}
	}
	if (is_again || is_refused)
		return;
	estimate_all(g);
	const char *order = common_order(g);
	if (!order) {
		refuse_group(s, g);
		return;
	}
	add_trials_of(s, g);
	for (int m = 0; m < g->n; m++) {
		go_to(p, s->lows[g->phase[m]], g->op[m]);
		const Admitted *best = choose_of(&g->d[m], order);
		give_verdicts(s, &g->d[m], best);
		settle(p, &g->d[m], best, g->operands[m]);
	}
}

/* The ops that only this phase has, from *from to before `end`. */
static void decide_alone(Set *s, int m, int *from, int end)
{
	for (; *from < end; ++*from)
		if (!s->is_paired[m][*from]) {
			go_to(s->p, s->lows[m], &s->lows[m]->ops.at[*from]);
			decide(s->p);
		}
}

void pick_in_one_order(Picker *p, Lowered *const *lows, int n)
{
	Set s = {.p = p, .lows = lows, .n = n};
	int at[MAX_PHASES] = {0};
	s.name = name_set(&s);
	if (!pair_ops(&s))
		return;
	for (int i = 0; i < lows[0]->ops.n; i++) {
		Group g = {.n = 1, .op = {&lows[0]->ops.at[i]}};
		for (int m = 1; m < n; m++) {
			const int k = s.partner[m][i];
			if (k < 0)
				continue;
			decide_alone(&s, m, &at[m], k);
			g.phase[g.n] = m;
			g.op[g.n++] = &lows[m]->ops.at[k];
		}
		decide_group(&s, &g);
	}
	for (int m = 1; m < n; m++)
		decide_alone(&s, m, &at[m], lows[m]->ops.n);
}
