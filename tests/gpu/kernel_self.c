/* kernel_self.c - a test of the kernel test: does the comparison notice?
 *
 * For trials of every template a perfect device is played by the reference itself, its results rounded to the
 * operands' types: that must pass. Then one thing at a time goes wrong, as kernels do it: a byte past a buffer,
 * an input overwritten, a result never written, a result wrong by more than the tolerance, a piece of state
 * changed that was nobody's to change. Each must be noticed. So must a single bit of a verify step's row, where
 * decode's kernel, which the reference plays as well, gives another, and of a row of a kernel of equal ORDER; what such
 * kernels leave in rows that are not in use must not be.
 */
#include "tests/gpu/kernel_test.h"
#include "runtime/cpu/ref_ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORDER_CASES = 2 /* of a template: they take the most time */ };

static bool is_result(const Case *c, int field)
{
	return c->buf[field].present && operand_is_written(c->tmpl->fields[field].role);
}

static void perfect_image(const Case *c, uint8_t *image)
{
	memcpy(image, c->image, (size_t)c->image_bytes);
	for (int i = 0; i < c->tmpl->n_fields; i++)
		if (is_result(c, i))
			case_encode(&c->buf[i], c->buf[i].want, image + c->buf[i].at);
}

static bool must_fail(const Case *c, const uint8_t *image, const char *what)
{
	Outcome o = case_compare(c, image);
	if (o.ok)
		printf("%s: unnoticed: %s\n     %s\n", c->tmpl->name, what, c->defines);
	return !o.ok;
}

/* The element of a result that every comparison looks at: of the first row that is in use, whether rows are the first
 * dim or, as of the scales of rows of codes, the last one; of pairs of row and expert any one in use. */
static int64_t watched(const Case *c, int field)
{
	const char *shape = c->tmpl->fields[field].shape;
	size_t length = strlen(shape);
	bool by_row = strncmp(shape, "ROWS", 4) == 0, by_out = strncmp(shape, "OUTS", 4) == 0;
	bool rows_last = !by_row && length > 6 && strcmp(shape + length - 6, ", ROWS") == 0;
	int64_t width = c->buf[field].n / c->buf[field].shape[0];
	for (int64_t t = 0; (by_row || rows_last) && t < c->step.rows; t++)
		if (!c->step.slot || c->step.slot[t] >= 0)
			return rows_last ? t : t * width + width / 2;
	if (by_row || rows_last || (by_out && c->step.outs == 0))
		return -1;
	int64_t at = width / 2;
	for (int64_t tried = 0; case_is_idle(c, field, at) && tried < c->buf[field].n; tried++)
		at = (at + 1) % c->buf[field].n;
	return case_is_idle(c, field, at) ? -1 : at;
}

static int break_result(const Case *c, int field, uint8_t *image)
{
	const CaseBuffer *b = &c->buf[field];
	int size = dtype_bytes(b->dtype), unnoticed = 0; /* 0: two elements a byte, all of whose values are numbers */
	int64_t at = watched(c, field);
	uint8_t *raw = image + b->at + (size ? at * size : at / 2);
	if (at < 0)
		return 0;
	const bool is_number = b->dtype == DT_i32 || !isnan(((const float *)b->want)[at]);
	if (c->tmpl->fields[field].role == OPERAND_OUT && b->dtype != DT_i32 && size && is_number) {
		perfect_image(c, image);
		memset(raw, 0xFF, (size_t)size);
		unnoticed += !must_fail(c, image, "a result left unwritten");
	}
	perfect_image(c, image);
	if (b->dtype == DT_i32) {
		raw[0] ^= 1;
	} else if (size <= 1) {
		raw[0] ^= size ? 0x40 : 0x44; /* the high bit of the exponent: a code is off by more than a step */
	} else {
		memset(raw, 0, (size_t)size);
		raw[size - 1] = 0x7b; /* 57344 in f16, more in the others: off by far, however small the result */
	}
	return unnoticed + !must_fail(c, image, c->tmpl->fields[field].name);
}

/* State in f32 that a step makes anew may differ by a unit where it comes out as it was; that of other slots may
 * not. */
