/* make_kernels.c - compile every kernel that was picked.
 *
 * Layers repeat, so a thousand picks are a few dozen kernels: one for each different template, constants and
 * target. They are listed first, sorted by name and constants, compiled by child processes (nvrtc_pool.c) into the
 * slots of that list, and only then, in order, checked and written into the plan. So neither the number of processes
 * nor their timing changes a byte.
 *
 * A cubin is believed only after it was read: it must hold the entry with exactly the parameters of the contract,
 * and its registers, shared memory and threads must fit the target. Values in local memory (spilled registers or
 * arrays indexed at run time) are legal and slow, so they are noted and recorded, not refused.
 */
#include "compiler/kernels/kernels.h"
#include "compiler/pick/times.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STATIC_SMEM = 48 << 10 /* of a block on any GPU; ptxas takes more */ };
enum { CUBIN_ALIGN = 16, WHY_BYTES = 1024, VERSION_BYTES = 32, REGISTER_UNIT = 8,
	LOCAL_BYTES_UNTOLD = 32 };

typedef struct Job { /* one kernel */
	KernelSource source;
	int work;             /* index in Compile.work */
	const Pick *pick;     /* one of those that want it: block and shared memory */
	bool is_picked;       /* the plan launches it */
	bool is_trial;        /* a candidate that `atlas tune` shall time */
	Cubin cubin;          /* malloc until the end of the pass */
	char *log, *ended;    /* malloc; why it did not compile, or how NVRTC ended at it */
	char cache_why[WHY_BYTES]; /* why it could not be stored, "" = it was, or no cache */
} Job;

typedef struct Pool {
	Job *jobs;
	int n;
	const char *cache_dir; /* NULL = none */
	bool reads_cache;      /* else it is only written */
	const char *nvrtc;     /* version */
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
	kept->is_picked |= other->is_picked;
	kept->is_trial |= other->is_trial;
	if (memcmp(kept->pick->block, other->pick->block, sizeof kept->pick->block) != 0 ||
		kept->pick->smem_bytes != other->pick->smem_bytes)
		bug("kernel %s [%s] with two geometries", kept->source.tmpl->name, kept->source.defines);
}

static void add_job(Compile *c, Pool *pool, int work, const Pick *k, bool is_trial)
{
	pool->jobs[pool->n++] = (Job){.source = {&kernel_table[k->template_index], k->defines,
		c->work.at[work].target->name}, .work = work, .pick = k, .is_picked = !is_trial, .is_trial = is_trial};
}

