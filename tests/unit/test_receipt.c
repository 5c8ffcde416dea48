/* test_receipt.c - what ran beside what was planned: on the fake driver, whose kernels run as late as edges allow. */
#include "artifacts/memory.h"
#include "artifacts/op_table.h"
#include "tests/unit/receipt_call.h"
#include "tests/unit/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 4096 };
typedef struct Ran { RanKernel at[MOST]; int n; } Ran;

static void on_ran(void *ctx, const char *name, const CuKernelNode *node)
{
	Ran *ran = ctx;
	assert_true(ran->n < MOST);
	RanKernel *k = &ran->at[ran->n++];
	*k = (RanKernel){.seen = {.name = name, .smem_bytes = (int)node->smem_bytes, .registers = -1,
		.static_smem_bytes = -1}, .start_ns = (uint64_t)ran->n};
	for (int d = 0; d < 3; d++) {
		k->seen.grid[d] = (int)node->grid[d];
		k->seen.block[d] = (int)node->block[d];
	}
}

static void open_watched(Rig *r, Watch *w, Ran *ran)
{
	watch_start(w, &r->plan->artifact.targets[0]);
	r->watch = &w->hooks;
	r->fake.ran = on_ran;
	r->fake.ran_ctx = ran;
	assert_int_equal(open_fake(r), ATLAS_OK);
}

static void run_some(Rig *r)
{
	assert_int_equal(call_run_buckets(r->session, &r->plan->artifact.graph, &r->plan->artifact.targets[0], 6), 0);
}

static void what_ran_is_what_was_planned(void **state)
{
	Rig r;
	Watch w;
	Match m;
	Ran *ran = calloc(1, sizeof *ran);
	(void)state;
	rig_plan(&r, "llama", 0);
	open_watched(&r, &w, ran);
	assert_int_equal(w.n_bad, 0);
	const TargetPlan *t = w.plan;
	assert_int_equal(w.n_nodes, memory_load(t).n_nodes); /* memory.c knows how many steps a row has */
	assert_int_equal(w.free_bytes[WATCH_CONTEXT] - w.free_bytes[WATCH_ARENAS], t->arena_bytes[ARENA_WEIGHTS] +
		t->arena_bytes[ARENA_STATE] + t->arena_bytes[ARENA_SCRATCH] + t->arena_bytes[ARENA_IO]);
	assert_int_equal(w.free_bytes[WATCH_WEIGHTS], w.free_bytes[WATCH_ARENAS]);
	run_some(&r);
	bool was_run[PHASE_KINDS] = {0};
	for (int i = 0; i < w.n_log; i++)
		was_run[t->phases[w.log[i].phase].kind] = true;
	assert_true(was_run[PREFILL] && was_run[DECODE] && was_run[ACQUIRE]);
	assert_true(receipt_match(&w, ran->at, ran->n, &m));
	assert_string_equal(m.first_difference, "");
	assert_int_equal(m.planned, ran->n);
	assert_int_equal(m.observed, ran->n);
	assert_int_equal(memcmp(m.planned_sha256, m.observed_sha256, 32) == 0, m.out_of_place == 0);
	watch_end(&w);
	rig_close(&r);
	free(ran);
}

