/* kernel_compare.c - is what the device left what the reference says?
 *
 * Three things are asked of an image: every byte outside INOUT and OUT operands is as it was, guards included;
 * elements of INOUT operands that the reference leaves alone have not one bit changed; all others are within
 * tolerance. Two tolerances hold, both relative to the tensor: the largest error against the largest
 * magnitude (artifacts/dtypes.h), and, when there are enough elements, a quarter of it for the root mean
 * square, which finds what a small missing part of a sum would do.
 *
 * Rows and outs at or beyond the step's counts, and rows of slot -1, are not compared where a float result is
 * theirs: nobody reads it.
 */
#include "artifacts/numbers.h"
#include "artifacts/ring.h"
#include "tests/gpu/kernel_case.h"
#include "runtime/cpu/ref_ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ENOUGH = 256 }; /* elements for a mean to mean something */

static bool untouched(const Case *c, const uint8_t *image, Outcome *out)
{
	int64_t at = 0;
	for (int i = 0; i <= c->tmpl->n_fields; i++) {
		bool last = i == c->tmpl->n_fields;
		const CaseBuffer *b = last ? NULL : &c->buf[i];
		if (b && (!b->present || !operand_is_written(c->tmpl->fields[i].role)))
			continue;
		for (int64_t end = last ? c->image_bytes : b->at; at < end; at++)
			if (image[at] != c->image[at]) {
				snprintf(out->why, sizeof out->why, "wrote outside its results: byte %lld of the image, %s %s",
					(long long)at, last ? "after" : "before", last ? "all" : c->tmpl->fields[i].name);
				return false;
			}
		at = last ? at : b->at + b->bytes;
	}
	return true;
}

/* Is row i in the order of experts, or of those after it for the shared one, of a row in use? */
static bool is_pair_in_use(const Case *c, int64_t i)
{
	const int64_t pairs = case_value(c, "ROWS", 1) * c->attrs.n_active;
	return i < pairs ? i < c->step.rows * c->attrs.n_active : i - pairs < c->step.rows;
}

bool case_is_idle(const Case *c, int field, int64_t i)
{
	const CaseBuffer *b = &c->buf[field];
	const char *shape = c->tmpl->fields[field].shape;
	if (b->dtype == DT_i32 || !case_knows_rows(c) || c->tmpl->fields[field].role != OPERAND_OUT)
		return false;
	const char *last = strrchr(shape, ',');
	if (strncmp(shape, "PAIRS,", 6) == 0 || strncmp(shape, "ROWS * SHARES,", 14) == 0)
		return !is_pair_in_use(c, i / (b->n / b->shape[0]));
	if (last && (strcmp(last, ", PAIRS") == 0 || strcmp(last, ", ROWS * SHARES") == 0))
		return !is_pair_in_use(c, i % b->shape[1]);
	bool across = b->n_dims == 2 && last && strcmp(last, ", ROWS") == 0;
	int64_t row = across ? i % b->shape[1] : i / (b->n / b->shape[0]);
	if (across || strncmp(shape, "ROWS", 4) == 0)
		return row >= c->step.rows || (c->step.slot && c->step.slot[row] < 0);
	return strncmp(shape, "OUTS", 4) == 0 && row >= c->step.outs && b->n_dims > 1;
}

/* Is the element of a state [SLOTS, n] of a slot that has a row in the step? All of it is made anew then, and what
 * comes out as it was does so by chance. */
static bool is_made(const Case *c, int field, int64_t i)
{
	const CaseBuffer *b = &c->buf[field];
	if (strncmp(c->tmpl->fields[field].shape, "SLOTS", 5) != 0)
		return false;
	for (int t = 0; c->step.slot && t < c->step.rows; t++)
		if (c->step.slot[t] == i / (b->n / b->shape[0]))
			return true;
	return false;
}

static double tolerance(const Case *c, int field)
{
	double t = dtype_tolerance(c->buf[field].dtype);
	for (int i = 0; i < c->tmpl->n_fields; i++) { /* a result is no better than what it is made from */
		const CaseBuffer *b = &c->buf[i];
		if (b->dtype == DT_e4m3 || b->dtype == DT_e2m1 || b->dtype == DT_e8m0)
			continue; /* codes are exact */
		if (b->present && c->tmpl->fields[i].role == OPERAND_IN && b->dtype != DT_i32 && c->buf[field].dtype != DT_i32)
			t = fmax(t, dtype_tolerance(b->dtype));
	}
	return t;
}

