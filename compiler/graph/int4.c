/* int4.c - weights in INT4, as three tools store them.
 *
 * An element of a weight [N,K] is worth (q - z) * s: a code q from 0 to 15, a zero z from 0 to 15 and a scale s, which
 * may be negative, of a group of G elements of a row. G divides K; files say G, and 32, 64, 128 or all of K are read.
 * Words are of 32 bits and hold eight codes, or zeros, of four bits each, from the lowest on.
 *
 *   compressed-tensors   M.weight_packed I32 [N,K/8]: codes of a row; M.weight_scale [N,K/G]; M.weight_zero_point I32
 *                        [N/8,K/G]: zeros of eight rows, all 8 where it is absent; M.weight_shape [2] = N, K;
 *                        M.weight_g_idx I32 [K]
 *   AWQ ("gemm")         M.qweight I32 [K,N/8]: codes of eight rows in the order 0 2 4 6 1 3 5 7; M.qzeros I32
 *                        [K/G,N/8] likewise; M.scales [K/G,N]
 *   GPTQ                 M.qweight I32 [K/8,N]: codes of a row; M.qzeros I32 [K/G,N/8]: zeros of eight rows; in the
 *                        first version of the format a word of them is 0x11111111 less than it means; M.scales
 *                        [K/G,N]; M.g_idx I32 [K]
 *
 * Scales are F16 or BF16. g_idx names the group of each column: only columns in order are read, as files without
 * activation order have them.
 *
 * The plan has codes of u4 [N,K], which is what compressed-tensors stores, and of f32z [N,K/G] scales and zeros
 * (artifacts/ops.h). They are put together while they are written, the codes or the scales of one module at a time.
 */
#include "compiler/graph/int4.h"
#include "artifacts/numbers.h"
#include "compiler/graph/weights.h"
#include "compiler/read/quant_lists.h"

#include <math.h>
#include <string.h>

enum { SMALL_BYTES = 1 << 20, PER_WORD = 8, STRIPE = 16 /* words that are read together */ };

typedef struct Int4 { /* a module and its tensors, NULL = absent */
	Compile *c;
	const char *name;
	int64_t rows, cols, group;
	StTensor *codes, *scales, *zeros, *index, *shape;
	const QuantTarget *stated; /* what the files say of it; NULL = nothing */
} Int4;

static StTensor *find(const Int4 *m, const char *part)
{
	return g_find_tensor(m->c, arena_printf(&m->c->scratch, "%s.%s", m->name, part));
}

bool int4_is_stored(Compile *c, const char *module)
{
	const Int4 m = {.c = c, .name = module};
	return find(&m, "qweight") || g_has_type(find(&m, "weight_packed"), "I32");
}

/* Checks ------------------------------------------------------------------------------------------- */

static bool want_type(const Int4 *m, const StTensor *t, const char *a, const char *b)
{
	return g_has_type(t, a) || g_has_type(t, b) || fail_at(&m->c->diags, A0603, loc_of(m->c, t),
		"tensor %s has dtype %s: expected %s%s%s for INT4", t->name, t->dtype_text, a, *b ? " or " : "", b);
}

static bool want_shape(const Int4 *m, const StTensor *t, int n_dims, int64_t d0, int64_t d1)
{
	const int64_t want[] = {d0, d1};
	if (t->n_dims == n_dims && memcmp(t->shape, want, sizeof *want * (size_t)n_dims) == 0)
		return true;
	*vec_push(&m->c->arena, &m->c->misfits) = (Misfit){t, n_dims, {d0, d1}};
	return fail_at(&m->c->diags, A0602, loc_of(m->c, t), "tensor %s has shape %s: INT4 of [%lld, %lld] by groups of "
		"%lld asks for %s", t->name, g_shape_text(m->c, t->n_dims, t->shape), (long long)m->rows, (long long)m->cols,
		(long long)m->group, g_shape_text(m->c, n_dims, want));
}

static bool want_there(const Int4 *m, const StTensor *t, const char *part)
{
	return t || fail_at(&m->c->diags, A0601, loc_of(m->c, m->codes), "tensor %s.%s is missing: %s is %s", m->name, part,
		m->codes->name, m->codes->dtype_text);
}

