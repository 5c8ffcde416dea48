/* atlas_main.c - the `atlas` command: finds the verb, reads its options, runs it. */
#include "artifacts/closest.h"
#include "runtime/cli/cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char audit_notes[] =
	"Each block of lines is one phase, phase[rows], and each line one launch of a step:\n"
	"  outs      largest number of sequences that get logits in one step\n"
	"  layers    layers with this launch; start and end are before the first and after\n"
	"            the last\n"
	"  op        what is computed: atlasc --list-ops has the formulas\n"
	"  template  the kernel, with its tunables: atlasc kernels has the contracts\n"
	"  weights   number format of its matrices, with rows x columns that share a scale: e4m3 128x128\n"
	"  cache     of keys and values, as [kv] names it; state: what Gated DeltaNet keeps\n"
	"  grid      blocks; block: threads of one\n"
	"  smem      bytes of shared memory a block; regs: registers a thread\n"
	"  spills    bytes of local memory a thread\n"
	"  MB        10^6 bytes that the launch reads and writes\n"
	"  us, from  expected time. From measured: a file of times that atlas tune wrote has the kernel;\n"
	"            from model: bytes, FLOPs, blocks on the target's typical card; from pin: chosen\n"
	"            because MODEL.toml says so. Templates that were measured rank first\n"
	"times, of a target: the first digits of the SHA-256 of the file of measured times, and its card;\n"
	"run on: cards that plans for the target had run on when this plan was made.\n"
	"With --reasons, candidates that lost follow: slower ones with their time, rejected ones with\n"
	"what their contract requires and the values that break it.\n"
	"With --check, a TOML file of rules: [templates] required, forbidden; [dtypes] weight, embedding,\n"
	"norm, bias, scale, activation; [kv] dtype, [[kv.layers]] layers, dtype; [launches] per_layer,\n"
	"prefill, decode; [plan] waivers, unread, overrides, ran, random_weights, certificate, signature,\n"
	"signers. Every violation is printed with its line.\n";

static const char verify_notes[] =
	"Without -p or --tokens the prompt is 32 token ids, fewer if the context is shorter: number i is\n"
	"i * 2654435761 mod 2^32, mod the size of the vocabulary. They need no tokenizer.\n"
	"The first layer whose smallest cosine is below 1 - tolerance is named: the fault is in that layer.\n"
	"Errors accumulate from layer to layer; where router scores are close, a row may be routed to\n"
	"another expert and differ from there on. With --each-layer errors do not accumulate: each\n"
	"reference layer, and the logits, start from the device's output of the previous layer.\n"
	"With --certify, a GPU runs a few rows in every bucket of every phase, and each launch's result\n"
	"is compared with the reference function on the same operands; then the layers, as with\n"
	"--each-layer, for the given or default prompt. Limits depend on dtypes. PLAN.cert records the\n"
	"figures and the plan's root hash. Out of tolerance: exit code 1, and the first bad launch is named.\n"
	"Columns: times: number of launches; cosine: smallest; rms, max: errors relative to the result.\n"
	"--rebuild touches no GPU. A plan records MODEL.toml, options and tools; the checkpoint, files of\n"
	"times, of scales and of token ids, of which it has hashes, are to be named. atlasc makes the plan\n"
	"again, in a folder beside it, and every byte but signatures is compared. Differences are\n"
	"printed: tools first, then sections, then the output of `atlas diff`. Exit code 0: equal,\n"
	"1: different, 8: made by another version of atlasc or NVRTC.\n";

static const char tune_notes[] =
	"Needs a GPU and a plan with candidates: atlasc MODEL --candidates 4 --weights ref -o PLAN. The\n"
	"model's weights are not read. Each candidate is launched in a chain of its own kind, on weights\n"
	"that no cache holds; a line for each decision of the plan shows the fastest one, and what was\n"
	"chosen where it is another one. The file, kernels/tuning/TARGET.CARD.toml where atlasc is built, or\n"
	"atlasc --tuning FILE, decides what later compiles choose. It holds one card's times; those of\n"
	"kernels that are not in this plan stay in it.\n";