typedef struct Sums { double largest, squares, worst, error_squares; int64_t n, worst_at; float got, want; } Sums;

static void add(Sums *s, float got, float want, int64_t at)
{
	double error = fabs((double)got - want);
	if (got == want || (isnan(got) && isnan(want))) /* infinities too */
		error = 0;
	else if (!isfinite(error))
		error = INFINITY;
	s->n++;
	if (isfinite(want)) {
		s->largest = fmax(s->largest, fabs(want));
		s->squares += (double)want * want;
	}
	s->error_squares += error * error;
	if (s->worst_at < 0 || error > s->worst) {
		s->worst = error;
		s->worst_at = at;
		s->got = got;
		s->want = want;
	}
}

static bool judge(const Case *c, int field, const Sums *s, Outcome *out)
{
	const ContractField *f = &c->tmpl->fields[field];
	double tol = tolerance(c, field), scale = s->n < ENOUGH ? fmax(s->largest, 1) : s->largest;
	double ratio = s->worst == 0 ? 0 : s->worst / (tol * scale);
	double rms = s->n < ENOUGH || s->error_squares == 0 ? 0 : sqrt(s->error_squares / s->squares) / (tol / 4);
	out->worst = fmax(out->worst, fmax(ratio, rms));
	out->compared += s->n;
	if (ratio <= 1 && rms <= 1)
		return true;
	snprintf(out->why, sizeof out->why, "%s[%lld] = %.7g, reference %.7g; largest %.4g, tolerance %.1e, "
		"mean error %.2g of its limit", f->name, (long long)s->worst_at, s->got, s->want, s->largest, tol, rms);
	return false;
}

/* Element i of two arrays. */
static bool same_bits(Dtype dtype, const uint8_t *a, const uint8_t *b, int64_t i)
{
	int size = dtype_bytes(dtype);
	if (size)
		return memcmp(a + i * size, b + i * size, (size_t)size) == 0;
	return ((a[i / 2] ^ b[i / 2]) >> i % 2 * 4 & 15) == 0; /* half a byte */
}

static bool compare_floats(const Case *c, int field, const uint8_t *image, Outcome *out)
{
	const CaseBuffer *b = &c->buf[field];
	const float *before = b->before, *want = b->want;
	RefOperand raw = {(void *)(image + b->at), b->dtype, 1, {b->n}, false};
	Sums s = {.worst_at = -1};
	for (int64_t i = 0; i < b->n; i++) {
		float got;
		if (case_is_idle(c, field, i))
			continue;
		bool kept = c->tmpl->fields[field].role != OPERAND_OUT && memcmp(&before[i], &want[i], 4) == 0;
		if (kept && same_bits(b->dtype, image + b->at, c->image + b->at, i))
			continue;
		ref_convert(&raw, i, 1, &got);
		/* a result may well equal what was there */
		if (kept && got != want[i] && !(isnan(got) && isnan(want[i])) && !is_made(c, field, i)) {
			snprintf(out->why, sizeof out->why, "%s[%lld] = %.7g: must stay %.7g", c->tmpl->fields[field].name,
				(long long)i, got, want[i]);
			return false;
		}
		if (!isnan(got) || !isnan(want[i])) /* no number is as good as another */
			add(&s, got, want[i], i);
	}
	return s.n == 0 || judge(c, field, &s, out);
}

/* Element i of an operand: of the image, or, without one, as it is wanted. */
static double element(const CaseBuffer *b, const uint8_t *image, int64_t i)
{
	float value = ((const float *)b->want)[i];
	if (image)
		numbers_convert(b->dtype, image + b->at, i, 1, &value);
	return value;
}

/* A cache of codes, and the scales of its runs, or rows of codes. What lies between two codes may become either, since
 * a GPU's last bits are its own: now and then one is a step off, or the scale of a run, and what it scales with it.
 * Codes of sums of products are as good as those sums, which near zero is many steps. */
