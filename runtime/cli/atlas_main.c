/* atlas_main.c - the `atlas` command: finds the verb, reads its options, runs it. */
#include "artifacts/closest.h"
#include "runtime/cli/cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A paragraph a line; help_lines (artifacts/manual.h) fills them. */
static const char audit_notes[] =
	"Each block of lines is one phase, phase[rows]; each line is one launch of a step.\n"
	"  outs  largest number of sequences that get logits in one step\n"
	"  layers  layers with this launch; start is before the first layer, end after the last one\n"
	"  op  what is computed; atlasc --list-ops prints the formulas\n"
	"  template  the kernel template with its tunables; atlasc kernels prints the contracts\n"
	"  weights  number format of its matrices, with the rows x columns that share a scale: e4m3 128x128\n"
	"  cache  format of keys and values, as in [kv] of MODEL.toml; state: of Gated DeltaNet\n"
	"  grid  thread blocks; block: threads of each; MB: 10^6 bytes that the launch reads and writes\n"
	"  smem  bytes of shared memory per block; regs, spills: registers and bytes of local memory of each thread\n"
	"  us, from  expected time. measured: a file of times by atlas tune has this kernel; model: estimated from bytes, "
		"FLOPs and blocks on the target's typical card; pin: MODEL.toml chose the kernel. Templates that were measured "
		"rank first\n"
	"  order  on what the order of a row's sums depends; equal ones give equal bits, in the phases that are named too\n"
	"  times  (of a target) first digits of the SHA-256 of the file of measured times, and its card\n"
	"  run on  cards that had run plans of this target when this plan was compiled\n"
	"With --reasons, the candidates that lost follow: slower ones with their time, rejected ones with the condition of "
		"their contract that fails and its values, pruned ones with the preference of their contract and their time.\n"
	"With --check, a TOML file of rules: [templates] required, forbidden; [dtypes] weight, embedding, norm, bias, "
		"scale, activation; [kv] dtype, [[kv.layers]] layers, dtype; [launches] per_layer, prefill, decode; [plan] "
		"waivers, unread, overrides, ran, random_weights, certificate, signature, signers. Every violation is printed "
		"with the line of its rule.\n";

static const char verify_notes[] =
	"Without -p or --tokens the prompt is 32 token ids (fewer if the context is shorter) that need no tokenizer: "
		"number i is i * 2654435761 mod 2^32, mod the size of the vocabulary.\n"
	"The first layer whose smallest cosine is below 1 - tolerance is named; the fault is in that layer. Errors "
		"accumulate from layer to layer. Where router scores are close, a row may go to another expert and differ from "
		"there on. With --each-layer, errors do not accumulate: each reference layer, and the logits, start from the "
		"device's output of the previous layer.\n"
	"With --certify, a GPU runs a few rows in every bucket of every phase, and the result of each launch is compared "
		"with the reference function on the same operands; then the layers are compared as with --each-layer. Limits "
		"depend on dtypes. PLAN.cert records the figures and the plan's root hash. If a limit is exceeded, the exit "
		"code is 1 and the first bad launch is named. Columns:\n"
	"  times  number of launches\n"
	"  cosine  smallest cosine of a row\n"
	"  rms, max  errors relative to the result\n"
	"--rebuild needs no GPU. A plan records MODEL.toml, options and tools; the checkpoint and any files of times, "
		"scales or token ids must be given, and their hashes are compared. atlasc compiles the plan again in a "
		"temporary folder next to it, and every byte except signatures is compared. Differences are printed: tools "
		"first, then sections, then the output of atlas diff. Exit code 0: equal, 1: different, 8: compiled by another "
		"version of atlasc or NVRTC.\n";

static const char tune_notes[] =
	"Needs a GPU and a plan with candidates (atlasc --candidates); the model's weights are not read. Every candidate "
		"is timed in a chain of launches of its kind with cold weights. A line for each decision of the plan shows the "
		"fastest kernel and, if that is another one, the chosen kernel.\n"
	"Later compiles choose kernels by this file: give it to atlasc --tuning, or build atlasc with it as "
		"kernels/tuning/TARGET.CARD.toml. It holds the times of one card; those of kernels that this plan does not "
		"have are kept.\n"
	"A time counts while its kernel reaches the same code and has the same launch: atlasc times shows which ones do. "
		"After an edit that changed no machine code, atlas tune TIMES --rekey OLD_ATLASC keeps what was measured: both "
		"compilers, the old one and today's, compile the kernels in question, and their machine code is compared.\n";

