/* chat_machine.h - what the parts of the interpreter of chat templates share: values, their memory, and failing.
 *
 * A Machine lives for one rendering. All values are in its arenas and are freed together. Its first failure stays in
 * `failure`; functions that meet it return quickly, and what they return is then not looked at.
 *
 * Strings carry a mark for each byte: 1 when it came from the conversation, 0 when the template wrote it. Whatever is
 * made of strings (slices, joined, replaced, upper case) keeps the marks of its bytes.
 */
#ifndef ATLAS_CHAT_MACHINE_H
#define ATLAS_CHAT_MACHINE_H

#include "runtime/text/chat.h"

#include <locale.h>
#include <string.h>

enum {
	CHAT_MAX_CALLS = 64,   /* macros that run inside each other */
	CHAT_MAX_EVALS = 3000, /* nodes that are evaluated inside each other */
	CHAT_MAX_VALUE = 64,   /* lists inside lists */
	CHAT_MAX_RANGE = 100000, /* numbers of a range: as jinja2's sandbox has it */
	CHAT_MAX_ARGS = 16
};

typedef enum Tag {
	V_ABSENT,    /* no value: an argument that was not given */
	V_UNDEFINED, /* undef: what was asked for */
	V_NONE, V_BOOL, V_INT, V_FLOAT, V_STRING,
	V_LIST, V_TUPLE, V_RANGE,
	V_VIEW,      /* keys(), values(), items() of a dict: to be iterated, any number of times */
	V_ITERATOR,  /* what filters give lazily in jinja2: to be iterated once */
	V_DICT, V_NAMESPACE,
	V_LOOP, V_MACRO, V_METHOD,
	V_FUNCTION   /* integer: ChatGlobalFunc */
} Tag;

typedef struct Str {
	const char *p;
	const uint8_t *m; /* [n] marks; looked at only where some are set and some are not */
	size_t n;
	bool has_marked, has_plain; /* an empty string may have neither */
	bool safe; /* what the filter `safe` gave */
} Str;

typedef struct Val {
	Tag tag;
	union {
		bool truth;
		int64_t integer;
		double real;
		const Str *str;
		struct List *list;
		struct Dict *dict;
		struct Loop *loop;
		const struct Macro *macro;
		const struct Bound *bound;
		const struct Missing *missing;
	};
} Val;

/* Forms that a message of another API may have and a template may not take: chat_render.c. */
typedef enum Misfit { MISFIT_ARGUMENTS = 1, MISFIT_CONTENT = 2, MISFIT_NULL = 4 } Misfit;

typedef struct List { Val *at; size_t n, cap, next; /* next: of an iterator */ Misfit misfit; } List;
typedef struct Entry { Val key, value; uint64_t hash; } Entry;
typedef struct Dict { Entry *at; size_t n, cap; uint32_t *index; size_t n_index; Misfit misfit; } Dict;
typedef struct Loop { List *items; size_t at; Val changed; } Loop;
typedef struct Frame { struct Frame *outer; Val *slots; } Frame;
typedef struct Macro { uint32_t func; Frame *outer; } Macro;
typedef struct Bound { Val self; int method; /* ChatMethod, -1 = one that may not be called */ const Str *name; } Bound;
typedef struct Missing { Val of; /* ABSENT: a variable */ Val name; } Missing;

typedef struct Text { /* a string that grows */
	char *p;
	uint8_t *m;
	size_t n, cap;
	bool has_marked, has_plain;
} Text;

typedef struct Chunk { struct Chunk *next; size_t used, size; } Chunk; /* bytes follow; of text: as many marks then */

typedef struct Machine {
	const ChatProgram *p;
	ChatLimits limits;
	ChatFailure failure;
	const Str **literals; /* [n_nodes] strings of the program, NULL until one is needed */
	Chunk *objects, *texts;
	size_t memory;     /* of all chunks */
	int64_t fuel;      /* left */
	int calls, evals;
	int misfits;       /* Misfits that were written as Python shows them */
	uint32_t line;     /* of the template, being run */
	int64_t now;
	locale_t c_locale; /* 0 until it is needed */
	Dict *given;       /* what the caller of the template gave, by name */
	Text *out;
	Val captured;      /* the text of a block, for its filters */
	List no_list;      /* in place of those that there was no memory for */
	Dict no_dict;
} Machine;

typedef struct Args { /* of a call, in order; keywords after the others */
	Val at[CHAT_MAX_ARGS];
	const Str *names[CHAT_MAX_ARGS]; /* NULL = by position */
	int n;
} Args;

