/* reasoning.c - see reasoning.h. */
#include "runtime/serve/reasoning.h"

#include <string.h>

/* <think> last: templates with marks of their own may take those out of messages of other models. */
static const Reasoning all[] = {
	{"<|channel|>analysis<|message|>", "<|end|>", true},
	{"<|channel>thought", "<channel|>", false},
	{"<seed:think>", "</seed:think>", false},
	{"[THINK]", "[/THINK]", false},
	{"<|START_THINKING|>", "<|END_THINKING|>", false},
	{"<thought>", "</thought>", false},
	{"<longcat_think>", "</longcat_think>", false},
	{"<mm:think>", "</mm:think>", false},
	{"<|think:start|>", "<|think:end|>", false},
	{"<think>", "</think>", false},
};

static bool has(const char *text, size_t n, const char *mark) { return memmem(text, n, mark, strlen(mark)) != NULL; }

const Reasoning *reasoning_of(const char *text, size_t n)
{
	const size_t n_all = sizeof all / sizeof all[0];
	for (size_t i = 0; i + 1 < n_all; i++)
		if (has(text, n, all[i].opener) && has(text, n, all[i].closer))
			return &all[i];
	/* A template may write the end of it alone. */
	return has(text, n, all[n_all - 1].closer) ? &all[n_all - 1] : NULL;
}

const Reasoning *reasoning_of_channels(void) { return &all[0]; }
