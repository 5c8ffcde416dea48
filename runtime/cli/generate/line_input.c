/* line_input.c - lines from a terminal by libedit, from a pipe by read.
 *
 * Signals are held while the program runs, so a read may not block: both readers look for signals several
 * times a second. In a terminal, Ctrl-C is a key while a line is typed; while an answer runs it is a signal again. The
 * terminal is UTF-8 whatever the environment says of a locale.
 */
#include "runtime/cli/generate/line_input.h"
#include "runtime/cli/cli.h"
#include "runtime/text/utf8.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 200, MOST_LINES = 500 };
static const char quotes[] = "\"\"\"";

struct LineInput {
	EditLine *edit;      /* NULL: no terminal */
	History *history;
	unsigned char bytes[4096]; /* read ahead */
	size_t at, n;
	char *line;          /* [length] so far */
	size_t length, cap;
	bool is_dropped, is_ended, goes_on;
};

/* A byte of stdin, -1 at its end, -2 after a signal. */
static int next_byte(LineInput *in)
{
	while (in->at == in->n) {
		struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
		if (cli_interrupted()) {
			in->is_ended = true;
			return -2;
		}
		if (poll(&p, 1, WAIT_MS) == 0)
			continue;
		const ssize_t n = read(STDIN_FILENO, in->bytes, sizeof in->bytes);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return -1;
		in->at = 0;
		in->n = (size_t)n;
	}
	return in->bytes[in->at++];
}

static bool add_bytes(LineInput *in, const char *p, size_t n)
{
	if (in->length + n + 1 > in->cap) {
		const size_t cap = (in->length + n + 1) * 2;
		char *line = realloc(in->line, cap);
		if (!line)
			return false;
		in->line = line;
		in->cap = cap;
	}
	memcpy(in->line + in->length, p, n);
	in->length += n;
	in->line[in->length] = 0;
	return true;
}

/* libedit ------------------------------------------------------------ */

static LineInput *input_of(EditLine *edit)
{
	LineInput *in = NULL;
	el_get(edit, EL_CLIENTDATA, &in);
	return in;
}

static char *prompt_of(EditLine *edit)
{
	const LineInput *in = input_of(edit);
	return (char *)(uintptr_t)(in->goes_on ? "… " : "> ");
}

static int read_key(EditLine *edit, wchar_t *out)
{
	LineInput *in = input_of(edit);
	unsigned char bytes[UTF8_MAX];
	uint32_t cp;
	for (size_t n = 1; n <= sizeof bytes; n++) {
		const int c = next_byte(in);
		if (c < 0)
			return 0;
		bytes[n - 1] = (unsigned char)c;
		const int k = utf8_read(bytes, n, &cp);
		if (k == 0 && n < sizeof bytes)
			continue;
		*out = (wchar_t)(k > 0 ? cp : UTF8_REPLACEMENT);
		return 1;
	}
	return 0;
}

static unsigned char drop_line(EditLine *edit, int key)
{
	(void)key;
	input_of(edit)->is_dropped = true;
	return CC_NEWLINE;
}

static bool open_terminal(LineInput *in)
{
	HistEvent event;
	setlocale(LC_CTYPE, "C.UTF-8"); /* libedit asks how wide characters are */
	in->edit = el_init("atlas", stdin, stdout, stderr);
	in->history = history_init();
	if (!in->edit || !in->history)
		return false;
	history(in->history, &event, H_SETSIZE, MOST_LINES);
	el_set(in->edit, EL_CLIENTDATA, in);
	el_set(in->edit, EL_PROMPT, prompt_of);
	el_set(in->edit, EL_EDITOR, "emacs");
	el_set(in->edit, EL_HIST, history, in->history);
	el_set(in->edit, EL_GETCFN, read_key);
	el_set(in->edit, EL_ADDFN, "drop-line", "Drop the line", drop_line);
	el_set(in->edit, EL_BIND, "^C", "drop-line", NULL);
	el_set(in->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
	el_set(in->edit, EL_BIND, "^I", "ed-insert", NULL); /* of pasted code */
	el_set(in->edit, EL_SETTY, "-d", "-isig", NULL); /* only while a line is edited */
	return true;
}

/* One line of a terminal, with its end. */
static LineEnd read_terminal(LineInput *in)
{
	int n = 0;
	HistEvent event;
	in->is_dropped = false;
	el_set(in->edit, EL_PREP_TERM, 1); /* el_gets does it after the prompt, when a key may have been typed already */
	const char *line = el_gets(in->edit, &n);
	if (in->is_ended)
		return LINE_ENDED;
	if (in->is_dropped)
		return fputs("^C\n", stdout), LINE_DROPPED;
	if (!line || n <= 0)
		return fputs("\n", stdout), LINE_CLOSED;
	if (n > 1)
		history(in->history, &event, H_ENTER, line);
	return add_bytes(in, line, (size_t)n) ? LINE_WHOLE : LINE_NO_MEMORY;
}

static LineEnd read_pipe(LineInput *in)
{
	for (bool any = false;; any = true) {
		const int c = next_byte(in);
		if (c == -2 || (c == -1 && !any))
			return c == -2 ? LINE_ENDED : LINE_CLOSED;
		if (c == -1 || c == '\n')
			return add_bytes(in, "\n", 1) ? LINE_WHOLE : LINE_NO_MEMORY;
		if (!add_bytes(in, &(char){(char)c}, 1))
			return LINE_NO_MEMORY;
	}
}

/* Lines ------------------------------------------------------------ */

LineInput *line_open(void)
{
	LineInput *in = calloc(1, sizeof *in);
	if (!in)
		return NULL;
	if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !open_terminal(in)) {
		line_close(in);
		return NULL;
	}
	return in;
}

LineEnd line_read(LineInput *in, const char **line, size_t *n)
{
	bool is_block = false; /* between quotes */
	in->length = 0;
	in->goes_on = false;
	for (;;) {
		const size_t begin = in->length;
		const LineEnd end = in->edit ? read_terminal(in) : read_pipe(in);
		if (end != LINE_WHOLE && !(end == LINE_CLOSED && in->goes_on))
			return end;
		while (in->length > begin && strchr("\r\n", in->line[in->length - 1]))
			in->length--;
		if (!is_block && !begin && in->length >= 3 && memcmp(in->line, quotes, 3) == 0) {
			is_block = true;
			memmove(in->line, in->line + 3, in->length -= 3);
		}
		const bool is_closed = is_block && in->length >= 3 && memcmp(in->line + in->length - 3, quotes, 3) == 0;
		in->length -= is_closed ? 3 + (in->length > 3 && in->line[in->length - 4] == '\n') : 0;
		in->goes_on = end == LINE_WHOLE && !is_closed && (is_block || (in->length && in->line[in->length - 1] == '\\'));
		if (!in->goes_on)
			break;
		in->length -= !is_block; /* the backslash */
		if (in->length && !add_bytes(in, "\n", 1))
			return LINE_NO_MEMORY;
	}
	in->line[in->length] = 0;
	*line = in->line;
	*n = in->length;
	return is_block ? LINE_QUOTED : LINE_WHOLE;
}

bool line_is_terminal(const LineInput *in) { return in->edit != NULL; }

void line_close(LineInput *in)
{
	if (!in)
		return;
	if (in->edit)
		el_end(in->edit);
	if (in->history)
		history_end(in->history);
	free(in->line);
	free(in);
}
