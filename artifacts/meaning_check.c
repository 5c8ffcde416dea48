/* meaning_check.c - does each phase compute what the graph says?
 *
 * A launch has operands of a fused op, and shapes alone do not show which of two equal ones is which: gate or up, the
 * norm of queries or that of keys, the residual or its sum. So both sides are computed symbolically (translation
 * validation by value numbering). A value is a number for "output k of this op, of these values"; equal ones have the
 * same number. The graph's ops of a phase give a value to each tensor. The launches, each spelled out as the graph ops
 * that ops.h says it means, give one to each buffer. At the end of the phase a buffer that stores a tensor must have
 * its value: with every weight, every state and every result on the way where the graph has it.
 *
 * What is not part of a value: attributes, which contract_check.c compares, and inputs that belong to the step itself
 * (`step`, `seg`). A product of joined weights has one piece for each of them, and its columns are read by piece. Codes
 * of rows and their scales represent the rows; parts, counters and the order of experts what they are made of.
 */
#include "artifacts/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSE(...) why_not(why, READ_MALFORMED, __VA_ARGS__)

/* Kinds of values besides the outputs of graph ops. */
enum {
	OF_TENSOR = OP_COUNT, /* what a tensor holds before the phase; operand: its index + 1 */
	OF_WEIGHTS,           /* operands: index of the first weight + 1, how many */
	OF_PIECES,            /* columns of these one after the other */
	OF_CODES, OF_SCALES, OF_BLOCKS, /* of rows */
	OF_BEST, OF_BEST_IDS, /* of logits */
	OF_LENGTHS,           /* of slots, that are at these positions */
	OF_PAIRS, OF_FIRSTS,  /* of the experts of rows */
	OF_GATHERED,          /* rows in the order of experts: codes, scales; operands: rows, expert */
	OF_SOLVED,            /* of chunks of rows: solved, scores, factors; operands: qkv, a, b, a_log, dt_bias */
	OF_UP,                /* what experts_up leaves; operands as in enum Up */
	OF_CLAMPED,           /* what experts_up_clamped leaves; operands: n, expert, share, gate_up, scales, bias */
	OF_ONE,               /* the share of an expert that all rows go to, without a gate; operand: the rows */
	OF_TERMS, OF_PARTS,   /* of a sum of experts; what NCCL gives before the kernel; operands: what comes of it */
};
enum { MAX_PIECES = 4, NO_LAYER = -2, SOME_LAYERS = -3 };

typedef struct Node {
	int kind, out, n, operands[PLAN_MAX_OPERANDS];
	int layer; /* of the graph's op that makes it; NO_LAYER or SOME_LAYERS */
} Node;
typedef struct Value { int n, piece[MAX_PIECES]; } Value; /* n 0: absent */

typedef struct Meaning {
	const Graph *g;
	const Phase *p;
	const Launch *l;     /* the one at hand */
	Node *nodes; int n_nodes, room; /* node 0 is no value */
	int *table; int table_size;     /* open addressing; 0 = free */
	int *of_tensor;      /* [n_tensors] values by the graph */
	Value *of_buf;       /* [n_bufs] values by the launches */
	int *writer;         /* [n_bufs] launch that wrote it last, -1 = none */
	int *by_offset;      /* [n_weights] */
	int *most;           /* [n_weights] how many weights the longest tensor from it on has, 0 = none begins there */
	bool has_memory;     /* nothing failed for lack of it */
	bool is_in_layer, is_elsewhere; /* of what the launch makes: is any of its layer, any of another? */
	const char *odd;     /* what this launch cannot mean; NULL = all is well */
	Why *why;
} Meaning;

/* Values ------------------------------------------------------------------------------------------------- */

static uint32_t hash_of(const Node *n)
{
	uint32_t h = (uint32_t)n->kind * 31 + (uint32_t)n->out;
	for (int i = 0; i < n->n; i++)
		h = (h ^ (uint32_t)n->operands[i]) * 0x01000193u + 0x9e3779b9u;
	return h ^ h >> 15;
}

static bool is_same(const Node *a, const Node *b)
{
	return a->kind == b->kind && a->out == b->out && a->n == b->n &&
		memcmp(a->operands, b->operands, sizeof a->operands[0] * (size_t)a->n) == 0;
}

static int *place_of(const Meaning *m, const Node *n)
{
	uint32_t at = hash_of(n) & (uint32_t)(m->table_size - 1);
	while (m->table[at] && !is_same(&m->nodes[m->table[at]], n))
		at = (at + 1) & (uint32_t)(m->table_size - 1);
	return &m->table[at];
}

static bool make_room(Meaning *m)
{
	if (m->n_nodes + 1 < m->room)
		return true;
	const int room = m->room ? 2 * m->room : 1 << 12;
	Node *nodes = room < 1 << 28 ? realloc(m->nodes, sizeof *nodes * (size_t)room) : NULL;
	m->nodes = nodes ? nodes : m->nodes;
	int *table = nodes ? calloc(2 * (size_t)room, sizeof *table) : NULL;
	if (!table)
		return m->has_memory = false;
	free(m->table);
	m->table = table;
	m->table_size = 2 * room;
	m->room = room;
	for (int i = 1; i <= m->n_nodes; i++)
		*place_of(m, &m->nodes[i]) = i;
	return true;
}

/* The value of output `out` of `kind`, of these. 0 when there is no memory. */
static int value_of(Meaning *m, int kind, int out, int n, const int *operands)
{
	Node node = {.kind = kind, .out = out, .n = n, .layer = NO_LAYER};
	memcpy(node.operands, operands, sizeof operands[0] * (size_t)n);
	if (!make_room(m))
		return 0;
	int *at = place_of(m, &node);
	if (!*at) {
		m->nodes[++m->n_nodes] = node;
		*at = m->n_nodes;
	}
	return *at;
}
#define VALUE(m, kind, ...) \
	value_of(m, kind, 0, (int)(sizeof (int[]){__VA_ARGS__} / sizeof(int)), (int[]){__VA_ARGS__})

/* Where only rows in use are looked at, which these say; the reader of the plan compares them by name. A verify step's
 * positions do not depend on what the drafts are. */
static bool matters(OpKind op, int out, const char *operand)
{
	return strcmp(operand, "step") != 0 && strcmp(operand, "seg") != 0 &&
		!(op == OP_verify_rows && strcmp(operand, "slot_draft") == 0 && out == op_operand(op, "row_pos"));
}

