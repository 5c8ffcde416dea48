/* kernel_orders.c - do kernels whose contracts state one ORDER give a row one result, bit for bit?
 *
 * A case is run again by other specialisations of its op: other tunables, other templates, other ROWS and OUTS, with
 * the same contents of the rows in use and NaN in those after them. Where ORDER is equal, every row, state and cache
 * must be. One of another order is run too: where no such pair ever differs, the contract says more than it needs to,
 * which is printed.
 */
#include "tests/gpu/kernel_test.h"
#include "artifacts/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 400, EQUAL = 3, OTHER = 1 /* of a case */ };

static int n_choices(const KernelTemplate *t)
{
	int n = 1;
	for (int i = 0; i < t->n_tunables; i++)
		n *= t->tunables[i].n_values;
	return n;
}

/* Contents of an operand with a line for each row or each out, [outer][n][bytes], of which `used` are in use. */
typedef struct Lines { int64_t outer, n, bytes, used; bool is_of_rows; } Lines;

/* Rows that a kernel may read or must write: all where it is not told how many, and those that outs are of. */
static int64_t rows_in_use(const Case *c)
{
	int64_t n = case_knows_rows(c) ? c->step.rows : case_value(c, "ROWS", 0);
	for (int o = 0; c->step.out_row && o < c->step.outs; o++)
		n = c->step.out_row[o] >= n ? c->step.out_row[o] + 1 : n;
	return n;
}

/* False: the operand has no such lines. Of some, as of scales of rows of codes, rows are the last dim. */
static bool lines_of(const Case *c, int field, Lines *l)
{
	const CaseBuffer *b = &c->buf[field];
	const char *shape = c->tmpl->fields[field].shape, *last = strrchr(shape, ',');
	const bool is_last = last && strcmp(last, ", ROWS") == 0, is_out = strncmp(shape, "OUTS", 4) == 0;
	if (!is_last && !is_out && strncmp(shape, "ROWS", 4) != 0)
		return false;
	*l = (Lines){is_last ? b->n / b->shape[b->n_dims - 1] : 1, case_value(c, is_out ? "OUTS" : "ROWS", 0), 0,
		is_out ? c->step.outs : rows_in_use(c), !is_out};
	l->bytes = b->bytes / (l->outer * l->n);
	return l->bytes * l->outer * l->n == b->bytes;
}

/* Lines that are not in use: not numbers, of no slot, of no row, and other whole numbers 0. */
static int unused_byte(const ContractField *f, Dtype dtype)
{
	const bool is_of_none = strcmp(f->name, "row_slot") == 0 || strcmp(f->name, "out_row") == 0 ||
		strcmp(f->name, "pair") == 0;
	return dtype != DT_i32 || is_of_none ? 0xff : 0;
}

/* The same operands: lines in use as they are, the others without contents. False: another shape, or an operand that
 * one of the kernels does not have. */
static bool take_operands(const Case *c, Case *d)
{
	for (int i = 0; i < c->tmpl->n_fields; i++) {
		const int to = c->buf[i].present && !case_is_own(c, i) ? case_field(d, c->tmpl->fields[i].name) : 0;
		if (to < 0 || (c->buf[i].present && !case_is_own(c, i) && !d->buf[to].present))
			return false;
	}
	for (int i = 0; i < d->tmpl->n_fields; i++) {
		const ContractField *f = &d->tmpl->fields[i];
		const int from = case_field(c, f->name);
		const CaseBuffer *b = &d->buf[i], *a = from < 0 ? NULL : &c->buf[from];
		Lines mine, theirs;
		if (!b->present || case_is_own(d, i))
			continue;
		if (!a || !a->present || a->dtype != b->dtype || a->n_dims != b->n_dims)
			return false;
		if (!lines_of(d, i, &theirs)) {
			if (a->bytes != b->bytes)
				return false;
			memcpy(d->image + b->at, c->image + a->at, (size_t)b->bytes);
			continue;
		}
		if (!lines_of(c, from, &mine) || mine.outer != theirs.outer || mine.bytes != theirs.bytes ||
			mine.used > theirs.n)
			return false;
		memset(d->image + b->at, unused_byte(f, b->dtype), (size_t)b->bytes);
		for (int64_t o = 0; o < mine.outer; o++)
			memcpy(d->image + b->at + o * theirs.n * theirs.bytes, c->image + a->at + o * mine.n * mine.bytes,
				(size_t)(mine.used * mine.bytes));
	}
	return true;
}

/* Line t of operand `field`, as it came back from a case of these lines. */
static const uint8_t *line_of(const Case *c, int field, const uint8_t *image, const Lines *l, int64_t outer, int64_t t)
{
	return image + c->buf[field].at + (outer * l->n + t) * l->bytes;
}

