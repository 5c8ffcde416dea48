/* test_misuse.c - the library asked for what makes no sense: a status that says so, and nothing is lost. */
#include "compiler/chat/template.h"
#include "tests/unit/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static int take_layer(void *ctx, int layer, int pos, int rows, int cols, const float *hidden)
{
	(void)ctx, (void)layer, (void)pos, (void)rows, (void)cols, (void)hidden;
	return 0;
}

#define REFUSED(call) assert_int_equal(call, ATLAS_ARGUMENT)

/* Spans that are not ascending, apart and within the text; a chat without what it is made of. */
static void spans_and_chats_are_refused(const AtlasPlan *plan)
{
	static const AtlasSpan wrong[][2] = {{{2, 1}}, {{0, 5}}, {{SIZE_MAX, SIZE_MAX}}, {{1, 3}, {2, 4}},
		{{2, 3}, {0, 1}}};
	static const size_t n_wrong[] = {1, 1, 1, 2, 2};
	const AtlasSpan *spans = wrong[0];
	const char *text;
	int32_t token;
	size_t n, n_spans;
	AtlasChat *chat;
	AtlasError error;
	REFUSED(atlas_encode_spans(NULL, "x", 1, 0, NULL, 0, &token, 1, &n));
	REFUSED(atlas_encode_spans(plan, NULL, 1, 0, NULL, 0, &token, 1, &n));
	REFUSED(atlas_encode_spans(plan, "x", 1, 0, NULL, 1, &token, 1, &n));
	REFUSED(atlas_encode_spans(plan, "x", 1, 0, NULL, 0, NULL, 1, &n));
	REFUSED(atlas_encode_spans(plan, "x", 1, 0, NULL, 0, &token, 1, NULL));
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		REFUSED(atlas_encode_spans(plan, "text", 4, 0, wrong[i], n_wrong[i], &token, 1, &n));
	REFUSED(atlas_chat_render(NULL, "{}", 2, 0, &chat, &error));
	assert_null(chat);
	assert_string_equal(error.text, "plan, json and chat must not be NULL");
	REFUSED(atlas_chat_render(plan, "{}", 2, 0, NULL, NULL));
	REFUSED(atlas_chat_render(plan, NULL, 2, 0, &chat, NULL));
	assert_int_equal(atlas_chat_render(plan, "{}", 2, 0, &chat, &error), ATLAS_UNSUPPORTED); /* it has no template */
	assert_true(!chat && error.text[0]);
	REFUSED(atlas_chat_text(NULL, &text, &n, &spans, &n_spans));
	atlas_chat_free(NULL);
}

