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
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_OPTIONS = 96, MAX_HEADERS = 32, LOG_LINES = 20, WHY_BYTES = 1024, MAJOR = 13, MAX_MINOR = 100 };
#define LIBRARY "libnvrtc.so.13"
#define BUILTINS "libnvrtc-builtins.so.%d.%d"

static const char *const fixed_options[] = {"-std=c++17", "-default-device", "--fmad=true", "--ftz=false",
	"--prec-div=true", "--prec-sqrt=true", "--no-source-include"};
enum { N_FIXED = sizeof fixed_options / sizeof fixed_options[0] };

const char *nvrtc_option(int i)
{
	return i < N_FIXED ? fixed_options[i] : NULL;
}

/* NVRTC's calls, of the library that the first kernel loads: that takes as long as a compile of cached kernels, and
 * commands that compile none need no NVRTC. */
#define CALLS(X) X(Version) X(GetErrorString) X(CreateProgram) X(CompileProgram) X(DestroyProgram) \
	X(GetProgramLogSize) X(GetProgramLog) X(GetCUBINSize) X(GetCUBIN) X(GetPTXSize) X(GetPTX)
#define CALL(name) __typeof__(nvrtc##name) *name;
typedef struct Nvrtc { CALLS(CALL) } Nvrtc;
#undef CALL

bool nvrtc_find(char *path, size_t bytes)
{
	Dl_serinfo size, *folders = NULL;
	bool found = false;
	void *self = dlopen(NULL, RTLD_LAZY); /* the program, which is never unloaded */
	if (!self || dlinfo(self, RTLD_DI_SERINFOSIZE, &size) != 0 || !(folders = calloc(1, size.dls_size)) ||
		dlinfo(self, RTLD_DI_SERINFOSIZE, folders) != 0 || dlinfo(self, RTLD_DI_SERINFO, folders) != 0)
		size.dls_cnt = 0;
	for (unsigned i = 0; i < size.dls_cnt && !found; i++)
		found = snprintf(path, bytes, "%s/" LIBRARY, folders->dls_serpath[i].dls_name) < (int)bytes &&
			access(path, F_OK) == 0;
	free(folders);
	return found;
}

/* A file in the folder of another, and, where that is a link, in the folder of what it links to: i = 0, 1. */
static bool beside(const char *path, int i, const char *name, char at[PATH_MAX])
{
	char real[PATH_MAX];
	const char *file = i == 0 ? path : realpath(path, real), *slash = file ? strrchr(file, '/') : NULL;
	const int n = slash ? (int)(slash - file) : 1;
	return file && snprintf(at, PATH_MAX, "%.*s/%s", n, slash ? file : ".", name) < PATH_MAX && access(at, F_OK) == 0;
}

/* libnvrtc keeps the declarations that every kernel starts from in a second library and opens it by name alone, at the
 * first compile: the loader then looks where LD_LIBRARY_PATH and its cache say, not next to libnvrtc. A library that is
 * loaded already answers to its name, so the one of the folder that libnvrtc itself came from is loaded first; that
 * also keeps the two of one version together where a machine has several. Only where that folder has none is it left
 * to the loader. */
static bool load_builtins(const Nvrtc *nvrtc, char *why, size_t why_bytes)
{
	char name[64], at[PATH_MAX];
	int major = 0, minor = 0;
	Dl_info from;
	if (nvrtc->Version(&major, &minor) != NVRTC_SUCCESS || !dladdr((void *)nvrtc->Version, &from)) {
		snprintf(why, why_bytes, "its version cannot be read");
		return false;
	}
	snprintf(name, sizeof name, BUILTINS, major, minor);
	for (int i = 0; i < 2; i++) {
		if (!beside(from.dli_fname, i, name, at))
			continue;
		if (dlopen(at, RTLD_NOW | RTLD_GLOBAL))
			return true;
		snprintf(why, why_bytes, "%s cannot be loaded: %s", name, dlerror());
		return false;
	}
	if (dlopen(name, RTLD_NOW | RTLD_GLOBAL))
		return true;
	snprintf(why, why_bytes, "%s is neither in the folder of %s nor where the loader looks", name, from.dli_fname);
	return false;
}

/* Once loaded it stays, and this is quick. A call is looked up as if the library were linked: what was loaded before it
 * (LD_PRELOAD) goes first. */