/* A graph op of these values, by operand; outputs replace what they are written to. */
static void apply(Meaning *m, OpKind op, int v[PLAN_MAX_OPERANDS])
{
	const OpInfo *info = &op_table[op];
	int made[PLAN_MAX_OPERANDS] = {0};
	for (int out = 0; out < info->n_operands; out++) {
		int in[PLAN_MAX_OPERANDS], n = 0;
		if (!operand_is_written(info->operands[out].role) || (info->operands[out].role == OPERAND_INOUT_OPT && !v[out]))
			continue;
		for (int i = 0; i < info->n_operands; i++)
			if (info->operands[i].role != OPERAND_OUT && matters(op, out, info->operands[i].name))
				in[n++] = v[i];
		made[out] = value_of(m, (int)op, out, n, in);
	}
	for (int i = 0; i < info->n_operands; i++)
		v[i] = operand_is_written(info->operands[i].role) ? made[i] : v[i];
}
/* The same of operands by name: APPLY(m, OP_swiglu, {gate, up}); v holds the results. */
#define APPLY(m, op, ...) int op##_v[PLAN_MAX_OPERANDS] = __VA_ARGS__; apply(m, op, op##_v)

/* The one result of an op that writes nothing else; operands in the order of its row. */
#define RESULT(m, op, ...) result(m, op, (int[PLAN_MAX_OPERANDS]){__VA_ARGS__})
static int result(Meaning *m, OpKind op, int v[PLAN_MAX_OPERANDS])
{
	apply(m, op, v);
	return v[op_table[op].n_operands - 1];
}

/* Does a graph op of that kind, whose result follows its n operands, take these values? */
static bool is_of_graph(Meaning *m, OpKind op, int n, int x, int w)
{
	const Node node = {.kind = (int)op, .out = n, .n = n, .layer = NO_LAYER, .operands = {x, w}};
	return make_room(m) && *place_of(m, &node) != 0;
}

/* Operands of a launch ------------------------------------------------------------------------------------ */

static int odd(Meaning *m, const char *what)
{
	m->odd = m->odd ? m->odd : what;
	return 0;
}

static const Arg *find_arg(const Meaning *m, const char *name)
{
	const int operand = op_operand(m->l->op, name);
	for (int i = 0; i < m->l->n_args; i++)
		if (m->l->args[i].operand == operand && m->l->args[i].buf >= 0)
			return &m->l->args[i];
	return NULL;
}

/* The weights of a buffer, a piece for each tensor that the graph has there. */
static Value weights_of(Meaning *m, const Buf *b)
{
	const Graph *g = m->g;
	Value v = {0};
	int low = 0, high = g->n_weights;
	while (low < high) {
		const int mid = (low + high) / 2;
		if (g->weights[m->by_offset[mid]].offset < b->offset)
			low = mid + 1;
		else
			high = mid;
	}
	int64_t at = b->offset;
	while (at < b->offset + b->bytes) {
		const int first = low < g->n_weights ? m->by_offset[low] : -1;
		const int n = first < 0 || g->weights[first].offset != at ? 0 : m->most[first];
		if (n == 0 || v.n == MAX_PIECES) {
			odd(m, "a weight is not where tensors begin and end");
			return (Value){0};
		}
		v.piece[v.n++] = VALUE(m, OF_WEIGHTS, first + 1, n);
		for (int i = 0; i < n; i++, low++)
			at += g->weights[first + i].bytes;
	}
	if (at != b->offset + b->bytes)
		odd(m, "a weight is not where tensors begin and end");
	return v;
}

/* What an operand holds; nothing where it is absent. */
static Value all(Meaning *m, const char *name)
{
	const Arg *a = find_arg(m, name);
	if (!a)
		return (Value){0};
	const Buf *b = &m->p->bufs[a->buf];
	if (b->arena == ARENA_WEIGHTS)
		return weights_of(m, b);
	if (m->writer[a->buf] < 0 && b->tensor >= 0)
		return (Value){1, {VALUE(m, OF_TENSOR, b->tensor + 1)}};
	return m->of_buf[a->buf];
}

static int whole(Meaning *m, Value v) { return v.n <= 1 ? v.piece[0] : value_of(m, OF_PIECES, 0, v.n, v.piece); }

static int in(Meaning *m, const char *name) { return whole(m, all(m, name)); }

/* Piece i of an operand of several pieces. */
static int piece(Meaning *m, const char *name, int i, int least)
{
	const Value v = all(m, name);
	return v.n >= least ? v.piece[i] : odd(m, "columns that it reads apart come from one product");
}

/* The layer of a value; of what only launches know, that of what it is made of. */
static int layer_of(const Meaning *m, int v)
{
	const Node *n = &m->nodes[v];
	return !v ? NO_LAYER : n->layer != NO_LAYER || n->kind <= OF_WEIGHTS ? n->layer : layer_of(m, n->operands[0]);
}

static void set_all(Meaning *m, const char *name, Value v)
{
	const Arg *a = find_arg(m, name);
	if (!a)
		return;
	const int layer = layer_of(m, v.piece[0]);
	m->is_in_layer |= layer == m->l->layer || layer == SOME_LAYERS;
	m->is_elsewhere |= layer != NO_LAYER;
	m->of_buf[a->buf] = v;
	m->writer[a->buf] = (int)(m->l - m->p->launches);
}

static void set(Meaning *m, const char *name, int v) { set_all(m, name, (Value){1, {v}}); }

/* What a value of that kind was made of. */
static int made_of(Meaning *m, int v, int kind, const char *otherwise)
{
	return v && m->nodes[v].kind == kind ? m->nodes[v].operands[0] : odd(m, otherwise);
}

/* The launches ---------------------------------------------------------------------------------------------- */

static int normed(Meaning *m, int x, const char *weight) { return RESULT(m, OP_rmsnorm, x, in(m, weight)); }

