/* test_tune.c - atlas tune on a driver that takes a quarter of a millisecond for any graph: what is launched, on what,
 * and the file that comes of it.
 */
#include "artifacts/tuning.h"
#include "artifacts/op_table.h"
#include "runtime/cli/tune/tune.h"
#include "runtime/plan_handle.h"
#include "tests/unit/fake_gpu.h"
#include "tests/unit/made_plan.h"
#include "tests/unit/synthetic.h"
#include "tests/unit/tune_call.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { SMALL = 1 << 20, MAX_TRIALS = 256, REPS = 3, RUNS = 2 + REPS }; /* two runs warm up */

typedef struct Rig {
	MadePlan made;
	AtlasPlan *plan;
	FakeDriver fake;
	Driver driver;
	AtlasError error;
	const char *only;
	int first_trial;           /* number of the first candidate's kernel */
	int n_launches[MAX_TRIALS]; /* by candidate */
	CuPtr last[MAX_TRIALS];    /* address of its first weight or state at its last launch */
	int page[MAX_TRIALS], n_turns[MAX_TRIALS]; /* 1 + the first page then, and how often it was another one */
	char path[64];             /* of the file of times */
} Rig;

/* The kernel of a number: those of the steps come first, then the timer's long read, then candidates as they are
 * timed: decision by decision, in two rounds. */
static int trial_of(const Rig *r, int kernel)
{
	const TargetPlan *set = &r->plan->artifact.candidates[0];
	int seen = kernel - r->first_trial;
	for (int slot = 0; slot < r->plan->artifact.n_ledger[0]; slot++)
		for (int i = 0; i < 2 * set->n_kernels; i++) {
			const Launch *l = &set->phases[i % set->n_kernels].launches[0];
			if (l->slot == slot && strcmp(op_table[l->op].name, r->only) == 0 && seen-- == 0)
				return i % set->n_kernels;
		}
	return -1;
}

static size_t param_bytes(void *ctx, int kernel)
{
	const Rig *r = ctx;
	return kernel < r->first_trial - 1 ? (size_t)r->plan->artifact.targets[0].kernels[kernel].param_bytes
		: PLAN_MAX_PARAM_BYTES;
}

static void check_rows(const Rig *r, const Phase *p, const char *name, const int32_t *v, int64_t n)
{
	const Graph *g = &r->plan->artifact.graph;
	if (strcmp(name, "step") == 0) {
		assert_int_equal(v[0], p->kind == DECODE && p->rows > g->slots ? g->slots : p->rows);
		assert_in_range(v[1], p->kind == ACQUIRE ? 0 : 1, p->kind == ACQUIRE ? 0 : p->outs);
		assert_int_equal(v[2], p->kind == PREFILL); /* 32 rows are one prompt of 128 */
	}
	for (int64_t i = 0; i < n; i++) {
		if (strcmp(name, "row_slot") == 0)
			assert_int_equal(v[i], p->kind == DECODE ? i : 0);
		if (strcmp(name, "row_pos") == 0)
			assert_int_equal(v[i], p->kind == DECODE ? g->max_context - 1 : i);
		if (strcmp(name, "page_table") == 0) {
			assert_in_range(v[i], 0, g->pages - 1);
			for (int64_t k = 0; k < i; k++)
				assert_int_not_equal(v[k], v[i]); /* pages for all slots: none is shared */
		}
		if (strcmp(name, "row_token") == 0)
			assert_in_range(v[i], 0, g->vocab - 1);
		if (strcmp(name, "out_row") == 0)
			assert_int_equal(v[i], p->kind == DECODE ? i : i == 0 ? p->rows - 1 : -1);
	}
}

