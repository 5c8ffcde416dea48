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
 *   MXFP4    M.weight_packed or M.weight U8 [N,K/2], M.weight_scale U8 or F8_E8M0 [N,K/32], exponents
 *   INT4     M.qweight I32, or M.weight_packed I32, with scales and zeros of groups: int4.c
 *
 * Weights that are read as one have a common grid of blocks only if each ends where a block does. Where one ends
 * within, as 192 rows do in blocks of 128, blocks are split into equal ones of fewer rows (64) that have the same
 * scale.
 *
 * The matrices of all experts may also be one tensor M [E,N,K], plain or FP8 by block with M_scale_inv.
 *
 * A product is put together from rows of such modules: q and the gate of a head that stand in turns in one tensor
 * become two products, and the matrices of experts one. A row is where it is in the file, so this costs ranges, no
 * copy.
 *
 * A byte of U8 holds two e2m1 elements, the one of even k in its low half. In the graph all of these are one thing
 * (ops.h): codes, block scales as the file has them, and a scale for each row, in f32. The last is made here: from one
 * value for the tensor, or for each row, or from the reciprocal of a divisor. So joined tensors keep their own.
 *
 * Scales of INT4 are made with their zeros, and its codes where they lie in columns. Where no tensor has them, codes
 * and scales are made: where [quant] asks for it (requant.c), and by --random-weights,
 * which has no tensors and goes by what config.json says (random_weights.c).
 *
 * Scales are looked at before they are believed, small tensors of them here and large ones as they are copied (emit.c).
 * Scales of activations are checked too, and then not used: what is multiplied is the weights' values.
 */
#include "artifacts/numbers.h"
#include "compiler/int4.h"
#include "compiler/value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SMALL_BYTES = 1 << 20, MAX_TOGETHER = 4 };

/* Its name in messages, and what is made for it: codes, block scales, and a scale a row where it has one. */
static const struct Format { const char *name; Dtype codes, scale; bool has_row_scale; } formats[FORMAT_COUNT] = {
	[FORMAT_PLAIN] = {"plain", DT_bf16, DT_f32, false}, /* its codes have the source's dtype */
	[FORMAT_FP8_BLOCK] = {"FP8 by block", DT_e4m3, DT_f32, false},
	[FORMAT_FP8_TENSOR] = {"FP8 by tensor", DT_e4m3, DT_f32, true},
	[FORMAT_FP8_CHANNEL] = {"FP8 by row", DT_e4m3, DT_f32, true},
	[FORMAT_NVFP4] = {"NVFP4", DT_e2m1, DT_e4m3, true},
	[FORMAT_NVFP4_OVER] = {"NVFP4", DT_e2m1, DT_e4m3, true},
	[FORMAT_MXFP4] = {"MXFP4", DT_e2m1, DT_e8m0, false},
	[FORMAT_INT4] = {"INT4", DT_u4, DT_f32z, false},
};

typedef struct Stored { /* a module as the checkpoint holds it */
	const char *module;
	int64_t rows, cols;
	int experts;      /* of whose matrices it is one tensor; 0 = it is one matrix */
	WeightFormat format;
	StTensor *codes;
	StTensor *scale;  /* of blocks, or of rows */
	StTensor *second; /* one value: for the tensor, or the second level */
	int block_n, block_k;
	int made;         /* index in Compile.made, -1 = it is stored so */
} Stored;

static StTensor *find(Compile *c, const char *module, const char *part)
{
	return g_find_tensor(c, arena_printf(&c->scratch, "%s.%s", module, part));
}

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
		expected, formats[s->format].name);
}

static bool check_shape(Compile *c, const StTensor *t, const Stored *s, int64_t d0, int64_t d1)
{
	if (t->n_dims == 2 && t->shape[0] == d0 && t->shape[1] == d1)
		return true;
	*vec_push(&c->arena, &c->misfits) = (Misfit){t, 2, {d0, d1}};
	return fail_at(&c->diags, A0602, loc_of(c, t), "tensor %s has shape %s: %s of [%lld, %lld] asks for [%lld, %lld]",
		t->name, g_shape_text(c, t->n_dims, t->shape), formats[s->format].name, (long long)s->rows, (long long)s->cols,
		(long long)d0, (long long)d1);
}

/* A scale that stands alone: of any shape of one element. */
static bool check_single(Compile *c, const StTensor *t, const Stored *s)
{
	if (!is_type(t, "F32") && !is_type(t, "BF16") && !is_type(t, "F16"))
		return fail_type(c, t, s, "F32, BF16 or F16");
	return elements_of(t) == 1 || fail_at(&c->diags, A0602, loc_of(c, t), "tensor %s has shape %s: %s of [%lld, %lld] "
		"asks for one element", t->name, g_shape_text(c, t->n_dims, t->shape), formats[s->format].name,
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
		s->format = FORMAT_FP8_BLOCK;
		return true;
	}
	s->block_n = s->block_k = 0;
	if (elements_of(t) == 1) {
		s->format = FORMAT_FP8_TENSOR;
		s->second = t;
		s->scale = NULL;
		return true;
	}
	s->format = FORMAT_FP8_CHANNEL;
	if (!inverse && t->shape[0] == s->rows && (t->n_dims == 1 || (t->n_dims == 2 && t->shape[1] == 1)))
		return true;
	return fail_at(&c->diags, A0602, loc_of(c, t), "tensor %s has shape %s: expected [], [%lld] or [%lld, 1] with "
		"[%lld, %lld] of F8_E4M3, or a block size in config.json", t->name, g_shape_text(c, t->n_dims, t->shape),
		(long long)s->rows, (long long)s->rows, (long long)s->rows, (long long)s->cols);
}

