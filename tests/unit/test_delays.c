/* test_delays.c - a device that lags behind the host by as much as chance says: the answers stay the same.
 *
 * The fake driver lets its work go on in any call, kernel by kernel and word by word (fake_driver.h). First it is shown
 * that it sees what a GPU would not forgive; then sessions are loaded in many ways, each with delays of its own, and
 * every sequence must have the tokens and log probabilities, to the bit, that it has alone on a device without delays.
 */
#include "runtime/session.h"
#include "tests/unit/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* What the driver sees ----------------------------------------------------------------------------------- */

typedef struct Bench { /* a stream, memory and the driver */
	FakeDriver fake;
	Driver cu;
	CuStream stream;
	CuPtr device;
	void *pinned;
	int32_t *mapped;
	CuLibrary cubins;
	CuKernel kernel;
} Bench;

enum { BYTES = 64 };

static size_t param_bytes(void *ctx, int kernel)
{
	(void)ctx, (void)kernel;
	return 2 * sizeof(void *);
}

/* Writes 16 words: 1, 2, 3 ... */
static void count_up(void *ctx, int kernel, const void *params)
{
	int32_t *words;
	(void)ctx, (void)kernel;
	memcpy(&words, params, sizeof words);
	for (int i = 0; i < BYTES / 4; i++)
		words[i] = i + 1;
}

static void begin(Bench *b, uint64_t seed)
{
	void *at;
	fake_driver_start(&b->fake, &b->cu);
	b->fake.delays = fake_delays(seed);
	b->fake.param_bytes = param_bytes;
	b->fake.execute = count_up;
	assert_int_equal(b->cu.StreamCreate(&b->stream, 1), 0);
	assert_int_equal(b->cu.MemAlloc(&b->device, BYTES), 0);
	assert_int_equal(b->cu.MemHostAlloc(&b->pinned, BYTES, 0), 0);
	assert_int_equal(b->cu.MemHostAlloc(&at, BYTES, DRIVER_HOST_MAPPED), 0);
	assert_int_equal(b->cu.LibraryLoadData(&b->cubins, "\177ELF", NULL, NULL, 0, NULL, NULL, 0), 0);
	assert_int_equal(b->cu.LibraryGetKernel(&b->kernel, b->cubins, "k"), 0);
	b->mapped = at;
	memset(b->pinned, 7, BYTES);
	memset(b->mapped, 0, BYTES);
}

static void launch(Bench *b, const void *at)
{
	void *params[2] = {(void *)(uintptr_t)at}, *list[] = {params};
	assert_int_equal(b->cu.LaunchKernel(b->kernel, 1, 1, 1, 1, 1, 1, 0, b->stream, list, NULL), 0);
}

/* Gives all back in the order of a session; the stream is idle unless the test wants to see what that does. */
static void end(Bench *b)
{
	b->cu.LibraryUnload(b->cubins);
	b->cu.MemFree(b->device);
	b->cu.MemFreeHost(b->pinned);
	b->cu.MemFreeHost(b->mapped);
	b->cu.StreamDestroy(b->stream);
	assert_int_equal(b->fake.live, 0);
	fake_driver_stop(&b->fake);
}

/* No copy is done when the call that asks for it returns. */
static void a_source_may_not_change(void **state)
{
	(void)state;
	for (int seed = 0; seed < 40; seed++) {
		Bench b;
		begin(&b, (uint64_t)seed);
		b.cu.MemcpyHtoDAsync(b.device, b.pinned, BYTES, b.stream);
		((uint8_t *)b.pinned)[seed] ^= 1;
		b.cu.StreamSynchronize(b.stream);
		assert_string_equal(b.fake.broken, "the source of a copy was changed before the copy ran");
		end(&b);
	}
}

