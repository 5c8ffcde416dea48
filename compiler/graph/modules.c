/* modules.c - which format a module has, and whether its tensors are right.
 *
 * It is seen from its tensors, and from nothing else:
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
 * The matrices of all experts may also be one tensor M [E,N,K], plain or FP8 by block with M_scale_inv; transposed
 * (is_turned) M [E,K,N]; or MXFP4 in M_blocks U8 [E,N,K/32,16] and M_scales U8 [E,N,K/32].
 *
 * Where a tensor of these is missing, the others of the module, and what the files say of it, show which one it is.
 *
 * Scales are looked at before they are believed, small tensors of them here and large ones as they are copied (emit.c).
 * Scales of activations are checked too, and then not used: what is multiplied is the weights' values.
 */
#include "compiler/graph/modules.h"
#include "artifacts/numbers.h"
#include "compiler/graph/int4.h"
#include "compiler/read/quant_lists.h"

#include <math.h>
#include <string.h>

enum { SMALL_BYTES = 1 << 20 };

const FormatInfo format_info[FORMAT_COUNT] = {
	[FORMAT_PLAIN] = {"plain", DT_bf16, DT_f32, false}, /* its codes have the source's dtype */
	[FORMAT_FP8_BLOCK] = {"FP8 by block", DT_e4m3, DT_f32, false},
	[FORMAT_FP8_TENSOR] = {"FP8 by tensor", DT_e4m3, DT_f32, true},
	[FORMAT_FP8_CHANNEL] = {"FP8 by row", DT_e4m3, DT_f32, true},
	[FORMAT_NVFP4] = {"NVFP4", DT_e2m1, DT_e4m3, true},
	[FORMAT_NVFP4_OVER] = {"NVFP4", DT_e2m1, DT_e4m3, true},
	[FORMAT_MXFP4] = {"MXFP4", DT_e2m1, DT_e8m0, false},
	[FORMAT_INT4] = {"INT4", DT_u4, DT_f32z, false},
};

static StTensor *find(Compile *c, const char *module, const char *part)
{
	return g_find_tensor(c, arena_printf(&c->scratch, "%s.%s", module, part));
}

static int64_t elements_of(const StTensor *t)
{
	int64_t n = 1;
	for (int i = 0; i < t->n_dims; i++)
		n *= t->shape[i];
	return n;
}

/* A byte where no header has a name for its type. */
Dtype module_scale_dtype(const StTensor *t) { return g_has_type(t, "U8") ? DT_e8m0 : t->dtype; }

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
float *module_scales(Compile *c, const StTensor *t)
{
	const int64_t n = elements_of(t);
	void *raw = arena_alloc(&c->scratch, (size_t)t->bytes + 1);
	float *values = ARENA_ARRAY(&c->scratch, float, n + 1);
	if (!read_tensor(c, t, raw))
		return NULL;
	numbers_convert(module_scale_dtype(t), raw, 0, n, values);
	int64_t bad = first_bad_scale(module_scale_dtype(t), raw, n);
	if (bad < 0)
		return values;
	fail_at(&c->diags, A0606, loc_of(c, t), "tensor %s: element %lld of %lld is %g: expected a positive number",
		t->name, (long long)bad, (long long)n, (double)values[bad]);
	return NULL;
}

static bool fail_type(Compile *c, const StTensor *t, const Module *s, const char *expected)
{
	return fail_at(&c->diags, A0603, loc_of(c, t), "tensor %s has dtype %s: expected %s for %s", t->name, t->dtype_text,
		expected, format_info[s->format].name);
}

