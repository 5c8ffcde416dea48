/* verb_run.c - atlas run: prompts in, text out.
 *
 * All prompts go through the plan's slots together: as many as fit are started, each step yields a
 * token for every running one, and a finished one makes room for the next. Text is shown in the
 * order of the prompts, as soon as its code points are whole and no stop text can reach back into
 * it.
 */
#include "artifacts/json_put.h"
#include "runtime/cli/bytes.h"
#include "runtime/cli/generate/chat_prompt.h"
#include "runtime/cli/generate/prompts.h"
#include "runtime/cli/generate/structured.h"
#include "runtime/cli/trust/certify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Why an answer ended: what JSON calls it, and what a person reads. */
typedef enum End { RUNS, STOP_TOKEN, STOP_TEXT, MAX_TOKENS, CONTEXT_END, WHOLE, FAILED, CANCELLED, N_ENDS } End;
static const struct { const char *finish, *words; } ends[N_ENDS] = {[STOP_TOKEN] = {"stop", "stop token"},
	[STOP_TEXT] = {"stop", "stop text"}, [MAX_TOKENS] = {"length", "token limit"},
	[CONTEXT_END] = {"length", "end of context"}, [WHOLE] = {"stop", "whole structure"},
	[FAILED] = {"failed", "failure"}, [CANCELLED] = {"", "cancelled"}};

typedef struct Answer {
	AtlasText *stream; /* NULL: ids alone */
	Guide *guide; /* NULL: the answer is free */
	bool needs_mask;
	Bytes text; /* so far */
	size_t shown; /* bytes of text already on stdout */
	int32_t *ids; /* generated */
	float *logprobs;
	int n, cap, max_new;
	End end;
} Answer;

typedef struct Run {
	const Args *args;
	AtlasDevice *started;
	AtlasPlan *plan;
	AtlasSession *session;
	AtlasPlanInfo info;
	Structured structured;
	Prompts prompts;
	Answer *answers; /* [prompts.n] */
	int n_started, n_done, n_failed;
	int show; /* the answer being shown */
	int *in_slot; /* [slots] its answer */
	AtlasEvent *events;
	int n_events;
	double start_seconds, first_token_seconds; /* the first is a clock, the second counts from it */
} Run;

/* Prompts ------------------------------------------------------------ */

/* The stream of an answer's text, which ends before the first of the stop texts. */
static AtlasStatus open_stream(const Run *r, const Prompt *p, AtlasText **stream)
{
	size_t n_bytes[MAX_STOPS];
	for (int i = 0; i < p->n_stop; i++)
		n_bytes[i] = strlen(p->stop[i]);
	const AtlasStatus status = atlas_text_open(r->plan, 1, stream);
	return status == ATLAS_OK ? atlas_text_stops(*stream, p->stop, n_bytes, p->n_stop, 0) : status;
}

/* The prompt is what a user says: the chat template makes a conversation of it. */
static int chat_tokens(const Run *r, Prompt *p)
{
	Messages one = {0};
	const int code = messages_add(&one, "user", p->text, p->bytes)
		? chat_prompt(r->args, r->plan, r->args->system, &one, &p->tokens)
		: cli_say(r->args, EXIT_ENVIRONMENT, "no memory for a message");
	messages_free(&one);
	return code;
}

