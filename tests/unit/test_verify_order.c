/* test_verify_order.c - attention and DeltaNet of verify steps add in the order of decode's kernels, or it is told. */
#include "artifacts/audit.h"
#include "artifacts/op_table.h"
#include "tests/unit/made_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define PIN_STEP "[[kernels.pin]]\ntemplate = \"delta_step\"\ntunables = { WARPS = 16 }\n"
#define BAN "[[kernels.ban]]\ntemplate = \"delta_verify\"\nphase = \"verify\"\ntunables = { WARPS = 16 }\n"
#define PIN "[[kernels.pin]]\ntemplate = \"delta_verify\"\nlayers = \"2\"\nphase = \"verify\"\n" \
	"tunables = { WARPS = 4 }\n"

/* The plan of a checkpoint with a head, with decode steps of 1 and 4, and these rules. */
static void plan_with(MadePlan *m, const char *rules)
{
	static void (*const reading[])(Compile *) = {read_config, read_options, read_weights, read_text};
	char path[] = "/tmp/verify-order-XXXXXX";
	Compile *c = &m->c;
	FILE *f = fdopen(mkstemp(path), "w");
	assert_non_null(f);
	fprintf(f, "[model]\nfamily = \"qwen3_5\"\n[runtime]\nslots = 4\nmax_context = 128\n[phases]\nprefill = [64]\n"
		"decode = [1, 4]\n[weights]\nignore = []\n%s", rules);
	fclose(f);
	*m = (MadePlan){0};
	c->diags.arena = &c->arena;
	c->cmd = (CommandLine){.model_dir = "tests/fixtures/qwen3_5", .model_toml = path, .targets = {"sm_90a"},
		.n_targets = 1, .jobs = 1};
	for (size_t i = 0; i < sizeof reading / sizeof reading[0]; i++) {
		reading[i](c);
		arena_release(&c->scratch);
		assert_int_equal(c->diags.n_errors, 0);
	}
	unlink(path);
	make_plan_of_model(m);
}

/* All notes about orders, one a line. */
static char *notes(const MadePlan *m)
{
	static char text[4096];
	text[0] = 0;
	for (int i = 0; i < m->c.diags.n; i++)
		if (m->c.diags.list[i].code == A0730) {
			strcat(text, m->c.diags.list[i].text);
			strcat(text, "\n");
		}
	return text;
}

static const Candidate *chosen(const Slot *s)
{
	for (int i = 0; i < s->n_candidates; i++)
		if (s->candidates[i].verdict == CHOSEN)
			return &s->candidates[i];
	return NULL;
}

/* The decision about an op of a layer, in the bucket of so many rows. */
static const Candidate *chosen_of(const MadePlan *m, PhaseKind phase, int rows, OpKind op, int layer)
{
	const TargetPlan *t = &m->artifact.targets[0];
	for (int p = 0; p < t->n_phases; p++)
		for (int i = 0; t->phases[p].kind == phase && t->phases[p].rows == rows && i < t->phases[p].n_launches; i++)
			if (t->phases[p].launches[i].op == op && t->phases[p].launches[i].layer == layer)
				return chosen(&m->artifact.ledger[0][t->phases[p].launches[i].slot]);
	return NULL;
}

static int tunable(const Candidate *c, const char *name)
{
	const char *at = strstr(c->tunables, name);
	assert_non_null(at);
	return atoi(at + strlen(name));
}

static void orders_are_those_of_decode(void **state)
{
	MadePlan m;
	int n = 0;
	(void)state;
	plan_with(&m, "");
	assert_string_equal(notes(&m), "");
	for (int layer = 0; layer < m.c.graph.n_layers; layer++)
		for (int slots = 1; slots <= 4; slots += 3) {
			const int rows = slots * m.c.graph.verify_rows;
			const Candidate *a = chosen_of(&m, DECODE, slots, OP_attention_step, layer);
			const Candidate *b = chosen_of(&m, VERIFY, rows, OP_attention_verify, layer);
			const Candidate *d = chosen_of(&m, DECODE, slots, OP_delta_step, layer);
			const Candidate *e = chosen_of(&m, VERIFY, rows, OP_delta_verify_step, layer);
			assert_true((a && b && !d && !e) || (!a && !b && d && e));
			assert_int_equal(tunable(a ? a : d, "WARPS="), tunable(b ? b : e, "WARPS="));
			assert_true(!a || tunable(a, "SPLITS=") == tunable(b, "SPLITS="));
			assert_string_equal((b ? b : e)->reason, "");
			n++;
		}
	assert_int_equal(n, 6);
	free_made(&m);
}

static void a_ban_that_breaks_the_order_is_told(void **state)
{
	MadePlan m;
	char *text;
	size_t n;
	(void)state;
	plan_with(&m, PIN_STEP BAN);
	assert_string_equal(notes(&m),
		"layer 0, verify rows 3, sm_90a, delta_verify_step: delta_verify WARPS=8 adds in another order than "
		"decode[1], which has delta_step(16): no admissible kernel has that\n"
		"layer 0, verify rows 12, sm_90a, delta_verify_step: delta_verify WARPS=8 adds in another order than "
		"decode[4], which has delta_step(16): no admissible kernel has that\n");
	assert_string_equal(chosen_of(&m, VERIFY, 3, OP_delta_verify_step, 2)->reason,
		"adds in another order than decode[1], which has delta_step(16): no admissible kernel has that");
	FILE *f = open_memstream(&text, &n);
	assert_true(audit_text(&m.artifact, &(AuditOptions){.reasons = true, .phase = "verify[1x3]"}, f));
	fclose(f);
	assert_non_null(strstr(text, "chosen   delta_verify WARPS=8: adds in another order than decode[1]"));
	free(text);
	f = open_memstream(&text, &n);
	assert_true(audit_why(&m.artifact, &(AuditOptions){0}, "verify[4x3]/0/delta_verify_step", f));
	fclose(f);
	assert_non_null(strstr(text, "chosen    delta_verify WARPS=8: adds in another order than decode[4]"));
	free(text);
	free_made(&m);
}

static void a_pin_that_breaks_the_order_is_told(void **state)
{
	MadePlan m;
	(void)state;
	plan_with(&m, PIN_STEP PIN);
	assert_string_equal(notes(&m),
		"layer 2, verify rows 3, sm_90a, delta_verify_step: delta_verify WARPS=4 adds in another order than "
		"decode[1], which has delta_step(16): it is pinned\n"
		"layer 2, verify rows 12, sm_90a, delta_verify_step: delta_verify WARPS=4 adds in another order than "
		"decode[4], which has delta_step(16): it is pinned\n");
	assert_string_equal(chosen_of(&m, VERIFY, 3, OP_delta_verify_step, 0)->reason, "");
	free_made(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(orders_are_those_of_decode),
		cmocka_unit_test(a_ban_that_breaks_the_order_is_told),
		cmocka_unit_test(a_pin_that_breaks_the_order_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
