/* manual_cmd.c - pages and completion of atlasc (see manual_cmd.h). */
#include "compiler/manual_cmd.h"

#include "artifacts/manual.h"
#include "compiler/command_line.h"

#include <string.h>

static void print_page(void)
{
	ManualOption options[MAX_OPTIONS];
	int n = command_options(COMMAND_HELP, options);
	manual_begin(stdout, "atlasc", 1, "compile a language model into a plan for NVIDIA GPUs");
	manual_head(stdout, "SYNOPSIS");
	for (int i = 0; i < COMMAND_WORDS; i++) {
		char command[32];
		if (i)
			manual_paragraph(stdout);
		snprintf(command, sizeof command, "atlasc%s%s", *command_words[i].name ? " " : "", command_words[i].name);
		manual_synopsis(stdout, command, command_words[i].words);
	}
	manual_head(stdout, "DESCRIPTION");
	manual_text(stdout, "atlasc reads a Hugging Face checkpoint and a MODEL.toml, chooses and specialises one CUDA "
		"kernel for every operation of every layer in every phase, and writes one sealed file, the plan, which "
		"atlas(1) and libatlas run. It needs no GPU and reads no environment variable; the same inputs give the same "
		"bytes.");
	for (int i = 0; i < COMMAND_WORDS; i++)
		manual_item(stdout, *command_words[i].name ? command_words[i].name : "without a command",
			command_words[i].summary);
	manual_head(stdout, "OPTIONS");
	for (int i = 0; i < n; i++)
		manual_option(stdout, &options[i]);
	manual_exit_codes(stdout);
	manual_head(stdout, "DIAGNOSTICS");
	manual_text(stdout, "Diagnostics come all at once, as FILE:LINE:COLUMN: error[CODE]: TEXT. A code is never reused; "
		"atlasc explain CODE prints what stands here.");
	for (int i = CODE_NONE + 1; i < CODE_COUNT; i++) {
		const CodeInfo *info = code_info((Code)i);
		char tag[160], text[512];
		snprintf(tag, sizeof tag, "%s: %s", info->name, info->title);
		snprintf(text, sizeof text, "%s\n%s", info->meaning, info->advice);
		manual_item(stdout, tag, text);
	}
	static const char *const pages[] = {"atlas(1)", "MODEL.toml(5)"};
	manual_see_also(stdout, pages, 2);
}

static void print_model_page(void)
{
	static const char *const pages[] = {"atlasc(1)"};
	manual_begin(stdout, "MODEL.toml", 5, "how atlasc compiles a model");
	manual_head(stdout, "DESCRIPTION");
	manual_text(stdout, "A file beside the checkpoint, or the one that --model names, in a subset of TOML 1.0 without "
		"dates, multi-line strings, inf and nan. Keys that it has not are the family's own, models/FAMILY/MODEL.toml, "
		"but for [config], which replaces values of the checkpoint's config.json. An unknown key is an error, and "
		"nothing is converted. All of them, as they were resolved, stand in the plan.");
	manual_head(stdout, "KEYS");
	print_option_page(stdout);
	manual_see_also(stdout, pages, 1);
}

/* "a|b|c" of n names, behind `first`. */
static const char *join(Compile *c, const char *first, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		first = arena_printf(&c->arena, "%s%s%s", first, *first ? "|" : "", names[i]);
	return first;
}

static void print_completion(Compile *c, const char *const *passes, int n_passes)
{
	const char *codes = "", *targets = "none", *verbs = "", *refused = "error";
	for (int i = CODE_NONE + 1; i < CODE_COUNT; i++) {
		codes = join(c, codes, (const char *[]){code_name((Code)i)}, 1);
		if (code_is_unread((Code)i))
			refused = arena_printf(&c->arena, "%s|error=%s", refused, code_name((Code)i));
	}
	for (int i = 0; i < n_target_table; i++)
		targets = join(c, targets, &target_table[i].name, 1);
	const char *stops = join(c, "", passes, n_passes);
	completion_begin(stdout, "atlasc");
	for (int i = COMMAND_WORDS - 1; i >= 0; i--) { /* the one without a name comes last */
		ManualOption options[MAX_OPTIONS];
		int n = command_options((Command)i, options);
		for (int k = 0; k < n; k++) {
			if (strcmp(options[k].name, "--target") == 0)
				options[k].value = targets;
			else if (strcmp(options[k].name, "--stop-after") == 0)
				options[k].value = stops;
			else if (strcmp(options[k].name, "--warn") == 0)
				options[k].value = refused;
		}
		completion_verb(stdout, command_words[i].name,
			i == COMMAND_EXPLAIN ? codes : i == COMMAND_KERNELS ? NULL : "MODEL_DIR", options, n);
		verbs = arena_printf(&c->arena, "%s%s%s", command_words[i].name, *verbs ? " " : "", verbs);
	}
	completion_end(stdout, "atlasc", verbs);
}

void manual_command(Compile *c, const char *const *passes, int n_passes)
{
	if (strcmp(c->cmd.help_as, "man") == 0)
		print_page();
	else if (strcmp(c->cmd.help_as, "model") == 0)
		print_model_page();
	else
		print_completion(c, passes, n_passes);
}
