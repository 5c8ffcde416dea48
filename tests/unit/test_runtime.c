/* test_runtime.c - plans loaded and replayed on a driver that is not there.
 *
 * The synthetic plans are real: the compiler's own passes made their buffers, launches and edges. The fake driver
 * executes each launch by what its op means, in the most unusual order that the edges allow, on memory full of
 * NaN. So what is compared here with the reference device is everything but the kernels' code.
 */
#include "tests/unit/made_cubin.h"
#include "tests/unit/rig.h"
#include "tests/unit/synthetic.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* What the plan computes --------------------------------------------------------------------------------- */

static int take_layer(void *ctx, int layer, int pos, int rows, int cols, const float *hidden)
{
	Collected *c = ctx;
	assert_int_equal(cols, 64);
	assert_true(layer == 0 || layer == 1);
	assert_int_equal(c->n, layer * rows * cols + 2 * pos * cols);
	collect(c, hidden, rows * cols);
	return 0;
}

static double cosine(const Collected *a, const Collected *b)
{
	double ab = 0, aa = 0, bb = 0;
	assert_int_equal(a->n, b->n);
	for (int i = 0; i < a->n; i++) {
		ab += (double)a->at[i] * b->at[i];
		aa += (double)a->at[i] * a->at[i];
		bb += (double)b->at[i] * b->at[i];
	}
	return ab / sqrt(aa * bb);
}

static void plan_means_what_its_graph_means(void **state)
{
	static const char *const families[] = {"llama", "qwen2", "qwen3"};
	(void)state;
	for (int f = 0; f < 3; f++) {
		Rig r;
		AtlasSession *cpu;
		int32_t tokens[70];
		Collected a = {0}, b = {0}, c = {0}, d = {0};
		rig_open(&r, families[f], 0);
		AtlasSessionOptions options = {.struct_size = sizeof options, .device = "cpu", .n_threads = 1};
		assert_int_equal(atlas_session_open(r.plan, &options, &cpu, &r.error), ATLAS_OK);
		fill_prompt(tokens, 70, f);
		assert_int_equal(atlas_score(r.session, tokens, 70, take_logits, &a), ATLAS_OK);
		assert_int_equal(atlas_score(cpu, tokens, 70, take_logits, &b), ATLAS_OK);
		assert_int_equal(a.n, 70 * 40);
		assert_true(cosine(&a, &b) > 0.9995);
		assert_int_equal(atlas_trace(r.session, tokens, 32, take_layer, &c), ATLAS_OK);
		assert_int_equal(atlas_trace(cpu, tokens, 32, take_layer, &d), ATLAS_OK);
		assert_int_equal(c.n, 2 * 32 * 64);
		assert_true(cosine(&c, &d) > 0.9995);
		atlas_session_close(cpu);
		free(a.at), free(b.at), free(c.at), free(d.at);
		rig_close(&r);
	}
}

/* Weights of several types in one model, as far as kernels take them: linears that are read as one share theirs. */
static void types_may_be_mixed(void **state)
{
	static const struct { const char *family, *part; Dtype dtype; } mixes[] = {
		{"llama", "norm.weight", DT_f32}, {"llama", "_proj.weight", DT_f32}, {"llama", "o_proj", DT_f16},
		{"llama", "embed_tokens", DT_f32}, {"llama", "down_proj", DT_f32}, {"qwen2", ".bias", DT_f32},
		{"qwen2", "_proj.weight", DT_f16}, {"qwen3", "q_norm", DT_f32}, {"qwen3", "k_norm", DT_f16},
		{"qwen3", "layernorm.weight", DT_f16}};
	(void)state;
	for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++) {
		Rig r;
		AtlasSession *cpu;
		int32_t tokens[40];
		Collected a = {0}, b = {0};
		memset(&r, 0, sizeof r);
		Compile *c = &r.made.c;
		synthetic_model(c, mixes[i].family);
		for (int t = 0; t < c->model.tensors.n; t++)
			if (strstr(c->model.tensors.at[t].name, mixes[i].part))
				synthetic_dtype(c, c->model.tensors.at[t].name, mixes[i].dtype);
		make_plan_of_model(&r.made);
		rig_made(&r);
		assert_int_equal(open_fake(&r), ATLAS_OK);
		AtlasSessionOptions options = {.struct_size = sizeof options, .device = "cpu", .n_threads = 1};
		assert_int_equal(atlas_session_open(r.plan, &options, &cpu, &r.error), ATLAS_OK);
		fill_prompt(tokens, 40, (int)i);
		assert_int_equal(atlas_score(r.session, tokens, 40, take_logits, &a), ATLAS_OK);
		assert_int_equal(atlas_score(cpu, tokens, 40, take_logits, &b), ATLAS_OK);
		assert_true(cosine(&a, &b) > 0.9995);
		atlas_session_close(cpu);
		free(a.at), free(b.at);
		rig_close(&r);
	}
}

static int best_of(const Collected *logits, int pos)
{
	int best = 0;
	for (int v = 1; v < 40; v++)
		if (logits->at[pos * 40 + v] > logits->at[pos * 40 + best])
			best = v;
	return best;
}