/* Whose codes or scales are made from what the file has. */
static bool see_int4(Compile *c, Stored *s)
{
	MadeProduct p;
	if (!int4_see(c, s->module, s->rows, s->cols, &p, &s->codes))
		return false;
	s->format = FORMAT_INT4;
	s->block_n = p.block_n;
	s->block_k = p.block_k;
	s->made = c->made.n;
	*vec_push(&c->arena, &c->made) = p;
	return true;
}

/* The format and the tensors of it. False when there is no telling, which is then an error, or nothing at all. */
static bool see_module(Compile *c, Stored *s)
{
	if (int4_is_stored(c, s->module))
		return see_int4(c, s);
	StTensor *packed = find(c, s->module, "weight_packed");
	s->codes = packed ? packed : find(c, s->module, "weight");
	s->scale = s->codes ? find(c, s->module, "weight_scale") : NULL;
	if (is_type(s->codes, "F8_E4M3") && !packed)
		return see_fp8(c, s);
	if (!packed && !is_type(s->codes, "U8")) {
		s->format = FORMAT_PLAIN;
		return true;
	}
	s->second = find(c, s->module, packed ? "weight_global_scale" : "weight_scale_2");
	bool has_exponents = !s->second && (packed || is_type(s->scale, "U8") || is_type(s->scale, "F8_E8M0"));
	s->format = has_exponents ? FORMAT_MXFP4 : packed ? FORMAT_NVFP4_OVER : FORMAT_NVFP4;
	s->block_n = 1;
	s->block_k = s->format == FORMAT_MXFP4 ? MXFP4_GROUP : NVFP4_GROUP;
	if (s->format == FORMAT_NVFP4 && !s->second)
		return fail_missing(c, s, "weight_scale_2");
	return s->scale || fail_missing(c, s, "weight_scale");
}

static bool check_block_scales(Compile *c, const Stored *s)
{
	const StTensor *t = s->scale;
	int64_t rows = (s->rows + s->block_n - 1) / s->block_n, cols = (s->cols + s->block_k - 1) / s->block_k;
	bool is_right = s->format == FORMAT_FP8_BLOCK ? is_type(t, "F32") || is_type(t, "BF16") || is_type(t, "F8_E8M0")
		: s->format == FORMAT_MXFP4 ? is_type(t, "U8") || is_type(t, "F8_E8M0") : is_type(t, "F8_E4M3");
	if (!is_right)
		return fail_type(c, t, s, s->format == FORMAT_FP8_BLOCK ? "F32, BF16 or F8_E8M0" : s->format == FORMAT_MXFP4
			? "U8 or F8_E8M0" : "F8_E4M3");
	return check_shape(c, t, s, rows, cols) && (t->bytes > SMALL_BYTES || read_scales(c, t));
}

static bool check_stored(Compile *c, const Stored *s)
{
	bool is_narrow = s->format >= FORMAT_NVFP4;
	if (s->format == FORMAT_INT4) /* int4.c */
		return true;
	if (is_narrow && !is_type(s->codes, "U8"))
		return fail_type(c, s->codes, s, "U8");
	if (is_narrow && s->cols % s->block_k)
		return fail_at(&c->diags, A0602, loc_of(c, s->codes), "tensor %s: rows of %lld elements are no whole number of "
			"groups of %d, as %s has them", s->codes->name, (long long)s->cols, s->block_k, formats[s->format].name);
	bool ok = check_shape(c, s->codes, s, s->rows, is_narrow ? s->cols / 2 : s->cols);
	if (s->scale && s->format != FORMAT_FP8_CHANNEL)
		ok &= check_block_scales(c, s);
	if (s->scale && s->format == FORMAT_FP8_CHANNEL && !is_type(s->scale, "F32") && !is_type(s->scale, "BF16")
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
		if (!t || s->format == FORMAT_PLAIN)
			continue;
		t->used_by++;
		ok &= check_single(c, t, s) && read_scales(c, t);
		if (!c->is_input_scale_told)
			note_at(&c->diags, A0607, loc_of(c, t), "%s is not used, and none like it: products read bf16", t->name);
		c->is_input_scale_told = true;
	}
	return ok;
}

/* Which are made here ------------------------------------------------------------------------------------ */

