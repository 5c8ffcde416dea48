/* api.h - what the routes share: errors, typed readers of request JSON, and the one request that every API's requests
 * become. apis.c has the table of APIs.
 *
 * A field that changes the answer is honoured or refused by name; one that only keeps books is ignored; one that
 * this version does not know is ignored and counted (/metrics). null is the same as absent.
 */
#ifndef ATLAS_API_H
#define ATLAS_API_H

#include "runtime/atlas.h"
#include "runtime/serve/guide.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum {
	API_MAX_MESSAGES = 4096, API_MAX_DEPTH = 64, API_MAX_PROMPTS = 128,
	API_MAX_UNKNOWN = 8, API_NAME_BYTES = 48,
};

/* Errors ------------------------------------------------------------ */

typedef struct ApiError { /* status 0 = none */
	int status;
	const char *type, *code; /* static; code NULL = null */
	char param[96];          /* the field: "messages[2].content"; "" = null */
	char message[600];
	int retry_after_s;       /* 0 = no such header */
	size_t n_tokens; int max_tokens; /* of code context_length_exceeded: of the prompt, and the most of the model */
	const char *allow;       /* static: the methods that the path takes; NULL = no such header */
} ApiError;

/* Fills it and returns false, with the type that OpenAI's APIs give the status. param NULL = none. */
bool api_refuse(ApiError *e, int status, const char *param, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* {"error":{...}}, the form of OpenAI's APIs. */
void api_put_error(const ApiError *e, FILE *out);
void api_put_or_null(FILE *out, const char *name, const char *text); /* ,"name":"text" or ,"name":null */

/* Readers of JSON ------------------------------------------------------------ */

/* As json_loadb, but numbers may be of any size. */
json_t *api_load(const char *text, size_t n, size_t flags, json_error_t *at);
/* Strict JSON, one object, at most API_MAX_DEPTH deep. NULL after filling `e`. json_decref. */
json_t *api_parse(const char *text, size_t n, ApiError *e);

/* Each leaves *value alone where the field is absent or null; false after filling `e`. */
bool api_number(json_t *object, const char *name, double low, double high, double *value, ApiError *e);
bool api_integer(json_t *object, const char *name, int64_t low, int64_t high, int64_t *value, ApiError *e);
bool api_bool(json_t *object, const char *name, bool *value, ApiError *e);
bool api_text(json_t *object, const char *name, const char **value, ApiError *e); /* lives as long as the object */
/* What is there: "a string", "a list". */
const char *api_kind(const json_t *value);
/* NULL where the field is absent or null. */
json_t *api_get(json_t *object, const char *name);

/* Requests ------------------------------------------------------------ */

typedef struct ApiLimits { /* of the plan that is served */
	const AtlasPlan *plan;
	const AtlasPlanInfo *info;
	const char *const *names; /* [n_names] of the model: the first is the one that answers carry */
	int n_names;
	const struct ToolFormat *tools; /* in which it calls tools; NULL = it calls none */
	const struct Reasoning *reasoning; /* that its answers may begin with (reasoning.h); NULL = none */
	bool fills_tools;         /* its template takes tools that have a description and parameters alone */
	bool has_short_ids;       /* its template takes ids of calls that are nine letters and digits alone */
	struct Structures *structures; /* grammars of requests (structure.h); NULL = there are none */
} ApiLimits;

typedef struct ApiPrompt {
	int32_t *tokens; /* [n]; owned */
	int n;
	char *text;      /* [n_bytes] as it is echoed; NULL = not needed; owned */
	size_t n_bytes;
	bool is_reasoning; /* it ends where reasoning has begun */
	bool in_head;      /* it ends before the head of a message (channels.h) */
	int n_tail;      /* last tokens that ask for an answer; the next turn has none or others in their place */
} ApiPrompt;

typedef struct ApiRequest { /* zeroed = empty; api_request_free */
	bool stream, include_usage, continuous_usage, echo, include_stop, logprobs;
	int top_logprobs;
	int n;                    /* answers of each prompt; answer i has seed + i */
	AtlasSampling sampling;
	int max_new, min_new;
	bool ignore_stops;        /* the model's; stop_tokens and stops end an answer still */
	int32_t stop_tokens[ATLAS_MAX_STOP_TOKENS];
	int n_stop_tokens;
	AtlasBias *bias;          /* [n_bias]; owned */
	int n_bias;
	char *stops[ATLAS_MAX_STOPS]; /* owned */
	size_t stop_bytes[ATLAS_MAX_STOPS];
	int n_stops;
	char *cache_salt;         /* NULL = none; owned */
	json_t *tools;            /* that may be called, as a list in the form of Chat Completions; NULL = none; owned */
	json_t *custom_tools;     /* names of those of them whose input is a text, as keys; NULL = none; owned */
	char *repeated;           /* of Responses: an object of what the response repeats; owned */
	struct Wanted *wanted;    /* the structure that its answers are to have, until it is compiled; NULL = none; owned */
	Grammar *grammar;         /* of its answers; NULL = they are free; owned */
	GuideSource guide;        /* the same, with what masks are made of */
	bool wants_prompt;        /* its tokens alone count: no structure is compiled */
	bool one_call;            /* the first call of an answer counts alone */
	ApiPrompt *prompts;       /* [n_prompts] */
	int n_prompts;
	char unknown[API_MAX_UNKNOWN][API_NAME_BYTES]; /* names of fields that were ignored without being known */
	int n_unknown;
} ApiRequest;

/* From a body, parsed, to token ids: r is zeroed before. Any thread; take time that grows with the body. Where
 * r->wanted is set, structure_compile is still to be called. False after filling `e`. */
typedef bool ApiReader(const ApiLimits *limits, json_t *body, ApiRequest *r, ApiError *e);
ApiReader api_read_chat, api_read_completions, api_read_messages, api_read_responses;
ApiReader api_read_count; /* of Messages: a request that asks for the prompt alone */
/* The same from the body's bytes. */
bool api_read_request(
	const ApiLimits *limits, ApiReader *read, const char *body, size_t n, ApiRequest *r, ApiError *e);
void api_request_free(ApiRequest *r);

/* Is `name` the model? True where the field is absent. */
bool api_check_model(const ApiLimits *limits, json_t *object, ApiError *e);

/* Tools (tools.c) ------------------------------------------------------------ */

/* Checks "tools", "tool_choice" and "parallel_tool_calls" of a request in the form of Chat Completions, and fills
 * r->tools and r->one_call. Takes tools that are not to be called out of the request. */
bool api_read_tools(const ApiLimits *limits, json_t *request, ApiRequest *r, ApiError *e);
/* Checks what a message of the history has of calls and reasoning, and brings it into the form that templates take.
 * at: "messages[2]". */
bool api_tools_of_message(const ApiLimits *limits, json_t *message, const char *at, ApiError *e);

/* Prompts (prompt.c) ------------------------------------------------------------ */

/* Checks the shape of "messages" and renders them, and "tools" if they are there, with the plan's template. */
bool api_prompt_of_chat(const ApiLimits *limits, json_t *request, ApiPrompt *prompt, ApiError *e);
/* flags: ATLAS_ADD_SPECIAL, ATLAS_PARSE_SPECIAL. */
bool api_prompt_of_text(const ApiLimits *limits, const char *text, size_t n, int flags, ApiPrompt *prompt, ApiError *e);
/* The ids alone, however many. */
bool api_encode(const ApiLimits *limits, const char *text, size_t n, int flags, ApiPrompt *prompt, ApiError *e);
/* A list of ids below vocab; `param` names the field. */
bool api_prompt_of_ids(const ApiLimits *limits, json_t *ids, const char *param, ApiPrompt *prompt, ApiError *e);

#endif
