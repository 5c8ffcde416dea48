/* program.c - runs the compiled patterns (TokOp in artifacts/tokenizer_format.h).
 *
 * A backtracking matcher with an explicit stack. A frame says: when what follows fails, go on at
 * `pc` from position `at`. A loop over a class leaves one frame for all the lengths it may still
 * have: from `at` down to `low`, one code point back at each failure. So a run of a million
 * spaces costs one frame, not a million.
 *
 * Every instruction and every code point a loop looks at burns fuel. The patterns of real
 * tokenizers use a few units a character; a pattern that runs out is reported, not waited for.
 */
#include "runtime/text/encoder.h"

static bool in_set(const Tok *t, const TokSet *s, uint32_t cp)
{
	if (cp < 128)
		return s->ascii[cp / 32] >> cp % 32 & 1;
	uint8_t class = tok_class(t, cp);
	bool in = s->categories >> (class & TOK_CATEGORY_MASK) & 1;
	if (s->flags & ~(uint32_t)TOK_SET_NOT) {
		in |= s->flags & TOK_SET_SPACE && class & TOK_IS_SPACE;
		in |= s->flags & TOK_SET_NOT_SPACE && !(class & TOK_IS_SPACE);
		in |= s->flags & TOK_SET_NUMERIC && class & TOK_IS_NUMERIC;
	}
	const uint32_t *range = t->ranges + s->range;
	for (uint32_t i = 0; i < s->n_ranges && !in; i++)
		in = range[2 * i] <= cp && cp <= range[2 * i + 1];
	return in != (bool)(s->flags & TOK_SET_NOT);
}

/* Takes up to `most` code points of a set from text[at, n); the count goes to *taken and the
 * position after `least` of them to *low. */
static size_t take_loop(Encoder *e, const TokInstr *i, const unsigned char *text, size_t n, size_t at,
	size_t *low, uint32_t *taken)
{
	const TokSet *set = &e->tok->sets[i->a];
	uint32_t k = 0;
	*low = at;
	while (at < n && k < i->c) {
		uint32_t cp;
		size_t len = utf8_take(text + at, n - at, &cp);
		if (!in_set(e->tok, set, cp))
			break;
		at += len;
		if (++k == i->b)
			*low = at;
	}
	e->fuel -= k;
	*taken = k;
	return at;
}

static bool push_frame(Encoder *e, size_t *n, Frame f)
{
	if (!RESERVE(e, e->frames, e->frames_cap, *n + 1))
		return false;
	e->frames[(*n)++] = f;
	return true;
}

/* One test of a single code point at `at`; its length if the instruction matches it. */
static size_t take_one(const Tok *t, const TokInstr *i, const unsigned char *text, size_t n, size_t at)
{
	uint32_t cp;
	if (at >= n)
		return 0;
	size_t len = utf8_take(text + at, n - at, &cp);
	return (i->op == TOK_OP_CHAR ? cp == i->a : in_set(t, &t->sets[i->a], cp)) ? len : 0;
}

/* Matches at `at`; returns the end, or SIZE_MAX. */
static size_t match_here(Encoder *e, uint32_t pc, const unsigned char *text, size_t n, size_t at)
{
	const Tok *t = e->tok;
	size_t n_frames = 0, len, low;
	uint32_t taken;
	for (;;) {
		const TokInstr *i = &t->code[pc++];
		bool ok = true;
		if (--e->fuel < 0) {
			e->error = e->error ? e->error : TOK_E_EFFORT;
			return SIZE_MAX;
		}
		switch ((TokOp)i->op) {
		case TOK_OP_MATCH:
			return at;
		case TOK_OP_CHAR: case TOK_OP_SET:
			len = take_one(t, i, text, n, at);
			ok = len != 0;
			at += len;
			break;
		case TOK_OP_LOOP: case TOK_OP_POSSESS:
			at = take_loop(e, i, text, n, at, &low, &taken);
			ok = taken >= i->b;
			if (ok && taken > i->b && i->op == TOK_OP_LOOP) {
				Frame f = {pc, (uint32_t)(at - utf8_back(text, at)), (uint32_t)low};
				ok = push_frame(e, &n_frames, f);
			}
			break;
		case TOK_OP_SPLIT:
			ok = push_frame(e, &n_frames, (Frame){i->a, (uint32_t)at, (uint32_t)at});
			break;
		case TOK_OP_JUMP:
			pc = i->a;
			break;
		case TOK_OP_PEEK:
			ok = take_one(t, i, text, n, at) != 0;
			break;
		case TOK_OP_NOT_PEEK:
			ok = take_one(t, i, text, n, at) == 0;
			break;
		case TOK_OP_LINE_END:
			ok = at >= n || text[at] == '\n';
			break;
		case TOK_OP_COUNT:
			return SIZE_MAX;
		}
		if (ok)
			continue;
		if (!n_frames || e->error)
			return SIZE_MAX;
		Frame *f = &e->frames[n_frames - 1];
		pc = f->pc;
		at = f->at;
		if (f->at > f->low)
			f->at -= (uint32_t)utf8_back(text, f->at);
		else
			n_frames--;
	}
}

bool program_find(Encoder *e, uint32_t code, const unsigned char *text, size_t n, size_t from,
	size_t *start, size_t *end)
{
	while (from < n && !e->error) {
		uint32_t cp;
		size_t stop = match_here(e, code, text, n, from);
		if (stop != SIZE_MAX && stop > from) {
			*start = from;
			*end = stop;
			return true;
		}
		from += utf8_take(text + from, n - from, &cp);
	}
	return false;
}
