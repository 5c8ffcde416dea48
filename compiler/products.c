/* products.c - the weight of a product, in whatever format the checkpoint holds it.
 *
 * Which format a module M has is seen from its tensors, and from nothing else:
 *
 *   plain    M.weight BF16, F16 or F32 [N,K]
 *   FP8      M.weight F8_E4M3 [N,K], and of scales, which multiply,
 *              by block   M.weight_scale_inv or M.weight_scale [ceil(N / BLOCK_N), ceil(K / BLOCK_K)]
 *              by tensor  one in M.weight_scale or M.weight_scale_inv
 *              by row     M.weight_scale [N] or [N,1]
 *   NVFP4    M.weight U8 [N,K/2], M.weight_scale F8_E4M3 [N,K/16], one in M.weight_scale_2, all multiply; or
 *            M.weight_packed U8 [N,K/2], M.weight_scale the same, one in M.weight_global_scale, which divides
 *   MXFP4    M.weight_packed U8 [N,K/2], M.weight_scale U8 or F8_E8M0 [N,K/32], exponents
 *
 * A byte of U8 holds two e2m1 elements, the one of even k in its low half. In the graph all of these are one thing
 * (ops.h): codes, block scales as the file has them, and a scale for each row, in f32. The last is made here: from one
 * value for the tensor, or for each row, or from the reciprocal of a divisor. So joined tensors keep their own.
 *
 * Scales are looked at before they are believed, small tensors of them here and large ones as they are copied (emit.c).
 * Scales of activations are checked too, and then not used: what is multiplied is the weights' values.
 */
#include "artifacts/numbers.h"
#include "compiler/ir.h"
#include "compiler/value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NVFP4_GROUP = 16, MXFP4_GROUP = 32, SMALL_BYTES = 1 << 20, MAX_TOGETHER = 4 };

typedef enum Format { PLAIN, FP8_BLOCK, FP8_TENSOR, FP8_ROW, NVFP4_TIMES, NVFP4_OVER, MXFP4 } Format;
static const char *const format_names[] = {"plain", "FP8 by block", "FP8 by tensor", "FP8 by row", "NVFP4", "NVFP4",
	"MXFP4"};

typedef struct Stored { /* a module as the checkpoint holds it */
	const char *module;
	int64_t rows, cols;
	Format format;
	StTensor *codes;
	StTensor *scale;  /* of blocks, or of rows */
	StTensor *second; /* one value: for the tensor, or the second level */
	int block_n, block_k;
} Stored;

static StTensor *find(Compile *c, const char *module, const char *part)
{
	return g_find_tensor(c, arena_printf(&c->scratch, "%s.%s", module, part));
}

static Loc loc_of(const Compile *c, const StTensor *t) { return (Loc){c->model.shards.at[t->shard].path, 0, 0}; }
static bool is_type(const StTensor *t, const char *text) { return t && strcmp(t->dtype_text, text) == 0; }

static int64_t elements_of(const StTensor *t)
{
	int64_t n = 1;
	for (int i = 0; i < t->n_dims; i++)
		n *= t->shape[i];
	return n;
}

/* A byte where no header has a name for its type. */
static Dtype scale_dtype(const StTensor *t) { return is_type(t, "U8") ? DT_e8m0 : t->dtype; }

int64_t first_bad_scale(Dtype dtype, const void *scales, int64_t n)
{
	const uint8_t *bytes = scales;
	for (int64_t i = 0; i < n; i++) {
		float value;
		if (dtype == DT_e4m3 ? bytes[i] > 0 && bytes[i] < 0x7f : dtype == DT_e8m0 && bytes[i] < 0xff)
			continue;
		numbers_convert(dtype, scales, i, 1, &value);
		if (!(value > 0 && value < INFINITY))
			return i;
	}
	return -1;
}

/* Values ------------------------------------------------------------------------------------------- */

