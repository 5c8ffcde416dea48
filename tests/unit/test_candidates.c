/* test_candidates.c - plans that carry what else could have been chosen: written, read, and checked like launches. */
#include "artifacts/reader.h"
#include "tests/unit/made_plan.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void make_with_candidates(MadePlan *m, int n)
{
	*m = (MadePlan){0};
	synthetic_model(&m->c, "llama");
	m->c.cmd.candidates = n;
	make_plan_of_model(m);
}

static uint8_t *slurp(const char *path, int64_t *n)
{
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	fseek(f, 0, SEEK_END);
	*n = ftell(f);
	rewind(f);
	uint8_t *bytes = malloc((size_t)*n);
	assert_int_equal(fread(bytes, 1, (size_t)*n, f), *n);
	fclose(f);
	return bytes;
}

static ReadStatus read_made(MadePlan *m, Artifact *a, uint8_t **bytes, char why[256])
{
	int64_t n;
	why[0] = 0;
	write_made(m, true);
	*bytes = slurp(m->path, &n);
	return artifact_read(*bytes, n, NULL, a, why, 256);
}

/* Every decision's winner is among them, each kernel once, each as one launch on buffers named as the operands. */
static void all_of_the_ledger(void **state)
{
	MadePlan m;
	Artifact a;
	uint8_t *bytes;
	char why[256];
	(void)state;
	make_with_candidates(&m, 256);
	if (read_made(&m, &a, &bytes, why) != READ_OK)
		fail_msg("%s", why);
	const TargetPlan *t = &a.candidates[0];
	assert_string_equal(t->target, "sm_90a");
	assert_true(t->n_kernels > a.targets[0].n_kernels && t->n_phases == t->n_kernels);
	for (int i = 0; i < a.targets[0].n_kernels; i++) {
		int found = 0;
		for (int k = 0; k < t->n_kernels; k++)
			found += strcmp(t->kernels[k].name, a.targets[0].kernels[i].name) == 0 &&
				strcmp(t->kernels[k].defines, a.targets[0].kernels[i].defines) == 0;
		if (found != 1)
			fail_msg("%s [%s] stands %d times", a.targets[0].kernels[i].name, a.targets[0].kernels[i].defines, found);
	}
	int admissible = 0;
	for (int i = 0; i < a.n_ledger[0]; i++)
		for (int k = 0; k < a.ledger[0][i].n_candidates; k++)
			admissible += a.ledger[0][i].candidates[k].verdict <= SLOWER;
	assert_true(t->n_kernels <= admissible); /* slots of equal constants share kernels */
	for (int i = 0; i < t->n_phases; i++) {
		const Phase *p = &t->phases[i];
		const Launch *l = &p->launches[0];
		assert_int_equal(l->kernel, i);
		for (int k = 0; k < l->n_args; k++)
			if (l->args[k].buf >= 0)
				assert_string_equal(p->bufs[l->args[k].buf].name, op_table[l->op].operands[l->args[k].operand].name);
	}
	artifact_free(&a);
	free(bytes);
	free_made(&m);
}

static void none_unless_asked_for(void **state)
{
	MadePlan m;
	Artifact a;
	uint8_t *bytes;
	char why[256];
	(void)state;
	make_plan(&m, "llama");
	assert_int_equal(read_made(&m, &a, &bytes, why), READ_OK);
	assert_null(artifact_section(&a, "candidates.sm_90a"));
	assert_int_equal(a.candidates[0].n_kernels, 0);
	artifact_free(&a);
	free(bytes);
	free_made(&m);
}

/* With N, at most N of each template for each decision: the likeliest, the winner among them. */
static void the_likeliest(void **state)
{
	MadePlan few, all;
	(void)state;
	make_with_candidates(&few, 1);
	make_with_candidates(&all, 256);
	const TargetWork *f = &few.c.work.at[0], *w = &all.c.work.at[0];
	assert_true(f->trials.n < w->trials.n);
	for (int p = 0; p < f->phases.n; p++)
		for (int i = 0; i < f->phases.at[p].picks.n; i++) {
			bool found = false;
			for (int k = 0; k < f->trials.n; k++)
				found |= strcmp(f->trials.at[k].pick.defines, f->phases.at[p].picks.at[i].defines) == 0;
			assert_true(found);
		}
	for (int i = 0; i < f->trials.n; i++)
		for (int k = 0; k < i; k++)
			assert_false(f->trials.at[i].pick.slot == f->trials.at[k].pick.slot &&
				f->trials.at[i].pick.template_index == f->trials.at[k].pick.template_index);
	free_made(&few);
	free_made(&all);
}