/* As NCCL's are: before the launches that are to have what they make, and as many as the plan has of those. */
static void kernels_of_nccl_are_counted_apart(void **state)
{
	Rig r;
	Watch w;
	Match m;
	Ran *ran = calloc(1, sizeof *ran), *more = calloc(1, sizeof *more);
	int steps = 0;
	(void)state;
	rig_plan(&r, "llama", 0);
	open_watched(&r, &w, ran);
	run_some(&r);
	int phase = 0;
	while (w.plan->phases[phase].kind != DECODE)
		phase++;
	for (int i = 0; i < w.n_log; i++)
		steps += w.log[i].phase == phase ? w.log[i].steps : 0;
	Launch *l = &w.plan->phases[phase].launches[2];
	const OpKind was = l->op;
	assert_true(steps > 1);
	for (int given = steps - 1; given <= steps + 1; given++) {
		more->n = 0;
		for (int i = 0; i < ran->n; i++) {
			if (i < given)
				more->at[more->n++] = (RanKernel){.seen = {.name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"}};
			more->at[more->n++] = ran->at[i];
		}
		l->op = OP_sum_nccl;
		assert_true(receipt_match(&w, more->at, more->n, &m));
		assert_int_equal(m.nccl_planned, steps);
		assert_int_equal(m.nccl_observed, given);
		assert_int_equal(m.observed, ran->n);
		assert_int_equal(m.first_difference[0] == 0, given == steps);
		l->op = was;
	}
	more->at[0].seen.name = "ncclDevKernel"; /* a plan that has none */
	assert_true(receipt_match(&w, more->at, ran->n, &m));
	assert_true(m.first_difference[0]);
	watch_end(&w);
	rig_close(&r);
	free(ran);
	free(more);
}

static void each_difference_is_seen(void **state)
{
	Rig r;
	Watch w;
	Match m;
	Ran *ran = calloc(1, sizeof *ran);
	(void)state;
	rig_plan(&r, "llama", 0);
	open_watched(&r, &w, ran);
	run_some(&r);
	RanKernel *some = &ran->at[ran->n / 2];
	const RanKernel was = *some;
	some->seen.name = "another";
	assert_true(receipt_match(&w, ran->at, ran->n, &m));
	assert_non_null(strstr(m.first_difference, "another where the plan has "));
	for (int i = 0; i < 3; i++) {
		*some = was;
		*(i == 0 ? &some->seen.grid[1] : i == 1 ? &some->seen.block[0] : &some->seen.smem_bytes) += 1;
		assert_true(receipt_match(&w, ran->at, ran->n, &m));
		assert_non_null(strstr(m.first_difference, i == 0 ? "grid" : i == 1 ? "block" : "shared memory"));
		assert_non_null(strstr(m.first_difference, " where the plan has "));
	}
	*some = was;
	some->seen.registers = 255; /* as CUPTI tells them */
	assert_true(receipt_match(&w, ran->at, ran->n, &m));
	assert_non_null(strstr(m.first_difference, "registers 255 where the plan has "));
	*some = was;
	assert_true(receipt_match(&w, ran->at, ran->n - 1, &m));
	assert_non_null(strstr(m.first_difference, " launches ran"));
	ran->at[ran->n] = ran->at[0];
	assert_true(receipt_match(&w, ran->at, ran->n + 1, &m));
	assert_non_null(strstr(m.first_difference, "1 launches more than planned"));
	/* a launch before one that it waits for */
	const RanKernel last = ran->at[ran->n - 1];
	memmove(&ran->at[ran->n - 1], &ran->at[ran->n - 2], sizeof last);
	ran->at[ran->n - 2] = last;
	assert_true(receipt_match(&w, ran->at, ran->n, &m));
	assert_true(m.first_difference[0]);
	watch_end(&w);
	rig_close(&r);
	free(ran);
}

static void a_swapped_function_is_seen_in_the_graphs_and_in_what_ran(void **state)
{
	Rig r;
	Watch w;
	Match m;
	Ran *ran = calloc(1, sizeof *ran);
	(void)state;
	rig_plan(&r, "llama", 0);
	const TargetPlan *t = &r.plan->artifact.targets[0];
	r.fake.swapped = t->kernels[t->phases[0].launches[1].kernel].entry;
	open_watched(&r, &w, ran);
	assert_true(w.n_bad > 0 && w.n_bad < w.n_nodes);
	assert_non_null(strstr(w.first_bad, "another where the plan has "));
	run_some(&r);
	assert_true(receipt_match(&w, ran->at, ran->n, &m));
	assert_non_null(strstr(m.first_difference, r.fake.swapped));
	watch_end(&w);
	rig_close(&r);
	free(ran);
}

static void a_listener_says_why_it_hears_nothing(void **state)
{
	char why[256] = "";
	Listener l;
	(void)state;
	assert_false(listener_start(&l, "/nonexistent/libcupti.so", why, sizeof why));
	assert_non_null(strstr(why, "/nonexistent/libcupti.so"));
	listener_free(&l);
	assert_false(listener_start(&l, "libm.so.6", why, sizeof why));
	assert_string_equal(why, "CUPTI lacks cuptiGetVersion");
	listener_free(&l);
}

static void sizes_are_read(void **state)
{
	int64_t bytes = 0;
	(void)state;
	assert_true(memory_parse("1", &bytes) && bytes == 1);
	assert_true(memory_parse("24GiB", &bytes) && bytes == (int64_t)24 << 30);
	assert_true(memory_parse("512MiB", &bytes) && bytes == 512 << 20);
	assert_true(memory_parse("3KiB", &bytes) && bytes == 3072);
	static const char *const wrong[] = {"", "0", "-1", "GiB", "1 GiB", "1GB", "1gib", "99999999999GiB", "1.5GiB"};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		assert_false(memory_parse(wrong[i], &bytes));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_ran_is_what_was_planned), cmocka_unit_test(each_difference_is_seen),
		cmocka_unit_test(kernels_of_nccl_are_counted_apart),
		cmocka_unit_test(a_swapped_function_is_seen_in_the_graphs_and_in_what_ran),
		cmocka_unit_test(a_listener_says_why_it_hears_nothing), cmocka_unit_test(sizes_are_read)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
