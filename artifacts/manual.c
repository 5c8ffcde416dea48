/* manual.c - see manual.h. */
#include "artifacts/manual.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Help ------------------------------------------------------------ */

static int help_width(FILE *out)
{
	enum { LEAST = 60, USUAL = 80, MOST = 100 };
	struct winsize size = {0};
	if (!isatty(fileno(out)) || ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || !size.ws_col)
		return USUAL;
	return size.ws_col < LEAST ? LEAST : size.ws_col > MOST ? MOST : size.ws_col;
}

/* Words of one line of text, filled from column `at`, where the line is already, to the width. */
static void fill(FILE *out, const char *text, int at)
{
	const int width = help_width(out);
	int column = at;
	for (const char *p = text; *p && *p != '\n';) {
		const int n = (int)strcspn(p, " \n");
		if (column > at && column + 1 + n > width)
			column = fprintf(out, "\n%*s", at, "") - 1;
		else if (column > at)
			column += fprintf(out, " ");
		column += fprintf(out, "%.*s", n, p);
		p += n;
		p += strspn(p, " ");
	}
	putc('\n', out);
}

void help_item(FILE *out, const char *name, int at, const char *text)
{
	const int n = fprintf(out, "  %s", name);
	if (n + 1 >= at)
		fprintf(out, "\n%*s", at, "");
	else
		fprintf(out, "%*s", at - n, "");
	fill(out, text, at);
}

void help_options(FILE *out, const ManualOption *options, int n)
{
	enum { TEXT_AT = 30 };
	for (int i = 0; i < n; i++) {
		const ManualOption *o = &options[i];
		char left[96], letter[8] = "    ";
		if (!o->help && (i + 1 == n || !options[i + 1].help))
			continue;
		if (!o->help) {
			fprintf(out, "\n%s:\n", o->name);
			continue;
		}
		if (o->letter)
			snprintf(letter, sizeof letter, "-%c, ", o->letter);
		snprintf(left, sizeof left, "%s%s%s%s", letter, o->name, o->value ? " " : "", o->value ? o->value : "");
		help_item(out, left, TEXT_AT, o->help);
	}
}

/* Of an item, "  NAME  TEXT": the length of NAME; where TEXT begins, in *text. 0: it is none. */
static int item_name(const char *line, const char **text)
{
	const char *gap = strncmp(line, "  ", 2) == 0 && line[2] != ' ' ? strstr(line + 2, "  ") : NULL;
	if (!gap || gap > line + strcspn(line, "\n"))
		return 0;
	*text = gap + strspn(gap, " ");
	return (int)(gap - line) - 2;
}

static const char *next_line(const char *line)
{
	line += strcspn(line, "\n");
	return line + (*line == '\n');
}

void help_lines(FILE *out, const char *text)
{
	int at = 0;
	const char *rest;
	for (const char *p = text; *p; p = next_line(p)) { /* all items have one column of texts */
		const int n = item_name(p, &rest) + 4;
		at = n > at && n <= 16 ? n : at;
	}
	for (const char *p = text; *p; p = next_line(p)) {
		char name[64];
		const int n = item_name(p, &rest);
		snprintf(name, sizeof name, "%.*s", n, p + 2);
		if (strncmp(p, "    ", 4) == 0)
			fprintf(out, "%.*s\n", (int)strcspn(p, "\n"), p);
		else if (n)
			help_item(out, name, at, rest);
		else
			fill(out, p, 0);
	}
}

void help_examples(FILE *out, const ManualExample *examples, int n)
{
	if (n)
		fputs("\nExamples:\n", out);
	for (int i = 0; i < n; i++) {
		fputs("  ", out);
		fill(out, examples[i].what, 2);
		for (const char *p = examples[i].command; *p; p = next_line(p))
			fprintf(out, "      %.*s\n", (int)strcspn(p, "\n"), p);
	}
}

/* Pages ------------------------------------------------------------ */

/* As roff takes it: a backslash, a line that begins like a request, and, in what is typed, the minus. */
static void put(FILE *out, const char *text, bool is_typed)
{
	bool starts = true;
	for (const char *p = text; *p; p++) {
		if (starts && (*p == '.' || *p == '\''))
			fputs("\\&", out);
		starts = *p == '\n';
		if (*p == '\\')
			fputs("\\e", out);
		else if (*p == '-' && is_typed)
			fputs("\\-", out);
		else
			putc(*p, out);
	}
}

