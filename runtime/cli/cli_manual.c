/* cli_manual.c - `atlas --help-as`: pages and completion, from the tables of verbs, options and statuses. */
#include "runtime/cli/cli.h"

#include <string.h>

static const char *const command_page[] = {"atlas(1)"};

void manual_of_verb(FILE *out, const Verb *verb)
{
	ManualOption rows[MAX_OPTIONS];
	char name[32];
	int n = options_rows(verb, rows);
	snprintf(name, sizeof name, "atlas-%s", verb->name);
	manual_begin(out, name, 1, verb->summary);
	manual_head(out, "SYNOPSIS");
	snprintf(name, sizeof name, "atlas %s", verb->name);
	char words[32];
	snprintf(words, sizeof words, "%s [options]", options_plans(verb));
	manual_synopsis(out, name, words);
	manual_head(out, "OPTIONS");
	for (int i = 0; i < n; i++)
		manual_option(out, &rows[i]);
	if (verb->notes) {
		manual_head(out, "DESCRIPTION");
		manual_lines(out, verb->notes);
	}
	manual_exit_codes(out);
	manual_see_also(out, command_page, 1);
}

void manual_of_command(FILE *out, const Verb *verbs, int n)
{
	static const struct { const char *name, *text, *advice; } statuses[] = {
#define STATUS_ROW(name, value, exit_code, text, advice) {#name, text, advice},
		ATLAS_STATUS_TABLE(STATUS_ROW)
#undef STATUS_ROW
	};
	manual_begin(out, "atlas", 1, "run a compiled language model, and look into it");
	manual_head(out, "SYNOPSIS");
	manual_synopsis(out, "atlas", "VERB PLAN [options]");
	manual_head(out, "DESCRIPTION");
	manual_text(out, "Each verb works on a plan that atlasc(1) wrote. Opening a plan means running its code on the "
		"GPU: open plans you trust. Data goes to stdout, talk to stderr.");
	manual_head(out, "VERBS");
	for (int i = 0; i < n; i++) {
		char page[32];
		snprintf(page, sizeof page, "atlas-%s(1)", verbs[i].name);
		manual_item(out, page, verbs[i].summary);
	}
	manual_exit_codes(out);
	manual_head(out, "DIAGNOSTICS");
	manual_text(out, "A failure is told as error[NAME]: TEXT. What the names mean, and what to do:");
	for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
		char text[512];
		snprintf(text, sizeof text, "%s%s%s", statuses[i].text, *statuses[i].advice ? "\n" : "",
			statuses[i].advice);
		manual_item(out, statuses[i].name, text);
	}
	static const char *const pages[] = {"atlasc(1)"};
	manual_see_also(out, pages, 1);
}

void manual_completion(FILE *out, const Verb *verbs, int n)
{
	static const ManualOption first[] = {{"--help", 'h', NULL, NULL}, {"--version", 'V', NULL, NULL},
		{"--help-as", 0, "man|bash", NULL}};
	char words[512] = "";
	completion_begin(out, "atlas");
	for (int i = 0; i < n; i++) {
		ManualOption rows[MAX_OPTIONS];
		completion_verb(out, verbs[i].name, "PLAN", rows, options_rows(&verbs[i], rows));
		snprintf(words + strlen(words), sizeof words - strlen(words), "%s%s", i ? " " : "", verbs[i].name);
	}
	completion_verb(out, "", NULL, first, sizeof first / sizeof first[0]);
	completion_end(out, "atlas", words);
}
