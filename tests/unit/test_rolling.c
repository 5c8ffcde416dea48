/* Pages of slots: are they enough, and no more? What a plan may say of them, what a snapshot of a GPU copies. */
#include "artifacts/memory.h"
#include "artifacts/reader.h"
#include "artifacts/rolling.h"
#include "runtime/cuda_pages.h"
#include "tests/unit/made_plan.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { TILE = 128, WINDOW = 24, CONTEXT = 1024 };

/* Are all positions that the first of `rows` rows looks through still there when the last of them is written, wherever
 * the step begins? `pages` pages are taken in turn, by position. */
static bool holds(int pages, int window, int rows, int page)
{
	int *line = malloc(sizeof *line * (size_t)(pages * page));
	bool good = true;
	for (int first = 0; first < 3 * pages * page && good; first++) {
		for (int p = 0; p < first + rows; p++)
			line[p / page % pages * page + p % page] = p;
		const int begin = first - (window - 1) < 0 ? 0 : (first - (window - 1)) / TILE * TILE;
		for (int p = begin; p <= first && good; p++)
			good = line[p / page % pages * page + p % page] == p;
	}
	free(line);
	return good;
}

/* Enough wherever a step begins, and with one page less not. */
static void pages_hold_windows(void **state)
{
	static const int cases[][3] = {{5, 16, 16}, {20, 64, 16}, {20, 1, 8}, {128, 3, 32}, {129, 40, 8}, {1, 1, 16},
		{96, 100, 64}, {40, 170, 256}, {300, 128, 128}};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const int window = cases[i][0], rows = cases[i][1], page = cases[i][2];
		const int pages = rolling_pages(window, rows, page);
		const Rolling r = {0, pages, window, page};
		assert_true(holds(pages, window, rows, page));
		assert_false(holds(pages - 1, window, rows, page));
		assert_in_range(rolling_rows(&r), rows, rows + page - 1);
		assert_true(holds(pages, window, rolling_rows(&r), page));
		assert_false(holds(pages, window, rolling_rows(&r) + 1, page));
	}
}

/* The pages before a position, in order, wherever they are. */
static void spans_are_windows(void **state)
{
	(void)state;
	for (int pages = 11; pages < 20; pages++) {
		const Rolling r = {0, pages, WINDOW, 16};
		const int kept = rolling_kept(WINDOW, 16);
		assert_int_equal(kept, (WINDOW - 1 + TILE - 1 + 15) / 16);
		for (int end = 0; end < 3 * pages; end++) {
			const RollingSpan s = rolling_span(&r, end * 16);
			assert_int_equal(s.n, end < kept ? end : kept);
			for (int i = 0; i < s.n; i++)
				assert_int_equal(i < s.whole ? s.at + i : i - s.whole, (end - s.n + i) % pages);
		}
	}
}

/* Two layers, the second with a window. */
static void make(MadePlan *m, int windows)
{
	*m = (MadePlan){0};
	synthetic_model(&m->c, "llama");
	Options *o = &m->c.model.options;
	o->max_context = m->c.model.config.max_position = CONTEXT;
	o->rolling = true;
	o->snapshots = 2;
	LayerSpec *layers = ARENA_ARRAY(&m->c.arena, LayerSpec, PLAN_MAX_LAYERS);
	for (int l = 0; l < PLAN_MAX_LAYERS; l++)
		layers[l] = (LayerSpec){.kv = DT_bf16, .window = l < 2 && windows >> l & 1 ? WINDOW : 0};
	m->c.model.config.layers = layers;
	make_plan_of_model(m);
}

static ReadStatus read_made(MadePlan *m, char why[256])
{
	Artifact a;
	write_made(m, true);
	FILE *f = fopen(m->path, "rb");
	static uint8_t bytes[4 << 20];
	const size_t n = fread(bytes, 1, sizeof bytes, f);
	fclose(f);
	assert_true(n > 0 && n < sizeof bytes);
	why[0] = 0;
	const ReadStatus s = artifact_read(bytes, (int64_t)n, NULL, &a, why, 256);
	if (s == READ_OK)
		artifact_free(&a);
	return s;
}