static bool check_shape(Compile *c, const StTensor *t, const Module *s, int64_t d0, int64_t d1)
{
	if (t->n_dims == 2 && t->shape[0] == d0 && t->shape[1] == d1)
		return true;
	*vec_push(&c->arena, &c->misfits) = (Misfit){t, 2, {d0, d1}};
	return fail_at(&c->diags, A0602, loc_of(c, t), "tensor %s has shape %s: %s of [%lld, %lld] asks for [%lld, %lld]",
		t->name, g_shape_text(c, t->n_dims, t->shape), format_info[s->format].name, (long long)s->rows,
		(long long)s->cols, (long long)d0, (long long)d1);
}

/* A single scale: of any shape of one element. */
static bool check_single(Compile *c, const StTensor *t, const Module *s)
{
	if (!g_has_type(t, "F32") && !g_has_type(t, "BF16") && !g_has_type(t, "F16"))
		return fail_type(c, t, s, "F32, BF16 or F16");
	return elements_of(t) == 1 || fail_at(&c->diags, A0602, loc_of(c, t), "tensor %s has shape %s: %s of [%lld, %lld] "
		"asks for one element", t->name, g_shape_text(c, t->n_dims, t->shape), format_info[s->format].name,
		(long long)s->rows, (long long)s->cols);
}

/* What a module is stored as ------------------------------------------------------------------------------ */

static bool fail_missing(Compile *c, const Module *s, const char *part)
{
	return fail_at(&c->diags, A0601, loc_of(c, s->codes), "tensor %s.%s is missing: %s is %s", s->name, part,
		s->codes->name, s->codes->dtype_text);
}

static void find_block(Compile *c, Module *s)
{
	const QuantTarget *t = quant_target_of(c, s->name);
	if (t && t->block_n) {
		s->block_n = t->block_n;
		s->block_k = t->block_k;
	}
}

