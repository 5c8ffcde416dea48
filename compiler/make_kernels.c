/* make_kernels.c - compile every kernel that was picked.
 *
 * Layers repeat, so a thousand picks are a few dozen kernels: one for each different template, constants and
 * target. They are listed first, sorted by name and constants, compiled by worker threads into the slots of
 * that list, and only then, in order, checked and written into the plan. So neither the number of threads nor
 * their timing changes a byte. NVRTC keeps no state between programs and may run in several threads.
 *
 * A cubin is believed only after it was read: it must hold the entry with exactly the parameters of the contract,
 * and its registers, shared memory and threads must fit the target. Values in local memory (spilled registers or
 * arrays indexed at run time) are legal and slow, so they are noted and recorded, not refused.
 */
#include "compiler/kernels.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NVRTC takes about 20 MiB a thread: 32 of them keep the whole compile under 1 GiB. */
enum { MAX_THREADS = 32, CUBIN_ALIGN = 16, WHY_BYTES = 256, VERSION_BYTES = 32, REGISTER_UNIT = 8,
	LOCAL_BYTES_UNTOLD = 32 };

typedef struct Job { /* one kernel */
	KernelSource source;
	int work;             /* index in Compile.work */
	const Pick *pick;     /* one of those that want it: block and shared memory */
	Cubin cubin;          /* malloc until the end of the pass */
	char *log;            /* malloc; why it did not compile */
	char cache_why[WHY_BYTES]; /* why it could not be stored, "" = it was, or no cache */
} Job;

typedef struct Pool {
	Job *jobs;
	int n;
	const char *cache_dir; /* NULL = none */
	const char *nvrtc;     /* version */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int next, done; /* jobs handed out, jobs finished; under lock */
} Pool;

/* List -------------------------------------------------------------------------------------------- */

static int compare_jobs(const void *x, const void *y)
{
	const Job *a = x, *b = y;
	if (a->work != b->work)
		return a->work < b->work ? -1 : 1;
	int c = strcmp(a->source.tmpl->name, b->source.tmpl->name);
	return c ? c : strcmp(a->source.defines, b->source.defines);
}

/* Equal source means equal geometry: formulas are of the same constants. */
static void merge(Job *kept, const Job *other)
{
	if (memcmp(kept->pick->block, other->pick->block, sizeof kept->pick->block) != 0 ||
		kept->pick->smem_bytes != other->pick->smem_bytes)
		bug("kernel %s [%s] with two geometries", kept->source.tmpl->name, kept->source.defines);
}

static void list_jobs(Compile *c, Pool *pool)
{
	int n = 0;
	for (int w = 0; w < c->work.n; w++)
		for (int p = 0; p < c->work.at[w].phases.n; p++)
			n += c->work.at[w].phases.at[p].picks.n;
	pool->jobs = ARENA_ARRAY(&c->scratch, Job, n);
	for (int w = 0; w < c->work.n; w++)
		for (int p = 0; p < c->work.at[w].phases.n; p++) {
			const Lowered *low = &c->work.at[w].phases.at[p];
			for (int i = 0; i < low->picks.n; i++) {
				const Pick *k = &low->picks.at[i];
				Job *job = &pool->jobs[pool->n++];
				job->source = (KernelSource){&kernel_table[k->template_index], k->defines,
					c->work.at[w].target->name};
				job->work = w;
				job->pick = k;
			}
		}
	qsort(pool->jobs, (size_t)pool->n, sizeof pool->jobs[0], compare_jobs);
	n = 0;
	for (int i = 0; i < pool->n; i++) {
		if (n > 0 && compare_jobs(&pool->jobs[n - 1], &pool->jobs[i]) == 0)
			merge(&pool->jobs[n - 1], &pool->jobs[i]);
		else
			pool->jobs[n++] = pool->jobs[i];
	}
	pool->n = n;
}

/* Compile, in threads ------------------------------------------------------------------------------ */