/* Together or alone, in chunks or whole, by decode or by scoring: the same greedy tokens. */
static void answers_do_not_depend_on_company(void **state)
{
	static const int lengths[4] = {1, 31, 33, 70};
	int together[4][64], alone[4][64], counts[4] = {0};
	AtlasFinish finish[4], again[4];
	int32_t tokens[4][128];
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
	for (int i = 0; i < 4; i++) {
		int slot;
		fill_prompt(tokens[i], lengths[i], i);
		assert_int_equal(atlas_start(r.session, tokens[i], lengths[i], NULL, 12 + i, &slot), ATLAS_OK);
		assert_int_equal(slot, i);
	}
	run_all(r.session, together, counts, finish);
	for (int i = 0; i < 4; i++) {
		int slot, count[4] = {0};
		assert_int_equal(atlas_start(r.session, tokens[i], lengths[i], NULL, 12 + i, &slot), ATLAS_OK);
		assert_int_equal(slot, 0);
		run_all(r.session, alone, count, again);
		assert_int_equal(count[0], counts[i]);
		assert_int_equal(again[0], finish[i]);
		assert_memory_equal(alone[0], together[i], sizeof(int) * (size_t)count[0]);
		assert_true(finish[i] == ATLAS_LENGTH ? counts[i] == 12 + i : together[i][counts[i] - 1] == 2);

		Collected logits = {0};
		for (int k = 0; k < counts[i]; k++)
			tokens[i][lengths[i] + k] = together[i][k];
		assert_int_equal(atlas_score(r.session, tokens[i], lengths[i] + counts[i] - 1, take_logits, &logits),
			ATLAS_OK);
		for (int k = 0; k < counts[i]; k++) { /* decode rounds less than prefill: as good as the best will do */
			const float *row = logits.at + (lengths[i] - 1 + k) * 40;
			assert_true(row[best_of(&logits, lengths[i] - 1 + k)] - row[together[i][k]] < 0.02f);
		}
		free(logits.at);
	}
	rig_close(&r);
}

/* A token that an answer has, made a stop token: the answer ends there, with it, and the slot is free. */
static void stop_tokens_stop(void **state)
{
	int32_t tokens[9];
	int free_running[4][64], answers[4][64], counts[4] = {0}, slot, at = 0;
	AtlasFinish finish[4];
	Rig r;
	(void)state;
	rig_open(&r, "qwen2", 0);
	fill_prompt(tokens, 9, 2);
	assert_int_equal(atlas_start(r.session, tokens, 9, NULL, 20, &slot), ATLAS_OK);
	run_all(r.session, free_running, counts, finish);
	rig_close(&r);
	int stop = free_running[0][counts[0] / 2];
	while (free_running[0][at] != stop)
		at++;
	memset(&r, 0, sizeof r);
	make_plan_of(&r.made, "qwen2", 0, stop);
	rig_made(&r);
	assert_int_equal(open_fake(&r), ATLAS_OK);
	counts[0] = 0;
	assert_int_equal(atlas_start(r.session, tokens, 9, NULL, 20, &slot), ATLAS_OK);
	run_all(r.session, answers, counts, finish);
	assert_int_equal(counts[0], at + 1);
	assert_int_equal(finish[0], ATLAS_STOP);
	assert_memory_equal(answers[0], free_running[0], sizeof(int) * (size_t)counts[0]);
	rig_close(&r);
}

static void contexts_end_where_they_must(void **state)
{
	int32_t tokens[129];
	int slot, answers[4][64], counts[4] = {0};
	AtlasFinish finish[4];
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
	fill_prompt(tokens, 129, 5);
	assert_int_equal(atlas_start(r.session, tokens, 0, NULL, 4, &slot), ATLAS_CONTEXT);
	assert_string_equal(atlas_session_error(r.session), "0 tokens: at least one is needed");
	assert_int_equal(atlas_start(r.session, tokens, 129, NULL, 4, &slot), ATLAS_CONTEXT);
	assert_string_equal(atlas_session_error(r.session), "129 tokens: the context holds 128");
	assert_int_equal(atlas_start(r.session, tokens, 4, NULL, 0, &slot), ATLAS_ARGUMENT);
	tokens[2] = 40;
	assert_int_equal(atlas_start(r.session, tokens, 4, NULL, 1, &slot), ATLAS_TOKEN);
	assert_string_equal(atlas_session_error(r.session), "token 2 is 40: the vocabulary has 40");
	tokens[2] = -1;
	assert_int_equal(atlas_start(r.session, tokens, 4, NULL, 1, &slot), ATLAS_TOKEN);
	fill_prompt(tokens, 129, 5);
	for (int n = 126; n <= 128; n++) { /* the last token of an answer needs no position */
		counts[0] = 0;
		assert_int_equal(atlas_start(r.session, tokens, n, NULL, 50, &slot), ATLAS_OK);
		run_all(r.session, answers, counts, finish);
		assert_true(finish[0] == ATLAS_STOP || (finish[0] == ATLAS_LENGTH && counts[0] == 129 - n));
	}
	assert_int_equal(finish[0] == ATLAS_STOP ? 1 : counts[0], 1);
	rig_close(&r);
}