static void execute(void *ctx, int kernel, const void *params)
{
	Rig *r = ctx;
	int trial = trial_of(r, kernel);
	if (kernel < r->first_trial)
		return;
	assert_in_range(trial, 0, MAX_TRIALS - 1);
	const Phase *p = &r->plan->artifact.candidates[0].phases[trial];
	const Launch *l = &p->launches[0];
	CuPtr cold = 0;
	for (int i = 0; i < l->n_args; i++) {
		CuPtr at;
		memcpy(&at, (const char *)params + l->args[i].field_offset, sizeof at);
		assert_int_equal(l->args[i].buf < 0, at == 0);
		if (!at)
			continue;
		const Buf *b = &p->bufs[l->args[i].buf];
		const OperandInfo *o = &op_table[l->op].operands[l->args[i].operand];
		assert_true(fake_is_allocated((const void *)(uintptr_t)at, (size_t)b->bytes));
		if (strcmp(o->name, "page_table") == 0) {
			int page = 1 + *(const int32_t *)(uintptr_t)at;
			r->n_turns[trial] += page != r->page[trial];
			r->page[trial] = page;
		}
		if (o->role != OPERAND_OUT && b->dtype == DT_i32)
			check_rows(r, p, o->name, (const int32_t *)(uintptr_t)at, b->bytes / 4);
		if (b->arena == ARENA_WEIGHTS && b->dtype == DT_bf16) {
			const uint16_t *w = (const uint16_t *)(uintptr_t)at;
			for (int64_t k = 0; k < b->bytes / 2; k++)
				assert_in_range(w[k] & 0x7fff, 0x3c00, 0x3fff); /* 2^-7 to 2, never zero */
		}
		if ((b->arena == ARENA_WEIGHTS || b->arena == ARENA_STATE) && b->dtype == DT_bf16 && !cold)
			cold = at;
	}
	for (int i = 0; i < l->n_maps; i++) { /* the fake driver's maps begin with the address */
		CuPtr of, at = 0;
		memcpy(&of, (const char *)params + l->maps[i].field_offset, sizeof of);
		for (int k = 0; k < l->n_args; k++)
			if (l->args[k].buf == l->maps[i].buf)
				memcpy(&at, (const char *)params + l->args[k].field_offset, sizeof at);
		assert_true(of == at);
	}
	if (cold)
		assert_true(cold != r->last[trial]);
	r->last[trial] = cold;
	r->n_launches[trial]++;
}

static void rig_open(Rig *r)
{
	memset(r, 0, sizeof *r);
	synthetic_model(&r->made.c, "llama");
	r->made.c.cmd.candidates = 2;
	make_plan_of_model(&r->made);
	write_made(&r->made, true);
	assert_int_equal(atlas_plan_open(r->made.path, NULL, &r->plan, &r->error), ATLAS_OK);
	TargetPlan *t = r->plan->artifact.targets; /* the fake GPU's memory is the host's: a small probe arena */
	Phase *p = &t->phases[t->n_phases - 1];
	t->arena_bytes[ARENA_PROBE] = SMALL;
	for (int i = 0; i < p->n_bufs; i++)
		if (p->bufs[i].arena == ARENA_PROBE) {
			p->bufs[i].offset = 0;
			p->bufs[i].bytes = p->bufs[i].bytes < SMALL ? p->bufs[i].bytes : SMALL;
		}
	for (int i = 0; i + 1 < t->n_phases; i++)
		for (int k = 0; k < t->phases[i].n_launches; k++)
			if (t->phases[i].launches[k].kernel + 2 > r->first_trial)
				r->first_trial = t->phases[i].launches[k].kernel + 2;
	snprintf(r->path, sizeof r->path, "/tmp/test_tune.XXXXXX");
	close(mkstemp(r->path));
	unlink(r->path);
}

static void rig_close(Rig *r)
{
	unlink(r->path);
	atlas_plan_close(r->plan);
	free_made(&r->made);
}

static int tune(Rig *r, const char *only, int fail_at)
{
	fake_driver_start(&r->fake, &r->driver);
	r->only = only;
	r->fake.ctx = r;
	r->fake.param_bytes = param_bytes;
	r->fake.execute = execute;
	r->fake.fail_at = fail_at;
	r->fake.fail_with = 700;
	memset(r->n_launches, 0, sizeof r->n_launches);
	memset(r->last, 0, sizeof r->last);
	memset(r->page, 0, sizeof r->page);
	memset(r->n_turns, 0, sizeof r->n_turns);
	int code = tune_call(&r->plan->artifact, &r->driver, r->path, only, REPS);
	assert_string_equal(r->fake.broken, "");
	assert_int_equal(r->fake.live, 0);
	fake_driver_stop(&r->fake);
	return code;
}

