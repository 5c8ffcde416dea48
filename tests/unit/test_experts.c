/* test_experts.c - atlas bench counts the experts that steps read: on the fake GPU and on the reference device. */
#include "tests/unit/bench_call.h"
#include "tests/unit/rig.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { EXPERTS = 16, EACH = 2, LAYERS_OF = 2 };

static Option options[2] = {{"kv.page", "16"}, {"weights.random_seed", "3"}};

static void open_rig(Rig *r)
{
	memset(r, 0, sizeof *r);
	Compile *c = &r->made.c;
	synthetic_model(c, "qwen3_moe");
	c->model.tensors.n = 0;
	c->model.config.dtype = DT_bf16;
	c->model.config.each.n_experts = EXPERTS;
	c->model.config.each.n_active = EACH;
	c->model.config.each.norm_topk = true;
	c->cmd.random_weights = true;
	make_plan_of_model(&r->made);
	r->made.artifact.options = options;
	r->made.artifact.n_options = 2;
	write_made(&r->made, false);
	assert_int_equal(atlas_plan_open(r->made.path, NULL, &r->plan, &r->error), ATLAS_OK);
	fake_driver_start(&r->fake, &r->driver);
	fake_gpu_start(&r->gpu, &r->fake, &r->plan->artifact);
	assert_int_equal(open_fake(r), ATLAS_OK);
}

/* One sequence reads EACH experts of a layer; several read more, but fewer than they could: some choose the same. Both
 * devices count alike, and the bytes of a step follow the count. */
static void chosen_experts_are_counted(void **state)
{
	AtlasSessionOptions cpu = {.struct_size = sizeof cpu, .device = "cpu", .n_threads = 2};
	AtlasSession *session;
	Rig r;
	(void)state;
	open_rig(&r);
	assert_int_equal(atlas_session_open(r.plan, &cpu, &session, &r.error), ATLAS_OK);
	BenchExperts gpu[2] = {{0}}, host[2] = {{0}};
	const int batch[2] = {1, 4};
	for (int i = 0; i < 2; i++) {
		assert_int_equal(bench_call_experts(r.plan, r.session, batch[i], &gpu[i]), 0);
		assert_int_equal(bench_call_experts(r.plan, session, batch[i], &host[i]), 0);
		assert_true(gpu[i].layers >= 2 * 4 * LAYERS_OF && gpu[i].layers % LAYERS_OF == 0);
		assert_int_equal(host[i].layers, 2 * 4 * LAYERS_OF);
		assert_float_equal(gpu[i].a_layer, gpu[i].distinct / (double)gpu[i].layers, 1e-9);
		assert_float_equal(host[i].bytes, 0, 0); /* nothing is claimed of a GPU that is not there */
	}
	assert_float_equal(gpu[0].a_layer, EACH, 1e-9);
	assert_float_equal(host[0].a_layer, EACH, 1e-9);
	assert_true(gpu[1].a_layer > EACH && gpu[1].a_layer < batch[1] * EACH);
	assert_true(host[1].a_layer > EACH && host[1].a_layer < batch[1] * EACH);
	assert_true(gpu[1].bytes > gpu[0].bytes);
	atlas_session_close(session);
	rig_close(&r);
}

/* Of a step's bytes those of an expert's weights, once a layer, go with their number, up to all of them. */
static void bytes_follow_the_count(void **state)
{
	Rig r;
	(void)state;
	open_rig(&r);
	const TargetPlan *t = r.plan->artifact.targets;
	const Config *cf = &r.made.c.model.config;
	const double expert = 3.0 * 2 * cf->each.ffn_dim * cf->hidden_dim;
	int p = 0;
	while (t->phases[p].kind != DECODE || t->phases[p].rows != 4)
		p++;
	const double counts[] = {2, 4.5, 7, EXPERTS, 2 * EXPERTS};
	double sum[5] = {0}, flops;
	for (int c = 0; c < 5; c++)
		for (int l = 0; l < t->phases[p].n_launches; l++) {
			double bytes;
			bench_call_work(r.plan, p, l, 4, 4, 40, 40, counts[c], &bytes, &flops);
			sum[c] += bytes;
		}
	assert_float_equal(sum[1] - sum[0], 2.5 * LAYERS_OF * expert, 1);
	assert_float_equal(sum[2] - sum[1], 2.5 * LAYERS_OF * expert, 1);
	assert_true(sum[3] > sum[2] && sum[4] == sum[3]); /* the contract: no more than the rows can choose */
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(chosen_experts_are_counted),
		cmocka_unit_test(bytes_follow_the_count)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
