/* pick_kernels.c - choose one kernel for every op, and write down everything that was considered.
 *
 * For an op, every template that implements it is a family of candidates, one for each combination of its tunables. A
 * candidate is admissible when the target is among its architectures, every operand binds by name, type and shape,
 * every predicate holds, and the launch fits the device. Among the admissible ones the cheapest wins, of those that
 * their contracts prefer if there are any. A preference is taste: it prunes the search, and refuses neither a pin nor
 * an op that has nothing else. Where each of their templates was measured (tuning.c), what was measured goes before
 * what was not, since the model (cost.c) may be wrong by more than they differ; a template without a time might be the
 * fastest, and then the model ranks all. Pins and bans of MODEL.toml come first. There is no fall-back: an op without
 * an admissible candidate is refused with the reason of each.
 *
 * Attention and Gated DeltaNet of a verify step are to give a row the bits that decode gives it: what adds in another
 * order than decode's kernel for as many sequences is banned. Where nothing else is admissible, or a pin asks for it,
 * the choice says so in the ledger, and a note says (A0730). Products, router, experts and scores are chosen freely: on
 * a GPU a text with drafts may part from one without. With [numerics] invariant, all ops of a set of phases are chosen
 * together (pick_orders.c).
 *
 * Layers repeat, so a decision is made once for each different op of a phase and reused.
 */
#include "artifacts/peers.h"
#include "compiler/pick/picker.h"
#include "compiler/pick/times.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The texts of an op ------------------------------------------------------------------------------------- */

const char *operands_text(Picker *p)
{
	char *text = arena_strdup(&p->c->scratch, "");
	const OpInfo *info = &op_table[p->op->kind];
	for (int i = 0; i < info->n_operands; i++) {
		if (p->op->operands[i] < 0)
			continue;
		const LTensor *x = &p->low->tensors.at[p->op->operands[i]];
		char shape[128] = "";
		for (int d = 0; d < x->n_dims; d++) {
			char dim[24] = "*"; /* what the kernel decides is 0 until it has */
			if (x->shape[d])
				snprintf(dim, sizeof dim, "%lld", (long long)x->shape[d]);
			snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%s", d ? "," : "", dim);
		}
		text = arena_printf(&p->c->scratch, "%s%s%s %s [%s]", text, *text ? ", " : "",
			info->operands[i].name, dtype_name(x->dtype), shape);
	}
	return arena_strdup(&p->c->arena, text);
}

