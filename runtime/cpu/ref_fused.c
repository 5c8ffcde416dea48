/* ref_fused.c - the fused ops, spelled out as the graph ops they replace.
 *
 * A fused op has no meaning of its own: it is a sequence of graph ops with intermediates that
 * nothing else sees. Each function below lists that sequence; the intermediates lie in the call's
 * scratch. The same code measures the scratch: then nothing runs and only the places are counted.
 */
#include "runtime/cpu/ref_call.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct Sequence {
	const RefCall *fused;
	bool runs; /* else measure only */
	size_t used; /* bytes */
} Sequence;

static void *take(Sequence *s, size_t bytes)
{
	void *at = s->runs && bytes ? (char *)s->fused->scratch + s->used : NULL;
	s->used += (bytes + 15) / 16 * 16;
	return at;
}

static RefOperand temporary(Sequence *s, int64_t rows, int64_t cols)
{
	RefOperand r = {.dtype = DT_f32, .n_dims = 2, .shape = {rows, cols}};
	r.data = take(s, (size_t)(rows * cols) * sizeof(float));
	return r;
}

static RefOperand arg(const Sequence *s, const char *name) { return *ref_arg(s->fused, name); }

/* A graph op under the fused op's attributes, on operands in the order of its row. */
#define RUN(s, kind, ...)                                                                          \
	run(s, kind, (const RefOperand[]){__VA_ARGS__},                                                \
		sizeof (RefOperand[]){__VA_ARGS__} / sizeof(RefOperand))
static void run(Sequence *s, OpKind kind, const RefOperand *operands, size_t n)
{
	RefCall c = {.op = kind, .attrs = s->fused->attrs};
	memcpy(c.operand, operands, n * sizeof *operands);
	c.scratch = take(s, ref_scratch_bytes(&c));
	if (s->runs && s->fused->inner)
		s->fused->inner(s->fused->inner_ctx, &c);
	else if (s->runs)
		ref_op(&c);
}

static void embed_next(Sequence *s)
{
	RUN(s, OP_slot_rows, arg(s, "row_slot"), arg(s, "slot_token"), arg(s, "slot_len"),
		arg(s, "row_token"), arg(s, "row_pos"));
	RUN(s, OP_embed, arg(s, "row_token"), arg(s, "table"), arg(s, "x"));
}

static void embed_prompt(Sequence *s)
{
	RUN(s, OP_note_prompt, arg(s, "step"), arg(s, "row_token"), arg(s, "row_slot"),
		arg(s, "counts"));
	RUN(s, OP_embed, arg(s, "row_token"), arg(s, "table"), arg(s, "x"));
}

static RefOperand normed(Sequence *s, RefOperand x)
{
	RefOperand n = temporary(s, x.shape[0], x.shape[1]);
	RUN(s, OP_rmsnorm, x, arg(s, "norm"), n);
	return n;
}

/* The linear whose weight is the operand `w`, with its scales. */
static void linear(Sequence *s, RefOperand x, const char *w, RefOperand bias, RefOperand y)
{
	char scale[32], row_scale[32];
	snprintf(scale, sizeof scale, "%s_scale", w);
	snprintf(row_scale, sizeof row_scale, "%s_row_scale", w);
	RUN(s, OP_linear, x, arg(s, w), arg(s, scale), arg(s, row_scale), bias, y);
}

static void norm_linear(Sequence *s)
{
	RefOperand n = normed(s, arg(s, "x"));
	linear(s, n, "w", arg(s, "bias"), arg(s, "y"));
}

static void norm_rows_fp8(Sequence *s) { RUN(s, OP_quantise, normed(s, arg(s, "x")), arg(s, "y"), arg(s, "y_scale")); }
static void quant_rows(Sequence *s) { RUN(s, OP_quantise, arg(s, "x"), arg(s, "y"), arg(s, "y_scale")); }

static void norm_rows_fp4(Sequence *s)
{
	RUN(s, OP_quantise_fp4, normed(s, arg(s, "x")), arg(s, "y"), arg(s, "y_block"), arg(s, "y_row_scale"));
}

