/* kernel_steps.c - has a row of a verify step the bits that decode gives it?
 *
 * The kernel of decode, with the same constants and tunables, takes the rows of a case in turn: the first of each slot,
 * then the second, with what it has left behind so far. Results, keys and values, and each version of a state must be
 * those of the verify step, bit for bit.
 */
#include "artifacts/op_table.h"
#include "tests/gpu/kernel_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* has_extras: the case has operands that attn_step leaves out. */
static const KernelTemplate *kernel_of_steps(OpKind op, bool has_extras)
{
	const struct { OpKind op; const char *name; } twins[] = {
		{OP_attention_verify, has_extras ? "attn_step_extra" : "attn_step"}, {OP_delta_verify_step, "delta_step"}};
	for (size_t i = 0; i < sizeof twins / sizeof twins[0]; i++)
		for (int k = 0; k < n_kernel_table; k++)
			if (twins[i].op == op && strcmp(kernel_table[k].name, twins[i].name) == 0)
				return &kernel_table[k];
	return NULL;
}

bool has_steps(OpKind op) { return kernel_of_steps(op, false); }

typedef struct Steps {
	const Case *c;   /* the verify step */
	Case d;          /* decode's */
	int64_t each;
	const uint8_t *got; /* what the verify step has left */
} Steps;

static int32_t *ints_of(const Case *c, uint8_t *image, const char *name)
{
	return (int32_t *)(image + c->buf[case_field(c, name)].at);
}

static bool is_row(const ContractField *f) { return strncmp(f->shape, "ROWS, ", 6) == 0; }

/* Bytes of slot s of version j of a state: its first in the operand of that name, the others in NAME_later. NULL: the
 * operand has no versions. */
static uint8_t *version_of(const Steps *s, const uint8_t *image, const char *name, int64_t slot, int64_t j)
{
	char later[32];
	snprintf(later, sizeof later, "%s_later", name);
	const int at = case_field(s->c, name), more = case_field(s->c, later);
	if (at < 0 || more < 0)
		return NULL;
	const CaseBuffer *first = &s->c->buf[at], *rest = &s->c->buf[more];
	const int64_t bytes = first->bytes / first->shape[0];
	const int64_t drafts = case_value(s->c, "DRAFTS", s->each - 1);
	return (uint8_t *)image + (j ? rest->at + (slot * drafts + j - 1) * bytes : first->at + slot * bytes);
}

/* The slot of row j of the group, -1 when it is idle. */
static int slot_of(const Steps *s, int64_t group, int64_t j)
{
	const int64_t t = group * s->each + j;
	return t < s->c->step.rows ? s->c->step.slot[t] : -1;
}

/* Operands before the first step. */
static void start(Steps *s)
{
	const Case *c = s->c;
	Case *d = &s->d;
	for (int i = 0; i < d->tmpl->n_fields; i++) {
		const int from = case_field(c, d->tmpl->fields[i].name);
		CaseBuffer *b = &d->buf[i];
		if (b->present && from >= 0 && c->buf[from].bytes == b->bytes)
			memcpy(d->image + b->at, c->image + c->buf[from].at, (size_t)b->bytes);
		for (int64_t slot = 0; slot < case_value(c, "SLOTS", 0); slot++) {
			const uint8_t *state = version_of(s, c->image, d->tmpl->fields[i].name, slot, 0);
			const int64_t bytes = b->bytes / (b->n_dims ? b->shape[0] : 1);
			if (state)
				memcpy(d->image + b->at + slot * bytes, version_of(s, c->image, d->tmpl->fields[i].name, slot,
					((const int32_t *)c->buf[case_field(c, "slot_version")].before)[slot]), (size_t)bytes);
		}
	}
}