static void nulls_are_refused(void **state)
{
	const int32_t token = 5;
	const uint32_t words[2] = {1, 1};
	int32_t read;
	int slot, made;
	size_t n;
	const char *bytes;
	uint8_t key[32];
	AtlasEvent events[4];
	AtlasPlan *plan;
	AtlasSession *session;
	AtlasText *text;
	AtlasError error;
	AtlasPlanInfo info = {.struct_size = sizeof info};
	Collected scores = {0};
	const AtlasTop *top;
	AtlasTop one;
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
	REFUSED(atlas_plan_open(NULL, NULL, &plan, &error));
	assert_null(plan);
	assert_string_equal(error.text, "path and plan must not be NULL");
	REFUSED(atlas_plan_open("x", NULL, NULL, NULL));
	REFUSED(atlas_plan_info(NULL, &info));
	REFUSED(atlas_plan_info(r.plan, NULL));
	REFUSED(atlas_plan_signature(NULL, 0, key, NULL));
	REFUSED(atlas_read_key(NULL, key, &error));
	REFUSED(atlas_read_key("x", NULL, &error));
	REFUSED(atlas_session_open(NULL, NULL, &session, &error));
	assert_null(session);
	REFUSED(atlas_session_open(r.plan, NULL, NULL, &error));
	REFUSED(atlas_session_info(NULL, &(AtlasSessionInfo){.struct_size = sizeof(AtlasSessionInfo)}));
	REFUSED(atlas_session_info(r.session, NULL));
	REFUSED(atlas_start(NULL, &token, 1, NULL, 1, &slot));
	REFUSED(atlas_start(r.session, NULL, 1, NULL, 1, &slot));
	assert_string_equal(atlas_session_error(r.session), "tokens and slot must not be NULL");
	REFUSED(atlas_start(r.session, &token, 1, NULL, 1, NULL));
	REFUSED(atlas_request_start(NULL, &(AtlasRequest){.struct_size = sizeof(AtlasRequest)}, &slot));
	REFUSED(atlas_request_start(r.session, NULL, NULL));
	assert_int_equal(atlas_active(r.session), 0);
	REFUSED(atlas_step(NULL, events, 4, &made));
	REFUSED(atlas_step(r.session, NULL, 4, &made));
	REFUSED(atlas_step(r.session, events, 4, NULL));
	REFUSED(atlas_event_top(NULL, 0, &top, &made));
	REFUSED(atlas_event_top(r.session, 0, NULL, &made));
	REFUSED(atlas_event_top(r.session, 0, &top, NULL));
	REFUSED(atlas_event_top(r.session, 0, &top, &made)); /* no step was taken */
	REFUSED(atlas_cancel(NULL, 0));
	REFUSED(atlas_mask(NULL, 0, words, 1));
	REFUSED(atlas_mask(r.session, 0, NULL, 1));
	for (int i = -1; i < 6; i++)
		REFUSED(atlas_mask(r.session, i, words, 1));
	assert_string_equal(atlas_session_error(r.session), "words [1]: 2 expected");
	REFUSED(atlas_mask(r.session, 3, words, 2));
	assert_string_equal(atlas_session_error(r.session), "slot 3 holds no sequence with masks");
	atlas_forget_prefixes(NULL);
	atlas_forget_prefixes(r.session);
	assert_int_equal(atlas_reused_tokens(NULL, 0), 0);
	assert_int_equal(atlas_kept_tokens(NULL, &(AtlasRequest){.struct_size = sizeof(AtlasRequest)}), 0);
	assert_int_equal(atlas_kept_tokens(r.session, NULL), 0);
	assert_int_equal(atlas_kept_tokens(r.session, &(AtlasRequest){0}), 0);
	assert_int_equal(atlas_kept_tokens(r.session, &(AtlasRequest){.struct_size = sizeof(AtlasRequest)}), 0);
	for (int i = -1; i < 6; i++)
		assert_int_equal(atlas_reused_tokens(r.session, i), 0);
	REFUSED(atlas_score(NULL, &token, 1, take_logits, &scores));
	REFUSED(atlas_score(r.session, NULL, 1, take_logits, &scores));
	REFUSED(atlas_score(r.session, &token, 1, NULL, &scores));
	REFUSED(atlas_score_start(NULL, &token, 1, take_logits, &scores, &slot));
	REFUSED(atlas_score_start(r.session, NULL, 1, take_logits, &scores, &slot));
	REFUSED(atlas_score_start(r.session, &token, 1, NULL, &scores, &slot));
	REFUSED(atlas_score_start(r.session, &token, 1, take_logits, &scores, NULL));
	float row[40] = {0}, logprob = 1;
	assert_int_equal(atlas_score_top(NULL, row, 1, &logprob, &one, 1), 0);
	assert_int_equal(atlas_score_top(r.plan, NULL, 1, &logprob, &one, 1), 0);
	assert_int_equal(atlas_score_top(r.plan, row, 1, NULL, &one, 1), 0);
	assert_int_equal(atlas_score_top(r.plan, row, 1, &logprob, NULL, 1), 0);
	assert_int_equal(atlas_score_top(r.plan, row, -1, &logprob, &one, 1), 0);
	assert_int_equal(atlas_score_top(r.plan, row, 40, &logprob, &one, 1), 0);
	assert_true(logprob == 1);
	REFUSED(atlas_trace(r.session, &token, 1, NULL, &scores));
	REFUSED(atlas_encode(NULL, "x", 1, 0, &read, 1, &n));
	REFUSED(atlas_encode(r.plan, NULL, 1, 0, &read, 1, &n));
	REFUSED(atlas_encode(r.plan, "x", 1, 0, NULL, 1, &n));
	REFUSED(atlas_encode(r.plan, "x", 1, 0, &read, 1, NULL));
	spans_and_chats_are_refused(r.plan);
	REFUSED(atlas_text_open(NULL, 0, &text));
	REFUSED(atlas_text_open(r.plan, 0, NULL));
	REFUSED(atlas_text_push(NULL, 5, &bytes, &n));
	REFUSED(atlas_text_finish(NULL, &bytes, &n));
	REFUSED(atlas_text_stops(NULL, NULL, NULL, 0, 0));
	assert_int_equal(atlas_text_stopped(NULL), -1);
	REFUSED(atlas_trace(NULL, &token, 1, take_layer, &scores));
	REFUSED(atlas_trace(r.session, NULL, 1, take_layer, &scores));
	REFUSED(atlas_plan_open(NULL, NULL, NULL, NULL));
	REFUSED(atlas_read_key(NULL, NULL, NULL));
	REFUSED(atlas_session_open(NULL, NULL, NULL, NULL));
	REFUSED(atlas_plan_signature(r.plan, 0, NULL, NULL)); /* there is none */
	for (int i = -1; i < 100; i += 100 + !i)
		REFUSED(atlas_cancel(r.session, i));
	REFUSED(atlas_plan_info(r.plan, &(AtlasPlanInfo){.struct_size = 0}));
	REFUSED(atlas_session_info(r.session, &(AtlasSessionInfo){.struct_size = 0}));
	REFUSED(atlas_plan_open(r.made.path, &(AtlasPlanOptions){.struct_size = 0}, &plan, NULL));
	REFUSED(atlas_session_open(r.plan, &(AtlasSessionOptions){.struct_size = 0}, &session, NULL));
	REFUSED(atlas_session_open(r.plan, &(AtlasSessionOptions){.struct_size = sizeof(AtlasSessionOptions),
		.max_gap = -1}, &session, &error));
	assert_string_equal(error.text, "max_gap = -1: 0 or more rows expected");
	REFUSED(atlas_session_open(r.plan, &(AtlasSessionOptions){.struct_size = sizeof(AtlasSessionOptions), .mixed = 3},
		&session, &error));
	assert_string_equal(error.text, "mixed = 3: auto, off or on expected");
	REFUSED(atlas_plan_open(r.made.path, &(AtlasPlanOptions){.struct_size = sizeof(AtlasPlanOptions), .n_trust = 1},
		&plan, NULL));
	assert_int_equal(atlas_plan_open("/nowhere", NULL, &plan, NULL), ATLAS_IO);
	atlas_text_restart(NULL);
	atlas_text_close(NULL);
	atlas_session_close(NULL);
	atlas_plan_close(NULL);
	atlas_device_end(NULL);
	atlas_wake(NULL);
	atlas_device_end(atlas_device_start(-1));
	AtlasSampling s;
	atlas_sampling_init(r.plan, NULL);
	atlas_sampling_init(NULL, &s);
	assert_true(s.struct_size == sizeof s && s.top_p >= 1 && s.repetition_penalty >= 1);
	assert_int_equal(atlas_active(NULL), 0);
	assert_string_equal(atlas_session_error(NULL), "");
	assert_string_equal(atlas_status_name((AtlasStatus)-1), "UNKNOWN");
	assert_string_equal(atlas_status_text((AtlasStatus)99), "unknown status");
	assert_string_equal(atlas_status_advice((AtlasStatus)99), "");
	assert_int_equal(atlas_status_exit_code((AtlasStatus)99), 70);
	assert_true(strlen(atlas_version()) > 2);
	rig_close(&r);
}

