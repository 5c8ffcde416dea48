/* base.c - arenas, growable arrays, diagnostics (see base.h).
 *
 * The arena is a list of blocks that double in size up to a limit; a request larger than a
 * block gets a block of its own. Nothing is ever moved.
 */
#include "compiler/base.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define HIDE ASAN_POISON_MEMORY_REGION
#define SHOW ASAN_UNPOISON_MEMORY_REGION
#else
#define HIDE(at, bytes) ((void)(at), (void)(bytes))
#define SHOW(at, bytes) ((void)(at), (void)(bytes))
#endif

enum { BLOCK_MIN_BYTES = 64 * 1024, BLOCK_MAX_BYTES = 4 * 1024 * 1024, ARENA_ALIGN = 16 };

struct ArenaBlock {
	ArenaBlock *next;
	size_t used, cap; /* bytes of data[] */
	_Alignas(16) unsigned char data[];
};

static _Noreturn void out_of_memory(size_t bytes)
{
	fprintf(stderr, "atlasc: error[A0105]: out of host memory (%zu more bytes wanted)\n", bytes);
	exit(EXIT_ENVIRONMENT);
}

static ArenaBlock *new_block(Arena *a, size_t need)
{
	size_t cap = need;
#ifndef ARENA_MALLOC
	size_t grown = a->blocks ? a->blocks->cap * 2 : BLOCK_MIN_BYTES;
	if (grown > BLOCK_MAX_BYTES)
		grown = BLOCK_MAX_BYTES;
	if (cap < grown)
		cap = grown;
#endif
	ArenaBlock *b = calloc(1, sizeof *b + cap);
	if (!b)
		out_of_memory(need);
	b->cap = cap;
	b->next = a->blocks;
	a->blocks = b;
	return b;
}

void *arena_alloc(Arena *a, size_t bytes)
{
	if (bytes > SIZE_MAX / 2)
		out_of_memory(bytes);
	size_t need = (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
	ArenaBlock *b = a->blocks;
#ifdef ARENA_MALLOC
	need = bytes ? bytes : 1;
	b = NULL;
#endif
	if (!b || b->cap - b->used < need)
		b = new_block(a, need);
	void *p = b->data + b->used;
	b->used += need;
	a->total_bytes += bytes;
	return p;
}

char *arena_strndup(Arena *a, const char *s, size_t len)
{
	char *p = arena_alloc(a, len + 1);
	memcpy(p, s, len);
	return p;
}

char *arena_strdup(Arena *a, const char *s)
{
	return arena_strndup(a, s, strlen(s));
}

static char *arena_vprintf(Arena *a, const char *fmt, va_list args)
{
	char most[256];
	va_list again;
	va_copy(again, args);
	int len = vsnprintf(most, sizeof most, fmt, args);
	assert(len >= 0);
	char *p = arena_alloc(a, (size_t)len + 1);
	if (len < (int)sizeof most)
		memcpy(p, most, (size_t)len + 1);
	else
		vsnprintf(p, (size_t)len + 1, fmt, again);
	va_end(again);
	return p;
}

char *arena_printf(Arena *a, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	char *p = arena_vprintf(a, fmt, args);
	va_end(args);
	return p;
}

void arena_release(Arena *a)
{
	for (ArenaBlock *b = a->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	*a = (Arena){0};
}

/* Room grows by doubling, so an array and all that it left behind take at most four times its elements. An address
 * sanitizer knows which part of the room holds no element yet: reading there is an overrun, as it would be after an
 * array that grows by one element, whose leftovers would take memory by the square. */
void vec_grow(Arena *a, void **at, int n, int *cap, size_t elem_bytes)
{
	if (n >= *cap) {
		int grown = *cap ? *cap * 2 : 8;
		void *p = arena_alloc(a, (size_t)grown * elem_bytes);
		if (n)
			memcpy(p, *at, (size_t)n * elem_bytes);
		*at = p;
		*cap = grown;
		HIDE((char *)p + (size_t)n * elem_bytes, (size_t)(grown - n) * elem_bytes);
	}
	SHOW((char *)*at + (size_t)n * elem_bytes, elem_bytes);
}

static const CodeInfo codes[] = {
	{"A0000", EXIT_INTERNAL, "no code", "", ""},
#define CODE(name, exit_code, title, meaning, advice) {#name, exit_code, title, meaning, advice},
#include "compiler/codes.h"
#undef CODE
};
static_assert(sizeof codes / sizeof codes[0] == CODE_COUNT, "one row a code");

const char *code_name(Code code) { return codes[code].name; }
int code_exit(Code code) { return codes[code].exit_code; }
const CodeInfo *code_info(Code code) { return &codes[code]; }

bool code_from_name(const char *name, Code *out)
{
	for (int i = CODE_NONE + 1; i < CODE_COUNT; i++)
		if (strcasecmp(name, codes[i].name) == 0)
			return *out = (Code)i, true;
	return false;
}

bool code_is_unread(Code code)
{
	static const Code unread[] = {A0207, A0213, A0408, A0509, A0520, A0521, A0522, A0523, A0524, A0607};
	for (size_t i = 0; i < sizeof unread / sizeof unread[0]; i++)
		if (unread[i] == code)
			return true;
	return false;
}

static void record(Diags *d, Code code, bool is_note, Loc at, const char *fmt, va_list args)
{
	const bool is_unread = is_note && code_is_unread(code);
	is_note = is_note && !d->refuses[code] && !(is_unread && d->refuses_unread);
	if (!is_note)
		d->n_errors++;
	if (d->n == DIAG_MAX && !is_unread)
		return;
	char *text = arena_vprintf(d->arena, fmt, args);
	for (char *p = text; *p; p++) /* names from files must not steer the terminal */
		if (((unsigned char)*p < ' ' && *p != '\n') || *p == 0x7f)
			*p = '?';
	for (int i = 0; i < d->n; i++) { /* a file that two passes read says it once */
		const Diag *o = &d->list[i];
		if (o->code == code && o->is_note == is_note && o->at.line == at.line && o->at.col == at.col &&
				strcmp(o->text, text) == 0 && strcmp(o->at.file ? o->at.file : "", at.file ? at.file : "") == 0) {
			d->n_again += !is_note;
			return;
		}
	}
	const Diag diag = {code, is_note, at, text};
	if (is_unread)
		*vec_push(d->arena, &d->unread) = diag;
	if (d->n < DIAG_MAX)
		d->list[d->n++] = diag;
}

bool fail_at(Diags *d, Code code, Loc at, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	record(d, code, false, at, fmt, args);
	va_end(args);
	return false;
}

void note_at(Diags *d, Code code, Loc at, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	record(d, code, true, at, fmt, args);
	va_end(args);
}

_Noreturn void bug_at(const char *file, int line, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	fprintf(stderr, "atlasc: internal error at %s:%d: ", file, line);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	abort();
}
