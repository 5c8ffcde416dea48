/* unicode.c - from the generated Unicode data to the tables a compiled tokenizer carries.
 *
 * Both tables are the usual two steps: the high bits of a code point choose a block of 256
 * values, equal blocks are stored once. Unassigned planes cost two bytes a block.
 */
#include "compiler/tokenizer/unicode.h"
#include "compiler/tokenizer/tokenizer_spec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { N_POINTS = 0x110000, HANGUL_FIRST = 0xAC00, HANGUL_LAST = 0xD7A3,
	JAMO_V_FIRST = 0x1161, JAMO_V_LAST = 0x1175, JAMO_T_FIRST = 0x11A8, JAMO_T_LAST = 0x11C2 };

int unicode_category_named(const char *name, int len)
{
	static const char names[] = "Cn" "Lu" "Ll" "Lt" "Lm" "Lo" "Mn" "Mc" "Me" "Nd" "Nl" "No" "Pc" "Pd"
		"Ps" "Pe" "Pi" "Pf" "Po" "Sm" "Sc" "Sk" "So" "Zs" "Zl" "Zp" "Cc" "Cf" "Co" "Cs";
	static_assert(sizeof names == 2 * TOK_CATEGORY_COUNT + 1, "one name a category");
	for (int i = 0; i < TOK_CATEGORY_COUNT; i++)
		if (len == 2 && !memcmp(names + 2 * i, name, 2))
			return i;
	return -1;
}

static CharTable compress(Arena *a, const uint8_t *values)
{
	CharTable t = {.index = ARENA_ARRAY(a, uint16_t, TOK_CHAR_BLOCKS)};
	t.blocks = arena_alloc(a, N_POINTS / 8); /* far more than equal blocks leave; checked below */
	for (int b = 0; b < TOK_CHAR_BLOCKS; b++) {
		const uint8_t *block = values + b * 256;
		int i = 0;
		while (i < t.n_blocks && memcmp(t.blocks + i * 256, block, 256))
			i++;
		if (i == t.n_blocks) {
			assert((t.n_blocks + 1) * 256 <= N_POINTS / 8);
			memcpy(t.blocks + t.n_blocks++ * 256, block, 256);
		}
		t.index[b] = (uint16_t)i;
	}
	return t;
}

static void mark_ranges(uint8_t *values, const uint32_t *pairs, int n, uint8_t flag)
{
	for (int i = 0; i < n; i += 2)
		for (uint32_t cp = pairs[i]; cp <= pairs[i + 1]; cp++)
			values[cp] |= flag;
}

CharTable unicode_classes(Arena *a)
{
	static const uint32_t spaces[] = {0x9, 0xD, 0x20, 0x20, 0x85, 0x85, 0xA0, 0xA0, 0x1680, 0x1680,
		0x2000, 0x200A, 0x2028, 0x2029, 0x202F, 0x202F, 0x205F, 0x205F, 0x3000, 0x3000};
	const uint32_t numeric = 1u << TOK_ND | 1u << TOK_NL | 1u << TOK_NO;
	const uint32_t word = 0x3Eu /* L */ | 1u << TOK_MN | 1u << TOK_MC | 1u << TOK_ME | 1u << TOK_ND |
		1u << TOK_NL | 1u << TOK_PC;
	uint8_t *values = arena_alloc(a, N_POINTS);
	for (int i = 0; i < unicode_category_runs_n; i++) {
		uint32_t run = unicode_category_runs[i], category = run & 31;
		uint32_t end = i + 1 < unicode_category_runs_n ? unicode_category_runs[i + 1] >> 5 : N_POINTS;
		uint8_t value = (uint8_t)(category | (numeric >> category & 1 ? TOK_IS_NUMERIC : 0) |
			(word >> category & 1 ? TOK_IS_WORD : 0));
		memset(values + (run >> 5), value, end - (run >> 5));
	}
	mark_ranges(values, spaces, (int)(sizeof spaces / sizeof spaces[0]), TOK_IS_SPACE);
	mark_ranges(values, unicode_numeric_extra, unicode_numeric_extra_n, TOK_IS_NUMERIC);
	mark_ranges(values, unicode_word_extra, unicode_word_extra_n, TOK_IS_WORD);
	return compress(a, values);
}

