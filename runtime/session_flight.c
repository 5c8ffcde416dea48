/* session_flight.c - running sequences get their tokens.
 *
 * Decode steps need nothing from the host but the slot of each row, so several are in flight at once: a flight is
 * a run of steps of one set of sequences, of which `launched` were put on the device and `taken` handed out. Results
 * wait in the rings: a slot is given to another sequence only when its end was handed out, and a flight is
 * shorter than a ring. A flight goes on as long as its set does. When a sequence ends, is cancelled or waits to be
 * read, no step is added; what is in flight is handed out, step by step and in order, and then another begins.
 *
 * Where the plan drafts, a step of a flight may make several tokens of a sequence: the device verifies and accepts, and
 * the ring says which token is the last of its step. A flight counts such a step as one token, since it never makes
 * fewer. Its rows reach up to verify_rows - 1 positions after the sequence's last one, so a slot has pages for them as
 * well. How many rows of a slot it reads follows the flight's slots, by the plan's ladder. A head drafts on the device;
 * n-grams (ngram.c) are looked for here, in texts up to their last token, so while they may draft there is one step in
 * flight, of one row of each slot where too few drafts are worth more. Also a step without drafts is a verify step: it
 * alone goes on from any version of a slot's states, and leaves the head its keys.
 *
 * Steps after the end of a sequence do nothing for it (ops.h: slot_token): they write to the first line of its first
 * page, which a later launch of the same stream hands on, so none of them can touch what the next owner writes.
 */
#include "artifacts/ring.h"
#include "artifacts/seconds.h"
#include "runtime/session_handle.h"

#include <math.h>
#include <stdlib.h>

enum { PATIENCE = 1 << 12 }; /* looks at a ring, about 0.1 ms of them, before the device is asked */

/* The entry of the slot's ring for the token at `position`. */
static int32_t *ring_entry(const AtlasSession *s, int slot, int position)
{
	return s->device->io.ring + (slot * PLAN_RING_ENTRIES + position % PLAN_RING_ENTRIES) * PLAN_RING_WORDS;
}

AtlasStatus session_take_token(AtlasSession *s, int slot, int row, AtlasEvent *events, int i, bool *more)
{
	static const AtlasFinish finish[] = {ATLAS_RUNNING, ATLAS_STOP, ATLAS_LENGTH, ATLAS_FAILED, ATLAS_RUNNING};
	const int last = s->step_tokens > 1 ? 4 : 3;
	Sequence *q = &s->slots[slot];
	AtlasEvent *e = &events[i];
	int position = q->n + q->made;
	RingEntry entry;
	bool is_whole = ring_read(ring_entry(s, slot, position), &entry), is_none = entry.done == 3;
	*e = (AtlasEvent){.slot = slot, .token = entry.token, .logprob = entry.logprob};
	*more = entry.done == 4;
	if (!is_whole || entry.position != position || entry.done > last ||
		(is_none ? e->token != -1 : e->token < 0 || e->token >= s->graph->vocab || isnan(e->logprob)))
		return s->failed = error_set(&s->error, ATLAS_DEVICE_FAULT,
			"slot %d was given token %d at position %d, done %d%s: no such result of position %d", slot, entry.token,
			entry.position, entry.done, is_whole ? "" : ", not all of it", position);
	e->finish = finish[entry.done];
	free(q->tokens);
	q->tokens = NULL;
	q->state = RUNNING;
	q->made++;
	q->token = e->token;
	if (q->is_masked) {
		q->awaits_mask = true;
		s->flight.is_closed = true;
	}
	if (s->ngrams && s->step_tokens > 1 && !is_none)
		ngrams_push(&s->ngrams[slot], entry.token);
	session_want_top(s, i, row, e->token < 0 ? 0 : q->n_top);
	if (e->finish == ATLAS_RUNNING && q->made == q->max_new)
		e->finish = ATLAS_LENGTH;
	if (e->finish != ATLAS_RUNNING)
		session_free_slot(s, slot);
	return ATLAS_OK;
}