static const char bench_notes[] =
	"Rows:\n"
	"  ppN  read a prompt of N tokens and generate the first token\n"
	"  tgT@CxB  generate T tokens (--tokens) for each of B sequences that already have C tokens\n"
	"  spT@CxB  the same with speculative decoding (--speculate mtp)\n"
	"Without --only, N is 512, 2048, 8192 and C is 0, 4096, 16384, both continued in powers of two while the context "
		"has room; B is every power of two, bucket of decode and the number of slots, with at most 2^20 tokens in all "
		"sequences together. --only names any rows, or prefixes of these; tgT@C is all B. Rows that do not fit the "
		"plan are skipped with the reason. Stop tokens do not end an answer.\n"
	"Columns:\n"
	"  tok/s  of all sequences together, from the median of the repetitions\n"
	"  ms  pp: until the first token; tg: one step\n"
	"  spread  largest minus smallest repetition\n"
	"  MB/token  10^6 bytes that the plan's launches must read for each token\n"
	"  GB/s, TFLOP/s  these bytes, and multiplications and additions, divided by the time\n"
	"  of bound  roofline time / measured time. The roofline time is the longer one of reading these bytes and doing "
		"these operations; both rates are measured in the same run, the latter with a large product of the same kind\n"
	"  experts a layer  distinct experts that the rows of a step chose; counted in extra steps that stop after each "
		"routing and are not timed. The bound uses these numbers\n"
	"  nodes  launches of a step, which are nodes of its CUDA graph; a layer: launches per layer\n"
	"--kernels times each launch alone with a cold L2 cache, sorted by the time that all launches of its kind lose "
		"against their bound. Each time includes timer overhead, reported as `launch` in the line of the bounds.\n"
	"--compare prints for each row its speed divided by that of the earlier row of the same name: 1.043 +- 0.012 of "
		"before. With one run on a side, +- is by the repetitions within a run: another run may differ by more, so "
		"there is no verdict. With two or more on each side (--compare twice, --also once), +- is an interval of 99 % "
		"confidence by how the runs of a side differ, and the verdict is same, faster or slower.\n"
	"The start-up time is that of this process, including the comparison of hashes that --verify asks for.\n";

static const char diff_notes[] =
	"Everything is compared by name; order in the files and offsets of buffers do not matter. Options, weights and "
		"sections come first. Then, for each target and phase, every launch that differs: the kernels of both plans, "
		"10^6 bytes read and written, expected time, and the reasons: operands, the other plan's verdict on the "
		"kernel, constants, geometry, code. Neighbouring layers with the same difference are printed once; so are "
		"weights that differ in the same way, unless --all is given.\n";

static const char receipt_notes[] =
	"Needs a GPU. Runs each bucket of the plan and compares the plan with what the GPU executed (by CUPTI, if "
		"installed) and with the CUDA graphs that the driver holds: names, grids, blocks, shared memory, registers and "
		"order of kernels. Exit code 1 at any difference. The last member of the JSON is the SHA-256 of all bytes "
		"before its comma.\n";

static const char memory_notes[] =
	"Without a GPU, prints the prediction. With one, also opens a session, runs each bucket and reads the device's "
		"free memory; exit code 1 if prediction and peak differ by more than 1 % and 32 MiB. Nothing else may run on "
		"the GPU meanwhile. The driver's context is not counted.\n";

static const char sign_notes[] =
	"The plan is checked first, to its last byte, and replaced as a whole. The root hash is signed, and nothing else "
		"in the plan changes. The same key and plan give the same bytes. Keys:\n"
	"    openssl genpkey -algorithm ed25519 -out key.pem\n"
	"    openssl pkey -in key.pem -pubout -out pub.pem\n";

