/* test_nccl_guard.c - what NCCL would read besides its arguments: variables and lines of files that are refused. */
#include "runtime/ranks/nccl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void lines_of_a_file(void **state)
{
	static const struct { const char *text, *name; } cases[] = {{"", ""}, {"# NCCL_ALGO=Tree\n\n", ""},
		{"NCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME=eth0\n", ""}, {"NCCL_ALGO=Ring\nNCCL_PROTO=Simple\n", ""},
		{"NCCL_ALGO=Tree\n", "NCCL_ALGO"}, {"NCCL_ALGO\n", "NCCL_ALGO"},
		{"NCCL_DEBUG=1\n  NCCL_PROTO=LL", "NCCL_PROTO"},
		{"NCCL_NVLS_ENABLE=1\r\n", "NCCL_NVLS_ENABLE"}, {"NCCL_MIN_CTAS = 4\n", "NCCL_MIN_CTAS"},
		{"OTHER=1\n", "OTHER"}, {"NCCL_ALGORITHM=Ring\n", "NCCL_ALGORITHM"}};
	(void)state;
	char path[] = "/tmp/atlas-nccl-XXXXXX", name[64];
	close(mkstemp(path));
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		FILE *f = fopen(path, "wb");
		fputs(cases[i].text, f);
		fclose(f);
		nccl_conf_fault(path, name);
		assert_string_equal(name, cases[i].name);
	}
	unlink(path);
	nccl_conf_fault(path, name);
	assert_string_equal(name, "");
}

static void variables(void **state)
{
	static const char *const bad[] = {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_CTAS", "NCCL_CONF_FILE", "NCCL_TUNER_PLUGIN",
		"NCCL_NET", "NCCL_ANYTHING_NEW"};
	AtlasError error;
	(void)state;
	setenv("NCCL_DEBUG", "WARN", 1);
	setenv("NCCL_VERSION", "2.28.3-1", 1); /* NVIDIA's containers say so what they hold */
	assert_int_equal(nccl_guard(&error), ATLAS_OK);
	assert_string_equal(getenv("NCCL_ALGO"), "Ring"); /* what decides the order of a sum is set */
	assert_string_equal(getenv("NCCL_NVLS_ENABLE"), "0");
	assert_int_equal(nccl_guard(&error), ATLAS_OK); /* and is no fault the next time */
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		setenv(bad[i], "x", 1);
		assert_int_equal(nccl_guard(&error), ATLAS_UNSUPPORTED);
		assert_non_null(strstr(error.text, bad[i]));
		unsetenv(bad[i]);
	}
	assert_int_equal(nccl_guard(&error), ATLAS_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(lines_of_a_file), cmocka_unit_test(variables)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
