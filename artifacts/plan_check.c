/* plan_check.c - does a decoded plan keep what plan.h promises?
 *
 * Every number is looked at once, here: later code trusts it. Nothing the compiler claims is taken on its
 * word where it can be computed again: bytes from shapes, buffers inside arenas, lifetimes that do not meet in
 * memory, launches within what any CUDA device takes.
 */
#include "artifacts/cubin.h"
#include "artifacts/peers.h"
#include "artifacts/random_weights.h"
#include "artifacts/ranks.h"
#include "artifacts/reader.h"
#include "artifacts/rolling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MAX_LAUNCHES = 8 * PLAN_MAX_LAYERS, MAX_BUFS = 32 * PLAN_MAX_LAYERS, MAX_ROWS = 65536, /* of a phase */
	MAX_SMEM = 232448, /* bytes a block may ask for on the largest device: 227 KiB */
	MAX_SMS = 4096,
	MAX_STATIC_SMEM = 49152, /* static ones, on any device: more has to be dynamic */
	MAX_THREADS = 1024, MAX_REGISTERS = 255,
};
static const int64_t max_bytes = (int64_t)1 << 46; /* of a tensor or an arena: sums of two never overflow */

#define REFUSE(...) why_not(why, READ_MALFORMED, __VA_ARGS__)

/* Bytes of a tensor; -1 when a dim is not positive, the product is out of all reason, or a row ends inside a byte. */
static int64_t tensor_bytes(Dtype dtype, int n_dims, const int64_t *shape)
{
	int64_t n = 1, most = max_bytes / 4;
	for (int i = 0; i < n_dims; i++) {
		if (shape[i] <= 0 || shape[i] > most / n)
			return -1;
		n *= shape[i];
	}
	return n_dims > 0 && (dtype_bytes(dtype) || shape[n_dims - 1] % 2 == 0) ? dtype_span(dtype, n) : -1;
}

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names are `stride` bytes apart. */
static bool check_unique(const char *what, const void *first, size_t stride, int n, Why *why)
{
	const char **names = malloc(sizeof *names * (size_t)(n + 1));
	if (!names)
		return why_not(why, READ_NO_MEMORY, "no memory to compare %d names", n);
	for (int i = 0; i < n; i++)
		names[i] = *(const char *const *)(const void *)((const char *)first + stride * (size_t)i);
	qsort(names, (size_t)n, sizeof *names, compare_text);
	bool good = true;
	for (int i = 0; i < n && good; i++)
		if (names[i][0] == 0 || (i > 0 && strcmp(names[i - 1], names[i]) == 0))
			good = REFUSE("%s \"%.80s\": the name is empty or occurs twice", what, names[i]);
	free(names);
	return good;
}
#define UNIQUE(what, list, n) check_unique(what, &(list)->name, sizeof *(list), n, why)

/* Graph ------------------------------------------------------------------------------------------- */

/* More slots, fewer rows, from verify_rows on; the last rung holds all slots. */
static bool is_ladder(const Graph *g)
{
	const Rung *r = g->ladder;
	if (!g->verify_rows)
		return g->n_ladder == 0;
	for (int i = 0; i < g->n_ladder; i++)
		if (r[i].slots < (i ? r[i - 1].slots + 1 : 1) || r[i].rows < 1 || (i ? r[i].rows >= r[i - 1].rows
				: r[i].rows != g->verify_rows))
			return false;
	return g->n_ladder > 0 && r[g->n_ladder - 1].slots == g->slots;
}

static bool check_numbers(const Graph *g, Why *why)
{
	const struct { const char *name; int64_t value, low, high; } ranges[] = {
		{"n_layers", g->n_layers, 1, PLAN_MAX_LAYERS}, {"vocab", g->vocab, 1, 1 << 24},
		{"hidden_dim", g->hidden_dim, 1, 1 << 20}, {"slots", g->slots, 1, PLAN_MAX_SLOTS},
		{"max_context", g->max_context, 1, 1 << 28}, {"page", g->page, 1, 1 << 16},
		{"pages", g->pages, 1, 1 << 28}, {"verify_rows", g->verify_rows, 0, PLAN_MAX_VERIFY},
		{"prompt_grid", g->prompt_grid, 1, 1 << 28}, {"ngram_max", g->ngram_max, 0, PLAN_MAX_NGRAM},
		{"snapshots", g->snapshots, 0, PLAN_MAX_SNAPSHOTS},
		{"bos_token", g->bos_token, -1, g->vocab - 1},
		{"top_k", g->top_k, 0, INT32_MAX}, {"max_new_tokens", g->max_new_tokens, 0, INT32_MAX},
		{"weight_arena_bytes", g->weight_arena_bytes, 0, max_bytes}};
	for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
		if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
			return REFUSE("graph: %s = %lld: %lld to %lld expected", ranges[i].name,
				(long long)ranges[i].value, (long long)ranges[i].low, (long long)ranges[i].high);
	if (g->page & (g->page - 1))
		return REFUSE("graph: page = %d is not a power of two", g->page);
	const int positions = g->max_context + (g->verify_rows ? g->verify_rows - 1 : 0);
	if (g->verify_rows == 1)
		return REFUSE("graph: verify_rows = 1: 0, or 2 to %d expected", PLAN_MAX_VERIFY);
	if (!is_ladder(g))
		return REFUSE("graph: its ladder does not lead from %d rows of a slot to all of %d slots", g->verify_rows,
			g->slots);
	if (g->ngram_max ? g->ngram_min < 1 || g->ngram_min > g->ngram_max || !g->verify_rows : g->ngram_min)
		return REFUSE("graph: n-grams of %d to %d tokens, verify_rows = %d", g->ngram_min, g->ngram_max,
			g->verify_rows);
	if (g->max_pages != (positions + g->page - 1) / g->page)
		return REFUSE("graph: max_pages = %d: %d tokens in pages of %d need %d", g->max_pages, positions, g->page,
			(positions + g->page - 1) / g->page);
	if (g->pages < g->max_pages)
		return REFUSE("graph: %d pages of %d tokens do not hold max_context = %d", g->pages, g->page,
			g->max_context);
	for (int i = 0; i < g->n_stop_tokens; i++)
		if (g->stop_tokens[i] < -1 || g->stop_tokens[i] >= g->vocab)
			return REFUSE("graph: stop token %d is not a token of %d", g->stop_tokens[i], g->vocab);
	if (g->temperature < 0 || g->top_p <= 0 || g->top_p > 1 || g->min_p < 0 || g->min_p > 1 ||
		!(g->repetition_penalty >= 1e-3f && g->repetition_penalty <= 1e3f))
		return REFUSE("graph: the default sampling settings are out of range");
	return true;
}

static bool is_base_name(const char *s)
{
	return s[0] && s[0] != '.' && !strchr(s, '/') && !strchr(s, '\\');
}

typedef struct Range { int64_t from, to; int index; } Range;