/* All scales of a tensor as f32, or NULL after having said what is wrong. */
static float *read_scales(Compile *c, const StTensor *t)
{
	const int64_t n = elements_of(t);
	void *raw = arena_alloc(&c->scratch, (size_t)t->bytes + 1);
	float *values = ARENA_ARRAY(&c->scratch, float, n + 1);
	if (!read_tensor(c, t, raw))
		return NULL;
	numbers_convert(scale_dtype(t), raw, 0, n, values);
	int64_t bad = first_bad_scale(scale_dtype(t), raw, n);
	if (bad < 0)
		return values;
	fail_at(&c->diags, A0606, loc_of(c, t), "tensor %s: element %lld of %lld is %g: expected a positive number",
		t->name, (long long)bad, (long long)n, (double)values[bad]);
	return NULL;
}

static bool fail_type(Compile *c, const StTensor *t, const Stored *s, const char *expected)
{
	return fail_at(&c->diags, A0603, loc_of(c, t), "tensor %s has dtype %s: expected %s for %s", t->name, t->dtype_text,
		expected, format_names[s->format]);
}

static bool check_shape(Compile *c, const StTensor *t, const Stored *s, int64_t d0, int64_t d1)
{
	if (t->n_dims == 2 && t->shape[0] == d0 && t->shape[1] == d1)
		return true;
	return fail_at(&c->diags, A0602, loc_of(c, t), "tensor %s has shape %s: %s of [%lld, %lld] asks for [%lld, %lld]",
		t->name, g_shape_text(c, t->n_dims, t->shape), format_names[s->format], (long long)s->rows, (long long)s->cols,
		(long long)d0, (long long)d1);
}

/* A scale that stands alone: of any shape of one element. */
static bool check_single(Compile *c, const StTensor *t, const Stored *s)
{
	if (!is_type(t, "F32") && !is_type(t, "BF16") && !is_type(t, "F16"))
		return fail_type(c, t, s, "F32, BF16 or F16");
	return elements_of(t) == 1 || fail_at(&c->diags, A0602, loc_of(c, t), "tensor %s has shape %s: %s of [%lld, %lld] "
		"asks for one element", t->name, g_shape_text(c, t->n_dims, t->shape), format_names[s->format],
		(long long)s->rows, (long long)s->cols);
}

/* What a module is stored as ------------------------------------------------------------------------------ */

static bool fail_missing(Compile *c, const Stored *s, const char *part)
{
	return fail_at(&c->diags, A0601, loc_of(c, s->codes), "tensor %s.%s is missing: %s is %s", s->module, part,
		s->codes->name, s->codes->dtype_text);
}

static void find_block(Compile *c, Stored *s)
{
	for (int i = 0; i < c->model.quant.targets.n && !s->block_n; i++) {
		const QuantTarget *t = &c->model.quant.targets.at[i];
		if (t->block_n && quant_matches(&t->modules, &s->module, 1, NULL)) {
			s->block_n = t->block_n;
			s->block_k = t->block_k;
		}
	}
}

static bool see_fp8(Compile *c, Stored *s)
{
	StTensor *inverse = find(c, s->module, "weight_scale_inv"), *scale = find(c, s->module, "weight_scale");
	StTensor *t = inverse ? inverse : scale; /* the other is then read by nobody, which is told */
	if (!t)
		return fail_missing(c, s, "weight_scale");
	find_block(c, s);
	s->scale = t;
	if (s->block_n && t->n_dims == 2) {
		s->format = FP8_BLOCK;
		return true;
	}
	s->block_n = s->block_k = 0;
	if (elements_of(t) == 1) {
		s->format = FP8_TENSOR;
		s->second = t;
		s->scale = NULL;
		return true;
	}
	s->format = FP8_ROW;
	if (!inverse && t->shape[0] == s->rows && (t->n_dims == 1 || (t->n_dims == 2 && t->shape[1] == 1)))
		return true;
	return fail_at(&c->diags, A0602, loc_of(c, t), "tensor %s has shape %s: expected [], [%lld] or [%lld, 1] with "
		"[%lld, %lld] of F8_E4M3, or a block size in config.json", t->name, g_shape_text(c, t->n_dims, t->shape),
		(long long)s->rows, (long long)s->rows, (long long)s->rows, (long long)s->cols);
}

