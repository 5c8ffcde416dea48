/* tune_inputs.c - legal contents of what a trial reads by more than its numbers: who sits in the step, pages, settings.
 *
 * artifacts/ops.h says what these operands mean. Whatever an integer operand is that has no line here: zeros.
 */
#include "artifacts/op_table.h"
#include "runtime/cli/tune/tune.h"

#include <string.h>

bool tune_is_ruled(const Buf *b)
{
	return b->dtype == DT_i32 || strcmp(b->name, "sampling") == 0 || strcmp(b->name, "new_sampling") == 0;
}

static int least(int a, int b) { return a < b ? a : b; }

/* Rows of a slot in a step of a flight; 0: of prompts. */
static int rows_each(const Phase *p)
{
	return p->kind == VERIFY ? p->each : p->kind == DECODE || p->kind == DRAFT;
}

/* Rows in use, and prompts they belong to. */
static int rows_in_use(const Graph *g, const Phase *p)
{
	return rows_each(p) ? least(p->rows, g->slots * rows_each(p)) : p->rows;
}

static int prompts(const Graph *g, const Phase *p) { return (p->rows + g->max_context - 1) / g->max_context; }

static int outs_in_use(const Graph *g, const Phase *p)
{
	return rows_each(p) ? rows_in_use(g, p) : least(p->outs, prompts(g, p));
}

/* Tokens that the slot of a flight's row has, the row's own included. */
static int history(const Graph *g, int turn) { return least(g->max_context, turn % 2 ? TUNE_MANY : TUNE_FEW); }

