/* nvrtc.c - compile one kernel with NVRTC.
 *
 * A template and its includes come from the kernel table, never from files, and every constant is a -D. The
 * options are fixed, so the same kernel gives the same bytes in any folder, on any machine, in any thread:
 *
 *   -std=c++17                the templates' language
 *   -default-device           functions without __device__ are device functions, constexpr ones above all
 *   --fmad=true --ftz=false --prec-div=true --prec-sqrt=true
 *                             NVRTC's defaults, said aloud: contraction is wanted (GEMVs are chains of fused
 *                             multiply-adds), denormals and correct rounding are kept; a template that wants
 *                             an approximation names it (exp2f by ex2.approx, rsqrtf)
 *   --no-source-include       no file of the working directory can take the place of an include
 *
 * No line info, which would put paths into the cubin, and no extra optimisation flags to keep in mind.
 */
#include "compiler/kernels/kernels.h"

#include <dlfcn.h>
#include <limits.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_OPTIONS = 96, MAX_HEADERS = 32, LOG_LINES = 20, WHY_BYTES = 1024 };

static const char *const fixed_options[] = {"-std=c++17", "-default-device", "--fmad=true", "--ftz=false",
	"--prec-div=true", "--prec-sqrt=true", "--no-source-include"};
enum { N_FIXED = sizeof fixed_options / sizeof fixed_options[0] };

const char *nvrtc_option(int i)
{
	return i < N_FIXED ? fixed_options[i] : NULL;
}

/* libnvrtc keeps the declarations that every kernel starts from in a second library and opens it by name alone, at the
 * first compile: the loader then looks where LD_LIBRARY_PATH and its cache say, not next to libnvrtc. A library that is
 * loaded already answers to its name, so the one of the folder that libnvrtc itself came from is loaded first; that
 * also keeps the two of one version together where a machine has several. Only where that folder has none is it left
 * to the loader. Comes before anything is compiled, by any thread: the loader counts, and loads once. */
bool nvrtc_ready(char *why, size_t why_bytes)
{
	char name[64], at[PATH_MAX], real[PATH_MAX];
	int major = 0, minor = 0;
	Dl_info nvrtc;
	if (nvrtcVersion(&major, &minor) != NVRTC_SUCCESS || !dladdr((void *)nvrtcVersion, &nvrtc)) {
		snprintf(why, why_bytes, "its version cannot be read");
		return false;
	}
	snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", major, minor);
	const char *beside[] = {nvrtc.dli_fname, realpath(nvrtc.dli_fname, real)};
	for (int i = 0; i < 2 && beside[i]; i++) {
		const char *slash = strrchr(beside[i], '/');
		int n = slash ? (int)(slash - beside[i]) : 1;
		if (snprintf(at, sizeof at, "%.*s/%s", n, slash ? beside[i] : ".", name) >= (int)sizeof at ||
			access(at, F_OK) != 0)
			continue;
		if (dlopen(at, RTLD_NOW | RTLD_GLOBAL))
			return true;
		snprintf(why, why_bytes, "%s cannot be loaded: %s", name, dlerror());
		return false;
	}
	if (dlopen(name, RTLD_NOW | RTLD_GLOBAL))
		return true;
	snprintf(why, why_bytes, "%s is neither in the folder of %s nor where the loader looks", name, nvrtc.dli_fname);
	return false;
}

static const char *source_text(const char *name)
{
	for (int i = 0; i < n_template_sources; i++)
		if (strcmp(template_sources[i].name, name) == 0)
			return template_sources[i].text;
	bug("no template source %s", name);
}

/* Splits "A=1 B=2" into options "-DA=1" in one block of memory, which the caller frees. */
static char *define_options(const char *defines, const char **options, int *n)
{
	char *block = malloc(3 * strlen(defines) + 4), *at = block;
	for (const char *s = defines; block && *s;) {
		size_t len = strcspn(s, " ");
		if (*n == MAX_OPTIONS)
			bug("more than %d constants: %s", MAX_OPTIONS, defines);
		options[(*n)++] = at;
		at += sprintf(at, "-D%.*s", (int)len, s) + 1;
		s += len + strspn(s + len, " ");
	}
	return block;
}

