/* products.c - the weight of a product, in whatever format the checkpoint holds it.
 *
 * Which format a module has is seen from its tensors (modules.c).
 *
 * Weights that are read as one have a common grid of blocks only if each ends where a block does. Where one ends
 * within, as 192 rows do in blocks of 128, blocks are split into equal ones of fewer rows (64) that have the same
 * scale.
 *
 * A product is put together from rows of such modules: q and the gate of a head that alternate in one tensor
 * become two products, and the matrices of experts one. A row is where it is in the file, so this costs ranges, no
 * copy.
 *
 * A byte of U8 holds two e2m1 elements, the one of even k in its low half. In the graph all of these are one thing
 * (ops.h): codes, block scales as the file has them, and a scale for each row, in f32. The last is made here: from one
 * value for the tensor, or for each row, or from the reciprocal of a divisor. So joined tensors keep their own.
 *
 * Scales of INT4 are made with their zeros, and its codes where they lie in columns. Where no tensor has them, codes
 * and scales are made: where [quant] asks for it (requant.c), and by --random-weights, which has no tensors and follows
 * what config.json says (random_weights.c). Where [quant] asks for bf16, rows of whatever its pieces hold are decoded
 * instead (decode.c).
 */
#include "artifacts/numbers.h"
#include "compiler/graph/decode.h"
#include "compiler/graph/int4.h"
#include "compiler/read/family.h"
#include "compiler/read/quant_lists.h"

#include <string.h>

enum { MAX_TOGETHER = 4 };

/* Which are made here ------------------------------------------------------------------------------------ */

/* The blocks of s->format, and that its rows are whole numbers of them where they must be. */
static bool set_blocks(Compile *c, Module *s, const QuantTarget *listed, Loc at)
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
	return !is_narrow || s->cols % s->block_k == 0 || fail_at(&c->diags, A0602, at, "%s: rows of %lld elements are not "
		"a whole number of groups of %d, the size in %s", s->name, (long long)s->cols, s->block_k,
		format_info[s->format].name);
}

/* Operands ------------------------------------------------------------------------------------------- */

/* The product is made while it is written, of the module's first rows. */
static bool make_here(Compile *c, const Product *m, Module *s, WeightFormat format, const QuantTarget *listed, Loc at)
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

/* With --random-weights: what the files say of the module, or of all experts whose matrices it is, one by one as
 * quantised files have them. NULL = plain. *is_right: false after having said that they are of several formats. */
static const QuantTarget *told_of(Compile *c, const Product *m, const Module *s, bool *is_right)
{
	const char *part = strrchr(s->name, '.');
	const bool is_two = part && strcmp(part, ".gate_up_proj") == 0;
	const int n = s->experts ? s->experts * (1 + is_two) : 0;
	const char **names = ARENA_ARRAY(&c->scratch, const char *, n + 1);
	Stated *stated = ARENA_ARRAY(&c->scratch, Stated, n + 1);
	names[n] = s->name;
	for (int i = 0; i < n; i++)
		names[i] = arena_printf(&c->scratch, "%.*s.%d.%s", (int)(part - s->name), s->name, i / (1 + is_two),
			!is_two ? part + 1 : i % 2 ? "up_proj" : "gate_proj");
	quant_stated(c, names, n + 1, stated);
	*is_right = true;
	const QuantTarget *first = stated[0].target;
	if (!n || stated[n].is_ignored) /* it is the module itself, or that tensor is named */
		return stated[n].target;
	for (int i = 1; i < n && *is_right; i++) {
		const QuantTarget *other = stated[i].target;
		if (!first != !other || (first && (first->format != other->format || first->block_k != other->block_k)))
			*is_right = fail_at(&c->diags, A0603, (first ? first : other)->modules.at, "%s is %s according to the "
				"files, %s is %s: they are read as one, %s", names[i],
				format_info[other ? other->format : FORMAT_PLAIN].name, names[0],
				format_info[first ? first->format : FORMAT_PLAIN].name, m->name);
	}
	return first || stated[0].is_ignored ? first : stated[n].target;
}

/* Codes and scales that no tensor holds: as [quant] asks, from a module that is not quantised, or, with
 * --random-weights, as the files say. s: the first piece's module. False after having said why that cannot be. */
