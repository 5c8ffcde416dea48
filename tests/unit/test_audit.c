/* test_audit.c - the audit of a plan: text that shows every launch, JSON that another library reads. */
#include "artifacts/audit.h"
#include "tests/unit/made_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

static char *print(const Artifact *a, const char *target, bool reasons, bool as_json)
{
	char *text;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	AuditOptions o = {.target = target, .reasons = reasons};
	bool found = as_json ? audit_json(a, &o, f) : audit_text(a, &o, f);
	fclose(f);
	assert_int_equal(found, n > 0);
	return text;
}

static int count(const char *text, const char *word)
{
	int n = 0;
	for (; (text = strstr(text, word)); text++)
		n++;
	return n;
}

static void text_shows_layers_once(void **state)
{
	MadePlan m;
	(void)state;
	make_plan(&m, "llama");
	char *text = print(&m.artifact, NULL, false, false);
	const TargetPlan *t = m.artifact.targets;
	for (int p = 0; p < t->n_phases; p++) {
		char head[64];
		snprintf(head, sizeof head, "\n%s[%d]  outs %d  %d launches", phase_name(t->phases[p].kind),
			t->phases[p].rows, t->phases[p].outs, t->phases[p].n_launches);
		assert_non_null(strstr(text, head));
	}
	assert_int_equal(count(text, "\n  0-1     norm_linear"), 3); /* prefill, decode twice: the layers are equal */
	assert_int_equal(count(text, "\n  start   embed_"), 3);
	assert_int_equal(count(text, "norm_swiglu"), 3);
	assert_int_equal(count(text, "is false"), 0);
	free(text);
	Slot *s = &m.artifact.ledger[0][t->phases[0].launches[1].slot];
	assert_true(s->n_candidates > 1);
	text = print(&m.artifact, "sm_90a", true, false);
	assert_true(count(text, " is false: ") > 0); /* the predicate of a rejected template */
	free(text);
	/* another grid in one layer: no longer the same */
	for (int i = 0; i < t->phases[0].n_launches; i++)
		if (t->phases[0].launches[i].layer == 1)
			t->phases[0].launches[i].grid[2]++;
	text = print(&m.artifact, NULL, false, false);
	assert_int_equal(count(text, "\n  0-1     norm_linear"), 2);
	assert_int_equal(count(text, "\n  1       norm_linear"), 1);
	free(text);
	free_made(&m);
}

/* However long the tunables are, what stands right of them stands in columns. */
static void columns_hold_long_names(void **state)
{
	MadePlan m;
	(void)state;
	make_plan(&m, "llama");
	Slot *s = &m.artifact.ledger[0][m.artifact.targets[0].phases[0].launches[1].slot];
	for (int i = 0; i < s->n_candidates; i++)
		if (s->candidates[i].verdict == CHOSEN)
			s->candidates[i].tunables = "ONE=1000 TWO=2000 THREE=3000 FOUR=4000 FIVE=5000 SIX=6000";
	char *text = print(&m.artifact, NULL, false, false);
	char *phase = strstr(text, "\nprefill["), *head = strstr(phase, "\n  layers ") + 1;
	char *end = strstr(phase + 1, "\n\n");
	int column = (int)(strstr(head, " us ") - head) + 2; /* the last digit of a time */
	assert_non_null(strstr(phase, "SIX=6000"));
	for (char *line = strchr(head, '\n') + 1; line < end; line = strchr(line, '\n') + 1)
		assert_true(line[column] >= '0' && line[column] <= '9' && line[column + 1] == ' ');
	free(text);
	free_made(&m);
}

static void json_is_whole(void **state)
{
	MadePlan m;
	json_error_t error;
	(void)state;
	make_plan(&m, "qwen2");
	m.artifact.options[0] = (Option){"a \"quoted\\name\"\n", "\x01"};
	char *text = print(&m.artifact, NULL, false, true);
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	assert_non_null(root);
	assert_int_equal(json_integer_value(json_object_get(root, "schema_version")), 1);
	assert_string_equal(json_string_value(json_object_get(json_object_get(root, "options"),
		"a \"quoted\\name\"\n")), "\x01");
	json_t *target = json_array_get(json_object_get(root, "targets"), 0), *phase;
	const TargetPlan *t = m.artifact.targets;
	size_t i, k;
	assert_string_equal(json_string_value(json_object_get(target, "target")), "sm_90a");
	json_array_foreach(json_object_get(target, "phases"), i, phase) {
		json_t *launch, *launches = json_object_get(phase, "launches");
		int n = 0;
		json_array_foreach(launches, k, launch) {
			json_t *layers = json_object_get(launch, "layers"), *candidate;
			size_t at, chosen = 0;
			n += (int)(json_integer_value(json_array_get(layers, 1)) -
				json_integer_value(json_array_get(layers, 0))) + 1;
			json_array_foreach(json_object_get(launch, "candidates"), at, candidate)
				if (strcmp(json_string_value(json_object_get(candidate, "verdict")), "chosen") == 0) {
					assert_string_equal(json_string_value(json_object_get(candidate, "template")),
						json_string_value(json_object_get(launch, "template")));
					chosen++;
				}
			assert_int_equal(chosen, 1);
		}
		assert_int_equal(n, t->phases[i].n_launches); /* ranges stand for all launches */
	}
	json_decref(root);
	free(text);
	text = print(&m.artifact, "sm_80", false, true);
	assert_string_equal(text, "");
	free(text);
	free_made(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_shows_layers_once),
		cmocka_unit_test(columns_hold_long_names),
		cmocka_unit_test(json_is_whole),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