static const char bench_notes[] =
	"Rows: ppN reads a prompt of N tokens, to its first answer; tgT@CxB makes T tokens (--tokens) for\n"
	"each of B sequences that have C tokens behind them; spT@CxB, with --speculate mtp, by steps that\n"
	"draft and verify. --only names any of them, or starts of the names of those that are there\n"
	"without it: N and C 512, 2048, 8192 and 0, 4096, 16384, and on in powers of two where the context\n"
	"has room; B the powers of two, the buckets of decode and the slots, with at most 2^20 tokens\n"
	"behind all of them. tgT@C alone is all B. What the plan has no room for is skipped, with the\n"
	"reason. No token stops an answer. Columns:\n"
	"  tok/s     of all sequences together, from the median of the repetitions\n"
	"  ms        pp: to the first token; tg: of one step. spread: of the repetitions, largest less least\n"
	"  MB/token  10^6 bytes that the plan's launches must read for each token\n"
	"  GB/s, TFLOP/s  those bytes, and multiplications with additions, over the time\n"
	"  of bound  roofline time / measured time. Roofline: reading those bytes, or doing those operations\n"
	"            at the rate of a large product of their kind, whichever takes longer; all rates are\n"
	"            measured in the same run\n"
	"  experts a layer  how many all rows of a step chose together: in steps of the row's own sequences\n"
	"            that halt behind each routing, the clock standing; the bound is by these\n"
	"  nodes     launches of the step: nodes of its CUDA graph; a layer: of them in each layer\n"
	"--kernels  each launch alone with a cold L2 cache, sorted by the time that all launches of its kind\n"
	"  lose compared with their bound. Each time includes timer overhead, reported as `launch` in the\n"
	"  line of the bounds.\n"
	"--compare  of each row: its speed over that of the earlier row of its name, and half the width of\n"
	"  the interval that the spreads of both leave open: 1.043 +- 0.012 of before.\n"
	"The start is that of this process. Hashes of weights are compared where --verify says so.\n";

static const char diff_notes[] =
	"Everything is compared by name; order in the files and offsets of buffers do not matter. Options,\n"
	"weights and sections come first, then for each target and phase every launch that differs, equal\n"
	"ones of neighbouring layers once: the kernels of both plans, 10^6 bytes read and written, expected\n"
	"time, and below it the reasons: operands, the other plan's verdict on the kernel, constants,\n"
	"geometry, code. Weights that differ alike in several layers are one line; --all lists each.\n";

static const char receipt_notes[] =
	"Needs a GPU. Runs each bucket of the plan and compares the plan with what the GPU executed (CUPTI,\n"
	"if installed) and with the CUDA graphs that the driver holds: names, grids, blocks, shared memory,\n"
	"registers and order of kernels. Exit code 1 at any difference. The last member of the JSON is the\n"
	"SHA-256 of all bytes before its comma.\n";

static const char memory_notes[] =
	"Without a GPU: the prediction. With one: a session is opened, each bucket run, and the device's\n"
	"free memory read; exit code 1 when prediction and peak differ by more than 1 % and 32 MiB.\n"
	"Nothing else may run on the GPU meanwhile. The driver's context is not counted.\n";

static const char sign_notes[] =
	"The plan is checked first, to its last byte, and replaced as a whole; what is signed is its root\n"
	"hash, so that nothing else in it changes. The same key and plan give the same bytes. Keys:\n"
	"  openssl genpkey -algorithm ed25519 -out key.pem\n"
	"  openssl pkey -in key.pem -pubout -out pub.pem        for --trust\n";

