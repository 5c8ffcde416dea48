/* atlas.h - run a compiled language model.
 *
 * A plan (plan.bin) is what `atlasc` made of a checkpoint: every kernel chosen and compiled, every buffer placed.
 * This library opens it, checks all of it, loads the weights once, builds one CUDA graph a phase, and replays
 * them. On a machine without a GPU the same plan runs on the reference device: plain C, float32, slow, exact.
 *
 * It prints nothing, never exits, reads no environment variable, has no global state, and on a GPU has threads only
 * while it starts and opens (the reference device has some until it is closed). After atlas_session_open a step
 * allocates nothing, and a decode step on a GPU neither copies nor synchronises: its kernels write tokens to memory of
 * the host, which atlas_step watches. Pages as needed (AtlasRequest) are the exception.
 *
 *	AtlasError error = {ATLAS_OK, ""};
 *	AtlasPlan *plan;
 *	AtlasSession *session;
 *	AtlasPlanInfo model = {sizeof model};
 *	AtlasSessionInfo made = {sizeof made};
 *	int n, slot;
 *	if (atlas_plan_open("plan.bin", NULL, &plan, &error) || atlas_session_open(plan, NULL, &session, &error))
 *		die(error.text);
 *	atlas_plan_info(plan, &model);
 *	atlas_session_info(session, &made);
 *	const int most = model.slots * made.step_tokens; // events of a step
 *	AtlasEvent *event = malloc(sizeof *event * (size_t)most);
 *	if (!event || atlas_start(session, tokens, n_tokens, NULL, 64, &slot))
 *		die(atlas_session_error(session));
 *	while (atlas_active(session) && atlas_step(session, event, most, &n) == ATLAS_OK)
 *		for (int i = 0; i < n; i++)
 *			if (event[i].finish != ATLAS_STOP)
 *				show(event[i].token);
 *	free(event);
 *	atlas_session_close(session);
 *	atlas_plan_close(plan);
 *
 * Handles. A plan is read-only after its opening: any number of sessions, in any threads, may share it, and it
 * must outlive them. A session belongs to one thread at a time; atlas_wake alone may come from any. Every function
 * returns a status; ATLAS_OK is 0.
 * A session whose device failed stays failed: each later call but close returns the same status.
 *
 * Structs with struct_size as first member are filled by their own init function, or with
 * `= {sizeof(AtlasXxx)}`; members added by a later version are read only from callers that know them. NULL
 * means all defaults.
 */
#ifndef ATLAS_H
#define ATLAS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Statuses ----------------------------------------------------------------------------------
 *
 * X(name, value, exit code that a command ends with, what it is, what to do about it) */
#define ATLAS_STATUS_TABLE(X) \
	X(OK, 0, 0, "no error", "") \
	X(ARGUMENT, 1, 2, "an argument is wrong", "Correct the call; the text names the argument.") \
	X(NO_MEMORY, 2, 7, "not enough host memory", "Free memory, or compile for less.") \
	X(IO, 3, 5, "a file cannot be read", "Check that the file exists and may be read.") \
	X(NOT_A_PLAN, 4, 4, "the file is not a plan", "Name a file written by atlasc.") \
	X(PLAN_VERSION, 5, 8, "the plan has another format version", "Compile the model again with this atlasc.") \
	X(INTEGRITY, 6, 6, "a hash does not match", "The file was changed or cut: copy it again.") \
	X(MALFORMED, 7, 6, "the plan contradicts its format", "Compile the model again.") \
	X(NO_DRIVER, 8, 5, "no CUDA driver is installed", "Install the NVIDIA driver, or use device cpu.") \
	X(DRIVER_OLD, 9, 8, "the CUDA driver is too old", "Update the NVIDIA driver.") \
	X(NO_DEVICE, 10, 5, "the GPU does not exist", "Check nvidia-smi, or use device cpu.") \
	X(ARCH, 11, 8, "the plan has no target for this GPU", "Compile with --target for this GPU.") \
	X(DEVICE_MEMORY, 12, 7, "not enough GPU memory", "Free GPU memory, or compile for less.") \
	X(DEVICE_FAULT, 13, 9, "the GPU failed", "Close the session; the text names the call.") \
	X(CONTEXT, 14, 4, "the tokens do not fit into the context", "Shorten the prompt.") \
	X(NO_SLOT, 15, 7, "all slots are in use", "Step until a sequence ends, then start again.") \
	X(NO_PAGES, 16, 7, "not enough free KV pages", "Step until a sequence ends, then start again.") \
	X(TOKEN, 17, 4, "a token id is outside the vocabulary", "Encode the text with this plan.") \
	X(NO_TOKENIZER, 18, 4, "the plan has no tokenizer", "Pass token ids.") \
	X(UNSUPPORTED, 19, 4, "this plan does not support that", "The text says what is missing.") \
	X(STOPPED, 20, 0, "a callback asked to stop", "") \
	X(UNSIGNED, 21, 6, "the plan has no signature", "Sign it with atlas sign, or open it without trusted keys.") \
	X(UNTRUSTED, 22, 6, "no trusted key has signed the plan", "Check who made it; atlas info shows its keys.") \
	X(KEY, 23, 4, "a file is not an Ed25519 public key", "openssl pkey -in key.pem -pubout writes one.") \
	X(RANK_LOST, 24, 10, "another rank was lost", "Start all ranks again; the text says which one was lost, and how.") \
	X(RANK_MISMATCH, 25, 8, "ranks do not fit together", "Give each rank the same plan, build and kind of GPU.")