static bool see_made(Compile *c, const Product *m, Module *s)
{
	bool is_right = true;
	QuantRule *rule = quant_rule_of(c, s->name);
	const bool asks = rule && rule->format != FORMAT_PLAIN;
	const QuantTarget *listed = c->cmd.random_weights && !asks && !(rule && rule->is_bf16)
		? told_of(c, m, s, &is_right) : NULL;
	const Loc at = asks ? rule->modules.at : listed ? listed->modules.at : (Loc){0};
	StTensor *t = s->codes;
	if ((!asks && !listed) || !is_right)
		return is_right;
	if (s->format != FORMAT_PLAIN)
		return fail_at(&c->diags, A0304, at, "quant.\"%s\": %s is %s in the checkpoint, and only what is not quantized "
			"can be", rule->modules.text, s->name, format_info[s->format].name);
	if (listed && listed->format == FORMAT_PLAIN)
		return fail_at(&c->diags, A0208, at, "\"%s\": the files do not say in which format, and --random-weights has "
			"no tensors to see it from", listed->modules.text);
	if (listed && listed->has_index)
		return fail_at(&c->diags, A0208, at, "%s is INT4 according to the files: act-order (desc_act) is "
			"not supported", s->name);
	if (listed && listed->format == FORMAT_INT4 && (m->n_pieces > 1 || m->rows != s->rows || s->experts))
		return fail_at(&c->diags, A0603, at, "%s is INT4 according to the files: read as a part of %s, which is not "
			"implemented", s->name, m->name);
	if (t && (m->n_pieces > 1 || m->rows != s->rows || s->experts)) {
		if (m->pieces[0].first == 0 && rule->n_in_parts++ == 0) /* once a module */
			rule->in_parts = arena_strdup(&c->arena, s->name);
		return false;
	}
	return make_here(c, m, s, asks ? rule->format : listed->format, listed, at);
}

/* The product is made of the columns of a tensor, those of each expert's matrix. */
static bool turn_here(Compile *c, const Product *m, Module *s)
{
	const CommandLine *cmd = &c->cmd;
	if (!cmd->embed_weights && !cmd->text)
		return fail_at(&c->diags, A0304, loc_of(c, s->codes), "tensor %s is transposed: --weights ref uses the "
			"checkpoint's files as they are", s->codes->name);
	s->codes->used_by++;
	s->made = c->made.n;
	*vec_push(&c->arena, &c->made) = (MadeProduct){.format = FORMAT_PLAIN, .rows = m->rows, .cols = m->cols,
		.codes = -1, .scale = -1, .row_scale = -1, .turned = s->experts,
		.source = g_stored(c, s->codes, s->codes->dtype)};
	return true;
}

static bool is_plain_bf16(const Module *s) { return s->format == FORMAT_PLAIN && g_has_type(s->codes, "BF16"); }

/* Decodes the product to bf16 where [quant] asks for it, all its pieces or none. Those that are in bf16 are so already.
 * False after having said why that cannot be. */
static bool see_decoded(Compile *c, Product *m)
{
	QuantRule *rule = NULL;
	const Module *other = NULL, *last = NULL;
	bool is_bf16 = true;
	for (int i = 0; i < m->n_pieces; last = m->pieces[i++].stored) {
		const Module *s = m->pieces[i].stored;
		QuantRule *its = s == last || !s->codes ? NULL : quant_rule_of(c, s->name);
		if (its && its->is_bf16)
			rule = its;
		else if (s != last && !is_plain_bf16(s))
			other = s;
		is_bf16 &= is_plain_bf16(s);
	}
	if (!rule || is_bf16)
		return true;
	if (other)
		return fail_at(&c->diags, A0304, rule->modules.at, "quant.\"%s\": %s is %s in the checkpoint and stays so, and "
			"is read as one with modules that would be decoded", rule->modules.text, other->name,
			format_info[other->format].name);
	DecodedPiece *pieces = ARENA_ARRAY(&c->arena, DecodedPiece, m->n_pieces);
	for (int i = 0; i < m->n_pieces; i++)
		if (!decode_see(c, m->pieces[i].stored, m->pieces[i].first, m->pieces[i].n, &pieces[i]))
			return false;
	const Module *first = m->pieces[0].stored;
	Module *decoded = arena_alloc(&c->scratch, sizeof *decoded); /* represents all of them from here on */
	*decoded = (Module){.name = first->name, .rows = first->rows, .cols = first->cols, .experts = first->experts,
		.codes = first->codes, .made = c->made.n};
	*vec_push(&c->arena, &c->made) = (MadeProduct){.format = FORMAT_PLAIN, .rows = m->rows, .cols = m->cols,
		.codes = -1, .scale = -1, .row_scale = -1, .source = pieces[0].codes, .pieces = pieces,
		.n_pieces = m->n_pieces};
	for (int i = 0; i < m->n_pieces; i++)
		m->pieces[i].stored = decoded;
	if (!rule->n_decoded++)
		rule->decoded = m->name;
	return true;
}

