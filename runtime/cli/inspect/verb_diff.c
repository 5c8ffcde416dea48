/* verb_diff.c - atlas diff: what differs between two plans, by meaning. It touches no GPU. */
#include "artifacts/diff.h"
#include "runtime/cli/cli.h"
#include "runtime/plan_handle.h"

static int compare(const Args *args, const AtlasPlan *a, const AtlasPlan *b)
{
	PlanDiff *d = diff_make(&a->artifact, &b->artifact);
	if (!d)
		return cli_say(args, EXIT_ENVIRONMENT, "no memory to compare the plans");
	bool good = true;
	int code = diff_is_empty(d) ? EXIT_OK : EXIT_NEGATIVE;
	if (args->json)
		diff_json(d, stdout);
	else
		good = diff_text(d, args->all, stdout);
	diff_free(d);
	return good ? code : cli_say(args, EXIT_ENVIRONMENT, "no memory to list the differences");
}

int verb_diff(const Args *args)
{
	AtlasPlan *a = NULL, *b = NULL;
	int code = cli_open_plan(args, args->plan, &a);
	if (!code)
		code = cli_open_plan(args, args->other, &b);
	if (!code)
		code = compare(args, a, b);
	atlas_plan_close(b);
	atlas_plan_close(a);
	return code;
}