typedef enum AtlasStatus {
#define ATLAS_STATUS_ROW(name, value, exit_code, text, advice) ATLAS_##name = value,
	ATLAS_STATUS_TABLE(ATLAS_STATUS_ROW)
#undef ATLAS_STATUS_ROW
	ATLAS_STATUS_LAST /* one more than the largest */
} AtlasStatus;

/* Static strings and the exit code of a status; "UNKNOWN", "unknown status", "" and 70 for any other number. */
const char *atlas_status_name(AtlasStatus s);   /* "NO_SLOT" */
const char *atlas_status_text(AtlasStatus s);
const char *atlas_status_advice(AtlasStatus s);
int atlas_status_exit_code(AtlasStatus s);

typedef struct AtlasError { /* filled by the function that failed; owned by the caller */
	AtlasStatus status;
	char text[512]; /* one sentence, UTF-8, no newline: what, where, seen and expected values */
} AtlasError;

const char *atlas_version(void); /* "0.1.0" */

/* A NULL where something is asked for is ATLAS_ARGUMENT, unless its function says what it means. A session has threads
 * (the reference device's) and a GPU's context, which fork does not take along: open it in the child. */

/* Plans ---------------------------------------------------------------------------------------- */
typedef struct AtlasPlan AtlasPlan;

typedef enum AtlasVerify { /* when the weights' bytes are compared with their hashes; all else is when a plan opens */
	ATLAS_VERIFY_FULL = 0, /* all of them when the plan is opened, by several threads */
	ATLAS_VERIFY_LAZY = 1, /* each when a session loads it: what a GPU gets is what was compared. A session on the
							  reference device compares all when it opens */
	ATLAS_VERIFY_OFF = 2   /* never: they are believed */
} AtlasVerify;

typedef struct AtlasPlanOptions {
	size_t struct_size;
	const char *weights_dir; /* folder of the checkpoint, for plans that refer to its files (--weights ref); files
								are opened by base name in this folder alone. Ignored by other plans. NULL: such a
								plan can be looked at, but no session of it opens (ATLAS_ARGUMENT) */
	int verify;              /* AtlasVerify */
	const uint8_t (*trust)[32]; /* [n_trust] Ed25519 public keys: only a plan that one of them has signed is opened. */
	int n_trust;             /* 0: any plan is, signed or not; a signature that does not hold is refused all the same */
	int64_t memory_budget;   /* most bytes on a device, 0 = any number. A plan that needs more, whichever of its targets
								runs, is ATLAS_DEVICE_MEMORY before a weight is read; the text has the largest items */
} AtlasPlanOptions;

/* Maps the file read-only, checks signatures, hashes, bounds and the whole schedule. Needs no GPU. Blocks on the disk;
 * has threads meanwhile. *plan is NULL on failure. `error` may be NULL. The path is not kept.
 *   ATLAS_UNSIGNED, ATLAS_UNTRUSTED  there is no signature, or none by a key of `trust`; nothing of the plan was used
 *   ATLAS_INTEGRITY  a hash or a signature does not match; the text names the section
 * Opening a session runs the plan's code: hashes show that a file is complete, `trust` who made it.
 *
 * Deploy a new plan under another name and rename it over the old one: open plans go on with the old file. A file must
 * not be changed in place (cp, rsync --inplace) before atlas_plan_close. If it is: all but the weights is a copy, made
 * before it was checked; opening a plan or a session is ATLAS_INTEGRITY, or goes on with weights that were checked; a
 * GPU has a copy of its own. The reference device computes on the mapped file: its next step is ATLAS_INTEGRITY, but a
 * file that is cut during a step ends the process with SIGBUS. Changes through a mapping of another process show late,
 * when the system writes them back. */
AtlasStatus atlas_plan_open(const char *path, const AtlasPlanOptions *options, AtlasPlan **plan,
	AtlasError *error);
/* Reads the Ed25519 public key of a PEM file (openssl pkey -pubout), for `trust`. ATLAS_KEY: it holds none. */
AtlasStatus atlas_read_key(const char *path, uint8_t key[32], AtlasError *error);
void atlas_plan_close(AtlasPlan *plan); /* NULL is fine. No session of it may be open */

