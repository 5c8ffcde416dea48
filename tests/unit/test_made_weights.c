/* test_made_weights.c - weights that are made when a session opens: on the fake driver and the reference device, and
 * what the reader refuses of a plan that says so.
 */
#include "runtime/cuda.h"
#include "tests/unit/rig.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SEED "18446744073709551557"

static Option options[2] = {{"kv.page", "16"}, {"weights.random_seed", SEED}};

static void make(MadePlan *m)
{
	memset(m, 0, sizeof *m);
	synthetic_model(&m->c, "llama");
	m->c.model.tensors.n = 0;
	m->c.model.config.dtype = DT_bf16;
	m->c.cmd.random_weights = true; /* and not embed_weights */
	make_plan_of_model(m);
	m->artifact.options = options;
	m->artifact.n_options = 2;
}

static void start(Rig *r, AtlasVerify verify)
{
	const AtlasPlanOptions o = {.struct_size = sizeof o, .verify = verify};
	memset(r, 0, sizeof *r);
	make(&r->made);
	write_made(&r->made, false);
	assert_int_equal(atlas_plan_open(r->made.path, &o, &r->plan, &r->error), ATLAS_OK);
	fake_driver_start(&r->fake, &r->driver);
	fake_gpu_start(&r->gpu, &r->fake, &r->plan->artifact);
}

static int tokens_of(AtlasSession *s, int32_t tokens[12])
{
	const int32_t prompt[5] = {3, 1, 4, 1, 5};
	AtlasEvent events[4];
	int slot, n, made = 0;
	assert_int_equal(atlas_start(s, prompt, 5, NULL, 12, &slot), ATLAS_OK);
	while (atlas_active(s)) {
		assert_int_equal(atlas_step(s, events, 4, &n), ATLAS_OK);
		for (int i = 0; i < n; i++)
			tokens[made++] = events[i].token;
	}
	return made;
}

/* Byte by byte what the seed makes, on the device and on the host, whenever hashes are compared. */
static void the_seed_alone_decides(void **state)
{
	static const AtlasVerify verify[] = {ATLAS_VERIFY_FULL, ATLAS_VERIFY_LAZY, ATLAS_VERIFY_OFF};
	static RandomTables tables;
	(void)state;
	random_tables(&tables);
	for (int v = 0; v < 3; v++) {
		int32_t tokens[2][12] = {{0}};
		AtlasPlanInfo info = {.struct_size = sizeof info};
		AtlasSessionOptions cpu = {.struct_size = sizeof cpu, .device = "cpu", .n_threads = 3};
		AtlasSession *session;
		CudaView view;
		Rig r;
		start(&r, verify[v]);
		atlas_plan_info(r.plan, &info);
		assert_true(info.weights_made && !info.weights_by_reference && info.weights_seed == 18446744073709551557u);
		assert_int_equal(open_fake(&r), ATLAS_OK);
		assert_true(cuda_view(session_device(r.session), &view));
		const Graph *g = &r.plan->artifact.graph;
		int n_made = 0;
		for (int i = 0; i < g->n_weights; i++) {
			const Weight *w = &g->weights[i];
			uint8_t *bytes = malloc((size_t)w->bytes);
			assert_int_equal(w->made != MADE_NO, r.plan->weights[i] == NULL);
			n_made += w->made != MADE_NO;
			if (w->made)
				random_bytes(&tables, w, info.weights_seed, 0, bytes, (size_t)w->bytes);
			else
				memcpy(bytes, r.plan->weights[i], (size_t)w->bytes);
			assert_memory_equal((uint8_t *)(uintptr_t)view.arena[ARENA_WEIGHTS] + w->offset, bytes, (size_t)w->bytes);
			free(bytes);
		}
		assert_true(n_made > 10 && n_made < g->n_weights);
		assert_int_equal(tokens_of(r.session, tokens[0]), 12);
		assert_int_equal(atlas_session_open(r.plan, &cpu, &session, &r.error), ATLAS_OK);
		assert_int_equal(tokens_of(session, tokens[1]), 12);
		atlas_session_close(session);
		assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
		rig_close(&r);
	}
}

static void claims(MadePlan *m, const char *expected)
{
	AtlasPlan *plan;
	AtlasError error = {0};
	write_made(m, false);
	assert_int_equal(atlas_plan_open(m->path, NULL, &plan, &error), ATLAS_MALFORMED);
	assert_non_null(strstr(error.text, expected));
}

#define WRONG(place, value, ...) \
	do { \
		__typeof__(place) wrong_old = (place); \
		char wrong_says[200]; \
		snprintf(wrong_says, sizeof wrong_says, __VA_ARGS__); \
		(place) = (value); \
		claims(&m, wrong_says); \
		(place) = wrong_old; \
	} while (0)

static void what_makes_no_sense_is_refused(void **state)
{
	MadePlan m;
	AtlasPlan *plan;
	AtlasError error = {0};
	(void)state;
	make(&m);
	write_made(&m, false);
	assert_int_equal(atlas_plan_open(m.path, NULL, &plan, &error), ATLAS_OK);
	atlas_plan_close(plan);
	Graph *g = &m.artifact.graph;
	int made = g->n_weights - 1, kept = 0;
	while (!g->weights[made].made)
		made--;
	while (g->weights[kept].made)
		kept++;
	Weight *w = &g->weights[made], *k = &g->weights[kept];
	WRONG(w->made, MADE_CODES, "weight %s: made as codes for 0 columns, which bf16 is not", w->name);
	WRONG(w->made_cols, 64, "weight %s: made as numbers for 64 columns, which bf16 is not", w->name);
	WRONG(w->made_cols, -1, "weight %s: made as numbers for -1 columns, which bf16 is not", w->name);
	WRONG(k->made_cols, 1, "weight %s: made as no for 1 columns", k->name);
	WRONG(w->file, "model.safetensors", "weight %s: made at open, but with a file, a place or a hash", w->name);
	WRONG(w->file_offset, 1, "weight %s: made at open, but with a file, a place or a hash", w->name);
	WRONG(w->hash[31], 1, "weight %s: made at open, but with a file, a place or a hash", w->name);
	WRONG(w->bytes, w->bytes + 2, "weight %s: %lld bytes are not what its shape takes", w->name,
		(long long)w->bytes + 2);
	WRONG(w->offset, g->weight_arena_bytes, "weight %s: outside the arena of", w->name);
	WRONG(options[1].name, "weights.random_sead", "option weights.random_seed is not a seed");
	WRONG(options[1].value, "-1", "option weights.random_seed is not a seed");
	WRONG(options[1].value, "18446744073709551616", "option weights.random_seed is not a seed");
	free_made(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_seed_alone_decides),
		cmocka_unit_test(what_makes_no_sense_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