static int nudge_state(const Case *c, int field, uint8_t *image)
{
	const CaseBuffer *b = &c->buf[field];
	int unnoticed = 0;
	for (int64_t slot = 0; slot < b->shape[0]; slot++) {
		const int64_t at = slot * (b->n / b->shape[0]);
		float *before = (float *)b->before + at;
		const float was = *before;
		bool has_row = false;
		for (int t = 0; t < c->step.rows; t++)
			has_row |= c->step.slot[t] == slot;
		*before = ((const float *)b->want)[at];
		perfect_image(c, image);
		image[b->at + at * 4] ^= 1;
		if (case_compare(c, image).ok != has_row) {
			printf("%s: %s of slot %lld, one unit off, is %s\n     %s\n", c->tmpl->name, c->tmpl->fields[field].name,
				(long long)slot, has_row ? "a fault" : "unnoticed", c->defines);
			unnoticed++;
		}
		*before = was;
	}
	return unnoticed;
}

/* The reference plays decode's kernel as well. */
static const uint8_t *play_step(void *ctx, Case *d, Outcome *out)
{
	uint8_t **image = ctx;
	for (int i = 0; i < d->tmpl->n_fields; i++) {
		CaseBuffer *b = &d->buf[i];
		RefOperand raw = {d->image + b->at, b->dtype, 1, {b->n}, false};
		if (!b->present)
			continue;
		b->before = b->before ? b->before : case_alloc(d, b->n * 4);
		if (b->dtype == DT_i32 || b->dtype == DT_f32z)
			memcpy(b->before, raw.data, (size_t)b->bytes);
		else
			ref_convert(&raw, 0, b->n, b->before);
	}
	case_reference(d);
	free(*image);
	*image = malloc((size_t)d->image_bytes);
	if (!*image) {
		snprintf(out->why, sizeof out->why, "out of memory");
		return NULL;
	}
	perfect_image(d, *image);
	return *image;
}

/* The smallest fault in a row of a verify step, in its result or in a version of its state, is none for the comparison
 * with the reference, but for the one with decode. */
static int break_bits(const Case *c, uint8_t *image)
{
	const Target *target = target_by_name("sm_90a");
	uint8_t *played = NULL;
	Outcome o = {0};
	int unnoticed = 0;
	const int kv = case_field(c, "kv");
	if (kv >= 0 && c->buf[kv].dtype == DT_bf16) /* the reference rounds such keys between steps alone */
		return 0;
	perfect_image(c, image);
	if (!rows_are_steps(c, target, image, play_step, &played, &o)) {
		printf("%s: the reference's own steps fail: %s\n     %s\n", c->tmpl->name, o.why, c->defines);
		unnoticed++;
	}
	for (int i = 0; i < c->tmpl->n_fields && has_steps(c->tmpl->op); i++) {
		const CaseBuffer *b = &c->buf[i];
		const bool is_state = strcmp(c->tmpl->fields[i].name, "delta") == 0;
		if (c->tmpl->fields[i].role != OPERAND_OUT && !is_state)
			continue;
		if (case_is_own(c, i) || watched(c, i) < 0)
			continue;
		int64_t row = 0;
		while (c->step.slot[row] < 0)
			row++;
		perfect_image(c, image);
		image[b->at + b->bytes / b->shape[0] * (is_state ? c->step.slot[row] : row)] ^= 1;
		if (rows_are_steps(c, target, image, play_step, &played, &o)) {
			printf("%s: unnoticed: %s, one unit off\n     %s\n", c->tmpl->name, c->tmpl->fields[i].name, c->defines);
			unnoticed++;
		}
	}
	free(played);
	return unnoticed;
}

/* A kernel of equal ORDER, or not quite: the reference, with anything in what nobody reads, and one bit of a result of
 * the first row in use turned round. */
typedef struct Twin { uint8_t *image; const char *wrong; Random random; } Twin;

static const uint8_t *play_twin(void *ctx, Case *d, Outcome *out)
{
	Twin *twin = ctx;
	if (!play_step(&twin->image, d, out))
		return NULL;
	for (int i = 0; i < d->tmpl->n_fields; i++) {
		const CaseBuffer *b = &d->buf[i];
		const int size = dtype_bytes(b->dtype);
		if (!is_result(d, i))
			continue;
		for (int64_t k = 0; size && k < b->n; k++)
			if (case_is_own(d, i) || case_is_idle(d, i, k))
				memset(twin->image + b->at + k * size, (int)random_below(&twin->random, 256), (size_t)size);
		if (twin->wrong && strcmp(d->tmpl->fields[i].name, twin->wrong) == 0) {
			const int64_t at = watched(d, i);
			twin->image[b->at + (size ? at * size : at / 2)] ^= 1;
		}
	}
	return twin->image;
}

