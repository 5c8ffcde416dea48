/* session_prefix.c - the start of prompts stays in its pages, for other prompts that begin alike.
 *
 * A step of a prompt leaves whole pages, of which each becomes a node of the index (prefix.h) at once: it is the
 * sequence's as before, which pins it, and stays when the sequence ends. A prompt that begins with such pages
 * has them in its page table and is read from there on: as a prompt is cut on its grid alone, which changes no bit, so
 * does this. At least its last token is read, for its scores. It is looked for when its first rows would be read, so
 * that of many that come at once the later ones find what the first ones left; and when it starts, so that it needs no
 * pages for it. A prompt that begins like one which is read in this very step waits for the next one.
 *
 * Only pages that steps of prompts wrote are kept. What decode steps write are other sums on a GPU, in last bits.
 *
 * Of recurrent states, and of keys in windows (artifacts/rolling.h), a slot has one version, which pages do not hold. A
 * snapshot is a copy of it, and a prompt may
 * only begin at a node that has one. It is taken after a step that ends there, so prompts are cut there: before the
 * last cell that is not whole, or has what no later prompt has there, at every 32nd page or a multiple of that, and
 * where the prompt leaves others that began like it, as far as the index knows. These follow from the prompt and the
 * index, and a cut changes no bit.
 *
 * The first page of a sequence is never shared: a step after the sequence's end writes to its first positions
 * (session_flight.c), and steps are launched ahead. So the index has a copy of that page, and who uses it gets another.
 * All else that a running sequence writes is after its prompt; where a head drafts, its keys of the prompt's last
 * position as well, of which the page is no node, since the token after it is not known (prefix.h: ahead).
 *
 * A page is free, or of one sequence alone, or a node. Sequences that need pages get those of nodes without a pin.
 * The copy of a first page is one page more than without an index: who finds none takes back what it alone pins.
 */
#include "artifacts/memory.h"
#include "runtime/session_handle.h"

#include <string.h>

static int smaller(int a, int b) { return a < b ? a : b; }
static int larger(int a, int b) { return a > b ? a : b; }

const char *session_against_prefixes(const AtlasPlan *plan)
{
	const Graph *g = &plan->artifact.graph;
	if (g->prompt_grid >= g->max_context)
		return "no prompt of the plan is cut, and a prefix ends where one may be";
	if (!g->snapshots && snapshot_bytes(g))
		return "the plan keeps no snapshots of recurrent states and windows: [cache] snapshots = 0";
	return NULL;
}

AtlasStatus session_keep_prefixes(AtlasSession *s, AtlasError *error)
{
	const Graph *g = s->graph;
	const int rows = g->verify_rows ? g->verify_rows : 1;
	const bool has_head = g->verify_rows && !g->ngram_max;
	s->own_pages = (rows + g->page - 1) / g->page;
	s->cell = g->prompt_grid;
	while (s->cell % g->page && s->cell < g->max_context) /* no prompt has such a place then */
		s->cell += g->prompt_grid;
	s->prefix = prefix_open(g->pages, g->page, has_head, g->snapshots);
	return s->prefix ? ATLAS_OK : error_set(error, ATLAS_NO_MEMORY, "no memory for an index of %d pages", g->pages);
}

/* May a prompt begin at this position, which is the end of the node's page? Its states, if there are any, are of it. */
static bool is_start(const AtlasSession *s, int node, int position)
{
	const int snapshot = s->prefix->nodes[node].snapshot;
	return position % s->cell == 0 &&
		(s->prefix->n_snapshots == 0 || (snapshot >= 0 && s->prefix->snapshots[snapshot].position == position));
}

int session_find_prefix(const AtlasSession *s, const uint8_t *salt, const int32_t *tokens, int n, int *node, int *known)
{
	const int page = s->graph->page;
	int best = 0, at = -1;
	*node = -1;
	*known = 0;
	for (int i = 0; (i + 1) * page < n; i++) {
		at = prefix_child(s->prefix, at, salt, tokens + i * page);
		if (at < 0)
			break;
		*known = i + 1;
		if (!is_start(s, at, (i + 1) * page))
			continue;
		best = i + 1;
		*node = at;
	}
	return best;
}

/* The snapshot that the sequence will go on from, -1 = none: it stays until then. */
static void hold_snapshot(AtlasSession *s, Sequence *q, int snapshot)
{
	Prefix *x = s->prefix;
	if (snapshot >= 0)
		x->snapshots[snapshot].pins++;
	if (q->snapshot > 0) {
		x->snapshots[q->snapshot - 1].pins--;
		x->snapshots[q->snapshot - 1].used = ++x->clock;
	}
	q->snapshot = snapshot + 1;
}