static void slots_and_pages_are_counted(void **state)
{
	int32_t tokens[128];
	int slot, first;
	AtlasEvent events[4];
	AtlasSessionInfo info = {.struct_size = sizeof info};
	Rig r;
	(void)state;
	rig_open(&r, "llama", 160); /* 10 pages of 16 */
	fill_prompt(tokens, 128, 1);
	assert_int_equal(atlas_start(r.session, tokens, 100, NULL, 29, &first), ATLAS_OK); /* 8 pages */
	assert_int_equal(atlas_start(r.session, tokens, 17, NULL, 17, &slot), ATLAS_NO_PAGES); /* 3 pages */
	assert_string_equal(atlas_session_error(r.session), "3 pages are needed, 2 of 10 are free");
	for (int i = 0; i < 2; i++)
		assert_int_equal(atlas_start(r.session, tokens, 16, NULL, 1, &slot), ATLAS_OK);
	assert_int_equal(atlas_session_info(r.session, &info), ATLAS_OK);
	assert_int_equal(info.free_pages, 0);
	assert_int_equal(info.free_slots, 1);
	assert_string_equal(info.device, "cuda");
	assert_string_equal(info.device_name, "Fake GPU");
	assert_string_equal(info.target, "sm_90a");
	assert_true(info.memory_seconds > 0 && info.kernels_seconds > 0);
	assert_true(info.graphs_seconds > 0 && info.weights_seconds > 0);
	assert_int_equal(atlas_cancel(r.session, 3), ATLAS_ARGUMENT);
	assert_int_equal(atlas_cancel(r.session, first), ATLAS_OK);
	assert_int_equal(atlas_cancel(r.session, first), ATLAS_ARGUMENT);
	assert_int_equal(atlas_start(r.session, tokens, 17, NULL, 17, &slot), ATLAS_OK);
	assert_int_equal(slot, first);
	assert_int_equal(atlas_start(r.session, tokens, 16, NULL, 1, &slot), ATLAS_OK);
	assert_int_equal(atlas_start(r.session, tokens, 16, NULL, 1, &slot), ATLAS_NO_SLOT);
	assert_string_equal(atlas_session_error(r.session), "all 4 slots are taken");
	assert_int_equal(atlas_step(r.session, events, 3, &slot), ATLAS_ARGUMENT);
	rig_close(&r);
}

/* What a step was, and how long the device was waited for; a step that hands out nothing was none. */
static void steps_are_reported(void **state)
{
	int32_t tokens[40];
	AtlasEvent events[4];
	int slot, n;
	double waited = 0;
	AtlasSessionInfo info = {.struct_size = sizeof info};
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
	const TargetPlan *t = &r.plan->artifact.targets[0];
	fill_prompt(tokens, 40, 0);
	atlas_session_info(r.session, &info);
	assert_null(info.step_phase);
	for (int i = 0; i < 2; i++)
		assert_int_equal(atlas_start(r.session, tokens, 10 + i, NULL, 3, &slot), ATLAS_OK);
	for (int step = 0; step < 3; step++) {
		int smallest = 1 << 30;
		const PhaseKind kind = step ? DECODE : PREFILL;
		const int rows = step ? 2 : 21;
		assert_int_equal(atlas_step(r.session, events, 4, &n), ATLAS_OK);
		atlas_session_info(r.session, &info);
		for (int i = 0; i < t->n_phases; i++)
			if (t->phases[i].kind == kind && t->phases[i].rows >= rows && t->phases[i].rows < smallest)
				smallest = t->phases[i].rows;
		assert_string_equal(info.step_phase, step ? "decode" : "prefill");
		assert_int_equal(info.step_rows, rows);
		assert_int_equal(info.step_bucket, smallest);
		assert_true(info.device_seconds >= waited && info.device_seconds > 0);
		waited = info.device_seconds;
	}
	assert_int_equal(atlas_step(r.session, events, 4, &n), ATLAS_OK);
	atlas_session_info(r.session, &info);
	assert_true(n == 0 && !info.step_phase && info.step_rows == 0);
	rig_close(&r);
}

/* Prompts are read in the order in which they were started, whichever slots they got. */
static void first_come_first_served(void **state)
{
	int32_t tokens[40];
	AtlasEvent events[4];
	int slot, n, served[3], n_served = 0;
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
	fill_prompt(tokens, 40, 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(atlas_start(r.session, tokens, 40, NULL, 3, &slot), ATLAS_OK);
		assert_int_equal(slot, i);
	}
	assert_int_equal(atlas_cancel(r.session, 0), ATLAS_OK);
	assert_int_equal(atlas_start(r.session, tokens, 40, NULL, 3, &slot), ATLAS_OK);
	assert_int_equal(slot, 0); /* the lowest slot has the latest prompt */
	while (n_served < 3) {
		assert_int_equal(atlas_step(r.session, events, 4, &n), ATLAS_OK);
		for (int i = 0; i < n && n_served < 3; i++)
			served[n_served++] = events[i].slot;
	}
	assert_memory_equal(served, ((int[]){1, 2, 0}), sizeof served);
	rig_close(&r);
}

static void sampling_is_checked(void **state)
{
	int32_t token = 5;
	int slot;
	AtlasSampling s;
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
	atlas_sampling_init(r.plan, &s);
	assert_true(s.temperature == 0 && s.top_p == 1 && s.repetition_penalty == 1);
#define BAD(field, value, text) \
	do { \
		AtlasSampling bad = s; \
		bad.field = value; \
		assert_int_equal(atlas_start(r.session, &token, 1, &bad, 1, &slot), ATLAS_ARGUMENT); \
		assert_string_equal(atlas_session_error(r.session), text); \
	} while (0)
	BAD(temperature, -1, "temperature = -1 is out of range");
	BAD(temperature, NAN, "temperature = nan is out of range");
	BAD(temperature, INFINITY, "temperature = inf is out of range");
	BAD(top_p, 0, "top_p = 0 is out of range");
	BAD(top_p, 1.5f, "top_p = 1.5 is out of range");
	BAD(min_p, -0.5f, "min_p = -0.5 is out of range");
	BAD(repetition_penalty, 0, "repetition_penalty = 0 is out of range");
	BAD(presence_penalty, NAN, "presence_penalty = nan is out of range");
	BAD(top_k, -1, "top_k = -1 is out of range");
	BAD(struct_size, 0, "sampling.struct_size is not set"); /* never the defaults instead of what was meant */
	rig_close(&r);
}

