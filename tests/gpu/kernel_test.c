/* kernel_test.c - every kernel template against the reference device, from its contract alone.
 *
 *   kernel_test [--cases N] [--seed S] [--only TEMPLATE] [--fix "NAME=VALUE ..."] [--small] [--jobs N]
 *               [--no-gpu TARGET] [--cache-dir DIR] [--bench] [--orders [--without NAME]] [--self-check]
 *
 * For each template: N trials with random admissible constants, but for those that --fix gives, and random legal
 * operands (kernel_case.h).
 * Workers draw, compile and run the reference; one at a time runs on the device: the whole image of operands and
 * guards goes there and back, twice, and both times must give the same bits. Where the contract says
 * batch_invariant, a third run with half of the step's rows must give those rows the same bits, and rows of a verify
 * step must have the bits that decode's kernel gives them (kernel_steps.c). --small keeps
 * trials small enough for compute-sanitizer. --no-gpu draws, compiles for TARGET and runs the reference only.
 * --cache-dir keeps compiled kernels, by content; with --no-gpu it is filled, and no reference runs: then a machine
 * with a GPU need not compile what is drawn and timed there.
 * --orders runs each case by other kernels of its op too, of which those with an equal ORDER must give equal bits
 * (kernel_orders.c). --without: orders are taken as if that constant were not in them, which must fail where it is one
 * that counts: it shows that these runs see a contract that leaves something out.
 * --bench times kernels at the shapes of kernel_bench.c, of which --only picks by "TEMPLATE LABEL" and --fix by
 * tunables. --self-check asks whether the comparison notices what it must (kernel_self.c).
 * Prints a table; the exit code is 1 when a trial fails, 5 without a device.
 */
#include "tests/gpu/kernel_test.h"
#include "artifacts/op_table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILURES_SHOWN = 40 };

typedef struct Tally { int cases, failed; double worst; int64_t compared; OrderTally orders; } Tally;

typedef struct Run {
	const Settings *settings;
	Gpu *gpu;
	uint8_t *image; /* what came back */
	atomic_int next;
	int shown;
	Tally *tally; /* by template */
	pthread_mutex_t lock; /* of gpu, image, tally, stdout */
} Run;

bool case_map(Gpu *g, const Case *c, int map, CuPtr at, uint8_t *params)
{
	const ContractMap *m = &c->tmpl->maps[map];
	const CaseBuffer *b = &c->buf[m->field];
	return gpu_ok(g, driver_tensor_map(&g->driver, params + m->offset, at, b->dtype, b->bytes,
		b->shape[b->n_dims - 1], c->box[map]), "cuTensorMapEncodeTiled");
}

/* Once on the device; the image that comes back is in r->image. */
static bool run_once(Run *r, const Case *c, GpuKernel *k)
{
	Gpu *g = r->gpu;
	Driver *d = &g->driver;
	_Alignas(64) uint8_t params[PLAN_MAX_PARAM_BYTES] = {0};
	for (int i = 0; i < c->tmpl->n_fields; i++) {
		CuPtr at = c->buf[i].present ? g->memory + (CuPtr)c->buf[i].at : 0;
		memcpy(params + c->tmpl->fields[i].offset, &at, sizeof at);
	}
	for (int i = 0; i < c->tmpl->n_maps; i++)
		if (!case_map(g, c, i, g->memory + (CuPtr)c->buf[c->tmpl->maps[i].field].at, params))
			return false;
	void *args[1] = {params};
	return gpu_ok(g, d->MemcpyHtoDAsync(g->memory, c->image, (size_t)c->image_bytes, g->stream), "cuMemcpyHtoD") &&
		gpu_ok(g, d->LaunchKernel(k->kernel, (unsigned)c->grid[0], (unsigned)c->grid[1], (unsigned)c->grid[2],
			(unsigned)c->block, 1, 1, (unsigned)c->smem, g->stream, args, NULL), "cuLaunchKernel") &&
		gpu_ok(g, d->MemcpyDtoHAsync(r->image, g->memory, (size_t)c->image_bytes, g->stream), "cuMemcpyDtoH") &&
		gpu_ok(g, d->StreamSynchronize(g->stream), "kernel");
}

