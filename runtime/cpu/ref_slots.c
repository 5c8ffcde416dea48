/* ref_slots.c - what happens to a slot around the model: its rows, prompt, birth and next token.
 *
 * THE LOGITS STAGE (op sample), the same on every device. For out row o: t = out_row[o],
 * s = row_slot[t]. An out is idle when o >= step[1], t < 0, s < 0 or slot_token[s] < 0 (its
 * sequence has ended). Idle outs, and all outs of a scoring step (step[3] & 1), touch nothing.
 * Only ids v < N_VALID take part.
 *
 *  1 penalties, in place in `logits`, one float32 rounding each:
 *      counts[s,v] != 0:             l = l > 0 ? l / repetition : l * repetition
 *      n = counts[s,v] mod 2^30 > 0: l = l - presence; l = l - frequency * n
 *  2 rules of the slot (ops.h), of one token each, for the draw alone: position = row_pos[t] + 1, the
 *    new token's; below the rule's position l = -inf, else, if its value is not 0, l = l + value in
 *    float32. The logits as they were before are restored after 5
 *    A masked slot (limits[s,7]) draws of the ids whose bits are set in masks[s], or, after drafts, in
 *    masks_later: all others are -inf, for the draw alone as well
 *  3 temperature 0: the token is the largest l, the lowest id among equals. Otherwise
 *  4 z = l / temperature in float32, of which these stay:
 *      top_k > 0:  z >= the top_k-th largest, equals counted one by one
 *      top_p < 1:  z >= T, the largest threshold for which the probabilities of those that
 *                  stayed so far and reach T sum up to at least top_p of the whole: the token
 *                  that crosses top_p stays, and its equals with it
 *      min_p > 0:  exp(z - largest z) >= min_p
 *  5 the token is the largest z + g, the lowest id among equals, with x the first word of
 *      Philox4x32-10 (counter {v, position, 0, 0}, key {limits[s,1], limits[s,2]}),
 *      u = (x + 0.5) / 2^32, at most 1 - 2^-24, and g = -log(-log1p(-u)). (1 - u is as uniform
 *      as u, and log1p keeps float32 exact just where g is large.) A draw depends on
 *      seed, position and id, never on batch or phase
 *  6 logprob = log softmax(l)[token]: penalised, before rules, temperature and cuts
 *  7 done = 1 when a rule says that the token ends the sequence, or it is in stop_tokens and
 *    limits[s,7] has no 2^16; else 2 when position >= limits[s,3], else 0; when a penalised l is
 *    NaN, or the largest is infinite, or that of what rules and mask leave is, there is no token: it
 *    is -1, done = 3 and logprob NaN
 *  8 slot_token[s] = token, -1 when done; slot_len[s] = position; counts[s,token] += 1 when there
 *    is a token; ring[s], entry position % 64 = position, token, done, logprob (artifacts/ring.h)
 *
 * Where a head drafts, ops draw (1 to 6) and accept (7, 8) are this stage (ref_draft.c): of several rows of a slot each
 * counts the drafts before it as generated, which they are when its own draw counts.
 *
 * Philox: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 */
#include "artifacts/ring.h"
#include "runtime/cpu/ref_call.h"

#include <math.h>
#include <string.h>

enum { IN_PROMPT = PLAN_IN_PROMPT };
enum { RULES_WORDS = PLAN_RULES * PLAN_RULE_WORDS }; /* of a slot */
enum { KEEPS_ON = 1 << 16, IS_MASKED = 1 << 17 }; /* in limits[s,7], above the number of rules */

typedef struct Rule { int token; float value; int before; bool is_end; } Rule;

/* Of a slot, by its limits. */
static int n_rules(const int32_t *limits)
{
	const int n = limits[7] & (KEEPS_ON - 1);
	return n < PLAN_RULES ? n : PLAN_RULES;
}

static Rule rule_at(const int32_t *rules, int i)
{
	const int32_t *w = rules + i * PLAN_RULE_WORDS;
	Rule r = {.token = w[0], .before = w[2], .is_end = w[3] != 0};
	memcpy(&r.value, w + 1, sizeof r.value);
	return r;
}

