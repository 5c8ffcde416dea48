/* tools.c - the tools of a request (api.h). */
#include "runtime/serve/api.h"

#include <string.h>

bool api_read_tools(const ApiLimits *limits, json_t *chat, ApiRequest *r, ApiError *e)
{
	json_t *tools = api_get(chat, "tools"), *choice = api_get(chat, "tool_choice");
	const char *word = json_is_string(choice) ? json_string_value(choice) : choice ? "a function" : "auto";
	bool parallel = true;
	if (!json_array_size(tools))
		return true;
	if (!limits->tools)
		return api_refuse(e, 400, "tools", "tools: this version calls no tools");
	if (strcmp(word, "auto") != 0 && strcmp(word, "none") != 0)
		return api_refuse(e, 400, "tool_choice", "tool_choice is %.40s: expected auto or none", word);
	if (!api_bool(chat, "parallel_tool_calls", &parallel, e))
		return false;
	r->one_call = !parallel;
	r->tools = strcmp(word, "none") == 0 ? NULL : json_incref(tools);
	return true;
}