static bool compare_codes(const Case *c, int field, const uint8_t *image, Outcome *out)
{
	const CaseBuffer *b = &c->buf[field], *scale = NULL;
	if (b->dtype == DT_e2m1)
		scale = &c->buf[case_field(c, case_field(c, "kv_block") >= 0 ? "kv_block" : "y_block")];
	const bool is_of_sums = case_field(c, "gate") >= 0 || case_field(c, "gate_up") >= 0;
	const double slack = is_of_sums ? 448 * dtype_tolerance(DT_f32) : 0;
	int64_t n = 0, n_off = 0;
	for (int64_t i = 0; i < b->n; i++) {
		if (case_is_idle(c, field, i))
			continue;
		bool kept = memcmp((const float *)b->before + i, (const float *)b->want + i, 4) == 0;
		if (kept && same_bits(b->dtype, image + b->at, c->image + b->at, i))
			continue;
		double of = scale ? element(scale, NULL, i / 16) : 0;
		if (kept && scale && !(of > 0)) { /* no writer leaves such a scale */
			snprintf(out->why, sizeof out->why, "%s[%lld]: other bits, must stay", c->tmpl->fields[field].name,
				(long long)i);
			return false;
		}
		double want = element(b, NULL, i) * (scale ? of : 1);
		double got = element(b, image, i) * (scale ? element(scale, image, i / 16) : 1);
		double step = scale ? 1.2 * fmax(of, fabs(want)) / 2 : fmax(fabs(want) / 7, fmax(slack, 0x1p-9));
		if (isnan(got) ? !isnan(want) : !(fabs(got - want) <= step)) {
			snprintf(out->why, sizeof out->why, "%s[%lld] = %.7g, reference %.7g", c->tmpl->fields[field].name,
				(long long)i, got, want);
			return false;
		}
		n++;
		n_off += fabs(got - want) > slack;
	}
	out->compared += n;
	if (n_off <= 32 + n / (slack > 0 ? 20 : 1000))
		return true;
	snprintf(out->why, sizeof out->why, "%s: %lld of %lld elements are a step off", c->tmpl->fields[field].name,
		(long long)n_off, (long long)n);
	return false;
}

/* Log probabilities of a ring's entries may differ a little, and with them the seals. */
static bool is_same_entry(const Case *c, int field, const int32_t *got, const int32_t *want)
{
	RingEntry a, b;
	if (strcmp(c->tmpl->fields[field].name, "ring") != 0 || !ring_read(got, &a) || !ring_read(want, &b))
		return false;
	bool is_near = isnan(a.logprob) ? isnan(b.logprob)
		: fabs((double)a.logprob - b.logprob) <= dtype_tolerance(DT_f32) * fmax(fabs(b.logprob), 1);
	return is_near && a.position == b.position && a.token == b.token && a.done == b.done;
}

/* best and best_id are judged by the logits beside them: those two may be equal for the reference, and are not here. */
static bool compare_best(const Case *c, int field, const uint8_t *image, Outcome *out)
{
	const CaseBuffer *b = &c->buf[field];
	const float *logits = (const float *)(image + c->buf[case_field(c, "logits")].at);
	int64_t parts = b->shape[1], v = case_value(c, "V", 1);
	for (int64_t i = 0; i < c->step.outs * parts; i++) {
		BestOfPart want = case_best(c, logits, i / parts, i % parts);
		float top = want.sum > 0 ? logits[i / parts * v + want.id] : -INFINITY;
		char got[64], says[64];
		bool same;
		if (b->dtype == DT_i32) {
			int32_t id = ((const int32_t *)(image + b->at))[i];
			same = id == want.id;
			snprintf(got, sizeof got, "%d", id);
			snprintf(says, sizeof says, "%d", want.id);
		} else {
			const float *pair = (const float *)(image + b->at) + 2 * i;
			same = pair[0] == top && fabs(pair[1] - want.sum) <= 1e-5 * want.sum;
			snprintf(got, sizeof got, "%.7g, sum %.7g", pair[0], pair[1]);
			snprintf(says, sizeof says, "%.7g, sum %.7g", top, want.sum);
		}
		out->compared++;
		if (same)
			continue;
		snprintf(out->why, sizeof out->why, "%s of part %lld of out %lld: %s; its logits say %s",
			c->tmpl->fields[field].name, (long long)(i % parts), (long long)(i / parts), got, says);
		return false;
	}
	return true;
}

static RefOperand row_of(void *data, Dtype dtype, int64_t n)
{
	return (RefOperand){.data = data, .dtype = dtype, .n_dims = 2, .shape = {1, n}};
}

