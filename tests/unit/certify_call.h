/* certify_call.h - atlas verify --certify in the test's process, on a driver of the test's. cli.h has exit codes of the
 * same names as the compiler's, so tests with a made plan reach it through this.
 */
#ifndef TESTS_CERTIFY_CALL_H
#define TESTS_CERTIFY_CALL_H

#include "runtime/driver.h"
#include "runtime/plan_handle.h"

/* Writes PATH.cert, signed by the key file unless it is NULL; stdout gets JSON. Returns the exit code. */
int certify_call(const AtlasPlan *plan, const Driver *driver, const char *path, const char *key);
/* Does the certificate beside PATH hold, for that capability (0, 0 = any) and signer (NULL = any)? */
int demand_call(const AtlasPlan *plan, const char *path, int major, int minor, const char *trust, char *why, size_t n);

#endif