/* Finite numbers other than zero; of n in `dtype`. */
static bool check_scales(Compile *c, Loc at, const char *name, Dtype dtype, const void *scales, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		float value;
		numbers_convert(dtype, scales, i, 1, &value);
		if (!isfinite(value) || fpclassify(value) == FP_ZERO)
			return fail_at(&c->diags, A0606, at, "tensor %s: element %lld of %lld is %g: expected a number other than "
				"zero", name, (long long)i, (long long)n, (double)value);
	}
	return true;
}

static void *read_whole(const Int4 *m, const StTensor *t)
{
	void *bytes = arena_alloc(&m->c->scratch, (size_t)t->bytes + 1);
	return read_tensor(m->c, t, bytes) ? bytes : NULL;
}

static int32_t int_at(const void *words, int64_t i)
{
	int32_t v; /* checkpoint files align nothing */
	memcpy(&v, (const char *)words + 4 * i, sizeof v);
	return v;
}

/* Does column k belong to group k / G? */
static bool check_index(const Int4 *m)
{
	if (!m->index)
		return true;
	const void *groups;
	if (!want_type(m, m->index, "I32", "") || !want_shape(m, m->index, 1, m->cols, 0) ||
			!(groups = read_whole(m, m->index)))
		return false;
	for (int64_t k = 0; k < m->cols; k++)
		if (int_at(groups, k) != k / m->group)
			return fail_at(&m->c->diags, A0208, loc_of(m->c, m->index), "tensor %s: element %lld of %lld is %d: "
				"expected %lld: act-order (desc_act) is not supported", m->index->name, (long long)k,
				(long long)m->cols, int_at(groups, k), (long long)(k / m->group));
	return true;
}

static bool check_told_shape(const Int4 *m)
{
	int64_t stated[2] = {0, 0};
	if (!m->shape)
		return true;
	const bool is_long = g_has_type(m->shape, "I64");
	const void *words;
	if (!want_type(m, m->shape, "I64", "I32") || !want_shape(m, m->shape, 1, 2, 0) ||
			!(words = read_whole(m, m->shape)))
		return false;
	for (int i = 0; i < 2; i++)
		if (is_long)
			memcpy(&stated[i], (const char *)words + 8 * i, sizeof stated[i]);
		else
			stated[i] = int_at(words, i);
	return (stated[0] == m->rows && stated[1] == m->cols) || fail_at(&m->c->diags, A0602, loc_of(m->c, m->shape),
		"tensor %s is %lld, %lld: config.json asks for %lld, %lld", m->shape->name, (long long)stated[0],
		(long long)stated[1], (long long)m->rows, (long long)m->cols);
}

/* What the files say of the module; else, of compressed-tensors, what its scales show. */
static int64_t group_of(const Int4 *m)
{
	if (m->stated)
		return m->stated->block_k ? m->stated->block_k : m->cols;
	const int64_t groups = m->scales && m->scales->n_dims == 2 ? m->scales->shape[1] : 0;
	return groups > 0 && m->cols % groups == 0 ? m->cols / groups : m->cols;
}

/* Groups that the kernels read, whole words of eight rows. */
static bool check_sizes(const Int4 *m, Int4Layout layout)
{
	const bool is_read = m->group == m->cols ? m->cols % 32 == 0 : m->group == 32 || m->group == 64 || m->group == 128;
	if (!is_read)
		return fail_at(&m->c->diags, A0602, loc_of(m->c, m->codes), "tensor %s: groups of %lld elements: expected 32, "
			"64, 128 or a whole row of a multiple of 32, as INT4 has them", m->codes->name, (long long)m->group);
	if (m->cols % m->group)
		return fail_at(&m->c->diags, A0602, loc_of(m->c, m->codes), "tensor %s: rows of %lld elements are not a whole "
			"number of INT4 groups of %lld", m->codes->name, (long long)m->cols, (long long)m->group);
	return layout == INT4_PACKED || m->rows % PER_WORD == 0 || fail_at(&m->c->diags, A0602, loc_of(m->c, m->codes),
		"tensor %s: %lld rows are not a multiple of 8, which share a word", m->codes->name, (long long)m->rows);
}