/* The step as the device sees it, cut to its first rows. */
static void cut_step(const Case *c, int rows)
{
	const int at = case_field(c, "seg");
	int32_t step[4];
	memcpy(step, c->image + c->buf[case_field(c, "step")].at, sizeof step);
	step[0] = rows;
	for (int i = 0; at >= 0 && i < c->step.segs; i++) {
		uint8_t *raw = c->image + c->buf[at].at + i * 16;
		int32_t seg[4];
		memcpy(seg, raw, sizeof seg);
		if (seg[0] >= rows) {
			step[2] = i;
			break;
		}
		if (seg[1] > rows - seg[0])
			seg[1] = rows - seg[0];
		memcpy(raw, seg, sizeof seg);
	}
	memcpy(c->image + c->buf[case_field(c, "step")].at, step, sizeof step);
}

/* The step as it was drawn. */
static void restore_step(const Case *c)
{
	static const char *const names[] = {"step", "seg"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		const int at = case_field(c, names[i]);
		if (at >= 0)
			memcpy(c->image + c->buf[at].at, c->buf[at].before, (size_t)c->buf[at].bytes);
	}
}

/* Do rows keep their bits without the other half of the step? `first` is what the whole step made of the operands.
 * Templates whose outputs are not rows of the step are not asked. */
static bool rows_stand_alone(Run *r, const Case *c, GpuKernel *k, const uint8_t *first, Outcome *out)
{
	int rows = (c->step.rows + 1) / 2;
	if (!strstr(c->tmpl->numerics, "batch_invariant") || case_field(c, "step") < 0 || case_field(c, "out_row") >= 0 ||
		rows >= c->step.rows)
		return true;
	cut_step(c, rows);
	bool ran = run_once(r, c, k);
	restore_step(c);
	for (int i = 0; ran && i < c->tmpl->n_fields; i++) {
		const ContractField *f = &c->tmpl->fields[i];
		const CaseBuffer *b = &c->buf[i];
		if (!b->present || !operand_is_written(f->role) || strncmp(f->shape, "ROWS, ", 6) != 0)
			continue;
		int64_t bytes = b->bytes / b->shape[0];
		for (int row = 0; row < rows; row++)
			if (memcmp(first + b->at + row * bytes, r->image + b->at + row * bytes, (size_t)bytes) != 0) {
				snprintf(out->why, sizeof out->why, "%s: row %d has other bits when the step ends at row %d", f->name,
					row, rows);
				return false;
			}
	}
	if (!ran)
		snprintf(out->why, sizeof out->why, "%s", r->gpu->why);
	return ran;
}

/* Steps of decode's kernel, which is compiled for the first of them. */
typedef struct StepRun { Run *r; Cubin cubin; GpuKernel k; } StepRun;

static const uint8_t *run_step(void *ctx, Case *d, Outcome *out)
{
	StepRun *s = ctx;
	KernelSource source = {d->tmpl, d->defines, s->r->settings->target->name};
	char *log = NULL;
	bool ok = s->cubin.bytes || test_compile(s->r->settings, &source, &s->cubin, &log);
	if (!ok)
		snprintf(out->why, sizeof out->why, "%s: %s", d->tmpl->name, log);
	free(log);
	if (!ok)
		return NULL;
	ok = (s->k.kernel || gpu_load(s->r->gpu, &s->cubin, d->tmpl->name, d->smem, &s->k)) && run_once(s->r, d, &s->k);
	if (!ok)
		snprintf(out->why, sizeof out->why, "%s", s->r->gpu->why);
	return ok ? s->r->image : NULL;
}