static int compare_ranges(const void *a, const void *b)
{
	const Range *x = a, *y = b;
	return x->from != y->from ? (x->from < y->from ? -1 : 1) : x->index - y->index;
}

static bool within(const Graph *g, const Weight *w)
{
	return w->offset >= 0 && w->offset <= g->weight_arena_bytes - w->bytes;
}

static bool check_weight(const Graph *g, const Weight *w, Why *why)
{
	if (w->bytes != tensor_bytes(w->dtype, w->n_dims, w->shape))
		return REFUSE("weight %s: %lld bytes are not what its shape takes", w->name, (long long)w->bytes);
	if (!within(g, w))
		return REFUSE("weight %s: outside the arena of %lld bytes", w->name,
			(long long)g->weight_arena_bytes);
	if (w->made == MADE_NO ? w->made_cols != 0 : !random_is_sound(w))
		return REFUSE("weight %s: made as %s for %lld columns, which %s is not", w->name, made_name(w->made),
			(long long)w->made_cols, dtype_name(w->dtype));
	static const uint8_t no_hash[sizeof w->hash];
	if (w->made && (w->file || w->file_offset || memcmp(w->hash, no_hash, sizeof no_hash) != 0))
		return REFUSE("weight %s: made at open, but with a file, a place or a hash", w->name);
	if (w->file && (!is_base_name(w->file) || w->file_offset < 0 || w->file_offset > max_bytes))
		return REFUSE("weight %s: \"%.80s\" at %lld is not a place in a file of the checkpoint", w->name,
			w->file, (long long)w->file_offset);
	return true;
}

/* Weights do not overlap; one that is not aligned follows another without a gap. */
static bool check_order(const Graph *g, bool is_of_file, Why *why)
{
	Range *r = malloc(sizeof *r * (size_t)(g->n_weights + 1));
	if (!r)
		return why_not(why, READ_NO_MEMORY, "no memory to compare %d weights", g->n_weights);
	bool good = true;
	for (int i = 0; i < g->n_weights && good; i++) {
		const Weight *w = &g->weights[i];
		good = (is_of_file && check_weight(g, w, why)) || (!is_of_file && (within(g, w) || REFUSE("weight %s: outside "
			"a rank's arena of %lld bytes", w->name, (long long)g->weight_arena_bytes)));
		r[i] = (Range){w->offset, w->offset + w->bytes, i};
	}
	if (good)
		qsort(r, (size_t)g->n_weights, sizeof *r, compare_ranges);
	for (int i = 0; i < g->n_weights && good; i++) {
		int64_t before = i ? r[i - 1].to : 0;
		if (r[i].from < before)
			good = REFUSE("weight %s: overlaps %s", g->weights[r[i].index].name,
				g->weights[r[i - 1].index].name);
		else if (r[i].from % PLAN_BUF_ALIGN && r[i].from != before)
			good = REFUSE("weight %s: offset %lld is not a multiple of %d", g->weights[r[i].index].name,
				(long long)r[i].from, PLAN_BUF_ALIGN);
	}
	free(r);
	return good;
}

/* The bytes of a tensor, whole where each rank has a part, are those of its weights; a single one has its shape as
 * well. */
static bool check_parts(const Artifact *a, const Tensor *t, Why *why)
{
	const Graph *g = &a->graph;
	const Weight *w = &g->weights[t->weight];
	int64_t bytes = 0, shape[PLAN_MAX_DIMS];
	ranks_whole_shape(g, &a->ranks, t, shape);
	for (int i = 0; i < t->n_weights; i++) {
		if (w[i].dtype != t->dtype || (t->n_weights == 1 && (w->n_dims != t->n_dims ||
			memcmp(w->shape, shape, sizeof *shape * (size_t)t->n_dims) != 0)))
			return REFUSE("tensor %s: not the type of weight %s", t->name, w[i].name);
		if (w[i].offset != w->offset + bytes)
			return REFUSE("tensor %s: weight %s does not follow the one before it", t->name, w[i].name);
		bytes += w[i].bytes;
	}
	return bytes == tensor_bytes(t->dtype, t->n_dims, shape) ||
		REFUSE("tensor %s: its weights have %lld bytes", t->name, (long long)bytes);
}

static bool check_tensor(const Artifact *a, const Tensor *t, Why *why)
{
	const Graph *g = &a->graph;
	int64_t shape[PLAN_MAX_DIMS];
	bool may_vary = t->role != ROLE_WEIGHT && t->role != ROLE_STATE;
	for (int i = 0; i < t->n_dims; i++)
		shape[i] = may_vary && (t->shape[i] == DIM_ROWS || t->shape[i] == DIM_OUTS) ? 1 : t->shape[i];
	if (tensor_bytes(t->dtype, t->n_dims, shape) < 0)
		return REFUSE("tensor %s: not a shape", t->name);
	if ((t->role == ROLE_WEIGHT) != (t->weight >= 0) || t->weight < -1 || t->weight >= g->n_weights ||
		(t->role == ROLE_WEIGHT) != (t->n_weights > 0) || t->n_weights < 0 || t->n_weights > g->n_weights - t->weight)
		return REFUSE("tensor %s: %d weights from %d of %d", t->name, t->n_weights, t->weight, g->n_weights);
	return t->role != ROLE_WEIGHT || check_parts(a, t, why);
}

static const FrameTensor *find_frame(const char *name)
{
	for (int i = 0; i < n_frame_table; i++)
		if (strcmp(frame_table[i].name, name) == 0)
			return &frame_table[i];
	return NULL;
}

/* Inputs and outputs are those the host knows; state of such a name has the type everybody relies on. */
static bool check_frame(const Graph *g, const Tensor *t, Why *why)
{
	const FrameTensor *f = find_frame(t->name);
	bool is_host = t->role == ROLE_INPUT || t->role == ROLE_OUTPUT;
	if (strcmp(t->name, ROLLING_TABLE) == 0 && (t->role != ROLE_WEIGHT || t->dtype != DT_i32))
		return REFUSE("tensor %s: expected integers of the plan", t->name);
	if (!f)
		return !is_host || REFUSE("tensor %s: the host does not know this %s", t->name, role_name(t->role));
	/* drafts are the host's where it makes them */
	const Role role = g->ngram_max && strcmp(f->name, "slot_draft") == 0 ? ROLE_INPUT : f->role;
	bool same = role == t->role && f->dtype == t->dtype && f->n_dims == t->n_dims;
	for (int i = 0; i < f->n_dims && same; i++)
		same = t->shape[i] == (f->shape[i] == DIM_SLOTS ? g->slots : f->shape[i] == DIM_VOCAB ? g->vocab
			: f->shape[i] == DIM_MAX_PAGES ? g->max_pages : f->shape[i] == DIM_DRAFTS ? g->verify_rows - 1
			: f->shape[i] == DIM_MASK ? mask_words(g) : f->shape[i]);
	return same || REFUSE("tensor %s: not the type that the step loop relies on", t->name);
}

