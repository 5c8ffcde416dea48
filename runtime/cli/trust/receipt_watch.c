/* receipt_watch.c - graphs against the plan while they are built, steps as they are given, and the comparison. */
#include "artifacts/hash.h"
#include "runtime/cli/trust/receipt.h"
#include "runtime/ranks/cuda_peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(char *why, size_t n, const char *what, const int *seen, const int *planned, int count)
{
	size_t at = strlen(why);
	at += (size_t)snprintf(why + at, n - at, "%s%s", at ? ", " : "", what);
	for (int i = 0; i < count && at < n; i++)
		at += (size_t)snprintf(why + at, n - at, " %d", seen[i]);
	for (int i = 0; i < count && at < n; i++)
		at += (size_t)snprintf(why + at, n - at, i ? " %d" : " where the plan has %d", planned[i]);
}

/* What is not as planned (a GPU gives a thread no fewer than 16 registers): "grid 4 1 1 where the plan has
 * 8 1 1"; "" = nothing. */
static void receipt_compare(const Kernel *k, const Launch *l, const SeenLaunch *seen, char *why, size_t n)
{
	why[0] = 0;
	if (strcmp(seen->name, k->entry) != 0)
		snprintf(why, n, "%.80s where the plan has %.80s", seen->name, k->entry);
	const int least_registers = 16, registers = k->registers > least_registers ? k->registers : least_registers;
	const struct { const char *what; const int *seen, *planned; int count; } rows[] = {
		{"grid", seen->grid, l->grid, 3}, {"block", seen->block, k->block, 3},
		{"shared memory", &seen->smem_bytes, &k->smem_bytes, 1},
		{"registers", &seen->registers, &registers, 1},
		{"static shared memory", &seen->static_smem_bytes, &k->static_smem_bytes, 1}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (rows[i].seen[0] >= 0 && memcmp(rows[i].seen, rows[i].planned, sizeof(int) * (size_t)rows[i].count) != 0 &&
			strlen(why) + 80 < n)
			say(why, n, rows[i].what, rows[i].seen, rows[i].planned, rows[i].count);
}

/* The watch ---------------------------------------------------------------------------------------- */

static void on_stage(void *ctx, WatchStage stage, int64_t free_bytes, int64_t total_bytes)
{
	Watch *w = ctx;
	w->free_bytes[stage] = free_bytes;
	w->total_bytes = total_bytes;
}

static void on_node(void *ctx, int phase, int step, int launch, const SeenLaunch *seen)
{
	Watch *w = ctx;
	char why[192];
	const Phase *p = &w->plan->phases[phase];
	const Launch *l = &p->launches[launch];
	receipt_compare(&w->plan->kernels[l->kernel], l, seen, why, sizeof why);
	w->n_nodes++;
	if (!why[0])
		return;
	if (w->n_bad++ == 0)
		snprintf(w->first_bad, sizeof w->first_bad, "graph of %s, step %d, node %d: %s", PHASE_LABEL(p), step,
			launch, why);
}

static void on_launched(void *ctx, int phase, int steps)
{
	Watch *w = ctx;
	if (w->n_log && w->log[w->n_log - 1].phase == phase) {
		w->log[w->n_log - 1].steps += steps;
		return;
	}
	if (w->n_log == w->cap) {
		int cap = w->cap ? 2 * w->cap : 64;
		PhaseSteps *log = realloc(w->log, sizeof *log * (size_t)cap);
		if (!log) {
			w->is_short_of_memory = true;
			return;
		}
		w->log = log;
		w->cap = cap;
	}
	w->log[w->n_log++] = (PhaseSteps){phase, steps};
}

void watch_start(Watch *w, const TargetPlan *plan)
{
	*w = (Watch){.plan = plan};
	w->hooks = (DeviceWatch){w, on_stage, on_node, on_launched};
}

void watch_end(Watch *w)
{
	free(w->log);
	w->log = NULL;
}

/* The comparison -------------------------------------------------------------------------------------- */

static void hash_line(Sha256 *h, const char *name, const int *grid, const int *block, int smem_bytes)
{
	char line[256];
	int n = snprintf(line, sizeof line, "%.128s %d %d %d %d %d %d %d\n", name, grid[0], grid[1], grid[2], block[0],
		block[1], block[2], smem_bytes);
	sha256_add(h, line, (size_t)n);
}

/* The first launch of the step that may start, was not seen yet, and is as seen; -1 = none. *lowest: the first that was
 * not seen. */
static int find_launch(const TargetPlan *t, const Phase *p, const bool *done, const SeenLaunch *seen, int *lowest)
{
	char why[192];
	*lowest = -1;
	for (int i = 0; i < p->n_launches; i++) {
		const Launch *l = &p->launches[i];
		bool is_ready = !done[i];
		if (is_ready && *lowest < 0)
			*lowest = i;
		for (int d = 0; d < l->n_deps; d++)
			is_ready &= done[l->deps[d]];
		if (!is_ready)
			continue;
		receipt_compare(&t->kernels[l->kernel], l, seen, why, sizeof why);
		if (!why[0])
			return i;
	}
	return -1;
}

/* One step from ran[*at] on; false after the first difference. */
static bool match_step(const TargetPlan *t, const Phase *p, int step, const RanKernel *ran, int n, int *at, bool *done,
	Match *m)
{
	char why[192];
	memset(done, 0, sizeof *done * (size_t)p->n_launches);
	for (int i = 0; i < p->n_launches; i++, (*at)++) {
		int lowest;
		if (*at == n) {
			snprintf(m->first_difference, sizeof m->first_difference, "step %d, %s: %d of %d launches ran", step,
				PHASE_LABEL(p), i, p->n_launches);
			return false;
		}
		int found = find_launch(t, p, done, &ran[*at].seen, &lowest);
		if (found < 0) {
			const Launch *l = &p->launches[lowest];
			receipt_compare(&t->kernels[l->kernel], l, &ran[*at].seen, why, sizeof why);
			snprintf(m->first_difference, sizeof m->first_difference, "step %d, %s, launch %d: %s", step,
				PHASE_LABEL(p), lowest, why);
			return false;
		}
		m->out_of_place += found != lowest;
		done[found] = true;
	}
	return true;
}

/* NCCL puts kernels of its own into the graphs, before the launches that are to have what they make: they are counted,
 * and `ran` is what is left. */
static int count_nccl(const Watch *w, RanKernel *ran, int n, Match *m)
{
	int left = 0;
	for (int i = 0; i < w->n_log; i++) {
		const Phase *p = &w->plan->phases[w->log[i].phase];
		for (int k = 0; k < p->n_launches; k++)
			m->nccl_planned += is_by_nccl(p->launches[k].op) ? w->log[i].steps : 0;
	}
	for (int i = 0; i < n && m->nccl_planned; i++)
		if (strncmp(ran[i].seen.name, "nccl", 4) == 0)
			m->nccl_observed++;
		else
			ran[left++] = ran[i];
	return m->nccl_planned ? left : n;
}

bool receipt_match(const Watch *w, RanKernel *ran, int n, Match *m)
{
	const TargetPlan *t = w->plan;
	Sha256 planned, observed;
	int most = 1, at = 0, step = 0;
	*m = (Match){.observed = 0};
	n = count_nccl(w, ran, n, m);
	m->observed = n;
	for (int p = 0; p < t->n_phases; p++)
		most = t->phases[p].n_launches > most ? t->phases[p].n_launches : most;
	bool *done = malloc(sizeof *done * (size_t)most), is_equal = true;
	if (!done)
		return false;
	sha256_start(&planned);
	sha256_start(&observed);
	for (int i = 0; i < n; i++)
		hash_line(&observed, ran[i].seen.name, ran[i].seen.grid, ran[i].seen.block, ran[i].seen.smem_bytes);
	for (int i = 0; i < w->n_log; i++)
		for (int s = 0; s < w->log[i].steps; s++, step++) {
			const Phase *p = &t->phases[w->log[i].phase];
			for (int k = 0; k < p->n_launches; k++) {
				const Kernel *kernel = &t->kernels[p->launches[k].kernel];
				hash_line(&planned, kernel->entry, p->launches[k].grid, kernel->block, kernel->smem_bytes);
			}
			m->planned += p->n_launches;
			is_equal = is_equal && match_step(t, p, step, ran, n, &at, done, m);
		}
	if (is_equal && at < n)
		snprintf(m->first_difference, sizeof m->first_difference, "%d launches more than planned, the first is %.80s",
			n - at, ran[at].seen.name);
	if (is_equal && at == n && m->nccl_observed != m->nccl_planned)
		snprintf(m->first_difference, sizeof m->first_difference, "%lld kernels of NCCL where the plan has %lld "
			"collectives", (long long)m->nccl_observed, (long long)m->nccl_planned);
	sha256_end(&planned, m->planned_sha256);
	sha256_end(&observed, m->observed_sha256);
	free(done);
	return true;
}
