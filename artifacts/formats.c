/* formats.c - what number formats are called, and which a launch and a graph use. */
#include "artifacts/formats.h"
#include "artifacts/op_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const format_names[FORMAT_NAMES] = {
	[NAME_F32] = "f32", [NAME_F16] = "f16", [NAME_BF16] = "bf16", [NAME_FP8_BLOCK] = "fp8-block",
	[NAME_FP8_CHANNEL] = "fp8-channel", [NAME_FP8_TENSOR] = "fp8-tensor", [NAME_NVFP4] = "nvfp4",
	[NAME_MXFP4] = "mxfp4", [NAME_INT4] = "int4"};

static const struct { const char *name; Dtype kv; } caches[] = {
	{"bf16", DT_bf16}, {"fp8", DT_e4m3}, {"nvfp4", DT_e2m1}};
enum { N_CACHES = sizeof caches / sizeof caches[0] };

const char *cache_name(Dtype kv)
{
	for (int i = 0; i < N_CACHES; i++)
		if (caches[i].kv == kv)
			return caches[i].name;
	return NULL;
}

bool cache_from_name(const char *name, Dtype *kv)
{
	for (int i = 0; i < N_CACHES; i++)
		if (strcmp(caches[i].name, name) == 0) {
			*kv = caches[i].kv;
			return true;
		}
	return false;
}

/* scales: of blocks; DT_COUNT = there are none of those. */
static WeightFormatOf format_of(Dtype codes, Dtype scales, int block_n, int block_k)
{
	WeightFormatOf f = {NAME_BF16, codes, 0, 0};
	if (scales != DT_COUNT) {
		f.block_n = block_n;
		f.block_k = block_k;
	}
	switch (codes) {
	case DT_f32: f.name = NAME_F32; break;
	case DT_f16: f.name = NAME_F16; break;
	case DT_e4m3: f.name = scales == DT_COUNT ? NAME_FP8_CHANNEL : NAME_FP8_BLOCK; break;
	case DT_e2m1: f.name = scales == DT_e8m0 ? NAME_MXFP4 : NAME_NVFP4; break;
	case DT_u4: f.name = NAME_INT4; break;
	default: break;
	}
	return f;
}

const char *format_text(const WeightFormatOf *f, char text[FORMAT_TEXT])
{
	if (f->block_n)
		snprintf(text, FORMAT_TEXT, "%s %dx%d", dtype_name(f->codes), f->block_n, f->block_k);
	else
		snprintf(text, FORMAT_TEXT, "%s%s", dtype_name(f->codes), f->name == NAME_FP8_CHANNEL ? " row" : "");
	return text;
}

static bool is_equal(const WeightFormatOf *a, const WeightFormatOf *b)
{
	return a->name == b->name && a->codes == b->codes && a->block_n == b->block_n && a->block_k == b->block_k;
}

/* The operand that has the block scales of operand k; -1 = the op has none. */
static int scales_of(OpKind op, int k)
{
	char name[64];
	snprintf(name, sizeof name, "%.50s_scale", op_table[op].operands[k].name);
	return op_operand(op, name);
}

static const Buf *buf_of(const Phase *p, const Launch *l, int operand)
{
	for (int i = 0; i < l->n_args; i++)
		if (l->args[i].operand == operand && l->args[i].buf >= 0)
			return &p->bufs[l->args[i].buf];
	return NULL;
}

/* Of "NORM_ONE=0 BLOCK_N=128"; 0 where it is not there. */
static int attr_in(const char *attrs, const char *name)
{
	const size_t n = strlen(name);
	for (const char *at = attrs; at; at = (at = strchr(at, ' ')) ? at + 1 : NULL)
		if (strncmp(at, name, n) == 0 && at[n] == '=')
			return atoi(at + n + 1);
	return 0;
}

int launch_weights(const Phase *p, const Launch *l, const Slot *slot, WeightFormatOf out[MAX_LAUNCH_WEIGHTS])
{
	int n = 0, same;
	for (int k = 0; k < op_table[l->op].n_operands; k++) {
		const char *name = op_table[l->op].operands[k].name;
		const Buf *b = buf_of(p, l, k);
		if (!b || b->arena != ARENA_WEIGHTS || b->n_dims < 2 ||
				op_table[l->op].operands[k].of == OF_scales)
			continue;
		const int scale = scales_of(l->op, k);
		const Buf *s = scale < 0 ? NULL : buf_of(p, l, scale);
		const bool is_shared = strncmp(name, "shared", 6) == 0;
		const WeightFormatOf f = format_of(b->dtype, s ? s->dtype : DT_COUNT,
			attr_in(slot->attrs, is_shared ? "SHARED_BLOCK_N" : "BLOCK_N"),
			attr_in(slot->attrs, is_shared ? "SHARED_BLOCK_K" : "BLOCK_K"));
		for (same = 0; same < n && !is_equal(&out[same], &f);)
			same++;
		if (same == n && n < MAX_LAUNCH_WEIGHTS)
			out[n++] = f;
	}
	return n;
}