static const char run_notes[] =
	"With --device cpu, the text depends only on plan, prompt, sampling and seed. On a GPU each bucket\n"
	"has its own kernels, which may sum in another order; --speculate and the other prompts of the call\n"
	"decide which buckets are used, so texts may differ where two tokens are almost equally probable.\n"
	"A prompt run alone gives the same text each time.\n"
	"A line of a *.jsonl file is an object: {\"prompt\": TEXT} or {\"tokens\": [IDS]}, and optionally\n"
	"max_new, temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty,\n"
	"frequency_penalty, seed, stop (a text or a list), and id, which its answer repeats.\n";

static const char serve_notes[] =
	"Chat Completions and Completions of the OpenAI API, GET /v1/models, /v1/plan, /health, /ready and\n"
	"/metrics, POST /tokenize and /detokenize. A plan without a chat template serves no chat. Beyond the\n"
	"loopback only with --api-key-file; TLS is the concern of a proxy, samples of which are installed in\n"
	"share/atlas. SIGTERM drains: no new requests, answers end, exit code 0; a second signal ends at\n"
	"once. A session that fails ends streams with an error, /health is 503, and the process ends with the\n"
	"exit code of its status, 9 for a fault of the GPU: let systemd start it again.\n"
	"The same prompt, sampling and seed have the text that atlas run prints, whatever is beside them, on\n"
	"--device cpu; on a GPU within equal buckets.\n";

static const Verb verbs[] = {
	{"run", "generate text from one prompt or many", verb_run, run_notes, 1},
	{"serve", "answer requests over HTTP, as the OpenAI API has them", verb_serve, serve_notes, 1},
	{"audit", "show which kernel runs for each op of each layer and phase", verb_audit, audit_notes, 1},
	{"verify", "compare each layer with the reference device, or a plan with its rebuild", verb_verify,
		verify_notes, 1},
	{"dump", "write logits and layer outputs of a prompt to a safetensors file", verb_dump, NULL, 1},
	{"perplexity", "measure the perplexity of a text file", verb_perplexity, NULL, 1},
	{"calibrate", "measure scales of an fp8 or nvfp4 KV cache on a text", verb_calibrate, NULL, 1},
	{"bench", "measure prompts and answers, and compare with the roofline", verb_bench, bench_notes, 1},
	{"tune", "time the candidate kernels of a plan", verb_tune, tune_notes, 1},
	{"info", "show what a plan contains", verb_info, NULL, 1},
	{"sign", "sign a plan with an Ed25519 key", verb_sign, sign_notes, 1},
	{"diff", "compare two plans by meaning; exit code 1 if they differ", verb_diff, diff_notes, 2},
	{"receipt", "compare the kernels that a GPU ran with the plan", verb_receipt, receipt_notes, 1},
	{"memory", "predict and measure a plan's GPU memory", verb_memory, memory_notes, 1},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

static void help(FILE *out)
{
	fputs("usage: atlas VERB PLAN [options]\n\n", out);
	for (int i = 0; i < N_VERBS; i++)
		fprintf(out, "  %-11s %s\n", verbs[i].name, verbs[i].summary);
	fputs("\natlas VERB --help lists the options of a verb; atlas --version prints the version; atlas --help-as man\n"
		  "prints the manual page, --help-as bash the bash completion script.\n"
		  "Opening a plan means running its code on the GPU: open plans you trust, with --trust those you know.\n",
		out);
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
	static const char *const of_atlasc[] = {"kernels", "explain", "compile"}; /* and atlasc itself */
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
	return fail(argc, argv, near ? "unknown %s %s: did you mean %s?" : "unknown %s %s: see atlas --help%s",
		is_option ? "option" : "verb", seen, near ? near : "");
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
		if (strcmp(form, "man") != 0 && strcmp(form, "bash") != 0)
			return fail(argc, argv, "--help-as %s: expected man or bash", form);
		(*form == 'm' ? manual_of_command : manual_completion)(stdout, verbs, N_VERBS);
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
		code = verbs[i].run(&args);
		if (fflush(stdout) != 0 && code == EXIT_OK)
			return cli_say(&args, EXIT_ENVIRONMENT, "stdout cannot be written");
		return code;
	}
	return unknown(argc, argv);
}
