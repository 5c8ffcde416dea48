/* isolate_run.c - does a sequence's text depend on those beside it? For tests/cpu/test_isolate.py and tests/gpu/run.sh.
 *
 *   isolate_run PLAN cpu|cuda off|mtp ROUNDS PROMPTS SEED
 *
 * Each of so many prompts is answered alone, in whatever slot is free. Then, in each round, all of them go through the
 * plan's slots at once, in an order of their own, some cancelled in their middle: each text must be that of the prompt
 * alone, or its beginning. The plan's decode steps should have one bucket: kernels of another are other sums. Exit code
 * 1: one was not; JSON on stdout.
 */
#include "runtime/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MADE = 64, MAX_PROMPT = 48, MAX_EVENTS = 64 * PLAN_MAX_VERIFY, MAX_SLOTS = 64 };

typedef struct Text {
	int32_t prompt[MAX_PROMPT], alone[MAX_MADE], made[MAX_MADE];
	int n_prompt, n_alone, n_made, max_new;
	AtlasFinish finish; /* alone */
	AtlasSampling sampling;
} Text;

typedef struct Run {
	AtlasSession *session;
	Text *texts; int n;
	Text *in_slot[MAX_SLOTS]; /* NULL = free, or its last events are to be passed over */
	int slots, running;
	uint64_t random;
	long compared, cancelled, tokens, steps;
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

/* Half of them greedy; of the others some with cuts and penalties. */
static void make_text(Run *r, const AtlasPlanInfo *info, Text *t)
{
	t->n_prompt = 1 + below(r, MAX_PROMPT);
	t->max_new = 1 + below(r, MAX_MADE);
	for (int i = 0; i < t->n_prompt; i++)
		t->prompt[i] = 3 + below(r, info->vocab - 3);
	t->sampling = (AtlasSampling){.struct_size = sizeof t->sampling, .top_p = 1, .repetition_penalty = 1,
		.seed = (uint64_t)below(r, 1 << 20)};
	if (below(r, 2)) {
		t->sampling.temperature = 0.3f + 0.1f * (float)below(r, 10);
		t->sampling.top_p = below(r, 2) ? 0.9f : 1;
		t->sampling.frequency_penalty = below(r, 3) ? 0 : 0.5f;
	}
}

static void start(Run *r, Text *t)
{
	int slot;
	t->n_made = 0;
	need(atlas_start(r->session, t->prompt, t->n_prompt, &t->sampling, t->max_new, &slot) == ATLAS_OK,
		atlas_session_error(r->session));
	need(slot < MAX_SLOTS && !r->in_slot[slot], "a slot was given away twice");
	r->in_slot[slot] = t;
	r->running++;
}

static void leave(Run *r, int slot)
{
	r->in_slot[slot] = NULL;
	r->running--;
}

/* One step; cancels: now and then a sequence, which is compared as far as it came. */
static bool step(Run *r, bool alone, bool cancels)
{
	AtlasEvent events[MAX_EVENTS];
	int n;
	need(atlas_step(r->session, events, MAX_EVENTS, &n) == ATLAS_OK, atlas_session_error(r->session));
	r->steps++;
	for (int i = 0; i < n; i++) {
		const int slot = events[i].slot;
		Text *t = r->in_slot[slot];
		if (!t)
			continue;
		need(t->n_made < MAX_MADE, "more tokens than were asked for");
		t->made[t->n_made++] = events[i].token;
		r->tokens++;
		const bool has_ended = events[i].finish != ATLAS_RUNNING;
		if (!alone && (t->n_made > t->n_alone || t->alone[t->n_made - 1] != events[i].token
			|| (has_ended && (t->n_made != t->n_alone || t->finish != events[i].finish)))) {
			fprintf(stderr, "isolate_run: prompt %d: token %d is %d, alone it was %d of %d\n", (int)(t - r->texts),
				t->n_made - 1, events[i].token, t->n_made <= t->n_alone ? t->alone[t->n_made - 1] : -1, t->n_alone);
			return false;
		}
		if (has_ended) {
			t->finish = events[i].finish;
			r->compared += !alone;
			leave(r, slot);
		} else if (cancels && below(r, 150) == 0) {
			const AtlasStatus s = atlas_cancel(r->session, slot); /* an end in this very step was the slot's own */
			need(s == ATLAS_OK || s == ATLAS_ARGUMENT, atlas_session_error(r->session));
			r->cancelled++;
			leave(r, slot);
		}
	}
	return true;
}

static void answer_alone(Run *r, Text *t)
{
	start(r, t);
	while (r->running)
		step(r, true, false);
	memcpy(t->alone, t->made, sizeof t->made);
	t->n_alone = t->n_made;
}

static bool round_of_all(Run *r)
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
	bool good = true;
	while (good && (next < r->n || r->running)) {
		while (next < r->n && r->running < r->slots)
			start(r, &r->texts[order[next++]]);
		good = step(r, false, true);
	}
	free(order);
	return good;
}

int main(int argc, char **argv)
{
	AtlasError error = {0};
	AtlasPlan *plan;
	AtlasPlanInfo info = {.struct_size = sizeof info};
	need(argc == 7, "usage: isolate_run PLAN cpu|cuda off|mtp ROUNDS PROMPTS SEED");
	need(atlas_plan_open(argv[1], NULL, &plan, &error) == ATLAS_OK, error.text);
	atlas_plan_info(plan, &info);
	need(info.max_context >= MAX_PROMPT + MAX_MADE && info.slots <= MAX_SLOTS, "a plan too small or large");
	const AtlasSessionOptions options = {.struct_size = sizeof options, .device = argv[2],
		.speculate = strcmp(argv[3], "mtp") == 0 ? ATLAS_SPECULATE_MTP : ATLAS_SPECULATE_OFF};
	Run r = {.n = atoi(argv[5]), .slots = info.slots, .random = strtoull(argv[6], NULL, 10) * 0x9E3779B97F4A7C15u + 1};
	const int rounds = atoi(argv[4]);
	need(atlas_session_open(plan, &options, &r.session, &error) == ATLAS_OK, error.text);
	r.texts = calloc((size_t)r.n, sizeof *r.texts);
	need(r.texts != NULL, "no memory");
	for (int i = 0; i < r.n; i++) {
		make_text(&r, &info, &r.texts[i]);
		answer_alone(&r, &r.texts[i]);
	}
	bool good = true;
	for (int i = 0; i < rounds && good; i++)
		good = round_of_all(&r);
	AtlasSessionInfo end = {.struct_size = sizeof end};
	atlas_session_info(r.session, &end);
	printf("{\"rounds\": %d, \"prompts\": %d, \"compared\": %ld, \"cancelled\": %ld, \"tokens\": %ld, \"steps\": %ld, "
		"\"drafts\": %lld, \"accepted\": %lld, \"same\": %s}\n", rounds, r.n, r.compared, r.cancelled, r.tokens,
		r.steps, (long long)end.drafts, (long long)end.accepted_drafts, good ? "true" : "false");
	atlas_session_close(r.session);
	free(r.texts);
	atlas_plan_close(plan);
	return good ? 0 : 1;
}
