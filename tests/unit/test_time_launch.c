/* test_time_launch.c - the clock of single launches, on a driver that takes a quarter of a millisecond for all it does.
 */
#include "runtime/cli/bench/time_launch.h"
#include "artifacts/op_table.h"
#include "runtime/session.h"
#include "tests/unit/fake_gpu.h"
#include "tests/unit/made_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Bytes of the probe arena here: the fake GPU's memory is the host's. TINY is for opening it hundreds of times. */
enum { SMALL = 1 << 20, TINY = 1 << 12 };

typedef struct Rig {
	MadePlan made;
	AtlasPlan *plan;
	FakeDriver fake;
	FakeGpu gpu;
	Driver driver;
	Device *device;
	AtlasError error;
} Rig;

static const Phase *probe_of(const Rig *r)
{
	const TargetPlan *t = r->plan->artifact.targets;
	return &t->phases[t->n_phases - 1];
}

static size_t whole_image(void *ctx, int kernel)
{
	(void)ctx, (void)kernel;
	return PLAN_MAX_PARAM_BYTES;
}

static void ignore(void *ctx, int kernel, const void *params) { (void)ctx, (void)kernel, (void)params; }

static void open_device(Rig *r)
{
	DeviceConfig config = {.artifact = &r->plan->artifact, .weights = r->plan->weights, .driver = &r->driver};
	fake_driver_start(&r->fake, &r->driver);
	fake_gpu_start(&r->gpu, &r->fake, &r->plan->artifact);
	assert_int_equal(cuda_open(&config, &r->device, &r->error), ATLAS_OK);
	r->fake.param_bytes = whole_image; /* the timer looks kernels up again */
	r->fake.execute = ignore;
	r->fake.calls = 0;
}

static void rig_open(Rig *r, int probe_bytes)
{
	memset(r, 0, sizeof *r);
	make_plan(&r->made, "llama");
	write_made(&r->made, true);
	assert_int_equal(atlas_plan_open(r->made.path, NULL, &r->plan, &r->error), ATLAS_OK);
	TargetPlan *t = r->plan->artifact.targets;
	Phase *p = &t->phases[t->n_phases - 1];
	t->arena_bytes[ARENA_PROBE] = probe_bytes;
	for (int i = 0; i < p->n_bufs; i++)
		if (p->bufs[i].arena == ARENA_PROBE) {
			p->bufs[i].offset = 0;
			p->bufs[i].bytes = p->bufs[i].bytes < probe_bytes ? p->bufs[i].bytes : probe_bytes;
		}
	open_device(r);
}

static void close_device(Rig *r)
{
	r->device->ops->close(r->device);
	assert_string_equal(r->fake.broken, "");
	assert_int_equal(r->fake.live, 0);
	bool has_context = !r->fake.failed_call || strcmp(r->fake.failed_call, "CtxPushCurrent") != 0;
	assert_true(!has_context || r->fake.n_abandoned == 0); /* without it nothing can be given back but the context */
	assert_int_equal(r->fake.context_depth, 0);
	fake_driver_stop(&r->fake);
}

static void rig_close(Rig *r)
{
	close_device(r);
	atlas_plan_close(r->plan);
	free_made(&r->made);
}

static int count(const char *log, const char *call)
{
	int n = 0;
	for (const char *at = log; (at = strstr(at, call)); at++)
		n++;
	return n;
}