static bool has_bits_of_steps(Run *r, const Case *c, const uint8_t *first, Outcome *out)
{
	StepRun s = {.r = r};
	const bool ok = rows_are_steps(c, r->settings->target, first, run_step, &s, out);
	if (!r->gpu->dead)
		gpu_unload(r->gpu, &s.k);
	free(s.cubin.bytes);
	return ok;
}

/* A kernel of another specialisation, once. */
static const uint8_t *run_twin(void *ctx, Case *d, Outcome *out)
{
	StepRun s = {.r = ctx};
	const uint8_t *got = run_step(&s, d, out);
	if (!s.r->gpu->dead)
		gpu_unload(s.r->gpu, &s.k);
	free(s.cubin.bytes);
	return got;
}

/* The same without a GPU. */
static const uint8_t *compile_twin(void *ctx, Case *d, Outcome *out)
{
	const Run *r = ctx;
	const KernelSource source = {d->tmpl, d->defines, r->settings->target->name};
	Cubin cubin = {0};
	char *log = NULL;
	if (!test_compile(r->settings, &source, &cubin, &log))
		snprintf(out->why, sizeof out->why, "%s: %s", d->tmpl->name, log);
	free(cubin.bytes);
	free(log);
	return NULL;
}

static Outcome run_on_device(Run *r, const Case *c, const Cubin *cubin, uint64_t seed, OrderTally *tally)
{
	Outcome out = {0};
	GpuKernel k = {0};
	uint8_t *first = malloc((size_t)c->image_bytes);
	if (first && !r->gpu->dead && gpu_load(r->gpu, cubin, c->tmpl->name, c->smem, &k) && run_once(r, c, &k)) {
		memcpy(first, r->image, (size_t)c->image_bytes);
		out = case_compare(c, r->image);
		if (out.ok && (!run_once(r, c, &k) || memcmp(first, r->image, (size_t)c->image_bytes) != 0)) {
			out.ok = false;
			snprintf(out.why, sizeof out.why, "a second run gave other bits");
		}
		out.ok = out.ok && has_bits_of_steps(r, c, first, &out) &&
			rows_stand_alone(r, c, &k, first, &out) && (!r->settings->orders ||
			orders_hold(c, r->settings, seed, first, run_twin, r, tally, &out));
	} else {
		snprintf(out.why, sizeof out.why, "%s", r->gpu->why);
	}
	if (!r->gpu->dead)
		gpu_unload(r->gpu, &k);
	free(first);
	return out;
}

static void report(Run *r, int index, const Case *c, const Outcome *o, uint64_t seed)
{
	Tally *t = &r->tally[index];
	t->cases++;
	t->failed += !o->ok;
	t->compared += o->compared;
	if (o->worst > t->worst)
		t->worst = o->worst;
	if (!o->ok && r->shown++ < FAILURES_SHOWN)
		printf("FAIL %s seed %llu: %s\n     %s\n     step %d rows, %d outs, %d segs, flags %d; grid %d,%d,%d\n",
			c->tmpl->name, (unsigned long long)seed, o->why, c->defines, c->step.rows, c->step.outs, c->step.segs,
			c->step.flags, c->grid[0], c->grid[1], c->grid[2]);
	fflush(stdout);
}

/* A template that serves large shapes alone has no small trial: the limits grow until there is one. */
static bool choose(Case *c, const KernelTemplate *t, uint64_t seed, const CaseLimits *limits)
{
	CaseLimits l = *limits;
	for (int i = 0; i < 5; i++, l.flops *= 8, l.bytes *= 4) {
		l.bytes = l.bytes < IMAGE_BYTES ? l.bytes : IMAGE_BYTES;
		if (case_choose(c, t, seed, &l))
			return true;
	}
	return false;
}

bool draw_case(Case *c, const KernelTemplate *t, const CaseLimits *limits, uint64_t *seed)
{
	for (int i = 0; i < 200; i++, *seed += 0x10000) {
		if (!choose(c, t, *seed, limits))
			return false;
		if (case_fill(c))
			return true;
		case_free(c);
	}
	return false;
}

