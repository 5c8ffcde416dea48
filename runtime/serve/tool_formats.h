/* tool_formats.h - the forms in which models write calls of tools, and which of them a chat template has.
 *
 * A block of calls: where it begins, what is in it, where it ends. Another model's form is another row, if its calls
 * are one of these bodies.
 */
#ifndef ATLAS_TOOL_FORMATS_H
#define ATLAS_TOOL_FORMATS_H

#include "runtime/serve/pieces.h"
#include "runtime/text/chat.h"

enum { TOOL_MAX_OPENERS = 2 };

typedef enum ToolBody {
	TOOL_JSON,       /* objects {"name", "arguments"}, or lists of them */
	TOOL_NAMED,      /* a name, and arguments as a JSON object; without marks.call also what TOOL_JSON is */
	TOOL_PARAMETERS, /* a name, and each parameter's value as text between marks */
	TOOL_LITERALS,   /* a name, and arguments as literals: of Python, or with a mark of their own for quotes */
	TOOL_CHANNELS,   /* no block: a message to functions.NAME, of models whose answers are messages (pieces.c) */
} ToolBody;

/* What a call is made of, in this order; NULL = it has no such mark. Blanks at the ends of a mark are how the form is
 * written, and are not asked for when it is read. */
typedef struct ToolMarks {
	const char *call;  /* before the name */
	const char *id;    /* after the name: the id of the call, and then `named` */
	const char *named; /* after the name */
	const char *key, *keyed;   /* around a parameter's name; if the latter ends a line, values have their own lines */
	const char *value, *typed; /* before its value: the former, or, of a value that is no string, the latter */
	const char *valued;        /* after its value */
	const char *end;   /* after the arguments */
	const char *quote; /* around strings of TOOL_LITERALS; NULL = as in Python */
} ToolMarks;

struct ToolFormat {
	const char *name;      /* as --tool-format has it */
	const char *openers[TOOL_MAX_OPENERS]; /* each begins a block; one that is marks.call begins the first call, too */
	const char *closer;    /* NULL: the block ends with its first value, or, if it is_bare, with the answer */
	ToolBody body;
	bool is_bare;          /* an answer may begin with the JSON or list itself, and is then calls and blanks alone */
	bool is_listed;        /* brackets are around calls */
	bool is_numbered;      /* names are functions.NAME:NUMBER */
	const char *lead;      /* of TOOL_JSON: what an answer that must call begins with, before JSON */
	const char *arguments; /* of TOOL_JSON: the member that has them */
	ToolMarks marks;
};

/* NULL: there is no format of that name. */
const ToolFormat *tool_format_named(const char *name);
/* Names of all, with ", " between them. */
void tool_format_names(char *text, size_t n);
/* May the token of this text, which is a control token, be part of what the parser reads? */
bool tool_format_has_marker(const ToolFormat *format, const Reasoning *reasoning, const char *text, size_t n);

typedef struct ToolTemplate { /* what a chat template does with calls */
	const ToolFormat *format; /* NULL: it writes calls in no format of the table, or has none */
	bool needs_all;           /* it refuses tools without description and parameters */
	bool has_short_ids;       /* it refuses ids of calls that are not nine letters and digits */
	const Reasoning *reasoning; /* NULL: it knows of none */
} ToolTemplate;

/* Renders a conversation with a call, and reads the call back by each format. */
ToolTemplate tool_template_of(const ChatProgram *chat);

#endif
