/* atlas_main.c - the `atlas` command: finds the verb, reads its options, runs it. */
#include "runtime/cli/cli.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const char audit_notes[] =
	"A block of lines stands for one phase, phase[rows], and each line for one launch of a step:\n"
	"  outs      most sequences that get logits in one step of the phase\n"
	"  layers    the layers that have this launch; start and end lie before the first and after\n"
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
	"            because MODEL.toml says so. Where each template was measured, what was goes first\n"
	"times, of a target: how the SHA-256 of the file begins that the measured ones are from, and of\n"
	"which card they are; run on: the cards that plans for it had run on when this one was made.\n"
	"With --reasons, candidates that lost follow: slower ones with their time, rejected ones with\n"
	"what their contract requires and the values that break it.\n"
	"With --check, a TOML file of rules: [templates] required, forbidden; [dtypes] weight, embedding,\n"
	"norm, bias, scale, activation; [kv] dtype, [[kv.layers]] layers, dtype; [launches] per_layer,\n"
	"prefill, decode; [plan] waivers, unread, overrides, ran, random_weights, certificate, signature,\n"
	"signers. Every violation is told with its line.\n";

static const char verify_notes[] =
	"Without -p or --tokens the prompt is 32 token ids, fewer if the context is shorter: number i is\n"
	"i * 2654435761 mod 2^32, mod the size of the vocabulary. They need no tokenizer.\n"
	"The first layer whose least cosine misses 1 by more than the tolerance is named: the fault lies in\n"
	"it. Errors add up from layer to layer, and where scores of experts are close, a row takes another\n"
	"one and is another row from there on. With --each-layer nothing adds up: each layer of the\n"
	"reference, and its logits, start from what the device made of the layer before.\n"
	"With --certify, a GPU runs a few rows in every bucket of every phase, and each launch's result\n"
	"is compared with what the reference makes of the very same operands; then layers are, as with\n"
	"--each-layer, for the prompt given or one made up. Limits are those of the dtypes. PLAN.cert gets\n"
	"the figures, bound to the plan's root hash. Out of tolerance: exit code 1, and the launch in the\n"
	"first layer that has one is named. Columns: times launches; cosine the least; rms, max errors\n"
	"relative to the result.\n"
	"--rebuild touches no GPU. A plan records MODEL.toml, options and tools; the checkpoint, files of\n"
	"times, of scales and of token ids, of which it has hashes, are to be named. atlasc makes the plan\n"
	"again, in a folder beside it, and every byte but signatures is compared. What differs is named:\n"
	"tools first, then sections, then all that `atlas diff` tells. Exit code 0: equal, 1: different, 8:\n"
	"made by another version of atlasc or NVRTC.\n";

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
	"  MB/token  10^6 bytes that must be read, by the plan's launches, for each token that comes of it\n"
	"  GB/s, TFLOP/s  those bytes, and multiplications with additions, over the time\n"
	"  of bound  what the GPU needs at least, over the time it took: to read those bytes, or to do\n"
	"            those operations at the rate of a large product of their kind, whichever takes longer;\n"
	"            all rates are measured in the same run\n"
	"  experts a layer  how many all rows of a step chose together: in steps of the row's own sequences\n"
	"            that halt behind each routing, the clock standing; the bound is by these\n"
	"  nodes     launches of the step: nodes of its CUDA graph; a layer: of them in each layer\n"
	"--kernels  each launch alone with nothing of its own in the L2 cache, the worst first: by the time\n"
	"  that all launches of its kind lose against their bound. Each time holds the clock's own share:\n"
	"  launch, in the line of the bounds, is the time of one that does next to nothing.\n"
	"--compare  of each row: its speed over that of the earlier row of its name, and half the width of\n"
	"  what the spreads of both leave open: 1.043 +- 0.012 of before.\n"
	"The start is that of this process. Hashes of weights are compared where --verify says so.\n";

static const char diff_notes[] =
	"Names are compared with names, so the order in the files does not count, nor do offsets of\n"
	"buffers. Behind options, weights and sections stands for each target and phase every launch that\n"
	"is not the same, equal ones of neighbouring layers once: the kernels of the two plans, 10^6 bytes\n"
	"read and written, expected time, and on the lines below it why: operands, what the other plan's\n"
	"ledger says of the kernel, constants, geometry, code.\n";

