/* test_certify.c - a certificate names the launch that is wrong, holds for one plan and one kind of GPU, and is read in
 * one form only. The GPU is the reference functions on the fake driver's memory, with a mistake where a test wants one.
 */
#include "artifacts/certificate.h"
#include "artifacts/op_table.h"
#include "tests/unit/certify_call.h"
#include "tests/unit/rig.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct Bench { Rig rig; char path[96], *text; size_t n; Certificate c; } Bench;

static void measure(Bench *b, const char *key, int exit_code)
{
	char why[256];
	b->text = calloc(1, CERT_MAX_BYTES);
	snprintf(b->path, sizeof b->path, "%s.cert", b->rig.made.path);
	assert_int_equal(certify_call(b->rig.plan, &b->rig.driver, b->rig.made.path, key), exit_code);
	FILE *f = fopen(b->path, "rb");
	assert_non_null(f);
	b->n = fread(b->text, 1, CERT_MAX_BYTES, f);
	fclose(f);
	assert_true(certificate_read(b->text, b->n, &b->c, why, sizeof why));
}

static void certify(Bench *b, const char *family, const char *key, int exit_code)
{
	Options *o = &b->rig.made.c.model.options;
	memset(&b->rig, 0, sizeof b->rig);
	synthetic_model(&b->rig.made.c, family);
	memcpy(o->prefill, (int[]){8, 24, 32}, 3 * sizeof(int)); /* each must be measured in its own bucket */
	o->n_prefill = 3;
	make_plan_of_model(&b->rig.made);
	rig_made(&b->rig);
	measure(b, key, exit_code);
}

static void end(Bench *b)
{
	unlink(b->path);
	certificate_free(&b->c);
	free(b->text);
	rig_close(&b->rig);
}

static void put(const Bench *b, const char *text, size_t n)
{
	FILE *f = fopen(b->path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, n, f), n);
	fclose(f);
}

static const char private_pem[] = "-----BEGIN PRIVATE KEY-----\n"
	"MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n"; /* RFC 8032, 7.1 */
static const char public_pem[] = "-----BEGIN PUBLIC KEY-----\n"
	"MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n";
static const char other_pem[] = "-----BEGIN PUBLIC KEY-----\n"
	"MCowBQYDK2VwAyEAsV8gSO+sPT07fYLH0fgoLOCRk1qu1ICqN29Oex+DjMs=\n-----END PUBLIC KEY-----\n";

static void key_file(char *path, const char *pem)
{
	strcpy(path, "/tmp/test_certify_XXXXXX");
	int fd = mkstemp(path);
	assert_int_equal(write(fd, pem, strlen(pem)), strlen(pem));
	close(fd);
}

static void refused(const Bench *b, int major, const char *trust, const char *want)
{
	char why[768] = "";
	assert_int_equal(demand_call(b->rig.plan, b->rig.made.path, major, 0, trust, why, sizeof why), 6);
	if (!strstr(why, want))
		fail_msg("%s: expected %s", why, want);
}

static void all_is_measured(const Bench *b)
{
	const TargetPlan *t = &b->rig.plan->artifact.targets[0];
	for (int p = 0; p < t->n_phases; p++) {
		const PhaseLabel name = phase_label(t->phases[p].kind, t->phases[p].rows, t->phases[p].each);
		for (int l = 0; l < t->phases[p].n_launches && t->phases[p].kind != PROBE; l++) {
			bool found = false;
			for (int i = 0; i < b->c.n_ops; i++)
				found |= b->c.ops[i].op == t->phases[p].launches[l].op && strcmp(b->c.ops[i].phase, name.text) == 0;
			if (!found)
				fail_msg("%s in %s is not measured", op_table[t->phases[p].launches[l].op].name, name.text);
		}
	}
}

static void by_ladder(Options *o)
{
	static const Rung ladder[] = {{1, 3}, {2, 2}, {4, 1}};
	memcpy(o->ladder, ladder, sizeof ladder);
	o->n_ladder = 3;
}

static void by_ngrams(Options *o)
{
	o->ladder[0] = (Rung){2, 3};
	o->ladder[1] = (Rung){4, 2};
	o->n_ladder = 2;
	o->verify_rows = 3;
	o->ngram_min = o->ngram_max = 2;
}

/* Steps of each rung, which no number of sequences alone would bring about where the host drafts. */
static void rungs_are_measured(void **state)
{
	static const struct { const char *folder; void (*change)(Options *); int n; } plans[] = {
		{"tests/fixtures/qwen3_5", by_ladder, 3}, {"tests/fixtures/llama", by_ngrams, 5}};
	(void)state;
	for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
		static Bench b;
		memset(&b, 0, sizeof b);
		rig_checkpoint_as(&b.rig, plans[i].folder, plans[i].change);
		b.rig.gpu.is_reopened = true;
		measure(&b, NULL, 0);
		all_is_measured(&b);
		const TargetPlan *t = &b.rig.plan->artifact.targets[0];
		int n = 0;
		for (int p = 0; p < t->n_phases; p++)
			n += t->phases[p].kind == VERIFY;
		assert_int_equal(n, plans[i].n);
		end(&b);
	}
}