void ref_slot_rows(const RefCall *c)
{
	int64_t rows = ref_dim(c, "row_slot", 0);
	for (int64_t t = 0; t < rows; t++) {
		int slot = ref_ints(c, "row_slot")[t];
		int token = slot < 0 ? -1 : ref_ints(c, "slot_token")[slot];
		ref_ints(c, "row_token")[t] = token < 0 ? 0 : token;
		ref_ints(c, "row_pos")[t] = token < 0 ? 0 : ref_ints(c, "slot_len")[slot];
	}
}

void ref_note_prompt(const RefCall *c)
{
	const int32_t *step = ref_ints(c, "step");
	int64_t rows = step[3] & 1 ? 0 : step[0], vocab = ref_dim(c, "counts", 1);
	for (int64_t t = 0; t < rows; t++) {
		int slot = ref_ints(c, "row_slot")[t];
		if (slot >= 0)
			ref_ints(c, "counts")[slot * vocab + ref_ints(c, "row_token")[t]] |= IN_PROMPT;
	}
}

void ref_acquire(const RefCall *c)
{
	static const char *const fresh[][2] = {
		{"new_sampling", "sampling"}, {"new_limits", "limits"}, {"new_pages", "page_table"}};
	int64_t slots = ref_dim(c, "acquire", 0), vocab = ref_dim(c, "counts", 1);

	for (int64_t s = 0; s < slots; s++) {
		if (ref_ints(c, "acquire")[s] != 1)
			continue;
		ref_ints(c, "slot_len")[s] = 0;
		ref_ints(c, "slot_token")[s] = 0;
		if (ref_has(c, "slot_version"))
			ref_ints(c, "slot_version")[s] = 0;
		memset(ref_ints(c, "counts") + s * vocab, 0, (size_t)vocab * sizeof(int32_t));
		for (int i = 0; i < 3; i++) { /* all three are rows of 4-byte elements */
			int64_t cols = ref_dim(c, fresh[i][1], 1);
			memcpy(ref_ints(c, fresh[i][1]) + s * cols, ref_ints(c, fresh[i][0]) + s * cols,
				(size_t)cols * sizeof(int32_t));
		}
		memcpy(ref_ints(c, "rules") + s * RULES_WORDS, ref_ints(c, "new_rules"), RULES_WORDS * sizeof(int32_t));
	}
}

/* Sampling ------------------------------------------------------------ */

static int id_of(const DrawOf *d, int v) { return d->ids ? d->ids[v] : v; }

static void penalise(float *logits, const DrawOf *d)
{
	float repetition = d->sampling[3], presence = d->sampling[4], frequency = d->sampling[5];
	for (int v = 0; v < d->n; v++) {
		const int id = id_of(d, v);
		int32_t generated = d->counts[id] & (IN_PROMPT - 1);
		for (int i = 0; i < d->n_drafts; i++)
			generated += d->drafts[i] == id;
		if (d->counts[id] != 0 || generated > 0)
			logits[v] = logits[v] > 0 ? logits[v] / repetition : logits[v] * repetition;
		if (generated > 0) {
			logits[v] -= presence;
			logits[v] -= frequency * (float)generated;
		}
	}
}

/* Index of the largest of n values, the lowest among equals. */
static int largest(const double *values, int n)
{
	int best = 0;
	for (int v = 1; v < n; v++)
		if (values[v] > values[best])
			best = v;
	return best;
}

/* An integer that orders like the float. */
static uint32_t order(double value)
{
	float f = (float)value;
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

/* Cuts (sets to -inf) the values below the largest threshold at which those that reach it weigh at
 * least `want`: bit by bit from the top, as the weight can only fall when the threshold rises.
 * Values already cut weigh nothing; weight NULL = 1 each. */
static void cut_below(double *z, const double *weight, int n, double want)
{
	uint32_t threshold = 0;
	for (int bit = 31; bit >= 0; bit--) {
		uint32_t higher = threshold | (uint32_t)1 << bit;
		double reached = 0;
		for (int v = 0; v < n; v++)
			if (z[v] > -INFINITY && order(z[v]) >= higher)
				reached += weight ? weight[v] : 1;
		if (reached >= want)
			threshold = higher;
	}
	for (int v = 0; v < n; v++)
		if (order(z[v]) < threshold)
			z[v] = -INFINITY;
}

/* Token v's word of the noise: four tokens share a block of words. */
static uint32_t philox(uint32_t v, uint32_t position, uint32_t key0, uint32_t key1)
{
	uint32_t counter[4] = {v / 4, position, 0, 0};
	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)counter[0] * 0xD2511F53, b = (uint64_t)counter[2] * 0xCD9E8D57;
		uint32_t next[4] = {(uint32_t)(b >> 32) ^ counter[1] ^ key0, (uint32_t)b,
			(uint32_t)(a >> 32) ^ counter[3] ^ key1, (uint32_t)a};
		memcpy(counter, next, sizeof counter);
		key0 += 0x9E3779B9;
		key1 += 0xBB67AE85;
	}
	return counter[v % 4];
}

