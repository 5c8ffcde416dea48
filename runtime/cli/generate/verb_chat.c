/* verb_chat.c - atlas chat: a conversation, turn by turn.
 *
 * Each turn renders the whole conversation with the plan's chat template and reads it as one prompt. What a failure
 * leaves is the conversation before it; what Ctrl-C leaves is the part of the answer that was shown.
 */
#include "artifacts/closest.h"
#include "runtime/cli/generate/chat_prompt.h"
#include "runtime/cli/generate/line_input.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Chat {
	const Args *args;
	AtlasPlan *plan;
	AtlasSession *session;
	AtlasPlanInfo info;
	AtlasText *text;
	LineInput *input;
	AtlasEvent *events;
	int n_events;
	char *system; /* owned; NULL = none */
	Messages messages;
} Chat;

static const char help_text[] =
	"/system TEXT  replace the system message; without TEXT: remove it\n"
	"/reset        forget the conversation, but not the system message\n"
	"/save FILE    write the conversation as JSON\n"
	"/help         list the commands\n"
	"/exit         leave, as Ctrl-D does\n"
	"Ctrl-C stops an answer. A line that ends in \\ continues on the next one; lines\n"
	"between \"\"\" and \"\"\" are one message; //x sends \"/x\".\n";

/* A remark, which --quiet leaves out. */
#define note(c, ...) ((c)->args->quiet ? 0 : cli_say((c)->args, 0, __VA_ARGS__))

/* An answer ------------------------------------------------------------ */

typedef struct Answer {
	char *text;
	size_t n;
	FILE *out; /* writes `text` */
	int n_tokens;
	double first, last; /* seconds of the first and the last token */
	bool is_stopped, has_failed;
} Answer;

static void show(Answer *a, const char *bytes, size_t n)
{
	fwrite(bytes, 1, n, stdout);
	fwrite(bytes, 1, n, a->out);
}

static int take_event(Chat *c, Answer *a, const AtlasEvent *e)
{
	const char *bytes = "";
	size_t n = 0;
	bool good = true;
	a->has_failed |= e->finish == ATLAS_FAILED;
	if (e->finish != ATLAS_STOP && e->finish != ATLAS_FAILED) {
		a->last = cli_seconds();
		a->first = a->n_tokens++ ? a->first : a->last;
		good = atlas_text_push(c->text, e->token, &bytes, &n) == ATLAS_OK;
		show(a, bytes, n);
	}
	return good ? 0 : cli_say(c->args, EXIT_ENVIRONMENT, "no memory for the text");
}

/* Steps until the sequence in `slot` ends or is interrupted. */
static int run_answer(Chat *c, int slot, Answer *a)
{
	const char *bytes = "";
	size_t n_bytes = 0;
	while (atlas_active(c->session) > 0) {
		int n, code = 0;
		const AtlasStatus status = atlas_step(c->session, c->events, c->n_events, &n);
		if (status != ATLAS_OK)
			return cli_fail_session(c->args, c->session, status);
		for (int i = 0; i < n && !code; i++)
			code = take_event(c, a, &c->events[i]);
		fflush(stdout);
		if (code || ferror(stdout))
			return code ? code : cli_say(c->args, EXIT_ENVIRONMENT, "stdout cannot be written");
		if (atlas_active(c->session) > 0 && cli_interrupted()) {
			a->is_stopped = true;
			atlas_cancel(c->session, slot);
		}
	}
	if (atlas_text_finish(c->text, &bytes, &n_bytes) == ATLAS_OK)
		show(a, bytes, n_bytes);
	return 0;
}

static void report(const Chat *c, const Answer *a, int n_prompt)
{
	const int used = n_prompt + a->n_tokens;
	note(c, "%d tokens, %.1f tokens/s; context %d of %d, %.0f %%%s", a->n_tokens,
		a->n_tokens > 1 ? (a->n_tokens - 1) / (a->last > a->first ? a->last - a->first : 1e-9) : 0, used,
		c->info.max_context, 100.0 * used / c->info.max_context, a->is_stopped ? "; stopped" : "");
}

/* The prompt is the whole conversation. Failures of a turn are printed and leave a->n_tokens 0; the return value ends
 * the program. */
static int answer(Chat *c, const Tokens *prompt, Answer *a)
{
	const AtlasSampling sampling = cli_sampling(c->plan, &c->args->sampling);
	const int room = c->info.max_context - prompt->n;
	int slot, max_new = c->args->sampling.max_new > 0 ? c->args->sampling.max_new : c->info.max_new_tokens;
	max_new = max_new <= 0 || max_new > room ? room : max_new;
	if (room < 1) {
		cli_say(c->args, 0, "%d tokens: the plan's context holds %d; /reset begins another conversation", prompt->n,
			c->info.max_context);
		return 0;
	}
	const AtlasStatus status = atlas_start(c->session, prompt->ids, prompt->n, &sampling, max_new, &slot);
	if (status != ATLAS_OK)
		return cli_fail_session(c->args, c->session, status);
	atlas_text_restart(c->text);
	const int code = run_answer(c, slot, a);
	fputc('\n', stdout);
	fflush(stdout);
	if (a->has_failed)
		return cli_say(c->args, atlas_status_exit_code(ATLAS_DEVICE_FAULT),
			"error: the model's scores were not numbers");
	if (!code)
		report(c, a, prompt->n);
	return code;
}