/* Is it what operands of that name are? Keys and values are where one of two tables says. */
static bool is_frame_of(const char *operand, const char *tensor)
{
	return strcmp(operand, tensor) == 0 ||
		(strcmp(operand, "page_table") == 0 && strcmp(tensor, ROLLING_TABLE) == 0);
}

static bool check_graph_op(const Graph *g, int index, Why *why)
{
	const GraphOp *op = &g->ops[index];
	const OpInfo *info = &op_table[op->kind];
	OpShapes s = {.op = op->kind, .attrs = &op->attrs, .rows = DIM_ROWS, .outs = DIM_OUTS};
	char what[64];
	snprintf(what, sizeof what, "graph op %d (%s)", index, info->name);
	if (!(info->traits & OP_GRAPH) || op->layer < -1 || op->layer > g->n_layers || op->phases < 1 ||
		op->phases > (g->verify_rows ? PHASE_ALL : PHASE_DRAFT - 1))
		return REFUSE("%s: layer %d, phases %d", what, op->layer, op->phases);
	if (op->kind == OP_delta_rule && op->phases & PHASE_PREFILL && g->prompt_grid % PLAN_DELTA_CELL &&
		g->prompt_grid < g->max_context)
		return REFUSE("%s: prompt_grid = %d cuts through %d rows that it solves together", what, g->prompt_grid,
			PLAN_DELTA_CELL);
	for (int i = 0; i < info->n_operands; i++) {
		int t = op->operands[i];
		OperandRole role = info->operands[i].role;
		if (t < (operand_may_be_absent(role) ? -1 : 0) || t >= g->n_tensors)
			return REFUSE("%s: operand %s is tensor %d of %d", what, info->operands[i].name, t,
				g->n_tensors);
		if (t < 0)
			continue;
		if (operand_is_written(role) && g->tensors[t].role == ROLE_WEIGHT)
			return REFUSE("%s: writes weight %s", what, g->tensors[t].name);
		if (find_frame(info->operands[i].name) && !is_frame_of(info->operands[i].name, g->tensors[t].name))
			return REFUSE("%s: operand %s is tensor %s", what, info->operands[i].name, g->tensors[t].name);
		s.shape[i] = g->tensors[t].shape;
		s.n_dims[i] = g->tensors[t].n_dims;
	}
	return check_op_shapes(g, &s, what, why);
}

/* As many pages as the op's page table names: those of the pool, or each slot's own. */
static bool check_cache(const Graph *g, int index, const Rolling *rolling, Why *why)
{
	const GraphOp *op = &g->ops[index];
	const int kv = op_operand(op->kind, "kv");
	if (kv < 0)
		return true;
	const bool rolls = op_is_rolling(g, index);
	const int64_t pages = rolls ? (int64_t)g->slots * rolling->pages : g->pages;
	const Tensor *t = &g->tensors[op->operands[kv]];
	return t->shape[0] == pages || REFUSE("graph op %d (%s): %s has %lld pages, not the %lld of %s", index,
		op_table[op->kind].name, t->name, (long long)t->shape[0], (long long)pages, rolls ? "all slots" : "the pool");
}

/* A slot's pages hold the window and all rows of a step; those of each target: check_target. */
static bool check_rolling(const Graph *g, Why *why)
{
	const Rolling r = rolling_of(g);
	const int cell = g->prompt_grid < g->max_context ? g->prompt_grid : g->max_context;
	const int rows = cell > g->verify_rows ? cell : g->verify_rows;
	for (int i = 0; i < g->n_ops; i++)
		if (!check_cache(g, i, &r, why))
			return false;
		else if (op_is_rolling(g, i) && op_has_attr(g->ops[i].kind, "WINDOW") && (g->ops[i].attrs.window < 1 ||
			g->ops[i].attrs.window > g->max_context))
			return REFUSE("graph op %d (%s): looks back further than the pages of its slot", i,
				op_table[g->ops[i].kind].name);
	return r.table < 0 || rolling_rows(&r) >= rows || REFUSE("graph: %d pages of a slot do not hold a window of %d "
		"positions and %d rows", r.pages, r.window, rows);
}

/* In a phase, an activation is written by one op, and before another reads it. */
static bool check_graph_order(const Graph *g, int phase, bool *is_written, Why *why)
{
	memset(is_written, 0, (size_t)g->n_tensors);
	for (int i = 0; i < g->n_ops; i++) {
		const OpInfo *info = &op_table[g->ops[i].kind];
		for (int pass = 0; pass < 2 && g->ops[i].phases & phase; pass++)
			for (int k = 0; k < info->n_operands; k++) {
				const int t = g->ops[i].operands[k];
				const bool is_out = info->operands[k].role == OPERAND_OUT;
				if (t < 0 || g->tensors[t].role != ROLE_ACTIVATION || is_out != (pass == 1))
					continue;
				if (is_written[t] == is_out)
					return REFUSE("graph op %d (%s): %s %s, which no op before it %s", i, info->name,
						is_out ? "writes" : "reads", g->tensors[t].name, is_out ? "may have written" : "has written");
				is_written[t] |= is_out;
			}
	}
	return true;
}

static bool check_graph_orders(const Graph *g, Why *why)
{
	bool *is_written = malloc((size_t)g->n_tensors + 1);
	bool good = is_written || why_not(why, READ_NO_MEMORY, "no memory to order %d tensors", g->n_tensors);
	for (int phase = 1; phase <= PHASE_ALL && good; phase <<= 1)
		good = check_graph_order(g, phase, is_written, why);
	free(is_written);
	return good;
}

static bool check_graph_section(const Artifact *a, Why *why)
{
	const Graph *g = &a->graph;
	if (artifact_section(a, "ranks") && !a->ranks.n)
		return REFUSE("ranks: 0 ranks: 2, 4 or 8 expected");
	if (!check_numbers(g, why) || !UNIQUE("weight", g->weights, g->n_weights) ||
		!UNIQUE("tensor", g->tensors, g->n_tensors) || !check_order(g, true, why) ||
		!check_cuts(g, &a->ranks, why))
		return false;
	for (int i = 0; i < g->n_tensors; i++)
		if (!check_tensor(a, &g->tensors[i], why) || !check_frame(g, &g->tensors[i], why))
			return false;
	for (int i = 0; i < g->n_ops; i++)
		if (!check_graph_op(g, i, why))
			return false;
	return check_rolling(g, why) && check_graph_orders(g, why) && check_ranks(g, &a->ranks, why);
}

/* Target plans ------------------------------------------------------------------------------------- */

typedef struct Checking { /* where in a plan we are */
	const Artifact *a;
	const TargetPlan *plan;
	const Slot *ledger;
	int n_ledger;
	int64_t *place; /* [graph.n_tensors] offset of each state, io and ring tensor, -1 = not met yet */
	Why *why;
} Checking;