/* A seed gives the same answer wherever and whenever it runs, another seed another one. */
static void seeds_decide(void **state)
{
	int32_t tokens[9];
	int answers[4][64], counts[4] = {0}, slot;
	AtlasFinish finish[4];
	AtlasSampling s;
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
	fill_prompt(tokens, 9, 4);
	atlas_sampling_init(r.plan, &s);
	s.temperature = 2;
	for (int i = 0; i < 3; i++) {
		s.seed = i == 2 ? 7 : 1ull << 40;
		assert_int_equal(atlas_start(r.session, tokens, 9, &s, 20, &slot), ATLAS_OK);
	}
	run_all(r.session, answers, counts, finish);
	assert_int_equal(counts[0], counts[1]);
	assert_memory_equal(answers[0], answers[1], sizeof(int) * (size_t)counts[0]);
	assert_true(counts[2] != counts[0] || memcmp(answers[0], answers[2], sizeof(int) * (size_t)counts[0]) != 0);
	rig_close(&r);
}

/* Buckets, pages and slots as no default has them: one row, fewer rows than slots, gaps, more rows than slots. */
typedef struct Shape { int slots, page, prefill[4], n_prefill, decode[4], n_decode, ahead; } Shape;

static void rig_shaped(Rig *r, const Shape *shape)
{
	memset(r, 0, sizeof *r);
	synthetic_model(&r->made.c, "llama");
	Options *o = &r->made.c.model.options;
	o->slots = shape->slots;
	o->page = shape->page;
	memcpy(o->prefill, shape->prefill, sizeof shape->prefill);
	memcpy(o->decode, shape->decode, sizeof shape->decode);
	o->n_prefill = shape->n_prefill;
	o->n_decode = shape->n_decode;
	o->prompt_grid = o->prefill[o->n_prefill - 1] < 16 ? o->prefill[o->n_prefill - 1] : 16;
	make_plan_of_model(&r->made);
	rig_made(r);
	r->steps_ahead = shape->ahead;
	assert_int_equal(open_fake(r), ATLAS_OK);
}

enum { N_PROMPTS = 7, MOST_NEW = 12 };
typedef struct Spoken { int32_t tokens[128]; int n_prompt, n; } Spoken; /* a prompt and its answer */

/* More prompts than slots, started as slots get free; one is cancelled while it waits, one while it runs. */
static void speak_all(AtlasSession *s, int n_slots, Spoken said[N_PROMPTS])
{
	static const int lengths[N_PROMPTS] = {1, 16, 17, 3, 64, 8, 48}; /* ends of chunks and pages among them */
	int in_slot[8], started = 0, done = 0, slot, n;
	AtlasEvent events[8];
	for (int i = 0; i < N_PROMPTS; i++) {
		said[i].n_prompt = said[i].n = lengths[i];
		fill_prompt(said[i].tokens, lengths[i], i);
	}
	assert_int_equal(atlas_start(s, said[4].tokens, 64, NULL, 9, &slot), ATLAS_OK);
	assert_int_equal(atlas_cancel(s, slot), ATLAS_OK);
	assert_int_equal(atlas_start(s, said[6].tokens, 2, NULL, 9, &slot), ATLAS_OK);
	for (n = 0; n == 0;)
		assert_int_equal(atlas_step(s, events, 8, &n), ATLAS_OK);
	if (events[0].finish == ATLAS_RUNNING)
		assert_int_equal(atlas_cancel(s, slot), ATLAS_OK);
	while (done < N_PROMPTS) {
		while (started < N_PROMPTS) {
			AtlasStatus status = atlas_start(s, said[started].tokens, lengths[started], NULL, MOST_NEW, &slot);
			if (status == ATLAS_NO_SLOT)
				break;
			assert_int_equal(status, ATLAS_OK);
			in_slot[slot] = started++;
		}
		assert_true(started == N_PROMPTS || atlas_active(s) == n_slots);
		assert_int_equal(atlas_step(s, events, 8, &n), ATLAS_OK);
		for (int i = 0; i < n; i++) {
			Spoken *a = &said[in_slot[events[i].slot]];
			a->tokens[a->n++] = events[i].token;
			done += events[i].finish != ATLAS_RUNNING;
		}
	}
}

static void any_buckets_give_the_same_answers(void **state)
{
	static const Shape shapes[] = {
		{4, 16, {32}, 1, {1, 4}, 2, 1}, /* as everywhere in this file: what the others are compared with */
		{4, 16, {32}, 1, {1, 4}, 2, 8},
		{4, 16, {1}, 1, {4}, 1, 3},
		{1, 64, {8}, 1, {1}, 1, 8},
		{5, 8, {3}, 1, {1, 3, 5}, 3, 2},
		{3, 16, {1, 2, 5, 16}, 4, {2, 8}, 2, 8},
		{6, 128, {4, 64}, 2, {6}, 1, 32},
	};
	Spoken first[N_PROMPTS], said[N_PROMPTS];
	(void)state;
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		Rig r;
		rig_shaped(&r, &shapes[i]);
		speak_all(r.session, shapes[i].slots, i ? said : first);
		for (int k = 0; k < N_PROMPTS && i; k++) {
			assert_int_equal(said[k].n, first[k].n);
			assert_memory_equal(said[k].tokens, first[k].tokens, sizeof(int32_t) * (size_t)first[k].n);
		}
		rig_close(&r);
	}
}

