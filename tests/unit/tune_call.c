#include "tests/unit/tune_call.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/tune/tune.h"

int tune_call(const Artifact *artifact, const Driver *driver, const char *output, const char *only, int reps)
{
	const Args args = {.verb = "tune", .plan = "plan.bin", .output = output, .only = only, .reps = reps, .quiet = true};
	return tune_artifact(&args, artifact, driver);
}