bool ref_is_masked(const int32_t *limits) { return limits[7] & IS_MASKED; }

const uint32_t *ref_mask(const RefCall *c, int slot, int64_t drafts)
{
	if (!ref_has(c, "masks") || !ref_is_masked(ref_ints(c, "limits") + slot * 8))
		return NULL;
	const int64_t words = ref_dim(c, "masks", 1), most = drafts > 0 ? ref_dim(c, "masks_later", 1) : 0;
	const int64_t j = drafts < most ? drafts : most;
	return j <= 0 ? (const uint32_t *)ref_ints(c, "masks") + slot * words
		: (const uint32_t *)ref_ints(c, "masks_later") + (slot * most + j - 1) * words;
}

static bool may_draw(const DrawOf *d, int v)
{
	return !d->mask || d->mask[v / 32] >> v % 32 & 1;
}

/* Chooses among penalised logits, a column of them; z and p are scratch of n values each. */
static int choose(const DrawOf *d, const float *logits, double *z, double *p)
{
	const int n = d->n, position = d->position;
	const int32_t *limits = d->limits;
	const float *sampling = d->sampling;
	float temperature = sampling[0], top_p = sampling[1], min_p = sampling[2];
	for (int v = 0; v < n; v++)
		z[v] = !may_draw(d, v) ? -INFINITY : temperature > 0 ? logits[v] / temperature : logits[v];
	int best = largest(z, n);
	double max = z[best];
	if (!isfinite(max))
		return -1;
	if (!(temperature > 0))
		return best;

	if (limits[0] > 0 && limits[0] < n)
		cut_below(z, NULL, n, limits[0]);
	if (top_p < 1) {
		double sum = 0;
		for (int v = 0; v < n; v++)
			sum += p[v] = exp(z[v] - max);
		cut_below(z, p, n, top_p * sum);
	}
	for (int v = 0; v < n; v++) {
		double u = (philox(
						(uint32_t)id_of(d, v), (uint32_t)position, (uint32_t)limits[1], (uint32_t)limits[2]) +
					   0.5) *
			0x1p-32;
		if (z[v] < max && exp(z[v] - max) < min_p)
			z[v] = -INFINITY;
		z[v] += -log(-log1p(-fmin(u, 1 - 0x1p-24)));
	}
	return largest(z, n);
}

/* What the softmax, or with is_left what is left by the mask, is made of: false when a value is NaN or the largest is
 * infinite. */
static bool are_numbers(const DrawOf *d, const float *logits, bool is_left)
{
	float max = -INFINITY;
	for (int v = 0; v < d->n; v++) {
		if (is_left && !may_draw(d, v))
			continue;
		if (isnan(logits[v]))
			return false;
		max = logits[v] > max ? logits[v] : max;
	}
	return isfinite(max);
}

static double log_softmax(const float *logits, int n, int column)
{
	double max = logits[0], sum = 0;
	for (int v = 1; v < n; v++)
		max = fmax(max, logits[v]);
	for (int v = 0; v < n; v++)
		sum += exp(logits[v] - max);
	return logits[column] - max - log(sum);
}

/* The column of a token; -1 when there is none. */
static int column_of(const DrawOf *d, int token)
{
	if (!d->ids)
		return token >= 0 && token < d->n ? token : -1;
	for (int v = 0; v < d->n; v++)
		if (d->ids[v] == token)
			return v;
	return -1;
}

