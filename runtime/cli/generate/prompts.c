/* prompts.c - see prompts.h. Every line is read before anything runs, so that all mistakes are printed at once. */
#include "runtime/cli/generate/prompts.h"
#include "artifacts/closest.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct Line { /* that is being read */
	const Args *args;
	const char *text;
	size_t n;
	int number;
	bool is_wrong;
} Line;

__attribute__((format(printf, 3, 4)))
static bool wrong(Line *l, int column, const char *fmt, ...)
{
	char text[256];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	cli_say_at(l->args, 0, l->args->file, l->number, column, text);
	l->is_wrong = true;
	return false;
}

/* Places ------------------------------------------------------------ */

/* The byte after a string that begins at `at`; jansson has seen that it ends. */
static size_t end_of_string(const Line *l, size_t at)
{
	for (at++; at < l->n && l->text[at] != '"'; at++)
		at += l->text[at] == '\\';
	return at + 1;
}

/* The column, from 1, of a key of the line's object. A key that is written with escapes: of the object. */
static int column_of(const Line *l, const char *key)
{
	int depth = 0;
	for (size_t i = 0; i < l->n; i++) {
		if (l->text[i] == '"') {
			const size_t end = end_of_string(l, i), n = strlen(key);
			const char *rest = l->text + end;
			while (rest < l->text + l->n && strchr(" \t\r", *rest))
				rest++;
			if (depth == 1 && *rest == ':' && end - i == n + 2 && memcmp(l->text + i + 1, key, n) == 0)
				return (int)i + 1;
			i = end - 1;
		}
		depth += (l->text[i] == '{' || l->text[i] == '[') - (l->text[i] == '}' || l->text[i] == ']');
	}
	return 1;
}

/* Objects ------------------------------------------------------------ */

typedef struct Setting { const char *key, *option; bool is_whole; size_t at; } Setting; /* at: in SamplingArgs */
#define AT(name) offsetof(SamplingArgs, name)
static const Setting settings[] = {
	{"max_new", "--max-tokens", true, AT(max_new)}, {"top_k", "--top-k", true, AT(top_k)},
	{"temperature", "--temperature", false, AT(temperature)}, {"top_p", "--top-p", false, AT(top_p)},
	{"min_p", "--min-p", false, AT(min_p)},
	{"repetition_penalty", "--repetition-penalty", false, AT(repetition_penalty)},
	{"presence_penalty", "--presence-penalty", false, AT(presence_penalty)},
	{"frequency_penalty", "--frequency-penalty", false, AT(frequency_penalty)},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };
static const char *const other_keys[] = {"prompt", "tokens", "seed", "stop", "id"};
enum { N_OTHERS = sizeof other_keys / sizeof other_keys[0] };

static bool set_number(Line *l, Prompt *p, const Setting *s, const json_t *v)
{
	double low, high;
	options_limits("run", s->option, &low, &high);
	const double x = json_number_value(v);
	if (!(s->is_whole ? json_is_integer(v) : json_is_number(v)) || !(x >= low && x <= high))
		return wrong(l, column_of(l, s->key), "%s: expected a %s from %.10g to %.10g", s->key,
			s->is_whole ? "whole number" : "number", low, high);
	if (s->is_whole)
		*(int *)((char *)&p->sampling + s->at) = (int)x;
	else
		*(double *)((char *)&p->sampling + s->at) = x;
	return true;
}

static bool set_tokens(Line *l, Prompt *p, const json_t *v)
{
	const size_t n = json_array_size(v);
	const int column = column_of(l, "tokens");
	if (!json_is_array(v) || !n || n > INT_MAX)
		return wrong(l, column, "tokens: expected a list of token ids");
	p->tokens = (Tokens){malloc(n * sizeof *p->tokens.ids), 0};
	for (size_t i = 0; i < n; i++) {
		const json_t *id = json_array_get(v, i);
		const json_int_t value = json_integer_value(id);
		if (!p->tokens.ids)
			return wrong(l, column, "tokens: no memory for them");
		if (!json_is_integer(id) || value < 0 || value > INT32_MAX)
			return wrong(l, column, "tokens: number %zu is not a token id", i + 1);
		p->tokens.ids[p->tokens.n++] = (int32_t)value;
	}
	return true;
}

static bool set_stop(Line *l, Prompt *p, const json_t *v)
{
	const size_t n = json_is_array(v) ? json_array_size(v) : 1;
	bool good = n <= MAX_STOPS;
	p->n_stop = 0;
	for (size_t i = 0; good && i < n; i++) {
		const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
		good = json_is_string(s) && json_string_length(s) && !memchr(json_string_value(s), 0, json_string_length(s)) &&
			json_string_length(s) <= ATLAS_MAX_STOP_BYTES;
		if (good)
			p->stop[p->n_stop++] = json_string_value(s);
	}
	return good || wrong(l, column_of(l, "stop"), "stop: expected a text of at most %d bytes, or a list of up to %d",
		ATLAS_MAX_STOP_BYTES, MAX_STOPS);
}

static bool set_other(Line *l, Prompt *p, const char *key, const json_t *v)
{
	if (strcmp(key, "tokens") == 0)
		return set_tokens(l, p, v);
	if (strcmp(key, "stop") == 0)
		return set_stop(l, p, v);
	if (strcmp(key, "prompt") == 0) {
		p->text = json_string_value(v);
		p->bytes = json_string_length(v);
		return json_is_string(v) || wrong(l, column_of(l, key), "prompt: expected a text");
	}
	if (strcmp(key, "seed") == 0) { /* JSON's integers end at 2^63 - 1 here */
		p->sampling.seed = (uint64_t)json_integer_value(v);
		return (json_is_integer(v) && json_integer_value(v) >= 0) ||
			wrong(l, column_of(l, key), "seed: expected a whole number below 2^63");
	}
	return json_is_string(v) || json_is_integer(v) || wrong(l, column_of(l, key), "id: expected a text or an integer");
}