/* The format and the tensors of it. False when there is no telling, which is then an error, or nothing at all. */
static bool see_module(Compile *c, Stored *s)
{
	StTensor *packed = find(c, s->module, "weight_packed");
	s->codes = packed ? packed : find(c, s->module, "weight");
	s->scale = s->codes ? find(c, s->module, "weight_scale") : NULL;
	if (is_type(s->codes, "F8_E4M3") && !packed)
		return see_fp8(c, s);
	if (!packed && !is_type(s->codes, "U8")) {
		s->format = PLAIN;
		return true;
	}
	s->second = find(c, s->module, packed ? "weight_global_scale" : "weight_scale_2");
	s->format = !packed ? NVFP4_TIMES : s->second ? NVFP4_OVER : MXFP4;
	s->block_n = 1;
	s->block_k = s->format == MXFP4 ? MXFP4_GROUP : NVFP4_GROUP;
	if (!packed && !s->second)
		return fail_missing(c, s, "weight_scale_2");
	return s->scale || fail_missing(c, s, "weight_scale");
}

static bool check_block_scales(Compile *c, const Stored *s)
{
	const StTensor *t = s->scale;
	int64_t rows = (s->rows + s->block_n - 1) / s->block_n, cols = (s->cols + s->block_k - 1) / s->block_k;
	bool is_right = s->format == FP8_BLOCK ? is_type(t, "F32") || is_type(t, "BF16") || is_type(t, "F8_E8M0")
		: s->format == MXFP4 ? is_type(t, "U8") || is_type(t, "F8_E8M0") : is_type(t, "F8_E4M3");
	if (!is_right)
		return fail_type(c, t, s, s->format == FP8_BLOCK ? "F32, BF16 or F8_E8M0" : s->format == MXFP4
			? "U8 or F8_E8M0" : "F8_E4M3");
	return check_shape(c, t, s, rows, cols) && (t->bytes > SMALL_BYTES || read_scales(c, t));
}

static bool check_stored(Compile *c, const Stored *s)
{
	bool is_narrow = s->format >= NVFP4_TIMES;
	if (is_narrow && !is_type(s->codes, "U8"))
		return fail_type(c, s->codes, s, "U8");
	if (is_narrow && s->cols % s->block_k)
		return fail_at(&c->diags, A0602, loc_of(c, s->codes), "tensor %s: rows of %lld elements are no whole number of "
			"groups of %d, as %s has them", s->codes->name, (long long)s->cols, s->block_k, format_names[s->format]);
	bool ok = check_shape(c, s->codes, s, s->rows, is_narrow ? s->cols / 2 : s->cols);
	if (s->scale && s->format != FP8_ROW)
		ok &= check_block_scales(c, s);
	if (s->scale && s->format == FP8_ROW && !is_type(s->scale, "F32") && !is_type(s->scale, "BF16")
			&& !is_type(s->scale, "F16"))
		ok = fail_type(c, s->scale, s, "F32, BF16 or F16");
	if (s->second)
		ok &= check_single(c, s->second, s);
	return ok;
}

/* Scales by which a writer would have quantised what the product reads. */
static bool check_input_scales(Compile *c, const Stored *s)
{
	static const char *const names[] = {"input_scale", "input_global_scale", "activation_scale"};
	bool ok = true;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		StTensor *t = find(c, s->module, names[i]);
		if (!t || s->format == PLAIN)
			continue;
		t->used_by++;
		ok &= check_single(c, t, s) && read_scales(c, t);
		if (!c->is_input_scale_told)
			note_at(&c->diags, A0607, loc_of(c, t), "%s is not used, and none like it: products read bf16", t->name);
		c->is_input_scale_told = true;
	}
	return ok;
}

/* Operands ------------------------------------------------------------------------------------------- */

