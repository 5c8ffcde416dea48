/* test_fuzz_corpus.c - inputs that fuzzing found or started from, read again: tests/fuzz/NAME (targets.h). */
#include "tests/fuzz/targets.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(corpora_are_read_or_refused)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
