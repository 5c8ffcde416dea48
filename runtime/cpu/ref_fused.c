/* ref_fused.c - the fused ops, spelled out as the graph ops they replace.
 *
 * A fused op has no meaning of its own: it is a sequence of graph ops with intermediates that
 * nothing else sees. Each function below lists that sequence; the intermediates lie in the call's
 * scratch. The same code measures the scratch: then nothing runs and only the places are counted.
 */
#include "artifacts/numbers.h"
#include "runtime/cpu/ref_call.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static RefOperand temporary(const RefCall *c, int64_t rows, int64_t cols)
{
	RefOperand r = {.dtype = DT_f32, .n_dims = 2, .shape = {rows, cols}};
	r.data = ref_take(c, (size_t)(rows * cols) * sizeof(float));
	return r;
}

static RefOperand arg(const RefCall *c, const char *name) { return *ref_arg(c, name); }

/* A graph op under the fused op's attributes, on operands in the order of its row. */
#define RUN(c, kind, ...)                                                                          \
	run(c, kind, (const RefOperand[]){__VA_ARGS__},                                                \
		sizeof (RefOperand[]){__VA_ARGS__} / sizeof(RefOperand))
static void run(const RefCall *c, OpKind kind, const RefOperand *operands, size_t n)
{
	RefCall step = {.op = kind, .attrs = c->attrs};
	memcpy(step.operand, operands, n * sizeof *operands);
	step.scratch = ref_take(c, ref_scratch_bytes(&step));
	if (ref_runs(c) && c->inner)
		c->inner(c->inner_ctx, &step);
	else if (ref_runs(c))
		ref_op(&step);
}

void ref_embed_next(const RefCall *c)
{
	RUN(c, OP_slot_rows, arg(c, "row_slot"), arg(c, "slot_token"), arg(c, "slot_len"),
		arg(c, "row_token"), arg(c, "row_pos"));
	RUN(c, OP_embed, arg(c, "row_token"), arg(c, "table"), arg(c, "x"));
}

void ref_embed_prompt(const RefCall *c)
{
	RUN(c, OP_note_prompt, arg(c, "step"), arg(c, "row_token"), arg(c, "row_slot"),
		arg(c, "counts"));
	RUN(c, OP_embed, arg(c, "row_token"), arg(c, "table"), arg(c, "x"));
}

static RefOperand normed(const RefCall *c, RefOperand x)
{
	RefOperand n = temporary(c, x.shape[0], x.shape[1]);
	RUN(c, OP_rmsnorm, x, arg(c, "norm"), n);
	return n;
}

/* The linear whose weight is the operand `w`, with its scales. */
static void linear(const RefCall *c, RefOperand x, const char *w, RefOperand bias, RefOperand y)
{
	char scale[32], row_scale[32];
	snprintf(scale, sizeof scale, "%s_scale", w);
	snprintf(row_scale, sizeof row_scale, "%s_row_scale", w);
	RUN(c, OP_linear, x, arg(c, w), arg(c, scale), arg(c, row_scale), bias, y);
}

void ref_norm_linear(const RefCall *c)
{
	RefOperand n = normed(c, arg(c, "x"));
	linear(c, n, "w", arg(c, "bias"), arg(c, "y"));
}

void ref_norm_linear_narrow(const RefCall *c)
{
	RefOperand n = normed(c, arg(c, "x")), absent = {0};
	linear(c, n, "w", arg(c, "bias"), arg(c, "y"));
	RUN(c, OP_linear, n, arg(c, "w_narrow"), absent, absent, absent, arg(c, "y_narrow"));
}

void ref_norm_rows_fp8(const RefCall *c)
{
	RUN(c, OP_quantise, normed(c, arg(c, "x")), arg(c, "y"), arg(c, "y_scale"));
}

void ref_quant_rows(const RefCall *c) { RUN(c, OP_quantise, arg(c, "x"), arg(c, "y"), arg(c, "y_scale")); }

void ref_norm_rows_fp4(const RefCall *c)
{
	RUN(c, OP_quantise_fp4, normed(c, arg(c, "x")), arg(c, "y"), arg(c, "y_block"), arg(c, "y_row_scale"));
}

void ref_quant_rows_fp4(const RefCall *c)
{
	RUN(c, OP_quantise_fp4, arg(c, "x"), arg(c, "y"), arg(c, "y_block"), arg(c, "y_row_scale"));
}

