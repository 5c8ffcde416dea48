/* test_nvrtc_pool.c - what the pool does when NVRTC never ends, dies, or no process can be had.
 *
 * Jobs ask for the version, which takes little time; a function of NVRTC never returns, or kills, as the test says by
 * how many calls all children have made so far.
 */
#include "compiler/kernels/kernels.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <nvrtc.h>

enum { JOBS = 40, SOON = 2, NEVER = 250 }; /* seconds that a job may take: where one hangs, and where none does */

/* Shared with all children. Each call is of one kind: good, without end, or deadly. */
typedef struct Shared { int calls, hang_every, die_every; } Shared;
static Shared *shared;

/* In the place of NVRTC's, which it calls: once a job. */
nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *text, const char *name, int n,
	const char *const *headers, const char *const *names)
{
	typedef nvrtcResult Create(nvrtcProgram *, const char *, const char *, int, const char *const *,
		const char *const *);
	Create *create;
	const int call = __atomic_add_fetch(&shared->calls, 1, __ATOMIC_RELAXED);
	if (shared->hang_every && call % shared->hang_every == 0)
		for (;;)
			pause();
	if (shared->die_every && call % shared->die_every == 0)
		raise(SIGKILL);
	*(void **)&create = dlsym(RTLD_NEXT, "nvrtcCreateProgram");
	return create(program, text, name, n, headers, names);
}

typedef struct Seen { int n, times[JOBS]; } Seen;

static void on_done(void *ctx, int job)
{
	Seen *seen = ctx;
	seen->n++;
	seen->times[job]++;
}

typedef struct Ends { int good, late, killed, other; double seconds; } Ends;

static Ends run(int n, int processes, int hang_every, int die_every)
{
	CompileJob jobs[JOBS] = {{0}};
	Seen seen = {0};
	Ends e = {0};
	struct timespec from, to;
	*shared = (Shared){0, hang_every, die_every};
	clock_gettime(CLOCK_MONOTONIC, &from);
	nvrtc_pool_run(jobs, n, processes, hang_every ? SOON : NEVER, on_done, &seen);
	clock_gettime(CLOCK_MONOTONIC, &to);
	e.seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
	assert_int_equal(seen.n, n);
	for (int i = 0; i < n; i++) {
		assert_int_equal(seen.times[i], 1); /* each is done once, whatever became of it */
		assert_true((jobs[i].cubin.bytes != NULL) + (jobs[i].ended != NULL) == 1 && !jobs[i].log);
		e.good += jobs[i].cubin.bytes && strncmp((char *)jobs[i].cubin.bytes, "13.", 3) == 0;
		e.late += jobs[i].ended && strcmp(jobs[i].ended, "took more than 2 seconds") == 0;
		e.killed += jobs[i].ended && strncmp(jobs[i].ended, "was ended by signal 9 (Killed)", 30) == 0;
		e.other += jobs[i].ended && strcmp(jobs[i].ended,
			"cannot be started in a separate process: Too many open files") == 0;
		free(jobs[i].cubin.bytes);
		free(jobs[i].ended);
	}
	return e;
}

static void all_answer(void **state)
{
	(void)state;
	for (int processes = 0; processes < 64; processes = processes * 4 + 1)
		for (int n = 0; n <= JOBS; n += 20)
			assert_int_equal(run(n, processes, 0, 0).good, n);
}

static void what_never_ends_is_ended(void **state)
{
	(void)state;
	const Ends e = run(9, 3, 3, 0);
	assert_int_equal(e.late, 3);
	assert_int_equal(e.good, 6);
	assert_true(e.seconds >= SOON && e.seconds < 30 * SOON);
}

static void who_dies_is_replaced(void **state)
{
	(void)state;
	const Ends e = run(JOBS, 2, 0, 4), all = run(JOBS, 4, 0, 1);
	assert_int_equal(e.killed, JOBS / 4);
	assert_int_equal(e.good, JOBS - JOBS / 4);
	assert_int_equal(all.killed, JOBS);
}

static void no_process_can_be_had(void **state)
{
	(void)state;
	struct rlimit before, none;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 3; /* those that are open */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	const Ends e = run(5, 2, 0, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(e.other, 5);
	assert_int_equal(run(5, 2, 0, 0).good, 5);
}

int main(void)
{
	int major, minor;
	if (nvrtcVersion(&major, &minor) != NVRTC_SUCCESS) /* linked here, so that the function above takes its place */
		return 1;
	const struct CMUnitTest tests[] = {cmocka_unit_test(all_answer), cmocka_unit_test(what_never_ends_is_ended),
		cmocka_unit_test(who_dies_is_replaced), cmocka_unit_test(no_process_can_be_had)};
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return shared == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