/* The same of a text, which needs a plan with a tokenizer. */
static void nulls_of_texts_are_refused(void **state)
{
	const char *bytes;
	size_t n;
	AtlasText *text;
	char why[256];
	AtlasPlan *plan;
	Rig r;
	(void)state;
	rig_checkpoint(&r, "tests/fixtures/llama");
	const PlanBlob blobs[] = {r.made.blob, {"tokenizer", r.made.c.model.tokenizer, r.made.c.model.tokenizer_bytes}};
	PlanParts parts = r.made.parts;
	parts.blobs = blobs;
	parts.n_blobs = 2;
	assert_true(artifact_write(r.made.path, &parts, why, sizeof why));
	assert_int_equal(atlas_plan_open(r.made.path, NULL, &plan, &r.error), ATLAS_OK);
	assert_int_equal(atlas_text_open(plan, 0, &text), ATLAS_OK);
	const char *const stops[ATLAS_MAX_STOPS + 1] = {"x", NULL};
	const size_t n_bytes[ATLAS_MAX_STOPS + 1] = {1, 0}, too_long[] = {ATLAS_MAX_STOP_BYTES + 1};
	REFUSED(atlas_text_stops(text, NULL, n_bytes, 1, 0));
	REFUSED(atlas_text_stops(text, stops, NULL, 1, 0));
	REFUSED(atlas_text_stops(text, stops, n_bytes, 2, 0)); /* NULL */
	REFUSED(atlas_text_stops(text, stops, n_bytes + 1, 1, 0)); /* empty */
	REFUSED(atlas_text_stops(text, stops, too_long, 1, 0));
	REFUSED(atlas_text_stops(text, stops, n_bytes, ATLAS_MAX_STOPS + 1, 0));
	REFUSED(atlas_text_stops(text, stops, n_bytes, -1, 0));
	REFUSED(atlas_text_push(text, 5, NULL, &n));
	REFUSED(atlas_text_push(text, 5, &bytes, NULL));
	REFUSED(atlas_text_finish(text, NULL, &n));
	REFUSED(atlas_text_finish(text, &bytes, NULL));
	for (int64_t token = INT32_MIN; token <= INT32_MAX; token += INT32_MAX / 3) {
		const AtlasStatus s = atlas_text_push(text, (int32_t)token, &bytes, &n);
		assert_true(s == ATLAS_OK || s == ATLAS_TOKEN);
	}
	atlas_text_close(text);
	atlas_plan_close(plan);
	rig_close(&r);
}