/* The line of [quant] about a module, or NULL. */
static QuantRule *rule_of(Compile *c, const char *module)
{
	QuantRule *first = NULL;
	for (int i = 0; i < c->model.options.quant.n; i++) {
		QuantRule *rule = &c->model.options.quant.at[i];
		if (!quant_matches(&rule->modules, &module, 1, NULL))
			continue;
		rule->was_met = true;
		first = first ? first : rule;
	}
	return first && first->format != FORMAT_PLAIN ? first : NULL;
}

/* Do they so without a word? */
static bool writers_leave_head(const Quant *q)
{
	return q->name && (strcmp(q->name, "fp8") == 0 || strcmp(q->name, "awq") == 0 || strcmp(q->name, "gptq") == 0);
}

/* What the files say that a module is stored as, where there are no tensors to see it from; NULL = plain. */
static const QuantTarget *target_of(const Compile *c, const char *module)
{
	const Quant *q = &c->model.quant;
	bool leaves_head = writers_leave_head(q) && strcmp(module, "lm_head") == 0;
	for (int i = 0; i < q->ignore.n; i++)
		leaves_head |= quant_matches(&q->ignore.at[i], &module, 1, NULL) > 0;
	for (int i = 0; i < q->targets.n && !leaves_head; i++)
		if (quant_matches(&q->targets.at[i].modules, &module, 1, NULL))
			return &q->targets.at[i];
	return NULL;
}

/* The blocks of s->format, and that its rows are whole numbers of them where they must be. */
static bool set_blocks(Compile *c, Stored *s, const QuantTarget *listed, Loc at)
{
	const bool is_narrow = s->format >= FORMAT_NVFP4;
	s->block_n = s->block_k = 0;
	if (is_narrow) {
		s->block_n = 1;
		s->block_k = s->format == FORMAT_MXFP4 ? MXFP4_GROUP : s->format != FORMAT_INT4 ? NVFP4_GROUP
			: listed->block_k ? listed->block_k : (int)s->cols;
	} else if (s->format == FORMAT_FP8_BLOCK) {
		s->block_n = listed && listed->block_n ? listed->block_n : FP8_BLOCK;
		s->block_k = listed && listed->block_k ? listed->block_k : FP8_BLOCK;
	}
	return !is_narrow || s->cols % s->block_k == 0 || fail_at(&c->diags, A0602, at, "%s: rows of %lld elements are no "
		"whole number of groups of %d, as %s has them", s->module, (long long)s->cols, s->block_k,
		formats[s->format].name);
}

void check_quant_rules(Compile *c)
{
	for (int i = 0; i < c->model.options.quant.n; i++) {
		const QuantRule *rule = &c->model.options.quant.at[i];
		if (!rule->was_met)
			fail_at(&c->diags, A0305, rule->modules.at, "quant.\"%s\": the model has no such product",
				rule->modules.text);
		if (rule->n_in_parts)
			fail_at(&c->diags, A0206, rule->modules.at, "quant.\"%s\": %s%s: read as parts of products, and only one "
				"that is a tensor by itself can be quantized here; another line may keep them", rule->modules.text,
				rule->in_parts, rule->n_in_parts > 1
				? arena_printf(&c->scratch, " and %d more", rule->n_in_parts - 1) : "");
	}
}

/* Operands ------------------------------------------------------------------------------------------- */

typedef struct Part { Stored *s; int64_t first, n; } Part; /* rows of a module */

/* A product in the making: its parts in order, of one format. */
typedef struct Making {
	const ProductSpec *spec;
	Part *parts;      /* [spec->n_pieces] */
	int64_t rows, cols;
	bool is_right;    /* else its tensors are only there so that the graph can go on */
	int block_n;      /* rows of a block in the graph, of which the file's may have a multiple */
} Making;

/* The product is made while it is written, of the module's first rows. */
static bool make_here(Compile *c, const Making *m, Stored *s, WeightFormat format, const QuantTarget *listed, Loc at)
{
	StTensor *t = s->codes;
	s->format = format;
	if (!set_blocks(c, s, listed, at))
		return false;
	s->made = c->made.n;
	MadeProduct *p = vec_push(&c->arena, &c->made);
	*p = (MadeProduct){.format = s->format, .rows = m->rows, .cols = m->cols, .block_n = s->block_n,
		.block_k = s->block_k, .codes = -1, .scale = -1, .row_scale = -1};
	if (!t)
		return true;
	t->used_by++;
	p->source = (Weight){.name = t->name, .dtype = t->dtype, .n_dims = 2, .shape = {m->rows, m->cols},
		.bytes = t->bytes,
		.file = c->model.shards.at[t->shard].name, .file_offset = t->offset};
	return true;
}

/* Codes and scales that no tensor holds: as [quant] asks, from a module that is not quantised, or, with
 * --random-weights, as the files say. s: the first part's module. False after having said why that cannot be. */
