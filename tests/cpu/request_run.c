/* request_run.c - requests beside each other, with all that atlas_request_start takes, and the scores of what came out.
 *
 *   request_run PLAN auto|cpu|cuda off|mtp|mixed SCORES <REQUESTS
 *
 * off: a step is of prompts or of answers. mixed: of both, where one runs and another waits.
 * A line of stdin is a request: words KEY=VALUE of the table below. Lines of JSON on stdout: the plan's drawable ids
 * and stop tokens, then each event with its alternatives. SCORES is a file of f32: for each request the scores of all
 * positions of prompt and answer but the last, [positions, vocab].
 */
#include "runtime/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REQUESTS = 64, MAX_TOKENS = 4096, MAX_EVENTS = 1024 * PLAN_MAX_VERIFY };

typedef struct Line {
	AtlasRequest r;
	AtlasSampling sampling;
	AtlasBias bias[ATLAS_MAX_BIAS];
	int32_t stops[ATLAS_MAX_STOP_TOKENS], tokens[MAX_TOKENS];
	int n; /* tokens, with those of the answer */
	int mask; /* each token of the answer is one of about as many-th of all; 0 = of all */
	bool awaits_mask;
} Line;

static void need(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "request_run: %s\n", what);
		exit(2);
	}
}

static int read_list(const char *text, int32_t *out, int most)
{
	int n = 0;
	for (char *end; *text; text = *end ? end + 1 : end) {
		need(n < most, "a list is too long");
		out[n++] = (int32_t)strtol(text, &end, 10);
	}
	return n;
}

/* "5:1.5,6:-inf" */
static int read_bias(const char *text, AtlasBias *out)
{
	int n = 0;
	for (char *end; *text; text = *end ? end + 1 : end) {
		need(n < ATLAS_MAX_BIAS, "too many biases");
		out[n].token = (int32_t)strtol(text, &end, 10);
		out[n++].value = strtof(end + 1, &end);
	}
	return n;
}

static void read_word(Line *l, const char *word)
{
	const char *value = strchr(word, '=') + 1;
	const struct { const char *key; int *i; float *f; } rows[] = {{"max_new", &l->r.max_new, NULL},
		{"min_new", &l->r.min_new, NULL}, {"mask", &l->mask, NULL}, {"ignore_stops", &l->r.ignore_stops, NULL},
		{"top_logprobs", &l->r.top_logprobs, NULL}, {"top_k", &l->sampling.top_k, NULL},
		{"temperature", NULL, &l->sampling.temperature}, {"top_p", NULL, &l->sampling.top_p},
		{"min_p", NULL, &l->sampling.min_p}, {"repetition", NULL, &l->sampling.repetition_penalty},
		{"presence", NULL, &l->sampling.presence_penalty}, {"frequency", NULL, &l->sampling.frequency_penalty}};
	const size_t n = (size_t)(value - word - 1);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (strlen(rows[i].key) == n && strncmp(word, rows[i].key, n) == 0) {
			if (rows[i].i)
				*rows[i].i = atoi(value);
			else
				*rows[i].f = strtof(value, NULL);
			return;
		}
	if (strncmp(word, "seed=", 5) == 0)
		l->sampling.seed = strtoull(value, NULL, 10);
	else if (strncmp(word, "stops=", 6) == 0)
		l->r.n_stop_tokens = read_list(value, l->stops, ATLAS_MAX_STOP_TOKENS);
	else if (strncmp(word, "bias=", 5) == 0)
		l->r.n_bias = read_bias(value, l->bias);
	else if (strncmp(word, "tokens=", 7) == 0)
		l->n = l->r.n_tokens = read_list(value, l->tokens, MAX_TOKENS);
	else
		need(false, word);
}

static int read_requests(Line *lines)
{
	static char text[1 << 16];
	int n = 0;
	while (fgets(text, sizeof text, stdin)) {
		Line *l = &lines[n];
		need(n++ < MAX_REQUESTS, "too many requests");
		l->sampling = (AtlasSampling){.struct_size = sizeof l->sampling, .top_p = 1, .repetition_penalty = 1};
		l->r = (AtlasRequest){.struct_size = sizeof l->r, .tokens = l->tokens, .sampling = &l->sampling,
			.stop_tokens = l->stops, .bias = l->bias};
		for (char *word = strtok(text, " \n"); word; word = strtok(NULL, " \n"))
			read_word(l, word);
		l->r.masked = l->mask > 0;
	}
	return n;
}

static void print_event(const AtlasSession *s, int i, int request, const AtlasEvent *e)
{
	const AtlasTop *top;
	int n;
	need(atlas_event_top(s, i, &top, &n) == ATLAS_OK, "no alternatives");
	printf("{\"request\": %d, \"token\": %d, \"logprob\": %.9g, \"finish\": %d, \"top\": [", request, e->token,
		isnan(e->logprob) ? 1 : (double)e->logprob, (int)e->finish);
	for (int k = 0; k < n; k++)
		printf("%s[%d, %.9g]", k ? ", " : "", top[k].token, (double)top[k].logprob);
	printf("]}\n");
}

static int write_scores(void *ctx, int pos, const float *logits)
{
	(void)pos;
	FILE *f = ((FILE **)ctx)[0];
	const size_t vocab = *((size_t **)ctx)[1];
	return fwrite(logits, sizeof *logits, vocab, f) != vocab;
}