static bool see_fp8(Compile *c, Module *s)
{
	StTensor *inverse = find(c, s->name, "weight_scale_inv"), *scale = find(c, s->name, "weight_scale");
	StTensor *t = inverse ? inverse : scale; /* the other is then not read, with a note */
	const char *writer = c->model.quant.name;
	if (!t)
		return fail_missing(c, s, writer && strcmp(writer, "fp8") == 0 ? "weight_scale_inv" : "weight_scale");
	find_block(c, s);
	s->scale = t;
	const bool is_one_block = s->rows <= s->block_n && s->cols <= s->block_k;
	if (s->block_n && t->n_dims == 2 && (elements_of(t) > 1 || is_one_block)) {
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
static bool see_int4(Compile *c, Module *s)
{
	MadeProduct p;
	if (!int4_see(c, s->name, s->rows, s->cols, &p, &s->codes))
		return false;
	s->format = FORMAT_INT4;
	s->block_n = p.block_n;
	s->block_k = p.block_k;
	s->made = c->made.n;
	*vec_push(&c->arena, &c->made) = p;
	return true;
}

/* The tensor of codes is not there. Which one it would be, by a neighbour that says so or by what the files say. */
static bool fail_without_codes(Compile *c, const Module *s)
{
	static const struct { const char *part, *codes; /* NULL = either */ } signs[] = {
		{"weight_global_scale", "weight_packed"}, {"weight_zero_point", "weight_packed"},
		{"weight_shape", "weight_packed"}, {"weight_g_idx", "weight_packed"},
		{"qzeros", "qweight"}, {"scales", "qweight"}, {"g_idx", "qweight"}, {"weight_scale_2", "weight"},
		{"weight_scale_inv", "weight"}, {"weight_scale", NULL}};
	for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
		const StTensor *t = find(c, s->name, signs[i].part);
		const QuantTarget *stated = t && !signs[i].codes ? quant_target_of(c, s->name) : NULL;
		const char *writer = c->model.quant.name;
		bool is_packed = stated && stated->format >= FORMAT_NVFP4 && writer &&
			strcmp(writer, "compressed-tensors") == 0;
		if (t)
			return fail_at(&c->diags, A0601, loc_of(c, t), "tensor %s.%s is missing: %s is there", s->name,
				signs[i].codes ? signs[i].codes : is_packed ? "weight_packed" : "weight", t->name);
	}
	return true;
}

/* Which of the formats of four bits: the scales' type and the second scale say it, and what the files say where these
 * two disagree, as they do where a tensor is missing. */
static WeightFormat narrow_format(Compile *c, const Module *s, bool is_packed)
{
	const WeightFormat by_group = is_packed ? FORMAT_NVFP4_OVER : FORMAT_NVFP4;
	const bool has_exponents = g_has_type(s->scale, "U8") || g_has_type(s->scale, "F8_E8M0");
	if (g_has_type(s->scale, "F8_E4M3") && s->second)
		return by_group;
	if (has_exponents && !s->second)
		return FORMAT_MXFP4;
	const QuantTarget *stated = quant_target_of(c, s->name);
	if (stated && (stated->format == FORMAT_MXFP4 || stated->format == FORMAT_NVFP4))
		return stated->format == FORMAT_MXFP4 ? FORMAT_MXFP4 : by_group;
	return has_exponents ? FORMAT_MXFP4 : by_group;
}

/* The format and the tensors of it. False when there is no way to know, which is then an error, or nothing at all. */
static bool see_module(Compile *c, Module *s)
{
	if (int4_is_stored(c, s->name))
		return see_int4(c, s);
	StTensor *packed = find(c, s->name, "weight_packed");
	s->codes = packed ? packed : find(c, s->name, "weight");
	s->scale = s->codes ? find(c, s->name, "weight_scale") : NULL;
	if (g_has_type(s->codes, "F8_E4M3") && !packed)
		return see_fp8(c, s);
	if (!packed && !g_has_type(s->codes, "U8")) {
		s->format = FORMAT_PLAIN;
		return s->codes || fail_without_codes(c, s);
	}
	const char *second = packed ? "weight_global_scale" : "weight_scale_2";
	s->second = find(c, s->name, second);
	s->format = narrow_format(c, s, packed != NULL);
	s->block_n = 1;
	s->block_k = s->format == FORMAT_MXFP4 ? MXFP4_GROUP : NVFP4_GROUP;
	if (s->format == FORMAT_MXFP4)
		s->second = NULL; /* one that is there is not read, with a note */
	else if (!s->second)
		fail_missing(c, s, second);
	return (s->scale || fail_missing(c, s, "weight_scale")) && (s->second || s->format == FORMAT_MXFP4);
}

static bool check_block_scales(Compile *c, const Module *s)
{
	const StTensor *t = s->scale;
	int64_t rows = (s->rows + s->block_n - 1) / s->block_n, cols = (s->cols + s->block_k - 1) / s->block_k;
	const bool is_e8m0 = g_has_type(t, "F8_E8M0");
	bool is_right = s->format == FORMAT_FP8_BLOCK ? is_e8m0 || g_has_type(t, "F32") || g_has_type(t, "BF16")
		: s->format == FORMAT_MXFP4 ? is_e8m0 || g_has_type(t, "U8") : g_has_type(t, "F8_E4M3");
	if (!is_right)
		return fail_type(c, t, s, s->format == FORMAT_FP8_BLOCK ? "F32, BF16 or F8_E8M0" : s->format == FORMAT_MXFP4
			? "U8 or F8_E8M0" : "F8_E4M3");
	return check_shape(c, t, s, rows, cols) && (t->bytes > SMALL_BYTES || module_scales(c, t));
}

static bool check_stored(Compile *c, const Module *s)
{
	bool is_narrow = s->format >= FORMAT_NVFP4;
	if (s->format == FORMAT_INT4) /* int4.c */
		return true;
	if (is_narrow && !g_has_type(s->codes, "U8"))
		return fail_type(c, s->codes, s, "U8");
	if (is_narrow && s->cols % s->block_k)
		return fail_at(&c->diags, A0602, loc_of(c, s->codes), "tensor %s: rows of %lld elements are not a whole number "
			"of groups of %d, the size in %s", s->codes->name, (long long)s->cols, s->block_k,
			format_info[s->format].name);
	bool ok = check_shape(c, s->codes, s, s->rows, is_narrow ? s->cols / 2 : s->cols);
	if (s->scale && s->format != FORMAT_FP8_CHANNEL)
		ok &= check_block_scales(c, s);
	if (s->scale && s->format == FORMAT_FP8_CHANNEL && !g_has_type(s->scale, "F32") && !g_has_type(s->scale, "BF16") &&
			!g_has_type(s->scale, "F16"))
		ok = fail_type(c, s->scale, s, "F32, BF16 or F16");
	if (s->second)
		ok &= check_single(c, s->second, s);
	return ok;
}

/* Scales by which a writer would have quantised what the product reads. */
static bool check_input_scales(Compile *c, const Module *s)
{
	static const char *const names[] = {"input_scale", "input_global_scale", "activation_scale"};
	bool ok = true;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		StTensor *t = find(c, s->name, names[i]);
		if (!t || s->format == FORMAT_PLAIN)
			continue;
		t->used_by++;
		ok &= check_single(c, t, s) && module_scales(c, t);
		if (!c->is_input_scale_told)
			note_at(&c->diags, A0607, loc_of(c, t), "%s is not used, and none like it: products read bf16", t->name);
		c->is_input_scale_told = true;
	}
	return ok;
}

