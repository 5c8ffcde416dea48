/* made_plan.h - a real plan file of a synthetic model, made by the compiler's passes without NVRTC: every kernel
 * has a cubin without code (made_cubin.h). Weights are small pseudo-random numbers.
 */
#ifndef TESTS_MADE_PLAN_H
#define TESTS_MADE_PLAN_H

#include "compiler/ir.h"

typedef struct MadePlan {
	Compile c;
	Artifact artifact; /* as given to the writer: may be changed before write_made */
	PlanParts parts;
	PlanBlob blob;
	uint8_t *cubins;
	const struct PrivateKey *keys; int n_keys; /* that write_made signs with; set between make and write */
	char path[64];     /* of the file written last */
} MadePlan;

void make_plan(MadePlan *m, const char *model_type); /* pages for all slots */
/* KV pages for pool_tokens (0 = all slots' contexts); one more stop token (-1 = none). */
void make_plan_of(MadePlan *m, const char *model_type, int pool_tokens, int stop_token);
void make_plan_of_model(MadePlan *m); /* of m->c, which synthetic_model filled and the test may have changed */
/* Writes a file of its own, m->path, in memory where there is such a place. Unless embed, the checkpoint's weights are
 * left out; write_made_shard gives the file they come from. */
void write_made(MadePlan *m, bool embed);
/* The made checkpoint's file, into folder. */
void write_made_shard(const MadePlan *m, const char *folder);
void free_made(MadePlan *m); /* removes the file too */

#endif