/* After a wait, or once an event after the copy has come, the source is the caller's again. */
static void a_source_may_change_after_its_copy(void **state)
{
	(void)state;
	for (int seed = 0; seed < 40; seed++) {
		Bench b;
		CuEvent event;
		begin(&b, (uint64_t)seed);
		b.cu.EventCreate(&event, 2);
		b.cu.MemcpyHtoDAsync(b.device, b.pinned, BYTES, b.stream);
		b.cu.EventRecord(event, b.stream);
		launch(&b, (void *)(uintptr_t)b.device);
		b.cu.EventSynchronize(event);
		memset(b.pinned, 9, BYTES);
		b.cu.MemcpyDtoHAsync(b.pinned, b.device, BYTES, b.stream);
		assert_int_equal(((int32_t *)b.pinned)[0], -1); /* it is no one's until the copy ran */
		b.cu.StreamSynchronize(b.stream);
		assert_int_equal(((int32_t *)b.pinned)[15], 16);
		assert_string_equal(b.fake.broken, "");
		b.cu.EventDestroy(event);
		end(&b);
	}
}

/* Each thing that work may need is given back while the work is on its way: device, pinned and mapped memory, the
 * stream, the code; and the code when the work is done. */
static void nothing_in_use_is_given_back(void **state)
{
	(void)state;
	for (int thing = 0; thing < 6; thing++)
		for (int is_launch = 0; is_launch < 2; is_launch++) {
			Bench b;
			begin(&b, 0);
			if (is_launch)
				launch(&b, thing == 2 ? (void *)b.mapped : (void *)(uintptr_t)b.device);
			else
				b.cu.MemcpyHtoDAsync(b.device, b.pinned, BYTES, b.stream);
			const bool is_used = thing == 3 || thing == 0 || (thing == 1 ? !is_launch : is_launch && thing != 5);
			if (thing == 5)
				b.cu.StreamSynchronize(b.stream);
			if (thing == 0)
				b.cu.MemFree(b.device);
			else if (thing == 1)
				b.cu.MemFreeHost(b.pinned);
			else if (thing == 2)
				b.cu.MemFreeHost(b.mapped);
			else if (thing == 3)
				b.cu.StreamDestroy(b.stream);
			else
				b.cu.LibraryUnload(b.cubins);
			assert_string_equal(b.fake.broken, is_used ? "something was given back that work on its way uses" : "");
			fake_driver_stop(&b.fake);
		}
}

/* Words of one kernel arrive in many orders; when the stream is idle all are there. */
static void words_arrive_in_any_order(void **state)
{
	bool is_first[BYTES / 4] = {0};
	int n_first = 0, n_partly = 0;
	(void)state;
	for (int seed = 1; seed < 400; seed++) {
		Bench b;
		int n = 0;
		begin(&b, (uint64_t)seed);
		launch(&b, b.mapped);
		for (bool is_seen = false; b.cu.StreamQuery(b.stream) != CU_SUCCESS;) {
			for (int i = n = 0; i < BYTES / 4; n += b.mapped[i++] != 0)
				assert_true(b.mapped[i] == 0 || b.mapped[i] == i + 1);
			n_partly += n > 0 && n < BYTES / 4;
			for (int i = 0; i < BYTES / 4 && n == 1 && !is_seen; i++)
				is_first[i] |= b.mapped[i] != 0;
			is_seen |= n > 0;
		}
		for (int i = 0; i < BYTES / 4; i++)
			assert_int_equal(b.mapped[i], i + 1);
		assert_string_equal(b.fake.broken, "");
		end(&b);
	}
	for (int i = 0; i < BYTES / 4; i++)
		n_first += is_first[i];
	assert_true(n_first == BYTES / 4 && n_partly > 100);
}

/* Sessions ------------------------------------------------------------------------------------------------ */

static uint64_t first_seed = 1; /* of loads; more are tried with `test_delays SEED` */

enum { REQUESTS = 8, MOST = 96, SLOTS = 8, ROOM = 8 * PLAN_MAX_VERIFY };

typedef struct Answer { int n; int32_t token[MOST]; float logprob[MOST]; AtlasFinish finish; } Answer;