bool test_compile(const Settings *s, const KernelSource *source, Cubin *out, char **log)
{
	char why[256];
	KernelKey key;
	if (s->cache_dir) {
		key = kernel_key(source, s->nvrtc);
		if (cache_get(s->cache_dir, &key, out))
			return true;
	}
	if (!nvrtc_compile(source, out, log))
		return false;
	if (s->cache_dir && !cache_put(s->cache_dir, &key, out, why, sizeof why))
		fprintf(stderr, "kernel_test: %s: %s\n", s->cache_dir, why);
	return true;
}

static void one_case(Run *r, int index, int number)
{
	const Settings *s = r->settings;
	const KernelTemplate *t = &kernel_table[index];
	CaseLimits limits = {s->small ? 4000000 : 300000000, s->small ? 4 << 20 : IMAGE_BYTES, s->target,
		s->fixed, 0};
	uint64_t seed = s->seed * 1000003 + (uint64_t)number;
	Case c;
	Outcome out = {0};
	if (!draw_case(&c, t, &limits, &seed)) {
		snprintf(out.why, sizeof out.why, "no admissible constants found");
		pthread_mutex_lock(&r->lock);
		report(r, index, &c, &out, seed);
		pthread_mutex_unlock(&r->lock);
		return;
	}
	Cubin cubin = {0};
	char *log = NULL;
	KernelSource source = {t, c.defines, s->target->name};
	bool compiled = test_compile(s, &source, &cubin, &log);
	out.ok = compiled;
	if (compiled && s->orders && (!r->gpu || s->cache_dir)) /* by all workers, so that the one at the device need not */
		out.ok = orders_hold(&c, s, seed, c.image, compile_twin, r, &(OrderTally){0}, &out);
	if (compiled && (r->gpu || !s->cache_dir))
		case_reference(&c);
	pthread_mutex_lock(&r->lock);
	if (!compiled)
		snprintf(out.why, sizeof out.why, "%s", log);
	else if (r->gpu && out.ok)
		out = run_on_device(r, &c, &cubin, seed, &r->tally[index].orders);
	report(r, index, &c, &out, seed);
	pthread_mutex_unlock(&r->lock);
	free(log);
	free(cubin.bytes);
	case_free(&c);
}

static void *worker(void *arg)
{
	Run *r = arg;
	if (r->gpu)
		r->gpu->driver.CtxPushCurrent(r->gpu->context);
	for (int i; (i = atomic_fetch_add(&r->next, 1)) < n_kernel_table * r->settings->cases;) {
		int index = i % n_kernel_table;
		if (template_serves(&kernel_table[index], r->settings->target) &&
			(!r->settings->only || strstr(kernel_table[index].name, r->settings->only)))
			one_case(r, index, i / n_kernel_table);
	}
	return NULL;
}

static int run_all(const Settings *s, Gpu *gpu)
{
	Run r = {.settings = s, .gpu = gpu, .image = malloc(IMAGE_BYTES),
		.tally = calloc((size_t)n_kernel_table, sizeof(Tally))};
	pthread_t threads[64];
	int failed = 0;
	if (!r.image || !r.tally)
		return 5;
	pthread_mutex_init(&r.lock, NULL);
	for (int i = 0; i < s->jobs; i++)
		pthread_create(&threads[i], NULL, worker, &r);
	for (int i = 0; i < s->jobs; i++)
		pthread_join(threads[i], NULL);
	printf("%-16s %-16s %6s %12s %22s  %s\n", "template",
		"op", "cases", "elements", "worst error/tolerance", "verdict");
	for (int i = 0; i < n_kernel_table; i++) {
		Tally *t = &r.tally[i];
		if (t->cases)
			printf("%-16s %-16s %6d %12lld %22.3f  %s\n", kernel_table[i].name, op_table[kernel_table[i].op].name,
				t->cases, (long long)t->compared, t->worst, t->failed ? "FAIL" : gpu ? "ok" : "compiled");
		failed += t->failed;
	}
	for (int i = 0; s->orders && gpu && i < n_kernel_table; i++) {
		const OrderTally *o = &r.tally[i].orders;
		if (r.tally[i].cases)
			printf("%-16s orders: %d pairs of equal ones; of %d other ones %d gave other bits%s\n",
				kernel_table[i].name, o->equal, o->other, o->other_bits,
				o->other > 9 && !o->other_bits ? ": over-stated?" : "");
	}
	printf("%d failed\n", failed);
	free(r.tally);
	free(r.image);
	return failed ? 1 : 0;
}

