/* bench_kernels.c - every launch of the plan alone, on the state that a real step leaves.
 *
 * For each bucket a step of it is run through the session, so that rows, positions, pages and activations are those of
 * a real text of random tokens. Then its launches are walked in order: each is timed alone, again and again, with
 * nothing of its own in the L2 cache, and by that has done its work for the next one. Launches that are one kernel on
 * operands of one shape are timed once and counted. At last all of them are timed in a row, as in a step: what that
 * saves is what launches share, their start and the caches.
 *
 * The walk moves the slots' state on without the session's knowledge, so its sequences are cancelled afterwards.
 */
#include "runtime/cli/bench/bench.h"
#include "runtime/session.h"

#include <stdlib.h>
#include <string.h>

enum { REPS = 21, STEP_REPS = 9, SPARE = 128 /* positions for the steps that are timed */, CONTEXT = 1024 };

static int timer_failed(const Bench *b) { return cli_fail(b->args, timer_error(b->timer)); }

/* Launches of one kind ----------------------------------------------------------------------------------- */

static bool same_shapes(const Phase *p, const Launch *a, const Launch *b)
{
	if (a->kernel != b->kernel || a->op != b->op || memcmp(a->grid, b->grid, sizeof a->grid) != 0)
		return false;
	for (int i = 0; i < a->n_args; i++) {
		const Buf *x = a->args[i].buf < 0 ? NULL : &p->bufs[a->args[i].buf];
		const Buf *y = b->args[i].buf < 0 ? NULL : &p->bufs[b->args[i].buf];
		if (!x != !y || (x && (x->bytes != y->bytes || x->arena != y->arena)))
			return false;
	}
	return true;
}

static BenchKernel *find_kind(const Bench *b, int first, const Phase *p, const Launch *l)
{
	for (int i = first; i < b->n_kernels; i++)
		if (same_shapes(p, b->kernels[i].launch, l))
			return &b->kernels[i];
	return NULL;
}

static const char *tunables_of(const Bench *b, const Launch *l)
{
	const Artifact *a = &b->plan->artifact;
	const Slot *s = &a->ledger[b->target - a->targets][l->slot];
	for (int i = 0; i < s->n_candidates; i++)
		if (s->candidates[i].verdict == CHOSEN)
			return s->candidates[i].tunables;
	return "";
}

static void weigh(BenchKernel *k, const StepUse *use)
{
	Work w = launch_work(k->phase, k->launch, use);
	k->bytes = w.bytes + (double)k->launch->write_bytes;
	k->flops = w.flops;
	k->fp8 = w.fp8;
	k->fp4 = w.fp4;
}

static int compare_lost(const void *a, const void *b)
{
	double x = ((const BenchKernel *)a)->lost_us, y = ((const BenchKernel *)b)->lost_us;
	return (x < y) - (x > y);
}

/* The walk ----------------------------------------------------------------------------------------------- */

static int walk(Bench *b, const Phase *p, const StepUse *use, TimedLaunch *list)
{
	int first = b->n_kernels;
	BenchPhase *whole = &b->phases[b->n_phases++];
	*whole = (BenchPhase){.phase = p, .rows = use->rows, .context = (int)(use->positions / use->rows)};
	for (int i = 0; i < p->n_launches; i++) {
		const Launch *l = &p->launches[i];
		if (timer_launch(b->timer, p, l, &list[i]) != ATLAS_OK)
			return timer_failed(b);
		BenchKernel *k = find_kind(b, first, p, l);
		if (k) {
			k->count++;
			if (timer_run(b->timer, &list[i]) != ATLAS_OK)
				return timer_failed(b);
			continue;
		}
		k = &b->kernels[b->n_kernels++];
		*k = (BenchKernel){.phase = p, .launch = l, .kernel = &b->target->kernels[l->kernel],
			.tunables = tunables_of(b, l), .count = 1};
		if (timer_measure(b->timer, &list[i], 1, REPS, true, &k->time) != ATLAS_OK)
			return timer_failed(b);
		weigh(k, use);
		if (cli_interrupted())
			return EXIT_INTERRUPTED;
	}
	for (int i = 0; i < p->n_launches; i++)
		list[i].overlaps = p->launches[i].overlaps;
	if (timer_measure(b->timer, list, p->n_launches, STEP_REPS, false, &whole->step) != ATLAS_OK)
		return timer_failed(b);
	return 0;
}