static const char receipt_notes[] =
	"Needs a GPU. Fills and runs each bucket of the plan. Every node of every CUDA graph is read back\n"
	"from the driver, and CUPTI, where it is installed, tells of each kernel that ran: name, grid,\n"
	"block, shared memory, registers and order must be the plan's. Exit code 1 at any difference.\n"
	"The last member of the JSON is the SHA-256 of all before its comma.\n";

static const char memory_notes[] =
	"Without a GPU: what is predicted. With one: a session is opened, each bucket run, and the device's\n"
	"free memory read; exit code 1 when prediction and peak differ by more than 1 % and 32 MiB.\n"
	"Nothing else may run on the GPU meanwhile. The driver's context is not counted.\n";

static const char sign_notes[] =
	"The plan is checked first, to its last byte, and replaced as a whole; what is signed is its root\n"
	"hash, so that nothing else in it changes. The same key and plan give the same bytes. Keys:\n"
	"  openssl genpkey -algorithm ed25519 -out key.pem\n"
	"  openssl pkey -in key.pem -pubout -out pub.pem        for --trust\n";

static const char run_notes[] =
	"A text depends on plan, prompt, sampling and seed, and with --device cpu on nothing else. On a GPU\n"
	"each bucket has kernels of its own, which may add in another order; --speculate and the prompts\n"
	"beside it in the same call decide which buckets a text goes through, so that it may differ where two\n"
	"tokens are about as likely. A prompt alone has the same text each time.\n";

static const Verb verbs[] = {
	{"run", "generate text from one prompt or many", verb_run, run_notes, 1},
	{"audit", "which kernel runs for each op of each layer and phase", verb_audit, audit_notes, 1},
	{"verify", "compare every layer's output with the reference device, or a plan with its rebuild", verb_verify,
		verify_notes, 1},
	{"dump", "write logits and layer outputs of a prompt to a safetensors file", verb_dump, NULL, 1},
	{"perplexity", "perplexity of a text file", verb_perplexity, NULL, 1},
	{"calibrate", "scales of an fp8 or nvfp4 KV cache from a text", verb_calibrate, NULL, 1},
	{"bench", "how fast prompts and answers are, beside what the GPU could do", verb_bench, bench_notes, 1},
	{"tune", "time the kernels that a plan could have had", verb_tune, tune_notes, 1},
	{"info", "what a plan holds", verb_info, NULL, 1},
	{"sign", "sign a plan with an Ed25519 key", verb_sign, sign_notes, 1},
	{"diff", "what differs between two plans, by meaning; exit code 1 when anything does", verb_diff, diff_notes, 2},
	{"receipt", "what kernels a GPU ran, beside the plan's list", verb_receipt, receipt_notes, 1},
	{"memory", "what a plan takes of a GPU's memory, predicted and measured", verb_memory, memory_notes, 1},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

static void help(FILE *out)
{
	fputs("usage: atlas VERB PLAN [options]\n\n", out);
	for (int i = 0; i < N_VERBS; i++)
		fprintf(out, "  %-11s %s\n", verbs[i].name, verbs[i].summary);
	fputs("\natlas VERB --help lists the options of a verb; atlas --version prints the version; atlas --help-as man\n"
		  "prints the manual page, --help-as bash what completes words in bash.\n"
		  "Opening a plan means running its code on the GPU: open plans you trust, with --trust those you know.\n",
		out);
}

static int unknown(const char *seen)
{
	const char *names[N_VERBS];
	for (int i = 0; i < N_VERBS; i++)
		names[i] = verbs[i].name;
	const char *near = options_closest(seen, names, N_VERBS);
	fprintf(stderr, "atlas: unknown %s %s", seen[0] == '-' ? "option" : "verb", seen);
	fprintf(stderr, near ? ": did you mean %s?\n" : ": see atlas --help%s\n", near ? near : "");
	return EXIT_USAGE;
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
		if (strcmp(form, "man") != 0 && strcmp(form, "bash") != 0) {
			fprintf(stderr, "atlas: --help-as %s: expected man or bash\n", form);
			return EXIT_USAGE;
		}
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
	return unknown(first);
}