/* What the plan says of a kernel is what its cubin says, so that no driver has to find out. `threads`: of a block. */
static bool check_cubin(const Checking *c, const Kernel *k, int64_t threads)
{
	Why *why = c->why;
	char reason[160];
	CubinInfo info;
	if (!cubin_read(c->a->file + artifact_section(c->a, "cubins")->offset + k->cubin_offset, (size_t)k->cubin_bytes,
		k->entry, &info, reason, sizeof reason))
		return REFUSE("kernel %s: %s", k->name, reason);
	const struct { const char *what; int64_t plan, cubin; } facts[] = {
		{"bytes of arguments", k->param_bytes, info.param_bytes}, {"registers", k->registers, info.registers},
		{"bytes of static shared memory", k->static_smem_bytes, info.static_smem_bytes},
		{"bytes of local memory", k->spill_bytes, info.local_bytes}};
	for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
		if (facts[i].plan != facts[i].cubin)
			return REFUSE("kernel %s: %lld %s, its cubin has %lld", k->name, (long long)facts[i].plan, facts[i].what,
				(long long)facts[i].cubin);
	if (info.max_threads && threads > info.max_threads)
		return REFUSE("kernel %s: %lld threads a block, its cubin allows %d", k->name, (long long)threads,
			info.max_threads);
	return !info.sm || info.sm == c->plan->cc_major * 10 + c->plan->cc_minor || REFUSE(
		"kernel %s: its cubin is one for sm_%d, the plan is one for %s", k->name, info.sm, c->plan->target);
}

static bool check_kernel(const Checking *c, const Kernel *k)
{
	Why *why = c->why;
	const Section *cubins = artifact_section(c->a, "cubins");
	int64_t threads = 1;
	for (int i = 0; i < 3; i++)
		threads *= k->block[i] > 0 && k->block[i] <= MAX_THREADS ? k->block[i] : MAX_THREADS + 1;
	if (!cubins || k->cubin_offset < 0 || k->cubin_offset % 16 || k->cubin_bytes < 64 ||
		k->cubin_bytes > cubins->bytes || k->cubin_offset > cubins->bytes - k->cubin_bytes)
		return REFUSE("kernel %s: its cubin is not within the section", k->name);
	if (!k->name[0] || !k->entry[0] || k->param_bytes < 8 || k->param_bytes % 8 ||
		k->param_bytes > PLAN_MAX_PARAM_BYTES)
		return REFUSE("kernel %s: entry \"%.80s\" with %d bytes of arguments", k->name, k->entry,
			k->param_bytes);
	if (threads > MAX_THREADS || k->block[2] > 64)
		return REFUSE("kernel %s: block %d x %d x %d", k->name, k->block[0], k->block[1], k->block[2]);
	if (k->smem_bytes < 0 || k->static_smem_bytes < 0 || k->smem_bytes > MAX_SMEM ||
		k->static_smem_bytes > MAX_STATIC_SMEM ||
		k->static_smem_bytes > MAX_SMEM - k->smem_bytes || k->registers < 0 ||
		k->registers > MAX_REGISTERS || k->spill_bytes < 0)
		return REFUSE("kernel %s: %d + %d bytes of shared memory, %d registers", k->name, k->smem_bytes,
			k->static_smem_bytes, k->registers);
	return check_cubin(c, k, threads);
}

static bool check_buf(const Checking *c, const Phase *p, const Buf *b)
{
	static const ArenaKind arena_of[ROLE_COUNT] = {[ROLE_WEIGHT] = ARENA_WEIGHTS,
		[ROLE_STATE] = ARENA_STATE, [ROLE_ACTIVATION] = ARENA_SCRATCH, [ROLE_INPUT] = ARENA_IO,
		[ROLE_OUTPUT] = ARENA_RING};
	Why *why = c->why;
	const Graph *g = &c->a->graph;
	int64_t room = c->plan->arena_bytes[b->arena];
	bool is_fixed = b->arena == ARENA_STATE || b->arena == ARENA_IO || b->arena == ARENA_RING; /* in all phases */
	const PhaseLabel label = phase_label(p->kind, p->rows, p->each);
	const char *in = label.text;
	if (b->bytes != tensor_bytes(b->dtype, b->n_dims, b->shape))
		return REFUSE("%s buffer %s: %lld bytes are not what its shape takes", in, b->name,
			(long long)b->bytes);
	if (b->tensor < -1 || b->tensor >= g->n_tensors)
		return REFUSE("%s buffer %s: tensor %d of %d", in, b->name, b->tensor, g->n_tensors);
	const Tensor *t = b->tensor < 0 ? NULL : &g->tensors[b->tensor];
	if (t && (arena_of[t->role] != b->arena || t->dtype != b->dtype || strcmp(t->name, b->name) != 0))
		return REFUSE("%s buffer %s: is not tensor %s", in, b->name, t->name);
	for (int i = 0; t && i < b->n_dims; i++)
		if (b->n_dims != t->n_dims || b->shape[i] != (t->shape[i] == DIM_ROWS ? p->rows
			: t->shape[i] == DIM_OUTS ? p->outs : t->shape[i]))
			return REFUSE("%s buffer %s: not the shape of its tensor", in, b->name);
	if (!t && is_fixed && b->arena != ARENA_STATE)
		return REFUSE("%s buffer %s: %s without a tensor", in, b->name,
			arena_name(b->arena));
	if (b->arena == ARENA_PEER && (b->dtype != DT_i32 || b->bytes != room || b->first != 0 ||
			b->last != p->n_launches - 1))
		return REFUSE("%s buffer %s: what ranks show each other is all of arena %s, in all launches", in, b->name,
			arena_name(b->arena));
	if (p->kind == PROBE ? b->arena != ARENA_PROBE && b->arena != ARENA_IO : b->arena == ARENA_PROBE)
		return REFUSE("%s buffer %s: in arena %s", in, b->name, arena_name(b->arena));
	if (b->offset < 0 || b->bytes > room || b->offset > room - b->bytes)
		return REFUSE("%s buffer %s: %lld bytes at %lld, outside 0..%lld of arena %s", in, b->name,
			(long long)b->bytes, (long long)b->offset, (long long)room, arena_name(b->arena));
	if (!dtype_bytes(b->dtype) && (b->arena == ARENA_IO || b->arena == ARENA_RING))
		return REFUSE("%s buffer %s: %s is for nothing that the host reads or writes", in, b->name,
			dtype_name(b->dtype));
	if (b->offset % (b->arena != ARENA_WEIGHTS ? PLAN_BUF_ALIGN : dtype_bytes(b->dtype) ? dtype_bytes(b->dtype) : 1))
		return REFUSE("%s buffer %s: offset %lld is not aligned", in, b->name,
			(long long)b->offset);
	if (b->first < 0 || b->last >= p->n_launches || b->first > b->last)
		return REFUSE("%s buffer %s: live from launch %d to %d of %d", in, b->name, b->first,
			b->last, p->n_launches);
	if (t && is_fixed) {
		int64_t *place = &c->place[b->tensor];
		if (*place >= 0 && *place != b->offset)
			return REFUSE("%s buffer %s: at %lld here, at %lld in another phase", in,
				b->name, (long long)b->offset, (long long)*place);
		*place = b->offset;
	}
	return true;
}

