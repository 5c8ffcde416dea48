/* status.c - statuses as text: the table of atlas.h as data. */
#include "runtime/atlas.h"
#include "runtime/device.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct StatusInfo { const char *name, *text, *advice; int exit_code; } StatusInfo;
static const StatusInfo statuses[] = {
#define STATUS_ROW(name, value, exit_code, text, advice) [value] = {#name, text, advice, exit_code},
	ATLAS_STATUS_TABLE(STATUS_ROW)
#undef STATUS_ROW
};
_Static_assert(sizeof statuses / sizeof statuses[0] == ATLAS_STATUS_LAST, "values without a gap");

static const StatusInfo *info(AtlasStatus s)
{
	static const StatusInfo unknown = {"UNKNOWN", "unknown status", "", 70};
	return (unsigned)s < ATLAS_STATUS_LAST ? &statuses[s] : &unknown;
}

const char *atlas_status_name(AtlasStatus s) { return info(s)->name; }
const char *atlas_status_text(AtlasStatus s) { return info(s)->text; }
const char *atlas_status_advice(AtlasStatus s) { return info(s)->advice; }
int atlas_status_exit_code(AtlasStatus s) { return info(s)->exit_code; }
const char *atlas_version(void) { return ATLAS_VERSION; }

AtlasStatus error_set(AtlasError *error, AtlasStatus status, const char *fmt, ...)
{
	if (!error)
		return status;
	va_list ap;
	va_start(ap, fmt);
	error->status = status;
	vsnprintf(error->text, sizeof error->text, fmt, ap);
	va_end(ap);
	return status;
}
