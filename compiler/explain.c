/* explain.c - the table of codes.h, for people who met one of its codes. */
#include "compiler/explain.h"

#include <jansson.h>
#include <stdio.h>

#include "compiler/base.h"

enum { SCHEMA_VERSION = 1 };

static json_t *json_code(const CodeInfo *c)
{
	return json_pack("{s:s, s:i, s:s, s:s, s:s}", "code", c->name, "exit_code", c->exit_code, "title", c->title,
		"meaning", c->meaning, "advice", c->advice);
}

static void print_json(Code only)
{
	json_t *list = json_array();
	for (int i = CODE_NONE + 1; i < CODE_COUNT; i++)
		if (only == CODE_NONE || only == (Code)i)
			json_array_append_new(list, json_code(code_info((Code)i)));
	json_t *all = json_pack("{s:i, s:o}", "schema_version", SCHEMA_VERSION, "codes", list);
	json_dumpf(all, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(all);
}

static void print_code(const CodeInfo *c)
{
	printf("%s: %s\n\n  %s\n  %s\n\n", c->name, c->title, c->meaning, c->advice);
	if (c->exit_code == EXIT_OK)
		puts("It is a remark: the compile goes on.");
	else
		printf("As an error it ends the compile with exit code %d.\n", c->exit_code);
}

static int no_such_code(const char *seen)
{
	const char *names[CODE_COUNT];
	for (int i = CODE_NONE + 1; i < CODE_COUNT; i++)
		names[i - 1] = code_name((Code)i);
	const char *near = closest_name(seen, names, CODE_COUNT - 1);
	fprintf(stderr, "atlasc: error[A0101]: there is no code %s: %s%s%s\n", seen,
		near ? "did you mean " : "see atlasc explain --list", near ? near : "", near ? "?" : "");
	return EXIT_USAGE;
}

int explain_command(const char *word, bool json)
{
	Code code = CODE_NONE;
	if (word && !code_from_name(word, &code))
		return no_such_code(word);
	if (json)
		print_json(code);
	else if (word)
		print_code(code_info(code));
	else
		for (int i = CODE_NONE + 1; i < CODE_COUNT; i++)
			printf("%s  %s\n", code_name((Code)i), code_info((Code)i)->title);
	return EXIT_OK;
}