static char *slurp(const char *path, size_t *n)
{
	static const char empty[1];
	char *text;
	FILE *in = fopen(path, "r"), *out = open_memstream(&text, n);
	for (int c; in && (c = fgetc(in)) != EOF;)
		fputc(c, out);
	if (in)
		fclose(in);
	fwrite(empty, 0, 0, out);
	fclose(out);
	return text;
}

static void read_times(const Rig *r, Tuning *t)
{
	TuningFault fault;
	size_t n;
	char *text = slurp(r->path, &n);
	if (!tuning_read(text, n, t, &fault))
		fail_msg("%d:%d: %s", fault.line, fault.col, fault.text);
	free(text);
}

/* Each candidate of the op in chains, on copies of its weights in turn; its time in the file, and nobody else's. */
static void one_op(void **state)
{
	Rig r;
	Tuning t;
	(void)state;
	rig_open(&r);
	assert_int_equal(tune(&r, "norm_linear", 0), 0);
	const TargetPlan *set = &r.plan->artifact.candidates[0];
	int wanted = 0;
	read_times(&r, &t);
	assert_string_equal(t.target, "sm_90a");
	assert_non_null(strstr(t.driver, "CUDA 13."));
	for (int i = 0; i < set->n_kernels; i++) {
		bool is_wanted = set->phases[i].launches[0].op == OP_norm_linear;
		/* a first look at a chain of 4 took 250 us, so 24 of them take 1.5 ms; two rounds */
		assert_int_equal(r.n_launches[i], is_wanted ? 3 * 4 + 2 * RUNS * 24 : 0);
		wanted += is_wanted;
		int found = 0;
		for (int k = 0; k < t.n_times && is_wanted; k++) {
			size_t n = strlen(t.times[k].constants) + strlen(t.times[k].tunables) + (*t.times[k].tunables != 0);
			found += strcmp(t.times[k].tmpl, set->kernels[i].name) == 0 && n == strlen(set->kernels[i].defines) &&
				memcmp(t.times[k].key, set->kernels[i].source_sha256, TUNING_KEY_BYTES) == 0;
		}
		assert_true(!is_wanted || found);
	}
	assert_int_equal(t.n_times, wanted);
	for (int k = 0; k < t.n_times; k++) {
		assert_float_equal(t.times[k].us, 10.4, 0.001); /* 250 us by 24, as a file says it */
		assert_float_equal(t.times[k].spread, 0, 0);
	}
	tuning_free(&t);
	rig_close(&r);
}

/* Tensor maps are of the copy that the launch reads, and no launch finds the pages of the one before. */
static void maps_follow_the_copies(void **state)
{
	Rig r;
	int n_maps = 0;
	(void)state;
	rig_open(&r);
	const TargetPlan *set = &r.plan->artifact.candidates[0];
	for (int i = 0; i < set->n_kernels; i++)
		n_maps += set->phases[i].launches[0].op == OP_attention ? set->phases[i].launches[0].n_maps : 0;
	assert_true(n_maps > 0);
	assert_int_equal(tune(&r, "attention", 0), 0);
	assert_int_equal(tune(&r, "attention_step", 0), 0);
	for (int i = 0; i < set->n_kernels; i++) /* but for a run's first: the cache was emptied before it */
		assert_true(r.n_turns[i] >= r.n_launches[i] - 2 * (RUNS + 3));
	rig_close(&r);
}

/* Who looks back does so over few and over many tokens in turn, and never further than the context holds. */
static void histories_take_turns(void **state)
{
	const struct { int context, few, many; } cases[] = {{8192, TUNE_FEW, TUNE_MANY}, {2048, TUNE_FEW, 2048},
		{64, 64, 64}};
	(void)state;
	for (int i = 0; i < 3; i++) {
		const Graph g = {.slots = 4, .max_context = cases[i].context, .page = 16, .pages = 2048, .vocab = 100};
		const Phase p = {.kind = DECODE, .rows = 4, .outs = 4};
		const Buf b = {.name = "slot_len", .dtype = DT_i32, .bytes = 16};
		for (int turn = 0; turn < 4; turn++) {
			int32_t lengths[4];
			tune_rule(&g, &p, &b, turn, lengths);
			for (int s = 0; s < 4; s++)
				assert_int_equal(lengths[s], (turn % 2 ? cases[i].many : cases[i].few) - 1);
		}
	}
}