/* Row j of each slot becomes decode's row of it. */
static void take_rows(Steps *s, int64_t j)
{
	const Case *c = s->c;
	Case *d = &s->d;
	const int64_t groups = case_value(d, "ROWS", 0);
	int32_t *row_slot = ints_of(d, d->image, "row_slot");
	memcpy(ints_of(d, d->image, "step"), (int32_t[4]){(int32_t)groups, 0, 0, 0}, 16);
	d->step.rows = (int)groups;
	for (int64_t g = 0; g < groups; g++) {
		const int slot = slot_of(s, g, j);
		row_slot[g] = slot;
		for (int i = 0; i < d->tmpl->n_fields; i++) {
			const ContractField *f = &d->tmpl->fields[i];
			const CaseBuffer *b = &d->buf[i];
			if (!b->present || operand_is_written(f->role) || !is_row(f))
				continue;
			const int64_t bytes = b->bytes / b->shape[0];
			memcpy(d->image + b->at + g * bytes,
				c->image + c->buf[case_field(c, f->name)].at + (g * s->each + j) * bytes, (size_t)bytes);
		}
		if (slot >= 0 && case_field(d, "slot_len") >= 0) {
			ints_of(d, d->image, "slot_token")[slot] = 0;
			ints_of(d, d->image, "slot_len")[slot] = c->step.pos[g * s->each + j];
		}
	}
}

/* What decode has left of row j is what the verify step has; states go on from there. */
static bool compare_rows(Steps *s, int64_t j, const uint8_t *left, Outcome *out)
{
	const Case *c = s->c;
	Case *d = &s->d;
	for (int i = 0; i < d->tmpl->n_fields; i++) {
		const ContractField *f = &d->tmpl->fields[i];
		const CaseBuffer *b = &d->buf[i], *theirs = &c->buf[case_field(c, f->name)];
		if (!b->present || !operand_is_written(f->role) || case_is_own(d, i))
			continue;
		if (f->role != OPERAND_OUT)
			memcpy(d->image + b->at, left + b->at, (size_t)b->bytes);
		const int64_t bytes = b->bytes / b->shape[0];
		for (int64_t g = 0; g < case_value(d, "ROWS", 0); g++) {
			const int slot = slot_of(s, g, j);
			if (slot < 0)
				continue;
			const uint8_t *state = version_of(s, s->got, f->name, slot, j);
			if (!state && (f->role != OPERAND_OUT || !is_row(f)))
				break; /* nobody's row: a cache, a counter */
			const uint8_t *mine = state ? state : s->got + theirs->at + (g * s->each + j) * bytes;
			if (memcmp(mine, left + b->at + (state ? slot : g) * bytes, (size_t)bytes) == 0)
				continue;
			snprintf(out->why, sizeof out->why, "%s: row %d of slot %d has other bits than %s gives it", f->name,
				(int)j, slot, d->tmpl->name);
			return false;
		}
	}
	return true;
}

/* Keys and values, when all rows are through. */
static bool compare_caches(const Steps *s, const uint8_t *left, Outcome *out)
{
	static const char *const names[] = {"kv", "kv_block"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		const int at = case_field(&s->d, names[i]), of = case_field(s->c, names[i]);
		if (at >= 0 && s->d.buf[at].present && memcmp(left + s->d.buf[at].at, s->got + s->c->buf[of].at,
			(size_t)s->d.buf[at].bytes) != 0) {
			snprintf(out->why, sizeof out->why, "%s has other bits than %s leaves", names[i], s->d.tmpl->name);
			return false;
		}
	}
	return true;
}

bool rows_are_steps(const Case *c, const Target *target, const uint8_t *got, StepRunner *run, void *ctx, Outcome *out)
{
	const KernelTemplate *t = kernel_of_steps(c->tmpl->op,
		case_value(c, "SINKS", 0) || case_value(c, "V_NORM", 0));
	Steps s = {.c = c, .each = case_each(c), .got = got};
	if (!t || !case_as_step(&s.d, c, t, target))
		return true;
	const uint8_t *left = NULL;
	bool ok = true;
	start(&s);
	for (int64_t j = 0; ok && j < s.each; j++) {
		take_rows(&s, j);
		left = run(ctx, &s.d, out);
		ok = left && compare_rows(&s, j, left, out);
	}
	ok = ok && compare_caches(&s, left, out);
	case_free(&s.d);
	return ok;
}
