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
#include <openssl/evp.h>

enum { MAX_FILE = 1 << 20 };

/* found.b64: what fuzzing came upon that reaches something new, smallest inputs first: one a line. */
static void replay_lines(const FuzzTarget *target, char *text)
{
	uint8_t *bytes = malloc(MAX_FILE);
	for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		size_t chars = strlen(line), padding = strspn(line + strcspn(line, "="), "=");
		int n = EVP_DecodeBlock(bytes, (const unsigned char *)line, (int)chars);
		assert_true(n >= (int)padding);
		target->run(bytes, (size_t)n - padding);
	}
	free(bytes);
}

/* Reads the file and gives its bytes to the target; one that is called sound must be read. */
static void replay(const FuzzTarget *target, const char *folder, const char *name)
{
	char path[512];
	uint8_t *bytes = malloc(MAX_FILE + 1);
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *f = fopen(path, "rb");
	if (!f || !bytes)
		fail_msg("%s cannot be read", path);
	size_t n = fread(bytes, 1, MAX_FILE, f);
	fclose(f);
	if (strcmp(name, "found.b64") == 0) {
		bytes[n] = 0;
		replay_lines(target, (char *)bytes);
		free(bytes);
		return;
	}
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
	diff_text(d, false, out);
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
