/* test_plan_write.c - what the writer writes, the reader reads: whole, or not at all. */
#include "artifacts/hash.h"
#include "tests/unit/made_cubin.h"
#include "tests/unit/synthetic.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct Made { /* a synthetic plan, ready to be written */
	Compile c;
	Artifact artifact;
	PlanParts parts;
	PlanBlob blob;
	int fail_at; /* weight whose read fails, -1 = none */
	int interrupt_at; /* weight at whose read SIGTERM comes, 0 = none */
	bool has_names_only; /* the file system has no files without a name */
} Made;

/* In the place of the C library's: the file system of a Made that has names only. */
static const Made *opening;
int open(const char *path, int flags, ...)
{
	va_list args;
	va_start(args, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	if ((flags & O_TMPFILE) == O_TMPFILE && opening && opening->has_names_only) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return openat(AT_FDCWD, path, flags, mode);
}

static bool read_weight(void *ctx, int w, int64_t at, void *dst, size_t n)
{
	const Made *m = ctx;
	const void *constant = NULL; /* of weights that the compiler makes */
	for (int i = 0; i < m->c.constants.n; i++)
		constant = m->c.constants.at[i].weight == w ? m->c.constants.at[i].bytes : constant;
	for (size_t i = 0; i < n; i++)
		((uint8_t *)dst)[i] = constant ? ((const uint8_t *)constant)[at + (int64_t)i]
			: (uint8_t)(w * 7 + (at + (int64_t)i) * 13);
	if (m->interrupt_at && w == m->interrupt_at)
		raise(SIGTERM);
	return w != m->fail_at;
}

/* Kernels without code; returns their cubins. */
static PlanBlob make_kernels_up(Compile *c)
{
	TargetWork *w = &c->work.at[0];
	int n = 0;
	for (int i = 0; i < w->phases.n; i++)
		n += w->phases.at[i].picks.n;
	w->plan.kernels = ARENA_ARRAY(&c->arena, Kernel, n);
	uint8_t *cubins = ARENA_ARRAY(&c->arena, uint8_t, n * MADE_CUBIN_BYTES);
	for (int i = 0; i < w->phases.n; i++)
		for (int k = 0; k < w->phases.at[i].picks.n; k++) {
			Pick *pick = &w->phases.at[i].picks.at[k];
			const KernelTemplate *t = &kernel_table[pick->template_index];
			w->plan.kernels[w->plan.n_kernels] = (Kernel){.name = t->name, .defines = pick->defines,
				.cubin_offset = w->plan.n_kernels * MADE_CUBIN_BYTES, .cubin_bytes = MADE_CUBIN_BYTES,
				.entry = t->name, .param_bytes = t->param_bytes, .smem_bytes = pick->smem_bytes, .registers = 32,
				.block = {pick->block[0], pick->block[1], pick->block[2]}};
			made_cubin(cubins + w->plan.n_kernels * MADE_CUBIN_BYTES, &(MadeCubin){.entry = t->name,
				.param_bytes = t->param_bytes, .registers = 32, .sm = 90});
			pick->kernel = w->plan.n_kernels++;
		}
	return (PlanBlob){"cubins", cubins, (size_t)n * MADE_CUBIN_BYTES};
}

static void make(Made *m, bool embed)
{
	synthetic_model(&m->c, "qwen2");
	build_graph(&m->c);
	fuse(&m->c);
	pick_kernels(&m->c);
	m->blob = make_kernels_up(&m->c);
	plan_memory(&m->c);
	schedule(&m->c);
	assert_int_equal(m->c.diags.n_errors, 0);
	TargetWork *w = &m->c.work.at[0];
	m->fail_at = -1;
	m->artifact = (Artifact){.graph = m->c.graph, .targets = &w->plan, .n_targets = 1,
		.ledger = ARENA_ARRAY(&m->c.arena, Slot *, 1), .n_ledger = ARENA_ARRAY(&m->c.arena, int, 1),
		.options = ARENA_NEW(&m->c.arena, Option), .n_options = 1};
	m->artifact.contracts = list_contracts(&m->c, &m->artifact.n_contracts);
	m->artifact.ledger[0] = w->ledger.at;
	m->artifact.n_ledger[0] = w->ledger.n;
	m->artifact.options[0] = (Option){"kv.page", arena_printf(&m->c.arena, "%d", m->c.graph.page)};
	m->parts = (PlanParts){&m->artifact, &m->blob, 1, embed, {m, read_weight}, NULL, 0};
}

static uint8_t *slurp(const char *path, int64_t *n)
{
	int fd = open(path, O_RDONLY);
	struct stat st;
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	*n = st.st_size;
	uint8_t *bytes = malloc((size_t)*n);
	assert_int_equal(read(fd, bytes, (size_t)*n), *n);
	close(fd);
	return bytes;
}

static int files_in(const char *folder)
{
	int n = 0;
	DIR *d = opendir(folder);
	for (const struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* Two threads hash what one thread reads. Kept and unkept weights in turn leave one of them behind: its bytes must not
 * be replaced meanwhile. Many small weights make a mistake likely each time. */
static void hashes_keep_up(void **state)
{
	(void)state;
	Made m = {0};
	char folder[] = "/tmp/atlas-write-XXXXXX", path[64], why[512] = "";
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/plan.bin", folder);
	make(&m, false);
	for (int i = 0; i < 60; i++) {
		assert_true(artifact_write(path, &m.parts, why, sizeof why));
		int64_t n;
		uint8_t *bytes = slurp(path, &n);
		Artifact back;
		assert_int_equal(artifact_read(bytes, n, NULL, &back, why, sizeof why), READ_OK);
		assert_int_equal(artifact_check_weights(&back, NULL, NULL, NULL, why, sizeof why), READ_OK);
		artifact_free(&back);
		free(bytes);
	}
	synthetic_free(&m.c);
	unlink(path);
	rmdir(folder);
}

static void written_is_read(void **state)
{
	(void)state;
	for (int embed = 0; embed < 2; embed++) {
		Made m = {0};
		char folder[] = "/tmp/atlas-write-XXXXXX", path[64], why[512] = "";
		assert_non_null(mkdtemp(folder));
		snprintf(path, sizeof path, "%s/plan.bin", folder);
		make(&m, embed);
		assert_true(artifact_write(path, &m.parts, why, sizeof why));
		assert_int_equal(files_in(folder), 1);
		int64_t n;
		uint8_t *bytes = slurp(path, &n);
		Artifact back;
		ReadStatus status = artifact_read(bytes, n, NULL, &back, why, sizeof why);
		assert_string_equal(status == READ_OK ? "" : why, "");
		assert_int_equal(artifact_check_weights(&back, NULL, NULL, NULL, why, sizeof why), READ_OK);
		assert_int_equal(back.graph.n_ops, m.c.graph.n_ops);
		assert_int_equal(back.graph.n_weights, m.c.graph.n_weights);
		assert_int_equal(back.targets[0].n_phases, m.c.work.at[0].plan.n_phases);
		assert_int_equal(back.n_ledger[0], m.c.work.at[0].ledger.n);
		const Section *weights = artifact_section(&back, "weights");
		for (int i = 0; i < back.graph.n_weights; i++) { /* hashes and places, against bytes made again */
			const Weight *w = &back.graph.weights[i];
			uint8_t *leaf = calloc(1, (size_t)w->bytes + 1), *expected = leaf + 1, sha[32]; /* none has more than one */
			read_weight(&m, i, 0, expected, (size_t)w->bytes);
			sha256_of(leaf, (size_t)w->bytes + 1, sha);
			assert_memory_equal(sha, w->hash, 32);
			if (embed || !w->file)
				assert_memory_equal(bytes + weights->offset + w->offset, expected, (size_t)w->bytes);
			free(leaf);
		}
		artifact_free(&back);
		free(bytes);
		synthetic_free(&m.c);
		unlink(path);
		rmdir(folder);
	}
}

static void same_inputs_same_bytes(void **state)
{
	(void)state;
	uint8_t *bytes[2];
	int64_t n[2];
	for (int i = 0; i < 2; i++) {
		Made m = {0};
		char folder[] = "/tmp/atlas-write-XXXXXX", path[64], why[512] = "";
		assert_non_null(mkdtemp(folder));
		snprintf(path, sizeof path, "%s/plan.bin", folder);
		make(&m, true);
		assert_true(artifact_write(path, &m.parts, why, sizeof why));
		bytes[i] = slurp(path, &n[i]);
		synthetic_free(&m.c);
		unlink(path);
		rmdir(folder);
	}
	assert_int_equal(n[0], n[1]);
	assert_memory_equal(bytes[0], bytes[1], (size_t)n[0]);
	free(bytes[0]);
	free(bytes[1]);
}

static void a_failed_write_leaves_the_old_file(void **state)
{
	(void)state;
	Made m = {0};
	char folder[] = "/tmp/atlas-write-XXXXXX", path[64], why[512] = "";
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/plan.bin", folder);
	make(&m, true);
	assert_true(artifact_write(path, &m.parts, why, sizeof why));
	int64_t n, again;
	uint8_t *before = slurp(path, &n);
	m.fail_at = m.c.graph.n_weights / 2;
	assert_false(artifact_write(path, &m.parts, why, sizeof why));
	assert_non_null(strstr(why, m.c.graph.weights[m.fail_at].name));
	assert_int_equal(files_in(folder), 1);
	uint8_t *after = slurp(path, &again);
	assert_int_equal(n, again);
	assert_memory_equal(before, after, (size_t)n);
	snprintf(path, sizeof path, "%s/none/plan.bin", folder);
	m.fail_at = -1;
	assert_false(artifact_write(path, &m.parts, why, sizeof why));
	assert_non_null(strstr(why, "No such file"));
	free(before);
	free(after);
	synthetic_free(&m.c);
	snprintf(path, sizeof path, "%s/plan.bin", folder);
	unlink(path);
	rmdir(folder);
}

static void leave(int signal_number) { _exit(signal_number == SIGTERM ? 130 : 1); }

/* The program ends as it wants to, and nothing of it is left, whether the file had a name or not. */
static void interrupted_writes_leave_nothing(void **state)
{
	char folder[] = "/tmp/plan_write.XXXXXX", path[128], why[256];
	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/plan.bin", folder);
	for (int named = 0; named < 2; named++) {
		Made m = {.has_names_only = named};
		make(&m, true);
		opening = &m;
		assert_true(artifact_write(path, &m.parts, why, sizeof why)); /* and works there */
		unlink(path);
		m.interrupt_at = m.c.graph.n_weights / 2;
		pid_t child = fork();
		if (child == 0) {
			signal(SIGTERM, leave);
			artifact_write(path, &m.parts, why, sizeof why);
			_exit(2);
		}
		int status;
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 130);
		assert_int_equal(files_in(folder), 0);
		opening = NULL;
		synthetic_free(&m.c);
	}
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_is_read),
		cmocka_unit_test(hashes_keep_up),
		cmocka_unit_test(same_inputs_same_bytes),
		cmocka_unit_test(a_failed_write_leaves_the_old_file),
		cmocka_unit_test(interrupted_writes_leave_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
