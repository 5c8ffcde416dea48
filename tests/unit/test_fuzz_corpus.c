/* test_fuzz_corpus.c - inputs that fuzzing found or started from, read again: tests/fuzz/NAME (targets.h). */
#include "artifacts/diff.h"
#include "tests/fuzz/targets.h"
#include "tests/unit/made_plan.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_FILE = 1 << 20 };

/* Reads the file and gives its bytes to the target; one that is called sound must be read. */
static void replay(const FuzzTarget *target, const char *folder, const char *name)
{
	char path[512];
	uint8_t *bytes = malloc(MAX_FILE);
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *f = fopen(path, "rb");
	if (!f || !bytes)
		fail_msg("%s cannot be read", path);
	size_t n = fread(bytes, 1, MAX_FILE, f);
	fclose(f);
	bool read = target->run(bytes, n);
	if (strncmp(name, "sound", 5) == 0 && !read)
		fail_msg("%s is refused", path);
	free(bytes);
}

static void corpora_are_read_or_refused(void **state)
{
	(void)state;
	for (int i = 0; i < n_fuzz_targets; i++) {
		char folder[256];
		int n = 0;
		snprintf(folder, sizeof folder, "tests/fuzz/%s", fuzz_targets[i].name);
		DIR *d = opendir(folder);
		if (!d)
			fail_msg("%s cannot be read", folder);
		for (const struct dirent *e; (e = readdir(d)); n++)
			if (e->d_name[0] != '.')
				replay(&fuzz_targets[i], folder, e->d_name);
		closedir(d);
		assert_true(n > 2);
	}
}

/* The ledger's texts are free: an operand of the same name twice, a constant without a value. */
static void odd_texts_of_plans_are_compared(void **state)
{
	MadePlan m;
	char *text;
	size_t n;
	(void)state;
	make_plan(&m, "llama");
	for (int i = 0; i < m.artifact.n_ledger[0]; i++)
		m.artifact.ledger[0][i].operands = "x bf16 [1,64], x i32 [1]";
	PlanDiff *same = diff_make(&m.artifact, &m.artifact);
	assert_true(diff_is_empty(same));
	diff_free(same);
	Artifact other = m.artifact;
	TargetPlan target = m.artifact.targets[0];
	Kernel *kernels = malloc(sizeof *kernels * (size_t)target.n_kernels);
	other.targets = &target;
	memcpy(kernels, target.kernels, sizeof *kernels * (size_t)target.n_kernels);
	target.kernels = kernels;
	for (int i = 0; i < target.n_kernels; i++) {
		kernels[i].defines = "X";
		m.artifact.targets[0].kernels[i].defines = "X=1";
	}
	PlanDiff *d = diff_make(&m.artifact, &other);
	FILE *out = open_memstream(&text, &n);
	diff_text(d, out);
	fclose(out);
	assert_non_null(strstr(text, "X 1 -> \n"));
	diff_free(d);
	free(text);
	free(kernels);
	free_made(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(corpora_are_read_or_refused),
		cmocka_unit_test(odd_texts_of_plans_are_compared)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