static const char *piece_name(Compile *c, const Piece *p, const char *of)
{
	return p->n == p->stored->rows ? of : arena_printf(&c->arena, "%s[%lld:%lld]", of, (long long)p->first,
		(long long)(p->first + p->n));
}

/* Of m's `rows` rows (codes, or scales of them): a matrix, or one for each expert. */
static int shape_of(const Product *m, int64_t rows, int64_t cols, int64_t shape[3])
{
	if (!m->experts)
		return memcpy(shape, (int64_t[]){rows, cols}, 2 * sizeof *shape), 2;
	return memcpy(shape, (int64_t[]){m->experts, rows / m->experts, cols}, 3 * sizeof *shape), 3;
}

/* Rows [first, first + n) of a tensor that has row_bytes bytes a row. */
static Weight piece_weight(Compile *c, const Piece *p, const StTensor *t, Dtype dtype, int64_t first, int64_t n,
	int64_t cols)
{
	return (Weight){.name = piece_name(c, p, t->name), .dtype = dtype, .n_dims = 2, .shape = {n, cols},
		.bytes = dtype_span(dtype, n * cols), .file = c->model.shards.at[t->shard].name,
		.file_offset = t->offset + dtype_span(dtype, first * cols)};
}

/* One tensor of the pieces' weights. A single one has the tensor's shape. */
static int add_pieces(Compile *c, const Product *m, const char *what, int64_t rows, int64_t cols, Weight *w)
{
	const int n = m->n_pieces;
	int64_t shape[3];
	int n_dims = shape_of(m, rows, cols, shape);
	if (n > 1)
		return g_add_weights(c, arena_printf(&c->arena, "%s%s", m->name, what), n_dims, shape, n, w);
	w->n_dims = n_dims;
	memcpy(w->shape, shape, sizeof shape[0] * (size_t)n_dims);
	return g_add_weight(c, w);
}

/* Rows [rows, cols], or [rows] where cols is 0, that are a part of a product made here: which one, into *part. */
static int add_made(Compile *c, const Product *m, int *part, const char *what, Dtype dtype, int64_t rows, int64_t cols)
{
	Weight w = {.name = arena_printf(&c->arena, "atlas.%s.%s", m->name, what), .dtype = dtype,
		.bytes = dtype_span(dtype, rows * (cols ? cols : 1))};
	w.n_dims = shape_of(m, rows, cols, w.shape) - (cols == 0);
	int t = g_add_weight(c, &w);
	*part = c->graph.tensors[t].weight;
	return t;
}

static int add_codes(Compile *c, const Product *m)
{
	const Module *first = m->pieces[0].stored;
	const int n = m->n_pieces;
	Dtype dtype = first->format != FORMAT_PLAIN ? format_info[first->format].codes
		: first->codes ? first->codes->dtype : c->model.config.dtype;
	const QuantRule *rule = first->codes || first->format != FORMAT_PLAIN ? NULL : quant_rule_of(c, first->name);
	dtype = rule && rule->is_bf16 ? DT_bf16 : dtype; /* of --random-weights */
	if (m->is_right && first->made >= 0) {
		MadeProduct *p = &c->made.at[first->made];
		if (p->n_pieces)
			return add_made(c, m, &p->codes, "bf16", DT_bf16, m->rows, m->cols);
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
		w[0] = (Weight){.name = arena_printf(&c->arena, "%s%s", m->name, m->is_fused ? "" : ".weight"),
			.dtype = dtype, .bytes = dtype_span(dtype, m->rows * m->cols)};
		w[0].n_dims = shape_of(m, m->rows, m->cols, shape);
		memcpy(w[0].shape, shape, sizeof shape[0] * (size_t)w[0].n_dims);
		return g_add_weight(c, &w[0]);
	}
	for (int i = 0; i < n; i++) {
		const Piece *p = &m->pieces[i];
		p->stored->codes->used_by++;
		w[i] = piece_weight(c, p, p->stored->codes, dtype, p->first, p->n, m->cols);
	}
	return add_pieces(c, m, ".weight", m->rows, m->cols, w);
}