/* The product by each weight of the operand `w`, with its scales and its bias. */
static Value products(Meaning *m, int x, const char *w, const char *bias_name)
{
	char scale_name[32], row_scale_name[32];
	snprintf(scale_name, sizeof scale_name, "%s_scale", w);
	snprintf(row_scale_name, sizeof row_scale_name, "%s_row_scale", w);
	const Value weight = all(m, w), scale = all(m, scale_name), row_scale = all(m, row_scale_name);
	const Value bias = bias_name ? all(m, bias_name) : (Value){0};
	Value y = {.n = weight.n};
	if ((scale.n && scale.n != y.n) || (row_scale.n && row_scale.n != y.n) || (bias.n && bias.n != y.n))
		odd(m, "weights, scales and biases belong to different products");
	for (int i = 0; i < y.n; i++)
		y.piece[i] = RESULT(m, OP_linear, x, weight.piece[i], scale.piece[i], row_scale.piece[i], bias.piece[i]);
	return y;
}

static int product(Meaning *m, int x, const char *w, const char *bias) { return whole(m, products(m, x, w, bias)); }

/* Rows x, of which codes come with scales. */
static int rows(Meaning *m)
{
	static const char other[] = "codes and scales of its rows belong to different rows";
	const int x = in(m, "x"), scale = in(m, "x_scale"), block = in(m, "x_block"), row_scale = in(m, "x_row_scale");
	if (!scale && !block)
		return x;
	const int of = made_of(m, x, OF_CODES, other);
	if ((scale && made_of(m, scale, OF_SCALES, other) != of) || (block && (made_of(m, block, OF_BLOCKS, other) != of ||
		made_of(m, row_scale, OF_SCALES, other) != of)))
		odd(m, other);
	return of;
}

static void set_rows(Meaning *m, int y)
{
	const bool is_coded = find_arg(m, "y_scale") || find_arg(m, "y_block");
	set(m, "y", is_coded ? VALUE(m, OF_CODES, y) : y);
	set(m, "y_scale", VALUE(m, OF_SCALES, y));
	set(m, "y_row_scale", VALUE(m, OF_SCALES, y));
	set(m, "y_block", VALUE(m, OF_BLOCKS, y));
}

static void norm_linear(Meaning *m) { set_all(m, "y", products(m, normed(m, in(m, "x"), "norm"), "w", "bias")); }
static void norm_linear_narrow(Meaning *m)
{
	const int n = normed(m, in(m, "x"), "norm");
	set_all(m, "y", products(m, n, "w", "bias"));
	set_all(m, "y_narrow", products(m, n, "w_narrow", NULL));
}

static void norm_rows(Meaning *m) { set_rows(m, normed(m, in(m, "x"), "norm")); }
static void norm_residual(Meaning *m)
{
	const int z = RESULT(m, OP_add, in(m, "residual"), normed(m, in(m, "x"), "norm")), factor = in(m, "factor");
	set(m, "z", factor ? RESULT(m, OP_scale_by, z, factor) : z);
}

static void quant_rows(Meaning *m) { set_rows(m, in(m, "x")); }
static void linear_rows(Meaning *m) { set_all(m, "y", products(m, rows(m), "w", "bias")); }

static void linear_residual(Meaning *m)
{
	set(m, "z", RESULT(m, OP_add, in(m, "residual"), product(m, rows(m), "w", "bias")));
}

static void sum_peers(Meaning *m)
{
	const int sum = RESULT(m, OP_sum_ranks, in(m, "part"), in(m, "bias")), residual = in(m, "residual");
	set(m, "sum", VALUE(m, OF_PARTS, sum));
	set(m, "z", residual ? RESULT(m, OP_add, residual, sum) : sum);
}

static void gather_peers(Meaning *m)
{
	const int z = RESULT(m, OP_gather_ranks, in(m, "part"));
	set(m, "all", VALUE(m, OF_PARTS, z));
	set(m, "z", z);
}

static void gated(Meaning *m, OpKind act, int x)
{
	const int gate = product(m, x, "gate", "gate_bias"), up = product(m, x, "up", "up_bias");
	set_rows(m, RESULT(m, act, gate, up));
}

static void norm_swiglu(Meaning *m) { gated(m, OP_swiglu, normed(m, in(m, "x"), "norm")); }
static void norm_geglu(Meaning *m) { gated(m, OP_geglu, normed(m, in(m, "x"), "norm")); }
static void linear_swiglu(Meaning *m) { gated(m, OP_swiglu, rows(m)); }

static void embed(Meaning *m, int row_token) { set(m, "x", RESULT(m, OP_embed, row_token, in(m, "table"))); }

static void embed_next(Meaning *m)
{
	APPLY(m, OP_slot_rows, {in(m, "row_slot"), in(m, "slot_token"), in(m, "slot_len")});
	set(m, "row_token", OP_slot_rows_v[3]);
	set(m, "row_pos", OP_slot_rows_v[4]);
	embed(m, OP_slot_rows_v[3]);
}

static void embed_prompt(Meaning *m)
{
	const int row_token = in(m, "row_token");
	APPLY(m, OP_note_prompt, {in(m, "step"), row_token, in(m, "row_slot"), in(m, "counts")});
	set(m, "counts", OP_note_prompt_v[3]);
	embed(m, row_token);
}

static void embed_verify(Meaning *m)
{
	APPLY(m, OP_verify_rows, {in(m, "row_slot"), in(m, "slot_token"), in(m, "slot_len"), in(m, "slot_draft")});
	set(m, "row_token", OP_verify_rows_v[4]);
	set(m, "row_pos", OP_verify_rows_v[5]);
	embed(m, OP_verify_rows_v[4]);
}

/* q or k, normed where the launch has weights for it: head by head, or all heads as one row where the graph does. */
static int normed_heads(Meaning *m, int x, const char *name)
{
	const int w = in(m, name), is_row = w && is_of_graph(m, OP_rmsnorm, 2, x, w);
	return !w ? x : is_row ? RESULT(m, OP_rmsnorm, x, w) : RESULT(m, OP_head_norm, x, w);
}

static void write_keys(Meaning *m, int k, int v, int row_pos)
{
	const int v_norm = in(m, "v_norm");
	v = v_norm ? RESULT(m, OP_head_norm, v, v_norm) : v;
	k = RESULT(m, OP_rope, normed_heads(m, k, "k_norm"), in(m, "inv_freq"), row_pos);
	APPLY(m, OP_kv_write, {in(m, "step"), k, v, in(m, "row_slot"), row_pos, in(m, "page_table"), in(m, "kv"),
		in(m, "kv_scale"), in(m, "kv_block")});
	set(m, "kv", OP_kv_write_v[6]);
	set(m, "kv_block", OP_kv_write_v[8]);
}

