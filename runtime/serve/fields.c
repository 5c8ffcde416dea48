/* fields.c - errors of the API, and values of JSON with their types and ranges (api.h). */
#include "artifacts/json_put.h"
#include "runtime/serve/api.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool api_refuse(ApiError *e, int status, const char *param, const char *fmt, ...)
{
	va_list list;
	*e = (ApiError){.status = status, .type = "invalid_request_error"};
	if (status == 401 || status == 429 || status == 500 || status == 503 || status == 529)
		e->type = status == 401 ? "authentication_error" : status == 429 ? "rate_limit_error" : "server_error";
	snprintf(e->param, sizeof e->param, "%s", param ? param : "");
	va_start(list, fmt);
	vsnprintf(e->message, sizeof e->message, fmt, list);
	va_end(list);
	return false;
}

void api_put_or_null(FILE *out, const char *name, const char *text)
{
	fprintf(out, text ? ",\"%s\":" : ",\"%s\":null", name);
	if (text)
		json_quoted(out, text);
}

void api_put_error(const ApiError *e, FILE *out)
{
	fputs("{\"error\":{", out);
	json_fields(out, "message", e->message, "type", e->type, NULL);
	api_put_or_null(out, "param", e->param[0] ? e->param : NULL);
	api_put_or_null(out, "code", e->code);
	fputs("}}", out);
}

/* Lists and objects inside each other, of any text: brackets in strings do not count. */
static bool is_deep(const char *text, size_t n)
{
	int depth = 0;
	bool in_string = false;
	for (size_t i = 0; i < n; i++) {
		if (in_string && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			in_string = !in_string;
		else if (!in_string && (text[i] == '[' || text[i] == '{') && ++depth > API_MAX_DEPTH)
			return true;
		else if (!in_string && (text[i] == ']' || text[i] == '}'))
			depth--;
	}
	return false;
}

/* Writes each number anew that JSON has and the reader has not, in place: a whole number beyond 64 bits becomes one of
 * floating point, one beyond those the largest power of ten. Schemas have such bounds, and models write such values. */
static void fit_numbers(char *text, size_t n)
{
	for (size_t i = 0; i < n;) {
		if (text[i] == '"') {
			for (i++; i < n && text[i] != '"'; i++)
				i += text[i] == '\\';
			i++;
			continue;
		}
		const size_t from = i;
		while (i < n && text[i] && strchr("+-.0123456789eE", text[i]))
			i++;
		const size_t size = i - from, sign = size && text[from] == '-';
		if (size < 5) {
			i += size == 0;
			continue;
		}
		char *number = strndup(text + from, size);
		const bool is_real = number && strpbrk(number, ".eE");
		errno = 0;
		if (number && isinf(is_real || size > 300 ? strtod(number, NULL) : 0)) {
			memset(text + from, ' ', size);
			memcpy(text + from + sign, "1e308", 5);
			text[from] = sign ? '-' : '1';
		} else if (number && !is_real && (strtoll(number, NULL, 10), errno == ERANGE))
			memcpy(text + i - 2, "e2", 2); /* in place of two digits */
		free(number);
	}
}

json_t *api_load(const char *text, size_t n, size_t flags, json_error_t *at)
{
	json_t *value = json_loadb(text, n, flags, at);
	if (value || json_error_code(at) != json_error_numeric_overflow)
		return value;
	char *copy = malloc(n);
	if (copy) {
		memcpy(copy, text, n);
		fit_numbers(copy, n);
		value = json_loadb(copy, n, flags, at);
	}
	free(copy);
	return value;
}

json_t *api_parse(const char *text, size_t n, ApiError *e)
{
	json_error_t at;
	if (!text || !n)
		return api_refuse(e, 400, NULL, "the request has no body: expected a JSON object"), NULL;
	if (is_deep(text, n))
		return api_refuse(e, 400, NULL, "the body is nested deeper than %d", API_MAX_DEPTH), NULL;
	json_t *object = api_load(text, n, JSON_REJECT_DUPLICATES, &at);
	if (!object && json_error_code(&at) == json_error_null_character)
		return api_refuse(e, 400, NULL, "line %d, column %d: no prompt can have \\u0000", at.line, at.column), NULL;
	if (!object)
		return api_refuse(e, 400, NULL, "the body is not JSON: line %d, column %d: %s", at.line, at.column, at.text),
			   NULL;
	if (json_is_object(object))
		return object;
	api_refuse(e, 400, NULL, "the body is %s: expected a JSON object", api_kind(object));
	json_decref(object);
	return NULL;
}

const char *api_kind(const json_t *value)
{
	switch (value ? json_typeof(value) : JSON_NULL) {
	case JSON_OBJECT: return "an object";
	case JSON_ARRAY: return "a list";
	case JSON_STRING: return "a string";
	case JSON_INTEGER: return "a whole number";
	case JSON_REAL: return "a number";
	case JSON_TRUE: case JSON_FALSE: return "a boolean";
	default: return "null";
	}
}

json_t *api_get(json_t *object, const char *name)
{
	json_t *value = json_object_get(object, name);
	return json_is_null(value) ? NULL : value;
}

bool api_number(json_t *object, const char *name, double low, double high, double *value, ApiError *e)
{
	json_t *found = api_get(object, name);
	if (!found)
		return true;
	if (!json_is_number(found))
		return api_refuse(e, 400, name, "%s is %s: expected a number from %g to %g", name, api_kind(found), low, high);
	const double x = json_number_value(found);
	if (!(x >= low && x <= high))
		return api_refuse(e, 400, name, "%s is %g: expected a number from %g to %g", name, x, low, high);
	*value = x;
	return true;
}

bool api_integer(json_t *object, const char *name, int64_t low, int64_t high, int64_t *value, ApiError *e)
{
	json_t *found = api_get(object, name);
	if (!found)
		return true;
	if (!json_is_integer(found))
		return api_refuse(e, 400, name, "%s is %s: expected a whole number from %lld to %lld", name, api_kind(found),
			(long long)low, (long long)high);
	const int64_t x = json_integer_value(found);
	if (x < low || x > high)
		return api_refuse(e, 400, name, "%s is %lld: expected a whole number from %lld to %lld", name, (long long)x,
			(long long)low, (long long)high);
	*value = x;
	return true;
}

bool api_bool(json_t *object, const char *name, bool *value, ApiError *e)
{
	json_t *found = api_get(object, name);
	if (found && !json_is_boolean(found))
		return api_refuse(e, 400, name, "%s is %s: expected true or false", name, api_kind(found));
	if (found)
		*value = json_is_true(found);
	return true;
}

bool api_text(json_t *object, const char *name, const char **value, ApiError *e)
{
	json_t *found = api_get(object, name);
	if (found && !json_is_string(found))
		return api_refuse(e, 400, name, "%s is %s: expected a string", name, api_kind(found));
	if (found)
		*value = json_string_value(found);
	return true;
}
