/* message.c - see message.h. The colours are the eight of ECMA-48, which every terminal that knows colours has. */
#include "artifacts/message.h"

#include <string.h>
#include <unistd.h>

static const char option[] = "--color";
static const struct { const char *word, *color; } kinds[] = {[MESSAGE_HELP] = {"help", "\033[1;32m"},
	[MESSAGE_NOTE] = {"note", "\033[1;36m"}, [MESSAGE_ERROR] = {"error", "\033[1;31m"}};

bool message_is_color(const char *word)
{
	return strcmp(word, "auto") == 0 || strcmp(word, "always") == 0 || strcmp(word, "never") == 0;
}

const char *message_color_word(int argc, char *const *argv)
{
	const size_t n = sizeof option - 1;
	const char *color = NULL;
	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strncmp(argv[i], option, n) != 0)
			continue;
		const char *word = argv[i][n] == '=' ? argv[i] + n + 1 : !argv[i][n] && i + 1 < argc ? argv[i + 1] : "";
		color = message_is_color(word) ? word : color;
	}
	return color;
}

bool message_is_colored(const char *color, FILE *out)
{
	if (color && strcmp(color, "auto") != 0)
		return strcmp(color, "always") == 0;
	return isatty(fileno(out));
}

void message_head(FILE *out, bool is_colored, const char *place, MessageKind kind, const char *name)
{
	const bool is_plain = !is_colored || kind == MESSAGE_REMARK;
	const char *bold = is_plain ? "" : "\033[1m", *end = is_plain ? "" : "\033[0m";
	if (kind != MESSAGE_HELP)
		fprintf(out, "%s%s:%s ", bold, place, end);
	if (kind != MESSAGE_REMARK)
		fprintf(out, "%s%s%s%s%s:%s ", is_plain ? "" : kinds[kind].color, kinds[kind].word, name ? "[" : "",
			name ? name : "", name ? "]" : "", end);
}
