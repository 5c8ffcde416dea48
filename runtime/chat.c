/* chat.c - the chat templates of atlas.h: limits by the plan's context, statuses for failures. */
#include "runtime/device.h"
#include "runtime/plan_handle.h"

#include <stddef.h>
#include <stdlib.h>

enum { FUEL = 10000000, TOKEN_BYTES = 16, LEAST_OUTPUT = 1 << 20, BASE_MEMORY = 64 << 20, MEMORY_A_BYTE = 32 };

struct AtlasChat { ChatPrompt prompt; };

static AtlasStatus fault_status(ChatFault f)
{
	switch (f) {
	case CHAT_OK: return ATLAS_OK;
	case CHAT_LIMIT: return ATLAS_CONTEXT;
	case CHAT_NO_MEMORY: return ATLAS_NO_MEMORY;
	default: return ATLAS_ARGUMENT;
	}
}

AtlasStatus atlas_chat_render(const AtlasPlan *plan, const char *json, size_t n_bytes, int64_t now, AtlasChat **chat,
	AtlasError *error)
{
	char why[sizeof error->text];
	ChatFailure failure;
	if (chat)
		*chat = NULL;
	if (!plan || !chat || (!json && n_bytes))
		return error_set(error, ATLAS_ARGUMENT, "plan, json and chat must not be NULL");
	if (!plan->has_chat) {
		plan_no_chat(plan, why, sizeof why);
		return error_set(error, ATLAS_UNSUPPORTED, "%s", why);
	}
	const size_t context = (size_t)plan->artifact.graph.max_context * TOKEN_BYTES;
	const ChatLimits limits = {FUEL, context < LEAST_OUTPUT ? LEAST_OUTPUT : context,
		BASE_MEMORY + (n_bytes < SIZE_MAX / 64 ? n_bytes : SIZE_MAX / 64) * MEMORY_A_BYTE};
	AtlasChat *c = calloc(1, sizeof *c);
	if (!c)
		return error_set(error, ATLAS_NO_MEMORY, "no memory for the chat");
	if (chat_render(&plan->chat, json, n_bytes, now, limits, &c->prompt, &failure) == CHAT_OK) {
		*chat = c;
		return ATLAS_OK;
	}
	free(c);
	return error_set(error, fault_status(failure.fault), "%s", failure.text);
}

AtlasStatus atlas_chat_text(const AtlasChat *chat, const char **text, size_t *n_bytes, const AtlasSpan **spans,
	size_t *n_spans)
{
	if (!chat || !text || !n_bytes || !spans || !n_spans)
		return ATLAS_ARGUMENT;
	*text = chat->prompt.text;
	*n_bytes = chat->prompt.n;
	*spans = (const AtlasSpan *)chat->prompt.spans; /* runtime/text.c shows that they are alike */
	*n_spans = chat->prompt.n_spans;
	return ATLAS_OK;
}

void atlas_chat_free(AtlasChat *chat)
{
	if (!chat)
		return;
	chat_prompt_free(&chat->prompt);
	free(chat);
}
