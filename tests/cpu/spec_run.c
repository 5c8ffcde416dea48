/* spec_run.c - sessions that draft and verify, through the library, for tests/cpu/test_speculate.py.
 *
 *   spec_run drafts PLAN ID...      the token behind a prompt and, of the step after it, drafts with their logits
 *   spec_run soak PLAN STEPS SEED   sequences of all kinds come and go, some cancelled within a step; each text is
 *                                   compared with that of a session which decodes plainly, one sequence alone
 *   spec_run tight PLAN STEPS SEED  the same with pages as needed, in whatever pool the plan has
 *   spec_run rungs PLAN ID...       sequences that begin with the ids join one by one and leave one by one: of each
 *                                   step of answers how many ran, the rows that it read, and its phase
 *   spec_run triples PLAN N ID...   how often each triple of tokens follows a prompt, and how often it should: by the
 *                                   scores of the model, of the three likeliest tokens at each place
 *
 * All on the reference device; JSON on stdout. A sanitizer's malloc cannot be counted: `allocations` is -1 then.
 */
#include "runtime/plan_handle.h"
#include "runtime/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct { long made; volatile bool armed; } heap;
#if defined(__SANITIZE_ADDRESS__)
enum { COUNTS = 0 };
#else
enum { COUNTS = 1 };
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
	heap.made += heap.armed;
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	heap.made += heap.armed;
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	heap.made += heap.armed;
	return __libc_realloc(p, n);
}
#endif

static void need(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "spec_run: %s\n", what);
		exit(2);
	}
}

static AtlasSession *open_session(const AtlasPlan *plan, int speculate)
{
	AtlasError error = {0};
	AtlasSession *s;
	const AtlasSessionOptions options = {.struct_size = sizeof options, .device = "cpu", .n_threads = 1,
		.speculate = speculate};
	need(atlas_session_open(plan, &options, &s, &error) == ATLAS_OK, error.text);
	return s;
}

enum { MAX_TOKENS = 600, MAX_SLOTS = 16, MAX_EVENTS = 64 };

static int read_ids(char **words, int n, int32_t *out)
{
	for (int i = 0; i < n; i++)
		out[i] = (int32_t)strtol(words[i], NULL, 10);
	return n;
}

/* Drafts ------------------------------------------------------------ */

static int64_t columns_of(const AtlasPlan *plan, const char *name)
{
	const Graph *g = &plan->artifact.graph;
	for (int i = 0; i < g->n_tensors; i++)
		if (strcmp(g->tensors[i].name, name) == 0)
			return g->tensors[i].shape[1];
	need(false, name);
	return 0;
}

static int drafts(const AtlasPlan *plan, const AtlasPlanInfo *info, const int32_t *ids, int n)
{
	AtlasSession *s = open_session(plan, ATLAS_SPECULATE_MTP);
	AtlasSampling greedy = {.struct_size = sizeof greedy, .top_p = 1, .repetition_penalty = 1};
	AtlasEvent events[MAX_EVENTS];
	int slot, made = 0;
	const int64_t columns = columns_of(plan, "draft1.logits");
	float *logits = calloc((size_t)columns, sizeof *logits), token[MAX_SLOTS * PLAN_MAX_VERIFY];
	need(atlas_start(s, ids, n, &greedy, 20, &slot) == ATLAS_OK, "atlas_start");
	while (made == 0)
		need(atlas_step(s, events, MAX_EVENTS, &made) == ATLAS_OK, atlas_session_error(s));
	printf("{\"next\": %d, \"drafts\": [", events[0].token);
	need(atlas_step(s, events, MAX_EVENTS, &made) == ATLAS_OK, atlas_session_error(s));
	Device *d = session_device(s);
	const int per_slot = info->verify_rows - 1;
	need(d->ops->read(d, "slot_draft", (int64_t)slot * per_slot, per_slot, token) == ATLAS_OK, d->error.text);
	for (int i = 0; i < per_slot; i++)
		printf("%s%d", i ? ", " : "", (int)token[i]);
	printf("], \"logits\": [");
	for (int i = 0; i < per_slot; i++) {
		char name[32];
		snprintf(name, sizeof name, "draft%d.logits", i + 1);
		need(d->ops->read(d, name, 0, columns, logits) == ATLAS_OK, d->error.text);
		printf("%s[", i ? ", " : "");
		for (int64_t v = 0; v < columns; v++)
			printf("%s%.9g", v ? ", " : "", (double)logits[v]);
		printf("]");
	}
	printf("]}\n");
	free(logits);
	atlas_session_close(s);
	return 0;
}

/* Soak ------------------------------------------------------------ */