static bool see_made(Compile *c, const Making *m, Stored *s)
{
	const bool is_random = c->cmd.random_weights;
	QuantRule *rule = rule_of(c, s->module);
	const QuantTarget *listed = is_random && !rule ? target_of(c, s->module) : NULL;
	const Loc at = rule ? rule->modules.at : listed ? listed->modules.at : (Loc){0};
	StTensor *t = s->codes;
	if (!rule && !listed)
		return true;
	if (s->format != FORMAT_PLAIN)
		return fail_at(&c->diags, A0304, at, "quant.\"%s\": %s is %s in the checkpoint, and only what is not quantized "
			"can be", rule->modules.text, s->module, formats[s->format].name);
	if (listed && listed->format == FORMAT_PLAIN)
		return fail_at(&c->diags, A0208, at, "\"%s\": the files do not say in which format, and --random-weights has "
			"no tensors to see it from", listed->modules.text);
	if (t && (m->spec->n_pieces > 1 || m->rows != s->rows || s->experts)) {
		if (m->parts[0].first == 0 && rule->n_in_parts++ == 0) /* once a module */
			rule->in_parts = arena_strdup(&c->arena, s->module);
		return false;
	}
	return make_here(c, m, s, rule ? rule->format : listed->format, listed, at);
}

static const char *part_name(Compile *c, const Part *p, const char *of)
{
	return p->n == p->s->rows ? of : arena_printf(&c->arena, "%s[%lld:%lld]", of, (long long)p->first,
		(long long)(p->first + p->n));
}

/* Of m's `rows` rows (codes, or scales of them): a matrix, or one for each expert. */
static int shape_of(const Making *m, int64_t rows, int64_t cols, int64_t shape[3])
{
	if (!m->spec->experts)
		return memcpy(shape, (int64_t[]){rows, cols}, 2 * sizeof *shape), 2;
	return memcpy(shape, (int64_t[]){m->spec->experts, rows / m->spec->experts, cols}, 3 * sizeof *shape), 3;
}

/* Rows [first, first + n) of a tensor that has so many bytes a row. */
static Weight part_weight(Compile *c, const Part *p, const StTensor *t, Dtype dtype, int64_t first, int64_t n,
	int64_t cols)
{
	return (Weight){.name = part_name(c, p, t->name), .dtype = dtype, .n_dims = 2, .shape = {n, cols},
		.bytes = dtype_span(dtype, n * cols), .file = c->model.shards.at[t->shard].name,
		.file_offset = t->offset + dtype_span(dtype, first * cols)};
}

/* One tensor of the parts' weights. A single one has the tensor's shape. */
static int add_parts(Compile *c, const Making *m, const char *what, int64_t rows, int64_t cols, Weight *w)
{
	const int n = m->spec->n_pieces;
	int64_t shape[3];
	int n_dims = shape_of(m, rows, cols, shape);
	if (n > 1)
		return g_add_weights(c, arena_printf(&c->arena, "%s%s", m->spec->name, what), n_dims, shape, n, w);
	w->n_dims = n_dims;
	memcpy(w->shape, shape, sizeof shape[0] * (size_t)n_dims);
	return g_add_weight(c, w);
}

/* Rows [rows, cols], or [rows] where cols is 0, that are a part of a product made here: which one, into *part. */
static int add_made(Compile *c, const Making *m, int *part, const char *what, Dtype dtype, int64_t rows, int64_t cols)
{
	Weight w = {.name = arena_printf(&c->arena, "atlas.%s.%s", m->spec->name, what), .dtype = dtype,
		.bytes = dtype_span(dtype, rows * (cols ? cols : 1))};
	w.n_dims = shape_of(m, rows, cols, w.shape) - (cols == 0);
	int t = g_add_weight(c, &w);
	*part = c->graph.tensors[t].weight;
	return t;
}

static int add_codes(Compile *c, const Making *m)
{
	const Stored *first = m->parts[0].s;
	const int n = m->spec->n_pieces;
	Dtype dtype = first->format != FORMAT_PLAIN ? formats[first->format].codes
		: first->codes ? first->codes->dtype : c->model.config.dtype;
	if (m->is_right && first->made >= 0) {
		MadeProduct *p = &c->made.at[first->made];
		const bool is_int4 = p->format == FORMAT_INT4 && p->source.file;
		if (is_int4)
			first->codes->used_by++;
		if (!is_int4 || p->layout != INT4_PACKED) /* else they lie in the file as they are read */
			return add_made(c, m, &p->codes, first->format == FORMAT_PLAIN ? "rows" : "codes", dtype, m->rows, m->cols);
	}
	Weight *w = ARENA_ARRAY(&c->scratch, Weight, n);
	if (!m->is_right || !first->codes) { /* of the latter, one made up: random_weights.c */
		int64_t shape[3];
		dtype = m->is_right ? dtype : DT_bf16;
		w[0] = (Weight){.name = arena_printf(&c->arena, "%s%s", m->spec->name, m->spec->is_fused ? "" : ".weight"),
			.dtype = dtype, .bytes = dtype_span(dtype, m->rows * m->cols)};
		w[0].n_dims = shape_of(m, m->rows, m->cols, shape);
		memcpy(w[0].shape, shape, sizeof shape[0] * (size_t)w[0].n_dims);
		return g_add_weight(c, &w[0]);
	}
	for (int i = 0; i < n; i++) {
		const Part *p = &m->parts[i];
		p->s->codes->used_by++;
		w[i] = part_weight(c, p, p->s->codes, dtype, p->first, p->n, m->cols);
	}
	return add_parts(c, m, ".weight", m->rows, m->cols, w);
}

