/* session_pages.c - slots and KV pages.
 *
 * A sequence is a slot, KV pages, and a prompt of which some rows were read. Its pages are taken at the start for its
 * whole life, or as needed: for the prompt and a little more, then while the text grows, before the steps that write
 * there. A plan has pages for at least one whole context (plan_check.c), so each sequence fits alone.
 *
 * When there is no page for the next step of a sequence, the youngest of those as needed is set aside: the bytes of its
 * pages go to memory of the host, its pages to others; its slot stays, and in it lengths, random state and recurrent
 * states. The bytes come back into any free pages, so no result changes. Which sequence is set aside
 * or comes back depends on age alone: the oldest as needed always has its pages or waits only for sequences that have
 * theirs for life, and nothing new starts while one waits. So each makes progress, whatever the others do.
 * Sequences come back, and new ones start, only where those that grow have room for a while: else they would go at
 * once.
 *
 * Pages may hold the start of prompts that may come again (session_prefix.c). Those that no sequence reads are as good
 * as free: they are taken when the others are.
 *
 * The page table's rows are on the device; entries are added by copies on the stream of the steps, so that decode steps
 * in flight need not end first.
 */
#include "artifacts/seconds.h"
#include "runtime/session_handle.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { IGNORES_STOPS = 1 << 16, IS_MASKED = 1 << 17 }; /* in limits[7] */

static int smaller(int a, int b) { return a < b ? a : b; }
static int larger(int a, int b) { return a > b ? a : b; }

/* Pages for a step from `positions` on, that of the step's first row counted. */
static int pages_for(const AtlasSession *s, int positions)
{
	return (positions + s->step_tokens - 1 + s->graph->page - 1) / s->graph->page;
}

/* Pages that a sequence takes besides those that it needs now. */
static int some_pages(const AtlasSession *s) { return (s->grow + s->graph->page - 1) / s->graph->page; }

int session_available(const AtlasSession *s) { return s->n_free_pages + (s->prefix ? s->prefix->n_unpinned : 0); }

int32_t session_take_page(AtlasSession *s)
{
	if (s->n_free_pages)
		return s->free_pages[--s->n_free_pages];
	s->prefix->n_evicted++;
	return prefix_evict(s->prefix);
}

void session_free_slot(AtlasSession *s, int slot)
{
	Sequence *q = &s->slots[slot];
	session_drop_pages(s, q);
	s->n_as_needed -= q->as_needed;
	s->n_aside -= q->n_aside;
	free(q->tokens);
	free(q->inputs);
	free(q->aside);
	free(q->logits);
	*q = (Sequence){.pages = q->pages, .leaves_mask = q->leaves_mask || (q->is_masked && !q->awaits_mask),
		.n_later = q->n_later};
}

static void claim_pages(AtlasSession *s, Sequence *q, int n)
{
	while (n-- > 0)
		q->pages[q->n_pages++] = session_take_page(s);
}

/* Takes n free pages, and enters them in what put_pages copies. */
static void take_pages(AtlasSession *s, int slot, int n)
{
	Sequence *q = &s->slots[slot];
	int32_t *row = s->device->io.new_pages + (size_t)slot * (size_t)s->graph->max_pages;
	const int first = q->n_pages;
	claim_pages(s, q, n);
	memcpy(row + first, q->pages + first, sizeof *row * (size_t)n);
}

AtlasStatus session_put_pages(AtlasSession *s, int slot, int first, int n)
{
	s->has_strays = true;
	return s->device->ops->put_pages(s->device, slot, first, n);
}

int session_pages_to_come(const AtlasSession *s)
{
	int n = 0;
	for (int i = 0; i < s->graph->slots && s->n_as_needed; i++) {
		const Sequence *q = &s->slots[i];
		if (q->as_needed && !q->is_aside)
			n += smaller(some_pages(s), q->all_pages - q->n_pages);
	}
	return n;
}

static bool has_pages(const AtlasSession *s, const Sequence *q);

/* Does a sequence wait for pages? */
static bool is_short(const AtlasSession *s)
{
	for (int i = 0; i < s->graph->slots && s->n_as_needed; i++) {
		const Sequence *q = &s->slots[i];
		if (q->is_aside || (q->state == RUNNING && !has_pages(s, q)))
			return true;
	}
	return false;
}

/* Are there n pages for a new sequence? */
static AtlasStatus check_pages(AtlasSession *s, const SlotClaim *claim, int n)
{
	const int kept = claim->is_brief ? 0 : session_pages_to_come(s), available = session_available(s);
	if (n + kept > available && !kept)
		return error_set(&s->error, ATLAS_NO_PAGES, "%d pages are needed, %d of %d are free", n, available,
			s->graph->pages);
	if (n + kept > available)
		return error_set(&s->error, ATLAS_NO_PAGES, "%d pages are needed, %d of %d are free, %d of them for texts that "
			"grow", n, available, s->graph->pages, kept);
	if (!claim->is_brief && is_short(s))
		return error_set(&s->error, ATLAS_NO_PAGES, "sequences that were started before wait for pages");
	return ATLAS_OK;
}

