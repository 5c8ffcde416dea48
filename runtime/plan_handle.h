/* plan_handle.h - what an AtlasPlan is, for the files of runtime/ and for the `atlas` command. */
#ifndef ATLAS_PLAN_HANDLE_H
#define ATLAS_PLAN_HANDLE_H

#include "artifacts/plan.h"
#include "runtime/atlas.h"
#include "runtime/text/tokenizer.h"

typedef struct MappedFile {
	const char *name;     /* base name, owned by the artifact; NULL for the plan itself */
	const uint8_t *bytes; /* NULL = not mapped */
	int64_t n;
} MappedFile;

struct AtlasPlan {
	Artifact artifact;
	MappedFile file;
	MappedFile *refs; int n_refs;  /* checkpoint files of a plan that refers to its weights */
	const uint8_t **weights;       /* [graph.n_weights] where each weight's bytes are mapped; NULL = they are made */
	const char **targets;          /* [n_targets] names */
	int by_reference;              /* weights come from the checkpoint's files */
	bool makes_weights;            /* some are random, and made when a session opens */
	uint64_t seed;                 /* of these */
	bool is_lazy;                  /* sessions compare the weights with their hashes */
	uint8_t *no_stops;             /* in place of the weight that holds the stop tokens; NULL = nothing is */
	Tok tokenizer;                 /* over the mapped section */
	int has_tokenizer;
};

/* All weights whose bytes are there, with their hashes. */
AtlasStatus plan_check_weights(const AtlasPlan *p, AtlasError *error);

/* For who measures: sessions opened from here on end no sequence at a stop token. False: no memory. */
bool plan_ignore_stops(AtlasPlan *p);

#endif
