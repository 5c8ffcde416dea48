/* test_plan_read.c - the reader refuses every file that is not what plan.h says, with a sentence, and never
 * reads outside of it.
 */
#include "artifacts/reader.h"
#include "artifacts/tree.h"
#include "tests/unit/made_cubin.h"
#include "tests/unit/made_plan.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct Bytes { uint8_t *at; int64_t n; } Bytes;

static Bytes slurp(const char *path)
{
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	fseek(f, 0, SEEK_END);
	Bytes b = {NULL, ftell(f)};
	rewind(f);
	b.at = malloc((size_t)b.n);
	assert_int_equal(fread(b.at, 1, (size_t)b.n, f), b.n);
	fclose(f);
	return b;
}

/* Reads a copy of exactly n bytes, so that a sanitizer sees one too far. */
static ReadStatus read_copy(const uint8_t *bytes, int64_t n, bool sealed, char why[256])
{
	Artifact a;
	uint8_t *copy = malloc((size_t)n + !n);
	memcpy(copy, bytes, (size_t)n);
	why[0] = 0;
	ReadStatus s = sealed ? artifact_read(copy, n, NULL, &a, why, 256) : artifact_read_unsealed(copy, n, &a, why, 256);
	if (s == READ_OK)
		artifact_free(&a);
	else
		assert_true(why[0] && !a.memory);
	free(copy);
	return s;
}

static void put_u32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

/* The root hash again, after a change to header or manifest. */
static void reseal(Bytes b, uint32_t manifest)
{
	tree_root(b.at, b.at + 48, manifest, b.at + 16);
}

static void header_is_checked(void **state)
{
	char why[256];
	MadePlan m;
	(void)state;
	make_plan(&m, "llama");
	write_made(&m, true);
	Bytes b = slurp(m.path);
	assert_int_equal(read_copy(b.at, b.n, true, why), READ_OK);
	b.at[0] = 'a';
	assert_int_equal(read_copy(b.at, b.n, true, why), READ_NOT_A_PLAN);
	assert_string_equal(why, "not a plan: the file does not start with ATLASPLN and a header");
	b.at[0] = 'A';
	assert_int_equal(read_copy(b.at, 63, true, why), READ_NOT_A_PLAN);
	for (uint32_t version = PLAN_VERSION - 1; version <= PLAN_VERSION + 1; version += 2) {
		char expected[128];
		put_u32(b.at + 8, version);
		assert_int_equal(read_copy(b.at, b.n, true, why), READ_VERSION);
		sprintf(expected, "plan format version %u: this program reads version %d; `atlasc MODEL_DIR -o PLAN` makes the "
			"plan anew", version, PLAN_VERSION);
		assert_string_equal(why, expected);
	}
	put_u32(b.at + 8, PLAN_VERSION);
	put_u32(b.at + 12, 0xffffffffu);
	assert_int_equal(read_copy(b.at, b.n, true, why), READ_INTEGRITY);
	assert_non_null(strstr(why, "header: the manifest of 4294967295 bytes does not fit the file of"));
	free(b.at);
	free_made(&m);
}