/* Writes the rig's plan again with a tokenizer and the program of a chat template, whose byte `at` is changed; at < 0:
 * none. The status of opening it. */
static AtlasStatus open_with_chat(Rig *r, const char *template, int at, AtlasPlan **plan)
{
	ChatImage image;
	char why[256];
	Compile *c = &r->made.c;
	compile_template(&c->arena, &c->diags, "t", template, strlen(template), NULL, 0, &image);
	if (at >= 0)
		((char *)image.bytes)[at] ^= 0x55;
	const PlanBlob blobs[] = {r->made.blob, {"tokenizer", c->model.tokenizer, c->model.tokenizer_bytes},
		{"chat_program", image.bytes, image.n}};
	PlanParts parts = r->made.parts;
	parts.blobs = blobs;
	parts.n_blobs = 3;
	assert_true(artifact_write(r->made.path, &parts, why, sizeof why));
	return atlas_plan_open(r->made.path, NULL, plan, &r->error);
}

static void chats_are_made_or_refused(void **state)
{
	static const char json[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"<|x|>\"}]}";
	const AtlasSpan *spans, outside = {0, 9}, crossed[2] = {{0, 4}, {3, 5}}, good = {1, 3};
	const char *text;
	size_t n, n_spans;
	int32_t ids[16];
	AtlasChat *chat = NULL;
	AtlasPlan *plan;
	AtlasPlanInfo info = {.struct_size = sizeof info};
	Rig r;
	(void)state;
	rig_checkpoint(&r, "tests/fixtures/llama");
	assert_int_equal(atlas_plan_open(r.made.path, NULL, &plan, &r.error), ATLAS_OK);
	assert_int_equal(atlas_chat_render(plan, json, strlen(json), 0, &chat, &r.error), ATLAS_UNSUPPORTED);
	assert_string_equal(r.error.text, "the checkpoint has no chat template");
	assert_int_equal(atlas_encode_spans(plan, "abcde", 5, 0, NULL, 0, NULL, 0, &n), ATLAS_NO_TOKENIZER);
	atlas_plan_close(plan);
	assert_int_equal(open_with_chat(&r, "{{ messages[0].content }}!{{ x.y if x is defined }}", -1, &plan), ATLAS_OK);
	atlas_plan_info(plan, &info);
	assert_int_equal(info.has_chat, 1);
	REFUSED(atlas_chat_render(NULL, json, strlen(json), 0, &chat, &r.error));
	REFUSED(atlas_chat_render(plan, NULL, 5, 0, &chat, &r.error));
	REFUSED(atlas_chat_render(plan, json, strlen(json), 0, NULL, &r.error));
	REFUSED(atlas_chat_render(plan, NULL, 0, 0, &chat, NULL));
	REFUSED(atlas_chat_render(plan, "[1", 2, INT64_MAX, &chat, &r.error));
	assert_string_equal(r.error.text, "not JSON, line 1, column 3: expected ',' or ']'");
	assert_null(chat);
	assert_int_equal(atlas_chat_render(plan, json, strlen(json), INT64_MIN, &chat, NULL), ATLAS_OK);
	REFUSED(atlas_chat_text(NULL, &text, &n, &spans, &n_spans));
	REFUSED(atlas_chat_text(chat, NULL, &n, &spans, &n_spans));
	REFUSED(atlas_chat_text(chat, &text, NULL, &spans, &n_spans));
	REFUSED(atlas_chat_text(chat, &text, &n, NULL, &n_spans));
	REFUSED(atlas_chat_text(chat, &text, &n, &spans, NULL));
	assert_int_equal(atlas_chat_text(chat, &text, &n, &spans, &n_spans), ATLAS_OK);
	assert_string_equal(text, "<|x|>!");
	assert_true(n == 6 && n_spans == 1 && spans[0].begin == 5 && spans[0].end == 6);
	atlas_chat_free(chat);
	atlas_chat_free(NULL);
	REFUSED(atlas_encode_spans(NULL, "abcde", 5, 0, &good, 1, ids, 16, &n));
	REFUSED(atlas_encode_spans(plan, NULL, 5, 0, &good, 1, ids, 16, &n));
	REFUSED(atlas_encode_spans(plan, "abcde", 5, 0, NULL, 1, ids, 16, &n));
	REFUSED(atlas_encode_spans(plan, "abcde", 5, 0, &good, 1, NULL, 16, &n));
	REFUSED(atlas_encode_spans(plan, "abcde", 5, 0, &good, 1, ids, 16, NULL));
	REFUSED(atlas_encode_spans(plan, "abcde", 5, 0, &outside, 1, ids, 16, &n));
	REFUSED(atlas_encode_spans(plan, "abcde", 5, 0, crossed, 2, ids, 16, &n));
	assert_int_equal(atlas_encode_spans(plan, "abcde", 5, 0, &good, 1, ids, 16, &n), ATLAS_OK);
	assert_true(n > 0);
	atlas_plan_close(plan);
	for (int at = 0; at < 200; at += 3) { /* header, nodes: a damaged program is refused, or it can be run */
		const AtlasStatus s = open_with_chat(&r, "{{ messages[0].content }}", at, &plan);
		assert_true(s == ATLAS_OK || s == ATLAS_MALFORMED);
		if (s == ATLAS_MALFORMED) {
			assert_non_null(strstr(r.error.text, "section chat_program: compiled chat template: "));
			continue;
		}
		if (atlas_chat_render(plan, json, strlen(json), 0, &chat, &r.error) == ATLAS_OK)
			atlas_chat_free(chat);
		atlas_plan_close(plan);
	}
	rig_close(&r);
}

static char *text_of(const char *path)
{
	static char text[1 << 17];
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	text[fread(text, 1, sizeof text - 1, f)] = 0;
	fclose(f);
	return text;
}

/* Each function that atlas.h declares is in this file. */
static void no_function_is_left_out(void **state)
{
	char names[96][40];
	int n = 0;
	(void)state;
	for (const char *p = text_of("runtime/atlas.h"); (p = strstr(p, "atlas_")); p += 6) {
		const size_t length = strspn(p, "abcdefghijklmnopqrstuvwxyz_");
		const char *line = p;
		while (line[-1] != '\n')
			line--;
		if (p[length] != '(' || strspn(line, " *\t/") || length >= sizeof names[0] || n == 96)
			continue; /* in a comment */
		memcpy(names[n], p, length);
		names[n++][length] = 0;
	}
	assert_true(n >= 29);
	const char *here = text_of("tests/unit/test_misuse.c");
	for (int i = 0; i < n; i++) {
		strcat(names[i], "(");
		if (!strstr(here, names[i]))
			fail_msg("%s is not tested", names[i]);
	}
}

typedef struct Nosy { AtlasSession *session; int asked; } Nosy;

/* Asks its session for everything, of which nothing is given. */
static int ask_all(void *ctx, int pos, const float *logits)
{
	static const char why[] = "the session is asked from a callback of its own";
	Nosy *nosy = ctx;
	const int32_t tokens[] = {5, 6};
	AtlasEvent events[4];
	int slot, n;
	(void)pos, (void)logits;
	REFUSED(atlas_start(nosy->session, tokens, 2, NULL, 3, &slot));
	assert_string_equal(atlas_session_error(nosy->session), why);
	REFUSED(atlas_request_start(nosy->session, &(AtlasRequest){.struct_size = sizeof(AtlasRequest), .tokens = tokens,
		.n_tokens = 2, .max_new = 3}, &slot));
	REFUSED(atlas_step(nosy->session, events, 4, &n));
	REFUSED(atlas_cancel(nosy->session, 0));
	REFUSED(atlas_score(nosy->session, tokens, 2, ask_all, ctx));
	REFUSED(atlas_score_start(nosy->session, tokens, 2, ask_all, ctx, &slot));
	REFUSED(atlas_trace(nosy->session, tokens, 2, take_layer, ctx));
	nosy->asked++;
	return 0;
}

static int ask_all_of_a_layer(void *ctx, int layer, int pos, int rows, int cols, const float *hidden)
{
	(void)layer, (void)rows, (void)cols;
	return ask_all(ctx, pos, hidden);
}

/* A sequence that runs, a text that is scored by a callback that asks for more: all pages and slots are there behind
 * it, and the sequence goes on as if nothing had been. */
static void callbacks_lose_nothing(void **state)
{
	int answers[4][64], again[4][64], counts[4] = {0}, counts_again[4] = {0};
	AtlasFinish finish[4];
	(void)state;
	for (int is_nosy = 0; is_nosy < 2; is_nosy++) {
		int32_t tokens[9];
		int slot;
		Rig r;
		AtlasSessionInfo before = {.struct_size = sizeof before}, after = before;
		rig_open(&r, "llama", 0);
		fill_prompt(tokens, 9, 3);
		assert_int_equal(atlas_start(r.session, tokens, 9, NULL, 12, &slot), ATLAS_OK);
		atlas_session_info(r.session, &before);
		if (is_nosy) {
			Nosy nosy = {.session = r.session};
			assert_int_equal(atlas_score(r.session, tokens, 9, ask_all, &nosy), ATLAS_OK);
			assert_int_equal(nosy.asked, 9);
			assert_int_equal(atlas_trace(r.session, tokens, 9, ask_all_of_a_layer, &nosy), ATLAS_OK);
			assert_true(nosy.asked > 9);
		}
		atlas_session_info(r.session, &after);
		assert_true(before.free_pages == after.free_pages && before.free_slots == after.free_slots);
		run_all(r.session, is_nosy ? again : answers, is_nosy ? counts_again : counts, finish);
		rig_close(&r);
	}
	assert_true(counts[0] > 0 && counts[0] == counts_again[0]);
	assert_memory_equal(answers[0], again[0], sizeof(int) * (size_t)counts[0]);
}

/* From the least number above 0 on: next to no temperature is none, on every device. */
static void hardly_warm_is_greedy(void **state)
{
	static const float temperatures[] = {0, 1e-45f, 1e-42f, 1e-40f, 1e-38f, 1e-35f, 9e-31f, 1e-30f, 1e-20f, 1e-10f};
	int first[4][64], counts[4] = {0};
	AtlasFinish finish[4];
	(void)state;
	for (int device = 0; device < 2; device++)
		for (size_t i = 0; i < sizeof temperatures / sizeof temperatures[0]; i++) {
			int answers[4][64], n[4] = {0}, slot;
			int32_t tokens[9];
			AtlasSampling s;
			AtlasError error;
			Rig r;
			if (device == 0) {
				rig_open(&r, "llama", 0);
			} else {
				rig_plan(&r, "llama", 0);
				assert_int_equal(atlas_session_open(r.plan, &(AtlasSessionOptions){
					.struct_size = sizeof(AtlasSessionOptions), .device = "cpu", .n_threads = 1}, &r.session, &error),
					ATLAS_OK);
			}
			atlas_sampling_init(r.plan, &s);
			s.temperature = temperatures[i];
			fill_prompt(tokens, 9, 2);
			assert_int_equal(atlas_start(r.session, tokens, 9, &s, 16, &slot), ATLAS_OK);
			run_all(r.session, answers, n, finish);
			if (device == 0 && i == 0) {
				memcpy(first, answers, sizeof first);
				memcpy(counts, n, sizeof counts);
			}
			assert_int_equal(n[0], counts[0]);
			assert_memory_equal(answers[0], first[0], sizeof(int) * (size_t)n[0]);
			rig_close(&r);
		}
}

/* Penalties that could make a score infinite are the caller's mistake, not the GPU's. */
static void penalties_stay_numbers(void **state)
{
	const float far[] = {1e-45f, 1e-4f, 1001, 3e38f};
	const int32_t token = 5;
	int slot;
	AtlasSampling s;
	Rig r;
	(void)state;
	rig_open(&r, "llama", 0);
	for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
		atlas_sampling_init(r.plan, &s);
		s.repetition_penalty = far[i];
		REFUSED(atlas_start(r.session, &token, 1, &s, 1, &slot));
		assert_non_null(strstr(atlas_session_error(r.session), "repetition_penalty = "));
		atlas_sampling_init(r.plan, &s);
		s.frequency_penalty = i < 2 ? -1001 : far[i];
		REFUSED(atlas_start(r.session, &token, 1, &s, 1, &slot));
		assert_non_null(strstr(atlas_session_error(r.session), "frequency_penalty = "));
	}
	rig_close(&r);
}

