/* tool_formats.c - see tool_formats.h. Names are those that other servers have for the same forms. */
#include "runtime/serve/tool_formats.h"
#include "runtime/serve/channels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ToolFormat formats[] = {
	{"hermes", {"<tool_call>"}, "</tool_call>", TOOL_JSON, .lead = "<tool_call>\n", .arguments = "arguments"},
	{"qwen3_coder", {"<tool_call>", "<function="}, "</tool_call>", TOOL_PARAMETERS,
		.marks = {.call = "\n<function=", .named = ">\n", .key = "<parameter=", .keyed = ">\n",
			.valued = "</parameter>\n", .end = "</function>\n"}},
	{"llama3_json", {"<|python_tag|>", "<|python_start|><|python_end|>"}, NULL, TOOL_JSON, .is_bare = true,
		.lead = "", .arguments = "parameters"},
	{"mistral_calls", {"[TOOL_CALLS]"}, NULL, TOOL_NAMED, .lead = "[TOOL_CALLS] ", .arguments = "arguments",
		.marks = {.id = "[CALL_ID]", .named = "[ARGS]"}},
	{"glm45", {"<tool_call>"}, NULL, TOOL_PARAMETERS,
		.marks = {.named = "\n", .key = "<arg_key>", .keyed = "</arg_key>", .value = "\n<arg_value>",
			.valued = "</arg_value>\n", .end = "</tool_call>"}},
	{"minimax_m2", {"<minimax:tool_call>"}, "</minimax:tool_call>", TOOL_PARAMETERS,
		.marks = {.call = "\n<invoke name=\"", .named = "\">\n", .key = "<parameter name=\"", .keyed = "\">",
			.valued = "</parameter>\n", .end = "</invoke>\n"}},
	{"seed_oss", {"<seed:tool_call>"}, "</seed:tool_call>", TOOL_PARAMETERS,
		.marks = {.call = "\n<function=", .named = ">\n", .key = "<parameter=", .keyed = ">",
			.valued = "</parameter>\n", .end = "</function>\n"}},
	{"gemma4", {"<|tool_call>"}, "<tool_call|>", TOOL_LITERALS,
		.marks = {.call = "call:", .named = "{", .end = "}", .quote = "<|\"|>"}},
	{"functiongemma", {"<start_function_call>"}, "<end_function_call>", TOOL_LITERALS,
		.marks = {.call = "call:", .named = "{", .end = "}", .quote = "<escape>"}},
	{"olmo3", {"<function_calls>"}, "</function_calls>", TOOL_LITERALS, .marks = {.named = "(", .end = ")"}},
	{"lfm2", {"<|tool_call_start|>"}, "<|tool_call_end|>", TOOL_LITERALS, .is_listed = true,
		.marks = {.named = "(", .end = ")"}},
	{"pythonic", {"<|python_start|>"}, "<|python_end|>", TOOL_LITERALS, .is_bare = true, .is_listed = true,
		.marks = {.named = "(", .end = ")"}},
	{"phi4_mini_json", {"<|tool_call|>"}, "<|/tool_call|>", TOOL_JSON, .lead = "<|tool_call|>",
		.arguments = "arguments"},
	{"nemotron_json", {"<TOOLCALL>"}, "</TOOLCALL>", TOOL_JSON, .lead = "<TOOLCALL>", .arguments = "arguments"},
	{"cohere", {"<|START_ACTION|>"}, "<|END_ACTION|>", TOOL_JSON, .lead = "<|START_ACTION|>",
		.arguments = "parameters"},
	{"internlm", {"<|action_start|><|plugin|>"}, "<|action_end|>", TOOL_JSON, .lead = "<|action_start|><|plugin|>\n",
		.arguments = "parameters"},
	{"gigachat3", {"<|function_call|>"}, NULL, TOOL_JSON, .lead = "<|function_call|>", .arguments = "arguments"},
	{"functionary", {"<function="}, NULL, TOOL_NAMED,
		.marks = {.call = "<function=", .named = ">", .end = "</function>"}},
	{"apriel", {"<tool_calls>"}, "</tool_calls>", TOOL_JSON, .lead = "<tool_calls>", .arguments = "arguments"},
	{"deepseek_v3", {"<｜tool▁calls▁begin｜>"}, "<｜tool▁calls▁end｜>", TOOL_NAMED,
		.marks = {.call = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", .named = "\n```json\n",
			.end = "\n```<｜tool▁call▁end｜>"}},
	{"deepseek_v31", {"<｜tool▁calls▁begin｜>"}, "<｜tool▁calls▁end｜>", TOOL_NAMED,
		.marks = {.call = "<｜tool▁call▁begin｜>", .named = "<｜tool▁sep｜>",
			.end = "<｜tool▁call▁end｜>"}},
	{"deepseek_v32", {"<｜DSML｜function_calls>"}, "</｜DSML｜function_calls>", TOOL_PARAMETERS,
		.marks = {.call = "\n<｜DSML｜invoke name=\"", .named = "\">\n", .key = "<｜DSML｜parameter name=\"",
			.keyed = "\" string=\"", .value = "true\">", .typed = "false\">", .valued = "</｜DSML｜parameter>\n",
			.end = "</｜DSML｜invoke>\n"}},
	{"deepseek_v4", {"<｜DSML｜tool_calls>"}, "</｜DSML｜tool_calls>", TOOL_PARAMETERS,
		.marks = {.call = "\n<｜DSML｜invoke name=\"", .named = "\">\n", .key = "<｜DSML｜parameter name=\"",
			.keyed = "\" string=\"", .value = "true\">", .typed = "false\">", .valued = "</｜DSML｜parameter>\n",
			.end = "</｜DSML｜invoke>\n"}},
	{"kimi_k2", {"<|tool_calls_section_begin|>"}, "<|tool_calls_section_end|>", TOOL_NAMED, .is_numbered = true,
		.marks = {.call = "<|tool_call_begin|>functions.", .named = ":0<|tool_call_argument_begin|>",
			.end = "<|tool_call_end|>"}},
	{"hunyuan", {"<tool_calls>"}, "</tool_calls>", TOOL_NAMED,
		.marks = {.call = "<tool_call>", .named = "\n```json\n", .end = "\n```</tool_call>"}},
	{"hy_v3", {"<tool_calls>"}, "</tool_calls>", TOOL_PARAMETERS,
		.marks = {.call = "\n<tool_call>", .named = "<tool_sep>\n", .key = "<arg_key>", .keyed = "</arg_key>",
			.value = "\n<arg_value>", .valued = "</arg_value>\n", .end = "</tool_call>\n"}},
	{"longcat", {"<longcat_tool_call>"}, "</longcat_tool_call>", TOOL_JSON, .lead = "<longcat_tool_call>\n",
		.arguments = "arguments"},
	{"longcat_xml", {"<longcat_tool_call>"}, NULL, TOOL_PARAMETERS,
		.marks = {.named = "\n", .key = "<longcat_arg_key>", .keyed = "</longcat_arg_key>",
			.value = "\n<longcat_arg_value>", .valued = "</longcat_arg_value>\n", .end = "</longcat_tool_call>"}},
	{"harmony", {NULL}, NULL, TOOL_CHANNELS,
		.marks = {.call = "<|channel|>commentary to=functions.", .named = " <|constrain|>json<|message|>"}},
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

/* A mark may be a control token with more around it. */
static bool is_in(const char *mark, const char *text, size_t n)
{
	return mark && n && memmem(mark, strlen(mark), text, n);
}

bool tool_format_has_marker(const ToolFormat *f, const Reasoning *reasoning, const char *text, size_t n)
{
	if (reasoning && (is_in(reasoning->opener, text, n) || is_in(reasoning->closer, text, n)))
		return true;
	if (((reasoning && reasoning->has_channels) || (f && f->body == TOOL_CHANNELS)) && channels_has_marker(text, n))
		return true;
	for (int i = 0; f && i < TOOL_MAX_OPENERS; i++)
		if (is_in(f->openers[i], text, n))
			return true;
	if (!f)
		return false;
	const ToolMarks *m = &f->marks;
	const char *const marks[] = {
		f->closer, m->call, m->id, m->named, m->key, m->keyed, m->value, m->typed, m->valued, m->end, m->quote};
	for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
		if (is_in(marks[i], text, n))
			return true;
	return false;
}

/* What a template writes ------------------------------------------------------------ */

static const char probe_tools[] =
	"[{\"type\":\"function\",\"function\":{\"name\":\"get_probe\",\"description\":\"A probe\",\"parameters\":"
	"{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"description\":\"A text\"},"
	"\"count\":{\"type\":\"integer\",\"description\":\"A number\"}},\"required\":[\"text\"]}}}]";
static const char bare_tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"get_probe\"}}]";
static const char probe_arguments[] = "{\"text\":\"a \\\"b\\\"\\nc\",\"count\":3}";
static const char probe_question[] = "{\"role\":\"user\",\"content\":\"A question\"}";
static const char probe_answer[] = "An answer";

/* A rendering of the question, and then of `answer`, a message as JSON, or "". chat_prompt_free. */
static bool render_with(
	const ChatProgram *chat, const char *tools, const char *answer, bool asks, ChatPrompt *prompt)
{
	const ChatLimits limits = {10000000, 1 << 20, 64 << 20};
	ChatFailure failure;
	char *json = NULL;
	*prompt = (ChatPrompt){0};
	if (asprintf(&json, "{\"messages\":[%s%s%s],\"tools\":%s,\"add_generation_prompt\":%s,\"shape_messages\":true}",
			probe_question, *answer ? "," : "", answer, tools, asks ? "true" : "false") < 0)
		return false;
	const bool good = chat_render(chat, json, strlen(json), 0, limits, prompt, &failure) == CHAT_OK;
	free(json);
	return good;
}

static bool render(const ChatProgram *chat, const char *answer, bool asks, ChatPrompt *prompt)
{
	return render_with(chat, probe_tools, answer, asks, prompt);
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

/* After the call a template may write the control token that a result follows. */
static bool is_token(const char *text, size_t n)
{
	return (n == 4 && memcmp(text, "</s>", n) == 0) || (n > 2 && text[0] == '<' && text[n - 1] == '>' &&
		memchr(text + 1, '<', n - 1) == NULL && memchr(text, '/', n) == NULL && memchr(text, ' ', n) == NULL);
}

static bool compare_call(void *ctx, const Piece *piece)
{
	Found *found = ctx;
	if (piece->kind != PIECE_CALL) {
		size_t n = piece->n;
		while (n && (piece->bytes[n - 1] == '\n' || piece->bytes[n - 1] == ' '))
			n--;
		found->has_more |= found->calls > 0 && !is_token(piece->bytes, n);
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
static bool reads(const ToolFormat *f, const Reasoning *reasoning, json_t *tools, const char *turn, size_t n)
{
	Found found = {0};
	PieceParser *p = pieces_open(f, tools, f->body == TOOL_CHANNELS ? reasoning : NULL, false);
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
	ChatPrompt bare; /* the question, with a tool that has a name alone */
} Probes;

/* The turn is what comes after the question, without what ends a turn that is text. A bare call begins where the answer
 * is asked for; before markers that may be skipped, for what asks may have more there, such as <think>. */
static const ToolFormat *format_of(const Probes *p, const Reasoning *reasoning)
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
		if (begin < end && reads(&formats[i], reasoning, tools, called->text + begin, end - begin))
			found = &formats[i];
	}
	json_decref(tools);
	return found;
}

/* Of a template that writes no calls, but asks for them in what it says of tools: the format of which it has the most
 * marks, and all that begin something. */
static const ToolFormat *format_asked_for(const ChatPrompt *prompt)
{
	const ToolFormat *found = NULL;
	int most = 0;
	for (int i = 0; i < N_FORMATS; i++) {
		const ToolFormat *f = &formats[i];
		const char *const marks[] = {f->openers[0], f->marks.call, f->marks.key};
		int n = 0;
		for (size_t k = 0; k < 3 && n >= 0; k++) {
			const char *mark = marks[k] ? marks[k] + strspn(marks[k], "\n") : NULL;
			n = !mark ? n : memmem(prompt->text, prompt->n, mark, strlen(mark)) ? n + 1 : -1;
		}
		if (n > most && !f->is_bare) {
			most = n;
			found = f;
		}
	}
	return found;
}

ToolTemplate tool_template_of(const ChatProgram *chat)
{
	ToolTemplate t = {0};
	Probes p = {0};
	char answer[64];
	if (!chat->header->n_nodes)
		return t;
	t.reasoning = reasoning_of(chat->text, chat->header->n_text);
	snprintf(answer, sizeof answer, "{\"role\":\"assistant\",\"content\":\"%s\"}", probe_answer);
	bool has_call = render_call(chat, "call_0123456789abcdef", &p.called);
	if (!has_call)
		t.has_short_ids = has_call = render_call(chat, "abcdef123", &p.called);
	render(chat, answer, false, &p.answered);
	const bool has_question = render(chat, "", false, &p.question);
	t.needs_all = !render_with(chat, bare_tools, "", false, &p.bare) && has_question;
	if (has_call && has_question && render(chat, "", true, &p.asked))
		t.format = format_of(&p, t.reasoning);
	const size_t begin = common(&p.called, &p.question);
	if (has_call && !t.format && !memmem(p.called.text + begin, p.called.n - begin, "get_probe", 9) &&
		memmem(p.asked.text, p.asked.n, "get_probe", 9))
		t.format = format_asked_for(&p.asked);
	chat_prompt_free(&p.bare);
	chat_prompt_free(&p.question);
	chat_prompt_free(&p.asked);
	chat_prompt_free(&p.called);
	chat_prompt_free(&p.answered);
	return t;
}
