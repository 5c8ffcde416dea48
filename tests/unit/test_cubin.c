/* test_cubin.c - the reader of cubins against what ptxas prints, damaged cubins, and the kernel cache.
 *
 * The oracle of the reader is NVRTC's log with ptxas' -v: registers, stack frame and static shared memory as the
 * tool that wrote the cubin counts them. Kernels differ in each of the three, for every target.
 */
#include "artifacts/hash.h"
#include "compiler/kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct Case { const char *name, *source; int param_bytes, max_threads; } Case;

#define KERNEL(...) "extern \"C\" __global__ void k(" __VA_ARGS__
static const Case cases[] = {
	{"nothing", KERNEL("float *y) { y[threadIdx.x] = 1; }"), 8, 0},
	{"static smem", KERNEL("float *y, int n) { __shared__ float s[100]; s[threadIdx.x] = y[n]; __syncthreads(); "
		"y[threadIdx.x] = s[n]; }"), 12, 0},
	{"dynamic smem", KERNEL("float *y, int n) { extern __shared__ float s[]; s[threadIdx.x] = y[n]; "
		"__syncthreads(); y[threadIdx.x] = s[n]; }"), 12, 0},
	{"both", "struct A { float *x, *y, *z; int n; }; " KERNEL("const A a) { extern __shared__ float s[]; "
		"__shared__ double t[333]; s[threadIdx.x] = a.x[a.n]; t[threadIdx.x] = a.y[a.n]; __syncthreads(); "
		"a.z[threadIdx.x] = s[a.n] + t[a.n]; }"), 32, 0},
	{"aligned parameter", "struct A { alignas(64) long long map[16]; float *y; }; " KERNEL(
		"const __grid_constant__ A a) { a.y[0] = a.map[threadIdx.x & 15]; }"), 192, 0},
	{"local array", KERNEL("float *y, int n) { float t[64]; for (int i = 0; i < 64; i++) t[i] = y[i * i]; "
		"for (int i = 0; i < n; i++) t[(i * 7) & 63] += t[i & 63]; y[0] = t[n & 63]; }"), 12, 0},
	{"spills", "extern \"C\" __global__ void __launch_bounds__(1024, 2) k(float *y, int n) { float t[96]; "
		"for (int i = 0; i < 96; i++) t[i] = y[i * n]; for (int j = 0; j < n; j++) for (int i = 0; i < 96; i++) "
		"t[i] = t[i] * t[(i * 37 + 11) % 96] + y[j]; for (int i = 0; i < 96; i++) y[i] = t[i]; }", 12, 1024},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

typedef struct Printed { int registers, stack, smem; } Printed;

static Cubin compile(const Case *x, const char *target, Printed *printed)
{
	char arch[64], why[256];
	snprintf(arch, sizeof arch, "--gpu-architecture=%s", target);
	const char *options[] = {arch, "-std=c++17", "--ptxas-options=-v"};
	if (!nvrtc_ready(why, sizeof why))
		fail_msg("%s", why);
	nvrtcProgram p;
	size_t n;
	assert_int_equal(nvrtcCreateProgram(&p, x->source, "k.cu", 0, NULL, NULL), NVRTC_SUCCESS);
	nvrtcResult rc = nvrtcCompileProgram(p, 3, options);
	assert_int_equal(nvrtcGetProgramLogSize(p, &n), NVRTC_SUCCESS);
	char *log = calloc(1, n + 1);
	assert_int_equal(nvrtcGetProgramLog(p, log), NVRTC_SUCCESS);
	if (rc != NVRTC_SUCCESS)
		fail_msg("%s: %s", x->name, log);
	Cubin c = {0};
	assert_int_equal(nvrtcGetCUBINSize(p, &c.n), NVRTC_SUCCESS);
	c.bytes = malloc(c.n);
	assert_int_equal(nvrtcGetCUBIN(p, (char *)c.bytes), NVRTC_SUCCESS);
	nvrtcDestroyProgram(&p);
	*printed = (Printed){0};
	const char *used = strstr(log, "Used "), *stack = strstr(log, " bytes stack frame");
	assert_true(used && stack && sscanf(used, "Used %d registers", &printed->registers) == 1);
	while (stack > log && strchr("0123456789", stack[-1]))
		stack--;
	printed->stack = atoi(stack);
	const char *smem = strstr(used, " bytes smem");
	while (smem && smem > log && strchr("0123456789", smem[-1]))
		smem--;
	printed->smem = smem ? atoi(smem) : 0;
	free(log);
	return c;
}

static void test_same_as_ptxas(void **state)
{
	(void)state;
	int with_stack = 0, with_smem = 0;
	for (int t = 0; t < n_target_table; t++)
		for (int i = 0; i < N_CASES; i++) {
			Printed printed;
			CubinInfo info;
			char why[200] = "";
			Cubin c = compile(&cases[i], target_table[t].name, &printed);
			if (!cubin_read(c.bytes, c.n, "k", &info, why, sizeof why))
				fail_msg("%s on %s: %s", cases[i].name, target_table[t].name, why);
			assert_int_equal(info.registers, printed.registers);
			assert_int_equal(info.local_bytes, printed.stack);
			assert_int_equal(info.static_smem_bytes, printed.smem);
			assert_int_equal(info.param_bytes, cases[i].param_bytes);
			assert_int_equal(info.max_threads, cases[i].max_threads);
			assert_int_equal(info.sm, target_table[t].cc_major * 10 + target_table[t].cc_minor);
			with_stack += info.local_bytes > 0;
			with_smem += info.static_smem_bytes > 0;
			assert_false(cubin_read(c.bytes, c.n, "kk", &info, why, sizeof why));
			assert_string_equal(why, "the cubin has no kernel kk");
			free(c.bytes);
		}
	assert_true(with_stack > n_target_table); /* the array everywhere, spills where registers run out */
	assert_int_equal(with_smem, 2 * n_target_table);
}

/* Any prefix and any flipped byte: an answer, never a read outside (each copy is its own allocation). */
static void test_damaged(void **state)
{
	(void)state;
	Printed printed;
	CubinInfo info;
	char why[200] = "";
	Cubin c = compile(&cases[3], "sm_90a", &printed);
	for (size_t n = 0; n < c.n; n += n < 512 ? 1 : 97) {
		uint8_t *copy = malloc(n ? n : 1);
		memcpy(copy, c.bytes, n);
		assert_false(cubin_read(copy, n, "k", &info, why, sizeof why));
		free(copy);
	}
	uint8_t *copy = malloc(c.n);
	unsigned random = 1;
	for (int round = 0; round < 20000; round++) {
		memcpy(copy, c.bytes, c.n);
		for (int k = 0; k < 3; k++) {
			random = random * 1664525 + 1013904223;
			size_t at = round < 10000 ? (random >> 8) % 64 : c.n - 1 - (random >> 8) % 2048;
			copy[at] = (uint8_t)(random >> 3);
		}
		if (cubin_read(copy, c.n, "k", &info, why, sizeof why))
			assert_true(info.code >= copy && info.code_bytes <= c.n - (size_t)(info.code - copy));
	}
	memcpy(copy, c.bytes, c.n);
	copy[18] = 62; /* e_machine: x86-64 */
	assert_false(cubin_read(copy, c.n, "k", &info, why, sizeof why));
	assert_string_equal(why, "not an ELF file of the CUDA architecture");
	free(copy);
	free(c.bytes);
}

/* Cache ---------------------------------------------------------------------------------------------- */

static void entry_name(const KernelKey *key, char name[80])
{
	for (int i = 0; i < 32; i++)
		sprintf(name + 2 * i, "%02x", key->sha256[i]);
	strcat(name, ".kernel");
}

static void test_cache(void **state)
{
	(void)state;
	char dir[] = "/tmp/atlas-cache-XXXXXX", why[200] = "", path[200], name[80];
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/deeper/still", dir);
	assert_true(cache_open(path, why, sizeof why));
	assert_true(cache_open(path, why, sizeof why)); /* again: it is there */
	KernelTemplate t = {.name = "t"};
	KernelSource source = {&t, "K=1", "sm_80"};
	KernelKey key = kernel_key(&source, "13.0.88");
	uint8_t text[1000];
	for (size_t i = 0; i < sizeof text; i++)
		text[i] = (uint8_t)(i * i);
	Cubin in = {text, sizeof text}, out = {0};
	assert_false(cache_get(path, &key, &out));
	assert_true(cache_put(path, &key, &in, why, sizeof why));
	assert_true(cache_get(path, &key, &out));
	assert_int_equal(out.n, in.n);
	assert_memory_equal(out.bytes, text, sizeof text);
	free(out.bytes);

	char file[400];
	entry_name(&key, name);
	snprintf(file, sizeof file, "%s/%s", path, name);
	struct stat st;
	assert_int_equal(stat(file, &st), 0);
	for (long at = 0; at < st.st_size; at += at < 64 ? 1 : 31) { /* each damaged byte: no entry; then whole again */
		FILE *f = fopen(file, "r+b");
		fseek(f, at, SEEK_SET);
		int byte = fgetc(f);
		fseek(f, at, SEEK_SET);
		fputc(byte ^ 1, f);
		fclose(f);
		assert_false(cache_get(path, &key, &out));
		assert_true(cache_put(path, &key, &in, why, sizeof why));
		assert_true(cache_get(path, &key, &out));
		free(out.bytes);
	}
	for (long n = 0; n < st.st_size; n += 111) {
		assert_int_equal(truncate(file, n), 0);
		assert_false(cache_get(path, &key, &out));
	}
	assert_int_equal(unlink(file), 0);
	assert_int_equal(mkdir(file, 0700), 0); /* a folder in the entry's place */
	assert_false(cache_get(path, &key, &out));
	assert_false(cache_put(path, &key, &in, why, sizeof why));
	assert_string_equal(why, "not a regular file but a folder");
	assert_int_equal(rmdir(file), 0);
	assert_int_equal(rmdir(path), 0); /* empty: no temporary file was left */
	snprintf(path, sizeof path, "%s/deeper", dir);
	assert_int_equal(rmdir(path), 0);
	snprintf(path, sizeof path, "%s/file", dir);
	fclose(fopen(path, "w"));
	assert_false(cache_open(path, why, sizeof why));
	assert_string_equal(why, "Not a directory");
	unlink(path);
	rmdir(dir);
}

/* An entry of one key under the name of another, which begins with the same byte, is none of that other. */
static void test_entry_of_another_key(void **state)
{
	(void)state;
	char dir[] = "/tmp/atlas-cache-XXXXXX", why[200], from[400], to[400], name[80], defines[20];
	assert_non_null(mkdtemp(dir));
	assert_true(cache_open(dir, why, sizeof why));
	KernelTemplate t = {.name = "t"};
	KernelSource source = {&t, "K=0", "sm_80"}, near = {&t, defines, "sm_80"};
	KernelKey key = kernel_key(&source, "13.0.88"), other = {0};
	for (int i = 1; other.sha256[0] != key.sha256[0]; i++) {
		snprintf(defines, sizeof defines, "K=%d", i);
		other = kernel_key(&near, "13.0.88");
	}
	uint8_t text[100] = {1, 2, 3};
	Cubin in = {text, sizeof text}, out = {0};
	assert_true(cache_put(dir, &key, &in, why, sizeof why));
	entry_name(&key, name);
	snprintf(from, sizeof from, "%s/%s", dir, name);
	entry_name(&other, name);
	snprintf(to, sizeof to, "%s/%s", dir, name);
	assert_int_equal(rename(from, to), 0);
	assert_false(cache_get(dir, &other, &out));
	assert_int_equal(rename(to, from), 0);
	assert_true(cache_get(dir, &key, &out));
	free(out.bytes);
	unlink(from);
	rmdir(dir);
}

/* What decides a cubin, one after the other, texts with their ends: a key has all of it. */
static void test_key_of_parts(void **state)
{
	(void)state;
	KernelTemplate t = {.name = "norm_rows", .source_sha256 = {7, 8, 9}};
	KernelSource source = {&t, "K=1 N=2", "sm_90a"};
	const int smem_bytes = 232448;
	char *all;
	size_t n;
	FILE *f = open_memstream(&all, &n);
	fprintf(f, "atlas kernel 1%cnorm_rows%c", 0, 0);
	fwrite(t.source_sha256, 1, sizeof t.source_sha256, f);
	fprintf(f, "K=1 N=2%csm_90a%c", 0, 0);
	fwrite(&smem_bytes, 1, sizeof smem_bytes, f);
	fprintf(f, "13.0.88%c", 0);
	for (int i = 0; nvrtc_option(i); i++)
		fprintf(f, "%s%c", nvrtc_option(i), 0);
	fclose(f);
	uint8_t want[32];
	sha256_of(all, n, want);
	KernelKey key = kernel_key(&source, "13.0.88");
	assert_memory_equal(key.sha256, want, sizeof want);
	assert_true(nvrtc_option(0) != NULL);
	free(all);
}

static void test_key(void **state)
{
	(void)state;
	KernelTemplate t = {.name = "t"}, other_name = {.name = "u"}, other_source = {.name = "t"};
	other_source.source_sha256[31] = 1;
	KernelSource s[] = {{&t, "K=1", "sm_80"}, {&other_name, "K=1", "sm_80"}, {&other_source, "K=1", "sm_80"},
		{&t, "K=11", "sm_80"}, {&t, "K=1", "sm_89"}, {&t, "K=1 N=2", "sm_80"}, {&t, "K=1", "sm_120a"},
		{&t, "K=1", "sm_121a"}}; /* the last two have the same shared memory */
	enum { N = sizeof s / sizeof s[0] };
	KernelKey keys[N + 1];
	for (int i = 0; i < N; i++)
		keys[i] = kernel_key(&s[i], "13.0.88");
	keys[N] = kernel_key(&s[0], "13.0.89");
	for (int i = 0; i <= N; i++)
		for (int j = 0; j < i; j++)
			assert_memory_not_equal(keys[i].sha256, keys[j].sha256, 32);
	KernelKey again = kernel_key(&s[0], "13.0.88");
	assert_memory_equal(again.sha256, keys[0].sha256, 32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_as_ptxas), cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_cache), cmocka_unit_test(test_key), cmocka_unit_test(test_key_of_parts),
		cmocka_unit_test(test_entry_of_another_key),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
