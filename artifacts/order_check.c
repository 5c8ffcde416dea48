/* order_check.c - where a plan says that it is invariant, have the launches of each set of phases equal orders?
 *
 * Each launch's order was computed from its kernel's contract before (contract_check.c), and is what the ledger has.
 * Pairs are those of artifacts/order.h.
 */
#include "artifacts/order.h"
#include "artifacts/reader.h"

#include <stdio.h>
#include <string.h>

#define REFUSE(...) why_not(why, READ_MALFORMED, __VA_ARGS__)

static const char *order_of(const Slot *ledger, const Launch *l)
{
	const Slot *s = &ledger[l->slot];
	for (int i = 0; i < s->n_candidates; i++)
		if (s->candidates[i].verdict == CHOSEN)
			return s->candidates[i].order;
	return "";
}

/* The partner in `p` of launch i of `of`, from *at on, which moves to the layer's first launch; NULL = there is none.
 * Launches of a layer follow one another. */
static const Launch *partner(const Phase *of, int i, const Phase *p, int *at)
{
	const Launch *l = &of->launches[i];
	int nth = 0;
	for (int k = i - 1; k >= 0 && of->launches[k].layer == l->layer; k--)
		nth += order_op(of->launches[k].op) == order_op(l->op);
	while (*at < p->n_launches && p->launches[*at].layer < l->layer)
		++*at;
	for (int k = *at; k < p->n_launches && p->launches[k].layer == l->layer; k++)
		if (order_op(p->launches[k].op) == order_op(l->op) && nth-- == 0)
			return &p->launches[k];
	return NULL;
}

/* Of every launch of a its partner in b; both of one set. */
static bool check_pair(const Graph *g, const Slot *ledger, const Phase *a, const Phase *b, Why *why)
{
	int at = 0;
	for (int i = 0; i < a->n_launches; i++) {
		const Launch *l = &a->launches[i], *m = partner(a, i, b, &at);
		const char *mine = order_of(ledger, l);
		const bool is_free = l->layer < 0 || l->layer >= g->n_layers || strcmp(mine, ORDER_EXACT) == 0;
		if (!m && !is_free)
			return REFUSE("%s launch %d (%s) of layer %d adds as %s, and %s has no such launch, in a plan that "
				"is invariant", PHASE_LABEL(a), i, op_table[l->op].name, l->layer, mine,
				PHASE_LABEL(b));
		if (m && strcmp(mine, order_of(ledger, m)) != 0)
			return REFUSE("%s launch %d (%s) of layer %d adds as %s, in %s as %s, in a plan that is invariant",
				PHASE_LABEL(a), i, op_table[l->op].name, l->layer, mine, PHASE_LABEL(b),
				order_of(ledger, m));
	}
	return true;
}

bool check_orders(const Artifact *a, const TargetPlan *t, const Slot *ledger, Why *why)
{
	const Phase *first[ORDER_SETS] = {NULL};
	for (int i = 0; order_is_invariant(a) && i < t->n_phases; i++) {
		const Phase *p = &t->phases[i];
		const OrderSet set = order_set(p->kind);
		if (set == ORDER_FREE)
			continue;
		if (!first[set])
			first[set] = p;
		else if (!check_pair(&a->graph, ledger, first[set], p, why) ||
			!check_pair(&a->graph, ledger, p, first[set], why))
			return false;
	}
	return true;
}