/* Encodes every prompt and lists all that cannot run. */
static int encode_prompts(Run *r)
{
	int bad = 0;
	r->answers = calloc((size_t)r->prompts.n, sizeof *r->answers);
	if (!r->answers)
		return cli_say(r->args, EXIT_ENVIRONMENT, "no memory for %d answers", r->prompts.n);
	for (int i = 0; i < r->prompts.n; i++) {
		Answer *a = &r->answers[i];
		Prompt *p = &r->prompts.at[i];
		char where[300];
		const bool is_ids = !p->text;
		int code = r->args->chat && p->text ? chat_tokens(r, p)
			: !p->line ? cli_prompt_tokens(r->args, r->plan, &p->tokens)
			: p->text ? cli_encode(r->args, r->plan, p->text, p->bytes, &p->tokens) : 0;
		if (code)
			return code;
		prompt_place(r->args, p, where);
		if (p->line && cli_check_tokens(r->args, r->plan, &p->tokens, where))
			bad = EXIT_BAD_INPUT;
		if (p->tokens.n == 0)
			bad = cli_say(r->args, EXIT_BAD_INPUT, "%s: no tokens: an empty prompt", where);
		if (p->tokens.n > r->info.max_context)
			bad = cli_say(r->args, EXIT_BAD_INPUT, "%s: %d tokens: the plan's context holds %d",
				where, p->tokens.n, r->info.max_context);
		AtlasError error = {.status = open_stream(r, p, &a->stream)};
		bool needs_text = !is_ids || !r->args->json; /* ids in, ids out: no tokenizer */
		if (error.status == ATLAS_NO_TOKENIZER && is_ids && needs_text)
			return cli_say(r->args, EXIT_BAD_INPUT, "the plan holds no tokenizer, its answers are ids: add --json");
		if (error.status != ATLAS_OK && (needs_text || error.status != ATLAS_NO_TOKENIZER))
			return cli_fail(r->args, &error);
	}
	return bad;
}

/* Steps ------------------------------------------------------------ */

/* Starts waiting prompts while there is room. */
static int start_some(Run *r)
{
	while (r->n_started < r->prompts.n) {
		const Prompt *p = &r->prompts.at[r->n_started];
		const AtlasSampling sampling = cli_sampling(r->plan, &p->sampling);
		const int asked = p->sampling.max_new > 0 ? p->sampling.max_new : r->info.max_new_tokens;
		const int max_new = asked > 0 ? asked : r->info.max_context;
		int slot;
		Answer *a = &r->answers[r->n_started];
		const AtlasRequest request = {.struct_size = sizeof request, .tokens = p->tokens.ids, .n_tokens = p->tokens.n,
			.sampling = &sampling, .max_new = max_new, .masked = r->structured.grammar != NULL,
			.masks_after = structured_masks_after, .masks_ctx = &a->guide};
		AtlasStatus status = atlas_request_start(r->session, &request, &slot);
		bool is_full = status == ATLAS_NO_SLOT || status == ATLAS_NO_PAGES;
		if (is_full && atlas_active(r->session) > 0)
			return 0;
		if (status != ATLAS_OK)
			return cli_fail_session(r->args, r->session, status);
		if (!structured_guide(&r->structured, &r->info, &a->guide))
			return cli_say(r->args, EXIT_ENVIRONMENT, "no memory for the structure of an answer");
		status = a->guide ? structured_mask(r->session, slot, a->guide) : ATLAS_OK;
		if (status != ATLAS_OK)
			return cli_fail_session(r->args, r->session, status);
		a->max_new = max_new;
		r->in_slot[slot] = r->n_started++;
	}
	return 0;
}

static bool keep_token(Answer *a, const AtlasEvent *e)
{
	if (a->n == a->cap) {
		int cap = a->cap * 2 + 64;
		int32_t *ids = realloc(a->ids, sizeof *ids * (size_t)cap);
		a->ids = ids ? ids : a->ids;
		float *logprobs = realloc(a->logprobs, sizeof *logprobs * (size_t)cap);
		a->logprobs = logprobs ? logprobs : a->logprobs;
		if (!ids || !logprobs)
			return false;
		a->cap = cap;
	}
	a->ids[a->n] = e->token;
	a->logprobs[a->n++] = e->logprob;
	return true;
}

