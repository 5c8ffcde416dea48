/* manual.c - see manual.h. */
#include "artifacts/manual.h"

#include <string.h>

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
	fputs(".nf\n", out);
	put(out, text, false);
	fprintf(out, "%s.fi\n", *text && text[strlen(text) - 1] == '\n' ? "" : "\n");
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

void manual_option(FILE *out, const ManualOption *o)
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

/* Sets what a value may be: words in small letters, paths. */
static void put_value(FILE *out, const char *value)
{
	bool any = false, is_dir = strstr(value, "DIR");
	bool is_file = strstr(value, "FILE") || strstr(value, "PLAN") || strstr(value, "PEM") || strstr(value, "POLICY");
	for (const char *p = value; *p; p += strspn(p, "| ")) {
		size_t n = strcspn(p, "| ");
		bool is_code = n > 1 && p[1] >= '0' && p[1] <= '9'; /* of a diagnostic */
		if (is_code || !(*p >= 'A' && *p <= 'Z'))
			fprintf(out, "%s%.*s", any ? " " : "words='", (int)n, p), any = true;
		p += n;
	}
	fprintf(out, "%s%s", any ? "' " : "", is_dir ? "paths=directory " : is_file ? "paths=file " : any ? "" : "return ");
}

void completion_begin(FILE *out, const char *command)
{
	fprintf(out, "# completion of %s for bash, made by: %s --help-as bash\n_%s()\n{\n", command, command, command);
	fputs("\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= options= words= paths=\n"
		"\tCOMPREPLY=()\n"
		"\t[ \"$COMP_CWORD\" -eq 1 ] || verb=${COMP_WORDS[1]}\n"
		"\tif [ \"$cur\" = = ]; then\n\t\tcur=\n"
		"\telif [ \"$prev\" = = ]; then\n\t\tprev=${COMP_WORDS[COMP_CWORD-2]}\n\tfi\n"
		"\tcase $verb in\n", out);
}

void completion_verb(FILE *out, const char *verb, const char *operand, const ManualOption *options, int n)
{
	fprintf(out, "\t%s)\n\t\toptions='", *verb ? verb : "*");
	for (int i = 0; i < n; i++) {
		fprintf(out, "%s%s", i ? " " : "", options[i].name);
		if (options[i].letter)
			fprintf(out, " -%c", options[i].letter);
	}
	fputs("'\n\t\tcase $prev in\n", out);
	for (int i = 0; i < n; i++) {
		if (!options[i].value)
			continue;
		fprintf(out, "\t\t%s", options[i].name);
		if (options[i].letter)
			fprintf(out, " | -%c", options[i].letter);
		fputs(") ", out);
		put_value(out, options[i].value);
		fputs(";;\n", out);
	}
	if (operand) {
		fputs("\t\t*) ", out);
		put_value(out, operand);
		fputs(";;\n", out);
	}
	fputs("\t\tesac ;;\n", out);
}

void completion_end(FILE *out, const char *command, const char *verbs)
{
	fprintf(out, "\tesac\n\t[ -n \"$verb\" ] || words=\"%s $words\"\n", verbs);
	fputs("\tcase $cur in\n"
		"\t-*) mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\") ;;\n"
		"\t*)\n\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\"\n"
		"\t\t\t[ -z \"$paths\" ] || compgen -A \"$paths\" -- \"$cur\")\n"
		"\t\t[ -z \"$paths\" ] || compopt -o filenames 2>/dev/null ;;\n\tesac\n}\n", out);
	fprintf(out, "complete -F _%s %s\n", command, command);
}