typedef struct AtlasPlanInfo { /* pointers live as long as the plan */
	size_t struct_size;
	const char *family;         /* "llama" */
	int n_targets;
	const char *const *targets; /* "sm_90a", ... */
	int n_layers, vocab, hidden_dim;
	int slots;                  /* sequences at one time */
	int max_context;            /* tokens of a sequence, prompt and answer */
	int page, pages;            /* tokens in a KV page; pages shared by all slots */
	int bos_token;              /* -1 = none */
	int n_stop_tokens;
	const int *stop_tokens;
	int max_new_tokens;         /* default answer length of the model's own settings; 0 = none given */
	int64_t weight_bytes;
	const uint8_t *root_hash;   /* [32] SHA-256 that seals the file, and what signatures sign */
	int has_tokenizer;
	const char *chat_template;  /* [chat_template_bytes] UTF-8, no final NUL; NULL = none */
	size_t chat_template_bytes;
	int weights_by_reference;   /* 1: the weights are those of the checkpoint's files */
	int verify_rows;            /* most tokens that a step reads of a sequence, drafts among them; 0 = there are none */
	int n_signatures;           /* each of them holds */
	int prompt_grid;            /* a prompt is cut into steps at positions that are multiples of it, and nowhere else */
	int n_drawable;             /* ids below this can be drawn; log probabilities are over these ids, scores of rows
								 * after them count for nothing. At most vocab */
	int n_tokens;               /* ids below vocab that have a token of the tokenizer; 0 = there is no tokenizer */
	int weights_made;           /* 1: not those of a model, but random, and made when a session opens */
	uint64_t weights_seed;      /* of which they are made */
	int has_chat;               /* 1: the plan holds a compiled chat template, for atlas_chat_render */
	int drafter;                /* AtlasSpeculate: _MTP or _NGRAM, what drafts; _OFF: nothing does */
	int keeps_prefixes;         /* 1: its sessions may have a prefix cache (AtlasPrefixCache) */
} AtlasPlanInfo;

/* Signature i < n_signatures: the public key, and the key's id, which is the SHA-256 of its DER form. Either may be
 * NULL. ATLAS_ARGUMENT: there is none of that number. */
AtlasStatus atlas_plan_signature(const AtlasPlan *plan, int i, uint8_t key[32], uint8_t id[32]);

/* Fills *info up to info->struct_size. Any thread. */
AtlasStatus atlas_plan_info(const AtlasPlan *plan, AtlasPlanInfo *info);

/* Devices ------------------------------------------------------------------------------------------- */

typedef struct AtlasDevice AtlasDevice;

/* Starts a GPU in a thread of its own: the driver takes longer (a quarter of a second) than a plan to be opened, which
 * can happen meanwhile. Returns at once. Optional: failures here are silent, and opening a session repeats the work and
 * reports them. index: of the GPU, in the driver's order. NULL when there is no memory or thread for it. */
AtlasDevice *atlas_device_start(int index);
/* Waits until it is started, and gives it back. Before or after the sessions on it are closed; NULL is fine. */
void atlas_device_end(AtlasDevice *device);

/* Sessions ---------------------------------------------------------------------------------------- */

typedef struct AtlasSession AtlasSession;

/* What a text depends on. On the reference device: plan, tokens, sampling and seed. Not on other sequences, n_threads,
 * steps_ahead, max_gap, mixed, speculate or prefix_cache.
 * On a GPU a step goes through the smallest compiled bucket that holds its rows, and each bucket has kernels of its
 * own, whose sums may be in another order. A row's bits depend on its own history and on these kernels, not on other
 * rows, nor on how many steps a prompt takes: it is cut at multiples of prompt_grid alone, where a cut changes no
 * bit. But other sequences, those before it where prefixes are kept, and also steps_ahead, max_gap and mixed, decide
 * which bucket it is. So a sequence has the
 * same tokens and log probabilities alone and among others where buckets are equal, as in a plan with one prefill and
 * one decode bucket; elsewhere its scores may differ in their last bits, and where two tokens are about as likely the
 * text may. A plan with [numerics] invariant = true has one order of sums in all its buckets of prompts and one in all
 * of answers: there a sequence has the same bits alone and among others, with or without drafts, on one kind of GPU. A
 * sequence that is alone from start to end has the same bits each time. */

/* A step may make several tokens of a sequence, where the plan drafts them: by the model's head for it (multi-token
 * prediction), or by n-grams, the host's search for what followed the last tokens where they occurred before in prompt
 * and answer (prompt lookup). The model reads the drafts in one step and keeps those that it would have drawn itself,
 * greedy or sampled. How many it reads follows the sequences that run, by the plan's ladder. On the reference device
 * tokens are those of plain decoding; only how many come at once differs. On a GPU the rows of such a step have kernels
 * of another bucket than decode's, with what that means for their last bits (above). While n-grams may draft there is
 * one step at a time, whatever steps_ahead. */
typedef enum AtlasSpeculate {
	ATLAS_SPECULATE_AUTO = 0, /* where the plan drafts */
	ATLAS_SPECULATE_OFF = 1,  /* one token a step */
	ATLAS_SPECULATE_MTP = 2,  /* by the head; ATLAS_UNSUPPORTED where the plan has none */
	ATLAS_SPECULATE_NGRAM = 3 /* by n-grams; ATLAS_UNSUPPORTED where the plan is not compiled for it */
} AtlasSpeculate;

/* Mixed steps: a step of prompts has a row for each sequence that decodes as well, which gives that its next token. So
 * the weights are read once for both, and no answer waits for a prompt. On the reference device tokens are the same. On
 * a GPU such a row goes through kernels of prompts, so the last bits of an answer follow load. */
typedef enum AtlasMixed {
	ATLAS_MIXED_AUTO = 0, /* with max_gap, where nothing is against it */
	ATLAS_MIXED_OFF = 1,  /* a step is of prompts or of answers */
	ATLAS_MIXED_ON = 2    /* ATLAS_UNSUPPORTED where the plan is invariant, drafts are used, or no prefill
							 bucket has more rows than prompt_grid */
} AtlasMixed;