/* A graph of one launch, and what stands between the events: the clock sees nothing else. */
static void time_is_that_of_the_graph(void **state)
{
	LaunchTimer *t;
	TimedLaunch one[3];
	LaunchTime time;
	char *log;
	size_t n;
	Rig r;
	(void)state;
	rig_open(&r, SMALL);
	assert_int_equal(timer_open(r.device, &t, &r.error), ATLAS_OK);
	const Phase *p = &r.plan->artifact.targets[0].phases[0];
	assert_int_equal(timer_launch(t, p, &p->launches[0], &one[0]), ATLAS_OK);
	for (int is_cold = 0; is_cold < 2; is_cold++) {
		r.fake.log = open_memstream(&log, &n);
		assert_int_equal(timer_measure(t, one, 1, 5, is_cold, &time), ATLAS_OK);
		fclose(r.fake.log);
		r.fake.log = NULL;
		assert_float_equal(time.us, 250, 1e-6);
		assert_float_equal(time.low_us, 250, 1e-6);
		assert_float_equal(time.high_us, 250, 1e-6);
		assert_int_equal(time.reps, 5);
		assert_int_equal(count(log, "LaunchKernel"), 7); /* the read before each, two of them to warm up */
		assert_int_equal(count(log, "GraphLaunch"), is_cold ? 7 : 14);
		assert_int_equal(count(log, "GraphInstantiate"), 1);
		assert_int_equal(count(log, "MemAlloc"), 0);
		free(log);
	}
	one[1] = one[2] = one[0];
	one[2].overlaps = 1;
	r.fake.log = open_memstream(&log, &n);
	assert_int_equal(timer_measure(t, one, 3, 1, true, &time), ATLAS_OK);
	fclose(r.fake.log);
	r.fake.log = NULL;
	assert_int_equal(count(log, "after nothing"), 2); /* the first, and the one with a programmatic edge */
	assert_int_equal(count(log, "after 0"), 1);
	assert_int_equal(count(log, "GraphAddDependencies 1"), 1);
	free(log);
	timer_close(t);
	rig_close(&r);
}

static void launches_are_on_the_session_s_buffers(void **state)
{
	LaunchTimer *t;
	TimedLaunch one;
	int32_t step[4];
	CuPtr at;
	Rig r;
	(void)state;
	rig_open(&r, SMALL);
	assert_int_equal(timer_open(r.device, &t, &r.error), ATLAS_OK);
	const TargetPlan *plan = r.plan->artifact.targets;
	const CudaView *v = timer_view(t);
	const Phase *p = &plan->phases[0];
	for (int i = 0; i < p->n_launches; i++) {
		const Launch *l = &p->launches[i];
		assert_int_equal(timer_launch(t, p, l, &one), ATLAS_OK);
		assert_memory_equal(one.grid, l->grid, sizeof one.grid);
		assert_memory_equal(one.block, plan->kernels[l->kernel].block, sizeof one.block);
		for (int a = 0; a < l->n_args; a++) {
			const Buf *b = l->args[a].buf < 0 ? NULL : &p->bufs[l->args[a].buf];
			memcpy(&at, one.args.bytes + l->args[a].field_offset, sizeof at);
			assert_true(at == (b ? v->arena[b->arena] + (CuPtr)b->offset : 0));
		}
	}
	const Launch *product = &probe_of(&r)->launches[0]; /* all rows in use, whatever the session's step says */
	assert_int_equal(timer_launch(t, probe_of(&r), product, &one), ATLAS_OK);
	for (int a = 0; a < product->n_args; a++)
		if (strcmp(op_table[product->op].operands[product->args[a].operand].name, "step") == 0) {
			memcpy(&at, one.args.bytes + product->args[a].field_offset, sizeof at);
			memcpy(step, (const void *)(uintptr_t)at, sizeof step);
			assert_int_equal(step[0], 8192);
		}
	timer_close(t);
	rig_close(&r);
}

static void bounds_follow_from_the_plan(void **state)
{
	LaunchTimer *t;
	TimerBounds b;
	Rig r;
	(void)state;
	rig_open(&r, SMALL);
	assert_int_equal(timer_open(r.device, &t, &r.error), ATLAS_OK);
	assert_int_equal(timer_bounds(t, &b), ATLAS_OK);
	assert_float_equal(b.read_gbps, 4 * 1073741824.0 / 250e-6 * 1e-9, 1e-3); /* four reads in one graph */
	assert_float_equal(b.gemm_tflops, 4 * 2 * 8192.0 * 8192 * 8192 / 250e-6 * 1e-12, 1e-3);
	assert_float_equal(b.launch_us, 250, 1e-6);
	timer_close(t);
	rig_close(&r);
}

