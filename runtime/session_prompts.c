/* session_prompts.c - waiting prompts are read: first come, first served, in chunks that take several. */
#include "runtime/session_handle.h"

void session_add_segment(StepIo *io, StepSize *size, int slot, const int32_t *tokens, int n, int from, int count)
{
	int32_t *seg = io->seg + size->segs++ * 4;
	seg[0] = size->rows;
	seg[1] = count;
	seg[2] = slot;
	seg[3] = from;
	for (int i = 0; i < count; i++, size->rows++) {
		io->row_token[size->rows] = tokens[from + i];
		io->row_slot[size->rows] = slot;
		io->row_pos[size->rows] = from + i;
		if (io->row_next)
			io->row_next[size->rows] = from + i + 1 < n ? tokens[from + i + 1] : 0;
	}
}

int session_next_waiting(const AtlasSession *s, int64_t after)
{
	int best = -1;
	for (int i = 0; i < s->graph->slots; i++)
		if (s->slots[i].state == WAITING && !s->slots[i].is_aside && s->slots[i].ticket > after &&
			(best < 0 || s->slots[i].ticket < s->slots[best].ticket))
			best = i;
	return best;
}

int session_whole_cells(const AtlasSession *s, int left, int room)
{
	const int grid = s->graph->prompt_grid;
	return left <= room ? left : room / grid * grid;
}

/* Most rows of the next step of prompts: those of the largest bucket or, where answers wait for it, the whole cells of
 * max_gap, or of max_gap_each for each answer if that is more; at least one. */
static int most_rows(const AtlasSession *s)
{
	const int rows = s->device->limits.prefill_rows, grid = s->graph->prompt_grid, n = session_n_running(s);
	const int64_t each = (int64_t)s->max_gap_each * n, gap = each > s->max_gap ? each : s->max_gap;
	if (s->max_gap == 0 || n == 0 || gap >= rows)
		return rows;
	const int cells = (int)gap / grid * grid;
	return cells > 0 ? cells : grid < rows ? grid : rows;
}

/* Rows of waiting prompts until the next cell is too large for what is left of `most` rows. The last row of a prompt
 * needs an out: its last cell waits for one. */
static StepSize gather_prompts(AtlasSession *s, int most)
{
	StepIo *io = &s->device->io;
	const StepLimits *limits = &s->device->limits;
	StepSize size = {.phase = PREFILL};
	int64_t ticket = -1;
	for (int slot; (slot = session_next_waiting(s, ticket)) >= 0 && size.rows < most;) {
		Sequence *q = &s->slots[slot];
		const int left = q->n - q->read;
		int count = session_whole_cells(s, left, most - size.rows);
		ticket = q->ticket;
		if (count == 0 || q->score)
			break; /* first come, first served */
		if (count == left && size.outs == limits->prefill_outs)
			count = (left - 1) / s->graph->prompt_grid * s->graph->prompt_grid;
		if (count == 0)
			continue;
		session_add_segment(io, &size, slot, q->tokens, q->n, q->read, count);
		q->read += count;
		if (q->read == q->n)
			io->out_row[size.outs++] = size.rows - 1;
	}
	return size;
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
		status = session_enter(s);
	if (status != ATLAS_OK)
		return status;
	const int first = session_next_waiting(s, -1);
	s->is_answers_turn = s->max_gap > 0;
	if (s->slots[first].score)
		return session_step_scores(s, first, events, n);
	StepSize size = gather_prompts(s, most_rows(s));
	status = session_run(s, &size);
	if (status == ATLAS_OK)
		status = take_tokens(s, &size, events);
	if (status == ATLAS_OK)
		*n = size.outs;
	s->last = size;
	s->last_bucket = s->device->bucket;
	return status;
}
