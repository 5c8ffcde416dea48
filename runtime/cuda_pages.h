/* cuda_pages.h - what the host reads and writes of a GPU's state between steps: pages of the cache, the page table,
 * slots' states, counts and masks.
 */
#ifndef ATLAS_CUDA_PAGES_H
#define ATLAS_CUDA_PAGES_H

#include "artifacts/rolling.h"
#include "runtime/driver.h"

typedef struct PagePlace { int64_t offset, bytes; } PagePlace; /* of a buffer's page 0 in the state arena; of a page */

typedef struct CudaPages {
	PagePlace *places; int n; /* one of each buffer that has pages of the pool; owned */
	int64_t bytes;            /* of a page in all of them */
	PagePlace *states; int n_states; /* of slot 0, and bytes of a slot: those of a snapshot, in its order; owned */
	PagePlace *windows; int n_windows; /* those after them: of each buffer that has pages of slots; owned */
	Rolling rolling;
	int64_t table, counts, masks, later, drafts; /* offsets of these in the state arena, the last two of masks_later and
												  slot_draft; -1 = not there */
} CudaPages;

typedef struct PageRoad { /* nothing is owned */
	const Driver *cu;
	CuStream stream;
	CuPtr state;    /* arena */
	uint8_t *stage; /* pinned, stage_bytes */
	int64_t stage_bytes;
	const CudaPages *pages;
	uint32_t *masks; int64_t mask_words; /* pinned, [slots, rows, mask_words]: what was last copied of each row */
	int64_t rows;   /* of a slot: verify_rows, or 1 */
} PageRoad;

/* By the operands of the plan's launches whose shape begins with PAGES. False: no memory. What was found is freed by
 * cuda_free_pages in either case. */
bool cuda_find_pages(const TargetPlan *t, const Graph *g, CudaPages *pages);
void cuda_free_pages(CudaPages *pages);

/* All bytes of pages [n] to host [n, pages->bytes], or from there; done when it returns. On failure *call names the
 * driver's function. */
CuResult cuda_copy_pages(const PageRoad *road, const int32_t *pages, int n, uint8_t *host, bool is_back,
	const char **call);

/* The slot's states, and its windows before that position, to a snapshot at that address, or back, on the stream. */
CuResult cuda_keep_states(const PageRoad *road, int slot, int position, CuPtr snapshot, bool is_back);
/* The slot's row of counts, whole: these tokens [n] are in its prompt, all else in it is 0. Done when it returns. */
CuResult cuda_note_prompt(const PageRoad *road, int64_t vocab, int slot, const int32_t *tokens, int n,
	const char **call);
/* The mask of the slot's row, on the stream, unless these words, NULL for no bit, are what it has. */
CuResult cuda_put_mask(const PageRoad *road, int slot, int row, const uint32_t *words);
/* Page `from` to page `to`, on the stream. */
CuResult cuda_clone_page(const PageRoad *road, int32_t from, int32_t to);

#endif