int session_n_running(const AtlasSession *s)
{
	int n = 0;
	for (int i = 0; i < s->graph->slots; i++)
		n += session_can_run(s, &s->slots[i]);
	return n;
}

void session_leave_flight(AtlasSession *s, int slot)
{
	Flight *f = &s->flight;
	bool is_empty = true;
	for (int i = 0; i < f->n; i++) {
		f->is_closed |= f->slots[i] == slot;
		f->slots[i] = f->slots[i] == slot ? -1 : f->slots[i];
		is_empty &= f->slots[i] < 0;
	}
	if (is_empty) {
		s->has_strays |= session_has_results(s);
		f->n = f->launched = f->taken = 0;
	}
}

AtlasStatus session_begin_flight(AtlasSession *s)
{
	Flight *f = &s->flight;
	*f = (Flight){.slots = f->slots};
	for (int i = 0; i < s->graph->slots; i++)
		if (session_can_run(s, &s->slots[i]))
			f->slots[f->n++] = i;
	return s->has_strays ? session_wait(s) : ATLAS_OK;
}

/* Rows of each slot in a step that drafts for the flight, 1 where nothing is drafted for as many. */
static int rows_by_ladder(const AtlasSession *s)
{
	return s->forced_rows ? s->forced_rows : ladder_rows(s->graph, s->flight.n);
}

/* Are the flight's drafts the host's? Each step needs the tokens of the one before, then. */
static bool drafts_here(const AtlasSession *s) { return s->ngrams && s->step_tokens > 1 && rows_by_ladder(s) > 1; }

/* Are drafts wanted where there are none, since which ones count is prescribed, or how many rows there are? */
static bool is_measured(const AtlasSession *s)
{
	return s->forced_rows || s->shares[0] || s->shares[1] || s->shares[2];
}

/* Is a step with the flight's drafts worth it: is a quarter of a token more to be expected of each slot, on average? */
static bool is_worth_it(const AtlasSession *s)
{
	const Flight *f = &s->flight;
	int worth = 0, slots = 0;
	for (int i = 0; i < f->n; i++) {
		if (f->slots[i] < 0)
			continue;
		worth += s->ngrams[f->slots[i]].has_drafts ? s->ngrams[f->slots[i]].worth : 0;
		slots++;
	}
	return is_measured(s) || (worth > 0 && 4 * worth >= NGRAM_ONE * slots);
}

/* Drafts for each slot of the flight, as the next step's inputs; returns whether they are worth a step with these rows.
 * It follows from the texts alone, so that what a step reads is the same in each run. Masks are made for drafts that
 * are worth it, unless the text takes none of them. */
static bool draft_all(AtlasSession *s, int each, AtlasStatus *status)
{
	enum { WORK = 2048 /* tokens of long prompts that are looked at between two steps: less than a millisecond */ };
	const Flight *f = &s->flight;
	bool takes_drafts;
	ngrams_draft_all(s->ngrams, f->slots, f->n, s->device->io.slot_draft, s->graph->verify_rows - 1, each - 1, WORK);
	for (int i = 0; i < f->n; i++) {
		const Sequence *q = f->slots[i] < 0 ? NULL : &s->slots[f->slots[i]];
		Ngrams *g = q ? &s->ngrams[f->slots[i]] : NULL;
		if (q)
			g->has_drafts = q->is_masked ? g->has_drafts && q->masks_after : g->has_drafts || is_measured(s);
	}
	bool is_worth = is_worth_it(s);
	if (is_worth && session_has_masked(s, &takes_drafts)) {
		*status = session_mask_drafts(s, s->device->io.slot_draft, each);
		for (int i = 0; i < f->n; i++)
			if (f->slots[i] >= 0 && s->slots[f->slots[i]].is_masked)
				s->ngrams[f->slots[i]].has_drafts &= s->slots[f->slots[i]].n_later > 0;
		is_worth = is_worth_it(s);
	}
	for (int i = 0; i < f->n && !is_worth; i++)
		if (f->slots[i] >= 0 && s->ngrams[f->slots[i]].has_drafts)
			ngrams_pass(&s->ngrams[f->slots[i]]);
	return is_worth;
}

