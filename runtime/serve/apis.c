/* apis.c - see apis.h: the table. */
#include "runtime/serve/generation.h"

#include <string.h>

static const Api apis[] = {
	{
		.path = "/v1/chat/completions", .read = api_read_chat, .put_error = api_put_error, .prompt = "messages",
		.has_parts = true,
		.answer_id = "chatcmpl-", .call_id = "call_",
		.head = chat_head, .first = chat_first, .begin = chat_begin, .piece = chat_piece, .idle = chat_idle,
		.finish = chat_finish, .end = chunks_end, .failure = chunks_failure, .whole = chat_whole,
	},
	{
		.path = "/v1/completions", .read = api_read_completions, .put_error = api_put_error, .prompt = "prompt",
		.answer_id = "cmpl-",
		.head = completions_head, .first = completions_first, .piece = completions_piece, .idle = completions_idle,
		.finish = completions_finish, .end = chunks_end, .failure = chunks_failure, .whole = completions_whole,
	},
	{
		.path = "/v1/messages", .read = api_read_messages, .put_error = messages_put_error, .prompt = "messages",
		.overloaded = 529,
		.has_parts = true, .answer_id = "msg_", .call_id = "toolu_", .part_id = {[PIECE_REASONING] = "sig_"},
		.first = messages_first, .begin = messages_begin, .piece = messages_piece, .close = messages_close,
		.finish = messages_finish, .end = messages_end, .ping = messages_ping, .failure = messages_failure,
		.whole = messages_whole,
	},
	{
		.path = "/v1/responses", .read = api_read_responses, .put_error = api_put_error, .prompt = "input",
		.has_parts = true, .answer_id = "resp_", .call_id = "call_", .part_id = {"rs_", "msg_", "fc_", "ctc_"},
		.first = responses_first, .begin = responses_begin, .piece = responses_piece, .close = responses_close,
		.end = responses_end, .failure = responses_failure, .whole = responses_whole,
	},
};
enum { N_APIS = sizeof apis / sizeof apis[0] };

const Api *api_of_path(const char *path)
{
	for (int i = 0; i < N_APIS; i++)
		if (strcmp(apis[i].path, path) == 0)
			return &apis[i];
	return NULL;
}

void (*api_error_form(const char *path))(const ApiError *e, FILE *out)
{
	for (int i = 0; path && i < N_APIS; i++)
		if (strncmp(apis[i].path, path, strlen(apis[i].path)) == 0)
			return apis[i].put_error;
	return api_put_error;
}
