/* plan_handle.h - what an AtlasPlan is, for the files of runtime/ and for the `atlas` command. */
#ifndef ATLAS_PLAN_HANDLE_H
#define ATLAS_PLAN_HANDLE_H

#include "artifacts/plan.h"
#include "runtime/atlas.h"
#include "runtime/plan_file.h"
#include "runtime/text/chat.h"
#include "runtime/text/tokenizer.h"

struct AtlasPlan {
	Artifact artifact;
	PlanFiles files;               /* the plan's own, then the checkpoint's of a plan that refers to its weights */
	const uint8_t **weights;       /* [graph.n_weights] where each weight's bytes are mapped; NULL = they are made */
	const char **targets;          /* [n_targets] names */
	int by_reference;              /* weights come from the checkpoint's files */
	bool makes_weights;            /* some are random, and made when a session opens */
	uint64_t seed;                 /* of these */
	AtlasVerify verify;
	uint8_t *no_stops;             /* in place of the weight that holds the stop tokens; NULL = nothing is */
	Tok tokenizer;                 /* over the mapped section */
	int has_tokenizer;
	ChatProgram chat;              /* over the copied section; header NULL = there is none */
	int has_chat;                  /* it can be run */
};

/* All weights whose bytes are there, with their hashes. */
AtlasStatus plan_check_weights(const AtlasPlan *p, AtlasError *error);

/* ATLAS_INTEGRITY when a file of it was written to, or cut, since it was opened. */
AtlasStatus plan_unchanged(const AtlasPlan *p, AtlasError *error);

/* Must a session compare the weights with their hashes? Where it was asked for, and where an open plan's files may have
 * changed after they were compared. */
bool plan_compares(const AtlasPlan *p);

enum { NO_CHAT_BYTES = 512 };
/* Why there is no chat, in words; "" where there is. */
void plan_no_chat(const AtlasPlan *p, char *why, size_t why_bytes);
/* Token ids below this can be drawn: what the plan's sampling says. */
int plan_drawable(const AtlasPlan *p);

/* For measurements: sessions opened from here on end no sequence at a stop token. False: no memory. */
bool plan_ignore_stops(AtlasPlan *p);

#endif
