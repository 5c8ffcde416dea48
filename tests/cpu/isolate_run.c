/* isolate_run.c - does a sequence's text depend on those beside it? For tests/cpu/test_isolate.py and tests/gpu/run.sh.
 *
 *   isolate_run PLAN cpu|cuda off|mtp|ngram ROUNDS PROMPTS FIRST-LAST [count] [gap=ROWS] [mixed] [pages] [prefix]
 *               [rows=ROWS] [made=TOKENS]
 *
 * For each seed from FIRST to LAST so many prompts are made: shorter than a cell of the plan's grid, at its edges,
 * longer than a step and several steps long, one in six the same as the one before. Each is answered alone. Then, in
 * each round, all of them go through the plan's slots in an order of their own, arriving while others decode, some
 * cancelled in their prompt or their answer, and scores are asked for in between: each token, each bit of each log
 * probability and the end must be those of the prompt alone. The scores of a greedy prompt's last token must have the
 * bits of the logits that its answer began with.
 *
 * Where kernels of several buckets are other sums, texts may differ: `count` says how many do, and that is no failure.
 * rows: prompts are as long as if a step had that many rows, so that plans with other steps have the same prompts.
 * made: answers have up to that many tokens, in place of 48.
 * gap: in the rounds prompts and answers take turns, by AtlasSessionOptions.max_gap. mixed: or are in one step.
 * tokens_differed: of the texts that differ, those with another token. pages: sequences take pages as
 * needed and none besides, so that in a pool of few contexts many are set aside. prefix: in the rounds the start of
 * prompts is kept, of which two in three begin like one before; alone nothing is. `alone`: a hash of all answers alone,
 * tokens, bits and ends, which a run with drafts and one without have alike where their kernels add alike.
 * Exit code 1: one differed; JSON on stdout.
 */
#include "runtime/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MADE = 512, USUAL_MADE = 48, MAX_EVENTS = 256 * PLAN_MAX_VERIFY, MAX_SLOTS = 256, MOST_TOLD = 5 };

typedef struct Answer { int32_t token[MAX_MADE]; uint32_t logprob[MAX_MADE]; int n; AtlasFinish finish; } Answer;

typedef struct Text {
	int32_t *prompt; int n_prompt, max_new;
	bool is_plain;        /* greedy, without penalties: scores are the logits it is drawn from */
	bool differed, tokens_differed, scores_differed; /* differed: tokens or bits */
	AtlasSampling sampling;
	Answer alone, made;
} Text;

typedef struct Run {
	AtlasPlanInfo info;
	AtlasSession *session;
	Text *texts; int n;
	Text *in_slot[MAX_SLOTS]; /* NULL = free, or its last events are to be passed over */
	int running, longest, rows; /* longest prompt; rows of a prefill step */
	uint64_t random, seed;
	float *logits, *scores;     /* [vocab] behind a prompt alone, in a step of it and by atlas_score */
	int max_gap, most_made; /* tokens of an answer */
	bool as_needed, mixes, has_prefix;
	long compared, cancelled, mixed, tokens, steps, scored, told;
	uint64_t alone; /* FNV-1a of the answers alone */
} Run;

static void need(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "isolate_run: %s\n", what);
		exit(2);
	}
}

static int below(Run *r, int n)
{
	r->random ^= r->random << 13;
	r->random ^= r->random >> 7;
	r->random ^= r->random << 17;
	return (int)((r->random >> 11) % (uint64_t)n);
}

/* Lengths around the places where prompts may be cut. */
static int some_length(Run *r)
{
	const int grid = r->info.prompt_grid, kind = below(r, 6);
	const int n = kind == 0 ? 1 + below(r, grid) : kind == 1 ? grid * (1 + below(r, 4)) - 1 + below(r, 3)
		: kind == 2 ? r->rows - 1 + below(r, 3) : kind == 3 ? 1 + below(r, 2 * r->rows)
		: 1 + below(r, r->longest);
	return n < 1 ? 1 : n < r->longest ? n : r->longest;
}