/* Failing: the value returned is V_UNDEFINED, so that a caller can `return chat_fail(...)`. */
Val chat_fail(Machine *m, ChatFault fault, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static inline bool failed(const Machine *m) { return m->failure.fault != CHAT_OK; }
/* Takes fuel for work on n elements; false when there is none. */
bool chat_work(Machine *m, size_t n);

locale_t chat_locale(Machine *m); /* "C"; 0 = no memory */
double chat_strtod(Machine *m, const char *text, char **end); /* with a point, whatever the locale */

/* chat_value.c: memory. NULL after a failure, which is recorded. */
void *chat_alloc(Machine *m, size_t bytes); /* zeroed */
bool text_put(Machine *m, Text *t, const char *p, size_t n, bool marked);
bool text_put_str(Machine *m, Text *t, const Str *s);
/* Bytes [at, at + n) of s. */
bool text_put_part(Machine *m, Text *t, const Str *s, size_t at, size_t n);
bool text_plain(Machine *m, Text *t, const char *literal); /* bytes of the template */
Val text_value(Machine *m, Text *t); /* the string; `t` is not to be used any more */
Val chat_literal(Machine *m, const char *p, size_t n, bool marked); /* p must outlive the machine */
Val string_part(Machine *m, const Str *s, size_t at, size_t n); /* bytes; shares memory */
Val chat_concat(Machine *m, const Str *a, const Str *b);
static inline bool string_is_mixed(const Str *s) { return s->has_marked && s->has_plain; }

static inline Val val_none(void) { return (Val){.tag = V_NONE, .integer = 0}; } /* 1: content that is null */
static inline Val val_bool(bool b) { return (Val){.tag = V_BOOL, .truth = b}; }
static inline Val val_int(int64_t i) { return (Val){.tag = V_INT, .integer = i}; }
static inline Val val_float(double f) { return (Val){.tag = V_FLOAT, .real = f}; }
static inline bool is_number(Val v) { return v.tag == V_BOOL || v.tag == V_INT || v.tag == V_FLOAT; }
static inline int64_t integer_of(Val v) { return v.tag == V_BOOL ? v.truth : v.integer; } /* of V_BOOL, V_INT */
static inline double real_of(Val v) { return v.tag == V_FLOAT ? v.real : (double)integer_of(v); } /* of numbers */
static inline bool is_given(Val v) { return v.tag != V_ABSENT; }
static inline bool is_listed(Val v) { return v.tag >= V_LIST && v.tag <= V_ITERATOR; } /* v.list holds elements */
bool string_is(const Str *s, const char *text);

Val list_new(Machine *m, Tag tag, size_t room);
bool list_push(Machine *m, List *l, Val v);
Val dict_new(Machine *m, Tag tag);
/* Fails where a key cannot be one. */
bool dict_put(Machine *m, Dict *d, Val key, Val value);
const Val *dict_get(Machine *m, const Dict *d, Val key);
const Val *dict_find(const Dict *d, const char *key, size_t n);

Val chat_undefined(Machine *m, Val of, Val name);
Val chat_undefined_fail(Machine *m, Val v); /* "'x' is undefined" */

/* What jinja2 does with any value. */
const char *type_name(Val v); /* as Python says it: "dict" */
bool is_true(Val v);
bool is_equal(Machine *m, Val a, Val b, int depth);
int compare(Machine *m, Val a, Val b, int depth); /* -1, 0, 1 in Python's order; fails where there is none */
bool is_in(Machine *m, Val what, Val where);
bool put_value(Machine *m, Text *t, Val v);           /* str(v) */
bool put_repr(Machine *m, Text *t, Val v, int depth); /* repr(v) */
void put_float(Machine *m, Text *t, double f);
const Str *to_str(Machine *m, Val v); /* str(v); never NULL */
/* The elements of anything that can be iterated, as a list to be read only; an iterator is spent by it. */
List *elements(Machine *m, Val v);
Val get_attribute(Machine *m, Val of, const Str *name); /* x.name */
Val get_item(Machine *m, Val of, Val key);              /* x[key] */
Val get_path(Machine *m, Val of, const Str *path);      /* of the filters' attribute="a.b" */
Val get_slice(Machine *m, Val of, Val from, Val to, Val step);

/* chat_strings.c: strings in code points. */
size_t string_length(const Str *s);
size_t string_offset(const Str *s, size_t points); /* bytes before code point number `points` */
size_t string_find(const Str *s, const Str *what, size_t from); /* byte; SIZE_MAX = nowhere */
bool is_printable(uint32_t cp);
/* What int() and float() read, with a final NUL: without the blanks around it, decimal digits of any script as ASCII,
 * '?' for what no number has. NULL: nothing, or no memory. */
char *string_number(Machine *m, const Str *s);
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
Val string_strip(Machine *m, const Str *s, const Str *set, int sides); /* set NULL: white space */
Val string_lines(Machine *m, const Str *s, bool keep_ends);
Val string_replace(Machine *m, const Str *s, const Str *old, const Str *new, int64_t most);
/* CASE_TITLE as str.title has it; CASE_WORDS as the filter `title`, whose words end at fewer places. */
typedef enum CaseMap { CASE_LOWER, CASE_UPPER, CASE_CAPITAL, CASE_TITLE, CASE_WORDS } CaseMap;
Val string_case(Machine *m, const Str *s, CaseMap map);
bool string_is_case(Machine *m, const Str *s, CaseMap map);
void put_markup(Machine *m, Text *t, const Str *s); /* escaped for HTML */
Val string_join(Machine *m, const Str *between, List *items, const Str *attribute);
Val string_method(Machine *m, const Str *self, ChatMethod method, const Args *a);

/* chat_json.c */
/* JSON to a value whose strings are marked. is_request: it is the conversation itself, where no name may be there
 * twice; else the template reads a text. */
bool json_in(Machine *m, const char *text, size_t n, bool is_request, Val *out);
bool json_out(Machine *m, Text *t, Val v, bool ascii, Val indent, Val separators, bool sorted);

/* chat_filter.c */
Val apply_filter(Machine *m, ChatFilter f, Val v, const Args *a);
Val mark_safe(Machine *m, Val text);
bool apply_test(Machine *m, ChatTest test, Val v, const Args *a);
/* The argument `name` or number i of `a`; ABSENT when it was not given. */
Val argument(const Args *a, int i, const char *name);
List *sorted_list(Machine *m, const List *l, const Str *attribute, bool in_lists, bool fold, bool reverse);
bool whole_number(Machine *m, Val v, int64_t *out);

/* chat_call.c */
Val chat_call(Machine *m, Val callee, const Args *a);
/* chat_run.c */
void chat_run(Machine *m); /* all of the template, into m->out */
Val run_macro(Machine *m, const Macro *macro, const Args *a);
Val binary(Machine *m, ChatBinary op, Val a, Val b);

#endif
