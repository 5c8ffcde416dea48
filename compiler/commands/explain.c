/* explain.c - the tables of codes.h and of atlas.h, for people who met one of their names. */
#include "compiler/commands/explain.h"
#include "artifacts/closest.h"
#include "compiler/base.h"
#include "runtime/atlas.h" /* its table alone: the names that atlas prints are explained here too */

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { SCHEMA_VERSION = 1 };

static json_t *json_code(const CodeInfo *c)
{
	return json_pack("{s:s, s:i, s:s, s:s, s:s}", "code", c->name, "exit_code", c->exit_code, "title", c->title,
		"meaning", c->meaning, "advice", c->advice);
}

static const CodeInfo statuses[] = {
#define STATUS_ROW(name, value, exit_code, text, advice) {#name, exit_code, text, "", advice},
	ATLAS_STATUS_TABLE(STATUS_ROW)
#undef STATUS_ROW
};
enum { N_STATUSES = sizeof statuses / sizeof statuses[0] };

/* NULL: all codes. */
static void print_json(const CodeInfo *only)
{
	json_t *list = json_array();
	for (int i = CODE_NONE + 1; i < CODE_COUNT && !only; i++)
		json_array_append_new(list, json_code(code_info((Code)i)));
	if (only)
		json_array_append_new(list, json_code(only));
	json_t *all = json_pack("{s:i, s:o}", "schema_version", SCHEMA_VERSION, "codes", list);
	json_dumpf(all, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(all);
}

static void print_code(const CodeInfo *c)
{
	printf("%s: %s\n\n  %s\n  %s\n\n", c->name, c->title, c->meaning, c->advice);
	if (c->exit_code == EXIT_OK)
		puts("This is a note: the compile goes on.");
	else
		printf("As an error it ends the compile with exit code %d.\n", c->exit_code);
}

static void print_status(const CodeInfo *s)
{
	printf("%s: %s\n\n", s->name, s->title);
	if (*s->advice)
		printf("  %s\n\n", s->advice);
	if (s->exit_code == EXIT_OK)
		puts("It is a status of the library (atlas.h), not a failure.");
	else
		printf("It is a status of the library (atlas.h); atlas prints it as error[%s] and ends with exit code %d.\n",
			s->name, s->exit_code);
}

/* A status by its name, as atlas prints it, in any case, or as the library spells it: ATLAS_UNSIGNED. NULL = none. */
static const CodeInfo *find_status(const char *word)
{
	word += strncasecmp(word, "ATLAS_", 6) == 0 ? 6 : 0;
	for (int i = 0; i < N_STATUSES; i++)
		if (strcasecmp(word, statuses[i].name) == 0)
			return &statuses[i];
	return NULL;
}

const char *closest_code(const char *seen, bool with_statuses)
{
	const char *names[CODE_COUNT + N_STATUSES];
	char upper[32];
	size_t n = 0;
	for (; seen[n] && n < sizeof upper - 1; n++)
		upper[n] = (char)toupper((unsigned char)seen[n]);
	upper[n] = 0;
	for (int i = CODE_NONE + 1; i < CODE_COUNT; i++)
		names[i - 1] = code_name((Code)i);
	for (int i = 0; i < N_STATUSES; i++)
		names[CODE_COUNT - 1 + i] = statuses[i].name;
	return closest_name(upper, names, CODE_COUNT - 1 + (with_statuses ? N_STATUSES : 0));
}

static int no_such_code(Diags *d, const char *seen)
{
	const char *near = closest_code(seen, true);
	fail_at(d, A0101, (Loc){0}, "there is no code %s: %s%s%s", seen,
		near ? "did you mean " : "see atlasc explain --list", near ? near : "", near ? "?" : "");
	return EXIT_USAGE;
}

int explain_command(Diags *d, const char *word, bool json)
{
	Code code = CODE_NONE;
	const CodeInfo *status = word ? find_status(word) : NULL;
	if (word && !status && !code_from_name(word, &code))
		return no_such_code(d, word);
	if (json)
		print_json(status ? status : word ? code_info(code) : NULL);
	else if (status)
		print_status(status);
	else if (word)
		print_code(code_info(code));
	else
		for (int i = CODE_NONE + 1; i < CODE_COUNT; i++)
			printf("%s  %s\n", code_name((Code)i), code_info((Code)i)->title);
	return EXIT_OK;
}
