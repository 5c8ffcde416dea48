/* graph_of.c - the graph of a checkpoint, for programs that print what became of its tensors. */
#include "tests/reading/graph_of.h"
#include "compiler/read/read_model.h"

#include <stdio.h>

bool graph_of(Compile *c, const char *folder)
{
	*c = (Compile){.cmd = {.model_dir = folder, .targets = {"sm_90a"}, .n_targets = 1,
		.embed_weights = true}};
	c->diags.arena = &c->arena;
	read_config(c);
	read_options(c);
	read_weights(c);
	c->model.n_tokens = c->model.config.vocab;
	if (!c->diags.n_errors)
		build_graph(c);
	for (int i = 0; i < c->diags.n; i++)
		fprintf(stderr, "%s[%s]: %s\n", c->diags.list[i].is_note ? "note" : "error", code_name(c->diags.list[i].code),
			c->diags.list[i].text);
	if (c->diags.n_errors)
		return false;
	check_graph(c);
	return true;
}

void free_graph(Compile *c)
{
	arena_release(&c->scratch);
	arena_release(&c->arena);
}