/* No two buffers of a phase that live at the same time share bytes (weights may: they are never written). */
static bool check_lifetimes(const Checking *c, const Phase *p)
{
	Why *why = c->why;
	Range *r = malloc(sizeof *r * (size_t)(p->n_bufs + 1));
	if (!r)
		return why_not(why, READ_NO_MEMORY, "no memory to compare %d buffers", p->n_bufs);
	bool good = true;
	for (int arena = ARENA_STATE; arena < ARENA_COUNT && good; arena++) {
		int n = 0;
		for (int i = 0; i < p->n_bufs; i++)
			if ((int)p->bufs[i].arena == arena)
				r[n++] = (Range){p->bufs[i].offset, p->bufs[i].offset + p->bufs[i].bytes, i};
		qsort(r, (size_t)n, sizeof *r, compare_ranges);
		for (int i = 0; i < n && good; i++)
			for (int j = i + 1; j < n && r[j].from < r[i].to && good; j++) {
				const Buf *a = &p->bufs[r[i].index], *b = &p->bufs[r[j].index];
				bool shares = arena == ARENA_SCRATCH || arena == ARENA_PROBE;
				if (!shares || (a->first <= b->last && b->first <= a->last))
					good = REFUSE("%s buffers %s and %s share bytes while both live",
						PHASE_LABEL(p), a->name, b->name);
			}
	}
	free(r);
	return good;
}

/* A map is of an operand that the kernel has a pointer to, so that its hazards are known, and the driver takes it. */
static bool check_maps(const Checking *c, const Phase *p, int index, uint64_t words, const char *what)
{
	Why *why = c->why;
	const Launch *l = &p->launches[index];
	int size = c->plan->kernels[l->kernel].param_bytes;
	const uint64_t whole = ((uint64_t)1 << (PLAN_TENSOR_MAP_BYTES / 8)) - 1;
	for (int i = 0; i < l->n_maps; i++) {
		const TensorMap *m = &l->maps[i];
		bool is_arg = false;
		if (m->field_offset < 0 || m->field_offset % 64 || m->field_offset > size - PLAN_TENSOR_MAP_BYTES ||
			words & whole << (m->field_offset / 8))
			return REFUSE("%s: tensor map at byte %d of %d", what, m->field_offset, size);
		words |= whole << (m->field_offset / 8);
		for (int k = 0; k < l->n_args; k++)
			is_arg |= m->buf >= 0 && l->args[k].buf == m->buf;
		if (!is_arg)
			return REFUSE("%s: tensor map of buffer %d, which is not an argument", what, m->buf);
		const Buf *b = &p->bufs[m->buf];
		int64_t row = dtype_span(b->dtype, b->shape[b->n_dims - 1]);
		if (b->n_dims < 2 || row % 16 || b->offset % 16 || row > UINT32_MAX ||
			b->bytes / row > UINT32_MAX ||
			m->box[0] < 1 || m->box[0] > 256 || dtype_span(b->dtype, m->box[1]) != 128)
			return REFUSE("%s: tensor map of %s: tiles of %d x %d of rows of %lld bytes", what, b->name, m->box[0],
				m->box[1], (long long)row);
	}
	return true;
}

/* The buffer that an operand of such a name is, or NULL: it may be any. Rows of a draft step have positions of
 * their own. */
static const char *frame_of_arg(const Phase *p, const Launch *l, const Arg *a)
{
	const char *name = op_table[l->op].operands[a->operand].name;
	if (p->kind == DRAFT && l->op == OP_attention_step && strcmp(name, "slot_len") == 0)
		return "draft_len";
	return find_frame(name) ? name : NULL;
}

/* Size of the struct that has arguments and maps at these offsets, one after the other; -1 = none has. */
static int struct_bytes(const Launch *l)
{
	int at = 0, a = 0, m = 0;
	while (a < l->n_args || m < l->n_maps) {
		const int map_at = (at + 63) / 64 * 64;
		if (a < l->n_args && l->args[a].field_offset == at) {
			at += 8;
			a++;
		} else if (m < l->n_maps && l->maps[m].field_offset == map_at) {
			at = map_at + PLAN_TENSOR_MAP_BYTES;
			m++;
		} else {
			return -1;
		}
	}
	return l->n_maps ? (at + 63) / 64 * 64 : at;
}

static bool check_args(const Checking *c, const Phase *p, int index, const char *what)
{
	Why *why = c->why;
	const Launch *l = &p->launches[index];
	const OpInfo *info = &op_table[l->op];
	uint64_t words = 0, bound = 0; /* of the argument struct, 8 bytes each; of the op's operands */
	OpShapes s = {.op = l->op, .rows = p->rows, .outs = p->outs};
	for (int i = 0; i < l->n_args; i++) {
		const Arg *a = &l->args[i];
		int size = c->plan->kernels[l->kernel].param_bytes;
		if (a->field_offset < 0 || a->field_offset % 8 || a->field_offset > size - 8 ||
			words >> (a->field_offset / 8) & 1)
			return REFUSE("%s: argument at byte %d of %d", what, a->field_offset, size);
		if (a->operand < 0 || a->operand >= info->n_operands || bound >> a->operand & 1)
			return REFUSE("%s: operand %d of %d", what, a->operand, info->n_operands);
		OperandRole role = info->operands[a->operand].role;
		if (a->buf < (operand_may_be_absent(role) ? -1 : 0) || a->buf >= p->n_bufs)
			return REFUSE("%s: %s is buffer %d of %d", what, info->operands[a->operand].name, a->buf,
				p->n_bufs);
		if (a->early != 0 && (a->early != 1 || !l->overlaps || role == OPERAND_OUT || a->buf < 0 ||
			p->bufs[a->buf].arena != ARENA_STATE))
			return REFUSE("%s: %s is early = %d: expected 0, or 1 of state that a launch which overlaps reads", what,
				info->operands[a->operand].name, a->early);
		words |= (uint64_t)1 << (a->field_offset / 8);
		bound |= (uint64_t)1 << a->operand;
		if (a->buf < 0)
			continue;
		const Buf *b = &p->bufs[a->buf];
		if (b->arena == ARENA_WEIGHTS && operand_is_written(role))
			return REFUSE("%s: writes weight %s", what, b->name);
		const char *expected = frame_of_arg(p, l, a);
		if (expected && !is_frame_of(expected, b->name))
			return REFUSE("%s: operand %s is buffer %s", what, info->operands[a->operand].name, b->name);
		if (index < b->first || index > b->last)
			return REFUSE("%s: buffer %s does not live then", what, b->name);
		s.shape[a->operand] = b->shape;
		s.n_dims[a->operand] = b->n_dims;
	}
	if (!check_maps(c, p, index, words, what))
		return false;
	if (struct_bytes(l) != c->plan->kernels[l->kernel].param_bytes)
		return REFUSE("%s: its %d arguments and %d tensor maps are not a struct of %d bytes", what, l->n_args,
			l->n_maps, c->plan->kernels[l->kernel].param_bytes);
	return check_op_shapes(&c->a->graph, &s, what, why);
}
_Static_assert(PLAN_MAX_PARAM_BYTES / 8 <= 64 && PLAN_MAX_OPERANDS <= 64, "one bit each");