static int gcd(int a, int b)
{
	while (b) {
		int rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

/* Values of element i, by the operand's name -------------------------------------------------------------------- */

typedef int Rule(const Graph *g, const Phase *p, int turn, int i);

static int step_word(const Graph *g, const Phase *p, int turn, int i)
{
	(void)turn;
	const int words[4] = {rows_in_use(g, p), outs_in_use(g, p), p->kind == PREFILL ? prompts(g, p) : 0, 0};
	return words[i % 4];
}

static int row_slot(const Graph *g, const Phase *p, int turn, int row)
{
	(void)turn;
	int slot = rows_each(p) ? row / rows_each(p) : row / g->max_context;
	return slot < g->slots ? slot : -1;
}

static int row_position(const Graph *g, const Phase *p, int turn, int row)
{
	return rows_each(p) ? history(g, turn) - 1 + row % rows_each(p) : row % g->max_context;
}

static int slot_length(const Graph *g, const Phase *p, int turn, int slot)
{
	(void)p;
	(void)slot;
	return history(g, turn) - 1;
}

static int out_row(const Graph *g, const Phase *p, int turn, int out)
{
	(void)turn;
	if (out >= outs_in_use(g, p))
		return -1;
	return rows_each(p) ? out : least((out + 1) * g->max_context, p->rows) - 1;
}

/* First row, rows, slot, position of the first row. */
static int segment_word(const Graph *g, const Phase *p, int turn, int i)
{
	(void)turn;
	int prompt = i / 4, first = prompt * g->max_context;
	if (prompt >= prompts(g, p))
		return 0;
	const int words[4] = {first, least(g->max_context, p->rows - first), prompt, 0};
	return words[i % 4];
}

/* Pages of the trial's cache: those of the pool, or of all slots. */
static int pages_of(const Graph *g, const Phase *p)
{
	for (int i = 0; i < p->n_bufs; i++)
		if (strcmp(p->bufs[i].name, "kv") == 0)
			return (int)p->bufs[i].shape[0];
	return g->pages;
}

/* Every page once before one comes again, in an order that is not that of memory. */
static int page(const Graph *g, const Phase *p, int turn, int i)
{
	(void)turn;
	const int pages = pages_of(g, p);
	int stride = pages / 2 + 1;
	while (gcd(stride, pages) != 1)
		stride++;
	return (int)((int64_t)(i % pages) * stride % pages);
}

/* Pages of one slot that a step looks at. */
static int pages_in_use(const Graph *g, const Phase *p)
{
	int tokens = least(g->max_context, rows_each(p) ? TUNE_MANY : p->rows);
	return (tokens + g->page - 1) / g->page;
}

static int token(const Graph *g, const Phase *p, int turn, int i)
{
	(void)turn;
	uint64_t z = (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u;
	(void)p;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	return (int)((z ^ z >> 27) % (uint64_t)g->vocab);
}

/* No top_k, a seed, and more positions than a slot has: no sequence ends. */
static int limit(const Graph *g, const Phase *p, int turn, int i)
{
	(void)turn;
	const int words[8] = {0, 1, 2, 2 * g->max_context, 0, 0, 0, 0};
	(void)p;
	return words[i % 8];
}

static int first_alone(const Graph *g, const Phase *p, int turn, int i)
{
	(void)turn;
	(void)g;
	(void)p;
	return i == 0;
}

static int none(const Graph *g, const Phase *p, int turn, int i)
{
	(void)turn;
	(void)g;
	(void)p;
	(void)i;
	return -1;
}

/* Experts of a step's layers, or 1 in a model that has none. */
static int experts_of(const Graph *g)
{
	for (int i = 0; i < g->n_ops; i++)
		if (op_operand(g->ops[i].kind, "gate_up") >= 0)
			return (int)g->tensors[g->ops[i].operands[op_operand(g->ops[i].kind, "gate_up")]].shape[0];
	return 1;
}

/* Pairs of row and expert in use. */
static int pairs_in_use(const Graph *g, const Phase *p)
{
	for (int i = 0; i < g->n_ops; i++)
		if (op_operand(g->ops[i].kind, "gate_up") >= 0)
			return rows_in_use(g, p) * g->ops[i].attrs.n_active;
	return 0;
}

/* Every expert once before one comes again, others in the next turn. */
static int expert(const Graph *g, const Phase *p, int turn, int i)
{
	return (int)(((int64_t)turn * pairs_in_use(g, p) + i) % experts_of(g));
}

/* Where the pairs of an expert begin, if pair i is expert i's, the experts over and over. */
static int first_pair(const Graph *g, const Phase *p, int turn, int e)
{
	const int n = experts_of(g), pairs = pairs_in_use(g, p);
	(void)turn;
	return e * (pairs / n) + least(e, pairs % n);
}

/* The pairs in that order. */
static int pair(const Graph *g, const Phase *p, int turn, int i)
{
	const int n = experts_of(g), pairs = pairs_in_use(g, p), each = pairs / n, longer = pairs % n * (each + 1);
	(void)turn;
	if (i >= pairs)
		return -1;
	return i < longer ? i / (each + 1) + i % (each + 1) * n
		: (i - longer) / each + pairs % n + (i - longer) % each * n;
}

/* A table of the first ids. */
static int itself(const Graph *g, const Phase *p, int turn, int i)
{
	(void)g;
	(void)p;
	(void)turn;
	return i;
}

static const struct { const char *name; Rule *rule; } rules[] = {{"step", step_word}, {"row_slot", row_slot},
	{"row_pos", row_position}, {"slot_len", slot_length}, {"draft_len", slot_length},
	{"row_token", token}, {"slot_token", token}, {"row_next", token}, {"slot_draft", token}, {"drawn", token},
	{"out_row", out_row}, {"seg", segment_word}, {"page_table", page}, {"new_pages", page}, {"limits", limit},
	{"new_limits", limit}, {"acquire", first_alone}, {"stop_tokens", none}, {"ids", itself},
	{"expert", expert}, {"pair", pair}, {"first", first_pair}};

void tune_rule(const Graph *g, const Phase *p, const Buf *b, int turn, void *host)
{
	/* greedy and sampled steps in turn: temperature, top_p, min_p, repetition, presence, frequency */
	static const float settings_of[2][8] = {{0, 1, 0, 1, 0, 0, 0, 0}, {0.7f, 0.95f, 0, 1, 0, 0, 0, 0}};
	float *settings = host;
	int32_t *whole = host;
	int n = (int)(b->bytes / 4);
	int from = strcmp(b->name, "page_table") == 0 ? (int)((int64_t)turn * pages_in_use(g, p) % pages_of(g, p)) : 0;
	memset(host, 0, (size_t)b->bytes);
	for (int i = 0; i < n && b->dtype != DT_i32; i++)
		settings[i] = settings_of[turn % 2][i % 8];
	for (size_t r = 0; r < sizeof rules / sizeof rules[0] && b->dtype == DT_i32; r++)
		for (int i = 0; i < n && strcmp(rules[r].name, b->name) == 0; i++)
			whole[i] = rules[r].rule(g, p, turn, from + i);
}