/* The first written operand whose bits differ; NULL = none does. Rows of no slot have no result. All of a state or a
 * cache counts: what no row writes was the same before. */
static const char *differs(const Case *c, const uint8_t *mine, const Case *d, const uint8_t *theirs)
{
	for (int i = 0; i < d->tmpl->n_fields; i++) {
		const ContractField *f = &d->tmpl->fields[i];
		if (!d->buf[i].present || !operand_is_written(f->role) || case_is_own(d, i))
			continue;
		const int from = case_field(c, f->name);
		Lines a, b;
		if (!lines_of(d, i, &b) || !lines_of(c, from, &a)) {
			if (memcmp(mine + c->buf[from].at, theirs + d->buf[i].at, (size_t)d->buf[i].bytes) != 0)
				return f->name;
			continue;
		}
		for (int64_t k = 0; k < a.outer * a.used; k++) {
			const int64_t o = k / a.used, t = k % a.used;
			const bool is_idle = a.is_of_rows && c->step.slot && c->step.slot[t] < 0 && f->role == OPERAND_OUT;
			if (!is_idle && memcmp(line_of(c, from, mine, &a, o, t), line_of(d, i, theirs, &b, o, t),
				(size_t)a.bytes) != 0)
				return f->name;
		}
	}
	return NULL;
}

static bool is_same_kernel(const Case *c, const Case *d)
{
	bool is_same = c->tmpl == d->tmpl;
	for (int i = 0; is_same && i < d->n_names; i++)
		is_same = case_value(c, d->names[i].name, -1) == d->names[i].value;
	return is_same;
}

/* Another number of rows or outs than the case's, 0 = as many. */
static int64_t draw_bucket(const Case *c, Random *r, const char *dim)
{
	static const int buckets[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512};
	return one_in(r, 3) || !case_value(c, dim, 0) ? 0 : buckets[random_below(r, sizeof buckets / sizeof buckets[0])];
}

/* A kernel of the op at random: other tunables, mostly another template and number of rows. */
static bool draw_twin(const Case *c, const Settings *s, Random *r, Case *d)
{
	const KernelTemplate *t = &kernel_table[random_below(r, n_kernel_table)];
	while (t->op != c->tmpl->op)
		t = &kernel_table[random_below(r, n_kernel_table)];
	const int64_t rows = draw_bucket(c, r, "ROWS"), outs = draw_bucket(c, r, "OUTS");
	const int choice = (int)random_below(r, n_choices(t));
	if ((case_each(c) && rows % case_each(c) != 0) || !case_as_twin(d, c, t, choice, rows, outs, s->target))
		return false;
	if (d->image_bytes <= IMAGE_BYTES && !is_same_kernel(c, d) && take_operands(c, d))
		return true;
	case_free(d);
	return false;
}

bool orders_hold(const Case *c, const Settings *s, uint64_t seed, const uint8_t *got, StepRunner *run, void *ctx,
	OrderTally *tally, Outcome *out)
{
	char mine[ORDER_BYTES], order[ORDER_BYTES];
	Random r = {seed ^ 0x9e3779b97f4a7c15u};
	int equal = 0, other = 0;
	const int step = case_field(c, "step");
	if (step >= 0 && memcmp(c->image + c->buf[step].at, c->buf[step].before, (size_t)c->buf[step].bytes) != 0)
		bug("the step of %s is not the one that it was drawn with", c->tmpl->name);
	bool ok = case_order(c, s->without, mine);
	if (!ok)
		snprintf(out->why, sizeof out->why, "its order cannot be evaluated");
	for (int i = 0; ok && i < TRIES && (equal < EQUAL || other < OTHER); i++) {
		Case d;
		if (!draw_twin(c, s, &r, &d))
			continue;
		const bool is_equal = case_order(&d, s->without, order) && strcmp(order, mine) == 0;
		const uint8_t *theirs = NULL;
		if (is_equal ? equal++ < EQUAL : other++ < OTHER) {
			theirs = run(ctx, &d, out);
			ok = theirs || !*out->why;
		}
		const char *name = theirs ? differs(c, got, &d, theirs) : NULL;
		tally->equal += theirs && is_equal;
		tally->other += theirs && !is_equal;
		tally->other_bits += theirs && !is_equal && name;
		if (name && is_equal) {
			snprintf(out->why, sizeof out->why, "%.20s has other bits by %.24s %.100s, which adds as %.60s too", name,
				d.tmpl->name, d.defines, order);
			ok = false;
		}
		case_free(&d);
	}
	return ok;
}