static bool check_launch(const Checking *c, const Phase *p, int index)
{
	Why *why = c->why;
	const Launch *l = &p->launches[index];
	char what[96];
	snprintf(what, sizeof what, "%s launch %d (%s)", PHASE_LABEL(p), index,
		op_table[l->op].name);
	if (l->kernel < 0 || l->kernel >= c->plan->n_kernels)
		return REFUSE("%s: kernel %d of %d", what, l->kernel, c->plan->n_kernels);
	if (l->grid[0] < 1 || l->grid[1] < 1 || l->grid[1] > 65535 || l->grid[2] < 1 || l->grid[2] > 65535)
		return REFUSE("%s: grid %d x %d x %d", what, l->grid[0], l->grid[1], l->grid[2]);
	if (l->layer < -1 || l->layer > c->a->graph.n_layers || l->produces_layer < -1 ||
		l->produces_layer >= c->a->graph.n_layers)
		return REFUSE("%s: layer %d, produces layer %d", what, l->layer, l->produces_layer);
	if (l->overlaps != 0 && (l->overlaps != 1 || c->plan->cc_major < 9))
		return REFUSE("%s: overlaps = %d on %s", what, l->overlaps, c->plan->target);
	if (l->read_bytes < 0 || l->write_bytes < 0 || l->flops < 0)
		return REFUSE("%s: negative work", what);
	for (int i = 0; i < l->n_deps; i++)
		if (l->deps[i] < (i ? l->deps[i - 1] + 1 : 0) || l->deps[i] >= index)
			return REFUSE("%s: waits for launch %d: earlier ones expected, ascending", what, l->deps[i]);
	if (l->slot < 0 || l->slot >= c->n_ledger || c->ledger[l->slot].op != l->op ||
		c->ledger[l->slot].phase != p->kind || c->ledger[l->slot].rows != p->rows ||
		c->ledger[l->slot].outs != p->outs || c->ledger[l->slot].each != p->each)
		return REFUSE("%s: entry %d of the ledger is not about it", what, l->slot);
	return check_args(c, p, index, what);
}

/* A launch that writes tensor lN.out completes its layer, N. */
static bool check_completion(const Phase *p, int index, Why *why)
{
	const Launch *l = &p->launches[index];
	char name[32];
	int completes = -1;
	snprintf(name, sizeof name, "l%d.out", l->layer);
	for (int i = 0; i < l->n_args; i++)
		if (op_table[l->op].operands[l->args[i].operand].role == OPERAND_OUT && l->args[i].buf >= 0 &&
			strcmp(p->bufs[l->args[i].buf].name, name) == 0)
			completes = l->layer;
	return l->produces_layer == completes || REFUSE(
		"%s launch %d (%s): produces layer %d, but its results complete %d",
		PHASE_LABEL(p), index, op_table[l->op].name, l->produces_layer, completes);
}

static bool check_phase(const Checking *c, const Phase *p, const Phase *before)
{
	Why *why = c->why;
	int least_outs = p->kind == PROBE ? 0 : 1, most_outs = p->kind == PROBE ? 0 : p->rows;
	if (p->kind == ACQUIRE ? p->rows || p->outs
		: p->rows < 1 || p->rows > MAX_ROWS || p->outs < least_outs || p->outs > most_outs)
		return REFUSE("phase %s: %d rows, %d outs", phase_name(p->kind), p->rows, p->outs);
	const bool has_each = p->kind == VERIFY || p->kind == DRAFT;
	if (has_each ? p->each < (p->kind == VERIFY ? 1 : 2) || p->each > c->a->graph.verify_rows : p->each)
		return REFUSE("phase %s: %d rows of each slot, of at most %d", PHASE_LABEL(p), p->each,
			c->a->graph.verify_rows);
	if (p->kind >= DECODE && p->kind <= VERIFY && (p->outs != p->rows || (p->kind == VERIFY && p->rows % p->each)))
		return REFUSE("phase %s: %d rows, %d outs", phase_name(p->kind), p->rows, p->outs);
	if (before && (before->kind > p->kind || (before->kind == p->kind && (before->each > p->each ||
			(before->each == p->each && before->rows >= p->rows)))))
		return REFUSE("phase %s: out of order", PHASE_LABEL(p));
	if (p->n_launches < 1 || p->n_launches > MAX_LAUNCHES || p->n_bufs > MAX_BUFS)
		return REFUSE("phase %s: %d launches, %d buffers", PHASE_LABEL(p), p->n_launches,
			p->n_bufs);
	for (int i = 0; i < p->n_bufs; i++)
		if (!check_buf(c, p, &p->bufs[i]))
			return false;
	for (int i = 0; i < p->n_launches; i++)
		if (!check_launch(c, p, i) || !check_completion(p, i, why))
			return false;
	return check_lifetimes(c, p) && check_hazards(p, why);
}

/* State of launches alone, no tensor of the graph, keeps clear of the tensors' state, whatever phase touches it. */
static bool check_own_state(const Checking *c, const Phase *p)
{
	Why *why = c->why;
	const Graph *g = &c->a->graph;
	for (int i = 0; i < p->n_bufs; i++) {
		const Buf *b = &p->bufs[i];
		if (b->tensor >= 0 || b->arena != ARENA_STATE)
			continue;
		for (int k = 0; k < g->n_tensors; k++) {
			const Tensor *t = &g->tensors[k];
			if (t->role == ROLE_STATE && c->place[k] >= 0 && b->offset < c->place[k]
				+ tensor_bytes(t->dtype, t->n_dims, t->shape) && c->place[k] < b->offset + b->bytes)
				return REFUSE("%s buffer %s: shares bytes with state %s", PHASE_LABEL(p), b->name,
					t->name);
		}
	}
	return true;
}

/* "sm_90a" is 9.0, "sm_121" 12.1. */
static bool names_capability(const TargetPlan *t)
{
	char name[32];
	const int n = snprintf(name, sizeof name, "sm_%d%d", t->cc_major, t->cc_minor);
	return strncmp(t->target, name, (size_t)n) == 0 && (!t->target[n] || strcmp(t->target + n, "a") == 0);
}