static void open_either(Rig *r, int device)
{
	if (device == 0) {
		rig_open(r, "llama", 0);
		return;
	}
	rig_plan(r, "llama", 0);
	assert_int_equal(atlas_session_open(r->plan, &(AtlasSessionOptions){.struct_size = sizeof(AtlasSessionOptions),
		.device = "cpu", .n_threads = 1}, &r->session, &r->error), ATLAS_OK);
}

/* Whatever is asked for: it is refused as an argument, or it is done, and the session goes on. */
static void sampling_has_no_surprises(void **state)
{
	const float odd[] = {0, -0.0f, 1e-45f, 1e-40f, 1.17549435e-38f, 1e-30f, 1e-10f, 1e-3f, 0.5f, 1, 1.0000001f, 999,
		1e3f, 1e10f, 3.4028235e38f, INFINITY, -INFINITY, NAN, -1e-45f, -1, -3.4028235e38f};
	const int32_t odd_k[] = {0, 1, 2, 39, 40, 41, INT32_MAX, -1, INT32_MIN};
	enum { N = sizeof odd / sizeof odd[0], N_K = sizeof odd_k / sizeof odd_k[0], FIELDS = 6, PAIRS = 400 };
	(void)state;
	for (int device = 0; device < 2; device++) {
		uint64_t x = 88172645463325252u;
		int done = 0, refused = 0;
		Rig r;
		open_either(&r, device);
		for (int i = 0; i < FIELDS * N + N_K + PAIRS; i++) {
			AtlasSampling s;
			int32_t tokens[5];
			int slot, n, at[2] = {i / N, i / N}, value[2] = {i % N, i % N};
			AtlasEvent events[8];
			atlas_sampling_init(r.plan, &s);
			float *fields[FIELDS] = {&s.temperature, &s.top_p, &s.min_p, &s.repetition_penalty, &s.presence_penalty,
				&s.frequency_penalty};
			s.seed = x;
			if (i >= FIELDS * N + N_K) { /* two at a time, mostly of those that are allowed alone */
				for (int k = 0; k < 2; k++) {
					x ^= x << 13, x ^= x >> 7, x ^= x << 17;
					at[k] = (int)(x >> 8) & 0xff;
					value[k] = (int)(x >> 16) & 0xff;
				}
				s.top_k = odd_k[(x >> 24 & 0xff) % 7];
			}
			if (i >= FIELDS * N && i < FIELDS * N + N_K) {
				s.temperature = 0.8f;
				s.top_k = odd_k[i - FIELDS * N];
			} else {
				for (int k = 0; k < 2; k++)
					*fields[at[k] % FIELDS] = odd[value[k] % N];
			}
			fill_prompt(tokens, 5, i);
			const AtlasStatus status = atlas_start(r.session, tokens, 5, &s, 4, &slot);
			if (status != ATLAS_OK) {
				assert_int_equal(status, ATLAS_ARGUMENT);
				assert_non_null(strstr(atlas_session_error(r.session), " is out of range"));
				refused++;
				continue;
			}
			done++;
			while (atlas_active(r.session)) {
				assert_int_equal(atlas_step(r.session, events, 8, &n), ATLAS_OK);
				for (int k = 0; k < n; k++)
					if (events[k].finish == ATLAS_FAILED)
						fail_msg("%g %g %g %g %g %g, %d: no number", (double)s.temperature, (double)s.top_p,
							(double)s.min_p, (double)s.repetition_penalty, (double)s.presence_penalty,
							(double)s.frequency_penalty, s.top_k);
			}
		}
		assert_true(done > 100 && refused > 100);
		rig_close(&r);
	}
}