static const char run_notes[] =
	"With --device cpu, the text depends only on plan, prompt, sampling and seed. On a GPU each bucket has its own "
		"kernels, which may sum in another order; --speculate and the other prompts of the call decide which buckets "
		"are used, so texts may differ where two tokens are almost equally probable. A prompt run alone gives the same "
		"text each time.\n"
	"A line of a *.jsonl file is an object: {\"prompt\": TEXT} or {\"tokens\": [IDS]}, and optionally max_new, "
		"temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, seed, stop (a text "
		"or a list), and id, which is repeated in its answer.\n";

static const char chat_notes[] =
	"Each line is a user's message; the answer follows as it is generated. Commands:\n"
	"  /system TEXT  replace the system message; without TEXT: remove it\n"
	"  /reset  forget the conversation, but not the system message\n"
	"  /save FILE  write the conversation as JSON\n"
	"  /help  list the commands\n"
	"  /exit  leave; so do Ctrl-D and the end of a pipe\n"
	"Ctrl-C stops an answer and keeps the session. A line that ends in \\ continues on the next one; //x sends "
		"\"/x\". Control tokens in a message are plain text: only the plan's chat template writes them.\n";

static const char serve_notes[] =
	"Chat Completions, Completions and Responses of OpenAI, Messages of Anthropic (/v1/messages); GET /v1/models, "
		"/v1/plan, /health, /ready and /metrics, POST /tokenize and /detokenize. A plan without a chat template serves "
		"Completions alone. Addresses other than loopback need --api-key-file; for TLS put a proxy in front; "
		"share/atlas has sample configurations.\n"
	"SIGTERM drains: no new requests, answers end, exit code 0; a second signal ends at once. If the session fails, "
		"streams end with an error, /health answers 503, and the process ends with the exit code of the status, 9 for "
		"a GPU fault, so that systemd can restart it.\n"
	"With --device cpu, the same prompt, sampling and seed give the text that atlas run prints, at any load; on a GPU, "
		"within equal buckets.\n";

