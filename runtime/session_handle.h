/* session_handle.h - what an AtlasSession is, for the files session*.c alone.
 *
 * session.c opens, closes and steps; session_request.c checks what a sequence is started with; session_pages.c hands
 * out slots and pages; session_prefix.c keeps the start of prompts, which session_prompts.c reads; session_flight.c
 * decodes; session_mask.c takes masks; session_top.c chooses alternatives; session_walk.c scores and traces.
 */
#ifndef ATLAS_SESSION_HANDLE_H
#define ATLAS_SESSION_HANDLE_H

#include "runtime/ngram.h"
#include "runtime/prefix.h"
#include "runtime/session.h"

#include <stdatomic.h>

typedef enum SequenceState { FREE, WAITING, RUNNING } SequenceState;

/* What the device gets before the first step of a slot's sequence, by a step of phase ACQUIRE. */
typedef struct SlotInputs {
	float sampling[8];
	int32_t limits[8];
	int n_rules;
	int32_t rules[]; /* [n_rules, PLAN_RULE_WORDS] */
} SlotInputs;

typedef struct Sequence {
	SequenceState state;
	int64_t ticket;       /* order of arrival */
	int32_t *tokens;      /* [n] the prompt, owned while WAITING */
	SlotInputs *inputs;   /* owned, until the device has them; NULL = it has */
	int n, read;          /* tokens of the prompt; of them on the device */
	int made, max_new;    /* tokens of the answer; most of them */
	int32_t token;        /* the last of the answer, while RUNNING */
	int32_t *pages;       /* [max_pages] of the session's table */
	int n_pages;
	bool as_needed;       /* pages are taken while it grows, and may be set aside */
	int all_pages;        /* of its whole life */
	bool is_aside;        /* it has no pages: what is in n_aside of them is in `aside`, and it waits for new ones */
	uint8_t *aside;       /* [n_aside, page_bytes of the device] owned; NULL where there is nothing */
	int n_aside;
	int node, n_chain;    /* the chain of prefix pages that it pins: its last node; how many, 0 = none */
	int snapshot;         /* that it will go on from, plus 1; 0 = none */
	int branch;           /* position up to which the index knew its prompt when it was begun; 0 = nothing of it */
	int n_tail;           /* last tokens of the prompt that no later one has there */
	bool uses_prefix, leaves_prefix; /* may it begin with a chain, and make one longer? */
	bool is_begun;        /* what it may begin with was looked for */
	bool has_repetition;  /* a penalty by which its prompt's tokens count */
	uint8_t salt[PREFIX_SALT_BYTES];
	int steps_ahead;      /* most steps in flight while it runs; 0 = the device's */
	bool is_masked;       /* each of its tokens needs a mask of its own */
	bool awaits_mask;     /* the next one has none yet: it takes no part in steps */
	bool leaves_mask;     /* of a slot: a copy of its last sequence's mask, cancelled since, may be in flight */
	int n_later;          /* of a slot: masks after drafts that the device has, of the last step that drafted */
	AtlasMasksFn *masks_after; void *masks_ctx;
	int n_top;            /* alternatives with each token */
	AtlasLogitsFn *score; /* of tokens that are only scored, which stay WAITING to their end; NULL = of others */
	void *score_ctx;
	float *logits;        /* of such: [outs of a step, vocab]; owned */
} Sequence;

/* What a slot begins with. */
typedef struct SlotClaim {
	int positions; /* that the sequence may hold */
	const AtlasSampling *sampling;
	bool ignores_stops; /* of the model */
	bool as_needed;     /* pages for `prompt` positions and a little more at once, others later */
	int prompt;
	bool is_brief;      /* it ends before anything else is asked for: no sequence has to wait for it */
	bool is_masked;
	const int32_t *rules; int n_rules; /* [n_rules, PLAN_RULE_WORDS] of single tokens (ops.h) */
	const int32_t *tokens; /* [prompt] of a sequence that the prefix cache may serve, else NULL */
	bool uses_prefix, leaves_prefix;
	int n_tail;
	const uint8_t *salt;   /* [PREFIX_SALT_BYTES] */
} SlotClaim;

typedef struct Flight {
	int *slots; int n;      /* [n] the slot of each row; -1 = ended or cancelled */
	int launched, taken;    /* steps */
	int bucket;             /* of each of them */
	int each;               /* rows of a slot in those in flight; 0: they are decode steps */
	bool is_closed;         /* no step is added */
	bool has_inputs;        /* the inputs in io and on the device are those of the flight */
} Flight;

/* Alternatives of an event. */
typedef struct TopOf {
	int n_wanted, n;      /* asked for; there are */
	int64_t row;          /* of the step's logits */
	AtlasTop top[ATLAS_MAX_TOP];
} TopOf;

typedef struct Tops {
	TopOf *of;            /* [slots * PLAN_MAX_VERIFY] of the last step's events; NULL until a sequence asks */
	float *logits;        /* [vocab] of a row */
	int n_drawable;       /* of the logits count */
	int n_events;         /* of the last step */
} Tops;