/* Half of them greedy; of the others some with cuts and penalties. */
static void make_text(Run *r, Text *t, const Text *before)
{
	*t = (Text){.n_prompt = some_length(r), .max_new = 1 + below(r, r->most_made)};
	t->sampling = (AtlasSampling){.struct_size = sizeof t->sampling, .top_p = 1, .repetition_penalty = 1,
		.seed = (uint64_t)below(r, 1 << 20)};
	t->is_plain = below(r, 2) == 0;
	if (before && below(r, 6) == 0) {
		t->n_prompt = before->n_prompt;
		t->is_plain = before->is_plain;
		t->sampling = before->sampling;
	} else if (!t->is_plain) {
		t->sampling.temperature = 0.3f + 0.1f * (float)below(r, 10);
		t->sampling.top_p = below(r, 2) ? 0.9f : 1;
		t->sampling.frequency_penalty = below(r, 3) ? 0 : 0.5f;
	} else {
		before = NULL;
	}
	t->prompt = malloc(sizeof *t->prompt * (size_t)t->n_prompt);
	need(t->prompt != NULL, "no memory");
	const Text *like = r->has_prefix && t > r->texts && below(r, 3) ? &r->texts[below(r, (int)(t - r->texts))] : NULL;
	const int same = like ? 1 + below(r, like->n_prompt) : 0;
	for (int i = 0; i < t->n_prompt; i++)
		t->prompt[i] = i < same ? like->prompt[i]
			: before && before->n_prompt == t->n_prompt ? before->prompt[i] : 3 + below(r, r->info.vocab - 3);
}

/* False: pages are missing now. */
static bool start(Run *r, Text *t, bool as_needed, bool is_alone)
{
	int slot;
	const AtlasRequest request = {.struct_size = sizeof request, .tokens = t->prompt, .n_tokens = t->n_prompt,
		.sampling = &t->sampling, .max_new = t->max_new, .pages_as_needed = as_needed,
		.prefix_use = is_alone || !r->has_prefix ? ATLAS_PREFIX_NONE : below(r, 6) ? ATLAS_PREFIX_BOTH : below(r, 4),
		.cache_salt = r->has_prefix && !is_alone && below(r, 8) == 0 ? "salt" : NULL};
	const AtlasStatus s = atlas_request_start(r->session, &request, &slot);
	if (s == ATLAS_NO_PAGES && as_needed && r->running)
		return false;
	need(s == ATLAS_OK, atlas_session_error(r->session));
	t->made = (Answer){0};
	need(slot < MAX_SLOTS && !r->in_slot[slot], "a slot was given away twice");
	r->in_slot[slot] = t;
	r->running++;
	return true;
}

static void leave(Run *r, int slot)
{
	r->in_slot[slot] = NULL;
	r->running--;
}

static void tell(Run *r, const Text *t, int i)
{
	const Answer *a = &t->alone, *m = &t->made;
	if (r->told++ >= MOST_TOLD)
		return;
	if (i >= a->n)
		fprintf(stderr, "isolate_run: seed %llu prompt %d of %d tokens: token %d is %d, alone there were %d\n",
			(unsigned long long)r->seed, (int)(t - r->texts), t->n_prompt, i, m->token[i], a->n);
	else
		fprintf(stderr, "isolate_run: seed %llu prompt %d of %d tokens: token %d at position %d is %d, alone %d; "
			"logprob %08x, alone %08x\n", (unsigned long long)r->seed, (int)(t - r->texts), t->n_prompt, i,
			t->n_prompt + i, m->token[i], a->token[i], m->logprob[i], a->logprob[i]);
}

/* The last token of a text that is beside others. */
static void compare(Run *r, Text *t, bool has_ended)
{
	const Answer *a = &t->alone, *m = &t->made;
	const int i = m->n - 1;
	t->tokens_differed |= i >= a->n || a->token[i] != m->token[i];
	if (t->differed || (i < a->n && a->token[i] == m->token[i] && a->logprob[i] == m->logprob[i] &&
		(!has_ended || (m->n == a->n && m->finish == a->finish))))
		return;
	t->differed = true;
	tell(r, t, i);
}

static void cancel(Run *r, int slot)
{
	const AtlasStatus s = atlas_cancel(r->session, slot); /* an end in this very step was the slot's own */
	need(s == ATLAS_OK || s == ATLAS_ARGUMENT, atlas_session_error(r->session));
	r->cancelled++;
	leave(r, slot);
}

static void step(Run *r, bool is_alone)
{
	static AtlasEvent events[MAX_EVENTS];
	int n;
	need(atlas_step(r->session, events, MAX_EVENTS, &n) == ATLAS_OK, atlas_session_error(r->session));
	AtlasSessionInfo info = {.struct_size = sizeof info};
	atlas_session_info(r->session, &info);
	r->mixed += info.step_phase && strcmp(info.step_phase, "mixed") == 0;
	r->steps++;
	for (int i = 0; i < n; i++) {
		const int slot = events[i].slot;
		Text *t = r->in_slot[slot];
		if (!t)
			continue;
		need(t->made.n < MAX_MADE, "more tokens than were asked for");
		memcpy(&t->made.logprob[t->made.n], &events[i].logprob, sizeof(float));
		t->made.token[t->made.n++] = events[i].token;
		t->made.finish = events[i].finish;
		r->tokens++;
		const bool has_ended = events[i].finish != ATLAS_RUNNING;
		if (!is_alone)
			compare(r, t, has_ended);
		if (has_ended) {
			r->compared += !is_alone;
			leave(r, slot);
		} else if (!is_alone && below(r, 150) == 0) {
			cancel(r, slot);
		}
	}
	for (int slot = 0; slot < r->info.slots && !is_alone; slot++)
		if (r->in_slot[slot] && r->in_slot[slot]->made.n == 0 && below(r, 40) == 0)
			cancel(r, slot); /* in its prompt */
}