/* Prefix cache: KV pages of prompts stay when they were read, as long as nothing else needs them, and a prompt that
 * begins with the same tokens is read from there on. It begins at a multiple of prompt_grid and of the page, at least
 * its last token is read, and pages that decode steps wrote are not used. Of a model with recurrent states, or keys in
 * windows, it begins where one of the plan's snapshots of them was taken ([cache] snapshots in MODEL.toml), and prompts
 * are cut there.
 * On the reference device tokens and log probabilities are the same. On a GPU the rows that are left may go through a
 * smaller bucket than the whole prompt would: the same bits in plans that are invariant, else "What a text depends
 * on". Pages that no sequence reads count as free; the one that was not in use for longest is given away first. */
typedef enum AtlasPrefixCache {
	ATLAS_PREFIX_AUTO = 0, /* where it changes no bit of a text and the plan's model allows it */
	ATLAS_PREFIX_OFF = 1,
	ATLAS_PREFIX_ON = 2    /* ATLAS_UNSUPPORTED where the plan's keeps_prefixes is 0; the text says why */
} AtlasPrefixCache;

typedef struct AtlasSessionOptions {
	size_t struct_size;
	const char *device; /* "auto" (NULL): cuda if there is a usable GPU, else cpu; "cuda"; "cpu" */
	int device_index;   /* of the GPU, in the driver's order */
	int n_threads;      /* of the reference device; 0 = one for each processor. Its results do not depend on it */
	int steps_ahead;    /* decode steps that a GPU may have been given before the token of the first is seen; 0 = the
						   default, 8; 1 = one at a time; at most 32. Tokens of a sequence that is alone do not depend
						   on it. More hides the host's delays. The price: what is started, scored or cancelled waits
						   for the steps in flight, up to that many where a stop token came first */
	AtlasDevice *started; /* a GPU of the same index that was started before, or NULL. Ends after the opening */
	int speculate;      /* AtlasSpeculate */
	int max_gap;        /* most rows of prompts that a step reads while sequences decode, as whole cells of prompt_grid,
						   but at least one cell; after each such step every running sequence has its next token. Load
						   decides how many cells a step has, never where a prompt is cut: "What a text depends on"
						   says what that means. 0 = no limit, and all waiting prompts are read first */
	int max_gap_each;   /* with max_gap: rows for each sequence that decodes, if more: many answers have longer steps */
	int mixed;          /* AtlasMixed. The rows of a mixed step, of both kinds, are what max_gap limits */
	int prefix_cache;   /* AtlasPrefixCache */
} AtlasSessionOptions;

/* Takes all the memory it will ever use, copies the weights to the device, builds every graph. Blocks. "auto"
 * falls back to cpu only when there is no driver or no device; a GPU the plan was not compiled for is
 * ATLAS_ARCH. On failure *session is NULL and everything is given back. */
AtlasStatus atlas_session_open(const AtlasPlan *plan, const AtlasSessionOptions *options,
	AtlasSession **session, AtlasError *error);
void atlas_session_close(AtlasSession *session); /* NULL is fine. Waits for the device */

/* Sentence of the last failure of this session, "" when there was none; valid until the next call. */
const char *atlas_session_error(const AtlasSession *session);

typedef struct AtlasSessionInfo { /* pointers live as long as the session */
	size_t struct_size;
	const char *device;      /* "cuda", "cpu" */
	const char *device_name; /* "NVIDIA H100 80GB HBM3" */
	const char *target;      /* "sm_90a"; "" on cpu */
	int64_t device_bytes;    /* memory taken on the device */
	int free_slots, free_pages; /* free_pages: those of prefixes that no sequence reads among them */
	int prefill_rows;        /* most rows of one prefill step */
	int score_rows;          /* most rows with logits of one scoring step */
	/* What opening took, in seconds: driver and context, device memory and pinned buffers, kernels, graphs, weights.
	   0 on cpu */
	double context_seconds, memory_seconds, kernels_seconds, graphs_seconds, weights_seconds;
	int step_tokens;         /* most tokens of a sequence that one step makes: 1 without drafts */
	int64_t drafts, accepted_drafts; /* of the steps handed out so far: made, and found to be the model's own tokens */
	int pages, page_tokens;  /* KV pages of the session, free or not, and positions of each */
	int aside;               /* sequences that are set aside now (pages_as_needed) */
	int64_t aside_bytes;     /* of the host's memory that their pages take now */
	int64_t set_aside;       /* times that a sequence was set aside so far */
	/* The step whose tokens the last atlas_step handed out: */
	const char *step_phase;  /* "prefill": prompts were read, "mixed": and each answer had a token, "decode", "verify":
								with drafts; NULL: there was none */
	int step_rows;           /* tokens that it read; of "verify", as many of each sequence */
	int step_bucket;         /* rows of the compiled step that it was; on cpu the most that such a step has */
	double device_seconds;   /* so far, in which calls of this session waited for the device; on cpu, it computed */
	int mixed;               /* 1: prompts and answers may be in one step (AtlasMixed) */
	int step_each;           /* of the step above, if it was "verify": rows of each sequence; else 0 */
	int prefix_cache;        /* 1: prefixes are kept (AtlasPrefixCache) */
	int64_t prefix_queries, prefix_hits; /* tokens of the prompts that looked for theirs so far; of them those found */
	int prefix_pages;        /* pages that hold prefixes now, read or not */
	int64_t prefix_evicted;  /* pages of prefixes that others were given so far */
	int snapshots, snapshots_used; /* of states and windows, from which prompts go on: in all, and taken now */
} AtlasSessionInfo;
AtlasStatus atlas_session_info(const AtlasSession *session, AtlasSessionInfo *info);

