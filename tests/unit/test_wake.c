/* test_wake.c - a thread wakes a session that another one steps: soon, without a lost token, and without a race, which
 * a build with SANITIZE=thread sees.
 */
#include "tests/unit/rig.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum { MOST = 40, EVENTS = 4 };

/* A device whose results come when they are let through. */
typedef struct Slow {
	DeviceOps ops;
	const DeviceOps *real;
	Rig rig;
	atomic_bool is_held; /* nothing is done meanwhile */
	atomic_int looks;    /* while it is */
	int launched;        /* decode steps */
} Slow;
static Slow slow;

static AtlasStatus look(Device *d, bool *is_busy)
{
	d->ops = slow.real;
	if (!atomic_load(&slow.is_held)) {
		const AtlasStatus s = slow.real->look(d, is_busy);
		d->ops = &slow.ops;
		return s;
	}
	d->ops = &slow.ops;
	atomic_fetch_add(&slow.looks, 1);
	*is_busy = true;
	return ATLAS_OK;
}

static AtlasStatus launch(Device *d, const StepSize *size, int n)
{
	slow.launched += size->phase == DECODE ? n : 0;
	return slow.real->launch(d, size, n);
}

static void open_slow(void)
{
	memset(&slow, 0, sizeof slow);
	rig_open(&slow.rig, "llama", 0);
	Device *d = session_device(slow.rig.session);
	slow.real = d->ops;
	slow.ops = *d->ops;
	slow.ops.look = look;
	slow.ops.launch = launch;
	d->ops = &slow.ops;
}

static void close_slow(void)
{
	session_device(slow.rig.session)->ops = slow.real;
	rig_close(&slow.rig);
}

static void start(int max_new)
{
	const AtlasSampling hot = {.struct_size = sizeof hot, .temperature = 0.7f, .top_p = 1, .repetition_penalty = 1,
		.seed = 1}; /* gives many tokens */
	int32_t prompt[9];
	int slot;
	fill_prompt(prompt, 9, 1);
	assert_int_equal(atlas_start(slow.rig.session, prompt, 9, &hot, max_new, &slot), ATLAS_OK);
}

/* All that are left of one sequence. */
static int rest(int *tokens)
{
	AtlasEvent e[EVENTS];
	int n, made = 0;
	while (atlas_active(slow.rig.session)) {
		assert_int_equal(atlas_step(slow.rig.session, e, EVENTS, &n), ATLAS_OK);
		if (n)
			tokens[made++] = e[0].token;
	}
	return made;
}

/* Wakes the session when its step has waited for a while. */
static void *wake_when_it_waits(void *ctx)
{
	(void)ctx;
	while (atomic_load(&slow.looks) < 3)
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	atlas_wake(slow.rig.session);
	return NULL;
}

static void a_step_that_waits_returns(void **state)
{
	int alone[MOST], woken[MOST], n;
	AtlasEvent e[EVENTS];
	pthread_t thread;
	(void)state;
	open_slow();
	start(MOST);
	assert_int_equal(rest(alone), MOST);
	start(MOST);
	assert_int_equal(atlas_step(slow.rig.session, e, EVENTS, &n), ATLAS_OK); /* the prompt */
	assert_int_equal(n, 1);
	woken[0] = e[0].token;
	slow.launched = 0;
	atomic_store(&slow.is_held, true);
	assert_int_equal(pthread_create(&thread, NULL, wake_when_it_waits, NULL), 0);
	assert_int_equal(atlas_step(slow.rig.session, e, EVENTS, &n), ATLAS_OK);
	assert_int_equal(n, 0); /* it would have waited for ever */
	pthread_join(thread, NULL);
	assert_int_equal(slow.launched, 8);
	atomic_store(&slow.is_held, false);
	for (int i = 1; i < MOST; i++) {
		assert_int_equal(atlas_step(slow.rig.session, e, EVENTS, &n), ATLAS_OK);
		assert_int_equal(n, 1);
		woken[i] = e[0].token;
	}
	assert_int_equal(atlas_active(slow.rig.session), 0);
	assert_memory_equal(woken, alone, sizeof alone);
	close_slow();
}

/* Woken before each step: one decode step at a time is put on the device, each when the one before was taken. */
static void no_step_is_added_ahead(void **state)
{
	int tokens[MOST], n;
	AtlasEvent e[EVENTS];
	(void)state;
	open_slow();
	start(MOST);
	for (int i = 0; i < MOST; i++) {
		atlas_wake(slow.rig.session);
		atlas_wake(slow.rig.session);
		assert_int_equal(atlas_step(slow.rig.session, e, EVENTS, &n), ATLAS_OK);
		assert_int_equal(n, 1);
		assert_int_equal(slow.launched, i);
		if (i == 20)
			break;
	}
	assert_int_equal(atlas_step(slow.rig.session, e, EVENTS, &n), ATLAS_OK); /* not woken: eight again */
	assert_int_equal(n, 1);
	assert_int_equal(slow.launched, 28);
	for (int i = 0; i < 7; i++) { /* four would be added when four were taken; woken then, they are a step later */
		if (i == 3)
			atlas_wake(slow.rig.session);
		assert_int_equal(atlas_step(slow.rig.session, e, EVENTS, &n), ATLAS_OK);
		assert_int_equal(slow.launched, i < 4 ? 28 : 32);
	}
	rest(tokens);
	close_slow();
}

typedef struct Waker { AtlasSession *session; atomic_bool ends; long calls; } Waker;

static void *wake_always(void *ctx)
{
	Waker *w = ctx;
	while (!atomic_load(&w->ends)) {
		atlas_wake(w->session);
		w->calls++;
		if (w->calls % 16 == 0)
			nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
	}
	return NULL;
}

/* A thread that never leaves it in peace: all texts are whole and the same, on both devices. */
static void nothing_is_lost_under_a_storm(void **state)
{
	(void)state;
	for (int device = 0; device < 2; device++) {
		int answers[2][4][64], counts[2][4] = {{0}}, slot;
		AtlasFinish finish[4];
		for (int storm = 0; storm < 2; storm++) {
			Rig r;
			Waker waker = {0};
			pthread_t thread;
			rig_plan(&r, "llama", 0);
			if (device == 0)
				assert_int_equal(open_fake(&r), ATLAS_OK);
			else
				assert_int_equal(atlas_session_open(r.plan, &(AtlasSessionOptions){.struct_size =
					sizeof(AtlasSessionOptions), .device = "cpu", .n_threads = 2}, &r.session, &r.error), ATLAS_OK);
			waker.session = r.session;
			if (storm)
				assert_int_equal(pthread_create(&thread, NULL, wake_always, &waker), 0);
			for (int i = 0; i < 4; i++) {
				int32_t prompt[9];
				fill_prompt(prompt, 9, i);
				assert_int_equal(atlas_start(r.session, prompt, 9, NULL, 50 + i, &slot), ATLAS_OK);
			}
			run_all(r.session, answers[storm], counts[storm], finish);
			atomic_store(&waker.ends, true);
			if (storm)
				pthread_join(thread, NULL);
			assert_true(!storm || waker.calls > 0);
			rig_close(&r);
		}
		assert_memory_equal(counts[0], counts[1], sizeof counts[0]);
		for (int i = 0; i < 4; i++)
			assert_memory_equal(answers[0][i], answers[1][i], sizeof(int) * (size_t)counts[0][i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_that_waits_returns),
		cmocka_unit_test(no_step_is_added_ahead),
		cmocka_unit_test(nothing_is_lost_under_a_storm),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
