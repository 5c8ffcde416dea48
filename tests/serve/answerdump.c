/* answerdump - the bytes of answers of every API, whose tokens and parts a test prescribes.
 *
 * On stdin, JSON: {"path", "max_new", "n", "logprobs", "usage", "one_call", "custom": [names], "repeated": {...},
 * "tokens": [{"choice", "pieces": [["text" | "reasoning", T] | ["call", NAME, ARGUMENTS]], "logprob",
 * "finish": "stop" | "length"}], "error"}. A token without pieces is held back. On stdout, JSON: {"stream", "whole"},
 * of one answer. "error": the stream breaks off with it after the last token.
 */
#include "artifacts/json_put.h"
#include "runtime/serve/generation.h"

#include <stdlib.h>
#include <string.h>

/* A parser that gives what is prescribed, in place of runtime/serve/pieces.c ---------------------- */

struct PieceParser { int n_calls; };
static json_t *prescribed; /* by the token that is being taken; NULL = they have been given */

PieceParser *pieces_open(
	const ToolFormat *format, json_t *tools, const Reasoning *reasoning, bool begins_in_reasoning)
{
	(void)format, (void)tools, (void)reasoning, (void)begins_in_reasoning;
	return calloc(1, sizeof(PieceParser));
}

bool pieces_push(PieceParser *p, const char *bytes, size_t n, PieceSink sink, void *ctx)
{
	json_t *all = prescribed, *one;
	size_t i;
	(void)bytes, (void)n;
	prescribed = NULL;
	json_array_foreach(all, i, one) {
		const char *kind = json_string_value(json_array_get(one, 0));
		json_t *text = json_array_get(one, 1), *arguments = json_array_get(one, 2);
		Piece piece = {.bytes = json_string_value(text), .n = json_string_length(text),
			.arguments = json_string_value(arguments), .n_arguments = json_string_length(arguments)};
		piece.kind = *kind == 't' ? PIECE_TEXT : *kind == 'r' ? PIECE_REASONING : PIECE_CALL;
		piece.call = piece.kind == PIECE_CALL ? p->n_calls++ : 0;
		if (!sink(ctx, &piece))
			return false;
	}
	return true;
}

bool pieces_finish(PieceParser *p, PieceSink sink, void *ctx)
{
	return pieces_push(p, "", 0, sink, ctx);
}

void pieces_structured(PieceParser *p) { (void)p; }

void pieces_close(PieceParser *p) { free(p); }

/* Answers ------------------------------------------------------------ */

static long number(json_t *o, const char *name) { return (long)json_integer_value(json_object_get(o, name)); }

static void take_token(Generation *g, json_t *token, FILE *out)
{
	Choice *c = &g->choices[number(token, "choice")];
	const char *finish = json_string_value(json_object_get(token, "finish"));
	EngineEvent e = {.sequence = &c->sequence, .kind = ENGINE_TOKEN, .is_last = finish != NULL,
		.logprob = (float)json_number_value(json_object_get(token, "logprob")),
		.finish = !finish ? ATLAS_RUNNING : *finish == 's' ? ATLAS_STOP : ATLAS_LENGTH};
	prescribed = json_object_get(token, "pieces");
	if (!choice_take_token(g, c, &e))
		exit(1);
	g->n_finished += c->finish != NULL;
	answer_put_news(g, c, out);
}

static void open_choices(Generation *g, FILE *out)
{
	static ApiPrompt prompt;
	g->choices = calloc((size_t)g->n_choices, sizeof *g->choices);
	for (int i = 0; i < g->n_choices; i++) {
		g->choices[i].index = i;
		g->choices[i].prompt = &prompt;
		g->choices[i].sequence.owner = g;
		if (!choice_open(g, &g->choices[i]))
			exit(1);
	}
	if (g->api->head) {
		size_t n;
		FILE *head = open_memstream(&g->chunk_head, &n);
		g->api->head(g, head);
		fclose(head);
	}
	for (int i = 0; i < g->n_choices; i++)
		answer_put_news(g, &g->choices[i], out);
}

static void put_answers(json_t *o, FILE *stream, FILE *whole)
{
	static const char *const names[] = {"tiny"};
	static AtlasPlan plan; /* without a tokenizer */
	static AtlasPlanInfo info;
	static Server s;
	static Generation g;
	json_t *custom = json_object_get(o, "custom"), *value;
	const char *error = json_string_value(json_object_get(o, "error"));
	size_t i;
	s.limits = (ApiLimits){.plan = &plan, .info = &info, .names = names, .n_names = 1};
	strcpy(s.fingerprint, "0123456789ab");
	g.call.s = &s;
	g.api = api_of_path(json_string_value(json_object_get(o, "path")));
	g.request.max_new = (int)number(o, "max_new");
	g.request.logprobs = json_is_true(json_object_get(o, "logprobs"));
	g.request.stream = true;
	g.request.include_usage = json_is_true(json_object_get(o, "usage"));
	g.request.one_call = json_is_true(json_object_get(o, "one_call"));
	g.request.custom_tools = json_object();
	json_array_foreach(custom, i, value)
		json_object_set_new(g.request.custom_tools, json_string_value(value), json_true());
	g.request.repeated = json_dumps(json_object_get(o, "repeated"), JSON_COMPACT);
	g.n_choices = number(o, "n") ? (int)number(o, "n") : 1;
	g.prompt_tokens = 7;
	g.created = 1700000000;
	call_put_random(g.answer_id, g.api->answer_id);
	open_choices(&g, stream);
	json_array_foreach(json_object_get(o, "tokens"), i, value)
		take_token(&g, value, stream);
	if (error) {
		ApiError e;
		api_refuse(&e, 503, NULL, "%s", error);
		g.api->failure(&g, &e, stream);
	} else {
		g.api->whole(&g, whole);
	}
	for (int k = 0; k < g.n_choices; k++)
		choice_close(&g.choices[k]);
	free(g.choices);
	free(g.chunk_head);
	api_request_free(&g.request);
}

int main(void)
{
	char *stream, *whole;
	size_t n_stream, n_whole;
	json_t *o = json_loadf(stdin, 0, NULL);
	FILE *a = open_memstream(&stream, &n_stream), *b = open_memstream(&whole, &n_whole);
	if (!o || !a || !b)
		return 2;
	put_answers(o, a, b);
	fclose(a);
	fclose(b);
	json_decref(o);
	fputs("{\"stream\":", stdout);
	json_text(stdout, stream, n_stream);
	fputs(",\"whole\":", stdout);
	json_text(stdout, whole, n_whole);
	puts("}");
	free(stream);
	free(whole);
	return 0;
}