/* The scales of a module's blocks, each as often as the smaller ones in it. */
static int add_split_scales(Compile *c, const Making *m, int64_t cols)
{
	StTensor *t = m->parts[0].s->scale;
	const Dtype dtype = scale_dtype(t);
	const int64_t rows = (m->rows - 1) / m->block_n + 1, bytes = dtype_span(dtype, cols);
	const int often = m->parts[0].s->block_n / m->block_n;
	uint8_t *stored = arena_alloc(&c->scratch, (size_t)t->bytes + 1);
	uint8_t *split = arena_alloc(&c->arena, (size_t)(rows * bytes));
	t->used_by++;
	if (read_tensor(c, t, stored))
		for (int64_t n = 0; n < rows; n++)
			memcpy(split + n * bytes, stored + n / often * bytes, (size_t)bytes);
	int tensor = g_add_weight(c, &(Weight){.name = arena_printf(&c->arena, "atlas.%s.scale", m->spec->name),
		.dtype = dtype, .n_dims = 2, .shape = {rows, cols}, .bytes = rows * bytes});
	*vec_push(&c->arena, &c->constants) = (Constant){c->graph.n_weights - 1, split};
	return tensor;
}

static int add_block_scales(Compile *c, const Making *m)
{
	const int n = m->spec->n_pieces;
	Weight *w = ARENA_ARRAY(&c->scratch, Weight, n);
	const Stored *first = m->parts[0].s;
	int64_t rows = 0, cols = (m->cols - 1) / first->block_k + 1;
	if (first->made >= 0) {
		const int64_t each = m->spec->experts ? m->rows / m->spec->experts : m->rows;
		return add_made(c, m, &c->made.at[first->made].scale, "scale", formats[first->format].scale,
			m->rows / each * ((each - 1) / m->block_n + 1), cols);
	}
	if (m->block_n < first->block_n)
		return add_split_scales(c, m, cols);
	for (int i = 0; i < n; i++) {
		const Part *p = &m->parts[i];
		const int64_t at = p->first / p->s->block_n, count = (p->n - 1) / p->s->block_n + 1;
		p->s->scale->used_by++;
		w[i] = part_weight(c, p, p->s->scale, scale_dtype(p->s->scale), at, count, cols);
		rows += count;
	}
	return add_parts(c, m, ".weight_scale", rows, cols, w);
}

/* A scale for each row, from one for all of a module or from one each; -1 when the format has none. */
static int add_row_scale(Compile *c, const Making *m)
{
	const Stored *first = m->parts[0].s;
	if (first->made >= 0)
		return formats[first->format].has_row_scale
			? add_made(c, m, &c->made.at[first->made].row_scale, "row_scale", DT_f32, m->rows, 0) : -1;
	if (!(first->format == FORMAT_FP8_CHANNEL ? first->scale : first->second))
		return -1;
	float *rows = ARENA_ARRAY(&c->arena, float, m->rows), *to = rows;
	for (int i = 0; i < m->spec->n_pieces; i++) {
		const Stored *s = m->parts[i].s;
		StTensor *t = s->format == FORMAT_FP8_CHANNEL ? s->scale : s->second;
		t->used_by++;
		const float *values = read_scales(c, t);
		for (int64_t n = m->parts[i].first; values && n < m->parts[i].first + m->parts[i].n; n++) {
			float value = values[s->format == FORMAT_FP8_CHANNEL ? n : 0];
			*to++ = s->format == FORMAT_NVFP4_OVER ? 1 / value : value;
		}
	}
	const char *name = arena_printf(&c->arena, "atlas.%s.row_scale", m->spec->name);
	if (!m->spec->experts)
		return g_constant(c, name, DT_f32, (int)m->rows, rows);
	int t = g_add_weight(c, &(Weight){.name = name, .dtype = DT_f32, .n_dims = 2,
		.shape = {m->spec->experts, m->rows / m->spec->experts}, .bytes = dtype_span(DT_f32, m->rows)});
	*vec_push(&c->arena, &c->constants) = (Constant){c->graph.n_weights - 1, rows};
	return t;
}

/* A module whose format is not known or not right: its tensors count as read, so that one mistake is told once. */
static void give_up(Compile *c, Stored *s)
{
	static const char *const parts[] = {"weight", "weight_packed", "weight_scale", "weight_scale_inv", "weight_scale_2",
		"weight_global_scale", "weight_zero_point", "weight_shape", "weight_g_idx", "qweight", "qzeros", "scales",
		"g_idx"};
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		StTensor *t = find(c, s->module, parts[i]);
		if (t)
			t->used_by++;
	}
	if (s->codes)
		s->codes->used_by++;
	s->format = FORMAT_PLAIN;
	s->scale = s->second = NULL;
}

