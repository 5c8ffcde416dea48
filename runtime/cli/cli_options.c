/* cli_options.c - one table of options gives parsing, help, limits and suggestions of every verb.
 */
#include "artifacts/closest.h"
#include "runtime/cli/cli.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { /* verbs an option belongs to */
	RUN = 1,
	AUDIT = 2,
	VERIFY = 4,
	DUMP = 8,
	PERPLEXITY = 16,
	INFO = 32,
	TUNE = 64,
	BENCH = 128,
	DIFF = 256,
	CALIBRATE = 512,
	RECEIPT = 1024,
	MEMORY = 2048,
	SIGN = 4096,
	SERVE = 8192,
	CHAT = 16384,
	ALL = 32767,
	ON_RANKS = RUN | CHAT | BENCH | SERVE | DUMP | VERIFY | RECEIPT | MEMORY,
	COMPUTES = RUN | CHAT | VERIFY | DUMP | PERPLEXITY | BENCH | SERVE,
};
static const struct {
	const char *name;
	unsigned bit;
} verb_bits[] = {{"run", RUN}, {"audit", AUDIT}, {"verify", VERIFY}, {"dump", DUMP},
	{"perplexity", PERPLEXITY}, {"info", INFO}, {"tune", TUNE}, {"bench", BENCH},
	{"diff", DIFF}, {"calibrate", CALIBRATE}, {"receipt", RECEIPT}, {"memory", MEMORY},
	{"sign", SIGN}, {"serve", SERVE}, {"chat", CHAT}};

typedef enum Kind {
	FLAG, TEXT, WORDS, ONE_OF, STOPS, TRUST, HASHES, COLOR, DEVICE, SPECULATE, INPUT, SHARES, INTEGER, NUMBER, SEED,
	SIZE, DATE, HELP, PAGE,
	HEADING, /* of the options that follow in the help */
	OUTPUT /* a file; "-", which is stdout, where no word follows that may be one */
} Kind;

