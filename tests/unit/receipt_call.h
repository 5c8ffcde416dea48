/* receipt_call.h - receipt_run_buckets for a test, whose own headers give exit codes other names. */
#ifndef TESTS_RECEIPT_CALL_H
#define TESTS_RECEIPT_CALL_H

#include "runtime/cli/trust/receipt.h"

int call_run_buckets(AtlasSession *session, const Graph *g, const TargetPlan *t, int steps);

#endif