struct AtlasSession {
	const AtlasPlan *plan;
	const Graph *graph;
	Device *device;
	Sequence *slots;      /* [graph->slots] */
	int32_t *page_table;  /* [graph->slots, graph->max_pages] pages each slot holds */
	int32_t *free_pages;  /* [n_free_pages] a stack */
	int n_free_pages;
	int n_as_needed;      /* sequences whose pages are */
	int grow;             /* positions beyond the next step that such a sequence takes pages for */
	int64_t n_aside, n_set_aside; /* pages whose bytes the host has; sequences that were set aside so far */
	Prefix *prefix;       /* NULL = none is kept */
	int cell;             /* tokens: the least multiple of the prompt grid that is one of the page */
	int own_pages;        /* the first ones of a sequence, which are never shared (session_prefix.c) */
	int32_t *reused;      /* [slots] tokens of the slot's last prompt that were not read */
	int64_t n_queried, n_hit; /* tokens of prompts that were looked for, and that were found */
	int64_t next_ticket;
	Flight flight;
	bool has_strays;      /* steps or copies are in flight that nothing waits for */
	int step_tokens;      /* most tokens of a sequence in a step of a flight: verify_rows, or 1 */
	int forced_rows;      /* rows of a slot whatever the ladder says; 0 = by the ladder */
	Ngrams *ngrams;       /* [slots] of plans whose drafts the host makes, else NULL */
	uint32_t *words;      /* [verify_rows - 1, mask_words] masks of one sequence; then drafts [slots, verify_rows - 1]
							 that were read back. NULL: no steps draft */
	int64_t n_drafts, n_accepted; /* of the steps handed out */
	int32_t shares[PLAN_MAX_VERIFY - 1]; /* limits of a new sequence: which drafts count as accepted (ops.h) */
	int max_gap;          /* rows of prompts that a step may read while sequences run; 0 = any number */
	int max_gap_each;     /* the same for each sequence that runs, if that is more */
	bool mixes;           /* a step of prompts has a row for each sequence that runs, too */
	bool is_answers_turn; /* the last step was of prompts or scores alone, and turns are taken */
	Tops tops;
	StepSize last;        /* the step that atlas_step handed out last; 0 rows: it was none */
	int last_bucket;
	bool was_mixed;       /* it had rows of prompts and of answers */
	atomic_bool is_woken; /* by atlas_wake, from any thread; all else here is of one thread at a time */
	bool is_urgent;       /* it was, before this step: no decode step is added ahead */
	bool is_walking;      /* a callback of atlas_score or atlas_trace is running: nothing else may be asked meanwhile */
	AtlasStatus failed;   /* the first fault; sticky */
	AtlasError error;
};

/* session.c */

/* Can the session be asked for something now? */
AtlasStatus session_check(AtlasSession *s);
/* What a device reports ends the session: the state of its slots is unknown from then on. */
AtlasStatus session_failed(AtlasSession *s, AtlasStatus status);
/* After it the inputs in io may be written and everything launched is done. */
AtlasStatus session_wait(AtlasSession *s);
/* One step and its end, after all that is in flight: `step` among the inputs is every step's. */
AtlasStatus session_run(AtlasSession *s, const StepSize *size);

/* session_request.c: ATLAS_CONTEXT and ATLAS_TOKEN of the tokens [n] of a sequence. */
AtlasStatus session_check_tokens(AtlasSession *s, const int32_t *tokens, int n);
/* A slot in which a copy of tokens [n] waits to be read. */
AtlasStatus session_queue(AtlasSession *s, const SlotClaim *claim, const int32_t *tokens, int n, int *slot);

/* session_pages.c */

/* A free slot with pages for its positions, or as needed. */
AtlasStatus session_acquire(AtlasSession *s, const SlotClaim *claim, int *slot);
/* Before a step of such slots: the device has their inputs. Waits for what is in flight. */
AtlasStatus session_begin_slots(AtlasSession *s);
void session_free_slot(AtlasSession *s, int slot);
/* Before a step, while no result is in flight: each sequence that has answers to come gets pages for a step, for which
 * younger ones are set aside, and those that were set aside come back, as far as there are pages. */
AtlasStatus session_share_pages(AtlasSession *s);
/* Pages for `steps` more steps, those in flight included, of each sequence of the flight; *steps: as many as there are
 * pages for. */
AtlasStatus session_grow_flight(AtlasSession *s, int *steps);
/* Is it one that steps of answers are for now: with answers to come, pages for one, and a mask if it needs one? */
bool session_can_run(const AtlasSession *s, const Sequence *q);

/* Free pages, those of prefixes that no sequence reads among them. */
int session_available(const AtlasSession *s);
/* One of these, which there are. */
int32_t session_take_page(AtlasSession *s);
/* Gives the device pages [first, first + n) of the slot, by a copy out of io->new_pages: until it is made, these
 * entries stay as they are. */
AtlasStatus session_put_pages(AtlasSession *s, int slot, int first, int n);
/* Pages that those as needed that have their pages may take next. */
int session_pages_to_come(const AtlasSession *s);

/* session_prefix.c */