static int add_tensor(Compile *c, StTensor *t, Dtype dtype, int64_t d0, int64_t d1)
{
	t->used_by++;
	return g_add_weight(c, &(Weight){.name = t->name, .dtype = dtype, .n_dims = 2, .shape = {d0, d1}, .bytes = t->bytes,
		.file = c->model.shards.at[t->shard].name, .file_offset = t->offset});
}

/* A scale for each row, from one for all or from one each; -1 when the format has none. */
static int add_row_scale(Compile *c, const Stored *s)
{
	StTensor *t = s->format == FP8_ROW ? s->scale : s->second;
	if (!t)
		return -1;
	t->used_by++;
	const float *values = read_scales(c, t);
	float *rows = ARENA_ARRAY(&c->scratch, float, s->rows);
	for (int64_t n = 0; values && n < s->rows; n++) {
		float value = values[s->format == FP8_ROW ? n : 0];
		rows[n] = s->format == NVFP4_OVER ? 1 / value : value;
	}
	return g_constant(c, arena_printf(&c->arena, "atlas.%s.row_scale", s->module), DT_f32, (int)s->rows, rows);
}

/* A module whose format is not known or not right: its tensors count as read, so that one mistake is told once. */
static void give_up(Compile *c, Stored *s)
{
	static const char *const parts[] = {"weight", "weight_packed", "weight_scale", "weight_scale_inv", "weight_scale_2",
		"weight_global_scale"};
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		StTensor *t = find(c, s->module, parts[i]);
		if (t)
			t->used_by++;
	}
	s->format = PLAIN;
	s->scale = s->second = NULL;
}

static int add_codes(Compile *c, const Stored *s, bool is_right)
{
	if (!is_right)
		return g_add_weight(c, &(Weight){.name = arena_printf(&c->arena, "%s.weight", s->module), .dtype = DT_bf16,
			.n_dims = 2, .shape = {s->rows, s->cols}});
	if (s->format == PLAIN)
		return g_weight(c, arena_printf(&c->arena, "%s.weight", s->module), 2, s->rows, s->cols);
	return add_tensor(c, s->codes, s->format >= NVFP4_TIMES ? DT_e2m1 : DT_e4m3, s->rows, s->cols);
}

void g_products(Compile *c, int n, const char *const *modules, const int64_t *rows, int64_t cols, Product *out)
{
	Stored stored[MAX_TOGETHER] = {{0}};
	if (n > MAX_TOGETHER)
		bug("%d products of one input", n);
	for (int i = 0; i < n; i++) {
		Stored *s = &stored[i];
		*s = (Stored){.module = modules[i], .rows = rows[i], .cols = cols};
		bool is_right = see_module(c, s) && (s->format == PLAIN || (check_stored(c, s) && check_input_scales(c, s)));
		if (!is_right)
			give_up(c, s);
		*vec_push(&c->arena, &c->modules) = (Module){arena_strdup(&c->arena, s->module), s->format != PLAIN};
		out[i] = (Product){add_codes(c, s, is_right), -1, -1, 0, 0};
	}
	for (int i = 0; i < n; i++) {
		const Stored *s = &stored[i];
		if (!s->scale || s->format == FP8_ROW || s->format == PLAIN)
			continue;
		out[i].block_n = s->block_n;
		out[i].block_k = s->block_k;
		out[i].scale = add_tensor(c, s->scale, scale_dtype(s->scale), s->scale->shape[0], s->scale->shape[1]);
	}
	for (int i = 0; i < n; i++)
		if (stored[i].format != PLAIN)
			out[i].row_scale = add_row_scale(c, &stored[i]);
}

void g_linear(Compile *c, int layer, int phases, const Product *p, int x, int bias, int y)
{
	const Attrs block = {.block_n = p->block_n, .block_k = p->block_k};
	g_op(c, OP_linear, layer, phases, &block, (int[]){x, p->w, p->scale, p->row_scale, bias, y});
}

/* Lists ------------------------------------------------------------------------------------------------ */