typedef struct Text {
	bool runs;
	int32_t prompt[MAX_TOKENS], made[MAX_TOKENS];
	int n_prompt, n_made, max_new;
	AtlasSampling sampling;
	AtlasBias bias[4]; int n_bias;
	AtlasFinish finish; /* RUNNING: it was cancelled */
} Text;

typedef struct Soak {
	const AtlasPlanInfo *info;
	AtlasSession *fast, *plain;
	Text slots[MAX_SLOTS];
	uint64_t random;
	bool is_tight;
	long sequences, cancelled, ended[4], tokens, several;
} Soak;

static int below(Soak *s, int n)
{
	s->random ^= s->random << 13;
	s->random ^= s->random >> 7;
	s->random ^= s->random << 17;
	return (int)((s->random >> 11) % (uint64_t)n);
}

static AtlasStatus start_text(AtlasSession *session, const Text *t, bool is_tight, int *slot)
{
	return atlas_request_start(session, &(AtlasRequest){.struct_size = sizeof(AtlasRequest), .tokens = t->prompt,
		.n_tokens = t->n_prompt, .sampling = &t->sampling, .max_new = t->max_new, .bias = t->bias, .n_bias = t->n_bias,
		.pages_as_needed = is_tight}, slot);
}

/* A text that says things twice: its prompt does, and nearly all of its answer are a few tokens. */
static void repeat(Soak *s, Text *t)
{
	for (int i = 1, from = 0; i < t->n_prompt; i++, from++) {
		from = below(s, 6) ? from : below(s, i);
		t->prompt[i] = below(s, 9) ? t->prompt[from] : t->prompt[i];
	}
	t->n_bias = below(s, 4);
	for (int i = 0; i < t->n_bias; i++)
		t->bias[i] = (AtlasBias){20 + 7 * i + below(s, 7), 12};
}

/* A sequence, if a slot and pages are free. */
static void start_one(Soak *s)
{
	Text t = {.runs = true};
	int slot;
	t.n_prompt = 1 + below(s, below(s, 8) ? 20 : s->info->max_context - 1);
	for (int i = 0; i < t.n_prompt; i++)
		t.prompt[i] = 3 + below(s, s->info->vocab - 3);
	if (s->info->drafter == ATLAS_SPECULATE_NGRAM)
		repeat(s, &t);
	t.max_new = 1 + below(s, below(s, 4) && !s->is_tight ? 16 : s->info->max_context);
	t.sampling = (AtlasSampling){.struct_size = sizeof t.sampling, .top_p = 1, .repetition_penalty = 1,
		.seed = (uint64_t)below(s, 1 << 20)};
	if (below(s, 2))
		t.sampling.temperature = 0.2f + 0.1f * (float)below(s, 12);
	if (below(s, 2))
		t.sampling.top_p = 0.9f;
	if (below(s, 3) == 0) {
		t.sampling.repetition_penalty = 1.2f;
		t.sampling.frequency_penalty = 0.25f;
		t.sampling.presence_penalty = 0.5f;
	}
	AtlasStatus status = start_text(s->fast, &t, s->is_tight, &slot);
	if (status == ATLAS_NO_SLOT || status == ATLAS_NO_PAGES)
		return;
	need(status == ATLAS_OK, atlas_session_error(s->fast));
	need(slot < MAX_SLOTS && !s->slots[slot].runs, "a slot was given away twice");
	s->slots[slot] = t;
	s->sequences++;
}

/* The text must be what plain decoding makes, or its beginning. */
static void compare(Soak *s, Text *t)
{
	AtlasEvent events[MAX_EVENTS];
	int slot, at = 0, n;
	AtlasFinish finish = ATLAS_RUNNING;
	const bool is_whole = t->finish != ATLAS_RUNNING;
	t->runs = false;
	need(start_text(s->plain, t, false, &slot) == ATLAS_OK, atlas_session_error(s->plain));
	while (at < t->n_made && finish == ATLAS_RUNNING) {
		need(atlas_step(s->plain, events, MAX_EVENTS, &n) == ATLAS_OK, atlas_session_error(s->plain));
		for (int i = 0; i < n; i++, at++) {
			if (events[i].token != t->made[at]) {
				fprintf(stderr, "spec_run: token %d behind a prompt of %d is %d, plain decoding makes %d\n", at,
					t->n_prompt, t->made[at], events[i].token);
				exit(1);
			}
			finish = events[i].finish;
		}
	}
	need(!is_whole || finish == t->finish, "a sequence ended for another reason than in plain decoding");
	if (finish == ATLAS_RUNNING)
		atlas_cancel(s->plain, slot);
}