/* "BLOCK_K=0 BLOCK_N=0 HDIM=64": the whole-number ones, which are what formulas may name. */
static const char *attrs_text(Picker *p)
{
	const char *text = "";
	double value;
	bool is_float;
#define ATTR(NAME, field, type, meaning) \
	if (op_has_attr(p->op->kind, #NAME) && attr_value(&p->op->attrs, #NAME, &value, &is_float) && !is_float) \
		text = arena_printf(&p->c->arena, "%s%s%s=%lld", text, *text ? " " : "", #NAME, (long long)value);
#include "artifacts/attrs.h"
#undef ATTR
	return text;
}

/* All candidates --------------------------------------------------------------------------------------- */

/* The order in which decode's kernel of this layer adds, for as many sequences; NULL where there is none to keep. */
static const char *order_of_decode(const Picker *p, const LOp *op)
{
	const OpKind of = order_op(op->kind);
	const bool is_kept = of == OP_attention_step || of == OP_delta_step;
	const char *order = NULL;
	for (int i = 0; p->low->kind == VERIFY && is_kept && i < p->work->ledger.n; i++) {
		const Slot *s = &p->work->ledger.at[i];
		if (s->phase != DECODE || s->rows != p->low->rows / p->low->each || s->op != of ||
			s->layer_first > op->layer || op->layer > s->layer_last)
			continue;
		for (int k = 0; k < s->n_candidates; k++)
			if (s->candidates[k].verdict == CHOSEN)
				order = s->candidates[k].order;
	}
	return order;
}

/* Beyond the launch: 0 where no other rank is waited for. */
static double wait_of_ranks(const Picker *p, const KernelTemplate *t)
{
	const OpKind op = p->op->kind;
	if (op != OP_sum_peers && op != OP_gather_peers && op != OP_sum_nccl && op != OP_gather_nccl)
		return 0;
	const LTensor *part = &p->low->tensors.at[p->op->operands[op_operand(op, "part")]];
	return collective_cost(p->c->model.options.n_ranks, dtype_span(part->dtype, part->shape[0] * part->shape[1]),
		op == OP_sum_nccl || op == OP_gather_nccl ? 0 : peers_in_two_shots(t->name) ? 2 : 1);
}

static void consider(Picker *p, Decision *d, int template_index, int choice)
{
	const KernelTemplate *t = &kernel_table[template_index];
	Considered k;
	Admitted a;
	const bool good = try_candidate(p, template_index, choice, &k, &a);
	const RuleWord word = rule_word(p, &k, &k.rule);
	const bool is_in_order = word == PINNED || !p->order || strcmp(k.order, p->order) == 0;
	if (good && (word == EXCLUDED || !is_in_order)) {
		k.verdict = BANNED;
		if (word != EXCLUDED)
			k.note = arena_printf(&p->c->arena, "decode[%d] adds in the order of %s",
				p->low->rows / p->low->each, p->order);
	} else if (good) {
		k.verdict = SLOWER;
		k.cost_from = word == PINNED ? FROM_PIN : FROM_MODEL;
		a.model_us = model_cost(p->work->target, &a.pick) + wait_of_ranks(p, t);
		a.time = tuned_time(p->c, p->work->target, t, a.pick.defines,
			tunables_text(&p->c->scratch, template_index, k.values));
		a.candidate = d->candidates.n;
		*vec_push(&p->c->scratch, &d->admitted) = a;
	}
	*vec_push(&p->c->scratch, &d->candidates) = k;
}

/* All combinations of a template that fail for one reason are one candidate: the tunables play no part. */
static void fold_rejected(Picker *p, Decision *d, int from)
{
	const Considered *first = &d->candidates.at[from];
	if (d->candidates.n - from < 2)
		return;
	for (int i = from; i < d->candidates.n; i++) {
		const Considered *k = &d->candidates.at[i];
		if (k->verdict != REJECTED || k->failed.kind != first->failed.kind || k->failed.index != first->failed.index)
			return;
	}
	const char *text = failure_text(p, first, &p->c->scratch); /* it may mention tunables, and then differ */
	for (int i = from + 1; i < d->candidates.n; i++)
		if (strcmp(failure_text(p, &d->candidates.at[i], &p->c->scratch), text) != 0)
			return;
	d->candidates.n = from + 1;
	d->candidates.at[from].is_folded = true;
}

Decision consider_all(Picker *p)
{
	Decision d = {0};
	for (int t = 0; t < n_kernel_table; t++) {
		if (kernel_table[t].op != p->op->kind)
			continue;
		const int from = d.candidates.n, n = combinations(&kernel_table[t]);
		p->held = ARENA_ARRAY(&p->c->scratch, Held, kernel_table[t].n_requires);
		consider(p, &d, t, 0);
		Considered *first = &d.candidates.at[from];
		first->is_folded = n > 1 && first->verdict == REJECTED && fails_with_any_values(first);
		for (int i = 1; i < n && !d.candidates.at[from].is_folded; i++)
			consider(p, &d, t, i);
		fold_rejected(p, &d, from);
	}
	p->held = NULL;
	return d;
}

/* The choice ---------------------------------------------------------------------------------------------- */

/* May it be chosen? What its contract does not prefer only where there is nothing else. */
static bool may_win(const Decision *d, const Admitted *a)
{
	for (int i = 0; i < d->admitted.n && !a->is_preferred; i++)
		if (d->admitted.at[i].is_preferred)
			return false;
	return true;
}

static bool is_every_template_measured(const Decision *d)
{
	bool is_measured = true;
	int before = -1;
	for (int i = 0; i < d->admitted.n; i++) {
		const Admitted *a = &d->admitted.at[i];
		if (!may_win(d, a))
			continue;
		bool is_new = a->pick.template_index != before;
		if (is_new && !is_measured)
			return false;
		before = a->pick.template_index;
		is_measured = a->time || (!is_new && is_measured);
	}
	return is_measured;
}

/* Of two costs the less, of equal times the one that the model finds cheaper: a kernel is timed alone, and the model
 * counts the bytes that it has in flight, which in a graph are there before the launch that it waits for has ended. */
static bool is_cheaper(const Decision *d, const Admitted *a, const Admitted *b)
{
	const double cost = d->candidates.at[a->candidate].cost_us, other = d->candidates.at[b->candidate].cost_us;
	return cost < other || (cost == other && a->model_us < b->model_us);
}

/* The cheapest; NULL = none is admitted. Gives all of them their cost, what is pruned too: it says what that costs. */
static const Admitted *choose(Decision *d)
{
	const Admitted *best = NULL;
	const bool by_times = is_every_template_measured(d);
	for (int i = 0; i < d->admitted.n; i++) {
		const Admitted *a = &d->admitted.at[i];
		Considered *k = &d->candidates.at[a->candidate];
		const bool wins = may_win(d, a), is_measured = a->time && (by_times || !wins);
		k->cost_us = is_measured ? a->time->us : a->model_us;
		if (k->cost_from != FROM_PIN)
			k->cost_from = is_measured ? FROM_TIMES : FROM_MODEL;
		if (!wins)
			k->verdict = PRUNED;
		if (!wins || (by_times && !is_measured))
			continue;
		if (!best || is_cheaper(d, a, best))
			best = a; /* of equal ones the first */
	}
	return best;
}

/* --candidates: the likeliest of each template's admissible combinations by the model: what was measured once shall not
 * decide what is measured next. Those that its contract does not prefer apart, where they are asked for. None of
 * collectives: they would be too short, since alone on a GPU they do not wait. */
static void add_trials(Picker *p, const Decision *d, bool is_preferred)
{
	bool *is_taken = ARENA_ARRAY(&p->c->scratch, bool, d->admitted.n);
	for (int first = 0, end; first < d->admitted.n && op_operand(p->op->kind, "peers") < 0; first = end) {
		const int t = d->admitted.at[first].pick.template_index;
		for (end = first + 1; end < d->admitted.n && d->admitted.at[end].pick.template_index == t;)
			end++;
		for (int n = 0; n < p->c->cmd.candidates; n++) {
			int best = -1;
			for (int i = first; i < end; i++)
				if (!is_taken[i] && d->admitted.at[i].is_preferred == is_preferred &&
					(best < 0 || d->admitted.at[i].model_us < d->admitted.at[best].model_us))
					best = i;
			if (best < 0)
				break;
			is_taken[best] = true;
			add_trial(p, &d->admitted.at[best].pick);
		}
	}
}

/* The ledger ---------------------------------------------------------------------------------------------- */

static const char *reason_text(Picker *p, const Considered *k)
{
	Arena *a = &p->c->arena;
	if (k->verdict == REJECTED || k->verdict == PRUNED)
		return failure_text(p, k, a);
	if (k->verdict == BANNED && !*k->note) /* the file by its last name: the plan says the same wherever it lies */
		return arena_printf(a, "%s%s:%d", k->rule->is_pin ? "by the pin at " : "", rule_place(k->rule),
			k->rule->at.line);
	if (k->verdict == CHOSEN && k->not_preferred >= 0)
		return arena_printf(a, "not preferred: %s%s%s", failure_text(p, k, a), *k->note ? "; " : "", k->note);
	return k->note;
}

/* As the plan has it. */
static Candidate entry_of(Picker *p, const Considered *k)
{
	static const char *const from[] = {[FROM_NOTHING] = "", [FROM_MODEL] = "model", [FROM_TIMES] = "measured",
		[FROM_PIN] = "pin"};
	return (Candidate){.kernel = kernel_table[k->template_index].name, .verdict = k->verdict, .cost_us = k->cost_us,
		.tunables = k->is_folded ? "" : tunables_text(&p->c->arena, k->template_index, k->values),
		.predicate = k->verdict == REJECTED && k->failed.kind == HOLDS ? k->failed.index
			: k->verdict == PRUNED || k->verdict == CHOSEN ? k->not_preferred : -1,
		.reason = reason_text(p, k), .cost_from = from[k->cost_from], .order = k->order};
}

static bool same_attrs(const Attrs *a, const Attrs *b)
{
#define ATTR(NAME, field, type, meaning) \
	if (a->field != b->field) \
		return false;
#include "artifacts/attrs.h"
#undef ATTR
	return true;
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

/* The last op before this one that is equal to it, or NULL. */
static const LOp *equal_op(Picker *p, const char *operands)
{
	const LOp *op = p->op;
	const char *order = order_of_decode(p, op);
	for (int i = (int)(op - p->low->ops.at) - 1; i >= 0; i--) {
		const LOp *twin = &p->low->ops.at[i];
		if (twin->pick >= 0 && twin->kind == op->kind && same_attrs(&twin->attrs, &op->attrs) &&
			same_text(twin->alone, op->alone) && same_rules(p->c, twin->layer, op->layer) &&
			strcmp(p->work->ledger.at[p->low->picks.at[twin->pick].slot].operands, operands) == 0 &&
			same_text(order_of_decode(p, twin), order))
			return twin;
	}
	return NULL;
}

bool reuse(Picker *p, const char *operands, bool is_asked)
{
	LOp *op = p->op;
	const LOp *twin = equal_op(p, operands);
	if (!twin || is_asked)
		return twin;
	Pick pick = p->low->picks.at[op->pick = twin->pick];
	Slot slot = p->work->ledger.at[pick.slot];
	if (slot.layer_last >= 0 && op->layer - slot.layer_last <= 1) {
		p->work->ledger.at[pick.slot].layer_last = op->layer;
	} else { /* layers that are not next to each other have slots of their own */
		slot.layer_first = slot.layer_last = op->layer;
		pick.slot = p->work->ledger.n;
		*vec_push(&p->c->arena, &p->work->ledger) = slot;
		op->pick = p->low->picks.n;
		*vec_push(&p->c->arena, &p->low->picks) = pick;
	}
	settle_op(p, &p->low->picks.at[op->pick]);
	return true;
}

void settle(Picker *p, Decision *d, const Admitted *best, const char *operands)
{
	LOp *op = p->op;
	Considered *chosen = &d->candidates.at[best->candidate];
	chosen->verdict = CHOSEN;
	if (op->alone)
		chosen->note = arena_printf(&p->c->arena, "%s%snot fused: %s", chosen->note, *chosen->note ? "; " : "",
			op->alone);
	Candidate *candidates = ARENA_ARRAY(&p->c->arena, Candidate, d->candidates.n);
	for (int i = 0; i < d->candidates.n; i++)
		candidates[i] = entry_of(p, &d->candidates.at[i]);
	*vec_push(&p->c->arena, &p->work->ledger) = (Slot){.phase = p->low->kind, .rows = p->low->rows,
		.outs = p->low->outs, .each = p->low->each, .layer_first = op->layer, .layer_last = op->layer, .op = op->kind,
		.operands = operands, .attrs = attrs_text(p), .candidates = candidates, .n_candidates = d->candidates.n};
	Pick *pick = vec_push(&p->c->arena, &p->low->picks);
	*pick = best->pick;
	pick->slot = p->work->ledger.n - 1;
	pick->chosen = best->candidate;
	op->pick = p->low->picks.n - 1;
	settle_op(p, pick);
}

/* The kernel of a verify step does not add in decode's order: the ledger keeps it, and a note says so once a phase. */
static void note_other_order(Picker *p, Considered *chosen, const char *order)
{
	chosen->note = arena_printf(&p->c->arena, "adds in another order than decode[%d], which has %s: %s",
		p->low->rows / p->low->each, order, chosen->cost_from == FROM_PIN ? "it is pinned"
		: "no admissible kernel has that");
	const char *tunables = tunables_text(&p->c->scratch, chosen->template_index, chosen->values);
	const char *what = arena_printf(&p->c->scratch, "%s: %s%s%s %s", op_table[p->op->kind].name,
		kernel_table[chosen->template_index].name, *tunables ? " " : "", tunables, chosen->note);
	for (int i = 0; i < p->noted.n; i++)
		if (strcmp(p->noted.at[i], what) == 0)
			return;
	*vec_push(&p->c->scratch, &p->noted) = what;
	note_at(&p->c->diags, A0730, (Loc){0}, "layer %d, verify rows %d, %s, %s", p->op->layer, p->low->rows,
		p->work->target->name, what);
}

void decide(Picker *p)
{
	const char *operands = operands_text(p);
	if (reuse(p, operands, false))
		return;
	const char *order = p->order = order_of_decode(p, p->op);
	Decision d = consider_all(p);
	if (!d.admitted.n && order) {
		p->order = NULL;
		d = consider_all(p);
	}
	p->order = NULL;
	const Admitted *best = choose(&d);
	if (!best) {
		refuse(p, &d, operands);
		return;
	}
	add_trials(p, &d, true);
	if (p->c->cmd.pruned)
		add_trials(p, &d, false);
	if (order && strcmp(best->order, order) != 0)
		note_other_order(p, &d.candidates.at[best->candidate], order);
	settle(p, &d, best, operands);
}

/* All phases of the set of phase i, which is its first; of a later one, nothing: it is done. */
static void pick_set(Picker *p, int i)
{
	Lowered *lows[MAX_PHASES];
	int n = 0, set = (int)order_set(p->work->phases.at[i].kind);
	for (int k = 0; k < p->work->phases.n; k++)
		if ((int)order_set(p->work->phases.at[k].kind) == set) {
			if (!n && k != i)
				return;
			assert(n < MAX_PHASES);
			lows[n++] = &p->work->phases.at[k];
		}
	pick_in_one_order(p, lows, n);
}

/* pick_kernels - one admissible, cheapest kernel for every op of every phase.
 *
 *   needs   TargetWork.phases, kernel table, MODEL.toml's pins and bans
 *   gives   LOp.pick, Lowered.picks, TargetWork.ledger; shapes that a kernel's tunables decide
 *   breaks  nothing
 *   fails   an op without an admissible candidate (all of them are reported), a rule about no op at all
 */
void pick_kernels(Compile *c)
{
	for (int w = 0; w < c->work.n; w++) {
		Picker p = {.c = c, .work = &c->work.at[w]};
		for (int i = 0; i < p.work->phases.n; i++) {
			p.low = &p.work->phases.at[i];
			p.noted.n = 0;
			const bool in_set = c->model.options.is_invariant && order_set(p.low->kind) != ORDER_FREE;
			if (in_set)
				pick_set(&p, i);
			for (int k = 0; !in_set && k < p.low->ops.n; k++) {
				p.op = &p.low->ops.at[k];
				decide(&p);
			}
		}
		report_refusals(&p);
	}
	check_rules(c);
}
