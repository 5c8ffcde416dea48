/* hazard_check.c - do a phase's edges order every two launches that touch the same bytes?
 *
 * Launches run in any order that the edges allow. So a launch that reads bytes must wait, directly or through
 * others, for the one that wrote them, and a launch that writes bytes for the last writer and for all who read
 * since. The bounds of all buffers cut the arenas into pieces that no buffer enters halfway; one walk over the
 * launches keeps, for each piece, its last writer and the readers since, and for each launch the set of those it
 * comes after. On the way it shows that no launch reads scratch that nothing wrote.
 *
 * Early arguments are read before the launch has waited for others. What it finds is what the steps before have left
 * if two things hold: nothing before it in the phase writes these bytes, and all of the step before is done when a
 * launch of this step starts. The second follows from edges that are not programmatic in front of the launches without
 * deps.
 */
#include "artifacts/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Place { ArenaKind arena; int64_t offset; } Place; /* start of a piece */

typedef struct Hazards {
	const Phase *p;
	Place *pieces; int n_pieces;
	int *writer;        /* [n_pieces] last launch that wrote it, -1 = none */
	uint64_t *readers;  /* [n_pieces][words] launches that read it since */
	uint64_t *before;   /* [n_launches][words] launches that a launch comes after, and itself */
	int words;
	Why *why;
} Hazards;

