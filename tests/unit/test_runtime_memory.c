/* test_runtime_memory.c - the host's memory: every allocation may fail, and a step makes none.
 *
 * The program brings its own malloc over the C library's, which counts and fails on demand. A sanitizer's malloc
 * cannot be replaced: there, a hook of it counts, and the test of failures says that it skips.
 */
#include "runtime/session.h"
#include "tests/unit/fake_gpu.h"
#include "tests/unit/made_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#define OWN_MALLOC 0
#define __libc_calloc calloc
#define __libc_free free
static struct { long made, live, fail_at; volatile bool armed; } heap;
extern int __sanitizer_install_malloc_and_free_hooks(void (*made)(const volatile void *, size_t),
	void (*freed)(const volatile void *));

static void count_malloc(const volatile void *at, size_t n)
{
	(void)at, (void)n;
	heap.made += heap.armed;
}
static void ignore_free(const volatile void *at) { (void)at; }
#else
#define OWN_MALLOC 1
static struct { long made, live, fail_at; volatile bool armed; } heap; /* while armed */

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void __libc_free(void *p);

static bool may(void)
{
	if (!heap.armed)
		return true;
	if (++heap.made == heap.fail_at)
		return false;
	heap.live++;
	return true;
}

void *malloc(size_t n) { return may() ? __libc_malloc(n) : NULL; }
void *calloc(size_t n, size_t size) { return may() ? __libc_calloc(n, size) : NULL; }

void *aligned_alloc(size_t align, size_t n) { return may() ? __libc_memalign(align, n) : NULL; }

void *realloc(void *p, size_t n)
{
	if (!may())
		return NULL;
	heap.live -= heap.armed && p;
	return __libc_realloc(p, n);
}

void free(void *p)
{
	heap.live -= heap.armed && p;
	__libc_free(p);
}
#endif

static int no_logits(void *ctx, int pos, const float *logits)
{
	(void)ctx, (void)pos, (void)logits;
	return 0;
}

static int no_layer(void *ctx, int layer, int pos, int rows, int cols, const float *hidden)
{
	(void)ctx, (void)layer, (void)pos, (void)rows, (void)cols, (void)hidden;
	return 0;
}

static AtlasStatus use(AtlasSession *s)
{
	int32_t tokens[5] = {3, 4, 5, 6, 7};
	AtlasEvent events[4];
	int slot, n;
	AtlasStatus status = atlas_start(s, tokens, 5, NULL, 3, &slot);
	for (int i = 0; i < 3 && status == ATLAS_OK; i++)
		status = atlas_step(s, events, 4, &n);
	if (status == ATLAS_OK)
		status = atlas_score(s, tokens, 5, no_logits, NULL);
	return status == ATLAS_OK ? atlas_trace(s, tokens, 5, no_layer, NULL) : status;
}

/* The whole life with one allocation missing: on the reference device when driver is NULL. */
static AtlasStatus live(const char *path, const Driver *driver)
{
	AtlasError error = {0};
	AtlasPlan *plan;
	AtlasSession *session = NULL;
	AtlasStatus s = atlas_plan_open(path, NULL, &plan, &error);
	if (s == ATLAS_OK) {
		AtlasSessionOptions options = {.struct_size = sizeof options, .device = "cpu", .n_threads = 1};
		DeviceConfig config = {.artifact = &plan->artifact, .weights = plan->weights, .driver = driver};
		Device *device;
		s = !driver ? atlas_session_open(plan, &options, &session, &error) : cuda_open(&config, &device, &error);
		if (s == ATLAS_OK && driver)
			s = session_open_on(plan, device, &session, &error);
	}
	if (s == ATLAS_OK)
		s = use(session);
	atlas_session_close(session);
	atlas_plan_close(plan);
	return s;
}

/* The device's own memory: not counted, only the runtime's is. */
static void *take_quietly(size_t n, size_t size)
{
	bool armed = heap.armed;
	heap.armed = false;
	void *p = __libc_calloc(n, size);
	heap.armed = armed;
	return p;
}

static void give_quietly(void *p)
{
	bool armed = heap.armed;
	heap.armed = false;
	__libc_free(p);
	heap.armed = armed;
}

static void every_allocation_may_fail(void **state)
{
	MadePlan m;
	(void)state;
	if (!OWN_MALLOC)
		skip();
	make_plan(&m, "llama");
	write_made(&m, true);
	for (int cpu = 0; cpu < 2; cpu++)
		for (long at = 1, is_over = false, n_refused = 0; !is_over; at++) {
			FakeDriver fake;
			Driver driver;
			FakeGpu gpu;
			fake_driver_start(&fake, &driver);
			fake_gpu_start(&gpu, &fake, &m.artifact);
			gpu.is_lazy = true;
			fake.take = take_quietly;
			fake.give = give_quietly;
			heap.made = heap.live = 0;
			heap.fail_at = at;
			heap.armed = true;
			AtlasStatus s = live(m.path, cpu ? NULL : &driver);
			heap.armed = false;
			is_over = heap.made < at; /* fewer allocations than that: this time all succeeded */
			n_refused += s == ATLAS_NO_MEMORY; /* the C library's qsort does without */
			assert_true(s == ATLAS_OK || (s == ATLAS_NO_MEMORY && !is_over));
			assert_true(!is_over || n_refused > 20);
			assert_int_equal(heap.live, 0);
			assert_int_equal(fake.live, 0);
			fake_driver_stop(&fake);
		}
	free_made(&m);
}