/* What the driver is asked ---------------------------------------------------------------------------------- */

static void loading_asks_for_what_the_plan_says(void **state)
{
	char *log, seen[1 << 14], want[1 << 14], line[128];
	size_t n;
	Rig r;
	(void)state;
	rig_plan(&r, "llama", 0);
	r.fake.log = open_memstream(&log, &n);
	assert_int_equal(open_fake(&r), ATLAS_OK);
	fclose(r.fake.log);
	r.fake.log = NULL;
	const TargetPlan *t = r.plan->artifact.targets;
	for (int a = 0; a <= ARENA_RING; a++) { /* one allocation an arena, of exactly its size */
		snprintf(line, sizeof line, a == ARENA_RING ? "MemHostAlloc %lld, flags 2\n" : "MemAlloc %lld\n",
			(long long)t->arena_bytes[a]);
		assert_non_null(strstr(log, line));
	}
	drop_lines(log, "TensorMapEncodeTiled"); /* whose launches have any is not asked here */
	summarise(log, seen, sizeof seen);
	int at = snprintf(want, sizeof want, "Init\nDriverGetVersion\nDeviceGetCount\nDeviceGet\nDeviceGetName\n"
		"DeviceGetAttribute x3\nDevicePrimaryCtxRetain\nCtxPushCurrent\nStreamCreate\nEventCreate x2\n"
		"MemGetInfo\nMemAlloc x4\nMemHostAlloc x5\nMemsetD8Async x2\n");
	assert_memory_equal(seen, want, (size_t)at);
	at = 0;
	bool has_decode = false; /* the first decode phase has a graph of four steps as well */
	for (int p = 0; p < t->n_phases; p++)
		for (int steps = 1; steps <= (t->phases[p].kind == DECODE && !has_decode ? 4 : 1); steps += 3) {
			bool overlaps = false; /* programmatic edges are added in one call */
			for (int i = 0; i < t->phases[p].n_launches; i++)
				overlaps |= t->phases[p].launches[i].overlaps && (steps > 1 || t->phases[p].launches[i].n_deps);
			if (t->phases[p].kind == PROBE)
				continue; /* for who measures: a session neither loads nor builds it */
			at += snprintf(want + at, sizeof want - (size_t)at, t->phases[p].n_launches > 1
				? "GraphCreate\nGraphAddKernelNode x%d\n" : "GraphCreate\nGraphAddKernelNode\n",
				steps * t->phases[p].n_launches); /* an acquire phase has one launch: not counted */
			at += snprintf(want + at, sizeof want - (size_t)at, "%sGraphInstantiate\nGraphUpload\nGraphDestroy\n",
				overlaps ? "GraphAddDependencies\n" : "");
			has_decode |= steps > 1;
		}
	assert_non_null(strstr(seen, want));
	free(log);
	rig_close(&r);
}

static void auto_means_cpu_without_a_driver(void **state)
{
	AtlasSessionOptions options = {.struct_size = sizeof options, .device = "cuda"};
	AtlasSessionInfo info = {.struct_size = sizeof info};
	Driver real;
	Rig r;
	(void)state;
	rig_plan(&r, "llama", 0);
	options.device = "gpu";
	assert_int_equal(atlas_session_open(r.plan, &options, &r.session, &r.error), ATLAS_ARGUMENT);
	assert_string_equal(r.error.text, "device \"gpu\": auto, cuda or cpu expected");
	options.device = "cuda";
	options.steps_ahead = -1;
	assert_int_equal(atlas_session_open(r.plan, &options, &r.session, &r.error), ATLAS_ARGUMENT);
	assert_string_equal(r.error.text, "steps_ahead = -1: 0 or more expected");
	options.steps_ahead = 0;
	if (driver_open(&real, NULL) == ATLAS_NO_DRIVER) {
		assert_int_equal(atlas_session_open(r.plan, &options, &r.session, &r.error), ATLAS_NO_DRIVER);
		assert_null(r.session);
		assert_non_null(strstr(r.error.text, "libcuda.so.1"));
		assert_int_equal(atlas_session_open(r.plan, NULL, &r.session, &r.error), ATLAS_OK);
		assert_string_equal(r.error.text, "");
		assert_int_equal(atlas_session_info(r.session, &info), ATLAS_OK);
		assert_string_equal(info.device, "cpu");
		assert_string_equal(info.target, "");
		atlas_session_close(r.session);
		/* with a device that was to be started: the same words */
		options.started = atlas_device_start(0);
		assert_non_null(options.started);
		assert_int_equal(atlas_session_open(r.plan, &options, &r.session, &r.error), ATLAS_NO_DRIVER);
		assert_non_null(strstr(r.error.text, "libcuda.so.1"));
		options.device = NULL;
		assert_int_equal(atlas_session_open(r.plan, &options, &r.session, &r.error), ATLAS_OK);
		atlas_device_end(options.started);
	}
	atlas_device_end(NULL);
	rig_close(&r);
}