static bool check_plain(Compile *c, const Stored *s)
{
	StTensor *t = s->codes;
	if (!t && c->cmd.random_weights)
		return true;
	const int64_t shape[] = {s->rows, s->cols};
	const int64_t experts[] = {s->experts, s->experts ? s->rows / s->experts : 0, s->cols};
	const int64_t *want = s->experts ? experts : shape;
	const int n_dims = s->experts ? 3 : 2;
	if (!t)
		return fail_at(&c->diags, A0601, (Loc){c->model.config.at_hidden_dim.file, 0, 0},
			"tensor %s%s is missing: %s needs it with shape %s", s->module, s->experts ? "" : ".weight",
			c->graph.family, g_shape_text(c, n_dims, want));
	bool is_right = true;
	if (!is_type(t, "BF16") && !is_type(t, "F16") && !is_type(t, "F32"))
		is_right = fail_at(&c->diags, A0603, loc_of(c, t), "tensor %s has dtype %s: expected BF16, F16 or F32",
			t->name, t->dtype_text);
	if (t->n_dims != n_dims || memcmp(t->shape, want, sizeof *want * (size_t)n_dims) != 0)
		is_right = g_misfit(c, t, n_dims, want);
	return is_right;
}

/* Stored of a module that is one tensor of the matrices of all experts. */
static bool see_fused(Compile *c, Stored *s)
{
	s->codes = g_find_tensor(c, s->module);
	if (!is_type(s->codes, "F8_E4M3"))
		return check_plain(c, s);
	s->scale = g_find_tensor(c, arena_printf(&c->scratch, "%s_scale_inv", s->module));
	s->format = FORMAT_FP8_BLOCK;
	find_block(c, s);
	if (!s->scale)
		return fail_at(&c->diags, A0601, loc_of(c, s->codes), "tensor %s_scale_inv is missing: %s is F8_E4M3",
			s->module, s->module);
	const int64_t rows = s->rows / s->experts;
	if (!s->block_n || rows % s->block_n)
		return fail_at(&c->diags, A0602, loc_of(c, s->scale), "tensor %s: blocks of %d rows do not end with the %lld "
			"rows of an expert", s->scale->name, s->block_n, (long long)rows);
	const int64_t codes[] = {s->experts, rows, s->cols};
	const int64_t scales[] = {s->experts, rows / s->block_n, (s->cols - 1) / s->block_k + 1};
	const struct { const StTensor *t; const int64_t *want; } all[] = {{s->codes, codes}, {s->scale, scales}};
	bool is_right = is_type(s->scale, "F32") || is_type(s->scale, "BF16")
		|| fail_type(c, s->scale, s, "F32 or BF16");
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		if (all[i].t->n_dims != 3 || memcmp(all[i].t->shape, all[i].want, sizeof codes) != 0)
			is_right = g_misfit(c, all[i].t, 3, all[i].want);
	return is_right;
}

static bool see_and_check(Compile *c, Stored *s, bool is_fused)
{
	if (is_fused)
		return see_fused(c, s);
	return see_module(c, s) && (s->format == FORMAT_PLAIN ? check_plain(c, s) : check_stored(c, s)
		&& check_input_scales(c, s));
}

/* Parts of one product are codes of one kind, with scales of one kind, and no block of these reaches beyond a part. */
static bool check_part(Compile *c, const Making *m, int i)
{
	const Part *p = &m->parts[i];
	const Stored *a = m->parts[0].s, *b = p->s;
	if (a->format != b->format || a->block_n != b->block_n || a->block_k != b->block_k
		|| (a->codes && strcmp(a->codes->dtype_text, b->codes->dtype_text) != 0)
		|| (a->scale && strcmp(a->scale->dtype_text, b->scale->dtype_text) != 0))
		return fail_at(&c->diags, A0603, loc_of(c, b->codes), "tensor %s is %s of %s, %s is %s of %s: "
			"they are read as one", b->codes->name, formats[b->format].name, b->codes->dtype_text, a->codes->name,
			formats[a->format].name, a->codes->dtype_text);
	bool is_last = i + 1 == m->spec->n_pieces || m->spec->experts;
	if (b->format == FORMAT_FP8_BLOCK && (p->first % b->block_n || (p->n % b->block_n
		&& (p->first + p->n < b->rows || !is_last))))
		return fail_at(&c->diags, A0602, loc_of(c, b->scale), "tensor %s: rows %lld to %lld of %s share blocks of %d "
			"rows with others", b->scale->name, (long long)p->first, (long long)(p->first + p->n - 1), b->module,
			b->block_n);
	return true;
}

