/* verb_audit.c - atlas audit: the plan's own account of what runs and why, and whether a policy admits it. It touches
 * no GPU.
 */
#include "artifacts/audit.h"
#include "artifacts/closest.h"
#include "runtime/cli/page/audit_page.h"
#include "runtime/cli/trust/certify.h"
#include "runtime/cli/trust/policy.h"
#include "runtime/plan_handle.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int check(const Args *args, const Artifact *a)
{
	Policy policy;
	Violations found = {0};
	char why[VIOLATION_TEXT];
	int code = policy_read(args, args->policy, &policy);
	if (!code) {
		policy_check(&policy, a, certificate_demand(args, a, 0, 0, why, sizeof why) ? why : NULL, &found);
		(args->sarif ? policy_sarif : args->json ? policy_json : policy_text)(&policy, &found, stdout);
		code = found.n ? EXIT_NEGATIVE : EXIT_OK;
	}
	if (found.is_short_of_memory)
		code = cli_say(args, EXIT_ENVIRONMENT, "no memory for all violations");
	free(found.at);
	free(policy.text);
	return code;
}

static void write_text(const void *text, FILE *out) { fputs(text, out); }

/* The page is whole before its file is begun. */
static int write_page(const Args *args, const Artifact *a)
{
	char *page = NULL;
	size_t n;
	char why[VIOLATION_TEXT] = "";
	char *beside = certificate_path(args->plan);
	const CertificateState state = !beside || access(beside, F_OK) != 0 ? CERTIFICATE_NONE
		: certificate_demand(args, a, 0, 0, why, sizeof why) ? CERTIFICATE_BROKEN : CERTIFICATE_HOLDS;
	const size_t path = beside ? strlen(beside) : 0; /* "PLAN.cert: it is of another plan": the page names no folder */
	const char *reason = beside && strncmp(why, beside, path) == 0 && why[path] == ':' ? why + path + 2 : why;
	FILE *f = beside ? open_memstream(&page, &n) : NULL;
	bool good = f && audit_page(a, state, reason, f);
	good = f && fclose(f) == 0 && good;
	int code = !good ? cli_say(args, EXIT_ENVIRONMENT, "no memory for the page")
		: cli_write_file(args, strcmp(args->html_file, "-") == 0 ? NULL : args->html_file, write_text, page);
	free(beside);
	free(page);
	return code;
}

static int no_such_launch(const Args *args)
{
	const char *names[PROBE], *phase = args->phase ? args->phase : "";
	char seen[32];
	for (int p = 0; p < PROBE; p++)
		names[p] = phase_name((PhaseKind)p);
	snprintf(seen, sizeof seen, "%.*s", (int)strcspn(phase, "["), phase);
	const char *near = closest_name(seen, names, PROBE);
	if (near)
		return cli_say(args, EXIT_USAGE, "--phase %s: there is no such phase: did you mean %s?", args->phase, near);
	return cli_say(args, EXIT_USAGE, "%s%s%s%s%s: the plan has no such launch", *phase ? "--phase " : "", phase,
		*phase && args->layer ? " " : "", args->layer ? "--layer " : "", args->layer ? args->layer : "");
}

static int no_such_target(const Args *args, const Artifact *a)
{
	char names[256] = "";
	for (int i = 0; i < a->n_targets; i++)
		snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", a->targets[i].target);
	return cli_say(args, EXIT_USAGE, "--target %s: the plan has no such target: it has %s", args->target,
		*names ? names : "none");
}

static int show(const Args *args, const Artifact *a)
{
	AuditOptions options = {.target = args->target, .reasons = args->reasons, .phase = args->phase,
		.layer = args->layer};
	if (args->html_file)
		return write_page(args, a);
	if (args->slot)
		return audit_why(a, &options, args->slot, stdout) ? EXIT_OK : cli_say(args, EXIT_USAGE,
			"--why %s: no such slot: expected PHASE[ROWS]/LAYER/OP as the table has them", args->slot);
	if ((args->phase || args->layer) && !audit_has(a, &options))
		return no_such_launch(args);
	bool found = args->json ? audit_json(a, &options, stdout) : audit_text(a, &options, stdout);
	return found ? EXIT_OK : no_such_target(args, a);
}

int verb_audit(const Args *args)
{
	AtlasPlan *plan = NULL;
	if (args->sarif && (!args->policy || args->json))
		return cli_say(args, EXIT_USAGE, "--sarif needs --check and excludes --json");
	if (args->json && (args->phase || args->layer || args->slot || args->html_file))
		return cli_say(args, EXIT_USAGE, "--json holds all of the plan: "
			"give it without --phase, --layer, --why and --html");
	int code = cli_open_plan(args, args->plan, &plan);
	if (!code)
		code = args->policy ? check(args, &plan->artifact) : show(args, &plan->artifact);
	atlas_plan_close(plan);
	return code;
}
