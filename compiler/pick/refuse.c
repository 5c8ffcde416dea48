/* refuse.c - ops without a kernel: one error for each kind of them, with all buckets and layers that it is about.
 *
 * Ops of one kind are refused together where one rule of MODEL.toml takes their kernels away, or where their operands
 * have equal types; the candidates shown are those of the first. What a ban takes away would do, so the error is at the
 * ban, and other candidates are not the cause: they are shown with --verbose. Of a pin, those of its template are.
 */
#include "compiler/pick/picker.h"

#include <string.h>

enum { MAX_SHOWN = 8 /* candidates */, MAX_RANGES = 8 /* of layers */ };

/* Candidates ------------------------------------------------------------------------------------------------ */

/* How many of its template's conditions were not asked any more when it failed; what a rule excludes has passed all. */
static int conditions_left(const Considered *k)
{
	const int n = kernel_table[k->template_index].n_requires;
	if (k->verdict == BANNED)
		return 0;
	return k->failed.kind > HOLDS ? 1 : k->failed.kind == HOLDS ? n - k->failed.index + 1 : n + 2;
}

/* "\n    gemm_norm BM=64: rejected K % 8 == 0 is false: K = 100 (kernels/templates/products/gemm_norm.cu:31)" */
static const char *candidate_text(Picker *p, const Considered *k)
{
	const KernelTemplate *t = &kernel_table[k->template_index];
	const char *tunables = k->is_folded ? "" : tunables_text(&p->c->scratch, k->template_index, k->values);
	const char *space = *tunables ? " " : "";
	const Loc at = failure_place(k);
	if (k->verdict == REJECTED)
		return arena_printf(&p->c->scratch, "\n    %s%s%s: rejected %s (%s:%d)", t->name, space, tunables,
			failure_text(p, k, &p->c->scratch), at.file, at.line);
	if (*k->note)
		return arena_printf(&p->c->scratch, "\n    %s%s%s: banned: %s", t->name, space, tunables, k->note);
	return arena_printf(&p->c->scratch, "\n    %s%s%s: %s at %s:%d", t->name, space, tunables,
		k->rule->is_pin ? "excluded by the pin" : "banned", rule_place(k->rule), k->rule->at.line);
}

/* Those that came closest first, and of those of a template that came as far the first: tunables have many
 * combinations. only: of this template, NULL = of all. */
static const char *candidates_text(Picker *p, const Decision *d, const char *only)
{
	const bool all = p->c->cmd.verbose;
	bool *is_shown = ARENA_ARRAY(&p->c->scratch, bool, d->candidates.n);
	const char *text = "";
	int n = 0;
	for (int left = 0; left <= MAX_REQUIRES + 2; left++)
		for (int i = 0; i < d->candidates.n && (all || n < MAX_SHOWN); i++) {
			const Considered *k = &d->candidates.at[i];
			bool is_new = conditions_left(k) == left;
			for (int s = 0; s < i && is_new && !all; s++)
				is_new = !is_shown[s] || d->candidates.at[s].template_index != k->template_index ||
					conditions_left(&d->candidates.at[s]) != left;
			if (!is_new || (only && !all && strcmp(kernel_table[k->template_index].name, only) != 0))
				continue;
			is_shown[i] = true;
			n++;
			text = arena_printf(&p->c->scratch, "%s%s", text, candidate_text(p, k));
		}
	return text;
}

/* Where ----------------------------------------------------------------------------------------------------- */

static bool has_op(const Lowered *low, OpKind op)
{
	for (int i = 0; i < low->ops.n; i++)
		if (low->ops.at[i].kind == op)
			return true;
	return false;
}

static bool is_refused_in(const Refusal *r, const Lowered *low)
{
	for (int i = 0; i < r->places.n; i++)
		if (r->places.at[i].low == low)
			return true;
	return false;
}