/* Every bit of header, manifest and gaps, and many of the sections but weights; every kind of cut. */
static void every_change_is_noticed(void **state)
{
	char why[256];
	Artifact a;
	MadePlan m;
	(void)state;
	make_plan(&m, "qwen3");
	write_made(&m, true);
	Bytes b = slurp(m.path);
	assert_int_equal(artifact_read(b.at, b.n, NULL, &a, why, sizeof why), READ_OK);
	int64_t weights = artifact_section(&a, "weights")->offset;
	assert_int_equal(artifact_check_weights(&a, NULL, NULL, NULL, why, sizeof why), READ_OK);
	for (int64_t bit = 0, step = 1; bit < weights * 8; bit += step) {
		uint8_t old = b.at[bit / 8];
		Artifact changed;
		b.at[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_not_equal(artifact_read(b.at, b.n, NULL, &changed, why, sizeof why), READ_OK);
		b.at[bit / 8] = old;
		step = bit < 400 ? 1 : bit < 40000 ? 61 : 1201;
	}
	for (int i = 0; i < a.n_sections; i++)
		for (int64_t d = -1; d <= 1; d++)
			assert_int_not_equal(read_copy(b.at, a.sections[i].offset + d, true, why), READ_OK);
	for (int64_t n = 0; n < b.n; n += 997)
		assert_int_not_equal(read_copy(b.at, n, true, why), READ_OK);
	b.at[weights + 100] ^= 1;
	assert_int_equal(artifact_check_weights(&a, NULL, NULL, NULL, why, sizeof why), READ_INTEGRITY);
	assert_non_null(strstr(why, "section weights: bytes 0 to "));
	artifact_free(&a);
	free(b.at);
	free_made(&m);
}

/* Behind the hashes: 10,000 changes of one to four bytes, and cuts. Nothing may be read out of bounds. */
static void nothing_breaks_behind_the_hashes(void **state)
{
	char why[256];
	int good = 0, refused = 0;
	uint64_t x = 88172645463325252u;
	MadePlan m;
	(void)state;
	make_plan(&m, "qwen2");
	write_made(&m, false);
	Bytes b = slurp(m.path);
	for (int i = 0; i < 10000; i++) {
		uint8_t old[4];
		int64_t at[4];
		for (int k = 0; k < 4; k++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			at[k] = (int64_t)(x >> 8) % b.n;
			old[k] = b.at[at[k]];
			if (k <= i % 4)
				b.at[at[k]] = i & 4 ? (uint8_t)x : (uint8_t)(b.at[at[k]] ^ 1 << (x & 7));
		}
		int64_t n = i % 16 ? b.n : (int64_t)(x >> 9) % b.n;
		*(read_copy(b.at, n, false, why) == READ_OK ? &good : &refused) += 1;
		for (int k = 3; k >= 0; k--)
			b.at[at[k]] = old[k];
	}
	assert_int_equal(read_copy(b.at, b.n, false, why), READ_OK);
	assert_true(good > 50 && refused > 5000);
	free(b.at);
	free_made(&m);
}

/* A plan whose writer was wrong: exact sentences. */
static void claims(MadePlan *m, const char *expected)
{
	char why[256];
	write_made(m, true);
	Bytes b = slurp(m->path);
	ReadStatus status = read_copy(b.at, b.n, true, why);
	assert_string_equal(why, expected);
	assert_int_equal(status, READ_MALFORMED);
	free(b.at);
}

/* Changes a value, expects the sentence, puts the value back. */
#define WRONG(place, value, expected) \
	do { \
		__typeof__(place) wrong_old = (place); \
		const char *wrong_says = (expected); \
		(place) = (value); \
		claims(&m, wrong_says); \
		(place) = wrong_old; \
	} while (0)

static int tensor_named(const Graph *g, const char *name)
{
	int i = 0;
	while (strcmp(g->tensors[i].name, name) != 0)
		i++;
	return i;
}

static void graph_is_checked(void **state)
{
	MadePlan m;
	(void)state;
	make_plan(&m, "llama");
	Graph *g = &m.artifact.graph;
	WRONG(g->slots, 0, "graph: slots = 0: 1 to 1024 expected");
	WRONG(g->slots, 1025, "graph: slots = 1025: 1 to 1024 expected");
	WRONG(g->page, 12, "graph: page = 12 is not a power of two");
	WRONG(g->snapshots, 4097, "graph: snapshots = 4097: 0 to 4096 expected");
	WRONG(g->snapshots, 2, "graph: 2 snapshots of 0 bytes: at most 4 TiB expected, none of no states");
	WRONG(g->max_pages, 7, "graph: max_pages = 7: 128 tokens in pages of 16 need 8");
	WRONG(g->pages, 7, "graph: 7 pages of 16 tokens do not hold max_context = 128");
	WRONG(g->verify_rows, 1, "graph: verify_rows = 1: 0, or 2 to 4 expected");
	WRONG(g->verify_rows, 5, "graph: verify_rows = 5: 0 to 4 expected");
	WRONG(g->verify_rows, 3, "graph: its ladder does not lead from 3 rows of a slot to all of 4 slots");
	WRONG(g->ngram_max, 9, "graph: ngram_max = 9: 0 to 8 expected");
	WRONG(g->ngram_max, 2, "graph: n-grams of 0 to 2 tokens, verify_rows = 0");
	Rung ladder[] = {{1, 3}, {2, 2}, {4, 1}};
	g->ladder = ladder;
	WRONG(g->n_ladder, 3, "graph: its ladder does not lead from 0 rows of a slot to all of 4 slots");
	g->n_ladder = 3;
	WRONG(g->verify_rows, 3, "graph: max_pages = 8: 130 tokens in pages of 16 need 9");
	WRONG(g->verify_rows, 2, "graph: its ladder does not lead from 2 rows of a slot to all of 4 slots");
	g->verify_rows = 3;
	WRONG(ladder[1].slots, 1, "graph: its ladder does not lead from 3 rows of a slot to all of 4 slots");
	WRONG(ladder[1].rows, 3, "graph: its ladder does not lead from 3 rows of a slot to all of 4 slots");
	WRONG(ladder[2].slots, 3, "graph: its ladder does not lead from 3 rows of a slot to all of 4 slots");
	WRONG(ladder[2].rows, 0, "graph: its ladder does not lead from 3 rows of a slot to all of 4 slots");
	g->ngram_max = 2;
	WRONG(g->ngram_min, 0, "graph: n-grams of 0 to 2 tokens, verify_rows = 3");
	WRONG(g->ngram_min, 3, "graph: n-grams of 3 to 2 tokens, verify_rows = 3");
	g->ngram_max = g->verify_rows = g->n_ladder = 0;
	WRONG(g->stop_tokens[0], 40, "graph: stop token 40 is not a token of 40");
	WRONG(g->top_p, 1.5f, "graph: the default sampling settings are out of range");
	int w = g->n_weights - 1, step = tensor_named(g, "step"), row_token = tensor_named(g, "row_token");
	const char *name = g->weights[w].name;
	char text[256];
	snprintf(text, sizeof text, "weight %s: %lld bytes are not what its shape takes", name,
		(long long)g->weights[w].bytes - 2);
	WRONG(g->weights[w].bytes, g->weights[w].bytes - 2, text);
	snprintf(text, sizeof text, "weight %s: overlaps %s", name, g->weights[w - 1].name);
	WRONG(g->weights[w].offset, g->weights[w - 1].offset, text);
	snprintf(text, sizeof text, "weight %s: offset %lld is not a multiple of 256", name,
		(long long)g->weights[w].offset + 8);
	WRONG(g->weights[w].offset, g->weights[w].offset + 8, text);
	snprintf(text, sizeof text, "weight %s: \"../x\" at %lld is not a place in a file of the checkpoint", name,
		(long long)g->weights[w].file_offset);
	WRONG(g->weights[w].file, "../x", text);
	snprintf(text, sizeof text, "weight \"%s\": the name is empty or occurs twice", name);
	WRONG(g->weights[w - 1].name, name, text);
	WRONG(g->tensors[step].shape[0], 5, "tensor step: not the type that the step loop relies on");
	WRONG(g->tensors[step].name, "stop", "tensor stop: the host does not know this input");
	snprintf(text, sizeof text, "graph op 0 (slot_rows): operand row_slot is tensor %d of %d", g->n_tensors,
		g->n_tensors);
	WRONG(g->ops[0].operands[0], g->n_tensors, text);
	WRONG(g->ops[0].operands[0], row_token, "graph op 0 (slot_rows): operand row_slot is tensor row_token");
	WRONG(g->ops[0].phases, 8, "graph op 0 (slot_rows): layer -1, phases 8");
	free_made(&m);
}

static void kernels_and_buffers_are_checked(void **state)
{
	MadePlan m;
	char text[256];
	(void)state;
	make_plan(&m, "llama");
	TargetPlan *t = m.artifact.targets;
	Kernel *k = &t->kernels[0];
	Phase *p = &t->phases[0];
	snprintf(text, sizeof text, "kernel %s: its cubin is not within the section", k->name);
	WRONG(k->cubin_offset, 8, text);
	WRONG(k->cubin_offset, INT64_MAX / 16 * 16, text);
	WRONG(k->cubin_bytes, INT64_MAX, text);
	snprintf(text, sizeof text, "kernel %s: not an ELF file of the CUDA architecture", k->name);
	WRONG(m.cubins[1], 'X', text);
	snprintf(text, sizeof text, "kernel %s: block 2048 x 1 x 1", k->name);
	WRONG(k->block[0], 2048, text);
	snprintf(text, sizeof text, "kernel %s: 300000 + 0 bytes of shared memory, 32 registers", k->name);
	WRONG(k->smem_bytes, 300000, text);
	snprintf(text, sizeof text, "kernel %s: entry \"%s\" with 12 bytes of arguments", k->name, k->entry);
	WRONG(k->param_bytes, 12, text);
	Buf *b = NULL;
	for (int i = 0; i < p->n_bufs && !b; i++)
		if (p->bufs[i].arena == ARENA_SCRATCH)
			b = &p->bufs[i];
	snprintf(text, sizeof text, "prefill[32] buffer %s: offset 128 is not aligned", b->name);
	WRONG(b->offset, 128, text);
	snprintf(text, sizeof text, "prefill[32] buffer %s: live from launch %d to %d of %d", b->name, b->first,
		p->n_launches, p->n_launches);
	WRONG(b->last, p->n_launches, text);
	snprintf(text, sizeof text, "prefill[32] buffer %s: %lld bytes at %lld, outside 0..%lld of arena scratch",
		b->name, (long long)b->bytes, (long long)t->arena_bytes[ARENA_SCRATCH],
		(long long)t->arena_bytes[ARENA_SCRATCH]);
	WRONG(b->offset, t->arena_bytes[ARENA_SCRATCH], text);
	Buf *other = NULL;
	for (int i = 0; i < p->n_bufs && !other; i++)
		if (p->bufs[i].arena == ARENA_SCRATCH && &p->bufs[i] != b && p->bufs[i].first <= b->last &&
			b->first <= p->bufs[i].last && b->offset + p->bufs[i].bytes <= t->arena_bytes[ARENA_SCRATCH])
			other = &p->bufs[i];
	assert_non_null(other);
	int64_t apart = other->offset;
	other->offset = b->offset;
	char why[256];
	write_made(&m, true);
	Bytes bytes = slurp(m.path);
	assert_int_equal(read_copy(bytes.at, bytes.n, true, why), READ_MALFORMED);
	assert_non_null(strstr(why, "share bytes while both live"));
	free(bytes.at);
	other->offset = apart;
	free_made(&m);
}

/* Facts of a kernel that its cubin states as well. */
static void kernels_are_what_their_cubins_say(void **state)
{
	MadePlan m;
	char text[256];
	(void)state;
	make_plan(&m, "llama");
	TargetPlan *t = m.artifact.targets;
	Kernel *k = &t->kernels[0];
#define SAYS(...) (snprintf(text, sizeof text, __VA_ARGS__), text)
	WRONG(k->param_bytes, k->param_bytes + 8, SAYS("kernel %s: %d bytes of arguments, its cubin has %d", k->name,
		k->param_bytes + 8, k->param_bytes));
	WRONG(k->registers, 33, SAYS("kernel %s: 33 registers, its cubin has 32", k->name));
	WRONG(k->static_smem_bytes, 16, SAYS("kernel %s: 16 bytes of static shared memory, its cubin has 0", k->name));
	WRONG(k->spill_bytes, 8, SAYS("kernel %s: 8 bytes of local memory, its cubin has 0", k->name));
	WRONG(k->entry, "another", SAYS("kernel %s: the cubin has no kernel another", k->name));
	int other = 1;
	while (strcmp(t->kernels[other].name, k->name) == 0)
		other++;
	WRONG(k->cubin_offset, t->kernels[other].cubin_offset, SAYS("kernel %s: the cubin has no kernel %s", k->name,
		k->name));
	uint8_t *cubin = m.cubins + k->cubin_offset;
	MadeCubin of = {.entry = k->entry, .param_bytes = k->param_bytes, .registers = 32, .sm = 90};
	int threads = k->block[0] * k->block[1] * k->block[2];
	of.max_threads = threads - 1;
	made_cubin(cubin, &of);
	claims(&m, SAYS("kernel %s: %d threads a block, its cubin allows %d", k->name, threads, threads - 1));
	of.max_threads = 0;
	of.static_smem = 1040;
	made_cubin(cubin, &of);
	claims(&m, SAYS("kernel %s: 0 bytes of static shared memory, its cubin has 1040", k->name));
	of.static_smem = 0;
	of.sm = 80;
	made_cubin(cubin, &of);
	claims(&m, SAYS("kernel %s: its cubin is one for sm_80, the plan is one for sm_90a", k->name));
	of.sm = 90;
	of.max_threads = threads;
	made_cubin(cubin, &of);
	WRONG(t->cc_minor, 1, "target sm_90a: compute capability 9.1");
	WRONG(m.artifact.targets->target, "sm_90b", "target sm_90b: compute capability 9.0");
	char why[256];
	write_made(&m, true);
	Bytes b = slurp(m.path);
	assert_int_equal(read_copy(b.at, b.n, true, why), READ_OK);
	free(b.at);
	free_made(&m);
}

/* Two elements a byte, where the kernel takes such; a row of them fills its bytes. */
static void halves_of_bytes_fill_their_rows(void **state)
{
	MadePlan m;
	char text[256];
	(void)state;
	make_plan(&m, "llama");
	Phase *p = &m.artifact.targets->phases[0];
	Graph *g = &m.artifact.graph;
	Buf *b = NULL;
	for (int i = 0; i < p->n_bufs && !b; i++)
		if (p->bufs[i].arena == ARENA_SCRATCH && p->bufs[i].tensor < 0 && dtype_bytes(p->bufs[i].dtype) == 2)
			b = &p->bufs[i];
	assert_non_null(b);
	b->bytes /= 4;
	WRONG(b->dtype, DT_e2m1,
		"prefill[32] launch 1 (norm_linear): y is e2m1 of 2 dims, the kernel takes bf16 of 2");
	b->bytes *= 4;
	Weight *w = g->weights;
	while (!w->file) /* those that are made have the bytes they have */
		w++;
	const Weight before = *w;
	*w = (Weight){.name = w->name, .dtype = DT_e2m1, .n_dims = 2, .shape = {4, 6}, .bytes = 12, .offset = w->offset,
		.file = w->file, .file_offset = w->file_offset};
	snprintf(text, sizeof text, "weight %s: 12 bytes are not what its shape takes", w->name);
	w->shape[0] = 8;
	WRONG(w->shape[1], 3, text); /* as many elements, but rows that end inside a byte */
	*w = before;
	free_made(&m);
}

/* A launch's own state, which no tensor stands for, keeps clear of what the graph remembers. */
static void own_state_is_apart(void **state)
{
	MadePlan m;
	char text[256];
	(void)state;
	make_plan(&m, "llama");
	TargetPlan *t = m.artifact.targets;
	Phase *p = t->phases;
	while (p->kind != DECODE)
		p++;
	int own = 0, first = 0;
	while (strcmp(p->bufs[own].name, "arrived") != 0)
		own++;
	assert_int_equal(p->bufs[own].tensor, -1);
	assert_int_equal(p->bufs[own].arena, ARENA_STATE);
	for (int i = 0; i < p->n_bufs; i++) /* one for all layers */
		assert_true(i == own || strcmp(p->bufs[i].name, "arrived") != 0);
	while (p->bufs[first].arena != ARENA_STATE || p->bufs[first].tensor < 0)
		first++;
	snprintf(text, sizeof text, "decode[%d] buffers %s and arrived share bytes while both live", p->rows,
		p->bufs[first].name);
	WRONG(p->bufs[own].offset, p->bufs[first].offset, text);
	int64_t keys = 0;
	for (int i = 0; i < p->n_bufs; i++)
		if (strcmp(p->bufs[i].name, "kv.0") == 0)
			keys = p->bufs[i].offset;
	while (p->kind != ACQUIRE) /* which does not touch keys and values */
		p++;
	own = 0;
	while (strcmp(p->bufs[own].name, "slot_len") != 0)
		own++;
	p->bufs[own].tensor = -1;
	WRONG(p->bufs[own].offset, keys, "acquire[0] buffer slot_len: shares bytes with state kv.0");
	free_made(&m);
}

/* The phase that measures has an arena to itself, which no step may touch. */
static void probe_phase_stands_apart(void **state)
{
	MadePlan m;
	char text[256];
	(void)state;
	make_plan(&m, "llama");
	TargetPlan *t = m.artifact.targets;
	Phase *p = &t->phases[t->n_phases - 1];
	assert_int_equal(p->kind, PROBE);
	assert_int_equal(p->n_launches, 3);
	int x = 0;
	while (strcmp(p->bufs[x].name, "probe.x") != 0)
		x++;
	WRONG(p->bufs[x].arena, ARENA_SCRATCH, "probe[8192] buffer probe.x: in arena scratch");
	WRONG(p->outs, 1, "phase probe: 8192 rows, 1 outs");
	snprintf(text, sizeof text, "probe[8192] buffer probe.x: 134217728 bytes at %lld, outside 0..134217727 of arena "
		"probe", (long long)p->bufs[x].offset);
	WRONG(t->arena_bytes[ARENA_PROBE], 134217727, text);
	Phase *step = &t->phases[0];
	int scratch = 0;
	while (step->bufs[scratch].arena != ARENA_SCRATCH || step->bufs[scratch].tensor >= 0)
		scratch++;
	snprintf(text, sizeof text, "prefill[32] buffer %s: in arena probe", step->bufs[scratch].name);
	WRONG(step->bufs[scratch].arena, ARENA_PROBE, text);
	free_made(&m);
}

static void launches_are_checked(void **state)
{
	MadePlan m;
	char text[256];
	(void)state;
	make_plan(&m, "llama");
	TargetPlan *t = m.artifact.targets;
	Phase *p = &t->phases[0];
	Launch *l = &p->launches[1];
	const char *op = op_table[l->op].name;
	WRONG(l->grid[0], 0, SAYS("prefill[32] launch 1 (%s): grid 0 x %d x %d", op, l->grid[1], l->grid[2]));
	WRONG(l->grid[1], 65536, SAYS("prefill[32] launch 1 (%s): grid %d x 65536 x %d", op, l->grid[0], l->grid[2]));
	WRONG(l->kernel, t->n_kernels, SAYS("prefill[32] launch 1 (%s): kernel %d of %d", op, t->n_kernels,
		t->n_kernels));
	WRONG(l->deps[0], 1, SAYS("prefill[32] launch 1 (%s): waits for launch 1: earlier ones expected, ascending",
		op));
	WRONG(l->produces_layer, 2, SAYS("prefill[32] launch 1 (%s): layer %d, produces layer 2", op, l->layer));
	WRONG(l->overlaps, 2, SAYS("prefill[32] launch 1 (%s): overlaps = 2 on sm_90a", op));
	int size = t->kernels[l->kernel].param_bytes;
	WRONG(l->args[0].field_offset, 4, SAYS("prefill[32] launch 1 (%s): argument at byte 4 of %d", op, size));
	WRONG(l->args[0].field_offset, size, SAYS("prefill[32] launch 1 (%s): argument at byte %d of %d", op, size,
		size));
	WRONG(l->args[1].field_offset, l->args[0].field_offset, SAYS(
		"prefill[32] launch 1 (%s): argument at byte %d of %d", op, l->args[0].field_offset, size));
	WRONG(l->args[0].operand, 99, SAYS("prefill[32] launch 1 (%s): operand 99 of %d", op,
		op_table[l->op].n_operands));
	WRONG(l->args[0].buf, p->n_bufs, SAYS("prefill[32] launch 1 (%s): %s is buffer %d of %d", op,
		op_table[l->op].operands[l->args[0].operand].name, p->n_bufs, p->n_bufs));
	WRONG(l->slot, 9999, SAYS("prefill[32] launch 1 (%s): entry 9999 of the ledger is not about it", op));
	int out = -1, weight = -1;
	for (int i = 0; i < l->n_args; i++) {
		if (op_table[l->op].operands[l->args[i].operand].role == OPERAND_OUT)
			out = i;
		if (l->args[i].buf >= 0 && p->bufs[l->args[i].buf].arena == ARENA_WEIGHTS)
			weight = l->args[i].buf;
	}
	WRONG(l->args[out].buf, weight, SAYS("prefill[32] launch 1 (%s): writes weight %s", op,
		p->bufs[weight].name));
	WRONG(p->outs, 33, "phase prefill: 32 rows, 33 outs");
	WRONG(t->n_phases, t->n_phases - 2, SAYS(
		"target sm_90a: a phase is missing, or decode[4] is too small for 4 slots"));
	WRONG(t->arena_bytes[ARENA_RING], 256,
		"prefill[32] buffer ring: 4096 bytes at 0, outside 0..256 of arena ring");
	WRONG(m.artifact.ledger[0][0].candidates[0].verdict, REJECTED, SAYS(
		"ledger entry 0 (%s): 0 candidates are chosen", op_table[m.artifact.ledger[0][0].op].name));
	WRONG(m.artifact.ledger[0][0].candidates[0].kernel, "nothing", SAYS(
		"ledger entry 0 (%s): no contract of nothing", op_table[m.artifact.ledger[0][0].op].name));
	for (int i = 0; i < 1000; i += 999) /* a condition, where a preference may be false; and none */
		WRONG(m.artifact.ledger[0][0].candidates[0].predicate, i, SAYS(
			"ledger entry 0 (%s): %s is chosen by predicate %d", op_table[m.artifact.ledger[0][0].op].name,
			m.artifact.ledger[0][0].candidates[0].kernel, i));
	free_made(&m);
}

/* Facts that follow from others, of which one is wrong. */
static void facts_agree(void **state)
{
	MadePlan m;
	char text[512];
	(void)state;
	make_plan(&m, "llama");
	Graph *g = &m.artifact.graph;
	TargetPlan *t = m.artifact.targets;
	Slot *ledger = m.artifact.ledger[0];
	int draws = 0, at = 0, done = 0;
	while (g->ops[draws].kind != OP_sample)
		draws++;
	WRONG(m.artifact.options[0].value, "8", "option kv.page = 8: the graph has 16");
	WRONG(m.artifact.options[0], ((Option){"model.family", "gpt"}), "option model.family = gpt: the graph's family is "
		"llama");
	WRONG(m.artifact.options[0], ((Option){"runtime.slots", "4.0"}), "option runtime.slots = 4.0: the graph has 4");
	WRONG(g->stop_tokens[0], g->stop_tokens[0] + 1, SAYS("graph op %d (sample): atlas.stop_tokens does not hold the %d "
		"stop tokens of the graph", draws, g->n_stop_tokens));
	WRONG(g->ops[draws].attrs.n_valid, 41, SAYS("graph op %d (sample): N_VALID = 41 of 40 columns", draws));
	Phase *p = &t->phases[0];
	while (p->launches[done].produces_layer < 0)
		done++;
	Launch *l = &p->launches[done];
	WRONG(l->produces_layer, -1, SAYS("prefill[32] launch %d (%s): produces layer -1, but its results complete %d",
		done, op_table[l->op].name, l->layer));
	const Slot *s = &ledger[l->slot];
	WRONG(ledger[l->slot].layer_last, s->layer_last + 1, SAYS("ledger entry %d (%s): layers %d to %d, its launches are "
		"in layers %d to %d", l->slot, op_table[s->op].name, s->layer_first, s->layer_last + 1, s->layer_first,
		s->layer_last));
	WRONG(ledger[l->slot].operands, "step i32 [4]", SAYS("prefill[32] launch %d (%s): the ledger has other operands: "
		"step i32 [4]", done, op_table[l->op].name));
	WRONG(ledger[l->slot].outs, s->outs + 1, SAYS("prefill[32] launch %d (%s): entry %d of the ledger is not about it",
		done, op_table[l->op].name, l->slot));
	Kernel *k = &t->kernels[l->kernel];
	uint8_t *cubin = m.cubins + k->cubin_offset;
	k->param_bytes += 8;
	made_cubin(cubin, &(MadeCubin){.entry = k->entry, .param_bytes = k->param_bytes, .registers = 32, .sm = 90});
	while (p->launches[at].kernel != l->kernel)
		at++;
	claims(&m, SAYS("prefill[32] launch %d (%s): its %d arguments and %d tensor maps are not a struct of %d bytes", at,
		op_table[l->op].name, l->n_args, l->n_maps, k->param_bytes));
	free_made(&m);
}

/* Every op that a launch may be is spelled out as ops of the graph. */
static void every_op_has_a_meaning(void **state)
{
	(void)state;
	for (int i = 0; i < OP_COUNT; i++)
		if (op_has_meaning((OpKind)i) == (i == OP_read_probe))
			fail_msg("%s: artifacts/meaning_check.c does not say what it means", op_table[i].name);
}

/* Gives every launch of a template a map of its argument `arg`, behind the arguments, and its contract the words. */
static void add_maps(MadePlan *m, const char *template_name, int arg, TensorMap *maps, ContractTerm *terms)
{
	TargetPlan *t = m->artifact.targets;
	Contract *c = m->artifact.contracts;
	while (strcmp(c->name, template_name) != 0)
		c++;
	int at = 0;
	for (int k = 0; k < t->n_kernels; k++)
		if (strcmp(t->kernels[k].name, template_name) == 0) {
			at = (t->kernels[k].param_bytes + 63) / 64 * 64;
			t->kernels[k].param_bytes = at + PLAN_TENSOR_MAP_BYTES;
			made_cubin(m->cubins + t->kernels[k].cubin_offset, &(MadeCubin){.entry = template_name,
				.param_bytes = t->kernels[k].param_bytes, .registers = 32, .sm = 90});
		}
	for (int p = 0; p < t->n_phases; p++)
		for (int i = 0; i < t->phases[p].n_launches; i++) {
			Launch *l = &t->phases[p].launches[i];
			if (strcmp(t->kernels[l->kernel].name, template_name) != 0)
				continue;
			*maps = (TensorMap){at, l->args[arg].buf, {64, 64}};
			l->maps = maps++;
			l->n_maps = 1;
		}
	const char *operand = op_table[c->op].operands[t->phases[0].launches[1].args[arg].operand].name;
	memcpy(terms, c->terms, sizeof *terms * (size_t)c->n_terms);
	terms[c->n_terms++] = (ContractTerm){"map.rows", operand, "64"};
	terms[c->n_terms++] = (ContractTerm){"map.columns", operand, "64"};
	c->terms = terms;
}

static void tensor_maps_are_checked(void **state)
{
	MadePlan m;
	char text[256];
	(void)state;
	make_plan(&m, "llama");
	TargetPlan *t = m.artifact.targets;
	Phase *p = &t->phases[0];
	Launch *l = &p->launches[1];
	const char *op = op_table[l->op].name;
	int matrix = -1, vector = -1, stranger = -1, arg = -1;
	for (int i = 0; i < p->n_bufs; i++)
		stranger = p->bufs[i].arena == ARENA_STATE ? i : stranger;
	for (int i = 0; i < l->n_args; i++) {
		const Buf *b = l->args[i].buf < 0 ? NULL : &p->bufs[l->args[i].buf];
		if (b && b->n_dims == 2 && dtype_bytes(b->dtype) == 2)
			matrix = l->args[i].buf, arg = i;
		if (b && b->n_dims == 1)
			vector = l->args[i].buf;
		if (b && l->args[i].buf == stranger)
			stranger = -1;
	}
	assert_true(matrix >= 0 && vector >= 0 && stranger >= 0);
	int at = (t->kernels[l->kernel].param_bytes + 63) / 64 * 64;
	TensorMap maps[64];
	ContractTerm terms[256];
	add_maps(&m, t->kernels[l->kernel].name, arg, maps, terms);
	TensorMap *map = l->maps;
	write_made(&m, true);
	Bytes bytes = slurp(m.path);
	char why[256];
	Artifact read;
	assert_int_equal(artifact_read(bytes.at, bytes.n, NULL, &read, why, sizeof why), READ_OK);
	assert_memory_equal(read.targets[0].phases[0].launches[1].maps, map, sizeof *map);
	artifact_free(&read);
	free(bytes.at);
	long long row = p->bufs[matrix].shape[1] * 2;
	const char *name = p->bufs[matrix].name;
	WRONG(map->field_offset, 0, SAYS("prefill[32] launch 1 (%s): tensor map at byte 0 of %d", op, at + 128));
	WRONG(map->field_offset, at + 32, SAYS("prefill[32] launch 1 (%s): tensor map at byte %d of %d", op, at + 32,
		at + 128));
	WRONG(map->field_offset, at + 64, SAYS("prefill[32] launch 1 (%s): tensor map at byte %d of %d", op, at + 64,
		at + 128));
	WRONG(map->buf, stranger, SAYS("prefill[32] launch 1 (%s): tensor map of buffer %d, which is not an argument", op,
		stranger));
	WRONG(map->buf, -1, SAYS("prefill[32] launch 1 (%s): tensor map of buffer -1, which is not an argument", op));
	WRONG(map->buf, vector, SAYS("prefill[32] launch 1 (%s): tensor map of %s: tiles of 64 x 64 of rows of %lld bytes",
		op, p->bufs[vector].name, (long long)p->bufs[vector].bytes));
	WRONG(map->box[0], 257, SAYS("prefill[32] launch 1 (%s): tensor map of %s: tiles of 257 x 64 of rows of %lld bytes",
		op, name, row));
	WRONG(map->box[1], 32, SAYS("prefill[32] launch 1 (%s): tensor map of %s: tiles of 64 x 32 of rows of %lld bytes",
		op, name, row));
	free_made(&m);
}

/* Every single edge of the plan is needed: the compiler keeps none that follows from others. */
static void edges_are_checked(void **state)
{
	MadePlan m;
	char why[256];
	int n_edges = 0;
	(void)state;
	make_plan(&m, "llama");
	const TargetPlan *t = m.artifact.targets;
	for (int p = 0; p < t->n_phases; p++)
		for (int i = 0; i < t->phases[p].n_launches; i++)
			for (int d = 0; d < t->phases[p].launches[i].n_deps; d++, n_edges++) {
				Launch *l = &t->phases[p].launches[i];
				int all[16], n = l->n_deps;
				assert_true(n <= 16);
				memcpy(all, l->deps, sizeof(int) * (size_t)n);
				memmove(l->deps + d, all + d + 1, sizeof(int) * (size_t)(n - d - 1));
				l->n_deps--;
				write_made(&m, true);
				Bytes b = slurp(m.path);
				assert_int_equal(read_copy(b.at, b.n, true, why), READ_MALFORMED);
				assert_non_null(strstr(why, " without waiting for launch "));
				free(b.at);
				memcpy(l->deps, all, sizeof(int) * (size_t)n);
				l->n_deps = n;
			}
	assert_true(n_edges > 20);
	free_made(&m);
}

/* State that is read before the launch has waited must be what the step before has left. */
static void early_arguments_are_checked(void **state)
{
	MadePlan m;
	char text[256];
	int step = -1, arg = -1, writer = -1;
	(void)state;
	make_plan(&m, "llama");
	Phase *p = &m.artifact.targets->phases[0];
	while (p->kind != DECODE)
		p++;
	for (int i = 0; i < p->n_launches; i++)
		for (int a = 0; a < p->launches[i].n_args; a++) {
			const char *name = op_table[p->launches[i].op].operands[p->launches[i].args[a].operand].name;
			if (step < 0 && p->launches[i].args[a].early && strcmp(name, "slot_len") == 0)
				step = i, arg = a;
			if (p->launches[i].op == OP_sample_best && strcmp(name, "slot_len") == 0)
				writer = a;
		}
	assert_true(step > 0 && writer >= 0);
	Launch *first = &p->launches[0], *reader = &p->launches[step], *last = &p->launches[p->n_launches - 1];
	assert_int_equal(first->n_deps, 0);
	assert_int_equal(first->overlaps, 0);
	assert_true(reader->overlaps);
	WRONG(first->overlaps, 1, SAYS("decode[%d] launch 0 (embed_next): may start before the step before is done, "
		"in a phase that reads early what that step writes", p->rows));
	WRONG(reader->args[arg].early, 2, SAYS("decode[%d] launch %d (attention_step): slot_len is early = 2: "
		"expected 0, or 1 of state that a launch which overlaps reads", p->rows, step));
	WRONG(reader->overlaps, 0, SAYS("decode[%d] launch %d (attention_step): slot_token is early = 1: "
		"expected 0, or 1 of state that a launch which overlaps reads", p->rows, step));
	WRONG(reader->args[0].early, 1, SAYS("decode[%d] launch %d (attention_step): step is early = 1: "
		"expected 0, or 1 of state that a launch which overlaps reads", p->rows, step));
	int second = step + 1, counters = 0; /* all layers count in the same place */
	while (p->launches[second].op != OP_attention_step)
		second++;
	while (strcmp(op_table[OP_attention_step].operands[reader->args[counters].operand].name, "arrived") != 0)
		counters++;
	WRONG(p->launches[second].args[counters].early, 1, SAYS("decode[%d] launch %d (attention_step): reads arrived "
		"early, which launch %d writes", p->rows, second, step));
	assert_int_equal(last->op, OP_sample_best);
	last->args[writer].early = 1; /* it writes it itself, and nobody before it: sound */
	write_made(&m, true);
	Bytes b = slurp(m.path);
	assert_int_equal(read_copy(b.at, b.n, true, text), READ_OK);
	free(b.at);
	free_made(&m);
}

/* The section table, rewritten by hand: a byte of an offset or a length changed, and sealed again. */
static void section_table_is_checked(void **state)
{
	char why[256];
	MadePlan m;
	int malformed = 0, integrity = 0;
	(void)state;
	make_plan(&m, "llama");
	write_made(&m, true);
	Bytes b = slurp(m.path);
	uint32_t manifest = b.at[12] | (uint32_t)b.at[13] << 8;
	for (uint32_t i = 48; i < 48 + manifest; i++)
		for (int bit = 0; bit < 8; bit++) {
			b.at[i] ^= (uint8_t)(1 << bit);
			reseal(b, manifest);
			ReadStatus s = artifact_read(b.at, b.n, NULL, &m.artifact, why, sizeof why);
			assert_int_not_equal(s, READ_OK);
			malformed += s == READ_MALFORMED;
			integrity += s == READ_INTEGRITY;
			b.at[i] ^= (uint8_t)(1 << bit);
		}
	assert_true(malformed > 500 && integrity > 500);
	free(b.at);
	free_made(&m);
}

/* What the compiler takes the reader takes: as many layers as there may be, in one small decode bucket. */
static void deepest_models_are_read(void **state)
{
	char why[256];
	MadePlan m = {0};
	(void)state;
	synthetic_model(&m.c, "qwen3");
	synthetic_layers(&m.c, PLAN_MAX_LAYERS);
	m.c.model.options.slots = m.c.model.options.n_decode = 1;
	make_plan_of_model(&m);
	assert_true(m.c.scratch.total_bytes < 64 << 20);
	write_made(&m, false); /* 140 MB of weights say nothing here */
	Bytes b = slurp(m.path);
	ReadStatus s = read_copy(b.at, b.n, true, why);
	assert_string_equal(why, "");
	assert_int_equal(s, READ_OK);
	free(b.at);
	free_made(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_is_checked),
		cmocka_unit_test(every_change_is_noticed),
		cmocka_unit_test(nothing_breaks_behind_the_hashes),
		cmocka_unit_test(graph_is_checked),
		cmocka_unit_test(kernels_and_buffers_are_checked),
		cmocka_unit_test(kernels_are_what_their_cubins_say),
		cmocka_unit_test(halves_of_bytes_fill_their_rows),
		cmocka_unit_test(own_state_is_apart),
		cmocka_unit_test(probe_phase_stands_apart),
		cmocka_unit_test(launches_are_checked), cmocka_unit_test(tensor_maps_are_checked),
		cmocka_unit_test(facts_agree), cmocka_unit_test(every_op_has_a_meaning),
		cmocka_unit_test(edges_are_checked),
		cmocka_unit_test(early_arguments_are_checked),
		cmocka_unit_test(section_table_is_checked),
		cmocka_unit_test(deepest_models_are_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