/* The scales of a module's blocks, each as often as the smaller ones in it. */
static int add_split_scales(Compile *c, const Product *m, int64_t cols)
{
	StTensor *t = m->pieces[0].stored->scale;
	const Dtype dtype = module_scale_dtype(t);
	const int64_t rows = (m->rows - 1) / m->block_n + 1, bytes = dtype_span(dtype, cols);
	const int often = m->pieces[0].stored->block_n / m->block_n;
	uint8_t *stored = arena_alloc(&c->scratch, (size_t)t->bytes + 1);
	uint8_t *split = arena_alloc(&c->arena, (size_t)(rows * bytes));
	t->used_by++;
	if (read_tensor(c, t, stored))
		for (int64_t n = 0; n < rows; n++)
			memcpy(split + n * bytes, stored + n / often * bytes, (size_t)bytes);
	int tensor = g_add_weight(c, &(Weight){.name = arena_printf(&c->arena, "atlas.%s.scale", m->name),
		.dtype = dtype, .n_dims = 2, .shape = {rows, cols}, .bytes = rows * bytes});
	*vec_push(&c->arena, &c->constants) = (Constant){c->graph.n_weights - 1, split};
	return tensor;
}

static int add_block_scales(Compile *c, const Product *m)
{
	const int n = m->n_pieces;
	Weight *w = ARENA_ARRAY(&c->scratch, Weight, n);
	const Module *first = m->pieces[0].stored;
	int64_t rows = 0, cols = (m->cols - 1) / first->block_k + 1;
	if (first->made >= 0) {
		const int64_t each = m->experts ? m->rows / m->experts : m->rows;
		return add_made(c, m, &c->made.at[first->made].scale, "scale", format_info[first->format].scale,
			m->rows / each * ((each - 1) / m->block_n + 1), cols);
	}
	if (m->block_n < first->block_n)
		return add_split_scales(c, m, cols);
	for (int i = 0; i < n; i++) {
		const Piece *p = &m->pieces[i];
		const int64_t at = p->first / p->stored->block_n, count = (p->n - 1) / p->stored->block_n + 1;
		p->stored->scale->used_by++;
		w[i] = piece_weight(c, p, p->stored->scale, module_scale_dtype(p->stored->scale), at, count, cols);
		rows += count;
	}
	return add_pieces(c, m, ".weight_scale", rows, cols, w);
}

/* A scale for each row, from one for all of a module or from one each; -1 when the format has none. */
static int add_row_scale(Compile *c, const Product *m)
{
	const Module *first = m->pieces[0].stored;
	if (first->made >= 0)
		return format_info[first->format].has_row_scale
			? add_made(c, m, &c->made.at[first->made].row_scale, "row_scale", DT_f32, m->rows, 0) : -1;
	if (!(first->format == FORMAT_FP8_CHANNEL ? first->scale : first->second))
		return -1;
	float *rows = ARENA_ARRAY(&c->arena, float, m->rows), *to = rows;
	for (int i = 0; i < m->n_pieces; i++) {
		const Module *s = m->pieces[i].stored;
		StTensor *t = s->format == FORMAT_FP8_CHANNEL ? s->scale : s->second;
		t->used_by++;
		const float *values = module_scales(c, t);
		for (int64_t n = m->pieces[i].first; values && n < m->pieces[i].first + m->pieces[i].n; n++) {
			float value = values[s->format == FORMAT_FP8_CHANNEL ? n : 0];
			*to++ = s->format == FORMAT_NVFP4_OVER ? 1 / value : value;
		}
	}
	const char *name = arena_printf(&c->arena, "atlas.%s.row_scale", m->name);
	if (!m->experts)
		return g_constant(c, name, DT_f32, (int)m->rows, rows);
	int t = g_add_weight(c, &(Weight){.name = name, .dtype = DT_f32, .n_dims = 2,
		.shape = {m->experts, m->rows / m->experts}, .bytes = dtype_span(DT_f32, m->rows)});
	*vec_push(&c->arena, &c->constants) = (Constant){c->graph.n_weights - 1, rows};
	return t;
}