/* A module whose format is not known or not right: its tensors count as read, so that one mistake is reported once. */
void module_give_up(Compile *c, Module *s)
{
	static const char *const parts[] = {"weight", "weight_packed", "weight_scale", "weight_scale_inv", "weight_scale_2",
		"weight_global_scale", "weight_zero_point", "weight_shape", "weight_g_idx", "qweight", "qzeros", "scales",
		"g_idx", "input_scale", "input_global_scale", "activation_scale"};
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		StTensor *t = find(c, s->name, parts[i]);
		if (t)
			t->used_by++;
	}
	static const char *const of_experts[] = {"_scale_inv", "_blocks", "_scales"};
	for (size_t i = 0; i < sizeof of_experts / sizeof of_experts[0]; i++) {
		StTensor *t = g_find_tensor(c, arena_printf(&c->scratch, "%s%s", s->name, of_experts[i]));
		if (t)
			t->used_by++;
	}
	if (s->codes)
		s->codes->used_by++;
	s->format = FORMAT_PLAIN;
	s->scale = s->second = NULL;
}

static bool check_plain(Compile *c, const Module *s)
{
	StTensor *t = s->codes;
	if (!t && c->cmd.random_weights)
		return true;
	const int64_t shape[] = {s->rows, s->cols};
	const int64_t each = s->experts ? s->rows / s->experts : 0;
	const int64_t experts[] = {s->experts, s->is_turned ? s->cols : each, s->is_turned ? each : s->cols};
	const int64_t *want = s->experts ? experts : shape;
	const int n_dims = s->experts ? 3 : 2;
	if (!t)
		return fail_at(&c->diags, A0601, (Loc){c->model.config.at_hidden_dim.file, 0, 0},
			"tensor %s%s is missing: %s needs it with shape %s", s->name, s->experts ? "" : ".weight",
			c->graph.family, g_shape_text(c, n_dims, want));
	bool is_right = true;
	if (!g_has_type(t, "BF16") && !g_has_type(t, "F16") && !g_has_type(t, "F32"))
		is_right = fail_at(&c->diags, A0603, loc_of(c, t), "tensor %s has dtype %s: expected BF16, F16 or F32",
			t->name, t->dtype_text);
	if (t->n_dims != n_dims || memcmp(t->shape, want, sizeof *want * (size_t)n_dims) != 0)
		is_right = g_misfit(c, t, n_dims, want);
	return is_right;
}

