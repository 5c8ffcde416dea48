/* match_fusion.c - the members of a fusion, found along the flow of data.
 *
 * A fusion begins at one op, its anchor; the other members are reached from members that are known by a tensor that
 * both have as an operand: what one writes and the other reads, or what both read. Where ops are in the phase does not
 * matter, nor whether others lie between them. Of several that fit, the first in order is taken, of those that are not
 * lowered yet.
 *
 * The launch of a fusion takes the place of its first member, so the others move up to it. They may, if no op that
 * stays between writes what they read, or has anything to do with what they write.
 */
#include "compiler/lower/fuse.h"

static bool is_kind(const Fuser *f, int i, OpKind kind) { return !f->is_lowered[i] && op_at(f, i)->kind == kind; }

/* The first op of that kind from position i on that has tensor t as its operand `name`; -1 = there is none. */
static int op_with(const Fuser *f, int i, OpKind kind, const char *name, int t)
{
	for (; i < f->n_ops; i++)
		if (is_kind(f, i, kind) && operand(op_at(f, i), name) == t)
			return i;
	return -1;
}

/* The anchor by which op i is member k; -1 = there is none. A member's `from` is nearer to it, so recursion ends. */
static int anchor_of(const Fuser *f, const Fusion *x, int k, int i)
{
	const Member *m = &x->members[k];
	if (m->from < 0)
		return i;
	const OpKind kind = x->members[m->from].kind;
	for (int c = 0; (c = op_with(f, c, kind, m->out, operand(op_at(f, i), m->in))) >= 0; c++) {
		const int anchor = anchor_of(f, x, m->from, c);
		if (anchor >= 0)
			return anchor;
	}
	return -1;
}

/* The members around an anchor into f->at. False when one that is needed is missing. */
static bool find_members(Fuser *f, const Fusion *x, int anchor)
{
	int n = 0;
	for (f->n_at = 0; f->n_at < x->n; f->n_at++)
		f->at[f->n_at] = x->members[f->n_at].from < 0 ? anchor : -1;
	for (bool has_more = true; has_more;) {
		has_more = false;
		for (int k = 0; k < x->n; k++) {
			const Member *m = &x->members[k];
			if (f->at[k] >= 0 || m->from < 0 || f->at[m->from] < 0)
				continue;
			const int t = operand(op_at(f, f->at[m->from]), m->out);
			f->at[k] = t < 0 ? -1 : op_with(f, 0, m->kind, m->in, t);
			for (int o = 0; o < k && f->at[k] >= 0; o++) /* gate and up read one tensor: they are two ops */
				if (f->at[o] == f->at[k])
					f->at[k] = op_with(f, f->at[k] + 1, m->kind, m->in, t);
			has_more |= f->at[k] >= 0;
		}
	}
	while (n < x->n && (f->at[n] >= 0 || x->members[n].is_optional))
		n++;
	return n == x->n;
}

static bool is_covered(const Fuser *f, const Fusion *x, int i)
{
	for (int k = 0; k < x->n; k++)
		if (f->at[k] == i && !x->members[k].stays)
			return true;
	return false;
}

/* Does op b have to come after op a? */
static bool depends(const GraphOp *a, const GraphOp *b)
{
	for (int i = 0; i < op_table[a->kind].n_operands; i++)
		for (int k = 0; k < op_table[b->kind].n_operands; k++)
			if (a->operands[i] >= 0 && a->operands[i] == b->operands[k] &&
				(operand_is_written(op_table[a->kind].operands[i].role) ||
				operand_is_written(op_table[b->kind].operands[k].role)))
				return true;
	return false;
}

static bool may_move(Fuser *f, const Fusion *x, int i)
{
	for (int k = 0; k < x->n; k++)
		for (int between = i + 1; f->at[k] >= 0 && !x->members[k].stays && between < f->at[k]; between++)
			if (!f->is_lowered[between] && !is_covered(f, x, between) &&
				depends(op_at(f, between), op_at(f, f->at[k])))
				return fail_note(f, arena_printf(&f->c->arena, "%s cannot move before %s",
					op_table[op_at(f, f->at[k])->kind].name, op_table[op_at(f, between)->kind].name));
	return true;
}

/* Of the members at hand: do they write keys as codes? */
static bool writes_codes(const Fuser *f)
{
	for (int k = 0; k < f->n_at; k++)
		if (member(f, k) && member(f, k)->kind == OP_kv_write && operand(member(f, k), "kv_scale") >= 0)
			return true;
	return false;
}

/* Is op i a member? moves: the first one, and may the others move up to it? */
static bool is_member(Fuser *f, const Fusion *x, int i, bool moves)
{
	const bool has_own_slots = f->low->kind == DECODE || (f->low->kind == VERIFY && f->low->each == 1);
	const bool may_differ = has_own_slots && !f->c->model.options.is_invariant && !f->c->ranks.n;
	if (x->reads_columns == COLUMNS_OF_ANSWERS && !may_differ)
		return false;
	for (int k = 0; k < x->n; k++) {
		if (x->members[k].kind != op_at(f, i)->kind || x->members[k].stays)
			continue;
		const int anchor = anchor_of(f, x, k, i);
		if (anchor >= 0 && find_members(f, x, anchor) && f->at[k] == i && (!moves || may_move(f, x, i)) &&
			(x->reads_columns != COLUMNS_OF_ANSWERS || !writes_codes(f)))
			return true;
	}
	return false;
}

bool match_fusion(Fuser *f, const Fusion *x, int i) { return is_member(f, x, i, true); }
bool find_fusion(Fuser *f, const Fusion *x, int i) { return is_member(f, x, i, false); }

void take_members(Fuser *f, const Fusion *x)
{
	for (int k = 0; k < x->n; k++)
		if (f->at[k] >= 0 && !x->members[k].stays)
			f->is_lowered[f->at[k]] = true;
}
