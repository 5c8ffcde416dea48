/* check_ids.c - every setting that is a token id, compared with the ids that have a token.
 *
 * A vocabulary has more rows than tokens: it is padded, and there may be holes. Only ids below Model.n_tokens are ever
 * drawn (ATTR n_valid of artifacts/attrs.h); the probabilities of a step are those of these ids, holes among them, and
 * rows after them count for nothing, also not in a log probability. So an end token after them ends no text.
 */
#include "compiler/read/read_model.h"

static bool is_token(const Model *m, int id)
{
	return id < m->n_tokens && (!m->has_token || m->has_token[id]);
}

/* "no token has this id, the last that has one is 511" */
static const char *why_not(Compile *c, int id)
{
	const Model *m = &c->model;
	return id < m->n_tokens ? "no token has this id" : arena_printf(c->diags.arena,
		"no token has this id, and ids from %d on are never generated", m->n_tokens);
}

/* End tokens of all files and of [sampling] stop. One that is no token is reported; without any, a text would never
 * end, and that is an error. */
static void check_ends(Compile *c)
{
	const Model *m = &c->model;
	const Config *cf = &m->config;
	const Options *o = &m->options;
	int good = 0;
	for (int i = 0; i < cf->n_eos; i++)
		good += is_token(m, cf->eos[i]);
	for (int i = 0; i < o->n_stop; i++)
		good += is_token(m, o->stop[i]);
	for (int i = 0; i < cf->n_eos + o->n_stop; i++) {
		const bool eos = i < cf->n_eos;
		const int id = eos ? cf->eos[i] : o->stop[i - cf->n_eos];
		const Loc at = eos ? cf->at_eos[i] : o->at_stop;
		const char *name = eos ? "end token" : "sampling.stop";
		if (is_token(m, id))
			continue;
		if (good)
			note_at(&c->diags, A0512, at, "%s %d: %s; it ends no text", name, id, why_not(c, id));
		else
			fail_at(&c->diags, A0512, at, "%s %d: %s, and so it is with every end token: no text would end; name one "
				"in [sampling] stop of MODEL.toml", name, id, why_not(c, id));
	}
}

/* Where drafts are drawn from: the first ids, by number. read_draft_ids checks those that a file lists. */
static void check_drafts(Compile *c)
{
	const Options *o = &c->model.options;
	if (!o->draft_ids_file && o->n_draft_ids > c->model.n_tokens)
		note_at(&c->diags, A0512, o->at_draft_ids, "speculate.vocabulary = %d: ids from %d on are never generated",
			o->n_draft_ids, c->model.n_tokens);
}

void check_ids(Compile *c)
{
	const Config *cf = &c->model.config;
	check_ends(c);
	check_drafts(c);
	if (cf->bos >= 0 && cf->at_bos.file && !is_token(&c->model, cf->bos))
		note_at(&c->diags, A0512, cf->at_bos, "bos_token_id = %d: %s", cf->bos, why_not(c, cf->bos));
}