static void counts_far_out_are_refused(void **state)
{
	const int32_t tokens[2] = {5, 6};
	(void)state;
	for (int device = 0; device < 2; device++) {
		int slot, n, answers[4][64], counts[4] = {0};
		AtlasFinish finish[4];
		AtlasEvent events[4];
		Rig r;
		open_either(&r, device);
		for (int i = 0; i < 3; i++)
			REFUSED(atlas_start(r.session, tokens, 2, NULL, (const int[]){0, -1, INT32_MIN}[i], &slot));
		const int numbers[] = {0, -1, INT32_MIN, INT32_MAX};
		for (int i = 0; i < 4; i++)
			assert_int_equal(atlas_start(r.session, tokens, numbers[i], NULL, 1, &slot), ATLAS_CONTEXT);
		const int32_t strangers[] = {-1, 40, INT32_MAX};
		for (int i = 0; i < 3; i++)
			assert_int_equal(atlas_start(r.session, (const int32_t[]){5, strangers[i]}, 2, NULL, 1, &slot),
				ATLAS_TOKEN);
		REFUSED(atlas_step(r.session, events, 3, &n)); /* four slots */
		REFUSED(atlas_step(r.session, events, INT32_MIN, &n));
		assert_int_equal(atlas_start(r.session, tokens, 2, NULL, INT32_MAX, &slot), ATLAS_OK); /* to the end */
		assert_int_equal(atlas_cancel(r.session, slot), ATLAS_OK);
		assert_int_equal(atlas_start(r.session, tokens, 2, NULL, 3, &slot), ATLAS_OK);
		run_all(r.session, answers, counts, finish);
		rig_close(&r);
	}
}