static void unfit_machines_are_refused(void **state)
{
	Rig r;
	(void)state;
	rig_plan(&r, "llama", 0);
	r.fake.n_devices = 0;
	assert_int_equal(open_fake(&r), ATLAS_NO_DEVICE);
	assert_string_equal(r.error.text, "GPU 0: the driver shows 0");
	r.fake.n_devices = 1;
	r.fake.version = 12030;
	assert_int_equal(open_fake(&r), ATLAS_DRIVER_OLD);
	assert_string_equal(r.error.text, "the driver supports CUDA 12.3: 12.4 or later is needed");
	r.fake.version = 13000;
	r.fake.cc_major = 8;
	assert_int_equal(open_fake(&r), ATLAS_ARCH);
	assert_string_equal(r.error.text, "Fake GPU has compute capability 8.0: the plan is for sm_90a");
	r.fake.cc_major = 9;
	r.fake.memory_bytes = 1 << 16;
	assert_int_equal(open_fake(&r), ATLAS_DEVICE_MEMORY);
	assert_non_null(strstr(r.error.text, " MiB needed (weights "));
	assert_non_null(strstr(r.error.text, ", 0.1 of 0.1 MiB free"));
	r.fake.memory_bytes = (size_t)1 << 34;
	r.fake.smem_optin = 16;
	assert_int_equal(open_fake(&r), ATLAS_ARCH);
	r.fake.smem_optin = 232448;
	((Kernel *)r.plan->artifact.targets[0].kernels)[0].param_bytes += 8; /* the fake GPU reads it as well */
	assert_int_equal(open_fake(&r), ATLAS_OK);
	rig_close(&r);
}

/* An exact target runs on its capability alone, the others on every later minor of their major. */
static void targets_fit_devices(void **state)
{
	static const struct { int major, minor; const char *target; } devices[] = {
		{8, 0, "sm_80"}, {8, 6, "sm_80"}, {8, 9, "sm_89"}, {9, 0, "sm_90a"}, {9, 1, NULL}, {7, 5, NULL},
		{10, 0, NULL}};
	TargetPlan targets[3];
	Slot *ledger[3];
	int n_ledger[3];
	Rig r;
	(void)state;
	memset(&r, 0, sizeof r);
	synthetic_model(&r.made.c, "llama");
	r.made.c.cmd.targets[0] = "sm_80"; /* what serves it serves them all */
	make_plan_of_model(&r.made);
	Artifact *a = &r.made.artifact;
	for (int i = 0; i < a->targets[0].n_kernels; i++) { /* cubins that do not say for which GPU they are */
		const Kernel *k = &a->targets[0].kernels[i];
		made_cubin(r.made.cubins + k->cubin_offset, &(MadeCubin){.entry = k->entry, .param_bytes = k->param_bytes,
			.registers = k->registers});
	}
	for (int i = 0; i < 3; i++) {
		targets[i] = a->targets[0];
		ledger[i] = a->ledger[0];
		n_ledger[i] = a->n_ledger[0];
	}
	targets[1].target = "sm_89", targets[1].cc_major = 8, targets[1].cc_minor = 9;
	targets[2].target = "sm_90a", targets[2].cc_major = 9, targets[2].cc_minor = 0;
	a->targets = targets, a->ledger = ledger, a->n_ledger = n_ledger, a->n_targets = 3, a->candidates = NULL;
	rig_made(&r);
	for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
		AtlasSessionInfo info = {.struct_size = sizeof info};
		r.fake.cc_major = devices[i].major;
		r.fake.cc_minor = devices[i].minor;
		if (!devices[i].target) {
			assert_int_equal(open_fake(&r), ATLAS_ARCH);
			assert_non_null(strstr(r.error.text, ": the plan is for sm_80, sm_89, sm_90a"));
			continue;
		}
		assert_int_equal(open_fake(&r), ATLAS_OK);
		assert_int_equal(atlas_session_info(r.session, &info), ATLAS_OK);
		assert_string_equal(info.target, devices[i].target);
		atlas_session_close(r.session);
		r.session = NULL;
		fake_driver_stop(&r.fake); /* kernels are numbered from 0 again */
		fake_driver_start(&r.fake, &r.driver);
		fake_gpu_start(&r.gpu, &r.fake, &r.plan->artifact);
	}
	rig_close(&r);
}

/* Two texts in a pool for one and a half: the younger is set aside and comes back. */
static AtlasStatus live_in_a_tight_pool(AtlasSession *s)
{
	AtlasEvent events[4];
	AtlasSessionInfo info = {.struct_size = sizeof info};
	int32_t tokens[60];
	AtlasStatus status = ATLAS_OK;
	int slot, n;
	fill_prompt(tokens, 60, 1);
	session_grow_by(s, 0);
	for (int i = 0; i < 2 && status == ATLAS_OK; i++)
		status = atlas_request_start(s, &(AtlasRequest){.struct_size = sizeof(AtlasRequest), .tokens = tokens,
			.n_tokens = 60, .max_new = 9, .pages_as_needed = 1}, &slot);
	while (atlas_active(s) && status == ATLAS_OK)
		status = atlas_step(s, events, 4, &n);
	atlas_session_info(s, &info);
	assert_true(status != ATLAS_OK || (info.set_aside == 1 && info.free_pages == info.pages));
	return status;
}

/* The whole life of a session. True when everything succeeded. */
static bool live(Rig *r, AtlasStatus *status)
{
	AtlasEvent events[4];
	int32_t tokens[40];
	Collected logits = {0}, layers = {0};
	int slot, n;
	fill_prompt(tokens, 40, 0);
	*status = open_fake(r);
	if (*status != ATLAS_OK) {
		assert_true(r->error.text[0]);
		return false;
	}
	*status = atlas_start(r->session, tokens, 40, NULL, 3, &slot);
	for (int i = 0; i < 4 && *status == ATLAS_OK; i++)
		*status = atlas_step(r->session, events, 4, &n);
	if (*status == ATLAS_OK)
		*status = atlas_score(r->session, tokens, 6, take_logits, &logits);
	if (*status == ATLAS_OK)
		*status = atlas_trace(r->session, tokens, 6, take_layer, &layers);
	if (*status == ATLAS_OK)
		*status = live_in_a_tight_pool(r->session);
	free(logits.at);
	free(layers.at);
	if (*status == ATLAS_OK)
		return true;
	assert_true(atlas_session_error(r->session)[0]); /* and it stays failed */
	assert_int_equal(atlas_start(r->session, tokens, 40, NULL, 3, &slot), *status);
	assert_int_equal(atlas_step(r->session, events, 4, &n), *status);
	assert_int_equal(atlas_score(r->session, tokens, 6, take_logits, &logits), *status);
	return false;
}