static void settle_phase(const Bench *b, BenchPhase *whole)
{
	int first = 0, n = 0;
	while (first < b->n_kernels && b->kernels[first].phase != whole->phase)
		first++;
	whole->alone_us = whole->bound_us = 0;
	for (BenchKernel *k = b->kernels + first; first + n < b->n_kernels && k->phase == whole->phase; k++, n++) {
		const Work w = {k->bytes, k->flops, k->fp8, k->fp4};
		k->bound_us = bound_us(&b->bounds, &w, &k->bound);
		k->lost_us = k->count * (k->time.us - k->bound_us);
		whole->alone_us += k->count * k->time.us;
		whole->bound_us += k->count * k->bound_us;
	}
	qsort(b->kernels + first, (size_t)n, sizeof *b->kernels, compare_lost);
}

void bench_settle_kernels(Bench *b)
{
	for (int i = 0; i < b->n_phases; i++)
		settle_phase(b, &b->phases[i]);
}

/* Brings the session to a step of that phase of a flight; use->rows = 0 when it cannot be reached. */
static int reach_flight(Bench *b, const Phase *p, StepUse *use)
{
	const int each = p->kind == VERIFY ? p->each : 1, wanted = p->rows / each;
	const int batch = wanted < b->info.slots ? wanted : b->info.slots, rows = batch * each;
	int room = bench_room(b, batch) - SPARE, prompt = room < CONTEXT ? room : CONTEXT;
	bool ended = false;
	if (prompt < 1 || phase_for(b->target, p->kind, rows, rows, p->each) != p)
		return 0;
	session_speculate(b->session, p->kind != DECODE);
	session_force_rows(b->session, p->each);
	int code = bench_start(b, batch, prompt, SPARE);
	if (!code)
		code = bench_steps(b, batch, 2, &ended);
	double seen = prompt + 2;
	if (!ended)
		*use = (StepUse){.rows = rows, .outs = rows, .positions = rows * (seen + (each - 1) / 2.0),
			.history = batch * (seen + each - 1), .sequences = batch};
	return code;
}

static int reach_prefill(Bench *b, const Phase *p, StepUse *use)
{
	int room = b->info.max_context, n = (p->rows + room - 1) / room, each = p->rows / n, made;
	if (n > b->info.slots || n > p->outs || bench_room(b, n) < each ||
		phase_for(b->target, PREFILL, n * each, n, 0) != p)
		return 0;
	session_speculate(b->session, false);
	int left = bench_room(b, n) - each + 1, code = bench_start(b, n, each, left < SPARE ? left : SPARE);
	if (code)
		return code;
	AtlasStatus s = atlas_step(b->session, b->events, b->n_events, &made);
	if (s != ATLAS_OK)
		return cli_fail_session(b->args, b->session, s);
	*use = (StepUse){.rows = n * each, .outs = n, .positions = n * (each * (each + 1) / 2.0), .history = n * each,
		.sequences = n};
	return 0;
}

static int run_phase(Bench *b, const Phase *p)
{
	StepUse use = {0};
	int code = p->kind == PREFILL ? reach_prefill(b, p, &use) : reach_flight(b, p, &use);
	TimedLaunch *list = use.rows ? aligned_alloc(_Alignof(TimedLaunch), sizeof *list * (size_t)p->n_launches) : NULL;
	if (!code && use.rows)
		code = list ? walk(b, p, &use, list) : cli_say(b->args, EXIT_ENVIRONMENT, "no memory for %d launches",
			p->n_launches);
	free(list);
	int cancelled = bench_cancel_all(b);
	session_force_rows(b->session, 0);
	return code ? code : cancelled;
}

int bench_run_kernels(Bench *b)
{
	int code = 0, launches = 0;
	for (int i = 0; i < b->target->n_phases; i++)
		launches += b->target->phases[i].n_launches;
	b->kernels = calloc((size_t)launches, sizeof *b->kernels);
	b->phases = calloc((size_t)b->target->n_phases, sizeof *b->phases);
	if (!b->kernels || !b->phases)
		return cli_say(b->args, EXIT_ENVIRONMENT, "no memory for %d launches", launches);
	for (int kind = cli_speculates(b->args) ? VERIFY : DECODE; kind >= PREFILL; kind--)
		for (int i = 0; i < b->target->n_phases && !code; i++)
			if ((int)b->target->phases[i].kind == kind)
				code = run_phase(b, &b->target->phases[i]);
	return code;
}