static void take_events(Soak *s, const AtlasEvent *events, int n)
{
	for (int i = 0; i < n; i++) {
		Text *t = &s->slots[events[i].slot];
		if (!t->runs) /* cancelled at an earlier token of this step */
			continue;
		s->several += i > 0 && events[i - 1].slot == events[i].slot;
		t->made[t->n_made++] = events[i].token;
		t->finish = events[i].finish;
		s->tokens++;
		if (t->finish != ATLAS_RUNNING) {
			s->ended[t->finish]++;
			compare(s, t);
		} else if (below(s, s->is_tight ? 80 : 25) == 0) {
			bool has_ended = false; /* by a token of this very step that is still to be looked at */
			for (int k = i + 1; k < n; k++)
				has_ended |= events[k].slot == events[i].slot && events[k].finish != ATLAS_RUNNING;
			s->cancelled++;
			need(atlas_cancel(s->fast, events[i].slot) == (has_ended ? ATLAS_ARGUMENT : ATLAS_OK),
				"a slot was free, or was not, when it was cancelled");
			compare(s, t);
		}
	}
}

static int soak(const AtlasPlan *plan, const AtlasPlanInfo *info, bool is_tight, long steps, uint64_t seed)
{
	Soak s = {.info = info, .is_tight = is_tight, .fast = open_session(plan, ATLAS_SPECULATE_AUTO),
		.plain = open_session(plan, ATLAS_SPECULATE_OFF), .random = seed * 0x9E3779B97F4A7C15u + 1};
	AtlasEvent events[MAX_EVENTS];
	int n;
	if (is_tight)
		session_grow_by(s.fast, 8);
	need(info->max_context + 1 < MAX_TOKENS && info->slots <= MAX_SLOTS, "a plan too large for this test");
	for (long i = 0; i < steps; i++) {
		if (below(&s, 3) == 0)
			start_one(&s);
		heap.armed = true;
		AtlasStatus status = atlas_step(s.fast, events, MAX_EVENTS, &n);
		heap.armed = false;
		need(status == ATLAS_OK, atlas_session_error(s.fast));
		take_events(&s, events, n);
	}
	AtlasSessionInfo end = {.struct_size = sizeof end};
	atlas_session_info(s.fast, &end);
	printf("{\"steps\": %ld, \"sequences\": %ld, \"cancelled\": %ld, \"stopped\": %ld, \"full\": %ld, \"tokens\": %ld, "
		"\"several\": %ld, \"drafts\": %lld, \"accepted\": %lld, \"set_aside\": %lld, \"allocations\": %ld}\n",
		steps, s.sequences,
		s.cancelled, s.ended[ATLAS_STOP], s.ended[ATLAS_LENGTH], s.tokens, s.several, (long long)end.drafts,
		(long long)end.accepted_drafts, (long long)end.set_aside, COUNTS ? heap.made : -1);
	atlas_session_close(s.fast);
	atlas_session_close(s.plain);
	return 0;
}

/* Rungs ------------------------------------------------------------ */

static int rungs(const AtlasPlan *plan, const AtlasPlanInfo *info, const int32_t *ids, int n)
{
	AtlasSession *s = open_session(plan, ATLAS_SPECULATE_AUTO);
	const AtlasSampling greedy = {.struct_size = sizeof greedy, .top_p = 1, .repetition_penalty = 1};
	AtlasEvent events[MAX_EVENTS];
	int slot, made, started = 0;
	printf("{\"steps\": [");
	for (int step = 0; started < info->slots || atlas_active(s); step++) {
		if (step % 6 == 0 && started < info->slots) { /* the first one ends first */
			const AtlasRequest r = {.struct_size = sizeof r, .tokens = ids, .n_tokens = n - started,
				.sampling = &greedy, .max_new = 40 + 12 * started, .ignore_stops = 1};
			need(atlas_request_start(s, &r, &slot) == ATLAS_OK, atlas_session_error(s));
			started++;
		}
		AtlasSessionInfo now = {.struct_size = sizeof now};
		need(atlas_step(s, events, MAX_EVENTS, &made) == ATLAS_OK, atlas_session_error(s));
		atlas_session_info(s, &now);
		int running = 0;
		for (int i = 0; i < made; i++)
			running += i == 0 || events[i].slot != events[i - 1].slot;
		if (now.step_phase && strcmp(now.step_phase, "prefill") != 0)
			printf("%s[%d, %d, \"%s\"]", started > 1 || step > 1 ? ", " : "", running, now.step_rows, now.step_phase);
	}
	AtlasSessionInfo end = {.struct_size = sizeof end};
	atlas_session_info(s, &end);
	printf("], \"drafts\": %lld, \"accepted\": %lld}\n", (long long)end.drafts, (long long)end.accepted_drafts);
	atlas_session_close(s);
	return 0;
}

/* Triples ------------------------------------------------------------ */

enum { TOP = 3 };
typedef struct Top { int vocab; int32_t id[TOP]; double p[TOP]; int last; } Top;