/* "all decode buckets, ", "prefill rows 16, 64, " */
static const char *buckets_text(Picker *p, const Refusal *r, PhaseKind kind)
{
	const char *rows = "";
	int n = 0, all = 0;
	for (int i = 0; i < p->work->phases.n; i++) {
		const Lowered *low = &p->work->phases.at[i];
		if (low->kind != kind)
			continue;
		all += has_op(low, r->op);
		if (is_refused_in(r, low))
			rows = arena_printf(&p->c->scratch, "%s%s%d", rows, n++ ? ", " : "", low->rows);
	}
	if (!n)
		return "";
	if (n == all && n > 1)
		return arena_printf(&p->c->scratch, "all %s buckets, ", phase_name(kind));
	return kind == ACQUIRE ? "acquire, " : arena_printf(&p->c->scratch, "%s rows %s, ", phase_name(kind), rows);
}

/* Is an op of that kind refused in this layer, and is there one at all, in phases where some are? */
typedef struct InLayer { bool is_refused, is_there; } InLayer;
static InLayer in_layer(const Refusal *r, int layer)
{
	InLayer in = {false, false};
	for (int i = 0; i < r->places.n; i++) {
		const Lowered *low = r->places.at[i].low;
		in.is_refused |= r->places.at[i].layer == layer;
		for (int k = 0; k < low->ops.n && !in.is_there && (!i || low != r->places.at[i - 1].low); k++)
			in.is_there = low->ops.at[k].kind == r->op && low->ops.at[k].layer == layer;
	}
	return in;
}

/* "all layers", "layers 0-2, 5", "before the layers" */
static const char *layers_text(Picker *p, const Refusal *r)
{
	const int n_layers = p->c->graph.n_layers;
	const char *text = "";
	int n = 0, all = 0, ranges = 0, after = 0;
	for (int l = 0, end; l < n_layers; l = end) {
		const InLayer in = in_layer(r, l);
		all += in.is_there;
		n += in.is_refused;
		for (end = l + 1; in.is_refused && end < n_layers && in_layer(r, end).is_refused; end++, n++)
			all++;
		if (!in.is_refused || ++ranges > MAX_RANGES)
			continue;
		text = arena_printf(&p->c->scratch, "%s%s%d", text, ranges > 1 ? ", " : "", l);
		if (end > l + 1)
			text = arena_printf(&p->c->scratch, "%s-%d", text, end - 1);
	}
	if (n)
		text = n == all && n > 1 ? "all layers" : arena_printf(&p->c->scratch, "layer%s %s%s", n > 1 ? "s" : "", text,
			ranges > MAX_RANGES ? ", ..." : "");
	for (int i = 0; i < r->places.n; i++)
		after |= r->places.at[i].layer < 0 ? 1 : r->places.at[i].layer >= n_layers ? 2 : 0;
	return arena_printf(&p->c->scratch, "%s%s%s%s%s", text, n && after ? ", " : "",
		after & 1 ? "before the layers" : "", after == 3 ? ", " : "", after & 2 ? "after the layers" : "");
}

/* What is refused ------------------------------------------------------------------------------------------- */

/* Does a plan have this op only because a head drafts? */
static bool is_for_drafts(const Picker *p)
{
	switch (p->op->kind) {
	case OP_follow_rows: /* of prefill and acquire */
	case OP_keys_write:
	case OP_hold:
	case OP_join:
	case OP_embed_next_token:
	case OP_acquire:
		return p->c->graph.verify_rows > 0;
	default:
		return p->low->kind == VERIFY || p->low->kind == DRAFT;
	}
}

/* The refusal of that key, with this place added; NULL = there was none yet. */
static Refusal *refused_before(Picker *p, const char *key)
{
	for (int i = 0; i < p->refused.n; i++) {
		Refusal *r = &p->refused.at[i];
		if (strcmp(r->key, key) != 0)
			continue;
		*vec_push(&p->c->scratch, &r->places) = (Place){p->low, p->op->layer};
		return r;
	}
	return NULL;
}

static void add_refusal(Picker *p, Refusal r)
{
	*vec_push(&p->c->scratch, &r.places) = (Place){p->low, p->op->layer};
	*vec_push(&p->c->scratch, &p->refused) = r;
}