typedef struct Load { /* what sequences of a plan answer, alone and on a device without delays */
	Rig r;
	bool drafts, as_needed; /* drafts are made; pages are taken as needed */
	int lengths[REQUESTS], max_new[REQUESTS];
	Answer alone[REQUESTS];
	Collected scores;
	/* of the session that is under way: -1 = the slot is free */
	int request[SLOTS];
	Answer said[SLOTS];
	int n_without_pages, n_scored, n_cancelled, n_ended, n_closed; /* what has happened; closed with sequences */
	int64_t n_set_aside; /* in the last session */
} Load;

static AtlasSampling sampling_of(int request)
{
	return (AtlasSampling){.struct_size = sizeof(AtlasSampling), .top_p = 1, .repetition_penalty = 1,
		.temperature = request % 3 ? 0.8f : 0, .seed = (uint64_t)request};
}

static AtlasStatus start(Load *l, int request, int *slot)
{
	int32_t prompt[MOST];
	const AtlasSampling a = sampling_of(request);
	fill_prompt(prompt, l->lengths[request], request);
	const AtlasRequest r = {.struct_size = sizeof r, .tokens = prompt, .n_tokens = l->lengths[request], .sampling = &a,
		.max_new = l->max_new[request], .ignore_stops = l->as_needed, .pages_as_needed = l->as_needed};
	AtlasStatus s = atlas_request_start(l->r.session, &r, slot);
	if (s == ATLAS_OK) {
		l->request[*slot] = request;
		l->said[*slot].n = 0;
	}
	return s;
}

/* Each token is the one the sequence has alone, wherever it sits and whatever happens beside it. */
static void step(Load *l)
{
	AtlasEvent e[ROOM];
	int n;
	assert_int_equal(atlas_step(l->r.session, e, ROOM, &n), ATLAS_OK);
	for (int i = 0; i < n; i++) {
		Answer *said = &l->said[e[i].slot];
		const Answer *want = &l->alone[l->request[e[i].slot]];
		assert_in_range(l->request[e[i].slot], 0, REQUESTS - 1);
		assert_true(said->n < MOST);
		if (want->n) {
			assert_int_equal(e[i].token, want->token[said->n]);
			assert_memory_equal(&e[i].logprob, &want->logprob[said->n], sizeof(float));
			assert_int_equal(e[i].finish, said->n + 1 == want->n ? want->finish : ATLAS_RUNNING);
		}
		said->token[said->n] = e[i].token;
		said->logprob[said->n++] = e[i].logprob;
		said->finish = e[i].finish;
		if (e[i].finish == ATLAS_RUNNING)
			continue;
		l->request[e[i].slot] = -1;
		l->n_ended++;
	}
}

static void open_session(Load *l, uint64_t seed)
{
	const double shares[PLAN_MAX_VERIFY - 1] = {0.7, 0.5, 0.5};
	fake_driver_stop(&l->r.fake); /* a driver of its own: kernels are numbered anew */
	fake_driver_start(&l->r.fake, &l->r.driver);
	fake_gpu_start(&l->r.gpu, &l->r.fake, &l->r.plan->artifact);
	l->r.fake.delays = fake_delays(seed);
	assert_int_equal(open_fake(&l->r), ATLAS_OK);
	if (l->drafts) {
		session_speculate(l->r.session, true);
		session_prescribe(l->r.session, shares);
	}
	for (int i = 0; i < SLOTS; i++)
		l->request[i] = -1;
}

static void close_session(Load *l)
{
	atlas_session_close(l->r.session);
	l->r.session = NULL;
	assert_string_equal(l->r.fake.broken, "");
	assert_int_equal(l->r.fake.live, 0);
	assert_int_equal(l->r.fake.n_abandoned, 0);
}

static int take_row(void *ctx, int pos, const float *logits)
{
	Load *l = ((void **)ctx)[0];
	(void)pos;
	collect(((void **)ctx)[1], logits, l->r.plan->artifact.graph.vocab);
	return 0;
}

