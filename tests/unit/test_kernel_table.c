/* test_kernel_table.c - every template of the table, compiled for every target that its contract names.
 *
 * Constants are the examples that a contract gives (`DIM(K, 4096)`), read from the template's text in the table,
 * the first value of each tunable, the first dtype of each variable, and all optional operands present. Then the pass
 * itself: the same bytes for any number of threads and with a cache, and its refusals with their exact words.
 *
 * The templates' kernels are kept in the build's kernel-cache: what has not changed is not compiled again. With
 * --quick, each template is compiled for one of its targets, which one by its place in the table.
 */
#include "compiler/kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <dirent.h>
#include <nvrtc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* Examples ------------------------------------------------------------------------------------------- */

static const char *text_of(const char *name)
{
	for (int i = 0; i < n_template_sources; i++)
		if (strcmp(template_sources[i].name, name) == 0)
			return template_sources[i].text;
	fail_msg("no source %s", name);
	return NULL;
}

/* The example in `word(name, EXAMPLE)`, anywhere in the template's sources but the contract's own explanations. */
static void example_of(const KernelTemplate *k, const char *word, const char *name, char *out, size_t bytes)
{
	char wanted[100];
	snprintf(wanted, sizeof wanted, "%s(%s, ", word, name);
	for (int i = 0; i < k->n_sources; i++) {
		const char *text = text_of(k->sources[i]), *p = strstr(text, wanted);
		while (p && p > text && p[-1] != '\n' && !(p - text > 1 && p[-1] == ' ' && p[-2] == ')'))
			p = strstr(p + 1, wanted);
		if (p) {
			p += strlen(wanted);
			snprintf(out, bytes, "%.*s", (int)strcspn(p, ")"), p);
			return;
		}
	}
	fail_msg("%s: no example of %s", k->name, name);
}

typedef struct Example { ExprName names[64]; int n; char defines[2048]; } Example;

static void add_size(Example *e, const char *name, int64_t value) /* for formulas alone */
{
	e->names[e->n++] = (ExprName){strdup(name), value};
}

static void add(Example *e, const char *name, const char *value)
{
	size_t n = strlen(e->defines);
	snprintf(e->defines + n, sizeof e->defines - n, "%s%s=%s", n ? " " : "", name, value);
	add_size(e, name, strtol(value, NULL, 10));
}

static void add_int(Example *e, const char *name, int value)
{
	char text[20];
	snprintf(text, sizeof text, "%d", value);
	add(e, name, text);
}

typedef enum Optional { NO_OPTIONAL, NO_SCALES_OF_CACHES, ALL_OPTIONAL } Optional; /* operands: those that are there */

/* `choice` numbers the tunables' combination. */
static Example example(const KernelTemplate *k, const Target *target, int choice, Optional there)
{
	Example e = {.n = 0};
	char text[100];
	add_size(&e, "SMEM_MAX", target->smem_block_bytes);
	add_size(&e, "SMS", target->n_sms);
	for (int i = 0; i < k->n_dims; i++) {
		example_of(k, "DIM", k->dims[i], text, sizeof text);
		add(&e, k->dims[i], text);
	}
	for (int i = 0; i < k->n_attrs; i++) {
		double v;
		bool is_float;
		assert_true(attr_value(&(Attrs){0}, k->attrs[i], &v, &is_float));
		example_of(k, is_float ? "ATTR_FLOAT" : "ATTR_INT", k->attrs[i], text, sizeof text);
		add(&e, k->attrs[i], text);
	}
	for (int i = 0; i < k->n_tunables; choice /= k->tunables[i++].n_values)
		add_int(&e, k->tunables[i].name, k->tunables[i].values[choice % k->tunables[i].n_values]);
	for (int i = 0; i < k->n_dtypes; i++) {
		char bytes[80];
		add(&e, k->dtypes[i].var, dtype_name(k->dtypes[i].allowed[0]));
		snprintf(bytes, sizeof bytes, "%s_BITS", k->dtypes[i].var);
		add_size(&e, bytes, dtype_span(k->dtypes[i].allowed[0], 8));
		snprintf(bytes, sizeof bytes, "%s_BYTES", k->dtypes[i].var);
		add_size(&e, bytes, dtype_bytes(k->dtypes[i].allowed[0]));
	}
	for (int i = 0; i < k->n_fields; i++)
		if (k->fields[i].flag)
			add_int(&e, k->fields[i].flag, there == ALL_OPTIONAL ||
				(there == NO_SCALES_OF_CACHES && strncmp(k->fields[i].flag, "KV_", 3) != 0));
	return e;
}