static void list_jobs(Compile *c, Pool *pool)
{
	int n = 0;
	for (int w = 0; w < c->work.n; w++) {
		n += c->work.at[w].trials.n;
		for (int p = 0; p < c->work.at[w].phases.n; p++)
			n += c->work.at[w].phases.at[p].picks.n;
	}
	pool->jobs = ARENA_ARRAY(&c->scratch, Job, n);
	for (int w = 0; w < c->work.n; w++) {
		for (int p = 0; p < c->work.at[w].phases.n; p++)
			for (int i = 0; i < c->work.at[w].phases.at[p].picks.n; i++)
				add_job(c, pool, w, &c->work.at[w].phases.at[p].picks.at[i], false);
		for (int i = 0; i < c->work.at[w].trials.n; i++)
			add_job(c, pool, w, &c->work.at[w].trials.at[i].pick, true);
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

/* Compile, in processes ---------------------------------------------------------------------------- */

typedef struct Round { /* what the cache lacks */
	Compile *c;
	const Pool *pool;
	CompileJob *list;
	Job **jobs; /* of the list, in order */
	int done;   /* of the pool's jobs */
} Round;

static void keep(const Pool *pool, Job *job)
{
	CubinInfo info;
	char why[WHY_BYTES];
	if (pool->cache_dir && cubin_read(job->cubin.bytes, job->cubin.n, job->source.tmpl->name, &info, why, sizeof why)) {
		const KernelKey key = kernel_key(&job->source, pool->nvrtc);
		cache_put(pool->cache_dir, &key, &job->cubin, job->cache_why, sizeof job->cache_why);
	}
}

static void on_done(void *ctx, int i)
{
	Round *r = ctx;
	Job *job = r->jobs[i];
	job->cubin = r->list[i].cubin;
	job->log = r->list[i].log;
	job->ended = r->list[i].ended;
	if (job->cubin.bytes)
		keep(r->pool, job);
	if (r->c->progress)
		r->c->progress(r->c, "kernels", ++r->done, r->pool->n);
}

static void run_jobs(Compile *c, const Pool *pool)
{
	Round r = {.c = c, .pool = pool, .list = ARENA_ARRAY(&c->scratch, CompileJob, pool->n + 1),
		.jobs = ARENA_ARRAY(&c->scratch, Job *, pool->n + 1)};
	int n = 0;
	for (int i = 0; i < pool->n; i++) {
		Job *job = &pool->jobs[i];
		if (pool->cache_dir && pool->reads_cache) {
			const KernelKey key = kernel_key(&job->source, pool->nvrtc);
			if (cache_get(pool->cache_dir, &key, &job->cubin))
				continue;
		}
		r.list[n] = (CompileJob){.source = &job->source};
		r.jobs[n++] = job;
	}
	r.done = pool->n - n;
	if (c->progress && r.done)
		c->progress(c, "kernels", r.done, pool->n);
	nvrtc_pool_run(r.list, n, c->cmd.jobs, NVRTC_SECONDS, on_done, &r);
}

/* Check and record -------------------------------------------------------------------------------- */

/* An error when the plan launches the kernel, or it is not what its contract says; else a candidate is left out. */
static void breaks(Compile *c, const Job *job, Code code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static void breaks(Compile *c, const Job *job, Code code, const char *fmt, ...)
{
	char text[WHY_BYTES];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	if (job->is_picked || code == A0912)
		fail_at(&c->diags, code, (Loc){job->source.tmpl->file, job->source.tmpl->line, 1}, "kernel %s [%s] for %s: %s",
			job->source.tmpl->name, job->source.defines, job->source.target, text);
}

static bool check_limits(Compile *c, const Job *job, const CubinInfo *info)
{
	const KernelTemplate *t = job->source.tmpl;
	const Target *target = c->work.at[job->work].target;
	const int *block = job->pick->block;
	int64_t threads = (int64_t)block[0] * block[1] * block[2];
	int64_t registers = (info->registers + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
	int64_t warps = (threads + 31) / 32, smem = (int64_t)info->static_smem_bytes + job->pick->smem_bytes;
	bool has_params = info->param_bytes == t->param_bytes, has_block = threads >= 1 && threads <= 1024,
		is_bounded = !info->max_threads || threads <= info->max_threads,
		has_registers = registers * warps * 32 <= target->registers_sm,
		has_static = info->static_smem_bytes <= MAX_STATIC_SMEM, has_smem = smem <= target->smem_block_bytes;
	if (!has_params)
		breaks(c, job, A0912, "%d bytes of parameters, the contract has %d", info->param_bytes, t->param_bytes);
	if (!has_block)
		breaks(c, job, A0911, "%lld threads a block: expected 1 to 1024", (long long)threads);
	if (!is_bounded)
		breaks(c, job, A0911, "%lld threads a block, __launch_bounds__ allows %d", (long long)threads,
			info->max_threads);
	if (!has_registers)
		breaks(c, job, A0911, "%lld threads of %lld registers: expected at most %d in all", (long long)warps * 32,
			(long long)registers, target->registers_sm);
	if (!has_static)
		breaks(c, job, A0911, "%d bytes of static shared memory: expected at most %d, more has to be dynamic",
			info->static_smem_bytes, MAX_STATIC_SMEM);
	if (!has_smem)
		breaks(c, job, A0911, "%d + %d bytes of static and dynamic shared memory: expected at most %d",
			info->static_smem_bytes, job->pick->smem_bytes, target->smem_block_bytes);
	return has_params && has_block && is_bounded && has_registers && has_static && has_smem;
}

/* Offset of the bytes in Compile.cubins: those of an equal cubin, else new ones at a multiple of CUBIN_ALIGN. */
static int64_t place_cubin(Compile *c, const Cubin *cubin)
{
	for (int w = 0; w < 2 * c->work.n; w++) {
		const TargetPlan *plan = w % 2 ? &c->work.at[w / 2].candidates : &c->work.at[w / 2].plan;
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

/* False: a candidate that is left out. */
static bool record(Compile *c, const Job *job)
{
	const KernelTemplate *t = job->source.tmpl;
	Loc at = {t->file, t->line, 1};
	CubinInfo info;
	char why[WHY_BYTES];
	if (job->ended) {
		fail_at(&c->diags, A0915, at, "kernel %s [%s] for %s: NVRTC %s", t->name, job->source.defines,
			job->source.target, job->ended);
		return true;
	}
	if (!job->cubin.bytes) {
		fail_at(&c->diags, A0910, at, "kernel %s [%s] for %s: NVRTC refuses it:\n%s", t->name, job->source.defines,
			job->source.target, job->log ? job->log : "no memory");
		return true;
	}
	if (!cubin_read(job->cubin.bytes, job->cubin.n, t->name, &info, why, sizeof why)) {
		fail_at(&c->diags, A0912, at, "kernel %s [%s] for %s: %s", t->name, job->source.defines,
			job->source.target, why);
		return true;
	}
	if (!check_limits(c, job, &info))
		return job->is_picked;
	TargetWork *work = &c->work.at[job->work];
	Kernel k = {.name = t->name, .defines = job->source.defines, .entry = t->name,
		.cubin_offset = place_cubin(c, &job->cubin), .cubin_bytes = (int64_t)job->cubin.n,
		.param_bytes = t->param_bytes, .smem_bytes = job->pick->smem_bytes, .registers = info.registers,
		.spill_bytes = info.local_bytes, .static_smem_bytes = info.static_smem_bytes};
	memcpy(k.block, job->pick->block, sizeof k.block);
	time_key(t, work->target, job->source.defines, k.source_sha256);
	if (job->is_picked)
		work->plan.kernels[work->plan.n_kernels++] = k;
	if (job->is_trial)
		work->candidates.kernels[work->candidates.n_kernels++] = k;
	return true;
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

static int find_pick(const TargetPlan *plan, const Pick *k)
{
	return find_kernel(plan, kernel_table[k->template_index].name, k->defines);
}

static void find_kernels(TargetWork *work)
{
	for (int p = 0; p < work->phases.n; p++)
		for (int i = 0; i < work->phases.at[p].picks.n; i++) {
			Pick *k = &work->phases.at[p].picks.at[i];
			k->kernel = find_pick(&work->plan, k);
			if (k->kernel < 0)
				bug("no kernel for pick %d", i);
		}
	for (int i = 0; i < work->trials.n; i++)
		work->trials.at[i].pick.kernel = find_pick(&work->candidates, &work->trials.at[i].pick);
}

static void record_all(Compile *c, const Pool *pool)
{
	for (int w = 0; w < c->work.n; w++) {
		c->work.at[w].plan.kernels = ARENA_ARRAY(&c->arena, Kernel, pool->n);
		c->work.at[w].candidates.kernels = ARENA_ARRAY(&c->arena, Kernel, pool->n);
	}
	int errors = c->diags.n_errors, unstored = 0, left_out = 0;
	for (int i = 0; i < pool->n; i++) {
		const Job *job = &pool->jobs[i];
		if (job->cache_why[0] && unstored++ == 0)
			note_at(&c->diags, A0913, (Loc){pool->cache_dir, 0, 0}, "kernel %s is not kept: %s",
				job->source.tmpl->name, job->cache_why);
		left_out += !record(c, job);
	}
	if (c->diags.n_errors != errors)
		return;
	if (left_out)
		note_at(&c->diags, A0705, (Loc){0}, "%d of %d kernels break a limit of the target: no candidates", left_out,
			pool->n);
	for (int w = 0; w < c->work.n; w++) {
		note_local_memory(c, &c->work.at[w]);
		find_kernels(&c->work.at[w]);
	}
}

/* Compile.nvrtc, where it is not known. The cache (or NULL) keeps it, by the numbers of NVRTC's files. */
static bool ask_version(Compile *c, const char *cache_dir, bool reads_cache)
{
	char version[VERSION_BYTES], why[WHY_BYTES], files[WHY_BYTES];
	Cubin kept = {0};
	const bool is_kept = cache_dir && nvrtc_files(files, sizeof files);
	const KernelKey key = version_key(is_kept ? files : "");
	if (!c->nvrtc && is_kept && reads_cache && cache_get(cache_dir, &key, &kept) && kept.n < sizeof version)
		c->nvrtc = arena_printf(&c->arena, "%.*s", (int)kept.n, (const char *)kept.bytes);
	free(kept.bytes);
	if (c->nvrtc)
		return true;
	if (!nvrtc_version_apart(version, sizeof version, why, sizeof why)) {
		fail_at(&c->diags, A0910, (Loc){0}, "NVRTC does not work: %s", why);
		return false;
	}
	c->nvrtc = arena_strdup(&c->arena, version);
	if (is_kept) /* a cache that cannot keep it keeps no kernel either, and a note names it */
		cache_put(cache_dir, &key, &(Cubin){(uint8_t *)version, strlen(version)}, why, sizeof why);
	return true;
}

void record_tools(Compile *c)
{
	char *options = arena_strdup(&c->arena, "");
	if (!ask_version(c, NULL, false))
		return;
	for (int i = 0; nvrtc_option(i); i++)
		options = arena_printf(&c->arena, "%s%s%s", options, i ? " " : "", nvrtc_option(i));
	*vec_push(&c->arena, &c->model.options.resolved) =
		(Option){"tool.nvrtc", c->nvrtc};
	*vec_push(&c->arena, &c->model.options.resolved) = (Option){"tool.nvrtc_options", options};
}

/* make_kernels - compile, check and record the kernels of all targets.
 *
 *   needs   picks
 *   gives   TargetPlan.kernels (by name, then constants), Compile.cubins, Pick.kernel
 *   breaks  nothing
 *   fails   NVRTC does not work, refuses a kernel or ends at it; a kernel breaks a limit of its target. A cache that
 *           cannot be used is a note
 */
void make_kernels(Compile *c)
{
	char why[WHY_BYTES];
	Pool pool = {.cache_dir = c->cmd.cache_dir, .reads_cache = c->cmd.n_sign == 0};
	if (pool.cache_dir && !cache_open(pool.cache_dir, why, sizeof why)) {
		note_at(&c->diags, A0913, (Loc){pool.cache_dir, 0, 0}, "compiled kernels are not kept: %s", why);
		pool.cache_dir = NULL;
	}
	if (pool.cache_dir && !pool.reads_cache)
		note_at(&c->diags, A0916, (Loc){pool.cache_dir, 0, 0},
			"a signed plan uses no cached kernel: all are compiled");
	if (c->work.n && !ask_version(c, pool.cache_dir, pool.reads_cache))
		return;
	pool.nvrtc = c->nvrtc;
	list_jobs(c, &pool);
	run_jobs(c, &pool);
	record_all(c, &pool);
	for (int i = 0; i < pool.n; i++) {
		free(pool.jobs[i].cubin.bytes);
		free(pool.jobs[i].log);
		free(pool.jobs[i].ended);
	}
}