/* Rows of each slot in the next step, into f->each; 0: it is a decode step. Inputs of the flight are those of the step
 * before it, if it has as many and the host does not draft. */
static AtlasStatus choose_rows(AtlasSession *s)
{
	Flight *f = &s->flight;
	AtlasStatus status = ATLAS_OK;
	int each = s->step_tokens > 1 ? rows_by_ladder(s) : 0;
	if (drafts_here(s) && !draft_all(s, each, &status))
		each = 1;
	f->has_inputs = f->has_inputs && f->each == each && !(s->ngrams && each > 1);
	f->each = each;
	return status;
}

/* Steps to add now: none when enough are in flight, or so few are missing that a whole row of them comes later. */
static int steps_to_add(const AtlasSession *s)
{
	const Flight *f = &s->flight;
	const StepLimits *limits = &s->device->limits;
	/* of tokens that were not taken yet, no ring has more than it holds */
	const int room = PLAN_RING_ENTRIES / s->step_tokens - 1;
	const int on_way = f->launched - f->taken;
	int left = 0, ahead = drafts_here(s) ? 1 : limits->ahead < room ? limits->ahead : room;
	for (int i = 0; i < f->n; i++) {
		const Sequence *q = f->slots[i] < 0 ? NULL : &s->slots[f->slots[i]];
		if (q && q->max_new - q->made > left)
			left = q->max_new - q->made;
		if (q && q->steps_ahead > 0 && q->steps_ahead < ahead)
			ahead = q->steps_ahead;
	}
	const int end = left < ahead ? left : ahead, n = end - on_way;
	if (f->is_closed || n <= 0)
		return 0;
	if (s->is_urgent || session_next_waiting(s, -1) >= 0) /* whose turn is after this step */
		return on_way == 0;
	return on_way == 0 || end == left ? n : n - n % limits->row;
}

AtlasStatus session_add_steps(AtlasSession *s)
{
	Flight *f = &s->flight;
	StepIo *io = &s->device->io;
	const int on_way = f->launched - f->taken;
	int steps = on_way + steps_to_add(s);
	AtlasStatus status = steps > on_way ? session_grow_flight(s, &steps) : ATLAS_OK;
	const int n = steps - on_way;
	if (n <= 0 || status != ATLAS_OK)
		return status;
	status = choose_rows(s);
	if (status != ATLAS_OK)
		return status;
	const int per_slot = f->each ? f->each : 1, rows = f->n * per_slot;
	StepSize size = {.phase = f->each ? VERIFY : DECODE, .rows = rows, .outs = rows, .each = f->each,
		.is_same = f->has_inputs};
	for (int i = 0; i < rows && !f->has_inputs; i++) {
		io->row_slot[i] = f->slots[i / per_slot];
		if (i < io->n_out_rows)
			io->out_row[i] = i;
	}
	bool takes_drafts;
	if (per_slot > 1 && !s->ngrams && session_has_masked(s, &takes_drafts))
		status = takes_drafts ? session_mask_head(s, &size) : session_mask_drafts(s, NULL, per_slot);
	if (status != ATLAS_OK)
		return status;
	status = s->device->ops->launch(s->device, &size, n);
	if (status != ATLAS_OK)
		return session_failed(s, status);
	f->has_inputs = true;
	f->bucket = s->device->bucket;
	f->launched += n;
	return ATLAS_OK;
}