/* With --pruned those too that contracts do not prefer; readers admit them as trials. */
static void pruned_ones(void **state)
{
	MadePlan m;
	Artifact a;
	uint8_t *bytes;
	char why[256];
	int n = 0;
	(void)state;
	m = (MadePlan){0};
	synthetic_model(&m.c, "llama");
	m.c.cmd.candidates = 256;
	m.c.cmd.pruned = true;
	make_plan_of_model(&m);
	if (read_made(&m, &a, &bytes, why) != READ_OK)
		fail_msg("%s", why);
	for (int i = 0; i < a.candidates[0].n_kernels; i++) {
		const Slot *s = &a.ledger[0][a.candidates[0].phases[i].launches[0].slot];
		for (int k = 0; k < s->n_candidates; k++)
			if (strcmp(s->candidates[k].kernel, a.candidates[0].kernels[i].name) == 0 &&
				s->candidates[k].verdict == PRUNED) {
				n++;
				break;
			}
	}
	assert_true(n > 1);
	artifact_free(&a);
	free(bytes);
	free_made(&m);
}

static void two_launches(TargetPlan *t) { t->phases[0].n_launches = 0; }
static void another_kernel(TargetPlan *t) { t->phases[0].launches[0].kernel = 1; }
static void a_wide_grid(TargetPlan *t) { t->phases[0].launches[0].grid[1] = 65536; }
static void an_edge(TargetPlan *t)
{
	t->phases[0].launches[0].n_deps = 1;
	t->phases[0].launches[0].deps = &t->phases[0].launches[0].kernel; /* 0: itself */
}
static void another_slot(TargetPlan *t) { t->phases[0].launches[0].slot++; }
static void too_far(TargetPlan *t) { t->phases[0].bufs[0].offset = t->arena_bytes[t->phases[0].bufs[0].arena]; }
static void an_odd_place(TargetPlan *t) { t->phases[0].bufs[0].offset = 8; }
static void a_tensor(TargetPlan *t) { t->phases[0].bufs[0].tensor = 0; }
static void another_shape(TargetPlan *t) { t->phases[0].bufs[0].bytes++; }
static void a_shared_place(TargetPlan *t)
{
	Phase *p = &t->phases[0];
	for (int i = 1; i < p->n_bufs; i++)
		if (p->bufs[i].arena == p->bufs[0].arena)
			p->bufs[i].offset = p->bufs[0].offset;
}
static void an_io_arena(TargetPlan *t) { t->phases[0].bufs[0].arena = ARENA_IO; }
static void another_capability(TargetPlan *t) { t->cc_minor = 5; }
static void one_phase_less(TargetPlan *t) { t->n_phases--; }
static void a_bad_cubin(TargetPlan *t) { t->kernels[0].cubin_offset = 1 << 30; }
static void a_huge_arena(TargetPlan *t) { t->arena_bytes[ARENA_SCRATCH] = INT64_MAX; }
static void another_target(TargetPlan *t) { t->target = "sm_80"; }

static void every_lie_is_found(void **state)
{
	static const struct { void (*lie)(TargetPlan *t); const char *why; } lies[] = {
		{two_launches, "candidate 0: 0 launches"}, {another_kernel, "candidate 0: 1 launches"},
		{a_wide_grid, "grid"}, {an_edge, "candidate 0: 1 edges"}, {another_slot, "of the ledger is not about it"},
		{too_far, "candidate 0 buffer"}, {an_odd_place, "candidate 0 buffer"}, {a_tensor, "candidate 0 buffer"},
		{another_shape, "candidate 0 buffer"}, {a_shared_place, "share bytes"}, {an_io_arena, "candidate 0 buffer"},
		{another_capability, "candidates of sm_90a"}, {one_phase_less, "candidates of sm_90a"},
		{a_bad_cubin, "its cubin is not within the section"}, {a_huge_arena, "candidates of sm_90a: arena scratch"},
		{another_target, "section candidates.sm_90a holds kernels of sm_80"}};
	(void)state;
	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		MadePlan m;
		Artifact a;
		uint8_t *bytes;
		char why[256];
		make_with_candidates(&m, 1);
		lies[i].lie(&m.c.work.at[0].candidates);
		assert_int_equal(read_made(&m, &a, &bytes, why), READ_MALFORMED);
		if (!strstr(why, lies[i].why))
			fail_msg("lie %zu: %s", i, why);
		free(bytes);
		free_made(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_of_the_ledger),
		cmocka_unit_test(none_unless_asked_for),
		cmocka_unit_test(the_likeliest),
		cmocka_unit_test(pruned_ones),
		cmocka_unit_test(every_lie_is_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