/* Changes a value, expects the sentence, puts the value back. */
#define WRONG(place, value, expected) \
	do { \
		__typeof__(place) old = (place); \
		(place) = (value); \
		assert_int_equal(read_made(&m, why), READ_MALFORMED); \
		assert_string_equal(why, expected); \
		(place) = old; \
	} while (0)

static GraphOp *op_of(Graph *g, OpKind kind, int layer)
{
	int i = 0;
	while (g->ops[i].kind != kind || g->ops[i].layer != layer)
		i++;
	return &g->ops[i];
}

static void plans_are_checked(void **state)
{
	char why[256];
	MadePlan m;
	(void)state;
	make(&m, 2);
	Graph *g = &m.artifact.graph;
	assert_int_equal(read_made(&m, why), READ_OK);
	const Rolling r = rolling_of(g);
	assert_int_equal(r.pages, (WINDOW - 1 + TILE - 1 + 32 + 15) / 16);
	GraphOp *pooled = op_of(g, OP_attention, 0), *rolled = op_of(g, OP_attention, 1);
	const int kv = op_operand(OP_attention, "kv"), table = op_operand(OP_attention, "page_table");
	assert_int_equal(g->tensors[pooled->operands[kv]].shape[0], g->pages);
	assert_int_equal(g->tensors[rolled->operands[kv]].shape[0], 4 * r.pages);
	assert_string_equal(g->tensors[pooled->operands[table]].name, "page_table");
	assert_string_equal(g->tensors[rolled->operands[table]].name, ROLLING_TABLE);

	int32_t *entries = NULL;
	for (int i = 0; i < m.c.constants.n; i++)
		if (strcmp(g->weights[m.c.constants.at[i].weight].name, ROLLING_TABLE) == 0)
			entries = (int32_t *)(uintptr_t)m.c.constants.at[i].bytes;
	assert_non_null(entries);
	WRONG(entries[r.pages], r.pages, "tensor atlas.rolling_table: entry 12 is 12: expected the pages of each slot in "
		"turn, 12 of them");
	WRONG(entries[g->max_pages], 0, "tensor atlas.rolling_table: entry 64 is 0: expected the pages of each slot in "
		"turn, 12 of them");
	WRONG(entries[0], 1 << 20, "tensor atlas.rolling_table: entry 0 is 1048576: expected the pages of each slot in "
		"turn, 12 of them");
	const int at = (int)(rolled - g->ops);
	char text[160];
	snprintf(text, sizeof text, "graph op %d (attention): looks back further than the pages of its slot", at);
	WRONG(rolled->attrs.window, 0, text);
	WRONG(rolled->attrs.window, CONTEXT + 1, text);
	snprintf(text, sizeof text, "target sm_90a: prefill[32] writes over windows: 12 pages of a slot hold them and "
		"21 rows");
	WRONG(rolled->attrs.window, WINDOW + 21, text);
	snprintf(text, sizeof text, "graph: 12 pages of a slot do not hold a window of 66 positions and 16 rows");
	WRONG(rolled->attrs.window, 66, text);
	snprintf(text, sizeof text, "graph op %d (attention): kv.1 has 48 pages, not the 256 of the pool", at);
	WRONG(rolled->operands[table], pooled->operands[table], text);
	snprintf(text, sizeof text, "graph op %d (attention): kv.0 has 256 pages, not the 48 of all slots",
		(int)(pooled - g->ops));
	WRONG(pooled->operands[table], rolled->operands[table], text);
	free_made(&m);
}

