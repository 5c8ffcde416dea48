/* session_prompts.c - waiting prompts are read: first come, first served, in chunks that take several.
 *
 * A mixed step has rows of answers besides: the last token of each sequence that runs is a segment of one row, before
 * those of the prompts, whose result is the sequence's next token. So the weights are read once for both, and no answer
 * waits for a prompt.
 */
#include "runtime/session_handle.h"

static void add_row(StepIo *io, StepSize *size, int slot, int position, int32_t token, int32_t next)
{
	io->row_token[size->rows] = token;
	io->row_slot[size->rows] = slot;
	io->row_pos[size->rows] = position;
	if (io->row_next)
		io->row_next[size->rows] = next;
	size->rows++;
}

static void begin_segment(StepIo *io, StepSize *size, int slot, int from, int count)
{
	int32_t *seg = io->seg + size->segs++ * 4;
	seg[0] = size->rows;
	seg[1] = count;
	seg[2] = slot;
	seg[3] = from;
}

void session_add_segment(StepIo *io, StepSize *size, int slot, const int32_t *tokens, int n, int from, int count)
{
	begin_segment(io, size, slot, from, count);
	for (int i = from; i < from + count; i++)
		add_row(io, size, slot, i, tokens[i], i + 1 < n ? tokens[i + 1] : 0);
}

int session_next_waiting(const AtlasSession *s, int64_t after)
{
	int best = -1;
	for (int i = 0; i < s->graph->slots; i++)
		if (s->slots[i].state == WAITING && !s->slots[i].is_aside && !s->slots[i].awaits_mask &&
			s->slots[i].ticket > after && (best < 0 || s->slots[i].ticket < s->slots[best].ticket))
			best = i;
	return best;
}

int session_whole_cells(const AtlasSession *s, int left, int room)
{
	const int grid = s->graph->prompt_grid;
	return left <= room ? left : room / grid * grid;
}

/* Of the next step of prompts, rows of answers: one for each sequence that runs, or none. */
static int rows_of_answers(const AtlasSession *s)
{
	const int n = session_mixes(s) ? session_n_running(s) : 0;
	return session_has_room(s, n) && n < s->device->limits.prefill_outs ? n : 0;
}

/* Most rows of the next step of prompts, `answers` among them: those of the largest bucket or, where sequences run, the
 * whole cells of max_gap, or of max_gap_each for each of these if that is more; at least one. */
static int most_rows(const AtlasSession *s, int answers)
{
	const int room = s->device->limits.prefill_rows - answers, grid = s->graph->prompt_grid, n = session_n_running(s);
	const int64_t each = (int64_t)s->max_gap_each * n, gap = (each > s->max_gap ? each : s->max_gap) - answers;
	if (s->max_gap == 0 || n == 0 || gap >= room)
		return answers + room;
	const int cells = gap < grid ? 0 : (int)gap / grid * grid;
	return answers + (cells > 0 ? cells : grid < room ? grid : room);
}

static void gather_answers(AtlasSession *s, StepSize *size)
{
	StepIo *io = &s->device->io;
	for (int slot = 0; slot < s->graph->slots; slot++) {
		const Sequence *q = &s->slots[slot];
		if (!session_can_run(s, q))
			continue;
		begin_segment(io, size, slot, q->n + q->made - 1, 1);
		add_row(io, size, slot, q->n + q->made - 1, q->token, 0);
		io->out_row[size->outs++] = size->rows - 1;
	}
}

/* Rows of waiting prompts until the next cell is too large for what is left of `most` rows. The last row of a prompt
 * needs an out: its last cell waits for one. */
static AtlasStatus gather_prompts(AtlasSession *s, int most, StepSize *size)
{
	StepIo *io = &s->device->io;
	const StepLimits *limits = &s->device->limits;
	int64_t ticket = -1;
	for (int slot; (slot = session_next_waiting(s, ticket)) >= 0 && size->rows < most;) {
		Sequence *q = &s->slots[slot];
		ticket = q->ticket;
		if (session_is_coming(s, slot, size))
			continue;
		const AtlasStatus status = q->is_begun ? ATLAS_OK : session_begin_prompt(s, slot);
		if (status != ATLAS_OK)
			return status;
		const int left = q->n - q->read;
		int count = session_whole_cells(s, left, most - size->rows);
		if (count == 0 || q->score)
			break; /* first come, first served */
		if (count == left && size->outs == limits->prefill_outs)
			count = (left - 1) / s->graph->prompt_grid * s->graph->prompt_grid;
		if (count == 0)
			continue;
		count = session_until_cut(s, q, count);
		session_add_segment(io, size, slot, q->tokens, q->n, q->read, count);
		q->read += count;
		if (q->read == q->n)
			io->out_row[size->outs++] = size->rows - 1;
	}
	return ATLAS_OK;
}

/* What the step leaves of prompts, while they are known. */
static AtlasStatus keep_prompts(AtlasSession *s, const StepSize *size)
{
	AtlasStatus status = ATLAS_OK;
	for (int i = 0; i < size->segs && status == ATLAS_OK; i++) {
		const int slot = s->device->io.seg[i * 4 + 2];
		if (s->slots[slot].state == WAITING)
			status = session_keep_prompt(s, slot);
	}
	return status;
}

static AtlasStatus take_tokens(AtlasSession *s, const StepSize *size, AtlasEvent *events)
{
	const StepIo *io = &s->device->io;
	AtlasStatus status = ATLAS_OK;
	bool more;
	for (int o = 0; o < size->outs && status == ATLAS_OK; o++)
		status = session_take_token(s, io->row_slot[io->out_row[o]], o, events, o, &more);
	return status == ATLAS_OK ? session_read_tops(s, PREFILL, events, size->outs) : status;
}

AtlasStatus session_step_prompts(AtlasSession *s, AtlasEvent *events, int *n)
{
	AtlasStatus status = s->has_strays ? session_wait(s) : ATLAS_OK;
	if (status == ATLAS_OK)
		status = session_begin_slots(s);
	if (status != ATLAS_OK)
		return status;
	const int first = session_next_waiting(s, -1);
	const int answers = s->slots[first].score ? 0 : rows_of_answers(s);
	s->is_answers_turn = session_takes_turns(s) && !answers;
	if (s->slots[first].score)
		return session_step_scores(s, first, events, n);
	StepSize size = {.phase = PREFILL};
	const int most = most_rows(s, answers);
	if (answers)
		gather_answers(s, &size);
	status = gather_prompts(s, most, &size);
	if (status == ATLAS_OK)
		status = session_run(s, &size);
	if (status == ATLAS_OK)
		status = keep_prompts(s, &size);
	if (status == ATLAS_OK)
		status = take_tokens(s, &size, events);
	if (status == ATLAS_OK)
		*n = size.outs;
	s->last = size;
	s->was_mixed = answers > 0;
	s->last_bucket = s->device->bucket;
	return status;
}
