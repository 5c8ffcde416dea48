/* apis.h - the APIs that ask for text. Each is one row: how its requests are read, and how its answers are written.
 *
 * An answer is a list of parts: runs of reasoning or text, and calls of tools. A stream is
 *
 *	first (begin piece... close)... finish      of each answer, interleaved where there are several
 *	end                                         of the request
 *
 * or breaks off with failure. Writers of a stream print events of text/event-stream; all belong to the loop's thread.
 */
#ifndef ATLAS_APIS_H
#define ATLAS_APIS_H

#include "runtime/serve/api.h"
#include "runtime/serve/pieces.h"

typedef struct Generation Generation;
typedef struct Choice Choice;

typedef struct Part { /* of an answer; texts are owned */
	PieceKind kind;
	char id[40], call_id[40]; /* by the row's prefixes; "" = it has none */
	char *name;               /* of a call */
	char *bytes; size_t n, cap; /* reasoning, text; of a call, its arguments */
	int call;                 /* of a call: its number in the answer */
	size_t n_sent;            /* of bytes, in a stream */
	bool is_begun, is_custom; /* is_custom: a call of a tool whose input is a text */
} Part;

typedef struct Api {
	const char *path;
	/* requests, and errors before an answer */
	ApiReader *read;
	void (*put_error)(const ApiError *e, FILE *out);
	int overloaded;        /* status where the server has too much to do; 0 = that of HTTP: 429, or 503 */
	bool has_parts;        /* its answers have reasoning and calls, not text alone */
	const char *prompt;    /* its field, which a refusal of the session is about unless it names another */
	/* beginnings of ids; NULL = there are none */
	const char *answer_id, *call_id, *part_id[4]; /* by PieceKind; the last of a custom tool's call */
	/* writers; NULL = nothing is written */
	void (*head)(const Generation *g, FILE *out); /* what all events of a stream begin with: Generation.chunk_head */
	void (*first)(Generation *g, Choice *c, FILE *out);
	void (*begin)(Generation *g, Choice *c, Part *p, FILE *out);
	void (*piece)(Generation *g, Choice *c, Part *p, const char *bytes, size_t n, FILE *out);
	void (*close)(Generation *g, Choice *c, Part *p, FILE *out);
	void (*idle)(Generation *g, Choice *c, FILE *out); /* after tokens, which may have given no text */
	void (*finish)(Generation *g, Choice *c, FILE *out);
	void (*end)(Generation *g, FILE *out);
	void (*ping)(Generation *g, FILE *out);       /* a stream that was silent for a while */
	void (*failure)(Generation *g, const ApiError *e, FILE *out);
	void (*whole)(Generation *g, FILE *out);      /* the answer of a request that is no stream */
} Api;

/* The row whose path it is; NULL: another route's. */
const Api *api_of_path(const char *path);
/* The form in which routes of this path, which may be unknown (NULL: unread), report errors. */
void (*api_error_form(const char *path))(const ApiError *e, FILE *out);

#endif