/* A session has threads, which fork leaves behind: the child opens one of its own, of the plan that is open. */
static void a_child_opens_its_own_session(void **state)
{
	int answers[2][4][64], counts[2][4] = {{0}}, slot, status;
	int32_t tokens[9];
	AtlasFinish finish[4];
	Rig r;
	(void)state;
	const AtlasSessionOptions options = {.struct_size = sizeof options, .device = "cpu", .n_threads = 4};
	rig_plan(&r, "llama", 0);
	fill_prompt(tokens, 9, 3);
	assert_int_equal(atlas_session_open(r.plan, &options, &r.session, &r.error), ATLAS_OK);
	assert_int_equal(atlas_start(r.session, tokens, 9, NULL, 12, &slot), ATLAS_OK);
	run_all(r.session, answers[0], counts[0], finish);
	const pid_t child = fork();
	if (child == 0) {
		AtlasSession *own;
		bool same = atlas_session_open(r.plan, &options, &own, &r.error) == ATLAS_OK &&
			atlas_start(own, tokens, 9, NULL, 12, &slot) == ATLAS_OK;
		if (same)
			run_all(own, answers[1], counts[1], finish);
		same = same && counts[1][0] == counts[0][0] && memcmp(answers[1][0], answers[0][0],
			sizeof(int) * (size_t)counts[0][0]) == 0;
		atlas_session_close(own);
		_exit(same ? 0 : 1);
	}
	assert_true(child > 0 && waitpid(child, &status, 0) == child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nulls_are_refused),
		cmocka_unit_test(callbacks_lose_nothing),
		cmocka_unit_test(hardly_warm_is_greedy),
		cmocka_unit_test(penalties_stay_numbers), cmocka_unit_test(nulls_of_texts_are_refused),
		cmocka_unit_test(chats_are_made_or_refused),
		cmocka_unit_test(no_function_is_left_out), cmocka_unit_test(sampling_has_no_surprises),
		cmocka_unit_test(counts_far_out_are_refused), cmocka_unit_test(a_child_opens_its_own_session),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