static AtlasStatus score(Load *l, Collected *scores)
{
	int32_t prompt[21];
	void *ctx[] = {l, scores};
	fill_prompt(prompt, 21, 1);
	return atlas_score(l->r.session, prompt, 21, take_row, ctx);
}

static void begin_load(Load *l)
{
	int slot;
	open_session(l, 0);
	for (int i = 0; i < REQUESTS; i++) {
		assert_int_equal(start(l, i, &slot), ATLAS_OK);
		while (l->request[slot] >= 0)
			step(l);
		l->alone[i] = l->said[slot];
	}
	assert_int_equal(score(l, &l->scores), ATLAS_OK);
	for (int i = 0; i < l->scores.n; i++)
		assert_true(isfinite(l->scores.at[i]));
	close_session(l);
}

static void end_load(Load *l)
{
	free(l->scores.at);
	rig_close(&l->r);
}

static void begin_llama(Load *l, bool as_needed)
{
	memset(l, 0, sizeof *l);
	l->as_needed = as_needed;
	rig_plan(&l->r, "llama", 16 * 9); /* 9 pages: some starts find none */
	for (int i = 0; i < REQUESTS; i++) {
		l->lengths[i] = (int[]){9, 9, 1, 33, 16, 40, 5, 9}[i];
		l->max_new[i] = (int[]){20, 40, 9, 3, 17, 1, 60, 24}[i] + (l->as_needed ? 35 : 0);
	}
	begin_load(l);
}

static void begin_qwen(Load *l)
{
	memset(l, 0, sizeof *l);
	l->drafts = true;
	rig_checkpoint(&l->r, "tests/fixtures/qwen3_5");
	for (int i = 0; i < REQUESTS; i++) {
		l->lengths[i] = (int[]){9, 9, 1, 33, 16, 40, 5, 9}[i];
		l->max_new[i] = (int[]){20, 24, 9, 3, 17, 1, 31, 12}[i];
	}
	begin_load(l);
}

static int below(uint64_t *random, int n)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (int)((*random >> 33) % (uint64_t)n);
}

/* Sequences come, are cancelled, scored beside and end; then the session is closed, with work on its way or without. */
static void run_load(Load *l, uint64_t seed, int n_steps)
{
	uint64_t random = seed * 7919;
	int slot;
	l->r.steps_ahead = (int[]){0, 1, 2, 5, 32}[below(&random, 5)];
	open_session(l, seed);
	session_grow_by(l->r.session, below(&random, 24));
	for (int i = 0; i < n_steps; i++) {
		const int what = below(&random, l->as_needed ? 36 : 12); /* of 36: more steps, for texts to grow */
		if (what < 4) {
			const AtlasStatus s = start(l, below(&random, REQUESTS), &slot);
			assert_true(s == ATLAS_OK || s == ATLAS_NO_SLOT || s == ATLAS_NO_PAGES);
			l->n_without_pages += s == ATLAS_NO_PAGES;
		} else if (what == 4) {
			slot = below(&random, l->r.plan->artifact.graph.slots);
			assert_int_equal(atlas_cancel(l->r.session, slot), l->request[slot] < 0 ? ATLAS_ARGUMENT : ATLAS_OK);
			l->n_cancelled += l->request[slot] >= 0;
			l->request[slot] = -1;
		} else if (what == 5) {
			Collected scores = {0};
			AtlasStatus s = score(l, &scores);
			assert_true(s == ATLAS_OK || s == ATLAS_NO_SLOT || s == ATLAS_NO_PAGES);
			if (s == ATLAS_OK)
				assert_memory_equal(scores.at, l->scores.at, sizeof(float) * (size_t)scores.n);
			l->n_scored += s == ATLAS_OK;
			free(scores.at);
		} else {
			step(l);
		}
	}
	while (seed % 2 && atlas_active(l->r.session))
		step(l);
	AtlasSessionInfo info = {.struct_size = sizeof info};
	assert_int_equal(atlas_session_info(l->r.session, &info), ATLAS_OK);
	l->n_set_aside = info.set_aside;
	l->n_closed += atlas_active(l->r.session) > 0;
	close_session(l);
}