static char *trimmed_log(nvrtcProgram program)
{
	size_t n = 0;
	if (nvrtcGetProgramLogSize(program, &n) != NVRTC_SUCCESS || n <= 1)
		return NULL;
	char *log = calloc(1, n + 1);
	if (!log || nvrtcGetProgramLog(program, log) != NVRTC_SUCCESS) {
		free(log);
		return NULL;
	}
	char *end = log;
	for (int lines = 0; lines < LOG_LINES && *end; lines++)
		end += strcspn(end, "\n") + (end[strcspn(end, "\n")] == '\n');
	while (end > log && (end[-1] == '\n' || end[-1] == ' '))
		end--;
	*end = 0;
	return log;
}

static bool get_cubin(nvrtcProgram program, Cubin *out)
{
	if (nvrtcGetCUBINSize(program, &out->n) != NVRTC_SUCCESS || out->n == 0)
		return false;
	out->bytes = malloc(out->n);
	if (out->bytes && nvrtcGetCUBIN(program, (char *)out->bytes) == NVRTC_SUCCESS)
		return true;
	free(out->bytes);
	*out = (Cubin){0};
	return false;
}

bool nvrtc_compile(const KernelSource *source, Cubin *out, char **log)
{
	const KernelTemplate *t = source->tmpl;
	const char *headers[MAX_HEADERS], *names[MAX_HEADERS], *options[MAX_OPTIONS];
	if (t->n_sources > MAX_HEADERS)
		bug("%s includes more than %d files", t->name, MAX_HEADERS);
	for (int i = 1; i < t->n_sources; i++) {
		names[i - 1] = t->sources[i];
		headers[i - 1] = source_text(t->sources[i]);
	}
	char arch[64], smem[64];
	snprintf(arch, sizeof arch, "--gpu-architecture=%s", source->target);
	snprintf(smem, sizeof smem, "-DSMEM_MAX=%d", target_by_name(source->target)->smem_block_bytes);
	int n = 0;
	options[n++] = arch;
	options[n++] = smem;
	for (int i = 0; i < N_FIXED; i++)
		options[n++] = fixed_options[i];
	*out = (Cubin){0};
	*log = NULL;
	char why[WHY_BYTES];
	if (!nvrtc_ready(why, sizeof why)) {
		*log = strdup(why);
		return false;
	}
	char *block = define_options(source->defines, options, &n);
	nvrtcProgram program = NULL;
	nvrtcResult rc = nvrtcCreateProgram(&program, source_text(t->sources[0]), t->sources[0], t->n_sources - 1,
		headers, names);
	bool ok = block && rc == NVRTC_SUCCESS;
	if (ok) {
		rc = nvrtcCompileProgram(program, n, options);
		ok = rc == NVRTC_SUCCESS && get_cubin(program, out);
		if (!ok)
			*log = trimmed_log(program);
		nvrtcDestroyProgram(&program);
	}
	if (!ok && !*log)
		*log = strdup(nvrtcGetErrorString(rc));
	free(block);
	return ok;
}

/* The library's own version call knows no patch level, and patch levels differ in the code they emit. The head of
 * a PTX text names it: "// Cuda compilation tools, release 13.0, V13.0.88". */
bool nvrtc_version(char *text, size_t bytes, char *why, size_t why_bytes)
{
	static const char *const options[] = {"--gpu-architecture=compute_80"};
	if (!nvrtc_ready(why, why_bytes))
		return false;
	nvrtcProgram program = NULL;
	size_t n = 0;
	char *ptx = NULL, *log = NULL;
	nvrtcResult rc = nvrtcCreateProgram(&program, "", "empty.cu", 0, NULL, NULL);
	if (rc == NVRTC_SUCCESS)
		rc = nvrtcCompileProgram(program, 1, options);
	if (rc != NVRTC_SUCCESS && program)
		log = trimmed_log(program);
	if (rc == NVRTC_SUCCESS)
		rc = nvrtcGetPTXSize(program, &n);
	if (rc == NVRTC_SUCCESS && (ptx = calloc(1, n + 1)))
		rc = nvrtcGetPTX(program, ptx);
	if (program)
		nvrtcDestroyProgram(&program);
	const char *v = ptx ? strstr(ptx, ", V") : NULL;
	size_t len = v ? strspn(v + 3, "0123456789.") : 0;
	bool ok = rc == NVRTC_SUCCESS && len > 0 && len < bytes;
	if (ok)
		snprintf(text, bytes, "%.*s", (int)len, v + 3);
	else
		snprintf(why, why_bytes, "%s%s%s", rc == NVRTC_SUCCESS ? "its version cannot be read" : nvrtcGetErrorString(rc),
			log ? ":\n" : "", log ? log : "");
	free(log);
	free(ptx);
	return ok;
}
