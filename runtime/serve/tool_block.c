/* tool_block.c - see tool_block.h. A byte at a time; a marker that comes to nothing is read again as text, so that
 * another block may begin there. What is in quotes of JSON, or in a parameter's text, is never a marker. */
#include "runtime/serve/tool_block.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20, MAX_ID = 64, MAX_KEY = 256 };

/* Where the next byte is. */
typedef enum Step {
	GAP,          /* between calls, before the first, after the last */
	CLOSING,      /* in the mark that ends the block, or is before a call */
	IN_JSON,
	BEFORE_NAME,
	IN_NAME,
	AFTER_NAME,   /* before or in marks.named or marks.id */
	IN_ID,
	BEFORE_ARGUMENTS,
	IN_LITERALS,
	BEFORE_END,   /* before or in marks.end, after JSON */
	BETWEEN,      /* before a parameter or marks.end */
	IN_TAG,       /* in one of their marks */
	IN_KEY,
	BEFORE_VALUE, /* before or in marks.value or marks.typed */
	IN_VALUE,
	AFTER_VALUE,  /* after marks.valued, which ends the value if BETWEEN goes on */
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

/* The mark without blanks at its ends. A number that is written after a name is read with the name. */
static JsonSlice core(const ToolFormat *f, const char *mark)
{
	const char *from = f->is_numbered && *mark == ':' ? strchr(mark, '<') : mark;
	from += strspn(from, " \n");
	size_t n = strlen(from);
	while (n && is_blank(from[n - 1]))
		n--;
	return (JsonSlice){from, n};
}

/* Which of two marks the bytes from b->mark on are: 0, 1; PARTIAL: they may become one. NULL: there is none. */
enum { PARTIAL = 2, NEITHER = 3 };
static int marker(const ToolBlock *b, const char *first, const char *second)
{
	const char *const marks[2] = {first, second};
	const size_t n = b->n - b->mark;
	for (int i = 0; i < 2; i++) {
		const JsonSlice m = marks[i] ? core(b->format, marks[i]) : (JsonSlice){"", 0};
		if (n <= m.n && memcmp(m.at, b->held + b->mark, n) == 0)
			return n < m.n ? PARTIAL : i;
	}
	return NEITHER;
}

/* Do the bytes from b->token on end with the mark? *n: its bytes. */
static bool ends_with(const ToolBlock *b, const char *mark, size_t *n)
{
	const JsonSlice m = core(b->format, mark);
	*n = m.n;
	return b->n - b->token >= m.n && memcmp(b->held + b->n - m.n, m.at, m.n) == 0;
}

/* Steps ------------------------------------------------------------ */

static bool begins_value(const ToolFormat *f, char c)
{
	return (f->body == TOOL_JSON || (f->body == TOOL_NAMED && !f->marks.call)) && (c == '{' || c == '[');
}

static BlockResult in_closing(ToolBlock *b)
{
	const ToolFormat *f = b->format;
	switch (marker(b, f->marks.call, b->calls.n ? f->closer : NULL)) {
	case 0:
		b->token = b->n;
		return go(b, BEFORE_NAME);
	case 1: return calls_before(b, b->n);
	case PARTIAL: return go(b, CLOSING);
	default:
		/* A call is whole without what closes the block, which models leave out. */
		return f->body != TOOL_JSON && !f->is_bare && b->calls.n ? calls_before(b, b->mark) : text_before(b, b->mark);
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
	const CallResult result = name.n ? tool_calls_add_named(&b->calls, b->tools, name, value)
									 : tool_calls_add(&b->calls, b->tools, value.at, value.n);
	b->mark = b->n;
	return result == CALL_GOOD && b->format->marks.end ? go(b, BEFORE_END) : after_call(b, result);
}

static BlockResult begin_json(ToolBlock *b, char c)
{
	b->token = b->n - 1;
	b->json = (JsonScan){0};
	return in_json(b, c);
}

static BlockResult before_end(ToolBlock *b, char c)
{
	if (b->mark == b->n - 1 && is_blank(c)) {
		b->mark = b->n;
		return BLOCK_MORE;
	}
	switch (marker(b, b->format->marks.end, NULL)) {
	case 0: return after_call(b, CALL_GOOD);
	case PARTIAL: return BLOCK_MORE;
	default: return calls_before(b, b->mark);
	}
}

static BlockResult before_name(ToolBlock *b, char c)
{
	b->token = b->n - 1;
	if (is_blank(c))
		return BLOCK_MORE;
	return is_word(c) ? go(b, IN_NAME) : text_before(b, b->n - 1);
}

static BlockResult gap(ToolBlock *b, char c)
{
	const ToolFormat *f = b->format;
	b->name = (ToolRange){0};
	b->mark = b->token = b->n - 1;
	if (is_blank(c) || (f->is_bare && b->calls.n && c == ';') ||
		(f->body == TOOL_LITERALS && (c == '[' || (b->calls.n && strchr(",]", c) && c))))
		return BLOCK_MORE;
	if (begins_value(f, c))
		return begin_json(b, c);
	return f->body != TOOL_JSON && !f->marks.call && is_word(c) ? before_name(b, c) : in_closing(b);
}

/* The name without the number after it, if calls have one. */
static ToolRange plain_name(const ToolBlock *b, size_t end)
{
	const char *name = b->held + b->token;
	size_t n = end - b->token;
	if (b->format->is_numbered && !tool_find(b->tools, name, n)) {
		while (n && name[n - 1] >= '0' && name[n - 1] <= '9')
			n--;
		n -= n && name[n - 1] == ':';
	}
	return (ToolRange){b->token, n};
}

static BlockResult begin_arguments(ToolBlock *b);
static BlockResult between(ToolBlock *b, char c, bool is_after_value);

static BlockResult after_name(ToolBlock *b, char c)
{
	const ToolMarks *m = &b->format->marks;
	if (!m->id && b->mark == b->n - 1 && is_blank(c)) {
		b->mark = b->n;
		return go(b, AFTER_NAME);
	}
	if (!core(b->format, m->named).n)
		return between(b, c, false);
	switch (marker(b, m->named, m->id)) {
	case 0: return begin_arguments(b);
	case 1:
		b->token = b->n;
		return go(b, IN_ID);
	case PARTIAL: return go(b, AFTER_NAME);
	default: return text_before(b, b->mark);
	}
}

static BlockResult in_name(ToolBlock *b, char c)
{
	if (is_word(c))
		return b->n - b->token <= TOOL_NAME_BYTES + 8 ? BLOCK_MORE : text_before(b, b->n - 1);
	b->name = plain_name(b, b->n - 1);
	if (!tool_find(b->tools, b->held + b->name.at, b->name.n))
		return text_before(b, b->n - 1);
	b->mark = b->n - 1;
	b->n_parameters = 0;
	return after_name(b, c);
}

static BlockResult in_id(ToolBlock *b, char c)
{
	b->mark = b->n - 1;
	if (c == '[')
		return go(b, AFTER_NAME);
	return is_word(c) && b->n - b->token <= MAX_ID ? BLOCK_MORE : text_before(b, b->n - 1);
}

static BlockResult begin_arguments(ToolBlock *b)
{
	b->token = b->n;
	b->literals = (LiteralScan){.quote = b->format->marks.quote};
	return go(b, b->format->body == TOOL_PARAMETERS ? BETWEEN
		: b->format->body == TOOL_LITERALS          ? IN_LITERALS
													: BEFORE_ARGUMENTS);
}

static BlockResult before_arguments(ToolBlock *b, char c)
{
	if (is_blank(c))
		return BLOCK_MORE;
	return c == '{' ? begin_json(b, c) : text_before(b, b->n - 1);
}

static BlockResult in_literals(ToolBlock *b, char c)
{
	const JsonSlice name = {b->held + b->name.at, b->name.n};
	JsonSlice json;
	char *text;
	switch (literal_scan(&b->literals, c)) {
	case JSON_MORE: return BLOCK_MORE;
	case JSON_BAD: return text_before(b, b->n - 1);
	default: break;
	}
	if (c != *b->format->marks.end)
		return text_before(b, b->n);
	if (!literals_to_json(b->format->marks.quote, b->held + b->token, b->n - 1 - b->token, &text, &json.n))
		return BLOCK_NO_MEMORY;
	json.at = text;
	const CallResult result = text ? tool_calls_add_named(&b->calls, b->tools, name, json) : CALL_WRONG;
	free(text);
	return after_call(b, result);
}

/* Where the mark before a value ends a line, the break there and that before the mark after it are the form's. */
static ToolRange without_breaks(const ToolBlock *b, ToolRange r)
{
	const char *keyed = b->format->marks.keyed;
	if (keyed[strlen(keyed) - 1] != '\n')
		return r;
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
	b->parameters[b->n_parameters++] = (ToolParameter){b->key, without_breaks(b, b->value), b->is_text};
	return true;
}

/* In marks.key or marks.end. After a value another byte than theirs is of the value, too. */
static BlockResult in_tag(ToolBlock *b, bool is_after_value)
{
	const int found = marker(b, b->format->marks.key, b->format->marks.end);
	if (found == PARTIAL)
		return go(b, is_after_value ? IN_TAG_AFTER_VALUE : IN_TAG);
	if (found == NEITHER)
		return is_after_value ? go(b, IN_VALUE) : text_before(b, b->mark);
	if (is_after_value && b->n_parameters == TOOL_MAX_PARAMETERS)
		return text_before(b, b->n);
	if (is_after_value && !add_parameter(b))
		return BLOCK_NO_MEMORY;
	b->token = b->n;
	b->is_text = false;
	if (found == 0)
		return go(b, IN_KEY);
	return after_call(
		b, tool_calls_add_typed(&b->calls, b->tools, b->held, b->name, b->parameters, b->n_parameters));
}

static BlockResult between(ToolBlock *b, char c, bool is_after_value)
{
	b->mark = b->n - 1;
	if (is_blank(c))
		return go(b, is_after_value ? AFTER_VALUE : BETWEEN);
	return in_tag(b, is_after_value);
}

static BlockResult in_key(ToolBlock *b, char c)
{
	const ToolMarks *m = &b->format->marks;
	size_t n;
	if (ends_with(b, m->keyed, &n)) {
		b->key = (ToolRange){b->token, b->n - n - b->token};
		b->token = b->mark = b->n;
		const bool is_cut = *m->keyed == '"' && memchr(b->held + b->key.at, '"', b->key.n);
		return b->key.n && !is_cut ? go(b, m->value ? BEFORE_VALUE : IN_VALUE) : text_before(b, b->n - 1);
	}
	const bool is_odd = c == '\n' || (c == '>' && *m->keyed == '>') || (c == '<' && *m->keyed != '<');
	return is_odd || b->n - b->token >= MAX_KEY + n ? text_before(b, b->n - 1) : BLOCK_MORE;
}

static BlockResult before_value(ToolBlock *b, char c)
{
	const ToolMarks *m = &b->format->marks;
	if (b->mark == b->n - 1 && is_blank(c)) {
		b->mark = b->n;
		return BLOCK_MORE;
	}
	switch (marker(b, m->value, m->typed)) {
	case 0:
		b->is_text = m->typed != NULL;
		break;
	case 1: break;
	case PARTIAL: return BLOCK_MORE;
	default: return text_before(b, b->mark);
	}
	b->token = b->n;
	return go(b, IN_VALUE);
}

static BlockResult in_value(ToolBlock *b)
{
	size_t n;
	if (!ends_with(b, b->format->marks.valued, &n))
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
	const JsonSlice call = format->marks.call ? core(format, format->marks.call) : (JsonSlice){"", 0};
	go(b, call.n && strlen(opener) == call.n && memcmp(opener, call.at, call.n) == 0 ? BEFORE_NAME : GAP);
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
	case BEFORE_NAME: return before_name(b, c);
	case IN_NAME: return in_name(b, c);
	case AFTER_NAME: return after_name(b, c);
	case IN_ID: return in_id(b, c);
	case BEFORE_ARGUMENTS: return before_arguments(b, c);
	case IN_LITERALS: return in_literals(b, c);
	case BEFORE_END: return before_end(b, c);
	case BETWEEN: return between(b, c, false);
	case IN_TAG: return in_tag(b, false);
	case IN_KEY: return in_key(b, c);
	case BEFORE_VALUE: return before_value(b, c);
	case IN_VALUE: return in_value(b);
	case AFTER_VALUE: return between(b, c, true);
	default: return in_tag(b, true);
	}
}

/* Calls that are whole are not lost for want of what closes the block: it may be cut off there, and may be a string at
 * which the client has the answer stop. */
BlockResult tool_block_finish(ToolBlock *b)
{
	const ToolFormat *f = b->format;
	if (!b->calls.n || (b->step != GAP && b->step != CLOSING && b->step != BEFORE_END))
		return text_before(b, b->n);
	if (b->step == GAP)
		return calls_before(b, b->n);
	const char *rest = b->step == BEFORE_END ? f->marks.end : f->closer;
	return calls_before(b, marker(b, rest, NULL) == NEITHER ? b->mark : b->n);
}

void tool_block_free(ToolBlock *b)
{
	tool_calls_clear(&b->calls);
	free(b->held);
	free(b->parameters);
	*b = (ToolBlock){0};
}