static int by_point(const void *x, const void *y)
{
	uint32_t a = ((const TokDecomposition *)x)->point, b = ((const TokDecomposition *)y)->point;
	return (a > b) - (a < b);
}

/* Appends the records of one list; a point listed before keeps its first record. */
static void add_decompositions(NormTables *t, uint8_t *flags, const uint32_t *list, int n)
{
	for (int i = 0; i < n; i += 2 + (int)list[i + 1]) {
		if (flags[list[i]] & TOK_NORM_DECOMPOSES)
			continue;
		flags[list[i]] |= TOK_NORM_DECOMPOSES;
		t->decompositions[t->n_decompositions++] =
			(TokDecomposition){list[i], (uint32_t)t->n_points, list[i + 1]};
		memcpy(t->points + t->n_points, list + i + 2, list[i + 1] * sizeof *list);
		t->n_points += (int)list[i + 1];
	}
}

/* The pairs (ccc, flags) that occur, each once, and for every point the index of its pair. */
static void pair_props(Arena *a, NormTables *t, const uint8_t *ccc, const uint8_t *flags)
{
	uint8_t *values = arena_alloc(a, N_POINTS);
	t->props_list = ARENA_ARRAY(a, TokNormProps, 256);
	for (int cp = 0; cp < N_POINTS; cp++) {
		int i = 0;
		while (i < t->n_props && (t->props_list[i].ccc != ccc[cp] || t->props_list[i].flags != flags[cp]))
			i++;
		if (i == t->n_props) {
			assert(t->n_props < 256);
			t->props_list[t->n_props++] = (TokNormProps){ccc[cp], flags[cp]};
		}
		values[cp] = (uint8_t)i;
	}
	t->props = compress(a, values);
}

NormTables unicode_normalisation(Arena *a, TokForm form)
{
	NormTables t = {0};
	uint8_t *ccc = arena_alloc(a, N_POINTS), *flags = arena_alloc(a, N_POINTS);
	for (int i = 0; i < unicode_ccc_runs_n; i++) {
		uint32_t first = unicode_ccc_runs[i] >> 8;
		uint32_t end = i + 1 < unicode_ccc_runs_n ? unicode_ccc_runs[i + 1] >> 8 : N_POINTS;
		memset(ccc + first, unicode_ccc_runs[i] & 255, end - first);
	}
	int most = unicode_canonical_n + unicode_compat_n; /* more than there can be records or points */
	t.decompositions = ARENA_ARRAY(a, TokDecomposition, most / 2);
	t.points = ARENA_ARRAY(a, uint32_t, most);
	if (form == TOK_NFKC || form == TOK_NFKD)
		add_decompositions(&t, flags, unicode_compat, unicode_compat_n);
	add_decompositions(&t, flags, unicode_canonical, unicode_canonical_n);
	qsort(t.decompositions, (size_t)t.n_decompositions, sizeof *t.decompositions, by_point);
	for (int cp = HANGUL_FIRST; cp <= HANGUL_LAST; cp++)
		flags[cp] |= TOK_NORM_DECOMPOSES;
	if (form == TOK_NFC || form == TOK_NFKC) {
		t.n_compositions = unicode_compositions_n / 3;
		t.compositions = ARENA_ARRAY(a, TokComposition, t.n_compositions);
		for (int i = 0; i < t.n_compositions; i++) {
			const uint32_t *c = unicode_compositions + 3 * i;
			t.compositions[i] = (TokComposition){c[0], c[1], c[2]};
			flags[c[1]] |= TOK_NORM_SECOND;
		}
		for (int cp = JAMO_V_FIRST; cp <= JAMO_V_LAST; cp++)
			flags[cp] |= TOK_NORM_SECOND;
		for (int cp = JAMO_T_FIRST; cp <= JAMO_T_LAST; cp++)
			flags[cp] |= TOK_NORM_SECOND;
	}
	pair_props(a, &t, ccc, flags);
	return t;
}

static TokNormProps props_of(const NormTables *t, uint32_t cp)
{
	return t->props_list[t->props.blocks[t->props.index[cp >> 8] * 256 + (cp & 255)]];
}

/* Normalising a text ----------------------------------------------------------------------------------- */