static AtlasStatus make_inputs(AtlasSession *s, const SlotClaim *claim, SlotInputs **inputs)
{
	const AtlasSampling *a = claim->sampling;
	const size_t rules = sizeof *claim->rules * (size_t)claim->n_rules * PLAN_RULE_WORDS;
	const float coldest = 1e-30f; /* below it a score over the temperature may be no number */
	SlotInputs *in = malloc(sizeof *in + rules);
	if (!in)
		return error_set(&s->error, ATLAS_NO_MEMORY, "no memory for a sequence");
	*in = (SlotInputs){.sampling = {a->temperature < coldest ? 0 : a->temperature, a->top_p, a->min_p,
		a->repetition_penalty, a->presence_penalty, a->frequency_penalty},
		.limits = {a->top_k, (int32_t)(uint32_t)a->seed, (int32_t)(uint32_t)(a->seed >> 32), claim->positions,
		s->shares[0], s->shares[1], s->shares[2], claim->n_rules |
			(claim->ignores_stops ? IGNORES_STOPS : 0) | (claim->is_masked ? IS_MASKED : 0)},
		.n_rules = claim->n_rules};
	if (rules)
		memcpy(in->rules, claim->rules, rules);
	*inputs = in;
	return ATLAS_OK;
}

/* Pages for a new sequence: n, of which those of a prefix that is kept need not be taken, if the others are there. */
static AtlasStatus claim_first(AtlasSession *s, const SlotClaim *claim, Sequence *q, int n)
{
	int known, node = -1, chain = claim->uses_prefix
		? session_find_prefix(s, claim->salt, claim->tokens, claim->prompt, &node, &known) : 0;
	prefix_pin(s->prefix, node);
	AtlasStatus status = check_pages(s, claim, n - larger(0, chain - s->own_pages));
	if (status == ATLAS_NO_PAGES && chain > 0) { /* those pinned may be what is missing */
		prefix_unpin(s->prefix, node);
		chain = 0;
		status = check_pages(s, claim, n);
	}
	status = status == ATLAS_OK ? make_inputs(s, claim, &q->inputs) : status;
	if (status != ATLAS_OK && chain > 0)
		prefix_unpin(s->prefix, node);
	if (status != ATLAS_OK)
		return status;
	claim_pages(s, q, smaller(n, s->own_pages));
	if (chain > 0)
		session_enter_chain(s, q, 0, node, chain);
	q->n_pages = larger(q->n_pages, chain);
	claim_pages(s, q, n - q->n_pages);
	return ATLAS_OK;
}

AtlasStatus session_acquire(AtlasSession *s, const SlotClaim *claim, int *slot)
{
	const Graph *g = s->graph;
	const int all_pages = pages_for(s, claim->positions);
	const int n_pages = claim->as_needed ? smaller(all_pages, pages_for(s, claim->prompt) + some_pages(s)) : all_pages;
	int i = 0;
	while (i < g->slots && s->slots[i].state != FREE)
		i++;
	if (i == g->slots)
		return error_set(&s->error, ATLAS_NO_SLOT, "all %d slots are taken", g->slots);
	Sequence *q = &s->slots[i];
	const AtlasStatus status = claim_first(s, claim, q, n_pages);
	if (status != ATLAS_OK)
		return status;
	s->reused[i] = 0;
	q->uses_prefix = claim->uses_prefix;
	q->leaves_prefix = claim->leaves_prefix;
	q->n_tail = claim->n_tail;
	q->has_repetition = claim->sampling->repetition_penalty != 1;
	if (q->uses_prefix || q->leaves_prefix)
		memcpy(q->salt, claim->salt, sizeof q->salt);
	q->as_needed = claim->as_needed;
	q->is_masked = q->awaits_mask = claim->is_masked;
	q->all_pages = all_pages;
	s->n_as_needed += claim->as_needed;
	*slot = i;
	return ATLAS_OK;
}

