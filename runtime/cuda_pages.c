/* cuda_pages.c - see cuda_pages.h. Pieces of pages share a pinned buffer, so that many small ones cost few waits. */
#include "runtime/cuda_pages.h"
#include "artifacts/memory.h"
#include "artifacts/op_table.h"

#include <stdlib.h>
#include <string.h>

/* Does the operand have pages, as kv and its scales of blocks do? */
static bool has_pages(OpKind op, int operand) { return strncmp(operand_shape(op, operand), "PAGES,", 6) == 0; }

static bool is_known(const CudaPages *pages, int64_t offset)
{
	for (int i = 0; i < pages->n; i++)
		if (pages->places[i].offset == offset)
			return true;
	return false;
}

static bool add_place(CudaPages *pages, const Buf *b, const Graph *g)
{
	if (b->arena != ARENA_STATE || is_known(pages, b->offset))
		return true;
	PagePlace *more = realloc(pages->places, sizeof *more * (size_t)(pages->n + 1));
	if (!more)
		return false;
	pages->places = more;
	more[pages->n++] = (PagePlace){b->offset, b->bytes / g->pages};
	pages->bytes += b->bytes / g->pages;
	return true;
}

/* The places of what zero_slots clears, from the buffers of phase acquire. */
static bool find_states(const TargetPlan *t, const Graph *g, CudaPages *pages)
{
	const Phase *p = NULL;
	for (int i = 0; i < t->n_phases; i++)
		p = t->phases[i].kind == ACQUIRE ? &t->phases[i] : p;
	pages->states = calloc((size_t)g->n_ops + 1, sizeof *pages->states);
	for (int i = 0; i < g->n_ops && p && pages->states; i++) {
		const int tensor = cleared_tensor(g, i);
		int k = 0;
		while (k < p->n_bufs && (tensor < 0 || p->bufs[k].tensor != tensor))
			k++;
		if (k < p->n_bufs)
			pages->states[pages->n_states++] = (PagePlace){p->bufs[k].offset, p->bufs[k].bytes / g->slots};
	}
	return pages->states;
}

/* The place of a tensor's buffer, which is the same in all phases; -1: none has it. */
static int64_t find_offset(const TargetPlan *t, int tensor)
{
	for (int i = 0; i < t->n_phases; i++)
		for (int k = 0; k < t->phases[i].n_bufs; k++)
			if (t->phases[i].bufs[k].tensor == tensor && t->phases[i].bufs[k].arena == ARENA_STATE)
				return t->phases[i].bufs[k].offset;
	return -1;
}

static bool find_windows(const TargetPlan *t, const Graph *g, CudaPages *pages)
{
	int caches[2];
	pages->rolling = rolling_of(g);
	pages->windows = calloc(2 * (size_t)g->n_ops + 1, sizeof *pages->windows);
	for (int i = 0; i < g->n_ops && pages->windows; i++)
		for (int k = rolling_caches(g, i, caches); k-- > 0;)
			pages->windows[pages->n_windows++] = (PagePlace){find_offset(t, caches[k]),
				rolling_page_bytes(g, caches[k])};
	return pages->windows;
}

/* Does the launch look pages up in the table of the pool? */
static bool reads_pool(const Phase *p, const Launch *l)
{
	const int table = op_operand(l->op, "page_table");
	for (int a = 0; a < l->n_args; a++)
		if (l->args[a].operand == table && l->args[a].buf >= 0)
			return p->bufs[l->args[a].buf].arena == ARENA_STATE;
	return false;
}

