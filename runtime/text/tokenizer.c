/* tokenizer.c - text to ids: added tokens are cut out, the rest goes through normaliser,
 * pre-tokenizer and byte-pair encoding (artifacts/tokenizer_format.h has the order).
 */
#include "runtime/text/encoder.h"

#include <limits.h>
#include <stdlib.h>

int tok_n_ids(const Tok *t) { return (int)t->header->n_ids; }

int tok_n_vocab_ids(const Tok *t)
{
	int n = tok_n_ids(t);
	while (n > 0 && !(t->tokens[n - 1].flags & TOK_KEYED))
		n--;
	return n;
}

int tok_n_tokens(const Tok *t, int below)
{
	int n = 0;
	for (int id = 0; id < tok_n_ids(t) && id < below; id++)
		n += (t->tokens[id].flags & TOK_EXISTS) != 0;
	return n;
}

int tok_bos(const Tok *t) { return t->header->bos_id; }
int tok_eos(const Tok *t) { return t->header->eos_id; }

/* Scratch memory ------------------------------------------------------------------------------ */

bool encoder_reserve(Encoder *e, void **at, size_t *cap, size_t n, size_t elem_bytes)
{
	if (n <= *cap)
		return true;
	size_t grown = *cap < 64 ? 64 : *cap + *cap / 2;
	grown = grown < n ? n : grown;
	void *p = e->error ? NULL : realloc(*at, grown * elem_bytes);
	if (!p) {
		e->error = e->error ? e->error : TOK_E_MEMORY;
		return false;
	}
	*at = p;
	*cap = grown;
	return true;
}

void bytes_put(Encoder *e, Bytes *b, const void *from, size_t n)
{
	if (n > TOK_MAX_TEXT - b->n)
		e->error = e->error ? e->error : TOK_E_SIZE;
	if (!n || e->error || !RESERVE(e, b->at, b->cap, b->n + n))
		return;
	memcpy(b->at + b->n, from, n);
	b->n += n;
}

static void encoder_free(Encoder *e)
{
	free(e->valid.at);
	free(e->spans[0]);
	free(e->spans[1]);
	for (int i = 0; i < 2; i++) {
		free(e->normal[i].at);
		free(e->spaced[i].at);
		free(e->pieces[i].at);
	}
	free(e->points);
	free(e->sorted);
	free(e->frames);
	free(e->symbols);
	free(e->heap);
}

/* Added tokens -------------------------------------------------------------------------------- */

/* Are the bytes [begin, end) in one span? */
static bool in_span(const Encoder *e, int tree, size_t begin, size_t end)
{
	size_t low = 0, high = e->n_spans[tree]; /* spans before `low` begin at or before `begin` */
	while (low < high) {
		const size_t mid = low + (high - low) / 2;
		if (e->spans[tree][mid].begin <= begin)
			low = mid + 1;
		else
			high = mid;
	}
	return low && end <= e->spans[tree][low - 1].end;
}

/* Longest added token at text[at]; its length, 0 = none. With spans, the longest of those that may be there: what comes
 * after a span, which may be from a user, takes no token from it. */
static size_t match_added(const Encoder *e, int tree, const unsigned char *text, size_t n, size_t at,
	const TokAdded **added)
{
	const Tok *t = e->tok;
	const TokNode *node = &t->nodes[tree][0];
	size_t start = at, best = 0;
	for (;;) {
		if (node->accept && at > start && (!e->by_spans || !(t->added[node->accept - 1].flags & TOK_ADDED_SPECIAL) ||
			in_span(e, tree, start, at))) {
			*added = &t->added[node->accept - 1];
			best = at - start;
		}
		if (at == n)
			return best;
		uint32_t low = node->edge, end = node->edge + node->n_edges, high = end;
		while (low < high) {
			uint32_t mid = low + (high - low) / 2;
			if (t->edges[tree][mid] >> 24 < text[at])
				low = mid + 1;
			else
				high = mid;
		}
		if (low == end || t->edges[tree][low] >> 24 != text[at])
			return best;
		node = &t->nodes[tree][t->edges[tree][low] & 0xFFFFFF];
		at++;
	}
}