/* Lines of at most 78 bytes, where words allow it. */
static void put_lines(FILE *out, const char *text)
{
	enum { WIDTH = 78 };
	for (size_t col = 0; *text;) {
		char word[256];
		size_t n = strcspn(text, " \n");
		snprintf(word, sizeof word, "%.*s", (int)n, text);
		if (col && col + 1 + n > WIDTH)
			putc('\n', out), col = 0;
		else if (col)
			putc(' ', out), col++;
		put(out, word, false); /* \\& does no harm within a line */
		col += n;
		text += n + !!text[n];
	}
	putc('\n', out);
}

void manual_begin(FILE *out, const char *name, int section, const char *what)
{
	fputs(".\\\" Made by the command itself from its tables.\n.TH \"", out);
	for (const char *p = name; *p; p++)
		putc(*p >= 'a' && *p <= 'z' && section == 1 ? *p - 'a' + 'A' : *p, out);
	fprintf(out, "\" %d \"" ATLAS_DATE "\" \"atlasc " ATLAS_VERSION "\"\n.SH NAME\n", section);
	put(out, name, true);
	fputs(" \\- ", out);
	put(out, what, false);
	putc('\n', out);
}

void manual_head(FILE *out, const char *head) { fprintf(out, ".SH %s\n", head); }

void manual_paragraph(FILE *out) { fputs(".PP\n", out); }
void manual_text(FILE *out, const char *text) { put_lines(out, text); }

void manual_lines(FILE *out, const char *text)
{
	const char *rest;
	bool is_first = true;
	for (const char *p = text; *p; p = next_line(p), is_first = false) {
		char line[2048], name[64];
		const int n = item_name(p, &rest);
		snprintf(line, sizeof line, "%.*s", (int)strcspn(n ? rest : p, "\n"), n ? rest : p);
		snprintf(name, sizeof name, "%.*s", n, p + 2);
		if (n)
			manual_item(out, name, line);
		else if (strncmp(line, "    ", 4) == 0)
			fputs(".nf\n", out), put(out, line, true), fputs("\n.fi\n", out);
		else
			fputs(is_first ? "" : ".PP\n", out), put_lines(out, line);
	}
}

void manual_synopsis(FILE *out, const char *command, const char *words)
{
	fputs(".B ", out);
	put(out, command, true);
	putc('\n', out);
	put(out, words, true);
	putc('\n', out);
}

void manual_item(FILE *out, const char *tag, const char *text)
{
	fputs(".TP\n.B ", out);
	put(out, tag, true);
	putc('\n', out);
	put_lines(out, text);
}

static void option(FILE *out, const ManualOption *o)
{
	fputs(".TP\n\\fB", out);
	if (o->letter)
		fprintf(out, "\\-%c\\fR, \\fB", o->letter);
	put(out, o->name, true);
	fputs("\\fR", out);
	if (o->value) {
		fputs(" \\fI", out);
		put(out, o->value, true);
		fputs("\\fR", out);
	}
	putc('\n', out);
	put_lines(out, o->help);
}

void manual_options(FILE *out, const ManualOption *options, int n)
{
	for (int i = 0; i < n; i++)
		if (options[i].help)
			option(out, &options[i]);
		else if (i + 1 < n && options[i + 1].help)
			fprintf(out, ".SS %s\n", options[i].name);
}

void manual_examples(FILE *out, const ManualExample *examples, int n)
{
	manual_head(out, "EXAMPLES");
	for (int i = 0; i < n; i++) {
		fputs(i ? ".PP\n" : "", out);
		put_lines(out, examples[i].what);
		fputs(".PP\n.nf\n.RS 4\n", out);
		put(out, examples[i].command, true);
		fputs("\n.RE\n.fi\n", out);
	}
}

void manual_files(FILE *out, const ManualFile *files, int n)
{
	manual_head(out, "FILES");
	for (int i = 0; i < n; i++)
		manual_item(out, files[i].name, files[i].what);
}

void manual_exit_codes(FILE *out)
{
	static const struct { const char *number, *meaning; } codes[] = {
#define EXIT_CODE(name, value, meaning) {#value, meaning},
#include "artifacts/exit_codes.h"
#undef EXIT_CODE
	};
	manual_head(out, "EXIT STATUS");
	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
		manual_item(out, codes[i].number, codes[i].meaning);
}

void manual_see_also(FILE *out, const char *const *pages, int n)
{
	manual_head(out, "SEE ALSO");
	for (int i = 0; i < n; i++) {
		const char *section = strchr(pages[i], '(');
		fprintf(out, ".BR %.*s %s%s\n", (int)(section - pages[i]), pages[i], section, i + 1 < n ? " ," : "");
	}
}

/* Completion ------------------------------------------------------------ */

/* What a value may be: words in small letters, or paths. */
typedef struct Value { char words[4096]; bool is_dir, is_file; } Value;

