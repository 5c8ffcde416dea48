/* test_plan_fuzz.c - a plan that the reader accepts does no harm, whatever its numbers are.
 *
 * The schema says where the numbers of a plan lie. One or two of them are changed, the plan is written and sealed
 * again, and read. Most are refused. One that is accepted is then used, on the fake driver and on the reference
 * device: every address and size must hold, and a sanitizer sees the rest.
 */
#include "artifacts/schema.h"
#include "artifacts/op_table.h"
#include "runtime/session.h"
#include "tests/unit/fake_driver.h"
#include "tests/unit/made_plan.h"
#include "tests/unit/synthetic.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct Number { void *at; FieldKind kind; int max; } Number; /* kind: INT, INT64, FLOAT or ENUM */
typedef struct Numbers { Number *at; int n, cap; } Numbers;

static void note(Numbers *all, void *at, FieldKind kind, int max)
{
	if (all->n == all->cap)
		all->at = realloc(all->at, sizeof *all->at * (size_t)(all->cap = 2 * all->cap + 1024));
	all->at[all->n++] = (Number){at, kind, max};
}

/* What the writer itself relies on: where weights lie and how many bytes they have. */
static bool is_writers(const Schema *s, const Field *f)
{
	return (strcmp(s->name, "Weight") == 0 && (f->kind == F_INT64 || f->kind == F_DIMS)) ||
		(strcmp(s->name, "Graph") == 0 && strcmp(f->name, "weight_arena_bytes") == 0);
}

static void note_struct(Numbers *all, const Schema *s, void *base)
{
	for (int i = 0; i < s->n_fields; i++) {
		const Field *f = &s->fields[i];
		char *field = (char *)base + f->offset, *list = NULL;
		int n = f->count ? *(int *)(void *)((char *)base + f->count) : f->extra;
		if (f->kind == F_LIST || f->kind == F_INT_LIST)
			memcpy(&list, field, sizeof list);
		if (is_writers(s, f))
			continue;
		switch (f->kind) {
		case F_INT: case F_INT64: case F_FLOAT: case F_ENUM:
			note(all, field, f->kind, f->kind == F_ENUM ? enum_count((EnumKind)f->extra) : 0);
			break;
		case F_INTS: case F_INT_LIST:
			for (int k = 0; k < n; k++)
				note(all, (f->kind == F_INTS ? field : list) + 4 * k, F_INT, 0);
			break;
		case F_DIMS: case F_INT64S:
			for (int k = 0; k < n; k++)
				note(all, field + 8 * k, F_INT64, 0);
			break;
		case F_OPERANDS:
			for (int k = 0; k < op_table[((GraphOp *)base)->kind].n_operands; k++)
				note(all, field + 4 * k, F_INT, 0);
			break;
		case F_ATTRS:
			for (int k = 0; k < n_attr_fields; k++)
				note(all, field + attr_fields[k].offset, attr_fields[k].kind, 0);
			break;
		case F_LIST:
			for (int k = 0; k < n; k++)
				note_struct(all, f->of, list + f->of->bytes * (size_t)k);
			break;
		default:
			break;
		}
	}
}

static uint64_t next(uint64_t *x)
{
	*x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
	return *x >> 8;
}

static void change(const Number *number, uint64_t *x)
{
	int64_t old = 0;
	float f;
	if (number->kind == F_ENUM) {
		*(int *)number->at = (int)(next(x) % (uint64_t)number->max);
	} else if (number->kind == F_FLOAT) {
		static const float values[] = {0, -1, 1, 0.5f, 1e30f, 1e-30f, 3};
		f = values[next(x) % 7];
		memcpy(number->at, &f, sizeof f);
	} else {
		memcpy(&old, number->at, number->kind == F_INT ? 4 : 8);
		old = number->kind == F_INT ? (int32_t)old : old;
		const int64_t values[] = {-1, 0, 1, 2, 3, 7, old + 1, old - 1, old / 2, INT_MAX, INT_MIN, 1 << 20,
			(int64_t)(next(x) % 64), (int64_t)(next(x) % 4096), (uint32_t)old < 1u << 30 ? old * 2 : 5};
		int64_t v = values[next(x) % (sizeof values / sizeof values[0])];
		memcpy(number->at, &v, number->kind == F_INT ? 4 : 8);
	}
}