static void run_job(const Pool *pool, Job *job)
{
	KernelKey key;
	CubinInfo info;
	char why[WHY_BYTES];
	if (pool->cache_dir) {
		key = kernel_key(&job->source, pool->nvrtc);
		if (cache_get(pool->cache_dir, &key, &job->cubin))
			return;
	}
	if (!nvrtc_compile(&job->source, &job->cubin, &job->log) || !pool->cache_dir)
		return;
	if (cubin_read(job->cubin.bytes, job->cubin.n, job->source.tmpl->name, &info, why, sizeof why))
		cache_put(pool->cache_dir, &key, &job->cubin, job->cache_why, sizeof job->cache_why);
}

static void *worker(void *data)
{
	Pool *pool = data;
	pthread_mutex_lock(&pool->lock);
	while (pool->next < pool->n) {
		Job *job = &pool->jobs[pool->next++];
		pthread_mutex_unlock(&pool->lock);
		run_job(pool, job);
		pthread_mutex_lock(&pool->lock);
		pool->done++;
		pthread_cond_signal(&pool->changed);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* The calling thread only reports progress, which belongs to it, and works itself when no thread can start. */
static void run_jobs(Compile *c, Pool *pool)
{
	pthread_t threads[MAX_THREADS];
	int wanted = c->cmd.jobs < 1 ? 1 : c->cmd.jobs > MAX_THREADS ? MAX_THREADS : c->cmd.jobs;
	int started = 0;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->changed, NULL);
	while (started < wanted && started < pool->n &&
		pthread_create(&threads[started], NULL, worker, pool) == 0)
		started++;
	if (started == 0)
		worker(pool);
	pthread_mutex_lock(&pool->lock);
	for (int seen = 0; seen < pool->n;) {
		while (pool->done == seen)
			pthread_cond_wait(&pool->changed, &pool->lock);
		seen = pool->done;
		pthread_mutex_unlock(&pool->lock);
		if (c->progress)
			c->progress(c, "kernels", seen, pool->n);
		pthread_mutex_lock(&pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
	for (int i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	pthread_mutex_destroy(&pool->lock);
	pthread_cond_destroy(&pool->changed);
}

/* Check and record -------------------------------------------------------------------------------- */

static bool check_limits(Compile *c, const Job *job, const CubinInfo *info)
{
	const KernelTemplate *t = job->source.tmpl;
	const Target *target = c->work.at[job->work].target;
	const int *block = job->pick->block;
	Loc at = {t->file, t->line, 1};
	const char *what = arena_printf(&c->scratch, "kernel %s [%s] for %s", t->name, job->source.defines,
		target->name);
	int64_t threads = (int64_t)block[0] * block[1] * block[2];
	int64_t registers = (info->registers + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
	int64_t warps = (threads + 31) / 32;
	int errors = c->diags.n_errors;
	if (info->param_bytes != t->param_bytes)
		fail_at(&c->diags, A0912, at, "%s: %d bytes of parameters, the contract has %d", what, info->param_bytes,
			t->param_bytes);
	if (threads < 1 || threads > 1024)
		fail_at(&c->diags, A0911, at, "%s: %lld threads a block: expected 1 to 1024", what, (long long)threads);
	if (info->max_threads && threads > info->max_threads)
		fail_at(&c->diags, A0911, at, "%s: %lld threads a block, __launch_bounds__ allows %d", what,
			(long long)threads, info->max_threads);
	if (registers * warps * 32 > target->registers_sm)
		fail_at(&c->diags, A0911, at, "%s: %lld threads of %lld registers: expected at most %d in all", what,
			(long long)warps * 32, (long long)registers, target->registers_sm);
	if ((int64_t)info->static_smem_bytes + job->pick->smem_bytes > target->smem_block_bytes)
		fail_at(&c->diags, A0911, at, "%s: %d + %d bytes of static and dynamic shared memory: expected at most %d",
			what, info->static_smem_bytes, job->pick->smem_bytes, target->smem_block_bytes);
	return c->diags.n_errors == errors;
}

/* Offset of the bytes in Compile.cubins: those of an equal cubin, else new ones at a multiple of CUBIN_ALIGN. */
static int64_t place_cubin(Compile *c, const Cubin *cubin)
{
	for (int w = 0; w < c->work.n; w++) {
		const TargetPlan *plan = &c->work.at[w].plan;
		for (int i = 0; i < plan->n_kernels; i++) {
			const Kernel *k = &plan->kernels[i];
			if (k->cubin_bytes == (int64_t)cubin->n &&
				memcmp(c->cubins.at + k->cubin_offset, cubin->bytes, cubin->n) == 0)
				return k->cubin_offset;
		}
	}
	int offset = (c->cubins.n + CUBIN_ALIGN - 1) / CUBIN_ALIGN * CUBIN_ALIGN;
	int need;
	if (__builtin_add_overflow(offset, cubin->n, &need))
		bug("cubins of more than 2 GiB");
	if (need > c->cubins.cap) { /* in one step: vec_push byte by byte would copy them over and over */
		int cap = need > INT_MAX / 2 ? need : 2 * need;
		uint8_t *grown = arena_alloc(&c->arena, (size_t)cap);
		if (c->cubins.n)
			memcpy(grown, c->cubins.at, (size_t)c->cubins.n);
		c->cubins.at = grown;
		c->cubins.cap = cap;
	}
	memcpy(c->cubins.at + offset, cubin->bytes, cubin->n);
	c->cubins.n = need;
	return offset;
}

static void record(Compile *c, const Job *job)
{
	const KernelTemplate *t = job->source.tmpl;
	Loc at = {t->file, t->line, 1};
	CubinInfo info;
	char why[WHY_BYTES];
	if (!job->cubin.bytes) {
		fail_at(&c->diags, A0910, at, "kernel %s [%s] for %s: NVRTC refuses it:\n%s", t->name, job->source.defines,
			job->source.target, job->log ? job->log : "no memory");
		return;
	}
	if (!cubin_read(job->cubin.bytes, job->cubin.n, t->name, &info, why, sizeof why)) {
		fail_at(&c->diags, A0912, at, "kernel %s [%s] for %s: %s", t->name, job->source.defines,
			job->source.target, why);
		return;
	}
	if (!check_limits(c, job, &info))
		return;
	TargetPlan *plan = &c->work.at[job->work].plan;
	Kernel k = {.name = t->name, .defines = job->source.defines, .entry = t->name,
		.cubin_offset = place_cubin(c, &job->cubin), .cubin_bytes = (int64_t)job->cubin.n,
		.param_bytes = t->param_bytes, .smem_bytes = job->pick->smem_bytes, .registers = info.registers,
		.spill_bytes = info.local_bytes, .static_smem_bytes = info.static_smem_bytes};
	memcpy(k.block, job->pick->block, sizeof k.block);
	memcpy(k.source_sha256, t->source_sha256, sizeof k.source_sha256);
	plan->kernels[plan->n_kernels++] = k;
}

/* One note a target, of the worst: a note for each would push errors out of the list. A few parked registers cost
 * nothing that can be measured: the audit shows them, a note would only worry. */
static void note_local_memory(Compile *c, const TargetWork *work)
{
	const Kernel *worst = NULL;
	int n = 0;
	for (int i = 0; i < work->plan.n_kernels; i++) {
		const Kernel *k = &work->plan.kernels[i];
		if (k->spill_bytes <= LOCAL_BYTES_UNTOLD)
			continue;
		n++;
		if (k->spill_bytes > (worst ? worst->spill_bytes : 0))
			worst = k;
	}
	if (worst)
		note_at(&c->diags, A0914, (Loc){0}, "%d of %d kernels for %s use local memory, most %s [%s]: %d bytes a thread",
			n, work->plan.n_kernels, work->target->name, worst->name, worst->defines, worst->spill_bytes);
}

static int find_kernel(const TargetPlan *plan, const char *name, const char *defines)
{
	for (int i = 0; i < plan->n_kernels; i++)
		if (strcmp(plan->kernels[i].name, name) == 0 && strcmp(plan->kernels[i].defines, defines) == 0)
			return i;
	return -1;
}

static void record_all(Compile *c, const Pool *pool)
{
	for (int w = 0; w < c->work.n; w++) {
		TargetPlan *plan = &c->work.at[w].plan;
		plan->kernels = ARENA_ARRAY(&c->arena, Kernel, pool->n);
		plan->n_kernels = 0;
	}
	int errors = c->diags.n_errors, unstored = 0;
	for (int i = 0; i < pool->n; i++) {
		const Job *job = &pool->jobs[i];
		if (job->cache_why[0] && unstored++ == 0)
			note_at(&c->diags, A0913, (Loc){pool->cache_dir, 0, 0}, "kernel %s is not kept: %s",
				job->source.tmpl->name, job->cache_why);
		record(c, job);
	}
	if (c->diags.n_errors != errors)
		return;
	for (int w = 0; w < c->work.n; w++) {
		note_local_memory(c, &c->work.at[w]);
		for (int p = 0; p < c->work.at[w].phases.n; p++) {
			Lowered *low = &c->work.at[w].phases.at[p];
			for (int i = 0; i < low->picks.n; i++) {
				Pick *k = &low->picks.at[i];
				k->kernel = find_kernel(&c->work.at[w].plan, kernel_table[k->template_index].name, k->defines);
				if (k->kernel < 0)
					bug("no kernel for pick %d", i);
			}
		}
	}
}

void record_tools(Compile *c)
{
	char version[VERSION_BYTES], why[WHY_BYTES], *options = arena_strdup(&c->arena, "");
	if (!nvrtc_version(version, sizeof version, why, sizeof why)) {
		fail_at(&c->diags, A0910, (Loc){0}, "NVRTC does not work: %s", why);
		return;
	}
	for (int i = 0; nvrtc_option(i); i++)
		options = arena_printf(&c->arena, "%s%s%s", options, i ? " " : "", nvrtc_option(i));
	*vec_push(&c->arena, &c->model.options.resolved) =
		(Option){"tool.nvrtc", arena_strdup(&c->arena, version)};
	*vec_push(&c->arena, &c->model.options.resolved) = (Option){"tool.nvrtc_options", options};
}

/* make_kernels - compile, check and record the kernels of all targets.
 *
 *   needs   picks
 *   gives   TargetPlan.kernels (by name, then constants), Compile.cubins, Pick.kernel
 *   breaks  nothing
 *   fails   NVRTC does not work or refuses a kernel; a kernel breaks a limit of its target. A cache that cannot be
 *           used is a note
 */
void make_kernels(Compile *c)
{
	char version[VERSION_BYTES], why[WHY_BYTES];
	if (!nvrtc_version(version, sizeof version, why, sizeof why)) {
		fail_at(&c->diags, A0910, (Loc){0}, "NVRTC does not work: %s", why);
		return;
	}
	Pool pool = {.cache_dir = c->cmd.cache_dir, .nvrtc = version};
	if (pool.cache_dir && !cache_open(pool.cache_dir, why, sizeof why)) {
		note_at(&c->diags, A0913, (Loc){pool.cache_dir, 0, 0}, "no kernel is kept: %s", why);
		pool.cache_dir = NULL;
	}
	list_jobs(c, &pool);
	run_jobs(c, &pool);
	record_all(c, &pool);
	for (int i = 0; i < pool.n; i++) {
		free(pool.jobs[i].cubin.bytes);
		free(pool.jobs[i].log);
	}
}
