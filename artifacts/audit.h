/* audit.h - what a plan runs and why, for people and for programs.
 *
 * Both print, for each target and phase, every launch in order: its layers, op, template with tunables, launch
 * geometry, resources, work and cost. Neighbouring layers that run the same launches are one range.
 * Layers: -1 is what comes before the first one, n_layers what comes after the last.
 */
#ifndef ATLAS_AUDIT_H
#define ATLAS_AUDIT_H

#include "artifacts/plan.h"

#include <stdio.h>

typedef struct AuditOptions {
	const char *target; /* this one alone; NULL = all */
	bool reasons;       /* text: also the candidates that were not chosen, with their reasons */
	const char *phase;  /* text: these alone, "decode" or "decode[2]"; NULL = all */
	const char *layer;  /* text: this one alone, "0", "start" or "end"; NULL = all */
} AuditOptions;

/* Does the plan have any launch of that target, phase and layer? */
bool audit_has(const Artifact *a, const AuditOptions *o);

/* False when there is no such target; nothing is printed then. */
bool audit_text(const Artifact *a, const AuditOptions *o, FILE *out);
/* All of one decision: operands, attributes, what the chosen template requires with the constants, and every candidate.
 * slot: "decode[2]/0/norm_linear", phase[rows]/layer/op. False when no target has it; nothing is printed then. */
bool audit_why(const Artifact *a, const AuditOptions *o, const char *slot, FILE *out);
/* The candidate that the decision chose; every plan that was opened has one. */
const Candidate *audit_chosen(const Slot *s);
/* "start", "3", "0-11", "end". */
void audit_layers(const Artifact *a, int first, int last, char text[32]);
/* Microseconds that a step of the phase is expected to take: of each launch what it was chosen for, by its ledger. */
double audit_expected_us(const Slot *ledger, const Phase *p);
/* File and line of the predicate that a candidate was rejected for, by its contract; "" when its reason is none. */
const char *audit_place(const Artifact *a, const Candidate *c);
/* Formats of a launch's weights as the table has them, "e4m3 128x128 + bf16", "-" of none; returns the characters. */
enum { AUDIT_WEIGHTS = 400 };
int audit_weights(const Phase *p, const Launch *l, const Slot *ledger, char text[AUDIT_WEIGHTS]);
/* One object, schema_version 1; candidates are always in it, each with `at`: file and line of the predicate that its
 * reason names, "" when the reason is no predicate. */
bool audit_json(const Artifact *a, const AuditOptions *o, FILE *out);

#endif