/* "attention_step i32 bf16 f32": what a refusal is about, whatever the bucket. */
static const char *refused_key(Picker *p, const KernelRule *rule)
{
	const OpInfo *info = &op_table[p->op->kind];
	const char *key = info->name;
	if (rule)
		return arena_printf(&p->c->scratch, "%s %s:%d:%d", key, rule->at.file, rule->at.line, rule->at.col);
	for (int i = 0; i < info->n_operands; i++)
		if (p->op->operands[i] >= 0)
			key = arena_printf(&p->c->scratch, "%s %s", key,
				dtype_name(p->low->tensors.at[p->op->operands[i]].dtype));
	return key;
}

/* The other bans that had a part in it. */
static const char *others_text(Picker *p, const Decision *d)
{
	const char *text = "";
	const KernelRule *rule;
	for (int i = 1; (rule = rule_to_blame(d, i)); i++)
		if (!rule->is_pin)
			text = arena_printf(&p->c->scratch, "%s\n    and the ban of %s at %s:%d", text, rule->template_name,
				rule_place(rule), rule->at.line);
	return text;
}

void refuse(Picker *p, const Decision *d, const char *operands)
{
	Arena *a = &p->c->scratch;
	const KernelRule *rule = rule_to_blame(d, 0);
	const bool is_ban = rule && !rule->is_pin;
	const char *name = op_table[p->op->kind].name, *key = refused_key(p, rule);
	if (refused_before(p, key))
		return;
	Refusal r = {.code = A0701, .op = p->op->kind, .key = key,
		.at = rule ? rule->at : (Loc){p->c->model.config.at_hidden_dim.file, 0, 0}};
	r.head = rule ? arena_printf(a, "this %s of %s leaves no admissible kernel for %s", is_ban ? "ban" : "pin",
		rule->template_name, name) : arena_printf(a, "no admissible kernel for %s", name);
	r.tail = rule ? others_text(p, d) : arena_printf(a, ": %s", operands);
	if (!is_ban && p->op->note)
		r.tail = arena_printf(a, "%s\n    not fused: %s", r.tail, p->op->note);
	if (!d->candidates.n)
		r.tail = arena_printf(a, "%s\n    no template implements this op alone", r.tail);
	if (!is_ban || p->c->cmd.verbose)
		r.tail = arena_printf(a, "%s%s", r.tail, candidates_text(p, d, rule ? rule->template_name : NULL));
	if (is_for_drafts(p))
		r.tail = arena_printf(a, "%s\n    [speculate] rows = 1 in MODEL.toml leaves the drafting head and its phases "
			"out", r.tail);
	add_refusal(p, r);
}

void refuse_orders(Picker *p, const KernelRule *rule, const char *set, const char *orders)
{
	Arena *a = &p->c->scratch;
	const char *name = op_table[p->op->kind].name, *key = arena_printf(a, "%s %s", name, orders);
	if (refused_before(p, key))
		return;
	add_refusal(p, (Refusal){.code = A0731, .op = p->op->kind, .key = key, .is_of_set = true,
		.at = rule ? rule->at : p->c->model.options.at_invariant,
		.head = rule ? arena_printf(a, "numerics.invariant: this %s of %s leaves no order of sums for %s",
			rule->is_pin ? "pin" : "ban", rule->template_name, name)
			: arena_printf(a, "numerics.invariant: there is no order of sums for %s", name),
		.tail = arena_printf(a, " in all of %s%s%s", set, orders, p->c->graph.n_ladder < 2 ? ""
			: "\n    [speculate] ladder: a plan with invariant never takes a number of drafted rows that changes a "
			"row's order by load")});
}

void report_refusals(Picker *p)
{
	for (int i = 0; i < p->refused.n; i++) {
		const Refusal *r = &p->refused.at[i];
		const char *buckets = "";
		for (int k = 0; k < PHASE_KINDS && !r->is_of_set; k++)
			buckets = arena_printf(&p->c->scratch, "%s%s", buckets, buckets_text(p, r, (PhaseKind)k));
		fail_at(&p->c->diags, r->code, r->at, "%s (%s%s, %s)%s", r->head, buckets, layers_text(p, r),
			p->work->target->name, r->tail);
	}
}