void session_enter_chain(AtlasSession *s, Sequence *q, int from, int node, int n)
{
	q->node = node;
	q->n_chain = n;
	hold_snapshot(s, q, s->prefix->nodes[node].snapshot);
	for (int i = n; i-- > from; node = s->prefix->nodes[node].parent)
		if (i >= s->own_pages)
			q->pages[i] = node;
}

static bool is_node(const AtlasSession *s, int32_t page) { return s->prefix && s->prefix->nodes[page].is_there; }

void session_drop_pages(AtlasSession *s, Sequence *q)
{
	for (int i = q->n_pages; i-- > 0;)
		if (!is_node(s, q->pages[i]))
			s->free_pages[s->n_free_pages++] = q->pages[i];
	if (q->n_chain > 0)
		prefix_unpin(s->prefix, q->node);
	hold_snapshot(s, q, -1);
	q->n_pages = q->n_chain = 0;
}

bool session_leave_prefix(AtlasSession *s, Sequence *q)
{
	while (q->n_chain > 0 && s->prefix->nodes[q->node].pins == 1 && s->prefix->nodes[q->node].children == 0) {
		const int node = q->node, i = --q->n_chain;
		q->node = s->prefix->nodes[node].parent;
		prefix_remove(s->prefix, node);
		if (i < s->own_pages || q->pages[i] != node)
			s->free_pages[s->n_free_pages++] = node;
	}
	return s->n_free_pages > 0;
}

/* Using -------------------------------------------------------------------------------------------------- */

/* A longer chain than the sequence has: its pages take the place of those that it has for these positions. */
static AtlasStatus change_chain(AtlasSession *s, int slot, int node, int n)
{
	Sequence *q = &s->slots[slot];
	const int first = larger(s->own_pages, q->n_chain);
	prefix_pin(s->prefix, node);
	for (int i = first; i < n; i++)
		s->free_pages[s->n_free_pages++] = q->pages[i];
	if (q->n_chain > 0)
		prefix_unpin(s->prefix, q->node);
	session_enter_chain(s, q, first, node, n);
	if (n <= first)
		return ATLAS_OK;
	memcpy(s->device->io.new_pages + slot * s->graph->max_pages + first, q->pages + first,
		sizeof *q->pages * (size_t)(n - first));
	return session_put_pages(s, slot, first, n - first);
}

/* The sequence's own first pages, what its slot knows of a prompt's tokens, and its states. */
static AtlasStatus copy_start(AtlasSession *s, int slot)
{
	Sequence *q = &s->slots[slot];
	const DeviceOps *ops = s->device->ops;
	AtlasStatus status = ATLAS_OK;
	int node = q->node;
	for (int i = q->n_chain; i-- > 0 && status == ATLAS_OK; node = s->prefix->nodes[node].parent)
		if (i < s->own_pages)
			status = ops->clone_page(s->device, node, q->pages[i]);
	if (status == ATLAS_OK && q->has_repetition)
		status = ops->note_prompt(s->device, slot, q->tokens, q->n_chain * s->graph->page);
	if (status == ATLAS_OK && q->snapshot > 0)
		status = ops->keep_states(s->device, slot, q->n_chain * s->graph->page, q->snapshot - 1, true);
	hold_snapshot(s, q, -1);
	return status;
}

AtlasStatus session_begin_prompt(AtlasSession *s, int slot)
{
	Sequence *q = &s->slots[slot];
	int node, known;
	q->is_begun = true;
	if (!q->uses_prefix)
		return ATLAS_OK;
	const int n = session_find_prefix(s, q->salt, q->tokens, q->n, &node, &known);
	q->branch = known * s->graph->page / s->cell * s->cell;
	AtlasStatus status = n > q->n_chain ? change_chain(s, slot, node, n) : ATLAS_OK;
	if (status == ATLAS_OK && q->n_chain > 0)
		status = copy_start(s, slot);
	if (status != ATLAS_OK)
		return session_failed(s, status);
	q->read = s->reused[slot] = q->n_chain * s->graph->page;
	s->n_queried += q->n;
	s->n_hit += q->read;
	return ATLAS_OK;
}

/* Keeping ------------------------------------------------------------------------------------------------ */