static int64_t value_of(const KernelTemplate *k, const Example *e, const char *formula)
{
	ExprEnv env = {e->names, e->n, NULL};
	int64_t v = 0;
	char why[200];
	if (!expr_eval(formula, &env, &v, why, sizeof why))
		fail_msg("%s: %s: %s", k->name, formula, why);
	return v;
}

static void free_example(Example *e)
{
	for (int i = 0; i < e->n; i++)
		free((char *)e->names[i].name);
}

/* A compile that has picks and nothing else -------------------------------------------------------- */

static void setup(Compile *c, const char *cache_dir, int jobs)
{
	*c = (Compile){.cmd = {.cache_dir = cache_dir, .jobs = jobs}};
	c->diags.arena = &c->arena;
}

static Lowered *add_target(Compile *c, const Target *target)
{
	TargetWork *work = vec_push(&c->arena, &c->work);
	*work = (TargetWork){.target = target, .plan = {.target = target->name}};
	Lowered *low = vec_push(&c->arena, &work->phases);
	*low = (Lowered){.kind = DECODE};
	return low;
}

/* The first combination whose shared memory the target has. */
static Pick *add_pick(Compile *c, Lowered *low, int index)
{
	enum { ROOM = 1024 }; /* for what a kernel declares besides */
	const KernelTemplate *k = &kernel_table[index];
	const Target *target = c->work.at[c->work.n - 1].target;
	int choice = 0;
	Example e = example(k, target, choice, ALL_OPTIONAL);
	while (value_of(k, &e, k->smem) + ROOM > target->smem_block_bytes) {
		free_example(&e);
		e = example(k, target, ++choice, ALL_OPTIONAL);
		assert_true(choice < 1000);
	}
	Pick *p = vec_push(&c->arena, &low->picks);
	*p = (Pick){.template_index = index, .kernel = -1, .defines = arena_strdup(&c->arena, e.defines),
		.block = {(int)value_of(k, &e, k->block), 1, 1}, .smem_bytes = (int)value_of(k, &e, k->smem)};
	free_example(&e);
	return p;
}

/* The target, as an index, for which --quick compiles a template. */
static int quick_target(int index)
{
	int served[64], n = 0;
	for (int t = 0; t < n_target_table && n < 64; t++)
		if (template_serves(&kernel_table[index], &target_table[t]))
			served[n++] = t;
	return n ? served[index % n] : -1;
}

/* Adds the templates that serve target_table[t], with `quick` the share of it. */
static void add_all(Compile *c, int t, bool quick)
{
	Lowered *low = add_target(c, &target_table[t]);
	for (int i = n_kernel_table - 1; i >= 0; i--) /* not in the order of the result */
		if (template_serves(&kernel_table[i], &target_table[t]) && (!quick || quick_target(i) == t))
			add_pick(c, low, i);
}

static void finish(Compile *c)
{
	arena_release(&c->arena);
	arena_release(&c->scratch);
}

static void expect_no_errors(const Compile *c)
{
	for (int i = 0; i < c->diags.n; i++)
		if (!c->diags.list[i].is_note)
			fail_msg("%s: %s", code_name(c->diags.list[i].code), c->diags.list[i].text);
	assert_int_equal(c->diags.n_errors, 0);
}

/* Tests ---------------------------------------------------------------------------------------------- */

static const ContractRequire *broken_require(const KernelTemplate *k, const Example *e)
{
	for (int j = 0; j < k->n_requires; j++)
		if (!value_of(k, e, k->requires[j].text))
			return &k->requires[j];
	return NULL;
}

static void test_table(void **state)
{
	(void)state;
	assert_true(n_kernel_table > 0);
	for (int i = 0; i < n_kernel_table; i++) {
		const KernelTemplate *k = &kernel_table[i];
		assert_true(i == 0 || strcmp(kernel_table[i - 1].name, k->name) < 0);
		assert_true(k->param_bytes >= 8 * k->n_fields + PLAN_TENSOR_MAP_BYTES * k->n_maps);
		assert_true(k->param_bytes <= PLAN_MAX_PARAM_BYTES);
		char file[200];
		snprintf(file, sizeof file, "/%s.cu", k->name);
		assert_string_equal(strrchr(k->sources[0], '/'), file);
		int choices = 1;
		for (int j = 0; j < k->n_tunables; j++)
			choices *= k->tunables[j].n_values;
		Example e = example(k, &target_table[0], 0, ALL_OPTIONAL);
		/* other tunables, without what a cache of bf16 lacks, and with needed operands alone */
		for (int j = 1; j < 3 * choices && broken_require(k, &e); j++) {
			free_example(&e);
			e = example(k, &target_table[0], j % choices, (Optional)(ALL_OPTIONAL - j / choices));
		}
		const ContractRequire *broken = broken_require(k, &e);
		if (broken)
			fail_msg("%s:%d: the examples break %s", k->file, broken->line, broken->text);
		assert_true(value_of(k, &e, k->block) >= 32);
		for (int j = 0; j < 3; j++)
			assert_true(value_of(k, &e, k->grid[j]) >= 1);
		assert_true(value_of(k, &e, k->reads) > 0 && value_of(k, &e, k->writes) > 0 && value_of(k, &e, k->flops) >= 0);
		assert_true(value_of(k, &e, k->pieces) >= 0 && value_of(k, &e, k->rate) > 0 && value_of(k, &e, k->rate) <= 100);
		free_example(&e);
	}
}

