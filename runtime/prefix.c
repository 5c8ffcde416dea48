/* prefix.c - see prefix.h. */
#include "runtime/prefix.h"

#include <stdlib.h>
#include <string.h>

Prefix *prefix_open(int n_pages, int page, int ahead, int n_snapshots)
{
	Prefix *x = calloc(1, sizeof *x);
	if (!x)
		return NULL;
	*x = (Prefix){.page = page, .ahead = ahead, .n_pages = n_pages, .oldest = -1, .newest = -1,
		.n_snapshots = n_snapshots};
	while (x->mask < (uint32_t)n_pages)
		x->mask = 2 * x->mask + 1;
	x->nodes = calloc((size_t)n_pages, sizeof *x->nodes);
	x->tokens = malloc(sizeof *x->tokens * (size_t)n_pages * (size_t)(page + ahead));
	x->buckets = malloc(sizeof *x->buckets * ((size_t)x->mask + 1));
	x->snapshots = calloc((size_t)n_snapshots + 1, sizeof *x->snapshots);
	if (!x->nodes || !x->tokens || !x->buckets || !x->snapshots) {
		prefix_close(x);
		return NULL;
	}
	memset(x->buckets, 0xff, sizeof *x->buckets * ((size_t)x->mask + 1));
	for (int i = 0; i < n_snapshots; i++)
		x->snapshots[i].node = -1;
	return x;
}

void prefix_close(Prefix *x)
{
	if (!x)
		return;
	free(x->nodes);
	free(x->tokens);
	free(x->buckets);
	free(x->snapshots);
	free(x);
}

static int32_t *tokens_of(const Prefix *x, int node)
{
	return x->tokens + (size_t)node * (size_t)(x->page + x->ahead);
}

static size_t token_bytes(const Prefix *x) { return sizeof *x->tokens * (size_t)(x->page + x->ahead); }

static uint32_t mix(uint32_t hash, uint32_t word)
{
	hash = (hash ^ word) * 0x9E3779B1u;
	return hash ^ hash >> 15;
}

static uint32_t hash_of(const Prefix *x, int parent, const uint8_t *salt, const int32_t *tokens)
{
	uint32_t hash = parent >= 0 ? x->nodes[parent].hash : 0x811c9dc5u;
	for (int i = 0; i < PREFIX_SALT_BYTES && parent < 0; i++)
		hash = mix(hash, salt[i]);
	for (int i = 0; i < x->page + x->ahead; i++)
		hash = mix(hash, (uint32_t)tokens[i]);
	return hash;
}

int prefix_child(const Prefix *x, int parent, const uint8_t *salt, const int32_t *tokens)
{
	const uint32_t hash = hash_of(x, parent, salt, tokens);
	for (int i = x->buckets[hash & x->mask]; i >= 0; i = x->nodes[i].next) {
		const PrefixNode *n = &x->nodes[i];
		if (n->hash == hash && n->parent == parent && memcmp(tokens_of(x, i), tokens, token_bytes(x)) == 0 &&
			(parent >= 0 || memcmp(n->salt, salt, PREFIX_SALT_BYTES) == 0))
			return i;
	}
	return -1;
}

/* The list of leaves without a pin, by `used`. */

static bool is_listed(const Prefix *x, int node)
{
	const PrefixNode *n = &x->nodes[node];
	return n->is_there && n->pins == 0 && n->children == 0;
}

static void unlist(Prefix *x, int node)
{
	PrefixNode *n = &x->nodes[node];
	*(n->older >= 0 ? &x->nodes[n->older].newer : &x->oldest) = n->newer;
	*(n->newer >= 0 ? &x->nodes[n->newer].older : &x->newest) = n->older;
}

/* Of a node that was in use a moment ago, and of one whose last child goes, which was among the oldest: its place is
 * near one end. */
