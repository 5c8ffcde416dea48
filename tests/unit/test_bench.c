/* test_bench.c - atlas bench on a driver that takes a quarter of a millisecond for any graph: which launches it times,
 * how it counts them, what it takes their work to be.
 */
#include "runtime/cuda.h"
#include "artifacts/op_table.h"
#include "runtime/session.h"
#include "tests/unit/bench_call.h"
#include "tests/unit/fake_gpu.h"
#include "tests/unit/made_plan.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SMALL = 1 << 20 /* bytes of the probe arena */, CONTEXT = 512 };

typedef struct Rig {
	MadePlan made;
	AtlasPlan *plan;
	FakeDriver fake;
	FakeGpu gpu;
	Driver driver;
	AtlasSession *session;
	AtlasError error;
	int n_kernels; /* of the session: those the timer looks up have larger numbers */
	int timed;     /* launches of the timer */
	size_t (*param_bytes)(void *ctx, int kernel);
	void (*execute)(void *ctx, int kernel, const void *params);
} Rig;

static size_t param_bytes(void *ctx, int kernel)
{
	const Rig *r = ctx;
	return kernel < r->n_kernels ? r->param_bytes((void *)(uintptr_t)&r->gpu, kernel) : PLAN_MAX_PARAM_BYTES;
}

/* What is timed has been done by a step already: doing nothing is doing it again. */
static void execute(void *ctx, int kernel, const void *params)
{
	Rig *r = ctx;
	if (kernel < r->n_kernels)
		r->execute(&r->gpu, kernel, params);
	else
		r->timed++;
}

static void rig_plan(Rig *r)
{
	memset(r, 0, sizeof *r);
	synthetic_model(&r->made.c, "llama");
	r->made.c.model.options.max_context = CONTEXT;
	make_plan_of_model(&r->made);
	write_made(&r->made, true);
	assert_int_equal(atlas_plan_open(r->made.path, NULL, &r->plan, &r->error), ATLAS_OK);
}

static void rig_open(Rig *r)
{
	rig_plan(r);
	TargetPlan *t = r->plan->artifact.targets;
	Phase *p = &t->phases[t->n_phases - 1];
	t->arena_bytes[ARENA_PROBE] = SMALL;
	for (int i = 0; i < p->n_bufs; i++)
		if (p->bufs[i].arena == ARENA_PROBE) {
			p->bufs[i].offset = 0;
			p->bufs[i].bytes = p->bufs[i].bytes < SMALL ? p->bufs[i].bytes : SMALL;
		}
	fake_driver_start(&r->fake, &r->driver);
	fake_gpu_start(&r->gpu, &r->fake, &r->plan->artifact);
	r->param_bytes = r->fake.param_bytes;
	r->execute = r->fake.execute;
	r->fake.ctx = r;
	r->fake.param_bytes = param_bytes;
	r->fake.execute = execute;
	r->n_kernels = t->n_kernels - p->n_launches; /* those of the probe phase are the last */
	DeviceConfig config = {.artifact = &r->plan->artifact, .weights = r->plan->weights, .driver = &r->driver};
	Device *device;
	assert_int_equal(cuda_open(&config, &device, &r->error), ATLAS_OK);
	assert_int_equal(session_open_on(r->plan, device, &r->session, &r->error), ATLAS_OK);
}

static void rig_close(Rig *r)
{
	atlas_session_close(r->session);
	assert_string_equal(r->fake.broken, "");
	assert_int_equal(r->fake.live, 0);
	assert_int_equal(r->fake.context_depth, 0);
	fake_driver_stop(&r->fake);
	atlas_plan_close(r->plan);
	free_made(&r->made);
}

static int index_of(const TargetPlan *t, int kind, int rows)
{
	int i = 0;
	while ((int)t->phases[i].kind != kind || t->phases[i].rows != rows)
		i++;
	return i;
}

/* Each launch of each bucket of decode and prefill is one of a kind that was timed; layers share kinds. */
static void every_launch_is_timed_once_a_kind(void **state)
{
	BenchSeen seen;
	int launches[3] = {0}, counted[3] = {0};
	Rig r;
	(void)state;
	rig_open(&r);
	const TargetPlan *t = r.plan->artifact.targets;
	assert_int_equal(bench_call_kernels(r.plan, r.session, &seen), 0);
	int n_phases = 0;
	for (int i = 0; i < t->n_phases; i++)
		if (t->phases[i].kind == DECODE || t->phases[i].kind == PREFILL) {
			launches[t->phases[i].kind] += t->phases[i].n_launches;
			n_phases++;
		}
	for (int i = 0; i < seen.n; i++) {
		const BenchKind *k = &seen.kinds[i];
		counted[k->phase] += k->count;
		const Launch *l = &t->phases[index_of(t, k->phase, k->rows)].launches[k->launch];
		assert_int_equal(k->count % 2, l->layer < 0 || l->layer >= 2 ? 1 : 0); /* two equal layers */
		assert_float_equal(k->us, 250, 1e-6);
		assert_float_equal(k->lost_us, k->count * (k->us - k->bound_us), 1e-6);
		assert_true(i == 0 || k->phase != k[-1].phase || k->rows != k[-1].rows || k->lost_us <= k[-1].lost_us);
	}
	assert_int_equal(seen.n_phases, n_phases);
	assert_int_equal(counted[DECODE], launches[DECODE]);
	assert_int_equal(counted[PREFILL], launches[PREFILL]);
	assert_true(r.timed > 21 * seen.n);
	assert_non_null(strstr(seen.text, "decode[1]  1 rows, 386 positions each; the step 250.0 us")); /* 512 - 128 + 2 */
	assert_non_null(strstr(seen.text, "prefill[32]  32 rows, 16 positions each"));
	assert_non_null(strstr(seen.json, "{\"phase\": \"decode\", \"bucket\": 4, \"rows\": 4, \"context\": 386"));
	assert_non_null(strstr(seen.html, "<h2>Launches of prefill[32]</h2>"));
	free(seen.text);
	free(seen.json);
	free(seen.html);
	rig_close(&r);
}