static void quant_rows_fp4(Sequence *s)
{
	RUN(s, OP_quantise_fp4, arg(s, "x"), arg(s, "y"), arg(s, "y_block"), arg(s, "y_row_scale"));
}

/* x, of which codes come with scales. */
static RefOperand rows(Sequence *s)
{
	RefOperand x = arg(s, "x"), y = x;
	bool is_fp8 = op_operand(s->fused->op, "x_scale") >= 0 && arg(s, "x_scale").data;
	bool is_fp4 = op_operand(s->fused->op, "x_block") >= 0 && arg(s, "x_block").data;
	if (is_fp8 || is_fp4)
		y = temporary(s, x.shape[0], x.shape[1]);
	if (is_fp8)
		RUN(s, OP_dequantise, x, arg(s, "x_scale"), y);
	if (is_fp4)
		RUN(s, OP_dequantise_fp4, x, arg(s, "x_block"), arg(s, "x_row_scale"), y);
	return y;
}

/* share has a column more than the route fills where there is an expert that all rows go to. */
static void norm_route(Sequence *s)
{
	RefOperand x = arg(s, "x"), n = arg(s, "n"), share = arg(s, "share"), absent = {0}, gate = arg(s, "shared_gate");
	RefOperand chosen = temporary(s, share.shape[0], s->fused->attrs.n_active), y = temporary(s, share.shape[0], 1);
	RUN(s, OP_rmsnorm, x, arg(s, "norm"), n);
	RUN(s, OP_linear, n, arg(s, "router"), absent, absent, absent, arg(s, "logits"));
	RUN(s, OP_route, arg(s, "logits"), arg(s, "expert"), chosen);
	if (gate.data)
		RUN(s, OP_linear, n, gate, absent, absent, absent, y);
	for (int64_t t = 0; s->runs && t < share.shape[0]; t++) {
		float *to = (float *)share.data + t * share.shape[1];
		memcpy(to, (float *)chosen.data + t * chosen.shape[1], (size_t)chosen.shape[1] * sizeof(float));
		if (gate.data)
			to[chosen.shape[1]] = (float)(1 / (1 + exp(-(double)((float *)y.data)[t])));
	}
}

static void norm_rows(Sequence *s) { RUN(s, OP_rmsnorm, arg(s, "x"), arg(s, "norm"), arg(s, "y")); }

static void linear_rows(Sequence *s)
{
	linear(s, rows(s), "w", arg(s, "bias"), arg(s, "y"));
}

static void linear_residual(Sequence *s)
{
	RefOperand z = arg(s, "z"), y = temporary(s, z.shape[0], z.shape[1]);
	linear(s, rows(s), "w", arg(s, "bias"), y);
	RUN(s, OP_add, arg(s, "residual"), y, z);
}

static void gated(Sequence *s, RefOperand x, RefOperand y)
{
	RefOperand gate = temporary(s, y.shape[0], y.shape[1]),
			   up = temporary(s, y.shape[0], y.shape[1]);
	linear(s, x, "gate", arg(s, "gate_bias"), gate);
	linear(s, x, "up", arg(s, "up_bias"), up);
	RUN(s, OP_swiglu, gate, up, y);
}

static void linear_swiglu(Sequence *s) { gated(s, rows(s), arg(s, "y")); }
static void norm_swiglu(Sequence *s) { gated(s, normed(s, arg(s, "x")), arg(s, "y")); }

static void linear_swiglu_fp8(Sequence *s)
{
	RefOperand codes = arg(s, "y"), y = temporary(s, codes.shape[0], codes.shape[1]);
	gated(s, rows(s), y);
	RUN(s, OP_quantise, y, codes, arg(s, "y_scale"));
}

