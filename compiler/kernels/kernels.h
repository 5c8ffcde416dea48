/* kernels.h - from a template and its constants to a checked cubin: NVRTC, the reader of cubins, the cache.
 *
 * All of these may be called from several threads at once, on different objects. Results are plain malloc
 * memory of the caller: the arenas of Compile belong to the main thread.
 */
#ifndef ATLASC_KERNELS_H
#define ATLASC_KERNELS_H

#include "artifacts/cubin.h"
#include "compiler/ir.h"

/* What decides the bytes of a cubin, besides the compiler's version and options. */
typedef struct KernelSource {
	const KernelTemplate *tmpl;
	const char *defines; /* "K=576 ROWS=1 WT=bf16" */
	const char *target;  /* "sm_90a" */
} KernelSource;

typedef struct Cubin {
	uint8_t *bytes; /* malloc; NULL = none */
	size_t n;
} Cubin;

/* nvrtc.c ---------------------------------------------------------------------------------------- */

/* The fixed options one by one, without architecture and defines; NULL after the last. */
const char *nvrtc_option(int i);
/* Loads NVRTC, once; false with a reason. Before any call of NVRTC's own; the two below see to it themselves. */
bool nvrtc_ready(char *why, size_t why_bytes);
/* The libnvrtc that nvrtc_ready would load: of the first folder of LD_LIBRARY_PATH, the program's own list and the
 * system's that has one. False: none has, it is left to the loader's cache. */
bool nvrtc_find(char *path, size_t bytes);
/* Numbers of the files that nvrtc_ready would load, without loading them: files that were written or put there since
 * have others. False: they are not all known. */
bool nvrtc_files(char *text, size_t bytes);
/* "13.0.88"; false with a reason when NVRTC does not work. Takes a tenth of a second: it loads NVRTC
 * and compiles an empty program. */
bool nvrtc_version(char *text, size_t bytes, char *why, size_t why_bytes);
/* On failure *log (malloc, or NULL) says why in NVRTC's words, at most 20 lines. */
bool nvrtc_compile(const KernelSource *source, Cubin *out, char **log);

/* nvrtc_pool.c -------------------------------------------------------------------------------------- */

typedef struct CompileJob {
	const KernelSource *source;
	Cubin cubin; /* the result; malloc of the caller */
	char *log;   /* malloc or NULL: NVRTC's words where it refuses the kernel */
	char *ended; /* malloc or NULL: how the process ended that compiled it */
} CompileJob;

enum { NVRTC_SECONDS = 900 }; /* for one kernel; the slowest takes a minute of a slow machine */

/* Compiles all jobs in at most `processes` child processes, and starts another one for each that crashes or takes more
 * than `seconds` for one kernel. `done` (or NULL) is called in the caller's thread, in the order in which they finish.
 * To be called while the process has one thread. */
void nvrtc_pool_run(CompileJob *jobs, int n, int processes, int seconds, void (*done)(void *ctx, int job), void *ctx);
/* nvrtc_version in a child process. */
bool nvrtc_version_apart(char *text, size_t bytes, char *why, size_t why_bytes);

/* kernel_cache.c ------------------------------------------------------------------------------------ */

typedef struct KernelKey { uint8_t sha256[32]; bool is_version; /* else of a kernel */ } KernelKey;

/* Key of everything that matters: sources, constants, target, NVRTC's version and options, entry format. */
KernelKey kernel_key(const KernelSource *source, const char *nvrtc_version_text);
/* Key of the version that NVRTC's files have, by nvrtc_files. */
KernelKey version_key(const char *files);
/* Makes the folder and its parents; false with a reason, also when others can write there or another user owns it. */
bool cache_open(const char *dir, char *why, size_t why_bytes);
/* True when the cache holds the entry whole; a damaged one counts as absent. */
bool cache_get(const char *dir, const KernelKey *key, Cubin *out);
/* Writes the entry as new_file.h does, so that other processes and a kill at any moment see whole entries only. */
bool cache_put(const char *dir, const KernelKey *key, const Cubin *cubin, char *why, size_t why_bytes);

#endif
