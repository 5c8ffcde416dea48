/* normalize.c - the Unicode normal forms (UAX #15), with the tables of the compiled tokenizer.
 *
 * Text falls into segments: a code point that neither moves nor combines with what comes before
 * it, and all that follows up to the next such. A segment of one code point that does not
 * decompose is copied; any other is decomposed, its marks are sorted by combining class, and for
 * NFC and NFKC composed again. A segment can be as long as the text (a million accents), so that
 * long runs of marks are sorted by counting.
 */
#include "runtime/text/encoder.h"

enum { S_BASE = 0xAC00, L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11A7, L_COUNT = 19, V_COUNT = 21,
	T_COUNT = 28, N_COUNT = V_COUNT * T_COUNT, S_COUNT = L_COUNT * N_COUNT };
enum { CLASS_SHIFT = 24, POINT_MASK = (1 << CLASS_SHIFT) - 1, INSERTION_MAX = 24 };

static TokNormProps props_of(const Tok *t, uint32_t cp)
{
	return t->props[t->norm_blocks[(uint32_t)t->norm_index[cp >> 8] * 256 + (cp & 255)]];
}

static const TokDecomposition *find_decomposition(const Tok *t, uint32_t cp)
{
	uint32_t low = 0, high = t->count[TOK_SEC_DECOMPOSITIONS];
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (t->decompositions[mid].point < cp)
			low = mid + 1;
		else
			high = mid;
	}
	bool found = low < t->count[TOK_SEC_DECOMPOSITIONS] && t->decompositions[low].point == cp;
	return found ? &t->decompositions[low] : NULL;
}

static bool is_hangul(uint32_t cp)
{
	return cp - S_BASE < S_COUNT;
}

/* Can nothing before this code point change it, or be changed by it? */
static bool starts_segment(const Tok *t, uint32_t cp)
{
	TokNormProps p = props_of(t, cp);
	if (p.ccc || p.flags & TOK_NORM_SECOND)
		return false;
	if (!(p.flags & TOK_NORM_DECOMPOSES) || is_hangul(cp))
		return true;
	const TokDecomposition *d = find_decomposition(t, cp);
	if (!d)
		return true;
	p = props_of(t, t->points[d->first]);
	return !p.ccc && !(p.flags & TOK_NORM_SECOND);
}

static bool put_point(Encoder *e, size_t *n, uint32_t cp)
{
	if (!RESERVE(e, e->points, e->points_cap, *n + 1))
		return false;
	e->points[(*n)++] = cp | (uint32_t)props_of(e->tok, cp).ccc << CLASS_SHIFT;
	return true;
}

static void decompose(Encoder *e, size_t *n, uint32_t cp)
{
	const Tok *t = e->tok;
	const TokDecomposition *d;
	if (!(props_of(t, cp).flags & TOK_NORM_DECOMPOSES)) {
		put_point(e, n, cp);
	} else if (is_hangul(cp)) {
		uint32_t s = cp - S_BASE;
		put_point(e, n, L_BASE + s / N_COUNT);
		put_point(e, n, V_BASE + s % N_COUNT / T_COUNT);
		if (s % T_COUNT)
			put_point(e, n, T_BASE + s % T_COUNT);
	} else if ((d = find_decomposition(t, cp)) != NULL) {
		for (uint32_t i = 0; i < d->n; i++)
			put_point(e, n, t->points[d->first + i]);
	} else {
		put_point(e, n, cp);
	}
}

/* Stable sort of marks by combining class. */
static void sort_marks(Encoder *e, uint32_t *marks, size_t n)
{
	if (n <= INSERTION_MAX) {
		for (size_t i = 1; i < n; i++) {
			uint32_t mark = marks[i];
			size_t k = i;
			for (; k && marks[k - 1] >> CLASS_SHIFT > mark >> CLASS_SHIFT; k--)
				marks[k] = marks[k - 1];
			marks[k] = mark;
		}
		return;
	}
	if (!RESERVE(e, e->sorted, e->sorted_cap, n))
		return;
	size_t start[257] = {0};
	for (size_t i = 0; i < n; i++)
		start[(marks[i] >> CLASS_SHIFT) + 1]++;
	for (int c = 0; c < 256; c++)
		start[c + 1] += start[c];
	for (size_t i = 0; i < n; i++)
		e->sorted[start[marks[i] >> CLASS_SHIFT]++] = marks[i];
	memcpy(marks, e->sorted, n * sizeof *marks);
}

