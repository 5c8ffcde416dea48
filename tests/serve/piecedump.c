/* piecedump - what answers are parsed to, and which format of calls a chat template has, for tests in Python.
 *
 * Requests come on stdin: one byte kind, uint32 length, payload; integers little-endian. Replies: uint32 length, text.
 *   'g' names and values of globals of templates, each with a final NUL. No reply
 *   't' a chat template; reply: JSON {"format", "short_ids", "reasoning"}, or null where it is not compiled;
 *       reasoning: what opens it, or null
 *   'p' JSON {"format", "tools", "reasoning", "begins", "cuts"}: the answer's bytes come in an 'a'. No reply.
 *       reasoning: a text with the marks of it, or false
 *   'a' the bytes of an answer; reply: a JSON list of its pieces, text and reasoning that come one after the other as
 *       one: ["text", T], ["reasoning", T], ["call", N, name, arguments]
 */
#include "artifacts/json_put.h"
#include "compiler/chat/template.h"
#include "runtime/serve/pieces.h"
#include "runtime/serve/tool_formats.h"
#include "runtime/text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GLOBALS = 32 };

static void take(void *p, size_t n)
{
	if (n && fread(p, 1, n, stdin) != n)
		exit(EXIT_ENVIRONMENT);
}

static void reply(const char *text, size_t n)
{
	const uint32_t length = (uint32_t)n;
	if (fwrite(&length, sizeof length, 1, stdout) != 1 || (n && fwrite(text, 1, n, stdout) != n))
		exit(EXIT_ENVIRONMENT);
}

typedef struct State {
	Arena kept;
	NamedText globals[MAX_GLOBALS];
	int n_globals;
	json_t *setting;
	FILE *out;
	const char *between;
	PieceKind kind;   /* of the piece that is open */
	char *text; size_t n_text, cap_text;
	bool is_open;
} State;

static void set_globals(State *s, const char *text, size_t n)
{
	s->n_globals = 0;
	for (const char *at = text; at < text + n && s->n_globals < MAX_GLOBALS;) {
		const char *name = arena_strdup(&s->kept, at);
		at += strlen(at) + 1;
		s->globals[s->n_globals++] = (NamedText){name, arena_strdup(&s->kept, at)};
		at += strlen(at) + 1;
	}
}

static void find_format(State *s, const char *text, size_t n)
{
	Arena arena = {0};
	Diags d = {.arena = &arena};
	ChatImage image;
	ChatProgram program;
	char why[200], line[200] = "null";
	compile_template(&arena, &d, "t", text, n, s->globals, s->n_globals, &image);
	if (chat_open(&program, image.bytes, image.n, why, sizeof why) && program.header->n_nodes > 0) {
		const ToolTemplate t = tool_template_of(&program);
		snprintf(line, sizeof line, "{\"format\":%s%s%s,\"short_ids\":%s,\"reasoning\":%s%s%s}", t.format ? "\"" : "",
			t.format ? t.format->name : "null", t.format ? "\"" : "", t.has_short_ids ? "true" : "false",
			t.reasoning ? "\"" : "", t.reasoning ? t.reasoning->opener : "null", t.reasoning ? "\"" : "");
	}
	reply(line, strlen(line));
	arena_release(&arena);
}

static void end_piece(State *s)
{
	if (!s->is_open)
		return;
	fprintf(s->out, "%s[\"%s\",", s->between, s->kind == PIECE_TEXT ? "text" : "reasoning");
	json_text(s->out, s->text, s->n_text);
	fputc(']', s->out);
	s->between = ",";
	s->is_open = false;
	s->n_text = 0;
}

static bool take_piece(void *ctx, const Piece *piece)
{
	State *s = ctx;
	size_t length;
	if (piece->kind == PIECE_CALL || piece->kind != s->kind)
		end_piece(s);
	if (piece->kind == PIECE_CALL) {
		fprintf(s->out, "%s[\"call\",%d,", s->between, piece->call);
		json_text(s->out, piece->bytes, piece->n);
		fputc(',', s->out);
		json_text(s->out, piece->arguments, piece->n_arguments);
		fputc(']', s->out);
		s->between = ",";
		return true;
	}
	for (size_t i = 0; i < piece->n; i += length)
		if (!(length = json_code_point((const unsigned char *)piece->bytes + i, piece->n - i))) {
			fputs("a piece has half a code point\n", stderr);
			exit(EXIT_INTERNAL);
		}
	if (!piece->n) {
		fputs("a piece is empty\n", stderr);
		exit(EXIT_INTERNAL);
	}
	s->kind = piece->kind;
	s->is_open = true;
	if (s->cap_text - s->n_text < piece->n) {
		s->cap_text = (s->n_text + piece->n) * 2;
		if (!(s->text = realloc(s->text, s->cap_text)))
			exit(EXIT_ENVIRONMENT);
	}
	memcpy(s->text + s->n_text, piece->bytes, piece->n);
	s->n_text += piece->n;
	return true;
}

/* cuts: where pushes end, ascending; null: a push for each byte. */
static void parse(State *s, const char *text, size_t n)
{
	json_t *cuts = json_object_get(s->setting, "cuts");
	const char *format = json_string_value(json_object_get(s->setting, "format"));
	char *reply_text = NULL;
	size_t n_reply, at = 0;
	const char *marks = json_string_value(json_object_get(s->setting, "reasoning"));
	PieceParser *p = pieces_open(format ? tool_format_named(format) : NULL, json_object_get(s->setting, "tools"),
		marks ? reasoning_of(marks, strlen(marks)) : NULL, json_is_true(json_object_get(s->setting, "begins")));
	s->out = open_memstream(&reply_text, &n_reply);
	s->between = "[";
	bool good = p && s->out;
	const size_t n_cuts = json_is_array(cuts) ? json_array_size(cuts) : n;
	for (size_t i = 0; good && i <= n_cuts; i++) {
		const size_t to = i == n_cuts ? n
			: json_is_array(cuts)     ? (size_t)json_integer_value(json_array_get(cuts, i))
									  : i + 1;
		char *exact = malloc(to - at + 1); /* a sanitizer sees one byte too far */
		if (!exact || to < at || to > n)
			exit(EXIT_ENVIRONMENT);
		memcpy(exact, text + at, to - at);
		exact = realloc(exact, to - at ? to - at : 1);
		good = pieces_push(p, exact, to - at, take_piece, s);
		free(exact);
		at = to;
	}
	if (!good || !pieces_finish(p, take_piece, s))
		exit(EXIT_ENVIRONMENT);
	end_piece(s);
	pieces_close(p);
	fputs(strcmp(s->between, "[") == 0 ? "[]" : "]", s->out);
	if (fclose(s->out) != 0)
		exit(EXIT_ENVIRONMENT);
	reply(reply_text, n_reply);
	free(reply_text);
}

int main(void)
{
	State s = {0};
	char kind;
	while (fread(&kind, 1, 1, stdin) == 1) {
		uint32_t n;
		take(&n, sizeof n);
		char *payload = malloc((size_t)n + 1);
		if (!payload)
			exit(EXIT_ENVIRONMENT);
		take(payload, n);
		payload[n] = 0;
		if (kind == 'g') {
			set_globals(&s, payload, n);
		} else if (kind == 't') {
			find_format(&s, payload, n);
		} else if (kind == 'p') {
			json_decref(s.setting);
			s.setting = json_loadb(payload, n, 0, NULL);
		} else {
			parse(&s, payload, n);
		}
		free(payload);
		fflush(stdout);
	}
	json_decref(s.setting);
	free(s.text);
	arena_release(&s.kept);
	return 0;
}