static bool load(Nvrtc *nvrtc, char *why, size_t why_bytes)
{
	char path[PATH_MAX];
	const bool is_found = nvrtc_find(path, sizeof path);
	const char *lacks = NULL;
	if (!dlopen(is_found ? path : LIBRARY, RTLD_NOW | RTLD_GLOBAL)) {
		snprintf(why, why_bytes, "%s", dlerror());
		return false;
	}
#define CALL(name) \
	if (!(nvrtc->name = (__typeof__(nvrtc->name))dlsym(RTLD_DEFAULT, "nvrtc" #name))) \
		lacks = "nvrtc" #name;
	CALLS(CALL)
#undef CALL
	if (lacks)
		snprintf(why, why_bytes, "%s has no %s", is_found ? path : LIBRARY, lacks);
	return !lacks && load_builtins(nvrtc, why, why_bytes);
}

bool nvrtc_ready(char *why, size_t why_bytes)
{
	Nvrtc nvrtc;
	return load(&nvrtc, why, why_bytes);
}

bool nvrtc_files(char *text, size_t bytes)
{
	char path[PATH_MAX], name[64], at[PATH_MAX];
	struct stat st;
	int n = 0, n_builtins = -1;
	bool is_known = nvrtc_find(path, sizeof path);
	for (int minor = -1; minor < MAX_MINOR && is_known; minor++) { /* -1: libnvrtc itself */
		snprintf(at, sizeof at, "%s", path);
		snprintf(name, sizeof name, BUILTINS, MAJOR, minor);
		if (minor >= 0 && !beside(path, 0, name, at) && !beside(path, 1, name, at))
			continue;
		n_builtins++;
		is_known = stat(at, &st) == 0;
		n += snprintf(text + n, bytes - (size_t)n, "%d %llu %llu %lld %lld.%09ld %lld.%09ld\n", minor,
			(unsigned long long)st.st_dev, (unsigned long long)st.st_ino, (long long)st.st_size,
			(long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
		is_known = is_known && n < (int)bytes;
	}
	return is_known && n_builtins > 0;
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

static char *trimmed_log(const Nvrtc *nvrtc, nvrtcProgram program)
{
	size_t n = 0;
	if (nvrtc->GetProgramLogSize(program, &n) != NVRTC_SUCCESS || n <= 1)
		return NULL;
	char *log = calloc(1, n + 1);
	if (!log || nvrtc->GetProgramLog(program, log) != NVRTC_SUCCESS) {
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

static bool get_cubin(const Nvrtc *nvrtc, nvrtcProgram program, Cubin *out)
{
	if (nvrtc->GetCUBINSize(program, &out->n) != NVRTC_SUCCESS || out->n == 0)
		return false;
	out->bytes = malloc(out->n);
	if (out->bytes && nvrtc->GetCUBIN(program, (char *)out->bytes) == NVRTC_SUCCESS)
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
	Nvrtc nvrtc;
	if (!load(&nvrtc, why, sizeof why)) {
		*log = strdup(why);
		return false;
	}
	char *block = define_options(source->defines, options, &n);
	nvrtcProgram program = NULL;
	nvrtcResult rc = nvrtc.CreateProgram(&program, source_text(t->sources[0]), t->sources[0], t->n_sources - 1,
		headers, names);
	bool ok = block && rc == NVRTC_SUCCESS;
	if (ok) {
		rc = nvrtc.CompileProgram(program, n, options);
		ok = rc == NVRTC_SUCCESS && get_cubin(&nvrtc, program, out);
		if (!ok)
			*log = trimmed_log(&nvrtc, program);
		nvrtc.DestroyProgram(&program);
	}
	if (!ok && !*log)
		*log = strdup(nvrtc.GetErrorString(rc));
	free(block);
	return ok;
}

/* The library's own version call knows no patch level, and patch levels differ in the code they emit. The head of
 * a PTX text names it: "// Cuda compilation tools, release 13.0, V13.0.88". */
bool nvrtc_version(char *text, size_t bytes, char *why, size_t why_bytes)
{
	static const char *const options[] = {"--gpu-architecture=compute_80"};
	Nvrtc nvrtc;
	if (!load(&nvrtc, why, why_bytes))
		return false;
	nvrtcProgram program = NULL;
	size_t n = 0;
	char *ptx = NULL, *log = NULL;
	nvrtcResult rc = nvrtc.CreateProgram(&program, "", "empty.cu", 0, NULL, NULL);
	if (rc == NVRTC_SUCCESS)
		rc = nvrtc.CompileProgram(program, 1, options);
	if (rc != NVRTC_SUCCESS && program)
		log = trimmed_log(&nvrtc, program);
	if (rc == NVRTC_SUCCESS)
		rc = nvrtc.GetPTXSize(program, &n);
	if (rc == NVRTC_SUCCESS && (ptx = calloc(1, n + 1)))
		rc = nvrtc.GetPTX(program, ptx);
	if (program)
		nvrtc.DestroyProgram(&program);
	const char *v = ptx ? strstr(ptx, ", V") : NULL;
	size_t len = v ? strspn(v + 3, "0123456789.") : 0;
	bool ok = rc == NVRTC_SUCCESS && len > 0 && len < bytes;
	if (ok)
		snprintf(text, bytes, "%.*s", (int)len, v + 3);
	else
		snprintf(why, why_bytes, "%s%s%s",
			rc == NVRTC_SUCCESS ? "its version cannot be read" : nvrtc.GetErrorString(rc), log ? ":\n" : "",
			log ? log : "");
	free(log);
	free(ptx);
	return ok;
}