/* Parts are of the shortest power of two of ids with which as many as `best` has cover the vocabulary. */
static void best_of_parts(const Sequence *s, const RefOperand *logits)
{
	RefOperand best = arg(s, "best"), best_id = arg(s, "best_id");
	int64_t outs = logits->shape[0], v = logits->shape[1], parts = best.shape[1], ids = 1;
	while ((v + ids - 1) / ids > parts)
		ids *= 2;
	for (int64_t o = 0; s->runs && o < outs; o++)
		for (int64_t p = 0; p < parts; p++) {
			const float *l = (const float *)logits->data + o * v;
			int64_t first = p * ids, end = first + ids, at = first;
			double sum = 0;
			if (end > s->fused->attrs.n_valid)
				end = s->fused->attrs.n_valid;
			for (int64_t i = first; i < end; i++)
				if (l[i] > l[at])
					at = i;
			for (int64_t i = first; i < end; i++)
				sum += l[at] > -INFINITY ? exp((double)l[i] - l[at]) : 0;
			((float *)best.data)[(o * parts + p) * 2] = first < end ? l[at] : -INFINITY;
			((float *)best.data)[(o * parts + p) * 2 + 1] = (float)sum;
			((int32_t *)best_id.data)[o * parts + p] = (int32_t)at;
		}
}

static void norm_logits(Sequence *s)
{
	RefOperand out_row = arg(s, "out_row"), x = arg(s, "x"), absent = {0};
	RefOperand rows = temporary(s, out_row.shape[0], x.shape[1]);
	RUN(s, OP_gather, x, out_row, rows);
	linear(s, normed(s, rows), "w", absent, arg(s, "logits"));
	RefOperand logits = arg(s, "logits");
	best_of_parts(s, &logits);
}

/* What the parts say is in the logits too. */
static void sample_best(Sequence *s)
{
	RUN(s, OP_sample, arg(s, "step"), arg(s, "logits"), arg(s, "out_row"), arg(s, "row_slot"), arg(s, "row_pos"),
		arg(s, "sampling"), arg(s, "limits"), arg(s, "rules"), arg(s, "stop_tokens"), arg(s, "counts"),
		arg(s, "slot_token"), arg(s, "slot_len"), arg(s, "ring"));
}

/* Columns first..first+count of a [ROWS, N] operand, in a place of their own. */
static RefOperand columns(Sequence *s, RefOperand from, int64_t first, int64_t count)
{
	RefOperand to = temporary(s, from.shape[0], count);
	for (int64_t t = 0; s->runs && t < from.shape[0]; t++)
		memcpy((float *)to.data + t * count, (const float *)from.data + t * from.shape[1] + first,
			(size_t)count * sizeof(float));
	return to;
}

static void turn_and_write(Sequence *s, RefOperand row_pos, RefOperand turned_q)
{
	int64_t hdim = s->fused->attrs.head_dim, q_cols = s->fused->attrs.n_heads * hdim,
			kv_cols = s->fused->attrs.n_kv_heads * hdim;
	RefOperand qkv = arg(s, "qkv"), q_norm = arg(s, "q_norm"), k_norm = arg(s, "k_norm");
	RefOperand q = columns(s, qkv, 0, q_cols), k = columns(s, qkv, q_cols, kv_cols),
			   v = columns(s, qkv, q_cols + kv_cols, kv_cols);
	if (q_norm.data)
		RUN(s, OP_head_norm, q, q_norm, q);
	if (k_norm.data)
		RUN(s, OP_head_norm, k, k_norm, k);
	RefOperand turned = temporary(s, k.shape[0], kv_cols);
	RUN(s, OP_rope, q, arg(s, "inv_freq"), row_pos, turned_q);
	RUN(s, OP_rope, k, arg(s, "inv_freq"), row_pos, turned);
	RUN(s, OP_kv_write, arg(s, "step"), turned, v, arg(s, "row_slot"), row_pos,
		arg(s, "page_table"), arg(s, "kv"), arg(s, "kv_scale"), arg(s, "kv_block"));
}

static void rope_write(Sequence *s) { turn_and_write(s, arg(s, "row_pos"), arg(s, "q")); }

static void gate_rows(Sequence *s)
{
	RefOperand x = arg(s, "x"), gates = arg(s, "gates");
	RUN(s, OP_sigmoid_gate, x, columns(s, gates, gates.shape[1] - x.shape[1], x.shape[1]), arg(s, "y"));
}

