/* cli.h - what the verbs of the `atlas` command share.
 *
 * stdout is data, stderr is talk. A verb returns the exit code.
 */
#ifndef ATLAS_CLI_H
#define ATLAS_CLI_H

#include "artifacts/manual.h"
#include "artifacts/message.h"
#include "runtime/atlas.h"

#include <stdbool.h>
#include <stdio.h>

enum {
#define EXIT_CODE(name, value, meaning) name = (value),
#include "artifacts/exit_codes.h"
#undef EXIT_CODE
	MAX_STOPS = ATLAS_MAX_STOPS,
	MAX_TRUST = 16,
	MAX_GIVEN = 16,
	MAX_DRAFTS = 3, /* of a slot in a step */
};

/* Command line ------------------------------------------------------------ */

typedef struct SamplingArgs { /* NAN, -1: as the plan has it */
	double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
	int top_k, max_new;
	uint64_t seed;
} SamplingArgs;

typedef struct Words { const char *at[MAX_GIVEN]; int n; } Words; /* of an option that may be repeated */

typedef struct Args { /* of all verbs; absent: NULL, false, -1, NAN */
	const char *verb;
	const char *plan, *other; /* other: the second plan of a verb that takes two */
	const char *prompt, *file, *tokens, *device, *weights_dir, *output, *against, *target,
		*only;
	const char *stop[MAX_STOPS];
	int n_stop;
	const char *trust[MAX_TRUST]; /* files of public keys */
	int n_trust;
	const char *key; /* file of a private key */
	const char *color;  /* "always", "never"; NULL or "auto" = on a terminal */
	const char *hashes; /* full, lazy, off; NULL = the verb's own */
	char *const *words; int n_words; /* after the verb, as they were given */
	const char *json_file, *html_file, *policy, *phase, *layer, *slot, *speculate, *mixed, *prefix_cache;
	const char *cupti, *checkpoint, *atlasc, *tuning, *kv_scales, *vocabulary_file, *rekey;
	int steps;
	SamplingArgs sampling;
	const char *input; /* of --file: "text", "jsonl"; NULL = by its name */
	const char *devices; /* "0,1": of several ranks */
	const char *nccl;       /* its library; NULL = libnccl.so.2 */
	const char *rendezvous; /* a socket, or HOST:PORT; NULL = the command starts all ranks */
	const char *rendezvous_key; /* a file */
	int ranks, rank; /* 0 = not said; -1 = not said */
	struct RankSeen *seen; /* [ranks] what each has seen, of verbs that watch; NULL = one rank, or another verb */
	const struct RankSeat *seat; /* of this process, rank 0 of them; NULL = one rank */
	int window, device_index, threads, reps, steps_ahead, bench_tokens;
	double acceptance[MAX_DRAFTS]; /* 0 = as drawn */
	double tolerance;
	int64_t memory_budget;
	const char *json_schema, *regex; /* a file; an expression */
	const char *system; /* message that a conversation begins with */
	int64_t date; /* that templates write: its start in seconds since 1970, -1 = today */
	const char *listen, *socket, *take_over, *api_key_file, *allowed_origin, *receipt, *log, *tool_format;
	Words names, allowed_hosts, compare, also; /* compare, also: earlier results of bench --json */
	int port, max_gap, max_queue, max_connections, workers;
	double max_wait, head_timeout, body_timeout, keep_alive, write_timeout, ping, drain; /* seconds; 0 = the default */
	int64_t max_body, max_pending;
	bool all, sbom, json, quiet, hidden, reasons, bench_kernels, sarif, certify, require_certified, rebuild, each_layer,
		host, chat, share_gpu;
} Args;

typedef int VerbFn(const Args *args);
typedef struct Verb {
	const char *name, *summary;
	VerbFn *run;
	const char *notes; /* after the options in its help; NULL = none */
	int n_plans;       /* that it takes, 1 or 2 */
} Verb;
VerbFn verb_run, verb_chat, verb_audit, verb_verify, verb_dump, verb_perplexity, verb_tune, verb_bench,
	verb_info, verb_diff, verb_calibrate, verb_receipt, verb_memory, verb_sign, verb_serve;

/* Fills args from argv[0..argc), the words after the verb. False: done, with *exit_code (help
 * printed, or the error is on stderr). */
bool options_parse(const Verb *verb, int argc, char **argv, Args *args, int *exit_code);
/* The verb's options in order; returns how many, at most MAX_OPTIONS. */
enum { MAX_OPTIONS = 80 };
int options_rows(const Verb *verb, ManualOption *out);
const char *options_plans(const Verb *verb); /* "PLAN" */
/* What a number of that option may be; false when the verb has no such option. */
bool options_limits(const char *verb, const char *name, double *low, double *high);
/* atlas-VERB(1), atlas(1), completion, and the examples in the help of a verb (cli_manual.c). */
void manual_of_verb(FILE *out, const Verb *verb);
void manual_of_command(FILE *out, const Verb *verbs, int n);
bool manual_of_shell(FILE *out, const char *shell, const Verb *verbs, int n); /* false: no such shell */
void manual_examples_of(FILE *out, const Verb *verb);

/* Plans and sessions ------------------------------------------------------------ */

/* "atlas VERB: error[NAME]: text", with the advice on a line of its own; returns the status's exit
 * code. */
