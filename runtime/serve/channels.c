/* channels.c - see channels.h. */
#include "runtime/serve/channels.h"

#include <string.h>

static const char start_mark[] = "<|start|>", channel_mark[] = "<|channel|>", function_prefix[] = "functions.";
/* The first four end a message. */
static const char *const marks[] = {
	"<|end|>", "<|call|>", "<|return|>", start_mark, channel_mark, CHANNELS_MESSAGE, "<|constrain|>"};
enum { N_ENDS = 4, N_MARKS = sizeof marks / sizeof marks[0] };

static bool begins(const char *text, size_t n, const char *mark)
{
	const size_t length = strlen(mark);
	return memcmp(text, mark, n < length ? n : length) == 0;
}

bool channels_may_be_head(const char *text, size_t n)
{
	static const char *const firsts[] = {start_mark, "assistant", channel_mark, CHANNELS_MESSAGE, " to=", "to="};
	for (size_t i = 0; i < sizeof firsts / sizeof firsts[0]; i++)
		if (begins(text, n, firsts[i]))
			return n <= CHANNELS_HEAD_BYTES;
	return false;
}

static JsonSlice word(const char *at, const char *end)
{
	const char *to = at;
	while (to < end && *to && !strchr(" \t\r\n<", *to))
		to++;
	return (JsonSlice){at, (size_t)(to - at)};
}

MessageHead channels_read_head(const char *text, size_t n)
{
	MessageHead head = {{"", 0}, {"", 0}, false};
	const char *end = text + n, *channel = memmem(text, n, channel_mark, sizeof channel_mark - 1);
	const char *to = memmem(text, n, "to=", 3);
	if (channel)
		head.channel = word(channel + sizeof channel_mark - 1, end);
	if (!to)
		return head;
	const JsonSlice recipient = word(to + 3, end);
	const size_t n_prefix = sizeof function_prefix - 1;
	head.has_recipient = true;
	if (recipient.n > n_prefix && memcmp(recipient.at, function_prefix, n_prefix) == 0)
		head.function = (JsonSlice){recipient.at + n_prefix, recipient.n - n_prefix};
	return head;
}

json_t *channels_final_form(bool after_reasoning)
{
	static const char thought[] = "(?:[^<]|<+[^<|])*<+[|]end[|]>";
	json_t *next = json_pack("[s,s]", start_mark, "assistant");
	json_t *first = after_reasoning || !next ? next
		: json_pack("{s:[s,s,s,{s:s},o]}", "optional", channel_mark, "analysis", CHANNELS_MESSAGE, "regex", thought,
			next);
	return first ? json_pack("[o,s,s,{s:s},s]", first, channel_mark, "final", "optional", " <|constrain|>json",
		CHANNELS_MESSAGE) : NULL;
}

bool channels_may_end(const char *text, size_t n, bool *is_whole)
{
	for (int i = 0; i < N_ENDS; i++)
		if (n <= strlen(marks[i]) && begins(text, n, marks[i])) {
			*is_whole = !marks[i][n];
			return true;
		}
	return *is_whole = false;
}

bool channels_has_marker(const char *text, size_t n)
{
	for (int i = 0; i < N_MARKS; i++)
		if (strlen(marks[i]) == n && memcmp(marks[i], text, n) == 0)
			return true;
	return false;
}
