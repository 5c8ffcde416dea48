/* verb_run.c - atlas run: prompts in, text out.
 *
 * All prompts go through the plan's slots together: as many as fit are started, each step yields a
 * token for every running one, and a finished one makes room for the next. Text is shown in the
 * order of the prompts, as soon as its code points are whole and no stop text can reach back into
 * it.
 */
#include "artifacts/json_put.h"
#include "runtime/cli/certify.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/stop_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Answer {
	const char *prompt;
	size_t prompt_bytes;
	Tokens tokens; /* of the prompt */
	AtlasText *stream;
	StopText stop;
	Bytes text; /* so far */
	size_t shown; /* bytes of text already on stdout */
	int32_t *ids; /* generated */
	float *logprobs;
	int n, cap;
	const char *finish; /* NULL while it runs: "stop", "length", "failed" */
} Answer;

typedef struct Run {
	const Args *args;
	AtlasDevice *started;
	AtlasPlan *plan;
	AtlasSession *session;
	AtlasPlanInfo info;
	char *file; /* contents of the prompt file */
	Answer *answers;
	int n_answers, n_started, n_done, n_failed;
	int show; /* the answer being shown */
	int *in_slot; /* [slots] its answer */
	AtlasEvent *events;
	int n_events;
	double start_seconds, first_token_seconds; /* the first is a clock, the second counts from it */
} Run;

/* Prompts ------------------------------------------------------------ */

static int add_prompt(Run *r, const char *text, size_t n)
{
	Answer *more = realloc(r->answers, sizeof *more * (size_t)(r->n_answers + 1));
	if (!more)
		return cli_say(r->args, EXIT_ENVIRONMENT, "no memory for prompt %d", r->n_answers + 1);
	r->answers = more;
	r->answers[r->n_answers++] = (Answer){.prompt = text,
		.prompt_bytes = n,
		.stop = {.stops = r->args->stop, .n_stops = r->args->n_stop}};
	return 0;
}

static int read_prompts(Run *r)
{
	const Args *args = r->args;
	size_t n;
	int code = 0;
	if (!!args->prompt + !!args->file + !!args->tokens != 1)
		return cli_say(args, EXIT_USAGE, "give one of -p TEXT, -f FILE and --tokens IDS");
	if (args->prompt || args->tokens)
		return add_prompt(r, args->prompt, args->prompt ? strlen(args->prompt) : 0);
	if ((code = cli_read_file(args, args->file, &r->file, &n)))
		return code;
	for (char *line = r->file, *end = r->file + n; line < end && !code;) {
		char *newline = memchr(line, '\n', (size_t)(end - line)), *stop = newline ? newline : end;
		size_t length = (size_t)(stop - line);
		if (length && line[length - 1] == '\r')
			length--;
		code = add_prompt(r, line, length);
		line = stop + 1;
	}
	if (!code && !r->n_answers)
		return cli_say(args, EXIT_BAD_INPUT, "%s: there is no prompt in it", args->file);
	return code;
}

/* Encodes every prompt and lists all that cannot run. */
static int encode_prompts(Run *r)
{
	int bad = 0;
	for (int i = 0; i < r->n_answers; i++) {
		Answer *a = &r->answers[i];
		char where[300] = "the prompt";
		int code = r->args->file
			? cli_encode(r->args, r->plan, a->prompt, a->prompt_bytes, &a->tokens)
			: cli_prompt_tokens(r->args, r->plan, &a->tokens);
		if (code)
			return code;
		if (r->args->file)
			snprintf(where, sizeof where, "%.250s:%d", r->args->file, i + 1);
		if (a->tokens.n == 0)
			bad = cli_say(r->args, EXIT_BAD_INPUT, "%s: no tokens: an empty prompt", where);
		if (a->tokens.n > r->info.max_context)
			bad = cli_say(r->args, EXIT_BAD_INPUT, "%s: %d tokens: the plan's context holds %d",
				where, a->tokens.n, r->info.max_context);
		AtlasError error = {.status = atlas_text_open(r->plan, 1, &a->stream)};
		bool needs_text = !r->args->tokens || !r->args->json; /* ids in, ids out: no tokenizer */
		if (error.status == ATLAS_NO_TOKENIZER && r->args->tokens && needs_text)
			return cli_say(r->args, EXIT_BAD_INPUT, "the plan holds no tokenizer, its answers are ids: add --json");
		if (error.status != ATLAS_OK && (needs_text || error.status != ATLAS_NO_TOKENIZER))
			return cli_fail(r->args, &error);
	}
	return bad;
}

