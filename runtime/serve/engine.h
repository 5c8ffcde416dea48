/* engine.h - the one thread that owns the session.
 *
 * Sequences are submitted from the loop, wait, and come back as events, those of a step in one batch: STARTED, SCORED
 * where scores of the prompt are asked for, then TOKENs, one of which is the last; or REFUSED or CANCELLED, which are
 * the last at any time. After its last event the engine does not touch a sequence, so that its owner may free it.
 * Tokens become text in the loop's thread: this one makes steps, and reads scores.
 */
#ifndef ATLAS_ENGINE_H
#define ATLAS_ENGINE_H

#include "runtime/atlas.h"
#include "runtime/serve/guide.h"
#include "runtime/serve/workers.h"

#include <stdbool.h>

typedef struct PromptScore { /* of a token of the prompt; of the first, after nothing, NaN */
	float logprob;
	AtlasTop top[5]; int n_top;
} PromptScore;
typedef struct Sequence {
	/* the owner's, unchanged until the last event */
	void *owner;
	int choice;
	AtlasRequest request;  /* what it points to lives as long; `sampling` is the one below */
	AtlasSampling sampling;
	PromptScore *scores;   /* [request.n_tokens] the engine fills; NULL = they are not asked for */
	int n_score_tops;      /* alternatives of each */
	GuideSource guided;    /* with a grammar request.masked is 1 */
	/* the engine's */
	struct Sequence *next;
	const AtlasPlan *plan; /* for its scores */
	int slot;
	int64_t number; /* of its start */
	int overtaken;  /* how many that came later have started before it */
	Guide *guide;          /* guide_close by the owner, after the last event */
	bool is_cancelled, is_scored, needs_mask;
} Sequence;

typedef enum EngineEventKind {
	ENGINE_STARTED, ENGINE_SCORED, ENGINE_TOKEN, ENGINE_REFUSED, ENGINE_CANCELLED
} EngineEventKind;

typedef struct EngineEvent {
	Sequence *sequence;
	EngineEventKind kind;
	bool is_last;
	bool is_whole;      /* of the last TOKEN: the structure that was asked for is complete */
	int32_t token;
	float logprob;
	AtlasFinish finish; /* of the last TOKEN */
	AtlasStatus status; /* of REFUSED */
	char *why;          /* of REFUSED: a sentence, free() by who gets it; NULL = none */
	int reused;         /* of a TOKEN: tokens of its prompt that were not read, since they were kept */
	AtlasTop *top;      /* [n_top] alternatives of a TOKEN, free() by who gets it */
	int n_top;
} EngineEvent;

typedef struct EngineBatch { /* free() by who gets it */
	Job job;
	void *ctx;
	/* the session after the step */
	bool is_open;
	char target[32];    /* that runs: "sm_90a"; "" on the reference device */
	char device[160];   /* "NVIDIA H200, 17.3 GiB" */
	int exit_code;      /* not 0: the session could not be opened, or failed for good */
	char failure[512];  /* why; "" = it did not */
	AtlasSessionInfo session; /* of its strings the names of phases alone outlive it */
	bool has_step;      /* the step of `session` is of this batch */
	double seconds;     /* in which the session was asked for it, since the step before */
	double own_seconds; /* of this thread since the step before, without waiting: for the device, and for work */
	int n;
	EngineEvent events[];
} EngineBatch;

typedef struct EngineOptions {
	const AtlasPlan *plan;
	Mail *mail;
	void *ctx;
	/* In the engine's thread: 0, or the exit code after the failure was printed. */
	int (*open_session)(void *open_ctx, AtlasSession **session);
	void *open_ctx;
	void (*batch)(Job *job); /* in the loop's thread; the job is that of an EngineBatch */
} EngineOptions;

typedef struct Engine Engine;
Engine *engine_open(const EngineOptions *options); /* NULL: no memory or thread. The session opens meanwhile */
void engine_submit(Engine *e, Sequence *s);
/* Its last event comes soon, CANCELLED or another that was in flight. */
void engine_cancel(Engine *e, Sequence *s);
void engine_close(Engine *e); /* cancels all, ends the thread and closes the session. NULL is fine */

#endif