static void random_numbers_are_never_zero(void **state)
{
	LaunchTimer *t;
	TimedLaunch one;
	uint16_t *at;
	Rig r;
	(void)state;
	rig_open(&r, SMALL);
	assert_int_equal(timer_open(r.device, &t, &r.error), ATLAS_OK);
	const Launch *l = &probe_of(&r)->launches[1];
	assert_int_equal(timer_launch(t, probe_of(&r), l, &one), ATLAS_OK);
	memcpy(&at, one.args.bytes + l->args[0].field_offset, sizeof at);
	double sum = 0, squares = 0;
	int zeros = 0;
	for (int i = 0; i < SMALL / 2; i++) {
		uint32_t bits = (uint32_t)at[i] << 16;
		float v;
		memcpy(&v, &bits, sizeof v);
		zeros += v == 0;
		sum += (double)v;
		squares += (double)v * (double)v;
	}
	assert_true(zeros < 16);
	assert_float_equal(sum / (SMALL / 2), 0, 1e-3);
	assert_float_equal(squares / (SMALL / 2), 1 / 64.0, 1e-3);
	timer_close(t);
	rig_close(&r);
}

static void refusals_say_why(void **state)
{
	LaunchTimer *t;
	Device *cpu;
	Rig r;
	(void)state;
	rig_open(&r, SMALL);
	DeviceConfig config = {.artifact = &r.plan->artifact, .weights = r.plan->weights, .n_threads = 1};
	assert_int_equal(cpu_open(&config, &cpu, &r.error), ATLAS_OK);
	assert_int_equal(timer_open(cpu, &t, &r.error), ATLAS_UNSUPPORTED);
	assert_null(t);
	assert_string_equal(r.error.text, "device cpu has no launches to time");
	cpu->ops->close(cpu);
	TargetPlan *plan = r.plan->artifact.targets;
	plan->n_phases--;
	assert_int_equal(timer_open(r.device, &t, &r.error), ATLAS_UNSUPPORTED);
	assert_string_equal(r.error.text, "the plan has no phase to measure the GPU with: compile it again");
	plan->n_phases++;
	rig_close(&r);
}

/* Call 1, 2, 3 ... fails: a status with a sentence, and nothing left behind. */
static void every_call_may_fail(void **state)
{
	static const CuResult kinds[] = {CU_OUT_OF_MEMORY, 700};
	static const AtlasStatus statuses[] = {ATLAS_DEVICE_MEMORY, ATLAS_DEVICE_FAULT};
	int n_failed = 0;
	Rig r;
	(void)state;
	rig_open(&r, TINY);
	for (int kind = 0; kind < 2; kind++)
		for (int at = 1;; at++) {
			LaunchTimer *t;
			TimerBounds b;
			close_device(&r);
			open_device(&r);
			r.fake.fail_at = at;
			r.fake.fail_with = kinds[kind];
			AtlasStatus s = timer_open(r.device, &t, &r.error);
			if (s != ATLAS_OK) {
				assert_null(t);
			} else if ((s = timer_bounds(t, &b)) != ATLAS_OK) {
				r.error = *timer_error(t);
			}
			timer_close(t);
			r.fake.fail_at = 0;
			if (s == ATLAS_OK && r.fake.calls < at)
				break;
			assert_true(s == ATLAS_OK || s == statuses[kind]); /* giving back cannot fail */
			assert_true(s == ATLAS_OK || r.error.text[0]);
			n_failed += s != ATLAS_OK;
		}
	assert_true(n_failed > 100);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(time_is_that_of_the_graph),
		cmocka_unit_test(launches_are_on_the_session_s_buffers),
		cmocka_unit_test(bounds_follow_from_the_plan),
		cmocka_unit_test(random_numbers_are_never_zero),
		cmocka_unit_test(refusals_say_why),
		cmocka_unit_test(every_call_may_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