static void breathe(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* Is all of the slot's entry for `position` there? */
static bool has_token(const AtlasSession *s, int slot, int position)
{
	const int32_t *words = ring_entry(s, slot, position);
	RingEntry entry;
	return __atomic_load_n(words, __ATOMIC_RELAXED) == position && ring_read(words, &entry);
}

/* Returns when the slot's entry for `position` is in its ring or, where it may, when the session is woken. */
static AtlasStatus await_token(AtlasSession *s, int slot, int position, bool may_wake)
{
	bool is_busy = true;
	if (has_token(s, slot, position))
		return ATLAS_OK;
	const double began = seconds_now();
	AtlasStatus status = ATLAS_OK;
	for (int tries = 1; status == ATLAS_OK && !has_token(s, slot, position); tries++) {
		if (may_wake && atomic_load_explicit(&s->is_woken, memory_order_relaxed))
			break;
		if (!is_busy) /* all is done, and it was not there a moment later: take_token says what is */
			break;
		breathe();
		if (tries % PATIENCE == 0)
			status = s->device->ops->look(s->device, &is_busy);
	}
	s->device->waited += seconds_now() - began;
	return status == ATLAS_OK ? ATLAS_OK : session_failed(s, status);
}

/* All tokens that a step made for a slot, whose rows begin with `row`: *n more events. */
static AtlasStatus take_slot(AtlasSession *s, int slot, int row, AtlasEvent *events, int *n)
{
	const int before = *n, each = s->flight.each ? s->flight.each : 1;
	const bool has_drafts = each > 1 && (!s->ngrams || s->ngrams[slot].has_drafts);
	const int drafts = !has_drafts ? 0 : s->slots[slot].is_masked ? s->slots[slot].n_later : each - 1;
	bool more = true;
	while (more) {
		AtlasStatus status = await_token(s, slot, s->slots[slot].n + s->slots[slot].made, false);
		if (status == ATLAS_OK)
			status = session_take_token(s, slot, row + *n - before, events, *n, &more);
		if (status == ATLAS_OK && more && (++*n == before + each || events[*n - 1].finish != ATLAS_RUNNING))
			status = s->failed = error_set(&s->error, ATLAS_DEVICE_FAULT, "slot %d: a step of %d rows says that more "
				"than %d tokens are its", slot, each, *n - before);
		if (status != ATLAS_OK)
			return status;
	}
	s->n_drafts += drafts;
	s->n_accepted += drafts ? *n - before : 0;
	if (drafts && s->ngrams)
		ngrams_note(&s->ngrams[slot], *n - before);
	if (events[(*n)++].finish != ATLAS_RUNNING)
		session_leave_flight(s, slot);
	return ATLAS_OK;
}

/* May a step of the flight stay unread while something else is asked? Not where its logits are to be read. */
static bool may_wait(const AtlasSession *s)
{
	const Flight *f = &s->flight;
	for (int i = 0; i < f->n; i++)
		if (f->slots[i] >= 0 && s->slots[f->slots[i]].n_top > 0)
			return false;
	return true;
}

AtlasStatus session_take_step(AtlasSession *s, AtlasEvent *events, int *n)
{
	Flight *f = &s->flight;
	int made = 0, first = 0;
	while (f->slots[first] < 0) /* a flight without any has no results */
		first++;
	const int slot = f->slots[first], position = s->slots[slot].n + s->slots[slot].made;
	const bool may_wake = may_wait(s);
	AtlasStatus status = await_token(s, slot, position, may_wake);
	if (status != ATLAS_OK)
		return status;
	if (may_wake && !has_token(s, slot, position) && atomic_load_explicit(&s->is_woken, memory_order_relaxed))
		return ATLAS_OK;
	f->taken++; /* now, so that leave_flight knows whether steps are still running */
	const int each = f->each ? f->each : 1, rows = f->n * each;
	s->last = (StepSize){.phase = f->each ? VERIFY : DECODE, .rows = rows, .outs = rows, .each = f->each};
	s->last_bucket = f->bucket;
	for (int i = 0; i < f->n && status == ATLAS_OK; i++)
		if (f->slots[i] >= 0)
			status = take_slot(s, f->slots[i], i * each, events, &made);
	if (status == ATLAS_OK)
		status = session_read_tops(s, s->last.phase, events, made);
	if (status == ATLAS_OK)
		*n = made;
	return status;
}
