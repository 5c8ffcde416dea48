/* graph_of.h - the graph of a checkpoint, for programs that print what became of its tensors. */
#ifndef TESTS_GRAPH_OF_H
#define TESTS_GRAPH_OF_H

#include "compiler/ir.h"

/* Runs the reading passes and build-graph on the folder; diagnostics go to stderr, one a line. False with an error
 * among them. No tokenizer is read: the vocabulary is config.json's. Release *c by free_graph. */
bool graph_of(Compile *c, const char *folder);
void free_graph(Compile *c);

#endif