int cli_fail(const Args *args, const AtlasError *error);
/* "atlas VERB: error: text"; where exit_code is EXIT_OK or EXIT_NEGATIVE, a remark: "atlas VERB: text". Returns
 * exit_code. */
int cli_say(const Args *args, int exit_code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* "atlas VERB: FILE:LINE:COLUMN: error: text"; column 0 = none. Returns exit_code. */
int cli_say_at(const Args *args, int exit_code, const char *file, int line, int column, const char *text);
/* "atlas VERB: PLACE: error[NAME]: text"; place and name may be NULL. */
void cli_message(const Args *args, const char *place, MessageKind kind, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* cli_fail with the session's last failure. */
int cli_fail_session(const Args *args, const AtlasSession *session, AtlasStatus status);

/* For --devices with several GPUs, and --ranks: starts a process for each rank but this one, rank 0, which gets a seat.
 * With --rendezvous the ranks meet, and those after 0 follow it to the end. False: the verb is not run, *code is how
 * the process ends. Before any thread. cli_end_ranks: after the verb. */
bool cli_start_ranks(Args *args, int *code);
void cli_end_ranks(const Args *args);
/* 0, or an exit code and why: a rank was lost, which is known before a step needs it. */
int cli_look_at_ranks(const Args *args, char *why, size_t n);

/* Begins to start the GPU that args names, while a plan is opened; NULL for --device cpu. atlas_device_end. */
AtlasDevice *cli_start_device(const Args *args);
/* 0, or the exit code after the failure was printed. `device` overrides args->device when not NULL, `started` may be
 * NULL. */
bool cli_speculates(const Args *args); /* --speculate asks for drafts */
void cli_json_or_null(FILE *out, const char *text); /* null of NULL and of "" */
int cli_speculate(const Args *args);   /* what it asks for: AtlasSpeculate */
int cli_speculate_named(const char *word); /* AtlasSpeculate; -1 = no word of --speculate */
int cli_open_plan(const Args *args, const char *path, AtlasPlan **plan); /* --verify: full unless it says else */
int cli_open_plan_as(const Args *args, const char *path, int verify, AtlasPlan **plan); /* AtlasVerify unless it does */
/* The card whose times chose the kernels of a target, where the GPU of that name is another one; else NULL. */
const char *cli_other_card(const AtlasPlan *plan, const char *target, const char *gpu);
/* Says so in one remark. */
void cli_remark_card(const Args *args, const AtlasPlan *plan, const char *target, const char *gpu);
enum { SERVE_GAP_EACH = 8 /* rows of a step of prompts for each running answer, by default */ };
int cli_open_session(const Args *args, const AtlasPlan *plan, const char *device, AtlasDevice *started,
	AtlasSession **session);

/* The plan's own sampling, and what was asked for in its place. */
AtlasSampling cli_sampling(const AtlasPlan *plan, const SamplingArgs *from);

typedef struct Tokens { /* zeroed = empty; free(ids) by the owner */
	int32_t *ids;
	int n;
} Tokens;
/* Text as the model would read it: special tokens around it added, those inside recognised. */
int cli_encode(const Args *args, const AtlasPlan *plan, const char *text, size_t n, Tokens *tokens);
/* Are all of them ids of the plan's vocabulary? `where` they come from, for the message. */
int cli_check_tokens(const Args *args, const AtlasPlan *plan, const Tokens *tokens, const char *where);
/* From -p or --tokens, whichever was given. */
int cli_prompt_tokens(const Args *args, const AtlasPlan *plan, Tokens *tokens);
/* A prompt for measurements: at most n ids, the same ones for each plan of that vocabulary and context. */
int cli_made_tokens(const Args *args, const AtlasPlan *plan, int n, Tokens *tokens);
/* The compiler that --atlasc names, else the one in the folder of this program. */
enum { CLI_PROGRAM_BYTES = 4096 + 16 };
int cli_find_compiler(const Args *args, char path[CLI_PROGRAM_BYTES]);
/* Whole file, or stdin for "-", with a final NUL that does not count; free(*bytes). */
int cli_read_file(const Args *args, const char *path, char **bytes, size_t *n);

bool cli_parse_bytes(const char *text, int64_t *bytes); /* memory_parse */

/* Files that are written (cli_output.c). 0, or the exit code after the failure was printed. */
/* Before the work: may a file of that name be made or replaced? */
int cli_check_output(const Args *args, const char *path);
/* Calls `write`, whose failures the stream remembers, and puts the file there: under a temporary name next to it,
 * synced, renamed, so that there is a whole file or what was there before. path: NULL = stdout. */
typedef void WriteFn(const void *what, FILE *out);
int cli_write_file(const Args *args, const char *path, WriteFn *write, const void *what);

/* SIGINT and SIGTERM wait until they are asked for, so that nothing is cut in the middle: call
 * cli_hold_signals before threads start, then cli_interrupted between steps. */
void cli_hold_signals(void);
bool cli_interrupted(void);
/* "580.159.03, CUDA 13.0": the kernel module's version where the system has it. */
struct Driver;
void cli_name_driver(const struct Driver *cu, char text[96]);
double cli_seconds(void); /* of a clock that only goes forward */

#endif