/* The members of its object. */
static void print_answer(const Run *r, int i)
{
	const Answer *a = &r->answers[i];
	const Prompt *p = &r->prompts.at[i];
	printf("\"prompt\": ");
	if (p->text)
		json_text(stdout, p->text, p->bytes);
	else
		fputs("null", stdout);
	printf(", \"prompt_tokens\": [");
	for (int k = 0; k < p->tokens.n; k++)
		printf("%s%d", k ? ", " : "", p->tokens.ids[k]);
	printf("], \"text\": ");
	json_text(stdout, a->text.at ? a->text.at : "", a->text.n);
	printf(", \"tokens\": [");
	for (int k = 0; k < a->n; k++)
		printf("%s%d", k ? ", " : "", a->ids[k]);
	printf("], \"logprobs\": [");
	for (int k = 0; k < a->n; k++) {
		fputs(k ? ", " : "", stdout);
		json_number(stdout, a->logprobs[k]);
	}
	printf("], \"finish\": \"%s\", \"ended_by\": \"%s\"", ends[a->end].finish, ends[a->end].words);
}

/* One object on a line of its own, as soon as the answer has ended. */
static void print_line(const Run *r, int i)
{
	const char *id = r->prompts.at[i].id;
	printf("{\"schema_version\": 1, \"index\": %d, \"id\": %s, ", i, id ? id : "null");
	print_answer(r, i);
	puts("}");
	fflush(stdout);
}

/* What is done about an answer that has ended, if it has. */
static int end_answer(Run *r, int slot)
{
	const Answer *a = &r->answers[r->in_slot[slot]];
	if (a->end) {
		r->n_done++;
		if (r->args->json && r->prompts.are_json)
			print_line(r, r->in_slot[slot]);
	}
	return 0;
}

/* After a token of an answer with a structure: it is whole, or the next token needs a mask. */
static int guide_answer(Run *r, const AtlasEvent *e)
{
	Answer *a = &r->answers[r->in_slot[e->slot]];
	const char *text = "";
	size_t n = 0;
	if (!guide_push(a->guide, e->token))
		return cli_say(r->args, EXIT_ENVIRONMENT, "the structure is too ambiguous, or its states need too much memory");
	a->needs_mask = !guide_is_over(a->guide);
	if (a->needs_mask)
		return 0;
	a->end = WHOLE;
	atlas_cancel(r->session, e->slot);
	if (a->stream && (atlas_text_finish(a->stream, &text, &n) != ATLAS_OK || !bytes_add(&a->text, text, n)))
		return cli_say(r->args, EXIT_ENVIRONMENT, "no memory for the text");
	return end_answer(r, e->slot);
}

/* Adds a token's text; a stop text ends the answer here and now. */
static int take_event(Run *r, const AtlasEvent *e)
{
	Answer *a = &r->answers[r->in_slot[e->slot]];
	if (a->end) /* a stop text ended it in the middle of a step */
		return 0;
	const char *text = "";
	size_t n = 0;
	bool is_token = e->finish != ATLAS_FAILED, good = !is_token || keep_token(a, e);

	if (e->finish != ATLAS_STOP && is_token && good && a->stream)
		good = atlas_text_push(a->stream, e->token, &text, &n) == ATLAS_OK && bytes_add(&a->text, text, n);
	bool found = a->stream && atlas_text_stopped(a->stream) >= 0;
	if (e->finish != ATLAS_RUNNING && !found && good) {
		good = !a->stream ||
			(atlas_text_finish(a->stream, &text, &n) == ATLAS_OK && bytes_add(&a->text, text, n));
		found = a->stream && atlas_text_stopped(a->stream) >= 0;
		a->end = e->finish == ATLAS_STOP ? STOP_TOKEN : !is_token ? FAILED
			: a->n < a->max_new ? CONTEXT_END : MAX_TOKENS;
		r->n_failed += !is_token;
	}
	if (!good)
		return cli_say(r->args, EXIT_ENVIRONMENT, "no memory for the text");
	if (found) {
		a->end = STOP_TEXT;
		if (e->finish == ATLAS_RUNNING)
			atlas_cancel(r->session, e->slot);
	}
	else if (a->guide && !a->end)
		return guide_answer(r, e);
	return end_answer(r, e->slot);
}
/* "==> 3 <==", or with the prompt's own id. */
static void print_heading(const Run *r)
{
	const char *id = r->prompts.at[r->show].id;
	printf("%s==> ", r->show ? "\n" : "");
	if (id)
		fputs(id, stdout);
	else
		printf("%d", r->show + 1);
	puts(" <==");
}

