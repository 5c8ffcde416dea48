/* structure.c - see structure.h. */
#include "runtime/serve/structure.h"
#include "runtime/plan_handle.h"
#include "runtime/serve/channels.h"
#include "runtime/serve/request.h"
#include "runtime/serve/tool_formats.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 32 /* grammars */ };

typedef struct Kept { char *key; Grammar *grammar; int64_t used; } Kept;
typedef struct Coming { const char *key; struct Coming *next; } Coming; /* a worker is compiling it */

struct Structures {
	const AtlasPlan *plan;
	pthread_mutex_t lock;
	pthread_cond_t compiled;
	GrammarVocab *vocab;
	Coming *coming;
	Kept kept[KEPT];
	int64_t turn;
};

Structures *structures_open(const AtlasPlan *plan)
{
	Structures *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->plan = plan;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->compiled, NULL);
	return s;
}

void structures_close(Structures *s)
{
	if (!s)
		return;
	for (int i = 0; i < KEPT; i++) {
		free(s->kept[i].key);
		grammar_free(s->kept[i].grammar);
	}
	grammar_vocab_close(s->vocab);
	pthread_cond_destroy(&s->compiled);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* Under the lock. */
static Grammar *find(Structures *s, const char *key)
{
	for (int i = 0; i < KEPT; i++)
		if (s->kept[i].key && strcmp(s->kept[i].key, key) == 0) {
			s->kept[i].used = ++s->turn;
			return grammar_keep(s->kept[i].grammar);
		}
	return NULL;
}

static bool is_coming(const Structures *s, const char *key)
{
	const Coming *c = s->coming;
	while (c && strcmp(c->key, key) != 0)
		c = c->next;
	return c != NULL;
}

/* In place of the one that was used last the longest ago. Takes the key over. */
static void keep(Structures *s, char *key, Grammar *g)
{
	Kept *oldest = &s->kept[0];
	for (int i = 1; i < KEPT; i++)
		if (s->kept[i].used < oldest->used)
			oldest = &s->kept[i];
	free(oldest->key);
	grammar_free(oldest->grammar);
	*oldest = (Kept){key, grammar_keep(g), ++s->turn};
}

/* Different for different sources. */
static char *key_of(const GrammarSource *source)
{
	char *json = source->json ? json_dumps(source->json, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
	char *head = source->head ? json_dumps(source->head, JSON_COMPACT) : NULL;
	const char *body = json ? json : source->text ? source->text : "";
	const char *before = source->before ? source->before : "";
	char *key = NULL;
	if (asprintf(&key, "%d %zu %s%s\n%s", (int)source->kind, strlen(before), before, body, head ? head : "") < 0)
		key = NULL;
	free(json);
	free(head);
	return key;
}

/* What a request wants; all of it owned, but for texts of tool formats. */
typedef struct Wanted {
	GrammarSource source;
	bool is_call;
	char *text, *key; /* key NULL: structure_find is still to be called */
	char param[64];
} Wanted;

void structure_forget(ApiRequest *r)
{
	Wanted *w = r->wanted;
	if (!w)
		return;
	json_decref(w->source.json);
	json_decref(w->source.head);
	free(w->text);
	free(w->key);
	free(w);
	r->wanted = NULL;
}

/* The grammar that is kept, or a new one. NULL after filling `why`. */
static Grammar *grammar_of(Structures *s, Wanted *w, GrammarError *why)
{
	Grammar *g;
	Coming self = {.key = w->key};
	pthread_mutex_lock(&s->lock);
	while (!(g = find(s, w->key)) && is_coming(s, w->key))
		pthread_cond_wait(&s->compiled, &s->lock);
	if (!g) {
		self.next = s->coming;
		s->coming = &self;
	}
	pthread_mutex_unlock(&s->lock);
	if (g)
		return g;
	g = grammar_compile(&w->source, why);
	if (g)
		grammar_prepare(g, s->vocab);
	pthread_mutex_lock(&s->lock);
	Coming **at = &s->coming;
	while (*at != &self)
		at = &(*at)->next;
	*at = self.next;
	if (g) {
		keep(s, w->key, g);
		w->key = NULL;
	}
	pthread_cond_broadcast(&s->compiled);
	pthread_mutex_unlock(&s->lock);
	return g;
}

/* The place in the schema of a tool, after its name, of a schema that is made of all tools (tool_grammar.c). */
static void name_tool(const Wanted *w, char *pointer, size_t n)
{
	char path[64], rest[200];
	int tool = -1, skip = 0;
	const char *from = pointer + (strncmp(pointer, "/items/", 7) == 0 ? 6 : 0);
	if (sscanf(from, "/anyOf/%d/properties/%*[a-z]%n", &tool, &skip) != 1 || !skip)
		return;
	snprintf(path, sizeof path, "#%s%.*s/anyOf/%d/properties/name/const",
		w->source.kind == GRAMMAR_FORM ? "/schemas/0" : "", (int)(from - pointer), pointer, tool);
	const char *name = json_string_value(grammar_at(w->source.json, path));
	snprintf(rest, sizeof rest, "%s", from + skip + (strncmp(from + skip, "/allOf/0/", 9) == 0 ? 8 : 0));
	if (name)
		snprintf(pointer, n, "/%.60s%.130s", name, rest);
}

bool structure_compile(const ApiLimits *limits, ApiRequest *r, ApiError *e)
{
	GrammarError why;
	Wanted *w = r->wanted;
	r->grammar = grammar_of(limits->structures, w, &why);
	r->guide.grammar = r->grammar;
	if (!r->grammar) {
		if (w->is_call && limits->tools->lead)
			name_tool(w, why.pointer, sizeof why.pointer);
		api_refuse(e, 400, w->param, "%s%s%s: %s", w->param, why.pointer[0] ? " at " : "", why.pointer, why.text);
		e->code = "invalid_structure";
	}
	structure_forget(r);
	return r->grammar != NULL;
}

/* Puts down what is to be compiled when all of the request is read. */
static bool want(const ApiLimits *limits, const GrammarSource *source, const char *param, ApiRequest *r, ApiError *e)
{
	Structures *s = limits->structures;
	if (r->wants_prompt)
		return true;
	if (r->wanted)
		return api_refuse(e, 400, param, "%s: another field asks for a structure already", param);
	if (!s || !s->plan->has_tokenizer)
		return api_refuse(e, 400, param, "%s: the plan holds no tokenizer", param);
	Wanted *w = r->wanted = calloc(1, sizeof *w);
	if (!w)
		return api_refuse(e, 500, NULL, "no memory");
	*w = (Wanted){.source = *source, .text = source->text ? strdup(source->text) : NULL};
	w->source.json = json_deep_copy(source->json); /* the body is gone when it is compiled */
	w->source.text = w->text;
	w->source.tok = &s->plan->tokenizer;
	snprintf(w->param, sizeof w->param, "%s", param);
	if ((source->text && !w->text) || (source->json && !w->source.json))
		return api_refuse(e, 500, NULL, "no memory");
	pthread_mutex_lock(&s->lock);
	if (!s->vocab)
		s->vocab = grammar_vocab_open(&s->plan->tokenizer, limits->info->vocab);
	r->guide.vocab = s->vocab;
	pthread_mutex_unlock(&s->lock);
	return r->guide.vocab || api_refuse(e, 400, param, "%s: there is no memory for the vocabulary, or its tokens are "
		"words with spaces between", param);
}

/* The vocabulary's own tokens for marks of formats and channels. */
static void find_marks(const ApiLimits *limits, const Reasoning *reasoning, GuideSource *guide)
{
	const Tok *tok = &limits->plan->tokenizer;
	for (uint32_t i = 0; i < tok->count[TOK_SEC_ADDED] && guide->n_marks < GUIDE_MARKS; i++) {
		const char *bytes;
		size_t n;
		bool special;
		const int32_t id = (int32_t)tok->added[i].id;
		if (id < limits->info->vocab && tok_token_bytes(tok, id, &bytes, &n, &special) &&
			tool_format_has_marker(limits->tools, reasoning, bytes, n))
			guide->marks[guide->n_marks++] = id;
	}
}

bool structure_find(const ApiLimits *limits, ApiRequest *r, ApiError *e)
{
	Structures *s = limits->structures;
	Wanted *w = r->wanted;
	const bool has_channels = limits->reasoning && limits->reasoning->has_channels && r->n_prompts == 1;
	if (!w)
		return true;
	if (has_channels && !w->is_call && (r->prompts[0].in_head || r->prompts[0].is_reasoning)) {
		if (!(w->source.head = channels_final_form(r->prompts[0].is_reasoning)))
			return api_refuse(e, 500, NULL, "no memory");
		find_marks(limits, limits->reasoning, &r->guide);
	} else if (w->is_call)
		find_marks(limits, limits->reasoning, &r->guide); /* which may come in text before a call */
	if (!(w->key = key_of(&w->source)))
		return api_refuse(e, 500, NULL, "no memory");
	pthread_mutex_lock(&s->lock);
	r->grammar = find(s, w->key);
	pthread_mutex_unlock(&s->lock);
	r->guide.grammar = r->grammar;
	if (r->grammar)
		structure_forget(r);
	return true;
}

/* A schema, or a text that is one. */
static bool compile_schema(const ApiLimits *limits, json_t *schema, const char *param, ApiRequest *r, ApiError *e)
{
	json_error_t at;
	json_t *parsed = json_is_string(schema)
		? api_load(json_string_value(schema), json_string_length(schema), JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &at)
		: json_incref(schema);
	if (!parsed)
		return api_refuse(e, 400, param, "%s is not JSON: line %d, column %d: %s", param, at.line, at.column, at.text);
	const bool good = want(limits, &(GrammarSource){.kind = GRAMMAR_SCHEMA, .json = parsed}, param, r, e);
	json_decref(parsed);
	return good;
}

bool structure_of_call(
	const ApiLimits *limits, const GrammarSource *source, const char *param, ApiRequest *r, ApiError *e)
{
	if (!want(limits, source, param, r, e))
		return false;
	if (r->wanted)
		r->wanted->is_call = true;
	return true;
}

static bool compile_regex(const ApiLimits *limits, json_t *text, const char *param, ApiRequest *r, ApiError *e)
{
	if (!json_is_string(text))
		return api_refuse(e, 400, param, "%s is %s: expected a string", param, api_kind(text));
	return want(
		limits, &(GrammarSource){.kind = GRAMMAR_REGEX, .text = json_string_value(text)}, param, r, e);
}

static bool compile_choice(const ApiLimits *limits, json_t *list, const char *param, ApiRequest *r, ApiError *e)
{
	if (!json_is_array(list))
		return api_refuse(e, 400, param, "%s is %s: expected a list of strings", param, api_kind(list));
	return want(limits, &(GrammarSource){.kind = GRAMMAR_CHOICE, .json = list}, param, r, e);
}

static bool compile_object(const ApiLimits *limits, json_t *value, const char *param, ApiRequest *r, ApiError *e)
{
	if (!json_is_boolean(value))
		return api_refuse(e, 400, param, "%s is %s: expected true or false", param, api_kind(value));
	return json_is_false(value) || want(limits, &(GrammarSource){.kind = GRAMMAR_OBJECT}, param, r, e);
}

bool request_format(const ApiLimits *limits, json_t *format, const char *param, ApiRequest *r, ApiError *e)
{
	char name[80];
	const char *type = NULL;
	if (!format)
		return true;
	if (!json_is_object(format))
		return api_refuse(e, 400, param, "%s is %s: expected an object", param, api_kind(format));
	if (!api_text(format, "type", &type, e))
		return false;
	if (type && strcmp(type, "text") == 0)
		return true;
	if (type && strcmp(type, "json_object") == 0)
		return want(limits, &(GrammarSource){.kind = GRAMMAR_OBJECT}, param, r, e);
	if (!type || strcmp(type, "json_schema") != 0)
		return api_refuse(e, 400, param, "%s.type: expected \"text\", \"json_object\" or \"json_schema\"", param);
	json_t *inner = api_get(format, "json_schema");
	json_t *schema = api_get(inner ? inner : format, "schema");
	snprintf(name, sizeof name, "%s%s.schema", param, inner ? ".json_schema" : "");
	if (!json_is_object(schema) && !json_is_boolean(schema))
		return api_refuse(e, 400, name, "%s is %s: expected a JSON schema", name, api_kind(schema));
	return compile_schema(limits, schema, name, r, e);
}

typedef bool CompileFn(const ApiLimits *limits, json_t *value, const char *param, ApiRequest *r, ApiError *e);

bool api_read_structure(const ApiLimits *limits, json_t *body, ApiRequest *r, ApiError *e)
{
	static const struct { const char *group, *name; CompileFn *compile; } fields[] = {
		{NULL, "response_format", request_format}, {"structured_outputs", "json", compile_schema},
		{"structured_outputs", "regex", compile_regex}, {"structured_outputs", "choice", compile_choice},
		{"structured_outputs", "json_object", compile_object}, {NULL, "guided_json", compile_schema},
		{NULL, "guided_regex", compile_regex}, {NULL, "guided_choice", compile_choice}};
	json_t *group = api_get(body, "structured_outputs"), *value;
	const char *name;
	bool known = true;
	if (group && !json_is_object(group))
		return api_refuse(e, 400, "structured_outputs", "structured_outputs is %s: expected an object",
			api_kind(group));
	json_object_foreach(group, name, value) {
		known = json_is_null(value) || json_is_false(value);
		for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
			known |= fields[i].group && strcmp(fields[i].name, name) == 0;
		if (!known)
			return api_refuse(e, 400, "structured_outputs", "structured_outputs.%.60s is not supported: expected "
				"one of json, regex, choice and json_object", name);
	}
	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
		char param[64];
		value = api_get(fields[i].group ? group : body, fields[i].name);
		if (!value)
			continue;
		snprintf(param, sizeof param, "%s%s%s", fields[i].group ? fields[i].group : "", fields[i].group ? "." : "",
			fields[i].name);
		if (!fields[i].compile(limits, value, param, r, e))
			return false;
	}
	return true;
}