/* q as attention reads it; keys and values are written. */
static int turn_and_write(Meaning *m, int row_pos)
{
	const int v_at = all(m, "qkv").n == 2 ? 1 : 2; /* of two pieces the second is v too */
	write_keys(m, piece(m, "qkv", 1, 2), piece(m, "qkv", v_at, v_at + 1), row_pos);
	return RESULT(m, OP_rope, normed_heads(m, piece(m, "qkv", 0, 2), "q_norm"), in(m, "inv_freq"), row_pos);
}

static void rope_write(Meaning *m) { set(m, "q", turn_and_write(m, in(m, "row_pos"))); }
static void keys_write(Meaning *m) { write_keys(m, piece(m, "keys", 0, 2), piece(m, "keys", 1, 2), in(m, "row_pos")); }

static void attend(Meaning *m, int row_pos)
{
	const bool is_gated = all(m, "qkv").n > 3;
	const int q = turn_and_write(m, row_pos);
	const int o = RESULT(m, OP_attention, in(m, "step"), q, in(m, "kv"), in(m, "kv_scale"), in(m, "kv_block"),
		in(m, "row_slot"), row_pos, 0, in(m, "page_table"), in(m, "sinks"));
	set(m, "o", is_gated ? RESULT(m, OP_sigmoid_gate, o, piece(m, "qkv", 3, 4)) : o);
}

static void attention_rows(Meaning *m)
{
	set(m, "o", RESULT(m, OP_attention, in(m, "step"), in(m, "q"), in(m, "kv"), in(m, "kv_scale"), in(m, "kv_block"),
		in(m, "row_slot"), in(m, "row_pos"), 0, in(m, "page_table"), in(m, "sinks")));
}

/* In a draft step slots are at positions of their own. */
static void attention_step(Meaning *m)
{
	APPLY(m, OP_slot_rows, {in(m, "row_slot"), in(m, "slot_token"), in(m, "slot_len")});
	APPLY(m, OP_verify_rows, {in(m, "row_slot"), in(m, "slot_token"), in(m, "slot_len")});
	if (m->p->kind == VERIFY) /* of a row a slot */
		attend(m, m->p->each == 1 ? OP_verify_rows_v[5] : odd(m, "slots of this phase have several rows"));
	else
		attend(m, m->p->kind != DRAFT ? OP_slot_rows_v[4] : made_of(m, in(m, "slot_len"), OF_LENGTHS,
			"its slots are not at the positions of their drafts"));
}

static void attention_verify(Meaning *m)
{
	APPLY(m, OP_verify_rows, {in(m, "row_slot"), in(m, "slot_token"), in(m, "slot_len")});
	attend(m, OP_verify_rows_v[5]);
}

static void gate_rows(Meaning *m)
{
	const Value gates = all(m, "gates");
	set(m, "y", RESULT(m, OP_sigmoid_gate, in(m, "x"), gates.piece[gates.n ? gates.n - 1 : 0]));
}

static void conv_rows(Meaning *m)
{
	APPLY(m, OP_causal_conv, {in(m, "step"), piece(m, "x", 0, 1), in(m, "conv_w"), in(m, "row_slot"), in(m, "conv")});
	set(m, "conv", OP_causal_conv_v[4]);
	set(m, "y", OP_causal_conv_v[5]);
}

/* What follows the convolution; b and a are a tensor of their own or columns after z. */
static void delta_and_norm(Meaning *m, int qkv)
{
	const char *of = find_arg(m, "ba") ? "ba" : "x";
	const int at = find_arg(m, "ba") ? 0 : 2;
	const int b = piece(m, of, at, at + 2), a = piece(m, of, at + 1, at + 2), a_log = in(m, "a_log");
	const int dt_bias = in(m, "dt_bias"), row_slot = in(m, "row_slot"), delta = in(m, "delta");
	int o;
	if (m->p->kind == VERIFY) {
		APPLY(m, OP_delta_verify, {0, qkv, a, b, a_log, dt_bias, row_slot, in(m, "slot_version"), delta,
			in(m, "delta_later")});
		set(m, "delta", OP_delta_verify_v[8]);
		set(m, "delta_later", OP_delta_verify_v[9]);
		o = OP_delta_verify_v[10];
	} else {
		APPLY(m, OP_delta_rule, {0, qkv, a, b, a_log, dt_bias, row_slot, delta});
		set(m, "delta", OP_delta_rule_v[7]);
		o = OP_delta_rule_v[8];
	}
	set(m, "y", RESULT(m, OP_gated_norm, o, piece(m, "x", 1, 2), in(m, "norm")));
}

static void delta_rows(Meaning *m) { delta_and_norm(m, in(m, "qkv")); }

/* What needs no state: rows of q and k, b, a, and weights of the heads; each result is of all of these. */
static void delta_solve(Meaning *m)
{
	static const char *const results[] = {"solved", "scores", "factors"};
	const char *of = find_arg(m, "ba") ? "ba" : "x";
	const int at = find_arg(m, "ba") ? 0 : 2;
	const int v[] = {in(m, "qkv"), piece(m, of, at + 1, at + 2), piece(m, of, at, at + 2), in(m, "a_log"),
		in(m, "dt_bias")};
	for (int i = 0; i < 3; i++)
		set(m, results[i], value_of(m, OF_SOLVED, i, 5, v));
}

static void delta_walk(Meaning *m)
{
	static const char other[] = "what was solved is not of its rows";
	static const char *const results[] = {"solved", "scores", "factors"};
	const int qkv = in(m, "qkv");
	Node of = {0};
	for (int i = 0; i < 3; i++) {
		const int v = in(m, results[i]);
		if (made_of(m, v, OF_SOLVED, other) != qkv || m->nodes[v].out != i ||
			(i && memcmp(of.operands, m->nodes[v].operands, sizeof of.operands) != 0)) {
			odd(m, other);
			return;
		}
		of = m->nodes[v];
	}
	const int *v = of.operands;
	APPLY(m, OP_delta_rule, {0, qkv, v[1], v[2], v[3], v[4], in(m, "row_slot"), in(m, "delta")});
	set(m, "delta", OP_delta_rule_v[7]);
	set(m, "y", RESULT(m, OP_gated_norm, OP_delta_rule_v[8], piece(m, "x", 1, 2), in(m, "norm")));
}

