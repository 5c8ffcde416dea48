/* tool_formats.c - see tool_formats.h. Names are those that other servers have for the same forms. */
#include "runtime/serve/tool_formats.h"
#include "runtime/serve/tool_block.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ToolFormat formats[] = {
	{"hermes", {"<tool_call>"}, "</tool_call>", TOOL_JSON, false, "<tool_call>\n", "arguments"},
	{"qwen3_coder", {"<tool_call>", "<function="}, "</tool_call>", TOOL_ELEMENTS, false, NULL, NULL},
	{"llama3_json", {"<|python_tag|>"}, NULL, TOOL_JSON, true, "", "parameters"},
	{"mistral_calls", {"[TOOL_CALLS]"}, NULL, TOOL_NAMED, false, "[TOOL_CALLS] ", "arguments"},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

const ToolFormat *tool_format_named(const char *name)
{
	for (int i = 0; i < N_FORMATS; i++)
		if (strcmp(formats[i].name, name) == 0)
			return &formats[i];
	return NULL;
}

void tool_format_names(char *text, size_t n)
{
	size_t used = 0;
	for (int i = 0; i < N_FORMATS && used < n; i++)
		used += (size_t)snprintf(text + used, n - used, "%s%s", i ? ", " : "", formats[i].name);
}

static bool is_text(const char *marker, const char *text, size_t n)
{
	return marker && strlen(marker) == n && memcmp(marker, text, n) == 0;
}

bool tool_format_has_marker(const ToolFormat *f, bool has_reasoning, const char *text, size_t n)
{
	if (has_reasoning && (is_text(REASONING_OPENER, text, n) || is_text(REASONING_CLOSER, text, n)))
		return true;
	for (int i = 0; f && i < TOOL_MAX_OPENERS; i++)
		if (is_text(f->openers[i], text, n))
			return true;
	return f && (is_text(f->closer, text, n) || tool_block_has_marker(f->body, text, n));
}

/* What a template writes ------------------------------------------------------------ */

static const char probe_tools[] =
	"[{\"type\":\"function\",\"function\":{\"name\":\"get_probe\",\"description\":\"A probe\",\"parameters\":"
	"{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"description\":\"A text\"},"
	"\"count\":{\"type\":\"integer\",\"description\":\"A number\"}},\"required\":[\"text\"]}}}]";
static const char probe_arguments[] = "{\"text\":\"a \\\"b\\\"\\nc\",\"count\":3}";
static const char probe_question[] = "{\"role\":\"user\",\"content\":\"A question\"}";
static const char probe_answer[] = "An answer";

/* A rendering of the question, and then of `answer`, a message as JSON, or "". chat_prompt_free. */
static bool render(const ChatProgram *chat, const char *answer, bool asks, ChatPrompt *prompt)
{
	const ChatLimits limits = {10000000, 1 << 20, 64 << 20};
	ChatFailure failure;
	char *json = NULL;
	*prompt = (ChatPrompt){0};
	if (asprintf(&json, "{\"messages\":[%s%s%s],\"tools\":%s,\"add_generation_prompt\":%s,\"shape_messages\":true}",
			probe_question, *answer ? "," : "", answer, probe_tools, asks ? "true" : "false") < 0)
		return false;
	const bool good = chat_render(chat, json, strlen(json), 0, limits, prompt, &failure) == CHAT_OK;
	free(json);
	return good;
}

static bool render_call(const ChatProgram *chat, const char *id, ChatPrompt *prompt)
{
	char answer[512];
	json_t *arguments = json_string(probe_arguments);
	char *quoted = arguments ? json_dumps(arguments, JSON_ENCODE_ANY) : NULL;
	const int n = snprintf(answer, sizeof answer,
		"{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"%s\","
		"\"type\":\"function\",\"function\":{\"name\":\"get_probe\",\"arguments\":%s}}]}", id, quoted ? quoted : "");
	free(quoted);
	json_decref(arguments);
	*prompt = (ChatPrompt){0};
	return n < (int)sizeof answer && render(chat, answer, false, prompt);
}

typedef struct Found { int calls; bool is_same, has_more; } Found;

static bool compare_call(void *ctx, const Piece *piece)
{
	Found *found = ctx;
	if (piece->kind != PIECE_CALL) {
		found->has_more |= found->calls > 0;
		return true;
	}
	json_t *expected = json_loads(probe_arguments, 0, NULL);
	json_t *got = json_loadb(piece->arguments, piece->n_arguments, 0, NULL);
	found->calls++;
	found->is_same = expected && got && json_equal(expected, got);
	json_decref(expected);
	json_decref(got);
	return true;
}

/* Does the format read the one call that the text of a turn ends with? */
static bool reads(const ToolFormat *f, json_t *tools, const char *turn, size_t n)
{
	Found found = {0};
	PieceParser *p = pieces_open(f, tools, false, false);
	const bool good = p && pieces_push(p, turn, n, compare_call, &found) && pieces_finish(p, compare_call, &found);
	pieces_close(p);
	return good && found.calls == 1 && found.is_same && !found.has_more;
}

static size_t common(const ChatPrompt *a, const ChatPrompt *b)
{
	size_t n = 0;
	while (n < a->n && n < b->n && a->text[n] == b->text[n])
		n++;
	return n;
}

typedef struct Probes {
	ChatPrompt question, asked, called, answered; /* the question, with what asks for an answer, and with two answers */
} Probes;

/* The turn is what comes after the question, without what ends a turn that is text. A bare call begins where the answer
 * is asked for; before markers that may be skipped, for what asks may have more there, such as <think>. */
static const ToolFormat *format_of(const Probes *p)
{
	const ChatPrompt *called = &p->called;
	const char *last = p->answered.text ? strstr(p->answered.text, probe_answer) : NULL;
	const char *tail = last ? last + strlen(probe_answer) : "";
	size_t end = called->n, n_tail = strlen(tail);
	const ToolFormat *found = NULL;
	json_t *tools = json_loads(probe_tools, 0, NULL);
	if (n_tail <= end && memcmp(called->text + end - n_tail, tail, n_tail) == 0)
		end -= n_tail;
	for (int i = 0; tools && i < N_FORMATS && !found; i++) {
		const size_t begin = common(called, formats[i].is_bare ? &p->asked : &p->question);
		if (begin < end && reads(&formats[i], tools, called->text + begin, end - begin))
			found = &formats[i];
	}
	json_decref(tools);
	return found;
}

ToolTemplate tool_template_of(const ChatProgram *chat)
{
	ToolTemplate t = {0};
	Probes p = {0};
	char answer[64];
	if (!chat->header->n_nodes)
		return t;
	t.has_reasoning = memmem(chat->text, chat->header->n_text, REASONING_CLOSER,
		strlen(REASONING_CLOSER)) != NULL;
	snprintf(answer, sizeof answer, "{\"role\":\"assistant\",\"content\":\"%s\"}", probe_answer);
	bool has_call = render_call(chat, "call_0123456789abcdef", &p.called);
	if (!has_call)
		t.has_short_ids = has_call = render_call(chat, "abcdef123", &p.called);
	render(chat, answer, false, &p.answered);
	if (has_call && render(chat, "", false, &p.question) && render(chat, "", true, &p.asked))
		t.format = format_of(&p);
	chat_prompt_free(&p.question);
	chat_prompt_free(&p.asked);
	chat_prompt_free(&p.called);
	chat_prompt_free(&p.answered);
	return t;
}