/* Is a snapshot taken where the prompt was read up to this position? A long prompt leaves most snapshots to others. */
static bool is_cut(const AtlasSession *s, const Sequence *q, int position)
{
	enum { LEAST = 4, EACH = 32 /* pages */ };
	const int page = s->graph->page, share = s->prefix->n_snapshots / 4 + 1, begun = s->reused[q - s->slots];
	int each = EACH * page;
	while (q->n / each > share)
		each *= 2;
	return position - begun >= LEAST * page && position % s->cell == 0 && position < q->n &&
		(position == (q->n - larger(q->n_tail, 1)) / s->cell * s->cell || position == q->branch ||
			position % each == 0);
}

int session_until_cut(const AtlasSession *s, const Sequence *q, int count)
{
	if (!s->prefix || !s->prefix->n_snapshots || !q->leaves_prefix)
		return count;
	for (int position = (q->read / s->cell + 1) * s->cell; position < q->read + count; position += s->cell)
		if (is_cut(s, q, position))
			return position - q->read;
	return count;
}

/* The states are those of the sequence's last node, whose pages are kept. */
static AtlasStatus keep_states(AtlasSession *s, int slot)
{
	const Sequence *q = &s->slots[slot];
	Prefix *x = s->prefix;
	if (!x->n_snapshots || !is_cut(s, q, q->read) || q->n_chain * x->page != q->read ||
		x->nodes[q->node].snapshot >= 0)
		return ATLAS_OK;
	const int snapshot = prefix_take_snapshot(x, q->node, q->read);
	return snapshot < 0 ? ATLAS_OK : s->device->ops->keep_states(s->device, slot, q->read, snapshot, false);
}

/* The page that becomes the node of the sequence's page i; -1: none is free for a copy. */
static AtlasStatus node_page(AtlasSession *s, const Sequence *q, int i, int *page)
{
	*page = q->pages[i];
	if (i >= s->own_pages)
		return ATLAS_OK;
	*page = session_available(s) > session_pages_to_come(s) ? session_take_page(s) : -1;
	return *page < 0 ? ATLAS_OK : s->device->ops->clone_page(s->device, q->pages[i], *page);
}

AtlasStatus session_keep_prompt(AtlasSession *s, int slot)
{
	Sequence *q = &s->slots[slot];
	Prefix *x = s->prefix;
	if (!q->leaves_prefix)
		return ATLAS_OK;
	for (int i; i = q->n_chain, (i + 1) * x->page <= q->read && (i + 1) * x->page + x->ahead <= q->n;) {
		const int parent = i ? q->node : -1;
		const int32_t *tokens = q->tokens + i * x->page;
		int node = prefix_child(x, parent, q->salt, tokens);
		if (node < 0) {
			const AtlasStatus status = node_page(s, q, i, &node);
			if (status != ATLAS_OK)
				return session_failed(s, status);
			if (node < 0)
				return ATLAS_OK;
			prefix_add(x, node, parent, q->salt, tokens);
		}
		prefix_pin_one(x, node);
		q->node = node;
		q->n_chain++;
	}
	const AtlasStatus status = keep_states(s, slot);
	return status == ATLAS_OK ? status : session_failed(s, status);
}

/* Tokens that two prompts have in common from their first on. */
static int common(const Sequence *a, const Sequence *b)
{
	const int n = smaller(a->n, b->n);
	int i = 0;
	while (i < n && a->tokens[i] == b->tokens[i])
		i++;
	return i;
}

/* Where a prompt with `most` tokens in common may begin once the other's step is done; 0: nowhere. */
static int start_after(const AtlasSession *s, const Sequence *other, int most)
{
	most = smaller(most, other->read);
	if (s->prefix->n_snapshots)
		return most == other->read && is_cut(s, other, most) ? most : 0;
	return most / s->cell * s->cell;
}

bool session_is_coming(const AtlasSession *s, int slot, const StepSize *size)
{
	const Sequence *q = &s->slots[slot];
	int node, known, start = 0;
	if (!q->uses_prefix || q->is_begun)
		return false;
	for (int i = 0; i < size->segs; i++) {
		const Sequence *o = &s->slots[s->device->io.seg[i * 4 + 2]];
		if (o->state != WAITING || !o->leaves_prefix || memcmp(o->salt, q->salt, sizeof q->salt) != 0)
			continue;
		start = larger(start, start_after(s, o, smaller(common(o, q) - s->prefix->ahead, q->n - 1)));
	}
	return start > 0 &&
		start > session_find_prefix(s, q->salt, q->tokens, q->n, &node, &known) * s->graph->page;
}