/* Pieces of one product are codes of one kind, with scales of one kind, and no block of these reaches beyond one. */
static bool check_piece(Compile *c, const Product *m, int i)
{
	const Piece *p = &m->pieces[i];
	const Module *a = m->pieces[0].stored, *b = p->stored;
	if (a->format != b->format || a->block_n != b->block_n || a->block_k != b->block_k ||
		(a->codes && strcmp(a->codes->dtype_text, b->codes->dtype_text) != 0) ||
		(a->scale && strcmp(a->scale->dtype_text, b->scale->dtype_text) != 0))
		return fail_at(&c->diags, A0603, loc_of(c, b->codes), "tensor %s is %s of %s, %s is %s of %s: "
			"they are read as one", b->codes->name, format_info[b->format].name, b->codes->dtype_text, a->codes->name,
			format_info[a->format].name, a->codes->dtype_text);
	bool is_last = i + 1 == m->n_pieces || m->experts;
	if (b->format == FORMAT_FP8_BLOCK && (p->first % b->block_n || (p->n % b->block_n &&
		(p->first + p->n < b->rows || !is_last))))
		return fail_at(&c->diags, A0602, loc_of(c, b->scale), "tensor %s: rows %lld to %lld of %s share blocks of %d "
			"rows with others", b->scale->name, (long long)p->first, (long long)(p->first + p->n - 1), b->name,
			b->block_n);
	return true;
}

/* Sees the modules of p's pieces, and how it is made of them: p->is_right, p->rows. */
static void see_product(Compile *c, Product *p)
{
	Module *s = NULL;
	p->is_right = true;
	p->rows = 0;
	for (int i = 0; i < p->n_pieces; i++) {
		Piece *piece = &p->pieces[i];
		p->rows += piece->n;
		if (i > 1 && s && strcmp(s->name, piece->module) != 0) /* of two that alternate */
			s = p->pieces[i - 2].stored;
		if (!s || strcmp(s->name, piece->module) != 0) {
			s = arena_alloc(&c->scratch, sizeof *s);
			*s = (Module){.name = piece->module, .rows = piece->of, .cols = p->cols,
				.experts = p->is_fused ? (int)p->experts : 0, .is_turned = p->is_turned, .made = -1};
			bool is_right = module_see(c, s, p->is_fused);
			if (is_right) {
				Module *m = vec_push(&c->arena, &c->modules);
				*m = *s;
				m->name = arena_strdup(&c->arena, s->name);
			}
			p->is_right &= is_right;
		}
		piece->stored = s;
	}
	p->is_right = p->is_right && see_decoded(c, p);
	Module *first = p->pieces[0].stored;
	if (p->is_right && first->format == FORMAT_INT4 && (p->n_pieces > 1 || p->rows != first->rows))
		p->is_right = fail_at(&c->diags, A0603, loc_of(c, first->codes), "tensor %s is INT4: read as a part of %s, "
			"which is not implemented", first->codes->name, p->name);
	for (int i = 0; i < p->n_pieces && p->is_right; i++)
		p->is_right = check_piece(c, p, i);
	p->is_right = p->is_right && see_made(c, p, first);
	if (p->is_right && first->is_turned && first->codes && first->format == FORMAT_PLAIN)
		p->is_right = turn_here(c, p, first);
	for (int i = 0; i < p->n_pieces && !p->is_right; i++)
		module_give_up(c, p->pieces[i].stored);
}