/* "a.b.c" and "a.b" and "a" of each tensor "a.b.c.weight", and the head, which may be tied. */
static const char **all_modules(Compile *c, int *n)
{
	VEC(const char *) names = {0};
	*vec_push(&c->scratch, &names) = "lm_head";
	for (int i = 0; i < c->model.tensors.n; i++) {
		char *name = arena_strdup(&c->scratch, c->model.tensors.at[i].name), *dot;
		while ((dot = strrchr(name, '.'))) {
			*dot = 0;
			bool is_known = false; /* tensors are sorted: a name that was seen stands among the last */
			for (int k = names.n - 1; k >= 0 && k >= names.n - 8 && !is_known; k--)
				is_known = strcmp(names.at[k], name) == 0;
			if (is_known)
				break;
			*vec_push(&c->scratch, &names) = arena_strdup(&c->scratch, name);
		}
	}
	*n = names.n;
	return names.at;
}

static void check_ignored_modules(Compile *c)
{
	const Quant *q = &c->model.quant;
	const QuantPattern *idle = NULL;
	int n, n_idle = 0;
	const char **names = all_modules(c, &n);
	for (int i = 0; i < q->ignore.n; i++)
		if (!quant_matches(&q->ignore.at[i], names, n, NULL))
			idle = n_idle++ ? idle : &q->ignore.at[i];
	const char *text = idle ? clip_text(c->diags.arena, idle->text, strlen(idle->text), 80) : "";
	if (n_idle && n_idle == q->ignore.n)
		fail_at(&c->diags, A0609, idle->at, "\"%s\"%s: no module of the checkpoint has such a name, and the list "
			"names no other", text, n_idle > 1 ? arena_printf(c->diags.arena, " and %d more", n_idle - 1) : "");
	else if (n_idle)
		note_at(&c->diags, A0608, idle->at, "\"%s\"%s: no module of the checkpoint has such a name", text,
			n_idle > 1 ? arena_printf(c->diags.arena, " and %d more", n_idle - 1) : "");
}

/* One note for all modules that are (or are not) quantised against the lists. */
static void note_unlisted(Compile *c, const bool *is_listed, bool is_quantised, Loc at)
{
	const Module *first = NULL;
	int n = 0;
	for (int i = 0; i < c->modules.n; i++) {
		const Module *m = &c->modules.at[i];
		bool by_itself = !is_quantised && c->model.quant.name && strcmp(c->model.quant.name, "fp8") == 0
			&& strcmp(m->name, "lm_head") == 0; /* those writers leave the head alone without a word */
		if (m->is_quantised == is_quantised && is_listed[i] != is_quantised && !by_itself)
			first = n++ ? first : m;
	}
	if (n)
		note_at(&c->diags, A0608, at, "%s%s quantized, and the lists of quantized modules say otherwise: the tensors "
			"decide", first->name,
			n > 1 ? arena_printf(&c->scratch, " and %d others are%s", n - 1, is_quantised ? "" : " not")
			: is_quantised ? " is" : " is not");
}

void check_quant_lists(Compile *c)
{
	const Quant *q = &c->model.quant;
	const int n = c->modules.n;
	const char **names = ARENA_ARRAY(&c->scratch, const char *, n + 1);
	bool *is_listed = ARENA_ARRAY(&c->scratch, bool, n + 1), *is_ignored = ARENA_ARRAY(&c->scratch, bool, n + 1);
	for (int i = 0; i < n; i++)
		names[i] = c->modules.at[i].name;
	for (int i = 0; i < q->targets.n; i++)
		quant_matches(&q->targets.at[i].modules, names, n, is_listed);
	for (int i = 0; i < q->ignore.n; i++)
		quant_matches(&q->ignore.at[i], names, n, is_ignored);
	for (int i = 0; i < n; i++)
		is_listed[i] &= !is_ignored[i];
	Loc at = q->at.file ? q->at : (Loc){c->model.config.at_hidden_dim.file, 0, 0};
	note_unlisted(c, is_listed, true, at);
	note_unlisted(c, is_listed, false, at);
	if (q->ignore.n)
		check_ignored_modules(c);
}