/* The composite of two code points, or 0. */
static uint32_t compose_pair(const Tok *t, uint32_t a, uint32_t b)
{
	if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT)
		return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
	if (is_hangul(a) && (a - S_BASE) % T_COUNT == 0 && b - T_BASE - 1 < T_COUNT - 1)
		return a + (b - T_BASE);
	uint32_t low = 0, high = t->count[TOK_SEC_COMPOSITIONS];
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		const TokComposition *c = &t->compositions[mid];
		if (c->first < a || (c->first == a && c->second < b))
			low = mid + 1;
		else
			high = mid;
	}
	if (low == t->count[TOK_SEC_COMPOSITIONS])
		return 0;
	const TokComposition *c = &t->compositions[low];
	return c->first == a && c->second == b ? c->composite : 0;
}

/* Composes points[0, n) in place; returns the new length. A mark is blocked from the starter by
 * one of its own or a higher class between them. */
static size_t compose(const Tok *t, uint32_t *points, size_t n)
{
	size_t out = 0, starter = SIZE_MAX;
	int last = -1; /* class of what is between the starter and here, -1 = nothing */
	for (size_t i = 0; i < n; i++) {
		int class = (int)(points[i] >> CLASS_SHIFT);
		uint32_t both = 0;
		if (starter != SIZE_MAX && last < class &&
			(props_of(t, points[i] & POINT_MASK).flags & TOK_NORM_SECOND))
			both = compose_pair(t, points[starter] & POINT_MASK, points[i] & POINT_MASK);
		if (both) {
			points[starter] = both;
			continue;
		}
		last = class;
		if (!class) {
			starter = out;
			last = -1;
		}
		points[out++] = points[i];
	}
	return out;
}

static void normalize_segment(Encoder *e, const unsigned char *text, size_t n, bool composes, Bytes *out)
{
	size_t n_points = 0;
	for (size_t at = 0; at < n && !e->error;) {
		uint32_t cp;
		at += utf8_take(text + at, n - at, &cp);
		decompose(e, &n_points, cp);
	}
	for (size_t i = 0, k; i < n_points && !e->error; i = k) {
		for (k = i; k < n_points && e->points[k] >> CLASS_SHIFT; k++)
			;
		if (k - i > 1)
			sort_marks(e, e->points + i, k - i);
		k += k == i;
	}
	if (e->error)
		return;
	if (composes)
		n_points = compose(e->tok, e->points, n_points);
	for (size_t i = 0; i < n_points; i++) {
		unsigned char utf8[UTF8_MAX];
		bytes_put(e, out, utf8, (size_t)utf8_write(utf8, e->points[i] & POINT_MASK));
	}
}

void normalize(Encoder *e, const unsigned char *text, size_t n, Bytes *out)
{
	const Tok *t = e->tok;
	bool composes = t->count[TOK_SEC_COMPOSITIONS] > 0;
	size_t at = 0, plain = 0; /* text[plain, at) is to be copied as it is */
	while (at < n && !e->error) {
		uint32_t cp, next;
		if (text[at] < 0x80 && (at + 1 == n || text[at + 1] < 0x80)) {
			at++;
			continue;
		}
		size_t len = utf8_take(text + at, n - at, &cp), end = at + len;
		while (end < n) {
			size_t k = utf8_take(text + end, n - end, &next);
			if (starts_segment(t, next))
				break;
			end += k;
		}
		TokNormProps p = props_of(t, cp);
		if (end > at + len || p.flags & TOK_NORM_DECOMPOSES) {
			bytes_put(e, out, text + plain, at - plain);
			normalize_segment(e, text + at, end - at, composes, out);
			plain = end;
		}
		at = end;
	}
	bytes_put(e, out, text + plain, n - plain);
}

size_t normal_border(const Tok *t, const unsigned char *text, size_t n, size_t at)
{
	while (t->count[TOK_SEC_NORM_INDEX] && at < n) {
		uint32_t cp;
		const size_t k = utf8_take(text + at, n - at, &cp);
		if (starts_segment(t, cp))
			break;
		at += k;
	}
	return at;
}