/* x, of which codes come with scales. */
static RefOperand rows(const RefCall *c)
{
	RefOperand x = arg(c, "x"), y = x;
	bool is_fp8 = op_operand(c->op, "x_scale") >= 0 && arg(c, "x_scale").data;
	bool is_fp4 = op_operand(c->op, "x_block") >= 0 && arg(c, "x_block").data;
	if (is_fp8 || is_fp4)
		y = temporary(c, x.shape[0], x.shape[1]);
	if (is_fp8)
		RUN(c, OP_dequantise, x, arg(c, "x_scale"), y);
	if (is_fp4)
		RUN(c, OP_dequantise_fp4, x, arg(c, "x_block"), arg(c, "x_row_scale"), y);
	return y;
}

/* share has a column more than the route fills where there is an expert that all rows go to. */
void ref_norm_route(const RefCall *c)
{
	RefOperand x = arg(c, "x"), n = arg(c, "n"), share = arg(c, "share"), absent = {0}, gate = arg(c, "shared_gate");
	RefOperand chosen = temporary(c, share.shape[0], c->attrs.n_active), y = temporary(c, share.shape[0], 1);
	RUN(c, OP_rmsnorm, x, arg(c, "norm"), n);
	RUN(c, OP_linear, n, arg(c, "router"), absent, absent, arg(c, "router_bias"), arg(c, "logits"));
	RUN(c, OP_route, arg(c, "logits"), arg(c, "expert"), chosen);
	if (gate.data)
		RUN(c, OP_linear, n, gate, absent, absent, absent, y);
	for (int64_t t = 0; ref_runs(c) && t < share.shape[0]; t++) {
		float *to = (float *)share.data + t * share.shape[1];
		memcpy(to, (float *)chosen.data + t * chosen.shape[1], (size_t)chosen.shape[1] * sizeof(float));
		if (gate.data)
			to[chosen.shape[1]] = (float)(1 / (1 + exp(-(double)((float *)y.data)[t])));
	}
}

void ref_norm_route_sigmoid(const RefCall *c)
{
	RefOperand n = arg(c, "n"), share = arg(c, "share"), absent = {0};
	RefOperand chosen = temporary(c, share.shape[0], c->attrs.n_active);
	RUN(c, OP_rmsnorm, arg(c, "x"), arg(c, "norm"), n);
	RUN(c, OP_linear, n, arg(c, "router"), absent, absent, absent, arg(c, "logits"));
	RUN(c, OP_route_sigmoid, arg(c, "logits"), arg(c, "bias"), arg(c, "expert"), chosen);
	for (int64_t t = 0; ref_runs(c) && t < share.shape[0]; t++) {
		float *to = (float *)share.data + t * share.shape[1];
		memcpy(to, (float *)chosen.data + t * chosen.shape[1], (size_t)chosen.shape[1] * sizeof(float));
		if (share.shape[1] > chosen.shape[1])
			to[chosen.shape[1]] = 1;
	}
}

void ref_norm_route_scaled(const RefCall *c)
{
	RefOperand share = arg(c, "share"), logits = arg(c, "logits"), absent = {0}, expert = arg(c, "expert");
	RefOperand plain = temporary(c, logits.shape[0], logits.shape[1]);
	RefOperand chosen = temporary(c, share.shape[0], share.shape[1]);
	RUN(c, OP_linear, normed(c, arg(c, "x")), arg(c, "router"), absent, absent, absent, plain);
	RUN(c, OP_scale, plain, logits);
	RUN(c, OP_route, logits, expert, chosen);
	RUN(c, OP_scale_shares, chosen, expert, arg(c, "by"), share);
}

void ref_norm_residual(const RefCall *c)
{
	RefOperand y = normed(c, arg(c, "x")), factor = arg(c, "factor"), z = arg(c, "z");
	RefOperand sum = factor.data ? temporary(c, z.shape[0], z.shape[1]) : z;
	RUN(c, OP_add, arg(c, "residual"), y, sum);
	if (factor.data)
		RUN(c, OP_scale_by, sum, factor, z);
}

void ref_norm_rows(const RefCall *c) { RUN(c, OP_rmsnorm, arg(c, "x"), arg(c, "norm"), arg(c, "y")); }

void ref_linear_rows(const RefCall *c)
{
	linear(c, rows(c), "w", arg(c, "bias"), arg(c, "y"));
}

void ref_linear_residual(const RefCall *c)
{
	RefOperand z = arg(c, "z"), y = temporary(c, z.shape[0], z.shape[1]);
	linear(c, rows(c), "w", arg(c, "bias"), y);
	RUN(c, OP_add, arg(c, "residual"), y, z);
}

