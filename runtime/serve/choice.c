/* choice.c - an answer from its tokens to parts: text, and what the text means (generation.h). */
#include "runtime/plan_handle.h"
#include "runtime/serve/generation.h"
#include "runtime/serve/tool_formats.h"

#include <stdlib.h>
#include <string.h>

int64_t count_code_points(const char *text, size_t n)
{
	int64_t count = 0;
	for (size_t i = 0; i < n; i++)
		count += ((unsigned char)text[i] & 0xc0) != 0x80;
	return count;
}

/* Log probabilities ------------------------------------------------------------ */

static TokenLog *new_log(Choice *c)
{
	if (c->n_logs == c->cap_logs) {
		const int cap = c->cap_logs * 2 + 16;
		TokenLog *logs = realloc(c->logs, sizeof *logs * (size_t)cap);
		if (!logs)
			return NULL;
		c->logs = logs;
		c->cap_logs = cap;
	}
	return &c->logs[c->n_logs++];
}

static bool add_log(Choice *c, EngineEvent *e)
{
	TokenLog *log = new_log(c);
	if (log)
		*log = (TokenLog){e->token, e->logprob, c->code_points, -1, e->top, e->n_top};
	e->top = log ? NULL : e->top;
	return log != NULL;
}

/* Offsets are those of the tokens' own text. */
bool choice_take_scores(Choice *c)
{
	const ApiPrompt *p = c->prompt;
	const PromptScore *scores = c->sequence.scores;
	const char *bytes;
	int64_t offset = 0;
	size_t n;
	bool good = true;
	for (int i = 0; i < p->n && good; i++) {
		AtlasTop *top = scores[i].n_top ? malloc(sizeof scores[i].top) : NULL;
		TokenLog *log = scores[i].n_top && !top ? NULL : new_log(c);
		if (!log) {
			free(top);
			return false;
		}
		if (top)
			memcpy(top, scores[i].top, sizeof scores[i].top);
		*log = (TokenLog){p->tokens[i], scores[i].logprob, offset, -1, top, scores[i].n_top};
		good = !c->stream || atlas_text_push(c->stream, p->tokens[i], &bytes, &n) == ATLAS_OK;
		offset += good && c->stream ? count_code_points(bytes, n) : 0;
	}
	if (c->stream)
		atlas_text_restart(c->stream);
	return good;
}

/* Parts ------------------------------------------------------------ */

/* Tokens that gave no text so far belong to what came now. */
static void place_tokens(Choice *c)
{
	const Part *last = &c->parts[c->n_parts - 1];
	for (int i = c->n_logs; i > 0 && c->logs[i - 1].part < 0; i--)
		c->logs[i - 1].part = c->n_parts - 1;
	if (last->kind == PIECE_REASONING)
		c->n_reasoning += c->n_unplaced;
	c->n_unplaced = 0;
}

static Part *new_part(const Api *api, Choice *c, PieceKind kind, bool is_custom)
{
	if (c->n_parts == c->cap_parts) {
		const int cap = c->cap_parts * 2 + 2;
		Part *parts = realloc(c->parts, sizeof *parts * (size_t)cap);
		if (!parts)
			return NULL;
		c->parts = parts;
		c->cap_parts = cap;
	}
	Part *p = &c->parts[c->n_parts++];
	*p = (Part){.kind = kind, .is_custom = is_custom};
	const char *prefix = api->part_id[kind + (is_custom ? 1 : 0)];
	if (prefix)
		call_put_random(p->id, prefix);
	if (kind == PIECE_CALL && api->call_id)
		call_put_random(p->call_id, api->call_id);
	return p;
}

static bool add_bytes(Part *p, const char *bytes, size_t n)
{
	if (p->cap - p->n < n) {
		const size_t cap = (p->n + n) * 2 + 64;
		char *more = realloc(p->bytes, cap);
		if (!more)
			return false;
		p->bytes = more;
		p->cap = cap;
	}
	if (n)
		memcpy(p->bytes + p->n, bytes, n);
	p->n += n;
	return true;
}

/* A custom tool is called as a function of one text, which is its input. */
static bool add_input(Part *p, const char *arguments, size_t n)
{
	json_t *object = json_loadb(arguments, n, 0, NULL), *input = json_object_get(object, "input");
	const bool good = json_is_string(input) ? add_bytes(p, json_string_value(input), json_string_length(input))
											: add_bytes(p, arguments, n);
	json_decref(object);
	return good;
}

