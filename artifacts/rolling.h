/* rolling.h - caches that hold a window of positions and no more.
 *
 * A layer with a window reads the last WINDOW positions of a row, so its keys and values need no pages of the pool.
 * Where the compiler decides so, their tensors have `pages` pages of each slot, which its positions take in turn:
 *
 *   position p of slot s    page s * pages + p / PAGE % pages, line p % PAGE
 *
 * That is a page table like any other, [slots, max_pages], but one that never changes: a weight of the plan, which
 * kernels read where they read page_table. A slot has these pages always, like its other states: they are never in a
 * pool, set aside or shared, and a snapshot has a copy of those that hold the window.
 *
 * All rows of a step are written before any is read. When the last of `rows` rows of a slot is written, the window of
 * the first must be there still, and the tile in which a kernel begins to read it: what is before the window is masked,
 * but must be a key.
 */
#ifndef ATLAS_ROLLING_H
#define ATLAS_ROLLING_H

#include "artifacts/plan.h"

#define ROLLING_TABLE "atlas.rolling_table" /* i32 [slots, max_pages] */

typedef struct Rolling {
	int table;  /* the graph's tensor of that name; -1 = no layer's cache rolls */
	int pages;  /* of a slot */
	int window; /* the longest of these layers, positions */
	int page;   /* positions of a page */
} Rolling;

Rolling rolling_of(const Graph *g);
/* Pages of a slot whose steps have at most `rows` rows of it; the most rows that r.pages allow, 0 or less: none. */
int rolling_pages(int window, int rows, int page);
int rolling_rows(const Rolling *r);
/* Pages of a slot that hold the window of a row which is the first of a page: those of a snapshot. */
int rolling_kept(int window, int page);
/* Does op i keep its keys and values so? */
bool op_is_rolling(const Graph *g, int i);
/* The tensors with pages of slots that op i writes, kv and, if it is there, kv_block, into caches [2]; returns how
 * many. Over all ops each comes once. */
int rolling_caches(const Graph *g, int i, int caches[2]);
/* Bytes of a page of such a tensor, on a GPU. */
int64_t rolling_page_bytes(const Graph *g, int tensor);

/* What a snapshot of a position, a multiple of the page, holds: the n pages before it in order, of which the first
 * `whole` are pages at, at + 1, ... of the slot and the others its pages 0, 1, ... */
typedef struct RollingSpan { int n, at, whole; } RollingSpan;
RollingSpan rolling_span(const Rolling *r, int position);

#endif