static AtlasStatus begin_slot(AtlasSession *s, int slot)
{
	const Graph *g = s->graph;
	StepIo *io = &s->device->io;
	Sequence *q = &s->slots[slot];
	const SlotInputs *in = q->inputs;
	int32_t *pages = io->new_pages + (size_t)slot * (size_t)g->max_pages;
	memset(pages, 0, sizeof *pages * (size_t)g->max_pages);
	memcpy(pages, q->pages, sizeof *pages * (size_t)q->n_pages);
	memcpy(io->new_sampling + slot * 8, in->sampling, sizeof in->sampling);
	memcpy(io->new_limits + slot * 8, in->limits, sizeof in->limits);
	if (in->n_rules)
		memcpy(io->new_rules, in->rules, sizeof *in->rules * (size_t)in->n_rules * PLAN_RULE_WORDS);
	memset(io->acquire, 0, sizeof *io->acquire * (size_t)g->slots);
	io->acquire[slot] = 1;
	const AtlasStatus status = session_run(s, &(StepSize){.phase = ACQUIRE});
	/* No step that runs now can write there: the slot's last sequence has ended. */
	memset(io->ring + slot * PLAN_RING_ENTRIES * PLAN_RING_WORDS, 0,
		sizeof *io->ring * PLAN_RING_ENTRIES * PLAN_RING_WORDS);
	free(q->inputs);
	q->inputs = NULL;
	return status;
}

AtlasStatus session_begin_slots(AtlasSession *s)
{
	AtlasStatus status = ATLAS_OK;
	for (int i = 0; i < s->graph->slots && status == ATLAS_OK; i++) {
		if (!s->slots[i].inputs || s->slots[i].is_aside)
			continue;
		if (s->has_strays || session_has_results(s)) /* copies of the slot's last pages, too */
			status = session_wait(s);
		if (status == ATLAS_OK)
			status = begin_slot(s, i);
	}
	return status;
}

/* Growing ---------------------------------------------------------------------------------------------- */

/* Steps that a sequence with answers to come has pages for: one from its last token on, and each later one as many
 * positions on as a step makes tokens at most. */
static int steps_held(const AtlasSession *s, const Sequence *q)
{
	if (q->n_pages == q->all_pages)
		return INT_MAX;
	const int room = q->n_pages * s->graph->page - (s->step_tokens - 1) - (q->n + q->made);
	return room < 0 ? 0 : room / s->step_tokens + 1;
}

/* Has it answers to come, and pages for one? */
static bool has_pages(const AtlasSession *s, const Sequence *q)
{
	return q->state == RUNNING && !q->is_aside && steps_held(s, q) > 0;
}

bool session_can_run(const AtlasSession *s, const Sequence *q) { return !q->awaits_mask && has_pages(s, q); }

/* Takes pages for `steps` steps, or as many as there are; some more where there are many. */
static AtlasStatus grow(AtlasSession *s, int slot, int steps)
{
	Sequence *q = &s->slots[slot];
	if (steps <= steps_held(s, q))
		return ATLAS_OK;
	const int first = q->n_pages;
	const int wanted = smaller(q->all_pages, pages_for(s, q->n + q->made + (steps - 1) * s->step_tokens)) - first;
	const int some = smaller(q->all_pages - first, some_pages(s));
	if (session_available(s) == 0)
		session_leave_prefix(s, q);
	const int available = session_available(s);
	const bool has_many = larger(wanted, some) + session_pages_to_come(s) <= available;
	const int n = smaller(has_many ? larger(wanted, some) : wanted, available);
	if (n == 0)
		return ATLAS_OK;
	take_pages(s, slot, n);
	const AtlasStatus status = session_put_pages(s, slot, first, n);
	return status == ATLAS_OK ? ATLAS_OK : session_failed(s, status);
}

AtlasStatus session_grow_flight(AtlasSession *s, int *steps)
{
	const Flight *f = &s->flight;
	AtlasStatus status = ATLAS_OK;
	const int wanted = *steps;
	for (int i = 0; i < f->n && s->n_as_needed && status == ATLAS_OK; i++) {
		if (f->slots[i] < 0 || !s->slots[f->slots[i]].as_needed)
			continue;
		status = grow(s, f->slots[i], wanted);
		*steps = smaller(*steps, steps_held(s, &s->slots[f->slots[i]]));
	}
	return status;
}

/* Setting aside ------------------------------------------------------------------------------------------ */

/* Positions from which on nothing in the sequence's pages counts. */
static int positions_held(const Sequence *q) { return q->state == WAITING ? q->read : q->n + q->made; }

static AtlasStatus copy_pages(AtlasSession *s, const int32_t *pages, int n, uint8_t *bytes, bool is_back)
{
	const double began = seconds_now();
	const AtlasStatus status = n ? s->device->ops->copy_pages(s->device, pages, n, bytes, is_back) : ATLAS_OK;
	s->device->waited += seconds_now() - began;
	return status;
}