static void delta_step(Meaning *m)
{
	APPLY(m, OP_causal_conv, {0, piece(m, "x", 0, 2), in(m, "conv_w"), in(m, "row_slot"), in(m, "conv")});
	set(m, "conv", OP_causal_conv_v[4]);
	delta_and_norm(m, OP_causal_conv_v[5]);
}

static void delta_verify_step(Meaning *m)
{
	APPLY(m, OP_conv_verify, {0, piece(m, "x", 0, 2), in(m, "conv_w"), in(m, "row_slot"), in(m, "slot_version"),
		in(m, "conv"), in(m, "conv_later")});
	set(m, "conv", OP_conv_verify_v[5]);
	set(m, "conv_later", OP_conv_verify_v[6]);
	delta_and_norm(m, OP_conv_verify_v[7]);
}

/* Experts. The share of the one that all rows go to is a piece of its own. */
static void set_routed(Meaning *m, int n, int logits, int expert, Value share)
{
	set(m, "n", n);
	set(m, "logits", logits);
	set(m, "expert", expert);
	set_all(m, "share", share);
}

static void norm_route(Meaning *m)
{
	const int n = normed(m, in(m, "x"), "norm"), logits = product(m, n, "router", "router_bias");
	const int gate = in(m, "shared_gate");
	APPLY(m, OP_route, {logits});
	Value share = {1, {OP_route_v[2]}};
	if (gate)
		share.piece[share.n++] = RESULT(m, OP_linear, n, gate);
	set_routed(m, n, logits, OP_route_v[1], share);
}

static int64_t columns_of(const Meaning *m, const char *name)
{
	const Arg *a = find_arg(m, name);
	return a ? m->p->bufs[a->buf].shape[1] : 0;
}

static void norm_route_sigmoid(Meaning *m)
{
	const int n = normed(m, in(m, "x"), "norm"), logits = product(m, n, "router", NULL);
	APPLY(m, OP_route_sigmoid, {logits, in(m, "bias")});
	Value share = {1, {OP_route_sigmoid_v[3]}};
	if (columns_of(m, "share") > columns_of(m, "expert"))
		share.piece[share.n++] = VALUE(m, OF_ONE, n);
	set_routed(m, n, logits, OP_route_sigmoid_v[2], share);
}

static void norm_route_scaled(Meaning *m)
{
	const int logits = RESULT(m, OP_scale, product(m, normed(m, in(m, "x"), "norm"), "router", NULL));
	APPLY(m, OP_route, {logits});
	set(m, "logits", logits);
	set(m, "expert", OP_route_v[1]);
	set(m, "share", RESULT(m, OP_scale_shares, OP_route_v[2], OP_route_v[1], in(m, "by")));
}

static void group_rows(Meaning *m)
{
	const int expert = in(m, "expert");
	if ((expert && m->nodes[expert].kind == OP_own_experts) != (m->l->op == OP_group_own))
		odd(m, "experts of other ranks are left out just where there are some");
	set(m, "pair", VALUE(m, OF_PAIRS, expert));
	set(m, "first", VALUE(m, OF_FIRSTS, expert));
}

/* Which experts its rows have chosen. */
static int chosen(Meaning *m)
{
	static const char other[] = "rows in order are not those of its experts";
	if (!find_arg(m, "pair"))
		return in(m, "expert");
	const int expert = made_of(m, in(m, "pair"), OF_PAIRS, other);
	return made_of(m, in(m, "first"), OF_FIRSTS, other) == expert ? expert : odd(m, other);
}

/* The rows of a graph op, each for the experts that it has chosen. */
static void gather_codes(Meaning *m)
{
	static const char other[] = "rows are gathered by the order of no experts";
	const int expert = made_of(m, in(m, "pair"), OF_PAIRS, other), v[] = {in(m, "x"), expert};
	set(m, "y", value_of(m, OF_GATHERED, 0, 2, v));
	set(m, "y_scale", value_of(m, OF_GATHERED, 1, 2, v));
}

/* What the rows are of that the launch reads as `name`, codes with scales or as they are. */
static int rows_of_experts(Meaning *m)
{
	static const char other[] = "rows and scales are not those of its experts";
	if (!find_arg(m, "x"))
		return in(m, "n");
	const int x = in(m, "x"), scale = in(m, "x_scale");
	if (!made_of(m, x, OF_GATHERED, other) || !made_of(m, scale, OF_GATHERED, other))
		return 0;
	const Node *codes = &m->nodes[x], *scales = &m->nodes[scale];
	if (codes->out != 0 || scales->out != 1 || codes->operands[0] != scales->operands[0] ||
		codes->operands[1] != scales->operands[1] || codes->operands[1] != chosen(m))
		return odd(m, other);
	return codes->operands[0];
}

enum Up { UP_OP, UP_N, UP_EXPERT, UP_SHARE, UP_SHARED_SHARE, UP_WEIGHT, UP_SCALE, UP_ROW_SCALE, UP_SHARED,
	UP_OPERANDS };

/* Of OP_experts, or of the graph op that is given. */
static void up_of(Meaning *m, OpKind op)
{
	const int n = rows_of_experts(m);
	const Value share = all(m, "share"), shared = op == OP_experts ? products(m, n, "shared", NULL) : (Value){.n = 0};
	if (share.n != (shared.n ? 2 : 1) || (shared.n && shared.n != 2))
		odd(m, "a shared expert has a share, gate and up");
	int v[UP_OPERANDS] = {(int)op, n, chosen(m), share.piece[0], share.piece[1], in(m, "gate_up"),
		in(m, "gate_up_scale"), in(m, "gate_up_row_scale"),
		shared.n ? RESULT(m, OP_swiglu, shared.piece[0], shared.piece[1]) : 0};
	set(m, "h", value_of(m, OF_UP, 0, UP_OPERANDS, v));
	if (find_arg(m, "h_scale"))
		set(m, "h_scale", value_of(m, OF_UP, 1, UP_OPERANDS, v));
}

static void experts_up(Meaning *m) { up_of(m, OP_experts); }
static void experts_up_limited(Meaning *m) { up_of(m, OP_experts_limited); }
static void experts_up_gelu(Meaning *m) { up_of(m, OP_experts_gelu); }

