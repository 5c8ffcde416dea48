/* request.h - what the readers of requests share (request.c): fields that several APIs have. */
#ifndef ATLAS_REQUEST_H
#define ATLAS_REQUEST_H

#include "runtime/serve/api.h"

/* Sets of APIs, for the table of fields. */
enum { CHAT = 1, COMPLETIONS = 2, BOTH = 3, MESSAGES = 4, RESPONSES = 8, NEWER = 12, ALL = 15 };

/* The names of all fields, the model, and what the engine takes: sampling, biases, stop tokens, fewest tokens. */
bool request_common(const ApiLimits *limits, json_t *o, int api, ApiRequest *r, ApiError *e);
/* The most tokens. max_new: the default; `name`: the field; `newer`: one that counts where both are given, or NULL. */
bool request_limit(const ApiLimits *limits, json_t *o, int64_t max_new, const char *name, const char *newer,
	ApiRequest *r, ApiError *e);
int request_own_limit(const ApiLimits *limits); /* the plan's default of the most tokens */
/* A string or a list of them. */
bool request_stops(json_t *o, const char *name, ApiRequest *r, ApiError *e);
/* An object that says what an answer looks like: response_format and its like; NULL = none. `param`: its field. */
bool request_format(const ApiLimits *limits, json_t *format, const char *param, ApiRequest *r, ApiError *e);
/* Counts what was ignored. */
void request_ignore(ApiRequest *r, const char *name);

#endif