static size_t param_bytes(void *ctx, int kernel)
{
	const AtlasPlan *plan = ctx;
	return (size_t)plan->artifact.targets[0].kernels[kernel].param_bytes;
}

static int no_logits(void *ctx, int pos, const float *logits)
{
	(void)ctx, (void)pos;
	volatile float touched = logits[0];
	(void)touched;
	return 0;
}

/* Any status will do; nothing may break. */
static void use(AtlasPlan *plan, Device *device)
{
	AtlasSession *session;
	AtlasEvent *events = calloc((size_t)plan->artifact.graph.slots, sizeof *events);
	int32_t tokens[40] = {0};
	int slot, n;
	AtlasError error;
	if (session_open_on(plan, device, &session, &error) == ATLAS_OK) {
		atlas_start(session, tokens, 40, NULL, 3, &slot);
		atlas_start(session, tokens, 3, NULL, 2, &slot);
		for (int i = 0; i < 4; i++)
			atlas_step(session, events, plan->artifact.graph.slots, &n);
		atlas_score(session, tokens, 3, no_logits, NULL);
	}
	atlas_session_close(session);
	free(events);
}

static void use_everywhere(AtlasPlan *plan)
{
	FakeDriver fake;
	Driver driver;
	Device *device;
	AtlasError error;
	fake_driver_start(&fake, &driver);
	fake.ctx = plan;
	fake.param_bytes = param_bytes;
	fake.memory_bytes = 4 << 20;
	DeviceConfig config = {.artifact = &plan->artifact, .weights = plan->weights, .driver = &driver,
		.n_threads = 1};
	if (cuda_open(&config, &device, &error) == ATLAS_OK)
		use(plan, device);
	assert_string_equal(fake.broken, "");
	assert_int_equal(fake.live, 0);
	fake_driver_stop(&fake);
	if (plan->artifact.graph.pages < 4096 && cpu_open(&config, &device, &error) == ATLAS_OK)
		use(plan, device);
}

static void accepted_plans_do_no_harm(void **state)
{
	static const char *const families[] = {"llama", "qwen2", "qwen3"};
	int accepted = 0, refused = 0;
	(void)state;
	for (int f = 0; f < 3; f++) {
		Numbers all = {0};
		uint64_t x = 88172645463325252u + (uint64_t)f;
		MadePlan m;
		m = (MadePlan){0};
		synthetic_model(&m.c, families[f]);
		m.c.cmd.candidates = 1;
		make_plan_of_model(&m);
		note_struct(&all, &graph_schema, &m.artifact.graph);
		note_struct(&all, &target_plan_schema, m.artifact.targets);
		note_struct(&all, &target_plan_schema, m.artifact.candidates);
		for (int i = 0; i < 350; i++) {
			Number *a = &all.at[next(&x) % (uint64_t)all.n], *b = &all.at[next(&x) % (uint64_t)all.n];
			uint64_t old_a = 0, old_b = 0;
			AtlasPlan *plan;
			AtlasError error;
			memcpy(&old_a, a->at, a->kind == F_INT64 ? 8 : 4);
			memcpy(&old_b, b->at, b->kind == F_INT64 ? 8 : 4);
			change(a, &x);
			if (i % 4 == 0)
				change(b, &x);
			write_made(&m, true);
			AtlasStatus s = atlas_plan_open(m.path, NULL, &plan, &error);
			assert_true(s == ATLAS_OK || (s == ATLAS_MALFORMED && error.text[0]));
			*(s == ATLAS_OK ? &accepted : &refused) += 1;
			if (s == ATLAS_OK)
				use_everywhere(plan);
			atlas_plan_close(plan);
			memcpy(b->at, &old_b, b->kind == F_INT64 ? 8 : 4);
			memcpy(a->at, &old_a, a->kind == F_INT64 ? 8 : 4);
		}
		free(all.at);
		free_made(&m);
	}
	assert_true(accepted > 100 && refused > 300);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(accepted_plans_do_no_harm)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