static void gated(const RefCall *c, OpKind act, RefOperand x, RefOperand y)
{
	RefOperand gate = temporary(c, y.shape[0], y.shape[1]),
			   up = temporary(c, y.shape[0], y.shape[1]);
	linear(c, x, "gate", arg(c, "gate_bias"), gate);
	linear(c, x, "up", arg(c, "up_bias"), up);
	RUN(c, act, gate, up, y);
}

void ref_linear_swiglu(const RefCall *c) { gated(c, OP_swiglu, rows(c), arg(c, "y")); }
void ref_norm_swiglu(const RefCall *c) { gated(c, OP_swiglu, normed(c, arg(c, "x")), arg(c, "y")); }
void ref_norm_geglu(const RefCall *c) { gated(c, OP_geglu, normed(c, arg(c, "x")), arg(c, "y")); }

void ref_linear_swiglu_fp8(const RefCall *c)
{
	RefOperand codes = arg(c, "y"), y = temporary(c, codes.shape[0], codes.shape[1]);
	gated(c, OP_swiglu, rows(c), y);
	RUN(c, OP_quantise, y, codes, arg(c, "y_scale"));
}

/* Parts are of the shortest power of two of ids with which as many as `best` has cover the vocabulary. */
static void best_of_parts(const RefCall *c, const RefOperand *logits)
{
	RefOperand best = arg(c, "best"), best_id = arg(c, "best_id");
	int64_t outs = logits->shape[0], v = logits->shape[1], parts = best.shape[1], ids = 1;
	while ((v + ids - 1) / ids > parts)
		ids *= 2;
	for (int64_t o = 0; ref_runs(c) && o < outs; o++)
		for (int64_t p = 0; p < parts; p++) {
			const float *l = (const float *)logits->data + o * v;
			int64_t first = p * ids, end = first + ids, at = first;
			double sum = 0;
			end = end < c->attrs.n_valid ? end : c->attrs.n_valid;
			end = end < v ? end : v; /* a rank's columns are fewer than the ids of all ranks */
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

static RefOperand gathered(const RefCall *c)
{
	RefOperand out_row = arg(c, "out_row"), x = arg(c, "x"), rows = temporary(c, out_row.shape[0], x.shape[1]);
	RUN(c, OP_gather, x, out_row, rows);
	return rows;
}

static void score(const RefCall *c, RefOperand x)
{
	RefOperand absent = {0}, logits = arg(c, "logits");
	linear(c, x, "w", absent, logits);
	if (c->attrs.cap > 0)
		RUN(c, OP_soft_cap, logits, logits);
	best_of_parts(c, &logits);
}

void ref_norm_logits(const RefCall *c) { score(c, normed(c, gathered(c))); }
void ref_norm_outs(const RefCall *c) { RUN(c, OP_rmsnorm, gathered(c), arg(c, "norm"), arg(c, "y")); }
void ref_linear_logits(const RefCall *c) { score(c, arg(c, "x")); }

/* What the parts say is in the logits too. */
void ref_sample_best(const RefCall *c)
{
	RUN(c, OP_sample, arg(c, "step"), arg(c, "logits"), arg(c, "out_row"), arg(c, "row_slot"), arg(c, "row_pos"),
		arg(c, "sampling"), arg(c, "limits"), arg(c, "rules"), arg(c, "masks"), arg(c, "stop_tokens"),
		arg(c, "counts"), arg(c, "slot_token"), arg(c, "slot_len"), arg(c, "ring"));
}

/* Columns first..first+count of a [ROWS, N] operand, in a place of their own. */
static RefOperand columns(const RefCall *c, RefOperand from, int64_t first, int64_t count)
{
	RefOperand to = temporary(c, from.shape[0], count);
	for (int64_t t = 0; ref_runs(c) && t < from.shape[0]; t++)
		memcpy((float *)to.data + t * count, (const float *)from.data + t * from.shape[1] + first,
			(size_t)count * sizeof(float));
	return to;
}

static void round_rows(const RefCall *c, RefOperand x)
{
	float *at = x.data;
	if (!ref_runs(c) || !arg(c, "qkv").is_bf16)
		return;
	for (int64_t i = 0; i < x.shape[0] * x.shape[1]; i++)
		at[i] = numbers_rounded(DT_bf16, at[i]);
}

/* Where the rows model bf16 and the cache is no codes, q, k and v do too, as tensors of the graph and in kernels. */
static void round_heads(const RefCall *c, RefOperand x)
{
	if (!arg(c, "kv_scale").data)
		round_rows(c, x);
}

/* In place. Over all heads it is an op of rows, whose result is rounded like theirs. */
static void norm_heads(const RefCall *c, RefOperand x, RefOperand norm)
{
	if (norm.data && !c->attrs.norm_whole)
		RUN(c, OP_head_norm, x, norm, x);
	else if (norm.data) {
		RUN(c, OP_rmsnorm, x, norm, x);
		round_rows(c, x);
	}
}

static void turn_and_write(const RefCall *c, RefOperand row_pos, RefOperand turned_q)
{
	int64_t hdim = c->attrs.head_dim, q_cols = c->attrs.n_heads * hdim,
			kv_cols = c->attrs.n_kv_heads * hdim;
	RefOperand qkv = arg(c, "qkv"), q_norm = arg(c, "q_norm"), k_norm = arg(c, "k_norm"), v_norm = arg(c, "v_norm");
	RefOperand q = columns(c, qkv, 0, q_cols), k = columns(c, qkv, q_cols, kv_cols),
			   v = columns(c, qkv, c->attrs.v_is_k ? q_cols : q_cols + kv_cols, kv_cols);
	norm_heads(c, q, q_norm);
	norm_heads(c, k, k_norm);
	if (v_norm.data)
		RUN(c, OP_head_norm, v, v_norm, v);
	RefOperand turned = temporary(c, k.shape[0], kv_cols);
	RUN(c, OP_rope, q, arg(c, "inv_freq"), row_pos, turned_q);
	RUN(c, OP_rope, k, arg(c, "inv_freq"), row_pos, turned);
	round_heads(c, turned_q);
	round_heads(c, turned);
	round_heads(c, v);
	RUN(c, OP_kv_write, arg(c, "step"), turned, v, arg(c, "row_slot"), row_pos,
		arg(c, "page_table"), arg(c, "kv"), arg(c, "kv_scale"), arg(c, "kv_block"));
}

void ref_rope_write(const RefCall *c) { turn_and_write(c, arg(c, "row_pos"), arg(c, "q")); }

void ref_gate_rows(const RefCall *c)
{
	RefOperand x = arg(c, "x"), gates = arg(c, "gates");
	RUN(c, OP_sigmoid_gate, x, columns(c, gates, gates.shape[1] - x.shape[1], x.shape[1]), arg(c, "y"));
}

/* All of an attention layer but the products before and after, at these positions. */
static void attend(const RefCall *c, RefOperand row_pos)
{
	RefOperand o = arg(c, "o"), qkv = arg(c, "qkv"), q = temporary(c, o.shape[0], o.shape[1]), absent = {0};
	turn_and_write(c, row_pos, q);
	RUN(c, OP_attention, arg(c, "step"), q, arg(c, "kv"), arg(c, "kv_scale"), arg(c, "kv_block"), arg(c, "row_slot"),
		row_pos, absent, arg(c, "page_table"), arg(c, "sinks"), o);
	if (c->attrs.gated)
		RUN(c, OP_sigmoid_gate, o, columns(c, qkv, qkv.shape[1] - o.shape[1], o.shape[1]), o);
}

void ref_attention_rows(const RefCall *c)
{
	RUN(c, OP_attention, arg(c, "step"), arg(c, "q"), arg(c, "kv"), arg(c, "kv_scale"), arg(c, "kv_block"),
		arg(c, "row_slot"), arg(c, "row_pos"), (RefOperand){0}, arg(c, "page_table"), arg(c, "sinks"), arg(c, "o"));
}

static RefOperand temporary_ints(const RefCall *c, int64_t rows, int64_t cols)
{
	RefOperand r = temporary(c, rows, cols);
	r.dtype = DT_i32;
	if (ref_runs(c))
		memset(r.data, 0, (size_t)(rows * cols) * sizeof(int32_t));
	return r;
}

void ref_attention_step(const RefCall *c)
{
	const int64_t rows = arg(c, "row_slot").shape[0];
	RefOperand row_token = temporary_ints(c, rows, 1), row_pos = temporary_ints(c, rows, 1);
	RUN(c, OP_slot_rows, arg(c, "row_slot"), arg(c, "slot_token"), arg(c, "slot_len"), row_token, row_pos);
	attend(c, row_pos);
}

/* What the drafts are does not matter to where they are. */
void ref_attention_verify(const RefCall *c)
{
	const int64_t rows = arg(c, "row_slot").shape[0], slots = arg(c, "slot_len").shape[0];
	RefOperand row_token = temporary_ints(c, rows, 1), row_pos = temporary_ints(c, rows, 1);
	RUN(c, OP_verify_rows, arg(c, "row_slot"), arg(c, "slot_token"), arg(c, "slot_len"),
		temporary_ints(c, slots, PLAN_MAX_VERIFY - 1), row_token, row_pos);
	attend(c, row_pos);
}

void ref_embed_verify(const RefCall *c)
{
	RUN(c, OP_verify_rows, arg(c, "row_slot"), arg(c, "slot_token"), arg(c, "slot_len"), arg(c, "slot_draft"),
		arg(c, "row_token"), arg(c, "row_pos"));
	RUN(c, OP_embed, arg(c, "row_token"), arg(c, "table"), arg(c, "x"));
}

/* What the head reads, of embedded tokens and rows. */
static void join_normed(const RefCall *c, RefOperand embedded, RefOperand rows)
{
	RefOperand e = temporary(c, rows.shape[0], rows.shape[1]), n = temporary(c, rows.shape[0], rows.shape[1]);
	RUN(c, OP_rmsnorm, embedded, arg(c, "embedding_norm"), e);
	RUN(c, OP_rmsnorm, rows, arg(c, "hidden_norm"), n);
	RUN(c, OP_join, e, n, arg(c, "z"));
}

void ref_draft_first(const RefCall *c)
{
	RefOperand z = arg(c, "z"), len = arg(c, "draft_len"), slot_len = arg(c, "slot_len");
	RefOperand held = temporary(c, z.shape[0], z.shape[1] / 2), embedded = temporary(c, z.shape[0], z.shape[1] / 2);
	RUN(c, OP_draft_rows, arg(c, "row_slot"), arg(c, "slot_token"), slot_len, arg(c, "row_token"), arg(c, "row_pos"));
	RUN(c, OP_recall, arg(c, "row_slot"), arg(c, "held"), held);
	RUN(c, OP_embed, arg(c, "row_token"), arg(c, "table"), embedded);
	join_normed(c, embedded, held);
	for (int64_t i = 0; ref_runs(c) && i < len.shape[0]; i++) {
		const int32_t length = ((const int32_t *)slot_len.data)[i];
		((int32_t *)len.data)[i] = length > 0 ? length - 1 : 0;
	}
}

void ref_draft_next(const RefCall *c)
{
	RefOperand x = arg(c, "x"), embedded = temporary(c, x.shape[0], x.shape[1]), rows = normed(c, x);
	RUN(c, OP_embed, arg(c, "row_token"), arg(c, "table"), embedded);
	join_normed(c, embedded, rows);
}

void ref_follow_rows(const RefCall *c)
{
	RefOperand x = arg(c, "x"), embedded = temporary(c, x.shape[0], x.shape[1]), rows = normed(c, x);
	RUN(c, OP_hold, arg(c, "step"), rows, arg(c, "row_slot"), arg(c, "row_pos"), arg(c, "slot_len"), arg(c, "held"));
	RUN(c, OP_embed_next_token, arg(c, "row_next"), arg(c, "table"), embedded);
	join_normed(c, embedded, rows);
}

void ref_keys_write(const RefCall *c)
{
	RefOperand keys = arg(c, "keys"), k_norm = arg(c, "k_norm"), v_norm = arg(c, "v_norm");
	const int64_t cols = keys.shape[1] / 2;
	RefOperand k = columns(c, keys, 0, cols), v = columns(c, keys, cols, cols);
	RefOperand turned = temporary(c, keys.shape[0], cols);
	if (k_norm.data)
		RUN(c, OP_head_norm, k, k_norm, k);
	if (v_norm.data)
		RUN(c, OP_head_norm, v, v_norm, v);
	RUN(c, OP_rope, k, arg(c, "inv_freq"), arg(c, "row_pos"), turned);
	RUN(c, OP_kv_write, arg(c, "step"), turned, v, arg(c, "row_slot"), arg(c, "row_pos"),
		arg(c, "page_table"), arg(c, "kv"), arg(c, "kv_scale"), arg(c, "kv_block"));
}

/* What the parts say is in the logits too. */
static void draw_rows(const RefCall *c, RefOperand ids, bool is_masked, RefOperand drawn, RefOperand logprob)
{
	const RefOperand none = {0};
	RUN(c, OP_draw, arg(c, "step"), arg(c, "logits"), ids, arg(c, "row_slot"), arg(c, "row_pos"), arg(c, "sampling"),
		arg(c, "limits"), arg(c, "rules"), is_masked ? arg(c, "masks") : none,
		is_masked ? arg(c, "masks_later") : none, arg(c, "counts"), arg(c, "slot_token"), arg(c, "slot_len"),
		arg(c, "slot_draft"), drawn, logprob);
}

void ref_draw_best(const RefCall *c)
{
	draw_rows(c, (RefOperand){0}, true, arg(c, "drawn"), arg(c, "drawn_logprob"));
}

void ref_draw_draft(const RefCall *c)
{
	RefOperand pos = arg(c, "row_pos"), len = arg(c, "draft_len"), slot = arg(c, "row_slot");
	const int64_t rows = pos.shape[0];
	RefOperand drawn = temporary(c, rows, 1), logprob = temporary(c, rows, 1), before = temporary(c, rows, 1);
	drawn.dtype = before.dtype = DT_i32;
	drawn.n_dims = logprob.n_dims = 1;
	draw_rows(c, arg(c, "ids"), false, drawn, logprob);
	if (ref_runs(c))
		memcpy(before.data, pos.data, (size_t)rows * sizeof(int32_t));
	RUN(c, OP_keep_draft, drawn, slot, arg(c, "slot_len"), arg(c, "slot_draft"), arg(c, "row_token"), pos);
	for (int64_t t = 0; ref_runs(c) && t < rows; t++)
		if (((const int32_t *)pos.data)[t] != ((const int32_t *)before.data)[t])
			((int32_t *)len.data)[((const int32_t *)slot.data)[t]]++;
}

void ref_conv_rows(const RefCall *c)
{
	RUN(c, OP_causal_conv, arg(c, "step"), columns(c, arg(c, "x"), 0, arg(c, "y").shape[1]), arg(c, "conv_w"),
		arg(c, "row_slot"), arg(c, "conv"), arg(c, "y"));
}

/* What follows the convolution, whose result is qkv. */
static void delta_and_norm(const RefCall *c, RefOperand qkv)
{
	const Attrs *a = &c->attrs;
	const int64_t z_at = qkv.shape[1], nv = a->n_v_heads;
	RefOperand x = arg(c, "x"), ba = arg(c, "ba"), y = arg(c, "y"), o = temporary(c, y.shape[0], y.shape[1]);
	RefOperand of = ba.data ? ba : x;
	const int64_t b_at = ba.data ? 0 : z_at + y.shape[1];
	RefOperand a_of = columns(c, of, b_at + nv, nv), b_of = columns(c, of, b_at, nv);
	if (c->op == OP_delta_verify_step)
		RUN(c, OP_delta_verify, arg(c, "step"), qkv, a_of, b_of, arg(c, "a_log"), arg(c, "dt_bias"),
			arg(c, "row_slot"), arg(c, "slot_version"), arg(c, "delta"), arg(c, "delta_later"), o);
	else
		RUN(c, OP_delta_rule, arg(c, "step"), qkv, a_of, b_of, arg(c, "a_log"), arg(c, "dt_bias"),
			arg(c, "row_slot"), arg(c, "delta"), o);
	RefCall norm = {.op = OP_gated_norm, .attrs = *a,
		.operand = {o, columns(c, x, z_at, y.shape[1]), arg(c, "norm"), y}};
	norm.attrs.head_dim = a->v_dim;
	if (ref_runs(c))
		ref_op(&norm);
}

void ref_delta_rows(const RefCall *c) { delta_and_norm(c, arg(c, "qkv")); }

void ref_delta_step(const RefCall *c)
{
	RefOperand x = arg(c, "x"), w = arg(c, "conv_w"), turned = temporary(c, x.shape[0], w.shape[0]);
	RUN(c, OP_causal_conv, arg(c, "step"), columns(c, x, 0, w.shape[0]), w, arg(c, "row_slot"), arg(c, "conv"), turned);
	delta_and_norm(c, turned);
}

void ref_delta_verify_step(const RefCall *c)
{
	RefOperand x = arg(c, "x"), w = arg(c, "conv_w"), turned = temporary(c, x.shape[0], w.shape[0]);
	RUN(c, OP_conv_verify, arg(c, "step"), columns(c, x, 0, w.shape[0]), w, arg(c, "row_slot"), arg(c, "slot_version"),
		arg(c, "conv"), arg(c, "conv_later"), turned);
	delta_and_norm(c, turned);
}