/* Where all layers have windows, no text waits for pages, which would have no memory. */
static void pages_of_the_pool_are_for_others(void **state)
{
	char why[256];
	MadePlan m;
	(void)state;
	make(&m, 3);
	assert_int_equal(read_made(&m, why), READ_OK);
	const Graph *g = &m.artifact.graph;
	MemoryItem items[MEMORY_MAX_ITEMS];
	MemoryLoad load = {0};
	const int n = memory_items(g, &m.artifact.targets[0], &load, items);
	const int64_t page = 2 * 2 * 16 * 64 * 2; /* keys and values of 2 heads, in bf16 */
	int seen = 0;
	for (int i = 0; i < n; i++) {
		if (strcmp(items[i].name, "keys and values") == 0)
			seen += items[i].bytes == 0;
		if (strcmp(items[i].name, "keys in windows") == 0)
			seen += items[i].bytes == 2 * 4 * 12 * page;
		if (strcmp(items[i].name, "snapshots of states") == 0)
			seen += items[i].bytes == 2 * 2 * 10 * page;
	}
	assert_int_equal(seen, 3);
	assert_int_equal(g->pages, 4 * g->max_pages);
	assert_int_equal(snapshot_bytes(g), 2 * 10 * page);
	free_made(&m);
}

static CuResult copy(CuPtr to, CuPtr from, size_t bytes, CuStream stream)
{
	(void)stream;
	memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
	return CU_SUCCESS;
}

/* What a slot has of the window before a position is in another slot afterwards, and nothing else is changed. */
static void snapshots_of_a_gpu(void **state)
{
	MadePlan m;
	CudaPages pages;
	(void)state;
	make(&m, 2);
	const Graph *g = &m.artifact.graph;
	const TargetPlan *t = &m.artifact.targets[0];
	assert_true(cuda_find_pages(t, g, &pages));
	assert_true(pages.n == 1 && pages.n_windows == 1 && pages.n_states == 0);
	const int64_t page = 2 * 2 * 16 * 64 * 2, arena = t->arena_bytes[ARENA_STATE];
	assert_true(pages.bytes == page && pages.windows[0].bytes == page);
	uint8_t *bytes = malloc((size_t)arena), *before = malloc((size_t)arena);
	uint8_t *snapshot = malloc((size_t)snapshot_bytes(g) + 64);
	Driver cu = {.MemcpyDtoDAsync = copy};
	const PageRoad road = {.cu = &cu, .state = (CuPtr)(uintptr_t)bytes, .pages = &pages};
	const int n = pages.rolling.pages, kept = rolling_kept(WINDOW, 16);
	for (int end = 1; end < 3 * n; end++) {
		for (int64_t i = 0; i < arena; i++)
			bytes[i] = (uint8_t)((uint64_t)(i + end) * 0x9E3779B97F4A7C15u >> 56);
		memcpy(before, bytes, (size_t)arena);
		memset(snapshot, 0xAB, (size_t)snapshot_bytes(g) + 64);
		assert_int_equal(cuda_keep_states(&road, 1, end * 16, (CuPtr)(uintptr_t)snapshot, false), CU_SUCCESS);
		assert_memory_equal(bytes, before, (size_t)arena);
		assert_int_equal(cuda_keep_states(&road, 3, end * 16, (CuPtr)(uintptr_t)snapshot, true), CU_SUCCESS);
		for (int i = 0; i < 64; i++)
			assert_int_equal(snapshot[snapshot_bytes(g) + i], 0xAB);
		uint8_t *cache = before + pages.windows[0].offset;
		for (int p = end < kept ? 0 : end - kept; p < end; p++)
			memcpy(cache + (3 * n + p % n) * page, cache + (n + p % n) * page, (size_t)page);
		assert_memory_equal(bytes, before, (size_t)arena);
	}
	free(bytes);
	free(before);
	free(snapshot);
	cuda_free_pages(&pages);
	free_made(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(pages_hold_windows), cmocka_unit_test(spans_are_windows),
		cmocka_unit_test(plans_are_checked), cmocka_unit_test(pages_of_the_pool_are_for_others),
		cmocka_unit_test(snapshots_of_a_gpu)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