/* The walk leaves the session fit for use: what comes after gives the tokens of a session that was never timed. */
static void the_session_goes_on_unchanged(void **state)
{
	const int32_t prompt[5] = {3, 1, 4, 1, 5};
	int32_t tokens[2][12];
	(void)state;
	for (int timed = 0; timed < 2; timed++) {
		AtlasEvent events[4];
		BenchSeen seen = {.n = 0};
		int slot, n, made = 0;
		Rig r;
		rig_open(&r);
		if (timed)
			assert_int_equal(bench_call_kernels(r.plan, r.session, &seen), 0);
		assert_int_equal(atlas_active(r.session), 0);
		assert_int_equal(atlas_start(r.session, prompt, 5, NULL, 12, &slot), ATLAS_OK);
		while (atlas_active(r.session)) {
			assert_int_equal(atlas_step(r.session, events, 4, &n), ATLAS_OK);
			for (int i = 0; i < n; i++)
				tokens[timed][made++] = events[i].token;
		}
		assert_int_equal(made, 12);
		free(seen.text);
		free(seen.json);
		free(seen.html);
		rig_close(&r);
	}
	assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
}

static const char *circle(const char *page, int n)
{
	for (page = strstr(page, "<circle"); page && n; n--)
		page = strstr(page + 1, "<circle");
	return page;
}

/* The page of one row: its speed, and where there is a bound its share, up to beyond 100. */
static void the_share_has_a_plot_of_its_own(void **state)
{
	static const struct { double percent; const char *cy; } of[] = {{50, "cy=\"135.0\""}, {120, "cy=\"20.0\""}};
	(void)state;
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) { /* the plot is from 250 up to 20; a mark in each key */
		char *page = bench_call_page(of[i].percent), title[64];
		snprintf(title, sizeof title, "500.0 tok/s, 2.000 ms a step, %.1f %% of the roofline</title>", of[i].percent);
		assert_non_null(strstr(circle(page, 0), title));
		assert_memory_equal(strstr(circle(page, 2), "cy="), of[i].cy, strlen(of[i].cy));
		assert_null(circle(page, 4));
		free(page);
	}
	char *page = bench_call_page(0);
	assert_null(strstr(page, "of the roofline"));
	assert_null(circle(page, 2));
	free(page);
}

/* A GPU whose name is not that of the card whose times chose is named beside it; one without a plan, not at all. */
static void another_card_is_told(void **state)
{
	static Option options[] = {{"tuning.sm_80.card", "NVIDIA A100-SXM4-80GB"}, {"tuning.sm_90a", "none"}};
	char gpu[256];
	Rig r;
	(void)state;
	rig_open(&r);
	Artifact *a = &r.plan->artifact;
	const TargetPlan *t = cuda_would_run(&r.driver, a, 0, gpu);
	assert_ptr_equal(t, a->targets);
	assert_null(cuda_would_run(&r.driver, a, 99, gpu));
	const Artifact none = {.n_targets = 0};
	assert_null(cuda_would_run(&r.driver, &none, 0, gpu));
	char name[80];
	snprintf(name, sizeof name, "tuning.%s.card", t->target);
	a->options = options;
	a->n_options = 2;
	options[0].name = name;
	assert_string_equal(bench_call_other_card(r.plan, t->target, gpu), "NVIDIA A100-SXM4-80GB");
	options[0].value = gpu;
	assert_null(bench_call_other_card(r.plan, t->target, gpu));
	options[0].name = "tuning.sm_80.driver";
	assert_null(bench_call_other_card(r.plan, t->target, gpu));
	rig_close(&r);
}

static int launch_with(const Phase *p, const char *operand, const char *and)
{
	int i = 0;
	while (op_operand(p->launches[i].op, operand) < 0 || op_operand(p->launches[i].op, and) < 0)
		i++;
	return i;
}