/* What all of a row's experts make. */
static int sum_of_experts(Meaning *m)
{
	const int h = in(m, "h");
	int v[UP_OPERANDS];
	if (!made_of(m, h, OF_UP, "h is not what experts leave on the way up"))
		return 0;
	if (m->nodes[h].out != 0)
		return odd(m, "h are scales");
	memcpy(v, m->nodes[h].operands, sizeof v);
	if (find_arg(m, "h_scale") && in(m, "h_scale") != value_of(m, OF_UP, 1, UP_OPERANDS, v))
		return odd(m, "the scales of h are those of other rows");
	if (chosen(m) != v[UP_EXPERT])
		return odd(m, "it goes down by other experts than up");
	int y = RESULT(m, (OpKind)v[UP_OP], v[UP_N], v[UP_EXPERT], v[UP_SHARE], v[UP_WEIGHT], v[UP_SCALE], v[UP_ROW_SCALE],
		in(m, "down"), in(m, "down_scale"), in(m, "down_row_scale"));
	if (!v[UP_SHARED] && !find_arg(m, "shared_down"))
		return y;
	int shared = product(m, v[UP_SHARED], "shared_down", NULL);
	if (m->nodes[v[UP_SHARED_SHARE]].kind != OF_ONE)
		shared = RESULT(m, OP_sigmoid_gate, shared, v[UP_SHARED_SHARE]);
	return RESULT(m, OP_add, y, shared);
}

/* The same of clamped ones. */
static int sum_of_clamped(Meaning *m)
{
	const int h = in(m, "h");
	if (!made_of(m, h, OF_CLAMPED, "h is not what experts leave on the way up"))
		return 0;
	int v[6];
	memcpy(v, m->nodes[h].operands, sizeof v);
	if (chosen(m) != v[1] || in(m, "share") != v[2])
		odd(m, "it goes down by other experts than up, or with other shares");
	return RESULT(m, OP_experts_clamped, v[0], v[1], v[2], v[3], v[4], v[5], in(m, "down"), in(m, "down_scale"),
		in(m, "down_bias"));
}

static void experts_down(Meaning *m)
{
	const int sum = find_arg(m, "down_bias") ? sum_of_clamped(m) : sum_of_experts(m), residual = in(m, "residual");
	set(m, "z", residual ? RESULT(m, OP_add, residual, sum) : sum);
}

static void experts_down_biased(Meaning *m) { set(m, "y", VALUE(m, OF_TERMS, sum_of_clamped(m))); }
static void experts_down_rows(Meaning *m) { set(m, "y", VALUE(m, OF_TERMS, sum_of_experts(m))); }

static void experts_up_clamped(Meaning *m)
{
	const int v[] = {in(m, "n"), chosen(m), in(m, "share"), in(m, "gate_up"), in(m, "gate_up_scale"),
		in(m, "gate_up_bias")};
	set(m, "h", value_of(m, OF_CLAMPED, 0, 6, v));
}

static int sum_of_terms(Meaning *m) { return made_of(m, in(m, "y"), OF_TERMS, "y is not the terms of a sum"); }
static void sum_terms(Meaning *m) { set(m, "z", sum_of_terms(m)); }
static void sum_own(Meaning *m)
{
	const int y = sum_of_terms(m), expert = y ? m->nodes[y].operands[op_operand(OP_experts, "expert")] : 0;
	set(m, "z", expert == in(m, "expert") ? y : odd(m, "the terms are not those of its experts"));
}
static void sum_experts(Meaning *m) { set(m, "z", RESULT(m, OP_add, in(m, "residual"), sum_of_terms(m))); }

/* The rows of which there are logits: in steps that speculate all, and none are gathered. */
static int normed_outs(Meaning *m)
{
	const int x = in(m, "x"), is_all = m->p->kind == DRAFT || m->p->kind == VERIFY;
	return normed(m, is_all ? x : RESULT(m, OP_gather, x, in(m, "out_row")), "norm");
}

/* Logits as the head's product makes them. Where the graph caps these, the kernel does: contract_check.c compares. */
static void score(Meaning *m, int rows)
{
	const int made = product(m, rows, "w", NULL);
	const int logits = is_of_graph(m, OP_soft_cap, 1, made, 0) ? RESULT(m, OP_soft_cap, made) : made;
	set(m, "logits", logits);
	set(m, "best", VALUE(m, OF_BEST, logits));
	set(m, "best_id", VALUE(m, OF_BEST_IDS, logits));
}

static void norm_logits(Meaning *m) { score(m, normed_outs(m)); }
static void norm_outs(Meaning *m) { set(m, "y", normed_outs(m)); }
static void linear_logits(Meaning *m) { score(m, in(m, "x")); }

/* The logits, of which the best are known. */
static int known_logits(Meaning *m)
{
	static const char other[] = "best belongs to other logits";
	const int logits = in(m, "logits");
	if (made_of(m, in(m, "best"), OF_BEST, other) != logits ||
		made_of(m, in(m, "best_id"), OF_BEST_IDS, other) != logits)
		odd(m, other);
	return logits;
}

static void sample_best(Meaning *m)
{
	static const char *const names[] = {"step", "logits", "out_row", "row_slot", "row_pos", "sampling", "limits",
		"rules", "masks", "stop_tokens", "counts", "slot_token", "slot_len", "ring"};
	int v[PLAN_MAX_OPERANDS] = {0};
	known_logits(m);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		v[i] = in(m, names[i]);
	apply(m, OP_sample, v);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (operand_is_written(op_table[OP_sample].operands[i].role))
			set(m, names[i], v[i]);
}

/* What is drawn, of the logits: values of OP_draw. */
static void draw(Meaning *m, int row_pos, int v[PLAN_MAX_OPERANDS])
{
	const int of[PLAN_MAX_OPERANDS] = {0, known_logits(m), in(m, "ids"), in(m, "row_slot"), row_pos, in(m, "sampling"),
		in(m, "limits"), in(m, "rules"), in(m, "masks"), in(m, "masks_later"), in(m, "counts"), in(m, "slot_token"),
		in(m, "slot_len"), in(m, "slot_draft")};
	memcpy(v, of, sizeof of);
	apply(m, OP_draw, v);
	set(m, "logits", v[1]);
}

static void draw_best(Meaning *m)
{
	int v[PLAN_MAX_OPERANDS];
	draw(m, in(m, "row_pos"), v);
	set(m, "drawn", v[op_operand(OP_draw, "drawn")]);
	set(m, "drawn_logprob", v[op_operand(OP_draw, "drawn_logprob")]);
}

