/* estimate.c - the items of the arenas that plan_memory has laid out.
 *
 * The state arena is told apart by what its tensors are: keys and values of all layers, and what slots keep besides.
 * Padding and the counters of launches, which belong to no tensor of the graph, are the last item, so that the sum is
 * exactly what the runtime allocates.
 */
#include "compiler/estimate.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

typedef struct Item { const char *name, *where; int64_t bytes; } Item;
enum { MAX_ITEMS = 8 };

static int64_t state_bytes(const Graph *g, const char *prefix)
{
	int64_t sum = 0;
	for (int i = 0; i < g->n_tensors; i++) {
		const Tensor *t = &g->tensors[i];
		int64_t n = 1;
		if (t->role != ROLE_STATE || strncmp(t->name, prefix, strlen(prefix)) != 0)
			continue;
		for (int d = 0; d < t->n_dims; d++)
			n *= t->shape[d];
		sum += dtype_span(t->dtype, n);
	}
	return sum;
}

static int larger_first(const void *a, const void *b)
{
	const Item *x = a, *y = b;
	return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : strcmp(x->name, y->name);
}

static int list_items(const Graph *g, const TargetPlan *p, Item items[MAX_ITEMS])
{
	const int64_t *arena = p->arena_bytes, kv = state_bytes(g, "kv"), all = state_bytes(g, "");
	const Item list[] = {{"weights", "device", arena[ARENA_WEIGHTS]}, {"keys and values", "device", kv},
		{"state of slots", "device", all - kv}, {"padding and counters", "device", arena[ARENA_STATE] - all},
		{"scratch", "device", arena[ARENA_SCRATCH]}, {"inputs", "host", arena[ARENA_IO]},
		{"results", "host", arena[ARENA_RING]}};
	memcpy(items, list, sizeof list);
	int n = sizeof list / sizeof list[0];
	qsort(items, (size_t)n, sizeof *items, larger_first);
	return n;
}

static json_t *json_of(const TargetPlan *p, const Item *items, int n, int64_t device)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "item", items[i].name, "where", items[i].where,
			"bytes", (json_int_t)items[i].bytes));
	return json_pack("{s:s, s:I, s:o}", "target", p->target, "device_bytes", (json_int_t)device, "items", list);
}

void estimate_memory(Compile *c, bool json, FILE *out)
{
	json_t *targets = json_array();
	for (int w = 0; w < c->work.n; w++) {
		const TargetPlan *p = &c->work.at[w].plan;
		Item items[MAX_ITEMS];
		int n = list_items(&c->graph, p, items);
		int64_t device = 0;
		for (int i = 0; i < n; i++)
			device += strcmp(items[i].where, "device") == 0 ? items[i].bytes : 0;
		if (json)
			json_array_append_new(targets, json_of(p, items, n, device));
		else
			fprintf(out, "%s: %.1f MiB on the device\n", p->target, (double)device / (1 << 20));
		for (int i = 0; !json && i < n; i++)
			fprintf(out, "  %-21s %-6s %16lld bytes\n", items[i].name, items[i].where, (long long)items[i].bytes);
	}
	json_t *root = json_pack("{s:i, s:o}", "schema_version", 1, "targets", targets);
	if (json) {
		json_dumpf(root, out, JSON_INDENT(2));
		fputc('\n', out);
	}
	json_decref(root);
}
