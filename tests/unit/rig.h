/* rig.h - a plan file of a synthetic model, its handle, and a session on the fake driver. */
#ifndef TESTS_RIG_H
#define TESTS_RIG_H

#include "artifacts/random_weights.h"
#include "runtime/session.h"
#include "tests/unit/fake_gpu.h"
#include "tests/unit/made_plan.h"

typedef struct Rig {
	MadePlan made;
	AtlasPlan *plan;
	FakeDriver fake;
	FakeGpu gpu;
	Driver driver;
	AtlasSession *session;
	AtlasError error;
	int steps_ahead;
	RandomTables random;
	const DeviceWatch *watch;
} Rig;

void rig_made(Rig *r); /* of r->made: the file, the handle and the driver */
void rig_plan(Rig *r, const char *model_type, int pool_tokens); /* all but the session */
/* The same of a checkpoint's configuration, tensors and tokenizer; weights are made up. */
void rig_checkpoint(Rig *r, const char *folder);
void rig_checkpoint_of(Rig *r, const char *folder, int pool_tokens); /* tokens of KV pages of 16; 0 = the folder's */
/* With options that a MODEL.toml would have changed; NULL = none. */
void rig_checkpoint_as(Rig *r, const char *folder, void (*change)(Options *));
AtlasStatus open_fake(Rig *r); /* r->session, r->steps_ahead steps ahead */
void rig_open(Rig *r, const char *model_type, int pool_tokens);
void rig_close(Rig *r); /* nothing may be left behind */

typedef struct Collected { float *at; int n, cap; } Collected;
void collect(Collected *c, const float *values, int n);
int take_logits(void *ctx, int pos, const float *logits); /* AtlasLogitsFn: into a Collected */

void fill_prompt(int32_t *tokens, int n, int salt);
/* Runs everything that was started; answers[slot] gets the tokens. */
void run_all(AtlasSession *s, int answers[][64], int counts[], AtlasFinish finish[]);

/* What the driver is asked: names of the logged calls, equal neighbours counted; lines of one name left out. */
void log_calls(Rig *r, char **log, size_t *n);
void assert_calls(Rig *r, char **log, const char *want);
void drop_lines(char *text, const char *word);
void summarise(const char *log, char *out, size_t n);

#endif
