/* prefix.h - which pages of the pool hold the start of a prompt that may come again.
 *
 * A node is a page of the pool with `page` tokens of prompts, reached from the page before it by these tokens: so a
 * chain of nodes from a root is a prefix, and the index is a tree. A root has the salt of its prompts as well, so that
 * prompts of different salts have nothing in common. Tokens and salts themselves are compared; hashes only find them.
 * Where a head drafts, its keys of a page's last position are made of the token after it as well (`ahead`), which is
 * part of the page then.
 *
 * A sequence that reads a chain pins it, from its last node to the root. Nodes without a pin give their pages back when
 * these are needed, leaves first, in the order in which they were last in use. The index knows nothing of sessions and
 * devices.
 */
#ifndef ATLAS_PREFIX_H
#define ATLAS_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

enum { PREFIX_SALT_BYTES = 32 };

typedef struct PrefixNode {
	int parent;       /* -1 = a root */
	int next;         /* in its bucket, -1 = the last */
	int older, newer; /* in the list of leaves without a pin; -1 = the end */
	int children, pins;
	int snapshot;     /* of the recurrent states after its tokens; -1 = there is none */
	uint32_t hash;    /* of all tokens up to its last one, and the salt */
	int64_t used;     /* when it was last pinned or unpinned */
	bool is_there;    /* the page is a node */
	uint8_t salt[PREFIX_SALT_BYTES]; /* of roots */
} PrefixNode;

typedef struct PrefixSnapshot {
	int node;         /* -1 = it is free */
	int position;     /* tokens that the states have seen */
	int pins;         /* sequences that will go on from it */
	int64_t used;     /* when it was last taken or gone on from; 0 = it is free */
} PrefixSnapshot;

typedef struct Prefix {
	int page, ahead;  /* tokens of a page; after it, 0 or 1 */
	PrefixNode *nodes; int n_pages;  /* [n_pages] of the pool: a node's number is its page's */
	int32_t *tokens;  /* [n_pages, page + ahead] */
	int32_t *buckets; uint32_t mask; /* [mask + 1] */
	PrefixSnapshot *snapshots; int n_snapshots; /* [n_snapshots] */
	int oldest, newest;
	int n, n_unpinned; /* nodes; of them those without a pin */
	int64_t clock, n_evicted; /* pages given back because they were needed */
} Prefix;

/* NULL: there is no memory. */
Prefix *prefix_open(int n_pages, int page, int ahead, int n_snapshots);
void prefix_close(Prefix *x); /* NULL is fine */

/* The node after `parent` (-1: a root) of tokens [page + ahead]; -1 = there is none. salt [PREFIX_SALT_BYTES]. */
int prefix_child(const Prefix *x, int parent, const uint8_t *salt, const int32_t *tokens);
/* Makes a page that, with its tokens, is no node yet one, without a pin. */
void prefix_add(Prefix *x, int node, int parent, const uint8_t *salt, const int32_t *tokens);
/* A leaf of which the only pin is the caller's is no node any more, and its snapshot is free. */
void prefix_remove(Prefix *x, int node);
/* The chain that ends with the node; prefix_pin_one: the node alone, where its parent's chain is pinned already. */
void prefix_pin(Prefix *x, int node);
void prefix_pin_one(Prefix *x, int node);
void prefix_unpin(Prefix *x, int node);
/* The page of the leaf that was not in use for longest, which is no node any more; -1: all nodes are pinned. */
int prefix_evict(Prefix *x);

/* A snapshot for the node, which has none, after that many tokens: a free one, or that which was not in use for
 * longest; -1: all are pinned. */
int prefix_take_snapshot(Prefix *x, int node, int position);
int prefix_snapshots_used(const Prefix *x);

#endif
