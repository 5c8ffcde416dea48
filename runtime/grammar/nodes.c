/* nodes.c - grammars in the making, and which of their parts match anything. */
#include "runtime/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 1 << 20, MOST_STEPS = 90000000 /* of a compilation: 100 to 450 ms */ };

Grammar *nodes_open(void)
{
	Grammar *g = calloc(1, sizeof *g);
	if (!g)
		return NULL;
	atomic_init(&g->owners, 1);
	pthread_mutex_init(&g->atoms.lock, NULL);
	g->effort = (Effort){.left = MOST_STEPS, .at = -1};
	node_add(g, (Node){.kind = NODE_NONE});
	node_add(g, (Node){.kind = NODE_EMPTY});
	if (!lexeme_of_string(&g->string, &g->effort)) {
		grammar_free(g);
		return NULL;
	}
	return g;
}

Grammar *grammar_keep(Grammar *g)
{
	atomic_fetch_add(&g->owners, 1);
	return g;
}

void grammar_free(Grammar *g)
{
	if (!g || atomic_fetch_sub(&g->owners, 1) > 1)
		return;
	atoms_free(&g->atoms);
	for (uint32_t i = 0; i < g->n_lexemes; i++)
		lexeme_free(&g->lexemes[i]);
	lexeme_free(&g->string);
	free(g->nodes);
	free(g->children);
	free(g->bytes);
	free(g->lexemes);
	free(g);
}

uint32_t node_add(Grammar *g, Node node)
{
	g->effort.left -= 20;
	if (g->n_nodes >= MOST_NODES || g->effort.left < 0)
		return effort_refuse(&g->effort, "it is too large", -1);
	if (!GROW(&g->effort, g->nodes, g->nodes_cap, g->n_nodes + 1))
		return NONE;
	g->nodes[g->n_nodes] = node;
	return g->n_nodes++;
}

uint32_t node_text(Grammar *g, const char *text, size_t n)
{
	const uint32_t at = g->n_bytes;
	if (n == 0)
		return EMPTY;
	if (n > 1 << 20 || at > 1 << 26)
		return effort_refuse(&g->effort, "it is too large", -1);
	if (!GROW(&g->effort, g->bytes, g->bytes_cap, at + (uint32_t)n))
		return NONE;
	memcpy(g->bytes + at, text, n);
	g->n_bytes += (uint32_t)n;
	return node_add(g, (Node){.kind = NODE_TEXT, .a = at, .b = (uint32_t)n});
}

uint32_t node_lexeme(Grammar *g, Lexeme *l)
{
	if (lexeme_is_empty(l) || !lexeme_compare(l, &g->string, &g->effort) ||
		!GROW(&g->effort, g->lexemes, g->lexemes_cap, g->n_lexemes + 1)) {
		lexeme_free(l);
		return NONE;
	}
	g->lexemes[g->n_lexemes] = *l;
	*l = (Lexeme){0};
	return node_add(g, (Node){.kind = NODE_LEXEME, .a = g->n_lexemes++});
}

uint32_t node_counted(Grammar *g, Lexeme *l, uint32_t lo, uint32_t hi)
{
	const uint32_t node = node_lexeme(g, l);
	return node == NONE ? NONE : node_add(g, (Node){NODE_COUNTED, g->nodes[node].a, lo, hi});
}

uint32_t node_all(Grammar *g, NodeKind kind, const uint32_t *children, uint32_t n)
{
	const uint32_t first = g->n_children;
	if (n == 1)
		return children[0];
	if (!GROW(&g->effort, g->children, g->children_cap, first + n + 1))
		return NONE;
	if (n)
		memcpy(g->children + first, children, n * sizeof *children);
	g->n_children += n;
	return node_add(g, (Node){.kind = (uint8_t)kind, .a = first, .b = n});
}

uint32_t node_repeat(Grammar *g, uint32_t node, uint32_t lo, uint32_t hi)
{
	if (hi == 0)
		return EMPTY;
	return lo == 1 && hi == 1 ? node : node_add(g, (Node){.kind = NODE_REPEAT, .a = node, .b = lo, .c = hi});
}

uint32_t node_rule(Grammar *g) { return node_add(g, (Node){.kind = NODE_RULE, .a = NONE}); }

/* Does something match it, as far as is known of its parts? */
static bool matches(const Grammar *g, const Node *o, const bool *known)
{
	uint32_t n = 0;
	switch ((NodeKind)o->kind) {
	case NODE_NONE: return false;
	case NODE_EMPTY: case NODE_FRESH: case NODE_TEXT: case NODE_LEXEME: return true;
	case NODE_STRING: return o->a <= o->b;
	case NODE_COUNTED: return o->b <= o->c && lexeme_can_have(&g->lexemes[o->a], 1, o->b, o->c);
	case NODE_REPEAT: return o->b <= o->c && (o->b == 0 || known[o->a]);
	case NODE_RULE: return known[o->a];
	case NODE_LIST: case NODE_EITHER:
		for (uint32_t i = 0; i < o->b; i++)
			n += known[g->children[o->a + i]];
		return o->kind == NODE_LIST ? n == o->b : n > 0;
	}
	return false;
}

void nodes_prune(Grammar *g)
{
	bool *known = calloc(g->n_nodes, sizeof *known), changed = true;
	if (!known) {
		effort_refuse(&g->effort, "there is no memory", -1);
		return;
	}
	for (int pass = 0; changed; pass++) {
		changed = false;
		g->effort.left -= (int64_t)g->n_nodes * 4;
		if (g->effort.left < 0 && !effort_refuse(&g->effort, "it takes too long to compile", -1))
			break;
		for (uint32_t k = 0; k < g->n_nodes; k++) {
			const uint32_t i = pass % 2 ? k : g->n_nodes - 1 - k;
			if (!known[i] && matches(g, &g->nodes[i], known))
				changed = known[i] = true;
		}
	}
	for (uint32_t i = 0; i < g->n_nodes; i++)
		if (!known[i])
			g->nodes[i].kind = NODE_NONE;
	free(known);
}
