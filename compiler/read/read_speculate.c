/* read_speculate.c - [speculate] of MODEL.toml: what drafts, how many rows of a slot a step reads, by what drafts are
 * scored.
 *
 * `rows` is one number for all steps; a ladder has fewer rows where more slots run, since each drafted row costs more
 * then than it brings. Either becomes Options.ladder, whose last rung holds all slots.
 */
#include "compiler/read/option_reading.h"

#include <string.h>

static const char *named(OptionReading *r, int k, const Value *v)
{
	return arena_printf(&r->c->arena, "%s = %s", option_table[k].key, value_text(r->d->arena, v));
}

/* By what drafts are scored. */
static void read_draft_scores(OptionReading *r)
{
	Options *o = r->o;
	const Config *cf = &r->c->model.config;
	const Value *head = r->user[SPECULATE_HEAD], *count = r->user[SPECULATE_VOCABULARY];
	const Value *file = r->user[SPECULATE_VOCABULARY_FILE];
	const char *word;
	if (head && want_string(r->d, A0303, option_table[SPECULATE_HEAD].key, head, &word)) {
		WeightFormat format;
		o->at_draft_format = head->at;
		if (!option_format(word, &format))
			fail_at(r->d, A0303, head->at, "%s: expected fp8-block, fp8-channel, fp8-tensor, nvfp4 or mxfp4",
				named(r, SPECULATE_HEAD, head));
		else if (!option_may_be_made(r))
			option_by_reference(r, option_table[SPECULATE_HEAD].key, head);
		else
			o->draft_format = format;
	}
	if (count && file)
		fail_at(r->d, A0304, file->at, "speculate.vocabulary_file and speculate.vocabulary (%s:%d) both say which "
			"tokens are drafted", count->at.file, count->at.line);
	if (count && option_int(r, SPECULATE_VOCABULARY, &o->n_draft_ids) && cf->vocab > 0 && o->n_draft_ids > cf->vocab)
		fail_at(r->d, A0304, count->at, "speculate.vocabulary = %d: vocab_size = %d (%s:%d)", o->n_draft_ids, cf->vocab,
			cf->at_vocab.file, cf->at_vocab.line);
	o->at_draft_ids = file ? file->at : count ? count->at : (Loc){0};
	if (!file || !want_string(r->d, A0303, option_table[SPECULATE_VOCABULARY_FILE].key, file, &word))
		return;
	o->draft_ids_file = option_path(r, file, word);
	if (!*word)
		fail_at(r->d, A0303, file->at, "speculate.vocabulary_file = \"\": expected the name of a file");
}

/* calibrate: nothing is drafted, and weights are read where they are. */
static void leave_out_draft_scores(Options *o)
{
	o->draft_format = FORMAT_PLAIN;
	o->n_draft_ids = 0;
	o->draft_ids_file = NULL;
}

/* One rung, [slots, rows]. False after having said what is wrong with it. */
static bool read_rung(OptionReading *r, const Value *v, const Rung *before, Rung *rung)
{
	const char *name = arena_printf(r->d->arena, "%s[%d]", option_table[SPECULATE_LADDER].key, r->o->n_ladder);
	if (!want_array(r->d, A0303, name, v))
		return false;
	if (v->n != 2)
		return fail_at(r->d, A0303, v->at, "%s = %s: expected [slots, rows]", name, value_text(r->d->arena, v));
	if (!want_int(r->d, A0303, arena_printf(r->d->arena, "%s[0]", name), v->first, 1, PLAN_MAX_SLOTS, &rung->slots) ||
		!want_int(r->d, A0303, arena_printf(r->d->arena, "%s[1]", name), v->first->next, before ? 1 : 2,
			PLAN_MAX_VERIFY, &rung->rows))
		return false;
	if (before && rung->slots <= before->slots)
		return fail_at(r->d, A0303, v->first->at, "%s[0] = %d after %d: expected ascending slots", name, rung->slots,
			before->slots);
	if (before && rung->rows >= before->rows)
		return fail_at(r->d, A0303, v->first->next->at, "%s[1] = %d after %d: expected fewer rows for more slots", name,
			rung->rows, before->rows);
	return true;
}

/* Rungs up to all slots: what is above the last one of the file drafts nothing. */
static void read_ladder(OptionReading *r, const Value *v)
{
	Options *o = r->o;
	if (!want_array(r->d, A0303, option_table[SPECULATE_LADDER].key, v))
		return;
	if (v->n < 1 || v->n > PLAN_MAX_VERIFY) {
		fail_at(r->d, A0303, v->at, "%s: expected 1 to %d pairs", named(r, SPECULATE_LADDER, v), PLAN_MAX_VERIFY);
		return;
	}
	for (const Value *e = v->first; e; e = e->next, o->n_ladder++)
		if (!read_rung(r, e, o->n_ladder ? &o->ladder[o->n_ladder - 1] : NULL, &o->ladder[o->n_ladder])) {
			o->n_ladder = 0;
			return;
		}
	o->verify_rows = o->ladder[0].rows;
	int all = 0;
	while (all < o->n_ladder && o->ladder[all].slots < o->slots)
		all++;
	if (all == o->n_ladder && o->ladder[all - 1].rows == 1)
		all--;
	o->ladder[all] = (Rung){o->slots, all < o->n_ladder ? o->ladder[all].rows : 1};
	o->n_ladder = all + 1;
}