/* Kernels of equal ORDER: a bit of a row must be noticed, whatever the twin's buckets, and nothing else. */
static int break_orders(const Case *c, uint64_t seed, uint8_t *image, int *pairs)
{
	const Settings s = {.target = target_by_name("sm_90a")};
	Twin twin = {NULL, NULL, {seed}};
	OrderTally tally = {0};
	Outcome o = {0};
	int unnoticed = 0;
	perfect_image(c, image);
	if (!orders_hold(c, &s, seed, image, play_twin, &twin, &tally, &o)) {
		printf("%s: the reference beside itself fails: %s\n     %s\n", c->tmpl->name, o.why, c->defines);
		unnoticed++;
	}
	*pairs += tally.equal;
	for (int i = 0; tally.equal && i < c->tmpl->n_fields; i++) {
		if (!is_result(c, i) || case_is_own(c, i) || watched(c, i) < 0)
			continue;
		twin.wrong = c->tmpl->fields[i].name;
		if (orders_hold(c, &s, seed, image, play_twin, &twin, &tally, &o)) {
			printf("%s: unnoticed: %s of a kernel of equal order, one bit off\n     %s\n", c->tmpl->name, twin.wrong,
				c->defines);
			unnoticed++;
		}
	}
	free(twin.image);
	return unnoticed;
}

static int break_case(const Case *c, uint8_t *image)
{
	int unnoticed = 0;
	perfect_image(c, image);
	Outcome o = case_compare(c, image);
	if (!o.ok) {
		printf("%s: the reference's own result fails: %s\n     %s\n", c->tmpl->name, o.why, c->defines);
		return 1;
	}
	for (int i = 0; i < c->tmpl->n_fields; i++) {
		const CaseBuffer *b = &c->buf[i];
		if (!b->present)
			continue;
		perfect_image(c, image);
		image[b->at + b->bytes] ^= 1;
		unnoticed += !must_fail(c, image, "a byte past the end");
		perfect_image(c, image);
		image[b->at - 1] ^= 1;
		unnoticed += !must_fail(c, image, "a byte before the start");
		perfect_image(c, image);
		if (case_is_own(c, i))
			continue;
		if (is_result(c, i) && b->dtype == DT_f32 && c->step.slot &&
			strncmp(c->tmpl->fields[i].shape, "SLOTS", 5) == 0)
			unnoticed += nudge_state(c, i, image);
		if (is_result(c, i)) {
			unnoticed += break_result(c, i, image);
		} else {
			image[b->at + b->bytes / 2] ^= 1;
			unnoticed += !must_fail(c, image, "an input overwritten");
		}
	}
	return unnoticed + break_bits(c, image);
}

int self_check(const Settings *s)
{
	CaseLimits limits = {4000000, 2 << 20, target_by_name("sm_90a"), NULL, 0};
	int unnoticed = 0, cases = 0, pairs = 0, alone = 0;
	for (int i = 0; i < n_kernel_table; i++) {
		const int before = pairs;
		for (int k = 0; k < s->cases; k++) {
			uint64_t seed = s->seed * 1000003 + (uint64_t)k;
			Case c;
			if (!draw_case(&c, &kernel_table[i], &limits, &seed)) {
				printf("%s: no admissible constants found\n", kernel_table[i].name);
				unnoticed++;
				break;
			}
			uint8_t *image = malloc((size_t)c.image_bytes);
			if (!image)
				bug("out of memory");
			case_reference(&c);
			unnoticed += break_case(&c, image) + (k < ORDER_CASES ? break_orders(&c, seed, image, &pairs) : 0);
			cases++;
			free(image);
			case_free(&c);
		}
		if (pairs == before) {
			printf("%s has no kernel of equal order beside it\n", kernel_table[i].name);
			alone++;
		}
	}
	printf("%d pairs of equal order, %d templates without one\n", pairs, alone);
	printf("%d trials of %d templates, %d faults unnoticed\n", cases, n_kernel_table, unnoticed);
	return unnoticed != 0;
}
