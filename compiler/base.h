/* base.h - what every file of the compiler uses: memory with named lifetimes,
 * growable arrays, source locations and diagnostics. Nothing here knows models or GPUs.
 */
#ifndef ATLASC_BASE_H
#define ATLASC_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory ------------------------------------------------------------------------------
 *
 * Two lifetimes: one arena for a whole compile, one scratch arena released after each
 * pass. Passes never call free. Blocks are zeroed and aligned to 16 bytes; allocation
 * never returns NULL (out of memory ends the program with exit code 5).
 * With -DARENA_MALLOC each object is a malloc of its own, so that sanitizers see overruns; what a growable array does
 * not use yet is out of bounds for them.
 */
typedef struct ArenaBlock ArenaBlock;
typedef struct Arena {
	ArenaBlock *blocks; /* newest first; NULL when empty. A zeroed Arena is ready to use */
	size_t total_bytes; /* handed out since the last release */
} Arena;

void *arena_alloc(Arena *a, size_t bytes);
char *arena_strdup(Arena *a, const char *s);
char *arena_strndup(Arena *a, const char *s, size_t len); /* adds the final NUL */
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_release(Arena *a); /* frees everything; the arena is ready for use again */

#define ARENA_NEW(arena, T) ((T *)arena_alloc((arena), sizeof(T)))
#define ARENA_ARRAY(arena, T, n) ((T *)arena_alloc((arena), sizeof(T) * (size_t)(n)))

/* Growable array: `VEC(Launch) launches;`, zeroed = empty. Elements are addressed by index
 * (indices survive growth and print well; pointers do not). */
#define VEC(T) struct { T *at; int n, cap; }
#define vec_push(arena, v) \
	(vec_grow((arena), (void **)&(v)->at, (v)->n, &(v)->cap, sizeof *(v)->at), &(v)->at[(v)->n++])
void vec_grow(Arena *a, void **at, int n, int *cap, size_t elem_bytes);

/* Locations and diagnostics --------------------------------------------------------------
 *
 * Every value read from a user's file keeps its place. Diagnostics are collected, all of
 * them are printed at the end in compiler form, and the exit code is that of the first one:
 *
 *   MODEL.toml:41:12: error[A0312]: WARPS = 3: template gemv_norm knows 4, 8
 */
typedef struct Loc {
	const char *file; /* as the user would name it, arena or static; NULL = no file */
	int line, col;    /* 1-based; 0 = the whole file. For binary files line is 0 */
} Loc;

enum {
#define EXIT_CODE(name, value, meaning) name = (value),
#include "artifacts/exit_codes.h"
#undef EXIT_CODE
};

typedef enum Code { /* stable diagnostic codes: compiler/codes.h is the table */
	CODE_NONE,
#define CODE(name, exit_code, title, meaning, advice) name,
#include "compiler/codes.h"
#undef CODE
	CODE_COUNT
} Code;

const char *code_name(Code code);    /* "A0312" */
int code_exit(Code code);            /* one of EXIT_ */
typedef struct CodeInfo { const char *name; int exit_code; const char *title, *meaning, *advice; } CodeInfo;
const CodeInfo *code_info(Code code);
bool code_from_name(const char *name, Code *out); /* case does not count */

enum { DIAG_MAX = 20 }; /* diagnostics kept; the rest are counted */

typedef struct Diag {
	Code code;
	bool is_note; /* a remark that does not fail the compile */
	Loc at;
	char *text; /* owned by the diagnostics' arena */
} Diag;

typedef struct InputFile { /* that was read whole */
	char name[96]; /* base name, cut to that */
	uint8_t sha256[32];
	int64_t bytes;
} InputFile;
enum { INPUT_MAX = 32 }; /* noted */

typedef struct Diags {
	Arena *arena;
	Diag list[DIAG_MAX];
	int n;        /* entries in list */
	int n_errors; /* errors seen, including those not kept */
	int n_again;  /* of them, those that were kept already: two passes read one file */
	VEC(Diag) unread; /* remarks about unused input, all of them: the plan records them */
	bool refuses_unread;      /* -W error: these are errors */
	bool refuses[CODE_COUNT]; /* -W error=CODE: remarks of these codes are */
	InputFile inputs[INPUT_MAX]; int n_inputs; /* what the plan says it was made of: noted where files are read */
} Diags;

/* Does a remark of this code report input that is not read? */
bool code_is_unread(Code code);

/* Records an error and returns false, so that a helper can `return fail_at(...)`. */
bool fail_at(Diags *d, Code code, Loc at, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* A remark, or an error where the command line says so. */
void note_at(Diags *d, Code code, Loc at, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* We are wrong: message with our file and line, then abort (exit code 70 by the driver). */
#define bug(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void bug_at(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