static bool parse(int argc, char **argv, Settings *s)
{
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";
		if (strcmp(argv[i], "--small") == 0)
			s->small = true;
		else if (strcmp(argv[i], "--bench") == 0)
			s->bench = true;
		else if (strcmp(argv[i], "--orders") == 0)
			s->orders = true;
		else if (strcmp(argv[i], "--self-check") == 0)
			s->self_check = true;
		else if (strcmp(argv[i], "--nccl") == 0 && ++i)
			s->nccl = value;
		else if (strcmp(argv[i], "--cases") == 0 && ++i)
			s->cases = atoi(value);
		else if (strcmp(argv[i], "--seed") == 0 && ++i)
			s->seed = strtoull(value, NULL, 10);
		else if (strcmp(argv[i], "--jobs") == 0 && ++i)
			s->jobs = atoi(value);
		else if (strcmp(argv[i], "--only") == 0 && ++i)
			s->only = value;
		else if (strcmp(argv[i], "--fix") == 0 && ++i)
			s->fixed = value;
		else if (strcmp(argv[i], "--without") == 0 && ++i)
			s->without = value;
		else if (strcmp(argv[i], "--cache-dir") == 0 && ++i)
			s->cache_dir = value;
		else if (strcmp(argv[i], "--no-gpu") == 0 && ++i) {
			s->no_gpu = true;
			s->target = target_by_name(value);
		} else
			return false;
	}
	return s->jobs >= 1 && s->jobs <= 64 && s->cases >= 1 && (!s->no_gpu || s->target);
}

int main(int argc, char **argv)
{
	Settings s = {.cases = 10, .seed = 1, .jobs = 2};
	if (!parse(argc, argv, &s)) {
		fprintf(stderr, "usage: kernel_test [--cases N] [--seed S] [--only TEMPLATE] [--fix \"NAME=VALUE ...\"] "
			"[--small] [--jobs N] [--no-gpu TARGET] [--cache-dir DIR] [--bench]\n"
			"\t[--orders [--without NAME]] [--self-check] [--nccl FILE]\n");
		return 2;
	}
	char why[256];
	if (s.cache_dir && (!cache_open(s.cache_dir, why, sizeof why) ||
		!nvrtc_version(s.nvrtc, sizeof s.nvrtc, why, sizeof why))) {
		fprintf(stderr, "kernel_test: %s: %s\n", s.cache_dir, why);
		return 5;
	}
	if (s.self_check)
		return self_check(&s);
	if (s.no_gpu)
		return s.bench ? bench_all(&s, NULL) : run_all(&s, NULL);
	Gpu gpu;
	if (!gpu_open(&gpu, s.bench ? BENCH_BYTES : IMAGE_BYTES)) {
		fprintf(stderr, "kernel_test: %s\n", gpu.why);
		return 5;
	}
	s.target = gpu.target;
	printf("%s, %s\n", gpu.name, gpu.target->name);
	int rc = s.nccl ? nccl_run(&gpu, s.nccl) : s.bench ? bench_all(&s, &gpu) : run_all(&s, &gpu);
	if (gpu.dead)
		return rc; /* the context is lost: nothing can be given back */
	gpu_close(&gpu);
	return rc;
}
