/* tool_block.c - see tool_block.h. A byte at a time; a marker that comes to nothing is read again as text, so that
 * another block may begin there. What is in quotes of JSON, or in a parameter's text, is never a marker. */
#include "runtime/serve/tool_block.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20, MAX_ID = 64, MAX_KEY = 256 };

static const char function_open[] = "<function=", function_close[] = "</function>";
static const char parameter_open[] = "<parameter=", parameter_close[] = "</parameter>";
static const char args_mark[] = "[ARGS]", id_mark[] = "[CALL_ID]";

/* Where the next byte is. */
typedef enum Step {
	GAP,         /* between values or functions, before the first, after the last */
	CLOSING,     /* in the marker that ends the block, or begins a function */
	IN_JSON,
	IN_NAME,     /* TOOL_NAMED: the name; TOOL_ELEMENTS: of <function=NAME> */
	AFTER_NAME,  /* TOOL_NAMED: in [ARGS] or [CALL_ID] */
	IN_ID,
	BEFORE_ARGUMENTS,
	BETWEEN,     /* TOOL_ELEMENTS: before a parameter or </function> */
	IN_TAG,      /* in one of their markers */
	IN_KEY,
	IN_VALUE,
	AFTER_VALUE, /* after </parameter>, which ends the value if BETWEEN goes on */
	IN_TAG_AFTER_VALUE,
} Step;

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
static bool is_word(char c)
{
	return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || (c && strchr("_-.:/", c));
}

static BlockResult text_before(ToolBlock *b, size_t again)
{
	b->again = again;
	return BLOCK_TEXT;
}

static BlockResult calls_before(ToolBlock *b, size_t again)
{
	b->again = again;
	return BLOCK_CALLS;
}

static BlockResult go(ToolBlock *b, Step step)
{
	b->step = step;
	return BLOCK_MORE;
}

/* Calls are good, wrong, or there is no memory. */
static BlockResult after_call(ToolBlock *b, CallResult result)
{
	if (result == CALL_NO_MEMORY)
		return BLOCK_NO_MEMORY;
	if (result == CALL_WRONG)
		return text_before(b, b->n);
	if (!b->format->closer && !b->format->is_bare)
		return calls_before(b, b->n);
	return go(b, GAP);
}

/* Which of two markers the bytes from b->mark on are: 0, 1; PARTIAL: they may become one. NULL: there is none. */
enum { PARTIAL = 2, NEITHER = 3 };
static int marker(const ToolBlock *b, const char *first, const char *second)
{
	const char *const markers[2] = {first, second};
	const size_t n = b->n - b->mark;
	for (int i = 0; i < 2; i++)
		if (markers[i] && strncmp(markers[i], b->held + b->mark, n) == 0)
			return markers[i][n] ? PARTIAL : i;
	return NEITHER;
}

/* Steps ------------------------------------------------------------ */

static BlockResult in_closing(ToolBlock *b)
{
	const bool has_functions = b->format->body == TOOL_ELEMENTS;
	switch (marker(b, has_functions ? function_open : NULL, b->calls.n ? b->format->closer : NULL)) {
	case 0:
		b->token = b->n;
		return go(b, IN_NAME);
	case 1: return calls_before(b, b->n);
	case PARTIAL: return go(b, CLOSING);
	default:
		/* A function is whole without what closes the block, which models leave out. */
		return has_functions && b->calls.n ? calls_before(b, b->mark) : text_before(b, b->mark);
	}
}

static BlockResult in_json(ToolBlock *b, char c)
{
	switch (json_scan(&b->json, (unsigned char)c)) {
	case JSON_MORE: return go(b, IN_JSON);
	case JSON_BAD: return text_before(b, b->n - 1);
	default: break;
	}
	const JsonSlice name = {b->held + b->name.at, b->name.n}, value = {b->held + b->token, b->n - b->token};
	return after_call(b, name.n ? tool_calls_add_named(&b->calls, b->tools, name, value)
								: tool_calls_add(&b->calls, b->tools, value.at, value.n));
}