/* What is measured again is replaced, its key with it; the rest stays. */
static void files_are_brought_up_to_date(void **state)
{
	Rig r;
	Tuning t;
	size_t n, m;
	(void)state;
	rig_open(&r);
	assert_int_equal(tune(&r, "norm_linear", 0), 0);
	char *first = slurp(r.path, &n);
	assert_int_equal(tune(&r, "norm_linear", 0), 0);
	char *again = slurp(r.path, &m);
	assert_int_equal(n, m);
	assert_memory_equal(first, again, n);
	free(again);
	read_times(&r, &t);
	int n_before = t.n_times;
	tuning_free(&t);
	assert_int_equal(tune(&r, "acquire", 0), 0);
	read_times(&r, &t);
	assert_int_equal(t.n_times, n_before + 1);
	tuning_free(&t);
	TargetPlan *set = &r.plan->artifact.candidates[0]; /* one template changes */
	const char *changed = NULL;
	for (int i = 0; i < set->n_kernels; i++)
		if (set->phases[i].launches[0].op == OP_acquire) {
			changed = set->kernels[i].name;
			set->kernels[i].source_sha256[0] ^= 1;
		}
	assert_int_equal(tune(&r, "acquire", 0), 0);
	char *other = slurp(r.path, &m);
	read_times(&r, &t);
	assert_int_equal(t.n_times, n_before + 1);
	for (int i = 0; i < t.n_times; i++)
		for (int k = 0; k < set->n_kernels; k++)
			if (strcmp(set->kernels[k].name, t.times[i].tmpl) == 0 && strcmp(changed, t.times[i].tmpl) == 0)
				assert_memory_equal(t.times[i].key, set->kernels[k].source_sha256, TUNING_KEY_BYTES);
	assert_non_null(strstr(other, strstr(first, "[[kernel]]"))); /* what was there stays as it was */
	tuning_free(&t);
	free(other);
	free(first);
	rig_close(&r);
}

static void put(const Rig *r, const char *text)
{
	FILE *f = fopen(r->path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* Files of others are left alone. */
static void refusals(void **state)
{
	static const char *const files[] = {"[card]\ntarget = 1\n",
		"[card]\ntarget = \"sm_80\"\nname = \"NVIDIA Fake\"\ndriver = \"1\"\n",
		"[card]\ntarget = \"sm_90a\"\nname = \"Another card\"\ndriver = \"1\"\n"};
	Rig r;
	(void)state;
	rig_open(&r);
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		size_t n;
		put(&r, files[i]);
		assert_int_equal(tune(&r, "acquire", 0), EXIT_BAD_INPUT);
		char *text = slurp(r.path, &n);
		assert_string_equal(text, files[i]);
		free(text);
	}
	unlink(r.path);
	assert_int_equal(tune(&r, "aquire", 0), EXIT_USAGE);
	assert_int_equal(tune(&r, "swiglu", 0), EXIT_USAGE); /* an op, but none of this plan */
	r.plan->artifact.candidates[0].n_kernels = 0;
	assert_int_equal(tune(&r, "acquire", 0), EXIT_BAD_INPUT);
	assert_int_not_equal(access(r.path, F_OK), 0);
	rig_close(&r);
}

/* Call 1, 2, 3 ... of the driver fails: an exit code, no file, nothing left behind on the device. */
static void every_call_may_fail(void **state)
{
	Rig r;
	int n_failed = 0, talk = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY);
	(void)state;
	rig_open(&r);
	dup2(nowhere, STDERR_FILENO);
	for (int at = 1; at == 1 || r.fake.failed_call; at++) {
		int code = tune(&r, "acquire", at);
		bool is_there = access(r.path, F_OK) == 0;
		n_failed += code != 0; /* not every failure of giving back matters */
		if (is_there != (code == 0))
			fail_msg("call %d, %s: exit code %d", at, r.fake.failed_call ? r.fake.failed_call : "none", code);
		unlink(r.path);
	}
	dup2(talk, STDERR_FILENO);
	close(talk);
	close(nowhere);
	assert_true(n_failed > 100);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_op),
		cmocka_unit_test(maps_follow_the_copies),
		cmocka_unit_test(histories_take_turns),
		cmocka_unit_test(files_are_brought_up_to_date),
		cmocka_unit_test(refusals),
		cmocka_unit_test(every_call_may_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
