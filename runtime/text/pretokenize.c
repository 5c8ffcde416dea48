/* pretokenize.c - the steps of a tokenizer: normaliser steps work on a text as a whole, then
 * pre-tokenizer steps cut it into pieces, each step working on the pieces of the one before.
 *
 * Pieces are ranges of one text, e->base. A step that changes text writes all pieces anew into
 * the other of two buffers; a step that only cuts leaves the text alone.
 */
#include "runtime/text/encoder.h"

static void put_piece(Encoder *e, Pieces *p, size_t at, size_t end)
{
	if (at == end || !RESERVE(e, p->at, p->cap, p->n + 1))
		return;
	p->at[p->n++] = (Piece){(uint32_t)at, (uint32_t)(end - at)};
}

/* The buffer of a pair that does not hold `text`, emptied. */
static Bytes *other_buffer(Bytes pair[2], const unsigned char *text)
{
	Bytes *b = &pair[text && text == pair[0].at];
	b->n = 0;
	return b;
}

/* Fuel for programs over n bytes: far above what the patterns in use need, and enough for a
 * quadratic one on a page of text; a third of a second, plus what is linear in n. */
static void refuel(Encoder *e, size_t n)
{
	e->fuel = (1 << 26) + (int64_t)n * 1024;
}

/* Normaliser ------------------------------------------------------------------------------ */

static void replace_matches(Encoder *e, const TokStep *s, const unsigned char *text, size_t n, Bytes *out)
{
	size_t done = 0, start, end;
	refuel(e, n);
	while (program_find(e, s->code, text, n, done, &start, &end)) {
		if (start == 0 && !s->string_bytes)
			e->at_start = false;
		bytes_put(e, out, text + done, start - done);
		bytes_put(e, out, e->tok->strings + s->string, s->string_bytes);
		done = end;
	}
	bytes_put(e, out, text + done, n - done);
}

const unsigned char *run_normalizers(Encoder *e, const unsigned char *text, size_t *n, bool prepends)
{
	const Tok *t = e->tok;
	for (uint32_t i = 0; i < t->header->n_normalizers && *n && !e->error; i++) {
		const TokStep *s = &t->steps[i];
		if (s->kind == TOK_STEP_PREPEND && !prepends)
			continue;
		Bytes *out = other_buffer(e->normal, text);
		if (s->kind == TOK_STEP_NORMALIZE) {
			normalize(e, text, *n, out);
		} else if (s->kind == TOK_STEP_PREPEND) {
			bytes_put(e, out, t->strings + s->string, s->string_bytes);
			bytes_put(e, out, text, *n);
		} else {
			replace_matches(e, s, text, *n, out);
		}
		text = out->at;
		*n = out->n;
	}
	return text;
}

/* Pre-tokenizer: steps that cut ------------------------------------------------------------- */

typedef struct Cutter { /* collects the parts of one piece according to a TokBehaviour */
	Encoder *e;
	Pieces *out;
	TokBehaviour behaviour;
	bool last_match, any; /* was the part before a match; is there a part before */
	size_t at, end;       /* the part that may still grow */
} Cutter;

static void flush_part(Cutter *c)
{
	if (c->any)
		put_piece(c->e, c->out, c->at, c->end);
}

static void add_part(Cutter *c, size_t at, size_t end, bool match)
{
	bool joins = false;
	switch (c->behaviour) {
	case TOK_REMOVED: case TOK_ISOLATED: case TOK_BEHAVIOUR_COUNT: break;
	case TOK_WITH_PREVIOUS: joins = match && !c->last_match; break;
	case TOK_WITH_NEXT: joins = !match && c->last_match; break;
	case TOK_CONTIGUOUS: joins = match == c->last_match; break;
	}
	bool first = !c->any;
	c->last_match = match;
	if (match && c->behaviour == TOK_REMOVED)
		return;
	if (joins && !first) {
		c->end = end;
		return;
	}
	flush_part(c);
	c->any = true;
	c->at = at;
	c->end = end;
}

static void split_piece(Encoder *e, const TokStep *s, Piece p, Pieces *out)
{
	Cutter c = {.e = e, .out = out, .behaviour = (TokBehaviour)(s->flags & 7)};
	bool match = !(s->flags & TOK_SPLIT_INVERT);
	size_t done = 0, start, end;
	while (program_find(e, s->code, e->base + p.at, p.n, done, &start, &end)) {
		if (start > done)
			add_part(&c, p.at + done, p.at + start, !match);
		add_part(&c, p.at + start, p.at + end, match);
		done = end;
	}
	if (done < p.n)
		add_part(&c, p.at + done, p.at + p.n, !match);
	flush_part(&c);
}

static void split_pieces(Encoder *e, const TokStep *s, const Pieces *in, Pieces *out)
{
	size_t total = 0;
	for (size_t i = 0; i < in->n; i++)
		total += in->at[i].n;
	refuel(e, total + in->n);
	for (size_t i = 0; i < in->n && !e->error; i++)
		split_piece(e, s, in->at[i], out);
	e->at_start &= in->n && out->n && out->at[0].at == in->at[0].at;
}

/* Pre-tokenizer: steps that change text ------------------------------------------------------ */

static bool starts_with(const unsigned char *text, size_t n, const unsigned char *what, size_t k)
{
	return n >= k && !memcmp(text, what, k);
}

/* TOK_STEP_SPACE and TOK_STEP_METASPACE: `mark` replaces spaces (when asked) and goes in front. */
static void mark_spaces(Encoder *e, const TokStep *s, const Pieces *in, Pieces *out)
{
	bool metaspace = s->kind == TOK_STEP_METASPACE;
	const unsigned char *mark = metaspace ? e->tok->strings + s->string : (const unsigned char *)" ";
	size_t k = metaspace ? s->string_bytes : 1;
	Bytes *b = other_buffer(e->spaced, e->base);
	for (size_t i = 0; i < in->n && !e->error; i++) {
		const unsigned char *text = e->base + in->at[i].at;
		size_t n = in->at[i].n, start = b->n, done = 0;
		bool wanted = !metaspace || s->flags == TOK_PREPEND_ALWAYS ||
			(s->flags == TOK_PREPEND_FIRST && i == 0 && e->at_start);
		bool marked = starts_with(text, n, mark, k) || (metaspace && text[0] == ' ');
		if (wanted && !marked)
			bytes_put(e, b, mark, k);
		for (size_t at = 0; metaspace && at < n; at++) {
			if (text[at] != ' ')
				continue;
			bytes_put(e, b, text + done, at - done);
			bytes_put(e, b, mark, k);
			done = at + 1;
		}
		bytes_put(e, b, text + done, n - done);
		put_piece(e, out, start, b->n);
	}
	e->base = b->at;
}

const Pieces *run_pre_tokenizers(Encoder *e, const unsigned char *text, size_t n)
{
	const Tok *t = e->tok;
	Pieces *in = &e->pieces[0];
	e->base = text;
	in->n = 0;
	put_piece(e, in, 0, n);
	for (uint32_t i = t->header->n_normalizers; i < t->count[TOK_SEC_STEPS] && !e->error; i++) {
		Pieces *out = &e->pieces[in == &e->pieces[0]];
		out->n = 0;
		if (t->steps[i].kind == TOK_STEP_SPLIT)
			split_pieces(e, &t->steps[i], in, out);
		else
			mark_spaces(e, &t->steps[i], in, out);
		in = out;
	}
	return in;
}