/* All prefixes that no sequence reads are forgotten. NULL is fine. */
void atlas_forget_prefixes(AtlasSession *session);

/* Sequences: each lives in a slot from its start until the event that has a finish reason, or until atlas_cancel. */

typedef struct AtlasSampling {
	size_t struct_size;
	float temperature;        /* below 1e-30 greedy: the most probable token, the lowest id among equals */
	float top_p, min_p;       /* 1 and 0 = off */
	float repetition_penalty; /* 0.001 to 1000; 1 = off; over prompt and answer */
	float presence_penalty, frequency_penalty; /* -1000 to 1000; 0 = off; over the answer */
	int32_t top_k;            /* 0 = all */
	uint64_t seed;            /* same seed, prompt and device: same tokens, as far as "What a text depends on" says */
} AtlasSampling;

/* The model's own settings (generation_config.json, MODEL.toml), seed 0; greedy where plan is NULL. NULL is fine. */
void atlas_sampling_init(const AtlasPlan *plan, AtlasSampling *sampling);

/* What a sequence is started with beyond its tokens. */
enum { ATLAS_MAX_BIAS = 300, ATLAS_MAX_STOP_TOKENS = 64, ATLAS_MAX_TOP = 20 };

typedef struct AtlasBias {
	int32_t token; /* of the vocabulary */
	float value;   /* added to the token's score after penalties, before temperature and cuts: -100 to 100, or
					  -INFINITY: it is never drawn */
} AtlasBias;

typedef int AtlasMasksFn(void *ctx, int slot, const int32_t *drafts, int n, uint32_t *words); /* see atlas_mask */
/* All arrays are copied when the sequence starts. Besides the first five members, 0 and NULL ask for nothing. bias,
 * min_new, stop_tokens and ignore_stops change no bit of other sequences; drafts are drawn by them as well. */
typedef struct AtlasRequest {
	size_t struct_size;
	const int32_t *tokens;      /* [n_tokens] the prompt */
	int n_tokens;               /* 1 to max_context */
	const AtlasSampling *sampling; /* NULL = the model's own */
	int max_new;                /* most tokens of the answer, 1 or more; fewer when the context ends before: a
								   sequence never holds more than max_context tokens besides the last one */
	int min_new;                /* no token that would end the sequence, of the model's or of stop_tokens, is among the
								   first min_new of the answer; max_new may end it before. 0 = off */
	int ignore_stops;           /* 1: the model's stop tokens are tokens like others; stop_tokens end it still */
	const int32_t *stop_tokens; /* [n_stop_tokens] end this sequence (ATLAS_STOP) besides the model's */
	int n_stop_tokens;          /* at most ATLAS_MAX_STOP_TOKENS */
	const AtlasBias *bias;      /* [n_bias] each token at most once */
	int n_bias;                 /* at most ATLAS_MAX_BIAS */
	int top_logprobs;           /* 0 to ATLAS_MAX_TOP alternatives with each token: atlas_event_top. While such a
								   sequence runs there is one step at a time (as with steps_ahead 1), and each of its
								   tokens costs a row of scores that is read and searched by the host */
	int steps_ahead;            /* most decode steps in flight while this sequence runs; 0 = the session's. Of the
								   sequences that run together the least counts. With 1 a cancelled one costs at most
								   one wasted step, and what starts waits for one step */
	int pages_as_needed;        /* 1: KV pages are taken while the text grows, and may go to older sequences for a
								   while (below). 0: all at the start, for its whole life */
	int masked;                 /* 1: each of its tokens is drawn of those that atlas_mask allows for it */
	const char *cache_salt;     /* with a prefix cache: this prompt and those with another text here share nothing, so
								   that times show no user what others asked. NULL = "" */
	int prefix_use;             /* AtlasPrefixUse */
	int n_tail;                 /* last tokens that no later prompt has there: states are kept before them. 0 = none */
	AtlasMasksFn *masks_after; void *masks_ctx; /* with masked: NULL = drafts are not taken */
} AtlasRequest;

typedef enum AtlasPrefixUse { /* of the session's prefix cache */
	ATLAS_PREFIX_BOTH = 0,  /* the prompt begins with what is kept, and is kept */
	ATLAS_PREFIX_READ = 1,  /* the first alone */
	ATLAS_PREFIX_WRITE = 2, /* the second alone: all of it is read */
	ATLAS_PREFIX_NONE = 3
} AtlasPrefixUse;

/* First tokens of the prompt that were not read, since they were kept: of the slot's sequence or of its last one; 0 of
 * NULL. atlas_kept_tokens: those that would not be, if the request started now; that may change with each step. */
int atlas_reused_tokens(const AtlasSession *session, int slot);
int atlas_kept_tokens(const AtlasSession *session, const AtlasRequest *request);

