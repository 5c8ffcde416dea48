/* chatdump - compiles chat templates and renders conversations with them, for tests in Python.
 *
 * Requests come on stdin: one byte kind, uint32 length, payload; integers little-endian.
 *   'g' names and values of globals, each with a final NUL; for templates from here on. No reply
 *   't' a template; reply: one byte, 1 = compiled; uint32 length, the remarks, a line each
 *   'b' nothing; reply: uint32 length, the program of the last template
 *   'r' int64 seconds since 1970, then a conversation; reply: one byte ChatFault; uint32 length, the prompt or the
 *       failure's text; uint32 spans, each as two uint32
 *   'l' as 'r', but with limits before the conversation: int64 fuel, int64 bytes of output, int64 bytes of memory
 */
#include "compiler/chat/template.h"
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

static void put(const void *p, size_t n)
{
	if (n && fwrite(p, 1, n, stdout) != n)
		exit(EXIT_ENVIRONMENT);
}

static void put_text(const char *text, size_t n)
{
	const uint32_t length = (uint32_t)n;
	put(&length, sizeof length);
	put(text, n);
}

typedef struct Template_ {
	Arena arena;
	NamedText globals[MAX_GLOBALS];
	int n_globals;
	ChatProgram program;
	ChatImage image;
	bool is_open;
} Template_;

static void set_globals(Template_ *t, Arena *kept, const char *text, size_t n)
{
	t->n_globals = 0;
	for (const char *at = text; at < text + n && t->n_globals < MAX_GLOBALS;) {
		const char *name = arena_strdup(kept, at);
		at += strlen(at) + 1;
		t->globals[t->n_globals++] = (NamedText){name, arena_strdup(kept, at)};
		at += strlen(at) + 1;
	}
}

static void compile(Template_ *t, const char *text, size_t n)
{
	ChatImage image;
	char why[200] = "", lines[8192] = "";
	arena_release(&t->arena);
	Diags d = {.arena = &t->arena};
	compile_template(&t->arena, &d, "t", text, n, t->globals, t->n_globals, &image);
	free(t->image.bytes);
	void *exact = malloc(image.n); /* a sanitizer sees one byte too far */
	if (!exact)
		exit(EXIT_ENVIRONMENT);
	memcpy(exact, image.bytes, image.n);
	t->image = (ChatImage){exact, image.n};
	if (!chat_open(&t->program, exact, image.n, why, sizeof why)) {
		fprintf(stderr, "the compiler wrote what the reader refuses: %s\n", why);
		exit(EXIT_INTERNAL);
	}
	t->is_open = t->program.header->n_nodes > 0;
	for (int i = 0; i < d.n; i++) {
		size_t used = strlen(lines);
		snprintf(lines + used, sizeof lines - used, "%d:%d: [%s] %s\n", d.list[i].at.line, d.list[i].at.col,
			code_name(d.list[i].code), d.list[i].text);
	}
	put(&(uint8_t){t->is_open}, 1);
	put_text(lines, strlen(lines));
}

static void render(const Template_ *t, char kind, const char *payload, size_t n)
{
	ChatLimits limits = {10000000, 16 << 20, (size_t)64 << 20};
	ChatPrompt prompt;
	ChatFailure failure = {CHAT_BAD_INPUT, "no template"};
	int64_t now, given[3];
	memcpy(&now, payload, sizeof now);
	size_t at = sizeof now;
	if (kind == 'l') {
		memcpy(given, payload + at, sizeof given);
		at += sizeof given;
		limits = (ChatLimits){given[0], (size_t)given[1], (size_t)given[2]};
	}
	const bool ok = t->is_open &&
		chat_render(&t->program, payload + at, n - at, now, limits, &prompt, &failure) == CHAT_OK;
	put(&(uint8_t){(uint8_t)(ok ? CHAT_OK : failure.fault)}, 1);
	put_text(ok ? prompt.text : failure.text, ok ? prompt.n : strlen(failure.text));
	const uint32_t n_spans = ok ? (uint32_t)prompt.n_spans : 0;
	put(&n_spans, sizeof n_spans);
	for (uint32_t i = 0; i < n_spans; i++)
		put(&(uint32_t[2]){(uint32_t)prompt.spans[i].begin, (uint32_t)prompt.spans[i].end}, 2 * sizeof(uint32_t));
	if (ok)
		chat_prompt_free(&prompt);
}

int main(void)
{
	Template_ t = {0};
	Arena kept = {0};
	char kind;
	while (fread(&kind, 1, 1, stdin) == 1) {
		uint32_t n;
		take(&n, sizeof n);
		char *payload = malloc((size_t)n + 1);
		if (!payload)
			exit(EXIT_ENVIRONMENT);
		take(payload, n);
		payload[n] = 0;
		if (kind == 'g')
			set_globals(&t, &kept, payload, n);
		else if (kind == 't')
			compile(&t, payload, n);
		else if (kind == 'b')
			put_text(t.image.bytes, t.image.n);
		else
			render(&t, kind, payload, n);
		free(payload);
		fflush(stdout);
	}
	free(t.image.bytes);
	arena_release(&t.arena);
	arena_release(&kept);
	return 0;
}
