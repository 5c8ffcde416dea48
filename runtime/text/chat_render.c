/* chat_render.c - a conversation, in JSON, to the prompt: the given values, one run of the template, the spans.
 *
 * What the conversation holds is given as transformers' apply_chat_template gives it. Its strings are marked, but for
 * the roles of messages where they are ones that templates know: of them, templates make control tokens
 * ("<|" + role + "|>"), and only such a word can come in by them.
 */
#include "runtime/text/chat_machine.h"

#include <stdio.h>
#include <stdlib.h>

/* Where a conversation asks for it (shape_messages), its messages are those of OpenAI's API, which templates take in
 * different forms: arguments of tool calls as an object, or as text; the parts of a content, or one text; null, or "".
 * Nothing in a template says which. So it is rendered with objects, parts and null first, and what does not fit is
 * changed: what came out as Python shows an object, or None; or, where the template fails, one after the other.
 */
static const char continue_tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";

typedef struct Request {
	const Str *field; /* of the final message, which is continued; NULL = none is */
	const Str *text;  /* what it was */
	bool is_shaped;   /* messages are brought into the form that the template takes */
	int changed;      /* Misfits that are not given */
	int seen;         /* Misfits that there are */
} Request;

static bool wrong(Machine *m, const char *what)
{
	chat_fail(m, CHAT_BAD_INPUT, "%s", what);
	return false;
}

static const Val *member(const Dict *d, const char *name) { return dict_find(d, name, strlen(name)); }

static bool put_given(Machine *m, const char *name, Val v)
{
	return dict_put(m, m->given, chat_literal(m, name, strlen(name), false), v);
}

static void unmark_role(Machine *m, Dict *message)
{
	static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function", "ipython",
		"model", "environment", "observation", "documents", "latest_reminder", "context", "root"};
	const Val *role = member(message, "role");
	for (size_t i = 0; role && role->tag == V_STRING && i < sizeof roles / sizeof *roles; i++)
		if (string_is(role->str, roles[i])) {
			dict_put(m, message, chat_literal(m, "role", 4, false), chat_literal(m, roles[i], strlen(roles[i]), false));
			return;
		}
}

static Val key_of(Machine *m, const char *name) { return chat_literal(m, name, strlen(name), false); }

/* A tool call's arguments: text that is a JSON object becomes one. */
static void shape_call(Machine *m, Val call, Request *r)
{
	const Val *f = call.tag == V_DICT ? member(call.dict, "function") : NULL;
	const Val *v = f && f->tag == V_DICT ? member(f->dict, "arguments") : NULL;
	Val object;
	if (!v || v->tag != V_STRING)
		return;
	const ChatFailure before = m->failure;
	if (!json_in(m, v->str->p, v->str->n, false, &object) || object.tag != V_DICT) {
		if (m->failure.fault == CHAT_BAD_VALUE) /* no JSON: it stays text */
			m->failure = before;
		return;
	}
	r->seen |= MISFIT_ARGUMENTS;
	if (r->changed & MISFIT_ARGUMENTS)
		return;
	object.dict->misfit = MISFIT_ARGUMENTS;
	dict_put(m, f->dict, key_of(m, "arguments"), object);
}

/* Parts that are all text, a line each, as one. */
static Val join_parts(Machine *m, const List *parts)
{
	Text t = {0};
	for (size_t i = 0; i < parts->n; i++) {
		const Val *text = parts->at[i].tag == V_DICT ? member(parts->at[i].dict, "text") : NULL;
		if (!text || text->tag != V_STRING)
			return (Val){.tag = V_ABSENT};
		if (i)
			text_put(m, &t, "\n", 1, true);
		text_put_str(m, &t, text->str);
	}
	return text_value(m, &t);
}

static void shape_message(Machine *m, Dict *message, Request *r)
{
	const Val *v = member(message, "content"), *calls = member(message, "tool_calls");
	for (size_t i = 0; calls && calls->tag == V_LIST && i < calls->list->n && !failed(m); i++)
		shape_call(m, calls->list->at[i], r);
	if (!v || v->tag == V_NONE) {
		r->seen |= MISFIT_NULL;
		dict_put(m, message, key_of(m, "content"), r->changed & MISFIT_NULL ? chat_literal(m, "", 0, false)
			: (Val){.tag = V_NONE, .integer = 1});
	} else if (v->tag == V_LIST) {
		const Val text = join_parts(m, v->list);
		r->seen |= is_given(text) ? MISFIT_CONTENT : 0;
		v->list->misfit = is_given(text) ? MISFIT_CONTENT : 0;
		if (is_given(text) && r->changed & MISFIT_CONTENT)
			dict_put(m, message, key_of(m, "content"), text);
	}
}