static BlockResult begin_json(ToolBlock *b, char c)
{
	b->token = b->n - 1;
	b->json = (JsonScan){0};
	return in_json(b, c);
}

static BlockResult gap(ToolBlock *b, char c)
{
	const ToolFormat *f = b->format;
	b->mark = b->token = b->n - 1;
	if (is_blank(c) || (f->is_bare && b->calls.n && c == ';'))
		return BLOCK_MORE;
	if (f->body != TOOL_ELEMENTS && (c == '{' || c == '['))
		return begin_json(b, c);
	if (f->body == TOOL_NAMED)
		return is_word(c) ? go(b, IN_NAME) : text_before(b, b->n - 1);
	return in_closing(b);
}

static BlockResult in_name(ToolBlock *b, char c)
{
	const bool is_element = b->format->body == TOOL_ELEMENTS;
	b->name = (ToolRange){b->token, b->n - 1 - b->token};
	if (c != (is_element ? '>' : '['))
		return is_word(c) && b->name.n < TOOL_NAME_BYTES ? BLOCK_MORE : text_before(b, b->n - 1);
	if (!tool_find(b->tools, b->held + b->name.at, b->name.n))
		return text_before(b, b->n - 1);
	b->mark = b->n - 1;
	b->n_parameters = 0;
	return go(b, is_element ? BETWEEN : AFTER_NAME);
}

static BlockResult after_name(ToolBlock *b)
{
	switch (marker(b, args_mark, id_mark)) {
	case 0: return go(b, BEFORE_ARGUMENTS);
	case 1:
		b->token = b->n;
		return go(b, IN_ID);
	case PARTIAL: return BLOCK_MORE;
	default: return text_before(b, b->mark);
	}
}

static BlockResult in_id(ToolBlock *b, char c)
{
	b->mark = b->n - 1;
	if (c == '[')
		return go(b, AFTER_NAME);
	return is_word(c) && b->n - b->token <= MAX_ID ? BLOCK_MORE : text_before(b, b->n - 1);
}

static BlockResult before_arguments(ToolBlock *b, char c)
{
	if (is_blank(c))
		return BLOCK_MORE;
	return c == '{' ? begin_json(b, c) : text_before(b, b->n - 1);
}

/* The line break after <parameter=KEY> and that before </parameter> are the form's. */
static ToolRange without_breaks(const ToolBlock *b, ToolRange r)
{
	if (r.n && b->held[r.at] == '\n')
		r = (ToolRange){r.at + 1, r.n - 1};
	if (r.n && b->held[r.at + r.n - 1] == '\n')
		r.n--;
	return r;
}

static bool add_parameter(ToolBlock *b)
{
	if (b->n_parameters == b->cap_parameters) {
		const int cap = b->cap_parameters * 2 + 8;
		ToolParameter *p = realloc(b->parameters, sizeof *p * (size_t)cap);
		if (!p)
			return false;
		b->parameters = p;
		b->cap_parameters = cap;
	}
	b->parameters[b->n_parameters++] = (ToolParameter){b->key, without_breaks(b, b->value)};
	return true;
}

/* In <parameter= or </function>. After a value another byte than theirs is of the value, too. */
static BlockResult in_tag(ToolBlock *b, bool is_after_value)
{
	const int found = marker(b, parameter_open, function_close);
	if (found == PARTIAL)
		return go(b, is_after_value ? IN_TAG_AFTER_VALUE : IN_TAG);
	if (found == NEITHER)
		return is_after_value ? go(b, IN_VALUE) : text_before(b, b->mark);
	if (is_after_value && b->n_parameters == TOOL_MAX_PARAMETERS)
		return text_before(b, b->n);
	if (is_after_value && !add_parameter(b))
		return BLOCK_NO_MEMORY;
	b->token = b->n;
	if (found == 0)
		return go(b, IN_KEY);
	return after_call(
		b, tool_calls_add_typed(&b->calls, b->tools, b->held, b->name, b->parameters, b->n_parameters));
}