/* Shows what is new, in the order of the prompts. */
static void show_text(Run *r)
{
	const bool many = r->args->file;
	for (; r->show < r->n_started && !r->args->json; r->show++) {
		Answer *a = &r->answers[r->show];
		if (many && a->shown == 0 && (a->text.n || a->end))
			print_heading(r);
		if (a->text.n > a->shown)
			fwrite(a->text.at + a->shown, 1, a->text.n - a->shown, stdout);
		a->shown = a->text.n;
		if (!a->end)
			break;
		if (many)
			putchar('\n');
	}
	fflush(stdout);
}

/* After a step of n events. */
static int give_masks(Run *r, int n)
{
	for (int i = 0; i < n; i++) {
		const int slot = r->events[i].slot;
		Answer *a = &r->answers[r->in_slot[slot]];
		const bool needs_mask = a->needs_mask && !a->end;
		a->needs_mask = false;
		const AtlasStatus status = needs_mask ? structured_mask(r->session, slot, a->guide) : ATLAS_OK;
		if (status != ATLAS_OK)
			return cli_fail_session(r->args, r->session, status);
	}
	return 0;
}

static int generate(Run *r)
{
	while (r->n_done < r->prompts.n) {
		int n, code = start_some(r);
		if (code)
			return code;
		AtlasStatus status = atlas_step(r->session, r->events, r->n_events, &n);
		if (status != ATLAS_OK)
			return cli_fail_session(r->args, r->session, status);
		if (n > 0 && r->first_token_seconds == 0)
			r->first_token_seconds = cli_seconds() - r->start_seconds;
		for (int i = 0; i < n && !code; i++)
			code = take_event(r, &r->events[i]);
		code = code ? code : give_masks(r, n);
		if (code)
			return code;
		show_text(r);
		if (ferror(stdout))
			return cli_say(r->args, EXIT_ENVIRONMENT, "stdout cannot be written");
		if (cli_interrupted())
			return EXIT_INTERRUPTED;
	}
	return 0;
}

/* Ends ------------------------------------------------------------ */

static void print_json(const Run *r, const AtlasSessionInfo *session)
{
	printf("{\"schema_version\": 1, \"device\": ");
	json_quoted(stdout, session->device);
	if (session->step_tokens > 1)
		printf(", \"speculate\": {\"rows\": %d, \"drafts\": %lld, \"accepted\": %lld}", session->step_tokens,
			(long long)session->drafts, (long long)session->accepted_drafts);
	printf(", \"results\": [");
	for (int i = 0; i < r->prompts.n; i++) {
		printf("%s\n {", i ? "," : "");
		print_answer(r, i);
		putchar('}');
	}
	printf("\n]}\n");
}

/* "stop token", or of several answers "2 stop token, 1 token limit". */
static const char *ends_text(const Run *r, char text[160])
{
	int count[N_ENDS] = {0}, n = 0;
	for (int i = 0; i < r->prompts.n; i++)
		count[r->answers[i].end ? r->answers[i].end : CANCELLED]++;
	text[0] = 0;
	for (int e = RUNS + 1; e < N_ENDS; e++)
		if (count[e] && r->prompts.n > 1)
			n += snprintf(text + n, 160 - (size_t)n, "%s%d %s", n ? ", " : "", count[e], ends[e].words);
		else if (count[e])
			n += snprintf(text + n, 160 - (size_t)n, "%s", ends[e].words);
	return text;
}