typedef struct Opt {
	const char *name;
	char letter; /* 0 = none */
	unsigned verbs;
	const char *value, *help; /* what the help calls the value; NULL = there is none */
	Kind kind;
	size_t at; /* of the field in Args */
	double low, high; /* INTEGER, NUMBER: inclusive */
} Opt;
#define FIELD(name) offsetof(Args, name)
static const Opt options[] = {
	{"Prompt", 0, RUN | VERIFY | DUMP, NULL, NULL, HEADING, 0, 0, 0},
	{"--prompt", 'p', RUN | VERIFY | DUMP, "TEXT", "text to continue",
		TEXT, FIELD(prompt), 0, 0},
	{"--file", 'f', RUN, "FILE", "file of prompts, one per line, run as one batch; - reads stdin",
		TEXT, FIELD(file), 0, 0},
	{"--input", 0, RUN, "text|jsonl", "format of that file: text, or JSON objects, one per line (default for *.jsonl)",
		INPUT, FIELD(input), 0, 0},
	{"--file", 'f', PERPLEXITY, "FILE", "text to score",
		TEXT, FIELD(file), 0, 0},
	{"--file", 'f', CALIBRATE, "FILE", "text to measure with",
		TEXT, FIELD(file), 0, 0},
	{"--tokens", 0, RUN | VERIFY | DUMP, "IDS", "token ids instead of text, such as 1,2,3",
		TEXT, FIELD(tokens), 0, 0},
	{"--chat", 0, RUN, NULL, "a prompt is a user's message, formatted by the plan's chat template",
		FLAG, FIELD(chat), 0, 0},
	{"--json-schema", 0, RUN, "FILE", "answers are JSON of the schema in this file; - reads stdin",
		TEXT, FIELD(json_schema), 0, 0},
	{"--regex", 0, RUN, "EXPR", "answers match this regular expression as a whole",
		TEXT, FIELD(regex), 0, 0},
	{"Conversation", 0, CHAT, NULL, NULL, HEADING, 0, 0, 0},
	{"--system", 's', RUN, "TEXT", "with --chat: system message before the prompt",
		TEXT, FIELD(system), 0, 0},
	{"--system", 's', CHAT, "TEXT", "system message of the conversation",
		TEXT, FIELD(system), 0, 0},
	{"--date", 0, RUN, "YYYY-MM-DD", "with --chat: the date that templates write (default: today, UTC)",
		DATE, FIELD(date), 0, 0},
	{"--date", 0, CHAT, "YYYY-MM-DD", "the date that templates write (default: today, UTC)",
		DATE, FIELD(date), 0, 0},
	{"Sampling (defaults: those of the plan)", 0, RUN | CHAT, NULL, NULL, HEADING, 0, 0, 0},
	{"--max-tokens", 'n', RUN | CHAT, "N", "generate at most N tokens",
		INTEGER, FIELD(sampling.max_new), 1, 1 << 30},
	{"--temperature", 0, RUN | CHAT, "T", "sampling temperature; 0 = greedy, always the most probable token",
		NUMBER, FIELD(sampling.temperature), 0, 1e3},
	{"--top-k", 0, RUN | CHAT, "K", "sample from the K most probable tokens; 0 = all",
		INTEGER, FIELD(sampling.top_k), 0, 1 << 30},
	{"--top-p", 0, RUN | CHAT, "P", "sample from the most probable tokens that together have probability P",
		NUMBER, FIELD(sampling.top_p), 1e-6, 1},
	{"--min-p", 0, RUN | CHAT, "P", "drop tokens less probable than P times the most probable one",
		NUMBER, FIELD(sampling.min_p), 0, 1},
	{"--repetition-penalty", 0, RUN | CHAT, "R", "penalise tokens that already occurred; 1 = off",
		NUMBER, FIELD(sampling.repetition_penalty), 1e-3, 1e3},
	{"--presence-penalty", 0, RUN | CHAT, "R", "subtract R from the logit of each token generated so far",
		NUMBER, FIELD(sampling.presence_penalty), -1e3, 1e3},
	{"--frequency-penalty", 0, RUN | CHAT, "R", "subtract R from the logit for each time the token was generated",
		NUMBER, FIELD(sampling.frequency_penalty), -1e3, 1e3},
	{"--seed", 0, RUN | CHAT, "N", "random seed (default: 0); a prompt run alone gives the same text again",
		SEED, FIELD(sampling.seed), 0, 0},
	{"--stop", 0, RUN, "TEXT", "end the answer before this text; may be repeated",
		STOPS, FIELD(stop), 0, 0},
	{"What to measure", 0, PERPLEXITY | CALIBRATE, NULL, NULL, HEADING, 0, 0, 0},
	{"--window", 0, PERPLEXITY, "N", "tokens scored at a time (default: the plan's context)",
		INTEGER, FIELD(window), 2, 1 << 30},
	{"--window", 0, CALIBRATE, "N", "tokens read at a time (default: the plan's context)",
		INTEGER, FIELD(window), 1, 1 << 30},
	{"What to compare", 0, VERIFY, NULL, NULL, HEADING, 0, 0, 0},
	{"--against", 0, VERIFY, "PLAN", "compare with this plan instead of the reference device",
		TEXT, FIELD(against), 0, 0},
	{"--tolerance", 0, VERIFY, "X", "largest 1 - cosine that is accepted (default: 0.001)",
		NUMBER, FIELD(tolerance), 0, 2},
	{"--each-layer", 0, VERIFY, NULL, "start each reference layer from the device's output of the layer before it",
		FLAG, FIELD(each_layer), 0, 0},
	{"Certificate", 0, VERIFY, NULL, NULL, HEADING, 0, 0, 0},
	{"--certify", 0, VERIFY, NULL, "also measure every launch, and write the certificate PLAN.cert",
		FLAG, FIELD(certify), 0, 0},
	{"--sign", 0, VERIFY, "PEM", "with --certify: sign the certificate with this Ed25519 private key",
		TEXT, FIELD(key), 0, 0},
	{"Rebuild", 0, VERIFY, NULL, NULL, HEADING, 0, 0, 0},
	{"--rebuild", 0, VERIFY, NULL, "compile the plan again from its records and compare the bytes",
		FLAG, FIELD(rebuild), 0, 0},
	{"--checkpoint", 0, VERIFY, "DIR", "with --rebuild: the checkpoint that the plan was compiled from",
		TEXT, FIELD(checkpoint), 0, 0},
	{"--atlasc", 0, VERIFY, "FILE", "with --rebuild: the compiler (default: atlasc in this command's folder)",
		TEXT, FIELD(atlasc), 0, 0},
	{"--tuning", 0, VERIFY, "FILE", "with --rebuild: the file of measured times, if the plan was compiled with one",
		TEXT, FIELD(tuning), 0, 0},
	{"--kv-scales", 0, VERIFY, "FILE", "with --rebuild: the file of K/V scales (default: in the checkpoint)",
		TEXT, FIELD(kv_scales), 0, 0},
	{"--vocabulary-file", 0, VERIFY, "FILE", "with --rebuild: the file of token ids (default: in the checkpoint)",
		TEXT, FIELD(vocabulary_file), 0, 0},
	{"--output", 'o', VERIFY, "FILE", "with --rebuild: write the rebuilt plan here",
		TEXT, FIELD(output), 0, 0},
	{"--hidden", 0, DUMP, NULL, "also write the output of every layer",
		FLAG, FIELD(hidden), 0, 0},
	{"--output", 'o', DUMP, "FILE", "safetensors file to write",
		TEXT, FIELD(output), 0, 0},
	{"--output", 'o', CALIBRATE, "FILE", "safetensors file of scales to write",
		TEXT, FIELD(output), 0, 0},
	{"--output", 'o', TUNE, "FILE", "file of times to write or update (default: stdout, with --rekey PLAN)",
		TEXT, FIELD(output), 0, 0},
	{"--rekey", 0, TUNE, "OLD_ATLASC", "PLAN is a file of times: keep those of kernels that changed since this "
		"compiler, where the machine code is the same; needs no GPU",
		TEXT, FIELD(rekey), 0, 0},
	{"--atlasc", 0, TUNE, "FILE", "with --rekey: the compiler of today (default: atlasc in this command's folder)",
		TEXT, FIELD(atlasc), 0, 0},
	{"--output", 'o', RECEIPT, "FILE", "JSON file to write",
		TEXT, FIELD(output), 0, 0},
	{"--steps", 0, RECEIPT, "N", "decode steps to run in each bucket (default: 8)",
		INTEGER, FIELD(steps), 1, 1 << 20},
	{"--cupti", 0, RECEIPT, "FILE", "libcupti.so to use (default: searched in the usual folders)",
		TEXT, FIELD(cupti), 0, 0},
	{"What to measure", 0, TUNE | BENCH, NULL, NULL, HEADING, 0, 0, 0},
	{"--only", 0, TUNE, "OP", "time candidates of one op only, such as norm_linear",
		TEXT, FIELD(only), 0, 0},
	{"--reps", 0, TUNE, "N", "runs per round; the median counts (default: 4)",
		INTEGER, FIELD(reps), 1, 1000},
	{"--only", 0, BENCH, "LIST", "only these rows, by name or prefix, such as pp2048,tg128@0,tg128@32768x8; none",
		TEXT, FIELD(only), 0, 0},
	{"--reps", 0, BENCH, "N", "repetitions of each row, at least 3; the median counts (default: 3)",
		INTEGER, FIELD(reps), 3, 1000},
	{"--tokens", 0, BENCH, "N", "tokens per sequence in one repetition of decode (default: 128)",
		INTEGER, FIELD(bench_tokens), 1, 1 << 20},
	{"--kernels", 0, BENCH, NULL, "also time each launch of the plan alone; needs a GPU",
		FLAG, FIELD(bench_kernels), 0, 0},
	{"--temperature", 0, BENCH, "T", "sampling temperature; every sequence has another seed (default: 0, greedy)",
		NUMBER, FIELD(sampling.temperature), 0, 1e3},
	{"--seed", 0, BENCH, "N", "seed of the prompts, which are random token ids, and of sampling",
		SEED, FIELD(sampling.seed), 0, 0},
	{"--json", 0, BENCH, "FILE", "write the results as JSON; without FILE, or with -, to stdout",
		OUTPUT, FIELD(json_file), 0, 0},
	{"--html", 0, BENCH, "FILE", "write a page with plots; without FILE, or with -, to stdout",
		OUTPUT, FIELD(html_file), 0, 0},
	{"--compare", 0, BENCH, "FILE", "compare each row with an earlier --json result, of this plan or another; "
		"repeated: with several runs of it", WORDS, FIELD(compare), 0, 0},
	{"--also", 0, BENCH, "FILE", "an earlier --json result of this plan, as one more run now; may be repeated; "
		"with two runs on each side there is a verdict", WORDS, FIELD(also), 0, 0},
	{"--host", 0, BENCH, NULL, "include this host's name in the page and the JSON",
		FLAG, FIELD(host), 0, 0},
	{"Where to listen", 0, SERVE, NULL, NULL, HEADING, 0, 0, 0},
	{"--host", 0, SERVE, "ADDRESS", "address to listen at (default: 127.0.0.1)",
		TEXT, FIELD(listen), 0, 0},
	{"--port", 0, SERVE, "N", "TCP port; 0 = any free one (default: 8080)",
		INTEGER, FIELD(port), 0, 65535},
	{"--socket", 0, SERVE, "PATH", "listen at this Unix socket instead",
		TEXT, FIELD(socket), 0, 0},
	{"--take-over", 0, SERVE, "PATH", "take the place of the server that was started with this option, when ready; the "
		"Unix socket PATH hands the listening sockets over", TEXT, FIELD(take_over), 0, 0},
	{"--name", 0, SERVE, "NAME", "name of the model in the API; repeated: aliases (default: the file's name)",
		WORDS, FIELD(names), 0, 0},
	{"--tool-format", 0, SERVE, "NAME",
		"form of tool calls, as docs/tools.md lists them, or none (default: the chat template's)",
		TEXT, FIELD(tool_format), 0, 0},
	{"Access", 0, SERVE, NULL, NULL, HEADING, 0, 0, 0},
	{"--api-key-file", 0, SERVE, "FILE", "file of API keys, one per line; each request must have one of them",
		TEXT, FIELD(api_key_file), 0, 0},
	{"--allow-host", 0, SERVE, "NAME", "accept this name in the Host header, like loopback names; may be repeated",
		WORDS, FIELD(allowed_hosts), 0, 0},
	{"--allow-origin", 0, SERVE, "ORIGIN", "allow pages of this origin (CORS), such as https://chat.example",
		TEXT, FIELD(allowed_origin), 0, 0},
	{"--receipt", 0, SERVE, "FILE", "result of atlas receipt -o; /v1/plan shows its hash",
		TEXT, FIELD(receipt), 0, 0},
	{"Limits", 0, SERVE, NULL, NULL, HEADING, 0, 0, 0},
	{"--max-gap", 0, SERVE, "N", "rows of a step that reads prompts while answers run (default: 8 for each of them, at "
		"least 128; in mixed steps at least the largest bucket that should take 20 ms)",
		INTEGER, FIELD(max_gap), 1, 1 << 30},
	{"--max-queue", 0, SERVE, "N", "requests that may wait for a slot (default: 8 per slot)",
		INTEGER, FIELD(max_queue), 1, 1 << 20},
	{"--max-wait", 0, SERVE, "SECONDS", "longest wait for a slot (default: 600)",
		NUMBER, FIELD(max_wait), 0.1, 1e6},
	{"--max-connections", 0, SERVE, "N", "connections at one time (default: 1024)",
		INTEGER, FIELD(max_connections), 1, 1 << 16},
	{"--max-body", 0, SERVE, "SIZE", "largest body of a request (default: 16MiB)",
		SIZE, FIELD(max_body), 0, 0},
	{"--max-pending", 0, SERVE, "SIZE", "unsent bytes of a stream with a slow client (default: 1MiB)",
		SIZE, FIELD(max_pending), 0, 0},
	{"--head-timeout", 0, SERVE, "SECONDS", "longest time for the head of a request (default: 5)",
		NUMBER, FIELD(head_timeout), 0.1, 1e6},
	{"--body-timeout", 0, SERVE, "SECONDS", "longest time for the body of a request (default: 30)",
		NUMBER, FIELD(body_timeout), 0.1, 1e6},
	{"--keep-alive", 0, SERVE, "SECONDS", "close a connection that is idle this long (default: 75)",
		NUMBER, FIELD(keep_alive), 0.1, 1e6},
	{"--write-timeout", 0, SERVE, "SECONDS", "cancel an answer whose client reads nothing this long (default: 30)",
		NUMBER, FIELD(write_timeout), 0.1, 1e6},
	{"--ping", 0, SERVE, "SECONDS", "send a ping on streams of /v1/messages that are silent this long (default: 10)",
		NUMBER, FIELD(ping), 0.1, 1e6},
	{"--drain", 0, SERVE, "SECONDS", "time for running answers to end after SIGTERM (default: 30)",
		NUMBER, FIELD(drain), 0, 1e6},
	{"--workers", 0, SERVE, "N", "threads that parse requests (default: 2)",
		INTEGER, FIELD(workers), 1, 16},
	{"What to show", 0, AUDIT, NULL, NULL, HEADING, 0, 0, 0},
	{"--target", 0, AUDIT, "SM", "show one target only, such as sm_90a",
		TEXT, FIELD(target), 0, 0},
	{"--reasons", 0, AUDIT, NULL, "also show the kernels that were not chosen, and why",
		FLAG, FIELD(reasons), 0, 0},
	{"--phase", 0, AUDIT, "P", "show one phase only, such as decode or decode[2]",
		TEXT, FIELD(phase), 0, 0},
	{"--layer", 0, AUDIT, "L", "show one layer only: 0, start or end",
		TEXT, FIELD(layer), 0, 0},
	{"--why", 0, AUDIT, "SLOT", "show everything about one decision, such as decode[2]/0/norm_linear",
		TEXT, FIELD(slot), 0, 0},
	{"--html", 0, AUDIT, "FILE", "write a page to search; without FILE, or with -, to stdout",
		OUTPUT, FIELD(html_file), 0, 0},
	{"Policy", 0, AUDIT, NULL, NULL, HEADING, 0, 0, 0},
	{"--check", 0, AUDIT, "POLICY", "check the plan against a policy file; exit code 1 if it violates a rule",
		TEXT, FIELD(policy), 0, 0},
	{"--sarif", 0, AUDIT, NULL, "with --check: print a SARIF 2.1.0 log",
		FLAG, FIELD(sarif), 0, 0},
	{"Device", 0, COMPUTES | TUNE | RECEIPT | MEMORY | CALIBRATE, NULL, NULL, HEADING, 0, 0, 0},
	{"--device", 0, COMPUTES | MEMORY, "cuda|cpu|auto",
		"where to run (default: auto, a GPU if there is one, else the CPU)",
		DEVICE, FIELD(device), 0, 0},
	{"--device-index", 0, COMPUTES | TUNE | RECEIPT | MEMORY, "N", "which GPU (default: 0)",
		INTEGER, FIELD(device_index), 0, 1 << 10},
	{"--devices", 0, ON_RANKS, "N,N,...",
		"the GPUs of a plan for several ranks, rank 0 first, a process each",
		TEXT, FIELD(devices), 0, 0},
	{"--ranks", 0, ON_RANKS, "N",
		"the plan is for N ranks: on GPUs 0 to N - 1, but for --devices or --rendezvous",
		INTEGER, FIELD(ranks), 1, 8},
	{"--rank", 0, ON_RANKS, "R",
		"with --rendezvous: this process is rank R, on the GPU of --device-index",
		INTEGER, FIELD(rank), 0, 7},
	{"--rendezvous", 0, ON_RANKS, "FILE|HOST:PORT",
		"the ranks are started one by one and meet at the socket FILE, which rank 0 makes, or on several hosts at an "
		"address of rank 0's",
		TEXT, FIELD(rendezvous), 0, 0},
	{"--rendezvous-key", 0, ON_RANKS, "FILE",
		"with --rendezvous HOST:PORT: a secret of 16 to 4096 bytes that all ranks have",
		TEXT, FIELD(rendezvous_key), 0, 0},
	{"--nccl", 0, ON_RANKS, "FILE",
		"with several ranks: the library that a plan with sums by NCCL takes (default: libnccl.so.2)",
		TEXT, FIELD(nccl), 0, 0},
	{"--share-gpu", 0, ON_RANKS, NULL,
		"with several ranks: several ranks may be on one GPU, in turns: a test, slow",
		FLAG, FIELD(share_gpu), 0, 0},
	{"--threads", 0, COMPUTES | CALIBRATE, "N", "threads of device cpu (default: the number of processors)",
		INTEGER, FIELD(threads), 1, 64},
	{"--steps-ahead", 0, RUN | CHAT | BENCH | SERVE, "N", "steps queued ahead on a GPU; 1 = one at a time (default: 8)",
		INTEGER, FIELD(steps_ahead), 1, 32},
	{"--speculate", 0, RUN | CHAT | SERVE, "mtp|ngram|off",
		"speculative decoding with the plan's MTP head, or by n-grams (default: what the plan has)",
		SPECULATE, FIELD(speculate), 0, 0},
	{"--mixed", 0, SERVE, "on|off",
		"one step reads prompts and makes tokens of answers (default: on, but for drafts and invariant plans)",
		ONE_OF, FIELD(mixed), 0, 0},
	{"--prefix-cache", 0, SERVE, "on|off",
		"keep pages of prompts for others that begin alike (default: on where the plan allows it)",
		ONE_OF, FIELD(prefix_cache), 0, 0},
	{"--speculate", 0, BENCH, "mtp|ngram|off", "mtp, ngram: also measure speculative decoding",
		SPECULATE, FIELD(speculate), 0, 0},
	{"--acceptance", 0, BENCH, "A[,B[,C]]", "with --speculate: acceptance rates to simulate (default: as sampled)",
		SHARES, FIELD(acceptance), 0, 1},
	{"--speculate", 0, RECEIPT | MEMORY, "mtp|ngram|off", "mtp, ngram: include speculative decoding (default: off)",
		SPECULATE, FIELD(speculate), 0, 0},
	{"Plan and trust", 0, ALL, NULL, NULL, HEADING, 0, 0, 0},
	{"--memory-budget", 0, COMPUTES | RECEIPT | MEMORY, "SIZE",
		"refuse a plan that needs more GPU memory than SIZE, such as 24GiB",
		SIZE, FIELD(memory_budget), 0, 0},
	{"--weights", 0, COMPUTES | CALIBRATE | INFO | AUDIT | RECEIPT | MEMORY, "DIR",
		"checkpoint folder of a plan compiled with --weights ref",
		TEXT, FIELD(weights_dir), 0, 0},
	{"--sbom", 0, INFO, NULL, "print inputs and tools as a CycloneDX 1.6 document",
		FLAG, FIELD(sbom), 0, 0},
	{"--key", 0, SIGN, "PEM", "Ed25519 private key to sign with",
		TEXT, FIELD(key), 0, 0},
	{"--output", 'o', SIGN, "FILE", "write the signed plan here (default: replace PLAN)",
		TEXT, FIELD(output), 0, 0},
	{"--verify", 0, SERVE, "full|lazy|off",
		"compare hashes of weights: full: when opened; lazy: when loaded (default); off",
		HASHES, FIELD(hashes), 0, 0},
	{"--verify", 0, ALL & ~(BENCH | TUNE | SIGN | SERVE), "full|lazy|off",
		"compare hashes of weights: full: when opened (default); lazy: when loaded; off",
		HASHES, FIELD(hashes), 0, 0},
	{"--verify", 0, BENCH, "full|lazy|off",
		"compare hashes of weights: full: when opened; lazy: when loaded; off (default)",
		HASHES, FIELD(hashes), 0, 0},
	{"--trust", 0, ALL, "PEM", "accept only plans signed with this public key; may be repeated",
		TRUST, FIELD(trust), 0, 0},
	{"--require-certified", 0, RUN, NULL, "refuse a plan without a valid certificate, PLAN.cert, for this kind of GPU",
		FLAG, FIELD(require_certified), 0, 0},
	{"Output", 0, ~0u, NULL, NULL, HEADING, 0, 0, 0},
	{"--all", 0, DIFF, NULL, "list every weight separately, with its hashes",
		FLAG, FIELD(all), 0, 0},
	{"--json", 0, RUN, NULL, "print JSON on stdout; one object per line if the prompts are JSON lines",
		FLAG, FIELD(json), 0, 0},
	{"--json", 0, AUDIT | VERIFY | PERPLEXITY | INFO | DIFF | RECEIPT | MEMORY, NULL, "print JSON on stdout",
		FLAG, FIELD(json), 0, 0},
	{"--log", 0, SERVE, "json|text|off", "print a line for each request on stderr (default: json)",
		ONE_OF, FIELD(log), 0, 0},
	{"--quiet", 'q', COMPUTES | CALIBRATE | TUNE, NULL, "print no remarks on stderr",
		FLAG, FIELD(quiet), 0, 0},
	{"--color", 0, ~0u, MESSAGE_COLORS, "colour of messages on stderr (default: auto, on a terminal)",
		COLOR, 0, 0, 0},
	{"--help", 'h', ~0u, NULL, "print this help",
		HELP, 0, 0, 0},
	{"--help-as", 0, ~0u, "man", "print the manual page",
		PAGE, 0, 0, 0},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

static unsigned bit_of(const char *verb)
{
	for (size_t i = 0; i < sizeof verb_bits / sizeof verb_bits[0]; i++)
		if (strcmp(verb_bits[i].name, verb) == 0)
			return verb_bits[i].bit;
	return 0;
}

const char *options_plans(const Verb *verb) { return verb->n_plans == 2 ? "PLAN PLAN" : "PLAN"; }

int options_rows(const Verb *verb, ManualOption *out)
{
	int n = 0;
	for (int i = 0; i < N_OPTIONS; i++)
		if (n < MAX_OPTIONS && (options[i].verbs & bit_of(verb->name)))
			out[n++] = (ManualOption){options[i].name, options[i].letter, options[i].value, options[i].help};
	return n;
}

bool options_limits(const char *verb, const char *name, double *low, double *high)
{
	for (int i = 0; i < N_OPTIONS; i++)
		if ((options[i].verbs & bit_of(verb)) && strcmp(options[i].name, name) == 0) {
			*low = options[i].low;
			*high = options[i].high;
			return true;
		}
	return false;
}

static void options_help(FILE *out, const Verb *verb)
{
	ManualOption rows[MAX_OPTIONS];
	int n = options_rows(verb, rows);
	fprintf(out, "usage: atlas %s %s [options]\n\n", verb->name, options_plans(verb));
	help_lines(out, verb->summary);
	help_options(out, rows, n);
	if (verb->notes) {
		putc('\n', out);
		help_lines(out, verb->notes);
	}
	manual_examples_of(out, verb);
}

/* Values ------------------------------------------------------------ */

static bool wrong(const Opt *o, const Args *args, const char *seen, const char *expected)
{
	cli_say(args, EXIT_USAGE, "%s %s: expected %s", o->name, seen, expected);
	return false;
}

static bool set_number(const Opt *o, Args *args, const char *text)
{
	char *end, expected[80];
	errno = 0;
	double value = strtod(text, &end);
	bool whole = o->kind != INTEGER || value == floor(value);
	if (end == text || *end || !(value >= o->low && value <= o->high) || !whole) {
		snprintf(expected, sizeof expected, "a %s from %.10g to %.10g",
			o->kind == INTEGER ? "whole number" : "number", o->low, o->high);
		return wrong(o, args, text, expected);
	}
	if (o->kind == INTEGER)
		*(int *)((char *)args + o->at) = (int)value;
	else
		*(double *)((char *)args + o->at) = value;
	return true;
}

static bool set_shares(const Opt *o, Args *args, const char *text)
{
	const char *at = text;
	int n = 0;
	for (bool more = true; more; n++) {
		char *end;
		const double share = strtod(at, &end);
		if (n == MAX_DRAFTS || end == at || !(share > 0 && share <= 1) || (*end && *end != ','))
			return wrong(o, args, text, "one to three numbers above 0, at most 1, with commas between them");
		args->acceptance[n] = share;
		more = *end == ',';
		at = end + 1;
	}
	return true;
}

static bool add_word(const Opt *o, Args *args, const char *text)
{
	Words *words = (Words *)((char *)args + o->at);
	if (words->n == MAX_GIVEN)
		return wrong(o, args, text, "at most 16 of them");
	words->at[words->n++] = text;
	return true;
}

/* One of the words between the bars of o->value. */
static bool set_one_of(const Opt *o, Args *args, const char *text)
{
	const size_t n = strlen(text);
	for (const char *p = o->value; *p; p += strcspn(p, "|") + (p[strcspn(p, "|")] == '|'))
		if (n && strcspn(p, "|") == n && strncmp(p, text, n) == 0) {
			*(const char **)((char *)args + o->at) = text;
			return true;
		}
	return wrong(o, args, text, o->value);
}

/* Four digits, two, two; a day that exists, from 1970 on. */
static bool set_date(const Opt *o, Args *args, const char *text)
{
	struct tm day = {0}, back;
	int used = 0;
	bool good = sscanf(text, "%4d-%2d-%2d%n", &day.tm_year, &day.tm_mon, &day.tm_mday, &used) == 3 && used == 10 &&
		!text[10] && strspn(text, "0123456789-") == 10;
	const struct tm asked = day;
	day.tm_year -= 1900;
	day.tm_mon--;
	const time_t at = good ? timegm(&day) : -1;
	good = at >= 0 && gmtime_r(&at, &back) && back.tm_year + 1900 == asked.tm_year &&
		back.tm_mon + 1 == asked.tm_mon && back.tm_mday == asked.tm_mday;
	args->date = (int64_t)at;
	return good || wrong(o, args, text, "a date such as 2026-01-31");
}

static bool set_value(const Opt *o, Args *args, const char *text)
{
	char *end;
	switch (o->kind) {
	case DEVICE:
		if (strcmp(text, "cuda") != 0 && strcmp(text, "cpu") != 0 && strcmp(text, "auto") != 0)
			return wrong(o, args, text, "cuda, cpu or auto");
		args->device = text;
		return true;
	case SPECULATE:
		if (cli_speculate_named(text) < 0)
			return wrong(o, args, text, "mtp, ngram or off");
		args->speculate = text;
		return true;
	case INPUT:
		if (strcmp(text, "text") != 0 && strcmp(text, "jsonl") != 0)
			return wrong(o, args, text, "text or jsonl");
		args->input = text;
		return true;
	case SHARES:
		return set_shares(o, args, text);
	case WORDS:
		return add_word(o, args, text);
	case ONE_OF:
		return set_one_of(o, args, text);
	case PAGE:
		return strcmp(text, "man") == 0 || wrong(o, args, text, "man");
	case COLOR: /* options_parse has it already */
		return message_is_color(text) || wrong(o, args, text, "auto, always or never");
	case HASHES:
		if (strcmp(text, "full") != 0 && strcmp(text, "lazy") != 0 && strcmp(text, "off") != 0)
			return wrong(o, args, text, "full, lazy or off");
		args->hashes = text;
		return true;
	case TRUST:
		if (args->n_trust == MAX_TRUST)
			return wrong(o, args, text, "at most 16 of them");
		args->trust[args->n_trust++] = text;
		return true;
	case STOPS:
		if (!*text)
			return wrong(o, args, "''", "a text");
		if (strlen(text) > ATLAS_MAX_STOP_BYTES)
			return wrong(o, args, text, "at most 256 bytes");
		if (args->n_stop == MAX_STOPS)
			return wrong(o, args, text, "at most 16 of them");
		args->stop[args->n_stop++] = text;
		return true;
	case SEED:
		errno = 0;
		args->sampling.seed = strtoull(text, &end, 10);
		if (errno || end == text || *end || strchr(text, '-'))
			return wrong(o, args, text, "a whole number below 2^64");
		return true;
	case DATE:
		return set_date(o, args, text);
	case SIZE:
		return cli_parse_bytes(text, (int64_t *)((char *)args + o->at)) ||
			wrong(o, args, text, "bytes, or a number of KiB, MiB or GiB");
	case INTEGER:
	case NUMBER:
		return set_number(o, args, text);
	default:
		*(const char **)((char *)args + o->at) = text;
		return true;
	}
}

/* Words ------------------------------------------------------------ */

/* The option that `word` names, "--name", "--name=...", "-x" or "-x..."; NULL when the verb has
 * none such. */
static const Opt *find(unsigned bit, const char *word)
{
	size_t n = strcspn(word, "=");
	for (int i = 0; i < N_OPTIONS; i++) {
		const Opt *o = &options[i];
		bool is_long = strlen(o->name) == n && strncmp(o->name, word, n) == 0;
		bool is_short = o->letter && word[1] == o->letter;
		if ((o->verbs & bit) && (is_long || is_short))
			return o;
	}
	return NULL;
}

/* "run, bench": the verbs that have the option which this verb has not; "" = none has it. */
static const char *verbs_with(const char *word, char text[160])
{
	unsigned verbs = 0;
	text[0] = 0;
	for (int i = 0; i < N_OPTIONS; i++)
		if (strcmp(options[i].name, word) == 0)
			verbs |= options[i].verbs;
	for (size_t i = 0; i < sizeof verb_bits / sizeof verb_bits[0]; i++)
		if (verbs & verb_bits[i].bit)
			snprintf(text + strlen(text), 160 - strlen(text), "%s%s", *text ? ", " : "", verb_bits[i].name);
	return text;
}

static int unknown(const Args *args, unsigned bit, const char *word)
{
	const char *names[N_OPTIONS];
	char verbs[160], name[48];
	int n = 0;
	snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
	if (*verbs_with(name, verbs))
		return cli_say(args, EXIT_USAGE, "%s is an option of %s, not of %s", name, verbs, args->verb);
	for (int i = 0; i < N_OPTIONS; i++)
		if ((options[i].verbs & bit) && options[i].kind != HEADING)
			names[n++] = options[i].name;
	const char *near = closest_name(name, names, n);
	if (near)
		return cli_say(args, EXIT_USAGE, "unknown option %s: did you mean %s?", name, near);
	return cli_say(args, EXIT_USAGE, "unknown option %s: see atlas %s --help", name, args->verb);
}

/* Takes the option at argv[0]; returns how many words it used, 0 after a mistake. */
static int take_option(const Opt *o, int argc, char **argv, Args *args)
{
	const char *attached = argv[0][1] != '-' ? argv[0] + 2 : strchr(argv[0], '=');
	if (attached && *attached == '=')
		attached++;
	else if (attached && !*attached)
		attached = NULL;
	if (o->kind == FLAG) {
		if (attached)
			return wrong(o, args, attached, "no value");
		*(bool *)((char *)args + o->at) = true;
		return 1;
	}
	if (attached)
		return set_value(o, args, attached);
	if (o->kind == OUTPUT && (argc < 2 || (argv[1][0] == '-' && argv[1][1])))
		return set_value(o, args, "-");
	if (argc < 2) {
		cli_say(args, EXIT_USAGE, "%s needs a value: %s", o->name, o->value);
		return 0;
	}
	return set_value(o, args, argv[1]) ? 2 : 0;
}

bool options_parse(const Verb *verb, int argc, char **argv, Args *args, int *exit_code)
{
	unsigned bit = bit_of(verb->name);
	bool words_only = false;
	*args = (Args){.verb = verb->name,
		.color = message_color_word(argc, argv),
		.words = argv,
		.n_words = argc,
		.sampling = {NAN, NAN, NAN, NAN, NAN, NAN, -1, -1, 0},
		.window = -1,
		.port = -1,
		.drain = NAN,
		.tolerance = NAN,
		.date = -1, .rank = -1};
	*exit_code = EXIT_USAGE;
	for (int i = 0; i < argc;) {
		if (words_only || argv[i][0] != '-' || !argv[i][1]) {
			if (args->plan && (verb->n_plans == 1 || args->other))
				return cli_say(args, EXIT_USAGE, "%s enough: %s and %s",
					verb->n_plans == 1 ? "one plan is" : "two plans are",
					args->other ? args->other : args->plan, argv[i]), false;
			*(args->plan ? &args->other : &args->plan) = argv[i++];
			continue;
		}
		if (strcmp(argv[i], "--") == 0) {
			words_only = true;
			i++;
			continue;
		}
		const Opt *o = find(bit, argv[i]);
		if (!o)
			return unknown(args, bit, argv[i]), false;
		if (o->kind == HELP) {
			options_help(stdout, verb);
			*exit_code = fflush(stdout) ? EXIT_ENVIRONMENT : EXIT_OK;
			return false;
		}
		int used = take_option(o, argc - i, argv + i, args);
		if (!used)
			return false;
		if (o->kind == PAGE) {
			manual_of_verb(stdout, verb);
			*exit_code = fflush(stdout) ? EXIT_ENVIRONMENT : EXIT_OK;
			return false;
		}
		i += used;
	}
	if (verb->n_plans == 2 && !args->other)
		return cli_say(args, EXIT_USAGE, "name two plans: atlas %s PLAN PLAN", verb->name), false;
	if (!args->plan)
		return cli_say(args, EXIT_USAGE, "name a plan: atlas %s PLAN", verb->name), false;
	return true;
}
