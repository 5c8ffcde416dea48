/* draft_ids.c - the token ids that drafts are drawn from, as the file of speculate.vocabulary_file lists them.
 *
 * Plain text: a number a line, ascending, so that none is there twice and equal scores are decided as they are for
 * all ids. Each must be a token: a padded row of the vocabulary is never drawn by the model, and a draft of it would be
 * refused always.
 */
#include "artifacts/numbers.h"
#include "compiler/graph/builder.h"
#include "compiler/text/input.h"
#include "compiler/text/value.h"

#include <string.h>

enum { MOST_DIGITS = 9, MOST_BYTES = 1 << 28 };

/* The number that a line of n bytes is, or -1. */
static int number_of(const char *line, size_t n)
{
	int value = 0;
	for (size_t i = 0; i < n; i++) {
		if (line[i] < '0' || line[i] > '9')
			return -1;
		value = value * 10 + line[i] - '0';
	}
	return value;
}

/* Puts the lines' ids into ids, which has room; returns how many. -1 after having said what is wrong with one. */
static int read_lines(Compile *c, const char *text, size_t bytes, int32_t *ids)
{
	const Options *o = &c->model.options;
	int n = 0;
	for (const char *line = text, *end; line < text + bytes; line = end + 1) {
		end = memchr(line, '\n', (size_t)(text + bytes - line));
		end = end ? end : text + bytes;
		const size_t length = (size_t)(end - line);
		const Loc at = {o->draft_ids_file, n + 1, 1};
		const int id = length && length <= MOST_DIGITS ? number_of(line, length) : -1;
		if (id < 0)
			fail_at(&c->diags, A0306, at, "\"%s\": expected a token id", clip_text(c->diags.arena, line, length, 40));
		else if (id >= c->model.n_tokens)
			fail_at(&c->diags, A0306, at, "%d: the model has token ids 0 to %d", id, c->model.n_tokens - 1);
		else if (n && id <= ids[n - 1])
			fail_at(&c->diags, A0306, at, "%d after %d: expected ascending ids, each once", id, ids[n - 1]);
		else {
			if (c->model.has_token && !c->model.has_token[id])
				note_at(&c->diags, A0512, at, "%d: no token has this id", id);
			ids[n++] = id;
			continue;
		}
		return -1;
	}
	return n;
}

void read_draft_ids(Compile *c)
{
	Options *o = &c->model.options;
	char *text;
	size_t bytes;
	if (!o->draft_ids_file || !input_read(&c->arena, &c->diags, o->draft_ids_file, true, MOST_BYTES, &text, &bytes))
		return;
	if (!text) {
		fail_at(&c->diags, A0102, o->at_draft_ids, "speculate.vocabulary_file: there is no file %s", o->draft_ids_file);
		return;
	}
	int32_t *ids = ARENA_ARRAY(&c->arena, int32_t, c->model.n_tokens + 1);
	const int n = read_lines(c, text, bytes, ids);
	if (n == 0)
		fail_at(&c->diags, A0306, (Loc){o->draft_ids_file, 0, 0}, "there is not a token id in it");
	if (n <= 0)
		return;
	o->draft_ids = ids;
	o->n_draft_ids = n;
}