/* Its pages are free, and their bytes with the host. */
static AtlasStatus set_aside(AtlasSession *s, int slot)
{
	Sequence *q = &s->slots[slot];
	const int n = positions_held(q) ? smaller(q->n_pages, pages_for(s, positions_held(q))) : 0;
	uint8_t *bytes = n ? malloc((size_t)n * (size_t)s->device->page_bytes + 1) : NULL;
	if (n && !bytes)
		return error_set(&s->error, ATLAS_NO_MEMORY, "no memory of the host for %d pages of %lld bytes", n,
			(long long)s->device->page_bytes);
	const AtlasStatus status = copy_pages(s, q->pages, n, bytes, false);
	if (status != ATLAS_OK) {
		free(bytes);
		return session_failed(s, status);
	}
	session_drop_pages(s, q);
	q->aside = bytes;
	q->n_aside = n;
	q->is_aside = true;
	s->n_aside += n;
	s->n_set_aside++;
	s->flight.is_closed = true;
	return ATLAS_OK;
}

static AtlasStatus bring_back(AtlasSession *s, int slot, int n_pages)
{
	Sequence *q = &s->slots[slot];
	AtlasStatus status = ATLAS_OK;
	if (q->inputs) { /* its page table is part of these */
		claim_pages(s, q, n_pages);
	} else {
		take_pages(s, slot, n_pages);
		status = session_put_pages(s, slot, 0, n_pages);
	}
	if (status == ATLAS_OK)
		status = copy_pages(s, q->pages, q->n_aside, q->aside, true);
	if (status != ATLAS_OK)
		return session_failed(s, status);
	free(q->aside);
	s->n_aside -= q->n_aside;
	q->aside = NULL;
	q->n_aside = 0;
	q->is_aside = false;
	s->flight.is_closed = true;
	return ATLAS_OK;
}

/* The youngest one as needed that has pages. */
static int youngest(const AtlasSession *s)
{
	int best = -1;
	for (int i = 0; i < s->graph->slots; i++) {
		const Sequence *q = &s->slots[i];
		if (q->as_needed && !q->is_aside && (best < 0 || q->ticket > s->slots[best].ticket))
			best = i;
	}
	return best;
}

/* The oldest one as needed that came after `after`, of those with pages or of those set aside; -1: there is none. */
static int oldest(const AtlasSession *s, int64_t after, bool is_aside)
{
	int best = -1;
	for (int i = 0; i < s->graph->slots; i++) {
		const Sequence *q = &s->slots[i];
		if (q->as_needed && q->is_aside == is_aside && q->ticket > after &&
			(best < 0 || q->ticket < s->slots[best].ticket))
			best = i;
	}
	return best;
}

/* The oldest one that came after `after` and has answers to come, but no pages for a step of them. */
static int next_short(const AtlasSession *s, int64_t after)
{
	int slot = -1;
	do
		slot = oldest(s, slot < 0 ? after : s->slots[slot].ticket, false);
	while (slot >= 0 && (s->slots[slot].state != RUNNING || has_pages(s, &s->slots[slot])));
	return slot;
}

/* A step for the sequence: younger ones are set aside for it, at last itself, but never the oldest. */
static AtlasStatus make_room(AtlasSession *s, int slot, bool *has_room)
{
	const Sequence *q = &s->slots[slot];
	AtlasStatus status = grow(s, slot, 1);
	while (status == ATLAS_OK && !has_pages(s, q)) {
		const int victim = youngest(s);
		*has_room = false;
		if (victim == slot && oldest(s, -1, false) == slot)
			break; /* pages of others come back when they end: they have theirs for life */
		status = set_aside(s, victim);
		if (status != ATLAS_OK || victim == slot)
			break;
		status = grow(s, slot, 1);
	}
	return status;
}

/* Pages with which a sequence that was set aside can go on, and some more. */
static int pages_back(const AtlasSession *s, const Sequence *q)
{
	const int least = pages_for(s, q->state == WAITING ? q->n : q->n + q->made);
	return smaller(q->all_pages, least + some_pages(s));
}

static AtlasStatus bring_some_back(AtlasSession *s)
{
	AtlasStatus status = ATLAS_OK;
	for (int slot; status == ATLAS_OK && (slot = oldest(s, -1, true)) >= 0;) {
		const Sequence *q = &s->slots[slot];
		const int n = pages_back(s, q), kept = session_pages_to_come(s);
		if (n + kept > session_available(s))
			return status;
		status = bring_back(s, slot, n);
	}
	return status;
}

AtlasStatus session_share_pages(AtlasSession *s)
{
	AtlasStatus status = ATLAS_OK;
	bool has_room = true;
	if (!is_short(s)) /* as nearly always */
		return ATLAS_OK;
	for (int slot = -1; status == ATLAS_OK && (slot = next_short(s, slot < 0 ? -1 : s->slots[slot].ticket)) >= 0;) {
		s->flight.is_closed = true; /* the next one is with it, or without */
		status = make_room(s, slot, &has_room);
	}
	return status == ATLAS_OK && has_room ? bring_some_back(s) : status;
}