static Value value_of(const char *value)
{
	Value v = {.is_dir = strstr(value, "DIR")};
	v.is_file = strstr(value, "FILE") || strstr(value, "PLAN") || strstr(value, "PEM") || strstr(value, "POLICY");
	size_t at = 0;
	for (const char *p = value; *p; p += strspn(p, "| ")) {
		const size_t n = strcspn(p, "| ");
		const bool is_code = n > 1 && p[1] >= '0' && p[1] <= '9'; /* of a diagnostic */
		if ((is_code || !(*p >= 'A' && *p <= 'Z')) && at + n + 2 < sizeof v.words)
			at += (size_t)sprintf(v.words + at, "%s%.*s", at ? " " : "", (int)n, p);
		p += n;
	}
	return v;
}

/* Text between quotes of the shell; zsh cuts explanations at brackets. */
static void put_quoted(FILE *out, const char *text, bool is_fish, const char *escaped)
{
	for (; *text; text++)
		if (*text == '\'')
			fputs(is_fish ? "\\'" : "'\\''", out);
		else if (*text == '\\' || strchr(escaped, *text))
			fprintf(out, "\\%c", *text);
		else
			putc(*text, out);
}

static void bash_value(FILE *out, const char *value)
{
	const Value v = value_of(value);
	if (*v.words)
		fprintf(out, "words='%s' ", v.words);
	fputs(v.is_dir ? "paths=directory " : v.is_file ? "paths=file " : *v.words ? "" : "return ", out);
}

static void bash_word(FILE *out, const CompletionWord *w)
{
	bool any = false;
	fprintf(out, "\t%s)\n\t\toptions='", *w->name ? w->name : "*");
	for (int i = 0; i < w->n; i++) {
		if (!w->options[i].help)
			continue;
		fprintf(out, "%s%s", any ? " " : "", w->options[i].name);
		any = true;
		if (w->options[i].letter)
			fprintf(out, " -%c", w->options[i].letter);
	}
	fputs("'\n\t\tcase $prev in\n", out);
	for (int i = 0; i < w->n; i++) {
		if (!w->options[i].value)
			continue;
		fprintf(out, "\t\t%s", w->options[i].name);
		if (w->options[i].letter)
			fprintf(out, " | -%c", w->options[i].letter);
		fputs(") ", out);
		bash_value(out, w->options[i].value);
		fputs(";;\n", out);
	}
	if (w->operand) {
		fputs("\t\t*) ", out);
		bash_value(out, w->operand);
		fputs(";;\n", out);
	}
	fputs("\t\tesac ;;\n", out);
}

static void bash(FILE *out, const char *command, const CompletionWord *words, int n)
{
	fprintf(out, "_%s()\n{\n", command);
	fputs("\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= options= words= paths=\n"
		"\tCOMPREPLY=()\n"
		"\t[ \"$COMP_CWORD\" -eq 1 ] || verb=${COMP_WORDS[1]}\n"
		"\tif [ \"$cur\" = = ]; then\n\t\tcur=\n"
		"\telif [ \"$prev\" = = ]; then\n\t\tprev=${COMP_WORDS[COMP_CWORD-2]}\n\tfi\n"
		"\tcase $verb in\n", out);
	for (int i = 0; i < n; i++)
		bash_word(out, &words[i]);
	fputs("\tesac\n\t[ -n \"$verb\" ] || words=\"", out);
	for (int i = 0; i < n; i++)
		fprintf(out, "%s ", words[i].name);
	fputs("$words\"\n"
		"\tcase $cur in\n"
		"\t-*) mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\") ;;\n"
		"\t*)\n\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\"\n"
		"\t\t\t[ -z \"$paths\" ] || compgen -A \"$paths\" -- \"$cur\")\n"
		"\t\t[ -z \"$paths\" ] || compopt -o filenames 2>/dev/null ;;\n\tesac\n}\n", out);
	fprintf(out, "complete -F _%s %s\n", command, command);
}

/* ":FILE:_files" */
static void zsh_value(FILE *out, const char *value)
{
	const Value v = value_of(value);
	fputc(':', out);
	put_quoted(out, value, false, ":");
	fputc(':', out);
	if (*v.words && (v.is_dir || v.is_file))
		fprintf(out, "{ compadd %s; _files%s }", v.words, v.is_dir ? " -/" : "");
	else if (*v.words)
		fprintf(out, "(%s)", v.words);
	else
		fputs(v.is_dir ? "_files -/" : v.is_file ? "_files" : " ", out);
}