/* Pages of the longest prefix of tokens [n] that is kept and can be gone on from, and its last node; *known: pages of
 * the longest one that is kept at all. */
int session_find_prefix(const AtlasSession *s, const uint8_t *salt, const int32_t *tokens, int n, int *node,
	int *known);
/* The sequence's entries [0, n) become the pages of a chain that it has pinned, but for those of its own. */
void session_enter_chain(AtlasSession *s, Sequence *q, int from, int node, int n);
/* Before rows of a sequence that is on the device are first read: it begins after what is kept of its prompt. */
AtlasStatus session_begin_prompt(AtlasSession *s, int slot);
/* Will this step of prompts, as far as it is gathered, leave more of what the slot's prompt, which is not begun, begins
 * with than there is now? Then it waits. */
bool session_is_coming(const AtlasSession *s, int slot, const StepSize *size);
/* Of the next `count` rows of the prompt, those before the position at which its states are kept. */
int session_until_cut(const AtlasSession *s, const Sequence *q, int count);
/* After rows of its prompt were read: their whole pages are kept, and at such a position the states. */
AtlasStatus session_keep_prompt(AtlasSession *s, int slot);
/* Gives back the sequence's pages that are no node's, and its pins. */
void session_drop_pages(AtlasSession *s, Sequence *q);
/* Of a sequence that finds no page: what only it has in the cache is its own again. Returns whether a page is free. */
bool session_leave_prefix(AtlasSession *s, Sequence *q);

/* session_prompts.c */

/* Has a step of prompts room for a cell of one besides these rows of answers? */
static inline bool session_has_room(const AtlasSession *s, int answers)
{
	return answers + s->graph->prompt_grid <= s->device->limits.prefill_rows;
}
/* Are steps mixed? */
static inline bool session_mixes(const AtlasSession *s) { return s->mixes && s->step_tokens == 1; }
/* Does a step of answers follow one of prompts or scores alone, and is one that scores short while answers run? */
static inline bool session_takes_turns(const AtlasSession *s) { return s->max_gap > 0 || session_mixes(s); }
/* The waiting slot that comes first of those with a ticket above `after`, or -1. */
int session_next_waiting(const AtlasSession *s, int64_t after);
/* Of the `left` tokens of a prompt, those of a step with `room` free rows: all, or whole cells of the grid on
 * which prompts are cut. What was read before ended on it. */
int session_whole_cells(const AtlasSession *s, int left, int room);
/* Appends tokens [from, from + count) of the n of a slot's sequence as one segment. */
void session_add_segment(StepIo *io, StepSize *size, int slot, const int32_t *tokens, int n, int from, int count);
/* The next chunk of waiting prompts, while no token is in flight. events [outs]; *n of them are written. */
AtlasStatus session_step_prompts(AtlasSession *s, AtlasEvent *events, int *n);

/* session_walk.c */

/* The next chunk of the slot's tokens, which are only scored. */
AtlasStatus session_step_scores(AtlasSession *s, int slot, AtlasEvent *events, int *n);

/* session_flight.c */

/* Is there a sequence that can run? */
int session_n_running(const AtlasSession *s);

static inline bool session_has_results(const AtlasSession *s) { return s->flight.taken < s->flight.launched; }
/* All sequences that can run, when no step is in flight. */
AtlasStatus session_begin_flight(AtlasSession *s);
AtlasStatus session_add_steps(AtlasSession *s);
/* The results of the oldest step in flight; none when atlas_wake is called before they are there. */
AtlasStatus session_take_step(AtlasSession *s, AtlasEvent *events, int *n);
/* The next token of the slot's sequence, which should be there, into events[i]; `row` of the step's logits is its own.
 * *more: the token after it is of the same step. */
AtlasStatus session_take_token(AtlasSession *s, int slot, int row, AtlasEvent *events, int i, bool *more);
/* A flight without sequences has no results. Its steps may still run. */
void session_leave_flight(AtlasSession *s, int slot);

/* session_mask.c */

/* Is a sequence of the flight masked? *takes_drafts: one that takes drafts. */
bool session_has_masked(const AtlasSession *s, bool *takes_drafts);
/* Before a step that reads `each` rows of every slot: those of masked ones have masks for as many of the drafts [slots,
 * verify_rows - 1] as the text takes, n_later of them; NULL: for none. */
AtlasStatus session_mask_drafts(AtlasSession *s, const int32_t *drafts, int each);
/* The same for drafts of a head, which are made for it: what is left of such a step of the flight is its STEP_REST. */
AtlasStatus session_mask_head(AtlasSession *s, StepSize *size);

/* session_top.c */

/* Room for the alternatives of a step's events, if there is none yet. */
AtlasStatus session_open_tops(AtlasSession *s);
void session_free_tops(AtlasSession *s);
/* Event number `event` of this step, of that row, has n alternatives. */
void session_want_top(AtlasSession *s, int event, int row, int n);
/* Alternatives of the n events of the step launched last. */
AtlasStatus session_read_tops(AtlasSession *s, PhaseKind phase, const AtlasEvent *events, int n);

#endif