bool cuda_find_pages(const TargetPlan *t, const Graph *g, CudaPages *pages)
{
	*pages = (CudaPages){.table = -1, .counts = -1, .masks = -1, .later = -1, .drafts = -1};
	if (!find_states(t, g, pages) || !find_windows(t, g, pages))
		return false;
	const struct { const char *name; int64_t *offset; } wanted[] = {{"page_table", &pages->table},
		{"counts", &pages->counts}, {"masks", &pages->masks}, {"masks_later", &pages->later},
		{"slot_draft", &pages->drafts}};
	for (int i = 0; i < t->n_phases; i++) {
		const Phase *p = &t->phases[i];
		for (int k = 0; k < p->n_bufs; k++)
			for (size_t w = 0; w < sizeof wanted / sizeof wanted[0]; w++)
				if (p->bufs[k].arena == ARENA_STATE && strcmp(p->bufs[k].name, wanted[w].name) == 0)
					*wanted[w].offset = p->bufs[k].offset;
		for (int l = 0; l < p->n_launches && p->kind != PROBE; l++)
			for (int a = 0; a < p->launches[l].n_args && reads_pool(p, &p->launches[l]); a++) {
				const Arg *arg = &p->launches[l].args[a];
				if (arg->buf >= 0 && has_pages(p->launches[l].op, arg->operand) &&
					!add_place(pages, &p->bufs[arg->buf], g))
					return false;
			}
	}
	return true;
}

void cuda_free_pages(CudaPages *pages)
{
	free(pages->places);
	free(pages->states);
	free(pages->windows);
}

/* A part of a page of one buffer, which goes through a piece of the stage. */
typedef struct Piece { CuPtr at; uint8_t *host; int64_t bytes; } Piece;

/* The pieces of the stage, in order, all at once. */
static CuResult copy_pieces(const PageRoad *road, const Piece *pieces, int n, bool is_back, const char **call)
{
	CuResult r = CU_SUCCESS;
	int64_t at = 0;
	for (int i = 0; i < n && r == CU_SUCCESS; at += pieces[i++].bytes) {
		uint8_t *stage = road->stage + at;
		if (is_back)
			memcpy(stage, pieces[i].host, (size_t)pieces[i].bytes);
		*call = is_back ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync";
		r = is_back ? road->cu->MemcpyHtoDAsync(pieces[i].at, stage, (size_t)pieces[i].bytes, road->stream)
			: road->cu->MemcpyDtoHAsync(stage, pieces[i].at, (size_t)pieces[i].bytes, road->stream);
	}
	if (r != CU_SUCCESS)
		return r;
	*call = "cuStreamSynchronize";
	r = road->cu->StreamSynchronize(road->stream);
	at = 0;
	for (int i = 0; i < n && r == CU_SUCCESS && !is_back; at += pieces[i++].bytes)
		memcpy(pieces[i].host, road->stage + at, (size_t)pieces[i].bytes);
	return r;
}

CuResult cuda_copy_pages(const PageRoad *road, const int32_t *pages, int n, uint8_t *host, bool is_back,
	const char **call)
{
	enum { MOST = 256 };
	Piece pieces[MOST];
	int n_pieces = 0;
	int64_t staged = 0;
	CuResult r = CU_SUCCESS;
	for (int i = 0; i < n; i++)
		for (int p = 0; p < road->pages->n; p++) {
			const PagePlace place = road->pages->places[p];
			for (int64_t from = 0, bytes; from < place.bytes && r == CU_SUCCESS; from += bytes) {
				const int64_t left = place.bytes - from, room = road->stage_bytes - staged;
				bytes = left < room ? left : room;
				pieces[n_pieces++] = (Piece){road->state + (CuPtr)(place.offset + pages[i] * place.bytes + from), host,
					bytes};
				host += bytes;
				staged += bytes;
				const bool is_last = i == n - 1 && p == road->pages->n - 1 && from + bytes == place.bytes;
				if (n_pieces < MOST && staged < road->stage_bytes && !is_last)
					continue;
				r = copy_pieces(road, pieces, n_pieces, is_back, call);
				n_pieces = 0;
				staged = 0;
			}
		}
	return r;
}