/* Most slots of a step that reads `each` rows of each; 0 = there is no such step. */
static int slots_of(const Graph *g, int each)
{
	int slots = g->ngram_max && each == 1 ? g->slots : 0;
	for (int i = 0; i < g->n_ladder; i++)
		slots = g->ladder[i].rows == each ? g->ladder[i].slots : slots;
	return slots;
}

/* Of the steps of a model: rows, or outs, of the largest. */
static int64_t most_rows(const TargetPlan *t, bool outs)
{
	int64_t most = 0;
	for (int i = 0; i < t->n_phases; i++) {
		const int n = outs ? t->phases[i].outs : t->phases[i].rows;
		most = t->phases[i].kind != PROBE && n > most ? n : most;
	}
	return most;
}

static bool check_target(const Checking *c)
{
	Why *why = c->why;
	const TargetPlan *t = c->plan;
	int found[PHASE_KINDS] = {0}, prompt_rows = 0;
	int most[2][PLAN_MAX_VERIFY + 1] = {{0}}; /* slots of DRAFT and VERIFY, by rows of each */
	for (int i = 0; i < ARENA_COUNT; i++)
		if (t->arena_bytes[i] < 0 || t->arena_bytes[i] > max_bytes)
			return REFUSE("target %s: arena %s of %lld bytes", t->target, arena_name((ArenaKind)i),
				(long long)t->arena_bytes[i]);
	if (c->a->ranks.n && t->arena_bytes[ARENA_PEER] != 4 * peer_words(ranks_largest_part(&c->a->graph,
			most_rows(t, false), most_rows(t, true))))
		return REFUSE("target %s: arena %s of %lld bytes does not fit the largest part that a rank shows", t->target,
			arena_name(ARENA_PEER), (long long)t->arena_bytes[ARENA_PEER]);
	if (t->arena_bytes[ARENA_WEIGHTS] != c->a->graph.weight_arena_bytes)
		return REFUSE("target %s: its weight arena is not the graph's", t->target);
	if (t->cc_major < 1 || t->cc_major > 99 || t->cc_minor < 0 || t->cc_minor > 9 || !names_capability(t))
		return REFUSE("target %s: compute capability %d.%d", t->target, t->cc_major, t->cc_minor);
	if (t->smem_block_bytes < 0 || t->smem_block_bytes > MAX_SMEM)
		return REFUSE("target %s: %d bytes of shared memory a block", t->target, t->smem_block_bytes);
	if (t->n_sms < 0 || t->n_sms > MAX_SMS)
		return REFUSE("target %s: %d multiprocessors", t->target, t->n_sms);
	for (int i = 0; i < t->n_kernels; i++)
		if (!check_kernel(c, &t->kernels[i]))
			return false;
	for (int i = 0; i < t->n_phases; i++) {
		if (!check_phase(c, &t->phases[i], i ? &t->phases[i - 1] : NULL))
			return false;
		if (++found[t->phases[i].kind] > 1 && t->phases[i].kind >= ACQUIRE)
			return REFUSE("target %s: two %s phases", t->target, phase_name(t->phases[i].kind));
		if (t->phases[i].kind == PREFILL)
			prompt_rows = t->phases[i].rows; /* ascending */
		if (t->phases[i].kind >= DECODE && t->phases[i].kind <= VERIFY)
			found[t->phases[i].kind] = t->phases[i].rows;
		if (t->phases[i].each)
			most[t->phases[i].kind == VERIFY][t->phases[i].each] = t->phases[i].kind == VERIFY
				? t->phases[i].rows / t->phases[i].each : t->phases[i].rows;
	}
	for (int i = 0; i < t->n_phases; i++)
		if (!check_own_state(c, &t->phases[i]))
			return false;
	if (!found[PREFILL] || !found[ACQUIRE] || found[DECODE] < c->a->graph.slots)
		return REFUSE("target %s: a phase is missing, or decode[%d] is too small for %d slots", t->target,
			found[DECODE], c->a->graph.slots);
	const int cell = c->a->graph.prompt_grid < c->a->graph.max_context ? c->a->graph.prompt_grid
		: c->a->graph.max_context;
	if (prompt_rows < cell)
		return REFUSE("target %s: prefill[%d] is smaller than the grid of %d positions at which prompts are cut",
			t->target,
			prompt_rows, cell);
	const Graph *g = &c->a->graph;
	const Rolling rolling = rolling_of(g);
	if (rolling.table >= 0 && prompt_rows > rolling_rows(&rolling))
		return REFUSE("target %s: prefill[%d] writes over windows: %d pages of a slot hold them and %d rows", t->target,
			prompt_rows, rolling.pages, rolling_rows(&rolling));
	for (int each = 1; each <= PLAN_MAX_VERIFY; each++) {
		const int slots = slots_of(g, each), drafted = g->ngram_max || each == 1 ? 0 : slots;
		if (most[1][each] < slots || most[0][each] < drafted || (!slots && most[1][each]) ||
			(!drafted && most[0][each]))
			return REFUSE("target %s: draft[%dx%d] and verify[%dx%d] do not fit %d slots of %d rows", t->target,
				most[0][each], each, most[1][each], each, slots, each);
	}
	return true;
}

/* A buffer of a trial: no tensor's, in one of the three arenas, at a place of its own. */
static bool check_trial_buf(const Checking *c, const Phase *p, int index)
{
	Why *why = c->why;
	const Buf *b = &p->bufs[index];
	int64_t room = c->plan->arena_bytes[b->arena];
	if (b->tensor != -1 || b->first != 0 || b->last != 0 || b->arena > ARENA_SCRATCH || b->offset % PLAN_BUF_ALIGN ||
		b->bytes != tensor_bytes(b->dtype, b->n_dims, b->shape) || b->offset < 0 || b->bytes > room ||
		b->offset > room - b->bytes)
		return REFUSE("candidate %d buffer %s: %lld bytes at %lld of arena %s", p->launches[0].kernel, b->name,
			(long long)b->bytes, (long long)b->offset, arena_name(b->arena));
	for (int i = 0; i < index; i++)
		if (p->bufs[i].arena == b->arena && p->bufs[i].offset < b->offset + b->bytes &&
			b->offset < p->bufs[i].offset + p->bufs[i].bytes)
			return REFUSE("candidate %d buffers %s and %s share bytes", p->launches[0].kernel, p->bufs[i].name,
				b->name);
	return true;
}

static bool check_trial(const Checking *c, int index)
{
	Why *why = c->why;
	const Phase *p = &c->plan->phases[index];
	if (p->n_launches != 1 || p->launches[0].kernel != index || p->n_bufs > PLAN_MAX_OPERANDS || p->rows < 0 ||
		p->outs < 0)
		return REFUSE("candidate %d: %d launches, %d buffers", index, p->n_launches, p->n_bufs);
	if (p->launches[0].n_deps) /* in a chain of itself it may overlap, without edges in the plan */
		return REFUSE("candidate %d: %d edges", index, p->launches[0].n_deps);
	for (int i = 0; i < p->n_bufs; i++)
		if (!check_trial_buf(c, p, i))
			return false;
	return check_launch(c, p, 0);
}