/* drawing.py has the same formula. */
static bool is_allowed(const Line *l, int token) { return (token * 7919LL + l->n * 104729LL) % l->mask == 0; }

/* The mask of the next token, after calls that are to be refused. */
static void give_mask(AtlasSession *s, const AtlasPlanInfo *info, Line *l, int slot)
{
	const int n = (info->vocab + 31) / 32;
	uint32_t *words = calloc((size_t)n, sizeof *words);
	need(words != NULL, "no memory");
	need(atlas_mask(s, slot, words, n) == ATLAS_ARGUMENT, "a mask without a token is taken");
	for (int t = 0; t < info->vocab; t++)
		words[t / 32] |= (uint32_t)is_allowed(l, t) << t % 32;
	need(atlas_mask(s, slot, words, n + 1) == ATLAS_ARGUMENT, "a mask of another size is taken");
	need(atlas_mask(s, info->slots, words, n) == ATLAS_ARGUMENT, "a mask of no slot is taken");
	need(atlas_mask(s, slot, words, n) == ATLAS_OK, atlas_session_error(s));
	need(atlas_mask(s, slot, words, n) == ATLAS_ARGUMENT, "two masks of one token are taken");
	l->awaits_mask = false;
	free(words);
}

/* Now and then, so that others go on while one waits. */
static void give_masks(AtlasSession *s, const AtlasPlanInfo *info, Line *lines, const int *of, int n_lines)
{
	static unsigned turn;
	for (int slot = 0; slot < info->slots; slot++) {
		Line *l = of[slot] >= 0 && of[slot] < n_lines ? &lines[of[slot]] : NULL;
		if (l && l->awaits_mask && turn++ % 3 == 0)
			give_mask(s, info, l, slot);
	}
}

int main(int argc, char **argv)
{
	static AtlasEvent events[MAX_EVENTS];
	static Line lines[MAX_REQUESTS];
	AtlasError error = {0};
	AtlasPlan *plan;
	AtlasSession *session;
	AtlasPlanInfo info = {.struct_size = sizeof info};
	AtlasSessionInfo step = {.struct_size = sizeof step};
	static int of[1024];
	int started = 0, slot, n, mixed = 0;
	memset(of, -1, sizeof of);
	need(argc == 5, "usage: request_run PLAN auto|cpu|cuda off|mtp|mixed SCORES <REQUESTS");
	const bool mixes = strcmp(argv[3], "mixed") == 0;
	need(atlas_plan_open(argv[1], NULL, &plan, &error) == ATLAS_OK, error.text);
	atlas_plan_info(plan, &info);
	need(atlas_session_open(plan, &(AtlasSessionOptions){.struct_size = sizeof(AtlasSessionOptions), .device = argv[2],
		.speculate = strcmp(argv[3], "mtp") ? ATLAS_SPECULATE_OFF : ATLAS_SPECULATE_MTP,
		.mixed = mixes ? ATLAS_MIXED_ON : ATLAS_MIXED_OFF}, &session, &error) == ATLAS_OK, error.text);
	printf("{\"drawable\": %d, \"vocab\": %d, \"stops\": [", info.n_drawable, info.vocab);
	for (int i = 0; i < info.n_stop_tokens; i++)
		printf("%s%d", i ? ", " : "", info.stop_tokens[i]);
	printf("]}\n");
	const int n_lines = read_requests(lines);
	while (started < n_lines || atlas_active(session)) {
		while (started < n_lines) {
			const AtlasStatus s = atlas_request_start(session, &lines[started].r, &slot);
			if ((s == ATLAS_NO_SLOT || s == ATLAS_NO_PAGES) && atlas_active(session))
				break;
			need(s == ATLAS_OK, atlas_session_error(session));
			lines[started].awaits_mask = lines[started].mask > 0;
			of[slot] = started++;
		}
		give_masks(session, &info, lines, of, n_lines);
		need(atlas_step(session, events, MAX_EVENTS, &n) == ATLAS_OK, atlas_session_error(session));
		atlas_session_info(session, &step);
		mixed += step.step_phase && strcmp(step.step_phase, "mixed") == 0;
		for (int i = 0; i < n; i++) {
			Line *l = &lines[of[events[i].slot]];
			print_event(session, i, of[events[i].slot], &events[i]);
			need(l->n < MAX_TOKENS, "a text is too long");
			l->tokens[l->n++] = events[i].token;
			l->awaits_mask = l->mask && events[i].finish == ATLAS_RUNNING;
		}
	}
	need(mixes ? mixed || n_lines <= info.slots : !mixed, "steps are mixed where they should not, or are not");
	FILE *f = fopen(argv[4], "wb");
	need(f, "SCORES cannot be written");
	size_t vocab = (size_t)info.vocab;
	for (int i = 0; i < n_lines; i++)
		need(atlas_score(session, lines[i].tokens, lines[i].n - 1, write_scores, (void *[]){f, &vocab}) == ATLAS_OK,
			atlas_session_error(session));
	need(fclose(f) == 0, "SCORES cannot be written");
	atlas_session_close(session);
	atlas_plan_close(plan);
	return 0;
}