/* A product's block scales in the graph; of several products those of rows come after. */
static void add_blocks(Compile *c, Product *p)
{
	const Module *s = p->pieces[0].stored;
	const bool has_blocks = p->is_right && s->format != FORMAT_PLAIN && s->block_n;
	p->block_n = has_blocks ? p->block_n : 0;
	p->block_k = has_blocks ? s->block_k : 0;
	p->scale = has_blocks ? add_block_scales(c, p) : -1;
}

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

/* Blocks of FP8 whose edges are also edges of q, k and v, which fuse.c makes one weight of: all but the last, whose end
 * is the start of none. Two products of one input (gate and up) stay two weights. */
static void fit_blocks(Compile *c, int n, Product *p)
{
	int64_t common = 0;
	bool is_same = n > 2;
	for (int i = 0; i < n; i++) {
		const Module *s = p[i].pieces[0].stored, *first = p[0].pieces[0].stored;
		p[i].block_n = s->block_n;
		is_same &= p[i].is_right && s->format == FORMAT_FP8_BLOCK && p[i].n_pieces == 1 &&
			!p[i].experts && s->block_n == first->block_n && s->block_k == first->block_k;
		common = common_divisor(common, i + 1 < n ? p[i].rows : s->block_n);
	}
	for (int i = 0; i < n && is_same; i++) {
		const Module *s = p[i].pieces[0].stored;
		p[i].block_n = (int)common;
		if (s->made >= 0)
			c->made.at[s->made].block_n = (int)common;
	}
}

/* Products that were made already: all of these, or none. */
static bool find_products(const Compile *c, int n, Product *p)
{
	int found = 0;
	for (int i = 0; i < n; i++)
		for (int k = 0; k < c->products.n; k++)
			if (strcmp(c->products.at[k]->name, p[i].name) == 0) {
				p[i] = *c->products.at[k];
				found++;
				break;
			}
	if (found && found != n)
		bug("%s and its neighbours: %d of %d products are there", p[0].name, found, n);
	return found;
}

static void keep_products(Compile *c, int n, Product *made)
{
	for (int i = 0; i < n; i++) {
		Product *p = arena_alloc(&c->arena, sizeof *p);
		made[i].pieces = NULL; /* the caller's */
		*p = made[i];
		p->name = arena_strdup(&c->arena, p->name);
		*vec_push(&c->arena, &c->products) = p;
	}
}

void g_products_of(Compile *c, int n, Product *p)
{
	if (n > MAX_TOGETHER)
		bug("%d products of one input", n);
	if (find_products(c, n, p))
		return;
	for (int i = 0; i < n; i++) {
		see_product(c, &p[i]);
		p[i].w = add_codes(c, &p[i]);
		p[i].row_scale = -1;
	}
	fit_blocks(c, n, p);
	for (int i = 0; i < n; i++)
		add_blocks(c, &p[i]);
	for (int i = 0; i < n; i++)
		if (p[i].is_right)
			p[i].row_scale = add_row_scale(c, &p[i]);
	keep_products(c, n, p);
}

/* All of a module, or its first `rows` rows, of which it is known how they are made: its tensors. */
static void add_product(Compile *c, Product *p)
{
	p->block_n = p->pieces->stored->block_n;
	p->w = add_codes(c, p);
	add_blocks(c, p);
	p->row_scale = p->is_right ? add_row_scale(c, p) : -1;
}

void g_tied_product(Compile *c, const char *module, const char *tensor, int table, int64_t rows, int64_t cols,
	Product *out)
{
	Module s = {.name = module, .rows = rows, .cols = cols, .made = -1, .codes = g_find_tensor(c, tensor)};
	Piece piece = {module, rows, 0, rows, &s};
	*out = (Product){.name = module, .n_pieces = 1, .pieces = &piece, .cols = cols, .rows = rows, .is_right = true,
		.w = table, .scale = -1, .row_scale = -1};
	out->is_right = see_made(c, out, &s);
	if (out->is_right && s.made >= 0)
		add_product(c, out);
	out->pieces = NULL;
}