static int turn(Chat *c, const char *line, size_t n)
{
	Answer a = {0};
	Tokens prompt = {0};
	const int before = c->messages.n;
	bool is_kept = false;
	int code = 0;
	if (!messages_add(&c->messages, "user", line, n))
		return cli_say(c->args, EXIT_ENVIRONMENT, "no memory for the conversation");
	if (chat_prompt(c->args, c->plan, c->system, &c->messages, &prompt) == 0) {
		a.out = open_memstream(&a.text, &a.n);
		code = a.out ? answer(c, &prompt, &a) : cli_say(c->args, EXIT_ENVIRONMENT, "no memory for the text");
		if (a.out && fclose(a.out) != 0)
			code = cli_say(c->args, EXIT_ENVIRONMENT, "no memory for the text");
		is_kept = !code && (a.n_tokens || a.is_stopped) && messages_add(&c->messages, "assistant", a.text, a.n);
	}
	if (!is_kept)
		messages_cut(&c->messages, before);
	free(a.text);
	free(prompt.ids);
	return code;
}

/* Commands ------------------------------------------------------------ */

static void write_conversation(const void *what, FILE *out)
{
	const Chat *c = what;
	messages_write(c->system, &c->messages, out);
}

/* *ends: leave. Returns an exit code of what cannot go on. */
static int command(Chat *c, const char *line, bool *ends)
{
	const size_t n = strcspn(line, " \t");
	const char *rest = line + n + strspn(line + n, " \t");
	const char *const names[] = {"/system", "/reset", "/save", "/help", "/exit"};
	const int n_names = sizeof names / sizeof *names;
	int which = 0;
	while (which < n_names && !(strlen(names[which]) == n && strncmp(line, names[which], n) == 0))
		which++;
	char seen[40];
	switch (which) {
	case 0:
		free(c->system);
		c->system = *rest ? strdup(rest) : NULL;
		if (*rest && !c->system)
			return cli_say(c->args, EXIT_ENVIRONMENT, "no memory for the system text");
		return note(c, "the next answers have %s", *rest ? "this system message" : "no system message");
	case 1: messages_cut(&c->messages, 0); return note(c, "a new conversation");
	case 2:
		if (!*rest)
			return cli_say(c->args, 0, "/save needs the name of a file");
		if (cli_write_file(c->args, rest, write_conversation, c) == 0)
			note(c, "%d messages in %s", c->messages.n + (c->system != NULL), rest);
		return 0;
	case 3: fputs(help_text, stdout); return 0;
	case 4: *ends = true; return 0;
	default: break;
	}
	snprintf(seen, sizeof seen, "%.*s", n < 30 ? (int)n : 30, line);
	const char *near = closest_name(seen, names, n_names);
	return cli_say(c->args, 0, near ? "%s: did you mean %s?" : "%s: no such command; %s lists them", seen,
		near ? near : "/help");
}

static int converse(Chat *c)
{
	for (bool ends = false; !ends;) {
		const char *line;
		size_t n;
		int code = 0;
		const LineEnd end = line_read(c->input, &line, &n);
		switch (end) {
		case LINE_CLOSED: return 0;
		case LINE_ENDED: return EXIT_INTERRUPTED;
		case LINE_NO_MEMORY: return cli_say(c->args, EXIT_ENVIRONMENT, "no memory for a line");
		case LINE_DROPPED: continue;
		case LINE_WHOLE: case LINE_QUOTED: break;
		}
		if (strspn(line, " \t\r\n\v\f") == n)
			continue;
		const bool slash = end == LINE_WHOLE && line[0] == '/'; /* between quotes, it is text */
		if (slash && line[1] != '/')
			code = command(c, line, &ends);
		else
			code = turn(c, line + slash, n - slash);
		if (code)
			return code;
		fflush(stdout);
	}
	return 0;
}

static int chat(Chat *c, AtlasDevice **started)
{
	AtlasSessionInfo session = {.struct_size = sizeof session};
	AtlasError error = {0};
	int code;
	c->info.struct_size = sizeof c->info;
	*started = cli_start_device(c->args);
	if ((code = cli_open_plan(c->args, c->args->plan, &c->plan)))
		return code;
	atlas_plan_info(c->plan, &c->info);
	if (!c->info.has_chat) { /* says why */
		AtlasChat *none;
		atlas_chat_render(c->plan, "{}", 2, 0, &none, &error);
		return cli_fail(c->args, &error);
	}
	if ((error.status = atlas_text_open(c->plan, 1, &c->text)) != ATLAS_OK)
		return cli_fail(c->args, &error);
	if ((code = cli_open_session(c->args, c->plan, NULL, *started, &c->session)))
		return code;
	atlas_session_info(c->session, &session);
	c->n_events = c->info.slots * session.step_tokens;
	c->events = calloc((size_t)c->n_events, sizeof *c->events);
	c->input = line_open();
	c->system = c->args->system ? strdup(c->args->system) : NULL;
	if (!c->events || !c->input || (c->args->system && !c->system))
		return cli_say(c->args, EXIT_ENVIRONMENT, "no memory for the chat");
	if (line_is_terminal(c->input))
		note(c, "context of %d tokens; /help lists what there is besides talking", c->info.max_context);
	return converse(c);
}

int verb_chat(const Args *args)
{
	Chat c = {.args = args};
	AtlasDevice *started = NULL;
	cli_hold_signals();
	const int code = chat(&c, &started);
	line_close(c.input);
	messages_free(&c.messages);
	free(c.system);
	free(c.events);
	atlas_text_close(c.text);
	atlas_session_close(c.session);
	atlas_device_end(started);
	atlas_plan_close(c.plan);
	return code;
}