static bool has_class(const Tok *t, uint32_t cp, uint8_t flag)
{
	return tok_class(t, cp) & flag;
}

static bool beside_word(const Tok *t, const unsigned char *text, size_t n, size_t start, size_t end)
{
	uint32_t cp;
	if (start) {
		size_t k = utf8_back(text, start);
		utf8_take(text + start - k, k, &cp);
		if (has_class(t, cp, TOK_IS_WORD))
			return true;
	}
	if (end == n)
		return false;
	utf8_take(text + end, n - end, &cp);
	return has_class(t, cp, TOK_IS_WORD);
}

/* Widens a match over the white space that belongs to it, not before `floor`. */
static void widen(const Tok *t, const TokAdded *a, const unsigned char *text, size_t n, size_t floor,
	size_t *start, size_t *end)
{
	uint32_t cp;
	while (a->flags & TOK_ADDED_LSTRIP && *start > floor) {
		size_t k = utf8_back(text, *start);
		utf8_take(text + *start - k, k, &cp);
		if (!has_class(t, cp, TOK_IS_SPACE))
			break;
		*start -= k;
	}
	while (a->flags & TOK_ADDED_RSTRIP && *end < n) {
		size_t k = utf8_take(text + *end, n - *end, &cp);
		if (!has_class(t, cp, TOK_IS_SPACE))
			break;
		*end += k;
	}
}

typedef void GapFunc(Encoder *e, const unsigned char *text, size_t n, bool at_start);

/* Gives ids to the added tokens of one tree in a text and the gaps between them to `gap`. */
static void cut_added(Encoder *e, int tree, const unsigned char *text, size_t n, bool at_start, GapFunc *gap)
{
	const Tok *t = e->tok;
	bool any = t->count[tree ? TOK_SEC_NORMAL_NODES : TOK_SEC_RAW_NODES] > 0;
	size_t done = 0;
	for (size_t at = 0; any && at < n && !e->error;) {
		const TokAdded *a = NULL;
		size_t len = match_added(e, tree, text, n, at, &a), start = at, end = at + len;
		if (!len) {
			at++;
			continue;
		}
		at = end; /* what does not count as a match is still not looked into */
		if (a->flags & TOK_ADDED_SPECIAL && !e->parse_special && !e->by_spans)
			continue;
		if (a->flags & TOK_ADDED_SINGLE_WORD && beside_word(t, text, n, start, end))
			continue;
		widen(t, a, text, n, done, &start, &end);
		if (start > done)
			gap(e, text + done, start - done, at_start && !done);
		encoder_put_id(e, a->id);
		done = end; /* even when a wide match before had taken more: so does the reference library */
	}
	if (done < n && !e->error)
		gap(e, text + done, n - done, at_start && !done);
}

static void encode_normal(Encoder *e, const unsigned char *text, size_t n, bool at_start)
{
	e->at_start = at_start;
	const Pieces *pieces = run_pre_tokenizers(e, text, n);
	for (size_t i = 0; i < pieces->n && !e->error; i++)
		encode_word(e, e->base + pieces->at[i].at, pieces->at[i].n);
}

static void put_span(Encoder *e, size_t begin, size_t end)
{
	if (begin < end && RESERVE(e, e->spans[1], e->spans_cap[1], e->n_spans[1] + 1))
		e->spans[1][e->n_spans[1]++] = (TextRange){begin, end};
}

/* Where the spans of a text are in its normal form: what lies between two borders is as long as its own normal form. A
 * border before marks that are composed with what is before it moves after them. */
static void map_spans(Encoder *e, const unsigned char *text, size_t n)
{
	const size_t from = (size_t)(text - e->whole), to = from + n;
	size_t at = from, normal = 0;
	e->n_spans[1] = 0;
	for (size_t i = 0; i < e->n_spans[0] && !e->error; i++) {
		const TextRange s = e->spans[0][i];
		const size_t borders[2] = {s.begin < from ? from : s.begin, s.end > to ? to : s.end};
		if (s.end <= from)
			continue;
		if (s.begin >= to)
			break;
		for (int k = 0; k < 2; k++) {
			const size_t border = normal_border(e->tok, e->whole, to, borders[k]), before = normal;
			size_t part = border > at ? border - at : 0;
			run_normalizers(e, e->whole + at, &part, at == from);
			normal += part;
			at += border > at ? border - at : 0;
			if (k)
				put_span(e, before, normal);
		}
	}
}

