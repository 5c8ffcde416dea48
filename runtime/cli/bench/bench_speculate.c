/* bench_speculate.c - rows of atlas bench whose steps draft and verify.
 *
 * A step makes as many tokens as drafts are accepted, and one more: so a row counts tokens, and says how many a step
 * made. On random weights a head is never right; --acceptance prescribes which drafts count as accepted, by a hash of
 * their positions (artifacts/ops.h, limits). All kernels run as ever: it is the last word of one of them that is given.
 */
#include "runtime/cli/bench/bench.h"

#include <string.h>

int bench_rows_each(const Bench *b, const BenchRow *row)
{
	return row->kind == ROW_SPECULATE ? ladder_rows(b->graph, row->batch) : 1;
}

/* Runs whole steps until `more` tokens are there; *made tokens of *steps steps of a sequence. */
static int run_steps(Bench *b, int64_t more, int64_t *made, int64_t *steps, bool *ended)
{
	*made = *steps = 0;
	*ended = false;
	while (*made < more && !*ended) {
		int n;
		AtlasStatus s = atlas_step(b->session, b->events, b->n_events, &n);
		if (s != ATLAS_OK)
			return cli_fail_session(b->args, b->session, s);
		*made += n;
		*steps += n > 0;
		for (int i = 0; i < n; i++)
			*ended |= b->events[i].finish != ATLAS_RUNNING;
		if (cli_interrupted())
			return EXIT_INTERRUPTED;
	}
	return 0;
}

int bench_time_speculate(Bench *b, BenchRow *row, int prompt, int reps, double *ms, bool *ended)
{
	const int most = bench_rows_each(b, row);
	const int64_t more = (int64_t)row->batch * row->tokens;
	const int sampled = bench_sample_tokens(b, row);
	int max_new = 2 * (BENCH_WARM_STEPS * most + sampled) + reps * (row->tokens + most) + BENCH_SLACK * most;
	int room = bench_room(b, row->batch) - prompt - most + 1;
	int64_t made, steps, all_made = 0, all_steps = 0;
	AtlasSessionInfo before = {.struct_size = sizeof before}, after = before;
	int code = bench_start(b, row->batch, prompt, max_new < room ? max_new : room);
	if (!code)
		code = run_steps(b, (int64_t)row->batch * (1 + BENCH_WARM_STEPS), &made, &steps, ended);
	if (!code && !*ended)
		code = bench_sample_flight(b, row, ended);
	if (!code && !*ended && sampled)
		code = run_steps(b, (int64_t)row->batch * BENCH_WARM_STEPS, &made, &steps, ended);
	atlas_session_info(b->session, &before);
	for (int i = 0; i < reps && !code && !*ended; i++) {
		const double start = cli_seconds();
		code = run_steps(b, more, &made, &steps, ended);
		ms[i] = 1e3 * (cli_seconds() - start) / (double)(steps > 0 ? steps : 1);
		all_made += made;
		all_steps += steps;
	}
	atlas_session_info(b->session, &after);
	if (!code && !*ended && all_steps > 0) {
		row->step_tokens = (double)all_made / (double)(all_steps * row->batch);
		const int64_t drafts = after.drafts - before.drafts;
		row->accepted = drafts ? (double)(after.accepted_drafts - before.accepted_drafts) / (double)drafts : 0;
	}
	if (!code && !*ended)
		code = bench_sample_flight(b, row, ended);
	return code;
}

/* What the two phases of a step do, the context being that of its middle; *nodes their launches. */
Work bench_speculate_work(const Bench *b, const BenchRow *row, double mean, int *nodes)
{
	const int each = bench_rows_each(b, row), rows = row->batch * each;
	const Phase *draft = b->target ? phase_for(b->target, DRAFT, row->batch, row->batch, each) : NULL;
	const Phase *verify = b->target ? phase_for(b->target, VERIFY, rows, rows, each) : NULL;
	const StepUse one = {.rows = row->batch, .outs = row->batch, .positions = row->batch * mean,
		.history = row->batch * mean, .experts = bench_experts(b, &row->experts, true, row->batch),
		.sequences = row->batch};
	const StepUse all = {.rows = rows, .outs = rows, .positions = rows * (mean + (each - 1) / 2.0),
		.history = row->batch * (mean + each - 1), .experts = row->a_layer, .sequences = row->batch};
	Work sum = {0};
	*nodes = 0;
	if (!verify)
		return sum;
	sum = phase_work(verify, &all);
	*nodes = verify->n_launches;
	if (!draft) /* the host drafts, or nothing does */
		return sum;
	const Work first = phase_work(draft, &one);
	add_work(&sum, &first);
	*nodes += draft->n_launches;
	return sum;
}