/* Call 1, 2, 3 ... of the whole life fails, as out of memory and as a fault: a clean status, nothing left behind. */
static void every_call_may_fail(void **state)
{
	static const CuResult kinds[] = {CU_OUT_OF_MEMORY, 700};
	int n_failed = 0;
	Rig r;
	(void)state;
	rig_plan(&r, "llama", 128);
	for (int kind = 0; kind < 2; kind++)
		for (int at = 1;; at++) {
			AtlasStatus status;
			fake_driver_stop(&r.fake);
			fake_driver_start(&r.fake, &r.driver);
			fake_gpu_start(&r.gpu, &r.fake, &r.plan->artifact);
			r.gpu.is_lazy = true;
			r.fake.fail_at = at;
			r.fake.fail_with = kinds[kind];
			bool good = live(&r, &status);
			atlas_session_close(r.session);
			r.session = NULL;
			assert_string_equal(r.fake.broken, "");
			assert_int_equal(r.fake.live, 0);
			assert_int_equal(r.fake.context_depth, 0);
			if (r.fake.n_abandoned) /* only a context that cannot be entered may end with something in it */
				assert_string_equal(r.fake.failed_call, "CtxPushCurrent");
			if (!good)
				assert_int_equal(status, kind ? ATLAS_DEVICE_FAULT : ATLAS_DEVICE_MEMORY);
			n_failed += !good;
			if (!r.fake.failed_call)
				break; /* fewer calls than `at`: all were tried */
		}
	assert_true(n_failed > 200);
	rig_close(&r);
}

/* Plans -------------------------------------------------------------------------------------------------------- */

static void weights_by_reference(void **state)
{
	char folder[] = "/tmp/made_refs.XXXXXX", shard[64];
	MadePlan m;
	AtlasPlan *plan, *whole;
	AtlasSession *session;
	AtlasError error = {0};
	AtlasPlanInfo info = {.struct_size = sizeof info};
	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(shard, sizeof shard, "%s/model.safetensors", folder);
	make_plan(&m, "llama");
	write_made(&m, true);
	assert_int_equal(atlas_plan_open(m.path, NULL, &whole, &error), ATLAS_OK);
	write_made(&m, false);
	assert_int_equal(atlas_plan_open(m.path, NULL, &plan, &error), ATLAS_OK); /* to be looked at */
	assert_int_equal(atlas_session_open(plan, NULL, &session, &error), ATLAS_ARGUMENT);
	assert_null(session);
	assert_string_equal(error.text,
		"weights_dir is not given: this plan refers to the files of its checkpoint");
	atlas_plan_close(plan);
	AtlasPlanOptions o = {.struct_size = sizeof o, .weights_dir = folder};
	assert_int_equal(atlas_plan_open(m.path, &o, &plan, &error), ATLAS_IO);
	char want[512];
	snprintf(want, sizeof want, "%s: No such file or directory", shard);
	assert_string_equal(error.text, want);
	write_made_shard(&m, folder);
	assert_int_equal(atlas_plan_open(m.path, &o, &plan, &error), ATLAS_OK);
	assert_int_equal(atlas_plan_info(plan, &info), ATLAS_OK);
	assert_true(info.weights_by_reference && info.vocab == 40 && info.slots == 4 && info.max_context == 128);
	const Graph *g = &plan->artifact.graph;
	for (int i = 0; i < g->n_weights; i++) /* the same bytes either way */
		assert_memory_equal(plan->weights[i], whole->weights[i], (size_t)g->weights[i].bytes);
	atlas_plan_close(plan);
	atlas_plan_close(whole);
	FILE *f = fopen(shard, "r+b");
	fseek(f, 1000, SEEK_SET);
	fputc('x', f);
	fclose(f);
	assert_int_equal(atlas_plan_open(m.path, &o, &plan, &error), ATLAS_INTEGRITY);
	assert_non_null(strstr(error.text, " differs from the one that was compiled"));
	assert_int_equal(truncate(shard, 1000), 0);
	assert_int_equal(atlas_plan_open(m.path, &o, &plan, &error), ATLAS_INTEGRITY);
	assert_non_null(strstr(error.text, ": too short for "));
	for (int i = 0, n_cut = 0; i < m.artifact.graph.n_weights || n_cut < 10; i++) { /* of each weight the last byte */
		const Weight *w = &m.artifact.graph.weights[i];
		if (!w->file)
			continue;
		write_made_shard(&m, folder);
		assert_int_equal(truncate(shard, w->file_offset + w->bytes - 1), 0);
		assert_int_equal(atlas_plan_open(m.path, &o, &plan, &error), ATLAS_INTEGRITY);
		assert_non_null(strstr(error.text, ": too short for "));
		n_cut++;
	}
	unlink(shard);
	rmdir(folder);
	free_made(&m);
}

