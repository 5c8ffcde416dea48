/* manual_cmd.c - pages and completion of atlasc (see manual_cmd.h). */
#include "compiler/commands/manual_cmd.h"
#include "artifacts/manual.h"
#include "compiler/commands/command_line.h"
#include "compiler/read/option_table.h"

#include <string.h>

static const ManualFile files[] = {
	{"MODEL_DIR/config.json", "kind and shape of the model"},
	{"MODEL_DIR/*.safetensors", "weights; model.safetensors.index.json lists them if there are several files"},
	{"MODEL_DIR/tokenizer.json", "tokenizer, with tokenizer_config.json and chat_template.jinja if they exist; a plan "
		"without it takes token ids only"},
	{"MODEL_DIR/generation_config.json", "sampling defaults and stop tokens"},
	{"MODEL_DIR/MODEL.toml", "how to compile this model, MODEL.toml(5); the defaults of its family, models/FAMILY/"
		"MODEL.toml, are built in"},
	{"kernels/tuning/TARGET.CARD.toml", "measured times by which kernels are chosen; built in"},
	{"plan.bin", "the plan, unless --output names another file"},
};

/* tests/cli/test_examples.py runs them all. */
static const ManualExample examples[] = {
	{"Compile a model and generate text:",
		"atlasc model -o plan.bin && atlas run plan.bin -p \"Once upon a time\" -n 20"},
	{"Allow longer sequences, fewer at once, and see what memory this takes:",
		"atlasc model --context 256 --slots 2 --estimate"},
	{"Compile for two kinds of GPU, keeping compiled kernels for the next time:",
		"atlasc model --target sm_90a,sm_80 --cache-dir kernel-cache -o both.bin"},
	{"See which templates lack measured times, for each card:", "atlasc times"},
	{"See which kernels would be chosen, as JSON, without writing a plan:", "atlasc model --dry-run --json"},
	{"Try a shape without its weights:", "atlasc model/config.json --random-weights --weights ref -o random.bin"},
	{"Quantise the KV cache: measure scales, and name their file in MODEL.toml:",
		"atlasc calibrate model --text text.txt -o scales.safetensors"},
	{"Explain a diagnostic:", "atlasc explain A0207"},
};

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
	manual_options(stdout, options, n);
	manual_exit_codes(stdout);
	manual_files(stdout, files, sizeof files / sizeof files[0]);
	manual_examples(stdout, examples, sizeof examples / sizeof examples[0]);
	manual_head(stdout, "DIAGNOSTICS");
	manual_text(stdout, "All diagnostics of a compile are printed at once, as FILE:LINE:COLUMN: error[CODE]: TEXT. A "
		"code is never reused; atlasc explain CODE prints the text below.");
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
	manual_text(stdout, "A file in the checkpoint's folder, or the one that --model names, in a subset of TOML 1.0 "
		"without dates, multi-line strings, inf and nan. Keys that it does not set have the values of the family's "
		"file, models/FAMILY/MODEL.toml; [config] replaces values of the checkpoint's config.json. An unknown key is "
		"an error, and values are never converted. The plan records the resolved value of every key.");
	manual_head(stdout, "KEYS");
	print_option_page(stdout);
	manual_see_also(stdout, pages, 1);
}

/* "a|b|c" of n names, after `first`. */
static const char *join(Compile *c, const char *first, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		first = arena_printf(&c->arena, "%s%s%s", first, *first ? "|" : "", names[i]);
	return first;
}

static void print_completion(Compile *c, const char *const *passes, int n_passes)
{
	const char *codes = "", *targets = "none", *refused = "error";
	for (int i = CODE_NONE + 1; i < CODE_COUNT; i++) {
		codes = join(c, codes, (const char *[]){code_name((Code)i)}, 1);
		if (code_is_unread((Code)i))
			refused = arena_printf(&c->arena, "%s|error=%s", refused, code_name((Code)i));
	}
	for (int i = 0; i < n_target_table; i++)
		targets = join(c, targets, &target_table[i].name, 1);
	const char *stops = join(c, "", passes, n_passes);
	ManualOption rows[COMMAND_WORDS][MAX_OPTIONS];
	CompletionWord words[COMMAND_WORDS];
	for (int i = COMMAND_WORDS - 1; i >= 0; i--) { /* the one without a name comes last */
		ManualOption *options = rows[i];
		int n = command_options((Command)i, options);
		for (int k = 0; k < n; k++) {
			if (strcmp(options[k].name, "--target") == 0)
				options[k].value = targets;
			else if (strcmp(options[k].name, "--stop-after") == 0)
				options[k].value = stops;
			else if (strcmp(options[k].name, "--warn") == 0)
				options[k].value = refused;
		}
		words[COMMAND_WORDS - 1 - i] = (CompletionWord){command_words[i].name, command_words[i].summary,
			i == COMMAND_EXPLAIN ? codes : i == COMMAND_KERNELS ? NULL : i == COMMAND_TIMES ? "FILE" : "MODEL_DIR",
			options, n};
	}
	manual_completion(stdout, c->cmd.help_as, "atlasc", words, COMMAND_WORDS);
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
