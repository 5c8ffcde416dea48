/* kernel_orders.c - do kernels whose contracts state one ORDER give a row one result, bit for bit?
 *
 * A case is run again by other specialisations of its op: other tunables, other templates, other ROWS, with the same
 * contents of the rows in use and NaN in those after them. Where ORDER is equal, every row, state and cache must be.
 * One of another order is run too: where no such pair ever differs, the contract says more than it needs to, which is
 * printed.
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

static bool is_by_row(const ContractField *f)
{
	return strncmp(f->shape, "ROWS", 4) == 0 && (f->shape[4] == ',' || f->shape[4] == 0);
}

/* The same operands: rows in use as they are, those behind them all ones, which is NaN or -1. False: another shape. */
static bool take_operands(const Case *c, Case *d)
{
	for (int i = 0; i < d->tmpl->n_fields; i++) {
		const ContractField *f = &d->tmpl->fields[i];
		const int from = case_field(c, f->name);
		const CaseBuffer *b = &d->buf[i], *a = from < 0 ? NULL : &c->buf[from];
		if (!b->present || case_is_own(d, i))
			continue;
		if (!a || !a->present || a->dtype != b->dtype || a->n_dims != b->n_dims)
			return false;
		if (is_by_row(f)) {
			const int64_t row = b->bytes / b->shape[0], n = c->step.rows;
			if (row != a->bytes / a->shape[0] || n > b->shape[0])
				return false;
			memset(d->image + b->at, 0xff, (size_t)b->bytes);
			memcpy(d->image + b->at, c->image + a->at, (size_t)(n * row));
		} else if (a->bytes == b->bytes) {
			memcpy(d->image + b->at, c->image + a->at, (size_t)b->bytes);
		} else {
			return false;
		}
	}
	return true;
}

/* The first written operand whose bits differ; NULL = none does. */
static const char *differs(const Case *c, const uint8_t *mine, const Case *d, const uint8_t *theirs)
{
	for (int i = 0; i < d->tmpl->n_fields; i++) {
		const ContractField *f = &d->tmpl->fields[i];
		if (!d->buf[i].present || !operand_is_written(f->role) || case_is_own(d, i))
			continue;
		const CaseBuffer *a = &c->buf[case_field(c, f->name)], *b = &d->buf[i];
		const int64_t n = is_by_row(f) ? c->step.rows * (b->bytes / b->shape[0]) : b->bytes;
		if (memcmp(mine + a->at, theirs + b->at, (size_t)n) != 0)
			return f->name;
	}
	return NULL;
}

/* A kernel of the op at random: other tunables, mostly another template and number of rows. */
static bool draw_twin(const Case *c, const Settings *s, Random *r, Case *d)
{
	static const int buckets[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512};
	const KernelTemplate *t = &kernel_table[random_below(r, n_kernel_table)];
	while (t->op != c->tmpl->op)
		t = &kernel_table[random_below(r, n_kernel_table)];
	const int64_t rows = one_in(r, 3) || !case_value(c, "ROWS", 0) ? 0
		: buckets[random_below(r, sizeof buckets / sizeof buckets[0])];
	const int choice = (int)random_below(r, n_choices(t));
	if ((rows && rows < c->step.rows) || !case_as_twin(d, c, t, choice, rows, s->target))
		return false;
	if (d->image_bytes <= IMAGE_BYTES && (t != c->tmpl || strcmp(d->defines, c->defines) != 0) && take_operands(c, d))
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
	bool ok = case_order(c, mine);
	for (int i = 0; ok && i < TRIES && (equal < EQUAL || other < OTHER); i++) {
		Case d;
		if (!draw_twin(c, s, &r, &d))
			continue;
		const bool is_equal = case_order(&d, order) && strcmp(order, mine) == 0;
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
