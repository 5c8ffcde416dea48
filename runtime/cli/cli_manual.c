/* cli_manual.c - `atlas --help-as`: pages and completion, from the tables of verbs, options and statuses. */
#include "runtime/cli/cli.h"

#include <string.h>

static const char *const command_page[] = {"atlas(1)"};

/* Examples of each verb, in the order of the pages; tests/cli/test_examples.py runs them all. */
static const struct { const char *verb; ManualExample example; } examples[] = {
	{"run", {"Continue a text by at most 100 tokens:", "atlas run plan.bin -p \"Once upon a time\" -n 100"}},
	{"run", {"Sample instead of taking the most probable tokens:",
		"atlas run plan.bin -p \"Once upon a time\" --temperature 0.8 --top-p 0.95"}},
	{"run", {"Answer every line of a file as one batch, as JSON lines:",
		"atlas run plan.bin -f prompts.jsonl -n 20 --json >answers.jsonl"}},
	{"run", {"Read prompts from another program:", "printf 'First\\nSecond\\n' | atlas run plan.bin -f - -n 20 -q"}},
	{"run", {"Ask a model that has a chat template:",
		"atlas run plan.bin --chat -s \"You are terse.\" -p \"Name three rivers.\""}},
	{"chat", {"Talk with a model:", "atlas chat plan.bin"}},
	{"chat", {"Ask two questions from a script:", "printf 'Hello\\nAnd then?\\n' | atlas chat plan.bin -n 20 -q"}},
	{"serve", {"Serve a plan to programs on this host:", "atlas serve plan.bin --port 8080"}},
	{"serve", {"Serve it under another name, to clients that know a key of keys.txt:",
		"atlas serve plan.bin --port 8080 --name my-model --api-key-file keys.txt"}},
	{"info", {"Show family, targets, buckets and signatures:", "atlas info plan.bin"}},
	{"info", {"Write a bill of materials:", "atlas info plan.bin --sbom >plan.cdx.json"}},
	{"audit", {"Show the kernels of decode steps with one row:", "atlas audit plan.bin --phase 'decode[1]'"}},
	{"audit", {"Show why a kernel was chosen:", "atlas audit plan.bin --why 'decode[1]/0/norm_linear'"}},
	{"audit", {"Write a page to search in a browser:", "atlas audit plan.bin --html audit.html"}},
	{"audit", {"Check a plan against rules:", "atlas audit plan.bin --check policy.toml"}},
	{"diff", {"Compare a plan with an older one:", "atlas diff old.bin plan.bin"}},
	{"memory", {"Predict what a plan needs on a GPU:", "atlas memory plan.bin --device cpu"}},
	{"memory", {"Compare the prediction with a GPU:", "atlas memory plan.bin"}},
	{"verify", {"Compare a GPU with the reference device:", "atlas verify plan.bin"}},
	{"verify", {"Measure every launch and write plan.bin.cert:", "atlas verify plan.bin --certify --sign key.pem"}},
	{"verify", {"Compile a plan again and compare the bytes:", "atlas verify plan.bin --rebuild --checkpoint model"}},
	{"receipt", {"Record what a GPU ran:", "atlas receipt plan.bin -o receipt.json"}},
	{"sign", {"Make a key pair, sign a plan, and open only plans with that signature:",
		"openssl genpkey -algorithm ed25519 -out my.pem &&\n"
		"openssl pkey -in my.pem -pubout -out my.pub &&\n"
		"atlas sign plan.bin --key my.pem -o signed.bin &&\n"
		"atlas run signed.bin --trust my.pub -p Hello -n 10"}},
	{"bench", {"Measure prompts and decoding:", "atlas bench plan.bin"}},
	{"bench", {"Measure two rows and compare them with an earlier result:",
		"atlas bench plan.bin --only pp512,tg128@0 --compare before.json"}},
	{"bench", {"Compare two runs of a plan with two of another:",
		"atlas bench old.bin --only pp512 --json a1 &&\n"
		"atlas bench plan.bin --only pp512 --json b1 &&\n"
		"atlas bench old.bin --only pp512 --json a2 &&\n"
		"atlas bench plan.bin --only pp512 --compare a1 --compare a2 --also b1"}},
	{"bench", {"Write a page with plots, and time every kernel:", "atlas bench plan.bin --kernels --html bench.html"}},
	{"perplexity", {"Measure a text in windows of 256 tokens:", "atlas perplexity plan.bin -f text.txt --window 256"}},
	{"tune", {"Time candidates, then compile with these times:",
		"atlasc model --candidates 2 --weights ref -o candidates.bin &&\n"
		"atlas tune candidates.bin --only norm_linear -o times.toml &&\n"
		"atlasc model --tuning times.toml -o tuned.bin"}},
	{"tune", {"Keep the times of kernels whose machine code is what an older compiler made of them:",
		"atlas tune older.toml --rekey old/atlasc"}},
	{"calibrate", {"Measure K/V scales on a plan whose cache is bf16 (atlasc calibrate compiles such a plan itself):",
		"atlas calibrate plan.bin -f text.txt -o scales.safetensors"}},
	{"dump", {"Write logits and the output of every layer:", "atlas dump plan.bin -p Hello --hidden -o "
		"dump.safetensors"}},
};
enum { N_EXAMPLES = sizeof examples / sizeof examples[0] };