typedef struct Run { bool quick; char cache[1024]; } Run;

static void test_every_target(void **state)
{
	const Run *run = *state;
	bool quick = run->quick;
	int n_kernels = 0;
	Compile c;
	setup(&c, run->cache, 2);
	for (int t = 0; t < n_target_table; t++)
		add_all(&c, t, quick);
	make_kernels(&c);
	expect_no_errors(&c);
	for (int w = 0; w < c.work.n; w++) {
		const TargetPlan *plan = &c.work.at[w].plan;
		const Lowered *low = &c.work.at[w].phases.at[0];
		assert_int_equal(plan->n_kernels, low->picks.n);
		n_kernels += plan->n_kernels;
		for (int i = 0; i < low->picks.n; i++) {
			const Kernel *k = &plan->kernels[low->picks.at[i].kernel];
			assert_string_equal(k->name, kernel_table[low->picks.at[i].template_index].name);
			assert_string_equal(k->defines, low->picks.at[i].defines);
			assert_int_equal(k->cubin_offset % 16, 0);
			assert_true(k->cubin_offset + k->cubin_bytes <= c.cubins.n);
			assert_memory_equal(c.cubins.at + k->cubin_offset, "\177ELF", 4);
			assert_true(k->registers > 0);
		}
	}
	for (int i = 0; i < c.diags.n; i++)
		print_message("note: %s\n", c.diags.list[i].text);
	if (quick)
		assert_int_equal(n_kernels, n_kernel_table);
	else
		assert_true(n_kernels > n_kernel_table);
	finish(&c);
}

static void expect_same(const Compile *a, const Compile *b)
{
	assert_int_equal(a->cubins.n, b->cubins.n);
	assert_memory_equal(a->cubins.at, b->cubins.at, (size_t)a->cubins.n);
	assert_int_equal(a->work.n, b->work.n);
	for (int w = 0; w < a->work.n; w++) {
		assert_int_equal(a->work.at[w].plan.n_kernels, b->work.at[w].plan.n_kernels);
		for (int i = 0; i < a->work.at[w].plan.n_kernels; i++)
			assert_int_equal(a->work.at[w].plan.kernels[i].cubin_offset, b->work.at[w].plan.kernels[i].cubin_offset);
	}
}

/* A few small templates, each picked twice, for two targets. */
static void build_few(Compile *c, const char *cache_dir, int jobs)
{
	setup(c, cache_dir, jobs);
	for (int t = 0; t < 2; t++) {
		Lowered *low = add_target(c, &target_table[t]);
		for (int i = 0; i < 6; i++)
			add_pick(c, low, i % 3);
	}
	make_kernels(c);
}

typedef struct Calls { int n; int64_t last; } Calls;
static Calls *calls_of(Compile *c) { return (Calls *)(void *)c->model.dir; }
static void count_progress(Compile *c, const char *what, int64_t done, int64_t total)
{
	assert_string_equal(what, "kernels");
	assert_true(done > calls_of(c)->last && done <= total);
	calls_of(c)->n++;
	calls_of(c)->last = done;
}

static void test_jobs(void **state)
{
	(void)state;
	Compile one, four;
	Calls calls = {0};
	build_few(&one, NULL, 1);
	expect_no_errors(&one);
	assert_int_equal(one.work.at[0].plan.n_kernels, 3); /* equal picks are one kernel */
	build_few(&four, NULL, 4);
	expect_same(&one, &four);
	finish(&four);
	setup(&four, NULL, 3);
	four.progress = count_progress;
	four.model.dir = (const char *)&calls;
	Lowered *low = add_target(&four, &target_table[0]);
	add_pick(&four, low, 0);
	add_pick(&four, low, 1);
	make_kernels(&four);
	assert_int_equal(calls.last, 2);
	finish(&four);
	finish(&one);
}