/* Pages as needed. Such a sequence starts with pages for its prompt and about 256 positions more, and takes others for
 * as many when it comes to their end, so that a large max_new costs nothing before it is used. It starts when there are
 * free pages for that and for as much of every such sequence that runs, and none waits for pages; else ATLAS_NO_PAGES.
 * A plan has pages for a whole context at least, so one that is alone is never refused because pages are missing.
 * When a page is missing, the youngest such sequence is set aside: it keeps its slot, the bytes of its pages go to
 * memory of the host, and it makes no tokens until pages are free and they come back, in order of age. The oldest is
 * never set aside, and nothing starts meanwhile, with pages as needed or for life: so each ends, whatever others ask
 * for. The bytes come back as they were. So it affects a text as other sequences do ("What a text depends
 * on"): nothing on the reference device; on a GPU they decide the buckets.
 * Memory of the host is taken when a sequence is set aside and freed when it is back: its pages, all together at most
 * slots - 1 times those of a whole context. If there is none, atlas_step is ATLAS_NO_MEMORY and nothing is lost: a
 * later step tries again, and cancelling a sequence helps. Both ways wait for the device and for a copy (64 positions
 * of an 8B model with caches in bf16 are 8 MiB). What has its pages for life is never set aside. */

/* Reserves a slot and the KV pages of the whole sequence, or those it begins with, and queues the prompt. The device is
 * asked for nothing and steps in flight go on, so it does not block: the atlas_step that first reads of the prompt
 * waits for them, resets the slot's state there, and has the status of what fails.
 *   ATLAS_ARGUMENT a member is out of range or not a number, or struct_size is not set, here or in sampling
 *   ATLAS_CONTEXT  n_tokens is below 1 or above max_context
 *   ATLAS_TOKEN    an id of tokens, stop_tokens or bias is negative or not below vocab
 *   ATLAS_NO_SLOT, ATLAS_NO_PAGES  now; may succeed after other sequences end
 *   ATLAS_NO_MEMORY of the host
 * The session's sentence names the member and its value. On success *slot (0 <= slot < slots) names the sequence.
 * Tokens of the steps in flight are handed out before any of the new sequence. */
AtlasStatus atlas_request_start(AtlasSession *session, const AtlasRequest *request, int *slot);

/* The same with these members alone; n and max_new as n_tokens and max_new there. */
AtlasStatus atlas_start(AtlasSession *session, const int32_t *tokens, int n, const AtlasSampling *sampling,
	int max_new, int *slot);

typedef enum AtlasFinish {
	ATLAS_RUNNING = 0,
	ATLAS_STOP = 1,   /* token is a stop token; it is not part of the text */
	ATLAS_LENGTH = 2, /* max_new tokens or the end of the context */
	ATLAS_FAILED = 3  /* the model's scores were not numbers, or bias and min_new leave no token to draw: there is no
						 token (-1, logprob NaN). Others go on */
} AtlasFinish;

typedef struct AtlasEvent {
	int slot;
	int32_t token;
	AtlasFinish finish; /* not ATLAS_RUNNING: the slot is free again */
	float logprob;      /* natural log of the token's probability: after penalties, before bias, min_new, temperature
						   and cuts. So a token that bias made likely may have a very low one */
} AtlasEvent;

/* One step: the next chunk of all waiting prompts if there is one and no token in flight, else one token for every
 * running sequence, or up to step_tokens (atlas_session_info) of each. With max_gap the two take turns while
 * sequences run: none of them waits for more than one chunk, which is a short one; or a mixed step reads a chunk
 * and makes a token of each of them. A chunk takes prompts in the order of their arrival: all that is left of one,
 * or as many whole cells of the plan's prompt_grid as there is room for, so that what else is waiting never moves a
 * cut. events [cap] receives one event per token made, those of a sequence one after the other, *n how many (0
 * while a long prompt is not read to its end, and when no sequence is left). cap must be at least the plan's slots
 * times step_tokens. Blocks until the tokens are there. A sequence that is cancelled while these events are looked
 * at may have more of them, which are to be passed over; if one of them ends it, its slot is free already.
 * ATLAS_NO_MEMORY: see pages as needed; the session has not failed. Any other but ATLAS_ARGUMENT is a fault of the
 * device, of what sequences are started with as well. */
AtlasStatus atlas_step(AtlasSession *session, AtlasEvent *events, int cap, int *n);

/* Allows tokens for the next one of a sequence with `masked`: token t where bit t % 32 of words[t / 32] is set. words
 * [n_words], copied, has a bit for each of the plan's vocab, (vocab + 31) / 32 words. The sequence waits until its next
 * token has a mask, which is given after the start and after a step's last event of it that is ATLAS_RUNNING; others go
 * on. An atlas_step returns at once, with no event, when all wait. bias, min_new and penalties hold as well; log
 * probabilities are those without masks. While such a sequence takes part there is one step at a time, as with
 * steps_ahead 1. Blocks where the slot's last sequence was cancelled with a mask.
 * Drafts are taken where the request has masks_after, which atlas_step calls, and which asks nothing of the session: it
 * makes words [n, n_words], zeroed, the masks after the first, second, ... of drafts [n], and returns after how many of
 * them: those that the text takes, or fewer. Later ones are passed over. The text is the one without drafts.
 *   ATLAS_ARGUMENT  the slot holds no sequence with masks, its next token has one, n_words is another number, or no
 *                   token that can be drawn is allowed */