/* The value of a list of objects; none where it is absent or null. */
static bool take_list(Machine *m, const Dict *top, const char *name, Val *out)
{
	const Val *v = member(top, name);
	*out = v ? *v : val_none();
	if (out->tag == V_NONE)
		return true;
	for (size_t i = 0; out->tag == V_LIST && i < out->list->n; i++)
		if (out->list->at[i].tag != V_DICT) {
			chat_fail(m, CHAT_BAD_INPUT, "%s[%zu]: expected an object", name, i);
			return false;
		}
	if (out->tag != V_LIST)
		chat_fail(m, CHAT_BAD_INPUT, "%s: expected an array", name);
	return !failed(m);
}

/* Adds the tag to the text that is to be continued: of a string, or of the last part that has text. */
static bool tag_text(Machine *m, Dict *of, const Str *field, Request *r)
{
	const Val *v = dict_find(of, field->p, field->n);
	const Val key = {.tag = V_STRING, .str = field};
	if (v && v->tag == V_LIST) {
		for (size_t i = v->list->n; i-- > 0;) {
			const Val part = v->list->at[i];
			if (part.tag == V_DICT && member(part.dict, "text"))
				return tag_text(m, part.dict, &(Str){.p = "text", .n = 4}, r);
		}
		return wrong(m, "continue_final_message: there is no text to continue in the final message");
	}
	if (!v || v->tag != V_STRING) {
		chat_fail(m, CHAT_BAD_INPUT, "continue_final_message: the final message has no text \"%.*s\"",
			field->n < 40 ? (int)field->n : 40, field->p);
		return false;
	}
	r->text = v->str;
	const Str tag = {.p = continue_tag, .n = sizeof continue_tag - 1, .has_plain = true};
	return dict_put(m, of, key, chat_concat(m, v->str, &tag));
}

static bool take_continue(Machine *m, const Dict *top, const List *messages, bool *generates, bool is_said, Request *r)
{
	const Val *v = member(top, "continue_final_message");
	if (!v || !is_true(*v))
		return true;
	if (v->tag != V_BOOL && v->tag != V_STRING)
		return wrong(m, "continue_final_message: expected true, false or the name of a field");
	if (is_said && *generates)
		return wrong(m, "continue_final_message and add_generation_prompt exclude each other");
	*generates = false;
	if (!messages->n)
		return wrong(m, "continue_final_message: there is no message");
	const Val content = chat_literal(m, "content", 7, false);
	if (failed(m))
		return false;
	r->field = v->tag == V_STRING ? v->str : content.str;
	return tag_text(m, messages->at[messages->n - 1].dict, r->field, r);
}

static bool take_kwargs(Machine *m, const Dict *top)
{
	static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt"};
	const Val *v = member(top, "chat_template_kwargs");
	if (!v || v->tag == V_NONE)
		return true;
	if (v->tag != V_DICT)
		return wrong(m, "chat_template_kwargs: expected an object");
	for (size_t i = 0; i < v->dict->n && !failed(m); i++) {
		for (size_t k = 0; k < sizeof own / sizeof *own; k++)
			if (string_is(v->dict->at[i].key.str, own[k])) {
				chat_fail(m, CHAT_BAD_INPUT, "chat_template_kwargs: \"%s\" is a member of the conversation itself",
					own[k]);
				return false;
			}
		dict_put(m, m->given, v->dict->at[i].key, v->dict->at[i].value);
	}
	return !failed(m);
}

static bool take_request(Machine *m, Val top, Request *r)
{
	static const char *const known[] = {"messages", "tools", "documents", "add_generation_prompt",
		"continue_final_message", "chat_template_kwargs", "shape_messages"};
	Val messages, tools, documents;
	if (top.tag != V_DICT)
		return wrong(m, "expected an object with messages");
	for (size_t i = 0; i < top.dict->n; i++) {
		const Str *name = top.dict->at[i].key.str;
		bool found = false;
		for (size_t k = 0; k < sizeof known / sizeof *known; k++)
			found |= string_is(name, known[k]);
		if (!found) {
			chat_fail(m, CHAT_BAD_INPUT, "\"%.*s\": a conversation has no such member",
				name->n < 60 ? (int)name->n : 60, name->p);
			return false;
		}
	}
	if (!take_list(m, top.dict, "messages", &messages) || !take_list(m, top.dict, "tools", &tools) ||
		!take_list(m, top.dict, "documents", &documents))
		return false;
	if (messages.tag != V_LIST)
		return wrong(m, "messages: expected an array");
	const Val *generates = member(top.dict, "add_generation_prompt");
	bool adds = true, is_said = generates && generates->tag != V_NONE;
	if (is_said && generates->tag != V_BOOL)
		return wrong(m, "add_generation_prompt: expected true or false");
	adds = is_said ? generates->truth : adds;
	const Val *shape = member(top.dict, "shape_messages");
	if (shape && shape->tag != V_BOOL && shape->tag != V_NONE)
		return wrong(m, "shape_messages: expected true or false");
	r->is_shaped = shape && is_true(*shape);
	for (size_t i = 0; i < messages.list->n && !failed(m); i++) {
		unmark_role(m, messages.list->at[i].dict);
		if (r->is_shaped)
			shape_message(m, messages.list->at[i].dict, r);
	}
	return take_continue(m, top.dict, messages.list, &adds, is_said, r) && put_given(m, "messages", messages) &&
		put_given(m, "tools", tools) && put_given(m, "documents", documents) &&
		put_given(m, "add_generation_prompt", val_bool(adds)) && take_kwargs(m, top.dict);
}

