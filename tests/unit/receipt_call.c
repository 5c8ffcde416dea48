#include "tests/unit/receipt_call.h"
#include "runtime/cli/cli.h"

int call_run_buckets(AtlasSession *session, const Graph *g, const TargetPlan *t, int steps)
{
	const Args args = {.verb = "receipt"};
	return receipt_run_buckets(&args, session, g, t, steps, NULL, NULL);
}