static void make_product(Compile *c, const ProductSpec *spec, int64_t cols, Making *m)
{
	*m = (Making){.spec = spec, .parts = ARENA_ARRAY(&c->scratch, Part, spec->n_pieces), .cols = cols,
		.is_right = true};
	Stored *s = NULL, *first = NULL;
	for (int i = 0; i < spec->n_pieces; i++) {
		const Piece *piece = &spec->pieces[i];
		m->rows += piece->n;
		if (!s || strcmp(s->module, piece->module) != 0) {
			s = arena_alloc(&c->scratch, sizeof *s);
			*s = (Stored){.module = piece->module, .rows = piece->of, .cols = cols,
				.experts = spec->is_fused ? spec->experts : 0, .made = -1};
			bool is_right = see_and_check(c, s, spec->is_fused);
			*vec_push(&c->arena, &c->modules) = (Module){arena_strdup(&c->arena, s->module),
				is_right && s->format != FORMAT_PLAIN};
			m->is_right &= is_right;
		}
		m->parts[i] = (Part){s, piece->first, piece->n};
		first = first ? first : s;
	}
	if (m->is_right && first->format == FORMAT_INT4 && (spec->n_pieces > 1 || m->rows != first->rows))
		m->is_right = fail_at(&c->diags, A0603, loc_of(c, first->codes), "tensor %s is INT4: read as a part of %s, "
			"which is not implemented", first->codes->name, spec->name);
	for (int i = 0; i < spec->n_pieces && m->is_right; i++)
		m->is_right = check_part(c, m, i);
	m->is_right = m->is_right && see_made(c, m, first);
	for (int i = 0; i < spec->n_pieces && !m->is_right; i++)
		give_up(c, m->parts[i].s);
}

/* A product's scales in the graph; of several products first those of blocks, then those of rows. */
static void add_blocks(Compile *c, const Making *m, Product *out)
{
	const Stored *s = m->parts[0].s;
	if (!m->is_right || s->format == FORMAT_PLAIN || !s->block_n)
		return;
	out->block_n = m->block_n;
	out->block_k = s->block_k;
	out->scale = add_block_scales(c, m);
}

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

/* Blocks of FP8 whose edges are also edges of q, k and v, which fuse.c makes one weight of: all but the last, whose end
 * is nobody's start. Two products of one input (gate and up) stay two weights. */
static void fit_blocks(Compile *c, int n, Making *making)
{
	int64_t common = 0;
	bool is_same = n > 2;
	for (int i = 0; i < n; i++) {
		const Stored *s = making[i].parts[0].s, *first = making[0].parts[0].s;
		making[i].block_n = s->block_n;
		is_same &= making[i].is_right && s->format == FORMAT_FP8_BLOCK && making[i].spec->n_pieces == 1
			&& !making[i].spec->experts && s->block_n == first->block_n && s->block_k == first->block_k;
		common = common_divisor(common, i + 1 < n ? making[i].rows : s->block_n);
	}
	for (int i = 0; i < n && is_same; i++) {
		const Stored *s = making[i].parts[0].s;
		making[i].block_n = (int)common;
		if (s->made >= 0)
			c->made.at[s->made].block_n = (int)common;
	}
}

/* Products that were made already: all of these, or none. */
static bool find_products(const Compile *c, int n, const ProductSpec *specs, Product *out)
{
	int found = 0;
	for (int i = 0; i < n; i++)
		for (int k = 0; k < c->products.n; k++)
			if (strcmp(c->products.at[k].name, specs[i].name) == 0) {
				out[i] = *c->products.at[k].product;
				found++;
				break;
			}
	if (found && found != n)
		bug("%s and its neighbours: %d of %d products are there", specs[0].name, found, n);
	return found;
}

static void keep_products(Compile *c, int n, const ProductSpec *specs, const Product *made)
{
	for (int i = 0; i < n; i++) {
		Product *p = arena_alloc(&c->arena, sizeof *p);
		*p = made[i];
		*vec_push(&c->arena, &c->products) = (NamedProduct){arena_strdup(&c->arena, specs[i].name), p};
	}
}

void g_products_of(Compile *c, int n, const ProductSpec *specs, int64_t cols, Product *out)
{
	Making making[MAX_TOGETHER];
	if (n > MAX_TOGETHER)
		bug("%d products of one input", n);
	if (find_products(c, n, specs, out))
		return;
	for (int i = 0; i < n; i++) {
		make_product(c, &specs[i], cols, &making[i]);
		out[i] = (Product){add_codes(c, &making[i]), -1, -1, 0, 0};
	}
	fit_blocks(c, n, making);
	for (int i = 0; i < n; i++)
		add_blocks(c, &making[i], &out[i]);
	for (int i = 0; i < n; i++)
		if (making[i].is_right)
			out[i].row_scale = add_row_scale(c, &making[i]);
	keep_products(c, n, specs, out);
}