static void zsh_word(FILE *out, const CompletionWord *w)
{
	fprintf(out, "\t%s)\n\t\t_arguments -s", *w->name ? w->name : "*");
	for (int i = 0; i < w->n; i++) {
		const ManualOption *o = &w->options[i];
		for (int is_short = 0; o->help && is_short <= !!o->letter; is_short++) {
			fputs(" \\\n\t\t\t'*", out);
			if (is_short)
				fprintf(out, "-%c%s[", o->letter, o->value ? "+" : "");
			else
				fprintf(out, "%s%s[", o->name, o->value ? "=" : "");
			put_quoted(out, o->help, false, "[]");
			fputc(']', out);
			if (o->value)
				zsh_value(out, o->value);
			fputc('\'', out);
		}
	}
	if (w->operand) {
		fputs(" \\\n\t\t\t'*", out);
		zsh_value(out, w->operand);
		fputc('\'', out);
	}
	fputs(" ;;\n", out);
}

static void zsh(FILE *out, const char *command, const CompletionWord *words, int n)
{
	fprintf(out, "_%s()\n{\n\tlocal verb=\n\tlocal -a verbs\n\tverbs=(", command);
	for (int i = 0; i < n - 1; i++) {
		fprintf(out, "\n\t\t'%s:", words[i].name);
		put_quoted(out, words[i].summary, false, ":");
		fputc('\'', out);
	}
	fputs(")\n\tif ((CURRENT == 2)); then\n\t\t[[ $words[2] == -* ]] || _describe -t verbs verb verbs\n"
		"\telif (($verbs[(I)$words[2]:*])); then\n\t\tverb=$words[2]\n\t\tshift words\n\t\t((CURRENT--))\n\tfi\n"
		"\tcase $verb in\n", out);
	for (int i = 0; i < n; i++)
		zsh_word(out, &words[i]);
	fprintf(out, "\tesac\n}\n[[ $funcstack[1] != _%s ]] || _%s \"$@\"\n", command, command);
}

static void fish_value(FILE *out, const char *value)
{
	const Value v = value_of(value);
	if (v.is_dir)
		fputs(" -x -a '(__fish_complete_directories)'", out);
	else
		fputs(v.is_file ? " -r -F" : " -x", out);
	if (*v.words)
		fprintf(out, " -a '%s'", v.words);
}

static void fish_word(FILE *out, const char *command, const char *when, const CompletionWord *w)
{
	const Value v = value_of(w->operand ? w->operand : "");
	for (int i = 0; i < w->n; i++) {
		const ManualOption *o = &w->options[i];
		if (!o->help)
			continue;
		fprintf(out, "complete -c %s -n '%s' -l %s", command, when, o->name + 2);
		if (o->letter)
			fprintf(out, " -s %c", o->letter);
		if (o->value)
			fish_value(out, o->value);
		fputs(" -d '", out);
		put_quoted(out, o->help, true, "");
		fputs("'\n", out);
	}
	if (!v.is_file || *v.words)
		fprintf(out, "complete -c %s -n '%s' -f%s%s%s%s\n", command, when,
			*v.words || v.is_dir ? " -a '" : "", v.words, v.is_dir ? "(__fish_complete_directories)" : "",
			*v.words || v.is_dir ? "'" : "");
}

static void fish(FILE *out, const char *command, const CompletionWord *words, int n)
{
	char any[512] = "", when[600];
	for (int i = 0; i < n - 1; i++)
		snprintf(any + strlen(any), sizeof any - strlen(any), " %s", words[i].name);
	for (int i = 0; i < n - 1; i++) {
		fprintf(out, "complete -c %s -n __fish_use_subcommand -f -a %s -d '", command, words[i].name);
		put_quoted(out, words[i].summary, true, "");
		fputs("'\n", out);
		snprintf(when, sizeof when, "__fish_seen_subcommand_from %s", words[i].name);
		fish_word(out, command, when, &words[i]);
	}
	snprintf(when, sizeof when, "not __fish_seen_subcommand_from%s", any);
	fish_word(out, command, when, &words[n - 1]);
}

bool manual_completion(FILE *out, const char *shell, const char *command, const CompletionWord *words, int n)
{
	static const struct {
		const char *name;
		void (*print)(FILE *out, const char *command, const CompletionWord *words, int n);
	} shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
	for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
		if (strcmp(shells[i].name, shell) == 0) {
			if (shells[i].print == zsh)
				fprintf(out, "#compdef %s\n", command);
			fprintf(out, "# completion of %s for %s, made by: %s --help-as %s\n", command, shell, command, shell);
			shells[i].print(out, command, words, n);
			return true;
		}
	return false;
}
