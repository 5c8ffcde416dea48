/* chat_prompt.c - messages to token ids, by the chat template of a plan.
 *
 * The day that a template writes is --date, else today in UTC.
 */
#include "runtime/cli/generate/chat_prompt.h"
#include "artifacts/json_put.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool messages_add(Messages *m, const char *role, const char *text, size_t n)
{
	Message *at = realloc(m->at, sizeof *at * (size_t)(m->n + 1));
	char *copy = malloc(n + 1);
	m->at = at ? at : m->at;
	if (!at || !copy) {
		free(copy);
		return false;
	}
	memcpy(copy, text, n);
	copy[n] = 0;
	at[m->n++] = (Message){role, copy, n};
	return true;
}

void messages_cut(Messages *m, int n)
{
	while (m->n > n)
		free(m->at[--m->n].text);
}

void messages_free(Messages *m)
{
	messages_cut(m, 0);
	free(m->at);
	*m = (Messages){0};
}

static void write_message(FILE *out, const char *role, const char *text, size_t n, bool is_first)
{
	fprintf(out, "%s\n  {\"role\": \"%s\", \"content\": ", is_first ? "" : ",", role);
	json_text(out, text, n);
	fputc('}', out);
}

void messages_write(const char *system, const Messages *m, FILE *out)
{
	fputs("{\"messages\": [", out);
	if (system)
		write_message(out, "system", system, strlen(system), true);
	for (int i = 0; i < m->n; i++)
		write_message(out, m->at[i].role, m->at[i].text, m->at[i].n, !system && i == 0);
	fputs("\n]}\n", out);
}

static int encode(const Args *args, const AtlasPlan *plan, const AtlasChat *chat, Tokens *tokens)
{
	const char *text;
	const AtlasSpan *spans;
	size_t n, n_spans, count = 0;
	AtlasError error = {0};
	atlas_chat_text(chat, &text, &n, &spans, &n_spans);
	for (size_t cap = n + 8;; cap = count) { /* enough for nearly every text: normalisation may lengthen it */
		int32_t *ids = realloc(tokens->ids, cap * sizeof *ids);
		tokens->ids = ids ? ids : tokens->ids;
		if (!ids || cap > INT_MAX)
			return cli_say(args, EXIT_ENVIRONMENT, "no memory for %zu tokens", cap);
		error.status = atlas_encode_spans(plan, text, n, 0, spans, n_spans, ids, cap, &count);
		if (error.status != ATLAS_OK)
			return cli_fail(args, &error);
		if (count <= cap)
			break;
	}
	tokens->n = (int)count;
	return 0;
}

int chat_prompt(const Args *args, const AtlasPlan *plan, const char *system, const Messages *m, Tokens *tokens)
{
	char *json = NULL;
	size_t n = 0;
	AtlasError error = {0};
	AtlasChat *chat;
	FILE *out = open_memstream(&json, &n);
	*tokens = (Tokens){0};
	if (out)
		messages_write(system, m, out);
	if (!out || fclose(out) != 0) {
		free(json);
		return cli_say(args, EXIT_ENVIRONMENT, "no memory for the conversation");
	}
	int code = 0;
	const int64_t now = args->date >= 0 ? args->date : (int64_t)time(NULL);
	if (atlas_chat_render(plan, json, n, now, &chat, &error) != ATLAS_OK)
		code = cli_fail(args, &error);
	else {
		code = encode(args, plan, chat, tokens);
		atlas_chat_free(chat);
	}
	free(json);
	return code;
}
