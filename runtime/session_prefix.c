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
 * The first page of a sequence is never shared: a step after the sequence's end writes to its first positions
 * (session_flight.c), and steps are launched ahead. So the index has a copy of that page, and who uses it gets another.
 * All else that a running sequence writes is after its prompt; where a head drafts, its keys of the prompt's last
 * position as well, of which the page is no node, since the token after it is not known (prefix.h: ahead).
 *
 * A page is free, or of one sequence alone, or a node. Sequences that need pages get those of nodes without a pin.
 * The copy of a first page is one page more than without an index: who finds none takes back what it alone pins.
 */
#include "artifacts/op_table.h"
#include "runtime/session_handle.h"

#include <string.h>

static int smaller(int a, int b) { return a < b ? a : b; }
static int larger(int a, int b) { return a > b ? a : b; }

const char *session_against_prefixes(const AtlasPlan *plan)
{
	const Graph *g = &plan->artifact.graph;
	if (g->prompt_grid >= g->max_context)
		return "no prompt of the plan is cut, and a prefix ends where one may be";
	for (int i = 0; i < g->n_ops; i++)
		if (g->ops[i].kind == OP_zero_slots)
			return "the model has recurrent states, which pages of keys and values do not hold";
	return NULL;
}

AtlasStatus session_keep_prefixes(AtlasSession *s)
{
	const Graph *g = s->graph;
	const int rows = g->verify_rows ? g->verify_rows : 1;
	const bool has_head = g->verify_rows && !g->ngram_max;
	s->own_pages = (rows + g->page - 1) / g->page;
	s->prefix = prefix_open(g->pages, g->page, has_head);
	return s->prefix ? ATLAS_OK : error_set(&s->error, ATLAS_NO_MEMORY, "no memory for an index of %d pages", g->pages);
}

/* May a prompt begin at this position, which is the end of the node's page? */
static bool is_start(const AtlasSession *s, int position) { return position % s->graph->prompt_grid == 0; }

int session_find_prefix(const AtlasSession *s, const uint8_t *salt, const int32_t *tokens, int n, int *node)
{
	const int page = s->graph->page;
	int best = 0, at = -1;
	*node = -1;
	for (int i = 0; (i + 1) * page < n; i++) {
		at = prefix_child(s->prefix, at, salt, tokens + i * page);
		if (at < 0)
			break;
		if (!is_start(s, (i + 1) * page))
			continue;
		best = i + 1;
		*node = at;
	}
	return best;
}

void session_enter_chain(AtlasSession *s, Sequence *q, int from, int node, int n)
{
	q->node = node;
	q->n_chain = n;
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

/* The sequence's own first pages, and what its slot knows of a prompt's tokens. */
static AtlasStatus copy_start(AtlasSession *s, int slot)
{
	const Sequence *q = &s->slots[slot];
	const DeviceOps *ops = s->device->ops;
	AtlasStatus status = ATLAS_OK;
	int node = q->node;
	for (int i = q->n_chain; i-- > 0 && status == ATLAS_OK; node = s->prefix->nodes[node].parent)
		if (i < s->own_pages)
			status = ops->clone_page(s->device, node, q->pages[i]);
	if (status == ATLAS_OK && q->has_repetition)
		status = ops->note_prompt(s->device, slot, q->tokens, q->n_chain * s->graph->page);
	return status;
}

AtlasStatus session_begin_prompt(AtlasSession *s, int slot)
{
	Sequence *q = &s->slots[slot];
	int node;
	q->is_begun = true;
	if (!q->uses_prefix)
		return ATLAS_OK;
	const int n = session_find_prefix(s, q->salt, q->tokens, q->n, &node);
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
	return ATLAS_OK;
}

/* Tokens that two prompts begin with, both. */
static int common(const Sequence *a, const Sequence *b)
{
	const int n = smaller(a->n, b->n);
	int i = 0;
	while (i < n && a->tokens[i] == b->tokens[i])
		i++;
	return i;
}

bool session_is_coming(const AtlasSession *s, int slot, const StepSize *size)
{
	const Sequence *q = &s->slots[slot];
	int node;
	if (!q->uses_prefix || q->is_begun)
		return false;
	const int here = session_find_prefix(s, q->salt, q->tokens, q->n, &node) * s->graph->page;
	for (int i = 0; i < size->segs; i++) {
		const Sequence *o = &s->slots[s->device->io.seg[i * 4 + 2]];
		if (o->state != WAITING || !o->leaves_prefix || memcmp(o->salt, q->salt, sizeof q->salt) != 0)
			continue;
		int most = smaller(smaller(common(o, q) - s->prefix->ahead, o->read), q->n - 1) / s->graph->page;
		while (most > 0 && !is_start(s, most * s->graph->page))
			most--;
		if (most * s->graph->page > here)
			return true;
	}
	return false;
}