static void list(Prefix *x, int node, bool is_old)
{
	PrefixNode *n = &x->nodes[node];
	int after = is_old ? -1 : x->newest;
	while (!is_old && after >= 0 && x->nodes[after].used > n->used)
		after = x->nodes[after].older;
	for (int i = x->oldest; is_old && i >= 0 && x->nodes[i].used < n->used; i = x->nodes[i].newer)
		after = i;
	n->older = after;
	n->newer = after >= 0 ? x->nodes[after].newer : x->oldest;
	*(n->older >= 0 ? &x->nodes[n->older].newer : &x->oldest) = node;
	*(n->newer >= 0 ? &x->nodes[n->newer].older : &x->newest) = node;
}

void prefix_add(Prefix *x, int node, int parent, const uint8_t *salt, const int32_t *tokens)
{
	PrefixNode *n = &x->nodes[node];
	const uint32_t hash = hash_of(x, parent, salt, tokens);
	*n = (PrefixNode){.parent = parent, .next = x->buckets[hash & x->mask], .snapshot = -1, .hash = hash,
		.used = ++x->clock, .is_there = true};
	x->buckets[hash & x->mask] = node;
	memcpy(tokens_of(x, node), tokens, token_bytes(x));
	memcpy(n->salt, salt, PREFIX_SALT_BYTES);
	if (parent >= 0 && is_listed(x, parent))
		unlist(x, parent);
	if (parent >= 0)
		x->nodes[parent].children++;
	list(x, node, false);
	x->n++;
	x->n_unpinned++;
}

void prefix_remove(Prefix *x, int node)
{
	PrefixNode *n = &x->nodes[node];
	int32_t *at = &x->buckets[n->hash & x->mask];
	while (*at != node)
		at = &x->nodes[*at].next;
	*at = n->next;
	if (is_listed(x, node))
		unlist(x, node);
	if (n->snapshot >= 0) {
		x->snapshots[n->snapshot].node = -1;
		x->snapshots[n->snapshot].used = 0;
	}
	x->n--;
	x->n_unpinned -= n->pins == 0;
	n->is_there = false;
	if (n->parent < 0)
		return;
	x->nodes[n->parent].children--;
	if (is_listed(x, n->parent))
		list(x, n->parent, true);
}

void prefix_pin_one(Prefix *x, int node)
{
	PrefixNode *n = &x->nodes[node];
	if (is_listed(x, node))
		unlist(x, node);
	x->n_unpinned -= n->pins++ == 0;
	n->used = ++x->clock;
}

void prefix_pin(Prefix *x, int node)
{
	for (; node >= 0; node = x->nodes[node].parent)
		prefix_pin_one(x, node);
}

void prefix_unpin(Prefix *x, int node)
{
	for (; node >= 0; node = x->nodes[node].parent) {
		PrefixNode *n = &x->nodes[node];
		x->n_unpinned += --n->pins == 0;
		n->used = ++x->clock;
		if (is_listed(x, node))
			list(x, node, false);
	}
}

int prefix_evict(Prefix *x)
{
	const int node = x->oldest;
	if (node < 0)
		return -1;
	prefix_remove(x, node);
	return node;
}

int prefix_take_snapshot(Prefix *x, int node, int position)
{
	int best = -1;
	for (int i = 0; i < x->n_snapshots; i++)
		if (x->snapshots[i].pins == 0 && (best < 0 || x->snapshots[i].used < x->snapshots[best].used))
			best = i;
	if (best < 0)
		return -1;
	if (x->snapshots[best].node >= 0)
		x->nodes[x->snapshots[best].node].snapshot = -1;
	x->snapshots[best] = (PrefixSnapshot){.node = node, .position = position, .used = ++x->clock};
	x->nodes[node].snapshot = best;
	return best;
}

int prefix_snapshots_used(const Prefix *x)
{
	int n = 0;
	for (int i = 0; i < x->n_snapshots; i++)
		n += x->snapshots[i].node >= 0;
	return n;
}
