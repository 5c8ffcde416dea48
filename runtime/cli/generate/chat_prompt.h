/* chat_prompt.h - messages to token ids, by the chat template of a plan: for atlas run --chat and atlas chat. */
#ifndef ATLAS_CHAT_PROMPT_H
#define ATLAS_CHAT_PROMPT_H

#include "runtime/cli/cli.h"

typedef struct Message {
	const char *role; /* static */
	char *text;       /* [n] owned */
	size_t n;
} Message;

typedef struct Messages { /* zeroed = empty */
	Message *at;
	int n;
} Messages;

/* Appends a copy of text [n]; false when there is no memory. */
bool messages_add(Messages *m, const char *role, const char *text, size_t n);
void messages_cut(Messages *m, int n); /* keeps the first n */
void messages_free(Messages *m);

/* {"messages": [...]}, on several lines; the first is `system`, where that is not NULL. */
void messages_write(const char *system, const Messages *m, FILE *out);

/* The prompt of these messages after [first, a system message where that is not NULL]. 0, or the exit code after the
 * failure was printed. tokens: free(ids). */
int chat_prompt(const Args *args, const AtlasPlan *plan, const char *system, const Messages *m, Tokens *tokens);

#endif