/* Cuts the text where the final message ends. */
static bool cut_end(Machine *m, const Request *r, Text *t)
{
	const Str all = {.p = t->p ? t->p : "", .n = t->n}, tag = {.p = continue_tag, .n = sizeof continue_tag - 2};
	const Val text = string_strip(m, r->text, NULL, STRIP_LEFT | STRIP_RIGHT);
	size_t at = SIZE_MAX;
	if (failed(m))
		return false;
	for (size_t next = string_find(&all, &tag, 0); next != SIZE_MAX; next = string_find(&all, &tag, next + 1))
		at = next;
	if (at == SIZE_MAX || string_find(&all, text.str, 0) == SIZE_MAX)
		return wrong(m, "continue_final_message: the chat template does not write the final message as it is");
	t->n = at;
	if (at + tag.n < all.n && all.p[at + tag.n] == ' ')
		return true;
	const Val rest = string_strip(m, &(Str){.p = all.p, .n = at}, NULL, STRIP_RIGHT);
	if (!failed(m))
		t->n = rest.str->n;
	return !failed(m);
}

static bool take_prompt(Machine *m, const Text *t, ChatPrompt *out)
{
	size_t n = 0;
	for (size_t i = 0; i < t->n; i++)
		n += !t->m[i] && (!i || t->m[i - 1]);
	out->text = malloc(t->n + 1);
	out->spans = malloc((n + 1) * sizeof *out->spans);
	if (!out->text || !out->spans) {
		chat_fail(m, CHAT_NO_MEMORY, "no memory for the chat");
		return false;
	}
	if (t->n)
		memcpy(out->text, t->p, t->n);
	out->text[t->n] = 0;
	out->n = t->n;
	for (size_t i = 0; i < t->n; i++) {
		if (t->m[i])
			continue;
		if (!i || t->m[i - 1])
			out->spans[out->n_spans++].begin = i;
		out->spans[out->n_spans - 1].end = i + 1;
	}
	return true;
}

static void free_chunks(Chunk *c)
{
	while (c) {
		Chunk *next = c->next;
		free(c);
		c = next;
	}
}

static void render(Machine *m, const char *json, size_t n, Request *r, ChatPrompt *prompt)
{
	Text out = {0};
	Val top;
	m->given = dict_new(m, V_DICT).dict;
	if (!json_in(m, json, n, true, &top) || !take_request(m, top, r))
		return;
	m->out = &out;
	chat_run(m);
	m->line = 0;
	if (!failed(m) && (!r->field || cut_end(m, r, &out)))
		take_prompt(m, &out, prompt);
}

/* Renders once, the Misfits in r->changed in their other form. *misfits: those that came out as they should not. */
static ChatFault render_once(const ChatProgram *p, const char *json, size_t n, int64_t now, ChatLimits limits,
	Request *r, ChatPrompt *prompt, ChatFailure *failure, int *misfits)
{
	Machine m = {.p = p, .limits = limits, .fuel = limits.fuel, .now = now};
	*prompt = (ChatPrompt){0};
	render(&m, json, n, r, prompt);
	if (failed(&m))
		chat_prompt_free(prompt);
	free_chunks(m.objects);
	free_chunks(m.texts);
	if (m.c_locale)
		freelocale(m.c_locale);
	*failure = m.failure;
	*misfits = m.misfits;
	return m.failure.fault;
}

ChatFault chat_render(const ChatProgram *p, const char *json, size_t n, int64_t now, ChatLimits limits,
	ChatPrompt *prompt, ChatFailure *failure)
{
	static const int order[] = {MISFIT_CONTENT, MISFIT_NULL, MISFIT_ARGUMENTS};
	ChatFailure first = {0};
	int misfits;
	for (Request r = {0};;) {
		const int changed = r.changed;
		r = (Request){.changed = changed};
		const ChatFault fault = render_once(p, json, n, now, limits, &r, prompt, failure, &misfits);
		int next = fault == CHAT_OK ? misfits & r.seen & ~changed : 0;
		for (size_t i = 0; i < 3 && !next && (fault == CHAT_BAD_VALUE || fault == CHAT_RAISED); i++)
			next = r.seen & ~changed & order[i];
		if (fault != CHAT_OK && !first.fault)
			first = *failure;
		if (!r.is_shaped || !next) {
			if (fault != CHAT_OK)
				*failure = first;
			return failure->fault;
		}
		chat_prompt_free(prompt);
		r.changed = changed | next;
	}
}

void chat_prompt_free(ChatPrompt *prompt)
{
	free(prompt->text);
	free(prompt->spans);
	*prompt = (ChatPrompt){0};
}
