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
	TOOL_JSON,     /* objects {"name", "arguments"}, or lists of them */
	TOOL_NAMED,    /* the same; or NAME[ARGS]{...}, or NAME[CALL_ID]ID[ARGS]{...} */
	TOOL_ELEMENTS, /* <function=NAME><parameter=KEY>VALUE</parameter>...</function> */
} ToolBody;

struct ToolFormat {
	const char *name;      /* as --tool-format has it */
	const char *openers[TOOL_MAX_OPENERS]; /* each begins a block; the second begins the first call, too */
	const char *closer;    /* NULL: the block ends with its first value, or, if it is_bare, with the answer */
	ToolBody body;
	bool is_bare;          /* an answer may begin with the JSON itself, and is then calls and blanks alone */
	const char *lead;      /* what an answer that must call begins with, before JSON; NULL: its calls are no JSON */
	const char *arguments; /* the member that has them; NULL as lead */
};

/* NULL: there is no format of that name. */
const ToolFormat *tool_format_named(const char *name);
/* Names of all, with ", " between them. */
void tool_format_names(char *text, size_t n);
/* May the token of this text, which is a control token, be part of what the parser reads? */
bool tool_format_has_marker(const ToolFormat *format, bool has_reasoning, const char *text, size_t n);

typedef struct ToolTemplate { /* what a chat template does with calls */
	const ToolFormat *format; /* NULL: it writes calls in no format of the table, or has none */
	bool has_short_ids;       /* it refuses ids of calls that are not nine letters and digits */
	bool has_reasoning;       /* it knows <think> */
} ToolTemplate;

/* Renders a conversation with a call, and reads the call back by each format. */
ToolTemplate tool_template_of(const ChatProgram *chat);

#endif