/* Steps ------------------------------------------------------------ */

static AtlasSampling sampling_of(const Run *r)
{
	const Args *args = r->args;
	AtlasSampling s = {.struct_size = sizeof s};
	atlas_sampling_init(r->plan, &s);
	const struct {
		double given;
		float *place;
	} settings[] = {{args->temperature, &s.temperature}, {args->top_p, &s.top_p},
		{args->min_p, &s.min_p}, {args->repetition_penalty, &s.repetition_penalty},
		{args->presence_penalty, &s.presence_penalty},
		{args->frequency_penalty, &s.frequency_penalty}};
	for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
		if (!isnan(settings[i].given))
			*settings[i].place = (float)settings[i].given;
	if (args->top_k >= 0)
		s.top_k = args->top_k;
	s.seed = args->seed;
	return s;
}

/* Starts waiting prompts while there is room. */
static int start_some(Run *r, const AtlasSampling *sampling)
{
	int max_new = r->args->max_new > 0 ? r->args->max_new : r->info.max_new_tokens;
	if (max_new <= 0)
		max_new = r->info.max_context;
	while (r->n_started < r->n_answers) {
		const Tokens *t = &r->answers[r->n_started].tokens;
		int slot;
		AtlasStatus status = atlas_start(r->session, t->ids, t->n, sampling, max_new, &slot);
		bool is_full = status == ATLAS_NO_SLOT || status == ATLAS_NO_PAGES;
		if (is_full && atlas_active(r->session) > 0)
			return 0;
		if (status != ATLAS_OK)
			return cli_fail_session(r->args, r->session, status);
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

/* Adds a token's text; a stop text ends the answer here and now. */
static int take_event(Run *r, const AtlasEvent *e)
{
	Answer *a = &r->answers[r->in_slot[e->slot]];
	if (a->finish) /* a stop text ended it in the middle of a step */
		return 0;
	const char *text = "", *rest = "";
	size_t n = 0, n_rest = 0;
	bool found = false, is_token = e->finish != ATLAS_FAILED, good = !is_token || keep_token(a, e);

	if (e->finish != ATLAS_STOP && is_token && good && a->stream)
		good = atlas_text_push(a->stream, e->token, &text, &n) == ATLAS_OK &&
			stop_text_push(&a->stop, text, n, &a->text, &found);
	if (e->finish != ATLAS_RUNNING && !found && good) {
		good = (!a->stream || atlas_text_finish(a->stream, &rest, &n_rest) == ATLAS_OK) &&
			stop_text_push(&a->stop, rest, n_rest, &a->text, &found) &&
			stop_text_finish(&a->stop, &a->text);
		a->finish = e->finish == ATLAS_STOP ? "stop" : is_token ? "length" : "failed";
		r->n_failed += !is_token;
	}
	if (!good)
		return cli_say(r->args, EXIT_ENVIRONMENT, "no memory for the text");
	if (found) {
		a->finish = "stop";
		if (e->finish == ATLAS_RUNNING)
			atlas_cancel(r->session, e->slot);
	}
	r->n_done += a->finish != NULL;
	return 0;
}

/* Shows what is new, in the order of the prompts. */
static void show_text(Run *r)
{
	bool many = r->args->file != NULL;
	for (; r->show < r->n_started && !r->args->json; r->show++) {
		Answer *a = &r->answers[r->show];
		if (many && a->shown == 0 && (a->text.n || a->finish))
			printf("%s==> %d <==\n", r->show ? "\n" : "", r->show + 1);
		if (a->text.n > a->shown)
			fwrite(a->text.at + a->shown, 1, a->text.n - a->shown, stdout);
		a->shown = a->text.n;
		if (!a->finish)
			break;
		if (many)
			putchar('\n');
	}
	fflush(stdout);
}

static int generate(Run *r)
{
	AtlasSampling sampling = sampling_of(r);
	while (r->n_done < r->n_answers) {
		int n, code = start_some(r, &sampling);
		if (code)
			return code;
		AtlasStatus status = atlas_step(r->session, r->events, r->n_events, &n);
		if (status != ATLAS_OK)
			return cli_fail_session(r->args, r->session, status);
		if (n > 0 && r->first_token_seconds == 0)
			r->first_token_seconds = cli_seconds() - r->start_seconds;
		for (int i = 0; i < n && !code; i++)
			code = take_event(r, &r->events[i]);
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
	for (int i = 0; i < r->n_answers; i++) {
		const Answer *a = &r->answers[i];
		printf("%s\n {\"prompt\": ", i ? "," : "");
		if (a->prompt)
			json_text(stdout, a->prompt, a->prompt_bytes);
		else
			fputs("null", stdout);
		printf(", \"prompt_tokens\": [");
		for (int k = 0; k < a->tokens.n; k++)
			printf("%s%d", k ? ", " : "", a->tokens.ids[k]);
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
		printf("], \"finish\": \"%s\"}", a->finish);
	}
	printf("\n]}\n");
}

/* Tokens a second after the first token: with one prompt, the speed of decoding alone. */
static void report(const Run *r, const AtlasSessionInfo *session, double seconds)
{
	int prompt = 0, made = 0;
	for (int i = 0; i < r->n_answers; i++) {
		prompt += r->answers[i].tokens.n;
		made += r->answers[i].n;
	}
	double decoding = seconds - r->first_token_seconds;
	if (!r->args->quiet)
		cli_say(r->args, 0,
			"%d prompt tokens, first token after %.1f ms; %d tokens in %.2f s, %.1f tokens/s",
			prompt, 1e3 * r->first_token_seconds, made, seconds,
			made > 1 ? (made - 1) / fmax(decoding, 1e-9) : 0);
	if (!r->args->quiet && session->drafts > 0)
		cli_say(r->args, 0, "%lld of %lld drafts accepted, %.1f %%", (long long)session->accepted_drafts,
			(long long)session->drafts, 100.0 * (double)session->accepted_drafts / (double)session->drafts);
}

static int run_all(Run *r)
{
	AtlasSessionInfo session = {.struct_size = sizeof session};
	int code;
	r->info.struct_size = sizeof r->info;
	if ((code = read_prompts(r)))
		return code;
	r->started = cli_start_device(r->args);
	if ((code = cli_open_plan(r->args, r->args->plan, &r->plan)))
		return code;
	atlas_plan_info(r->plan, &r->info);
	const bool certified = r->args->require_certified;
	if ((certified && (code = certificate_required(r->args, r->plan, NULL))) || (code = encode_prompts(r)) ||
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
	double seconds = cli_seconds() - r->start_seconds;
	atlas_session_info(r->session, &session); /* with the drafts that were made */
	bool is_plain = !r->args->json && !r->args->file;
	if (is_plain && isatty(STDOUT_FILENO))
		putchar('\n'); /* otherwise stdout is the text alone */
	if (!code && r->args->json)
		print_json(r, &session);
	if (!code)
		report(r, &session, seconds);
	if (!code && r->n_failed)
		code = cli_say(r->args, atlas_status_exit_code(ATLAS_DEVICE_FAULT),
			"error: %d of %d answers ended early: the model's scores were not numbers", r->n_failed, r->n_answers);
	return code;
}

int verb_run(const Args *args)
{
	Run r = {.args = args};
	cli_hold_signals();
	int code = run_all(&r);
	for (int i = 0; i < r.n_answers; i++) {
		Answer *a = &r.answers[i];
		atlas_text_close(a->stream);
		free(a->tokens.ids);
		free(a->stop.held.at);
		free(a->text.at);
		free(a->ids);
		free(a->logprobs);
	}
	free(r.answers);
	free(r.file);
	free(r.in_slot);
	free(r.events);
	atlas_session_close(r.session);
	atlas_device_end(r.started);
	atlas_plan_close(r.plan);
	return code;
}