static BlockResult between(ToolBlock *b, char c, bool is_after_value)
{
	b->mark = b->n - 1;
	return is_blank(c) ? BLOCK_MORE : in_tag(b, is_after_value);
}

static BlockResult in_key(ToolBlock *b, char c)
{
	b->key = (ToolRange){b->token, b->n - 1 - b->token};
	if (c == '>' && b->key.n) {
		b->token = b->n;
		return go(b, IN_VALUE);
	}
	return c == '>' || c == '<' || c == '\n' || b->key.n >= MAX_KEY ? text_before(b, b->n - 1) : BLOCK_MORE;
}

static BlockResult in_value(ToolBlock *b, char c)
{
	const size_t n = sizeof parameter_close - 1;
	if (c != '>' || b->n - b->token < n || memcmp(b->held + b->n - n, parameter_close, n) != 0)
		return BLOCK_MORE;
	b->value = (ToolRange){b->token, b->n - n - b->token};
	return go(b, AFTER_VALUE);
}

/* Blocks ------------------------------------------------------------ */

static bool append(ToolBlock *b, char c)
{
	if (b->n == b->cap) {
		const size_t cap = b->cap * 2 + 256;
		char *held = realloc(b->held, cap);
		if (!held)
			return false;
		b->held = held;
		b->cap = cap;
	}
	b->held[b->n++] = c;
	return true;
}

bool tool_block_open(ToolBlock *b, const ToolFormat *format, json_t *tools, const char *opener)
{
	tool_calls_clear(&b->calls);
	b->format = format;
	b->tools = tools;
	b->n = 0;
	b->n_parameters = 0;
	b->name = (ToolRange){0};
	for (const char *c = opener; *c; c++)
		if (!append(b, *c))
			return false;
	b->token = b->n;
	go(b, strcmp(opener, function_open) == 0 ? IN_NAME : GAP);
	return true;
}

BlockResult tool_block_push(ToolBlock *b, char c)
{
	if (!append(b, c))
		return BLOCK_NO_MEMORY;
	if (b->n > MAX_BYTES)
		return text_before(b, b->n);
	switch ((Step)b->step) {
	case GAP: return gap(b, c);
	case CLOSING: return in_closing(b);
	case IN_JSON: return in_json(b, c);
	case IN_NAME: return in_name(b, c);
	case AFTER_NAME: return after_name(b);
	case IN_ID: return in_id(b, c);
	case BEFORE_ARGUMENTS: return before_arguments(b, c);
	case BETWEEN: return between(b, c, false);
	case IN_TAG: return in_tag(b, false);
	case IN_KEY: return in_key(b, c);
	case IN_VALUE: return in_value(b, c);
	case AFTER_VALUE: return between(b, c, true);
	default: return in_tag(b, true);
	}
}

/* Calls that are whole are not lost for want of what closes the block: it may be cut off there, and may be a string at
 * which the client has the answer stop. */
BlockResult tool_block_finish(ToolBlock *b)
{
	if (!b->calls.n || (b->step != GAP && b->step != CLOSING))
		return text_before(b, b->n);
	if (b->step == GAP)
		return calls_before(b, b->n);
	const char *closer = b->format->closer ? b->format->closer : "";
	return calls_before(b, strncmp(closer, b->held + b->mark, b->n - b->mark) == 0 ? b->n : b->mark);
}

void tool_block_free(ToolBlock *b)
{
	tool_calls_clear(&b->calls);
	free(b->held);
	free(b->parameters);
	*b = (ToolBlock){0};
}

bool tool_block_has_marker(ToolBody body, const char *text, size_t n)
{
	const char *const of_elements[] = {function_open, function_close, parameter_open, parameter_close};
	const char *const of_named[] = {args_mark, id_mark, "", ""};
	for (size_t i = 0; body != TOOL_JSON && i < 4; i++) {
		const char *mark = body == TOOL_ELEMENTS ? of_elements[i] : of_named[i];
		if (n && strlen(mark) == n && memcmp(mark, text, n) == 0)
			return true;
	}
	return false;
}