static void loads_answer_as_alone(void **state)
{
	static Load l;
	(void)state;
	begin_llama(&l, false);
	for (uint64_t seed = first_seed; seed < first_seed + 16; seed++)
		run_load(&l, seed, 80);
	assert_true(l.n_without_pages && l.n_scored > 16 && l.n_cancelled > 16 && l.n_ended > 64 && l.n_closed > 4);
	end_load(&l);
}

/* Pages are taken while texts grow, and sequences are set aside and come back: entries of the page table and bytes of
 * pages are on their way, too, when a sequence is cancelled and another begins in its slot. */
static void loads_answer_as_alone_where_pages_move(void **state)
{
	static Load l;
	int64_t n_aside = 0;
	(void)state;
	begin_llama(&l, true);
	for (uint64_t seed = first_seed; seed < first_seed + 24; seed++) {
		run_load(&l, seed, 200);
		n_aside += l.n_set_aside;
	}
	assert_true(n_aside > 8 && l.n_scored > 8 && l.n_cancelled > 16 && l.n_ended > 64 && l.n_closed > 4);
	end_load(&l);
}

static void loads_answer_as_alone_with_drafts(void **state)
{
	static Load l;
	(void)state;
	begin_qwen(&l);
	for (uint64_t seed = first_seed; seed < first_seed + 4; seed++)
		run_load(&l, seed, 60);
	assert_true(l.n_cancelled > 4 && l.n_ended > 16 && l.n_closed);
	end_load(&l);
}

/* All sequences are cancelled while their steps are on the way, and others start at once in the same slots, with the
 * same pages: what the steps still write is nowhere where the others are. */
static void a_start_after_a_cancel(void **state)
{
	static Load l;
	int slot;
	(void)state;
	begin_llama(&l, false);
	l.r.steps_ahead = 32;
	for (int n = 1; n < 20; n += 5)
		for (int n_slots = 1; n_slots <= 3; n_slots++) {
			open_session(&l, first_seed + (uint64_t)(100 * n + n_slots));
			for (int i = 0; i < n_slots; i++)
				assert_int_equal(start(&l, 1, &slot), ATLAS_OK);
			while (l.said[0].n < n)
				step(&l);
			for (int i = 0; i < n_slots; i++)
				assert_int_equal(atlas_cancel(l.r.session, i), ATLAS_OK);
			for (int i = 0; i < n_slots; i++) {
				assert_int_equal(start(&l, i ? 7 : 0, &slot), ATLAS_OK);
				assert_int_equal(slot, i);
			}
			while (atlas_active(l.r.session))
				step(&l);
			close_session(&l);
		}
	end_load(&l);
}

/* The same of a text that grows: entries of the page table are on their way, too, out of the row in which the pages of
 * the next sequence are written down. */
static void a_start_after_a_text_that_grows(void **state)
{
	static Load l;
	int slot;
	(void)state;
	begin_llama(&l, true);
	l.r.steps_ahead = 32;
	for (int n = 1; n < 60; n += 3) {
		open_session(&l, first_seed + (uint64_t)n);
		session_grow_by(l.r.session, 0);
		assert_int_equal(start(&l, 6, &slot), ATLAS_OK);
		while (l.said[slot].n < n)
			step(&l);
		assert_int_equal(atlas_cancel(l.r.session, slot), ATLAS_OK);
		assert_int_equal(start(&l, n % 2 ? 3 : 0, &slot), ATLAS_OK);
		while (atlas_active(l.r.session))
			step(&l);
		close_session(&l);
	}
	end_load(&l);
}

/* After a score in the middle of a flight the inputs of its steps are sent again, while results of older steps are
 * there to be taken: none of them says that the copy is done. Then the flight goes on, or all of it is cancelled. */
