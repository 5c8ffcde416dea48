/* cli_trace.c - see cli_trace.h. */
#include "runtime/cli/cli_trace.h"
#include "runtime/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int keep_layer(void *ctx, int layer, int pos, int rows, int cols, float *hidden)
{
	Trace *t = ctx;
	if (layer >= t->n_layers || cols != t->hidden_dim || pos + rows > t->rows)
		return 1; /* the plan says otherwise */
	size_t at = ((size_t)layer * (size_t)t->rows + (size_t)pos) * (size_t)cols;
	memcpy(t->hidden + at, hidden, sizeof *hidden * (size_t)rows * (size_t)cols);
	if (t->follows) /* the next layer starts from there */
		memcpy(hidden, t->follows->hidden + at, sizeof *hidden * (size_t)rows * (size_t)cols);
	return cli_interrupted();
}

static int keep_logits(void *ctx, int pos, const float *logits)
{
	Trace *t = ctx;
	memcpy(t->logits + (size_t)pos * (size_t)t->vocab, logits, sizeof *logits * (size_t)t->vocab);
	return cli_interrupted();
}

int trace_prompt(const Args *args, const AtlasPlan *plan, AtlasSession *session,
	const Tokens *tokens, bool wants_hidden, const Trace *follows, Trace *trace)
{
	AtlasPlanInfo info = {.struct_size = sizeof info};
	AtlasStatus status = ATLAS_OK;
	atlas_plan_info(plan, &info);
	AtlasSessionInfo device = {.struct_size = sizeof device};
	atlas_session_info(session, &device);
	*trace = (Trace){.follows = follows, .is_gpu = strcmp(device.device, "cpu") != 0,
		.rows = tokens->n,
		.n_layers = info.n_layers,
		.hidden_dim = info.hidden_dim,
		.vocab = info.vocab};
	size_t rows = (size_t)tokens->n, cells = rows * (size_t)info.n_layers * (size_t)info.hidden_dim;
	trace->logits = calloc(rows + 1, sizeof(float) * (size_t)info.vocab);
	if (wants_hidden)
		trace->hidden = calloc(cells + 1, sizeof(float));
	if (!trace->logits || (wants_hidden && !trace->hidden))
		return cli_say(args, EXIT_ENVIRONMENT, "no memory for the outputs of %zu tokens", rows);
	if (follows && (trace->n_layers != follows->n_layers || trace->hidden_dim != follows->hidden_dim))
		return cli_say(args, EXIT_BAD_INPUT, "layers cannot start from outputs of layers with another shape");
	const bool at_once = follows || (wants_hidden && !trace->is_gpu); /* the reference has no other way to run */
	if (at_once || wants_hidden) /* at once, the logits start from what the layers leave */
		status = session_walk(session, tokens->ids, tokens->n, keep_layer, at_once ? keep_logits : NULL, trace);
	if (status == ATLAS_OK && !at_once) /* by the graphs that serve; layers came launch by launch */
		status = atlas_score(session, tokens->ids, tokens->n, keep_logits, trace);
	if (status == ATLAS_STOPPED)
		return EXIT_INTERRUPTED;
	return status == ATLAS_OK ? 0 : cli_fail_session(args, session, status);
}

void trace_free(Trace *t)
{
	free(t->hidden);
	free(t->logits);
	*t = (Trace){0};
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return isnan(x) || isnan(y) ? isnan(y) - isnan(x) : (x > y) - (x < y);
}

Difference trace_compare(const float *got, const float *want, int rows, int cols, double *cosines)
{
	Difference d = {1, 1, 0, 0, 0};
	double largest = 0, squares = 0, errors = 0;
	for (int t = 0; t < rows; t++) {
		double dot = 0, a = 0, b = 0;
		for (int i = 0; i < cols; i++) {
			double x = got[(size_t)t * (size_t)cols + (size_t)i], y = want[(size_t)t * (size_t)cols + (size_t)i];
			dot += x * y;
			a += x * x;
			b += y * y;
			errors += (x - y) * (x - y);
			d.max_error = isnan(x - y) || isnan(d.max_error) ? NAN : fmax(d.max_error, fabs(x - y));
			largest = fmax(largest, fabs(y));
		}
		squares += b;
		double cosine = a == 0 && b == 0 ? 1 : dot / sqrt(a * b);
		if (isnan(cosine) || cosine < d.cosine)
			d.cosine = cosine;
		cosines[t] = cosine;
	}
	qsort(cosines, (size_t)rows, sizeof *cosines, by_size);
	d.median = rows ? cosines[rows / 2] : 1;
	d.relative = largest > 0 ? d.max_error / largest : d.max_error;
	d.rms = squares > 0 ? sqrt(errors / squares) : sqrt(errors);
	return d;
}