static bool check_tensors(const Int4 *m, Int4Layout layout)
{
	const bool is_packed = layout == INT4_PACKED;
	const int64_t groups = m->cols / m->group, words = (m->rows + PER_WORD - 1) / PER_WORD;
	bool ok = want_type(m, m->codes, "I32", "") && want_shape(m, m->codes, 2, is_packed ? m->rows
		: layout == INT4_AWQ ? m->cols : m->cols / PER_WORD, is_packed ? m->cols / PER_WORD : layout == INT4_AWQ ? words
		: m->rows);
	ok &= want_type(m, m->scales, "F16", "BF16") &&
		want_shape(m, m->scales, 2, is_packed ? m->rows : groups, is_packed ? groups : m->rows);
	if (m->zeros)
		ok &= want_type(m, m->zeros, "I32", "") &&
			want_shape(m, m->zeros, 2, is_packed ? words : groups, is_packed ? groups : words);
	ok &= check_index(m) & check_told_shape(m);
	if (!ok || m->scales->bytes > SMALL_BYTES)
		return ok;
	const void *scales = read_whole(m, m->scales);
	return scales && check_scales(m->c, loc_of(m->c, m->scales), m->scales->name, m->scales->dtype, scales,
		m->rows * groups);
}

/* Which of the two that call their tensors so: the file's words decide. */
static bool see_layout(const Int4 *m, Int4Layout *layout)
{
	const char *name = m->c->model.quant.name ? m->c->model.quant.name : "";
	*layout = strcmp(name, "awq") == 0 ? INT4_AWQ : INT4_GPTQ;
	return *layout == INT4_AWQ || strcmp(name, "gptq") == 0 || fail_at(&m->c->diags, A0208, loc_of(m->c, m->codes),
		"tensor %s: config.json does not say which tool's it is: expected quantization_config.quant_method = \"awq\" "
		"or \"gptq\"", m->codes->name);
}

bool int4_see(Compile *c, const char *module, int64_t rows, int64_t cols, MadeProduct *p, StTensor **codes)
{
	Int4 m = {.c = c, .name = module, .rows = rows, .cols = cols, .stated = quant_target_of(c, module)};
	Int4Layout layout = INT4_PACKED;
	m.stated = m.stated && m.stated->format == FORMAT_INT4 ? m.stated : NULL;
	*codes = m.codes = find(&m, "weight_packed");
	if (m.codes) {
		m.scales = find(&m, "weight_scale");
		m.zeros = find(&m, "weight_zero_point");
		m.index = find(&m, "weight_g_idx");
		m.shape = find(&m, "weight_shape");
	} else {
		*codes = m.codes = find(&m, "qweight");
		m.scales = find(&m, "scales");
		m.zeros = find(&m, "qzeros");
		m.index = find(&m, "g_idx");
		if (!see_layout(&m, &layout) || !want_there(&m, m.zeros, "qzeros"))
			return false;
	}
	if (m.stated && m.stated->has_zeros && layout == INT4_PACKED && !want_there(&m, m.zeros, "weight_zero_point"))
		return false;
	if (m.stated && m.stated->has_index && !want_there(&m, m.index, layout == INT4_PACKED ? "weight_g_idx" : "g_idx"))
		return false;
	m.group = group_of(&m);
	if (!want_there(&m, m.scales, layout == INT4_PACKED ? "weight_scale" : "scales") || !check_sizes(&m, layout) ||
			!check_tensors(&m, layout))
		return false;
	StTensor *const others[] = {m.scales, m.zeros, m.index, m.shape};
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (others[i])
			others[i]->used_by++;
	*p = (MadeProduct){.format = FORMAT_INT4, .rows = rows, .cols = cols, .block_n = 1, .block_k = (int)m.group,
		.codes = -1, .scale = -1, .row_scale = -1, .source = g_stored(c, m.codes, m.codes->dtype), .layout = layout,
		.scales = g_stored(c, m.scales, m.scales->dtype), .has_zeros = m.zeros != NULL,
		.is_less_one = layout == INT4_GPTQ && c->model.quant.is_less_one};
	if (m.zeros)
		p->zeros = g_stored(c, m.zeros, m.zeros->dtype);
	return true;
}

/* Made ------------------------------------------------------------------------------------------------- */

static const uint8_t awq_order[PER_WORD] = {0, 2, 4, 6, 1, 3, 5, 7}; /* of the rows in a word */

static uint32_t word_at(const uint8_t *words, int64_t i) { return (uint32_t)int_at(words, i); }

static void put_word(uint8_t *to, uint32_t word) { memcpy(to, &word, sizeof word); }

