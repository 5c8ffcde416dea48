#include "tests/unit/certify_call.h"
#include "runtime/cli/trust/certify.h"

#include <math.h>

int certify_call(const AtlasPlan *plan, const Driver *driver, const char *path, const char *key)
{
	const Args args = {.verb = "verify", .plan = path, .key = key, .quiet = true, .json = true, .threads = 1,
		.tolerance = NAN};
	return certify_plan(&args, plan, driver, &(Tokens){0});
}

int demand_call(const AtlasPlan *plan, const char *path, int major, int minor, const char *trust, char *why, size_t n)
{
	const Args args = {.verb = "run", .plan = path, .trust = {trust}, .n_trust = trust != NULL};
	return certificate_demand(&args, &plan->artifact, major, minor, why, n);
}
