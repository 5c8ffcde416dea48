/* audit.h - what a plan runs and why, for people and for programs.
 *
 * Both print, for each target and phase, every launch in order: its layers, op, template with tunables, launch
 * geometry, resources, work and cost. Neighbouring layers that run the same launches stand once, as a range.
 * Layers: -1 is what comes before the first one, n_layers what comes after the last.
 */
#ifndef ATLAS_AUDIT_H
#define ATLAS_AUDIT_H

#include <stdio.h>

#include "artifacts/plan.h"

typedef struct AuditOptions {
	const char *target; /* this one alone; NULL = all */
	bool reasons;       /* text: also the candidates that were not chosen, with their reasons */
} AuditOptions;

/* False when there is no such target; nothing is printed then. */
bool audit_text(const Artifact *a, const AuditOptions *o, FILE *out);
/* One object, schema_version 1; candidates are always in it. */
bool audit_json(const Artifact *a, const AuditOptions *o, FILE *out);

#endif