static void every_launch_of_every_phase_is_measured(void **state)
{
	static Bench b;
	char why[768] = "";
	(void)state;
	certify(&b, "qwen3", NULL, 0);
	all_is_measured(&b);
	assert_int_equal(b.c.n_layers, 3);
	assert_string_equal(b.c.target, "sm_90a");
	assert_int_equal(b.c.cc_major, 9);
	assert_int_equal(demand_call(b.rig.plan, b.rig.made.path, 9, 0, NULL, why, sizeof why), 0);
	refused(&b, 8, NULL, "measured on compute capability 9.0");
	refused(&b, 9, "tests/fixtures/README.md", "it is not signed");
	end(&b);
}

static void a_wrong_launch_is_named(void **state)
{
	static const struct { OpKind op; int layer; float factor; const char *want; } bad[] = {
		{OP_norm_swiglu, 1, 1.1f, "layer 1: "}, {OP_linear_residual, 0, 1.05f, "layer 0: "},
		{OP_embed_prompt, -1, 0.9f, "start: "},
	};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		static Bench b;
		memset(&b, 0, sizeof b);
		rig_plan(&b.rig, "llama", 0);
		snprintf(b.path, sizeof b.path, "%s.cert", b.rig.made.path);
		b.rig.gpu.bad_op = bad[i].op;
		b.rig.gpu.bad_layer = bad[i].layer;
		b.rig.gpu.bad_factor = bad[i].factor;
		assert_int_equal(certify_call(b.rig.plan, &b.rig.driver, b.rig.made.path, NULL), 1);
		refused(&b, 9, NULL, bad[i].want);
		refused(&b, 9, NULL, op_table[bad[i].op].name);
		end(&b);
	}
}

/* Launches are measured one by one; but what serves is a graph, which the logits are to come from. */
static void logits_are_those_of_a_graph(void **state)
{
	static Bench b;
	char *log = NULL;
	size_t n;
	int most = 0, smallest = 1 << 30;
	(void)state;
	memset(&b, 0, sizeof b);
	rig_plan(&b.rig, "llama", 0);
	snprintf(b.path, sizeof b.path, "%s.cert", b.rig.made.path);
	log_calls(&b.rig, &log, &n);
	assert_int_equal(certify_call(b.rig.plan, &b.rig.driver, b.rig.made.path, NULL), 0);
	fclose(b.rig.fake.log);
	b.rig.fake.log = NULL;
	for (const char *at = log; (at = strstr(at, "GraphLaunch of ")); at++) {
		int nodes = atoi(at + strlen("GraphLaunch of "));
		most = nodes > most ? nodes : most;
	}
	const TargetPlan *t = &b.rig.plan->artifact.targets[0];
	for (int p = 0; p < t->n_phases; p++)
		if (t->phases[p].kind == PREFILL && t->phases[p].n_launches < smallest)
			smallest = t->phases[p].n_launches;
	assert_true(most >= smallest);
	free(log);
	end(&b);
}

/* Every byte counts: another one is refused as such, as another plan's, or by its figures. */
static void one_form_of_one_plan(void **state)
{
	static Bench b;
	char why[768], key[64], trust[64], other_key[64];
	(void)state;
	memset(&b, 0, sizeof b);
	key_file(key, private_pem);
	key_file(trust, public_pem);
	key_file(other_key, other_pem);
	certify(&b, "llama", key, 0);
	assert_true(b.c.is_signed);
	assert_int_equal(demand_call(b.rig.plan, b.rig.made.path, 9, 0, trust, why, sizeof why), 0);
	refused(&b, 9, other_key, "it is signed by another key");
	refused(&b, 9, key, "private key");
	for (size_t i = 0; i < b.n; i += b.n / 200) {
		Certificate c;
		b.text[i] ^= 1;
		assert_false(certificate_read(b.text, b.n, &c, why, sizeof why));
		certificate_free(&c);
		b.text[i] ^= 1;
	}
	put(&b, b.text, b.n - 1);
	refused(&b, 9, NULL, "not a certificate of this version");
	b.c.is_signed = false;
	char *other;
	size_t n;
	b.c.root[0] ^= 1;
	assert_true(certificate_print(&b.c, NULL, &other, &n));
	put(&b, other, n);
	refused(&b, 9, NULL, "it belongs to another plan");
	free(other);
	b.c.root[0] ^= 1;
	b.c.n_phases--;
	assert_true(certificate_print(&b.c, NULL, &other, &n));
	put(&b, other, n);
	refused(&b, 9, NULL, "was not measured");
	free(other);
	b.c.n_phases++;
	unlink(b.path);
	refused(&b, 9, NULL, "there is no ");
	put(&b, b.text, b.n);
	unlink(key);
	unlink(trust);
	unlink(other_key);
	end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_launch_of_every_phase_is_measured),
		cmocka_unit_test(rungs_are_measured),
		cmocka_unit_test(a_wrong_launch_is_named), cmocka_unit_test(logits_are_those_of_a_graph),
		cmocka_unit_test(one_form_of_one_plan)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