static int keep_last(void *ctx, int pos, const float *logits)
{
	Run *r = ctx;
	(void)pos;
	memcpy(r->scores, logits, sizeof *r->scores * (size_t)r->info.vocab);
	return 0;
}

/* Scores of the prompt, of which the last must be the logits that the answer alone began with. */
static void score(Run *r, Text *t, const float *expected)
{
	const AtlasStatus s = atlas_score(r->session, t->prompt, t->n_prompt, keep_last, r);
	if (s == ATLAS_NO_PAGES && r->as_needed && r->running)
		return;
	need(s == ATLAS_OK, atlas_session_error(r->session));
	r->scored++;
	t->scores_differed |= expected && memcmp(expected, r->scores, sizeof *expected * (size_t)r->info.vocab) != 0;
}

static void answer_alone(Run *r, Text *t)
{
	Device *d = session_device(r->session);
	bool has_logits = false;
	start(r, t, false, true);
	while (r->running) {
		step(r, true);
		if (t->made.n && t->is_plain && !has_logits && t->max_new > 1)
			has_logits = d->ops->read(d, "logits", 0, r->info.vocab, r->logits) == ATLAS_OK;
		if (t->made.n && !has_logits)
			t->is_plain = false; /* it has but one token, whose step's logits are not there to be read */
	}
	t->alone = t->made;
	if (t->is_plain)
		score(r, t, r->logits);
}

static void round_of_all(Run *r)
{
	int *order = malloc(sizeof *order * (size_t)r->n), next = 0;
	need(order != NULL, "no memory");
	for (int i = 0; i < r->n; i++)
		order[i] = i;
	for (int i = r->n - 1; i > 0; i--) {
		const int k = below(r, i + 1), other = order[k];
		order[k] = order[i];
		order[i] = other;
	}
	while (next < r->n || r->running) {
		/* now all at once, now one after the other */
		for (int most = below(r, 4) ? r->info.slots : 1; most && next < r->n && r->running < r->info.slots; most--)
			if (!start(r, &r->texts[order[next]], r->as_needed, false))
				break;
			else
				next++;
		step(r, false);
		if (r->running < r->info.slots && below(r, 30) == 0)
			score(r, &r->texts[below(r, r->n)], NULL);
	}
	free(order);
}

static void hash_answer(Run *r, const Answer *a)
{
	for (int i = 0; i <= a->n; i++) {
		const uint32_t words[2] = {i < a->n ? (uint32_t)a->token[i] : (uint32_t)a->finish,
			i < a->n ? a->logprob[i] : (uint32_t)a->n};
		for (size_t k = 0; k < sizeof words; k++)
			r->alone = (r->alone ^ (words[k / 4] >> k % 4 * 8 & 0xff)) * 0x100000001b3u;
	}
}

static void run_seed(Run *r, uint64_t seed, int rounds, long *differed, long *tokens_differed, long *scores_differed)
{
	r->seed = seed;
	r->random = seed * 0x9E3779B97F4A7C15u + 1;
	for (int i = 0; i < r->n; i++)
		make_text(r, &r->texts[i], i ? &r->texts[i - 1] : NULL);
	for (int i = 0; i < r->n; i++) {
		answer_alone(r, &r->texts[i]);
		hash_answer(r, &r->texts[i].alone);
	}
	session_max_gap(r->session, r->max_gap, 0);
	AtlasError error;
	need(session_mix(r->session, r->mixes ? ATLAS_MIXED_ON : ATLAS_MIXED_OFF, &error) == ATLAS_OK, error.text);
	for (int i = 0; i < rounds; i++)
		round_of_all(r);
	session_max_gap(r->session, 0, 0);
	session_mix(r->session, ATLAS_MIXED_OFF, &error);
	for (int i = 0; i < r->n; i++) {
		*differed += r->texts[i].differed;
		*tokens_differed += r->texts[i].tokens_differed;
		*scores_differed += r->texts[i].scores_differed;
		free(r->texts[i].prompt);
	}
}

