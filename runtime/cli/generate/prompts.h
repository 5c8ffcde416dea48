/* prompts.h - what `atlas run` is asked for: one prompt from the command line, or a file of them.
 *
 * A file has a prompt a line. Lines of a file *.jsonl, or with --input jsonl, are objects:
 *
 *	{"prompt": "In the beginning", "max_new": 20, "temperature": 0.8, "seed": 7, "stop": ["\n"], "id": "genesis"}
 *	{"tokens": [1, 17, 4], "id": 2}
 *
 * One of prompt and tokens; every other key is optional and goes before the option of the command line: max_new,
 * temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, seed, stop (a string or
 * a list). id is any string or integer: the answer repeats it.
 */
#ifndef ATLAS_PROMPTS_H
#define ATLAS_PROMPTS_H

#include "runtime/cli/cli.h"

typedef struct Prompt {
	const char *text; /* [bytes] UTF-8; NULL: tokens were given */
	size_t bytes;
	Tokens tokens;    /* those given; encoding fills them otherwise */
	int line;         /* in the file, from 1; 0 = of the command line */
	SamplingArgs sampling;
	const char *stop[MAX_STOPS];
	int n_stop;
	const char *id;   /* as JSON; NULL = none */
} Prompt;

typedef struct Prompts { /* zeroed = empty; prompts_free */
	Prompt *at;
	int n;
	bool are_json;    /* answers are JSON lines too, with --json */
	char *file;       /* contents */
	void **parsed;    /* [n] objects of jansson, which texts and ids point into */
	char **ids;       /* [n] */
} Prompts;

/* 0, or the exit code after every mistake was printed with its place. An empty line is skipped, with a note. */
int prompts_read(const Args *args, Prompts *prompts);
/* "FILE:LINE", or "the prompt". Returns text. */
const char *prompt_place(const Args *args, const Prompt *p, char text[300]);
void prompts_free(Prompts *prompts);

#endif