/* All of an attention layer but the products before and after, at these positions. */
static void attend(Sequence *s, RefOperand row_pos)
{
	RefOperand o = arg(s, "o"), qkv = arg(s, "qkv"), q = temporary(s, o.shape[0], o.shape[1]), absent = {0};
	turn_and_write(s, row_pos, q);
	RUN(s, OP_attention, arg(s, "step"), q, arg(s, "kv"), arg(s, "kv_scale"), arg(s, "kv_block"), arg(s, "row_slot"),
		row_pos, absent, arg(s, "page_table"), o);
	if (s->fused->attrs.gated)
		RUN(s, OP_sigmoid_gate, o, columns(s, qkv, qkv.shape[1] - o.shape[1], o.shape[1]), o);
}

static void attention_rows(Sequence *s)
{
	RUN(s, OP_attention, arg(s, "step"), arg(s, "q"), arg(s, "kv"), arg(s, "kv_scale"), arg(s, "kv_block"),
		arg(s, "row_slot"), arg(s, "row_pos"), (RefOperand){0}, arg(s, "page_table"), arg(s, "o"));
}

static RefOperand temporary_ints(Sequence *s, int64_t rows, int64_t cols)
{
	RefOperand r = temporary(s, rows, cols);
	r.dtype = DT_i32;
	if (s->runs)
		memset(r.data, 0, (size_t)(rows * cols) * sizeof(int32_t));
	return r;
}

static void attention_step(Sequence *s)
{
	const int64_t rows = arg(s, "row_slot").shape[0];
	RefOperand row_token = temporary_ints(s, rows, 1), row_pos = temporary_ints(s, rows, 1);
	RUN(s, OP_slot_rows, arg(s, "row_slot"), arg(s, "slot_token"), arg(s, "slot_len"), row_token, row_pos);
	attend(s, row_pos);
}

/* What the drafts are does not matter to where they are. */
static void attention_verify(Sequence *s)
{
	const int64_t rows = arg(s, "row_slot").shape[0], slots = arg(s, "slot_len").shape[0];
	RefOperand row_token = temporary_ints(s, rows, 1), row_pos = temporary_ints(s, rows, 1);
	RUN(s, OP_verify_rows, arg(s, "row_slot"), arg(s, "slot_token"), arg(s, "slot_len"),
		temporary_ints(s, slots, s->fused->attrs.rows_each - 1), row_token, row_pos);
	attend(s, row_pos);
}

static void embed_verify(Sequence *s)
{
	RUN(s, OP_verify_rows, arg(s, "row_slot"), arg(s, "slot_token"), arg(s, "slot_len"), arg(s, "slot_draft"),
		arg(s, "row_token"), arg(s, "row_pos"));
	RUN(s, OP_embed, arg(s, "row_token"), arg(s, "table"), arg(s, "x"));
}

/* What the head reads, of embedded tokens and rows. */
static void join_normed(Sequence *s, RefOperand embedded, RefOperand rows)
{
	RefOperand e = temporary(s, rows.shape[0], rows.shape[1]), n = temporary(s, rows.shape[0], rows.shape[1]);
	RUN(s, OP_rmsnorm, embedded, arg(s, "embedding_norm"), e);
	RUN(s, OP_rmsnorm, rows, arg(s, "hidden_norm"), n);
	RUN(s, OP_join, e, n, arg(s, "z"));
}

static void draft_first(Sequence *s)
{
	RefOperand z = arg(s, "z"), len = arg(s, "draft_len"), slot_len = arg(s, "slot_len");
	RefOperand held = temporary(s, z.shape[0], z.shape[1] / 2), embedded = temporary(s, z.shape[0], z.shape[1] / 2);
	RUN(s, OP_draft_rows, arg(s, "row_slot"), arg(s, "slot_token"), slot_len, arg(s, "row_token"), arg(s, "row_pos"));
	RUN(s, OP_recall, arg(s, "row_slot"), arg(s, "held"), held);
	RUN(s, OP_embed, arg(s, "row_token"), arg(s, "table"), embedded);
	join_normed(s, embedded, held);
	for (int64_t i = 0; s->runs && i < len.shape[0]; i++) {
		const int32_t length = ((const int32_t *)slot_len.data)[i];
		((int32_t *)len.data)[i] = length > 0 ? length - 1 : 0;
	}
}