static void a_score_between_steps(void **state)
{
	static Load l;
	int slot;
	(void)state;
	begin_llama(&l, false);
	for (int n = 2; n < 14; n++)
		for (int n_cancelled = 0; n_cancelled <= 2; n_cancelled++) {
			Collected scores = {0};
			open_session(&l, n < 10 ? 0 : first_seed + (uint64_t)(100 * n + n_cancelled));
			for (int i = 0; i < 2; i++)
				assert_int_equal(start(&l, 1, &slot), ATLAS_OK);
			while (l.said[0].n < n)
				step(&l);
			assert_int_equal(score(&l, &scores), ATLAS_OK);
			assert_memory_equal(scores.at, l.scores.at, sizeof(float) * (size_t)scores.n);
			free(scores.at);
			step(&l);
			for (int i = 0; i < n_cancelled; i++)
				assert_int_equal(atlas_cancel(l.r.session, i), ATLAS_OK);
			assert_int_equal(start(&l, 0, &slot), ATLAS_OK);
			while (atlas_active(l.r.session))
				step(&l);
			close_session(&l);
		}
	end_load(&l);
}

/* Of sequences that need whole pages, a step's last drafts reach into one more, which no other sequence has. */
static void last_drafts_have_pages(void **state)
{
	static Load l;
	int slot;
	(void)state;
	memset(&l, 0, sizeof l);
	l.drafts = true;
	rig_checkpoint(&l.r, "tests/fixtures/qwen3_5");
	const int page = l.r.plan->artifact.graph.page;
	for (int i = 0; i < REQUESTS; i++) { /* the last position is the last of a page */
		l.lengths[i] = page - 8 - i;
		l.max_new[i] = page - l.lengths[i] + 1;
	}
	begin_load(&l);
	for (uint64_t seed = first_seed; seed < first_seed + 3; seed++) {
		open_session(&l, seed);
		for (int i = 0; i < REQUESTS && i < l.r.plan->artifact.graph.slots; i++)
			assert_int_equal(start(&l, (i + (int)seed) % REQUESTS, &slot), ATLAS_OK);
		while (atlas_active(l.r.session))
			step(&l);
		close_session(&l);
	}
	end_load(&l);
}

/* As many steps ahead as there may be, each of as many tokens as it can make, on a device that does them at once: no
 * ring has more than it holds. */
static void rings_hold_what_is_ahead(void **state)
{
	const double all[PLAN_MAX_VERIFY - 1] = {1, 1, 1};
	static Load l;
	int slot;
	(void)state;
	memset(&l, 0, sizeof l);
	l.drafts = true;
	rig_checkpoint(&l.r, "tests/fixtures/qwen3_5");
	l.r.steps_ahead = 1000;
	l.lengths[0] = 9;
	l.max_new[0] = PLAN_RING_ENTRIES * 5 / 4;
	for (int is_eager = 0; is_eager < 2; is_eager++) {
		open_session(&l, 0);
		session_prescribe(l.r.session, all);
		l.r.fake.is_eager = is_eager;
		assert_int_equal(start(&l, 0, &slot), ATLAS_OK);
		while (l.request[slot] >= 0)
			step(&l);
		assert_int_equal(l.said[slot].n, l.max_new[0]);
		l.alone[0] = l.said[slot];
		close_session(&l);
	}
	end_load(&l);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		first_seed = strtoull(argv[1], NULL, 10);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_source_may_not_change),
		cmocka_unit_test(a_source_may_change_after_its_copy),
		cmocka_unit_test(nothing_in_use_is_given_back),
		cmocka_unit_test(words_arrive_in_any_order),
		cmocka_unit_test(loads_answer_as_alone),
		cmocka_unit_test(loads_answer_as_alone_where_pages_move),
		cmocka_unit_test(loads_answer_as_alone_with_drafts),
		cmocka_unit_test(a_start_after_a_cancel),
		cmocka_unit_test(a_start_after_a_text_that_grows),
		cmocka_unit_test(a_score_between_steps),
		cmocka_unit_test(last_drafts_have_pages),
		cmocka_unit_test(rings_hold_what_is_ahead),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
