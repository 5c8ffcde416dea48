/* test_read_quant.c - which modules the lists of quantised checkpoints name. */
#include "compiler/graph/modules.h"
#include "compiler/read/quant_lists.h"
#include "compiler/read/read_model.h"
#include "compiler/text/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* Reads a quantization_config with one entry to ignore; true when nothing was wrong with it. */
static bool read_entry(Compile *c, const char *entry)
{
	char text[1024];
	*c = (Compile){.cmd.model_dir = "tests/unit"}; /* without an hf_quant_config.json */
	c->diags.arena = &c->arena;
	int n = snprintf(text, sizeof text, "{\"quant_method\": \"fp8\", \"modules_to_not_convert\": [\"%s\"]}", entry);
	char *copy = arena_strndup(&c->arena, text, (size_t)n);
	read_quant(c, json_parse(&c->arena, &c->scratch, &c->diags, &json_config_rules, "config.json", copy, (size_t)n));
	return c->diags.n_errors == 0;
}

static void free_compile(Compile *c)
{
	arena_release(&c->scratch);
	arena_release(&c->arena);
}

static void entries_name_what_their_writers_mean(void **state)
{
	static const char *const modules[] = {"lm_head", "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj",
		"model.layers.10.mlp.gate", "model.layers.10.mlp.gate_proj"};
	static const struct { const char *entry, *named; /* a digit for each module */ } cases[] = {
		{"lm_head", "10000"}, {"model.layers.1", "00100"}, {"mlp.down_proj", "00100"}, {"proj", "00000"},
		{"model.layers.0*", "01000"}, {"model.layers.1*", "00111"}, {"*gate", "00010"}, {"*.mlp.*proj", "00101"},
		{"**q_proj**", "01000"}, {"re:.*gate$", "00010"}, {"re:.*gate", "00011"}, {"re:mlp", "00000"},
		{"re:.*\\\\.layers\\\\.[0-9]\\\\..*", "01100"}, {"re:.*\\\\.\\\\d\\\\.(?:mlp|self_attn)\\\\.", "01100"},
		{"re:.*layers.(0|10).*", "01011"}, {"re:model.*?_proj$", "01101"}, {"re:^lm_head$", "10000"},
		{"re:.*[^e]$", "11101"}, {"re:.*\\\\w+_(q|down)", "00000"}, {"re:[\\\\w.]+gate", "00011"}};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		enum { N = sizeof modules / sizeof modules[0] };
		Compile c;
		bool is_named[N] = {false};
		char seen[N + 1] = "";
		int hits = 0;
		assert_true(read_entry(&c, cases[i].entry));
		int n = quant_matches(&c.model.quant.ignore.at[0], modules, N, is_named);
		for (int k = 0; k < N; k++) {
			seen[k] = is_named[k] ? '1' : '0';
			hits += is_named[k];
		}
		if (strcmp(seen, cases[i].named) != 0)
			fail_msg("%s names %s, not %s", cases[i].entry, seen, cases[i].named);
		assert_int_equal(n, hits);
		free_compile(&c);
	}
}

static void expressions_that_may_mean_something_else_are_refused(void **state)
{
	static const char *const entries[] = {"re:(?!lm_head).*", "re:a{2}", "re:a++", "re:(a", "re:a)b(", "re:\\\\bmlp",
		"re:(a)\\\\1", "re:[a", "re:[]a]", "re:[\\\\n]", "re:a\\\\", "re:a**"};
	(void)state;
	for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
		Compile c;
		if (read_entry(&c, entries[i]))
			fail_msg("%s was read", entries[i]);
		assert_int_equal(c.diags.list[0].code, A0208);
		assert_int_equal(c.model.quant.ignore.n, 0);
		free_compile(&c);
	}
}

static void scales_are_positive_numbers(void **state)
{
	static const uint8_t e4m3[] = {1, 0x7e, 0x38, 0}, e8m0[] = {0, 254, 255}, sign[] = {0x38, 0x81};
	static const float f32[] = {1, 0x1p-149f, 3e38f, -0.0f};
	(void)state;
	assert_int_equal(first_bad_scale(DT_e4m3, e4m3, 3), -1);
	assert_int_equal(first_bad_scale(DT_e4m3, e4m3, 4), 3);
	assert_int_equal(first_bad_scale(DT_e4m3, sign, 2), 1);
	assert_int_equal(first_bad_scale(DT_e8m0, e8m0, 2), -1);
	assert_int_equal(first_bad_scale(DT_e8m0, e8m0, 3), 2);
	assert_int_equal(first_bad_scale(DT_f32, f32, 3), -1);
	assert_int_equal(first_bad_scale(DT_f32, f32, 4), 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(entries_name_what_their_writers_mean),
		cmocka_unit_test(expressions_that_may_mean_something_else_are_refused),
		cmocka_unit_test(scales_are_positive_numbers)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