int main(int argc, char **argv)
{
	AtlasError error = {0};
	AtlasPlan *plan;
	Run r = {.info = {.struct_size = sizeof r.info}, .alone = 0xcbf29ce484222325u, .most_made = USUAL_MADE};
	unsigned long long first, last;
	bool counts = false, is_right = argc >= 7 && sscanf(argv[6], "%llu-%llu", &first, &last) == 2;
	for (int i = 7; i < argc && is_right; i++) {
		const bool is_count = strcmp(argv[i], "count") == 0, is_pages = strcmp(argv[i], "pages") == 0;
		counts |= is_count;
		const bool is_mixed = strcmp(argv[i], "mixed") == 0;
		r.as_needed |= is_pages;
		const bool is_prefix = strcmp(argv[i], "prefix") == 0;
		r.mixes |= is_mixed;
		r.has_prefix |= is_prefix;
		is_right = is_count || is_pages || is_mixed || is_prefix || sscanf(argv[i], "gap=%d", &r.max_gap) == 1 ||
			sscanf(argv[i], "rows=%d", &r.rows) == 1 ||
			(sscanf(argv[i], "made=%d", &r.most_made) == 1 && r.most_made > 0 && r.most_made <= MAX_MADE);
	}
	need(is_right,
		"usage: isolate_run PLAN cpu|cuda off|mtp|ngram ROUNDS PROMPTS FIRST-LAST [count] [gap=ROWS] [mixed] [pages] "
		"[prefix] [rows=ROWS] [made=TOKENS]");
	need(atlas_plan_open(argv[1], NULL, &plan, &error) == ATLAS_OK, error.text);
	atlas_plan_info(plan, &r.info);
	const AtlasSessionOptions options = {.struct_size = sizeof options, .device = argv[2],
		.speculate = strcmp(argv[3], "mtp") == 0 ? ATLAS_SPECULATE_MTP
			: strcmp(argv[3], "ngram") == 0 ? ATLAS_SPECULATE_NGRAM : ATLAS_SPECULATE_OFF,
		.prefix_cache = r.has_prefix ? ATLAS_PREFIX_ON : ATLAS_PREFIX_OFF};
	const int rounds = atoi(argv[4]);
	AtlasSessionInfo end = {.struct_size = sizeof end};
	need(atlas_session_open(plan, &options, &r.session, &error) == ATLAS_OK, error.text);
	atlas_session_info(r.session, &end);
	if (r.as_needed)
		session_grow_by(r.session, 0);
	r.n = atoi(argv[5]);
	r.rows = r.rows > 0 ? r.rows : end.prefill_rows;
	r.longest = 3 * r.rows + r.info.prompt_grid;
	if (r.longest > r.info.max_context - r.most_made)
		r.longest = r.info.max_context - r.most_made;
	need(r.longest > r.info.prompt_grid && r.info.slots <= MAX_SLOTS, "a plan too small or large");
	r.texts = calloc((size_t)r.n, sizeof *r.texts);
	r.logits = malloc(2 * sizeof *r.logits * (size_t)r.info.vocab);
	need(r.texts && r.logits, "no memory");
	r.scores = r.logits + r.info.vocab;
	long differed = 0, tokens_differed = 0, scores_differed = 0, texts = 0;
	for (unsigned long long seed = first; seed <= last; seed++, texts += r.n)
		run_seed(&r, seed, rounds, &differed, &tokens_differed, &scores_differed);
	atlas_session_info(r.session, &end);
	printf("{\"seeds\": \"%s\", \"texts\": %ld, \"rounds\": %d, \"longest\": %d, \"compared\": %ld, "
		"\"cancelled\": %ld, \"scored\": %ld, \"tokens\": %ld, \"steps\": %ld, \"mixed\": %ld, \"drafts\": %lld, "
		"\"accepted\": %lld, \"set_aside\": %lld, \"reused\": %lld, \"evicted\": %lld, "
		"\"differed\": %ld, \"tokens_differed\": %ld, \"scores_differed\": %ld, \"alone\": "
		"\"%016llx\"}\n", argv[6], texts, rounds, r.longest,
		r.compared, r.cancelled, r.scored, r.tokens, r.steps, r.mixed, (long long)end.drafts,
		(long long)end.accepted_drafts, (long long)end.set_aside, (long long)end.prefix_hits,
		(long long)end.prefix_evicted, differed, tokens_differed, scores_differed,
		(unsigned long long)r.alone);
	atlas_session_close(r.session);
	free(r.texts);
	free(r.logits);
	atlas_plan_close(plan);
	return !counts && (differed || scores_differed) ? 1 : 0;
}