void g_tied_product(Compile *c, const char *module, const char *tensor, int table, int64_t rows, int64_t cols,
	Product *out)
{
	const Piece piece = {module, rows, 0, rows};
	const ProductSpec spec = {.name = module, .n_pieces = 1, .pieces = &piece};
	Stored s = {.module = module, .rows = rows, .cols = cols, .made = -1, .codes = g_find_tensor(c, tensor)};
	Part part = {&s, 0, rows};
	Making m = {&spec, &part, rows, cols, true, 0};
	*out = (Product){table, -1, -1, 0, 0};
	m.is_right = see_made(c, &m, &s);
	if (!m.is_right || s.made < 0)
		return;
	m.block_n = s.block_n;
	out->w = add_codes(c, &m);
	add_blocks(c, &m, out);
	out->row_scale = add_row_scale(c, &m);
}

/* How the rows of the head that drafts read are made, if they are. False after having said why they cannot be. */
static bool see_draft_rows(Compile *c, const Making *m, Stored *s)
{
	const Options *o = &c->model.options;
	QuantRule *rule = rule_of(c, s->module);
	const QuantTarget *listed = c->cmd.random_weights && !rule ? target_of(c, s->module) : NULL;
	const WeightFormat stored = s->format == FORMAT_PLAIN && listed ? listed->format : s->format;
	if (o->draft_format != FORMAT_PLAIN && stored != FORMAT_PLAIN)
		return fail_at(&c->diags, A0304, o->at_draft_format, "speculate.head: %s is %s in the checkpoint, and only "
			"what is not quantized can be", s->module, formats[stored].name);
	if (s->format == FORMAT_INT4)
		return fail_at(&c->diags, A0304, o->at_draft_ids, "speculate.vocabulary: %s is INT4 in the checkpoint, of "
			"which all rows are taken or none", s->module);
	if (o->draft_ids && s->format != FORMAT_PLAIN)
		return fail_at(&c->diags, A0304, o->at_draft_ids, "speculate.vocabulary_file: %s is %s in the checkpoint, and "
			"only of what is not quantized rows are taken one by one: speculate.vocabulary = N takes the first N",
			s->module, formats[s->format].name);
	const WeightFormat format = o->draft_format != FORMAT_PLAIN ? o->draft_format : rule ? rule->format
		: listed ? listed->format : FORMAT_PLAIN;
	if (format == FORMAT_PLAIN && (!o->draft_ids || !s->codes)) /* a range of the file, or made up as any weight is */
		return true;
	if (!c->cmd.embed_weights && s->codes)
		return fail_at(&c->diags, A0304, o->at_draft_ids, "speculate.vocabulary_file: with --weights ref the weights "
			"are those of the checkpoint's files, where these rows do not stand together: speculate.vocabulary = N "
			"takes the first N");
	if (!make_here(c, m, s, format, listed, o->at_draft_format))
		return false;
	c->made.at[s->made].ids = o->draft_ids;
	return true;
}

DraftHead g_draft_head(Compile *c, const DecoderEnds *ends)
{
	const Options *o = &c->model.options;
	const int64_t vocab = c->model.config.vocab, cols = c->model.config.hidden_dim;
	DraftHead out = {*ends->head, (int)vocab, -1};
	const int rows = o->n_draft_ids ? o->n_draft_ids : (int)vocab;
	if ((rows == vocab && o->draft_format == FORMAT_PLAIN) || c->diags.n_errors)
		return out;
	const Piece piece = {"lm_head", vocab, 0, rows};
	const ProductSpec spec = {.name = "lm_head.draft", .n_pieces = 1, .pieces = &piece};
	Stored s = {.module = "lm_head", .rows = vocab, .cols = cols, .made = -1};
	Part part = {&s, 0, rows};
	Making m = {&spec, &part, rows, cols, true, 0};
	if (c->model.config.tie_embeddings)
		s.codes = g_find_tensor(c, c->graph.tensors[ends->table].name);
	else
		m.is_right = see_and_check(c, &s, false);
	m.is_right = m.is_right && see_draft_rows(c, &m, &s);
	m.block_n = s.block_n;
	out.n = rows;
	out.rows = (Product){add_codes(c, &m), -1, -1, 0, 0};
	add_blocks(c, &m, &out.rows);
	if (m.is_right)
		out.rows.row_scale = add_row_scale(c, &m);
	if (o->draft_ids)
		out.ids = g_constant(c, "atlas.draft_ids", DT_i32, rows, o->draft_ids);
	return out;
}

void g_products(Compile *c, int n, const char *const *modules, const int64_t *rows, int64_t cols, Product *out)
{
	Piece pieces[MAX_TOGETHER];
	ProductSpec specs[MAX_TOGETHER];
	for (int i = 0; i < n && i < MAX_TOGETHER; i++) {
		pieces[i] = (Piece){modules[i], rows[i], 0, rows[i]};
		specs[i] = (ProductSpec){.name = modules[i], .n_pieces = 1, .pieces = &pieces[i]};
	}
	g_products_of(c, n, specs, cols, out);
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
		bool by_itself = !is_quantised && writers_leave_head(&c->model.quant) && strcmp(m->name, "lm_head") == 0;
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
	if (c->cmd.random_weights) /* they have nothing to differ from */
		return;
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