static bool read_rows(OptionReading *r)
{
	Options *o = r->o;
	const Value *ladder = r->user[SPECULATE_LADDER], *rows = r->user[SPECULATE_ROWS];
	if (ladder && rows)
		return fail_at(r->d, A0304, ladder->at, "speculate.ladder and speculate.rows (%s:%d) both say how many rows a "
			"step reads", rows->at.file, rows->at.line);
	if (ladder) {
		read_ladder(r, ladder);
		return o->n_ladder > 0;
	}
	if (option_chosen(r, SPECULATE_ROWS) && !option_int(r, SPECULATE_ROWS, &o->verify_rows))
		return false;
	o->ladder[0] = (Rung){o->slots, o->verify_rows};
	o->n_ladder = o->verify_rows > 1;
	return true;
}

/* Lengths of n-grams, and that nothing asks for a head besides. */
static void read_ngram(OptionReading *r, const Value *drafter)
{
	static const int of_heads[] = {SPECULATE_HEAD, SPECULATE_VOCABULARY, SPECULATE_VOCABULARY_FILE};
	Options *o = r->o;
	const Value *v = option_chosen(r, SPECULATE_NGRAM);
	for (size_t i = 0; i < sizeof of_heads / sizeof of_heads[0]; i++)
		if (r->user[of_heads[i]])
			fail_at(r->d, A0304, r->user[of_heads[i]]->at, "%s: with speculate.drafter = \"ngram\" (%s:%d) no head "
				"drafts", named(r, of_heads[i], r->user[of_heads[i]]), drafter->at.file, drafter->at.line);
	if (o->verify_rows < 2)
		fail_at(r->d, A0304, drafter->at, "speculate.drafter = \"ngram\": expected speculate.rows of at least 2, or "
			"speculate.ladder, which say how many tokens a step reads");
	int lengths[2];
	if (!want_array(r->d, A0303, option_table[SPECULATE_NGRAM].key, v))
		return;
	if (v->n != 2)
		fail_at(r->d, A0303, v->at, "%s: expected [least, most]", named(r, SPECULATE_NGRAM, v));
	else if (want_int(r->d, A0303, "speculate.ngram[0]", v->first, 1, PLAN_MAX_NGRAM, &lengths[0]) &&
		want_int(r->d, A0303, "speculate.ngram[1]", v->first->next, lengths[0], PLAN_MAX_NGRAM, &lengths[1])) {
		o->ngram_min = lengths[0];
		o->ngram_max = lengths[1];
	}
}

/* Is the file's drafter the n-grams? False after having said that it is neither they nor the head. */
static bool read_drafter(OptionReading *r, bool *is_ngram)
{
	const Value *v = r->user[SPECULATE_DRAFTER];
	const char *word = DRAFTER_HEAD;
	if (v && !want_string(r->d, A0303, option_table[SPECULATE_DRAFTER].key, v, &word))
		return false;
	*is_ngram = strcmp(word, DRAFTER_NGRAM) == 0;
	return *is_ngram || strcmp(word, DRAFTER_HEAD) == 0 ||
		fail_at(r->d, A0303, v->at, "%s: expected \"mtp\" or \"ngram\"", named(r, SPECULATE_DRAFTER, v));
}

/* What in the file asks for the family's head. */
static void read_asking(OptionReading *r)
{
	static const int asking[] = {SPECULATE_ROWS, SPECULATE_LADDER, SPECULATE_DRAFTER, SPECULATE_HEAD,
		SPECULATE_VOCABULARY, SPECULATE_VOCABULARY_FILE};
	Options *o = r->o;
	for (size_t i = 0; i < sizeof asking / sizeof asking[0]; i++) {
		const Value *v = r->user[asking[i]];
		if (!v || (asking[i] == SPECULATE_ROWS && o->verify_rows < 2))
			continue;
		const char *text = named(r, asking[i], v);
		if (!r->base[SPECULATE_ROWS])
			fail_at(r->d, A0304, v->at, "%s: %s has no drafting head; the families that have one are %s", text,
				r->family->name, families_text(r->d->arena, &r->c->families, has_draft));
		else if (o->verify_rows < 2)
			fail_at(r->d, A0304, v->at, "%s: speculate.rows = 1 (%s:%d) leaves the drafting head out", text,
				option_chosen(r, SPECULATE_ROWS)->at.file, option_chosen(r, SPECULATE_ROWS)->at.line);
		o->at_asks_head = o->asks_head ? o->at_asks_head : v->at;
		o->asks_head = o->asks_head ? o->asks_head : text;
	}
}

void read_speculate(OptionReading *r)
{
	const Value *ngram = r->user[SPECULATE_NGRAM];
	bool is_ngram;
	if (!read_rows(r) || !read_drafter(r, &is_ngram))
		return;
	if (is_ngram) {
		read_ngram(r, r->user[SPECULATE_DRAFTER]);
		return;
	}
	if (ngram && !value_equal(ngram, r->base[SPECULATE_NGRAM])) /* a copy of the defaults asks for nothing */
		fail_at(r->d, A0304, ngram->at, "%s: only speculate.drafter = \"ngram\" looks for n-grams",
			named(r, SPECULATE_NGRAM, ngram));
	read_asking(r);
	read_draft_scores(r);
	if (r->c->cmd.text)
		leave_out_draft_scores(r->o);
}
