/* tokens.c - POST /tokenize and /detokenize, in the shapes that vLLM gave them, and counts of Messages (server.h). */
#include "artifacts/json_put.h"
#include "runtime/serve/server.h"

#include <stdlib.h>
#include <string.h>

static void gone(Call *c) { (void)c; } /* the worker brings it back */

static bool put_ids(Call *c, const ApiPrompt *p)
{
	FILE *out = open_memstream(&c->text, &c->n_text);
	if (!out)
		return api_refuse(&c->error, 500, NULL, "no memory");
	fprintf(out, "{\"count\":%d,\"max_model_len\":%d,\"tokens\":[", p->n, c->s->info.max_context);
	for (int i = 0; i < p->n; i++)
		fprintf(out, "%s%d", i ? "," : "", p->tokens[i]);
	fputs("],\"token_strs\":null}", out);
	return fclose(out) == 0 || api_refuse(&c->error, 500, NULL, "no memory");
}

static bool encode(Call *c, json_t *o, ApiPrompt *p)
{
	ApiError *e = &c->error;
	const char *text = NULL;
	bool adds = true;
	if (!api_check_model(&c->s->limits, o, e) || !api_bool(o, "add_special_tokens", &adds, e) ||
		!api_text(o, "prompt", &text, e))
		return false;
	if (json_is_true(api_get(o, "return_token_strs")))
		return api_refuse(e, 400, "return_token_strs", "return_token_strs: /detokenize gives the text of ids");
	if (api_get(o, "messages")) {
		ApiRequest r = {.wants_prompt = true};
		const bool good = api_read_tools(&c->s->limits, o, &r, e) && api_prompt_of_chat(&c->s->limits, o, p, e);
		api_request_free(&r);
		return good;
	}
	if (!text)
		return api_refuse(e, 400, "prompt", "prompt is missing");
	return api_encode(&c->s->limits, text, json_string_length(json_object_get(o, "prompt")),
		ATLAS_PARSE_SPECIAL | (adds ? ATLAS_ADD_SPECIAL : 0), p, e);
}

static bool decode(Call *c, json_t *o, ApiPrompt *p)
{
	ApiError *e = &c->error;
	json_t *ids = api_get(o, "tokens");
	if (!api_check_model(&c->s->limits, o, e))
		return false;
	if (!ids)
		return api_refuse(e, 400, "tokens", "tokens is missing");
	if (!c->s->info.has_tokenizer)
		return api_refuse(e, 400, "tokens", "the plan holds no tokenizer");
	if (json_array_size(ids) && !api_prompt_of_ids(&c->s->limits, ids, "tokens", p, e))
		return false;
	if (!json_is_array(ids))
		return api_refuse(e, 400, "tokens", "tokens is %s: expected a list of token ids", api_kind(ids));
	FILE *out = open_memstream(&c->text, &c->n_text);
	if (!out)
		return api_refuse(e, 500, NULL, "no memory");
	fputs("{\"prompt\":", out);
	json_text(out, p->text ? p->text : "", p->n_bytes);
	fputc('}', out);
	return fclose(out) == 0 || api_refuse(e, 500, NULL, "no memory");
}

static void work(Call *c, bool encodes)
{
	ApiPrompt p = {0};
	json_t *o = api_parse(c->body, c->n_body, &c->error);
	if (o && encodes && encode(c, o, &p))
		put_ids(c, &p);
	else if (o && !encodes)
		decode(c, o, &p);
	json_decref(o);
	free(p.tokens);
	free(p.text);
}

/* What the request would send, counted. */
static void work_count(Job *job)
{
	Call *c = (Call *)job;
	ApiRequest r;
	const bool good = api_read_request(&c->s->limits, api_read_count, c->body, c->n_body, &r, &c->error);
	FILE *out = good ? open_memstream(&c->text, &c->n_text) : NULL;
	if (out)
		fprintf(out, "{\"input_tokens\":%d}", r.prompts[0].n);
	if (good && (!out || fclose(out) != 0))
		api_refuse(&c->error, 500, NULL, "no memory");
	api_request_free(&r);
}

static void work_encode(Job *job) { work((Call *)job, true); }
static void work_decode(Job *job) { work((Call *)job, false); }

static void done(Job *job)
{
	Call *c = (Call *)job;
	log_request(c->s, c->id, c->route, c->error.status ? c->error.status : 200, c->began, "");
	if (c->conn && c->error.status)
		call_answer_error(c);
	else if (c->conn)
		call_answer(c, 200, "application/json", c->text, c->n_text);
	call_free(c);
}

static void start(Server *s, Conn *conn, HttpReader *r, void (*work_of)(Job *))
{
	Call *c = call_open(s, conn, r, sizeof *c);
	if (!c)
		return;
	c->job = (Job){.work = work_of, .done = done};
	c->gone = gone;
	workers_add(s->workers, &c->job);
}

void tokens_count(Server *s, Conn *conn, HttpReader *r) { start(s, conn, r, work_count); }
void tokens_encode(Server *s, Conn *conn, HttpReader *r) { start(s, conn, r, work_encode); }
void tokens_decode(Server *s, Conn *conn, HttpReader *r) { start(s, conn, r, work_decode); }