static void draft_next(Sequence *s)
{
	RefOperand x = arg(s, "x"), embedded = temporary(s, x.shape[0], x.shape[1]), rows = normed(s, x);
	RUN(s, OP_embed, arg(s, "row_token"), arg(s, "table"), embedded);
	join_normed(s, embedded, rows);
}

static void follow_rows(Sequence *s)
{
	RefOperand x = arg(s, "x"), embedded = temporary(s, x.shape[0], x.shape[1]), rows = normed(s, x);
	RUN(s, OP_hold, arg(s, "step"), rows, arg(s, "row_slot"), arg(s, "row_pos"), arg(s, "slot_len"), arg(s, "held"));
	RUN(s, OP_embed_next_token, arg(s, "row_next"), arg(s, "table"), embedded);
	join_normed(s, embedded, rows);
}

static void keys_write(Sequence *s)
{
	RefOperand keys = arg(s, "keys"), k_norm = arg(s, "k_norm");
	const int64_t cols = keys.shape[1] / 2;
	RefOperand k = columns(s, keys, 0, cols), turned = temporary(s, keys.shape[0], cols);
	if (k_norm.data)
		RUN(s, OP_head_norm, k, k_norm, k);
	RUN(s, OP_rope, k, arg(s, "inv_freq"), arg(s, "row_pos"), turned);
	RUN(s, OP_kv_write, arg(s, "step"), turned, columns(s, keys, cols, cols), arg(s, "row_slot"), arg(s, "row_pos"),
		arg(s, "page_table"), arg(s, "kv"), arg(s, "kv_scale"), arg(s, "kv_block"));
}

/* What the parts say is in the logits too. */
static void draw_rows(Sequence *s, RefOperand ids, RefOperand drawn, RefOperand logprob)
{
	RUN(s, OP_draw, arg(s, "step"), arg(s, "logits"), ids, arg(s, "row_slot"), arg(s, "row_pos"), arg(s, "sampling"),
		arg(s, "limits"), arg(s, "rules"), arg(s, "counts"), arg(s, "slot_token"), arg(s, "slot_len"),
		arg(s, "slot_draft"), drawn, logprob);
}

static void draw_best(Sequence *s) { draw_rows(s, (RefOperand){0}, arg(s, "drawn"), arg(s, "drawn_logprob")); }

static void draw_draft(Sequence *s)
{
	RefOperand pos = arg(s, "row_pos"), len = arg(s, "draft_len"), slot = arg(s, "row_slot");
	const int64_t rows = pos.shape[0];
	RefOperand drawn = temporary(s, rows, 1), logprob = temporary(s, rows, 1), before = temporary(s, rows, 1);
	drawn.dtype = before.dtype = DT_i32;
	drawn.n_dims = logprob.n_dims = 1;
	draw_rows(s, arg(s, "ids"), drawn, logprob);
	if (s->runs)
		memcpy(before.data, pos.data, (size_t)rows * sizeof(int32_t));
	RUN(s, OP_keep_draft, drawn, slot, arg(s, "slot_len"), arg(s, "slot_draft"), arg(s, "row_token"), pos);
	for (int64_t t = 0; s->runs && t < rows; t++)
		if (((const int32_t *)pos.data)[t] != ((const int32_t *)before.data)[t])
			((int32_t *)len.data)[((const int32_t *)slot.data)[t]]++;
}

static void conv_rows(Sequence *s)
{
	RUN(s, OP_causal_conv, arg(s, "step"), columns(s, arg(s, "x"), 0, arg(s, "y").shape[1]), arg(s, "conv_w"),
		arg(s, "row_slot"), arg(s, "conv"), arg(s, "y"));
}