static const struct { const char *verb; ManualFile file; } files[] = {
	{"run", {"*.jsonl", "prompts, one JSON object per line"}},
	{"serve", {"keys.txt", "API keys, one per line; --api-key-file names the file"}},
	{"serve", {"share/atlas", "configurations of proxies with TLS, in the folder of the installation"}},
	{"run", {"PLAN.cert", "certificate that --require-certified checks"}},
	{"audit", {"PLAN.cert", "certificate that a policy may require"}},
	{"audit", {"POLICY", "rules of --check, in TOML"}},
	{"verify", {"PLAN.cert", "certificate that --certify writes"}},
	{"tune", {"kernels/tuning/TARGET.CARD.toml", "times that are built into atlasc"}},
	{"calibrate", {"scales.safetensors", "name it in kv.scales of MODEL.toml; see MODEL.toml(5)"}},
	{"receipt", {"libcupti.so", "CUPTI of the CUDA toolkit, searched in its usual folders"}},
};
enum { N_FILES = sizeof files / sizeof files[0] };

static int examples_of(const Verb *verb, ManualExample out[N_EXAMPLES])
{
	int n = 0;
	for (int i = 0; i < N_EXAMPLES; i++)
		if (strcmp(examples[i].verb, verb->name) == 0)
			out[n++] = examples[i].example;
	return n;
}

void manual_examples_of(FILE *out, const Verb *verb)
{
	ManualExample list[N_EXAMPLES];
	help_examples(out, list, examples_of(verb, list));
}

static void put_files(FILE *out, const Verb *verb)
{
	ManualFile list[N_FILES + 1] = {{"PLAN", "a plan that atlasc(1) wrote; it contains GPU machine code"}};
	int n = 1;
	for (int i = 0; i < N_FILES; i++)
		if (strcmp(files[i].verb, verb->name) == 0)
			list[n++] = files[i].file;
	manual_files(out, list, n);
}

void manual_of_verb(FILE *out, const Verb *verb)
{
	ManualOption rows[MAX_OPTIONS];
	ManualExample list[N_EXAMPLES];
	char name[32], words[32];
	snprintf(name, sizeof name, "atlas-%s", verb->name);
	manual_begin(out, name, 1, verb->summary);
	manual_head(out, "SYNOPSIS");
	snprintf(name, sizeof name, "atlas %s", verb->name);
	snprintf(words, sizeof words, "%s [options]", options_plans(verb));
	manual_synopsis(out, name, words);
	if (verb->notes) {
		manual_head(out, "DESCRIPTION");
		manual_lines(out, verb->notes);
	}
	manual_head(out, "OPTIONS");
	manual_options(out, rows, options_rows(verb, rows));
	manual_exit_codes(out);
	put_files(out, verb);
	manual_examples(out, list, examples_of(verb, list));
	manual_see_also(out, command_page, 1);
}

void manual_of_command(FILE *out, const Verb *verbs, int n)
{
	static const struct { const char *name, *text, *advice; } statuses[] = {
#define STATUS_ROW(name, value, exit_code, text, advice) {#name, text, advice},
		ATLAS_STATUS_TABLE(STATUS_ROW)
#undef STATUS_ROW
	};
	manual_begin(out, "atlas", 1, "run and inspect a compiled language model");
	manual_head(out, "SYNOPSIS");
	manual_synopsis(out, "atlas", "VERB PLAN [options]");
	manual_head(out, "DESCRIPTION");
	manual_text(out, "Each verb works on a plan that atlasc(1) wrote. Opening a plan means running its code on the "
		"GPU: open only plans that you trust. Data goes to stdout, messages to stderr.");
	manual_head(out, "VERBS");
	for (int i = 0; i < n; i++) {
		char page[32];
		snprintf(page, sizeof page, "atlas-%s(1)", verbs[i].name);
		manual_item(out, page, verbs[i].summary);
	}
	manual_exit_codes(out);
	static const ManualFile list[] = {{"plan.bin", "a plan; atlasc(1) writes this name unless it gets another one"},
		{"PLAN.cert", "certificate of a plan, which atlas-verify(1) writes and atlas-run(1) can require"}};
	manual_files(out, list, 2);
	static const ManualExample steps[] = {{"Compile a model, look at its kernels, generate text:",
		"atlasc model -o plan.bin && atlas audit plan.bin && atlas run plan.bin -p \"Once upon a time\" -n 20"}};
	manual_examples(out, steps, 1);
	manual_head(out, "DIAGNOSTICS");
	manual_text(out, "Failures are printed as error[NAME]: TEXT. What the names mean, and what to do:");
	for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
		char text[512];
		snprintf(text, sizeof text, "%s%s%s", statuses[i].text, *statuses[i].advice ? "\n" : "",
			statuses[i].advice);
		manual_item(out, statuses[i].name, text);
	}
	static const char *const pages[] = {"atlasc(1)"};
	manual_see_also(out, pages, 1);
}

bool manual_of_shell(FILE *out, const char *shell, const Verb *verbs, int n)
{
	static const ManualOption first[] = {{"--help", 'h', NULL, "print the list of verbs"},
		{"--version", 'V', NULL, "print the version"},
		{"--help-as", 0, "man|" COMPLETION_SHELLS, "print a manual page or a completion script"}};
	enum { MOST = 32 };
	static const int n_first = sizeof first / sizeof first[0];
	ManualOption rows[MOST][MAX_OPTIONS];
	CompletionWord words[MOST + 1];
	for (int i = 0; i < n && i < MOST; i++)
		words[i] = (CompletionWord){verbs[i].name, verbs[i].summary, "PLAN", rows[i], options_rows(&verbs[i], rows[i])};
	words[n] = (CompletionWord){"", "", NULL, first, n_first};
	return manual_completion(out, shell, "atlas", words, n + 1);
}
