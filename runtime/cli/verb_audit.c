/* verb_audit.c - atlas audit: the plan's own account of what runs and why. It touches no GPU. */
#include "artifacts/audit.h"
#include "runtime/cli/cli.h"
#include "runtime/plan_handle.h"

int verb_audit(const Args *args)
{
	AtlasPlan *plan = NULL;
	AuditOptions options = {.target = args->target, .reasons = args->reasons};
	int code = cli_open_plan(args, args->plan, &plan);
	if (code)
		return code;
	const Artifact *a = &plan->artifact;
	bool found = args->json ? audit_json(a, &options, stdout) : audit_text(a, &options, stdout);
	if (!found)
		code = cli_say(args, EXIT_USAGE, "--target %s: the plan has no such target", args->target);
	atlas_plan_close(plan);
	return code;
}