/* A weight that changed: refused when the plan opens, on its way to a GPU, or before the reference device uses it. */
static void changed_weights_are_refused(void **state)
{
	Rig r = {0};
	AtlasPlanOptions o = {.struct_size = sizeof o, .verify = ATLAS_VERIFY_LAZY};
	AtlasSessionOptions cpu = {.struct_size = sizeof cpu, .device = "cpu", .n_threads = 1};
	(void)state;
	rig_plan(&r, "llama", 0);
	const Artifact *a = &r.plan->artifact;
	long at = (long)(artifact_section(a, "weights")->offset + a->graph.weights[3].offset + 5);
	char expected[128];
	snprintf(expected, sizeof expected, "weight %s differs from the one that was compiled", a->graph.weights[3].name);
	atlas_plan_close(r.plan);
	fake_driver_stop(&r.fake);
	for (int changed = 0; changed < 2; changed++) {
		FILE *f = fopen(r.made.path, "r+b");
		fseek(f, at, SEEK_SET);
		int byte = fgetc(f);
		fseek(f, at, SEEK_SET);
		fputc(byte ^ changed, f);
		fclose(f);
		assert_int_equal(atlas_plan_open(r.made.path, &o, &r.plan, &r.error), ATLAS_OK);
		fake_driver_start(&r.fake, &r.driver);
		fake_gpu_start(&r.gpu, &r.fake, &r.plan->artifact);
		assert_int_equal(open_fake(&r), changed ? ATLAS_INTEGRITY : ATLAS_OK);
		if (changed)
			assert_string_equal(r.error.text, expected);
		atlas_session_close(r.session);
		assert_int_equal(atlas_session_open(r.plan, &cpu, &r.session, &r.error), changed ? ATLAS_INTEGRITY : ATLAS_OK);
		if (changed)
			assert_non_null(strstr(r.error.text, "section weights: bytes 0 to "));
		atlas_session_close(r.session);
		r.session = NULL;
		atlas_plan_close(r.plan);
		assert_int_equal(r.fake.live, 0);
		fake_driver_stop(&r.fake);
	}
	o.verify = ATLAS_VERIFY_FULL;
	assert_int_equal(atlas_plan_open(r.made.path, &o, &r.plan, &r.error), ATLAS_INTEGRITY);
	o.verify = 3;
	assert_int_equal(atlas_plan_open(r.made.path, &o, &r.plan, &r.error), ATLAS_ARGUMENT);
	o.verify = ATLAS_VERIFY_OFF;
	o.n_trust = 1;
	assert_int_equal(atlas_plan_open(r.made.path, &o, &r.plan, &r.error), ATLAS_ARGUMENT);
	free_made(&r.made);
}

static void files_that_are_no_plans(void **state)
{
	char path[] = "/tmp/made_none.XXXXXX";
	AtlasPlan *plan;
	AtlasError error = {0};
	(void)state;
	assert_int_equal(atlas_plan_open("/nonexistent/plan.bin", NULL, &plan, &error), ATLAS_IO);
	assert_string_equal(error.text, "/nonexistent/plan.bin: No such file or directory");
	assert_int_equal(atlas_plan_open("/tmp", NULL, &plan, &error), ATLAS_IO);
	assert_string_equal(error.text, "/tmp: not a regular file");
	int fd = mkstemp(path);
	assert_int_equal(atlas_plan_open(path, NULL, &plan, &error), ATLAS_NOT_A_PLAN);
	assert_int_equal(write(fd, "0123456789", 10), 10);
	close(fd);
	assert_int_equal(atlas_plan_open(path, NULL, &plan, NULL), ATLAS_NOT_A_PLAN);
	unlink(path);
}

static void statuses_have_words(void **state)
{
	(void)state;
	for (int s = 0; s < ATLAS_STATUS_LAST; s++) {
		assert_true(atlas_status_name((AtlasStatus)s)[0] && atlas_status_text((AtlasStatus)s)[0]);
		bool is_error = s != ATLAS_OK && s != ATLAS_STOPPED;
		assert_int_equal(atlas_status_exit_code((AtlasStatus)s) != 0, is_error);
		assert_int_equal(atlas_status_advice((AtlasStatus)s)[0] != 0, is_error);
	}
	assert_string_equal(atlas_status_name(ATLAS_NO_SLOT), "NO_SLOT");
	assert_int_equal(atlas_status_exit_code((AtlasStatus)99), 70);
	assert_string_equal(atlas_status_text((AtlasStatus)-1), "unknown status");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plan_means_what_its_graph_means),
		cmocka_unit_test(types_may_be_mixed),
		cmocka_unit_test(answers_do_not_depend_on_company),
		cmocka_unit_test(steps_are_reported),
		cmocka_unit_test(stop_tokens_stop),
		cmocka_unit_test(contexts_end_where_they_must),
		cmocka_unit_test(slots_and_pages_are_counted),
		cmocka_unit_test(first_come_first_served),
		cmocka_unit_test(sampling_is_checked),
		cmocka_unit_test(seeds_decide),
		cmocka_unit_test(any_buckets_give_the_same_answers),
		cmocka_unit_test(loading_asks_for_what_the_plan_says),
		cmocka_unit_test(auto_means_cpu_without_a_driver),
		cmocka_unit_test(unfit_machines_are_refused),
		cmocka_unit_test(targets_fit_devices),
		cmocka_unit_test(every_call_may_fail),
		cmocka_unit_test(weights_by_reference), cmocka_unit_test(changed_weights_are_refused),
		cmocka_unit_test(files_that_are_no_plans),
		cmocka_unit_test(statuses_have_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