static int count_entries(const char *dir, char *first, size_t bytes)
{
	int n = 0;
	DIR *d = opendir(dir);
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.' && n++ == 0)
			snprintf(first, bytes, "%s/%s", dir, e->d_name);
	closedir(d);
	return n;
}

static void remove_dir(const char *dir)
{
	char path[400];
	while (count_entries(dir, path, sizeof path))
		unlink(path);
	rmdir(dir);
}

static void test_cache(void **state)
{
	(void)state;
	char dir[] = "/tmp/atlas-kernels-XXXXXX", path[400];
	assert_non_null(mkdtemp(dir));
	Compile plain, cached;
	build_few(&plain, NULL, 2);
	for (int round = 0; round < 3; round++) { /* empty, full, one entry damaged */
		build_few(&cached, dir, 2);
		expect_no_errors(&cached);
		expect_same(&plain, &cached);
		finish(&cached);
		assert_int_equal(count_entries(dir, path, sizeof path), 7); /* three kernels for two targets, and a version */
		if (round == 1)
			assert_int_equal(truncate(path, 100), 0);
	}
	remove_dir(dir);

	char missing[] = "/proc/atlas/cache"; /* cannot be made: a note, and the same result */
	build_few(&cached, missing, 2);
	expect_no_errors(&cached);
	expect_same(&plain, &cached);
	assert_int_equal(cached.diags.list[0].code, A0913);
	assert_string_equal(cached.diags.list[0].at.file, missing);
	finish(&cached);
	finish(&plain);
}

/* Killed at any moment, a compile leaves whole entries only: the next one gives the same bytes. */
static void test_kill(void **state)
{
	(void)state;
	char dir[] = "/tmp/atlas-kernels-XXXXXX", path[400];
	assert_non_null(mkdtemp(dir));
	Compile plain, cached;
	build_few(&plain, NULL, 2);
	for (int entries = 1; entries <= 4; entries += 3) {
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			build_few(&cached, dir, 2);
			pause();
		}
		while (count_entries(dir, path, sizeof path) < entries)
			usleep(100);
		assert_int_equal(kill(child, SIGKILL), 0);
		assert_int_equal(waitpid(child, NULL, 0), child);
	}
	build_few(&cached, dir, 2);
	expect_no_errors(&cached);
	expect_same(&plain, &cached);
	finish(&cached);
	finish(&plain);
	remove_dir(dir);
}

static void expect_error(const Compile *c, Code code, const char *text)
{
	assert_int_equal(c->diags.n_errors, 1);
	for (int i = 0; i < c->diags.n; i++)
		if (!c->diags.list[i].is_note) {
			assert_int_equal(c->diags.list[i].code, code);
			assert_string_equal(c->diags.list[i].text, text);
		}
}

/* A foreign kernel under the right key: the cache is read, and what it holds is not believed. */
static Cubin foreign_kernel(const char *name)
{
	char text[200];
	snprintf(text, sizeof text, "extern \"C\" __global__ void %s(float *x) { *x = 1; }", name);
	const char *options[] = {"--gpu-architecture=sm_80"};
	nvrtcProgram p;
	Cubin c;
	assert_int_equal(nvrtcCreateProgram(&p, text, NULL, 0, NULL, NULL), NVRTC_SUCCESS);
	assert_int_equal(nvrtcCompileProgram(p, 1, options), NVRTC_SUCCESS);
	assert_int_equal(nvrtcGetCUBINSize(p, &c.n), NVRTC_SUCCESS);
	c.bytes = malloc(c.n);
	assert_int_equal(nvrtcGetCUBIN(p, (char *)c.bytes), NVRTC_SUCCESS);
	nvrtcDestroyProgram(&p);
	return c;
}

static void test_foreign_cubin(void **state)
{
	(void)state;
	const KernelTemplate *k = &kernel_table[0];
	static const char *const names[] = {"other", NULL};
	for (int i = 0; i < 2; i++) {
		char dir[] = "/tmp/atlas-kernels-XXXXXX", why[200], version[32], text[3000];
		assert_non_null(mkdtemp(dir));
		assert_true(nvrtc_version(version, sizeof version, why, sizeof why));
		Compile c;
		setup(&c, dir, 1);
		const Pick *p = add_pick(&c, add_target(&c, target_by_name("sm_80")), 0);
		KernelSource source = {k, p->defines, "sm_80"};
		KernelKey key = kernel_key(&source, version);
		Cubin cubin = foreign_kernel(names[i] ? names[i] : k->name);
		assert_true(cache_put(dir, &key, &cubin, why, sizeof why));
		free(cubin.bytes);
		make_kernels(&c);
		if (names[i])
			snprintf(text, sizeof text, "kernel %s [%s] for sm_80: the cubin has no kernel %s", k->name, p->defines,
				k->name);
		else
			snprintf(text, sizeof text, "kernel %s [%s] for sm_80: 8 bytes of parameters, the contract has %d", k->name,
				p->defines, k->param_bytes);
		expect_error(&c, A0912, text);
		finish(&c);
		remove_dir(dir);
	}
}