/* [K/8,N] words as [N,K/8]. */
static void turn_gptq(const MadeProduct *p, const uint8_t *from, uint8_t *to)
{
	const int64_t in_row = p->cols / PER_WORD;
	for (int64_t first = 0; first < p->rows; first += STRIPE)
		for (int64_t k = 0; k < in_row; k++)
			for (int64_t n = first; n < first + STRIPE && n < p->rows; n++)
				put_word(to + 4 * (n * in_row + k), word_at(from, k * p->rows + n));
}

/* [K,N/8] words as [N,K/8]: of eight columns of eight rows. */
static void turn_awq(const MadeProduct *p, const uint8_t *from, uint8_t *to)
{
	const int64_t in_row = p->cols / PER_WORD, across = p->rows / PER_WORD;
	for (int64_t first = 0; first < across; first += STRIPE)
		for (int64_t k = 0; k < in_row; k++)
			for (int64_t n = first; n < first + STRIPE && n < across; n++) {
				uint32_t out[PER_WORD] = {0};
				for (int i = 0; i < PER_WORD; i++) {
					const uint32_t word = word_at(from, (k * PER_WORD + i) * across + n);
					for (int j = 0; j < PER_WORD; j++)
						out[awq_order[j]] |= (word >> 4 * j & 15) << 4 * i;
				}
				for (int j = 0; j < PER_WORD; j++)
					put_word(to + 4 * ((n * PER_WORD + j) * in_row + k), out[j]);
			}
}

/* The zero of group g in row n. */
static unsigned zero_at(const MadeProduct *p, const uint8_t *zeros, int64_t n, int64_t g)
{
	const int64_t groups = p->cols / p->block_k, in_word = n % PER_WORD;
	if (!zeros)
		return 8;
	if (p->layout == INT4_PACKED)
		return word_at(zeros, n / PER_WORD * groups + g) >> 4 * in_word & 15;
	const uint32_t word = word_at(zeros, g * (p->rows / PER_WORD) + n / PER_WORD) + (p->is_less_one ? 0x11111111u : 0);
	static const uint8_t place[PER_WORD] = {0, 4, 1, 5, 2, 6, 3, 7}; /* of a row, in awq_order */
	return word >> 4 * (p->layout == INT4_AWQ ? place[in_word] : in_word) & 15;
}

static void join_scales(const MadeProduct *p, const uint8_t *scales, const uint8_t *zeros, uint8_t *to)
{
	const int64_t groups = p->cols / p->block_k;
	for (int64_t n = 0; n < p->rows; n++)
		for (int64_t g = 0; g < groups; g++) {
			const int64_t at = p->layout == INT4_PACKED ? n * groups + g : g * p->rows + n;
			float scale;
			numbers_convert(p->scales.dtype, scales, at, 1, &scale);
			put_word(to + 4 * (n * groups + g), numbers_zeroed(scale, zero_at(p, zeros, n, g)));
		}
}

static uint8_t *read_source(Arena *a, const Weight *w, const SourceReader *source)
{
	uint8_t *bytes = arena_alloc(a, (size_t)w->bytes + 1);
	return source->read(source->ctx, w, 0, bytes, (size_t)w->bytes) ? bytes : NULL;
}

uint8_t *int4_codes(Arena *a, const MadeProduct *p, const SourceReader *source)
{
	uint8_t *words = read_source(a, &p->source, source);
	if (!words || p->layout == INT4_PACKED)
		return words;
	uint8_t *made = arena_alloc(a, (size_t)(p->rows * p->cols / 2));
	(p->layout == INT4_AWQ ? turn_awq : turn_gptq)(p, words, made);
	return made;
}

uint8_t *int4_scales(Compile *c, Arena *a, const MadeProduct *p, const SourceReader *source)
{
	uint8_t *made = arena_alloc(a, (size_t)(p->rows * (p->cols / p->block_k)) * sizeof(uint32_t));
	const uint8_t *scales = read_source(a, &p->scales, source), *zeros = NULL;
	if (!scales || (p->has_zeros && !(zeros = read_source(a, &p->zeros, source))))
		return NULL;
	if (!check_scales(c, weight_loc(c, &p->scales), p->scales.name, p->scales.dtype, scales,
			p->rows * (p->cols / p->block_k)))
		return NULL;
	join_scales(p, scales, zeros, made);
	return made;
}
