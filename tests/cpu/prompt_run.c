/* prompt_run.c - how fast prompts of many lengths are read, one behind the other: what the grid on which they are cut
 * costs. For tests/gpu/run.sh.
 *
 *   prompt_run PLAN cpu|cuda MEDIAN SIGMA PROMPTS SEED
 *
 * Lengths are lognormal, from 16 to what the context holds; slots are filled again as they get free, each answer is one
 * token. JSON on stdout: tokens, steps, the share of rows of the largest bucket that held none, tokens a second.
 */
#include "runtime/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_EVENTS = 1024 * PLAN_MAX_VERIFY };

static void need(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "prompt_run: %s\n", what);
		exit(2);
	}
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double uniform(uint64_t *random)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return ((double)(*random >> 11) + 0.5) / 9007199254740992.0;
}

static int some_length(uint64_t *random, double median, double sigma, int most)
{
	const double x = sqrt(-2 * log(uniform(random))) * cos(6.283185307179586 * uniform(random));
	const double n = median * exp(sigma * x);
	return n < 16 ? 16 : n > most ? most : (int)n;
}

int main(int argc, char **argv)
{
	static AtlasEvent events[MAX_EVENTS];
	AtlasError error = {0};
	AtlasPlan *plan;
	AtlasSession *session;
	AtlasPlanInfo info = {.struct_size = sizeof info};
	AtlasSessionInfo device = {.struct_size = sizeof device};
	need(argc == 7, "usage: prompt_run PLAN cpu|cuda MEDIAN SIGMA PROMPTS SEED");
	need(atlas_plan_open(argv[1], &(AtlasPlanOptions){.struct_size = sizeof(AtlasPlanOptions),
		.verify = ATLAS_VERIFY_OFF}, &plan, &error) == ATLAS_OK, error.text);
	atlas_plan_info(plan, &info);
	const AtlasSessionOptions options = {.struct_size = sizeof options, .device = argv[2],
		.speculate = ATLAS_SPECULATE_OFF};
	need(atlas_session_open(plan, &options, &session, &error) == ATLAS_OK, error.text);
	atlas_session_info(session, &device);
	const double median = atof(argv[3]), sigma = atof(argv[4]);
	const int n = atoi(argv[5]);
	int32_t *tokens = malloc(sizeof *tokens * (size_t)info.max_context);
	uint64_t random = strtoull(argv[6], NULL, 10);
	need(tokens != NULL, "no memory");
	for (int i = 0; i < info.max_context; i++)
		tokens[i] = 3 + (int)(uniform(&random) * (info.vocab - 3));
	long read = 0, steps = 0;
	double start = 0;
	for (int started = -8, length = 0, made, slot; started < n || atlas_active(session);) { /* eight are not counted */
		while (started < n && atlas_active(session) < (started < 0 ? 1 : info.slots)) {
			if (length == 0)
				length = some_length(&random, median, sigma, info.max_context - 1);
			const AtlasStatus s = atlas_start(session, tokens, length, NULL, 1, &slot);
			if (s == ATLAS_NO_PAGES && atlas_active(session))
				break; /* when others have ended */
			need(s == ATLAS_OK, atlas_session_error(session));
			read += started >= 0 ? length : 0;
			length = 0;
			if (++started < 0)
				break;
			if (start == 0) {
				start = seconds();
				steps = 0;
			}
		}
		need(atlas_step(session, events, MAX_EVENTS, &made) == ATLAS_OK, atlas_session_error(session));
		steps++;
	}
	const double took = seconds() - start;
	printf("{\"grid\": %d, \"rows\": %d, \"median\": %g, \"sigma\": %g, \"prompts\": %d, \"tokens\": %ld, "
		"\"steps\": %ld, \"empty\": %.4f, \"tokens_per_second\": %.0f}\n", info.prompt_grid, device.prefill_rows,
		median,
		sigma, n, read, steps, 1 - (double)read / (double)steps / device.prefill_rows, (double)read / took);
	free(tokens);
	atlas_session_close(session);
	atlas_plan_close(plan);
	return 0;
}
