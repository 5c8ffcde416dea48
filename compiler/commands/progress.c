/* progress.c - see progress.h. The bar is drawn with carriage returns and blanks alone, which every terminal knows; its
 * width is asked of the terminal each time, so that it follows a resize. A terminal without a width gets lines.
 */
#include "compiler/commands/progress.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE_SECONDS = 5, LEAST_BAR = 8 };
static const double redraw_seconds = 0.1;

static int columns_of(FILE *out)
{
	struct winsize size = {0};
	return isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

Progress progress_on(FILE *out) { return (Progress){.out = out, .is_terminal = columns_of(out) > 0}; }

void progress_clear(Progress *p)
{
	if (p->columns) {
		fprintf(p->out, "\r%*s\r", p->columns, "");
		fflush(p->out);
	}
	p->columns = 0;
}

/* "12 of 92, about 25 s left" */
static void state_text(const Progress *p, int64_t done, int64_t total, double now, char text[96])
{
	const bool is_bytes = strcmp(p->what, "weights") == 0;
	const int shift = is_bytes ? 20 : 0;
	const double left = done > 0 ? (now - p->start) * (double)(total - done) / (double)done : -1;
	int n = snprintf(text, 96, "%lld of %lld%s", (long long)(done >> shift), (long long)(total >> shift),
		is_bytes ? " MiB" : "");
	if (left >= 0 && now > p->start)
		snprintf(text + n, 96 - (size_t)n, ", about %.0f s left", left < 1 ? 1 : left);
}

static void draw(Progress *p, int64_t done, int64_t total, const char *state)
{
	const int width = columns_of(p->out) - 1, words = (int)(strlen(p->what) + strlen(state)) + 4;
	const int room = width - words;
	if (p->columns && p->columns != width)
		progress_clear(p);
	p->columns = width > 0 ? width : 0;
	fputc('\r', p->out);
	if (room < LEAST_BAR) {
		fprintf(p->out, "%-*.*s", p->columns, p->columns, state);
	} else {
		const int filled = (int)(done * room / total);
		fprintf(p->out, "%s [", p->what);
		for (int i = 0; i < room; i++)
			fputc(i < filled ? '#' : ' ', p->out);
		fprintf(p->out, "] %s", state);
	}
	fflush(p->out);
}

void progress_show(Progress *p, const char *what, int64_t done, int64_t total, double now)
{
	char state[96];
	if (!p->out)
		return;
	if (!p->what || strcmp(p->what, what) != 0) {
		progress_clear(p);
		p->what = what;
		p->start = p->last = now;
	}
	if (done >= total) {
		progress_clear(p);
		return;
	}
	if (now - p->last < (!p->is_terminal ? LINE_SECONDS : p->columns ? redraw_seconds : 0))
		return;
	p->last = now;
	state_text(p, done, total, now, state);
	if (p->is_terminal) {
		draw(p, done, total, state);
		return;
	}
	fprintf(p->out, "atlasc: %s %s\n", what, state);
	fflush(p->out);
}