/* Changes logits as the rules say; before [PLAN_RULES] is what they were. */
static void apply_rules(const DrawOf *d, float *logits, float *before)
{
	for (int i = 0; i < n_rules(d->limits); i++) {
		const Rule r = rule_at(d->rules, i);
		const int v = column_of(d, r.token);
		if (v < 0)
			continue;
		before[i] = logits[v];
		if (d->position < r.before)
			logits[v] = -INFINITY;
		else if (r.value != 0)
			logits[v] += r.value;
	}
}

static void undo_rules(const DrawOf *d, float *logits, const float *before)
{
	for (int i = 0; i < n_rules(d->limits); i++) {
		const int v = column_of(d, rule_at(d->rules, i).token);
		if (v >= 0)
			logits[v] = before[i];
	}
}

int ref_draw_token(const DrawOf *d, float *logits, double *scratch, float *logprob)
{
	float before[PLAN_RULES];
	int column = -1;
	penalise(logits, d);
	if (are_numbers(d, logits, false)) {
		apply_rules(d, logits, before);
		column = are_numbers(d, logits, true) ? choose(d, logits, scratch, scratch + d->n) : -1;
		undo_rules(d, logits, before);
	}
	*logprob = column >= 0 ? (float)log_softmax(logits, d->n, column) : NAN;
	return column >= 0 ? id_of(d, column) : -1;
}

/* Does the token end the slot's sequence? */
static bool is_stop(const RefCall *c, int slot, int token)
{
	const int32_t *limits = ref_ints(c, "limits") + slot * 8, *rules = ref_ints(c, "rules") + slot * RULES_WORDS;
	const int64_t n_stops = limits[7] & KEEPS_ON ? 0 : ref_dim(c, "stop_tokens", 0);
	bool found = false;
	for (int64_t i = 0; i < n_stops; i++)
		found |= ref_ints(c, "stop_tokens")[i] == token;
	for (int i = 0; i < n_rules(limits); i++)
		found |= rule_at(rules, i).is_end && rule_at(rules, i).token == token;
	return found;
}

int ref_done(const RefCall *c, int slot, int token, int position)
{
	if (token < 0)
		return 3;
	return is_stop(c, slot, token) ? 1 : position >= ref_ints(c, "limits")[slot * 8 + 3] ? 2 : 0;
}

static void sample_out(const RefCall *c, int64_t o, int64_t t, int slot, double *scores)
{
	int64_t vocab = ref_dim(c, "logits", 1);
	int32_t *counts = ref_ints(c, "counts") + slot * vocab;
	const int position = ref_ints(c, "row_pos")[t] + 1;
	const DrawOf d = {.counts = counts, .sampling = ref_floats(c, "sampling") + slot * 8,
		.limits = ref_ints(c, "limits") + slot * 8, .rules = ref_ints(c, "rules") + slot * RULES_WORDS,
		.mask = ref_mask(c, slot, 0), .n = c->attrs.n_valid, .position = position};
	float logprob;
	const int token = ref_draw_token(&d, ref_floats(c, "logits") + o * vocab, scores, &logprob);
	const int done = ref_done(c, slot, token, position);

	if (token >= 0)
		counts[token]++;
	ref_ints(c, "slot_token")[slot] = done ? -1 : token;
	ref_ints(c, "slot_len")[slot] = position;
	int32_t *entry = ref_ints(c, "ring") +
		(slot * PLAN_RING_ENTRIES + position % PLAN_RING_ENTRIES) * PLAN_RING_WORDS;
	ring_write(entry, (RingEntry){position, token, done, logprob});
}

void ref_sample(const RefCall *c)
{
	const int32_t *step = ref_ints(c, "step"), *out_row = ref_ints(c, "out_row");
	int64_t outs = ref_dim(c, "out_row", 0);
	double *scores = ref_take(c, 2 * sizeof(double) * (size_t)ref_dim(c, "logits", 1)); /* and probabilities */

	for (int64_t o = 0; o < outs && scores; o++) {
		int t = o < step[1] && !(step[3] & 1) ? out_row[o] : -1;
		int slot = t < 0 ? -1 : ref_ints(c, "row_slot")[t];
		if (slot >= 0 && ref_ints(c, "slot_token")[slot] >= 0)
			sample_out(c, o, t, slot, scores);
	}
}