AtlasStatus atlas_mask(AtlasSession *session, int slot, const uint32_t *words, int n_words);

typedef struct AtlasTop {
	int32_t token;
	float logprob; /* as AtlasEvent.logprob, and exactly that where token is the event's; at most 0 */
} AtlasTop;

/* The most probable tokens at the place of event i of the last atlas_step, the most probable first, the lowest id first
 * among equals: as many as the sequence's top_logprobs, fewer where no more can be drawn, none where it did not ask or
 * the event has no token. The event's token is among them only if it is one of them; probabilities are those before
 * bias and min_new, so tokens that these forbid are among them as well. Log probabilities differ by what the scores
 * differ: to the last bits of the event's they are its softmax. *top [*n] is the session's and valid until its next
 * atlas_step. ATLAS_ARGUMENT: a NULL, or that step had no event i. Does not block. */
AtlasStatus atlas_event_top(const AtlasSession *session, int i, const AtlasTop **top, int *n);

/* The one call for a session that may come from any thread, at any time between its opening and its closing, even while
 * another thread is in a call of it. An atlas_step that waits for tokens returns at once, with ATLAS_OK and *n = 0; the
 * next one, or the first if none waits, adds no decode steps ahead. So what the caller does then, such as starting or
 * cancelling a sequence, waits for fewer steps. A chunk of prompts, a step of a sequence with top_logprobs, and a step
 * on the reference device, are waited for to their end. No token is lost: it is handed out by a later step. Calls
 * before a step count as one. Never blocks. */
void atlas_wake(AtlasSession *session); /* NULL is fine */

int atlas_active(const AtlasSession *session); /* sequences that have a slot */

/* Ends a sequence; its slot and pages are free, its tokens in flight are dropped. ATLAS_ARGUMENT when the slot
 * holds none. */
AtlasStatus atlas_cancel(AtlasSession *session, int slot);

/* Scores and traces --------------------------------------------------------------------------------------
 *
 * They run tokens [n] in a free slot from position 0, sample nothing and free the slot. A callback returns 0 to go on;
 * anything else ends the call with ATLAS_STOPPED. Its arrays are valid during the call. While it runs, atlas_start,
 * atlas_step, atlas_cancel, atlas_score and atlas_trace of the same session are ATLAS_ARGUMENT; it must not be closed.
 */

/* logits [vocab] f32 of position `pos`: the scores of the token at pos + 1. Called for pos = 0 .. n-1 in order. The
 * tokens are read as a prompt is that is alone: in the same steps, by the same kernels. */
typedef int AtlasLogitsFn(void *ctx, int pos, const float *logits);
AtlasStatus atlas_score(AtlasSession *session, const int32_t *tokens, int n, AtlasLogitsFn *fn, void *ctx);

/* The same among other sequences: tokens [n] are copied and wait in a slot; calls of atlas_step read them in their
 * turn among prompts and call fn, which must call no function of the session. No step of them is mixed. Where max_gap
 * is set or steps are mixed, and answers run, one reads a cell of prompt_grid, since the host reads a row of scores for
 * each token, and a step of answers follows. At its end there is one event of the slot: token -1, logprob NaN, and
 * ATLAS_LENGTH, or ATLAS_STOP where fn asked to stop. Statuses are those of atlas_request_start; memory for a step's
 * scores is taken here. */
AtlasStatus atlas_score_start(AtlasSession *session, const int32_t *tokens, int n, AtlasLogitsFn *fn, void *ctx,
	int *slot);

/* What a row of scores [vocab] says: *logprob, the natural log of the token's probability, and the most probable tokens
 * in the order of atlas_event_top: top [cap], of which it returns how many there are. Any thread. NULLs (top may be one
 * where cap is 0) or a token of no row: 0, and nothing is written. */
int atlas_score_top(const AtlasPlan *plan, const float *logits, int32_t token, float *logprob, AtlasTop *top, int cap);

/* hidden [rows, cols] f32: output of `layer` (0-based, the residual stream after it) for positions pos .. pos +
 * rows - 1. Called for each layer of a chunk in order, then for the next chunk. */
typedef int AtlasLayerFn(void *ctx, int layer, int pos, int rows, int cols, const float *hidden);
AtlasStatus atlas_trace(AtlasSession *session, const int32_t *tokens, int n, AtlasLayerFn *fn, void *ctx);

/* Text --------------------------------------------------------------------------------------------------- */

enum {
	ATLAS_ADD_SPECIAL = 1,  /* encode: add what the model expects around a text, such as bos */
	ATLAS_PARSE_SPECIAL = 2 /* encode: "<|im_end|>" in the text is the control token, not ten letters */
};

/* text [n_bytes] UTF-8; invalid bytes count as U+FFFD. Writes at most cap ids to tokens (NULL when cap is 0) and
 * always the whole count to *n_tokens: more than cap = call again with room. ATLAS_CONTEXT: a text of over 256 MiB,
 * or one on which the tokenizer's own pattern takes too long. Allocates. Any thread. */