static void encode_raw(Encoder *e, const unsigned char *text, size_t n, bool at_start)
{
	if (e->by_spans && e->tok->count[TOK_SEC_NORMAL_NODES])
		map_spans(e, text, n);
	e->at_start = at_start;
	text = run_normalizers(e, text, &n, true);
	cut_added(e, 1, text, n, e->at_start, encode_normal);
}

/* Entry --------------------------------------------------------------------------------------- */

/* Bytes [at, at + k) of the text are replaced by three others: moves the borders of spans up to there. */
typedef struct Borders { size_t next; int64_t shift; } Borders;
static void move_borders(Encoder *e, Borders *b, size_t at, size_t k)
{
	for (; b->next < 2 * e->n_spans[0]; b->next++) {
		TextRange *s = &e->spans[0][b->next / 2];
		size_t *border = b->next % 2 ? &s->end : &s->begin;
		if (*border >= at + k && *border != at)
			break;
		*border = (size_t)((int64_t)(*border < at ? *border : at) + b->shift);
	}
	b->shift += 3 - (int64_t)k;
}

/* The text as valid UTF-8: itself if it is, else a copy in e->valid. */
static const unsigned char *make_valid(Encoder *e, const unsigned char *text, size_t *n)
{
	size_t done = 0, at = 0;
	Borders borders = {0};
	bool valid = true;
	while (at < *n && !e->error) {
		uint32_t cp;
		int len = text[at] < 0x80 ? 1 : utf8_read(text + at, *n - at, &cp);
		if (len > 0) {
			at += (size_t)len;
			continue;
		}
		valid = false;
		bytes_put(e, &e->valid, text + done, at - done);
		bytes_put(e, &e->valid, "\xEF\xBF\xBD", 3);
		move_borders(e, &borders, at, len ? (size_t)-len : *n - at);
		at = len ? at + (size_t)-len : *n;
		done = at;
	}
	if (valid)
		return text;
	bytes_put(e, &e->valid, text + done, *n - done);
	move_borders(e, &borders, SIZE_MAX - 1, 1);
	*n = e->valid.n;
	return e->valid.at;
}

static int encode_all(Encoder *e, const char *text, size_t n_bytes, bool add_special)
{
	const Tok *t = e->tok;
	if (n_bytes > TOK_MAX_TEXT)
		e->error = TOK_E_SIZE;
	for (uint32_t i = 0; add_special && i < t->count[TOK_SEC_PREFIX]; i++)
		encoder_put_id(e, t->prefix[i]);
	if (!e->error)
		e->whole = make_valid(e, (const unsigned char *)text, &n_bytes);
	if (n_bytes && !e->error)
		cut_added(e, 0, e->whole, n_bytes, true, encode_raw);
	for (uint32_t i = 0; add_special && i < t->count[TOK_SEC_SUFFIX]; i++)
		encoder_put_id(e, t->suffix[i]);
	encoder_free(e);
	if (!e->error && e->n_ids > INT_MAX)
		e->error = TOK_E_SIZE;
	return e->error ? e->error : (int)e->n_ids;
}

int tok_encode(const Tok *t, const char *text, size_t n_bytes, bool add_special, bool parse_special,
	int32_t *ids, int cap)
{
	Encoder e = {.tok = t, .parse_special = parse_special, .ids = ids, .cap = cap > 0 ? (size_t)cap : 0};
	return encode_all(&e, text, n_bytes, add_special);
}

int tok_encode_spans(const Tok *t, const char *text, size_t n_bytes, bool add_special, const TextRange *spans,
	size_t n_spans, int32_t *ids, int cap)
{
	Encoder e = {.tok = t, .by_spans = true, .ids = ids, .cap = cap > 0 ? (size_t)cap : 0};
	if (n_spans && RESERVE(&e, e.spans[0], e.spans_cap[0], n_spans)) {
		memcpy(e.spans[0], spans, n_spans * sizeof *spans);
		e.n_spans[0] = n_spans;
	}
	return encode_all(&e, text, n_bytes, add_special);
}
