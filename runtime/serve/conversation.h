/* conversation.h - the conversation of another API as messages and tools in the form of Chat Completions, which is what
 * chat templates take.
 *
 * Turns of one role that follow each other are one message, because templates may insist that roles alternate:
 * reasoning, text and calls of the model, texts of the user. What a tool answered is a message of its own.
 * Functions return false after filling `e`.
 */
#ifndef ATLAS_CONVERSATION_H
#define ATLAS_CONVERSATION_H

#include "runtime/serve/api.h"

typedef struct Texts { /* texts one after the other; time is linear in their bytes */
	FILE *f; /* NULL = none was added */
	char *at;
	size_t n;
} Texts;

enum { CONVERSATION_TOOLS = 256 };
static const size_t CONVERSATION_INLINE = (size_t)-1; /* the place of a tool that a message defines */

typedef struct Conversation { /* zeroed; conversation_free */
	json_t *chat;      /* the request that Chat Completions would have; owned */
	json_t *calls;     /* id of a call: its name; owned */
	Texts system;
	/* the turn that may go on */
	const char *role;  /* static; NULL = none */
	Texts content, reasoning;
	json_t *turn_calls; /* owned; NULL = none */
	json_t *withdrawn; /* names of tools: true, or false once they are offered again; owned; NULL = none */
	size_t places[CONVERSATION_TOOLS]; int n_tools; /* where in the request the tools are */
} Conversation;

bool conversation_open(Conversation *c, ApiError *e);
void conversation_free(Conversation *c);
/* All of them are the first message, a blank line between each. */
bool conversation_add_system(Conversation *c, const char *text, ApiError *e);
/* role: "user" or "assistant", static. */
bool conversation_add_text(Conversation *c, const char *role, const char *text, ApiError *e);
bool conversation_add_reasoning(Conversation *c, const char *text, ApiError *e);
/* arguments: the text of a JSON object. */
bool conversation_add_call(Conversation *c, const char *id, const char *name, const char *arguments, ApiError *e);
bool conversation_add_result(Conversation *c, const char *id, const char *text, ApiError *e);
/* The request's tool `place`. parameters: JSON Schema, NULL = none. */
bool conversation_add_tool(Conversation *c, size_t place, const char *name, const char *description,
	json_t *parameters, json_t *strict, ApiError *e);
/* Is the tool offered from here on? One that the request does not have is nothing. */
bool conversation_offer_tool(Conversation *c, const char *name, bool is_offered, ApiError *e);
/* The role of the last message, if it has text and no calls; NULL otherwise. */
const char *conversation_last_text(const Conversation *c);
/* A member of `chat`, or of its chat_template_kwargs unless they have it. Takes the reference. */
bool conversation_set(Conversation *c, const char *name, json_t *value, ApiError *e);
bool conversation_set_variable(Conversation *c, const char *name, json_t *value, ApiError *e);
/* Reads tools and renders into the one prompt of r. `field`: what errors about the messages are about. */
bool conversation_end(Conversation *c, const ApiLimits *limits, const char *field, ApiRequest *r, ApiError *e);

/* The texts of a value that is a string or a list of objects {type, text}, with line ends between them; `types`: those
 * that are text, NULL at the end. Others are refused by their type. *text: free(). A string in skip: blocks that begin
 * with it do not count; NULL = none. */
bool conversation_text_of(
	json_t *value, const char *const *types, const char *skip, const char *at, char **text, ApiError *e);
/* A string that must be there, and one that must not be empty. */
bool conversation_needs(json_t *object, const char *name, const char *at, const char **value, ApiError *e);
bool conversation_needs_name(json_t *object, const char *name, const char *at, const char **value, ApiError *e);

#endif