/* How the rows of the head that drafts read are made, if they are. False after having said why they cannot be. */
static bool see_draft_rows(Compile *c, const Product *m, Module *s)
{
	const Options *o = &c->model.options;
	QuantRule *rule = quant_rule_of(c, s->name);
	const bool asks = rule && rule->format != FORMAT_PLAIN;
	bool is_right;
	const QuantTarget *listed = c->cmd.random_weights && !asks && !(rule && rule->is_bf16)
		? told_of(c, m, s, &is_right) : NULL;
	const WeightFormat stored = s->format == FORMAT_PLAIN && listed ? listed->format : s->format;
	if (o->draft_format != FORMAT_PLAIN && stored != FORMAT_PLAIN)
		return fail_at(&c->diags, A0304, o->at_draft_format, "speculate.head: %s is %s in the checkpoint, and only "
			"what is not quantized can be", s->name, format_info[stored].name);
	if (s->format == FORMAT_INT4)
		return fail_at(&c->diags, A0304, o->at_draft_ids, "speculate.vocabulary: %s is INT4 in the checkpoint, of "
			"which all rows are taken or none", s->name);
	if (o->draft_ids && s->format != FORMAT_PLAIN)
		return fail_at(&c->diags, A0304, o->at_draft_ids, "speculate.vocabulary_file: %s is %s in the checkpoint, and "
			"only of what is not quantized rows are taken one by one: speculate.vocabulary = N takes the first N",
			s->name, format_info[s->format].name);
	const WeightFormat format = o->draft_format != FORMAT_PLAIN ? o->draft_format : asks ? rule->format
		: listed ? listed->format : FORMAT_PLAIN;
	if (format == FORMAT_PLAIN && (!o->draft_ids || !s->codes)) /* a range of the file, or made up as any weight is */
		return true;
	if (!c->cmd.embed_weights && s->codes)
		return fail_at(&c->diags, A0304, o->at_draft_ids, "speculate.vocabulary_file: with --weights ref the weights "
			"are those of the checkpoint's files, where these rows are not adjacent: speculate.vocabulary = N takes "
			"the first N");
	if (!make_here(c, m, s, format, listed, o->at_draft_format))
		return false;
	c->made.at[s->made].ids = o->draft_ids;
	return true;
}

DraftHead g_draft_head(Compile *c, const DecoderEnds *ends)
{
	const Options *o = &c->model.options;
	const int64_t vocab = c->model.config.vocab, cols = c->model.config.hidden_dim;
	DraftHead out = {ends->head, (int)vocab, -1};
	const int rows = o->n_draft_ids ? o->n_draft_ids : (int)vocab;
	if ((rows == vocab && o->draft_format == FORMAT_PLAIN) || c->diags.n_errors)
		return out;
	const char *head = c->model.config.family->names[NAME_HEAD];
	Module s = {.name = head, .rows = vocab, .cols = cols, .made = -1};
	Piece piece = {head, vocab, 0, rows, &s};
	Product p = {.name = arena_printf(&c->arena, "%s.draft", head), .n_pieces = 1, .pieces = &piece, .cols = cols,
		.rows = rows, .is_right = true};
	if (c->model.config.tie_embeddings)
		s.codes = g_find_tensor(c, c->graph.tensors[ends->table].name);
	else
		p.is_right = module_see(c, &s, false);
	p.is_right = p.is_right && see_draft_rows(c, &p, &s);
	add_product(c, &p);
	p.pieces = NULL;
	out.n = rows;
	out.rows = p;
	if (o->draft_ids)
		out.ids = g_constant(c, "atlas.draft_ids", DT_i32, rows, o->draft_ids);
	return out;
}

void g_products(Compile *c, int n, const char *const *modules, const int64_t *rows, int64_t cols, Product *out)
{
	Piece pieces[MAX_TOGETHER];
	for (int i = 0; i < n && i < MAX_TOGETHER; i++) {
		pieces[i] = (Piece){.module = modules[i], .of = rows[i], .n = rows[i]};
		out[i] = (Product){.name = modules[i], .n_pieces = 1, .pieces = &pieces[i], .cols = cols};
	}
	g_products_of(c, n, out);
}

void g_linear(Compile *c, int layer, int phases, const Product *p, int x, int bias, int y)
{
	const Attrs block = {.block_n = p->block_n, .block_k = p->block_k};
	g_op(c, OP_linear, layer, phases, &block, (int[]){x, p->w, p->scale, p->row_scale, bias, y});
}