static bool take_call(Choice *c, const Piece *piece)
{
	const Generation *g = c->sequence.owner;
	char *name = strndup(piece->bytes, piece->n);
	Part *p = name ? new_part(g->api, c, PIECE_CALL, json_object_get(g->request.custom_tools, name)) : NULL;
	if (!p) {
		free(name);
		return false;
	}
	p->name = name;
	p->call = c->n_calls++;
	place_tokens(c);
	return (p->is_custom ? add_input : add_bytes)(p, piece->arguments, piece->n_arguments);
}

/* PieceSink of a Choice. A run goes on in the last part, if that is of its kind; a call is a part. */
static bool take_piece(void *ctx, const Piece *piece)
{
	Choice *c = ctx;
	const Generation *g = c->sequence.owner;
	Part *p = c->n_parts ? &c->parts[c->n_parts - 1] : NULL;
	if (piece->kind == PIECE_CALL)
		return (g->request.one_call && c->n_calls) || take_call(c, piece);
	if (!p || p->kind != piece->kind)
		p = new_part(g->api, c, piece->kind, false);
	if (!p)
		return false;
	place_tokens(c);
	return add_bytes(p, piece->bytes, piece->n);
}

/* Text ------------------------------------------------------------ */

/* Control tokens give no text, but for those that the parser reads. */
static AtlasStatus push_token(const Generation *g, Choice *c, int32_t token, const char **bytes, size_t *n)
{
	const ApiLimits *limits = &g->call.s->limits;
	const ToolFormat *format = g->request.tools ? limits->tools : NULL;
	bool is_special = false;
	if (c->reads_markers)
		tok_token_bytes(&limits->plan->tokenizer, token, bytes, n, &is_special);
	if (is_special && !tool_format_has_marker(format, limits->reasoning, *bytes, *n)) {
		*n = 0;
		return ATLAS_OK;
	}
	return atlas_text_push(c->stream, token, bytes, n);
}

static bool take_text(Choice *c, const char *bytes, size_t n)
{
	c->code_points += count_code_points(bytes, n);
	return pieces_push(c->parser, bytes, n, take_piece, c);
}

bool choice_take_token(Generation *g, Choice *c, EngineEvent *e)
{
	const char *bytes = "";
	size_t n = 0;
	bool good = true;
	c->n_tokens++;
	c->n_unplaced++;
	c->n_fresh += e->finish != ATLAS_STOP;
	if (e->finish != ATLAS_STOP)
		good = (!g->request.logprobs || add_log(c, e)) &&
			(!c->stream || push_token(g, c, e->token, &bytes, &n) == ATLAS_OK) && take_text(c, bytes, n);
	c->stop = c->stream ? atlas_text_stopped(c->stream) : -1;
	if (good && c->stop < 0 && e->is_last) {
		n = 0;
		good = (!c->stream || atlas_text_finish(c->stream, &bytes, &n) == ATLAS_OK) && take_text(c, bytes, n);
		c->stop = c->stream ? atlas_text_stopped(c->stream) : -1;
	}
	if (c->stop < 0 && !e->is_last)
		return good;
	c->finish = c->stop >= 0 || e->finish == ATLAS_STOP || e->is_whole ? "stop" : "length";
	return good && pieces_finish(c->parser, take_piece, c);
}

bool choice_open(Generation *g, Choice *c)
{
	const ApiRequest *r = &g->request;
	const ApiLimits *limits = &g->call.s->limits;
	c->stop = -1;
	const Reasoning *reasoning = g->api->has_parts ? limits->reasoning : NULL;
	c->parser = pieces_open(r->tools ? limits->tools : NULL, r->tools, reasoning, c->prompt->is_reasoning);
	if (c->parser && r->grammar)
		pieces_structured(c->parser);
	c->reads_markers = r->tools || reasoning;
	AtlasStatus status =
		c->parser ? atlas_text_open(limits->plan, !c->reads_markers, &c->stream) : ATLAS_NO_MEMORY;
	if (status == ATLAS_OK)
		status = atlas_text_stops(
			c->stream, (const char *const *)r->stops, r->stop_bytes, r->n_stops, r->include_stop);
	if (status != ATLAS_OK && status != ATLAS_NO_TOKENIZER)
		return false;
	return !r->echo || r->stream || take_text(c, c->prompt->text, c->prompt->n_bytes);
}

void choice_close(Choice *c)
{
	atlas_text_close(c->stream);
	pieces_close(c->parser);
	for (int i = 0; i < c->n_parts; i++) {
		free(c->parts[i].name);
		free(c->parts[i].bytes);
	}
	free(c->parts);
	for (int i = 0; i < c->n_logs; i++)
		free(c->logs[i].top);
	free(c->logs);
	free(c->sequence.scores);
	guide_close(c->sequence.guide);
}