/* Experts are judged by the logits beside them, of which two may be equal for the reference and are not here. Of
 * shares, that of the expert that all rows go to stands last and is as wanted. */
static bool compare_routes(const Case *c, int field, const uint8_t *image, Outcome *out)
{
	const CaseBuffer *b = &c->buf[field], *logits = &c->buf[case_field(c, "logits")];
	const int64_t active = c->attrs.n_active, width = b->shape[1];
	const bool by_sigmoid = c->tmpl->op == OP_norm_route_sigmoid;
	const int bias = case_field(c, "bias"), by = case_field(c, "by");
	int32_t expert[64];
	float share[64];
	for (int64_t i = 0; i < c->step.rows * width; i++) {
		const int64_t t = i / width, j = i % width;
		const RefOperand scores = row_of((void *)(image + logits->at + t * logits->shape[1] * 4), DT_f32,
			logits->shape[1]);
		const RefOperand offsets = row_of(bias >= 0 && c->buf[bias].present ? c->buf[bias].before : NULL, DT_f32,
			logits->shape[1]);
		const RefOperand ids = row_of(expert, DT_i32, active), shares = row_of(share, DT_f32, active);
		RefCall route = by_sigmoid
			? (RefCall){.op = OP_route_sigmoid, .attrs = c->attrs, .operand = {scores, offsets, ids, shares}}
			: (RefCall){.op = OP_route, .attrs = c->attrs, .operand = {scores, ids, shares}};
		if (j == 0)
			ref_op(&route);
		for (int64_t k = 0; j == 0 && by >= 0 && k < active; k++)
			share[k] *= ((const float *)c->buf[by].before)[expert[k]];
		const void *got = image + b->at + i * 4;
		const float value = *(const float *)got, want = j < active ? share[j] : ((const float *)b->want)[i];
		const bool is_same = b->dtype == DT_i32 ? *(const int32_t *)got == expert[j]
			: fabs((double)value - want) <= (j < active ? 1e-5 : dtype_tolerance(DT_bf16)) * fmax(fabs(want), 0.1);
		out->compared++;
		if (is_same)
			continue;
		if (b->dtype == DT_i32)
			snprintf(out->why, sizeof out->why, "choice %lld of row %lld is %d; its logits say %d", (long long)j,
				(long long)t, *(const int32_t *)got, expert[j]);
		else
			snprintf(out->why, sizeof out->why, "share %lld of row %lld is %.7g, not %.7g", (long long)j, (long long)t,
				value, want);
		return false;
	}
	return true;
}

static bool compare_integers(const Case *c, int field, const uint8_t *image, Outcome *out)
{
	const CaseBuffer *b = &c->buf[field];
	const int32_t *got = (const int32_t *)(image + b->at), *want = b->want;
	for (int64_t i = 0; i < b->n; i++)
		if (got[i] != want[i] && !is_same_entry(c, field, got + i / PLAN_RING_WORDS * PLAN_RING_WORDS,
			want + i / PLAN_RING_WORDS * PLAN_RING_WORDS)) {
			snprintf(out->why, sizeof out->why, "%s[%lld] = %d, reference %d", c->tmpl->fields[field].name,
				(long long)i, got[i], want[i]);
			return false;
		}
	out->compared += b->n;
	return true;
}

Outcome case_compare(const Case *c, const uint8_t *image)
{
	Outcome out = {0};
	bool ok = untouched(c, image, &out);
	for (int i = 0; ok && i < c->tmpl->n_fields; i++) {
		OperandRole role = c->tmpl->fields[i].role;
		if (!c->buf[i].present || case_is_own(c, i) || !operand_is_written(role))
			continue;
		if (strncmp(c->tmpl->fields[i].name, "best", 4) == 0)
			ok = compare_best(c, i, image, &out);
		else if (case_field(c, "routed") >= 0 && (strcmp(c->tmpl->fields[i].name, "expert") == 0 ||
			strcmp(c->tmpl->fields[i].name, "share") == 0))
			ok = compare_routes(c, i, image, &out);
		else if (c->buf[i].dtype == DT_e4m3 || c->buf[i].dtype == DT_e2m1)
			ok = compare_codes(c, i, image, &out);
		else
			ok = c->buf[i].dtype == DT_i32 ? compare_integers(c, i, image, &out) : compare_floats(c, i, image, &out);
	}
	out.ok = ok;
	return out;
}