static const Verb verbs[] = {
	{"run", "generate text from one prompt or many", verb_run, run_notes, 1},
	{"chat", "talk with the model, turn by turn", verb_chat, chat_notes, 1},
	{"serve", "answer requests over HTTP, with the APIs of OpenAI and Anthropic", verb_serve, serve_notes, 1},
	{"info", "show what a plan contains", verb_info, NULL, 1},
	{"audit", "show which kernel runs for each op of each layer, and why", verb_audit, audit_notes, 1},
	{"diff", "compare two plans by meaning; exit code 1 if they differ", verb_diff, diff_notes, 2},
	{"memory", "predict and measure the GPU memory of a plan", verb_memory, memory_notes, 1},
	{"verify", "compare a GPU with the reference device layer by layer, or a plan with its rebuild", verb_verify,
		verify_notes, 1},
	{"receipt", "compare the plan with the kernels that a GPU really ran", verb_receipt, receipt_notes, 1},
	{"sign", "sign a plan with an Ed25519 key", verb_sign, sign_notes, 1},
	{"bench", "measure speed and compare it with the roofline", verb_bench, bench_notes, 1},
	{"perplexity", "measure the perplexity of a text", verb_perplexity, NULL, 1},
	{"tune", "time the candidate kernels of a plan, for later compiles", verb_tune, tune_notes, 1},
	{"calibrate", "measure scales for an fp8 or nvfp4 KV cache on a text", verb_calibrate, NULL, 1},
	{"dump", "write logits and layer outputs of a prompt to a safetensors file", verb_dump, NULL, 1},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

/* Headings of the verbs' list, each before the verb that it begins with. */
static const struct { const char *verb, *head; } heads[] = {{"run", "Generate"}, {"info", "Look into a plan"},
	{"verify", "Check and sign"}, {"bench", "Measure"}};

static void help(FILE *out)
{
	fputs("usage: atlas VERB PLAN [options]\n", out);
	for (int i = 0; i < N_VERBS; i++) {
		for (size_t k = 0; k < sizeof heads / sizeof heads[0]; k++)
			if (strcmp(heads[k].verb, verbs[i].name) == 0)
				fprintf(out, "\n%s:\n", heads[k].head);
		help_item(out, verbs[i].name, 14, verbs[i].summary);
	}
	fputs("\nFirst steps:\n"
		"  atlas run plan.bin -p \"Once upon a time\" -n 100\n"
		"  atlas audit plan.bin\n\n", out);
	help_lines(out, "atlas VERB --help lists the options of a verb; --version prints the version; --help-as man prints "
		"the manual page; --help-as " COMPLETION_SHELLS " prints the shell's completion script.\n"
		"Opening a plan means running its code on the GPU: open only plans that you trust; --trust PEM opens only "
		"plans that are signed with that key.\n");
}

/* "atlas: error: ", of what is wrong before there is a verb. */
static int fail(int argc, char **argv, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(int argc, char **argv, const char *fmt, ...)
{
	va_list list;
	va_start(list, fmt);
	message_head(stderr, message_is_colored(message_color_word(argc, argv), stderr), "atlas", MESSAGE_ERROR, NULL);
	vfprintf(stderr, fmt, list);
	fputc('\n', stderr);
	va_end(list);
	return EXIT_USAGE;
}

static int unknown(int argc, char **argv)
{
	const char *seen = argv[1];
	static const char *const of_atlasc[] = {"kernels", "times", "explain", "compile"}; /* and atlasc itself */
	enum { N_OTHERS = sizeof of_atlasc / sizeof of_atlasc[0] };
	static const char *const first[] = {"--help", "--help-as", "--version"};
	const bool is_option = seen[0] == '-';
	const char *names[N_VERBS];
	for (int i = 0; i < N_OTHERS; i++)
		if (strcmp(seen, of_atlasc[i]) == 0)
			return fail(argc, argv, "%s is done by the other command: see atlasc --help", seen);
	for (int i = 0; i < N_VERBS; i++)
		names[i] = verbs[i].name;
	const char *near = is_option ? closest_name(seen, first, 3) : closest_name(seen, names, N_VERBS);
	return fail(argc, argv, near ? "unknown %s %s: did you mean %s?" : "unknown %s %s: %s",
		is_option ? "option" : "verb", seen, near ? near
		: is_option ? "options come after the verb, see atlas --help" : "see atlas --help");
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		help(stderr);
		return EXIT_USAGE;
	}
	/* Before a thread reads the environment: all work goes through one stream, and the driver makes a context with one
	 * channel in half the time that its eight take (65 ms for 120 on an H100). Who set the variable keeps the word. */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 0);
	signal(SIGXFSZ, SIG_IGN); /* a file that grows past a limit is an error of write */
	const char *first = argv[1];
	if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0 || strcmp(first, "help") == 0) {
		help(stdout);
		return fflush(stdout) ? EXIT_ENVIRONMENT : EXIT_OK;
	}
	if (strncmp(first, "--help-as", 9) == 0 && (!first[9] || first[9] == '=')) {
		const char *form = first[9] ? first + 10 : argc > 2 ? argv[2] : "";
		if (strcmp(form, "man") == 0)
			manual_of_command(stdout, verbs, N_VERBS);
		else if (!manual_of_shell(stdout, form, verbs, N_VERBS))
			return fail(argc, argv, "--help-as %s: expected man, bash, zsh or fish", form);
		return fflush(stdout) ? EXIT_ENVIRONMENT : EXIT_OK;
	}
	if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0) {
		printf("atlas %s\n", atlas_version());
		return fflush(stdout) ? EXIT_ENVIRONMENT : EXIT_OK;
	}
	for (int i = 0; i < N_VERBS; i++) {
		Args args;
		int code;
		if (strcmp(first, verbs[i].name) != 0)
			continue;
		if (!options_parse(&verbs[i], argc - 2, argv + 2, &args, &code))
			return code;
		if (!cli_start_ranks(&args, &code))
			return code;
		code = verbs[i].run(&args);
		cli_end_ranks(&args);
		if (fflush(stdout) != 0 && code == EXIT_OK)
			return cli_say(&args, EXIT_ENVIRONMENT, "stdout cannot be written");
		return code;
	}
	return unknown(argc, argv);
}