static bool set_key(Line *l, Prompt *p, const char *key, const json_t *v)
{
	const char *names[N_SETTINGS + N_OTHERS];
	for (int i = 0; i < N_SETTINGS; i++) {
		if (strcmp(settings[i].key, key) == 0)
			return set_number(l, p, &settings[i], v);
		names[i] = settings[i].key;
	}
	for (int i = 0; i < N_OTHERS; i++) {
		if (strcmp(other_keys[i], key) == 0)
			return set_other(l, p, key, v);
		names[N_SETTINGS + i] = other_keys[i];
	}
	const char *near = closest_name(key, names, N_SETTINGS + N_OTHERS);
	return wrong(l, column_of(l, key), near ? "unknown key %.60s: did you mean %s?" : "unknown key %.60s%s", key,
		near ? near : "");
}

static void read_object(Line *l, Prompts *list, Prompt *p)
{
	json_error_t error;
	json_t *root = json_loadb(l->text, l->n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error), *v;
	const char *key;
	list->parsed[p - list->at] = root;
	if (!root || !json_is_object(root)) {
		wrong(l, root || error.column < 1 ? 1 : error.column, root ? "expected an object" : "%s", error.text);
		return;
	}
	json_object_foreach(root, key, v)
		set_key(l, p, key, v);
	if (!json_object_get(root, "prompt") == !json_object_get(root, "tokens"))
		wrong(l, 1, "expected one of prompt and tokens");
	if ((v = json_object_get(root, "id")))
		p->id = list->ids[p - list->at] = json_dumps(v, JSON_ENCODE_ANY);
}

/* Files ------------------------------------------------------------ */

static bool is_jsonl(const Args *args)
{
	const char *dot = strrchr(args->file, '.');
	return args->input ? strcmp(args->input, "jsonl") == 0 : dot && strcmp(dot, ".jsonl") == 0;
}

/* Room for as many prompts as the file has lines. */
static bool make_room(Prompts *list, size_t n)
{
	size_t lines = 1;
	for (const char *p = list->file; p && (p = memchr(p, '\n', (size_t)(list->file + n - p))); p++)
		lines++;
	list->at = lines < INT_MAX ? calloc(lines, sizeof *list->at) : NULL;
	list->parsed = calloc(lines, sizeof *list->parsed);
	list->ids = calloc(lines, sizeof *list->ids);
	return list->at && list->parsed && list->ids;
}

static Prompt *add_prompt(const Args *args, Prompts *list, int line)
{
	Prompt *p = &list->at[list->n++];
	*p = (Prompt){.line = line, .sampling = args->sampling, .n_stop = args->n_stop};
	memcpy(p->stop, args->stop, sizeof p->stop);
	return p;
}

int prompts_read(const Args *args, Prompts *list)
{
	size_t n = 0;
	int code = 0, number = 0;
	if (!!args->prompt + !!args->file + !!args->tokens != 1)
		return cli_say(args, EXIT_USAGE, "give one of -p TEXT, -f FILE and --tokens IDS");
	if (args->input && !args->file)
		return cli_say(args, EXIT_USAGE, "--input needs -f FILE");
	if (args->file && (code = cli_read_file(args, args->file, &list->file, &n)))
		return code;
	if (!make_room(list, n))
		return cli_say(args, EXIT_ENVIRONMENT, "no memory for the prompts");
	if (!args->file) {
		Prompt *p = add_prompt(args, list, 0);
		p->text = args->prompt;
		p->bytes = args->prompt ? strlen(args->prompt) : 0;
		return 0;
	}
	list->are_json = is_jsonl(args);
	for (const char *at = list->file, *end = at + n; at < end;) {
		const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
		Line l = {args, at, (size_t)(stop - at), ++number, false};
		l.n -= l.n && at[l.n - 1] == '\r';
		at = stop + 1;
		if (!l.n) {
			char place[300];
			snprintf(place, sizeof place, "%.280s:%d", args->file, number);
			if (!args->quiet)
				cli_message(args, place, MESSAGE_NOTE, NULL, "an empty line is skipped");
			continue;
		}
		Prompt *p = add_prompt(args, list, number);
		p->text = l.text;
		p->bytes = l.n;
		if (list->are_json) {
			p->text = NULL;
			read_object(&l, list, p);
		}
		code = l.is_wrong ? EXIT_BAD_INPUT : code;
	}
	return code || list->n ? code : cli_say(args, EXIT_BAD_INPUT, "%s: there is no prompt in it", args->file);
}

const char *prompt_place(const Args *args, const Prompt *p, char text[300])
{
	if (p->line)
		snprintf(text, 300, "%.250s:%d", args->file, p->line);
	else
		snprintf(text, 300, "the prompt");
	return text;
}

void prompts_free(Prompts *list)
{
	for (int i = 0; i < list->n; i++) {
		free(list->at[i].tokens.ids);
		json_decref(list->parsed[i]);
		free(list->ids[i]);
	}
	free(list->at);
	free(list->parsed);
	free(list->ids);
	free(list->file);
}