const char *launch_cache(const Phase *p, const Launch *l)
{
	int k = op_operand(l->op, "kv");
	const Buf *b = k < 0 ? NULL : buf_of(p, l, k);
	if (b)
		return cache_name(b->dtype) ? cache_name(b->dtype) : "";
	k = op_operand(l->op, "delta");
	b = k < 0 ? NULL : buf_of(p, l, k);
	return !b ? "" : b->dtype == DT_bf16 ? "state bf16" : "state f32";
}

static void count_product(const Graph *g, const GraphOp *op, int k, ProductCount *out, int *n)
{
	const int scale = scales_of(op->kind, k), s = scale < 0 ? -1 : op->operands[scale];
	const WeightFormatOf f = format_of(g->tensors[op->operands[k]].dtype, s < 0 ? DT_COUNT : g->tensors[s].dtype,
		op->attrs.block_n, op->attrs.block_k);
	int i = 0;
	while (i < *n && !is_equal(&out[i].format, &f))
		i++;
	if (i == MAX_PRODUCTS)
		return;
	if (i == *n)
		out[(*n)++] = (ProductCount){f, 0};
	out[i].n++;
}

static bool is_product(const GraphOp *op, int k)
{
	return op_table[op->kind].operands[k].of == OF_codes && op->operands[k] >= 0;
}

/* Does an op before op i multiply by this tensor? */
static bool is_counted(const Graph *g, int i, int tensor)
{
	for (int j = 0; j < i; j++)
		for (int k = 0; k < op_table[g->ops[j].kind].n_operands; k++)
			if (g->ops[j].operands[k] == tensor && is_product(&g->ops[j], k))
				return true;
	return false;
}

int graph_products(const Graph *g, ProductCount out[MAX_PRODUCTS])
{
	int n = 0;
	for (int i = 0; i < g->n_ops; i++) {
		const GraphOp *op = &g->ops[i];
		for (int k = 0; k < op_table[op->kind].n_operands; k++)
			if (is_product(op, k) && !is_counted(g, i, op->operands[k]))
				count_product(g, op, k, out, &n);
	}
	for (int i = 1; i < n; i++) /* by insertion, which keeps the order of equals */
		for (int k = i; k > 0 && out[k].n > out[k - 1].n; k--) {
			const ProductCount later = out[k];
			out[k] = out[k - 1];
			out[k - 1] = later;
		}
	return n;
}

enum { CACHE_TEXT = 32 };

/* "" = the layer keeps nothing. */
static void name_cache(const Graph *g, int layer, char text[CACHE_TEXT])
{
	bool is_rotated = false;
	text[0] = 0;
	for (int i = 0; i < g->n_ops; i++) {
		const GraphOp *op = &g->ops[i];
		if (op->layer != layer)
			continue;
		is_rotated |= op->kind == OP_rope && op->attrs.rotate;
		if (op->kind == OP_kv_write) {
			const char *name = cache_name(g->tensors[op->operands[op_operand(OP_kv_write, "kv")]].dtype);
			snprintf(text, CACHE_TEXT, "%s%s", name ? name : "", is_rotated ? " rotated" : "");
			return;
		}
		if (op->kind == OP_delta_rule || op->kind == OP_delta_verify) {
			const Tensor *t = &g->tensors[op->operands[op_operand(op->kind, "delta")]];
			snprintf(text, CACHE_TEXT, "state %s", dtype_name(t->dtype));
			return;
		}
	}
}

void print_caches(const Graph *g, FILE *out)
{
	const int n = g->n_layers + 1;
	char(*names)[CACHE_TEXT] = calloc((size_t)n, sizeof *names);
	bool any = false;
	for (int l = 0; names && l < n; l++)
		name_cache(g, l, names[l]);
	for (int l = 0; names && l < n; l++) {
		bool is_first = names[l][0];
		for (int k = 0; is_first && k < l; k++)
			is_first = strcmp(names[k], names[l]) != 0;
		if (!is_first)
			continue;
		fprintf(out, "%s%s", any ? "; " : "", names[l]);
		any = true;
		const char *between = " ";
		for (int k = l, end; k < n; k = end) {
			for (end = k; end < n && strcmp(names[end], names[l]) == 0;)
				end++;
			const int last = end < n ? end - 1 : g->n_layers - 1; /* of the model's own layers */
			if (end > k) {
				if (last >= k)
					fprintf(out, last > k ? "%s%d-%d" : "%s%d", between, k, last);
				if (end == n)
					fprintf(out, "%shead", last >= k ? ", " : between);
				between = ", ";
			} else {
				end = k + 1;
			}
		}
	}
	if (!any)
		fputs("none", out);
	free(names);
}