/* All kernels that were considered, for `atlas tune`. */
static bool check_candidates(const Checking *plan)
{
	Checking c = *plan;
	Why *why = c.why;
	const TargetPlan *t = c.plan = &c.a->candidates[plan->plan - c.a->targets];
	if (!t->target)
		return true; /* no section */
	if (t->cc_major != plan->plan->cc_major || t->cc_minor != plan->plan->cc_minor || t->n_kernels < 1 ||
		t->n_phases != t->n_kernels)
		return REFUSE("candidates of %s: %d kernels, %d phases", t->target, t->n_kernels, t->n_phases);
	for (int i = 0; i < ARENA_COUNT; i++)
		if (t->arena_bytes[i] < 0 || t->arena_bytes[i] > max_bytes)
			return REFUSE("candidates of %s: arena %s of %lld bytes", t->target, arena_name((ArenaKind)i),
				(long long)t->arena_bytes[i]);
	for (int i = 0; i < t->n_kernels; i++)
		if (!check_kernel(&c, &t->kernels[i]) || !check_trial(&c, i))
			return false;
	return check_contracts(c.a, t, c.ledger, true, why);
}

/* The contract of that template for that op; names are few, and neighbours ask for the same one. */
static const Contract *find_contract(const Artifact *a, const char *name, OpKind op, const Contract *last)
{
	if (last && last->op == op && strcmp(last->name, name) == 0)
		return last;
	for (int i = 0; i < a->n_contracts; i++)
		if (a->contracts[i].op == op && strcmp(a->contracts[i].name, name) == 0)
			return &a->contracts[i];
	return NULL;
}

static bool check_ledger(const Artifact *a, int target, Why *why)
{
	for (int i = 0; i < a->n_ledger[target]; i++) {
		const Slot *s = &a->ledger[target][i];
		if (s->layer_first < -1 || s->layer_last < s->layer_first || s->layer_last > a->graph.n_layers ||
			s->rows < 0 || s->outs < 0)
			return REFUSE("ledger entry %d: layers %d to %d", i, s->layer_first, s->layer_last);
		const Contract *contract = NULL;
		int chosen = 0;
		for (int k = 0; k < s->n_candidates; k++) {
			chosen += s->candidates[k].verdict == CHOSEN;
			contract = find_contract(a, s->candidates[k].kernel, s->op, contract);
			if (!contract)
				return REFUSE("ledger entry %d (%s): no contract of %s", i, op_table[s->op].name,
					s->candidates[k].kernel);
			const Candidate *x = &s->candidates[k];
			const ContractTerm *t = contract_predicate(contract, x->predicate);
			if (t ? (x->verdict == REJECTED) != (strcmp(t->kind, "requires") == 0) : x->predicate != -1)
				return REFUSE("ledger entry %d (%s): %s is %s by predicate %d", i, op_table[s->op].name, x->kernel,
					verdict_name(x->verdict), x->predicate);
		}
		if (chosen != 1)
			return REFUSE("ledger entry %d (%s): %d candidates are chosen", i, op_table[s->op].name, chosen);
	}
	return true;
}

static bool check_origins(const Artifact *a, Why *why)
{
	for (int i = 0; i < a->n_origins; i++) {
		const Origin *o = &a->origins[i];
		size_t n = strlen(o->sha256);
		if (!o->kind[0] || !o->name[0] || o->bytes < 0 || (n && n != 64) || strspn(o->sha256, "0123456789abcdef") != n)
			return REFUSE("provenance entry %d (%.80s): %lld bytes, SHA-256 \"%.80s\"", i, o->name,
				(long long)o->bytes, o->sha256);
	}
	return true;
}

static bool check_targets(const Artifact *a, Why *why)
{
	int64_t *place = malloc(sizeof *place * (size_t)(a->graph.n_tensors + 1));
	if (!place)
		return why_not(why, READ_NO_MEMORY, "no memory for %d tensors", a->graph.n_tensors);
	bool good = true;
	for (int i = 0; i < a->n_targets && good; i++) {
		memset(place, -1, sizeof *place * (size_t)a->graph.n_tensors);
		Checking c = {a, &a->targets[i], a->ledger[i], a->n_ledger[i], place, why};
		good = check_ledger(a, i, why) && check_target(&c) && check_uses(a, c.plan, why) &&
			check_contracts(a, c.plan, c.ledger, false, why) && check_orders(a, c.plan, c.ledger, why) &&
			check_meaning(a, c.plan, why) &&
			check_ledger_layers(a, i, why) && check_candidates(&c);
	}
	free(place);
	return good;
}

/* The weight arena of a rank: a place for each tensor. a: as the launches of a rank see it. */
static bool check_places(const Artifact *a, Why *why)
{
	const Ranks *r = &a->ranks;
	if (!r->n)
		return true;
	if (r->n_places != a->graph.n_weights)
		return REFUSE("ranks: %d places of %d weights", r->n_places, a->graph.n_weights);
	if (r->weight_bytes < 0 || r->weight_bytes > max_bytes || r->peer_bytes < 0 || r->peer_bytes > max_bytes ||
		(!a->n_targets && r->peer_bytes))
		return REFUSE("ranks: arenas of %lld and %lld bytes", (long long)r->weight_bytes, (long long)r->peer_bytes);
	return check_order(&a->graph, false, why);
}

bool check_artifact(const Artifact *a, Why *why)
{
	const Section *weights = artifact_section(a, "weights");
	if (!check_graph_section(a, why) || !check_origins(a, why))
		return false;
	if (!weights || weights->bytes > a->graph.weight_arena_bytes)
		return REFUSE("section weights is missing or longer than the weight arena");
	for (int i = 0; i < a->graph.n_weights; i++) {
		const Weight *w = &a->graph.weights[i];
		if (!w->file && !w->made && w->offset + w->bytes > weights->bytes)
			return REFUSE("weight %s: not in section weights", w->name);
		if (w->made && w->offset < weights->bytes)
			return REFUSE("weight %s: made at open, but in section weights", w->name);
		uint64_t seed;
		if (w->made && !random_seed(a, &seed))
			return REFUSE("weight %s: made at open, but option weights.random_seed is not a seed", w->name);
	}
	if (!check_graph_twice(a, why))
		return false;
	Artifact own = *a; /* as the launches of a rank see it */
	if (a->ranks.n && !ranks_view(&a->graph, &a->ranks, &own.graph))
		return why_not(why, READ_NO_MEMORY, "no memory for %d tensors", a->graph.n_tensors);
	const bool good = check_places(&own, why) && check_targets(&own, why);
	if (a->ranks.n)
		ranks_view_free(&own.graph);
	return good;
}