/* What follows the convolution, whose result is qkv. */
static void delta_and_norm(Sequence *s, RefOperand qkv)
{
	const Attrs *a = &s->fused->attrs;
	const int64_t z_at = qkv.shape[1], nv = a->n_v_heads;
	RefOperand x = arg(s, "x"), ba = arg(s, "ba"), y = arg(s, "y"), o = temporary(s, y.shape[0], y.shape[1]);
	RefOperand of = ba.data ? ba : x;
	const int64_t b_at = ba.data ? 0 : z_at + y.shape[1];
	RefOperand a_of = columns(s, of, b_at + nv, nv), b_of = columns(s, of, b_at, nv);
	if (s->fused->op == OP_delta_verify_step)
		RUN(s, OP_delta_verify, arg(s, "step"), qkv, a_of, b_of, arg(s, "a_log"), arg(s, "dt_bias"),
			arg(s, "row_slot"), arg(s, "slot_version"), arg(s, "delta"), arg(s, "delta_later"), o);
	else
		RUN(s, OP_delta_rule, arg(s, "step"), qkv, a_of, b_of, arg(s, "a_log"), arg(s, "dt_bias"),
			arg(s, "row_slot"), arg(s, "delta"), o);
	RefCall norm = {.op = OP_gated_norm, .attrs = *a,
		.operand = {o, columns(s, x, z_at, y.shape[1]), arg(s, "norm"), y}};
	norm.attrs.head_dim = a->v_dim;
	if (s->runs)
		ref_op(&norm);
}

static void delta_rows(Sequence *s) { delta_and_norm(s, arg(s, "qkv")); }

static void delta_step(Sequence *s)
{
	RefOperand x = arg(s, "x"), w = arg(s, "conv_w"), turned = temporary(s, x.shape[0], w.shape[0]);
	RUN(s, OP_causal_conv, arg(s, "step"), columns(s, x, 0, w.shape[0]), w, arg(s, "row_slot"), arg(s, "conv"), turned);
	delta_and_norm(s, turned);
}

static void delta_verify_step(Sequence *s)
{
	RefOperand x = arg(s, "x"), w = arg(s, "conv_w"), turned = temporary(s, x.shape[0], w.shape[0]);
	RUN(s, OP_conv_verify, arg(s, "step"), columns(s, x, 0, w.shape[0]), w, arg(s, "row_slot"), arg(s, "slot_version"),
		arg(s, "conv"), arg(s, "conv_later"), turned);
	delta_and_norm(s, turned);
}

size_t ref_fused(const RefCall *c, bool runs)
{
	static void (*const sequences[OP_COUNT])(Sequence *) = {
		[OP_embed_next] = embed_next,
		[OP_embed_prompt] = embed_prompt,
		[OP_norm_linear] = norm_linear,
		[OP_rope_write] = rope_write,
		[OP_attention_rows] = attention_rows,
		[OP_attention_step] = attention_step,
		[OP_attention_verify] = attention_verify,
		[OP_gate_rows] = gate_rows,
		[OP_conv_rows] = conv_rows,
		[OP_delta_rows] = delta_rows,
		[OP_delta_step] = delta_step,
		[OP_delta_verify_step] = delta_verify_step,
		[OP_norm_route] = norm_route,
		[OP_norm_rows] = norm_rows,
		[OP_norm_rows_fp8] = norm_rows_fp8,
		[OP_quant_rows] = quant_rows,
		[OP_norm_rows_fp4] = norm_rows_fp4,
		[OP_quant_rows_fp4] = quant_rows_fp4,
		[OP_linear_rows] = linear_rows,
		[OP_linear_residual] = linear_residual,
		[OP_linear_swiglu] = linear_swiglu,
		[OP_linear_swiglu_fp8] = linear_swiglu_fp8,
		[OP_norm_swiglu] = norm_swiglu,
		[OP_norm_logits] = norm_logits,
		[OP_sample_best] = sample_best,
		[OP_embed_verify] = embed_verify,
		[OP_draft_first] = draft_first,
		[OP_draft_next] = draft_next,
		[OP_follow_rows] = follow_rows,
		[OP_keys_write] = keys_write,
		[OP_draw_best] = draw_best,
		[OP_draw_draft] = draw_draft,
	};
	Sequence s = {.fused = c, .runs = runs};
	if (sequences[c->op])
		sequences[c->op](&s);
	return s.used;
}