static void test_limits(void **state)
{
	(void)state;
	Compile c;
	char text[3000];
	setup(&c, NULL, 1);
	Pick *p = add_pick(&c, add_target(&c, target_by_name("sm_89")), 0);
	p->smem_bytes = 101377;
	make_kernels(&c);
	assert_int_equal(c.diags.n_errors, 1);
	assert_int_equal(c.diags.list[0].code, A0911);
	assert_non_null(strstr(c.diags.list[0].text, "101377 bytes of static and dynamic shared memory: expected at most "
		"101376"));
	finish(&c);

	setup(&c, NULL, 1);
	p = add_pick(&c, add_target(&c, target_by_name("sm_80")), 0);
	p->block[1] = 1024 / p->block[0] + 1;
	make_kernels(&c);
	assert_true(c.diags.n_errors >= 1);
	assert_int_equal(c.diags.list[0].code, A0911);
	snprintf(text, sizeof text, "kernel %s [%s] for sm_80: %d threads a block: expected 1 to 1024",
		kernel_table[0].name, p->defines, p->block[0] * p->block[1]);
	assert_string_equal(c.diags.list[0].text, text);
	finish(&c);
}

static void test_nvrtc_refusal(void **state)
{
	(void)state;
	Compile c;
	setup(&c, NULL, 2);
	Lowered *low = add_target(&c, target_by_name("sm_80"));
	Pick *p = add_pick(&c, low, 0);
	p->defines = arena_printf(&c.arena, "%s NOT_A_NAME=1 Args=+", p->defines);
	add_pick(&c, low, 1);
	make_kernels(&c);
	char start[3000];
	snprintf(start, sizeof start, "kernel %s [%s] for sm_80: NVRTC refuses it:\n", kernel_table[0].name,
		p->defines);
	assert_int_equal(c.diags.n_errors, 1);
	assert_int_equal(c.diags.list[0].code, A0910);
	assert_string_equal(c.diags.list[0].at.file, kernel_table[0].file);
	assert_memory_equal(c.diags.list[0].text, start, strlen(start));
	assert_non_null(strstr(c.diags.list[0].text, ": error: "));
	int lines = 0;
	for (const char *s = c.diags.list[0].text; (s = strchr(s, '\n')); s++)
		lines++;
	assert_true(lines >= 2 && lines <= 20); /* ours and at most 20 of NVRTC's */
	assert_int_equal(c.cubins.n > 0, 1); /* the other kernel was compiled all the same */
	finish(&c);
}

static void test_record_tools(void **state)
{
	(void)state;
	Compile c;
	setup(&c, NULL, 1);
	record_tools(&c);
	expect_no_errors(&c);
	int major, minor;
	char start[20];
	assert_int_equal(nvrtcVersion(&major, &minor), NVRTC_SUCCESS);
	snprintf(start, sizeof start, "%d.%d.", major, minor);
	assert_int_equal(c.model.options.resolved.n, 2);
	assert_string_equal(c.model.options.resolved.at[0].name, "tool.nvrtc");
	assert_memory_equal(c.model.options.resolved.at[0].value, start, strlen(start));
	assert_string_equal(c.model.options.resolved.at[1].name, "tool.nvrtc_options");
	assert_memory_equal(c.model.options.resolved.at[1].value, "-std=c++17 ", 11);
	finish(&c);
}

int main(int argc, char **argv)
{
	Run run = {.quick = argc > 1 && strcmp(argv[1], "--quick") == 0};
	const char *end = strrchr(argv[0], '/'); /* of build/tests */
	snprintf(run.cache, sizeof run.cache, "%.*s../kernel-cache", end ? (int)(end - argv[0]) + 1 : 0, argv[0]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table), cmocka_unit_test_prestate(test_every_target, &run),
		cmocka_unit_test(test_jobs),
		cmocka_unit_test(test_cache), cmocka_unit_test(test_kill), cmocka_unit_test(test_foreign_cubin),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_nvrtc_refusal), cmocka_unit_test(test_record_tools),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