/* Tokens a second after the first token: with one prompt, the speed of decoding alone. */
static void report(const Run *r, const AtlasSessionInfo *session, double seconds)
{
	int prompt = 0, made = 0;
	char why[160];
	for (int i = 0; i < r->prompts.n; i++) {
		prompt += r->prompts.at[i].tokens.n;
		made += r->answers[i].n;
	}
	double decoding = seconds - r->first_token_seconds;
	if (r->args->quiet)
		return;
	cli_say(r->args, 0, "%d prompt tokens, first token after %.1f ms; %d tokens in %.2f s, %.1f tokens/s; ended by: %s",
		prompt, 1e3 * r->first_token_seconds, made, seconds, made > 1 ? (made - 1) / fmax(decoding, 1e-9) : 0,
		ends_text(r, why));
	if (session->drafts > 0)
		cli_say(r->args, 0, "%lld of %lld drafts accepted, %.1f %%", (long long)session->accepted_drafts,
			(long long)session->drafts, 100.0 * (double)session->accepted_drafts / (double)session->drafts);
}

static int run_all(Run *r)
{
	AtlasSessionInfo session = {.struct_size = sizeof session};
	int code;
	r->info.struct_size = sizeof r->info;
	if (r->args->chat && r->args->tokens)
		return cli_say(r->args, EXIT_USAGE, "--chat takes a text: give -p TEXT or -f FILE, not --tokens");
	if (!r->args->chat && (r->args->system || r->args->date >= 0))
		return cli_say(r->args, EXIT_USAGE, "%s needs --chat", r->args->system ? "--system" : "--date");
	if ((code = prompts_read(r->args, &r->prompts)))
		return code;
	r->started = cli_start_device(r->args);
	if ((code = cli_open_plan(r->args, r->args->plan, &r->plan)))
		return code;
	atlas_plan_info(r->plan, &r->info);
	const bool certified = r->args->require_certified;
	if ((certified && (code = certificate_required(r->args, r->plan, NULL))) || (code = encode_prompts(r)) ||
		(code = structured_open(r->args, r->plan, &r->structured)) ||
		(code = cli_open_session(r->args, r->plan, NULL, r->started, &r->session)) ||
		(certified && (code = certificate_required(r->args, r->plan, r->session))))
		return code;
	atlas_session_info(r->session, &session);
	r->in_slot = calloc((size_t)r->info.slots, sizeof *r->in_slot);
	r->n_events = r->info.slots * session.step_tokens;
	r->events = calloc((size_t)r->n_events, sizeof *r->events);
	if (!r->in_slot || !r->events)
		return cli_say(r->args, EXIT_ENVIRONMENT, "no memory for %d slots", r->info.slots);
	r->start_seconds = cli_seconds();
	code = generate(r);
	const Bytes *last = &r->answers[r->prompts.n - 1].text;
	if (!r->args->json && (!r->args->file || code) && isatty(STDOUT_FILENO) && last->n &&
		last->at[last->n - 1] != '\n')
		putchar('\n'); /* between a text and what is said about it; otherwise stdout is the text alone */
	double seconds = cli_seconds() - r->start_seconds;
	atlas_session_info(r->session, &session); /* with the drafts that were made */
	if (!code && r->args->json && !r->prompts.are_json)
		print_json(r, &session);
	if (!code || code == EXIT_INTERRUPTED)
		report(r, &session, seconds);
	if (!code && r->n_failed)
		code = cli_say(r->args, atlas_status_exit_code(ATLAS_DEVICE_FAULT),
			"%d of %d answers ended early: the model's scores were not numbers", r->n_failed, r->prompts.n);
	return code;
}

int verb_run(const Args *args)
{
	Run r = {.args = args};
	cli_hold_signals();
	int code = run_all(&r);
	for (int i = 0; r.answers && i < r.prompts.n; i++) {
		Answer *a = &r.answers[i];
		guide_close(a->guide);
		atlas_text_close(a->stream);
		free(a->text.at);
		free(a->ids);
		free(a->logprobs);
	}
	free(r.answers);
	prompts_free(&r.prompts);
	free(r.in_slot);
	free(r.events);
	atlas_session_close(r.session);
	atlas_device_end(r.started);
	structured_close(&r.structured);
	atlas_plan_close(r.plan);
	return code;
}