static void draw_draft(Meaning *m)
{
	static const char other[] = "slots are not at the positions of their drafts";
	const int row_pos = in(m, "row_pos");
	int v[PLAN_MAX_OPERANDS];
	if (made_of(m, in(m, "draft_len"), OF_LENGTHS, other) != row_pos)
		odd(m, other);
	draw(m, row_pos, v);
	APPLY(m, OP_keep_draft, {v[op_operand(OP_draw, "drawn")], in(m, "row_slot"), in(m, "slot_len"),
		in(m, "slot_draft"), in(m, "row_token"), row_pos});
	set(m, "slot_draft", OP_keep_draft_v[3]);
	set(m, "row_token", OP_keep_draft_v[4]);
	set(m, "row_pos", OP_keep_draft_v[5]);
	set(m, "draft_len", VALUE(m, OF_LENGTHS, OP_keep_draft_v[5]));
}

/* What the head reads, of embedded tokens and rows. */
static void join_normed(Meaning *m, int embedded, int x)
{
	set(m, "z", RESULT(m, OP_join, normed(m, embedded, "embedding_norm"), normed(m, x, "hidden_norm")));
}

static void draft_first(Meaning *m)
{
	APPLY(m, OP_draft_rows, {in(m, "row_slot"), in(m, "slot_token"), in(m, "slot_len")});
	set(m, "row_token", OP_draft_rows_v[3]);
	set(m, "row_pos", OP_draft_rows_v[4]);
	set(m, "draft_len", VALUE(m, OF_LENGTHS, OP_draft_rows_v[4]));
	join_normed(m, RESULT(m, OP_embed, OP_draft_rows_v[3], in(m, "table")),
		RESULT(m, OP_recall, in(m, "row_slot"), in(m, "held")));
}

static void draft_next(Meaning *m)
{
	join_normed(m, RESULT(m, OP_embed, in(m, "row_token"), in(m, "table")), normed(m, in(m, "x"), "norm"));
}

static void follow_rows(Meaning *m)
{
	const int n = normed(m, in(m, "x"), "norm");
	APPLY(m, OP_hold, {0, n, in(m, "row_slot"), in(m, "row_pos"), in(m, "slot_len"), in(m, "held")});
	set(m, "held", OP_hold_v[5]);
	join_normed(m, RESULT(m, OP_embed_next_token, in(m, "row_next"), in(m, "table")), n);
}

static void (*const meanings[OP_COUNT])(Meaning *) = {
	[OP_embed_next] = embed_next, [OP_embed_prompt] = embed_prompt, [OP_embed_verify] = embed_verify,
	[OP_norm_linear] = norm_linear, [OP_norm_linear_narrow] = norm_linear_narrow, [OP_norm_rows] = norm_rows,
	[OP_norm_residual] = norm_residual, [OP_norm_geglu] = norm_geglu, [OP_norm_rows_fp8] = norm_rows,
	[OP_norm_rows_fp4] = norm_rows, [OP_quant_rows] = quant_rows, [OP_quant_rows_fp4] = quant_rows,
	[OP_linear_rows] = linear_rows, [OP_linear_residual] = linear_residual, [OP_norm_swiglu] = norm_swiglu,
	[OP_linear_swiglu] = linear_swiglu, [OP_linear_swiglu_fp8] = linear_swiglu, [OP_rope_write] = rope_write,
	[OP_keys_write] = keys_write, [OP_attention_step] = attention_step, [OP_attention_verify] = attention_verify,
	[OP_gate_rows] = gate_rows, [OP_conv_rows] = conv_rows, [OP_delta_rows] = delta_rows, [OP_delta_step] = delta_step,
	[OP_delta_solve] = delta_solve, [OP_delta_walk] = delta_walk, [OP_delta_verify_step] = delta_verify_step,
	[OP_norm_route] = norm_route, [OP_norm_route_sigmoid] = norm_route_sigmoid,
	[OP_norm_route_scaled] = norm_route_scaled, [OP_group_rows] = group_rows, [OP_group_own] = group_rows,
	[OP_experts_up] = experts_up, [OP_experts_up_limited] = experts_up_limited, [OP_experts_up_gelu] = experts_up_gelu,
	[OP_gather_codes] = gather_codes, [OP_experts_up_fp8] = experts_up, [OP_experts_down_fp8] = experts_down_rows,
	[OP_experts_up_clamped] = experts_up_clamped, [OP_experts_down_biased] = experts_down_biased,
	[OP_experts_down] = experts_down, [OP_experts_down_rows] = experts_down_rows, [OP_sum_experts] = sum_experts,
	[OP_sum_terms] = sum_terms, [OP_sum_own] = sum_own, [OP_attention_rows] = attention_rows,
	[OP_sum_peers] = sum_peers, [OP_sum_nccl] = sum_peers, [OP_gather_peers] = gather_peers,
	[OP_gather_nccl] = gather_peers, [OP_norm_logits] = norm_logits, [OP_norm_outs] = norm_outs,
	[OP_linear_logits] = linear_logits, [OP_sample_best] = sample_best, [OP_draw_best] = draw_best,
	[OP_draw_draft] = draw_draft, [OP_draft_first] = draft_first, [OP_draft_next] = draft_next,
	[OP_follow_rows] = follow_rows,
};

bool op_has_meaning(OpKind op) { return op_table[op].traits & OP_GRAPH || meanings[op]; }

/* A launch that is a graph op. */
static void same_op(Meaning *m)
{
	const OpInfo *info = &op_table[m->l->op];
	int v[PLAN_MAX_OPERANDS] = {0};
	for (int i = 0; i < info->n_operands; i++)
		v[i] = info->operands[i].role == OPERAND_OUT ? 0 : in(m, info->operands[i].name);
	apply(m, m->l->op, v);
	for (int i = 0; i < info->n_operands; i++)
		if (operand_is_written(info->operands[i].role))
			set(m, info->operands[i].name, v[i]);
}

/* A phase ---------------------------------------------------------------------------------------------------- */

