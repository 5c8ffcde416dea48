/* cli_trace.h - everything a model computes on the way through a prompt, in host memory. */
#ifndef ATLAS_CLI_TRACE_H
#define ATLAS_CLI_TRACE_H

#include "runtime/cli/cli.h"

typedef struct Trace Trace;
struct Trace { /* zeroed = empty */
	const Trace *follows; /* NULL = none */
	bool is_gpu; /* it ran on one */
	int rows; /* tokens */
	int n_layers, hidden_dim, vocab;
	float *hidden; /* [n_layers, rows, hidden_dim] output of each layer; NULL when not asked for */
	float *logits; /* [rows, vocab] */
};

/* Runs the prompt: for the layers launch by launch, for the logits by graphs. follows: NULL, or a trace of the same
 * prompt, from whose layers' outputs each next layer and the logits start; the session is of the reference device then.
 * 0, or the exit code after the failure was printed; the trace is to be freed either way. */
int trace_prompt(const Args *args, const AtlasPlan *plan, AtlasSession *session,
	const Tokens *tokens, bool wants_hidden, const Trace *follows, Trace *trace);
void trace_free(Trace *trace);

typedef struct Difference { /* of two outputs [rows, cols] */
	double cosine;    /* least of all rows; not a number when one is not */
	double median;    /* of rows; those that are no numbers come first */
	double max_error; /* largest of all elements */
	double relative;  /* to the largest magnitude of the reference */
	double rms;       /* root of the mean square of the error, over that of the reference */
} Difference;
/* cosines: room for [rows] */
Difference trace_compare(const float *got, const float *want, int rows, int cols, double *cosines);

#endif