static int compare_places(const void *a, const void *b)
{
	const Place *x = a, *y = b;
	if (x->arena != y->arena)
		return x->arena < y->arena ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

static bool start(Hazards *h)
{
	const Phase *p = h->p;
	size_t words = (size_t)(p->n_launches + 63) / 64, most = 2 * (size_t)p->n_bufs + 1;
	h->words = (int)words;
	h->pieces = malloc(most * sizeof *h->pieces);
	h->before = calloc((size_t)p->n_launches * words, sizeof *h->before);
	if (!h->pieces || !h->before)
		return false;
	for (int i = 0; i < p->n_bufs; i++) {
		const Buf *b = &p->bufs[i];
		if (b->arena == ARENA_WEIGHTS)
			continue;
		h->pieces[h->n_pieces++] = (Place){b->arena, b->offset};
		h->pieces[h->n_pieces++] = (Place){b->arena, b->offset + b->bytes};
	}
	qsort(h->pieces, (size_t)h->n_pieces, sizeof *h->pieces, compare_places);
	int n = 0;
	for (int i = 0; i < h->n_pieces; i++)
		if (n == 0 || compare_places(&h->pieces[n - 1], &h->pieces[i]) != 0)
			h->pieces[n++] = h->pieces[i];
	h->n_pieces = n;
	h->writer = malloc(((size_t)n + 1) * sizeof *h->writer);
	h->readers = calloc(((size_t)n + 1) * words, sizeof *h->readers);
	if (!h->writer || !h->readers)
		return false;
	for (int i = 0; i < n; i++)
		h->writer[i] = -1;
	return true;
}

static bool comes_after(const Hazards *h, int launch, int other)
{
	return h->before[(size_t)launch * (size_t)h->words + (size_t)other / 64] >> (other % 64) & 1;
}

/* A launch that `launch` must wait for before it touches the piece, and does not; -1 = none. */
static int missing_edge(const Hazards *h, int launch, int piece, bool writes)
{
	if (h->writer[piece] >= 0 && !comes_after(h, launch, h->writer[piece]))
		return h->writer[piece];
	for (int w = 0; w < h->words && writes; w++) {
		uint64_t open = h->readers[(size_t)piece * (size_t)h->words + (size_t)w] &
			~h->before[(size_t)launch * (size_t)h->words + (size_t)w];
		for (int bit = 0; open; bit++, open >>= 1)
			if (open & 1)
				return w * 64 + bit;
	}
	return -1;
}

/* First piece of a buffer. */
static int first_piece(const Hazards *h, const Buf *b)
{
	Place key = {b->arena, b->offset};
	const Place *at = bsearch(&key, h->pieces, (size_t)h->n_pieces, sizeof key, compare_places);
	return (int)(at - h->pieces);
}

static bool piece_of(const Hazards *h, int piece, const Buf *b)
{
	return h->pieces[piece].arena == b->arena && h->pieces[piece].offset < b->offset + b->bytes;
}

static bool check_touch(const Hazards *h, int launch, const Buf *b, OperandRole role, bool is_early)
{
	const char *op = op_table[h->p->launches[launch].op].name;
	const PhaseLabel phase = phase_label(h->p->kind, h->p->rows, h->p->each);
	for (int s = first_piece(h, b); piece_of(h, s, b); s++) {
		if (is_early && h->writer[s] >= 0)
			return why_not(h->why, READ_MALFORMED, "%s launch %d (%s): reads %s early, which launch %d writes",
				phase.text, launch, op, b->name, h->writer[s]);
		int other = missing_edge(h, launch, s, operand_is_written(role));
		if (other >= 0)
			return why_not(h->why, READ_MALFORMED, "%s launch %d (%s): touches %s without waiting for launch %d",
				phase.text, launch, op, b->name, other);
		if (b->arena == ARENA_SCRATCH && role != OPERAND_OUT && h->writer[s] < 0)
			return why_not(h->why, READ_MALFORMED, "%s launch %d (%s): reads %s, which no launch wrote", phase.text,
				launch, op, b->name);
	}
	return true;
}

static void note_touch(Hazards *h, int launch, const Buf *b, OperandRole role)
{
	for (int s = first_piece(h, b); piece_of(h, s, b); s++) {
		uint64_t *readers = h->readers + (size_t)s * (size_t)h->words;
		if (operand_is_written(role)) {
			h->writer[s] = launch;
			memset(readers, 0, sizeof *readers * (size_t)h->words);
		} else if (h->writer[s] != launch) {
			readers[launch / 64] |= (uint64_t)1 << (launch % 64);
		}
	}
}

static bool check_launch_hazards(Hazards *h, int launch)
{
	const Launch *l = &h->p->launches[launch];
	uint64_t *mine = h->before + (size_t)launch * (size_t)h->words;
	for (int d = 0; d < l->n_deps; d++)
		for (int w = 0; w < h->words; w++)
			mine[w] |= h->before[(size_t)l->deps[d] * (size_t)h->words + (size_t)w];
	mine[launch / 64] |= (uint64_t)1 << (launch % 64);
	for (int pass = 0; pass < 2; pass++) /* all is checked before anything is noted */
		for (int i = 0; i < l->n_args; i++) {
			const Buf *b = l->args[i].buf < 0 ? NULL : &h->p->bufs[l->args[i].buf];
			OperandRole role = op_table[l->op].operands[l->args[i].operand].role;
			if (!b || b->arena == ARENA_WEIGHTS)
				continue;
			if (pass == 0 && !check_touch(h, launch, b, role, l->args[i].early))
				return false;
			if (pass == 1)
				note_touch(h, launch, b, role);
		}
	return true;
}

/* With early arguments in the phase, launches without a predecessor in their step start after the step before. */
static bool check_first_launches(const Phase *p, Why *why)
{
	bool any_early = false;
	for (int i = 0; i < p->n_launches; i++)
		for (int a = 0; a < p->launches[i].n_args; a++)
			any_early |= p->launches[i].args[a].early != 0;
	for (int i = 0; i < p->n_launches && any_early; i++)
		if (p->launches[i].n_deps == 0 && p->launches[i].overlaps)
			return why_not(why, READ_MALFORMED, "%s launch %d (%s): may start before the step before is done, in a "
				"phase that reads early what that step writes", PHASE_LABEL(p), i,
				op_table[p->launches[i].op].name);
	return true;
}

bool check_hazards(const Phase *p, Why *why)
{
	Hazards h = {.p = p, .why = why};
	bool good = start(&h) ||
		why_not(why, READ_NO_MEMORY, "no memory to order %d launches", p->n_launches);
	for (int i = 0; i < p->n_launches && good; i++)
		good = check_launch_hazards(&h, i);
	good = good && check_first_launches(p, why);
	free(h.pieces);
	free(h.writer);
	free(h.readers);
	free(h.before);
	return good;
}