enum { JAMO_L_FIRST = 0x1100, JAMO_L_N = 19, JAMO_V_N = 21, JAMO_T_N = 28, JAMO_T_NONE = JAMO_T_FIRST - 1 };

typedef VEC(uint32_t) Points;

static bool is_hangul(uint32_t cp) { return cp >= HANGUL_FIRST && cp <= HANGUL_LAST; }

static void take_apart(Arena *a, const NormTables *t, uint32_t cp, Points *out)
{
	const TokDecomposition key = {.point = cp}, *d = bsearch(&key, t->decompositions, (size_t)t->n_decompositions,
		sizeof key, by_point);
	if (is_hangul(cp)) {
		const uint32_t s = cp - HANGUL_FIRST;
		*vec_push(a, out) = JAMO_L_FIRST + s / (JAMO_V_N * JAMO_T_N);
		*vec_push(a, out) = JAMO_V_FIRST + s / JAMO_T_N % JAMO_V_N;
		if (s % JAMO_T_N)
			*vec_push(a, out) = JAMO_T_NONE + s % JAMO_T_N;
	} else if (!d) {
		*vec_push(a, out) = cp;
	} else {
		for (uint32_t i = 0; i < d->n; i++)
			*vec_push(a, out) = t->points[d->first + i];
	}
}

/* The composite of two points, or 0. */
static uint32_t put_together(const NormTables *t, uint32_t a, uint32_t b)
{
	if (a >= JAMO_L_FIRST && a < JAMO_L_FIRST + JAMO_L_N && b >= JAMO_V_FIRST && b <= JAMO_V_LAST)
		return HANGUL_FIRST + ((a - JAMO_L_FIRST) * JAMO_V_N + b - JAMO_V_FIRST) * JAMO_T_N;
	if (is_hangul(a) && (a - HANGUL_FIRST) % JAMO_T_N == 0 && b >= JAMO_T_FIRST && b <= JAMO_T_LAST)
		return a + b - JAMO_T_NONE;
	for (int i = 0; i < t->n_compositions; i++)
		if (t->compositions[i].first == a && t->compositions[i].second == b)
			return t->compositions[i].composite;
	return 0;
}

/* A mark is kept from its starter by one of its own or a higher class between them. */
static void put_all_together(const NormTables *t, Points *p)
{
	int out = 0, starter = -1, last = -1; /* last: class of what comes after the starter, -1 = nothing */
	for (int i = 0; i < p->n; i++) {
		const uint32_t cp = p->at[i];
		const int class = props_of(t, cp).ccc;
		const uint32_t both = starter >= 0 && last < class ? put_together(t, p->at[starter], cp) : 0;
		if (both) {
			p->at[starter] = both;
			continue;
		}
		last = class ? class : -1;
		starter = class ? starter : out;
		p->at[out++] = cp;
	}
	p->n = out;
}

static int utf8_write(char *out, uint32_t cp)
{
	const int n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
	static const unsigned char heads[] = {0, 0x00, 0xC0, 0xE0, 0xF0};
	for (int i = n - 1; i > 0; i--, cp >>= 6)
		out[i] = (char)(0x80 | (cp & 0x3F));
	out[0] = (char)(heads[n] | cp);
	return n;
}

const char *unicode_normalised(Arena *a, const NormTables *t, const char *text, size_t n, size_t *n_out)
{
	Points p = {0};
	for (size_t k = 0; k < n;) {
		uint32_t cp;
		k += (size_t)utf8_next(text + k, &cp);
		take_apart(a, t, cp, &p);
	}
	for (int i = 1; i < p.n; i++) /* marks by class, in their order where it is equal */
		for (int k = i; k > 0 && props_of(t, p.at[k]).ccc && props_of(t, p.at[k - 1]).ccc > props_of(t, p.at[k]).ccc;
				k--) {
			const uint32_t mark = p.at[k];
			p.at[k] = p.at[k - 1];
			p.at[k - 1] = mark;
		}
	if (t->n_compositions)
		put_all_together(t, &p);
	char *out = arena_alloc(a, (size_t)p.n * 4 + 1);
	*n_out = 0;
	for (int i = 0; i < p.n; i++)
		*n_out += (size_t)utf8_write(out + *n_out, p.at[i]);
	return out;
}