static void steps_allocate_nothing(void **state)
{
	AtlasError error = {0};
	AtlasPlan *plan;
	AtlasSession *session;
	AtlasEvent events[4];
	Device *device;
	FakeDriver fake;
	Driver driver;
	MadePlan m;
	int32_t tokens[40];
	int slot, n;
	(void)state;
	make_plan(&m, "llama");
	write_made(&m, true);
	for (int i = 0; i < 40; i++)
		tokens[i] = 3 + i % 30;
	for (int cpu = 0; cpu < 2; cpu++) {
		FakeGpu gpu;
		fake_driver_start(&fake, &driver);
		fake_gpu_start(&gpu, &fake, &m.artifact);
		fake.take = take_quietly;
		fake.give = give_quietly;
		assert_int_equal(atlas_plan_open(m.path, NULL, &plan, &error), ATLAS_OK);
		DeviceConfig config = {.artifact = &plan->artifact, .weights = plan->weights, .driver = &driver,
			.n_threads = 1};
		assert_int_equal((cpu ? cpu_open : cuda_open)(&config, &device, &error), ATLAS_OK);
		assert_int_equal(session_open_on(plan, device, &session, &error), ATLAS_OK);
		assert_int_equal(atlas_start(session, tokens, 40, NULL, 10, &slot), ATLAS_OK);
		heap.made = heap.fail_at = 0;
		heap.armed = true;
		for (int i = 0; i < 8; i++)
			assert_int_equal(atlas_step(session, events, 4, &n), ATLAS_OK);
		heap.armed = false;
		assert_int_equal(heap.made, 0);
		atlas_session_close(session);
		atlas_plan_close(plan);
		fake_driver_stop(&fake);
	}
	free_made(&m);
}

/* No memory of the host for pages that would be set aside: the step says so, nothing is lost, a later one tries
 * again. */
static void a_step_without_memory_is_tried_again(void **state)
{
	AtlasError error = {0};
	AtlasPlan *plan;
	AtlasSession *session;
	AtlasSessionInfo info = {.struct_size = sizeof info};
	MadePlan m;
	int32_t tokens[60];
	int slot, made[2] = {0};
	(void)state;
	if (!OWN_MALLOC)
		skip();
	make_plan_of(&m, "llama", 128, 39);
	write_made(&m, true);
	for (int i = 0; i < 60; i++)
		tokens[i] = 3 + i % 30;
	assert_int_equal(atlas_plan_open(m.path, NULL, &plan, &error), ATLAS_OK);
	const AtlasSessionOptions options = {.struct_size = sizeof options, .device = "cpu", .n_threads = 1};
	assert_int_equal(atlas_session_open(plan, &options, &session, &error), ATLAS_OK);
	session_grow_by(session, 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(atlas_request_start(session, &(AtlasRequest){.struct_size = sizeof(AtlasRequest),
			.tokens = tokens, .n_tokens = 60, .max_new = 9, .pages_as_needed = 1}, &slot), ATLAS_OK);
	int n_refused = 0;
	while (atlas_active(session)) {
		AtlasEvent events[4];
		int n;
		heap.made = 0;
		heap.fail_at = n_refused < 3; /* the first allocation of a step, three times */
		heap.armed = true;
		const AtlasStatus s = atlas_step(session, events, 4, &n);
		heap.armed = false;
		for (int i = 0; i < n; i++)
			made[events[i].slot]++;
		if (s == ATLAS_OK)
			continue;
		assert_int_equal(s, ATLAS_NO_MEMORY);
		assert_non_null(strstr(atlas_session_error(session), "no memory of the host for 4 pages of "));
		assert_int_equal(n, 0);
		n_refused++;
	}
	atlas_session_info(session, &info);
	assert_int_equal(n_refused, 3);
	assert_true(made[0] == 9 && made[1] == 9 && info.set_aside == 1 && info.free_pages == info.pages);
	atlas_session_close(session);
	atlas_plan_close(plan);
	free_made(&m);
}

int main(void)
{
#if !OWN_MALLOC
	if (__sanitizer_install_malloc_and_free_hooks(count_malloc, ignore_free) == 0)
		return 1;
#endif
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_allocation_may_fail),
		cmocka_unit_test(steps_allocate_nothing),
		cmocka_unit_test(a_step_without_memory_is_tried_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