CuResult cuda_clone_page(const PageRoad *road, int32_t from, int32_t to)
{
	CuResult r = CU_SUCCESS;
	for (int i = 0; i < road->pages->n && r == CU_SUCCESS; i++) {
		const PagePlace *p = &road->pages->places[i];
		const CuPtr first = road->state + (CuPtr)p->offset;
		r = road->cu->MemcpyDtoDAsync(first + (CuPtr)(to * p->bytes), first + (CuPtr)(from * p->bytes),
			(size_t)p->bytes, road->stream);
	}
	return r;
}

/* Bytes of the state arena, from `at` on, to a snapshot, or back. */
static CuResult keep(const PageRoad *road, int64_t at, CuPtr snapshot, int64_t bytes, bool is_back)
{
	const CuPtr state = road->state + (CuPtr)at;
	return !bytes ? CU_SUCCESS : road->cu->MemcpyDtoDAsync(is_back ? state : snapshot, is_back ? snapshot : state,
		(size_t)bytes, road->stream);
}

CuResult cuda_keep_states(const PageRoad *road, int slot, int position, CuPtr snapshot, bool is_back)
{
	const CudaPages *pages = road->pages;
	const Rolling *rolling = &pages->rolling;
	CuResult r = CU_SUCCESS;
	for (int i = 0; i < pages->n_states && r == CU_SUCCESS; i++) {
		const PagePlace *p = &pages->states[i];
		r = keep(road, p->offset + slot * p->bytes, snapshot, p->bytes, is_back);
		snapshot += (CuPtr)p->bytes;
	}
	for (int i = 0; i < pages->n_windows && r == CU_SUCCESS; i++) {
		const PagePlace *p = &pages->windows[i];
		const RollingSpan span = rolling_span(rolling, position);
		const int64_t first = p->offset + (int64_t)slot * rolling->pages * p->bytes, whole = span.whole * p->bytes;
		r = keep(road, first + span.at * p->bytes, snapshot, whole, is_back);
		if (r == CU_SUCCESS)
			r = keep(road, first, snapshot + (CuPtr)whole, (span.n - span.whole) * p->bytes, is_back);
		snapshot += (CuPtr)(rolling_kept(rolling->window, rolling->page) * p->bytes);
	}
	return r;
}

CuResult cuda_note_prompt(const PageRoad *road, int64_t vocab, int slot, const int32_t *tokens, int n,
	const char **call)
{
	const int64_t most = road->stage_bytes / 4;
	int32_t *counts = (int32_t *)(void *)road->stage;
	CuResult r = CU_SUCCESS;
	for (int64_t first = 0; first < vocab && r == CU_SUCCESS; first += most) {
		const int64_t part = vocab - first < most ? vocab - first : most;
		memset(counts, 0, (size_t)part * 4);
		for (int i = 0; i < n; i++)
			if (tokens[i] >= first && tokens[i] < first + part)
				counts[tokens[i] - first] = PLAN_IN_PROMPT;
		*call = "cuMemcpyHtoDAsync";
		r = road->cu->MemcpyHtoDAsync(road->state + (CuPtr)(road->pages->counts + 4 * (slot * vocab + first)), counts,
			(size_t)part * 4, road->stream);
		if (r != CU_SUCCESS)
			return r;
		*call = "cuStreamSynchronize";
		r = road->cu->StreamSynchronize(road->stream);
	}
	return r;
}

/* The one before has been copied: its token is there. */
CuResult cuda_put_mask(const PageRoad *road, int slot, int row, const uint32_t *words)
{
	uint32_t *kept = road->masks + (slot * road->rows + row) * road->mask_words;
	const int64_t at = row ? road->pages->later + 4 * (slot * (road->rows - 1) + row - 1) * road->mask_words
		: road->pages->masks + 4 * slot * road->mask_words;
	const size_t bytes = sizeof *words * (size_t)road->mask_words;
	if (words && memcmp(kept, words, bytes) == 0)
		return CU_SUCCESS;
	if (words)
		memcpy(kept, words, bytes);
	else
		memset(kept, 0, bytes);
	return road->cu->MemcpyHtoDAsync(road->state + (CuPtr)at, kept, bytes, road->stream);
}