/* The three likeliest of the last row, and their share of what they have together. */
static int keep_top(void *ctx, int pos, const float *logits)
{
	Top *t = ctx;
	double sum = 0;
	if (pos != t->last)
		return 0;
	for (int k = 0; k < TOP; k++) {
		int best = -1;
		for (int v = 0; v < t->vocab; v++) {
			bool is_taken = false;
			for (int i = 0; i < k; i++)
				is_taken |= t->id[i] == v;
			if (!is_taken && (best < 0 || logits[v] > logits[best]))
				best = v;
		}
		t->id[k] = best;
		sum += t->p[k] = exp((double)logits[best] - (double)logits[t->id[0]]);
	}
	for (int k = 0; k < TOP; k++)
		t->p[k] /= sum;
	return 0;
}

static Top top_of(AtlasSession *s, int vocab, const int32_t *ids, int n)
{
	Top t = {.vocab = vocab, .last = n - 1};
	need(atlas_score(s, ids, n, keep_top, &t) == ATLAS_OK, atlas_session_error(s));
	return t;
}

static int rank(const Top *t, int32_t token)
{
	for (int k = 0; k < TOP; k++)
		if (t->id[k] == token)
			return k;
	need(false, "a token was drawn that is not among the likeliest");
	return 0;
}

static int triples(const AtlasPlan *plan, const AtlasPlanInfo *info, int draws, int32_t *ids, int n)
{
	AtlasSession *s = open_session(plan, ATLAS_SPECULATE_MTP);
	AtlasSampling a = {.struct_size = sizeof a, .top_p = 1, .repetition_penalty = 1, .temperature = 1, .top_k = TOP};
	Top first = top_of(s, info->vocab, ids, n), second[TOP], third[TOP][TOP];
	int count[TOP][TOP][TOP] = {{{0}}};
	for (int i = 0; i < TOP; i++) {
		ids[n] = first.id[i];
		second[i] = top_of(s, info->vocab, ids, n + 1);
		for (int k = 0; k < TOP; k++) {
			ids[n + 1] = second[i].id[k];
			third[i][k] = top_of(s, info->vocab, ids, n + 2);
		}
	}
	for (int draw = 0; draw < draws; draw++) {
		AtlasEvent events[MAX_EVENTS];
		int slot, made, at = 0, r[3];
		a.seed = (uint64_t)draw;
		need(atlas_start(s, ids, n, &a, 3, &slot) == ATLAS_OK, atlas_session_error(s));
		while (at < 3) {
			need(atlas_step(s, events, MAX_EVENTS, &made) == ATLAS_OK, atlas_session_error(s));
			for (int i = 0; i < made; i++, at++)
				r[at] = rank(at == 0 ? &first : at == 1 ? &second[r[0]] : &third[r[0]][r[1]], events[i].token);
		}
		count[r[0]][r[1]][r[2]]++;
	}
	AtlasSessionInfo end = {.struct_size = sizeof end};
	atlas_session_info(s, &end);
	printf("{\"drafts\": %lld, \"accepted\": %lld, \"cells\": [", (long long)end.drafts,
		(long long)end.accepted_drafts);
	for (int c = 0; c < TOP * TOP * TOP; c++) {
		const int i = c / 9, k = c / 3 % 3, m = c % 3;
		printf("%s[%d, %.9g]", c ? ", " : "", count[i][k][m], draws * first.p[i] * second[i].p[k] * third[i][k].p[m]);
	}
	printf("]}\n");
	atlas_session_close(s);
	return 0;
}

int main(int argc, char **argv)
{
	AtlasError error = {0};
	AtlasPlan *plan;
	AtlasPlanInfo info = {.struct_size = sizeof info};
	int32_t ids[MAX_TOKENS + 4];
	need(argc > 3 && argc < MAX_TOKENS, "usage: spec_run drafts|soak|tight|rungs|triples PLAN ...");
	need(atlas_plan_open(argv[2], NULL, &plan, &error) == ATLAS_OK, error.text);
	atlas_plan_info(plan, &info);
	int code = 2;
	if (strcmp(argv[1], "drafts") == 0)
		code = drafts(plan, &info, ids, read_ids(argv + 3, argc - 3, ids));
	else if (strcmp(argv[1], "rungs") == 0)
		code = rungs(plan, &info, ids, read_ids(argv + 3, argc - 3, ids));
	else if ((strcmp(argv[1], "soak") == 0 || strcmp(argv[1], "tight") == 0) && argc == 5)
		code = soak(plan, &info, strcmp(argv[1], "tight") == 0, strtol(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
	else if (strcmp(argv[1], "triples") == 0 && argc > 4)
		code = triples(plan, &info, (int)strtol(argv[3], NULL, 10), ids, read_ids(argv + 4, argc - 4, ids));
	atlas_plan_close(plan);
	return code;
}
