/* plan_seeds.c - small plans of the format as it is now, for fuzzing to start from (scripts/fuzz.sh).
 *
 *   plan_seeds FOLDER
 */
#include "tests/unit/made_plan.h"
#include "tests/unit/synthetic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *name, *model_type; int candidates; bool embed, random; } seeds[] = {
	{"sound-llama", "llama", 0, false, false}, {"sound-qwen3", "qwen3", 1, false, false},
	{"sound-qwen2", "qwen2", 0, false, true},
};

/* Leaves in the ledger what was chosen, with its contracts: a fifth of the bytes. */
static void shorten(Artifact *a)
{
	int kept = 0;
	for (int i = 0; i < a->n_ledger[0]; i++) {
		Slot *s = &a->ledger[0][i];
		int chosen = 0;
		while (s->candidates[chosen].verdict != CHOSEN)
			chosen++;
		s->candidates += chosen;
		s->n_candidates = 1;
	}
	for (int i = 0; i < a->n_contracts; i++) {
		bool used = false;
		for (int k = 0; k < a->n_ledger[0] && !used; k++)
			used = strcmp(a->ledger[0][k].candidates->kernel, a->contracts[i].name) == 0 &&
				a->ledger[0][k].op == a->contracts[i].op;
		if (used)
			a->contracts[kept++] = a->contracts[i];
	}
	a->n_contracts = kept;
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return EXIT_USAGE;
	for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
		MadePlan m = {0};
		char path[512];
		synthetic_model(&m.c, seeds[i].model_type);
		m.c.model.options.slots = m.c.model.options.n_decode = 1;
		m.c.cmd.candidates = seeds[i].candidates;
		Option options[] = {{"kv.page", "16"}, {"weights.random_seed", "1"}};
		if ((m.c.cmd.random_weights = seeds[i].random)) {
			m.c.model.tensors.n = 0;
			m.c.model.config.dtype = DT_bf16;
		}
		make_plan_of_model(&m);
		if (seeds[i].random) {
			m.artifact.options = options;
			m.artifact.n_options = 2;
		}
		if (!seeds[i].candidates) /* which are other entries of the ledger than the chosen */
			shorten(&m.artifact);
		write_made(&m, seeds[i].embed);
		snprintf(path, sizeof path, "%s/%s", argv[1], seeds[i].name);
		FILE *from = fopen(m.path, "rb"), *to = fopen(path, "wb");
		if (!from || !to)
			return EXIT_ENVIRONMENT;
		for (int c; (c = getc(from)) != EOF;)
			putc(c, to);
		if (ferror(from) || fclose(to) != 0)
			return EXIT_ENVIRONMENT;
		fclose(from);
		free_made(&m);
	}
	return EXIT_OK;
}
