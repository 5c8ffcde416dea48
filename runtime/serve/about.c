/* about.c - what the loop answers itself: the model, the plan, the server's state (server.h). */
#include "artifacts/hash.h"
#include "artifacts/json_put.h"
#include "runtime/cli/page/page.h"
#include "runtime/serve/server.h"
#include "runtime/serve/tool_formats.h"

#include <string.h>
#include <time.h>

static void give(Server *s, Conn *conn, HttpReader *r, int status, const char *type)
{
	out_end(&s->out);
	answer_now(s, conn, r, status, type, s->out.at, s->out.n);
}

/* Members of both APIs' objects: the clients take those that they know. */
static void put_model(const Server *s, const char *name, FILE *out)
{
	char at[32];
	struct tm utc;
	const time_t created = (time_t)s->created;
	gmtime_r(&created, &utc);
	strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", &utc);
	fputs("{", out);
	json_field(out, "id", name);
	fprintf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"atlas\",\"type\":\"model\",",
		(long long)s->created);
	json_field(out, "display_name", name);
	fprintf(out, ",\"created_at\":\"%s\",\"lifecycle\":\"active\",\"max_model_len\":%d}", at, s->info.max_context);
}

void about_models(Server *s, Conn *conn, HttpReader *r, const char *id)
{
	FILE *out = out_begin(&s->out);
	ApiError e;
	for (int i = 0; i < s->limits.n_names; i++)
		if (id && strcmp(s->limits.names[i], id) == 0) {
			put_model(s, id, out);
			give(s, conn, r, 200, "application/json");
			return;
		}
	if (id) {
		api_refuse(&e, 404, "model", "there is no model %.200s: this server has %.200s", id, s->limits.names[0]);
		e.code = "model_not_found";
		answer_error_now(s, conn, r, &e);
		return;
	}
	fputs("{\"object\":\"list\",\"data\":[", out);
	for (int i = 0; i < s->limits.n_names; i++) {
		fputs(i ? "," : "", out);
		put_model(s, s->limits.names[i], out);
	}
	fputs("]}", out);
	give(s, conn, r, 200, "application/json");
}

static void put_signers(const Server *s, FILE *out)
{
	for (int i = 0; i < s->info.n_signatures; i++) {
		uint8_t key[32], id[32];
		atlas_plan_signature(s->limits.plan, i, key, id);
		fprintf(out, "%s{\"key\":\"", i ? "," : "");
		hex_put(out, key, 32);
		fputs("\",\"id\":\"", out);
		hex_put(out, id, 32);
		fputs("\"}", out);
	}
}

/* Rows of the compiled steps of a phase; the reference device needs none. */
static void put_buckets(const Server *s, PhaseKind kind, FILE *out)
{
	const Artifact *a = &s->limits.plan->artifact;
	const char *between = "";
	for (int t = 0; t < a->n_targets; t++)
		for (int i = 0; strcmp(a->targets[t].target, s->target) == 0 && i < a->targets[t].n_phases; i++)
			if (a->targets[t].phases[i].kind == kind) {
				fprintf(out, "%s%d", between, a->targets[t].phases[i].rows);
				between = ",";
			}
}

/* Of the plan, but for `mixed`: what the session does. */
void about_plan(Server *s, Conn *conn, HttpReader *r)
{
	const Graph *g = &s->limits.plan->artifact.graph;
	FILE *out = out_begin(&s->out);
	const char *certificate = s->options->certificate;
	fputs("{\"root\":\"", out);
	hex_put(out, s->info.root_hash, 32);
	fprintf(out, "\",\"system_fingerprint\":\"%s\",\"signers\":[", s->fingerprint);
	put_signers(s, out);
	fputc(']', out);
	if (certificate)
		fprintf(out, ",\"certificate\":{\"holds\":%s", *certificate ? "false" : "true");
	api_put_or_null(out, certificate ? "reason" : "certificate", certificate && *certificate ? certificate : NULL);
	fputs(certificate ? "}" : "", out);
	api_put_or_null(out, "receipt_sha256", s->options->receipt_sha256);
	api_put_or_null(out, "drafter", drafter_of(g));
	fputs(",\"ladder\":[", out);
	for (int i = 0; i < g->n_ladder; i++)
		fprintf(out, "%s[%d,%d]", i ? "," : "", g->ladder[i].slots, g->ladder[i].rows);
	fprintf(out, "],\"mixed\":%s,", s->metrics.session.mixed ? "true" : "false");
	json_fields(out, "family", s->info.family, "target", s->target, NULL);
	fputs(",\"buckets\":{\"prefill\":[", out);
	put_buckets(s, PREFILL, out);
	fputs("],\"decode\":[", out);
	put_buckets(s, DECODE, out);
	fprintf(out,
		"]},\"slots\":%d,\"max_context\":%d,\"page\":%d,\"pages\":%d,\"prompt_grid\":%d,\"verify_rows\":%d,"
		"\"vocab\":%d,\"layers\":%d,\"has_tokenizer\":%s,\"has_chat_template\":%s",
		s->info.slots, s->info.max_context, s->info.page, s->info.pages, s->info.prompt_grid, s->info.verify_rows,
		s->info.vocab, s->info.n_layers, s->info.has_tokenizer ? "true" : "false",
		s->info.has_chat ? "true" : "false");
	fprintf(out, ",\"has_reasoning\":%s,\"tool_format\":", s->limits.reasoning ? "true" : "false");
	if (s->limits.tools)
		json_quoted(out, s->limits.tools->name);
	else
		fputs("null", out);
	fputc('}', out);
	give(s, conn, r, 200, "application/json");
}

/* The same for all, so that it needs no key: its script asks for what it shows. */
void about_page(Server *s, Conn *conn, HttpReader *r)
{
	static const char more[] = "serve";
	static const char fields[] = "Content-Security-Policy: frame-ancestors 'none'\r\n"
		"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n";
	char footer[80];
	FILE *out = out_begin(&s->out);
	snprintf(footer, sizeof footer, "atlas %s", atlas_version());
	page_open(out, "atlas serve", more);
	fputs(page_text_of("serve.html"), out);
	page_close(out, footer, more);
	out_end(&s->out);
	answer_with(s, conn, r, 200, "text/html; charset=utf-8", fields, s->out.at, s->out.n);
}

static void give_state(Server *s, Conn *conn, HttpReader *r, int status, const char *word)
{
	FILE *out = out_begin(&s->out);
	fprintf(out, "{\"status\":\"%s\"", word);
	if (s->exit_code) {
		fputs(",\"reason\":", out);
		json_quoted(out, s->failure);
	}
	fputc('}', out);
	give(s, conn, r, status, "application/json");
}

void about_health(Server *s, Conn *conn, HttpReader *r)
{
	server_look(s);
	give_state(s, conn, r, s->exit_code ? 503 : 200, s->exit_code ? "failed" : "ok");
}

void about_ready(Server *s, Conn *conn, HttpReader *r)
{
	static const char *const words[] = {"loading", "ready", "draining", "replaced"};
	give_state(s, conn, r, !s->exit_code && s->state == READY ? 200 : 503, s->exit_code ? "failed" : words[s->state]);
}

void about_metrics(Server *s, Conn *conn, HttpReader *r)
{
	metrics_put(&s->metrics, s->limits.plan, &s->info, s->target, out_begin(&s->out));
	give(s, conn, r, 200, "text/plain; version=0.0.4; charset=utf-8");
}