/* MXFP4 in tensors of names of their own. */
static bool see_blocks(Compile *c, Module *s, StTensor *blocks, StTensor *scales)
{
	s->format = FORMAT_MXFP4;
	s->block_n = 1;
	s->block_k = MXFP4_GROUP;
	s->codes = blocks;
	s->scale = scales;
	if (!blocks || !scales)
		return fail_at(&c->diags, A0601, loc_of(c, blocks ? blocks : scales), "tensor %s%s is missing: %s is there",
			s->name, blocks ? "_scales" : "_blocks", blocks ? blocks->name : scales->name);
	if (s->cols % MXFP4_GROUP)
		return fail_at(&c->diags, A0602, loc_of(c, blocks), "tensor %s: rows of %lld elements are not a whole number "
			"of groups of %d, the size in %s", blocks->name, (long long)s->cols, MXFP4_GROUP,
			format_info[s->format].name);
	const int64_t want[] = {s->experts, s->rows / s->experts, s->cols / MXFP4_GROUP, MXFP4_GROUP / 2};
	bool is_right = (g_has_type(blocks, "U8") || fail_type(c, blocks, s, "U8"));
	is_right &= g_has_type(scales, "U8") || g_has_type(scales, "F8_E8M0") || fail_type(c, scales, s, "U8 or F8_E8M0");
	if (blocks->n_dims != 4 || memcmp(blocks->shape, want, sizeof want) != 0)
		is_right = g_misfit(c, blocks, 4, want);
	if (scales->n_dims != 3 || memcmp(scales->shape, want, 3 * sizeof *want) != 0)
		is_right = g_misfit(c, scales, 3, want);
	return is_right;
}

/* Of a module that is one tensor of the matrices of all experts. */
static bool see_fused(Compile *c, Module *s)
{
	StTensor *blocks = g_find_tensor(c, arena_printf(&c->scratch, "%s_blocks", s->name));
	StTensor *of_blocks = g_find_tensor(c, arena_printf(&c->scratch, "%s_scales", s->name));
	if (s->is_turned && (blocks || of_blocks))
		return see_blocks(c, s, blocks, of_blocks);
	s->codes = g_find_tensor(c, s->name);
	if (!g_has_type(s->codes, "F8_E4M3"))
		return check_plain(c, s);
	s->scale = g_find_tensor(c, arena_printf(&c->scratch, "%s_scale_inv", s->name));
	s->format = FORMAT_FP8_BLOCK;
	find_block(c, s);
	if (!s->scale)
		return fail_at(&c->diags, A0601, loc_of(c, s->codes), "tensor %s_scale_inv is missing: %s is F8_E4M3",
			s->name, s->name);
	const int64_t rows = s->rows / s->experts;
	if (!s->block_n || rows % s->block_n)
		return fail_at(&c->diags, A0602, loc_of(c, s->scale), "tensor %s: blocks of %d rows do not end with the %lld "
			"rows of an expert", s->scale->name, s->block_n, (long long)rows);
	const int64_t codes[] = {s->experts, rows, s->cols};
	const int64_t scales[] = {s->experts, rows / s->block_n, (s->cols - 1) / s->block_k + 1};
	const struct { const StTensor *t; const int64_t *want; } all[] = {{s->codes, codes}, {s->scale, scales}};
	bool is_right = g_has_type(s->scale, "F32") || g_has_type(s->scale, "BF16") ||
		fail_type(c, s->scale, s, "F32 or BF16");
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		if (all[i].t->n_dims != 3 || memcmp(all[i].t->shape, all[i].want, sizeof codes) != 0)
			is_right = g_misfit(c, all[i].t, 3, all[i].want);
	return is_right;
}

bool module_see(Compile *c, Module *s, bool is_fused)
{
	if (is_fused)
		return see_fused(c, s);
	return see_module(c, s) && (s->format == FORMAT_PLAIN ? check_plain(c, s) : check_stored(c, s) &&
		check_input_scales(c, s));
}