AtlasStatus atlas_encode(const AtlasPlan *plan, const char *text, size_t n_bytes, int flags, int32_t *tokens,
	size_t cap, size_t *n_tokens);

typedef struct AtlasSpan { size_t begin, end; } AtlasSpan; /* bytes [begin, end) of a text */

/* As atlas_encode, with control tokens in spans [n_spans] alone, which are ascending and apart: "<|im_end|>" is the
 * control token where all of its bytes are in one span, else ten letters. The text is encoded as a whole: other tokens
 * may reach across borders. flags: ATLAS_ADD_SPECIAL; ATLAS_PARSE_SPECIAL makes spans mean nothing. */
AtlasStatus atlas_encode_spans(const AtlasPlan *plan, const char *text, size_t n_bytes, int flags,
	const AtlasSpan *spans, size_t n_spans, int32_t *tokens, size_t cap, size_t *n_tokens);

typedef struct AtlasText AtlasText; /* a stream from tokens to text. Of one thread at a time */

/* skip_special 1: control tokens give no text. */
AtlasStatus atlas_text_open(const AtlasPlan *plan, int skip_special, AtlasText **text);
/* The text ends at the first of these strings (stop strings), across tokens: the one that is complete first, the
 * longest of those that end together. stops [n] of n_bytes [n] bytes each, copied, take the place of those before. n 0:
 * none. include 1: the string that matched is part of the text, 0: the text ends before it. To be called before the
 * first token; strings stay when the stream is restarted.
 *   ATLAS_ARGUMENT  n is below 0 or above ATLAS_MAX_STOPS, a string is NULL or empty or of more than
 *                   ATLAS_MAX_STOP_BYTES bytes, or a token was pushed already
 *   ATLAS_NO_MEMORY those before are still there */
enum { ATLAS_MAX_STOPS = 16, ATLAS_MAX_STOP_BYTES = 256 };
AtlasStatus atlas_text_stops(AtlasText *text, const char *const *stops, const size_t *n_bytes, int n, int include);
/* The index of the string that the text ended at, -1 = none so far. The caller then cancels the sequence. */
int atlas_text_stopped(const AtlasText *text);
/* Appends a token. *bytes [*n] is the text that became certain: whole UTF-8 code points (where stop strings are UTF-8),
 * invalid sequences as U+FFFD; owned by the stream and valid until its next call. The end of the text that may begin a
 * stop string is held back: less than the longest of them. Once the text has ended, tokens give nothing. */
AtlasStatus atlas_text_push(AtlasText *text, int32_t token, const char **bytes, size_t *n);
/* The rest, when no token follows. After it the stream may be restarted or closed. */
AtlasStatus atlas_text_finish(AtlasText *text, const char **bytes, size_t *n);
void atlas_text_restart(AtlasText *text); /* forgets everything: another text begins */
void atlas_text_close(AtlasText *text);

/* Chat --------------------------------------------------------------------------------------------------- */

typedef struct AtlasChat AtlasChat; /* a prompt that the plan's chat template made */

/* json [n_bytes]: a conversation, as apply_chat_template of transformers takes it:
 *
 *	{"messages": [{"role": "user", "content": "Hello"}, ...],  objects, given to the template as they are
 *	 "tools": [...], "documents": [...],     objects; absent or null: none
 *	 "add_generation_prompt": true,          default true: an answer is to follow
 *	 "continue_final_message": false,        true, or the name of a field: the last message goes on, and the one above
 *	                                         is false
 *	 "chat_template_kwargs": {...},          more variables of the template: "enable_thinking": false
 *	 "shape_messages": false}                true: messages are those of OpenAI's API, and get the form that this
 *	                                         template takes: arguments of tool calls as an object or as text, text
 *	                                         parts of a content joined or not, null or no content as null or ""
 *
 * No other member, no name twice. now: seconds since 1970, for templates that write the date (in UTC). The text is what
 * transformers makes of it, byte for byte; encode it with atlas_encode_spans and the prompt's spans, without
 * ATLAS_ADD_SPECIAL: templates write their own.
 *   ATLAS_UNSUPPORTED  the plan holds no compiled template; the text says why
 *   ATLAS_ARGUMENT     no JSON, or not of this shape, with the place; or the template refuses the conversation, with
 *                      its words, or fails, with the line
 *   ATLAS_CONTEXT      10,000,000 steps, 64 macros inside each other, 16 bytes a token of the context (at least 1 MiB),
 *                      or 64 MiB and 32 times the JSON of memory do not suffice
 * *chat is NULL on failure. `error` may be NULL. Any thread, with up to 2 MiB of its stack. */
AtlasStatus atlas_chat_render(const AtlasPlan *plan, const char *json, size_t n_bytes, int64_t now, AtlasChat **chat,
	AtlasError *error);
/* text [n_bytes] UTF-8, with a final NUL; spans [n_spans]: what the template wrote. The rest came from strings of the
 * conversation (names of known roles count as the template's): no control token is to be made of it. Both live as long
 * as the chat. */
AtlasStatus atlas_chat_text(const AtlasChat *chat, const char **text, size_t *n_bytes, const AtlasSpan **spans,
	size_t *n_spans);
void atlas_chat_free(AtlasChat *chat); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