static void run_graph(Meaning *m)
{
	const Graph *g = m->g;
	for (int i = 0; i < g->n_tensors; i++) {
		const Tensor *t = &g->tensors[i];
		m->of_tensor[i] = t->role == ROLE_WEIGHT ? VALUE(m, OF_WEIGHTS, t->weight + 1, t->n_weights)
			: VALUE(m, OF_TENSOR, i + 1);
	}
	const int end = phase_ops(g, m->p->kind, m->p->each);
	for (int i = 0; i < end; i++) {
		const GraphOp *op = &g->ops[i];
		const OpInfo *info = &op_table[op->kind];
		int v[PLAN_MAX_OPERANDS] = {0};
		if (!(op->phases & phase_bit(m->p->kind)))
			continue;
		for (int k = 0; k < info->n_operands; k++)
			v[k] = op->operands[k] < 0 ? 0 : m->of_tensor[op->operands[k]];
		apply(m, op->kind, v);
		for (int k = 0; k < info->n_operands; k++)
			if (op->operands[k] >= 0 && operand_is_written(info->operands[k].role)) {
				int *layer = &m->nodes[v[k]].layer;
				*layer = *layer == NO_LAYER || *layer == op->layer ? op->layer : SOME_LAYERS;
				m->of_tensor[op->operands[k]] = v[k];
			}
	}
}

/* What a value is, in a few words. */
static void say(const Meaning *m, int v, char *text, size_t bytes)
{
	const Node *n = &m->nodes[v];
	if (v && n->kind == OF_TENSOR)
		snprintf(text, bytes, "%s", m->g->tensors[n->operands[0] - 1].name);
	else if (v && n->kind == OF_WEIGHTS)
		snprintf(text, bytes, "%s", m->g->weights[n->operands[0] - 1].name);
	else
		snprintf(text, bytes, "%s", !v ? "nothing" : n->kind < (int)OP_COUNT ? op_table[n->kind].name
			: "another result");
}

/* Where two different values begin to differ. */
static void find_difference(const Meaning *m, int *ours, int *graphs)
{
	for (;;) {
		const Node *a = &m->nodes[*ours], *b = &m->nodes[*graphs];
		int i = 0;
		while (i < a->n && a->operands[i] == b->operands[i])
			i++;
		if (!*ours || !*graphs || a->kind != b->kind || a->out != b->out || a->n != b->n || a->kind == OF_TENSOR ||
			a->kind == OF_WEIGHTS || i == a->n)
			return;
		*ours = a->operands[i];
		*graphs = b->operands[i];
	}
}

static bool compare(Meaning *m)
{
	Why *why = m->why;
	int first = -1;
	for (int i = 0; i < m->p->n_bufs; i++) { /* the first that is written is nearest to the cause */
		const Buf *b = &m->p->bufs[i];
		if (m->writer[i] >= 0 && b->tensor >= 0 && whole(m, m->of_buf[i]) != m->of_tensor[b->tensor] &&
			(first < 0 || m->writer[i] < m->writer[first]))
			first = i;
	}
	if (first < 0 || !m->has_memory)
		return true;
	const Buf *b = &m->p->bufs[first];
	int ours = whole(m, m->of_buf[first]), graphs = m->of_tensor[b->tensor];
	char seen[128], expected[128];
	find_difference(m, &ours, &graphs);
	say(m, ours, seen, sizeof seen);
	say(m, graphs, expected, sizeof expected);
	return REFUSE("%s launch %d (%s): %s is not what the graph computes: of %s, where the graph has %s",
		PHASE_LABEL(m->p), m->writer[first], op_table[m->p->launches[m->writer[first]].op].name, b->name, seen,
		expected);
}

static bool check_phase(Meaning *m)
{
	Why *why = m->why;
	m->n_nodes = 0;
	memset(m->table, 0, sizeof *m->table * (size_t)m->table_size);
	m->of_buf = calloc((size_t)m->p->n_bufs + 1, sizeof *m->of_buf);
	m->writer = malloc(((size_t)m->p->n_bufs + 1) * sizeof *m->writer);
	bool good = m->has_memory = m->of_buf && m->writer;
	for (int i = 0; good && i < m->p->n_bufs; i++)
		m->writer[i] = -1;
	if (good)
		run_graph(m);
	for (int i = 0; good && i < m->p->n_launches; i++) {
		m->l = &m->p->launches[i];
		m->odd = NULL;
		m->is_in_layer = m->is_elsewhere = false;
		if (!op_has_meaning(m->l->op))
			m->odd = "no step has such an op";
		else if (meanings[m->l->op])
			meanings[m->l->op](m);
		else
			same_op(m);
		if (m->is_elsewhere && !m->is_in_layer && m->has_memory)
			odd(m, "it computes what the graph has in another layer");
		if (m->odd)
			good = REFUSE("%s launch %d (%s): %s", PHASE_LABEL(m->p), i, op_table[m->l->op].name, m->odd);
	}
	good = good && compare(m);
	free(m->of_buf);
	free(m->writer);
	return m->has_memory ? good : why_not(why, READ_NO_MEMORY, "no memory to compare %d launches", m->p->n_launches);
}

static bool start(Meaning *m)
{
	const Graph *g = m->g;
	m->has_memory = true;
	m->of_tensor = malloc(((size_t)g->n_tensors + 1) * sizeof *m->of_tensor);
	m->by_offset = malloc(((size_t)g->n_weights + 1) * sizeof *m->by_offset);
	m->most = calloc((size_t)g->n_weights + 1, sizeof *m->most);
	if (!m->of_tensor || !m->by_offset || !m->most || !make_room(m))
		return false;
	weights_by_offset(g, m->by_offset);
	for (int i = 0; i < g->n_tensors; i++) {
		const Tensor *t = &g->tensors[i];
		if (t->role == ROLE_WEIGHT && t->n_weights > m->most[t->weight])
			m->most[t->weight] = t->n_weights;
	}
	return true;
}

bool check_meaning(const Artifact *a, const TargetPlan *t, Why *why)
{
	Meaning m = {.g = &a->graph, .why = why};
	bool good = start(&m) || why_not(why, READ_NO_MEMORY, "no memory to compare %d tensors", a->graph.n_tensors);
	for (int i = 0; i < t->n_phases && good; i++) {
		m.p = &t->phases[i];
		good = m.p->kind == PROBE || check_phase(&m);
	}
	free(m.nodes);
	free(m.table);
	free(m.of_tensor);
	free(m.by_offset);
	free(m.most);
	return good;
}