static double operand_bytes(const Phase *p, const Launch *l, const char *but)
{
	double sum = 0;
	for (int i = 0; i < l->n_args; i++) {
		const OperandInfo *o = &op_table[l->op].operands[l->args[i].operand];
		if (l->args[i].buf >= 0 && o->role != OPERAND_OUT && strcmp(o->name, but) != 0)
			sum += (double)p->bufs[l->args[i].buf].bytes;
	}
	return sum;
}

/* Four heads of 64 over two kv heads: keys and values of a position are 2 * 2 * 64 bf16. */
static void attention_reads_what_was_there(void **state)
{
	double bytes, flops;
	Rig r;
	(void)state;
	rig_plan(&r);
	const TargetPlan *t = r.plan->artifact.targets;
	int at = index_of(t, DECODE, 4);
	const Phase *p = &t->phases[at];
	int i = launch_with(p, "kv", "o");
	double rest = operand_bytes(p, &p->launches[i], "kv");
	bench_call_work(r.plan, at, i, 3, 3, 300, 300, 0, &bytes, &flops);
	assert_float_equal(bytes, 300 * 512 + rest, 1e-6);
	assert_float_equal(flops, 4 * 256 * 300, 1e-6);
	bench_call_work(r.plan, at, i, 3, 3, 30, 30, 0, &bytes, &flops);
	assert_float_equal(bytes, 30 * 512 + rest, 1e-6);
	p->launches[i].flops = 4 * 256 * 4 * 50; /* a contract by which a row sees 50 positions */
	bench_call_work(r.plan, at, i, 3, 3, 3 * 49, 3 * 49, 0, &bytes, &flops);
	assert_float_equal(flops, 4 * 256 * 3 * 49, 1e-6);
	bench_call_work(r.plan, at, i, 3, 3, 300, 300, 0, &bytes, &flops);
	assert_float_equal(bytes, 150 * 512 + rest, 1e-6);
	assert_float_equal(flops, 4 * 256 * 150, 1e-6);
	atlas_plan_close(r.plan);
	free_made(&r.made);
}

/* Rows of a prompt that see at most 10 positions: what each sees is added up here, row by row. */
static void windows_bound_what_prompts_read(void **state)
{
	double bytes, flops;
	Rig r;
	(void)state;
	rig_plan(&r);
	const TargetPlan *t = r.plan->artifact.targets;
	int at = index_of(t, PREFILL, 32);
	const Phase *p = &t->phases[at];
	int i = launch_with(p, "kv", "o");
	double rest = operand_bytes(p, &p->launches[i], "kv");
	p->launches[i].flops = 4 * 256 * 32 * 10;
	for (int before = 0; before < 14; before++) {
		int all = 0, seen = 0, read = before + 8 < 10 + 8 - 1 ? before + 8 : 10 + 8 - 1;
		for (int row = before + 1; row <= before + 8; row++) {
			all += row;
			seen += row < 10 ? row : 10;
		}
		bench_call_work(r.plan, at, i, 8, 1, all, before + 8, 0, &bytes, &flops);
		assert_float_equal(flops, 4.0 * 256 * seen, 1e-6);
		assert_float_equal(bytes, read * 512 + rest, 1e-6);
	}
	atlas_plan_close(r.plan);
	free_made(&r.made);
}

/* A product reads its weights once, whatever its tiles do, and works for rows in use alone. An embedding reads rows. */
static void other_launches_read_each_operand_once(void **state)
{
	double bytes, flops;
	Rig r;
	(void)state;
	rig_plan(&r);
	const TargetPlan *t = r.plan->artifact.targets;
	int at = index_of(t, PREFILL, 32);
	const Phase *p = &t->phases[at];
	for (int i = 0; i < p->n_launches; i++) {
		const Launch *l = &p->launches[i];
		if (op_operand(l->op, "kv") >= 0)
			continue;
		bool draws = op_operand(l->op, "logits") >= 0;
		bench_call_work(r.plan, at, i, 8, 1, 36, 8, 0, &bytes, &flops);
		double once = operand_bytes(p, l, "");
		assert_float_equal(bytes, once < (double)l->read_bytes ? once : (double)l->read_bytes, 1e-6);
		assert_float_equal(flops, (double)l->flops * (draws ? 1.0 / p->outs : 0.25), 1);
	}
	int embed = launch_with(p, "table", "row_token");
	bench_call_work(r.plan, at, embed, 8, 1, 36, 8, 0, &bytes, &flops);
	assert_true(bytes <= 32 * (64 * 2 + 12));
	atlas_plan_close(r.plan);
	free_made(&r.made);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_launch_is_timed_once_a_kind),
		cmocka_unit_test(the_session_goes_on_unchanged),
		cmocka_unit_test(the_share_has_a_plot_of_its_own),
		cmocka_unit_test(attention_reads_what_was_there),
		cmocka_unit_test(windows_bound_what_prompts_read),
		cmocka_unit_test(another_card_is_told),
		cmocka_unit_test(other_launches_read_each_operand_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
